"""Settings of private evolution: the theorem's by hand, and the annealed ones."""

import math
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sklearn_dpgen.accounting import gaussian_sigma
from sklearn_dpgen.evolution import annealed_parameters, theory_parameters
from sklearn_dpgen.evolution._schedules import threshold_settings

BUDGETS = [(1000, 2, 2.0, 1.0, 1e-4), (500, 1, 1.0, 1.0, 1e-4), (5000, 5, 3.0, 0.3, 1e-6)]


# The theorem.


def test_the_theorem_by_hand():
    """n = 1000, d = 2, D = 2, ε = 1, δ = 1e-4: σ(ε, δ) = 3.1857 from the table of the pages."""
    found = theory_parameters(1000, 2, 2.0, 1.0, 1e-4)
    # T = 2 ln(1000) = 13.8.
    assert found.n_iter == 14
    # √28 · 3.1857 / 1000.
    assert found.noise == pytest.approx(0.016857, abs=2e-6)
    # 2 · √0.016857, so log2(D/α) = 2.945 and L = 3.
    assert found.resolution == pytest.approx(0.25967, abs=2e-5)
    assert len(found.degrees) == 3
    # 7^(−1/2) / 0.016857 = 22.42.
    assert found.n_samples == 22
    # 1 / (8π · [(1.41421 + 0.693147)² + 0.693147]) = 1 / (25.1327 · 5.13405).
    assert found.contraction == pytest.approx(0.0077500, abs=2e-6)
    # σ_1 = α / (√π · 5.13405) = 0.028536, times √2 / 2.
    assert found.degrees == pytest.approx([0.020178, 0.040356, 0.080712], rel=1e-4)
    assert found.shares == pytest.approx([1 / 14] * 14)


@pytest.mark.parametrize(("n", "d", "diameter", "epsilon", "delta"), BUDGETS)
@pytest.mark.parametrize("n_iter", [None, 1, 50])
def test_the_order_of_the_theorem(n, d, diameter, epsilon, delta, n_iter):
    found = theory_parameters(n, d, diameter, epsilon, delta, n_iter=n_iter)
    m = max(d, 2)
    steps = n_iter or round(2 * math.log(n * epsilon))
    assert found.n_iter == len(found.shares) == steps
    sigma = gaussian_sigma(epsilon, delta) * math.sqrt(2 * steps) / n
    assert found.noise == pytest.approx(sigma, rel=1e-9)
    alpha = diameter * sigma ** (1 / m)
    assert found.resolution == pytest.approx(alpha, rel=1e-9)
    n_scales = math.ceil(math.log2(diameter / alpha))
    assert len(found.degrees) == n_scales
    n_samples = (2 * n_scales + 1) ** (1 / m - 1) / sigma
    assert found.n_samples == max(1, round(n_samples))
    bracket = (math.sqrt(d) + math.log(2)) ** 2 + math.log(2)
    for level, degree in enumerate(found.degrees, 1):
        scale = alpha * 2 ** (level - 1) / (math.sqrt(math.pi) * bracket)
        assert degree == pytest.approx(scale * math.sqrt(d) / diameter, rel=1e-9)
    assert found.contraction == pytest.approx(1 / (8 * math.pi * bracket))


def test_a_population_of_the_theorem_that_is_given():
    found = theory_parameters(1000, 2, 2.0, 1.0, 1e-4)
    given = theory_parameters(1000, 2, 2.0, 1.0, 1e-4, n_samples=9)
    assert given == replace(found, n_samples=9)


def test_noise_of_all_votes_leaves_no_scale():
    found = theory_parameters(3, 2, 1.0, 0.1, 1e-4)
    assert found.noise > 1
    assert found.degrees == ()
    assert found.n_samples == 1
    assert found.n_iter == 1


big = st.integers(1, 10**12)
some = st.integers(1, 10**5)
budget = st.floats(1e-6, 1e3)
failure = st.floats(1e-12, 0.5)


@pytest.mark.slow
@settings(deadline=None, derandomize=True, max_examples=100)
@given(big, st.integers(1, 10**4), st.floats(1e-6, 1e6), budget, failure)
def test_the_theorem_for_any_quantities(n, d, diameter, epsilon, delta):
    found = theory_parameters(n, d, diameter, epsilon, delta)
    assert found.n_iter >= 1
    assert found.n_samples >= 1
    assert 0 < found.noise < math.inf
    assert 0 < found.resolution < math.inf
    assert all(0 < degree < 0.18 for degree in found.degrees)
    assert found.degrees == tuple(sorted(found.degrees))
    assert (len(found.degrees) == 0) == (found.resolution >= diameter)
    assert 0 < found.contraction < 1
    assert math.fsum(found.shares) == pytest.approx(1)
    # The diameter is a unit of length, and nothing else depends on it.
    unit = theory_parameters(n, d, 1.0, epsilon, delta)
    assert (unit.n_iter, unit.n_samples, unit.noise) == (
        found.n_iter,
        found.n_samples,
        found.noise,
    )
    if len(unit.degrees) == len(found.degrees):
        np.testing.assert_allclose(unit.degrees, found.degrees, rtol=1e-9)


# Annealing.


def test_the_annealed_settings_by_hand():
    """n = 1000, d = 2, ε = 1, δ = 1e-4: N = 1000 / (√2 · 3.1857) = 221.96."""
    found = annealed_parameters(1000, 2, epsilon=1.0, delta=1e-4)
    # 1 + √2 · 2.346 / 2 = 2.66.
    assert found.n_iter == 3
    # max(3.2 · 14.898, 27.7) = 47.67.
    assert found.n_samples == 48
    assert found.degrees == pytest.approx([48**-0.5 / 2**t for t in range(3)])
    assert found.shares == pytest.approx([1 / 7, 2 / 7, 4 / 7])
    # In one dimension 221.96^(2/3) / 2 = 18.33, and 1 + 2.346 / 2 = 2.17.
    line = annealed_parameters(1000, 1, epsilon=1.0, delta=1e-4)
    assert (line.n_samples, line.n_iter) == (18, 2)
    assert line.degrees == pytest.approx([1 / 18, 1 / 36])


def test_settings_with_a_threshold_by_hand():
    """d = 2, ε = 1, δ = 1e-5: h = 1 + 2T ln(2T/δ) for T steps at b = 2T, nearly the noise taken."""
    # h is 25.41, 52.60 and 80.83 for one, two and three steps. 1000/(3 · 52.60) < 100, and a step
    # alone has 2 · 1000/(3 · 25.41) = 26.2.
    assert threshold_settings([1000], 2, 1.0, 1e-5) == (1, [26])
    # 20000/(3 · 80.83) = 82.5 < 100 <= 20000/(3 · 52.60) = 126.7.
    assert threshold_settings([20_000], 2, 1.0, 1e-5) == (2, [127])
    assert threshold_settings([20_000], 2, 1.0, 1e-5, n_iter=3) == (3, [82])
    # The smallest class decides on the steps, and no class is without a record. N/8 = 474, the
    # population without a threshold, is less than 2 · 20000/(3 · 25.41) = 524.7.
    assert threshold_settings([20_000, 10], 2, 1.0, 1e-5) == (1, [474, 1])
    # No more than without a threshold, at any budget.
    annealed = annealed_parameters(1000, 2, 50.0, 1e-5)
    assert threshold_settings([1000], 2, math.inf, 1e-5)[1] == [
        annealed_parameters(1000, 2, math.inf, 1e-5).n_samples
    ]
    assert threshold_settings([1000], 2, 50.0, 1e-5) == (annealed.n_iter, [annealed.n_samples])


def test_annealed_settings_that_are_given():
    found = annealed_parameters(1000, 3, 1.0, 1e-4, n_iter=5, n_samples=64)
    assert (found.n_iter, found.n_samples) == (5, 64)
    assert found.degrees == pytest.approx([0.25, 0.125, 0.0625, 0.03125, 0.015625])
    assert found.shares == pytest.approx([t / 31 for t in (1, 2, 4, 8, 16)])


def test_without_noise_a_record_is_the_unit():
    found = annealed_parameters(10_000, 2, math.inf, 1e-4)
    assert found.n_iter == round(1 + math.sqrt(2) * 2)
    assert found.n_samples == 10_000 / 8
    assert annealed_parameters(10_000, 2, 1e6, 1e-4) == found


@pytest.mark.slow
@settings(deadline=None, derandomize=True, max_examples=150)
@given(big, some, st.one_of(budget, st.just(math.inf)), failure)
def test_annealed_settings_for_any_quantities(n, d, epsilon, delta):
    found = annealed_parameters(n, d, epsilon, delta)
    assert 1 <= found.n_iter <= 30
    assert 1 <= found.n_samples <= 4000
    assert len(found.degrees) == len(found.shares) == found.n_iter
    assert all(0 < degree <= 1 for degree in found.degrees)
    assert math.fsum(found.shares) == pytest.approx(1)
    for pairs in (found.degrees[::-1], found.shares):
        assert all(
            late == pytest.approx(2 * early) for early, late in zip(pairs, pairs[1:], strict=False)
        )


@pytest.mark.slow
@settings(deadline=None, derandomize=True, max_examples=100)
@given(
    st.integers(1, 10**9), st.integers(1, 40), st.floats(1e-3, 50), st.floats(1e-10, 0.1), st.data()
)
def test_annealed_settings_are_monotone(n, d, epsilon, delta, data):
    """More votes, or less noise on them: no fewer steps or candidates."""
    found = annealed_parameters(n, d, epsilon, delta)
    more = data.draw(st.sampled_from(["n", "epsilon", "delta"]))
    factor = data.draw(st.floats(1, 10))
    better = annealed_parameters(
        math.ceil(n * factor) if more == "n" else n,
        d,
        epsilon * factor if more == "epsilon" else epsilon,
        min(0.5, delta * factor) if more == "delta" else delta,
    )
    assert better.n_samples >= found.n_samples
    assert better.n_iter >= found.n_iter
    assert better.degrees[-1] <= found.degrees[-1] * (1 + 1e-12)
    # More dimensions: no fewer steps.
    assert annealed_parameters(n, d + 1, epsilon, delta).n_iter >= found.n_iter


@pytest.mark.parametrize("make", [annealed_parameters, theory_parameters])
@pytest.mark.parametrize(
    ("change", "error", "message"),
    [
        ({"n": 0}, ValueError, "n must be at least 1"),
        ({"n": 10.0}, TypeError, "n must be an integer"),
        ({"d": 0}, ValueError, "d must be at least 1"),
        ({"epsilon": 0.0}, ValueError, "epsilon must be positive"),
        ({"delta": 1.0}, ValueError, "delta must be strictly between"),
        ({"n_iter": 0}, ValueError, "n_iter"),
        ({"diameter": 0.0}, ValueError, "diameter must be positive"),
        ({"epsilon": math.inf}, ValueError, "epsilon must be positive and finite"),
        ({"n_samples": 0}, ValueError, "n_samples"),
    ],
    ids=str,
)
def test_refusals(make, change, error, message):
    options = {"n": 100, "d": 2, "epsilon": 1.0, "delta": 1e-5}
    if make is annealed_parameters and ("diameter" in change or change.get("epsilon") == math.inf):
        return
    if make is theory_parameters:
        options["diameter"] = 1.0
    with pytest.raises(error, match=message):
        make(**options | change)
