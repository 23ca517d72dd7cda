"""Rules that do not fit are refused before a record is read, with their place, column and why."""

import re

import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from rule_tables import CITIES, RULES, SCHEMA, breaks, make

from sklearn_dpgen.schema import (
    Categorical,
    Datetime,
    FunctionalDependency,
    Identifier,
    Implication,
    Inequality,
    Numeric,
    Ordinal,
    Schema,
    Sum,
)
from sklearn_dpgen.tables import _table_sampler
from sklearn_dpgen.tables._table_rules import TableRules

WIDE = Schema(
    dict(SCHEMA)
    | {
        "later": Datetime("2022-01-01", "2022-12-31"),
        "small": Numeric(-9, -5),
        "third": Numeric(0, 60, integer=True),
        "answer": Ordinal([False, True]),
        "tiny": Ordinal([0, 1, 2]),
        "huge": Ordinal([0, 2**62]),
        "great": Ordinal([1, 2**62]),
    }
)
ONE_DAY = {"2020-02-01": "NW", pd.Timestamp("2020-02-01"): "RP"}
ERRORS = [
    ([1], "constraints[0] must be a rule, got int"),
    ([RULES[0], Inequality("low", "nobody")], "constraints[1], Inequality must name columns of"),
    ([Sum("sum", ["low", "nobody"])], "schema, got 'nobody'"),
    ([Inequality("key", "low")], "must name measured columns, got the identifier 'key'"),
    ([Inequality("city", "low")], "'city' and 'low' must both be numeric, or both be dates"),
    ([Inequality("answer", "low")], "'answer' and 'low' must both be numeric"),
    ([Inequality("start", "low")], "'start' and 'low' must both be numeric, or both be dates"),
    ([Implication({"city": "Bern"}, {"low": 1})], "conditions on 'city'|Column 'city'"),
    ([Implication({"low": 21}, {"city": "Bonn"})], "conditions on 'low' must hold declared values"),
    ([Implication({"low": 1}, {"city": None})], "Column 'city' has missing values but is not"),
    ([Implication({"low": (1, 2)}, {"city": "Bonn"})], "conditions on 'low' must not be a tuple"),
    (
        [Implication({"low": pd.Interval(30, 40)}, {"city": "Bonn"})],
        "that contain a declared value",
    ),
    ([Implication({"low": []}, {"city": "Bonn"})], "must list at least one value"),
    ([Sum("low", ["city", "other"])], "column 'city' must be numeric"),
    ([Sum("third", ["low", "high"])], "column 'third' must be nullable, as 'high' is"),
    ([Sum("third", ["low", "tenth"])], "so part 'tenth' must be of integers"),
    ([Sum("tenth", ["real", "low"])], "'tenth' has a grid and part 'real' has none"),
    ([Sum("level", ["tenth", "low"])], "'level' has listed values or integers, so part 'tenth'"),
    ([Sum("small", ["low", "tenth"])], "no sum of ['low', 'tenth'] is within the bounds"),
    # Twice 2^62 is -2^63 in 64 bits.
    ([Sum("total", ["huge", "great", "low"])], "must fit in integers of 64 bits"),
    ([FunctionalDependency("state", "real", {0.5: "NW"})], "column 'real' has no grid"),
    ([FunctionalDependency("state", "city", {"Bonn": "BY"})], "'state'"),
    ([FunctionalDependency("state", "city", {"Bern": "NW"})], "'city'"),
    ([FunctionalDependency("state", "flag", {0: "NW"})], "'state' must be nullable, as 'flag' is"),
    ([FunctionalDependency("state", "low", {1: "NW", "1": "RP"})], "'low'"),
    (
        [
            FunctionalDependency(
                "state", "start", {"2020-02-01": "NW", pd.Timestamp("2020-02-01"): "RP"}
            )
        ],
        "mapping must not have two keys for one value",
    ),
    (
        [FunctionalDependency("state", "low", {pd.Interval(1, 3): "NW"})],
        "mapping must not have intervals, got one of column 'low'",
    ),
    # Columns that are computed twice, or from one another.
    (
        [RULES[4], FunctionalDependency("state", "other", {0: "NW", 1: "RP"})],
        "constraints[1], FunctionalDependency: column 'state' is computed by constraints[0],",
    ),
    (
        [Sum("sum", ["real", "tenth"]), Sum("real", ["sum", "level"])],
        "constraints must not compute columns from one another in a cycle",
    ),
    (
        [
            FunctionalDependency("state", "city", CITIES),
            FunctionalDependency("city", "state", {"NW": "Bonn", "RP": "Trier"}),
        ],
        "in a cycle",
    ),
    # What nothing fulfils.
    ([Inequality("later", "start")], "column 'later' must be below 'start'"),
    ([Inequality("low", "small")], "column 'low' must be below 'small', got bounds above"),
    ([Inequality("low", "tenth"), Inequality("tenth", "small")], "constraints[1], Inequality"),
    ([Inequality("low", "tenth", strict=True), Inequality("tenth", "low")], "is below itself"),
    (
        [
            Inequality("low", "tenth"),
            Inequality("tenth", "real"),
            Inequality("real", "low", strict=True),
        ],
        "is below itself",
    ),
    (
        [Implication({"city": [*CITIES]}, {"low": 3}), Implication({"low": 3}, {"city": "Bonn"})]
        + [Implication({"city": "Bonn"}, {"other": 1}), Implication({"other": 1}, {"low": 4})],
        "constraints[3], Implication: with the implications before it, no values of",
    ),
    (
        [
            Implication({"start": pd.Interval(pd.Timestamp("2019"), pd.Timestamp("2021"))}, part)
            for part in ({"real": pd.Interval(-2, 0)}, {"real": pd.Interval(0, 4)})
        ],
        "constraints[1], Implication: with the implications before it",
    ),
]


@pytest.mark.parametrize(("rules", "message"), ERRORS, ids=[text[-32:] for _, text in ERRORS])
def test_what_does_not_fit_is_refused(monkeypatch, rules, message):
    monkeypatch.setattr(_table_sampler, "open_records", None)
    frame = pd.DataFrame({name: [0] for name in WIDE})
    pattern = "|".join(map(re.escape, message.split("|")))
    with pytest.raises(ValueError, match=pattern):
        make(schema=WIDE, constraints=rules).fit(frame)


@pytest.mark.parametrize(
    ("options", "parameter"),
    [
        ({"target": "total"}, "target"),
        ({"target": ["low", "state"]}, "target"),
        ({"target": "key"}, "target"),
        ({"marginals": [("low", "total")]}, "marginals"),
        ({"n_bins": {"total": 5}}, "n_bins"),
        ({"workload": {"state": 2.0}}, "workload"),
        ({"workload": {("low", "state"): 2.0}}, "workload"),
    ],
    ids=str,
)
def test_what_is_made_up_is_not_measured_by_name(monkeypatch, options, parameter):
    monkeypatch.setattr(_table_sampler, "open_records", None)
    frame = pd.DataFrame({name: [0] for name in SCHEMA})
    with pytest.raises(
        ValueError, match=f"^{parameter} must name measured columns, got '.*', which"
    ):
        make(**options).fit(frame)


@pytest.mark.parametrize("rules", ["low <= high", 3, RULES[0], {"a": 1}], ids=str)
def test_constraints_are_listed(rules):
    with pytest.raises(ValueError, match="constraints"):
        make(constraints=rules).fit(pd.DataFrame({name: [0] for name in SCHEMA}))


def test_what_can_be_fulfilled_is_not_refused():
    """Columns that must be equal, bounds that touch, and a rule whose first part never happens."""
    for rules in (
        [Inequality("low", "tenth"), Inequality("tenth", "low")],
        [Inequality("low", "real"), Inequality("real", "tenth", strict=True)],
        [Implication({"low": 3}, {"city": "Bonn"}), Implication({"low": 3}, {"city": "Trier"})],
        [Implication({"real": pd.Interval(-2, 0)}, {"low": 3})]
        + [Implication({"real": pd.Interval(0, 4, closed="left")}, {"low": 3})],
        [Sum("total", ["low", "high"]), Inequality("total", "low")],
    ):
        TableRules(rules, SCHEMA)
    touch = Schema({"a": Numeric(5, 9), "b": Numeric(0, 5), "c": Categorical([1, 2])})
    TableRules([Inequality("a", "b")], touch)
    with pytest.raises(ValueError, match="must be below"):
        TableRules([Inequality("a", "b", strict=True)], touch)


SMALL = Schema(
    {
        "n": Numeric(0, 7, integer=True),
        "x": Numeric(0, 1),
        "o": Ordinal(["low", "mid", "high"], nullable=True),
        "c": Categorical([0, 1]),
    }
)
SIDES = {
    "n": [0, [3, 4], pd.Interval(2, 5), pd.Interval(-1, 9)],
    "x": [0.5, pd.Interval(0, 0.5, closed="both"), pd.Interval(0.5, 1), pd.Interval(-1, 2)],
    "o": ["mid", None, ["low", "high"], ["low", "mid", "high", None]],
    "c": [0, 1, [0, 1]],
}


@st.composite
def small_implications(draw):
    first, second = draw(st.lists(st.sampled_from([*SIDES]), min_size=2, max_size=2, unique=True))
    return Implication(
        {first: draw(st.sampled_from(SIDES[first]))}, {second: draw(st.sampled_from(SIDES[second]))}
    )


# All that implications can tell apart: x below, at and above one half.
GRID = pd.MultiIndex.from_product(
    [range(8), [0.25, 0.5, 0.75], ["low", "mid", "high", None], [0, 1]], names=["n", "x", "o", "c"]
).to_frame(index=False)


@pytest.mark.slow
@settings(max_examples=40, deadline=None, derandomize=True)
@given(st.lists(small_implications(), min_size=1, max_size=7))
def test_implications_are_refused_where_no_record_is_left(rules):
    grid = GRID.to_dict("records")
    for rule in rules:
        grid = [record for record in grid if not breaks(record, rule)]
    try:
        TableRules(rules, SMALL)
    except ValueError:
        assert not grid
    else:
        assert grid


BUILDS = [
    (lambda: Inequality("a", "a"), "Inequality: low and high must name distinct columns"),
    (lambda: Inequality("a", 3), "must name columns, as strings"),
    (lambda: Inequality("a", "b", strict=1), "strict must be True or False"),
    (lambda: Implication({}, {"b": 1}), "given must map columns to values"),
    (lambda: Implication({"a": 1}, [1]), "then must map columns to values"),
    (lambda: Implication({"a": 1}, {"a": 2}), "must name other columns, got ['a']"),
    (lambda: Sum("a", ["b"]), "parts must name at least two columns"),
    (lambda: Sum("a", ["b", "a"]), "must name distinct columns"),
    (lambda: Sum("a", "bc"), "parts must list columns"),
    (lambda: FunctionalDependency("a", [], {1: 2}), "must name columns, as strings"),
    (lambda: FunctionalDependency("a", "a", {1: 2}), "must name distinct columns"),
    (lambda: FunctionalDependency("a", "b", {}), "mapping must be a mapping of values to values"),
    (lambda: FunctionalDependency("a", "b", pd.Series([1, 2], index=[3, 3])), "distinct keys"),
    (lambda: FunctionalDependency("a", ["b", "c"], {1: 2}), "tuples of 2 values as keys"),
    (lambda: Identifier(3), "prefix must be a string or None"),
]


@pytest.mark.parametrize(("build", "message"), BUILDS, ids=[text for _, text in BUILDS])
def test_rules_that_make_no_sense(build, message):
    with pytest.raises(ValueError, match=re.escape(message)):
        build()


def test_numbers_of_numpy_are_values_too():
    rule = FunctionalDependency("state", "low", pd.Series(["NW"] * 21, index=np.arange(21)))
    assert TableRules([rule], SCHEMA).derived
