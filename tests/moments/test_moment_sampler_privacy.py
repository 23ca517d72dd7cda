"""What MomentSampler releases: twice, priced by public quantities, with the noise it states."""

import math
import pickle
import warnings

import numpy as np
import pytest
from numpy.testing import assert_allclose
from scipy.stats import norm

from sklearn_dpgen.accounting import Event
from sklearn_dpgen.domains import Ball, Domain
from sklearn_dpgen.mechanisms import BallMeans, BallMoments
from sklearn_dpgen.mechanisms._sequence import GaussianSequenceRun
from sklearn_dpgen.moments import MomentSampler, _moment_sampler

KINDS = ["none", "public", "private", "declared"]
every_kind = pytest.mark.parametrize("kind", KINDS)
BALL = Ball(2.0, center=[3.0, 0.0])
LABELS = np.array([0, 0, 0, 1, 1, 1, 1, 0])
pytestmark = pytest.mark.filterwarnings("ignore:The noise on the mean:UserWarning")


def fit(kind, X, y, **options):
    given = {"domain": BALL, "random_state": 0, "delta": 1e-3} | options
    if kind == "none":
        return MomentSampler(**given).fit(X)
    given["labels"] = "public" if kind == "public" else "private"
    given["classes"] = [0, 1]
    if kind == "declared":
        given.setdefault("label_proportions", [0.5, 0.5])
    return MomentSampler(**given).fit(X, y)


@pytest.fixture
def released(monkeypatch):
    """Return a list that collects what went into each release and what came out."""
    seen = []
    release = GaussianSequenceRun.release

    def watch(self, value, noise):
        seen.append((value.copy(), release(self, value, noise)))
        return seen[-1][1]

    monkeypatch.setattr(GaussianSequenceRun, "release", watch)
    return seen


def count_weight(kind):
    """Return the weight of the counts of two classes of two columns."""
    return math.sqrt(1.5 / math.sqrt(3)) if kind == "private" else 0.0


def sensitivities(kind):
    """Return those of the two releases, in closed form."""
    first = 2.0
    if kind == "private":
        first = math.sqrt(2 * (1.5 + count_weight(kind) ** 2))
    return first, math.sqrt(2 + 2 * 2.0**2 + 0.5 / 2.0**2)


def narrow_classes(kind):
    """Return a first release of means at the center and of small mean squares."""
    n_classes, size = (1, 8) if kind == "none" else (2, 4)
    row = [0.0, 0.0, 0.01 * size / math.sqrt(2)]
    row += [count_weight(kind) * size] if kind == "private" else []
    return np.tile(row, n_classes) / sensitivities(kind)[0]


def largest_changes(kind, monkeypatch):
    """Return the largest changes by one record of the first release, and of the second given it.

    Both times the first release comes out the same. In units of what is priced, 1 is allowed.
    """
    seen = []

    def fixed(self, value, noise):
        seen.append(value.copy())
        return narrow_classes(kind) if len(seen) % 2 else value

    monkeypatch.setattr(GaussianSequenceRun, "release", fixed)
    rng = np.random.default_rng(0)
    largest = np.zeros(2)
    for trial in range(30):
        X = BALL.center + rng.choice([1.0, 50.0]) * rng.normal(size=(8, 2))
        other, labels = X.copy(), LABELS.copy()
        other[0] = BALL.center + 50 * rng.normal(size=2)
        if trial % 3:
            turn = np.pi if trial % 3 == 1 else math.acos(-0.5 / 2.0**2)
            angle = rng.uniform(0, 2 * np.pi) + np.array([0, turn])
            X[0], other[0] = BALL.center + 9 * np.column_stack([np.cos(angle), np.sin(angle)])
        elif kind in ("private", "declared"):
            labels[0] = 1
        seen.clear()
        for records, y in ((X, LABELS), (other, labels)):
            # Little noise, which the first release does not have here.
            fit(kind, records, y, epsilon=1000.0)
        first, second, first_changed, second_changed = seen
        changes = np.linalg.norm(first - first_changed), np.linalg.norm(second - second_changed)
        largest = np.maximum(largest, changes)
    return largest


@pytest.mark.slow
@every_kind
def test_one_record_moves_the_releases_by_what_is_priced(kind, monkeypatch):
    changes = largest_changes(kind, monkeypatch)
    assert (changes <= 1).all()
    assert (changes > 1 - 1e-3).all()


@pytest.mark.slow
@every_kind
def test_records_that_are_not_clipped_are_caught(kind, monkeypatch):
    monkeypatch.setattr(Domain, "project", lambda self, X: X)
    monkeypatch.setattr(Ball, "project", lambda self, X: X)
    monkeypatch.setattr(
        BallMoments, "_multiples", lambda self, X: np.rint(X / self.ball.radius * 2.0**18)
    )
    monkeypatch.setattr(
        BallMeans,
        "transform",
        lambda self, X: np.column_stack([X / self.ball.radius, (X**2).sum(axis=1)]),
    )
    assert (largest_changes(kind, monkeypatch) > 3).all()


@pytest.mark.slow
@pytest.mark.parametrize("radius", [0.5, 9.0])
def test_a_radius_of_another_ball_is_caught(radius, monkeypatch):
    other = Ball(radius, center=BALL.center)
    monkeypatch.setattr(_moment_sampler, "enclosing_ball", lambda domain: other)
    changes = largest_changes("public", monkeypatch)
    # A smaller ball clips more than was declared, a larger one does not use what is paid for.
    assert (changes[0] < 1 - 1e-3) == (radius > 2)


def is_calibrated(value, out, share, epsilon, delta):
    """Whether noise is the least that keeps the releases to the budget, of which this is a part."""
    spread = np.std(out - value) * math.sqrt(share)

    def spent(multiplier):
        a, b = 0.5 / multiplier, epsilon * multiplier
        return norm.cdf(a - b) - math.exp(epsilon) * norm.cdf(-a - b)

    tolerance = 5 / math.sqrt(2 * len(value))
    return spent(spread * (1 + tolerance)) < delta < spent(spread * (1 - tolerance))


@every_kind
def test_the_noise_is_that_of_the_budget(released, kind):
    rng = np.random.default_rng(0)
    X = rng.normal(size=(50, 400)) / 20
    y = rng.integers(0, 2, 50)
    fit(kind, X, y, epsilon=2.0, domain=Ball(1.0, n_features=400))
    assert len(released) == 2
    for (value, out), share in zip(released, (0.1, 0.9), strict=True):
        assert is_calibrated(value, out, share, 2.0, 1e-3)
        # Negative twin: half the noise, and twice.
        for factor in (0.5, 2.0):
            assert not is_calibrated(value, value + factor * (out - value), share, 2.0, 1e-3)


def outcome(kind, seed):
    """Return all that a fit on some records leaves and says, as bytes."""
    X = np.random.default_rng(seed).normal(3, 1, size=(8, 2))
    y = LABELS
    if kind in ("private", "declared"):
        # Classes of other sizes, of which one is empty at last.
        y = (np.arange(8) >= 4 * seed).astype(int)
    with warnings.catch_warnings(record=True) as said:
        warnings.simplefilter("always")
        sampler = fit(kind, X, y, random_state=None)
    return pickle.dumps([vars(sampler), [str(warning.message) for warning in said]])


@every_kind
def test_nothing_else_is_read(kind, monkeypatch):
    """What is left follows from the release: other records of one release leave the same."""
    fixed = np.random.default_rng(0).normal(size=200)

    def tells_nothing(release):
        monkeypatch.setattr(GaussianSequenceRun, "release", release)
        return outcome(kind, 1) == outcome(kind, 2)

    assert tells_nothing(lambda self, value, noise: fixed[: len(value)].copy())
    assert not tells_nothing(lambda self, value, noise: value.copy())


@pytest.mark.parametrize("share", [0.0, 1e-300])
@pytest.mark.parametrize("label", [0, 1])
def test_a_class_of_no_declared_share_is_fitted_with_and_without_records(share, label):
    X = BALL.sample(8, np.random.default_rng(0))
    y = np.append(np.zeros(7, dtype=int), label)
    sampler = fit("declared", X, y, label_proportions=[1 - share, share])
    assert np.isfinite(sampler.means_).all()
    assert np.isfinite(sampler.covariances_).all()


def test_the_report():
    X = BALL.sample(8, np.random.default_rng(0))
    for kind, relation, public in (
        ("none", "replace one record; the number", {"domain"}),
        ("public", "of the same class", {"domain", "classes", "class_sizes"}),
        ("private", "and its label", {"domain", "classes"}),
        ("declared", "and its label", {"domain", "classes", "label_proportions"}),
    ):
        report = fit(kind, X, LABELS, epsilon=0.7).privacy_
        assert (report.epsilon, report.delta, report.n_releases) == (0.7, 1e-3, 2)
        assert relation in report.neighbouring
        assert set(report.public) == public | {"n_samples", "column_names"}
        assert "seed" in report.noise_source
        assert (Event("class_sizes") in report.events) == (kind == "private")
        free = fit(kind, X, LABELS, epsilon=np.inf).privacy_
        assert (free.epsilon, free.delta, free.noise_scale) == (np.inf, 0, 0)
    assert fit("none", X, None, random_state=None).privacy_.noise_source == (
        "operating system entropy"
    )


def test_label_counts_are_released_where_they_are_private():
    X = BALL.sample(4000, np.random.default_rng(0))
    y = np.repeat([0, 1], [1000, 3000])
    found = [
        fit("private", X, y, random_state=seed, delta=1e-5).label_proportions_ for seed in range(5)
    ]
    assert all(abs(share[0] - 0.25) < 0.02 for share in found)
    assert len({share[0] for share in found}) == 5
    assert_allclose(fit("public", X, y, delta=1e-5).label_proportions_, [0.25, 0.75])
    assert_allclose(fit("declared", X, y, delta=1e-5).label_proportions_, [0.5, 0.5])
