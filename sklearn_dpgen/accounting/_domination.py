"""Simple mechanisms that dominate releases: what a budget over several fits adds up.

Fits that are chosen after looking at earlier ones may stop at a cap that is stated beforehand
where each is dominated by a mechanism of one kind, of which a number adds up: Gaussian ones by
μ² (Koskela, Tobaben and Honkela, "Individual privacy accounting with Gaussian differential
privacy", ICLR 2023; Smith and Thakurta, "Fully adaptive composition for Gaussian differential
privacy", 2022), others by their Rényi divergence at a fixed order (Feldman and Zrnic, "Individual
privacy accounting via a Rényi filter", NeurIPS 2021). Privacy profiles add up in this way only
where all releases are fixed before the first one.

A release is here dominated by a mechanism that fails openly with probability δ₀ and is of the
simple kind otherwise. Where δ(ε) is the profile of the kind, that of both is δ₀ + (1 − δ₀) δ(ε),
at ε of either sign.
"""

import functools
import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from scipy.special import log_ndtr, logsumexp, ndtri, ndtri_exp

from sklearn_dpgen.accounting._checks import smallest_passing
from sklearn_dpgen.accounting._composition import ComposedProfile
from sklearn_dpgen.accounting._profiles import (
    ApproximateProfile,
    GaussianProfile,
    PrivacyProfile,
)
from sklearn_dpgen.exceptions import PublicValueError
from sklearn_dpgen.utils._validation import check_delta, check_positive

__all__ = ["DominatingCost", "dominating_gaussian", "dominating_renyi"]

_N_CELLS, _N_FINE_CELLS = 150, 4096
# Covers the rounding of a profile's values.
_ROUNDING = 1e-9


@dataclass(frozen=True)
class DominatingCost:
    """Cost of a simple mechanism that dominates releases.

    Parameters
    ----------
    amount : float
        μ² of the Gaussian mechanism, or the Rényi divergence in nats.
    delta : float
        Probability δ₀ of an open failure.
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
        Planned together: their parameters were fixed before the first of them.
    delta : float
        In (0, 1). Largest probability of an open failure beyond that of the releases themselves;
        Gaussian and pure releases need none.

    Returns
    -------
    DominatingCost
        Exact for Gaussian releases; of others the least μ up to a relative 1e-3.

    Notes
    -----
    A mechanism of which only (ε, δ)-privacy is known is dominated by binary randomized response,
    and this is what a normal variable of mean ±μ/2 says by its sign, at μ = 2 Φ⁻¹(e^ε / (1 + e^ε)).

    Otherwise the profile is known at ε₀ = 0 < ε₁ < ... < ε_m, and at most δ₀ at ε_m. Between two
    of them, a profile of the releases is convex in x = e^ε, and lies below its chord; that of the
    Gaussian mechanism lies above each of its tangents, of slope −Φ(−ε/μ − μ/2). Where the chord
    lies below a tangent at both its ends it does so in between. Beyond ε_m, δ₀ is enough, and
    at negative ε profiles follow from those at positive ones.
    """
    delta = check_delta(delta)
    profile = ComposedProfile(releases)
    single = _single(profile)
    if isinstance(single, GaussianProfile):
        return DominatingCost(single.mu**2, 0.0)
    if isinstance(single, ApproximateProfile):
        # By the logarithm of the smaller tail, which neither rounds to 1 nor vanishes.
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
        As in :func:`dominating_gaussian`.
    order : float
        α > 1.
    delta : float
        As in :func:`dominating_gaussian`.

    Returns
    -------
    DominatingCost
        Exact for Gaussian releases; of others an upper bound, in nats.

    Notes
    -----
    exp((α − 1) D) = 1 + α (α − 1) ∫ (e^{(α − 1) ε} + e^{−α ε}) δ(ε) dε over ε > 0, of the profile
    less the open failure; on each cell of a grid δ(ε) is at most its value at the left.
    """
    order, delta = check_positive(order, "order"), check_delta(delta)
    if order <= 1:
        raise PublicValueError(f"order must be above 1, got {order:g}.")
    profile = ComposedProfile(releases)
    if isinstance(_single(profile), GaussianProfile):
        return DominatingCost(order * _single(profile).mu ** 2 / 2, 0.0)
    epsilons, values, open_delta = _grid(profile, delta)
    values = np.maximum(values - open_delta, 0.0) / (1 - open_delta)
    # Chords in e^ε, which lie above, at more points.
    fine = np.linspace(0.0, epsilons[-1], _N_FINE_CELLS + 1)
    cell = np.clip(np.searchsorted(epsilons, fine, side="right") - 1, 0, len(epsilons) - 2)
    widths = np.expm1(epsilons[1:] - epsilons[:-1])
    weight = np.clip(np.expm1(fine - epsilons[cell]) / widths[cell], 0.0, 1.0)
    heights = (1 - weight) * values[cell] + weight * values[cell + 1]
    step = fine[1]
    # Taken at the right of a cell, where it does not overflow.
    growing = (order - 1) * fine[1:] + math.log(-math.expm1(-(order - 1) * step) / (order - 1))
    falling = -order * fine[:-1] + math.log(-math.expm1(-order * step) / order)
    with np.errstate(divide="ignore"):
        logs = np.log(heights[:-1]) + math.log(order * (order - 1))
    log_moment = logsumexp(np.concatenate([[0.0], logs + growing, logs + falling]))
    return DominatingCost(float(log_moment) / (order - 1) * (1 + _ROUNDING), open_delta)


def _single(profile):
    """Return the only profile of releases, or None."""
    return profile.releases[0][0] if [times for _, times in profile.releases] == [1] else None


@functools.lru_cache(maxsize=64)
def _grid(profile, delta):
    """Return ε from 0, a profile from above at each, and the probability of an open failure."""
    infinite = profile.delta(math.inf)
    open_delta = infinite + (1 - infinite) * delta
    # Where nothing is left at 0, a loss of no size that matters.
    largest = max(profile.epsilon(open_delta / (1 + 2 * _ROUNDING)), 1e-9)
    epsilons = np.linspace(0.0, largest, _N_CELLS + 1)
    values = np.minimum(profile.delta(epsilons) * (1 + _ROUNDING), 1.0)
    values[-1] = min(values[-1], open_delta)
    return epsilons, values, open_delta
