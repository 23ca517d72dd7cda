"""A saved RelationalSampler that contradicts itself is not loaded, so that draws never fail."""

import copy
import pickle
from dataclasses import replace

import numpy as np
import pandas as pd
import pytest
from sklearn.base import clone

import sklearn_dpgen
from sklearn_dpgen.exceptions import InvalidFileError, PublicValueError
from sklearn_dpgen.schema import Categorical, Numeric, Ordinal, RelationalSchema, Schema, Table
from sklearn_dpgen.tables import RelationalSampler
from sklearn_dpgen.tables._person_distribution import PersonDistribution

pytestmark = pytest.mark.filterwarnings("ignore::UserWarning")

SCHEMA = RelationalSchema(
    {
        "persons": Table(Schema({"sex": Categorical(["f", "m"])}), primary_key="id"),
        "visits": Table(
            Schema({"year": Numeric(2000, 2004, integer=True), "state": Ordinal([1, 2, 3])}),
            foreign_key={"id": "persons"},
            sequence_index="year",
            max_rows=3,
            ties=False,
            aggregates=["state"],
        ),
    }
)
AGGREGATE = "aggregate of visits.state"


def tables(n=60):
    rng, ids = np.random.default_rng(0), np.repeat(np.arange(n), np.arange(n) % 3)
    return {
        "persons": pd.DataFrame({"id": np.arange(n), "sex": rng.choice(["f", "m"], n)}),
        "visits": pd.DataFrame(
            {
                "id": ids,
                "year": 2000 + np.arange(len(ids)) % 5,
                "state": rng.integers(1, 4, len(ids)),
            }
        ),
    }


@pytest.fixture(scope="module")
def fitted():
    sampler = RelationalSampler(
        20.0, schema=SCHEMA, population_size=50, max_iter=2, random_state=0, device="cpu"
    )
    return sampler.fit(tables())


def variable(sampler, name):
    return [v.name for v in sampler._layout().variables].index(name)


def changed(sampler, **parts):
    """Replace parts of the distribution."""
    sampler.distribution_ = replace(sampler.distribution_, **parts)


def with_entry(values, position, value):
    return [*values[:position], value, *values[position + 1 :]]


def one_block_more(sampler):
    blocks, j = sampler.distribution_.blocks, variable(sampler, "visits.state")
    changed(sampler, blocks=with_entry(blocks, j, blocks[j] + (blocks[j] == blocks[j].max())))


def a_block_without_shares(sampler):
    shares, j = sampler.distribution_.shares, variable(sampler, "persons.sex")
    changed(sampler, shares=with_entry(shares, j, shares[j] * 0))


def bins_beyond_the_index(sampler):
    starts, j = sampler.distribution_.starts, variable(sampler, "gap in visits")
    changed(sampler, starts=with_entry(starts, j, starts[j] + 9 * (starts[j] > 0)))


def bins_out_of_order(sampler):
    starts, j = sampler.distribution_.starts, variable(sampler, "number of visits")
    changed(sampler, starts=with_entry(starts, j, starts[j][::-1].copy()))


def nothing_draws_gaps(sampler):
    conditionals, j = sampler.distribution_.conditionals, variable(sampler, "gap in visits")
    changed(sampler, conditionals={k: v for k, v in conditionals.items() if k != j})


def nothing_draws_aggregates(sampler):
    conditionals, j = sampler.distribution_.conditionals, variable(sampler, AGGREGATE)
    changed(sampler, conditionals={k: v for k, v in conditionals.items() if k != j})


def an_aggregate_of_other_bins(sampler):
    starts, j = sampler.distribution_.starts, variable(sampler, AGGREGATE)
    changed(sampler, starts=with_entry(starts, j, starts[j] + 65 * (starts[j] > 0)))


def no_aggregates(sampler):
    visits = replace(SCHEMA["visits"], aggregates=())
    sampler.schema = RelationalSchema({"persons": SCHEMA["persons"], "visits": visits})


def a_term_of_a_change(sampler):
    conditionals, j = sampler.distribution_.conditionals, variable(sampler, "visits.state")
    term = conditionals[j].terms[0]
    other = replace(term, parents=(variable(sampler, "change of visits.state"),))
    found = replace(conditionals[j], terms=(other,))
    changed(sampler, conditionals=conditionals | {j: found})


def a_base_of_other_blocks(sampler):
    conditionals, j = sampler.distribution_.conditionals, variable(sampler, "persons.sex")
    found = replace(conditionals[j], base=np.zeros(5))
    changed(sampler, conditionals=conditionals | {j: found})


def no_block_to_draw(sampler):
    conditionals, j = sampler.distribution_.conditionals, variable(sampler, "persons.sex")
    found = replace(conditionals[j], base=np.full(2, -np.inf))
    changed(sampler, conditionals=conditionals | {j: found})


def another_schema(sampler):
    sampler.schema = RelationalSchema({n: SCHEMA[n] for n in ("persons",)})


def more_rows(sampler):
    parts = {n: SCHEMA[n] for n in SCHEMA}
    parts["visits"] = replace(SCHEMA["visits"], max_rows=1, ties=True)
    sampler.schema = RelationalSchema(parts)


def no_encoder(sampler):
    sampler.encoders_ = [None, sampler.encoders_[1]]


def other_encoders(sampler):
    sampler.encoders_ = sampler.encoders_[::-1]


def one_table(sampler):
    sampler._is_dict = False


def other_columns(sampler):
    sampler.n_features_in_ = 4


def marginals_of_others(sampler):
    sampler.marginals_ = [replace(sampler.marginals_[0], columns=("x",) * 2)]


FAULTS = [
    one_block_more,
    a_block_without_shares,
    bins_beyond_the_index,
    bins_out_of_order,
    nothing_draws_gaps,
    nothing_draws_aggregates,
    an_aggregate_of_other_bins,
    no_aggregates,
    a_term_of_a_change,
    a_base_of_other_blocks,
    no_block_to_draw,
    another_schema,
    more_rows,
    no_encoder,
    other_encoders,
    one_table,
    other_columns,
    marginals_of_others,
]


def saved(sampler, path, monkeypatch):
    """Write a file without the check that it can be loaded."""
    with monkeypatch.context() as patched:
        patched.setattr("sklearn_dpgen.persistence._files._check_written", lambda path: None)
        sampler.save(path)
    return path


@pytest.mark.parametrize("fault", FAULTS, ids=lambda fault: fault.__name__)
def test_a_file_that_contradicts_itself_is_invalid(fitted, fault, tmp_path, monkeypatch):
    sampler = copy.copy(fitted)
    fault(sampler)
    path = saved(sampler, tmp_path / "model", monkeypatch)
    with pytest.raises(InvalidFileError):
        sklearn_dpgen.load(path)


def test_without_the_check_draws_would_fail(fitted, tmp_path, monkeypatch):
    """The negative twin: the same file is written by the same way, and is then drawn from."""
    path = saved(copy.copy(fitted), tmp_path / "model", monkeypatch)
    assert len(sklearn_dpgen.load(path).sample(3)["persons"]) == 3
    monkeypatch.setattr(PersonDistribution, "check_layout", lambda self, layout: None)
    sampler = copy.copy(fitted)
    nothing_draws_gaps(sampler)
    path = saved(sampler, path, monkeypatch)
    with pytest.raises(KeyError):
        sklearn_dpgen.load(path).sample(100)


def test_a_fit_survives_pickling_and_cloning(fitted):
    drawn = fitted.sample(30, random_state=1)
    again = pickle.loads(pickle.dumps(fitted)).sample(30, random_state=1)
    assert all(drawn[name].equals(again[name]) for name in SCHEMA)
    new = clone(fitted)
    assert new.get_params() == fitted.get_params()
    assert new.schema == SCHEMA
    assert not new.__sklearn_is_fitted__()
    assert new.fit(tables()).privacy_ == fitted.privacy_
    # Seeded noise is the same for the same records.
    first, second = (s.one_way_marginals_[0].counts for s in (fitted, new))
    assert np.array_equal(first, second)


def test_numbers_of_rows_that_cannot_be_counted_are_refused():
    table = Table(Schema({"a": Categorical([0, 1])}), primary_key="id", max_rows=10**12)
    with pytest.raises(PublicValueError, match="max_rows of table 'rows' must be less than"):
        RelationalSampler(schema=table).plan(100)
