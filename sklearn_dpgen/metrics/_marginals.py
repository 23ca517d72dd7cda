"""Marginals and correlations of two tables, compared in cells of a public schema."""

import math
from itertools import combinations

import numpy as np
import pandas as pd
from sklearn.utils import check_random_state, check_scalar
from sklearn.utils.random import sample_without_replacement

from sklearn_dpgen.exceptions import PublicValueError
from sklearn_dpgen.schema import Datetime, Numeric, Ordinal, Schema
from sklearn_dpgen.utils._validation import Integral

__all__ = [
    "check_tables",
    "column_correlations",
    "correlation_difference",
    "find_cells",
    "k_marginal_score",
    "marginal_total_variation",
]

_EDGE = 1e-9


def marginal_total_variation(
    real: pd.DataFrame,
    synthetic: pd.DataFrame,
    schema: Schema,
    *,
    order: int = 1,
    n_bins: int = 20,
    max_groups: int | None = None,
    random_state: int | np.random.RandomState | None = None,
) -> pd.Series:
    """Total variation distance between the marginals of two tables.

    Half the l1 distance between the histograms of each column, pair or triple of columns: 0 for
    equal frequencies, 1 for disjoint supports. Two samples of one distribution have a positive
    distance, so compare with a held-out real table.

    Parameters
    ----------
    real, synthetic : DataFrame
        Tables with the columns of ``schema``; others are ignored. They may differ in length.
    schema : Schema
        Public declaration that defines the cells. A category or ordinal value is a cell. A numeric
        or datetime range is divided into ``n_bins`` cells of equal width, with values outside in
        the end cells; an integer or stepped range of at most ``n_bins`` values has a cell for each.
        Null is a cell of its own.
    order : {1, 2, 3}, default=1
        Columns, pairs of columns, or triples.
    n_bins : int, default=20
        Number of cells of a numeric or datetime column.
    max_groups : int or None, default=None
        If there are more columns, pairs or triples, this number of them is drawn without
        replacement. None takes all.
    random_state : None, int or RandomState, default=None
        Seed of that draw. The same seed draws the same ones for all tables of a schema.

    Returns
    -------
    Series of float
        Indexed by column, or by pair or triple of columns in the order of the schema. Its mean is
        the usual summary.

    Raises
    ------
    PublicValueError
        A table is empty, lacks a column, or has values that the schema does not allow: an
        undeclared category, or a null in a column that is not nullable.

    See Also
    --------
    k_marginal_score : The mean, on the scale of NIST.

    Notes
    -----
    Memory is linear in the number of records, for any number of cells.
    """
    if isinstance(order, bool) or order not in (1, 2, 3):
        raise PublicValueError(f"order must be 1, 2 or 3, got {order!r}.")
    check_scalar(n_bins, "n_bins", Integral, min_val=1)
    if max_groups is not None:
        check_scalar(max_groups, "max_groups", Integral, min_val=1)
    names = list(schema)
    if len(names) < order:
        raise PublicValueError(f"schema must have at least {order} columns for order={order}.")
    check_tables(real, synthetic, schema)
    cells = {
        name: np.concatenate(
            [find_cells(frame[name], schema[name], n_bins) for frame in (real, synthetic)]
        )
        for name in names
    }
    groups = _groups(names, order, max_groups, random_state)
    distances = [_total_variation([cells[name] for name in group], len(real)) for group in groups]
    index = (
        pd.Index([name for (name,) in groups], name="column")
        if order == 1
        else pd.MultiIndex.from_tuples(groups, names=["column", "other", "third"][:order])
    )
    return pd.Series(distances, index=index, name="total_variation")


def k_marginal_score(
    real: pd.DataFrame,
    synthetic: pd.DataFrame,
    schema: Schema,
    *,
    k: int = 2,
    n_bins: int = 20,
    max_groups: int | None = None,
    random_state: int | np.random.RandomState | None = None,
) -> float:
    """NIST's k-marginal score, 1000 (1 - mean total variation of the k-way marginals).

    1000 for equal frequencies, 0 for disjoint supports; larger is better. Scores with different k
    or cells are not comparable, as distances grow with the number of cells.

    Parameters
    ----------
    real, synthetic : DataFrame
        Tables with the columns of ``schema``; others are ignored. They may differ in length.
    schema : Schema
        Public declaration that defines the cells, as in `marginal_total_variation`.
    k : {1, 2, 3}, default=2
        Number of columns of a marginal.
    n_bins : int, default=20
        Number of cells of a numeric or datetime column.
    max_groups : int or None, default=None
        Largest number of marginals, drawn without replacement. None takes all.
    random_state : None, int or RandomState, default=None
        Seed of that draw.

    Returns
    -------
    float
        In [0, 1000].

    Raises
    ------
    PublicValueError
        As in `marginal_total_variation`.

    Notes
    -----
    SDNist computes (2 - mean l1 distance) · 500, which is equal, for k = 2 on 50 pairs drawn with
    replacement, within groups of records and with the bins of its schema. The challenge of 2018
    used k = 3 and 100 triples. Here all pairs are used unless ``max_groups`` is given.

    References
    ----------
    Ridgeway, Theofanos, Manley, Task (2021). Challenge design and lessons learned from the 2018
    differential privacy challenges, NIST TN 2151. NIST, SDNist, ``sdnist/metrics/kmarginal.py``.

    Examples
    --------
    >>> import pandas as pd
    >>> from sklearn_dpgen.metrics import k_marginal_score
    >>> from sklearn_dpgen.schema import Categorical, Schema
    >>> schema = Schema({"x": Categorical([0, 1]), "y": Categorical([0, 1])})
    >>> real = pd.DataFrame({"x": [0, 0, 1, 1], "y": [0, 0, 1, 1]})
    >>> synthetic = pd.DataFrame({"x": [0, 0, 1, 1], "y": [0, 1, 0, 1]})
    >>> k_marginal_score(real, synthetic, schema)
    500.0
    """
    if isinstance(k, bool) or k not in (1, 2, 3):
        raise PublicValueError(f"k must be 1, 2 or 3, got {k!r}.")
    distances = marginal_total_variation(
        real,
        synthetic,
        schema,
        order=k,
        n_bins=n_bins,
        max_groups=max_groups,
        random_state=random_state,
    )
    return float(1000 * (1 - distances.mean()))


def check_tables(real, synthetic, schema):
    """Check that a table is not empty and has the columns of the schema."""
    for label, frame in (("real", real), ("synthetic", synthetic)):
        missing = [name for name in schema if name not in frame.columns]
        if missing:
            raise PublicValueError(f"{label} must have the columns of the schema, lacks {missing}.")
        if len(frame) == 0:
            raise PublicValueError(f"{label} must have at least one row.")


def find_cells(values, column, n_bins):
    """Return the index of the cell of each value; the last cell is null."""
    if not isinstance(column, Numeric | Datetime):
        return column.codes(values)
    block = column.encode(values)
    fraction = (block[:, 0] + 1) / 2
    n_steps = column.n_steps
    if n_steps is not None and n_steps < n_bins:
        cells = np.rint(fraction * n_steps)
    else:
        # A value on an edge is in the upper cell, although its fraction is rounded.
        cells = np.minimum(np.floor(fraction * n_bins + _EDGE), n_bins - 1)
    if column.nullable:
        cells[block[:, 2] == 1] = n_bins
    return cells.astype(np.int64)


def _groups(names, order, max_groups, random_state):
    """Return tuples of columns in the order of the schema: all, or a random subset."""
    n_groups = math.comb(len(names), order)
    if max_groups is None or max_groups >= n_groups:
        return list(combinations(names, order))
    places = sample_without_replacement(
        n_groups, max_groups, random_state=check_random_state(random_state)
    )
    return [tuple(_combination(names, order, place)) for place in np.sort(places)]


def _combination(names, order, place):
    """Return the combination at a position of ``itertools.combinations``."""
    for i, name in enumerate(names):
        if order == 0:
            return
        n_with = math.comb(len(names) - i - 1, order - 1)
        if place < n_with:
            yield name
            order -= 1
        else:
            place -= n_with


def _total_variation(columns, n_real):
    """Return the total variation between the cells of the first records and those of the rest."""
    n = len(columns[0])
    cells, size = columns[0], columns[0].max() + 1
    for column in columns[1:]:
        n_labels = column.max() + 1
        cells, size = cells * n_labels + column, size * n_labels
        if size > n:
            values, cells = np.unique(cells, return_inverse=True)
            size = len(values)
    first = np.bincount(cells[:n_real], minlength=size) / n_real
    second = np.bincount(cells[n_real:], minlength=size) / (n - n_real)
    return np.abs(first - second).sum() / 2


def correlation_difference(
    real: pd.DataFrame, synthetic: pd.DataFrame, schema: Schema, *, n_bins: int = 20
) -> pd.Series:
    """Absolute difference of the correlations of each pair of columns.

    Columns with an order (numeric, datetime or ordinal) have Spearman's correlation, in [-1, 1], of
    the records in which neither is null. Other pairs have Cramér's V, in [0, 1], with null as a
    label.

    Parameters
    ----------
    real, synthetic : DataFrame
        Tables with the columns of ``schema``; others are ignored. They may differ in length.
    schema : Schema
        Public declaration of the columns. In a pair with a categorical column, a number or date is
        replaced by its cell, as in `marginal_total_variation`.
    n_bins : int, default=20
        Number of these cells.

    Returns
    -------
    Series of float
        Indexed by pair of columns in the order of the schema, in [0, 2]. Its mean and its largest
        value are the usual summaries.

    Raises
    ------
    PublicValueError
        A table is empty, lacks a column, or has values that the schema does not allow; or the
        schema has a single column.

    Notes
    -----
    The correlations of a column that is constant in a table are 0 there. Cramér's V of independent
    columns is positive in a sample, and larger for fewer records, so tables should have equal
    lengths; two samples of one distribution have a positive difference.

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
        raise PublicValueError("schema must have at least two columns for correlations.")
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
    """Return the ranks of values in their order, NaN for a null."""
    if isinstance(column, Ordinal):
        codes = column.codes(values)
        return np.where(codes < len(column.labels), codes, np.nan)
    block = column.encode(values)
    return np.where(block[:, 2] == 1, np.nan, block[:, 0]) if column.nullable else block[:, 0]


def _cramers_v(cells, others):
    """Return the root of the mean square contingency over its largest value, 0 for a constant.

    Both arguments number the cells that occur, without gaps.
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
    # Rounding may make it negative for independent cells.
    contingency = max((counts * counts / expected).sum() / len(cells) - 1, 0.0)
    return min(np.sqrt(contingency / (min(shape) - 1)), 1.0)
