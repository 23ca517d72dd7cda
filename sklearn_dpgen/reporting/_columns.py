"""Reading of tables, and comparisons of their single columns and pairs."""

import datetime
import math
from collections.abc import Mapping

import numpy as np
import pandas as pd
from pandas.api import types
from sklearn.utils import check_random_state

from sklearn_dpgen.exceptions import PublicTypeError, PublicValueError
from sklearn_dpgen.metrics import sliced_wasserstein_distance
from sklearn_dpgen.schema import Categorical, Datetime, Numeric, Ordinal, Schema
from sklearn_dpgen.schema._column import MadeUpColumn
from sklearn_dpgen.utils._frames import as_pandas
from sklearn_dpgen.utils._html import clean

__all__ = [
    "as_series",
    "cell_codes",
    "check_table",
    "column_shares",
    "compared",
    "column_type",
    "measure_column",
    "measure_sample",
    "most_frequent",
    "observed_schema",
    "pair_shares",
    "read_table",
    "subsample",
    "value_words",
    "words_of",
]

# A text column with more distinct values holds names or free text.
_MOST_LABELS = 1000
_SECOND = datetime.timedelta(seconds=1)


def read_table(X, label):
    """Return a pandas data frame whose column names are strings, or raise TypeError."""
    frame = as_pandas(X)
    if not isinstance(frame, pd.DataFrame):
        raise PublicTypeError(f"{label} must be a data frame, got {type(X).__name__}.")
    if not frame.columns.is_unique:
        raise PublicValueError(f"{label} must have distinct column names.")
    return frame.set_axis([str(name) for name in frame.columns], axis=1)


def observed_schema(real, synthetic):
    """Infer a schema from two tables; it reveals their values, and is not private.

    Parameters
    ----------
    real, synthetic : DataFrame

    Returns
    -------
    schema : Schema or None
        The common columns that vary; None if there is none.
    left_out : list of str
        Columns of free text, or of a single value.
    """
    columns, left_out = {}, []
    for name in real.columns:
        if name not in synthetic.columns:
            continue
        column = _observed_column(real[name], synthetic[name])
        if column is None or column.is_constant:
            left_out.append(name)
        else:
            columns[name] = column
    return Schema(columns) if columns else None, left_out


def _observed_column(first, second):
    """Return the declaration of all values, or None for free text and for a column of nulls."""
    nullable = bool(first.isna().any() or second.isna().any())
    known = [values.dropna() for values in (first, second)]
    column_types = [
        "date" if types.is_datetime64_any_dtype(dtype)
        else "number" if types.is_numeric_dtype(dtype) and not types.is_bool_dtype(dtype)
        else "label"
        for dtype in (first.dtype, second.dtype)
    ]  # fmt: skip
    if column_types[0] == column_types[1] != "label" and any(map(len, known)):
        low, high = (f(f(values) for values in known if len(values)) for f in (min, max))
        if low < high and column_types[0] == "number" and math.isfinite(float(high) - float(low)):
            is_integer = all(_are_integers(values) for values in known)
            ends = (int(low), int(high)) if is_integer else (float(low), float(high))
            return Numeric(*ends, integer=is_integer, nullable=nullable)
        if low < high and column_types[0] == "date":
            ends = pd.Timestamp(low).floor("s"), pd.Timestamp(high).floor("s") + _SECOND
            return Datetime(*ends, nullable=nullable)
    labels = pd.unique(pd.concat([values.astype(object) for values in known], ignore_index=True))
    labels = [v.item() if isinstance(v, np.generic) else v for v in labels]
    if not 0 < len(labels) <= _MOST_LABELS:
        return None
    if not all(type(v) in (bool, int, float, str) and _is_finite(v) for v in labels):
        return None
    ordered = sorted(labels, key=lambda v: (type(v).__name__, v))
    return Categorical(ordered, nullable=nullable)


def _are_integers(values):
    numbers = values.to_numpy(dtype=np.float64)
    return bool((numbers == np.rint(numbers)).all() and (np.abs(numbers) < 2**53).all())


def _is_finite(value):
    return not isinstance(value, float) or math.isfinite(value)


def compared(schema):
    """Return the schema of the columns that are neither keys nor constants."""
    kept = {
        name: column
        for name, column in schema.items()
        if not isinstance(column, MadeUpColumn) and not column.is_constant
    }
    return Schema(kept)


def subsample(frame, most, random_state):
    """Return at most ``most`` rows in random order, so that the first of them are a sample too."""
    rows = check_random_state(random_state).permutation(len(frame))[:most]
    return frame.iloc[rows].reset_index(drop=True)


def check_table(frame, schema, label):
    """Raise ValueError if values do not fit the schema; the message contains no value."""
    missing = [name for name in schema if name not in frame.columns]
    if missing:
        raise PublicValueError(f"{label} lacks columns of the schema: {missing}.")
    if len(frame) == 0:
        raise PublicValueError(f"{label} has no rows.")
    faults = schema.check(frame)[["undeclared", "null", "unreadable"]]
    for name, row in faults[faults.sum(axis=1) > 0].iterrows():
        names = " and ".join(fault for fault, count in row.items() if count)
        raise PublicValueError(
            f"{label} does not fit the schema: column {name!r} has {names} values."
        )


def column_type(column):
    """Return the type of a column: "number", "date", "ordered" or "label"."""
    names: Mapping = {Numeric: "number", Datetime: "date", Ordinal: "ordered", Categorical: "label"}
    return names.get(type(column), "label")


# Bins of a figure, distinct values that have a bin each, and labels with bars.
_BINS, _DISTINCT, _LABELS = 24, 30, 10
_TAILS = (0.005, 0.995)
_QUANTILES = (0.01, 0.05, 0.5, 0.95, 0.99)
# Shares from which a value is a point mass, and below which a label is rare.
_POINT_MASS, _RARE, _FEW = 0.02, 0.01, 5


def value_words(column, units):
    """Format encoded numbers or dates.

    Parameters
    ----------
    column : Numeric or Datetime
    units : array-like of shape (k,)
        Encoded values, in [-1, 1].

    Returns
    -------
    list of str
    """
    units = np.asarray(units, dtype=np.float64)
    block = np.zeros((len(units), column.domain.n_features))
    block[:, 0] = units
    if column.nullable:
        block[:, 1] = 1
    return words_of(column.decode(block))


def words_of(values):
    """Format a series of numbers or dates without nulls."""
    if pd.api.types.is_datetime64_any_dtype(values.dtype):
        # Days are enough where no two times are of the same one.
        is_day = values.dt.normalize().nunique() == values.nunique()
        return [str(v.date() if is_day else v.strftime("%Y-%m-%d %H:%M")) for v in values]
    return [_number(v) for v in values.tolist()]


def _number(value):
    if 1000 <= abs(value) < 1e7:
        value = round(value)
    if float(value).is_integer() and abs(value) < 1e7:
        return f"{int(value):,}" if abs(value) >= 10_000 else str(int(value))
    return f"{value:.3g}"


def unit_values(column, values):
    """Return encoded numbers or dates in [-1, 1], NaN for null."""
    block = column.encode(values)
    return np.where(block[:, 2] == 1, np.nan, block[:, 0]) if column.nullable else block[:, 0]


def column_shares(first, second, column):
    """Return the shares of two series in bins or labels that make a readable figure.

    Parameters
    ----------
    first, second : Series
        Both choose the bins, so the result reveals their values.
    column : Column

    Returns
    -------
    dict
        ``"chart"``: "histogram" for ordered bins, or "labels"; ``"labels"``, their names; and
        ``"real"`` and ``"synthetic"``, ndarrays of shares.
    """
    if isinstance(column, Numeric | Datetime):
        return _number_shares(unit_values(column, first), unit_values(column, second), column)
    return _label_shares(column.codes(first), column.codes(second), column)


def pair_shares(real, synthetic, schema):
    """Return the joint shares of two columns of two tables, and the names of the cells.

    Parameters
    ----------
    real, synthetic : DataFrame
    schema : Schema
        The declaration of the two columns.

    Returns
    -------
    real, synthetic : ndarray of shape (k, l)
    labels : list of two lists of str
    """
    indices, labels = [], []
    for name, column in schema.items():
        first, second = real[name], synthetic[name]
        if isinstance(column, Numeric | Datetime):
            units = np.concatenate([unit_values(column, values) for values in (first, second)])
            words, starts = _known_cells(units, column)
            codes = _bin_indices(units, starts)
            words = [*words, "null"]
        else:
            codes = np.concatenate([column.codes(values) for values in (first, second)])
            words = _words(column)
        used, codes = np.unique(codes, return_inverse=True)
        indices.append(codes)
        labels.append([words[i] for i in used])
    shape = tuple(map(len, labels))
    cells, n = np.ravel_multi_index(indices, shape), len(real)
    tables = [np.bincount(rows, minlength=shape[0] * shape[1]) for rows in (cells[:n], cells[n:])]
    return *(table.reshape(shape) / table.sum() for table in tables), labels


def cell_codes(values, column):
    """Return the cell of each value of a column of several tables, and the names of the cells.

    Parameters
    ----------
    values : list of Series
        All choose the bins, so the result reveals their values.
    column : Column

    Returns
    -------
    codes : list of ndarray of int
        Of numbers, dates and ordered labels in their order, then null. Of other labels the ten most
        frequent ones, then the others.
    labels : list of str
        The cells that occur.
    """
    if isinstance(column, Numeric | Datetime):
        units = np.concatenate([unit_values(column, series) for series in values])
        labels, starts = _known_cells(units, column)
        codes, labels = _bin_indices(units, starts), [*labels, "null"]
    else:
        codes = np.concatenate([column.codes(series) for series in values])
        labels = _words(column)
    used, codes, counts = np.unique(codes, return_inverse=True, return_counts=True)
    labels = [labels[i] for i in used]
    if column_type(column) == "label" and len(used) > _LABELS + 1:
        ranks = np.argsort(np.argsort(-counts, kind="stable"))
        kept = np.flatnonzero(ranks < _LABELS)
        places = np.full(len(used), _LABELS)
        places[kept] = np.arange(_LABELS)
        codes = places[codes]
        labels = [*(labels[i] for i in kept), f"{len(used) - _LABELS} others"]
    return np.split(codes, np.cumsum([len(series) for series in values])[:-1]), labels


def _words(column):
    k = column.n_categories
    return [*map(clean, getattr(column, "labels", range(k))), "null"][:k]


def _label_shares(first, second, column):
    k = column.n_categories
    real, synthetic = (np.bincount(c, minlength=k) / max(len(c), 1) for c in (first, second))
    words = _words(column)
    if column_type(column) == "ordered" and k <= _BINS:
        return {"chart": "labels", "labels": words, "real": real, "synthetic": synthetic}
    labels, real, synthetic = most_frequent(words, real, synthetic)
    return {"chart": "labels", "labels": labels, "real": real, "synthetic": synthetic}


def most_frequent(labels, *shares):
    """Return the labels with the largest shares, and the sum of the others.

    Parameters
    ----------
    labels : list of str of length k
    *shares : ndarray of shape (k,)

    Returns
    -------
    labels : list of str
        Ten labels, and one for the others if there are more.
    *shares : ndarray
    """
    order = np.argsort(-np.sum(shares, axis=0), kind="stable")
    n = len(order) if len(order) <= _LABELS + 1 else _LABELS
    top, rest = order[:n], order[n:]
    selected = [values[top] for values in shares]
    labels = [labels[i] for i in top]
    if len(rest):
        labels.append(f"{len(rest)} others")
        selected = [np.append(a, b[rest].sum()) for a, b in zip(selected, shares, strict=True)]
    return labels, *selected


def _number_shares(first, second, column):
    labels, starts = _known_cells(np.concatenate([first, second]), column)
    real, synthetic = (
        np.bincount(_bin_indices(units, starts), minlength=len(starts) + 1) / max(len(units), 1)
        for units in (first, second)
    )
    if real[-1] == synthetic[-1] == 0:
        real, synthetic = real[:-1], synthetic[:-1]
    else:
        labels = [*labels, "null"]
    return {"chart": "histogram", "labels": labels, "real": real, "synthetic": synthetic}


def _bin_indices(units, starts):
    """Return the bin of each encoded value; null has the bin after the last."""
    indices = np.clip(np.searchsorted(starts, units, side="right") - 1, 0, None)
    indices[np.isnan(units)] = len(starts)
    return indices


def _known_cells(units, column):
    """Return the names of bins and their encoded lower ends."""
    known = units[~np.isnan(units)]
    return _cells(known, column) if len(known) else ([], np.zeros(0))


def _cells(known, column):
    distinct = np.unique(known)
    if len(distinct) <= _DISTINCT:
        return value_words(column, distinct), distinct
    low, high = np.quantile(known, _TAILS, method="inverted_cdf")
    if not low < high:
        low, high = distinct[0], distinct[-1]
    if column.n_steps is None:
        starts = np.linspace(low, high, _BINS, endpoint=False)
    else:
        first, last = (round((end + 1) / 2 * column.n_steps) for end in (low, high))
        width = -(-(last - first + 1) // _BINS)
        # Half a step below the value, so that rounding moves no value to the bin before.
        starts = 2 * (np.arange(first, last + 1, width) - 0.5) / column.n_steps - 1
        return value_words(column, starts + 1 / column.n_steps), starts
    return value_words(column, starts), starts


def measure_sample(series, column):
    """Return the shares of one column of samples, as in :func:`column_shares`."""
    shares = column_shares(series, series, column)
    del shares["real"]
    return shares


def measure_column(first, second, column):
    """Compare one column of the real and of the synthetic table.

    Parameters
    ----------
    first, second : Series
    column : Column

    Returns
    -------
    dict
        The result of :func:`column_shares`. For numbers and dates also ``"quantiles"`` and
        ``"point_masses"``, lists of (name, real, synthetic), and ``"wasserstein"``, in standard
        deviations of the real column; for labels ``"rare"``.
    """
    measures = {"kind": column_type(column)} | column_shares(first, second, column)
    if not isinstance(column, Numeric | Datetime):
        return measures | {"rare": _rare(column.codes(first), column.codes(second), column)}
    units, others = (unit_values(column, values) for values in (first, second))
    units, others = (known[~np.isnan(known)] for known in (units, others))
    if not len(units) or not len(others):
        return measures
    quantiles = [np.quantile(known, _QUANTILES, method="inverted_cdf") for known in (units, others)]
    words = [value_words(column, values) for values in quantiles]
    measures["quantiles"] = list(zip(map(_percent, _QUANTILES), *words, strict=True))
    measures["point_masses"] = _point_masses(units, others, column)
    distance = sliced_wasserstein_distance(
        units[:, None], others[:, None], p=1, n_projections=1, random_state=0
    )
    spread = units.std()
    measures["wasserstein"] = distance / spread if spread > 0 else float(distance > 0)
    return measures


def _percent(share):
    return f"{100 * share:g}%"


def _point_masses(units, others, column):
    """Return the values with many records, unless each value has a bin of its own."""
    values, counts = np.unique(units, return_counts=True)
    if len(np.union1d(values, others)) <= _DISTINCT:
        return []
    order = np.argsort(-counts, kind="stable")[:_FEW]
    order = order[counts[order] >= _POINT_MASS * len(units)]
    # Equal up to the rounding of the encoding.
    shares = [np.isclose(others, values[i], rtol=0, atol=1e-9).mean() for i in order]
    words = value_words(column, values[order]) if len(order) else []
    rows = zip(words, counts[order] / len(units), shares, strict=True)
    return [(word, float(real), float(synthetic)) for word, real, synthetic in rows]


def _rare(codes, others, column):
    """Return the shares of the labels that are rare in the real table."""
    k = column.n_categories
    real, synthetic = (np.bincount(c, minlength=k) / max(len(c), 1) for c in (codes, others))
    (rare,) = np.nonzero((real > 0) & (real < _RARE))
    return {
        "n": len(rare),
        "real": float(real[rare].sum()),
        "synthetic": float(synthetic[rare].sum()),
        "lost": int((synthetic[rare] == 0).sum()),
    }


def as_series(frame: pd.DataFrame, name: str) -> pd.Series:
    """Return one column of a frame, or raise ValueError if there is none."""
    if name not in frame.columns:
        raise PublicValueError(f"column must be a column of both tables, got {name!r}.")
    return frame[name]
