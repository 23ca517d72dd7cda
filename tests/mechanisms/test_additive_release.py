"""The noise that is added is exactly the noise that is stated, on the grid that hides low bits."""

import numpy as np
import pytest

from sklearn_dpgen.domains import Box
from sklearn_dpgen.mechanisms import GaussianMechanism, LaplaceMechanism
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


@pytest.mark.parametrize("mechanism", [LaplaceMechanism, GaussianMechanism])
@pytest.mark.parametrize("epsilon", [1.1e5, 1e308, 0.9e-50, 0.0, -1.0, np.nan])
def test_budgets_that_are_none(mechanism, epsilon):
    with pytest.raises(ValueError, match="'epsilon' parameter .* or a float among {inf}"):
        mechanism(epsilon, domain=BOX).fit(np.zeros((3, BOX.n_features)))
