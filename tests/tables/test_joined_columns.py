"""Columns of public tables as groups of their keys: what is counted, fitted and drawn."""

import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sklearn_dpgen.schema import (
    Categorical,
    Identifier,
    Numeric,
    Ordinal,
    RelationalSchema,
    Schema,
    Table,
)
from sklearn_dpgen.tables import RelationalSampler, _person_layout
from sklearn_dpgen.tables._marginals import MAX_BLOCKS, ColumnBlocks, Marginal
from sklearn_dpgen.tables._person_counts import PersonRecords
from sklearn_dpgen.tables._person_fit import PersonMeasurements
from sklearn_dpgen.tables._person_layout import PersonLayout, joined_columns
from sklearn_dpgen.tables._person_rows import read_person_rows, stages_of

pytestmark = pytest.mark.filterwarnings("ignore::sklearn_dpgen.exceptions.NoisyCountsWarning")

SIZES = ["small", "medium", "large"]


def public(sizes, beds, **more):
    """Return a public table of hospitals."""
    columns = {"size": Categorical(SIZES), "beds": Numeric(0, 1000, integer=True, nullable=True)}
    values = {"hospital": np.arange(len(sizes)), "size": sizes, "beds": beds}
    frame = pd.DataFrame(values | {name: v for name, (_, v) in more.items()})
    columns |= {name: column for name, (column, _) in more.items()}
    return Table(Schema(columns), primary_key="hospital", frame=frame)


# Of 60 hospitals the sizes and the numbers of beds do not follow their order.
N = 60
HOSPITALS = public(
    [SIZES[i * 7 % 3] for i in range(N)],
    [None if i % 10 == 0 else i * 37 % N * 9 for i in range(N)],
)
SCHEMA = RelationalSchema(
    {
        "hospitals": HOSPITALS,
        "patients": Table(Schema({"sex": Categorical(["f", "m"])}), primary_key="patient"),
        "stays": Table(
            Schema({"year": Numeric(1, 4, integer=True), "cost": Categorical(["low", "high"])}),
            primary_key="stay",
            foreign_key={"patient": "patients", "hospital": "hospitals"},
            sequence_index="year",
            max_rows=3,
        ),
        "drugs": Table(
            Schema({"drug": Categorical(["a", "b"])}), foreign_key={"stay": "stays"}, max_rows=1
        ),
    }
)


def tables(n=2000, seed=0):
    """Return patients of whom women are in large hospitals, which are dear and give drug b."""
    rng = np.random.default_rng(seed)
    sex = rng.choice(["f", "m"], n)
    size = HOSPITALS.frame["size"].to_numpy()
    large, others = np.flatnonzero(size == "large"), np.flatnonzero(size != "large")
    who = np.repeat(np.arange(n), 1 + np.arange(n) % 3)
    is_large = sex[who] == "f"
    hospital = np.where(is_large, rng.choice(large, len(who)), rng.choice(others, len(who)))
    stay = np.arange(len(who))
    return {
        "patients": pd.DataFrame({"patient": np.arange(n), "sex": sex}),
        "stays": pd.DataFrame(
            {
                "stay": stay,
                "patient": who,
                "hospital": hospital,
                "year": rng.integers(1, 5, len(who)),
                "cost": np.where(is_large, "high", "low"),
            }
        ),
        "drugs": pd.DataFrame({"stay": stay, "drug": np.where(is_large, "b", "a")}),
    }


def joined(drawn):
    """Return the drawn stays with the columns of their hospital, patient and drug."""
    rows = drawn["stays"].merge(HOSPITALS.frame, on="hospital").merge(drawn["patients"])
    return rows.merge(drawn["drugs"], on="stay", how="left")


# ---- groups of keys ----


@st.composite
def publics(draw):
    n = draw(st.integers(1, 300))
    rng = np.random.default_rng(draw(st.integers(0, 10**6)))
    n_labels = draw(st.integers(1, 40))
    beds = rng.integers(0, draw(st.sampled_from([2, 30, 1001])), n).astype(float)
    beds[rng.uniform(size=n) < draw(st.sampled_from([0.0, 0.2]))] = np.nan
    labels = [f"r{i}" for i in range(n_labels)]
    more = {
        "region": (Categorical(labels), rng.choice(labels, n)),
        "level": (Ordinal([1, 2, 3, 4]), rng.integers(1, 5, n)),
        "name": (Identifier(), [f"n{i}" for i in range(n)]),
    }
    more |= {
        f"flag {i}": (Categorical([0, 1]), rng.integers(0, 2, n)) for i in range(n_labels // 4)
    }
    return public(rng.choice(SIZES, n), beds, **more)


@pytest.mark.slow
@settings(max_examples=50, deadline=None)
@given(table=publics())
def test_groups_are_functions_of_the_public_values(table):
    found, parts = joined_columns(table)
    assert len(parts) == len(table.frame)
    assert {*parts} == {*range(int(parts.max()) + 1)}
    assert parts.max() < MAX_BLOCKS
    assert "name" not in found
    for name, (groups, is_ordered, n_nulls) in found.items():
        n_groups = int(groups.max()) + 1
        assert {*groups} == {*range(n_groups)}
        assert 2 <= n_groups <= len(parts) / 2
        # Equal values have equal groups, and keys of one combination too.
        pairs = pd.DataFrame({"value": table.frame[name].astype(object), "group": groups})
        assert (pairs.groupby("value")["group"].nunique() == 1).all()
        assert (pd.Series(groups).groupby(parts).nunique() == 1).all()
        is_null = table.frame[name].isna().to_numpy()
        if n_nulls:
            assert (is_null == (groups == n_groups - 1)).all()
        if is_ordered:
            known = pairs[~is_null].astype({"value": float}).sort_values("value")
            assert known["group"].is_monotonic_increasing
    if not found:
        assert parts.max() == 0


def test_a_column_that_is_finer_than_the_keys_is_left_out():
    # Each of two hospitals has a size of its own, and that is the key.
    assert joined_columns(public(["small", "large"], [10, 500]))[0] == {}


def test_the_column_with_the_most_groups_is_coarsened():
    n = 3000
    regions = [f"r{i}" for i in range(16)]
    table = public(
        [SIZES[i % 3] for i in range(n)],
        np.arange(n) % 1001,
        region=(Categorical(regions), [regions[i * 7 % 16] for i in range(n)]),
    )
    found, parts = joined_columns(table)
    assert {name: int(groups.max()) + 1 for name, (groups, *_) in found.items()}["size"] == 3
    assert 30 < parts.max() < MAX_BLOCKS


# ---- counts ----


def test_pairs_within_a_public_table_are_not_counted():
    layout = PersonLayout(stages_of(SCHEMA))
    stays = layout.stages[1]
    names = [layout.variables[j].name for j in stays.joined]
    assert names == ["stays.hospital.size", "stays.hospital.beds"]
    key = layout.variables[stays.joined[0]].source
    assert layout.variables[key].name == "stays.hospital"
    same = {key, *stays.joined}
    pairs = layout.pairs()
    assert not any({*pair} <= same for pair in pairs)
    # Others are those of any column: with the patient, with the drug, and with the row before.
    for j in stays.joined:
        partners = {a if b == j else b for a, b in pairs if j in (a, b)}
        of_key = {a if b == key else b for a, b in pairs if key in (a, b)}
        assert partners - {stays.memories[j]} == of_key - {stays.memories[key]}
        assert stays.memories[j] in partners


def measured(data):
    """Return measurements of single variables without noise, and the exact counts."""
    layout = PersonLayout(stages_of(SCHEMA))
    records = PersonRecords(layout, read_person_rows(data, layout.declared, layout.encoders))
    leaves = {j: records.leaves(j) for j, v in enumerate(layout.variables) if v.is_released}
    weights = dict.fromkeys(leaves, 1.0)
    found = PersonMeasurements(layout, leaves, weights, 0.0, lambda v: v, records.n_records)
    records.use_blocks(found.count_maps(), found.ratios)
    return layout, records, found


def test_joined_columns_are_counted_as_groups_of_their_key():
    layout, records, found = measured(tables(300))
    for pair in layout.pairs():
        is_joined = [layout.variables[j].source in layout.parts for j in pair]
        marginal = found.blocks.marginal(pair, 1e6)
        as_keys = found._of_keys(marginal)
        assert (as_keys.columns == marginal.columns) or any(is_joined)
        own, keyed = records.marginal_counts([marginal, as_keys])
        # The axes may be in another order.
        assert np.allclose(keyed, own) if keyed.shape == own.shape else np.allclose(keyed.T, own)


def test_the_shares_of_keys_follow_those_of_their_groups():
    data = tables(300)
    layout, _, found = measured(data)
    key = layout.variables[layout.stages[1].joined[0]].source
    groups = layout.joined[layout.stages[1].joined[0]]
    before = found.measured.shares(key)
    # A precise count of groups moves the shares of their keys together.
    found.measured._variances[key] = np.full(N, 1e-4)
    found.measured.learn(key, groups, np.array([0.2, 0.3, 0.5]), 1e-12)
    after = found.measured.shares(key)
    assert np.allclose(np.bincount(groups, after), [0.2, 0.3, 0.5], atol=1e-3)
    inside = groups == 0
    assert np.allclose(after[inside] / after[inside].sum(), before[inside] / before[inside].sum())


# ---- draws ----


def dependence(drawn):
    """Return the shares of large hospitals of women and of men, and of dear stays in them."""
    rows = joined(drawn)
    is_large = rows["size"].astype(str) == "large"
    return {
        "women": is_large[rows["sex"] == "f"].mean(),
        "men": is_large[rows["sex"] == "m"].mean(),
        "dear": (rows["cost"] == "high")[is_large].mean(),
        "dear elsewhere": (rows["cost"] == "high")[~is_large].mean(),
        "drug b": (rows["drug"] == "b")[is_large].mean(),
        "drug b elsewhere": (rows["drug"] == "b")[~is_large].mean(),
    }


def sampler():
    return RelationalSampler(8.0, schema=SCHEMA, population_size=3000, max_iter=15, device="cpu")


@pytest.fixture(scope="module")
def fitted():
    return sampler().fit(tables())


def is_dependent(found):
    kept = [found["women"], found["dear"], found["drug b"]]
    lost = [found["men"], found["dear elsewhere"], found["drug b elsewhere"]]
    return min(kept) > 0.7 and max(lost) < 0.3


def test_what_depends_on_public_columns_is_drawn(fitted):
    assert is_dependent(dependence(fitted.sample(3000, random_state=0)))


def test_without_joined_columns_the_dependence_is_lost(monkeypatch):
    monkeypatch.setattr(
        _person_layout, "joined_columns", lambda table: ({}, np.zeros(len(table.frame), dtype=int))
    )
    assert not is_dependent(dependence(sampler().fit(tables()).sample(3000, random_state=0)))


def are_nested(layout, distribution):
    """Return whether all keys of a block have the same groups of joined columns."""
    return all(
        (pd.Series(parts).groupby(distribution.blocks[key]).nunique() == 1).all()
        for key, parts in layout.parts.items()
    )


def test_keys_are_public_and_only_the_key_is_returned(fitted):
    drawn = fitted.sample(500, random_state=1)
    assert list(drawn) == ["patients", "stays", "drugs"]
    assert list(drawn["stays"]) == ["stay", "patient", "hospital", "year", "cost"]
    assert drawn["stays"]["hospital"].isin(HOSPITALS.frame["hospital"]).all()
    # All keys of a block have one combination, so no combination is drawn that has no key.
    assert are_nested(fitted._layout(), fitted.distribution_)
    names = {name for marginal in fitted.one_way_marginals_ for name in marginal.columns}
    assert {"stays.hospital", "stays.hospital.size", "stays.hospital.beds"} <= names


def test_blocks_of_a_key_across_combinations_are_caught(fitted):
    layout, rng = fitted._layout(), np.random.default_rng(0)
    (key,) = layout.parts
    # As blocks are formed without the combinations, once there are more keys than blocks.
    shares = rng.uniform(0.5, 1, N)
    parts = {0: layout.parts[key]}
    nested = ColumnBlocks([shares], [False], [0], [0], parts).blocks
    free = ColumnBlocks([shares], [False], [0], [0]).marginal((0,), 10).groups
    for blocks, expected in ((nested, True), (free, False)):
        distribution = type("Blocks", (), {"blocks": {key: blocks[0]}})
        assert are_nested(layout, distribution) == expected


@pytest.mark.parametrize("n_parts", [1, 5, MAX_BLOCKS])
def test_blocks_refine_parts(n_parts):
    rng = np.random.default_rng(n_parts)
    parts = np.append(np.arange(n_parts), rng.integers(0, n_parts, 500))
    shares = rng.uniform(size=len(parts)) * (parts > 0)
    blocks = ColumnBlocks([shares], [False], [0], [0], {0: parts}).blocks[0]
    assert {*blocks} == {*range(int(blocks.max()) + 1)}
    assert blocks.max() < MAX_BLOCKS
    assert (pd.Series(parts).groupby(blocks).nunique() == 1).all()
    marginal = Marginal((0,), (blocks,))
    assert n_parts <= marginal.n_cells <= MAX_BLOCKS


def test_two_public_keys_are_released_again_once():
    patients = Table(
        SCHEMA["patients"].schema, primary_key="patient", foreign_key={"home": "hospitals"}
    )
    schema = RelationalSchema(dict(SCHEMA) | {"patients": patients})
    given = tables(300)
    visited = given["stays"].groupby("patient")["hospital"].first()
    given["patients"]["home"] = visited.reindex(given["patients"]["patient"]).to_numpy()
    sampler = RelationalSampler(np.inf, schema=schema, device="cpu")
    records, facts = sampler._read(given, seed=None)
    plan = sampler._plan(**facts)
    measured, layout = sampler._release(plan, records, None), plan.details.layout
    names = [variable.name for variable in layout.variables]
    pairs = layout.pairs()
    is_of_keys = [
        names[a].startswith("patients.home") and names[b].startswith("stays.hospital")
        for a, b in pairs
    ]
    # The keys and two columns of each table are nine pairs of variables.
    assert sum(is_of_keys) == 9
    preferred = np.where(is_of_keys, 1e6, 1.0)
    chosen = measured.strongest(pairs, preferred, 9)
    of_keys = {pair for pair, own in zip(pairs, is_of_keys, strict=True) if own}
    assert len(of_keys.intersection(chosen)) == 1
    # The others come last.
    assert {*measured.strongest(pairs, preferred, len(pairs))} == {*pairs}
