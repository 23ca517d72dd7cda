"""Who observes noisy releases sees all that is added and selected, and may put others in place."""

import numpy as np
import pytest

from sklearn_dpgen.utils._random import NoiseObserver, NoiseSource, observed_noise, on_grid


class Seen(NoiseObserver):
    def __init__(self, forced=None):
        self.releases, self.forced = [], forced

    def added(self, values, scale, kind, noisy):
        self.releases.append((values.copy(), scale, kind, noisy))
        return noisy if self.forced is None else self.forced

    def selected(self, scores, scale, indices):
        self.releases.append((scores.copy(), scale, "gumbel", indices))
        return indices


def test_an_observer_sees_values_noise_and_selections():
    source, values = NoiseSource(), np.arange(3.0)
    with observed_noise(Seen()) as seen:
        noisy = source.add(values, 2.0, "gaussian")
        chosen = source.largest(values, 1.0, 2)
        # Without noise nothing is released that an audit could test.
        source.add(values, 0.0, "laplace")
    source.add(values, 1.0, "laplace")
    (first, second) = seen.releases
    np.testing.assert_array_equal(first[0], values)
    assert first[1:3] == (2.0, "gaussian")
    np.testing.assert_array_equal(first[3], noisy)
    assert (second[1], second[2]) == (1.0, "gumbel")
    np.testing.assert_array_equal(second[3], chosen)


def test_an_observer_may_put_another_release_in_its_place():
    forced = np.array([7.0])
    with observed_noise(Seen(forced)):
        assert NoiseSource().add(np.zeros(1), 1.0, "laplace") is forced


@pytest.mark.parametrize("kind", ["gaussian", "laplace"])
def test_noise_is_added_on_the_grid(kind):
    values = np.linspace(-3, 3, 1000)
    noisy = NoiseSource(0).add(values, 0.7, kind)
    np.testing.assert_array_equal(noisy, on_grid(noisy, 0.7))
    spread = (noisy - values).std()
    expected = 0.7 if kind == "gaussian" else 0.7 * np.sqrt(2)
    assert spread == pytest.approx(expected, rel=0.15)
    kept = NoiseSource().add(values, 0.0, kind)
    assert kept is not values
    np.testing.assert_array_equal(kept, values)
