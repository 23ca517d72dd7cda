"""TableCounter: exact counts of records in tables of few columns, that add up over any parts."""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Self

import numpy as np
import pandas as pd
from numpy.typing import ArrayLike

from sklearn_dpgen.exceptions import PublicValueError
from sklearn_dpgen.preprocessing import TabularEncoder
from sklearn_dpgen.preprocessing._coder import RecordCoder
from sklearn_dpgen.preprocessing._reader import read_blocks
from sklearn_dpgen.preprocessing._sources import open_source
from sklearn_dpgen.preprocessing._tabular import check_categories
from sklearn_dpgen.schema._column import Column
from sklearn_dpgen.tables._code_counter import CodeCounter
from sklearn_dpgen.tables._count_layout import CountLayout
from sklearn_dpgen.tables._row_weights import RowWeights
from sklearn_dpgen.utils._validation import check_is_fitted

if TYPE_CHECKING:
    import pyarrow

__all__ = ["TableCounter"]


class TableCounter(CodeCounter):
    """Exact counts of records in the cells of tables of one to three columns.

    A record adds one to one cell of each table, or its weight. Counts are integers: those of parts
    of a table add up to those of the whole, bit for bit, however and wherever it was cut. So parts
    may be counted by several threads, processes or machines, and merged in any order. Counts are
    not private: they are what noise is added to.

    Parameters
    ----------
    encoder : TabularEncoder
        Fitted, with bins for all numbers and dates: it says which category a value is in.
    tables : sequence of tuple of str
        The columns of each table, one to three, in the order of its axes.
    groups : sequence of tuple of ndarray of int or None, default=None
        For each table, and each of its columns, the group of each category: an entry of the axis,
        from 0. None counts each category by itself.
    weights : RowWeights or None, default=None
        What a row adds, by the person it is of; None for 1.

    Attributes
    ----------
    n_rows : int
        How many were counted.

    Notes
    -----
    To m tables a record adds a vector of l2 norm √m: replacing one changes them by √(2m) at most.
    Whoever merges must merge the counts of each part once: see :mod:`sklearn_dpgen.engines`.

    Examples
    --------
    >>> import pandas as pd
    >>> from sklearn_dpgen.preprocessing import TabularEncoder
    >>> from sklearn_dpgen.schema import Categorical, Numeric, Schema
    >>> from sklearn_dpgen.tables import TableCounter
    >>> schema = Schema({"age": Numeric(0, 100), "smoker": Categorical(["no", "yes"])})
    >>> frame = pd.DataFrame({"age": [20, 70, 80], "smoker": ["no", "no", "yes"]})
    >>> encoder = TabularEncoder(schema, n_bins=2).fit()
    >>> first = TableCounter(encoder, [("age", "smoker")]).count(frame[:2])
    >>> second = TableCounter(encoder, [("age", "smoker")]).count(frame[2:])
    >>> first.merge(second).finish()
    array([1, 0, 1, 1])
    """

    def __init__(
        self,
        encoder: TabularEncoder,
        tables: Sequence[tuple[str, ...]],
        groups: Sequence[tuple[np.ndarray, ...]] | None = None,
        *,
        weights: RowWeights | None = None,
    ) -> None:
        check_is_fitted(encoder)
        check_categories(encoder)
        self._columns, self._weights = encoder.columns_, weights
        names = list(self._columns)
        for columns in tables:
            is_table = isinstance(columns, tuple) and 1 <= len({*columns}) == len(columns) <= 3
            if not is_table or not {*columns} <= {*names}:
                raise PublicValueError(
                    "tables must hold tuples of one to three distinct columns of the encoder, got "
                    f"{columns!r}."
                )
        sizes = [column.n_categories for column in self._columns.values()]
        places = [tuple(map(names.index, columns)) for columns in tables]
        self._coder = RecordCoder(self._columns)
        super().__init__(
            CountLayout(sizes, places, groups), 0 if weights is None else weights.n_persons
        )

    def count(self, X: ArrayLike) -> Self:
        """Count the records of a table.

        Parameters
        ----------
        X : data frame, array-like, Arrow stream, files or other table
            As of :meth:`TableSampler.fit`, but for tables of dask, Spark and Ray.

        Returns
        -------
        self

        Raises
        ------
        ValueError
            Records that do not fit the schema. Nothing of the block of at most 65536 records that
            they are in is counted then; what came before it is.
        """
        for block in read_blocks(open_source(X, self.columns), self.names):
            self.count_block(block)
        return self

    @property
    def columns(self) -> dict[str, Column | None]:
        """The columns that are read: of the encoder, and None for that of the unit."""
        unit = {} if self._weights is None else {self._weights.unit: None}
        return self._columns | unit

    @property
    def names(self) -> list[str]:
        """The names of the columns that are read."""
        return list(self.columns)

    def count_block(self, block: "pd.DataFrame | pyarrow.RecordBatch") -> Self:
        """Count a block of records with the columns ``names``, a frame of pandas or Arrow."""
        codes = self._coder.codes(block)
        if self._weights is None:
            return self.count_codes(codes)
        persons = self._weights.persons(block)
        np.add.at(self.rows_seen, persons, 1)
        return self.count_codes(codes, self._weights.values[persons])

    def merge(self, other: Self) -> Self:
        """Add what another counter of the same tables has counted.

        Parameters
        ----------
        other : TableCounter

        Returns
        -------
        self

        Raises
        ------
        ValueError
            A counter of other tables, or itself: records would count twice.
        """
        if other is self or not isinstance(other, TableCounter) or not self._is_like(other):
            raise PublicValueError("merge takes a counter of the same tables, and not itself.")
        return self.add_state(other.state())

    def _is_like(self, other):
        """Return whether another counts the same, by the same columns and weights."""
        mine, theirs = self._weights, other._weights
        is_like = mine is theirs or (mine and theirs and mine.is_like(theirs))
        is_like = is_like and self._columns == other._columns
        return is_like and self._layout.is_like(other._layout)

    def finish(self) -> np.ndarray:
        """Return the counts of all tables, one after another, as one vector of int64."""
        return np.concatenate([table.ravel() for table in self.tables()])
