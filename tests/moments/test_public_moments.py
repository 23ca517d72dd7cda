"""Public records of the moment samplers: the same releases, and moments shrunk by the residuals."""

import math
from functools import partial

import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.testing import assert_allclose, assert_array_equal

from sklearn_dpgen.domains import Ball
from sklearn_dpgen.mechanisms._sequence import GaussianSequenceRun
from sklearn_dpgen.moments import MomentImageSampler, MomentSampler
from sklearn_dpgen.moments._base import _moments_of_known
from sklearn_dpgen.persistence._files import load
from sklearn_dpgen.preprocessing import PublicTable, TabularEncoder
from sklearn_dpgen.reporting import model_card
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
SCHEMA = Schema({"age": Numeric(0, 100), "job": Categorical(["baker", "nurse"])})
PEOPLE = pd.DataFrame({"age": [1.0, 2.0, 90.0] * 9, "job": ["baker", "nurse", "nurse"] * 9})


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


def literal_isotonic(values):
    """Return the nearest ascending values, by the formula of largest and smallest means."""
    n = len(values)
    return np.array(
        [
            max(min(np.mean(values[a : b + 1]) for b in range(i, n)) for a in range(i + 1))
            for i in range(n)
        ]
    )


def literal_above(matrix, spread):
    """Return the eigenvalues above the noise, shrunk."""
    law, edge = np.zeros_like(matrix), 2 * math.sqrt(len(matrix)) * spread
    values, vectors = np.linalg.eigh(matrix)
    for value, vector in zip(values, vectors.T, strict=True):
        if abs(value) > edge:
            kept = math.copysign(math.sqrt(value**2 - edge**2), value)
            law = law + kept * np.outer(vector, vector)
    return law


def literal_near(matrix, spread, prior):
    """Return the covariance with a prior, by the formula of the docstring."""
    d, vectors = len(matrix), np.linalg.eigh(prior)[1].T
    along = np.array([vector @ matrix @ vector for vector in vectors])
    level = along.mean()
    square = sum((value - level) ** 2 / (2 * spread**2) for value in along)
    lost, law = min(1.0, max(0, d - 3) / max(square, 1e-300)), np.zeros((d, d))
    for value, vector in zip(literal_isotonic(along), vectors, strict=True):
        law = law + (lost * level + (1 - lost) * value) * np.outer(vector, vector)
    above = literal_above(matrix - law, spread)
    law = law + above - np.trace(above) / d * np.eye(d)
    values, vectors = np.linalg.eigh(law)
    along = (vectors * values.clip(0)) @ vectors.T
    return (along + _normal_laws._spiked(matrix, spread)) / 2


@settings(deadline=None, max_examples=60)
@given(st.integers(1, 7), st.floats(0.0, 2.0), st.floats(0.01, 3.0), st.integers(0, 2**32 - 1))
def test_a_covariance_with_a_prior_is_that_of_the_formula(d, turn, spread, seed):
    rng = np.random.default_rng(seed)
    prior = np.cov(rng.normal(size=(d, 4 * d))).reshape(d, d)
    matrix = 2 * prior + turn * np.cov(rng.normal(size=(d, 4 * d))).reshape(d, d)
    noise = rng.normal(size=(d, d))
    matrix = matrix + spread * (noise + noise.T) / 4
    found = _normal_laws._near(matrix, spread, prior)
    assert_allclose(found, literal_near(matrix, spread, prior), atol=1e-8)
    # Only the order of the variances of the prior counts.
    values, vectors = np.linalg.eigh(prior)
    other = (vectors * values**3) @ vectors.T
    assert_allclose(_normal_laws._near(matrix, spread, other), found, atol=1e-6)


def pooled_errors(truth, prior, spread):
    """Return the mean squared errors of covariances with and without a prior, of equal noise."""
    rng, errors = np.random.default_rng(0), []
    for _ in range(40):
        noise = np.tril(rng.normal(size=truth.shape), -1)
        noise = noise + noise.T + np.diag(math.sqrt(2) * rng.normal(size=len(truth)))
        matrix = truth + spread * noise
        found = _normal_laws._near(matrix, spread, prior), _normal_laws._spiked(matrix, spread)
        errors.append([((law - truth) ** 2).sum() for law in found])
    return np.mean(errors, axis=0)


@pytest.mark.parametrize("spread", [0.05, 0.15, 0.5])
def test_priors_of_another_spectrum_help_and_wrong_ones_hardly_harm(spread):
    rng = np.random.default_rng(1)
    turn, other = (np.linalg.qr(rng.normal(size=(40, 40)))[0] for _ in range(2))
    truth = (turn * np.geomspace(3, 0.01, 40)) @ turn.T
    # Fine directions have far less variance in the prior, as those of smooth images do.
    narrow = (turn * np.geomspace(3, 1e-6, 40)) @ turn.T
    near, alone = pooled_errors(truth, narrow, spread)
    assert near < 0.7 * alone
    wrong = (other * np.geomspace(3, 1e-6, 40)) @ other.T
    assert pooled_errors(truth, wrong, spread)[0] < 1.2 * alone
    # Negative twin: the wrong prior itself.
    assert ((wrong - truth) ** 2).sum() > 1.2 * alone


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


@pytest.mark.slow
def test_right_public_records_help_and_wrong_ones_hardly_harm():
    rows, labels = people(4000, 99)
    alone, right = mean_errors(None), mean_errors((rows, labels))
    # All have the same noise, that of the seeds, so that small gains are seen.
    assert right[0] < 0.97 * alone[0]
    # Labels are for the means, records without them for the covariance.
    assert right[1] == alone[1]
    own = rows - MEANS[labels]
    right = mean_errors(own)
    assert right[0] == alone[0]
    assert right[1] < 0.995 * alone[1]
    turned = np.linalg.qr(np.random.default_rng(0).normal(size=(6, 6)))[0]
    for wrong in ((2 * rows @ turned + 1, 1 - labels), 2 * own @ turned + 1):
        assert (mean_errors(wrong) < 1.1 * alone).all()
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


def tables(public, **options):
    own = {"schema": SCHEMA, "labels": "private", "classes": ["no", "yes"], "epsilon": 100.0}
    return MomentSampler(public=public, **(own | options))


SMOKES = ["no", "yes", "yes", "no"] * 8
TABLE = PEOPLE.assign(smokes=SMOKES[:27], w=np.arange(27.0), other=1)
LABELLED = PublicTable(TABLE, weights="w"), "smokes"
PART = PublicTable(TABLE[["age", "w"]], weights="w")


def fitted_to(public, monkeypatch, **options):
    """Return a fit to 32 records of fixed noise, with or without public ones."""
    X = pd.DataFrame({"age": np.linspace(10, 30, 32), "job": ["baker", "nurse"] * 16})
    return releases(partial(tables, **options), X, SMOKES, public, monkeypatch)


@pytest.mark.parametrize("public", [LABELLED, PART, LABELLED[0]], ids=["labels", "part", "table"])
def test_releases_do_not_depend_on_public_tables(public, monkeypatch):
    before, alone = fitted_to(None, monkeypatch)
    after, sampler = fitted_to(public, monkeypatch)
    for a, b in zip(before, after, strict=True):
        assert_array_equal(a, b)
    report = sampler.privacy_
    assert report == tables(public, delta=1e-3).plan(32)
    table = public[0] if isinstance(public, tuple) else public
    assert report.public_tables == {"public": table.read(SCHEMA).sha256}
    assert "public_tables" in report.caveats
    assert report.public_tables["public"] in model_card(sampler).to_markdown()
    # Negative twins: the moments do depend on them, and the report without them has no hash.
    name = "means_" if isinstance(public, tuple) else "covariances_"
    assert not np.array_equal(getattr(sampler, name), getattr(alone, name))
    assert alone.privacy_.public_tables == {}


def test_tables_are_read_in_any_form(monkeypatch, tmp_path):
    texts = TABLE[["job", "smokes", "age"]].astype(str)
    texts.to_csv(tmp_path / "public.csv", index=False)
    # As points of the domain of the schema, with labels.
    points = TabularEncoder(SCHEMA).fit().transform(PEOPLE), TABLE["smokes"]
    X = pd.DataFrame({"age": np.linspace(10, 30, 32), "job": ["baker", "nurse"] * 16})
    X = TabularEncoder(SCHEMA).fit().transform(X)
    options = {"domain": SCHEMA.domain, "schema": None}
    _, expected = releases(partial(tables, **options), X, SMOKES, points, monkeypatch)
    for table in (TABLE, texts, tmp_path / "public.csv", PublicTable(TABLE)):
        _, found = fitted_to((table, "smokes"), monkeypatch)
        assert_allclose(found.means_, expected.means_, atol=1e-9)
        assert_allclose(found.covariances_, expected.covariances_, atol=1e-9)
    # Negative twin: weights.
    _, found = fitted_to(LABELLED, monkeypatch)
    assert abs(found.means_ - expected.means_).max() > 1e-6


@settings(deadline=None, max_examples=50)
@given(
    st.lists(st.integers(1, 3), min_size=4, max_size=9),
    st.integers(0, 2**32 - 1),
    st.sampled_from([0.0, 0.4]),
)
def test_weights_stand_for_repeated_rows(weights, seed, share):
    rng, n = np.random.default_rng(seed), len(weights)
    X = rng.normal(size=(n, 3))
    X[rng.uniform(size=X.shape) < share] = np.nan
    codes = np.arange(n) % 2

    def moments(X, codes, weights):
        return _moments_of_known(X, codes, 2, weights, Ball(9.0, n_features=3))

    found = moments(X, codes, np.array(weights) / 7)
    repeated = moments(X.repeat(weights, axis=0), codes.repeat(weights), np.ones(sum(weights)))
    assert_allclose(found.means, repeated.means)
    assert_allclose(found.covariance, repeated.covariance, atol=1e-12)
    assert_array_equal(found.known, repeated.known)
    assert np.linalg.eigvalsh(found.covariance).min() > -1e-12
    for j in np.flatnonzero(found.known):
        rows = ~np.isnan(X[:, j])
        own = np.average(X[rows & (codes == 1), j], weights=np.array(weights)[rows & (codes == 1)])
        assert_allclose(found.means[1, j], own)
        residuals = X[rows, j] - found.means[codes[rows], j]
        variance = np.average(residuals**2, weights=np.array(weights)[rows])
        assert_allclose(found.covariance[j, j], variance)


@settings(deadline=None, max_examples=30)
@given(st.integers(1, 3), st.integers(0, 2**32 - 1))
def test_means_of_features_that_public_records_lack_are_kept(n_classes, seed):
    rng = np.random.default_rng(seed)
    known, spreads = np.arange(9) < 6, rng.uniform(0.5, 2, n_classes)
    public = PublicMoments(rng.normal(size=(n_classes, 9)), np.cov(rng.normal(size=(9, 30))), known)
    public.means[:, ~known] = 0
    means = rng.normal(size=(n_classes, 9))
    found = shrunk_means(means, spreads, public)
    assert_array_equal(found[:, ~known], means[:, ~known])
    of_known = PublicMoments(public.means[:, known], public.covariance[np.ix_(known, known)])
    assert_allclose(found[:, known], shrunk_means(means[:, known], spreads, of_known), atol=1e-12)


def test_moments_of_public_records_are_those_of_points_of_the_ball_and_of_known_cells():
    X = np.array([[30.0, 0.0, 0.0], [0.0, 1.0, np.nan], [-30.0, 0.0, 2.0], [0.0, -1.0, np.nan]])
    codes, weights = np.array([0, 1, 0, 1]), np.ones(4)
    found = _moments_of_known(X, codes, 2, weights, Ball(6.0, n_features=3))
    inside = X * [[0.2], [1], [6 / math.hypot(30, 2)], [1]]
    assert_allclose(found.means[:, :2], [inside[::2, :2].mean(axis=0), [0, 0]], atol=1e-12)
    assert_array_equal(found.known, [True, True, False])
    # A class lacks the last feature, of which only the mean variance is then told.
    assert_array_equal(found.covariance[2, :2], 0)
    assert_array_equal(found.covariance[:2, 2], 0)
    assert found.covariance[2, 2] == pytest.approx(found.covariance.diagonal()[:2].mean())


def test_labels_of_a_table_are_a_column_that_the_schema_lacks(monkeypatch):
    monkeypatch.setattr(MomentSampler, "_reserve", None)
    rows = PEOPLE.iloc[:27]
    for public, words in [
        ((PEOPLE, SMOKES[:27]), "a table and the name of its column of labels"),
        ((PEOPLE, "job"), "labels, which is not in the schema"),
        ((PEOPLE, "smokes"), "must have its column of labels, 'smokes'"),
        ((TABLE[["smokes"]], "smokes"), "and a column of the schema"),
        ((TABLE.assign(smokes="yes"), "smokes"), "public must have a row of each class"),
    ]:
        with pytest.raises(ValueError, match=words):
            tables(public).fit(rows, SMOKES[:27])
    with pytest.raises(TypeError, match="NoneType"):
        tables((TABLE, "smokes")).fit(rows, SMOKES[:27])


def test_a_saved_fit_holds_no_public_records(tmp_path):
    sampler = MomentSampler(schema=SCHEMA, public=PEOPLE[["job", "age"]]).fit(PEOPLE)
    sampler.save(tmp_path / "fit.safetensors")
    assert load(tmp_path / "fit.safetensors").public is None


def test_hashes_of_arrays_are_those_of_their_values():
    X, y = people(40, 0)

    def hashed(public, make=vectors):
        return make(public=public, delta=1e-3).plan(40, 6).public_tables["public"]

    found = hashed((X, y))
    assert hashed((X.tolist(), list(y))) == found
    assert hashed((pd.DataFrame(X), y.astype(np.int32))) == found
    assert hashed((X, y), images) == found
    assert vectors(public=(X, y), delta=1e-3).fit(X, y).privacy_.public_tables["public"] == found
    others = [X, (X, 1 - y), (X[::-1], y), (X[:, ::-1], y), (X + 1e-9, y)]
    assert len({found, *map(hashed, others)}) == 6


@pytest.mark.parametrize(
    ("public", "words"),
    [
        (np.zeros((4, 5)), "public must have 6 features, as the records have, got 5"),
        ((np.zeros((4, 6)), [0, 0, 0, 0]), "public must have a row of each class"),
        ((np.zeros((4, 6)), [0, 1, 0, 2]), "public holds labels .* not among the classes"),
        ((np.zeros((4, 6)), [0, 1]), "public must hold 4 labels"),
        ((np.zeros((4, 6)),), "public must be records or a pair .*, got 1 parts"),
        ("public.csv", "public must be an array of records .* got a path"),
        (PublicTable(PEOPLE), "public must be an array of records .* got a PublicTable"),
    ],
)
def test_public_records_that_do_not_fit_are_refused_before_a_charge(public, words, monkeypatch):
    X, y = people(40, 0)
    monkeypatch.setattr(MomentSampler, "_reserve", None)
    with pytest.raises((ValueError, TypeError), match=words):
        vectors(public=public).fit(X, y)
    # Negative twin: the charge is what fails where nothing is wrong.
    with pytest.raises(TypeError, match="NoneType"):
        vectors(public=X).fit(X, y)
    with pytest.raises(ValueError, match="public must have no labels"):
        MomentSampler(domain=BALL, public=(X, y)).fit(X)
    with pytest.raises(ValueError, match="public must have 6 features"):
        images(public=np.zeros((4, 5))).fit(X, y)
