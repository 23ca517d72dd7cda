"""Exact searches of the nearest candidate.

:func:`direct_distances` defines in float64 which candidate is nearest, and ties go to the first
one. Every search returns this candidate: approximate distances only rule candidates out, by bounds
of their rounding errors.
"""

from abc import ABC, abstractmethod

import numpy as np
import torch
from scipy.spatial import KDTree

from sklearn_dpgen.exceptions import PublicImportError, PublicValueError
from sklearn_dpgen.utils._threads import limit_new_libraries
from sklearn_dpgen.utils._torch import resolve_device

__all__ = ["MetricSearch", "ProductSearch", "first_of_equal", "make_search", "unit_rows"]

# Candidates whose largest score is compared with the limit at once.
BLOCK = 32
# Scores at hand: enough to make a matrix product worth its call, and few enough for a cache.
STRIP = 2**20
# Bytes that a score may take where no candidate can be ruled out.
SCORE_BYTES = 160
# Records farther than this from all candidates, in units of their spread, have no error bound.
FAR = 2.0**60
# Minus the score of a row that only fills a block.
PADDING = 2.0**100


def make_search(V, metric, *, backend, memory, device):
    """Return the search of a backend.

    Parameters
    ----------
    V : ndarray of float64 of shape (m, d)
        Distinct candidates; unit rows if the metric is "cosine".
    metric : {"l2", "l1", "cosine"}
    backend : {"torch", "tree", "faiss"}
    memory : float
        Bound of the working memory in bytes, beside a few copies of the candidates. One record
        against all of them is done at once whatever it takes.
    device : str or torch.device
        Device of the matrix products.

    Returns
    -------
    object
        Its ``nearest(X)`` returns the index of the nearest candidate of every record, the smallest
        one if there are ties. Records are finite float64, unit rows or zeros for "cosine".
    """
    if backend == "tree" and metric == "cosine":
        raise PublicValueError("backend 'tree' does not take the metric 'cosine'.")
    if backend == "faiss" and metric != "l2":
        raise PublicValueError(f"backend 'faiss' takes the metric 'l2' only, got {metric!r}.")
    if backend == "tree":
        return TreeSearch(V, metric, memory=memory)
    if backend == "faiss":
        _faiss()
        return FaissSearch(V, metric, memory=memory)
    return ProductSearch(V, metric, memory=memory, device=device)


def direct_distances(X, V, metric, largest):
    """Return distances of aligned rows in float64, summed feature by feature in their order.

    Parameters
    ----------
    X, V : ndarray of float64 of shape (n, d)
        Unit rows or zeros if the metric is "cosine".
    metric : {"l2", "l1", "cosine"}
    largest : float
        Largest magnitude of any entry of the candidates.

    Returns
    -------
    ndarray of shape (n,)
        Squared for "l2"; minus the inner product for "cosine". Records with entries beyond 2^400,
        or with all entries below 2^-400, are first scaled by a power of two, so that nothing
        overflows.
    """
    if metric == "cosine":
        return -np.cumsum(X * V, axis=1)[:, -1]
    exponents = np.frexp(np.maximum(np.abs(X).max(axis=1, initial=0), largest))[1]
    exponents[np.abs(exponents) <= 400] = 0
    if exponents.any():
        X, V = np.ldexp(X, -exponents[:, None]), np.ldexp(V, -exponents[:, None])
    terms = X - V
    np.square(terms, out=terms) if metric == "l2" else np.abs(terms, out=terms)
    return np.cumsum(terms, axis=1)[:, -1]


def unit_rows(X):
    """Return the rows divided by their l2 norms in float64; a row of zeros stays zero."""
    exponents = np.frexp(np.abs(X).max(axis=1, initial=0))[1]
    X = np.ldexp(X, -exponents[:, None])
    squares = np.cumsum(X * X, axis=1)[:, -1]
    return X / np.sqrt(np.where(squares > 0, squares, 1))[:, None]


def first_of_equal(V):
    """Return the sorted indices of the first of each of the distinct rows; no zero has a sign."""
    keys = np.ascontiguousarray(V).view(np.dtype((np.void, V.shape[1] * V.itemsize))).ravel()
    first = dict(zip(keys[::-1].tolist(), range(len(V) - 1, -1, -1), strict=True))
    return np.sort(np.fromiter(first.values(), np.int64, len(first)))


class Frame:
    """Coordinates about the mean of the candidates, in units of their spread.

    In these coordinates nothing overflows, and no underflow matters.

    Parameters
    ----------
    V : ndarray of float64 of shape (m, d)
    metric : {"l2", "l1", "cosine"}
        Unit rows stay as they are.

    Attributes
    ----------
    V : ndarray of shape (m, d)
        The candidates in these coordinates.
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

        Rows that are too far are set to zero.
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


class Scores:
    """Scores of records and candidates in one precision; the nearest candidate has the largest.

    A score is minus the distance for "l1", else x·v + w, where w is minus half the squared norm of
    v for "l2" and 0 for "cosine".

    Parameters
    ----------
    frame : Frame
    dtype : torch.dtype
        float32 or float64.
    device : torch.device
    """

    def __init__(self, frame, dtype, device):
        self.frame, self.dtype, self.device = frame, dtype, device
        V = torch.from_numpy(frame.V)
        rounded = V.to(dtype)
        self._shift = float(frame.norms((V - rounded.double()).numpy()).max())
        self._offset = self._offset_shift = 0.0
        columns, filling = [rounded], [-PADDING] * V.shape[1]
        if frame.metric != "l1":
            offset = -V.square().sum(1, keepdim=True) / 2 * (frame.metric == "l2")
            # Two numbers hold the offset, so that its rounding does not matter in float32.
            high = offset.to(dtype)
            low = (offset - high.double()).to(dtype)
            self._offset_shift = float((offset - high.double() - low.double()).abs().max())
            self._offset = float(offset.abs().max())
            columns, filling = [rounded, high, low], [0.0] * V.shape[1] + [-PADDING, 0.0]
        filling = torch.tensor(filling, dtype=dtype, device="cpu").expand(-len(V) % BLOCK, -1)
        self.candidates = torch.cat((torch.cat(columns, 1), filling)).to(device)

    def records(self, X, norms, far):
        """Return records of this precision, and bounds of the errors of their scores.

        Parameters
        ----------
        X, norms, far
            The result of the frame.

        Returns
        -------
        points : torch.Tensor of shape (n, width)
        error : torch.Tensor of float64 of shape (n,)
            Bound of the rounding error of a score, and of half the direct distance ("l2") or of
            the direct distance (others), for any candidate.
        """
        (n, d), radius = X.shape, self.frame.radius
        unit = 2.0**-53 if self.dtype == torch.float64 else 2.0**-24
        X = torch.from_numpy(X)
        points = X.to(self.dtype)
        order = 1 if self.frame.metric == "l1" else 2
        shift = torch.linalg.vector_norm(X - points.double(), order, dim=1)
        norms = torch.from_numpy(norms)
        span = norms + radius
        # The error of a sum of K terms, in any order and with or without fused operations, is at
        # most K units of the sum of their magnitudes, to first order. The factor 2 covers higher
        # orders, and truncation instead of rounding. The last term covers the rounding of the
        # coordinates, the norms and the direct distance in float64.
        if self.frame.metric == "l1":
            error = shift + self._shift + 2 * (d + 2) * unit * span + (d + 16) * 2.0**-52 * span
        else:
            points = torch.cat((points, points.new_ones(n, 2)), 1)
            error = shift * (radius + self._shift) + norms * self._shift + self._offset_shift
            error += 2 * (d + 4) * unit * (norms * radius + self._offset)
            error += (d + 16) * 2.0**-52 * (span.square() + self._offset)
        error = error * (1 + 2.0**-6) + 2.0**-100
        error[torch.from_numpy(far)] = torch.inf
        return points.to(self.device), error.to(self.device)

    def survivors(self, points, error, buffer):
        """Return the pairs that may be nearest.

        Parameters
        ----------
        points, error
            The result of :meth:`records`, or some rows of it.
        buffer : torch.Tensor of shape (n_scores,)
            Memory of the scores, which is overwritten. Allocating it in every call would take as
            long as the product in few dimensions.

        Returns
        -------
        rows, candidates : ndarray of int64
            Pairs of a record and a candidate. The nearest candidate of each record is among them.
        """
        n, padded = len(points), len(self.candidates)
        scores = buffer[: padded * n].view(padded, n)
        if self.frame.metric == "l1":
            torch.neg(torch.cdist(self.candidates, points, p=1), out=scores)
        else:
            torch.mm(self.candidates, points.T, out=scores)
        scores = scores.view(-1, BLOCK, n)
        best = scores.amax(1)
        # The nearest candidate scores at least the best less an error for each of the two scores
        # and for each of the two direct distances.
        limit = (best.amax(0).double() - 2 * error).to(self.dtype)
        blocks, rows = _pairs(best >= limit)
        on_device = [torch.from_numpy(index).to(self.device) for index in (blocks, rows)]
        pairs, offsets = _pairs(scores[on_device[0], :, on_device[1]] >= limit[on_device[1], None])
        rows, candidates = rows[pairs], BLOCK * blocks[pairs] + offsets
        real = candidates < len(self.frame.V)
        return rows[real], candidates[real]


def _pairs(mask):
    """Return the indices of the true entries of a matrix; NumPy finds few of them faster."""
    return np.divmod(np.flatnonzero(mask.cpu().numpy()), mask.shape[1])


class ProductSearch:
    """The nearest candidate of every record, by matrix products.

    Scores in float32 leave one candidate of nearly every record, and :func:`direct_distances`
    decides between several. Where float32 leaves more than a candidate in 32, as where candidates
    form tight clusters, scores in float64 come in between.

    Parameters
    ----------
    V, metric, memory, device
        As in :func:`make_search`.
    """

    def __init__(self, V, metric, *, memory, device):
        self.V, self.metric, self.memory, self.device = V, metric, memory, resolve_device(device)
        self.largest = float(np.abs(V).max())
        self.frame = Frame(V, metric)
        self._scores = {}

    def __getstate__(self):
        # Copies of the candidates are quickly made again, and not to be sent to workers.
        return vars(self) | {"_scores": {}}

    def _scores_in(self, dtype):
        if dtype not in self._scores:
            self._scores[dtype] = Scores(self.frame, dtype, self.device)
        return self._scores[dtype]

    def nearest(self, X):
        """Return the index of every record's nearest candidate, the smallest if tied."""
        d, padded = X.shape[1], len(self.V) + -len(self.V) % BLOCK
        is_exact = self.metric == "l1" or product_is_exact(d + 2, self.device)
        scores = self._scores_in(torch.float32 if is_exact else torch.float64)
        most = max(1, int(min(STRIP, self.memory / SCORE_BYTES)))
        strip = max(1, most // padded)
        strip -= strip % 64 if strip > 64 else 0  # products of other widths are slower
        buffer = torch.empty(min(strip, len(X)) * padded, dtype=scores.dtype, device=self.device)
        step = strip * max(1, int(self.memory / 4 / (64 * (d + 2))) // strip)
        nearest = np.empty(len(X), np.int64)
        for start in range(0, len(X), step):
            block = X[start : start + step]
            coordinates = self.frame(block)
            points, error = scores.records(*coordinates)
            waiting, n_waiting = [], 0
            for low in range(0, len(block), strip):
                chunk = slice(low, low + strip)
                rows, candidates = scores.survivors(points[chunk], error[chunk], buffer)
                many = BLOCK * len(rows) > len(points[chunk]) * padded
                if scores.dtype == torch.float32 and many:
                    exact = self._scores_in(torch.float64)
                    rows, candidates = exact.survivors(
                        *exact.records(*(one[chunk] for one in coordinates)), buffer.double()
                    )
                waiting.append((rows + low, candidates))
                n_waiting += len(rows)
                # Pairs are decided together, because each decision has a fixed cost.
                if n_waiting >= most or low + strip >= len(block):
                    self._decide(block, waiting, nearest[start : start + step])
                    waiting, n_waiting = [], 0
        return nearest

    def _decide(self, X, waiting, nearest):
        """Write the candidate of the least direct distance of rows, the smallest if tied."""
        rows, candidates = map(np.concatenate, zip(*waiting, strict=True))
        nearest[rows] = candidates
        is_open = np.bincount(rows, minlength=len(X))[rows] > 1
        rows, candidates = rows[is_open], candidates[is_open]
        distances = np.empty(len(rows))
        step = max(1, int(self.memory / 8 / (48 * X.shape[1])))
        for start in range(0, len(rows), step):
            chunk = slice(start, start + step)
            distances[chunk] = direct_distances(
                X[rows[chunk]], self.V[candidates[chunk]], self.metric, self.largest
            )
        order = np.lexsort((candidates, distances, rows))
        rows, first = np.unique(rows[order], return_index=True)
        nearest[rows] = candidates[order][first]


def product_is_exact(width, device):
    """Return whether products of float32 matrices keep all digits of the factors.

    The settings of torch may round them to TF32 or bfloat16.
    """
    factor = 1 + 2.0**-23
    options = {"dtype": torch.float32, "device": device}
    left = torch.full((512, width), factor, **options)
    right = torch.eye(width, **options).repeat(-(-512 // width), 1)[:512] * factor
    return bool((torch.mm(left, right.T) == 1 + 2.0**-22).all())


class MetricSearch:
    """The nearest candidate by the distances of a callable.

    Parameters
    ----------
    V : ndarray of shape (m, d)
    metric : callable
    memory : float
        Bytes of the distances at hand, or those of one record.
    """

    def __init__(self, V, metric, *, memory):
        self.V, self.metric, self.memory = V, metric, memory

    def nearest(self, X):
        """Return the index of every record's nearest candidate, the smallest if tied."""
        rows = max(1, int(self.memory / 2 / (8 * len(self.V))))
        nearest = np.empty(len(X), np.int64)
        for start in range(0, len(X), rows):
            chunk = slice(start, start + rows)
            distances = self.metric(X[chunk], self.V)
            if hasattr(distances, "detach"):
                distances = distances.detach().cpu().numpy()
            distances = np.asarray(distances)
            # Without the shape, as the number of records of a partition is private.
            if distances.shape != (len(X[chunk]), len(self.V)):
                raise PublicValueError("metric must return one distance for each pair of rows.")
            if distances.dtype.kind not in "fiub" or not np.isfinite(distances).all():
                raise PublicValueError("metric must return finite real distances.")
            nearest[chunk] = distances.argmin(axis=1)
        return nearest


class _TwoNearest(ABC):
    """Base class of searches by approximate distances to the two nearest candidates.

    If the two distances are equal within their errors, :class:`ProductSearch` decides.
    """

    _power: int
    _tolerance: float

    @abstractmethod
    def _query(self, points):
        """Return approximate distances to the two nearest candidates, and their indices."""

    def __init__(self, V, metric, *, memory):
        self._exact = ProductSearch(V, metric, memory=memory, device="cpu")
        self.frame = self._exact.frame
        self._rows = max(1, int(memory / 4 / (64 * V.shape[1])))

    def nearest(self, X):
        """Return the index of every record's nearest candidate, the smallest if tied."""
        nearest = np.empty(len(X), np.int64)
        for start in range(0, len(X), self._rows):
            chunk = slice(start, start + self._rows)
            points, norms, far = self.frame(X[chunk])
            distances, indices = self._query(points)
            margin = self._tolerance * (norms + self.frame.radius) ** self._power
            unclear = far | ~(distances[:, 1] - distances[:, 0] > margin)
            indices = indices[:, 0].astype(np.int64)
            if unclear.any():
                indices[unclear] = self._exact.nearest(X[chunk][unclear])
            nearest[chunk] = indices
        return nearest


class TreeSearch(_TwoNearest):
    """SciPy's k-d tree.

    Coordinates are within 2^-52 (|x| + |v|) of the exact ones, and a distance adds (d + 2) 2^-53 of
    its own. The bounds by which the tree skips a branch are sums of differences that lose
    as little for every level. The tolerance leaves a factor of about 2^8 to all that.
    """

    _power = 1

    def __init__(self, V, metric, *, memory):
        super().__init__(V, metric, memory=memory)
        self._tolerance = (V.shape[1] + 64) * 2.0**-44
        self._p = 1 if metric == "l1" else 2
        self._tree = KDTree(self.frame.V)

    def _query(self, points):
        return self._tree.query(points, k=2, p=self._p)


class FaissSearch(_TwoNearest):
    """A flat index of FAISS, with distances in float32.

    Two squared distances may be off by (d + 8) 2^-23 (|x| + |v|)^2 each: for every rounded entry
    and for every term of the sums, twice.
    """

    _power = 2

    def __init__(self, V, metric, *, memory):
        super().__init__(V, metric, memory=memory)
        self._tolerance = (V.shape[1] + 8) * 2.0**-22

    def _query(self, points):
        # Every call builds the index: that is quick, and the index is not sent to workers.
        index = _faiss().IndexFlatL2(points.shape[1])
        index.add(self.frame.V.astype(np.float32))
        return index.search(points.astype(np.float32), 2)


def _faiss():
    try:
        import faiss
    except ImportError as error:
        raise PublicImportError(
            "backend 'faiss' needs faiss-cpu: pip install 'sklearn-dpgen[faiss]'"
        ) from error
    limit_new_libraries()
    return faiss
