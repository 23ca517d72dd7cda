"""Targets of parity: what a step releases, how far a record moves it, and what is reached."""

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
from sklearn_dpgen.domains import Ball
from sklearn_dpgen.exceptions import InvalidFileError
from sklearn_dpgen.mechanisms._sampled import StratifiedGaussianRun
from sklearn_dpgen.nn import Training
from sklearn_dpgen.sliced import (
    ClippedGradient,
    DPSlicedWassersteinFairClassifier,
    DPSlicedWassersteinFairRegressor,
    _fair,
)
from sklearn_dpgen.sliced._parity import (
    DualAscent,
    GroupMeans,
    MeanPenalty,
    ParityTarget,
    Targeted,
    shrinkage,
)
from sklearn_dpgen.sliced._strata import make_strata, protected_strata

SIZES = {"parity": (17, 24), "three": (9, 13, 19), "odds": ((5, 9), (12, 15))}
pytestmark = pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")

TARGETS = {"classifier": {"min_ratio": 0.9}, "regressor": {"max_gap": 0.1}}
# Clips by hand: of the task, and of Jacobians of the outputs.
C, L = 0.8, 0.3


def strata_of(kind, protects):
    if protects:
        n_labels = 2 if kind == "odds" else None
        return protected_strata(41, 3 if kind == "three" else 2, n_labels)
    return make_strata(np.array(SIZES[kind]))


def by_hand(kind, limit):
    """Return the largest total of the multipliers of each stratum, from the definition."""
    totals = []
    for (group, label), size in np.ndenumerate(np.array(SIZES[kind]).reshape(len(SIZES[kind]), -1)):
        column = np.array(SIZES[kind]).reshape(len(SIZES[kind]), -1)[:, label]
        n_groups = len(column)
        others = [other for g, other in enumerate(column) if g != group]
        factor = 2 * n_groups / (n_groups - 1)
        totals.append(
            (label, group, sum(limit * factor * size * o / (41 * column.sum()) for o in others))
        )
    return [total for *_, total in sorted(totals)]


@pytest.mark.parametrize("kind", SIZES)
def test_a_record_moves_the_penalty_by_its_own_weight(kind):
    limit, strata = 1.7, strata_of(kind, False)
    penalty = MeanPenalty(strata, "size", L, "spectral", limit)
    expected = [
        2 * L * total / size for total, size in zip(by_hand(kind, limit), strata.sizes, strict=True)
    ]
    np.testing.assert_allclose(penalty.sensitivities(strata.sizes), expected, rtol=1e-12)
    # A record of each stratum goes from one side of a linear map to the other, at the clip.
    module = torch.nn.Linear(1, 1, bias=False).double()
    stops = np.cumsum([0, *strata.sizes])
    batch = [slice(a, b) for a, b in zip(stops[:-1], stops[1:], strict=True)]
    X = torch.full((41, 1), 100.0, dtype=torch.float64)
    for stratum, bound in enumerate(expected):
        # All multipliers of the pairs of this stratum pull it the same way.
        signs = [1.0 if one == stratum else -1.0 for one, _ in strata.pairs]
        multipliers = (penalty.limits() * signs)[:, None]
        moved = X.clone()
        moved[batch[stratum].start] *= -1
        one, other = (penalty.gradient(module, Z, batch, multipliers)[0] for Z in (X, moved))
        assert float((one - other).norm()) == pytest.approx(bound, rel=1e-9)


@pytest.mark.parametrize("kind", SIZES)
@pytest.mark.parametrize("shares", [None, "skewed"])
def test_a_record_that_changes_its_cell_moves_the_penalty_by_the_bound(kind, shares):
    limit, strata = 1.7, strata_of(kind, True)
    penalty = MeanPenalty(strata, "size", L, "spectral", limit)
    n_cells = len(strata.cells)
    (bound,) = penalty.sensitivities([41])
    assert bound == pytest.approx(4 * L * limit / 41)
    shares = np.full(n_cells, 1 / n_cells) if shares is None else np.arange(1, n_cells + 1) / 100
    module = torch.nn.Linear(1, 1, bias=False).double()
    rng = np.random.default_rng(0)
    limits, most = penalty.limits(shares), 0.0
    for _ in range(400):
        X = torch.tensor(rng.choice([-100.0, 100.0], (41, 1)))
        codes = torch.tensor(rng.integers(n_cells, size=41))
        signs = rng.choice([-1.0, 1.0], len(limits))
        moved, other_codes = X.clone(), codes.clone()
        moved[0] *= rng.choice([-1.0, 1.0])
        other_codes[0] = int(rng.integers(n_cells))
        one, other = (
            penalty.gradient(module, Z, [slice(0, 41)], (limits * signs)[:, None], c, shares)[0]
            for Z, c in ((X, codes), (moved, other_codes))
        )
        found = float((one - other).norm())
        # Smaller multipliers have a smaller bound, which a step uses.
        (own,) = penalty.sensitivities([41], limits, shares)
        assert found <= own * (1 + 1e-9) <= bound * (1 + 2e-9)
        most = max(most, found / own)
    if n_cells == 2:
        assert most == pytest.approx(1, rel=1e-9)
    assert most > 0.6


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
        "gradient": ClippedGradient(task_clip=C, jacobian_clip=L, batch_fraction=1.0),
        "random_state": 0,
        **TARGETS[kind],
        **options,
    }
    if kind == "classifier":
        return DPSlicedWassersteinFairClassifier(**{"classes": [0, 1]} | options)
    return DPSlicedWassersteinFairRegressor(y_domain=(-2, 2), **options)


@pytest.fixture
def ascents(monkeypatch):
    """Replace the multipliers of a fit by given ones, a share of their limits."""

    class Given(DualAscent):
        share = 1.0

        def __init__(self, targeted, *args):
            super().__init__(targeted, *args)
            limits = targeted.penalty.limits(self.shares)
            self.multipliers = self.share * limits[:, None] * np.ones_like(self.multipliers)

    monkeypatch.setattr(_fair, "DualAscent", Given)
    return Given


@pytest.mark.parametrize("share", [1.0, 0.25])
def test_a_step_is_as_sensitive_as_its_price(ascents, probe, table, share):
    # A record of the first group goes from one end of its line to the other: its loss, its
    # Jacobian and its decision all move as far as they can.
    ascents.share = share
    table.X[:] = 0.01 * np.sign(table.X)
    X = table.X.copy()
    row = np.flatnonzero(table.groups == "a")[0]
    table.X[row], X[row] = [1e6, 0, 0], [-1e6, 0, 0]
    table.labels[row] = 0
    seen = []
    for features in (table.X, X):
        seen.append(
            probe(
                fits("classifier").fit,
                features,
                table.labels,
                sensitive_features=table.groups,
                scales=(1e-12,),
            )
        )
    mechanism = seen[0].mechanism
    limit = (
        fits("classifier")
        ._plan(make_strata(np.array([17, 24])), 3, 2)
        .details.targeted.penalty.limit
    )
    weight = 4 * 17 * 24 / 41**2
    at_limit = 2 * C / 41 + 2 * L * limit * weight / 17
    bound = math.hypot(1, 0.3) * at_limit
    assert mechanism.strata[0].sensitivity == pytest.approx(bound)
    difference = seen[0].gradients - seen[1].gradients
    gradient = np.linalg.norm(difference[0, :-2])
    if share == 1:
        assert gradient == pytest.approx(at_limit, rel=1e-4)
        assert np.linalg.norm(difference) == pytest.approx(bound, rel=1e-4)
    assert 0.4 * at_limit < gradient <= at_limit * (1 + 1e-9)
    assert np.linalg.norm(difference) <= bound * (1 + 1e-9)


def test_without_a_clip_a_step_moves_further(ascents, probe, table, monkeypatch):
    X = table.X.copy()
    row = np.flatnonzero(table.groups == "a")[0]
    table.X[row], X[row] = [1e6, 0, 0], [-1e6, 0, 0]
    table.labels[row] = 0

    def moved():
        seen = [
            probe(
                fits("classifier").fit,
                Z,
                table.labels,
                sensitive_features=table.groups,
                scales=(1e-12,),
            )
            for Z in (table.X, X)
        ]
        difference = np.linalg.norm(seen[0].gradients - seen[1].gradients)
        return difference / seen[0].mechanism.strata[0].sensitivity

    assert moved() <= 1 + 1e-9
    with monkeypatch.context() as patch:
        patch.setattr(Targeted, "gain", lambda self, *args: 3.0)
        assert moved() > 1.5
    with monkeypatch.context() as patch:
        patch.setattr(
            "sklearn_dpgen.sliced._parity.clip_weights", lambda gram, W, *args, **options: W
        )
        assert moved() > 1.5


SIZES_OF_THREE = np.array([1000, 4000, 15000])


@pytest.mark.parametrize("row", range(3))
def test_one_multiplier_at_its_limit_moves_no_group_too_far(row):
    # The gain is that of the stratum with the least room, not of the others.
    strata = make_strata(SIZES_OF_THREE)
    penalty = MeanPenalty(strata, "size", L, "spectral", 8.0)
    tasks = tuple(2 * C / 20_000 for _ in SIZES_OF_THREE)
    targeted = Targeted(
        ParityTarget(0.1), penalty, Ball(0.5, n_features=1), tuple(SIZES_OF_THREE), tasks
    )
    multipliers = np.zeros((3, 1))
    multipliers[row] = penalty.limits()[row]
    gain = targeted.gain(multipliers, None)
    pairs = [(0, 1), (0, 2), (1, 2)]
    for stratum, size in enumerate(SIZES_OF_THREE):
        touched = sum(abs(multipliers[i, 0]) for i, pair in enumerate(pairs) if stratum in pair)
        own = 2 * C / 20_000 + 2 * L * touched / size
        weights = [
            2 * 3 / 2 * size * other / 20_000**2
            for o, other in enumerate(SIZES_OF_THREE)
            if o != stratum
        ]
        price = 2 * C / 20_000 + 2 * L * 8 * sum(weights) / size
        assert gain * own <= price * (1 + 1e-9)
    assert 1 <= gain <= targeted.largest_gain()


@pytest.mark.parametrize("shares", [(-0.01, 1.0), (0.0, 0.4), (1e-6, 1.2)])
def test_released_shares_near_zero_give_no_record_more_weight(shares):
    strata = protected_strata(1000, 2)
    penalty = MeanPenalty(strata, "size", L, "spectral", 8.0)
    measured = GroupMeans(strata, Ball(0.5, n_features=1), (200,), (0.02,))
    vector = np.array([[0.0, shares[0]], [0.0, shares[1]]]) * measured.scales[0]
    _, kept = measured.means(vector.ravel())
    assert (kept > 0).all()
    (bound,) = penalty.sensitivities([200])
    (own,) = penalty.sensitivities([200], penalty.limits(kept), kept)
    assert own <= bound * (1 + 1e-9)
    # Multipliers beyond their limits have a sensitivity that says so.
    (beyond,) = penalty.sensitivities([200], 3 * penalty.limits(kept), kept)
    assert beyond == pytest.approx(3 * own)


@pytest.mark.parametrize("kind", TARGETS)
def test_gains_do_not_change_what_is_followed(kind, table, monkeypatch):
    target = table.labels if kind == "classifier" else table.y
    options = {"epsilon": np.inf, "training": Training(max_iter=40)}

    def coefficients():
        model = fits(kind, **options).fit(table.X, target, sensitive_features=table.groups)
        return model.coef_

    with_gain = coefficients()
    monkeypatch.setattr(Targeted, "gain", lambda self, *args: 1.0)
    np.testing.assert_allclose(with_gain, coefficients(), rtol=1e-9)


class Exact(DualAscent):
    """Reads the means before their noise."""

    def update(self, released):
        super().update(self.seen[-1])


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
    monkeypatch.setattr(_fair, "DualAscent", Exact)
    # Means without noise move multipliers also where noise would explain them.
    monkeypatch.setattr("sklearn_dpgen.sliced._parity.shrinkage", lambda *args: 1.0)
    monkeypatch.setattr("sklearn_dpgen.sliced._parity.WINDOW", 0.0)
    assert not is_told_by_releases()


@pytest.mark.parametrize("kind", TARGETS)
def test_the_report_states_steps_and_measurements(kind, table):
    model = fits(kind, training=Training(max_iter=50))
    target = table.labels if kind == "classifier" else table.y
    model.fit(table.X, target, sensitive_features=table.groups)
    events = [(str(event.what), event.times) for event in model.privacy_.events]
    assert events == [("gradients", 50), ("group_means", 3)]
    assert model.privacy_.n_releases == model.mechanism_.n_releases == 53
    assert model.n_iter_ == 50
    assert model.plan(41, 3, group_sizes=[17, 24]) == model.privacy_
    assert "Jacobians clipped to spectral norm 0.3" in str(
        fits(kind).plan(41, 3, group_sizes=[17, 24])
    )


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


@pytest.mark.parametrize("protects", [False, True])
@pytest.mark.parametrize("rate", [0.08, 0.5])
def test_intervals_hold_the_means_of_the_population(protects, rate):
    strata = protected_strata(600, 2) if protects else make_strata(np.array([200, 400]))
    k = tuple(size // 5 for size in strata.sizes)
    measured = GroupMeans(strata, Ball(0.5, center=[0.5]), k, (0.02,) * len(k))
    rng, held, n_releases, scale = np.random.default_rng(0), [], 20, 0.05
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


def test_shrinkage_keeps_what_noise_does_not_explain():
    rng = np.random.default_rng(0)
    noise = 0.1 * rng.normal(size=(2000, 3))
    kept = [shrinkage((d**2).sum(), 3, 0.1) for d in noise]
    assert np.mean(np.array(kept) > 0) == pytest.approx(0.05, abs=0.02)
    assert shrinkage(1.0, 3, 0.01) > 0.99
    assert shrinkage(0.0, 1, 0.0) == 0
    of_ten = [shrinkage((d**2).sum(), 3, 0.1, 10) > 0 for d in 0.1 * rng.normal(size=(4000, 3))]
    assert np.mean(of_ten) == pytest.approx(0.005, abs=0.004)


def test_multipliers_follow_the_gap_and_stop_at_the_target():
    strata = make_strata(np.array([50, 50]))
    penalty = MeanPenalty(strata, "size", 0.25, "spectral", 4.0)
    ball = Ball(0.5, center=[0.5])
    targeted = Targeted(ParityTarget(0.1, None, of_rates=True), penalty, ball, (50, 50), (0.1, 0.1))
    ascent = DualAscent(targeted, 200, 0.0)
    measured = targeted.in_steps
    rates = np.array([[0.3], [0.7]])
    outcomes = torch.tensor(np.repeat(rates, 50)[:, None])
    batch = [slice(0, 50), slice(50, 100)]
    for _ in range(200):
        ascent.update(measured.vector(outcomes, batch).numpy())
    assert -4.0 <= ascent.multipliers[0, 0] < -1.0
    outcomes[:] = 0.5
    for _ in range(2000):
        ascent.update(measured.vector(outcomes, batch).numpy())
    assert ascent.multipliers[0, 0] == 0


@pytest.mark.parametrize("radius", [0.5, 50.0])
def test_multipliers_do_not_follow_noise_in_any_units(radius):
    strata = make_strata(np.array([50, 50]))
    penalty = MeanPenalty(strata, "size", 0.25, "spectral", 4.0)
    ball = Ball(radius, n_features=1)
    targeted = Targeted(ParityTarget(0.0), penalty, ball, (50, 50), (0.1, 0.1))

    def largest(noise_scale):
        ascent, rng = DualAscent(targeted, 400, noise_scale), np.random.default_rng(0)
        outcomes = torch.zeros(100, 1, dtype=torch.float64)
        vector = targeted.in_steps.vector(outcomes, [slice(0, 50), slice(50, 100)]).numpy()
        found = []
        for _ in range(400):
            ascent.update(vector + 0.2 * rng.normal(size=vector.shape))
            found.append(abs(ascent.multipliers[0, 0]))
        return np.mean(found)

    assert largest(0.2) < 0.05
    assert largest(0.02) > 0.2


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


@pytest.mark.parametrize("ratio", [0.6, 0.9])
def test_the_ratio_of_rates_is_reached(large, ratio):
    def reached(**target):
        model = DPSlicedWassersteinFairClassifier(classes=[0, 1], epsilon=3.0, **target)
        model.fit(large.X, large.y, sensitive_features=large.sensitive)
        rates = pd.Series(model.predict(large.X)).groupby(large.sensitive).mean()
        return rates.min() / rates.max(), model, rates

    found, model, rates = reached(min_ratio=ratio)
    assert found == pytest.approx(ratio, abs=0.1)
    inside = (model.parity_["low"] - 0.01 <= rates) & (rates <= model.parity_["high"] + 0.01)
    assert inside.all()
    assert reached(alpha=0.0)[0] < 0.5


def test_the_gap_of_means_is_reached(large):
    y = large.y_continuous[:, 0]

    def gap(**target):
        model = DPSlicedWassersteinFairRegressor(y_domain=(0, 1), **target)
        model.fit(large.X, y, sensitive_features=large.sensitive)
        return np.ptp(pd.Series(model.predict(large.X)).groupby(large.sensitive).mean())

    assert gap(alpha=0.0) > 0.11
    assert gap(max_gap=0.05) == pytest.approx(0.05, abs=0.025)


def means_of(model, X, *by):
    """Return mean predictions by what the names are of."""
    return pd.Series(model.predict(X)).groupby([*by]).mean()


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
    one, other = np.array([0.2]), np.array([0.4])
    assert ParityTarget(0.15, 0.9, True).allowed(one, other) == pytest.approx(0.04)
    assert ParityTarget(0.01, 0.9, True).allowed(one, other) == pytest.approx(0.01)
    assert ParityTarget(0.01).allowed(one, other) == 0.01


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
        classes=[0, 1], min_ratio=0.99, epsilon=np.inf, training=Training(max_iter=20)
    )
    with pytest.warns(ConvergenceWarning, match="misses min_ratio=0.99"):
        model.fit(large.X, large.y, sensitive_features=large.sensitive)


def test_without_groups_there_is_no_target(table):
    model = fits("classifier", alpha=0.0)
    with pytest.warns(UserWarning, match="sensitive_features is absent"):
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
