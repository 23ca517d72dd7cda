"""Counts of scores and sums of outcomes by group: what a record can change, and what they say."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sklearn_dpgen.ot._barycenter import BarycenterMaps, LineLaw
from sklearn_dpgen.predictors._group_counts import (
    _Contrasts,
    _levels,
    _splits,
    _weights,
    count_halves,
    group_sizes,
    kept_part,
    maps_of_halves,
    maps_of_scores,
    outcome_sums,
)
from sklearn_dpgen.utils._groups import mean_intervals

ANY = st.one_of(st.floats(-2, 2), st.sampled_from([np.nan, np.inf, -np.inf, 0.0, 1.0, 0.5]))
RECORDS = st.lists(st.tuples(ANY, st.integers(0, 2)), min_size=1, max_size=12)


def columns(records):
    return np.array([s for s, _ in records], dtype=float), np.array([c for _, c in records])


def counted(records):
    return count_halves(*columns(records), 3, 4)


def summed(records):
    return outcome_sums(*columns(records), 3)


def counted_without_weights(records):
    scores, codes = columns(records)
    return np.concatenate([count_halves(scores, codes, 3, 1) for _ in range(4)])


def summed_unclipped(records):
    scores, codes = columns(records)
    return np.bincount(codes, weights=np.nan_to_num(scores), minlength=3)


def largest_change(function, records, others):
    base = function(records)
    changes = [0.0]
    for other in others:
        changes.append(np.linalg.norm(function([other, *records[1:]]) - base))
    return max(changes)


@settings(max_examples=100, deadline=None)
@given(RECORDS, st.lists(st.tuples(ANY, st.integers(0, 2)), min_size=1, max_size=5))
def test_a_replaced_record_changes_counts_and_sums_by_the_root_of_two(records, others):
    for function in (counted, summed):
        assert largest_change(function, records, others) <= np.sqrt(2) * (1 + 1e-12)


@pytest.mark.parametrize("function", [counted, summed])
def test_the_bound_is_attained(function):
    change = largest_change(function, [(0.0, 0), (0.3, 1)], [(1.0, 2)])
    assert change == pytest.approx(np.sqrt(2))


@settings(max_examples=100, deadline=None)
@given(RECORDS, st.tuples(ANY, st.integers(0, 2)))
def test_an_added_record_changes_counts_and_sums_by_one(records, added):
    for function in (counted, summed):
        assert added_change(function, records, added) <= 1 + 1e-12


def added_change(function, records, added):
    return np.linalg.norm(function([*records, added]) - function(records))


def test_the_bound_of_an_added_record_is_attained():
    for function in (counted, summed):
        assert added_change(function, [(0.3, 1)], (1.0, 2)) == pytest.approx(1)
    # Negative twins: a record counts in full on each level, or is not clipped.
    for function in (counted_without_weights, summed_unclipped):
        assert added_change(function, [(0.3, 1)], (2.0, 2)) > 1.5


@pytest.mark.parametrize("function", [counted_without_weights, summed_unclipped])
def test_a_record_that_counts_for_more_is_caught(function):
    assert largest_change(function, [(0.0, 0), (0.3, 1)], [(2.0, 2), (-2.0, 0)]) > 1.5


def test_every_record_is_counted_once_on_each_level():
    scores = np.array([-1, 0, 0.124, 0.125, 1, 2, np.nan])
    vector = count_halves(scores, np.zeros(7, dtype=int), 2, 3)
    halves, fourths, eighths = vector[:4], vector[4:12], vector[12:]
    weights = [halves.sum() / 7, fourths.sum() / 7, eighths.sum() / 7]
    assert np.sum(np.square(weights)) == pytest.approx(1)
    np.testing.assert_allclose(halves / weights[0], [5, 2, 0, 0])
    np.testing.assert_allclose(fourths / weights[1], [5, 0, 0, 2, 0, 0, 0, 0])
    np.testing.assert_allclose(eighths / weights[2], [4, 1, 0, 0, 0, 0, 0, 2] + 8 * [0])
    np.testing.assert_allclose(group_sizes(vector, 2, 3), [7, 0])


def scores_of(seed, sizes=(4000, 2000)):
    rng = np.random.default_rng(seed)
    scores = [rng.beta(2 + code, 3, size=size) for code, size in enumerate(sizes)]
    return np.concatenate(scores), np.repeat(np.arange(len(sizes)), sizes)


def noisy_maps(scores, codes, scale, stated=None, n_levels=5, seed=1):
    vector = count_halves(scores, codes, 2, n_levels)
    vector += scale * np.random.default_rng(seed).normal(size=vector.shape)
    return maps_of_halves(vector, 2, n_levels, scale if stated is None else stated)


def test_maps_of_many_counts_are_those_of_the_scores():
    scores, codes = scores_of(0)
    exact = maps_of_scores(scores, codes, 2)
    noisy = noisy_maps(scores, codes, 1.0)
    for strength in (0.4, 1.0):
        np.testing.assert_allclose(
            noisy.transport(scores, codes, strength),
            exact.transport(scores, codes, strength),
            atol=0.03,
        )


LEVELS = np.linspace(0.05, 0.95, 19)


def largest_difference(maps):
    one, other = (law.quantile(LEVELS) for law in maps.laws)
    return np.abs(one - other).max()


def test_a_group_that_noise_hides_is_treated_as_all_are():
    scores, codes = scores_of(2, (4000, 5))
    differences = [largest_difference(noisy_maps(scores, codes, 20.0, seed=s)) for s in range(20)]
    assert np.median(differences) == 0
    # Taken at its word, the noise would be its law.
    bare = [largest_difference(noisy_maps(scores, codes, 20.0, 1e-6, seed=s)) for s in range(20)]
    assert np.median(bare) > 0.25


def test_a_small_group_is_told_apart_coarsely():
    rng = np.random.default_rng(3)
    scores = np.concatenate([rng.beta(2, 6, size=8000), rng.beta(3, 3, size=150)])
    codes = np.repeat([0, 1], [8000, 150])
    exact = maps_of_scores(scores, codes, 2).rates_above(0.5, 0.0)
    found = [noisy_maps(scores, codes, 6.0, seed=s).rates_above(0.5, 0.0) for s in range(20)]
    np.testing.assert_allclose(np.mean(found, axis=0), exact, atol=0.1)


def test_a_group_without_rows_has_the_law_of_all():
    scores, codes = scores_of(4)
    maps = maps_of_scores(scores, codes, 3)
    assert maps.laws[2].quantile(0.5) == pytest.approx(np.median(scores), abs=1e-3)


def test_the_part_that_is_kept_by_hand():
    assert [kept_part(evidence) for evidence in (-1.0, 0.0, 3.841)] == [0, 0, 0]
    assert kept_part(2 * 3.841) == pytest.approx(1 / 2)
    assert kept_part(10 * 3.841) == pytest.approx(9 / 10)


@pytest.mark.parametrize(("noise", "expected"), [(0.0, 8.0), (5.0, 100 / 18.75)])
def test_the_evidence_of_a_tilt_by_hand(noise, expected):
    # 60 and 40 of 100 in the left half: without noise the z-score of two shares, .2 / sqrt(.005).
    counts = np.array([[[60.0, 40.0]], [[40.0, 60.0]]])
    for group in (0, 1):
        contrasts = _Contrasts([counts[group]], np.array([100.0, 100.0]), group, np.array([noise]))
        reference = _splits(np.array([0.5, 0.5]))
        assert contrasts.tilt_evidence(reference) == pytest.approx(expected)
        np.testing.assert_allclose(np.abs(contrasts.excess(0, reference[0][0])), 10)


def test_the_variance_of_the_excess_is_that_of_the_counts():
    rng = np.random.default_rng(0)
    sizes, draws = np.array([300.0, 100.0, 50.0]), 20000
    left = rng.binomial(sizes.astype(int), 0.3, size=(draws, 3))
    counts = np.stack([left, sizes - left], axis=2) + 8 * rng.normal(size=(draws, 3, 2))
    split = counts[..., 0].sum(axis=1) / counts.sum(axis=(1, 2))
    for group in range(3):
        contrasts = _Contrasts([counts[:, group]], sizes, group, np.array([8.0]))
        excess = contrasts.excess(0, split)
        expected = contrasts.variance(0, 0.3, 1.0)
        tolerance = 5 * np.sqrt(2 / draws) * expected
        assert excess.var() == pytest.approx(expected, abs=tolerance)
        # Negative twin: the variance of the group's own counts alone.
        alone = 64 * (0.7**2 + 0.3**2) + sizes[group] * 0.21
        assert abs(excess.var() - alone) > tolerance


def maps_of_a_fixed_spread(vector, n_groups, n_levels, noise_scale):
    """Return maps whose halves are shrunk by a fixed spread, whatever the counts say."""
    sizes = np.maximum(group_sizes(vector, n_groups, n_levels), 1.0)
    shares = np.ones((n_groups, 1))
    for count, weight in zip(_levels(vector, n_groups, n_levels), _weights(n_levels), strict=True):
        pooled = np.maximum(count.sum(axis=0), 0.0) + 1e-9
        split = pooled[:, 0] / pooled.sum(axis=1)
        rows = np.maximum(sizes[:, None] * shares, 1e-9)
        excess = (count[..., 0] - split * count.sum(axis=2)) / rows
        noisy = (noise_scale / weight / rows) ** 2 * ((1 - split) ** 2 + split**2)
        spread = 0.25 * split * (1 - split)
        kept = spread / (spread + noisy + split * (1 - split) / rows)
        left = np.clip(split + kept * excess, 0.0, 1.0)
        shares = np.stack([shares * left, shares * (1 - left)], axis=2).reshape(n_groups, -1)
    edges = np.linspace(0, 1, 2**n_levels + 1)
    return BarycenterMaps([LineLaw.from_counts(edges, share) for share in shares], sizes)


def normal_scores(rng, n, gap, part=0.3):
    """Return scores with a standard deviation of .08, and groups whose means are a gap apart."""
    codes = (rng.uniform(size=n) < part).astype(int)
    return np.clip(0.45 + 0.08 * rng.normal(size=n) - gap * codes, 0, 1), codes


def distance(scores, codes):
    levels = (np.arange(200) + 0.5) / 200
    one, other = (np.quantile(scores[codes == code], levels) for code in (0, 1))
    return np.sqrt(np.mean((one - other) ** 2))


def distances_after(make, gap, seeds, n=3000, noise_scale=10.0):
    """Return the distances of groups of new scores, before and after maps of noisy counts."""
    found = []
    for seed in range(seeds):
        rng = np.random.default_rng([7, seed])
        vector = count_halves(*normal_scores(rng, n, gap), 2, 5)
        vector += noise_scale * rng.normal(size=vector.shape)
        scores, codes = normal_scores(rng, 20000, gap)
        moved = make(vector, 2, 5, noise_scale).transport(scores, codes)
        found.append((distance(scores, codes), distance(moved, codes), np.ptp(moved - scores)))
    return np.array(found).T


@pytest.mark.slow
def test_groups_that_are_alike_are_not_moved():
    before, after, moved = distances_after(maps_of_halves, 0.0, 200)
    # Two tests of a difference, one of them one-sided, at 5 percent each: at most 7.5 percent.
    alarms = np.mean(moved > 1e-9)
    assert alarms < 0.075 + 5 * np.sqrt(0.075 * 0.925 / 200)
    assert np.mean(after) < np.mean(before) + 0.002
    # Negative twin: maps that follow what noise there is.
    before, after, moved = distances_after(maps_of_a_fixed_spread, 0.0, 20)
    assert moved.min() > 0.01
    assert np.mean(after) > np.mean(before) + 0.01


@pytest.mark.slow
@pytest.mark.parametrize("gap", [0.01, 0.03, 0.05])
def test_groups_are_not_less_alike_than_before(gap):
    before, after, _ = distances_after(maps_of_halves, gap, 60)
    assert np.mean(after) < np.mean(before) + 0.002
    # Negative twin: at a gap of .01 the noise is larger than the gap.
    before, after, _ = distances_after(maps_of_a_fixed_spread, 0.01, 20)
    assert np.mean(after) > np.mean(before) + 0.01


@pytest.mark.parametrize(("gap", "noise_scale"), [(0.08, 10.0), (0.16, 10.0), (0.03, 1.0)])
def test_a_clear_gap_is_closed(gap, noise_scale):
    before, after, _ = distances_after(maps_of_halves, gap, 20, noise_scale=noise_scale)
    assert np.mean(after / before) < 0.25
    assert np.max(after / before) < 0.6


def test_a_difference_of_shape_is_closed():
    ratios = []
    for seed in range(10):
        rng = np.random.default_rng([8, seed])
        codes = np.repeat([0, 1], 5000)
        scores = np.clip(0.5 + np.where(codes, 0.2, 0.08) * rng.normal(size=10000), 0, 1)
        vector = count_halves(scores, codes, 2, 5)
        maps = maps_of_halves(vector + 5 * rng.normal(size=vector.shape), 2, 5, 5.0)
        ratios.append(distance(maps.transport(scores, codes), codes) / distance(scores, codes))
    assert np.mean(ratios) < 0.25


def test_maps_of_any_counts_stay_in_bounds():
    scores = np.linspace(0, 1, 11)
    codes = np.arange(11) % 3
    for seed in range(20):
        vector = 30 * np.random.default_rng(seed).normal(size=3 * 62)
        moved = maps_of_halves(vector, 3, 5, 30.0).transport(scores, codes)
        assert np.all((moved >= 0) & (moved <= 1))
    for vector in (np.zeros(186), np.full(186, -100.0), np.full(186, 1e9)):
        np.testing.assert_allclose(
            maps_of_halves(vector, 3, 5, 1.0).transport(scores, codes), scores, atol=1e-12
        )


@pytest.mark.parametrize("score", [0.0, 0.5, 1.0])
def test_equal_scores_are_not_moved_even_if_many(score):
    vector = 1e8 * count_halves(np.full(5, score), np.array([0, 0, 0, 1, 1]), 2, 5)
    moved = maps_of_halves(vector, 2, 5, 1.0).transport([score, score], [0, 1])
    np.testing.assert_allclose(moved, score, atol=1e-6)


def test_a_single_group_is_not_moved():
    scores, codes = scores_of(6)
    vector = count_halves(scores, codes * 0, 1, 5)
    vector += np.random.default_rng(0).normal(size=vector.shape)
    moved = maps_of_halves(vector, 1, 5, 1.0).transport(scores, codes * 0)
    np.testing.assert_allclose(moved, scores, atol=1e-12)


def coverage(noise_scale, stated, n=60, repeats=2000):
    rng = np.random.default_rng(5)
    held = 0
    for _ in range(repeats):
        outcomes = (rng.uniform(size=n) < 0.3).astype(float)
        sums = outcome_sums(outcomes, np.zeros(n, dtype=int), 1)
        table = mean_intervals(sums + noise_scale * rng.normal(size=2), stated, ["all"])
        held += table["low"].iloc[0] <= 0.3 <= table["high"].iloc[0]
    return held / repeats


@pytest.mark.slow
def test_intervals_hold_the_mean_of_the_population():
    assert coverage(8.0, 8.0) > 0.95 - 5 * np.sqrt(0.95 * 0.05 / 2000)
    assert coverage(8.0, 8.0) < 0.99
    assert coverage(8.0, 1.0) < 0.9


def test_of_a_group_that_noise_hides_nothing_is_said():
    table = mean_intervals(np.array([-20.0, 300.0, 5.0, 700.0]), 30.0, [("a", 1), ("b", 2)])
    assert table.index.tolist() == [("a", 1), ("b", 2)]
    assert (table.loc[[("a", 1)], "high"] - table.loc[[("a", 1)], "low"]).iloc[0] > 0.9
    assert table["mean"].between(table["low"], table["high"]).all()
    assert table["n_rows"].tolist() == [-15.0, 1000.0]
