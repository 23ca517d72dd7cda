"""Exact price of selections by the exponential mechanism, alone and next to Gaussian releases.

A selection has *range* ε₀ if its privacy loss lies in [t − ε₀, t] for some t in [0, ε₀] that may
depend on the neighbours. The exponential mechanism has it, and pure differential privacy at ε₀ is
a weaker property: the losses then lie anywhere in [−ε₀, ε₀].
"""

import functools
import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from sklearn_dpgen.accounting._calibration import gaussian_sigma
from sklearn_dpgen.accounting._checks import check_count, smallest_passing
from sklearn_dpgen.accounting._composition import compose_delta, compose_epsilon
from sklearn_dpgen.accounting._profiles import GaussianProfile, PrivacyProfile
from sklearn_dpgen.exceptions import PublicValueError
from sklearn_dpgen.utils._validation import check_delta, check_epsilon, check_positive

__all__ = ["BoundedRangeProfile", "calibrate_releases"]

# Smaller values of a profile are rounded up to this, which bounds the grid.
_FLOOR = 1e-30
# Limits of budgets, beyond which exponentials or their differences leave the range of doubles.
_LARGEST, _SMALLEST = 1e4, 1e-15


@dataclass(frozen=True)
class BoundedRangeProfile(PrivacyProfile):
    """Adaptive selections by the exponential mechanism, each of range ε₀.

    One selection: δ(ε) = (1 − e^{(ε − ε₀)/2})² / (1 − e^{−ε₀}) between −ε₀ and ε₀, and 0 above.

    Parameters
    ----------
    epsilon0 : float
        Range of the loss of one selection, in nats. For the exponential mechanism with weights
        exp(a u), equally for the largest of u plus Gumbel noise of scale 1/a, it is a times the
        largest difference, over neighbours, between the changes of two scores. Two conventions:
        scores that change by at most Δ, in either direction, have weights exp(ε₀ u / (2Δ)); scores
        that all change in one direction, as counts do when a record is added or removed, have
        weights exp(ε₀ u / Δ).
    n_selections : int
        Number of selections, each of which may depend on all earlier releases.

    Notes
    -----
    Let V(ε) be the divergence at e^ε of all later releases, and F(x) = V(log x), which is convex.
    Before one more selection, with privacy loss L, it is E F(x e^{−L}), and E e^{−L} = 1. Of all
    distributions of L on [t − ε₀, t] the binary one on the two ends is therefore the worst:

        F⁺(x) = max over t of q F(x e^{−t}) + (1 − q) F(x e^{ε₀ − t}),
        q = (1 − e^{t − ε₀}) / (1 − e^{−ε₀}),

    the highest point above x of all chords of F from u to e^{ε₀} u. Binary mechanisms attain it, so
    it is exact. From F(x) = (1 − x)₊ the first step has its maximum at t = (ε₀ + ε)/2, in the
    closed form above. The choice of t depends on the loss so far, which is the effect of
    adaptivity. Several selections should therefore be in one profile: using the profile of one of
    them several times is valid too, but the pair that dominates every t at once has the variance
    ε₀²/3 of its loss instead of at most ε₀²/4.

    Further releases may come before, between and after the selections. With other releases that are
    fixed pairs the composition is largest if the selections come last, when t depends on all
    losses; this is what :func:`compose_epsilon` evaluates.

    For several selections, F is evaluated at ε = i ε₀ / m and interpolated by its chords, which are
    above a convex function; the maximum over each cell of u has a closed form. The relative excess
    in ε is about 1/(2 m²): 3e-4 for 30 selections, 1e-3 for 100.

    References
    ----------
    Durfee and Rogers, "Practical differentially private top-k selection with pay-what-you-get
    composition", NeurIPS 2019, for the range; Dong, Durfee and Rogers, "Optimal differential
    privacy composition for exponential mechanisms", ICML 2020, for the reduction to binary pairs
    and the gap between adaptive and fixed choices.
    """

    epsilon0: float
    n_selections: int = 1

    def __post_init__(self):
        epsilon0 = check_epsilon(self.epsilon0, "epsilon0", allow_infinite=False)
        object.__setattr__(self, "epsilon0", epsilon0)
        object.__setattr__(self, "n_selections", check_count(self.n_selections, "n_selections"))

    def _delta(self, epsilon):
        if self.n_selections == 1:
            gap = np.expm1(np.minimum(epsilon - self.epsilon0, 0.0) / 2)
            return gap * gap / -math.expm1(-self.epsilon0)
        values, step = _adaptive_values(self.epsilon0, self.n_selections)
        epsilon = np.minimum(epsilon, (len(values) - 1) * step)
        cell = np.minimum((epsilon / step).astype(np.int64), len(values) - 2)
        # Linear in e^ε between the nodes.
        weight = np.clip(np.expm1(epsilon - cell * step) / math.expm1(step), 0.0, 1.0)
        return (1 - weight) * values[cell] + weight * values[cell + 1]


@functools.lru_cache(maxsize=64)
def _adaptive_values(epsilon0, n_selections):
    """Return upper values of the profile of all selections at ε = 0, h, 2h, ..., and h."""
    n_cells = int(np.clip(240 / math.sqrt(n_selections), 8, 200))
    step = epsilon0 / n_cells
    values = np.array([_FLOOR])
    for _ in range(n_selections):
        values = _select(values, epsilon0, n_cells)
        # Without the margin, rounding alone may exceed the floor.
        values = values[: np.count_nonzero(values > (1 + 1e-9) * _FLOOR) + 1]
    values.flags.writeable = False
    return values, step


def _select(values, epsilon0, n_cells):
    """Return the profile before one more selection, on one more range of nodes.

    On a cell of u, u = y x_a with 1 ≤ y ≤ e^h, both ends of the chord are linear in y, and its
    height at x is a constant + A y + C / y with A, C ≤ 0: the best y is √(C/A).
    """
    step = epsilon0 / n_cells
    width = math.expm1(step)
    positive = np.concatenate([values, np.full(3 * n_cells + 1, _FLOOR)])
    back = np.arange(n_cells, 0, -1)
    mirrored = -np.expm1(-back * step) + np.exp(-back * step) * positive[back]
    nodes = np.concatenate([mirrored, positive])
    # Row i: the nodes from x_i e^{−ε₀} to x_i e^{ε₀}.
    windows = np.lib.stride_tricks.sliding_window_view(nodes, 2 * n_cells + 1)
    windows = windows[: len(values) + n_cells]
    low, high = windows[:, :n_cells], windows[:, n_cells:-1]
    low_rise = windows[:, 1 : n_cells + 1] - low
    high_rise = windows[:, n_cells + 1 :] - high
    left = np.arange(n_cells) * step
    linear = low_rise - math.exp(-epsilon0) * high_rise
    inverse = np.exp(-left) * ((high - low) * width + low_rise - high_rise)
    with np.errstate(divide="ignore", invalid="ignore"):
        y = np.sqrt(inverse / linear)
    y = np.clip(np.nan_to_num(y, nan=1.0), 1.0, 1.0 + width)
    weight = (y - 1) / width
    q = np.expm1(-left - np.log(y)) / math.expm1(-epsilon0)
    heights = q * (low + weight * low_rise) + (1 - q) * (high + weight * high_rise)
    return np.maximum(heights.max(axis=1), _FLOOR)


def calibrate_releases(
    epsilon: float,
    delta: float,
    *,
    gaussian_shares: Sequence[float],
    selection_share: float | None = None,
    n_selections: int = 0,
) -> tuple[tuple[float, ...], float | None]:
    """Return the parameters of Gaussian releases and selections that together spend a budget.

    Parameters
    ----------
    epsilon : float
        Budget in nats of all releases together; ``inf`` gives infinite parameters, no noise.
    delta : float
        In (0, 1).
    gaussian_shares : sequence of float
        One positive number per Gaussian release, to which its μ² is proportional.
    selection_share : float or None
        Share of each selection, to which its ε₀²/4, the largest variance of its loss, is
        proportional. None without selections.
    n_selections : int
        Number of selections.

    Returns
    -------
    mus : tuple of float
        Sensitivity over the standard deviation of the noise, of each Gaussian release.
    epsilon0 : float or None
        Range of each selection; None without selections.

    Notes
    -----
    A common factor multiplies all of them: the largest, up to a relative 1e-4, at which
    :func:`compose_epsilon` of the Gaussian profiles and of a ``BoundedRangeProfile`` is at
    most ``epsilon``. The releases may be in any order, and adaptive.
    """
    epsilon = check_epsilon(epsilon)
    delta = check_delta(delta)
    shares = [check_positive(share, "gaussian_shares") for share in gaussian_shares]
    if n_selections != 0:
        n_selections = check_count(n_selections, "n_selections")
        selection_share = check_positive(selection_share, "selection_share")
        if _LARGEST < epsilon < math.inf or delta < _SMALLEST:
            raise PublicValueError(
                f"Selections are accounted for up to epsilon {_LARGEST:g}, or without noise, and "
                f"from delta {_SMALLEST:g}; got epsilon {epsilon:g} and delta {delta:g}."
            )
    elif selection_share is not None:
        raise PublicValueError("selection_share must be None if n_selections is 0.")
    if not shares and not n_selections:
        raise PublicValueError("gaussian_shares must not be empty if n_selections is 0.")
    return _calibrated(epsilon, delta, tuple(shares), selection_share, n_selections)


@functools.lru_cache(maxsize=64)
def _calibrated(epsilon, delta, shares, selection_share, n_selections):
    total = math.fsum(shares)
    if n_selections:
        total += n_selections * selection_share

    def scaled(multiplier):
        mus = tuple(math.sqrt(share / total) / multiplier for share in shares)
        return mus, 2 * math.sqrt(selection_share / total) / multiplier if n_selections else None

    def releases(multiplier):
        mus, epsilon0 = scaled(multiplier)
        selections = [(BoundedRangeProfile(epsilon0, n_selections), 1)] if n_selections else []
        return [(GaussianProfile(mu), 1) for mu in mus] + selections

    if math.isinf(epsilon):
        return (math.inf,) * len(shares), math.inf if n_selections else None
    # The scale of one Gaussian release, unless selections are many or take a small share.
    multiplier = gaussian_sigma(epsilon, delta)
    if n_selections:
        multiplier = smallest_passing(
            lambda m: compose_delta(releases(m), epsilon) <= delta, multiplier, rtol=1e-4
        )
    # The searches over delta and over epsilon may round differently.
    step = 1e-9 if n_selections else 1e-15
    while compose_epsilon(releases(multiplier), delta) > epsilon:
        multiplier *= 1 + step
        step *= 10
    return scaled(multiplier)
