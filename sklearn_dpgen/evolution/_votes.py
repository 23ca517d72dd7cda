"""Votes of private records for the candidates that are nearest to them, counted exactly."""

import copy
from collections.abc import Callable, Iterable
from functools import partial
from typing import TYPE_CHECKING, Self

import numpy as np
from numpy.typing import ArrayLike

from sklearn_dpgen.engines._tables import is_engine_table, map_reduce
from sklearn_dpgen.exceptions import PublicValueError
from sklearn_dpgen.preprocessing._reader import as_matrix, pieces
from sklearn_dpgen.utils._validation import Transformer, check_array, check_positive

if TYPE_CHECKING:
    import torch

__all__ = ["VoteCounter", "nearest_neighbor_votes"]

METRICS = ("l2", "l1", "cosine")
BACKENDS = ("auto", "torch", "tree", "faiss")
# Up to this dimension a k-d tree is faster than a matrix product on a processor.
TREE_DIMENSIONS = {"l2": 4, "l1": 6}


def nearest_neighbor_votes(
    X: ArrayLike | Iterable[ArrayLike],
    V: ArrayLike,
    *,
    metric: str | Callable[[np.ndarray, np.ndarray], np.ndarray] = "l2",
    backend: str = "auto",
    embedding: Callable[[np.ndarray], ArrayLike] | Transformer | None = None,
    memory: float = 256,
    device: "str | torch.device" = "auto",
) -> np.ndarray:
    """Return the number of records that are nearest to each candidate: their votes.

    Every record votes for exactly one candidate, the first in a tie. Replacing a record changes at
    most two counts by one each, a sensitivity of sqrt(2) in l2. The counts themselves are not
    private.

    Parameters
    ----------
    X : array-like of shape (n, d), iterable of them, or a table of dask, Spark or Ray
        Records. An iterable is read once, table by table. Those of an engine are counted where they
        are, and only counts leave the workers; columns are in the order of the table.
    V : array-like of shape (m, d)
        Candidates, at least one.
    metric : {"l2", "l1", "cosine"} or callable, default="l2"
        Distance of records and candidates. ``metric(X, V)`` gets arrays of float64 of shapes
        (k, d) and (m, d) and returns finite distances of shape (k, m). For "cosine" a row of zeros
        is at distance 1 from everything, so such a record votes for the first candidate.
    backend : {"auto", "torch", "tree", "faiss"}, default="auto"
        Search method; all give the same votes. "torch" multiplies matrices. "tree" is a k-d tree,
        for "l2" and "l1" in few dimensions. "faiss" is a flat index, for "l2", and needs
        faiss-cpu. "auto" takes the tree up to 4 ("l2") or 6 ("l1") dimensions, else torch.
    embedding : callable, transformer or None, default=None
        Applied to records and candidates before the metric: ``embedding.transform`` if it
        has one, else the callable. One row in, one row out, each on its own.
    memory : float, default=256
        Bound of the working memory in MiB, of a process or of each dask task. Candidates, their
        copies, and the memory of an embedding or a callable metric are not included, nor are the
        distances of one record to all candidates.
    device : str or torch.device, default="auto"
        Device of the matrix products; "auto" takes a CUDA device if there is one.

    Returns
    -------
    ndarray of int64 of shape (m,)
        Counts; their sum is the number of records.

    Raises
    ------
    ValueError
        V is empty, widths differ, entries or distances are not finite, or the backend does not
        know the metric.
    TypeError
        X is neither a table nor an iterable of tables, or is sparse.
    ImportError
        A backend that is not installed.

    Notes
    -----
    Distances are float64 sums, feature by feature: of the squares of x - v, of their magnitudes,
    or for "cosine" of -x v, after all rows were divided by their norms in float64. What is
    smallest by these wins a vote, so the counts do not depend on the backend, the chunks, the
    device or the number of threads. Searches in lower precision only rule candidates out, by
    bounds of their rounding errors. Records of float32 vote like their copies in float64.

    References
    ----------
    Lin et al., "Differentially Private Synthetic Data via Foundation Model APIs 1: Images", ICLR
    2024: the nearest-neighbour histogram of its Algorithm 1, before the noise.
    """
    counter = VoteCounter(
        V, metric=metric, backend=backend, embedding=embedding, memory=memory, device=device
    )
    if is_engine_table(X):
        return map_reduce(partial(_count_blocks, counter), np.add, X)
    return counter.count(X).finish()


def _count_blocks(counter, blocks):
    """Return the votes of the blocks of a partition, which a worker sends back."""
    counter = counter.fresh()
    for block in blocks:
        counter.count(as_matrix(block))
    return counter.finish()


class VoteCounter:
    """Counter of the votes of records for their nearest candidates, over blocks of a table.

    Votes are integers, so the votes of the blocks add up to those of the table exactly. Blocks may
    be counted by several processes or machines, each once, and merged in any order.

    Parameters
    ----------
    V, metric, backend, embedding, memory, device
        As in :func:`nearest_neighbor_votes`.

    Examples
    --------
    >>> from sklearn_dpgen.evolution import VoteCounter
    >>> V = [[0.0], [1.0]]
    >>> first, second = VoteCounter(V).count([[0.1]]), VoteCounter(V).count([[0.2], [0.9]])
    >>> first.merge(second).finish()
    array([2, 1])
    """

    def __init__(
        self,
        V: ArrayLike,
        *,
        metric: str | Callable[[np.ndarray, np.ndarray], np.ndarray] = "l2",
        backend: str = "auto",
        embedding: Callable[[np.ndarray], ArrayLike] | Transformer | None = None,
        memory: float = 256,
        device: "str | torch.device" = "auto",
    ) -> None:
        if not callable(metric) and metric not in METRICS:
            raise PublicValueError(
                f"metric must be a callable or one of {METRICS}, got {metric!r}."
            )
        # Loads torch, which importing this package does not.
        from sklearn_dpgen.evolution._nearest_candidates import (
            MetricSearch,
            first_of_equal,
            make_search,
            unit_rows,
        )

        if backend not in BACKENDS:
            raise PublicValueError(f"backend must be one of {BACKENDS}, got {backend!r}.")
        memory = check_positive(memory, "memory") * 2**20
        V = _checked(V, "V")
        if len(V) == 0:
            raise PublicValueError("V must hold at least one candidate.")
        width = V.shape[1]
        points = _embedded(V, embedding, "V")
        if callable(metric):
            if backend not in ("auto", "torch"):
                raise PublicValueError(f"backend {backend!r} does not take a callable metric.")
            first, search = np.arange(len(V)), MetricSearch(points, metric, memory=memory)
        else:
            # Minus zero and zero are one candidate.
            points = (unit_rows(points) if metric == "cosine" else points) + 0.0
            # The first of equal candidates gets all votes; their order is kept for ties.
            first = first_of_equal(points)
            if backend == "auto":
                backend = "tree" if points.shape[1] <= TREE_DIMENSIONS.get(metric, 0) else "torch"
            search = make_search(
                points[first], metric, backend=backend, memory=memory, device=device
            )
        self._metric, self._embedding, self._memory = metric, embedding, memory
        self._widths, self._first, self._search = (width, points.shape[1]), first, search
        self._votes = np.zeros(len(V), np.int64)

    def count(self, X: ArrayLike | Iterable[ArrayLike]) -> Self:
        """Count the votes of records.

        Parameters
        ----------
        X : array-like of shape (n, d), or iterable of them
            It is read once, table by table.

        Returns
        -------
        self
        """
        from sklearn_dpgen.evolution._nearest_candidates import unit_rows

        width, embedded_width = self._widths
        rows = max(1, int(self._memory / 4 / (24 * max(self._widths))))
        for block in pieces(X, rows):
            records = _checked(block, "X", width=width)
            if len(records) == 0:
                continue
            records = _embedded(records, self._embedding, "X", embedded_width)
            if self._metric == "cosine":
                records = unit_rows(records)
            nearest = self._search.nearest(records)
            self._votes[self._first] += np.bincount(nearest, minlength=len(self._first))
        return self

    def fresh(self) -> Self:
        """Return a counter for the same candidates that has counted nothing."""
        other = copy.copy(self)
        other._votes = np.zeros_like(self._votes)
        return other

    def merge(self, other: Self) -> Self:
        """Add the votes that another counter for the same candidates has counted.

        Parameters
        ----------
        other : VoteCounter

        Returns
        -------
        self

        Raises
        ------
        ValueError
            A counter for another number of candidates, of other widths, or itself.
        """
        is_like = len(other._votes) == len(self._votes) and other._widths == self._widths
        if other is self or not is_like:
            raise PublicValueError("other must be another counter for the same candidates.")
        self._votes += other._votes
        return self

    def finish(self) -> np.ndarray:
        """Return the votes for each candidate, an ndarray of int64 of shape (m,)."""
        return self._votes.copy()


def _embedded(X, embedding, name, width=None):
    if embedding is None:
        return X
    Y = getattr(embedding, "transform", embedding)(X)
    Y = Y.detach().cpu().numpy() if hasattr(Y, "detach") else Y
    return _checked(Y, f"embedding({name})", width=width, n_rows=len(X))


def _checked(X, name, *, width=None, n_rows=None):
    """Return an array-like as finite float64 of shape (n, width), or raise PublicValueError."""
    X = check_array(X, dtype=np.float64, ensure_min_samples=0, ensure_all_finite=False)
    # scikit-learn's check takes a sum first, which warns if it overflows.
    if not np.isfinite(X).all():
        raise PublicValueError(f"{name} contains NaN or infinity.")
    if width is not None and X.shape[1] != width:
        raise PublicValueError(f"{name} has {X.shape[1]} features, V has {width} features.")
    if n_rows is not None and len(X) != n_rows:
        # Without the numbers, as the number of records of a partition is private.
        raise PublicValueError(f"{name} must have one row for each record.")
    return X
