"""Tables with keys: what is declared is consistent, written without loss, and checked by row."""

import copy
import json
import pickle

import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sklearn_dpgen.exceptions import InvalidFileError, PublicError
from sklearn_dpgen.persistence._codec import Decoder, Encoder
from sklearn_dpgen.persistence._container import Arrays
from sklearn_dpgen.schema import (
    Categorical,
    Datetime,
    Identifier,
    Numeric,
    Ordinal,
    RelationalSchema,
    Schema,
    Table,
)

PERSON = Schema({"sex": Categorical(["f", "m"])})
VISIT = Schema(
    {
        "day": Datetime("2020-01-01", "2024-12-31", resolution="D"),
        "cost": Numeric(0, 5000, nullable=True),
    }
)
LINE = Schema({"n": Numeric(1, 9, integer=True)})
WARD = Schema(
    {
        "beds": Numeric(0, 100),
        "kind": Categorical(["x", 3], nullable=True),
        "since": Datetime("2000-01-01", "2020-01-01", zone="Europe/Paris", nullable=True),
    }
)
WARDS = pd.DataFrame(
    {
        "ward": [f"w{i}" for i in range(20)],
        "beds": np.linspace(0, 1, 20),
        "kind": ["x", 3, None, "x"] * 5,
        "since": ["2010-01-01", None] * 10,
    }
)


def patients(**options):
    return Table(PERSON, **({"primary_key": "patient"} | options))


def visits(**options):
    link = {"foreign_key": {"patient": "patients"}, "sequence_index": "day", "max_rows": 3}
    return Table(VISIT, **(link | options))


def wards(**options):
    return Table(WARD, **({"primary_key": "ward", "frame": WARDS} | options))


def hospital():
    """Three private tables in a chain, and a public one."""
    return RelationalSchema(
        {
            "lines": Table(LINE, foreign_key={"visit": "visits"}, max_rows=4),
            "visits": visits(
                primary_key="visit",
                foreign_key={"ward": "wards", "patient": "patients"},
                ties=False,
                aggregates=["cost"],
            ),
            "patients": patients(),
            "wards": wards(),
        }
    )


def panel(**options):
    schema = Schema({"sex": PERSON["sex"], **VISIT})
    rows = {"primary_key": "patient", "sequence_index": "day", "max_rows": 2, "static": ["sex"]}
    return Table(schema, **(rows | options))


def test_a_tree_of_tables():
    schema = hospital()
    assert schema.root == "patients"
    assert schema.order == ["patients", "visits", "lines"]
    assert [schema.parent(name) for name in schema] == ["visits", "patients", None, None]
    assert schema.parent_key("visits") == "patient"
    assert schema.children("patients") == ["visits"]
    assert not schema.is_panel
    assert RelationalSchema({"rows": panel()}).is_panel
    assert (len(schema), "wards" in schema) == (4, True)


def test_a_row_per_person_needs_no_key():
    assert RelationalSchema({"patients": Table(PERSON)}).order == ["patients"]


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"schema": {"sex": PERSON["sex"]}}, "schema must be a Schema, got a dict"),
        ({"primary_key": ["patient"]}, "primary_key must be the name of a column, got a list"),
        ({"primary_key": "cost"}, "A key must be no modelled column, got 'cost'"),
        ({"foreign_key": {"day": "patients"}}, "A key must be no modelled column, got 'day'"),
        ({"foreign_key": "patient"}, "foreign_key must map columns to names of tables"),
        ({"foreign_key": {"patient": 3}}, "must be the name of a table, got 3"),
        ({"primary_key": "patient"}, "primary_key must be another column than foreign_key"),
        ({"sequence_index": "date"}, "sequence_index must be a column of the schema, got 'date'"),
        ({"sequence_index": "cost"}, "got the Numeric 'cost'"),
        ({"max_rows": 0}, "max_rows must be an integer of at least 1, got 0"),
        ({"max_rows": True}, "max_rows must be an integer of at least 1, got True"),
        ({"max_rows": 2.0}, "max_rows must be an integer of at least 1, got 2.0"),
        ({"ties": None}, "ties must be True or False"),
        ({"ties": False, "sequence_index": None}, "ties=False requires sequence_index"),
        ({"ties": False, "max_rows": 1828}, "max_rows must be at most 1827"),
        ({"static": "cost"}, "static must be a list of columns of the schema"),
        ({"static": ["x"]}, "static must be columns of the schema, got 'x'"),
        ({"static": ["cost", "cost"]}, "static must be distinct columns"),
        ({"static": ["day"]}, "other than keys and sequence_index, got 'day'"),
    ],
)
def test_a_table_that_contradicts_itself_is_refused(options, said):
    schema = options.get("schema", VISIT)
    rest = {"foreign_key": {"patient": "patients"}, "sequence_index": "day", "max_rows": 3}
    rest |= {name: value for name, value in options.items() if name != "schema"}
    with pytest.raises(PublicError) as error:
        Table(schema, **rest)
    assert said in str(error.value)


@pytest.mark.parametrize(
    ("column", "said"),
    [
        (Numeric(0, 9, integer=True), None),
        (Datetime("2020-01-01", "2024-12-31"), None),
        (Ordinal([1, 2.5, 4]), None),
        (Numeric(0, 9), "must be Numeric with integer=True, Datetime, or Ordinal"),
        (Ordinal(["a", "b"]), "got the Ordinal 'i'"),
        (Ordinal([2, 1]), "increasing numbers"),
        (Ordinal([False, True]), "increasing numbers"),
        (Categorical([1, 2]), "got the Categorical 'i'"),
        (Identifier(), "got the Identifier 'i'"),
        (Numeric(0, 9, integer=True, nullable=True), "must not be nullable, got 'i'"),
    ],
)
def test_types_of_an_index(column, said):
    schema = Schema({"i": column, "x": Numeric(0, 1)})
    options = {"primary_key": "k", "sequence_index": "i", "max_rows": 2}
    if said is None:
        assert Table(schema, **options).sequence_index == "i"
        return
    with pytest.raises(ValueError, match=said):
        Table(schema, **options)


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"primary_key": None}, "primary_key must be given for a panel"),
        ({"max_rows": None}, "max_rows must be given for a panel"),
        ({"static": ["sex", "cost"], "sequence_index": None}, None),
        ({"static": ["sex", "cost", "day"], "sequence_index": None}, "must leave a column"),
        (
            {"static": ["sex", "cost"], "aggregates": ["cost"]},
            "aggregates must be distinct columns",
        ),
    ],
)
def test_panels(options, said):
    if said is None:
        assert panel(**options).static == ("sex", "cost")
        return
    with pytest.raises(ValueError, match=said):
        panel(**options)


@pytest.mark.parametrize(
    ("build", "aggregates", "said"),
    [
        (visits, "cost", "aggregates must be a list of columns of the schema, got the text 'cost'"),
        (visits, [1], "aggregates must be the name of a column"),
        (visits, ["price"], "aggregates must be columns of the schema, got 'price'"),
        (visits, ["cost", "cost"], "aggregates must be distinct columns"),
        (visits, ["day"], "other than keys, sequence_index and static columns, got 'day'"),
        (patients, ["sex"], "aggregates must be empty for a table with one row per person"),
        (wards, ["beds"], "and no aggregates"),
    ],
)
def test_aggregates_are_of_columns_of_many_rows(build, aggregates, said):
    with pytest.raises(PublicError, match=said):
        build(aggregates=aggregates)


def test_aggregates_are_part_of_a_declaration():
    table = visits(aggregates=["cost"])
    assert table.aggregates == ("cost",)
    assert table != visits()


def test_a_key_may_be_an_identifier_of_the_schema():
    table = Table(Schema({"patient": Identifier("p"), **PERSON}), primary_key="patient")
    counts = RelationalSchema({"patients": table}).check(
        {"patients": pd.DataFrame({"patient": [1, 1, None], "sex": "f"})}
    )["patients"]
    assert counts.index.tolist() == ["patient", "sex"]
    assert counts.loc["patient", ["null", "repeated"]].tolist() == [1, 2]


BROKEN = {
    "unknown parent": (
        {"patients": patients(), "visits": visits(foreign_key={"patient": "persons"})},
        r"Table 'visits': foreign_key 'patient' must name a table of the schema, got 'persons'",
    ),
    "parent without a key": (
        {"patients": patients(primary_key=None), "visits": visits()},
        "table 'patients' must have a primary_key",
    ),
    "a cycle": (
        {
            "patients": patients(),
            "a": visits(primary_key="a", foreign_key={"b": "b"}),
            "b": visits(primary_key="b", foreign_key={"a": "a"}),
        },
        r"must form a tree, got a cycle of foreign keys in \['a', 'b'\]",
    ),
    "its own parent": (
        {"patients": patients(foreign_key={"mother": "patients"}, max_rows=3)},
        "got a cycle",
    ),
    "two private parents": (
        {
            "patients": patients(),
            "doctors": Table(PERSON, primary_key="doctor"),
            "visits": visits(foreign_key={"patient": "patients", "doctor": "doctors"}),
        },
        "Table 'visits' must have at most one private parent.*would belong to two persons",
    ),
    "one private parent twice": (
        {"patients": patients(), "visits": visits(foreign_key={"a": "patients", "b": "patients"})},
        "at most one private parent",
    ),
    "two roots": (
        {"patients": patients(), "doctors": Table(PERSON)},
        r"exactly one root.*got \['patients', 'doctors'\]",
    ),
    "nothing private": ({"wards": wards()}, r"exactly one root.*got \[\]"),
    "a child without max_rows": (
        {"patients": patients(), "visits": visits(max_rows=None)},
        "Table 'visits': max_rows must be given",
    ),
    "a static column of a child": (
        {"patients": patients(), "visits": visits(static=["cost"])},
        "Table 'visits': static must be empty for a child",
    ),
    "a panel with children": (
        {"patients": panel(), "visits": visits()},
        "Table 'visits': foreign_key must not name the panel 'patients': split it",
    ),
    "a panel with a public parent and without max_rows": (
        {"rows": panel(foreign_key={"ward": "wards"}, max_rows=None), "wards": wards()},
        "Table 'rows': max_rows must be given for a panel",
    ),
    "no tables": ({}, "non-empty mapping"),
    "a schema instead of a table": ({"patients": PERSON}, "Table 'patients' must be a Table"),
    "a number as name": ({1: patients()}, "Names of tables must be texts, got 1"),
}


@pytest.mark.parametrize(("tables", "said"), BROKEN.values(), ids=BROKEN)
def test_tables_that_contradict_one_another_are_refused(tables, said):
    with pytest.raises(PublicError, match=said):
        RelationalSchema(tables)


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"primary_key": None}, "must have primary_key"),
        ({"max_rows": 3}, "and no max_rows"),
        ({"frame": "wards.csv"}, "must be a data frame, got str"),
        ({"frame": WARDS.drop(columns="ward")}, "must have the column 'ward'"),
        ({"frame": WARDS.drop(columns="beds")}, r"missing \['beds'\]"),
        ({"frame": WARDS.assign(ward="a")}, "distinct integers or texts in its primary_key 'ward'"),
        ({"frame": WARDS.assign(ward=np.arange(20) / 2)}, "distinct integers or texts"),
        ({"frame": WARDS.assign(beds=101)}, r"column 'beds' has 20 values.*outside_bounds"),
    ],
)
def test_a_public_table_fits_its_schema(options, said):
    with pytest.raises(PublicError, match=said):
        wards(**options)


def test_the_rows_of_a_public_table_are_kept_as_declared():
    given = WARDS.copy()
    table = wards(frame=given)
    given["beds"] = 7.0
    assert table.frame["beds"].tolist() == WARDS["beds"].tolist()
    assert {name: table.frame[name].dtype for name in WARD} == {
        name: column.dtype for name, column in WARD.items()
    }
    assert table == wards(frame=table.frame)
    assert table != wards(frame=WARDS.iloc[::-1])
    assert table != patients()


def written(value):
    """Return what a file holds of a value, as JSON, and its arrays."""
    encoder = Encoder()
    document = json.loads(json.dumps(encoder.encode(value, "schema")))
    return document, Arrays(encoder.arrays, left=10**6)


def test_dates_of_a_public_table_are_read_again_whatever_their_format():
    founded = Datetime("1900-01-01", "2024-12-31", format="%d/%m/%Y", nullable=True)
    frame = pd.DataFrame({"ward": ["a", "b"], "founded": ["31/12/1950", None]})
    table = Table(Schema({"founded": founded}), primary_key="ward", frame=frame)
    document, arrays = written(table)
    again = Decoder(arrays).decode(document)
    assert again == table
    assert again.frame["founded"].astype(str).tolist()[0] == "1950-12-31"


@pytest.mark.parametrize(
    "schema",
    [hospital(), RelationalSchema({"rows": panel(ties=False, aggregates=["cost"])})],
    ids=["tree", "panel"],
)
def test_a_schema_is_written_and_read_without_loss(schema):
    frames = {name: table.frame for name, table in schema.items() if table.frame is not None}
    for read, text in (
        (RelationalSchema.from_yaml, schema.to_yaml()),
        (RelationalSchema.from_json, schema.to_json()),
        (RelationalSchema.from_dict, schema.to_dict()),
    ):
        assert read(text, frames=frames) == schema
        assert hash(read(text, frames=frames)) == hash(schema)
    document, arrays = written(schema)
    for again in (
        Decoder(arrays).decode(document),
        copy.deepcopy(schema),
        pickle.loads(pickle.dumps(schema)),
    ):
        assert again == schema
        assert list(again) == list(schema)


def test_a_forged_schema_of_a_file_is_refused():
    document, arrays = written(RelationalSchema({"rows": panel()}))
    table = document["fields"]["tables"]["dict"][0][1]
    table["fields"]["max_rows"] = "many"
    with pytest.raises(InvalidFileError, match="max_rows"):
        Decoder(arrays).decode(document)


def test_the_rows_of_a_public_table_are_not_written():
    text = hospital().to_yaml()
    assert "public: true" in text
    assert "w19" not in text
    with pytest.raises(ValueError, match=r"Table 'wards': frames must have the rows of a public"):
        RelationalSchema.from_yaml(text)
    with pytest.raises(ValueError, match="Table 'visits': frames must be those of tables with"):
        RelationalSchema.from_yaml(text, frames={"wards": WARDS, "visits": WARDS})
    with pytest.raises(ValueError, match=r"frames must be those of public tables, got \['x'\]"):
        RelationalSchema.from_yaml(text, frames={"wards": WARDS, "x": WARDS})


@pytest.mark.parametrize(
    ("declaration", "said"),
    [
        (PERSON.to_dict(), "the one key 'tables'"),
        ({"tables": {"type": "categorical", "categories": ["a", "b"]}}, "the one key 'tables'"),
        ({"tables": [1]}, "the one key 'tables'"),
        ({"tables": {"a": 3}}, "Table 'a': a declaration must be a mapping"),
        ({"tables": {"a": {}}}, r"Table 'a': missing \['columns'\]"),
        ({"tables": {"a": {"columns": {}, "key": 1}}}, r"Table 'a': unknown \['key'\]"),
        ({"tables": {"a": {"columns": {"x": 3}}}}, "Table 'a': Column 'x'"),
        ({"tables": {"a": {"columns": PERSON.to_dict(), "public": 1}}}, "public must be True"),
        ({"tables": {"a": {"columns": PERSON.to_dict(), "max_rows": 0}}}, "'a': max_rows must"),
    ],
)
def test_a_declaration_that_is_none(declaration, said):
    with pytest.raises(ValueError, match=said):
        RelationalSchema.from_dict(declaration)


def test_a_column_may_be_called_tables():
    schema = Schema({"tables": Categorical(["a", "b"])})
    assert Schema.from_yaml(schema.to_yaml()) == schema


ROWS = st.lists(
    st.tuples(
        st.sampled_from([None, 1, 2, 3, 4]),
        st.sampled_from(["w0", "w19", "?", None]),
        st.sampled_from(["2020-01-01", "2020-01-02", "never"]),
    ),
    max_size=12,
)


@pytest.mark.slow
@settings(deadline=None)
@given(st.lists(st.sampled_from([1, 2, 3, None]), max_size=6), ROWS)
def test_faults_of_keys_and_rows_are_counted(ids, rows):
    schema = RelationalSchema(
        {
            "patients": patients(),
            "visits": visits(
                foreign_key={"patient": "patients", "ward": "wards"}, ties=False, max_rows=2
            ),
            "wards": wards(),
        }
    )
    frames = {
        "patients": pd.DataFrame({"patient": pd.Series(ids, dtype=object), "sex": "f"}),
        "visits": pd.DataFrame(rows, columns=["patient", "ward", "day"], dtype=object).assign(
            cost=1
        ),
    }
    found = schema.check(frames)
    keys = [key for key in ids if key is not None]
    assert found["patients"].loc["patient", "repeated"] == sum(keys.count(key) > 1 for key in keys)
    assert found["patients"].loc["patient", "null"] == len(ids) - len(keys)
    owners = [row[0] for row in rows if row[0] is not None]
    days = [(key, day) for key, _, day in rows if key is not None and day != "never"]
    expected = {
        ("patient", "null"): len(rows) - len(owners),
        ("patient", "orphan"): sum(key not in keys for key in owners),
        ("patient", "over_max_rows"): sum(owners.count(key) > 2 for key in set(owners)),
        ("ward", "null"): sum(row[1] is None for row in rows),
        ("ward", "orphan"): sum(row[1] == "?" for row in rows),
        ("day", "tied"): sum(days.count(pair) > 1 for pair in days),
        ("day", "unreadable"): sum(row[2] == "never" for row in rows),
    }
    counts = found["visits"]
    assert counts.index.tolist() == ["day", "cost", "patient", "ward"]
    assert {pair: counts.loc[pair] for pair in expected} == expected
    assert counts.to_numpy().sum() == sum(expected.values())


def test_faults_of_a_panel_are_counted():
    schema = RelationalSchema({"rows": panel()})
    frame = pd.DataFrame(
        {
            "patient": [1, 1, 1, 2, 2, 3, None, None],
            "sex": ["f", "f", "m", "m", "m", "f", "f", "m"],
            "day": "2020-01-01",
            "cost": None,
        }
    )
    counts = schema.check({"rows": frame})["rows"]
    faults = {
        ("sex", "changing"): 1,
        ("patient", "over_max_rows"): 1,
        ("patient", "null"): 2,
    }
    assert {pair: counts.loc[pair] for pair in faults} == faults
    assert counts.to_numpy().sum() == 4


def test_rows_that_fit_have_no_faults():
    day = ["2020-01-01", "2020-01-02", "2020-01-01"]
    frames = {
        "patients": pd.DataFrame({"patient": ["a", "b"], "sex": ["f", "m"], "note": "secret"}),
        "visits": pd.DataFrame(
            {"visit": [1, 2, 3], "patient": ["a", "a", "b"], "ward": "w1", "day": day, "cost": 1}
        ),
        "lines": pd.DataFrame({"visit": [1, 1, 3], "n": [1, 1, 2]}),
    }
    found = hospital().check(frames)
    assert list(found) == ["lines", "visits", "patients"]
    assert not any(counts.to_numpy().any() for counts in found.values())


@pytest.mark.parametrize(
    ("tables", "said"),
    [
        (None, "must be a mapping of names to data frames, got None"),
        ({}, r"missing \['patients'\]"),
        ({"patients": None, "x": None}, r"unknown \['x'\]"),
        ({"patients": None}, "Table 'patients': frame must be a data frame, got NoneType"),
        ({"patients": pd.DataFrame({"patient": [1]})}, r"Table 'patients': .* missing \['sex'\]"),
        ({"patients": pd.DataFrame({"sex": ["f"]})}, "Table 'patients': .* key 'patient' once"),
    ],
)
def test_tables_that_cannot_be_checked(tables, said):
    with pytest.raises(PublicError, match=said) as error:
        RelationalSchema({"patients": patients()}).check(tables)
    assert "secret" not in str(error.value)


def test_keys_that_cannot_be_compared_are_refused_without_a_value():
    schema = RelationalSchema({"patients": patients(), "visits": visits()})
    people = pd.DataFrame({"patient": [["secret"], ["secret"]], "sex": "f"})
    rows = pd.DataFrame({"patient": [1], "day": "2020-01-01", "cost": 1})
    with pytest.raises(ValueError, match="Table 'visits': keys must be numbers or texts") as error:
        schema.check({"patients": people, "visits": rows})
    assert "secret" not in str(error.value)


@pytest.mark.parametrize("dtype", ["object", "string", "category", None])
def test_keys_of_two_types_are_refused(dtype):
    schema = RelationalSchema({"patients": patients(), "visits": visits()})
    # None is the dtype that pandas finds, which is "str" from 3 on.
    kind = {"patient": dtype} if dtype else {}
    people = pd.DataFrame({"patient": ["01", None], "sex": "f"}).astype(kind)
    rows = pd.DataFrame({"patient": [1, 2], "day": "2020-01-01", "cost": 1})
    said = "Table 'visits': foreign_key 'patient' must be of the type of the primary key of table"
    with pytest.raises(ValueError, match=said):
        schema.check({"patients": people, "visits": rows})
    # The twin: texts of integers are compared, as in a CSV file and a Parquet file.
    people = pd.DataFrame({"patient": ["1", None], "sex": "f"}).astype(kind)
    counts = schema.check({"patients": people, "visits": rows})["visits"]
    assert counts.loc["patient", "orphan"] == 1
    # So are the same keys in one type, and in any dtype of it.
    rows = rows.astype({"patient": str})
    assert (
        schema.check({"patients": people, "visits": rows})["visits"].loc["patient", "orphan"] == 1
    )
    assert schema.check({"patients": people, "visits": rows[:0]})["visits"].to_numpy().sum() == 0
