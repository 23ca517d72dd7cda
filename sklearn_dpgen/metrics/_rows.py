"""Tables in which a person has several rows: distances between two of them, and prediction."""

from collections.abc import Callable, Hashable, Sequence

import numpy as np
import pandas as pd
from numpy.typing import ArrayLike
from scipy import sparse
from sklearn.base import BaseEstimator
from sklearn.utils import check_scalar

from sklearn_dpgen.exceptions import PublicValueError
from sklearn_dpgen.metrics._marginals import check_tables
from sklearn_dpgen.metrics._predictive import train_synthetic_test_real
from sklearn_dpgen.schema import Datetime, Numeric, Ordinal, Schema
from sklearn_dpgen.schema._column import CategoryColumn
from sklearn_dpgen.utils._validation import Integral

__all__ = ["PersonRows", "next_row_score", "row_distances"]

_LAGS = (1, 3)
# Sums of the same numbers in another order differ by less, relative to the largest.
_DIGITS = 10


def row_distances(
    real: pd.DataFrame,
    synthetic: pd.DataFrame,
    schema: Schema,
    *,
    person: Hashable,
    index: str | None = None,
    static: Sequence[str] = (),
    n_bins: int = 10,
) -> pd.Series:
    """Total variation distances between two tables in which a person has several rows.

    Half the l1 distance between histograms: of a row, of two rows of a person, and of what a person
    sums up to. 0 for equal frequencies, 1 for disjoint supports. Two samples of one distribution
    have a positive distance, so compare with held-out persons.

    Parameters
    ----------
    real, synthetic : DataFrame
        Long tables with a row for each row of a person, in any order, and the columns of
        ``schema``; others are ignored. They may differ in length.
    schema : Schema
        Public declaration of the columns. A category or ordinal value is a cell, and so is null.
        Numbers and dates are divided into ``n_bins`` cells at quantiles of the real rows. A value
        that is several of these quantiles is a cell of its own, and so is each real value if there
        are at most ``n_bins`` distinct ones.
    person : column name
        The key of the person, without nulls. The two tables need not share keys.
    index : str or None, default=None
        Column of the schema that orders the rows of a person: numeric, datetime or ordinal. A row
        in which it is null stands for a person without rows, as in a left join. Rows of a person
        with an equal index are ordered by their cells. None leaves out whatever needs an order.
    static : sequence of str, default=()
        Columns of the schema that are constant in a person, repeated in all rows.
    n_bins : int, default=10
        Number of cells of a number, a date, and of what is computed from a person's rows.

    Returns
    -------
    Series of float
        Mean distances. NaN if the real table has nothing to compare, 1 if only the synthetic table
        has nothing.

        - "parent-child": pairs of a static and another column, counted by rows;
        - "within row": pairs of other columns;
        - "two rows": two different rows of a person, drawn at random; pairs of a column of one and
          a column of the other, the same or another, without the index;
        - "lag 1", "lag 3": pairs of columns, as before, of a row and the first or third after it;
        - "transitions", "transitions, lag 3": of these only the pairs of a column with itself;
        - "sizes": the number of rows of a person;
        - "gap": the difference between the indices of consecutive rows;
        - "ties": absolute difference of the shares of consecutive rows with an equal index;
        - "means of a person", "sums": of each number, of the position of an ordinal value, and of
          the indicator of each category, over the rows of a person, without nulls;
        - "trajectories": pairs of the sum and the slope of least squares against the index, of each
          numeric and ordinal column.

    Raises
    ------
    PublicValueError
        A table is empty, lacks a column, or has values that the schema does not allow, or a person
        is null; or ``index`` or ``static`` are not columns of the schema of the required type.

    See Also
    --------
    marginal_total_variation : The distance for independent rows.
    next_row_score : A predictor of a person's next row.

    Notes
    -----
    "Two rows" is computed without drawing: with x the indicator of a cell of a row, the expected
    frequencies of the cells of two different rows of a person of m rows are the sum over pairs of
    rows s != t of x_s x_t' / (m (m - 1)).

    Examples
    --------
    >>> import pandas as pd
    >>> from sklearn_dpgen.metrics import row_distances
    >>> from sklearn_dpgen.schema import Categorical, Numeric, Schema
    >>> schema = Schema({"year": Numeric(0, 9, integer=True), "ill": Categorical([0, 1])})
    >>> real = pd.DataFrame({"who": [1, 1, 2, 2], "year": [0, 1, 0, 1], "ill": [0, 0, 1, 1]})
    >>> synthetic = real.assign(ill=[0, 1, 1, 0])
    >>> distances = row_distances(real, synthetic, schema, person="who", index="year")
    >>> float(distances["within row"]), float(distances["transitions"])
    (0.0, 1.0)
    """
    check_scalar(n_bins, "n_bins", Integral, min_val=1)
    static = list(static)
    _check(real, synthetic, schema, person, index, static)
    first, second = tables = [
        PersonRows(frame, schema, person, index) for frame in (real, synthetic)
    ]
    names = [name for name, column in schema.items() if not column.is_constant]
    cells = {name: _column_cells(tables, schema[name], name, n_bins=n_bins) for name in names}
    if index is not None:
        for place, table in enumerate(tables):
            table.sort([cells[name][place] for name in names])
            for name in names:
                cells[name][place] = cells[name][place][table.order]
    children = [name for name in names if name not in static]
    memory = [name for name in children if name != index]
    parents = [name for name in static if name in names]
    encoded, encoded_memory, encoded_parents = (
        _indicators([cells[name] for name in chosen]) for chosen in (children, memory, parents)
    )

    found = {}
    if parents and children:
        products = [_products(p, c) for p, c in zip(encoded_parents, encoded, strict=True)]
        found["parent-child"] = _pair_distances(products, encoded_parents, encoded).mean()
    if len(children) > 1:
        pairs = _pair_distances([_products(c, c) for c in encoded], encoded, encoded)
        found["within row"] = pairs[np.triu_indices(len(children), 1)].mean()
    if memory:
        products = [
            _two_row_products(c, table) for c, table in zip(encoded_memory, tables, strict=True)
        ]
        found["two rows"] = _pair_distances(products, encoded_memory, encoded_memory).mean()
    if memory and index is not None:
        for lag in _LAGS:
            products = [
                _products(c, c, *table.lagged(lag))
                for c, table in zip(encoded_memory, tables, strict=True)
            ]
            pairs = _pair_distances(products, encoded_memory, encoded_memory)
            found[f"lag {lag}"] = pairs.mean()
            name = "transitions" if lag == 1 else f"transitions, lag {lag}"
            found[name] = pairs.diagonal().mean()

    found["sizes"] = _value_distance(first.sizes, second.sizes, n_bins=n_bins)
    if index is not None:
        gaps = [table.gaps() for table in tables]
        found["gap"] = _value_distance(*gaps, n_bins=n_bins)
        found["ties"] = _tie_difference(*gaps)
    found |= _person_distances(tables, schema, memory, n_bins, with_slopes=index is not None)
    return pd.Series(found, name="distance", dtype=float)


def next_row_score(
    synthetic: pd.DataFrame,
    real: pd.DataFrame,
    schema: Schema,
    *,
    person: Hashable,
    index: str,
    target: str,
    estimator: BaseEstimator,
    target_transform: Callable[[pd.Series], ArrayLike] | None = None,
    scoring: str | Callable | list | dict = "roc_auc",
) -> float | dict[str, float]:
    """Return the score on real persons of a predictor of the next row, trained on synthetic ones.

    Parameters
    ----------
    synthetic, real : DataFrame
        Long tables as in `row_distances`. The real persons should be held out from the fit.
    schema : Schema
        Public declaration of the features, the target among them.
    person : column name
        The key of the person.
    index : str
        Column of the schema that orders the rows of a person.
    target : str
        The column to predict, in the next row, from all columns of this one.
    estimator : estimator
        A scikit-learn classifier or regressor that takes numbers and NaN for null, such as
        ``HistGradientBoostingClassifier()``. A category is given as its position.
    target_transform : callable or None, default=None
        Function from the target column of the next rows to labels, for instance
        ``lambda visits: visits > 2``.
    scoring : str, callable, list or dict, default="roc_auc"
        As in :func:`sklearn.metrics.check_scoring`.

    Returns
    -------
    float, or dict of float for several scorers

    Raises
    ------
    PublicValueError
        As in `row_distances`.

    See Also
    --------
    train_synthetic_test_real : The same for independent rows.
    """
    _check(real, synthetic, schema, person, index, [])
    if target not in schema:
        raise PublicValueError(f"target must be a column of the schema, got {target!r}.")
    frames = []
    for frame in (synthetic, real):
        rows = PersonRows(frame, schema, person, index)
        rows.sort([])
        start, end = rows.lagged(1)
        features = {name: rows.numbers(name, schema[name])[start] for name in schema}
        frames.append(
            pd.DataFrame(features).assign(
                **{f"next {target}": rows.frame[target].to_numpy()[rows.order][end]}
            )
        )
        if not len(start):
            raise PublicValueError("real and synthetic must have a person with two rows each.")
    return train_synthetic_test_real(
        estimator,
        *frames,
        target=f"next {target}",
        target_transform=target_transform,
        scoring=scoring,
    )


def _check(real, synthetic, schema, person, index, static):
    check_tables(real, synthetic, schema)
    for label, frame in (("real", real), ("synthetic", synthetic)):
        if person not in frame.columns or frame[person].isna().any():
            raise PublicValueError(
                f"{label} must have the column {person!r} of persons, without nulls."
            )
    unknown = [name for name in static if name not in schema]
    if unknown or person in static or index in static:
        raise PublicValueError(
            "static must be columns of the schema that are neither person nor index, got "
            f"{static!r}."
        )
    if index is not None and not isinstance(schema.get(index), Numeric | Datetime | Ordinal):
        raise PublicValueError(
            f"index must be a numeric, datetime or ordinal column of the schema, got {index!r}."
        )
    if index is not None and all(frame[index].isna().all() for frame in (real, synthetic)):
        raise PublicValueError("index must not be null in all rows.")


class PersonRows:
    """The rows of a table, by person.

    Parameters
    ----------
    frame : DataFrame
    schema : Schema
    person : column name
    index : str or None

    Attributes
    ----------
    frame : DataFrame of the rows of persons who have some
    order : ndarray of int of shape (n_rows,)
        The positions of the rows, by person and index once `sort` was called.
    person : ndarray of int of shape (n_rows,)
        The number of the person of each row, in this order.
    sizes : ndarray of int of shape (n_persons,)
        The number of rows of each person, in the order of their numbers.
    """

    def __init__(self, frame, schema, person, index):
        numbers, keys = pd.factorize(frame[person])
        if index is not None:
            has_row = frame[index].notna().to_numpy()
            frame, numbers = frame[has_row], numbers[has_row]
        self.frame = frame
        self.person = numbers
        self.order = np.arange(len(frame))
        self.sizes = np.bincount(numbers, minlength=len(keys))
        self.index = self.order if index is None else _step_values(frame[index], schema[index])

    def sort(self, cells):
        """Order rows by person and index, and equal ones by cells."""
        self.order = np.lexsort([*reversed(cells), self.index, self.person])
        self.person, self.index = self.person[self.order], self.index[self.order]

    def numbers(self, name, column):
        """Return the values of a column as numbers in the order of rows, NaN for null."""
        values = self.frame[name]
        if not isinstance(column, CategoryColumn):
            return _step_values(values, column)[self.order]
        codes = column.codes(values).astype(float)
        codes[values.isna().to_numpy()] = np.nan
        return codes[self.order]

    def lagged(self, lag):
        """Return the positions of rows, and of the rows of the same persons ``lag`` later."""
        (start,) = np.nonzero(self.person[lag:] == self.person[:-lag])
        return start, start + lag

    def gaps(self):
        """Return the differences between the indices of consecutive rows, in order of rows."""
        start, end = self.lagged(1)
        return self.index[end] - self.index[start]

    def sums(self, values):
        """Return the sum of values over the rows of each person."""
        return np.bincount(self.person, values, minlength=len(self.sizes))


def _step_values(values, column):
    """Return numbers as they are, dates and ordinal values as numbers of steps; NaN for null."""
    if isinstance(column, Ordinal):
        return column.codes(values).astype(float)
    block = column.encode(values)
    if isinstance(column, Numeric):
        numbers = column.from_unit(block[:, 0])
        if column.integer:
            numbers = np.rint(numbers)
    else:
        numbers = np.rint((block[:, 0] + 1) / 2 * column.n_steps)
    return np.where(block[:, 2] == 1, np.nan, numbers) if column.nullable else numbers


def _column_cells(tables, column, name, n_bins):
    """Return the cells of a column in both tables; null is the last."""
    values = [table.frame[name] for table in tables]
    if isinstance(column, CategoryColumn):
        return [column.codes(series) for series in values]
    return _cut(*(_step_values(series, column) for series in values), n_bins=n_bins)


def _cut(real, synthetic, *, n_bins):
    """Return the cells of numbers between quantiles of the real ones; null is the last."""
    known = [values[~np.isnan(values)] for values in (real, synthetic)]
    scale = max((np.abs(values).max() for values in known if len(values)), default=0) or 1
    real, synthetic = (np.round(values / scale, _DIGITS) for values in (real, synthetic))
    known = real[~np.isnan(real)]
    edges = points = np.unique(known)
    if len(points) > n_bins:
        levels = np.arange(1, n_bins) / n_bins
        quantiles = np.quantile(known, levels, method="inverted_cdf")
        edges, counts = np.unique(quantiles, return_counts=True)
        # A value that is several quantiles is frequent, and is not mixed with larger ones.
        points = edges[counts > 1]
    edges = np.union1d(edges, np.nextafter(points, np.inf))
    return [
        np.where(np.isnan(values), len(edges) + 1, np.searchsorted(edges, values, side="right"))
        for values in (real, synthetic)
    ]


class _Indicators:
    """The cells of several columns as indicators.

    Attributes
    ----------
    matrix : sparse array of shape (n_rows, n_cells)
        A one for each column in each row.
    columns : sparse array of shape (n_cells, n_columns)
        The column of each cell.
    """

    def __init__(self, cells, sizes):
        starts = np.concatenate([[0], np.cumsum(sizes)]).astype(int)
        n_rows, n_columns = len(cells[0]), len(cells)
        places = np.column_stack(cells) + starts[:-1]
        self.matrix = sparse.csr_array(
            (np.ones(places.size), places.ravel(), np.arange(n_rows + 1) * n_columns),
            shape=(n_rows, starts[-1]),
        )
        of = np.repeat(np.arange(n_columns), sizes)
        self.columns = sparse.csr_array(
            (np.ones(len(of)), (np.arange(len(of)), of)), shape=(len(of), n_columns)
        )


def _indicators(columns):
    """Return the indicators of both tables, of columns given as pairs of cells."""
    if not columns:
        return [None, None]
    sizes = [max(int(cells.max(initial=0)) for cells in pair) + 1 for pair in columns]
    return [_Indicators([pair[place] for pair in columns], sizes) for place in (0, 1)]


def _products(first, second, start=None, end=None):
    """Return the frequencies of all pairs of cells, of the same or of given rows; their number."""
    a, b = first.matrix, second.matrix
    if start is not None:
        a, b = a[start], b[end]
    return a.T @ b, a.shape[0]


def _two_row_products(encoded, table):
    """Return the expected frequencies of pairs of cells of two different rows of a person."""
    matrix, sizes = encoded.matrix, table.sizes
    weights = np.divide(1.0, sizes * (sizes - 1), where=sizes > 1, out=np.zeros(len(sizes)))
    n_rows = len(table.person)
    of = sparse.csr_array(
        (np.ones(n_rows), (table.person, np.arange(n_rows))), shape=(len(sizes), n_rows)
    )
    totals = of @ matrix
    both = totals.T @ (sparse.diags_array(weights) @ totals)
    same = matrix.T @ (sparse.diags_array(weights[table.person]) @ matrix)
    return both - same, np.count_nonzero(sizes > 1)


def _pair_distances(products, firsts, seconds):
    """Return the total variation for each pair of columns, from frequencies and their number."""
    (a, n_real), (b, n_synthetic) = products
    n_pairs = firsts[0].columns.shape[1], seconds[0].columns.shape[1]
    if not (n_real and n_synthetic):
        return np.full(n_pairs, 1.0 if n_real else np.nan)
    gaps = abs(a / n_real - b / n_synthetic)
    return (firsts[0].columns.T @ gaps @ seconds[0].columns).toarray() / 2


def _total_variation(real, synthetic):
    """Return the distance between the histograms of cells."""
    if not (len(real) and len(synthetic)):
        return 1.0 if len(real) else np.nan
    size = max(real.max(), synthetic.max()) + 1
    first, second = (np.bincount(x, minlength=size) / len(x) for x in (real, synthetic))
    return np.abs(first - second).sum() / 2


def _value_distance(real, synthetic, *, n_bins):
    return _total_variation(*_cut(real.astype(float), synthetic.astype(float), n_bins=n_bins))


def _tie_difference(real, synthetic):
    if not (len(real) and len(synthetic)):
        return 1.0 if len(real) else np.nan
    return abs(np.mean(real == 0) - np.mean(synthetic == 0))


def _person_distances(tables, schema, names, n_bins, *, with_slopes):
    """Return the mean distances of means, sums and trajectories of persons with rows."""
    found: dict[str, list[float]] = {"means of a person": [], "sums": [], "trajectories": []}
    for name in names:
        column = schema[name]
        if isinstance(column, Datetime):
            continue
        numbers = [table.numbers(name, column) for table in tables]
        has_order = isinstance(column, Numeric | Ordinal)
        labels = [None] if has_order else range(column.n_categories)
        means, sums = [], []
        for label in labels:
            pairs = [
                _person_sums(table, values, column, label)
                for table, values in zip(tables, numbers, strict=True)
            ]
            means.append(_value_distance(*(p[1] for p in pairs), n_bins=n_bins))
            sums.append(_value_distance(*(p[0] for p in pairs), n_bins=n_bins))
        found["means of a person"].append(float(np.mean(means)))
        found["sums"].append(float(np.mean(sums)))
        if has_order and with_slopes:
            slopes = [_slopes(table, x) for table, x in zip(tables, numbers, strict=True)]
            found["trajectories"].append(
                _joint_distance([p[0] for p in pairs], slopes, n_bins=n_bins)
            )
    return {name: np.mean(values) for name, values in found.items() if values}


def _person_sums(table, values, column, label):
    """Return the sum and the mean of a column, or of a label, over the rows of each person."""
    if label is not None:
        # The last label of a nullable column is null.
        is_null = np.isnan(values)
        is_label = (
            is_null if column.nullable and label == column.n_categories - 1 else (values == label)
        )
        values = is_label.astype(float)
    known = ~np.isnan(values)
    number = table.sums(known.astype(float))
    sums = np.where(number > 0, table.sums(np.where(known, values, 0)), np.nan)
    means = np.divide(sums, number, where=number > 0, out=np.full(len(sums), np.nan))
    has_rows = table.sizes > 0
    return sums[has_rows], means[has_rows]


def _slopes(table, values):
    """Return the slopes of least squares against the index; NaN where they are not defined."""
    known = ~np.isnan(values)
    number = np.maximum(table.sums(known.astype(float)), 1)
    x, y = (
        np.where(known, v - (table.sums(np.where(known, v, 0)) / number)[table.person], 0)
        for v in (table.index, values)
    )
    spread = table.sums(x * x)
    # The spread of equal indices is rounding.
    scale = table.sums(np.where(known, table.index**2, 0))
    is_defined = spread > 1e-12 * scale
    slopes = np.divide(
        table.sums(x * y), spread, where=is_defined, out=np.full(len(spread), np.nan)
    )
    return slopes[table.sizes > 0]


def _joint_distance(first, second, n_bins):
    """Return the distance for pairs of numbers."""
    cells, others = _cut(*first, n_bins=n_bins), _cut(*second, n_bins=n_bins)
    width = max(other.max(initial=0) for other in others) + 1
    return _total_variation(*(a * width + b for a, b in zip(cells, others, strict=True)))
