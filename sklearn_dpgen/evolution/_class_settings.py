"""The settings of private evolution for every class, and whether votes drown in its noise."""

import math
import warnings

from sklearn_dpgen.evolution._schedules import annealed_parameters, theory_parameters

__all__ = ["class_settings", "first_degrees", "warn_of_noise"]

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
        warnings.warn(
            f"The noise on the votes for a candidate is {problem}: the result says little "
            f"about the records. Here epsilon={epsilon:g}, n_iter={setting.n_iter}, "
            f"n_samples={setting.n_samples} and {size} records; a larger epsilon, fewer "
            "steps, fewer candidates or more records would help.",
            UserWarning,
            stacklevel=4,
        )
        return
