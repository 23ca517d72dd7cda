"""Privacy cost of releases of randomly projected records.

The directions are drawn anew, independently of the data, and published. Given them, a change of a
record by z changes the release by √H ‖z‖, with H the sum of the squared cosines between z and the
directions. The distribution of H depends only on sizes, and the privacy profile and the Rényi
divergence of the release are averages over it, attained at the largest ‖z‖, without a bound on H.
"""

import decimal
import functools
import math
from dataclasses import dataclass
from itertools import pairwise

import numpy as np
from numpy.typing import ArrayLike
from scipy.fft import irfft, next_fast_len, rfft
from scipy.special import betainc, betaincc, gammaln, ndtr, ndtri

from sklearn_dpgen.accounting._profiles import GaussianProfile, MixtureProfile, PrivacyProfile
from sklearn_dpgen.exceptions import PublicValueError
from sklearn_dpgen.utils._checks import (
    check_choice,
    check_count,
    check_delta,
    check_positive,
    check_rate,
    set_fields,
)
from sklearn_dpgen.utils._random import NoiseSource

__all__ = ["ProjectionLaw", "projection_bound", "renyi_epsilon"]

_KINDS = ("orthogonal", "independent")
_MACHINE_EPSILON = np.finfo(np.float64).eps
# Relative rounding of the incomplete beta function and of 1F1: measured below 1e-12 for d <= 1e5.
_ROUNDING = 1e-11
# Probability beyond the grid of H, assigned to the largest possible value.
_LOG_TAIL = math.log(1e-40)
# Probability of each event that the convolution omits.
_LOG_LEFT_OUT = math.log(1e-18)
# The orders of dp_accounting. Those above the largest of a table have a simpler bound for batches.
_ORDERS = np.concatenate([np.arange(11, 110) / 10, np.arange(11, 64), [128, 256, 512, 1024]])
_TABLE = 256
# Decimal digits of differences of up to this order, which lose as many.
_DIGITS = 500


@dataclass(frozen=True)
class ProjectionLaw:
    """Distribution of H = Σ_j ⟨u_j, z⟩² for a unit vector z and random unit directions u_j.

    It is the same for every z. For k independent directions H is a sum of k independent
    Beta(1/2, (d − 1)/2). For independent blocks of d orthonormal ones, the last truncated to
    r = k mod d, it is ⌊k/d⌋ + Beta(r/2, (d − r)/2): a constant if d divides k.

    Parameters
    ----------
    n_features : int
        Dimension d of the records.
    n_projections : int
        Number k of directions.
    kind : {"orthogonal", "independent"}
        How they are drawn, as in :func:`sklearn_dpgen.ot.random_directions`.

    References
    ----------
    Rakotomamonjy and Ralaivola, "Differentially private sliced Wasserstein distance", ICML 2021,
    Lemma 1, for one direction.
    """

    n_features: int
    n_projections: int
    kind: str = "orthogonal"

    def __post_init__(self):
        for name in ("n_features", "n_projections"):
            set_fields(self, **{name: check_count(getattr(self, name), name)})
        check_choice(self.kind, "kind", _KINDS)

    @property
    def mean(self) -> float:
        """Mean of H, k/d."""
        return self.n_projections / self.n_features

    @property
    def variance(self) -> float:
        """Variance of H; 0 if H is constant."""
        d = self.n_features
        _, n_terms, size = self._parts
        return n_terms * 2 * size * (d - size) / (d * d * (d + 2))

    @property
    def maximum(self) -> float:
        """Largest possible value of H."""
        constant, n_terms, _ = self._parts
        return constant + n_terms

    @property
    def _parts(self):
        """H as a constant plus a number of independent Beta(size/2, (d − size)/2)."""
        d, k = self.n_features, self.n_projections
        if self.kind == "independent" and d > 1:
            return 0, k, 1
        whole, rest = divmod(k, d)
        return whole, int(rest > 0), rest

    def log_mgf(self, t: float) -> float:
        """Return log E exp(t H).

        Parameters
        ----------
        t : float
            Non-negative and finite.

        Returns
        -------
        float
            With a relative error below 1e-11.
        """
        constant, n_terms, size = self._parts
        beta = n_terms * _log_kummer(size / 2, self.n_features / 2, t) if n_terms else 0.0
        return constant * t + beta

    def survival(self, values: ArrayLike) -> np.ndarray:
        """Return a tight upper bound on P(H > v).

        Parameters
        ----------
        values : array-like of float
            Values v in increasing order.

        Returns
        -------
        ndarray of the same shape
            Non-increasing. A single beta distribution is exact up to rounding. A sum of several is
            convolved numerically, with each term rounded up to a grid.
        """
        values = np.asarray(values, dtype=np.float64)
        constant, n_terms, size = self._parts
        if n_terms == 0:
            return np.where(values < constant, 1.0, 0.0)
        if n_terms == 1:
            inside = np.clip(values - constant, 0.0, 1.0)
            bound = betaincc(size / 2, (self.n_features - size) / 2, inside) * (1 + _ROUNDING)
        else:
            tilts, log_moments = _tilts(self)
            chernoff = np.exp((log_moments - np.multiply.outer(values, tilts)).min(axis=-1))
            bound = np.minimum(_convolved_survival(self)(values), chernoff)
        bound = np.where(values < self.maximum, np.minimum(bound, 1.0), 0.0)
        return np.minimum.accumulate(bound)

    def upper_grid(self, n_points: int = 4096) -> tuple[np.ndarray, np.ndarray]:
        """Return a finite distribution that dominates H stochastically.

        Parameters
        ----------
        n_points : int
            Number of values to which H is rounded up, in geometric progression. A multiple of it
            gives a finer distribution, which this one dominates.

        Returns
        -------
        values : ndarray of shape (n_values,)
            Increasing; at most ``n_points + 1`` of them.
        probabilities : ndarray of the same shape
            They sum to 1. Both arrays are read-only.
        """
        return _upper_grid(self, check_count(n_points, "n_points"))

    def profile(self, noise_multiplier: float, *, n_points: int = 32) -> PrivacyProfile:
        """Return the privacy profile of one release of the projected records.

        Neighbours differ in one replaced record; the directions are published with the release.

        Parameters
        ----------
        noise_multiplier : float
            σ over the ℓ₂ diameter of the records, not of their projections.
        n_points : int
            Number of Gaussian profiles to average. The excess over the exact profile is inversely
            proportional to its square.

        Returns
        -------
        PrivacyProfile
            An upper bound of E_H δ(ε; √H / multiplier), with δ that of the Gaussian mechanism.
            Exactly Gaussian if H is constant.

        Notes
        -----
        The distribution of :meth:`upper_grid` is reduced to fewer values: each value is split over
        its two neighbours such that the mean of w = Φ(μ/2) is kept, μ = √H / multiplier. This is an
        upper bound because δ is convex in w at every ε ≥ 0: ∂δ/∂μ = φ(ε/μ − μ/2) implies
        ∂δ/∂w = 2 exp(ε/2 − ε²/(2μ²)), which grows with μ.
        """
        noise_multiplier = check_positive(noise_multiplier, "noise_multiplier")
        n_points = check_count(n_points, "n_points")
        values, probabilities = self.upper_grid()
        mu = np.sqrt(values) / noise_multiplier
        if len(mu) == 1:
            return GaussianProfile(mu[0])
        # A single wide interval below, as it contributes almost no loss.
        low = max(mu[0], math.sqrt(self.mean) / 3 / noise_multiplier)
        nodes = np.unique([mu[0], *np.geomspace(low, mu[-2], n_points), mu[-1]])
        right = np.searchsorted(nodes, mu).clip(1, len(nodes) - 1)
        # 1 − w is accurate for large mu.
        start, stop, at = ndtr(-nodes[right - 1] / 2), ndtr(-nodes[right] / 2), ndtr(-mu / 2)
        share = np.where(start > stop, (start - at) / np.maximum(start - stop, 1e-300), 1.0)
        share = share.clip(0.0, 1.0)
        weights = np.bincount(right, share * probabilities, len(nodes))
        weights += np.bincount(right - 1, (1 - share) * probabilities, len(nodes))
        kept = weights > 0
        return MixtureProfile([GaussianProfile(m) for m in nodes[kept]], weights[kept].tolist())

    def draw(self, noise: NoiseSource) -> np.ndarray:
        """Draw the directions of one release.

        The cost averages over their distribution, so they are drawn from the noise source. A
        generator with few states would draw each of a few sets of directions, and records that
        differ along one of them, far more often than accounted for.

        Parameters
        ----------
        noise : NoiseSource

        Returns
        -------
        ndarray of float64 of shape (k, d)
            Unit rows. In one dimension all are 1, as a published sign hides nothing.
        """
        d, k = self.n_features, self.n_projections
        if d == 1:
            return np.ones((k, 1))
        if self.kind == "independent":
            directions = ndtri(noise.uniform((k, d)))
            return directions / np.linalg.norm(directions, axis=1, keepdims=True)
        columns, triangles = np.linalg.qr(ndtri(noise.uniform((-(-k // d), d, min(k, d)))))
        # The factor is Haar distributed only if the diagonal of the triangle is positive.
        signs = np.copysign(1.0, np.diagonal(triangles, axis1=1, axis2=2))[:, None]
        return (columns * signs).swapaxes(1, 2).reshape(-1, d)[:k]

    def _quantile_bound(self, log_probability):
        """Return a value that H exceeds with at most this probability, by Chernoff's bound."""
        tilts, log_moments = _tilts(self)
        return min(((log_moments - log_probability) / tilts).min(), self.maximum)


def projection_bound(law: ProjectionLaw, delta: float, *, method: str = "bernstein") -> float:
    """Return the bound on H of Rakotomamonjy and Ralaivola, for comparison.

    Parameters
    ----------
    law : ProjectionLaw
        Distribution for independent directions.
    delta : float
        Probability that H may exceed the bound, in (0, 1).
    method : {"bernstein", "clt"}
        ``"bernstein"`` is a theorem. ``"clt"`` is the quantile of a normal approximation, which is
        not a bound.

    Returns
    -------
    float

    References
    ----------
    Rakotomamonjy and Ralaivola, "Differentially private sliced Wasserstein distance", ICML 2021,
    Lemma 2 and appendix 8.3.
    """
    delta = check_delta(delta)
    check_choice(method, "method", ("bernstein", "clt"))
    if law.kind != "independent":
        raise PublicValueError(
            f'method="{method}" needs kind="independent", got kind="{law.kind}".'
        )
    if method == "clt":
        return law.mean - ndtri(delta) * math.sqrt(law.variance)
    rarity = math.log(1 / delta)
    return law.mean + 2 / 3 * rarity + math.sqrt(2 * law.variance * rarity)


def renyi_epsilon(
    law: ProjectionLaw,
    noise_multiplier: float,
    delta: float,
    *,
    sampling_rate: float = 1.0,
    n_steps: int = 1,
) -> float:
    """Return the ε of releases of projected records, by their Rényi divergence.

    The curve of one release is exact, log E exp(α(α − 1)H / (2 m²)) / (α − 1), which is
    k/(α − 1) log 1F1(1/2; d/2; α(α − 1)/(2 m²)) for k independent directions.

    Parameters
    ----------
    law : ProjectionLaw
    noise_multiplier : float
        m, σ over the ℓ₂ diameter of the records.
    delta : float
        In (0, 1).
    sampling_rate : float
        Batch size over number of records, in (0, 1].
    n_steps : int
        Number of adaptive releases.

    Returns
    -------
    float
        An upper bound, in nats, at the best order up to 1024, or to 256 for random H in batches.

    References
    ----------
    Wang, Balle and Kasiviswanathan, "Subsampled Rényi differential privacy and analytical moments
    accountant", AISTATS 2019, Theorem 27 and, between integer orders, Corollary 10; Canonne, Kamath
    and Steinke, "The discrete Gaussian for differential privacy", NeurIPS 2020, Proposition 12.
    """
    multiplier = check_positive(noise_multiplier, "noise_multiplier")
    rate, n_steps = check_rate(sampling_rate), check_count(n_steps, "n_steps")
    delta = check_delta(delta)
    orders = _ORDERS if rate == 1 or law.variance == 0 else _ORDERS[_ORDERS <= _TABLE]

    def log_moment(order):
        return law.log_mgf(order * (order - 1) / 2 / multiplier**2) * (1 + _ROUNDING)

    if rate == 1:
        log_moments = np.array([log_moment(order) for order in orders])
    else:
        plain = np.array([log_moment(order) for order in range(int(orders[-1]) + 1)])
        if law.variance == 0:
            centered = _gaussian_centered(math.sqrt(law.mean * (1 + _ROUNDING)) / multiplier)
        else:
            centered = _centered(plain[: _TABLE + 1])
        whole = np.union1d(np.arange(_TABLE + 1), orders[orders > _TABLE].astype(int))
        log_moments = np.interp(orders, whole, _sampled(plain, centered, rate, whole))
    divergences = n_steps * log_moments / (orders - 1)
    # δ ≤ √(1 − e^{−KL}) is the inequality of Bretagnolle and Huber, and KL is at most each of them.
    if delta**2 > -math.expm1(-divergences.min()):
        return 0.0
    epsilons = divergences + np.log1p(-1 / orders) - np.log(delta * orders) / (orders - 1)
    return max(float(epsilons.min()), 0.0)


def _sampled(log_moments, centered, rate, orders):
    """Return bounds on log E_q (p/q)^α for a batch at orders α.

    They are 1 + Σ_{j≥2} C(α, j) γ^j c_j with c_j the smaller of 2 E (p/q)^j and 4 E |p/q − 1|^j,
    by Cauchy and Schwarz for odd j, for the mechanism on a batch.
    """
    power = np.arange(len(log_moments))
    coefficient = math.log(2) + log_moments
    coefficient[:2] = -np.inf
    inner = power[: len(centered)]
    below = 2 * (inner // 2)
    above = np.minimum(below + 2 * (inner % 2), inner[-1])
    chi = math.log(4) + (centered[below] + centered[above]) / 2
    coefficient[: len(chi)] = np.minimum(coefficient[: len(chi)], chi)
    logs = _log_binomials(np.asarray(orders)[:, None], power) + coefficient + power * math.log(rate)
    # Apart from the 1, which would round off small moments.
    return np.logaddexp(0.0, np.logaddexp.reduce(logs, axis=1)) * (1 + _ROUNDING)


def _log_binomials(order, power):
    inner = np.minimum(power, order)
    logs = gammaln(order + 1) - gammaln(inner + 1) - gammaln(order - inner + 1)
    return np.where(power <= order, logs, -np.inf)


def _centered(log_moments):
    """Return log E (p/q − 1)^l at l = 0, 1, ... from log E (p/q)^l, with a bound on its rounding.

    It is an alternating sum, to which a bound on its rounding error is added.
    """
    power = np.arange(len(log_moments))
    terms = _log_binomials(power[:, None], power) + log_moments
    largest = terms.max(axis=1)
    scaled = np.exp(terms - largest[:, None])
    signs = 1 - 2 * ((power[:, None] - power) % 2)
    lost = scaled @ (_ROUNDING * np.abs(log_moments) + 1e3 * _MACHINE_EPSILON)
    return np.log(np.maximum((signs * scaled).sum(axis=1), 0.0) + lost) + largest


@functools.lru_cache(maxsize=8)
def _gaussian_centered(mu):
    """Return log E (p/q − 1)^l of N(μ, 1) to N(0, 1), for even l up to ``_TABLE``.

    It is the l-th difference at 0 of j ↦ e^{μ² j (j − 1) / 2}. The relative rounding errors of the
    values grow at most to 2^l times the largest value.
    """
    with decimal.localcontext(decimal.Context(prec=_DIGITS, Emax=decimal.MAX_EMAX)):
        growth = (decimal.Decimal(mu) ** 2).exp()
        values, ratio = [decimal.Decimal(1)], decimal.Decimal(1)
        for _ in range(_TABLE):
            values.append(values[-1] * ratio)
            ratio *= growth
        logs = np.empty(_TABLE + 1)
        largest = values.copy()
        for power in range(_TABLE + 1):
            bound = abs(values[0]) + largest[power] * 2**power * decimal.Decimal(10) ** (
                5 - _DIGITS
            )
            exponent = bound.adjusted()
            logs[power] = math.log(float(bound.scaleb(-exponent))) + exponent * math.log(10)
            values = [second - first for first, second in pairwise(values)]
    return logs


def _log_kummer(a, b, x):
    """Return log 1F1(a; b; x) for 0 < a < b and x >= 0, from its series of positive terms.

    The ratio of terms n and n − 1 is (a + n − 1) x / ((b + n − 1) n). Far from the origin the terms
    are a smooth function of n with a width above 20, and every s-th of them, s at most a third of
    the width, gives the sum up to a factor 1 + exp(−2π² 9).
    """
    if x == 0:
        return 0.0
    slope = b + 1 - x
    peak = max(0.0, (math.sqrt(max(slope * slope - 4 * (b - a * x), 0.0)) - slope) / 2)
    reach = 16 * math.sqrt(b + peak)
    if peak - reach > 1000:
        stride = int(math.sqrt(peak / 2) / 3)
        n = np.arange(peak - reach, peak + reach, stride).round()
        stirling = gammaln(a + n) - gammaln(b + n) - gammaln(n + 1) + n * math.log(x)
        largest = stirling.max()
        total = math.log(stride * np.exp(stirling - largest).sum())
        return float(largest + total + gammaln(b) - gammaln(a))
    n = np.arange(math.ceil(peak + reach + 64))
    ratio = (a + n) * x / ((b + n) * (n + 1))
    logs = np.cumsum(np.log(ratio))
    largest = logs.max()
    terms = np.exp(logs - largest)
    # The ratios decrease from here on, so a geometric series bounds the rest.
    rest = terms[-1] * ratio[-1] / (1 - ratio[-1])
    return float(np.logaddexp(0.0, largest + math.log(terms.sum() + rest)))


@functools.lru_cache(maxsize=32)
def _tilts(law):
    """Return tilts t and log E exp(t H) for Chernoff's bound; every t is valid."""
    tilts = np.geomspace(0.1, 30, 100) / math.sqrt(law.variance)
    return tilts, np.array([law.log_mgf(t) for t in tilts]) * (1 + _ROUNDING)


@functools.lru_cache(maxsize=32)
def _upper_grid(law, n_points):
    if law.variance == 0:
        return np.array([law.mean]), np.ones(1)
    first = max(law.mean - 2.5 * math.sqrt(law.variance), law.mean / 100)
    values = np.geomspace(first, law._quantile_bound(_LOG_TAIL), n_points + 1)[1:]
    survival = law.survival(values)
    values = np.append(values, law.maximum)
    probabilities = -np.diff(survival, prepend=1.0, append=0.0)
    kept = probabilities > 0
    values, probabilities = values[kept], probabilities[kept]
    values.flags.writeable = probabilities.flags.writeable = False  # cached
    return values, probabilities


@functools.lru_cache(maxsize=8)
def _convolved_survival(law):
    """Return a bound on P(H > v) for k independent terms, each rounded up to a grid.

    The k rounding errors are independent in [0, h], so by Hoeffding their sum exceeds a number near
    its mean with overwhelming probability, and the values are shifted back by it. The window of the
    transform omits the upper tail; a lower tail that wraps around is counted as an upper one, which
    is safe.
    """
    k, b = law.n_projections, law.n_features / 2
    # In units of the mean of a term; the bias is at most 1e-3 of it.
    step = 2e-3 * max(1.0, math.sqrt(k / 100)) / law.n_features
    largest = min(
        1.0, ProjectionLaw(law.n_features, 1)._quantile_bound(_LOG_LEFT_OUT - math.log(k))
    )
    edges = np.minimum(step * np.arange(math.ceil(largest / step) + 1), 1.0)
    term = np.append(0.0, np.diff(betainc(0.5, b - 0.5, edges)))

    mean_error = max(term @ np.arange(len(term)) * step - 1 / law.n_features, 0.0)
    shift = max(k * mean_error - step * math.sqrt(-k * _LOG_LEFT_OUT / 2), 0.0)
    bottom = max(law.mean - 12 * math.sqrt(law.variance), 0.0)
    top = min(law._quantile_bound(_LOG_LEFT_OUT), k) + k * step
    n = next_fast_len(max(math.ceil((top - bottom) / step) + 2, len(term)), real=True)
    convolved = irfft(rfft(term, n) ** k, n)
    start = math.floor(bottom / step)
    upper_tail = np.cumsum(np.maximum(np.roll(convolved, -(start % n)), 0.0)[::-1])[::-1]
    upper_tail = np.append(upper_tail, 0.0)
    left_out = 3 * math.exp(_LOG_LEFT_OUT) + 16 * _MACHINE_EPSILON * (k + 64)

    def survival(values):
        index = np.floor((values + shift) / step * (1 - 4 * _MACHINE_EPSILON)) + 1 - start
        bound = upper_tail[np.clip(index, 0, n).astype(np.int64)] + left_out
        return np.where(index < 0, 1.0, bound)

    return survival
