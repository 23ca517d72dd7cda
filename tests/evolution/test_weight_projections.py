"""Projections of noisy votes against linear programs, enumeration and known formulas."""

from itertools import combinations, product

import numpy as np
import ot
import pytest
from bounded_lipschitz import bounded_lipschitz_distance
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.testing import assert_allclose, assert_array_equal
from scipy.optimize import linprog
from scipy.spatial.distance import cdist

from sklearn_dpgen.evolution import _weight_projections
from sklearn_dpgen.evolution._weight_projections import (
    project_bounded_lipschitz,
    project_simplex,
    threshold_weights,
)

reproducibly = settings(deadline=None, max_examples=60, derandomize=True)
seeds = st.integers(0, 10_000)
sizes = st.integers(1, 6)
# Positive and total mass: all ways in which what is carried is limited.
MASSES = {"little": (0.7, 0.4), "too little": (1.6, 1.1), "just": (1.5, 0.5), "much": (2.5, 0.6)}


def measure(m, seed, *, noise=0.5):
    """Return atoms in a square, of diameter sqrt(2), and signed weights around equal ones."""
    rng = np.random.default_rng(seed)
    return rng.uniform(size=(m, 2)), 1 / m + noise * rng.normal(size=m)


def measure_of_masses(m, seed, name):
    support, weights = measure(m, seed)
    weights[:2] = 1, -1
    positive, negative = MASSES[name]
    weights = np.where(weights > 0, weights, 0) / weights[weights > 0].sum() * positive + (
        np.where(weights < 0, weights, 0) / -weights[weights < 0].sum() * negative
    )
    return support, weights


def dual_distance(support, weights, diameter, metric="euclidean"):
    """Return sup sum weights f over bounded Lipschitz functions f, by a linear program."""
    m = len(weights)
    distances = cdist(support, support, metric)
    rows = [np.eye(m)[i] - np.eye(m)[j] for i, j in product(range(m), repeat=2)]
    bounds = [(-diameter, diameter)] * m
    return -linprog(-weights, A_ub=np.array(rows), b_ub=distances.ravel(), bounds=bounds).fun


def primal_distance(support, weights, diameter, *, project=False):
    """Return min rho gamma + diameter |s|, over probability vectors too if ``project``."""
    m = len(weights)
    flows = np.kron(np.eye(m), np.ones(m)) - np.kron(np.ones(m), np.eye(m))
    created = np.hstack([np.eye(m), -np.eye(m)])
    costs = np.concatenate([cdist(support, support).ravel(), np.full(2 * m, diameter)])
    system, target = np.hstack([flows, created]), weights
    if project:
        system = np.vstack([np.hstack([system, np.eye(m)]), np.zeros(len(costs) + m)])
        system[-1, -m:] = 1
        costs, target = np.append(costs, np.zeros(m)), np.append(weights, 1)
    return linprog(costs, A_eq=system, b_eq=target).fun


def clip_and_rescale(weights):
    clipped = np.clip(weights, 0, None)
    return clipped / clipped.sum()


def is_probability_vector(weights):
    return (weights >= 0).all() and abs(weights.sum() - 1) < 1e-12


# Thresholding


def test_threshold():
    assert_allclose(threshold_weights([1, -2, 3]), [0.25, 0, 0.75])
    assert_allclose(threshold_weights([1, -2, 3], 1), [0.25, 0, 0.75])
    assert_allclose(threshold_weights([1, 2, 3], 1.5), [0, 0.4, 0.6])
    assert_allclose(threshold_weights([1e308, 1e308, 5e-324]), [0.5, 0.5, 0])


@pytest.mark.parametrize(("weights", "threshold"), [([1, 2], 3), ([0, 0], 0), ([-1, 0], 0)])
def test_nothing_above_the_threshold(weights, threshold):
    assert threshold_weights(weights, threshold) is None


@pytest.mark.parametrize("threshold", [-1, np.nan, np.inf])
def test_a_threshold_is_not_negative(threshold):
    with pytest.raises(ValueError, match="threshold must be"):
        threshold_weights([1.0], threshold)


# The simplex


def nearest_in_l2(weights):
    """Return the nearest probability vector, by trying every set of positive entries."""
    candidates = []
    for size in range(1, len(weights) + 1):
        for kept in map(list, combinations(range(len(weights)), size)):
            moved = np.zeros_like(weights)
            moved[kept] = weights[kept] - (weights[kept].sum() - 1) / size
            if (moved >= 0).all():
                candidates.append(moved)
    return min(candidates, key=lambda moved: np.linalg.norm(moved - weights))


def simplex_error(project):
    errors = []
    for seed in range(20):
        _, weights = measure(6, seed)
        errors.append(abs(project(weights) - nearest_in_l2(weights)).max())
    return max(errors)


def test_simplex_projection():
    assert simplex_error(project_simplex) < 1e-14


def test_another_simplex_projection_is_caught():
    assert simplex_error(clip_and_rescale) > 0.01


def test_simplex_by_hand():
    assert_array_equal(project_simplex([-7.0]), [1.0])
    assert_allclose(project_simplex([2.0, 2.0, 2.0, 1.0]), [1 / 3, 1 / 3, 1 / 3, 0])
    assert_allclose(project_simplex([0.6, 0.6, 0]), [0.5, 0.5, 0])
    assert_allclose(project_simplex([0.2, 0.1]), [0.55, 0.45])


@reproducibly
@given(st.lists(st.floats(-1e300, 1e300), min_size=1, max_size=20), st.integers(-300, 0))
def test_simplex_at_all_scales(weights, power):
    weights = 10.0**power * np.array(weights)
    projected = project_simplex(weights)
    assert is_probability_vector(projected)
    # In the order of the weights, and the same for a shift of all of them.
    order = np.argsort(weights)
    assert (np.diff(projected[order]) >= 0).all()
    if abs(weights).max() < 1e3:
        assert_allclose(project_simplex(weights + 5), projected, atol=1e-12)


# The distance


@pytest.mark.slow
@reproducibly
@given(sizes, seeds)
def test_references_agree(m, seed):
    support, weights = measure(m, seed)
    value = dual_distance(support, weights, 2)
    assert value == pytest.approx(primal_distance(support, weights, 2), abs=1e-7)
    assert value == pytest.approx(bounded_lipschitz_distance(support, weights, 2), abs=1e-7)


def test_creating_mass_is_not_free():
    # What the comparison with the dual would say if the term of the diameter were left out.
    support, weights = measure(5, 0)
    broken = primal_distance(support, weights, 0)
    assert dual_distance(support, weights, 2) - broken > 0.1


@reproducibly
@given(sizes, sizes, seeds)
def test_distance_of_probability_measures_is_transport(k, m, seed):
    support, _ = measure(k + m, seed)
    rng = np.random.default_rng(seed)
    a, b = rng.dirichlet(np.ones(k)), rng.dirichlet(np.ones(m))
    value = bounded_lipschitz_distance(support, np.append(a, -b), 2)
    assert value == pytest.approx(ot.emd2(a, b, cdist(support[:k], support[k:])), abs=1e-7)


def test_a_function_for_a_metric_and_repeated_atoms():
    support, weights = measure(8, 3)
    support[4:] = support[:4]

    def metric(x, y):
        return abs(x - y).sum()

    assert_allclose(
        project_bounded_lipschitz(support, weights, metric=metric),
        project_bounded_lipschitz(support, weights, metric="cityblock"),
    )


# The projection in this distance


def excess(project, support, weights):
    """Return how much farther than the nearest probability vector the projection is."""
    projected = project(support, weights)
    assert is_probability_vector(projected)
    distance = bounded_lipschitz_distance(support, weights - projected, 1.5)
    return distance - primal_distance(support, weights, 1.5, project=True)


@pytest.mark.parametrize("name", MASSES)
@pytest.mark.parametrize("m", [2, 6, 40])
def test_bounded_lipschitz_projection(name, m):
    for seed in range(3):
        support, weights = measure_of_masses(m, seed, name)
        assert abs(excess(project_bounded_lipschitz, support, weights)) < 1e-7


@pytest.mark.parametrize("name", ["too little", "just", "much"])
@pytest.mark.parametrize("project", [project_simplex, clip_and_rescale])
def test_projections_in_other_distances_are_caught(name, project):
    support, weights = measure_of_masses(40, 0, name)
    assert excess(lambda _, weights: project(weights), support, weights) > 0.005


@pytest.mark.parametrize(
    "seed",
    [0, pytest.param(1, marks=pytest.mark.slow), pytest.param(2, marks=pytest.mark.slow)],
)
@pytest.mark.parametrize("name", MASSES)
def test_no_vector_of_a_fine_grid_is_nearer(name, seed):
    grid = np.array([w for w in product(np.linspace(0, 1, 26), repeat=3) if abs(sum(w) - 1) < 1e-9])
    support, weights = measure_of_masses(3, seed, name)
    others = [dual_distance(support, weights - other, 1.5) for other in grid]
    projected = project_bounded_lipschitz(support, weights)
    nearest = dual_distance(support, weights - projected, 1.5)
    # The grid comes within two of its steps of the optimum.
    assert nearest - 1e-7 <= min(others) <= nearest + 2 * 1.5 / 25


@reproducibly
@given(st.integers(1, 30), seeds, st.floats(0, 3))
def test_no_random_probability_vector_is_nearer(m, seed, noise):
    support, weights = measure(m, seed, noise=noise)
    projected = project_bounded_lipschitz(support, weights)
    assert is_probability_vector(projected)

    def distance(other):
        return bounded_lipschitz_distance(support, weights - other, 1.5)

    rng = np.random.default_rng(seed)
    others = [*rng.dirichlet(np.ones(m), size=5), project_simplex(weights)]
    others += [0.9 * projected + 0.1 * other for other in others]
    assert distance(projected) <= min(map(distance, others)) + 1e-7


@reproducibly
@given(st.integers(1, 30), seeds)
def test_probability_vectors_stay(m, seed):
    support, _ = measure(m, seed)
    weights = np.random.default_rng(seed).dirichlet(np.ones(m))
    weights[1 : m // 2] = 0
    weights /= weights.sum()
    for projected in (
        project_bounded_lipschitz(support, weights),
        project_simplex(weights),
        threshold_weights(weights),
    ):
        assert_allclose(projected, weights, rtol=0, atol=1e-15)


def test_mass_is_created_as_evenly_as_possible():
    support, weights = measure_of_masses(10, 1, "little")
    assert_array_equal(project_bounded_lipschitz(support, weights), project_simplex(weights))


def test_mass_comes_from_near():
    support = [[0.0], [1.0], [10.0], [11.0]]
    # The noise of the second atom is paid by the first, and not by all others.
    assert_allclose(project_bounded_lipschitz(support, [0.7, -0.2, 0.5, 0]), [0.5, 0, 0.5, 0])
    assert_allclose(project_simplex([0.7, -0.2, 0.5, 0]), [0.6, 0, 0.4, 0])


@pytest.mark.parametrize("scale", [1e-6, 1.0, 1e6])
def test_large_noise_and_units(scale):
    support, weights = measure(300, 0, noise=100.0)
    projected = project_bounded_lipschitz(support, weights)
    assert is_probability_vector(projected)
    assert_allclose(project_bounded_lipschitz(scale * support, weights), projected, atol=1e-9)


# Errors


@pytest.mark.parametrize("weights", [[np.nan, 1], [np.inf, 1], [], [[1.0]], ["a"]])
@pytest.mark.parametrize("function", [threshold_weights, project_simplex])
def test_weights_are_finite_and_flat(function, weights):
    with pytest.raises(ValueError, match="weights|minimum of 1|string"):
        function(weights)


@pytest.mark.parametrize(
    ("support", "weights", "options", "message"),
    [
        ([[0], [1]], [1], {}, "support has 2 atoms, weights has 1"),
        ([[0], [np.nan]], [1, 0], {}, "Input support contains NaN"),
        ([0, 1], [1, 0], {}, "Expected 2D array"),
        ([[0], [1]], [1, 0], {"metric": "sqeuclidean"}, "metric must be"),
        ([[0], [1]], [2, -1], {"metric": lambda x, y: -1.0}, "metric must give"),
        ([[0], [1]], [2, -1], {"metric": lambda x, y: np.nan}, "metric must give|NaN"),
    ],
)
def test_malformed_measures(support, weights, options, message):
    with pytest.raises(ValueError, match=message):
        project_bounded_lipschitz(support, weights, **options)


def test_a_transport_problem_left_unsolved(monkeypatch):
    support, weights = measure(50, 0)
    monkeypatch.setattr(_weight_projections, "_MAX_PIVOTS", 1)
    with (
        pytest.warns(UserWarning, match="numItermax"),
        pytest.raises(RuntimeError, match="was not solved by POT"),
    ):
        project_bounded_lipschitz(support, weights)
