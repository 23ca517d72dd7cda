"""Price of private selection: by the exponential mechanism, and of the best of random runs.

**Exponential mechanism**

A selection has *range* ε₀ if its privacy loss lies in [t − ε₀, t] for some t in [0, ε₀] that may
depend on the neighbours. The exponential mechanism has it, and pure differential privacy at ε₀ is
a weaker property: the losses then lie anywhere in [−ε₀, ε₀].

**Best of a random number of runs**

A mechanism A runs Q, whose outputs have a total order, K times, with K drawn independently of the
data, and publishes the best output, but neither K nor the other outputs. Ties are broken by a
uniform number drawn with each output, so that no two are equal; this changes no privacy profile, as
the number is independent of the data.

Let φ(z) = E z^K, and let K be at least 1. An output y is the best with the density
Σ_k P(K = k) k q(y) F(y)^{k−1} = q(y) φ'(F(y)), with F(y) the probability that Q gives a lower one.
For neighbours with densities p and q, the divergence of A at e^ε is thus

    δ_A(ε) = ∫ (p φ'(F_P) − e^ε q φ'(F_Q))₊.

**Theorem.** Let T(G) = min over a of δ_Q(a) + e^a G be the largest probability under a neighbour of
an event of probability G. With h(r) the largest (φ'(1 − G) − r φ'(1 − T(G)))₊ over 0 ≤ G ≤ 1,

    δ_A(ε) ≤ ∫ p h(e^ε q / p).

If Σ_j a_j (1 − r / r_j)₊ ≥ h(r) for all r ≥ 0, with a_j ≥ 0, then it is at most
Σ_j a_j δ_Q(ε − log r_j).

Proof. Let G_P = 1 − F_P(y), the probability of an output above y. Under a neighbour it is
G_Q ≤ T(G_P), and φ' is non-decreasing, so φ'(F_Q) = φ'(1 − G_Q) ≥ φ'(1 − T(G_P)): the integrand is
at most p h(e^ε q / p), which is at most Σ_j a_j (p − e^{ε − log r_j} q)₊. ∎

The best of one run has φ' = 1, h(r) = (1 − r)₊ and δ_A = δ_Q. As a maximum of decreasing affine
functions h is convex, and its chords between any nodes are such a sum. The argument is that of
[1]_, where φ'(F_P) / φ'(F_Q) is bounded by its largest value e^c, which gives E[K] δ_Q(ε − c): all
r_j are then equal to the largest one. Here a large ratio counts only with its weight.

The output of A is a part of all K runs and K itself, so δ_A(ε) ≤ E_K δ_{Q composed K times}(ε) too,
which is smaller at small ε.

References
----------
.. [1] A. Koskela, R. Redberg, Y.-X. Wang, "Privacy profiles for private selection", ICML 2024, for
   Poisson, negative binomial and binomial numbers.
.. [2] N. Papernot, T. Steinke, "Hyperparameter tuning with Rényi differential privacy", ICLR 2022,
   for these distributions and their bounds by Rényi divergences.
"""

import functools
import math
from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import astuple, dataclass
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np

from sklearn_dpgen.accounting._calibration import gaussian_sigma
from sklearn_dpgen.accounting._composition import compose_delta, compose_epsilon
from sklearn_dpgen.accounting._profiles import (
    FailingGaussianProfile,
    GaussianProfile,
    PrivacyProfile,
    smallest_passing,
)
from sklearn_dpgen.exceptions import PublicTypeError, PublicValueError
from sklearn_dpgen.utils._checks import (
    Real,
    check_count,
    check_delta,
    check_epsilon,
    check_positive,
    set_fields,
)
from sklearn_dpgen.utils._random import NoiseSource

__all__ = [
    "BinomialRuns",
    "BoundedRangeProfile",
    "NegativeBinomialRuns",
    "PoissonRuns",
    "RandomRuns",
    "RandomStoppingProfile",
    "calibrate_releases",
    "calibrate_runs",
]

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
    _checks = {"epsilon0": check_positive, "n_selections": check_count}

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


# Probability below the resolution of a uniform number of 52 bits.
TAIL = 2.0**-53


class RandomRuns(ABC):
    """Distribution of the number of runs, K ≥ 1, with generating function φ; a dataclass."""

    if TYPE_CHECKING:
        __dataclass_fields__: ClassVar[dict[str, Any]]

    @property
    @abstractmethod
    def mean(self) -> float:
        """E[K] = φ'(1)."""

    @abstractmethod
    def log_weight(self, above: np.ndarray) -> np.ndarray:
        """Return log(φ'(1 − G) / φ'(1)).

        Parameters
        ----------
        above : ndarray
            G, the probability that one run gives a better output.

        Returns
        -------
        ndarray of the same shape
        """

    @abstractmethod
    def probabilities(self) -> np.ndarray:
        """Return P(K = k) for k = 1, 2, ..., up to 1 − 2^-53 of the mass.

        Returns
        -------
        ndarray of shape (n_counts,)
        """

    def draw(self, noise: NoiseSource) -> int:
        """Draw K.

        Parameters
        ----------
        noise : NoiseSource

        Returns
        -------
        int
            Must be kept secret.
        """
        below = np.cumsum(self.probabilities())[:-1]
        return 1 + int(np.searchsorted(below, noise.uniform(1)[0], side="right"))


@dataclass(frozen=True)
class PoissonRuns(RandomRuns):
    """Poisson number K of runs, given that it is not 0: φ'(z) is proportional to e^{λz}.

    Parameters
    ----------
    rate : float
        λ, the mean before conditioning on K > 0.
    """

    rate: float

    def __post_init__(self):
        set_fields(self, rate=check_positive(self.rate, "rate"))

    @property
    def mean(self) -> float:
        """λ / (1 − e^{−λ})."""
        return self.rate / -math.expm1(-self.rate)

    def log_weight(self, above: np.ndarray) -> np.ndarray:
        """Return −λ G."""
        return -self.rate * above

    def probabilities(self) -> np.ndarray:
        """Return P(K = k), as in ``RandomRuns``."""
        from scipy.stats import poisson

        distribution = poisson(self.rate)
        counts = np.arange(1, int(distribution.isf(TAIL)) + 2)
        return distribution.pmf(counts) / -math.expm1(-self.rate)


@dataclass(frozen=True)
class NegativeBinomialRuns(RandomRuns):
    """Truncated negative binomial number K of runs: geometric for η = 1, logarithmic for η = 0.

    P(K = k) is proportional to (1 − γ)^k Π_{l<k} (l + η)/(l + 1), and φ'(z) to
    (1 − (1 − γ) z)^{−η−1}.

    Parameters
    ----------
    gamma : float
        In (0, 1); a smaller one gives more runs.
    eta : float, default=1.0
        Above -1.
    """

    gamma: float
    eta: float = 1.0

    def __post_init__(self):
        set_fields(self, gamma=_check_share(self.gamma, "gamma"))
        if isinstance(self.eta, bool) or not isinstance(self.eta, Real):
            raise PublicTypeError(f"eta must be a real number, got {type(self.eta).__name__}.")
        if not -1 < self.eta < math.inf:
            raise PublicValueError(f"eta must be finite and above -1, got {self.eta}.")
        set_fields(self, eta=float(self.eta))

    @property
    def mean(self) -> float:
        """η (1 − γ) / (γ (1 − γ^η)), or its limit for η = 0."""
        odds, exponent = (1 - self.gamma) / self.gamma, self.eta * math.log(self.gamma)
        if abs(exponent) < 1e-12:
            return odds / -math.log(self.gamma)
        return odds * self.eta / -math.expm1(exponent)

    def log_weight(self, above: np.ndarray) -> np.ndarray:
        """Return −(1 + η) log(1 + G (1 − γ)/γ)."""
        return -(1 + self.eta) * np.log1p(above * (1 - self.gamma) / self.gamma)

    def probabilities(self) -> np.ndarray:
        """Return P(K = k), as in ``RandomRuns``."""
        log_keep = math.log1p(-self.gamma)
        # The ratio of successive probabilities tends to 1 − γ, from above for η > 1.
        size = 2 * math.ceil((40 + 4 * max(self.eta, 0.0)) / -log_keep)
        k = np.arange(1, size)
        steps = np.log((k + self.eta) / (k + 1)) + log_keep
        logs = np.concatenate([[0.0], np.cumsum(steps)])
        probabilities = np.exp(logs - logs.max())
        probabilities /= probabilities.sum()
        return probabilities[: np.searchsorted(np.cumsum(probabilities), 1 - TAIL) + 1]


@dataclass(frozen=True)
class BinomialRuns(RandomRuns):
    """Binomial number K of runs, given that it is not 0: φ'(z) ∝ (1 − p + p z)^{n−1}.

    Parameters
    ----------
    n : int
        The largest number of runs, at least 1.
    p : float
        In (0, 1).
    """

    n: int
    p: float

    def __post_init__(self):
        set_fields(self, n=check_count(self.n, "n"))
        set_fields(self, p=_check_share(self.p, "p"))

    @property
    def mean(self) -> float:
        """n p / (1 − (1 − p)^n)."""
        return self.n * self.p / -math.expm1(self.n * math.log1p(-self.p))

    def log_weight(self, above: np.ndarray) -> np.ndarray:
        """Return (n − 1) log(1 − p G)."""
        return (self.n - 1) * np.log1p(-self.p * above)

    def probabilities(self) -> np.ndarray:
        """Return P(K = k), as in ``RandomRuns``."""
        from scipy.stats import binom

        probabilities = binom(self.n, self.p).pmf(np.arange(1, self.n + 1))
        return probabilities / probabilities.sum()


def _check_share(value, name):
    value = check_positive(value, name)
    if value >= 1:
        raise PublicValueError(f"{name} must be strictly between 0 and 1, got {value}.")
    return value


# Numbers of tangents of the trade-off, of probabilities at which it is evaluated, of nodes of h and
# of ε, and of numbers of composed runs.
_N_TANGENTS, _N_EVENTS, _N_SHIFTS, _N_EPSILONS, _N_COUNTS = 1000, 20_000, 128, 1000, 64
# Largest negative ε of the hull; beyond, 1 − e^ε + e^ε δ is rounded to 1.
_MIRRORED = 20.0
_ROUNDING = 1e-10
# Largest loss; its exponential is far from overflow.
_LARGEST_LOSS = 600.0


_DISTRIBUTIONS = {kind.__name__: kind for kind in (PoissonRuns, NegativeBinomialRuns, BinomialRuns)}


@dataclass(frozen=True)
class RandomStoppingProfile(PrivacyProfile):
    """The best of a random number K of runs, each with the profile of one run.

    The runs may differ in parameters that are drawn independently of the data and are a part of the
    output: if each of them has the profile, a random one has it.

    Parameters
    ----------
    run : PrivacyProfile
        Profile of one run with its whole output, such as a model and a noisy score.
    n_runs : PoissonRuns, NegativeBinomialRuns or BinomialRuns
        Distribution of K, which is drawn before the first run, and kept secret, like all outputs
        except one.

    Notes
    -----
    δ_A(ε) ≤ Σ_j a_j δ(ε − log r_j), by the theorem in the module docstring. Between probabilities
    g < g' at which the trade-off T is evaluated, φ'(1 − G) ≤ φ'(1 − g) and
    φ'(1 − T(G)) ≥ φ'(1 − T(g')), so that a finite maximum of lines is above h. Its chords between
    some r_j, from 0 to its zero, are above it in turn. Losses above 600 count as infinite.

    The minimum of this bound, of that of the composition (for Gaussian runs), and of 1 is computed
    on a grid of ε, up to a value of 1e-30. Each value bounds the profile of A, which is convex in
    e^ε, and so does every chord between two of them, hence their lower convex hull, which is used,
    with the mirror image at negative ε. Beyond the grid the last value is used.

    The bound is nearly tight: for ten Gaussian runs on average, an order of the outputs attains 97
    percent of its ε at δ = 1e-5. It ranks outputs first that are evidence against a record, up to
    some point, and then those with the most evidence for it.

    References
    ----------
    Papernot and Steinke, "Hyperparameter tuning with Rényi differential privacy", ICLR 2022, for
    bounds by the Rényi divergence.
    """

    run: PrivacyProfile
    n_runs: RandomRuns

    def __post_init__(self):
        if isinstance(self.n_runs, tuple) and self.n_runs[0] in _DISTRIBUTIONS:
            name, *parameters = self.n_runs
            set_fields(self, n_runs=_DISTRIBUTIONS[name](*parameters))
        for name, kind in (("run", PrivacyProfile), ("n_runs", RandomRuns)):
            value = getattr(self, name)
            if not isinstance(value, kind):
                raise PublicTypeError(
                    f"{name} must be a {kind.__name__}, got {type(value).__name__}."
                )

    def to_dict(self) -> dict:
        """Return plain Python containers; n_runs is a list of its name and parameters."""
        content = super().to_dict()
        content["parameters"]["n_runs"] = [type(self.n_runs).__name__, *astuple(self.n_runs)]
        return content

    def _delta(self, epsilon):
        nodes, values = _hull(self)
        epsilon = np.minimum(epsilon, nodes[-1])
        cell = np.clip(np.searchsorted(nodes, epsilon, side="right") - 1, 0, len(nodes) - 2)
        low, high = nodes[cell], nodes[cell + 1]
        # Linear in e^ε between the nodes.
        weight = np.expm1(epsilon - low) / np.expm1(high - low)
        return (1 - weight) * values[cell] + weight * values[cell + 1]


def _likely(run, above):
    """Return an upper bound on T: the best of the tangents δ(a) + e^a G on a grid of a."""
    size = np.geomspace(1e-6, 40.0, _N_TANGENTS)
    slopes = np.concatenate([-size[::-1], [0.0], size])
    heights, slopes = run.delta(slopes), np.exp(slopes)
    # Neighbouring tangents meet at decreasing probabilities; each of them is a bound anywhere.
    meet = -np.diff(heights) / np.diff(slopes)
    best = len(meet) - np.searchsorted(meet[::-1], above)
    return heights[best] + slopes[best] * above


def _shifts(run, n_runs):
    """Return log r_j and a_j of chords above h, with r_j increasing, and the last value of h."""
    above = np.geomspace(1e-15, 1, _N_EVENTS)
    likely = _likely(run, above)
    log_weight = n_runs.log_weight(np.concatenate([[0.0], above[:-1]]))
    log_least = n_runs.log_weight(np.minimum(likely * (1 + _ROUNDING), 1.0))
    weight, least = n_runs.mean * np.exp(log_weight), n_runs.mean * np.exp(log_least)
    last = min((log_weight - log_least).max(), _LARGEST_LOSS)
    shifts = np.linspace(min(-1.0, last - 2), last, _N_SHIFTS)
    r = np.concatenate([[0.0], np.exp(shifts)])
    h = np.maximum([np.max(weight - least * node) for node in r], 0.0)
    # h vanishes there, up to rounding.
    rest = h[-1] if last == _LARGEST_LOSS else 0.0
    slopes = np.append(np.diff(np.append(h[:-1], rest)) / np.diff(r), 0.0)
    return shifts, np.maximum(r[1:] * np.diff(slopes), 0.0) * (1 + _ROUNDING), rest


def _composed(run, n_runs, epsilon):
    """Return the bound by composition of all Gaussian runs, at an array of ε."""
    probabilities = n_runs.probabilities()
    counts = np.arange(1, len(probabilities) + 1)
    # Numbers of runs are rounded up to a few values, which is safe.
    edges = np.unique(np.ceil(np.geomspace(1, len(probabilities), _N_COUNTS)).astype(int))
    masses = np.bincount(np.searchsorted(edges, counts), probabilities, len(edges))
    total = 0.0
    for count, mass in zip(edges, masses, strict=True):
        works = math.exp(count * math.log1p(-getattr(run, "delta0", 0.0)))
        gaussian = GaussianProfile(run.mu * math.sqrt(count)).delta(epsilon)
        total = total + mass * (1 - works + works * gaussian)
    return (total + 2 * TAIL) * (1 + _ROUNDING)


@functools.lru_cache(maxsize=64)
def _hull(profile):
    """Return nodes ε ≥ 0, from 0, and values whose chords in e^ε are convex upper bounds."""
    run, n_runs = profile.run, profile.n_runs
    shifts, factors, rest = _shifts(run, n_runs)

    def shifted(epsilon):
        return rest + run.delta(np.subtract.outer(epsilon, shifts)) @ factors

    floor = rest + factors.sum() * run.delta(math.inf) * (1 + _ROUNDING) + _FLOOR
    reach = smallest_passing(lambda epsilon: shifted(epsilon) <= floor, 1.0, rtol=1e-2)
    epsilon = np.linspace(0, min(reach, _LARGEST_LOSS), _N_EPSILONS)
    bound = np.minimum(shifted(epsilon), 1.0)
    if isinstance(run, GaussianProfile | FailingGaussianProfile):
        bound = np.minimum(bound, _composed(run, n_runs, epsilon))
    bound = np.minimum.accumulate(bound)
    n_mirrored = np.searchsorted(epsilon, _MIRRORED)
    negative = -epsilon[1:n_mirrored][::-1]
    mirrored = np.exp(negative) * bound[1:n_mirrored][::-1] - np.expm1(negative)
    nodes = np.concatenate([negative, epsilon])
    values = np.concatenate([mirrored, bound])
    kept = _lower_hull(np.exp(nodes), values)
    at_zero = np.interp(1.0, np.exp(nodes[kept]), values[kept])
    positive = kept[nodes[kept] > 0]
    nodes, values = np.append(0.0, nodes[positive]), np.append(at_zero, values[positive])
    nodes.flags.writeable = values.flags.writeable = False
    return nodes, values


def _lower_hull(x, y):
    """Return the indices of the lower convex hull of points with increasing ``x``."""
    kept: list[int] = []
    for i in range(len(x)):
        while len(kept) > 1:
            a, b = kept[-2], kept[-1]
            if (y[i] - y[b]) * (x[b] - x[a]) > (y[b] - y[a]) * (x[i] - x[b]):
                break
            kept.pop()
        kept.append(i)
    return np.array(kept)


# Share of δ for catastrophic failures of all runs, for runs that no Gaussian mechanism dominates
# entirely.
_OPEN_PART = 1e-3


@functools.lru_cache(maxsize=64)
def calibrate_runs(epsilon: float, delta: float, n_runs: RandomRuns) -> RandomStoppingProfile:
    """Return the profile of a selection that spends a budget, with that of its runs.

    Parameters
    ----------
    epsilon : float
        Budget in nats of the whole selection, finite.
    delta : float
        In (0, 1).
    n_runs : PoissonRuns, NegativeBinomialRuns or BinomialRuns
        Distribution of the number of runs.

    Returns
    -------
    RandomStoppingProfile
        Its runs have the ``FailingGaussianProfile`` with the largest μ, up to a relative 1e-4,
        at which δ(epsilon) is at most ``delta``.
    """
    epsilon, delta = check_epsilon(epsilon, allow_infinite=False), check_delta(delta)
    open_delta = _OPEN_PART * delta / n_runs.mean

    def selection(multiplier):
        return RandomStoppingProfile(FailingGaussianProfile(1 / multiplier, open_delta), n_runs)

    multiplier = smallest_passing(
        lambda multiplier: selection(multiplier).delta(epsilon) <= delta,
        2 * gaussian_sigma(epsilon, delta),
        rtol=1e-4,
    )
    return selection(multiplier)
