"""Data frames to arrays inside the domain of a schema, and back."""

from collections.abc import Mapping

import numpy as np
import pandas as pd
from sklearn.base import BaseEstimator, TransformerMixin

from sklearn_dpgen.domains import Product
from sklearn_dpgen.schema import Datetime, Numeric, Schema
from sklearn_dpgen.schema._binned import bin_column
from sklearn_dpgen.utils._validation import Integral, check_array, check_is_fitted, fit_context

__all__ = ["TabularEncoder"]


class TabularEncoder(TransformerMixin, BaseEstimator):
    """Encode the records of a table as points of a public domain.

    Numbers and dates are scaled by their declared bounds to [-1, 1] (clipped, silently),
    categories become one-hot blocks. Nothing is learned from records: `fit` reads the column
    names and the dtypes, no value, and needs no data at all.

    Parameters
    ----------
    schema : Schema
        The public declaration of the columns.
    bins : None, int or mapping, default=None
        Public bins for numbers and dates, which then become one-hot blocks too: for each a number
        of equal bins, or ``{column: number or edges}`` for the columns that it names. A bin
        narrower than 1/20000 of the range is decoded to its number with the fewest decimals.

    Attributes
    ----------
    columns_ : dict of str to Column
        The columns as they are encoded, binned where asked.
    domain_ : Product
        The set that encoded records lie in.
    blocks_ : dict of str to slice
        The encoded features of each column.
    dtypes_ : dict of str to dtype
        What `inverse_transform` returns.
    n_features_in_ : int
        The number of columns.
    feature_names_in_ : ndarray of str
        The names of the columns, in the order of the fitted frame, or of the schema if an array
        or nothing was fitted.

    Notes
    -----
    The dtype of each column of the fitted frame counts as public. Two traps are closed: a
    categorical dtype comes back with the declared categories, not with those that occurred, and
    a nullable column held in NumPy comes back as float64 (object for bools) whether or not a
    null occurred. What reads a file may still infer a dtype from the records, as
    ``pandas.read_csv`` does to tell integers from floats: pass it ``dtype``.

    Examples
    --------
    >>> import pandas as pd
    >>> from sklearn_dpgen.preprocessing import TabularEncoder
    >>> from sklearn_dpgen.schema import Categorical, Numeric, Schema
    >>> schema = Schema({"age": Numeric(0, 100), "smoker": Categorical(["no", "yes"])})
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

    _parameter_constraints: dict = {"schema": [Schema], "bins": [None, Integral, Mapping]}

    def __init__(self, schema, *, bins=None):
        self.schema = schema
        self.bins = bins

    @fit_context(prefer_skip_nested_validation=True)
    def fit(self, X=None, y=None):
        """Read the names and dtypes of the columns.

        Parameters
        ----------
        X : DataFrame of shape (n, n_columns), array-like or None
            A frame's columns are matched by name, in any order, and must be those of the
            schema; an array's by position. An array, and None, take the dtypes that the schema
            implies. Noisy records of a frame serve as well as the raw ones.
        y : ignored

        Returns
        -------
        self
        """
        schema = self.schema
        dtypes, names = {}, list(schema)
        if X is not None:
            frame = self._as_frame(X)
            if isinstance(X, pd.DataFrame):
                dtypes, names = dict(frame.dtypes), list(X.columns)
        self.dtypes_ = {
            name: schema[name].decoded_dtype(dtypes.get(name), name=name) for name in names
        }
        self.columns_ = self._binned_columns()
        self.domain_ = Product([column.domain for column in self.columns_.values()])
        self.blocks_ = dict(zip(schema, self.domain_.slices, strict=True))
        self.n_features_in_ = len(names)
        self.feature_names_in_ = np.array(names, dtype=object)
        return self

    def transform(self, X):
        """Encode records.

        Parameters
        ----------
        X : DataFrame or array-like of shape (n, n_columns)

        Returns
        -------
        ndarray of shape (n, domain_.n_features), float64
            Columns in the order of the schema.

        Raises
        ------
        ValueError
            Naming the column that is missing or unknown, has nulls without being nullable,
            or holds a value outside the declared ones.
        """
        check_is_fitted(self)
        frame = self._as_frame(X)
        return np.hstack([column.encode(frame[name]) for name, column in self.columns_.items()])

    def inverse_transform(self, X, *, rng=None):
        """Decode points into records, clipped and rounded as the schema declares.

        Parameters
        ----------
        X : array-like of shape (n, domain_.n_features)
            Need not lie in the domain: of a block of categories, the largest entry wins.
        rng : numpy.random.Generator or NoiseSource, optional
            Places values uniformly within their bins; by default they are in the middle.

        Returns
        -------
        DataFrame of shape (n, n_columns)
            With the fitted columns and the dtypes ``dtypes_``.
        """
        check_is_fitted(self)
        array = check_array(X, dtype=np.float64)
        if array.shape[1] != self.domain_.n_features:
            width = self.domain_.n_features
            raise ValueError(f"The schema encodes {width} features, X has {array.shape[1]}.")
        index = X.index if isinstance(X, pd.DataFrame) else None
        series = {
            name: self.columns_[name].decode(
                array[:, self.blocks_[name]], dtype=dtype, name=name, index=index, rng=rng
            )
            for name, dtype in self.dtypes_.items()
        }
        return pd.DataFrame(series)

    def get_feature_names_out(self, input_features=None):
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
            raise ValueError("input_features is not equal to feature_names_in_")
        return np.array(
            [f for name, column in self.columns_.items() for f in column.feature_names(name)],
            dtype=object,
        )

    def _binned_columns(self):
        bins = self.bins
        if isinstance(bins, Mapping):
            unknown = [name for name in bins if name not in self.schema]
            if unknown:
                raise ValueError(f"bins names columns that the schema does not: {unknown}.")
        elif bins is not None:
            bins = {n: bins for n, c in self.schema.items() if isinstance(c, Numeric | Datetime)}
        else:
            bins = {}
        return {n: bin_column(n, column, bins.get(n)) for n, column in self.schema.items()}

    def _as_frame(self, X):
        """Return records as a frame with the columns of the schema, in its order."""
        names = list(self.schema)
        if isinstance(X, pd.DataFrame):
            missing = [name for name in names if name not in X.columns]
            unknown = [name for name in X.columns if name not in self.schema]
            if missing or unknown or not X.columns.is_unique:
                raise ValueError(
                    f"The columns must be those of the schema, each once: "
                    f"missing {missing}, unknown {unknown}."
                )
            X = X[names]
        else:
            dtype = None if hasattr(X, "dtype") else object
            X = check_array(X, dtype=dtype, ensure_all_finite=False, estimator=self)
            if X.shape[1] != len(names):
                raise ValueError(
                    f"X has {X.shape[1]} features, but {type(self).__name__} is expecting "
                    f"{len(names)} features as input, the columns of the schema."
                )
            X = pd.DataFrame(X, columns=names)
        if len(X) == 0:
            raise ValueError("Found array with 0 sample(s) while a minimum of 1 is required.")
        return X

    def __sklearn_tags__(self):
        tags = super().__sklearn_tags__()
        tags.input_tags.categorical = True
        tags.input_tags.string = True
        tags.input_tags.allow_nan = True
        return tags
