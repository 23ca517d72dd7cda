"""Simulations of private evolution: records, samplers, and their errors."""

import math
import warnings

import numpy as np
import ot
from scipy.stats import wasserstein_distance

from sklearn_dpgen.domains import Ball
from sklearn_dpgen.evolution import (
    EuclideanVariation,
    PrivateEvolutionSampler,
    PrivateSignedMeasureSampler,
)

EPSILON, DELTA = 1.0, 1e-4
SIZES = (500, 1000, 2000, 5000)
# An earlier implementation at the paper's settings, 20 runs.
TRIAL = dict(zip(SIZES, (0.218, 0.167, 0.131, 0.100), strict=True))
TRIAL_RUNS = 20
SCHEDULES = ("theory", "annealed")
POSTPROCESSING = ("bounded_lipschitz", "simplex")
POINTS = (25, 50, 100, 200, 400, 800, 1600)
MULTIPLES = (0.25, 0.5, 1.0, 2.0, 4.0)
STARTS = ("uniform", "0", "0.25", "0.5", "0.75", "1")
SHAPES = ("quadrant", "clusters", "curve", "ball 1")
# Of private records that a result is compared with where there are more.
LARGEST = 3000


def evolution(schedule, d=2, **params):
    """Return the sampler at the paper's settings, or at ours, with a start from the domain."""
    if schedule == "theory":
        params = {"schedule": "theory", "votes__postprocess": "threshold", **params}
    params = {"start": "public", "domain": Ball(1.0, n_features=d), **params}
    params = {"epsilon": EPSILON, "delta": DELTA, **params}
    return PrivateEvolutionSampler().set_params(**params)


def on_grid(d=2, **params):
    """Return the sampler of one step on a grid."""
    params = {"epsilon": EPSILON, "delta": DELTA, "domain": Ball(1.0, n_features=d), **params}
    return PrivateSignedMeasureSampler().set_params(**params)


class Start:
    """Candidates of the ball from a chosen first population; remembers the later ones."""

    def __init__(self, first):
        self.first = first
        self.inner = EuclideanVariation(Ball(1.0, n_features=2))
        self.populations = []

    def random(self, n, rng):
        """Draw the first population."""
        return self.first(n, rng)

    def vary(self, X, rng, degree):
        """Draw variations; a population is varied many times in a row."""
        if not self.populations or self.populations[-1] is not X:
            self.populations.append(X)
        return self.inner.vary(X, rng, degree)


def draw(shape, n, d, rng):
    """Draw private records in the unit ball."""
    ball = Ball(1.0, n_features=d)
    if shape == "quadrant":
        return abs(ball.sample(n, rng))
    if shape == "clusters":
        centers = 0.8 * ball.sample(5, rng)
        return ball.project(centers[rng.integers(5, size=n)] + 0.05 * rng.normal(size=(n, d)))
    if shape == "curve":
        t, j = rng.uniform(size=(n, 1)), np.arange(d)
        curve = np.cos(np.pi * (1 + j) * t + j) / math.sqrt(d)
        return ball.project(curve + 0.02 * rng.normal(size=(n, d)))
    return float(shape.removeprefix("ball ")) * ball.sample(n, rng)


def w1(X, V, weights=None):
    """Return W1 between records and weighted points."""
    weights = np.full(len(V), 1 / len(V)) if weights is None else weights
    V, weights = V[weights > 0], weights[weights > 0]
    if X.shape[1] == 1:
        return wasserstein_distance(X[:, 0], V[:, 0], v_weights=weights)
    costs = ot.dist(X, V, metric="euclidean")
    mass = np.full(len(X), 1 / len(X))
    return float(ot.emd2(mass, weights / weights.sum(), costs, numItermax=10**9))


def result(sampler):
    """Return the weighted points that records are drawn from."""
    return sampler.candidates_[0], sampler.weights_[0]


def last_votes(sampler):
    """Return the candidates of the last step with their weights."""
    last = sampler.history_[-1][0]
    return last.candidates, last.weights


def fit(sampler, X, run):
    """Fit, without the warnings of budgets that are small on purpose."""
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", category=UserWarning, message="The noise on|No candidate")
        return sampler.set_params(random_state=run).fit(X)


def mean_error(values):
    """Return mean, standard error and number of runs as the end of a row."""
    error = float(np.std(values, ddof=1)) / math.sqrt(len(values))
    return {"W1": float(np.mean(values)), "error": error, "runs": len(values)}


def compare(methods, runs, *, n, d=2, shape="quadrant", largest=None, fresh=False, **labels):
    """Return a row for each method: a sampler, or a pair of it and what is read from it.

    All see the same records. ``largest`` is how many of these a result is compared with; ``fresh``
    adds as many further records of the same law, without privacy, in the place of a result.
    """
    values = {name: [] for name in [*methods, *["fresh records"] * fresh]}
    for run in range(runs):
        spare = min(n, largest or n) * fresh
        X = draw(shape, n + spare, d, np.random.default_rng(run))
        X, others = X[:n], X[n:]
        for name, method in methods.items():
            sampler, read = method if isinstance(method, tuple) else (method, result)
            values[name].append(w1(X[:largest], *read(fit(sampler, X, run))))
        if fresh:
            values["fresh records"].append(w1(X[:largest], others))
    shared = {"shape": shape, "n": n, "d": d, **labels}
    return [{**shared, "method": name, **mean_error(found)} for name, found in values.items()]
