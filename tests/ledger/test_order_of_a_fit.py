"""The steps of a fit: the plan reads no record, the charge precedes each release, learning follows.

These hold for every contract case whose class implements the steps of ``PrivateEstimator._fit``.
"""

import numpy as np
import pandas as pd
import pytest
import torch
from contract_cases import CASES, FRAME, SIDE
from ledger_cases import rows
from replay import NUMBERS, differences, parts_of, scripted_entropy
from sklearn.base import clone

from sklearn_dpgen.ledger import PrivacyLedger
from sklearn_dpgen.ledger._base import PrivateEstimator
from sklearn_dpgen.utils._random import (
    NoiseObserver,
    noise_source,
    observed_noise,
    split_random_state,
)

STEPS = {
    name: case
    for name, case in CASES.items()
    if type(case.estimator)._release is not PrivateEstimator._release
}
every_case = pytest.mark.parametrize("name", STEPS)


def in_turn(ways):
    """Return pairs: each case, with one of the ways to break its estimator, which take turns."""
    ways = [*ways]
    return [(name, ways[i % len(ways)]) for i, name in enumerate(STEPS)]


# A number of records of which neither it nor the number of a side is the length of anything public.
N = 113
LENGTHS = {N, *np.bincount(SIDE[:N]).tolist()}
TABLES = (pd.DataFrame, pd.Series)
pytestmark = pytest.mark.filterwarnings("ignore::UserWarning")


def records():
    """Return records and their sides, which a fit may change."""
    return FRAME.iloc[:N].reset_index(drop=True).copy(), SIDE[:N].copy()


def other_records():
    """Return as many records of each side, with other values, and both values of the label."""
    frame, side = records()
    frame["a"], frame["b"] = 1 - frame["a"].to_numpy()[::-1] ** 2, 1 - frame["b"]
    return frame, side


def made(name, kind=None):
    """Return the estimator of a case, or the same of another class."""
    estimator = clone(STEPS[name].estimator)
    return estimator if kind is None else kind(**estimator.get_params(deep=False))


def reached(thing, seen, is_direct=True):
    """Yield all that an object holds but numbers, and whether containers alone lead to it.

    Parameters
    ----------
    thing : object
    seen : dict
        Objects that are left out, by their ids. Whatever is yielded is added.
    is_direct : bool
    """
    if id(thing) in seen or isinstance(thing, str | bytes | type):
        return
    seen[id(thing)] = thing
    yield thing, is_direct
    if isinstance(thing, (np.ndarray, torch.Tensor, *TABLES)):
        return
    try:
        parts = parts_of(thing)
    except Exception:  # of any kind, as of locks and open files, which hold no array
        return
    # The state of a compiled class is made for the call, and is not what the object holds.
    parts.pop("pickled", None)
    within = is_direct and isinstance(thing, list | tuple | dict)
    for part in parts.values():
        # Of numbers there are many, which hold nothing and cannot be overwritten.
        if not isinstance(part, NUMBERS):
            yield from reached(part, seen, within)


def lengths(thing):
    """Return the sizes of the axes of an array or a table, and the length of a container."""
    if isinstance(thing, (np.ndarray, torch.Tensor, *TABLES)):
        return set(thing.shape)
    return {len(thing)} if isinstance(thing, list | tuple | dict | set) else set()


def overwrite(thing):
    """Give an array other values, and empty a table or a container, in place."""
    if isinstance(thing, TABLES):
        for name in list(thing.keys()):
            del thing[name]
    elif isinstance(thing, list | dict | set):
        thing.clear()
    elif isinstance(thing, torch.Tensor):
        with torch.no_grad():
            thing.copy_(~thing if thing.dtype == torch.bool else 7 - thing)
    elif isinstance(thing, np.ndarray) and thing.flags.writeable:
        if thing.dtype.kind in "OUSMm":
            thing[...] = thing.dtype.type() if thing.dtype.kind != "O" else None
        else:
            thing[...] = ~thing if thing.dtype.kind == "b" else 7 - thing


# Learning.


class CannotLearn(Exception):
    """Learning failed, as where it reads records that are not there any more."""


def fitted(name, kind=None, *, destroyed):
    """Return the fitted attributes, where records may be destroyed as soon as all is released."""
    case, estimator = STEPS[name], made(name, kind)
    release, learn, frame_side, count = estimator._release, estimator._learn, records(), []

    def watched(plan, given, seed):
        released = release(plan, given, seed)
        if destroyed:
            # Declarations and the plan are public.
            seen = {id(estimator): estimator}
            list(reached((estimator.get_params(), plan), seen))
            found = list(reached(given, seen))
            found += reached(vars(estimator), seen, is_direct=False)
            count.extend(
                thing for thing, is_direct in found if is_direct or LENGTHS & lengths(thing)
            )
            for thing in count:
                overwrite(thing)
            for thing in frame_side:
                overwrite(thing)
        return released

    def learned(*args):
        try:
            learn(*args)
        except Exception as error:  # of any kind, by what is read
            raise CannotLearn from error

    estimator._release, estimator._learn = watched, learned
    # Estimators within have random states of their own.
    with scripted_entropy(0):
        case.fit(*frame_side, estimator)
    assert not destroyed or any(lengths(thing) for thing in count)
    return {k: v for k, v in vars(estimator).items() if k.endswith("_") and not k.startswith("_")}


def learns_from_records(name, kind=None):
    first = fitted(name, kind, destroyed=False)
    assert differences(first, fitted(name, kind, destroyed=False)) == []
    try:
        second = fitted(name, kind, destroyed=True)
    except CannotLearn:
        return True
    return differences(first, second) != []


def keeping(kind, kept, read):
    """Return a broken variant that keeps records, and reads them where it learns."""

    class Keeps(kind):
        def _read(self, X, *args, **side):
            given, facts = super()._read(X, *args, **side)
            self._kept = kept(X, given)
            return given, facts

        def _learn(self, plan, released, seed):
            super()._learn(plan, released, seed)
            found = [thing for thing, _ in reached(read(self._kept), {}) if lengths(thing)]
            self.learned_ = [
                np.asarray(thing).copy()
                for thing in found
                if isinstance(thing, (np.ndarray, torch.Tensor, *TABLES))
            ]

    return Keeps


KEPT = {
    "records": (lambda X, given: given, lambda kept: kept),
    "a copy": (lambda X, given: np.array(X["a"]), lambda kept: kept),
    "a frame": (lambda X, given: X.copy(), lambda kept: kept),
    "a function": (lambda X, given: lambda: X["a"].to_numpy().copy(), lambda kept: kept()),
}


@every_case
def test_learning_needs_no_record(name):
    assert not learns_from_records(name)


@pytest.mark.parametrize(("name", "kept"), in_turn(KEPT))
def test_learning_from_records_is_caught(name, kept):
    kind = keeping(type(STEPS[name].estimator), *KEPT[kept])
    assert learns_from_records(name, kind)


# Charges.


class Charges(NoiseObserver):
    """Notes how many charges the file of a ledger has at each step and release of a fit."""

    def __init__(self, path):
        self.path, self.seen = path, []

    def note(self, step):
        self.seen.append((step, len(rows(self.path))))

    def added(self, values, scale, kind, noisy):
        self.note("noise")
        return noisy

    def selected(self, scores, scale, indices):
        self.note("noise")
        return indices


def charges(name, path, kind=None):
    """Return the pairs of a step and a number of charges, in the order in which they first occur.

    A plan is noted after it is made, all else before.
    """
    case, estimator = STEPS[name], made(name, kind)
    neighbours = getattr(estimator, "neighbours", "replace_one")
    PrivacyLedger.create(path, dataset="a", epsilon=1e4, delta=1e-2, neighbours=neighbours)
    estimator.set_params(ledger=str(path))
    observer = Charges(path)
    plan, release, learn = estimator._plan, estimator._release, estimator._learn

    def planned(*args, **facts):
        found = plan(*args, **facts)
        observer.note("plan")
        return found

    def released(*args):
        observer.note("release")
        return release(*args)

    def learned(*args):
        observer.note("learn")
        return learn(*args)

    estimator._plan, estimator._release, estimator._learn = planned, released, learned
    with observed_noise(observer):
        case.fit(*records(), estimator)
    return list(dict.fromkeys(observer.seen))


PAID = [("plan", 0), ("release", 1), ("noise", 1), ("learn", 1)]


@every_case
def test_a_fit_is_charged_after_its_plan_and_before_each_release(name, tmp_path):
    assert charges(name, tmp_path / "a.ledger") == PAID


def releasing_first(kind):
    """Return a broken variant that is charged for what it has released."""

    class ReleasesFirst(kind):
        def _fit(self, *data, **side):
            noise_seed, seed = split_random_state(self.random_state, 2)
            given, facts = self._read(*data, **side, seed=noise_seed)
            plan = self._plan(**facts)
            released = self._release(plan, given, noise_seed)
            self._charge(plan.report)
            self._learn(plan, released, seed)
            return self

    return ReleasesFirst


def releasing_as_it_reads(kind):
    """Return a broken variant that releases a number before there is a plan."""

    class ReleasesAsItReads(kind):
        def _read(self, X, *args, **side):
            noise_source().add(np.array([np.mean(X["a"])]), 1.0, "gaussian")
            return super()._read(X, *args, **side)

    return ReleasesAsItReads


@pytest.mark.parametrize(("name", "broken"), in_turn([releasing_first, releasing_as_it_reads]))
def test_a_release_before_the_charge_is_caught(name, broken, tmp_path):
    kind = broken(type(STEPS[name].estimator))
    assert charges(name, tmp_path / "a.ledger", kind) != PAID


# Plans.


def facts_of(name, given, kind=None):
    """Return what the plan of a fit is made from."""
    case, estimator, found = STEPS[name], made(name, kind), []
    plan = estimator._plan

    def watched(*args, **facts):
        found.append((args, facts))
        return plan(*args, **facts)

    estimator._plan = watched
    case.fit(*given, estimator)
    assert found
    return found


def plans_from_records(name, kind=None):
    """Return whether a plan is given as much as there are records, or other facts for others."""
    facts = facts_of(name, records(), kind)
    held = [thing for thing, _ in reached(facts, {}) if LENGTHS & lengths(thing)]
    return bool(held or differences(facts, facts_of(name, other_records(), kind)))


def planning_from(kind, fact):
    """Return a broken variant whose plan is given one more fact."""

    class PlansFromRecords(kind):
        def _read(self, X, *args, **side):
            given, facts = super()._read(X, *args, **side)
            return given, facts | {"more": fact(X)}

        def _plan(self, *args, more=None, **facts):
            return super()._plan(*args, **facts)

    return PlansFromRecords


@every_case
def test_a_plan_is_made_from_public_facts(name):
    assert not plans_from_records(name)


FACTS = {
    "array": lambda X: np.zeros(len(X)),
    "list": lambda X: {"of": [range(2), [0] * len(X)]},
    "number": lambda X: X["a"].max(),
}


@pytest.mark.parametrize(("name", "fact"), in_turn(FACTS))
def test_a_plan_from_records_is_caught(name, fact):
    assert plans_from_records(name, planning_from(type(STEPS[name].estimator), FACTS[fact]))
