"""What a fit of maps releases, and what all of it costs."""

import math
import warnings

import numpy as np
import pandas as pd
import pytest
from planned_learners import AddedSign, Sign
from scipy.stats import norm
from sklearn.frozen import FrozenEstimator
from sklearn.linear_model import LinearRegression, LogisticRegression
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

import sklearn_dpgen.predictors._barycenter as module
from sklearn_dpgen.accounting import GaussianProfile, PrivacyReport, compose_epsilon
from sklearn_dpgen.exceptions import LargeDeltaWarning
from sklearn_dpgen.mechanisms._sequence import GaussianSequenceRun
from sklearn_dpgen.nn import Training
from sklearn_dpgen.predictors import BarycenterClassifier, BarycenterRegressor
from sklearn_dpgen.preprocessing import TabularEncoder
from sklearn_dpgen.schema import Categorical, Schema
from sklearn_dpgen.sliced import DPSlicedWassersteinFairClassifier
from sklearn_dpgen.tables import SyntheticDataClassifier, TableSampler


@pytest.fixture(autouse=True)
def _no_fits():
    Sign.fits.clear()


def gaussian_delta(epsilon, mu):
    """Return δ of a Gaussian release, from its textbook form."""
    return norm.cdf(mu / 2 - epsilon / mu) - math.exp(epsilon) * norm.cdf(-mu / 2 - epsilon / mu)


def price(released):
    """Return μ of all captured releases, for vectors that change by √2 at most."""
    return math.sqrt(sum(2 / release.scale**2 for release in released))


def frozen_classifier():
    rng = np.random.default_rng(0)
    X = rng.normal(size=(200, 2))
    return FrozenEstimator(LogisticRegression().fit(X, X[:, 0] > 0))


def frozen_regressor():
    rng = np.random.default_rng(0)
    X = rng.normal(size=(200, 2))
    return FrozenEstimator(LinearRegression().fit(X, X[:, 0]))


def rows(seed, n=500):
    rng = np.random.default_rng(seed)
    return rng.normal(size=(n, 2)), rng.integers(0, 3, size=n)


KINDS = {
    "classifier": lambda **params: BarycenterClassifier(frozen_classifier(), **params),
    "regressor": lambda **params: BarycenterRegressor(
        frozen_regressor(), y_domain=(-2, 2), **params
    ),
}


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.filterwarnings("ignore::sklearn_dpgen.exceptions.SmallGroupWarning")
def test_the_releases_of_a_fit_cost_what_is_said(kind, released):
    X, group = rows(1)
    model = KINDS[kind](epsilon=0.7, delta=1e-5, groups=[0, 1, 2])
    model.fit(X, None, sensitive_features=group)
    assert len(released) == 2
    delta = gaussian_delta(0.7, price(released))
    assert 0.99e-5 < delta <= 1e-5
    assert model.privacy_.epsilon == pytest.approx(0.7, rel=1e-6)
    # One more release of the kind would be unpaid.
    assert gaussian_delta(0.7, price([*released, released[-1]])) > 1e-5


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("place", [0, 17])
@pytest.mark.filterwarnings("ignore::sklearn_dpgen.exceptions.SmallGroupWarning")
def test_a_replaced_record_changes_each_release_by_the_root_of_two(kind, place, released):
    X, group = rows(2)
    model = KINDS[kind](epsilon=1e5, delta=1e-5, groups=[0, 1, 2], random_state=0)
    model.fit(X, None, sensitive_features=group)
    # Maps and their strength are those of the first release, which is the same for a neighbour
    # whose noise made up for the difference.
    strength, maps = model.strength_, model.maps_
    for other, code in ((np.array([9.0, 9.0]), 2), (np.array([-9.0, 0.0]), 0)):
        X_other, group_other = X.copy(), group.copy()
        X_other[place], group_other[place] = other, code
        del released[2:]
        neighbour = KINDS[kind](epsilon=1e5, delta=1e-5, groups=[0, 1, 2], random_state=0)
        neighbour._strength = lambda maps: strength
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(module, "maps_of_halves", lambda *args: maps)
            neighbour.fit(X_other, None, sensitive_features=group_other)
        for first, second in zip(released[:2], released[2:], strict=True):
            assert np.linalg.norm(first.value - second.value) <= math.sqrt(2) * (1 + 1e-9)


def fitted_price(loans, sampler, released):
    learner = SyntheticDataClassifier(sampler(), LogisticRegression(), n_samples=500, n_draws=1)
    model = BarycenterClassifier(learner, epsilon=1.0, delta=1e-5, groups=["a", "b"])
    model.fit(loans.X, loans.y, sensitive_features=loans.group)
    assert len(released) > 3
    return model, gaussian_delta(1.0, price(released))


@pytest.mark.filterwarnings("ignore::sklearn_dpgen.exceptions.SmallGroupWarning")
def test_fit_and_counts_together_spend_the_budget(loans, sampler, released):
    model, delta = fitted_price(loans, sampler, released)
    assert 0.99e-5 < delta <= 1e-5
    assert (model.privacy_.epsilon, model.privacy_.delta) == (1.0, 1e-5)
    fit, counts = model.privacy_.parts
    assert (fit.epsilon, fit.delta) == (0.95, 0.95e-5)
    # A plain sum of the parts would be more than the whole.
    assert fit.epsilon + counts.epsilon > 1.1


@pytest.mark.filterwarnings("ignore::sklearn_dpgen.exceptions.SmallGroupWarning")
def test_a_fit_that_is_not_counted_in_is_caught(loans, sampler, released, monkeypatch):
    free = module.calibrate_remainder
    monkeypatch.setattr(
        module, "calibrate_remainder", lambda eps, delta, spent: free(eps, delta, ())
    )
    assert fitted_price(loans, sampler, released)[1] > 2e-5


@pytest.mark.filterwarnings("ignore::sklearn_dpgen.exceptions.SmallGroupWarning")
def test_a_fit_of_which_only_the_budget_is_known_is_composed_with_it(released):
    rng = np.random.default_rng(0)
    X, y = rng.normal(size=(400, 2)), rng.integers(0, 2, size=400)
    group = np.repeat([0, 1], 200)
    model = BarycenterClassifier(Sign(), epsilon=1.0, delta=1e-5, epsilon_share=0.5, groups=[0, 1])
    model.fit(X, y, sensitive_features=group)
    # The worst mechanism of (1/2, 5e-6) fails openly, or flips a fair sign by randomized response.
    mu = price(released[-2:])
    kept = math.exp(0.5) / (1 + math.exp(0.5))
    delta = kept * gaussian_delta(0.5, mu) + (1 - kept) * gaussian_delta(1.5, mu)
    assert 0.99e-5 < 5e-6 + (1 - 5e-6) * delta <= 1e-5
    assert model.privacy_.releases == ()
    assert model.privacy_ == model.plan(400)


@pytest.mark.filterwarnings("ignore::sklearn_dpgen.exceptions.SmallGroupWarning")
def test_labels_and_records_of_a_frozen_estimator_are_read_by_counts_alone(released):
    X, group = rows(3)
    model = KINDS["classifier"](epsilon=1.0, groups=[0, 1, 2], random_state=0)
    model.fit(X, np.zeros(500), sensitive_features=group)
    first = model.predict_proba(X, sensitive_features=group)
    model.fit(X, None, sensitive_features=group)
    np.testing.assert_array_equal(model.predict_proba(X, sensitive_features=group), first)


@pytest.mark.filterwarnings("ignore::sklearn_dpgen.exceptions.SmallGroupWarning")
def test_seeded_noise_differs_between_budgets_and_records(released):
    X, group = rows(4)

    def noise(epsilon, shift=0.0):
        del released[:]
        model = KINDS["classifier"](epsilon=epsilon, groups=[0, 1, 2], random_state=0)
        model.fit(X + shift, None, sensitive_features=group)
        return [(r.out - r.value) / r.scale for r in released]

    one, same, other, moved = noise(1.0), noise(1.0), noise(2.0), noise(1.0, 0.5)
    np.testing.assert_array_equal(one[0], same[0])
    for different in (other[0], moved[0]):
        assert np.abs(one[0] - different).max() > 0.1
    assert np.abs(one[0][:6] - one[1]).max() > 0.1


def test_what_has_no_price_is_refused(loans, sampler):
    X = TabularEncoder(loans.schema)
    group = {"sensitive_features": loans.group}
    columns = loans.X[["income"]]
    with pytest.raises(ValueError, match="must be private, .* got LogisticRegression"):
        BarycenterClassifier(LogisticRegression()).fit(columns, loans.y, **group)
    scaled = make_pipeline(
        StandardScaler(), DPSlicedWassersteinFairClassifier(0.0, training=Training(max_iter=1))
    )
    with pytest.raises(
        ValueError, match=r"without a budget, got 'standardscaler' \(StandardScaler\)"
    ):
        BarycenterClassifier(scaled).fit(columns, loans.y, **group)
    assert X.get_params()["n_bins"] is None


def signed(kind, n=400):
    """Return records, labels and groups, and a fit of them with a learner of budget alone."""
    rng = np.random.default_rng(0)
    X, y, group = rng.normal(size=(n, 2)), rng.integers(0, 2, size=n), rng.integers(0, 2, size=n)

    def fit(kept=slice(None), **changes):
        given = {"epsilon": 1.0, "delta": 1e-5, "groups": [0, 1], "epsilon_share": 0.5} | changes
        model = BarycenterClassifier(kind(), **given)
        return model.fit(X[kept], y[kept], sensitive_features=group[kept])

    return fit


@pytest.mark.filterwarnings("ignore::sklearn_dpgen.exceptions.SmallGroupWarning")
@pytest.mark.parametrize(
    ("kind", "sensitivity"), [(Sign, math.sqrt(2)), (AddedSign, 1.0)], ids=["replace", "add"]
)
def test_counts_have_the_noise_of_the_relation(kind, sensitivity, released, monkeypatch):
    """Counts change by √2 where a record is replaced, and by 1 where it is added or removed."""

    def spent():
        released.clear()
        model = signed(kind)()
        assert model.privacy_.neighbours == ("replace_one" if kind is Sign else "add_or_remove")
        mu = math.sqrt(sum((sensitivity / release.scale) ** 2 for release in released))
        # The worst mechanism of (1/2, 5e-6) fails openly, or answers by randomized response.
        kept = math.exp(0.5) / (1 + math.exp(0.5))
        delta = kept * gaussian_delta(0.5, mu) + (1 - kept) * gaussian_delta(1.5, mu)
        return 5e-6 + (1 - 5e-6) * delta

    # The whole budget, and no more.
    assert 0.99e-5 < spent() <= 1e-5
    # Negative twin: the noise of a smaller change.
    stated = module._SENSITIVITIES[signed(kind)().privacy_.neighbours]
    assert stated == sensitivity
    for relation in module._SENSITIVITIES:
        monkeypatch.setitem(module._SENSITIVITIES, relation, 0.9 * stated)
    assert spent() > 1e-5


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore::sklearn_dpgen.exceptions.SmallGroupWarning")
def test_a_removed_record_changes_each_release_by_one_at_most(released, monkeypatch):
    fit = signed(AddedSign, n=60)

    def largest_change():
        model = fit(epsilon=1e5)
        strength, maps = model.strength_, model.maps_
        # A neighbour whose noise made up for the difference has the same maps.
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(module, "maps_of_halves", lambda *args: maps)
            patch.setattr(BarycenterClassifier, "_strength", lambda self, maps: strength)
            released.clear()
            fit(epsilon=1e5)
            whole = [release.value for release in released]
            changes = []
            for place in range(12):
                released.clear()
                fit(np.arange(60) != place, epsilon=1e5)
                pairs = zip(whole, [release.value for release in released], strict=True)
                changes += [np.linalg.norm(first - second) for first, second in pairs]
        return max(changes)

    assert 0.99 < largest_change() <= 1 + 1e-9
    # Negative twin: a level that counts for too much.
    halves = module.count_halves
    monkeypatch.setattr(module, "count_halves", lambda *args: 1.1 * halves(*args))
    assert largest_change() > 1.09


def test_delta_is_asked_for_where_the_number_of_records_is_not_public(loans, sampler):
    learner = SyntheticDataClassifier(sampler(neighbours="add_or_remove"), n_samples=500, n_draws=1)
    with pytest.raises(ValueError, match="delta must be a number"):
        BarycenterClassifier(learner).fit(loans.X, loans.y, sensitive_features=loans.group)
    model = BarycenterClassifier(learner, delta=1e-5, min_ratio=0.5)
    model.fit(loans.X, loans.y, sensitive_features=loans.group)
    assert "add or remove" in model.privacy_.neighbouring
    assert "n_samples" not in model.privacy_.public


@pytest.mark.filterwarnings("ignore::sklearn_dpgen.exceptions.SmallGroupWarning")
def test_reports_are_kept_whole(loans, sampler):
    learner = SyntheticDataClassifier(sampler(), n_samples=500, n_draws=1)
    model = BarycenterClassifier(learner, epsilon=1.0)
    model.fit(loans.X, loans.y, sensitive_features=loans.group)
    report = model.privacy_
    assert PrivacyReport.from_dict(report.to_dict()) == report
    assert "group_set" in report.public
    assert isinstance(model.estimator_.sampler_, TableSampler)
    public = BarycenterClassifier(LogisticRegression(), epsilon=np.inf)
    public.fit(loans.X[["income"]], loans.y, sensitive_features=loans.group)
    assert math.isinf(public.privacy_.epsilon)


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore::sklearn_dpgen.exceptions.SmallGroupWarning")
def test_the_fit_of_an_estimator_of_groups_is_paid_for(loans, sampler, released):
    schema = Schema({**loans.schema, "group": Categorical(["a", "b"])})
    groups = sampler("group").set_params(schema=schema)
    model = BarycenterClassifier(
        SyntheticDataClassifier(sampler(), n_samples=500, n_draws=1),
        group_estimator=SyntheticDataClassifier(groups, n_samples=500, n_draws=1),
        epsilon=1.0,
        delta=1e-5,
    )
    model.fit(loans.X, loans.y, sensitive_features=loans.group)
    assert 0.99e-5 < gaussian_delta(1.0, price(released)) <= 1e-5
    each = pytest.approx(0.95 * 0.5**0.5, rel=1e-12)
    assert [part.epsilon for part in model.privacy_.parts[:2]] == [each, each]
    assert [part.delta for part in model.privacy_.parts[:2]] == [0.475e-5] * 2
    assert model.predict(loans.X).shape == (3000,)
    groups.set_params(neighbours="add_or_remove")
    with pytest.raises(ValueError, match="no common guarantee"):
        model.fit(loans.X, loans.y, sensitive_features=loans.group)


def public_state(model, X, group):
    """Return all that a fit publishes: attributes, the report, what is predicted of public rows."""
    state = {name: value for name, value in vars(model).items() if name.endswith("_")}
    levels = np.linspace(0, 1, 21)
    maps = state.pop("maps_")
    state["laws"] = np.stack([law.quantile(levels) for law in maps.laws])
    state["weights"] = maps.weights
    for name in ("rates_", "means_"):
        if name in state:
            state[name] = state[name].to_numpy()
    state.pop("estimator_")
    state["privacy_"] = state["privacy_"].to_json()
    state["predicted"] = model.predict(X, sensitive_features=group)
    return state


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("epsilon", [0.1, 3.0])
def test_nothing_but_releases_tells_of_the_records(kind, epsilon, forced):
    states, warned = [], []
    public, public_group = rows(9, 50)
    for seed, n in ((5, 400), (6, 400)):
        X, group = rows(seed, n)
        group = group if seed == 5 else np.where(np.arange(n) < 397, 0, np.arange(n) % 2 + 1)
        del forced[:]
        model = KINDS[kind](epsilon=epsilon, delta=1e-5, groups=[0, 1, 2])
        labels = np.full(n, seed)
        with warnings.catch_warnings(record=True) as seen:
            warnings.simplefilter("always")
            model.fit(X + seed, labels, sensitive_features=group)
        warned.append([str(warning.message) for warning in seen])
        states.append(public_state(model, public, public_group))
        assert len(forced) == 2
    assert warned[0] == warned[1]
    assert states[0].keys() == states[1].keys()
    for name, value in states[0].items():
        np.testing.assert_array_equal(value, states[1][name], err_msg=name)


@pytest.mark.slow
def test_releases_of_the_whole_compose_to_its_price(loans, sampler, released):
    learner = SyntheticDataClassifier(
        TableSampler(schema=loans.schema, marginals="auto", target="paid"),
        LogisticRegression(),
        n_samples=500,
        n_draws=1,
    )
    table = loans.X.assign(rate=loans.rate)
    model = BarycenterClassifier(learner, epsilon=1.0, delta=1e-5, groups=["a", "b"])
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)
        model.fit(table, loans.y, sensitive_features=loans.group)
    assert 0.999 < compose_epsilon(model.privacy_.releases, 1e-5) <= 1.0
    profiles = {type(profile).__name__ for profile, _ in model.privacy_.releases}
    n_selections = sum(e.among is not None for p in model.privacy_.parts for e in p.events)
    assert ("BoundedRangeProfile" in profiles) == (n_selections > 0)
    assert len(model.privacy_.releases) == 2 + (n_selections > 0)


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore::sklearn_dpgen.exceptions.SmallGroupWarning")
def test_selections_of_a_fit_are_paid_for():
    rng = np.random.default_rng(0)
    names = [f"c{i}" for i in range(15)]
    X = pd.DataFrame(rng.integers(0, 2, size=(20_000, 15)), columns=names)
    y = X["c0"] ^ (rng.uniform(size=20_000) < 0.2)
    schema = Schema({name: Categorical([0, 1]) for name in [*names, "y"]})
    learner = SyntheticDataClassifier(
        TableSampler(schema=schema, target="y"),
        n_samples=500,
        n_draws=1,
    )
    model = BarycenterClassifier(learner, epsilon=1.0, delta=1e-5, groups=[0, 1])
    model.fit(X, y.astype(int), sensitive_features=rng.integers(0, 2, size=20_000))
    kinds = [type(profile).__name__ for profile, _ in model.privacy_.releases]
    assert kinds.count("BoundedRangeProfile") == 1
    assert 0.999 < compose_epsilon(model.privacy_.releases, 1e-5) <= 1.0


@pytest.mark.filterwarnings("ignore::sklearn_dpgen.exceptions.SmallGroupWarning")
def test_a_pipeline_is_paid_for_by_its_last_step(loans, released):
    learner = DPSlicedWassersteinFairClassifier(
        0.0, classes=["no", "yes"], training=Training(max_iter=2)
    )
    schema = Schema({name: loans.schema[name] for name in loans.X})
    model = BarycenterClassifier(
        make_pipeline(TabularEncoder(schema), learner), delta=1e-5, groups=["a", "b"]
    )
    model.fit(loans.X, loans.y, sensitive_features=loans.group)
    assert model.privacy_.parts[0].epsilon == 0.95
    counts = GaussianProfile(price(released[-2:]))
    whole = [*model.privacy_.parts[0].releases, (counts, 1)]
    assert 0.999 < compose_epsilon(whole, 1e-5) <= 1.0
    assert model.privacy_ == model.plan(3000)


@pytest.mark.filterwarnings("ignore::sklearn_dpgen.exceptions.SmallGroupWarning")
def test_reports_say_what_is_public_seeded_and_not_paid_for(loans, sampler):
    X, group = rows(7)
    report = KINDS["classifier"](groups=[0, 1, 2]).fit(X, None, sensitive_features=group).privacy_
    assert "fitted_estimator" in report.public
    assert "frozen_estimator" in report.caveats
    learner = SyntheticDataClassifier(sampler(random_state=0), n_samples=500, n_draws=1)
    model = BarycenterClassifier(learner).fit(loans.X, loans.y, sensitive_features=loans.group)
    assert model.privacy_.noise_source == "seeded generator: the guarantee is void for whoever " + (
        "knows or guesses the seed"
    )
    assert "rowwise_estimator" in model.privacy_.caveats
    with pytest.warns(LargeDeltaWarning):
        KINDS["classifier"](delta=0.01).fit(X, None, sensitive_features=group)


@pytest.mark.filterwarnings("ignore::sklearn_dpgen.exceptions.SmallGroupWarning")
def test_a_fit_keeps_what_it_says_and_nothing_else(loans, sampler):
    learner = SyntheticDataClassifier(sampler(), LogisticRegression(), n_samples=500, n_draws=1)
    model = BarycenterClassifier(learner, groups=["a", "b"])
    model.fit(loans.X, loans.y, sensitive_features=loans.group)
    kept = {name for name in vars(model) if name not in model.get_params(deep=False)}
    assert kept == {
        *("estimator_", "maps_", "strength_", "rates_", "groups_", "privacy_"),
        *("n_features_in_", "feature_names_in_"),
    }
    kept = {
        name
        for name in vars(model.estimator_)
        if name not in model.estimator_.get_params(deep=False)
    }
    assert kept == {
        *("sampler_", "estimators_", "encoder_", "classes_", "privacy_"),
        *("n_features_in_", "feature_names_in_"),
    }


class Revealing(LogisticRegression):
    """A fitted model that fails on some records, and says which."""

    def predict_proba(self, X):
        if np.any(X > 100):
            raise KeyError(f"secret {X.max()}")
        return super().predict_proba(X)


def test_errors_of_frozen_models_and_of_unpaid_ones_show_no_value(released):
    X, group = rows(8)
    X[3] = 12345.0
    model = FrozenEstimator(Revealing().fit(rows(1)[0], rows(1)[1] > 0))
    with pytest.raises(ValueError, match="it raised KeyError") as caught:
        BarycenterClassifier(model).fit(X, None, sensitive_features=group)
    assert "12345" not in str(caught.value)
    assert caught.value.__context__ is None
    fine = frozen_classifier()
    groups = FrozenEstimator(Revealing().fit(*rows(1)))
    released.clear()
    with pytest.raises(ValueError, match="it raised KeyError") as caught:
        BarycenterClassifier(fine, group_estimator=groups).fit(X, None, sensitive_features=group)
    assert "12345" not in str(caught.value)
    # It fails before anything is released, and not by what a release has cost.
    assert not released
    with pytest.raises(ValueError, match="must be private, .* got LogisticRegression") as caught:
        BarycenterClassifier(LogisticRegression()).fit(
            X, np.full(500, "HIV+"), sensitive_features=group
        )
    assert "HIV" not in str(caught.value)


def test_a_share_that_leaves_nothing_to_the_counts_is_refused(loans, released):
    model = BarycenterClassifier(Sign(), delta=1e-5, epsilon_share=0.9999, groups=["a", "b"])
    with pytest.raises(ValueError, match="epsilon_share must leave a part .* got 0.9999"):
        model.fit(loans.X[["income"]], loans.y, sensitive_features=loans.group)
    # Nothing was paid for.
    assert not hasattr(model, "privacy_")
    assert not Sign.fits


@pytest.mark.parametrize("stopped_at", [1, 2, 3, 4])
@pytest.mark.filterwarnings("ignore::sklearn_dpgen.exceptions.SmallGroupWarning")
def test_a_fit_that_is_stopped_states_what_it_paid_for(loans, sampler, stopped_at, monkeypatch):
    release, calls = GaussianSequenceRun.release, []

    def interrupt(self, value, noise):
        calls.append(value)
        if len(calls) == stopped_at:
            raise KeyboardInterrupt
        return release(self, value, noise)

    monkeypatch.setattr(GaussianSequenceRun, "release", interrupt)
    learner = SyntheticDataClassifier(sampler(), LogisticRegression(), n_samples=500, n_draws=1)
    model = BarycenterClassifier(learner, groups=["a", "b"])
    with pytest.raises(KeyboardInterrupt):
        model.fit(loans.X, loans.y, sensitive_features=loans.group)
    assert model.privacy_ == model.plan(3000, columns=["income", "job"])
    assert not hasattr(model, "strength_")
    assert not hasattr(model, "rates_")
