"""Mixtures of laws with independent columns."""

from dataclasses import dataclass

import numpy as np

from sklearn_dpgen.domains import Product
from sklearn_dpgen.preprocessing._categories import draw_categories

__all__ = ["ProductMixture"]

# What every category keeps where a record is assigned, so that none is impossible.
_FLOOR = 1e-3


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

    domain: Product
    shares: np.ndarray
    probabilities: np.ndarray

    def sample(self, n: int, rng: np.random.Generator) -> np.ndarray:
        """Draw encoded records.

        Parameters
        ----------
        n : int
        rng : numpy.random.Generator

        Returns
        -------
        ndarray of shape (n, domain.n_features)
        """
        components = rng.choice(len(self.shares), size=n, p=self.shares)
        return draw_categories(self.domain, self.probabilities[components], rng)

    def log_joint(self, X: np.ndarray) -> np.ndarray:
        """Return the log probability of each component together with each record, (n, k).

        Of a block of categories, the first of the largest entries counts. A record's row depends
        on the record alone, to the last bit: a product of matrices rounds it by its position.
        """
        widths = [part.stop - part.start for part in self.domain.slices]
        uniform = np.repeat(1 / np.array(widths), widths)
        logs = np.log((1 - _FLOOR) * self.probabilities + _FLOOR * uniform).T
        joint = np.tile(np.log(np.maximum(self.shares, _FLOOR)), (len(X), 1))
        for part in self.domain.slices:
            joint += logs[part][X[:, part].argmax(axis=1)]
        return joint

    def assign(self, X: np.ndarray) -> np.ndarray:
        """Return the likeliest component of each record: one, whatever the others are."""
        return self.log_joint(X).argmax(axis=1)
