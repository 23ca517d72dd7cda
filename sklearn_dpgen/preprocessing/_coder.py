"""Encoding of blocks of records as categories, from Arrow without Python objects, or pandas."""

import math
from functools import cached_property

import numpy as np
import pandas as pd

from sklearn_dpgen.exceptions import PublicValueError
from sklearn_dpgen.schema import Datetime, Numeric
from sklearn_dpgen.schema._binned import Binned
from sklearn_dpgen.schema._column import MadeUpColumn
from sklearn_dpgen.utils._checks import call_quietly

__all__ = ["RecordCoder"]

# Largest range of integers that is coded by a look-up table.
_SPAN = 1 << 18
_DAY = np.timedelta64(1, "D")
_EPOCH = np.datetime64("1970-01-01", "D")


class RecordCoder:
    """Encoder of records as one category per column.

    Each record gets exactly one category in each column, independently of other records and of the
    type and library that hold it, or is refused.

    Parameters
    ----------
    columns : mapping of str to CategoryColumn
        Numeric and datetime columns have bins.
    """

    def __init__(self, columns):
        self._coders = [_ColumnCoder(name, column) for name, column in columns.items()]
        self.sizes = [column.n_categories for column in columns.values()]

    @property
    def dtypes(self):
        """The smallest unsigned dtype that holds all categories, for each column."""
        return [coder.dtype for coder in self._coders]

    def codes(self, block):
        """Return the category of each record in each column.

        Parameters
        ----------
        block : DataFrame or pyarrow.RecordBatch
            Has the columns, in their order, possibly followed by others.

        Returns
        -------
        list of ndarray of shape (n,)
            With ``dtypes``.

        Raises
        ------
        PublicValueError
            A column has nulls without being nullable, or a value that is not declared; the message
            does not show the value.
        """
        if isinstance(block, pd.DataFrame):
            parts = [block.iloc[:, place] for place in range(len(self._coders))]
        else:
            parts = block.columns[: len(self._coders)]
        return [coder.codes(part) for coder, part in zip(self._coders, parts, strict=True)]


class _ColumnCoder:
    """Encoder of the values of one column as categories."""

    def __init__(self, name, column):
        self._name, self._column = name, column
        self.dtype = np.min_scalar_type(column.n_categories - 1)
        self._last = None

    def __getstate__(self):
        # Look-up tables are cheap to rebuild, and may hold values.
        return {key: vars(self)[key] for key in ("_name", "_column", "dtype")} | {"_last": None}

    def codes(self, values):
        """Return the categories of a pandas series or an Arrow array."""
        if isinstance(self._column, MadeUpColumn):
            # The values of a constant column are not read.
            return np.zeros(len(values), dtype=self.dtype)
        return self._of_series(values) if isinstance(values, pd.Series) else self._of_arrow(values)

    def _of_series(self, series):
        kind = series.dtype
        if isinstance(kind, np.dtype) and kind.kind in "iu":
            return self._of_integers(series.to_numpy(), None, self._integers)
        if isinstance(kind, np.dtype) and kind.kind == "b":
            return self._of_integers(series.to_numpy().view(np.uint8), None, self._booleans)
        return self._codes(series)

    def _of_arrow(self, array):
        import pyarrow

        types, kind = pyarrow.types, array.type
        texts = (types.is_string, types.is_large_string, types.is_string_view)
        if any(is_of(kind) for is_of in texts):
            array = call_quietly(self._message, array.dictionary_encode)
        if types.is_dictionary(array.type):
            return self._of_dictionary(array)
        table = self._table_of(kind)
        if table is not None or types.is_integer(kind):
            if not types.is_integer(kind):
                array = array.cast(pyarrow.uint8() if types.is_boolean(kind) else pyarrow.int32())
            null = array.is_null().to_numpy(zero_copy_only=False) if array.null_count else None
            return self._of_integers(array.fill_null(0).to_numpy(zero_copy_only=False), null, table)
        if types.is_floating(kind) or types.is_timestamp(kind):
            return self._codes(self._series(array.to_numpy(zero_copy_only=False)))
        return self._codes(self._frame(array)[self._name])

    def _table_of(self, kind):
        """Return the look-up table of an Arrow type, or None if there is none."""
        from pyarrow import types

        if types.is_integer(kind):
            return self._integers
        if types.is_boolean(kind):
            return self._booleans
        return self._dates if types.is_date32(kind) else None

    @property
    def _message(self):
        return (
            f"Column {self._name!r} holds a value that is invalid for its Arrow type, such as a "
            "text that is not UTF-8."
        )

    def _codes(self, series):
        column = self._column
        return column._codes(*column._checked(series)).astype(self.dtype, copy=False)

    def _series(self, values):
        return pd.Series(values, name=self._name, copy=False)

    def _frame(self, array):
        import pyarrow

        from sklearn_dpgen.preprocessing._reader import to_pandas

        return to_pandas(pyarrow.RecordBatch.from_arrays([array], names=[self._name]))

    def _of_integers(self, values, null, table):
        if table is None or (values.dtype.kind == "u" and values.dtype.itemsize == 8):
            values = values if null is None else pd.arrays.IntegerArray(values, null)
            return self._codes(self._series(values))
        lowest, codes = table
        # The last entry is for nulls, the outer ones are for all values beyond them.
        places = np.clip(values.astype(np.int64, copy=False), lowest, lowest + len(codes) - 2)
        places -= lowest
        if null is not None:
            places[null] = len(codes) - 1
        return self._checked(codes.take(places))

    def _of_dictionary(self, array):
        dictionary = array.dictionary
        last = self._last
        if last is None or not last[0].equals(dictionary):
            values = self._frame(dictionary)[self._name] if len(dictionary) else pd.Series([None])
            last = self._last = dictionary, self._codes_or_faults(values)
        places = array.indices.fill_null(0).to_numpy(zero_copy_only=False)
        if array.indices.null_count:
            # The index of nulls may exceed the dtype of the others.
            null = array.indices.is_null().to_numpy(zero_copy_only=False)
            places = np.where(null, np.int64(len(last[1]) - 1), places)
        return self._checked(last[1].take(places))

    def _checked(self, codes):
        """Return categories, or raise an error for the fault that they mark."""
        n, most = self._column.n_categories, codes.max(initial=0)
        if most < n:
            return codes.astype(self.dtype, copy=False)
        if most > n:
            raise PublicValueError(f"Column {self._name!r} has missing values but is not nullable.")
        raise PublicValueError(f"Column {self._name!r} {self._column._rule}")

    def _codes_or_faults(self, series):
        """Return the categories of values, then of a null; faults and nulls are larger."""
        n = self._column.n_categories
        series = call_quietly(self._message, series.astype, object)
        series = pd.concat([series, pd.Series([None], dtype=object)])
        values, bad, null = self._column._read_quietly(series.rename(self._name))
        codes = np.asarray(self._column._codes(values, null)).astype(np.int64)
        codes[bad] = n
        if not self._column.nullable:
            codes[null] = n + 1
        return codes.astype(self.dtype if codes.max() < n else np.min_scalar_type(n + 1))

    @cached_property
    def _integers(self):
        """Return the lowest of a range of integers, and the category of each.

        The outer entries are for all values beyond them. None if the range is too long.
        """
        column = self._column
        # A code of a missing value may be beyond all others.
        if column.missing:
            return None
        if isinstance(column, Binned):
            ends = column.column._bounds if isinstance(column.column, Numeric) else None
        else:
            is_number = all(type(label) in (int, float) for label in column.labels)
            ends = (min(column.labels), max(column.labels)) if is_number else None
        if ends is None or not -(2**52) < ends[0] <= ends[1] < 2**52 or ends[1] - ends[0] > _SPAN:
            return None
        lowest = math.floor(ends[0]) - 1
        values = np.arange(lowest, math.ceil(ends[1]) + 2)
        return lowest, self._codes_or_faults(pd.Series(values))

    @cached_property
    def _booleans(self):
        """Return the same as ``_integers``, with 0 and 1 for False and True."""
        return 0, self._codes_or_faults(pd.Series([False, True]))

    @cached_property
    def _dates(self):
        """Return the same as ``_integers``, for days since 1970."""
        column = self._column.column if isinstance(self._column, Binned) else None
        if not isinstance(column, Datetime) or column.missing:
            return None
        ends = np.array([column.low, column.high], dtype="datetime64[D]")
        if (ends[1] - ends[0]) / _DAY > _SPAN:
            return None
        days = np.arange(ends[0] - _DAY, ends[1] + 2 * _DAY)
        codes = self._codes_or_faults(pd.Series(days.astype("datetime64[us]")))
        return int((days[0] - _EPOCH) / _DAY), codes
