"""What a shell and a notebook show of declarations: a line or a row for each column, escaped."""

from html.parser import HTMLParser

import pandas as pd
import pytest

from sklearn_dpgen.schema import (
    Categorical,
    Datetime,
    Identifier,
    Numeric,
    OpenCategorical,
    RelationalSchema,
    Schema,
    Table,
)

HOSTILE = "<script>alert(1)</script>"
COLUMNS = Schema(
    {
        "age": Numeric(0, 120, integer=True),
        "day": Datetime("2020-01-01", "2022-12-31", resolution="D"),
        "code": Categorical([f"c{i}" for i in range(40)], nullable=True),
        HOSTILE: Categorical([HOSTILE, "no"]),
        "town": OpenCategorical(max_labels=50),
        "id": Identifier(),
    }
)
TABLES = RelationalSchema(
    {
        "patients": Table(Schema({"age": Numeric(0, 120)}), primary_key="id"),
        "visits": Table(
            Schema({"day": Numeric(0, 9, integer=True), "ward": Categorical(["a", "b"])}),
            foreign_key={"patient": "patients"},
            sequence_index="day",
            max_rows=8,
        ),
    }
)


class Reader(HTMLParser):
    def __init__(self, text):
        super().__init__()
        self.tags, self.rows, self.text = [], [], ""
        self.feed(text)
        self.rows = [[cell.strip() for cell in row] for row in self.rows]

    def handle_starttag(self, tag, attrs):
        self.tags.append(tag)
        if tag == "tr":
            self.rows.append([])
        if tag in ("td", "th"):
            self.rows[-1].append("")

    def handle_data(self, data):
        self.text += data
        if self.rows and self.rows[-1]:
            self.rows[-1][-1] += data


def test_a_schema_has_a_line_for_each_column():
    lines = repr(COLUMNS).splitlines()
    assert lines[0] == "Schema({"
    assert lines[-1] == "})"
    assert lines[1] == "    'age': Numeric(0, 120, integer=True),"
    assert lines[2] == "    'day': Datetime('2020-01-01', '2022-12-31', resolution='D'),"
    assert lines[3].endswith("'c5', … 40 in all], nullable=True),")
    assert lines[6] == "    'id': Identifier(),"
    assert len(lines) == len(COLUMNS) + 2


def test_forty_columns_are_readable():
    labels = ["a label of many, many, many, many, many, many letters", "b"]
    wide = Schema({f"column {i}": Categorical(labels) for i in range(40)})
    lines = repr(wide).splitlines()
    assert len(lines) == 42
    assert max(map(len, lines)) < 100


def test_a_short_schema_is_code_on_one_line():
    schema = Schema({"a": Numeric(0, 1), "b": Categorical(["x", "y"])})
    assert repr(schema) == "Schema({'a': Numeric(0, 1), 'b': Categorical(['x', 'y'])})"
    names = {"Schema": Schema, "Numeric": Numeric, "Categorical": Categorical}
    assert eval(repr(schema), names) == schema


def test_tables_are_code_too():
    names = {"RelationalSchema": RelationalSchema, "Table": Table, "Schema": Schema}
    names |= {"Numeric": Numeric, "Categorical": Categorical}
    assert eval(repr(TABLES), names) == TABLES
    lines = repr(TABLES).splitlines()
    assert "        foreign_key={'patient': 'patients'}," in lines
    assert max(map(len, lines)) < 100


def test_the_rows_of_a_public_table_are_not_shown():
    frame = pd.DataFrame({"ward": [1], "beds": [77]})
    table = Table(Schema({"beds": Numeric(0, 99)}), primary_key="ward", frame=frame)
    for text in (repr(table), table._repr_html_()):
        assert "77" not in text
    assert "frame=..." in repr(table)
    assert "public, and not protected" in table._repr_html_()


def test_a_notebook_has_a_row_for_each_column():
    found = Reader(COLUMNS._repr_html_())
    assert found.rows[0] == ["column", "type", "declaration"]
    assert found.rows[1] == ["age", "Numeric", "0, 120, integer=True"]
    assert len(found.rows) == len(COLUMNS) + 1
    assert "Schema of 6 columns" in found.text
    assert "script" not in found.tags
    # The twin: text that is not escaped has the tag.
    assert "script" in Reader(f"<table><tr><td>{HOSTILE}</td></tr></table>").tags


def test_a_notebook_shows_keys_and_columns_of_tables():
    found = Reader(TABLES._repr_html_())
    assert ["patients", "age", "Numeric", "0, 120"] in found.rows
    assert ["patients", "primary key id"] in found.rows
    words = "foreign key patient of patients; ordered by day; at most 8 rows modelled for each key"
    assert ["visits", words] in found.rows
    single = Reader(TABLES["visits"]._repr_html_())
    assert ["ward", "Categorical", "['a', 'b']"] in single.rows


@pytest.mark.parametrize("n", [500, 501])
def test_many_columns_are_counted(n):
    found = Reader(Schema({f"c{i}": Numeric(0, 1) for i in range(n)})._repr_html_())
    assert ("and 1 more columns" in found.text) is (n > 500)
