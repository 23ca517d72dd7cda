"""The base class of domains, which project arrays and tensors."""

import math
import sys
from abc import ABC, abstractmethod
from dataclasses import fields
from fractions import Fraction
from numbers import Integral
from types import ModuleType
from typing import TYPE_CHECKING, Any, ClassVar, overload

import numpy as np
from numpy.typing import ArrayLike

from sklearn_dpgen.exceptions import PublicValueError

if TYPE_CHECKING:
    import torch

__all__ = [
    "Domain",
    "array_namespace",
    "check_size",
    "check_vector",
    "difference_above",
    "like",
    "norm_above",
    "norm_order",
    "short",
]


def norm_order(p):
    """Return ``p`` as 1, 2 or ``np.inf``."""
    if p not in (1, 2, np.inf):
        raise PublicValueError(f"p must be 1, 2 or np.inf, got {p!r}.")
    return np.inf if p == np.inf else int(p)


def norm_above(values, p):
    """Return an upper bound on the l_p norm of non-negative numbers, with rounding included."""
    if p == np.inf:
        return float(np.max(values))
    with np.errstate(over="ignore"):
        norm = float(np.sum(values)) if p == 1 else math.hypot(*values)
    if math.isinf(norm):
        return norm
    distinct, counts = np.unique(values, return_counts=True)
    pairs = zip(distinct.tolist(), counts.tolist(), strict=True)
    exact = sum(count * Fraction(value) ** p for value, count in pairs)
    while Fraction(norm) ** p < exact:
        norm = math.nextafter(norm, math.inf)
    return norm


def difference_above(high, low):
    """Return upper bounds on ``high - low``, entry by entry, with rounding included."""
    difference = high - low
    # The rounding error of the subtraction, exactly (Knuth's two-sum).
    back = difference - high
    lost = (high - (difference - back)) - (low + back)
    return np.where(lost > 0, np.nextafter(difference, np.inf), difference)


def check_vector(values, name, n_features):
    """Return ``values`` as a finite read-only vector; a scalar is repeated ``n_features`` times."""
    vector = np.array(values, dtype=np.float64)
    if vector.ndim > 1:
        raise PublicValueError(
            f"{name} must be a scalar or a vector, got {vector.ndim} dimensions."
        )
    if not np.isfinite(vector).all():
        raise PublicValueError(f"{name} must be finite.")
    if vector.ndim and n_features is not None and len(vector) != n_features:
        raise PublicValueError(f"{name} must have {n_features} features, got {len(vector)}.")
    if vector.ndim == 0:
        vector = np.full(1 if n_features is None else n_features, vector)
    vector.flags.writeable = False
    return vector


def check_size(value, name, minimum):
    """Return a checked number of features or categories of at least ``minimum``, as an int."""
    if isinstance(value, bool) or not isinstance(value, Integral) or value < minimum:
        raise PublicValueError(f"{name} must be an integer of at least {minimum}, got {value!r}.")
    return int(value)


def short(vector):
    """Return a vector as text of bounded length."""
    if (vector == vector[0]).all():
        return repr(float(vector[0]))
    return np.array2string(vector, threshold=6, edgeitems=2, separator=", ")


def array_namespace(X: object) -> ModuleType:
    """Return ``torch`` for a tensor and ``numpy`` for anything else, without importing torch."""
    torch = sys.modules.get("torch")
    return torch if torch is not None and isinstance(X, torch.Tensor) else np


def like(values, X):
    """Return ``values`` with the kind, dtype and device of ``X``."""
    if array_namespace(X) is np:
        return np.asarray(values, dtype=X.dtype)
    from sklearn_dpgen.utils._torch import as_tensor

    return as_tensor(values, device=X.device, dtype=X.dtype)


class Domain(ABC):
    """Base class of the domains, which are immutable and compared by value.

    Attributes
    ----------
    n_features : int
        The width of a record.
    """

    if TYPE_CHECKING:
        # A field in some domains, a property in others.
        __dataclass_fields__: ClassVar[dict[str, Any]]

        @property
        @abstractmethod
        def n_features(self) -> int: ...

    @abstractmethod
    def _project(self, X, xp):
        """Project rows of the right width without NaN; ``xp`` is NumPy or torch."""

    @abstractmethod
    def diameter(self, p: float) -> float:
        """Return the supremum of ``||x - x'||_p`` over the domain, rounded up.

        The distance of two rows that `project` returns in float64 does not exceed it, in exact
        arithmetic.

        Parameters
        ----------
        p : {1, 2, np.inf}
            1 calibrates Laplace noise, 2 Gaussian noise.

        Returns
        -------
        float
        """

    @abstractmethod
    def sample(self, n: int, rng: np.random.Generator) -> np.ndarray:
        """Draw ``n`` records uniformly from the domain.

        Parameters
        ----------
        n : int
        rng : numpy.random.Generator

        Returns
        -------
        ndarray of shape (n, n_features)
        """

    @overload
    def project(self, X: "torch.Tensor") -> "torch.Tensor": ...

    @overload
    def project(self, X: ArrayLike) -> np.ndarray: ...

    def project(self, X: "ArrayLike | torch.Tensor") -> "np.ndarray | torch.Tensor":
        """Return the nearest point of the domain, in Euclidean distance, to each row.

        Parameters
        ----------
        X : array-like or tensor of shape (n, n_features)
            Infinite entries are limits of large ones.

        Returns
        -------
        ndarray or tensor of shape (n, n_features)
            Same kind and dtype as ``X`` (integers become float64); inside the domain, in narrower
            dtypes up to their rounding. For a tensor, differentiable almost everywhere.

        Raises
        ------
        PublicValueError
            ``X`` has another number of features, or contains NaN.
        """
        X, xp = self._rows(X)
        if xp.isnan(X).any():
            raise PublicValueError("X must not contain NaN, which has no projection on a domain.")
        return self._project(X, xp)

    def contains(
        self, X: "ArrayLike | torch.Tensor", tol: float = 1e-6
    ) -> "np.ndarray | torch.Tensor":
        """Return whether each row is within ``tol * (1 + max|x|)`` of its projection.

        Parameters
        ----------
        X : array-like or tensor of shape (n, n_features)
        tol : float, default=1e-6

        Returns
        -------
        boolean ndarray or tensor of shape (n,)
            False for a row that is not finite.
        """
        X, xp = self._rows(X)
        finite = xp.isfinite(X).all(axis=1)
        X = xp.where(finite[:, None], X, xp.zeros_like(X))
        gap = xp.amax(abs(X - self._project(X, xp)), axis=1)
        return finite & (gap <= tol * (1 + xp.amax(abs(X), axis=1)))

    def _rows(self, X):
        xp = array_namespace(X)
        if xp is np:
            X = np.asarray(X)
            if X.dtype.kind not in "biuf":
                raise PublicValueError(f"X must be numeric, got dtype {X.dtype}.")
            X = X if X.dtype.kind == "f" else X.astype(np.float64)
        elif not X.is_floating_point():
            X = X.double()
        if X.ndim != 2:
            raise PublicValueError(
                f"X must be of shape (n, n_features), got {X.ndim} dimension(s)."
            )
        if X.shape[1] != self.n_features:
            raise PublicValueError(f"domain has {self.n_features} features, X has {X.shape[1]}.")
        return X, xp

    def _values(self):
        return tuple(getattr(self, field.name) for field in fields(self))

    def _key(self):
        return tuple(tuple(v.tolist()) if isinstance(v, np.ndarray) else v for v in self._values())

    def __reduce__(self):
        # The constructor makes the arrays of a copy read-only.
        return type(self), self._values()

    def __eq__(self, other):
        return type(self) is type(other) and self._key() == other._key()

    def __hash__(self):
        return hash((type(self), self._key()))
