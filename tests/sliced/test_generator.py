"""DPSlicedWassersteinGenerator: its gradient, what it learns, and the tables it makes."""

import numpy as np
import pandas as pd
import pytest
import torch
from numpy.testing import assert_allclose, assert_array_equal
from torch import nn

from sklearn_dpgen.datasets import make_half_circle
from sklearn_dpgen.domains import Ball, Box, OneHot, Product
from sklearn_dpgen.domains._ball import enclosing_ball
from sklearn_dpgen.ot import random_directions, sliced_wasserstein
from sklearn_dpgen.schema import Categorical, Datetime, Numeric, Ordinal, Schema
from sklearn_dpgen.sliced import DPSlicedWassersteinGenerator, _generator
from sklearn_dpgen.sliced._base import SlicedEstimator

HUGE = 1e9


@pytest.fixture
def directions(monkeypatch):
    """Fix the directions of every step."""

    def fix(n_features):
        generator = torch.Generator().manual_seed(0)
        fixed = random_directions(4, n_features, generator=generator, dtype=torch.float64)
        monkeypatch.setattr(SlicedEstimator, "_directions", lambda *args: lambda: fixed)
        return fixed

    return fix


@pytest.mark.parametrize("n_latents", [41, 30])
@pytest.mark.parametrize("chunk", [512, 7])
@pytest.mark.parametrize(
    "domain",
    [Box(-3, 3, n_features=3), Ball(2.0, n_features=3), Product([Box(-3, 3), OneHot(2)])],
    ids=str,
)
def test_without_clipping_it_is_the_gradient_of_the_loss(
    tiny, table, probe, directions, monkeypatch, n_latents, chunk, domain
):
    monkeypatch.setattr(_generator, "CHUNK", chunk)
    theta = directions(3)
    Z = np.random.default_rng(1).normal(size=(n_latents, 2))
    generator = tiny("generator", domain=domain, gradient__jacobian_clip=HUGE, epsilon=np.inf)
    result = probe(generator.fit, table.X, latents=Z, scales=(1.0, 3.0))
    points = result.module(torch.from_numpy(Z))
    records = torch.from_numpy(domain.project(table.X))
    loss = sliced_wasserstein(points, records, directions=theta)
    expected = torch.autograd.grad(loss, list(result.module.parameters()))
    expected = torch.cat([part.flatten() for part in expected]).numpy()
    assert_allclose(result.gradients[1], expected, rtol=1e-9, atol=1e-12)
    assert abs(expected).max() > 1e-3
    # It is not that of other directions.
    monkeypatch.undo()
    assert not np.allclose(result.gradients[0], expected, rtol=1e-3)


def test_points_are_clipped_in_every_chunk(tiny, table, probe, directions, monkeypatch):
    directions(3)
    Z = np.random.default_rng(1).normal(size=(30, 2))

    def gradient(chunk, clip):
        monkeypatch.setattr(_generator, "CHUNK", chunk)
        generator = tiny("generator", gradient__jacobian_clip=clip, epsilon=np.inf)
        return probe(generator.fit, table.X, latents=Z).gradients[0]

    at_once = gradient(512, 0.2)
    assert_allclose(gradient(7, 0.2), at_once, rtol=1e-9, atol=1e-15)
    # It is small enough a clip for the points of a chunk to tell.
    assert not np.allclose(gradient(7, 0.25), at_once, rtol=1e-2)


def matched_points(generator, X, latents, monkeypatch):
    """Return the points and the records that are compared in each step."""
    matched = []

    def watch(points, records, directions):
        matched.append((points.numpy(), records.numpy()))
        return torch.zeros(()), torch.zeros_like(points), torch.zeros_like(records)

    monkeypatch.setattr(_generator, "sliced_wasserstein2_gradient", watch)
    generator.fit(X, latents=latents)
    return matched


def test_points_that_are_matched_lie_in_the_ball_of_the_sensitivity(tiny, table, monkeypatch):
    # A network whose head does not keep to the domain.
    monkeypatch.setattr(_generator, "mlp_generator", lambda n, d, *_: nn.Linear(n, d.n_features))
    domain = Box(0.0, 1.0, n_features=3)
    ball = enclosing_ball(domain)
    generator = tiny("generator", domain=domain, epsilon=np.inf)
    for points, records in matched_points(generator, table.X, HUGE * table.Y, monkeypatch):
        assert domain.contains(records, tol=1e-12).all()
        assert ball.contains(points, tol=1e-12).all()
    monkeypatch.setattr(Ball, "project", lambda self, X: X)
    for points, _ in matched_points(generator, table.X, HUGE * table.Y, monkeypatch):
        assert not ball.contains(points, tol=1e-12).all()


@pytest.mark.parametrize(
    "domain",
    [
        Box([0.0, 5.0], [1.0, 9.0]),
        Ball(2.0, n_features=3),
        Ball(2.0, p=1, center=[1.0, 0.0]),
        Ball(2.0, p=np.inf, center=[1.0, 0.0]),
        OneHot(4),
        Product([Box(0, 1), OneHot(3), Ball(0.5, n_features=2)]),
    ],
    ids=str,
)
def test_enclosing_ball(domain):
    ball = enclosing_ball(domain)
    corners = domain.project(np.random.default_rng(0).normal(size=(500, domain.n_features)) * 50)
    assert ball.contains(corners, tol=1e-9).all()
    # Between them too, where soft categories are.
    assert ball.contains((corners + corners[::-1]) / 2, tol=1e-9).all()
    farthest = np.linalg.norm(corners - ball.center, axis=1).max()
    assert farthest == pytest.approx(ball.radius, rel=0.05)


def circle(n, seed):
    angles = np.random.default_rng(seed).uniform(0, 2 * np.pi, n)
    return 0.75 * np.column_stack([np.cos(angles), np.sin(angles)])


def distance(X, Y):
    """Sliced W_2^2 between samples."""
    X, Y = torch.from_numpy(X), torch.from_numpy(Y)
    generator = torch.Generator().manual_seed(0)
    return float(sliced_wasserstein(X, Y, generator=generator))


LEARNING = {
    "domain": Ball(1.0, n_features=2),
    "training__hidden_layer_sizes": (32, 32),
    "gradient__jacobian_clip": 3.0,
    "gradient__n_projections": 20,
    "gradient__batch_fraction": 0.2,
    "training__max_iter": 120,
    "training__learning_rate": 0.02,
    "random_state": 0,
}


@pytest.mark.slow
@pytest.mark.parametrize("epsilon", [np.inf, 10.0])
def test_the_generator_moves_to_the_records(epsilon):
    X, fresh = circle(1000, 0), circle(1000, 1)
    generator = DPSlicedWassersteinGenerator(epsilon).set_params(**LEARNING).fit(X)
    untrained = (
        DPSlicedWassersteinGenerator().set_params(**{**LEARNING, "training__max_iter": 1}).fit(X)
    )
    far = distance(untrained.sample(1000, random_state=1), fresh)
    near = distance(generator.sample(1000, random_state=1), fresh)
    assert far > 0.05
    assert near < 0.1 * far
    # Private or not, nearer than a generator of other records is.
    other = make_half_circle(1000, random_state=0)
    other = DPSlicedWassersteinGenerator(epsilon).set_params(**LEARNING).fit(0.75 * other)
    assert distance(other.sample(1000, random_state=1), fresh) > 2 * near


@pytest.mark.slow
def test_private_latents_are_mapped_to_the_records():
    X, Z = circle(800, 0), np.random.default_rng(2).normal(size=(600, 2)) + 3
    # In fewer steps some initial weights are still far off.
    generator = DPSlicedWassersteinGenerator(np.inf).set_params(**LEARNING)
    generator.set_params(training__max_iter=300).fit(X, latents=Z)
    fresh = np.random.default_rng(3).normal(size=(800, 2)) + 3
    assert distance(generator.transform_latents(fresh), circle(800, 1)) < 0.02
    # The latents were used: those of ``sample`` have another law.
    assert distance(generator.sample(800, random_state=0), circle(800, 1)) > 0.2


def test_samples_follow_their_seed(tiny, table):
    generator = table.train(tiny("generator"))
    first = generator.sample(50, random_state=0)
    assert_array_equal(first, generator.sample(50, random_state=0))
    assert not np.array_equal(first, generator.sample(50, random_state=1))
    assert not np.array_equal(generator.sample(50), generator.sample(50))
    # Drawn in parts or at once.
    assert generator.sample(1500, random_state=0).shape == (1500, 3)
    assert generator.domain_.contains(first).all()


def test_parameters_set_after_fit_do_not_matter(tiny, table):
    generator = table.train(tiny("generator"))
    first = generator.sample(5, random_state=0)
    generator.set_params(latent_dim=7, domain=Box(0, 1), schema=None)
    assert_array_equal(generator.sample(5, random_state=0), first)
    assert generator.transform_latents(np.zeros((2, 2))).shape == (2, 3)


# Tables.

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
def test_tables_come_back_as_they_were(people):
    options = {**LEARNING, "domain": None, "schema": SCHEMA, "training__max_iter": 150}
    generator = DPSlicedWassersteinGenerator(np.inf).set_params(**options).fit(people)
    sampled = generator.sample(400, random_state=0)
    assert list(sampled.columns) == list(people.columns)
    assert sampled.dtypes.to_dict() == {name: SCHEMA[name].dtype for name in people}
    assert set(sampled["job"]) <= {"baker", "nurse", "pilot"}
    assert set(sampled["grade"]) == {"low", "high"}
    assert sampled["age"].between(0, 100).all()
    assert sampled["children"].between(0, 9).all()
    assert sampled["day"].between("2020-01-01", "2020-12-31").all()
    assert generator.n_features_in_ == 5
    # Without noise, whose share of the error would depend on the seed.
    assert abs(sampled["age"].mean() - 75) < 3
    shares = sampled["job"].value_counts(normalize=True)
    assert abs(shares["pilot"] - 0.8) < 0.1
    assert shares.get("nurse", 0) < 0.1
    assert_frames_repeat(generator)


def assert_frames_repeat(generator):
    one, same, other = (generator.sample(30, random_state=seed) for seed in (0, 0, 1))
    pd.testing.assert_frame_equal(one, same)
    assert not one.equals(other)
    # Of a block the likeliest category, without a draw.
    latents = np.zeros((4, 2))
    first, second = (generator.transform_latents(latents) for _ in range(2))
    pd.testing.assert_frame_equal(first, second)
    assert len(first["job"].unique()) == 1


def test_frames_come_back_with_their_columns(tiny, table):
    frame = pd.DataFrame(table.X, columns=list("cab"))
    generator = tiny("generator").fit(frame)
    expected = tiny("generator").fit(table.X)
    latents = np.zeros((4, 2))
    for made, array in (
        (generator.sample(4, random_state=0), expected.sample(4, random_state=0)),
        (generator.transform_latents(latents), expected.transform_latents(latents)),
    ):
        pd.testing.assert_frame_equal(made, pd.DataFrame(array, columns=list("cab")))


def test_another_kind_of_records_in_the_next_fit(tiny, table, people):
    generator = tiny("generator", schema=SCHEMA, domain=None).fit(people)
    assert isinstance(generator.sample(2), pd.DataFrame)
    generator.set_params(schema=None, domain=Box(-3, 3, n_features=3)).fit(table.X)
    assert isinstance(generator.sample(2), np.ndarray)
    assert generator.n_features_in_ == 3
