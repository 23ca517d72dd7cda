"""Counts of scores and sums of outcomes by group: what a record can change, and what they say."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sklearn_dpgen.predictors._group_counts import (
    count_halves,
    group_sizes,
    maps_of_halves,
    maps_of_scores,
    mean_intervals,
    outcome_sums,
)

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
    assert np.median(differences) < 0.25
    # Taken at its word, the noise would be its law.
    bare = [largest_difference(noisy_maps(scores, codes, 20.0, 1e-6, seed=s)) for s in range(20)]
    assert np.median(bare) > 0.35


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


def coverage(noise_scale, stated, n=60, repeats=2000):
    rng = np.random.default_rng(5)
    held = 0
    for _ in range(repeats):
        outcomes = (rng.uniform(size=n) < 0.3).astype(float)
        sums = outcome_sums(outcomes, np.zeros(n, dtype=int), 1)
        table = mean_intervals(sums + noise_scale * rng.normal(size=2), stated, ["all"])
        held += table["low"].iloc[0] <= 0.3 <= table["high"].iloc[0]
    return held / repeats


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
