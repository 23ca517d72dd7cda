"""W1 between private records and public weighted points, with its sensitivity."""

import math

import numpy as np
from scipy import stats
from scipy.spatial import KDTree
from scipy.spatial.distance import cdist

from sklearn_dpgen.domains._ball import enclosing_ball
from sklearn_dpgen.exceptions import PublicRuntimeError, PublicTypeError

__all__ = ["record_distance"]

# Records, and pairs of a record and a point, up to which the transport is exact: some seconds. Its
# time grows about as the square of the number of records.
_MOST_RECORDS, _MOST_PAIRS = 10**4, 10**7
# The network simplex stops early at POT's default, and then only warns.
_MAX_PIVOTS = 10**9
# What the rounding of a distance may add to its sensitivity, relative to the diameter.
_ROUNDING = 1e-6


def record_distance(X, points, weights, domain):
    """Return n times an upper bound on W1 between n records and weighted points.

    Parameters
    ----------
    X : ndarray of shape (n, d)
        Private records of the domain.
    points : ndarray of shape (m, d)
        Public points. Those outside the domain are projected on it: the domain's test of membership
        has a tolerance that grows with its distance from 0, and the sensitivity has none.
    weights : ndarray of shape (m,)
        Public probabilities.
    domain : Domain
        With l2 diameter D.

    Returns
    -------
    total : float
        n W1 for d = 1, and for at most 10^4 records and 10^7 pairs. Else n (q + W1 of the votes and
        the weights), with the votes of the records for the nearest points, and their mean distance
        q to these points: by the triangle inequality no less than n W1.
    sensitivity : float
        Largest change of the total if one record of the domain replaces another: D, or D + R if no
        point of the domain is farther than R from the points.

    Notes
    -----
    The sensitivities are proved in the documentation, section "Distance to the records".
    """
    n, diameter = len(X), domain.diameter(2)
    kept = weights > 0
    points, weights = domain.project(points[kept]), weights[kept] / weights[kept].sum()
    rounding = _ROUNDING * diameter
    if X.shape[1] == 1:
        total = n * stats.wasserstein_distance(X[:, 0], points[:, 0], v_weights=weights)
        return total, diameter + rounding
    if n <= _MOST_RECORDS and n * len(points) <= _MOST_PAIRS:
        total = n * _transport(np.full(n, 1 / n), weights, cdist(X, points), diameter)
        return total, diameter + rounding
    distances, nearest = KDTree(points).query(X)
    votes = np.bincount(nearest, minlength=len(points)) / n
    # What both measures have in common is not moved, because the cost is a metric.
    more, fewer = (votes - weights).clip(0), (weights - votes).clip(0)
    givers, takers = np.flatnonzero(more), np.flatnonzero(fewer)
    moved = 0.0
    if len(givers) and len(takers):
        mass = more.sum()
        costs = cdist(points[givers], points[takers])
        moved = mass * _transport(more[givers] / mass, fewer[takers] / mass, costs, diameter)
    total = distances.sum() + n * moved
    return total, diameter + _largest_distance(points, domain) + rounding


def _transport(a, b, costs, diameter):
    """Return the least cost of a transport of masses ``a`` to masses ``b``."""
    # Imported here, because it imports JAX and other libraries that are installed.
    import ot

    # The tolerances of the solver are absolute, so costs are in [0, 1].
    cost, log = ot.emd2(
        a, b * (a.sum() / b.sum()), costs / diameter, numItermax=_MAX_PIVOTS, log=True
    )
    if log["warning"] is not None:
        raise PublicRuntimeError("The transport problem was not solved by POT's network simplex.")
    return diameter * min(max(float(cost), 0.0), 1.0)


def _largest_distance(points, domain):
    """Return a bound on the distance of a record of the domain to the nearest point."""
    diameter = domain.diameter(2)
    try:
        ball = enclosing_ball(domain)
    except PublicTypeError:
        return diameter
    nearest = np.linalg.norm(points - ball.center, axis=1).min()
    # A record is at most the radius from the center, and a point this far from it.
    return math.nextafter(min(diameter, ball.radius + float(nearest)), math.inf)
