"""Identifiers are declared, never read, and made up."""

import pickle

import pandas as pd
import pytest

from sklearn_dpgen.preprocessing import TabularEncoder
from sklearn_dpgen.schema import Categorical, Identifier, Schema

SCHEMA = Schema({"id": Identifier("x"), "job": Categorical(["baker", "nurse"])})


class Secret:
    def __eq__(self, other):
        raise AssertionError("It was read.")

    __hash__ = __str__ = __repr__ = __bool__ = __eq__


def test_declarations_are_lossless():
    for schema in (SCHEMA, Schema(dict(SCHEMA) | {"id": Identifier()})):
        assert Schema.from_yaml(schema.to_yaml()) == schema
        assert Schema.from_json(schema.to_json()) == schema
        assert pickle.loads(pickle.dumps(schema)) == schema
    assert SCHEMA.to_dict()["id"] == {"type": "identifier", "prefix": "x"}
    assert eval(repr(SCHEMA["id"]), {"Identifier": Identifier}) == SCHEMA["id"]


def test_keys_are_made_up():
    assert Identifier().made_up(3).tolist() == [0, 1, 2]
    assert Identifier().made_up(0).dtype == Identifier().dtype == "int64"
    texts = Identifier("a").made_up(2)
    assert texts.tolist() == ["a0", "a1"]
    assert texts.dtype == Identifier("a").dtype == pd.Series(["a0"]).dtype


def test_no_value_is_read():
    frame = pd.DataFrame({"id": [Secret(), Secret()], "job": ["nurse", "baker"]})
    encoder = TabularEncoder(SCHEMA).fit(frame)
    made = encoder.inverse_transform(encoder.transform(frame))
    assert made["id"].tolist() == ["x0", "x1"]
    assert made["job"].tolist() == ["nurse", "baker"]
    assert SCHEMA.check(frame).loc["id"].sum() == 0
    assert encoder.get_feature_names_out().tolist() == ["id=<made up>", "job=baker", "job=nurse"]
    # Other columns are.
    with pytest.raises((AssertionError, ValueError)):
        TabularEncoder(Schema({"id": Categorical(["a"]), "job": SCHEMA["job"]})).fit_transform(
            frame
        )


def test_identifiers_alone_have_nothing_to_tell():
    with pytest.raises(
        ValueError, match="At least one column must be neither constant nor an identifier"
    ):
        Schema({"id": Identifier()})
