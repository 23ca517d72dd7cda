"""Noise scales from budgets, and budgets from noise scales and from shuffled local budgets.

By convention the sensitivity is that of replacing one record, and a noise multiplier is the
standard deviation of the noise over that sensitivity. If records are projected on random
directions, the sensitivity is that of the records, and the distribution of the projections is
accounted for here.
"""

import functools
import math
import warnings
from collections.abc import Sequence

import numpy as np

from sklearn_dpgen.accounting._composition import compose_delta, compose_epsilon
from sklearn_dpgen.accounting._profiles import (
    GaussianProfile,
    PrivacyProfile,
    sampled_without_replacement,
    smallest_passing,
)
from sklearn_dpgen.accounting._projection import ProjectionLaw, projection_bound, renyi_epsilon
from sklearn_dpgen.exceptions import LargeDeltaWarning, PublicTypeError, PublicValueError
from sklearn_dpgen.utils._checks import (
    check_choice,
    check_count,
    check_delta,
    check_epsilon,
    check_positive,
    check_rate,
)

__all__ = [
    "calibrate_noise_multiplier",
    "calibrate_remainder",
    "check_delta_size",
    "epsilon_spent",
    "gaussian_sigma",
    "laplace_scale",
    "sampled_releases",
    "shuffled_epsilon",
]

_ACCOUNTANTS = ("profile", "rdp")
# Those of the paper on smoothed sliced distances, for comparison.
_PAPER_ACCOUNTANTS = ("bernstein", "clt")


def laplace_scale(epsilon: float, sensitivity: float = 1.0) -> float:
    """Return the scale b of the Laplace mechanism.

    Parameters
    ----------
    epsilon : float
        Budget in nats; ``inf`` gives 0, no noise.
    sensitivity : float
        ℓ₁ diameter over neighbours.

    Returns
    -------
    float
        Sensitivity over epsilon, rounded up.
    """
    epsilon = check_epsilon(epsilon)
    sensitivity = check_positive(sensitivity, "sensitivity")
    if math.isinf(epsilon):
        return 0.0
    scale = sensitivity / epsilon
    while sensitivity / scale > epsilon:
        scale = math.nextafter(scale, math.inf)
    return scale


def gaussian_sigma(
    epsilon: float, delta: float, sensitivity: float = 1.0, *, calibration: str = "analytic"
) -> float:
    """Return the standard deviation of the Gaussian mechanism.

    Parameters
    ----------
    epsilon : float
        Budget in nats; ``inf`` gives 0, no noise.
    delta : float
        In (0, 1); below 1/2 for ``"closed_form"``.
    sensitivity : float
        ℓ₂ diameter over neighbours.
    calibration : {"analytic", "closed_form"}
        ``"analytic"`` is the smallest sufficient σ, by root search on the exact profile, rounded
        up. ``"closed_form"`` is σ = Δ (c + √(c² + ε)) / (ε√2), c² = ln(2 / (√(16δ + 1) − 1)), which
        is sufficient for every ε > 0.

    Returns
    -------
    float
        δ recomputed from it is at most ``delta``.

    References
    ----------
    Balle and Wang, "Improving the Gaussian mechanism for differential privacy", ICML 2018,
    Theorem 8; Reshetova, Chen and Özgür, "Training generative models from privatized data via
    entropic optimal transport", eq. (5).
    """
    epsilon = check_epsilon(epsilon)
    delta = check_delta(delta)
    sensitivity = check_positive(sensitivity, "sensitivity")
    check_choice(calibration, "calibration", ("analytic", "closed_form"))
    if math.isinf(epsilon):
        return 0.0

    def is_private(sigma):
        return GaussianProfile(sensitivity / sigma).delta(epsilon) <= delta

    if calibration == "analytic":
        # The asymptotic forms of sigma for large and for small epsilon, added.
        guess = sensitivity * (1 / epsilon + 1 / math.sqrt(2 * epsilon))
        return smallest_passing(is_private, guess, rtol=1e-12)
    if delta >= 0.5:
        raise PublicValueError(
            f'delta must be below 1/2 for calibration="closed_form", got {delta}.'
        )
    squared = math.log(2 / (math.sqrt(16 * delta + 1) - 1))
    sigma = sensitivity * (math.sqrt(squared) + math.sqrt(squared + epsilon))
    sigma /= epsilon * math.sqrt(2)
    if not is_private(sigma):
        raise ArithmeticError("The closed form missed its target; use the analytic calibration.")
    return sigma


def epsilon_spent(
    noise_multiplier: float,
    delta: float,
    *,
    sampling_rate: float = 1.0,
    n_steps: int = 1,
    accountant: str = "profile",
    projections: ProjectionLaw | None = None,
) -> float:
    """Return the ε of Gaussian releases on batches drawn without replacement.

    Neighbours differ in one replaced record; the number of records is public and the choice of
    every batch is secret.

    Parameters
    ----------
    noise_multiplier : float
        σ over the ℓ₂ sensitivity of a batch's release to replacing one record; with
        ``projections``, over the ℓ₂ diameter of the records. 0 gives ``inf``.
    delta : float
        In (0, 1).
    sampling_rate : float
        Batch size over number of records, in (0, 1].
    n_steps : int
        Number of adaptive releases.
    accountant : {"profile", "rdp", "bernstein", "clt"}
        ``"profile"`` composes the exact privacy profile and is the tightest; without sampling and
        projections it is exact. ``"rdp"`` uses the Rényi divergence, an independent upper bound.
        The other two are for independent projections, for comparison with the paper on them: a
        bound on H at half of δ, then the Rényi divergence at the other half. As the directions are
        drawn anew for every release, this is no guarantee for several releases; ``"clt"``, which
        replaces the distribution by a normal one, is never a guarantee.
    projections : ProjectionLaw or None
        Distribution of the random directions on which the records of the batch are projected; they
        are drawn anew for every release and published. None if the value itself is released.

    Returns
    -------
    float
        An upper bound, in nats.

    References
    ----------
    Balle, Barthe and Gaboardi, "Privacy amplification by subsampling", NeurIPS 2018, Theorem 11;
    Wang, Balle and Kasiviswanathan, "Subsampled Rényi differential privacy and analytical moments
    accountant", AISTATS 2019, Theorem 27; Rakotomamonjy and Ralaivola, "Differentially private
    sliced Wasserstein distance", ICML 2021, Proposition 2, for the last two accountants.
    """
    delta = check_delta(delta)
    rate = check_rate(sampling_rate)
    n_steps = check_count(n_steps, "n_steps")
    _check_accountant(accountant, projections)
    if noise_multiplier == 0 and not isinstance(noise_multiplier, bool):
        return math.inf
    multiplier = check_positive(noise_multiplier, "noise_multiplier")
    if accountant == "profile":
        return compose_epsilon(sampled_releases(multiplier, rate, n_steps, projections), delta)
    if projections is not None and accountant in _PAPER_ACCOUNTANTS:
        delta /= 2
        multiplier /= math.sqrt(projection_bound(projections, delta, method=accountant))
        projections = None  # The bound replaces H.
    plan = {"sampling_rate": rate, "n_steps": n_steps}
    return renyi_epsilon(projections or ProjectionLaw(1, 1), multiplier, delta, **plan)


def calibrate_noise_multiplier(
    epsilon: float,
    delta: float,
    *,
    sampling_rate: float = 1.0,
    n_steps: int = 1,
    accountant: str = "profile",
    projections: ProjectionLaw | None = None,
) -> float:
    """Return the noise multiplier of Gaussian releases on batches drawn without replacement.

    Parameters
    ----------
    epsilon : float
        Budget in nats of all steps together; ``inf`` gives 0, no noise.
    delta, sampling_rate, n_steps, accountant, projections
        As in :func:`epsilon_spent`.

    Returns
    -------
    float
        σ over the ℓ₂ replacement sensitivity, or over the diameter of the projected records,
        rounded up (by at most 1e-5 relative for sampled batches or random projections):
        :func:`epsilon_spent` of it is at most ``epsilon``.
    """
    epsilon = check_epsilon(epsilon)
    delta = check_delta(delta)
    rate = check_rate(sampling_rate)
    n_steps = check_count(n_steps, "n_steps")
    _check_accountant(accountant, projections)
    if math.isinf(epsilon):
        return 0.0
    squared_sensitivity = 1.0 if projections is None else projections.mean
    unsampled = gaussian_sigma(epsilon, delta, math.sqrt(n_steps * squared_sensitivity))
    plan = {"sampling_rate": rate, "n_steps": n_steps, "accountant": accountant}

    def is_spent_within(multiplier):
        return epsilon_spent(multiplier, delta, projections=projections, **plan) <= epsilon

    if accountant != "profile":
        return smallest_passing(is_spent_within, unsampled * rate, rtol=1e-5)
    multiplier = unsampled
    if rate < 1 or (projections is not None and projections.variance > 0):
        # The central limit of the subsampled Gaussian (Bu, Dong, Long and Su, 2020) is close.
        guess = math.sqrt(
            squared_sensitivity / math.log1p(squared_sensitivity / (unsampled * rate) ** 2)
        )
        multiplier = _crossing(
            lambda m: compose_delta(sampled_releases(m, rate, n_steps, projections), epsilon),
            delta,
            guess,
        )
    # The searches over delta and over epsilon may round differently.
    step = 1e-9
    while not is_spent_within(multiplier):
        multiplier *= 1 + step
        step *= 10
    return multiplier


def _crossing(spent, delta, guess):
    """Return a multiplier that spends at most ``delta``, within a relative 1e-5 of the smallest.

    The logarithm of the spent δ is smooth, so a secant needs a third of the steps of a bisection.
    Each step composes all releases.
    """

    @functools.cache
    def excess(log_multiplier):
        # Clipped, as the logarithm is undefined if δ underflows or is 1.
        return math.log(min(max(spent(math.exp(log_multiplier)), 1e-300), 1 - 1e-16) / delta)

    low = high = math.log(guess)
    step = 0.02
    if excess(high) > 0:
        while excess(high := high + step) > 0:
            low, step = high, 2 * step
    else:
        while excess(low := low - step) <= 0:
            high, step = low, 2 * step
    from scipy.optimize import brentq

    root = brentq(excess, low, high, xtol=2e-6, rtol=1e-15)
    multiplier, step = math.exp(root), 2e-6
    while spent(multiplier) > delta:
        multiplier *= 1 + step
        step *= 2
    return multiplier


def calibrate_remainder(
    epsilon: float, delta: float, spent: Sequence[tuple[PrivacyProfile, int]]
) -> float:
    """Return the μ of a Gaussian release that the rest of a budget allows.

    Parameters
    ----------
    epsilon : float
        Budget in nats of all releases together, finite.
    delta : float
        In (0, 1).
    spent : sequence of (PrivacyProfile, int)
        The other releases, as for :func:`compose_epsilon`.

    Returns
    -------
    float
        The largest μ, ℓ₂ replacement sensitivity over σ, up to a relative 1e-4:
        :func:`compose_epsilon` of ``spent`` and of ``GaussianProfile(μ)`` is at most ``epsilon``.

    Raises
    ------
    PublicValueError
        ``spent`` leaves less than a thousandth of ``epsilon``, or almost nothing of ``delta``.
    """
    epsilon = check_epsilon(epsilon, allow_infinite=False)
    delta = check_delta(delta)
    alone = gaussian_sigma(epsilon, delta)
    if not spent:
        return 1 / alone
    used = compose_epsilon(spent, delta)
    if used > (1 - 1e-3) * epsilon:
        raise PublicValueError(
            f"epsilon must be more than what is spent already: of {epsilon:g}, at delta "
            f"{delta:.3g}, it is {used:.6g}."
        )

    def fits(multiplier):
        together = [*spent, (GaussianProfile(1 / multiplier), 1)]
        return compose_epsilon(together, delta) <= epsilon

    guess = alone / math.sqrt(1 - (used / epsilon) ** 2)
    if not fits(1e6 * guess):
        raise PublicValueError(
            f"delta must be more than what is spent already: {delta:.3g} leaves nothing. A fit "
            "that takes part of it needs a smaller delta of its own."
        )
    return 1 / smallest_passing(fits, guess, rtol=1e-4)


def check_delta_size(delta: float, n_samples: int, *, sampling_rate: float = 1.0) -> float:
    """Return delta; raise an error if it would allow to publish a batch without noise.

    Parameters
    ----------
    delta : float
        In (0, 1).
    n_samples : int
        Public number of records. If the number is not public, delta must not be checked.
    sampling_rate : float, default=1.0
        Probability that a record is in the batch of one release, in (0, 1].

    Returns
    -------
    float

    Raises
    ------
    PublicValueError
        ``delta`` is at least the sampling rate q. Publishing a secret batch is (0, q)-private, so
        that no noise would be needed at any epsilon.

    Warns
    -----
    LargeDeltaWarning
        ``delta`` is above 1 / n_samples: publishing one record at random is
        (0, 1 / n_samples)-private.
    """
    delta, rate = check_delta(delta), check_rate(sampling_rate)
    n_samples = check_count(n_samples, "n_samples")
    if rate < 1 and delta >= rate:
        raise PublicValueError(
            f"delta must be below the sampling rate {rate:.3g}, got {delta:.3g}: batches published "
            "without noise would keep to it."
        )
    if delta * n_samples > 1:
        # Without the value of delta, so that the parts of one budget warn only once.
        warnings.warn(
            f"delta is above 1 / n_samples = {1 / n_samples:.3g}: to publish a whole record, "
            "picked at random, would keep to it. Choose a smaller one, such as 0.1 / n_samples.",
            LargeDeltaWarning,
            stacklevel=1,
        )
    return delta


def _check_accountant(accountant, projections):
    if projections is None:
        check_choice(accountant, "accountant", _ACCOUNTANTS)
        return
    if not isinstance(projections, ProjectionLaw):
        raise PublicTypeError(
            f"projections must be a ProjectionLaw or None, got {type(projections).__name__}."
        )
    check_choice(accountant, "accountant", [*_ACCOUNTANTS, *_PAPER_ACCOUNTANTS])


def sampled_releases(noise_multiplier, sampling_rate, n_steps, projections):
    """Return the releases of :func:`epsilon_spent` with their number, for a composition."""
    if projections is None:
        profile = GaussianProfile(1 / noise_multiplier)
    else:
        profile = projections.profile(noise_multiplier)
    return [(sampled_without_replacement(profile, sampling_rate), n_steps)]


_MAX_BLOCKS = 4096
_TAIL_MASS = 1e-20


def shuffled_epsilon(
    epsilon0: float, n: int, delta: float, *, method: str = "closed_form"
) -> float:
    """Return the central ε of n shuffled records, each released with pure local privacy.

    Neighbours differ in one replaced record; n is public. Every person uses a randomizer of at
    most ``epsilon0``, once, and the server sees the multiset of the outputs.

    Parameters
    ----------
    epsilon0 : float
        Pure local budget, in nats.
    n : int
        Number of records.
    delta : float
        Central δ, in (0, 1).
    method : {"closed_form", "numerical"}
        ``"closed_form"`` is ε = log(1 + (e^{ε₀} − 1)(4√(2 ln(4/δ)) / √((e^{ε₀} + 1) n) + 4/n)),
        for ε₀ ≤ ln(n / (8 ln(2/δ)) − 1). ``"numerical"`` evaluates the divergence of the clone
        construction, for every ε₀, and is usually smaller.

    Returns
    -------
    float
        An upper bound, at most ``epsilon0``.

    Raises
    ------
    PublicValueError
        ``epsilon0`` is too large for the closed form.

    References
    ----------
    Feldman, McMillan and Talwar, "Stronger privacy amplification by shuffling for Rényi and
    approximate differential privacy", SODA 2023, Theorem 3.2 (closed form); "Hiding among the
    clones", FOCS 2021, Theorem 3.1 (numerical).
    """
    epsilon0 = check_epsilon(epsilon0, "epsilon0", allow_infinite=False)
    n = check_count(n, "n")
    delta = check_delta(delta)
    check_choice(method, "method", ("closed_form", "numerical"))
    if method == "numerical":
        return _numerical(epsilon0, n, delta)
    room = n / (8 * math.log(2 / delta)) - 1
    largest = math.log(room) if room > 0 else -math.inf
    if epsilon0 > largest:
        raise PublicValueError(
            f"epsilon0 must be at most log(n / (8 log(2 / delta)) - 1) = {largest:.6g} for the "
            f'closed form, got {epsilon0}; method="numerical" has no such limit.'
        )
    spread = 4 * math.sqrt(2 * math.log(4 / delta))
    # (e^a - 1) / sqrt(e^a + 1), without overflow.
    growth = -math.expm1(-epsilon0) * math.exp(epsilon0 / 2) / math.sqrt(1 + math.exp(-epsilon0))
    excess = growth * spread / math.sqrt(n) + math.expm1(epsilon0) * 4 / n
    return min(math.log1p(excess), epsilon0)


def _numerical(epsilon0, n, delta):
    """Invert the divergence of the clones.

    Two outputs, with distributions Q0 and Q1, generate the differing person's release: the true one
    with probability e^ε₀ / (e^ε₀ + 1). Any other person's distribution is at least
    e^−ε₀ (Q0 + Q1) / 2, so each of the n − 1 is a fair coin between Q0 and Q1 with probability
    e^−ε₀. The number of coins is binomial; given it, the count of Q0 is sufficient to distinguish
    the neighbours.
    """
    counts, weights, lost = _clone_counts(n - 1, math.exp(-epsilon0))

    def is_private(epsilon):
        if epsilon >= epsilon0:
            return True
        return weights @ _clone_divergence(epsilon, epsilon0, counts) + lost <= delta

    if is_private(0.0):
        return 0.0
    return min(smallest_passing(is_private, epsilon0, rtol=1e-9), epsilon0)


def _clone_counts(n_others, probability):
    """Return numbers of clones, rounded down in blocks, their weights, and the omitted mass.

    One more clone is post-processing of one less, so rounding down is safe.
    """
    from scipy.stats import binom

    clones = binom(n_others, probability)
    first, last = int(clones.ppf(_TAIL_MASS)), int(clones.isf(_TAIL_MASS))
    edges = np.unique(np.linspace(first, last + 1, _MAX_BLOCKS + 1).astype(np.int64))
    below, above = clones.cdf(edges - 1), clones.sf(edges - 1)
    lost, above[-1] = below[0], 0.0
    weights = np.where(below[1:] < 0.5, np.diff(below), -np.diff(above))
    return edges[:-1], weights, lost


def _clone_divergence(epsilon, epsilon0, counts):
    """Return the hockey-stick divergence at e^ε given the number of clones."""
    from scipy.stats import binom

    truth = 1 / (1 + math.exp(-epsilon0))
    # The loss grows with the share of Q0 among the counts + 1 outputs, and crosses ε here.
    share = -math.expm1(-epsilon - epsilon0) / (-math.expm1(-epsilon0) * (1 + math.exp(-epsilon)))
    threshold = np.floor(share * (counts + 1))
    own, other = binom.sf(threshold - 1, counts, 0.5), binom.sf(threshold, counts, 0.5)
    gain = truth - math.exp(epsilon) * (1 - truth)
    loss = (1 - truth) - math.exp(epsilon) * truth
    return np.maximum(gain * own + loss * other, 0.0)
