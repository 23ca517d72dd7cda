"""Declarations made from the data of generic checks, for tests alone."""

import numpy as np

from sklearn_dpgen.schema import Numeric, Schema


class SchemaOfX:
    """A schema of as many bounded numbers as X has columns."""

    _names = ("x0",)

    @property
    def schema(self):
        return Schema({name: Numeric(-1e3, 1e3, nullable=True) for name in self._names})

    def fit(self, X, y=None):
        shape = np.asarray(X).shape
        n_columns = shape[1] if len(shape) == 2 else 1
        self._names = list(getattr(X, "columns", [f"x{i}" for i in range(n_columns)])) or ["x0"]
        return super().fit(X, y)


class ClassesOfY:
    """The classes that y has."""

    _labels = None

    @property
    def classes(self):
        return self._labels

    def fit(self, X, y=None):
        self._labels = None if y is None else np.unique(y)
        return super().fit(X, y)
