"""How fast private evolution converges: the bounds of the paper with their constants."""

import math

import numpy as np
from numpy.typing import ArrayLike

from sklearn_dpgen.accounting._checks import check_choice, check_count
from sklearn_dpgen.utils._validation import check_delta, check_positive

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
        What a step takes off the distance to a point farther than the resolution α, at least, on
        average, as a share of that distance. See :func:`variation_contraction` for what it is.

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
    :func:`lipschitz_complexity_bound` is a smaller one, without a constant that is left open.

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
    """Return a bound on the mean W1 of a law and n independent draws of it.

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
    This one is by the cubes of :func:`lipschitz_complexity_bound`, over which the law and the
    draws differ by √(number/n) in all, on average::

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
        Of a record, itself included: v. There are V = v n_s candidates.
    d : int
        Dimension.
    diameter : float
        l2 diameter D of the domain.
    complexity : {"chained", "printed"}, default="chained"
        G: :func:`lipschitz_complexity_bound`, or :func:`gaussian_complexity_bound`.

    Returns
    -------
    float
        In the units of the records.

    Notes
    -----
    W is :func:`sampling_bound`. The votes are to be projected in the bounded Lipschitz distance;
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
        γ err, of :func:`step_error_bound`.

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

    >>> from sklearn_dpgen.evolution import convergence_bound, step_error_bound, theory_parameters
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
        raise ValueError(f"contraction must be below 1, got {contraction}.")
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
        Of the weighted points; :func:`sampling_bound` is to be added for records drawn from them.

    Notes
    -----
    G is :func:`lipschitz_complexity_bound`. The printed σ is √(ln(1/δ))/(nε), too little for
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
    :func:`lipschitz_complexity_bound`::

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
        raise ValueError("shares must be a vector of at least 0 with a sum in (0, 1].")
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
