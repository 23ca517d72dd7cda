"""Scores of private rows are not paid for and say so; reports say what else was charged."""

import json
import warnings

import numpy as np
import pytest
from contract_cases import BUDGET, CASES, FRAME, SCHEMA, SIDE
from ledger_cases import rows
from scipy.optimize import brentq
from scipy.stats import norm
from sklearn.base import clone
from sklearn.linear_model import LinearRegression
from sklearn.model_selection import GridSearchCV, cross_val_score

from sklearn_dpgen.accounting import PrivacyReport
from sklearn_dpgen.exceptions import UnpaidScoreWarning
from sklearn_dpgen.ledger import PrivacyLedger
from sklearn_dpgen.ledger._base import PrivateEstimator
from sklearn_dpgen.model_selection import PrivateSearchCV, utility_scorer
from sklearn_dpgen.predictors import BarycenterRegressor
from sklearn_dpgen.reporting import model_card
from sklearn_dpgen.tables import SyntheticDataRegressor, TableSampler

NUMBERS, LABELS = FRAME[["a"]], FRAME["b"]
# Their records were privatized before.
LOCAL = {"DeconvolutionEM", "EntropicDeconvGAN", "LocalTableSampler"}
TARGET = TableSampler(schema=SCHEMA, target="a", max_iter=5, device="cpu", **BUDGET)
REGRESSOR = SyntheticDataRegressor(TARGET, LinearRegression(), n_samples=200, n_draws=1)

pytestmark = pytest.mark.filterwarnings("ignore::UserWarning")


def fit_of_case(name):
    return CASES[name].fit(FRAME, SIDE, clone(CASES[name].estimator))


# A fit, and what its score is given.
SCORED = {
    "sliced measures": (FRAME,),
    "panels": (FRAME.assign(who=[f"person {i // 2}" for i in range(len(FRAME))]),),
    "moments": (FRAME,),
    "moments of public classes": (FRAME,),
    "images": (FRAME,),
    "fair classifier": (FRAME, SIDE),
    "fair regressor": (FRAME, SIDE.astype(float)),
    "sliced adapter": (FRAME, SIDE),
    "smoothed generator": (FRAME,),
    "smoothed projections": (FRAME,),
    "smoothed moments": (FRAME,),
    "smoothed adapter": (FRAME, SIDE),
    "synthetic classifier": (NUMBERS, LABELS),
    "barycenter classifier": (NUMBERS, LABELS),
}


def warned(estimator, *given, **options):
    """Return how often a score warns."""
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        assert np.isfinite(estimator.score(*given, **options))
    return [entry.category for entry in caught].count(UnpaidScoreWarning)


@pytest.mark.parametrize("name", SCORED)
def test_a_score_after_a_private_fit_warns(name):
    options = {"sensitive_features": SIDE} if name.startswith("barycenter") else {}
    fitted = fit_of_case(name)
    assert warned(fitted, *SCORED[name], **options) == 1
    # The twin: of what learned without a guarantee a score has nothing to break.
    fitted.privacy_ = PrivacyReport(name="a fit", events=(), epsilon=np.inf, delta=0.0)
    assert warned(fitted, *SCORED[name], **options) == 0


def test_the_score_of_a_regressor_warns():
    fitted = clone(REGRESSOR).fit(FRAME[["b"]], FRAME["a"])
    assert warned(fitted, FRAME[["b"]], FRAME["a"]) == 1
    options = {"y_domain": (0, 1), "groups": [0, 1], "epsilon": 4.0, "delta": 1e-3}
    within = clone(REGRESSOR).set_params(sampler__epsilon=1.0, sampler__delta=1e-5)
    fair = BarycenterRegressor(within, **options)
    fair.fit(FRAME[["b"]], FRAME["a"], sensitive_features=SIDE)
    assert warned(fair, FRAME[["b"]], FRAME["a"], sensitive_features=SIDE) == 1


def test_no_central_estimator_with_a_score_is_left_out():
    def kinds(base):
        for kind in base.__subclasses__():
            yield kind
            yield from kinds(kind)

    own = {kind for kind in kinds(PrivateEstimator) if kind.__module__.startswith("sklearn_dpgen.")}
    with_score = {
        kind.__name__
        for kind in own
        if hasattr(kind, "score") and not kind.__name__.startswith("_")
    }
    checked = {type(CASES[name].estimator).__name__ for name in SCORED}
    checked |= {"BarycenterRegressor", "SyntheticDataRegressor"}
    # A search scores by its best estimator.
    assert with_score - LOCAL - {"PrivateSearchCV"} == checked


@pytest.mark.slow
def test_searches_on_raw_scores_warn_and_a_search_that_pays_does_not():
    sampler = CASES["sliced measures"].estimator
    with pytest.warns(UnpaidScoreWarning, match="Use PrivateSearchCV"):
        GridSearchCV(sampler, {"epsilon": [1.0, 2.0]}, cv=2).fit(FRAME)
    with pytest.warns(UnpaidScoreWarning):
        cross_val_score(CASES["synthetic classifier"].estimator, NUMBERS, LABELS, cv=2)
    with warnings.catch_warnings():
        warnings.simplefilter("error", UnpaidScoreWarning)
        search = PrivateSearchCV(
            sampler,
            {"n_bins": [2, 4]},
            epsilon=2.0,
            delta=1e-4,
            scoring=utility_scorer("b", n_synthetic=100),
            n_runs=2,
        )
        search.fit(FRAME)
        learner = CASES["synthetic classifier"].estimator
        search = PrivateSearchCV(learner, {"n_samples": [100, 200]}, epsilon=2.0, delta=1e-4)
        search.set_params(n_runs=2).fit(NUMBERS, LABELS)


def spent(path, delta):
    """Return the ε of all charges of a file, which are Gaussian, by the printed profile."""
    mu = sum(amount for amount, _ in rows(path, "amount, delta")) ** 0.5

    def excess(epsilon):
        upper, lower = mu / 2 - epsilon / mu, -mu / 2 - epsilon / mu
        return norm.cdf(upper) - np.exp(epsilon) * norm.cdf(lower) - delta

    return brentq(excess, 0, 50)


@pytest.mark.slow
def test_the_report_of_a_fit_states_all_charges_of_its_ledger(tmp_path):
    path = tmp_path / "a.ledger"
    cap = {"dataset": "clinic <b>", "epsilon": 50.0, "delta": 1e-4}
    ledger = PrivacyLedger.create(path, **cap)
    learner = clone(CASES["synthetic classifier"].estimator).set_params(ledger=ledger)
    search = GridSearchCV(learner, {"sampler__epsilon": [4.0, 8.0]}, cv=2).fit(NUMBERS, LABELS)
    report = search.best_estimator_.privacy_
    assert report.epsilon in (4.0, 8.0)
    assert (report.ledger["dataset"], report.ledger["charge"]) == ("clinic <b>", 5)
    assert report.ledger["delta"] == 1e-4
    assert report.ledger["epsilon"] == pytest.approx(spent(path, 1e-4), rel=1e-6)
    # By its own budget alone nobody sees that there were others.
    assert report.ledger["epsilon"] > 1.2 * report.epsilon
    text = f"charge 5 of 'clinic <b>'; all its charges together: epsilon {ledger.spent():.4g}"
    assert text in " ".join(report.to_text().split())
    assert "<b>" not in report._repr_html_()
    card = model_card(search.best_estimator_)
    assert card.to_dict()["privacy"]["ledger"]["charge"] == 5
    assert "all its charges together" in card.to_markdown()
    again = PrivacyReport.from_dict(json.loads(report.to_json()))
    assert again.ledger == report.ledger
    # It is no part of the plan, which a fit still keeps to.
    plan = search.best_estimator_.plan(len(FRAME))
    assert plan == report
    assert plan.ledger == {}
    assert "ledger" not in dict(plan.to_rows())
    assert PrivacyLedger(path).report().charges[-1].report.ledger == {}


@pytest.mark.slow
def test_a_search_that_pays_states_its_one_charge(tmp_path):
    path = tmp_path / "a.ledger"
    ledger = PrivacyLedger.create(path, dataset="a", epsilon=50.0, delta=1e-3)
    sampler = CASES["sliced measures"].estimator
    clone(sampler).set_params(ledger=ledger).fit(FRAME)
    scorer = utility_scorer("b", n_synthetic=100)
    search = PrivateSearchCV(
        sampler, {"n_bins": [2, 4]}, epsilon=2.0, delta=1e-4, scoring=scorer, ledger=ledger
    )
    search.set_params(n_runs=2).fit(FRAME)
    for report in (search.privacy_, search.best_estimator_.privacy_):
        assert report.ledger["charge"] == 2
        assert report.ledger["epsilon"] == pytest.approx(ledger.spent())


@pytest.mark.parametrize(
    "ledger",
    [
        {"dataset": "a"},
        {"dataset": 1, "charge": 1, "epsilon": 1.0, "delta": 0.1},
        {"dataset": "a", "charge": 0, "epsilon": 1.0, "delta": 0.1},
        {"dataset": "a", "charge": 1, "epsilon": -1.0, "delta": 0.1},
        {"dataset": "a", "charge": 1, "epsilon": 1.0, "delta": 0.1, "path": "/"},
    ],
)
def test_a_report_says_four_things_of_a_ledger(ledger):
    with pytest.raises((ValueError, TypeError)):
        PrivacyReport(name="a fit", events=(), epsilon=1.0, delta=0.0, ledger=ledger)
