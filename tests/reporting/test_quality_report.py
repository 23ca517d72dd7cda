"""A quality report is one safe page, says what is not private, and is private where it says so."""

import json
import re
import sys
from html.parser import HTMLParser

import numpy as np
import pandas as pd
import pytest
from sklearn.exceptions import NotFittedError

import sklearn_dpgen
from sklearn_dpgen.accounting import GaussianProfile, PrivacyReport
from sklearn_dpgen.auditing import AuditResult
from sklearn_dpgen.mechanisms import GaussianMechanism
from sklearn_dpgen.mechanisms._sequence import GaussianSequenceRun
from sklearn_dpgen.metrics import marginal_total_variation
from sklearn_dpgen.reporting import QualityReport
from sklearn_dpgen.reporting._released import Released
from sklearn_dpgen.schema import Categorical, Datetime, Inequality, Numeric, Ordinal, Schema, Sum
from sklearn_dpgen.tables import TableSampler
from sklearn_dpgen.utils._html import environment
from sklearn_dpgen.utils._random import NoiseSource

pytest.importorskip("matplotlib")

SCHEMA = Schema(
    {
        "age": Numeric(0, 100, integer=True),
        "income": Numeric(0, 1000),
        "city": Categorical(["Bonn", "Trier", "Kiel"], nullable=True),
        "grade": Ordinal(["low", "mid", "high"]),
        "ill": Categorical(["no", "yes"]),
    }
)
PRIVACY = PrivacyReport(
    name="counts", events=(), epsilon=1.0, delta=1e-5, releases=((GaussianProfile(0.3), 1),)
)


def table(n=300, seed=0, shift=0):
    rng = np.random.default_rng(seed)
    age = rng.integers(20, 80, n)
    return pd.DataFrame(
        {
            "age": age,
            "income": rng.uniform(0, 500, n) + shift,
            "city": rng.choice(["Bonn", "Trier", None], n),
            "grade": rng.choice(["low", "mid", "high"], n, p=[0.7, 0.2, 0.1]),
            "ill": np.where(age + rng.normal(0, 10, n) > 55, "yes", "no"),
        }
    )


class Page(HTMLParser):
    """Collects what could run or fetch something, and the text of marks by section."""

    def __init__(self, text):
        super().__init__()
        self.tags, self.attributes, self.marks, self._section = [], [], {}, None
        self._in_mark = False
        self.feed(text)

    def handle_starttag(self, tag, attrs):
        self.tags.append(tag)
        self.attributes += attrs
        found = dict(attrs)
        if tag == "section":
            self._section = found["id"]
        self._in_mark = "badge" in (found.get("class") or "")

    def handle_data(self, data):
        if self._in_mark:
            self.marks.setdefault(self._section, []).append(data)
            self._in_mark = False


def check_page(text, most=2_000_000):
    """Return a page that is read, after what no page may have is not found in it."""
    assert len(text.encode("utf-8")) < most
    page = Page(text)
    assert not {"script", "iframe", "object", "embed", "link", "img", "form", "base"} & {*page.tags}
    for name, value in page.attributes:
        assert not name.startswith("on")
        assert name not in ("src", "action", "srcset")
        assert name != "href" or value.startswith("#")
        # A figure refers to its own markers, and holds a heat map as an image.
        assert name != "xlink:href" or value.startswith(("#", "data:image/png;base64,"))
    assert not re.search(r"@import|url\((?!#)", text)
    return page


def marks_of(page):
    return {mark for marks in page.marks.values() for mark in marks}


class Audit:
    """Stands in for what an audit returns."""

    is_violation = False

    def to_dict(self):
        return {"epsilon_lower": 0.9, "is_violation": self.is_violation}

    def to_text(self):
        return "epsilon at least 0.9   <with confidence>\nmethod   white-box"


class Violation(Audit):
    is_violation = True


@pytest.fixture(scope="module")
def report():
    return QualityReport(
        table(),
        table(seed=1),
        privacy=PRIVACY,
        schema=SCHEMA,
        target="ill",
        constraints=[Inequality("age", "income")],
        audit=Audit(),
    )


@pytest.mark.slow
def test_the_page_has_all_sections_and_marks_what_is_not_private(report, tmp_path):
    text = report.to_html(tmp_path / "report.html")
    assert (tmp_path / "report.html").read_text(encoding="utf-8") == text
    page = check_page(text)
    raw = ["columns", "pairs", "triples", "downstream", "detection", "distances", "rules"]
    assert {key: marks[0] for key, marks in page.marks.items() if key in raw} == dict.fromkeys(
        raw, "not private"
    )
    assert page.marks[None] == ["not private"]
    assert page.marks["certificate"] == ["differentially private: may be published"]
    mark, verdict = page.marks["audit"]
    assert mark == "not private"
    assert "no violation" in verdict
    assert not report.is_private


def test_its_figures_are_those_of_the_metrics(report):
    found = report.to_dict()
    json.dumps(found["figures"], allow_nan=False)
    for order in (1, 2, 3):
        expected = marginal_total_variation(
            table(), table(seed=1), SCHEMA, order=order, n_bins=20
        ).mean()
        assert found["figures"]["marginals"][str(order)]["mean"] == pytest.approx(expected)
    rule = found["figures"]["rules"][0]
    for name, seed in (("real", 0), ("synthetic", 1)):
        frame = table(seed=seed)
        assert rule[name] == pytest.approx((frame["age"] > frame["income"]).mean())
    assert found["audit"]["epsilon_lower"] == 0.9
    assert found["privacy"]["epsilon"] == 1.0


@pytest.mark.slow
def test_a_violation_is_said_so():
    report = QualityReport(table(60), table(60, 1), schema=SCHEMA, audit=Violation())
    page = check_page(report.to_html())
    assert page.marks["audit"][1] == "The audit found a violation of the claimed guarantee."


@pytest.mark.slow
def test_the_result_of_an_audit_is_shown():
    audit = AuditResult(
        estimator="TableSampler",
        method="white_box",
        epsilon_lower=0.97,
        mu_lower=0.26,
        confidence=0.95,
        claimed={"epsilon": 1.0, "delta": 1e-5, "mu": 0.27},
    )
    report = QualityReport(table(60), table(60, 1), schema=SCHEMA, audit=audit)
    assert "epsilon at least 0.97 of 1 claimed" in report.to_html()
    assert report.to_dict()["audit"]["ratio"] == pytest.approx(0.26 / 0.27)


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore:The synthetic target")
def test_a_worse_table_has_worse_figures():
    figures = [
        QualityReport(table(), other, schema=SCHEMA, target="ill").to_dict()["figures"]
        for other in (table(seed=1), table(seed=1, shift=300).assign(ill="no"))
    ]
    assert figures[0]["marginals"]["1"]["mean"] < figures[1]["marginals"]["1"]["mean"]
    assert figures[0]["detection"]["auc"] < figures[1]["detection"]["auc"]
    assert figures[0]["distances"]["sliced"] < figures[1]["distances"]["sliced"]


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore:The synthetic target")
def test_a_synthetic_target_of_one_class_scores_as_guessing_does():
    report = QualityReport(table(), table(seed=1).assign(ill="no"), schema=SCHEMA, target="ill")
    for _, synthetic, real in report.to_dict()["figures"]["downstream"]["models"]:
        assert synthetic == 0.5 < real


def test_rules_that_compute_columns_are_checked():
    schema = Schema({name: Numeric(0, 10) for name in "abc"})
    rng = np.random.default_rng(0)
    frame = pd.DataFrame(rng.uniform(0, 4, (50, 2)), columns=["a", "b"])
    real = frame.assign(c=frame["a"] + frame["b"])
    broken = real.assign(c=real["c"].where(real.index >= 10, 9.0))
    report = QualityReport(real, broken, schema=schema, constraints=[Sum("c", ["a", "b"])])
    (rule,) = report.to_dict()["figures"]["rules"]
    assert (rule["real"], rule["synthetic"]) == (0.0, 0.2)


def test_without_a_schema_columns_are_read_off_both_tables():
    n = 60
    real = table(n).assign(
        day=pd.date_range("2020-01-01", periods=n),
        constant=1,
        name=[f"a person {i}" for i in range(n)],
        flag=[True, False] * (n // 2),
        empty=None,
    )
    found = QualityReport(real, real.iloc[::-1]).to_dict()["figures"]
    assert {column["name"] for column in found["columns"]} == {*real} - {"constant", "empty"}
    assert found["marginals"]["1"]["mean"] == 0.0
    assert {"constant", "empty"} == set(found["left_out"])


def test_dates_and_nulls_are_shown():
    schema = Schema(
        {"day": Datetime("2020-01-01", "2021-01-01", nullable=True), "x": Numeric(0, 9)}
    )
    days = pd.Series(pd.date_range("2020-01-01", periods=90)).where(np.arange(90) % 3 > 0)
    frame = pd.DataFrame({"day": days, "x": np.arange(90) % 9})
    text = QualityReport(frame, frame, schema=schema).to_html()
    assert "null" in text
    assert "2020-03" in text


def test_figures_require_matplotlib_and_numbers_do_not(monkeypatch):
    monkeypatch.setitem(sys.modules, "matplotlib.pyplot", None)
    frame = pd.DataFrame({"x": ["a", "b"] * 10})
    report = QualityReport(frame, frame)
    assert report.to_dict()["figures"]["rows"]["real"] == 20
    assert "whole page" in report._repr_html_()
    with pytest.raises(ImportError, match=r"requires matplotlib: pip install .*\[reports\]"):
        report.to_html()


def test_other_frames_are_read():
    polars = pytest.importorskip("polars")
    frame = polars.DataFrame({"x": [1, 2, 3, 4] * 5, "y": ["a", "b"] * 10})
    assert QualityReport(frame, frame).to_dict()["figures"]["rows"]["real"] == 20


def test_a_single_column_is_enough():
    frame = pd.DataFrame({"x": ["a", "b"] * 10})
    check_page(QualityReport(frame, frame).to_html())


@pytest.mark.slow
def test_many_rows_are_drawn_from_and_the_page_says_so():
    report = QualityReport(table(500), table(400, 1), schema=SCHEMA, max_rows=200)
    figures = report.to_dict()["figures"]
    assert figures["compared"] == {"real": 200, "synthetic": 200}
    assert figures["rows"] == {"real": 500, "synthetic": 400}
    assert "It compares 200 real records" in report.to_html()


@pytest.mark.slow
def test_a_hundred_columns_are_a_page_of_less_than_two_megabytes():
    rng = np.random.default_rng(0)
    numbers = {f"a long name of column {i}": rng.normal(size=60) for i in range(70)}
    labels = {f"label {i}": rng.choice([f"value {j}" for j in range(20)], 60) for i in range(35)}
    frame = pd.DataFrame(numbers | labels)
    text = QualityReport(frame, frame.iloc[::-1]).to_html()
    check_page(text)
    assert "columns with the largest distances" in text


HOSTILE = [
    "<script>alert(1)</script>",
    '"><img src=x onerror=alert(1)>',
    "](javascript:alert(1))",
    "\u202eright to left",
    "line\nbreak",
    "長い名前の列",
    "اسم العمود",
    "👩‍👩‍👧 family",
    "x" * 500,
]


def hostile_frame(n=60):
    labels = [*HOSTILE]
    return pd.DataFrame(
        {name: np.resize(labels[: 2 + i % 8], n) for i, name in enumerate(HOSTILE)}
        | {"$x^2$": np.arange(n)}
    )


@pytest.mark.slow
def test_hostile_names_and_labels_stay_text(tmp_path):
    frame = hostile_frame()
    title = "</title><script>alert(1)</script>\ud800"
    report = QualityReport(frame, frame.iloc[::-1], privacy=PRIVACY, audit=Audit(), title=title)
    page = check_page(report.to_html(tmp_path / "report.html"))
    assert page.tags.count("title") >= 1
    check_page(report._repr_html_())


@pytest.mark.slow
def test_a_page_that_does_not_escape_is_caught(monkeypatch):
    careless = environment().overlay(autoescape=False)
    monkeypatch.setattr("sklearn_dpgen.utils._html.environment", lambda: careless)
    text = QualityReport(hostile_frame(), hostile_frame()).to_html()
    with pytest.raises(AssertionError):
        check_page(text)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"real": table().iloc[:0]}, "real has no rows"),
        ({"synthetic": table().drop(columns="age")}, "synthetic lacks columns .*'age'"),
        ({"synthetic": table().assign(ill="maybe")}, "column 'ill' has undeclared values"),
        ({"target": "nothing"}, "target must be a column"),
        ({"schema": None, "constraints": [Inequality("age", "income")]}, "need a schema"),
        ({"max_rows": 1}, "max_rows"),
        (
            {
                "real": table()[["ill"]].assign(ill="no"),
                "synthetic": table()[["age"]],
                "schema": None,
            },
            "no column in common",
        ),
    ],
)
def test_errors_name_what_is_wrong(change, message):
    arguments = {"real": table(), "synthetic": table(), "schema": SCHEMA} | change
    with pytest.raises(ValueError, match=message):
        QualityReport(arguments.pop("real"), arguments.pop("synthetic"), **arguments)


def test_errors_show_no_value():
    secret = table().assign(ill="a secret")
    with pytest.raises(ValueError, match="undeclared") as caught:
        QualityReport(secret, table(), schema=SCHEMA)
    assert "secret" not in str(caught.value)


def sampler(**options):
    return TableSampler(
        schema=Schema({name: SCHEMA[name] for name in ("age", "city", "ill")}),
        population_size=200,
        max_iter=3,
        **options,
    )


def few():
    return table()[["age", "city", "ill"]]


@pytest.fixture(scope="module")
def fitted():
    return sampler().fit(few())


@pytest.mark.slow
def test_a_page_of_releases_is_marked_as_private(fitted):
    report = QualityReport.from_estimator(fitted, n_samples=500)
    page = check_page(report.to_html())
    assert report.is_private
    assert {mark for marks in page.marks.values() for mark in marks} == {
        "differentially private: may be published"
    }
    found = report.to_dict()["figures"]
    assert {column["name"] for column in found["columns"]} == {"age", "city", "ill"}
    assert set(found["marginals"]) >= {"1", "2"}


@pytest.mark.slow
def test_a_page_reads_nothing_but_what_was_released(fitted):
    read = set()

    class Watched:
        """Has nothing but the released attributes, and says which are read."""

        def __init__(self, estimator):
            names = [n for n in Released.names if hasattr(estimator, n)]
            self._inner = {n: getattr(estimator, n) for n in names} | {"sample": estimator.sample}

        def __sklearn_is_fitted__(self):
            return True

        def __sklearn_tags__(self):
            return fitted.__sklearn_tags__()

        def fit(self):
            raise AssertionError

        def __getattr__(self, name):
            read.add(name)
            if name.startswith("_"):
                raise AttributeError(name)
            return self._inner[name]

    page = QualityReport.from_estimator(Watched(fitted), n_samples=100).to_html()
    same = QualityReport.from_estimator(fitted, n_samples=100).to_html()
    assert page.replace("Watched", "TableSampler") == same
    public = {name for name in read if not name.startswith("_")}
    assert public <= Released.names | {"sample"}
    with pytest.raises(AttributeError, match="not among what was released"):
        _ = Released(fitted).law_


@pytest.fixture
def forced(monkeypatch):
    """Make what is released a matter of its size alone, not of the records."""

    def force(self, value, noise):
        return np.random.default_rng(value.size).uniform(0, 60, value.size)

    monkeypatch.setattr(GaussianSequenceRun, "release", force)
    monkeypatch.setattr(NoiseSource, "largest", lambda self, scores, scale, k: np.arange(k))


def keep(estimator, frame):
    pass


def leak(estimator, frame):
    # As if a mean of the records had been kept among what was released.
    estimator.n_records_ = float(frame["age"].mean())


@pytest.mark.slow
@pytest.mark.usefixtures("forced")
@pytest.mark.parametrize(("change", "is_same"), [(keep, True), (leak, False)])
def test_a_page_of_releases_is_the_same_for_all_records(change, is_same):
    pages = []
    for frame in (few(), few().assign(age=99, ill="yes")):
        estimator = sampler(random_state=0).fit(frame)
        change(estimator, frame)
        pages.append(QualityReport.from_estimator(estimator, n_samples=200).to_html())
    assert (pages[0] == pages[1]) is is_same


@pytest.mark.slow
def test_an_estimator_that_was_saved_has_the_same_page(fitted, tmp_path):
    fitted.save(tmp_path / "model.safetensors")
    loaded = sklearn_dpgen.load(tmp_path / "model.safetensors")
    pages = [
        QualityReport.from_estimator(estimator, n_samples=200).to_html()
        for estimator in (fitted, loaded)
    ]
    assert pages[0] == pages[1]


@pytest.mark.slow
def test_a_seeded_fit_has_no_private_page():
    report = QualityReport.from_estimator(sampler(random_state=0).fit(few()), n_samples=100)
    page = check_page(report.to_html())
    assert not report.is_private
    assert marks_of(page) == {"no guarantee"}


def test_a_fit_without_noise_has_no_private_page():
    report = QualityReport.from_estimator(sampler(epsilon=np.inf).fit(few()), n_samples=100)
    assert not report.is_private
    assert "There is no privacy guarantee." in report.to_dict()["words"]


def test_what_draws_no_records_has_a_certificate():
    from sklearn_dpgen.domains import Box

    mechanism = GaussianMechanism(1.0, 1e-5, domain=Box(0, 1)).fit(np.zeros((9, 1)))
    page = check_page(QualityReport.from_estimator(mechanism).to_html())
    assert set(page.marks) == {None, "certificate"}


def test_what_is_not_fitted_or_not_private_is_refused():
    with pytest.raises(NotFittedError):
        QualityReport.from_estimator(sampler())
    from sklearn.linear_model import LinearRegression

    with pytest.raises(TypeError, match="has no privacy_"):
        QualityReport.from_estimator(LinearRegression().fit([[0], [1]], [0, 1]))
