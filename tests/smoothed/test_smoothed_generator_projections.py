"""The smoothed generator on projections released at each step: what it releases, and at what price.

The oracles know the sizes of a fit, and nothing of what the estimator says of itself.
"""

import math
import pickle
from dataclasses import replace
from functools import partial
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from numpy.testing import assert_allclose

from sklearn_dpgen.accounting import Event, ProjectionLaw, epsilon_spent
from sklearn_dpgen.domains import Ball, Box, Domain
from sklearn_dpgen.mechanisms._sampled import StratifiedGaussianRun
from sklearn_dpgen.ot import sliced_wasserstein
from sklearn_dpgen.smoothed import SmoothedSlicedWassersteinGenerator, _releases
from sklearn_dpgen.smoothed._plan import plan_projections
from sklearn_dpgen.utils._random import NoiseSource, noise_source

D = 3
BALL = Ball(2.0, center=[3.0, 0.0, 0.0])
KINDS = ["none", "public"]
every_kind = pytest.mark.parametrize("kind", KINDS)


@pytest.fixture
def fit(tiny_generator, labelled):
    """Return a function that fits projections to the labelled records, or to others."""

    def fit(kind="public", X=None, y=None, **options):
        given = {
            "release__kind": "projections",
            "domain": partial(Box, -4, 4),
            "delta": 1e-3,
        } | options
        X, y = labelled.X if X is None else X, labelled.y if y is None else y
        return tiny_generator(**given).fit(X, None if kind == "none" else y)

    return fit


@pytest.fixture
def directions(monkeypatch):
    """Return a list that collects the directions of each release."""
    seen, draw = [], ProjectionLaw.draw

    def watch(self, noise):
        seen.append(draw(self, noise))
        return seen[-1]

    monkeypatch.setattr(ProjectionLaw, "draw", watch)
    return seen


def fix_directions(monkeypatch):
    """Draw the directions of each fit from a stream that knows nothing of its records."""
    draw, streams = ProjectionLaw.draw, [noise_source(5)]
    monkeypatch.setattr(ProjectionLaw, "draw", lambda law, _: draw(law, streams[-1]))
    return lambda: streams.append(noise_source(5))


# One record moves a release by what is priced.


def largest_change(fit, kind, n_projections, released, monkeypatch):
    """Return the largest change of a release by a record, over the projection of the diameter."""
    with monkeypatch.context() as patch:
        restart = fix_directions(patch)
        rng, ratios = np.random.default_rng(0), []
        y = np.array([0, 0, 0, 1, 1, 1])
        options = {
            "release__batch_size": 6,
            "training__max_iter": 1,
            "epsilon": np.inf,
            "domain": BALL,
        }
        for _ in range(4):
            X = BALL.center + rng.normal(size=(6, D))
            other, way = X.copy(), rng.normal(size=D)
            X[0], other[0] = BALL.center + 9 * way, BALL.center - 9 * way
            values = []
            for records in (X, other):
                restart()
                released.clear()
                fit(kind, records, y, release__n_projections=n_projections, **options)
                values.append(released[0][0])
            restart()
            U = ProjectionLaw(D, n_projections).draw(None)
            z = 4.0 * way / np.linalg.norm(way)
            ratios.append(np.linalg.norm(values[0] - values[1]) / np.linalg.norm(U @ z))
        return max(ratios)


@every_kind
@pytest.mark.parametrize("n_projections", [2, 3, 7])
def test_one_record_moves_a_release_by_its_projection(
    fit, kind, n_projections, released, monkeypatch
):
    def change():
        return largest_change(fit, kind, n_projections, released, monkeypatch)

    assert change() == pytest.approx(1)
    # Negative twins: records that are not moved into the domain, and directions that are too long.
    with monkeypatch.context() as patch:
        patch.setattr(Domain, "project", lambda self, X: X)
        assert change() > 2
    release = _releases.ProjectedBatches._release
    monkeypatch.setattr(
        _releases.ProjectedBatches, "_release", lambda self, U: release(self, 1.01 * U)
    )
    assert change() > 1.005


# The price is that of all releases, of secret batches on new directions.


@pytest.mark.slow
@every_kind
def test_all_releases_are_within_the_budget(fit, kind, drawn):
    generator = fit(
        kind, epsilon=2.0, release__batch_size=5, training__max_iter=7, release__n_projections=2
    )
    (mechanism,) = {id(mechanism): mechanism for mechanism, _ in drawn}.values()
    assert len(drawn) == 7
    # Classes of 16 and 24 records, of which 2 and 3 are drawn.
    rate = 5 / 40 if kind == "none" else max(2 / 16, 3 / 24)

    def spent(noise=1.0, rate=rate, n_steps=7, law=None):
        law = ProjectionLaw(D, 2, "orthogonal") if law is None else law
        multiplier = noise * mechanism.noise_scale / (8 * math.sqrt(D))
        return epsilon_spent(multiplier, 1e-3, sampling_rate=rate, n_steps=n_steps, projections=law)

    assert 0.98 * 2 < spent() <= 2 * (1 + 1e-9)
    # Negative twins: less noise, batches that are known, one more release, more directions.
    assert spent(noise=0.9) > 2.02
    assert spent(rate=1.0) > 4
    assert spent(n_steps=8) > 2.02
    assert spent(law=ProjectionLaw(D, 3, "orthogonal")) > 2.02
    report = generator.privacy_
    assert (report.epsilon, report.delta, report.n_releases) == (2.0, 1e-3, 7)
    assert report.noise_scale == mechanism.noise_scale


@pytest.mark.slow
def test_the_noise_of_the_plan_for_mnist():
    """Table 4, 100 epochs: the noise is that of doc/smoothed.rst."""
    plan = plan_projections(
        [60_000],
        2.0,
        ProjectionLaw(784, 1000, "independent"),
        epsilon=10.0,
        delta=1e-5,
        batch_size=100,
        n_releases=60_100,
    )
    assert plan.noise_multiplier == pytest.approx(0.696, rel=2e-3)
    assert plan.records.noise_scale == pytest.approx(2 * 0.696, rel=2e-3)


@every_kind
def test_batches_and_directions_are_new_at_each_step(fit, kind, drawn, directions, released):
    def is_new():
        batches = [tuple(np.concatenate(parts).tolist()) for _, parts in drawn]
        return len(set(batches)) == 9, len({U.tobytes() for U in directions}) == 9

    fit(kind, release__batch_size=5, training__max_iter=9)
    assert [len(parts) for _, parts in drawn] == [1 if kind == "none" else 2] * 9
    assert is_new() == (True, True)
    # Ten times as many values as a batch has, of which each has noise of its own.
    noise = np.concatenate([out - value for value, out in released])
    assert len(np.unique(noise.round(9))) > 0.99 * noise.size
    # Negative twins: a batch or directions that come back.
    drawn[1], directions[1] = drawn[0], directions[0]
    assert is_new() == (False, False)


@every_kind
def test_no_step_is_made_that_was_not_paid_for(fit, kind, monkeypatch):
    monkeypatch.setattr(
        SmoothedSlicedWassersteinGenerator,
        "_price",
        lambda self, domain, n_samples, n_classes, class_sizes: plan_projections(
            [n_samples] if class_sizes is None else list(class_sizes),
            1.0,
            ProjectionLaw(D, D),
            epsilon=1.0,
            delta=1e-3,
            batch_size=5,
            n_releases=2,
        ),
    )
    fit(kind, training__max_iter=2)
    with pytest.raises(RuntimeError, match="paid for 2 release"):
        fit(kind, training__max_iter=3)


def test_other_records_get_other_directions(fit, labelled, directions, monkeypatch):
    """Two fits with one seed compose by the price of each."""

    def shares(X):
        directions.clear()
        for records in (labelled.X, X):
            fit("none", records, training__max_iter=1)
        return np.array_equal(*directions)

    moved = labelled.X.copy()
    moved[3, 1] += 1e-9
    assert shares(labelled.X)
    assert not shares(moved)
    # Negative twin: a source that is not bound to the records.
    source = SmoothedSlicedWassersteinGenerator._noise_source
    monkeypatch.setattr(
        SmoothedSlicedWassersteinGenerator,
        "_noise_source",
        lambda self, seed, *bound: source(self, seed),
    )
    assert shares(moved)


@every_kind
def test_what_is_released_is_of_the_secret_batch(
    fit, kind, labelled, drawn, directions, released, monkeypatch
):
    def is_of_the_batch():
        for seen in (drawn, directions, released):
            seen.clear()
        fit(kind, release__batch_size=5, training__max_iter=4, release__n_projections=2)
        strata = [np.arange(40)]
        if kind == "public":
            strata = [np.flatnonzero(labelled.y == label) for label in ("a", "b")]
        return all(
            np.allclose(
                value.reshape(-1, 2),
                labelled.X[np.concatenate([m[rows] for m, rows in zip(strata, parts, strict=True)])]
                @ U.T,
            )
            for (_, parts), U, (value, _) in zip(drawn, directions, released, strict=True)
        )

    assert is_of_the_batch()
    # Negative twin: a batch of the same size that is known.
    release = _releases.ProjectedBatches._release

    def known(self, U):
        records, members = self.records, self.records.members
        picks = [np.resize(rows[: len(rows) // 8], len(rows)) for rows in members]
        self.records = SimpleNamespace(
            records=records.records,
            rows=lambda drawn, noise: [
                own[positions] for own, positions in zip(picks, drawn, strict=True)
            ],
        )
        try:
            return release(self, U)
        finally:
            self.records = records

    monkeypatch.setattr(_releases.ProjectedBatches, "_release", known)
    assert not is_of_the_batch()


def test_directions_are_of_the_law_that_was_priced(fit, directions, monkeypatch):
    def is_basis(kind):
        directions.clear()
        fit("none", training__max_iter=1, release__n_projections=3, release__directions=kind)
        return np.allclose(directions[0] @ directions[0].T, np.eye(3), atol=1e-9)

    assert is_basis("orthogonal")
    assert not is_basis("independent")
    # Negative twin: what is drawn does not follow what is priced.
    watch = ProjectionLaw.draw
    monkeypatch.setattr(
        ProjectionLaw, "draw", lambda law, noise: watch(replace(law, kind="orthogonal"), noise)
    )
    assert is_basis("independent")


# The noise.


def standard(noise):
    """Whether values have the moments of independent standard normals, to 5 sigma."""
    n = noise.size
    return bool(
        abs(noise.mean()) * math.sqrt(n) < 5
        and abs((noise**2).mean() - 1) * math.sqrt(n / 2) < 5
        and abs((noise[:-1] * noise[1:]).mean()) * math.sqrt(n) < 5
    )


@every_kind
def test_the_noise_is_that_of_the_price(fit, kind, released, drawn, monkeypatch):
    # H is 1 for whole bases: the classical mechanism, each record in each of ten releases.
    center, y = np.zeros((40, D)), np.array(["a", "b"] * 20)
    expected = plan_projections(
        [40],
        8 * math.sqrt(D),
        ProjectionLaw(D, D),
        epsilon=1.0,
        delta=1e-3,
        batch_size=40,
        n_releases=10,
    ).records.noise_scale

    def noise():
        released.clear()
        fit(
            kind, center, y, training__max_iter=10, release__batch_size=40, release__n_projections=D
        )
        return np.concatenate([out for _, out in released]) / expected

    assert standard(noise())
    assert not any(value.any() for value, _ in released)

    class Halved(NoiseSource):
        def normal(self, size):
            return super().normal(size) / 2

    class Repeated(NoiseSource):
        def normal(self, size):
            return np.full(size, super().normal(1))

    # Negative twins: half the noise, and one draw for all.
    for broken in (Halved, Repeated):
        monkeypatch.setattr(
            "sklearn_dpgen.ledger._base.noise_source", lambda *a, b=broken, **k: b()
        )
        assert not standard(noise())


# Releases are all that the network learns from.


@pytest.fixture
def told_by_releases_alone(fit, labelled, weights_of, monkeypatch):
    """Return a check that data sets with the same releases give the same fit."""

    def check(kind, **options):
        def forced(self, value):
            self._is_drawn = False
            return np.random.default_rng(self._n_drawn).normal(size=value.size, scale=4)

        with monkeypatch.context() as patch:
            patch.setattr(StratifiedGaussianRun, "release", forced)
            restart = fix_directions(patch)
            fits = []
            for records in (labelled.X, 3 * labelled.X[::-1] + 1):
                restart()
                fits.append(fit(kind, records, **options))
        first, second = fits
        return (
            np.array_equal(weights_of(first), weights_of(second))
            and first.loss_curve_ == second.loss_curve_
            and first.privacy_ == second.privacy_
            and np.array_equal(first.sample(5, random_state=0), second.sample(5, random_state=0))
        )

    return check


@pytest.mark.parametrize("options", [{}, {"release__batch_size": 6}], ids=["default", "batches"])
@every_kind
def test_records_with_equal_releases_give_equal_models(
    told_by_releases_alone, kind, options, monkeypatch
):
    assert told_by_releases_alone(kind, **options)
    # Negative twin: the mean of a batch comes along with what is released of it.
    release = _releases.ProjectedBatches._release

    def leaking(self, directions):
        mean = self.records.records.mean()
        return [values + mean for values in release(self, directions)]

    monkeypatch.setattr(_releases.ProjectedBatches, "_release", leaking)
    assert not told_by_releases_alone(kind, **options)


@every_kind
def test_no_record_is_stored(fit, kind, labelled):
    generator = fit(kind)

    def holds():
        dump = pickle.dumps(generator)
        return any(v.tobytes() in dump for v in labelled.X.ravel())

    assert not holds()
    generator.kept_ = _releases.ClassRecords(labelled.X, np.zeros(40), 1, True)
    assert holds()


@every_kind
def test_a_step_compares_what_was_released(fit, kind, released, drawn, monkeypatch):
    """Each class with its own part of the batch, the points with noise of the same law."""
    compared, lines = [], _releases.wasserstein_lines

    def watch(own, other, *, p):
        compared.append((own.detach().numpy(), other.numpy(), p))
        return lines(own, other, p=p)

    monkeypatch.setattr(_releases, "wasserstein_lines", watch)
    generator = fit(
        kind,
        release__n_projections=3,
        release__batch_size=5,
        training__max_iter=2,
        n_generated=2000,
        output_domain=Box(-1e-9, 1e-9, n_features=3),
    )
    radius = 4 * math.sqrt(3)
    assert {p for *_, p in compared} == {2}
    others = np.concatenate([other for _, other, _ in compared])
    values = np.concatenate([out for _, out in released]).reshape(-1, 3)
    assert_allclose(others, values / radius, rtol=1e-6)
    own = np.concatenate([points.ravel() for points, *_ in compared])
    assert standard(own * radius / generator.privacy_.noise_scale)


def test_without_noise_it_is_the_sliced_distance(fit, labelled, directions):
    """Equation 4, of all records and in units of the radius; the first step moves nothing yet."""
    points = []

    class Network(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.shift = torch.nn.Parameter(torch.zeros(3))

        def forward(self, Z):
            points.append((torch.cat([Z, Z[:, :1]], 1) + self.shift).detach())
            return torch.cat([Z, Z[:, :1]], 1) + self.shift

    generator = fit(
        "none",
        epsilon=np.inf,
        release__batch_size=40,
        training__max_iter=1,
        n_generated=30,
        generator=lambda n_inputs, domain: Network(),
        domain=Ball(10.0, n_features=3),
    )
    expected = sliced_wasserstein(
        points[0] / 10,
        torch.tensor(labelled.X / 10).float(),
        directions=torch.tensor(directions[0]).float(),
        p=2,
    )
    assert_allclose(generator.loss_curve_, [expected.item()], rtol=1e-4)


@pytest.mark.slow
def test_it_learns_means_by_class(fit):
    rng = np.random.default_rng(0)
    y = np.repeat([0, 1], [1000, 3000])
    X = rng.normal(size=(4000, 3)) / 4 + np.array([[1.0, 0.0, 0.0], [-1.0, 0.5, 0.0]])[y]
    generator = fit(
        "public",
        X,
        y,
        epsilon=30.0,
        delta=1e-5,
        domain=Ball(2.0, n_features=3),
        release__batch_size=200,
        n_generated=50,
        training__max_iter=400,
        training__learning_rate=0.02,
        training__hidden_layer_sizes=(20,),
    )
    # Of eight seeds the largest difference is 0.09.
    for label in (0, 1):
        made = generator.sample(2000, y=label, random_state=0)
        assert_allclose(made.mean(axis=0), X[y == label].mean(axis=0), atol=0.15)
    assert_allclose(generator.label_proportions_, [0.25, 0.75])


# What the mode takes.


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"labels": "private", "classes": ["a", "b"]}, 'takes labels="public"'),
        ({"n_generators": 2}, "n_generators must be 1"),
        (
            {"release__batch_size": 41},
            "batch_size must be at most the number of private records, 40",
        ),
        ({"classes": ["a", "b", "c"]}, "every class of classes needs a record"),
    ],
)
def test_what_it_does_not_take(fit, options, message):
    with pytest.raises(ValueError, match=message):
        fit("public", **options)


def test_the_choices_of_auto(fit, labelled, drawn):
    rng = np.random.default_rng(0)
    for X in (labelled.X, rng.normal(size=(130, 120))):
        fit("none", X, epsilon=np.inf, training__max_iter=1, release__n_projections="auto")
    sizes = [parts[0].size for _, parts in drawn]
    assert sizes == [40, 100]
    laws = [mechanism.projections for mechanism, _ in drawn]
    assert laws == [ProjectionLaw(3, 3), ProjectionLaw(120, 100)]
    fit(
        "none",
        labelled.X[:, :1],
        training__max_iter=1,
        release__n_projections=5,
        release__directions="independent",
    )
    assert drawn[-1][0].projections == ProjectionLaw(1, 1, "independent")


def test_parameters_of_other_releases_cost_nothing(fit):
    reports = [
        fit(**options).privacy_
        for options in ({}, {"release__n_epochs": 7.0}, {"release__shape_weight": 3.0})
    ]
    assert reports[0] == reports[1] == reports[2]


def test_the_report_in_words(fit):
    report = fit("public").privacy_
    assert report.events == (Event("batch_projections"),)
    assert report.shared == ("class",)
    assert "class_sizes" in report.public
    assert report.n_releases == 3
