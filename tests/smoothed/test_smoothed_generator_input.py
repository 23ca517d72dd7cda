"""What the smoothed generator is given: parameters and records that cannot be, and refits."""

from functools import partial

import numpy as np
import pandas as pd
import pytest
from conformity import parametrize_with_checks
from sklearn.exceptions import NotFittedError

from sklearn_dpgen.domains import Ball, Box, OneHot
from sklearn_dpgen.exceptions import TrainingDivergedError
from sklearn_dpgen.nn import Training
from sklearn_dpgen.schema import Numeric, Schema
from sklearn_dpgen.smoothed import (
    NoisyRelease,
    SmoothedSlicedWassersteinAdapter,
    SmoothedSlicedWassersteinGenerator,
    private_sliced_wasserstein,
    smoothed_sliced_wasserstein,
)
from sklearn_dpgen.smoothed._training import train_generators

QUICK = {
    "training": Training(hidden_layer_sizes=(4,), max_iter=2),
    "latent_dim": 2,
    "n_generated": 4,
    "random_state": 0,
}
RELEASE = {"n_projections": 4, "n_epochs": 1.0}
RECORDS = NoisyRelease(**RELEASE)


class AnyLabels(SmoothedSlicedWassersteinGenerator):
    """Declares the labels that occur: what generic checks can feed, and nobody should do."""

    def fit(self, X, y=None):
        given, self.classes = self.classes, None if y is None else np.unique(y)
        try:
            return super().fit(X, y)
        finally:
            self.classes = given


class AnyColumns(SmoothedSlicedWassersteinGenerator):
    """Declares as many bounded numbers as the data has columns."""

    def fit(self, X, y=None):
        shape = np.asarray(X).shape
        n_columns = shape[1] if len(shape) == 2 else 1
        names = list(getattr(X, "columns", [f"x{i}" for i in range(n_columns)])) or ["x0"]
        given, self.schema = self.schema, Schema(dict.fromkeys(names, Numeric(-1e3, 1e3)))
        try:
            return super().fit(X, y)
        finally:
            self.schema = given


ANY_WIDTH = partial(Box, -1000, 1000)


@parametrize_with_checks(
    [
        SmoothedSlicedWassersteinGenerator(
            domain=ANY_WIDTH, labels="public", release=RECORDS, **QUICK
        ),
    ],
    variants=[
        SmoothedSlicedWassersteinGenerator(
            np.inf,
            domain=ANY_WIDTH,
            labels="public",
            release=NoisyRelease("moments", **RELEASE),
            **QUICK,
        ),
        SmoothedSlicedWassersteinGenerator(
            domain=ANY_WIDTH,
            labels="public",
            release=NoisyRelease("projections", **RELEASE),
            **QUICK,
        ),
        AnyLabels(np.inf, labels="private", domain=ANY_WIDTH, release=RECORDS, **QUICK),
        AnyColumns(labels="public", release=RECORDS, **QUICK),
    ],
    expected_failed_checks=lambda estimator: (
        {
            "check_estimators_nan_inf": "a schema clips what is infinite to the bounds of a column",
            "check_dtype_object": "a value that is no number is a ValueError that names its column",
        }
        if isinstance(estimator, AnyColumns)
        else {}
    ),
)
def test_scikit_learn_checks(estimator, check):
    check(estimator)


def adapter(**options):
    small = {
        "training__hidden_layer_sizes": (4,),
        "feature_dim": 3,
        "release__batch_size": 5,
        "release__n_epochs": 1.0,
    }
    small |= {"source_iter": 3, "training__max_iter": 3, "release__n_projections": 12}
    return SmoothedSlicedWassersteinAdapter().set_params(**small | options)


DOMAINS = np.repeat([1, -2], [16, 24])


def fits(tiny_generator, **options):
    """Return the ways to release records, as functions of them."""
    return {
        "generator": lambda X: tiny_generator(**options).fit(X),
        "adapter": lambda X: adapter(**options).fit(X, np.arange(40) % 2, sample_domain=DOMAINS),
        "distance": lambda X: smoothed_sliced_wasserstein(
            X, np.zeros((5, 3)), domain=Ball(1.0, n_features=3), **{"epsilon": 1.0, **options}
        ),
        "histograms": lambda X: private_sliced_wasserstein(
            X, np.zeros((5, 3)), domain=Ball(1.0, n_features=3), **{"epsilon": 1.0, **options}
        ),
    }


@pytest.mark.parametrize("name", ["generator", "adapter", "distance", "histograms"])
def test_records_that_cannot_be(tiny_generator, labelled, name):
    fit = fits(tiny_generator)[name]
    frame = pd.DataFrame(labelled.X, columns=list("abc"))
    cases = {
        r"columns that do not: \['b'\]": frame.assign(b="secret"),
        r"columns that do not: \['c'\]": frame.assign(c=pd.Timestamp("2020-02-02")),
        r"more than one column of the name: \['a'\]": frame.set_axis(list("aba"), axis=1),
        "contains NaN": frame.assign(b=np.nan),
        "contains infinity": frame.assign(b=np.inf),
    }
    for message, wrong in cases.items():
        with pytest.raises(ValueError, match=message) as raised:
            fit(wrong)
        assert "secret" not in str(raised.value)
        assert "2020" not in str(raised.value)


@pytest.mark.parametrize("epsilon", [1e308, 1e100, 1e6, 1e-308, 5e-324])
@pytest.mark.parametrize("name", ["generator", "adapter", "distance", "histograms"])
def test_budgets_beyond_the_range(tiny_generator, labelled, name, epsilon):
    rule = "epsilon.* must be (from 1e-50 to 100000, or np.inf|.* or a float among {inf})"
    with pytest.raises(ValueError, match=rule):
        fits(tiny_generator, epsilon=epsilon)[name](labelled.X)


@pytest.mark.parametrize(
    ("name", "epsilon"),
    [
        ("generator", 1e-40),
        pytest.param("generator", 1e5, marks=pytest.mark.slow),
        ("adapter", 1e-40),
        ("adapter", 1e5),
        ("distance", 1e-40),
        ("distance", 1e5),
        ("histograms", 1e-40),
        ("histograms", 1e5),
    ],
)
@pytest.mark.filterwarnings(
    "ignore:Y has too few rows:UserWarning", "ignore:The noise on the mean of a class:UserWarning"
)
def test_budgets_at_the_ends_of_the_range(tiny_generator, labelled, name, epsilon):
    fits(tiny_generator, epsilon=epsilon)[name](labelled.X)


def test_names_of_features(tiny_generator, labelled):
    frame = pd.DataFrame(labelled.X, columns=list("abc"))
    by_schema = {"domain": None, "schema": Schema({name: Numeric(-3, 3) for name in "abc"})}
    for options in ({}, by_schema):
        generator = tiny_generator(**options).fit(frame)
        assert list(generator.feature_names_in_) == list("abc")
    generator.set_params(schema=None, domain=Box(-3, 3, n_features=3)).fit(labelled.X)
    assert not hasattr(generator, "feature_names_in_")
    model = adapter().fit(frame, np.arange(40) % 2, sample_domain=DOMAINS)
    assert list(model.feature_names_in_) == list("abc")


def test_columns_of_a_schema(tiny_generator, labelled):
    schema = Schema({name: Numeric(-3, 3) for name in "abc"})
    frame = pd.DataFrame(labelled.X, columns=list("abc"))
    generator = tiny_generator(domain=None, schema=schema)
    cases = {
        "'b' is declared Numeric": frame.assign(b="secret"),
        r"each once: missing \['c'\]": frame.set_axis(list("aba"), axis=1),
        r"unknown \['d'\]": frame.assign(d=1.0),
        r"missing \['b'\]": frame[["a", "c"]],
    }
    for message, wrong in cases.items():
        with pytest.raises(ValueError, match=message) as raised:
            generator.fit(wrong)
        assert "secret" not in str(raised.value)


NONSENSE = {
    "classes": [1, 2, 3],
    "domain": OneHot(2),
    "feature_dim": 99,
    "generator": "none",
    "label_proportions": [1.0],
    "labels": "private",
    "latent_dim": 9,
    "n_generators": 5,
    "output_domain": Ball(1.0, n_features=9),
    "output_transform": 3,
    "random_state": None,
    "release": NoisyRelease("none", batch_size=-1),
    "schema": Schema({"z": Numeric(0, 1)}),
    "training": Training(
        hidden_layer_sizes=(7, 7, 7), activation="none", callback=3, device="nowhere"
    ),
}


@pytest.mark.slow
def test_no_parameter_matters_after_fit(tiny_generator, labelled):
    generator = tiny_generator().fit(labelled.X, labelled.y)
    model = adapter().fit(labelled.X, np.arange(40) % 2, sample_domain=DOMAINS)
    uses = {
        generator: lambda: [
            generator.sample(5, random_state=0),
            generator.sample(4, y="a", random_state=0),
            generator.score(labelled.X, labelled.y),
            generator.sample_labels(9, random_state=0) == "a",
        ],
        model: lambda: [
            model.predict(labelled.X),
            model.predict_proba(labelled.X),
            model.score(labelled.X, np.arange(40) % 2),
        ],
    }
    for estimator, use in uses.items():
        expected = use()
        for name, value in estimator.get_params(deep=False).items():
            estimator.set_params(**{name: NONSENSE.get(name, "nonsense")})
            for before, after in zip(expected, use(), strict=True):
                np.testing.assert_array_equal(before, after)
            estimator.set_params(**{name: value})


def test_more_samples_than_memory(tiny_generator, labelled):
    generator = tiny_generator().fit(labelled.X, labelled.y)
    for draw in (generator.sample, generator.sample_labels):
        with pytest.raises(ValueError, match="n_samples=10{12} records of .* sample in parts"):
            draw(10**12)
    # Latents, classes and columns.
    generator = tiny_generator(latent_dim=50).fit(labelled.X, labelled.y)
    with pytest.raises(ValueError, match="records of 55 numbers"):
        generator.sample(10**12)


def test_infinite_values_are_bounds_to_a_schema(tiny_generator, labelled):
    """What the conformity checks are excused for: to a domain they are an error."""
    schema = Schema({name: Numeric(-3, 3) for name in "abc"})
    frame = pd.DataFrame(labelled.X, columns=list("abc"))
    found = []
    for bound in (3.0, np.inf, 1e300, 2.5):
        X = frame.assign(b=np.where(frame["b"] > 0, bound, frame["b"]))
        options = {"domain": None, "schema": schema, "epsilon": np.inf, "release__batch_size": 40}
        found.append(tiny_generator(**options).fit(X).sample(5, random_state=0))
    pd.testing.assert_frame_equal(found[0], found[1])
    pd.testing.assert_frame_equal(found[0], found[2])
    assert not found[0].equals(found[3])
    with pytest.raises(ValueError, match="'b' has missing values but is not nullable"):
        tiny_generator(domain=None, schema=schema).fit(frame.assign(b=np.nan))


# A fit that fails keeps no report of the one before.


def left_by_a_failure(estimator, fail):
    """Return what a fit left of a fitted estimator that could not be fitted again."""
    with pytest.raises((ValueError, RuntimeError)):
        fail(estimator)
    return {name for name in vars(estimator) if name.endswith("_")}


@pytest.mark.filterwarnings("ignore:The released mean of the target is not that:UserWarning")
def test_a_failed_refit_leaves_no_report(tiny_generator, labelled, monkeypatch):
    y = np.arange(40) % 2
    failures = {
        "width": lambda e: e.set_params(domain=Box(0, 1, n_features=7)).fit(labelled.X),
        "classes": lambda e: e.set_params(labels="private").fit(labelled.X, labelled.y),
        "domains": lambda e: e.fit(labelled.X, y, sample_domain=DOMAINS[1:]),
        "device": lambda e: e.set_params(training__device="nowhere").fit(labelled.X, y),
        "records": lambda e: e.fit([["a", "b", "c"]] * 40, y),
    }

    def leave_a_report():
        for name, fail in failures.items():
            if name != "domains":
                fitted = tiny_generator().fit(labelled.X, labelled.y)
                yield left_by_a_failure(fitted, fail) & {"privacy_", "generator_", "classes_"}
            if name in ("domains", "device", "records"):
                fitted = adapter().fit(labelled.X, y, sample_domain=DOMAINS)
                yield left_by_a_failure(fitted, fail) & {"privacy_", "module_", "classes_"}

    assert not any(leave_a_report())
    for estimator in (SmoothedSlicedWassersteinGenerator, SmoothedSlicedWassersteinAdapter):
        monkeypatch.setattr(estimator, "_forget", lambda self: None)
    assert all("privacy_" in left for left in leave_a_report())


def test_a_fit_that_diverges_keeps_its_own_report(tiny_generator, labelled, monkeypatch):
    """The releases were made: what they cost is known, and the network is not there."""
    generator = tiny_generator().fit(labelled.X)

    def diverge(*args, **options):
        raise TrainingDivergedError

    monkeypatch.setattr("sklearn_dpgen.smoothed._generator.train_generators", diverge)
    with pytest.raises(TrainingDivergedError):
        generator.set_params(epsilon=2.0).fit(labelled.X)
    assert generator.privacy_.epsilon == 2.0
    with pytest.raises(NotFittedError):
        generator.sample()
    monkeypatch.setattr("sklearn_dpgen.smoothed._generator.train_generators", train_generators)
    assert generator.fit(labelled.X).sample().shape == (1, 3)


# Private labels.


def publishes_a_lone_label(make, labelled):
    """Whether a fit tells that one record has a label that no other has."""
    told = []
    for lone in ("a", "rare"):
        y = labelled.y.astype(object)
        y[np.flatnonzero(y == "a")[0]] = lone
        try:
            generator = make().fit(labelled.X, y)
            told.append((generator.classes_.tolist(), generator.privacy_.public))
        except ValueError as error:
            told.append(str(error))
    return told[0] != told[1]


def test_private_labels_are_not_read_for_classes(tiny_generator, labelled, monkeypatch):
    make = partial(tiny_generator, labels="private")
    with pytest.raises(ValueError, match="Private labels need classes"):
        make().fit(labelled.X, labelled.y)
    assert not publishes_a_lone_label(make, labelled)
    # Where they are public they are.
    assert publishes_a_lone_label(tiny_generator, labelled)
    monkeypatch.setattr(
        SmoothedSlicedWassersteinGenerator, "_check_label_parameters", lambda self, y: None
    )
    assert publishes_a_lone_label(make, labelled)


def test_classes_are_asked_for_before_records_are_read(tiny_generator, labelled, monkeypatch):
    def read(*args):
        raise PermissionError

    monkeypatch.setattr("sklearn_dpgen.smoothed._generator.encode_records", read)
    for wrong in (
        {"labels": "private"},
        {"labels": "private", "classes": {"a", "b"}},
        {"classes": ["a", "b"], "label_proportions": [0.5, 0.6]},
    ):
        with pytest.raises(ValueError, match="classes|label_proportions"):
            tiny_generator(**wrong).fit(labelled.X, labelled.y)
    with pytest.raises(PermissionError):
        tiny_generator(labels="private", classes=["a", "b"]).fit(labelled.X, labelled.y)
