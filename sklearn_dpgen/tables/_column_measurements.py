"""Single columns: the cells that they are counted in, and the bins that noisy counts tell of."""

from sklearn_dpgen.preprocessing import TabularEncoder
from sklearn_dpgen.schema import Datetime, Numeric
from sklearn_dpgen.schema._binned import Binned
from sklearn_dpgen.tables._column_trees import MAX_LEAVES, ColumnTree
from sklearn_dpgen.tables._measurements import Measurements
from sklearn_dpgen.tables._record_codes import with_bins
from sklearn_dpgen.tables._releases import release_singles, total_records
from sklearn_dpgen.utils._validation import Integral

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
        return TabularEncoder(schema, bins=dict.fromkeys(ordered, n_bins)), []
    given = {} if n_bins == "auto" else n_bins
    found = [name for name in ordered if name not in given]
    return TabularEncoder(schema, bins=dict.fromkeys(found, MAX_LEAVES) | given), found


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
        ColumnTree(column.n_bins, nullable=column.nullable)
        if name in found
        else ColumnTree(column.domain.n_features, is_flat=True)
        for name, column in encoder.columns_.items()
    ]


def measure_columns(columns, encoder, trees, weights, noise_scale, release, *, n_records=None):
    """Release the counts of each column, and find the bins that they tell of.

    Parameters
    ----------
    columns : list of ndarray of int of shape (n,)
        The leaf of each private record in each column.
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
    measured : Measurements
        Of the single columns, in their bins.
    encoder : TabularEncoder
        Fitted, with these bins.
    codes : list of ndarray of int of shape (n,)
        The bin of each private record.
    """
    counts, factors = release_singles(columns, trees, weights, release)
    if n_records is None:
        n_records = total_records(counts, trees, factors)
    starts, tables, spreads, bins = [], [], [], {}
    for (name, column), tree, noisy, factor in zip(
        encoder.columns_.items(), trees, counts, factors, strict=True
    ):
        first, table, variances = tree.bins(noisy, noise_scale * factor)
        starts.append(first)
        tables.append(table)
        spreads.append(factor if tree.is_flat else factor * variances**0.5)
        if isinstance(column, Binned):
            bins[name] = column if tree.is_flat else column.merged(first)
    measured = Measurements(list(encoder.columns_), [len(t) for t in tables], n_records)
    measured.add([(i,) for i in range(len(tables))], tables, spreads, noise_scale)
    codes = [t.bin_codes(c, s) for t, c, s in zip(trees, columns, starts, strict=True)]
    return measured, with_bins(encoder, bins), codes
