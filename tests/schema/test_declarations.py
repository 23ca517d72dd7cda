"""What is declared, and the files that it is kept in."""

import copy
import datetime
import pickle
import re

import numpy as np
import pandas as pd
import pytest
from declared_columns import SCHEMA, columns, reproducibly
from hypothesis import given
from hypothesis import strategies as st

from sklearn_dpgen.domains import Box, OneHot, Product
from sklearn_dpgen.schema import Categorical, Datetime, Numeric, Ordinal, Schema


@pytest.mark.slow
@reproducibly
@given(st.dictionaries(st.text(), columns(), min_size=1, max_size=4))
def test_files_are_lossless(declared):
    schema = Schema(declared)
    for copied in (
        Schema.from_dict(schema.to_dict()),
        Schema.from_json(schema.to_json()),
        Schema.from_yaml(schema.to_yaml()),
        copy.deepcopy(schema),
        pickle.loads(pickle.dumps(schema)),
    ):
        # The representation tells True, 1 and 1.0 apart, which compare equal.
        assert repr(copied) == repr(schema)
        assert copied == schema
        assert hash(copied) == hash(schema)


def test_files_keep_dates():
    for copied in (Schema.from_json(SCHEMA.to_json()), Schema.from_yaml(SCHEMA.to_yaml())):
        assert repr(copied) == repr(SCHEMA)
    zoned = Schema({"t": Datetime("2020-01-01", "2021-01-01", zone="Europe/Paris")})
    assert repr(Schema.from_yaml(zoned.to_yaml())) == repr(zoned)
    assert repr(Schema.from_json(zoned.to_json())) == repr(zoned)
    bare = "day: {type: datetime, low: 2020-01-01, high: 2024-12-31, resolution: D, nullable: true}"
    assert Schema.from_yaml(bare)["day"] == SCHEMA["day"]


def test_a_schema_is_an_ordered_mapping():
    assert list(SCHEMA)[:3] == ["age", "income", "sex"]
    assert len(SCHEMA) == 8
    assert SCHEMA["age"] == Numeric(0, 120, integer=True)
    assert dict(SCHEMA) == dict(SCHEMA.items())
    a, b = Numeric(0, 1), Numeric(0, 2)
    assert Schema({"a": a, "b": b}) != Schema({"b": b, "a": a})
    assert Schema({"a": a}) != {"a": a}


def test_the_domain_is_the_product_of_the_columns():
    interval = Box(-1, 1)
    assert SCHEMA["age"].domain == interval
    assert SCHEMA["income"].domain == Product([interval, OneHot(2)])
    assert SCHEMA["sex"].domain == OneHot(5)
    assert SCHEMA["flag"].domain == OneHot(3)
    assert SCHEMA.domain == Product([column.domain for column in SCHEMA.values()])
    assert SCHEMA.blocks["flag"] == slice(9, 12)
    assert len(SCHEMA.feature_names) == SCHEMA.domain.n_features
    assert SCHEMA.feature_names[:5] == [
        "age",
        "income",
        "income=<present>",
        "income=<null>",
        "sex=f",
    ]


@pytest.mark.parametrize(
    ("build", "message"),
    [
        (lambda: Numeric(1, 0), "low must be smaller than high, by"),
        (lambda: Numeric(1.5, 1.5), r"declare a constant as Categorical\(\[1.5\]\)"),
        (lambda: Numeric(0, np.inf), "high must be a finite number"),
        (lambda: Numeric("0", 1), "low must be a finite number"),
        (lambda: Numeric(True, 2), "low must be a finite number"),
        (lambda: Numeric(0, 10**400), "high must be a finite number, got an integer of many"),
        (lambda: Numeric(0, 1, step=10**5000), "step must be a finite number, got an integer of"),
        (lambda: Numeric(0, ...), "high must be a finite number, got ..., which must be declared"),
        (lambda: Numeric(pd.DataFrame({"x": [771]}), 1), "low must be .* got a DataFrame.$"),
        (lambda: Datetime("2021", ...), "low must be a date and time, .* got the text '2021'"),
        (lambda: Datetime("2021-01-01", ...), "high must be a date and time, .* must be declared"),
        (lambda: Datetime(10**400, "2021-01-01"), "low must be a date and time, .* many digits"),
        (lambda: Schema.from_yaml("a: [1, 2"), "must be valid YAML: see line 1, column 9"),
        (lambda: Schema.from_yaml("a: 1\nb: 'x"), "must be valid YAML: see line 2"),
        (lambda: Schema.from_yaml("schema.yaml"), "not the path of a file"),
        (
            lambda: Schema.from_yaml("a: {type: numeric, low: 0, high: 1e5}"),
            "Column 'a': high must be a finite number, got the text '1e5': write 100000.0,",
        ),
        (
            lambda: Schema.from_yaml(f"a: {{type: numeric, low: 0, high: 1{'0' * 400}}}"),
            "Column 'a': high must be a finite number, got an integer of many digits",
        ),
        (
            lambda: Schema.from_yaml("a: {type: datetime, low: 2021, high: 2022-01-01}"),
            "Column 'a': low must be a date and time, .* got 2021.",
        ),
        (lambda: Schema.from_yaml("a: {type: [x], low: 1}"), "Column 'a': type must be .* a list"),
        (lambda: Numeric(-1e308, 1e308), "finite difference"),
        (lambda: Numeric(0, 1, step=0), "step must be positive"),
        (lambda: Numeric(0, 1, step=0.3), "step must divide"),
        (lambda: Numeric(0, 1, step=2), "step must divide"),
        (lambda: Numeric(0.5, 2, integer=True), "low must be an integer"),
        (lambda: Numeric(0, 2, integer=True, step=0.5), "step must be an integer"),
        (lambda: Numeric(0, 2**60, integer=True), "within 2"),
        (lambda: Numeric(0, 1, nullable=1), "nullable must be True or False"),
        (lambda: Categorical("abc"), "categories must be a sequence"),
        (lambda: Categorical({"a", "b"}), "categories must be in a fixed order"),
        (lambda: Ordinal(frozenset([1, 2])), "categories must be in a fixed order"),
        (lambda: Categorical([]), "categories must have at least one label"),
        (lambda: Ordinal([], nullable=True), "categories must have at least one label"),
        (lambda: Categorical(["a", "a"]), "must be distinct"),
        (lambda: Categorical([1, True]), "must be distinct"),
        (lambda: Categorical(["a", None]), "must be bools, numbers or strings"),
        (lambda: Categorical([1.0, np.nan]), "must be finite"),
        (lambda: Ordinal([1, 1]), "categories must be distinct"),
        (lambda: Ordinal([datetime.date(2020, 1, 1), 1]), "categories must be bools"),
        (lambda: Datetime("2021-01-01", "2020-01-01"), "low must be earlier"),
        (lambda: Datetime("2021-01-01", "2021-01-01"), "declare a constant as Categorical"),
        (lambda: Datetime("2020-01-01", "01/02/2020"), "high must be a date"),
        (lambda: Datetime(None, "2020-01-01"), "low must be a date"),
        (lambda: Datetime(0, "2020-01-01"), "low must be a date"),
        (lambda: Datetime("2020-01-01T12:00", "2021-01-01", resolution="D"), "low must be a mult"),
        (lambda: Datetime("2020-01-01", "2021-01-01", resolution="ns"), "resolution must be one"),
        (lambda: Datetime("2020-01-01", "2021-01-01", zone="Mars"), "zone must be the name"),
        (lambda: Datetime("2020-01-01", "2021-01-01", zone=1), "zone must be the name"),
        (
            lambda: Datetime("2020-01-01T00:00Z", "2021-01-01T01:00+01:00"),
            "zone must be given, as low and high are in two time zones",
        ),
        (lambda: Schema({}), "non-empty mapping"),
        (
            lambda: Schema({"a": Ordinal([1]), "b": Categorical(["x"])}),
            r"At least one column must be neither constant nor an identifier, got \['a', 'b'\]",
        ),
        (lambda: Schema({1: Numeric(0, 1)}), "names must be strings"),
        (lambda: Schema({"a": (0, 1)}), "Column 'a' must be one of Numeric"),
        (lambda: Schema.from_dict([1]), "must map column names"),
        (lambda: Schema.from_dict({"a": 1}), "Column 'a': a declaration must be a mapping"),
        (lambda: Schema.from_dict({"a": {"type": "num"}}), "Column 'a': type must be one of"),
        (lambda: Schema.from_dict({"a": {"type": "numeric", "low": 0}}), "Column 'a': missing"),
        (
            lambda: Schema.from_dict({"a": {"type": "ordinal", "values": [1, 2], "step": 1}}),
            "Column 'a': unknown",
        ),
        (
            lambda: Schema.from_dict({"a": {"type": "numeric", "low": 1, "high": 0}}),
            "Column 'a': low must be smaller",
        ),
        (
            lambda: Schema.from_yaml("a: {type: categorical, categories: [no, no]}"),
            "Column 'a': categories must be distinct",
        ),
    ],
)
def test_declaration_errors(build, message):
    with pytest.raises(ValueError, match=message):
        build()


def test_numpy_scalars_are_accepted_and_stored_plainly():
    assert repr(Numeric(np.float64(0), np.int64(3))) == repr(Numeric(0.0, 3))
    assert repr(Categorical(np.array([1, 2]))) == repr(Categorical([1, 2]))
    assert Datetime(np.datetime64("2020-01-01"), datetime.date(2021, 1, 1)) == Datetime(
        pd.Timestamp("2020-01-01"), "2021-01-01"
    )


def test_what_to_write_for_a_number_that_yaml_takes_as_text():
    with pytest.raises(ValueError, match="write") as caught:
        Schema.from_yaml("a: {type: numeric, low: 0, high: 1e5}")
    written = re.search("write (\\S+),", str(caught.value))[1]
    schema = Schema.from_yaml(f"a: {{type: numeric, low: 0, high: {written}}}")
    assert schema["a"].high == 1e5


def test_an_error_of_yaml_shows_no_text():
    with pytest.raises(ValueError, match="see line 2") as caught:
        Schema.from_yaml("a: [1\nsecret-7: {")
    assert "secret" not in str(caught.value)
    assert caught.value.__context__ is caught.value.__cause__ is None
