"""Small samples, and their private distance in a ball."""

import math

import numpy as np
from scipy import stats

from sklearn_dpgen.domains import Ball
from sklearn_dpgen.smoothed import smoothed_sliced_wasserstein

BALL = Ball(1.5, n_features=4)


def sample(n, shift=0.0, seed=0, d=4):
    return np.random.default_rng(seed).normal(shift, 0.4, size=(n, d))


def private(X, Y, **changes):
    return smoothed_sliced_wasserstein(
        X, Y, **{"epsilon": 5.0, "domain": BALL, "random_state": 0} | changes
    )


def has_the_stated_noise(errors, scale):
    """Whether errors are independent normals of this scale, row by row and column by column."""
    z = errors / scale
    n, k = z.shape
    between = np.corrcoef(z.T)[np.triu_indices(k, 1)]
    return (
        abs((z**2).mean() - 1) < 5 * math.sqrt(2 / z.size)
        and abs(z.mean()) < 5 / math.sqrt(z.size)
        and abs(between).max() < 5 / math.sqrt(n)
        and abs((z[1:] * z[:-1]).mean()) < 5 / math.sqrt(z.size)
        and stats.kstest(z.ravel(), "norm").pvalue > 1e-5
    )
