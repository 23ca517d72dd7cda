"""Boxes, one-hot blocks, and Cartesian products of domains."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike

from sklearn_dpgen.domains._base import (
    Domain,
    check_size,
    check_vector,
    difference_above,
    like,
    norm_above,
    norm_order,
    short,
)
from sklearn_dpgen.exceptions import PublicValueError
from sklearn_dpgen.persistence._declarations import Array, saved

__all__ = ["Box", "OneHot", "Product"]


@saved
@dataclass(frozen=True, eq=False, repr=False, init=False)
class Box(Domain):
    """The box ``[low, high]``, with one interval for each feature.

    Parameters
    ----------
    low, high : float or array-like of shape (n_features,)
        Public bounds, ``low < high`` in every feature.
    n_features : int, optional
        Repeats scalar bounds; scalars without it declare one feature.

    Examples
    --------
    >>> from sklearn_dpgen.domains import Box
    >>> Box(-1, 1, n_features=784).diameter(2)
    56.0
    """

    # A file with scalars and a number of features could make loading allocate much memory.
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


@saved
@dataclass(frozen=True, eq=False)
class OneHot(Domain):
    """The vertices of the simplex, as one-hot codes of ``n_categories`` categories.

    The projection is the vertex of the largest entry, the first in a tie. It is piecewise constant,
    so it has no gradient.

    Parameters
    ----------
    n_categories : int
        At least 1; a single category is a point.
    """

    n_categories: int

    def __post_init__(self):
        object.__setattr__(self, "n_categories", check_size(self.n_categories, "n_categories", 1))

    @property
    def n_features(self) -> int:
        """The width of a record, ``n_categories``."""
        return self.n_categories

    def _project(self, X, xp):
        index = like(np.arange(self.n_categories), X)
        return like(X.argmax(axis=1)[:, None] == index, X)

    def diameter(self, p: float) -> float:
        return norm_above(np.ones(2) * (self.n_categories > 1), norm_order(p))

    def sample(self, n: int, rng: np.random.Generator) -> np.ndarray:
        return np.eye(self.n_categories)[rng.integers(self.n_categories, size=n)]


@saved
@dataclass(frozen=True, eq=False)
class Product(Domain):
    """The Cartesian product of domains, with their features concatenated.

    Parameters
    ----------
    domains : sequence of Domain
    """

    _saved_state = {"domains": tuple[Domain, ...]}

    domains: Sequence[Domain]

    def __post_init__(self):
        domains = tuple(self.domains)
        if not domains or not all(isinstance(domain, Domain) for domain in domains):
            raise PublicValueError("domains must be a non-empty sequence of domains.")
        object.__setattr__(self, "domains", domains)

    @property
    def n_features(self) -> int:
        """The width of a record, the sum over the factors."""
        return sum(domain.n_features for domain in self.domains)

    @property
    def slices(self) -> list[slice]:
        """The features of each factor, a list of slices."""
        ends = np.cumsum([domain.n_features for domain in self.domains]).tolist()
        return [slice(start, stop) for start, stop in zip([0, *ends], ends, strict=False)]

    def _project(self, X, xp):
        parts = zip(self.domains, self.slices, strict=True)
        return xp.concatenate([domain._project(X[:, part], xp) for domain, part in parts], axis=1)

    def diameter(self, p: float) -> float:
        diameters = [domain.diameter(p) for domain in self.domains]
        return norm_above(diameters, norm_order(p))

    def sample(self, n: int, rng: np.random.Generator) -> np.ndarray:
        return np.hstack([domain.sample(n, rng) for domain in self.domains])
