"""Public records of the moment samplers: the same releases, and moments shrunk by the residuals."""

import math

import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.testing import assert_allclose, assert_array_equal

from sklearn_dpgen.domains import Ball
from sklearn_dpgen.mechanisms._sequence import GaussianSequenceRun
from sklearn_dpgen.moments import MomentImageSampler, MomentSampler
from sklearn_dpgen.persistence._files import load
from sklearn_dpgen.schema import Categorical, Numeric, Schema
from sklearn_dpgen.utils import _normal_laws
from sklearn_dpgen.utils._normal_laws import (
    PublicMoments,
    draw_normals,
    shrunk_means,
)

pytestmark = pytest.mark.filterwarnings("ignore:The noise on the mean:UserWarning")
BALL = Ball(6.0, n_features=6)
MEANS = np.array([[1.0, 0.5, 0.0, 0.0, 0.0, 0.2], [-1.0, 0.0, 0.5, 0.0, 0.0, 0.0]])
COVARIANCE = np.diag(np.geomspace(1, 0.01, 6))


def people(n, seed, means=MEANS):
    rng = np.random.default_rng(seed)
    codes = np.arange(n) % 2
    return draw_normals(means, np.array([COVARIANCE] * 2), codes, rng), codes


def literal_means(means, spreads, public, edges):
    """Return the shrunk means entry by entry, by the formula of the docstring."""
    n_classes, d = means.shape
    values, vectors = np.linalg.eigh(public.covariance)
    basis = [vectors[:, i] for i in np.argsort(-values)]
    total = sum(1 / s**2 for s in spreads)
    center = sum(m / s**2 for m, s in zip(means, spreads, strict=True)) / total
    known = sum(m / s**2 for m, s in zip(public.means, spreads, strict=True)) / total
    if n_classes == 1:
        center, known = np.zeros(d), np.zeros(d)
    # The coefficient of the regression of noisy differences on public ones, in units of noise.
    product = square = 0.0
    for c, j in np.ndindex(n_classes, d):
        product += (means[c] - center)[j] * (public.means[c] - known)[j] / spreads[c] ** 2
        square += (public.means[c] - known)[j] ** 2 / spreads[c] ** 2
    slope = min(1.0, max(0.0, product / square)) if n_classes > 1 else 1.0
    result = means.copy()
    for first, last in edges:
        k = (last - first) * (n_classes - 1 if n_classes > 1 else 1)
        residuals = {
            (c, j): ((means[c] - center) - (public.means[c] - known)) @ basis[j]
            for c in range(n_classes)
            for j in range(first, last)
        }
        square = sum(r**2 / spreads[c] ** 2 for (c, _), r in residuals.items())
        share = min(1.0, max(0, k - 2) / square)
        for (c, j), r in residuals.items():
            result[c] -= slope * share * r * basis[j]
    return result


@settings(deadline=None, max_examples=60)
@given(
    st.sampled_from([(3, [(0, 3)]), (4, [(0, 4)]), (9, [(0, 4), (4, 8), (8, 9)])]),
    st.integers(1, 4),
    st.floats(0.01, 30.0),
    st.integers(0, 2**32 - 1),
)
def test_shrunk_means_are_those_of_the_formula(shape, n_classes, size, seed):
    (d, edges), rng = shape, np.random.default_rng(seed)
    spreads = rng.uniform(0.5, 2.0, n_classes)
    public = PublicMoments(rng.normal(size=(n_classes, d)), np.cov(rng.normal(size=(d, 3 * d))))
    means = public.means + size * rng.normal(size=(n_classes, d))
    found = shrunk_means(means, spreads, public)
    assert_allclose(found, literal_means(means, spreads, public, edges), atol=1e-9 * (1 + size))


def test_without_public_labels_the_means_of_classes_are_kept():
    rng = np.random.default_rng(0)
    means, spreads = rng.normal(size=(3, 8)), np.array([1.0, 2.0, 3.0])
    public = PublicMoments(np.zeros((1, 8)), np.eye(8))
    assert_array_equal(shrunk_means(means, spreads, public), means)
    assert np.abs(shrunk_means(means[:1], spreads[:1], public) - means[:1]).max() > 0.01


@pytest.mark.parametrize("sign", [-1, 1])
def test_differences_that_public_records_do_not_have_are_kept(sign):
    rng = np.random.default_rng(0)
    means, spreads = 0.1 * rng.normal(size=(3, 8)), np.array([1.0, 2.0, 3.0])
    public = PublicMoments(5 * sign * means, np.eye(8))
    assert (np.abs(shrunk_means(means, spreads, public) - means).max() < 1e-12) == (sign < 0)


def test_means_without_noise_are_kept():
    public = PublicMoments(np.zeros((2, 5)), np.eye(5))
    means = np.random.default_rng(0).normal(size=(2, 5))
    assert_array_equal(shrunk_means(means, np.zeros(2), public), means)


def literal_near(matrix, spread, prior):
    """Return the covariance near a multiple of the prior; its level is found by bisection."""
    d = len(matrix)
    shape = prior - np.trace(prior) / d * np.eye(d)
    share = max(0.0, np.vdot(matrix, shape) / max(np.vdot(shape, shape), 1e-300))
    share = min(share, max(0.0, np.trace(matrix)) / max(np.trace(prior), 1e-300))
    law = share * prior
    values, vectors = np.linalg.eigh(matrix - share * prior)
    for value, vector in zip(values, vectors.T, strict=True):
        if abs(value) > 2 * math.sqrt(d) * spread:
            kept = math.copysign(math.sqrt(value**2 - 4 * d * spread**2), value)
            law = law + kept * np.outer(vector, vector)
    values, vectors = np.linalg.eigh(law)
    low, high = 1e-12, max(1.0, abs(np.trace(matrix)))
    for _ in range(200):
        middle = (low + high) / 2
        low, high = (
            (middle, high) if values.clip(middle).sum() < np.trace(matrix) else (low, middle)
        )
    return (vectors * values.clip(low)) @ vectors.T


@settings(deadline=None, max_examples=60)
@given(st.integers(1, 7), st.floats(0.0, 2.0), st.floats(0.01, 3.0), st.integers(0, 2**32 - 1))
def test_a_covariance_near_a_prior_is_that_of_the_formula(d, turn, spread, seed):
    rng = np.random.default_rng(seed)
    prior = np.cov(rng.normal(size=(d, 4 * d))).reshape(d, d)
    matrix = 2 * prior + turn * np.cov(rng.normal(size=(d, 4 * d))).reshape(d, d)
    noise = rng.normal(size=(d, d))
    matrix = matrix + spread * (noise + noise.T) / 4
    found = _normal_laws._near(matrix, spread, prior)
    assert_allclose(found, literal_near(matrix, spread, prior), atol=1e-8)


def test_a_prior_of_no_shape_leaves_what_is_above_the_noise():
    rng = np.random.default_rng(0)
    noise = rng.normal(size=(8, 8)) * 0.05
    matrix = np.diag([9.0, 4.0, 0.3, 0.3, 0.3, 0.3, 0.3, 0.3]) + noise + noise.T
    values, vectors = np.linalg.eigh(matrix)
    edge = 2 * math.sqrt(8) * 0.1
    kept = np.sqrt((values**2 - edge**2).clip(0))
    # Two eigenvalues are far above the others, which share the rest of the trace.
    kept[:6] = (values.sum() - kept[6:].sum()) / 6
    assert_allclose(
        _normal_laws._near(matrix, 0.1, np.eye(8)), (vectors * kept) @ vectors.T, atol=1e-9
    )


def releases(make, X, y, public, monkeypatch):
    """Return the values before noise, and the report, of a fit whose noise is fixed."""
    seen, fixed = [], np.random.default_rng(0).normal(size=10_000)

    def release(self, value, noise):
        seen.append(value.copy())
        return value + fixed[: len(value)]

    with monkeypatch.context() as patch:
        patch.setattr(GaussianSequenceRun, "release", release)
        sampler = make(public=public, delta=1e-3).fit(X, y)
    return seen, sampler


def vectors(**options):
    return MomentSampler(domain=BALL, labels="private", classes=[0, 1], **options)


def images(**options):
    return MomentImageSampler(
        shape=(2, 3),
        pixel_range=(-4, 4),
        labels="private",
        classes=[0, 1],
        max_iter=2,
        device="cpu",
        **options,
    )


@pytest.mark.parametrize("make", [vectors, images])
@pytest.mark.parametrize("with_labels", [False, True])
def test_the_releases_and_their_price_do_not_depend_on_public_records(
    make, with_labels, monkeypatch
):
    X, y = people(40, 0)
    rows, labels = people(50, 1)
    public = (rows, labels) if with_labels else rows
    before, alone = releases(make, X, y, None, monkeypatch)
    after, sampler = releases(make, X, y, public, monkeypatch)
    for a, b in zip(before, after, strict=True):
        assert_array_equal(a, b)
    report, other = sampler.privacy_, alone.privacy_
    assert set(report.public) == set(other.public) | {"public"}
    for field in ("epsilon", "delta", "noise_scale", "sensitivity", "releases", "bounds", "split"):
        assert getattr(report, field) == getattr(other, field)
    assert report == make(public=public, delta=1e-3).plan(40, 6)
    # Negative twin: the moments themselves are not those of a fit without public records.
    pairs = (sampler.means_, alone.means_), (sampler.covariances_, alone.covariances_)
    assert not all(np.array_equal(a, b) for a, b in pairs)


@pytest.mark.parametrize("make", [vectors, images])
def test_all_that_is_learned_follows_from_the_releases(make, monkeypatch):
    public = people(50, 1)
    fixed = np.random.default_rng(0).normal(size=10_000)

    def learned(seed, release):
        X, y = people(40, seed)
        with monkeypatch.context() as patch:
            patch.setattr(GaussianSequenceRun, "release", release)
            sampler = make(public=public, random_state=0).fit(X, y)
        return [sampler.means_, sampler.covariances_]

    def is_equal(release):
        pairs = zip(learned(1, release), learned(2, release), strict=True)
        return all(np.array_equal(a, b) for a, b in pairs)

    assert is_equal(lambda self, value, noise: fixed[: len(value)].copy())
    assert not is_equal(lambda self, value, noise: value.copy())


def mean_errors(public):
    """Return the mean squared errors of means and covariances of fits of 1000 records."""
    errors = []
    for seed in range(30):
        X, y = people(1000, seed)
        sampler = vectors(public=public, delta=1e-5, random_state=seed).fit(X, y)
        squares = [sampler.means_ - MEANS, sampler.covariances_ - COVARIANCE]
        errors.append([(difference**2).sum() for difference in squares])
    return np.mean(errors, axis=0)


def test_right_public_records_help_and_wrong_ones_hardly_harm():
    rows, labels = people(4000, 99)
    alone, right = mean_errors(None), mean_errors((rows, labels))
    # Both have the same noise, that of the seeds, so that small gains are seen.
    assert (right < np.array([0.97, 0.995]) * alone).all()
    turned = np.linalg.qr(np.random.default_rng(0).normal(size=(6, 6)))[0]
    wrong = mean_errors((2 * rows @ turned + 1, 1 - labels))
    assert (wrong < 1.1 * alone).all()
    # Negative twin: moments of the wrong records themselves.
    public = np.array([(2 * rows @ turned + 1)[labels == 1 - code].mean(axis=0) for code in (0, 1)])
    assert ((public - MEANS) ** 2).sum() > 2 * alone[0]


def test_without_noise_public_records_change_nothing():
    X, y = people(400, 0)
    rows, labels = people(400, 1, 3 * MEANS)
    sampler = vectors(epsilon=np.inf, public=(rows, labels)).fit(X, y)
    alone = vectors(epsilon=np.inf).fit(X, y)
    assert_array_equal(sampler.means_, alone.means_)
    assert_array_equal(sampler.covariances_, alone.covariances_)


SCHEMA = Schema({"age": Numeric(0, 100), "job": Categorical(["baker", "nurse"])})
PEOPLE = pd.DataFrame({"age": [1.0, 2.0, 90.0] * 9, "job": ["baker", "nurse", "nurse"] * 9})


def test_public_records_of_a_table_are_read_by_the_schema(tmp_path):
    sampler = MomentSampler(schema=SCHEMA, public=PEOPLE[["job", "age"]]).fit(PEOPLE)
    assert "public" in sampler.privacy_.public
    sampler.save(tmp_path / "fit.safetensors")
    loaded = load(tmp_path / "fit.safetensors")
    assert loaded.public is None
    with pytest.raises(ValueError, match="'job' holds a value outside"):
        MomentSampler(schema=SCHEMA, public=PEOPLE.assign(job="cook")).fit(PEOPLE)


@pytest.mark.parametrize(
    ("public", "words"),
    [
        (np.zeros((4, 5)), "public must have 6 features, as X has, got 5"),
        ((np.zeros((4, 6)), [0, 0, 0, 0]), "public must have a row of each class"),
        ((np.zeros((4, 6)), [0, 1, 0, 2]), "public holds labels .* not among the classes"),
        ((np.zeros((4, 6)), [0, 1]), "public must hold 4 labels"),
    ],
)
def test_public_records_that_do_not_fit_are_refused_before_a_release(public, words, monkeypatch):
    X, y = people(40, 0)
    monkeypatch.setattr(GaussianSequenceRun, "release", None)
    with pytest.raises(ValueError, match=words):
        vectors(public=public).fit(X, y)
    with pytest.raises(ValueError, match="public must have no labels"):
        MomentSampler(domain=BALL, public=(X, y)).fit(X)
    with pytest.raises(ValueError, match=r"has 6 pixels, public has 5 features"):
        images(public=np.zeros((4, 5))).fit(X, y)
