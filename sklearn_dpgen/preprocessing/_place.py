"""PlaceEncoder: encodes two coordinates as one key of a quadtree, and decodes them."""

from collections.abc import Mapping
from itertools import product
from typing import Self

import numpy as np
import pandas as pd
from sklearn.base import BaseEstimator, TransformerMixin

from sklearn_dpgen.exceptions import PublicValueError
from sklearn_dpgen.schema import Categorical, Numeric
from sklearn_dpgen.schema._binned import bin_column
from sklearn_dpgen.utils._frames import as_pandas
from sklearn_dpgen.utils._random import NoiseSource, split_random_state
from sklearn_dpgen.utils._validation import Integral, Interval, ParametersMixin, fit_context

__all__ = ["PlaceEncoder"]

# 65,536 keys; a level more has more than a column of a sampler may have.
_DEEPEST = 8


class PlaceEncoder(ParametersMixin, TransformerMixin, BaseEstimator):
    """Encode two coordinates as one column of keys, which name the squares of a quadtree.

    The rectangle between the declared bounds is divided in four equal parts, each of these in four,
    and so on. A key has one digit a level: 2 in the upper half of the first coordinate, plus 1 in
    the upper half of the second. So its prefixes name wider rectangles, and ``column_`` declares
    them as a hierarchy. Nothing is learned from records.

    Parameters
    ----------
    columns : mapping of str to Numeric
        The names of the two coordinates, and their public declarations. Values outside of the
        bounds are clipped, silently. Both are nullable or neither is.
    depth : int, default=5
        The number of levels, from 1 to 8. There are 4 ** depth keys, on a grid of 2 ** depth
        intervals of each coordinate.
    name : str, default="place"
        The name of the column of keys.

    Attributes
    ----------
    column_ : Categorical
        The declaration of the column of keys, for a schema.

    See Also
    --------
    sklearn_dpgen.schema.Categorical : Labels with a hierarchy.

    Notes
    -----
    See :ref:`schema_places` for when keys are better than two columns of numbers.

    Examples
    --------
    >>> import pandas as pd
    >>> from sklearn_dpgen.preprocessing import PlaceEncoder
    >>> from sklearn_dpgen.schema import Numeric
    >>> globe = {"lat": Numeric(-90, 90), "long": Numeric(-180, 180)}
    >>> encoder = PlaceEncoder(globe, depth=3).fit()
    >>> towns = pd.DataFrame({"lat": [59.9, -33.9], "long": [10.8, 151.2], "size": [7, 53]})
    >>> keys = encoder.transform(towns)
    >>> keys
      place  size
    0   320     7
    1   131    53
    >>> encoder.inverse_transform(keys, random_state=0).round().columns.tolist()
    ['lat', 'long', 'size']
    """

    _parameter_constraints: dict = {
        "columns": [Mapping],
        "depth": [Interval(Integral, 1, _DEEPEST, closed="both")],
        "name": [str],
    }

    def __init__(
        self, columns: Mapping[str, Numeric], *, depth: int = 5, name: str = "place"
    ) -> None:
        self.columns = columns
        self.depth = depth
        self.name = name

    @fit_context(prefer_skip_nested_validation=True)
    def fit(self, X: object = None, y: object = None) -> Self:
        """Check the parameters; no records are read.

        Parameters
        ----------
        X : ignored
        y : ignored

        Returns
        -------
        self
        """
        self._axes()
        return self

    @property
    def column_(self) -> Categorical:
        nullable = self._axes()[0].nullable
        hierarchy = [*range(1, self.depth)] or None
        return Categorical(self._keys().tolist(), nullable=nullable, hierarchy=hierarchy)

    def transform(self, X: pd.DataFrame) -> pd.DataFrame:
        """Replace the coordinates by keys.

        Parameters
        ----------
        X : DataFrame of shape (n, n_columns)
            An in-memory frame of another library is converted to pandas.

        Returns
        -------
        DataFrame of shape (n, n_columns - 1)
            With the key in place of the first coordinate. It is missing if one of the two is.

        Raises
        ------
        PublicValueError
            A coordinate is not a column, is not a number, or is missing without being nullable.
        """
        axes = self._axes()
        frame, at = self._checked(X, list(self.columns), [self.name])
        first, second = (
            axis.codes(frame[name]) for name, axis in zip(self.columns, axes, strict=True)
        )
        missing = np.maximum(first, second) == 2**self.depth
        codes = np.zeros(len(frame), dtype=np.int64)
        for level in range(self.depth - 1, -1, -1):
            codes = 4 * codes + 2 * (first >> level & 1) + (second >> level & 1)
        keys = pd.Series(self._keys()[codes], index=frame.index, dtype=pd.Series(["0"]).dtype)
        rest = frame.drop(columns=list(self.columns))
        rest.insert(at, self.name, keys.mask(missing))
        return rest

    def inverse_transform(
        self, X: pd.DataFrame, *, random_state: int | np.random.RandomState | None = None
    ) -> pd.DataFrame:
        """Replace keys by coordinates drawn uniformly in their rectangles.

        Parameters
        ----------
        X : DataFrame of shape (n, n_columns)
            An in-memory frame of another library is converted to pandas.
        random_state : int, RandomState or None, default=None

        Returns
        -------
        DataFrame of shape (n, n_columns + 1)
            With the coordinates in place of the key, rounded as declared. Both are missing if the
            key is.

        Raises
        ------
        PublicValueError
            The key is not a column, or has a value that is not a key.
        """
        axes = self._axes()
        frame, at = self._checked(X, [self.name], list(self.columns))
        codes = self.column_.codes(frame[self.name])
        source = NoiseSource(split_random_state(random_state, 1)[0])
        rest = frame.drop(columns=self.name)
        for i, (name, axis) in enumerate(zip(self.columns, axes, strict=True)):
            # The first coordinate has the upper bits of the digits, the second the lower ones.
            bits = [codes >> 2 * level + 1 - i & 1 for level in range(self.depth)]
            places = sum(bit << level for level, bit in enumerate(bits))
            places = np.where(codes == 4**self.depth, 2**self.depth, places)
            values = axis.decode_codes(places, name=name, rng=source)
            rest.insert(at + i, name, values.set_axis(frame.index))
        return rest

    def _axes(self):
        """Return the two coordinates with their equal bins."""
        self._validate_params()
        if len(self.columns) != 2 or not all(
            isinstance(name, str) and isinstance(column, Numeric)
            for name, column in self.columns.items()
        ):
            raise PublicValueError("columns must map the names of two coordinates to Numeric.")
        if len({column.nullable for column in self.columns.values()}) > 1:
            raise PublicValueError("columns must both be nullable, or neither.")
        if self.name in self.columns:
            raise PublicValueError(f"name must not be one of the columns, got {self.name!r}.")
        for name, column in self.columns.items():
            if column.n_steps is not None and column.n_steps + 1 < 2**self.depth:
                raise PublicValueError(
                    f"depth must be at most {(column.n_steps + 1).bit_length() - 1}: column "
                    f"{name!r} has {column.n_steps + 1} values, got {self.depth}."
                )
        return [bin_column(name, part, 2**self.depth) for name, part in self.columns.items()]

    def _keys(self):
        """Return all keys, in order."""
        return np.array([*map("".join, product("0123", repeat=self.depth))], dtype=object)

    def _checked(self, X, replaced, new):
        """Return a frame, and the position at which columns replace others."""
        frame = as_pandas(X)
        if not isinstance(frame, pd.DataFrame):
            raise PublicValueError("X must be a data frame.")
        missing = [name for name in replaced if name not in frame]
        if missing:
            raise PublicValueError(f"X must have the columns {missing}.")
        present = [name for name in new if name in frame]
        if present:
            raise PublicValueError(f"X must not have the columns {present}, which are made of it.")
        others = [name not in replaced for name in frame]
        return frame, others.index(False)

    def __sklearn_is_fitted__(self):
        return True

    def __sklearn_tags__(self):
        tags = super().__sklearn_tags__()
        tags.requires_fit = False
        tags.input_tags.string = True
        tags.input_tags.allow_nan = True
        return tags
