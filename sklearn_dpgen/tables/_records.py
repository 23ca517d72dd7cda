"""Private records that are counted again and again: from their codes, or from where they are."""

from abc import ABC, abstractmethod
from collections import deque
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from queue import SimpleQueue

import numpy as np
from joblib import effective_n_jobs
from tqdm import tqdm

from sklearn_dpgen.engines._tables import is_engine_table, map_reduce
from sklearn_dpgen.exceptions import PublicValueError
from sklearn_dpgen.preprocessing._coder import RecordCoder
from sklearn_dpgen.preprocessing._reader import NO_RECORDS, read_blocks
from sklearn_dpgen.preprocessing._sources import open_source
from sklearn_dpgen.tables._code_counter import CodeCounter
from sklearn_dpgen.tables._count_layout import CountLayout
from sklearn_dpgen.tables._record_codes import encode_codes
from sklearn_dpgen.tables._row_weights import WHOLE, PersonRows, RowWeights, weights_of
from sklearn_dpgen.tables._table_counter import TableCounter
from sklearn_dpgen.utils._threads import one_thread

__all__ = ["StoredRecords", "StreamedRecords", "open_records"]

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
        As of :func:`~sklearn_dpgen.tables._row_weights.weights_of`.
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
        As of :func:`~sklearn_dpgen.tables._row_weights.weights_of`.
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
