"""What certified noise costs: values are rounded before noise, and noise is discrete.

The proofs are on the page :ref:`certified_noise`. The map of OpenDP says what discrete noise on
integers costs; where it says more than is claimed here, nothing is released.
"""

import functools
import math

from sklearn_dpgen.accounting._calibration import gaussian_sigma, laplace_scale
from sklearn_dpgen.accounting._checks import check_choice, check_count
from sklearn_dpgen.exceptions import PublicValueError
from sklearn_dpgen.utils._exact_draws import GRID_BITS
from sklearn_dpgen.utils._validation import check_delta, check_epsilon, check_positive

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
# Two steps a value: both neighbours are rounded, by at most 7/8 together with what floats lose.
_ROUNDING = 2.0
# Two scores change, and each is rounded in both neighbours.
_SCORE_ROUNDING = 4.0
# Sensitivities, weights and diameters are floats.
_EXCESS = 1 + 2.0**-40


def certified_failure(n_values: int) -> float:
    """Return the probability that Gaussian releases of so many values fail openly.

    Parameters
    ----------
    n_values : int
        Of all releases together.

    Returns
    -------
    float
        2**-52 / 11 a value. Otherwise they are as private as rounded Gaussian noise.
    """
    return n_values * 2.0 ** (-2 * GRID_BITS) / 11


def certified_mu(sensitivity: float, scale: float, n_changed: int) -> float:
    """Return μ of a release with discrete Gaussian noise.

    Parameters
    ----------
    sensitivity : float
        ℓ₂, of the values before they are rounded.
    scale : float
        σ.
    n_changed : int
        How many values differ between neighbours, at most.

    Returns
    -------
    float
        Of the Gaussian profile.
    """
    return _EXCESS * (sensitivity / scale + _ROUNDING * math.sqrt(n_changed) / _STEPS)


def certified_gaussian_scale(mu: float, sensitivity: float, n_changed: int) -> float:
    """Return the smallest σ of which :func:`certified_mu` is at most μ, up to rounding.

    Raises
    ------
    ValueError
        If rounding alone costs as much.
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
        In (0, 1); a part of it, :func:`certified_failure`, is for the law of the noise.
    sensitivity : float
        ℓ₂ diameter over neighbours.
    n_values : int
        How many values are released.
    calibration : {"analytic", "closed_form"}
        As of :func:`gaussian_sigma`.

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
    """Return what :func:`certified_failure` leaves of δ.

    Raises
    ------
    ValueError
        If that is nothing.
    """
    delta = check_delta(delta)
    failure = certified_failure(check_count(n_values, "n_values"))
    if failure >= delta / 2:
        raise PublicValueError(
            f"noise='certified' takes {failure:.3g} of delta for {n_values} values: more than half "
            f"of delta={delta:g}."
        )
    # The two add up to no more than delta, rounded or not.
    return math.nextafter((delta - failure) / (1 - failure), 0)


def certified_range(score_range: float, scale: float) -> float:
    """Return the range ε₀ of a selection from rounded scores.

    Parameters
    ----------
    score_range : float
        As of ``SelectionMechanism``.
    scale : float
        Weights are exp(score / scale).
    """
    return _EXCESS * (score_range / scale + _SCORE_ROUNDING / _STEPS)


def certified_score_scale(epsilon0: float, score_range: float) -> float:
    """Return the smallest scale of which :func:`certified_range` is at most ε₀, up to rounding."""
    return _rounded_up(
        lambda scale: certified_range(score_range, scale) <= epsilon0,
        score_range,
        epsilon0 / _EXCESS - _SCORE_ROUNDING / _STEPS,
    )


def certified_laplace_epsilon(sensitivity: float, scale: float, n_changed: int) -> float:
    """Return ε of a release with discrete Laplace noise, pure, and of its profile.

    Parameters
    ----------
    sensitivity : float
        ℓ₁, of the values before they are rounded.
    scale : float
        b.
    n_changed : int
        How many values differ between neighbours, at most.
    """
    return _laplace_steps(sensitivity, scale, n_changed) / _STEPS


def certified_laplace_scale(epsilon: float, sensitivity: float, n_changed: int) -> float:
    """Return the smallest b of discrete Laplace noise that is ε-private, up to rounding.

    Parameters
    ----------
    epsilon : float
        Budget in nats; ``inf`` gives 0, no noise.
    sensitivity : float
        ℓ₁ diameter over neighbours.
    n_changed : int
        How many values differ between neighbours, at most.

    Raises
    ------
    ValueError
        If rounding alone costs as much.
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
    """Ask OpenDP what discrete noise costs, and raise where that is more than is claimed.

    Parameters
    ----------
    kind : {"gaussian", "laplace"}
    sensitivity : float
        ℓ₂ or ℓ₁, before values are rounded.
    scale : float
        σ or b.
    n_changed : int
        How many values differ between neighbours, at most.
    claimed : float
        μ, of which ρ is μ²/2, or ε.

    Raises
    ------
    ArithmeticError
        OpenDP's map says more.
    """
    check_choice(kind, "kind", ("gaussian", "laplace"))
    if kind == "gaussian":
        moved = sensitivity / scale * _STEPS + _ROUNDING * math.sqrt(n_changed)
        cost, paid = _opendp_map(kind, moved), claimed**2 / 2
    else:
        cost, paid = _opendp_map(kind, _laplace_steps(sensitivity, scale, n_changed)), claimed
    if cost > paid:
        raise ArithmeticError(f"OpenDP prices the {kind} noise at {cost!r}, more than {paid!r}.")


def _laplace_steps(sensitivity, scale, n_changed):
    moved = math.ceil(_EXCESS * sensitivity / scale * _STEPS)
    return moved + int(_ROUNDING) * n_changed


def _rounded_up(is_private, sensitivity, rest):
    """Return a scale of about ``sensitivity`` / ``rest`` that is private."""
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


def _opendp_map(kind, distance):
    """Return ρ, or ε, of OpenDP's noise of scale 2**26 on integers so far apart."""
    return _opendp_noise(kind).map(distance)


@functools.lru_cache(maxsize=2)
def _opendp_noise(kind):
    import opendp.prelude as dp

    # What OpenDP calls so is all of its Python interface.
    dp.enable_features("contrib")
    integers = dp.vector_domain(dp.atom_domain(T="i64"))
    if kind == "gaussian":
        distance, make = dp.l2_distance(T="f64"), dp.m.make_gaussian
        measure = "ZeroConcentratedDivergence"
    else:
        distance, make, measure = dp.l1_distance(T="i64"), dp.m.make_laplace, "MaxDivergence"
    return make(integers, distance, scale=_STEPS, MO=measure)
