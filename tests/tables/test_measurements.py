"""Tables that are released with noise: what a record adds, what is selected, what is kept."""

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.testing import assert_allclose, assert_array_equal

from sklearn_dpgen.tables._column_trees import ColumnTree
from sklearn_dpgen.tables._measurements import Measurements
from sklearn_dpgen.tables._privacy_plan import SlicesPlan
from sklearn_dpgen.tables._releases import release_singles, release_slices, total_records
from sklearn_dpgen.tables._selection import measure_rounds, scores
from sklearn_dpgen.tables._slices import all_pairs, slice_counts

reproducibly = settings(deadline=None, max_examples=40, derandomize=True)
SIZES = [3, 2, 4, 2, 5]
NAMES = ["a", "b", "c", "d", "e"]
PAIRS = all_pairs(5)
TREES = [
    ColumnTree(5000, nullable=True),
    ColumnTree(40),
    ColumnTree(7, is_flat=True),
    ColumnTree(12, nullable=True),
]


def records(n, seed=0, sizes=None):
    rng = np.random.default_rng(seed)
    sizes = [tree.n_values + tree.nullable for tree in TREES] if sizes is None else sizes
    return [rng.integers(size, size=n) for size in sizes]


class Seen:
    """A release without noise, that keeps what it is given."""

    def __init__(self):
        self.vectors = []

    def __call__(self, vector):
        self.vectors.append(vector.copy())
        return vector.copy()


def vector_of_singles(codes, weights, trees=TREES):
    seen = Seen()
    release_singles(codes, trees, weights, seen)
    (vector,) = seen.vectors
    return vector


def vector_of_slices(tables, weights):
    seen = Seen()
    release_slices(tables, weights, seen)
    (vector,) = seen.vectors
    return vector


# Single columns.


def test_exact_single_columns_come_back():
    codes, weights = records(300), np.array([1.0, 2.0, 0.5, 3.0])
    counts, factors = release_singles(codes, TREES, weights, Seen())
    for found, tree, column in zip(counts, TREES, codes, strict=True):
        assert_allclose(found, tree.counts(column), rtol=1e-12)
    # The noise of a column is in proportion to the inverse of its weight.
    assert_allclose(factors * weights, factors[0])
    levels = np.array([tree.n_levels for tree in TREES])
    assert levels.tolist() == [4, 2, 1, 1]
    assert (levels / factors**2).sum() == pytest.approx(1)


WEIGHTS = st.lists(st.floats(1e-6, 1e6), min_size=4, max_size=4).map(np.array)


@reproducibly
@given(WEIGHTS, st.integers(0, 2**32 - 1))
def test_a_record_adds_a_vector_of_norm_one(weights, seed):
    codes = records(6, seed)
    rows = [vector_of_singles([column[i : i + 1] for column in codes], weights) for i in range(6)]
    assert_allclose(np.linalg.norm(rows, axis=1), 1, rtol=1e-12)
    assert_allclose(vector_of_singles(codes, weights), np.sum(rows, axis=0), rtol=1e-9)
    replaced = [
        np.append(column[1:], new) for column, new in zip(codes, (5000, 3, 1, 12), strict=True)
    ]
    change = vector_of_singles(replaced, weights) - vector_of_singles(codes, weights)
    assert np.linalg.norm(change) <= np.sqrt(2) * (1 + 1e-12)


def test_a_tree_that_counts_each_level_at_full_weight_is_caught(monkeypatch):
    """What would be released, were the levels of a tree not paid for."""
    one = [column[:1] for column in records(1)]
    monkeypatch.setattr(ColumnTree, "n_levels", 1)
    assert np.linalg.norm(vector_of_singles(one, np.ones(4))) == pytest.approx(np.sqrt(2))


def test_the_noise_of_singles_is_what_the_factors_say():
    rng, n_draws = np.random.default_rng(0), 40
    codes, weights = records(50), np.array([1.0, 2.0, 0.5, 3.0])
    squares, exact = [], [tree.counts(c) for tree, c in zip(TREES, codes, strict=True)]
    for _ in range(n_draws):
        counts, factors = release_singles(
            codes, TREES, weights, lambda vector: vector + rng.normal(size=vector.shape)
        )
        squares.append([np.mean((a - b) ** 2) for a, b in zip(counts, exact, strict=True)])
    n_cells = np.array([tree.n_cells for tree in TREES])
    assert (
        np.abs(np.mean(squares, axis=0) / factors**2 - 1) < 5 * np.sqrt(2 / n_draws / n_cells)
    ).all()


# Slices.


@reproducibly
@given(st.lists(st.floats(1e-6, 1e6), min_size=1, max_size=10), st.integers(0, 2**32 - 1))
def test_released_slices(weights, seed):
    weights, slices = np.array(weights), [*PAIRS[:8], (0, 1, 2), (4, 2, 3)][: len(weights)]
    codes = records(5, seed, SIZES)
    tables = slice_counts(codes, SIZES, slices)
    found, factors = release_slices(tables, weights, Seen())
    for ours, theirs in zip(found, tables, strict=True):
        assert_allclose(ours, theirs, rtol=1e-12)
        assert ours.shape == theirs.shape
    assert_allclose(factors * weights, factors[0] * weights[0], rtol=1e-9)
    one = slice_counts([column[:1] for column in codes], SIZES, slices)
    assert np.linalg.norm(vector_of_slices(one, weights)) == pytest.approx(1)
    assert np.sum(1 / factors**2) == pytest.approx(1)


def test_the_noise_of_slices_is_what_the_factors_say():
    rng, n_draws = np.random.default_rng(0), 400
    tables, weights = slice_counts(records(60, sizes=SIZES), SIZES, PAIRS), np.arange(1.0, 11.0)
    squares = []
    for _ in range(n_draws):
        found, factors = release_slices(
            tables, weights, lambda vector: vector + 3 * rng.normal(size=vector.shape)
        )
        squares.append([np.mean((a - b) ** 2) for a, b in zip(found, tables, strict=True)])
    ratios = np.mean(squares, axis=0) / (3 * factors) ** 2
    spread = 5 * np.sqrt(2 / n_draws / np.array([table.size for table in tables]))
    assert (np.abs(ratios - 1) < spread).all()
    assert not (np.abs(ratios / 2 - 1) < spread).any()


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


# The number of records.


def test_the_number_of_records_is_estimated():
    codes, n_draws = records(900), 800
    rng, factors = np.random.default_rng(0), np.array([2.0, 1.0, 3.0, 8.0])
    exact = [tree.counts(c) for tree, c in zip(TREES, codes, strict=True)]
    assert total_records(exact, TREES, factors) == pytest.approx(900)
    variances = [tree.estimate(np.zeros(tree.n_cells))[2] for tree in TREES] * factors**2
    best = 1 / (1 / variances).sum()
    errors = []
    for _ in range(n_draws):
        noise = [f * rng.normal(size=len(c)) for f, c in zip(factors, exact, strict=True)]
        noisy = [a + b for a, b in zip(exact, noise, strict=True)]
        errors.append(total_records(noisy, TREES, factors) - 900)
    spread = 5 * np.sqrt(2 / n_draws)
    assert abs(np.mean(np.square(errors)) / best - 1) < spread
    assert abs(np.mean(errors)) < 5 * np.sqrt(best / n_draws)
    # The plain mean of the columns, or their best one, has more noise.
    assert best < 0.9 * variances.min()
    assert best < 0.5 * variances.mean() / 4
    assert total_records([-count for count in exact], TREES, factors) == 1.0


# What was measured.


def add_singles(measured, noise_scale):
    rng = np.random.default_rng(0)
    tables = [rng.normal(50, 9, size=size) for size in SIZES]
    spreads = [2.0, rng.uniform(1, 3, size=2), np.float64(1), 1.0, rng.uniform(1, 3, size=5)]
    measured.add([(i,) for i in range(5)], tables, spreads, noise_scale)
    return tables, spreads


@pytest.mark.parametrize("noise_scale", [4.0, 0.0])
def test_measurements(noise_scale):
    measured, rng = Measurements(NAMES, SIZES, 200.0), np.random.default_rng(1)
    tables, spreads = add_singles(measured, noise_scale)
    pairs = [(3, 1), (0, 4)]
    more = [rng.normal(20, 5, size=[SIZES[i] for i in pair]) for pair in pairs]
    measured.add(pairs, more, np.array([1.5, 0.5]), 2 * noise_scale)
    assert [part.columns for part in measured.slices[4:]] == [("e",), ("d", "b"), ("a", "e")]
    for part, table in zip(measured.slices, [*tables, *more], strict=True):
        assert_array_equal(part.counts, table)
    assert_allclose(measured.slices[1].noise_scale, noise_scale * spreads[1])
    assert measured.slices[5].noise_scale == 3 * noise_scale
    assert len(measured.singles) == 5
    for shares, table in zip(measured.singles, tables, strict=True):
        assert_allclose(shares, table / 200)
    assert measured.n_cells == sum(SIZES) + 4 + 15
    # The loss is the squared distance in variances, a cell; the variances are relative without.
    P = np.hstack([rng.dirichlet(np.ones(size), size=7) for size in SIZES])
    blocks = np.split(P, np.cumsum(SIZES)[:-1], axis=1)
    total = 0.0
    scales = [spread * (noise_scale or 1.0) for spread in spreads]
    for block, table, scale in zip(blocks, tables, scales, strict=True):
        total += (((200 * block.mean(axis=0) - table) / scale) ** 2).sum()
    for (i, j), table, spread in zip(pairs, more, (1.5, 0.5), strict=True):
        scale = spread * (2 * noise_scale or 1.0)
        total += (((200 * blocks[i].T @ blocks[j] / 7 - table) / scale) ** 2).sum()
    loss, _ = measured.loss(torch.device("cpu"))(torch.tensor(P.T.copy(), dtype=torch.float32))
    assert loss.item() == pytest.approx(total / measured.n_cells, rel=1e-5)


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
