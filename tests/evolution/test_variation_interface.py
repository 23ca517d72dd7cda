"""Candidates of a domain: their laws, the scales of the paper, and what is refused."""

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.testing import assert_allclose, assert_array_equal

from sklearn_dpgen.domains import Ball, Box, OneHot, Product
from sklearn_dpgen.evolution._variation_interface import (
    EuclideanVariation,
    VariationInterface,
    check_candidates,
    check_degree,
    choose_columns,
    paper_degrees,
)

N = 4000
MIXED = Product([Box(0, 10, n_features=2), OneHot(3), Ball(1.0, n_features=3)])
DOMAINS = [
    Box(-1, 3, n_features=5),
    Ball(2.0, n_features=3),
    Ball(1.0, p=1, n_features=4),
    OneHot(4),
    MIXED,
    Product([Product([Box(-1, 1), OneHot(2)]), OneHot(3)]),
]


class Deaf(EuclideanVariation):
    """Varies by one degree whatever is asked."""

    def vary(self, X, rng, degree):
        return super().vary(X, rng, 0.05)


def centers(domain, n=N):
    return np.tile(domain.project(np.zeros((1, domain.n_features))), (n, 1))


def has_wanted_displacement(interface, domain, degree):
    """Whether the mean square displacement is (degree D)², within 5 standard errors."""
    X = np.tile((domain.low + domain.high) / 2, (N, 1))
    moved = interface.vary(X, np.random.default_rng(0), degree) - X
    wanted = (degree * domain.diameter(2)) ** 2
    # The sum of squares is wanted / d times a chi-squared variable of d degrees of freedom.
    error = wanted * math.sqrt(2 / domain.n_features / N)
    return abs((moved**2).sum(axis=1).mean() - wanted) < 5 * error


@pytest.mark.parametrize("degree", [0.01, 0.1])
def test_the_displacement_is_in_units_of_the_diameter(degree):
    # Sides of 1 and 4: at these degrees the bounds are 5 standard deviations away and more.
    domain = Box([0, 0, 0, 0], [3, 4, 3, 4])
    degree = degree / 2
    assert has_wanted_displacement(EuclideanVariation(domain), domain, degree)
    assert not has_wanted_displacement(Deaf(domain), domain, degree / 2)


@pytest.mark.parametrize("domain", DOMAINS, ids=str)
def test_candidates_lie_in_the_domain_and_repeat(domain):
    interface = EuclideanVariation(domain)
    assert isinstance(interface, VariationInterface)
    X = interface.random(50, np.random.default_rng(0))
    assert_array_equal(X, interface.random(50, np.random.default_rng(0)))
    kept = X.copy()
    for degree in (1e-3, 0.3, 1.0, 5.0):
        varied = interface.vary(X, np.random.default_rng(1), degree)
        check_candidates(varied, 50, domain.n_features, domain, interface)
        assert_array_equal(varied, interface.vary(X, np.random.default_rng(1), degree))
    assert_array_equal(X, kept)
    assert not np.array_equal(varied, interface.vary(X, np.random.default_rng(2), 5.0))


@pytest.mark.parametrize("domain", DOMAINS, ids=str)
def test_larger_degrees_move_farther(domain):
    def moves(interface):
        X = interface.random(N, np.random.default_rng(0))
        sizes = [
            np.linalg.norm(interface.vary(X, np.random.default_rng(1), degree) - X, axis=1).mean()
            for degree in (0.02, 0.1, 0.4, 1.0)
        ]
        return (np.diff(sizes) > 0).all()

    assert moves(EuclideanVariation(domain))
    assert not moves(Deaf(domain))


@pytest.mark.parametrize("degree", [0.1, 0.6, 1.0])
def test_a_block_is_drawn_anew_by_the_degree(degree):
    X = centers(MIXED)
    share = 2 / 3 * degree
    tolerance = 5 * math.sqrt(share * (1 - share) / N)

    def changed(interface):
        varied = interface.vary(X, np.random.default_rng(0), degree)
        return (varied[:, 2:5] != X[:, 2:5]).any(axis=1).mean()

    assert abs(changed(EuclideanVariation(MIXED)) - share) < tolerance
    assert abs(changed(Deaf(MIXED)) - share) > tolerance


def test_blocks_do_not_widen_the_noise_of_numbers():
    box = Box(0, 10, n_features=2)
    interface = EuclideanVariation(Product([box, *[OneHot(50)] * 10]))
    X = centers(interface.domain)
    X[:, :2] = 5.0
    moved = interface.vary(X, np.random.default_rng(0), 0.05)[:, :2] - 5.0
    # s = 0.05 · 10 sqrt(2) / sqrt(2); the error of a variance of 2 N normals.
    assert abs(moved.var() - 0.25) < 5 * 0.25 * math.sqrt(2 / (2 * N))


def test_the_scales_of_the_paper():
    # d = 2, D = 2, α = 0.25: three scales, σ_l = α 2^(l-1) / (sqrt(π) ((sqrt 2 + ln 2)² + ln 2)).
    bracket = (math.sqrt(2) + math.log(2)) ** 2 + math.log(2)
    sigmas = 0.25 * np.array([1, 2, 4]) / (math.sqrt(math.pi) * bracket)
    assert_allclose(paper_degrees(2, 0.25, 2.0) * 2.0 / math.sqrt(2), sigmas, rtol=1e-12)
    interface = EuclideanVariation(Box([-0.7, -0.7], [0.7, 0.7]))
    diameter = interface.domain.diameter(2)
    degree = paper_degrees(2, diameter / 8, diameter)[0]
    moved = interface.vary(np.zeros((N, 2)), np.random.default_rng(0), degree)
    wanted = (diameter / 8 / (math.sqrt(math.pi) * bracket)) ** 2
    assert abs(moved.var() - wanted) < 5 * wanted * math.sqrt(2 / (2 * N))


@settings(deadline=None, max_examples=60)
@given(
    d=st.integers(1, 3000),
    n_scales=st.integers(1, 30),
    diameter=st.floats(1e-6, 1e6),
    share=st.floats(1.01, 2.0),
)
def test_the_scales_double_and_stay_small(d, n_scales, diameter, share):
    # D / α in (2^(L-1), 2^L] gives L scales.
    resolution = diameter / (2.0 ** (n_scales - 1) * share)
    degrees = paper_degrees(d, resolution, diameter)
    assert len(degrees) == n_scales
    assert_allclose(degrees[1:], 2 * degrees[:-1])
    assert (degrees > 0).all()
    assert (degrees < 0.18).all()


@pytest.mark.parametrize(
    ("arguments", "word"),
    [
        ((0, 0.1, 1.0), "n_features"),
        ((True, 0.1, 1.0), "n_features"),
        ((2, 0.0, 1.0), "resolution"),
        ((2, 1.0, 1.0), "resolution"),
        ((2, 0.1, np.inf), "diameter"),
    ],
)
def test_scales_that_do_not_exist(arguments, word):
    with pytest.raises(ValueError, match=word):
        paper_degrees(*arguments)


@pytest.mark.parametrize("degree", [0.0, -0.5, np.nan, np.inf])
def test_a_degree_is_positive_and_finite(degree):
    with pytest.raises(ValueError, match="degree"):
        EuclideanVariation(Box(0, 1)).vary(np.zeros((2, 1)), np.random.default_rng(0), degree)
    with pytest.raises(ValueError, match="degree"):
        check_degree(degree)


def test_most_degrees_end_at_one():
    assert check_degree(1) == 1.0
    with pytest.raises(ValueError, match=r"degree must be in \(0, 1\]"):
        check_degree(1.001)


def test_the_domain_is_a_domain():
    with pytest.raises(TypeError, match="domain must be a Domain"):
        EuclideanVariation((0, 1))


def test_columns_are_chosen_by_rate_and_one_at_least():
    rng = np.random.default_rng(0)
    eligible = np.ones((N, 6), dtype=bool)
    chosen = choose_columns(eligible, 0.5, rng)
    # Beside the rate, a row in 64 gets one of its six.
    share = 0.5 + 0.5**6 / 6
    assert (abs(chosen.mean(axis=0) - share) < 5 * 0.5 / math.sqrt(N)).all()
    assert chosen.any(axis=1).all()
    rare = choose_columns(eligible, 1e-9, rng)
    assert_array_equal(rare.sum(axis=1), 1)
    assert (abs(rare.mean(axis=0) - 1 / 6) < 5 * math.sqrt(5 / 36 / N)).all()
    eligible = rng.uniform(size=(N, 6)) < 0.2
    chosen = choose_columns(eligible, 0.1, rng)
    assert not (chosen & ~eligible).any()
    assert_array_equal(chosen.any(axis=1), eligible.any(axis=1))


class Odd(EuclideanVariation):
    """An interface of a user."""


SECRET = 123.456


@pytest.mark.parametrize(
    ("X", "words"),
    [
        (None, "3 candidates, got None"),
        ([["a", "b"]] * 3, "must return candidates as an array of numbers"),
        ([[1.0, 2.0], [3.0], [SECRET]], "must return candidates as an array of numbers"),
        (np.zeros(3), "two dimensions, got 1"),
        (np.zeros((0, 2)), "3 candidates, got 0"),
        (np.zeros((2, 2)), "3 candidates, got 2"),
        (np.zeros((3, 5)), "2 features, got 5"),
        (np.array([[0, 0], [np.nan, 0], [SECRET, 0]]), "must return finite candidates"),
        (np.array([[0, 0], [SECRET, 0], [0, 0]]), "in the domain, got 1 of 3 outside"),
    ],
)
def test_bad_candidates_are_named_without_their_values(X, words):
    domain = Box(-1, 1, n_features=2)
    with pytest.raises(ValueError, match=words) as caught:
        check_candidates(X, 3, 2, domain, Odd(domain))
    assert "Odd" in str(caught.value)
    assert "123" not in str(caught.value)
    assert caught.value.__context__ is None


def test_good_candidates_pass():
    domain = Box(-1, 1, n_features=2)
    X = check_candidates([[0, 1]] * 3, 3, 2, domain, Odd(domain))
    assert (X.dtype, X.shape) == (np.float64, (3, 2))
    check_candidates(np.full((3, 7), 99.0), 3, None, None, Odd(domain))
    with pytest.raises(ValueError, match="2 features, as the domain has, got 7"):
        check_candidates(np.zeros((3, 7)), 3, None, domain, Odd(domain))
