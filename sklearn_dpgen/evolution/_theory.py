"""Convergence of private evolution: the bounds of the paper, and contraction measured on points."""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike
from sklearn.metrics import pairwise_distances

from sklearn_dpgen.evolution._variation_interface import (
    VariationInterface,
    check_candidates,
    check_degree,
)
from sklearn_dpgen.exceptions import PublicValueError
from sklearn_dpgen.utils._validation import (
    check_array,
    check_choice,
    check_count,
    check_delta,
    check_positive,
)

__all__ = [
    "closeness_lower_bound",
    "contraction_rate",
    "convergence_bound",
    "gaussian_complexity_bound",
    "lipschitz_complexity_bound",
    "sampling_bound",
    "signed_measure_bound",
    "step_error_bound",
    "thresholded_laplace_bound",
    "variation_contraction",
    "VariationContraction",
]

_MAX_LEVELS = 60
# E|x| / sqrt(n) of a sum of n draws is at most this: exact for a normal, by Jensen for Laplace.
_MEAN_SIZE = {"gaussian": math.sqrt(2 / math.pi), "laplace": math.sqrt(2)}


def contraction_rate(d: int) -> float:
    """Return γ of the variations of the paper in d dimensions, 1/(8π[(√d + ln 2)² + ln 2]).

    Parameters
    ----------
    d : int
        Dimension.

    Returns
    -------
    float
        Least mean share by which a step reduces the distance to a point that is farther away than
        the resolution α. :func:`variation_contraction` measures it.

    References
    ----------
    "Private evolution converges", Lemma E.1.
    """
    d = check_count(d, "d")
    return 1 / (8 * math.pi * ((math.sqrt(d) + math.log(2)) ** 2 + math.log(2)))


def gaussian_complexity_bound(n: int, d: int, diameter: float) -> float:
    """Return the bound on the Gaussian complexity G_n of bounded Lipschitz functions, as printed.

    Parameters
    ----------
    n : int
        Number of points.
    d : int
        Dimension.
    diameter : float
        l2 diameter D of the domain.

    Returns
    -------
    float
        D√(ln 2√n) · 9/√n for d = 1, D (ln 2√n)^(3/2) · 10/√n for d = 2, and else
        10 D √(ln 2a)/a with a = n^(1/d) (d/2 - 1)^(2/d).

    Notes
    -----
    The absolute constant of Lemma E.4, from which this follows, is taken to be 1 there.
    ``lipschitz_complexity_bound`` is a smaller one, without a constant that is left open.

    References
    ----------
    "Private evolution converges", Corollary E.1.
    """
    n, d, diameter = check_count(n, "n"), check_count(d, "d"), check_positive(diameter, "diameter")
    if d > 2:
        spread = n ** (1 / d) * (d / 2 - 1) ** (2 / d)
        return 10 * diameter * math.sqrt(math.log(2 * spread)) / spread
    level = math.log(2 * math.sqrt(n))
    return diameter * (9 * math.sqrt(level) if d == 1 else 10 * level**1.5) / math.sqrt(n)


def lipschitz_complexity_bound(
    n: int, d: int, diameter: float, *, noise: str = "gaussian"
) -> float:
    """Return a bound on the complexity of bounded Lipschitz functions, by dyadic cubes.

    The complexity is the largest mean of ``sup |Σ x_i f(z_i)|/n`` over points z of the domain, for
    noise x and functions with ``|f| <= D`` and ``|f(z) - f(z')| <= |z - z'|``.

    Parameters
    ----------
    n : int
        Number of points.
    d : int
        Dimension.
    diameter : float
        l2 diameter D of the domain.
    noise : {"gaussian", "laplace"}, default="gaussian"
        Standard normal, or Laplace of scale 1.

    Returns
    -------
    float

    Notes
    -----
    The domain lies in a cube of side D. Let f_k be the value of f at the middle of the cube of
    side D/2^k that a point is in, limited to [-D, D]. Then ``|f_0| <= D``,
    ``|f_k - f_(k-1)| <= √d D/2^(k+1)`` and ``|f - f_K| <= √d D/2^(K+1)``, and f_k takes one value
    a cube, so that with c at least ``E|x_1 + ... + x_n|/√n``, by Cauchy and Schwarz::

        c D/√n + c √d D (Σ_(k=1..K) 2^(-k-1) √(min(2^(kd), n)/n) + 2^(-K-1))

    which is least over K. For normal noise c = √(2/π), for Laplace noise √2.
    """
    n, d, diameter = check_count(n, "n"), check_count(d, "d"), check_positive(diameter, "diameter")
    mean = _MEAN_SIZE[check_choice(noise, "noise", tuple(_MEAN_SIZE))]
    return mean * diameter * (1 / math.sqrt(n) + math.sqrt(d) * _chain(n, d, most=1.0, rest=0.5))


def sampling_bound(n: int, d: int, diameter: float) -> float:
    """Return a bound on the mean W1 between a distribution and n independent draws from it.

    Parameters
    ----------
    n : int
        Number of draws.
    d : int
        Dimension.
    diameter : float
        l2 diameter D of the domain.

    Returns
    -------
    float
        At most D.

    Notes
    -----
    The paper cites n^(-1/2), n^(-1/2) ln n and n^(-1/d) for d = 1, d = 2 and beyond, times a
    constant that it leaves open (Lemma E.5); the second is 0 at n = 1, where the distance is not.
    This bound sums over the cubes of ``lipschitz_complexity_bound``, in which the distribution
    and the draws differ by √(number/n) in all, on average::

        √d D (Σ_(k=1..K) 2^(-k-1) min(2, √(2^(kd)/n)) + 2^(-K))

    References
    ----------
    "Private evolution converges", Lemma E.5.
    """
    n, d, diameter = check_count(n, "n"), check_count(d, "d"), check_positive(diameter, "diameter")
    return diameter * min(1.0, math.sqrt(d) * _chain(n, d, most=4.0, rest=1.0))


def step_error_bound(
    noise: float,
    resolution: float,
    n_samples: int,
    n_variations: int,
    d: int,
    diameter: float,
    *,
    complexity: str = "chained",
) -> float:
    """Return the largest error that a step adds: α + 2 V σ G_V + W(n_s).

    Parameters
    ----------
    noise : float
        σ: standard deviation of the noise on the share of a candidate.
    resolution : float
        α of the interface.
    n_samples : int
        Records of a population, n_s.
    n_variations : int
        v: candidates of one record, itself included. There are V = v n_s candidates.
    d : int
        Dimension.
    diameter : float
        l2 diameter D of the domain.
    complexity : {"chained", "printed"}, default="chained"
        G: ``lipschitz_complexity_bound``, or ``gaussian_complexity_bound``.

    Returns
    -------
    float
        In the units of the records.

    Notes
    -----
    W is ``sampling_bound``. The votes are to be projected in the bounded Lipschitz distance;
    first shifting them to their public total does no harm, by Jensen's inequality.

    References
    ----------
    "Private evolution converges", proof of Theorem 4.1 and Theorem G.1.
    """
    noise = check_positive(noise, "noise")
    resolution = check_positive(resolution, "resolution")
    n_samples = check_count(n_samples, "n_samples")
    size = n_samples * check_count(n_variations, "n_variations")
    bounds = {"chained": lipschitz_complexity_bound, "printed": gaussian_complexity_bound}
    bound = bounds[check_choice(complexity, "complexity", tuple(bounds))]
    votes = 2 * size * noise * bound(size, d, diameter)
    return resolution + votes + sampling_bound(n_samples, d, diameter)


def convergence_bound(start: float, n_iter: int, *, contraction: float, step_error: float) -> float:
    """Return the bound on the mean W1 after T steps: (1 - γ)^T (Γ_0 - err) + err.

    Parameters
    ----------
    start : float
        Γ_0: W1 between the first population and the records, or the diameter.
    n_iter : int
        Steps T, at least 0.
    contraction : float
        γ of the interface, in (0, 1).
    step_error : float
        γ err, of ``step_error_bound``.

    Returns
    -------
    float
        Where ``start`` is below err = ``step_error / contraction``, steps only add to it, and no
        step is best.

    References
    ----------
    "Private evolution converges", equation 2 and Theorem G.1; Theorem 4.1 with the settings of
    :func:`theory_parameters`.

    Examples
    --------
    Theorem 4.1 for a million records of the unit disc:

    >>> from sklearn_dpgen.evolution import theory_parameters
    >>> from sklearn_dpgen.evolution._theory import convergence_bound, step_error_bound
    >>> p = theory_parameters(1_000_000, 2, 2.0, epsilon=1.0, delta=1e-6)
    >>> step = step_error_bound(
    ...     p.noise, p.resolution, p.n_samples, 2 * len(p.degrees) + 1, 2, 2.0
    ... )
    >>> bound = convergence_bound(2.0, p.n_iter, contraction=p.contraction, step_error=step)
    >>> bound > 2.0  # larger than any distance in the disc
    True
    """
    start = check_positive(start, "start")
    n_iter = n_iter and check_count(n_iter, "n_iter")
    contraction = check_positive(contraction, "contraction")
    if contraction >= 1:
        raise PublicValueError(f"contraction must be below 1, got {contraction}.")
    limit = check_positive(step_error, "step_error") / contraction
    return (1 - contraction) ** n_iter * (start - limit) + limit


def signed_measure_bound(
    noise: float, n_points: int, cell_diameter: float, d: int, diameter: float
) -> float:
    """Return the bound on the mean W1 of one histogram: 2 (cell + m σ G_m).

    Parameters
    ----------
    noise : float
        σ: standard deviation of the noise on the share of a point.
    n_points : int
        m, of the support.
    cell_diameter : float
        l2 diameter of the largest cell, of the records that are nearest to one point.
    d : int
        Dimension.
    diameter : float
        l2 diameter D of the domain.

    Returns
    -------
    float
        Bound for the weighted points; add ``sampling_bound`` for records drawn from them.

    Notes
    -----
    G is ``lipschitz_complexity_bound``. The printed σ is √(ln(1/δ))/(nε), too little for
    (ε, δ): pass what is used.

    References
    ----------
    "Private evolution converges", Theorem I.1.
    """
    noise, n_points = check_positive(noise, "noise"), check_count(n_points, "n_points")
    cell_diameter = check_positive(cell_diameter, "cell_diameter")
    complexity = lipschitz_complexity_bound(n_points, d, diameter)
    return 2 * (cell_diameter + n_points * noise * complexity)


def thresholded_laplace_bound(
    shares: ArrayLike, n: int, epsilon: float, delta: float, d: int, diameter: float
) -> float:
    """Return the bound on the mean W1 that the thresholded Laplace histogram adds to votes.

    Parameters
    ----------
    shares : array-like of shape (m,)
        Noiseless shares of the votes, of which only the positive ones matter. They are private:
        so is the bound.
    n : int
        Number of records.
    epsilon, delta : float
        Budget of the histogram.
    d : int
        Dimension.
    diameter : float
        l2 diameter D of the domain.

    Returns
    -------
    float

    Notes
    -----
    With k positive shares, H = 2 ln(1/δ)/(nε) + 1/n and L the Laplace complexity of
    ``lipschitz_complexity_bound``::

        2k/(nε) L_k + 2 D H (number of positive shares up to H + 2 ln(k/β)/(nε), + k β)
            + 2 D √(2k)/(nε)

    for the best of some β in (0, 1): the order of the last summand of the proposition's set of
    small shares is made explicit by ``P(max |L_i| > t) <= k exp(-t nε/2)``.

    References
    ----------
    "Private evolution converges", Proposition 4.1.
    """
    shares = np.asarray(shares, dtype=np.float64)
    if shares.ndim != 1 or not (shares >= 0).all() or not 0 < shares.sum() < 1 + 1e-9:
        raise PublicValueError("shares must be a vector of at least 0 with a sum in (0, 1].")
    n, delta = check_count(n, "n"), check_delta(delta)
    scale = 2 / (n * check_positive(epsilon, "epsilon"))
    shares = shares[shares > 0]
    k = len(shares)
    threshold = scale * math.log(1 / delta) + 1 / n
    betas = np.logspace(-12, 0, 49)[:-1]
    small = [(shares <= threshold + scale * math.log(k / beta)).sum() for beta in betas]
    lost = min(np.array(small) + k * betas)
    complexity = lipschitz_complexity_bound(k, d, diameter, noise="laplace")
    rescaled = scale * diameter * math.sqrt(2 * k)
    return float(k * scale * complexity + 2 * diameter * threshold * lost + rescaled)


def closeness_lower_bound(d: int, diameter: float, closeness: float) -> float:
    """Return the least epsilon of a mechanism that recovers every record: d ln(D/(4η)).

    Parameters
    ----------
    d : int
        Dimension of the records, which lie in a ball.
    diameter : float
        Its diameter D.
    closeness : float
        η: how near each synthetic record is to its own private one, but for a probability τ below
        1/4, with δ < 1 - 3τ.

    Returns
    -------
    float
        In nats, at least 0.

    Notes
    -----
    The lemma has the logarithm of the 2η packing number, which is at least the ratio of the
    volumes of the ball and of one of radius 2η.

    References
    ----------
    "Private evolution converges", Lemma 3.1 and Remark 3.1.
    """
    d, diameter = check_count(d, "d"), check_positive(diameter, "diameter")
    closeness = check_positive(closeness, "closeness")
    return max(0.0, d * math.log(diameter / (4 * closeness)))


def _chain(n, d, *, most, rest):
    """Return the least Σ_(k=1..K) 2^(-k-1) √(min(2^(kd)/n, most)) + rest/2^K over K."""
    halves = 2.0 ** -np.arange(_MAX_LEVELS + 1)
    # Beyond 2^1023 a number of cubes is infinite, and the minimum is the other.
    with np.errstate(over="ignore"):
        shares = 2.0 ** (np.arange(1, _MAX_LEVELS + 1) * float(d)) / n
    terms = halves[1:] / 2 * np.sqrt(np.minimum(shares, most))
    return float(np.min(np.append(0.0, np.cumsum(terms)) + rest * halves))


@dataclass(frozen=True)
class VariationContraction:
    """How much one step of an interface reduces distances, on average.

    Attributes
    ----------
    distances : ndarray of shape (n_bins,)
        Lower edge of each bin of distances between a candidate and a point, ascending.
    mean : ndarray of shape (n_bins,)
        Mean share by which a step reduces the distance, over the pairs of a bin.
    least : ndarray of shape (n_bins,)
        Least share of a pair in the bin.
    errors : ndarray of shape (n_bins,)
        Standard error of ``least``.
    n_variations : int
        v: candidates of one record, itself included.
    """

    distances: np.ndarray
    mean: np.ndarray
    least: np.ndarray
    errors: np.ndarray
    n_variations: int

    def gamma(self, alpha: float = 0.0) -> float:
        """Return the least contraction γ of the pairs that are farther apart than α.

        Parameters
        ----------
        alpha : float, default=0.0
            α. Only whole bins beyond it count.

        Raises
        ------
        ValueError
            No bin is that far.
        """
        far = self.distances >= alpha
        if not far.any():
            raise PublicValueError(f"alpha must be at most {self.distances[-1]:.6g}, got {alpha}.")
        return float(self.least[far].min())

    def alpha(self, gamma: float) -> float:
        """Return the least distance α beyond which a step removes a share γ of it, or inf.

        Parameters
        ----------
        gamma : float
            γ, in (0, 1).
        """
        below = np.flatnonzero(~(self.least >= gamma))
        first = below[-1] + 1 if len(below) else 0
        return float(self.distances[first]) if first < len(self.distances) else np.inf


def variation_contraction(
    interface: VariationInterface,
    X_public: ArrayLike,
    degrees: Sequence[float],
    *,
    n_parents: int = 20,
    n_repeats: int = 100,
    n_bins: int = 8,
    metric: str | Callable[[np.ndarray, np.ndarray], np.ndarray] = "l2",
    random_state: int | None = None,
) -> VariationContraction:
    """Measure on public points how much one step of an interface reduces distances.

    Private evolution converges if for any candidate z and record x farther apart than α, the
    nearest of z and its variations is at distance (1 - γ) ρ(z, x) or less on average (Definition
    G.1 of [1]_). This function draws candidates by ``random`` and measures all pairs of them with
    the points. The result may not hold for other pairs, such as those with a record that is far
    from all points.

    Parameters
    ----------
    interface : VariationInterface
    X_public : array-like of shape (n_points, n_features)
        Public points that stand for records. They are not protected.
    degrees : sequence of float
        Degree of each variation, in (0, 1]; a scale with two draws occurs twice.
    n_parents : int, default=20
        Candidates that are varied.
    n_repeats : int, default=100
        Number of draws of the variations, which are averaged.
    n_bins : int, default=8
        Number of bins of distances, with equally many pairs in each.
    metric : {"l2", "l1", "cosine"} or callable, default="l2"
        ρ, after the ``decode`` and ``embed`` of the interface, if it has them.
    random_state : int or None, default=None

    Returns
    -------
    VariationContraction

    References
    ----------
    .. [1] "Private evolution converges", Definition G.1; Lemma E.1 for points of a domain.

    Examples
    --------
    >>> import numpy as np
    >>> from sklearn_dpgen.domains import Ball
    >>> from sklearn_dpgen.evolution import EuclideanVariation, variation_contraction
    >>> disc = Ball(1.0, n_features=2)
    >>> points = disc.sample(50, np.random.default_rng(0))
    >>> degrees = [0.05, 0.05, 0.2, 0.2]
    >>> result = variation_contraction(EuclideanVariation(disc), points, degrees, random_state=0)
    >>> result.gamma(alpha=0.25) > 0
    True
    """
    n_repeats, n_bins = check_count(n_repeats, "n_repeats"), check_count(n_bins, "n_bins")
    if n_repeats < 2:
        raise PublicValueError("n_repeats must be at least 2.")
    if np.ndim(degrees) != 1 or len(degrees) == 0:
        raise PublicValueError("degrees must be a sequence of numbers, one for each variation.")
    degrees = [check_degree(degree) for degree in degrees]
    rng = np.random.default_rng(random_state)
    embed = getattr(interface, "embed", np.asarray)
    decode = getattr(interface, "decode", np.asarray)
    points = embed(check_array(X_public, dtype=np.float64, input_name="X_public"))

    def distances(candidates):
        embedded = embed(decode(candidates))
        if callable(metric):
            return metric(points, embedded)
        return pairwise_distances(points, embedded, metric=metric)

    n_parents = check_count(n_parents, "n_parents")
    parents = check_candidates(interface.random(n_parents, rng), n_parents, None, None, interface)
    before = distances(parents)
    apart = before > 0
    if apart.sum() < n_bins:
        raise PublicValueError(
            "X_public must hold more points: each bin needs a pair with a positive distance."
        )
    total, squares = np.zeros_like(before), np.zeros_like(before)
    for _ in range(n_repeats):
        nearest = before
        for degree in degrees:
            varied = interface.vary(parents, rng, degree)
            varied = check_candidates(varied, n_parents, parents.shape[1], None, interface)
            nearest = np.minimum(nearest, distances(varied))
        share = 1 - nearest[apart] / before[apart]
        total[apart] += share
        squares[apart] += share**2
    mean = total[apart] / n_repeats
    variance = np.maximum(0.0, squares[apart] / n_repeats - mean**2) / (n_repeats - 1)
    order = np.argsort(before[apart], kind="stable")
    bins = np.array_split(order, n_bins)
    worst = np.array([pairs[np.argmin(mean[pairs])] for pairs in bins])
    return VariationContraction(
        distances=np.array([before[apart][pairs[0]] for pairs in bins]),
        mean=np.array([mean[pairs].mean() for pairs in bins]),
        least=mean[worst],
        errors=np.sqrt(variance[worst]),
        n_variations=1 + len(degrees),
    )
