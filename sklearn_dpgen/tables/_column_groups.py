"""Groups of the categories of a column: as many as a table of several columns can carry."""

import math

import numpy as np

__all__ = ["MAX_BLOCKS", "balanced_shape", "group_categories", "group_sums"]

# Groups of a column at most: more is not told apart by tables of two columns.
MAX_BLOCKS = 96


def group_categories(shares, n_groups, *, is_ordered, edge=0):
    """Group the categories of a column so that groups have about equal shares.

    Parameters
    ----------
    shares : ndarray of shape (n,)
        Not negative, of sum 1.
    n_groups : int
        At least 1.
    is_ordered : bool
        Whether groups are to be of neighbours. Of others, those with more than an even share have
        groups of their own, and the rest is grouped as listed.
    edge : int, default=0
        Of an ordered column, a category that a group begins with, such as zero among numbers of
        both signs; 0 for none.

    Returns
    -------
    ndarray of int of shape (n,)
        From 0, at most ``n_groups`` of them.
    """
    n_groups = min(n_groups, len(shares))
    if n_groups == len(shares):
        return np.arange(len(shares))
    if is_ordered and edge and n_groups > 1:
        below = n_groups * shares[:edge].sum() / shares.sum()
        # No group of its own for a side with hardly a record.
        if 0.25 < below < n_groups - 0.25:
            n_below = int(np.clip(np.rint(below), 1, n_groups - 1))
            first, second = _cut(shares[:edge], n_below), _cut(shares[edge:], n_groups - n_below)
            return np.append(first, second + first[-1] + 1)
    if is_ordered:
        return _cut(shares, n_groups)
    order = np.argsort(-shares, kind="stable")
    n_heavy, left = 0, shares.sum()
    while n_heavy < n_groups - 1 and shares[order[n_heavy]] * (n_groups - n_heavy) >= left:
        left -= shares[order[n_heavy]]
        n_heavy += 1
    groups = np.empty(len(shares), dtype=np.int64)
    groups[order[:n_heavy]] = np.arange(n_heavy)
    rest = np.sort(order[n_heavy:])
    groups[rest] = n_heavy + _cut(shares[rest], n_groups - n_heavy)
    return groups


def _cut(shares, n_groups):
    """Return the groups of neighbours: each ends where it comes nearest to an even share."""
    groups, group, held, left = np.empty(len(shares), dtype=np.int64), 0, 0.0, shares.sum()
    for i, share in enumerate(shares.tolist()):
        even = left / (n_groups - group)
        if i and group < n_groups - 1 and (held + share / 2 > even or share >= even > 0):
            left -= held
            group, held = group + 1, 0.0
        groups[i] = group
        held += share
    return groups


def group_sums(shares, groups):
    """Return the sums of the groups."""
    return np.bincount(groups, weights=shares)


def balanced_shape(sizes, n_cells):
    """Return how many groups of each column make a table of at most so many cells, or of two each.

    Parameters
    ----------
    sizes : sequence of int
        Categories of each column.
    n_cells : float

    Returns
    -------
    tuple of int
        Small columns are kept whole, and the others share alike in what is left.
    """
    shape, left, n_left = {}, max(float(n_cells), 1.0), len(sizes)
    for column in sorted(range(len(sizes)), key=lambda i: sizes[i]):
        even = max(2, math.floor(left ** (1 / n_left) + 1e-9))
        shape[column] = min(int(sizes[column]), even)
        left, n_left = left / shape[column], n_left - 1
    return tuple(shape[column] for column in range(len(sizes)))
