"""Rows of persons in a table: which of them are counted, and how much each."""

import numpy as np
import pandas as pd

from sklearn_dpgen.budget._unit import Persons
from sklearn_dpgen.preprocessing._reader import column_names, has_no_names

__all__ = ["counted_rows", "fit_columns"]

# Weights are multiples of 1 over it, rounded down: their sums are exact in doubles up to 2^27
# persons, and no person weighs more than 1.
_STEPS = 1 << 26


def counted_rows(columns, persons, unit_weights, max_rows, noise):
    """Return the rows that are counted, and what each weighs.

    Parameters
    ----------
    columns : list of ndarray of shape (n_rows,)
    persons : Persons or None
        None counts every row once.
    unit_weights : {"equal", "rows"}
        Whether the rows of a person weigh 1 together, or each.
    max_rows : int or None
        So many rows of a person are drawn at most.
    noise : NoiseSource
        The draw is secret, and made once: draws anew for several passes would show more rows.

    Returns
    -------
    columns : list of ndarray
    weights : ndarray of float64 or None
        None for 1 each. A person weighs 1 at most, or ``max_rows``.
    """
    if persons is None:
        return columns, None
    if max_rows is not None:
        rows = persons.limited(max_rows, noise)
        columns, persons = [part[rows] for part in columns], Persons(persons.codes[rows])
    if unit_weights == "rows":
        return columns, None
    return columns, np.floor(persons.shares * _STEPS) / _STEPS


def fit_columns(encoder, X, unit):
    """Fit an encoder to the columns of a source, without that of the unit.

    Parameters
    ----------
    encoder : TabularEncoder
    X : as for :func:`~sklearn_dpgen.preprocessing._reader.map_frames`
    unit : str or None

    Raises
    ------
    TypeError
        Rows without names of columns.
    ValueError
        No such column.
    """
    if unit is None:
        return encoder.fit(X)
    if has_no_names(X):
        raise TypeError(f"unit={unit!r} names a column: X must be a data frame.")
    if isinstance(X, pd.DataFrame) and unit not in X.columns:
        raise ValueError(f"X lacks the column {unit!r} that unit names.")
    names = [name for name in column_names(X, [*encoder.schema, unit]) if name != unit]
    return encoder.fit(pd.DataFrame([[0] * len(names)], columns=names))
