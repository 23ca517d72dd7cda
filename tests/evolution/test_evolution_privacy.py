"""What a fit of the evolution samplers lets out of its records: noisy votes, paid for."""

import math
import pickle
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from numpy.testing import assert_array_equal

from sklearn_dpgen.accounting import gaussian_sigma
from sklearn_dpgen.domains import Ball, Box
from sklearn_dpgen.evolution import (
    EuclideanVariation,
    LatentVariation,
    PrivateEvolutionSampler,
    _evolution_sampler,
    _voting_sampler,
)
from sklearn_dpgen.mechanisms import GaussianSequenceRun, ThresholdedLaplaceRun
from sklearn_dpgen.schema import Categorical, Numeric, Schema
from sklearn_dpgen.utils._random import NoiseSource, noise_source

SAMPLERS = ["evolution", "measure"]
KINDS = ["none", "public", "private"]
BASE = "sklearn_dpgen.evolution._voting_sampler"


def train(sampler, table, kind):
    """Fit with the labels that its kind takes."""
    if kind == "none":
        return sampler.fit(table.X)
    sampler.set_params(labels=kind)
    if kind == "private" and sampler.classes is None:
        sampler.set_params(classes=["a", "b"])
    return sampler.fit(table.X, table.y)


def squares(X, V):
    return ((X[:, None] - V[None]) ** 2).sum(axis=-1)


def folded(X):
    return np.hstack([abs(X), X[:, :1] ** 2])


class Rotation:
    def transform(self, X):
        return X @ np.array([[0.6, 0.8, 0], [-0.8, 0.6, 0], [0, 0, 3.0]])


def latents():
    torch.manual_seed(0)
    network = torch.nn.Sequential(torch.nn.Linear(2, 8), torch.nn.Tanh(), torch.nn.Linear(8, 3))
    return LatentVariation(network, 2, domain=Box(-2, 2, n_features=3), device="cpu")


EVOLUTION = [
    {},
    {"schedule": "theory", "variant": "theory"},
    {"histogram": "laplace_threshold", "postprocess": "threshold"},
    {"postprocess": "bounded_lipschitz", "metric": "l1"},
    {"embedding": folded, "metric": "cosine"},
    {"embedding": Rotation()},
    {"metric": squares, "smoothing": 1.0},
    {"interface": latents(), "classes": ["a", "b"]},
    {"label_proportions": [0.5, 0.5]},
]
MEASURE = [
    {},
    {"metric": "l1", "postprocess": "simplex"},
    {"histogram": "laplace_threshold", "postprocess": "threshold"},
    {"support": 2 * np.random.default_rng(3).uniform(-1, 1, size=(40, 3)), "metric": squares}
    | {"postprocess": "simplex"},
]
SETTINGS = [*(("evolution", o) for o in EVOLUTION), *(("measure", o) for o in MEASURE)]
IDS = [f"{name}-{'-'.join(options) or 'default'}" for name, options in SETTINGS]
settings = pytest.mark.parametrize(("name", "options"), SETTINGS, ids=IDS)
kinds = pytest.mark.parametrize("kind", KINDS)
samplers = pytest.mark.parametrize("name", SAMPLERS)


# Releases are all that depends on the records.


@pytest.fixture
def told_by_releases_alone(sampler_of, labelled, unlike, forced, same):
    """Return a check that data sets with the same releases give the same fit."""

    def check(name, kind, **options):
        fits = []
        for table in (labelled, unlike(labelled, kind)):
            forced.clear()
            fits.append(train(sampler_of(name, **options), table, kind))
        first, second = fits
        return (
            same(first, second)
            and first.privacy_ == second.privacy_
            and first.noise_multiplier_ == second.noise_multiplier_
            and np.array_equal(first.sample(9, random_state=0), second.sample(9, random_state=0))
            and (
                kind == "none"
                or np.array_equal(
                    first.sample_labels(9, random_state=0), second.sample_labels(9, random_state=0)
                )
            )
        )

    return check


@settings
@kinds
def test_records_with_equal_releases_give_equal_fits(told_by_releases_alone, name, options, kind):
    assert told_by_releases_alone(name, kind, **options)


@samplers
@kinds
def test_records_matter_where_releases_are_not_forced(
    sampler_of, labelled, unlike, same, name, kind
):
    first, second = (
        train(sampler_of(name, epsilon=np.inf), table, kind)
        for table in (labelled, unlike(labelled, kind))
    )
    assert not same(first, second)


@samplers
@kinds
def test_votes_that_pass_by_the_release_are_caught(told_by_releases_alone, monkeypatch, name, kind):
    votes, count = _voting_sampler.nearest_neighbor_votes, _voting_sampler.VotingSampler._count
    exact = []

    def watch(*args, **options):
        exact.append(votes(*args, **options))
        return exact[-1]

    def leaking(self, members, *args):
        noisy = count(self, members, *args)
        return [v + x for v, x in zip(noisy, exact[-len(noisy) :], strict=True)]

    monkeypatch.setattr(f"{BASE}.nearest_neighbor_votes", watch)
    assert told_by_releases_alone(name, kind)
    monkeypatch.setattr(_voting_sampler.VotingSampler, "_count", leaking)
    assert not told_by_releases_alone(name, kind)


@samplers
def test_private_class_sizes_that_pass_by_are_caught(told_by_releases_alone, monkeypatch, name):
    read = _voting_sampler.VotingSampler._read

    def leaking(self, X, y):
        members = read(self, X, y)
        self._sizes = [len(part) for part in members]
        return members

    monkeypatch.setattr(_voting_sampler.VotingSampler, "_read", leaking)
    assert told_by_releases_alone(name, "public")
    monkeypatch.setattr(
        _voting_sampler.VotingSampler, "_class_size", lambda self, code, *_: self._sizes[code]
    )
    assert told_by_releases_alone(name, "public")
    assert not told_by_releases_alone(name, "private")


def test_candidates_from_the_records_are_caught(told_by_releases_alone, monkeypatch):
    read = _voting_sampler.VotingSampler._read

    def leaking(self, X, y):
        self.secret = read(self, X, y)
        return self.secret

    monkeypatch.setattr(_voting_sampler.VotingSampler, "_read", leaking)
    assert told_by_releases_alone("evolution", "none")
    monkeypatch.setattr(
        _evolution_sampler.PrivateEvolutionSampler,
        "_random",
        lambda self, n, rng: self.secret[0][rng.integers(len(self.secret[0]), size=n)],
    )
    assert not told_by_releases_alone("evolution", "none")


class Spy(EuclideanVariation):
    """An interface that keeps what it is shown."""

    def __init__(self, domain):
        super().__init__(domain)
        self.seen = []

    def random(self, n, rng):
        self.seen.append(np.array([n]))
        return super().random(n, rng)

    def vary(self, X, rng, degree):
        self.seen += [X, np.array([degree])]
        return super().vary(X, rng, degree)

    def decode(self, X):
        self.seen.append(X)
        return X


@kinds
def test_an_interface_sees_no_record(sampler_of, labelled, monkeypatch, kind):
    def shown(X):
        spy = Spy(Box(-2, 2, n_features=3))
        train(sampler_of("evolution", interface=spy), SimpleNamespace(X=X, y=labelled.y), kind)
        assert len(spy.seen) > 9
        return np.concatenate([np.ravel(part) for part in spy.seen])

    assert not np.isin(labelled.X, shown(labelled.X)).any()
    monkeypatch.setattr(
        PrivateEvolutionSampler, "_random", lambda self, n, rng: labelled.X[:n].copy()
    )
    assert np.isin(labelled.X, shown(labelled.X)).any()


# Votes.


def counted(name, sampler, table, kind, metric):
    """Return the exact votes of each release, by the definition, of what is in the history."""
    domain = sampler.domain_
    rows = [slice(None)] if kind == "none" else [table.y == label for label in ("a", "b")]
    counts = []
    for classes in sampler.history_:
        parts = []
        for members, votes in zip(rows, classes, strict=True):
            places = sampler._decode(votes.candidates)
            distances = metric(domain.project(table.X[members]), places)
            parts.append(np.bincount(distances.argmin(axis=1), minlength=len(places)))
        counts.append(np.concatenate(parts).astype(float))
    return counts


def voted(name, sampler):
    return [np.concatenate([v.votes for v in part]) for part in sampler.history_]


@kinds
@pytest.mark.parametrize(
    ("name", "options", "metric"),
    [
        ("evolution", {}, squares),
        ("evolution", {"metric": "l1"}, lambda X, V: abs(X[:, None] - V[None]).sum(axis=-1)),
        ("evolution", {"embedding": folded}, lambda X, V: squares(folded(X), folded(V))),
        ("evolution", {"interface": latents()}, squares),
        ("evolution", {"schedule": "theory"}, squares),
        ("measure", {}, squares),
    ],
    ids=["l2", "l1", "embedding", "latents", "theory", "measure"],
)
def test_votes_are_counted_and_released_once(
    sampler_of, labelled, released, name, options, metric, kind
):
    labelled.X *= 1.3  # some records lie outside of the domain
    sampler = train(sampler_of(name, **options), labelled, kind)
    exact = counted(name, sampler, labelled, kind, metric)
    out = voted(name, sampler)
    assert len(released) == len(exact) == len(out) == sampler.privacy_.n_releases
    for release, counts, votes in zip(released, exact, out, strict=True):
        assert_array_equal(release.value, counts)
        assert counts.sum() == 60
        assert_array_equal(release.out, votes)
        assert not np.array_equal(release.out, release.value)


@samplers
@kinds
def test_records_that_are_not_projected_would_be_seen(
    sampler_of, labelled, released, monkeypatch, name, kind
):
    """The twin: the exact votes of the check are not those of any other search."""
    votes = _voting_sampler.nearest_neighbor_votes
    monkeypatch.setattr(
        f"{BASE}.nearest_neighbor_votes", lambda X, V, **given: votes(X[1:], V, **given)
    )
    sampler = train(sampler_of(name), labelled, kind)
    exact = counted(name, sampler, labelled, kind, squares)
    assert not np.array_equal(released[0].value, exact[0])


# Sensitivity.


def largest_change(sampler_of, table, forced, name, kind, n_trials=4, **options):
    """Return the largest l2 change of any release by one record, and the stated sensitivity."""
    rng, largest = np.random.default_rng(1), 0.0
    as_given = options.pop("as_given", lambda X: X)
    for trial in range(n_trials):
        X, y = table.X.copy(), table.y.copy()
        row = trial % len(X)
        X[row] = rng.choice([-1, 1], size=3) * rng.choice([0.1, 2.0, 50.0])
        if kind == "private" and trial % 2:
            y[row] = "a" if y[row] == "b" else "b"
        releases = []
        for neighbour in (table, SimpleNamespace(X=X, y=y)):
            forced.clear()
            given = SimpleNamespace(X=as_given(neighbour.X), y=neighbour.y)
            sampler = train(sampler_of(name, **options), given, kind)
            releases.append(list(forced))
        for one, other in zip(*releases, strict=True):
            largest = max(largest, np.linalg.norm(one - other))
    return largest, sampler.privacy_.sensitivity


@settings
@kinds
def test_one_record_changes_two_votes(sampler_of, labelled, forced, name, options, kind):
    change, stated = largest_change(sampler_of, labelled, forced, name, kind, **options)
    # In l1 where the noise is Laplace noise.
    norm = 2.0 if "histogram" in options else math.sqrt(2)
    assert stated == pytest.approx(norm)
    assert change == pytest.approx(math.sqrt(2))


@samplers
@kinds
def test_one_record_of_a_dask_array_changes_two_votes(sampler_of, labelled, forced, name, kind):
    dask_array = pytest.importorskip("dask.array")
    given = {"as_given": lambda X: dask_array.from_array(X, chunks=(13, 2)), "n_trials": 2}
    change, stated = largest_change(sampler_of, labelled, forced, name, kind, **given)
    assert change == pytest.approx(math.sqrt(2)) == stated


def two_votes(X, V, **options):
    """Return the votes of records that have two of them each."""
    order = np.argsort(squares(X, V), axis=1, kind="stable")[:, :2]
    return np.bincount(order.ravel(), minlength=len(V))


def soft_votes(X, V, **options):
    """Return votes that are shared by all candidates, and weigh more far away."""
    distances = squares(X, V)
    return ((distances + 0.1) / (distances.min(axis=1, keepdims=True) + 0.1)).sum(axis=0) ** 2


def normalized_votes(X, V, **options):
    """Return votes of records that are told their place among the others."""
    X = (X - X.mean(axis=0)) / (X.std(axis=0) + 1e-9)
    return np.bincount(squares(X, V).argmin(axis=1), minlength=len(V))


@samplers
@kinds
@pytest.mark.parametrize("broken", [two_votes, soft_votes, normalized_votes])
def test_records_with_more_than_a_vote_are_caught(
    sampler_of, labelled, forced, monkeypatch, name, kind, broken
):
    monkeypatch.setattr(f"{BASE}.nearest_neighbor_votes", broken)
    change, stated = largest_change(sampler_of, labelled, forced, name, kind)
    assert change > 1.2 * stated


# Noise.


def standard(noise):
    """Whether values have the moments of independent standard normals, to 5 sigma."""
    n = noise.size
    return bool(
        abs(noise.mean()) * math.sqrt(n) < 5
        and abs((noise**2).mean() - 1) * math.sqrt(n / 2) < 5
        and abs((noise**4).mean() - 3) * math.sqrt(n / 96) < 5
        and abs((noise[:-1] * noise[1:]).mean()) * math.sqrt(n) < 5
    )


def noise_of(sampler, table, kind, released):
    """Return the noise on the votes in units of what the report states for each release."""
    released.clear()
    train(sampler, table, kind)
    stated = sampler.privacy_.noise_scale
    scales = list(stated.values()) if isinstance(stated, dict) else [stated] * len(released)
    return np.concatenate(
        [(r.out - r.value) / scale for r, scale in zip(released, scales, strict=True)]
    )


class Halved(NoiseSource):
    def normal(self, size):
        return super().normal(size) / 2


class Repeated(NoiseSource):
    def normal(self, size):
        return np.full(size, super().normal(1))


MANY = {"evolution": {"n_samples": 400}, "measure": {"n_points": 3000}}


@samplers
@kinds
def test_the_noise_is_what_the_report_states(
    sampler_of, labelled, released, monkeypatch, name, kind
):
    options = MANY[name] | {"postprocess": "simplex"}
    noise = noise_of(sampler_of(name, **options), labelled, kind, released)
    assert noise.size > 2000
    assert standard(noise)
    for broken in (Halved, Repeated):
        monkeypatch.setattr(f"{BASE}.noise_source", lambda *a, b=broken, **k: b())
        assert not standard(noise_of(sampler_of(name, **options), labelled, kind, released))


@samplers
def test_what_is_stated_keeps_to_the_budget(sampler_of, labelled, name):
    for options in ({}, {"schedule": "theory"})[: 2 if name == "evolution" else 1]:
        sampler = sampler_of(name, epsilon=0.7, delta=1e-4, **options).fit(labelled.X)
        stated = sampler.privacy_
        scale = stated.noise_scale
        scales = list(scale.values()) if isinstance(scale, dict) else [scale] * stated.n_releases
        together = 1 / math.sqrt(sum(1 / s**2 for s in scales))
        assert together == pytest.approx(gaussian_sigma(0.7, 1e-4, math.sqrt(2)), rel=1e-8)
        assert sampler.noise_multiplier_ == pytest.approx(together / math.sqrt(2))
        assert len(scales) == (3 if name == "evolution" else 1)


@samplers
@pytest.mark.parametrize("histogram", ["gaussian", "laplace_threshold"])
@kinds
def test_without_a_budget_there_is_no_noise(sampler_of, labelled, released, name, histogram, kind):
    sampler = train(sampler_of(name, epsilon=np.inf, histogram=histogram), labelled, kind)
    assert all(np.array_equal(r.value, r.out) for r in released)
    assert (sampler.noise_multiplier_, sampler.privacy_.noise_scale) == (0, 0)
    assert (sampler.privacy_.epsilon, sampler.privacy_.delta) == (np.inf, 0)
    if kind != "none":
        np.testing.assert_allclose(sampler.label_proportions_, [1 / 3, 2 / 3])


@samplers
def test_a_release_too_many_is_refused(sampler_of, labelled, monkeypatch, name):
    count = _voting_sampler.VotingSampler._count

    def twice(self, *args):
        count(self, *args)
        return count(self, *args)

    for histogram in ("gaussian", "laplace_threshold"):
        sampler_of(name, histogram=histogram, epsilon=50.0).fit(labelled.X)
        with monkeypatch.context() as patch:
            patch.setattr(_voting_sampler.VotingSampler, "_count", twice)
            with pytest.raises(RuntimeError, match="budget paid for"):
                sampler_of(name, histogram=histogram, epsilon=50.0).fit(labelled.X)


# Seeds.


@samplers
@kinds
def test_records_with_the_same_votes_give_the_same_fit(sampler_of, labelled, same, name, kind):
    """A fit knows of a record but its votes: neither its place in the table nor its digits."""
    first = train(sampler_of(name), labelled, kind)
    order = np.random.default_rng(5).permutation(60)
    moved, other = labelled.X.copy(), labelled.X.copy()
    moved[7] += 1e-9
    other[7] *= -1
    y = labelled.y
    assert same(
        first, train(sampler_of(name), SimpleNamespace(X=labelled.X[order], y=y[order]), kind)
    )
    assert same(first, train(sampler_of(name), SimpleNamespace(X=moved, y=y), kind))
    assert not same(first, train(sampler_of(name), SimpleNamespace(X=other, y=y), kind))


@samplers
@kinds
def test_a_seed_gives_other_votes_other_noise(sampler_of, labelled, released, name, kind):
    options = MANY[name] | {"postprocess": "simplex"}
    noise = noise_of(sampler_of(name, **options), labelled, kind, released)

    def is_new(table, **change):
        other = noise_of(sampler_of(name, **options | change), table, kind, released)
        n = min(other.size, noise.size)
        return abs(np.corrcoef(noise[:n], other[:n])[0, 1]) < 5 / math.sqrt(n)

    assert not is_new(labelled)
    moved = labelled.X.copy()
    moved[3] *= -1
    assert is_new(SimpleNamespace(X=moved, y=labelled.y))
    for change in ({"epsilon": 2.0}, {"delta": 1e-3}, {"random_state": 1}):
        assert is_new(labelled, **change)


POINTS = np.linspace(-1.9, 1.9, 1000)[:, None]


def same_counts_new_noise(sampler_of, released, *fits):
    """Whether two fits of the same budget and seed, and the same counts, have other noise."""
    noise, counts = [], []
    for support, X, y in fits:
        options = {"support": support, "postprocess": "simplex", "domain": Box(-2, 20)}
        sampler = sampler_of("measure", **options)
        kind = "none" if y is None else "private"
        noise.append(noise_of(sampler, SimpleNamespace(X=X, y=y), kind, released))
        counts.append(released[0].value)
    assert_array_equal(*counts)
    return abs(np.corrcoef(*noise)[0, 1]) < 5 / math.sqrt(noise[0].size)


def test_noise_is_for_one_set_of_candidates(sampler_of, released):
    """Equal noise on equal counts would tell that counts of other candidates are equal."""
    X = POINTS[::20]
    fit = (POINTS, X, None)
    assert not same_counts_new_noise(sampler_of, released, fit, fit)
    assert same_counts_new_noise(sampler_of, released, fit, (POINTS + 1e-6, X, None))


def test_noise_is_for_one_layout(sampler_of, released):
    """Records without labels, and in two private classes, share counts but not noise."""
    first, second = POINTS[::20], POINTS[::25]
    slots = (POINTS, np.vstack([first, second]), np.repeat(["a", "b"], [50, 40]))
    plain = (np.vstack([POINTS, POINTS + 10]), np.vstack([first, second + 10]), None)
    assert not same_counts_new_noise(sampler_of, released, plain, plain)
    assert same_counts_new_noise(sampler_of, released, plain, slots)


@samplers
def test_noise_without_a_seed_is_never_repeated(sampler_of, labelled, released, name):
    options = MANY[name] | {"random_state": None, "postprocess": "simplex"}
    first, second = (
        noise_of(sampler_of(name, **options), labelled, "none", released) for _ in "ab"
    )
    n = min(first.size, second.size)
    assert abs(np.corrcoef(first[:n], second[:n])[0, 1]) < 7 / math.sqrt(n)


@samplers
def test_noise_and_candidates_have_streams_of_their_own(sampler_of, labelled, monkeypatch, name):
    """Noise is drawn from a NoiseSource alone, and no global stream is read."""
    np.random.seed(0)  # noqa: NPY002
    torch.manual_seed(0)
    before = np.random.get_state()[1].copy()  # noqa: NPY002
    seen = []

    def watch(seed=None, *, context=()):
        seen.append((seed, len(context)))
        return noise_source(seed, context=context)

    monkeypatch.setattr(f"{BASE}.noise_source", watch)
    sampler_of(name, random_state=None).fit(labelled.X).sample(4)
    assert {seed for seed, _ in seen} == {None}
    seen.clear()
    sampler_of(name, random_state=3).fit(labelled.X)
    assert None not in {seed for seed, _ in seen}
    assert_array_equal(before, np.random.get_state()[1])  # noqa: NPY002


# Classes.


def sums_of_classes(name, sampler):
    """Return the noisy votes of each class, summed, of shape (n_releases, n_classes)."""
    steps = sampler.history_
    return np.array([[votes.votes.sum() for votes in classes] for classes in steps])


@samplers
def test_private_class_sizes_come_from_noisy_votes(sampler_of, labelled, name):
    """The sizes are a mean of what the releases said of them, and so near the true ones."""
    shares = []
    for seed in range(12):
        sampler = train(sampler_of(name, epsilon=20.0, random_state=seed), labelled, "private")
        sums = sums_of_classes(name, sampler)
        low, high = sums.min(axis=0).clip(1, 60), sums.max(axis=0).clip(1, 60)
        share = sampler.label_proportions_[0]
        assert low[0] / (low[0] + high[1]) - 1e-9 <= share <= high[0] / (high[0] + low[1]) + 1e-9
        shares.append(share)
    assert 0 < np.std(shares) < 0.2
    assert abs(np.mean(shares) - 1 / 3) < 0.1


@samplers
def test_public_class_sizes_are_exact(sampler_of, labelled, name):
    sampler = train(sampler_of(name, epsilon=0.1), labelled, "public")
    np.testing.assert_allclose(sampler.label_proportions_, [1 / 3, 2 / 3])
    with pytest.raises(ValueError, match="every class of classes needs a record"):
        train(sampler_of(name, classes=["a", "b", "c"]), labelled, "public")
    # Private ones do not tell.
    many = train(sampler_of(name, classes=["a", "b", "c"]), labelled, "private")
    assert many.label_proportions_.min() > 0


def labels_in_the_open(sampler_of, name, y):
    """Return the classes that a fit with private labels shows, or the error that it ends in."""
    sampler = sampler_of(name, labels="private")
    try:
        return tuple(sampler.fit(np.zeros((60, 3)), y).classes_)
    except ValueError as error:
        return str(error)


@samplers
def test_private_labels_need_declared_classes(sampler_of, monkeypatch, released, name):
    """A lone rare label is that of one record: without a declaration it would be published."""
    y = np.repeat(["a", "b"], 30)
    rare = np.where(np.arange(60) == 7, "c", y)
    first, second = (labels_in_the_open(sampler_of, name, labels) for labels in (y, rare))
    assert first == second
    assert "need classes" in first
    assert not released
    # The twin: the classes that occur, as with public labels.
    check = _voting_sampler.VotingSampler._check_label_parameters
    monkeypatch.setattr(
        _voting_sampler.VotingSampler,
        "_check_label_parameters",
        lambda self, y: None if self.classes is None else check(self, y),
    )
    shown = [labels_in_the_open(sampler_of, name, labels) for labels in (y, rare)]
    assert shown == [("a", "b"), ("a", "b", "c")]


# The report.


@samplers
def test_the_report_names_what_is_public(sampler_of, labelled, name):
    def words(kind, **options):
        return train(sampler_of(name, **options), labelled, kind).privacy_

    plain = words("none")
    assert plain.mechanism.startswith("Private")
    assert plain.public == ("n_samples", "names and types of the columns", "domain")
    assert "label" not in plain.neighbouring
    assert "one vote" in plain.sensitivity_source
    assert "l2" in plain.sensitivity_source
    assert "l1" in words("none", histogram="laplace_threshold", epsilon=50.0).sensitivity_source
    assert any("embedding" in caveat for caveat in plain.caveats)
    assert "set of labels" in words("public").public
    for kind in ("public", "private"):
        assert "set of labels" not in words(kind, classes=["a", "b"]).public
        assert "classes" in words(kind, classes=["a", "b"]).public
    assert "class sizes" in words("public").public
    assert "class sizes" not in words("private").public
    assert "label_proportions" in words("private", label_proportions=[0.5, 0.5]).public
    assert "same class" in words("public").neighbouring
    assert "and its label" in words("private").neighbouring
    assert "seed" in words("none").noise_source
    assert words("none", random_state=None).noise_source == "operating system entropy"
    assert (plain.epsilon, plain.delta) == (1.0, 1e-5)
    assert plain.sampling_rate == 1
    assert words("none", delta="auto").delta == pytest.approx(0.1 / 60)


def test_the_report_names_what_candidates_came_from(sampler_of, labelled):
    fit = sampler_of("evolution", interface=latents(), embedding=folded).fit(labelled.X)
    assert {"interface", "embedding"} <= set(fit.privacy_.public)


# What is left behind, and what errors show.


def bytes_of(values):
    values = np.ravel(values).astype(np.float64)
    return {v.tobytes() for v in values} | {v.tobytes() for v in values.astype(np.float32)}


@samplers
@kinds
def test_no_record_is_stored(sampler_of, labelled, name, kind):
    sampler = train(sampler_of(name), labelled, kind)
    secrets = bytes_of(labelled.X) | {(labelled.y == "b").astype(np.int64).tobytes()}

    def holds():
        dump = pickle.dumps(sampler)
        return any(secret in dump for secret in secrets)

    assert not holds()
    for kept in (labelled.X, (labelled.y == "b").astype(np.int64)):
        sampler.kept_ = kept
        assert holds()


def shown(error):
    """Return the text of an error and of all that it came from."""
    text = []
    while error is not None:
        text.append(str(error))
        error = error.__cause__ or error.__context__
    return " ".join(text)


SECRETS = ("secret", "271828", "-271")


def reveals(error):
    return any(secret in shown(error) for secret in SECRETS)


@samplers
@pytest.mark.parametrize("as_dask", [False, True], ids=["array", "dask"])
def test_errors_show_no_record(sampler_of, labelled, name, as_dask):
    dask_array = pytest.importorskip("dask.array") if as_dask else None
    for bad in (np.nan, np.inf, -np.inf):
        X = labelled.X.copy()
        X[5] = [271828.25, bad, -271.0]
        given = dask_array.from_array(X, chunks=20) if as_dask else X
        if as_dask and np.isinf(bad):
            continue  # moved to the domain
        with pytest.raises(ValueError, match="NaN|infinity") as raised:
            sampler_of(name).fit(given)
        assert not reveals(raised.value)
    if not as_dask:
        for bad in ("secret", 1j, None):
            X = labelled.X.astype(object)
            X[5] = [271828.25, bad, -271.0]
            with pytest.raises((ValueError, TypeError)) as raised:
                sampler_of(name).fit(X)
            assert not reveals(raised.value)
    assert reveals(ValueError(f"{labelled.X[0]} secret"))


@samplers
@pytest.mark.parametrize("secret", ["secret", 271828.25, np.nan, None])
@pytest.mark.parametrize("declared", [None, ["a", "b"], [0, 1]])
@pytest.mark.parametrize("kind", ["public", "private"])
def test_errors_show_no_label(sampler_of, labelled, name, kind, declared, secret):
    y = (np.arange(60) % 2 if declared == [0, 1] else labelled.y).astype(object)
    if declared is None and secret == "secret":
        y[8] = 1.0
    y[7] = secret
    with pytest.raises(ValueError, match="missing|one type|need classes") as raised:
        sampler_of(name, labels=kind, classes=declared).fit(labelled.X, y)
    assert not reveals(raised.value)


def test_errors_of_a_table_show_no_value(sampler_of):
    pandas = pytest.importorskip("pandas")
    schema = Schema({"age": Numeric(0, 100), "job": Categorical(["baker", "nurse"])})
    sampler = sampler_of("evolution", schema=schema, domain=None)
    table = pandas.DataFrame({"age": [1.0, 2.0, 3.0], "job": ["baker", "nurse", "nurse"]})
    sampler.fit(table)
    for column, value in (("job", "secret"), ("job", None), ("age", np.nan), ("age", "secret")):
        wrong = table.copy().astype(object)
        wrong.loc[1, column] = value
        with pytest.raises((ValueError, TypeError), match=column) as raised:
            sampler.fit(wrong)
        assert not reveals(raised.value)


def test_a_metric_and_an_embedding_that_fail_show_no_value(sampler_of, labelled):
    labelled.X[:] = 1.5
    broken = [
        {"metric": lambda X, V: squares(X, V) * np.nan},
        {"metric": lambda X, V: squares(X, V)[:, 1:]},
        {"embedding": lambda X: X[:-1]},
        {"embedding": lambda X: X * np.nan},
    ]
    for options in broken:
        with pytest.raises(ValueError) as raised:  # noqa: PT011
            sampler_of("evolution", **options).fit(labelled.X)
        assert "1.5" not in shown(raised.value)


@pytest.mark.parametrize("kind", ["public", "private"])
def test_warnings_show_what_is_public(labelled, kind, monkeypatch):
    """Two data sets with the same releases are warned of alike."""
    texts = []
    for X in (labelled.X, -labelled.X[::-1]):
        for run in (GaussianSequenceRun, ThresholdedLaplaceRun):
            monkeypatch.setattr(run, "release", lambda self, value, noise: np.zeros(value.size))
        sampler = PrivateEvolutionSampler(
            0.5, domain=Ball(3.0, n_features=3), postprocess="threshold", random_state=0
        )
        with pytest.warns(UserWarning, match="votes") as caught:
            train(sampler, SimpleNamespace(X=X, y=labelled.y), kind)
        texts.append([str(warning.message) for warning in caught])
    assert texts[0] == texts[1]
    assert len(texts[0]) > 1
