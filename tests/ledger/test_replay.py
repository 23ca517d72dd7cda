"""Replays of every central fit: what a neighbour changes is paid for, and nothing else changes.

A fit on one table is repeated on others, to which the same is released. All that it shows then
must be the same on tables that differ in every private record, and in every private number; and
what noise is added to may move, for neighbours, by what the plan states. Left out: estimators
without a trusted curator, whose records are private before a fit; times; and errors of fits that
fail on account of a record, which the docs name as not covered.
"""

import warnings
from functools import partial

import numpy as np
import pandas as pd
import pytest
import torch
from replay import (
    Diverged,
    Tape,
    differences,
    fitted,
    least_epsilon,
    least_search_epsilon,
    runs_of,
)
from replay_cases import CASES, REPLAYED
from sklearn.base import clone
from sklearn.tree import DecisionTreeRegressor

from sklearn_dpgen.mechanisms import GaussianSequenceMechanism
from sklearn_dpgen.model_selection import PrivateSearchCV, _private_search
from sklearn_dpgen.model_selection._row_values import released_score
from sklearn_dpgen.moments import MomentSampler
from sklearn_dpgen.tables import RelationalSampler, SyntheticDataClassifier
from sklearn_dpgen.utils._random import NoiseSource, noise_source

# Of these the price averages over directions that are drawn, and a replay has those of one draw.
AVERAGED = {"smoothed projections on one direction"}
# They take longest; smaller cases of the same kind are in the default run.
SLOW = {"search by samples", "search of persons with rows"}
DEFAULT = [pytest.param(n, marks=[pytest.mark.slow] * (n in SLOW)) for n in REPLAYED]
WITH_PERSONS = [*(name for name, case in CASES.items() if case.has_unit), "search"]


def member_of(case):
    """Return which record is made to be in every secret batch, where there may be any."""
    # A search draws which records score.
    return None if case.private == "number" or is_search(case) else 0


def seen(fit, tmp_path):
    """Return all that can be seen of a fit: what it stores, shows, warns of, draws and saves."""
    estimator = fit.estimator
    shown = {
        "state": dict(sorted(vars(estimator).items())),
        "warnings": fit.warned,
        "printed": fit.printed,
    }
    shown["report"] = estimator.privacy_.to_json()
    if hasattr(estimator, "sample") and not hasattr(estimator, "best_estimator_"):
        shown["drawn"] = estimator.sample(5, random_state=0)
    try:
        estimator.save(tmp_path / "saved")
    except TypeError as error:
        shown["saved"] = str(error)
    else:
        shown["saved"] = (tmp_path / "saved").read_bytes()
    return shown


def is_search(case):
    return isinstance(case.estimator, PrivateSearchCV)


def price(case, first, second):
    """Return what two fits on neighbours cost at least, over what is stated."""
    report, releases = first.estimator.privacy_, first.tape.releases
    if is_search(case):
        args = second.tape.releases, case.estimator.n_runs, report.delta
        return least_search_epsilon(releases, *args) / report.epsilon
    return least_epsilon(releases, second.tape.releases, report.delta) / report.epsilon


def moved(first, second):
    """Return whether what noise was added to differs, of each release."""
    pairs = zip(first.tape.releases, second.tape.releases, strict=True)
    return [not np.array_equal(a.values, b.values) for a, b in pairs]


def check(case, tmp_path, estimator=None):
    """Return how two other tables show, and the price of the neighbour over what is stated."""
    estimator = case.estimator if estimator is None else estimator
    found, prices, parts, member = [], [], set(), member_of(case)
    # In a search, until the record that differs has trained, and has scored.
    for seed in range(12 if is_search(case) else 1):
        base, neighbour = case.neighbours()
        first = fitted(case.fit, clone(estimator), base, Tape(member=member), seed)
        shown = seen(first, tmp_path)
        far = fitted(case.fit, clone(estimator), case.far_records(), Tape(first.tape, member), seed)
        found += differences(shown, seen(far, tmp_path))
        # Fitted once more: nothing is left of the fit before.
        near = fitted(case.fit, far.estimator, neighbour, Tape(first.tape, member), seed)
        found += differences(shown, seen(near, tmp_path))
        prices.append(price(case, first, near))
        is_moved = moved(first, near)
        parts |= {"train" if is_moved[0] else "score"} if any(is_moved) else set()
        if found or len(parts) == 1 + is_search(case):
            break
    else:
        raise AssertionError("The record that differs is never looked at.")
    return found, max(prices)


@pytest.mark.slow
@pytest.mark.parametrize("name", DEFAULT)
def test_what_differs_is_what_is_paid_for(name, tmp_path):
    found, ratio = check(REPLAYED[name], tmp_path)
    assert found == []
    assert ratio <= 1 + 1e-6 or name in AVERAGED


@pytest.mark.slow
@pytest.mark.parametrize("name", WITH_PERSONS)
def test_what_differs_by_a_person_is_what_is_paid_for(name, tmp_path):
    found, ratio = check(REPLAYED[name].of_persons(), tmp_path)
    assert found == []
    assert ratio <= 1 + 1e-6 or name in AVERAGED


def shows_a_loser(seed, tmp_path):
    """Return whether a search shows the same where all fits but the best one release another."""
    case = REPLAYED["search"]
    estimator = clone(case.estimator).set_params(param_distributions={"n_draws": [1]})
    first = fitted(case.fit, clone(estimator), case.records(), Tape(), seed)
    runs = runs_of(first.tape.releases)
    scores = [first.tape.releases[run[-1]].outcome[0] for run in runs]
    losers = [place for i, run in enumerate(runs) for place in run[:-1] if i != np.argmax(scores)]
    tape = Tape(first.tape, altered=losers)
    second = fitted(case.fit, clone(estimator), case.records(), tape, seed)
    return bool(differences(seen(first, tmp_path), seen(second, tmp_path)))


@pytest.mark.slow
def test_nothing_of_a_loser_shows(tmp_path, monkeypatch):
    seeds = range(3)
    assert not any(shows_a_loser(seed, tmp_path) for seed in seeds)
    # The negative twin: runs of equal parameters are one estimator, which keeps the last of them.
    monkeypatch.setattr(_private_search, "seeded", lambda candidate, seed: candidate)
    assert any(shows_a_loser(seed, tmp_path) for seed in seeds)


def drawn_twice(case, seeds=(0, 1)):
    """Return what two fits of the same records draw alike: noise, secret batches, values."""
    fits = [fitted(case.fit, clone(case.estimator), case.records(), Tape(), s) for s in seeds]
    tapes = [fit.tape for fit in fits]
    alike = set()
    for a, b in zip(*(tape.releases for tape in tapes), strict=True):
        if a.kind != "gumbel" and np.array_equal(a.outcome - a.values, b.outcome - b.values):
            alike.add("noise")
        for (n, rows), (_, others) in zip(a.batches, b.batches, strict=True):
            if rows.shape[-1] < n and np.array_equal(rows, others):
                alike.add("batches")
    first, second = (tape.releases[0].values for tape in tapes)
    return alike | ({"values"} if np.array_equal(first, second) else set())


@pytest.mark.parametrize("name", CASES)
def test_noise_and_batches_are_drawn_anew(name):
    assert not drawn_twice(REPLAYED[name]) & {"noise", "batches"}


def test_draws_that_are_fixed_are_caught():
    # One row of each person is drawn, and which one differs.
    assert drawn_twice(REPLAYED["moments"].of_persons()) == set()
    assert drawn_twice(REPLAYED["moments"].of_persons(), (0, 0)) == {"noise", "values"}
    assert drawn_twice(REPLAYED["sliced generator"], (0, 0)) >= {"noise", "batches"}


class Slotted:
    __slots__ = ("held",)

    def __init__(self, held):
        self.held = held


@pytest.mark.parametrize(
    "wrap",
    [
        lambda a: a,
        lambda a: {"x": [(0, a)]},
        lambda a: Slotted(a),
        lambda a: lambda: a,
        lambda a: partial(print, a),
        lambda a: torch.tensor(a),
        lambda a: pd.DataFrame({"x": a}),
        lambda a: np.array([None, a], dtype=object),
        lambda a: DecisionTreeRegressor().fit(a[:, None], np.arange(len(a))),
        lambda a: torch.Generator().manual_seed(int(a[0] * 1000)),
        lambda a: np.random.default_rng(int(a[0] * 1000)),
        lambda a: set(a.tolist()),
    ],
)
def test_a_difference_is_found_wherever_it_is(wrap):
    a = np.linspace(0.1, 1, 5)
    assert differences(wrap(a), wrap(a.copy())) == []
    assert differences(wrap(a), wrap(a + 1e-3)) != []
    assert differences(wrap(a), None) != []


def is_caught(case, tmp_path, estimator=None):
    try:
        found, ratio = check(case, tmp_path, estimator)
    except Diverged:
        return True
    return bool(found) or ratio > 1 + 1e-6


def as_kind(kind, name):
    """Return the estimator of a case as one of another class."""
    return kind(**REPLAYED[name].estimator.get_params(deep=False))


class PicksByExactScores(PrivateSearchCV):
    """Adds noise to the score of the best candidate alone."""

    def fit(self, X, y=None):
        with pytest.MonkeyPatch.context() as patched:
            patched.setattr(_private_search, "released_score", lambda score, scale, noise: score)
            super().fit(X, y)
        scale = self.privacy_.noise_scale["score"]
        self.best_score_ = released_score(self.best_score_, scale, noise_source())
        return self


class DrawsAsManyAsThereAre(SyntheticDataClassifier):
    """Takes "auto" from the private number of rows, and not from the released one."""

    n_rows = []

    def fit(self, X, y=None):
        self.n_rows[:] = [len(X)]
        return super().fit(X, y)

    def _learn_from(self, *args):
        self.n_samples = self.n_rows[0]
        super()._learn_from(*args)
        self.n_samples = "auto"


class CountsPersons(RelationalSampler):
    """Takes the private number of persons for the estimate of it."""

    def _release(self, plan, records, seed):
        released = super()._release(plan, records, seed)
        released.n_records[0] = float(records.n_records)
        return released


class OrdersPairsByRecords(RelationalSampler):
    """Lists the marginals in an order that depends on the records."""

    def _release(self, plan, records, seed):
        layout = plan.details.layout
        released = super()._release(plan, records, seed)
        turn = int(records.leaves(layout.stages[0].own[0]).argmax()) % 7
        marginals = released.measured.marginals
        marginals[:] = marginals[turn:] + marginals[:turn]
        return released


class KeepsRecords(MomentSampler):
    """Keeps records in what a function closes over."""

    def fit(self, X, y=None):
        super().fit(X, y)
        self._draw = lambda: X
        return self


class KeepsTheLastFit(MomentSampler):
    """Starts from what an earlier fit left."""

    def fit(self, X, y=None):
        earlier = getattr(self, "means_", None)
        super().fit(X, y)
        self._start = earlier
        return self


class WarnsOfRecords(MomentSampler):
    def fit(self, X, y=None):
        warnings.warn(f"{np.mean(X):.2f} on average", UserWarning, stacklevel=2)
        return super().fit(X, y)


class ReleasesOnCondition(MomentSampler):
    """Looks at the records for whether to release anything more."""

    def fit(self, X, y=None):
        super().fit(X, y)
        if np.mean(X["a"]) > 0.4:
            noise_source().add(np.zeros(1), 1.0, "gaussian")
        return self


@pytest.mark.slow
@pytest.mark.parametrize(
    ("kind", "name"),
    [
        (PicksByExactScores, "search"),
        (DrawsAsManyAsThereAre, "auto: synthetic classifier, one more"),
        (CountsPersons, "auto: persons with rows, one more"),
        (OrdersPairsByRecords, "auto: persons with rows"),
        (KeepsRecords, "moments"),
        (KeepsTheLastFit, "moments"),
        (WarnsOfRecords, "moments"),
        (ReleasesOnCondition, "moments"),
    ],
)
def test_a_breach_is_caught(kind, name, tmp_path):
    assert is_caught(REPLAYED[name], tmp_path, as_kind(kind, name))


@pytest.mark.slow
@pytest.mark.parametrize(
    "name",
    [
        "sliced measures",
        "evolution by thresholds",
        "moments of public classes",
        "smoothed projections",
        "search",
    ],
)
def test_half_the_noise_is_caught(name, monkeypatch, tmp_path):
    add = NoiseSource.add
    halved = lambda self, values, scale, kind: add(self, values, scale / 2, kind)  # noqa: E731
    monkeypatch.setattr(NoiseSource, "add", halved)
    assert is_caught(REPLAYED[name], tmp_path)


def most_changed(name, monkeypatch):
    """Return how many values of each release differ for neighbours, and what was said of them."""
    said, run = [], GaussianSequenceMechanism.run

    def watched(self):
        said[:] = [self.n_changed]
        return run(self)

    case = REPLAYED[name]
    with monkeypatch.context() as patched:
        patched.setattr(GaussianSequenceMechanism, "run", watched)
        member, (base, neighbour) = member_of(case), case.neighbours()
        first = fitted(case.fit, clone(case.estimator), base, Tape(member=member))
        near = fitted(case.fit, clone(case.estimator), neighbour, Tape(first.tape, member))
    changed = [
        (a.values != b.values).sum()
        for a, b in zip(first.tape.releases, near.tape.releases, strict=True)
        if a.kind == "gaussian"
    ]
    return np.array(changed), np.array(said[0])


@pytest.mark.parametrize("name", ["auto: evolution, certified", "auto: tables, certified"])
def test_no_more_values_are_rounded_than_certified_noise_is_priced_for(name, monkeypatch):
    changed, said = most_changed(name, monkeypatch)
    assert (changed <= said[: len(changed)]).all()
    # The negative twin: one value less.
    assert (changed > said[: len(changed)] - 1).any()
