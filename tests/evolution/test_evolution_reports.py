"""Classes, reports and errors of the evolution samplers: what they tell, and what not."""

import pickle
from types import SimpleNamespace

import numpy as np
import pytest
from evolution_fits import folded, kinds, latents, samplers, squares, train

from sklearn_dpgen.accounting import Bound
from sklearn_dpgen.domains import Ball
from sklearn_dpgen.evolution import (
    NoisyVotes,
    PrivateEvolutionSampler,
    _voting_sampler,
)
from sklearn_dpgen.mechanisms._sequence import GaussianSequenceRun, ThresholdedLaplaceRun
from sklearn_dpgen.schema import Categorical, Numeric, Schema

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
def test_private_class_sizes_weigh_releases_by_their_noise(sampler_of, labelled, name):
    sampler = train(sampler_of(name, epsilon=5.0), labelled, "private")
    stated = sampler.privacy_.noise_scale
    scales = np.array(list(stated.values()) if isinstance(stated, dict) else [stated])
    lengths = np.array([[len(votes.votes) for votes in step] for step in sampler.history_])
    precisions = 1 / (scales[:, None] ** 2 * lengths)
    sizes = (sums_of_classes(name, sampler) * precisions).sum(axis=0) / precisions.sum(axis=0)
    sizes = sizes.clip(1, 60)
    np.testing.assert_allclose(sampler.label_proportions_, sizes / sizes.sum())


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
    assert plain.name.startswith("Private")
    assert plain.public == ("n_samples", "column_names", "domain")
    assert plain.protected == "record"
    assert plain.bounds == (Bound("one_vote"),)
    assert plain.norm == "l2"
    assert words("none", votes__histogram="laplace_threshold", epsilon=50.0).norm == "l1"
    assert "candidates_and_embedding" in plain.caveats
    assert "label_set" in words("public").public
    for kind in ("public", "private"):
        assert "label_set" not in words(kind, classes=["a", "b"]).public
        assert "classes" in words(kind, classes=["a", "b"]).public
    assert "class_sizes" in words("public").public
    assert "class_sizes" not in words("private").public
    assert "label_proportions" in words("private", label_proportions=[0.5, 0.5]).public
    assert words("public").shared == ("class",)
    assert words("private").protected == "record_and_label"
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
            0.5,
            domain=Ball(3.0, n_features=3),
            votes=NoisyVotes(postprocess="threshold"),
            random_state=0,
        )
        with pytest.warns(UserWarning, match="votes") as caught:
            train(sampler, SimpleNamespace(X=X, y=labelled.y), kind)
        texts.append([str(warning.message) for warning in caught])
    assert texts[0] == texts[1]
    assert len(texts[0]) > 1
