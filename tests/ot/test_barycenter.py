"""Laws on the line, their barycentre, and the maps towards it."""

import numpy as np
import ot
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.stats import norm

from sklearn_dpgen.ot._barycenter import BarycenterMaps, LineLaw

LEVELS = np.linspace(0.01, 0.99, 99)


def samples(seed, *shifts):
    rng = np.random.default_rng(seed)
    return [shift + scale * rng.normal(size=400) for shift, scale in shifts]


def distance(first, second):
    return np.sqrt(ot.wasserstein_1d(first, second, p=2))


def moved(maps, groups, strength):
    values = np.concatenate(groups)
    codes = np.repeat(np.arange(len(groups)), [len(g) for g in groups])
    out = maps.transport(values, codes, strength)
    return [out[codes == code] for code in range(len(groups))]


def test_the_barycenter_of_normals_has_the_mean_deviation():
    quantiles = norm.ppf((np.arange(2000) + 0.5) / 2000)
    laws = [LineLaw.from_sample(quantiles - 1), LineLaw.from_sample(2 + 3 * quantiles)]
    maps = BarycenterMaps(laws, [3, 1])
    expected = norm.ppf(LEVELS, loc=-1 + 0.75, scale=1 + 0.5)
    np.testing.assert_allclose(maps.barycenter.quantile(LEVELS), expected, atol=1e-2)


@pytest.mark.parametrize("strength", [0.0, 0.3, 0.8, 1.0])
def test_a_part_of_the_way_shrinks_every_distance_by_it(strength):
    groups = samples(0, (0, 1), (2, 0.5), (-1, 2))
    maps = BarycenterMaps([LineLaw.from_sample(g) for g in groups], [1, 2, 3])
    out = moved(maps, groups, strength)
    for i in range(3):
        for j in range(i):
            before, after = distance(groups[i], groups[j]), distance(out[i], out[j])
            assert after == pytest.approx((1 - strength) * before, abs=0.02 * before)


def test_shrunk_values_move_towards_the_mean_of_all():
    groups = samples(0, (0, 1), (2, 0.5), (-1, 2))
    maps = BarycenterMaps([LineLaw.from_sample(g) for g in groups], [1, 2, 3])
    mean = sum(weight * g.mean() for weight, g in zip((1, 2, 3), groups, strict=True)) / 6
    np.testing.assert_allclose(maps.shrink(groups[0], 1.0), mean, atol=0.02)
    np.testing.assert_array_equal(maps.shrink(groups[0], 0.0), groups[0])
    out = [maps.shrink(g, 0.3) for g in groups]
    assert distance(out[0], out[1]) == pytest.approx(0.7 * distance(groups[0], groups[1]))


def test_the_largest_distance_is_that_of_the_samples():
    groups = samples(1, (0, 1), (2, 0.5), (-1, 2))
    maps = BarycenterMaps([LineLaw.from_sample(g) for g in groups], [1, 1, 1])
    wanted = max(distance(groups[i], groups[j]) for i in range(3) for j in range(i))
    assert maps.largest_distance() == pytest.approx(wanted, rel=0.01)


@pytest.mark.parametrize("strength", [0.0, 0.5, 1.0])
def test_rates_above_are_those_of_the_moved_values(strength):
    groups = samples(2, (0, 1), (1.5, 0.7))
    maps = BarycenterMaps([LineLaw.from_sample(g) for g in groups], [1, 1])
    rates = [np.mean(values > 0.8) for values in moved(maps, groups, strength)]
    np.testing.assert_allclose(maps.rates_above(0.8, strength), rates, atol=0.01)


@settings(max_examples=50, deadline=None)
@given(
    st.lists(st.integers(-5, 5), min_size=1, max_size=30),
    st.lists(st.integers(-5, 5), min_size=1, max_size=30),
    st.floats(0, 1),
)
def test_the_order_within_a_group_stays(first, second, strength):
    groups = [np.array(sorted(values), dtype=float) for values in (first, second)]
    maps = BarycenterMaps([LineLaw.from_sample(g) for g in groups], [1, 1])
    for before, after in zip(groups, moved(maps, groups, strength), strict=True):
        assert np.all(np.diff(after) >= -1e-12)
        assert np.all(np.diff(after)[np.diff(before) == 0] == 0)
        low, high = min(map(np.min, groups)), max(map(np.max, groups))
        assert after.min() >= low - 1e-12
        assert after.max() <= high + 1e-12


def test_counts_give_the_law_that_is_uniform_within_bins():
    law = LineLaw.from_counts([0, 1, 2, 4], [1, 0, 3])
    np.testing.assert_allclose(law.level([0, 0.5, 1, 2, 3, 4]), [0, 0.125, 0.25, 0.25, 0.625, 1])
    assert law.quantile(0.625) == pytest.approx(3)


def test_values_are_not_changed_in_place():
    groups = samples(3, (0, 1), (1, 1))
    values, codes = np.concatenate(groups), np.repeat([0, 1], 400)
    kept = values.copy()
    BarycenterMaps([LineLaw.from_sample(g) for g in groups], [1, 1]).transport(values, codes)
    np.testing.assert_array_equal(values, kept)
