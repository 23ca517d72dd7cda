"""Aggregates of the rows of a parent row: what they are, and that they link two child tables."""

from collections import Counter
from dataclasses import replace

import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sklearn_dpgen.schema import Categorical, Numeric, Ordinal, RelationalSchema, Schema, Table
from sklearn_dpgen.tables import RelationalSampler
from sklearn_dpgen.tables._person_counts import PersonRecords
from sklearn_dpgen.tables._person_distribution import PersonSimulator
from sklearn_dpgen.tables._person_layout import PersonLayout
from sklearn_dpgen.tables._person_rows import read_person_rows, stages_of

pytestmark = pytest.mark.filterwarnings("ignore::sklearn_dpgen.exceptions.NoisyCountsWarning")

LABELS, LEVELS = ["c", "a", "b"], [1, 2, 4]
SCHEMA = RelationalSchema(
    {
        "persons": Table(Schema({"sex": Categorical(["f", "m"])}), primary_key="person"),
        "stays": Table(
            Schema(
                {
                    "cost": Numeric(0, 1000, integer=True, nullable=True),
                    "level": Ordinal(LEVELS, nullable=True),
                    "ward": Categorical(LABELS, nullable=True),
                    "fixed": Categorical(["x"]),
                }
            ),
            primary_key="stay",
            foreign_key={"person": "persons"},
            max_rows=3,
            aggregates=["cost", "level", "ward", "fixed"],
        ),
        "drugs": Table(
            Schema({"drug": Categorical(["x", "y"])}),
            foreign_key={"stay": "stays"},
            max_rows=2,
            aggregates=["drug"],
        ),
    }
)
# A mean of levels has a grid of so many leaves per level.
FINER = 32
# In the layout the sources of the aggregates of a stay are in this order.
COST, LEVEL, WARD = range(3)


def tables_of(people):
    """Return tables of persons who are lists of stays, (cost, level, ward)."""
    rows = [(i, *stay, "x") for i, stays in enumerate(people) for stay in stays]
    stays = pd.DataFrame(rows, columns=["person", "cost", "level", "ward", "fixed"])
    stays.insert(0, "stay", np.arange(len(stays)))
    return {
        "persons": pd.DataFrame({"person": np.arange(len(people)), "sex": "f"}),
        "stays": stays.astype({"cost": float, "level": object, "ward": object}),
        "drugs": pd.DataFrame({"stay": np.repeat(stays["stay"], stays["stay"] % 3), "drug": "y"}),
    }


def counted(people):
    """Return the counts of the leaves of the aggregates of stays."""
    layout = PersonLayout(stages_of(SCHEMA))
    records = PersonRecords(
        layout, read_person_rows(tables_of(people), layout.declared, layout.encoders)
    )
    return [records.leaves(j) for j in layout.stages[1].aggregates.values()]


def mean_leaf(values, per_unit=1):
    """Return the leaf of a mean, where halves are rounded up, or null."""
    known = [value for value in values if value is not None]
    if not known:
        return None
    return int(np.floor(per_unit * sum(known) / len(known) + 0.5))


def first_mode(values):
    """Return the position of the most frequent label, and of these the first, or null."""
    counts = Counter(LABELS.index(value) for value in values if value is not None)
    return min(counts, key=lambda label: (-counts[label], label)) if counts else None


def aggregates_of(stays):
    costs, levels, wards = zip(*stays, strict=True) if stays else ([], [], [])
    ranks = [None if level is None else LEVELS.index(level) for level in levels]
    return mean_leaf(costs), mean_leaf(ranks, FINER), first_mode(wards)


stay = st.tuples(
    st.none() | st.integers(0, 1000),
    st.none() | st.sampled_from(LEVELS),
    st.none() | st.sampled_from(LABELS),
)
stays = st.lists(stay, max_size=6)


@pytest.mark.slow
@settings(max_examples=50, deadline=None)
@given(people=st.lists(stays | stays.map(lambda rows: rows * 40), min_size=1, max_size=4))
def test_an_aggregate_is_the_mean_or_the_first_of_the_most_frequent_labels(people):
    found = counted(people)
    assert list(map(len, found)) == [1002, 2 * FINER + 2, len(LABELS) + 1]
    for kind, counts in enumerate(found):
        leaves = [aggregates_of(one)[kind] for one in people]
        # The last leaf is null.
        wanted = np.bincount([len(counts) - 1 if j is None else j for j in leaves])
        assert np.array_equal(counts, np.pad(wanted, (0, len(counts) - len(wanted))))


def test_nasty_persons_have_aggregates():
    people = {
        "no rows": [],
        "all null": [(None, None, None)] * 3,
        "two most frequent labels": [(0, 1, "b"), (0, 1, "a"), (0, 1, "a"), (0, 1, "b")],
        "many rows": [(1000, 4, "b")] * 10_000,
        "half a unit": [(0, 1, "c"), (1, 2, "c")],
    }
    leaves = {name: [int(np.argmax(c)) for c in counted([one])] for name, one in people.items()}
    assert leaves["no rows"] == leaves["all null"] == [1001, 2 * FINER + 1, 3]
    assert leaves["two most frequent labels"][WARD] == LABELS.index("a")
    assert leaves["many rows"] == [1000, 2 * FINER, 2]
    assert leaves["half a unit"] == [1, FINER // 2, 0]


@pytest.fixture(scope="module")
def fitted():
    rng = np.random.default_rng(0)
    people = [
        [
            (int(rng.integers(1001)), int(rng.choice(LEVELS)), str(rng.choice(LABELS)))
            for _ in range(rng.integers(4))
        ]
        for _ in range(300)
    ]
    sampler = RelationalSampler(
        50.0, schema=SCHEMA, population_size=300, max_iter=5, random_state=0, device="cpu"
    )
    return sampler.fit(tables_of(people))


def test_aggregates_are_no_columns_of_a_sample(fitted):
    drawn = fitted.sample(50, random_state=0)
    assert {name: [*frame] for name, frame in drawn.items()} == {
        "persons": ["person", "sex"],
        "stays": ["stay", "person", "cost", "level", "ward", "fixed"],
        "drugs": ["stay", "drug"],
    }
    names = {name for marginal in fitted.one_way_marginals_ for name in marginal.columns}
    assert {n for n in names if n.startswith("aggregate")} == {
        f"aggregate of {n}" for n in ("stays.cost", "stays.level", "stays.ward", "drugs.drug")
    }


def test_persons_without_rows_have_no_aggregates(fitted):
    """All rows of a nullable column may be null; those of other columns have an aggregate."""
    layout = fitted._layout()
    simulator = PersonSimulator(layout, fitted.distribution_)
    rng = np.random.default_rng(0)
    persons = simulator.persons(2000, rng)
    sizes = simulator.numbers(1, persons.codes, rng)
    stays = simulator.positions(1, persons.codes, sizes, rng)
    simulator.values(1, stays, rng)
    n_drugs = simulator.numbers(2, stays.codes, rng)
    for rows, numbers, own in ((persons, sizes, 1), (stays, n_drugs, 2)):
        for source, aggregate in layout.stages[own].aggregates.items():
            null = int(fitted.distribution_.blocks[aggregate][-1])
            term = simulator.aggregate_rules(aggregate).table
            barred = np.zeros(term.shape, dtype=bool)
            barred[0] = True
            barred[:, null] = np.arange(len(term)) > 0
            barred[:, null] &= layout.variables[source].n_nulls == 0
            assert np.array_equal(term < -20, barred)
            # The noisy counts that are fitted may contradict the rules for a few persons.
            is_null = rows.codes[:, aggregate] == null
            assert is_null[numbers == 0].mean() > 0.9
            assert is_null[numbers > 0].mean() < 0.1


# ---- two child tables ----


def linked(aggregates):
    visits = Table(Schema({"cost": Numeric(0, 100)}), foreign_key={"id": "persons"}, max_rows=6)
    drugs = Table(Schema({"price": Numeric(0, 10)}), foreign_key={"id": "persons"}, max_rows=6)
    if aggregates:
        visits = replace(visits, aggregates=["cost"])
        drugs = replace(drugs, aggregates=["price"])
    persons = Table(Schema({"sex": Categorical(["f", "m"])}), primary_key="id")
    return RelationalSchema({"persons": persons, "visits": visits, "drugs": drugs})


def correlation(tables):
    """Return the rank correlation of mean cost and mean price over persons."""
    cost = tables["visits"].groupby("id")["cost"].mean()
    price = tables["drugs"].groupby("id")["price"].mean()
    return pd.concat([cost, price], axis=1).dropna().corr(method="spearman").iloc[0, 1]


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore::sklearn_dpgen.exceptions.MaxRowsWarning")
def test_aggregates_link_two_child_tables():
    """A severity that no column has; without aggregates the tables are independent."""
    rng, n = np.random.default_rng(0), 2000
    severity = rng.normal(size=n)
    ids = {name: np.repeat(np.arange(n), rng.integers(0, 7, n)) for name in ("visits", "drugs")}
    noisy = {name: severity[i] + rng.normal(0, 0.5, len(i)) for name, i in ids.items()}
    tables = {
        "persons": pd.DataFrame({"id": np.arange(n), "sex": rng.choice(["f", "m"], n)}),
        "visits": pd.DataFrame(
            {"id": ids["visits"], "cost": (50 + 15 * noisy["visits"]).clip(0, 100)}
        ),
        "drugs": pd.DataFrame(
            {"id": ids["drugs"], "price": (5 + 1.5 * noisy["drugs"]).clip(0, 10)}
        ),
    }
    assert correlation(tables) > 0.8
    found = {}
    for aggregates in (False, True):
        sampler = RelationalSampler(
            20.0, schema=linked(aggregates), population_size=2000, device="cpu"
        )
        found[aggregates] = correlation(sampler.fit(tables).sample(2000))
    assert abs(found[False]) < 0.3
    assert found[True] > 0.5
