"""One category among several."""

from dataclasses import dataclass

import numpy as np

from sklearn_dpgen.domains._base import Domain, like
from sklearn_dpgen.domains._parameters import check_size, norm_above, norm_order
from sklearn_dpgen.persistence._declarations import saved

__all__ = ["OneHot"]


@saved
@dataclass(frozen=True, eq=False)
class OneHot(Domain):
    """The vertices of the simplex: one category among ``n_categories``.

    The projection is the vertex of the largest entry, the first one in a tie. It is piecewise
    constant: no gradient flows through it.

    Parameters
    ----------
    n_categories : int
        At least 1: a single one is a point.
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
