"""Rate bounds: by hand, in their limits, and above what is measured."""

import math

import numpy as np
import ot
import pytest
from bounded_lipschitz import bounded_lipschitz_distance
from evolution_laws import DISC, learner, quadrant, weighted_w1
from scipy.stats import wasserstein_distance

from sklearn_dpgen.accounting import gaussian_sigma
from sklearn_dpgen.domains import Box
from sklearn_dpgen.evolution import EuclideanVariation, theory_parameters, variation_contraction
from sklearn_dpgen.evolution._signed_measure_sampler import grid_support
from sklearn_dpgen.evolution._theory import (
    closeness_lower_bound,
    contraction_rate,
    convergence_bound,
    gaussian_complexity_bound,
    lipschitz_complexity_bound,
    sampling_bound,
    signed_measure_bound,
    step_error_bound,
    thresholded_laplace_bound,
)
from sklearn_dpgen.evolution._weight_projections import project_bounded_lipschitz

SIZES = [1, 2, 10, 100, 10**4, 10**8]


def test_by_hand():
    # 8π · [(√2 + ln 2)² + ln 2] = 25.1327 · 5.13405.
    assert contraction_rate(2) == pytest.approx(0.00775, abs=1e-6)
    # ln(2√100) = 2.995732.
    assert gaussian_complexity_bound(100, 1, 2.0) == pytest.approx(1.8 * 1.730818, rel=1e-6)
    assert gaussian_complexity_bound(100, 2, 2.0) == pytest.approx(2 * 5.185067, rel=1e-6)
    # a = 16^(1/4) · 1 = 2.
    assert gaussian_complexity_bound(16, 4, 1.0) == pytest.approx(5 * math.sqrt(math.log(4)))
    # K = 1 cuts 16 points into 4 cubes: 1/4 · √(4/16) + 1/2 · 1/2 = 0.375.
    assert lipschitz_complexity_bound(16, 2, 1.0) == pytest.approx(
        math.sqrt(2 / math.pi) * (0.25 + math.sqrt(2) * 0.375)
    )
    assert lipschitz_complexity_bound(1, 1, 1.0, noise="laplace") == pytest.approx(
        math.sqrt(2) * 1.5
    )
    # 0.05 (2^(-1/2) + ... + 2^(-8/2)) + 2^(-8).
    assert sampling_bound(100, 1, 1.0) == pytest.approx(
        0.05 * sum(2 ** (-k / 2) for k in range(1, 9)) + 2**-8
    )
    complexity = lipschitz_complexity_bound(16, 2, 1.0)
    assert signed_measure_bound(0.01, 16, 0.1, 2, 1.0) == pytest.approx(0.2 + 0.32 * complexity)
    assert step_error_bound(0.01, 0.1, 4, 4, 2, 1.0) == pytest.approx(
        0.1 + 0.32 * complexity + sampling_bound(4, 2, 1.0)
    )
    # The limit is 0.1 / 0.5, and a quarter of the way to it is left.
    assert convergence_bound(1.0, 2, contraction=0.5, step_error=0.1) == pytest.approx(0.4)
    # One point with all votes, 2/(nε) = 0.002: L_1 = 1.5 √2, and none is lost.
    assert thresholded_laplace_bound([0, 1, 0], 1000, 1.0, 1e-4, 1, 1.0) == pytest.approx(
        0.002 * (1.5 * math.sqrt(2) + math.sqrt(2))
    )
    assert closeness_lower_bound(10, 2.0, 0.05) == pytest.approx(10 * math.log(10))
    assert closeness_lower_bound(10, 2.0, 1.0) == 0


def test_the_settings_of_the_theorem_have_its_contraction():
    for d in (1, 3, 7):
        assert theory_parameters(1000, d, 2.0, 1.0, 1e-4).contraction == contraction_rate(d)


@pytest.mark.parametrize("d", [1, 2, 3, 8])
def test_complexities_and_samples_fall_to_nothing(d):
    bounds = [
        lambda n, D: gaussian_complexity_bound(n, d, D),
        lambda n, D: lipschitz_complexity_bound(n, d, D),
        lambda n, D: lipschitz_complexity_bound(n, d, D, noise="laplace"),
        lambda n, D: sampling_bound(n, d, D),
    ]
    for bound in bounds:
        values = [bound(n, 3.0) for n in SIZES]
        # The printed one has its largest value at a few points.
        assert (np.diff(values[2:]) <= 0).all()
        assert bound(10**40, 3.0) < 0.01 * values[0]
        assert bound(50, 6.0) == pytest.approx(2 * bound(50, 3.0))
    # The chained one is the smaller of the two.
    assert all(bounds[1](n, 3.0) < bounds[0](n, 3.0) for n in SIZES)
    # Two points of the domain are D apart at most.
    assert sampling_bound(1, d, 3.0) <= 3.0


def test_any_dimension():
    assert math.isfinite(lipschitz_complexity_bound(100, 5000, 1.0))
    assert sampling_bound(100, 5000, 1.0) == 1.0
    assert contraction_rate(5000) < contraction_rate(10) < contraction_rate(1)


def test_the_bound_after_no_step_and_after_many():
    options = {"contraction": 0.1, "step_error": 0.05}
    assert convergence_bound(2.0, 0, **options) == 2.0
    falling = [convergence_bound(2.0, t, **options) for t in range(200)]
    assert (np.diff(falling) < 0).all()
    assert falling[-1] == pytest.approx(0.5)
    # From a start nearer than the limit, steps add.
    assert (np.diff([convergence_bound(0.1, t, **options) for t in range(20)]) > 0).all()


def mean_norm(support, diameter, draw, runs=20):
    rng = np.random.default_rng(0)
    return np.mean(
        [
            bounded_lipschitz_distance(support, draw(rng, len(support)), diameter=diameter)
            for _ in range(runs)
        ]
    )


@pytest.mark.parametrize("d", [1, 2, 3])
@pytest.mark.parametrize("n", [1, 30, 300])
def test_noise_is_smaller_than_the_complexities(n, d):
    support = grid_support(Box(0, 1, n_features=d), n)
    m, diameter = len(support), math.sqrt(d)
    normal = mean_norm(support, diameter, lambda rng, k: rng.normal(size=k) / k)
    assert normal < lipschitz_complexity_bound(m, d, diameter)
    laplace = mean_norm(support, diameter, lambda rng, k: rng.laplace(size=k) / k)
    assert laplace < lipschitz_complexity_bound(m, d, diameter, noise="laplace")
    # It is not ten times too large.
    assert normal > 0.1 * lipschitz_complexity_bound(m, d, diameter)


@pytest.mark.parametrize("n", [1, 10, 1000])
def test_draws_are_nearer_than_their_bound(n):
    rng = np.random.default_rng(0)
    found = np.mean(
        [wasserstein_distance(rng.uniform(size=n), np.linspace(0, 1, 999)) for _ in range(50)]
    )
    assert 0.1 * sampling_bound(n, 1, 1.0) < found < sampling_bound(n, 1, 1.0)


@pytest.mark.slow
def test_a_run_stays_below_the_bound_with_the_contraction_of_its_interface():
    """Theorem G.1 where it says something: 1-D, little noise, a contraction that is measured."""
    line, n, n_samples, n_iter = Box(0, 1), 2000, 100, 8

    class Far(EuclideanVariation):
        def random(self, n, rng):
            return np.zeros((n, 1))

        def vary(self, X, rng, degree):
            return super().vary(X, rng, min(1.0, 6 * degree))

    class Anywhere(Far):
        random = EuclideanVariation.random

    X = 0.8 + 0.2 * line.sample(n, np.random.default_rng(0))
    plan = theory_parameters(n, 1, 1.0, 500.0, 1e-4, n_iter=n_iter, n_samples=n_samples)
    measured = variation_contraction(
        Anywhere(line), X[:40], np.repeat(plan.degrees, 2), random_state=0
    )
    options = {"domain": line, "schedule": "theory", "votes__postprocess": "bounded_lipschitz"}
    options |= {"delta": 1e-4, "n_iter": n_iter, "n_samples": n_samples}
    sampler = learner("evolution", 500.0, interface=Far(line), **options).fit(X)
    sizes = (plan.resolution, n_samples, measured.n_variations, 1, 1.0)
    step = step_error_bound(plan.noise, *sizes)
    gamma = measured.gamma(plan.resolution)
    bound = convergence_bound(float(X.mean()), n_iter, contraction=gamma, step_error=step)
    assert weighted_w1(sampler, X) < bound < X.mean()


def test_one_histogram_stays_below_its_bound():
    X = quadrant(2000)
    sampler = learner("measure", 5.0, delta=1e-4, n_points=100).fit(X)
    (support,) = sampler.candidates_
    noise = math.sqrt(2) * gaussian_sigma(5.0, 1e-4) / 2000
    # A grid of the disc in squares: every record is within half a diagonal of its point.
    side = np.diff(np.unique(support[:, 0].round(9))).max()
    bound = signed_measure_bound(noise, len(support), math.sqrt(2) * side, 2, 2.0)
    assert weighted_w1(sampler, X) < bound < DISC.diameter(2)


def test_thresholded_votes_stay_below_their_bound():
    rng = np.random.default_rng(0)
    n, epsilon, delta = 5000, 1.0, 1e-4
    places = np.linspace(0, 1, 50)
    shares = np.where(np.arange(50) % 25 == 0, 0.5, 0.0)
    scale = 2 / (n * epsilon)
    found = []
    for _ in range(50):
        noisy = np.where(shares > 0, shares + scale * rng.laplace(size=50), 0.0)
        noisy[noisy < scale * math.log(1 / delta) + 1 / n] = 0.0
        found.append(wasserstein_distance(places, places, shares, noisy / noisy.sum()))
    bound = thresholded_laplace_bound(shares, n, epsilon, delta, 1, 1.0)
    assert np.mean(found) < bound < 0.01
    # Votes that are spread are lost, and the bound says nothing.
    assert thresholded_laplace_bound(np.full(n, 1 / n), n, epsilon, delta, 1, 1.0) > 1.0


@pytest.mark.parametrize(
    ("call", "error", "message"),
    [
        (lambda: contraction_rate(0), ValueError, "d must be at least 1"),
        (lambda: gaussian_complexity_bound(10, 2, 0.0), ValueError, "diameter"),
        (lambda: lipschitz_complexity_bound(10, 2, 1.0, noise="no"), ValueError, "noise"),
        (lambda: sampling_bound(2.0, 2, 1.0), TypeError, "n must be an integer"),
        (
            lambda: step_error_bound(0.1, 0.1, 1, 1, 1, 1.0, complexity="no"),
            ValueError,
            "complexity",
        ),
        (
            lambda: convergence_bound(1.0, 1, contraction=1.0, step_error=0.1),
            ValueError,
            "contraction must be below 1",
        ),
        (
            lambda: convergence_bound(1.0, -1, contraction=0.5, step_error=0.1),
            ValueError,
            "n_iter",
        ),
        (lambda: thresholded_laplace_bound([0.7, 0.7], 9, 1.0, 0.1, 1, 1.0), ValueError, "shares"),
        (lambda: signed_measure_bound(0.1, 0, 0.1, 1, 1.0), ValueError, "n_points"),
    ],
    ids=["d", "diameter", "noise", "n", "complexity", "contraction", "n_iter", "shares", "points"],
)
def test_refusals(call, error, message):
    with pytest.raises(error, match=message):
        call()


def idealized(X, n_steps, sigmas, beta, rng, factor=2.0):
    """Return candidates, weights and numbers of kept cubes of the idealized schedule."""
    n, d = X.shape
    children = np.stack(np.meshgrid(*[[0, 1]] * d, indexing="ij"), axis=-1).reshape(-1, d)
    kept, numbers = np.zeros((1, d), dtype=int), []
    bound = math.sqrt(2 * math.log(2**d * n * n_steps / beta))
    for t in range(1, n_steps + 1):
        cubes = (2 * kept[:, None] + children).reshape(-1, d)
        centers = (cubes + 0.5) / 2**t
        if t < n_steps:
            own = np.floor(X * 2**t).astype(int)
            found = (own[:, None] == cubes[None]).all(axis=-1)
            votes = found.sum(axis=0)
        else:
            distances = np.linalg.norm(X[:, None] - centers[None], axis=-1)
            votes = np.bincount(distances.argmin(axis=1), minlength=len(centers))
        noisy = votes + sigmas[t - 1] * rng.normal(size=len(votes))
        families = noisy.reshape(-1, 2**d)
        passes = families > factor * bound * sigmas[t - 1]
        lonely = ~passes.any(axis=1)
        passes[lonely, families[lonely].argmax(axis=1)] = True
        if t < n_steps:
            kept = cubes[passes.ravel()]
            numbers.append(len(kept))
    return centers, project_bounded_lipschitz(centers, noisy / n), numbers


def idealized_bound(X, n_steps, sigmas, beta):
    """Return the bound of the documentation, and the numbers of cubes that hold records."""
    n, d = X.shape
    occupied = [len(np.unique(np.floor(X * 2**t), axis=0)) for t in range(n_steps)]
    m = min(2 ** (d * n_steps), 2**d * occupied[-1])
    threshold = 2 * math.sqrt(2 * math.log(2**d * n * n_steps / beta))
    lost = sum(2**-t * occupied[t] * threshold * sigmas[t - 1] for t in range(1, n_steps))
    chain = math.sqrt(m) + sum(
        2.0 ** (-t - 1) * math.sqrt(m * size) for t, size in enumerate([*occupied[1:], m], 1)
    )
    noise = math.sqrt(8 / math.pi) * sigmas[-1] / n * chain
    return math.sqrt(d) * (beta + 2.0 ** (-n_steps - 1) + 3 / n * lost + noise), occupied


@pytest.mark.slow
@pytest.mark.parametrize(("d", "n_steps"), [(1, 5), (2, 4), (3, 3)])
@pytest.mark.parametrize("shape", ["line", "cube", "spots"])
def test_the_idealized_schedule_stays_below_its_bound(d, n_steps, shape):
    rng, n, beta = np.random.default_rng(d), 4000, 1 / 4000
    X = rng.uniform(size=(n, d))
    if shape == "line":
        X = np.tile(X[:, :1], d)
    elif shape == "spots":
        X = X[rng.integers(3, size=n)]
    shares = 2.0 ** np.arange(n_steps) / (2**n_steps - 1)
    for scale in (0.3, 3.0, 30.0):
        sigmas = scale * np.sqrt(2 / shares)
        bound, occupied = idealized_bound(X, n_steps, sigmas, beta)
        found = []
        for _ in range(5):
            centers, weights, numbers = idealized(X, n_steps, sigmas, beta, rng)
            assert (np.array(numbers) <= occupied[1:]).all()
            kept, few = weights > 0, X[:500]
            costs = ot.dist(few, centers[kept], metric="euclidean")
            mass = weights[kept] / weights[kept].sum()
            found.append(ot.emd2(np.full(500, 1 / 500), mass, costs, numItermax=10**7))
        # The first 500 records differ from all by their own distance to them at most.
        rest = ot.emd2([], [], ot.dist(few, X[500:1000], metric="euclidean"), numItermax=10**7)
        assert np.mean(found) < bound + rest
        # Negative twin: without a threshold noise keeps cubes without records.
        if shape == "spots":
            _, _, numbers = idealized(X, n_steps, sigmas, beta, rng, factor=0.0)
            assert (np.array(numbers) > occupied[1:]).any()
        # It is not far above what is measured where noise is small.
        if scale == 0.3:
            assert bound < 25 * (np.mean(found) + rest)
