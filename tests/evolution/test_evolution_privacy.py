"""What a fit of the evolution samplers lets out of its records: votes, of a known sensitivity."""

import math
from types import SimpleNamespace

import numpy as np
import pytest
from evolution_fits import (
    BASE,
    folded,
    kinds,
    latents,
    samplers,
    settings,
    squares,
    train,
)
from numpy.testing import assert_array_equal

from sklearn_dpgen.domains import Box
from sklearn_dpgen.evolution import (
    EuclideanVariation,
    PrivateEvolutionSampler,
    _evolution_sampler,
    _voting_sampler,
)

# Few records have few votes.
pytestmark = pytest.mark.filterwarnings("ignore:No candidate with fewer than:UserWarning")

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
    secret = []

    def leaking(self, *given, seed):
        members, voters = read(self, *given, seed=seed)
        secret[:] = [len(part) for part in members]
        return members, voters

    monkeypatch.setattr(_voting_sampler.VotingSampler, "_read", leaking)
    assert told_by_releases_alone(name, "public")
    monkeypatch.setattr(
        _voting_sampler.VotingSampler, "_class_size", lambda self, facts, code, *_: secret[code]
    )
    assert told_by_releases_alone(name, "public")
    assert not told_by_releases_alone(name, "private")


def test_candidates_from_the_records_are_caught(told_by_releases_alone, monkeypatch):
    read = _voting_sampler.VotingSampler._read

    def leaking(self, *given, seed):
        self.secret, voters = read(self, *given, seed=seed)
        return self.secret, voters

    monkeypatch.setattr(_voting_sampler.VotingSampler, "_read", leaking)
    assert told_by_releases_alone("evolution", "none")
    monkeypatch.setattr(
        _evolution_sampler.PrivateEvolutionSampler,
        "_random",
        lambda self, n, rng: self.secret[0][rng.integers(len(self.secret[0]), size=n)],
    )
    assert not told_by_releases_alone("evolution", "none")


def test_a_scale_from_the_records_is_caught(told_by_releases_alone, monkeypatch):
    """How far candidates are varied next follows the released votes, and nothing else."""
    read = _voting_sampler.VotingSampler._read
    secret = []

    def leaking(self, *given, seed):
        secret[:], voters = read(self, *given, seed=seed)
        return secret, voters

    monkeypatch.setattr(_voting_sampler.VotingSampler, "_read", leaking)
    assert told_by_releases_alone("evolution", "none")
    monkeypatch.setattr(
        _evolution_sampler, "next_degree", lambda degree, *args: 0.1 + 0.1 * secret[0].std()
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
    norm = 2.0 if "votes__histogram" in options else math.sqrt(2)
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
