"""Scores less a difference of groups: their sensitivity, by search for the worst case."""

from dataclasses import replace
from itertools import product

import numpy as np
import pytest
import sklearn
from search_cases import Constant, NoisyThreshold
from sklearn.frozen import FrozenEstimator
from sklearn.linear_model import LogisticRegression

from sklearn_dpgen.accounting import PoissonRuns
from sklearn_dpgen.accounting._selection import calibrate_runs
from sklearn_dpgen.datasets import make_biased_labels
from sklearn_dpgen.ledger import PrivacyLedger
from sklearn_dpgen.model_selection import PrivateSearchCV, utility_scorer
from sklearn_dpgen.model_selection._row_values import group_gap
from sklearn_dpgen.predictors import BarycenterClassifier
from sklearn_dpgen.utils._random import NoiseSource

pytestmark = pytest.mark.filterwarnings(
    "ignore::sklearn_dpgen.exceptions.SmallGroupWarning",
)


class ByGroup(NoisyThreshold):
    """A noisy mean whose guarantee makes the sizes of the groups public."""

    def __init__(
        self, cut=0.5, *, groups=(0, 1), epsilon=1.0, delta=1e-5, ledger=None, random_state=None
    ):
        super().__init__(
            cut, epsilon=epsilon, delta=delta, ledger=ledger, random_state=random_state
        )
        self.groups = groups

    def plan(self, n_samples, n_features=None, *, group_sizes=None):
        return replace(super().plan(n_samples), shared=("group",))

    def fit(self, X, y, *, sensitive_features=None):
        return super().fit(X, y)


class NumbersByGroup(ByGroup, Constant):
    """Predicts x."""

    def predict(self, X):
        return np.asarray(X)[:, 0]


FEW = {"epsilon": np.inf, "n_runs": 1, "random_state": 0}


def score(x, y, groups, weight, **params):
    """Return the score without noise of public rows, which the same code computes."""
    rows = np.asarray(x, dtype=float)[:, None]
    search = PrivateSearchCV(
        ByGroup(groups=sorted({0, 1, *groups})), {"cut": [0.5]}, gap_weight=weight, **FEW, **params
    )
    X, labels, side = np.zeros((4, 1)), np.array([0, 1, 0, 1]), np.array([0, 0, 1, 1])
    search.fit(
        X, labels, sensitive_features=side, X_val=rows, y_val=y, sensitive_features_val=groups
    )
    return search.best_score_


def table_score(cells, groups, weight):
    """Return the same score of cells (decision, hit), fast enough for a search."""
    decided, hits = np.asarray(cells, dtype=float).T
    weights = np.full(len(groups), 1 / len(groups))
    return weights @ hits - weight * group_gap(decided, np.asarray(groups), weights)


def largest_change(groups, weight, *, keeps_group=True):
    """Return the largest change of a score over all tables of few rows and their neighbours."""
    states, n, worst = list(product((0, 1), (0, 1))), len(groups), 0.0
    scores = {cells: table_score(cells, groups, weight) for cells in product(states, repeat=n)}
    for cells, value in scores.items():
        for place, state in product(range(n), states):
            other = (*cells[:place], state, *cells[place + 1 :])
            worst = max(worst, abs(scores[other] - value))
            if not keeps_group:
                for group in set(groups):
                    moved = [*groups[:place], group, *groups[place + 1 :]]
                    worst = max(worst, abs(table_score(other, moved, weight) - value))
    return worst


@pytest.mark.parametrize("weight", [0.3, 1.0, 4.0])
@pytest.mark.parametrize("groups", [(0, 0, 1, 1), (0, 1, 1, 1), (0, 0, 1, 1, 2)], ids=str)
def test_the_bound_holds_and_is_attained(groups, weight):
    sizes = np.bincount(groups)
    bound = 1 / len(groups) + weight / sizes.min()
    assert largest_change(groups, weight) == pytest.approx(bound, rel=1e-12)
    # The negative twins: the bound of a mean alone, that of the mean size of the groups, and a
    # record that may change its group.
    assert largest_change(groups, weight) > 1 / len(groups) * (1 + 1e-9)
    if sizes.min() < sizes.mean():
        assert largest_change(groups, weight) > 1 / len(groups) + weight / sizes.mean()
    if sizes.min() > 1:
        assert largest_change(groups, weight, keeps_group=False) > bound + 0.1 * weight


def test_the_score_is_that_of_the_table():
    rng = np.random.default_rng(0)
    for _ in range(5):
        x, y, groups = rng.uniform(size=9), rng.integers(2, size=9), np.arange(9) % 3
        decided = x > 0.5
        expected = table_score(np.column_stack([decided, decided == y]), groups, 0.7)
        assert score(x, y, groups, 0.7) == pytest.approx(expected)
        assert score(x, y, groups, 0.0) == pytest.approx(np.mean(decided == y))


def test_the_noise_of_a_score_has_this_sensitivity(monkeypatch):
    rng = np.random.default_rng(0)
    X, side = rng.uniform(size=(400, 1)), np.arange(400) % 8 < 1
    y, side = (X[:, 0] > 0.5).astype(int), side.astype(int)
    search = PrivateSearchCV(ByGroup(), {"cut": [0.5]}, gap_weight=0.5)
    # A fifth of 350 and of 50 records are scored.
    change = 1 / 80 + 0.5 / 10
    mu = calibrate_runs(1.0, 1e-5, PoissonRuns(10)).run.mu
    report = search.plan(400, 1, group_sizes=[350, 50])
    assert report.sensitivity == pytest.approx(change)
    assert report.noise_scale["score"] == pytest.approx(change / mu)
    assert report == search.fit(X, y, sensitive_features=side).privacy_
    assert "0.5 times the largest difference of two groups' means" in " ".join(str(report).split())
    monkeypatch.setattr(NoiseSource, "normal", lambda self, size: np.zeros(size))
    clean = search.fit(X, y, sensitive_features=side).best_score_
    monkeypatch.setattr(NoiseSource, "normal", lambda self, size: np.full(size, 2.0**30))
    scale = (search.fit(X, y, sensitive_features=side).best_score_ - clean) / 2**30
    assert scale == pytest.approx(change / mu, rel=1e-9)
    # The twin: the noise of a mean alone.
    assert PrivateSearchCV(ByGroup(), {"cut": [0.5]}).plan(
        400, 1, group_sizes=[350, 50]
    ).noise_scale["score"] == pytest.approx(1 / 80 / mu)


@pytest.mark.slow
def test_a_heavy_weight_chooses_parity():
    """A cut below all values treats the groups alike; one between them predicts better."""
    rng = np.random.default_rng(0)
    side = np.arange(2000) % 2
    X = (rng.uniform(size=2000) / 2 + side / 2)[:, None]
    y = (X[:, 0] > 0.5).astype(int)
    chosen = {}
    for weight in (0.0, 2.0):
        search = PrivateSearchCV(
            ByGroup(), {"cut": [0.5, -1.0]}, gap_weight=weight, epsilon=5.0, n_runs=20
        )
        chosen[weight] = search.fit(X, y, sensitive_features=side).best_params_["cut"]
    assert chosen == {0.0: 0.5, 2.0: -1.0}


def test_numbers_differ_relative_to_their_range():
    rng = np.random.default_rng(0)
    x, side = rng.uniform(-1, 3, size=100), np.arange(100) % 2
    search = PrivateSearchCV(
        NumbersByGroup(), {"cut": [0.5]}, gap_weight=2.0, target_range=(0, 2), **FEW
    )
    search.fit(
        x[:, None],
        x,
        sensitive_features=side,
        X_val=x[:, None],
        y_val=x,
        sensitive_features_val=side,
    )
    places = np.clip(x, 0, 2) / 2
    gap = abs(places[side == 0].mean() - places[side == 1].mean())
    assert search.best_score_ == pytest.approx(1 - 2 * gap)
    with pytest.raises(ValueError, match="target_range"):
        search.set_params(target_range=None).fit(x[:, None], x, sensitive_features=side)


DATA = make_biased_labels(200, random_state=0)
X, Y, SIDE = DATA.X, DATA.y, DATA.sensitive


@pytest.mark.parametrize(
    ("estimator", "options", "groups", "message"),
    [
        (NoisyThreshold(), {}, None, "unless the sizes of the groups are public"),
        (ByGroup(), {"scoring": utility_scorer("y")}, SIDE, "which predicts nothing"),
        (
            BarycenterClassifier(
                FrozenEstimator(LogisticRegression().fit(X, Y)), groups=[0, 1], epsilon=1.0
            ),
            {},
            SIDE,
            "unless the sizes of the groups are public",
        ),
        (ByGroup(groups=[0, 1, 2]), {}, np.zeros(200, dtype=int), "two groups have scored"),
        (ByGroup(), {"gap_weight": -1.0}, SIDE, "gap_weight"),
    ],
)
def test_what_has_no_bound_is_refused_before_the_charge(
    tmp_path, estimator, options, groups, message
):
    ledger = PrivacyLedger.create(tmp_path / "ledger", dataset="toy", epsilon=3.0, delta=1e-3)
    grid = {"min_ratio": [1.0]} if hasattr(estimator, "min_ratio") else {"cut": [0.5]}
    search = PrivateSearchCV(estimator, grid, ledger=ledger, **{"gap_weight": 1.0} | options)
    with pytest.raises(ValueError, match=message):
        search.fit(X, Y, sensitive_features=groups)
    assert not ledger.report().charges


@pytest.mark.slow
def test_public_rows_are_compared_for_any_estimator():
    model = FrozenEstimator(LogisticRegression().fit(X, Y))
    search = PrivateSearchCV(
        BarycenterClassifier(model, groups=[0, 1]),
        {"min_ratio": [0.0, 1.0]},
        gap_weight=3.0,
        epsilon=50.0,
        n_runs=30,
    )
    with pytest.raises(ValueError, match="without sensitive_features of the scored rows"):
        search.fit(X, Y, sensitive_features=SIDE, X_val=X, y_val=Y)
    search.fit(X, Y, sensitive_features=SIDE, X_val=X, y_val=Y, sensitive_features_val=SIDE)
    assert search.best_params_ == {"min_ratio": 1.0}
    assert sklearn.base.clone(search).gap_weight == 3.0
