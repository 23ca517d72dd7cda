"""EntropicDeconvGAN on tables of mixed columns, and on images through a public transform."""

import numpy as np
import pandas as pd
import pytest
import torch

from sklearn_dpgen.domains import Ball, Box, OneHot, Product
from sklearn_dpgen.mechanisms import (
    GaussianMechanism,
    LaplaceMechanism,
    RandomizedResponse,
    TabularMechanism,
)
from sklearn_dpgen.nn import mlp_generator
from sklearn_dpgen.preprocessing import DCTTransformer
from sklearn_dpgen.preprocessing._records import draw_categories
from sklearn_dpgen.schema import Categorical, Datetime, Numeric, Ordinal, Schema

SCHEMA = Schema(
    {
        "age": Numeric(0, 100, integer=True),
        "income": Numeric(0, 10, nullable=True),
        "visits": Numeric(0, 8, integer=True),
        "seen": Datetime("2020-01-01", "2021-01-01"),
        "region": Categorical(["north", "south", "west"], nullable=True),
        "grade": Ordinal([1, 2, 3]),
    }
)


def table(n, seed=0):
    rng = np.random.default_rng(seed)
    frame = pd.DataFrame(
        {
            "age": rng.integers(20, 60, n).astype(np.int16),
            "income": pd.array(rng.uniform(2, 4, n), dtype="Float64"),
            "visits": rng.integers(0, 9, n),
            "seen": pd.Timestamp("2020-03-01") + pd.to_timedelta(rng.integers(0, 99, n), unit="D"),
            "region": pd.Categorical(rng.choice(["north", "south", "west"], n)),
            "grade": rng.integers(1, 4, n),
        },
        index=rng.permutation(n),
    )
    frame.loc[frame.index[::4], "income"] = pd.NA
    frame.loc[frame.index[::5], "region"] = None
    return frame


@pytest.fixture(params=["laplace", "gaussian"])
def mechanism(request):
    return TabularMechanism(
        60.0, schema=SCHEMA, n_bins={"visits": 3}, noise=request.param, random_state=0
    )


@pytest.mark.parametrize("loss", ["entropic", "likelihood"])
def test_a_table_comes_back_as_a_table(tiny, mechanism, loss):
    raw = table(80)
    gan = tiny(mechanism, privatize=True, loss=loss).fit(raw)
    samples = gan.sample(200, random_state=0)
    assert list(samples.columns) == list(raw.columns)
    assert samples.dtypes.to_dict() == {name: SCHEMA[name].dtype for name in raw}
    assert samples["region"].dropna().isin(["north", "south", "west"]).all()
    assert samples["age"].between(0, 100).all()
    assert samples["visits"].isin(range(9)).all()
    assert samples["grade"].isin([1, 2, 3]).all()
    assert samples["seen"].between("2020-01-01", "2021-01-01").all()
    assert samples["income"].dropna().between(0, 10).all()
    assert np.isfinite(gan.score(raw))


def test_released_tables_are_fitted_and_scored_as_they_are(tiny, mechanism):
    released = mechanism.fit_transform(table(80))
    inside = tiny(mechanism, privatize=True).fit(table(80))
    before = tiny(mechanism).fit(released)
    assert inside.loss_curve_ == before.loss_curve_
    assert before.score(released) == inside.score(table(80))
    whole = before.score_samples(released)
    part = before.score_samples(released.iloc[[5, 3, 40]])
    np.testing.assert_allclose(part, whole[[5, 3, 40]], rtol=1e-5)
    assert before.n_features_in_ == len(SCHEMA)
    assert list(before.feature_names_in_) == list(SCHEMA)


def test_columns_may_come_in_another_order(tiny, mechanism):
    released = mechanism.fit_transform(table(80))
    shuffled = released[released.columns[::-1]]
    gan, other = tiny(mechanism).fit(released), tiny(mechanism).fit(shuffled)
    assert gan.loss_curve_ == other.loss_curve_
    assert list(other.sample(2).columns) == list(shuffled.columns)


@pytest.mark.slow
def test_learns_nulls_bins_and_categories(tiny):
    schema = Schema(
        {
            "income": Numeric(0, 10, nullable=True),
            "visits": Numeric(0, 8),
            "region": Categorical(["north", "south", "west"]),
        }
    )
    rng = np.random.default_rng(0)
    raw = pd.DataFrame(
        {
            "income": np.where(rng.uniform(size=3000) < 0.3, np.nan, rng.uniform(7, 8, 3000)),
            "visits": rng.uniform(0, 2, 3000),
            "region": rng.choice(["north", "south", "west"], 3000, p=[0.1, 0.2, 0.7]),
        }
    )
    mechanism = TabularMechanism(6.0, schema=schema, n_bins={"visits": 4}, random_state=0)
    gan = tiny(
        mechanism,
        privatize=True,
        training__hidden_layer_sizes=(32, 32),
        latent_dim=4,
        batch_size=500,
        n_generated=200,
        training__max_iter=300,
        training__learning_rate=1e-2,
        loss="likelihood",
    ).fit(raw)

    def distances(table):
        return [
            abs(table["income"].isna().mean() - 0.3),
            abs(table["income"].between(5, 10).mean() - 0.7),
            1 - table["visits"].between(0, 2).mean(),
            abs(table["region"].eq("west").mean() - 0.7),
        ]

    learned = distances(gan.sample(2000, random_state=0))
    # The generator did not learn what it was shown.
    shown = distances(mechanism.fit(raw).transform(raw))
    assert max(learned) < 0.1
    assert max(shown) > 0.2
    assert sum(learned) < sum(shown) / 2


def test_categories_alone(tiny):
    mechanism = RandomizedResponse(1.0, domain=OneHot(4), random_state=0)
    raw = np.eye(4)[np.random.default_rng(0).choice(4, 3000, p=[0.7, 0.1, 0.1, 0.1])]
    gan = tiny(mechanism, batch_size=1000, training__max_iter=200, training__learning_rate=2e-2)
    samples = gan.fit(mechanism.fit_transform(raw)).sample(3000, random_state=0)
    assert set(np.unique(samples)) <= {0.0, 1.0}
    np.testing.assert_allclose(samples.sum(axis=1), 1)
    assert samples.mean(axis=0)[0] == pytest.approx(0.7, abs=0.1)
    assert mechanism.transform(raw).mean(axis=0)[0] < 0.5


@pytest.mark.parametrize("privatize", [False, True])
def test_a_frame_of_numbers_comes_back_as_a_frame(tiny, privatize):
    frame = pd.DataFrame(np.zeros((20, 2)), columns=["x", "y"])
    samples = tiny(privatize=privatize).fit(frame).sample(3)
    assert list(samples.columns) == ["x", "y"]


# Soft categories to hard ones.


def test_categories_are_drawn_with_their_weights():
    rng = np.random.default_rng(0)
    weights = np.array([0.5, 0.0, 0.3, 0.2])
    n = 20_000
    X = np.hstack([np.full((n, 1), 0.25), np.tile(weights, (n, 1)), np.full((n, 2), -7.0)])
    domain = Product([Box(0, 1), OneHot(4), Product([Box(-8, 0, n_features=2)])])
    drawn = draw_categories(domain, X, rng)
    np.testing.assert_array_equal(drawn[:, [0, 5, 6]], X[:, [0, 5, 6]])
    block = drawn[:, 1:5]
    assert set(np.unique(block)) == {0.0, 1.0}
    np.testing.assert_array_equal(block.sum(axis=1), 1)
    deviation = 5 * np.sqrt(weights * (1 - weights) / n)
    assert (abs(block.mean(axis=0) - weights) <= deviation).all()
    # The mode of each block, which a decoder takes by itself, is not a draw.
    mode = np.eye(4)[X[:, 1:5].argmax(axis=1)]
    assert not (abs(mode.mean(axis=0) - weights) <= deviation).all()


def test_blocks_are_drawn_independently():
    X = np.full((20_000, 4), 0.5)
    drawn = draw_categories(Product([OneHot(2), OneHot(2)]), X, np.random.default_rng(0))
    assert abs((drawn[:, 0] == drawn[:, 2]).mean() - 0.5) < 5 * 0.5 / np.sqrt(len(X))


def test_vertices_stay():
    X = np.eye(5)[np.random.default_rng(0).integers(5, size=300)]
    np.testing.assert_array_equal(draw_categories(OneHot(5), X, np.random.default_rng(1)), X)


# Images.


@pytest.fixture
def dct():
    mask = np.add.outer(np.arange(4), np.arange(4)) < 3
    return DCTTransformer((4, 4), mask=mask).fit(np.zeros((1, 16)))


def images(n=60):
    rng = np.random.default_rng(0)
    return np.clip(rng.normal(0, 0.3, (n, 16)) + rng.choice([-0.5, 0.5], (n, 1)), -1, 1)


@pytest.mark.parametrize("p", [1, 2])
def test_the_transform_is_public_and_the_samples_are_images(tiny, dct, p):
    n_kept = int(dct.mask_.sum())
    ball = Ball(2.0, p=p, n_features=n_kept)
    mechanism = {1: LaplaceMechanism, 2: GaussianMechanism}[p](20.0, domain=ball, random_state=0)
    pixels = Box(-1, 1, n_features=16)
    gan = tiny(mechanism, output_domain=pixels, output_transform=dct, generator="dcgan")
    gan.fit(mechanism.fit_transform(dct.transform(images())))
    samples = gan.sample(7, random_state=0)
    assert samples.shape == (7, 16)
    assert pixels.contains(samples).all()
    assert np.isfinite(gan.score(mechanism.transform(dct.transform(images()))))


def test_what_is_compared_with_the_release_is_projected_on_the_domain(tiny, dct):
    # The raw records were projected before noise, so the generated ones are too.
    ball = Ball(0.5, n_features=int(dct.mask_.sum()))
    mechanism = GaussianMechanism(20.0, domain=ball, random_state=0)
    Y = mechanism.fit_transform(dct.transform(images()))
    seen = []

    class Watched(GaussianMechanism):
        def _log_likelihood(self, X, Y):
            seen.append(X.detach())
            return super()._log_likelihood(X, Y)

    gan = tiny(
        Watched(20.0, domain=ball),
        output_domain=Box(-1, 1, n_features=16),
        output_transform=dct,
        training__learning_rate=0.1,
    ).fit(np.asarray(Y))
    gan.score(np.asarray(Y))
    assert all(ball.contains(points).all() for points in seen)
    assert not ball.contains(dct.transform(gan.sample(50, random_state=0))).all()


@pytest.mark.parametrize("latent_dim", [1, 7])
def test_dcgan_on_images(tiny, latent_dim):
    mechanism = LaplaceMechanism(50.0, domain=Box(-1, 1, n_features=64), random_state=0)
    X = np.random.default_rng(0).uniform(-1, 1, (30, 64))
    gan = tiny(mechanism, generator="dcgan", latent_dim=latent_dim, privatize=True).fit(X)
    assert gan.sample(5).shape == (5, 64)
    # In evaluation mode a sample does not depend on those drawn with it.
    with torch.no_grad():
        Z = torch.rand(6, latent_dim)
        torch.testing.assert_close(gan.generator_(Z)[:2], gan.generator_(Z[:2]))


def test_a_generator_of_ones_own(tiny):
    calls = []

    def generator(latent_dim, domain):
        calls.append((latent_dim, domain))
        return mlp_generator(latent_dim, domain, (3,), "tanh")

    box = Box(-1, 1, n_features=2)
    gan = tiny(generator=generator, latent_dim=3).fit(np.zeros((20, 2)))
    assert calls == [(3, box)]
    assert gan.sample(4).shape == (4, 2)
    assert isinstance(gan.generator_[1], torch.nn.Tanh)


@pytest.mark.gpu
@pytest.mark.parametrize("loss", ["entropic", "likelihood"])
def test_a_gpu_trains_and_scores_like_the_cpu(tiny, loss):
    mechanism = LaplaceMechanism(5.0, domain=Box(-1, 1, n_features=2), random_state=0)
    Y = mechanism.fit_transform(np.random.default_rng(0).uniform(-1, 1, (200, 2)))
    gan = tiny(mechanism, loss=loss, training__device="cuda").fit(Y)
    score = gan.score(Y)
    assert next(gan.generator_.parameters()).is_cuda
    gan.generator_.cpu()
    assert gan.score(Y) == pytest.approx(score, rel=1e-4)
    assert gan.sample(5).shape == (5, 2)
