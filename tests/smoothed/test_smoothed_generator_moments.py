"""The smoothed generator on released moments: what it releases, and that it learns from that alone.

Releases are watched where their noise is added, in units of the sensitivity that is priced.
"""

import math
from dataclasses import replace
from functools import partial

import numpy as np
import pytest
import torch
from numpy.testing import assert_allclose, assert_array_equal
from scipy.stats import norm

from sklearn_dpgen.domains import Ball, Box, Domain, OneHot, Product
from sklearn_dpgen.mechanisms import BallMeans, BallMoments, ClassSums
from sklearn_dpgen.mechanisms._sequence import GaussianSequenceRun
from sklearn_dpgen.moments import MomentSampler
from sklearn_dpgen.nn import Training
from sklearn_dpgen.ot._lines import LineGrid
from sklearn_dpgen.preprocessing import DCTTransformer
from sklearn_dpgen.smoothed import NoisyRelease, SmoothedSlicedWassersteinGenerator, _releases

KINDS = ["none", "public", "private", "declared"]
every_kind = pytest.mark.parametrize("kind", KINDS)
BALL = Ball(2.0, center=[3.0, 0.0])
LABELS = np.array([0, 0, 0, 1, 1, 1, 1, 0])
pytestmark = pytest.mark.filterwarnings("ignore:The noise on the mean:UserWarning")


def options_of(kind, **options):
    given = {"domain": BALL, "random_state": 0, "delta": 1e-3}
    if kind != "none":
        given |= {"labels": "public" if kind == "public" else "private", "classes": [0, 1]}
    if kind == "declared":
        given["label_proportions"] = [0.5, 0.5]
    return given | options


@pytest.fixture
def fit(tiny_generator):
    def fit(kind, X, y, **options):
        given = options_of(kind, release__kind="moments", training__max_iter=1) | options
        return tiny_generator(**given).fit(X, None if kind == "none" else y)

    return fit


@pytest.fixture
def noisy(monkeypatch):
    """Return a list that collects what went into each release and what came out."""
    seen = []
    release = GaussianSequenceRun.release

    def watch(self, value, noise):
        seen.append((value.copy(), release(self, value, noise)))
        return seen[-1][1]

    monkeypatch.setattr(GaussianSequenceRun, "release", watch)
    return seen


# One record moves each release by what is priced.


def sensitivities(kind):
    """Return the squared weight of a count, and the sensitivities, in closed form."""
    count = 1.5 / math.sqrt(3) if kind == "private" else 0.0
    first = math.sqrt(2 * (1.5 + count)) if kind == "private" else 2.0
    return count, first, math.sqrt(2 + 2 * 2.0**2 + 0.5 / 2.0**2)


def narrow_classes(kind):
    """Return a first release of means at the center and of small mean squares."""
    n_classes, size = (1, 8) if kind == "none" else (2, 4)
    count, first, _ = sensitivities(kind)
    row = [0.0, 0.0, 0.01 * size / math.sqrt(2)]
    row += [math.sqrt(count) * size] if kind == "private" else []
    return np.tile(row, n_classes) / first


def largest_changes(fit, kind, monkeypatch):
    """Return the largest changes by one record of the first release, and of the second given it."""
    seen = []

    def fixed(self, value, noise):
        seen.append(value.copy())
        return narrow_classes(kind) if len(seen) % 2 else value

    monkeypatch.setattr(GaussianSequenceRun, "release", fixed)
    rng = np.random.default_rng(0)
    largest = np.zeros(2)
    for trial in range(6):
        X = BALL.center + rng.normal(size=(8, 2))
        other, labels = X.copy(), LABELS.copy()
        X[0], other[0] = BALL.center + 50 * rng.normal(size=(2, 2))
        if trial % 3:
            # Opposite for the sums of records, at the angle of the proof for their squares.
            turn = np.pi if trial % 3 == 1 else math.acos(-0.5 / 2.0**2)
            angle = rng.uniform(0, 2 * np.pi) + np.array([0, turn])
            X[0], other[0] = BALL.center + 9 * np.column_stack([np.cos(angle), np.sin(angle)])
        elif kind in ("private", "declared"):
            labels[0] = 1
        seen.clear()
        for records, y in ((X, LABELS), (other, labels)):
            fit(kind, records, y, epsilon=1000.0)
        changes = [np.linalg.norm(a - b) for a, b in zip(seen[:2], seen[2:], strict=True)]
        largest = np.maximum(largest, changes)
    return largest


def within_and_reached(changes):
    return bool((changes <= 1).all() and (changes > 1 - 1e-3).all())


@pytest.mark.slow
@every_kind
def test_one_record_moves_the_releases_by_what_is_priced(fit, kind, monkeypatch):
    assert within_and_reached(largest_changes(fit, kind, monkeypatch))
    # Negative twins: sums that are weighed by a little more, or less, than is priced.
    vector = ClassSums.vector
    for factor in (1.002, 0.99):
        monkeypatch.setattr(ClassSums, "vector", lambda *given, a=factor: a * vector(*given))
        assert not within_and_reached(largest_changes(fit, kind, monkeypatch))


@every_kind
def test_records_that_are_not_clipped_are_caught(fit, kind, monkeypatch):
    for owner in (Domain, Ball):
        monkeypatch.setattr(owner, "project", lambda self, X: X)
    monkeypatch.setattr(
        BallMoments, "_multiples", lambda self, X: np.rint(X / self.ball.radius * 2.0**18)
    )
    monkeypatch.setattr(
        BallMeans, "transform", lambda self, X: np.column_stack([X, (X**2).sum(axis=1)])
    )
    assert (largest_changes(fit, kind, monkeypatch) > 3).all()


# The noise is that of the budget, and each release has its own.


def is_calibrated(value, out, share, epsilon, delta):
    """Whether noise is the least that keeps the releases to the budget, of which this is a part."""
    spread = np.std(out - value) * math.sqrt(share)

    def spent(multiplier):
        a, b = 0.5 / multiplier, epsilon * multiplier
        return norm.cdf(a - b) - math.exp(epsilon) * norm.cdf(-a - b)

    tolerance = 5 / math.sqrt(2 * len(value))
    return spent(spread * (1 + tolerance)) < delta < spent(spread * (1 - tolerance))


@every_kind
def test_the_noise_is_that_of_the_budget(fit, noisy, kind):
    rng = np.random.default_rng(0)
    X, y = rng.normal(size=(50, 200)) / 20, rng.integers(0, 2, 50)
    fit(kind, X, y, epsilon=2.0, domain=Ball(1.0, n_features=200))
    assert len(noisy) == 2
    for (value, out), share in zip(noisy, (0.1, 0.9), strict=True):
        assert is_calibrated(value, out, share, 2.0, 1e-3)
        # Negative twins: half the noise, and twice.
        for factor in (0.5, 2.0):
            assert not is_calibrated(value, value + factor * (out - value), share, 2.0, 1e-3)


# Releases are all that depends on the records.


@pytest.fixture
def told_by_releases_alone(fit, weights_of, monkeypatch):
    """Return a check that data sets with the same releases give the same fit."""

    def check(kind, release=None):
        fixed = np.random.default_rng(0).normal(size=200)

        def same(self, value, noise):
            return fixed[: len(value)].copy()

        monkeypatch.setattr(GaussianSequenceRun, "release", release or same)
        fits = []
        for seed in (1, 2):
            X = np.random.default_rng(seed).normal(3, 1, size=(8, 2))
            y = LABELS if kind == "public" or seed == 1 else np.append(LABELS[:-1], 1)
            fits.append(fit(kind, X, y, random_state=5, training__max_iter=3))
        first, second = fits
        return (
            first.privacy_ == second.privacy_
            and np.array_equal(weights_of(first), weights_of(second))
            and first.loss_curve_ == second.loss_curve_
            and np.array_equal(
                getattr(first, "label_proportions_", 0), getattr(second, "label_proportions_", 0)
            )
            and np.array_equal(first.sample(5, random_state=0), second.sample(5, random_state=0))
        )

    return check


@every_kind
def test_the_fit_follows_from_the_releases(told_by_releases_alone, kind):
    assert told_by_releases_alone(kind)
    assert not told_by_releases_alone(kind, lambda self, value, noise: value.copy())


def test_class_sizes_that_are_read_though_private_are_caught(told_by_releases_alone, monkeypatch):
    release = SmoothedSlicedWassersteinGenerator._release

    def leak(self, plan, records, seed):
        sizes = np.bincount(records[1]).astype(float)
        plan = replace(plan, details=replace(plan.details, sizes=sizes))
        return release(self, plan, records, seed)

    monkeypatch.setattr(SmoothedSlicedWassersteinGenerator, "_release", leak)
    assert told_by_releases_alone("public")
    assert not told_by_releases_alone("declared")


@every_kind
def test_the_price_is_that_of_moments(fit, kind):
    X = BALL.sample(8, np.random.default_rng(0))
    generator = fit(kind, X, LABELS, epsilon=0.7)
    sampler = MomentSampler(**options_of(kind), epsilon=0.7)
    sampler.fit(X, None if kind == "none" else LABELS)
    report, same = generator.privacy_, sampler.privacy_
    assert report.events == same.events
    for name in ("epsilon", "delta", "n_releases", "noise_scale", "sensitivity", "neighbouring"):
        assert getattr(report, name) == getattr(same, name)
    assert set(report.public) == set(same.public)
    assert "seed" in report.noise_source
    assert generator.noise_multiplier_ == sampler.noise_multiplier_
    free = fit(kind, X, LABELS, epsilon=np.inf)
    assert (free.privacy_.epsilon, free.privacy_.delta, free.noise_multiplier_) == (np.inf, 0, 0)


def test_other_declared_proportions_are_sampled_by_and_may_be_zero(fit):
    X = BALL.sample(8, np.random.default_rng(0))
    generator = fit("declared", X, np.zeros(8, dtype=int), label_proportions=[1.0, 0.0])
    assert generator.sample_labels(9, random_state=0).tolist() == [0] * 9
    assert np.isfinite(generator.sample(4, y=1, random_state=0)).all()


def test_noise_that_hides_the_means_is_warned_of_where_fit_is_called(tiny_generator):
    X = np.random.default_rng(0).normal(size=(40, 3))
    with pytest.warns(UserWarning, match="The noise on the mean of a class is") as caught:
        tiny_generator(release__kind="moments", epsilon=0.1).fit(X)
    assert caught[0].filename == __file__


# The laws on lines are those of the moments, and the network learns them.


def test_bins_hold_the_mass_of_normal_laws():
    grid = LineGrid.around(1.0, 0.0)
    rng = np.random.default_rng(0)
    A = rng.normal(size=(3, 3)) / 6
    means, covariances = np.array([[0.3, 0.0, -0.4]]), (A @ A.T)[None]
    directions = np.eye(3)
    scales = np.sqrt(covariances.diagonal(axis1=1, axis2=2))
    masses = _releases._bin_masses(grid, means @ directions.T, scales)
    assert_allclose(masses.sum(axis=-1), 1)
    draws = rng.multivariate_normal(means[0], covariances[0], size=200000)
    counts = grid.counts(torch.tensor(draws), torch.tensor(directions)).numpy()
    error = 5 * np.sqrt(masses[0] / len(draws)) + 1e-4
    assert (abs(counts / len(draws) - masses[0]) < error).all()
    other = _releases._bin_masses(grid, means @ directions.T, 1.1 * scales)
    assert not (abs(counts / len(draws) - other[0]) < error).all()


def test_lines_have_the_law_of_the_moments(fit, monkeypatch):
    """The distance of points to the released laws vanishes for points of these, and no others."""
    made = []
    laws = _releases.normal_laws
    monkeypatch.setattr(
        "sklearn_dpgen.smoothed._generator.normal_laws",
        lambda *given, **options: made.append(laws(*given, **options)) or made[-1],
    )
    rng = np.random.default_rng(0)
    domain = Ball(3.0, center=[9.0, 0.0])
    covariance = np.array([[0.5, 0.3], [0.3, 0.4]])
    X = rng.multivariate_normal([9.5, 0.5], covariance, size=4000)
    fit("none", X, None, epsilon=np.inf, domain=domain, release__n_projections=20)

    def distance(points):
        points = torch.tensor(points - domain.center, dtype=torch.float32)[None]
        return float(made[0].distance(points, torch.Generator().manual_seed(0)))

    least = distance(rng.multivariate_normal([9.5, 0.5], covariance, size=20000))
    for mean, other in (
        ([9.7, 0.5], covariance),
        ([9.5, 0.5], 1.3 * covariance),
        ([9.5, 0.5], np.diag(np.diag(covariance))),
    ):
        assert distance(rng.multivariate_normal(mean, other, size=20000)) > 10 * least


def two_normals(n_samples, seed):
    rng = np.random.default_rng(seed)
    y = rng.integers(0, 2, n_samples)
    factors = np.array([[[0.3, 0.0], [0.25, 0.1]], [[0.1, 0.0], [0.0, 0.3]]])
    means = np.array([[0.5, 0.0], [-0.5, 0.3]])
    return means[y] + np.einsum("nij,nj->ni", factors[y], rng.normal(size=(n_samples, 2))), y


@pytest.mark.slow
def test_moments_tell_more_than_records_at_the_same_budget():
    X, y = two_normals(2000, 0)
    X_test, y_test = two_normals(3000, 1)
    options = options_of("private", domain=Ball(2.0, n_features=2), delta=1e-5)
    score = {}
    for release in ("records", "moments"):
        generator = SmoothedSlicedWassersteinGenerator(
            release=NoisyRelease(release, batch_size=10, n_epochs=5.0),
            training=Training(hidden_layer_sizes=(40,), max_iter=200),
            **options,
        )
        score[release] = generator.fit(X, y).score(X_test, y_test)
    assert score["moments"] > 0.5 * score["records"]
    assert score["moments"] > -0.2


@pytest.mark.slow
def test_images_have_the_moments_of_their_cosines():
    """Pixels end in a sigmoid, and moments are of their low frequencies."""
    mask = np.zeros((4, 4), dtype=bool)
    mask[:2, :2] = True
    dct = DCTTransformer((4, 4), mask=mask).fit(np.zeros((1, 16)))
    rng = np.random.default_rng(0)
    low = np.diag([0.4, 0.3, 0.2, 0.1]) @ rng.normal(size=(4, 1000)) + [[2.0], [0.3], [0], [0]]
    generator = SmoothedSlicedWassersteinGenerator(
        np.inf,
        domain=Ball(2.0, center=[2.0, 0.0, 0.0, 0.0]),
        output_domain=Box(0.0, 1.0, n_features=16),
        output_transform=dct,
        release=NoisyRelease("moments", shape_weight=5.0),
        training=Training(hidden_layer_sizes=(40,), max_iter=300),
        random_state=0,
    )
    images = generator.fit(low.T).sample(2000, random_state=0)
    assert images.shape == (2000, 16)
    assert ((images >= 0) & (images <= 1)).all()
    made = dct.transform(images)
    assert_allclose(made.mean(axis=0), low.mean(axis=1), atol=0.05)
    assert_allclose(made.std(axis=0), low.std(axis=1), atol=0.06)


def test_parameters_of_the_records_have_no_part_in_moments(fit, weights_of):
    X = BALL.sample(8, np.random.default_rng(0))

    def weights(epsilon=math.inf, **options):
        return weights_of(fit("none", X, None, epsilon=epsilon, **options))

    assert_array_equal(weights(), weights(release__batch_size=99, release__n_epochs=7.0))
    assert not np.array_equal(weights(), weights(epsilon=1.0))


def test_other_domains_and_lines(fit):
    rng = np.random.default_rng(0)
    domain = Product([Box(3, 4), OneHot(3)])
    X = domain.sample(30, rng)
    for options in ({}, {"release__shape_weight": 3.0, "release__directions": "independent"}):
        samples = fit("none", X, None, domain=domain, **options).sample(5, random_state=0)
        assert domain.contains(samples).all()
    assert fit("none", X[:, :1], None, domain=partial(Box, 3, 4)).sample(2).shape == (2, 1)
    with pytest.raises(ValueError, match="'kind' parameter"):
        fit("none", X, None, domain=domain, release__kind="means")
