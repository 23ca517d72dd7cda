"""Targets of parity: what a fit releases, how far a record moves it, and what is reached."""

import math
import warnings

import numpy as np
import pandas as pd
import pytest
import torch
from sklearn.exceptions import ConvergenceWarning

from sklearn_dpgen import load
from sklearn_dpgen.auditing import audit
from sklearn_dpgen.datasets import make_biased_labels
from sklearn_dpgen.domains import Ball, Box
from sklearn_dpgen.exceptions import InvalidFileError, PublicValueError
from sklearn_dpgen.mechanisms._sampled import StratifiedGaussianRun
from sklearn_dpgen.nn import Training
from sklearn_dpgen.sliced import (
    ClippedGradient,
    DPSlicedWassersteinFairClassifier,
    DPSlicedWassersteinFairRegressor,
    _fair,
)
from sklearn_dpgen.sliced._parity import (
    GapLimits,
    GroupMeans,
    ParityTarget,
    Targeted,
    near_decisions,
    shrinkage,
)
from sklearn_dpgen.sliced._strata import make_strata, protected_strata

SIZES = {"parity": (17, 24), "three": (9, 13, 19), "odds": ((5, 9), (12, 15))}
pytestmark = pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")

TARGETS = {"classifier": {"min_ratio": 0.9}, "regressor": {"max_gap": 0.1}}
# The clip of the task, and what the smallest share of measured means adds to a step, by hand.
C, SMALLEST = 0.8, (0.25, 0.25)


def strata_of(kind, protects):
    if protects:
        n_labels = 2 if kind == "odds" else None
        return protected_strata(41, 3 if kind == "three" else 2, n_labels)
    return make_strata(np.array(SIZES[kind]))


@pytest.mark.parametrize("protects", [False, True])
@pytest.mark.parametrize("kind", SIZES)
def test_a_record_moves_the_means_by_the_sensitivity(kind, protects):
    strata, rng = strata_of(kind, protects), np.random.default_rng(1)
    bounds = tuple(rng.uniform(0.1, 1, len(strata.sizes)))
    ball, n_cells = Ball(1.5, center=[0.3, -1.0]), len(strata.cells)
    measured = GroupMeans(strata, ball, strata.sizes, bounds)
    stops = np.cumsum([0, *strata.sizes])
    batch = [slice(a, b) for a, b in zip(stops[:-1], stops[1:], strict=True)]
    most = np.zeros(len(strata.sizes))
    for trial in range(300):
        stratum = trial % len(strata.sizes)
        outcomes = torch.tensor(rng.normal(size=(41, 2)) * 100)
        codes = torch.tensor(rng.integers(n_cells, size=41)) if protects else None
        other, other_codes = outcomes.clone(), codes
        # Opposite ends of the ball, or values that are no numbers.
        other[batch[stratum].start] = 2 * torch.tensor(ball.center) - outcomes[batch[stratum].start]
        if trial > 280:
            other[batch[stratum].start] = math.nan
        if protects and trial % 2:
            other_codes = codes.clone()
            other_codes[0] = (codes[0] + 1) % n_cells
        one, two = (
            measured.vector(o, batch, c) for o, c in ((outcomes, codes), (other, other_codes))
        )
        most[stratum] = max(most[stratum], float((one - two).norm()) / bounds[stratum])
    assert (most <= 1 + 1e-9).all()
    assert (most > 0.999).all()


def fits(kind, **options):
    options = {
        "training": Training(max_iter=4, hidden_layer_sizes=()),
        "gradient": ClippedGradient(task_clip=C, batch_fraction=1.0),
        "random_state": 0,
        **TARGETS[kind],
        **({"y_domain": (-2, 2)} if kind == "regressor" else {}),
        **options,
    }
    if kind == "classifier":
        return DPSlicedWassersteinFairClassifier(**{"classes": [0, 1]} | options)
    return DPSlicedWassersteinFairRegressor(**options)


def first_weights(table):
    """Return the weights that a fit starts from."""
    training = Training(max_iter=1, learning_rate=1e-12, hidden_layer_sizes=())
    model = fits("classifier", epsilon=np.inf, training=training)
    return model.fit(table.X, table.labels, sensitive_features=table.groups).coef_[0]


def values_of_two(monkeypatch, table, make, change):
    """Return what two fits on neighbours release before its noise, if both are told the same.

    ``change`` replaces a record of the group "a": its features, and its group.
    """
    values, row = [], np.flatnonzero(table.groups == "a")[0]
    w = first_weights(table)
    far = 1e4 * np.array([w[1], -w[0], 0]) / np.hypot(*w[:2]) + 2 * w / (w @ w)
    for sign, group in change:
        X, groups, labels = table.X.copy(), table.groups.copy(), table.labels.copy()
        X[row], groups[row], labels[row] = sign * far, group, 0
        found, rng = [], np.random.default_rng(0)

        def told(self, value, found=found, rng=rng):
            found.append(value)
            self._is_drawn = False
            return 1e-3 * rng.normal(size=value.shape)

        with monkeypatch.context() as patch:
            patch.setattr(StratifiedGaussianRun, "release", told)
            model = make().fit(X, labels, sensitive_features=groups)
        values.append(found)
    return model.mechanism_.strata[0].sensitivity, [
        np.linalg.norm(one - other) for one, other in zip(*values, strict=True)
    ]


@pytest.mark.parametrize("protects", [False, True])
@pytest.mark.parametrize("target", [{"min_ratio": 0.9}, {"max_gap": 0.1}])
def test_a_record_moves_each_release_by_what_was_priced(monkeypatch, table, protects, target):
    # A record goes from one end of its line to the other: its loss, its decisions and its features
    # move as far as they can.
    def make():
        options = {"groups": ["a", "b"], "protect_groups": True} if protects else {}
        return fits("classifier", **({"min_ratio": None} | target | options))

    change = [(1, "a"), (-1, "a")]
    price, moved = values_of_two(monkeypatch, table, make, change)
    assert price == pytest.approx(math.hypot(1, *SMALLEST) * 2 * C / 41)
    # Three releases of one step each before the steps, the steps, and one after.
    assert len(moved) == 3 + 4 + 1
    assert max(moved) <= price * (1 + 1e-9)
    # The first step, and the means after the last, attain the price; lengths do not change.
    assert moved[3] == pytest.approx(price, rel=1e-3)
    assert moved[7] == pytest.approx(price, rel=1e-3)
    assert moved[1] == pytest.approx(price, rel=1e-3)
    if protects:
        _, moved = values_of_two(monkeypatch, table, make, [(1, "a"), (-1, "b")])
        assert max(moved) <= price * (1 + 1e-9)
        assert max(moved) > 0.7 * price


@pytest.mark.parametrize("broken", ["features", "outcomes", "lengths"])
def test_without_a_projection_a_release_moves_further(monkeypatch, table, broken):
    project, n_features = Ball.project, {"features": 3, "outcomes": 2, "lengths": 1}[broken]

    def loose(self, points):
        return points if self.n_features == n_features else project(self, points)

    monkeypatch.setattr(Ball, "project", loose)
    if broken == "outcomes":
        monkeypatch.setattr(
            "sklearn_dpgen.sliced._fair.near_decisions",
            lambda logits: 10.0 * near_decisions(logits),
        )
    if broken == "lengths":
        table.X *= 1e-8
    price, moved = values_of_two(
        monkeypatch,
        table,
        lambda: fits("classifier"),
        [(1, "a"), (1e-20 if broken == "lengths" else -1, "a")],
    )
    assert max(moved) > 1.3 * price


@pytest.mark.parametrize("kind", TARGETS)
def test_the_shares_of_measured_means_follow_public_noise(kind):
    # With many records means are measured more closely, at a price that sizes alone decide.
    for n_samples, share in ((41, 0.25), (1_000_000, 1.0)):
        sizes = np.array([n_samples // 3, n_samples - n_samples // 3])
        model = fits(kind)
        arguments = (2,) if kind == "classifier" else (model._resolve_domain(1),)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            details = model._plan(make_strata(sizes), 3, *arguments).details
        others = [share] * (2 if kind == "classifier" else 1)
        expected = math.hypot(1, *others) * 2 * C / n_samples
        assert details.mechanism.strata[0].sensitivity == pytest.approx(expected)


class Exact(GapLimits):
    """Reads the means before their noise."""

    def update(self, weight, *vectors):
        self._noise_scale = 0.0
        super().update(weight, *self.seen[-len(vectors) :])


@pytest.mark.parametrize("protects", [False, True])
@pytest.mark.parametrize("kind", TARGETS)
def test_a_fit_depends_on_records_through_its_releases_alone(kind, protects, table, monkeypatch):
    options = {"random_state": 0}
    if protects:
        options |= {"groups": ["a", "b"], "protect_groups": True}
    options |= {"min_ratio": 1.0} if kind == "classifier" else {"max_gap": 0.0}
    target = table.labels if kind == "classifier" else table.y

    def is_told_by_releases():
        told, release = [], StratifiedGaussianRun.release

        def watch(self, value):
            told.append(release(self, value))
            return told[-1]

        with monkeypatch.context() as patch:
            patch.setattr(StratifiedGaussianRun, "release", watch)
            one = fits(kind, **options).fit(table.X, target, sensitive_features=table.groups)
        again = iter(told)
        with monkeypatch.context() as patch:

            def replay(self, value):
                release(self, value)
                return next(again)

            patch.setattr(StratifiedGaussianRun, "release", replay)
            other = fits(kind, **options).fit(-3 * table.X, target, sensitive_features=table.groups)
        return np.array_equal(one.coef_, other.coef_) and one.parity_.equals(other.parity_)

    assert is_told_by_releases()
    Exact.seen, vector = [], GroupMeans.vector

    def watched(self, *args):
        Exact.seen.append(vector(self, *args).numpy())
        return torch.tensor(Exact.seen[-1])

    monkeypatch.setattr(GroupMeans, "vector", watched)
    monkeypatch.setattr(_fair, "GapLimits", Exact)
    monkeypatch.setattr("sklearn_dpgen.sliced._parity.FIRST_STEPS", 1)
    assert not is_told_by_releases()


@pytest.mark.parametrize("kind", TARGETS)
def test_the_report_states_steps_and_measurements(kind, table):
    model = fits(kind, training=Training(max_iter=50))
    target = table.labels if kind == "classifier" else table.y
    model.fit(table.X, target, sensitive_features=table.groups)
    events = [(str(event.what), event.times) for event in model.privacy_.events]
    # Those of a regressor also place the box of its targets.
    n_measured = 6 if kind == "classifier" else 22
    assert events == [("gradients", 50), ("group_means", n_measured)]
    assert model.privacy_.n_releases == model.mechanism_.n_releases == 50 + n_measured
    assert model.n_iter_ == 50
    assert model.plan(41, 3, group_sizes=[17, 24]) == model.privacy_
    assert "Jacobians" not in str(fits(kind).plan(41, 3, group_sizes=[17, 24]))


@pytest.mark.slow
@pytest.mark.parametrize("kind", TARGETS)
@pytest.mark.parametrize("protects", [False, True])
def test_audits_approach_the_claim(kind, protects, table):
    options = {"groups": ["a", "b"], "protect_groups": True} if protects else {}
    target = table.labels if kind == "classifier" else table.y
    result = audit(
        fits(kind, **options),
        table.X,
        target,
        sensitive_features=table.groups,
        n_trials=6,
        n_transcripts=2,
        random_state=0,
    )
    assert not result.is_violation, result.to_text()
    assert result.ratio > 0.3


# What is measured and reached.


@pytest.mark.slow
@pytest.mark.parametrize("protects", [False, True])
@pytest.mark.parametrize("rate", [0.08, 0.5])
def test_intervals_hold_the_means_of_the_population(protects, rate):
    strata = protected_strata(600, 2) if protects else make_strata(np.array([200, 400]))
    k = tuple(size // 5 for size in strata.sizes)
    measured = GroupMeans(strata, Ball(0.5, center=[0.5]), k, (0.02,) * len(k))
    rng, held, n_releases, scale = np.random.default_rng(0), [], 10, 0.05
    for _ in range(400):
        decided = torch.tensor(rng.uniform(size=(600, 1)) < rate).double()
        codes = torch.tensor(rng.permutation(np.repeat([0, 1], [200, 400])))
        vectors = []
        for _ in range(n_releases):
            if protects:
                rows = torch.tensor(rng.permutation(600)[: k[0]])
                value = measured.vector(decided[rows], [slice(0, k[0])], codes[rows])
            else:
                rows = torch.cat(
                    [
                        torch.tensor(rng.permutation(200)[: k[0]]),
                        200 + torch.tensor(rng.permutation(400)[: k[1]]),
                    ]
                )
                value = measured.vector(decided[rows], [slice(0, k[0]), slice(k[0], sum(k))])
            vectors.append(value.numpy() + scale * rng.normal(size=measured.n_values))
        (table,) = measured.intervals(np.array(vectors), scale)
        held.append((table[:, 1] <= rate) & (rate <= table[:, 2]))
    # Where groups are protected, the interval is exact; else it may be wider than it must be.
    assert 0.93 < np.mean(held) < 0.99
    (narrow,) = measured.intervals(np.array(vectors), 0.0)
    assert (np.ptp(narrow[:, 1:3], axis=1) < np.ptp(table[:, 1:3], axis=1)).all()


@pytest.mark.slow
def test_shrinkage_keeps_what_noise_does_not_explain():
    rng = np.random.default_rng(0)
    noise = 0.1 * rng.normal(size=(2000, 3))
    kept = [shrinkage((d**2).sum(), 3, 0.1) for d in noise]
    assert np.mean(np.array(kept) > 0) == pytest.approx(0.05, abs=0.02)
    assert shrinkage(1.0, 3, 0.01) > 0.99
    assert shrinkage(0.0, 1, 0.0) == 0
    of_ten = [shrinkage((d**2).sum(), 3, 0.1, 10) > 0 for d in 0.1 * rng.normal(size=(4000, 3))]
    assert np.mean(of_ten) == pytest.approx(0.005, abs=0.004)


def test_decisions_near_the_threshold():
    rng = np.random.default_rng(0)
    logits = torch.tensor(rng.normal(scale=0.4, size=(500, 1)))
    raised, lowered = near_decisions(logits).numpy().T
    np.testing.assert_array_equal(raised, logits[:, 0] + 0.25 > 0)
    np.testing.assert_array_equal(lowered, logits[:, 0] - 0.25 > 0)
    logits = rng.normal(scale=0.4, size=(500, 3))
    found = near_decisions(torch.tensor(logits)).numpy()
    for shift, columns in ((0.25, found[:, :3]), (-0.25, found[:, 3:])):
        for k in range(3):
            moved = logits + shift * (np.arange(3) == k)
            np.testing.assert_array_equal(columns[:, k], moved.argmax(axis=1) == k)


def limits_of(target, ball, sizes, n_features, n_steps=60, noise_scale=0.0, slopes=None):
    measured, strata = 1.0, make_strata(np.array(sizes))
    tasks = (0.1,) * len(sizes)
    targeted = Targeted(target, strata, ball, tuple(sizes), tasks, n_features, measured, n_steps)
    stops = np.cumsum([0, *sizes])
    batch = [slice(a, b) for a, b in zip(stops[:-1], stops[1:], strict=True)]
    return targeted, GapLimits(targeted, noise_scale, slopes), batch


@pytest.mark.parametrize("scale", [1e-2, 1.0, 30.0])
def test_the_ball_of_the_features_is_placed_among_them(scale):
    targeted, limits, batch = limits_of(ParityTarget(0.1), Ball(0.5, n_features=1), (500, 1500), 3)
    torch.manual_seed(0)
    X = scale * (torch.randn(2000, 3, dtype=torch.float64) + torch.tensor([2.0, 0, -1]))

    def release(measured, values):
        return measured.vector(values(X), batch).numpy()

    limits.locate(release)
    ball = limits.measured.ball
    np.testing.assert_allclose(ball.center, scale * np.array([2, 0, -1]), atol=0.3 * scale)
    inside = torch.linalg.vector_norm(X - torch.tensor(ball.center), dim=1) <= ball.radius
    assert 0.5 < inside.double().mean() < 0.9


def train_to_limits(limits, targeted, batch, X, layer, rng=None, n=60):
    """Apply the limits to a layer that does not learn, on exact means or on noisy ones."""
    noise = 0.0 if rng is None else limits._noise_scale

    def noisy(vector):
        return vector.numpy() + (0.0 if rng is None else noise * rng.normal(size=len(vector)))

    limits.locate(lambda measured, values: noisy(measured.vector(values(X), batch)))
    with torch.no_grad():
        for _ in range(n):
            vectors = [noisy(limits.measured.vector(X, batch))]
            if targeted.target.of_rates:
                decisions = near_decisions(layer(X))
                vectors.append(noisy(targeted.in_steps.vector(decisions, batch)))
            limits.update(layer.weight.numpy(), *vectors)
            limits.apply(layer)
    return layer


@pytest.mark.parametrize("n_groups", [2, 4])
@pytest.mark.parametrize("allowed", [0.0, 0.2])
def test_a_layer_is_projected_on_the_limits(n_groups, allowed):
    rng = np.random.default_rng(0)
    sizes = (300,) * n_groups
    X = rng.normal(size=(sum(sizes), 5)) + np.repeat(rng.normal(size=(n_groups, 5)), 300, axis=0)
    X = torch.tensor(X / 10)
    ball, slopes = Ball(2.0, n_features=2), np.array([2.0, 0.5])
    targeted, limits, batch = limits_of(ParityTarget(allowed), ball, sizes, 5, slopes=slopes)
    layer = torch.nn.Linear(5, 2).double()
    with torch.no_grad():
        layer.weight[:] = torch.tensor(rng.normal(size=(2, 5)))
    before, first = layer(X).detach().numpy(), layer.weight.detach().clone()
    train_to_limits(limits, targeted, batch, X, layer, n=20)
    after = layer(X).detach().numpy()

    def largest_gap(outputs):
        means = np.array([outputs[rows].mean(axis=0) for rows in batch]) * slopes
        return np.linalg.norm(means[:, None] - means[None], axis=2).max()

    # Of numbers, in their units; the features are projected, and so not quite those of the limits.
    assert largest_gap(before) > 0.4
    assert largest_gap(after) <= allowed + 0.05
    np.testing.assert_allclose(after.mean(axis=0), before.mean(axis=0), atol=0.03)
    if allowed and n_groups == 2:
        assert largest_gap(after) > 0.1
    # It is the smallest change: along the differences alone.
    means = np.array([X[rows].mean(dim=0).numpy() for rows in batch])
    basis = np.linalg.qr((means[1:] - means[0]).T)[0]
    change = (layer.weight.detach() - first).numpy()
    outside = change - change @ basis @ basis.T
    assert np.linalg.norm(outside) < 0.25 * np.linalg.norm(change)


@pytest.mark.slow
def test_an_offset_of_the_decisions_is_corrected():
    # Equal mean logits, and unequal rates, since the spreads differ.
    rng = np.random.default_rng(0)
    logits = np.r_[rng.normal(0, 0.3, 4000), rng.normal(0, 0.6, 4000)]
    X = np.c_[logits, np.repeat([0.3, -0.3], 4000)]
    X = torch.tensor(X)
    target = ParityTarget(0.02, None, of_rates=True)
    ball = Ball(0.5, center=[0.5])
    targeted, limits, batch = limits_of(target, ball, (4000, 4000), 2, n_steps=400)
    layer = torch.nn.Linear(2, 1).double()
    with torch.no_grad():
        layer.weight[:], layer.bias[:] = torch.tensor([[1.0, 0.0]]), -0.3

    def gap():
        rates = [(layer(X)[rows] > 0).double().mean().item() for rows in batch]
        return rates[1] - rates[0]

    before = gap()
    assert before > 0.12
    train_to_limits(limits, targeted, batch, X, layer, n=400)
    assert abs(gap()) < before / 2


@pytest.mark.parametrize("protects", [False, True])
def test_limits_of_rates_by_hand(protects):
    # Two steps, with means that are given, and noise that explains a part of them.
    sizes, tau, m = (50, 150), 0.3, 1.0
    strata = protected_strata(200, 2) if protects else make_strata(np.array(sizes))
    tasks = (0.1,) * len(strata.sizes)
    target, ball = ParityTarget(None, 0.8, of_rates=True), Ball(0.5, center=[0.5])
    targeted = Targeted(target, strata, ball, strata.sizes, tasks, 3, m, 400)
    limits = GapLimits(targeted, tau)
    limits.measured = targeted.features(Ball(2.0, n_features=3))
    W, counts = np.array([[0.1, -0.2, 0.2]]), np.repeat([0, 1], sizes)
    codes = torch.tensor(counts) if protects else None
    batch = [slice(0, 200)] if protects else [slice(0, 50), slice(50, 200)]
    centers = np.array([[0.6, -0.4, 0.1], [-0.2, 0.3, 0.0]])
    rates = np.array([[0.7, 0.5], [0.4, 0.3]])
    for _ in range(2):
        vectors = [
            g.vector(torch.tensor(values[counts]), batch, codes).numpy()
            for g, values in ((limits.measured, centers), (targeted.in_steps, rates))
        ]
        limits.update(W, *vectors)
    # Noise of a mean of k records: of what is measured, over its scale; half after two steps.
    sd = tau / math.sqrt(2) * np.hypot(1 / 50, 1 / 150) / (0.1 * m)
    if protects:
        sd = tau / math.sqrt(2) * np.hypot(200 / 50, 200 / 150) / (0.1 * 200 * m)
    delta = centers[0] - centers[1]
    kappa = 1 - 7.8147 * (4 * sd) ** 2 / (delta @ delta)
    slope = ((0.2 * 50 + 0.1 * 150) / 200) / 0.5
    # The first step alone had twice the variance.
    first = 1 - 7.8147 * 2 * (4 * sd) ** 2 / (delta @ delta)
    offset = 0.6 - 0.35 - slope * (first + kappa) / 2 * (W @ delta).item()
    # Of two thresholds, each measured in a ball of diameter √2, the mean.
    kept = 1 - 3.8415 * sd**2 / offset**2
    assert 0.1 < kept < 0.95
    offset *= kept
    half = 0.2 * (0.6 * 50 + 0.35 * 150) / 200 / slope / kappa
    most = 0.2 * np.linalg.norm(W) * np.linalg.norm(delta)
    assert 0.1 < kappa < 0.95
    assert limits.low.item() == pytest.approx(min(-offset / slope - half, most), rel=1e-4)
    assert limits.high.item() == pytest.approx(max(-offset / slope + half, -most), rel=1e-4)
    # Of numbers, the noise of a difference is allowed for.
    numbers = Targeted(ParityTarget(0.3), strata, ball, strata.sizes, tasks, 3, m, 400)
    limits = GapLimits(numbers, tau, np.array([0.5]))
    limits.measured = numbers.features(Ball(2.0, n_features=3))
    for _ in range(2):
        limits.update(W, vectors[0])
    expected = 0.3 / kappa + 4 * sd * 0.5 * np.linalg.norm(W)
    assert limits.reach.item() == pytest.approx(expected, rel=1e-4)


@pytest.mark.parametrize("kind", TARGETS)
def test_what_is_kept_is_within_the_limits(kind, table, monkeypatch):
    seen = []

    class Watched(GapLimits):
        def __init__(self, *args):
            super().__init__(*args)
            seen.append(self)

    monkeypatch.setattr(_fair, "GapLimits", Watched)
    training = Training(max_iter=60, averaging=0.5)
    options = {"epsilon": np.inf, "training": training}
    target = table.labels if kind == "classifier" else table.y
    if kind == "regressor":
        options["y_domain"] = Ball(2.0, n_features=1)
    X = table.X + (table.groups == "a")[:, None]
    model = fits(kind, **options).fit(X, target, sensitive_features=table.groups)
    (limits,) = seen
    gap = np.atleast_2d(model.coef_) @ limits._differences[0]
    if kind == "classifier":
        assert limits.low.item() - 1e-9 <= gap.item() <= limits.high.item() + 1e-9
    else:
        # Both are in units of the radius, 2.
        assert limits.reach.item() >= 0.1 / 2
        assert abs(gap.item()) <= limits.reach.item() + 1e-9


def test_limits_that_cannot_all_hold_do_not_lengthen_weights():
    target, ball = ParityTarget(None, 1.0, of_rates=True), Ball(0.5, center=[0.5])
    _, limits, _ = limits_of(target, ball, (10, 10, 10), 2)
    limits._features.n, limits._kept, limits._center = 5, np.ones(3), np.zeros(2)
    limits._differences = np.array([[1.0, 0.0], [1.0, 0.01], [0.0, 0.01]])
    limits.low = limits.high = np.array([[0.1], [-0.1], [0.1]])
    layer = torch.nn.Linear(2, 1).double()
    first = float(torch.linalg.norm(layer.weight.detach()))
    for _ in range(50):
        limits.apply(layer)
    assert float(torch.linalg.norm(layer.weight.detach())) <= first * (1 + 1e-9)


@pytest.mark.parametrize("n_samples", [1000, 2000, 3000, 5000, 8000])
def test_what_is_measured_does_not_depend_on_the_unit_of_the_clip(n_samples):
    def share(clip):
        model = fits("classifier", gradient=ClippedGradient(task_clip=clip))
        sizes = np.array([n_samples // 2, n_samples // 2])
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            return model._plan(make_strata(sizes), 20, 2).details.targeted.measured

    assert share(0.01) == share(1.0) == share(100.0)


@pytest.mark.slow
def test_numbers_of_unlike_units_are_compared_in_theirs():
    rng = np.random.default_rng(0)
    X, groups = rng.normal(size=(4000, 3)), np.arange(4000) % 2
    X[:, 0] += 0.2 * groups
    y = np.c_[0.2 * X[:, 0], 20 * X[:, 1]] + 0.01 * rng.normal(size=(4000, 2))

    def fit(**target):
        domain = Box([-1, -100], [1, 100])
        options = {"y_domain": domain, "epsilon": np.inf, "random_state": 0}
        model = DPSlicedWassersteinFairRegressor(**options, **target)
        return model.fit(X, y, sensitive_features=groups).predict(X)

    # The target is met: the gap of the first output, whose range is 2, is .04.
    free, wanted = fit(alpha=0.0), fit(max_gap=1.0)
    np.testing.assert_allclose(wanted, free, atol=0.02 * np.ptp(free, axis=0).max())
    strict = fit(max_gap=0.02)
    assert abs(strict[groups == 0, 0].mean() - strict[groups == 1, 0].mean()) < 0.025


@pytest.mark.slow
def test_limits_do_not_follow_noise():
    torch.manual_seed(0)
    rng = np.random.default_rng(0)
    X = torch.tensor(rng.normal(size=(100, 3)))
    ball = Ball(0.5, center=[0.5])

    def moved(noise_scale):
        found = []
        for _ in range(20):
            target = ParityTarget(0.05, None, of_rates=True)
            targeted, limits, batch = limits_of(target, ball, (50, 50), 3, noise_scale=noise_scale)
            layer = torch.nn.Linear(3, 1).double()
            first = layer.weight.detach().clone()
            train_to_limits(limits, targeted, batch, X, layer, rng)
            change = torch.linalg.norm(layer.weight.detach() - first)
            found.append(float(change / torch.linalg.norm(first)))
        return np.median(found)

    # The groups differ by chance, which noise may hide.
    assert moved(5.0) == 0
    assert moved(1e-4) > 0.02


@pytest.mark.parametrize("kind", TARGETS)
def test_a_target_is_of_linear_models(kind, table):
    model = fits(kind, training=Training(hidden_layer_sizes=(4,)))
    target = table.labels if kind == "classifier" else table.y
    with pytest.raises(PublicValueError, match="hidden_layer_sizes must be \\(\\) with m"):
        model.fit(table.X, target, sensitive_features=table.groups)


def test_every_pair_is_compared(table):
    # So many rows that sampling does not explain the difference.
    groups = np.array(["a", "b", "c"])[np.arange(4100) % 3]
    X = 0.01 * np.tile(table.X, (100, 1)) + 3 * (groups == "c")[:, None]
    model = fits("regressor", epsilon=np.inf, max_gap=0.05)
    with pytest.warns(ConvergenceWarning, match="misses max_gap=0.05"):
        model.fit(X, 2.0 * (groups == "c"), sensitive_features=groups)
    means = model.parity_["mean"]
    assert abs(means["a"] - means["b"]) < 0.05 < abs(means["a"] - means["c"])


@pytest.fixture(scope="module")
def large():
    return make_biased_labels(20_000, random_state=0)


def reached(large, **target):
    model = DPSlicedWassersteinFairClassifier(classes=[0, 1], epsilon=3.0, random_state=0, **target)
    model.fit(large.X, large.y, sensitive_features=large.sensitive)
    rates = pd.Series(model.predict(large.X)).groupby(large.sensitive).mean()
    return rates.min() / rates.max(), model, rates


@pytest.mark.slow
@pytest.mark.parametrize("ratio", [0.6, 0.9])
def test_the_ratio_of_rates_is_reached(large, ratio):
    found, model, rates = reached(large, min_ratio=ratio)
    assert found == pytest.approx(ratio, abs=0.1)
    inside = (model.parity_["low"] - 0.01 <= rates) & (rates <= model.parity_["high"] + 0.01)
    assert inside.all()


@pytest.mark.slow
def test_without_a_target_the_ratio_of_rates_is_below(large):
    assert reached(large, alpha=0.0)[0] < 0.5


@pytest.mark.slow
def test_the_gap_of_means_is_reached(large):
    y = large.y_continuous[:, 0]

    def gap(**target):
        model = DPSlicedWassersteinFairRegressor(y_domain=(0, 1), random_state=0, **target)
        model.fit(large.X, y, sensitive_features=large.sensitive)
        return np.ptp(pd.Series(model.predict(large.X)).groupby(large.sensitive).mean())

    assert gap(alpha=0.0) > 0.11
    assert gap(max_gap=0.05) == pytest.approx(0.05, abs=0.025)


def means_of(model, X, *by):
    """Return mean predictions by what the names are of."""
    return pd.Series(model.predict(X)).groupby([*by]).mean()


@pytest.mark.slow
def test_parity_names_groups_labels_and_outputs(table):
    options = {"epsilon": np.inf, "training": Training(max_iter=60)}
    X, groups = table.X + 2 * (table.groups == "a")[:, None], table.groups
    model = fits("classifier", penalty="equalized_odds", **options)
    model.fit(X, table.labels, sensitive_features=groups)
    assert model.parity_.index.names == ["group", "label"]
    expected = means_of(model, X, groups, table.labels)
    np.testing.assert_allclose(model.parity_["mean"].loc[expected.index], expected, atol=1e-9)
    model = fits("regressor", **options).fit(X, table.Y, sensitive_features=groups)
    assert model.parity_.index.names == ["group", "output"]
    assert model.parity_["n_rows"].tolist() == [17, 24, 17, 24]
    for (group, output), row in model.parity_.iterrows():
        expected = model.predict(X[groups == group])[:, output].mean()
        assert row["mean"] == pytest.approx(expected)
    three = np.array(["x", "y", "z"])[np.digitize(table.y, [-0.5, 0.5])]
    model = fits("classifier", classes=["x", "y", "z"], **options)
    model.fit(X, three, sensitive_features=groups)
    for (group, output), row in model.parity_.iterrows():
        expected = (model.predict(X[groups == group]) == output).mean()
        assert row["mean"] == pytest.approx(expected)


def test_parity_is_of_predictions_whatever_the_output_bound(table):
    gradient = ClippedGradient(output_bound=0.05, batch_fraction=1.0)
    model = fits("regressor", epsilon=np.inf, gradient=gradient)
    model.fit(table.X + 3, table.y + 1, sensitive_features=table.groups)
    expected = means_of(model, table.X + 3, table.groups)
    np.testing.assert_allclose(model.parity_["mean"], expected, rtol=1e-9)


def test_rates_are_rates(table):
    model = fits("classifier", epsilon=0.1).fit(
        table.X, table.labels, sensitive_features=table.groups
    )
    assert model.parity_[["mean", "low", "high"]].stack().between(0, 1).all()


@pytest.mark.parametrize(
    ("target", "means", "reach", "missed"),
    [
        (ParityTarget(0.1), (0.3, 0.45), 0.01, True),
        (ParityTarget(0.1), (0.3, 0.45), 0.04, False),
        (ParityTarget(0.1), (0.45, 0.3), 0.01, True),
        (ParityTarget(None, 0.8, True), (0.3, 0.45), 0.01, True),
        (ParityTarget(None, 0.8, True), (0.45, 0.3), 0.01, True),
        (ParityTarget(None, 0.8, True), (0.3, 0.39), 0.02, False),
        (ParityTarget(0.5, 0.8, True), (0.3, 0.45), 0.01, True),
        (ParityTarget(0.1, 0.1, True), (0.3, 0.45), 0.01, True),
    ],
)
def test_a_target_is_missed_beyond_its_intervals(target, means, reach, missed):
    means = np.array(means)[:, None]
    assert target.is_missed(means, np.full((2, 1), reach)) is missed


def test_the_stricter_target_counts():
    means = np.array([0.4])
    assert ParityTarget(0.15, 0.9, True).allowed(means) == pytest.approx(0.04)
    assert ParityTarget(0.01, 0.9, True).allowed(means) == pytest.approx(0.01)
    assert ParityTarget(0.01).allowed(means) == 0.01
    # Where nobody is chosen a ratio asks for little.
    assert ParityTarget(None, 0.9, True).allowed(np.zeros(1)) == pytest.approx(0.001)


@pytest.mark.slow
@pytest.mark.parametrize("n_groups", [2, 6])
def test_noise_alone_is_seldom_a_missed_target(n_groups):
    missed, rng = 0, np.random.default_rng(0)
    X, groups = rng.normal(size=(240, 2)), np.arange(240) % n_groups
    for seed in range(40):
        model = DPSlicedWassersteinFairRegressor(
            y_domain=(-1, 1),
            max_gap=0.3,
            training=Training(max_iter=2),
            random_state=seed,
        )
        with warnings.catch_warnings(record=True) as told:
            warnings.simplefilter("always")
            model.fit(X, np.zeros(240), sensitive_features=groups)
        missed += any(w.category is ConvergenceWarning for w in told)
    assert missed <= 6


def test_an_interrupted_fit_keeps_no_means_of_the_one_before(table):
    model = fits("classifier").fit(table.X, table.labels, sensitive_features=table.groups)

    def interrupt(step, module):
        raise KeyboardInterrupt

    model.set_params(training__callback=interrupt)
    with pytest.raises(KeyboardInterrupt):
        model.fit(table.X, table.labels, sensitive_features=np.roll(table.groups, 1))
    assert not hasattr(model, "parity_")


def test_a_missed_target_is_said(large):
    model = DPSlicedWassersteinFairClassifier(
        classes=[0, 1],
        min_ratio=0.99,
        epsilon=np.inf,
        training=Training(max_iter=4),
        random_state=0,
    )
    with pytest.warns(ConvergenceWarning, match="misses min_ratio=0.99"):
        model.fit(large.X, large.y, sensitive_features=large.sensitive)


def test_without_groups_there_is_no_target(table):
    model = fits("classifier", alpha=0.0)
    with pytest.warns(UserWarning, match="is absent: fitting without the target"):
        model.fit(table.X, table.labels)
    assert not hasattr(model, "parity_")


@pytest.mark.parametrize("kind", TARGETS)
def test_files_hold_what_was_measured(kind, table, tmp_path):
    target = table.labels if kind == "classifier" else table.y
    model = fits(kind).fit(table.X, target, sensitive_features=table.groups)
    model.save(tmp_path / "model")
    pd.testing.assert_frame_equal(load(tmp_path / "model").parity_, model.parity_)
    model._parity_cells = np.array([[0, -1], [5, -1]])
    with pytest.raises((InvalidFileError, ValueError), match="do not fit the groups"):
        model.save(tmp_path / "other")
    model._parity_cells, model._parity = np.array([[0, -1], [1, -1]]), np.ones((5, 2, 4))
    with pytest.raises((InvalidFileError, ValueError), match="do not fit the groups"):
        model.save(tmp_path / "other")
    # A later fit without a target has none.
    model = fits(kind, **dict.fromkeys(TARGETS[kind])).fit(
        table.X, target, sensitive_features=table.groups
    )
    assert not hasattr(model, "parity_")
