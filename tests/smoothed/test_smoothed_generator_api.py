"""The smoothed generator as a scikit-learn estimator: parameters, inputs, errors, tables."""

import pickle

import numpy as np
import pandas as pd
import pytest
import torch
from numpy.testing import assert_allclose, assert_array_equal
from sklearn.base import clone
from sklearn.exceptions import NotFittedError
from sklearn.model_selection import GridSearchCV
from sklearn.pipeline import Pipeline
from sklearn.preprocessing import FunctionTransformer

from sklearn_dpgen.domains import Ball, Box, OneHot, Product
from sklearn_dpgen.preprocessing import DCTTransformer
from sklearn_dpgen.schema import Categorical, Datetime, Numeric, Ordinal, Schema
from sklearn_dpgen.smoothed import _releases, _training


def test_clone_and_parameters(tiny_generator, labelled, weights_of):
    generator = tiny_generator(epsilon=3.0)
    before = repr(generator.get_params())
    generator.fit(labelled.X, labelled.y)
    assert repr(generator.get_params()) == before
    copy = clone(generator)
    assert not hasattr(copy, "privacy_")
    assert_array_equal(weights_of(copy.fit(labelled.X, labelled.y)), weights_of(generator))
    copy.set_params(epsilon=5.0, training__max_iter=2).fit(labelled.X, labelled.y)
    assert (copy.privacy_.epsilon, copy.n_iter_, len(copy.loss_curve_)) == (5.0, 2, 2)
    assert (generator.privacy_.epsilon, generator.n_iter_) == (3.0, 3)


def test_pickle(tiny_generator, labelled, weights_of):
    generator = tiny_generator().fit(labelled.X, labelled.y)
    copy = pickle.loads(pickle.dumps(generator))
    assert copy.privacy_ == generator.privacy_
    assert_array_equal(weights_of(copy), weights_of(generator))
    assert_array_equal(copy.sample(7, random_state=0), generator.sample(7, random_state=0))


def test_in_a_pipeline(tiny_generator, labelled):
    shifted = Pipeline(
        [("shift", FunctionTransformer(lambda X: X / 2)), ("make", tiny_generator())]
    )
    shifted.fit(labelled.X, labelled.y)
    direct = tiny_generator().fit(labelled.X / 2, labelled.y)
    assert_array_equal(shifted["make"].sample(4, random_state=0), direct.sample(4, random_state=0))


def test_grid_search_over_the_budget(tiny_generator, labelled):
    def score(generator, X, y=None):
        return -float(np.linalg.norm(generator.sample(50, random_state=0).mean(0) - X.mean(0)))

    search = GridSearchCV(
        tiny_generator(), {"epsilon": [0.5, np.inf]}, scoring=score, cv=2, error_score="raise"
    )
    search.fit(labelled.X)
    assert search.best_estimator_.privacy_.epsilon == search.best_params_["epsilon"]
    assert np.isfinite(search.cv_results_["mean_test_score"]).all()


@pytest.mark.parametrize(
    "as_given", [np.ndarray.tolist, np.asfortranarray, pd.DataFrame, lambda X: X.astype(np.int64)]
)
def test_types_of_records(tiny_generator, labelled, weights_of, as_given):
    X = np.round(3 * labelled.X) + 0.0
    expected = weights_of(tiny_generator().fit(X, labelled.y))
    given = as_given(X)
    if isinstance(given, pd.DataFrame):
        given.columns = ["a", "b", "c"]
    generator = tiny_generator().fit(given, labelled.y)
    assert_array_equal(weights_of(generator), expected)
    assert hasattr(generator, "feature_names_in_") == isinstance(given, pd.DataFrame)
    sampled = generator.sample(2, random_state=0)
    assert isinstance(sampled, pd.DataFrame if isinstance(given, pd.DataFrame) else np.ndarray)
    assert_array_equal(sampled, tiny_generator().fit(X, labelled.y).sample(2, random_state=0))


def test_frames_come_back_with_their_columns(tiny_generator, labelled):
    frame = pd.DataFrame(labelled.X.astype(np.float32), columns=list("cab"), index=range(7, 47))
    generator = tiny_generator(output_domain=Box(-9, 9, n_features=3)).fit(frame, labelled.y)
    sampled = generator.sample(4, y="a", random_state=0)
    assert list(sampled.columns) == list("cab")
    assert (sampled.dtypes == np.float64).all()
    assert list(sampled.index) == [0, 1, 2, 3]
    assert np.isfinite(generator.score(sampled, ["a"] * 4))
    generator.fit(frame.set_axis([0, 1, 2], axis=1))
    assert isinstance(generator.sample(2), np.ndarray)
    # What comes before a transform has columns of its own, be they as many.
    generator.set_params(output_transform=FunctionTransformer(torch.neg)).fit(frame)
    assert isinstance(generator.sample(2), np.ndarray)


@pytest.mark.parametrize("kind", ["public", "private"])
def test_types_of_labels(tiny_generator, labelled, weights_of, kind):
    # Declared classes are in the key of a seeded noise and of batches: none of either.
    options = {"labels": kind, "epsilon": np.inf, "release__batch_size": 40}

    def fit(y):
        return tiny_generator(classes=sorted(set(y)), **options).fit(labelled.X, y)

    expected = weights_of(fit(labelled.y))
    for same in (
        labelled.y.tolist(),
        labelled.y == "b",
        (labelled.y == "b").astype(float),
        pd.Series(labelled.y, index=range(7, 47)),
        pd.Series(labelled.y).astype("category"),
        labelled.y.astype(object),
    ):
        generator = fit(same)
        assert_allclose(weights_of(generator), expected, rtol=1e-4)
        assert len(generator.classes_) == 2


def test_samples_follow_their_seed(tiny_generator, labelled):
    generator = tiny_generator().fit(labelled.X, labelled.y)
    first = generator.sample(50, random_state=0)
    assert_array_equal(first, generator.sample(50, random_state=0))
    assert not np.array_equal(first, generator.sample(50, random_state=1))
    assert not np.array_equal(generator.sample(50), generator.sample(50))
    assert generator.sample().shape == (1, 3)
    assert generator.sample(2500, random_state=0).shape == (2500, 3)
    assert generator.domain_.contains(first).all()
    assert not generator.generator_.training


def test_samples_in_parts_are_as_at_once(tiny_generator, labelled, monkeypatch):
    generator = tiny_generator().fit(labelled.X, labelled.y)
    expected = generator.sample(50, random_state=0)
    monkeypatch.setattr("sklearn_dpgen.smoothed._generator._CHUNK", 7)
    assert_allclose(generator.sample(50, random_state=0), expected, rtol=1e-5, atol=1e-6)


def test_parameters_set_after_fit_do_not_matter(tiny_generator, labelled):
    generator = tiny_generator().fit(labelled.X, labelled.y)
    first = generator.sample(5, random_state=0)
    generator.set_params(
        latent_dim=7, domain=Box(0, 1), classes=[1, 2], output_domain=OneHot(3), generator="dcgan"
    )
    assert_array_equal(generator.sample(5, random_state=0), first)


def test_a_fit_forgets_the_one_before(tiny_generator, labelled):
    generator = tiny_generator().fit(labelled.X, labelled.y)
    generator.fit(labelled.X)
    assert not hasattr(generator, "classes_")
    assert not hasattr(generator, "label_proportions_")
    assert generator.sample(3).shape == (3, 3)
    generator.set_params(release__n_projections=4, release__batch_size=99)
    with pytest.raises(ValueError, match="batch_size"):
        generator.fit(labelled.X)
    with pytest.raises(NotFittedError):
        generator.sample()


# Errors.


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"release__n_projections": 0}, "'n_projections' parameter"),
        ({"n_generated": 1}, "'n_generated' parameter"),
        ({"release__shape_weight": 0}, "'shape_weight' parameter"),
        ({"epsilon": 0}, "'epsilon' parameter"),
        ({"labels": "secret"}, "'labels' parameter"),
        ({"output_transform": "scale"}, "'output_transform' parameter"),
        ({"release__batch_size": 41}, "batch_size must be at most .* records, 40, got 41"),
        ({"domain": None}, "either schema or domain"),
        ({"schema": Schema({"a": Numeric(0, 1)})}, "either schema or domain"),
        ({"domain": Box(0, 1, n_features=4)}, "domain has 4 features, X has 3 features"),
        ({"output_transform": FunctionTransformer()}, "needs an output_domain"),
        (
            {
                "output_transform": FunctionTransformer(),
                "output_domain": Box(0, 1),
                "domain": None,
                "schema": Schema({"a": Numeric(0, 1)}),
            },
            "output_transform needs a domain",
        ),
        ({"output_domain": Box(0, 1, n_features=5)}, "domain has 3 features, X has 5"),
        ({"classes": ["a"]}, "classes must be at least two, got 1 class"),
        ({"classes": ["a", "b", "a"]}, "classes must be distinct"),
        ({"classes": ["a", None]}, "classes holds labels that are missing"),
        ({"classes": ["a", "c"]}, "y holds labels that are missing or not among the classes"),
        ({"label_proportions": [1.0]}, "one share a class, 2"),
        ({"label_proportions": [0.5, 0.6]}, "sum to 1"),
        ({"label_proportions": [np.nan, 1.0]}, "sum to 1"),
        ({"label_proportions": [-0.5, 1.5]}, "non-negative"),
        ({"training__hidden_layer_sizes": (0,)}, "hidden_layer_sizes must hold positive integers"),
        ({"generator": "upsampling"}, "generator='upsampling' needs square images"),
        ({"generator": "dcgan"}, "generator='dcgan' needs square images"),
    ],
    ids=str,
)
def test_errors_of_parameters(tiny_generator, labelled, options, message):
    with pytest.raises(ValueError, match=message):
        tiny_generator(**options).fit(labelled.X, labelled.y)


@pytest.mark.parametrize(
    ("y", "message"),
    [
        (["a"] * 40, "at least two, got 1 class"),
        ([None] + ["a", "b"] * 19 + ["a"], "y holds labels that are missing"),
        ([np.nan] + [0, 1] * 19 + [0], "y holds labels that are missing"),
        (["a", "b"], "y must hold 40 labels"),
        (np.linspace(0, 1, 40), "Unknown label type"),
        (np.zeros((40, 2)), "1d array"),
    ],
    ids=["one", "None", "NaN", "short", "continuous", "wide"],
)
def test_errors_of_labels(tiny_generator, labelled, y, message):
    with pytest.raises(ValueError, match=message):
        tiny_generator().fit(labelled.X, y)


def test_errors_of_samples(tiny_generator, labelled):
    with pytest.raises(NotFittedError):
        tiny_generator().sample()
    with pytest.raises(NotFittedError):
        tiny_generator().sample_labels()
    generator = tiny_generator().fit(labelled.X, labelled.y)
    for wrong in ("z", ["a", "z"], np.nan, 3, [None, "a"]):
        with pytest.raises(ValueError, match="not among the classes"):
            generator.sample(2, y=wrong)
    with pytest.raises(ValueError, match="y must hold 2 labels, one a record, got 3"):
        generator.sample(2, y=["a", "b", "a"])
    for wrong in (0, -1, 2.0, True, "3"):
        with pytest.raises(ValueError, match="n_samples must be an integer of at least 1"):
            generator.sample(wrong)
        with pytest.raises(ValueError, match="n_samples must be an integer of at least 1"):
            generator.sample_labels(wrong)
    generator.fit(labelled.X)
    with pytest.raises(ValueError, match="after a fit with labels"):
        generator.sample(2, y="a")
    with pytest.raises(ValueError, match="needs a fit with labels"):
        generator.sample_labels(2)


# Small and large.


@pytest.mark.parametrize("y", [None, [0, 1] * 20], ids=["plain", "labels"])
@pytest.mark.parametrize("directions", ["orthogonal", "independent"])
def test_one_feature(tiny_generator, labelled, y, directions):
    generator = tiny_generator(release__directions=directions).fit(labelled.X[:, :1], y)
    assert generator.sample(3).shape == (3, 1)
    assert np.isfinite(generator.loss_curve_).all()


def test_one_record(tiny_generator):
    generator = tiny_generator(release__n_epochs=0.1).fit(np.zeros((1, 3)))
    assert generator.privacy_.n_releases == 1
    assert generator.privacy_.sampling_rate == 1
    assert generator.sample(3).shape == (3, 3)
    # One of each class.
    generator.fit(np.zeros((2, 3)), [0, 1])
    assert_allclose(generator.label_proportions_, [0.5, 0.5])


@pytest.mark.parametrize("epsilon", [1e-10, 1e-3, 20.0])
def test_extreme_budgets(tiny_generator, labelled, epsilon):
    generator = tiny_generator(epsilon=epsilon).fit(labelled.X)
    assert 0 < generator.noise_multiplier_ < np.inf
    assert np.isfinite(generator.sample(3)).all()


@pytest.mark.parametrize("scale", [2.0**-30, 2.0**50])
def test_the_unit_of_the_records_does_not_matter(tiny_generator, labelled, scale):
    # Whole batches: scaled records would draw others.
    options = {
        "epsilon": np.inf,
        "training__max_iter": 50,
        "training__learning_rate": 0.01,
        "release__batch_size": 40,
    }
    generator = tiny_generator(domain=Box(-3 * scale, 3 * scale, n_features=3), **options)
    plain = tiny_generator(domain=Box(-3, 3, n_features=3), **options).fit(labelled.X)
    sampled = generator.fit(scale * labelled.X).sample(20, random_state=0)
    assert_allclose(sampled / scale, plain.sample(20, random_state=0), atol=0.05)


@pytest.mark.parametrize("epsilon", [1.0, np.inf])
@pytest.mark.parametrize(
    "options",
    [{"n_generated": 2}, {"n_generated": 3}, {"release__shape_weight": 1e-6}],
    ids=str,
)
def test_options_run(tiny_generator, labelled, epsilon, options):
    generator = tiny_generator(epsilon=epsilon, **options).fit(labelled.X, labelled.y)
    assert np.isfinite(generator.loss_curve_).all()
    assert np.isfinite(generator.sample(3)).all()


@pytest.mark.parametrize(
    ("n_features", "wanted", "expected"),
    [(1, "auto", 1), (1, 50, 1), (2, "auto", 64), (5, "auto", 65), (20, "auto", 200), (3, 7, 7)],
)
def test_number_of_lines(tiny_generator, monkeypatch, n_features, wanted, expected):
    seen = []
    train = _training.train_generator

    def watch(module, laws, *args, **options):
        seen.append(laws.directions.shape)
        return train(module, laws, *args, **options)

    monkeypatch.setattr(_training, "train_generator", watch)
    tiny_generator(release__n_projections=wanted).fit(np.zeros((8, n_features)))
    assert seen == [(expected, n_features)]


def test_steps_take_blocks_of_many_lines(tiny_generator, labelled, monkeypatch):
    monkeypatch.setattr(_releases, "STEP_DIRECTIONS", 10)
    generator = tiny_generator(release__n_projections=35, training__max_iter=9).fit(labelled.X)
    assert np.isfinite(generator.loss_curve_).all()


# Networks.


@pytest.mark.parametrize("name", ["upsampling", "dcgan"])
@pytest.mark.parametrize("y", [None, [0, 1] * 10], ids=["plain", "labels"])
def test_images(tiny_generator, name, y):
    X = np.random.default_rng(0).uniform(-1, 1, size=(20, 64))
    generator = tiny_generator(
        generator=name, domain=Box(-1, 1, n_features=64), n_generated=2, training__max_iter=2
    ).fit(X, y)
    images = generator.sample(5, random_state=0)
    assert images.shape == (5, 64)
    assert abs(images).max() <= 1
    # An image is not told by the others of its batch.
    assert_allclose(generator.sample(5, random_state=0)[0], images[0])
    assert not any(module.training for module in generator.generator_.modules())


def test_statistics_of_a_batch_are_those_of_the_averaged_weights(tiny_generator):
    X = np.random.default_rng(0).uniform(-1, 1, size=(20, 64))
    generator = tiny_generator(
        generator="upsampling",
        domain=Box(-1, 1, n_features=64),
        n_generated=64,
        training__max_iter=5,
    ).fit(X)
    module, latents = generator.generator_, torch.randn(4000, 2)
    hidden = module[0](latents)
    assert_allclose(module[1].running_mean, hidden.mean(0).detach(), atol=0.1)
    assert_allclose(module[1].running_var, hidden.var(0).detach(), rtol=0.3)


def test_a_network_of_ones_own(tiny_generator, labelled):
    seen = []

    def linear(n_inputs, domain):
        seen.append((n_inputs, domain))
        return torch.nn.Linear(n_inputs, domain.n_features)

    generator = tiny_generator(generator=linear).fit(labelled.X, labelled.y)
    assert seen == [(4, Box(-3, 3, n_features=3))]
    assert isinstance(generator.generator_, torch.nn.Linear)
    assert generator.sample(4).shape == (4, 3)
    wide = Ball(9.0, n_features=3)
    tiny_generator(generator=linear, output_domain=wide).fit(labelled.X)
    assert seen[1] == (2, wide)


@pytest.mark.slow
def test_output_of_a_transform(tiny_generator):
    """The network makes images, the records are their cosine coefficients."""
    images = np.random.default_rng(0).uniform(0, 1, size=(60, 64))
    mask = np.add.outer(np.arange(8), np.arange(8)) < 4
    transform = DCTTransformer((8, 8), mask=mask).fit(images)
    records = transform.transform(images)
    generator = tiny_generator(
        domain=Ball(8.0, n_features=10),
        output_domain=Box(0, 1, n_features=64),
        output_transform=transform,
        epsilon=np.inf,
        training__max_iter=200,
        training__learning_rate=0.05,
        release__n_projections=40,
    ).fit(records)
    made = generator.sample(200, random_state=0)
    assert made.shape == (200, 64)
    assert generator.output_domain.contains(made).all()
    assert generator.n_features_in_ == 10
    # Its columns are pixels, not those of the records.
    named = pd.DataFrame(records, columns=transform.get_feature_names_out())
    gap = np.linalg.norm(transform.transform(made).mean(0) - records.mean(0))
    assert gap < 0.2 * np.linalg.norm(records.mean(0))
    assert isinstance(generator.set_params(training__max_iter=1).fit(named).sample(2), np.ndarray)


# Devices, progress, tables.


def test_device_and_progress(tiny_generator, labelled, weights_of, capfd):
    quiet = tiny_generator(training__device="cpu").fit(labelled.X)
    assert capfd.readouterr().err == ""
    loud = tiny_generator(training__device=torch.device("cpu"), training__verbose=1).fit(labelled.X)
    shown = capfd.readouterr().err
    assert "releases" in shown
    assert "SmoothedSlicedWassersteinGenerator" in shown
    assert_array_equal(weights_of(loud), weights_of(quiet))
    assert next(quiet.generator_.parameters()).dtype == torch.float32
    with pytest.raises(ValueError, match="device='nope'"):
        tiny_generator(training__device="nope").fit(labelled.X)


def test_global_random_streams_are_left_alone(tiny_generator, labelled):
    torch.manual_seed(5)
    expected = torch.rand(3)
    torch.manual_seed(5)
    tiny_generator(random_state=None).fit(labelled.X).sample(3)
    torch.testing.assert_close(torch.rand(3), expected)


SCHEMA = Schema(
    {
        "age": Numeric(0, 100),
        "children": Numeric(0, 9, integer=True),
        "job": Categorical(["baker", "nurse", "pilot"]),
        "grade": Ordinal(["low", "high"]),
        "day": Datetime("2020-01-01", "2020-12-31"),
    }
)


@pytest.fixture
def people():
    rng = np.random.default_rng(0)
    days = pd.Timestamp("2020-01-01") + pd.to_timedelta(rng.integers(0, 365, 300), unit="D")
    return pd.DataFrame(
        {
            "age": rng.uniform(70, 80, size=300),
            "children": rng.integers(0, 4, size=300),
            "job": rng.choice(["baker", "pilot"], size=300, p=[0.2, 0.8]),
            "grade": pd.Categorical(
                rng.choice(["low", "high"], size=300), categories=["low", "high"], ordered=True
            ),
            "day": days,
        }
    )


@pytest.mark.slow
@pytest.mark.parametrize("epsilon", [np.inf, 30.0])
def test_tables_come_back_as_they_were(tiny_generator, people, epsilon):
    generator = tiny_generator(
        domain=None,
        schema=SCHEMA,
        epsilon=epsilon,
        release__n_epochs=10.0,
        training__max_iter=400,
        training__learning_rate=0.02,
        training__hidden_layer_sizes=(32,),
        n_generated=32,
        release__n_projections="auto",
    ).fit(people)
    sampled = generator.sample(400, random_state=0)
    assert list(sampled.columns) == list(people.columns)
    assert sampled.dtypes.to_dict() == {name: SCHEMA[name].dtype for name in people}
    assert set(sampled["job"]) <= {"baker", "nurse", "pilot"}
    assert sampled["children"].between(0, 9).all()
    assert sampled["day"].between("2020-01-01", "2020-12-31").all()
    assert generator.n_features_in_ == 5
    assert generator.domain_ == Product(generator.domain_.domains)
    # It is the records' law that is drawn.
    assert abs(sampled["age"].mean() - 75) < 7
    assert abs((sampled["job"] == "pilot").mean() - 0.8) < 0.2
    pd.testing.assert_frame_equal(sampled, generator.sample(400, random_state=0))
    assert not sampled.equals(generator.sample(400, random_state=1))


def test_another_kind_of_records_in_the_next_fit(tiny_generator, labelled, people):
    generator = tiny_generator(schema=SCHEMA, domain=None).fit(people, people["job"])
    assert isinstance(generator.sample(2, y="pilot"), pd.DataFrame)
    generator.set_params(schema=None, domain=Box(-3, 3, n_features=3)).fit(labelled.X)
    assert isinstance(generator.sample(2), np.ndarray)
    assert not hasattr(generator, "encoder_")
    assert generator.n_features_in_ == 3
