"""Approximate distances of records and candidates in low precision, with bounds of their errors."""

from dataclasses import dataclass

import numpy as np
import torch

__all__ = ["BLOCK", "Frame", "Level", "Records", "at_least"]

# Candidates whose largest score is kept as one number. The rest of a block is looked at only where
# that number is within the tolerance.
BLOCK = 32
# Records and candidates whose scores are at hand, by precision: enough to make a call worth it,
# few enough to stay in a cache.
TILES = {torch.bfloat16: (512, 3360), torch.float32: (256, 1024), torch.float64: (128, 1024)}
# Records farther than this from all candidates, in units of their spread, have no bound.
FAR = 2.0**60
# Minus the score of a row that only fills a block.
PADDING = 2.0**100
INTEGERS = {
    torch.bfloat16: torch.int16,
    torch.float32: torch.int32,
    torch.float64: torch.int64,
}


class Frame:
    """Coordinates about the mean of the candidates, in units of their spread.

    Parameters
    ----------
    V : ndarray of float64 of shape (m, d)
    metric : {"l2", "l1", "cosine"}
        Unit rows are left where they are.

    Attributes
    ----------
    V : ndarray of shape (m, d)
        The candidates in it.
    radius : float
        Their largest norm: l1 if the metric is, else l2.
    """

    def __init__(self, V, metric):
        self.metric = metric
        self._exponent = self._spread = 0
        self._center = np.zeros(V.shape[1])
        if metric != "cosine":
            self._exponent = int(np.frexp(np.abs(V).max())[1])
            V = np.ldexp(V, -self._exponent)
            self._center = (V / len(V)).sum(axis=0)
            self._spread = int(np.frexp(np.abs(V - self._center).max())[1])
            V = np.ldexp(V - self._center, -self._spread)
        self.V = V
        self.radius = float(self.norms(V).max())

    def norms(self, X):
        """Return the l1 or l2 norms of rows."""
        return np.abs(X).sum(axis=1) if self.metric == "l1" else np.sqrt(np.square(X).sum(axis=1))

    def __call__(self, X):
        """Return records in these coordinates, their norms, and which of them are too far.

        Far rows are zeros.
        """
        if self.metric == "cosine":
            return X, self.norms(X), np.zeros(len(X), bool)
        with np.errstate(over="ignore", invalid="ignore"):
            X = np.ldexp(np.ldexp(X, -self._exponent) - self._center, -self._spread)
            norms = self.norms(X)
        far = ~(norms <= FAR)
        if far.any():
            X[far], norms[far] = 0, 0
        return X, norms, far


@dataclass(frozen=True)
class Records:
    """Records of one precision.

    ``points`` go into the score; ``error`` bounds what rounding adds to it, and to half the direct
    distance (l2; the distance itself else), for every record and any candidate.
    """

    points: torch.Tensor
    error: torch.Tensor


class Level:
    """Scores of records and candidates in one precision; the nearest candidate has the largest.

    A score is minus the distance for "l1". Else it is x v + w, where w is minus half the squared
    norm of v for "l2" and 0 for "cosine", plus a constant that makes the largest score of nearly
    every record positive.
    """

    def __init__(self, frame, order, dtype, device):
        self.frame, self.dtype, self.device = frame, dtype, device
        V = torch.from_numpy(frame.V[order])
        rounded = V.to(dtype)
        self._shift = float(frame.norms((V - rounded.double()).numpy()).max())
        columns, filling = [rounded], [-PADDING] * V.shape[1]
        if frame.metric != "l1":
            half = V.square().sum(1, keepdim=True) / 2
            if frame.metric == "l2":
                offset = half.min() + half.mean() / 4 - half
            else:
                offset = torch.ones_like(half)
            high = offset.to(dtype)
            low = (offset - high.double()).to(dtype)
            self._offset_shift = float((offset - high.double() - low.double()).abs().max())
            self._offset = float(offset.abs().max())
            columns, filling = [rounded, high, low], [0.0] * V.shape[1] + [-PADDING, 0.0]
        filling = torch.tensor(filling, dtype=dtype).expand(-len(V) % BLOCK, -1)
        self.candidates = torch.cat((torch.cat(columns, 1), filling)).to(device)

    def records(self, X, norms, far):
        """Return the :class:`Records` of rows in the frame's coordinates."""
        (n, d), radius = X.shape, self.frame.radius
        unit = 2.0**-53 if self.dtype == torch.float64 else 2.0**-24
        X = torch.from_numpy(X)
        points = X.to(self.dtype)
        order = 1 if self.frame.metric == "l1" else 2
        shift = torch.linalg.vector_norm(X - points.double(), order, dim=1)
        norms = torch.from_numpy(norms)
        span = norms + radius
        # Whatever the order of a sum of K terms, and with or without fused operations, its error
        # is at most K units of the sum of their magnitudes, to first order; twice that leaves
        # room for the rest, and for sums that are cut off instead of rounded. The last term
        # covers what float64 does to the coordinates, the norms and the direct distance.
        if self.frame.metric == "l1":
            error = shift + self._shift + 2 * (d + 2) * unit * span + (d + 16) * 2.0**-52 * span
        else:
            points = torch.cat((points, points.new_ones(n, 2)), 1)
            error = shift * (radius + self._shift) + norms * self._shift + self._offset_shift
            error += 2 * (d + 4) * unit * (norms * radius + self._offset)
            error += (d + 16) * 2.0**-52 * (span.square() + self._offset)
        error = error * (1 + 2.0**-6) + 2.0**-100
        error[torch.from_numpy(far)] = torch.inf
        return Records(points.to(self.device), error.to(self.device))

    def scores(self, candidates, points, out):
        """Write scores, of shape (candidates, points), to ``out``; a column of ``points`` each."""
        if self.frame.metric == "l1":
            return torch.neg(torch.cdist(candidates, points.T, p=1), out=out)
        return torch.mm(candidates, points, out=out)

    def surviving(self, records, memory):
        """Return blocks and records of which they may hold the nearest candidate, unordered.

        The scores at hand take ``memory`` bytes at most, or those of one record.
        """
        # Integers compare like the floats of their bits, only faster, as long as the larger float
        # is positive: negative ones are less than it in any order.
        comparable = self.dtype if self.frame.metric == "l1" else INTEGERS[self.dtype]
        n, size = len(records.points), len(self.candidates)
        width, height = TILES[self.dtype]
        height = BLOCK * -(-size // (BLOCK * -(-size // height)))
        width = max(1, min(n, width, int(memory / (8 * height))))
        points = torch.nn.functional.pad(records.points, (0, 0, 0, -n % width))
        error = torch.nn.functional.pad(records.error, (0, -n % width)).view(-1, 1, width)
        best = torch.empty(
            len(points) // width, size // BLOCK, width, dtype=comparable, device=self.device
        )
        tiles = self.candidates.split(height)
        scores = torch.empty(height, width, dtype=self.dtype, device=self.device)
        # Views are made before the loops, where the caches are full of scores.
        scores = [scores[: len(tile)] for tile in tiles]
        blocks = [part.view(comparable).view(-1, BLOCK, width) for part in scores]
        columns = points.view(-1, width, points.shape[1]).transpose(1, 2)
        bests = zip(*best.split(height // BLOCK, dim=1), strict=True)
        for column, outs in zip(columns, bests, strict=True):
            for tile, part, block, out in zip(tiles, scores, blocks, outs, strict=True):
                self.scores(tile, column, part)
                torch.amax(block, 1, out=out)
        # The nearest candidate's score is at least the largest one less an error for each of the
        # two scores and for each of their direct distances. It is so before bfloat16 stores them,
        # rounded to nearest: that moved the largest by half of its last digit at most, and the
        # other like this limit.
        limit = best.amax(1, keepdim=True).view(self.dtype).double()
        if self.dtype == torch.bfloat16:
            limit -= torch.ldexp(torch.ones_like(limit), torch.frexp(limit).exponent - 9)
        limit -= 2 * error
        stored = limit.to(self.dtype).view(comparable)
        if comparable != self.dtype:
            # No limit on blocks where it is not safely positive.
            stored[~(limit > 2.0**-100)] = torch.iinfo(comparable).min
        strip, block, row = np.unravel_index(np.flatnonzero(at_least(best, stored)), best.shape)
        row += strip * width
        real = row < n
        return block[real], row[real]


def at_least(values, limits):
    """Return ``values >= limits`` as an ndarray."""
    if values.device.type == "cpu":  # much faster in NumPy
        return values.numpy() >= limits.numpy()
    return (values >= limits).cpu().numpy()
