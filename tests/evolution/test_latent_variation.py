"""Latents as candidates: their distribution, decoded points, and fitted samplers."""

import math

import numpy as np
import pandas as pd
import pytest
import torch
from numpy.testing import assert_allclose, assert_array_equal
from torch import nn

from sklearn_dpgen.deconvolution import EntropicDeconvGAN
from sklearn_dpgen.domains import Box, OneHot, Product
from sklearn_dpgen.evolution._latent_variation import LatentVariation
from sklearn_dpgen.evolution._variation_interface import VariationInterface
from sklearn_dpgen.mechanisms import LaplaceMechanism
from sklearn_dpgen.nn import Training
from sklearn_dpgen.schema import Categorical, Numeric, Schema
from sklearn_dpgen.sliced import DPSlicedWassersteinGenerator
from sklearn_dpgen.smoothed import SmoothedSlicedWassersteinGenerator

N = 4000
SCHEMA = Schema({"age": Numeric(0, 100, nullable=True), "job": Categorical(["baker", "nurse"])})


def network(n_inputs=3, n_outputs=4):
    with torch.random.fork_rng(devices=[]):
        torch.default_generator.manual_seed(0)
        return nn.Sequential(nn.Linear(n_inputs, 8), nn.Tanh(), nn.Linear(8, n_outputs))


class Deaf(LatentVariation):
    """Varies by one degree whatever is asked."""

    def vary(self, X, rng, degree):
        return super().vary(X, rng, 0.05)


class Drifting(LatentVariation):
    """Adds noise without shrinking: the latents leave the law that the network knows."""

    def vary(self, X, rng, degree):
        return X + degree * rng.normal(size=X.shape)


@pytest.mark.parametrize("degree", [0.2, 0.7, 1.0])
def test_variations_keep_the_law_and_forget_by_degree(degree):
    rng = np.random.default_rng(0)
    kept = math.sqrt(1 - degree**2)

    def has_the_law(interface):
        Z = interface.random(N, rng)
        varied = interface.vary(Z, rng, degree)
        count = Z.size
        fresh = (varied - kept * Z) / degree
        return (
            abs(varied.mean()) < 5 / math.sqrt(count)
            and abs(varied.var() - 1) < 5 * math.sqrt(2 / count)
            and abs(fresh.var() - 1) < 5 * math.sqrt(2 / count)
            and abs((Z * fresh).mean()) < 5 / math.sqrt(count)
        )

    assert has_the_law(LatentVariation(network(), 3, device="cpu"))
    for broken in (Deaf, Drifting):
        assert not has_the_law(broken(network(), 3, device="cpu"))


def test_larger_degrees_move_decoded_points_farther():
    def moves(interface):
        Z = interface.random(N, np.random.default_rng(0))
        X = interface.decode(Z)
        sizes = []
        for degree in (1e-6, 0.02, 0.1, 0.4, 1.0):
            varied = interface.decode(interface.vary(Z, np.random.default_rng(1), degree))
            sizes.append(np.linalg.norm(varied - X, axis=1).mean())
        return sizes[0] < 1e-4 and (np.diff(sizes) > 0).all()

    assert moves(LatentVariation(network(), 3, device="cpu"))
    assert not moves(Deaf(network(), 3, device="cpu"))


def test_decoding_is_the_network_in_evaluation_mode():
    module = nn.Sequential(
        network(), nn.BatchNorm1d(4), nn.Dropout(0.5), nn.Unflatten(1, (1, 2, 2))
    )
    module[1].running_mean.fill_(0.3)
    module.train()
    interface = LatentVariation(module, 3, device="cpu")
    assert isinstance(interface, VariationInterface)
    Z = interface.random(2500, np.random.default_rng(0))
    X = interface.decode(Z)
    assert (X.shape, X.dtype) == ((2500, 4), np.float64)
    inner = module[0](torch.tensor(Z, dtype=torch.float32)).detach().numpy()
    assert_allclose(X, (inner - 0.3) / math.sqrt(1 + 1e-5), rtol=1e-4, atol=1e-6)
    # One by one, again, and after the original has changed: the same.
    assert_allclose(np.vstack([interface.decode(Z[i : i + 1]) for i in range(5)]), X[:5], atol=1e-6)
    assert module.training
    with torch.no_grad():
        module[0][0].weight.zero_()
    assert_array_equal(interface.decode(Z), X)
    assert_array_equal(Z, interface.random(2500, np.random.default_rng(0)))


class Echo(nn.Module):
    """Returns its inputs."""

    def forward(self, Z):
        return Z


def test_classes_follow_their_shares_and_change_by_degree():
    weights = np.array([2.0, 0.0, 5.0, 3.0])
    interface = LatentVariation(Echo(), 2, class_weights=weights, device="cpu")
    assert interface.width == 3
    Z = interface.random(N, np.random.default_rng(0))
    X = interface.decode(Z)
    assert_allclose(X[:, :2], Z[:, :2], rtol=1e-6)
    shares = weights / 10
    for points in (X, interface.decode(interface.vary(Z, np.random.default_rng(1), 0.3))):
        error = np.sqrt(shares * (1 - shares) / N)
        assert (abs(points[:, 2:].mean(axis=0) - shares) <= 5 * error).all()
    assert_array_equal(X[:, 2:].argmax(axis=1), interface.classes(Z))
    changes = [
        (interface.classes(interface.vary(Z, np.random.default_rng(1), g)) != X[:, 2:].argmax(1))
        for g in (0.01, 0.2, 1.0)
    ]
    low, mid, high = (change.mean() for change in changes)
    assert 0 < low < mid < high
    # At degree 1 the class is drawn anew.
    again = 1 - (shares**2).sum()
    assert abs(high - again) < 5 * math.sqrt(again * (1 - again) / N)
    fixed = LatentVariation(Echo(), 2, class_weights=[0, 0, 1], device="cpu")
    assert fixed.width == 2
    assert_array_equal(fixed.decode(np.zeros((3, 2)))[:, 2:], [[0, 0, 1]] * 3)
    with pytest.raises(ValueError, match="no classes"):
        LatentVariation(Echo(), 2, device="cpu").classes(Z)


def test_uniform_latents():
    interface = LatentVariation(Echo(), 2, latent_law="uniform", device="cpu")
    Z = interface.random(N, np.random.default_rng(0))
    for latents in (Z, interface.vary(Z, np.random.default_rng(1), 0.3)):
        X = interface.decode(latents)
        assert abs(X).max() <= 1
        # The variances of u and u² are 1/3 and 4/45.
        assert abs(X.mean()) < 5 * math.sqrt(1 / 3 / X.size)
        assert abs((X**2).mean() - 1 / 3) < 5 * math.sqrt(4 / 45 / X.size)
    assert abs(LatentVariation(Echo(), 2, device="cpu").decode(Z)).max() > 1


def records(n=60):
    rng = np.random.default_rng(0)
    return rng.uniform(0.2, 0.8, size=(n, 2)), rng.integers(2, size=n)


@pytest.fixture(scope="module")
def samplers():
    X, y = records()
    training = Training(max_iter=3, device="cpu")
    common = {"training": training, "random_state": 0}
    domain = Box(0, 1, n_features=2)
    frame = pd.DataFrame({"age": 100 * X[:, 0], "job": np.where(y, "nurse", "baker")})
    smoothed = {"epsilon": 10.0, "n_generators": 2, **common}
    return {
        "smoothed": SmoothedSlicedWassersteinGenerator(domain=domain, **smoothed).fit(X),
        "labels": SmoothedSlicedWassersteinGenerator(
            domain=domain,
            labels="public",
            label_proportions=[0.2, 0.8],
            **smoothed | {"training": Training(max_iter=60, device="cpu")},
        ).fit(X, np.array(["no", "yes"])[y]),
        "table": SmoothedSlicedWassersteinGenerator(schema=SCHEMA, **smoothed).fit(frame),
        "sliced": DPSlicedWassersteinGenerator(
            epsilon=10.0,
            delta=1e-3,
            domain=domain,
            training=training,
            random_state=0,
        ).fit(X),
        "deconvolution": EntropicDeconvGAN(
            LaplaceMechanism(epsilon=20.0, domain=domain), privatize=True, **common
        ).fit(X),
    }


def moments_agree(points, samples):
    """Whether means and mean squares of two samples agree, within 5 standard errors."""
    for A, B in ((points, samples), (points**2, samples**2)):
        error = np.sqrt(A.var(axis=0) / len(A) + B.var(axis=0) / len(B))
        if (abs(A.mean(axis=0) - B.mean(axis=0)) > 5 * error + 1e-9).any():
            return False
    return True


@pytest.mark.parametrize("name", ["smoothed", "labels", "table", "sliced", "deconvolution"])
def test_a_fitted_sampler_and_its_latents_have_one_law(samplers, name):
    sampler = samplers[name]
    interface = LatentVariation.from_sampler(sampler, device="cpu")
    Z = interface.random(N, np.random.default_rng(0))
    points = interface.decode(Z)
    domain = sampler.mechanism_.domain_ if name == "deconvolution" else sampler.domain_
    assert domain.contains(points).all()
    assert_array_equal(points, interface.decode(Z))
    samples = sampler.sample(N, random_state=1)
    if name == "table":
        samples = sampler.encoder_.transform(samples)
        # A null has the value 0 only as a record.
        points = sampler.encoder_.transform(sampler.encoder_.inverse_transform(points))
    assert moments_agree(points, samples)
    if name in ("smoothed", "deconvolution"):
        other = "uniform" if name == "smoothed" else "normal"
        wrong = LatentVariation(
            sampler.generator_, interface.latent_dim, latent_law=other, device="cpu"
        )
        assert not moments_agree(wrong.decode(Z), samples)


class Soft(nn.Module):
    """A number, and a soft block that does not depend on latents."""

    def forward(self, Z):
        return torch.cat([3 * Z[:, :1], torch.tensor([[0.1, 0.3, 0.6]]).expand(len(Z), 3)], 1)


def test_soft_categories_are_drawn():
    domain = Product([Box(-1, 1), OneHot(3)])
    interface = LatentVariation(Soft(), 2, domain=domain, device="cpu")
    assert interface.width == 3
    Z = interface.random(N, np.random.default_rng(0))
    shares = np.array([0.1, 0.3, 0.6])
    for latents in (Z, interface.vary(Z, np.random.default_rng(1), 0.3)):
        X = interface.decode(latents)
        assert domain.contains(X, tol=0).all()
        error = np.sqrt(shares * (1 - shares) / N)
        assert (abs(X[:, 1:].mean(axis=0) - shares) < 5 * error).all()
    # The likeliest category alone is no such draw.
    likeliest = domain.project(LatentVariation(Soft(), 2, device="cpu").decode(Z[:, :2]))
    assert (abs(likeliest[:, 1:].mean(axis=0) - shares) > 5 * error).any()
    with pytest.raises(ValueError, match="4 features where the domain has 1"):
        LatentVariation(Soft(), 2, domain=Box(0, 1), device="cpu").decode(Z[:, :2])


def test_a_class_of_a_fitted_sampler(samplers):
    sampler = samplers["labels"]
    interface = LatentVariation.from_sampler(sampler, y="yes", device="cpu")
    Z = interface.random(N, np.random.default_rng(0))
    assert_array_equal(interface.classes(Z), 1)
    points = interface.decode(Z)
    assert moments_agree(points, sampler.sample(N, y="yes", random_state=1))
    assert not moments_agree(points, sampler.sample(N, y="no", random_state=1))
    both = LatentVariation.from_sampler(sampler, device="cpu")
    share = both.classes(both.random(N, np.random.default_rng(0))).mean()
    assert abs(share - 0.8) < 5 * math.sqrt(0.16 / N)
    with pytest.raises(ValueError, match="y is not a label"):
        LatentVariation.from_sampler(sampler, y="perhaps")
    with pytest.raises(ValueError, match="fitted with labels"):
        LatentVariation.from_sampler(samplers["smoothed"], y="yes")


class Nan(nn.Module):
    def forward(self, Z):
        return Z * float("nan")


class Half(nn.Module):
    def forward(self, Z):
        return Z[::2]


@pytest.mark.parametrize(
    ("module", "words"),
    [(Nan(), "Nan must return finite"), (Half(), "Half must return 4 candidates, got 2")],
)
def test_what_a_network_may_not_return(module, words):
    with pytest.raises(ValueError, match=words):
        LatentVariation(module, 2, device="cpu").decode(np.zeros((4, 2)))


@pytest.mark.parametrize(
    ("arguments", "options", "error", "words"),
    [
        ((abs, 2), {}, TypeError, "generator must be a torch module"),
        ((Echo(), 0), {}, ValueError, "latent_dim"),
        ((Echo(), True), {}, ValueError, "latent_dim"),
        ((Echo(), 2), {"latent_law": "cauchy"}, ValueError, "latent_law"),
        ((Echo(), 2), {"domain": (0, 1)}, TypeError, "domain"),
        ((Echo(), 2), {"class_weights": [0, 0]}, ValueError, "above 0"),
        ((Echo(), 2), {"class_weights": [1, -1]}, ValueError, "class_weights"),
        ((Echo(), 2), {"class_weights": [[1]]}, ValueError, "class_weights"),
    ],
)
def test_parameters_that_are_refused(arguments, options, error, words):
    with pytest.raises(error, match=words):
        LatentVariation(*arguments, **options)


def test_input_that_is_refused():
    interface = LatentVariation(Echo(), 2, device="cpu")
    for degree in (0.0, 1.5):
        with pytest.raises(ValueError, match="degree"):
            interface.vary(np.zeros((2, 2)), np.random.default_rng(0), degree)
    with pytest.raises(ValueError, match="candidates of 2 features, got 3"):
        interface.decode(np.zeros((2, 3)))
    with pytest.raises(TypeError, match="must hold a fitted network"):
        LatentVariation.from_sampler(Uniform(Box(0, 1)))


class Uniform:
    """A sampler of a domain."""

    def __init__(self, domain):
        self.domain_ = domain

    def sample(self, n_samples=1, *, random_state=None):
        return self.domain_.sample(n_samples, np.random.default_rng(random_state))
