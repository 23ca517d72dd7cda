"""Audits of persons with all rows: the claim is attained, never exceeded, and faults are caught."""

import numpy as np
import pandas as pd
import pytest
from audit_cases import PersonCounts
from hypothesis import given, settings
from hypothesis import strategies as st

from sklearn_dpgen.auditing import audit
from sklearn_dpgen.auditing._pools import _LINK as LINK
from sklearn_dpgen.auditing._pools import LinkedTables, PersonPool, nasty_persons
from sklearn_dpgen.auditing._transcript import Transcript
from sklearn_dpgen.domains import Box
from sklearn_dpgen.evolution import PrivateSignedMeasureSampler
from sklearn_dpgen.evolution._voting_sampler import VotingSampler
from sklearn_dpgen.schema import Categorical, Numeric, RelationalSchema, Schema, Table
from sklearn_dpgen.tables import (
    RelationalSampler,
    TableSampler,
    _person_rows,
    _records,
    _table_counter,
)
from sklearn_dpgen.tables._table_counter import WHOLE

RNG = np.random.default_rng(0)
WHO = np.repeat(np.arange(30), np.arange(30) % 3 + 1)
FRAME = pd.DataFrame({"who": WHO, "cell": RNG.integers(0, 8, len(WHO))})
# Each person has one row in the first table, and 0 to 2 rows in the second one.
TABLES = {
    "patients": pd.DataFrame({"who": np.arange(30), "cell": RNG.integers(0, 4, 30)}),
    "visits": FRAME[FRAME["who"].duplicated()].assign(cell=lambda rows: 4 + rows["cell"] % 4),
}
DATA = {"one table": FRAME, "two tables": TABLES}
relations = pytest.mark.parametrize("neighbours", ["replace_one", "add_or_remove"])
data = pytest.mark.parametrize("data", DATA)


def audited(estimator, X=FRAME, y=None, **options):
    options = {"n_trials": 20, "random_state": 0, "confidence": 1 - 1e-6} | options
    return audit(estimator, X, y, **options)


@pytest.mark.slow
@relations
@data
@pytest.mark.parametrize("how", ["weights", "draw"])
def test_the_price_of_a_person_is_attained_and_not_exceeded(data, how, neighbours):
    result = audited(PersonCounts(how, neighbours), DATA[data])
    assert not result.is_violation, result.to_text()
    assert 0.99 < result.ratio <= 1
    words = {"replace_one": "one person replaced", "add_or_remove": "one person removed"}
    assert words[neighbours] in result.neighbours


@pytest.mark.slow
@relations
@data
def test_rows_that_count_without_being_priced_are_caught(data, neighbours):
    result = audited(PersonCounts(neighbours=neighbours, fault="rows"), DATA[data])
    assert result.is_violation
    assert result.ratio > 100


@pytest.mark.slow
@relations
def test_a_person_who_counts_once_in_each_table_is_caught(neighbours):
    result = audited(PersonCounts(neighbours=neighbours, fault="tables"), TABLES)
    assert result.is_violation
    assert result.ratio > 1.2
    assert not audited(PersonCounts(neighbours=neighbours, fault="tables"), FRAME).is_violation


@pytest.mark.slow
@relations
def test_rows_that_are_drawn_again_in_each_pass_are_caught(neighbours):
    result = audited(PersonCounts("draw", neighbours, fault="parts"), n_trials=40)
    assert result.is_violation
    (finding,) = result.findings
    assert "one person changes the releases by more than they were priced for" in finding


@pytest.mark.slow
@relations
def test_certified_draws_are_the_same_for_all_other_persons(neighbours, monkeypatch):
    pytest.importorskip("opendp")
    intact = PersonCounts("draw", neighbours, noise="certified")
    result = audited(intact, n_trials=6)
    assert not result.is_violation, result.to_text()
    # Twin: rows of other persons change, too.
    monkeypatch.setattr(Transcript, "uniform", lambda self, draws: draws)
    assert audited(intact, n_trials=6).ratio > 1.5


@pytest.mark.slow
@relations
@pytest.mark.parametrize("method", ["repeated", "one_run"])
def test_black_box_audits_change_persons(method, neighbours):
    options = {"method": method, "confidence": 0.999, "n_draws": 60, "n_trials": 8}
    result = audited(PersonCounts(neighbours=neighbours), **options)
    assert not result.is_violation, result.to_text()
    assert "person" in result.neighbours
    if method == "repeated":
        assert audited(PersonCounts(neighbours=neighbours, fault="rows"), **options).is_violation


@pytest.mark.slow
def test_one_run_removes_records_where_they_are_added_or_removed():
    # One replaced row of this table would change two counts.
    seen = []

    class Sizes(PersonCounts):
        def fit(self, X, y=None):
            seen.append(X["who"].nunique())
            return super().fit(X, y)

    audited(Sizes(neighbours="add_or_remove"), method="one_run")
    assert min(seen) < 25
    seen.clear()
    audited(Sizes(), method="one_run")
    assert set(seen) == {30}


# Estimators.

SCHEMA = Schema({"a": Numeric(0, 1), "b": Categorical(["x", "y"])})
TABLE = pd.DataFrame(
    {
        "a": RNG.uniform(size=len(WHO)),
        "b": RNG.choice(["x", "y"], len(WHO)),
        "who": [f"person-{who}" for who in WHO],
    }
)
BUDGET = {"epsilon": 2.0, "delta": 1e-4, "unit": "who", "device": "cpu"}
VOTES = PrivateSignedMeasureSampler(domain=Box(0, 1, n_features=2), n_points=16, **BUDGET)
POINTS = TABLE.assign(b=RNG.uniform(size=len(WHO)))


def sampler(**options):
    return TableSampler(schema=SCHEMA, max_iter=5, **BUDGET, **options)


@pytest.mark.slow
@pytest.mark.parametrize("neighbours", ["replace_one", "add_or_remove"])
@pytest.mark.parametrize("weights", [{}, {"unit_weights": "rows", "max_rows": 3}])
def test_persons_of_a_table_sampler(monkeypatch, neighbours, weights):
    estimator = sampler(neighbours=neighbours, **weights)
    result = audited(estimator, TABLE, n_trials=8)
    assert not result.is_violation, result.to_text()
    assert 0.98 < result.ratio <= 1
    # Twin: each row counts once.
    for module in (_records, _table_counter):
        monkeypatch.setattr(module, "weights_of", lambda n, most=None: np.full(len(n), WHOLE))
    assert audited(estimator, TABLE, n_trials=8).ratio > 10


@pytest.mark.slow
def test_persons_of_votes(monkeypatch):
    result = audited(VOTES, POINTS)
    assert not result.is_violation, result.to_text()
    assert 0.98 < result.ratio <= 1

    # Twin: all rows vote.
    def all_rows(self, X, y, seed):
        return [X.drop(columns="who"), y]

    monkeypatch.setattr(VotingSampler, "_one_labelled_row_each", all_rows)
    assert audited(VOTES, POINTS).ratio > 10


@pytest.mark.slow
def test_persons_of_all_null_rows_attain_the_price():
    nullable = {"nullable": True}
    schema = Schema({"a": Numeric(0, 1, **nullable), "b": Categorical(["x", "y"], **nullable)})
    null = pd.DataFrame({"a": [np.nan] * 500 + [1.0], "b": [None] * 500 + ["x"]})
    candidates = null.assign(who=["p"] * 500 + ["q"])
    # Half of the rows are null, or noise merges the cell of nulls with others.
    table = TABLE.copy()
    table.loc[::2, ["a", "b"]] = None
    estimator = sampler().set_params(schema=schema, epsilon=20.0)
    result = audited(estimator, table, candidates=candidates, n_trials=4)
    assert not result.is_violation, result.to_text()
    assert 0.98 < result.ratio <= 1


# What neighbours are made of.


def test_ids_of_two_types_are_refused():
    # 5 and "5" may be one person.
    mixed = FRAME.assign(who=[str(who) if i == 5 else who for i, who in enumerate(WHO)])
    as_text = TABLES | {"visits": TABLES["visits"].assign(who=TABLES["visits"]["who"].astype(str))}
    for X in (mixed, as_text):
        with pytest.raises(ValueError, match="mixes texts with other values"):
            audited(PersonCounts(), X)
        with pytest.raises(ValueError, match="mixes texts with other values"):
            nasty_persons(X, "who")


def test_each_table_has_the_column_of_the_unit():
    class Without(PersonCounts):
        def fit(self, X, y=None):
            return super().fit({"patients": X["patients"]})

    tables = TABLES | {"visits": TABLES["visits"].drop(columns="who")}
    with pytest.raises(ValueError, match="X must have column 'who' of unit in table 'visits'"):
        audited(Without(), tables)


def test_nasty_persons_of_one_table():
    made = nasty_persons(FRAME, "who", n_rows=500)
    rows = [own["cell"] for _, own in made.groupby("who")]
    sizes = {len(own) for own in rows}
    assert {1, 2, 500} <= sizes
    equal = [own for own in rows if own.nunique() == 1 and len(own) == 500]
    assert {own.iloc[0] for own in equal} == {FRAME["cell"].min(), FRAME["cell"].max()}
    null = [own for own in rows if own.isna().all()]
    assert sorted(map(len, null)) == [1, 500]
    assert any(own.nunique() > 1 for own in rows)


def test_nasty_persons_of_several_tables():
    made = nasty_persons(TABLES, "who", n_rows=500)
    assert set(made) == set(TABLES)
    assert made["patients"]["who"].is_unique
    sizes = made["visits"]["who"].value_counts().reindex(made["patients"]["who"], fill_value=0)
    assert {0, 1, 2, 500} <= set(sizes)


def persons_of(frame):
    """Return the rows of each person, in the order of their first rows."""
    return {who: sorted(own["cell"]) for who, own in frame.groupby("who", sort=False)}


@pytest.mark.slow
@settings(deadline=None, max_examples=50)
@given(sizes=st.lists(st.integers(1, 9), min_size=2, max_size=8), seed=st.integers(0, 99))
def test_neighbours_differ_in_all_rows_of_one_person(sizes, seed):
    rng = np.random.default_rng(seed)
    who = rng.permutation(np.repeat(np.arange(len(sizes)), sizes))
    frame = pd.DataFrame({"cell": rng.integers(0, 8, len(who)), "who": who})
    y = frame["cell"].to_numpy()
    pool = PersonPool(frame, y, None, nasty_persons(frame, "who", n_rows=20), "who")
    table, position = pool.given(), rng.integers(len(sizes))
    X, labels, _ = pool.arrays(table)
    own = list(persons_of(X).values())
    assert sorted(own) == sorted(persons_of(frame).values())
    assert list(X.columns) == ["cell", "who"]
    assert X.dtypes.equals(frame.dtypes)
    # Labels stay with their rows, and persons are met in the order of the table.
    assert labels.tolist() == X["cell"].tolist()
    assert list(persons_of(X)) == list(range(len(sizes)))
    for candidate in pool.candidates:
        other = table.replaced(position, candidate, table.labels[position], 0)
        changed, labels, _ = pool.arrays(other)
        assert len(labels) == len(changed)
        others = list(persons_of(changed).values())
        assert np.delete(np.arange(len(own)), position).tolist() == [
            i for i in range(len(own)) if i != position and own[i] == others[i]
        ]
    (removed, _, _) = pool.arrays(table.without(position))
    assert list(persons_of(removed).values()) == own[:position] + own[position + 1 :]


def test_rows_of_a_person_are_scattered():
    pool = PersonPool(FRAME, None, None, nasty_persons(FRAME, "who"), "who")
    X, _, _ = pool.arrays(pool.given().replaced(0, pool.candidates[0], 0, 0))
    places = np.flatnonzero(X["who"] == 0)
    assert len(places) == 500
    # Before and after rows of most others.
    assert len({X["who"][place - 1] for place in places[1:]}) > 20
    # Persons are met in their order, so that the first row of the last one comes last.
    assert X["who"].drop_duplicates().tolist() == list(range(30))


def test_all_tables_change_at_once():
    pool = PersonPool(TABLES, None, None, nasty_persons(TABLES, "who", n_rows=9), "who")
    table = pool.given()
    before, after = (pool.arrays(t)[0] for t in (table, table.without(3)))
    for name in TABLES:
        own = list(before[name]["who"])
        assert (own.count(3) > 0) == (3 in list(TABLES[name]["who"]))
        assert len(after[name]) == len(own) - own.count(3)
    other, _, _ = pool.arrays(table.replaced(3, pool.candidates[0], 3, 3))
    assert (other["visits"]["who"] == 3).sum() == 9
    assert (other["patients"]["who"] == 3).sum() == 1


# Tables with keys.

TREE = RelationalSchema(
    {
        "persons": Table(Schema({"sex": Categorical(["f", "m"])}), primary_key="person"),
        "stays": Table(
            Schema({"year": Numeric(2000, 2004, integer=True), "ward": Categorical(["x", "y"])}),
            primary_key="stay",
            foreign_key={"who": "persons"},
            sequence_index="year",
            max_rows=3,
        ),
        "drugs": Table(
            Schema({"drug": Categorical(["a", "b"])}), foreign_key={"stay": "stays"}, max_rows=2
        ),
    }
)
N_STAYS = np.arange(40) % 4
STAYS = [f"stay {i}" for i in range(N_STAYS.sum())]
KEYED = {
    "persons": pd.DataFrame({"sex": RNG.choice(["f", "m"], 40), "person": np.arange(40)}),
    "stays": pd.DataFrame(
        {
            "stay": STAYS,
            "year": RNG.integers(2000, 2005, len(STAYS)),
            "ward": RNG.choice(["x", "y"], len(STAYS)),
            "who": np.repeat(np.arange(40), N_STAYS),
        }
    ),
    "drugs": pd.DataFrame({"stay": STAYS[::2] + STAYS[::3]}).assign(drug="a"),
}
PANEL = Table(TREE["stays"].schema, primary_key="who", sequence_index="year", max_rows=3)


def relational(schema=TREE, **options):
    return RelationalSampler(
        2.0, 1e-4, schema=schema, population_size=2, max_iter=1, device="cpu", **options
    )


def rows_that_weigh_one(monkeypatch):
    monkeypatch.setattr(
        _person_rows, "_path", lambda parent, path: np.ones(len(parent), dtype=np.int64)
    )


# A person of one row in each table, and one of many equal other rows.
EXTREMES = {
    "persons": pd.DataFrame({"sex": ["f", "m"], "person": [0, 1]}),
    "stays": pd.DataFrame(
        {
            "stay": [f"stay {i}" for i in range(201)],
            "year": [2000] + [2004] * 200,
            "ward": ["x"] + ["y"] * 200,
            "who": [0] + [1] * 200,
        }
    ),
    "drugs": pd.DataFrame({"stay": [f"stay {i}" for i in range(201)], "drug": ["a"] + ["b"] * 200}),
}


@pytest.mark.slow
@relations
def test_persons_of_a_relational_sampler(monkeypatch, neighbours):
    estimator = relational(neighbours=neighbours)
    result = audited(estimator, KEYED, candidates=EXTREMES, n_trials=6)
    assert not result.is_violation, result.to_text()
    assert 0.95 < result.ratio <= 1
    # Twin: each row counts once.
    rows_that_weigh_one(monkeypatch)
    result = audited(estimator, KEYED, n_trials=6)
    assert result.is_violation
    assert result.ratio > 10


@pytest.mark.slow
def test_persons_of_tables_with_keys(monkeypatch):
    estimator = relational(neighbours="add_or_remove")
    result = audited(estimator, KEYED, n_trials=2, confidence=0.99)
    assert not result.is_violation, result.to_text()
    assert 0.5 < result.ratio <= 1
    rows_that_weigh_one(monkeypatch)
    assert audited(estimator, KEYED, n_trials=2, confidence=0.99).is_violation


def joined(tables):
    """Return the rows of drugs with those above them, in any order."""
    drugs = tables["drugs"].merge(tables["stays"], on="stay").drop(columns="stay")
    rows = drugs.merge(tables["persons"], left_on="who", right_on="person")
    return sorted(map(tuple, rows[["person", "sex", "year", "ward", "drug"]].to_numpy().tolist()))


def test_keys_of_tables_are_replaced_and_rebuilt():
    links = LinkedTables.of(relational(), KEYED)
    flat = links.flatten(KEYED)
    assert all("person" in table for table in flat.values())
    assert all("stay" not in table for table in flat.values())
    again = links.rebuild(flat)
    assert {n: list(t) for n, t in again.items()} == {n: list(t) for n, t in KEYED.items()}
    assert joined(again) == joined(KEYED)
    assert again["stays"]["stay"].is_unique
    # A row that descends from nobody is left out, and one without a row above has no key.
    lost = KEYED | {"stays": KEYED["stays"].assign(who=-1)}
    assert not len(links.flatten(lost)["drugs"])
    alone = links.rebuild(flat | {"stays": flat["stays"].iloc[:0]})
    assert not alone["drugs"]["stay"].isin(KEYED["stays"]["stay"]).any()
    # The twin: links to other rows are other tables.
    other = flat | {"drugs": flat["drugs"].assign(**{LINK: flat["drugs"][LINK] + 1})}
    assert joined(links.rebuild(other)) != joined(KEYED)
    assert LinkedTables.of(relational(PANEL), {"rows": KEYED["stays"]}) is None
    assert LinkedTables.of(PersonCounts(), TABLES) is None
