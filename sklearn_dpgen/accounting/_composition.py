"""Adaptive composition of releases with known privacy profiles.

A profile becomes a distribution of the privacy loss on a grid, by Connect-the-Dots (Doroshenko,
Ghazi, Kamath, Kumar and Manurangsi, PETS 2022, Algorithm 1). The profile covers both signs of
epsilon and is convex in e^epsilon, so it belongs to a dominating pair (Zhu, Dong and Wang,
AISTATS 2022), and so does its interpolation, which lies above it: the convolution of the grid
distributions bounds the composition.

The convolution is an upper bound in floating point too; only the rounding of the values of a
profile is estimated, with a factor for safety, and added.

Fits that are chosen adaptively may stop at a cap that is stated in advance if each is dominated by
a mechanism of one kind with an additive parameter: Gaussian mechanisms by μ² (Koskela, Tobaben and
Honkela, "Individual privacy accounting with Gaussian differential privacy", ICLR 2023; Smith and
Thakurta, "Fully adaptive composition for Gaussian differential privacy", 2022), others by their
Rényi divergence at a fixed order (Feldman and Zrnic, "Individual privacy accounting via a Rényi
filter", NeurIPS 2021). Composing privacy profiles is valid only if all releases are fixed before
the first one.

Here a release is dominated by a mechanism of the simple kind with a catastrophic failure of
probability δ₀. With δ(ε) the profile of the kind, that of both is δ₀ + (1 − δ₀) δ(ε), at ε of
either sign.
"""

import functools
import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from scipy.special import log_ndtr, logsumexp, ndtri, ndtri_exp

from sklearn_dpgen.accounting._losses import ComposedLosses, LossDistribution
from sklearn_dpgen.accounting._profiles import (
    ApproximateProfile,
    GaussianProfile,
    PrivacyProfile,
    smallest_passing,
)
from sklearn_dpgen.exceptions import PublicTypeError, PublicValueError
from sklearn_dpgen.utils._checks import (
    check_count,
    check_delta,
    check_epsilon,
    check_positive,
    set_fields,
)

__all__ = [
    "ComposedProfile",
    "DominatingCost",
    "compose_delta",
    "compose_epsilon",
    "default_discretization",
    "dominating_gaussian",
    "dominating_renyi",
]

_COARSEST_GRID = 1e-3
_MAX_GRID_POINTS = 2**17
_VARIANCE_EXCESS = 1e-3
# Loss beyond the grid counts as infinite; this is its probability over all releases.
_TAIL_MASS = 1e-30
# Covers the relative rounding error of a profile's values: measured at 8e-15 for a Gaussian of
# mu = 1, growing like 1 / mu to 4e-11 at mu = 1e-4. Below that it is not covered.
_PROFILE_ROUNDING = 1e-10
_MOST_VALUES = 1000


def compose_epsilon(
    releases: Sequence[tuple[PrivacyProfile, int]],
    delta: float,
    *,
    discretization: float | None = None,
) -> float:
    """Return the ε of an adaptive composition at a given δ.

    Parameters
    ----------
    releases : sequence of (PrivacyProfile, int)
        Each profile with the number of times it is used. The profiles must be for one
        neighbouring relation, replacement, whose sensitivity is already in their parameters.
    delta : float
        In (0, 1).
    discretization : float or None
        Grid step of the privacy loss, in nats; ``default_discretization`` if None. Any step
        gives a valid answer, a finer one a smaller answer.

    Returns
    -------
    float
        An upper bound on the smallest ε, in nats; ``inf`` if the probability of a catastrophic
        failure exceeds δ. Un-sampled Gaussian releases alone, or a single release, have a closed
        form.
    """
    delta = check_delta(delta)
    releases = _merge_gaussians(releases)
    if _is_exact(releases):
        return releases[0][0].epsilon(delta)
    return _composed(tuple(releases), _step(discretization)).epsilon(delta)


def compose_delta(
    releases: Sequence[tuple[PrivacyProfile, int]],
    epsilon: float,
    *,
    discretization: float | None = None,
) -> float:
    """Return the δ of an adaptive composition at a given ε.

    Parameters
    ----------
    releases : sequence of (PrivacyProfile, int)
        As in :func:`compose_epsilon`.
    epsilon : float
        Positive and finite, in nats.
    discretization : float or None
        As in :func:`compose_epsilon`.

    Returns
    -------
    float
        An upper bound of the smallest δ.
    """
    epsilon = check_epsilon(epsilon, allow_infinite=False)
    releases = _merge_gaussians(releases)
    if _is_exact(releases):
        return releases[0][0].delta(epsilon)
    return _composed(tuple(releases), _step(discretization)).delta(epsilon)


@dataclass(frozen=True)
class ComposedProfile(PrivacyProfile):
    """Adaptive composition of releases with known profiles, as a profile.

    Parameters
    ----------
    releases : sequence of (PrivacyProfile, int)
        As in :func:`compose_epsilon`.

    Notes
    -----
    Exact for un-sampled Gaussian releases alone, and for a single release.
    """

    releases: Sequence[tuple[PrivacyProfile, int]]

    def __post_init__(self):
        set_fields(self, releases=tuple(_merge_gaussians(self.releases)))

    def _delta(self, epsilon):
        if _is_exact(self.releases):
            return self.releases[0][0]._delta(epsilon)
        flat = np.ravel(epsilon)
        values = np.empty(flat.shape)
        infinite = np.isinf(flat)
        composition = _composed(self.releases)
        values[infinite] = composition.infinity_mass
        if not infinite.all():
            wanted, places = np.unique(flat[~infinite], return_inverse=True)
            values[~infinite] = _by_chords(composition.deltas, wanted)[places]
        return values.reshape(np.shape(epsilon))

    def epsilon(self, delta: float) -> float:
        """Return an ε ≥ 0 with δ(ε) at most ``delta``: :func:`compose_epsilon`."""
        if _is_exact(self.releases):
            return self.releases[0][0].epsilon(delta)
        return _composed(self.releases).epsilon(check_delta(delta))


def _by_chords(function, epsilons):
    """Return upper values at increasing ε of a function convex in e^ε, by chords if many."""
    if len(epsilons) <= _MOST_VALUES:
        return function(epsilons)
    nodes = np.linspace(0, len(epsilons) - 1, _MOST_VALUES).astype(np.int64)
    values, at = function(epsilons[nodes]), epsilons[nodes]
    cell = np.clip(np.searchsorted(at, epsilons, side="right") - 1, 0, len(at) - 2)
    left, right = at[cell], at[cell + 1]
    # From the right end of a cell, where nothing overflows.
    weight = np.exp(epsilons - right) * np.expm1(left - epsilons) / np.expm1(left - right)
    return (1 - weight) * values[cell] + weight * values[cell + 1]


def default_discretization(releases: Sequence[tuple[PrivacyProfile, int]]) -> float | None:
    """Return the grid step of a composition, in nats, or None if it needs no grid.

    The step is at most 1e-3. Rounding a loss to its two neighbours on a grid of step h adds at
    most min(h E|loss|, h²/4) to its variance; the step is halved until this is below 1e-3 of the
    variance, so that many releases with tiny losses do not cost as much as the grid step. It
    is widened if a release would need more than 2**17 points.

    Parameters
    ----------
    releases : sequence of (PrivacyProfile, int)
        As in :func:`compose_epsilon`.

    Returns
    -------
    float or None
    """
    releases = _merge_gaussians(releases)
    if _is_exact(releases):
        return None
    times = np.array([count for _, count in releases])
    reaches = [_reach(profile, times.sum()) for profile, _ in releases]
    variance = np.array(
        [_variance(profile, reach) for (profile, _), reach in zip(releases, reaches, strict=True)]
    )
    magnitude = np.array([2 * profile.delta(0.0) for profile, _ in releases])
    step = _COARSEST_GRID
    while times @ np.minimum(step * magnitude, step**2 / 4) > _VARIANCE_EXCESS * times @ variance:
        step /= 2
    widest = max(2 * max(reaches), 20 * math.sqrt(times @ variance))
    return max(step, widest / _MAX_GRID_POINTS)


def _merge_gaussians(releases):
    """Validate releases, and replace all un-sampled Gaussian ones by a single exact one."""
    others, squared_mu = [], 0.0
    for profile, times in releases:
        if not isinstance(profile, PrivacyProfile):
            raise PublicTypeError(
                f"releases must hold PrivacyProfile objects, got {type(profile).__name__}."
            )
        times = check_count(times, "the number of times of a release")
        if isinstance(profile, GaussianProfile):
            squared_mu += times * profile.mu**2
        else:
            others.append((profile, times))
    if squared_mu > 0:
        others.append((GaussianProfile(math.sqrt(squared_mu)), 1))
    if not others:
        raise PublicValueError("releases must hold at least one release.")
    return others


def _is_exact(releases):
    return len(releases) == 1 and releases[0][1] == 1


@functools.lru_cache(maxsize=64)
def _reach(profile, total_times):
    """Return a loss beyond which the probability is negligible."""
    floor = profile.delta(math.inf) + _TAIL_MASS / total_times
    return smallest_passing(lambda loss: profile.delta(loss) <= floor, 1.0, rtol=1e-2)


def _variance(profile, reach):
    """Approximate the second moment of the loss by twice the Kullback-Leibler divergence.

    KL = ∫ (1 + e^{−ε}) δ(ε) dε over ε > 0.
    """
    losses = reach * np.linspace(0, 1, 2001) ** 3
    excess = profile.delta(losses) - profile.delta(math.inf)
    return 2 * np.trapezoid((1 + np.exp(-losses)) * excess, losses)


def _connect_the_dots(profile, step, total_times):
    """Return a distribution of the losses (−n..n)·step, and of an infinite one.

    The negative half follows from the positive one, P(−l) = e^{−l} P(l). This is exact for a
    symmetric profile and its interpolation, unlike second differences of values near 1.
    """
    n_positive = math.ceil(_reach(profile, total_times) / step)
    losses = np.arange(n_positive + 1) * step
    delta = np.minimum(profile.delta(losses) * (1 + _PROFILE_ROUNDING), 1.0)
    drop = -np.diff(np.minimum.accumulate(delta))
    positive = drop / -math.expm1(-step)
    positive[:-1] -= drop[1:] / math.expm1(step)
    positive = np.maximum(positive, 0.0)
    negative = positive * np.exp(-losses[1:])
    zero = max(1 - delta[-1] - positive.sum() - negative.sum(), 0.0)
    probabilities = np.concatenate([negative[::-1], [zero], positive])
    places = np.flatnonzero(probabilities)
    return LossDistribution(places - n_positive, np.log(probabilities[places]), float(delta[-1]))


def _step(discretization):
    return None if discretization is None else check_positive(discretization, "discretization")


@functools.lru_cache(maxsize=8)
def _composed(releases, step=None):
    step = _step(default_discretization(releases)) if step is None else step
    times = tuple(count for _, count in releases)
    parts = tuple(_connect_the_dots(profile, step, sum(times)) for profile, _ in releases)
    return ComposedLosses(step, parts, times)


_N_CELLS, _N_FINE_CELLS = 150, 4096
# Covers the rounding error of a profile's values.
_ROUNDING = 1e-9


@dataclass(frozen=True)
class DominatingCost:
    """Cost of releases by a dominating simple mechanism.

    Parameters
    ----------
    amount : float
        μ² of the Gaussian mechanism, or the Rényi divergence in nats.
    delta : float
        Probability δ₀ of a catastrophic failure.
    """

    amount: float
    delta: float


def dominating_gaussian(
    releases: Sequence[tuple[PrivacyProfile, int]], delta: float
) -> DominatingCost:
    """Return the least μ² of a Gaussian mechanism that dominates releases, up to a part of δ.

    Parameters
    ----------
    releases : sequence of (PrivacyProfile, int)
        Releases whose parameters were fixed before the first of them.
    delta : float
        In (0, 1). Largest probability of a catastrophic failure beyond that of the releases
        themselves; Gaussian and pure releases need none.

    Returns
    -------
    DominatingCost
        Exact for Gaussian releases; for others the least μ up to a relative 1e-3.

    Notes
    -----
    A mechanism of which only (ε, δ)-privacy is known is dominated by binary randomized response,
    which is the sign of a normal variable of mean ±μ/2, at μ = 2 Φ⁻¹(e^ε / (1 + e^ε)).

    Otherwise the profile is evaluated at ε₀ = 0 < ε₁ < ... < ε_m, and at most δ₀ at ε_m. Between
    two of these, the profile of the releases is convex in x = e^ε, and below its chord; that of the
    Gaussian mechanism is above each of its tangents, of slope −Φ(−ε/μ − μ/2). A chord that is below
    a tangent at both ends is so in between. Beyond ε_m, δ₀ suffices, and profiles at negative ε
    follow from those at positive ones.
    """
    delta = check_delta(delta)
    profile = ComposedProfile(releases)
    single = _single(profile)
    if isinstance(single, GaussianProfile):
        return DominatingCost(single.mu**2, 0.0)
    if isinstance(single, ApproximateProfile):
        # By the logarithm of the smaller tail, which is neither rounded to 1 nor underflows.
        mu = -2 * float(ndtri_exp(-np.logaddexp(0.0, single.epsilon0)))
        return DominatingCost(mu**2 * (1 + _ROUNDING), single.delta0)
    epsilons, values, open_delta = _grid(profile, delta)
    middles = (epsilons[1:] + epsilons[:-1]) / 2

    def is_dominated(mu):
        at_middle = (1 - open_delta) * GaussianProfile(mu).delta(middles) + open_delta
        slope = -(1 - open_delta) * np.exp(middles + log_ndtr(-middles / mu - mu / 2))
        left = at_middle + slope * np.expm1(epsilons[:-1] - middles)
        right = at_middle + slope * np.expm1(epsilons[1:] - middles)
        return bool((values[:-1] <= left).all() and (values[1:] <= right).all())

    guess = max(2 * float(ndtri((1 + min(values[0], 1 - 1e-12)) / 2)), 1e-6)
    return DominatingCost(smallest_passing(is_dominated, guess, rtol=1e-4) ** 2, open_delta)


def dominating_renyi(
    releases: Sequence[tuple[PrivacyProfile, int]], order: float, delta: float
) -> DominatingCost:
    """Return the Rényi divergence of releases at an order, up to a part of δ.

    Parameters
    ----------
    releases : sequence of (PrivacyProfile, int)
        As in ``dominating_gaussian``.
    order : float
        α > 1.
    delta : float
        As in ``dominating_gaussian``.

    Returns
    -------
    DominatingCost
        Exact for Gaussian releases; for others an upper bound, in nats.

    Notes
    -----
    exp((α − 1) D) = 1 + α (α − 1) ∫ (e^{(α − 1) ε} + e^{−α ε}) δ(ε) dε over ε > 0, for the profile
    without the catastrophic failure; on each cell of a grid δ(ε) is at most its left value.
    """
    order, delta = check_positive(order, "order"), check_delta(delta)
    if order <= 1:
        raise PublicValueError(f"order must be above 1, got {order:g}.")
    profile = ComposedProfile(releases)
    if isinstance(_single(profile), GaussianProfile):
        return DominatingCost(order * _single(profile).mu ** 2 / 2, 0.0)
    epsilons, values, open_delta = _grid(profile, delta)
    values = np.maximum(values - open_delta, 0.0) / (1 - open_delta)
    # Chords in e^ε, which are above the profile, at more points.
    fine = np.linspace(0.0, epsilons[-1], _N_FINE_CELLS + 1)
    cell = np.clip(np.searchsorted(epsilons, fine, side="right") - 1, 0, len(epsilons) - 2)
    widths = np.expm1(epsilons[1:] - epsilons[:-1])
    weight = np.clip(np.expm1(fine - epsilons[cell]) / widths[cell], 0.0, 1.0)
    heights = (1 - weight) * values[cell] + weight * values[cell + 1]
    step = fine[1]
    # Evaluated at the right end of a cell, where it does not overflow.
    growing = (order - 1) * fine[1:] + math.log(-math.expm1(-(order - 1) * step) / (order - 1))
    falling = -order * fine[:-1] + math.log(-math.expm1(-order * step) / order)
    with np.errstate(divide="ignore"):
        logs = np.log(heights[:-1]) + math.log(order * (order - 1))
    log_moment = logsumexp(np.concatenate([[0.0], logs + growing, logs + falling]))
    return DominatingCost(float(log_moment) / (order - 1) * (1 + _ROUNDING), open_delta)


def _single(profile):
    """Return the profile if there is only one, else None."""
    return profile.releases[0][0] if [times for _, times in profile.releases] == [1] else None


@functools.lru_cache(maxsize=64)
def _grid(profile, delta):
    """Return ε from 0, upper values of a profile, and the probability of a catastrophic failure."""
    infinite = profile.delta(math.inf)
    open_delta = infinite + (1 - infinite) * delta
    # If nothing is left at 0, any small loss serves.
    largest = max(profile.epsilon(open_delta / (1 + 2 * _ROUNDING)), 1e-9)
    epsilons = np.linspace(0.0, largest, _N_CELLS + 1)
    values = np.minimum(profile.delta(epsilons) * (1 + _ROUNDING), 1.0)
    values[-1] = min(values[-1], open_delta)
    return epsilons, values, open_delta
