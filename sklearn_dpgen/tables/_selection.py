"""Which slices are measured: selected privately, round by round."""

import numpy as np

from sklearn_dpgen.tables._releases import release_slices

__all__ = ["measure_rounds", "scores"]


def measure_rounds(exact, slices, weights, plan, measured, *, predict, run, noise):
    """Select and release slices, round by round, and add them to what was measured.

    Parameters
    ----------
    exact : list of ndarray
        Counts, in each of which a record adds one to one cell.
    slices : list of tuple of int
        Their columns.
    weights : ndarray of shape (m,)
        Positive.
    plan : SlicesPlan
        A round that takes all slices that are left needs no selection.
    measured : Measurements
    predict : callable
        From columns of slices to their expected counts, by all that was measured so far.
    run : GaussianSequenceRun
        Of the plan, after its first release.
    noise : callable
        From arrays that tell what it is for to a NoiseSource.
    """
    left = np.arange(len(slices))
    relative = weights / weights.max(initial=0)
    _, *noise_scales = plan.mechanism.noise_scales
    for number, (count, scale) in enumerate(zip(plan.rounds, noise_scales, strict=True)):
        chosen = left
        if count < len(left):
            expected = predict([slices[i] for i in left])
            distances = scores([exact[i] for i in left], expected, relative[left])
            source = noise(np.array([number]), distances)
            chosen = left[run.select(distances, source, count=count)]
        columns = [slices[i] for i in chosen]

        def release(vector, number=number, columns=columns):
            context = [np.array(part) for part in columns]
            return run.release(vector, noise(np.array([number]), vector, *context))

        tables, factors = release_slices([exact[i] for i in chosen], weights[chosen], release)
        measured.add(columns, tables, factors, scale)
        left = np.setdiff1d(left, chosen)


def scores(tables, expected, weights):
    """Return how far tables are from those expected.

    Parameters
    ----------
    tables : sequence of ndarray
        Exact counts.
    expected : sequence of ndarray
        Known counts.
    weights : ndarray of shape (m,)
        In (0, 1].

    Returns
    -------
    ndarray of float64 of shape (m,)
        w ‖table − expected‖ in l2: half of its square is what the table, without noise, would add
        to the log likelihood, in variances of a cell. Changes by at most 1 if a record is added or
        removed, by √2 if one is replaced.
    """
    distances = [np.linalg.norm(t - e) for t, e in zip(tables, expected, strict=True)]
    return weights * np.array(distances)
