"""What users of scikit-learn and fairlearn look for: coefficients, logits, weights, bounds."""

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal

from sklearn_dpgen.accounting import Bound
from sklearn_dpgen.domains import Box

PREDICTORS = ["regressor", "classifier"]

# Coefficients and logits.


@pytest.mark.parametrize("n_classes", [2, 3])
def test_coefficients_and_logits_of_a_classifier(tiny, table, n_classes):
    labels = np.arange(41) % n_classes
    classifier = tiny("classifier", training__hidden_layer_sizes=(), classes=range(n_classes))
    for name in ("coef_", "intercept_"):
        with pytest.raises(AttributeError, match=f"{name} is available after fit"):
            getattr(classifier, name)
    classifier.fit(table.X, labels, sensitive_features=table.groups)
    rows = 1 if n_classes == 2 else n_classes
    assert classifier.coef_.shape == (rows, 3)
    assert classifier.intercept_.shape == (rows,)
    logits = table.X @ classifier.coef_.T + classifier.intercept_
    expected = logits[:, 0] if n_classes == 2 else logits
    assert_allclose(classifier.decision_function(table.X), expected, rtol=1e-10, atol=1e-12)
    odds = np.exp(np.column_stack([0 * logits, logits]) if n_classes == 2 else logits)
    probabilities = odds / odds.sum(axis=1, keepdims=True)
    assert_allclose(classifier.predict_proba(table.X), probabilities, rtol=1e-9)
    assert_array_equal(classifier.predict(table.X), probabilities.argmax(axis=1))
    # They are copies.
    classifier.coef_[:] = 0
    assert_allclose(classifier.decision_function(table.X), expected, rtol=1e-10, atol=1e-12)


@pytest.mark.parametrize("outputs", [None, 1, 2])
def test_coefficients_of_a_regressor(tiny, table, outputs):
    y = table.y if outputs is None else table.Y[:, :outputs]
    regressor = tiny("regressor", training__hidden_layer_sizes=(), y_domain=(-2.0, 4.0))
    regressor.fit(table.X, y, sensitive_features=table.groups)
    assert np.shape(regressor.coef_) == ((3,) if outputs is None else (outputs, 3))
    assert np.shape(regressor.intercept_) == (() if outputs is None else (outputs,))
    # The head of a box: a tanh of the whole side.
    inside = np.tanh(table.X @ regressor.coef_.T + regressor.intercept_)
    low, high = regressor.y_domain_.low, regressor.y_domain_.high
    assert (low >= -2).all()
    assert (high <= 4).all()
    expected = (low + high) / 2 + (high - low) / 2 * inside.reshape(41, -1)
    assert_allclose(regressor.predict(table.X).reshape(41, -1), expected, rtol=1e-9)


@pytest.mark.parametrize("kind", PREDICTORS)
def test_with_hidden_layers_there_are_no_coefficients(tiny, table, kind):
    model = table.train(tiny(kind, training__hidden_layer_sizes=(4,)))
    for name in ("coef_", "intercept_"):
        assert not hasattr(model, name)
        with pytest.raises(
            AttributeError, match=rf"{name} is available for hidden_layer_sizes=\(\) only"
        ):
            getattr(model, name)
    if kind == "classifier":
        probabilities = 1 / (1 + np.exp(-model.decision_function(table.X)))
        assert_allclose(model.predict_proba(table.X)[:, 1], probabilities, rtol=1e-12)


# Weights.


@pytest.mark.parametrize("kind", PREDICTORS)
@pytest.mark.parametrize("alpha", [0.0, 0.5])
def test_weights_are_of_the_task_alone_and_clipped(tiny, table, parameters_of, kind, alpha):
    def fit(weights, **options):
        options = {"alpha": alpha, "epsilon": np.inf, **options}
        return parameters_of(table.train(tiny(kind, **options), sample_weight=weights))

    plain = fit(None)
    for ones in (np.ones(41), [1.0] * 41, np.full(41, 7), np.full(41, 1e300)):
        assert_array_equal(fit(ones), plain)
    halves = np.arange(41) % 2
    some = fit(halves)
    assert not np.allclose(some, plain, rtol=1e-6)
    assert_array_equal(fit(np.where(halves, 1, -3.0)), some)
    # A record of weight 0 has no part in the task, and its whole part in the penalty.
    moved = table.X.copy()
    moved[::2] += 1
    table.X, X = moved, table.X
    assert np.array_equal(fit(halves), some) == (alpha == 0)
    table.X = X
    assert_array_equal(fit(halves, alpha=1.0), fit(None, alpha=1.0))


@pytest.mark.parametrize("kind", PREDICTORS)
def test_weights_cost_nothing(tiny, table, kind):
    reports = [
        table.train(tiny(kind), sample_weight=weights).privacy_
        for weights in (None, np.full(41, 0.5), 1e9 * table.y)
    ]
    # The sizes of the weights are as private as all that is in a record.
    assert reports[0] == reports[1] == reports[2]
    assert Bound("weight_clip", 1.0) in reports[1].bounds


def largest_weighted_change(tiny, table, probe):
    """Return the change of a gradient over its price, where one record and its weight change."""
    changes = []
    for size in (1.0, 1e9):
        for weight in (-5.0, 0.3, 1e9):
            gradients = []
            for sign, own in ((1, 1.0), (-1, weight)):
                X, weights = table.X.copy(), np.full(41, 0.5)
                X[7], weights[7] = sign * size, own
                model = tiny("classifier", epsilon=np.inf, alpha=0.0, gradient__task_clip=0.1)
                result = probe(
                    model.fit,
                    X,
                    table.labels,
                    sensitive_features=table.groups,
                    sample_weight=weights,
                )
                gradients.append(result.gradients[0])
            paid = max(stratum.sensitivity for stratum in result.mechanism.strata)
            changes.append(np.linalg.norm(gradients[0] - gradients[1]) / paid)
    return max(changes)


@pytest.mark.slow
def test_a_weight_moves_the_gradient_by_at_most_the_sensitivity(tiny, table, probe, monkeypatch):
    assert 0.5 < largest_weighted_change(tiny, table, probe) <= 1 + 1e-9
    # Twin: weights that are taken as given.
    monkeypatch.setattr("sklearn_dpgen.sliced._fair.check_weights", lambda w, n: Unclipped(w))
    assert largest_weighted_change(tiny, table, probe) > 2


class Unclipped:
    """Weights that a clip leaves as they are."""

    def __init__(self, weights):
        self.weights = weights

    def clip(self, low, high):
        return self.weights


@pytest.mark.parametrize("kind", PREDICTORS)
@pytest.mark.parametrize(
    ("weights", "message"),
    [
        (np.ones(40), r"sample_weight must have the shape \(41,\), got \(40,\)"),
        (np.ones((41, 1)), r"sample_weight must have the shape \(41,\)"),
        (np.r_[np.full(40, 12.3), np.nan], "sample_weight contains NaN"),
        (np.r_[np.full(40, 12.3), np.inf], "sample_weight contains infinity"),
        (["12.3x"] * 41, "could not convert"),
    ],
    ids=["short", "wide", "nan", "inf", "words"],
)
def test_bad_weights(tiny, table, kind, weights, message):
    with pytest.raises(ValueError, match=message) as caught:
        table.train(tiny(kind), sample_weight=weights)
    assert "12.3" not in str(caught.value)


# Bounds of targets.


@pytest.mark.parametrize(
    ("bounds", "box"),
    [((-1, 2), Box(-1, 2, n_features=2)), (([-1, 0], [2.0, 5]), Box([-1, 0], [2.0, 5]))],
    ids=["numbers", "lists"],
)
def test_bounds_make_a_box(tiny, table, parameters_of, bounds, box):
    options = {"epsilon": np.inf}
    given, same = (
        tiny("regressor", y_domain=domain, **options).fit(
            table.X, table.Y, sensitive_features=table.groups
        )
        for domain in (bounds, box)
    )
    assert repr(given.y_domain_) == repr(same.y_domain_)
    assert_array_equal(parameters_of(given), parameters_of(same))


@pytest.mark.parametrize(
    ("bounds", "message"),
    [
        ((0,), r"y_domain must be \(low, high\), got 1 entries"),
        ((1, 0), "low must be smaller than high"),
        (([0, 0, 0], 1), "low must have 2 features, got 3"),
    ],
    ids=["one", "order", "width"],
)
def test_bad_bounds(tiny, table, bounds, message):
    with pytest.raises(ValueError, match=message):
        tiny("regressor", y_domain=bounds).fit(table.X, table.Y)


@pytest.mark.parametrize("kind", PREDICTORS)
def test_seeded_noise_depends_on_weights(tiny, table, kind):
    def coefficients(weights):
        model = tiny(kind, training__hidden_layer_sizes=(), epsilon=1e-3, random_state=0)
        return table.train(model, sample_weight=weights).coef_

    ones = np.ones(41)
    other = ones.copy()
    other[7] = 0.999
    first = coefficients(ones)
    assert_array_equal(first, coefficients(ones))
    # Of a clipped gradient this is next to nothing: what differs is the noise.
    assert np.abs(first - coefficients(other)).max() > 0.01 * np.abs(first).max()
