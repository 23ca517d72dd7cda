"""Domains side by side."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from sklearn_dpgen.domains._base import Domain
from sklearn_dpgen.domains._parameters import norm_above, norm_order
from sklearn_dpgen.exceptions import PublicValueError
from sklearn_dpgen.persistence._declarations import saved

__all__ = ["Product"]


@saved
@dataclass(frozen=True, eq=False)
class Product(Domain):
    """The product of domains, one after the other along the features.

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
