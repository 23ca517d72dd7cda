"""Counts of the categories of each column within cells, and the mixture that noisy ones tell of."""

import numpy as np

from sklearn_dpgen.evolution import project_simplex
from sklearn_dpgen.exceptions import PublicValueError
from sklearn_dpgen.schema import Ordinal
from sklearn_dpgen.schema._binned import Binned
from sklearn_dpgen.tables._product_mixture import ProductMixture

__all__ = [
    "estimate_mixture",
    "marginal_counts",
    "marginal_noise",
    "rank_embedding",
]


def marginal_counts(X, cells, n_cells, domain):
    """Count the categories of every column within every cell, with sensitivity sqrt(2).

    Parameters
    ----------
    X : array-like of shape (n, domain.n_features)
        Encoded records: of a block of categories, the first of the largest entries counts.
    cells : ndarray of int of shape (n,)
        Where each record is counted; negative or beyond ``n_cells`` raises.
    n_cells : int
    domain : Product of OneHot

    Returns
    -------
    ndarray of shape (n_cells * domain.n_features,)
        Counts over the square root of the number of columns. A record adds a vector of norm 1 with
        entries that are not negative. So replacing a record and its cell changes the result by at
        most sqrt(2) in l2, as it does the votes of a histogram.
    """
    X = np.asarray(X)
    parts = domain.slices
    counts = np.zeros((n_cells, domain.n_features))
    if cells.shape != (len(X),):
        raise PublicValueError("cells must hold one cell a record.")
    for part in parts:
        categories = part.start + X[:, part].argmax(axis=1)
        np.add.at(counts, (_checked(cells, n_cells), categories), 1.0)
    return counts.ravel() / np.sqrt(len(parts))


def marginal_noise(noise_scale, domain):
    """Return the noise of a count, from that of the vector that :func:`marginal_counts` makes."""
    return noise_scale * np.sqrt(len(domain.slices))


def estimate_mixture(noisy, noise_scale, domain):
    """Return the sizes and the marginals of cells, from noisy counts: post-processing.

    Parameters
    ----------
    noisy : ndarray of shape (n_cells * domain.n_features,)
        What :func:`marginal_counts` makes, with Gaussian noise; of the cells of one class.
    noise_scale : float
        Standard deviation of the noise, in the unit of ``noisy``.
    domain : Product of OneHot

    Returns
    -------
    size : float
        Number of the records, at least 1.
    mixture : ProductMixture
        A component a cell.

    Notes
    -----
    Every column counts all records of a cell, with noise that grows with its number S of
    categories: their mean with weights 1/S has the least variance. The counts x of a column are
    shrunk to those m that the cell would have, were it like all cells together, by the positive
    part estimator [1]_, x' = m + (1 - S s²/|x - m|²)₊ (x - m), and projected on the simplex.

    References
    ----------
    .. [1] W. James, C. Stein, "Estimation with quadratic loss", 1961.
    """
    scale = np.sqrt(len(domain.slices))
    counts = scale * np.asarray(noisy, dtype=np.float64).reshape(-1, domain.n_features)
    variance = marginal_noise(noise_scale, domain) ** 2
    widths = np.array([part.stop - part.start for part in domain.slices])
    sums = np.stack([counts[:, part].sum(axis=1) for part in domain.slices], axis=1)
    sizes = np.average(sums, axis=1, weights=1 / widths)
    total = max(1.0, sizes.sum())
    # Cells share the total: to keep each of them above zero would make up records.
    sizes = total * project_simplex(sizes / total)
    probabilities = np.empty_like(counts)
    for part, width in zip(domain.slices, widths, strict=True):
        pooled = project_simplex(counts[:, part].sum(axis=0) / total)
        usual = sizes[:, None] * pooled
        excess = counts[:, part] - usual
        energy = np.maximum((excess**2).sum(axis=1, keepdims=True), np.finfo(float).tiny)
        shrunk = usual + np.clip(1 - width * variance / energy, 0, 1) * excess
        probabilities[:, part] = [
            project_simplex(row / size) if size > 0 else pooled
            for row, size in zip(shrunk, sizes, strict=True)
        ]
    return total, ProductMixture(domain, sizes / total, probabilities)


def rank_embedding(columns, domain, probabilities):
    """Return the public map of encoded records to where Euclidean distance compares them.

    Parameters
    ----------
    columns : sequence of Column
        Of the blocks: categories, ordinals or bins.
    domain : Product of OneHot
    probabilities : ndarray of shape (domain.n_features,)
        Of the categories of each column, already released.

    Returns
    -------
    callable
        From shape (n, domain.n_features) to (n, n_embedded). Ordinals and bins go to the share of
        the records below them, with half of their own; null to the middle, with an entry of its
        own. Unequal categories are at distance 1, as the lowest and the highest rank are.

    Notes
    -----
    On the scale of its distribution a skewed column tells records apart as well as any other.
    """
    maps = []
    for column, part in zip(columns, domain.slices, strict=True):
        width = part.stop - part.start
        if not isinstance(column, Ordinal | Binned):
            maps.append(np.eye(width) / np.sqrt(2))
            continue
        ranked = probabilities[part][: width - column.nullable]
        ranked = ranked / max(ranked.sum(), np.finfo(float).tiny)
        places = np.zeros((width, 1 + column.nullable))
        places[: len(ranked), 0] = np.cumsum(ranked) - ranked / 2
        if column.nullable:
            places[-1] = 0.5, 1.0
        maps.append(places)

    def embed(X):
        X = np.asarray(X)
        return np.hstack(
            [X[:, part] @ places for part, places in zip(domain.slices, maps, strict=True)]
        )

    return embed


def _checked(cells, n_cells):
    if len(cells) and not 0 <= cells.min() <= cells.max() < n_cells:
        raise PublicValueError(f"cells must be among the {n_cells} declared ones.")
    return cells
