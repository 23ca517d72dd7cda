"""A table with a constant column is a table without it, for a curator and for a person."""

import json
import math

import numpy as np
import pandas as pd
import pytest
from measured_tables import leaves_of

from sklearn_dpgen.mechanisms import JointRandomizedResponse, TabularMechanism
from sklearn_dpgen.schema import Categorical, Numeric, Ordinal, Schema
from sklearn_dpgen.tables import (
    LocalTableSampler,
    TableSampler,
    _releases,
)
from sklearn_dpgen.tables._records import encode_codes
from sklearn_dpgen.tables._releases import column_trees, fine_encoder, measure_columns

COLUMNS = {
    "job": Categorical(["baker", "nurse", "pilot"]),
    "pay": Numeric(0, 10),
    "level": Ordinal([1, 2]),
    "sex": Categorical(["f", "m"], nullable=True),
}
CONSTANTS = {"unit": Categorical(["kg"]), "year": Ordinal([2020])}
# The first, and between others.
MIXED = Schema(
    {"unit": CONSTANTS["unit"], "job": COLUMNS["job"], "year": CONSTANTS["year"]}
    | {name: COLUMNS[name] for name in ["pay", "level", "sex"]}
)
VARIED = Schema(COLUMNS)


def records(n=2000, seed=0):
    rng = np.random.default_rng(seed)
    level = rng.integers(1, 3, n)
    return pd.DataFrame(
        {
            "unit": "kg",
            "job": rng.choice(["baker", "nurse", "pilot"], n),
            "year": 2020,
            "pay": np.round(5 * level * rng.uniform(size=n), 1),
            "level": level,
            "sex": np.where(rng.uniform(size=n) < 0.5 * level - 0.2, "f", None),
        }
    )


def fit(schema, epsilon=1.0, **options):
    options = {"n_bins": 4, "random_state": 0, "max_iter": 5, "device": "cpu"} | options
    sampler = TableSampler(epsilon, schema=schema, population_size=500, **options)
    return sampler.fit(records()[list(schema)])


OPTIONS = [
    {},
    {"target": "level"},
    {"marginals": "pairs"},
    {"neighbours": "add_or_remove"},
    {"n_bins": "auto"},
]
NAMES = ["auto", "target", "pairs", "add or remove", "found bins"]


def spent(schema, options):
    """Return the mechanism of a fit, and the noise of what was released of single columns."""
    release, factors = _releases.release_singles, []

    def watch(*args):
        counts, found = release(*args)
        factors.extend(found)
        return counts, found

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(_releases, "release_singles", watch)
        sampler = fit(schema, **options)
    assert not CONSTANTS.keys() & {name for part in sampler.marginals_ for name in part.columns}
    return sampler.privacy_.title, sampler.noise_multiplier_, sorted(factors)


@pytest.mark.parametrize("options", OPTIONS, ids=NAMES)
def test_nothing_is_spent_on_constants(options):
    assert spent(MIXED, options) == spent(VARIED, options)
    # One that may be null is none.
    with pytest.MonkeyPatch.context() as patch:
        patch.delitem(CONSTANTS, "unit")
        nullable = Schema(dict(MIXED) | {"unit": Categorical(["kg"], nullable=True)})
        assert spent(nullable, options) != spent(VARIED, options)


def test_the_release_of_single_columns_has_norm_one():
    def moved(release_singles):
        """Return by how much a record more changes the released vector."""
        encoder, found = fine_encoder(MIXED, "auto")
        trees, seen = column_trees(encoder.fit(), found), []
        for frame in (records(50), records(50).iloc[1:]):
            leaves = leaves_of(encode_codes(frame, encoder).columns, trees)
            weights = np.array([3.0, 1.0, 2.0, 9.0, 1.0, 1.0])
            with pytest.MonkeyPatch.context() as patch:
                patch.setattr(_releases, "release_singles", release_singles)
                measure_columns(
                    {j: leaves[j] for j, tree in enumerate(trees) if tree.n_cells > 1},
                    encoder,
                    trees,
                    weights,
                    1.0,
                    lambda vector: seen.append(vector) or vector,
                    n_records=50,
                )
        return np.linalg.norm(seen[0] - seen[1])

    def without_levels(leaves, trees, weights, release):
        """Scale as if each column were counted once."""
        factor = math.sqrt(sum(t.n_levels * w**2 for t, w in zip(trees, weights, strict=True)))
        factor /= np.linalg.norm(weights)

        def scaled(vector):
            return release(factor * vector)

        return honest(leaves, trees, weights, scaled)

    honest = _releases.release_singles
    assert moved(honest) == pytest.approx(1, abs=1e-12)
    assert moved(without_levels) > 1.5


def test_tables_are_those_without_the_constants():
    with_them, without = (fit(schema, math.inf, marginals="pairs") for schema in (MIXED, VARIED))
    for ours, theirs in zip(with_them.marginals_, without.marginals_, strict=True):
        assert ours.columns == theirs.columns
        np.testing.assert_array_equal(ours.counts, theirs.counts)
    test = records(500, seed=1)
    sampled = with_them.sample(3000, random_state=0)
    assert (sampled[["unit", "year"]] == ["kg", 2020]).all(axis=None)
    # Pairs with a constant are no pairs.
    assert with_them.score(test) == pytest.approx(without.score(test[list(VARIED)]), abs=0.02)


def test_constants_where_columns_are_named():
    sampler = fit(
        MIXED,
        marginals=[("unit", "job"), ("job", "year", "level"), ("level", "job"), ("pay", "sex")],
        target=["year", "level"],
        workload={"unit": 100.0},
    )
    assert [part.columns for part in sampler.marginals_] == [("job", "level"), ("pay", "sex")]
    assert (sampler.sample(20, conditions={"unit": "kg", "level": 2})["level"] == 2).all()
    with pytest.raises(ValueError, match="'unit' holds a value outside"):
        sampler.sample(1, conditions={"unit": "lb"})


def test_a_single_column_beside_constants():
    for marginals in ("auto", "pairs"):
        schema = Schema(CONSTANTS | {"level": COLUMNS["level"]})
        sampler = fit(schema, marginals=marginals)
        assert sampler.marginals_ == []
        assert set(sampler.sample(50, random_state=0)["level"]) == {1, 2}


def test_nobody_is_asked_about_a_constant():
    mechanism = JointRandomizedResponse(2.0, schema=MIXED, random_state=0, n_bins=4)
    answers = mechanism.fit_transform(records())
    asked = set().union(*map(json.loads, answers["asked"]))
    assert asked == set(VARIED)
    # Nor is one of its pairs noisier than the other column.
    table, alone = mechanism.expected_variation(1000), VARIED.keys()
    assert (table.loc["unit", [*alone]] == np.diag(table.loc[[*alone], [*alone]])).all()
    assert table.loc["unit", "year"] == 0
    same = JointRandomizedResponse(2.0, schema=VARIED, n_bins=4).fit()
    assert mechanism.n_asked_ == same.n_asked_
    pd.testing.assert_frame_equal(table.loc[[*alone], [*alone]], same.expected_variation(1000))
    sampled = LocalTableSampler(mechanism, random_state=0, max_iter=5, device="cpu").fit(answers)
    assert (sampled.sample(20, random_state=0)[["unit", "year"]] == ["kg", 2020]).all(axis=None)


def test_wishes_about_constants():
    mechanism = JointRandomizedResponse(
        2.0, schema=MIXED, always=["unit", "level"], weights={"year": 1e6}, random_state=0
    )
    asked = mechanism.fit_transform(records(200))["asked"].map(json.loads)
    assert all("level" in columns for columns in asked)
    assert not any({"unit", "year"} & set(columns) for columns in asked)
    with pytest.raises(
        ValueError, match="n_asked must be at most the 4 columns to ask about, got 5"
    ):
        JointRandomizedResponse(50.0, schema=MIXED, n_asked=5).fit()


@pytest.mark.parametrize("epsilon", [1.0, math.inf])
def test_a_split_budget_goes_to_the_other_columns(epsilon):
    mechanism = TabularMechanism(epsilon, schema=MIXED, random_state=0).fit()
    shares = TabularMechanism(epsilon, schema=VARIED).fit().epsilon_
    assert mechanism.epsilon_ == {"unit": 0.0, "year": 0.0} | shares
    released = mechanism.transform(records(50))
    assert (released[["unit", "year"]] == ["kg", 2020]).all(axis=None)
