"""Bounds on the error of a generator, by few records or a narrow class of generators (paper 1)."""

import math

import numpy as np
from sklearn.utils import check_scalar

from sklearn_dpgen.domains import Box, Product
from sklearn_dpgen.exceptions import PublicValueError
from sklearn_dpgen.mechanisms import (
    GaussianMechanism,
    LaplaceMechanism,
    RandomizedResponse,
    TabularMechanism,
)
from sklearn_dpgen.schema._column import CategoryColumn
from sklearn_dpgen.utils._validation import Integral, Real, check_is_fitted

__all__ = ["approximation_bound", "excess_risk_bound"]


def approximation_bound(mechanism: GaussianMechanism | LaplaceMechanism, distance: float) -> float:
    """Bound the error of the entropic loss if no generator has the raw distribution.

    Parameters
    ----------
    mechanism : GaussianMechanism or LaplaceMechanism
        Fitted, with a finite budget.
    distance : float
        Least Wasserstein distance W_p(P_G, P_X) between a generated distribution of the class and
        the raw one, in the units of the data: W_1 with the l1 norm for Laplace noise, W_2 with the
        Euclidean norm for Gaussian noise. Where features have noise of different scales, in units
        of these scales: each feature is divided by its own.

    Returns
    -------
    float
        ``distance**p / (p * scale**p)`` in nats, with a scale of 1 where scales differ: a bound on
        KL(P_Y || M(G*(Z))) for the generator G* of the class that minimizes the entropic loss to
        the distribution P_Y of the privatized records. It bounds S_c(P_G*, P_Y) - S_c(P_X, P_Y) as
        well.

    Raises
    ------
    PublicValueError
        The noise of the mechanism is not additive.

    See Also
    --------
    excess_risk_bound : The error from a finite number of records; the two add up.

    Notes
    -----
    This is Lemma 1 of [1]_ as it is proved. The printed statement has two slips: it lacks the
    factor 1 / (p scale^p), and the arguments of the divergence are exchanged. Two normal
    distributions contradict it without the factor. With the arguments exchanged, a rare outlier
    does: the entropic loss may prefer it to the nearest generator.

    References
    ----------
    .. [1] D. Reshetova, W.-N. Chen, A. Özgür, "Training generative models from privatized data
       via entropic optimal transport", 2024, Lemma 1 and its proof.

    Examples
    --------
    >>> from sklearn_dpgen.deconvolution import approximation_bound
    >>> from sklearn_dpgen.domains import Ball
    >>> from sklearn_dpgen.mechanisms import LaplaceMechanism
    >>> mechanism = LaplaceMechanism(epsilon=5.0, domain=Ball(1.0, n_features=2)).fit()
    >>> round(approximation_bound(mechanism, 0.1), 3)
    0.177
    """
    check_scalar(distance, "distance", Real, min_val=0)
    p = getattr(mechanism, "cost_norm", None)
    if p is None:
        raise PublicValueError(
            "An approximation bound is known for LaplaceMechanism and GaussianMechanism, not for "
            f"{type(mechanism).__name__}."
        )
    check_is_fitted(mechanism)
    mechanism.require_noise()
    scale = mechanism.scale_ if np.ndim(mechanism.scale_) == 0 else 1.0
    return float((distance / scale) ** p / p)


def excess_risk_bound(
    mechanism: LaplaceMechanism | RandomizedResponse | TabularMechanism,
    n_samples: int,
    *,
    risk: str = "kl",
    log: bool = False,
) -> float:
    """Bound the expected excess risk of the generator that minimizes the entropic loss.

    Parameters
    ----------
    mechanism : LaplaceMechanism, RandomizedResponse or TabularMechanism
        Fitted, with a finite budget. A table must have neither Gaussian noise nor nullable numbers
        with noise.
    n_samples : int
        Number n of privatized records.
    risk : {"kl", "wasserstein"}, default="kl"
        "kl": bound E KL(P_Y || M(G_n(Z))), in nats, for a class of generators that contains the
        raw distribution. For any other class the same number bounds the excess of the entropic
        loss, E[S_c(P_Gn, P_Y) - S_c(P_G*, P_Y)].
        "wasserstein": bound E[W_{1,b}(P_Gn, P_Y) - W_{1,b}(P_G*, P_Y)], in the units of the data;
        for Laplace noise of one scale b.
    log : bool, default=False
        Return the natural logarithm of the bound, which is finite even if the bound is ``inf``.

    Returns
    -------
    float

    Raises
    ------
    PublicValueError
        No bound is known for the mechanism. For Gaussian noise only the rate n^(-1/2) is known, up
        to an unknown constant C_d that depends on the dimension (Theorem 3 of [1]_).

    Notes
    -----
    With c the cost -log p(y|x) up to a function of y, and R a bound on it over the domain,

        E[S_c(P_Gn, P_Y) - S_c(P_G*, P_Y)] <= 4 exp(2R) / sqrt(n),

    which is Corollary 3 of [1]_ after the part of the cost that depends on y only is removed.

    - Laplace noise of scale b: c = ||x - clip(y)||_1 / b, with y clipped coordinate by coordinate
      to the smallest box around the domain. R is the l1 diameter of that box over b. For the
      cube [-D, D]^d this is 2dD / b, and the bound is 4 exp(4dD / b) / sqrt(n): Corollary 5.
      W_{1,b} is b times S_c up to a constant: Corollary 4. A shift of the domain leaves R
      unchanged, as the noise is additive.
    - Randomized response: c = log(p(x|x) / p(y|x)), so R is the budget epsilon. The table is
      symmetric and positive semidefinite, as the corollary requires.
    - A product of these, over the columns of a table or the features of a box of unequal sides: the
      costs of the columns add up, and so do their R. The product of positive semidefinite kernels
      is one. The released flag of a nullable number removes its value, so its kernel is not
      symmetric, and no bound is known.

    Noise calibrated on a box, on categories or on a table has R = epsilon: the bound is
    4 exp(2 epsilon) / sqrt(n) in any dimension. On the Euclidean ball it grows with the dimension,
    as R = sqrt(d) epsilon.

    The excess never exceeds R, so the bound is informative only for n > 16 exp(4R) / R**2, already
    3e8 at R = 5. It holds for the minimizer over all the records, among generators with values in
    the domain, not for the iterate at which stochastic training stops.

    References
    ----------
    .. [1] D. Reshetova, W.-N. Chen, A. Özgür, "Training generative models from privatized data
       via entropic optimal transport", 2024, Theorem 2 and Corollaries 3 to 5.

    Examples
    --------
    >>> from sklearn_dpgen.deconvolution import excess_risk_bound
    >>> from sklearn_dpgen.domains import Box
    >>> from sklearn_dpgen.mechanisms import LaplaceMechanism
    >>> mechanism = LaplaceMechanism(epsilon=1.0, domain=Box(-1, 1, n_features=2)).fit()
    >>> round(excess_risk_bound(mechanism, n_samples=1_000_000), 4)
    0.0296
    """
    if risk not in ("kl", "wasserstein"):
        raise PublicValueError(f"risk must be 'kl' or 'wasserstein', got {risk!r}.")
    check_scalar(n_samples, "n_samples", Integral, min_val=1)
    cost_range = _cost_range(mechanism)
    log_bound = math.log(4) + 2 * cost_range - math.log(n_samples) / 2
    if risk == "wasserstein":
        if not isinstance(mechanism, LaplaceMechanism):
            raise PublicValueError("risk='wasserstein' needs Laplace noise; use risk='kl'.")
        if np.ndim(mechanism.scale_) > 0:
            raise PublicValueError(
                "risk='wasserstein' needs noise of one scale, and the sides of the domain differ; "
                "use risk='kl'."
            )
        log_bound += math.log(mechanism.scale_)
    if log:
        return log_bound
    with np.errstate(over="ignore"):
        return float(np.exp(log_bound))


def _cost_range(mechanism):
    """Return a bound on the cost -log p(y|x) minus its minimum over x, in nats."""
    if isinstance(mechanism, GaussianMechanism):
        raise PublicValueError(
            "No excess risk bound with known constants exists for Gaussian noise: only the rate "
            "n^(-1/2) is known, up to an unknown constant that depends on the dimension."
        )
    if not isinstance(mechanism, LaplaceMechanism | RandomizedResponse | TabularMechanism):
        raise PublicValueError(
            "An excess risk bound is known for LaplaceMechanism, RandomizedResponse and "
            f"TabularMechanism, not for {type(mechanism).__name__}."
        )
    check_is_fitted(mechanism)
    mechanism.require_noise()
    if isinstance(mechanism, TabularMechanism):
        _check_columns(mechanism)
    if isinstance(mechanism, LaplaceMechanism):
        return float((_box_sides(mechanism.domain_) / mechanism.scale_).sum())
    return float(mechanism.epsilon)


def _check_columns(mechanism):
    """Refuse a table with a column whose density is not a bounded positive semidefinite kernel."""
    for name, column in mechanism.encoder_.columns_.items():
        if isinstance(column, CategoryColumn):
            continue
        if mechanism.noise == "gaussian":
            raise PublicValueError(
                "No excess risk bound with known constants exists for Gaussian noise, as in column "
                f"{name!r}: use noise='laplace'."
            )
        if column.nullable:
            raise PublicValueError(
                f"No excess risk bound is known for a nullable number with noise, as column "
                f"{name!r}: give it n_bins."
            )


def _box_sides(domain):
    """Return the sides of the smallest axis-parallel box around a domain."""
    if isinstance(domain, Product):
        return np.concatenate([_box_sides(factor) for factor in domain.domains])
    if isinstance(domain, Box):
        return domain.high - domain.low
    return np.full(domain.n_features, domain.diameter(np.inf))
