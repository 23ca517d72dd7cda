"""What must be true of the parts of an object together, which its constructor leaves to a fit."""

from itertools import pairwise

import numpy as np

from sklearn_dpgen.domains import OneHot
from sklearn_dpgen.exceptions import InvalidFileError

__all__ = [
    "check_binned",
    "check_chain",
    "check_noisy_marginal",
    "check_mixture",
    "check_votes",
    "demand",
    "is_law",
]


def demand(condition: object, message: str) -> None:
    """Raise InvalidFileError with a message unless a condition holds."""
    if not condition:
        raise InvalidFileError(message)


def is_law(shares: np.ndarray) -> bool:
    """Return whether numbers are probabilities that sum to one, as draws need it."""
    return shares.ndim == 1 and bool((shares >= 0).all()) and abs(shares.sum() - 1) < 1e-8


def check_binned(column):
    """Check that bins ascend from end to end, and that each holds a value of a grid."""
    edges = column.edges
    ascend = len(edges) >= 2 and all(low < high for low, high in pairwise(edges))
    demand(ascend and edges[0] == -1 and edges[-1] == 1, "The edges of bins do not ascend.")
    starts = column._grid_starts
    demand((np.diff(starts) > 0).all(), "A bin holds no value of its column.")


def _sizes(domain):
    demand(all(isinstance(f, OneHot) for f in domain.domains), "A law is of no categories.")
    return [factor.n_categories for factor in domain.domains]


def _are_groups(groups, n_groups):
    """Return whether each entry is one of so many groups, and the groups are few enough."""
    return not groups.size or int(groups.max()) < n_groups


def check_chain(law):
    """Check that blocks, shares and laws of columns are those of the categories."""
    sizes = _sizes(law.domain)
    demand(not law.conditioned, "A law has conditions, which that of a fit has not.")
    demand(
        [len(part) for part in law.blocks] == sizes == [len(part) for part in law.shares],
        "A law has blocks of other categories than its domain.",
    )
    n_blocks = [int(part.max()) + 1 for part in law.blocks]
    for blocks, shares, n in zip(law.blocks, law.shares, n_blocks, strict=True):
        demand(n <= len(blocks), "A law has more blocks than categories.")
        # Each block has a category to draw.
        demand((np.bincount(blocks, shares, minlength=n) > 0).all(), "A block has no category.")
    earlier: set[int] = set()
    for conditional in law.conditionals:
        column = conditional.column
        demand(0 <= column < len(sizes) and column not in earlier, "A law draws a column twice.")
        demand(len(conditional.base) == n_blocks[column], "A law has another number of blocks.")
        demand(np.isfinite(conditional.base).any(), "A law leaves no block to draw.")
        for term in conditional.terms:
            _check_term(term, column, earlier, n_blocks)
        earlier.add(column)
    demand(len(earlier) == len(sizes), "A law does not draw all columns.")


def _check_term(term, column, earlier, n_blocks):
    demand(set(term.parents) <= earlier, "A law has a column depend on a later one.")
    columns = (*term.parents, column)
    fits = len(term.groups) == len(columns) == term.logits.ndim > 1
    demand(fits, "A law has groups of other columns.")
    for part, groups, size in zip(columns, term.groups, term.logits.shape, strict=True):
        fits = len(groups) == n_blocks[part] and _are_groups(groups, size)
        demand(fits, "A law has groups of other blocks.")


def check_mixture(law):
    """Check that shares and probabilities can be drawn by."""
    _sizes(law.domain)
    demand(is_law(law.shares), "The shares of a mixture do not sum to one.")
    shape = (len(law.shares), law.domain.n_features)
    demand(law.probabilities.shape == shape, "A mixture has laws of other columns.")
    for part in law.domain.slices:
        sums = law.probabilities[law.shares > 0, part].sum(axis=1)
        demand((sums > 0).all(), "A mixture has a column without categories.")


def check_noisy_marginal(table):
    """Check that groups are entries of the axes."""
    names, shape = table.columns, table.counts.shape
    demand(len(names) == len(table.groups) == len(shape) > 0, "A table has other columns.")
    for groups, size in zip(table.groups, shape, strict=True):
        demand(_are_groups(groups, size), "A table has other groups.")
    demand(np.shape(table.noise_scale) in ((), shape), "A table has noise of another shape.")


def check_votes(votes):
    """Check that there is a vote and a weight for each candidate."""
    n = len(votes.candidates)
    demand(votes.votes.shape == votes.weights.shape == (n,), "Votes are of other candidates.")
