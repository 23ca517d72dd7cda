"""Populations of soft records, descended until their slices fit."""

from collections import defaultdict

import numpy as np
import torch

from sklearn_dpgen.nn import descend
from sklearn_dpgen.utils._torch import as_array, as_tensor

__all__ = [
    "Population",
    "SliceLoss",
    "predicted_slices",
]

# Entries of what is computed at a time for triples, beside the population itself.
_BLOCK = 1 << 22
# Categories on the two sides of a product for pairs, unless one column has more.
_TALL, _WIDE = 256, 512
# What such a product costs beyond its cells, in cells: to read each of its columns, and to call it.
_READ, _CALL = 4, 150
# Standard deviation of the logits at the start: rows must differ, for equal ones would stay equal.
_SPREAD = 0.3
# What a category weighs at least at the start, as a share.
_FLOOR = 1e-6
# Of logarithms.
_TINY = 1e-30


def predicted_slices(P, sizes, slices):
    """Return the slices of a population: expected shares of the records in each cell.

    Parameters
    ----------
    P : array-like or tensor of shape (n_rows, sum(sizes))
        A row holds probabilities of the categories of each column, which are independent given the
        row; all rows have the same share. A tensor keeps its device and precision, anything else is
        computed in double precision.
    sizes : sequence of int
        Categories of each column.
    slices : sequence of tuple of int
        One to three columns each.

    Returns
    -------
    list of ndarray of float64
        P_aᵀ P_b / n_rows of columns a and b; an axis a column.

    Notes
    -----
    Beside the tables there is one copy of the population, and blocks of at most 512 categories.
    """
    P = P if isinstance(P, torch.Tensor) else as_tensor(P, dtype=torch.float64)
    P = P.detach().T
    n_rows = P.shape[1]
    blocks = P.split(list(sizes))
    tables = [None] * len(slices)
    for left, right, places in _pair_products(sizes, slices, P.device):
        product = as_array(P[left] @ _read(P, right).T) / n_rows
        for place, cells in places:
            tables[place] = _in_order(product[cells], slices[place]).copy()
    for place, columns in enumerate(slices):
        if len(columns) == 2:
            continue
        *first, last = (blocks[column] for column in columns)
        joint = P.new_ones(1, n_rows)
        for block in first:
            joint = (joint[:, None] * block).flatten(0, 1)
        shape = [sizes[column] for column in columns]
        tables[place] = as_array(joint @ last.T).reshape(shape) / n_rows
    return tables


def _pair_products(sizes, slices, device):
    """Cover the tables of pairs with products of matrices that hold little else.

    Yields
    ------
    left : slice
        Categories of neighbouring columns.
    right : slice or tensor of int
        Categories of later columns, which are in a pair with one of them.
    places : list of (int, tuple of slice)
        Of each pair here: which of the slices, and its cells, the earlier column first.
    """
    sizes = np.asarray(sizes)
    stops = np.cumsum(sizes)
    starts = stops - sizes
    paired = np.zeros((len(sizes), len(sizes)), dtype=bool)
    given = defaultdict(list)
    for place, columns in enumerate(slices):
        if len(columns) == 2:
            pair = min(columns), max(columns)
            paired[pair] = True
            given[pair].append(place)
    for first, stop, partners in _shared_products(sizes, paired):
        cuts = np.flatnonzero(np.diff(np.cumsum(sizes[partners]) // _WIDE)) + 1
        for part in np.split(partners, cuts):
            right = slice(starts[part[0]], stops[part[-1]])
            if part[-1] - part[0] >= len(part):
                right = np.concatenate([np.arange(starts[i], stops[i]) for i in part])
                right = torch.from_numpy(right).to(device)
            offsets = np.cumsum(sizes[part]) - sizes[part]
            places = [
                (place, (_span(starts[i] - starts[first], sizes[i]), _span(offset, sizes[j])))
                for i in range(first, stop)
                for j, offset in zip(part, offsets, strict=True)
                for place in given.get((i, j), ())
            ]
            yield slice(starts[first], stops[stop - 1]), right, places


def _shared_products(sizes, paired):
    """Yield runs of columns and their partners, as long as a joint product is the cheaper one.

    With all pairs the runs are long; where each column has its own partners they are short.
    """

    def cost(first, stop, partners):
        return (sizes[first:stop].sum() + _READ) * sizes[partners].sum() + _CALL

    stop = 0
    while stop < len(sizes):
        first, partners, stop = stop, paired[stop], stop + 1
        while stop < len(sizes) and sizes[first : stop + 1].sum() <= _TALL:
            union = partners | paired[stop]
            apart = cost(first, stop, partners) + cost(stop, stop + 1, paired[stop])
            if cost(first, stop + 1, union) > apart:
                break
            partners, stop = union, stop + 1
        if partners.any():
            yield first, stop, np.flatnonzero(partners)


def _span(start, size):
    return slice(start, start + size)


def _read(P, categories):
    return P[categories] if isinstance(categories, slice) else P.index_select(0, categories)


def _in_order(table, columns):
    """Return the table of a pair with its axes swapped if the columns descend."""
    return table.T if columns[0] > columns[1] else table


class SliceLoss:
    """Squared distance of the slices of a population from given tables, and its gradient.

    Σ_c ω_c ‖slice_c(P) − t_c‖²: up to a constant, minus the log likelihood of t_c under Gaussian
    noise of variance 1 / (2 ω_c) a cell.

    Parameters
    ----------
    sizes : sequence of int
        Categories of each column.
    slices : sequence of tuple of int
        One to three columns each, distinct sets of distinct columns.
    tables : sequence of ndarray
        Of shares, an axis a column; with noise they may be negative.
    weights : sequence of float or ndarray
        ω_c, one a slice; of a single column it may be an array, one a category.
    device : torch.device

    Notes
    -----
    A pair takes three products of d_a d_b n_rows, a triple four of d_a d_b d_c n_rows. Pairs share
    products where that wastes little: all pairs of D categories take about 3/2 D² n_rows, and few
    pairs a time in proportion to their cells. Beside the population, its gradient and the tables
    with their weights there are blocks of about 512 categories of the population, of 256 by 512
    cells or one table that is larger, and of 16 MB for triples.
    """

    def __init__(self, sizes, slices, tables, weights, device):
        stops = np.cumsum(sizes)
        parts = [slice(stop - size, stop) for stop, size in zip(stops, sizes, strict=True)]
        self.scale = float(max(map(np.max, weights)))
        singles = np.zeros((2, stops[-1]))
        self._pairs, self._triples = [], []
        for columns, table, weight in zip(slices, tables, weights, strict=True):
            if len(columns) == 1:
                singles[:, parts[columns[0]]] = np.broadcast_to(weight, table.shape), table
            elif len(columns) == 3:
                targets = as_tensor(table, device=device).flatten(0, 1)
                self._triples.append(([parts[column] for column in columns], targets, weight))
        self._single_weights, self._singles = as_tensor(singles, device=device)
        for left, right, places in _pair_products(sizes, slices, device):
            width = right.stop - right.start if isinstance(right, slice) else len(right)
            both = np.zeros((2, left.stop - left.start, width), dtype=np.float32)
            for place, cells in places:
                both[0][cells] = weights[place]
                both[1][cells] = _in_order(tables[place], slices[place])
            self._pairs.append((left, right, *as_tensor(both, device=device)))

    def __call__(self, P):
        """Return the loss and its gradient.

        Parameters
        ----------
        P : tensor of float32 of shape (D, n_rows)
            The population, a row of it in each column here, so that blocks are contiguous.

        Returns
        -------
        loss : tensor
        gradient : tensor of shape (D, n_rows)
        """
        n_rows = P.shape[1]
        error = P.mean(dim=1) - self._singles
        slope = self._single_weights * error
        loss = torch.dot(slope, error)
        gradient = slope[:, None].expand(P.shape).clone()
        for left, right, weights, targets in self._pairs:
            first, second = P[left], _read(P, right)
            error = torch.addmm(targets, first, second.T, beta=-1, alpha=1 / n_rows)
            pull = weights * error
            loss = loss + torch.dot(pull.flatten(), error.flatten())
            gradient[left].addmm_(pull, second)
            if isinstance(right, slice):
                gradient[right].addmm_(pull.T, first)
            else:
                gradient.index_add_(0, right, pull.T @ first)
        for parts, targets, weight in self._triples:
            loss = loss + self._triple(P, gradient, parts, targets, weight)
        return loss, gradient.mul_(2 / n_rows)

    def _triple(self, P, gradient, parts, targets, weight):
        """Return the loss of three columns, and add half its gradient times the rows."""
        first, second, third = parts
        size, n_rows = second.stop - second.start, P.shape[1]
        loss = P.new_zeros(())
        count = max(1, _BLOCK // (size * n_rows))
        for start in range(first.start, first.stop, count):
            part = slice(start, min(start + count, first.stop))
            joint = (P[part, None] * P[second]).flatten(0, 1)
            cells = slice((part.start - first.start) * size, (part.stop - first.start) * size)
            error = torch.addmm(targets[cells], joint, P[third].T, beta=-1, alpha=1 / n_rows)
            loss = loss + weight * error.square().sum()
            gradient[third].addmm_(error.T, joint, alpha=weight)
            pull = weight * (error @ P[third]).unflatten(0, (-1, size))
            gradient[part].add_((pull * P[second]).sum(dim=1))
            gradient[second].add_((pull * P[part, None]).sum(dim=0))
        return loss


class Population(torch.nn.Module):
    """Rows of soft categories, the softmax of free logits a block.

    Parameters
    ----------
    marginals : sequence of array-like of shape (size,)
        Shares of the categories of each column, which may be noisy: rows start around them.
    n_rows : int
    generator : torch.Generator of the CPU
        Draws how the rows differ at the start.
    device : torch.device
    """

    def __init__(self, marginals, n_rows, generator, device):
        super().__init__()
        self.sizes = [len(shares) for shares in marginals]
        shares = np.concatenate([np.asarray(part, dtype=np.float64) for part in marginals])
        center = as_tensor(np.log(np.maximum(shares, _FLOOR)))[:, None]
        noise = torch.randn(len(center), n_rows, generator=generator)
        self.logits = torch.nn.Parameter((center + _SPREAD * noise).to(device))
        center = torch.cat([part.log_softmax(0) for part in center.split(self.sizes)])
        self.register_buffer("_center", center.to(device))

    @torch.no_grad()
    def forward(self, dtype=torch.float32):
        """Return the probabilities, a tensor of shape (sum(sizes), n_rows)."""
        P = torch.empty_like(self.logits, dtype=dtype)
        for logits, out in zip(self.logits.split(self.sizes), P.split(self.sizes), strict=True):
            torch.softmax(logits, 0, dtype=dtype, out=out)
        return P

    def probabilities(self):
        """Return the probabilities, an array of float64 of shape (n_rows, sum(sizes))."""
        return np.ascontiguousarray(as_array(self(torch.float64)).T)

    def fit(self, loss, *, prior=0.0, max_iter, learning_rate, stop=None, verbose=0, name="fit"):
        """Descend a loss from where the rows stand.

        Parameters
        ----------
        loss : callable
            ``loss(P)`` returns a loss and its gradient, as SliceLoss does; ``loss.scale`` is about
            the size of its weights.
        prior : float, default=0.0
            Weight, beside the loss, of the mean divergence of a row from independent columns with
            the given marginals, KL(row ‖ marginals) in nats: columns then depend on each other no
            more than the tables ask for.
        max_iter : int
        learning_rate : float
            Peak rate of Adam, in logits a step.
        stop : callable, default=None
            ``stop(step)`` is asked after each step; where it is true, none follows.
        verbose : int, default=0
        name : str, default="fit"
            Of the progress bar.

        Returns
        -------
        TrainingResult
            With the loss, without the divergence.
        """
        n_rows = self.logits.shape[1]
        # A factor is no matter to Adam, unless gradients come near its floor of 1e-8.
        factor = n_rows / loss.scale

        def gradient_fn(step):
            P = self()
            value, slope = loss(P)
            if prior:
                # Up to a constant in each block, which the lines below take out.
                slope.add_(torch.log(P.clamp_min(_TINY)).sub_(self._center), alpha=prior / n_rows)
            slope.mul_(P)
            for rows, part in zip(P.split(self.sizes), slope.split(self.sizes), strict=True):
                part.addcmul_(rows, part.sum(dim=0), value=-1)
            return value.item(), [slope.mul_(factor)]

        return descend(
            self,
            gradient_fn,
            max_iter=max_iter,
            learning_rate=learning_rate,
            stop=stop,
            verbose=verbose,
            name=name,
        )
