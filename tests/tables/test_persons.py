"""Persons with several rows: what they change in all that is let out, and what they are told."""

import itertools
import math
import pickle

import numpy as np
import pandas as pd
import pytest
from sampler_tables import (
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

from sklearn_dpgen.ledger._unit import Persons
from sklearn_dpgen.schema import Categorical, Identifier, Schema
from sklearn_dpgen.tables import _records, _table_counter, _table_sampler
from sklearn_dpgen.tables._marginals import Marginal
from sklearn_dpgen.tables._records import RecordCodes, StoredRecords
from sklearn_dpgen.tables._releases import release_marginals, scores
from sklearn_dpgen.tables._table_counter import WHOLE, weights_of

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
    Marginal((0,), (np.arange(2),)),
    Marginal((1,), (np.arange(2),)),
    Marginal((0, 1), (np.arange(2), np.arange(2))),
]


def persons_of(n_rows):
    """Return all persons with so many rows, as tuples of cells."""
    return itertools.combinations_with_replacement(CELLS, n_rows)


def stored(rows, owners, weights, sizes=(2, 2)):
    """Return rows, of whom owners tell, as a fit holds them."""
    columns = list(np.array(rows, dtype=np.uint8).T)
    records = RecordCodes(columns, list(sizes), Persons(np.array(owners)))
    return StoredRecords(records, K if weights == "rows" else None)


def released(rows, weights):
    """Return the vector that is released, and the scores, of one person with others."""
    owners = [*range(len(OTHERS)), *[len(OTHERS)] * len(rows)]
    tables, found = stored([*OTHERS, *rows], owners, weights).marginal_counts(SLICES), []
    release_marginals(tables, np.array([1.0, 2.0, 0.5]), lambda v: found.append(v) or v)
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
    assert vector == pytest.approx(weight_of(weights) * most(neighbours), abs=1e-6)
    # And never exceeded, be it by rounding.
    assert vector <= weight_of(weights) * most(neighbours) * (1 + 1e-12)
    assert score <= weight_of(weights) * most_of_scores(neighbours) + 1e-12


# Weights that let a person count for more.


def each_row_counts(n_rows, most=None):
    return np.full(len(n_rows), WHOLE)


def rounded_up(n_rows, most=None):
    return np.minimum(-(-(1 if most is None else most) * WHOLE // n_rows), WHOLE)


def of_another_pass(n_rows, most=None):
    """Of a pass that saw two rows of a person, or as many as are left."""
    return weights_of(np.minimum(n_rows, 2), most)


def limit_forgotten(n_rows, most=None):
    return weights_of(n_rows, None if most is None else 2 * most)


def weigh_by(monkeypatch, broken):
    for module in (_records, _table_counter):
        monkeypatch.setattr(module, "weights_of", broken)


BROKEN = [
    (each_row_counts, "equal", 5),
    (each_row_counts, "rows", 5 / K),
    (of_another_pass, "equal", 2.5),
    (of_another_pass, "rows", 5 / K),
    (limit_forgotten, "rows", 5 / K),
]
broken_weights = pytest.mark.parametrize(("broken", "weights", "excess"), BROKEN)


@relations
@broken_weights
def test_persons_that_change_more_would_be_seen(monkeypatch, neighbours, broken, weights, excess):
    weigh_by(monkeypatch, broken)
    vector, _ = largest_changes(weights, 5)[neighbours]
    assert vector == pytest.approx(excess * weight_of(weights) * most(neighbours))


@relations
@weightings
def test_weights_that_are_rounded_up_would_be_seen(monkeypatch, neighbours, weights):
    weigh_by(monkeypatch, rounded_up)
    vector, _ = largest_changes(weights, 5)[neighbours]
    assert vector > weight_of(weights) * most(neighbours) * (1 + 1e-9)


SIZES = np.array([1, 2, 3, 5, 7, 36, 49, 1000, 10**6, WHOLE, WHOLE + 1])


@weightings
def test_the_rows_of_a_person_weigh_the_bound_at_most(weights):
    k = weight_of(weights)
    found = weights_of(SIZES, K if weights == "rows" else None)
    assert found.dtype == np.int64
    assert (found <= WHOLE).all()
    # In integers, nothing is rounded but the weights, down, by less than one each.
    assert (found * SIZES <= k * WHOLE).all()
    assert (found * SIZES > np.minimum(SIZES, k) * WHOLE - SIZES).all()
    assert found[0] == WHOLE
    assert (rounded_up(SIZES, k) * SIZES > k * WHOLE).any()
    assert (weights_of(SIZES, 10**30) == WHOLE).all()


def test_sums_of_weights_are_the_same_in_any_order():
    """To the last bit: those of 1 / m as it is are not."""
    owners = np.repeat(np.arange(7), [1, 2, 3, 5, 7, 36, 49])
    rows, shares = np.zeros((len(owners), 2), dtype=np.uint8), 1 / np.repeat(*[[1, 2, 3, 5, 7]] * 2)
    rng, whole = np.random.default_rng(0), stored(rows, owners, "equal").marginal_counts(SLICES)
    for _ in range(5):
        again = stored(rows, rng.permutation(owners), "equal").marginal_counts(SLICES)
        assert [table.tolist() for table in again] == [table.tolist() for table in whole]
    plain = {np.bincount(np.zeros(18, int), rng.permutation(shares))[0] for _ in range(20)}
    assert len(plain) > 1


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


CHOICES = [{}, {"n_bins": "auto"}, AUTO, AUTO | {"store": "none"}]


@relations
@weightings
@pytest.mark.parametrize("options", CHOICES, ids=["pairs", "found bins", "auto", "streamed"])
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


@pytest.mark.slow
@relations
@broken_weights
@pytest.mark.parametrize("store", ["codes", "none"])
def test_persons_that_change_more_of_a_fit_would_be_seen(
    monkeypatch, neighbours, broken, weights, excess, store
):
    afford(monkeypatch)
    weigh_by(monkeypatch, broken)
    _, vectors, moved = changes(neighbours, weights, AUTO | {"store": store})
    bound = weight_of(weights)
    assert min(vectors) > 0.99 * excess * bound * most(neighbours)
    assert max(moved) > 1.2 * bound * most_of_scores(neighbours)


@weightings
def test_a_person_weighs_the_same_in_all_releases(monkeypatch, weights):
    """Of two equal columns all rows are in the diagonal, and weigh what they weigh in each."""
    codes = np.arange(9000) % 5
    frame = pd.DataFrame({"a": codes, "b": codes, "who": np.arange(9000) // 6})
    schema = Schema({name: Categorical(range(5)) for name in "ab"})
    total = 1500.0 * weight_of(weights)

    def pairs():
        limit = K if weights == "rows" else None
        sampler = make(np.inf, schema=schema, unit="who", unit_weights=weights, max_rows=limit)
        singles, *_, pair = listen(sampler, frame).steps
        assert singles.value.sum() == pytest.approx(math.sqrt(2) * total, rel=1e-6)
        return pair.value.reshape(5, 5)

    assert np.trace(pairs()) == pytest.approx(pairs().sum()) == pytest.approx(total, rel=1e-6)

    # Of another pass: rows are counted as they are met.
    use_blocks = StoredRecords.use_blocks

    def weigh_again(self, maps):
        use_blocks(self, maps)
        self._weights = weights_of(np.arange(9000) % 6 + 1, K if weights == "rows" else None)

    monkeypatch.setattr(StoredRecords, "use_blocks", weigh_again)
    assert pairs().sum() > 1.2 * total


def test_every_person_counts_once_or_with_every_row():
    """A person of 100 rows beside 99 persons of one, without noise."""
    frame = pd.DataFrame({"a": [1] * 100 + [0] * 99, "who": [0] * 100 + list(range(1, 100))})
    schema = Schema({"a": Categorical([0, 1])})
    options = {"schema": schema, "marginals": "auto", "unit": "who"}
    for weights, expected in (
        ({}, [99, 1]),
        ({"unit_weights": "rows", "max_rows": 7}, [99, 7]),
    ):
        sampler = make(np.inf, **options, **weights).fit(frame)
        assert sampler.one_way_marginals_[0].counts == pytest.approx(expected, abs=2e-5)
        assert sampler.n_records_ == pytest.approx(sum(expected), abs=2e-5)


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
    streamed = person_sampler(weights, store="none")
    for source in (frame, next(sources(frame))):
        assert same(fit, streamed.fit(source))
    # Chunk by chunk there would be more persons.
    counted = sum(part["who"].nunique() for part in [frame.iloc[:100], frame.iloc[100:]])
    assert counted > frame["who"].nunique()


@weightings
def test_who_a_row_is_of_goes_nowhere(monkeypatch, weights):
    monkeypatch.setattr(_table_sampler, "_MOST", 4096)
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


@pytest.mark.parametrize("store", ["codes", "none"])
def test_an_identifier_of_the_schema_may_be_the_unit(store):
    """Person 0 has 100 rows of a = 1, and counts once; the twin counts rows."""
    frame = pd.DataFrame({"who": [0] * 100 + list(range(1, 100)), "a": [1] * 100 + [0] * 99})
    schema = Schema({"who": Identifier(), "a": Categorical([0, 1])})
    for unit, expected in (("who", [99, 1]), (None, [99, 100])):
        sampler = make(np.inf, schema=schema, marginals="auto", unit=unit, store=store).fit(frame)
        (found,) = (part.counts for part in sampler.one_way_marginals_ if len(part.counts) == 2)
        assert found == pytest.approx(expected, abs=2e-5)
        assert sampler.n_records_ == pytest.approx(sum(expected), abs=2e-5)
        assert sampler.sample(3)["who"].tolist() == [0, 1, 2]
        assert sampler.score(frame) == sampler.score(frame.assign(who=-1))


def test_what_is_no_unit_is_refused():
    frame = of_persons(LOW, K)
    with pytest.raises(ValueError, match=r"unit='age' is a column of the schema"):
        make(unit="age").fit(frame)
    with pytest.raises(ValueError, match="unit must be a column of X, got 'whom'"):
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
        ({"max_rows": 3}, "unit must be given"),
        ({"unit_weights": "rows"}, "unit must be given"),
        ({"unit": "who", "unit_weights": "rows"}, "max_rows must bound"),
        ({"unit": "who", "max_rows": 3}, "max_rows must be None"),
    ):
        sampler = make(**options)
        for call in (lambda s=sampler: s.plan(100), lambda s=sampler: s.fit(frame)):
            with pytest.raises(ValueError, match=message):
                call()
