"""One outer budget, of which nested fits get a share."""

import math

import numpy as np
import pytest
import sklearn
from planned_learners import Sign
from scipy.stats import norm
from sklearn.base import clone
from sklearn.frozen import FrozenEstimator
from sklearn.linear_model import LogisticRegression
from sklearn.model_selection import GridSearchCV
from sklearn.pipeline import Pipeline, make_pipeline

import sklearn_dpgen.predictors._barycenter as module
from sklearn_dpgen.exceptions import PublicRuntimeError, PublicValueError
from sklearn_dpgen.ledger import PrivacyLedger
from sklearn_dpgen.model_selection import group_scorer, privacy_utility_curve
from sklearn_dpgen.nn import Training
from sklearn_dpgen.predictors import BarycenterClassifier, BarycenterRegressor
from sklearn_dpgen.preprocessing import TabularEncoder
from sklearn_dpgen.schema import Categorical, Schema
from sklearn_dpgen.sliced import DPSlicedWassersteinFairClassifier
from sklearn_dpgen.tables import SyntheticDataClassifier, SyntheticDataRegressor

pytestmark = pytest.mark.filterwarnings(
    "ignore::sklearn_dpgen.exceptions.SmallGroupWarning",
    "ignore:The noise:sklearn_dpgen.exceptions.NoisyCountsWarning",
)

KINDS = ["synthetic", "numbers", "pipeline", "groups", "budget alone"]


@pytest.fixture(autouse=True)
def _no_fits():
    Sign.fits.clear()


def gaussian_delta(epsilon, mu):
    """Return δ of a Gaussian release, from its textbook form."""
    return norm.cdf(mu / 2 - epsilon / mu) - math.exp(epsilon) * norm.cdf(-mu / 2 - epsilon / mu)


def spent(released, epsilon):
    """Return δ of all captured releases, for vectors that change by √2 at most."""
    return gaussian_delta(epsilon, math.sqrt(sum(2 / release.scale**2 for release in released)))


def model_of(kind, loans, sampler, **params):
    """Return an estimator whose nested ones have no budget of their own."""
    given = {"delta": 1e-5, "groups": ["a", "b"]} | params
    draws = {"n_samples": 500, "n_draws": 1}
    if kind == "numbers":
        learner = SyntheticDataRegressor(sampler("rate"), **draws)
        return BarycenterRegressor(learner, y_domain=(0, 12), **given)
    if kind == "pipeline":
        schema = Schema({name: loans.schema[name] for name in loans.X})
        fair = DPSlicedWassersteinFairClassifier(
            0.0, classes=["no", "yes"], training=Training(max_iter=2)
        )
        return BarycenterClassifier(make_pipeline(TabularEncoder(schema), fair), **given)
    if kind == "budget alone":
        return BarycenterClassifier(Sign(), **given)
    learner = SyntheticDataClassifier(sampler(), LogisticRegression(), **draws)
    if kind == "groups":
        schema = Schema({**loans.schema, "group": Categorical(["a", "b"])})
        of_groups = sampler("group").set_params(schema=schema)
        given["group_estimator"] = SyntheticDataClassifier(of_groups, **draws)
    return BarycenterClassifier(learner, **given)


def fitted(model, loans):
    y = loans.rate if isinstance(model, BarycenterRegressor) else loans.y
    X = loans.X[["income"]] if isinstance(model.estimator, Sign) else loans.X
    return model.fit(X, y, sensitive_features=loans.group)


@pytest.mark.slow
@pytest.mark.parametrize("kind", KINDS)
def test_one_budget_moves_all(kind, loans, sampler, tmp_path):
    """Nested fits get the share of any budget, and the ledger is charged with the whole."""
    n_fits = 2 if kind == "groups" else 1
    for epsilon, share in ((0.5, 0.95), (2.0, 0.5)):
        ledger = PrivacyLedger.create(
            tmp_path / f"{epsilon}", dataset="loans", epsilon=20.0, delta=1e-3
        )
        params = {"epsilon": epsilon, "epsilon_share": share, "ledger": ledger}
        report = fitted(model_of(kind, loans, sampler, **params), loans).privacy_
        assert (report.epsilon, report.delta) == (epsilon, 1e-5)
        assert len(report.parts) == n_fits + 1
        for part in report.parts[:-1]:
            assert part.epsilon == pytest.approx(share * epsilon / n_fits**0.5, rel=1e-9)
            assert part.delta == pytest.approx(share * 1e-5 / n_fits, rel=1e-9)
        (charge,) = ledger.report().charges
        assert charge.report == report


@pytest.mark.parametrize("kind", ["synthetic", "numbers", "groups"])
@pytest.mark.parametrize("share", [0.3, 0.95])
def test_all_releases_spend_the_outer_budget_at_any_share(kind, share, loans, sampler, released):
    fitted(model_of(kind, loans, sampler, epsilon=2.0, epsilon_share=share), loans)
    assert 0.99e-5 < spent(released, 2.0) <= 1e-5
    # What is left to the counts is more than a plain sum would leave.
    assert spent(released[-2:], (1 - share) * 2.0) > (1 - share) * 1e-5


def more(estimator, share, **budget):
    """A broken variant: a nested fit gets more than its share."""
    return within(estimator, share, **budget | {"epsilon": 1.1 * budget["epsilon"]})


def more_after_the_plan(self, details, X, y, codes):
    """A broken variant: a nested fit gets more than it planned."""
    for estimator in details.estimators:
        last = module.steps_of(estimator)[-1]
        for name in module.private_parameters(last, "epsilon"):
            last.set_params(**{name: 1.1 * last.get_params()[name]})
    return fit_within(self, details, X, y, codes)


within, fit_within = module.within, BarycenterClassifier._fit_within


@pytest.mark.parametrize("kind", ["synthetic", "pipeline", "groups", "budget alone"])
def test_a_nested_fit_with_more_than_its_share_is_caught(
    kind, loans, sampler, monkeypatch, released, tmp_path
):
    ledger = PrivacyLedger.create(tmp_path / "ledger", dataset="loans", epsilon=5.0, delta=1e-3)
    model = model_of(kind, loans, sampler, epsilon_share=0.6)
    with monkeypatch.context() as broken:
        broken.setattr(module, "within", more)
        with pytest.raises(PublicValueError, match="must cost at most its share, epsilon 0"):
            fitted(clone(model).set_params(ledger=ledger), loans)
    # Nothing is released or charged.
    assert not released
    assert not ledger.report().charges
    monkeypatch.setattr(BarycenterClassifier, "_fit_within", more_after_the_plan)
    overspent = clone(model)
    with pytest.raises(PublicRuntimeError, match="must cost what it had planned"):
        fitted(overspent, loans)
    assert not hasattr(overspent, "maps_")


@pytest.mark.parametrize("caught", [True, False])
def test_releases_of_a_nested_fit_with_more_are_not_paid_for(
    caught, loans, sampler, monkeypatch, released
):
    """The negative twin: where the comparison of cost and plan is removed, the budget is passed."""
    monkeypatch.setattr(BarycenterClassifier, "_fit_within", more_after_the_plan)
    model = model_of("synthetic", loans, sampler, epsilon=1.0)
    if caught:
        with pytest.raises(PublicRuntimeError, match="must cost what it had planned"):
            fitted(model, loans)
        return
    monkeypatch.setattr(module, "differs", lambda plan, report: False)
    fitted(model, loans)
    assert spent(released, 1.0) > 1.5e-5


class Greedy(Sign):
    """Plans for more than the budget that it is given."""

    def plan(self, n_samples, n_features=None):
        return Sign(epsilon=1.01 * self.epsilon, delta=self.delta).plan(n_samples)


def test_a_plan_of_more_than_the_share_is_refused(loans):
    with pytest.raises(PublicValueError, match="Greedy must cost at most its share"):
        BarycenterClassifier(Greedy(), delta=1e-5, epsilon_share=0.5).plan(3000)


@pytest.mark.parametrize("epsilon", [1.0, np.inf])
@pytest.mark.parametrize(
    ("key", "value"), [("epsilon", 0.95), ("delta", 1e-6), ("epsilon", np.inf)]
)
def test_there_is_one_way_to_give_a_budget(loans, sampler, key, value, epsilon):
    schema = Schema({name: loans.schema[name] for name in loans.X})
    for learner, name, kind in (
        (SyntheticDataClassifier(sampler(**{key: value})), f"sampler__{key}", "SyntheticData"),
        (Sign(**{key: value * 1.01}), key, "Sign"),
        (make_pipeline(TabularEncoder(schema), Sign(**{key: value * 1.01})), key, "Sign"),
    ):
        for model in (
            BarycenterClassifier(learner, epsilon=epsilon),
            BarycenterClassifier(FrozenEstimator(Sign()), group_estimator=learner, epsilon=epsilon),
        ):
            message = f"{name} of {kind}.* must be left unset .* whose epsilon_share determines it"
            with pytest.raises(PublicValueError, match=message):
                model.plan(3000)
            with pytest.raises(PublicValueError, match=message):
                model.fit(loans.X, loans.y, sensitive_features=loans.group)
            assert not hasattr(model, "privacy_")


def test_without_noise_nothing_nested_has_noise(loans, sampler, released):
    model = fitted(model_of("synthetic", loans, sampler, epsilon=np.inf), loans)
    assert model.estimator_.sampler_.epsilon == np.inf
    assert math.isinf(model.estimator_.privacy_.epsilon)
    # The parameters of the user stay as they were.
    assert model.estimator.sampler.epsilon == 1.0


def test_frozen_estimators_have_no_share(loans, sampler):
    learner = SyntheticDataClassifier(sampler(epsilon=0.4), n_samples=500, n_draws=1)
    learner.fit(loans.X, loans.y)
    reports = {
        share: BarycenterClassifier(FrozenEstimator(learner), epsilon_share=share).plan(3000)
        for share in (0.1, 0.9)
    }
    assert reports[0.1] == reports[0.9]
    # A frozen sampler has been paid for with its own budget, and is counted in.
    within = SyntheticDataClassifier(FrozenEstimator(learner.sampler_), n_samples=500, n_draws=1)
    report = BarycenterClassifier(within, delta=1e-4).plan(3000)
    assert [part.epsilon for part in report.parts][0] == 0.4
    with pytest.raises(PublicValueError, match="epsilon must be more than what is spent"):
        BarycenterClassifier(within, epsilon=0.4, delta=1e-5).plan(3000)


@pytest.mark.parametrize("share", [0.0, 1.0, -0.5, None, "half"])
def test_a_share_is_between_0_and_1(share):
    with pytest.raises(ValueError, match="epsilon_share"):
        BarycenterClassifier(Sign(), epsilon_share=share).plan(3000)


@pytest.mark.slow
@pytest.mark.parametrize("in_pipeline", [False, True])
def test_a_search_over_epsilon_moves_all(loans, sampler, in_pipeline):
    model = model_of("synthetic", loans, sampler)
    prefix = ""
    with sklearn.config_context(enable_metadata_routing=True):
        model.set_fit_request(sensitive_features=True)
        if in_pipeline:
            model, prefix = Pipeline([("same", "passthrough"), ("fair", model)]), "fair__"
        grid = {f"{prefix}epsilon": [0.5, 8.0, np.inf], f"{prefix}epsilon_share": [0.5, 0.9]}
        search = GridSearchCV(
            model, grid, scoring=group_scorer("accuracy"), cv=2, error_score="raise"
        ).fit(loans.X, loans.y, sensitive_features=loans.group)
    assert np.isfinite(search.cv_results_["mean_test_score"]).all()
    best = search.best_estimator_[-1] if in_pipeline else search.best_estimator_
    expected = best.epsilon * best.epsilon_share
    assert best.estimator_.sampler_.epsilon == expected
    assert best.estimator_.privacy_.epsilon == expected


def test_a_search_over_a_nested_budget_says_what_to_search_over(loans, sampler):
    model = model_of("synthetic", loans, sampler)
    with sklearn.config_context(enable_metadata_routing=True):
        model.set_fit_request(sensitive_features=True)
        search = GridSearchCV(
            model, {"estimator__sampler__epsilon": [0.5]}, scoring=group_scorer("accuracy"), cv=2
        )
        with pytest.raises(ValueError, match="whose epsilon_share determines it"):
            search.fit(loans.X, loans.y, sensitive_features=loans.group)


@pytest.mark.filterwarnings("ignore:sensitive_features is absent")
def test_a_curve_over_budgets_moves_all(loans, sampler):
    model, seen = model_of("synthetic", loans, sampler, min_ratio=0.0), []

    def accuracy(fitted, X, y):
        seen.append(fitted)
        return np.mean(fitted.predict(X) == y)

    curve = privacy_utility_curve(
        model, loans.X, [0.5, np.inf], y=loans.y, scoring=accuracy, n_repeats=1, public_rows=True
    )
    assert np.isfinite(curve.scores).all()
    assert [model.estimator_.sampler_.epsilon for model in seen] == [0.475, np.inf]
