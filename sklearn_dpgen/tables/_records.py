"""Private records that are counted again and again: from their codes, or from where they are."""

from abc import ABC, abstractmethod
from collections import deque
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial
from queue import SimpleQueue

import numpy as np
import pandas as pd
from joblib import effective_n_jobs
from tqdm import tqdm

from sklearn_dpgen.engines._tables import is_engine_table, map_reduce
from sklearn_dpgen.exceptions import PublicError, PublicTypeError, PublicValueError
from sklearn_dpgen.ledger._unit import Persons, check_precision
from sklearn_dpgen.preprocessing._coder import RecordCoder
from sklearn_dpgen.preprocessing._reader import (
    NO_RECORDS,
    column_names,
    column_of,
    has_no_names,
    map_blocks,
    read_blocks,
)
from sklearn_dpgen.preprocessing._sources import open_source
from sklearn_dpgen.preprocessing._tabular import TabularEncoder, check_categories
from sklearn_dpgen.tables._table_counter import (
    WHOLE,
    CodeCounter,
    CountLayout,
    PersonRows,
    RowWeights,
    TableCounter,
    weights_of,
)
from sklearn_dpgen.utils._threads import one_thread
from sklearn_dpgen.utils._validation import check_is_fitted

__all__ = [
    "RecordCodes",
    "StoredRecords",
    "StreamedRecords",
    "encode_codes",
    "fit_columns",
    "open_records",
    "with_bins",
]

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


@dataclass(frozen=True, eq=False)
class RecordCodes:
    """Records, each with exactly one category in each column.

    Parameters
    ----------
    columns : list of ndarray of shape (n_records,)
        The category of each record, in the order of the schema. Contiguous, and of the smallest
        unsigned dtype that holds all categories of the column.
    sizes : list of int
        The number of categories of each column.
    persons : Persons or None, default=None
        Who each record is of; None where each is by itself.
    """

    columns: list
    sizes: list
    persons: Persons | None = None

    @property
    def n_records(self):
        """The number of records, or of persons."""
        return len(self.columns[0]) if self.persons is None else self.persons.n_persons


def encode_codes(X, encoder, unit=None):
    """Return the category of each record in each column.

    A record always gets exactly one category in each column, whatever it holds and whatever the
    other records hold; else it is refused. The sensitivity of counts rests on it: a record adds
    one to a single cell of each table.

    Parameters
    ----------
    X : data frame, array-like of shape (n, n_columns), or other source of records
        Private records, in any form that :func:`~sklearn_dpgen.preprocessing._reader.map_frames`
        reads. Of a dask frame the workers encode each partition: codes alone come back.
    encoder : TabularEncoder
        Fitted, with bins for all numbers and dates.
    unit : str or None, default=None
        A further column of ``X``, which tells who each record is of; of whatever chunks.

    Returns
    -------
    RecordCodes
        With the records in the order given.

    Raises
    ------
    ValueError
        No records at all, or a column that is missing, unknown or without bins, that has nulls
        without being nullable, or holds a value outside the declared ones. Never with the value.
    TypeError
        A chunk that is no data frame, or another collection of dask.

    Notes
    -----
    Beside the codes, an eighth of them and a block of 65536 records are held; of dask's, the codes
    twice. An array-like of rows that is neither an ndarray nor a frame is first made one. Dask
    makes texts of Python objects such as None and True, unless ``dataframe.convert-string`` of its
    configuration is False.
    """
    check_is_fitted(encoder)
    check_categories(encoder)
    coder = RecordCoder(encoder.columns_)
    dtypes = coder.dtypes
    # They grow in place, where a list of parts would be copied in the end.
    buffers = [bytearray() for _ in dtypes]
    ids, columns = [], encoder.columns_ if unit is None else encoder.columns_ | {unit: None}
    for part, own in map_blocks(partial(_codes, coder, unit), X, columns):
        for buffer, codes in zip(buffers, part, strict=True):
            buffer += codes.data
        ids.append(own)
    if not buffers[0]:
        raise PublicValueError(NO_RECORDS)
    persons = None if unit is None else Persons(pd.concat(ids, ignore_index=True), unit)
    codes = [np.frombuffer(b, dtype=dtype) for b, dtype in zip(buffers, dtypes, strict=True)]
    return RecordCodes(codes, coder.sizes, persons)


def _codes(coder, unit, block):
    own = None
    if unit is not None:
        own = column_of(block, unit)
        # Of each part: together they have the longest type among them.
        check_precision(own, unit)
    return coder.codes(block), own


def with_bins(encoder, bins):
    """Return a fitted encoder of the same columns and dtypes with other bins.

    Parameters
    ----------
    encoder : TabularEncoder
        Fitted.
    bins : mapping
        As of :class:`TabularEncoder`.

    Returns
    -------
    TabularEncoder
    """
    names = encoder.feature_names_in_
    return TabularEncoder(encoder.schema, n_bins=bins).fit(
        pd.DataFrame([[0] * len(names)], columns=names)
    )


_BLOCK = 1 << 16
# Of codes, that are held unless asked to.
_MOST_BYTES = 1 << 30
_READ_ONCE = (
    "X could be read once only, and store='none' reads it several times: give a table that can be "
    "read again, or hold codes of it: store='codes'."
)


def open_records(X, encoder, *, store="auto", unit=None, most=None, n_jobs=None, verbose=0):
    """Return records that can be counted several times.

    Parameters
    ----------
    X : object
        Any table that :func:`~sklearn_dpgen.preprocessing._sources.open_source` takes, or one of
        dask, Spark or Ray.
    encoder : TabularEncoder
        Fitted, with bins for all numbers and dates.
    store : {"auto", "codes", "none"}, default="auto"
        Whether to hold the category of each value, or to read ``X`` for each count. "auto" reads
        those of dask, Spark and Ray where they are, and what can be read again and is known to take
        more than 1 GiB; it holds others.
    unit : str or None, default=None
        A column of ``X`` that tells who each row is of.
    most : int or None, default=None
        As of :func:`~sklearn_dpgen.tables._table_counter.weights_of`.
    n_jobs : int or None, default=None
        Threads.
    verbose : int, default=0
        1 shows progress.

    Returns
    -------
    StoredRecords or StreamedRecords

    Raises
    ------
    ValueError
        Records that do not fit the schema, or that can be read once where it takes several times.
    """
    work = {"n_jobs": n_jobs, "verbose": verbose}
    if store == "none" or (store == "auto" and _is_left_there(X, encoder.columns_)):
        return StreamedRecords(X, encoder, unit, most, **work)
    return StoredRecords(encode_codes(X, encoder, unit), most, **work)


def _is_left_there(X, columns):
    """Return whether a table is better read again than held."""
    if is_engine_table(X):
        return True
    source = open_source(X, columns)
    n_bytes = sum(dtype.itemsize for dtype in RecordCoder(columns).dtypes)
    return not source.is_once and (source.n_rows or 0) * n_bytes > _MOST_BYTES


class _Records(ABC):
    """Base of records: what is counted, in units of one record."""

    _maps: list[np.ndarray] | None = None

    @property
    @abstractmethod
    def _is_weighted(self):
        """Whether rows of persons have weights, which are added up."""

    @abstractmethod
    def _counted(self, tables, groups):
        """Return a counter that has seen every record."""

    def __init__(self, n_jobs, verbose):
        self._n_threads, self._verbose = effective_n_jobs(n_jobs), verbose

    def counts(self, tables, groups=None):
        """Return exact counts, each of which a record adds one to, or a person one at most.

        Parameters
        ----------
        tables : list of tuple of int
            The columns of each.
        groups : list of tuple of ndarray or None, default=None
            For each table, and each of its columns, the group of each category. None for each
            category by itself.

        Returns
        -------
        list of ndarray of float64
            The table of each. Multiples of 2^-23 where rows of persons have weights.
        """
        counter = self._counted(tables, groups)
        scale = WHOLE if self._is_weighted else 1
        return [table / scale for table in counter.tables()]

    def marginal_counts(self, marginals):
        """Return the exact counts of marginals of blocks, see :meth:`in_blocks`."""
        return self.counts(
            [part.columns for part in marginals], [part.groups for part in marginals]
        )

    def _read(self, counter, items, count, total, what, n_threads=None):
        """Count items with as many counters as there are threads, and return one of them all."""
        n_threads = n_threads or self._n_threads
        bar = tqdm(total=total, desc=what, unit="row", unit_scale=True, disable=not self._verbose)
        with bar:
            if n_threads == 1:
                for item in items:
                    bar.update(count(counter, item))
                return counter
            return _read_in_threads(counter, items, count, bar, n_threads)


class StoredRecords(_Records):
    """Records that are held as the category of each value.

    Parameters
    ----------
    records : RecordCodes
    most : int or None
        As of :func:`~sklearn_dpgen.tables._table_counter.weights_of`.
    n_jobs, verbose : as of :func:`open_records`

    Attributes
    ----------
    n_records : int
        The number of records, or of persons.
    """

    def __init__(self, records, most=None, *, n_jobs=None, verbose=0):
        super().__init__(n_jobs, verbose)
        self._codes, self._sizes, self.n_records = records.columns, records.sizes, records.n_records
        self._weights = None
        if records.persons is not None:
            self._weights = weights_of(records.persons.n_rows, most).astype(np.int32)

    @property
    def _is_weighted(self):
        return self._weights is not None

    def check_again(self):
        """Do nothing: codes can be counted again."""

    def in_blocks(self, maps):
        """Hold the block of each value in place of its category: it is what tables are made of.

        Parameters
        ----------
        maps : list of ndarray of int
            The block of each category of each column.
        """
        small = [part.astype(np.min_scalar_type(int(part.max()))) for part in maps]
        self._codes = [part[codes] for part, codes in zip(small, self._codes, strict=True)]
        self._sizes = [int(part.max()) + 1 for part in maps]

    def _counted(self, tables, groups):
        n = len(self._codes[0])
        counter = CodeCounter(CountLayout(self._sizes, tables, groups), n_expected=n)
        return self._read(counter, range(0, n, _BLOCK), self._count, n, "rows counted")

    def _count(self, counter, start):
        part = slice(start, start + _BLOCK)
        weights = None if self._weights is None else self._weights[part].astype(np.int64)
        codes = [column[part] for column in self._codes]
        counter.count_codes(codes, weights)
        return len(codes[0])


class StreamedRecords(_Records):
    """Records that are read from their source for each count.

    Parameters
    ----------
    X, encoder, unit, most, n_jobs, verbose : as of :func:`open_records`

    Attributes
    ----------
    n_records : int or None
        The number of records, known after the first count, or of persons.
    """

    def __init__(self, X, encoder, unit=None, most=None, *, n_jobs=None, verbose=0):
        super().__init__(n_jobs, verbose)
        self._X, self._encoder, self._n_rows = X, encoder, None
        self._is_engine = is_engine_table(X)
        if not self._is_engine and open_source(X, encoder.columns_).is_once:
            raise PublicValueError(
                "X can be read once, and store='none' reads it several times: give a table that "
                "can be read again, such as a data set or files in place of a reader, or a list "
                "in place of a generator. Or hold codes of it: store='codes'."
            )
        self._weights, self.n_records, self._rows = None, None, None
        if unit is not None:
            self._rows = self._person_rows(unit)
            self._weights = RowWeights(unit, self._rows, most)
            self.n_records, self._n_rows = len(self._rows), int(self._rows.sum())

    @property
    def _is_weighted(self):
        return self._weights is not None

    def in_blocks(self, maps):
        """Let tables be made of blocks of categories.

        Parameters
        ----------
        maps : list of ndarray of int
            The block of each category of each column.
        """
        self._maps = maps

    def check_again(self):
        """Raise ValueError if there is nothing to be read a second time, as of a reader."""
        if self._is_engine:
            return
        columns = self._encoder.columns_
        if self._weights is not None:
            columns = columns | {self._weights.unit: None}
        blocks = read_blocks(open_source(self._X, columns), list(columns))
        if next(blocks, None) is None:
            raise PublicValueError(_READ_ONCE)

    def _person_rows(self, unit):
        columns, counter = self._encoder.columns_ | {unit: None}, PersonRows(unit)
        if self._is_engine:
            function, merge = partial(_rows_of_parts, unit), partial(_added_rows, unit)
            counter.add(map_reduce(function, merge, self._X, [unit]))
        else:
            source = open_source(self._X, columns)
            names = [unit] if source.is_projected else list(columns)
            blocks = read_blocks(source, names)
            self._read(counter, blocks, _count_block, source.n_rows, "rows of persons", 1)
        rows = counter.rows()
        if len(rows) == 0:
            raise PublicValueError(NO_RECORDS)
        return rows

    def _counted(self, tables, groups):
        names = list(self._encoder.columns_)
        if self._maps is not None:
            groups = [
                tuple(part[self._maps[j]] for j, part in zip(columns, parts, strict=True))
                for columns, parts in zip(tables, groups, strict=True)
            ]
        named = [tuple(names[j] for j in columns) for columns in tables]
        counter = TableCounter(self._encoder, named, groups, weights=self._weights)
        if self._is_engine:
            state = map_reduce(partial(_count_parts, counter), np.add, self._X, counter.names)
            counter.add_state(state)
        else:
            source = open_source(self._X, counter.columns)
            blocks, total = read_blocks(source, counter.names), self._n_rows or source.n_rows
            self._read(counter, blocks, _count_block, total, "rows read and counted")
        self._check(counter)
        return counter

    def _check(self, counter):
        """Refuse counts of other records than those that were counted first."""
        if counter.n_rows == 0:
            raise PublicValueError(NO_RECORDS if self._n_rows is None else _READ_ONCE)
        if self._n_rows is None:
            self._n_rows = self.n_records = counter.n_rows
        rows = np.zeros(0) if self._rows is None else self._rows.to_numpy()
        if counter.n_rows != self._n_rows or not np.array_equal(counter.rows_seen, rows):
            raise PublicValueError(
                "X has changed since it was counted first, or was cut off: it must be the same "
                "table whenever it is read, or store='codes' must hold it."
            )


def _read_in_threads(counter, items, count, bar, n_threads):
    idle: SimpleQueue = SimpleQueue()
    pending: deque = deque()
    counters = [counter]
    counters += [counter.fresh() for _ in range(n_threads - 1)]
    for one in counters:
        idle.put(one)

    def work(item):
        one = idle.get()
        try:
            with one_thread():
                return count(one, item)
        finally:
            idle.put(one)

    with ThreadPoolExecutor(n_threads) as executor:
        for item in items:
            pending.append(executor.submit(work, item))
            # So many blocks are read ahead, and no more.
            while len(pending) > 2 * n_threads:
                bar.update(pending.popleft().result())
        for future in pending:
            bar.update(future.result())
    for one in counters[1:]:
        counter.add_state(one.state())
    return counter


def _count_block(counter, block):
    counter.count_block(block)
    return len(block)


def _count_parts(counter, parts):
    """Return the state of a counter of the parts of a partition: what a worker sends back."""
    counter = counter.fresh()
    for part in parts:
        counter.count(part)
    return counter.state()


def _rows_of_parts(unit, parts):
    counter = PersonRows(unit)
    for part in parts:
        for block in read_blocks(open_source(part, [unit]), [unit]):
            counter.count_block(block)
    return counter.rows()


def _added_rows(unit, first, second):
    return PersonRows(unit).add(first).add(second).rows()
