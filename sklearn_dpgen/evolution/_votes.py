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
    """Count for every candidate the records that it is nearest to.

    Every record votes for exactly one candidate, ties for the first. So if one record is
    replaced, at most two counts change, each by one: by sqrt(2) in l2. The counts themselves are
    not private.

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
        is at distance 1 from everything: such a record votes for a candidate at an obtuse
        angle to none, that is for the first.
    backend : {"auto", "torch", "tree", "faiss"}, default="auto"
        Search method; all give the same votes. "torch" multiplies matrices. "tree" is a k-d tree,
        for "l2" and "l1" in few dimensions. "faiss" is a flat index, for "l2", and needs
        faiss-cpu. "auto" takes the tree up to 4 ("l2") or 6 ("l1") dimensions, else torch.
    embedding : callable, transformer or None, default=None
        Applied to records and candidates before the metric: ``embedding.transform`` if it
        has one, else the callable. One row in, one row out, each on its own.
    memory : float, default=256
        Bound of the working memory in MiB, of a process or of each dask task. Candidates,
        their copies and what an embedding or a callable metric takes come on top, and one record
        against all candidates is always done at once.
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
        return map_reduce(partial(_count_parts, counter), np.add, X)
    return counter.count(X).finish()


def _count_parts(counter, parts):
    """Return the votes of the parts of a partition: what a worker sends back."""
    counter = counter.fresh()
    for part in parts:
        counter.count(as_matrix(part))
    return counter.finish()


class VoteCounter:
    """Votes of records for the nearest of some candidates, counted over any parts of a table.

    Votes are integers: those of parts of a table add up to those of the whole, bit for bit. So
    parts may be counted by several processes or machines, each once, and merged in any order.

    Parameters
    ----------
    V, metric, backend, embedding, memory, device
        As of :func:`nearest_neighbor_votes`.

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
        places = _embedded(V, embedding, "V")
        if callable(metric):
            if backend not in ("auto", "torch"):
                raise PublicValueError(f"backend {backend!r} does not take a callable metric.")
            first, search = np.arange(len(V)), MetricSearch(places, metric, memory=memory)
        else:
            # Minus zero and zero are one candidate.
            places = (unit_rows(places) if metric == "cosine" else places) + 0.0
            # Of equal candidates the first gets all votes; order is kept, so that ties stay right.
            first = first_of_equal(places)
            if backend == "auto":
                backend = "tree" if places.shape[1] <= TREE_DIMENSIONS.get(metric, 0) else "torch"
            search = make_search(
                places[first], metric, backend=backend, memory=memory, device=device
            )
        self._metric, self._embedding, self._memory = metric, embedding, memory
        self._widths, self._first, self._search = (width, places.shape[1]), first, search
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
        for part in pieces(X, rows):
            records = _checked(part, "X", width=width)
            if len(records) == 0:
                continue
            records = _embedded(records, self._embedding, "X", embedded_width)
            if self._metric == "cosine":
                records = unit_rows(records)
            found = self._search.nearest(records)
            self._votes[self._first] += np.bincount(found, minlength=len(self._first))
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
            raise PublicValueError("merge takes a counter for the same candidates, and not itself.")
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
    """Return an array-like as finite float64 of shape (n, width), or say what is wrong with it."""
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
