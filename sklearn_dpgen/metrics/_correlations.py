"""How far the associations of two columns of one table are from those of another."""

from itertools import combinations

import numpy as np
import pandas as pd
from sklearn.utils import check_scalar

from sklearn_dpgen.exceptions import PublicValueError
from sklearn_dpgen.metrics._marginals import check_tables, find_cells
from sklearn_dpgen.schema import Datetime, Numeric, Ordinal, Schema
from sklearn_dpgen.utils._validation import Integral

__all__ = ["column_correlations", "correlation_difference"]


def correlation_difference(
    real: pd.DataFrame, synthetic: pd.DataFrame, schema: Schema, *, n_bins: int = 20
) -> pd.Series:
    """Absolute difference of the correlations of each pair of columns.

    The correlation of two columns that have an order, numeric, datetime or ordinal, is Spearman's,
    in [-1, 1], of the records where neither is null. That of any other pair is Cramér's V, in
    [0, 1], where a null is a label.

    Parameters
    ----------
    real, synthetic : DataFrame
        Tables with the columns of ``schema``; others are ignored. They may differ in length.
    schema : Schema
        Public declaration of the columns. Beside a categorical column, a number or date stands
        for its cell, as in `marginal_total_variation`.
    n_bins : int, default=20
        Number of these cells.

    Returns
    -------
    Series of float
        Indexed by pair of columns in the order of the schema, in [0, 2]. Its mean and its largest
        value are the usual summaries.

    Raises
    ------
    ValueError
        A table is empty, lacks a column, or holds what the schema does not allow; or the schema
        has a single column.

    Notes
    -----
    A column that is constant in a table correlates with no other there: its correlations are 0.
    Cramér's V of independent columns is above 0 in a sample, the more the fewer records there
    are, so tables should be of one length; and two samples of one distribution are not at 0.

    References
    ----------
    Cramér (1946). Mathematical methods of statistics, chapter 21.

    Examples
    --------
    >>> import pandas as pd
    >>> from sklearn_dpgen.metrics import correlation_difference
    >>> from sklearn_dpgen.schema import Numeric, Schema
    >>> schema = Schema({"x": Numeric(0, 3), "y": Numeric(0, 3)})
    >>> real = pd.DataFrame({"x": [0, 1, 2, 3], "y": [0, 1, 2, 3]})
    >>> synthetic = pd.DataFrame({"x": [0, 1, 2, 3], "y": [3, 2, 1, 0]})
    >>> float(correlation_difference(real, synthetic, schema)["x", "y"])
    2.0
    """
    check_scalar(n_bins, "n_bins", Integral, min_val=1)
    if len(schema) < 2:
        raise PublicValueError("Correlations need a schema of at least two columns.")
    check_tables(real, synthetic, schema)
    first, second = (column_correlations(frame, schema, n_bins) for frame in (real, synthetic))
    pairs = list(combinations(schema, 2))
    index = pd.MultiIndex.from_tuples(pairs, names=["column", "other"])
    return pd.Series(np.abs(first - second), index=index, name="correlation_difference")


def column_correlations(frame, schema, n_bins):
    """Return the correlation of each pair of columns, in the order of their combinations."""
    cells = {
        name: np.unique(find_cells(frame[name], column, n_bins), return_inverse=True)[1]
        for name, column in schema.items()
    }
    places = {
        name: _places(frame[name], column)
        for name, column in schema.items()
        if isinstance(column, Numeric | Datetime | Ordinal)
    }
    ranked = pd.DataFrame(places).corr(method="spearman").fillna(0.0)
    return np.array(
        [
            ranked.loc[a, b] if a in places and b in places else _cramers_v(cells[a], cells[b])
            for a, b in combinations(schema, 2)
        ]
    )


def _places(values, column):
    """Return the places of values in their order, NaN for a null."""
    if isinstance(column, Ordinal):
        codes = column.codes(values)
        return np.where(codes < len(column.labels), codes, np.nan)
    block = column.encode(values)
    return np.where(block[:, 2] == 1, np.nan, block[:, 0]) if column.nullable else block[:, 0]


def _cramers_v(cells, others):
    """Return the root of the mean square contingency by its largest value, 0 for a constant.

    Both number the cells that occur, without a gap.
    """
    shape = (int(cells.max()) + 1, int(others.max()) + 1)
    if min(shape) == 1:
        return 0.0
    places = np.ravel_multi_index((cells, others), shape)
    if shape[0] * shape[1] > len(cells):
        pairs, counts = np.unique(places, return_counts=True)
    else:
        counts = np.bincount(places)
        (pairs,) = np.nonzero(counts)
        counts = counts[pairs]
    row, column = np.unravel_index(pairs, shape)
    expected = np.bincount(cells)[row] * (np.bincount(others)[column] / len(cells))
    # Rounding may leave it below 0 for independent cells.
    contingency = max((counts * counts / expected).sum() / len(cells) - 1, 0.0)
    return min(np.sqrt(contingency / (min(shape) - 1)), 1.0)
