"""Laplace and Gaussian noise, calibrated to the diameter of a public domain."""

import math
from collections.abc import Callable

import numpy as np

from sklearn_dpgen.accounting import (
    Bound,
    Event,
    GaussianProfile,
    LaplaceProfile,
    PrivacyReport,
    gaussian_sigma,
)
from sklearn_dpgen.accounting._calibration import laplace_scale
from sklearn_dpgen.accounting._certified import (
    certified_failure,
    certified_gaussian_sigma,
    certified_laplace_epsilon,
    certified_laplace_scale,
    certified_mu,
    check_certified,
)
from sklearn_dpgen.accounting._random_stopping import FailingGaussianProfile
from sklearn_dpgen.domains import Domain
from sklearn_dpgen.exceptions import PublicValueError
from sklearn_dpgen.ledger._ledger import LedgerLike
from sklearn_dpgen.mechanisms._base import (
    Mechanism,
    as_scale,
    gaussian_log_likelihood,
    laplace_log_likelihood,
    noise_variance,
)
from sklearn_dpgen.utils._exact_draws import FARTHEST_SCALES
from sklearn_dpgen.utils._random import ROUNDING
from sklearn_dpgen.utils._validation import Interval, Real, StrOptions, check_delta

__all__ = ["GaussianMechanism", "LaplaceMechanism", "priced_gaussian", "priced_laplace"]


def priced_laplace(epsilon, sensitivity, n_values, *, certified):
    """Return the scale of Laplace noise and the releases of its report.

    Parameters
    ----------
    epsilon : float
    sensitivity : float
        Of all values together, in the l1 norm.
    n_values : int
        Number of values with noise, all of which may change.
    certified : bool

    Returns
    -------
    scale : float
        0 without noise.
    releases : tuple of (PrivacyProfile, int)
    """
    if not certified:
        scale = laplace_scale(epsilon, sensitivity)
        return scale, ((LaplaceProfile(sensitivity / scale), 1),) if scale else ()
    scale = certified_laplace_scale(epsilon, sensitivity, n_values)
    if scale == 0:
        return scale, ()
    spent = certified_laplace_epsilon(sensitivity, scale, n_values)
    check_certified("laplace", sensitivity, scale, n_values, spent)
    return scale, ((LaplaceProfile(spent), 1),)


def priced_gaussian(epsilon, delta, sensitivity, n_values, *, calibration, certified):
    """Return the standard deviation of Gaussian noise and the releases of its report.

    Parameters
    ----------
    epsilon, delta : float
    sensitivity : float
        Of all values together, in the l2 norm.
    n_values : int
        Number of values with noise, all of which may change.
    calibration : {"analytic", "closed_form"}
    certified : bool

    Returns
    -------
    scale : float
        0 without noise.
    releases : tuple of (PrivacyProfile, int)
    """
    if not certified:
        scale = gaussian_sigma(epsilon, delta, sensitivity, calibration=calibration)
        return scale, ((GaussianProfile(sensitivity / scale), 1),) if scale else ()
    scale = certified_gaussian_sigma(epsilon, delta, sensitivity, n_values, calibration=calibration)
    if scale == 0:
        return scale, ()
    mu = certified_mu(sensitivity, scale, n_values)
    check_certified("gaussian", sensitivity, scale, n_values, mu)
    return scale, ((FailingGaussianProfile(mu, certified_failure(n_values)), 1),)


class _AdditiveMechanism(Mechanism):
    """Base of the mechanisms that add noise of one scale, ``scale_``, to every feature."""

    def _unbiased(self, Y):
        return Y, Y**2 - noise_variance(
            self.scale_, "laplace" if self.cost_norm == 1 else "gaussian"
        )

    def _check_reach(self):
        """Refuse a domain whose records certified noise would move to the edge of its grid."""
        if not self._certified or self.scale_ == 0:
            return
        nearest = self.domain_.project(np.zeros((1, self.domain_.n_features)))
        reach = abs(nearest).max() + self.domain_.diameter(np.inf)
        if reach > FARTHEST_SCALES * self.scale_:
            raise PublicValueError(
                f"domain must be within {FARTHEST_SCALES * self.scale_:.3g} of 0 for "
                f"noise='certified' of scale {self.scale_:.3g}, got {reach:.3g}: move the domain "
                "nearer to 0, or use a smaller epsilon."
            )

    def _rounding(self):
        """Return the total variation between the noise of a record and exact draws."""
        is_exact = self._certified or self.scale_ == 0
        return 0.0 if is_exact else self.domain_.n_features * ROUNDING


class LaplaceMechanism(_AdditiveMechanism):
    """Release records with Laplace noise: pure ε-local differential privacy.

    Parameters
    ----------
    epsilon : float, default=1.0
        Privacy budget of one record, in nats. ``np.inf`` adds no noise.
    domain : Domain or callable
        Public set on which records are projected; its l1 diameter is the sensitivity. A callable
        gets the number of features, ``domain(n_features=d)``, such as
        ``functools.partial(Box, -1, 1)``.
    ledger : PrivacyLedger, str or None, default=None
        Ledger, or its path, that each call of ``transform`` charges.
    random_state : int, RandomState or None, default=None
        None draws noise from the operating system's entropy. An int repeats the noise for the same
        records and gives independent noise for others; the guarantee is then void against anybody
        who knows or guesses it.
    index : {"reset", "keep"}, default="reset"
        Whether the rows of a released data frame are renumbered, or keep the index of the records,
        which may identify persons and is then public.
    noise : {"float", "certified"}, default="float"
        "certified" rounds records to a fine grid before noise, and draws discrete noise exactly:
        see :ref:`certified_noise`. It requires OpenDP, and ``random_state=None``.

    Attributes
    ----------
    scale_ : float
        Scale b = Δ₁ / ε of the noise in every feature.
    domain_, privacy_, n_features_in_
        See Mechanism.

    Notes
    -----
    **Formal guarantee**

    :Promise: Local ε-differential privacy, with δ = 0, of each row of one call of ``transform``.
    :Neighbours: Any two values of one person's record.
    :Public: ``domain``; ``n_samples``; names of the columns; order of the records, and with
        ``index="keep"`` order and index of the records.
    :Bounded by: The declared domain: ``transform`` moves each record to its nearest point. The
        sensitivity is the l1 diameter.
    :Noise: Laplace, drawn in ``transform``, from the operating system's entropy; in floating point,
        or with ``noise="certified"`` exact.
    :Priced by: b = l1 diameter / ε, in closed form, and slightly more where noise is certified.
        Calls add up.
    :Not covered: Each further call of ``transform``, which is one more release of its records; who
        takes part; budgets above about 36 nats per draw in floating point; errors of ``transform``;
        a ``random_state`` that others know or guess.
    :Proof: :doc:`/privacy_model`; of certified noise :ref:`certified_noise`.

    The noise has density proportional to exp(-‖y - x‖₁ / b) [1]_; values are released on a grid
    finer than b / 1000.

    References
    ----------
    .. [1] D. Reshetova, W.-N. Chen, A. Özgür, "Training generative models from privatized data
       via entropic optimal transport", 2024, section II.

    Examples
    --------
    >>> import numpy as np
    >>> from sklearn_dpgen.domains import Box
    >>> from sklearn_dpgen.mechanisms import LaplaceMechanism
    >>> X = np.random.default_rng(0).uniform(size=(100, 2))
    >>> mechanism = LaplaceMechanism(epsilon=4.0, domain=Box([0, 0], [1, 1]))
    >>> Y = mechanism.fit_transform(X)
    >>> mechanism.scale_
    0.5
    """

    cost_norm = 1

    _saved_state: dict = {}

    def __init__(
        self,
        epsilon: float = 1.0,
        *,
        domain: Domain | Callable[..., Domain] | None = None,
        ledger: LedgerLike = None,
        random_state: int | np.random.RandomState | None = None,
        index: str = "reset",
        noise: str = "float",
    ) -> None:
        self.epsilon = epsilon
        self.domain = domain
        self.ledger = ledger
        self.random_state = random_state
        self.index = index
        self.noise = noise

    def _calibrate(self):
        sensitivity = self.domain_.diameter(1)
        self.scale_, releases = priced_laplace(
            self.epsilon, sensitivity, self.domain_.n_features, certified=self._certified
        )
        self._check_reach()
        return PrivacyReport(
            name=type(self).__name__,
            events=(Event("laplace_records"),),
            epsilon=self.epsilon,
            delta=0.0,
            sensitivity=sensitivity,
            norm="l1",
            bounds=(Bound("l1_diameter", sensitivity),),
            noise_scale=self.scale_,
            noise_multiplier=self.scale_ / sensitivity,
            releases=releases,
            precision=_precision(math.sqrt(2) * self.scale_, sensitivity, "l1"),
            rounding=self._rounding(),
        )

    def _randomize(self, X, noise):
        return noise.add(X, self.scale_, "laplace")

    def _log_likelihood(self, X, Y):
        return laplace_log_likelihood(X, Y, as_scale(self.scale_, X))


class GaussianMechanism(_AdditiveMechanism):
    """Release records with Gaussian noise: (ε, δ)-local differential privacy.

    Parameters
    ----------
    epsilon : float, default=1.0
        Privacy budget of one record, in nats. ``np.inf`` adds no noise.
    delta : float, default=1e-5
        Failure probability, in (0, 1).
    domain : Domain or callable
        Public set on which records are projected; its l2 diameter is the sensitivity. A callable
        gets the number of features, as in LaplaceMechanism.
    calibration : {"analytic", "closed_form"}, default="analytic"
        The exact calibration of Balle and Wang, or equation (5) of [1]_, which adds slightly more
        noise than necessary.
    ledger : PrivacyLedger, str or None, default=None
        Ledger, or its path, that each call of ``transform`` charges.
    random_state : int, RandomState or None, default=None
        As in LaplaceMechanism.
    index : {"reset", "keep"}, default="reset"
        As in LaplaceMechanism.
    noise : {"float", "certified"}, default="float"
        As in LaplaceMechanism.

    Attributes
    ----------
    scale_ : float
        Standard deviation σ of the noise in every feature.
    domain_, privacy_, n_features_in_
        See Mechanism.

    Notes
    -----
    **Formal guarantee**

    :Promise: Local (ε, δ)-differential privacy of each row of one call of ``transform``.
    :Neighbours: Any two values of one person's record.
    :Public: ``domain``; ``n_samples``; names of the columns; order of the records, and with
        ``index="keep"`` order and index of the records.
    :Bounded by: The declared domain: ``transform`` moves each record to its nearest point. The
        sensitivity is the l2 diameter.
    :Noise: Gaussian, drawn in ``transform``, from the operating system's entropy; in floating
        point, or with ``noise="certified"`` exact.
    :Priced by: The analytic calibration by the privacy profile, or the looser closed form. Calls
        add up.
    :Not covered: Each further call of ``transform``, which is one more release of its records; who
        takes part; budgets above about 36 nats per draw in floating point; errors of ``transform``;
        a ``random_state`` that others know or guess.
    :Proof: :doc:`/privacy_model`; of certified noise :ref:`certified_noise`.

    Values are released on a grid finer than σ / 1000.

    References
    ----------
    .. [1] D. Reshetova, W.-N. Chen, A. Özgür, "Training generative models from privatized data
       via entropic optimal transport", 2024, equation (5).
    """

    cost_norm = 2

    _saved_state: dict = {}
    _parameter_constraints: dict = {
        **Mechanism._parameter_constraints,
        "delta": [Interval(Real, 0, 1, closed="neither")],
        "calibration": [StrOptions({"analytic", "closed_form"})],
    }

    def __init__(
        self,
        epsilon: float = 1.0,
        delta: float = 1e-5,
        *,
        domain: Domain | Callable[..., Domain] | None = None,
        calibration: str = "analytic",
        ledger: LedgerLike = None,
        random_state: int | np.random.RandomState | None = None,
        index: str = "reset",
        noise: str = "float",
    ) -> None:
        self.epsilon = epsilon
        self.delta = delta
        self.domain = domain
        self.calibration = calibration
        self.ledger = ledger
        self.random_state = random_state
        self.index = index
        self.noise = noise

    def _calibrate(self):
        delta = check_delta(self.delta)
        sensitivity = self.domain_.diameter(2)
        self.scale_, releases = priced_gaussian(
            self.epsilon,
            delta,
            sensitivity,
            self.domain_.n_features,
            calibration=self.calibration,
            certified=self._certified,
        )
        self._check_reach()
        return PrivacyReport(
            name=type(self).__name__,
            events=(Event("gaussian_records"),),
            epsilon=self.epsilon,
            delta=delta,
            sensitivity=sensitivity,
            norm="l2",
            bounds=(Bound("l2_diameter", sensitivity),),
            noise_scale=self.scale_,
            noise_multiplier=self.scale_ / sensitivity,
            releases=releases,
            precision=_precision(self.scale_, sensitivity, "l2"),
            rounding=self._rounding(),
        )

    def _randomize(self, X, noise):
        return noise.add(X, self.scale_, "gaussian")

    def _log_likelihood(self, X, Y):
        return gaussian_log_likelihood(X, Y, as_scale(self.scale_, X))


def _precision(spread, diameter, norm):
    """Return the precision of a value of one record under noise, in words."""
    return {
        "a value of one record": f"± {spread:.2g}, in a domain of {norm} diameter {diameter:.3g}"
    }
