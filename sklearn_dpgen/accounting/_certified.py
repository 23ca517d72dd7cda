"""The cost of certified noise: values are rounded before noise, and noise is discrete.

The proofs are on the page :ref:`certified_noise`. OpenDP computes the cost of discrete noise on
integers; if it exceeds the cost claimed here, nothing is released.
"""

import functools
import math

from sklearn_dpgen.accounting._calibration import gaussian_sigma, laplace_scale
from sklearn_dpgen.exceptions import PublicValueError
from sklearn_dpgen.utils._checks import (
    check_choice,
    check_count,
    check_delta,
    check_epsilon,
    check_positive,
)
from sklearn_dpgen.utils._exact_draws import GRID_BITS

__all__ = [
    "certified_failure",
    "certified_gaussian_scale",
    "certified_gaussian_sigma",
    "certified_laplace_epsilon",
    "certified_laplace_scale",
    "certified_mu",
    "certified_range",
    "certified_score_scale",
    "check_certified",
    "remaining_delta",
]

_STEPS = 2.0**GRID_BITS
# Two steps per value: both neighbours are rounded, each by at most 7/8 with floating-point errors.
_ROUNDING = 2.0
# Two scores change, each rounded in both neighbours.
_SCORE_ROUNDING = 4.0
# Covers the rounding of sensitivities, weights and diameters, which are floats.
_EXCESS = 1 + 2.0**-40


def certified_failure(n_values: int) -> float:
    """Return the probability of a catastrophic failure of Gaussian releases.

    Parameters
    ----------
    n_values : int
        Number of values of all releases together.

    Returns
    -------
    float
        2**-52 / 11 per value. Otherwise they are as private as rounded Gaussian noise.
    """
    return n_values * 2.0 ** (-2 * GRID_BITS) / 11


def certified_mu(sensitivity: float, scale: float, n_changed: int) -> float:
    """Return μ of a release with discrete Gaussian noise.

    Parameters
    ----------
    sensitivity : float
        ℓ₂, of the values before rounding.
    scale : float
        σ.
    n_changed : int
        Largest number of values that differ between neighbours.

    Returns
    -------
    float
        μ of the Gaussian profile.
    """
    return _EXCESS * (sensitivity / scale + _ROUNDING * math.sqrt(n_changed) / _STEPS)


def certified_gaussian_scale(mu: float, sensitivity: float, n_changed: int) -> float:
    """Return the smallest σ whose :func:`certified_mu` is at most μ, up to rounding.

    Raises
    ------
    PublicValueError
        Rounding alone costs as much.
    """
    mu = check_positive(mu, "mu")
    rest = mu / _EXCESS - _ROUNDING * math.sqrt(n_changed) / _STEPS
    return _rounded_up(
        lambda scale: certified_mu(sensitivity, scale, n_changed) <= mu, sensitivity, rest
    )


def certified_gaussian_sigma(
    epsilon: float,
    delta: float,
    sensitivity: float,
    n_values: int,
    *,
    calibration: str = "analytic",
) -> float:
    """Return the standard deviation of one release of discrete Gaussian noise.

    Parameters
    ----------
    epsilon : float
        Budget in nats; ``inf`` gives 0, no noise.
    delta : float
        In (0, 1); :func:`certified_failure` takes a part of it.
    sensitivity : float
        ℓ₂ diameter over neighbours.
    n_values : int
        Number of released values.
    calibration : {"analytic", "closed_form"}
        As in :func:`gaussian_sigma`.

    Returns
    -------
    float
    """
    rest = remaining_delta(delta, n_values)
    sigma = gaussian_sigma(epsilon, rest, sensitivity, calibration=calibration)
    if sigma == 0:
        return 0.0
    return certified_gaussian_scale(sensitivity / sigma, sensitivity, n_values)


def remaining_delta(delta: float, n_values: int) -> float:
    """Return δ after :func:`certified_failure`.

    Raises
    ------
    PublicValueError
        The failure takes more than half of δ.
    """
    delta = check_delta(delta)
    failure = certified_failure(check_count(n_values, "n_values"))
    if failure >= delta / 2:
        raise PublicValueError(
            f"noise='certified' takes {failure:.3g} of delta for {n_values} values: more than half "
            f"of delta={delta:g}."
        )
    # The sum of the two is at most delta, also after rounding.
    return math.nextafter((delta - failure) / (1 - failure), 0)


def certified_range(score_range: float, scale: float) -> float:
    """Return the range ε₀ of a selection from rounded scores.

    Parameters
    ----------
    score_range : float
        As in ``SelectionMechanism``.
    scale : float
        Weights are exp(score / scale).
    """
    return _EXCESS * (score_range / scale + _SCORE_ROUNDING / _STEPS)


def certified_score_scale(epsilon0: float, score_range: float) -> float:
    """Return the smallest scale whose :func:`certified_range` is at most ε₀, up to rounding."""
    return _rounded_up(
        lambda scale: certified_range(score_range, scale) <= epsilon0,
        score_range,
        epsilon0 / _EXCESS - _SCORE_ROUNDING / _STEPS,
    )


def certified_laplace_epsilon(sensitivity: float, scale: float, n_changed: int) -> float:
    """Return the pure ε of a release with discrete Laplace noise, also that of its profile.

    Parameters
    ----------
    sensitivity : float
        ℓ₁, of the values before rounding.
    scale : float
        b.
    n_changed : int
        Largest number of values that differ between neighbours.
    """
    return _laplace_steps(sensitivity, scale, n_changed) / _STEPS


def certified_laplace_scale(epsilon: float, sensitivity: float, n_changed: int) -> float:
    """Return the smallest b of ε-private discrete Laplace noise, up to rounding.

    Parameters
    ----------
    epsilon : float
        Budget in nats; ``inf`` gives 0, no noise.
    sensitivity : float
        ℓ₁ diameter over neighbours.
    n_changed : int
        Largest number of values that differ between neighbours.

    Raises
    ------
    PublicValueError
        Rounding alone costs as much.
    """
    epsilon = check_epsilon(epsilon)
    if laplace_scale(epsilon, sensitivity) == 0:
        return 0.0
    rest = epsilon / _EXCESS - (_ROUNDING * n_changed + 1) / _STEPS
    return _rounded_up(
        lambda scale: certified_laplace_epsilon(sensitivity, scale, n_changed) <= epsilon,
        sensitivity,
        rest,
    )


def check_certified(
    kind: str, sensitivity: float, scale: float, n_changed: int, claimed: float
) -> None:
    """Raise an error if OpenDP's cost of discrete noise exceeds the claimed one.

    Parameters
    ----------
    kind : {"gaussian", "laplace"}
    sensitivity : float
        ℓ₂ or ℓ₁, before values are rounded.
    scale : float
        σ or b.
    n_changed : int
        Largest number of values that differ between neighbours.
    claimed : float
        ε, or μ with ρ = μ²/2.

    Raises
    ------
    ArithmeticError
        OpenDP's cost is larger.
    """
    check_choice(kind, "kind", ("gaussian", "laplace"))
    if kind == "gaussian":
        moved = sensitivity / scale * _STEPS + _ROUNDING * math.sqrt(n_changed)
        paid = claimed**2 / 2
    else:
        moved, paid = _laplace_steps(sensitivity, scale, n_changed), claimed
    cost = _opendp_noise(kind).map(moved)
    if cost > paid:
        raise ArithmeticError(f"OpenDP prices the {kind} noise at {cost!r}, more than {paid!r}.")


def _laplace_steps(sensitivity, scale, n_changed):
    moved = math.ceil(_EXCESS * sensitivity / scale * _STEPS)
    return moved + int(_ROUNDING) * n_changed


def _rounded_up(is_private, sensitivity, rest):
    """Return a private scale of about ``sensitivity`` / ``rest``."""
    if rest <= 0:
        raise PublicValueError(
            "noise='certified' rounds values before noise, and that alone costs more than the "
            "budget: take a larger epsilon, or fewer values."
        )
    scale, step = sensitivity / rest, 1e-15
    while not is_private(scale):
        scale *= 1 + step
        step *= 2
    return scale


@functools.lru_cache(maxsize=2)
def _opendp_noise(kind):
    """Return OpenDP's noise of scale 2**26 on integers, whose map gives ρ or ε of a distance."""
    import opendp.prelude as dp

    # OpenDP's whole Python interface needs this flag.
    dp.enable_features("contrib")
    integers = dp.vector_domain(dp.atom_domain(T="i64"))
    if kind == "gaussian":
        distance, make = dp.l2_distance(T="f64"), dp.m.make_gaussian
        measure = "ZeroConcentratedDivergence"
    else:
        distance, make, measure = dp.l1_distance(T="i64"), dp.m.make_laplace, "MaxDivergence"
    return make(integers, distance, scale=_STEPS, MO=measure)
