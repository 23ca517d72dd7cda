"""Mixtures of laws with independent columns."""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Self

import numpy as np

from sklearn_dpgen.domains import Product
from sklearn_dpgen.persistence._declarations import Array, demand, is_distribution, saved
from sklearn_dpgen.tables._draws import RARE, category_counts, draw_weighted

__all__ = ["ProductMixture"]


@saved
@dataclass(frozen=True)
class ProductMixture:
    """A mixture whose components have independent columns.

    Parameters
    ----------
    domain : Product of OneHot
        Of the encoded records: a block of categories for each column.
    shares : ndarray of shape (k,)
        Probabilities of the components.
    probabilities : ndarray of shape (k, domain.n_features)
        Of the categories of each column in each component.
    """

    _saved_state = {
        "domain": Product,
        "shares": Array("f", 1, low=0),
        "probabilities": Array("f", 2, low=0),
    }

    domain: Product
    shares: np.ndarray
    probabilities: np.ndarray

    def _check_saved_state(self):
        category_counts(self.domain)
        demand(is_distribution(self.shares), "The shares of a mixture do not sum to one.")
        shape = (len(self.shares), self.domain.n_features)
        demand(self.probabilities.shape == shape, "A mixture has probabilities of other columns.")
        for part in self.domain.slices:
            sums = self.probabilities[self.shares > 0, part].sum(axis=1)
            demand((sums > 0).all(), "A mixture has a column without categories.")

    def sample(self, n: int, rng: np.random.Generator) -> np.ndarray:
        """Draw records.

        Parameters
        ----------
        n : int
        rng : numpy.random.Generator

        Returns
        -------
        ndarray of int64 of shape (n, p)
            The category of each record in each column.
        """
        components = rng.choice(len(self.shares), size=n, p=self.shares)
        codes = np.empty((n, len(self.domain.slices)), dtype=np.int64)
        for column, part in enumerate(self.domain.slices):
            size = part.stop - part.start
            owners = np.repeat(np.arange(len(self.shares)), size)
            weights = self.probabilities[:, part].ravel()
            codes[:, column] = draw_weighted(owners, weights, components, rng) % size
        return codes

    def restricted(self, allowed: Mapping) -> Self | None:
        """Return the law of the records that fulfil independent conditions on columns.

        Parameters
        ----------
        allowed : mapping of int to ndarray
            Of a column, the part of each category that is allowed, from 0 to 1.

        Returns
        -------
        ProductMixture or None
            Components weighted by their probabilities of the condition, with the other categories
            taken out; None where fewer than one in a billion records fulfil it.
        """
        shares, probabilities = self.shares, self.probabilities.copy()
        for column, parts in allowed.items():
            block = probabilities[:, self.domain.slices[column]]
            wanted = block * parts
            sums = wanted.sum(axis=1, keepdims=True)
            # A component that cannot fulfil it has weight 0, whatever it holds.
            np.divide(wanted, sums, where=sums > 0, out=block)
            shares = shares * sums[:, 0]
        total = shares.sum()
        return (
            None
            if total < RARE
            else replace(self, shares=shares / total, probabilities=probabilities)
        )

    @property
    def effective_size(self) -> float:
        """(Σ w)² / Σ w² of the shares w of the components."""
        return float(self.shares.sum() ** 2 / (self.shares**2).sum())
