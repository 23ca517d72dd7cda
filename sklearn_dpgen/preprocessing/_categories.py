"""From soft one-hot blocks to categories."""

import numpy as np

from sklearn_dpgen.domains import OneHot, Product

__all__ = ["draw_categories"]


def draw_categories(domain, X, rng):
    """Draw one vertex of every one-hot block, with the block's weights as probabilities.

    Parameters
    ----------
    domain : Domain
        The domain of the rows.
    X : ndarray of shape (n_samples, n_features)
        Points of the domain, with soft blocks.
    rng : numpy.random.Generator

    Returns
    -------
    ndarray of shape (n_samples, n_features)
        The same points with hard blocks; the rest is untouched.
    """
    if isinstance(domain, OneHot):
        edges = np.cumsum(X, axis=1)
        draws = rng.uniform(size=(len(X), 1)) * edges[:, -1:]
        drawn = np.zeros(X.shape)
        drawn[np.arange(len(X)), (draws > edges[:, :-1]).sum(axis=1)] = 1
        return drawn
    if isinstance(domain, Product):
        stops = np.cumsum([factor.n_features for factor in domain.domains])[:-1]
        blocks = np.split(X, stops, axis=1)
        return np.hstack(
            [
                draw_categories(f, block, rng)
                for f, block in zip(domain.domains, blocks, strict=True)
            ]
        )
    return X
