"""A schema that declares a unit: a fit protects persons, as with the parameter, or is refused."""

import json

import numpy as np
import pytest
from contract_cases import CASES, FRAME, IDS, N_PERSONS, SIDE, N
from sklearn.base import clone

from sklearn_dpgen import load
from sklearn_dpgen.accounting import PrivacyReport
from sklearn_dpgen.accounting._wording import review_rows, spending_rows
from sklearn_dpgen.exceptions import BudgetExceededError, LedgerUnitWarning
from sklearn_dpgen.ledger import PrivacyLedger, _base
from sklearn_dpgen.mechanisms import JointRandomizedResponse, TabularMechanism
from sklearn_dpgen.model_selection import PrivateSearchCV, utility_scorer
from sklearn_dpgen.predictors import BarycenterClassifier
from sklearn_dpgen.reporting import model_card
from sklearn_dpgen.schema import Categorical, Identifier, Numeric, Schema
from sklearn_dpgen.tables import SyntheticDataClassifier, TableSampler

pytestmark = [
    pytest.mark.filterwarnings("ignore::sklearn_dpgen.exceptions.NoisyCountsWarning"),
    pytest.mark.filterwarnings("ignore:No candidate"),
]

COLUMNS = {"a": Numeric(0, 1), "b": Categorical([0.0, 1.0])}
PLAIN, DECLARED = Schema(COLUMNS), Schema(COLUMNS, unit="person")
RECORDS = FRAME.assign(person=IDS)
# Those that take a schema, and a unit.
NAMED = [
    name
    for name, case in CASES.items()
    if {"schema", "unit"} <= {*case.estimator.get_params(deep=False)} and case.columns == ("a", "b")
]


def prepared(case, **params):
    """Return a clone with a schema in place of a domain."""
    estimator = clone(case.estimator)
    own = {"domain": None} if "domain" in estimator.get_params(deep=False) else {}
    return estimator.set_params(**own, **params)


def check_persons(report):
    """Check that a report is of persons, whose number is that of the records."""
    assert report.unit == "person"
    assert "person" in report.neighbouring


def test_several_estimators_take_both():
    assert len({type(CASES[name].estimator) for name in NAMED}) >= 4


@pytest.mark.parametrize("name", NAMED)
def test_a_declared_unit_is_the_parameter(name):
    case, reports = CASES[name], []
    for params in ({"schema": DECLARED}, {"schema": PLAIN, "unit": "person"}):
        estimator = prepared(case, **params)
        fitted = case.fit(RECORDS, SIDE, estimator)
        check_persons(fitted.privacy_)
        # The plan has the same promise as the fit, and so has a clone.
        assert clone(fitted).unit == "person"
        reports.append(fitted.privacy_)
    assert reports[0] == reports[1]
    # Negative twin: without it rows are protected, and the check says so.
    alone = case.fit(FRAME, SIDE, prepared(case, schema=PLAIN))
    with pytest.raises(AssertionError):
        check_persons(alone.privacy_)


@pytest.mark.parametrize("name", NAMED)
def test_a_wiring_that_forgets_the_unit_is_caught(name, monkeypatch):
    """If a part of a fit read the parameter alone, its report would be that of rows."""
    monkeypatch.setattr(_base.PrivateEstimator, "unit", None)
    case = CASES[name]
    with pytest.raises((AssertionError, ValueError)):
        check_persons(case.fit(RECORDS, SIDE, prepared(case, schema=DECLARED)).privacy_)


def sampler(schema, **params):
    options = {"marginals": [("a", "b")], "population_size": 50, "max_iter": 1} | params
    return TableSampler(schema=schema, **options)


def test_rows_of_a_person_count_once():
    exact = {"epsilon": np.inf}
    assert sampler(DECLARED, **exact).fit(RECORDS).n_records_ == N_PERSONS
    # The same persons with one more row each of their last values: the counts of persons stay.
    assert sampler(PLAIN, **exact).fit(FRAME).n_records_ == N
    rows = sampler(DECLARED, unit_weights="rows", max_rows=3, epsilon=2.0)
    assert rows.fit(RECORDS).privacy_.max_rows == 3
    assert rows.plan(N_PERSONS) == rows.privacy_


def test_the_plan_is_of_persons():
    fitted = sampler(DECLARED, epsilon=2.0).fit(RECORDS)
    assert sampler(DECLARED, epsilon=2.0).plan(N_PERSONS) == fitted.privacy_
    assert sampler(PLAIN, epsilon=2.0).plan(N_PERSONS) != fitted.privacy_


def test_a_ledger_of_persons_takes_fits_of_them_alone(tmp_path):
    path = tmp_path / "a.ledger"
    ledger = PrivacyLedger.create(path, dataset="a", epsilon=9.0, delta=1e-3, unit="person")
    fitted = sampler(DECLARED, ledger=ledger).fit(RECORDS)
    assert fitted.privacy_.ledger["charge"] == 1
    with pytest.raises((ValueError, BudgetExceededError), match="must protect unit 'person'"):
        sampler(PLAIN, ledger=ledger).fit(FRAME)
    assert ledger.spent() == fitted.privacy_.ledger["epsilon"]


def test_a_total_of_rows_and_persons_protects_no_person(tmp_path):
    path = tmp_path / "a.ledger"
    ledger = PrivacyLedger.create(path, dataset="a", epsilon=9.0, delta=1e-3)
    rows = sampler(PLAIN, ledger=ledger).fit(FRAME)
    assert "other_units" not in rows.privacy_.ledger
    with pytest.warns(LedgerUnitWarning, match="Earlier charges .* unit='person'"):
        persons = sampler(DECLARED, ledger=ledger).fit(RECORDS)
    report = persons.privacy_
    assert report.ledger["other_units"] == [{"unit": None, "charges": [1]}]
    assert PrivacyReport.from_dict(json.loads(report.to_json())).ledger == report.ledger
    answers, spending = dict(review_rows(report)), dict(spending_rows(report))
    card = model_card(persons).to_markdown()
    stated = dict(report.to_rows())["ledger"]
    total = spending["spent by all releases"]
    for text in (total, answers["budget"], stated, card, str(ledger.report())):
        assert "one row, replaced by another with the same value of 'person'" in text
        assert "charge 1 protects no person as a whole" in text
    assert ledger.report().to_frame()["unit"].tolist() == [None, "person"]
    # A later fit of rows says so too.
    later = sampler(PLAIN, ledger=ledger).fit(FRAME).privacy_
    assert later.ledger["other_units"] == [{"unit": "person", "charges": [2]}]
    total = dict(spending_rows(later))["spent by all releases"]
    assert "charges 1, 3 protect no person as a whole" in total


def test_a_total_of_persons_alone_has_no_exception(tmp_path):
    path = tmp_path / "a.ledger"
    PrivacyLedger.create(path, dataset="a", epsilon=9.0, delta=1e-3)
    for _ in range(2):
        with pytest.warns(LedgerUnitWarning, match="has no unit"):
            fitted = sampler(DECLARED, ledger=path).fit(RECORDS)
    assert "other_units" not in fitted.privacy_.ledger
    assert "one row" not in str(PrivacyLedger(path).report())
    assert "one row" not in dict(spending_rows(fitted.privacy_))["spent by all releases"]


def test_a_parameter_replaces_the_declaration():
    other = RECORDS.rename(columns={"person": "id"})
    replaced = sampler(DECLARED, unit="id").fit(other)
    assert replaced.privacy_.unit == "id"
    # Records without the declared column are refused, and not fitted as rows.
    with pytest.raises(ValueError, match="unit must be a column of X, got 'person'"):
        sampler(DECLARED).fit(FRAME)
    # None is no way around it.
    assert sampler(DECLARED, unit=None).unit == "person"
    assert replaced.set_params(unit=None).unit == "person"


def test_an_identifier_of_the_schema_may_be_the_unit():
    schema = Schema({**COLUMNS, "person": Identifier()}, unit="person")
    fitted = sampler(schema).fit(RECORDS)
    check_persons(fitted.privacy_)
    assert fitted.sample(5)["person"].is_unique


@pytest.mark.parametrize("make", [JointRandomizedResponse, TabularMechanism])
def test_estimators_that_protect_rows_refuse_it(make):
    with pytest.raises(ValueError, match="schema must declare no unit for"):
        make(epsilon=1.0, schema=DECLARED).fit(FRAME).transform(FRAME)
    make(epsilon=1.0, schema=PLAIN).fit(FRAME).transform(FRAME)


def test_predictors_on_synthetic_rows_take_that_of_their_sampler():
    options = {"n_samples": 50, "n_draws": 1}
    learner = SyntheticDataClassifier(sampler(DECLARED, target="b", marginals="auto"), **options)
    check_persons(learner.fit(RECORDS).privacy_)
    check_persons(learner.plan(N_PERSONS))
    fair = BarycenterClassifier(learner, groups=[0, 1], epsilon=4.0)
    with pytest.raises(ValueError, match="must have no unit of its own, got 'person'"):
        fair.fit(RECORDS.drop(columns="b"), RECORDS["b"], sensitive_features=SIDE)


def test_a_search_protects_the_persons_of_its_candidates():
    search = PrivateSearchCV(sampler(DECLARED), {"max_iter": [1, 2]}, epsilon=8.0, delta=1e-4)
    assert search._protected_unit() == "person"
    plain = PrivateSearchCV(sampler(PLAIN), {"max_iter": [1, 2]}, epsilon=8.0, delta=1e-4)
    assert plain._protected_unit() is None


def test_a_clone_follows_its_schema(tmp_path):
    cap = {"rules": ["a < 0.5 => b == 0"]}
    other = Schema(COLUMNS, unit="id", rules=["a < 0.7 => b == 0"])
    own = sampler(Schema(COLUMNS, unit="person", **cap))
    given = own.get_params()
    assert [given[name] for name in ("unit", "constraints", "public")] == [None] * 3
    copied = clone(own)
    assert (copied.unit, copied.constraints) == ("person", own.schema.rules)
    copied.set_params(schema=other)
    assert (copied.unit, copied.constraints) == ("id", other.rules)
    assert clone(own).set_params(schema=PLAIN).unit is None
    # What is given stays.
    assert clone(sampler(DECLARED, unit="id")).set_params(schema=PLAIN).unit == "id"
    nested = clone(SyntheticDataClassifier(sampler(DECLARED))).set_params(sampler__schema=other)
    assert nested.sampler.unit == "id"
    sampler(DECLARED).fit(RECORDS).save(tmp_path / "model.safetensors")
    assert load(tmp_path / "model.safetensors").unit == "person"


@pytest.mark.parametrize("n_parts", [0, 1])
@pytest.mark.parametrize(("base", "drawn"), [(PLAIN, DECLARED), (DECLARED, PLAIN)])
def test_the_plan_of_a_search_refuses_the_schemas_that_its_fit_refuses(base, drawn, n_parts):
    estimator, name = sampler(base, epsilon=1.0, target="b", marginals="auto"), "schema"
    if n_parts:
        estimator, name = SyntheticDataClassifier(estimator, n_samples=50), "sampler__schema"
    scoring = None if n_parts else utility_scorer("b", n_synthetic=50)
    options = {"epsilon": 8.0, "delta": 1e-4, "scoring": scoring}
    search = PrivateSearchCV(estimator, {name: [base, drawn]}, **options)
    for use in (lambda: search.plan(N_PERSONS), lambda: search.fit(RECORDS)):
        with pytest.raises(ValueError, match=f"must have no {name} with another unit"):
            use()
    same = [base, Schema(base, unit=base.unit, rules=["a < 0.5 => b == 0"])]
    report = PrivateSearchCV(estimator, {name: same}, **options).plan(N_PERSONS)
    assert report.unit == base.unit
