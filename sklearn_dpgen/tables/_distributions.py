"""Distributions of tables of categories: log-linear chains, and mixtures of products."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import pairwise
from typing import Self

import numpy as np

from sklearn_dpgen.domains import OneHot, Product
from sklearn_dpgen.persistence._declarations import (
    Array,
    demand,
    is_distribution,
    list_of,
    saved,
    tuple_of,
)

__all__ = [
    "LogLinearChain",
    "LogLinearConditional",
    "LogLinearTerm",
    "ProductMixture",
    "draw_codes",
    "draw_weighted",
    "joint_codes",
]

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


# Entries of logits and of cells that are held at a time: they stay in the cache.
_ENTRIES = 1 << 17
# Of conditions: rows that tell the effective size, that are drawn at a time, and for one at most.
_PILOT = 20_000
_BATCH = 1 << 16
_MOST = 64
# The block of each category, or the group of each block.
_CODES = Array("i", 1, low=0)


@saved
@dataclass(frozen=True, eq=False)
class LogLinearTerm:
    """What one or two earlier columns add to the logits of a column.

    Parameters
    ----------
    parents : tuple of int
        The earlier columns.
    groups : tuple of ndarray of int
        The group of each block of each parent, then of the column itself.
    logits : ndarray
        An axis a parent, then one of the column: of the groups.
    """

    _saved_state = {
        "parents": tuple[int, ...],
        "groups": tuple_of(_CODES),
        "logits": Array("f"),
    }

    parents: tuple[int, ...]
    groups: tuple[np.ndarray, ...]
    logits: np.ndarray

    @property
    def table(self):
        """The logits of each block of the column, a row for each cell of the parents."""
        return np.take(self.logits.reshape(-1, self.logits.shape[-1]), self.groups[-1], axis=1)

    def rows(self, codes):
        """Return the cell of the parents of each record."""
        return joint_codes(codes, self.parents, self.groups, self.logits.shape)


@saved
@dataclass(frozen=True, eq=False)
class LogLinearConditional:
    """The law of the blocks of one column, given those of earlier ones.

    p(x_j | x) ∝ exp(base(x_j) + Σ_t logits_t(x, x_j)).

    Parameters
    ----------
    column : int
    base : ndarray of shape (n_blocks,)
    terms : tuple of LogLinearTerm
    """

    _saved_state = {
        "column": int,
        "base": Array("f", 1, low=-np.inf),
        "terms": tuple[LogLinearTerm, ...],
    }

    column: int
    base: np.ndarray
    terms: tuple[LogLinearTerm, ...]

    def draw(self, codes, rng, kept=None):
        """Draw a block for each record.

        Parameters
        ----------
        codes : ndarray of int of shape (n, p)
            Blocks, of which those of earlier columns count.
        rng : numpy.random.Generator
        kept : ndarray of shape (n_blocks,) or None, default=None
            A condition: the part of each block that is allowed.

        Returns
        -------
        drawn : ndarray of int64 of shape (n,)
            Under the condition.
        chances : ndarray of float32 of shape (n,)
            The probability of the condition.
        """
        drawn, chances = np.empty(len(codes), dtype=np.int64), np.ones(len(codes), np.float32)
        for part, shares in self._shares(codes):
            if kept is not None:
                total = shares.sum(axis=0)
                shares *= kept[:, None]
                chances[part] = shares.sum(axis=0) / total
            drawn[part] = draw_codes(shares.T, rng)
        return drawn, chances

    def probabilities(self, codes):
        """Return the law of the block of each record.

        Parameters
        ----------
        codes : ndarray of int of shape (n, p)
            Blocks, of which those of earlier columns count.

        Returns
        -------
        ndarray of float32 of shape (n, n_blocks)
        """
        laws = np.empty((len(codes), len(self.base)), dtype=np.float32)
        for part, shares in self._shares(codes):
            laws[part] = (shares / shares.sum(axis=0)).T
        return laws

    def _shares(self, codes):
        """Yield parts of the records, and unscaled shares of their blocks, a column a record."""
        import torch
        from torch.nn.functional import embedding_bag

        # The base is the only row of a first term.
        tables = [self.base[None], *(term.table for term in self.terms)]
        starts = np.cumsum([0, *map(len, tables)])
        table = torch.from_numpy(np.concatenate(tables, dtype=np.float32))
        step = max(1, _ENTRIES // max(len(self.base), len(tables)))
        for start in range(0, len(codes), step):
            part = slice(start, min(start + step, len(codes)))
            cells = np.zeros((part.stop - start, len(tables)), dtype=np.int32)
            for place, term in enumerate(self.terms, 1):
                cells[:, place] = starts[place] + term.rows(codes[part])
            logits = embedding_bag(torch.from_numpy(cells), table, mode="sum").numpy()
            # Reductions over few entries are slow, those over many rows are not.
            shares = np.ascontiguousarray(logits.T)
            shares -= shares.max(axis=0)
            np.exp(shares, out=shares)
            yield part, shares


@saved
@dataclass(frozen=True, eq=False)
class LogLinearChain:
    """A distribution of records whose columns are drawn one after another.

    Categories of a column belong to blocks. The blocks of a column follow a log-linear law given
    those of the columns before it; inside a block the category depends on nothing else.

    Parameters
    ----------
    domain : Product of OneHot
        Of encoded records.
    blocks : list of ndarray of int
        The block of each category of each column.
    shares : list of ndarray
        The shares of the categories within their blocks; in a column with a condition, times the
        part that is allowed.
    conditionals : tuple of LogLinearConditional
        In the order in which columns are drawn.
    conditioned : frozenset of int, default=frozenset()
        The columns with conditions.

    Notes
    -----
    Conditions are kept by importance sampling: a column is drawn under its condition, and the row
    weighs the product of the probabilities that the columns before left to the conditions. Of many
    weighted rows some are kept, by weight.
    """

    _saved_state = {
        "domain": Product,
        "blocks": list_of(_CODES),
        "shares": list_of(Array("f", 1, low=0)),
        "conditionals": tuple[LogLinearConditional, ...],
        "conditioned": frozenset[int],
    }

    domain: Product
    blocks: list[np.ndarray]
    shares: list[np.ndarray]
    conditionals: tuple[LogLinearConditional, ...]
    conditioned: frozenset[int] = frozenset()

    def _check_saved_state(self):
        sizes = category_counts(self.domain)
        demand(not self.conditioned, "The distribution of a fit has no conditions.")
        demand(
            [len(part) for part in self.blocks] == sizes == [len(part) for part in self.shares],
            "A distribution has blocks of other categories than its domain.",
        )
        n_blocks = [int(part.max()) + 1 for part in self.blocks]
        for blocks, shares, n in zip(self.blocks, self.shares, n_blocks, strict=True):
            demand(n <= len(blocks), "A column has more blocks than categories.")
            # Each block must have a category to draw.
            drawn = np.bincount(blocks, shares, minlength=n) > 0
            demand(drawn.all(), "A block has no category.")
        earlier: set[int] = set()
        for conditional in self.conditionals:
            column = conditional.column
            demand(0 <= column < len(sizes) and column not in earlier, "A column is drawn twice.")
            demand(len(conditional.base) == n_blocks[column], "A column has other blocks.")
            demand(np.isfinite(conditional.base).any(), "A column has no block to draw.")
            for term in conditional.terms:
                _check_term(term, column, earlier, n_blocks)
            earlier.add(column)
        demand(len(earlier) == len(sizes), "A distribution does not draw all columns.")

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
        blocks = self._resampled(n, rng) if self.conditioned else self._weighted(n, rng)[0]
        return self._in_blocks(blocks, rng)

    def last_given_others(self, columns: Sequence[np.ndarray]) -> np.ndarray:
        """Return the law of the column that is drawn last, given the others.

        Parameters
        ----------
        columns : sequence of ndarray of int of shape (n,)
            Categories of records, a vector a column. Those of the last column are not looked at.

        Returns
        -------
        ndarray of float64 of shape (n, n_categories)
        """
        conditional = self.conditionals[-1]
        pairs = zip(self.blocks, columns, strict=True)
        codes = np.stack([owners[codes] for owners, codes in pairs], axis=1)
        laws = conditional.probabilities(codes).astype(np.float64)
        column = conditional.column
        return laws[:, self.blocks[column]] * self.shares[column]

    def redraw(self, codes: np.ndarray, rng: np.random.Generator) -> np.ndarray:
        """Draw records again, each in its own blocks.

        Parameters
        ----------
        codes : ndarray of int of shape (n, p)
            Of :meth:`sample`.
        rng : numpy.random.Generator

        Returns
        -------
        ndarray of int64 of shape (n, p)
        """
        blocks = np.empty_like(codes)
        for column, owners in enumerate(self.blocks):
            blocks[:, column] = owners[codes[:, column]]
        return self._in_blocks(blocks, rng)

    def _in_blocks(self, blocks, rng):
        codes = np.empty_like(blocks)
        for column, (owners, shares) in enumerate(zip(self.blocks, self.shares, strict=True)):
            codes[:, column] = draw_weighted(owners, shares, blocks[:, column], rng)
        return codes

    def restricted(self, allowed: Mapping) -> Self | None:
        """Return the law of the records that fulfil independent conditions on columns.

        Parameters
        ----------
        allowed : mapping of int to ndarray
            Of a column, the part of each category that is allowed, from 0 to 1.

        Returns
        -------
        LogLinearChain or None
            None where fewer than one in a billion records fulfil them, as 20000 weighted rows tell.
        """
        shares = list(self.shares)
        for column, parts in allowed.items():
            shares[column] = shares[column] * parts
        law = replace(self, shares=shares, conditioned=self.conditioned | frozenset(allowed))
        return law if law._pilot[0] >= RARE else None

    @property
    def effective_size(self) -> float:
        """(Σ w)² / Σ w² of 20000 rows that are drawn under the conditions."""
        return self._pilot[1]

    @cached_property
    def _pilot(self):
        """The probability of the conditions, the effective size, and rows to draw for one."""
        # What is drawn after the last condition has no weight.
        stops = [i for i, c in enumerate(self.conditionals, 1) if c.column in self.conditioned]
        needed = replace(self, conditionals=self.conditionals[: max(stops, default=0)])
        _, weights = needed._weighted(_PILOT, np.random.default_rng(0))
        mean = weights.mean()
        if mean < RARE:
            return 0.0, 0.0, _MOST
        size = weights.sum() ** 2 / (weights**2).sum()
        # None is kept twice, or those drawn say four times as much as those kept.
        n_drawn = min(weights.max() / mean, 4 * _PILOT / size, _MOST)
        return float(mean), float(size), float(n_drawn)

    def _weighted(self, n, rng):
        """Return blocks, and the probability of the conditions given the columns before each."""
        codes = np.zeros((n, len(self.blocks)), dtype=np.int64, order="F")
        weights = np.ones(n)
        for conditional in self.conditionals:
            column, kept = conditional.column, None
            if column in self.conditioned:
                kept = np.bincount(self.blocks[column], self.shares[column]).astype(np.float32)
            codes[:, column], chances = conditional.draw(codes, rng, kept)
            weights *= chances
        return codes, weights

    def _resampled(self, n, rng):
        """Return blocks of records that fulfil the conditions."""
        most, parts, left = int(_BATCH / self._pilot[2]), [], n
        while left > 0:
            codes, weights = self._weighted(_BATCH, rng)
            edges = np.cumsum(weights)
            if edges[-1] > 0:
                count = min(most, left)
                places = (np.arange(count) + rng.uniform()) * (edges[-1] / count)
                places = np.minimum(places, np.nextafter(edges[-1], 0))
                chosen = np.searchsorted(edges, places, side="right")
                parts.append(codes[rng.permutation(chosen)])
                left -= count
        return np.concatenate(parts)


def joint_codes(codes, columns, groups, shape):
    """Return the cell of each record in the table of some columns, of which groups are told apart.

    Parameters
    ----------
    codes : ndarray of int of shape (n, p)
    columns : tuple of int
    groups, shape : tuple of ndarray of int, tuple of int
        The group of each block, and their number; of these columns first.

    Returns
    -------
    ndarray of int64 of shape (n,)
    """
    cells = groups[0][codes[:, columns[0]]]
    for column, group, size in zip(columns[1:], groups[1:], shape[1:], strict=False):
        cells = cells * size + group[codes[:, column]]
    return cells


def _check_term(term, column, earlier, n_blocks):
    demand(set(term.parents) <= earlier, "A column depends on a later one.")
    columns = (*term.parents, column)
    fits = len(term.groups) == len(columns) == term.logits.ndim > 1
    demand(fits, "A term has groups of other columns.")
    for part, groups, size in zip(columns, term.groups, term.logits.shape, strict=True):
        demand(len(groups) == n_blocks[part], "A term has groups of other blocks.")
        demand(not groups.size or int(groups.max()) < size, "A term has other groups.")


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
