"""Data frames of other libraries: detection, conversion to pandas, and back."""

from typing import TYPE_CHECKING, Any, Literal, Self

import narwhals.stable.v2 as nw
import pandas as pd

from sklearn_dpgen.exceptions import PublicValueError
from sklearn_dpgen.persistence._declarations import Maybe

if TYPE_CHECKING:
    # A mixin uses the attributes of the estimator.
    from sklearn.base import BaseEstimator as EstimatorMixin
else:
    EstimatorMixin = object

__all__ = ["FramesMixin", "as_pandas", "as_pandas_or_arrow", "frame_columns", "frame_kind"]

# Their frames may be larger than memory, so samples are returned as pandas frames.
_ENGINES = ("dask", "dask_expr", "pyspark", "ray")


def frame_kind(X):
    """Return the kind of frame in which synthetic records like the given ones are returned.

    Parameters
    ----------
    X : object
        A table of any kind.

    Returns
    -------
    {"pandas", "polars", "pyarrow"}
        Arrow streams, as of DuckDB, and data sets give tables of pyarrow; other tables, such as
        those of Spark, give pandas frames.
    """
    if isinstance(X, list | tuple) and X:
        return frame_kind(X[0])
    X = nw.to_native(X, pass_through=True)
    package = type(X).__module__.partition(".")[0]
    if package == "polars":
        return "polars"
    if isinstance(X, pd.DataFrame | pd.Series) or package in _ENGINES:
        return "pandas"
    is_dataset = package == "pyarrow" and hasattr(X, "scanner")
    # Only the type is checked, as an element of a list may be a record.
    return "pyarrow" if is_dataset or hasattr(type(X), "__arrow_c_stream__") else "pandas"


def frame_columns(X):
    """Return the names of the columns of a frame in memory, or None for an array or another."""
    if isinstance(X, pd.DataFrame):
        return list(X.columns)
    frame = nw.from_native(X, eager_only=True, pass_through=True)
    return frame.columns if isinstance(frame, nw.DataFrame) else None


def as_pandas(X):
    """Return an in-memory frame of another library as a pandas frame; others unchanged."""
    if isinstance(X, pd.DataFrame):
        return X
    frame = nw.from_native(X, eager_only=True, pass_through=True)
    return frame.to_pandas() if isinstance(frame, nw.DataFrame) else X


def as_pandas_or_arrow(X):
    """Return a pandas frame, or an in-memory frame of another library as a table of Arrow, or None.

    In a pandas frame integers beside nulls would be floats, which merge those above 2^53.
    """
    if isinstance(X, pd.DataFrame):
        return X
    frame = nw.from_native(X, eager_only=True, pass_through=True)
    return frame.to_arrow() if isinstance(frame, nw.DataFrame) else None


class FramesMixin(EstimatorMixin):
    """Mixin of samplers that return the kind of frame on which they were fitted."""

    _saved_state: dict = {
        "_frame_kind": Maybe(Literal["pandas", "polars", "pyarrow"]),
        "_sklearn_output_config": Maybe(dict[str, str]),
    }
    _frame_kind = "pandas"

    def set_output(self, *, transform: str | None = None) -> Self:
        """Set the kind of frames that ``sample`` returns.

        Parameters
        ----------
        transform : {"default", "pandas", "polars", "pyarrow"} or None, default=None
            "default" is the kind of the fit. None changes nothing. The name is that of
            scikit-learn's transformers, whose ``set_config(transform_output=...)`` applies too.

        Returns
        -------
        self
        """
        if transform not in (None, "default", "pandas", "polars", "pyarrow"):
            raise PublicValueError(
                f"transform must be 'default', 'pandas', 'polars' or 'pyarrow', got {transform!r}."
            )
        if transform is not None:
            self._sklearn_output_config = {"transform": transform}
        return self

    def _learn_kind(self, X):
        """Store the kind of frame of a fit."""
        self._frame_kind = frame_kind(X)

    def _given_back(self, frame: Any, fitted: str | None = None) -> Any:
        """Return a pandas frame as the requested kind, or as that of the fit; arrays unchanged."""
        from sklearn_dpgen.utils._validation import output_kind

        kind = output_kind(self)
        kind = (fitted or self._frame_kind) if kind == "default" else kind
        if not isinstance(frame, pd.DataFrame) or kind == "pandas":
            return frame
        mixed = [name for name, column in frame.items() if _is_mixed(column)]
        if mixed:
            raise PublicValueError(
                f"Columns {mixed} have labels of several types, which frames of {kind} cannot "
                "hold: set_output(transform='pandas')."
            )
        frame = nw.from_native(frame, eager_only=True)
        return frame.to_polars() if kind == "polars" else frame.to_arrow()


def _is_mixed(column):
    if column.dtype != object:
        return False
    return len({type(value) for value in column if value is not None}) > 1
