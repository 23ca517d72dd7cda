"""Draws far out are added as they are: a law that was cut off would have no finite loss."""

import numpy as np
import pytest

from sklearn_dpgen.mechanisms import GaussianSequenceMechanism
from sklearn_dpgen.utils._random import NoiseSource

FAR = np.array([-7.0, 0.0, 7.0])
RARE = np.array([1e-12, 0.5, 1 - 1e-12])


class Given(NoiseSource):
    """A source of the given draws."""

    def __init__(self, draws):
        super().__init__()
        self.draws = draws

    def normal(self, size):
        return np.broadcast_to(self.draws, size)

    uniform = _uniform = normal


def run():
    shares = {"n_selections": 3, "selection_share": 0.2, "score_range": 2.0}
    mechanism = GaussianSequenceMechanism(1.0, (1.0,), 1.0, 1e-5, **shares)
    return mechanism, mechanism.run()


def adds_all(release, scale):
    return np.abs(release / scale - FAR).max() < 1e-3


def test_normal_noise_is_not_cut_off():
    mechanism, releases = run()
    (scale,) = mechanism.noise_scales
    assert adds_all(releases.release(np.zeros(3), Given(FAR)), scale)
    _, releases = run()
    assert not adds_all(releases.release(np.zeros(3), Given(FAR.clip(-4, 4))), scale)


@pytest.mark.parametrize(("clip", "is_first"), [(0.0, True), (1e-4, False)])
def test_gumbel_noise_is_not_cut_off(clip, is_first):
    mechanism, selections = run()
    # The largest draw is 27.6 scales above 0 where it is not cut off, and 9.2 where it is.
    scores = mechanism.selection.noise_scale * np.array([0.0, 20.0, 0.0])
    draws = RARE.clip(clip, 1 - clip)
    order = selections.select(scores, Given(draws), count=3)
    assert (order.tolist() == [2, 1, 0]) is is_first
