"""Values of rows: the metrics of scikit-learn on average, and of one row whatever the others."""

import math

import numpy as np
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st
from search_cases import Constant, NoisyThreshold, labelled
from sklearn.base import BaseEstimator
from sklearn.linear_model import LinearRegression, LogisticRegression
from sklearn.metrics import accuracy_score, brier_score_loss, mean_absolute_error

from sklearn_dpgen.model_selection._row_values import bounded_values, released_score, row_values
from sklearn_dpgen.utils._random import noise_source

X, y = labelled()
TARGETS = 2 * X[:, 0] + 0.1


def test_means_are_metrics():
    model = LogisticRegression().fit(X, y)
    assert row_values("accuracy", model, None)(model, X, y).mean() == pytest.approx(
        accuracy_score(y, model.predict(X))
    )
    expected = 1 - brier_score_loss(y, model.predict_proba(X)[:, 1])
    assert row_values("brier", model, None)(model, X, y).mean() == pytest.approx(expected)
    line = LinearRegression().fit(X**2, TARGETS)
    found = row_values("absolute_error", line, (0, 4))(line, X**2, TARGETS)
    expected = 1 - mean_absolute_error(TARGETS, line.predict(X**2)) / 4
    assert found.mean() == pytest.approx(expected)


def test_defaults_are_by_the_kind_of_the_estimator():
    threshold, constant = NoisyThreshold().fit(X, y), Constant().fit(X, y)
    assert row_values(None, threshold, None)(threshold, X, y).mean() == 0.805
    assert row_values(None, constant, (0, 1))(constant, X, y).mean() == 0.5
    with pytest.raises(ValueError, match="target_range"):
        row_values(None, constant, None)
    for bounds in ((1, 0), (0, np.inf), (0, 0)):
        with pytest.raises(ValueError, match="target_range"):
            row_values(None, constant, bounds)
    with pytest.raises(ValueError, match="utility_scorer"):
        row_values(None, BaseEstimator(), None)


def largest_change(values, n):
    """Return the largest change of a mean by one row, among odd values of it."""
    rng = np.random.default_rng(0)
    features, labels = rng.uniform(size=(n, 1)), rng.integers(0, 2, n).astype(float)
    changes = []
    for feature in (0.0, 1.0, 1e300, -np.inf, np.nan):
        for label in (0.0, 1.0, 7.0, 1e300, -np.inf, np.nan):
            other, others = features.copy(), labels.copy()
            other[0], others[0] = feature, label
            changes.append(values(other, others).mean() - values(features, labels).mean())
    return np.max(np.abs(changes))


@pytest.mark.parametrize("scoring", ["accuracy", "brier", "absolute_error"])
def test_a_row_changes_the_mean_by_one_nth_at_most(scoring):
    model = Constant(cut=0.3) if scoring == "absolute_error" else NoisyThreshold()
    model.classes_ = np.array([0, 1])
    values = row_values(scoring, model, (0.0, 1.0))

    def bounded(features, labels):
        return bounded_values(values(model, features, labels), len(features))

    assert largest_change(bounded, 20) <= 1 / 20 + 1e-12

    def unbounded(features, labels):
        with np.errstate(invalid="ignore"):
            return np.nan_to_num(np.abs(features[:, 0] - labels))

    assert largest_change(unbounded, 20) > 1 / 20 + 1e-12


@given(st.lists(st.floats(allow_nan=True, allow_infinity=True), min_size=1))
def test_values_are_bounded(values):
    found = bounded_values(values, len(values))
    assert np.all((found >= 0) & (found <= 1))


def test_a_value_for_each_row_is_asked_for():
    for values in ([0.5], [[0.5], [0.5]], 0.5):
        with pytest.raises(ValueError, match="one value for each row"):
            bounded_values(values, 2)


def is_on_a_grid(scores, scale):
    """Return whether all are multiples of a power of two near a thousandth of the noise."""
    multiples = np.array(scores) * 2.0 ** round(10 - math.log2(scale))
    return bool((multiples == np.rint(multiples)).all())


def test_a_score_is_released_on_a_grid_that_hides_low_bits():
    """Low bits of a sum of floats would tell which score the noise was added to."""
    noise, scale = noise_source(0), 0.037
    scores = [released_score(1 / 3, scale, noise) for _ in range(200)]
    assert is_on_a_grid(scores, scale)
    assert np.std(scores) == pytest.approx(scale, rel=0.3)
    assert not is_on_a_grid([1 / 3 + scale * noise.normal(1)[0] for _ in range(200)], scale)
    assert released_score(1 / 3, 0.0, noise) == 1 / 3
    assert released_score(-math.inf, scale, noise) == -math.inf


@pytest.mark.parametrize("scoring", ["accuracy", "brier"])
@pytest.mark.parametrize("odd", ["text", None, pd.NA, 2.5], ids=repr)
def test_a_label_of_another_type_changes_no_other_row(scoring, odd):
    model = NoisyThreshold().fit(X, y)
    values = row_values(scoring, model, None)
    labels = [int(label) for label in y]
    for others in ([odd, *labels[1:]], pd.Series([odd, *labels[1:]], dtype=object)):
        moved = bounded_values(values(model, X, others), len(y))
        before = bounded_values(values(model, X, labels), len(y))
        np.testing.assert_array_equal(moved[1:], before[1:])
    # The negative twin: one array of all labels.
    assert (model.predict(X) == np.asarray(["text", *labels[1:]])).mean() == 0 < before.mean()


@pytest.mark.parametrize("odd", ["text", "0.5", None, pd.NA, [1], 10**400, np.nan], ids=repr)
def test_a_value_that_is_no_number_changes_no_other_row(odd):
    model = Constant(cut=0.3).fit(X, y)
    values, numbers = row_values("absolute_error", model, (0.0, 1.0)), TARGETS.tolist()
    before = bounded_values(values(model, X, numbers), len(y))
    labels = np.empty(len(y), dtype=object)
    labels[:] = numbers
    labels[0] = odd
    for others in (labels, pd.Series(labels, dtype=object), labels.tolist()):
        moved = bounded_values(values(model, X, others), len(y))
        np.testing.assert_array_equal(moved[1:], before[1:])
        assert moved[0] == 0
    # The negative twin: one array of all numbers.
    if isinstance(odd, str) and odd == "text":
        with pytest.raises(ValueError, match="could not convert"):
            np.asarray(labels, dtype=np.float64)


def test_labels_that_cannot_be_compared_change_no_other_row():
    class Odd:
        def __eq__(self, other):
            raise ValueError("secret-7")

        __hash__ = None

    model = NoisyThreshold().fit(X, y)
    for scoring in ("accuracy", "brier"):
        values = row_values(scoring, model, None)
        labels = np.array(y, dtype=object)
        before = bounded_values(values(model, X, labels), len(y))
        labels[0] = Odd()
        moved = bounded_values(values(model, X, labels), len(y))
        np.testing.assert_array_equal(moved[1:], before[1:])
    # The negative twin: all labels at once.
    with pytest.raises(ValueError, match="secret-7"):
        np.equal(labels, np.asarray(y, dtype=object))
