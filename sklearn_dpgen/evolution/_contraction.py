"""How far one step of an interface comes towards a record, measured on public points."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike
from sklearn.metrics import pairwise_distances

from sklearn_dpgen.accounting._checks import check_count
from sklearn_dpgen.evolution._variation_interface import (
    VariationInterface,
    check_candidates,
    check_degree,
)
from sklearn_dpgen.utils._validation import check_array

__all__ = ["VariationContraction", "variation_contraction"]


@dataclass(frozen=True)
class VariationContraction:
    """How much one step of an interface reduces distances, on average.

    Attributes
    ----------
    distances : ndarray of shape (n_bins,)
        Lower edge of each bin of distances between a candidate and a point, ascending.
    mean : ndarray of shape (n_bins,)
        Share of the distance that is taken off, mean of the pairs in a bin.
    least : ndarray of shape (n_bins,)
        Of the pair in the bin that fares worst.
    errors : ndarray of shape (n_bins,)
        Standard error of ``least``.
    n_variations : int
        v: candidates of one record, itself included.
    """

    distances: np.ndarray
    mean: np.ndarray
    least: np.ndarray
    errors: np.ndarray
    n_variations: int

    def gamma(self, alpha: float = 0.0) -> float:
        """Return the least contraction γ of the pairs that are farther apart than α.

        Parameters
        ----------
        alpha : float, default=0.0
            α. Only whole bins beyond it count.

        Raises
        ------
        ValueError
            No bin is that far.
        """
        far = self.distances >= alpha
        if not far.any():
            raise ValueError(f"alpha must be at most {self.distances[-1]:.6g}, got {alpha}.")
        return float(self.least[far].min())

    def alpha(self, gamma: float) -> float:
        """Return the least distance α beyond which a step removes a share γ of it, or inf.

        Parameters
        ----------
        gamma : float
            γ, in (0, 1).
        """
        below = np.flatnonzero(~(self.least >= gamma))
        first = below[-1] + 1 if len(below) else 0
        return float(self.distances[first]) if first < len(self.distances) else np.inf


def variation_contraction(
    interface: VariationInterface,
    X_public: ArrayLike,
    degrees: Sequence[float],
    *,
    n_parents: int = 20,
    n_repeats: int = 100,
    n_bins: int = 8,
    metric: str | Callable[[np.ndarray, np.ndarray], np.ndarray] = "l2",
    random_state: int | None = None,
) -> VariationContraction:
    """Measure on public points how much one step of an interface reduces distances.

    Private evolution converges where for any candidate z and record x farther apart than α,
    the nearest of z and its variations is at distance (1 - γ) ρ(z, x) or less on average
    [1]_ (Definition G.1). This draws candidates by ``random`` and looks at all pairs of them and
    the points; what holds for these may fail for others, and a record that is unlike all of
    the points is one.

    Parameters
    ----------
    interface : VariationInterface
    X_public : array-like of shape (n_points, n_features)
        Points in the place of records. Nothing here protects them.
    degrees : sequence of float
        How far to vary, in (0, 1], one a variation: of a scale with two draws, twice.
    n_parents : int, default=20
        Candidates that are varied.
    n_repeats : int, default=100
        Over which the chance of the variations is averaged.
    n_bins : int, default=8
        Of distances: with as many pairs in each.
    metric : {"l2", "l1", "cosine"} or callable, default="l2"
        ρ, after the ``decode`` and ``embed`` of the interface, if it has them.
    random_state : int or None, default=None

    Returns
    -------
    VariationContraction

    References
    ----------
    .. [1] "Private evolution converges", Definition G.1; Lemma E.1 for points of a domain.

    Examples
    --------
    >>> import numpy as np
    >>> from sklearn_dpgen.domains import Ball
    >>> from sklearn_dpgen.evolution import (
    ...     EuclideanVariation, contraction_rate, paper_degrees, variation_contraction
    ... )
    >>> disc = Ball(1.0, n_features=2)
    >>> degrees = [degree for degree in paper_degrees(2, 0.25, 2.0) for _ in range(2)]
    >>> points = disc.sample(50, np.random.default_rng(0))
    >>> found = variation_contraction(EuclideanVariation(disc), points, degrees, random_state=0)
    >>> found.gamma(alpha=0.25) > contraction_rate(2)
    True
    """
    n_repeats, n_bins = check_count(n_repeats, "n_repeats"), check_count(n_bins, "n_bins")
    if n_repeats < 2:
        raise ValueError("n_repeats must be at least 2.")
    if np.ndim(degrees) != 1 or len(degrees) == 0:
        raise ValueError("degrees must be a sequence of numbers, one for each variation.")
    degrees = [check_degree(degree) for degree in degrees]
    rng = np.random.default_rng(random_state)
    embed = getattr(interface, "embed", np.asarray)
    decode = getattr(interface, "decode", np.asarray)
    points = embed(check_array(X_public, dtype=np.float64, input_name="X_public"))

    def distances(candidates):
        places = embed(decode(candidates))
        return (
            metric(points, places)
            if callable(metric)
            else pairwise_distances(points, places, metric=metric)
        )

    n_parents = check_count(n_parents, "n_parents")
    parents = check_candidates(interface.random(n_parents, rng), n_parents, None, None, interface)
    before = distances(parents)
    apart = before > 0
    if apart.sum() < n_bins:
        raise ValueError("X_public must hold more points: each bin needs a pair that is apart.")
    total, squares = np.zeros_like(before), np.zeros_like(before)
    for _ in range(n_repeats):
        nearest = before
        for degree in degrees:
            varied = interface.vary(parents, rng, degree)
            varied = check_candidates(varied, n_parents, parents.shape[1], None, interface)
            nearest = np.minimum(nearest, distances(varied))
        share = 1 - nearest[apart] / before[apart]
        total[apart] += share
        squares[apart] += share**2
    mean = total[apart] / n_repeats
    variance = np.maximum(0.0, squares[apart] / n_repeats - mean**2) / (n_repeats - 1)
    order = np.argsort(before[apart], kind="stable")
    bins = np.array_split(order, n_bins)
    worst = np.array([part[np.argmin(mean[part])] for part in bins])
    return VariationContraction(
        distances=np.array([before[apart][part[0]] for part in bins]),
        mean=np.array([mean[part].mean() for part in bins]),
        least=mean[worst],
        errors=np.sqrt(variance[worst]),
        n_variations=1 + len(degrees),
    )
