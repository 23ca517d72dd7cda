"""The verdict of a report: what it calls noise is noise, and what it calls clear is not."""

import html
import json
import re

import numpy as np
import pandas as pd
import pytest

from sklearn_dpgen.accounting import Event, GaussianProfile, PrivacyReport
from sklearn_dpgen.accounting._wording import count_words, spending_rows
from sklearn_dpgen.ledger import PrivacyLedger
from sklearn_dpgen.reporting import QualityReport, model_card
from sklearn_dpgen.reporting._verdict import (
    associations,
    constant_words,
    least_count,
    least_counts,
    predictability,
    verdict_of_release,
)
from sklearn_dpgen.schema import Categorical, Inequality, Numeric, Schema
from sklearn_dpgen.tables import TableSampler
from sklearn_dpgen.tables._releases import NoisyMarginal
from sklearn_dpgen.utils._random import SEEDED

pytest.importorskip("matplotlib")


def released(counts, scale, columns=("a", "b"), seed=None):
    counts = np.asarray(counts, dtype=float)
    if seed is not None:
        counts = counts + scale * np.random.default_rng(seed).standard_normal(counts.shape)
    groups = tuple(np.arange(size) for size in counts.shape)
    return NoisyMarginal(tuple(columns), groups, counts, float(scale))


def n_clear(counts, scale, n=60):
    parts = [released(counts, scale, (f"a{i}", f"b{i}"), seed=i) for i in range(n)]
    return sum(pair["is_clear"] for pair in associations(parts))


INDEPENDENT = np.outer([600, 300, 100], [0.5, 0.3, 0.2])
DEPENDENT = INDEPENDENT + 40 * np.array([[1, -1, 0], [-1, 1, 0], [0, 0, 0]])


@pytest.mark.slow
def test_noise_alone_is_seldom_called_an_association():
    # One in a hundred pairs; six of 60 are as rare as one run in 10^4. The seeds are fixed.
    assert n_clear(INDEPENDENT, 5.0) < 6
    assert n_clear(INDEPENDENT, 200.0) < 6


@pytest.mark.slow
def test_an_association_above_the_noise_is_found():
    assert n_clear(DEPENDENT, 5.0) > 55
    # The twin: below the noise it is not.
    assert n_clear(DEPENDENT, 200.0) < 10


@pytest.mark.slow
def test_a_trend_over_many_cells_is_found_in_groups():
    x, y = np.meshgrid(np.linspace(-1, 1, 20), np.linspace(-1, 1, 20))
    trend = 45 * (1 + 0.7 * x * y)
    assert n_clear(trend, 25.0, n=20) > 15
    assert n_clear(np.full((20, 20), 45.0), 25.0, n=20) < 4


def test_pairs_of_a_larger_marginal_are_its_sums():
    cube = np.zeros((2, 2, 2))
    cube[0, 0], cube[1, 1] = 200, 200
    found = associations([released(cube, 1.0, ("a", "b", "c"), seed=0)])
    assert {pair["columns"]: pair["is_clear"] for pair in found} == {
        ("a", "b"): True,
        ("a", "c"): False,
        ("b", "c"): False,
    }


def test_the_marginal_with_less_noise_counts():
    parts = [released(DEPENDENT, 500.0, seed=1), released(DEPENDENT.T, 2.0, ("b", "a"), seed=2)]
    (pair,) = associations(parts)
    assert pair["is_clear"]


def test_without_noise_every_association_is_clear():
    assert associations([released(DEPENDENT, 0.0)])[0]["is_clear"]
    assert not associations([released(INDEPENDENT, 0.0)])[0]["is_clear"]


@pytest.mark.parametrize("error", [0.0, 0.001, 0.02])
@pytest.mark.parametrize("n_rows", [100, 20_000])
def test_the_least_count_is_three_standard_deviations(error, n_rows):
    least = least_count(error, n_rows)
    assert least >= 3 * np.sqrt((error * n_rows) ** 2 + least) - 1e-6
    below = least - 1
    assert below < 3 * np.sqrt((error * n_rows) ** 2 + below) + 1e-6


@pytest.mark.slow
def test_counts_of_what_no_record_has_are_below_the_least_count():
    schema = Schema({"a": Categorical(["x", "y", "never"]), "b": Categorical(["u", "v"])})
    frame = pd.DataFrame({"a": ["x", "y"] * 300, "b": ["u", "v", "v", "v"] * 150})
    found, limits = [], []
    for _ in range(20):
        sampler = TableSampler(0.5, 1e-5, schema=schema, population_size=500).fit(frame)
        rows = sampler.sample(600)
        parts = [*sampler.one_way_marginals_, *sampler.marginals_]
        limits.append(least_counts(parts, 600, 600)["of one column"])
        found.append(int((rows["a"] == "never").sum()))
    assert all(count < limit for count, limit in zip(found, limits, strict=True))
    # The twin: with a tenth of the limit, noise would be read as records.
    assert any(count > limit / 10 for count, limit in zip(found, limits, strict=True))
    # A count that is common is above it.
    assert max(limits) < 300


def test_sums_of_noise_are_no_shares_above_one():
    assert "216" not in count_words([432.0], n_records=200)
    assert "over 100 percent" in count_words([432.0], n_records=200)
    assert "(5 percent)" in count_words([10.0], n_records=200)


SCHEMA = Schema(
    {
        "age": Numeric(0, 100, integer=True),
        "pension": Numeric(0, 100, integer=True),
        "ill": Categorical(["no", "yes"]),
    }
)


def frame(n=4000):
    rng = np.random.default_rng(0)
    age = rng.integers(20, 80, n)
    ill = np.where(rng.random(n) < (age - 20) / 80, "yes", "no")
    return pd.DataFrame({"age": age, "pension": age + rng.integers(0, 20, n), "ill": ill})


@pytest.fixture(scope="module")
def fitted():
    rules = [Inequality("age", "pension")]
    sampler = TableSampler(5.0, 1e-6, schema=SCHEMA, target="ill", constraints=rules)
    return sampler.fit(frame())


@pytest.mark.slow
def test_a_good_fit_has_its_uses(fitted):
    verdict = QualityReport.from_estimator(fitted, n_samples=4000).to_dict()["verdict"]
    fit, not_fit = "\n".join(verdict["fit"]), "\n".join(verdict["not_fit"])
    assert "Shares of single columns, in 3 of 3" in fit
    assert "Associations of" in fit
    assert "Models of ill: trained on some of these rows they score" in fit
    assert "a constant predictor scores 0.500" in fit
    assert "in each row age ≤ pension" in fit
    assert "Counts of rows below" in not_fit
    assert "Statements about single persons" in not_fit


@pytest.mark.slow
def test_a_report_shows_its_verdict_in_a_notebook(fitted):
    report = QualityReport.from_estimator(fitted, n_samples=500)
    assert repr(report) == "<QualityReport on 500 synthetic rows, may be published>"
    shown = html.unescape(report._repr_html_())
    for key, lines in report.to_dict()["verdict"].items():
        for line in lines:
            assert f"{'Fit' if key == 'fit' else 'Not fit'}: {line}" in shown
    raw = QualityReport(frame(60), frame(60), schema=SCHEMA)
    assert repr(raw) == "<QualityReport on 60 synthetic rows, not private>"


@pytest.mark.filterwarnings("ignore:With epsilon")
def test_noise_has_hardly_any():
    sampler = TableSampler(0.02, 1e-6, schema=SCHEMA, target="ill", random_state=0)
    sampler.fit(frame(300))
    report = QualityReport.from_estimator(sampler, n_samples=300)
    verdict = report.to_dict()["verdict"]
    not_fit = "\n".join(verdict["not_fit"])
    assert "noise alone moves more than 10% of the records" in not_fit
    assert "Associations of" not in "\n".join(verdict["fit"])
    assert "No rule between columns was declared" in "\n".join(verdict["fit"])
    # All that is named a share is one.
    text = json.dumps(report.to_dict()["words"] + verdict["fit"] + verdict["not_fit"])
    shares = [float(word.strip('%."\\,:;()')) for word in text.split() if "%" in word]
    assert shares
    assert max(shares) <= 100


def test_a_page_without_a_guarantee_is_not_for_publication():
    sampler = TableSampler(np.inf, schema=SCHEMA).fit(frame(300))
    verdict = QualityReport.from_estimator(sampler, n_samples=300).to_dict()["verdict"]
    assert verdict["not_fit"][0] == "Publication: there is no guarantee."


def test_rules_that_rows_break_are_named():
    measures = {
        "n_samples": 10,
        "columns": [],
        "rules": [{"rule": "a ≤ b", "synthetic": 0.458}, {"rule": "c ≤ d", "synthetic": 0.0}],
    }
    verdict = verdict_of_release(measures, is_void=False)
    assert "Programs that rely on these rules: a ≤ b (broken by 46%)." in verdict["not_fit"]
    assert any("in each row c ≤ d." in line for line in verdict["fit"])


@pytest.mark.slow
def test_rows_far_from_the_releases_are_no_use():
    """A rule that the records contradict moves the rows away from all that was counted."""
    records = frame()
    # The twin: of records that keep the rule nothing is far.
    for is_kept in (True, False):
        own = records if is_kept else records.assign(age=records["pension"], pension=records["age"])
        rules = [Inequality("age", "pension")]
        sampler = TableSampler(5.0, 1e-6, schema=SCHEMA, target="ill", constraints=rules).fit(own)
        verdict = QualityReport.from_estimator(sampler, n_samples=2000).to_dict()["verdict"]
        fit, not_fit = "\n".join(verdict["fit"]), "\n".join(verdict["not_fit"])
        if is_kept:
            assert "A declared rule may not fit" not in not_fit
        else:
            assert "in 3 of 3" not in fit
            assert "the rows differ from the released shares by up to" in not_fit
            assert "A declared rule may not fit the records." in not_fit


@pytest.mark.parametrize(("distance", "n_far"), [(0.46, 1), (0.11, 0)])
def test_columns_far_from_the_releases_are_named(distance, n_far):
    part = {"name": "s", "noise": 0.018, "draw": 0.01, "distance": distance}
    near = part | {"name": "t", "distance": 0.02}
    pairs = [part | {"columns": ("t", "s"), "is_clear": True}]
    model = {"target": "t", "score": "accuracy", "model": 0.9, "constant": 0.5}
    measures = {"n_samples": 9, "counted": "records", "columns": [part, near], "marginals": {}}
    measures |= {"associations": pairs, "predictability": [model]}
    verdict = verdict_of_release(measures, is_void=False)
    fit, not_fit = "\n".join(verdict["fit"]), "\n".join(verdict["not_fit"])
    assert f"Shares of single columns, in {2 - n_far} of 2" in fit
    assert ("Shares of s: the rows differ from the released shares by up to 46%" in not_fit) is (
        n_far == 1
    )
    assert ("Associations of t × s" in fit) is (n_far == 0)
    assert ("Models of t" in fit) is (n_far == 0)
    assert "declared rule" not in not_fit


@pytest.mark.parametrize("is_clear", [True, False])
def test_models_of_noise_are_no_use(is_clear):
    part = {"target": "ill", "score": "accuracy", "model": 0.9, "constant": 0.5}
    pairs = [{"columns": ("age", "ill"), "is_clear": is_clear}]
    measures = {"n_samples": 9, "columns": [], "predictability": [part], "associations": pairs}
    verdict = verdict_of_release(measures, is_void=False)
    assert any("Models of ill" in line for line in verdict["fit"]) is is_clear
    assert any("Models of ill" in line for line in verdict["not_fit"]) is not is_clear


@pytest.mark.slow
def test_what_a_constant_predictor_says_is_the_most_frequent_label(fitted):
    report = QualityReport.from_estimator(fitted, n_samples=4000).to_dict()
    (line,) = [line for line in report["words"] if "A constant predictor of ill" in line]
    stated = re.fullmatch(r".* always says no is right for about (\d+)% of the records\.", line)[1]
    assert int(stated) == pytest.approx(100 * (frame()["ill"] == "no").mean(), abs=2)
    assert constant_words({"columns": []}, "ill") is None


@pytest.mark.slow
def test_nothing_is_learnt_from_independent_columns():
    rng = np.random.default_rng(0)
    noise = pd.DataFrame(
        {"age": rng.integers(0, 99, 1000), "pension": 50, "ill": rng.choice(["no", "yes"], 1000)}
    )
    found = predictability(noise, SCHEMA, "ill", 0)
    assert abs(found["model"] - found["constant"]) < 0.1
    assert predictability(frame(1000), SCHEMA, "ill", 0)["model"] > 0.65
    assert predictability(frame(4), SCHEMA, "ill", 0) is None


@pytest.mark.parametrize("row", range(8))
def test_a_rare_label_may_be_in_one_part_alone(row):
    rows = frame(40)
    rows.loc[row, "ill"] = "once"
    schema = Schema({**SCHEMA, "ill": Categorical(["no", "yes", "once"])})
    found = predictability(rows, schema, "ill", 0)
    assert found["score"] == "accuracy"
    assert predictability(frame(40), SCHEMA, "ill", 0)["score"] != "accuracy"


@pytest.mark.slow
def test_a_curators_page_judges_by_the_real_table():
    real = frame(600)
    good = QualityReport(real, frame(600), schema=SCHEMA, target="ill").to_dict()["verdict"]
    others = np.random.default_rng(0).permutation(frame(600)["ill"])
    shuffled = frame(600).assign(ill=others, pension=30)
    bad = QualityReport(real, shuffled, schema=SCHEMA, target="ill").to_dict()["verdict"]
    assert any("Models of ill" in line for line in good["fit"])
    assert any("Models of ill" in line for line in bad["not_fit"])
    assert any("Shares of pension" in line for line in bad["not_fit"])
    for verdict in (good, bad):
        assert verdict["not_fit"][-1] == "Publication of this page: it shows the real records."


def statement(**options):
    return PrivacyReport(
        name="counts",
        events=(),
        epsilon=1.0,
        delta=1e-5,
        releases=((GaussianProfile(0.3), 1),),
        **options,
    )


def test_what_was_spent_is_said_with_and_without_a_ledger():
    rows = dict(spending_rows(statement()))
    assert "no ledger was charged" in rows["spent by all releases"]
    assert rows["seed of the noise"].startswith("none")
    assert "seed of the rows" not in rows
    entry = {"dataset": "d", "charge": 3, "epsilon": 2.5, "delta": 1e-5}
    rows = dict(spending_rows(statement(ledger=entry), seed=7))
    assert "epsilon 2.5 at delta 1e-05: charges 1 to 3 together" in rows["spent by all releases"]
    assert rows["seed of the rows"].startswith("7;")
    rows = dict(spending_rows(statement(noise_source=SEEDED)))
    assert rows["seed of the noise"].startswith("SEEDED")


def test_what_was_chosen_without_being_paid_is_said_as_far_as_it_is_known():
    def unpaid(**options):
        return dict(spending_rows(statement(**options)))["chosen without being paid"]

    assert "cannot know of other fits" in unpaid()
    entry = {"dataset": "d", "charge": 1, "epsilon": 2.5, "delta": 1e-5}
    assert "it has no earlier charge" in unpaid(ledger=entry)
    assert "its 1 earlier charge is paid for" in unpaid(ledger=entry | {"charge": 2})
    assert "its 3 earlier charges are paid for" in unpaid(ledger=entry | {"charge": 4})
    # A ledger does not know what was not charged, and a scaler before the fit is named.
    assert "fits that did not charge it" in unpaid(ledger=entry)
    assert "such as a scaler" in unpaid(caveats=("earlier_fits",))
    assert "such as a scaler" not in unpaid()
    assert "The search for the best fit" not in unpaid()
    searched = PrivacyReport(
        name="Search",
        events=(Event("best_of_runs"),),
        epsilon=1.0,
        delta=1e-5,
        unit="patient",
        releases=((GaussianProfile(0.3), 1),),
    )
    text = dict(spending_rows(searched))["chosen without being paid"]
    assert "The search for the best fit is paid for by this release" in text
    assert "looking at the persons" in text


@pytest.mark.slow
@pytest.mark.parametrize("ledger", [True, False])
def test_the_card_and_the_page_list_choices_and_seeds_first(tmp_path, ledger):
    options: dict = {"schema": SCHEMA, "population_size": 100, "max_iter": 2}
    if ledger:
        options["ledger"] = PrivacyLedger.create(
            tmp_path / "ledger", dataset="survey", epsilon=3.0, delta=1e-4
        )
    for _ in range(2):
        fitted = TableSampler(1.0, 1e-6, **options).fit(frame())
    card = model_card(fitted).to_markdown()
    page = html.unescape(QualityReport.from_estimator(fitted, n_samples=50).to_html())
    assert card.index("What was spent, chosen and drawn") < card.index("## Model")
    assert page.index("What was spent, chosen and drawn") < page.index("Single columns")
    words = "its 1 earlier charge is paid for" if ledger else "cannot know of other fits"
    for text in (card, page):
        assert words in text
        assert "chosen without being paid" in text
        assert "seed of the noise" in text
        assert str(tmp_path) not in text
