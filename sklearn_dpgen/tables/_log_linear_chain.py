"""Laws of tables whose columns are drawn one after another, from log-linear conditionals."""

from dataclasses import dataclass
from functools import cached_property

import numpy as np

from sklearn_dpgen.domains import Product

__all__ = ["LogLinearChain", "LogLinearConditional", "LogLinearTerm", "draw_codes", "joint_codes"]

# Rows that are drawn at a time.
_ROWS = 1 << 15
# Of conditions: rows that their effective size is estimated on, and drawn for a row at most.
_PILOT = 20_000
_MOST = 500
# A condition of smaller probability is impossible.
_RARE = 1e-9


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

    parents: tuple[int, ...]
    groups: tuple[np.ndarray, ...]
    logits: np.ndarray

    @cached_property
    def table(self):
        """The logits of each block of the column, a row for each cell of the parents."""
        return self.logits.reshape(-1, self.logits.shape[-1])[:, self.groups[-1]]

    def rows(self, codes):
        """Return the cell of the parents of each record."""
        return joint_codes(codes, self.parents, self.groups, self.logits.shape)


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

    column: int
    base: np.ndarray
    terms: tuple[LogLinearTerm, ...]

    def probabilities(self, codes):
        """Return the shares of the blocks for each record.

        Parameters
        ----------
        codes : ndarray of int of shape (n, p)
            Blocks, of which those of earlier columns count.

        Returns
        -------
        ndarray of float32 of shape (n, n_blocks)
        """
        logits = np.tile(self.base.astype(np.float32), (len(codes), 1))
        for term in self.terms:
            logits += term.table.astype(np.float32, copy=False)[term.rows(codes)]
        logits -= logits.max(axis=1, keepdims=True)
        np.exp(logits, out=logits)
        logits /= logits.sum(axis=1, keepdims=True)
        return logits


@dataclass(frozen=True, eq=False)
class LogLinearChain:
    """The law of records whose columns are drawn in turn.

    Categories of a column belong to blocks. The blocks of a column follow a log-linear law given
    those of the columns before it; inside a block the category depends on nothing else.

    Parameters
    ----------
    domain : Product of OneHot
        Of encoded records.
    blocks : list of ndarray of int
        The block of each category of each column.
    shares : list of ndarray
        The shares of the categories within their blocks.
    conditionals : tuple of LogLinearConditional
        In the order in which columns are drawn.
    allowed : dict of int to ndarray, default={}
        Conditions: of a column, the part of each category that is allowed, from 0 to 1.
    """

    domain: Product
    blocks: list[np.ndarray]
    shares: list[np.ndarray]
    conditionals: tuple[LogLinearConditional, ...]
    allowed: dict

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
        parts = []
        if not self.allowed:
            for start in range(0, n, _ROWS):
                codes, _ = self._draw(min(_ROWS, n - start), rng)
                parts.append(self._categories(codes, rng))
            return np.concatenate(parts)
        # Importance sampling: columns under a condition are drawn under it, and the row counts by
        # its probability.
        size = self._pilot[0]
        factor = float(np.clip(4 * _PILOT / size, 4, _MOST))
        for start in range(0, n, _ROWS):
            count = min(_ROWS, n - start)
            drawn, weights, left = [], [], int(np.ceil(count * factor))
            while left > 0:
                codes, weight = self._draw(min(_ROWS, left), rng)
                drawn.append(codes)
                weights.append(weight)
                left -= len(codes)
            weights = np.cumsum(np.concatenate(weights))
            places = (np.arange(count) + rng.uniform(size=count)) * (weights[-1] / count)
            chosen = np.minimum(np.searchsorted(weights, places, side="right"), len(weights) - 1)
            codes = rng.permutation(np.concatenate(drawn)[chosen])
            parts.append(self._categories(codes, rng))
        return np.concatenate(parts)

    def restricted(self, allowed):
        """Return the law of the records that fulfil independent conditions on their columns.

        Parameters
        ----------
        allowed : mapping of int to ndarray
            Of a column, the part of each category that is allowed, from 0 to 1.

        Returns
        -------
        LogLinearChain or None
            None where fewer than one in a billion records fulfil them.
        """
        law = LogLinearChain(
            self.domain, self.blocks, self.shares, self.conditionals, self.allowed | dict(allowed)
        )
        return law if law._pilot[1] >= _RARE else None

    @property
    def effective_size(self):
        """(Σ w)² / Σ w² of 20000 rows that are drawn for the conditions."""
        return self._pilot[0] if self.allowed else float(_PILOT)

    @cached_property
    def _pilot(self):
        """The effective size, and the probability of the conditions."""
        _, weights = self._draw(_PILOT, np.random.default_rng(0))
        total = weights.sum()
        return float(total**2 / max((weights**2).sum(), 1e-300)), float(total / _PILOT)

    def _draw(self, n, rng):
        """Return blocks, and the probability of the conditions given the columns before each."""
        codes = np.zeros((n, len(self.blocks)), dtype=np.int64)
        weights = np.ones(n)
        for part in self.conditionals:
            shares = part.probabilities(codes)
            if part.column in self.allowed:
                wanted = self.shares[part.column] * self.allowed[part.column]
                shares = shares * np.bincount(self.blocks[part.column], wanted)
                weights *= shares.sum(axis=1)
            codes[:, part.column] = draw_codes(shares, rng)
        return codes, weights

    def _categories(self, codes, rng):
        """Return the category of each record, from its blocks."""
        found = np.empty_like(codes)
        for column, (blocks, shares) in enumerate(zip(self.blocks, self.shares, strict=True)):
            weights = shares * self.allowed.get(column, 1.0)
            found[:, column] = draw_weighted(blocks, weights, codes[:, column], rng)
        return found


def joint_codes(codes, columns, groups, shape):
    """Return the cell of each record in the table of some columns, of which groups are told apart.

    Parameters
    ----------
    codes : ndarray of int of shape (n, p)
        Blocks.
    columns : tuple of int
    groups : tuple of ndarray of int
        The group of each block, of each of the columns at least.
    shape : tuple of int
        The number of groups, likewise.

    Returns
    -------
    ndarray of int64 of shape (n,)
    """
    cells = groups[0][codes[:, columns[0]]]
    for column, group, size in zip(columns[1:], groups[1:], shape[1:], strict=False):
        cells = cells * size + group[codes[:, column]]
    return cells


def draw_codes(shares, rng):
    """Return a random category of each row, by its shares, which need not sum to one."""
    edges = np.cumsum(shares, axis=1, dtype=np.float64)
    draws = rng.uniform(size=(len(shares), 1)) * edges[:, -1:]
    return (draws > edges[:, :-1]).sum(axis=1)


def draw_weighted(codes, weights, drawn, rng):
    """Return, for each of the drawn codes, a position at which codes holds it, by the weights."""
    order = np.argsort(codes, kind="stable")
    first, stop = (np.searchsorted(codes[order], drawn, side=side) for side in ("left", "right"))
    edges = np.append(0.0, np.cumsum(weights[order]))
    targets = edges[first] + rng.uniform(size=len(drawn)) * (edges[stop] - edges[first])
    return order[np.clip(np.searchsorted(edges, targets, side="right") - 1, first, stop - 1)]
