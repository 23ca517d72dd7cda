"""The box in which a regressor learns: within the declared one, and placed by releases."""

import numpy as np
import pytest
from sklearn.metrics import r2_score

from sklearn_dpgen.domains import Ball, Box
from sklearn_dpgen.mechanisms._sampled import StratifiedGaussianRun
from sklearn_dpgen.nn import Training
from sklearn_dpgen.sliced import ClippedGradient, DPSlicedWassersteinFairRegressor
from sklearn_dpgen.sliced._regressor import located_box
from sklearn_dpgen.utils._random import ROUNDING

pytestmark = pytest.mark.filterwarnings(
    "ignore::sklearn_dpgen.exceptions.NoisyGradientsWarning",
    "ignore:sensitive_features is absent:UserWarning",
)


class Values(np.ndarray):
    """An array with the methods of a tensor that distances use."""

    def new_tensor(self, values):
        return np.asarray(values)

    def clamp(self, min):  # noqa: A002
        return Values.of(np.maximum(self, min))

    def log(self):
        return Values.of(np.log(np.asarray(self)))

    @classmethod
    def of(cls, values):
        return np.asarray(values, dtype=float).view(cls)


def exact_box(values, noise=0.0):
    """Return the box for given values of shape (n, k), by means without noise."""

    def mean(ball, function):
        found = ball.project(np.asarray(function(Values.of(values))))
        return found.mean(axis=0), noise

    return located_box(mean, values.shape[1])


@pytest.mark.parametrize("scale", [0.3, 0.01, 0.001])
@pytest.mark.parametrize("kind", ["normal", "exponential", "two values"])
def test_the_box_holds_most_values_and_is_not_much_wider(kind, scale):
    rng = np.random.default_rng(0)
    draws = {
        "normal": rng.normal(size=5000),
        "exponential": rng.exponential(size=5000) - 1,
        "two values": np.where(rng.uniform(size=5000) < 0.2, 2.0, -0.5),
    }
    values = (-0.6 + scale * draws[kind]).clip(-1, 1)
    low, high = exact_box(values[:, None])
    assert np.mean((values >= low) & (values <= high)) > 0.94
    assert high - low <= 14 * scale + 0.01
    wider = exact_box(values[:, None], noise=1.0)
    assert wider[1] - wider[0] > min(1.9, 1.5 * (high - low).item()) * 0.6


def test_a_box_has_a_width_where_values_are_equal_and_each_output_its_own():
    values = np.column_stack([np.full(500, 0.4), np.random.default_rng(0).normal(0, 0.1, 500)])
    low, high = exact_box(values)
    np.testing.assert_allclose((low[0] + high[0]) / 2, 0.4, atol=1e-3)
    assert 0 < high[0] - low[0] < 0.02
    assert 0.3 < high[1] - low[1] < 0.9


def fits(**options):
    options = {
        "training": Training(max_iter=4),
        "gradient": ClippedGradient(task_clip=0.8, batch_fraction=1.0),
        "y_domain": (-2, 2),
        # What is told does not depend on the budget, and the second ball is narrow.
        "epsilon": np.inf,
        "random_state": 0,
        **options,
    }
    return DPSlicedWassersteinFairRegressor(**options)


def moves(monkeypatch, table, model):
    """Return how far a record moves the releases before the steps, and the priced sensitivity."""
    found = []
    for end in (-50.0, 50.0):
        y, rng, seen = table.y.copy(), np.random.default_rng(0), []
        y[3] = end

        def told(self, value, seen=seen, rng=rng):
            seen.append(value)
            self._is_drawn = False
            return 1e-3 * rng.normal(size=value.shape)

        with monkeypatch.context() as patch:
            patch.setattr(StratifiedGaussianRun, "release", told)
            model.fit(table.X, y, sensitive_features=table.groups)
        found.append(seen[:4])
    stratum = model.mechanism_.strata[0 if len(model.mechanism_.strata) == 1 else _stratum(table)]
    return [np.linalg.norm(a - b) for a, b in zip(*found, strict=True)], stratum.sensitivity


def _stratum(table):
    return int(table.groups[3] == "b")


GROUPS = {"groups": ["a", "b"]}


@pytest.mark.parametrize(
    "options",
    [
        {"alpha": 0.0},
        {"alpha": 0.5},
        {"alpha": 0.5, "protect_groups": True} | GROUPS,
        {"max_gap": 0.1},
        {"max_gap": 0.1} | GROUPS,
    ],
)
def test_a_record_moves_the_releases_of_the_box_by_what_was_priced(monkeypatch, table, options):
    moved, priced = moves(monkeypatch, table, fits(**options))
    assert max(moved) <= priced * (1 + 1e-9)
    # The means move from one end of their ball to the other; the distances are the same.
    np.testing.assert_allclose(moved, [priced, 0, priced, 0], rtol=1e-6, atol=1e-3 * priced)


def test_without_a_projection_a_record_would_move_them_further(monkeypatch, table):
    """The negative twin: values that are not projected on the smaller ball."""
    monkeypatch.setattr(Ball, "project", lambda self, values: values)
    moved, priced = moves(monkeypatch, table, fits(alpha=0.0))
    assert moved[2] > 1.5 * priced


def test_releases_before_the_steps_are_in_the_plan(table):
    for domain, n_located in (((-2, 2), 20), (Ball(2.0, n_features=1), 0)):
        model = fits(alpha=0.0, epsilon=1.0, y_domain=domain, training=Training(max_iter=70))
        report = model.fit(table.X, table.y).privacy_
        assert report.n_releases == 70 + n_located
        assert report == model.plan(41, 3)
        # Four weights of each step, and a mean of the one stratum, are rounded.
        assert report.rounding == pytest.approx((70 * 4 + n_located) * ROUNDING)


def test_the_box_allows_for_noise(monkeypatch, table):
    """Two fits are told the same; the one that knows of more noise has the wider box."""
    widths = []
    for epsilon in (np.inf, 1000.0):
        with monkeypatch.context() as patch:
            patch.setattr(StratifiedGaussianRun, "release", _told_nothing)
            model = fits(alpha=0.0, epsilon=epsilon).fit(table.X, table.y)
        widths.append((model.y_domain_.high - model.y_domain_.low).item())
    assert 1.0001 * widths[0] < widths[1] < 4


def _told_nothing(self, value):
    self._is_drawn = False
    return np.zeros_like(value)


def test_targets_are_moved_to_the_placed_box(monkeypatch, table):
    """How far beyond it a target lies changes no gradient; within it, it does."""
    seen = {}
    # A clip of the gradient would hide it.
    wide = {"gradient": ClippedGradient(task_clip=1e6, batch_fraction=1.0), "y_domain": (-100, 100)}
    for end in (60.0, 90.0, 0.0):
        y, gradients = table.y.copy(), []
        y[3] = end

        def told(self, value, gradients=gradients):
            gradients.append(value)
            return _told_nothing(self, value)

        with monkeypatch.context() as patch:
            patch.setattr(StratifiedGaussianRun, "release", told)
            model = fits(alpha=0.0, **wide).fit(table.X, y)
        assert model.y_domain_.high < 50
        seen[end] = gradients[4]
    np.testing.assert_array_equal(seen[60.0], seen[90.0])
    assert np.abs(seen[60.0] - seen[0.0]).max() > 1e-4


def test_groups_count_by_their_sizes():
    rng = np.random.default_rng(0)
    y = np.concatenate([rng.normal(1, 0.1, 380), rng.normal(-1.5, 0.1, 20)])
    X, a = rng.normal(size=(400, 2)), np.repeat(["a", "b"], [380, 20])
    one, two = (
        fits(alpha=0.0).fit(X, y, sensitive_features=groups).y_domain_ for groups in (a, None)
    )
    np.testing.assert_allclose([one.low, one.high], [two.low, two.high], rtol=1e-9)


@pytest.mark.parametrize("bounds", [(1e12 - 1, 1e12 + 1), (0.1, 0.7)])
def test_the_box_is_within_bounds_that_are_far_from_0(bounds):
    y = np.full(50, np.mean(bounds))
    model = fits(alpha=0.0, y_domain=bounds).fit(np.arange(100.0).reshape(50, 2) / 100, y)
    assert bounds[0] <= model.y_domain_.low < model.y_domain_.high <= bounds[1]
    predicted = model.predict(1e9 * np.ones((2, 2)) * [[1], [-1]])
    assert bounds[0] <= predicted.min() <= predicted.max() <= bounds[1]


def wages(n, seed=0):
    rng = np.random.default_rng(seed)
    X = rng.uniform(-1, 1, size=(n, 3))
    return X, 20 + 5 * X[:, 0] - 3 * X[:, 1] + rng.normal(size=n)


@pytest.mark.slow
@pytest.mark.parametrize("epsilon", [1.0, np.inf])
def test_bounds_that_are_far_too_wide_cost_little(epsilon):
    X, y = wages(6000)
    scores = {}
    for name, domain in {
        "close": (0, 40),
        "wide": (0, 5000),
        # The negative twin: nothing is placed within a ball.
        "ball": Ball(2500.0, center=[2500.0]),
    }.items():
        model = DPSlicedWassersteinFairRegressor(
            0.0, y_domain=domain, epsilon=epsilon, random_state=0, training=Training(max_iter=200)
        ).fit(X[:4000], y[:4000])
        scores[name] = r2_score(y[4000:], model.predict(X[4000:]))
        if name == "wide":
            assert isinstance(model.y_domain_, Box)
            assert 0 <= model.y_domain_.low < 12 < 28 < model.y_domain_.high < 100
    assert scores["wide"] > scores["close"] - 0.1 > 0.6
    assert scores["ball"] < 0


def test_predictions_follow_the_units_of_each_output():
    X, y = wages(400)
    Y = np.column_stack([y, 1e4 - 100 * y])
    one = fits(alpha=0.0, y_domain=([0, 0], [100, 1e4])).fit(X, Y)
    other = fits(alpha=0.0, y_domain=([0, 0], [1, 1])).fit(X, Y / [100, 1e4])
    sides = (one.y_domain_.high - one.y_domain_.low) / [100, 1e4]
    np.testing.assert_allclose(sides, other.y_domain_.high - other.y_domain_.low, rtol=1e-6)


@pytest.mark.slow
def test_parity_is_in_the_units_of_the_target(table):
    X, y = wages(3000)
    a = np.where(X[:, 0] > 0, "a", "b")
    model = DPSlicedWassersteinFairRegressor(
        max_gap=1.0, y_domain=(0, 5000), epsilon=np.inf, training=Training(max_iter=200)
    ).fit(X, y, sensitive_features=a)
    predicted = model.predict(X)
    means = [predicted[a == group].mean() for group in ("a", "b")]
    np.testing.assert_allclose(model.parity_["mean"], means, rtol=0.02)
    assert abs(means[0] - means[1]) < 1.6
    plain = DPSlicedWassersteinFairRegressor(
        0.0, y_domain=(0, 5000), epsilon=np.inf, training=Training(max_iter=200)
    ).fit(X, y)
    assert abs(np.subtract(*[plain.predict(X)[a == group].mean() for group in ("a", "b")])) > 4
