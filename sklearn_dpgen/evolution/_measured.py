"""Tables that were released with noise: of single columns, and of slices in rounds."""

from dataclasses import dataclass

import numpy as np

from sklearn_dpgen.evolution._population import SliceLoss

__all__ = [
    "MeasuredSlice",
    "Measurements",
    "measure_rounds",
    "release_singles",
    "release_slices",
    "scores",
    "total_records",
]


@dataclass(frozen=True)
class MeasuredSlice:
    """A table that was released.

    Attributes
    ----------
    columns : tuple of str
        An axis each.
    counts : ndarray
        Noisy numbers of records in the cells, which may be negative. Categories are in the order
        of the schema, then bins, then null.
    noise_scale : float or ndarray
        Standard deviation of the noise of each cell, 0 without noise; an array of one a cell, of
        a column whose bins were found privately.
    """

    columns: tuple[str, ...]
    counts: np.ndarray
    noise_scale: float | np.ndarray


class Measurements:
    """What was released of a table so far.

    Parameters
    ----------
    names : list of str
        Of all columns.
    sizes : list of int
        Categories of each column.
    n_records : float
        Number of records, or an estimate of it.
    """

    def __init__(self, names, sizes, n_records):
        self._names, self.sizes, self._n_records = names, sizes, n_records
        self.columns, self._shares, self._precisions = [], [], []
        self.slices = []

    def add(self, columns, tables, spreads, noise_scale):
        """Add tables.

        Parameters
        ----------
        columns : list of tuple of int
            An axis each.
        tables : list of ndarray
            Noisy counts.
        spreads : list of float or ndarray
            Of each table the noise of a cell, over ``noise_scale``.
        noise_scale : float
            0 without noise; the tables then count by their spreads.
        """
        for part, table, spread in zip(columns, tables, spreads, strict=True):
            names = tuple(self._names[column] for column in part)
            self.slices.append(MeasuredSlice(names, table, noise_scale * spread))
            self._shares.append(table / self._n_records)
            self._precisions.append((self._n_records / ((noise_scale or 1.0) * spread)) ** 2)
        self.columns += columns

    @property
    def singles(self):
        """The shares of the categories of each column."""
        return self._shares[: len(self._names)]

    @property
    def n_cells(self):
        """The number of cells of all tables."""
        return sum(table.size for table in self._shares)

    def loss(self, device):
        """Return the squared distance from all tables, in variances, over the number of cells."""
        precisions = [precision / self.n_cells for precision in self._precisions]
        return SliceLoss(self.sizes, self.columns, self._shares, precisions, device)


def release_singles(codes, trees, weights, release):
    """Release the counts of single columns, on all levels of their trees, as one vector.

    Parameters
    ----------
    codes : sequence of ndarray of int of shape (n,)
        The leaf of each record in each column.
    trees : sequence of ColumnTree
    weights : ndarray of shape (p,)
        Positive; the noise of a column is in proportion to the inverse.
    release : callable
        From a vector to which a record adds one of l2 norm 1, to one with noise.

    Returns
    -------
    counts : list of ndarray
        Of each tree, with noise.
    factors : ndarray of shape (p,)
        The noise of a count over that of the vector.
    """
    levels = np.array([tree.n_levels for tree in trees])
    weights = weights / np.sqrt((levels * weights**2).sum())
    exact = [w * tree.counts(c) for w, tree, c in zip(weights, trees, codes, strict=True)]
    noisy = release(np.concatenate(exact))
    stops = np.cumsum([len(part) for part in exact])
    counts = [part / w for part, w in zip(np.split(noisy, stops[:-1]), weights, strict=True)]
    return counts, 1 / weights


def release_slices(tables, weights, release):
    """Release tables as one vector.

    Parameters
    ----------
    tables : sequence of ndarray
        Exact counts, in each of which a record adds one to one cell.
    weights : ndarray of shape (m,)
        Positive; the noise of a table is in proportion to the inverse.
    release : callable
        From a vector to which a record adds one of l2 norm 1, to one with noise.

    Returns
    -------
    tables : list of ndarray
        With noise.
    factors : ndarray of shape (m,)
        The noise of a cell over that of the vector.
    """
    weights = weights / np.sqrt((weights**2).sum())
    noisy = release(np.concatenate([w * t.ravel() for w, t in zip(weights, tables, strict=True)]))
    stops = np.cumsum([table.size for table in tables])
    parts = np.split(noisy, stops[:-1])
    released = [
        (part / weight).reshape(table.shape)
        for part, weight, table in zip(parts, weights, tables, strict=True)
    ]
    return released, 1 / weights


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


def total_records(counts, trees, factors):
    """Return an estimate of the number of records, at least 1, from counts of single columns.

    Parameters
    ----------
    counts : sequence of ndarray
        Of each tree, with noise.
    trees : sequence of ColumnTree
    factors : ndarray of shape (p,)
        Relative scales of their noise.

    Returns
    -------
    float
    """
    totals, variances = [], []
    for noisy, tree, factor in zip(counts, trees, factors, strict=True):
        levels, nulls, variance = tree.estimate(noisy)
        totals.append(levels[-1].sum() + nulls.sum())
        variances.append(variance * factor**2)
    return max(1.0, float(np.average(totals, weights=1 / np.array(variances))))


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
