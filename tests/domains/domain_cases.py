"""Domains of all kinds, points around them, and the members that are farthest apart."""

import numpy as np
from hypothesis import settings
from hypothesis import strategies as st

from sklearn_dpgen.domains import Ball, Box, OneHot, Product

reproducibly = settings(deadline=None, max_examples=40, derandomize=True)
ORDERS = (1, 2, np.inf)


def boxes():
    pair = st.tuples(st.floats(-100, 100), st.floats(1e-2, 100))
    return st.lists(pair, min_size=1, max_size=4).map(
        lambda pairs: Box([a for a, _ in pairs], [a + w for a, w in pairs])
    )


def balls():
    return st.builds(
        Ball,
        st.floats(1e-2, 100),
        st.sampled_from(ORDERS),
        st.lists(st.floats(-10, 10), min_size=1, max_size=5),
    )


CONVEX = st.one_of(boxes(), balls())
ANY = st.one_of(CONVEX, st.builds(OneHot, st.integers(2, 5)))
ANY = st.one_of(ANY, st.lists(ANY, min_size=1, max_size=3).map(Product))


def points_around(domain, n, seed):
    """Points of all scales, inside and outside the domain."""
    rng = np.random.default_rng(seed)
    scales = 10.0 ** rng.integers(-3, 5, size=(n, 1))
    return domain.sample(n, rng) + scales * rng.normal(size=(n, domain.n_features))


def farthest(points, p):
    gaps = np.linalg.norm(points[:, None] - points[None], p, axis=2)
    return points[list(np.unravel_index(gaps.argmax(), gaps.shape))]


def extreme_points(domain, p):
    """Members of the domain among which the diameter in norm p is attained."""
    if isinstance(domain, Box):
        return np.stack([domain.low, domain.high])
    if isinstance(domain, OneHot):
        return np.eye(domain.n_features)
    if isinstance(domain, Product):
        return np.hstack([farthest(extreme_points(factor, p), p) for factor in domain.domains])
    directions = np.concatenate([np.eye(domain.n_features), np.ones((1, domain.n_features))])
    directions /= np.linalg.norm(directions, domain.p, axis=1, keepdims=True)
    return domain.center + domain.radius * np.concatenate([directions, -directions])


def members(domain, p=2):
    sample = domain.sample(100, np.random.default_rng(0))
    return np.concatenate([extreme_points(domain, p), sample])


def largest_distance(domain, p):
    points = members(domain, p)
    assert domain.contains(points).all()
    pair = farthest(points, p)
    return np.linalg.norm(pair[0] - pair[1], p)


def violates(claim, domain, p):
    return largest_distance(domain, p) > claim * (1 + 1e-9)
