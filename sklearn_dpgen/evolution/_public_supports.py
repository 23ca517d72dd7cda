"""Public supports of the private signed measure mechanism."""

import numpy as np
from numpy.typing import ArrayLike
from sklearn.cluster import KMeans, MiniBatchKMeans

from sklearn_dpgen.domains import Ball, Box
from sklearn_dpgen.utils._validation import Integral, check_array

__all__ = ["grid_support", "kmeans_support"]

# Beyond this many samples k-means reads batches of them.
_MAX_FULL_SAMPLES = 10_000
# Cells of the box around a domain, for each point asked for, at most.
_MAX_REFINEMENT = 64


def grid_support(domain: Box | Ball, n_points: int) -> np.ndarray:
    """Return the points of a regular grid over a domain.

    The box around the domain is cut into cells, as close to cubes as their number allows; the
    points are the centers of those that meet the domain, or the nearest points of the domain to
    them. So every record of the domain is within half the diagonal of a cell of a point.

    Parameters
    ----------
    domain : Box or Ball
    n_points : int
        The largest number of points. Cutting one axis more would exceed it.

    Returns
    -------
    ndarray of shape (m, n_features)
        ``1 <= m <= n_points`` distinct points.

    Raises
    ------
    TypeError
        For any other domain: see :func:`kmeans_support`, or draw candidates from a sampler.
    """
    _check_n_points(n_points)
    if isinstance(domain, Box):
        low, high = domain.low, domain.high
    elif isinstance(domain, Ball):
        low, high = domain.center - domain.radius, domain.center + domain.radius
    else:
        raise TypeError(f"A grid needs a Box or a Ball, domain is a {type(domain).__name__}.")
    n_cells = n_points
    points = _grid(domain, low, high, _cuts(high - low, n_cells))
    # Cells that miss the domain leave room for finer ones.
    while (n_cells := max(n_cells + 1, int(1.1 * n_cells))) <= _MAX_REFINEMENT * n_points:
        finer = _grid(domain, low, high, _cuts(high - low, n_cells))
        if len(finer) > n_points:
            break
        points = finer
    return points


def kmeans_support(
    X_public: ArrayLike, n_points: int, *, random_state: int | np.random.RandomState | None = None
) -> np.ndarray:
    """Return the k-means centers of public samples.

    Parameters
    ----------
    X_public : array-like of shape (n_samples, n_features)
        Samples that are no secret: nothing here protects them. Centers are means of samples, so the
        domain of these should be convex.
    n_points : int
        At most the number of distinct samples.
    random_state : None, int or RandomState, default=None

    Returns
    -------
    ndarray of shape (n_points, n_features)
        In lexicographic order; fewer in the rare event of equal centers.
    """
    _check_n_points(n_points)
    X_public = check_array(X_public, dtype=np.float64, input_name="X_public")
    n_distinct = len(np.unique(X_public, axis=0))
    if n_distinct < n_points:
        raise ValueError(
            f"n_points must be at most the {n_distinct} distinct samples of X_public, "
            f"got {n_points}."
        )
    kmeans = KMeans if len(X_public) <= _MAX_FULL_SAMPLES else MiniBatchKMeans
    model = kmeans(n_clusters=n_points, n_init=1, random_state=random_state)
    return np.unique(model.fit(X_public).cluster_centers_, axis=0)


def _cuts(extent, n_cells):
    """Return into how many intervals to cut each axis, for at most ``n_cells`` cells."""
    cuts = np.ones(len(extent), dtype=np.int64)
    while True:
        longest = np.argmax(extent / cuts)
        if np.prod(cuts) // cuts[longest] * (cuts[longest] + 1) > n_cells:
            return cuts
        cuts[longest] += 1


def _grid(domain, low, high, cuts):
    """Return the centers of the cells that meet a domain, projected on it."""
    half = (high - low) / cuts / 2
    centers, cell = np.empty((np.prod(cuts), len(cuts))), np.arange(np.prod(cuts))
    for j, n in enumerate(cuts):
        centers[:, j] = low[j] + half[j] * (2 * (cell % n) + 1)
        cell //= n
    middle = (low + high) / 2
    nearest = np.clip(middle, centers - half, centers + half)
    return np.unique(domain.project(centers[domain.contains(nearest)]), axis=0)


def _check_n_points(n_points):
    if isinstance(n_points, bool) or not isinstance(n_points, Integral) or n_points < 1:
        raise ValueError(f"n_points must be an integer of at least 1, got {n_points!r}.")
