"""What one record can change in a fit, and what is paid for it."""

from dataclasses import dataclass, field, replace

import numpy as np
import pytest
import torch

from sklearn_dpgen.domains import Ball, Box, OneHot, Product
from sklearn_dpgen.exceptions import TrainingDivergedError
from sklearn_dpgen.nn import Linearization
from sklearn_dpgen.sliced._objective import FairObjective
from sklearn_dpgen.sliced._sensitivity import parity_penalty_sensitivity

KINDS = ["regressor", "classifier", "encoder", "generator"]
OBJECTIVE = "sklearn_dpgen.sliced._objective"
GENERATOR = "sklearn_dpgen.sliced._generator"

# The gradient: neighbours within the sensitivity.

# Multiples of the initial parameters. Zero makes all outputs equal, and 1e4 saturates them.
SCALES = (0.0, 0.3, 1.0, 10.0, 1e4)
MAGNITUDES = (0.0, 1e-3, 1.0, 1e4, 1e9, 1e160, 1.7e308)


@dataclass
class Case:
    """An estimator with a table of 9 records, and how to draw a record of one."""

    kind: str
    options: dict = field(default_factory=dict)
    n_targets: int = 0
    n_labels: int = 0
    n_groups: int = 2
    latents: bool = False

    def table(self, rng):
        """Return columns: features, then targets, labels and groups, or private latents."""
        n = 4 * self.n_groups * max(1, self.n_labels) + 1
        rows = np.arange(n)
        columns = {"X": rng.normal(size=(n, 3)) * 10 ** rng.uniform(-1, 2)}
        if self.n_targets:
            columns["y"] = rng.normal(size=(n, self.n_targets))
        if self.n_labels:
            columns["y"] = rows % self.n_labels
        if self.kind != "generator":
            columns["sensitive_features"] = rows // max(1, self.n_labels) % self.n_groups
        if self.latents:
            columns["latents"] = rng.normal(size=(n - 2, 2))
        return columns

    def neighbour(self, table, rng):
        """Replace a record, by one of the same group, and of the same label if that is public."""
        table = {name: column.copy() for name, column in table.items()}
        if self.latents and rng.integers(2):
            _replace(table["latents"], rng)
            return table
        row = _replace(table["X"], rng)
        if self.n_targets:
            table["y"][row] = rng.normal(size=self.n_targets) * rng.choice([0.1, 1, 1e9])
        if self.n_labels and "odds" not in self.options.get("penalty", ""):
            table["y"][row] = rng.integers(self.n_labels)
        return table


def _replace(X, rng):
    row = rng.integers(len(X))
    X[row] = (rng.choice(MAGNITUDES, size=X.shape[1]) * rng.uniform(-1, 1, size=X.shape[1])) + 0.0
    return row


SMALL_CLIPS = {"task_clip": 0.3, "jacobian_clip": 0.2}
ODDS = {"penalty": "equalized_odds"}
CASES = {
    "regressor": Case("regressor", {}, n_targets=1),
    "several outputs": Case("regressor", {"y_domain": Ball(1.0, n_features=3)}, n_targets=3),
    "box": Case("regressor", {"y_domain": Box([0, 5.0], [1, 9.0])}, n_targets=2),
    "tight outputs": Case("regressor", {"output_bound": 0.05}, n_targets=1),
    "penalty alone": Case("regressor", {"alpha": 1.0}, n_targets=1),
    "task alone": Case("regressor", {"alpha": 0.0}, n_targets=1),
    "classifier": Case("classifier", {"classes": [0, 1]}, n_labels=2),
    "linear classifier": Case(
        "classifier", {"classes": [0, 1], "hidden_layer_sizes": ()}, n_labels=2
    ),
    "three classes": Case("classifier", {"classes": [0, 1, 2]}, n_labels=3),
    "odds": Case("classifier", ODDS, n_labels=2),
    "odds of three classes": Case("classifier", {**ODDS, "jacobian_clip": 0.1}, n_labels=3),
    "three groups": Case("classifier", {"classes": [0, 1]}, n_labels=2, n_groups=3),
    "three groups, odds": Case("classifier", ODDS, n_labels=2, n_groups=3),
    "componentwise": Case("regressor", {"jacobian_clipping": "componentwise"}, n_targets=1),
    "encoder": Case("encoder"),
    "free codes": Case("encoder", {"code_law": "free"}),
    "three groups of codes": Case("encoder", {"code_law": "uniform"}, n_groups=3),
    "wide code": Case("encoder", {"n_components": 4, "alpha": 0.9, "activation": "tanh"}),
    "generator": Case("generator"),
    "private latents": Case("generator", latents=True),
    "coordinate by coordinate": Case(
        "generator", {"jacobian_clipping": "componentwise"}, latents=True
    ),
    # In single precision this box is twice as wide.
    "far domain": Case(
        "generator", {"domain": Box(2.0**30, 2.0**30 + 65, n_features=3)}, latents=True
    ),
    "categories": Case("generator", {"domain": Product([Box(0, 1), OneHot(2)])}, latents=True),
}


def make(tiny, case):
    clips = dict(SMALL_CLIPS)
    if case.kind == "generator":
        clips.pop("task_clip")
    if case.kind == "regressor" and case.n_targets > 1:
        case = replace(
            case, options={"y_domain": Ball(1.0, n_features=case.n_targets)} | case.options
        )
    return tiny(case.kind, epsilon=np.inf, **{**clips, **case.options})


def largest_change(tiny, probe, case, *, n_tables=3, n_neighbours=8, enough=np.inf):
    """Return the largest l2 change of a step's gradient, over what the mechanism has paid for.

    The search ends where it is above ``enough``.
    """
    estimator, rng, worst = make(tiny, case), np.random.default_rng(0), 0.0
    for _ in range(n_tables):
        table = case.table(rng)
        base = probe(estimator.fit, **table, scales=SCALES)
        paid = max(stratum.sensitivity for stratum in base.mechanism.strata)
        assert estimator.privacy_.sensitivity == paid
        for _ in range(n_neighbours):
            other = probe(estimator.fit, **case.neighbour(table, rng), scales=SCALES)
            change = abs(other.gradients - base.gradients)
            if not change.max() < 1e100:
                return np.inf
            worst = max(worst, np.linalg.norm(change, axis=1).max() / paid)
            if worst > enough:
                return worst
    return worst


@pytest.mark.parametrize("name", CASES)
def test_a_record_moves_the_gradient_by_at_most_the_sensitivity(tiny, probe, name):
    assert 0.05 < largest_change(tiny, probe, CASES[name]) <= 1 + 1e-9


# The same search on broken variants.


def without_jacobian_clip(monkeypatch):
    def keep(gram, W, bound, *, clipping="spectral"):
        return W

    monkeypatch.setattr(f"{OBJECTIVE}.clip_weights", keep)
    monkeypatch.setattr(f"{GENERATOR}.clip_weights", keep)


def without_task_clip(monkeypatch):
    monkeypatch.setattr(
        "sklearn_dpgen.nn._jacobian.norm_clip_factors", lambda norms, _: (norms < 1e300).double()
    )


def without_projection(monkeypatch):
    monkeypatch.setattr(Ball, "project", lambda self, X: X)


@pytest.mark.parametrize(
    ("name", "broken"),
    [
        *((name, without_jacobian_clip) for name in CASES if name != "task alone"),
        *(
            (name, without_task_clip)
            for name, case in CASES.items()
            if case.kind != "generator" and name != "penalty alone"
        ),
        ("tight outputs", without_projection),
    ],
)
def test_broken_variants_are_caught(tiny, probe, monkeypatch, name, broken):
    broken(monkeypatch)
    assert largest_change(tiny, probe, CASES[name], enough=1 + 1e-9) > 1 + 1e-9


# A neighbour for which both terms are as large as they can be, and add up.

LOGIT = 12.0
ORIGINAL = FairObjective.sensitivities


def task_sensitivity(self, batch_sizes):
    return [(1 - self.alpha) * 2 * self.task_clip / sum(batch_sizes)] * len(batch_sizes)


def penalty_sensitivity(self, batch_sizes):
    both = ORIGINAL(self, batch_sizes)
    return [a - b for a, b in zip(both, task_sensitivity(self, batch_sizes), strict=True)]


def whole_batch_sensitivity(self, batch_sizes):
    return ORIGINAL(self, [sum(batch_sizes)] * len(batch_sizes))


def three_group_sensitivity(self, batch_sizes):
    # Two groups make one pair; of three, each is in two pairs of three.
    pairs = (*self.strata.pairs, *self.strata.pairs, (-1, -1)) * (len(batch_sizes) == 2)
    return ORIGINAL(replace(self, strata=replace(self.strata, pairs=pairs)), batch_sizes)


def worst_neighbours(tiny, probe, n_groups, penalty):
    """Return the change of the gradient over its stratum's sensitivity, for the worst neighbours.

    Two features: one along the weights decides the outputs, one across them turns the Jacobian.
    The record has output 1 where its group is compared with outputs 0, and the label 0. Replacing
    it turns its Jacobian around.
    """
    n = 8 * n_groups
    groups, labels = np.arange(n) % n_groups, (np.arange(n) >= n // 2).astype(int)
    classifier = tiny(
        "classifier",
        alpha=0.6,
        penalty=penalty,
        classes=[0, 1],
        epsilon=np.inf,
        hidden_layer_sizes=(),
        **SMALL_CLIPS,
    )
    rows = {"y": labels, "sensitive_features": groups}
    linear = probe(classifier.fit, np.zeros((n, 2)), **rows).module[0][0]
    w, b = linear.weight.detach().numpy()[0], linear.bias.item()
    along, across = w / (w @ w), np.array([-w[1], w[0]]) / np.linalg.norm(w)
    logits = np.where(groups == 0, LOGIT, -LOGIT)
    X = (logits - b)[:, None] * along
    gradients = []
    for side in (1e9, -1e9):
        X[0] = (LOGIT - b) * along + side * across
        result = probe(classifier.fit, X, **rows)
        gradients.append(result.gradients[0])
    return np.linalg.norm(gradients[0] - gradients[1]) / result.mechanism.strata[0].sensitivity


@pytest.mark.parametrize("n_groups", [2, 3])
@pytest.mark.parametrize("penalty", ["statistical_parity", "equalized_odds"])
def test_the_sensitivity_is_attained(tiny, probe, monkeypatch, n_groups, penalty):
    ratio = worst_neighbours(tiny, probe, n_groups, penalty)
    assert 1 - 1e-4 < ratio <= 1 + 1e-9
    broken = [task_sensitivity, penalty_sensitivity, whole_batch_sensitivity]
    for sensitivities in broken + [three_group_sensitivity] * (n_groups == 2):
        monkeypatch.setattr(FairObjective, "sensitivities", sensitivities)
        assert worst_neighbours(tiny, probe, n_groups, penalty) > 1 + 1e-3


UNIT = {"jacobian_clip": 1.0, "output_bound": 2.0, "code_law": "uniform"}


def test_the_sensitivity_is_that_of_the_theorem(tiny, table):
    classifier = table.train(tiny("classifier", alpha=0.25, task_clip=3.0, jacobian_clip=0.5))
    # (1 - alpha) 2 C / n + alpha 8 M L / min n_j, with M = 1/2.
    expected = 0.75 * 2 * 3 / 41 + 0.25 * 8 * 0.5 * 0.5 / 17
    assert classifier.privacy_.sensitivity == pytest.approx(expected, rel=1e-12)
    batches = table.train(
        tiny("classifier", alpha=0.25, task_clip=3.0, jacobian_clip=0.5, batch_fraction=0.5)
    )
    expected = 0.75 * 2 * 3 / (8 + 12) + 0.25 * 8 * 0.5 * 0.5 / 8
    assert batches.privacy_.sensitivity == pytest.approx(expected, rel=1e-12)
    generator = table.train(tiny("generator", n_projections=6, jacobian_clip=0.5))
    # 2 D L / n, over the square root of the three features.
    expected = 2 * np.sqrt(3 * 6**2) * 0.5 / 41 / np.sqrt(3)
    assert generator.privacy_.sensitivity == pytest.approx(expected, rel=1e-12)
    encoder = table.train(tiny("encoder", alpha=1.0, n_components=1, **UNIT))
    # 8 M L / n in one of two strata, with M = 2.
    assert encoder.privacy_.sensitivity == pytest.approx(8 * 2 / 17 / 2, rel=1e-12)
    regressor = table.train(tiny("regressor", alpha=1.0, jacobian_clip=1.0))
    expected = parity_penalty_sensitivity(17, 2, radius=1.0, clip=1.0)
    assert regressor.privacy_.sensitivity == pytest.approx(expected, rel=1e-12)


@pytest.mark.parametrize("n_latents", [30, 5])
def test_the_sensitivity_to_a_private_latent_is_that_of_the_theorem(tiny, table, probe, n_latents):
    domain = Box([0.0, -1.0, 2.0], [1.0, 1.0, 6.0])
    generator = tiny("generator", domain=domain, jacobian_clip=0.5, n_projections=6)
    strata = probe(generator.fit, table.X, latents=table.Y[:n_latents]).mechanism.strata
    # With s = 1/sqrt(3): 4 M L s / n for a record, 4 M L (1 + 1/2 + s^2) / n for a latent.
    radius = np.sqrt(1 + 4 + 16) / 2
    expected = [
        4 * radius * 0.5 / np.sqrt(3) / 41,
        4 * radius * 0.5 * (1.5 + 1 / 3) / n_latents,
    ]
    assert [(s.size, s.batch_size) for s in strata] == [(41, 41), (n_latents, n_latents)]
    assert [s.sensitivity for s in strata] == pytest.approx(expected, rel=1e-12)


# Records that overflow.


def poisoned(table, value):
    table.X[np.flatnonzero(table.groups == "a")[:2]] = value
    return table


@pytest.mark.parametrize("kind", ["regressor", "classifier", "encoder"])
@pytest.mark.parametrize("value", [1e150, -1e300, 1.7e308])
@pytest.mark.parametrize("alpha", [0.0, 0.5, 1.0])
def test_a_record_that_overflows_harms_nothing(tiny, table, parameters_of, kind, value, alpha):
    options = {"alpha": alpha, "epsilon": 10.0, "hidden_layer_sizes": (16, 16)}
    estimator = poisoned(table, value).train(tiny(kind, **options))
    assert np.isfinite(parameters_of(estimator)).all()


def test_without_the_guards_a_record_that_overflows_is_seen(tiny, table, monkeypatch):
    def unguarded(self, W, bound):
        return self._clipped_sum(W, torch.ones(len(W), dtype=torch.bool), bound)

    monkeypatch.setattr(Linearization, "clipped_sum", unguarded)
    monkeypatch.setattr(
        "sklearn_dpgen.nn._jacobian.norm_clip_factors", lambda norms, _: torch.ones_like(norms)
    )
    options = {"alpha": 0.0, "epsilon": 10.0, "hidden_layer_sizes": (16, 16)}
    with pytest.raises(TrainingDivergedError):
        poisoned(table, 1.7e308).train(tiny("regressor", **options))
