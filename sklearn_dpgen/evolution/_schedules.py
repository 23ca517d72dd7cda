"""Schedules of private evolution from public quantities: Theorem 4.1, and annealing."""

import math
from dataclasses import dataclass

from scipy.stats import norm

from sklearn_dpgen.accounting import gaussian_sigma
from sklearn_dpgen.evolution._theory import contraction_rate
from sklearn_dpgen.evolution._variation_interface import paper_degrees
from sklearn_dpgen.exceptions import PublicValueError
from sklearn_dpgen.mechanisms import ThresholdedLaplaceMechanism
from sklearn_dpgen.utils._validation import (
    check_count,
    check_delta,
    check_epsilon,
    check_positive,
    warn_user,
)

__all__ = [
    "annealed_parameters",
    "check_threshold",
    "class_settings",
    "first_degrees",
    "theory_parameters",
    "threshold_settings",
    "vote_noise",
    "warn_of_noise",
    "warn_of_threshold",
    "AnnealedParameters",
    "TheoryParameters",
]

_MAX_SAMPLES = 4000
_MAX_HALVINGS = 30


@dataclass(frozen=True)
class TheoryParameters:
    """The settings of Theorem 4.1.

    Attributes
    ----------
    n_iter : int
        Steps, T.
    n_samples : int
        Records of a population, n_s.
    noise : float
        σ: standard deviation of the noise on the share of a candidate.
    resolution : float
        α, in units of the records.
    degrees : tuple of float
        Root mean square length of a variation over the diameter, one a scale; none where the
        resolution is no finer than the diameter.
    contraction : float
        γ: least share by which a step reduces the distance.
    shares : tuple of float
        Equal shares of the budget, one a step.
    """

    n_iter: int
    n_samples: int
    noise: float
    resolution: float
    degrees: tuple[float, ...]
    contraction: float
    shares: tuple[float, ...]


@dataclass(frozen=True)
class AnnealedParameters:
    """The settings of annealed evolution.

    Attributes
    ----------
    n_iter : int
        Steps, T.
    n_samples : int
        Records of a population, n_s.
    degrees : tuple of float
        Root mean square length of a variation over the diameter, one a step. A fit takes longer
        ones where the votes are for moves that are longer.
    shares : tuple of float
        Shares of the budget, one a step.
    """

    n_iter: int
    n_samples: int
    degrees: tuple[float, ...]
    shares: tuple[float, ...]


def theory_parameters(
    n: int,
    d: int,
    diameter: float,
    epsilon: float,
    delta: float,
    *,
    n_iter: int | None = None,
    n_samples: int | None = None,
) -> TheoryParameters:
    """Return the settings of Theorem 4.1 of the paper.

    Parameters
    ----------
    n : int
        Number of private records.
    d : int
        Dimension of the records.
    diameter : float
        l2 diameter D of their domain.
    epsilon : float
        Privacy budget, in nats; finite.
    delta : float
        In (0, 1).
    n_iter : int or None, default=None
        Steps T; None is 2 ln(nε), as in the paper's simulations, and at least 1.
    n_samples : int or None, default=None
        Records of a population n_s; None is the theorem's.

    Returns
    -------
    TheoryParameters

    Notes
    -----
    With m = max(d, 2): σ = √(2T) σ(ε, δ)/n with the analytic σ(ε, δ) at sensitivity 1,
    α = D σ^(1/m), L = ⌈log₂(D/α)⌉, n_s = (2L + 1)^(1/m − 1)/σ and
    γ = 1/(8π[(√d + ln 2)² + ln 2]). All scales are used at every step.

    References
    ----------
    .. [1] "Private evolution converges", Theorem 4.1 and section 6.

    Examples
    --------
    >>> from sklearn_dpgen.evolution import theory_parameters
    >>> settings = theory_parameters(1000, 2, 2.0, epsilon=1.0, delta=1e-4)
    >>> settings.n_iter, settings.n_samples
    (14, 22)
    """
    n, d = check_count(n, "n"), check_count(d, "d")
    diameter = check_positive(diameter, "diameter")
    epsilon = check_epsilon(epsilon, allow_infinite=False)
    delta = check_delta(delta)
    if n_iter is None:
        n_iter = max(1, round(2 * math.log(max(1.0, n * epsilon))))
    n_iter = check_count(n_iter, "n_iter")
    noise = gaussian_sigma(epsilon, delta, math.sqrt(2 * n_iter)) / n
    m = max(d, 2)
    resolution = diameter * noise ** (1 / m)
    degrees = tuple(paper_degrees(d, resolution, diameter)) if resolution < diameter else ()
    if n_samples is not None:
        n_samples = check_count(n_samples, "n_samples")
    else:
        n_samples = max(1, round((2 * len(degrees) + 1) ** (1 / m - 1) / noise))
    shares = (1 / n_iter,) * n_iter
    return TheoryParameters(
        n_iter, n_samples, noise, resolution, degrees, contraction_rate(d), shares
    )


def annealed_parameters(
    n: int,
    d: int,
    epsilon: float,
    delta: float,
    *,
    n_iter: int | None = None,
    n_samples: int | None = None,
) -> AnnealedParameters:
    """Return the settings of annealed evolution.

    Parameters
    ----------
    n : int
        Number of private records.
    d : int
        Dimension of the records.
    epsilon : float
        Privacy budget, in nats; ``inf`` counts as noise of one record.
    delta : float
        In (0, 1).
    n_iter : int or None, default=None
        Steps T; None is 1 + √d log₁₀(N)/2, rounded, with at most d = 16.
    n_samples : int or None, default=None
        Records of a population n_s; None is max(3.2 √N, N/8), or max(10, N^(2/3)/2) for d = 1,
        rounded, and at most 4000.

    Returns
    -------
    AnnealedParameters

    Notes
    -----
    The settings depend on N = n/(√2 σ(ε, δ)), the ratio of the votes to the noise of one release.
    Variations begin at the distance between the records of the first
    population, n_s^(−1/d) of the diameter, and are halved at every step, while the share of the
    budget doubles, because finer differences need more precise votes. The constants were fitted by
    simulation on clusters, a curve and the uniform distribution on the unit cube of 1, 2, 3 and 6
    dimensions. No guarantee depends on them.

    Examples
    --------
    >>> from sklearn_dpgen.evolution import annealed_parameters
    >>> settings = annealed_parameters(1000, 2, epsilon=1.0, delta=1e-4)
    >>> settings.n_iter, settings.n_samples
    (3, 48)
    """
    n, d = check_count(n, "n"), check_count(d, "d")
    epsilon = check_epsilon(epsilon)
    signal = n / vote_noise(epsilon, check_delta(delta))
    if n_samples is None:
        n_samples = max(10, signal ** (2 / 3) / 2) if d == 1 else max(3.2 * signal**0.5, signal / 8)
        n_samples = max(1, min(round(n_samples), _MAX_SAMPLES))
    if n_iter is None:
        decades = max(0.0, math.log10(signal))
        n_iter = round(1 + math.sqrt(min(d, 16)) * decades / 2)
    n_iter, n_samples = check_count(n_iter, "n_iter"), check_count(n_samples, "n_samples")
    start = n_samples ** (-1 / d)
    doubled = [2.0 ** min(t, _MAX_HALVINGS) for t in range(n_iter)]
    return AnnealedParameters(
        n_iter,
        n_samples,
        degrees=tuple(start / factor for factor in doubled),
        shares=tuple(factor / math.fsum(doubled) for factor in doubled),
    )


def vote_noise(epsilon, delta):
    """Return the noise on a count of one release of votes, or 1 if that is more."""
    return max(1.0, gaussian_sigma(epsilon, delta, math.sqrt(2)))


# A fit warns if the noise exceeds this many times the mean share of a candidate.
_MOST_NOISE = 10


def class_settings(schedule, sizes, dimension, diameter, epsilon, delta, *, n_iter, n_samples):
    """Return the settings of each class, all with the number of steps of the first class.

    Parameters
    ----------
    schedule : {"annealed", "theory"}
    sizes : list of int
        Public or estimated sizes of the classes.
    dimension : int
        Dimension of a candidate.
    diameter : float or None
        Diameter of the domain, for "theory".
    epsilon, delta : float
    n_iter : int or None
    n_samples : list of (int or None)

    Returns
    -------
    list of AnnealedParameters or of TheoryParameters
    """
    settings = []
    for size, n in zip(sizes, n_samples, strict=True):
        given = {"n_iter": n_iter, "n_samples": n}
        if schedule == "theory":
            setting = theory_parameters(size, dimension, diameter, epsilon, delta, **given)
        else:
            setting = annealed_parameters(size, dimension, epsilon, delta, **given)
        # All classes are released together.
        n_iter = setting.n_iter
        settings.append(setting)
    return settings


# Candidates of each record of an annealed population: itself and two variations.
_CANDIDATES = 3
# The least population for which a further step is worth the higher threshold.
_FEWEST = 100


def threshold_settings(sizes, dimension, epsilon, delta, *, n_iter=None, certified=False):
    """Return the annealed settings at which candidates pass the threshold of Laplace noise.

    Parameters
    ----------
    sizes : list of int
        Public or estimated sizes of the classes.
    dimension : int
    epsilon, delta : float
    n_iter : int or None, default=None
        Steps. None is the number without a threshold, or the largest one below it with populations
        of at least 100 records, or one.
    certified : bool, default=False
        Whether the noise is certified.

    Returns
    -------
    n_iter : int
    n_samples : list of int
        Populations of the classes, at most those without a threshold. n/(3h) records have 3
        candidates each, with h votes in the mean, which is the threshold. The candidates of a
        single step are twice as many: they fill the domain, and are not drawn near the votes.
    """
    annealed = [annealed_parameters(size, dimension, epsilon, delta) for size in sizes]
    most = [setting.n_samples for setting in annealed]
    for steps in range(annealed[0].n_iter, 0, -1) if n_iter is None else [n_iter]:
        threshold = ThresholdedLaplaceMechanism(epsilon, delta, steps, certified).threshold
        n_votes = _CANDIDATES * max(threshold, 1.0) / (2 if steps == 1 else 1)
        passing = [size / n_votes for size in sizes]
        if min(passing) >= _FEWEST:
            break
    pairs = zip(most, passing, strict=True)
    return steps, [max(1, min(own, round(n_passing))) for own, n_passing in pairs]


def first_degrees(schedule, setting):
    """Return the degrees of the variations of the first candidates."""
    if schedule == "annealed":
        # Halfway, on a logarithmic scale, from the first scale to the whole domain.
        return [setting.degrees[0], math.sqrt(setting.degrees[0])]
    return [degree for degree in setting.degrees for _ in range(2)]


def check_threshold(threshold, multiplicity, noise_scale, sizes, settings, n_candidates):
    """Raise if noise exceeds a threshold so often that populations of copies grow at every step.

    A population of P records has P v candidates, from which noise s on the shares makes
    n P v s phi(H / s) copies, where H is the threshold or half of the share of B copies. This is
    more than P if the factor n v s phi(H / s) exceeds 1. All these quantities are public.

    Parameters
    ----------
    threshold : float
        A share of the votes.
    multiplicity : int
    noise_scale : float
        Standard deviation on a count of votes.
    sizes : list of int
    settings : list of AnnealedParameters or of TheoryParameters
    n_candidates : list of int
        Number of candidates of the first step.

    Raises
    ------
    ValueError
    """
    for size, setting, n in zip(sizes, settings, n_candidates, strict=True):
        noise = noise_scale / size
        least = max(threshold, multiplicity / (2 * setting.n_samples))
        growth = n * noise * norm.pdf(least / noise) if noise > 0 else 0.0
        if growth > 1:
            enough = noise * math.sqrt(2 * math.log(2 * n * noise * norm.pdf(0)))
            raise PublicValueError(
                f"threshold must be at least {enough:.2g}, got {threshold:g}. The noise on the "
                f"votes is {noise:.2g} of all votes: noise alone would make {growth:.2g} times "
                f"n_samples copies of {n} candidates, and more at each step. A larger epsilon or "
                "multiplicity also helps."
            )


def warn_of_noise(noise_scale, sizes, settings, epsilon):
    """Warn the caller of ``fit`` if the votes are below the noise, and name what to change."""
    for size, setting in zip(sizes, settings, strict=True):
        noise = noise_scale / size
        if noise >= 1:
            problem = f"{noise:.2g} of all votes"
        elif noise * setting.n_samples > _MOST_NOISE:
            problem = f"{noise * setting.n_samples:.2g} times the mean share of a record"
        else:
            continue
        warn_user(
            f"The noise on the votes for a candidate is {problem}, so the result hardly depends on "
            f"the records (epsilon={epsilon:g}, n_iter={setting.n_iter}, "
            f"n_samples={setting.n_samples}, {size} records). Increase epsilon, or use fewer "
            "steps, fewer candidates or more records.",
            UserWarning,
        )
        return


# A fit warns if fewer candidates than this can pass the threshold.
_MOST_PASSING = 6


def warn_of_threshold(threshold, sizes):
    """Warn the caller of ``fit`` if hardly any candidate can pass a threshold on its votes."""
    if min(sizes) < _MOST_PASSING * threshold:
        warn_user(
            f"No candidate with fewer than {threshold:.3g} votes passes the threshold, so at most "
            f"{math.floor(min(sizes) / threshold)} of all candidates do, with {min(sizes)} "
            "records. Use histogram='gaussian', a larger epsilon, fewer steps or more records.",
            UserWarning,
        )
