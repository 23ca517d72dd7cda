"""What the peers of the benchmarks may spend, by formulas that are written down here."""

import math
import sys
from pathlib import Path

import numpy as np
import pytest
from scipy.stats import norm

import sklearn_dpgen

BENCHMARKS = Path(sklearn_dpgen.__file__).parents[1] / "benchmarks"
pytestmark = pytest.mark.skipif(not BENCHMARKS.exists(), reason="needs a checkout, not a wheel")

DELTA = 1e-5
BUDGETS = (0.3, 1.0, 3.0, 10.0)
each_budget = pytest.mark.parametrize("epsilon", BUDGETS)
# Of Proposition 7 of Canonne, Kamath and Steinke, from which peers derive rho.
BOUND = {0.3: 0.00330, 1.0: 0.0306, 3.0: 0.224, 10.0: 1.78}


@pytest.fixture
def budget(monkeypatch):
    monkeypatch.setattr(sys, "path", [str(BENCHMARKS), *sys.path])
    return pytest.importorskip("_peers").budget


def gaussian_delta(mu, epsilon):
    """Return the profile of the Gaussian mechanism (Balle and Wang 2018, Theorem 8)."""
    return norm.cdf(mu / 2 - epsilon / mu) - np.exp(epsilon) * norm.cdf(-mu / 2 - epsilon / mu)


def pairs(epsilon0, n):
    """Return the losses and the probabilities of binary pairs of a range, by their larger loss."""
    t = np.linspace(0, epsilon0, n + 2)[1:-1]
    p = np.expm1(epsilon0 - t) / (np.expm1(epsilon0 - t) - np.expm1(-t))
    high = np.expm1(-(t - epsilon0)) / (np.exp(epsilon0 - t) - np.exp(-t))
    # P(loss t) e^-t + P(loss t - epsilon0) e^(epsilon0 - t) = 1.
    assert np.allclose(p * np.exp(-t) + (1 - p) * np.exp(epsilon0 - t), 1)
    assert np.allclose(p, high)
    return np.stack([t, t - epsilon0]), np.stack([p, 1 - p])


def composed_delta(mu, epsilon0, n_selections, epsilon, n_grid=8001):
    """Return the delta of a Gaussian release and of selections, each chosen by what came before."""
    losses, shares = pairs(epsilon0, 81)
    reach = (n_selections + 1) * epsilon0
    grid = np.linspace(-reach, reach, n_grid)
    values = np.maximum(-np.expm1(grid), 0)
    for _ in range(n_selections):
        after = np.zeros((losses.shape[1], n_grid))
        for loss, share in zip(losses, shares, strict=True):
            at = grid - loss[:, None]
            inside = np.interp(at, grid, values)
            outside = np.where(at < 0, -np.expm1(np.minimum(at, 0)), 0)
            after += share[:, None] * np.where(np.abs(at) < reach, inside, outside)
        values = after.max(axis=0)
    z = np.linspace(-12, 12, 24_001)
    left = epsilon - (mu**2 / 2 + mu * z)
    later = np.where(left < -reach, -np.expm1(left), np.interp(left, grid, values, right=0))
    return np.trapezoid(norm.pdf(z) * later, z)


@each_budget
def test_gaussian_releases_alone_have_the_closed_form(budget, epsilon):
    rho = budget("PrivSyn", 15, epsilon, DELTA)["rho"]
    assert gaussian_delta(math.sqrt(2 * rho), epsilon) == pytest.approx(DELTA, rel=1e-3)
    assert gaussian_delta(math.sqrt(2 * 1.01 * rho), epsilon) > 1.005 * DELTA
    assert rho > 1.1 * BOUND[epsilon]


@each_budget
@pytest.mark.parametrize(
    ("model", "measured"), [("SmartNoise MST", 2 / 3), ("dpmm MST", 2 / 3), ("OpenDP MST", 0.95)]
)
def test_a_known_number_of_selections_is_composed_exactly(budget, epsilon, model, measured):
    n_selections = 3
    given = budget(model, n_selections + 1, epsilon, DELTA)

    def delta(rho):
        mu = math.sqrt(2 * measured * rho)
        epsilon0 = math.sqrt(8 * (1 - measured) * rho / n_selections)
        return composed_delta(mu, epsilon0, n_selections, epsilon)

    assert given["calibration"] == "exact"
    assert 0.99 * DELTA <= delta(given["rho"]) <= 1.001 * DELTA
    assert delta(1.01 * given["rho"]) > 1.002 * DELTA
    assert given["rho"] > 1.1 * BOUND[epsilon]


def dominating_mu(epsilon0):
    """Return the least mu whose Gaussian pair dominates all binary pairs of a range."""
    _, (p, _) = pairs(epsilon0, 4001)
    losses, _ = pairs(epsilon0, 4001)
    q = p * np.exp(-losses[0])
    return (norm.ppf(p) - norm.ppf(q)).max()


@each_budget
@pytest.mark.parametrize(
    ("model", "most_selected"),
    [
        ("OpenDP AIM", 0.05),
        ("OpenDP AIM, target named", 0.05),
        ("SmartNoise AIM", 0.1),
        ("dpmm AIM", 0.1),
        ("dpmm AIM, target named", 0.1),
    ],
)
def test_adaptive_selections_are_within_a_sum_of_squares(budget, epsilon, model, most_selected):
    given = budget(model, 15, epsilon, DELTA)
    assert given["calibration"] == "Gaussian bound"

    def most(rho, n_rounds, price=None):
        """Return the sum of mu^2 of rounds that spend equal parts of the selections."""
        epsilon0 = math.sqrt(8 * most_selected * rho / n_rounds)
        squared = dominating_mu(epsilon0) ** 2 if price is None else price(epsilon0)
        return 2 * (1 - most_selected) * rho + n_rounds * squared

    for n_rounds in (1, 3, 40, 240):
        assert gaussian_delta(math.sqrt(most(given["rho"], n_rounds)), epsilon) <= 1.0001 * DELTA
    assert gaussian_delta(math.sqrt(most(1.02 * given["rho"], 240)), epsilon) > DELTA
    assert given["rho"] > 1.05 * BOUND[epsilon]

    # Selections counted as Gaussian releases of the same rho, which do not dominate them.
    wrong = most(given["rho"], 240, lambda epsilon0: epsilon0**2 / 4)
    assert wrong < most(given["rho"], 240)


@each_budget
def test_the_noise_of_privbayes_is_what_its_selections_leave(budget, epsilon):
    n_columns = 4
    given = budget("dpmm PrivBayes", n_columns, epsilon, DELTA)
    epsilon0 = epsilon / 2 / n_columns

    def delta(sigma):
        return composed_delta(1 / sigma, epsilon0, n_columns - 1, epsilon)

    assert 0.99 * DELTA <= delta(given["sigma"]) <= 1.001 * DELTA
    assert delta(0.99 * given["sigma"]) > 1.002 * DELTA
