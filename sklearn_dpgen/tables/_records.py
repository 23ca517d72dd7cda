"""Private records for repeated counts: stored as codes, or streamed from their source."""

from abc import ABC, abstractmethod
from collections import deque
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from functools import partial
from queue import SimpleQueue
from types import MappingProxyType
from typing import Any

import numpy as np
import pandas as pd
from joblib import effective_n_jobs
from tqdm import tqdm

from sklearn_dpgen.engines._tables import is_engine_table, map_reduce
from sklearn_dpgen.exceptions import PublicError, PublicTypeError, PublicValueError
from sklearn_dpgen.ledger._unit import Persons, check_precision, joined_ids
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
    LabelCounter,
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
    "y is not read: pass labels as a column of X. SyntheticDataClassifier and "
    "SyntheticDataRegressor take them as y."
)


def fit_columns(encoder, X, unit, y=None):
    """Fit an encoder to the columns of a source, without the column of the unit.

    Parameters
    ----------
    encoder : TabularEncoder
    X : as for :func:`~sklearn_dpgen.preprocessing._reader.map_frames`
    unit : str or None
    y : object
        Labels passed apart from X; they are not read, but change the message of an error.

    Raises
    ------
    TypeError
        ``unit`` is given, and X has no column names.
    ValueError
        X lacks the unit, or its columns are not those of the schema.
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
        raise PublicTypeError(f"X must be a data frame with unit={unit!r}, which names a column.")
    given = column_names(X, list(encoder.schema), unit)
    names = [name for name in given if name != unit or unit in encoder.schema]
    return encoder.fit(pd.DataFrame([[0] * len(names)], columns=names))


@dataclass(frozen=True, eq=False)
class RecordCodes:
    """Encoded records: one category in each column.

    Parameters
    ----------
    columns : list of ndarray of shape (n_records,)
        The category of each record, by columns of the schema. The arrays are contiguous, with the
        smallest unsigned dtype for the categories of the column.
    sizes : list of int
        The number of categories of each column.
    persons : Persons or None, default=None
        The person of each record; None if records are protected one by one.
    opened : dict of int to LabelCodes, default={}
        All labels of open columns, by the index of the column.
    """

    columns: list
    sizes: list
    persons: Persons | None = None
    opened: dict = field(default_factory=dict)

    @property
    def n_records(self):
        """The number of records, or of persons."""
        return len(self.columns[0]) if self.persons is None else self.persons.n_persons


class LabelCodes:
    """All labels of an open column, known or not, and the label of each record: private."""

    def __init__(self, column):
        self.column, self._codes, self._index = column, bytearray(), {column.other: 0}

    def add(self, codes, labels):
        """Add the labels of a block, as from :meth:`OpenCategorical.read_labels`."""
        index = self._index
        places = [index.setdefault(label, len(index)) for label in labels]
        # Null is -1.
        self._codes += np.array([*places, -1], dtype=np.int32)[codes].data

    @property
    def labels(self):
        """The labels by their codes, of which the first is ``other``."""
        return list(self._index)

    @property
    def codes(self):
        """The label of each record, -1 for null."""
        return np.frombuffer(self._codes, dtype=np.int32)

    def counts(self, rows=None):
        """Return the number of records of each label but ``other``, of some rows if given."""
        codes = self.codes if rows is None else self.codes[rows]
        counts = np.bincount(codes[codes > 0], minlength=len(self._index))
        found = zip(self.labels[1:], counts[1:].tolist(), strict=True)
        # A categorical dtype may list labels of no record.
        return {label: count for label, count in found if count}

    def final(self, column):
        """Return the category of each record in a column with known labels."""
        known = {label: i for i, label in enumerate(column.labels)}
        places = [known.get(label, len(known) - 1) for label in self._index]
        # The last entry is for nulls.
        places.append(column.n_categories - 1)
        return np.array(places, np.min_scalar_type(column.n_categories - 1))[self.codes]


def encode_codes(X, encoder, unit=None, opened=MappingProxyType({})):
    """Return the category of each record in each column.

    The categories of a record do not depend on other records, and records outside the schema are
    refused. The sensitivity of counts follows: a record adds one to a single cell of each table.

    Parameters
    ----------
    X : data frame, array-like of shape (n, n_columns), or other source of records
        Private records, in any form that :func:`~sklearn_dpgen.preprocessing._reader.map_frames`
        reads. Partitions of a dask frame are encoded by the workers.
    encoder : TabularEncoder
        Fitted, with bins for all numbers and dates.
    unit : str or None, default=None
        A column of ``X`` with the person of each record.
    opened : mapping of str to OpenCategorical, default={}
        Columns of which all labels are read; in the encoder they have none.

    Returns
    -------
    RecordCodes
        Codes in the order of the records.

    Raises
    ------
    ValueError
        No records; columns that are missing, unknown or without bins; undeclared nulls or values.
        Messages do not show values.
    TypeError
        A chunk is not a data frame, or X is another collection of dask.

    Notes
    -----
    Memory is 9/8 of the codes and a block of 65536 records, or twice the codes for dask. Dask
    converts Python objects such as None and True to strings, unless ``dataframe.convert-string``
    of its configuration is False.
    """
    check_is_fitted(encoder)
    check_categories(encoder)
    coder = RecordCoder(encoder.columns_)
    dtypes = coder.dtypes
    # Byte arrays grow in place, whereas a list of arrays would be copied in the end.
    buffers = [bytearray() for _ in dtypes]
    ids, columns = [], encoder.columns_ if unit is None else encoder.columns_ | {unit: None}
    labels = {name: LabelCodes(column) for name, column in opened.items()}
    read = partial(_codes, coder, unit, opened)
    for block_codes, block_ids, block_labels in map_blocks(read, X, columns):
        for own, found in zip(labels.values(), block_labels, strict=True):
            own.add(*found)
        for buffer, codes in zip(buffers, block_codes, strict=True):
            buffer += codes.data
        ids.append(block_ids)
    if not buffers[0]:
        raise PublicValueError(NO_RECORDS)
    persons = None if unit is None else Persons(joined_ids(ids), unit)
    codes = [np.frombuffer(b, dtype=dtype) for b, dtype in zip(buffers, dtypes, strict=True)]
    names = list(encoder.columns_)
    by_index = {names.index(name): own for name, own in labels.items()}
    return RecordCodes(codes, coder.sizes, persons, by_index)


def _codes(coder, unit, opened, block):
    """Return the codes, the persons and the labels of open columns of a block."""
    ids = None
    if unit is not None:
        ids = column_of(block, unit)
        # The check is by block, since concatenation promotes all blocks to the widest type.
        check_precision(ids, unit)
    labels = [column.read_labels(column_of(block, name)) for name, column in opened.items()]
    return coder.codes(block), ids, labels


def with_bins(encoder, bins):
    """Return a fitted encoder of the same columns and dtypes with other bins.

    Parameters
    ----------
    encoder : TabularEncoder
        Fitted.
    bins : mapping
        ``n_bins`` of :class:`TabularEncoder`.

    Returns
    -------
    TabularEncoder
    """
    names = encoder.feature_names_in_
    return TabularEncoder(encoder.schema, n_bins=bins).fit(
        pd.DataFrame([[0] * len(names)], columns=names)
    )


# Records per item of work.
_BLOCK = 1 << 16
# The most bytes of codes that store="auto" holds.
_MOST_BYTES = 1 << 30
_READ_ONCE = (
    "X must be readable several times with store='none', got a source that can be read once: pass "
    "a data set, files or a list, or use store='codes'."
)


def open_records(
    X,
    encoder,
    *,
    store="auto",
    unit=None,
    most=None,
    opened=MappingProxyType({}),
    n_jobs=None,
    verbose=0,
):
    """Open records for repeated counts, stored as codes or streamed.

    Parameters
    ----------
    X : object
        Any table that :func:`~sklearn_dpgen.preprocessing._sources.open_source` takes, or a table
        of dask, Spark or Ray.
    encoder : TabularEncoder
        Fitted, with bins for all numbers and dates.
    store : {"auto", "codes", "none"}, default="auto"
        Whether to store codes, or to read ``X`` for each count. "auto" streams tables of dask,
        Spark and Ray, and re-readable tables of more than 1 GiB of codes; it stores others.
    unit : str or None, default=None
        A column of ``X`` with the person of each row.
    most : int or None, default=None
        Bound on the weight of a person, for
        :func:`~sklearn_dpgen.tables._table_counter.weights_of`.
    opened : mapping of str to OpenCategorical, default={}
        Columns whose labels are to be discovered; in the encoder they have none.
    n_jobs : int or None, default=None
        Number of threads.
    verbose : int, default=0
        1 shows progress.

    Returns
    -------
    StoredRecords or StreamedRecords

    Raises
    ------
    ValueError
        Records that do not fit the schema, or a source to stream that can be read only once.
    """
    work = {"n_jobs": n_jobs, "verbose": verbose}
    if opened and unit is not None:
        # The row that counts for a person is drawn once, which takes the codes of all rows.
        if store == "none":
            raise PublicValueError(
                "store must be 'codes' with unit and open columns, got 'none': the labels of each "
                "person are stored to draw one of them."
            )
        store = "codes"
    if store == "none" or (store == "auto" and _is_streamed(X, encoder.columns_)):
        return StreamedRecords(X, encoder, unit, most, opened, **work)
    return StoredRecords(encode_codes(X, encoder, unit, opened), most, **work)


def _is_streamed(X, columns):
    """Return whether store="auto" streams a table."""
    if is_engine_table(X):
        return True
    source = open_source(X, columns)
    n_bytes = sum(dtype.itemsize for dtype in RecordCoder(columns).dtypes)
    return not source.is_once and (source.n_rows or 0) * n_bytes > _MOST_BYTES


class _Records(ABC):
    """Base of records that can be counted repeatedly."""

    _maps: list[np.ndarray] | None = None

    @property
    @abstractmethod
    def _is_weighted(self):
        """Whether rows have integer weights, by their person."""

    @abstractmethod
    def _counted(self, tables, groups):
        """Return a counter of all records."""

    def __init__(self, n_jobs, verbose):
        self._n_threads, self._verbose = effective_n_jobs(n_jobs), verbose

    def counts(self, tables, groups=None):
        """Return exact counts, to which a record, or all rows of a person, add at most one.

        Parameters
        ----------
        tables : list of tuple of int
            The columns of each table.
        groups : list of tuple of ndarray or None, default=None
            For each table and each of its columns, the group of each category; None for no groups.

        Returns
        -------
        list of ndarray of float64
            The counts of each table; multiples of 2^-23 if rows have weights.
        """
        counter = self._counted(tables, groups)
        scale = WHOLE if self._is_weighted else 1
        return [table / scale for table in counter.tables()]

    def marginal_counts(self, marginals):
        """Return the exact counts of marginals of blocks, after :meth:`use_blocks`."""
        return self.counts([m.columns for m in marginals], [m.groups for m in marginals])

    def _read(self, counter, items, count, total, name, n_threads=None):
        """Count items in threads, and return the merged counter."""
        n_threads = n_threads or self._n_threads
        bar = tqdm(total=total, desc=name, unit="row", unit_scale=True, disable=not self._verbose)
        with bar:
            if n_threads == 1:
                for item in items:
                    bar.update(count(counter, item))
                return counter
            return _read_in_threads(counter, items, count, bar, n_threads)


class StoredRecords(_Records):
    """Records stored as the category of each value.

    Parameters
    ----------
    records : RecordCodes
    most, n_jobs, verbose
        As for :func:`open_records`.

    Attributes
    ----------
    n_records : int
        The number of records, or of persons.
    """

    def __init__(self, records, most=None, *, n_jobs=None, verbose=0):
        super().__init__(n_jobs, verbose)
        self._codes, self._sizes, self.n_records = records.columns, records.sizes, records.n_records
        self._weights, self._opened = None, records.opened
        self._persons = records.persons if records.opened else None
        if records.persons is not None:
            self._weights = weights_of(records.persons.n_rows, most).astype(np.int32)

    @property
    def _is_weighted(self):
        return self._weights is not None

    def check_rereadable(self):
        """Do nothing: codes can be counted repeatedly."""

    def label_counts(self, noise):
        """Return the numbers of records of the labels of each open column, private.

        Parameters
        ----------
        noise : NoiseSource
            Draws the row that counts for a person, if there are persons.

        Returns
        -------
        dict of int to dict of str to int
            By the index of the column; of all labels but ``other`` and null.
        """
        rows = None
        if self._persons is not None:
            noise.bind("rows of persons", self._persons.codes)
            rows = self._persons.draw(noise)
        return {j: own.counts(rows) for j, own in self._opened.items()}

    def use_labels(self, encoder):
        """Encode open columns by their discovered labels, and return their exact counts.

        Parameters
        ----------
        encoder : TabularEncoder
            With these labels.

        Returns
        -------
        dict of int to ndarray
            The counts of the categories of each open column.
        """
        columns = list(encoder.columns_.values())
        for j, own in self._opened.items():
            self._codes[j], self._sizes[j] = own.final(columns[j]), columns[j].n_categories
        places, self._opened, self._persons = list(self._opened), {}, None
        return dict(zip(places, self.counts([(j,) for j in places]), strict=True))

    def use_blocks(self, maps):
        """Replace the category of each value by its block, which later tables refer to.

        Parameters
        ----------
        maps : list of ndarray of int
            The block of each category of each column.
        """
        small = [blocks.astype(np.min_scalar_type(int(blocks.max()))) for blocks in maps]
        self._codes = [blocks[codes] for blocks, codes in zip(small, self._codes, strict=True)]
        self._sizes = [int(blocks.max()) + 1 for blocks in maps]

    def _counted(self, tables, groups):
        n = len(self._codes[0])
        counter = CodeCounter(CountLayout(self._sizes, tables, groups, n))
        return self._read(counter, range(0, n, _BLOCK), self._count, n, "rows counted")

    def _count(self, counter, start):
        rows = slice(start, start + _BLOCK)
        weights = None if self._weights is None else self._weights[rows].astype(np.int64)
        codes = [column[rows] for column in self._codes]
        counter.count_codes(codes, weights)
        return len(codes[0])


class StreamedRecords(_Records):
    """Records that are read from their source for each count.

    Parameters
    ----------
    X, encoder, unit, most, n_jobs, verbose
        As for :func:`open_records`.

    Attributes
    ----------
    n_records : int or None
        The number of records, which is known after the first count, or of persons.
    """

    def __init__(
        self,
        X,
        encoder,
        unit=None,
        most=None,
        opened=MappingProxyType({}),
        *,
        n_jobs=None,
        verbose=0,
    ):
        super().__init__(n_jobs, verbose)
        self._X, self._encoder, self._n_rows = X, encoder, None
        self._is_engine = is_engine_table(X)
        if not self._is_engine and open_source(X, encoder.columns_).is_once:
            raise PublicValueError(_READ_ONCE)
        self._weights, self.n_records, self._rows = None, None, None
        if unit is not None:
            self._rows = self._person_rows(unit)
            self._weights = RowWeights(unit, self._rows, most)
            self.n_records, self._n_rows = len(self._rows), int(self._rows.sum())
        self._labels: Any = self._read_labels(opened) if opened else None

    @property
    def _is_weighted(self):
        return self._weights is not None

    def _read_labels(self, opened):
        """Count the labels of open columns."""
        counter, columns = LabelCounter(opened), self._encoder.columns_
        if self._is_engine:
            function = partial(_labels_of_partition, counter)
            counter = map_reduce(function, _merged_labels, self._X, list(opened))
        else:
            source = open_source(self._X, columns)
            blocks = read_blocks(source, list(opened) if source.is_projected else list(columns))
            self._read(counter, blocks, _count_block, source.n_rows, "rows with labels", 1)
        if counter.n_rows == 0:
            raise PublicValueError(NO_RECORDS)
        self.n_records = self._n_rows = counter.n_rows
        return counter

    def label_counts(self, noise):
        """Return the numbers of records of the labels, as those of StoredRecords."""
        names = list(self._encoder.columns_)
        return {names.index(name): own for name, own in self._labels.labels().items()}

    def use_labels(self, encoder):
        """Encode open columns by their discovered labels, as StoredRecords does."""
        self._encoder, labels = encoder, self._labels
        self._labels, found = None, {}
        for j, (name, column) in enumerate(encoder.columns_.items()):
            if name in labels.columns:
                found[j] = labels.categories(name, column)
        return found

    def use_blocks(self, maps):
        """Let later tables refer to blocks in place of categories.

        Parameters
        ----------
        maps : list of ndarray of int
            The block of each category of each column.
        """
        self._maps = maps

    def check_rereadable(self):
        """Raise ValueError if the source is exhausted after the first count."""
        if self._is_engine:
            return
        columns = self._encoder.columns_
        if self._weights is not None:
            columns = columns | {self._weights.unit: None}
        blocks = read_blocks(open_source(self._X, columns), list(columns))
        if next(blocks, None) is None:
            raise PublicValueError(_READ_ONCE)

    def _person_rows(self, unit):
        """Count the rows of each person."""
        columns, counter = self._encoder.columns_ | {unit: None}, PersonRows(unit)
        if self._is_engine:
            function, merge = partial(_rows_of_partition, unit), partial(_merged_rows, unit)
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
                tuple(g[self._maps[j]] for j, g in zip(columns, own, strict=True))
                for columns, own in zip(tables, groups, strict=True)
            ]
        named = [tuple(names[j] for j in columns) for columns in tables]
        counter = TableCounter(self._encoder, named, groups, weights=self._weights)
        if self._is_engine:
            state = map_reduce(partial(_count_partition, counter), np.add, self._X, counter.names)
            counter.add_state(state)
        else:
            source = open_source(self._X, counter.columns)
            blocks, total = read_blocks(source, counter.names), self._n_rows or source.n_rows
            self._read(counter, blocks, _count_block, total, "rows read and counted")
        self._check(counter)
        return counter

    def _check(self, counter):
        """Raise ValueError if the numbers of rows have changed since the first count."""
        if counter.n_rows == 0:
            raise PublicValueError(NO_RECORDS if self._n_rows is None else _READ_ONCE)
        if self._n_rows is None:
            self._n_rows = self.n_records = counter.n_rows
        rows = np.zeros(0) if self._rows is None else self._rows.to_numpy()
        if counter.n_rows != self._n_rows or not np.array_equal(counter.rows_seen, rows):
            raise PublicValueError(
                "X has changed since the first count: with store='none' it must have the same "
                "records whenever it is read. Use store='codes' to read it once."
            )


def _read_in_threads(counter, items, count, bar, n_threads):
    """Count items in several threads, each with a counter of its own, and merge the counters."""
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
            # The queue is bounded, so that few blocks are in memory.
            while len(pending) > 2 * n_threads:
                bar.update(pending.popleft().result())
        for future in pending:
            bar.update(future.result())
    for one in counters[1:]:
        counter.add_state(one.state())
    return counter


def _count_block(counter, block):
    """Count a block, and return its number of rows."""
    counter.count_block(block)
    return len(block)


def _count_partition(counter, pieces):
    """Count the pieces of a partition on a worker, and return the state of the counter."""
    counter = counter.fresh()
    for piece in pieces:
        counter.count(piece)
    return counter.state()


def _labels_of_partition(counter, pieces):
    """Count the labels in a partition."""
    counter, names = LabelCounter(counter.columns), list(counter.columns)
    for piece in pieces:
        for block in read_blocks(open_source(piece, names), names):
            counter.count_block(block)
    return counter


def _merged_labels(first, second):
    """Merge the labels of two partitions."""
    return first.merge(second)


def _rows_of_partition(unit, pieces):
    """Count the rows of each person in a partition."""
    counter = PersonRows(unit)
    for piece in pieces:
        for block in read_blocks(open_source(piece, [unit]), [unit]):
            counter.count_block(block)
    return counter.rows()


def _merged_rows(unit, first, second):
    """Merge the numbers of rows of two partitions."""
    return PersonRows(unit).add(first).add(second).rows()
