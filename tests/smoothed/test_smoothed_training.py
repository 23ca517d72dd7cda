"""The training of generator and adapter: what a step sees, and that every option reaches it."""

import numpy as np
import pytest
import torch
from numpy.testing import assert_allclose

from sklearn_dpgen.domains import Box, OneHot, Product
from sklearn_dpgen.ot._lines import SmoothedLines
from sklearn_dpgen.smoothed import (
    SmoothedSlicedWassersteinAdapter,
    _releases,
    _training,
)
from sklearn_dpgen.smoothed._features import AdaptedNetwork, feature_records
from sklearn_dpgen.smoothed._releases import ReleasedLaws


@pytest.fixture
def trained(monkeypatch):
    """Return a list that collects the options of each training."""
    seen, fit_module = [], _training.fit_module

    def watch(network, loss, **options):
        seen.append(options)
        return fit_module(network, loss, **options)

    monkeypatch.setattr(_training, "fit_module", watch)
    return seen


def adapted(**options):
    """Return an adapter of a few steps, fitted."""
    small = {
        "training__hidden_layer_sizes": (4,),
        "feature_dim": 3,
        "release__kind": "records",
        "release__batch_size": 5,
        "release__n_epochs": 1.0,
    }
    small |= {
        "source_iter": 4,
        "training__max_iter": 5,
        "release__n_projections": 12,
        "source_batch_size": 8,
    }
    rng = np.random.default_rng(0)
    X, y = rng.normal(size=(60, 3)), np.arange(60) % 2
    adapter = SmoothedSlicedWassersteinAdapter(random_state=0).set_params(**small | options)
    return adapter.fit(X, y, sample_domain=np.repeat([1, -2], 30))


# Options.


def test_options_of_the_generator_reach_its_training(tiny_generator, labelled, trained):
    tiny_generator(training__max_iter=4, training__learning_rate=0.03, training__averaging=0.7).fit(
        labelled.X
    )
    (options,) = trained
    assert (options["max_iter"], options["learning_rate"], options["averaging"]) == (4, 0.03, 0.7)


def test_options_of_the_adapter_reach_its_trainings(trained):
    adapted(
        training__averaging=0.7,
        training__solver="sgd",
        training__learning_rate=0.03,
        source_learning_rate=0.04,
    )
    assert [options["max_iter"] for options in trained] == [4, 5]
    assert [options["learning_rate"] for options in trained] == [0.04, 0.03]
    assert all((o["averaging"], o["optimizer"]) == (0.7, "sgd") for o in trained)


def test_the_weight_of_adaptation(monkeypatch):
    def constant(self, points, generator):
        return points.sum() * 0 + 2.0

    monkeypatch.setattr(ReleasedLaws, "distance", constant)
    light, heavy = (adapted(adaptation_weight=w).loss_curve_[0] for w in (1.0, 4.0))
    # The distance is 2, and there are 3 features.
    assert heavy - light == pytest.approx((4.0 - 1.0) * 3 * 2.0)


# What a step sees.


def test_latents_of_a_step_are_new_and_in_pairs(tiny_generator, labelled):
    seen = []

    class Watched(torch.nn.Linear):
        def forward(self, Z):
            if self.training:
                seen.append(Z[:, :2].clone())
            return super().forward(Z)

    generator = tiny_generator(
        generator=lambda n_inputs, domain: Watched(n_inputs, domain.n_features), n_generated=6
    )
    generator.fit(labelled.X, labelled.y)
    steps = torch.stack(seen[: generator.n_iter_]).reshape(generator.n_iter_, 2, 6, 2)
    assert_allclose(steps[:, :, :3], -steps[:, :, 3:])
    halves = steps[:, :, :3].flatten()
    assert len(halves.unique()) == len(halves)


def test_rows_of_a_step_are_drawn_anew(monkeypatch):
    seen = []
    move = AdaptedNetwork.move

    def watch(self, Z):
        seen.append(Z.detach().clone())
        return move(self, Z)

    monkeypatch.setattr(AdaptedNetwork, "move", watch)
    adapted(source_batch_size=9)
    assert len(seen) == 5
    assert all(Z.shape == (9, 3) for Z in seen)
    firsts = torch.stack([Z.sum(dim=0) for Z in seen])
    assert len(firsts.unique(dim=0)) == 5


def test_networks_of_a_mixture_are_not_one(tiny_generator, labelled):
    generator = tiny_generator(n_generators=3).fit(labelled.X)
    weights = [next(member.parameters()).detach() for member in generator.generator_.members]
    for one, other in ((0, 1), (0, 2), (1, 2)):
        assert not torch.isclose(weights[one], weights[other]).any()


def test_steps_come_to_all_lines(tiny_generator, labelled, monkeypatch):
    monkeypatch.setattr(_releases, "STEP_DIRECTIONS", 10)
    seen = []
    gradient = SmoothedLines.gradient

    def watch(self, projected, chosen):
        seen.append((chosen.start, chosen.stop))
        assert projected.shape[-1] == chosen.stop - chosen.start
        return gradient(self, projected, chosen)

    monkeypatch.setattr(SmoothedLines, "gradient", watch)
    tiny_generator(release__n_projections=35, training__max_iter=40).fit(labelled.X)
    assert set(seen) == {(0, 11), (11, 23), (23, 35)}


# The weight of the shape.


@pytest.fixture
def weights(monkeypatch):
    """Return a list that collects the weights of the shape that laws are made with."""
    seen = []

    def watch(*args, **options):
        seen.append(options["shape_weight"])
        return SmoothedLines(*args, **options)

    monkeypatch.setattr(_releases, "SmoothedLines", watch)
    return seen


def test_the_automatic_weight_gives_back_what_smoothing_takes(tiny_generator, weights):
    """1 + (σ/s)² with s half the radius a dimension, where there are releases enough."""
    domain = Box(-1, 1, n_features=3)
    radius = np.sqrt(3)
    spread = radius / (2 * np.sqrt(3))
    tiny_generator(domain=domain, epsilon=np.inf).fit(np.zeros((4000, 3)))
    # Without noise the width of a cell is what smooths.
    assert weights.pop() == pytest.approx(1 + (radius / 11 / spread) ** 2, rel=1e-3)
    # Less where the noise of 80 values hides the covariance of a class, a tenth of R² at most.
    generator = tiny_generator(domain=domain).fit(np.zeros((40, 3)))
    sigma = generator.privacy_.noise_scale
    hidden = 2 * sigma**2 * np.sqrt(3 / 80) / (0.1 * radius**2)
    expected = 1 + (sigma / spread) ** 2 / (1 + hidden**2)
    assert weights.pop() == pytest.approx(expected, rel=1e-3)
    assert expected < 0.1 * (sigma / spread) ** 2


def test_one_hot_blocks_have_no_shape_of_their_own(tiny_generator, weights):
    X = np.eye(3)[np.arange(40) % 3]
    for domain in (OneHot(3), Product([Box(0, 1), OneHot(2)])):
        tiny_generator(domain=domain).fit(X)
        assert weights.pop() == 1.0
    tiny_generator(domain=OneHot(3), release__shape_weight=7.0).fit(X)
    assert weights.pop() == 7.0
    tiny_generator(domain=Box(0, 1, n_features=3)).fit(X)
    assert weights.pop() > 1.01


# The clip of what is released.


class Unclipped(AdaptedNetwork):
    """A network that does not keep its features in the ball."""

    def features(self, X):
        return 100 * self.body(X)


def test_features_are_clipped_where_they_are_released(monkeypatch):
    """Whatever the network does: the price is for the ball."""
    torch.manual_seed(0)
    X = torch.randn(50, 4, dtype=torch.float64)

    def longest():
        module = Unclipped(4, (5,), 3, 2, "relu").double()
        return np.linalg.norm(feature_records(module, X).records, axis=1).max()

    assert 0.5 - 1e-9 < longest() <= 0.5 + 1e-15
    monkeypatch.setattr("sklearn_dpgen.smoothed._features.clip_rows", lambda Z: Z)
    assert longest() > 1
