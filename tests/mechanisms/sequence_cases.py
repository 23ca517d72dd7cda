"""Sequences of releases, with selections and without, and their price by the textbook formula."""

import math

from scipy.special import log_ndtr

from sklearn_dpgen.mechanisms import GaussianSequenceMechanism
from sklearn_dpgen.utils._random import NoiseSource

SHARES = (1.0, 2.0, 4.0)
ROOT = math.sqrt(2)
PAID = {"n_selections": 3, "selection_share": 2.0, "score_range": 2 * ROOT}


def together(scales):
    """Return the noise of one release that is as private as all of them."""
    return 1 / math.sqrt(sum(1 / scale**2 for scale in scales))


def exact_delta(epsilon, scales, sensitivity):
    """Return the profile of the composition at a budget, by the textbook formula."""
    mu = sensitivity / together(scales)
    upper = log_ndtr(-epsilon / mu + mu / 2)
    lower = epsilon + log_ndtr(-epsilon / mu - mu / 2)
    return math.exp(upper) * -math.expm1(lower - upper)


def with_selections(epsilon=1.0, delta=1e-5, shares=SHARES, **options):
    return GaussianSequenceMechanism(ROOT, shares, epsilon, delta, **PAID | options)


class KnownDraws(NoiseSource):
    """A noise source whose normals the test knows."""

    def __init__(self, draws):
        super().__init__(0)
        self.draws = draws

    def normal(self, size):
        assert size == self.draws.shape
        return self.draws
