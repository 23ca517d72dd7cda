"""Which marginals are measured: scores, and rounds of selections."""

import itertools
import math
from functools import partial

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from measured_tables import (
    PAIRS,
    SIZES,
    blocks_of,
    cells_of,
    measurements_of,
    records,
    reproducibly,
    whole,
)
from numpy.testing import assert_allclose, assert_array_equal
from sampler_tables import Constant

from sklearn_dpgen.tables import _releases
from sklearn_dpgen.tables._marginals import Marginal, marginal_counts
from sklearn_dpgen.tables._privacy_plan import MarginalsPlan, Round, affordable_cells, plan_rounds
from sklearn_dpgen.tables._releases import Measurements, measure_rounds, scores

TABLES = whole(*PAIRS)
PAIRS = tuple(PAIRS)
TRIPLES = tuple(itertools.combinations(range(5), 3))
HALF_NORMAL = math.sqrt(2 / math.pi)

# Scores.


def change_of_scores(codes, others, weights, score=scores):
    expected = [np.full(part.shape, 1.7) for part in TABLES]
    both = [score(marginal_counts(c, TABLES), expected, weights, 3.0) for c in (codes, others)]
    return np.abs(both[0] - both[1]).max()


@reproducibly
@given(st.integers(0, 2**32 - 1), st.integers(1, 40))
def test_scores_change_by_one_at_most(seed, n):
    codes = records(n + 1, seed, SIZES)
    fewer, weights = [column[1:] for column in codes], np.linspace(0.1, 1, 10)
    assert change_of_scores(codes, fewer, weights) <= 1 + 1e-9
    other = [column[:-1] for column in codes]
    assert change_of_scores(other, fewer, weights) <= 2 + 1e-9


@reproducibly
@given(st.integers(0, 2**32 - 1), st.sampled_from([-50.0, 0.0, 1.7, 1e9]))
def test_scores_change_by_one_whatever_is_expected(seed, level):
    """However far a fit is from its end, or from the records: what is expected is public."""
    codes, rng = records(21, seed, SIZES), np.random.default_rng(seed)
    expected = [level + rng.normal(0, 5, part.shape) for part in TABLES]
    fewer = [column[1:] for column in codes]
    other = [np.append(column[1:], column[:1] * 0) for column in codes]
    with_one, without, replaced = (
        scores(marginal_counts(c, TABLES), expected, np.ones(10), 3.0)
        for c in (codes, fewer, other)
    )
    assert np.abs(with_one - without).max() <= 1 + 1e-5
    assert np.abs(with_one - replaced).max() <= 2 + 1e-5
    # The negative twin: expectations that move with the records add to the change.
    both = [marginal_counts([column * 0 for column in c], TABLES) for c in (codes, fewer)]
    moved = [scores(tables, [4 * t for t in tables], np.ones(10), 0.0) for tables in both]
    assert np.abs(moved[0] - moved[1]).max() > 2


def test_scores_of_the_worst_neighbours():
    """The bounds are attained, and the square of a distance has none."""
    weights, far = np.ones(10), [np.full(4000, size - 1) for size in SIZES]
    with_one = [np.append(column, 0) for column in far]
    moved = [np.append(column[1:], 0) for column in far]
    exact = marginal_counts(far, TABLES)
    known = [HALF_NORMAL * np.sqrt(9 + table).sum() for table in exact]
    assert_allclose(scores(exact, exact, weights, 3.0), np.negative(known))
    added = scores(marginal_counts(with_one, TABLES), exact, weights, 3.0)
    assert_allclose(added + known, 1)
    replaced = scores(marginal_counts(moved, TABLES), exact, weights / 2, 3.0)
    assert_allclose(2 * replaced + known, 2)

    def squares(*args):
        return scores(*args) ** 2

    fewer = [column[1:] for column in far]
    assert change_of_scores(far, fewer, weights) <= 1 + 1e-9
    assert change_of_scores(far, fewer, weights, squares) > 1000
    assert change_of_scores(far, fewer, 2 * weights) > 1.5


def test_scores_are_distances_beyond_noise_and_chance():
    rng = np.random.default_rng(0)
    expected = [rng.uniform(5, 90, size=part.shape) for part in TABLES]
    weights = rng.uniform(0.1, 1, size=10)
    far = [e + rng.choice([-50, 50], size=e.shape) for e in expected]
    found = scores(far, expected, weights, 4.0)
    assert found.dtype == np.float64
    sums = [50 * e.size - HALF_NORMAL * np.sqrt(16 + e).sum() for e in expected]
    assert_allclose(found, weights * sums)
    # Of tables that are as expected, but for noise, the mean is zero.
    draws = [
        scores([rng.normal(e, np.sqrt(16 + e)) for e in expected], expected, weights, 4.0)
        for _ in range(400)
    ]
    spread = weights * [math.sqrt((1 - 2 / math.pi) * (16 + e).sum() / 400) for e in expected]
    assert (np.abs(np.mean(draws, axis=0)) < 5 * spread).all()
    assert scores([], [], np.ones(0), 1.0).shape == (0,)


# Rounds.


class StubRun:
    """A run without noise, and its log."""

    def __init__(self):
        self.log = []

    def release(self, vector, source):
        self.log.append(("release", vector.copy(), source))
        return vector.copy()

    def select(self, found, source, *, count):
        self.log.append(("select", found.copy(), source))
        return np.argsort(-found, kind="stable")[:count]


def weigh(columns):
    return 1.0 + columns[0] + 0.25 * columns[-1]


def rounds_of(rounds, *, n=50_000, epsilon=8.0, weight=lambda columns: 1.0, run=None, noise=None):
    """Run rounds; return codes, the plan, what was measured, the log, predictions and noise."""
    codes = records(n, 3, SIZES)
    codes[4] = codes[0] + codes[1]  # dependent columns
    plan = MarginalsPlan(epsilon, 1e-5, "replace_one", rounds)
    measured, asked = measurements_of(codes), []
    run = StubRun() if run is None else run

    def predict(marginals):
        asked.append(([part.columns for part in marginals], len(measured.marginals)))
        return measured.independent(marginals)

    measure_rounds(
        partial(marginal_counts, codes),
        plan,
        weight,
        measured,
        predict=predict,
        run=run,
        noise=noise,
    )
    return codes, plan, measured, run, asked


def run_planned(rounds, *, n, sizes):
    """Return what rounds measure without noise, of independent columns of these sizes."""
    codes = records(n, sizes=sizes)
    cells = cells_of(codes, sizes)
    names = list("abcdefghij")[: len(sizes)]
    measured = Measurements(names, cells, float(n), blocks_of(cells))
    plan = MarginalsPlan(1.0, 1e-5, "replace_one", rounds)
    options = {"predict": measured.independent, "run": StubRun(), "noise": None}
    measure_rounds(partial(marginal_counts, codes), plan, lambda columns: 1.0, measured, **options)
    return measured


def columns_of(measured):
    return [table.columns for table in measured.tables]


ROUNDS = {
    "all": (Round(PAIRS, 0.8),),
    "one": (Round(PAIRS, 0.8, 1),),
    "three": (
        Round(PAIRS, 0.3, 3),
        Round(PAIRS, 0.3, 2),
        Round(PAIRS, 0.2, 4),
    ),
    "targets": (Round(PAIRS[:4], 0.4), Round(PAIRS[4:], 0.4)),
    "triples": (Round(PAIRS, 0.5), Round(TRIPLES, 0.3, 4)),
    "all of them": (Round(PAIRS, 0.4, 6), Round(PAIRS, 0.4, 9)),
}


@pytest.mark.parametrize("weight", [lambda columns: 1.0, weigh], ids=["even", "weighed"])
@pytest.mark.parametrize("name", ROUNDS)
def test_what_is_selected_is_what_is_released(name, weight):
    rounds = ROUNDS[name]
    codes, plan, measured, run, asked = rounds_of(rounds, weight=weight)
    chosen, done, events = columns_of(measured), [], iter(run.log)
    assert len(chosen) == len(set(chosen))
    for scale, part in zip(plan.mechanism.noise_scales[1:], rounds, strict=True):
        left = [columns for columns in part.candidates if columns not in done]
        count = min(part.n_tables, len(left))
        order = left
        if count < len(left):
            kind, found, _ = next(events)
            assert kind == "select"
            # Predicted are those that are left, by all that was measured before.
            assert asked.pop(0) == (left, len(done))
            weights = np.array([weight(columns) for columns in left])
            even = _releases.affordable_cells(50_000, scale * math.sqrt(count))
            marginals = [measured.blocks.marginal(columns, even) for columns in left]
            tables = marginal_counts(codes, marginals), measured.independent(marginals)
            # Expectations moved since, by what was measured: not by much.
            expected = scores(*tables, weights / weights.max(), scale * math.sqrt(count))
            assert_allclose(found, expected, atol=2.0)
            order = [left[i] for i in np.argsort(-found, kind="stable")[:count]]
            # What is chosen was predicted again, in the groups of its release.
            assert asked.pop(0) == (order, len(done))
        kind, vector, _ = next(events)
        assert kind == "release"
        assert chosen[len(done) : len(done) + count] == order
        # Of norm one a record, and with the noise that is stated.
        inverse = np.array([weight(columns) for columns in order])
        inverse = inverse / np.linalg.norm(inverse)
        scaled = []
        for w, kept, table in zip(
            inverse, measured.marginals[len(done) :], measured.tables[len(done) :], strict=False
        ):
            (exact,) = marginal_counts(codes, [Marginal(table.columns, table.groups)])
            assert_allclose(kept.counts, exact, rtol=1e-9, atol=1e-9)
            assert kept.noise_scale * w == pytest.approx(scale)
            scaled.append(w * exact.ravel())
        assert_allclose(vector, np.concatenate(scaled), rtol=1e-9)
        done += order
    assert next(events, None) is None
    assert not asked


def test_scores_are_of_tables_as_fine_as_they_would_be_measured(monkeypatch):
    found, find = [], _releases._all_scores

    def watch(count, marginals, *args):
        found.extend((part.columns, part.shape) for part in marginals)
        return find(count, marginals, *args)

    monkeypatch.setattr(_releases, "_all_scores", watch)
    for count in (1, 4):
        measured = run_planned((Round(PAIRS, 0.8, count),), n=4000, sizes=[12] * 5)
        scored, found[:] = dict(found), []
        assert len(measured.tables) == count
        for table in measured.tables:
            assert table.shares.shape == scored[table.columns]
            assert table.shares.size < 12 * 12


def test_candidates_that_are_all_left_need_no_selection():
    for name, kinds in (
        ("all", ["release"]),
        ("targets", ["release", "release"]),
        ("all of them", ["select", "release", "release"]),
        ("triples", ["release", "select", "release"]),
    ):
        *_, run, asked = rounds_of(ROUNDS[name])
        assert [event[0] for event in run.log] == kinds
        assert len(asked) == 2 * kinds.count("select")


@pytest.mark.parametrize("name", ["targets", "triples"])
def test_what_noise_would_drown_is_not_measured(name):
    """The first tables are measured once more, which have had less noise: none is left over."""
    few = {"n": 60, "epsilon": 1.0}
    *_, measured, run, asked = rounds_of(ROUNDS[name], **few)
    first = list(ROUNDS[name][0].candidates)
    assert columns_of(measured) == [*first, *first]
    assert [event[0] for event in run.log] == ["release", "release"]
    assert not asked
    # Not those of the round before, of which less is known.
    rounds = Round(PAIRS[:4], 0.001), Round(PAIRS[4:6], 0.899), Round(PAIRS[6:], 0.001)
    *_, measured, _, _ = rounds_of(rounds, n=2000, epsilon=1.0)
    assert columns_of(measured) == [*PAIRS[:6], *PAIRS[:4]]
    # One is selected, however few records there are.
    *_, measured, run, _ = rounds_of(ROUNDS["three"], **few)
    assert len(set(columns_of(measured))) == 1
    assert [event[0] for event in run.log] == ["select", *["release"] * 3]
    # With some more records, more of them.
    sizes = []
    for n in (600, 2000, 6000, 20_000):
        *_, measured, _, _ = rounds_of(ROUNDS["three"], n=n, epsilon=1.0)
        sizes.append(len(set(columns_of(measured))))
    assert sizes == sorted(sizes)
    assert sizes[-1] == 9


@pytest.mark.parametrize(("n", "sizes"), [(700, {3}), (20_000, {3, 4})])
def test_few_records_select_among_triples_alone(monkeypatch, n, sizes):
    """Sampling alone leaves no 32 cells of 36 records: 700 records afford eight."""
    scored, find = set(), _releases._all_scores

    def watch(count, marginals, *args):
        scored.update(len(part.columns) for part in marginals)
        return find(count, marginals, *args)

    monkeypatch.setattr(_releases, "_all_scores", watch)
    candidates = (*TRIPLES, *itertools.combinations(range(5), 4))
    rounds = Round(PAIRS, 0.4), Round(candidates, 0.4, 2)
    *_, measured, run, _ = rounds_of(rounds, n=n)
    assert scored == sizes
    assert [event[0] for event in run.log] == ["release", "select", "release"]


def test_repeated_marginals_have_the_groups_that_their_rounds_afford_together():
    rounds = Round(PAIRS[:4], 0.02), Round(PAIRS[4:6], 0.9), Round(PAIRS[6:], 0.02)
    _, plan, measured, _, _ = rounds_of(rounds, n=4000, epsilon=1.0)
    assert columns_of(measured) == [*PAIRS[:6], *PAIRS[:4]]
    first, other, last = plan.mechanism.noise_scales[1:]

    def shapes(pairs, scale):
        n_cells = affordable_cells(4000, scale * np.sqrt(len(pairs)))
        return [measured.blocks.marginal(columns, n_cells).shape for columns in pairs]

    found = [table.shares.shape for table in measured.tables]
    together = shapes(PAIRS[:4], (first**-2 + last**-2) ** -0.5)
    assert found == [*together, *shapes(PAIRS[4:6], other), *together]
    # Negative twins: the groups that the first round affords alone, and those of all rounds.
    assert together != shapes(PAIRS[:4], first)
    assert together != shapes(PAIRS[:4], (first**-2 + other**-2 + last**-2) ** -0.5)


@pytest.mark.parametrize("n", [4050, 4150, 4250, 4350, 5000])
def test_what_is_planned_for_a_public_number_is_measured(n):
    """The others of few records too, after the pairs of a target that take a part of theirs."""
    scale = MarginalsPlan(1.0, 1e-5, "replace_one", ()).noise_scale
    options = {"marginals": "auto", "targets": [0], "n_records": n, "noise_scale": scale}
    rounds = plan_rounds(10, **options)
    planned = [(len(part.candidates), part.n_selected) for part in rounds[:2]]
    assert planned == [(9, None), (36, None)]
    measured = run_planned(rounds, n=n, sizes=[2] * 10)
    found = columns_of(measured)
    assert found[:45] == [*rounds[0].candidates, *rounds[1].candidates]
    # Then interactions, as many as are planned, and pairs again.
    interactions = [columns for columns in found[45:] if len(columns) > 2]
    assert len(interactions) == sum(part.n_tables for part in rounds[2:])


def test_tables_are_as_fine_as_their_noise_lets_them_be():
    sizes = []
    for n in (300, 3000, 30_000):
        *_, measured, _, _ = rounds_of(ROUNDS["all"], n=n, epsilon=1.0)
        sizes.append(sum(part.counts.size for part in measured.marginals))
    assert sizes == sorted(sizes)
    assert sizes[0] == 4 * 10 < sizes[-1]
    # A table of more weight has less noise, and is finer.
    weight = {(2, 4): 30.0}
    *_, plain, _, _ = rounds_of(ROUNDS["all"], n=1000, epsilon=1.0)
    *_, weighed, _, _ = rounds_of(
        ROUNDS["all"], n=1000, epsilon=1.0, weight=lambda columns: weight.get(columns, 1.0)
    )
    place = PAIRS.index((2, 4))
    assert weighed.marginals[place].counts.size > plain.marginals[place].counts.size


def test_repeated_marginals_have_the_groups_that_all_their_rounds_afford():
    # At 900 records, three triples are not affordable, so that the pairs of (0,) are repeated.
    rounds = (Round(((0, 2), (0, 4)), 0.3), Round(TRIPLES, 0.5))
    _, plan, measured, _, _ = rounds_of(rounds, n=900, epsilon=1.0)
    assert columns_of(measured) == [(0, 2), (0, 4)] * 2
    scales = np.array(plan.mechanism.noise_scales[1:]) * math.sqrt(2)
    together = (scales**-2.0).sum() ** -0.5
    for columns, first, again in zip(
        [(0, 2), (0, 4)], measured.marginals[:2], measured.marginals[2:], strict=True
    ):
        for own, other in zip(first.groups, again.groups, strict=True):
            assert_array_equal(own, other)
        sizes = [
            measured.blocks.marginal(columns, _releases.affordable_cells(900, scale)).n_cells
            for scale in (together, *scales)
        ]
        assert first.counts.size == again.counts.size == sizes[0]
        # Each round alone would have fewer.
        assert max(sizes[1:]) < sizes[0]
    # A round of its own is not mixed with others.
    _, _, alone, _, _ = rounds_of(rounds[:1], n=900, epsilon=1.0)
    *_, enough, _, _ = rounds_of(rounds, n=500_000, epsilon=1.0)
    assert len(columns_of(alone)) == 2
    assert columns_of(enough)[2:] == list(TRIPLES)


@pytest.mark.parametrize(("rare", "again"), [(0.05, True), (0.5, False)])
def test_pairs_of_a_target_with_a_rare_value_are_released_again(rare, again):
    """With the share of other pairs that its impurity asks for, in a vector of norm one."""
    n, sizes = 50_000, [2] * 5
    codes = records(n, sizes=sizes)
    codes[0] = (np.arange(n) < rare * n).astype(int)
    cells = cells_of(codes, sizes)
    measured = Measurements(list("abcde"), cells, float(n), blocks_of(cells))
    plan = MarginalsPlan(1.0, 1e-5, "replace_one", ROUNDS["targets"])
    run, options = StubRun(), {"predict": measured.independent, "noise": None, "targets": [0]}
    count = partial(marginal_counts, codes)
    measure_rounds(count, plan, lambda columns: 1.0, measured, run=run, **options)
    (_, first, _), (_, second, _) = run.log
    found = columns_of(measured)
    assert found == [*PAIRS, *PAIRS[: 4 * again]]
    assert (first.sum(), second.sum()) == pytest.approx(
        (
            n * 4 / 2,
            n * (math.sqrt(6 * (1 - 0.572)) + math.sqrt(4 * 0.572)) if again else n * 6**0.5,
        ),
        rel=1e-3,
    )
    # Two rounds with as much of the budget each: (.3 + .6 (1 - .19)) 2 - 1 = .572 of the second.
    share = 0.572 if again else 0.0
    scale = plan.mechanism.noise_scales[2]
    others = [one.noise_scale for one in measured.marginals[4:10]]
    np.testing.assert_allclose(others, scale / math.sqrt((1 - share) / 6), rtol=1e-3)
    repeated = [one.noise_scale for one in measured.marginals[10:]]
    np.testing.assert_allclose(repeated, scale / math.sqrt(max(share, 0.1) / 4), rtol=1e-3)


def test_without_slices_nothing_is_asked_for():
    *_, measured, run, asked = rounds_of(())
    assert (measured.marginals, run.log, asked) == ([], [], [])


@pytest.mark.parametrize("name", ROUNDS)
def test_a_real_run_is_used_up(name):
    """Every release has the scale that is stated for it, and no part of the budget is left."""
    plan = MarginalsPlan(8.0, 1e-5, "replace_one", ROUNDS[name])
    run = plan.mechanism.run()
    run.release(np.zeros(3), Constant(1.0))
    codes, _, measured, *_ = rounds_of(ROUNDS[name], run=run, noise=Constant(1.0))
    for part, table in zip(measured.marginals, measured.tables, strict=True):
        (exact,) = marginal_counts(codes, [Marginal(table.columns, table.groups)])
        assert_allclose(part.counts - exact, part.noise_scale, rtol=2e-3)
    with pytest.raises(RuntimeError):
        run.release(np.zeros(3), Constant(1.0))
    left = plan.n_selections - sum(
        part.n_selected for part in ROUNDS[name] if part.n_selected is not None
    )
    assert left == 0


@pytest.mark.parametrize("limits", [{"_BLOCK": 3}, {"_CELLS": 40}, {"_BLOCK": 2, "_CELLS": 99}])
def test_candidates_are_counted_in_parts(monkeypatch, limits):
    *_, whole_run, _ = rounds_of(ROUNDS["three"])
    for name, limit in limits.items():
        monkeypatch.setattr(_releases, name, limit)
    *_, run, _ = rounds_of(ROUNDS["three"])
    for one, two in zip(run.log, whole_run.log, strict=True):
        assert one[0] == two[0]
        assert_array_equal(one[1], two[1])


def test_as_many_candidates_as_fit_in_memory_are_counted_in_one_pass(monkeypatch):
    passes, marginals = [], whole(*PAIRS)
    cells = [part.n_cells for part in marginals]

    def zeros(parts):
        return [np.zeros(part.shape) for part in parts]

    def count(parts):
        passes.append([part.columns for part in parts])
        return zeros(parts)

    def found(limit):
        passes.clear()
        monkeypatch.setattr(_releases, "_CELLS", limit)
        scored = _releases._all_scores(count, marginals, np.ones(10), 1.0, zeros)
        assert scored.shape == (10,)
        assert sum(passes, []) == list(PAIRS)
        return len(passes)

    assert found(1 << 24) == 1
    assert found(1) == 10
    assert 2 <= found(sum(cells) // 3) <= 4
