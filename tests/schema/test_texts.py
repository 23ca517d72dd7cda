"""YAML and JSON of schemas: no label is taken for something else, and no key is lost."""

import json

import pytest
import yaml

from sklearn_dpgen.persistence._declarations import find_class
from sklearn_dpgen.schema import (
    Categorical,
    Datetime,
    Numeric,
    OpenCategorical,
    Ordinal,
    RelationalSchema,
    Schema,
)
from sklearn_dpgen.schema._texts import read_json, read_yaml

# Words that versions or readers of YAML take for something else than a text.
WORDS = ["NO", "no", "Yes", "on", "OFF", "y", "00501", "08", "12:30", "1_000", "1e5"]
WORDS += ["0x1F", "0b1", "0o17", "2020-01-31", "..."]


def categories(text):
    return Schema.from_yaml(f"a: {{type: categorical, categories: [{text}]}}")["a"].categories


@pytest.mark.parametrize("word", WORDS)
def test_a_plain_word_is_a_text(word):
    assert categories(f"{word}, x") == (word, "x")


def test_the_trap_is_there_in_a_usual_reader():
    changed = [word for word in WORDS if yaml.safe_load(f"[{word}]") != [word]]
    assert {"NO", "00501", "12:30", "1_000"} <= {*changed}


def test_numbers_and_truth_values_stay_what_they_are():
    assert categories("1, -2, 2.5, 0.1, 1.0e+20") == (1, -2, 2.5, 0.1, 1e20)
    assert categories("true, False") == (True, False)
    assert list(map(type, categories("1, 2.0"))) == [int, float]


@pytest.mark.parametrize("word", ["250.00", "1.10", "+1", "~", "null", ".5", ".nan", "1."])
def test_a_label_that_would_change_is_refused_with_its_quoted_form(word):
    with pytest.raises(ValueError, match=r"line 1 has .* Write '") as caught:
        categories(f"{word}, x")
    assert f"Write '{word}'" in str(caught.value)
    assert categories(f"'{word}', x") == (word, "x")


def test_numbers_that_are_no_labels_may_be_written_in_any_way():
    column = Schema.from_yaml("a: {type: numeric, low: .5, high: 250.00, nullable: True}")["a"]
    assert column == Numeric(0.5, 250.0, nullable=True)


@pytest.mark.parametrize(
    ("text", "lines"),
    [
        ("a: {type: numeric, low: 0, high: 1}\nb: 1\na: 2", "line 3 has that of line 1"),
        ("a: {type: numeric,\n low: 0,\n low: 1,\n high: 2}", "line 3 has that of line 2"),
        ("'a': 1\na: 2", "line 2 has that of line 1"),
    ],
)
def test_a_repeated_key_is_refused(text, lines):
    with pytest.raises(ValueError, match=f"text must not repeat a key: {lines}"):
        Schema.from_yaml(text)


def test_a_repeated_key_of_json_is_refused():
    with pytest.raises(ValueError, match="must not repeat a key: line 2 has that of line 1") as e:
        Schema.from_json('{"a": {"type": "numeric"},\n "a": {"type": "numeric"}}')
    assert e.value.__context__ is e.value.__cause__ is None
    with pytest.raises(ValueError, match="text must be valid JSON: see line 1, column 2"):
        RelationalSchema.from_json("{secret")


def test_merged_keys_are_not_repeated_ones():
    text = "a: &a {type: numeric, low: 0, high: 1}\nb: {<<: *a, high: 2}"
    assert Schema.from_yaml(text)["b"] == Numeric(0, 2)


def test_nested_aliases_are_read_once():
    # Each level doubles the number of nodes, unless a node is visited once.
    levels = [f"a{i}: &a{i} [*a{i - 1}, *a{i - 1}]" for i in range(1, 60)]
    assert len(read_yaml("\n".join(["a0: &a0 [1]", *levels]))) == 60


LABELS = [*WORDS, "250.00", "~", "null", "true", "+1", "", " x", "1", "é", "a: b", "-", "1.0e+20"]


def test_all_labels_survive_yaml_and_json():
    schema = Schema(
        {"a": Categorical(LABELS), "b": Ordinal([1, 1e20, 1e-7, 3.25]), "n": Numeric(0, 1e22)}
    )
    for copied in (Schema.from_yaml(schema.to_yaml()), Schema.from_json(schema.to_json())):
        assert copied == schema
        assert list(map(type, copied["b"].labels)) == list(map(type, schema["b"].labels))


def test_readers_agree():
    found = {"a": ["NO", 1, 2.5, True, None, "1e5"], "b": {"c": "00501"}}
    assert read_yaml(yaml.safe_dump(found)) == read_json(json.dumps(found)) == found


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("a: {type: categorical, categorys: [x]}", r"did you mean 'categories'\?\), not one of"),
        ("a: {type: numeric, low: 0, high: 1, min: 3}", r"unknown \['min'\].*'step', 'integer'"),
        ("a: {type: catagorical, categories: [x]}", "did you mean 'categorical'"),
        ("a: {type: numeric, low: 0, high: 1, nullable: yes}", "got the text 'yes'"),
        (
            "a: {type: datetime, low: 2020-01-01, high: 2021-01-01, resolution: minute}",
            "resolution must be one of .*'min'.* got the text 'minute'",
        ),
        ("2020: {type: numeric, low: 0, high: 1}", "got 2020: quote it"),
    ],
)
def test_unknown_words_are_answered_with_the_allowed_ones(text, message):
    with pytest.raises(ValueError, match=message):
        Schema.from_yaml(text)


def test_unknown_words_of_a_table_are_answered():
    text = "tables: {t: {columns: {a: {type: numeric, low: 0, high: 1}}, primarykey: p}}"
    with pytest.raises(ValueError, match=r"did you mean 'primary_key'\?.*'foreign_key'"):
        RelationalSchema.from_yaml(text)


def test_labels_have_one_word():
    for text in ("categories: [1, 2]", "values: [1, 2]"):
        assert Schema.from_yaml(f"a: {{type: ordinal, {text}}}")["a"] == Ordinal([1, 2])
    assert Schema({"a": Ordinal([1, 2])}).to_dict()["a"] == {
        "type": "ordinal",
        "categories": [1, 2],
    }


def test_an_ordinal_of_an_earlier_file_is_read():
    saved = find_class("Ordinal")
    assert saved.build({"values": (1, 2), "nullable": True}) == Ordinal([1, 2], nullable=True)
    assert saved.build(saved.describe(Ordinal(["a", "b"]))) == Ordinal(["a", "b"])
    for found in ({"nullable": True}, {"values": (1,), "categories": (2,), "nullable": False}):
        with pytest.raises(ValueError, match="Ordinal (lacks|has unknown)"):
            saved.build(found)


def test_minutes_are_min():
    minutes = Datetime("2020-01-01", "2020-01-02", resolution="min")
    assert minutes == Datetime("2020-01-01", "2020-01-02", resolution="m")
    assert minutes.n_steps == 24 * 60


def test_open_columns_take_labels_as_texts():
    text = "a: {type: open_categorical, categories: [0150, NO]}"
    assert Schema.from_yaml(text)["a"] == OpenCategorical(["0150", "NO"])


def test_texts_that_look_like_numbers_are_refused_beside_numbers():
    with pytest.raises(ValueError, match="line 1 has 00501, which is a text, beside numbers"):
        categories("00501, 10001")
    assert categories("00501, '10001'") == ("00501", "10001")
    mixed = Schema({"a": Categorical(["08", 10, "1e5", "x"])})
    assert Schema.from_yaml(mixed.to_yaml()) == mixed


COLUMN = "a: {type: numeric, low: 0, high: 1}\n"
TABLES = "tables:\n  t:\n    columns:\n      a: {type: numeric, low: 0, high: 1}\n"
# Declarations that are nearly right, what is said about them, and what is right.
ADVICE = [
    ("unit: pid\n" + COLUMN, "unit is a word of the table: put the columns under 'columns'"),
    ("rules: [a <= b]\n" + COLUMN, "rules is a word of the table: put the columns under"),
    ("delimiter: ';'\n" + COLUMN, "delimiter is a word of the table: put the columns under"),
    ("encoding: cp1252\n" + COLUMN, "encoding is a word of the table: put the columns under"),
    ("public: census.csv\n" + COLUMN, "public is a word of the table: put the columns under"),
    ("columns: [a]\n", "columns must map names to declarations, got a list"),
    ("unit: pid\n" + TABLES, "unit must not stand beside tables: tables declare .* primary_key"),
    ("rules: [a <= b]\n" + TABLES, "beside tables: give rules to the table of their rows"),
    ("encoding: cp1252\n" + TABLES, "beside tables: give it to each of the tables"),
    ("a: {typ: numeric, low: 0, high: 1}", r"'a': unknown \['typ'\]: did you mean 'type'\?"),
    ("a: {low: 0, high: 1}", "'a': type must be one of .*, and is missing"),
    ("a: {type: numeric, min: 0, max: 1}", "did you mean 'low', 'high'"),
    ("a: {type: categorical, labels: [x, y]}", "did you mean 'categories'"),
    ("a: {type: categorical, values: [x, y]}", "did you mean 'categories'"),
    ("a: {type: int, low: 0, high: 1}", "write type: numeric, with integer: true"),
    (
        "a: {type: date, low: 2020-01-01, high: 2021-01-01}",
        "write type: datetime, with resolution: D",
    ),
    ("a: {type: numerical, low: 0, high: 1}", "did you mean 'numeric'"),
    (
        "a: {type: datetime, low: 2020-01-01, high: 2021-01-01, resolution: day}",
        "resolution must be one of .*, got the text 'day': write D",
    ),
    ("a: {type: categorical, categories: {1: yes, 2: no}}", r"mapping: write \[1, 2\]"),
    ("a: {type: ordinal, categories: {1: yes, 2: no}}", r"mapping: write \[1, 2\]"),
]


@pytest.mark.parametrize(("text", "advice"), ADVICE, ids=[text[:60] for text, _ in ADVICE])
def test_what_is_nearly_right_has_its_advice(text, advice):
    with pytest.raises(ValueError, match=advice):
        Schema.from_yaml(text)


@pytest.mark.parametrize("name", ["unit", "rules", "public", "tables", "columns", "typ"])
def test_a_column_may_have_any_name(name):
    text = f"{name}: {{type: numeric, low: 0, high: 1}}\nb: {{type: categorical, categories: [1]}}"
    assert [*Schema.from_yaml(text)] == [name, "b"]
