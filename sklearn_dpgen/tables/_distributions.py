"""Distributions of categorical records: log-linear chains, and mixtures of products."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import pairwise
from typing import Self

import numpy as np
from scipy.sparse import csr_array

from sklearn_dpgen.domains import OneHot, Product
from sklearn_dpgen.persistence._declarations import (
    Array,
    Maybe,
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
    "PublicRecords",
    "check_term",
    "draw_codes",
    "draw_weighted",
    "joint_codes",
    "resampled",
    "weighted_size",
]

# Conditions of smaller probability count as impossible.
RARE = 1e-9


def draw_codes(shares, rng):
    """Draw a category for each row.

    Parameters
    ----------
    shares : ndarray of shape (n, m)
        Unnormalized probabilities of the categories. Column-major arrays are faster.
    rng : numpy.random.Generator

    Returns
    -------
    ndarray of int64 of shape (n,)
        Never a category of probability 0, unless all are 0.
    """
    edges = np.array(shares.T, order="C")
    # This loop is faster than a cumulative sum along either axis.
    for low, edge in pairwise(edges):
        edge += low
    # Draws in (0, 1] exceed the edge of a category of probability 0.
    draws = ((1 - rng.uniform(size=len(shares))) * edges[-1]).astype(edges.dtype)
    # Sums of bytes are several times as fast as those of longer numbers.
    is_above = (draws > edges[:-1]).view(np.uint8)
    return is_above.sum(axis=0, dtype=np.min_scalar_type(len(edges))).astype(np.int64)


def draw_weighted(codes, weights, drawn, rng):
    """Draw, for each code in ``drawn``, a position of that code in ``codes``.

    Parameters
    ----------
    codes : ndarray of int of shape (n,)
        Codes from 0.
    weights : ndarray of shape (n,)
        Unnormalized probabilities of positions with the same code.
    drawn : ndarray of int of shape (m,)
        Codes to look for, each with a positive weight at some position.
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
    # Weights are normalized by code, so that rounding is relative to each code.
    edges = np.append(0.0, np.cumsum(weights / np.bincount(codes, weights)[codes]))
    first, stop = starts[drawn], stops[drawn]
    targets = edges[first] + rng.uniform(size=len(drawn)) * (edges[stop] - edges[first])
    return order[np.clip(np.searchsorted(edges, targets, side="right") - 1, first, stop - 1)]


def weighted_size(weights):
    """Return the effective size of weighted rows, and how many of them are drawn for one kept.

    These are enough that no row is kept twice, or that four times the effective size is drawn.
    """
    size = weights.sum() ** 2 / (weights**2).sum()
    return float(size), float(min(weights.max() / weights.mean(), 4 * len(weights) / size, _MOST))


def resampled(weights, n, rng):
    """Draw ``n`` positions by weight, by systematic resampling, in random order."""
    edges = np.cumsum(weights)
    points = (np.arange(n) + rng.uniform()) * (edges[-1] / n)
    points = np.minimum(points, np.nextafter(edges[-1], 0))
    return rng.permutation(np.searchsorted(edges, points, side="right"))


def category_counts(domain):
    """Return the number of categories of each column; InvalidFileError for other columns."""
    is_categorical = all(isinstance(factor, OneHot) for factor in domain.domains)
    demand(is_categorical, "A distribution has columns without categories.")
    return [factor.n_categories for factor in domain.domains]


# Entries of logits and of cells per chunk, which fit in the cache.
_ENTRIES = 1 << 17
# Sampling under conditions: rows that estimate the effective size, rows per batch, and the most
# rows that are drawn for one that is kept.
_PILOT = 20_000
_BATCH = 1 << 16
_MOST = 64
# Records whose weights of all public rows are in memory at a time.
_POSTERIOR_ROWS = 256
# The saved form of the block of each category, and of the group of each block.
_CODES = Array("i", 1, low=0)
# Sums of logits are in single precision. Barred pairs have the largest ones, -1e9.
_MOST_LOGIT = 1e30


@saved
@dataclass(frozen=True, eq=False)
class LogLinearTerm:
    """Log-linear interaction of a column with one or two earlier columns.

    Parameters
    ----------
    parents : tuple of int
        The earlier columns.
    groups : tuple of ndarray of int
        The group of each block of each parent, then of the column.
    logits : ndarray
        Logits of the groups: one axis per parent, then one of the column.
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
        """The logits of the blocks of the column, one row per cell of the parents."""
        return np.take(self.logits.reshape(-1, self.logits.shape[-1]), self.groups[-1], axis=1)

    def rows(self, codes):
        """Return the cell of the parents of each record."""
        return joint_codes(codes, self.parents, self.groups, self.logits.shape)


@saved
@dataclass(frozen=True, eq=False)
class LogLinearConditional:
    """Conditional distribution of the blocks of a column given earlier columns.

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

    def _check_saved_state(self):
        possible = self.base[np.isfinite(self.base)]
        demand(len(possible) > 0, "A column has no block to draw.")
        for logits in (possible, *(term.logits for term in self.terms)):
            demand((np.abs(logits) <= _MOST_LOGIT).all(), "A logit is too large.")

    def draw(self, codes, rng, kept=None):
        """Draw a block for each record.

        Parameters
        ----------
        codes : ndarray of int of shape (n, p)
            Blocks; only those of earlier columns are read.
        rng : numpy.random.Generator
        kept : ndarray of shape (n_blocks,) or None, default=None
            A condition: the allowed fraction of each block.

        Returns
        -------
        drawn : ndarray of int64 of shape (n,)
            Blocks drawn under the condition.
        chances : ndarray of float32 of shape (n,)
            The probability of the condition.
        """
        drawn, chances = np.empty(len(codes), dtype=np.int64), np.ones(len(codes), np.float32)
        for chunk, shares in self._shares(codes):
            if kept is not None:
                total = shares.sum(axis=0)
                shares *= kept[:, None]
                chances[chunk] = shares.sum(axis=0) / total
            drawn[chunk] = draw_codes(shares.T, rng)
        return drawn, chances

    def probabilities(self, codes):
        """Return the probabilities of the blocks for each record.

        Parameters
        ----------
        codes : ndarray of int of shape (n, p)
            Blocks; only those of earlier columns are read.

        Returns
        -------
        ndarray of float32 of shape (n, n_blocks)
        """
        probabilities = np.empty((len(codes), len(self.base)), dtype=np.float32)
        for chunk, shares in self._shares(codes):
            probabilities[chunk] = (shares / shares.sum(axis=0)).T
        return probabilities

    def _shares(self, codes):
        """Yield slices of the records, and unnormalized shares of shape (n_blocks, n_chunk)."""
        # The base is added to all records, as the only row of a first table.
        tables = [self.base[None], *(term.table for term in self.terms)]
        starts = np.cumsum([0, *map(len, tables)])
        table = np.concatenate(tables, dtype=np.float32)
        step = max(1, _ENTRIES // max(len(self.base), len(tables)))
        for start in range(0, len(codes), step):
            chunk = slice(start, min(start + step, len(codes)))
            cells = np.zeros((chunk.stop - start, len(tables)), dtype=np.int32)
            for i, term in enumerate(self.terms, 1):
                cells[:, i] = starts[i] + term.rows(codes[chunk])
            n, width = cells.shape
            row_starts = np.arange(0, n * width + 1, width, dtype=np.int32)
            ones = np.ones(n * width, dtype=np.float32)
            logits = csr_array((ones, cells.ravel(), row_starts), shape=(n, len(table))) @ table
            # Reductions over the first axis of few blocks are faster than over the last.
            shares = np.ascontiguousarray(logits.T)
            shares -= shares.max(axis=0)
            np.exp(shares, out=shares)
            yield chunk, shares


@saved
@dataclass(frozen=True, eq=False)
class PublicRecords:
    """Weighted rows of a public table, one of which each record of a chain copies in part.

    Parameters
    ----------
    codes : ndarray of int of shape (n, p)
        The block of each cell, -1 where it is not known.
    weights : ndarray of shape (n,)
        Positive, of sum 1.
    """

    _saved_state = {"codes": Array("i", 2, low=-1), "weights": Array("f", 1, low=0)}

    codes: np.ndarray
    weights: np.ndarray

    def _check_saved_state(self):
        demand(len(self.codes) == len(self.weights), "Public rows have other weights.")
        demand(is_distribution(self.weights), "The weights of public rows do not sum to one.")
        demand(self.weights.all(), "A public row has no weight.")

    def draw(self, n, n_blocks, rng):
        """Draw rows by weight.

        Parameters
        ----------
        n : int
        n_blocks : sequence of int
            Numbers of blocks of the columns, which stand for cells that are not known.
        rng : numpy.random.Generator

        Returns
        -------
        ndarray of int of shape (n, p)
        """
        return self.known_or(n_blocks)[resampled(self.weights, n, rng)]

    def known_or(self, n_blocks):
        """Return the codes, with the number of blocks of a column where they are not known."""
        return np.where(self.codes < 0, np.asarray(n_blocks, dtype=self.codes.dtype), self.codes)


@saved
@dataclass(frozen=True, eq=False)
class LogLinearChain:
    """Chain of log-linear conditional distributions, one for each column.

    The categories of a column are grouped into blocks. The block of a record is log-linear in the
    blocks of earlier columns; its category depends on the block alone.

    Parameters
    ----------
    domain : Product of OneHot
        Domain of encoded records.
    blocks : list of ndarray of int
        The block of each category of each column.
    shares : list of ndarray
        The shares of the categories within their blocks; in columns with a condition, multiplied
        by the allowed fraction.
    conditionals : tuple of LogLinearConditional
        Conditionals in the order in which columns are drawn.
    conditioned : frozenset of int, default=frozenset()
        The columns with conditions.
    public : PublicRecords or None, default=None
        Rows of a public table. Each record is given one by weight, whose columns are parents too:
        those of index p + j for column j of p, with a further block where they are not known.

    Notes
    -----
    Conditions are met by importance sampling. A column is drawn under its condition, and a row has
    as weight the product of the probabilities of the conditions given earlier columns. Rows are
    then resampled by weight.
    """

    _saved_state = {
        "domain": Product,
        "blocks": list_of(_CODES),
        "shares": list_of(Array("f", 1, low=0)),
        "conditionals": tuple[LogLinearConditional, ...],
        "conditioned": frozenset[int],
        # Absent in files of earlier releases.
        "public": Maybe(PublicRecords | None),
    }

    domain: Product
    blocks: list[np.ndarray]
    shares: list[np.ndarray]
    conditionals: tuple[LogLinearConditional, ...]
    conditioned: frozenset[int] = frozenset()
    public: PublicRecords | None = None

    def _check_saved_state(self):
        sizes = category_counts(self.domain)
        demand(not self.conditioned, "The distribution of a fit has no conditions.")
        demand(
            list(map(len, self.blocks)) == sizes == list(map(len, self.shares)),
            "A distribution has blocks of other categories than its domain.",
        )
        n_blocks = [int(blocks.max()) + 1 for blocks in self.blocks]
        for blocks, shares, n in zip(self.blocks, self.shares, n_blocks, strict=True):
            demand(n <= len(blocks), "A column has more blocks than categories.")
            # Each block must have a category to draw.
            drawn = np.bincount(blocks, shares, minlength=n) > 0
            demand(drawn.all(), "A block has no category.")
        earlier: set[int] = set()
        if self.public is not None:
            codes = self.public.codes
            fits = codes.shape[1] == len(sizes) and bool((codes < n_blocks).all())
            demand(fits, "Public rows have other columns.")
            earlier = {len(sizes) + j for j in range(len(sizes))}
            n_blocks = [*n_blocks, *(n + 1 for n in n_blocks)]
        for conditional in self.conditionals:
            column = conditional.column
            demand(0 <= column < len(sizes) and column not in earlier, "A column is drawn twice.")
            demand(len(conditional.base) == n_blocks[column], "A column has other blocks.")
            for term in conditional.terms:
                check_term(term, column, earlier, n_blocks)
            earlier.add(column)
        demand(set(range(len(sizes))) <= earlier, "A distribution does not draw all columns.")

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
        """Return the conditional distribution of the last column given all others.

        Parameters
        ----------
        columns : sequence of ndarray of int of shape (n,)
            Categories of records, one vector per column. Those of the last column are ignored.

        Returns
        -------
        ndarray of float64 of shape (n, n_categories)
        """
        conditional = self.conditionals[-1]
        pairs = zip(self.blocks, columns, strict=True)
        codes = np.stack([owners[codes] for owners, codes in pairs], axis=1)
        if self.public is None:
            probabilities = conditional.probabilities(codes).astype(np.float64)
        else:
            starts = range(0, len(codes), _POSTERIOR_ROWS)
            parts = [
                self._last_given_public(codes[i : i + _POSTERIOR_ROWS], self.public) for i in starts
            ]
            probabilities = np.concatenate(parts)
        column = conditional.column
        return probabilities[:, self.blocks[column]] * self.shares[column]

    @property
    def _n_blocks(self):
        return [int(blocks.max()) + 1 for blocks in self.blocks]

    def _last_given_public(self, codes, public):
        """Return the probabilities of the blocks of the last column, over all public rows.

        A row with the block c in a column multiplies the odds of c there by one plus k_c. So the
        probability of block b is p_b (1 + k_c 1{b = c}) / (1 + k_c p_c), for the probability p of
        a row whose block is not known. It gives the weight of each row from the other columns.
        """
        n_blocks, width = self._n_blocks, len(self.blocks)
        rows = public.known_or(n_blocks)
        every = np.hstack([codes, np.broadcast_to(n_blocks, codes.shape)])
        # Public rows first, so that each step reads and adds whole rows of memory.
        logs = np.broadcast_to(np.log(public.weights)[:, None], (len(rows), len(codes))).copy()
        here = np.arange(len(codes))
        for conditional in self.conditionals:
            column = conditional.column
            free = conditional.probabilities(every).astype(np.float64)
            odds = np.zeros(len(conditional.base) + 1)
            for term in conditional.terms:
                if term.parents == (width + column,):
                    odds[:-1] = np.expm1(np.diag(term.logits))
            totals = 1 + np.hstack([free, np.zeros((len(codes), 1))]) * odds
            if column == self.conditionals[-1].column:
                break
            chances = -np.log(totals)
            chances[here, codes[:, column]] += np.log1p(odds[codes[:, column]])
            if odds.any():
                logs += np.ascontiguousarray(chances.T)[rows[:, column]]
        weights = np.exp(logs - logs.max(axis=0))
        order = np.argsort(rows[:, column], kind="stable")
        present, starts = np.unique(rows[order, column], return_index=True)
        shares = np.zeros((len(codes), len(odds)))
        shares[:, present] = np.add.reduceat(weights[order], starts, axis=0).T
        shares /= shares.sum(axis=1, keepdims=True) * totals
        return free * (shares.sum(axis=1, keepdims=True) + (shares * odds)[:, :-1])

    def redraw(self, codes: np.ndarray, rng: np.random.Generator) -> np.ndarray:
        """Redraw the category of each value within its block.

        Parameters
        ----------
        codes : ndarray of int of shape (n, p)
            Records from :meth:`sample`.
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
        """Draw a category in each block."""
        codes = np.empty_like(blocks)
        for column, (owners, shares) in enumerate(zip(self.blocks, self.shares, strict=True)):
            codes[:, column] = draw_weighted(owners, shares, blocks[:, column], rng)
        return codes

    def restricted(self, allowed: Mapping) -> Self | None:
        """Return the distribution under independent conditions on columns.

        Parameters
        ----------
        allowed : mapping of int to ndarray
            The allowed fraction, from 0 to 1, of each category of a column.

        Returns
        -------
        LogLinearChain or None
            None if the probability of the conditions, estimated from 20000 weighted rows, is below
            one in a billion.
        """
        shares = list(self.shares)
        for column, fractions in allowed.items():
            shares[column] = shares[column] * fractions
        chain = replace(self, shares=shares, conditioned=self.conditioned | frozenset(allowed))
        return chain if chain._pilot[0] >= RARE else None

    @property
    def effective_size(self) -> float:
        """(Σ w)² / Σ w² of the weights of 20000 rows drawn under the conditions."""
        return self._pilot[1]

    @cached_property
    def _pilot(self):
        """The probability of the conditions, the effective size, and rows drawn per row kept."""
        # Columns after the last condition do not change the weights.
        stops = [i for i, c in enumerate(self.conditionals, 1) if c.column in self.conditioned]
        needed = replace(self, conditionals=self.conditionals[: max(stops, default=0)])
        _, weights = needed._weighted(_PILOT, np.random.default_rng(0))
        mean = float(weights.mean())
        return (mean, *weighted_size(weights)) if mean >= RARE else (0.0, 0.0, _MOST)

    def _weighted(self, n, rng):
        """Return blocks of rows, and their weights: the probabilities of the conditions."""
        width = len(self.blocks)
        codes = np.zeros((n, width * (1 + (self.public is not None))), dtype=np.int64, order="F")
        if self.public is not None:
            codes[:, width:] = self.public.draw(n, self._n_blocks, rng)
        weights = np.ones(n)
        for conditional in self.conditionals:
            column, kept = conditional.column, None
            if column in self.conditioned:
                kept = np.bincount(self.blocks[column], self.shares[column]).astype(np.float32)
            codes[:, column], chances = conditional.draw(codes, rng, kept)
            weights *= chances
        return codes[:, :width], weights

    def _resampled(self, n, rng):
        """Return blocks of records that fulfil the conditions, by systematic resampling."""
        most, chunks, left = int(_BATCH / self._pilot[2]), [], n
        while left > 0:
            codes, weights = self._weighted(_BATCH, rng)
            if weights.any():
                count = min(most, left)
                chunks.append(codes[resampled(weights, count, rng)])
                left -= count
        return np.concatenate(chunks)


def joint_codes(codes, columns, groups, shape):
    """Return the cell index of each record in a table of grouped columns.

    Parameters
    ----------
    codes : ndarray of int of shape (n, p)
    columns : tuple of int
    groups, shape : tuple of ndarray of int, tuple of int
        The group of each block, and the numbers of groups; entries after ``columns`` are ignored.

    Returns
    -------
    ndarray of int64 of shape (n,)
    """
    cells = groups[0][codes[:, columns[0]]]
    for column, group, size in zip(columns[1:], groups[1:], shape[1:], strict=False):
        cells = cells * size + group[codes[:, column]]
    return cells


def check_term(term, column, earlier, n_blocks):
    """Raise InvalidFileError unless a term fits the columns before it."""
    demand(set(term.parents) <= earlier, "A column depends on a later one.")
    columns = (*term.parents, column)
    fits = len(term.groups) == len(columns) == term.logits.ndim > 1
    demand(fits, "A term has groups of other columns.")
    for j, groups, size in zip(columns, term.groups, term.logits.shape, strict=True):
        demand(len(groups) == n_blocks[j], "A term has groups of other blocks.")
        demand(not groups.size or int(groups.max()) < size, "A term has other groups.")


@saved
@dataclass(frozen=True)
class ProductMixture:
    """Mixture of distributions with independent columns.

    Parameters
    ----------
    domain : Product of OneHot
        Domain of encoded records: a block of categories for each column.
    shares : ndarray of shape (k,)
        Probabilities of the components.
    probabilities : ndarray of shape (k, domain.n_features)
        Probabilities of the categories of each column in each component.
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
        for block in self.domain.slices:
            sums = self.probabilities[self.shares > 0, block].sum(axis=1)
            demand((sums > 0).all(), "A mixture has a column without categories.")

    def sample(self, n: int, rng: np.random.Generator) -> np.ndarray:
        """Draw records, as :meth:`LogLinearChain.sample`."""
        components = rng.choice(len(self.shares), size=n, p=self.shares)
        codes = np.empty((n, len(self.domain.slices)), dtype=np.int64)
        for column, block in enumerate(self.domain.slices):
            size = block.stop - block.start
            owners = np.repeat(np.arange(len(self.shares)), size)
            weights = self.probabilities[:, block].ravel()
            codes[:, column] = draw_weighted(owners, weights, components, rng) % size
        return codes

    def restricted(self, allowed: Mapping) -> Self | None:
        """Return the distribution under conditions, as :meth:`LogLinearChain.restricted`."""
        shares, probabilities = self.shares, self.probabilities.copy()
        for column, fractions in allowed.items():
            block = probabilities[:, self.domain.slices[column]]
            wanted = block * fractions
            sums = wanted.sum(axis=1, keepdims=True)
            # A component that cannot fulfil the condition keeps its block, and gets weight 0.
            np.divide(wanted, sums, where=sums > 0, out=block)
            shares = shares * sums[:, 0]
        total = shares.sum()
        if total < RARE:
            return None
        return replace(self, shares=shares / total, probabilities=probabilities)

    @property
    def effective_size(self) -> float:
        """(Σ w)² / Σ w² of the shares w of the components."""
        return float(self.shares.sum() ** 2 / (self.shares**2).sum())
