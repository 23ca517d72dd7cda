"""The plan of measured marginals: rounds, shares of the budget, its price, and the report."""

import dataclasses
import itertools
import json
import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.special import log_ndtr

from sklearn_dpgen.accounting import Bound, Event, GaussianProfile
from sklearn_dpgen.accounting._composition import compose_delta
from sklearn_dpgen.accounting._selection import BoundedRangeProfile
from sklearn_dpgen.tables import _privacy_plan
from sklearn_dpgen.tables._privacy_plan import CHANGED_CELLS, MarginalsPlan, Round, plan_rounds

reproducibly = settings(deadline=None, max_examples=60, derandomize=True)
ROOT = math.sqrt(2)
SENSITIVITY = {"replace_one": ROOT, "add_or_remove": 1.0}
# An l1 distance of tables changes by one a cell, in either direction.
RANGE = {"replace_one": 4.0, "add_or_remove": 2.0}
PAIRS = tuple(itertools.combinations(range(5), 2))
TRIPLES = tuple(itertools.combinations(range(5), 3))
ALL = (Round(PAIRS, 0.8),)
CHOSEN = (Round(PAIRS, 0.5, 3), Round(PAIRS, 0.3, 2))
MIXED = (Round(PAIRS[:4], 0.2), Round(PAIRS[4:], 0.4, 3), Round(TRIPLES, 0.2, 4))
PLANS = {"none": (), "all": ALL, "chosen": CHOSEN, "mixed": MIXED}
N_SELECTED = {"none": 0, "all": 0, "chosen": 5, "mixed": 7}
plans = pytest.mark.parametrize("name", PLANS)
relations = pytest.mark.parametrize("neighbours", CHANGED_CELLS)


def plan_of(rounds, neighbours="replace_one", epsilon=1.0, delta=1e-5):
    return MarginalsPlan(epsilon, delta, neighbours, rounds)


def rounds_of(n_columns=9, *, marginals="auto", targets=(), n_records=None, noise_scale=5.0):
    options = {"marginals": marginals, "targets": targets, "noise_scale": noise_scale}
    return plan_rounds(n_columns, n_records=n_records, **options)


def number(rounds, size):
    """Return how many tables of so many columns are measured."""
    return sum(part.n_tables for part in rounds if len(part.candidates[0]) == size)


# Rounds.


@reproducibly
@given(
    st.integers(1, 30),
    st.sets(st.integers(0, 29), max_size=3),
    st.none() | st.integers(1, 10**6),
    st.floats(0, 1e4),
)
def test_rounds_are_of_pairs_then_of_interactions(n_columns, targets, n_records, noise_scale):
    targets = sorted(targets & {*range(n_columns)})
    options = {"targets": targets, "n_records": n_records, "noise_scale": noise_scale}
    rounds = rounds_of(n_columns, **options)
    assert bool(rounds) == (n_columns > 1)
    shares = [part.share for part in rounds]
    assert all(share > 0 for share in shares)
    assert sum(shares) < 1
    sizes = []
    for part in rounds:
        assert len({*part.candidates}) == len(part.candidates)
        assert all(list(c) == sorted({*c}) for c in part.candidates)
        found = {len(columns) for columns in part.candidates}
        assert found == {2} or found <= {3, 4, 5, 6, 7}
        size = min(found)
        sizes.append(size)
        assert max(max(columns) for columns in part.candidates) < n_columns
        assert part.n_selected is None or 1 <= part.n_selected <= len(part.candidates)
        # Interactions are those that tell of a target.
        assert not targets or size == 2 or all({*targets} & {*c} for c in part.candidates)
    assert sizes == sorted(sizes)
    if targets and n_columns > 1:
        wanted = [c for c in itertools.combinations(range(n_columns), 2) if {*targets} & {*c}]
        assert list(rounds[0].candidates) == wanted
        assert rounds[0].n_selected is None
    # The same call has the same rounds: they are public.
    assert rounds == rounds_of(n_columns, **options)


@pytest.mark.parametrize("targets", [(), (1,)])
@pytest.mark.parametrize("marginals", ["auto", "pairs"])
def test_few_columns_have_as_much_as_a_pair(targets, marginals):
    """Half of the budget beside one pair, a quarter beside three, and .15 from four columns on."""
    for n_columns, share in ((2, 1 / 2), (3, 1 / 4), (4, 0.15), (9, 0.15)):
        rounds = rounds_of(n_columns, marginals=marginals, targets=targets)
        assert 1 - sum(part.share for part in rounds) == pytest.approx(share)


@pytest.mark.parametrize("targets", [(), (3,), (0, 5)])
def test_more_records_pay_for_more_tables(targets):
    grid = np.geomspace(10, 1e7, 60).astype(int)
    plans = [rounds_of(12, targets=targets, n_records=int(n)) for n in grid]
    triples = [number(rounds, 3) for rounds in plans]
    assert triples[0] == 0 < triples[-1]
    # Of few cells there are three at most, before finer ones are affordable.
    few = [n for n in triples if n <= 3]
    assert sorted(few) == few or max(few) == 3
    assert triples[len(few) :] == sorted(triples[len(few) :])
    for has_triples in (False, True):
        pairs = [number(r, 2) for r in plans if bool(number(r, 3)) == has_triples]
        assert pairs == sorted(pairs)
    n_first = sum(bool({*targets} & {*c}) for c in itertools.combinations(range(12), 2))
    if targets:
        assert number(plans[0], 2) == n_first
    assert n_first < number(plans[-1], 2) == 66
    # Less noise does as much, and a number that is not public is taken to be large.
    assert rounds_of(12, targets=targets, n_records=3000, noise_scale=0.0) != plans[0]
    assert rounds_of(12, targets=targets, n_records=10**9) == rounds_of(12, targets=targets)


def test_pairs_are_selected_where_they_are_many(monkeypatch):
    monkeypatch.setattr(_privacy_plan, "_MOST_PAIRS", 7)
    *chosen, last = rounds_of(6)
    assert [part.n_selected for part in chosen] == [3, 2, 2]
    assert all(part.candidates == chosen[0].candidates for part in chosen)
    assert len(chosen[0].candidates) == 15
    # As much of the budget a table.
    assert len({round(part.share / part.n_selected, 12) for part in chosen}) == 1
    # Subsets of three to six of six columns.
    assert len(last.candidates) == 20 + 15 + 6 + 1
    first, *chosen, _ = rounds_of(6, targets=(2,))
    assert (len(first.candidates), len(chosen[0].candidates)) == (5, 10)


def test_interactions_of_few_columns_have_up_to_seven():
    *_, last = rounds_of(9)
    sizes = np.bincount([len(columns) for columns in last.candidates], minlength=8)
    assert sizes[3:].tolist() == [math.comb(9, size) for size in range(3, 8)]
    *_, last = rounds_of(9, targets=(4,))
    sizes = np.bincount([len(columns) for columns in last.candidates], minlength=8)
    assert sizes[3:].tolist() == [math.comb(8, size - 1) for size in range(3, 8)]
    # Of many columns, as many of four as there is room for.
    *_, last = rounds_of(20, targets=(4,))
    sizes = np.bincount([len(columns) for columns in last.candidates])
    assert sizes[3:].tolist() == [math.comb(19, 2), 1000 - math.comb(19, 2)]


def test_interactions_that_are_many_are_a_public_sample(monkeypatch):
    monkeypatch.setattr(_privacy_plan, "_TRIPLES", 300)
    monkeypatch.setattr(_privacy_plan, "_CANDIDATES", 300)
    monkeypatch.setattr(_privacy_plan, "_ENUMERATED", 3000)
    for targets in ((), (7,)):
        first, second = (rounds_of(40, targets=targets)[-1].candidates for _ in "ab")
        assert first == second
        assert 200 < len(first) <= 300
        assert len({*first}) == len(first)
        assert np.unique(np.ravel(first)).tolist() == list(range(40))


@relations
@plans
def test_a_person_of_several_rows_has_as_many_times_the_noise(name, neighbours):
    one = plan_of(PLANS[name], neighbours).mechanism
    three = MarginalsPlan(1.0, 1e-5, neighbours, PLANS[name], 3).mechanism
    np.testing.assert_allclose(three.noise_scales, 3 * np.array(one.noise_scales), rtol=1e-9)
    costs = [compose_delta(part.releases, 1.0) for part in (one, three)]
    assert costs[0] == pytest.approx(costs[1], rel=1e-6)
    if one.selection is not None:
        assert three.selection.noise_scale == pytest.approx(3 * one.selection.noise_scale)


def test_slices_that_are_asked_for_are_one_round():
    (part,) = rounds_of(5, marginals="pairs", targets=(1,), n_records=10)
    assert (part.candidates, part.n_selected) == (PAIRS, None)
    (listed,) = rounds_of(5, marginals=[(0, 3), (1, 2, 4)], n_records=10)
    assert listed == dataclasses.replace(part, candidates=((0, 3), (1, 2, 4)))
    assert rounds_of(5, marginals=[]) == rounds_of(1) == ()
    assert (ALL[0].n_tables, CHOSEN[0].n_tables) == (10, 3)


# Shares.


@relations
@plans
def test_shares_of_the_budget(name, neighbours):
    rounds, n_selections = PLANS[name], N_SELECTED[name]
    plan = plan_of(rounds, neighbours)
    mechanism = plan.mechanism
    assert plan.n_selections == n_selections == mechanism.n_selections
    assert mechanism.sensitivity == pytest.approx(SENSITIVITY[neighbours])
    assert mechanism.n_releases == 1 + len(rounds) + n_selections
    squared = (SENSITIVITY[neighbours] / np.array(mechanism.noise_scales)) ** 2
    selected = 0.0
    if n_selections:
        assert mechanism.selection.score_range == RANGE[neighbours]
        assert mechanism.selection.n_selections == n_selections
        selected = n_selections * mechanism.selection.epsilon0**2 / 4
    else:
        assert mechanism.selection is None
        assert mechanism.score_range is None
    parts = np.append(squared, selected) / (squared.sum() + selected)
    part = _privacy_plan._SELECTIONS
    shares = [r.share * (1 - part * (r.n_selected is not None)) for r in rounds]
    taken = sum(r.share * part for r in rounds if r.n_selected is not None)
    expected = [1 - sum(r.share for r in rounds), *shares, taken]
    np.testing.assert_allclose(parts, expected, atol=1e-6)
    assert sum(plan.split.values()) == pytest.approx(1)
    assert plan.split["single columns"] == pytest.approx(expected[0])
    assert plan.split.get("selections", 0.0) == pytest.approx(taken)
    for kind, size in (("pairs", 2), ("interactions", 3)):
        given = [s for s, r in zip(shares, rounds, strict=True) if len(r.candidates[0]) == size]
        assert plan.split.get(kind, 0.0) == pytest.approx(sum(given))


@relations
def test_a_change_of_scores_moves_the_odds_by_what_is_paid_for(neighbours):
    """Two scores that move apart by all they can, against the range that was priced."""
    selection = plan_of(CHOSEN, neighbours).mechanism.selection
    odds = RANGE[neighbours] / selection.noise_scale
    assert odds == pytest.approx(selection.epsilon0)
    # Half the range would be too little.
    halved = dataclasses.replace(selection, score_range=RANGE[neighbours] / 2)
    assert RANGE[neighbours] / halved.noise_scale > 1.9 * selection.epsilon0


# The price.


def spent(plan, n_selections):
    """Return δ at ε of the releases of a plan, with another number of selections."""
    mechanism, sensitivity = plan.mechanism, SENSITIVITY[plan.neighbours]
    releases = [(GaussianProfile(sensitivity / s), 1) for s in mechanism.noise_scales]
    if n_selections:
        epsilon0 = RANGE[plan.neighbours] / mechanism.selection.noise_scale
        releases.append((BoundedRangeProfile(epsilon0, n_selections), 1))
    return compose_delta(releases, plan.epsilon)


@relations
@pytest.mark.parametrize("epsilon", [0.2, 1.0, 10.0])
@pytest.mark.parametrize("name", ["chosen", "mixed"])
def test_the_budget_is_spent(name, epsilon, neighbours):
    plan = plan_of(PLANS[name], neighbours, epsilon=epsilon)
    assert 0.97 * 1e-5 < spent(plan, N_SELECTED[name]) <= 1e-5 * (1 + 1e-6)
    # One selection more than is paid for overspends.
    assert spent(plan, N_SELECTED[name] + 1) > 1.01e-5


@pytest.mark.parametrize("rounds", [(), ALL], ids=["none", "all"])
def test_without_selections_the_budget_is_spent_exactly(rounds):
    plan = plan_of(rounds)
    scales = plan.mechanism.noise_scales
    mu = ROOT * math.sqrt(sum(1 / scale**2 for scale in scales))
    upper, lower = log_ndtr(-1 / mu + mu / 2), 1 + log_ndtr(-1 / mu - mu / 2)
    assert math.exp(upper) - math.exp(lower) == pytest.approx(1e-5, rel=1e-6)
    # One vector that had it all.
    assert plan.noise_scale == pytest.approx(ROOT / mu)


def test_what_the_plan_depends_on():
    """Selections cost some noise; a stricter relation or budget costs more."""
    noise = {rounds: plan_of(rounds).mechanism.noise_scales[0] for rounds in (ALL, CHOSEN)}
    assert noise[ALL] == pytest.approx(noise[CHOSEN], rel=0.02)
    one, two = (plan_of(CHOSEN, name).mechanism for name in ("add_or_remove", "replace_one"))
    np.testing.assert_allclose(ROOT * np.array(one.noise_scales), two.noise_scales, rtol=1e-9)
    assert two.selection.noise_scale == pytest.approx(2 * one.selection.noise_scale)
    tight = plan_of(CHOSEN, epsilon=0.5).mechanism
    assert min(np.array(tight.noise_scales) / two.noise_scales) > 1.5
    assert tight.selection.noise_scale > 1.5 * two.selection.noise_scale


@plans
def test_without_noise(name):
    plan = plan_of(PLANS[name], epsilon=math.inf)
    assert plan.mechanism.noise_scales == (0.0,) * (1 + len(PLANS[name]))
    if plan.n_selections:
        assert plan.mechanism.selection.noise_scale == 0
    report = plan.report("Sampler")
    assert (report.epsilon, report.delta) == (math.inf, 0.0)
    assert report.noise_multiplier == 0


@pytest.mark.parametrize(
    "options", [{"epsilon": 0.0}, {"epsilon": -1.0}, {"delta": 0.0}, {"delta": 1.0}], ids=str
)
def test_a_budget_that_is_none(options):
    with pytest.raises(ValueError, match="must be"):
        plan_of(ALL, **options).mechanism  # noqa: B018


# The report.


@relations
@plans
def test_the_report(name, neighbours):
    rounds, n_selections = PLANS[name], N_SELECTED[name]
    plan = plan_of(rounds, neighbours, epsilon=2.0)
    report = plan.report("Sampler", public=("schema",), noise_source="entropy")
    stated = json.loads(report.to_json())
    assert (stated["epsilon"], stated["delta"]) == (2.0, 1e-5)
    assert (report.public, report.noise_source) == (("schema",), "entropy")
    singles, *tables = report.events
    assert singles == Event("column_counts")
    for part, event in zip(rounds, tables, strict=True):
        n, k = len(part.candidates), part.n_selected
        expected = (n, None) if k is None else (k, n)
        assert event == Event("marginal_counts", *expected)
    assert report.sensitivity == pytest.approx(SENSITIVITY[neighbours])
    assert report.neighbours == neighbours
    is_public = {"replace_one": "is public", "add_or_remove": "is not public"}[neighbours]
    assert is_public in report.neighbouring
    assert report.n_releases == 1 + len(rounds) + n_selections
    assert report.sampling_rate == 1
    has_selections = any(isinstance(p, BoundedRangeProfile) for p, _ in report.releases)
    assert has_selections == (n_selections > 0)
    assert (Bound("score_range") in report.bounds) == (n_selections > 0)
    assert report.caveats == ("floating_point",)
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
