"""Conditions on the values of columns, for mixtures of independent columns."""

from collections.abc import Mapping

import numpy as np
import pandas as pd
from pandas.api.types import is_float_dtype, is_list_like

from sklearn_dpgen.evolution._marginals import ProductMixture
from sklearn_dpgen.schema import Datetime
from sklearn_dpgen.schema._binned import Binned

__all__ = ["condition_values", "draw_equal", "restrict_rows"]

# A condition of smaller probability is impossible.
_RARE = 1e-9


def restrict_rows(law, allowed):
    """Return the law of the records whose categories are among those allowed.

    Parameters
    ----------
    law : ProductMixture
    allowed : sequence of (slice, array-like of int)
        The features of a block, and the categories that are allowed in it.

    Returns
    -------
    ProductMixture or None
        Rows weighted by their probabilities of the condition, with the other categories taken out;
        None where fewer than one in a billion records fulfil it.
    """
    shares, probabilities = law.shares, law.probabilities.copy()
    for part, codes in allowed:
        is_allowed = np.zeros(part.stop - part.start)
        is_allowed[codes] = 1
        block = probabilities[:, part] * is_allowed
        sums = block.sum(axis=1, keepdims=True)
        # A row that cannot fulfil it has weight 0, whatever it holds.
        uniform = is_allowed / is_allowed.sum()
        probabilities[:, part] = np.divide(block, sums, where=sums > 0, out=uniform + 0 * block)
        shares = shares * sums[:, 0]
    total = shares.sum()
    return None if total < _RARE else ProductMixture(law.domain, shares / total, probabilities)


def condition_values(encoder, conditions):
    """Return what conditions on columns mean for encoded records.

    Parameters
    ----------
    encoder : TabularEncoder
        Fitted, with bins for numbers and dates.
    conditions : mapping of str to value or list, or None

    Returns
    -------
    dict of str to (ndarray of int, Series)
        Of each named column, the category or bin of each value, and the values as records hold
        them.

    Raises
    ------
    ValueError
        Columns that the schema does not have, values that it does not declare, or none at all.
    """
    if not isinstance(conditions, Mapping | None):
        raise ValueError("conditions must map columns to values.")
    found = {}
    for name, values in (conditions or {}).items():
        if name not in encoder.columns_:
            raise ValueError(f"conditions name a column that the schema does not: {name!r}.")
        values = list(values) if is_list_like(values) else [values]
        if not values:
            raise ValueError(f"conditions on {name!r} are impossible: no value is listed.")
        column, given = encoder.columns_[name], pd.Series(values, name=name, dtype=object)
        codes = column.encode(given).argmax(axis=1)
        declared = column.column if isinstance(column, Binned) else column
        decoded = declared.decode(declared.encode(given), dtype=encoder.dtypes_[name], name=name)
        if isinstance(column, Binned):
            # Encoding clips to the bounds, and decoding rounds to the grid.
            both = [_units(declared, series) for series in (given, decoded)]
            if not np.allclose(*both, rtol=0, atol=1e-9, equal_nan=True):
                raise ValueError(f"conditions on {name!r} hold a value outside those declared.")
            if declared.n_steps is None and is_float_dtype(decoded.dtype):
                decoded = given.astype(decoded.dtype)  # to the last bit
        found[name] = codes, decoded
    return found


def draw_equal(codes, drawn, rng):
    """Return, for each of the drawn codes, a random position at which codes holds it."""
    order = np.argsort(codes, kind="stable")
    first, stop = (np.searchsorted(codes[order], drawn, side=side) for side in ("left", "right"))
    return order[first + np.floor(rng.uniform(size=len(drawn)) * (stop - first)).astype(np.int64)]


def _units(column, series):
    """Return values on the scale of a column, neither clipped nor rounded."""
    if isinstance(column, Datetime):
        return column.to_unit(pd.to_datetime(series, utc=True).dt.tz_localize(None).to_numpy())
    return column.to_unit(series.to_numpy(dtype=np.float64, na_value=np.nan))
