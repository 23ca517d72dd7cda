"""What analyses read of synthetic rows: values, conditions, and designs of regressions."""

from collections.abc import Hashable

import numpy as np
from pandas.api.types import is_list_like
from sklearn.utils import check_scalar

from sklearn_dpgen.tables import TableSampler
from sklearn_dpgen.tables._table_rules import is_number
from sklearn_dpgen.tables._value_sets import ValueSet
from sklearn_dpgen.utils._validation import Real, check_is_fitted

__all__ = ["check_columns", "check_level", "check_sampler", "design", "holds", "values"]


def check_sampler(sampler):
    """Check that a sampler is one that tells what it released."""
    if not isinstance(sampler, TableSampler):
        raise TypeError(f"sampler must be a TableSampler, not {type(sampler).__name__}.")
    check_is_fitted(sampler)


def check_columns(sampler, names, parameter):
    """Return the names of columns as a list, checked."""
    found = list(names) if is_list_like(names) else [names]
    known = [name for name in found if isinstance(name, Hashable) and name in sampler.schema]
    if not found or len(set(known)) < len(found):
        raise ValueError(f"{parameter} must name columns of the schema, each once: {found}.")
    return found


def check_level(confidence_level):
    """Check the level of intervals."""
    check_scalar(
        confidence_level,
        "confidence_level",
        Real,
        min_val=0,
        max_val=1,
        include_boundaries="neither",
    )


def values(frame, name):
    """Return the numbers of a column; NaN for null."""
    return frame[name].to_numpy(dtype=np.float64, na_value=np.nan)


def holds(frame, sampler, conditions):
    """Return which rows fulfil conditions, as :meth:`TableSampler.sample` takes them."""
    found = np.ones(len(frame), dtype=bool)
    for name, given in (conditions or {}).items():
        found &= ValueSet.read(sampler.encoder_, name, given).holds(frame[name])
    return found


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
