"""LocalTableSampler: what it refuses, and in which words."""

import numpy as np
import pandas as pd
import pytest
from answer_tables import make
from sampler_tables import SCHEMA, table
from sklearn.base import clone

from sklearn_dpgen.domains import Box
from sklearn_dpgen.mechanisms import JointRandomizedResponse, LaplaceMechanism, TabularMechanism
from sklearn_dpgen.schema import Numeric, Schema
from sklearn_dpgen.tables import LocalTableSampler

X = table(100)
MECHANISM = JointRandomizedResponse(3.0, schema=SCHEMA, n_bins=4, random_state=0).fit()
Y = MECHANISM.transform(X)


def other(**parameters):
    """Return answers to another mechanism."""
    return clone(MECHANISM).set_params(**parameters).fit().transform(X)


def from_file(answers):
    """Return answers as they come from a file, which no longer tells where they are from."""
    answers = answers.copy()
    answers.attrs.clear()
    return answers


def refused(answers, match, **options):
    """Check that neither a fit nor a score takes some answers, nor chunks of them."""
    sampler = make(MECHANISM, **options).fit(X if options else Y)
    for method in (sampler.score, sampler.score_samples, make(MECHANISM, **options).fit):
        for given in (answers, [answers[:50], answers[50:]]):
            with pytest.raises(ValueError, match=match):
                method(given)


@pytest.mark.parametrize(
    "mechanism",
    [LaplaceMechanism(1.0, domain=Box(0, 1)), TabularMechanism(1.0, schema=SCHEMA), 3.0]
    + [JointRandomizedResponse],
    ids=["laplace", "tabular", "number", "class"],
)
def test_another_kind_of_mechanism(mechanism):
    sampler = LocalTableSampler(mechanism)
    with pytest.raises(TypeError, match="must be a JointRandomizedResponse, got "):
        sampler.fit(Y)
    repr(sampler)
    assert not hasattr(sampler, "privacy_")


def test_no_mechanism():
    sampler = LocalTableSampler()
    released = TabularMechanism(1.0, schema=SCHEMA).fit_transform(X)
    with pytest.raises(TypeError, match="must be a JointRandomizedResponse, got TabularMechanism"):
        sampler.fit(released)
    for answers in (from_file(Y), [Y[:50], Y[50:]], X):
        with pytest.raises(ValueError, match="records that carry none, got None: pass mechanism="):
            sampler.fit(answers)
    with pytest.raises(ValueError, match="mechanism must be given with privatize=True"):
        LocalTableSampler(privatize=True).fit(X)
    with pytest.raises(ValueError, match="mechanism must be given for plan, got None"):
        sampler.plan()


def test_a_mechanism_without_noise():
    truthful = JointRandomizedResponse(np.inf, schema=SCHEMA, n_bins=4)
    with pytest.raises(ValueError, match="epsilon must be finite, got inf"):
        make(truthful, privatize=True).fit(X)


def test_answers_under_another_budget():
    refused(from_file(other(epsilon=2.5)), "given with epsilon=2.5, .* has epsilon=3:")
    refused(other(epsilon=2.5), "epsilon=2.5.* epsilon=3[:,]")
    mixed = from_file(Y).assign(epsilon=np.where(np.arange(100) == 60, 4.0, 3.0))
    with pytest.raises(ValueError, match="epsilon=4, .* epsilon=3:"):
        make(MECHANISM).fit(mixed)


def test_answers_of_another_design():
    wider = Schema(dict(SCHEMA) | {"age": Numeric(0, 120, integer=True)})
    for parameters in ({"n_bins": 5}, {"schema": wider}):
        answers = other(**parameters)
        designs = f"{answers['design'][0]}.*{MECHANISM.design_}"
        refused(from_file(answers), f"design '{designs}")
        with pytest.raises(ValueError, match=f"design '{designs}"):
            make(MECHANISM).fit(answers)


def test_other_questions_of_one_design_are_welcome():
    """How many columns are asked, and which, is told by each answer."""
    joined = pd.concat([Y, other(n_asked=1), other(n_asked=3), other(always=["job"])])
    sampler = make(MECHANISM).fit(joined.drop_duplicates())
    assert np.isfinite(sampler.score(joined.drop_duplicates()))


def test_answers_that_were_collected_twice():
    twice = from_file(pd.concat([Y, Y[10:13]], ignore_index=True))
    refused(twice, "3 answers are there twice, with their grouping: .* drop_duplicates")
    assert np.isfinite(make(MECHANISM).fit(twice.drop_duplicates()).score(Y))


@pytest.mark.parametrize(
    ("change", "match"),
    [
        (
            lambda Y: Y.drop(columns="answer"),
            r"missing \['answer'\]|X lacks \['answer'\]",
        ),
        (lambda Y: Y.assign(id=1), r"unknown \['id'\]|and no others"),
        (
            lambda Y: Y.rename(columns={"asked": "ask"}),
            r"missing \['asked'\], |X lacks \['asked'\]",
        ),
        (lambda Y: Y.assign(answer=-1), "'answer' .* integers from 0"),
        (lambda Y: Y.assign(answer=10**6), "'answer' .* below the number asked"),
        (lambda Y: Y.assign(answer=0.5), "'answer' .* integers"),
        (lambda Y: Y.assign(answer=np.nan), "'answer' of the answers must have no missing values"),
        (lambda Y: Y.assign(grouping=2**48), "'grouping' .* integers"),
        (lambda Y: Y.assign(asked='["salary"]'), r"columns of the schema, got \['salary'\]"),
        (lambda Y: Y.assign(asked="age"), "JSON lists of distinct columns"),
        (lambda Y: Y.assign(asked='["age", "age"]'), "JSON lists of distinct columns"),
    ],
)
def test_impossible_answers(change, match):
    refused(change(from_file(Y)), match)


def test_raw_records_in_the_place_of_answers():
    for method in (make(MECHANISM).fit, make(MECHANISM).fit(Y).score):
        with pytest.raises(ValueError, match=r"Raw records are .* privatize=True"):
            method(X)
        with pytest.raises(ValueError, match=r"missing \['asked'"):
            method([X])


def test_answers_in_the_place_of_raw_records():
    sampler = make(MECHANISM, privatize=True).fit(X)
    for method in (sampler.score, make(MECHANISM, privatize=True).fit):
        with pytest.raises(ValueError, match="released these records with epsilon=3 already"):
            method(Y)
        with pytest.raises(ValueError, match="X must be raw records for transform, got answers"):
            method(from_file(Y))


@pytest.mark.parametrize(
    ("change", "match"),
    [
        (lambda X: X.drop(columns="pay"), r"missing \['pay'\]"),
        (lambda X: X.assign(z=1), r"unknown \['z'\]"),
        (lambda X: X.assign(job="judge"), "'job'"),
        (lambda X: X.assign(age=None), "'age'"),
    ],
)
def test_raw_records_that_are_not_as_declared(change, match):
    refused(change(X), match, privatize=True)


@pytest.mark.parametrize("privatize", [False, True])
def test_nothing_to_learn_from(privatize):
    given = X if privatize else Y
    for nothing in (given[:0], [], [given[:0]], iter([])):
        with pytest.raises(ValueError, match="0 sample"):
            make(MECHANISM, privatize=privatize).fit(nothing)


@pytest.mark.parametrize("n_samples", [0, -1, 2.5, True, "3", None])
def test_numbers_of_samples(n_samples):
    with pytest.raises(ValueError, match="n_samples must be an integer of at least 1"):
        make(MECHANISM).fit(Y).sample(n_samples)


def test_what_does_not_fit_in_memory(monkeypatch):
    sampler = make(MECHANISM).fit(Y)
    with pytest.raises(ValueError, match=r"n_samples=10{12} .* GiB"):
        sampler.sample(10**12)
    monkeypatch.setattr("sklearn_dpgen.utils._checks._memory", lambda: 2**28)
    with pytest.raises(ValueError, match=r"population_size would take .* GiB"):
        make(MECHANISM, population_size=10**6).fit(Y)


@pytest.mark.parametrize(
    ("name", "value"),
    [("population_size", 1), ("prior", -1.0), ("prior", "small"), ("max_iter", 0)]
    + [("batch_size", 0), ("batch_size", "all"), ("learning_rate", 0.0), ("n_init", 0)]
    + [("early_stopping", "auto"), ("random_state", "x"), ("verbose", -1), ("privatize", "yes")],
)
def test_parameters(name, value):
    with pytest.raises(ValueError, match=f"The '{name}' parameter"):
        make(MECHANISM, **{name: value}).fit(Y)
