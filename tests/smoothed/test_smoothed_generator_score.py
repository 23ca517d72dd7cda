"""The score of the smoothed generator: held-out records against samples of its own."""

import pickle

import numpy as np
import pandas as pd
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.testing import assert_allclose
from sklearn.exceptions import NotFittedError
from sklearn.frozen import FrozenEstimator
from sklearn.model_selection import GridSearchCV

from sklearn_dpgen.domains import Ball, Box
from sklearn_dpgen.metrics import sliced_wasserstein_distance
from sklearn_dpgen.ot._sliced import held_out_distance
from sklearn_dpgen.preprocessing import DCTTransformer, TabularEncoder
from sklearn_dpgen.schema import Categorical, Numeric, Schema
from sklearn_dpgen.smoothed import _generator


class Shifted(torch.nn.Module):
    """A network that makes points of one class about each place."""

    def __init__(self, places):
        super().__init__()
        self.places = torch.nn.Parameter(torch.tensor(places))

    def forward(self, inputs):
        spread = 0.0 * inputs[:, :1]
        return spread + inputs[:, -len(self.places) :] @ self.places


@pytest.fixture
def settled(tiny_generator, labelled):
    """Return a generator with labels whose records of a class all lie at one place."""
    generator = tiny_generator().fit(labelled.X, labelled.y)
    generator.generator_ = Shifted([[1.0, 0.0, 0.0], [0.0, 2.0, 0.0]])
    return generator


# The distance.


@settings(max_examples=30, deadline=None)
@given(
    n=st.integers(1, 15),
    copies=st.integers(1, 4),
    d=st.integers(1, 300),
    scale=st.sampled_from([1e-9, 1.0, 1e9]),
    seed=st.integers(0, 99),
)
def test_the_distance_of_a_shift(n, copies, d, scale, seed):
    X, shift = np.split(np.random.default_rng(seed).normal(0, scale, size=(n + 1, d)), [n])
    found = held_out_distance([(X, np.tile(X, (copies, 1)) + shift)])
    assert_allclose(found, np.linalg.norm(shift) / np.sqrt(d), rtol=1e-6)
    assert held_out_distance([(X, X)]) == 0


@settings(max_examples=20, deadline=None)
@given(sizes=st.lists(st.integers(1, 9), min_size=1, max_size=4), seed=st.integers(0, 99))
def test_classes_count_by_their_shares(sizes, seed):
    rng = np.random.default_rng(seed)
    shifts = rng.normal(size=(len(sizes), 3))
    parts = [rng.normal(size=(size, 3)) for size in sizes]
    found = held_out_distance([(X, X + shift) for X, shift in zip(parts, shifts, strict=True)])
    powers = (shifts**2).sum(axis=1) / 3
    assert_allclose(found, np.sqrt(np.average(powers, weights=sizes)))


def test_the_distance_is_that_of_the_metrics():
    rng = np.random.default_rng(0)
    X, Y = rng.normal(size=(70, 4)), rng.gamma(1.0, 2.0, size=(110, 4))
    expected = sliced_wasserstein_distance(X, Y, n_projections=5000, random_state=0)
    assert_allclose(held_out_distance([(X, Y)]), expected, rtol=0.03)


@pytest.mark.gpu
def test_a_gpu_finds_the_same_distance():
    rng = np.random.default_rng(0)
    groups = [(rng.normal(size=(70, 4)), rng.normal(size=(110, 4)))]
    assert_allclose(held_out_distance(groups, device="cuda"), held_out_distance(groups))


# The score.


def test_the_score_of_known_samples(settled):
    at_first, at_second = np.tile([1.0, 0.0, 0.0], (6, 1)), np.tile([0.0, 2.0, 0.0], (2, 1))
    X, y = np.concatenate([at_first, at_second]), np.repeat(["a", "b"], [6, 2])
    assert settled.score(X, y) == 0
    assert settled.score(at_second, ["b"] * 2) == 0
    assert settled.score(at_second, "b") == 0
    # Each class has another's samples, √5 away; along a direction a third of the square.
    assert_allclose(settled.score(X, y[::-1]), -np.sqrt(5 / 3 * 4 / 8))
    assert_allclose(settled.score(X + [0.0, 0.0, 3.0], y), -np.sqrt(9 / 3))


def test_without_labels_all_are_compared_with_all(settled):
    settled.label_proportions_ = np.array([0.0, 1.0])
    X = np.tile([0.0, 2.0, 0.0], (5, 1))
    assert settled.score(X) == 0
    assert_allclose(settled.score(X - [0.0, 1.0, 0.0]), -np.sqrt(1 / 3))


def test_the_score_is_that_of_samples(tiny_generator, labelled):
    generator = tiny_generator().fit(labelled.X)
    # More records than the fewest that are drawn are compared with as many.
    for X, n_drawn in ((labelled.X, 1000), (np.tile(labelled.X, (30, 1)), 1200)):
        drawn = generator.sample(n_drawn, random_state=_generator._SEED)
        assert generator.score(X) == -held_out_distance([(X, drawn)])


def test_the_score_is_the_same_at_each_call(tiny_generator, labelled):
    generator = tiny_generator(random_state=None).fit(labelled.X, labelled.y)
    torch.manual_seed(5)
    expected = torch.rand(3)
    torch.manual_seed(5)
    scores = {generator.score(labelled.X, labelled.y) for _ in range(3)}
    scores.add(pickle.loads(pickle.dumps(generator)).score(labelled.X, labelled.y))
    assert len(scores) == 1
    torch.testing.assert_close(torch.rand(3), expected)


def test_records_outside_of_the_domain_count_by_where_they_are(tiny_generator):
    """Else a domain that cuts them off would look better than one that does not."""
    generator = tiny_generator(domain=Ball(1.0, n_features=2), epsilon=np.inf).fit(np.zeros((9, 2)))
    scores = [generator.score(np.full((9, 2), place)) for place in (1.0, 10.0, 100.0)]
    assert scores[1] < scores[0] - 8 / np.sqrt(2)
    assert scores[2] < scores[1] - 80 / np.sqrt(2)


@pytest.mark.slow
def test_a_larger_score_is_better(tiny_generator):
    rng = np.random.default_rng(0)
    X = rng.normal([1.0, -1.0], 0.3, size=(300, 2))
    options = {
        "training__max_iter": 150,
        "training__learning_rate": 0.02,
        "release__n_projections": "auto",
    }
    good = tiny_generator(epsilon=np.inf, **options).fit(X)
    noisy = tiny_generator(epsilon=0.01, **options).fit(X)
    held_out = rng.normal([1.0, -1.0], 0.3, size=(200, 2))
    assert noisy.score(held_out) + 0.2 < good.score(held_out) < 0


# In a search.


@pytest.mark.slow
def test_a_search_by_the_score(tiny_generator):
    rng = np.random.default_rng(0)
    y = rng.integers(2, size=200)
    X = pd.DataFrame(rng.normal(0, 0.3, size=(200, 2)) + np.eye(2)[y], columns=["u", "v"])
    search = GridSearchCV(
        tiny_generator(
            epsilon=20.0,
            training__max_iter=50,
            training__learning_rate=0.05,
            release__n_epochs=20.0,
            release__n_projections=20,
        ),
        {"domain": [Ball(radius, n_features=2) for radius in (0.1, 1.5, 500.0)]},
        cv=2,
        error_score="raise",
    )
    search.fit(X, y)
    assert search.best_params_["domain"].radius == 1.5
    assert (search.cv_results_["mean_test_score"] < 0).all()
    assert search.score(X, y) == search.best_estimator_.score(X, y)
    assert search.best_estimator_.sample(3, y=1).columns.tolist() == ["u", "v"]


# Tables and transforms.

SCHEMA = Schema({"age": Numeric(0, 100), "job": Categorical(["baker", "nurse"])})


def test_the_score_of_a_table(tiny_generator):
    rng = np.random.default_rng(0)
    people = pd.DataFrame({"age": rng.uniform(0, 100, 60), "job": ["baker", "nurse"] * 30})
    generator = tiny_generator(domain=None, schema=SCHEMA).fit(people)
    encode = TabularEncoder(SCHEMA).fit(people).transform
    drawn = generator.sample(1000, random_state=_generator._SEED)
    assert generator.score(people) == -held_out_distance([(encode(people), encode(drawn))])
    assert generator.score(people[["job", "age"]]) == generator.score(people)
    with pytest.raises(ValueError, match=r"missing \['age'\]"):
        generator.score(people[["job"]])


def test_the_score_after_a_transform(tiny_generator):
    images = np.random.default_rng(0).uniform(0, 1, size=(60, 16))
    mask = np.add.outer(np.arange(4), np.arange(4)) < 2
    transform = DCTTransformer((4, 4), mask=mask).fit(images)
    records = transform.transform(images)
    generator = tiny_generator(
        domain=Ball(8.0, n_features=3),
        output_domain=Box(0, 1, n_features=16),
        output_transform=transform,
    ).fit(pd.DataFrame(records, columns=list("abc")))
    drawn = generator.sample(1000, random_state=_generator._SEED)
    expected = held_out_distance([(records, transform.transform(drawn))])
    score = generator.score(pd.DataFrame(records, columns=list("abc")))
    assert_allclose(score, -expected, rtol=1e-5)
    # A search clones what is not frozen.
    generator.set_params(output_transform=FrozenEstimator(transform))
    search = GridSearchCV(generator, {"n_generated": [2, 4]}, cv=2, error_score="raise")
    search.fit(records)
    assert np.isfinite(search.cv_results_["mean_test_score"]).all()


# Errors.


def test_errors_of_the_score(tiny_generator, labelled):
    frame = pd.DataFrame(labelled.X, columns=list("abc"))
    with pytest.raises(NotFittedError):
        tiny_generator().score(labelled.X)
    generator = tiny_generator().fit(frame, labelled.y)
    for wrong in (frame[["a", "b"]], frame.rename(columns={"a": "z"}), frame[["b", "a", "c"]]):
        with pytest.raises(ValueError, match="feature names"):
            generator.score(wrong)
    with pytest.raises(ValueError, match="contains NaN"):
        generator.score(frame.assign(a=np.nan))
    with pytest.raises(ValueError, match="not among the classes"):
        generator.score(frame, ["a", "secret"] * 20)
    with pytest.raises(ValueError, match="y must hold 40 labels"):
        generator.score(frame, ["a", "b"])
    with pytest.raises(ValueError, match="y can be given after a fit with labels only"):
        tiny_generator().fit(frame).score(frame, labelled.y)
