"""SlicedMeasureSampler: what is let out of the records, what it costs, and that nothing else is."""

import math
from functools import partial

import numpy as np
import pandas as pd
import pytest
from numpy.testing import assert_allclose, assert_array_equal
from scipy.stats import norm
from sliced_tables import (
    ADAPTIVE,
    HIGH,
    SCHEMA,
    Unlike,
    counted_twice,
    exact_delta,
    hasten,
    in_two_leaves,
    levels_forgotten,
    library_delta,
    listen,
    make,
    most,
    replaced,
    table,
    tell_bins,
    tell_counts,
    tell_length,
    tell_order,
    tell_seed,
    weights_as_given,
)

from sklearn_dpgen.schema import Categorical, Schema
from sklearn_dpgen.tables import SlicedMeasureSampler, _selection
from sklearn_dpgen.tables._privacy_plan import _SELECTIONS, _SINGLES, SlicesPlan
from sklearn_dpgen.utils._random import NoiseSource, noise_source

X = table()
LISTED = [("age", "job"), ("day", "pay", "level"), ("pay",)]
WORKLOAD = {"job": 3, ("age", "day"): 0.1}
relations = pytest.mark.parametrize("neighbours", ["replace_one", "add_or_remove"])
hasten = pytest.fixture(autouse=True)(hasten)


# Sensitivities.


def changes(neighbours, row=0, record=HIGH, **options):
    """Return a fit, and how much of it one record changes where the outputs before are equal.

    Returns
    -------
    fit : SimpleNamespace
    vectors : list of float
        The l2 change of each release.
    scores : list of float
        The largest change of a score, and the range of the changes over 2, of all selections.
    """
    frame = X.drop(index=row)
    if neighbours == "replace_one":
        frame = replaced(X, row, record)
    fit = listen(make(neighbours=neighbours, **options), X)
    other = listen(make(neighbours=neighbours, **options), frame, fit.steps)
    vectors, scores = [], []
    for one, two in zip(fit.steps, other.steps, strict=True):
        change = two.value - one.value
        if one.kind == "release":
            vectors.append(np.linalg.norm(change))
        else:
            scores += [np.abs(change).max(), np.ptp(change) / 2]
    return fit, vectors, scores


@relations
@pytest.mark.parametrize("bins", [4, "auto"])
@pytest.mark.parametrize(
    ("options", "kinds"),
    [({"slices": "pairs"}, "rr"), ({"slices": "pairs", "workload": WORKLOAD}, "rr")]
    + [({"slices": LISTED}, "rr"), ({"slices": [("age",)]}, "r")]
    + [(ADAPTIVE, "rsrsr"), (ADAPTIVE | {"workload": WORKLOAD}, "rsrsr")],
    ids=str,
)
def test_the_sensitivity_is_that_of_a_record(neighbours, bins, options, kinds):
    fit, vectors, scores = changes(neighbours, n_bins=bins, **options)
    assert "".join(step.kind[0] for step in fit.steps) == kinds
    assert fit.sampler.privacy_.sensitivity == pytest.approx(most(neighbours))
    # The record that is put in differs in every column, so the bound is attained.
    assert vectors == pytest.approx([most(neighbours)] * len(vectors))
    assert max(scores, default=0) <= most(neighbours) * (1 + 1e-9)
    # Of another record no more than that.
    record = X.loc[9].tolist()
    _, vectors, scores = changes(neighbours, row=4, record=record, n_bins=bins, **options)
    assert max(vectors + scores) <= most(neighbours) * (1 + 1e-9)


@relations
@pytest.mark.parametrize(
    ("breach", "place"),
    [(counted_twice, 1), (in_two_leaves, 0), (levels_forgotten, 0), (weights_as_given, 1)],
)
def test_more_than_is_stated_would_be_seen(monkeypatch, neighbours, breach, place):
    breach(monkeypatch)
    fit, vectors, _ = changes(neighbours, n_bins="auto")
    assert vectors[place] > 1.1 * fit.sampler.privacy_.sensitivity


def test_a_replaced_record_changes_two_cells():
    _, vectors, _ = changes("replace_one")
    forgetful, *_ = changes("add_or_remove")
    assert min(vectors) == pytest.approx(math.sqrt(2) * forgetful.sampler.privacy_.sensitivity)


def opposed(neighbours):
    """Return two neighbours, and single columns by which two scores move apart by all they can.

    Of the tables (a, b) and (c, d) one comes nearer to what is known, the other less near.
    """
    n, size = 60, 40
    low, known = np.zeros((n, 4), dtype=int), np.zeros((4, size))
    other = low.copy()
    if neighbours == "replace_one":
        # All records are known to be in the cell that a record leaves or enters.
        known[:, 1] = n
        low[0, 2:] = other[0, :2] = 1
    else:
        # Counts that lie even, and are known to be in one cell, and the other way round.
        known[:2], known[2:, 0] = n / size, n
        i = np.arange(n)
        low[:, 2:] = np.column_stack([1 + i % 39, 1 + 7 * i % 39])
        other = np.vstack([low, np.zeros((1, 4), dtype=int)])
    schema = Schema({name: Categorical(range(size)) for name in "abcd"})
    frames = [pd.DataFrame(codes, columns=list("abcd")) for codes in (low, other)]
    return schema, frames, known.ravel()


@relations
def test_scores_move_apart_by_what_is_paid_for(neighbours):
    schema, frames, known = opposed(neighbours)
    options = {"schema": schema, "slices": "adaptive", "n_slices": 2, "n_rounds": 1}
    sampler = partial(make, 20.0, neighbours=neighbours, max_iter=100, **options)
    fit = listen(sampler(), frames[0])
    # What is released has half the weight: four columns, and squares that sum to 1.
    fit.steps[0].out = known / 2
    first, second = (listen(sampler(), frame, fit.steps[:1]).steps[1] for frame in frames)
    change = second.value - first.value
    reach = most(neighbours)
    assert fit.mechanism.selection.score_range == pytest.approx(2 * reach)
    assert 0.98 * 2 * reach < np.ptp(change) <= 2 * reach * (1 + 1e-9)
    assert 0.98 * reach < np.abs(change).max() <= reach * (1 + 1e-9)


@relations
def test_scores_that_move_by_more_would_be_seen(monkeypatch, neighbours):
    distances = _selection.scores
    monkeypatch.setattr(_selection, "scores", lambda *args: distances(*args) ** 2)
    _, _, scores = changes(neighbours, n_bins=4, **ADAPTIVE)
    assert max(scores) > 1.1 * most(neighbours)


# The budget.


def spent(fit, neighbours):
    """Return μ of all releases together, ε₀ and the number of selections, by what was drawn."""
    releases = [step.scale for step in fit.steps if step.kind == "release"]
    selections = [step for step in fit.steps if step.kind == "select"]
    mu = most(neighbours) * math.sqrt(sum(1 / scale**2 for scale in releases))
    (scale,) = {step.scale for step in selections}
    return mu, 2 * most(neighbours) / scale, sum(len(step.out) for step in selections)


@relations
@pytest.mark.parametrize(("epsilon", "delta"), [(0.7, 1e-4), (3.0, 1e-6)])
def test_all_pairs_cost_the_budget(neighbours, epsilon, delta):
    fit = listen(make(epsilon, delta=delta, neighbours=neighbours), X)
    report, scales = fit.sampler.privacy_, [step.scale for step in fit.steps]
    assert list(report.noise_scale.values()) == scales
    assert (report.epsilon, report.delta, report.n_releases) == (epsilon, delta, 2)
    mu = most(neighbours) * math.sqrt(sum(1 / scale**2 for scale in scales))
    # Balle and Wang, "Improving the Gaussian mechanism", 2018, theorem 8.
    tails = norm.cdf([mu / 2 - epsilon / mu, -mu / 2 - epsilon / mu])
    assert tails[0] - math.exp(epsilon) * tails[1] == pytest.approx(delta, rel=1e-6)
    assert exact_delta(epsilon, mu) == pytest.approx(delta, rel=1e-3)
    assert fit.sampler.noise_multiplier_ == pytest.approx(1 / mu)
    # What each table cost adds up to the budget.
    slices = fit.sampler.slices_
    costs = [most(neighbours) ** 2 / np.max(part.noise_scale) ** 2 for part in slices]
    assert sum(costs) == pytest.approx(mu**2)
    assert sum(costs[:5]) == pytest.approx(_SINGLES * mu**2)
    assert_allclose(costs[5:], costs[5])


@relations
@pytest.mark.parametrize(("epsilon", "delta"), [(0.7, 1e-4), (3.0, 1e-6)])
def test_selections_and_tables_cost_the_budget(neighbours, epsilon, delta):
    fit = listen(make(epsilon, delta=delta, neighbours=neighbours, **ADAPTIVE), X)
    report, (mu, epsilon0, n) = fit.sampler.privacy_, spent(fit, neighbours)
    # All that was paid for was used.
    assert (n, fit.run._scales, fit.run._selection._n_left) == (3, [], 0)
    assert (report.epsilon, report.delta, report.n_releases) == (epsilon, delta, 6)
    assert report.noise_scale["each of 3 selections"] == fit.steps[1].scale
    assert fit.sampler.noise_multiplier_ == pytest.approx(1 / mu)
    assert 0.995 * delta < exact_delta(epsilon, mu, epsilon0, n) <= delta
    assert 0.7 * delta < library_delta(epsilon, mu, epsilon0, n) <= delta
    # Less noise, one selection more, or half the range: each overspends.
    for broken in ((1.1 * mu, epsilon0, n), (mu, 1.2 * epsilon0, n + 1), (mu, 2 * epsilon0, n)):
        assert exact_delta(epsilon, *broken) > 1.2 * delta
        assert library_delta(epsilon, *broken) > 1.2 * delta
    costs = np.array([(most(neighbours) / s.scale) ** 2 for s in fit.steps if s.kind == "release"])
    total = costs.sum() + n * epsilon0**2 / 4
    rest = (1 - _SINGLES) * (1 - _SELECTIONS)
    # The second round has one table, the first has two.
    assert_allclose(costs / total, [_SINGLES, rest * 2 / 3, rest / 3], rtol=1e-6)


def test_selections_that_were_not_paid_for_are_refused(monkeypatch):
    monkeypatch.setattr(SlicesPlan, "n_selections", property(lambda self: sum(self.rounds) - 1))
    with pytest.raises(RuntimeError, match="selection"):
        make(**ADAPTIVE).fit(X)
    monkeypatch.setattr(SlicesPlan, "n_selections", property(lambda self: 0))
    with pytest.raises(RuntimeError, match="no selection"):
        make(**ADAPTIVE).fit(X)


def test_one_column_has_the_whole_budget():
    age = Schema({"age": SCHEMA["age"]})
    fit = listen(make(schema=age, slices="adaptive", n_bins="auto"), X[["age"]])
    (step,) = fit.steps
    assert exact_delta(1.0, math.sqrt(2) / step.scale) == pytest.approx(1e-5, rel=1e-3)


# Nothing else is let out.


def told(fit):
    """Return all that a fit lets out."""
    sampler = fit.sampler
    parts = [sampler.law_.probabilities, sampler.law_.shares, sampler.loss_curve_]
    parts += [sampler.n_records_, sampler.score(X)]
    for part in sampler.slices_:
        parts += [part.columns, part.counts, part.noise_scale]
    edges = {name: getattr(c, "edges", None) for name, c in sampler.encoder_.columns_.items()}
    return [*parts, edges, sampler.privacy_, sampler.sample(9, random_state=0)]


def equal(first, second):
    if isinstance(first, pd.DataFrame):
        return first.equals(second)
    return np.array_equal(first, second) if isinstance(first, np.ndarray) else first == second


def told_by_the_outputs_alone(neighbours, **options):
    """Whether another table, of which the same is released and selected, gives the same fit."""
    # Where the number of records is not public, it does not show either.
    others = table(60 if neighbours == "replace_one" else 45, seed=5)
    others = others.assign(job=others["job"].where(others["level"] == 1, "pilot"))
    sampler = partial(make, neighbours=neighbours, **options)
    first = listen(sampler(), X)
    try:
        second = listen(sampler(), others, first.steps)
    except Unlike:
        return False
    pairs = zip(first.steps, second.steps, strict=True)
    assert not any(np.array_equal(one.value, two.value) for one, two in pairs)
    return all(map(equal, told(first), told(second)))


@relations
@pytest.mark.parametrize(
    "options",
    [{}, ADAPTIVE, ADAPTIVE | {"n_bins": "auto", "workload": WORKLOAD}, {"slices": LISTED}],
    ids=str,
)
def test_tables_with_equal_outputs_give_equal_fits(neighbours, options):
    assert told_by_the_outputs_alone(neighbours, **options)


@pytest.mark.parametrize(
    ("leak", "options"),
    [(tell_length, {}), (tell_bins, {"n_bins": "auto", "slices": [("age",)]}), (tell_counts, {})]
    + [(tell_order, ADAPTIVE | {"workload": {"job": 3}}), (tell_seed, {})],
)
def test_what_tells_more_would_be_seen(monkeypatch, leak, options):
    assert told_by_the_outputs_alone("add_or_remove", **options)
    leak(monkeypatch)
    assert not told_by_the_outputs_alone("add_or_remove", **options)


def test_the_number_of_records_is_public_under_replacement_alone():
    assert make().fit(X).n_records_ == 60
    assert make(np.inf, neighbours="add_or_remove").fit(X).n_records_ == pytest.approx(60)
    fit = partial(make, 2.0, neighbours="add_or_remove", max_iter=1)
    found = [fit(random_state=seed).fit(table(4000)).n_records_ for seed in range(60)]
    # The totals of the single columns, with the variance of each.
    parts = fit().fit(X).slices_[:5]
    spread = sum(1 / np.sum(p.noise_scale**2 + 0 * p.counts) for p in parts) ** -0.5
    assert abs(np.mean(found) - 4000) < 5 * spread / math.sqrt(60)
    assert abs(np.std(found) / spread - 1) < 5 / math.sqrt(120)


# The noise.


def test_the_noise_is_normal_and_of_the_stated_scale(monkeypatch):
    exact = [part.counts for part in make(np.inf).fit(X).slices_]

    def is_standard():
        fits = [make(random_state=None, max_iter=1).fit(X).slices_ for _ in range(4)]
        pairs = [pair for parts in fits for pair in zip(parts, exact, strict=True)]
        noise = np.concatenate([(p.counts - e).ravel() / p.noise_scale for p, e in pairs])
        pairs = (noise[:-1] * noise[1:]).mean()
        moments = [noise.mean(), ((noise**2).mean() - 1) / math.sqrt(2), pairs]
        return np.abs(moments).max() * math.sqrt(noise.size) < 6

    class Halved(NoiseSource):
        def normal(self, size):
            return super().normal(size) / 2

    class Repeated(NoiseSource):
        def normal(self, size):
            return np.ones(size)

    assert is_standard()
    for broken in (Halved, Repeated):
        monkeypatch.setattr("sklearn_dpgen.utils._base.noise_source", lambda *a, b=broken, **k: b())
        assert not is_standard()


def draws(frame=X, **options):
    return [step.draws for step in listen(make(**(ADAPTIVE | options)), frame).steps]


def unlike(first, second):
    """Whether the noise of every step is another, in all of its entries."""
    pairs = [(a.ravel(), b.ravel()) for a, b in zip(first, second, strict=False)]
    return all(np.abs(a[: b.size] - b[: a.size]).min() > 1e-9 for a, b in pairs)


def test_equal_calls_repeat_their_noise():
    for options in ({}, {"verbose": 0}):
        assert all(map(np.array_equal, draws(), draws(**options)))
    assert not unlike(draws(), draws())


EDGES = [{"age": [0, edge, 100], "pay": 4, "day": 4} for edge in (60, 70)]


@pytest.mark.parametrize(
    ("first", "second"),
    [({}, {"epsilon": 2.0}), ({}, {"delta": 1e-3}), ({}, {"random_state": 1})]
    + [({}, {"neighbours": "add_or_remove"}), ({"n_bins": EDGES[0]}, {"n_bins": EDGES[1]})]
    + [({}, {"n_rounds": 1}), ({}, {"n_slices": 4}), ({}, {"workload": {"job": 2}})]
    + [({}, {"frame": replaced(X, 3, HIGH)}), ({}, {"population_size": 21})]
    # As many cells, of other columns.
    + [({"slices": [("age", "job")]}, {"slices": [("day", "level")]})],
    ids=str,
)
def test_other_calls_have_other_noise(first, second):
    assert unlike(draws(**first), draws(**second))


@pytest.mark.parametrize("is_broken", [False, True])
def test_rounds_and_chosen_slices_have_noise_of_their_own(monkeypatch, is_broken):
    """Four equal columns: the vectors of both rounds are equal, and those of all choices."""
    if is_broken:
        keyed = SlicedMeasureSampler._noise

        def by_vector(self, seed, *parts):
            return keyed(self, seed, *(part for part in parts if part.dtype == np.float64))

        monkeypatch.setattr(SlicedMeasureSampler, "_noise", by_vector)
    schema = Schema({name: Categorical(range(3)) for name in "abcd"})
    frame = pd.DataFrame(dict.fromkeys("abcd", np.arange(60) % 3))
    sampler = partial(make, schema=schema, slices="adaptive", n_slices=2, n_rounds=2)
    fit = listen(sampler(), frame)
    one, two = fit.steps[2], fit.steps[4]
    assert_array_equal(one.value, two.value)
    fit.steps[1].out = (fit.steps[1].out + 1) % 6
    other = listen(sampler(), frame, fit.steps[:2]).steps[2]
    assert_array_equal(one.value, other.value)
    for step in (two, other):
        assert unlike([one.draws], [step.draws]) is not is_broken


def test_noise_has_a_source_of_its_own(monkeypatch):
    np.random.seed(0)  # noqa: NPY002
    before, seeds = np.random.get_state()[1].copy(), []  # noqa: NPY002

    def watch(seed=None, *, context=()):
        seeds.append(seed)
        return noise_source(seed, context=context)

    for module in ("tables._sliced_measure_sampler", "utils._base"):
        monkeypatch.setattr(f"sklearn_dpgen.{module}.noise_source", watch)
    make(random_state=None, **ADAPTIVE).fit(X).sample(4)
    assert set(seeds) == {None}
    # Of the report, three releases and two rounds of selections.
    assert len(seeds) == 6
    seeds.clear()
    make(random_state=3, **ADAPTIVE).fit(X)
    assert None not in seeds
    assert_array_equal(before, np.random.get_state()[1])  # noqa: NPY002
