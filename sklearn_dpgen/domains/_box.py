"""Intervals, one a feature."""

from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike

from sklearn_dpgen.domains._base import Domain, like
from sklearn_dpgen.domains._parameters import (
    check_size,
    check_vector,
    difference_above,
    norm_above,
    norm_order,
    short,
)
from sklearn_dpgen.exceptions import PublicValueError
from sklearn_dpgen.persistence._declarations import Array, saved

__all__ = ["Box"]


@saved
@dataclass(frozen=True, eq=False, repr=False, init=False)
class Box(Domain):
    """The box ``[low, high]``, one interval a feature.

    Parameters
    ----------
    low, high : float or array-like of shape (n_features,)
        Public bounds, ``low < high`` in every feature.
    n_features : int, optional
        Repeats scalar bounds; two scalars alone declare one feature.

    Examples
    --------
    >>> from sklearn_dpgen.domains import Box
    >>> Box(-1, 1, n_features=784).diameter(2)
    56.0
    """

    # With scalars and a width, a small file could ask for much memory.
    _saved_state = {"low": Array("f", 1), "high": Array("f", 1), "n_features": int}

    low: np.ndarray
    high: np.ndarray
    n_features: int

    def __init__(self, low: ArrayLike, high: ArrayLike, n_features: int | None = None) -> None:
        if n_features is not None:
            n_features = check_size(n_features, "n_features", 1)
        else:
            n_features = max(np.size(low), np.size(high))
        low = check_vector(low, "low", n_features)
        high = check_vector(high, "high", n_features)
        with np.errstate(over="ignore"):
            extent = high - low
        if not ((extent > 0) & np.isfinite(extent)).all():
            raise PublicValueError(
                "low must be smaller than high, by a finite amount, in every feature."
            )
        for name, value in (("low", low), ("high", high), ("n_features", n_features)):
            object.__setattr__(self, name, value)

    def _project(self, X, xp):
        return xp.clip(X, like(self.low, X), like(self.high, X))

    def diameter(self, p: float) -> float:
        return norm_above(difference_above(self.high, self.low), norm_order(p))

    def sample(self, n: int, rng: np.random.Generator) -> np.ndarray:
        return rng.uniform(self.low, self.high, size=(n, self.n_features))

    def __repr__(self):
        width = f", n_features={self.n_features}" if self.n_features > 1 else ""
        return f"Box(low={short(self.low)}, high={short(self.high)}{width})"
