"""Replays of every central fit: what a neighbour changes is paid for, and nothing else changes.

A fit on one table is repeated on others, to which the same is released. All that it shows then
must be the same on tables that differ in every private record, and in every private number; and
what noise is added to may move, for neighbours, by what the plan states. Left out: estimators
without a trusted curator, whose records are private before a fit; times; and errors of fits that
fail on account of a record, which the docs name as not covered.
"""

import math

import numpy as np
import pytest
from replay import (
    Diverged,
    Tape,
    differences,
    fitted,
    least_epsilon,
    least_search_epsilon,
)
from replay_cases import AUTO, CASES, REPLAYED
from sklearn.base import clone

from sklearn_dpgen.mechanisms import GaussianSequenceMechanism
from sklearn_dpgen.model_selection import PrivateSearchCV
from sklearn_dpgen.moments import MomentSampler
from sklearn_dpgen.tables import _mixture_sampler, _synthetic_data
from sklearn_dpgen.model_selection import _private_search
from sklearn_dpgen.utils._random import NoiseSource, noise_source

# Twice as long as all others together; what they have of their own is in others too.
SLOW = {"auto: mixtures", "auto: mixtures, certified", "search by samples"}
DEFAULT = [pytest.param(n, marks=[pytest.mark.slow] * (n in SLOW)) for n in REPLAYED]
WITH_PERSONS = [*CASES, "search"]
# What cannot be saved: it holds an estimator of another package.
UNSAVED = {"search", "synthetic", "barycenter"}


def replay(case, others, estimator=None):
    """Return the fit on given records, and those on others to which the same is released."""
    estimator = case.estimator if estimator is None else estimator
    base, *_ = case.neighbours()[0]
    member = None if case.private == "number" else 0
    first = fitted(case.fit, estimator, (base.frame, base.side), Tape(member=member))
    return first, [
        fitted(case.fit, estimator, (o.frame, o.side), Tape(first.tape, member)) for o in others
    ]


def seen(fit, tmp_path):
    """Return all that can be seen of a fit: what it stores, shows, warns of, draws and saves."""
    estimator = fit.estimator
    shown = {"state": vars(estimator), "warnings": fit.warned, "printed": fit.printed}
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


def price(case, first, second):
    """Return what two fits on neighbours cost at least, over what is stated."""
    report, releases = first.estimator.privacy_, first.tape.releases
    if isinstance(case.estimator, PrivateSearchCV):
        n_fitted = len(releases) // sum(r.values.shape == (1,) for r in releases) - 1
        args = (n_fitted, case.estimator.n_runs, report.delta)
        return least_search_epsilon(releases, second.tape.releases, *args) / report.epsilon
    return least_epsilon(releases, second.tape.releases, report.delta) / report.epsilon


def check(case, tmp_path, estimator=None):
    """Return how two other tables show, and the price of the neighbour over what is stated."""
    neighbour = case.neighbours()[0][1]
    first, (near, far) = replay(case, [neighbour, case.far_records()], estimator)
    pairs = zip(first.tape.releases, near.tape.releases, strict=True)
    assert any((a.values != b.values).any() for a, b in pairs)
    shown = seen(first, tmp_path)
    found = differences(shown, seen(near, tmp_path)) + differences(shown, seen(far, tmp_path))
    return found, price(case, first, near)


@pytest.mark.parametrize("name", DEFAULT)
def test_what_differs_is_what_is_paid_for(name, tmp_path):
    found, ratio = check(REPLAYED[name], tmp_path)
    assert found == []
    assert ratio <= 1 + 1e-6


@pytest.mark.parametrize("name", WITH_PERSONS)
def test_what_differs_by_a_person_is_what_is_paid_for(name, tmp_path):
    found, ratio = check(REPLAYED[name].of_persons(), tmp_path)
    assert found == []
    assert ratio <= 1 + 1e-6
