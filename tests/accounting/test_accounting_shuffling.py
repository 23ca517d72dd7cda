"""Amplification by shuffling: the closed form, and the clone bound against exact divergences."""

import math

import numpy as np
import pytest
from scipy.stats import binom

from sklearn_dpgen.accounting import _calibration, shuffled_epsilon


def test_reference_value():
    assert shuffled_epsilon(5.0, 400000, 1e-6) == pytest.approx(0.3521, abs=5e-5)


@pytest.mark.parametrize(("epsilon0", "n"), [(0.5, 1000), (2.0, 10**5), (5.0, 400000)])
def test_numerical_bound_is_tighter(epsilon0, n):
    numerical = shuffled_epsilon(epsilon0, n, 1e-6, method="numerical")
    assert 0 < numerical < shuffled_epsilon(epsilon0, n, 1e-6) <= epsilon0


def shuffled_response_delta(epsilon, epsilon0, n):
    """Divergence of shuffled binary randomized response, the others' records all zero.

    Everyone but one answers 1 with probability q; the count of ones is the whole output.
    """
    q = 1 / (1 + math.exp(epsilon0))
    others = binom.pmf(np.arange(n), n - 1, q)
    one = np.concatenate([[0.0], others]) * (1 - q) + np.concatenate([others, [0.0]]) * q
    zero = np.concatenate([[0.0], others]) * q + np.concatenate([others, [0.0]]) * (1 - q)
    return max(
        np.maximum(one - math.exp(epsilon) * zero, 0).sum(),
        np.maximum(zero - math.exp(epsilon) * one, 0).sum(),
    )


def check_bounds_randomized_response(epsilon, epsilon0, n, delta):
    assert shuffled_response_delta(epsilon, epsilon0, n) <= delta


@pytest.mark.parametrize(
    ("epsilon0", "n", "delta"), [(0.5, 1000, 1e-3), (1.0, 2000, 1e-6), (3.0, 5000, 1e-5)]
)
@pytest.mark.parametrize("method", ["closed_form", "numerical"])
def test_bounds_an_exact_mechanism(epsilon0, n, delta, method):
    epsilon = shuffled_epsilon(epsilon0, n, delta, method=method)
    check_bounds_randomized_response(epsilon, epsilon0, n, delta)
    # The same with the clones of a shuffler a thousand times larger must not pass.
    broken = shuffled_epsilon(epsilon0, 1000 * n, delta, method=method)
    with pytest.raises(AssertionError):
        check_bounds_randomized_response(broken, epsilon0, n, delta)


def test_numerical_bound_on_a_small_case_against_the_full_sum():
    epsilon0, n, epsilon = 1.0, 30, 0.6
    truth = 1 / (1 + math.exp(-1.0))
    delta = 0.0
    for clones in range(n):
        ones = binom.pmf(np.arange(clones + 1), clones, 0.5)
        shifted, kept = np.concatenate([[0.0], ones]), np.concatenate([ones, [0.0]])
        first, second = truth * shifted + (1 - truth) * kept, (1 - truth) * shifted + truth * kept
        excess = np.maximum(first - math.exp(epsilon) * second, 0).sum()
        delta += binom.pmf(clones, n - 1, math.exp(-epsilon0)) * excess
    assert shuffled_epsilon(epsilon0, n, delta, method="numerical") == pytest.approx(
        epsilon, rel=1e-8
    )


def test_more_people_never_cost():
    found = [shuffled_epsilon(2.0, n, 1e-6, method="numerical") for n in (1, 10, 10**3, 10**6)]
    assert found == sorted(found, reverse=True)
    assert found[0] == pytest.approx(2.0, rel=1e-5)


def clone_delta(epsilon, epsilon0, n):
    """Divergence of the clones over every number of them, one by one."""
    clones = np.arange(n)
    truth = 1 / (1 + math.exp(-epsilon0))
    share = (math.exp(epsilon) * truth - (1 - truth)) / ((2 * truth - 1) * (1 + math.exp(epsilon)))
    # The release is a count of ones among the clones and the differing person.
    first = np.floor(share * (clones + 1))
    shifted, kept = binom.sf(first - 1, clones, 0.5), binom.sf(first, clones, 0.5)
    ones = truth * shifted + (1 - truth) * kept
    zeros = (1 - truth) * shifted + truth * kept
    excess = np.maximum(ones - math.exp(epsilon) * zeros, 0)
    return binom.pmf(clones, n - 1, math.exp(-epsilon0)) @ excess


def clones_keep_to_the_budget(epsilon0, n, delta):
    epsilon = shuffled_epsilon(epsilon0, n, delta, method="numerical")
    exact = clone_delta(epsilon, epsilon0, n)
    # Within the cost of rounding, so that the formula above is the same one.
    assert exact == pytest.approx(delta, rel=0.02)
    return exact <= delta


@pytest.mark.slow
def test_numbers_of_clones_are_rounded_down(monkeypatch):
    # Some 9000 numbers of clones have some probability: twice as many as there are blocks.
    case = {"epsilon0": 0.7, "n": 10**6, "delta": 1e-6}
    assert clones_keep_to_the_budget(**case)
    down = _calibration._clone_counts

    def up(n_others, probability):
        counts, weights, lost = down(n_others, probability)
        return np.append(counts[1:] - 1, counts[-1]), weights, lost

    monkeypatch.setattr(_calibration, "_clone_counts", up)
    assert not clones_keep_to_the_budget(**case)


def test_few_clones_that_are_left_out_count_as_a_failure(monkeypatch):
    # No clone at all, which gives the record away, has probability 0.007: then it is left out.
    monkeypatch.setattr(_calibration, "_TAIL_MASS", 0.01)
    epsilon0, n, delta = math.log(200.0), 1000, 0.05

    def is_private():
        epsilon = shuffled_epsilon(epsilon0, n, delta, method="numerical")
        return clone_delta(epsilon, epsilon0, n) <= delta

    assert is_private()
    counted = _calibration._clone_counts
    monkeypatch.setattr(_calibration, "_clone_counts", lambda *plan: (*counted(*plan)[:2], 0.0))
    assert not is_private()


@pytest.mark.slow
def test_rounding_the_number_of_clones_costs_little():
    # More than 4096 distinct numbers of clones, so that they are grouped.
    epsilon = shuffled_epsilon(0.7, 10**8, 1e-6, method="numerical")
    assert 0 < epsilon < 0.6 * shuffled_epsilon(0.7, 10**8, 1e-6)


@pytest.mark.parametrize(
    ("arguments", "error", "message"),
    [
        ((9.0, 1000, 1e-6), ValueError, "epsilon0 must be at most"),
        ((0.1, 20, 1e-6), ValueError, "epsilon0 must be at most"),
        ((0.0, 1000, 1e-6), ValueError, "epsilon0"),
        ((math.inf, 1000, 1e-6), ValueError, "epsilon0"),
        ((1.0, 0, 1e-6), ValueError, "n must"),
        ((1.0, 10.0, 1e-6), TypeError, "n must"),
        ((1.0, 1000, 0.0), ValueError, "delta"),
    ],
)
def test_bad_arguments(arguments, error, message):
    with pytest.raises(error, match=message):
        shuffled_epsilon(*arguments)


def test_bad_method():
    with pytest.raises(ValueError, match="method"):
        shuffled_epsilon(1.0, 1000, 1e-6, method="clones")
