"""Single columns: the intervals they are counted in, and the cells that noisy counts tell of."""

import numpy as np

from sklearn_dpgen.preprocessing import TabularEncoder
from sklearn_dpgen.schema import Datetime, Numeric
from sklearn_dpgen.schema._binned import Binned
from sklearn_dpgen.tables._column_trees import MAX_LEAVES, ColumnCells, ColumnTree
from sklearn_dpgen.tables._measurements import NoisyMarginal
from sklearn_dpgen.tables._record_codes import with_bins
from sklearn_dpgen.tables._releases import release_singles, total_records
from sklearn_dpgen.utils._validation import Integral

# In leaves: from there all distances are about the same.
_FAR = 1 << 40

__all__ = ["column_trees", "fine_encoder", "measure_columns"]


def fine_encoder(schema, n_bins):
    """Return an encoder into the finest cells, not fitted, and the columns with bins to find.

    Parameters
    ----------
    schema : Schema
    n_bins : "auto", int or mapping
        Public bins of numbers and dates; those not named are found.

    Returns
    -------
    encoder : TabularEncoder
    found : list of str
    """
    ordered = [name for name, c in schema.items() if isinstance(c, Numeric | Datetime)]
    if isinstance(n_bins, Integral):
        return TabularEncoder(schema, n_bins=dict.fromkeys(ordered, n_bins)), []
    given = {} if n_bins == "auto" else n_bins
    found = [name for name in ordered if name not in given]
    return TabularEncoder(schema, n_bins=dict.fromkeys(found, MAX_LEAVES) | given), found


def column_trees(encoder, found):
    """Return the tree that each column is counted on.

    Parameters
    ----------
    encoder : TabularEncoder
        Fitted, of :func:`fine_encoder`.
    found : list of str
        Columns with bins to find; the others are flat.
    """
    return [
        ColumnTree(column.n_bins, nullable=column.nullable, anchor=_anchor(column))
        if name in found
        else ColumnTree(column.domain.n_features, is_flat=True)
        for name, column in encoder.columns_.items()
    ]


def _anchor(binned):
    """Return the leaf of zero, which may be outside; of dates one that is far from all."""
    column, n_bins = binned.column, binned.n_bins
    if isinstance(column, Datetime):
        return -_FAR
    low, high = column._bounds
    if low <= 0 <= high:
        edges = np.array(binned.edges[:-1])
        return int(np.searchsorted(edges, column.to_unit(0.0), side="right") - 1)
    leaves = -low / (high - low) * n_bins
    return round(min(max(leaves, -_FAR), _FAR))


def measure_columns(leaves, encoder, trees, weights, noise_scale, release, *, n_records=None):
    """Release the counts of each column, and find the cells that they tell of.

    Parameters
    ----------
    leaves : mapping of int to ndarray
        Exact counts of the leaves of each column but constants, by its place.
    encoder : TabularEncoder
        Fitted, of :func:`fine_encoder`.
    trees : list of ColumnTree
    weights : ndarray of shape (p,)
        Positive.
    noise_scale : float
        Of the release.
    release : callable
        From a vector to which a record adds one of l2 norm 1, to one with noise.
    n_records : float or None, default=None
        The public number of records; None estimates it from the noisy counts.

    Returns
    -------
    cells : list of ColumnCells
        Of each column.
    n_records : float
        As given, or estimated.
    encoder : TabularEncoder
        Fitted, with these cells as bins.
    bins : list of ndarray of int
        The cell of each leaf, then of null, of each column.
    marginals : list of NoisyMarginal
        What was released, a table a level.
    """
    # What is known of a constant need not be paid for.
    measured, told = sorted(leaves), [trees[j] for j in sorted(leaves)]
    exact = [leaves[j] for j in measured]
    counts, factors = release_singles(exact, told, weights[measured], release)
    if n_records is None:
        n_records = total_records(counts, told, factors)
    cells = [ColumnCells(np.zeros(1, dtype=np.int64), np.ones(1), np.zeros(1))] * len(trees)
    for j, noisy, factor in zip(measured, counts, factors, strict=True):
        cells[j] = trees[j].cells(noisy, noise_scale * factor, n_records)
    names = list(encoder.columns_)
    marginals = [
        NoisyMarginal((names[j],), (groups,), sums, noise_scale * factor * np.sqrt(sizes))
        for j, noisy, factor in zip(measured, counts, factors, strict=True)
        for groups, sums, sizes in trees[j].tables(noisy, cells[j].starts)
    ]
    edges = {
        name: column if tree.is_flat else column.merged(found.starts)
        for (name, column), tree, found in zip(encoder.columns_.items(), trees, cells, strict=True)
        if isinstance(column, Binned)
    }
    bins = [tree.bins(found.starts) for tree, found in zip(trees, cells, strict=True)]
    return cells, n_records, with_bins(encoder, edges), bins, marginals
