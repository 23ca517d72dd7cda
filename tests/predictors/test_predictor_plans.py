"""Plans of predictors without records, all of a fit in one charge, and persons."""

import numpy as np
import pytest
from planned_learners import Sign
from sklearn.frozen import FrozenEstimator
from sklearn.linear_model import LogisticRegression
from sklearn.pipeline import make_pipeline

import sklearn_dpgen.predictors._barycenter as module
from sklearn_dpgen.exceptions import BudgetExceededError, SmallGroupWarning
from sklearn_dpgen.ledger import PrivacyLedger
from sklearn_dpgen.nn import Training
from sklearn_dpgen.predictors import BarycenterClassifier, BarycenterRegressor
from sklearn_dpgen.preprocessing import TabularEncoder
from sklearn_dpgen.schema import Categorical, Numeric, Schema
from sklearn_dpgen.sliced import DPSlicedWassersteinFairClassifier
from sklearn_dpgen.tables import SyntheticDataClassifier, SyntheticDataRegressor
from sklearn_dpgen.utils._random import NoiseSource

pytestmark = pytest.mark.filterwarnings(
    "ignore::sklearn_dpgen.exceptions.SmallGroupWarning",
    "ignore:The noise:sklearn_dpgen.exceptions.NoisyCountsWarning",
)


@pytest.fixture(autouse=True)
def _no_fits():
    Sign.fits.clear()


@pytest.fixture
def ledger(tmp_path):
    """Return a maker of ledgers."""

    def make(epsilon=3.0, name="one"):
        return PrivacyLedger.create(tmp_path / name, dataset="loans", epsilon=epsilon, delta=1e-3)

    return make


def frozen():
    X = np.random.default_rng(0).normal(size=(200, 1))
    return FrozenEstimator(LogisticRegression().fit(X, X[:, 0] > 0))


# Plans.


@pytest.mark.parametrize("columns", [["income", "job"], ["income"]])
@pytest.mark.parametrize("seed", [0, None])
def test_a_sampler_plans_for_what_learns_from_it(loans, sampler, columns, seed):
    sampler = sampler(marginals="pairs", random_state=seed)
    model = SyntheticDataClassifier(sampler, LogisticRegression(), n_samples=500, n_draws=1)
    report = model.plan(3000, columns=columns)
    assert report == model.fit(loans.X[columns], loans.y).privacy_
    assert report != model.plan(6000, columns=columns)


def test_a_plan_takes_all_columns_by_default(loans, sampler):
    model = SyntheticDataRegressor(sampler("rate", marginals="pairs"), n_samples=500, n_draws=1)
    assert model.plan(3000) == model.plan(3000, 3, columns=["income", "job", "paid"])
    with pytest.raises(ValueError, match="n_features must be that of the schema, 3"):
        model.plan(3000, 2)
    with pytest.raises(ValueError, match=r"must have columns of the schema only, got \['more'\]"):
        model.plan(3000, columns=["more"])
    target = "must not have the target as a column if y is given, got 'rate'"
    with pytest.raises(ValueError, match=target):
        model.plan(3000, columns=["rate"])


def barycenters(loans, sampler):
    """Return classifiers with what their plans take, by name."""
    synthetic = SyntheticDataClassifier(sampler(), LogisticRegression(), n_samples=500, n_draws=1)
    schema = Schema({name: loans.schema[name] for name in loans.X})
    fair = DPSlicedWassersteinFairClassifier(
        0.0, classes=["no", "yes"], training=Training(max_iter=2)
    )
    with_groups = Schema({**loans.schema, "group": Categorical(["a", "b"])})
    groups = sampler("group").set_params(schema=with_groups)
    both = ["income", "job"]
    return {
        "frozen": (BarycenterClassifier(frozen()), {}),
        "synthetic": (BarycenterClassifier(synthetic), {"columns": both}),
        "pipeline": (BarycenterClassifier(make_pipeline(TabularEncoder(schema), fair)), {}),
        "groups": (
            BarycenterClassifier(
                SyntheticDataClassifier(sampler(), n_samples=500, n_draws=1),
                group_estimator=SyntheticDataClassifier(groups, n_samples=500, n_draws=1),
                delta=1e-5,
            ),
            {"columns": both},
        ),
        "seeded": (BarycenterClassifier(frozen(), random_state=0, groups=["a", "b"]), {}),
        "add or remove": (
            BarycenterClassifier(
                SyntheticDataClassifier(
                    sampler(neighbours="add_or_remove"), n_samples=500, n_draws=1
                ),
                delta=1e-5,
            ),
            {"columns": both},
        ),
        "public": (BarycenterClassifier(LogisticRegression(), epsilon=np.inf), {}),
    }


NAMES = ["frozen", "synthetic", "pipeline", "groups", "seeded", "add or remove", "public"]


@pytest.mark.parametrize("name", NAMES)
def test_a_barycentre_plans_all_that_it_pays_for(loans, sampler, name):
    model, sizes = barycenters(loans, sampler)[name]
    report = model.plan(3000, **sizes)
    X = loans.X if name not in ("frozen", "seeded", "public") else loans.X[["income"]].to_numpy()
    assert model.fit(X, loans.y, sensitive_features=loans.group).privacy_ == report
    assert (report.neighbours == "add_or_remove") == (name == "add or remove")
    if name != "public":
        assert sum(report.split.values()) == pytest.approx(1)
        assert len(report.split) == (2 if name in ("frozen", "seeded") else 3)


def test_a_private_number_of_records_is_in_no_report(loans, sampler):
    for name, is_public in (("add or remove", False), ("synthetic", True)):
        model, sizes = barycenters(loans, sampler)[name]
        one_less = model.plan(2999, **sizes)
        assert (one_less != model.plan(3000, **sizes)) == is_public


def test_without_groups_nothing_is_paid_for_those(loans, sampler):
    model, sizes = barycenters(loans, sampler)["groups"]
    report = model.plan(3000, n_groups=1, **sizes)
    assert len(report.parts) == 2
    with pytest.warns(UserWarning, match="sensitive_features is absent"):
        assert model.fit(loans.X, loans.y).privacy_ == report


@pytest.mark.slow
def test_a_regressor_plans(loans, sampler):
    learner = SyntheticDataRegressor(sampler("rate"), n_samples=500, n_draws=1)
    model = BarycenterRegressor(learner, y_domain=(0, 12), delta=1e-5)
    report = model.plan(3000, columns=["income", "job"])
    model.fit(loans.X, loans.rate, sensitive_features=loans.group)
    assert model.privacy_ == report


def test_a_plan_says_what_noise_leaves_of_a_group(loans):
    model = BarycenterClassifier(frozen(), delta=1e-5)
    report = model.plan(3000)
    sigma = report.noise_scale["release 2"] * 0.5**0.5
    words = report.precision["mean outcome of a group"]
    assert words.startswith(f"± {sigma:.2g} records: ± {sigma / 1000:.2g} of its range")
    with pytest.warns(SmallGroupWarning, match="At least one of 4 groups has fewer"):
        model.plan(100, n_groups=4)


def test_a_plan_refuses_what_a_fit_refuses():
    with pytest.raises(ValueError, match="must be private, .* got LogisticRegression"):
        BarycenterClassifier(LogisticRegression()).plan(3000)
    both = {"estimator": Sign(), "group_estimator": Sign()}
    with pytest.raises(ValueError, match="epsilon_share must leave .* got 0.95: epsilon must be"):
        BarycenterClassifier(**both, delta=1e-5).plan(3000)
    assert len(BarycenterClassifier(**both, epsilon_share=0.7, delta=1e-5).plan(3000).parts) == 3
    with pytest.raises(ValueError, match="at most 200 groups, got"):
        BarycenterClassifier(frozen()).plan(3000, n_groups=201)


# Ledgers.


def no_draw(self, size):
    raise AssertionError("a draw was made")


def charges_late(self, report):
    """A broken variant: what is refused comes after the fits."""
    self.privacy_ = report


@pytest.mark.parametrize("broken", [False, True])
@pytest.mark.parametrize("name", ["frozen", "synthetic", "pipeline", "groups"])
def test_a_refused_fit_pays_for_nothing(loans, sampler, ledger, monkeypatch, name, broken):
    model, _ = barycenters(loans, sampler)[name]
    small = ledger(0.5)
    model.set_params(ledger=small)
    monkeypatch.setattr(NoiseSource, "_uniform", no_draw)
    if broken:
        monkeypatch.setattr(BarycenterClassifier, "_charge", charges_late)
    X = loans.X if name != "frozen" else loans.X[["income"]].to_numpy()
    with pytest.raises(AssertionError if broken else BudgetExceededError):
        model.fit(X, loans.y, sensitive_features=loans.group)
    assert hasattr(model, "privacy_") == broken
    assert not hasattr(model, "maps_")
    assert small.spent() == 0


@pytest.mark.parametrize("name", ["frozen", "synthetic", "pipeline", "groups"])
def test_all_of_a_fit_is_one_charge(loans, sampler, ledger, name):
    model, _ = barycenters(loans, sampler)[name]
    whole = ledger()
    model.set_params(ledger=whole)
    X = loans.X if name != "frozen" else loans.X[["income"]].to_numpy()
    model.fit(X, loans.y, sensitive_features=loans.group)
    (charge,) = whole.report().charges
    assert charge.what == "BarycenterClassifier"
    assert charge.report == model.privacy_


def test_a_fit_within_is_not_paid_twice(loans, sampler, ledger):
    own, other = ledger(), ledger(name="other")
    for learner in (
        SyntheticDataClassifier(sampler(), n_samples=500, n_draws=1, ledger=own),
        SyntheticDataClassifier(sampler(ledger=own), n_samples=500, n_draws=1),
    ):
        for outer in (other, None):
            model = BarycenterClassifier(learner, ledger=outer)
            with pytest.raises(
                ValueError, match="must have no ledger.*not be charged for the other"
            ):
                model.fit(loans.X, loans.y, sensitive_features=loans.group)
    assert own.spent() == 0


@pytest.mark.parametrize("where", ["sampler", "model"])
def test_a_sampler_books_what_learns_from_it(loans, sampler, ledger, where):
    own = ledger()
    if where == "sampler":
        model = SyntheticDataClassifier(sampler(ledger=own), n_samples=500, n_draws=1)
    else:
        model = SyntheticDataClassifier(sampler(), n_samples=500, n_draws=1, ledger=own)
    model.fit(loans.X, loans.y)
    (charge,) = own.report().charges
    assert charge.report == model.privacy_
    model = SyntheticDataClassifier(sampler(ledger=own), n_samples=500, n_draws=1, ledger=own)
    with pytest.raises(ValueError, match="ledger must be None if the sampler has one too"):
        model.fit(loans.X, loans.y)


@pytest.mark.parametrize("overspends", [0.0, 0.1])
def test_a_fit_within_that_costs_more_than_planned_is_caught(loans, overspends):
    model = BarycenterClassifier(Sign(overspends=overspends), delta=1e-5)
    args = (loans.X[["income"]], loans.y)
    if overspends:
        with pytest.raises(RuntimeError, match="must cost what it had planned, and its fit"):
            model.fit(*args, sensitive_features=loans.group)
        assert not hasattr(model, "maps_")
    else:
        model.fit(*args, sensitive_features=loans.group)


# Persons.


def of_persons(loans, n_persons=1000):
    """Return three rows of each person, but for the first of 4 and the second of 2."""
    who = np.arange(len(loans.X)) % n_persons
    who[n_persons + 1] = 0
    return loans.X.assign(who=[f"person {i}" for i in who]), who


def test_a_sampler_protects_the_persons_of_what_learns(loans, sampler):
    frame, _ = of_persons(loans)
    model = SyntheticDataClassifier(
        sampler(), LogisticRegression(), n_samples=500, n_draws=1, unit="who"
    )
    report = model.fit(frame, loans.y).privacy_
    assert report == model.plan(1000, columns=["income", "job"])
    assert report.unit == "who"
    assert model.feature_names_in_.tolist() == ["income", "job"]
    np.testing.assert_array_equal(model.predict(frame), model.predict(loans.X))
    one = SyntheticDataClassifier(
        sampler(unit="who"), LogisticRegression(), n_samples=500, n_draws=1
    )
    assert one.fit(frame, loans.y).privacy_ == report
    both = SyntheticDataClassifier(sampler(unit="who"), n_samples=500, n_draws=1, unit="who")
    with pytest.raises(ValueError, match="unit must be None if the sampler has one too"):
        both.fit(frame, loans.y)


def test_a_barycentre_protects_persons_throughout(loans, sampler):
    frame, _ = of_persons(loans)
    learner = SyntheticDataClassifier(sampler(), LogisticRegression(), n_samples=500, n_draws=1)
    model = BarycenterClassifier(learner, unit="who")
    model.fit(frame, loans.y, sensitive_features=loans.group)
    assert model.privacy_ == model.plan(1000, columns=["income", "job"])
    assert [part.unit for part in model.privacy_.parts] == ["who", "who"]
    assert "n_samples" in model.privacy_.public
    assert "person 0" not in model.privacy_.to_text()
    given = {"sensitive_features": loans.group}
    np.testing.assert_array_equal(model.predict(frame, **given), model.predict(loans.X, **given))


def test_units_within_and_outside_are_one(loans, sampler):
    learner = SyntheticDataClassifier(sampler(unit="who"), n_samples=500, n_draws=1)
    with pytest.raises(ValueError, match="must have no unit of its own, got 'who'"):
        BarycenterClassifier(learner).plan(1000)
    assert BarycenterClassifier(learner, unit="who").plan(1000).unit == "who"
    schema = Schema({"income": Numeric(0, 10)})
    pipeline = make_pipeline(TabularEncoder(schema), Sign())
    with pytest.raises(ValueError, match="which a pipeline removes"):
        BarycenterClassifier(pipeline, unit="who").plan(1000)


class SignOfRows(Sign):
    """A broken variant that takes a unit and protects single rows."""

    def _protected(self, report):
        return report


def test_a_nested_fit_that_protects_rows_alone_is_refused():
    assert BarycenterClassifier(Sign(), unit="who").plan(1000).unit == "who"
    with pytest.raises(ValueError, match="no common guarantee"):
        BarycenterClassifier(SignOfRows(), unit="who").plan(1000)


@pytest.mark.parametrize("neighbours", ["replace_one", "add_or_remove"])
def test_persons_may_count_by_rows_within_and_once_outside(sampler, neighbours):
    rows = sampler(neighbours=neighbours, unit="who", unit_weights="rows", max_rows=3)
    learner = SyntheticDataClassifier(rows, n_samples=500, n_draws=1)
    report = BarycenterClassifier(learner, unit="who", delta=1e-5).plan(1000)
    assert (report.neighbours, report.unit, report.max_rows) == (neighbours, "who", 3)
    assert {"rows_count", "persons_count_once"} < set(report.caveats)


def all_rows(self, X, *aligned, seed):
    """A broken variant: all rows of a person are counted."""
    return [X.drop(columns="who"), *aligned]


@pytest.mark.parametrize("broken", [False, True])
def test_a_replaced_person_moves_releases_by_the_root_of_two(loans, released, monkeypatch, broken):
    frame, who = of_persons(loans)
    # Each person has one group, of all others the same row is drawn on both sides.
    groups = loans.group[who]
    monkeypatch.setattr(NoiseSource, "uniform", lambda self, size: np.full(size, 0.7))
    if broken:
        monkeypatch.setattr(BarycenterClassifier, "_one_row_each", all_rows)
    changed, other = frame.drop(columns="job"), groups.copy()
    first = changed.copy()
    changed.loc[who == 0, "income"] = 10 - changed.loc[who == 0, "income"]
    changed.loc[who == 0, "who"] = "somebody else"
    other[who == 0] = "b" if groups[0] == "a" else "a"
    values, maps = [], []
    for table, codes in ((first, groups), (changed, other)):
        model = BarycenterClassifier(Sign(), unit="who", groups=["a", "b"], delta=1e-5)
        if maps:
            monkeypatch.setattr(module, "maps_of_halves", lambda *args: maps[0])
            model._strength = lambda maps: 1.0
        model._strength = lambda maps: 1.0
        released.clear()
        model.fit(table, loans.y, sensitive_features=codes)
        maps.append(model.maps_)
        values.append([release.value for release in released[-2:]])
    for one, moved in zip(*values, strict=True):
        change = np.linalg.norm(one - moved)
        assert change > 0.5
        assert (change <= 2**0.5 * (1 + 1e-9)) == (not broken)


def test_persons_need_a_frame(loans):
    model = BarycenterClassifier(Sign(), unit="who", delta=1e-5)
    with pytest.raises(TypeError, match="X must be a data frame"):
        model.fit(loans.X[["income"]].to_numpy(), loans.y, sensitive_features=loans.group)
    with pytest.raises(ValueError, match="unit must be a column of X, got 'who'"):
        model.fit(loans.X, loans.y, sensitive_features=loans.group)
    assert not Sign.fits
