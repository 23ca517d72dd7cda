"""Records of a table as the category of each in each column, in as little memory as that takes."""

from dataclasses import dataclass
from functools import partial

import numpy as np
import pandas as pd

from sklearn_dpgen.exceptions import PublicValueError
from sklearn_dpgen.ledger._unit import Persons, check_precision
from sklearn_dpgen.preprocessing._coder import RecordCoder
from sklearn_dpgen.preprocessing._reader import NO_RECORDS, column_of, map_blocks
from sklearn_dpgen.preprocessing._tabular import TabularEncoder, check_categories
from sklearn_dpgen.utils._validation import check_is_fitted

__all__ = ["RecordCodes", "encode_codes", "with_bins"]


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
