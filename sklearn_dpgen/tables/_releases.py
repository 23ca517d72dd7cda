"""Exact counts in, noisy counts out: of single columns on their trees, and of marginals."""

import numpy as np

__all__ = ["noise_factors", "release_singles", "release_marginals", "total_records"]


def noise_factors(weights, n_levels=1):
    """Return the noise of a count of each table, over that of the vector of all.

    Parameters
    ----------
    weights : ndarray of shape (m,)
        Positive.
    n_levels : int or array-like of shape (m,), default=1
        How often each table counts a record.

    Returns
    -------
    ndarray of shape (m,)
        √(Σ l w²) / w: tables over them are a vector to which a record adds one of l2 norm 1.
    """
    return np.sqrt((np.asarray(n_levels) * weights**2).sum()) / weights


def release_singles(leaves, trees, weights, release):
    """Release the counts of single columns, on all levels of their trees, as one vector.

    Parameters
    ----------
    leaves : sequence of ndarray
        Exact counts of the leaves of each tree, in which a record adds one to one.
    trees : sequence of ColumnTree
    weights : ndarray of shape (p,)
        Positive; the noise of a column is in proportion to the inverse.
    release : callable
        From a vector to which a record adds one of l2 norm 1, to one with noise.

    Returns
    -------
    counts : list of ndarray
        Of each tree, with noise.
    factors : ndarray of shape (p,)
        The noise of a count over that of the vector.
    """
    factors = noise_factors(weights, [tree.n_levels for tree in trees])
    exact = [tree.counts(c) / f for f, tree, c in zip(factors, trees, leaves, strict=True)]
    noisy = release(np.concatenate(exact))
    stops = np.cumsum([len(part) for part in exact])
    counts = [part * f for part, f in zip(np.split(noisy, stops[:-1]), factors, strict=True)]
    return counts, factors


def release_marginals(tables, weights, release):
    """Release tables as one vector.

    Parameters
    ----------
    tables : sequence of ndarray
        Exact counts, in each of which a record adds one to one cell.
    weights : ndarray of shape (m,)
        Positive; the noise of a table is in proportion to the inverse.
    release : callable
        From a vector to which a record adds one of l2 norm 1, to one with noise.

    Returns
    -------
    tables : list of ndarray
        With noise.
    factors : ndarray of shape (m,)
        The noise of a cell over that of the vector.
    """
    factors = noise_factors(weights)
    noisy = release(np.concatenate([t.ravel() / f for f, t in zip(factors, tables, strict=True)]))
    stops = np.cumsum([table.size for table in tables])
    parts = np.split(noisy, stops[:-1])
    released = [
        (part * factor).reshape(table.shape)
        for part, factor, table in zip(parts, factors, tables, strict=True)
    ]
    return released, factors


def total_records(counts, trees, factors):
    """Return an estimate of the number of records, at least 1, from counts of single columns.

    Parameters
    ----------
    counts : sequence of ndarray
        Of each tree, with noise.
    trees : sequence of ColumnTree
    factors : ndarray of shape (p,)
        Relative scales of their noise.

    Returns
    -------
    float
    """
    totals, variances = [], []
    for noisy, tree, factor in zip(counts, trees, factors, strict=True):
        levels, nulls, variance = tree.estimate(noisy)
        totals.append(levels[-1].sum() + nulls.sum())
        variances.append(variance * factor**2)
    return max(1.0, float(np.average(totals, weights=1 / np.array(variances))))
