"""What every private estimator keeps to: plan, charge, profile and unit."""

import inspect
import json
import pickle
import re
import warnings

import numpy as np
import pytest
import torch
from contract_cases import CASES, FRAME, IDS, N_PERSONS, SCHEMA, SECRET, SIDE
from ledger_cases import rows
from sklearn.base import clone
from sklearn.exceptions import NotFittedError
from sklearn.utils.validation import check_is_fitted

from sklearn_dpgen.accounting._wording import public_texts
from sklearn_dpgen.exceptions import BudgetExceededError
from sklearn_dpgen.ledger import PrivacyLedger
from sklearn_dpgen.ledger._base import PrivateEstimator
from sklearn_dpgen.moments import MomentSampler
from sklearn_dpgen.schema import Identifier, Schema
from sklearn_dpgen.utils._random import NoiseSource

SIZES = tuple(np.bincount(SIDE))
PERSON_SIZES = (N_PERSONS // 2, N_PERSONS // 2)
PERSONS = FRAME.assign(who=IDS)

pytestmark = pytest.mark.filterwarnings("ignore::UserWarning")


def cap_of(estimator, epsilon=1e4):
    neighbours = getattr(estimator, "neighbours", "replace_one")
    return {"dataset": "a", "epsilon": epsilon, "delta": 1e-2, "neighbours": neighbours}


@pytest.fixture
def ledger(tmp_path):
    def make(estimator, epsilon=1e4):
        path = tmp_path / f"{epsilon}.ledger"
        return PrivacyLedger.create(path, **cap_of(estimator, epsilon))

    return make


@pytest.mark.parametrize("name", CASES)
@pytest.mark.parametrize("seed", [None, 0])
def test_a_plan_equals_the_report_of_the_fit(name, seed):
    case = CASES[name]
    estimator = clone(case.estimator)
    if seed is not None:
        estimator.set_params(random_state=seed)
    plan = estimator.plan(**case.sizes(SIZES))
    assert not hasattr(estimator, "privacy_")
    report = case.fit(FRAME, SIDE, estimator).privacy_
    assert report == plan
    assert plan.to_dict() == report.to_dict()
    assert plan.is_seeded == (seed is not None and name not in ("synthetic classifier",))


@pytest.mark.parametrize("name", CASES)
def test_a_plan_tells_precision_split_and_profile(name):
    case = CASES[name]
    plan = case.estimator.plan(**case.sizes(SIZES))
    assert plan.precision
    assert sum(plan.split.values()) == pytest.approx(1.0)
    # What composes has the price that is stated.
    exact = plan.profile().epsilon(plan.delta)
    assert 0.98 * plan.epsilon <= exact <= plan.epsilon * (1 + 1e-6)
    assert type(plan).from_dict(json.loads(plan.to_json())) == plan


# One of each way to learn; that every method is limited is the next test.
@pytest.mark.parametrize(
    "name",
    [
        "sliced measures",
        "evolution",
        "images",
        "fair classifier",
        "smoothed adapter",
        "barycenter classifier",
    ],
)
def test_a_fit_has_one_thread_wherever_it_draws_noise(monkeypatch, name):
    case, seen, uniform = CASES[name], set(), NoiseSource._uniform

    def watched(self, size):
        seen.add(torch.get_num_threads())
        return uniform(self, size)

    monkeypatch.setattr(NoiseSource, "_uniform", watched)
    before = torch.get_num_threads()
    torch.set_num_threads(2)
    try:
        case.fit(FRAME, SIDE, clone(case.estimator))
        assert seen == {1}
        assert torch.get_num_threads() == 2
        # Where they are left as they are, there are two.
        monkeypatch.setenv("SKLEARN_DPGEN_THREADS", "all")
        seen.clear()
        case.fit(FRAME, SIDE, clone(case.estimator))
        assert seen == {2}
    finally:
        torch.set_num_threads(before)


def _private_estimators(cls=PrivateEstimator):
    for each in cls.__subclasses__():
        yield from _private_estimators(each)
        if each.__module__.startswith("sklearn_dpgen."):
            yield each


def test_every_method_that_computes_is_limited():
    computing = re.compile("fit|sample|(inverse_)?transform|predict|score|decision")
    methods = {
        (cls, name): inspect.getattr_static(cls, name)
        for cls in _private_estimators()
        for name in dir(cls)
        if computing.match(name) and inspect.isfunction(inspect.getattr_static(cls, name))
    }
    # It calls `fit` and `transform`.
    methods = {key: method for key, method in methods.items() if key[1] != "fit_transform"}
    assert {name for _, name in methods} >= {"fit", "sample", "predict", "score", "transform"}
    assert not [key for key, method in methods.items() if not is_limited(method)]
    assert not is_limited(PrivateEstimator.save)


def is_limited(method):
    return getattr(method, "is_single_threaded", False)


def first_draws(monkeypatch, case, estimator, path):
    """Return how many charges the file has whenever noise is drawn in a fit."""
    uniform, seen = NoiseSource._uniform, []

    def watched(self, size):
        seen.append(len(rows(path)))
        return uniform(self, size)

    with monkeypatch.context() as patched:
        patched.setattr(NoiseSource, "_uniform", watched)
        case.fit(FRAME, SIDE, estimator)
    return seen


@pytest.mark.parametrize("name", CASES)
def test_a_fit_is_charged_once_before_noise_is_drawn(name, ledger, monkeypatch):
    case = CASES[name]
    book = ledger(case.estimator)
    estimator = clone(case.estimator).set_params(ledger=book)
    estimator = pickle.loads(pickle.dumps(clone(estimator)))
    seen = first_draws(monkeypatch, case, estimator, book.path)
    assert seen
    assert set(seen) == {1}
    (charge,) = book.report().charges
    assert charge.report == estimator.privacy_
    estimator.set_params(ledger=str(book.path))
    case.fit(FRAME, SIDE, estimator)
    assert len(rows(book.path)) == 2


class ChargesLate(MomentSampler):
    """The negative twin: books what it has released."""

    def _charge(self, report):
        self.privacy_ = report

    def fit(self, X, y=None):
        super().fit(X, y)
        PrivateEstimator._charge(self, self.privacy_)
        return self


def test_a_late_charge_is_caught(ledger, monkeypatch):
    case = CASES["moments"]
    book = ledger(case.estimator)
    late = ChargesLate(**case.estimator.get_params()).set_params(ledger=book)
    assert set(first_draws(monkeypatch, case, late, book.path)) == {0}
    assert len(rows(book.path)) == 1


@pytest.mark.parametrize("name", CASES)
def test_a_refused_fit_draws_nothing_and_leaves_nothing(name, ledger, monkeypatch):
    case = CASES[name]
    book = ledger(case.estimator, epsilon=0.5)
    estimator = clone(case.estimator).set_params(ledger=book)
    before = set(vars(estimator))
    drawn = []
    monkeypatch.setattr(NoiseSource, "_uniform", lambda self, size: drawn.append(size))
    with pytest.raises(BudgetExceededError):
        case.fit(FRAME, SIDE, estimator)
    assert drawn == []
    assert rows(book.path) == []
    assert not hasattr(estimator, "privacy_")
    with pytest.raises(NotFittedError):
        check_is_fitted(estimator)
    assert what_is_left(estimator, before) <= {"sampler_"}


def what_is_left(estimator, before):
    """Return the attributes of a fit that is refused: only what was cloned may be there."""
    return {name for name in set(vars(estimator)) - before if name.endswith("_")}


def test_what_a_refused_fit_has_read_is_caught(ledger, monkeypatch):
    def remember(self, report):
        self._reserve(report)
        self.privacy_ = report

    monkeypatch.setattr(PrivateEstimator, "_charge", remember)
    book = ledger(CASES["moments"].estimator, epsilon=0.5)
    for name in (
        "evolution of public classes",
        "fair classifier",
        "moments",
        "barycenter classifier",
    ):
        case = CASES[name]
        estimator = clone(case.estimator).set_params(ledger=book)
        before = set(vars(estimator))
        with pytest.raises(BudgetExceededError):
            case.fit(FRAME, SIDE, estimator)
        assert not what_is_left(estimator, before) <= {"sampler_"}


@pytest.mark.parametrize("name", [name for name, case in CASES.items() if case.has_unit])
def test_persons_are_counted_and_named_nowhere(name):
    case = CASES[name]
    estimator = clone(case.estimator).set_params(unit="who")
    report = case.fit(PERSONS, SIDE, estimator).privacy_
    assert report.unit == "who"
    assert "person" in report.neighbouring
    assert report == estimator.plan(**case.sizes(PERSON_SIZES))
    assert not holds_persons(estimator)
    assert SECRET not in report.to_json()
    assert "who" not in set(getattr(estimator, "feature_names_in_", ()))
    # The negative twin: an estimator that keeps them in any form.
    for kept in (IDS, list(IDS), PERSONS):
        estimator._kept = kept
        assert holds_persons(estimator)


def with_identifiers(name):
    """Return the estimator of a case, which learns a table with a column of identifiers."""
    estimator = clone(CASES[name].estimator)
    params = estimator.get_params(deep=False)
    estimator.set_params(schema=Schema({"who": Identifier("no. "), **SCHEMA}))
    return estimator.set_params(domain=None) if "domain" in params else estimator


@pytest.mark.parametrize(
    "name",
    [n for n, c in CASES.items() if c.has_unit and "schema" in c.estimator.get_params(deep=False)],
)
def test_the_unit_may_be_an_identifier_of_the_schema(name):
    case = CASES[name]
    estimator = with_identifiers(name).set_params(unit="who")
    report = case.fit(PERSONS, SIDE, estimator).privacy_
    assert report.unit == "who"
    assert report == estimator.plan(**case.sizes(PERSON_SIZES) | {"n_features": 3})
    assert not holds_persons(estimator)
    assert estimator.sample(4)["who"].tolist() == ["no. 0", "no. 1", "no. 2", "no. 3"]
    assert set(estimator.feature_names_in_) == {"who", *SCHEMA}
    # The twin: without the unit the same column is no more than an identifier, and rows count.
    by_row = case.fit(PERSONS, SIDE, with_identifiers(name)).privacy_
    assert by_row.unit is None
    assert by_row == with_identifiers(name).plan(**case.sizes(SIZES) | {"n_features": 3})
    for other in SCHEMA:
        with pytest.raises(ValueError, match="declare it as an identifier"):
            case.fit(PERSONS, SIDE, with_identifiers(name).set_params(unit=other))


def holds_persons(estimator):
    """Return whether names of persons are anywhere in an estimator, as text or as an array."""
    content = pickle.dumps(estimator)
    return any(SECRET.encode(code) in content for code in ("utf-8", "utf-32-le"))


@pytest.mark.parametrize("name", [name for name, case in CASES.items() if case.has_unit])
def test_numbers_of_rows_are_not_public_where_persons_are_protected(name):
    case = CASES[name]

    def of_rows(estimator, sizes):
        public = public_texts(estimator.plan(**case.sizes(sizes)))
        return [n for n in public if n == "n_samples" or re.match(r"numbers? of .*records", n)]

    assert not of_rows(clone(case.estimator).set_params(unit="who"), PERSON_SIZES)
    # Negative twin: of records they are, but where records are added or removed.
    is_known = getattr(case.estimator, "neighbours", "replace_one") == "replace_one"
    assert bool(of_rows(case.estimator, SIZES)) == is_known


@pytest.mark.parametrize("name", [name for name, case in CASES.items() if case.has_unit])
def test_no_error_shows_a_person(name):
    case = CASES[name]
    estimator = clone(case.estimator).set_params(unit="who")
    missing = PERSONS.assign(who=np.where(np.arange(len(IDS)) == 3, None, IDS))
    for X in (missing, FRAME):
        with pytest.raises(ValueError, match="who") as caught:
            case.fit(X, SIDE, estimator)
        assert SECRET not in str(caught.value)
        assert not hasattr(estimator, "privacy_")


def test_nothing_is_hidden_by_the_ignored_warnings():
    """Tiny fits warn of their noise; nothing else is ignored above."""
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        CASES["moments"].fit(FRAME, SIDE, clone(CASES["moments"].estimator))
    assert all(issubclass(entry.category, UserWarning) for entry in caught)
