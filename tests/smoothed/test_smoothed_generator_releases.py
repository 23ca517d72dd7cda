"""What a fit of the smoothed generator learns from: its releases, and no record."""

import pickle

import numpy as np
import pytest
from generator_cases import KINDS, of_records, other_records, train

from sklearn_dpgen.domains import Box
from sklearn_dpgen.mechanisms._sampled import StratifiedGaussianRun
from sklearn_dpgen.ot._lines import LineGrid
from sklearn_dpgen.smoothed import _generator, _releases
from sklearn_dpgen.smoothed._releases import ClassRecords

BOX = Box(-3, 3, n_features=3)


# Releases are all that depends on the records.


@pytest.fixture
def told_by_releases_alone(tiny_generator, labelled, weights_of, monkeypatch):
    """Return a check that data sets with the same releases give the same fit."""

    def check(kind, **options):
        def forced(self, value):
            self._is_drawn = False
            return np.random.default_rng(self._n_drawn).normal(size=value.size, scale=4)

        with monkeypatch.context() as patch:
            patch.setattr(StratifiedGaussianRun, "release", forced)
            first, second = (
                train(tiny_generator(**options), table, kind)
                for table in (labelled, other_records(labelled, kind))
            )
        assert getattr(first, "classes_", np.zeros(0)).tolist() in ([], ["a", "b"])
        return (
            np.array_equal(weights_of(first), weights_of(second))
            and first.loss_curve_ == second.loss_curve_
            and first.privacy_ == second.privacy_
            and np.array_equal(
                getattr(first, "label_proportions_", 0), getattr(second, "label_proportions_", 0)
            )
            and np.array_equal(first.sample(5, random_state=0), second.sample(5, random_state=0))
        )

    return check


@pytest.mark.parametrize("options", [{}, {"release__batch_size": 6}], ids=["default", "batches"])
@pytest.mark.parametrize("kind", KINDS)
def test_records_with_equal_releases_give_equal_models(told_by_releases_alone, kind, options):
    assert told_by_releases_alone(kind, **options)


@pytest.mark.parametrize("kind", KINDS)
def test_records_matter_where_releases_are_not_forced(tiny_generator, labelled, weights_of, kind):
    first, second = (
        train(tiny_generator(epsilon=np.inf), table, kind)
        for table in (labelled, other_records(labelled, kind))
    )
    assert not np.array_equal(weights_of(first), weights_of(second))


@pytest.mark.parametrize("kind", KINDS)
def test_means_that_pass_by_the_release_are_caught(told_by_releases_alone, monkeypatch, kind):
    by_class = ClassRecords.by_class

    def leaking(self, noisy):
        means = [self.records[self.codes == c].mean(axis=0) for c in range(self.n_classes)]
        return [v + mean for v, mean in zip(by_class(self, noisy), means, strict=True)]

    monkeypatch.setattr(ClassRecords, "by_class", leaking)
    assert not told_by_releases_alone(kind)


def test_private_counts_that_pass_by_the_release_are_caught(told_by_releases_alone, monkeypatch):
    proportions = _generator.released_proportions

    def leaking(label_proportions, codes, n_classes, counting, noise):
        return proportions(label_proportions, codes, n_classes, None, noise)

    monkeypatch.setattr(_generator, "released_proportions", leaking)
    assert told_by_releases_alone("public")
    assert not told_by_releases_alone("private")


def test_a_radius_of_the_records_is_caught(told_by_releases_alone, monkeypatch):
    layout = ClassRecords.layout

    def scaled(self, drawn):
        object.__setattr__(self, "largest", abs(self.records).max())
        return layout(self, drawn)

    monkeypatch.setattr(ClassRecords, "layout", scaled)
    by_class = ClassRecords.by_class
    monkeypatch.setattr(
        ClassRecords, "by_class", lambda self, v: [x / self.largest for x in by_class(self, v)]
    )
    assert not told_by_releases_alone("none")


def counted_is_released(generator, table, kind, released, monkeypatch):
    """Whether what is counted on lines is what was released, each value once."""
    counted = []
    counts = LineGrid.counts

    def watch(self, points, directions):
        counted.append(points.numpy().ravel())
        return counts(self, points, directions)

    released.clear()
    with monkeypatch.context() as patch:
        patch.setattr(LineGrid, "counts", watch)
        train(generator, table, kind)
    noisy = [out for _, out in of_records(released, kind)]
    expected = np.sort(np.concatenate(noisy).astype(np.float32))
    return np.array_equal(np.sort(np.concatenate(counted)), expected)


@pytest.mark.parametrize("kind", KINDS)
def test_lines_count_what_was_released(tiny_generator, labelled, released, monkeypatch, kind):
    monkeypatch.setattr(_releases, "CHUNK_ENTRIES", 100)
    assert counted_is_released(tiny_generator(), labelled, kind, released, monkeypatch)
    watched = StratifiedGaussianRun.release

    def leak(self, value):
        watched(self, value)
        return value

    monkeypatch.setattr(StratifiedGaussianRun, "release", leak)
    assert not counted_is_released(tiny_generator(), labelled, kind, released, monkeypatch)


# What is left behind, and what errors show.


def bytes_of(values):
    values = np.ravel(values).astype(np.float64)
    return {v.tobytes() for v in values} | {v.tobytes() for v in values.astype(np.float32)}


# Each is the network, the report, or public.
FITTED = {
    "_frame_kind",
    "_n_normals",
    "_output_domain",
    "_output_transform",
    "classes_",
    "domain_",
    "generator_",
    "label_proportions_",
    "loss_curve_",
    "n_features_in_",
    "n_iter_",
    "noise_multiplier_",
    "privacy_",
}


@pytest.mark.parametrize("kind", KINDS)
def test_no_record_is_stored(tiny_generator, labelled, kind):
    generator = train(tiny_generator(), labelled, kind)
    parts = bytes_of(labelled.X) | bytes_of(labelled.X - BOX.project(labelled.X) + 1e-3)
    parts.add((labelled.y == "b").astype(np.int64).tobytes())

    def holds():
        dump = pickle.dumps(generator)
        return any(part in dump for part in parts)

    assert set(vars(generator)) - set(generator.get_params()) <= FITTED
    assert not holds()
    for kept in (labelled.X, labelled.X.astype(np.float32), (labelled.y == "b").astype(np.int64)):
        generator.kept_ = kept
        assert holds()


@pytest.mark.parametrize("secret", ["secret", 271828.25, np.nan, None])
@pytest.mark.parametrize("declared", [None, ["a", "b"], [0, 1]])
@pytest.mark.parametrize("kind", ["public", "private"])
def test_errors_show_no_label(tiny_generator, labelled, kind, declared, secret):
    y = (np.arange(40) % 2 if declared == [0, 1] else labelled.y).astype(object)
    if declared is None and secret == "secret":
        y[8] = 1.0
    y[7] = secret
    with pytest.raises(ValueError, match="missing|one type|need classes") as raised:
        tiny_generator(labels=kind, classes=declared).fit(labelled.X, y)
    for error in (raised.value, raised.value.__cause__):
        assert "secret" not in str(error)
        assert "271828" not in str(error)


def test_public_labels_leave_no_class_empty(tiny_generator, labelled):
    generator = tiny_generator(classes=["a", "b", "c"])
    with pytest.raises(ValueError, match="every class of classes needs a record"):
        train(generator, labelled, "public")
    # Private ones do not tell.
    assert len(train(generator, labelled, "private").label_proportions_) == 3
    assert generator.label_proportions_.min() > 0
