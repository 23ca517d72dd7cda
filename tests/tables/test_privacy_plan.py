"""The plan of measured slices: rounds, shares of the budget, its price, and the report."""

import dataclasses
import json
import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.special import log_ndtr

from sklearn_dpgen.accounting import BoundedRangeProfile, GaussianProfile, compose_delta
from sklearn_dpgen.tables import _privacy_plan
from sklearn_dpgen.tables._privacy_plan import RELATIONS, SlicesPlan, plan_rounds
from sklearn_dpgen.tables._slices import all_pairs

reproducibly = settings(deadline=None, max_examples=60, derandomize=True)
ROOT = math.sqrt(2)
# Candidates, rounds, and how many of them are selected.
PLANS = [
    (10, (10,), 0),
    (0, (), 0),
    (10, (3, 2), 5),
    (10, (10 - 4, 4), 6),
    (10, (1,) * 10, 9),
    (10, (1,), 1),
    (1, (1,), 0),
    (300, (3,) * 10, 30),
]


def plan_of(candidates, rounds, neighbours="replace_one", epsilon=1.0, delta=1e-5):
    return SlicesPlan(epsilon, delta, neighbours, candidates, rounds)


# Rounds.


@pytest.mark.parametrize(
    ("candidates", "columns", "options", "rounds"),
    [
        (0, 1, {}, ()),
        (105, 15, {}, (105,)),
        (120, 16, {}, (120,)),
        (136, 17, {}, (12,) * 10),
        (4950, 100, {}, (20,) * 10),
        (4950, 100, {"is_adaptive": False}, (4950,)),
        (4950, 100, {"is_adaptive": False, "n_slices": 3, "n_rounds": 3}, (4950,)),
        (10, 5, {"n_slices": 3}, (1, 1, 1)),
        (10, 5, {"n_slices": 9, "n_rounds": 4}, (3, 2, 2, 2)),
        (10, 5, {"n_slices": 10, "n_rounds": 4}, (10,)),
        (10, 5, {"n_slices": 500, "n_rounds": 4}, (10,)),
        (10, 5, {"n_slices": 5, "n_rounds": 1}, (5,)),
        (0, 1, {"n_slices": 5, "n_rounds": 5}, ()),
    ],
)
def test_rounds(candidates, columns, options, rounds):
    found = plan_rounds(candidates, columns, **{"is_adaptive": True} | options)
    assert found == rounds
    assert all(type(count) is int for count in found)


@reproducibly
@given(st.integers(2, 60), st.booleans(), st.integers(1, 2000), st.integers(1, 50))
def test_rounds_are_even_and_add_up(columns, is_adaptive, n_slices, n_rounds):
    candidates = len(all_pairs(columns))
    options = {"is_adaptive": is_adaptive, "n_slices": n_slices, "n_rounds": n_rounds}
    if n_rounds > n_slices:
        with pytest.raises(ValueError, match=f"at most the {n_slices} slices"):
            plan_rounds(candidates, columns, **options)
        return
    rounds = plan_rounds(candidates, columns, **options)
    assert min(rounds) >= 1
    assert max(rounds) - min(rounds) <= 1
    if is_adaptive and n_slices < candidates:
        assert (len(rounds), sum(rounds)) == (n_rounds, n_slices)
    else:
        assert rounds == (candidates,)
    assert (plan_of(candidates, rounds).n_selections > 0) == (sum(rounds) < candidates)


def test_more_rounds_than_slices():
    assert plan_rounds(10, 5, is_adaptive=True, n_slices=4, n_rounds=4) == (1,) * 4
    with pytest.raises(ValueError, match="n_rounds must be at most the 4 slices"):
        plan_rounds(10, 5, is_adaptive=True, n_slices=4, n_rounds=5)
    # Where no choice is to be made, they are no less nonsense.
    for is_adaptive in (True, False):
        with pytest.raises(ValueError, match="n_rounds must be at most the 120 slices"):
            plan_rounds(10, 5, is_adaptive=is_adaptive, n_rounds=10**9)


# Shares.


@pytest.mark.parametrize("neighbours", RELATIONS)
@pytest.mark.parametrize(("candidates", "rounds", "n_selections"), PLANS, ids=str)
def test_shares_of_the_budget(candidates, rounds, n_selections, neighbours):
    plan = plan_of(candidates, rounds, neighbours)
    mechanism = plan.mechanism
    sensitivity = {"replace_one": ROOT, "add_or_remove": 1.0}[neighbours]
    assert plan.n_selections == n_selections == mechanism.n_selections
    assert mechanism.sensitivity == sensitivity
    assert mechanism.n_releases == 1 + len(rounds) + n_selections
    scales = np.array(mechanism.noise_scales)
    squared = (sensitivity / scales) ** 2
    selected = 0.0
    if n_selections:
        assert mechanism.selection.score_range == 2 * sensitivity
        assert mechanism.selection.n_selections == n_selections
        selected = n_selections * mechanism.selection.epsilon0**2 / 4
    else:
        assert mechanism.selection is None
        assert mechanism.score_range is None
    parts = np.array([squared[0], selected, squared[1:].sum()]) / (squared.sum() + selected)
    assert parts.sum() == pytest.approx(1)
    first = _privacy_plan._SINGLES if rounds else 1.0
    second = _privacy_plan._SELECTIONS * (1 - first) if n_selections else 0.0
    expected = [first, second, 1 - first - second]
    np.testing.assert_allclose(parts, expected, atol=1e-6)
    # As much noise in each table of one round as in those of another.
    cells = scales[1:] * np.sqrt(rounds)
    np.testing.assert_allclose(cells, np.full(len(rounds), cells[0] if rounds else 0), rtol=1e-9)


@pytest.mark.parametrize("neighbours", RELATIONS)
def test_a_change_of_scores_moves_the_odds_by_what_is_paid_for(neighbours):
    """Two scores that move apart by the sensitivity each, against the range that was priced."""
    selection = plan_of(10, (3, 2), neighbours).mechanism.selection
    sensitivity = {"replace_one": ROOT, "add_or_remove": 1.0}[neighbours]
    odds = 2 * sensitivity / selection.noise_scale
    assert odds == pytest.approx(selection.epsilon0)
    # A range of a single sensitivity would be too little.
    assert dataclasses.replace(selection, score_range=sensitivity).noise_scale < 2 / odds


# The price.


def spent(plan, n_selections):
    """Return δ at ε of the releases of a plan, with another number of selections."""
    mechanism = plan.mechanism
    releases = [(GaussianProfile(mechanism.sensitivity / s), 1) for s in mechanism.noise_scales]
    if n_selections:
        profile = BoundedRangeProfile(mechanism.selection.epsilon0, n_selections)
        releases.append((profile, 1))
    return compose_delta(releases, plan.epsilon)


@pytest.mark.parametrize("epsilon", [0.2, 1.0, 10.0])
@pytest.mark.parametrize("rounds", [(3, 2), (6, 4), (1,)], ids=str)
def test_the_budget_is_spent(epsilon, rounds):
    plan = plan_of(10, rounds, epsilon=epsilon)
    assert 0.97 * 1e-5 < spent(plan, plan.n_selections) <= 1e-5 * (1 + 1e-6)
    # One selection more than is paid for overspends.
    assert spent(plan, plan.n_selections + 1) > 1.01e-5


@pytest.mark.parametrize("rounds", [(), (10,)], ids=str)
def test_without_selections_the_budget_is_spent_exactly(rounds):
    scales = plan_of(10, rounds).mechanism.noise_scales
    mu = ROOT * math.sqrt(sum(1 / scale**2 for scale in scales))
    upper, lower = log_ndtr(-1 / mu + mu / 2), 1 + log_ndtr(-1 / mu - mu / 2)
    assert math.exp(upper) - math.exp(lower) == pytest.approx(1e-5, rel=1e-6)


def test_what_the_plan_depends_on():
    """All candidates at once need no selections; a stricter relation or budget costs noise."""
    noise = {rounds: plan_of(10, rounds).mechanism.noise_scales[0] for rounds in ((10,), (5,))}
    assert noise[10,] == pytest.approx(noise[5,], rel=0.02)
    one, two = (plan_of(10, (5,), name).mechanism for name in ("add_or_remove", "replace_one"))
    np.testing.assert_allclose(ROOT * np.array(one.noise_scales), two.noise_scales, rtol=1e-9)
    assert two.selection.noise_scale == pytest.approx(ROOT * one.selection.noise_scale)
    tight = plan_of(10, (5,), epsilon=0.5).mechanism
    assert min(np.array(tight.noise_scales) / two.noise_scales) > 1.5
    assert tight.selection.noise_scale > 1.5 * two.selection.noise_scale


def test_without_noise():
    for rounds in ((), (10,), (3, 2)):
        plan = plan_of(10, rounds, epsilon=math.inf)
        assert plan.mechanism.noise_scales == (0.0,) * (1 + len(rounds))
        if plan.n_selections:
            assert plan.mechanism.selection.noise_scale == 0
        report = plan.report()
        assert (report.epsilon, report.delta) == (math.inf, 0.0)
        assert report.noise_multiplier == 0


@pytest.mark.parametrize(
    "options", [{"epsilon": 0.0}, {"epsilon": -1.0}, {"delta": 0.0}, {"delta": 1.0}], ids=str
)
def test_a_budget_that_is_none(options):
    with pytest.raises(ValueError, match="must be"):
        plan_of(10, (5,), **options).mechanism  # noqa: B018


# The report.


@pytest.mark.parametrize("neighbours", RELATIONS)
@pytest.mark.parametrize(("candidates", "rounds", "n_selections"), PLANS, ids=str)
def test_the_report(candidates, rounds, n_selections, neighbours):
    plan = plan_of(candidates, rounds, neighbours, epsilon=2.0)
    report = plan.report(public=("schema",), noise_source="entropy")
    stated = json.loads(report.to_json())
    assert (stated["epsilon"], stated["delta"]) == (2.0, 1e-5)
    assert (report.public, report.noise_source) == (("schema",), "entropy")
    assert "counts of single columns" in report.mechanism
    assert ("slices" in report.mechanism) == (len(rounds) > 0)
    selected = f"{sum(rounds)} of {candidates} slices, selected in {len(rounds)} rounds"
    assert (selected in report.mechanism) == (n_selections > 0)
    assert report.sensitivity == {"replace_one": ROOT, "add_or_remove": 1.0}[neighbours]
    assert {"replace_one": "replace one", "add_or_remove": "add or remove"}[
        neighbours
    ] in report.neighbouring
    is_public = {"replace_one": "is public", "add_or_remove": "is not public"}[neighbours]
    assert is_public in report.neighbouring
    assert report.n_releases == 1 + len(rounds) + n_selections
    assert report.sampling_rate == 1
    assert ("exponential" in report.accountant) == (n_selections > 0)
    assert ("scores" in report.sensitivity_source) == (n_selections > 0)
    assert "floating point" in report.caveats[0]
    # The scales of the noise are those of the mechanism, each of them.
    scales, mechanism = report.noise_scale, plan.mechanism
    if not rounds:
        assert scales == mechanism.noise_scales[0]
        return
    gaussian = [scale for name, scale in scales.items() if name.startswith("release")]
    assert tuple(gaussian) == mechanism.noise_scales
    gumbel = [scale for name, scale in scales.items() if "selection" in name]
    assert gumbel == ([mechanism.selection.noise_scale] if n_selections else [])
    assert len(scales) == len(gaussian) + len(gumbel)
    multiplier = 1 / (report.sensitivity * math.sqrt(sum(1 / s**2 for s in gaussian)))
    assert report.noise_multiplier == pytest.approx(multiplier)
