"""Persons and their first rows fulfil conditions, with the probabilities of rejection sampling."""

import numpy as np
import pandas as pd
import pytest

from sklearn_dpgen.schema import (
    Categorical,
    Implication,
    Inequality,
    Numeric,
    RelationalSchema,
    Schema,
    Sum,
    Table,
)
from sklearn_dpgen.tables import RelationalSampler, _person_rules

pytestmark = [
    pytest.mark.filterwarnings("ignore::sklearn_dpgen.exceptions.NoisyCountsWarning"),
    pytest.mark.filterwarnings("ignore:.* max_rows=:UserWarning"),
]

ROWS = Schema(
    {
        "day": Numeric(0, 99, integer=True),
        "department": Categorical(["heart", "eye", "skin"]),
        "cost": Numeric(0, 1000),
    }
)
TREE = RelationalSchema(
    {
        "patients": Table(
            Schema({"sex": Categorical(["f", "m"]), "age": Numeric(0, 90, integer=True)}),
            primary_key="patient",
        ),
        "visits": Table(
            ROWS,
            primary_key="visit",
            foreign_key={"patient": "patients"},
            sequence_index="day",
            max_rows=4,
        ),
        "drugs": Table(
            Schema({"drug": Categorical(["a", "b"])}), foreign_key={"visit": "visits"}, max_rows=2
        ),
    }
)


def tables(n=1500):
    """Return persons of whom women go to the eye department first, and half of the others do."""
    rng = np.random.default_rng(0)
    sizes = rng.integers(0, 4, n)
    patient = np.repeat(np.arange(n), sizes)
    sex = rng.choice(["f", "m"], n)
    department = rng.choice(["heart", "eye", "skin"], len(patient), p=[0.3, 0.3, 0.4])
    department[(sex[patient] == "f") & (rng.uniform(size=len(patient)) < 0.8)] = "eye"
    return {
        "patients": pd.DataFrame(
            {"patient": np.arange(n), "sex": sex, "age": rng.integers(0, 91, n)}
        ),
        "visits": pd.DataFrame(
            {
                "visit": np.arange(len(patient)),
                "patient": patient,
                "day": rng.integers(0, 100, len(patient)),
                "department": department,
                "cost": rng.uniform(0, 1000, len(patient)),
            }
        ),
        "drugs": pd.DataFrame(
            {"visit": np.arange(len(patient)), "drug": rng.choice(["a", "b"], len(patient))}
        ),
    }


def make(schema=TREE, constraints=None):
    return RelationalSampler(
        np.inf,
        schema=schema,
        constraints=constraints,
        population_size=1000,
        max_iter=8,
        random_state=0,
        device="cpu",
    )


@pytest.fixture(scope="module")
def fitted():
    return make().fit(tables())


def first_rows(drawn):
    first = drawn["visits"].groupby("patient", as_index=False).first()
    return first.merge(drawn["patients"], on="patient")


def test_conditions_on_persons_hold_and_leave_the_rows_as_they_are(fitted):
    conditions = {"patients": {"sex": "f", "age": [pd.Interval(20, 30), 64]}}
    drawn = fitted.sample(2000, conditions=conditions, random_state=0)
    persons = drawn["patients"]
    assert len(persons) == 2000
    assert (persons["sex"] == "f").all()
    assert (persons["age"].between(21, 30) | (persons["age"] == 64)).all()
    # Persons without rows remain, and women still go to the eye department.
    assert 300 < persons["patient"].isin(drawn["visits"]["patient"]).sum() < 1900
    assert (drawn["visits"]["department"] == "eye").mean() > 0.7
    for name, counts in TREE.check(drawn).items():
        assert counts.to_numpy().sum() == 0, name


@pytest.mark.parametrize(
    ("conditions", "holds"),
    [
        ({"department": "heart"}, lambda row: row["department"] == "heart"),
        ({"day": pd.Interval(10, 12, closed="both")}, lambda row: row["day"].between(10, 12)),
        ({"day": [5, 50]}, lambda row: row["day"].isin([5, 50])),
        (
            {"cost": pd.Interval(100, 110), "department": ["eye", "skin"]},
            lambda row: row["cost"].between(100, 110) & (row["department"] != "heart"),
        ),
    ],
)
def test_conditions_on_a_child_table_hold_for_the_first_row(fitted, conditions, holds):
    drawn = fitted.sample(300, conditions={"visits": conditions}, random_state=0)
    first = first_rows(drawn)
    assert len(first) == len(drawn["patients"]) == 300
    assert holds(first).all()
    # Later rows are free.
    assert not holds(drawn["visits"]).all()
    for name, counts in TREE.check(drawn).items():
        assert counts.to_numpy().sum() == 0, name


@pytest.mark.slow
def test_persons_have_the_probabilities_of_rejection_sampling(fitted):
    free = first_rows(fitted.sample(30_000, random_state=0))
    kept = free[free["department"] == "heart"]
    drawn = fitted.sample(2000, conditions={"visits": {"department": "heart"}}, random_state=1)
    found, wanted = (one["sex"].eq("f").mean() for one in (drawn["patients"], kept))
    noise = 5 * np.sqrt(wanted * (1 - wanted) * (1 / 2000 + 1 / len(kept)))
    assert abs(found - wanted) < noise
    # Without weights, women would be as frequent as they are in the population.
    assert abs(free["sex"].eq("f").mean() - wanted) > 2 * noise


@pytest.mark.slow
def test_conditions_and_rules_hold_together():
    rule = Inequality("patients.age", "day")
    sampler = make(constraints={"visits": [rule]}).fit(tables())
    drawn = sampler.sample(
        200,
        conditions={"patients": {"sex": "m"}, "visits": {"department": "heart"}},
        random_state=0,
    )
    rows = drawn["visits"].merge(drawn["patients"], on="patient")
    assert (rows["age"] <= rows["day"]).all()
    assert (rows["sex"] == "m").all()
    assert (first_rows(drawn)["department"] == "heart").all()
    assert 0 < sampler.acceptance_rate({"patients": {"sex": "m"}}) <= 1


def test_conditions_on_panels_hold_for_persons_and_first_rows():
    panel = Table(
        Schema({"sex": Categorical(["f", "m"]), **ROWS}),
        primary_key="id",
        sequence_index="day",
        max_rows=4,
        static=["sex"],
    )
    given = tables()
    frame = given["visits"].merge(given["patients"], on="patient").rename(columns={"patient": "id"})
    sampler = make(panel).fit(frame[["id", *panel.schema]])
    drawn = sampler.sample(
        200, conditions={"sex": "m", "department": "skin", "day": 7}, random_state=0
    )
    first = drawn.groupby("id").first()
    assert len(first) == 200
    assert (drawn["sex"] == "m").all()
    assert (first["department"] == "skin").all()
    assert (first["day"] == 7).all()
    assert drawn["department"].nunique() == 3


@pytest.mark.slow
def test_a_panel_of_a_relational_schema_is_named():
    panel = Table(ROWS, primary_key="id", sequence_index="day", max_rows=4)
    frame = tables(300)["visits"].rename(columns={"patient": "id"})[["id", *ROWS]]
    conditions, rule = {"department": "skin"}, Inequality("day", "cost")
    drawn = [
        make(schema, rules).fit(frame).sample(50, conditions=given, random_state=0)
        for schema, rules, given in (
            (panel, [rule], conditions),
            (RelationalSchema({"rows": panel}), {"rows": [rule]}, {"rows": conditions}),
        )
    ]
    pd.testing.assert_frame_equal(*drawn)
    assert (drawn[0]["day"] <= drawn[0]["cost"]).all()
    assert (drawn[0].groupby("id")["department"].first() == "skin").all()


def test_a_small_effective_size_is_reported(fitted, monkeypatch):
    conditions = {"visits": {"department": "heart"}}
    # Most of the persons in whom the condition is likely are drawn, and no more than 5000.
    monkeypatch.setattr(_person_rules, "_FEW", 5000)
    with pytest.warns(UserWarning, match=r"Conditions on \['department'\] have an effective size"):
        fitted.sample(2, conditions=conditions, random_state=0)


def test_draws_are_reproducible(fitted):
    conditions = {"visits": {"department": "heart"}}
    one, same, other = (fitted.sample(50, conditions=conditions, random_state=s) for s in (0, 0, 1))
    pd.testing.assert_frame_equal(one["visits"], same["visits"])
    assert not one["visits"].equals(other["visits"])


@pytest.mark.parametrize(
    ("conditions", "message"),
    [
        ("f", "conditions must map tables to mappings of columns, got str"),
        ({"sex": "f"}, "conditions must name tables among .*, got 'sex'"),
        ({"patients": "f"}, "conditions must map columns to values, got str"),
        ({"patients": {"name": "f"}}, "Table 'patients': conditions must name columns .* 'name'"),
        ({"patients": {"sex": "x"}}, "Table 'patients': "),
        ({"drugs": {"drug": "a"}}, "Table 'drugs': .* tables whose parent is the root"),
        ({"visits": {"day": 3.5}}, "Table 'visits': conditions on 'day' must hold declared values"),
    ],
)
def test_errors_name_the_table_and_the_column(fitted, conditions, message):
    with pytest.raises(ValueError, match=message):
        fitted.sample(2, conditions=conditions)


def test_computed_columns_are_refused():
    schema = Table(
        Schema(
            {
                "a": Numeric(0, 2, integer=True),
                "b": Numeric(0, 2, integer=True),
                "sum": Numeric(0, 4, integer=True),
            }
        ),
        primary_key="id",
        max_rows=2,
    )
    frame = pd.DataFrame({"id": range(50), "a": 1, "b": 1, "sum": 2})
    sampler = make(schema, [Sum("sum", ["a", "b"])]).fit(frame)
    with pytest.raises(ValueError, match="must not name columns that constraints compute.*'sum'"):
        sampler.sample(2, conditions={"sum": 2})


@pytest.mark.slow
def test_impossible_conditions_are_reported():
    rule = Implication({"patients.sex": "f"}, then={"department": "eye"})
    sampler = make(constraints={"visits": [rule]}).fit(tables(200))
    conditions = {"patients": {"sex": "f"}, "visits": {"department": "heart"}}
    with pytest.raises(ValueError, match=r"conditions on \['sex', 'department'\] are impossible"):
        sampler.sample(2, conditions=conditions)
