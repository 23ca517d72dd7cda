"""Total variation between the marginals of two tables, in cells of a public schema."""

from itertools import combinations

import numpy as np
import pandas as pd
from sklearn.utils import check_scalar

from sklearn_dpgen.schema import Datetime, Numeric, Schema
from sklearn_dpgen.utils._validation import Integral

__all__ = ["marginal_total_variation"]

_EDGE = 1e-9


def marginal_total_variation(
    real: pd.DataFrame, synthetic: pd.DataFrame, schema: Schema, *, order: int = 1, n_bins: int = 20
) -> pd.Series:
    """Total variation distance between the marginals of two tables.

    Half the l1 distance between the two histograms of each column, or of each pair of columns:
    0 for the same frequencies, 1 for disjoint supports. Two samples of one distribution are not
    at 0, so compare with a held-out real table.

    Parameters
    ----------
    real, synthetic : DataFrame
        Tables with the columns of ``schema``; others are ignored. They may differ in length.
    schema : Schema
        Public declaration that fixes the cells. A category or ordinal value is a cell. A
        numeric or datetime range is cut into ``n_bins`` cells of equal width, with values
        outside of it in the end cells; an integer or stepped range of at most ``n_bins`` values
        has a cell for each of them. Nulls are a cell of their own.
    order : {1, 2}, default=1
        Columns, or pairs of columns.
    n_bins : int, default=20
        Number of cells of a numeric or datetime column.

    Returns
    -------
    Series of float
        Indexed by column, or by pair of columns in the order of the schema. Its mean is the
        usual summary.

    Raises
    ------
    ValueError
        A table is empty, lacks a column, or holds what the schema does not allow: an undeclared
        category, a null in a column that is not nullable.
    """
    if order not in (1, 2):
        raise ValueError(f"order must be 1 or 2, got {order!r}.")
    check_scalar(n_bins, "n_bins", Integral, min_val=1)
    names = list(schema)
    if len(names) < order:
        raise ValueError("order=2 needs a schema of at least two columns.")
    cells = {}
    for label, frame in (("real", real), ("synthetic", synthetic)):
        missing = [name for name in names if name not in frame.columns]
        if missing:
            raise ValueError(f"{label} lacks columns of the schema: {missing}.")
        if len(frame) == 0:
            raise ValueError(f"{label} has no rows.")
        cells[label] = {name: _cells(frame[name], schema[name], n_bins) for name in names}

    groups = list(combinations(names, order))
    distances = [_total_variation(cells["real"], cells["synthetic"], group) for group in groups]
    index = (
        pd.Index(names, name="column")
        if order == 1
        else pd.MultiIndex.from_tuples(groups, names=["column", "other"])
    )
    return pd.Series(distances, index=index, name="total_variation")


def _total_variation(real, synthetic, group):
    shape = [max(real[name].max(), synthetic[name].max()) + 1 for name in group]
    size = np.prod(shape)
    first, second = (
        np.bincount(np.ravel_multi_index([cells[name] for name in group], shape), minlength=size)
        / len(cells[group[0]])
        for cells in (real, synthetic)
    )
    return np.abs(first - second).sum() / 2


def _cells(values, column, n_bins):
    """Return the index of the cell of each value; the last one is null."""
    block = column.encode(values)
    if not isinstance(column, Numeric | Datetime):
        return block.argmax(axis=1)
    fraction = (block[:, 0] + 1) / 2
    n_steps = column.n_steps
    if n_steps is not None and n_steps < n_bins:
        cells = np.rint(fraction * n_steps)
    else:
        # A value on an edge opens the next cell, although its fraction is rounded.
        cells = np.minimum(np.floor(fraction * n_bins + _EDGE), n_bins - 1)
    if column.nullable:
        cells[block[:, 2] == 1] = n_bins
    return cells.astype(np.int64)
