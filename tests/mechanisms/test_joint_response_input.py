"""What joint answers refuse: parameters, records and answers, without a private value."""

import io
import math
import traceback

import numpy as np
import pandas as pd
import pytest
import torch
from joint_cases import CATEGORIES, RECORDS, SCHEMA, mechanism, n_cells
from sklearn.base import clone

from sklearn_dpgen.accounting import Bound, Event
from sklearn_dpgen.mechanisms import (
    JointRandomizedResponse,
    LaplaceMechanism,
    TabularMechanism,
)
from sklearn_dpgen.schema import Categorical, Numeric, Schema
from sklearn_dpgen.tables import LocalTableSampler

SECRET = 7.7725
WIDE = Schema({f"c{i}": Categorical(range(5)) for i in range(12)})


@pytest.mark.parametrize(
    ("options", "error", "message"),
    [
        ({"epsilon": 0.0}, ValueError, "'epsilon' parameter"),
        ({"epsilon": -1.0}, ValueError, "'epsilon' parameter"),
        ({"epsilon": math.nan}, ValueError, "'epsilon' parameter"),
        ({"epsilon": "1"}, ValueError, "'epsilon' parameter"),
        ({"schema": None}, ValueError, "'schema' parameter"),
        ({"schema": {"a": [0, 1]}}, ValueError, "'schema' parameter"),
        ({"n_bins": "many"}, ValueError, "'n_bins' parameter"),
        ({"n_bins": {"z": 3}}, ValueError, "z"),
        ({"n_asked": 0}, ValueError, "'n_asked' parameter"),
        ({"n_asked": 1.5}, ValueError, "'n_asked' parameter"),
        ({"n_asked": "all"}, ValueError, "'n_asked' parameter"),
        ({"n_asked": 4}, ValueError, "n_asked must be at most the 3 columns to ask about, got 4"),
        (
            {"n_asked": 1, "always": ["a", "c"]},
            ValueError,
            "n_asked must be at least the 2 columns of always, got 1",
        ),
        ({"always": "a"}, ValueError, "'always' parameter"),
        (
            {"always": ["a", "z"]},
            ValueError,
            r"always must name columns of the schema, got \['z'\]",
        ),
        ({"always": ["a", "a"]}, ValueError, "always must name distinct columns"),
        (
            {"weights": {"z": 1.0}},
            ValueError,
            r"weights must name columns of the schema, got \['z'\]",
        ),
        ({"weights": [1.0, 2.0, 3.0]}, ValueError, "'weights' parameter"),
        *(
            (
                {"weights": {"a": 1.0, "c": w}},
                ValueError,
                r"weights must be .*, got others for \['c'\]",
            )
            for w in (0, -1.0, math.nan, math.inf, "2", None, True, 1e7)
        ),
        ({"index": "drop"}, ValueError, "'index' parameter"),
        ({"random_state": -1}, ValueError, "'random_state' parameter"),
        (
            {"schema": WIDE, "n_asked": 5},
            ValueError,
            "n_asked must be at most 4 for epsilon=1, .* got 5",
        ),
        (
            {"schema": WIDE, "always": [f"c{i}" for i in range(5)]},
            ValueError,
            "always must name at most 4 columns .* epsilon=1, got 5",
        ),
    ],
)
def test_bad_parameters(options, error, message):
    with pytest.raises(error, match=message):
        JointRandomizedResponse(**{"schema": SCHEMA, **options}).fit()


def test_what_is_just_allowed():
    assert JointRandomizedResponse(1.0, schema=WIDE, n_asked=4).fit().n_asked_ == 4
    assert JointRandomizedResponse(1e-50, schema=WIDE, n_asked=4).fit().n_asked_ == 4
    assert JointRandomizedResponse(4.0, schema=WIDE, n_asked=6).fit().n_asked_ == 6
    assert mechanism(n_asked=2, always=("c", "a")).n_asked_ == 2
    assert mechanism(n_asked=np.int64(3), weights={"a": 1e-6, "c": 1e6}).n_asked_ == 3
    one = Schema({"only": Categorical([0, 1])})
    assert JointRandomizedResponse(1.0, schema=one).fit().n_asked_ == 1


def test_a_fit_that_fails_leaves_nothing_fitted():
    fitted = mechanism()
    with pytest.raises(
        ValueError, match="n_asked must be at most the 3 columns to ask about, got 9"
    ):
        fitted.set_params(n_asked=9).fit()
    with pytest.raises(ValueError, match="is not fitted"):
        fitted.transform(RECORDS)
    assert not hasattr(fitted, "privacy_")
    for call in ("transform", "encode_release", "expected_variation", "get_feature_names_out"):
        arguments = () if call == "get_feature_names_out" else (RECORDS,)
        with pytest.raises(ValueError, match="is not fitted"):
            getattr(JointRandomizedResponse(schema=SCHEMA), call)(*arguments)


NUMBERS = Schema({"age": Numeric(0, 100), "sex": Categorical(["f", "m"])})


@pytest.mark.parametrize(
    ("records", "message"),
    [
        (pd.DataFrame({"age": [SECRET]}), r"missing \['sex'\]"),
        (pd.DataFrame({"age": [SECRET], "sex": ["f"], "id": [SECRET]}), r"unknown \['id'\]"),
        (pd.DataFrame([[SECRET, "f", "f"]], columns=["age", "sex", "sex"]), r"once \['sex'\]"),
        (pd.DataFrame({"age": [f"{SECRET}x"], "sex": ["f"]}), "'age'"),
        (pd.DataFrame({"age": [1.0], "sex": [f"{SECRET}"]}), "'sex'"),
        (pd.DataFrame({"age": [np.nan], "sex": ["f"]}), "'age'"),
        (pd.DataFrame({"age": [SECRET], "sex": [None]}), "'sex'"),
        (np.array([[SECRET]]), "X has 1 features"),
        ([[SECRET, "f"], [SECRET]], "must hold real numbers in two dimensions"),
        (pd.DataFrame({"age": [], "sex": []}), r"0 sample\(s\)"),
        ([], r"0 sample\(s\)"),
        (iter([]), r"0 sample\(s\)"),
    ],
)
def test_bad_records(records, message):
    fitted = JointRandomizedResponse(schema=NUMBERS).fit()
    with pytest.raises(ValueError, match=message) as caught:
        fitted.transform(records)
    assert str(SECRET) not in "".join(traceback.format_exception(caught.value))


def test_a_chunk_that_is_no_frame():
    with pytest.raises(TypeError, match="Chunks of X must be data frames"):
        mechanism().transform(iter([RECORDS, [[1, 2, 3]]]))


def unlabelled(Y):
    """Return answers as they come back from a text file."""
    return pd.read_csv(io.StringIO(Y.to_csv(index=False)))


def edited(**values):
    """Return answers with other values in the second row."""
    Y = unlabelled(mechanism(random_state=0, n_asked=2).transform(RECORDS)).astype(object)
    for name, value in values.items():
        Y.at[1, name] = value
    return Y


def test_unedited_answers_are_accepted():
    assert mechanism().encode_release(edited()).shape == (30, 6)
    # Rows that are missing are people who did not answer.
    assert mechanism().encode_release(edited()[::3]).shape == (10, 6)


@pytest.mark.parametrize(
    ("values", "message"),
    [
        *(
            ({name: None}, f"'{name}' of the answers must have no missing")
            for name in edited().columns
        ),
        ({"asked": "a"}, "'asked' .* JSON lists of distinct columns"),
        ({"asked": '["a", "b"'}, "'asked' .* JSON lists"),
        ({"asked": "[" * 100_000}, "'asked' .* JSON lists"),
        ({"asked": "[]"}, "'asked' .* JSON lists"),
        ({"asked": '{"a": 1}'}, "'asked' .* JSON lists"),
        ({"asked": '["a", 1]'}, "'asked' .* JSON lists"),
        ({"asked": '["a", "a"]'}, "'asked' .* JSON lists of distinct"),
        *(({"asked": value}, "'asked' .* JSON lists") for value in (5, ["a", "b"], {"a": 1})),
        ({"asked": '["a", "z"]'}, r"must name columns of the schema, got \['z'\]"),
        *(
            ({"grouping": value}, "'grouping' .* must hold integers")
            for value in (-1, 2**48, 0.5, "key", math.inf, -math.inf)
        ),
        *(
            ({"answer": value}, "'answer' .* must hold integers")
            for value in (-1, 30, 0.5, "yes", math.inf, 10**400, 1 + 0j, True, [1])
        ),
        ({"asked": '["a", "b"]', "answer": 6}, "'answer' .* must hold integers"),
        ({"epsilon": 2.0}, "given with epsilon=2, but mechanism has epsilon=1"),
        ({"epsilon": 1.000001}, "given with epsilon=1"),
        ({"epsilon": "much"}, "Column 'epsilon' of the answers must hold numbers"),
        ({"design": "0123456789abcdef"}, "design '0123456789abcdef', but mechanism is of '"),
        ({"design": 5}, "design 5, but mechanism is of '"),
    ],
)
def test_bad_answers(values, message):
    with pytest.raises(ValueError, match=message):
        mechanism().encode_release(edited(**values))
    with pytest.raises(ValueError, match=message):
        LocalTableSampler(mechanism(), max_iter=1, device="cpu").fit(edited(**values))


def test_too_many_columns_in_one_answer():
    wide = JointRandomizedResponse(1.0, schema=WIDE).fit()
    Y = wide.transform(pd.DataFrame([[0] * 12], columns=list(WIDE))).drop(columns="asked")
    five = Y.assign(asked='["c0", "c1", "c2", "c3", "c4"]', answer=0)
    with pytest.raises(ValueError, match="at most 4 columns at once for this budget, got 5"):
        wide.encode_release(unlabelled(five))


def test_the_impossible_answer_is_the_first_one():
    for asked in ('["a"]', '["a", "b"]', '["a", "c"]', '["c","b","a"]'):
        fitted, most = mechanism(), n_cells(asked, 1.0)
        fitted.encode_release(edited(asked=asked, answer=most - 1))
        with pytest.raises(ValueError, match="'answer'"):
            fitted.encode_release(edited(asked=asked, answer=most))


def test_answers_that_are_there_twice():
    Y = mechanism(random_state=0).transform(RECORDS)
    twice = pd.concat([Y, Y[3:5]])
    for answers in (twice, unlabelled(twice), [Y, Y[3:5]], unlabelled(twice).astype(str)):
        with pytest.raises(ValueError, match="2 answers are there twice, with their grouping"):
            mechanism().encode_release(answers)
    assert len(mechanism().encode_release(twice.drop_duplicates())) == 30


OTHERS = {
    "budget": JointRandomizedResponse(2.0, schema=SCHEMA),
    "categories": JointRandomizedResponse(
        1.0, schema=Schema({**SCHEMA, "a": Categorical(["y", "x", "z"])})
    ),
    "kind": JointRandomizedResponse(
        1.0, schema=Schema({**SCHEMA, "c": Categorical(CATEGORIES["c"])})
    ),
    "order of the columns": JointRandomizedResponse(
        1.0, schema=Schema({name: SCHEMA[name] for name in "bac"})
    ),
    "another column": JointRandomizedResponse(
        1.0, schema=Schema({**SCHEMA, "d": Categorical([0, 1])})
    ),
}


@pytest.mark.parametrize("name", OTHERS)
def test_answers_to_another_mechanism(name):
    other = clone(OTHERS[name]).fit()
    X = RECORDS.assign(d=1)[list(other.schema)]
    Y = other.transform(X)
    fitted = mechanism()
    budget = "epsilon=2, but mechanism has epsilon=1"
    designs = f"{other.design_!r}, but mechanism is of {fitted.design_!r}"
    with pytest.raises(ValueError, match=budget if name == "budget" else designs):
        fitted.encode_release(unlabelled(Y))
    with pytest.raises(ValueError, match=budget if name == "budget" else designs):
        fitted.encode_release(Y)
    joined = pd.concat([unlabelled(fitted.transform(RECORDS)), unlabelled(Y)])
    with pytest.raises(ValueError, match=budget if name == "budget" else designs):
        fitted.encode_release(joined)
    assert len(other.encode_release(unlabelled(Y))) == 30


def test_bins_are_of_the_design():
    schema = Schema({"age": Numeric(0, 100), "sex": Categorical(["f", "m"])})
    X = pd.DataFrame({"age": [1.0, 50.0], "sex": ["f", "m"]})
    designs = {}
    for bins in ("auto", 16, {"age": 16}, {}, 8, {"age": [0, 50, 100]}, {"age": [0, 51, 100]}):
        fitted = JointRandomizedResponse(1.0, schema=schema, n_bins=bins).fit()
        designs.setdefault(fitted.design_, []).append(bins)
        assert len(fitted.encode_release(unlabelled(fitted.transform(X)))) == 2
    assert list(designs.values()) == [
        ["auto", 16, {"age": 16}, {}],
        [8],
        [{"age": [0, 50, 100]}],
        [{"age": [0, 51, 100]}],
    ]


def test_records_and_answers_are_not_taken_for_one_another():
    fitted = mechanism(random_state=0)
    Y = fitted.transform(RECORDS)
    with pytest.raises(ValueError, match="released these records with epsilon=1 already"):
        fitted.transform(Y)
    for answers in (unlabelled(Y), [Y], Y.to_numpy()):
        with pytest.raises(
            ValueError, match="columns of the schema|columns must be those|X must be raw records"
        ):
            fitted.transform(answers)
    with pytest.raises(
        ValueError, match="X must have the columns of answers .* Raw records are for"
    ):
        fitted.encode_release(RECORDS)
    with pytest.raises(ValueError, match="X must have the columns of answers"):
        LocalTableSampler(mechanism(), device="cpu").fit(RECORDS)
    with pytest.raises(ValueError, match="released these records"):
        LocalTableSampler(mechanism(), privatize=True, device="cpu").fit(Y)
    for other in (LaplaceMechanism(domain=fitted.domain_), TabularMechanism(schema=SCHEMA)):
        with pytest.raises(ValueError, match="JointRandomizedResponse with epsilon=1"):
            other.fit().encode_release(Y)
        with pytest.raises(ValueError, match="released these records"):
            other.fit().transform(Y)


@pytest.mark.parametrize("place", range(5))
def test_an_array_in_the_place_of_answers(place):
    """It may be of raw records, which have no names: no value of it is told."""
    fitted = mechanism()
    row = ['["a"]', 1, 1, 1.0, fitted.design_]
    row[place] = ['["SECRET"]', SECRET, SECRET, SECRET, "SECRET"][place]
    array = np.array([row] * 3, dtype=object)
    for given in (array, array.tolist()):
        for take in (fitted.encode_release, LocalTableSampler(fitted, device="cpu").fit):
            with pytest.raises(ValueError, match="X must have the columns of answers") as caught:
                take(given)
            assert str(SECRET) not in str(caught.value)
            assert "SECRET" not in str(caught.value)


def test_likelihood_shapes():
    fitted = mechanism(n_asked=2)
    Y = torch.tensor(fitted.encode_release(fitted.transform(RECORDS)))
    X = torch.eye(10, dtype=torch.float64)
    assert fitted.log_likelihood(X, Y).shape == (10, 30)
    assert fitted.log_likelihood(X[:0], Y).shape == (0, 30)
    for bad in (X[:, :9], X[0]):
        with pytest.raises(ValueError, match=r"X must have shape \(n, 10\)"):
            fitted.log_likelihood(bad, Y)
    for bad in (Y[:, :4], Y[0]):
        with pytest.raises(ValueError, match="Y must be encoded answers"):
            fitted.log_likelihood(X, bad)


def test_the_input_is_left_alone():
    X, Y = RECORDS.copy(), mechanism(random_state=0).transform(RECORDS)
    before = Y.copy()
    mechanism().fit(X).transform(X)
    mechanism().encode_release(Y)
    pd.testing.assert_frame_equal(X, RECORDS)
    pd.testing.assert_frame_equal(Y, before)


def test_the_report():
    report = mechanism(2.0, n_asked=2).privacy_
    assert (report.epsilon, report.delta) == (2.0, 0.0)
    assert report.events == (Event("joint_answer", 2, 3),)
    assert report.is_local
    assert report.bounds == (Bound("declared_records"),)
    assert "each_call" in report.caveats


def test_two_people_may_have_one_key():
    # Of tens of millions some do; their answers are not the same.
    Y = mechanism().transform(RECORDS)
    Y["grouping"] = Y["grouping"].iloc[0]
    Y = Y.drop_duplicates(["asked"]).reset_index(drop=True)
    Y["answer"] = 0
    assert len(Y) > 1
    assert len(mechanism().encode_release(Y)) == len(Y)
    with pytest.raises(ValueError, match="1 answers are there twice"):
        mechanism().encode_release(pd.concat([Y, Y.iloc[:1]]))


def test_a_schema_of_the_columns_of_answers():
    names = ["asked", "grouping", "answer", "epsilon", "design"]
    schema = Schema({name: Categorical([0, 1]) for name in names})
    with pytest.raises(ValueError, match="schema must not have all the columns of answers"):
        JointRandomizedResponse(1.0, schema=schema).fit()
    JointRandomizedResponse(1.0, schema=Schema({n: Categorical([0, 1]) for n in names[1:]})).fit()


@pytest.mark.parametrize(
    ("n_samples", "error"), [(0, ValueError), (-1, ValueError), (None, TypeError)]
)
def test_expected_variation_of_no_people(n_samples, error):
    with pytest.raises(error, match="n_samples must be"):
        mechanism().expected_variation(n_samples)
