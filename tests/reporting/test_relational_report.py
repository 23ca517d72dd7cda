"""A report of tables with keys has the figures of each table, and keeps persons together."""

import json
import re

import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from relational_tables import SCHEMA, fitted, shuffled, tables
from test_quality_report import PRIVACY, check_page, forced, marks_of  # noqa: F401  # a fixture

from sklearn_dpgen.metrics import row_distances
from sklearn_dpgen.reporting import QualityReport, model_card
from sklearn_dpgen.reporting._measures import detection_auc
from sklearn_dpgen.reporting._quality_report import report_on_rows
from sklearn_dpgen.reporting._released import Released
from sklearn_dpgen.reporting._row_measures import (
    measure_released_tables,
    row_view,
    sample_persons,
)
from sklearn_dpgen.reporting._verdict import predictability
from sklearn_dpgen.schema import Categorical, Inequality, Numeric, RelationalSchema, Schema, Table

pytest.importorskip("matplotlib")


@pytest.fixture(scope="module")
def sampler():
    return fitted()


@pytest.fixture(scope="module")
def report():
    return QualityReport(tables(), tables(seed=1), schema=SCHEMA, privacy=PRIVACY, target="ward")


@pytest.mark.slow
def test_the_page_has_the_sections_of_each_table_and_none_is_private(report):
    page = check_page(report.to_html())
    sections = {key.partition("-")[2].partition("-")[2] for key in page.marks if key is not None}
    assert sections >= {"columns", "pairs", "rows", "transitions", "trajectories", "downstream"}
    raw = {key for key in page.marks if key and key.startswith("table-")}
    assert {page.marks[key][0] for key in raw} == {"not private"}
    assert {key[:8] for key in raw} == {"table-0-", "table-1-"}
    assert "table-0-rows" not in raw
    assert not report.is_private
    assert "visits: The numbers of rows of a person" in " ".join(report.to_dict()["words"])
    json.dumps(report.to_dict()["figures"], allow_nan=False)


def joined(given):
    names = {"id": "key", "age": "patients.age", "sex": "patients.sex"}
    return (
        given["patients"].rename(columns=names)
        .merge(given["visits"], how="left", left_on="key", right_on="patient")
    )  # fmt: skip


@pytest.mark.slow
def test_the_distances_are_those_of_the_metric(report):
    static = {f"patients.{n}": c for n, c in SCHEMA["patients"].schema.items()}
    expected = row_distances(
        joined(tables()),
        joined(tables(seed=1)),
        Schema(static | dict(SCHEMA["visits"].schema)),
        person="key",
        index="day",
        static=[*static],
    )
    rows = report.to_dict()["figures"]["tables"]["visits"]["persons"]
    found = {name: distance for name, distance, _ in rows["distances"]}
    assert found == pytest.approx(dict(expected), nan_ok=True)
    assert sum(rows["sizes"]["real"]) == pytest.approx(1)


@pytest.mark.slow
def test_transitions_are_conditional_shares_and_worse_tables_are_worse():
    real = tables()
    measures = [
        QualityReport(real, other, schema=SCHEMA).to_dict()["figures"]["tables"]["visits"]
        for other in (real, shuffled(real))
    ]
    same, moved = ({n: d for n, d, _ in part["persons"]["distances"]} for part in measures)
    assert max(same.values()) == 0
    assert moved["transitions"] > 0.1
    assert moved["sizes"] == 0
    (ward,) = (t for t in measures[0]["persons"]["transitions"] if t["name"] == "ward")
    visits = real["visits"].sort_values(["patient", "day"], kind="stable")
    after = visits.groupby("patient")["ward"].shift(-1)
    expected = pd.crosstab(visits["ward"], after, normalize="index")
    np.testing.assert_allclose(ward["real"], expected, atol=0.02)
    # Rows of a day are in another order.
    np.testing.assert_allclose(np.sum(ward["real"], axis=1), 1)


@pytest.mark.slow
@settings(max_examples=25, deadline=None)
@given(seed=st.integers(0, 99), most=st.integers(2, 500))
def test_a_person_is_drawn_with_all_rows_or_none(seed, most):
    real = tables(40, seed)
    # A row of a patient who is not in the table of patients.
    real["visits"].loc[0, "patient"] = 10**6
    frames, persons = sample_persons(real, SCHEMA, most, seed)
    kept = frames["patients"]["id"]
    assert kept.is_unique
    assert (np.diff(persons["visits"]) >= 0).all()
    expected = real["visits"]["patient"].isin(kept).sum()
    assert len(frames["visits"]) == expected
    assert len(kept) == 2 or max(len(kept), expected) <= most


@pytest.mark.slow
def test_many_rows_are_drawn_by_person_and_the_page_says_so():
    report = QualityReport(tables(), tables(seed=1), schema=SCHEMA, max_rows=100)
    assert "real rows of visits, of random persons" in report.to_html()


@pytest.mark.slow
def test_the_classifier_holds_out_persons():
    """Two samples of one distribution, whose persons are recognized by their rows."""
    rng = np.random.default_rng(0)
    person = np.repeat(np.arange(60), 10)
    schema = Schema({name: Numeric(0, 1) for name in "ab"})
    frames = [pd.DataFrame({name: rng.uniform(size=60)[person] for name in "ab"}) for _ in range(2)]
    options = {"most": 1000, "random_state": 0}
    assert detection_auc(*frames, schema, **options) > 0.9
    assert 0.3 < detection_auc(*frames, schema, persons=(person, person), **options) < 0.7


@pytest.mark.slow
def test_a_page_of_releases_shows_synthetic_persons_alone(sampler):
    report = QualityReport.from_estimator(sampler, n_samples=100)
    page = check_page(report.to_html())
    assert report.is_private
    assert marks_of(page) == {"differentially private: may be published"}
    assert {"table-1-rows", "table-1-transitions", "table-1-trajectories"} <= page.marks.keys()
    found = report.to_dict()["figures"]["tables"]
    assert {c["name"] for c in found["visits"]["columns"]} == {"day", "ward", "pressure"}
    assert set(found["visits"]["marginals"]) == {"1", "2"}
    assert "real" not in found["visits"]["persons"]["trajectories"][0]


RULES = {
    "visits": [Inequality("patients.age", "pressure"), Inequality("previous.pressure", "pressure")]
}


def verdict_of(estimator, drawn=None, n_samples=300):
    if drawn is None:
        content = QualityReport.from_estimator(estimator, n_samples=n_samples).to_dict()
    else:
        content = report_on_rows(estimator, drawn, seed=0).to_dict()
    tables = content["figures"]["tables"]
    return content["verdict"], {n: t.get("rules") for n, t in tables.items()}, tables


@pytest.mark.slow
def test_the_verdict_of_each_table_has_counts_models_and_rules():
    sampler = fitted(epsilon=100.0, target=["visits.ward", "patients.sex"], constraints=RULES)
    verdict, rules, tables = verdict_of(sampler)
    assert [rule["synthetic"] for rule in rules["visits"]] == [0, 0]
    assert any("patients.age ≤ pressure; previous.pressure ≤ pressure" in t for t in verdict["fit"])
    assert tables["patients"]["rows_per_unit"] == 1
    assert tables["visits"]["rows_per_unit"] > 2
    text = "\n".join(verdict["not_fit"])
    assert re.search(r"patients: Counts of rows below \d+ of one column", text)
    assert re.search(r"visits: Counts of rows below about \d+ of one column", text)
    both = "\n".join([*verdict["fit"], *verdict["not_fit"]])
    assert re.search(r"visits: Models of ward: .* a constant predictor scores 0.500", both)
    assert re.search(r"patients: Models of sex: .* a constant predictor scores 0.500", both)
    # What holds for both tables is stated once.
    assert text.count("Statements about single persons") == 1
    words = QualityReport.from_estimator(sampler, n_samples=100).to_dict()["words"]
    assert any(w.startswith("visits: A constant predictor of ward that always") for w in words)


@pytest.mark.slow
def test_rules_that_rows_of_tables_break_are_counted():
    sampler, broken = fitted(constraints=RULES), tables()
    visits = broken["visits"].sort_values(["patient", "day"], kind="stable")
    _, rules, _ = verdict_of(sampler, broken)
    age = visits["patient"].map(broken["patients"].set_index("id")["age"])
    pressure = visits["pressure"]
    before = pressure.groupby(visits["patient"]).shift()
    # A rule with a null holds.
    expected = [(age > pressure).mean(), (before > pressure).mean()]
    assert [rule["synthetic"] for rule in rules["visits"]] == pytest.approx(expected)
    assert expected[1] > 0.2


@pytest.mark.slow
def test_models_are_tested_on_rows_of_other_persons():
    schema = Schema({"x": Numeric(0, 1), "y": Categorical([0, 1])})
    rng, persons = np.random.default_rng(0), np.repeat(np.arange(150), 20)
    rows = pd.DataFrame(
        {"x": rng.uniform(size=150)[persons], "y": rng.integers(2, size=150)[persons]}
    )
    found = predictability(rows, schema, "y", 0, persons)
    assert abs(found["model"] - 0.5) < 0.15
    # The twin: rows of one person in both halves reveal the label.
    assert predictability(rows, schema, "y", 0)["model"] > 0.9


@pytest.mark.slow
def test_counts_of_rows_that_no_person_has_are_below_the_least_count():
    columns = dict(SCHEMA["visits"].schema) | {"ward": Categorical(["a", "b", "never"])}
    visits = Table(
        Schema(columns), foreign_key={"patient": "patients"}, sequence_index="day", max_rows=8
    )
    schema = RelationalSchema({"patients": SCHEMA["patients"], "visits": visits})
    found, limits = [], []
    for i in range(4):
        sampler = fitted(tables(1500), epsilon=2.0, schema=schema, random_state=i)
        drawn = sampler.sample(200, random_state=0)
        limits.append(verdict_of(sampler, drawn)[2]["visits"]["least_counts"]["of one column"])
        found.append(int((drawn["visits"]["ward"] == "never").sum()))
    assert all(count < limit for count, limit in zip(found, limits, strict=True))
    # The twin: without a limit, noise would be read as rows.
    assert any(found)


class Watched:
    """Has nothing but the released attributes, and draws what it is told."""

    def __init__(self, estimator, drawn):
        self._inner = {n: getattr(estimator, n) for n in Released.names if hasattr(estimator, n)}
        self._drawn = drawn

    def __getattr__(self, name):
        if name.startswith("_"):
            raise AttributeError(name)
        return self._inner[name]

    def sample(self, n_samples, random_state):
        return self._drawn


def distances(drawn):
    sampler = fitted(epsilon=np.inf, random_state=0)
    found = measure_released_tables(Released(Watched(sampler, drawn)), 200, 0)["tables"]
    singles = [c["distance"] for part in found.values() for c in part["columns"]]
    pairs = [m[1] for part in found.values() for m in part["marginals"][2]["worst"]]
    return np.array(singles + pairs)


@pytest.mark.slow
def test_counts_without_noise_are_those_of_weighted_rows():
    assert (distances(tables()) < 1e-6).all()
    # Rows that do not weigh one over the number of their person's.
    doubled = tables()
    visits = doubled["visits"]
    extra = visits[visits["pressure"] > 150]
    doubled["visits"] = pd.concat([visits, extra], ignore_index=True)
    assert distances(doubled).max() > 0.01


def keep(estimator, given):
    pass


def leak(estimator, given):
    estimator.n_records_ = float(given["patients"]["age"].sum())


@pytest.mark.slow
@pytest.mark.usefixtures("forced")
@pytest.mark.parametrize(("change", "is_same"), [(keep, True), (leak, False)])
def test_a_page_of_releases_is_the_same_for_all_records(change, is_same):
    pages, cards = [], []
    for frames in (tables(), tables(seed=1)):
        estimator = fitted(frames, random_state=0, population_size=60)
        change(estimator, frames)
        pages.append(QualityReport.from_estimator(estimator, n_samples=50).to_html())
        cards.append(model_card(estimator).to_json())
    assert (pages[0] == pages[1]) is is_same
    assert (cards[0] == cards[1]) is is_same


PANEL = Table(
    Schema(
        {
            "born": Numeric(1900, 2000, integer=True),
            "year": Numeric(1, 9, integer=True),
            "x": Categorical(["<b>", "$y$"], nullable=True),
        }
    ),
    primary_key="who",
    sequence_index="year",
    max_rows=9,
    static=["born"],
)


def panel(seed=0):
    rng = np.random.default_rng(seed)
    who = np.repeat(np.arange(60), 4)
    return pd.DataFrame(
        {
            "who": who,
            "born": rng.integers(1900, 2001, 60)[who],
            "year": rng.integers(1, 10, 240),
            "x": rng.choice(["<b>", "$y$", None], 240),
        }
    )


@pytest.mark.slow
def test_a_panel_is_one_table():
    report = QualityReport(panel(), panel(1), schema=PANEL)
    check_page(report.to_html())
    assert [*report.to_dict()["figures"]["tables"]] == ["rows"]


@pytest.mark.slow
def test_persons_with_one_row_on_one_day_have_a_picture():
    one = tables()
    one["visits"] = one["visits"].drop_duplicates("patient").assign(day=pd.Timestamp("2020-05-01"))
    check_page(QualityReport(one, one, schema=SCHEMA).to_html())


@pytest.mark.slow
def test_rows_without_order_have_sizes_and_no_transitions():
    columns = Schema({n: c for n, c in SCHEMA["visits"].schema.items() if n != "day"})
    child = Table(columns, foreign_key={"patient": "patients"}, max_rows=8)
    schema = RelationalSchema({"patients": SCHEMA["patients"], "<script>": child})
    frames = [
        {"patients": t["patients"], "<script>": t["visits"]} for t in (tables(), tables(seed=1))
    ]
    report = QualityReport(*frames, schema=schema)
    rows = report.to_dict()["figures"]["tables"]["<script>"]["persons"]
    assert "transitions" not in rows
    assert sum(rows["sizes"]["synthetic"]) == pytest.approx(1)
    check_page(report.to_html())


@pytest.mark.slow
def test_grandchildren_are_compared_within_their_parent():
    orders = Table(
        Schema({"paid": Categorical([0, 1])}),
        primary_key="order",
        foreign_key={"id": "people"},
        max_rows=3,
    )
    lines = Table(
        Schema({"price": Numeric(0, 9, integer=True)}), foreign_key={"of": "orders"}, max_rows=3
    )
    people = Table(Schema({"sex": Categorical(["f", "m"])}), primary_key="id")
    schema = RelationalSchema({"people": people, "orders": orders, "lines": lines})
    frames = []
    for seed in (0, 1):
        rng = np.random.default_rng(seed)
        frames.append(
            {
                "people": pd.DataFrame({"id": range(30), "sex": rng.choice(["f", "m"], 30)}),
                "orders": pd.DataFrame(
                    {"order": range(60), "id": np.arange(60) % 30, "paid": rng.integers(2, size=60)}
                ),
                "lines": pd.DataFrame(
                    {"of": np.arange(120) % 60, "price": rng.integers(10, size=120)}
                ),
            }
        )
    view = row_view({"real": frames[0]}, schema, "lines")
    assert view.static == ["orders.paid"]
    check_page(QualityReport(*frames, schema=schema).to_html())


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"real": {"patients": tables()["patients"]}}, r"real lacks the tables \['visits'\]"),
        ({"real": tables()["patients"]}, "real must be a mapping"),
        (
            {"real": tables() | {"visits": tables()["visits"].drop(columns="patient")}},
            r"Table 'visits' of real lacks the keys \['patient'\]",
        ),
        (
            {"synthetic": tables() | {"visits": tables()["visits"].iloc[:0]}},
            "Table 'visits' of synthetic has no rows",
        ),
        (
            {"synthetic": tables() | {"visits": tables()["visits"].assign(ward="z")}},
            "Table 'visits' of synthetic does not fit the schema: column 'ward' has undeclared",
        ),
        ({"target": "nothing"}, "target must be a column of a table"),
        ({"constraints": [Inequality("age", "day")]}, "constraints must be None"),
    ],
)
def test_errors_name_the_table(change, message):
    arguments = {"real": tables(), "synthetic": tables(), "schema": SCHEMA} | change
    with pytest.raises((TypeError, ValueError), match=message):
        QualityReport(arguments.pop("real"), arguments.pop("synthetic"), **arguments)


def test_a_card_states_the_person_first_then_tables_and_marginals(sampler):
    card = model_card(sampler)
    text = card.to_markdown()
    assert text.index("## Guarantee") < text.index("## Model") < text.index("## Table patients")
    assert "each person, who has one value in id of table patients, with all rows" in text
    assert "patient, of table patients" in text
    assert "at most 8 for each key" in text
    assert "visits.ward × number of visits" in text
    content = card.to_dict()
    assert [table["name"] for table in content["tables"]] == ["patients", "visits"]
    assert content["n_records"] == 200
    check_page(card.to_html())
