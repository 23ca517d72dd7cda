"""Small samples, and their private distance in a ball."""

import numpy as np

from sklearn_dpgen.domains import Ball
from sklearn_dpgen.smoothed import smoothed_sliced_wasserstein

BALL = Ball(1.5, n_features=4)


def sample(n, shift=0.0, seed=0, d=4):
    return np.random.default_rng(seed).normal(shift, 0.4, size=(n, d))


def private(X, Y, **changes):
    return smoothed_sliced_wasserstein(
        X, Y, **{"epsilon": 5.0, "domain": BALL, "random_state": 0} | changes
    )
