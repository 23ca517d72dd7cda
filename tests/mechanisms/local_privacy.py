"""Checks of a local mechanism against its own likelihood, and mechanisms that break it."""

import itertools
import math

import numpy as np
import torch
from scipy.integrate import cumulative_trapezoid
from scipy.special import log_ndtr, ndtr

from sklearn_dpgen.accounting import PrivacyReport
from sklearn_dpgen.domains import Ball, Box, OneHot, Product
from sklearn_dpgen.mechanisms import LaplaceMechanism, Mechanism
from sklearn_dpgen.utils._random import NoiseSource
from sklearn_dpgen.utils._torch import as_tensor


def log_likelihood(mechanism, X, Y):
    X, Y = (torch.tensor(np.asarray(Z, dtype=np.float64)) for Z in (X, Y))
    return mechanism.log_likelihood(X, Y).numpy()


def vertices(domain):
    """The extreme points of a domain, those of a ball along the axes and the diagonals."""
    if isinstance(domain, OneHot):
        return np.eye(domain.n_features)
    if isinstance(domain, Product):
        parts = itertools.product(*(vertices(factor) for factor in domain.domains))
        return np.array([np.concatenate(part) for part in parts])
    corners = np.array(list(itertools.product([-1.0, 1.0], repeat=domain.n_features)))
    if isinstance(domain, Box):
        return np.where(corners < 0, domain.low, domain.high)
    assert isinstance(domain, Ball)
    points = np.concatenate([np.eye(domain.n_features), -np.eye(domain.n_features), corners])
    norms = np.linalg.norm(points, domain.p, axis=1, keepdims=True)
    return domain.center + domain.radius * points / norms


def candidates(domain, seed=0, n=60):
    """Extreme and random records."""
    return np.concatenate([vertices(domain), domain.sample(n, np.random.default_rng(seed))])


def outputs(domain, seed=1, n=60):
    """Released values inside and far outside of the domain, categories one-hot."""
    if isinstance(domain, OneHot):
        return np.eye(domain.n_features)
    if isinstance(domain, Product) and domain.n_features > 1:
        parts = [outputs(factor, seed, n=6) for factor in domain.domains]
        return np.array([np.concatenate(part) for part in itertools.product(*parts)])
    points = candidates(domain, seed, n)
    center = points.mean(axis=0)
    return np.concatenate([points, center + 30 * (points - center)])


def privacy_loss(mechanism, X, Y):
    """The largest log p(y|x) / p(y|x') over given records and outputs."""
    log_p = log_likelihood(mechanism, X, Y)
    return (log_p.max(axis=0) - log_p.min(axis=0)).max()


def searched_privacy_loss(mechanism, n_steps=60, seed=2):
    """The largest log ratio that projected gradient ascent finds from random pairs and outputs."""
    domain, rng = mechanism.domain_, np.random.default_rng(seed)
    center = domain.project(np.zeros((1, domain.n_features)))
    width = domain.diameter(np.inf)
    x, other = (torch.tensor(domain.sample(20, rng)) for _ in range(2))
    y = torch.tensor(center + width * rng.normal(size=(20, domain.n_features)))
    worst = 0.0
    for _ in range(n_steps):
        points = [Z.clone().requires_grad_() for Z in (x, other, y)]
        log_p = [mechanism.log_likelihood(Z, points[2]).diagonal() for Z in points[:2]]
        loss = log_p[0] - log_p[1]
        loss.sum().backward()
        worst = max(worst, loss.max().item())
        step = [
            0.2
            * width
            * Z.grad
            / Z.grad.norm(dim=1, keepdim=True).clamp_min(1e-12)
            * math.sqrt(domain.n_features)
            for Z in points
        ]
        x, other = domain.project(x + step[0]), domain.project(other + step[1])
        y = y + step[2]
    return worst


def is_pure(mechanism, tol=1e-9):
    """Whether every log ratio that is found stays within the stated budget."""
    domain, epsilon = mechanism.domain_, mechanism.privacy_.epsilon
    loss = privacy_loss(mechanism, candidates(domain), outputs(domain))
    return loss <= epsilon * (1 + tol)


def gaussian_mu(mechanism):
    """Distance of the farthest records in standard deviations, read from the likelihood."""
    X = candidates(mechanism.domain_)
    log_p = log_likelihood(mechanism, X, X)
    # log p(x|x) - log p(x|x') = |x - x'|² / 2σ².
    return math.sqrt(2 * (log_p.max() - log_p.min()))


def gaussian_delta(mu, epsilon):
    """Hockey-stick divergence at e^ε of N(0, 1) and N(μ, 1)."""
    tail = log_ndtr(-epsilon / mu - mu / 2) + epsilon
    return ndtr(mu / 2 - epsilon / mu) - math.exp(tail)


def is_gaussian_private(mechanism, tol=1e-9):
    report = mechanism.privacy_
    return gaussian_delta(gaussian_mu(mechanism), report.epsilon) <= report.delta * (1 + tol)


def cdf_on_grid(mechanism, x, column, grid):
    """Distribution function of one released value given the record, and its total mass."""
    Y = np.tile(x, (len(grid), 1))
    Y[:, column] = grid
    log_p = log_likelihood(mechanism, x[None], Y)[0]
    if len(x) > 1:
        # The columns are independent: take out the constant factor of the others, which is that of
        # each column but for its scale.
        scales = np.log(np.broadcast_to(mechanism.scale_, len(x)))
        at_record = log_likelihood(mechanism, x[None], x[None])[0]
        log_p = log_p - (at_record * (1 - 1 / len(x)) + scales[column] - scales.mean())
    cdf = cumulative_trapezoid(np.exp(log_p), grid, initial=0.0)
    return cdf, cdf[-1]


def sampler_z_score(mechanism, x, n=20_000, span=None):
    """Largest deviation of what is released from what the likelihood says, in std deviations.

    For mechanisms with independent columns, of one scale or one scale each.
    """
    x = np.asarray(x, dtype=np.float64)
    scales = np.broadcast_to(mechanism.scale_, len(x))
    Y = mechanism.transform(np.tile(x, (n, 1)))
    worst = 0.0
    for column in range(len(x)):
        low, high = span or (x[column] - 30 * scales[column], x[column] + 30 * scales[column])
        # The kinks and jumps of the density lie on the grid.
        grid = np.concatenate(
            [np.linspace(low, x[column], 20_001), np.linspace(x[column], high, 20_001)[1:]]
        )
        cdf, total = cdf_on_grid(mechanism, x, column, grid)
        assert abs(total - 1) < 1e-5
        p = np.array([0.001, 0.01, 0.05, 0.1, 0.25, 0.5, 0.75, 0.9, 0.95, 0.99, 0.999])
        thresholds = np.interp(p, cdf, grid)
        shares = (Y[:, column, None] <= thresholds).mean(axis=0)
        worst = max(worst, abs((shares - p) / np.sqrt(p * (1 - p) / n)).max())
    return worst


def dependence_z_score(Y):
    """Largest correlation between the columns, of values and of sizes, in std deviations."""
    Z = Y - Y.mean(axis=0)
    both = np.corrcoef(np.hstack([Z, abs(Z)]).T)
    return abs(both - np.eye(len(both))).max() * math.sqrt(len(Y))


class Heedless(NoiseSource):
    """A source that ignores what it is given, but for the number of draws before."""

    def bind(self, *parts):
        return super().bind(*[None] * len(parts))


class FixedNoise:
    """Mix in: every release draws the same noise, whatever the records."""

    def _noise(self, X):
        return Heedless(0)


class TruncatedLaplace(Mechanism):
    """A mechanism of a user: Laplace noise conditioned on staying inside a box.

    The density of a value is exp(-|y - x| / b) / Z(x); normalizing costs as much as the noise, so
    b is twice that of the Laplace mechanism.
    """

    def __init__(self, epsilon=1.0, *, domain=None, random_state=None):
        self.epsilon = epsilon
        self.domain = domain
        self.random_state = random_state

    def _calibrate(self):
        self.scale_ = 2 * self.domain_.diameter(1) / self.epsilon
        return PrivacyReport(
            name="Laplace noise truncated to the domain",
            events=(),
            epsilon=self.epsilon,
            delta=0.0,
            noise_scale=self.scale_,
        )

    def _randomize(self, X, noise):
        left = -np.expm1((self.domain_.low - X) / self.scale_)
        right = -np.expm1((X - self.domain_.high) / self.scale_)
        mass = noise.uniform(X.shape) * (left + right) - left
        return X - self.scale_ * np.sign(mass) * np.log1p(-abs(mass))

    def _log_likelihood(self, X, Y):
        low, high = (as_tensor(Z, dtype=X.dtype) for Z in (self.domain_.low, self.domain_.high))
        outside = ((low > Y) | (high < Y)).any(dim=1)
        mass = 2 - torch.exp((low - X) / self.scale_) - torch.exp((X - high) / self.scale_)
        log_constant = torch.log(self.scale_ * mass).sum(dim=1, keepdim=True)
        log_p = -torch.cdist(X, Y, p=1) / self.scale_ - log_constant
        return torch.where(outside, -math.inf, log_p)


class HalfScale:
    """Mix in: half the noise that the budget asks for."""

    def _calibrate(self):
        report = super()._calibrate()
        self.scale_ /= 2
        return report


class EuclideanSensitivity(LaplaceMechanism):
    """Calibrated to the l2 diameter, where Laplace noise needs the l1 diameter."""

    def _calibrate(self):
        report = super()._calibrate()
        self.scale_ *= self.domain_.diameter(2) / self.domain_.diameter(1)
        return report


class NoProjection:
    """Mix in: records are randomized where they are."""

    def transform(self, X):
        X = np.asarray(X, dtype=np.float64)
        return self._randomize(X, self._noise(X))


class WrongSampler:
    """Mix in: noise a tenth larger than what is accounted for."""

    def _randomize(self, X, noise):
        return X + 1.1 * (super()._randomize(X, noise) - X)


class OneDrawForAllColumns:
    """Mix in: one draw of noise a record."""

    def _randomize(self, X, noise):
        return X + super()._randomize(np.zeros((len(X), 1)), noise)


class NaiveSeed:
    """Mix in: the seed alone decides the noise."""

    def _noise(self, X):
        return Heedless(self.random_state)
