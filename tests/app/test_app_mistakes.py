"""Mistakes of a person: each is answered with its field or column and the rule, and harms nothing.

Most are tried on the state that the page shows; some in a browser, where the message must be
bound to its field.
"""

import asyncio
import re
import sqlite3

import pytest
from app_cases import SECRET, charges, write_keys, write_small

pytest.importorskip("shiny", reason="needs shiny")

from sklearn_dpgen.app import _page, _work
from sklearn_dpgen.app._columns import text_of
from sklearn_dpgen.app._work import Work, answer, refused
from sklearn_dpgen.command_line._files import parse

PEOPLE = """\
columns:
  age: {type: numeric, low: 18, high: 100}
  ill: {type: categorical, categories: ['no', 'yes']}
  code: {type: identifier}
"""


def do(work, *acts):
    """Do something to a piece of work, one after another, and wait for the end of each."""

    async def own():
        for act in acts:
            act()
            while work.busy:
                await asyncio.sleep(0.005)
            await asyncio.sleep(0.005)

    asyncio.run(own())


class Case:
    """A person with a table and, unless told otherwise, its complete schema."""

    def __init__(self, folder):
        self.home, self.folder = folder, folder / "out"
        self.work = Work()
        self.table = write_small(folder / "people.csv", 50)
        text = self.table.read_text(encoding="utf-8").splitlines()
        lines = [f"{line},{SECRET} {i}" for i, line in enumerate(text)]
        self.table.write_text("\n".join(["age,ill,code", *lines[1:]]) + "\n", encoding="utf-8")

    def file(self, name, content):
        path = self.home / name
        path.write_bytes(content if isinstance(content, bytes) else content.encode())
        return str(path)

    def draft(self, file=None, folder=None, **values):
        own = {"file": str(file or self.table), "folder": str(folder or self.folder)}
        own |= {"name": self.work.values["name"]} | values
        do(self.work, *(lambda w=w, v=v: self.work.set(w, v) for w, v in own.items()))
        do(self.work, self.work.draft)
        return self.work.answers["drafted"]

    def declared(self, text=PEOPLE):
        assert self.draft().ok
        do(self.work, lambda: self.work.take_text(text))
        return self

    def text(self, text):
        self.declared()
        do(self.work, lambda: self.work.take_text(text))
        found = self.work.answers["text"]
        return found if not found.ok else self.work.answers["valid"]

    def edit(self, column, field, text, *more):
        self.declared()
        for one in ((column, field, text), *more):
            do(self.work, lambda one=one: self.work.edit("", *one, "a"))
        faults = list(self.work.faults.values())
        if faults:
            return refused(faults[0])
        return self.work.answers["valid"]

    def set(self, **values):
        values = {word.replace("_", "-"): value for word, value in values.items()}
        do(self.work, *(lambda w=w, v=v: self.work.set(w, v) for w, v in values.items()))

    def plan(self, **values):
        self.declared().set(**({"rows": "50"} | values))
        do(self.work, self.work.plan)
        return self.work.answers["planned"]

    def ledger(self, ledger="own.ledger", **values):
        self.declared().set(ledger=ledger, **values)
        do(self.work, self.work.open_ledger)
        return self.work.answers["ledger"]

    def fit(self, **values):
        self.declared().set(**values)
        do(self.work, self.work.start)
        found = self.work.answers.get("fit")
        return found if found and found.text else refused(self.work.job.document["error"])

    def other_ledger(self, *options):
        path = self.home / "other.ledger"
        budget = ("--dataset", "a", "--epsilon", "3", "--delta", "1e-5")
        assert answer("ledger", "init", str(path), *budget, *options).ok
        return str(path)


def full_folder(case):
    case.folder.joinpath("release").mkdir(parents=True)
    case.folder.joinpath("release", "other.txt").write_text("other")
    return case.fit()


def released_folder(case):
    case.folder.joinpath("release").mkdir(parents=True)
    case.folder.joinpath("release", "release.json").write_text("{}")
    return case.fit()


def schema_in_folder(case, text):
    case.folder.mkdir()
    case.folder.joinpath("schema.yaml").write_text(text, encoding="utf-8")
    return case.draft()


def checked_with(case, content):
    case.declared()
    case.table.write_bytes(content)
    do(
        case.work,
        lambda: case.work.run("checked", "check", str(case.work.schema), *case.work.inputs()),
    )
    return case.work.answers["checked"]


def verified_with(case, key):
    case.declared().set(public_key=key)
    do(case.work, case.work.verify)
    return case.work.answers["verified"]


def corrupt_ledger(case):
    case.declared()
    (case.folder / "own.ledger").write_bytes(b"not a ledger" * 50)
    return case.ledger()


def ledger_with_other_tables(case):
    case.declared()
    with sqlite3.connect(case.folder / "own.ledger") as file:
        file.execute("CREATE TABLE other (a)")
    file.close()
    return case.ledger()


LONG = "n" * 5000
# For each mistake what is done, and words of the message.
MISTAKES = {
    "no file": (lambda c: c.draft(" "), "file", r"Give the path of a table"),
    "a missing file": (lambda c: c.draft(c.home / "none.csv"), "file", r"no table .*none.csv"),
    "an empty folder": (
        lambda c: c.draft((c.home / "tables").mkdir() or c.home / "tables"),
        "file",
        r"must have tables",
    ),
    "an unknown ending": (
        lambda c: c.draft(c.file("a.xyz", "a,b\n1,2\n")),
        "file",
        r"one of the endings .*\.csv.*a\.xyz",
    ),
    "a binary file": (
        lambda c: c.draft(c.file("a.csv", bytes(range(256)) * 40)),
        "file",
        r"CSV file must be in UTF-8.*a.csv",
    ),
    "a file that is no Parquet": (
        lambda c: c.draft(c.file("a.parquet", "a,b\n1,2\n")),
        "file",
        r"table could not be read",
    ),
    "an empty file": (lambda c: c.draft(c.file("a.csv", "")), "file", r"must have a header.*a.csv"),
    "a repeated header": (
        lambda c: c.draft(c.file("a.csv", "a,a\n1,2\n")),
        "file",
        r"field 2 has the name of field 1",
    ),
    "a header in another encoding": (
        lambda c: c.draft(c.file("a.csv", b"\xfcber,a\n1,2\n")),
        "file",
        r"must be in UTF-8.*encoding: cp1252",
    ),
    "an unknown encoding": (
        lambda c: c.draft(encoding="klingon"),
        "file",
        r"encoding must be .*'klingon'",
    ),
    "a missing codebook": (
        lambda c: c.draft(codebook=str(c.home / "none.csv")),
        "codebook",
        r"No such file.*none.csv",
    ),
    "a path with NUL": (lambda c: c.draft("a\0b.csv"), "file", r"no table"),
    "a very long path": (lambda c: c.draft(f"/{LONG}.csv"), "file", r"no table"),
    "a folder below a file": (
        lambda c: c.draft(folder=c.table / "out"),
        "folder",
        r"Not a directory.*people.csv",
    ),
    "a folder that is read-only": (lambda c: c.draft(folder="/proc/out"), "folder", r"/proc/out"),
    "a table without a name": (lambda c: c.draft(more="people.csv"), "more", r"NAME=FILE"),
    "garbage as schema.yaml": (
        lambda c: schema_in_folder(c, "a: [b: {"),
        None,
        r"schema.yaml must be valid YAML.*line 1",
    ),
    "a list as schema.yaml": (
        lambda c: schema_in_folder(c, "- a\n- b\n"),
        None,
        r"must map names of columns",
    ),
    "header only": (lambda c: checked_with(c, b"age,ill,code\n"), None, r"has no rows"),
    "other columns": (
        lambda c: checked_with(c, b"a,b\n1,2\n"),
        None,
        r"missing \['age', 'ill', 'code'\]",
    ),
    "a row too short": (
        lambda c: checked_with(c, b"age,ill,code\n1,no,b\n2\n"),
        None,
        r"as many fields.*line 3",
    ),
    "an open quote": (
        lambda c: checked_with(c, b'age,ill,code\n1,no,"b\n2,no,c\n'),
        None,
        r"quote.*line 2",
    ),
    "text among numbers": (
        lambda c: checked_with(c, f"age,ill,code\n{SECRET},no,b\n2,no,c\n".encode()),
        None,
        r"'age': 1 value of another type.*line 2",
    ),
    "another encoding": (
        lambda c: checked_with(c, b"age,ill,code\n20,n\xfc,b\n"),
        None,
        r"line 2 .*encoding: cp1252",
    ),
    "bounds reversed": (
        lambda c: c.edit("age", "low", "200"),
        None,
        r"Column 'age': low must be smaller than high",
    ),
    "equal bounds": (
        lambda c: c.edit("age", "low", "100"),
        None,
        r"Column 'age': low must be smaller than high",
    ),
    "a text as low": (
        lambda c: c.edit("age", "low", "young"),
        None,
        r"Column 'age': low must be a finite number",
    ),
    "an infinite bound": (
        lambda c: c.edit("age", "high", ".inf"),
        None,
        r"Column 'age': high must be a finite number",
    ),
    "a mapping as low": (
        lambda c: c.edit("age", "low", "{a: 1"),
        None,
        r"Column 'age': low must be a finite number",
    ),
    "a repeated label": (
        lambda c: c.edit("ill", "categories", "no, yes, no"),
        None,
        r"Column 'ill': categories must be distinct",
    ),
    "a missing code that is a label": (
        lambda c: c.edit("ill", "missing", "no"),
        None,
        r"Column 'ill': missing must not list categories",
    ),
    "a negative step": (
        lambda c: c.edit("age", "step", "-1"),
        None,
        r"Column 'age': step must be positive",
    ),
    "a bad format": (
        lambda c: c.edit(
            "age",
            "type",
            "datetime",
            ("age", "low", "2020-01-01"),
            ("age", "high", "2021-01-01"),
            ("age", "resolution", "D"),
            ("age", "format", "%q"),
        ),
        None,
        r"Column 'age': format must be",
    ),  # fmt: skip
    "a date that is none": (
        lambda c: c.edit(
            "age",
            "type",
            "datetime",
            ("age", "low", "2020-02-31"),
            ("age", "high", "2021-01-01"),
            ("age", "resolution", "D"),
        ),
        None,
        r"Column 'age': low must be a date.*'2020-02-31'",
    ),  # fmt: skip
    "a rule on an unknown column": (
        lambda c: c.edit("", "rules", "age <= size"),
        None,
        r"rules.*'size' is no column",
    ),
    "a rule that is none": (
        lambda c: c.edit("", "rules", "age is large"),
        None,
        r"rules.*'large' is no column",
    ),
    "a rule that is code": (
        lambda c: c.edit("", "rules", "__import__('os')"),
        None,
        r"rules.* must be 'a <= b'",
    ),
    "a delimiter of two letters": (
        lambda c: c.edit("", "delimiter", "ab"),
        None,
        r"delimiter must be one of",
    ),
    "garbage as text": (lambda c: c.text("a: [b: {"), None, r"valid YAML.*line 1"),
    "a list as text": (lambda c: c.text("- a"), None, r"must map names of columns"),
    "a list as a type": (
        lambda c: c.text("columns: {age: {type: [numeric]}}"),
        None,
        r"Each column must have a declaration",
    ),
    "a column without a declaration": (
        lambda c: c.text("columns: {age: 3}"),
        None,
        r"Each column must have a declaration",
    ),
    "an unknown type": (
        lambda c: c.text("columns: {age: {type: number}}"),
        None,
        r"Column 'age': type must be one of",
    ),
    "an unknown word": (
        lambda c: c.text(PEOPLE + "units: code\n"),
        None,
        r"'units'.*did you mean 'unit'",
    ),
    "a tag of YAML": (
        lambda c: c.text("a: !!python/object/apply:os.getcwd []"),
        None,
        r"valid YAML",
    ),
    "anchors that grow": (
        lambda c: c.text("a: &a [1]\nb: [*a, *a]\n"),
        None,
        r"Each column must have a declaration",
    ),
    "a key of no table": (
        lambda c: c.text(
            "tables: {a: {columns: {x: {type: numeric, low: 0, high: 1}}, foreign_key: {k: b}}}"
        ),
        None,
        r"Table 'a': foreign_key 'k' must name a table",
    ),
    "epsilon 0": (
        lambda c: c.plan(epsilon="0"),
        "epsilon",
        r"must be a finite number above 0",
    ),
    "epsilon negative": (
        lambda c: c.plan(epsilon="-1"),
        "epsilon",
        r"must be a finite number above 0",
    ),
    "epsilon nan": (
        lambda c: c.plan(epsilon="nan"),
        "epsilon",
        r"must be a finite number above 0",
    ),
    "epsilon infinite": (
        lambda c: c.plan(epsilon="inf"),
        "epsilon",
        r"must be a finite number above 0",
    ),
    "epsilon a text": (
        lambda c: c.plan(epsilon="much"),
        "epsilon",
        r"must be a finite number above 0",
    ),
    "delta negative": (
        lambda c: c.plan(delta="-1"),
        "delta",
        r"must be a number between 0 and 1",
    ),
    "delta 1": (lambda c: c.plan(delta="1"), "delta", r"must be a number between 0 and 1"),
    "delta a text": (
        lambda c: c.plan(delta="small"),
        "delta",
        r"must be a number between 0 and 1",
    ),
    "delta empty": (
        lambda c: c.plan(delta=""),
        "delta",
        r"must be a number between 0 and 1",
    ),
    "rows negative": (
        lambda c: c.plan(rows="-5"),
        "rows",
        r"must be an integer of at least 1",
    ),
    "rows a text": (
        lambda c: c.plan(rows="many"),
        "rows",
        r"must be an integer of at least 1",
    ),
    "rows a fraction": (
        lambda c: c.plan(rows="1.5"),
        "rows",
        r"must be an integer of at least 1",
    ),
    "an unknown target": (
        lambda c: c.plan(target="size"),
        "target",
        r"must be a column of the schema",
    ),
    "the target is the identifier": (
        lambda c: c.plan(target="code", unit="code"),
        None,
        r"target must name measured columns, got 'code'",
    ),
    "a missing public table": (
        lambda c: c.fit(public=str(c.home / "none.csv")),
        None,
        r"no table .*none.csv",
    ),
    "a public table of other columns": (
        lambda c: c.fit(public=c.file("p.csv", "a,b\n1,2\n")),
        None,
        r"public must have a column of the schema",
    ),
    "a ledger elsewhere": (
        lambda c: c.ledger(str(c.home / "new.ledger")),
        "ledger",
        r"no ledger .*new.ledger",
    ),
    "a cap that is a text": (
        lambda c: c.ledger(cap="much"),
        "cap",
        r"finite number above 0, got 'much'",
    ),
    "a cap of 0": (lambda c: c.ledger(cap="0"), "cap", r"finite number above 0"),
    "a file that is no ledger": (corrupt_ledger, None, r"own.ledger is not a ledger"),
    "a database that is no ledger": (ledger_with_other_tables, None, r"not a ledger"),
    "a folder as ledger": (lambda c: c.ledger(str(c.home)), None, r"There is no ledger"),
    "a cap below epsilon": (
        lambda c: c.plan(epsilon="5", ledger=c.other_ledger()),
        "refused",
        r"ledger|cap",
    ),
    "a ledger of persons": (
        lambda c: c.fit(ledger=c.other_ledger("--unit", "person")),
        None,
        r"unit 'person' of the ledger",
    ),
    "a ledger of other neighbours": (
        lambda c: c.fit(ledger=c.other_ledger("--neighbours", "add_or_remove")),
        None,
        r"neighbours 'add_or_remove' of the ledger",
    ),
    "no such ledger": (lambda c: c.fit(ledger="none.ledger"), None, r"no such ledger"),
    "a folder of other files": (full_folder, None, r"release must be empty or new"),
    "a folder with a release": (
        released_folder,
        None,
        r"has a release already.*Nothing is charged",
    ),
    "a name that leaves the folder": (lambda c: c.fit(name="../other"), None, r"plain name"),
    "a name that is above": (lambda c: c.fit(name=".."), None, r"plain name"),
    "a missing signing key": (
        lambda c: c.fit(signing_key=str(c.home / "none.pem")),
        None,
        r"none.pem",
    ),
    "a signing key of garbage": (
        lambda c: c.fit(signing_key=c.file("k.pem", "garbage")),
        None,
        r"k.pem must hold a private Ed25519 key",
    ),
    "a public key that signs": (
        lambda c: c.fit(signing_key=str(write_keys(c.home)[1])),
        None,
        r"public.pem must hold a private Ed25519 key",
    ),
    "nothing to verify": (lambda c: verified_with(c, ""), None, r"There is no release"),
    "a missing public key": (
        lambda c: verified_with(c, str(c.home / "none.pem")),
        None,
        r"none.pem|release",
    ),
}


class Here:
    """The fit in this process, which says the same."""

    running = stopped = False

    def __init__(self, argv, *_):
        found = answer(*argv)
        self.lines, self.document = [], {"ok": found.ok, "error": found.text}


@pytest.mark.parametrize(("act", "field", "words"), MISTAKES.values(), ids=MISTAKES)
def test_a_mistake_is_explained_and_costs_nothing(act, field, words, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(_work, "Job", Here)
    case = Case(tmp_path)
    found = act(case)
    if field == "refused":
        found = refused(found.document["refused"])
    elif field is not None:
        assert found.field == field
    text = found.text
    assert not found.ok
    assert re.search(words, text, flags=re.S), text
    assert "Traceback" not in text
    assert SECRET not in text
    assert not any(charges(path) for path in tmp_path.rglob("*.ledger") if is_ledger(path))
    assert not list(tmp_path.rglob("synthetic*"))
    # The next wish is served.
    assert Case(tmp_path).draft(folder=tmp_path / "next").ok


def is_ledger(path):
    return path.is_file() and b"CREATE TABLE charges" in path.read_bytes()


def test_labels_are_read_as_they_are_written(tmp_path):
    """What looks like a mistake, and is none."""
    case = Case(tmp_path)
    assert case.edit("ill", "categories", 'no, "a, b", "007"').ok
    assert case.work.declaration["columns"]["ill"]["categories"] == ["no", "a, b", "007"]
    assert case.edit("age", "missing", "-999, unknown").ok
    assert case.work.declaration["columns"]["age"]["missing"] == [-999, "unknown"]


@pytest.mark.parametrize(
    ("column", "field", "text", "labels"),
    [
        ("age", "missing", 'NULL, ~, #N/A, "a, #b", -9', ["NULL", "~", "#N/A", "a, #b", -9]),
        ("ill", "categories", "E: x, no # yes, null", ["E: x", "no # yes", "null"]),
    ],
)
def test_labels_that_are_something_else_in_yaml(column, field, text, labels, tmp_path):
    """Nothing, a comment and a mapping: the declaration, its file and the page have the text."""
    case = Case(tmp_path)
    assert case.edit(column, field, text).ok
    assert case.work.declaration["columns"][column][field] == labels
    declared = parse(case.work.schema.read_text(encoding="utf-8"), "schema.yaml")
    assert declared.get("columns", declared)[column][field] == labels
    assert case.edit(column, field, text_of(labels)).ok
    assert case.work.declaration["columns"][column][field] == labels


def test_a_table_is_checked_after_its_draft(tmp_path):
    case = Case(tmp_path)
    do(case.work, case.work.check)
    assert "draft its schema" in case.work.answers["checked"].text


@pytest.mark.parametrize("rules", ["5", "age <= ill", "[age <= ill, 3]", "{a: b}"])
def test_rules_are_shown_whatever_they_are(rules, tmp_path):
    case = Case(tmp_path).declared(f"{PEOPLE}rules: {rules}\n")
    shown = str(_page._environment().get_template("app_parts.html").module.schema(
        case.work, *_page._schema(case.work)
    ))  # fmt: skip
    assert 'id="w-rules"' in shown
    assert ("age &lt;= ill" in shown) == ("age" in rules)


@pytest.mark.parametrize(
    ("unit", "text", "warns"),
    [
        ("", PEOPLE, True),
        ("code", PEOPLE, False),
        ("", f"unit: code\n{PEOPLE}", False),
        ("", PEOPLE.replace("identifier", "leave out"), False),
    ],
)
def test_a_plan_for_rows_says_that_persons_are_not_protected(unit, text, warns, tmp_path):
    case = Case(tmp_path).declared(text)
    case.set(unit=unit, rows="50")
    do(case.work, case.work.plan)
    assert case.work.answers["planned"].ok
    shown = str(_page._environment().get_template("app_parts.html").module.planned(case.work))
    assert ("Each row is protected by itself" in shown) == warns
    assert ("If code identifies persons" in shown) == warns
