"""Open columns: their declaration, how labels are read, and who accepts them."""

import numpy as np
import pandas as pd
import pytest
from numpy.testing import assert_array_equal

from sklearn_dpgen.evolution import PrivateEvolutionSampler
from sklearn_dpgen.exceptions import PublicError, PublicValueError
from sklearn_dpgen.mechanisms import JointRandomizedResponse, TabularMechanism
from sklearn_dpgen.moments import MomentSampler
from sklearn_dpgen.preprocessing import TabularEncoder
from sklearn_dpgen.schema import Numeric, OpenCategorical, Schema, Table
from sklearn_dpgen.sliced import DPSlicedWassersteinGenerator
from sklearn_dpgen.smoothed import SmoothedSlicedWassersteinGenerator
from sklearn_dpgen.tables import RelationalSampler

TOWN = OpenCategorical(nullable=True)
SCHEMA = Schema({"town": TOWN, "age": Numeric(0, 100)})


@pytest.mark.parametrize(
    "column",
    [
        OpenCategorical(),
        OpenCategorical([]),
        OpenCategorical(["b", "a"], other="rest", max_length=4, nullable=True),
        OpenCategorical(max_labels=5),
    ],
)
def test_a_schema_survives_yaml_and_json(column):
    schema = Schema({"town": column, "age": Numeric(0, 100)})
    assert Schema.from_yaml(schema.to_yaml()) == schema
    assert Schema.from_json(schema.to_json()) == schema
    assert schema.to_dict()["town"]["type"] == "open_categorical"
    # An empty list and no list differ: nothing is known, or all labels are the rest.
    assert ("town" in schema.open_columns) == (column.categories is None)


@pytest.mark.parametrize(
    ("parameters", "message"),
    [
        ({"other": 3}, "other must be a string"),
        ({"max_length": 0}, "max_length must be an integer from 1"),
        ({"max_length": True}, "max_length must be an integer from 1"),
        ({"max_labels": 10**6}, "max_labels must be an integer from 1 to 100000"),
        ({"max_labels": 1.5}, "max_labels must be an integer"),
        ({"max_length": 3}, "other must have at most 3"),
        ({"categories": ["other"]}, "categories must not hold other"),
        ({"categories": ["a", "a"]}, "categories must be distinct"),
        ({"categories": [1]}, "categories must be strings"),
        ({"categories": {"a"}}, "categories must be in a fixed order"),
        ({"categories": ["x" * 101]}, "categories must be strings of at most 100"),
        ({"nullable": 1}, "nullable must be True or False"),
    ],
)
def test_faults_of_a_declaration(parameters, message):
    with pytest.raises(PublicValueError, match=message):
        OpenCategorical(**parameters)


VALUES = ["b", None, "a", "y" * 101, "other", 5, 5.0, True, np.float32(0.5), "\ud800", "b"]
TEXTS = ["b", None, "a", "other", "other", "5", "5", "True", "0.5", "other", "b"]


@pytest.mark.parametrize("n", [1, 2, 7, len(VALUES)])
def test_labels_are_texts_and_what_cannot_be_one_is_the_rest(n):
    codes, labels = TOWN.read_labels(pd.Series(VALUES[:n], dtype=object))
    assert [(*labels, None)[code] for code in codes] == TEXTS[:n]
    assert list(labels[:-1]) == sorted({*TEXTS[:n]} - {None, "other"})
    assert labels[-1] == "other"


def test_known_labels_are_encoded_and_others_are_the_rest():
    column = OpenCategorical(["b", "5"], nullable=True)
    codes = column.codes(pd.Series(VALUES, dtype=object))
    assert_array_equal(codes, [0, 3, 2, 2, 2, 1, 1, 2, 2, 2, 0])
    decoded = column.decode_codes(np.array([0, 1, 2, 3]))
    assert decoded.tolist()[:3] == ["b", "5", "other"]
    assert decoded.isna().tolist() == [False, False, False, True]
    assert column.feature_names("town")[-2:] == ["town=other", "town=<null>"]
    assert decoded.dtype == column.dtype


@pytest.mark.parametrize(
    "series",
    [
        pd.Series([5, 7, None], dtype="Int64"),
        pd.Series([5, 7, None], dtype="float64"),
        pd.Series(["5", "7", None], dtype="string"),
        pd.Series(["5", "7", None], dtype="category"),
        pd.Series([5, 7, None], dtype="category"),
        pd.Series([5, 7, None], dtype=object),
    ],
)
def test_labels_do_not_depend_on_the_dtype(series):
    codes, labels = TOWN.read_labels(series)
    assert labels == ("5", "7", "other")
    assert_array_equal(codes, [0, 1, 3])
    assert_array_equal(OpenCategorical(["7"], nullable=True).codes(series), [1, 0, 2])


@pytest.mark.parametrize("value", [{}, [1], b"a", np.inf, object(), pd.Timestamp("2020-01-01")])
def test_other_values_are_refused_without_showing_them(value):
    series = pd.Series([value, "secret"], dtype=object, name="town")
    for read in (TOWN.read_labels, TOWN.with_labels(["a"]).codes):
        with pytest.raises(PublicValueError, match="'town' must hold texts or finite") as error:
            read(series)
        assert "secret" not in str(error.value)


def test_a_null_is_refused_unless_declared():
    with pytest.raises(PublicValueError, match="is not nullable"):
        OpenCategorical().read_labels(pd.Series(["a", None], name="town"))


def test_check_counts_what_cannot_be_read():
    frame = pd.DataFrame({"town": ["a", None, b"b"], "age": [1, 2, 300]})
    found = Schema({"town": OpenCategorical(), "age": Numeric(0, 100)}).check(frame)
    assert found.loc["town"].to_dict() == {
        "outside_bounds": 0, "undeclared": 1, "null": 1, "not_integer": 0, "unreadable": 0,
    }  # fmt: skip


class Poison(pd.DataFrame):
    """A table whose values must not be read."""

    def __getitem__(self, key):
        raise AssertionError("A record was read.")

    @property
    def iloc(self):
        raise AssertionError("A record was read.")


@pytest.mark.parametrize(
    "estimator",
    [
        TabularEncoder(SCHEMA),
        TabularMechanism(1.0, schema=SCHEMA),
        JointRandomizedResponse(1.0, schema=SCHEMA),
        PrivateEvolutionSampler(schema=SCHEMA),
        MomentSampler(schema=SCHEMA),
        DPSlicedWassersteinGenerator(schema=SCHEMA),
        SmoothedSlicedWassersteinGenerator(schema=SCHEMA),
        RelationalSampler(schema=Table(SCHEMA, primary_key="who")),
    ],
    ids=lambda estimator: type(estimator).__name__,
)
def test_other_estimators_refuse_unknown_labels_before_they_read(estimator):
    frame = Poison({"town": ["a", "b"], "age": [1.0, 2.0]})
    if isinstance(estimator, RelationalSampler):
        frame = Poison({"town": ["a", "b"], "age": [1.0, 2.0], "who": [1, 2]})
    with pytest.raises(PublicError, match=r"must (have|be) known"):
        estimator.fit(frame)


def test_other_estimators_take_known_labels():
    schema = SCHEMA.with_labels({"town": ["a"]})
    encoder = TabularEncoder(schema).fit()
    frame = pd.DataFrame({"town": ["a", "z", None], "age": [0.0, 50.0, 100.0]})
    encoded = encoder.transform(frame)
    assert_array_equal(encoded[:, :3], np.eye(3))
    assert encoder.inverse_transform(encoded)["town"].tolist()[:2] == ["a", "other"]
    released = TabularMechanism(1.0, schema=schema, random_state=0).fit_transform(frame)
    assert len(released) == 3


def test_a_codebook_may_declare_open_columns():
    rows = [
        {"name": "town", "type": "open", "nullable": "yes"},
        {"name": "trade", "type": "open_categorical", "values": "baker, smith"},
        {"name": "age", "type": "number", "min": 0, "max": 9},
    ]
    draft = Schema.draft(rows)
    assert draft.missing == {}
    schema = draft.to_schema()
    assert schema["town"] == OpenCategorical(nullable=True)
    assert schema["trade"] == OpenCategorical(["baker", "smith"])
    assert "OpenCategorical(nullable=True)" in draft.to_code()
