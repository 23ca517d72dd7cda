"""Draws of random categories."""

from itertools import pairwise

import numpy as np

from sklearn_dpgen.domains import OneHot
from sklearn_dpgen.persistence._declarations import demand

__all__ = ["RARE", "category_counts", "draw_codes", "draw_weighted"]

# A condition of smaller probability is impossible.
RARE = 1e-9


def draw_codes(shares, rng):
    """Draw a category of each row.

    Parameters
    ----------
    shares : ndarray of shape (n, m)
        Of the categories; they need not sum to one. Fortran's order is the fast one.
    rng : numpy.random.Generator

    Returns
    -------
    ndarray of int64 of shape (n,)
        Never one without a share, where another has one.
    """
    edges = np.array(shares.T, order="C")
    # Faster than a sum along either axis.
    for low, edge in pairwise(edges):
        edge += low
    # In (0, 1], so that a draw lies above the edge of what has no share.
    draws = ((1 - rng.uniform(size=len(shares))) * edges[-1]).astype(edges.dtype)
    codes = np.zeros(len(shares), dtype=np.int64)
    for edge in edges[:-1]:
        codes += draws > edge
    return codes


def draw_weighted(codes, weights, drawn, rng):
    """Draw, for each of some codes, a position at which a list holds it.

    Parameters
    ----------
    codes : ndarray of int of shape (n,)
        From 0: the list.
    weights : ndarray of shape (n,)
        By which positions with the same code are drawn.
    drawn : ndarray of int of shape (m,)
        The codes that are wanted, each with a positive weight somewhere.
    rng : numpy.random.Generator

    Returns
    -------
    ndarray of int64 of shape (m,)
    """
    (order,) = np.nonzero(weights)
    order = order[np.argsort(codes[order], kind="stable")]
    codes, weights = codes[order], weights[order]
    stops = np.cumsum(np.bincount(codes))
    starts = np.append(0, stops)
    # Of equal sum, so that rounding is small beside each of the codes.
    edges = np.append(0.0, np.cumsum(weights / np.bincount(codes, weights)[codes]))
    first, stop = starts[drawn], stops[drawn]
    targets = edges[first] + rng.uniform(size=len(drawn)) * (edges[stop] - edges[first])
    return order[np.clip(np.searchsorted(edges, targets, side="right") - 1, first, stop - 1)]


def category_counts(domain):
    """Return the number of categories of each column, or raise InvalidFileError without any."""
    is_categorical = all(isinstance(factor, OneHot) for factor in domain.domains)
    demand(is_categorical, "A distribution has columns without categories.")
    return [factor.n_categories for factor in domain.domains]
