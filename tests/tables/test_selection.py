"""Which slices are measured: scores, and rounds of selections."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from measured_tables import (
    NAMES,
    PAIRS,
    SIZES,
    add_singles,
    records,
    reproducibly,
)
from numpy.testing import assert_allclose

from sklearn_dpgen.tables._measurements import Measurements
from sklearn_dpgen.tables._privacy_plan import SlicesPlan
from sklearn_dpgen.tables._selection import measure_rounds, scores
from sklearn_dpgen.tables._slices import slice_counts

# Scores.


def change_of_scores(codes, others, weights, score=scores):
    expected = [np.full([SIZES[i] for i in pair], 1.7) for pair in PAIRS]
    both = [score(slice_counts(c, SIZES, PAIRS), expected, weights) for c in (codes, others)]
    return np.abs(both[0] - both[1]).max()


@reproducibly
@given(st.integers(0, 2**32 - 1), st.integers(1, 40))
def test_scores_change_by_one_at_most(seed, n):
    codes = records(n + 1, seed, SIZES)
    fewer, weights = [column[1:] for column in codes], np.linspace(0.1, 1, 10)
    assert change_of_scores(codes, fewer, weights) <= 1 + 1e-12
    other = [column[:-1] for column in codes]
    assert change_of_scores(other, fewer, weights) <= np.sqrt(2) * (1 + 1e-12)


def test_scores_of_the_worst_neighbours():
    """The bounds are attained, and the square of a distance has none."""
    weights, far = np.ones(10), [np.full(4000, size - 1) for size in SIZES]
    with_one = [np.append(column, 0) for column in far]
    exact = slice_counts(far, SIZES, PAIRS)
    assert scores(exact, exact, weights).tolist() == [0.0] * 10
    added = slice_counts(with_one, SIZES, PAIRS)
    assert_allclose(scores(added, exact, weights), 1)
    replaced = slice_counts([np.append(column[1:], 0) for column in far], SIZES, PAIRS)
    assert_allclose(scores(replaced, exact, np.full(10, 0.5)), np.sqrt(2) / 2)

    def squares(tables, expected, weights):
        return scores(tables, expected, weights) ** 2

    fewer = [column[1:] for column in far]
    assert change_of_scores(far, fewer, weights) <= 1
    assert change_of_scores(far, fewer, weights, squares) > 1000
    assert change_of_scores(far, fewer, 2 * weights) > 1.5


def test_scores_are_distances():
    rng = np.random.default_rng(0)
    tables = [rng.normal(size=[SIZES[i] for i in pair]) for pair in PAIRS]
    expected = [rng.normal(size=table.shape) for table in tables]
    weights = rng.uniform(0.1, 1, size=10)
    found = scores(tables, expected, weights)
    squares = [((a - b) ** 2).sum() for a, b in zip(tables, expected, strict=True)]
    assert_allclose(found, weights * np.sqrt(squares))
    assert found.dtype == np.float64
    assert scores([], [], np.ones(0)).shape == (0,)


# Rounds.


class StubSource:
    def __init__(self, context):
        self.context = [np.array(part) for part in context]

    def key(self):
        return tuple(part.tobytes() for part in self.context)


class StubRun:
    """A run without noise, and its log."""

    def __init__(self):
        self.log = []

    def release(self, vector, source):
        self.log.append(("release", vector.copy(), source))
        return vector.copy()

    def select(self, distances, source, *, count):
        self.log.append(("select", distances.copy(), source))
        return np.argsort(-distances, kind="stable")[:count]


def rounds_of(rounds, slices=PAIRS, weights=None):
    """Run rounds; return what was measured, the log, predictions, noise, exact counts, the plan."""
    codes = records(500, 3, SIZES)
    codes[4] = codes[0] + codes[1]  # dependent columns
    exact = slice_counts(codes, SIZES, slices)
    weights = np.ones(len(slices)) if weights is None else weights
    plan = SlicesPlan(1.0, 1e-5, "replace_one", len(slices), rounds)
    measured, run, asked = Measurements(NAMES, SIZES, 500.0), StubRun(), []
    add_singles(measured, 1.0)

    def predict(columns):
        asked.append((list(columns), len(measured.slices)))
        return [np.full([SIZES[i] for i in part], 500 / len(SIZES)) for part in columns]

    sources = []

    def noise(*context):
        sources.append(StubSource(context))
        return sources[-1]

    measure_rounds(exact, slices, weights, plan, measured, predict=predict, run=run, noise=noise)
    return measured, run.log, asked, sources, exact, plan


def columns_of(measured):
    return [tuple(NAMES.index(name) for name in part.columns) for part in measured.slices[5:]]


def counts_of(rounds):
    """Return how many slices each event of the log is about."""
    counts, left = [], 10
    for count in rounds:
        counts += [count] * (1 + (count < left))
        left -= count
    return counts


@pytest.mark.parametrize(
    "rounds", [(10,), (1,), (2, 3), (1,) * 6, (3, 3, 2), (4, 6), (1,) * 10], ids=str
)
def test_what_is_selected_is_what_is_released(rounds):
    weights = np.linspace(3, 0.5, 10)
    measured, log, asked, _, exact, plan = rounds_of(rounds, weights=weights)
    chosen = columns_of(measured)
    assert len(chosen) == len(set(chosen)) == sum(rounds)
    assert measured.columns[5:] == chosen
    left, position, events = list(PAIRS), 0, iter(log)
    for number, count in enumerate(rounds):
        if count < len(left):
            kind, distances, _ = next(events)
            assert kind == "select"
            # Predicted are those that are left, by all that was measured before.
            assert asked.pop(0) == (left, 5 + position)
            tables = [exact[PAIRS.index(pair)] for pair in left]
            relative = np.array([weights[PAIRS.index(pair)] for pair in left]) / 3
            expected = [np.full(table.shape, 100.0) for table in tables]
            assert_allclose(distances, scores(tables, expected, relative))
            order = [left[i] for i in np.argsort(-distances, kind="stable")[:count]]
        else:
            order = left
        kind, vector, _ = next(events)
        assert kind == "release"
        parts = measured.slices[5 + position : 5 + position + count]
        assert [columns_of(measured)[position + i] for i in range(count)] == list(order)
        # Of norm one a record, and with the noise that is stated.
        inverse = np.array([weights[PAIRS.index(pair)] for pair in order])
        inverse = inverse / np.linalg.norm(inverse)
        tables = [exact[PAIRS.index(pair)] for pair in order]
        scaled = [w * table.ravel() for w, table in zip(inverse, tables, strict=True)]
        assert_allclose(vector, np.concatenate(scaled), rtol=1e-12)
        for part, w, table in zip(parts, inverse, tables, strict=True):
            assert_allclose(part.counts, table, rtol=1e-12)
            assert part.noise_scale * w == pytest.approx(plan.mechanism.noise_scales[number + 1])
        left = [pair for pair in left if pair not in order]
        position += count
    assert next(events, None) is None
    assert not asked
    # Selected is what was paid for.
    n_selected = sum(
        c for c, (kind, *_) in zip(counts_of(rounds), log, strict=True) if kind == "select"
    )
    assert n_selected == plan.n_selections


def test_the_last_round_takes_what_is_left_without_a_selection():
    for rounds, kinds in (
        ((10,), ["release"]),
        ((4, 6), ["select", "release", "release"]),
        ((4, 5), ["select", "release"] * 2),
    ):
        _, log, asked, *_ = rounds_of(rounds)
        assert [event[0] for event in log] == kinds
        assert len(asked) == kinds.count("select")


def test_without_slices_nothing_is_asked_for():
    measured, log, asked, sources, *_ = rounds_of((), slices=[])
    assert (log, asked, sources) == ([], [], [])
    assert len(measured.slices) == 5


def keys_are_new(sources):
    keys = [source.key() for source in sources]
    return len(set(keys)) == len(keys)


def test_noise_is_asked_for_anew():
    *_, sources, _, _ = rounds_of((3, 3, 4))
    assert len(sources) == 5
    assert keys_are_new(sources)
    assert not keys_are_new([*sources, StubSource(sources[0].context)])
    # Of equal tables in other rounds, and of equal vectors of other slices, too.
    same_tables = [(0, 1), (1, 0)]
    *_, sources, _, _ = rounds_of((1, 1), slices=same_tables)
    first, second = sources[1].context, sources[2].context
    assert first[0] != second[0]
    assert {tuple(first[2]), tuple(second[2])} == {*same_tables}
    # The noise is for the vector that is released.
    _, log, _, _, *_ = rounds_of((3, 3, 4))
    for _, given_vector, source in log:
        assert any(np.array_equal(part, given_vector) for part in source.context)


class Constant:
    """A noise source of which every draw is the same."""

    def __init__(self, value):
        self.value = value

    def normal(self, size):
        return np.full(size, self.value)

    def uniform(self, size):
        return np.full(size, 0.5)


@pytest.mark.parametrize("rounds", [(10,), (2, 3), (4, 6)], ids=str)
def test_a_real_run_is_used_up(rounds):
    """Every release has the scale that is stated for it, and no part of the budget is left."""
    exact = slice_counts(records(500, 3, SIZES), SIZES, PAIRS)
    plan = SlicesPlan(1.0, 1e-5, "replace_one", 10, rounds)
    measured, run = Measurements(NAMES, SIZES, 500.0), plan.mechanism.run()
    add_singles(measured, 1.0)
    run.release(np.zeros(3), Constant(1.0))
    measure_rounds(
        exact,
        PAIRS,
        np.linspace(0.5, 2, 10),
        plan,
        measured,
        predict=lambda columns: [np.zeros([SIZES[i] for i in part]) for part in columns],
        run=run,
        noise=lambda *context: Constant(1.0),
    )
    for part, columns in zip(measured.slices[5:], columns_of(measured), strict=True):
        errors = part.counts - exact[PAIRS.index(columns)]
        assert_allclose(errors, part.noise_scale, rtol=2e-3)
    with pytest.raises(RuntimeError):
        run.release(np.zeros(3), Constant(1.0))
    with pytest.raises(RuntimeError):
        run.select(np.zeros(3), Constant(1.0))
