"""Searches: what they do, and what they hand on."""

import json
import pickle
import warnings

import numpy as np
import pandas as pd
import pytest
from scipy.stats import uniform
from search_cases import (
    AddOrRemove,
    Constant,
    Failing,
    Narrow,
    NoisyThreshold,
    OpenlyFailing,
    Sampled,
    TwoColumns,
    labelled,
    table,
)
from sklearn.base import clone, is_classifier, is_regressor
from sklearn.linear_model import HuberRegressor, LogisticRegression

from sklearn_dpgen.accounting import (
    BinomialRuns,
    NegativeBinomialRuns,
    PoissonRuns,
    PrivacyReport,
)
from sklearn_dpgen.datasets import load_rand_health
from sklearn_dpgen.exceptions import LargeDeltaWarning, NoisyCountsWarning
from sklearn_dpgen.model_selection import PrivateSearchCV, utility_scorer
from sklearn_dpgen.schema import Categorical, Numeric, Schema
from sklearn_dpgen.tables import SyntheticDataClassifier, SyntheticDataRegressor, TableSampler

X, y = labelled()
CUTS = {"cut": [0.1, 0.3, 0.6, 0.9]}
SEEDED = {"random_state": 0, "epsilon": 5.0, "n_runs": 20}


@pytest.mark.slow
def test_finds_the_parameters_that_predict():
    search = PrivateSearchCV(NoisyThreshold(), CUTS, **SEEDED).fit(X, y)
    assert search.best_params_ == {"cut": 0.3}
    assert search.best_estimator_.cut == 0.3
    assert search.best_score_ == pytest.approx(1.0, abs=0.1)
    np.testing.assert_array_equal(search.predict(X), y)
    assert search.score(X, y) == 1.0
    assert search.n_features_in_ == 1


def test_takes_distributions_and_lists_of_spaces():
    wide = PrivateSearchCV(NoisyThreshold(), {"cut": uniform(0.25, 0.1)}, **SEEDED).fit(X, y)
    assert 0.25 <= wide.best_params_["cut"] <= 0.35
    spaces = [{"cut": [0.3]}, {"cut": [0.9]}]
    assert PrivateSearchCV(NoisyThreshold(), spaces, **SEEDED).fit(X, y).best_params_["cut"] == 0.3


@pytest.mark.slow
@pytest.mark.parametrize("n_runs", [3, NegativeBinomialRuns(0.2), BinomialRuns(6, 0.5)], ids=str)
def test_the_plan_is_what_a_fit_states(n_runs):
    search = PrivateSearchCV(NoisyThreshold(), CUTS, n_runs=n_runs)
    plan = search.plan(len(X), 1)
    assert not hasattr(search, "privacy_")
    assert search.fit(X, y).privacy_ == plan
    assert search.best_estimator_.privacy_ == plan
    assert plan.profile().epsilon(plan.delta) <= plan.epsilon == 1.0
    assert PrivacyReport.from_dict(json.loads(plan.to_json())) == plan
    assert plan.attack_risk().advantage < 0.3
    assert "a mean over 80 records" in plan.precision["score"]
    assert plan.split == {"best of all runs": 1.0}
    assert "PrivateSearchCV(NoisyThreshold): best of a random number of fits" in str(plan)


@pytest.mark.slow
def test_public_rows_score_without_noise_and_leave_all_records_to_train():
    NoisyThreshold.fits.clear()
    search = PrivateSearchCV(NoisyThreshold(), CUTS, n_runs=20, random_state=0)
    X_val, y_val = labelled(50, seed=1)
    search.fit(X, y, X_val=X_val, y_val=y_val)
    assert search.best_score_ == 1.0
    assert search.best_params_ == {"cut": 0.3}
    assert search.privacy_.noise_scale is None
    assert search.privacy_ == search.plan(len(X), public_scores=True)
    # A score that has no bound for each row is for public rows.
    search.set_params(scoring="roc_auc")
    assert search.fit(X, y, X_val=X_val, y_val=y_val).best_score_ <= 1.0
    with pytest.raises(ValueError, match="X_val"):
        search.fit(X, y)


@pytest.mark.slow
def test_generators_are_searched_with_a_utility_scorer():
    frame = table()
    search = PrivateSearchCV(
        TwoColumns(),
        {"cut": [0.0, 0.9]},
        scoring=utility_scorer("label", n_synthetic=500),
        **SEEDED,
    ).fit(frame)
    assert search.best_params_ == {"cut": 0.0}
    assert list(search.sample(7).columns) == ["x", "label"]
    assert list(search.feature_names_in_) == ["x", "label"]


def test_numbers_are_predicted_within_a_declared_range():
    search = PrivateSearchCV(Constant(), CUTS, target_range=(0, 1), **SEEDED)
    assert search.fit(X, np.full(len(X), 0.6)).best_params_ == {"cut": 0.6}
    assert is_regressor(search)
    with pytest.raises(ValueError, match="target_range"):
        PrivateSearchCV(Constant(), CUTS).fit(X, y)


def test_a_text_among_numbers_decides_about_its_row_alone():
    """Whichever part it is in: with one array of all values no candidate could be scored."""
    for place in range(0, len(X), 80):
        values = [0.6] * len(X)
        values[place] = "text"
        search = PrivateSearchCV(Constant(), CUTS, target_range=(0, 1), **SEEDED)
        assert search.fit(X, values).best_params_ == {"cut": 0.6}
    # The negative twin.
    with pytest.raises(ValueError, match="could not convert"):
        np.asarray(values, dtype=np.float64)


def test_only_what_the_candidate_has_is_handed_on():
    search = PrivateSearchCV(NoisyThreshold(), CUTS)
    assert is_classifier(search)
    assert hasattr(search, "predict_proba")
    for name in ("sample", "transform", "decision_function"):
        assert not hasattr(search, name)
    assert hasattr(PrivateSearchCV(TwoColumns(), CUTS), "sample")
    search = PrivateSearchCV(NoisyThreshold(), CUTS, **SEEDED).fit(X, y)
    assert search.predict_proba(X).shape == (len(X), 2)
    np.testing.assert_array_equal(search.classes_, [0, 1])
    copy = pickle.loads(pickle.dumps(search))
    np.testing.assert_array_equal(copy.predict(X), search.predict(X))
    assert clone(search).get_params()["epsilon"] == 5.0


def test_without_noise():
    search = PrivateSearchCV(NoisyThreshold(), CUTS, epsilon=np.inf, n_runs=20, random_state=0)
    search.fit(X, y)
    assert search.best_score_ == 1.0
    assert search.privacy_.epsilon == np.inf
    assert search.privacy_.releases == ()
    assert search.best_estimator_.mean_ == search.best_estimator_.mean_


@pytest.mark.slow
def test_a_seed_repeats_a_search_of_the_same_records_and_no_other():
    def found(records, **settings):
        search = PrivateSearchCV(
            NoisyThreshold(), {"cut": uniform()}, **(SEEDED | {"n_runs": 2} | settings)
        )
        return search.fit(records, y).best_score_

    other = X.copy()
    other[0] = 0.123
    assert found(X) == found(X)
    assert len({found(X), found(other), found(X, random_state=1), found(X, epsilon=4.9)}) == 4
    unseeded = {"random_state": None}
    assert found(X, **unseeded) != found(X, **unseeded)


def test_candidates_that_fail_are_passed_over_and_nothing_is_shown_of_them():
    with warnings.catch_warnings(record=True) as seen:
        warnings.simplefilter("always")
        search = PrivateSearchCV(Failing(), CUTS, **SEEDED).fit(X, y)
    assert search.best_params_ == {"cut": 0.3}
    assert not seen


def test_where_all_fail_the_message_tells_nothing():
    messages = set()
    for records in (X, X + 1):
        search = PrivateSearchCV(Failing(), {"cut": [0.7, 0.8]}, **SEEDED)
        with pytest.raises(RuntimeError) as error:
            search.fit(records, y)
        messages.add(str(error.value))
        assert error.value.__context__ is None
        # It is paid for.
        assert search.privacy_.epsilon == 5.0
        assert not hasattr(search, "best_estimator_")
    assert len(messages) == 1


class Unread:
    """A table whose rows nobody may look at."""

    shape = (400, 1)

    def __len__(self):
        return 400

    def __array__(self, *args, **kwargs):
        raise AssertionError("a record was read")


@pytest.mark.parametrize(
    ("estimator", "settings", "error", "message"),
    [
        (OpenlyFailing(), {}, ValueError, "none is small enough"),
        (AddOrRemove(), {}, ValueError, "replacement of a record"),
        (
            Narrow(0.9),
            {"param_distributions": {"cut": [0.1]}},
            ValueError,
            "not change the neighbour",
        ),
        (
            Narrow(0.1),
            {"param_distributions": {"cut": [0.9]}},
            ValueError,
            "not change the neighbour",
        ),
        (LogisticRegression(), {}, ValueError, "estimator"),
        (NoisyThreshold(), {"param_distributions": {"epsilon": [1.0]}}, ValueError, "search sets"),
        (NoisyThreshold(), {"param_distributions": {"a__ledger": [1]}}, ValueError, "search sets"),
        (NoisyThreshold(), {"param_distributions": {"cut": 0.5}}, TypeError, "cut"),
        (NoisyThreshold(), {"param_distributions": {"depth": [1]}}, ValueError, "depth"),
        (NoisyThreshold(), {"scoring": "roc_auc"}, ValueError, "public rows"),
        (NoisyThreshold(), {"validation_fraction": 0.999}, ValueError, "validation_fraction"),
        (NoisyThreshold(), {"n_runs": 0}, ValueError, "n_runs"),
        (NoisyThreshold(), {"delta": 1.5}, ValueError, "delta"),
    ],
)
def test_what_cannot_be_paid_for_is_refused_whatever_the_records_are(
    estimator, settings, error, message
):
    search = PrivateSearchCV(estimator, settings.pop("param_distributions", CUTS), **settings)
    with pytest.raises(error, match=message):
        search.fit(Unread(), y)
    assert not hasattr(search, "privacy_")


def test_a_budget_that_is_not_of_one_gaussian_release_is_found():
    search = PrivateSearchCV(Sampled(), CUTS, n_runs=3, random_state=0).fit(X, y)
    # Batches of a third, four times: more than a release of all, less than the sum of four.
    gaussian = PrivateSearchCV(NoisyThreshold(), CUTS, n_runs=3, random_state=0).fit(X, y)
    ratio = search.best_estimator_.epsilon / gaussian.best_estimator_.epsilon
    assert 0.6 < ratio < 3
    assert ratio != 1


@pytest.mark.slow
def test_predictors_on_synthetic_rows_are_searched():
    frame = table(600)
    schema = Schema({"x": Numeric(0, 1), "label": Categorical(["low", "high"])})
    sampler = TableSampler(schema=schema, target="label", population_size=500)
    search = PrivateSearchCV(
        SyntheticDataClassifier(sampler, LogisticRegression(), n_samples=500, n_draws=1),
        {"sampler__n_bins": [4, 8]},
        scoring="brier",
        epsilon=5.0,
        n_runs=2,
        random_state=0,
    ).fit(frame[["x"]], frame["label"])
    assert search.score(frame[["x"]], frame["label"]) > 0.8
    # The price of one run is nowhere.
    best = search.best_estimator_
    assert best.privacy_ == best.sampler_.privacy_ == search.privacy_ == search.plan(600, 1)


def test_noise_that_drowns_a_fit_is_said_once_of_the_plan(monkeypatch):
    monkeypatch.setattr(PoissonRuns, "draw", lambda self, noise: 7)
    search = PrivateSearchCV(NoisyThreshold(), CUTS, epsilon=0.01, delta=1e-9)
    with pytest.warns(NoisyCountsWarning) as seen:
        search.fit(X, y)
    assert len(seen) == 1


def test_a_delta_that_pays_for_a_record_is_said():
    with pytest.warns(LargeDeltaWarning):
        PrivateSearchCV(NoisyThreshold(), CUTS, delta=1e-2).plan(400)


@pytest.mark.slow
def test_estimators_of_the_package_are_searched():
    frame = table(600)
    schema = Schema({"x": Numeric(0, 1), "label": Categorical(["low", "high"])})
    search = PrivateSearchCV(
        TableSampler(schema=schema, target="label", population_size=500),
        {"marginals": [[("x",)], [("x", "label")]], "n_bins": [8, "auto"]},
        scoring=utility_scorer("label", n_synthetic=500),
        epsilon=5.0,
        n_runs=8,
        random_state=0,
    )
    plan = search.plan(600)
    assert search.fit(frame).privacy_ == plan
    # Where pairs are not counted, nothing predicts the label.
    assert search.best_params_["marginals"] == [("x", "label")]
    assert list(search.sample(3).columns) == ["x", "label"]


def test_chunks_are_refused():
    with pytest.raises(TypeError, match="positions"):
        PrivateSearchCV(NoisyThreshold(), CUTS).fit(iter([pd.DataFrame(X)]), y)


@pytest.mark.slow
def test_an_epsilon_that_is_no_budget_is_left_alone():
    """That of HuberRegressor is a width of at least 1, and is not drawn down to a budget."""
    rand = load_rand_health()
    schema = Schema({name: rand.schema[name] for name in ("mdvis", "disea", "idp")})
    learner = SyntheticDataRegressor(
        TableSampler(schema=schema, target="mdvis", max_iter=20),
        HuberRegressor(),
        n_samples=500,
        n_draws=1,
    )
    search = PrivateSearchCV(learner, {"n_draws": [1]}, epsilon=0.5, target_range=(0, 24))
    search.fit(rand.frame[["disea", "idp"]], rand.frame["mdvis"])
    assert search.best_estimator_.estimator.epsilon == 1.35
    assert search.best_estimator_.sampler.epsilon < 0.5


@pytest.mark.slow
def test_records_may_have_some_columns_of_a_schema():
    rand = load_rand_health()
    rows = rand.frame[:4000]
    names = ["mdvis", "disea"]
    learner = SyntheticDataClassifier(
        TableSampler(schema=rand.schema, target="hlthp", marginals="pairs", max_iter=20),
        LogisticRegression(),
        n_samples=500,
        n_draws=1,
    )
    search = PrivateSearchCV(learner, {"sampler__n_bins": [4, 8]}, epsilon=5.0, n_runs=3)
    search.fit(rows[names], rows["hlthp"])
    assert search.best_estimator_.feature_names_in_.tolist() == names
    assert search.privacy_ == search.plan(4000, columns=names)
    with pytest.raises(ValueError, match="n_features must be that of the schema"):
        search.plan(4000, 2)
