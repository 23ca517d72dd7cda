"""Every drawn table of persons and rows fulfils every rule, as a user of pandas sees it."""

import numpy as np
import pandas as pd
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import sklearn_dpgen
from sklearn_dpgen.schema import (
    Categorical,
    Datetime,
    FunctionalDependency,
    Implication,
    Inequality,
    Numeric,
    Ordinal,
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

DAY = pd.Timestamp("2020-01-01")
STATES = {"Bonn": "NW", "Trier": "RP"}


def dates():
    return Datetime(DAY, "2020-12-31", resolution="D")


HOSPITAL = RelationalSchema(
    {
        "patients": Table(Schema({"birth": dates()}), primary_key="patient"),
        "visits": Table(
            Schema(
                {
                    "admission": dates(),
                    "discharge": dates(),
                    "ward": Categorical(["x", "y", "z"]),
                    "drugs": Numeric(0, 4, integer=True),
                    "tests": Numeric(0, 4, integer=True, nullable=True),
                    "services": Numeric(0, 7, integer=True, nullable=True),
                    "city": Categorical([*STATES]),
                    "state": Categorical(["NW", "RP"]),
                }
            ),
            primary_key="visit",
            foreign_key={"patient": "patients"},
            sequence_index="admission",
            max_rows=3,
        ),
        "bills": Table(Schema({"paid": dates()}), foreign_key={"visit": "visits"}, max_rows=2),
    }
)
RULES = {
    "visits": [
        Inequality("patients.birth", "admission"),
        Inequality("admission", "discharge"),
        Inequality("previous.discharge", "admission"),
        Implication({"previous.ward": "x"}, then={"ward": ["x", "y"]}),
        Sum("services", ["drugs", "tests"]),
        FunctionalDependency("state", "city", STATES),
    ],
    "bills": [Inequality("visits.discharge", "paid"), Inequality("patients.birth", "paid")],
}


def hospital(n=400):
    """Return tables of which many rows break `RULES`."""
    rng = np.random.default_rng(0)
    patient = np.repeat(np.arange(n), rng.integers(0, 4, n))
    visit = np.repeat(np.arange(len(patient)), rng.integers(0, 3, len(patient)))
    m = len(patient)

    def days(size):
        return DAY + pd.to_timedelta(rng.integers(0, 366, size), unit="D")

    visits = {
        "visit": np.arange(m),
        "patient": patient,
        "admission": days(m),
        "discharge": days(m),
        "ward": rng.choice(["x", "y", "z"], m),
        "drugs": rng.integers(0, 5, m),
        "tests": np.where(rng.uniform(size=m) < 0.2, np.nan, rng.integers(0, 5, m)),
        "services": rng.integers(0, 8, m),
        "city": rng.choice([*STATES], m),
        "state": rng.choice(["NW", "RP"], m),
    }
    return {
        "patients": pd.DataFrame({"patient": np.arange(n), "birth": days(n)}),
        "visits": pd.DataFrame(visits),
        "bills": pd.DataFrame({"visit": visit, "paid": days(len(visit))}),
    }


def make(schema=HOSPITAL, constraints=RULES, **options):
    """Return a sampler that is fitted in a second."""
    options = {"population_size": 400, "max_iter": 4, "random_state": 0, "device": "cpu"} | options
    return RelationalSampler(np.inf, schema=schema, constraints=constraints, **options)


def n_broken(tables):
    """Return how many rows break each of `RULES`."""
    visits = tables["visits"].merge(tables["patients"], on="patient", validate="m:1")
    bills = tables["bills"].merge(visits, on="visit", validate="m:1")
    before = visits.groupby("patient").shift(1)
    total = visits["drugs"] + visits["tests"]
    wrong = (visits["services"] != total) & ~(visits["services"].isna() & total.isna())
    broken = [
        visits["birth"] > visits["admission"],
        visits["admission"] > visits["discharge"],
        before["discharge"] > visits["admission"],
        (before["ward"] == "x") & (visits["ward"] == "z"),
        wrong,
        visits["city"].map(STATES) != visits["state"],
        bills["discharge"] > bills["paid"],
        bills["birth"] > bills["paid"],
    ]
    return [int(mask.sum()) for mask in broken]


@pytest.fixture(scope="module")
def fitted():
    return make().fit(hospital())


@pytest.mark.slow
def test_rows_fulfil_rules_of_rows_parents_and_rows_before(fitted, monkeypatch):
    tables = fitted.sample(500, random_state=0)
    assert n_broken(tables) == [0] * 8
    assert len(tables["patients"]) == 500
    assert len(tables["visits"]) > 400 < len(tables["bills"])
    assert tables["visits"]["tests"].isna().any()
    assert 0 < fitted.acceptance_rate() < 1
    # The same rules are broken where they are not declared, and where nothing is checked.
    free = make(constraints=None).fit(hospital())
    assert free.acceptance_rate() == 1
    assert min(n_broken(free.sample(500, random_state=0))) > 10
    project = _person_rules.TableRules.project
    monkeypatch.setattr(_person_rules.TableRules, "project", lambda *args: project(*args) | True)
    careless = n_broken(fitted.sample(500, random_state=0))
    assert sum(careless) > 10


@pytest.mark.slow
def test_tables_keep_their_keys_sizes_order_and_declaration(fitted):
    tables = fitted.sample(300, random_state=1)
    again = fitted.sample(300, random_state=1)
    for name, frame in tables.items():
        pd.testing.assert_frame_equal(frame, again[name])
    for name, counts in HOSPITAL.check(tables).items():
        assert counts.to_numpy().sum() == 0, name
    assert tables["visits"].groupby("patient").size().max() == 3
    assert tables["visits"].groupby("patient")["admission"].is_monotonic_increasing.all()
    assert not tables["visits"].equals(fitted.sample(300, random_state=2)["visits"])


@pytest.mark.slow
def test_saved_samplers_keep_their_rules(fitted, tmp_path):
    fitted.save(tmp_path / "sampler.dpgen")
    loaded = sklearn_dpgen.load(tmp_path / "sampler.dpgen")
    assert loaded.constraints == RULES
    expected = fitted.sample(50, random_state=0)
    for name, frame in loaded.sample(50, random_state=0).items():
        pd.testing.assert_frame_equal(frame, expected[name])


@pytest.mark.slow
def test_private_rows_that_break_rules_are_counted_as_they_are(fitted):
    def released(sampler):
        marginals = [*sampler.one_way_marginals_, *sampler.marginals_]
        return np.concatenate([marginal.counts.ravel() for marginal in marginals])

    given = hospital()
    free = released(make(constraints=None).fit(given))
    np.testing.assert_array_equal(released(fitted), free)
    # Rows that are put right before they are counted would be seen.
    visits = given["visits"]
    visits["discharge"] = visits[["admission", "discharge"]].max(axis=1)
    other = released(make(constraints=None).fit(given))
    assert len(other) != len(free) or not np.allclose(other, free)


def test_rows_follow_an_index_of_labels():
    labels = [0, 0.5, 10]
    panel = Table(
        Schema({"when": Ordinal(labels), "x": Numeric(0, 3, integer=True)}),
        primary_key="id",
        sequence_index="when",
        max_rows=3,
        ties=False,
    )
    rng = np.random.default_rng(0)
    frame = pd.DataFrame(
        {
            "id": np.repeat(np.arange(200), 2),
            "when": np.concatenate([rng.choice(labels, 2, replace=False) for _ in range(200)]),
            "x": rng.integers(0, 4, 400),
        }
    )
    drawn = make(panel, [Inequality("previous.x", "x")]).fit(frame).sample(200, random_state=0)
    steps = drawn.groupby("id")["when"].diff().dropna()
    assert len(steps) > 100
    assert (steps > 0).all()
    assert not (drawn.groupby("id")["x"].diff() < 0).any()


def test_computed_values_are_those_that_later_rows_follow():
    # The balance is that of the row before and the amount: a running total.
    panel = Table(
        Schema(
            {
                "year": Numeric(2000, 2005, integer=True),
                "amount": Numeric(0, 3, integer=True),
                "balance": Numeric(0, 20, integer=True),
            }
        ),
        primary_key="id",
        sequence_index="year",
        max_rows=4,
    )
    rng = np.random.default_rng(0)
    frame = pd.DataFrame(
        {
            "id": np.repeat(np.arange(300), 3),
            "year": rng.integers(2000, 2006, 900),
            "amount": rng.integers(0, 4, 900),
            "balance": rng.integers(0, 21, 900),
        }
    )
    rule = Sum("balance", ["previous.balance", "amount"])
    drawn = make(panel, [rule]).fit(frame).sample(300, random_state=0)
    before = drawn.groupby("id")["balance"].shift(1)
    later = before.notna()
    assert later.sum() > 300
    assert (drawn["balance"] == before + drawn["amount"])[later].all()
    assert drawn["balance"][~later].nunique() > 10


@st.composite
def panels(draw):
    """Return a panel with rules, and private rows that may break them."""
    high = draw(st.integers(1, 5))
    is_date, ties = draw(st.booleans()), draw(st.booleans())
    index = (
        Datetime(DAY, DAY + pd.Timedelta(days=9), resolution="D")
        if is_date
        else Numeric(0, 9, integer=True)
    )
    number = Numeric(0, high, integer=True, nullable=draw(st.booleans()))
    schema = Schema(
        {
            "base": Numeric(0, high, integer=True),
            "at": index,
            "low": number,
            "top": Numeric(0, high, integer=True),
            "state": Categorical(["a", "b"]),
        }
    )
    rules = draw(
        st.lists(
            st.sampled_from(
                [
                    Inequality("base", "low"),
                    Inequality("low", "top"),
                    Inequality("previous.low", "low"),
                    Inequality("previous.top", "top"),
                    Implication({"previous.state": "b"}, then={"state": "b"}),
                    Implication({"state": "b"}, then={"top": high}),
                ]
            ),
            min_size=1,
            unique_by=str,
        )
    )
    panel = Table(
        schema,
        primary_key="id",
        sequence_index="at",
        max_rows=draw(st.integers(2, 4)),
        static=["base"],
        ties=ties,
    )
    rng = np.random.default_rng(draw(st.integers(0, 99)))
    ids = np.repeat(np.arange(60), 3)
    steps = np.concatenate([rng.choice(10, 3, replace=False) for _ in range(60)])
    frame = pd.DataFrame(
        {
            "id": ids,
            "base": rng.integers(0, high + 1, 60)[ids],
            "at": DAY + pd.to_timedelta(steps, unit="D") if is_date else steps,
            "low": rng.integers(0, high + 1, 180),
            "top": rng.integers(0, high + 1, 180),
            "state": rng.choice(["a", "b"], 180),
        }
    )
    return panel, rules, frame


def breaks(frame, rule):
    """Return whether some row of a panel breaks a rule."""
    before = frame.groupby("id").shift(1).add_prefix("previous.")
    whole = pd.concat([frame, before], axis=1)
    if isinstance(rule, Inequality):
        return bool((whole[rule.low] > whole[rule.high]).any())
    ((given_name, value),), ((then_name, other),) = rule.given.items(), rule.then.items()
    return bool(((whole[given_name] == value) & (whole[then_name] != other)).any())


@pytest.mark.slow
@settings(max_examples=10, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(panels())
def test_panels_fulfil_all_rules(case):
    panel, rules, frame = case
    assert any(breaks(frame.sort_values(["id", "at"]), rule) for rule in rules)
    sampler = make(panel, rules, population_size=100).fit(frame)
    drawn = sampler.sample(100, random_state=0)
    assert not [rule for rule in rules if breaks(drawn, rule)]
    counts = RelationalSchema({"rows": panel}).check({"rows": drawn})["rows"]
    assert counts.to_numpy().sum() == 0
    assert drawn.groupby("id")["at"].is_monotonic_increasing.all()


@pytest.mark.parametrize(
    ("constraints", "message"),
    [
        ([Inequality("admission", "discharge")], "constraints must map tables to rules, got list"),
        ({"cases": []}, "constraints must name tables among .*'bills'.*, got 'cases'"),
        ({"visits": Inequality("a", "b")}, "list of rules for each table, got Inequality"),
        ({"visits": ["a"]}, r"Table 'visits': constraints\[0\] must be a rule, got str"),
        (
            {"visits": [Inequality("patients.death", "admission")]},
            r"Table 'visits': constraints\[0\], Inequality must name columns .* 'patients.death'",
        ),
        (
            {"bills": [Inequality("previous.paid", "paid")]},
            "Table 'bills': .* table with sequence_index, got 'previous.paid'",
        ),
        (
            {"bills": [FunctionalDependency("visits.state", "visits.city", STATES)]},
            "must compute columns of the row itself .*, got 'visits.state'",
        ),
        ({"patients": [Inequality("visits.admission", "birth")]}, "'visits.admission'"),
    ],
)
def test_errors_name_the_table_and_the_rule(constraints, message):
    with pytest.raises(ValueError, match=message):
        make(constraints=constraints).plan(100)


def test_rules_of_static_columns_are_of_the_person():
    panel = Table(
        Schema(
            {
                "born": Numeric(0, 5, integer=True),
                "moved": Numeric(0, 5, integer=True),
                "value": Numeric(0, 5, integer=True),
            }
        ),
        primary_key="id",
        max_rows=3,
        static=["born", "moved"],
    )
    rng = np.random.default_rng(0)
    ids = np.repeat(np.arange(200), 2)
    born, moved = rng.integers(0, 6, (2, 200))
    frame = pd.DataFrame(
        {"id": ids, "born": born[ids], "moved": moved[ids], "value": rng.integers(0, 6, 400)}
    )
    rules = [Inequality("born", "moved"), Inequality("moved", "value")]
    drawn = make(panel, rules).fit(frame).sample(200, random_state=0)
    assert ((drawn["born"] <= drawn["moved"]) & (drawn["moved"] <= drawn["value"])).all()
    assert (drawn.groupby("id")[["born", "moved"]].nunique() == 1).all(axis=None)
    with pytest.raises(ValueError, match=r"Table 'rows': constraints\[1\], .* below itself"):
        make(panel, [rules[0], Inequality("moved", "born", strict=True)]).plan(100)
    with pytest.raises(ValueError, match="with sequence_index, got 'previous.value'"):
        make(panel, [Inequality("previous.value", "value")]).plan(100)
    with pytest.raises(ValueError, match="columns of the row itself .*, got 'born'"):
        make(panel, [FunctionalDependency("born", "value", {0: 0, 1: 1})]).plan(100)


@pytest.mark.slow
def test_rules_that_hardly_any_person_fulfils_are_reported():
    panel = Table(
        Schema({"year": Numeric(2000, 2009, integer=True), "value": Numeric(0, 1)}),
        primary_key="id",
        sequence_index="year",
        max_rows=3,
    )
    rng = np.random.default_rng(0)
    frame = pd.DataFrame(
        {
            "id": np.repeat(np.arange(200), 2),
            "year": np.tile([2000, 2001], 200),
            "value": rng.uniform(0, 1, 400),
        }
    )
    free = make(panel, None).fit(frame)
    # Each person has two rows whose values are one, which is never drawn.
    never = [Implication({"year": [2000, 2001]}, then={"value": 1.0})]
    with pytest.raises(ValueError, match="fulfilled by 0 of .* drawn persons, fewer than one in"):
        free.set_params(constraints=never).sample(10, random_state=0)
