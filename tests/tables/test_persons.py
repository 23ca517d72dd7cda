"""Persons with several rows: what they change in all that is let out, and what they are told."""

import itertools
import math
import pickle

import numpy as np
import pandas as pd
import pytest
from numpy.testing import assert_array_equal
from sliced_tables import (
    AUTO,
    HIGH,
    LOW,
    SCHEMA,
    WIDE_HIGH,
    afford,
    exact_delta,
    hasten,
    listen,
    make,
    most,
    most_of_scores,
    same,
    table,
    wide,
)

from sklearn_dpgen.budget._unit import Persons
from sklearn_dpgen.schema import Categorical, Schema
from sklearn_dpgen.tables import _pair_distances, _sliced_measure_sampler
from sklearn_dpgen.tables._persons import counted_rows
from sklearn_dpgen.tables._releases import release_slices
from sklearn_dpgen.tables._selection import scores
from sklearn_dpgen.tables._slices import Slice, slice_counts
from sklearn_dpgen.utils._random import NoiseSource

K = 3
X, WIDE_X = table(), wide()
relations = pytest.mark.parametrize("neighbours", ["replace_one", "add_or_remove"])
weightings = pytest.mark.parametrize("weights", ["equal", "rows"])
hasten = pytest.fixture(autouse=True)(hasten)


def weight_of(weights):
    """Return what all rows of a person count together, at most."""
    return K if weights == "rows" else 1


# By brute force: all persons of up to five rows in a table of four cells.

CELLS = list(itertools.product([0, 1], repeat=2))
OTHERS = [(0, 0), (1, 1), (0, 1)]
SLICES = [
    Slice((0,), (np.arange(2),)),
    Slice((1,), (np.arange(2),)),
    Slice((0, 1), (np.arange(2), np.arange(2))),
]


def persons_of(n_rows):
    """Return all persons with so many rows, as tuples of cells."""
    return itertools.combinations_with_replacement(CELLS, n_rows)


def released(rows, weights):
    """Return the vector that is released, and the scores, of one person with others."""
    records = np.array([*OTHERS, *rows])
    persons = Persons(np.array([*range(len(OTHERS)), *[len(OTHERS)] * len(rows)]))
    codes, weigh = counted_rows(
        list(records.T), persons, weights, K if weights == "rows" else None, NoiseSource()
    )
    tables, found = slice_counts(codes, SLICES, weigh), []
    release_slices(tables, np.array([1.0, 2.0, 0.5]), lambda v: found.append(v) or v)
    expected = [np.full(one.shape, 0.7) for one in tables]
    return found[0], scores(tables, expected, np.ones(3), 1.0)


def largest_changes(weights, limit):
    """Return the largest l2 change of the vector, and of a score, if a person comes or changes."""
    empty = released([], weights)
    sizes = range(1, limit + 1)
    found = [released(rows, weights) for n in sizes for rows in persons_of(n)]
    vectors = np.array([vector - empty[0] for vector, _ in found])
    told = np.array([score for _, score in found])
    gaps = np.linalg.norm(vectors[:, None] - vectors[None], axis=2)
    moved = np.abs(told[:, None] - told[None])
    return {
        "add_or_remove": (np.linalg.norm(vectors, axis=1).max(), np.abs(told - empty[1]).max()),
        "replace_one": (gaps.max(), moved.max()),
    }


@relations
@weightings
def test_no_person_changes_more_than_is_priced(neighbours, weights):
    vector, score = largest_changes(weights, 5)[neighbours]
    # Attained, by equal rows.
    assert vector == pytest.approx(weight_of(weights) * most(neighbours), abs=1e-7)
    assert score <= weight_of(weights) * most_of_scores(neighbours) + 1e-9


def forget_weights(columns, persons, unit_weights, max_rows, noise):
    return columns, None


def keep_all_rows(monkeypatch):
    monkeypatch.setattr(Persons, "limited", lambda self, *given: np.arange(len(self.codes)))


@relations
@weightings
def test_persons_that_change_more_would_be_seen(monkeypatch, neighbours, weights):
    if weights == "equal":
        monkeypatch.setitem(globals(), "counted_rows", forget_weights)
    else:
        keep_all_rows(monkeypatch)
    vector, _ = largest_changes(weights, 5)[neighbours]
    assert vector == pytest.approx(5 * most(neighbours))


@weightings
def test_weights_add_up_to_at_most_the_bound_without_rounding(weights):
    sizes = [1, 2, 3, 5, 7, 36, 49, 1000]
    persons = Persons(np.repeat(np.arange(len(sizes)), sizes))
    rows = [np.arange(len(persons.codes))]
    (kept,), found = counted_rows(
        rows, persons, weights, K if weights == "rows" else None, NoiseSource()
    )
    sums = np.bincount(persons.codes[kept], found)
    assert (sums <= weight_of(weights)).all()
    least = np.minimum(sizes, K) if weights == "rows" else 1 - 1e-4
    assert (sums >= least).all()
    if weights == "equal":
        # In any order the same, to the last bit: 1 / m as it is would not add up so.
        shuffled = np.random.default_rng(0).permutation(found)
        assert shuffled.sum() == found.sum()
        plain = 1 / np.repeat(sizes, sizes)
        assert np.random.default_rng(0).permutation(plain).cumsum()[-1] != plain.cumsum()[-1]


# In fits.


def of_persons(record, n_rows, is_wide=False):
    """Return rows of persons: person 0 has so many equal ones, the others one or two each."""
    frame = WIDE_X if is_wide else X
    rows = pd.DataFrame([record] * n_rows, columns=frame.columns).astype(frame.dtypes)
    frame = pd.concat([rows, frame.iloc[1:400]], ignore_index=True)
    ids = [f"secret-{max(0, i - n_rows + 1) // 2}" for i in range(len(frame))]
    return frame.assign(who=[*["first"] * n_rows, *ids[n_rows:]])


def person_sampler(weights, **options):
    limit = K if weights == "rows" else None
    return make(unit="who", unit_weights=weights, max_rows=limit, **options)


def changes(neighbours, weights, options, n_rows=K + 2):
    """Return a fit, and how much of it one person changes where the outputs before are equal."""
    is_wide = "schema" in options
    first = of_persons([*LOW, 0, 0, 0] if is_wide else LOW, n_rows, is_wide)
    other = of_persons(WIDE_HIGH if is_wide else HIGH, n_rows, is_wide)
    other = other if neighbours == "replace_one" else first[first["who"] != "first"]
    sampler = person_sampler(weights, neighbours=neighbours, **options)
    fit = listen(sampler, first)
    again = listen(person_sampler(weights, neighbours=neighbours, **options), other, fit.steps)
    vectors, moved = [], [0.0]
    for one, two in zip(fit.steps, again.steps, strict=True):
        change = two.value - one.value
        if one.kind == "release":
            vectors.append(np.linalg.norm(change))
        else:
            moved += [np.abs(change).max(), np.ptp(change) / 2]
    return fit, vectors, moved


CHOICES = [{}, {"n_bins": "auto"}, AUTO]


@relations
@weightings
@pytest.mark.parametrize("options", CHOICES, ids=["pairs", "found bins", "auto"])
def test_a_person_changes_each_release_by_what_is_priced(monkeypatch, neighbours, weights, options):
    afford(monkeypatch)
    fit, vectors, moved = changes(neighbours, weights, options)
    bound = weight_of(weights)
    assert vectors == pytest.approx([bound * most(neighbours)] * len(vectors), abs=1e-6)
    assert max(moved) <= bound * most_of_scores(neighbours) * (1 + 1e-9)
    # What the noise costs a person is the budget.
    mu = bound * most(neighbours)
    mu *= math.sqrt(sum(step.scale**-2.0 for step in fit.steps if step.kind == "release"))
    choices = [step for step in fit.steps if step.kind == "select"]
    reach = 2 * bound * most_of_scores(neighbours)
    epsilon0 = max([reach / step.scale for step in choices], default=1.0)
    n = sum(len(step.out) for step in choices)
    assert 0.98e-5 < exact_delta(8.0, mu, epsilon0, n) <= 1e-5 * (1 + 1e-3)


@relations
@weightings
def test_persons_that_change_more_of_a_fit_would_be_seen(monkeypatch, neighbours, weights):
    afford(monkeypatch)
    if weights == "equal":
        monkeypatch.setattr(_sliced_measure_sampler, "counted_rows", forget_weights)
    else:
        keep_all_rows(monkeypatch)
    _, vectors, moved = changes(neighbours, weights, AUTO)
    bound = weight_of(weights)
    assert min(vectors) > 1.5 * bound * most(neighbours)
    assert max(moved) > 1.2 * bound * most_of_scores(neighbours)


@weightings
def test_rows_are_drawn_once(monkeypatch, weights):
    """Of two equal columns no pair differs, but where each column has rows of its own."""
    codes = np.arange(9000) % 5
    frame = pd.DataFrame({"a": codes, "b": codes, "who": np.arange(9000) // 6})
    schema = Schema({name: Categorical(range(5)) for name in "ab"})

    def pairs():
        sampler = make(np.inf, schema=schema, unit="who", unit_weights=weights, max_rows=K)
        singles, *_, pair = listen(sampler, frame).steps
        total = 1500.0 * weight_of(weights)
        assert singles.value.sum() == pytest.approx(math.sqrt(2) * total, rel=1e-6)
        return pair.value.reshape(5, 5)

    assert np.diag(pairs()).sum() == pytest.approx(pairs().sum())

    def each_column(columns, persons, *given):
        drawn = [counted_rows([part], persons, *given[:-1], NoiseSource()) for part in columns]
        return [part for (part,), _ in drawn], drawn[0][1]

    monkeypatch.setattr(_sliced_measure_sampler, "counted_rows", each_column)
    assert np.diag(pairs()).sum() < 0.9 * pairs().sum()


def test_every_person_counts_once_or_with_every_row():
    """A person of 100 rows beside 99 persons of one, without noise."""
    frame = pd.DataFrame({"a": [1] * 100 + [0] * 99, "who": [0] * 100 + list(range(1, 100))})
    schema = Schema({"a": Categorical([0, 1])})
    options = {"schema": schema, "slices": "auto", "unit": "who"}
    for weights, expected in (
        ({}, [99, 1]),
        ({"max_rows": 7}, [99, 1]),
        ({"unit_weights": "rows", "max_rows": 7}, [99, 7]),
    ):
        sampler = make(np.inf, **options, **weights).fit(frame)
        assert sampler.marginals_[0].counts == pytest.approx(expected, abs=1e-5)
        assert sampler.n_records_ == pytest.approx(sum(expected), abs=1e-5)


# Where they come from.


def sources(frame):
    """Yield the same rows in chunks, and as a frame of dask."""
    yield [frame.iloc[:100], frame.iloc[100:250], frame.iloc[250:]]
    yield (frame.iloc[i : i + 90] for i in range(0, len(frame), 90))
    dask = pytest.importorskip("dask.dataframe")
    yield dask.from_pandas(frame, npartitions=3)


@weightings
def test_persons_are_told_across_chunks(weights):
    frame = of_persons(LOW, K + 2).sample(frac=1, random_state=0, ignore_index=True)
    fit = person_sampler(weights).fit(frame)
    for source in sources(frame):
        other = person_sampler(weights).fit(source)
        assert same(fit, other)
        assert fit.privacy_ == other.privacy_
    # Chunk by chunk there would be more persons.
    counted = sum(part["who"].nunique() for part in [frame.iloc[:100], frame.iloc[100:]])
    assert counted > frame["who"].nunique()


@weightings
def test_who_a_row_is_of_goes_nowhere(monkeypatch, weights):
    monkeypatch.setattr(_pair_distances, "_MOST", 4096)
    frame = of_persons(LOW, K + 2)
    sampler = person_sampler(weights).fit(frame)
    told = pickle.dumps(sampler) + sampler.privacy_.to_json().encode()
    assert b"secret-" not in told
    assert b"secret-" in pickle.dumps(frame)
    assert sampler.feature_names_in_.tolist() == list(SCHEMA)
    assert list(sampler.sample(3)) == list(SCHEMA)
    assert sampler.score(frame) == sampler.score(frame.drop(columns="who"))
    other = frame.assign(who=frame["who"].str.replace("secret", "other"))
    assert same(sampler, person_sampler(weights).fit(other))


def test_what_is_no_unit_is_refused():
    frame = of_persons(LOW, K)
    with pytest.raises(ValueError, match=r"unit='age' is a column of the schema"):
        make(unit="age").fit(frame)
    with pytest.raises(ValueError, match=r"lacks the column 'whom' that unit names"):
        make(unit="whom").fit(frame)
    with pytest.raises(ValueError, match=r"missing \['whom'\]"):
        make(unit="whom").fit([frame])
    with pytest.raises(TypeError, match="X must be a data frame"):
        make(unit="who").fit(frame.to_numpy())
    gaps = frame.assign(who=frame["who"].where(frame.index > 0))
    for source in (gaps, [gaps.iloc[:9], gaps.iloc[9:]]):
        with pytest.raises(ValueError, match="'who' of unit must name a person in every row"):
            make(unit="who").fit(source)
    for options, message in (
        ({"max_rows": 3}, "they need unit"),
        ({"unit_weights": "rows"}, "they need unit"),
        ({"unit": "who", "unit_weights": "rows"}, "needs max_rows"),
    ):
        sampler = make(**options)
        for call in (lambda s=sampler: s.plan(100), lambda s=sampler: s.fit(frame)):
            with pytest.raises(ValueError, match=message):
                call()


def test_a_draw_is_uniform_over_the_rows_of_a_person():
    codes = np.repeat([0, 1, 2], [2, 5, 9])
    noise, persons = NoiseSource(np.random.default_rng(0)), Persons(codes)
    drawn = np.zeros(len(codes))
    for _ in range(2000):
        (rows,), _ = counted_rows([np.arange(len(codes))], persons, "rows", K, noise)
        assert_array_equal(np.bincount(codes[rows]), [2, K, K])
        drawn[rows] += 1
    expected = np.repeat([1, K / 5, K / 9], [2, 5, 9])
    spread = np.sqrt(expected * (1 - expected) / 2000)
    assert (np.abs(drawn / 2000 - expected) <= 5 * spread).all()
