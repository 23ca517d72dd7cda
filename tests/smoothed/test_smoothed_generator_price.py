"""The batches of the smoothed generator, what they cost, and what its report says."""

import math
from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import pytest
from generator_cases import KINDS, other_records, train
from numpy.testing import assert_allclose, assert_array_equal

from sklearn_dpgen.accounting import epsilon_spent
from sklearn_dpgen.domains import Box
from sklearn_dpgen.mechanisms._sampled import StratifiedGaussianRun
from sklearn_dpgen.smoothed import _releases


def batches_of(drawn):
    """Return, of the records' mechanism alone, the batches of each stratum."""
    chunks = [batches for _, batches in drawn if batches[0].ndim == 2]
    return [np.concatenate(rows) for rows in zip(*chunks, strict=True)]


@pytest.mark.parametrize(
    ("kind", "declared"), [("none", [5]), ("public", [2, 3]), ("private", [5])], ids=KINDS
)
def test_batches_are_drawn_anew_and_all_are_paid(
    tiny_generator, labelled, drawn, released, monkeypatch, kind, declared
):
    # In chunks, of which the last is shorter.
    monkeypatch.setattr(_releases, "CHUNK_ENTRIES", 15 * 7 * (2 if kind == "private" else 1))
    generator = train(tiny_generator(release__batch_size=5, release__n_epochs=2.0), labelled, kind)
    strata = batches_of(drawn)
    sizes = [16, 24] if kind == "public" else [40]
    for rows, size, batch_size in zip(strata, sizes, declared, strict=True):
        assert rows.shape == (16, batch_size)
        assert all(len(set(row)) == batch_size for row in rows.tolist())
        assert rows.min() >= 0
        assert rows.max() < size
        assert len({tuple(sorted(row)) for row in rows.tolist()}) > 1
    assert len({tuple(row) for row in np.hstack(strata).tolist()}) == 16
    assert generator.privacy_.n_releases == 16
    assert sum(batches[0].ndim == 2 for _, batches in drawn) == 3
    # A chunk more than was planned is refused.
    monkeypatch.setattr(
        StratifiedGaussianRun,
        "__init__",
        lambda self, mechanism, noise: vars(self).update(
            _mechanism=replace(mechanism, n_releases=max(1, mechanism.n_releases - 1)),
            _noise=noise,
            _n_drawn=0,
            _is_drawn=False,
        ),
    )
    with pytest.raises(RuntimeError, match="paid for 15 release"):
        train(tiny_generator(release__batch_size=5, release__n_epochs=2.0), labelled, kind)


@pytest.mark.parametrize("kind", KINDS)
def test_a_release_holds_the_rows_that_were_drawn(
    tiny_generator, labelled, drawn, released, monkeypatch, kind
):
    monkeypatch.setattr(_releases, "CHUNK_ENTRIES", 100)
    domain = Box([-9.0, -9.0, 0.0], [9.0, 11.0, 9.0])
    train(tiny_generator(release__batch_size=5, domain=domain), labelled, kind)
    centered = domain.project(labelled.X) - [0.0, 1.0, 4.5]
    values = [value for value, _ in released]
    if kind == "private":
        drawn.pop(0)
        values.pop(0)
    for (_, batches), value in zip(drawn, values, strict=True):
        if kind == "none":
            expected = centered[batches[0].ravel()]
        elif kind == "public":
            pairs = zip("ab", batches, strict=True)
            expected = [centered[labelled.y == label][rows.ravel()] for label, rows in pairs]
            expected = np.concatenate(expected)
        else:
            rows = batches[0].ravel()
            expected = np.zeros((len(rows), 2, 3))
            expected[labelled.y[rows] == "a", 0] = centered[rows][labelled.y[rows] == "a"]
            expected[labelled.y[rows] == "b", 1] = centered[rows][labelled.y[rows] == "b"]
        assert_array_equal(value, expected.ravel())


@pytest.mark.parametrize(
    ("sizes", "batches"), [([20, 20], [1, 1]), ([16, 24], [1, 1]), ([90, 10], [9, 1])], ids=str
)
def test_small_classes_are_not_drawn_more_often(tiny_generator, drawn, sizes, batches):
    table = SimpleNamespace(X=np.zeros((sum(sizes), 3)), y=np.repeat(["a", "b"], sizes))
    generator = train(tiny_generator(), table, "public")
    assert [rows.shape[1] for rows in batches_of(drawn)] == batches
    # One of each class instead would draw the small one nine times as often, and ask for more.
    multiplier = generator.noise_multiplier_
    train(generator.set_params(release__batch_size=2), table, "public")
    assert (generator.noise_multiplier_ > 1.2 * multiplier) == (sizes == [90, 10])


def price(mechanism, *, noise=1.0):
    """Return the ε of the worst stratum at the δ of a mechanism, noise scaled by a factor."""
    return max(
        epsilon_spent(
            noise * mechanism.noise_scale / stratum.sensitivity,
            mechanism.delta,
            sampling_rate=stratum.rate,
            n_steps=mechanism.n_releases,
        )
        for stratum in mechanism.strata
    )


@pytest.mark.parametrize(
    "options", [{}, {"release__batch_size": 7, "release__n_epochs": 0.9, "delta": 1e-4}]
)
@pytest.mark.parametrize("kind", KINDS)
def test_all_releases_are_within_the_budget(tiny_generator, labelled, drawn, kind, options):
    generator = train(tiny_generator(epsilon=2.5, **options), labelled, kind)
    mechanisms = []
    for mechanism, _ in drawn:
        if mechanism not in mechanisms:
            mechanisms.append(mechanism)
    assert len(mechanisms) == (2 if kind == "private" else 1)
    delta = options.get("delta", 0.1 / 40)
    report = generator.privacy_
    assert (report.epsilon, report.delta) == (2.5, delta)
    assert sum(mechanism.delta for mechanism in mechanisms) <= delta * (1 + 1e-12)
    spent = sum(price(mechanism) for mechanism in mechanisms)
    assert 0.98 * 2.5 < spent <= 2.5 * (1 + 1e-9)
    for broken in mechanisms:
        parts = [price(m, noise=0.8 if m is broken else 1.0) for m in mechanisms]
        assert sum(parts) > 2.5 * (1 + 1e-9)
    # What the report says is what was done.
    records = mechanisms[-1]
    assert report.noise_scale == records.noise_scale
    assert report.n_releases == records.n_releases
    assert report.sampling_rate == records.worst.rate
    assert generator.noise_multiplier_ == records.noise_multiplier
    if kind == "private":
        assert [part.noise_scale for part in report.parts] == [
            records.noise_scale,
            mechanisms[0].noise_scale,
        ]
        assert sum(part.epsilon for part in report.parts) == pytest.approx(2.5)
        assert report.parts[1].sensitivity == math.sqrt(2)
        assert report.parts[1].n_releases == 1
    else:
        assert report.parts == ()


def test_the_plan_is_told_by_public_quantities(tiny_generator, labelled):
    for kind in KINDS:
        reports = [
            train(tiny_generator(classes=["a", "b"]), table, kind).privacy_
            for table in (labelled, other_records(labelled, kind))
        ]
        assert reports[0] == reports[1]
    sizes = SimpleNamespace(X=labelled.X, y=np.array(["a"] * 5 + ["b"] * 35))
    assert train(tiny_generator(), sizes, "public").privacy_ != reports[0]


def test_known_proportions_cost_nothing(tiny_generator, labelled, drawn):
    options = {"labels": "private", "classes": ["a", "b"]}
    generator = tiny_generator(label_proportions=[0.3, 0.7], **options)
    generator.fit(labelled.X, labelled.y)
    assert generator.privacy_.parts == ()
    assert all(batches[0].ndim == 2 for _, batches in drawn)
    assert_allclose(generator.label_proportions_, [0.3, 0.7])
    counted = tiny_generator(**options).fit(labelled.X, labelled.y)
    assert generator.noise_multiplier_ < counted.noise_multiplier_


def test_the_report_in_words(tiny_generator, labelled):
    def words(kind, **options):
        return train(tiny_generator(**options), labelled, kind).privacy_

    assert "label_set" in words("public").public
    for kind in ("public", "private"):
        assert "classes" in words(kind, classes=["a", "b"]).public
        assert "label_set" not in words(kind, classes=["a", "b"]).public
    assert "class_sizes" in words("public").public
    assert "class_sizes" not in words("private").public
    assert "label_proportions" in words("private", label_proportions=[0.5, 0.5]).public
    assert words("public").shared == ("class",)
    assert words("private").protected == "record_and_label"
    assert words("none").protected == "record"
    assert "seed" in words("none").noise_source
    assert words("none", random_state=None).noise_source == "operating system entropy"
