"""A group too small for its budget is foreseen: all that it takes is public."""

import math

__all__ = ["small_group_message"]

# Measured on simulated records, n = 4000 to 20000, epsilon = 1 and 4, networks of 11 to 10000
# parameters: at this noise the AUC is 0.01 to 0.02 below that of a fit without groups, at three
# times as much about 0.1 and at ten times 0.2 to 0.4, whatever makes the noise.
_TOLERATED_NOISE = 0.005
# Of noise that groups of equal size would need as well, the smallest is not to blame.
_TOLERATED_FACTOR = 2.0


def small_group_message(objective, mechanism, groups):
    """Return a warning, or None where no small group drowns the task in noise.

    With T steps, what is left of the noise in the mean of all gradients is σ / √T a parameter, and
    the task's part of them is at most (1 - α) C long.

    Parameters
    ----------
    objective : FairObjective
    mechanism : StratifiedGaussianMechanism
        The plan of the fit.
    groups : list or None
        The names of the groups, by the codes in the strata of the objective.

    Returns
    -------
    str or None
    """
    strata, worst = objective.strata, mechanism.worst
    task = (1 - objective.alpha) * objective.task_clip
    if not strata.pairs or task == 0:
        return None
    noise = mechanism.noise_scale / math.sqrt(mechanism.n_releases) / task
    batch_sizes = [stratum.batch_size for stratum in mechanism.strata]
    equal = max(1, sum(batch_sizes) // len(batch_sizes))
    factor = worst.sensitivity / max(objective.sensitivities([equal] * len(batch_sizes)))
    if noise <= _TOLERATED_NOISE or factor <= _TOLERATED_FACTOR:
        return None
    group, label = strata.cells[mechanism.strata.index(worst)]
    within = "" if label is None else f", with label number {label},"
    return (
        f"Group {groups[group]!r}{within} has {worst.size} of {sum(strata.sizes)} records and sets "
        f"the noise of every step, {factor:.3g} times that of groups of equal size. Over the whole "
        f"fit {noise:.2g} is left on each parameter, relative to the clipped gradient of the task; "
        f"above {_TOLERATED_NOISE:g} predictions suffer. With everything else as it is, about "
        f"{worst.size * noise / _TOLERATED_NOISE:.0f} records in the group would do. Merge groups, "
        "raise epsilon, or lower alpha or jacobian_clip."
    )
