"""Exact nearest candidates.

What is nearest is defined once, by :func:`direct_distances`. Everything else here only tells which
candidates cannot be it.
"""

import time
from functools import cache, cached_property

import numpy as np
import torch
from scipy.spatial import KDTree

from sklearn_dpgen.evolution._low_precision_scores import BLOCK, Frame, Level, Records, at_least

__all__ = ["TorchSearch", "direct_distances", "first_of_equal", "unit_rows"]

MOST_ROWS = 2**16


def direct_distances(X, V, metric, largest):
    """Distances of aligned rows in float64: the terms are added one by one, in their order.

    Parameters
    ----------
    X, V : ndarray of float64 of shape (n, d)
        Rows of unit length or zero if the metric is "cosine".
    metric : {"l2", "l1", "cosine"}
    largest : float
        Largest magnitude of any entry of the candidates.

    Returns
    -------
    ndarray of shape (n,)
        Squared for "l2"; minus the inner product for "cosine". Entries beyond 2^400, or all below
        2^-400, are first taken in units of a power of two, one per record, so that nothing
        overflows.
    """
    total = np.zeros(len(X))
    if metric == "cosine":
        for x, v in zip(X.T, V.T, strict=True):
            total -= x * v
        return total
    exponents = np.frexp(np.maximum(np.abs(X).max(axis=1, initial=0), largest))[1]
    exponents[np.abs(exponents) <= 400] = 0
    if exponents.any():
        X, V = np.ldexp(X, -exponents[:, None]), np.ldexp(V, -exponents[:, None])
    for x, v in zip(X.T, V.T, strict=True):
        difference = x - v
        total += difference * difference if metric == "l2" else np.abs(difference)
    return total


def unit_rows(X):
    """Return the rows over their l2 norms in float64; a row of zeros stays one."""
    exponents = np.frexp(np.abs(X).max(axis=1, initial=0))[1]
    X = np.ldexp(X, -exponents[:, None])
    squares = np.zeros(len(X))
    for x in X.T:
        squares += x * x
    return X / np.sqrt(np.where(squares > 0, squares, 1))[:, None]


def first_of_equal(V):
    """Return the index of the first of each of the distinct rows, in order; no zero has a sign."""
    keys = np.ascontiguousarray(V).view(np.dtype((np.void, V.shape[1] * V.itemsize))).ravel()
    first = dict(zip(keys[::-1].tolist(), range(len(V) - 1, -1, -1), strict=True))
    return np.sort(np.fromiter(first.values(), np.int64, len(first)))


class TorchSearch:
    """The nearest candidate of every record, by matrix products.

    Parameters
    ----------
    V : ndarray of float64 of shape (m, d)
        Distinct candidates; unit rows if the metric is "cosine".
    metric : {"l2", "l1", "cosine"}
    memory : float
        Bound of the working memory in bytes, beside a few copies of the candidates. One record
        against all of them is done at once whatever it takes.
    device : torch.device

    Notes
    -----
    Scores of all candidates in a low precision leave a few blocks per record; of these, scores in
    the next one, again with a tolerance, leave one candidate of nearly every record. The others
    are decided by :func:`direct_distances`. A low precision that leaves too much is given up.
    """

    def __init__(self, V, metric, *, memory, device):
        self.V, self.metric, self.memory, self.device = V, metric, memory, device
        self.largest = float(np.abs(V).max())
        self.frame = Frame(V, metric)
        # Neighbours share a block, so that the tolerance leaves few blocks.
        self._order = KDTree(self.frame.V, leafsize=BLOCK).indices.astype(np.int64)
        self._n_blocks = -(-len(V) // BLOCK)
        self._n_given_up = 0
        self._levels = {}

    def __getstate__(self):
        # Levels are quickly built again, and not to be sent.
        return vars(self) | {"_levels": {}}

    @cached_property
    def _precisions(self):
        """Precisions of the first search; with few blocks there is none."""
        if self._n_blocks <= 8:
            return []
        if self.metric == "l1":
            return [torch.float64]
        width = self.V.shape[1] + 2
        precisions = [torch.float32] * product_is_exact(width, self.device) + [torch.float64]
        if self.device.type == "cpu" and bfloat16_is_faster(width):
            precisions.insert(0, torch.bfloat16)
        return precisions

    def _level(self, dtype):
        if dtype not in self._levels:
            self._levels[dtype] = Level(self.frame, self._order, dtype, self.device)
        return self._levels[dtype]

    def nearest(self, X):
        """Return the index of every record's nearest candidate, the smallest if tied.

        Parameters
        ----------
        X : ndarray of float64 of shape (n, d)
            Finite; unit rows or zeros if the metric is "cosine".

        Returns
        -------
        ndarray of int64 of shape (n,)
        """
        n_rows = int(self.memory / 3 / (64 * (X.shape[1] + 2) + 26 * self._n_blocks))
        # Whole tiles: a matrix product of a new shape is compiled first.
        n_rows = min(n_rows - n_rows % 512 or max(n_rows, 1), MOST_ROWS)
        found, waiting, first = np.empty(len(X), np.int64), [], 0
        for start in range(0, len(X), n_rows):
            stop = min(start + n_rows, len(X))
            coordinates = self.frame(X[start:stop])
            blocks, rows = self._pairs(coordinates)
            waiting.append((blocks, rows + (start - first), *coordinates))
            n_pairs = sum(len(part[0]) for part in waiting)
            # Many at once make the second search worth its calls.
            if stop == len(X) or stop - first >= MOST_ROWS or 2 * n_pairs > self._most_pairs:
                blocks, rows, *coordinates = map(np.concatenate, zip(*waiting, strict=True))
                order = np.argsort(blocks, kind="stable")
                # The first precision after the one that is good enough for the first search.
                finer = self._precisions[self._n_given_up + 1 :] or [torch.float64]
                level = self._level(finer[0])
                records = level.records(*coordinates)
                self._settle(
                    level, X[first:stop], blocks[order], rows[order], records, found[first:stop]
                )
                waiting, first = [], stop
        return found

    @property
    def _most_pairs(self):
        return self.memory / 2 / (BLOCK * 9 + 16 * self.V.shape[1] + 96)

    def _pairs(self, coordinates):
        """Return blocks and records of which they may hold the nearest candidate, unordered."""
        n = len(coordinates[0])
        if not self._precisions:
            return np.repeat(np.arange(self._n_blocks), n), np.tile(np.arange(n), self._n_blocks)
        for i in range(self._n_given_up, len(self._precisions)):
            self._n_given_up, level = i, self._level(self._precisions[i])
            blocks, rows = level.surviving(level.records(*coordinates), self.memory / 8)
            # About where the next precision costs less than what it would spare.
            if len(rows) <= n * (2 + self._n_blocks / 32):
                break
        return blocks, rows

    def _settle(self, level, X, blocks, rows, records, found):
        """Write the nearest candidates to ``found``, for sorted blocks and their rows."""
        kept = None
        if len(rows) <= self._most_pairs or len(X) == 1:
            kept = self._kept(level, blocks, rows, records)
        if kept is not None:
            found[:] = self._decide(X, *kept)
            return
        middle = len(X) // 2
        for part, chosen in (
            (slice(0, middle), rows < middle),
            (slice(middle, None), rows >= middle),
        ):
            self._settle(
                level,
                X[part],
                blocks[chosen],
                rows[chosen] - part.start,
                Records(records.points[part], records.error[part]),
                found[part],
            )

    def _kept(self, level, blocks, rows, records):
        """Return rows and candidates that may be nearest; None if they are too many at once."""
        index = torch.from_numpy(rows).to(self.device)
        points = records.points.index_select(0, index)
        scores = points.new_empty(BLOCK, len(rows))
        counts = np.bincount(blocks, minlength=len(level.candidates) // BLOCK).tolist()
        for candidates, column, part in zip(
            level.candidates.split(BLOCK),
            points.T.split(counts, dim=1),
            scores.split(counts, dim=1),
            strict=True,
        ):
            if part.shape[1] > 0:
                level.scores(candidates, column, part)
        best = scores.new_full((len(records.points),), -torch.inf)
        best.scatter_reduce_(0, index, scores.amax(0), "amax")
        limit = (best.double() - 2 * records.error).to(scores.dtype)
        keep = at_least(scores, limit[index])
        if len(records.points) > 1 and np.count_nonzero(keep) > self.memory / 4 / 128:
            return None
        within, pair = np.divmod(np.flatnonzero(keep), len(rows))
        rows, candidates = rows[pair], blocks[pair] * BLOCK + within
        real = candidates < len(self.V)
        return rows[real], self._order[candidates[real]]

    def _decide(self, X, rows, candidates):
        """Return every row's candidate of the least direct distance, the smallest if tied."""
        found = np.empty(len(X), np.int64)
        found[rows] = candidates
        open_ = np.bincount(rows, minlength=len(X))[rows] > 1
        rows, candidates = rows[open_], candidates[open_]
        distances = np.empty(len(rows))
        step = max(1, int(self.memory / 8 / (48 * X.shape[1])))
        for start in range(0, len(rows), step):
            part = slice(start, start + step)
            distances[part] = direct_distances(
                X[rows[part]], self.V[candidates[part]], self.metric, self.largest
            )
        order = np.lexsort((candidates, distances, rows))
        rows, first = np.unique(rows[order], return_index=True)
        found[rows] = candidates[order][first]
        return found


def product_is_exact(width, device):
    """Say whether products of float32 matrices keep all digits of the factors.

    The settings of torch may round them to TF32 or bfloat16.
    """
    factor = 1 + 2.0**-23
    left = torch.full((512, width), factor, device=device)
    right = torch.eye(width, device=device).repeat(-(-512 // width), 1)[:512] * factor
    return bool((torch.mm(left, right.T) == 1 + 2.0**-22).all())


@cache
def bfloat16_is_faster(width):
    """Say whether this processor multiplies matrices in bfloat16 faster than in float32."""
    seconds = {}
    for dtype in (torch.bfloat16, torch.float32):
        left, right = torch.ones(2048, width, dtype=dtype), torch.ones(512, width, dtype=dtype)
        out = torch.empty(2048, 512, dtype=dtype)
        times = []
        for _ in range(4):
            start = time.perf_counter()
            torch.mm(left, right.T, out=out)
            times.append(time.perf_counter() - start)
        seconds[dtype] = min(times[1:])
    return seconds[torch.bfloat16] < seconds[torch.float32]
