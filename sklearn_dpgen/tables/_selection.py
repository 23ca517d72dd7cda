"""Which tables are measured, and how finely: selected privately, round by round."""

import itertools
import math

import numpy as np

from sklearn_dpgen.tables._releases import noise_factors, release_marginals
from sklearn_dpgen.tables._resolution import CELLS, affordable_cells, affordable_marginals

__all__ = ["measure_rounds", "scores"]

# Candidates whose expected counts are computed at a time, and cells of those that are counted.
_BLOCK, _CELLS = 64, 1 << 24


def measure_rounds(count, plan, weight, measured, *, predict, run, noise):
    """Select and release tables, round by round, and add them to what was measured.

    Parameters
    ----------
    count : callable
        From marginals to their exact counts.
    plan : MarginalsPlan
    weight : callable
        The public positive weight of a tuple of columns.
    measured : Measurements
    predict : callable
        From marginals to their expected counts, by all that was measured so far.
    run : GaussianSequenceRun
        Of the plan, after its first release.
    noise : NoiseSource
    """
    n, first = measured.n_records, ()
    done: set = set()
    _, *noise_scales = plan.mechanism.noise_scales
    for number, (part, scale) in enumerate(zip(plan.rounds, noise_scales, strict=True)):
        candidates = [columns for columns in part.candidates if columns not in done]
        n_affordable = affordable_marginals(n, scale, CELLS[len(candidates[0])])
        n_chosen = len(candidates)
        if part.n_selected is not None:
            n_chosen = min(n_chosen, part.n_selected, max(n_affordable, int(number == 0)))
        if number and 2 * n_affordable < n_chosen or not n_chosen:
            # Far too few records, which may not have been known when this was paid for: once more
            # the first. Where half of the tables are clear, all of them are with fewer cells.
            candidates = first
            n_chosen = len(candidates)
        weights = np.array([weight(columns) for columns in candidates])
        is_choice = n_chosen < len(candidates)
        if is_choice:
            even = affordable_cells(n, scale * math.sqrt(n_chosen))
            marginals = [measured.blocks.marginal(columns, even) for columns in candidates]
            relative, spread = weights / weights.max(), scale * math.sqrt(n_chosen)
            found = _all_scores(count, marginals, relative, spread, predict)
            chosen = run.select(found, noise, count=n_chosen)
            candidates, weights = [candidates[i] for i in chosen], weights[chosen]
        spreads = scale * noise_factors(weights)
        marginals = [
            measured.blocks.marginal(columns, affordable_cells(n, spread))
            for columns, spread in zip(candidates, spreads, strict=True)
        ]
        expected = predict(marginals) if is_choice else measured.independent(marginals)
        tables, _ = release_marginals(
            count(marginals), weights, lambda vector: run.release(vector, noise)
        )
        for one in zip(marginals, tables, spreads, expected, strict=True):
            measured.add(*one)
        done.update(candidates)
        first = first or candidates


def _all_scores(count, marginals, weights, noise_scale, predict):
    """Return the scores of marginals, of so many at a time as fit in memory."""
    # Each is a pass over the records.
    passes = np.cumsum([part.n_cells for part in marginals]) // _CELLS
    found = []
    for first, last in _runs(passes):
        tables = count(marginals[first:last])
        for start in range(first, last, _BLOCK):
            part = slice(start, min(start + _BLOCK, last))
            exact = tables[part.start - first : part.stop - first]
            found.append(scores(exact, predict(marginals[part]), weights[part], noise_scale))
    return np.concatenate(found)


def _runs(labels):
    """Return the first and the last place, and one, of each run of equal labels."""
    edges = np.flatnonzero(np.diff(labels, prepend=-1, append=-1))
    return list(itertools.pairwise(edges.tolist()))


def scores(tables, expected, weights, noise_scale):
    """Return how far tables are from those expected, beyond their noise.

    Parameters
    ----------
    tables : sequence of ndarray
        Exact counts.
    expected : sequence of ndarray
        Known counts.
    weights : ndarray of shape (m,)
        In (0, 1].
    noise_scale : float
        Standard deviation of the noise of a cell, if it is measured.

    Returns
    -------
    ndarray of float64 of shape (m,)
        w (‖table − expected‖₁ − √(2/π) Σ √(σ² + expected)): what noise and chance make of it is
        taken off, which is known. Changes by at most 1 if a record is added or removed, by 2 if
        one is replaced.
    """
    return np.array(
        [
            w * (np.abs(t - e).sum() - _MEAN * np.sqrt(noise_scale**2 + np.maximum(e, 0)).sum())
            for w, t, e in zip(weights, tables, expected, strict=True)
        ]
    )


# Of the modulus of a standard normal variable.
_MEAN = math.sqrt(2 / math.pi)
