"""Sums by class: how far a record moves them, how much noise they get, that they are exact."""

import math
from dataclasses import FrozenInstanceError, replace
from fractions import Fraction

import numpy as np
import pytest
import torch
from numpy.testing import assert_allclose, assert_array_equal
from scipy.stats import norm

from sklearn_dpgen.accounting import PrivacyReport
from sklearn_dpgen.domains import Ball
from sklearn_dpgen.mechanisms import BallMeans, BallMoments, ClassSumMechanism, ClassSums
from sklearn_dpgen.mechanisms import _class_sums as module
from sklearn_dpgen.mechanisms._class_sums import BoundedFeatures
from sklearn_dpgen.utils._random import noise_source


class Axes(BoundedFeatures):
    """Non-negative records of three features, moved into the unit ball."""

    n_features_out = 3
    radius = 1.0
    diameter = math.nextafter(math.sqrt(2), 2)

    def transform(self, X):
        X = X if isinstance(X, torch.Tensor) else np.asarray(X, dtype=np.float64)
        return Ball(1.0, n_features=3).project(X.clip(0))


MOMENTS = BallMoments(Ball(2.0, n_features=2))
WEAK = BallMoments(Ball(2.0, n_features=2), 0.3)
MEANS = BallMeans(Ball(2.0, n_features=2))
CASES = {
    "moments, public": (MOMENTS, {"labels": "public"}),
    "moments, private": (MOMENTS, {"labels": "private"}),
    "moments, counted": (MOMENTS, {"labels": "private", "with_counts": True}),
    "weak, private": (WEAK, {"labels": "private"}),
    "weak, counted": (WEAK, {"labels": "private", "with_counts": True}),
    "means, public": (MEANS, {"labels": "public"}),
    "means, private": (MEANS, {"labels": "private"}),
    "means, counted": (MEANS, {"labels": "private", "with_counts": True}),
    "positive, public": (Axes(), {"labels": "public"}),
    "positive, private": (Axes(), {"labels": "private"}),
    "positive, counted": (Axes(), {"labels": "private", "with_counts": True}),
}
cases = pytest.mark.parametrize(("features", "options"), CASES.values(), ids=CASES)


def records(rng, features, n):
    width = 3 if isinstance(features, Axes) else 2
    # Many far outside, in all directions.
    X = rng.normal(size=(n, width)) * rng.choice([0.5, 3.0, 100.0], size=(n, 1))
    return abs(X) * (X > 0) if isinstance(features, Axes) else X


def worst_pairs(features):
    """Return pairs of records whose vectors are far apart, or long."""
    if isinstance(features, Axes):
        return [([1, 0, 0], [0, 1, 0]), ([0, 0, 9], [0, 0, 9])]
    t = -1.0 if features is MEANS else max(-1.0, -0.5 / features.weight**2)
    return [([2, 0], [2 * t, 2 * math.sqrt(1 - t * t)]), ([9, 9], [9, 9])]


def largest_change(query):
    """Return the largest change that one record makes, over random and over worst neighbours."""
    rng = np.random.default_rng(0)
    pairs = worst_pairs(query.features)
    largest = 0.0
    for trial in range(200):
        X, codes = records(rng, query.features, 5), rng.integers(0, 3, 5)
        other, other_codes = X.copy(), codes.copy()
        other[2] = records(rng, query.features, 1)
        if trial % 4 == 0:
            X[2], other[2] = pairs[trial // 4 % len(pairs)]
        if query.labels == "private" and trial % 2 == 0:
            other_codes[2] = (codes[2] + trial // 8) % 3
        change = query.vector(X, codes) - query.vector(other, other_codes)
        largest = max(largest, float(np.linalg.norm(change)))
    return largest


def is_sharp(query, *, sensitivity=None):
    stated = query.sensitivity if sensitivity is None else sensitivity
    return (1 - 1e-3) * stated < largest_change(query) <= stated


@cases
def test_one_record_moves_the_vector_by_the_sensitivity_and_no_more(features, options):
    query = ClassSums(features, 5, 3, **options)
    assert is_sharp(query)
    assert not is_sharp(query, sensitivity=0.99 * query.sensitivity)


def by_hand(features, *, labels, with_counts=False):
    """Return the sensitivity and the weight of the counts, in closed form."""
    if isinstance(features, Axes):
        square, radius, width = 2.0, 1.0, 3
    elif features is MEANS:
        square, radius, width = 4.0, math.sqrt(1.5), 3
    else:
        w2 = features.weight**2
        square, radius, width = (
            2 + 2 * w2 + 0.5 / w2 if w2 > 0.5 else 4.0,
            math.hypot(1, w2**0.5),
            5,
        )
    weight = 0.0
    if with_counts:
        weight = math.sqrt(max(square / 2 - radius**2, radius**2 / math.sqrt(width)))
    if labels == "private":
        square = max(square, 2 * (radius**2 + weight**2))
    return math.sqrt(square), weight


@cases
def test_the_sensitivity_in_closed_form(features, options):
    query = ClassSums(features, 5, 3, **options)
    sensitivity, weight = by_hand(features, **options)
    assert_allclose(query.sensitivity, sensitivity, rtol=1e-8)
    assert sensitivity < query.sensitivity
    assert_allclose(query.count_weight, weight, rtol=1e-8)


def test_counts_of_moments_of_many_columns_are_free():
    wide = BallMoments(Ball(1.0, n_features=50))
    free = ClassSums(wide, 9, 3, labels="private", with_counts=True)
    assert_allclose(
        free.sensitivity, ClassSums(wide, 9, 3, labels="public").sensitivity, rtol=1e-12
    )
    assert_allclose(free.count_weight, 1 / 3, rtol=1e-6)


class CountsUnpaid(ClassSums):
    def vector(self, X, codes):
        vector = super().vector(X, codes).reshape(self.n_classes, -1)
        vector[:, -1] /= self.count_weight
        return vector.ravel()


class OfAnotherScale(ClassSums):
    def vector(self, X, codes):
        return 2 * super().vector(X, codes)


@pytest.mark.parametrize(
    ("kind", "name"),
    [
        (OfAnotherScale, "moments, public"),
        (CountsUnpaid, "moments, counted"),
        (CountsUnpaid, "positive, counted"),
    ],
)
def test_a_vector_that_is_not_as_priced_is_caught(kind, name):
    features, options = CASES[name]
    assert is_sharp(ClassSums(features, 5, 3, **options))
    assert not is_sharp(kind(features, 5, 3, **options))


def test_counts_of_means_of_many_columns_are_free():
    wide = BallMeans(Ball(1.0, n_features=50))
    free = ClassSums(wide, 9, 3, labels="private", with_counts=True)
    assert_allclose(free.sensitivity, 2.0, rtol=1e-7)
    assert_allclose(free.count_weight, math.sqrt(0.5), rtol=1e-6)


def test_labels_that_are_not_priced_are_caught():
    # Where a label costs more than a record: with counts of features that have none for free.
    query = ClassSums(Axes(), 5, 3, labels="private", with_counts=True)
    assert is_sharp(query)
    assert not is_sharp(query, sensitivity=ClassSums(Axes(), 5, 3, labels="public").sensitivity)


@cases
def test_the_vector_is_the_sums_and_counts(features, options, monkeypatch):
    # In parts, of which the last is shorter.
    monkeypatch.setattr(module, "_CHUNK", 35)
    rng = np.random.default_rng(0)
    X, codes = records(rng, features, 50), rng.integers(0, 3, 50)
    query = ClassSums(features, 50, 4, **options)
    sums, counts = query.split(query.vector(X, codes))
    V = features.transform(X)
    expected = [V[codes == code].sum(axis=0) for code in range(4)]
    assert_allclose(sums, expected, atol=50 * 2.0**-33)
    if options.get("with_counts"):
        assert_allclose(counts, np.bincount(codes, minlength=4))
    else:
        assert counts is None
    assert query.size == len(query.vector(X, codes))


class Rounded(Axes):
    """Sums in double precision, of vectors as they are."""

    def class_sums(self, X, codes, n_classes):
        V = self.transform(X)
        return np.array([V[codes == code].cumsum(axis=0)[-1] for code in range(n_classes)])


def sums_are_exact(features):
    """Whether records in another order, and in parts, have the same sums to the last bit."""
    rng = np.random.default_rng(0)
    X, codes = records(rng, features, 9000), rng.integers(0, 3, 9000)
    order = rng.permutation(9000)
    whole = features.class_sums(X, codes, 3)
    parts = features.class_sums(X[:77], codes[:77], 3) + features.class_sums(X[77:], codes[77:], 3)
    other = features.class_sums(X[order], codes[order], 3)
    return np.array_equal(whole, other) and np.array_equal(whole, parts)


def test_sums_are_exact():
    assert sums_are_exact(Axes())
    assert sums_are_exact(BallMoments(Ball(2.0, n_features=2), 1.0))
    assert not sums_are_exact(Rounded())


@pytest.mark.parametrize(
    "features", [MOMENTS, WEAK, MEANS, Axes()], ids=["moments", "weak", "means", "positive"]
)
def test_sums_are_those_of_the_vectors(features):
    rng = np.random.default_rng(0)
    X = records(rng, features, 200)
    single = np.array([features.class_sums(x[None], np.zeros(1, int), 1)[0] for x in X])
    V = features.transform(X)
    assert np.linalg.norm(single - V, axis=1).max() <= features.rounding + 1e-14
    assert np.linalg.norm(single, axis=1).max() <= features.radius + features.rounding
    total = features.class_sums(X, np.zeros(200, int), 1)[0]
    assert_allclose(total, single.sum(axis=0), atol=1e-11)


class HalfSteps(BoundedFeatures):
    """Numbers of a little more than half a step of the grid, which become whole ones."""

    n_features_out = 1
    radius = 0.5001 * 2.0**-32
    diameter = 2 * radius

    def transform(self, X):
        return np.clip(X, -self.radius, self.radius)


def test_rounding_is_paid_for():
    query = ClassSums(HalfSteps(), 1)
    high, low = (query.vector(np.array([[sign]]), np.zeros(1, int)) for sign in (1, -1))
    change = high[0] - low[0]
    assert 0.999 * query.sensitivity < change <= query.sensitivity
    # Negative twin: with the rounding of one vector, not of both.
    assert change > HalfSteps.diameter + query.features.rounding


def largest_change_of_large_sums(sensitivity):
    """Return the largest change of sums of 2**28 over a sensitivity, by vectors that are √2 apart.

    As they are released: whole numbers of steps, as doubles, over the sensitivity.
    """
    steps, largest = math.isqrt(2 * 2**64), 0
    for start in range(2**60, 2**60 + 2000 * 37, 37):
        low, high = (Fraction(float(n) * 2.0**-32 / sensitivity) for n in (start, start + steps))
        largest = max(largest, high - low)
    return largest


def test_what_large_sums_lose_as_doubles_is_paid_for():
    assert largest_change_of_large_sums(ClassSums(Axes(), 2**29).sensitivity) <= 1
    # Negative twin: the sensitivity of few records.
    assert largest_change_of_large_sums(ClassSums(Axes(), 5).sensitivity) > 1


class OnTensors(Axes):
    def transform(self, X):
        assert isinstance(X, torch.Tensor)
        return super().transform(X.float().flatten(1).double())


def test_records_of_any_shape_as_tensors():
    rng = np.random.default_rng(0)
    X, codes = rng.uniform(size=(40, 3, 1, 1)), rng.integers(0, 2, 40)
    query = ClassSums(OnTensors(), 40, 2, labels="public")
    vector = query.vector(torch.tensor(X), codes)
    assert vector.dtype == np.float64
    rounded = X.astype(np.float32).reshape(40, 3)
    assert_array_equal(vector, ClassSums(Axes(), 40, 2, labels="public").vector(rounded, codes))


# The release.


def analytic_delta(epsilon, multiplier):
    """Return the delta of a Gaussian mechanism by Balle and Wang, Theorem 5."""
    a, b = 0.5 / multiplier, epsilon * multiplier
    return norm.cdf(a - b) - math.exp(epsilon) * norm.cdf(-a - b)


def is_calibrated(errors, epsilon, delta, sensitivity):
    """Whether errors have the least spread that keeps to the budget, to 5 standard deviations."""
    low, high = 1e-3, 1e6
    for _ in range(200):
        middle = math.sqrt(low * high)
        low, high = (middle, high) if analytic_delta(epsilon, middle) > delta else (low, middle)
    square = (errors / (high * sensitivity)) ** 2
    return abs(square.mean() - 1) < 5 * math.sqrt(2 / errors.size)


def released(mechanism, X, codes, seed):
    return mechanism.run().release(X, codes, noise_source(seed))


def quiet(mechanism, X, codes, seed):
    exact = mechanism.queries[0].split(mechanism.queries[0].vector(X, codes))
    noisy = released(mechanism, X, codes, seed)
    return tuple(None if a is None else (a + b) / 2 for a, b in zip(exact, noisy, strict=True))


@cases
def test_the_noise_is_that_of_the_budget(features, options):
    rng = np.random.default_rng(0)
    X, codes = records(rng, features, 30), rng.integers(0, 3, 30)
    query = ClassSums(features, 30, 3, **options)
    exact, counts = query.split(query.vector(X, codes))
    sensitivity, weight = by_hand(features, **options)

    def errors(release):
        mechanism = ClassSumMechanism([query], [1.0], epsilon=2.0, delta=1e-3)
        found = []
        for seed in range(150):
            sums, noisy = release(mechanism, X, codes, seed)
            found.append((sums - exact).ravel())
            if weight:
                found.append(weight * (noisy - counts))
        return np.concatenate(found)

    assert is_calibrated(errors(released), 2.0, 1e-3, sensitivity)
    assert not is_calibrated(errors(quiet), 2.0, 1e-3, sensitivity)


def test_without_noise():
    query = ClassSums(MOMENTS, 4, 2, labels="private", with_counts=True)
    mechanism = ClassSumMechanism([query], [1.0], epsilon=math.inf, delta=1e-3)
    assert mechanism.noise_scales == (0,)
    assert mechanism.noise_multiplier == 0
    sums, counts = released(mechanism, np.ones((4, 2)), np.array([0, 0, 0, 1]), 0)
    assert_allclose(counts, [3, 1])
    assert_allclose(sums[0, :2], [1.5, 1.5], atol=1e-8)


SHARES = [0.2, 0.8]


def two_releases(mechanism, X, codes, seed):
    """Return the errors of two releases, of which the second is about the means of the first."""
    run, errors = mechanism.run(), []
    for part, query in enumerate(mechanism.queries):
        exact, _ = query.split(query.vector(X, codes))
        sums, _ = run.release(X, codes, noise_source(seed, part))
        errors.append((sums - exact).ravel())
        X = X - sums[:, :2][codes]
    return errors


def unshared(mechanism, X, codes, seed):
    errors = two_releases(mechanism, X, codes, seed)
    return [math.sqrt(share) * part for share, part in zip(SHARES, errors, strict=True)]


def test_two_releases_share_the_budget():
    rng = np.random.default_rng(0)
    X, codes = rng.normal(size=(30, 2)), rng.integers(0, 3, 30)
    queries = [ClassSums(MEANS, 30, 3, labels="public"), ClassSums(MOMENTS, 30, 3, labels="public")]
    mechanism = ClassSumMechanism(queries, SHARES, epsilon=2.0, delta=1e-3)

    def are_calibrated(release):
        pairs = [release(mechanism, X, codes, seed) for seed in range(150)]
        whole = [
            math.sqrt(share) * np.concatenate(errors)
            for share, errors in zip(SHARES, zip(*pairs, strict=True), strict=True)
        ]
        stated = [2.0, by_hand(MOMENTS, labels="public")[0]]
        return all(
            is_calibrated(errors, 2.0, 1e-3, sensitivity)
            for errors, sensitivity in zip(whole, stated, strict=True)
        )

    assert are_calibrated(two_releases)
    assert not are_calibrated(unshared)


def test_no_more_releases_than_were_paid_for():
    mechanism = ClassSumMechanism([ClassSums(MEANS, 4)], [1.0], epsilon=1.0, delta=1e-3)
    run = mechanism.run()
    run.release(np.zeros((4, 2)), np.zeros(4, int), noise_source(0))
    with pytest.raises(RuntimeError, match="no more"):
        run.release(np.zeros((4, 2)), np.zeros(4, int), noise_source(1))


def test_the_report_states_the_releases():
    queries = [ClassSums(MEANS, 40, 2, labels="public"), ClassSums(MOMENTS, 40, 2, labels="public")]
    mechanism = ClassSumMechanism(queries, SHARES, epsilon=1.0, delta=1e-3)
    report = PrivacyReport(
        name="sums", events=(), epsilon=1.0, delta=1e-3, **mechanism.report_fields()
    )
    assert report.sensitivity == 1
    scales = [
        scale / query.sensitivity
        for scale, query in zip(mechanism.noise_scales, queries, strict=True)
    ]
    assert_allclose(list(report.noise_scale.values()), scales)
    assert report.n_releases == 2
    assert analytic_delta(1.0, report.noise_multiplier) == pytest.approx(1e-3, rel=1e-3)
    with pytest.raises(FrozenInstanceError):
        mechanism.epsilon = 2.0


def test_refusals():
    with pytest.raises(TypeError, match="features must be BoundedFeatures"):
        ClassSums(Ball(1.0, n_features=2), 5)
    with pytest.raises(ValueError, match="labels must be"):
        ClassSums(MOMENTS, 5, labels="secret")
    with pytest.raises(ValueError, match="labels must be 'public' or 'private'"):
        ClassSums(MOMENTS, 5, 2)
    with pytest.raises(ValueError, match="with_counts must be False for public labels"):
        ClassSums(MOMENTS, 5, with_counts=True)
    with pytest.raises(ValueError, match="n_samples must be at least 1"):
        ClassSums(MOMENTS, 0)
    for features in (MOMENTS, Axes()):
        assert ClassSums(features, features.most_samples).sensitivity
        with pytest.raises(ValueError, match="n_samples must be at most"):
            ClassSums(features, features.most_samples + 1)
    query = ClassSums(MOMENTS, 5, 2, labels="public")
    for X, codes in ((np.zeros((4, 2)), np.zeros(5, int)), (np.zeros((5, 2)), np.zeros(4, int))):
        with pytest.raises(ValueError, match="must have 5 records"):
            query.vector(X, codes)
    with pytest.raises(ValueError, match="epsilon"):
        ClassSumMechanism([query], [1.0], epsilon=0.0, delta=0.1)
    other = ClassSums(MOMENTS, 5, 2, labels="private")
    with pytest.raises(ValueError, match="equal n_samples, n_classes and labels"):
        ClassSumMechanism([query, other], [0.5, 0.5], epsilon=1.0, delta=0.1)
    with pytest.raises(ValueError, match="one number per query"):
        ClassSumMechanism([query], [0.5, 0.5], epsilon=1.0, delta=0.1)
    assert replace(query, n_samples=7).sensitivity == pytest.approx(query.sensitivity, rel=1e-12)
