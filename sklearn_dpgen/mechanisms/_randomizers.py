"""Local randomizers of arrays: additive noise, and randomized response.

Noise is calibrated to the diameter of a public domain; randomized response is on a public set of
categories.
"""

import math
from abc import abstractmethod
from collections.abc import Callable
from typing import Any

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
from sklearn_dpgen.accounting._profiles import FailingGaussianProfile, RandomizedResponseProfile
from sklearn_dpgen.domains import Box, Domain, OneHot, Product
from sklearn_dpgen.exceptions import PublicTypeError, PublicValueError
from sklearn_dpgen.ledger._ledger import LedgerLike
from sklearn_dpgen.mechanisms._base import (
    DENSITIES,
    Mechanism,
    as_scale,
    as_table,
    discrete_log_likelihood,
    noise_variance,
)
from sklearn_dpgen.utils._exact_draws import FARTHEST_SCALES
from sklearn_dpgen.utils._random import ROUNDING
from sklearn_dpgen.utils._validation import Interval, Real, StrOptions, check_delta

__all__ = [
    "GaussianMechanism",
    "LaplaceMechanism",
    "RandomizedResponse",
    "draw_response",
    "priced_laplace",
    "response_table",
]


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


class _ArrayMechanism(Mechanism):
    """Base of the mechanisms with a domain and a pure budget; it has their constructor."""

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


# Sides of a box that differ by less than this share count as equal.
_EQUAL_SIDES = 1e-9


def _unit_box(domain):
    """Return the middle and the width of each side of a box of unequal sides, else 0 and 1."""
    boxes = domain.domains if isinstance(domain, Product) else (domain,)
    if all(isinstance(box, Box) for box in boxes):
        low, high = _corners(domain)
        widths = high - low
        if widths.max() > (1 + _EQUAL_SIDES) * widths.min():
            return low / 2 + high / 2, widths
    return 0.0, 1.0


class _AdditiveMechanism(_ArrayMechanism):
    """Base of the mechanisms that add noise to every feature.

    In a box of unequal sides, the noise of each feature is proportional to its side: with one scale
    for all, it would hide narrow features behind the sensitivity of wide ones. Records are
    shifted and divided by the sides, get noise of one scale, and are mapped back, which is
    post-processing.
    """

    # The distribution of the noise; ``cost_norm`` is the norm of its sensitivity.
    _kind: str

    @abstractmethod
    def _price(self, sensitivity):
        """Return the scale of the noise, the releases of the report, and δ."""

    def _calibrate(self):
        norm = f"l{self.cost_norm}"
        self._center, self._width = _unit_box(self.domain_)
        per_feature = np.ndim(self._width) == 1
        side = " sides of its feature" if per_feature else ""
        unit_domain: Any = self.domain_
        if per_feature:
            # Rounded like the records, so by monotonicity all of them are inside.
            unit_domain = Box(*self._to_units(_corners(self.domain_)))
        sensitivity = unit_domain.diameter(self.cost_norm)
        scale, releases, delta = self._price(sensitivity)
        # Rounded up, so that the quotient by the width is not below the scale that was priced.
        self.scale_ = np.nextafter(scale * self._width, np.inf) if per_feature and scale else scale
        if not np.isfinite(self.scale_).all():
            raise PublicValueError("domain must be smaller: the noise scale is not finite.")
        self._check_reach(unit_domain, scale)
        spread = math.sqrt(2) * scale if self._kind == "laplace" else scale
        is_exact = self._certified or scale == 0
        return PrivacyReport(
            name=type(self).__name__,
            events=(Event(f"{self._kind}_records"),),
            epsilon=self.epsilon,
            delta=delta,
            sensitivity=sensitivity,
            norm=norm,
            bounds=(Bound(f"{norm}_diameter", sensitivity),),
            noise_scale=self._stated_scale(),
            noise_multiplier=scale / sensitivity,
            releases=releases,
            precision={
                "a value of one record": (
                    f"± {spread:.2g}{side}, in a domain of {norm} diameter {sensitivity:.3g}"
                )
            },
            rounding=0.0 if is_exact else self.domain_.n_features * ROUNDING,
        )

    def _stated_scale(self):
        """Return the scale for the report, by feature where they differ.

        Features are numbered, as a release keeps its settings when their names are lost.
        """
        if np.ndim(self.scale_) == 0:
            return self.scale_
        return {f"x{j}": scale for j, scale in enumerate(self.scale_.tolist())}

    def _to_units(self, X):
        return (X - self._center) / self._width

    def _randomize(self, X, noise):
        if np.ndim(self.scale_) == 0:
            return noise.add(X, self.scale_, self._kind)
        unit_scale = float((self.scale_ / self._width).max())
        return self._center + self._width * noise.add(self._to_units(X), unit_scale, self._kind)

    def _log_likelihood(self, X, Y):
        return DENSITIES[self._kind](X, Y, as_scale(self.scale_, X))

    def _unbiased(self, Y):
        return Y, Y**2 - noise_variance(self.scale_, self._kind)

    def _check_reach(self, domain, scale):
        """Refuse a domain whose records certified noise would move to the edge of its grid."""
        if not self._certified or scale == 0:
            return
        nearest = domain.project(np.zeros((1, domain.n_features)))
        reach = abs(nearest).max() + domain.diameter(np.inf)
        if reach > FARTHEST_SCALES * scale:
            raise PublicValueError(
                f"domain must be within {FARTHEST_SCALES * scale:.3g} of 0 for "
                f"noise='certified' of scale {scale:.3g}, got {reach:.3g}: move the domain "
                "nearer to 0, or use a smaller epsilon."
            )


def _corners(domain):
    """Return the lower and the upper corner of a box or of a product of boxes."""
    boxes = domain.domains if isinstance(domain, Product) else (domain,)
    return np.array(
        [np.concatenate([getattr(box, end) for box in boxes]) for end in ("low", "high")]
    )


class LaplaceMechanism(_AdditiveMechanism):
    """Release records with Laplace noise: pure ε-local differential privacy.

    Parameters
    ----------
    epsilon : float, default=1.0
        Privacy budget of one record, in nats. ``np.inf`` adds no noise.
    domain : Domain or callable
        Public set on which records are projected; its l1 diameter is the sensitivity. In a box of
        unequal sides noise is proportional to the side of each feature; for the same noise in all
        of them declare a cube or a ball. A callable gets the number of features,
        ``domain(n_features=d)``, such as ``functools.partial(Box, -1, 1)``.
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
    scale_ : float or ndarray of shape (n_features,)
        Scale b = Δ₁ / ε of the noise in every feature. In a box of d unequal sides w, one per
        feature: b = d w / ε.
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
        sensitivity is the l1 diameter, of a box of unequal sides in units of its sides.
    :Noise: Laplace, drawn in ``transform``, from the operating system's entropy; in floating point,
        or with ``noise="certified"`` exact.
    :Priced by: b = l1 diameter / ε, in closed form, and slightly more where noise is certified.
        Calls add up.
    :Not covered: Each further call of ``transform``, which is one more release of its records; who
        takes part; budgets above about 36 nats per draw in floating point; errors of ``transform``;
        a ``random_state`` that others know or guess.
    :Proof: :doc:`/privacy_model`; of certified noise :ref:`certified_noise`.

    The noise has density proportional to exp(-‖y - x‖₁ / b) [1]_; values are released on a grid
    finer than b / 1000, of which a box of unequal sides shifts and stretches the columns.

    *Unequal sides.* Scales b_j are ε-private on a box of sides w_j if Σ w_j / b_j ≤ ε. The choice
    b_j = d w_j / ε has the smallest largest, and the smallest mean squared, noise in units of the
    sides; one b = Σ w_j / ε leaves nothing of a feature that is much narrower than others.

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
    _kind = "laplace"

    _saved_state: dict = {}

    def _price(self, sensitivity):
        scale, releases = priced_laplace(
            self.epsilon, sensitivity, self.domain_.n_features, certified=self._certified
        )
        return scale, releases, 0.0


class GaussianMechanism(_AdditiveMechanism):
    """Release records with Gaussian noise: (ε, δ)-local differential privacy.

    Parameters
    ----------
    epsilon : float, default=1.0
        Privacy budget of one record, in nats. ``np.inf`` adds no noise.
    delta : float, default=1e-5
        Failure probability, in (0, 1).
    domain : Domain or callable
        Public set on which records are projected; its l2 diameter is the sensitivity. Boxes of
        unequal sides, and callables, as in LaplaceMechanism.
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
    scale_ : float or ndarray of shape (n_features,)
        Standard deviation σ of the noise in every feature. In a box of d unequal sides w, one per
        feature: w times the σ of the unit cube, whose diameter is √d.
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
        sensitivity is the l2 diameter, of a box of unequal sides in units of its sides.
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
    _kind = "gaussian"

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

    def _price(self, sensitivity):
        delta, n_values = check_delta(self.delta), self.domain_.n_features
        budget = self.epsilon, delta, sensitivity
        if not self._certified:
            scale = gaussian_sigma(*budget, calibration=self.calibration)
            profile = GaussianProfile(sensitivity / scale) if scale else None
        else:
            scale = certified_gaussian_sigma(*budget, n_values, calibration=self.calibration)
            profile = None
            if scale:
                mu = certified_mu(sensitivity, scale, n_values)
                check_certified("gaussian", sensitivity, scale, n_values, mu)
                profile = FailingGaussianProfile(mu, certified_failure(n_values))
        return scale, ((profile, 1),) if profile else (), delta


# Largest size of a table of probabilities.
_MOST_BYTES = 2**30


def response_table(epsilon, n_categories, what="domain"):
    """Return p(y|c) of k-ary randomized response, an array of shape (k, k).

    Raises
    ------
    PublicValueError
        The table would have more than one GiB; the message names ``what``.
    """
    if 8 * n_categories**2 > _MOST_BYTES:
        raise PublicValueError(
            f"{what} must have fewer categories: randomized response on {n_categories} takes a "
            f"table of {8 * n_categories**2 / 2**30:.1f} GiB, more than {_MOST_BYTES // 2**30} "
            "GiB. Declare fewer categories or bins."
        )
    # Written with exp(-ε), so that a large budget does not overflow.
    other = math.exp(-epsilon) / (1 + (n_categories - 1) * math.exp(-epsilon))
    table = np.full((n_categories, n_categories), other)
    np.fill_diagonal(table, 1 - (n_categories - 1) * other)
    return table


def draw_response(X, table, epsilon, noise):
    """Draw a released category for each one-hot row, with the table of ``epsilon``."""
    released = noise.respond(X.argmax(axis=1), table, epsilon)
    drawn = np.zeros(X.shape)
    drawn[np.arange(len(X)), released] = 1
    return drawn


class RandomizedResponse(_ArrayMechanism):
    """Randomized response: release a category or a random other one, with pure ε-local privacy.

    The true category is kept with probability e^ε / (e^ε + k - 1), and each other one is
    released with probability 1 / (e^ε + k - 1).

    Parameters
    ----------
    epsilon : float, default=1.0
        Privacy budget of one record, in nats. ``np.inf`` releases the category as it is.
    domain : OneHot or callable
        The declared categories.
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
        Probability that the released category is not the true one.
    table_ : ndarray of shape (k, k)
        ``table_[c, y]`` is p(y|c).
    domain_, privacy_, n_features_in_
        See Mechanism.

    Notes
    -----
    **Formal guarantee**

    :Promise: Local ε-differential privacy, with δ = 0, of each row of one call of ``transform``.
    :Neighbours: Any two values of one person's record, which are categories here.
    :Public: ``domain``; ``n_samples``; names of the columns; order of the records, and with
        ``index="keep"`` order and index of the records.
    :Bounded by: The declared categories: ``transform`` moves each record to its nearest point of
        the domain.
    :Noise: Randomized response, drawn in ``transform``, from the operating system's entropy; in
        floating point, or with ``noise="certified"`` exact.
    :Priced by: Probabilities of an answer have a ratio of e^ε at most, in closed form. Calls add
        up.
    :Not covered: Each further call of ``transform``, which is one more release of its records; who
        takes part; budgets above about 36 nats per draw in floating point; errors of ``transform``;
        a ``random_state`` that others know or guess.
    :Proof: The probabilities above; :doc:`/privacy_model`; of certified noise
        :ref:`certified_noise`.

    For a soft block s the likelihood is the mixture p(y|s) = Σ_c s_c p(y|c), which is exact at the
    vertices.
    """

    _saved_state: dict = {}
    _has_matrices = True

    def _calibrate(self):
        if not isinstance(self.domain_, OneHot):
            raise PublicTypeError(
                f"domain must be a OneHot domain for randomized response, got {self.domain_!r}. "
                "Use TabularMechanism for several columns."
            )
        self.table_ = response_table(self.epsilon, self.domain_.n_features)
        self.scale_ = self.table_[0, 1:].sum()
        releases = ()
        if math.isfinite(self.epsilon):
            releases = ((RandomizedResponseProfile(self.epsilon, len(self.table_)), 1),)
        return PrivacyReport(
            name=type(self).__name__,
            events=(Event("randomized_response", self.domain_.n_features),),
            epsilon=self.epsilon,
            delta=0.0,
            bounds=(Bound("categories"),),
            noise_scale=self.scale_,
            releases=releases,
            precision={"one answer": f"the true category with {self.table_[0, 0]:.0%} probability"},
        )

    def _randomize(self, X, noise):
        return draw_response(X, self.table_, self.privacy_.epsilon, noise)

    def _unbiased(self, Y):
        U = Y @ np.linalg.inv(self.table_)
        return U, U

    def _log_likelihood(self, X, Y):
        return discrete_log_likelihood(X, Y, as_table(self.table_, X))
