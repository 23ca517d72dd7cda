"""Conditions and rules as texts: what they mean, and that nothing else is read."""

import datetime
import re

import numpy as np
import pandas as pd
import pytest

from sklearn_dpgen.schema import (
    Categorical,
    Datetime,
    Implication,
    Inequality,
    Numeric,
    Ordinal,
    Schema,
    Sum,
)
from sklearn_dpgen.schema._expressions import Scope, read_rule, read_where, shown_rule
from sklearn_dpgen.tables._table_rules import TableRules

SCHEMA = Schema(
    {
        "age": Numeric(0, 100, integer=True),
        "length of stay": Numeric(0, 50, nullable=True),
        "ward": Categorical(["A", "B", "C"], nullable=True),
        "grade": Ordinal(["low", "mid", "high"]),
        "admitted": Datetime("2020-01-01", "2021-01-01"),
        "discharged": Datetime("2020-01-01", "2021-01-01"),
        "note": Categorical(["=>", "`x` and"]),
        "a": Numeric(0, 50),
        "b": Numeric(0, 50),
    }
)
LAST = pd.Timestamp("2021-01-01")


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("age == 30", {"age": [30]}),
        ("age >= 65", {"age": [pd.Interval(65, 100.0, closed="both")]}),
        ("65 > age", {"age": [pd.Interval(0.0, 65, closed="left")]}),
        ("18 <= age < 65", {"age": [pd.Interval(18, 65, closed="left")]}),
        ("age > 18 and age <= 65", {"age": [pd.Interval(18, 65, closed="right")]}),
        (
            "age < 18 or age >= 65",
            {"age": [pd.Interval(0.0, 18, closed="left"), pd.Interval(65, 100.0, closed="both")]},
        ),
        (
            "age != 30",
            {"age": [pd.Interval(0.0, 30, closed="left"), pd.Interval(30, 100.0, closed="right")]},
        ),
        ("ward == 'B'", {"ward": ["B"]}),
        ("ward in ['A', 'B'] and ward != 'A'", {"ward": ["B"]}),
        ("ward not in ('A', 'B')", {"ward": ["C"]}),
        ("ward == None or ward == 'A'", {"ward": [None, "A"]}),
        ("grade >= 'mid'", {"grade": ["mid", "high"]}),
        ("grade < 'mid'", {"grade": ["low"]}),
        ("`length of stay` <= 3.5", {"length of stay": [pd.Interval(0.0, 3.5, closed="both")]}),
        ("a > -1", {"a": [pd.Interval(-1, 50.0, closed="right")]}),
        (
            "admitted > '2020-06-01'",
            {"admitted": [pd.Interval(pd.Timestamp("2020-06-01"), LAST, closed="right")]},
        ),
        ("age >= 65 and note == '`x` and'", {"age": [pd.Interval(65, 100.0, closed="both")],
                                             "note": ["`x` and"]}),
    ],
)  # fmt: skip
def test_a_condition_is_what_it_says(text, expected):
    assert read_where(text, SCHEMA) == expected


@pytest.mark.parametrize(
    "text",
    [
        "",
        "age",
        "age == ",
        "age == b",
        "age + 1 == 3",
        "not age == 3",
        "age == 3 or ward == 'A'",
        "ward < 'B'",
        "age < 'B'",
        "age in 3",
        "admitted > 3",
        "admitted > 'soon'",
        "age > 200",
        "__import__('os').system('true')",
        "age == __import__('os').getpid()",
        "age.__class__ == 3",
        "(lambda: 3)() == age",
        "[x for x in [1]] == age",
        "age == f'{1}'",
        "age == (y := 3)",
        "age == 1; age == 2",
        "age == b'x'",
        "1 == 1",
        "(" * 3000 + "age",
        "age == 1 and " * 2000 + "age == 1",
    ],
)
def test_what_is_no_condition_is_refused(text):
    with pytest.raises(ValueError, match="--where"):
        read_where(text, SCHEMA)


DATES = ["01/02/2020", "13/02/2020", "2020", "2020-02", "Feb 2020", "Feb 1, 2020", "01.02.2020"]


@pytest.mark.parametrize("date", DATES)
def test_a_date_that_is_not_in_iso_8601_is_refused(date):
    text = f"admitted > '{date}'"
    with pytest.raises(ValueError, match="ISO 8601: write '2019-02-01'"):
        read_where(text, SCHEMA)
    with pytest.raises(ValueError, match="ISO 8601: write '2019-02-01'"):
        read_rule(f"{text} => ward == 'A'", Scope(SCHEMA))
    entry = {"type": "implication", "then": {"ward": "A"}}
    for given in ({"admitted": date}, {"admitted": {"low": date, "high": "2020-12-01"}}):
        with pytest.raises(ValueError, match="admitted"):
            TableRules(Schema(dict(SCHEMA), rules=[entry | {"given": given}]).rules, SCHEMA)
    with pytest.raises(ValueError, match="'admitted'"):
        TableRules([Implication({"admitted": date}, {"ward": "A"})], SCHEMA)


@pytest.mark.parametrize(
    "date", ["2020-02-01", "20200201", "2020-02-01T00:00:00", "2020-02-01 01:00+01:00"]
)
def test_a_date_in_iso_8601_is_read_as_that_of_a_bound(date):
    (interval,) = read_where(f"admitted > '{date}'", SCHEMA)["admitted"]
    assert interval.left == pd.Timestamp("2020-02-01") == pd.Timestamp(Datetime(date, LAST).low)
    given = {"admitted": {"low": date, "high": "2020-12-01"}}
    entry = {"type": "implication", "given": given, "then": {"ward": "A"}}
    (rule,) = Schema(dict(SCHEMA), rules=[entry]).rules
    assert rule.given["admitted"].left == pd.Timestamp("2020-02-01")
    TableRules([rule, Implication({"admitted": date}, {"ward": "A"})], SCHEMA)


def test_an_unknown_column_is_named():
    with pytest.raises(ValueError, match="'wards' is no column of the schema"):
        read_where("wards == 'A'", SCHEMA)
    with pytest.raises(ValueError, match="leaves no value of 'age'"):
        read_where("age < 20 and age > 30", SCHEMA)


@pytest.mark.parametrize(
    ("text", "rule"),
    [
        ("admitted <= discharged", Inequality("admitted", "discharged")),
        ("discharged > admitted", Inequality("admitted", "discharged", strict=True)),
        ("`length of stay` == a + b", Sum("length of stay", ["a", "b"])),
        (
            "note == '=>' and age == 3 => grade == 'low'",
            Implication({"note": ["=>"], "age": [3]}, then={"grade": ["low"]}),
        ),
        (
            "age < 18 => ward in ['A', 'B']",
            Implication({"age": [pd.Interval(0.0, 18, closed="left")]}, then={"ward": ["A", "B"]}),
        ),
    ],
)
def test_a_rule_is_what_it_says(text, rule):
    assert read_rule(text, Scope(SCHEMA), "--rule") == rule


@pytest.mark.parametrize(
    "text",
    ["age", "age <= 3", "a == b", "a + b <= age", "a <= b <= age", "a == a + b", "age == 3 => age"],
)
def test_what_is_no_rule_is_refused(text):
    with pytest.raises(ValueError, match="--rule"):
        read_rule(text, Scope(SCHEMA), "--rule")


DATE = pd.Timestamp("2020-06-01")
UP = pd.Interval(65, float("inf"), closed="left")


@pytest.mark.parametrize(
    ("rule", "text"),
    [
        (
            Implication({"admitted": [pd.Interval(DATE, LAST, closed="right")]}, {"ward": ["A"]}),
            "admitted > '2020-06-01' => ward == 'A'",
        ),
        (Implication({"age": np.int64(3)}, {"ward": {"A"}}), "age == 3 => ward == 'A'"),
        (Implication({"age": UP}, {"ward": (None, "B")}), "age >= 65 => ward in [None, 'B']"),
        (Implication({"a": np.float64(0.5)}, {"b": float("nan")}), "a == 0.5 => b == None"),
        (
            Implication({"admitted": datetime.date(2020, 6, 1)}, {"length of stay": 1}),
            "admitted == '2020-06-01' => `length of stay` == 1",
        ),
    ],
)
def test_a_rule_is_shown_as_its_text(rule, text):
    assert shown_rule(rule, Scope(SCHEMA)) == text


CODES = Schema(
    dict(SCHEMA)
    | {
        "sex": Categorical(["F", "M"]),
        "Raucher": Categorical(["ja", "nein"]),
        "PLZ": Categorical(["10115", "01067"]),
        "grade in school": Categorical([1, 2]),
        "x-ray": Numeric(0, 5000),
        "Größe": Numeric(0, 5000),
    }
)
MISTAKES = {
    "a = 5": "write == in place of =.",
    "Größe = 5": "write == in place of =.",
    "a =< 5": "write <= in place of =<",
    "a => 5": "write >= ",
    "a <> 5": "write != in place of <>",
    "a > 1 & b > 1": "write 'and' in place of &",
    "a > 1 AND b > 1": "in small letters",
    "a is null": "write == None",
    "a is not null": "write != None",
    "sex == F": "put texts in quotes, as 'F'",
    "sex == ‘F’": "write plain quotes",
    "length of stay > 3": "put the name in backticks: `length of stay`",
    "x-ray > 3": "put the name in backticks: `x-ray`",
    "'a' > 3": "the name of a column stands without quotes",
    "sexx == 'F'": "'sexx' is no column of the schema: did you mean 'sex'?",
    "city == 'F'": "'city' is no column of the schema: it has 'age', 'length of stay', 'ward'",
    "PLZ == 01067": "put codes in quotes: '01067'",
    "PLZ == 10115": "Column 'PLZ' has no label 10115: quote it: '10115'",
    "`grade in school` == '1'": "has no label '1': write 1, unquoted",
    "Raucher == 'nien'": "Column 'Raucher' has no label 'nien': did you mean 'nein'?",
    "Raucher in ['ja', 'xx']": "Column 'Raucher' has no label 'xx': it has 'ja', 'nein'",
    "Raucher != 'xx'": "Column 'Raucher' has no label 'xx'",
    "a > 100,5": "write numbers with a decimal point: 100.5",
    "`x-ray` > 5001": "the bounds of 'x-ray' are 0 to 5000",
    "a == 77": "the bounds of 'a' are 0 to 50",
    "a < 0": "the bounds of 'a' are 0 to 50",
    "a > '3'": "write numbers without quotes",
    "admitted > '2025-01-01'": "the bounds of 'admitted' are 2020-01-01 to 2021-01-01",
    "admitted > 2020-02-03": "put dates in quotes",
    "age == b": "and 'b' is a column",
}


@pytest.mark.parametrize("text", MISTAKES)
def test_each_mistake_has_its_own_advice(text):
    with pytest.raises(ValueError, match=re.escape(MISTAKES[text])) as caught:
        read_where(text, CODES)
    assert "it must be comparisons" not in str(caught.value)
    with pytest.raises(ValueError, match=re.escape(MISTAKES[text])):
        read_rule(f"b == 1 => {text}" if "=>" not in text else text, Scope(CODES))


@pytest.mark.parametrize(
    "text",
    [
        "sex == 'F' and a == 50",
        "PLZ == '01067' and a >= 0.5",
        "`grade in school` in [1,2]",
        "sex in ['F', 'M'] and Größe <= 5000",
        "ward == None",
        "a <= 77",
    ],
)
def test_twins_without_the_mistakes_are_read(text):
    assert read_where(text, CODES)


def test_an_undeclared_label_of_a_rule_is_named_with_its_rule():
    entry = {"type": "implication", "given": {"a": 1}, "then": {"Raucher": "nien"}}
    message = r"rules\[2\] \(the third rule\): Column 'Raucher' has no label 'nien': did you"
    rules = ["a <= b", "sex == 'F' => a <= 10", entry]
    with pytest.raises(ValueError, match=message):
        Schema(dict(CODES), rules=rules)
    with pytest.raises(ValueError, match=message):
        Schema(dict(CODES), rules=[*rules[:2], Implication({"a": 1}, {"Raucher": "nien"})])
    with pytest.raises(ValueError, match=r"\(the third rule\) .*'Raucher' has no label 'nien'"):
        Schema(dict(CODES), rules=[*rules[:2], "a == 1 => Raucher == 'nien'"])
    with pytest.raises(ValueError, match=r"constraints\[0\], Implication: .* no label 'nien'"):
        TableRules([Implication({"a": 1}, {"Raucher": "nien"})], CODES)
    entry["then"] = {"Raucher": "nein"}
    assert len(Schema(dict(CODES), rules=rules).rules) == 3


STAYS = """\
admitted: {type: numeric, low: 0, high: 30, integer: true}
left: {type: numeric, low: 0, high: 60, integer: true}
ward: {type: categorical, categories: [A, B]}
"""


@pytest.fixture
def stays(folder):
    table = pd.DataFrame({"admitted": [i % 31 for i in range(300)]})
    table["left"] = table["admitted"] + [i % 7 for i in range(300)]
    table["ward"] = ["A" if i % 3 else "B" for i in range(300)]
    table.to_csv("stays.csv", index=False)
    (folder / "stays.yaml").write_text(STAYS, encoding="utf-8")
    return folder


FIT = ("synthesize", "stays.csv", "--schema", "stays.yaml", "--epsilon", "1")


@pytest.mark.slow
def test_rows_fulfil_rules_and_conditions(run, stays):
    other = ("--rule", "admitted > 3 => left > 3")
    done = run(*FIT, "--out", "out", "--rule", "admitted <= left", *other, "--json")
    assert done.code == 0, done.err
    assert any("; admitted > 3 => left > 3" in line for line in done.json["verdict"]["fit"])
    rows = pd.read_csv("out/synthetic.csv")
    assert (rows["admitted"] <= rows["left"]).all()
    assert any("admitted ≤ left" in line for line in done.json["verdict"]["fit"])
    # The twin: without the rule some rows break it.
    assert run(*FIT, "--out", "twin").code == 0
    twin = pd.read_csv("twin/synthetic.csv")
    assert (twin["admitted"] > twin["left"]).any()
    where = ("--rows", "50", "--where", "10 <= admitted < 20 and ward == 'B'")
    done = run("sample", "out/model.safetensors", *where, "--out", "some.csv")
    assert done.code == 0, done.err
    some = pd.read_csv("some.csv")
    assert len(some) == 50
    assert some["admitted"].between(10, 19).all()
    assert (some["ward"] == "B").all()
    assert (some["admitted"] <= some["left"]).all()


@pytest.mark.parametrize("rule", ["admitted <= gone", "admitted", "ward <= left"])
def test_a_wrong_rule_is_refused_before_a_budget_is_spent(run, stays, rule):
    done = run(*FIT, "--out", "out", "--rule", rule)
    assert done.code == 2
    assert "spent" not in done.err
    assert not (stays / "out").exists()
