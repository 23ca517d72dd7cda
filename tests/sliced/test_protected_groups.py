"""Fits that protect the group of a record: it may change, and no size of a group is public."""

import itertools
import warnings

import numpy as np
import pandas as pd
import pytest
import torch
from numpy.testing import assert_array_equal

from sklearn_dpgen.domains import Ball
from sklearn_dpgen.exceptions import NoisyGradientsWarning
from sklearn_dpgen.sliced import parity_penalty_sensitivity
from sklearn_dpgen.sliced._objective import FairObjective
from sklearn_dpgen.sliced._strata import Strata, StratifiedRecords, protected_strata
from sklearn_dpgen.utils._random import NoiseSource

FAIR = ["regressor", "classifier", "encoder"]
RADIUS, CLIP = 0.7, 0.3

# The gradient on the line: all neighbours of small batches.


def objective_of(k, n_groups, n_labels=None, **options):
    strata = protected_strata(k, n_groups, n_labels)
    ball = Ball(RADIUS, center=[0.0])
    return FairObjective(
        alpha=1.0, strata=strata, task_clip=1.0, jacobian_clip=CLIP, ball=ball, **options
    )


def slopes(objective, codes, values):
    """Return the gradients in the outputs of many batches, which are rows of ``values``."""
    batch = objective.of_batch(torch.as_tensor(codes))
    lines = torch.eye(len(values), dtype=torch.float64)
    return batch._output_gradient(values.t().contiguous(), None, lines).t() * len(values)


def largest_move(objective, k, values=(-RADIUS, RADIUS)):
    """Return the largest change of the gradient over all neighbours of all batches of k records.

    The Jacobians of all records are free, and have norm CLIP.
    """
    n_cells, n_values, worst = len(objective.strata.cells), len(values), 0.0
    grid = torch.tensor(list(itertools.product(values, repeat=k)), dtype=torch.float64)
    found = torch.stack(
        [slopes(objective, codes, grid) for codes in itertools.product(range(n_cells), repeat=k)]
    )
    found = found.reshape(*[n_cells] * k, *[n_values] * k, k)
    for record in range(k):
        # The first axis is what the record may be replaced by, the last are all records.
        sides = found.movedim((record, k + record), (0, 1)).flatten(0, 1)
        others = [position for position in range(k) if position != record]
        for one, other in itertools.combinations_with_replacement(sides, 2):
            change = (one - other)[..., others].abs().sum(-1)
            change += one[..., record].abs() + other[..., record].abs()
            worst = max(worst, change.max().item())
    return CLIP * worst


def bound(k, n_groups, n_labels=1):
    return parity_penalty_sensitivity(
        k, n_groups, radius=RADIUS, clip=CLIP, n_labels=n_labels, protect_groups=True
    )


@pytest.mark.parametrize("k", [2, 3, 4, 5, pytest.param(6, marks=pytest.mark.slow)])
def test_the_bound_of_two_groups_is_exact(k):
    inside = () if k == 5 else (RADIUS / 3,)
    worst = largest_move(objective_of(k, 2), k, (-RADIUS, *inside, RADIUS))
    assert worst == pytest.approx(32 * RADIUS * CLIP * (k - 1) / k**2, rel=1e-9)
    assert bound(k, 2) == pytest.approx(worst, rel=1e-9)


@pytest.mark.parametrize(
    ("k", "times"), [(3, 8), (4, 10), pytest.param(5, 12, marks=pytest.mark.slow)]
)
def test_the_bound_of_three_groups_is_not_exceeded(k, times):
    # Units of one distance of equal weight; the bound has 16 for every k.
    unit = 2 * RADIUS * CLIP / k
    assert largest_move(objective_of(k, 3), k) == pytest.approx(times * unit, rel=1e-9)
    assert bound(k, 3) == pytest.approx(16 * unit, rel=1e-12)


@pytest.mark.parametrize("m", [2, 5, 40])
def test_the_bound_of_three_groups_is_nearly_exact(m):
    """The third group has half of its records at each end, the first is at M, the second at -M.

    In the first group the record is the lowest of its equals, in the second the highest.
    """
    k = 3 * m - 1
    high, low, half = [RADIUS] * (m - 1), [-RADIUS] * (m - 1), [-RADIUS] * (m // 2)
    third, others = half + [RADIUS] * (m - m // 2), [0] * (m - 1) + [1] * (m - 1) + [2] * m
    # Equals are ranked in the order of positions.
    before = torch.tensor([[RADIUS, *high, *low, *third]], dtype=torch.float64)
    after = torch.tensor([[*high, *low, *third, -RADIUS]], dtype=torch.float64)
    one = slopes(objective_of(k, 3), [0, *others], before)[0]
    two = slopes(objective_of(k, 3), [*others, 1], after)[0]
    change = CLIP * ((one[1:] - two[:-1]).abs().sum() + one[0].abs() + two[-1].abs()).item()
    assert change == pytest.approx(bound(k, 3) * (1 - 1 / (2 * m)), rel=1e-9)


@pytest.mark.parametrize("k", [3, 4, pytest.param(5, marks=pytest.mark.slow)])
def test_the_bound_with_labels_is_exact(k):
    worst = largest_move(objective_of(k, 2, 2), k)
    assert worst == pytest.approx(32 * RADIUS * CLIP / k, rel=1e-9)
    assert bound(k, 2, 2) == pytest.approx(worst, rel=1e-9)


@pytest.mark.parametrize("k", [2, 3, 4, 5])
def test_the_bound_of_a_distance_to_a_distribution(k):
    def reference(n):
        # The same points on all lines; half of them at each end.
        return np.tile(RADIUS * np.sign(np.arange(n) - n // 2 + 0.5)[:, None], (1, 2**n))

    objective = objective_of(k, 2, reference=reference)
    worst = largest_move(objective, k)
    (paid,) = objective.sensitivities([k])
    assert paid == pytest.approx(16 * RADIUS * CLIP / k)
    # It is attained up to a factor that is the share of the other records.
    assert worst == pytest.approx(paid * (k - 1) / k, rel=1e-9)


@pytest.mark.parametrize(("n_groups", "n_labels"), [(2, 1), (3, 1), (4, 1), (2, 2), (3, 3)])
@pytest.mark.parametrize("d", [1, pytest.param(3, marks=pytest.mark.slow)])
def test_a_search_in_larger_batches_never_exceeds_the_bound(n_groups, n_labels, d):
    rng = np.random.default_rng(10 * n_groups + n_labels + d)
    worst = 0.0
    for trial in range(150):
        k = int(rng.integers(7, 30))
        objective = objective_of(k, n_groups, None if n_labels == 1 else n_labels)
        n_cells = len(objective.strata.cells)
        codes = rng.choice(n_cells, size=k, p=rng.dirichlet(np.full(n_cells, rng.choice([0.3, 3]))))
        U = rng.normal(size=(k, d))
        if trial % 2:
            U = np.sign(U[:, :1]) * np.eye(d)[0] if trial % 4 == 1 else np.sign(U)
        U *= RADIUS / np.maximum(np.linalg.norm(U, axis=1, keepdims=True), RADIUS)
        directions = torch.linalg.qr(torch.from_numpy(rng.normal(size=(d, d))))[0]
        record, gradients = rng.integers(k), []
        for _ in range(2):
            batch = objective.of_batch(torch.from_numpy(codes.copy()))
            gradients.append(batch._output_gradient(torch.from_numpy(U.copy()), None, directions))
            codes[record] = rng.integers(n_cells)
            U[record] *= rng.choice([-1, 1])
        change = (gradients[0] - gradients[1]).norm(dim=1)
        change[record] = sum(g[record].norm() for g in gradients)
        worst = max(worst, CLIP * change.sum().item() / bound(k, n_groups, n_labels))
    assert 0.1 < worst <= 1 + 1e-9


# Fits: neighbours of any group.

CASES = {
    "classifier": ("classifier", {"classes": [0, 1]}),
    "odds": ("classifier", {"classes": [0, 1], "penalty": "equalized_odds"}),
    "three classes": ("classifier", {"classes": [0, 1, 2]}),
    "regressor": ("regressor", {}),
    "several outputs": ("regressor", {"y_domain": Ball(1.0, n_features=2)}),
    "encoder": ("encoder", {}),
    "free codes": ("encoder", {"code_law": "free"}),
    "penalty alone": ("regressor", {"alpha": 1.0}),
}
SCALES = (0.0, 0.3, 1.0, 10.0, 1e4)
MAGNITUDES = (0.0, 1e-3, 1.0, 1e4, 1e9, 1.7e308)
SMALL_CLIPS = {"gradient__task_clip": 0.3, "gradient__jacobian_clip": 0.2}
LOGIT = 12.0


def columns_of(name, n, n_groups, rng):
    """Return a table whose groups have random sizes, which may be zero."""
    kind, options = CASES[name]
    columns = {"X": rng.normal(size=(n, 3)) * 10 ** rng.uniform(-1, 2)}
    if kind == "classifier":
        columns["y"] = rng.integers(len(options["classes"]), size=n)
    if kind == "regressor":
        columns["y"] = rng.normal(size=(n, 2 if "y_domain" in options else 1))
    groups = rng.choice(n_groups, size=n, p=rng.dirichlet(np.ones(n_groups)))
    return columns | {"sensitive_features": groups}


def neighbour_of(columns, n_groups, rng):
    columns = {name: column.copy() for name, column in columns.items()}
    X, row = columns["X"], rng.integers(len(columns["X"]))
    X[row] = rng.choice(MAGNITUDES, size=3) * rng.uniform(-1, 1, size=3)
    columns["sensitive_features"][row] = rng.integers(n_groups)
    if "y" in columns:
        columns["y"][row] = rng.permutation(columns["y"])[0]
    return columns


def protected(tiny, name, n_groups=2, **options):
    kind, own = CASES[name]
    groups = {"protect_groups": True, "groups": range(n_groups)}
    return tiny(kind, epsilon=np.inf, **{**SMALL_CLIPS, **groups, **own, **options})


@pytest.mark.parametrize("n_groups", [2, pytest.param(3, marks=pytest.mark.slow)])
@pytest.mark.parametrize("name", CASES)
def test_a_record_of_any_group_moves_the_gradient_by_at_most_the_sensitivity(
    tiny, probe, name, n_groups
):
    rng, worst = np.random.default_rng(0), 0.0
    estimator = protected(tiny, name, n_groups)
    for _ in range(3):
        columns = columns_of(name, 9, n_groups, rng)
        base = probe(estimator.fit, **columns, scales=SCALES)
        for _ in range(8):
            neighbour = neighbour_of(columns, n_groups, rng)
            other = probe(estimator.fit, **neighbour, scales=SCALES)
            change = np.linalg.norm(other.gradients - base.gradients, axis=1).max()
            worst = max(worst, change / base.mechanism.sensitivity)
    assert 0.05 < worst <= 1 + 1e-9


def worst_neighbours(tiny, probe, sizes, n_others=0, **options):
    """Return the change of the gradient over its price, for the worst neighbours of two groups.

    Batches hold the records of the given sizes; others in the table are of both groups alike.

    One feature decides the outputs, which are 1 in the first group and 0 in the second, the other
    the Jacobians, opposite for the record and all others. The record, with the label 0, leaves the
    first group and enters the second with the label 1.
    """
    k = sum(sizes)
    groups = np.concatenate([np.repeat([0, 1], sizes), np.arange(n_others) % 2])
    part = {"gradient__batch_fraction": k / len(groups)}
    classifier = protected(
        tiny, "classifier", alpha=0.6, training__hidden_layer_sizes=(), **part, **options
    )
    rows = {"y": np.zeros(len(groups), dtype=int), "sensitive_features": groups}
    rows["rows"] = [np.arange(k)]
    linear = probe(classifier.fit, np.zeros((len(groups), 2)), **rows).module[0][0]
    w, b = linear.weight.detach().numpy()[0], linear.bias.item()
    along, across = w / (w @ w), np.array([-w[1], w[0]]) / np.linalg.norm(w)
    gradients = []
    for group in (0, 1):
        groups[0] = rows["y"][0] = group
        side = np.where(np.arange(len(groups)) == 0, -1e9, 1e9)
        logits = np.where(groups == 0, LOGIT, -LOGIT) - b
        result = probe(classifier.fit, np.outer(logits, along) + np.outer(side, across), **rows)
        gradients.append(result.gradients[0])
    return np.linalg.norm(gradients[0] - gradients[1]) / result.mechanism.sensitivity


SIZES = [(8, 8), (1, 15), (15, 1), (2, 3), (16, 0)]


@pytest.mark.parametrize("sizes", SIZES)
def test_the_sensitivity_is_attained_whatever_the_sizes(tiny, probe, sizes):
    assert 1 - 1e-4 < worst_neighbours(tiny, probe, sizes) <= 1 + 1e-9


ORIGINAL = FairObjective.sensitivities


def price_of_the_table(self, batch_sizes):
    return ORIGINAL(self, self.strata.sizes)


OF_BATCH = Strata.of_batch


def halves(self, counts):
    """Take the groups of a batch to have the shares that they have in the table."""
    return OF_BATCH(self, [sum(counts) / 2] * 2)


@pytest.mark.parametrize("sizes", [(4, 4), (1, 7), (7, 1), (8, 0)])
def test_a_batch_is_weighted_and_priced_by_itself(tiny, probe, sizes):
    assert 1 - 1e-4 < worst_neighbours(tiny, probe, sizes, n_others=32) <= 1 + 1e-9


@pytest.mark.parametrize(
    ("sizes", "broken"),
    [
        ((4, 4), (FairObjective, "sensitivities", price_of_the_table)),
        ((2, 6), (Strata, "of_batch", halves)),
    ],
    ids=["price", "weights"],
)
def test_weights_and_prices_of_the_table_are_caught(tiny, probe, monkeypatch, sizes, broken):
    monkeypatch.setattr(*broken)
    assert worst_neighbours(tiny, probe, sizes, n_others=32) > 1.2


def test_outputs_beyond_their_bound_are_projected(tiny, probe, monkeypatch):
    """Outputs are in [0, 1], and those that are compared in [0.4, 0.6]."""
    options = {"gradient__output_bound": 0.1}
    tight = worst_neighbours(tiny, probe, (8, 8), **options)
    assert 1 - 1e-4 < tight <= 1 + 1e-9
    monkeypatch.setattr(Ball, "project", lambda self, points: points)
    assert worst_neighbours(tiny, probe, (8, 8), **options) > 1.2


def test_the_price_of_several_outputs_is_that_of_one_direction(tiny):
    """The spread of directions is in the bound of public sizes alone."""
    given = {"radius": RADIUS, "clip": CLIP, "protect_groups": True}
    wide = parity_penalty_sensitivity(9, 3, spread=0.3, **given)
    assert wide == pytest.approx(32 * RADIUS * CLIP / 9)
    # Probabilities of three classes are in a ball of radius sqrt(2/3).
    fair, price = protected(tiny, "three classes", 3, alpha=1.0), 32 * np.sqrt(2 / 3) * 0.2 / 9
    assert fair.plan(9, 4).sensitivity == pytest.approx(price, rel=1e-6)
    fair.set_params(protect_groups=False)
    assert fair.plan(9, 4, group_sizes=[3, 3, 3]).sensitivity < 0.7 * price


def task_sensitivity(self, batch_sizes):
    return [(1 - self.alpha) * 2 * self.task_clip / batch_sizes[0]]


def penalty_sensitivity(self, batch_sizes):
    return [ORIGINAL(self, batch_sizes)[0] - task_sensitivity(self, batch_sizes)[0]]


def without_changed_weights(self, batch_sizes):
    """What one record pays where sizes are public, for two groups of one size."""
    (penalty,) = penalty_sensitivity(self, batch_sizes)
    return [task_sensitivity(self, batch_sizes)[0] + penalty / 2]


def without_one_term(self, batch_sizes):
    """Without the record's own term in one of the groups, if they have one size."""
    (penalty,) = penalty_sensitivity(self, batch_sizes)
    return [task_sensitivity(self, batch_sizes)[0] + penalty * 3 / 4]


@pytest.mark.parametrize(
    "broken", [task_sensitivity, penalty_sensitivity, without_changed_weights, without_one_term]
)
@pytest.mark.parametrize("sizes", SIZES)
def test_less_than_the_sensitivity_is_exceeded(tiny, probe, monkeypatch, broken, sizes):
    monkeypatch.setattr(FairObjective, "sensitivities", broken)
    assert worst_neighbours(tiny, probe, sizes) > 1 + 1e-3


def equal_weights(self):
    """The mean over the pairs, for two groups."""
    return [1.0]


@pytest.mark.parametrize("sizes", [(2, 14), (14, 2)])
def test_weights_that_ignore_the_sizes_are_caught(tiny, probe, monkeypatch, sizes):
    monkeypatch.setattr(Strata, "protected_weights", equal_weights)
    assert worst_neighbours(tiny, probe, sizes) > 1.5


def of_occurring_groups(self):
    """Count the groups that a batch has, in place of the declared ones."""
    occurring = sum(size > 0 for size in self.sizes)
    return [
        2 * min(self.sizes[one], self.sizes[other]) / ((occurring - 1) * sum(self.sizes))
        for one, other in self.pairs
    ]


def by_product(self):
    """Weight all pairs by size: the sensitivity of three groups is half as large again."""
    return self.pair_weights("size")


@pytest.mark.parametrize("broken", [None, of_occurring_groups])
def test_weights_count_the_declared_groups(monkeypatch, broken):
    """The only record of the third group enters the first."""
    if broken:
        monkeypatch.setattr(Strata, "protected_weights", broken)
    k, gradients = 41, []
    values = RADIUS * torch.tensor([[1.0] * 20 + [-1.0] * 20 + [1.0]], dtype=torch.float64)
    for own in (2, 0):
        codes = [0] * 20 + [1] * 20 + [own]
        gradients.append(slopes(objective_of(k, 3), codes, values)[0])
    change = (gradients[0] - gradients[1])[:-1].abs().sum() + sum(g[-1].abs() for g in gradients)
    assert (CLIP * change.item() <= bound(k, 3)) == (broken is None)


@pytest.mark.parametrize("broken", [None, by_product])
def test_products_of_shares_would_cost_more_with_labels(monkeypatch, broken):
    """The only record of a group within one label becomes that within another."""
    if broken:
        monkeypatch.setattr(Strata, "protected_weights", broken)
    k, gradients = 41, []
    values = RADIUS * torch.tensor([[-1.0] * 40 + [1.0]], dtype=torch.float64)
    for own in (1, 3):
        codes = [0] * 20 + [2] * 20 + [own]
        gradients.append(slopes(objective_of(k, 2, 2), codes, values)[0])
    change = (gradients[0] - gradients[1])[:-1].abs().sum() + sum(g[-1].abs() for g in gradients)
    assert (CLIP * change.item() <= bound(k, 2, 2) * (1 + 1e-9)) == (broken is None)


# What is compared is what is compared where sizes are public.


@pytest.mark.parametrize("even", [True, False])
@pytest.mark.parametrize("name", [name for name in CASES if name != "encoder"])
def test_on_the_whole_table_the_gradient_is_that_of_public_sizes(tiny, probe, name, even):
    """Of groups of any sizes, and of groups and labels of one size: the objective of the paper."""
    rng = np.random.default_rng(1)
    columns = columns_of(name, 40, 2, rng)
    columns["sensitive_features"] = np.arange(40) % 2 if even else np.arange(40) % 5 // 3
    if name == "odds":
        columns["y"] = np.arange(40) // 2 % 2
    found = [
        probe(protected(tiny, name, protect_groups=flag).fit, **columns, scales=SCALES).gradients
        for flag in (True, False)
    ]
    assert abs(found[0]).max() > 1e-3
    is_same = np.allclose(*found, rtol=1e-9, atol=1e-12)
    assert is_same == (even or name != "odds")


def test_without_a_penalty_a_group_changes_nothing(tiny, table, parameters_of):
    fits = [
        table.train(tiny("classifier", alpha=0.0, groups=["a", "b"], protect_groups=True), **groups)
        for groups in ({}, {"sensitive_features": np.roll(table.groups, 1)})
    ]
    # Seeded noise depends on the groups, its size does not.
    assert fits[0].privacy_ == fits[1].privacy_
    assert fits[0].privacy_.sensitivity == pytest.approx(2 / 41)


# Batches do not depend on the groups.


def drawn_rows(monkeypatch, tiny, table, groups, **options):
    """Return the rows of all batches, with a source that is not bound to the records."""
    rows, original = [], StratifiedRecords.rows

    def watch(self, drawn, noise):
        rows.append(np.concatenate(original(self, drawn, noise)))
        return rows[-1:] if len(drawn) == 1 else original(self, drawn, noise)

    with monkeypatch.context() as patch:
        patch.setattr(StratifiedRecords, "rows", watch)
        patch.setattr(NoiseSource, "bind", lambda self, *values: self)
        patch.setattr("sklearn_dpgen.ledger._base.noise_source", lambda *a, **k: NoiseSource(7))
        estimator = tiny(
            "classifier", groups=["a", "b"], gradient__batch_fraction=0.3, delta=1e-2, **options
        )
        table.train(estimator, sensitive_features=groups)
    return estimator, np.array(rows)


@pytest.mark.parametrize("protect", [True, False])
def test_batches_are_drawn_from_all_records_alike(monkeypatch, tiny, table, protect):
    moved = table.groups.copy()
    moved[5] = "b" if moved[5] == "a" else "a"
    (one, first), (other, second) = (
        drawn_rows(monkeypatch, tiny, table, groups, protect_groups=protect)
        for groups in (table.groups, moved)
    )
    strata = [[(s.size, s.batch_size) for s in fit.mechanism_.strata] for fit in (one, other)]
    assert (strata == [[(41, 12)]] * 2) == protect
    # A mechanism that draws from each group is caught.
    assert np.array_equal(first, second) == protect


@pytest.mark.parametrize("bound", [True, False])
@pytest.mark.parametrize("kind", FAIR)
def test_seeded_draws_depend_on_the_groups(monkeypatch, tiny, table, kind, bound):
    """Also the first batch, before anything was released; later ones depend on releases too."""
    moved, seen, original = table.groups.copy(), [], StratifiedRecords.rows
    moved[5] = "b" if moved[5] == "a" else "a"
    estimator = tiny(kind, groups=["a", "b"], protect_groups=True, gradient__batch_fraction=0.3)
    if not bound:
        source = type(estimator)._noise_source
        monkeypatch.setattr(
            type(estimator), "_noise_source", lambda self, seed, *all: source(self, seed, *all[:3])
        )

    def watch(self, drawn, noise):
        rows = original(self, drawn, noise)
        seen.append(rows[0])
        return rows

    monkeypatch.setattr(StratifiedRecords, "rows", watch)
    for groups in (table.groups, moved):
        table.train(estimator.set_params(delta=1e-2), sensitive_features=groups)
    assert np.array_equal(seen[0], seen[len(seen) // 2]) != bound


@pytest.mark.parametrize("kind", FAIR)
def test_nothing_but_the_number_of_records_enters_the_report(tiny, table, kind):
    estimator = tiny(kind, protect_groups=True, groups=["a", "b", "c"])
    reports, divisions = [], (["a"] * 41, ["a"] * 40 + ["c"], table.groups)
    with warnings.catch_warnings():
        warnings.simplefilter("error", UserWarning)
        warnings.simplefilter("ignore", NoisyGradientsWarning)
        for groups in divisions:
            reports.append(table.train(estimator, sensitive_features=groups).privacy_)
        planned = estimator.plan(41, 3)
    assert reports == [planned] * 3
    assert planned.neighbouring == "replace one record; the number of records is public"
    assert planned.shared == ()
    assert "group_membership" not in planned.caveats
    assert {"group_sizes", "group_set"}.isdisjoint(planned.public)
    # Where sizes are public, they enter it, and a missing group is reported.
    estimator.set_params(protect_groups=False)
    with pytest.warns(UserWarning, match="no pair of groups"):
        table.train(estimator, sensitive_features=divisions[0])
    assert table.train(estimator, sensitive_features=table.groups).privacy_ != planned


@pytest.mark.parametrize(
    ("options", "protects"),
    [
        ({"max_gap": 0.1}, True),
        ({"max_gap": 0.1, "groups": None}, False),
        ({"max_gap": 0.1, "protect_groups": False}, False),
        ({"alpha": 0.5}, False),
        ({"alpha": 0.0}, False),
    ],
)
@pytest.mark.filterwarnings("ignore:The fit misses:sklearn.exceptions.ConvergenceWarning")
@pytest.mark.parametrize("kind", ["classifier", "regressor"])
def test_groups_are_protected_by_default_where_it_adds_no_noise(
    tiny, table, kind, options, protects
):
    options = {"groups": ["a", "b"], "training__hidden_layer_sizes": (), "delta": 1e-2} | options
    fits = [
        table.train(tiny(kind, **options), sensitive_features=groups)
        for groups in (table.groups, np.where(np.arange(41) < 30, "a", "b"))
    ]
    assert [fit.privacy_.shared for fit in fits] == [() if protects else ("group",)] * 2
    if protects:
        public = tiny(kind, **options | {"protect_groups": False}).plan(41, 3, group_sizes=[20, 21])
        assert fits[0].privacy_ == fits[1].privacy_ == fits[0].plan(41, 3)
        assert fits[0].privacy_.noise_scale <= public.noise_scale
        with pytest.raises(ValueError, match="None with protect_groups='auto' and a target"):
            fits[0].plan(41, 3, group_sizes=[20, 21])


def test_labels_are_protected_with_the_groups(tiny, table):
    options = {"penalty": "equalized_odds", "groups": ["a", "b"], "protect_groups": True}
    fit = table.train(tiny("classifier", classes=[0, 1], **options))
    assert fit.privacy_ == fit.plan(41, 3)
    assert {"group_and_label_sizes", "label_set"}.isdisjoint(fit.privacy_.public)
    # A label may be absent, and one group may have it alone.
    lone = fit.fit(table.X, np.arange(41) == 7, sensitive_features=table.groups)
    assert lone.privacy_ == lone.plan(41, 3)
    read = table.train(tiny("classifier", **options))
    assert "label_set" in read.privacy_.public


def test_reference_points_do_not_depend_on_the_groups(tiny, table, monkeypatch):
    drawn, sample = [], Ball.sample

    def watch(self, n_samples, rng):
        drawn.append(sample(self, n_samples, rng))
        return drawn[-1]

    monkeypatch.setattr(Ball, "sample", watch)
    for groups in (table.groups, np.roll(table.groups, 3), ["a"] * 41):
        table.train(
            tiny("encoder", groups=["a", "b"], protect_groups=True), sensitive_features=groups
        )
    first, second, third = np.split(np.array(drawn), 3)
    assert first.shape == (3, 41, 2)
    assert_array_equal(first, second)
    assert_array_equal(first, third)


# Persons, and refusals.


def test_the_rows_of_a_person_may_have_several_groups(tiny, table):
    frame = pd.DataFrame(table.X, columns=list("xyz"))
    frame["who"] = np.arange(41) // 2
    fair = tiny("encoder", groups=["a", "b"], unit="who", protect_groups=True)
    fit = fair.fit(frame, sensitive_features=table.groups)
    assert fit.privacy_ == fair.plan(21, 3)
    assert [(s.size, s.batch_size) for s in fit.mechanism_.strata] == [(21, 21)]
    with pytest.raises(ValueError, match="all rows of a person"):
        fair.set_params(protect_groups=False).fit(frame, sensitive_features=table.groups)


@pytest.mark.parametrize("kind", FAIR)
@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"groups": None}, "groups must be declared with protect_groups=True"),
        (
            {"gradient__group_weights": "equal"},
            "group_weights of gradient must be 'size' with protect_groups=True",
        ),
    ],
)
def test_what_would_reveal_groups_is_refused(tiny, table, kind, options, message):
    fair = tiny(kind, **{"groups": ["a", "b"], "protect_groups": True} | options)
    with pytest.raises(ValueError, match=message):
        table.train(fair)
    with pytest.raises(ValueError, match=message):
        fair.plan(41, 3)
    with pytest.raises(ValueError, match="group_sizes must be None with protect_groups=True"):
        fair.set_params(groups=["a", "b"], gradient__group_weights="size").plan(
            41, 3, group_sizes=[17, 24]
        )
