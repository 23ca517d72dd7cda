"""What analyses read of synthetic rows: values, conditions, and designs of regressions."""

import numpy as np
import pandas as pd
from pandas.api.types import is_list_like

from sklearn_dpgen.schema import Categorical, Datetime
from sklearn_dpgen.tables._conditional_sampling import read_conditions

__all__ = ["check_columns", "design", "holds", "is_number", "values"]


def check_columns(sampler, names, parameter):
    """Return the names of columns as a list, checked."""
    names = [names] if isinstance(names, str) else list(names)
    unknown = [name for name in names if name not in sampler.schema]
    if unknown or not names or len(set(names)) < len(names):
        raise ValueError(f"{parameter} must name columns of the schema, each once: {names}.")
    return names


def is_number(column):
    """Return whether the values of a column are numbers, which have a mean."""
    if isinstance(column, Categorical | Datetime):
        return False
    labels = getattr(column, "labels", (0.0,))
    return all(isinstance(v, int | float) and not isinstance(v, bool) for v in labels)


def values(frame, name):
    """Return the numbers of a column; NaN for null."""
    return frame[name].to_numpy(dtype=np.float64, na_value=np.nan)


def holds(frame, sampler, conditions):
    """Return which rows fulfil conditions, as :meth:`SlicedMeasureSampler.sample` takes them."""
    read_conditions(sampler.encoder_, conditions)  # raises
    found = np.ones(len(frame), dtype=bool)
    for name, given in (conditions or {}).items():
        given = list(given) if is_list_like(given) else [given]
        column, here = frame[name], np.zeros(len(frame), dtype=bool)
        for value in given:
            if isinstance(value, pd.Interval):
                here |= _inside(column, value)
            elif pd.isna(value):
                here |= column.isna().to_numpy()
            else:
                here |= (column == value).fillna(False).to_numpy(dtype=bool)
        found &= here
    return found


def _inside(column, interval):
    left = column >= interval.left if interval.closed_left else column > interval.left
    right = column <= interval.right if interval.closed_right else column < interval.right
    return (left & right).fillna(False).to_numpy(dtype=bool)


def design(frame, sampler, features):
    """Return the matrix of a regression, the names of its columns, and which rows are complete.

    Numbers are as they are. Other columns have an indicator of each label but the first declared.
    """
    columns, names = [np.ones(len(frame))], ["intercept"]
    complete = np.ones(len(frame), dtype=bool)
    for name in features:
        column = sampler.schema[name]
        complete &= frame[name].notna().to_numpy()
        if is_number(column):
            columns.append(np.nan_to_num(values(frame, name)))
            names.append(name)
            continue
        for label in column.labels[1:]:
            columns.append((frame[name] == label).fillna(False).to_numpy(dtype=np.float64))
            names.append(f"{name}={label}")
    return np.column_stack(columns), names, complete
