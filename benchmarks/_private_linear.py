"""Softmax regression of unit vectors under differential privacy, without an intercept: the peers.

Neighbours differ in a record and its label that are replaced ("replace") or are there or not
("remove"). The gradient of a record's loss is (p - e_y) x', of norm at most √2.
"""

import math
from functools import cache

import numpy as np
from dp_accounting import dp_event
from dp_accounting.mechanism_calibration import calibrate_dp_mechanism
from dp_accounting.pld import PLDAccountant
from scipy.optimize import brentq, minimize
from scipy.special import log_softmax, logsumexp, softmax
from scipy.stats import norm

from sklearn_dpgen.accounting import calibrate_noise_multiplier

__all__ = ["dp_sgd", "objective_perturbation", "objective_scale"]


@cache
def step_multiplier(epsilon, delta, rate, n_steps, relation):
    """Return the noise multiplier of a step, in units of the change that a neighbour can make.

    "replace" is with batches drawn without replacement, by this package; "remove" with Poisson
    sampling, by the privacy loss distributions of dp_accounting. Without sampling, both are the
    same Gaussian mechanism.
    """
    if relation == "replace" or rate == 1:
        return calibrate_noise_multiplier(epsilon, delta, sampling_rate=rate, n_steps=n_steps)

    def steps(multiplier):
        step = dp_event.PoissonSampledDpEvent(rate, dp_event.GaussianDpEvent(multiplier))
        return dp_event.SelfComposedDpEvent(step, n_steps)

    return calibrate_dp_mechanism(PLDAccountant, steps, epsilon, delta, tol=1e-3)


def dp_sgd(data, epsilon, delta, rng, *, relation, rate, n_steps, learning_rate, clip):
    """Return weights: the mean of the later half of the iterates of DP-SGD from zero."""
    X, y = data.X.astype(np.float32), data.y
    n, k = len(X), data.n_classes
    multiplier = step_multiplier(epsilon, delta, rate, n_steps, relation)
    scale = multiplier * clip * (2 if relation == "replace" else 1)
    W = np.zeros((X.shape[1], k), dtype=np.float32)
    mean = np.zeros_like(W)
    for step in range(n_steps):
        A, labels = X, y
        if rate < 1:
            rows = (
                rng.choice(n, math.floor(rate * n), replace=False)
                if relation == "replace"
                else np.flatnonzero(rng.random(n) < rate)
            )
            A, labels = X[rows], y[rows]
        residuals = softmax(A @ W, axis=1)
        residuals[np.arange(len(A)), labels] -= 1
        norms = np.linalg.norm(residuals, axis=1) * np.linalg.norm(A, axis=1)
        residuals *= np.minimum(1, clip / np.maximum(norms, 1e-12))[:, None]
        noise = scale * rng.standard_normal(W.shape)
        W = (W - learning_rate / clip * (A.T @ residuals + noise) / (rate * n)).astype(np.float32)
        if step >= n_steps // 2:
            mean += W
    return mean


def objective_scale(epsilon, delta, n_classes, regularization, relation):
    """Return the noise of objective perturbation, or infinity where no noise is enough.

    As Kifer, Smith and Thakurta (COLT 2012), with the tail of the loss itself in place of a bound
    of it. The minimizer of Σ ℓ + λ/2 ‖W‖² + <B, W>, B of normal entries, has a density. Its ratio
    at neighbours is one of determinants, at most (1 + 1/(kλ))^(k-1) for a Hessian of rank k - 1 and
    trace at most 1 - 1/k, times exp((2 <B, D> + ‖D‖²) / 2σ²) for the change D of the gradient.
    <B, D> is at most the largest of k - 1 normals of variance 2σ² for each record that changes.
    The minimum is taken to be exact.
    """
    k, records = n_classes, 2 if relation == "replace" else 1
    budget = epsilon - (k - 1) * math.log1p(1 / (k * regularization))
    if budget <= 0:
        return math.inf

    def excess(sigma):
        tail = (sigma**2 * budget - records**2) / (records * math.sqrt(2) * sigma)
        return math.log(records * (k - 1)) + norm.logsf(tail) - math.log(delta)

    return brentq(excess, 1e-3, 1e6, rtol=1e-9) * (1 + 1e-8)


def objective_perturbation(data, epsilon, delta, rng, *, relation, regularization):
    """Return weights: the minimum of a randomly tilted objective."""
    X, y, k = data.X, data.y, data.n_classes
    scale = objective_scale(epsilon, delta, k, regularization, relation)
    if not math.isfinite(scale):
        return np.zeros((X.shape[1], k))
    tilt = scale * rng.standard_normal((X.shape[1], k))
    rows = np.arange(len(X))

    def objective(flat):
        W = flat.reshape(tilt.shape)
        scores = X @ W
        value = logsumexp(scores, axis=1).sum() - scores[rows, y].sum()
        residuals = np.exp(log_softmax(scores, axis=1))
        residuals[rows, y] -= 1
        value += regularization / 2 * (W**2).sum() + (tilt * W).sum()
        return value, (X.T @ residuals + regularization * W + tilt).ravel()

    found = minimize(
        objective, np.zeros(tilt.size), jac=True, method="L-BFGS-B", options={"maxiter": 500}
    )
    return found.x.reshape(tilt.shape)
