"""Groups: declared ones of which a fold may lack some, small ones, and foreseen noise."""

import warnings
from contextlib import nullcontext

import numpy as np
import pandas as pd
import pytest
import sklearn
from numpy.testing import assert_array_equal
from sklearn.metrics import roc_auc_score
from sklearn.model_selection import GridSearchCV, KFold, cross_val_score

from sklearn_dpgen.exceptions import NoisyGradientsWarning, SmallGroupWarning
from sklearn_dpgen.mechanisms import StratifiedGaussianMechanism, Stratum
from sklearn_dpgen.sliced import DPSlicedWassersteinFairClassifier, _fair

FAIR = ["regressor", "classifier", "encoder"]

# Declared groups.


@pytest.mark.parametrize("kind", FAIR)
def test_groups_that_occur_may_be_declared(tiny, table, kind):
    fits = [
        table.train(tiny(kind, groups=groups, epsilon=np.inf))
        for groups in (None, ["b", "a"], np.array(["a", "b"]), pd.Series(["a", "b"]))
    ]
    for fit in fits:
        assert fit.groups_ == ["a", "b"]
        assert fit.privacy_.sensitivity == fits[0].privacy_.sensitivity
    # What is declared is not read off the records.
    read = ["group_set" in fit.privacy_.public for fit in fits]
    assert read == [True, False, False, False]
    assert all("group_sizes" in fit.privacy_.public for fit in fits)


@pytest.mark.parametrize("kind", FAIR)
def test_a_declared_group_may_be_empty(tiny, table, parameters_of, kind):
    plain = table.train(tiny(kind, epsilon=np.inf))
    wide = table.train(tiny(kind, epsilon=np.inf, groups=["a", "ab", "b"]))
    assert wide.groups_ == ["a", "ab", "b"]
    # It takes no part in the penalty, and none in the noise.
    assert_array_equal(parameters_of(wide), parameters_of(plain))
    assert wide.privacy_.sensitivity == plain.privacy_.sensitivity
    # A lone record makes a group, that without the declaration is refused.
    groups = np.array([*table.groups[:40], "c"])
    lone = tiny(kind, groups=["a", "b", "c"], epsilon=np.inf)
    table.train(lone, sensitive_features=groups)
    assert lone.privacy_.sensitivity < 3 * plain.privacy_.sensitivity
    table.train(lone.set_params(gradient__group_weights="equal"), sensitive_features=groups)
    assert lone.privacy_.sensitivity > 3 * plain.privacy_.sensitivity
    with pytest.raises(ValueError, match="smallest has 1. Merge groups, or declare groups"):
        table.train(tiny(kind), sensitive_features=groups)


@pytest.mark.parametrize("kind", FAIR)
def test_one_of_the_declared_groups_leaves_nothing_to_compare(tiny, table, parameters_of, kind):
    plain = table.train(tiny(kind, alpha=0.0, epsilon=np.inf), sensitive_features=None)
    with pytest.warns(
        UserWarning,
        match="no pair of groups to compare: fitting without the penalty",
    ):
        alone = table.train(
            tiny(kind, groups=["a", "b"], epsilon=np.inf), sensitive_features=["b"] * 41
        )
    assert_array_equal(parameters_of(alone), parameters_of(plain))
    # A record of the other group would have brought in the penalty: it is no neighbour.
    assert "another of the same group" in alone.privacy_.neighbouring
    assert "another of the same group" not in plain.privacy_.neighbouring


@pytest.mark.parametrize("kind", FAIR)
def test_missing_values_are_a_group(tiny, table, parameters_of, kind):
    plain = table.train(tiny(kind, epsilon=np.inf))
    for missing in (None, np.nan):
        groups = table.groups.astype(object)
        groups[groups == "b"] = missing
        for declared in (None, ["a", missing]):
            fit = table.train(
                tiny(kind, epsilon=np.inf, groups=declared), sensitive_features=groups
            )
            assert fit.groups_ == ["a", None]
            assert_array_equal(parameters_of(fit), parameters_of(plain))


def test_groups_of_several_columns_are_rows(tiny, table):
    columns = np.column_stack([np.arange(41) % 2, np.arange(41) // 2 % 2])
    rows = [(0, 0), (0, 1), (1, 0), (1, 1), (2, 0)]
    fit = table.train(tiny("classifier", groups=rows), sensitive_features=columns)
    assert fit.groups_ == rows


@pytest.mark.parametrize("alpha", [0.5, 1.0])
def test_a_group_may_lack_a_label(tiny, table, probe, alpha):
    # Of label 1 there is group b alone, which is compared with nobody.
    labels = ((table.groups == "b") & (np.arange(41) % 2 == 0)).astype(int)
    counts = [17, int(((table.groups == "b") & (labels == 0)).sum()), int(labels.sum())]
    options = {"penalty": "equalized_odds", "classes": [0, 1], "groups": ["a", "b"]}
    classifier = tiny("classifier", alpha=alpha, epsilon=np.inf, **options)
    with pytest.raises(ValueError, match="within every label"):
        classifier.set_params(groups=None).fit(table.X, labels, sensitive_features=table.groups)
    classifier.set_params(groups=["a", "b"])
    strata = probe(
        classifier.fit, table.X, labels, sensitive_features=table.groups
    ).mechanism.strata
    assert [stratum.size for stratum in strata] == counts
    # One pair: (1 - alpha) 2 C / n + alpha 4 (1 - p) 8 M L / n, with the share p in the label.
    task, pair = (1 - alpha) * 2 / 41, alpha * 4 * 8 * 0.5 * 0.25 / 41
    within = counts[0] + counts[1]
    expected = [task + pair * counts[1] / within, task + pair * counts[0] / within, task]
    assert [s.sensitivity for s in strata] == pytest.approx(expected, rel=1e-12, abs=1e-300)


@pytest.mark.slow
@pytest.mark.parametrize("search", [False, True])
def test_a_fold_may_lack_a_group(tiny, table, search):
    groups = np.array(["c"] * 5 + ["a", "b"] * 18)
    # The fold that is held out first has all records of c.
    folds = KFold(4)
    assert "c" not in groups[next(folds.split(groups))[0]]
    options = {"cv": folds, "error_score": "raise"}

    def run(sensitive, **declared):
        fair = tiny("classifier", classes=[0, 1], epsilon=np.inf, **declared)
        with sklearn.config_context(enable_metadata_routing=True):
            fair.set_fit_request(sensitive_features=True)
            if search:
                found = GridSearchCV(fair, {"alpha": [0.1, 0.9]}, **options)
                found.fit(table.X, table.labels, sensitive_features=sensitive)
                assert found.best_estimator_.groups_ == ["a", "b", "c"]
                return found.cv_results_["mean_test_score"]
            routed = {"params": {"sensitive_features": sensitive}, **options}
            return cross_val_score(fair, table.X, table.labels, **routed)

    assert np.isfinite(run(groups, groups=["a", "b", "c"])).all()
    # Undeclared, a fold with a single record of a group fails.
    groups[-1] = "c"
    with pytest.raises(ValueError, match="at least two records; the smallest has 1"):
        run(groups)
    assert np.isfinite(run(groups, groups=["a", "b", "c"])).all()


# A small group.


def simulated(n_small, n=2000):
    rng = np.random.default_rng(0)
    X = rng.uniform(-1, 1, size=(n, 4))
    y = (X @ [3, -2, 1, 0] + rng.normal(size=n) > 0).astype(int)
    groups = np.where(np.arange(n) < n_small, "tiny", rng.choice(["a", "b"], size=n))
    return X, y, groups


def fit(n_small, n=2000, epsilon=4.0, **options):
    X, y, groups = simulated(n_small, n)
    options = {
        "alpha": 0.5,
        "training__hidden_layer_sizes": (),
        "training__max_iter": 20,
        "random_state": 0,
    } | options
    classifier = DPSlicedWassersteinFairClassifier(epsilon=epsilon, classes=[0, 1])
    return classifier.set_params(**options).fit(X, y, sensitive_features=groups)


@pytest.mark.slow
@pytest.mark.parametrize("group_weights", ["size", "equal"])
def test_a_group_of_ten_does_not_ruin_the_fit(group_weights):
    options = {"training__max_iter": 150, "training__learning_rate": 0.1}
    with nullcontext() if group_weights == "size" else pytest.warns(NoisyGradientsWarning):
        classifier = fit(10, 6000, 0.3, gradient__group_weights=group_weights, **options)
    X, y, _ = simulated(0, 6000)
    score = roc_auc_score(y, classifier.predict_proba(X)[:, 1])
    assert (score > 0.94) == (group_weights == "size")
    assert score > 0.94 or score < 0.8


# What noise will leave.


def left_noise(classifier, alpha=0.5):
    report = classifier.privacy_
    # Of four features and an intercept.
    return report.noise_scale * np.sqrt(5 / report.n_releases) / (1 - alpha)


@pytest.mark.parametrize("group_weights", ["size", "equal"])
def test_noise_is_foreseen(group_weights):
    with pytest.warns(NoisyGradientsWarning) as seen:
        classifier = fit(20, epsilon=0.3, gradient__group_weights=group_weights)
    (warning,) = seen
    assert warning.filename == __file__
    text, noise = str(warning.message), left_noise(classifier)
    assert f"noise of the whole fit has norm {noise:.2g} on the weights of one output" in text
    assert f"keeps about {1 / (1 + (noise / 0.15) ** 2):.0%} of the AUC above 0.5" in text
    assert f"need about {2000 * noise / 0.025:.0f} records, got 2000" in text
    assert "predictors.BarycenterClassifier" in text
    # The batch holds 4 of the group and 396 others; in three equal groups there would be 133.
    task, pair = 0.5 * 2 / 400, 0.5 * 2 / 3 * 8 * 0.5 * 0.25
    factor = (task + pair / 4) / (task + pair / 133)
    blame = (
        f"Group 'tiny' has 20 records and multiplies the noise by {factor:.3g} relative to groups"
    )
    assert (blame in text) == (group_weights == "equal")
    # It is no more than the report says: public.
    if group_weights == "equal":
        assert classifier.privacy_.sensitivity == pytest.approx(task + pair / 4, rel=1e-2)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("n", "epsilon", "alpha", "options", "warns"),
    [
        (1000, 1.0, 0.5, {}, True),
        (1000, 1.0, 0.8, {}, True),
        (6000, 1.0, 0.5, {}, False),
        (1000, np.inf, 0.8, {}, False),
        # Without a penalty, or without a task.
        (1000, 0.1, 0.0, {}, False),
        (1000, 0.1, 1.0, {}, False),
        (1000, 1.0, 0.5, {"gradient__jacobian_clip": 0.001}, False),
    ],
    ids=str,
)
def test_where_noise_is_foreseen(n, epsilon, alpha, options, warns):
    with warnings.catch_warnings():
        warnings.simplefilter("error", NoisyGradientsWarning)
        with pytest.raises(NoisyGradientsWarning) if warns else nullcontext():
            fit(n // 3, n, epsilon, alpha=alpha, training__max_iter=100, **options)


def test_the_warning_comes_before_a_gradient(monkeypatch):
    def stop(*args):
        raise AssertionError("a gradient was computed")

    monkeypatch.setattr(_fair, "fair_gradient", stop)
    with (
        pytest.warns(NoisyGradientsWarning),
        pytest.raises(AssertionError, match="a gradient was computed"),
    ):
        fit(20, epsilon=0.3)
    # Whoever makes an error of it spends nothing.
    monkeypatch.setattr(StratifiedGaussianMechanism, "run", stop)
    with warnings.catch_warnings():
        warnings.simplefilter("error", NoisyGradientsWarning)
        with pytest.raises(NoisyGradientsWarning):
            fit(20, epsilon=0.3)


def test_the_group_within_a_label_is_named(tiny):
    X, y, groups = simulated(40)
    y[:35] = 0
    options = {
        "penalty": "equalized_odds",
        "gradient__group_weights": "equal",
        "gradient__batch_fraction": 0.2,
    }
    classifier = tiny("classifier", **options)
    with pytest.warns(
        NoisyGradientsWarning, match=r"Group 'tiny', with label number 1, has \d+ records"
    ):
        classifier.fit(X, y, sensitive_features=groups)


def test_the_noise_of_equal_weights_is_that_of_the_smallest_group():
    with pytest.warns(NoisyGradientsWarning):
        classifier = fit(20, gradient__batch_fraction=1.0, gradient__group_weights="equal")
    task, pair = 0.5 * 2 / 2000, 0.5 * 2 / 3 * 8 * 0.5 * 0.25
    mechanism = StratifiedGaussianMechanism(
        [Stratum(20, 20, task + pair / 20)], epsilon=4.0, delta=0.1 / 2000, n_releases=20
    )
    assert classifier.privacy_.noise_scale == pytest.approx(mechanism.noise_scale, rel=1e-9)


# What small groups leave of the penalty.


@pytest.mark.parametrize(
    ("small", "options", "warns"),
    [
        (1000, {}, True),
        (1000, {"gradient__group_weights": "equal"}, False),
        (1000, {"alpha": 0.0}, False),
        (1000, {"alpha": 1.0}, False),
        # A larger weight makes up for the small group, and so does a larger clip of the Jacobians.
        (1000, {"alpha": 0.9}, False),
        (1000, {"gradient__jacobian_clip": 2.0}, False),
        # A small weight of a penalty between equal groups is what was asked for.
        (8000, {"alpha": 0.1}, False),
        (3000, {}, False),
    ],
    ids=str,
)
def test_a_weak_penalty_is_foreseen(small, options, warns):
    classifier = DPSlicedWassersteinFairClassifier(epsilon=np.inf).set_params(**options)
    with warnings.catch_warnings(record=True) as seen:
        warnings.simplefilter("always")
        classifier.plan(16000, 4, group_sizes=[small, 16000 - small])
    assert [warning.category for warning in seen] == [SmallGroupWarning] * warns
    if warns:
        share = 4 * small * (16000 - small) / 16000**2
        # Outputs are in [0, 1], and Jacobians clipped to 1/4.
        full = 2 * share * 4 * 0.5 * 0.25
        text = str(seen[0].message)
        assert f"the penalty has {share:.0%} of the weight" in text
        assert f"at most {0.5 * full:.2g}, and that of the task up to 0.5" in text
        assert f"alpha = {1 / (1 + full):.2g} makes them equal" in text


def test_no_weight_makes_up_for_a_tiny_group():
    with pytest.warns(SmallGroupWarning, match="No alpha makes up for that: merge groups. If"):
        DPSlicedWassersteinFairClassifier(epsilon=np.inf).plan(16000, 4, group_sizes=[50, 15950])
