"""From noisy votes, a signed measure, to probabilities: post-processing, at no privacy cost."""

from collections.abc import Callable

import numpy as np
from numpy.typing import ArrayLike
from sklearn.metrics import pairwise_distances

from sklearn_dpgen.exceptions import PublicRuntimeError, PublicValueError
from sklearn_dpgen.utils._validation import check_array

__all__ = [
    "project_bounded_lipschitz",
    "project_simplex",
    "threshold_weights",
]

# The named dissimilarities of scikit-learn that obey the triangle inequality, on real vectors.
_METRICS = ("canberra", "chebyshev", "cityblock", "euclidean", "hamming", "l1", "l2", "manhattan")
# The network simplex stops early at POT's default, and then only warns.
_MAX_PIVOTS = 10**9


def threshold_weights(weights: ArrayLike, threshold: float = 0.0) -> np.ndarray | None:
    """Set weights below a threshold to zero and rescale the others to sum 1.

    Parameters
    ----------
    weights : array-like of shape (m,)
        Noisy votes, in any unit.
    threshold : float, default=0.0
        Not negative, in the unit of ``weights``. A weight equal to it stays.

    Returns
    -------
    ndarray of shape (m,) or None
        None if no positive weight reaches the threshold: nothing was learned from the votes, and
        there is nothing to divide by.

    References
    ----------
    Lin et al., "Differentially private synthetic data via foundation model APIs 1: Images",
    ICLR 2024, algorithm 2.
    """
    weights = _check_weights(weights)
    if not 0 <= threshold < np.inf:
        raise PublicValueError(f"threshold must be finite and not negative, got {threshold}.")
    largest = weights.max()
    if not largest > 0 or largest < threshold:
        return None
    # Relative to the largest, or the sum of huge ones overflows.
    kept = np.where(weights >= threshold, weights / largest, 0).clip(0)
    return kept / kept.sum()


def project_simplex(weights: ArrayLike) -> np.ndarray:
    """Return the probability vector nearest to some weights in l2.

    Every weight is lowered, or raised, by one amount; those that would fall below zero are zero.
    The amount is found by sorting, in O(m log m).

    Parameters
    ----------
    weights : array-like of shape (m,)

    Returns
    -------
    ndarray of shape (m,)

    References
    ----------
    Duchi, Shalev-Shwartz, Singer and Chandra, "Efficient projections onto the l1-ball for learning
    in high dimensions", ICML 2008, figure 1.
    """
    weights = _check_weights(weights)
    # Weights below the largest by 1 or more end at zero, so all is found relative to the largest,
    # where nothing cancels.
    with np.errstate(over="ignore"):
        relative = np.clip(weights - weights.max(), -1, None)
    ordered = np.sort(relative)[::-1]
    level = np.max((np.cumsum(ordered) - 1) / np.arange(1, len(ordered) + 1))
    projected = np.clip(relative - level, 0, None)
    return projected / projected.sum()


def project_bounded_lipschitz(
    support: ArrayLike,
    weights: ArrayLike,
    *,
    metric: str | Callable[[np.ndarray, np.ndarray], float] = "euclidean",
) -> np.ndarray:
    """Return the probability vector nearest to a signed measure in bounded-Lipschitz distance.

    The distance D_BL of two measures is the largest difference of their integrals, over the
    1-Lipschitz functions that the diameter of the space bounds; of two probability measures it is
    W_1 [1]_. The result is exact, whatever the diameter is, as long as no two atoms are farther
    apart.

    Parameters
    ----------
    support : array-like of shape (m, d)
        Atoms. They may repeat.
    weights : array-like of shape (m,)
        Their masses, such as noisy shares of votes: in the unit where a probability vector sums
        to 1, so not counts.
    metric : str or callable, default="euclidean"
        "euclidean", "cityblock", "chebyshev", "canberra", "hamming" or a synonym known to
        :func:`sklearn.metrics.pairwise_distances`, or a function of two atoms. It has to obey the
        triangle inequality.

    Returns
    -------
    ndarray of shape (m,)

    Raises
    ------
    RuntimeError
        If the transport problem is not solved.

    Notes
    -----
    Let p and q be the sums of the positive weights and of the negative ones without their signs.
    Whatever the result, mass ``|p - q - 1|`` is created or removed, at one cost anywhere. So
    the distance is least if as little as possible is carried: ``min(q, p - 1)`` from positive to
    negative weights where p > 1, a problem of partial transport, and nothing otherwise. What is
    left of the positive weights then has at least the mass 1 where p > 1.

    The nearest vector is not unique: it does not matter where mass is created or removed. Here that
    is done as evenly as possible: the result is the l2 projection of what is left, and that of
    ``weights`` themselves where p <= 1.

    Memory grows like the square of the number of atoms and time like its power 2.5: about 0.2
    seconds for 3000 atoms of which half are negative, 4 seconds and 1.1 GB for 10 000.

    References
    ----------
    .. [1] Gonzalez et al., "Private evolution converges", 2025, section 2 and algorithm 2, line 8.
    .. [2] He, Vershynin and Zhu, "Algorithmically effective differentially private synthetic
       data", COLT 2023, algorithm 2.
    """
    support, weights = _check_measure(support, weights, metric)
    positive, negative = weights > 0, weights < 0
    supply, demand = weights[positive], -weights[negative]
    amount = min(demand.sum(), supply.sum() - 1)
    if amount > 0:
        ways = _distances(support[positive], support[negative], metric)
        carried = _cheapest_plan(ways, supply, demand, amount)
        weights = np.zeros_like(weights)
        weights[positive] = supply - carried.sum(axis=1)
    return project_simplex(weights)


def _cheapest_plan(distances, supply, demand, amount):
    """Return the cheapest plan, shape (k, l), that carries an amount, of the smaller sum or less.

    What is not carried goes from a supply to an imaginary demand, or from an imaginary supply to a
    demand, for free [1]_.

    References
    ----------
    .. [1] Chapel, Alaya and Gasso, "Partial optimal transport with applications on
       positive-unlabeled learning", NeurIPS 2020, proposition 1.
    """
    if amount <= 0:
        return np.zeros_like(distances)
    # The solver's tolerances are absolute: it is given costs in [0, 1] and masses of sum 1.
    costs = np.zeros((len(supply) + 1, len(demand) + 1))
    costs[:-1, :-1] = distances / (distances.max() or 1.0)
    costs[-1, -1] = 1.0
    sources = np.append(supply, max(demand.sum() - amount, 0.0))
    targets = np.append(demand, max(supply.sum() - amount, 0.0))
    total = sources.sum()
    # Here, for it imports JAX and others where they are installed.
    import ot

    plan, log = ot.emd(
        sources / total, targets / targets.sum(), costs, numItermax=_MAX_PIVOTS, log=True
    )
    if log["warning"] is not None:
        raise PublicRuntimeError("The transport problem was not solved by POT's network simplex.")
    return total * plan[:-1, :-1]


def _distances(X, Y, metric):
    distances = pairwise_distances(X, Y, metric=metric)
    if not (distances >= 0).all() or np.isinf(distances).any():
        raise PublicValueError("metric must give finite distances that are not negative.")
    return distances


def _check_weights(weights):
    weights = check_array(weights, dtype=np.float64, ensure_2d=False, input_name="weights")
    if weights.ndim != 1:
        raise PublicValueError(f"weights must be of shape (m,), got {weights.ndim} dimensions.")
    return weights


def _check_measure(support, weights, metric):
    support = check_array(support, dtype=np.float64, input_name="support")
    weights = _check_weights(weights)
    if len(support) != len(weights):
        raise PublicValueError(f"support has {len(support)} atoms, weights has {len(weights)}.")
    if not callable(metric) and metric not in _METRICS:
        raise PublicValueError(f"metric must be a function or one of {_METRICS}, got {metric!r}.")
    return support, weights
