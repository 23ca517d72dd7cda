"""Schemas drafted from codebooks: what is read, what stays open, and that values are not read."""

import datetime
import io
import json
from dataclasses import replace

import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sklearn_dpgen.schema import Categorical, Datetime, Numeric, Ordinal, Schema, _codebook, _schema
from sklearn_dpgen.schema._schema import SchemaDraft

reproducibly = settings(deadline=None, max_examples=60, derandomize=True)

DICTIONARY = """\
Variable,Label,Type,Min,Max,Values,Required,Missing codes,Unit
age,age at entry,integer,18,100,,yes,,years
sex,,integer,,,1=male; 2=female; 9=unknown,no,9,
plan,,string,,,"basic, plus",yes,,
zip,,string,,,01;02,yes,,
grade,,ordinal,,,"1, low | 2, middle | 3, high",yes,,
member,,boolean,,,,yes,,
bmi,,"DECIMAL(4,1)",10,80.5,,,-1; -2,kg/m²
visit,,date,2020-01-01,2024-12-31,,yes,,
seen,,timestamp,2020-01-01,2024-12-31T12:30,,no,,
income,,number,0,,,yes,,EUR
city,,string,,,,yes,,
born,,date,,,,no,,
"""

DECLARED = {
    "age": Numeric(18, 100, integer=True, description="age at entry, years"),
    "sex": Categorical([1, 2], missing=[9]),
    "plan": Categorical(["basic", "plus"]),
    "zip": Categorical(["01", "02"]),
    "grade": Ordinal([1, 2, 3]),
    "member": Categorical([False, True]),
    "bmi": Numeric(10, 80.5, missing=[-1, -2], description="kg/m²"),
    "visit": Datetime("2020-01-01", "2024-12-31", resolution="D"),
    "seen": Datetime("2020-01-01", "2024-12-31T12:30", nullable=True),
}

CODE = """\
from sklearn_dpgen.schema import Categorical, Datetime, Numeric, Ordinal, Schema

schema = Schema({
    "age": Numeric(18, 100, integer=True, description="age at entry, years"),
    "sex": Categorical([1, 2], nullable=True, missing=[9]),
    "plan": Categorical(["basic", "plus"]),
    "zip": Categorical(["01", "02"]),
    "grade": Ordinal([1, 2, 3]),
    "member": Categorical([False, True]),
    "bmi": Numeric(10, 80.5, nullable=True, missing=[-1, -2], description="kg/m²"),
    "visit": Datetime("2020-01-01", "2024-12-31", resolution="D"),
    "seen": Datetime("2020-01-01", "2024-12-31T12:30", nullable=True),
    "income": Numeric(low=0, high=..., description="EUR"),  # declare high
    "city": Categorical(categories=...),  # declare categories
    "born": Datetime(low=..., high=..., resolution="D", nullable=True),  # declare low and high
})"""


def read(text):
    return pd.read_csv(io.StringIO(text))


def run(code):
    names = {}
    exec(code, names)
    return names["schema"]


def assert_drafts(codebook, schema):
    """Check all ways from a complete codebook to a schema."""
    draft = Schema.draft(codebook)
    assert draft.missing == {}
    for drafted in (draft.to_schema(), run(draft.to_code()), Schema.from_yaml(draft.to_yaml())):
        assert drafted == schema
        for name, column in schema.items():
            if isinstance(column, Categorical | Ordinal):
                # True, 1 and 1.0 are equal, and still not the same label.
                assert repr(drafted[name]) == repr(column)


def test_a_data_dictionary():
    draft = Schema.draft(read(DICTIONARY))
    assert isinstance(draft, SchemaDraft)
    assert str(draft) == draft.to_code() == CODE
    gaps = {"income": ("high",), "city": ("categories",), "born": ("low", "high")}
    assert draft.missing == gaps
    with pytest.raises(ValueError, match=r"'income' \(high\), 'city' \(categories\), 'born' \(low"):
        draft.to_schema()
    rows = read(DICTIONARY)
    complete = rows[~rows["Variable"].isin(list(gaps))]
    assert_drafts(complete, Schema(DECLARED))
    assert_drafts(complete.to_dict("records"), Schema(DECLARED))


@pytest.mark.parametrize("nullable", [False, True])
@pytest.mark.parametrize("kind", ["number", "integer", "date", "timestamp", "string", "ordinal"])
def test_a_gap_cannot_be_used(kind, nullable):
    rows = [{"name": "x", "type": kind, "nullable": nullable}]
    fields = {"string": ("categories",), "ordinal": ("categories",)}.get(kind, ("low", "high"))
    bounds = {"number": 5, "integer": 5}.get(kind, "2020-01-01")
    one_known = [{**rows[0], "max": bounds}] if "low" in fields else rows
    for codebook, gaps in ((rows, fields), (one_known, fields[:1])):
        draft = Schema.draft(codebook)
        assert draft.missing == {"x": gaps}
        with pytest.raises(ValueError, match="'x'"):
            draft.to_schema()
        with pytest.raises(ValueError, match=gaps[0]):
            run(draft.to_code())
        with pytest.raises(ValueError, match=f"'x': {gaps[0]}"):
            Schema.from_yaml(draft.to_yaml())


def test_a_gap_in_a_list_could_be_used():
    # The reason why a gap stands for the whole list.
    assert Schema.from_yaml("x: {type: categorical, categories: ['...'], nullable: true}")


def test_a_filled_gap_gives_the_schema():
    draft = Schema.draft({"x": "float64", "y": "string"})
    code = draft.to_code().replace("low=...", "low=0").replace("high=...", "high=1.5")
    schema = Schema({"x": Numeric(0, 1.5), "y": Categorical(["a", "b"])})
    assert run(code.replace("categories=...", "['a', 'b']")) == schema
    text = draft.to_yaml().replace("low: '...'", "low: 0").replace("high: '...'", "high: 1.5")
    assert Schema.from_yaml(text.replace("categories: '...'", "categories: [a, b]")) == schema


TABLE_SCHEMA = {
    "fields": [
        {"name": "age", "type": "integer", "constraints": {"minimum": 0, "maximum": "120"}},
        {
            "name": "sex",
            "type": "string",
            "title": "Sex",
            "constraints": {"required": True, "enum": ["f", "m"]},
        },
        {
            "name": "grade",
            "type": "integer",
            "categories": [{"value": 1, "label": "low"}, {"value": 2, "label": "high"}],
            "categoriesOrdered": True,
            "missingValues": ["-9"],
        },
        {"name": "code", "type": "integer", "constraints": {"enum": ["1", "2"], "required": True}},
        {
            "name": "day",
            "type": "date",
            "format": "default",
            "constraints": {"minimum": "2020-01-01", "maximum": "2021-01-01", "unique": False},
        },
        {"name": "left", "categories": ["a", "b"]},
    ],
    "missingValues": ["", "NA"],
}


def test_a_table_schema():
    schema = Schema(
        {
            "age": Numeric(0, 120, integer=True, missing=["NA"]),
            "sex": Categorical(["f", "m"], description="Sex"),
            "grade": Ordinal([1, 2], missing=["-9"]),
            "code": Categorical([1, 2]),
            "day": Datetime("2020-01-01", "2021-01-01", resolution="D", missing=["NA"]),
            "left": Categorical(["a", "b"], missing=["NA"]),
        }
    )
    assert_drafts(TABLE_SCHEMA, schema)
    assert_drafts(json.loads(json.dumps(TABLE_SCHEMA)), schema)
    code = Schema.draft(TABLE_SCHEMA).to_code()
    assert 'description="Sex"' in code
    assert 'missing=["-9"]' in code
    assert_drafts(
        {"fields": [{"name": "x", "type": "boolean"}]},
        Schema({"x": Categorical([False, True], nullable=True)}),
    )
    assert Schema.draft({"fields": [{"name": "x"}]}).missing == {"x": ("categories",)}


def test_dtypes_know_no_bounds():
    frame = pd.DataFrame(
        {
            "a": pd.array([1], dtype="int8"),
            "b": pd.array([1], dtype="UInt16"),
            "c": [0.5],
            "d": [True],
            "e": ["x"],
            "f": pd.to_datetime(["2020-01-01"]).tz_localize("Europe/Paris"),
        }
    )
    draft = Schema.draft(frame.dtypes)
    assert [entry["type"] for entry in draft.declaration.values()] == [
        *["numeric"] * 3,
        *["categorical"] * 2,
        "datetime",
    ]
    bounds = ("low", "high")
    assert draft.missing == {
        "a": bounds,
        "b": bounds,
        "c": bounds,
        "e": ("categories",),
        "f": bounds,
    }
    assert "integer" in draft.declaration["b"]
    assert "integer" not in draft.declaration["c"]
    assert str(Schema.draft(dict(frame.dtypes))) == str(draft)
    names = {"a": int, "b": "SMALLINT", "c": np.float32, "d": bool, "e": "VARCHAR(20)"}
    assert str(Schema.draft({**names, "f": "timestamp with time zone"})) == str(draft)
    arrow = {"a": "int64", "b": "uint8", "c": "double", "d": "bool", "e": "large_string"}
    assert str(Schema.draft({**arrow, "f": "timestamp[us, tz=UTC]"})) == str(draft)


def test_categories_of_a_dtype_are_not_taken():
    # Those of a converted column are the values that occur.
    frames = [pd.DataFrame({"x": pd.Series(v).astype("category")}) for v in (["a"], ["a", "rare"])]

    def tells(draft):
        return str(draft(frames[0].dtypes)) != str(draft(frames[1].dtypes))

    def careless(dtypes):
        rows = [
            {"name": name, "type": dtype, "values": ["?", *dtype.categories]}
            for name, dtype in dtypes.items()
        ]
        return Schema.draft(rows)

    assert not tells(Schema.draft)
    assert Schema.draft(frames[1].dtypes).missing == {"x": ("categories",)}
    assert tells(careless)


RECORDS = {
    "columns": pd.DataFrame({"age": [771], "income": [773.5]}),
    "a name": pd.DataFrame({"name": ["Zacharias"], "age": [771]}),
    "a type": pd.DataFrame({"type": ["Zacharias"], "min": [771]}),
    "a name and a type": pd.DataFrame({"name": ["Zacharias"], "type": ["Yolanda"], "age": [771]}),
    "the fields of a codebook": pd.DataFrame({"name": ["Zacharias"], "type": ["Yolanda"]}),
    "dicts": [{"age": 771, "income": 773.5}],
    "one dict": {"first": "Zacharias", "age": 771},
    "a dict of columns": {"age": [771], "type": [773.5]},
    "a series of numbers": pd.Series([771, 773.5], name="age"),
    "a series of strings": pd.Series({"first": "Zacharias"}),
    "an array": np.array([[771, 773.5]]),
    "a list": [771, 773.5],
}


def shown(draft, records):
    """Return which values a draft of records, or its error, shows."""
    try:
        text = str(draft(records))
    except ValueError as error:
        text = str(error)
    return [value for value in ("771", "773", "Zacharias", "Yolanda") if value in text]


@pytest.mark.parametrize("records", RECORDS.values(), ids=RECORDS)
def test_records_are_refused_and_not_shown(records):
    with pytest.raises(ValueError, match=r"codebook|private|must be one of"):
        Schema.draft(records)
    assert shown(Schema.draft, records) == []

    def careless(records):
        raise ValueError(f"{records!r} is no codebook.")

    assert shown(careless, records)


@pytest.mark.parametrize(
    ("row", "error"),
    [
        ({"type": "blob"}, "The type of row 0 must be one of"),
        ({"type": None}, "The type of row 0 must be one of"),
        ({"type": "geopoint"}, "The type of row 0 must be one of"),
        ({"type": "time"}, "The type of row 0 must be one of"),
        ({"type": "number", "colour": 1}, r"codebook must have fields among .*, got \['colour'\]"),
        ({"type": "number", "min": 0, "low": 0}, r"Fields \['min', 'low'\] have the same meaning"),
        ({"type": "number", "min": 3, "max": 1}, "'x': low must be smaller than high"),
        ({"type": "integer", "min": 0.5, "max": 1}, "'x': low must be an integer"),
        ({"type": "number", "min": "few"}, "'x': 'few' is not a finite number"),
        ({"type": "number", "min": "1_0"}, "'x': '1_0' is not a finite number"),
        ({"type": "number", "min": True}, "'x': True is not a finite number"),
        ({"type": "number", "max": np.inf}, "'x': inf is not a finite number"),
        ({"type": "number", "max": "1e999"}, "'x': '1e999' is not a finite number"),
        ({"type": "number", "min": 0, "max": 10**400}, "'x': 10+ is not a finite number"),
        ({"type": "date", "min": "soon", "max": "later"}, "'x': low must be a date"),
        ({"type": "date", "values": "a, b"}, r"'x': \['values'\] cannot be used for a column"),
        ({"type": "string", "min": 0}, r"'x': \['low'\] cannot be used for a column declared cat"),
        ({"type": "integer", "values": [1, 2], "max": 3}, r"'x': \['high'\] cannot be used"),
        ({"type": "number", "resolution": "D"}, r"'x': \['resolution'\] cannot be used"),
        ({"type": "string", "values": "a, b, a"}, "'x': categories must be distinct"),
        ({"type": "date", "min": "2020-01-01", "max": "2020-01-01"}, "'x': low must be earlier"),
        ({"type": "integer", "min": 1.5, "max": 1.5}, "'x': the values of an integer column"),
        ({"type": "string", "values": {"a", "b"}}, "'x': values must be a list"),
        ({"type": "string", "values": [False, True]}, "'x': the values of a column of strings"),
        ({"type": "integer", "values": "1, 2.5"}, "'x': the values of an integer column"),
        ({"type": "integer", "values": "one, two"}, "'x': 'one' is not a finite number"),
        ({"type": "string", "values": "<=10; >10"}, "'x': the values '<=10; >10' are ambiguous"),
        ({"type": "string", "values": "<=10; >=11"}, "'x': the values '<=10; >=11' are amb"),
        ({"type": "string", "values": "1=a; b"}, "'x': the values '1=a; b' are ambiguous"),
        ({"type": "string", "values": "A, B; C, D"}, "'x': the values 'A, B; C, D' are ambig"),
        ({"type": "number", "nullable": "perhaps"}, "'x': nullable must be yes or no"),
        (
            {"type": "number", "nullable": 1, "required": 0},
            "'x': nullable and required have the same meaning",
        ),
    ],
)
def test_what_is_not_understood_is_refused(row, error):
    with pytest.raises(ValueError, match=error):
        Schema.draft([{"name": "x", **row}])


@pytest.mark.parametrize(
    ("codebook", "error"),
    [
        ([], "no columns"),
        ({}, "no columns"),
        ([{"name": "x", "type": "int"}] * 2, "Column names must be distinct, got 'x' twice"),
        (
            pd.Series([np.dtype(int)] * 2, index=["x", "x"]),
            "Column names must be distinct, got 'x' twice",
        ),
        ({3: "int64"}, "The name of column 3 must be a string"),
        ([{"name": " ", "type": "int"}], "The name of row 0 must be a string"),
        ({"fields": [{"type": "integer"}]}, "The name of column None must be a string"),
        ({"fields": ["age"]}, "must be mappings"),
        (pd.Series({"x": "int64"}), "A series must hold dtypes"),
        ("codebook.csv", "codebook must be a data frame or"),
        (pd.DataFrame([["x", "int", "int"]], columns=["name", "type", "type"]), "distinct names"),
    ],
)
def test_a_codebook_of_another_form_is_refused(codebook, error):
    with pytest.raises(ValueError, match=error):
        Schema.draft(codebook)


@pytest.mark.parametrize(
    ("values", "labels"),
    [
        ("b, a", ["b", "a"]),
        ("1,2", [1, 2]),
        ("0.5; 1", [0.5, 1.0]),
        ("true; FALSE", [True, False]),
        ("true; 0", ["true", "0"]),
        ("F = female; M = male", ["F", "M"]),
        ("1=yes, always\n2=no", [1, 2]),
        ("-1, none | 1, some", [-1, 1]),
        ({"1": "male", "2": "female"}, ["1", "2"]),
        (["1", "2"], ["1", "2"]),
        ((1, 2.0), [1, 2.0]),
        ([np.int64(1), np.str_("a"), np.True_ & False], [1, "a", False]),
    ],
)
def test_labels_are_those_that_records_hold(values, labels):
    assert_drafts(
        [{"name": "x", "type": "categorical", "values": values}], Schema({"x": Categorical(labels)})
    )


@pytest.mark.parametrize(
    ("row", "column"),
    [
        ({"type": "string", "values": "a"}, Categorical(["a"])),
        ({"type": "ordinal", "values": [1], "nullable": True}, Ordinal([1], nullable=True)),
        ({"type": "integer", "min": 5, "max": 5, "step": 1}, Categorical([5])),
        ({"type": "number", "min": 2.5, "max": "2.5", "required": False},)
        + (Categorical([2.5], nullable=True),),
    ],
    ids=["label", "level", "integer", "number"],
)
def test_constants_are_columns_of_one_label(row, column):
    draft = Schema.draft([{"name": "x", **row}, {"name": "y", "type": "boolean"}])
    assert draft.to_schema()["x"] == column
    assert Schema.from_yaml(draft.to_yaml())["x"] == column


def test_bounds_of_many_kinds():
    day = datetime.date(2020, 1, 1)
    for low in (day, "2020-01-01", pd.Timestamp(day), np.datetime64("2020-01-01")):
        rows = [{"name": "x", "type": "date", "min": low, "max": "2021-01-01"}]
        assert_drafts(rows, Schema({"x": Datetime(day, "2021-01-01", resolution="D")}))
    for low in (0, "0", 0.0, np.float32(0), "-0"):
        rows = [{"name": "x", "type": "number", "min": low, "max": 1e300, "step": "1e299"}]
        assert_drafts(rows, Schema({"x": Numeric(0, 1e300, step=1e299)}))


def labels(label):
    return st.lists(label, min_size=2, max_size=4, unique=True)


def columns():
    """Rows of a data dictionary, each with the column that it declares."""
    whole, flags = st.integers(-(2**40), 2**40), st.booleans()
    real = st.floats(-1e6, 1e6)
    texts = labels(st.text(max_size=5))
    mixed = labels(st.one_of(st.booleans(), st.integers(), real, st.text(max_size=5)))

    def row(column, dtype, **fields):
        return {"type": dtype, "nullable": column.nullable, **fields}, column

    def numeric(low, width, dtype, null):
        column = Numeric(low, low + width, integer=dtype == "integer", nullable=null)
        return row(column, dtype, min=column.low, max=column.high)

    def labelled(values, dtype, null):
        column = (Ordinal if dtype == "ordinal" else Categorical)(values, nullable=null)
        return row(column, dtype, values=values)

    return st.one_of(
        st.builds(numeric, whole, st.integers(1, 2**40), st.just("integer"), flags),
        st.builds(numeric, real, st.floats(1e-3, 1e6), st.just("number"), flags),
        st.builds(labelled, texts, st.sampled_from(["string", "ordinal"]), flags),
        st.builds(labelled, labels(whole), st.just("integer"), flags),
        st.builds(labelled, mixed, st.sampled_from(["categorical", "ordinal"]), flags),
    )


def described(column, note):
    return replace(column, description=_codebook.one_line(note) or None)


names = st.text(min_size=1, max_size=8).filter(lambda name: name.strip())


@pytest.mark.slow
@reproducibly
@given(st.dictionaries(names, st.tuples(columns(), st.text()), min_size=1, max_size=4))
def test_codebooks_round_trip(declared):
    rows = [{"name": n, "label": note, **row} for n, ((row, _), note) in declared.items()]
    schema = Schema(
        {name: described(column, note) for name, ((_, column), note) in declared.items()}
    )
    assert_drafts(rows, schema)
    assert_drafts(pd.DataFrame(rows), schema)


def test_descriptions_stay_texts(monkeypatch):
    label = "a'\"\nraise KeyError\x85\u2028y: 1\x00"
    rows = [{"name": "x", "type": "boolean", "label": label}]
    said = "a'\" raise KeyError y: 1"
    assert_drafts(rows, Schema({"x": Categorical([False, True], description=said)}))
    monkeypatch.setattr(_schema, "_literal", lambda value: f'"{value}"')
    with pytest.raises((KeyError, SyntaxError)):
        run(Schema.draft(rows).to_code())


def test_a_description_is_never_a_gap():
    rows = [{"name": "x", "type": "boolean", "label": "..."}]
    assert_drafts(rows, Schema({"x": Categorical([False, True])}))


def test_how_texts_are_written_is_drafted():
    fields = [
        {"name": "day", "type": "date", "format": "%d/%m/%Y"},
        {"name": "cost", "type": "number", "decimalChar": ",", "groupChar": "."},
        {"name": "mail", "type": "string", "format": "email"},
    ]
    ends = [("2020-01-01", "2021-01-01"), (0, 5)]
    for field, (low, high) in zip(fields, ends, strict=False):
        field["constraints"] = {"minimum": low, "maximum": high, "required": True}
    fields[2]["constraints"] = {"enum": ["a", "b"], "required": True}
    schema = Schema(
        {
            "day": Datetime("2020-01-01", "2021-01-01", resolution="D", format="%d/%m/%Y"),
            "cost": Numeric(0, 5, decimal=",", thousands="."),
            "mail": Categorical(["a", "b"]),
        }
    )
    assert_drafts({"fields": fields}, schema)
    rows = [{"name": "c", "type": "number", "min": 0, "max": 5, "currency": "EUR"}]
    assert_drafts(rows, Schema({"c": Numeric(0, 5, currency="EUR")}))
    with pytest.raises(ValueError, match="cannot be used for a column declared datetime"):
        Schema.draft([{"name": "d", "type": "date", "currency": "EUR"}])


def test_the_representation_says_what_is_missing():
    draft = Schema.draft({"x": float})
    assert repr(draft) == "<SchemaDraft of 1 columns, missing={'x': ('low', 'high')}>"
