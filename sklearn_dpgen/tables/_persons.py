"""The columns of a table of persons."""

import pandas as pd

from sklearn_dpgen.exceptions import PublicError, PublicTypeError, PublicValueError
from sklearn_dpgen.preprocessing._reader import column_names, has_no_names

__all__ = ["fit_columns"]


_LABELS_APART = (
    "y was given and is not read: a label is a column of X, by its name in the schema. "
    "SyntheticDataClassifier and SyntheticDataRegressor take it as y."
)


def fit_columns(encoder, X, unit, y=None):
    """Fit an encoder to the columns of a source, without a unit that the schema lacks.

    Parameters
    ----------
    encoder : TabularEncoder
    X : as for :func:`~sklearn_dpgen.preprocessing._reader.map_frames`
    unit : str or None
    y : object
        Labels that somebody took for a part of the records; they are not read.

    Raises
    ------
    TypeError
        Rows without names of columns.
    ValueError
        No such column, or columns that are not those of the schema.
    """
    try:
        return _fit_columns(encoder, X, unit)
    except PublicError as error:
        if y is None:
            raise
        message = f"{error} {_LABELS_APART}"
    raise PublicValueError(message)


def _fit_columns(encoder, X, unit):
    if unit is None:
        return encoder.fit(X)
    if has_no_names(X):
        raise PublicTypeError(f"unit={unit!r} names a column: X must be a data frame.")
    given = column_names(X, list(encoder.schema), unit)
    names = [name for name in given if name != unit or unit in encoder.schema]
    return encoder.fit(pd.DataFrame([[0] * len(names)], columns=names))
