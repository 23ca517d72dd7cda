"""Candidates that are parameters: what is rendered of them is voted for."""

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal

from sklearn_dpgen.domains import Box
from sklearn_dpgen.evolution import (
    PrivateEvolutionSampler,
    RendererVariation,
    TabularVariation,
    VariationInterface,
    nearest_neighbor_votes,
)
from sklearn_dpgen.schema import Categorical, Numeric, Schema

SCHEMA = Schema({"size": Numeric(1, 8), "color": Categorical(["black", "grey"])})
PIXELS = Box(0.0, 1.0, n_features=8)


def bars(frame):
    """Return a bar of 8 pixels, with a soft end."""
    shade = np.where(frame["color"] == "black", 1.0, 0.5)
    return shade[:, None] * np.clip(frame["size"].to_numpy()[:, None] - np.arange(8), 0, 1)


@pytest.mark.parametrize("parameters", [SCHEMA, TabularVariation(SCHEMA, n_columns="all")])
def test_candidates_are_rows_of_the_schema(parameters):
    interface = RendererVariation(bars, parameters)
    assert isinstance(interface, VariationInterface)
    rng = np.random.default_rng(0)
    X = interface.random(50, rng)
    varied = interface.vary(X, rng, 0.3)
    domain = interface.parameters.domain
    assert domain.contains(X).all()
    assert domain.contains(varied).all()
    assert (varied != X).any(axis=1).all()
    frame = interface.parameters.encoder.inverse_transform(X)
    assert frame["size"].between(1, 8).all()
    assert_allclose(interface.decode(X), bars(frame))
    assert_array_equal(X, interface.random(50, np.random.default_rng(0)))


def test_images_are_flattened_and_projected():
    def squares(frame):
        return 3 * bars(frame).reshape(-1, 2, 4)

    interface = RendererVariation(squares, SCHEMA, domain=PIXELS)
    X = interface.random(20, np.random.default_rng(0))
    frame = interface.parameters.encoder.inverse_transform(X)
    assert_allclose(interface.decode(X), np.clip(3 * bars(frame), 0, 1))


def test_smoothing_moves_numbers_and_keeps_categories():
    interface = RendererVariation(bars, SCHEMA, domain=PIXELS)
    X = interface.random(4000, np.random.default_rng(0))
    X[:, 0] = 0.0
    moved = interface.smooth(X, np.random.default_rng(1), 0.1)
    assert interface.parameters.domain.contains(moved).all()
    assert_array_equal(moved[:, 1:], X[:, 1:])
    # The range is 2 wide.
    assert moved[:, 0].std() == pytest.approx(0.2, rel=0.05)
    # Twin: varying draws categories anew.
    varied = interface.vary(X, np.random.default_rng(1), 0.1)
    assert (varied[:, 1:] != X[:, 1:]).any()
    # It is what a sampler draws with.
    options = {"interface": interface, "n_iter": 2, "random_state": 0, "device": "cpu"}
    sampler = PrivateEvolutionSampler(np.inf, **options)
    sampler.fit(interface.decode(X))
    sampler.candidates_, sampler.weights_ = [X[:1]], [np.ones(1)]
    plain = sampler.sample(200, random_state=0)
    smooth = sampler.set_params(smoothing=1.0).sample(200, random_state=0)
    assert len(np.unique(plain, axis=0)) == 1
    assert len(np.unique(smooth, axis=0)) > 100
    assert (smooth.max(axis=1) == plain.max()).all()


def test_evolution_finds_the_parameters():
    rng = np.random.default_rng(0)
    is_long = rng.uniform(size=3000) < 0.7
    sizes = np.where(is_long, 6.5, 2.0) + 0.2 * rng.normal(size=3000)
    colors = np.where(is_long, "grey", "black")
    frame = TabularVariation(SCHEMA).encoder.inverse_transform(np.zeros((3000, 3)))
    X = bars(frame.assign(size=sizes, color=colors))
    interface = RendererVariation(bars, SCHEMA, domain=PIXELS)
    sampler = PrivateEvolutionSampler(5.0, interface=interface, random_state=0, device="cpu")
    sampler.fit(X)
    # Votes are those for what is rendered.
    first = sampler.history_[0][0]
    counts = nearest_neighbor_votes(X, interface.decode(first.candidates))
    noise = sampler.privacy_.noise_scale
    widest = max(noise.values()) if isinstance(noise, dict) else noise
    assert (abs(first.votes - counts) < 6 * widest).all()
    found = interface.parameters.encoder.inverse_transform(sampler.candidates_[0])
    (weights,) = sampler.weights_
    grey = (found["color"] == "grey").to_numpy()
    assert weights[grey].sum() == pytest.approx(0.7, abs=0.08)
    size = found["size"].to_numpy()
    assert np.average(size[grey], weights=weights[grey]) == pytest.approx(6.5, abs=0.3)
    # Some weight stays on candidates that have votes of the noise alone.
    assert np.average(size[~grey], weights=weights[~grey]) == pytest.approx(2.0, abs=0.8)
    made = sampler.sample(10, random_state=0)
    assert made.shape == (10, 8)
    assert PIXELS.contains(made).all()


@pytest.mark.parametrize(
    ("render", "error"),
    [
        (lambda frame: bars(frame)[:-1], "returned 4 candidates where 5 were asked for"),
        (lambda frame: np.full((len(frame), 8), np.nan), "not finite"),
        (lambda frame: bars(frame)[:, :3], "returned 3 features where 8 are expected"),
        (lambda frame: frame["size"], "1 dimensions"),
        (lambda frame: None, "RendererVariation"),
    ],
    ids=["rows", "NaN", "width", "1-D", "None"],
)
def test_renders_that_are_refused(render, error):
    interface = RendererVariation(render, SCHEMA, domain=PIXELS)
    with pytest.raises(ValueError, match=error):
        interface.decode(interface.random(5, np.random.default_rng(0)))


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"render": 3}, "render must be callable"),
        ({"parameters": {"size": 3}}, "parameters must be a Schema"),
        ({"domain": 4}, "domain must be a Domain"),
    ],
    ids=["render", "parameters", "domain"],
)
def test_refusals(options, message):
    with pytest.raises(TypeError, match=message):
        RendererVariation(**{"render": bars, "parameters": SCHEMA} | options)
