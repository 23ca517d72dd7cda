"""check: where the values are that do not fit, by which causes, and what mends them."""

import bz2
import copy
import csv
import gzip
import io
import shlex
import subprocess
import sys

import numpy as np
import pandas as pd
import pytest

from sklearn_dpgen.command_line._causes import Cause, causes_of, hints_of
from sklearn_dpgen.preprocessing import _files
from sklearn_dpgen.preprocessing._reader import numbered_frames
from sklearn_dpgen.schema import Categorical, Datetime, Numeric

SCHEMA = """\
who: {type: identifier}
sex: {type: categorical, categories: [f, m]}
admitted: {type: datetime, low: 2010-01-01, high: 2022-12-31, resolution: D}
weight: {type: numeric, low: 30, high: 250}
"""
HEAD = ["who", "sex", "admitted", "weight", "note"]
# What is in no output unless it is asked for.
SECRETS = ["Zanzibar", "31415", "2718-", "Quokka"]


@pytest.fixture
def messy(run, folder):
    """Write rows as a CSV file, and return the lines on which its records begin."""
    (folder / "messy.yaml").write_text(SCHEMA, encoding="utf-8")

    def write(rows, name="messy.csv", end="\r\n", pack=bytes):
        lines, line, text = [], 2, ",".join(HEAD) + end
        for row in rows:
            out = io.StringIO(newline="")
            csv.writer(out, lineterminator=end).writerow(row)
            lines.append(line)
            text += out.getvalue()
            # A lone return, a lone line feed, and both together, are one break each.
            line += out.getvalue().replace("\r\n", "\n").replace("\r", "\n").count("\n")
        (folder / name).write_bytes(pack(text.encode()))
        return lines

    return write


def rows(n=400, seed=0):
    rng = np.random.default_rng(seed)
    notes = ["", "a", 'b\n"c"', "d\r\n\r\ne, f", '"\r'] if n else []
    return [
        [
            i,
            rng.choice(["f", "m", "F ", "Zanzibar"], p=[0.6, 0.3, 0.05, 0.05]),
            rng.choice(["2012-03-04", "13/04/2012", "2718-01-01"], p=[0.8, 0.1, 0.1]),
            rng.choice(["71.5", "80,5", "unknown", "31415", "Quokka"], p=[0.6, 0.1, 0.1, 0.1, 0.1]),
            rng.choice(notes),
        ]
        for i in range(n)
    ]


def expected(table, lines, i, values, key="line"):
    found = [line for row, line in zip(table, lines, strict=True) if row[i] in values]
    return [{key: line} for line in found[:5]], len(found)


FAULTS = [
    ("sex", 1, "undeclared", {"F ", "Zanzibar"}),
    ("admitted", 2, "unreadable", {"13/04/2012"}),
    ("admitted", 2, "outside_bounds", {"2718-01-01"}),
    ("weight", 3, "unreadable", {"80,5", "unknown", "Quokka"}),
    ("weight", 3, "outside_bounds", {"31415"}),
]


@pytest.mark.slow
@pytest.mark.parametrize("end", ["\n", "\r\n", "\r"], ids=["unix", "windows", "mac"])
@pytest.mark.parametrize("block", [57, 1 << 22])
def test_lines_of_records_with_line_breaks(run, messy, monkeypatch, end, block):
    """Whatever ends a line, and wherever the blocks of a file end."""
    monkeypatch.setattr(_files, "_BLOCK", block)
    table = rows()
    lines = messy(table, end=end)
    # Negative twin: the numbers of records are not those of lines.
    assert lines != [*range(2, 2 + len(table))]
    found = run("check", "messy.yaml", "messy.csv", "--json").json
    for column, i, fault, values in FAULTS:
        places, n = expected(table, lines, i, values)
        assert found["faults"][column][fault] == n > 5
        assert found["places"][column][fault] == places


def test_empty_lines_and_a_byte_order_mark(run, messy, folder):
    text = "\ufeff\n\nwho,sex,admitted,weight\n\n1,f,2012-03-04,50\n\n\n2,x,2012-03-04,5\n"
    (folder / "messy.csv").write_text(text, encoding="utf-8", newline="")
    messy([], name="other.csv")
    found = run("check", "messy.yaml", "messy.csv", "--json").json
    assert found["places"]["sex"]["undeclared"] == [{"line": 8}]


@pytest.mark.parametrize(("ending", "pack"), [(".gz", gzip.compress), (".bz2", bz2.compress)])
def test_several_files_are_named(run, messy, ending, pack):
    table = rows()
    first, second = f"a.csv{ending}", f"b.csv{ending}"
    clean = [[i, "f", "2012-03-04", "50", "x"] for i in range(3)]
    bad = [[9, "Zanzibar", "2012-03-04", "50", "x"]]
    messy([*clean, *bad], first, pack=pack)
    lines = messy(table, second, pack=pack)
    found = run("check", "messy.yaml", first, second, "--json").json
    places, n = expected(table, lines, 1, {"F ", "Zanzibar"})
    places = [{"file": first, "line": 5}, *({"file": second, **place} for place in places[:4])]
    assert found["places"]["sex"]["undeclared"] == places
    text = run("check", "messy.yaml", first, second).out
    shown = ", ".join(str(place["line"]) for place in places[1:])
    assert f"  line 5 of {first}; lines {shown} of {second} and {n - 4} more\n" in text


def test_rows_of_other_formats(run, messy):
    table = rows()
    frame = pd.DataFrame(table, columns=HEAD).drop(columns=["admitted", "weight"])
    frame.assign(admitted=pd.Timestamp("2012-03-04"), weight=np.arange(400.0)).to_parquet(
        "t.parquet", row_group_size=33
    )
    messy([])
    found = run("check", "messy.yaml", "t.parquet", "--json").json
    places, n = expected(table, range(1, 401), 1, {"F ", "Zanzibar"}, "row")
    assert found["places"]["sex"]["undeclared"] == places
    assert found["places"]["weight"]["outside_bounds"] == [{"row": i + 1} for i in range(5)]
    assert f"  rows {places[0]['row']}, " in run("check", "messy.yaml", "t.parquet").out


def test_lines_of_persons_and_identifiers(run, messy):
    table = rows(60)
    for i in (7, 20, 41):
        table[i][0] = ""
    for i in (5, 30, 31):
        table[i][0] = 55
    lines = messy(table)
    found = run("check", "messy.yaml", "messy.csv", "--json").json
    assert found["faults"]["who"] == {"repeated": 4}
    assert found["places"]["who"]["repeated"] == [{"line": lines[i]} for i in (5, 30, 31, 55)]
    found = run("check", "messy.yaml", "messy.csv", "--unit", "who", "--json").json
    assert found["faults"]["who"] == {"unnamed": 3}
    assert found["places"]["who"]["unnamed"] == [{"line": lines[i]} for i in (7, 20, 41)]


def test_lines_of_a_relational_schema(run, messy, folder):
    (folder / "tables.yaml").write_text(
        "tables:\n"
        "  persons: {columns: {sex: {type: categorical, categories: [f, m]}}, primary_key: who}\n"
        "  stays:\n"
        "    columns: {weight: {type: numeric, low: 30, high: 250}}\n"
        "    foreign_key: {who: persons}\n    max_rows: 3\n"
    )
    persons, stays = rows(60), rows(60, seed=1)
    stays[4][0] = ""
    lines = messy(persons, "p.csv"), messy(stays, "s.csv")
    options = ("--table", "persons=p.csv", "--table", "stays=s.csv")
    found = run("check", "tables.yaml", *options, "--json").json["tables"]
    places, _ = expected(persons, lines[0], 1, {"F ", "Zanzibar"})
    assert found["persons"]["places"]["sex"]["undeclared"] == places
    places, _ = expected(stays, lines[1], 3, {"80,5", "unknown", "Quokka"})
    assert found["stays"]["places"]["weight"]["unreadable"] == places
    assert found["stays"]["places"]["who"] == {"missing_key": [{"line": lines[1][4]}]}
    assert found["stays"]["faults"]["who"]["missing_key"] == 1
    text = run("check", "tables.yaml", *options).out
    assert "with a decimal comma, unlike most of the column" in text
    assert all(secret not in text for secret in SECRETS)


def test_no_value_is_shown_unless_it_is_asked_for(run, messy):
    messy(rows())
    for more in ((), ("--json",)):
        done = run("check", "messy.yaml", "messy.csv", *more)
        assert done.code == 1
        assert all(secret not in done.all for secret in SECRETS)
        # The twin: they are where they are asked for, and said to be private.
        done = run("check", "messy.yaml", "messy.csv", "--show-values", *more)
        assert all(secret in done.out for secret in SECRETS)
        assert "PRIVATE" in done.out
        assert all(secret not in done.err for secret in SECRETS)


def test_values_are_counted_and_cut(run, messy):
    table = rows(40)
    for row in table:
        row[1] = "x" * 100 if row[0] % 2 else "y\n"
    messy(table)
    found = run("check", "messy.yaml", "messy.csv", "--show-values", "--json").json
    assert found["values"]["sex"]["undeclared"] == [
        {"text": "y\n", "count": 20},
        {"text": "x" * 60 + "...", "count": 20},
    ]


@pytest.mark.slow
def test_what_is_shown_can_be_pasted(run, messy, folder):
    """The command is run and the codes are declared: their faults are gone."""
    table = rows()
    n_labels = sum(row[1] == "F " for row in table)
    messy(table)
    found = run("check", "messy.yaml", "messy.csv", "--json").json
    hints = {hint["columns"][0]: hint for hint in found["hints"] if hint["where"] == "shell"}
    assert hints["sex"]["n_values"] == n_labels
    program, *arguments = shlex.split(hints["sex"]["mends"][0])
    assert program == "python"
    subprocess.run([sys.executable, *arguments], check=True)
    codes = [m for hint in found["hints"] for m in hint["mends"] if m.startswith("missing")]
    assert codes == ['missing: ["unknown"]']
    text = SCHEMA.replace("high: 250", f"high: 250, {codes[0]}")
    (folder / "messy.yaml").write_text(text, encoding="utf-8")
    mended = run("check", "messy.yaml", "messy-mended.csv", "--json").json
    assert mended["n_rows"] == len(table)
    n_left = found["faults"]["sex"]["undeclared"] - mended["faults"]["sex"]["undeclared"]
    assert n_left == n_labels
    n_left = found["faults"]["weight"]["unreadable"] - mended["faults"]["weight"]["unreadable"]
    assert n_left == sum(row[3] == "unknown" for row in table)
    # Other columns are as they were.
    given, written = (pd.read_csv(f, dtype=str) for f in ("messy.csv", "messy-mended.csv"))
    pd.testing.assert_frame_equal(given.drop(columns="sex"), written.drop(columns="sex"))


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "words", "delimiter", "encoding"),
    [
        ("it's $1.csv", 'delimiter: ";"\nencoding: cp1252\n', ";", "cp1252"),
        ("a b.tsv", "", "\t", "utf-8"),
        ("a.csv.gz", "", ",", "utf-8"),
    ],
)
def test_a_mended_file_is_written_as_the_given_one(run, folder, name, words, delimiter, encoding):
    columns = {"sex": "{type: categorical, categories: [f, männl.]}"}
    columns |= {"day": "{type: datetime, low: 2010-01-01, high: 2022-12-31, resolution: D}"}
    text = words + "columns:\n" + "".join(f"  {k}: {v}\n" for k, v in columns.items())
    (folder / "words.yaml").write_text(text, encoding="utf-8")
    rows = [["F", "2012-03-04 "], [" Männl.", "2012-03-04"], ["", "2012-03-04"]]
    table = "".join(delimiter.join(row) + "\n" for row in [["sex", "day"], *rows])
    pack = gzip.compress if name.endswith(".gz") else bytes
    (folder / name).write_bytes(pack(table.encode(encoding)))
    found = run("check", "words.yaml", name, "--json").json
    (hint,) = (hint for hint in found["hints"] if hint["where"] == "shell")
    assert (hint["columns"], hint["n_values"]) == (["sex", "day"], 3)
    subprocess.run([sys.executable, *shlex.split(hint["mends"][0])[1:]], check=True)
    mended = name.removesuffix(".gz")[:-4] + "-mended" + name.removesuffix(".gz")[-4:]
    assert run("check", "words.yaml", mended, "--json").json["faults"] == {"sex": {"null": 1}}


NUMBER, DATE = Numeric(0, 100), Datetime("2010-01-01", "2022-12-31", resolution="D")
LABEL = Categorical(["yes", "00501"])
CAUSES = {
    "decimal comma": (NUMBER, "unreadable", ["3,5", "12,25"], 'decimal: ","'),
    "thousands": (NUMBER, "unreadable", ["1,234", "1,234,567.5"], 'thousands: ","'),
    "either": (NUMBER, "unreadable", ["1,234"], 'decimal: "," / thousands: ","'),
    "both": (NUMBER, "unreadable", ["1.234,5"], 'decimal: ","\nthousands: "."'),
    "blanks": (NUMBER, "unreadable", ["1 234", "2 000,5"], 'decimal: ","\nthousands: " "'),
    "currency": (NUMBER, "unreadable", ["€ 12.50", "13 €"], 'currency: "€"'),
    "percent": (NUMBER, "unreadable", ["12 %"], ""),
    "unit": (NUMBER, "unreadable", ["12.5 kg"], ""),
    "limit": (NUMBER, "unreadable", ["<5"], ""),
    "code": (NUMBER, "outside_bounds", ["-999", "-999.0"], "missing: [-999]"),
    "word": (NUMBER, "unreadable", ["N/A ", "Unknown"], 'missing: ["N/A", "Unknown"]'),
    "other code": (
        Numeric(0, 9, missing=["x"]),
        "outside_bounds",
        ["99"],
        'missing: ["x", 99]',
    ),
    "days": (DATE, "unreadable", ["13/02/2012", "01/02/2012"], 'format: "%d/%m/%Y"'),
    "months": (DATE, "unreadable", ["02/13/2012", "01/02/2012"], 'format: "%m/%d/%Y"'),
    "days or months": (
        DATE,
        "unreadable",
        ["01/02/2012"],
        'format: "%d/%m/%Y" / format: "%m/%d/%Y"',
    ),
    "times": (DATE, "unreadable", ["3.4.2012 11:12"], 'format: "%d.%m.%Y %H:%M"'),
    "names": (DATE, "unreadable", ["3-May-2012"], 'format: "%d-%b-%Y"'),
    "serial": (DATE, "unreadable", ["41000"], ""),
    "date": (DATE, "outside_bounds", ["9999-12-31 00:00:00"], 'missing: ["9999-12-31"]'),
    "label": (LABEL, "undeclared", ["?"], 'missing: ["?"]'),
    "zeros": (LABEL, "undeclared", ["501"], ""),
}


@pytest.mark.parametrize("cause", CAUSES)
def test_usual_causes(cause):
    column, fault, texts, line = CAUSES[cause]
    counts = {}
    for text in texts:
        for found in causes_of(fault, column, text):
            counts[found] = counts.get(found, 0) + 1
    (hint,) = [h for h in hints_of("x", column, counts) if line or h.where is None]
    assert " / ".join(hint.mends) == line
    assert hint.n_values == len(texts)


@pytest.mark.parametrize(
    ("column", "word", "value", "text"),
    [
        (NUMBER, "decimal", ",", "12.5"),
        (DATE, "format", "%d/%m/%Y", "2012-03-04"),
        (DATE, "format", "%d/%m/%Y", "04.03.2012"),
    ],
)
def test_texts_that_are_not_as_declared(column, word, value, text):
    """A column in two ways of writing: no word mends it, and none is offered."""
    column = copy.copy(column)
    object.__setattr__(column, word, value)
    assert causes_of("unreadable", column, text) == {Cause("mixed")}
    (hint,) = hints_of("x", column, {Cause("mixed"): 2})
    assert (hint.mends, "otherwise than declared" in hint.cause) == ((), True)
    assert causes_of("unreadable", column, "Quokka") == set()


def test_spellings_of_labels():
    assert causes_of("undeclared", LABEL, " yes") == {Cause("blanks")}
    assert causes_of("undeclared", LABEL, "YES ") == {Cause("case")}


@pytest.mark.parametrize("column", [NUMBER, DATE, LABEL], ids=["number", "date", "label"])
@pytest.mark.parametrize("text", ["Quokka", "12,3,4", "1/2/3/4", "", "31.31.2012", "x" * 300])
def test_other_texts_have_no_cause(column, text):
    fault = "undeclared" if column is LABEL else "unreadable"
    assert causes_of(fault, column, text) == set()


def test_blocks_of_a_file_keep_their_places(messy, monkeypatch):
    monkeypatch.setattr(_files, "_BLOCK", 300)
    lines = messy(rows())
    parts = [*numbered_frames(["messy.csv"], {"who": None})]
    assert len(parts) > 10
    assert np.concatenate([places for _, places, _ in parts]).tolist() == lines


@pytest.mark.parametrize(("n_iso", "is_declared"), [(20, False), (2, True)])
def test_few_values_that_are_written_otherwise_are_to_be_corrected(run, folder, n_iso, is_declared):
    """A word for the whole column would make faults of those that fit."""
    schema = "day: {type: datetime, low: 2010-01-01, high: 2022-12-31, resolution: D}\n"
    schema += "cost: {type: numeric, low: 0, high: 10}\n"
    (folder / "few.yaml").write_text(schema, encoding="utf-8")
    rows = ["2020-02-13,1.5"] * n_iso + ['13.02.2020,"7,5"'] * 3
    (folder / "few.csv").write_text("\n".join(["day,cost", *rows]) + "\n", encoding="utf-8")
    found = run("check", "few.yaml", "few.csv", "--json").json
    lines = [line for hint in found["hints"] for line in hint["mends"]]
    assert any(line.startswith("format") for line in lines) == is_declared
    assert any(line.startswith("decimal") for line in lines) == is_declared
    shown = run("check", "few.yaml", "few.csv").out
    assert ("3 are dates in another format, unlike most of the column" in shown) != is_declared
