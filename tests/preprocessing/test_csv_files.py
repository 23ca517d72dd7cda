"""Files of CSV: a record moves no other one, and a file is refused by its form alone."""

import bz2
import csv
import gzip
import io

import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sklearn_dpgen.preprocessing import CsvFile, TabularEncoder, _files
from sklearn_dpgen.preprocessing._files import open_files
from sklearn_dpgen.preprocessing._reader import map_frames
from sklearn_dpgen.schema import Categorical, Datetime, Numeric, Ordinal, Schema, _csv

pa = pytest.importorskip("pyarrow")
dataset = pytest.importorskip("pyarrow.dataset")

COLUMNS = {"age": Numeric(0, 100), "job": Categorical(["nurse", "baker"]), "note": None}
TEXT = 'age,job,note\n31,nurse,a\n32,baker,"b\nc"\n33,baker,"d, ""e"""\n'
ROWS = [[31, "nurse", "a"], [32, "baker", "b\nc"], [33, "baker", 'd, "e"']]
# What is in no message.
SECRET = "secret-7"


def rows_of(paths, columns=COLUMNS):
    """Return all the records that are read."""
    frames = list(map_frames(lambda frame: frame, paths, columns))
    return pd.concat(frames, ignore_index=True).to_numpy(dtype=object).tolist() if frames else []


def text_of(rows, names, end="\r\n"):
    out = io.StringIO(newline="")
    csv.writer(out, lineterminator=end, quoting=csv.QUOTE_NONNUMERIC).writerows([names, *rows])
    return out.getvalue()


def written(path, text):
    path.write_bytes(text.encode() if isinstance(text, str) else text)
    return path


def naive(path):
    """Return the notes of a file as a reader gives them that cuts blocks at any line break."""
    form = dataset.CsvFileFormat()
    return dataset.dataset(path, format=form).to_table(columns=["note"])["note"].to_pylist()


# Large files, cut into blocks.


def long_records(seed, n=40_000):
    """Records of which many have line breaks in quotes, that make over 1 MiB in all."""
    rng = np.random.default_rng(seed)
    parts = ["x" * int(k) for k in rng.integers(1, 40, 50)]
    parts += [*["a\nb" * 40] * 5, *["\n1,nurse,x\n" * 9] * 5, '"', ",", '\n"\n', "\r\n"]
    notes = ["".join(rng.choice(parts, 3)) for _ in range(n)]
    ages, jobs = rng.integers(0, 100, n), rng.choice(["nurse", "baker"], n)
    return [[float(a), str(j), note] for a, j, note in zip(ages, jobs, notes, strict=True)]


@pytest.mark.parametrize(
    "seed", [0, *(pytest.param(seed, marks=pytest.mark.slow) for seed in range(1, 12))]
)
def test_files_of_several_blocks(tmp_path, monkeypatch, seed):
    rows = long_records(seed)
    path = written(tmp_path / "table.csv", text_of(rows, COLUMNS))
    assert path.stat().st_size > 1 << 20
    assert rows_of(path) == rows
    # Blocks that are cut at other places hold the same records.
    monkeypatch.setattr(_files, "_BLOCK", 100_003)
    assert rows_of(path) == rows


@pytest.mark.slow
def test_a_block_that_ends_at_any_line_break_cuts_a_record(tmp_path):
    """The negative twin, of most such files: in some, each block happens to end with a record."""
    cut = 0
    for seed in range(3):
        rows = long_records(seed)
        path = written(tmp_path / "table.csv", text_of(rows, COLUMNS))
        try:
            cut += naive(path) != [row[2] for row in rows]
        except pa.ArrowInvalid:
            cut += 1
    assert cut > 0


@pytest.mark.parametrize("end", ["\n", "\r\n", "\r"])
@pytest.mark.parametrize("is_long", [False, True])
def test_blocks_end_anywhere(tmp_path, monkeypatch, end, is_long):
    """Also within a pair of quotes, or between the two ends of a line of Windows."""
    rows = [[*row[:2], row[2] * (40_000 if is_long else 1)] for row in ROWS]
    path = written(tmp_path / "table.csv", text_of(rows, COLUMNS, end))
    for size in [5_000, 70_001] if is_long else range(1, 60):
        monkeypatch.setattr(_files, "_BLOCK", size)
        assert rows_of(path) == rows


@pytest.mark.parametrize("n", [4_000, pytest.param(40_000, marks=pytest.mark.slow)])
def test_other_readers_give_the_same_records(tmp_path, n):
    polars, duckdb = pytest.importorskip("polars"), pytest.importorskip("duckdb")
    rows = long_records(7, n)
    path = str(written(tmp_path / "table.csv", text_of(rows, COLUMNS)))
    types = {"age": polars.Float64, "job": polars.String, "note": polars.String}
    with open(path, newline="", encoding="utf-8") as file:
        plain = [[float(a), b, c] for a, b, c in list(csv.reader(file))[1:]]
    relation = duckdb.connect().read_csv(path, dtype=["DOUBLE", "VARCHAR", "VARCHAR"])
    for X in (
        path,
        [path],
        polars.scan_csv(path, schema_overrides=types),
        relation,
        pd.read_csv(path, keep_default_na=False),
    ):
        assert rows_of(X) == plain == rows


# One record in the place of another.

NAMES = ["x", "note"]
TYPED = {"x": Categorical(["1", "01", "a"]), "note": None}
NOTES = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0"), min_size=1)


@pytest.mark.slow
@settings(deadline=None, max_examples=80, derandomize=True)
@given(
    st.lists(st.tuples(st.sampled_from(["1", "01"]), NOTES), min_size=2, max_size=6),
    st.tuples(st.sampled_from(["a", "1"]), NOTES),
    st.integers(0),
    st.integers(1, 50),
)
def test_a_record_moves_no_other(tmp_path_factory, rows, other, place, size):
    place %= len(rows)
    neighbour = [*rows[:place], other, *rows[place + 1 :]]
    folder, found = tmp_path_factory.mktemp("neighbours"), []
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(_files, "_BLOCK", size)
        for part in (rows, neighbour):
            out = io.StringIO(newline="")
            csv.writer(out, quoting=csv.QUOTE_ALL).writerows([NAMES, *part])
            found.append(rows_of(written(folder / "table.csv", out.getvalue()), TYPED))
    assert found == [[list(row) for row in part] for part in (rows, neighbour)]


@pytest.mark.parametrize("note", ["\ufeff", "\ufeffbob", "a"])
def test_a_mark_at_the_start_of_a_block_is_a_value(tmp_path, monkeypatch, note):
    rows = [[note]] * 40
    out = "x\n" + "".join(f"{value}\n" for (value,) in rows)
    for size in (1, 4, 7, 64):
        monkeypatch.setattr(_files, "_BLOCK", size)
        assert rows_of(written(tmp_path / "table.csv", out), {"x": None}) == rows


def test_a_text_blames_no_other_column(tmp_path):
    path = written(tmp_path / "table.csv", "a,b,c\nword,2,CSV column #99\n")
    with pytest.raises(ValueError, match="'a'"):
        rows_of(path, {"a": Numeric(0, 5), "b": Numeric(0, 5), "c": None})


HOSTILE = ['a\n"b', '"', '""', ',"\r\n', "\n" * 9, '1,nurse\n2,baker,"x', "\ufeff", "\u2028", "'"]


@pytest.mark.parametrize("note", HOSTILE)
def test_a_hostile_record_moves_no_other(tmp_path, note):
    rows = long_records(0, 3000)
    path = tmp_path / "table.csv"
    for place in (0, 1500, 2999):
        neighbour = [*rows[:place], [1.0, "nurse", note], *rows[place + 1 :]]
        assert rows_of(written(path, text_of(neighbour, COLUMNS))) == neighbour


SCHEMA = Schema({"code": Categorical(["1", "2", "01"]), "level": Ordinal([1, 2])})


@pytest.mark.parametrize("other", ["01,1", "2,2"])
def test_a_record_decides_no_type(tmp_path, other):
    """A file of texts has the types that are declared, also where an encoder reads it."""

    def codes(rows):
        path = written(tmp_path / "table.csv", "code,level\n" + "\n".join(rows))
        return TabularEncoder(SCHEMA).fit(path).transform(path)

    rows = ["1,1", "2,1", "1,2"]
    np.testing.assert_array_equal(codes([*rows, other])[:3], codes([*rows, "1,1"])[:3])
    np.testing.assert_array_equal(codes(["01,1", *rows])[1:], codes(rows))
    # Negative twin: types that are guessed turn a code with a zero before it into another.
    guessed = pd.read_csv(tmp_path / "table.csv")
    assert guessed["code"].dtype == np.int64


# What works, and what is refused.

WORKS = {
    "plain": TEXT.encode(),
    "a byte order mark": b"\xef\xbb\xbf" + TEXT.encode(),
    "ends of Windows": TEXT.replace("\n", "\r\n").encode(),
    "no last end": TEXT.rstrip("\n").encode(),
    "empty lines": b"\n\n" + TEXT.replace("\n3", "\n\n\n3").encode() + b"\n\n",
    "quotes around all texts": text_of(ROWS, COLUMNS).encode(),
    "columns without a name": "".join(
        f"{line},,\n" for line in text_of(ROWS[:1], COLUMNS, "\n").splitlines()
    ).encode(),
}


@pytest.mark.parametrize("data", WORKS.values(), ids=WORKS)
def test_what_simply_works(tmp_path, data):
    found = rows_of(written(tmp_path / "table.csv", data))
    expected = [[a, b, c.replace("\r", "")] for a, b, c in found]
    assert expected == ROWS[: len(found)]
    assert len(found) == (1 if b",,\n" in data else 3)
    for ending, packed in ((".gz", gzip.compress(data)), (".bz2", bz2.compress(data))):
        assert rows_of(written(tmp_path / f"table.csv{ending}", packed)) == found


def more(line):
    return (TEXT + line).encode()


ZIPPED = gzip.compress(TEXT.encode() * 50)
# What is refused, with the words that say why.
REFUSED = {
    "semicolons": (
        f'"age";"job";"note"\n1;nurse;{SECRET}\n'.encode(),
        ["commas", "have semicolons", 'delimiter: ";"', "delimiter=';'"],
    ),
    "tabs": (f"age\tjob\tnote\n1\tnurse\t{SECRET}\n".encode(), ["have tabs", r"delimiter='\t'"]),
    "bars": (f"age|job|note\n1|nurse|{SECRET}\n".encode(), ["have vertical bars", "delimiter='|'"]),
    "Latin-1": (
        more(f"34,nurse,{SECRET}é\n").decode().encode("latin-1"),
        ["line 6 ", "Latin-1 or Windows-1252", "encoding: cp1252"],
    ),
    "names in Latin-1": ("age,job,note,é\n1,nurse,x,y\n".encode("latin-1"), ["line 1 ", "Latin-1"]),
    "UTF-16": (more(SECRET).decode().encode("utf-16"), ["is in UTF-16", "encoding='utf-16'"]),
    "UTF-16 without a mark": (more(SECRET).decode().encode("utf-16-le"), ["is in UTF-16"]),
    "UTF-32": (more(SECRET).decode().encode("utf-32"), ["is in UTF-32", "encoding='utf-32'"]),
    "a short record": (more(f"34,{SECRET}\n35,baker,x\n"), ["line 6 ", "has 2", "header 3"]),
    "a long record": (more(f"34,nurse,a,{SECRET}\n"), ["line 6 ", "has 4", "header 3"]),
    "a column twice": (TEXT.replace("note", "age").encode(), ["more than once ['age']"]),
    "an open quote": (more(f'34,nurse,"{SECRET}\n35,baker,x\n'), ["line 6 ", "never closed"]),
    "an open quote before others": (
        more(f'34,nurse,"{SECRET}\n35,baker,x\n36,baker,"y\n'),
        ["line 6 ", "never closed"],
    ),
    "a text after a quote": (more(f'34,nurse,"{SECRET}"x\n'), ["line 6 ", "written twice"]),
    "a quote in a text": (more(f'34,nurse,{SECRET}"\n35,baker,"\n'), ["line 6 ", "written twice"]),
    "a text among numbers": (more(f"{SECRET},nurse,a\n"), ["Column 'age' must hold numbers"]),
    "nothing": (b"", ["must have a header"]),
    "no header": (f"34,nurse,{SECRET}\n".encode(), ["missing ['age', 'job', 'note']"]),
}
PACKED = {
    "cut off": (ZIPPED[:-9], ["is truncated"]),
    "cut in half": (ZIPPED[: len(ZIPPED) // 2], ["is truncated"]),
    "not packed": (TEXT.encode(), ["cannot be decompressed"]),
    "damaged": (ZIPPED[:40] + b"secret-7" + ZIPPED[48:], ["cannot be decompressed"]),
}
FAULTS = {
    **{name: ("table.csv", *fault) for name, fault in REFUSED.items()},
    **{name: ("table.csv.gz", *fault) for name, fault in PACKED.items()},
}


def message(path):
    with pytest.raises(ValueError, match=r"A CSV file|A file must|column|Column") as caught:
        rows_of(path)
    assert caught.value.__context__ is caught.value.__cause__ is None
    return str(caught.value)


@pytest.mark.parametrize("fault", FAULTS.values(), ids=FAULTS)
def test_what_is_wrong_and_where(tmp_path, fault):
    name, data, words = fault
    path = written(tmp_path / name, data)
    text = message(path)
    assert [word for word in words if word not in text] == []
    assert SECRET not in text
    # It is of the form alone: other texts of the same form have the same message.
    if b"secret" in data:
        assert message(written(path, data.replace(b"secret-7", b"hidden-8"))) == text


FORMATS = {
    "semicolons": (";", "utf-8"),
    "tabs in Windows-1252": ("\t", "cp1252"),
    "bars in UTF-16": ("|", "utf-16"),
    "big-endian": (",", "utf-16-be"),
    # Its second bytes may be those of a backslash or a bar.
    "Shift JIS": ("|", "shift_jis"),
}


@pytest.mark.parametrize("form", FORMATS.values(), ids=FORMATS)
@pytest.mark.parametrize("size", [7, 1 << 22])
def test_a_stated_format_gives_the_same_records(tmp_path, monkeypatch, form, size):
    """Also where a read ends within a character, and where texts hold the delimiter."""
    monkeypatch.setattr(_files, "_BLOCK", size)
    delimiter, encoding = form
    note = "ソース表" if encoding == "shift_jis" else "naïve é"
    text = f'age,job,note\n34,nurse,{note}\n35,baker,"a,b\n""c"""\n'
    expected = rows_of(written(tmp_path / "plain.csv", text))
    other = text.replace("a,b", "@").replace(",", delimiter).replace("@", "a,b")
    for ending, pack in (("", bytes), (".gz", gzip.compress)):
        path = written(tmp_path / f"other.csv{ending}", pack(other.encode(encoding)))
        found = rows_of(CsvFile(path, delimiter=delimiter, encoding=encoding))
        assert found == expected
    # Negative twin: as by default it is refused.
    with pytest.raises(ValueError, match="CSV file must"):
        rows_of(written(tmp_path / "other.csv", other.encode(encoding)))


def test_faults_of_a_stated_format_have_their_line_and_no_value(tmp_path):
    rows = f"34;nurse;{SECRET}\n".encode() * 4
    path = written(tmp_path / "table.csv", b"age;job;note\n" + rows + b"35;\x81baker;x\n")
    text = message(CsvFile(path, delimiter=";", encoding="cp1252"))
    assert "'cp1252': line 6 " in text
    assert SECRET not in text
    written(path, b"age;job;note\n" + rows + b"35;baker\n")
    text = message(CsvFile(path, delimiter=";", encoding="cp1252"))
    assert "line 6 " in text
    assert "has 2" in text
    # A file with commas is refused as one with semicolons is by default.
    text = message(CsvFile(written(path, TEXT), delimiter=";"))
    assert "by semicolons" in text
    assert "have commas" in text


def test_files_of_one_table_have_one_format(tmp_path):
    first = CsvFile(written(tmp_path / "a.csv", TEXT.replace(",", ";")), delimiter=";")
    second = written(tmp_path / "b.csv", TEXT)
    with pytest.raises(ValueError, match="one delimiter and one encoding"):
        rows_of([first, second])


@pytest.mark.parametrize(
    "wrong",
    [{"delimiter": ";;"}, {"delimiter": "x"}, {"encoding": "base64"}, {"encoding": "klingon"}],
    ids=str,
)
def test_unknown_formats_are_refused(wrong):
    with pytest.raises(ValueError, match=f"{next(iter(wrong))} must be"):
        CsvFile("table.csv", **wrong)


# Records whose bytes change what others are in encodings with escapes, between two others.
ESCAPES = [
    b"\x1b(J",
    b"\x1b$B",
    b"\x1b$@0",
    b"\x1b.A\x1bN",
    b"\x1b$)C\x0ea",
    b"~{0!",
    b"~",
    b"+AAo-",
    b"\\x0a",
    b"\\u000a",
    b"\\",
    b"-kda",
]
ESCAPED = """
iso2022_jp iso2022_jp_1 iso2022_jp_2 iso2022_jp_2004 iso2022_jp_3 iso2022_jp_ext iso2022_kr hz utf_7
unicode_escape raw_unicode_escape punycode
"""
OF_BYTES = sorted(name for name in _csv._ENCODINGS if not name.startswith(("utf-16", "utf-32")))


def is_apart(encoding, record):
    """Return whether what is before and after a record stays the same, or all is refused."""
    before = "~,b\n"
    for after in (',~\n","\n', "\n0!\n", "\n\x0e0!\x0f\n", ""):
        try:
            data = before.encode(encoding) + record + after.encode(encoding)
            text = data.decode(encoding)
        except UnicodeError:
            continue
        own = text.removeprefix(before).removesuffix(after)
        if text != before + own + after or "\n" in own:
            return False
    return True


@pytest.mark.parametrize("encoding", OF_BYTES)
def test_no_bytes_of_a_record_change_another(encoding):
    CsvFile("table.csv", encoding=encoding)
    # Leads of several bytes, of GB 18030, of the third plane of EUC, and of composed Hangul.
    long = [b"\x81\x30\x81", b"\x8f\xa1\xa1", b"\xa4\xd4\xa4\xa1\xa4\xbf\xa4\xd4"]
    records = [text[:n] for text in long for n in range(1, len(text) + 1)]
    records += [bytes([first]) for first in range(256)]
    second = [*range(0, 256, 7), 48, 126, 254]
    records += [bytes([a, b]) for a in range(1, 256, 3) for b in second]
    # Line breaks are those of the records themselves.
    breaks = {*"\n".encode(encoding)}
    for record in [*ESCAPES, *records]:
        assert breaks & {*record} or is_apart(encoding, record), record


@pytest.mark.parametrize("encoding", ESCAPED.split())
def test_encodings_whose_records_change_others_are_refused(encoding):
    with pytest.raises(ValueError, match="encoding must be a text encoding without escapes"):
        CsvFile("table.csv", encoding=encoding)
    assert not all(is_apart(encoding, record) for record in ESCAPES)


@pytest.mark.parametrize("encoding", ["utf-16-le", "utf-16-be"])
def test_half_a_pair_does_not_take_a_line_break(encoding):
    lone = "\ud83d".encode(encoding, "surrogatepass")
    with pytest.raises(UnicodeDecodeError):
        (lone + "\n".encode(encoding)).decode(encoding)


def test_other_codecs_are_refused_by_any_of_their_names():
    for name in (
        "U7",
        "csISO2022JP",
        "rot13",
        "hex",
        "idna",
        "undefined",
        "charmap",
        "mbcs",
        "a b",
    ):
        with pytest.raises(ValueError, match="encoding must be"):
            CsvFile("table.csv", encoding=name)
    for name in ("Latin-1", "UTF8", "windows-1252", "SJIS", "ISO-8859-15", "EBCDIC-CP-CH"):
        CsvFile("table.csv", encoding=name)


def test_each_fault_has_a_message_of_its_own(tmp_path):
    names = ["semicolons", "tabs", "Latin-1", "UTF-16", "a short record", "a column twice"]
    names += ["an open quote", "cut off"]
    texts = [message(written(tmp_path / FAULTS[name][0], FAULTS[name][1])) for name in names]
    assert len({*texts}) == len(names)


def test_lines_are_counted_in_later_blocks(tmp_path, monkeypatch):
    text = TEXT + "34,nurse,x\n" * 1000 + "35,nurse\n" + "36,nurse,y\n" * 1000
    path = written(tmp_path / "table.csv", text)
    n_before = text[: text.index("35,")].count("\n")
    for size in (1 << 22, 997):
        monkeypatch.setattr(_files, "_BLOCK", size)
        assert f"line {n_before + 1} " in message(path)


def test_a_quote_that_never_closes_does_not_take_all_of_memory(tmp_path, monkeypatch):
    monkeypatch.setattr(_files, "_LONGEST", 10_000)
    monkeypatch.setattr(_files, "_BLOCK", 1_000)
    path = written(tmp_path / "table.csv", TEXT + '34,nurse,"x\n' + "35,baker,y\n" * 10_000)
    assert "line 6 " in message(path)
    # Negative twin: a record that is as long, and is closed.
    assert len(rows_of(written(path, TEXT + '34,nurse,"' + "x\n" * 4_000 + '"\n'))) == 4


def test_columns_that_are_not_declared_may_be_anything(tmp_path):
    text = "age,x,x,é\n1,nurse,a,b\n".encode() + b"2,\xff,\xfe,c\n"
    assert rows_of(written(tmp_path / "table.csv", text), {"age": Numeric(0, 9)}) == [[1], [2]]


def test_names_alone_are_read_of_a_header(tmp_path):
    text = '"a\nb",c\n1,"never closed\n'
    assert open_files([written(tmp_path / "table.csv", text)], None).names == ["a\nb", "c"]


def test_quotes_around_all_fields_leave_nulls_of_numbers_and_dates(tmp_path):
    columns = {
        "number": Numeric(0, 9, nullable=True),
        "euro": Numeric(0, 9, nullable=True, decimal=",", currency="€"),
        "day": Datetime("2020-01-01", "2021-01-01", nullable=True),
        "flag": Categorical([False, True], nullable=True),
        "code": Categorical(["x", ""], nullable=True),
    }
    rows = [["1.5", "€ 1,50", "2020-01-05", "true", "x"], ["", "", "", "", ""]]
    rows.append(["NA", "NA", "NA", "NA", "x"])
    with open(tmp_path / "t.csv", "w", newline="", encoding="utf-8") as file:
        csv.writer(file, quoting=csv.QUOTE_ALL).writerows([[*columns], *rows])
    (frame,) = map_frames(lambda frame: frame, [str(tmp_path / "t.csv")], columns)
    for name, column in columns.items():
        null = column.encode(frame[name])[:, -1] == 1
        # An empty text in quotes is the label.
        assert null.tolist() == ([False] * 3 if name == "code" else [False, True, True])
