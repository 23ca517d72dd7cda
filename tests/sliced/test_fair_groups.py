"""Groups: declared ones of which a fold may lack some, and those that are too small."""

import warnings

import numpy as np
import pandas as pd
import pytest
import sklearn
from numpy.testing import assert_array_equal
from sklearn.model_selection import GridSearchCV, KFold, cross_val_score

from sklearn_dpgen.exceptions import SmallGroupWarning
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
    read = ["values of the sensitive features" in fit.privacy_.public for fit in fits]
    assert read == [True, False, False, False]
    assert all("sizes of the groups" in fit.privacy_.public for fit in fits)


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
    assert lone.privacy_.sensitivity > 3 * plain.privacy_.sensitivity
    with pytest.raises(ValueError, match="smallest has 1. Merge groups, or declare groups"):
        table.train(tiny(kind), sensitive_features=groups)


@pytest.mark.parametrize("kind", FAIR)
def test_one_of_the_declared_groups_leaves_nothing_to_compare(tiny, table, parameters_of, kind):
    plain = table.train(tiny(kind, alpha=0.0, epsilon=np.inf), sensitive_features=None)
    with pytest.warns(UserWarning, match="no two groups to compare: fitting without the penalty"):
        alone = table.train(
            tiny(kind, groups=["a", "b"], epsilon=np.inf), sensitive_features=["b"] * 41
        )
    assert_array_equal(parameters_of(alone), parameters_of(plain))
    # A record of the other group would have brought in the penalty: it is no neighbour.
    assert "another of the same group" in alone.privacy_.neighbouring
    assert "another of the same group" not in plain.privacy_.neighbouring


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
    # One pair: (1 - alpha) 2 C / n + alpha 8 M L / n_j in it, and the task outside of it.
    task, pair = (1 - alpha) * 2 / 41, alpha * 8 * 0.5 * 0.25
    expected = [task + pair / counts[0], task + pair / counts[1], task]
    assert [s.sensitivity for s in strata] == pytest.approx(expected, rel=1e-12, abs=1e-300)


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


# Small groups.


def simulated(n_small, n=2000):
    rng = np.random.default_rng(0)
    X = rng.uniform(-1, 1, size=(n, 4))
    y = (X @ [3, -2, 1, 0] + rng.normal(size=n) > 0).astype(int)
    groups = np.where(np.arange(n) < n_small, "tiny", rng.choice(["a", "b"], size=n))
    return X, y, groups


def fit(n_small, epsilon=4.0, **options):
    X, y, groups = simulated(n_small)
    options = {"hidden_layer_sizes": (), "max_iter": 20, "random_state": 0} | options
    classifier = DPSlicedWassersteinFairClassifier(epsilon=epsilon, classes=[0, 1], **options)
    return classifier.fit(X, y, sensitive_features=groups)


def left_noise(classifier, alpha=0.5):
    report = classifier.privacy_
    return report.noise_scale / np.sqrt(report.n_releases) / (1 - alpha)


def test_a_small_group_is_foreseen():
    with pytest.warns(SmallGroupWarning) as seen:
        classifier = fit(20)
    (warning,) = seen
    assert warning.filename == __file__
    text = str(warning.message)
    # The batch holds 4 of it and 396 others; in three equal groups there would be 133.
    task, pair = 0.5 * 2 / 400, 0.5 * 2 / 3 * 8 * 0.5 * 0.25
    factor = (task + pair / 4) / (task + pair / 133)
    assert text.startswith("Group 'tiny' has 20 of 2000 records and sets the noise")
    assert f"{factor:.3g} times that of groups of equal size" in text
    noise = left_noise(classifier)
    assert f"{noise:.2g} is left on each parameter" in text
    assert f"about {20 * noise / 0.005:.0f} records in the group would do" in text
    # It is no more than the report says: public.
    assert classifier.privacy_.sensitivity == pytest.approx(task + pair / 4, rel=1e-12)


@pytest.mark.parametrize(
    ("n_small", "options"),
    [
        (600, {}),
        (20, {"epsilon": np.inf}),
        (20, {"epsilon": 2000.0}),
        (20, {"alpha": 0.001}),
        (20, {"jacobian_clip": 0.001}),
        # The noise is as large for all: no group is to blame.
        (600, {"epsilon": 0.05}),
    ],
    ids=str,
)
def test_no_warning_where_no_small_group_does_harm(n_small, options):
    with warnings.catch_warnings():
        warnings.simplefilter("error", SmallGroupWarning)
        fit(n_small, **options)


def test_the_warning_comes_before_a_gradient(monkeypatch):
    def stop(*args):
        raise AssertionError("a gradient was computed")

    monkeypatch.setattr(_fair, "fair_gradient", stop)
    with (
        pytest.warns(SmallGroupWarning),
        pytest.raises(AssertionError, match="a gradient was computed"),
    ):
        fit(20)
    # Whoever makes an error of it spends nothing.
    monkeypatch.setattr(StratifiedGaussianMechanism, "run", stop)
    with warnings.catch_warnings():
        warnings.simplefilter("error", SmallGroupWarning)
        with pytest.raises(SmallGroupWarning):
            fit(20)


def test_the_group_within_a_label_is_named(tiny):
    X, y, groups = simulated(40)
    y[:35] = 0
    classifier = tiny("classifier", penalty="equalized_odds", batch_fraction=0.2)
    with pytest.warns(
        SmallGroupWarning, match=r"Group 'tiny', with label number 1, has \d+ of 2000"
    ):
        classifier.fit(X, y, sensitive_features=groups)


def test_the_noise_is_that_of_the_smallest_group():
    with pytest.warns(SmallGroupWarning):
        classifier = fit(20, batch_fraction=1.0)
    task, pair = 0.5 * 2 / 2000, 0.5 * 2 / 3 * 8 * 0.5 * 0.25
    mechanism = StratifiedGaussianMechanism(
        [Stratum(20, 20, task + pair / 20)], epsilon=4.0, delta=0.1 / 2000, n_releases=20
    )
    assert classifier.privacy_.noise_scale == pytest.approx(mechanism.noise_scale, rel=1e-9)
