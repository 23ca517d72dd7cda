"""The distance by histograms: what one record moves, its noise, its price, its test, its errors."""

import math
from dataclasses import FrozenInstanceError

import numpy as np
import pytest
import torch
from distance_cases import has_the_stated_noise
from scipy import stats

from sklearn_dpgen.accounting import calibrate_noise_multiplier
from sklearn_dpgen.domains import Ball, Box
from sklearn_dpgen.exceptions import BudgetExceededError
from sklearn_dpgen.ledger import PrivacyLedger
from sklearn_dpgen.mechanisms._sequence import GaussianSequenceRun
from sklearn_dpgen.ot import random_directions, sliced_wasserstein
from sklearn_dpgen.smoothed import _distance, _histograms, private_sliced_wasserstein
from sklearn_dpgen.utils._random import NoiseSource, noise_source

pytestmark = pytest.mark.filterwarnings("ignore:Y has too few rows:UserWarning")
BALL = Ball(2.0, n_features=3)
# Largest change of the moments of a record in the unit ball, at weight 1 of second moments.
MOMENTS = math.sqrt(2 + 2 + 0.5)
SHARES = (0.2, 0.8)


def sample(n, shift=0.0, seed=0, d=3):
    return np.random.default_rng(seed).normal(shift, 0.5, size=(n, d))


def private(X, Y, **changes):
    quick = {"epsilon": 1.0, "domain": BALL, "random_state": 0, "n_draws": 1, "level": None}
    return private_sliced_wasserstein(X, Y, **quick | changes)


def true_distance(X, Y, p, domain=BALL):
    X, Y = (torch.tensor(domain.project(Z)) for Z in (X, Y))
    theta = random_directions(300, X.shape[1], generator=torch.Generator().manual_seed(1))
    return sliced_wasserstein(X, Y, directions=theta.double(), p=p).item() ** (1 / p)


# ---- release ----


@pytest.fixture
def vectors(monkeypatch):
    """Return a list of what goes into the releases, before noise."""
    seen, release = [], GaussianSequenceRun.release

    def watch(self, value, noise):
        seen.append(value.copy())
        return release(self, value, noise)

    monkeypatch.setattr(GaussianSequenceRun, "release", watch)
    return seen


def worst_pair(domain):
    """Return two records far outside, whose projections on the ball are at an angle of 120°."""
    first = np.array([1.0, 0.3, -0.2])
    second = np.cross(first, [0.1, 1.0, 0.5])
    first, second = (v / np.linalg.norm(v) for v in (first, second))
    center = getattr(domain, "center", np.zeros(3))
    return [center + 1e6 * v for v in (first, math.sqrt(0.75) * second - first / 2)]


def changes(vectors, domain, pair, **options):
    """Return how far one record moves each vector, and how many counts it moves."""
    X = sample(30)
    for record in pair:
        X[4] = record
        private(X, sample(40, seed=1), domain=domain, **options)
    moments, counts, other_moments, other_counts = vectors
    vectors.clear()
    moved = other_counts - counts
    return np.linalg.norm(other_moments - moments), np.linalg.norm(moved), (moved != 0).sum()


@pytest.mark.slow
def test_a_record_moves_each_release_by_its_sensitivity_at_most(vectors):
    moments, counts, n_moved = changes(vectors, BALL, worst_pair(BALL))
    # Attained: by the moments up to the grid of their points, by the counts up to rounding.
    assert 0.999 < moments <= 1
    assert n_moved == 2 * 3
    assert counts == pytest.approx(1, abs=1e-12)
    for seed in range(6):
        pair = 10 * np.random.default_rng(seed).normal(size=(2, 3))
        for domain in (BALL, Box(-1.0, [1.0, 0.5, 2.0]), Ball(0.3, center=[5.0, 5.0, 1e9])):
            found = changes(vectors, domain, pair, n_projections=5, n_cells=11)
            assert max(found[:2]) <= 1 + 1e-12


def test_a_record_on_the_edge_of_a_cell_is_in_one_cell(vectors):
    line = Box(-1.0, 1.0, n_features=1)
    edge = private(np.zeros((9, 1)), sample(40, d=1), domain=line).histograms.edges[0, 1]
    for value in (edge, np.nextafter(edge, 1), np.nextafter(edge, -1)):
        vectors.clear()
        private(np.full((9, 1), value), sample(40, d=1), domain=line)
        counts = vectors[1] * math.sqrt(2)
        assert counts.max() == pytest.approx(9)
        assert counts.sum() == pytest.approx(9)


def test_a_wrong_sensitivity_is_found(vectors, monkeypatch):
    query, cells_of = _distance.moment_query, _distance.cells_of

    def smaller(*sizes):
        found = query(*sizes)
        object.__setattr__(found, "sensitivity", 0.95 * found.sensitivity)
        return found

    with monkeypatch.context() as patch:
        patch.setattr(_distance, "moment_query", smaller)
        assert changes(vectors, BALL, worst_pair(BALL))[0] > 1.04

    def both(projected, edges):
        # A record counts in two histograms of each direction, of which only one is paid for.
        return np.hstack(2 * [cells_of(projected, edges)])

    monkeypatch.setattr(_distance, "cells_of", both)
    X, found = sample(30), []
    for record in worst_pair(BALL):
        vectors.clear()
        X[4] = record
        with pytest.raises(ValueError, match="reshape"):
            private(X, sample(40, seed=1))
        found.append(vectors[1])
    assert np.linalg.norm(found[0] - found[1]) == pytest.approx(math.sqrt(2))


@pytest.mark.parametrize("epsilon", [0.3, 4.0])
def test_the_noise_is_that_of_the_price(epsilon, vectors):
    X, Y = 3 * sample(400), sample(100, seed=1)
    multiplier = calibrate_noise_multiplier(epsilon, 0.1 / 400)
    errors = []
    for seed in range(40):
        result = private(X, Y, epsilon=epsilon, n_cells=32, random_state=seed)
        moments, counts = vectors[-2:]
        released = result.histograms
        errors.append(
            np.concatenate(
                [
                    400 * released.moments / MOMENTS - moments,
                    400 * released.shares.ravel() / math.sqrt(2 * 3) - counts,
                ]
            )
        )
    # A fifth of the budget is for moments, on the scale of squares.
    for part, share in zip(np.split(np.array(errors), [len(moments)], axis=1), SHARES, strict=True):
        scale = multiplier / math.sqrt(share)
        assert has_the_stated_noise(part, scale)
        for broken in (part / 2, 1.2 * part, np.repeat(part[:, :1], part.shape[1], axis=1)):
            assert not has_the_stated_noise(broken, scale)
    privacy = result.privacy
    assert privacy.noise_multiplier == pytest.approx(multiplier, rel=1e-6)
    ((profile, times),) = privacy.releases
    assert times == 1
    assert profile.epsilon(privacy.delta) <= epsilon


def separation(n_fits, epsilon=4.0):
    """Return how far an attacker separates two neighbours, in standard deviations.

    The attacker knows both tables, the directions and the cells, and weighs all values by their
    expected difference.
    """
    X, Y = sample(20), sample(200, seed=1)
    tables = []
    for record in worst_pair(BALL):
        X[4] = record
        tables.append(X.copy())
    query = _histograms.moment_query(2.0, 3, 20)
    codes = np.zeros(20, dtype=np.int64)
    moments = [query.vector(BALL.project(table), codes) / MOMENTS for table in tables]
    found, weights = [], np.sqrt(SHARES)
    for table in tables:
        scores = []
        for seed in range(n_fits):
            released = private(table, Y, epsilon=epsilon, random_state=seed).histograms
            counts = [counted(BALL.project(other), released) for other in tables]
            noisy = [20 * released.moments / MOMENTS, 20 * released.shares.ravel() / math.sqrt(6)]
            # In units of the noise, which is larger for a smaller share.
            score = norm = 0.0
            for part, (a, b), weight in zip(noisy, (moments, counts), weights, strict=True):
                score += weight**2 * (part - (a + b) / 2) @ (b - a)
                norm += weight**2 * (b - a) @ (b - a)
            scores.append(score / math.sqrt(norm))
        found.append(np.array(scores))
    return (found[1].mean() - found[0].mean()) / np.sqrt(np.mean([s.var() for s in found]))


def counted(X, released):
    cells = [
        np.histogram(column, [-np.inf, *edges, np.inf])[0]
        for column, edges in zip((X @ released.directions.T).T, released.edges, strict=True)
    ]
    return np.concatenate(cells) / math.sqrt(6)


@pytest.mark.slow
def test_an_attacker_separates_neighbours_as_far_as_the_price_says(monkeypatch):
    n_fits = 50
    # The pair attains both sensitivities.
    paid = 1 / calibrate_noise_multiplier(4.0, 0.1 / 20)
    error = math.sqrt(2 / n_fits + paid**2 / (4 * n_fits))
    assert abs(separation(n_fits) - paid) < 4 * error
    add = NoiseSource.add

    def quieter(self, values, scale, kind="gaussian"):
        return add(self, values, scale / 2, kind)

    monkeypatch.setattr(NoiseSource, "add", quieter)
    assert separation(n_fits) > paid + 4 * error


def test_the_ledger_is_charged_before_the_release(tmp_path, monkeypatch):
    ledger = PrivacyLedger.create(tmp_path / "of.ledger", dataset="t", epsilon=0.6, delta=1e-2)
    X, Y = sample(50), sample(60, seed=1)
    result = private(X, Y, ledger=ledger, delta=1e-4, random_state=None)
    (charge,) = ledger.report().charges
    assert charge.report == result.privacy
    result.distance_to(Y)
    result.null_distances(Y, n_draws=2)
    assert len(ledger.report().charges) == 1

    def no_draw(self, size):
        raise AssertionError("a draw was made")

    monkeypatch.setattr(NoiseSource, "_uniform", no_draw)
    with pytest.raises(BudgetExceededError):
        private(X, Y, ledger=ledger, delta=1e-4, random_state=None)
    with pytest.raises(AssertionError, match="a draw was made"):
        private(X, Y, random_state=None)


def noise_of(vectors, **changed):
    vectors.clear()
    options = {"X": sample(40), "Y": sample(30, seed=1), "n_cells": 8} | changed
    released = private(options.pop("X"), options.pop("Y"), **options).histograms
    noise = 40 * released.shares.ravel() / math.sqrt(6) - vectors[1]
    return noise / noise.std()


@pytest.mark.slow
def test_a_seed_repeats_the_noise_of_the_same_release_alone(vectors, monkeypatch):
    neighbour = sample(40)
    neighbour[0, 0] += 0.01
    others = [
        {"X": neighbour},
        {"Y": sample(30, seed=2)},
        {"epsilon": 1.1},
        {"domain": Ball(2.1, n_features=3)},
        {"random_state": 1},
        {"random_state": None},
    ]

    def correlations():
        draws = [noise_of(vectors), *(noise_of(vectors, **other) for other in others)]
        return np.abs(np.corrcoef(draws)[0, 1:])

    np.testing.assert_array_equal(noise_of(vectors), noise_of(vectors))
    # Test and interval are post-processing, with draws of their own.
    np.testing.assert_array_equal(noise_of(vectors), noise_of(vectors, n_draws=3, p=1, level=0.9))
    assert correlations().max() < 0.9
    # Twin: a source that is bound to nothing, and vectors that it does not see.
    monkeypatch.setattr(_distance, "noise_source", lambda seed, *bound: noise_source(seed))
    monkeypatch.setattr(NoiseSource, "bind", lambda self, *parts: self)
    assert correlations()[:4].min() > 0.99


# ---- test ----


def ranks(n_tests, reference, *, is_drawn, n=120, m=80):
    """Return the p-values, of 20 possible ones, of samples with the same distribution.

    Private records are drawn from the public ones, or from their distribution.
    """
    found = []
    for seed in range(n_tests):
        rng = np.random.default_rng(seed)
        Y = np.column_stack([rng.exponential(0.4, m), rng.integers(3, size=m) / 2])
        if is_drawn:
            X = Y[rng.integers(m, size=n)]
        else:
            X = np.column_stack([rng.exponential(0.4, n), rng.integers(3, size=n) / 2])
        options = {"n_draws": 19, "reference": reference, "random_state": seed}
        result = private(X, Y, epsilon=8.0, domain=Ball(2.0, n_features=2), **options)
        found.append(result.pvalue)
    return np.array(found)


def uniformity(pvalues):
    counts = np.bincount((20 * pvalues).round().astype(int), minlength=21)[1:]
    return stats.chisquare(counts.reshape(5, 4).sum(axis=1)).pvalue


@pytest.mark.slow
def test_p_values_are_uniform_if_records_are_drawn_from_the_public_ones(monkeypatch):
    assert uniformity(ranks(120, "population", is_drawn=True)) > 1e-3
    noisy = _histograms.NoisyHistograms._noisy

    def quieter(self, values, scale, generator):
        return noisy(self, values, scale / 2, generator)

    monkeypatch.setattr(_histograms.NoisyHistograms, "_noisy", quieter)
    assert uniformity(ranks(120, "population", is_drawn=True)) < 1e-6


@pytest.mark.slow
def test_two_samples_of_one_distribution_are_rejected_at_the_level():
    rejected = (ranks(120, "sample", is_drawn=False) <= 0.05).sum()
    low, high = stats.binom.interval(0.999, 120, 0.05)
    assert low <= rejected <= high
    # Twin: that Y is a sample too is left out.
    assert (ranks(120, "population", is_drawn=False) <= 0.05).sum() > high


@pytest.mark.slow
def test_it_sees_what_noise_on_each_record_hides():
    """Four changes of 2000 records at ε = 1, in a ball of four standard deviations."""
    domain, rng = Ball(4.0, n_features=3), np.random.default_rng(0)
    Y, X = rng.normal(size=(2, 2000, 3))
    correlated = X.copy()
    correlated[:, 1] = 0.4 * X[:, 0] + math.sqrt(1 - 0.16) * X[:, 1]
    bimodal = 0.436 * X + 0.9 * np.sign(rng.normal(size=X.shape))
    options = {"domain": domain, "n_draws": 99}
    for changed in (X + 0.15, 1.15 * X, correlated, bimodal):
        assert private(changed, Y, **options).pvalue <= 0.02
        released = _distance.smoothed_sliced_wasserstein(
            changed, Y, epsilon=1.0, domain=domain, random_state=0
        )
        null = released.null_distances(Y, n_draws=39, random_state=1)
        assert (null >= released.distance).mean() > 0.03
    assert private(X, Y, **options).pvalue > 0.05


# ---- distance ----


@pytest.mark.slow
@pytest.mark.parametrize("p", [1, 2])
def test_the_distance_is_that_of_the_samples(p):
    Y = sample(4000, seed=1)
    for X in (sample(4000), sample(4000, 0.3), 1.5 * sample(4000), np.abs(sample(4000))):
        true = true_distance(X, Y, p)
        for epsilon, most in ((1.0, 0.02), (np.inf, 0.015)):
            result = private(X, Y, p=p, epsilon=epsilon)
            assert result.distance == pytest.approx(true, abs=most)
            assert result.distance_to(Y) == result.distance


@pytest.mark.parametrize("mean", [3.0, 3.3, 4.0])
def test_counts_have_their_distance_too(mean):
    """Edges are between values, and a shift of equal values counts once."""
    rng, line = np.random.default_rng(0), Box(0.0, 20.0, n_features=1)
    X, Y = rng.poisson(mean, (2000, 1)), rng.poisson(3.0, (2000, 1))
    true = stats.wasserstein_distance(X[:, 0], Y[:, 0])
    for epsilon in (5.0, np.inf):
        result = private(X, Y, p=1, epsilon=epsilon, domain=line)
        assert result.distance == pytest.approx(true, abs=0.15)
    # Records less the center of the box, 10, are whole numbers.
    edges = result.histograms.edges
    assert not np.isclose(edges, np.rint(edges), atol=1e-6).any()
    assert (np.diff(edges) >= 0).all()


@pytest.mark.slow
def test_the_bias_of_the_noise_is_removed(monkeypatch):
    X, Y = sample(300), sample(300, seed=1)

    def mean_distance():
        options = {"n_cells": 8, "epsilon": 0.5}
        results = [private(X, Y, random_state=seed, **options) for seed in range(20)]
        return np.mean([result.distance for result in results])

    assert mean_distance() < true_distance(X, Y, 2) + 0.03
    monkeypatch.setattr(_histograms, "kept_share", lambda difference, noise: 1.0)
    assert mean_distance() > true_distance(X, Y, 2) + 0.06


@pytest.mark.slow
def test_the_interval_holds_the_distance():
    held, Y = 0, sample(1500, seed=99)
    for seed in range(6):
        X = sample(1500, 0.05 * (seed % 3), seed=seed)
        result = private(X, Y, level=0.95, random_state=seed)
        low, high = result.interval
        assert 0 <= low <= result.distance <= high
        held += low <= true_distance(X, Y, 2) <= high
    assert held >= 5


@pytest.mark.parametrize("d", [1, 2, 33])
def test_few_and_many_features(d):
    domain = Ball(2.0 * math.sqrt(d), n_features=d)
    X, Y = sample(800, 0.5, d=d), sample(700, seed=1, d=d)
    result = private(X, Y, domain=domain, epsilon=5.0, n_draws=19)
    assert result.directions.shape == (min(d, 20), d)
    assert result.pvalue == 0.05
    assert result.distance == pytest.approx(0.5, abs=0.09)
    null = result.null_distances(Y, n_draws=5, random_state=0)
    assert null.max() < 0.2
    assert result.distance_to(Y + 0.5) < 0.3


def test_more_cells_where_there_is_less_noise():
    X, Y = sample(300), sample(400, seed=1)
    cells = [private(X, Y, epsilon=e).histograms.n_cells for e in (0.1, 20.0, 1000.0, np.inf)]
    assert cells == sorted(cells)
    assert cells[-1] == 32
    assert private(X, Y, n_cells=5, n_projections=2).histograms.shares.shape == (2, 5)


@pytest.mark.slow
def test_degenerate_samples():
    point = np.zeros((5, 3))
    for X, Y in ((point, point), (sample(5), point), (point, sample(5)), (sample(1), sample(6))):
        result = private(X, Y, level=0.9, n_draws=3)
        assert math.isfinite(result.distance)
        assert 0 < result.pvalue <= 1
        assert all(map(math.isfinite, result.interval))


@pytest.mark.parametrize("reference", ["sample", "population"])
@pytest.mark.parametrize("d", [1, 2])
def test_equal_records_without_noise_are_ties(d, reference):
    X = np.full((200, d), 0.1)
    options = {"domain": Ball(4.0, n_features=d), "epsilon": np.inf, "n_draws": 39}
    assert private(X, X, reference=reference, **options).pvalue == 1
    assert private(X, X + 0.1, reference=reference, **options).pvalue == 1 / 40


def test_few_public_rows_have_no_pvalue():
    X, Y = sample(400), sample(60, seed=1)
    with pytest.warns(UserWarning, match="Y has too few rows, 60, for a p-value"):
        assert private(X, Y).pvalue is None
    assert private(X, Y, reference="population").pvalue is not None
    assert private(sample(50), Y).pvalue is not None
    # Automatic cells have ten rows each.
    with pytest.warns(UserWarning, match="too few rows"):
        assert private(X, Y, epsilon=100.0).histograms.n_cells == 6


def test_a_domain_whose_squares_overflow_is_refused():
    with pytest.raises(ValueError, match="domain must have a radius of at most"):
        private(sample(9), sample(9), domain=Ball(1e200, n_features=3))


def test_the_result_is_frozen_and_may_be_shown():
    result = private(sample(20), sample(20, seed=1))
    assert result.projections is None
    with pytest.raises(FrozenInstanceError):
        result.distance = 0.0
    for array in (result.directions, result.histograms.shares, result.histograms.moments):
        with pytest.raises(ValueError, match="read-only"):
            array[0] = 0
    assert "array" not in repr(result)


@pytest.mark.parametrize(
    ("changed", "error", "match"),
    [
        ({"epsilon": 0}, ValueError, "epsilon must be positive"),
        ({"delta": 1.0}, ValueError, "delta must be"),
        ({"domain": 1.5}, TypeError, "domain must be a Domain, got float"),
        ({"n_projections": 0}, ValueError, "n_projections must be at least 1"),
        ({"n_cells": 1}, ValueError, "n_cells must be at least 2"),
        ({"n_cells": "many"}, ValueError, "n_cells must be one of"),
        ({"p": 0.5}, ValueError, "p must be at least 1"),
        ({"reference": "both"}, ValueError, "reference must be one of"),
        ({"n_draws": 0}, ValueError, "n_draws must be at least 1"),
        ({"level": 1.0}, ValueError, "level must be"),
    ],
)
def test_invalid_parameters(changed, error, match):
    with pytest.raises(error, match=match):
        private(sample(5), sample(6), **changed)
