"""TableSampler: what is let out of the records, what it costs, and that nothing else is."""

import math
import pickle
from functools import partial

import numpy as np
import pandas as pd
import pytest
from numpy.testing import assert_allclose
from sampler_breaches import (
    counted_twice,
    half_the_range,
    in_two_cells,
    in_two_leaves,
    keep_records,
    last_noise_forgotten,
    levels_forgotten,
    noise_halved,
    read_twice,
    selections_of_one_round,
    selections_without_noise,
    tell_balance,
    tell_bins,
    tell_counts,
    tell_gaps,
    tell_groups,
    tell_length,
    tell_length_by_groups,
    tell_length_by_rounds,
    tell_length_by_the_plan,
    tell_length_by_warnings,
    tell_marginals,
    tell_order,
    tell_seed,
    weights_as_given,
)
from sampler_tables import (
    AUTO,
    HIGH,
    SCHEMA,
    WIDE_HIGH,
    Unlike,
    afford,
    exact_delta,
    hasten,
    law_parts,
    library_delta,
    listen,
    make,
    most,
    most_of_scores,
    replaced,
    table,
    wide,
)
from scipy.stats import norm

from sklearn_dpgen.schema import Categorical, Schema
from sklearn_dpgen.tables import _releases
from sklearn_dpgen.tables._privacy_plan import MarginalsPlan

X, WIDE_X = table(), wide()
LISTED = [("age", "job"), ("day", "pay", "level"), ("pay",)]
WORKLOAD = {"job": 3, ("age", "day"): 0.1}
TARGET = AUTO | {"target": ["job", "z"]}
relations = pytest.mark.parametrize("neighbours", ["replace_one", "add_or_remove"])
hasten = pytest.fixture(autouse=True)(hasten)


def records(options):
    return WIDE_X if "schema" in options else X


def words(options):
    """Return the id of a test: its options, but for schemas and frames."""
    if not isinstance(options, dict):
        return getattr(options, "__name__", str(options))
    return ",".join(
        f"{k}={v}" for k, v in options.items() if isinstance(v, str | int | list | dict)
    )


# Sensitivities.


def changes(neighbours, row=0, record=None, **options):
    """Return a fit, and how much of it one record changes where the outputs before are equal.

    Returns
    -------
    fit : SimpleNamespace
    vectors : list of float
        The l2 change of each release.
    scores : list of float
        The largest change of a score, and the range of the changes over 2, of all selections.
    """
    first = records(options)
    frame = first.drop(index=row)
    if neighbours == "replace_one":
        extreme = HIGH if first is X else WIDE_HIGH
        frame = replaced(first, row, extreme if record is None else record)
    fit = listen(make(neighbours=neighbours, **options), first)
    other = listen(make(neighbours=neighbours, **options), frame, fit.steps)
    # Which tables are asked for, and how finely, follows from what was let out before.
    assert fit.asked == other.asked
    vectors, scores = [], []
    for one, two in zip(fit.steps, other.steps, strict=True):
        change = two.value - one.value
        if one.kind == "release":
            vectors.append(np.linalg.norm(change))
        else:
            scores += [np.abs(change).max(), np.ptp(change) / 2]
    return fit, vectors, scores


KINDS = [
    ({"marginals": "pairs"}, "rr"),
    ({"marginals": "pairs", "workload": WORKLOAD}, "rr"),
    ({"marginals": LISTED}, "rr"),
    ({"marginals": [("age",)]}, "r"),
    # Three rounds of pairs, and one of triples.
    (AUTO, "rsrsrsrsr"),
    (AUTO | {"workload": WORKLOAD}, "rsrsrsrsr"),
    (AUTO | {"store": "none"}, "rsrsrsrsr"),
    # First all pairs of the targets.
    (TARGET, "rrsrsrsrsr"),
]


@pytest.mark.slow
@relations
@pytest.mark.parametrize("bins", [4, "auto"])
@pytest.mark.parametrize(("options", "kinds"), KINDS, ids=words)
def test_the_sensitivity_is_that_of_a_record(monkeypatch, neighbours, bins, options, kinds):
    afford(monkeypatch)
    fit, vectors, scores = changes(neighbours, n_bins=bins, **options)
    assert "".join(step.kind[0] for step in fit.steps) == kinds
    assert fit.sampler.privacy_.sensitivity == pytest.approx(most(neighbours))
    # The record that is put in differs in every column, so the bound is attained.
    assert vectors == pytest.approx([most(neighbours)] * len(vectors))
    assert max(scores, default=0) <= most_of_scores(neighbours) * (1 + 1e-9)
    # Of another record no more than that.
    record = records(options).loc[9].tolist()
    _, vectors, scores = changes(neighbours, row=4, record=record, n_bins=bins, **options)
    assert max(vectors) <= most(neighbours) * (1 + 1e-9)
    assert max(scores, default=0) <= most_of_scores(neighbours) * (1 + 1e-9)


@pytest.mark.slow
@relations
@pytest.mark.parametrize(
    ("breach", "place"),
    [(counted_twice, -1), (in_two_cells, -1), (in_two_leaves, 0), (levels_forgotten, 0)]
    + [(weights_as_given, -1), (read_twice, 0), (read_twice, -1)],
)
def test_more_than_is_stated_would_be_seen(monkeypatch, neighbours, breach, place):
    for options in ({"marginals": "pairs"}, AUTO, AUTO | {"store": "none"}):
        with monkeypatch.context() as patch:
            afford(patch)
            breach(patch)
            _, vectors, _ = changes(neighbours, n_bins="auto", **options)
        assert vectors[place] > 1.1 * most(neighbours)


def test_a_replaced_record_changes_two_cells():
    _, vectors, _ = changes("replace_one")
    forgetful, *_ = changes("add_or_remove")
    assert min(vectors) == pytest.approx(math.sqrt(2) * forgetful.sampler.privacy_.sensitivity)


def opposed(neighbours):
    """Return a schema and two neighbours of which two scores move apart by all they can.

    Columns a and b are equal, c and d are not: a record moves, or comes in, from a cell with too
    many to one with too few of the table of a and b, and the other way round of that of c and d.
    """
    a = np.arange(400) % 2
    codes = np.column_stack([a, a, a, 1 - a])
    codes = np.insert(codes, 0, [0, 0, 0, 0], axis=0)
    other = codes.copy()
    other[0] = [0, 1, 0, 1]
    first = codes if neighbours == "replace_one" else codes[1:]
    schema = Schema({name: Categorical(range(2)) for name in "abcd"})
    return schema, [pd.DataFrame(part, columns=list("abcd")) for part in (first, other)]


@relations
def test_scores_move_apart_by_what_is_paid_for(neighbours):
    schema, frames = opposed(neighbours)
    sampler = partial(make, schema=schema, marginals="auto", neighbours=neighbours)
    fit = listen(sampler(), frames[0])
    first, second = (listen(sampler(), frame, fit.steps[:1]).steps[1] for frame in frames)
    change, reach = second.value - first.value, most_of_scores(neighbours)
    assert np.ptp(change) == pytest.approx(2 * reach)
    assert np.abs(change).max() == pytest.approx(reach)


SCORES = {
    "squares": lambda score, t, e, w, s: score(t, e, w, s) ** 2,
    "of the scale of the noise": lambda score, t, e, w, s: score(t, e, 3 * w, s),
    "of several tables": lambda *args: np.cumsum(args[0](*args[1:])),
}


@pytest.mark.slow
@relations
@pytest.mark.parametrize("name", SCORES)
def test_scores_that_move_by_more_would_be_seen(monkeypatch, neighbours, name):
    def found():
        return max(changes(neighbours, **AUTO)[2]) / most_of_scores(neighbours)

    assert found() <= 1 + 1e-9
    score = _releases.scores
    monkeypatch.setattr(_releases, "scores", lambda *args: SCORES[name](score, *args))
    assert found() > 1.1


# The budget.


def spent(fit, neighbours):
    """Return μ of all releases together, ε₀ and the number of selections, by trying the noise."""
    releases = [step.scale for step in fit.steps if step.kind == "release"]
    selections = [step for step in fit.steps if step.kind == "select"]
    mu = most(neighbours) * math.sqrt(sum(1 / scale**2 for scale in releases))
    if not selections:
        return mu, 1.0, 0
    epsilon0 = max(2 * most_of_scores(neighbours) / max(s.scale, 1e-3) for s in selections)
    return mu, epsilon0, sum(len(step.out) for step in selections)


@relations
@pytest.mark.parametrize(("epsilon", "delta"), [(2.0, 1e-4), (8.0, 1e-6)])
def test_all_pairs_cost_the_budget(neighbours, epsilon, delta):
    fit = listen(make(epsilon, delta=delta, neighbours=neighbours), X)
    report, scales = fit.sampler.privacy_, [step.scale for step in fit.steps]
    assert list(report.noise_scale.values()) == pytest.approx(scales)
    assert (report.epsilon, report.delta, report.n_releases) == (epsilon, delta, 2)
    mu, *_ = spent(fit, neighbours)
    # Balle and Wang, "Improving the Gaussian mechanism", 2018, theorem 8.
    tails = norm.cdf([mu / 2 - epsilon / mu, -mu / 2 - epsilon / mu])
    assert tails[0] - math.exp(epsilon) * tails[1] == pytest.approx(delta, rel=1e-5)
    assert exact_delta(epsilon, mu) == pytest.approx(delta, rel=1e-3)
    assert fit.sampler.noise_multiplier_ == pytest.approx(1 / mu)
    # What each table cost adds up to what the release did.
    costs = [np.max(part.noise_scale) ** -2.0 for part in fit.sampler.marginals_]
    assert len(costs) == 10
    assert_allclose(costs, costs[0])
    assert sum(costs) == pytest.approx(scales[1] ** -2.0)


@pytest.mark.slow
@relations
@pytest.mark.parametrize("options", [AUTO, TARGET], ids=["auto", "target"])
@pytest.mark.parametrize(("epsilon", "delta"), [(2.0, 1e-4), (8.0, 1e-6)])
def test_selections_and_tables_cost_the_budget(monkeypatch, neighbours, options, epsilon, delta):
    afford(monkeypatch)
    fit = listen(make(epsilon, delta=delta, neighbours=neighbours, **options), WIDE_X)
    report, (mu, epsilon0, n) = fit.sampler.privacy_, spent(fit, neighbours)
    # All that was paid for was used.
    assert (fit.run._scales, fit.run._selection._n_left) == ([], 0)
    assert len({s.scale for s in fit.steps if s.kind == "select"}) == 1
    assert (report.epsilon, report.delta) == (epsilon, delta)
    assert report.n_releases == n + sum(step.kind == "release" for step in fit.steps)
    assert fit.sampler.noise_multiplier_ == pytest.approx(1 / mu)
    assert 0.98 * delta < exact_delta(epsilon, mu, epsilon0, n) <= delta * (1 + 1e-4)
    assert 0.5 * delta < library_delta(epsilon, mu, epsilon0, n) <= delta * (1 + 1e-6)


@relations
@pytest.mark.parametrize("options", [AUTO, TARGET], ids=["auto", "target"])
def test_with_few_records_no_more_is_spent(neighbours, options):
    """The rounds that noise leaves nothing to tell measure once more what the first did."""
    fit = listen(make(1.0, neighbours=neighbours, **options), WIDE_X)
    mu, epsilon0, n = spent(fit, neighbours)
    assert n < fit.sampler.privacy_.n_releases
    assert exact_delta(1.0, mu, epsilon0, n) <= 1e-5 * (1 + 1e-4)


@relations
@pytest.mark.parametrize(
    "breach",
    [noise_halved, last_noise_forgotten, half_the_range, selections_without_noise]
    + [selections_of_one_round],
)
def test_less_noise_would_be_seen(monkeypatch, neighbours, breach):
    afford(monkeypatch)
    breach(monkeypatch)
    fit = listen(make(2.0, neighbours=neighbours, **AUTO), WIDE_X)
    mu, epsilon0, n = spent(fit, neighbours)
    assert exact_delta(2.0, mu, epsilon0, n) > 1.2e-5


@pytest.mark.slow
def test_selections_that_were_not_paid_for_are_refused(monkeypatch):
    afford(monkeypatch)
    count = MarginalsPlan.n_selections.fget
    for property_, message in (
        (property(lambda self: count(self) - 1), "selection"),
        (property(lambda self: 0), "no selection"),
    ):
        with monkeypatch.context() as patch:
            patch.setattr(MarginalsPlan, "n_selections", property_)
            with pytest.raises(RuntimeError, match=message):
                make(**AUTO).fit(WIDE_X)


def test_one_column_has_the_whole_budget():
    age = Schema({"age": SCHEMA["age"]})
    fit = listen(make(1.0, schema=age, marginals="auto", n_bins="auto"), X[["age"]])
    (step,) = fit.steps
    assert exact_delta(1.0, math.sqrt(2) / step.scale) == pytest.approx(1e-5, rel=1e-3)


# Nothing else is let out.


def told(fit):
    """Return all that a fit lets out."""
    sampler = fit.sampler
    parts = [*law_parts(sampler), sampler.n_records_, fit.warnings, fit.asked]
    for part in (*sampler.one_way_marginals_, *sampler.marginals_):
        parts += [part.columns, *part.groups, part.counts, np.array(part.noise_scale)]
    edges = {name: getattr(c, "edges", None) for name, c in sampler.encoder_.columns_.items()}
    report = sampler.privacy_.to_json()
    return [*parts, edges, report, sampler.sample(9, random_state=0), pickle.dumps(sampler)]


def equal(first, second):
    if isinstance(first, pd.DataFrame):
        return first.equals(second)
    return np.array_equal(first, second) if isinstance(first, np.ndarray) else first == second


def told_by_the_outputs_alone(neighbours, epsilon=8.0, first=None, others=None, **options):
    """Whether another table, of which the same is released and selected, gives the same fit."""
    is_wide = "schema" in options
    if others is None:
        # Where the number of records is not public, it does not show either.
        n = 600 if neighbours == "replace_one" else 450
        others = wide(n, seed=5) if is_wide else table(n, seed=5)
    others = others.assign(job=others["job"].where(others["level"] == 1, "pilot"))
    sampler = partial(make, epsilon, neighbours=neighbours, **options)
    first = listen(sampler(), records(options) if first is None else first)
    try:
        second = listen(sampler(), others, first.steps)
    except Unlike:
        return False
    pairs = zip(first.steps, second.steps, strict=False)
    assert not any(np.array_equal(one.value, two.value) for one, two in pairs)
    one, two = told(first), told(second)
    return len(one) == len(two) and all(map(equal, one, two))


AUTO_BINS = AUTO | {"n_bins": "auto", "workload": WORKLOAD}


@relations
@pytest.mark.parametrize("epsilon", [1.0, 8.0])
@pytest.mark.parametrize(
    "options",
    [{}, AUTO, AUTO_BINS, TARGET | {"n_bins": "auto"}, {"marginals": LISTED}]
    + [AUTO_BINS | {"store": "none"}],
    ids=words,
)
def test_tables_with_equal_outputs_give_equal_fits(neighbours, epsilon, options):
    assert told_by_the_outputs_alone(neighbours, epsilon, **options)


# Where there are records enough, and where there are not.
FEW = {"first": wide(4000), "others": wide(60, seed=5)}


@pytest.mark.slow
@pytest.mark.parametrize(
    ("leak", "options"),
    [
        (tell_length, {}),
        (tell_bins, {"n_bins": "auto", "marginals": [("age",)]}),
        (tell_counts, {}),
        (tell_marginals, {}),
        (keep_records, {}),
    ]
    + [(tell_order, AUTO), (tell_seed, AUTO), (tell_gaps, {}), (tell_groups, {"n_bins": 40})]
    + [(tell_length_by_the_plan, AUTO | FEW), (tell_length_by_groups, AUTO | FEW)]
    + [
        (tell_length_by_rounds, AUTO | FEW),
        (tell_balance, TARGET),
        (tell_length_by_warnings, AUTO | FEW | {"epsilon": 1.0}),
    ],
    ids=words,
)
def test_what_tells_more_would_be_seen(monkeypatch, leak, options):
    assert told_by_the_outputs_alone("add_or_remove", **options)
    leak(monkeypatch)
    assert not told_by_the_outputs_alone("add_or_remove", **options)


def test_delta_is_held_against_a_public_number_alone():
    """A warning of a delta that is large for the number of records would tell the number."""
    large = "delta is above 1 / n_samples"
    for delta, expected in ((1 / 599, True), (1 / 601, False)):
        fit = listen(make(delta=delta), X)
        assert any(large in text for text in fit.warnings) == expected
        fit = listen(make(delta=delta, neighbours="add_or_remove"), X)
        assert not any(large in text for text in fit.warnings)


@pytest.mark.slow
def test_the_number_of_records_is_public_under_replacement_alone():
    assert make().fit(X).n_records_ == 600
    assert make(np.inf, neighbours="add_or_remove").fit(X).n_records_ == pytest.approx(600)
    fit = partial(make, marginals=[("age",)], neighbours="add_or_remove", max_iter=1)
    found = [fit(random_state=seed).fit(X).n_records_ for seed in range(60)]
    # Totals of five columns of 4, 5, 3, 3 and 4 cells, each with a fifth of the squared weight.
    (step,) = listen(fit(), X).steps
    spread = step.scale * math.sqrt(5 / sum(1 / size for size in (4, 5, 3, 3, 4)))
    assert abs(np.mean(found) - 600) < 5 * spread / math.sqrt(60)
    assert abs(np.std(found) / spread - 1) < 5 / math.sqrt(120)
