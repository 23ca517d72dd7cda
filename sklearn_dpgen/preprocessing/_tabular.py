"""TabularEncoder: encodes data frames in the domain of a schema, and decodes them."""

import os
from collections.abc import Iterable, Mapping
from functools import partial
from typing import Self

import numpy as np
import pandas as pd
from numpy.typing import ArrayLike
from sklearn.base import BaseEstimator, TransformerMixin

from sklearn_dpgen.domains import Product
from sklearn_dpgen.exceptions import PublicValueError
from sklearn_dpgen.persistence._declarations import demand, saved
from sklearn_dpgen.preprocessing._reader import NO_RECORDS, column_names, map_frames
from sklearn_dpgen.schema import Datetime, Numeric, Schema
from sklearn_dpgen.schema._binned import Binned, bin_column
from sklearn_dpgen.schema._column import CategoryColumn
from sklearn_dpgen.schema._file import SchemaParameter
from sklearn_dpgen.utils._random import NoiseSource
from sklearn_dpgen.utils._validation import (
    Integral,
    ParametersMixin,
    check_array,
    check_is_fitted,
    fit_context,
)

__all__ = ["TabularEncoder", "check_categories", "with_index"]


@saved
class TabularEncoder(ParametersMixin, TransformerMixin, BaseEstimator):
    """Encode the records of a table as points of a public domain.

    Numbers and dates are scaled by their declared bounds to [-1, 1] and clipped, silently.
    Categories become one-hot blocks. Nothing is learned from records: `fit` reads only the column
    names, and needs no data.

    Parameters
    ----------
    schema : Schema, str or path-like
        The public declaration of the columns.
    n_bins : None, int or mapping, default=None
        Public bins for numbers and dates, which then become one-hot blocks too: a number of equal
        bins for each, or ``{column: number or edges}`` for the named columns. A bin narrower than
        1/20000 of the range is decoded to its number with the fewest decimals.

    Attributes
    ----------
    columns_ : dict of str to Column
        The columns as they are encoded, with bins.
    domain_ : Product
        The set of encoded records.
    blocks_ : dict of str to slice
        The encoded features of each column.
    dtypes_ : dict of str to dtype
        Dtypes of decoded columns, determined by the schema.
    n_features_in_ : int
        The number of columns.
    feature_names_in_ : ndarray of str
        The names of the columns, in the order of the fitted frame, or of the schema if no frame was
        fitted.

    Notes
    -----
    Each value is encoded independently: whether it is accepted, and its code, depend on it and on
    the schema, not on other records or the dtype. Dtypes of decoded records are those of the
    declarations too, as a single fitted record could decide the dtype of a fitted column: int64 for
    integers that are not nullable, float64 for other numbers, datetime64[us] for dates, in the
    declared zone, and for labels the narrowest of bool, int64, float64, strings and object that
    holds all declared ones.

    Examples
    --------
    >>> import pandas as pd
    >>> from sklearn_dpgen.preprocessing import TabularEncoder
    >>> from sklearn_dpgen.schema import Categorical, Numeric, Schema
    >>> age = Numeric(0, 100, integer=True)
    >>> schema = Schema({"age": age, "smoker": Categorical(["no", "yes"])})
    >>> records = pd.DataFrame({"age": [50, 130], "smoker": ["yes", "no"]})
    >>> encoder = TabularEncoder(schema).fit(records)
    >>> encoder.transform(records)
    array([[0., 0., 1.],
           [1., 1., 0.]])
    >>> encoder.inverse_transform(encoder.transform(records))
       age smoker
    0   50    yes
    1  100     no
    """

    # A path is read when it is set.
    schema = SchemaParameter()

    _parameter_constraints: dict = {"schema": [Schema], "n_bins": [None, Integral, Mapping]}

    _saved_state = {
        "schema": Schema,
        "n_bins": object,
        "edges": dict[str, tuple[float, ...]],
        "names": list[str],
    }
    _saved_bytes = 1 << 14

    def __init__(
        self, schema: Schema | str | os.PathLike, *, n_bins: int | Mapping | None = None
    ) -> None:
        self.schema = schema
        self.n_bins = n_bins

    def _to_saved(self):
        binned = {n: c.edges for n, c in self.columns_.items() if isinstance(c, Binned)}
        names = list(self.dtypes_)
        return {"schema": self.schema, "n_bins": self.n_bins, "edges": binned, "names": names}

    @classmethod
    def _from_saved(cls, fields):
        schema, edges, names = fields["schema"], fields["edges"], fields["names"]
        has_names = sorted(names) == sorted(schema) and edges.keys() <= schema.keys()
        demand(has_names, "An encoder has other columns than its schema.")
        binned = {name: Binned(schema[name], part) for name, part in edges.items()}
        for column in binned.values():
            column._check_saved_state()
        # A fit reads only the names of the columns, here of a row of nulls.
        encoder = cls(schema, n_bins=binned).fit(pd.DataFrame(index=[0], columns=names))
        # The saved columns are used, whatever ``n_bins`` would give in this version.
        encoder.n_bins = fields["n_bins"]
        return encoder

    @fit_context(prefer_skip_nested_validation=True)
    def fit(
        self, X: ArrayLike | pd.DataFrame | Iterable[pd.DataFrame] | None = None, y: object = None
    ) -> Self:
        """Read the names of the columns.

        Parameters
        ----------
        X : DataFrame of shape (n, n_columns), array-like, other source of records or None
            A frame's columns are matched by name, in any order, and must be those of the schema;
            an array's are matched by position. Noisy records serve as well as raw ones.
        y : ignored

        Returns
        -------
        self
        """
        if self.schema.open_columns:
            raise PublicValueError(
                f"Open columns {[*self.schema.open_columns]} must have known categories: "
                "TableSampler discovers them privately, and its schema_ declares them."
            )
        names = list(self.schema)
        names = names if X is None else column_names(X, names)
        columns = self._binned_columns()
        self.columns_ = columns
        self.dtypes_ = {name: columns[name].dtype for name in names}
        self.domain_ = Product([column.domain for column in columns.values()])
        self.blocks_ = dict(zip(columns, self.domain_.slices, strict=True))
        self.n_features_in_ = len(names)
        self.feature_names_in_ = np.array(names, dtype=object)
        return self

    def transform(self, X: ArrayLike | pd.DataFrame | Iterable[pd.DataFrame]) -> np.ndarray:
        """Encode records.

        Parameters
        ----------
        X : DataFrame, array-like of shape (n, n_columns), or other source of records
            Polars frames, Arrow streams, files, queries, iterables of frames and dask DataFrames
            are read in parts: see :ref:`large_tables`.

        Returns
        -------
        ndarray of shape (n, domain_.n_features), float64
            Columns in the order of the schema.

        Raises
        ------
        PublicValueError
            A column is missing, unknown, has nulls without being nullable, or has a value that is
            not declared; the message names the column.
        """
        check_is_fitted(self)
        parts = list(map_frames(partial(_encode, self.columns_), X, self.columns_))
        if not parts:
            raise PublicValueError(NO_RECORDS)
        return np.concatenate(parts)

    def inverse_transform(
        self,
        X: ArrayLike,
        *,
        rng: np.random.Generator | NoiseSource | None = None,
        index: str = "reset",
    ) -> pd.DataFrame:
        """Decode points into records, clipped and rounded as the schema declares.

        Parameters
        ----------
        X : array-like of shape (n, domain_.n_features)
            May be outside of the domain: the largest entry of a block of categories is taken.
        rng : numpy.random.Generator or NoiseSource, optional
            Draws values uniformly within their bins; by default values are the middles.
        index : {"reset", "keep"}, default="reset"
            Whether rows are renumbered, or have the index of ``X``, if it is a frame; an index may
            identify persons.

        Returns
        -------
        DataFrame of shape (n, n_columns)
            With the fitted columns and the dtypes ``dtypes_``.
        """
        check_is_fitted(self)
        array = check_array(X, dtype=np.float64)
        if array.shape[1] != self.domain_.n_features:
            width = self.domain_.n_features
            raise PublicValueError(f"The schema encodes {width} features, X has {array.shape[1]}.")
        blocks = {name: array[:, self.blocks_[name]] for name in self.dtypes_}
        frame = pd.DataFrame(
            {n: self.columns_[n].decode(block, name=n, rng=rng) for n, block in blocks.items()}
        )
        return with_index(frame, X, index)

    def decode_codes(
        self, codes: ArrayLike, *, rng: np.random.Generator | NoiseSource | None = None
    ) -> pd.DataFrame:
        """Decode categories into records.

        Parameters
        ----------
        codes : array-like of int of shape (n, n_columns)
            The category or bin of each record in each column, in the order of the schema; null is
            the last one.
        rng : numpy.random.Generator or NoiseSource, optional
            Draws values uniformly within their bins; by default values are the middles.

        Returns
        -------
        DataFrame of shape (n, n_columns)
            With the fitted columns and the dtypes ``dtypes_``.

        Raises
        ------
        PublicValueError
            A numeric or datetime column has no bins, or a code is not a category.
        """
        check_is_fitted(self)
        check_categories(self)
        codes = np.asarray(codes)
        if codes.ndim != 2 or codes.shape[1] != len(self.columns_):
            raise PublicValueError(
                f"codes must have the shape (n, {len(self.columns_)}), got {codes.shape}."
            )
        parts = dict(zip(self.columns_, codes.T, strict=True))
        return pd.DataFrame(
            {n: self.columns_[n].decode_codes(parts[n], name=n, rng=rng) for n in self.dtypes_}
        )

    def get_feature_names_out(self, input_features: Iterable[str] | None = None) -> np.ndarray:
        """Return the names of the encoded features.

        Parameters
        ----------
        input_features : array-like of str, optional
            Must be ``feature_names_in_`` if given.

        Returns
        -------
        ndarray of str
        """
        check_is_fitted(self)
        if input_features is not None and list(input_features) != list(self.feature_names_in_):
            raise PublicValueError("input_features is not equal to feature_names_in_")
        return np.array(
            [f for name, column in self.columns_.items() for f in column.feature_names(name)],
            dtype=object,
        )

    def _binned_columns(self):
        bins = self.n_bins
        if isinstance(bins, Mapping):
            unknown = [name for name in bins if name not in self.schema]
            if unknown:
                raise PublicValueError(f"n_bins must name columns of the schema, got {unknown}.")
        elif bins is not None:
            bins = {n: bins for n, c in self.schema.items() if isinstance(c, Numeric | Datetime)}
        else:
            bins = {}
        return {n: bin_column(n, column, bins.get(n)) for n, column in self.schema.items()}

    def __sklearn_tags__(self):
        tags = super().__sklearn_tags__()
        tags.input_tags.categorical = True
        tags.input_tags.string = True
        tags.input_tags.allow_nan = True
        return tags


def with_index(frame, X, index):
    """Return a frame with the index of another if ``index="keep"``, otherwise with its own.

    Raises
    ------
    PublicValueError
        ``index`` is neither "reset" nor "keep".
    """
    if index not in ("reset", "keep"):
        raise PublicValueError(f"index must be 'reset' or 'keep', got {index!r}.")
    keeps = index == "keep" and isinstance(X, pd.DataFrame)
    return frame.set_axis(X.index) if keeps else frame


def check_categories(encoder):
    """Check that a fitted encoder has categories or bins for every column."""
    bare = [n for n, column in encoder.columns_.items() if not isinstance(column, CategoryColumn)]
    if bare:
        raise PublicValueError(f"Columns without categories need bins: {bare}.")


def _encode(columns, frame):
    return np.hstack([column.encode(frame[name]) for name, column in columns.items()])
