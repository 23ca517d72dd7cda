"""The settings of private evolution for every class, and whether noise hides the votes."""

import math

from scipy.stats import norm

from sklearn_dpgen.evolution._schedules import annealed_parameters, theory_parameters
from sklearn_dpgen.utils._validation import warn_user

__all__ = ["check_threshold", "class_settings", "first_degrees", "warn_of_noise"]

# Noise that is wider than this many mean shares is warned of.
_DROWNED = 10


def class_settings(schedule, sizes, dimension, diameter, epsilon, delta, *, n_iter, n_samples):
    """Return the settings of each class; all take as many steps as the first asks for.

    Parameters
    ----------
    schedule : {"annealed", "theory"}
    sizes : list of int
        What is publicly known of the sizes of the classes.
    dimension : int
        Of a candidate.
    diameter : float or None
        Of the domain, for "theory".
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


def first_degrees(schedule, setting):
    """Return how far the first candidates are varied, once for each variation."""
    if schedule == "annealed":
        # Halfway, on a logarithmic scale, from the first scale to the whole domain.
        return [setting.degrees[0], math.sqrt(setting.degrees[0])]
    return [degree for degree in setting.degrees for _ in range(2)]


def check_threshold(threshold, multiplicity, noise_scale, sizes, settings, n_candidates):
    """Refuse a threshold that noise passes so often that populations of copies grow without end.

    A population of P records has P v candidates, of which noise s on the shares makes
    n P v s phi(H / s) copies: more than P where that factor is above 1, with H the threshold, or
    half of the share of B copies. All of it is public.

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
        Of the first step.

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
            raise ValueError(
                f"threshold must be above the noise on the votes, here {noise:.2g} of all: of "
                f"{n} candidates noise alone would make {growth:.2g} times n_samples copies, and "
                f"more at each step. {enough:.2g} would do, got {threshold:g}; so would a larger "
                "epsilon or multiplicity."
            )


def warn_of_noise(noise_scale, sizes, settings, epsilon):
    """Warn the caller of ``fit`` where votes will drown, with the numbers to change."""
    for size, setting in zip(sizes, settings, strict=True):
        noise = noise_scale / size
        if noise >= 1:
            problem = f"{noise:.2g} of all votes"
        elif noise * setting.n_samples > _DROWNED:
            problem = f"{noise * setting.n_samples:.2g} times the mean share of a record"
        else:
            continue
        warn_user(
            f"The noise on the votes for a candidate is {problem}: the result says little "
            f"about the records. Here epsilon={epsilon:g}, n_iter={setting.n_iter}, "
            f"n_samples={setting.n_samples} and {size} records; a larger epsilon, fewer "
            "steps, fewer candidates or more records would help.",
            UserWarning,
        )
        return
