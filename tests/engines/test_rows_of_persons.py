"""Rows of persons in tables of the engines, scattered over partitions."""

import numpy as np
import pandas as pd
import pytest

from sklearn_dpgen.preprocessing import TabularEncoder
from sklearn_dpgen.schema import Categorical, RelationalSchema, Schema, Table
from sklearn_dpgen.tables import RelationalSampler
from sklearn_dpgen.tables._person_rows import read_person_rows, stages_of

SCHEMA = RelationalSchema(
    {
        "persons": Table(Schema({"who": Categorical(list(range(7)))}), primary_key="person"),
        "visits": Table(
            Schema({"day": Categorical([0, 1, 2])}), foreign_key={"person": "persons"}, max_rows=9
        ),
    }
)
STAGES = stages_of(SCHEMA)
ENCODERS = [TabularEncoder(Schema(stage.columns)).fit() for stage in STAGES]


def tables(key=str):
    rng = np.random.default_rng(0)
    who, visitors = rng.permutation(7), rng.integers(0, 9, 60)
    return {
        "persons": pd.DataFrame({"person": [key(i) for i in who], "who": who}),
        "visits": pd.DataFrame(
            {"day": rng.integers(0, 3, 60), "person": [key(i) for i in visitors]}
        ),
    }


def parts(given):
    """Return the codes and weights of the rows of each person, in their order."""
    persons, visits = read_person_rows(given, STAGES, ENCODERS)
    found = {}
    for row, who in enumerate(persons.codes[0]):
        own = visits.parent == row
        found[int(who)] = visits.codes[0][own].tolist(), visits.weights[own].tolist()
    return found


@pytest.mark.slow
@pytest.mark.parametrize("key", [str, int])
def test_engines_give_the_rows_of_frames(make_table, key):
    given = tables(key)
    expected = parts(given)
    assert len(expected) == 7
    assert parts({n: make_table(frame, 4) for n, frame in given.items()}) == expected


@pytest.mark.slow
def test_engines_give_the_counts_of_frames(make_table):
    settings = {"population_size": 20, "max_iter": 1, "random_state": 0}
    sampler = RelationalSampler(np.inf, schema=SCHEMA, **settings)
    given = tables(int)
    expected = sampler.fit(given).one_way_marginals_
    given["visits"] = make_table(given["visits"], 3)
    found = sampler.fit(given).one_way_marginals_
    for one, other in zip(found, expected, strict=True):
        assert one.columns == other.columns
        np.testing.assert_allclose(one.counts, other.counts, rtol=0, atol=1e-9)
    # The twin: a row less is other counts.
    given["visits"] = tables(int)["visits"][1:]
    found = sampler.fit(given).one_way_marginals_
    assert any((a.counts != b.counts).any() for a, b in zip(found, expected, strict=True))
    assert isinstance(sampler.sample(2)["visits"], pd.DataFrame)


@pytest.mark.slow
def test_faults_on_workers_name_the_table(make_table):
    given = tables()
    given["visits"] = make_table(given["visits"].assign(day=5), 3)
    with pytest.raises(ValueError, match="Table 'visits': Column 'day' holds a value outside"):
        parts(given)
