"""What the estimators say about bad input: the parameter and the rule, and no record."""

from functools import partial

import numpy as np
import pandas as pd
import pytest
from numpy.testing import assert_allclose, assert_array_equal
from sklearn.exceptions import NotFittedError

from sklearn_dpgen.domains import Ball, Box, Domain, OneHot
from sklearn_dpgen.exceptions import TrainingDivergedError
from sklearn_dpgen.schema import Categorical, Numeric, Schema

FAIR = ["regressor", "classifier", "encoder"]
KINDS = [*FAIR, "generator"]
SECRET = 12.3456


def use(estimator, X):
    """Call what needs a fit."""
    for name in ("predict", "transform", "sample"):
        if hasattr(estimator, name):
            return getattr(estimator, name)(*([3] if name == "sample" else [X]))
    raise AssertionError("nothing to call")


def refused(estimator, table, error, match, **fit_params):
    """Whether a fit is refused, shows no record, and leaves nothing of a fit before."""
    with pytest.raises(error, match=match) as caught:
        table.train(estimator, **fit_params)
    link = caught.value
    while link is not None:
        assert "12.3" not in str(link)
        link = link.__context__
    with pytest.raises(NotFittedError):
        use(estimator, np.zeros((2, 3)))


@pytest.mark.parametrize("kind", KINDS)
def test_use_before_fit(tiny, table, kind):
    with pytest.raises(NotFittedError):
        use(tiny(kind), table.X)
    if kind == "encoder":
        with pytest.raises(NotFittedError):
            tiny(kind).inverse_transform(table.X)
    if kind == "generator":
        with pytest.raises(NotFittedError):
            tiny(kind).transform_latents(table.X)


# Records.


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize(
    ("spoil", "message"),
    [
        (lambda X: np.where(X > 1, np.nan, SECRET), "X contains NaN"),
        (lambda X: np.where(X > 1, np.inf, SECRET), "X contains infinity"),
        (lambda X: np.full((41, 3), f"x{SECRET}"), "X must hold real numbers"),
        (lambda X: np.full((41, 3), SECRET, dtype=complex), "Complex data not supported"),
        (lambda X: np.full(41, SECRET), "Expected 2D array"),
        (lambda X: np.full((41, 2, 2), SECRET), "dim 3"),
    ],
)
def test_bad_records(tiny, table, kind, spoil, message):
    estimator = table.train(tiny(kind))
    table.X = spoil(table.X)
    refused(estimator, table, ValueError, message)


@pytest.mark.parametrize("kind", FAIR)
def test_records_of_another_width(tiny, table, kind):
    estimator = table.train(tiny(kind))
    with pytest.raises(ValueError, match="X has 2 features, but .* is expecting 3"):
        use(estimator, table.X[:, :2])


def test_codes_of_another_width(tiny, table):
    encoder = table.train(tiny("encoder"))
    with pytest.raises(
        ValueError, match="X must have a column for each of the 2 components, got 3"
    ):
        encoder.inverse_transform(table.X)


# Sensitive features.


@pytest.mark.parametrize("kind", FAIR)
@pytest.mark.parametrize(
    ("groups", "error", "message"),
    [
        ([SECRET] + [1.0] * 40, ValueError, "at least two records; the smallest has 1. Merge"),
        ([SECRET] * 41, ValueError, "sensitive_features must have at least two groups, got 1"),
        ([0, SECRET] * 20, ValueError, "sensitive_features has 40 rows for 41 samples"),
        (
            [0, np.nan] * 20 + [SECRET],
            ValueError,
            "at least two records; the smallest has 1. Merge",
        ),
        ([0, "a"] * 20 + [SECRET], TypeError, "sensitive_features, column 0, must hold values of"),
        (np.full((41, 1, 1), SECRET), ValueError, "sensitive_features must be an array or a data"),
        (SECRET, ValueError, "sensitive_features must be an array or a data frame"),
        (np.arange(41) + SECRET, ValueError, "Each group of sensitive_features must have at least"),
    ],
    ids=lambda value: str(value)[:20],
)
def test_bad_sensitive_features(tiny, table, kind, groups, error, message):
    estimator = table.train(tiny(kind))
    refused(estimator, table, error, message, sensitive_features=groups)


@pytest.mark.parametrize("kind", FAIR)
@pytest.mark.parametrize(
    ("groups", "error", "message"),
    [
        (["a"], ValueError, "groups must be at least two, got 1"),
        (["a", "b", "a"], ValueError, "groups must be distinct"),
        (["a", "c"], ValueError, "holds a group that is not among the declared groups"),
        ([("a", 0), ("b", 1)], ValueError, "not among the declared groups"),
        (["a", None], ValueError, "holds a group that is not among the declared groups"),
        (["a", None, np.nan], ValueError, "groups must be distinct"),
        (["a", 3], TypeError, "groups, column 0, must hold values of one type"),
        (np.full((2, 1, 1), "a"), ValueError, "groups must be an array or a data frame"),
    ],
    ids=str,
)
def test_bad_declared_groups(tiny, table, kind, groups, error, message):
    estimator = table.train(tiny(kind)).set_params(groups=groups)
    refused(estimator, table, error, message)


@pytest.mark.parametrize("kind", FAIR)
def test_absent_sensitive_features_leave_the_penalty_out(tiny, table, parameters_of, kind):
    def fit(alpha, **options):
        estimator = tiny(kind, alpha=alpha, **options)
        return table.train(estimator, sensitive_features=None)

    reference = fit(0.0, epsilon=np.inf)
    with pytest.warns(UserWarning, match="sensitive_features is absent.* as with alpha=0") as seen:
        absent = fit(0.7, epsilon=np.inf)
    # It points at the call of fit, in the table of these tests.
    assert "sliced/conftest" in seen[0].filename
    assert_array_equal(parameters_of(absent), parameters_of(reference))
    assert absent.groups_ is None
    with pytest.warns(UserWarning, match="sensitive_features is absent"):
        private = fit(0.7)
    assert private.privacy_ == fit(0.0).privacy_
    # With groups there is another gradient, and another report.
    assert table.train(tiny(kind, alpha=0.7)).privacy_ != private.privacy_
    other = table.train(tiny(kind, alpha=0.7, epsilon=np.inf))
    assert not np.array_equal(parameters_of(other), parameters_of(reference))


@pytest.mark.parametrize("kind", FAIR)
def test_groups_without_weight_change_no_gradient(tiny, table, parameters_of, kind):
    alone = table.train(tiny(kind, alpha=0.0, epsilon=np.inf), sensitive_features=None)
    grouped = table.train(tiny(kind, alpha=0.0, epsilon=np.inf))
    assert_allclose(parameters_of(grouped), parameters_of(alone), rtol=1e-9)
    assert grouped.privacy_.sensitivity == pytest.approx(alone.privacy_.sensitivity, rel=1e-12)


# Targets.


@pytest.mark.parametrize(
    ("domain", "epsilon"),
    [
        (Box([-0.5, 0], [0.2, 1]), 1.0),
        (Box([-0.5, 0], [0.2, 1]), np.inf),
        # Rounded when projected again, which gives seeded noise another key.
        (Ball(0.4, center=[1.0, 0]), np.inf),
    ],
    ids=str,
)
def test_targets_outside_are_clipped_silently(tiny, table, parameters_of, domain, epsilon):
    table.y = 50 * table.Y
    far = table.train(tiny("regressor", y_domain=domain, epsilon=epsilon))
    table.y = domain.project(table.y)
    near = table.train(tiny("regressor", y_domain=domain, epsilon=epsilon))
    assert_allclose(parameters_of(far), parameters_of(near), rtol=1e-12)
    table.y = 0.9 * table.y
    inside = table.train(tiny("regressor", y_domain=domain, epsilon=epsilon))
    assert not np.allclose(parameters_of(inside), parameters_of(near), rtol=1e-6)


@pytest.mark.parametrize(
    ("y", "message"),
    [
        (np.full(41, np.nan), "Input y contains NaN"),
        (np.full(41, np.inf), "Input y contains infinity"),
        (np.full(40, SECRET), r"inconsistent numbers of samples: \[41, 40\]"),
        (np.full(41, f"x{SECRET}"), "y must be numeric"),
        (np.full(41, str(SECRET)), "y must be numeric"),
        (np.full(41, f"x{SECRET}", dtype=object), "y must be numeric"),
        (pd.Series(["x", SECRET] * 20 + [1]), "y must be numeric"),
        (np.full(41, "2020-01-01", dtype="M8[D]"), "y must be numeric"),
        (
            np.full((41, 3), SECRET),
            "must have a feature for each of the 3 outputs of y, got 2",
        ),
        (np.full(41, SECRET), "must have a feature for each of the 1 outputs of y, got 2"),
        (np.full((41, 2, 2), SECRET), "dim 3"),
    ],
)
def test_bad_targets(tiny, table, y, message):
    table.y = table.Y
    regressor = table.train(tiny("regressor", y_domain=Box(-1, 1, n_features=2)))
    table.y = y
    refused(regressor, table, ValueError, message)


@pytest.mark.parametrize(
    ("options", "labels", "message"),
    [
        ({}, np.full(41, SECRET), "Unknown label type: continuous"),
        ({}, np.zeros(41), "classes must be at least two, got 1 class"),
        ({"classes": [3]}, np.full(41, 3), "classes must be at least two, got 1 class"),
        (
            {"classes": [0, 1]},
            np.arange(41) % 3,
            "y holds labels that are missing or not among the classes",
        ),
        ({"classes": ["a", "b"]}, np.arange(41) % 2, "not among the classes"),
        ({"classes": [0, 0, 1]}, np.arange(41) % 2, "classes must be distinct"),
        ({"classes": [0, 1, None]}, np.arange(41) % 2, "classes holds labels that are missing"),
        ({"classes": [0, np.nan]}, np.arange(41) % 2, "classes holds labels that are missing"),
        ({"classes": [object(), object()]}, np.arange(41) % 2, "classes|unknown"),
        ({"classes": [0, 1]}, np.array(["a", "b"])[np.arange(41) % 2], "not among the classes"),
        ({"classes": [0, 1]}, np.array(["a", "b"], dtype=object)[np.arange(41) % 2], "not among"),
        ({}, np.full(41, np.nan), "Input y contains NaN"),
        ({}, np.zeros((41, 2), dtype=int), "y should be a 1d array"),
    ],
)
def test_bad_labels(tiny, table, options, labels, message):
    classifier = table.train(tiny("classifier"))
    table.labels = labels
    refused(classifier.set_params(**options), table, ValueError, message)


def test_equalized_odds_needs_every_label_in_every_group(tiny, table):
    classifier = table.train(tiny("classifier", penalty="equalized_odds"))
    odds = "must have at least two records within every label; the smallest has"
    advice = "Merge groups, use demographic parity, or declare groups"
    with_absent = tiny("classifier", penalty="equalized_odds", classes=[0, 1, 2])
    refused(
        with_absent,
        table,
        ValueError,
        f"{odds} 0. {advice}",
    )
    table.labels = (table.groups == "a").astype(int)
    refused(classifier, table, ValueError, f"{odds} 0. {advice}")
    table.labels[np.flatnonzero(table.groups == "a")[0]] = 0
    refused(classifier, table, ValueError, f"{odds} (0|1). Merge")


def test_equalized_odds_without_groups_is_plain(tiny, table):
    classifier = tiny("classifier", penalty="equalized_odds", classes=[0, 1])
    with pytest.warns(UserWarning, match="sensitive_features is absent"):
        table.train(classifier, sensitive_features=None)
    assert "label" not in classifier.privacy_.neighbouring


def test_equalized_odds_is_for_the_classifier(tiny, table):
    regressor = table.train(tiny("regressor")).set_params(penalty="equalized_odds")
    refused(
        regressor,
        table,
        ValueError,
        "penalty must be 'demographic_parity'.*got 'equalized_odds'.*Classifier",
    )


# Parameters.

_BAD = {
    "alpha": [-0.1, 1.1, np.nan, "a"],
    "max_gap": [-0.1, np.nan, "a"],
    "min_ratio": [-0.1, 1.1, np.nan, "a"],
    "protect_groups": [2, "yes", None],
    "epsilon": [0, -1.0, np.nan],
    "delta": [0.0, 1.0, "small"],
    "training": [3, {"max_iter": 3}],
    "gradient": [3, {"task_clip": 1.0}],
    "training__hidden_layer_sizes": [7],
    "training__activation": ["gelu"],
    "gradient__task_clip": [0.0, np.inf],
    "gradient__output_bound": [0.0, np.inf],
    "gradient__jacobian_clip": [0.0, np.inf],
    "gradient__jacobian_clipping": ["frobenius"],
    "gradient__n_projections": [0, 1.5],
    "gradient__batch_fraction": [0.0, 1.1],
    "training__max_iter": [0, 1.5],
    "training__learning_rate": [0, np.inf],
    "training__averaging": [-0.1, 1.0],
    "training__callback": ["watch"],
    "ledger": [3],
    "unit": [3],
    "random_state": ["seed"],
    "n_components": [0],
    "penalty": ["parity"],
    "classes": [3],
    "groups": [3, "ab"],
    "gradient__group_weights": ["label", 0],
    "y_domain": [None, 3],
    "schema": [3],
    "domain": [3],
    "latent_dim": [0, 1.5],
    "training__solver": ["newton"],
    "training__schedule": ["linear"],
    "gradient__released_clip": [0.0, np.inf],
    "code_law": ["normal"],
}


@pytest.mark.parametrize("kind", KINDS)
def test_bad_parameters_are_named(tiny, table, kind):
    names = set(tiny(kind).get_params())
    # Each parameter has a bad value here, but for the two that scikit-learn or torch checks.
    assert names - set(_BAD) == {"training__device", "training__verbose"}
    for name in names & set(_BAD):
        holder, _, bare = name.rpartition("__")
        owner = {"training": "Training", "gradient": "ClippedGradient"}.get(holder, "DPSliced")
        for value in _BAD[name]:
            with pytest.raises(ValueError, match=f"'{bare}' parameter of {owner}"):
                table.train(tiny(kind).set_params(**{name: value}))


def test_the_domain_of_targets_needs_an_enclosing_ball(tiny, table):
    class Own(Domain):
        n_features = 1

        def _project(self, X, xp):
            return X

        def diameter(self, p):
            return 1.0

        def sample(self, n, rng):
            return np.zeros((n, 1))

    with pytest.raises(TypeError, match="No enclosing ball is known for a domain of type Own"):
        table.train(tiny("regressor", y_domain=Own()))
    with pytest.raises(
        ValueError, match="y_domain must have a feature for each of the 1 outputs of y, got 3"
    ):
        table.train(tiny("regressor", y_domain=OneHot(3)))


# The generator.

SCHEMA = Schema({"a": Numeric(0, 1), "b": Categorical(["x", "y"])})


@pytest.mark.parametrize("options", [{"schema": SCHEMA}, {"domain": None}])
def test_either_a_schema_or_a_domain(tiny, table, options):
    refused(tiny("generator", **options), table, ValueError, "either schema or domain")


def test_a_domain_of_another_width(tiny, table):
    generator = tiny("generator", domain=Ball(1.0, n_features=2))
    refused(generator, table, ValueError, "domain has 2 features, X has 3")


@pytest.mark.parametrize(
    ("latents", "message"),
    [
        (np.full((41, 3), SECRET), "latents must have latent_dim = 2 columns, got 3"),
        (np.full((41, 2), np.nan), "latents contains NaN"),
        (np.full((41, 2), f"x{SECRET}"), "latents must hold real numbers"),
        (np.full(41, SECRET), "Expected 2D array"),
        (np.zeros((0, 2)), "0 sample"),
    ],
)
def test_bad_latents(tiny, table, latents, message):
    generator = table.train(tiny("generator"))
    refused(generator, table, ValueError, message, latents=latents)
    with pytest.raises(ValueError, match=message):
        table.train(generator).transform_latents(latents)


@pytest.mark.parametrize("n_samples", [0, -1, 1.5, "3", None])
def test_bad_number_of_samples(tiny, table, n_samples):
    with pytest.raises(ValueError, match="n_samples must be an integer of at least 1"):
        table.train(tiny("generator")).sample(n_samples)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"a": np.nan}, "'a' has missing values"),
        ({"b": f"z{SECRET}"}, "'b'"),
        ({"a": f"z{SECRET}"}, "'a'"),
    ],
)
def test_bad_tables(tiny, change, message):
    table = pd.DataFrame({"a": np.linspace(0, 1, 9), "b": ["x", "y", "y"] * 3})
    generator = tiny("generator", schema=SCHEMA, domain=None).fit(table)
    with pytest.raises(ValueError, match=message) as caught:
        generator.fit(table.assign(**change))
    assert "12.3" not in str(caught.value)
    with pytest.raises(NotFittedError):
        generator.sample()


# Divergence.


@pytest.mark.parametrize("kind", KINDS)
def test_a_diverged_fit_leaves_the_estimator_unfitted(tiny, table, kind):
    estimator = table.train(tiny(kind))
    diverging = {"training__learning_rate": 1e308, "training__max_iter": 60}
    refused(estimator.set_params(**diverging), table, TrainingDivergedError, "learning_rate")
    table.train(estimator.set_params(training__learning_rate=0.01, training__max_iter=3))
    use(estimator, table.X)


def test_a_function_for_the_domain(tiny, table):
    table.y = table.Y
    regressor = table.train(tiny("regressor", y_domain=partial(Ball, 2.0)))
    assert regressor.y_domain_ == Ball(2.0, n_features=2)
    generator = table.train(tiny("generator", domain=lambda n_features: Box(0, 1, n_features)))
    assert generator.domain_.n_features == 3
