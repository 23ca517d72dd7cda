"""What the smoothed generator learns: laws, the classes of records, and what a weight is for."""

import numpy as np
import pandas as pd
import pytest
import torch
from numpy.testing import assert_allclose, assert_array_equal

from sklearn_dpgen.datasets import make_half_circle
from sklearn_dpgen.domains import Ball, Box
from sklearn_dpgen.ot import sliced_wasserstein
from sklearn_dpgen.smoothed import SmoothedSlicedWassersteinGenerator, _releases
from sklearn_dpgen.utils._labels import check_classes, check_labels, check_proportions

LEARNING = {
    "labels": "public",
    "training__hidden_layer_sizes": (32, 32),
    "latent_dim": 2,
    "n_generated": 64,
    "release__n_projections": 32,
    "training__max_iter": 400,
    "training__learning_rate": 0.01,
    "random_state": 0,
}


def learn(X, y=None, epsilon=np.inf, **options):
    generator = SmoothedSlicedWassersteinGenerator(epsilon).set_params(**LEARNING | options)
    return generator.fit(X, y)


def distance(X, Y):
    """Sliced W_2^2 between samples."""
    generator = torch.Generator().manual_seed(0)
    return float(sliced_wasserstein(torch.from_numpy(X), torch.from_numpy(Y), generator=generator))


@pytest.mark.slow
def test_a_half_circle_is_recovered():
    X, fresh = (make_half_circle(1500, random_state=seed) for seed in (0, 1))
    domain = Ball(1.0, n_features=2)
    made = learn(X, domain=domain).sample(1500, random_state=0)
    untrained = learn(X, domain=domain, training__max_iter=1).sample(1500, random_state=0)
    assert distance(made.astype(float), fresh) < 0.004
    assert distance(untrained.astype(float), fresh) > 0.05
    # Of another law it is not near.
    assert distance(made.astype(float), -fresh) > 0.05


@pytest.mark.slow
def test_noisy_records_give_their_mean():
    X = np.random.default_rng(0).normal([0.5, -0.3], 0.15, size=(2000, 2))
    domain = Ball(1.0, n_features=2)
    made = learn(X, epsilon=10.0, domain=domain).sample(2000, random_state=0)
    assert_allclose(made.mean(axis=0), [0.5, -0.3], atol=0.06)


def ellipse(n, seed, *, angle=-0.6):
    """Return points with standard deviations 0.5 and 0.1 about an axis."""
    axis = np.array([np.cos(angle), np.sin(angle)])
    normal = np.random.default_rng(seed).normal(size=(n, 2)) * [0.5, 0.1]
    return normal @ np.array([axis, [-axis[1], axis[0]]])


def axis_of(X):
    """Return the ratio of the two standard deviations, and the direction of the wider one."""
    spread, directions = np.linalg.eigh(np.cov(X.T))
    return np.sqrt(spread[1] / spread[0]), directions[:, 1]


@pytest.mark.slow
def test_the_weight_of_the_shape_gives_covariances():
    X = ellipse(4000, 0)
    true_axis = [np.cos(-0.6), np.sin(-0.6)]
    options = {"epsilon": 10.0, "domain": Ball(2.0, n_features=2), "release__n_epochs": 10.0}
    ratio, axis = axis_of(learn(X, **options).sample(4000, random_state=0))
    assert ratio > 2
    assert abs(axis @ true_axis) > 0.95
    # Without its weight the shape is that of the network before training, moved.
    found = []
    for seed in range(3):
        light = learn(X, release__shape_weight=1e-9, **options | {"random_state": seed})
        found.append(abs(axis_of(light.sample(4000, random_state=0))[1] @ true_axis))
    assert min(found) < 0.8


def blobs(n, seed, *, shares=(0.25, 0.75)):
    """Return records of two classes about two points."""
    rng = np.random.default_rng(seed)
    y = rng.permutation(np.repeat(["low", "up"], [int(n * shares[0]), n - int(n * shares[0])]))
    centers = np.where((y == "up")[:, None], [0.5, 0.4], [-0.5, 0.1])
    return centers + 0.1 * rng.normal(size=(n, 2)), y


MEANS = {"low": [-0.5, 0.1], "up": [0.5, 0.4]}


@pytest.mark.slow
@pytest.mark.parametrize(("labels", "epsilon"), [("public", 10.0), ("private", np.inf)])
def test_classes_have_their_means(labels, epsilon):
    X, y = blobs(2000, 0)
    options = {"labels": labels, "classes": ["low", "up"], "domain": Ball(1.0, n_features=2)}
    generator = learn(X, y, epsilon=epsilon, **options)
    for label, mean in MEANS.items():
        made = generator.sample(1000, y=label, random_state=0)
        assert_allclose(made.mean(axis=0), mean, atol=0.08)


@pytest.mark.slow
def test_private_classes_have_their_means_under_noise():
    X, y = blobs(10_000, 0, shares=(0.4, 0.6))
    options = {
        "labels": "private",
        "classes": ["low", "up"],
        "domain": Ball(1.0, n_features=2),
        "epsilon": 10.0,
    }
    generator = learn(X, y, release__n_epochs=10.0, **options)
    assert_allclose(generator.label_proportions_, [0.4, 0.6], atol=0.01)
    for label, mean in MEANS.items():
        made = generator.sample(1000, y=label, random_state=0)
        assert_allclose(made.mean(axis=0), mean, atol=0.12)


@pytest.mark.slow
def test_without_its_share_a_private_class_is_too_near_the_center(monkeypatch):
    X, y = blobs(2000, 0)
    options = {
        "labels": "private",
        "classes": ["low", "up"],
        "domain": Ball(1.0, n_features=2),
        "epsilon": np.inf,
    }
    lines = _releases.SmoothedLines
    monkeypatch.setattr(
        _releases, "SmoothedLines", lambda *args, **given: lines(*args, **given | {"shares": None})
    )
    made = learn(X, y, **options).sample(1000, y="low", random_state=0)
    assert abs(made.mean(axis=0) - MEANS["low"]).max() > 0.15


# Labels of a sample.


@pytest.fixture
def generator(tiny_generator):
    """Return a fit whose classes are told apart by the sign of a column."""
    X, y = blobs(400, 0)
    return tiny_generator(
        epsilon=np.inf,
        domain=Box(-1, 1, n_features=2),
        training__max_iter=200,
        training__learning_rate=0.05,
    ).fit(X, y)


def test_labels_of_a_sample(generator):
    low = generator.sample(50, y="low", random_state=0)
    assert_array_equal(generator.sample(50, y=["low"] * 50, random_state=0), low)
    mixed = generator.sample(50, y=np.array(["low", "up"] * 25), random_state=0)
    assert_array_equal(mixed[::2], low[::2])
    assert not np.array_equal(mixed[1::2], low[1::2])
    assert (low[:, 0] < 0).mean() > 0.9
    assert (mixed[1::2, 0] > 0).mean() > 0.9
    # None draws them by their proportions.
    drawn = generator.sample(2000, random_state=0)
    assert abs((drawn[:, 0] < 0).mean() - 0.25) < 0.1


def test_labels_are_drawn_by_their_proportions(generator):
    labels = generator.sample_labels(4000, random_state=0)
    assert labels.shape == (4000,)
    assert set(labels) == {"low", "up"}
    assert abs((labels == "low").mean() - 0.25) < 5 * np.sqrt(0.25 * 0.75 / 4000)
    assert_array_equal(labels, generator.sample_labels(4000, random_state=0))
    assert not np.array_equal(labels, generator.sample_labels(4000, random_state=1))
    assert generator.sample_labels().shape == (1,)


def test_declared_classes_and_proportions(tiny_generator):
    X, y = blobs(60, 0)
    generator = tiny_generator(classes=["up", "low"], label_proportions=[1.0, 0.0]).fit(X, y)
    # Sorted, and the proportions are in that order.
    assert_array_equal(generator.classes_, ["low", "up"])
    assert_array_equal(generator.label_proportions_, [1, 0])
    assert set(generator.sample_labels(50)) == {"low"}


def test_classes_are_checked():
    for given in (["b", "a"], ("b", "a"), np.array(["b", "a"]), pd.Series(["b", "a"])):
        assert check_classes(given).tolist() == ["a", "b"]
    assert check_classes([3, 1]).tolist() == [1, 3]
    assert check_classes([3, 1]).dtype.kind == "i"
    assert check_classes([True, False]).dtype.kind == "b"


@pytest.mark.parametrize(
    ("y", "classes", "codes"),
    [
        (["b", "a", "b"], ["a", "b"], [1, 0, 1]),
        ([2.0, 5.0], [2, 5], [0, 1]),
        ([True, False], [False, True], [1, 0]),
        (["long", "a"], ["a", "long"], [1, 0]),
        ([], ["a", "b"], []),
    ],
    ids=str,
)
def test_codes_of_labels(y, classes, codes):
    assert_array_equal(check_labels(np.array(y, dtype=object), np.array(classes), len(y)), codes)


@pytest.mark.parametrize(
    "y",
    [["a", "c"], ["a", ""], ["a", None], ["a", np.nan], ["a", 1], ["abc", "a"], [0, 1], ["A", "b"]],
    ids=str,
)
def test_unseen_labels_are_refused(y):
    for given in (y, np.array(y, dtype=object)):
        with pytest.raises(ValueError, match="not among the classes"):
            check_labels(given, np.array(["a", "b"]), 2)


def test_proportions_are_normalized():
    assert check_proportions([0.2, 0.8 + 1e-9], 2).sum() == 1
    with pytest.raises(ValueError, match="sum to 1"):
        check_proportions([0.2, 0.81], 2)
