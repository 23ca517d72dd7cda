"""Effect of the noise on a fit, from public quantities alone."""

import math
from dataclasses import replace

from sklearn_dpgen.accounting._wording import number_words

__all__ = ["noise_message", "step_precision"]

# Measured with linear classifiers on simulated records of 4 and 16 features, n = 300 to 10000 at
# epsilon of 0.5 to 4, and on Adult with 100: here half is lost of what the AUC is above 1/2.
_HALVING_NOISE = 0.15
_TOLERATED_NOISE = 0.025
# Of noise that groups of equal size would need as well, the smallest is not to blame.
_TOLERATED_FACTOR = 2.0


def noise_message(objective, mechanism, groups, n_features):
    """Return a warning, or None where the noise leaves the task most of what can be learned.

    With T steps, what is left of the noise in the mean of all gradients is σ / √T a parameter, of
    length σ √((d + 1) / T) on the d weights and the intercept of a unit; the task's part of the
    gradients is at most (1 - alpha) C long.

    Parameters
    ----------
    objective : FairObjective
    mechanism : StratifiedGaussianMechanism
        The plan of the fit.
    groups : sequence
        The names of the groups, by the codes in the strata of the objective.
    n_features : int
        d.

    Returns
    -------
    str or None
    """
    strata, task = objective.strata, (1 - objective.alpha) * objective.task_clip
    if not strata.pairs or objective.alpha == 0 or task == 0:
        return None
    noise = mechanism.noise_scale * math.sqrt((n_features + 1) / mechanism.n_releases) / task
    if noise <= _TOLERATED_NOISE:
        return None
    kept = 1 / (1 + (noise / _HALVING_NOISE) ** 2)
    n_samples = sum(strata.sizes)
    return (
        f"Over the whole fit, noise of length {noise:.2g} is left on the weights of a unit, "
        f"relative to the clipped gradient of the task: about {kept:.0%} is kept of what a "
        "classifier's AUC is above one half without noise. "
        f"{_blame(objective, mechanism, groups)}As it is, about "
        f"{n_samples * noise / _TOLERATED_NOISE:.0f} records would do in place of {n_samples}. "
        "Raise epsilon, or lower alpha or jacobian_clip; or leave the penalty out and treat groups "
        "alike afterwards, which takes far less: sklearn_dpgen.predictors.BarycenterClassifier."
    )


def _blame(objective, mechanism, groups):
    """Return a sentence on the group that sets the noise, where its size is the reason."""
    if objective.group_weights == "size":
        return ""
    strata, worst = objective.strata, mechanism.worst
    batch_sizes = [stratum.batch_size for stratum in mechanism.strata]
    equal = max(1, sum(batch_sizes) // len(batch_sizes))
    alike = replace(strata, sizes=(equal,) * len(batch_sizes))
    alike = replace(objective, strata=alike).sensitivities([equal] * len(batch_sizes))
    factor = worst.sensitivity / max(alike)
    if factor <= _TOLERATED_FACTOR:
        return ""
    group, label = strata.cells[mechanism.strata.index(worst)]
    within = "" if label is None else f", with label number {label},"
    return (
        f"Group {groups[group]!r}{within} has {worst.size} records and makes it {factor:.3g} times "
        "that of groups of one size, which group_weights='size' avoids. "
    )


def step_precision(norms, mechanism, n_parameters):
    """Return what noise leaves of a step, in words: whether it points anywhere.

    Parameters
    ----------
    norms : dict of str to float
        By part of the objective, the largest norm that its mean gradient can have.
    mechanism : StratifiedGaussianMechanism
    n_parameters : int
        Of what is released of a step.

    Returns
    -------
    dict of str to str
    """
    noise = mechanism.noise_scale
    if noise == 0:
        return {"gradients": "exact, without noise"}
    every = noise * math.sqrt(n_parameters)
    root = math.sqrt(mechanism.n_releases)
    parts = {
        f"gradient of {part}": f"of norm {number_words(norm)} at most: signal over noise of a step "
        f"up to {number_words(norm / noise)} along a direction, and {number_words(norm / every)} "
        "over all parameters"
        for part, norm in norms.items()
        if norm > 0
    }
    return parts | {
        "noise of a step": f"{number_words(noise)} along a direction, {number_words(every)} over "
        f"all {n_parameters} parameters",
        "noise of the mean step": f"{number_words(noise / root)} along a direction, "
        f"{number_words(every / root)} over all parameters",
    }
