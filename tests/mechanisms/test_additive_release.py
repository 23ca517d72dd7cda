"""The noise that is added is exactly the noise that is stated, on the grid that hides low bits."""

import numpy as np
import pytest

import sklearn_dpgen
from sklearn_dpgen.accounting import gaussian_sigma
from sklearn_dpgen.domains import Box, Product
from sklearn_dpgen.mechanisms import GaussianMechanism, LaplaceMechanism, release_of
from sklearn_dpgen.utils._random import NoiseSource, on_grid

BOX = Box(-1, 1, n_features=3)


class KnownDraws(NoiseSource):
    """A noise source whose draws the test knows."""

    def __init__(self, draws):
        super().__init__()
        self.draws = draws

    def laplace(self, size):
        assert size == self.draws.shape
        return self.draws

    normal = laplace


class TooQuiet(LaplaceMechanism):
    def _randomize(self, X, noise):
        return on_grid(X + 0.97 * self.scale_ * noise.laplace(X.shape), self.scale_)


class OffGrid(LaplaceMechanism):
    def _randomize(self, X, noise):
        return X + self.scale_ * noise.laplace(X.shape)


def releases_what_it_states(mechanism):
    """Whether the release is the record plus scale_ times the draw, rounded to the grid."""
    rng = np.random.default_rng(0)
    X, draws = rng.uniform(-1, 1, (50, 3)), rng.normal(size=(50, 3))
    released = mechanism.fit()._randomize(X, KnownDraws(draws))
    return np.array_equal(released, on_grid(X + mechanism.scale_ * draws, mechanism.scale_))


@pytest.mark.parametrize("epsilon", [0.1, 1.0, 12.0])
def test_the_noise_is_the_stated_noise(epsilon):
    assert releases_what_it_states(LaplaceMechanism(epsilon, domain=BOX))
    assert releases_what_it_states(GaussianMechanism(epsilon, 1e-5, domain=BOX))


@pytest.mark.parametrize("broken", [TooQuiet, OffGrid])
def test_a_quieter_or_finer_release_is_caught(broken):
    assert not releases_what_it_states(broken(1.0, domain=BOX))


# Boxes of unequal sides.

LOW, SIDES = np.array([-5.0, 0.0, 2.0**31]), np.array([240.0, 1.0, 2.0**-7])
UNEQUAL = Box(LOW, LOW + SIDES)


class OneScale(LaplaceMechanism):
    """A broken variant: the noise of the widest feature's share in all of them."""

    def _calibrate(self):
        report = super()._calibrate()
        self.scale_ = self.scale_.max()
        return report


def shares_of_the_sides(mechanism):
    """The noise of each column, as a share of its side, in standard deviations."""
    X = UNEQUAL.sample(20_000, np.random.default_rng(0))
    noise = mechanism.set_params(random_state=0).fit_transform(X) - X
    return noise.std(axis=0) / SIDES


@pytest.mark.parametrize("noise", ["float", "certified"])
def test_noise_is_proportional_to_unequal_sides(noise):
    laplace = LaplaceMechanism(4.0, domain=UNEQUAL, noise=noise).fit()
    gaussian = GaussianMechanism(4.0, 1e-5, domain=UNEQUAL, noise=noise).fit()
    sigma = gaussian_sigma(4.0, 1e-5, np.sqrt(3))
    np.testing.assert_allclose(laplace.scale_, 3 * SIDES / 4, rtol=1e-4)
    np.testing.assert_allclose(gaussian.scale_, sigma * SIDES, rtol=1e-4)
    for mechanism in (laplace, gaussian):
        report = mechanism.privacy_
        assert [*report.noise_scale.values()] == mechanism.scale_.tolist()
        assert report.noise_multiplier == pytest.approx(
            mechanism.scale_[0] / SIDES[0] / report.sensitivity
        )
    # The stated loss of the farthest pair, from the scales alone.
    assert (SIDES / laplace.scale_).sum() <= 4.0 * (1 + 1e-15)


def test_the_noise_is_drawn_in_units_of_the_sides():
    spread = np.sqrt(2) * 3 / 4
    shares = shares_of_the_sides(LaplaceMechanism(4.0, domain=UNEQUAL))
    np.testing.assert_allclose(shares, spread, rtol=0.05)
    assert abs(shares_of_the_sides(OneScale(4.0, domain=UNEQUAL)) / spread - 1).max() > 1
    shares = shares_of_the_sides(GaussianMechanism(4.0, 1e-5, domain=UNEQUAL))
    np.testing.assert_allclose(shares, gaussian_sigma(4.0, 1e-5, np.sqrt(3)), rtol=0.05)


@pytest.mark.parametrize("kind", [LaplaceMechanism, GaussianMechanism])
def test_boxes_that_are_equal_have_equal_noise(kind):
    product = Product([Box(LOW[:2], (LOW + SIDES)[:2]), Box(LOW[2], LOW[2] + SIDES[2])])
    X = UNEQUAL.sample(5, np.random.default_rng(0))
    whole, parts = (kind(2.0, domain=domain, random_state=0).fit() for domain in (UNEQUAL, product))
    np.testing.assert_array_equal(whole.scale_, parts.scale_)
    # Sides that differ by rounding alone are equal.
    sides = kind(2.0, domain=Box([0.1, 0.3], [1.1, 1.3])).fit()
    assert isinstance(sides.scale_, float)
    assert isinstance(kind(np.inf, domain=UNEQUAL).fit().transform(X), np.ndarray)


@pytest.mark.parametrize("kind", [LaplaceMechanism, GaussianMechanism])
def test_a_saved_mechanism_keeps_its_scales(kind, tmp_path):
    X = UNEQUAL.sample(5, np.random.default_rng(0))
    mechanism = kind(2.0, domain=UNEQUAL).fit(X)
    mechanism.save(tmp_path / "mechanism.safetensors")
    loaded = sklearn_dpgen.load(tmp_path / "mechanism.safetensors")
    np.testing.assert_array_equal(loaded.scale_, mechanism.scale_)
    assert release_of(loaded.transform(X)) == release_of(mechanism.transform(X))


@pytest.mark.parametrize("mechanism", [LaplaceMechanism, GaussianMechanism])
@pytest.mark.parametrize("epsilon", [1.1e5, 1e308, 0.9e-50, 0.0, -1.0, np.nan])
def test_budgets_that_are_none(mechanism, epsilon):
    with pytest.raises(ValueError, match="'epsilon' parameter .* or a float among {inf}"):
        mechanism(epsilon, domain=BOX).fit(np.zeros((3, BOX.n_features)))
