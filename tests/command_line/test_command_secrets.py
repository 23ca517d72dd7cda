"""No value of a table is ever said, however broken the table or the command is."""

import os

import pandas as pd
import pytest

from sklearn_dpgen.command_line import main
from sklearn_dpgen.command_line._console import CommandError, describe
from sklearn_dpgen.exceptions import PublicError, PublicValueError
from sklearn_dpgen.schema import Numeric
from sklearn_dpgen.tables import TableSampler

SECRET = "s3cretv4lue"
HEAD = "age,smoker,grade\n31,no,1\n"
BROKEN = {
    "a text among numbers": f"{HEAD}{SECRET},no,1\n",
    "a label": f"{HEAD}31,{SECRET},1\n",
    "a text among codes": f"{HEAD}31,no,{SECRET}\n",
    "a long row": f"{HEAD}31,no,1,{SECRET}\n",
    "a short row": f"{HEAD}{SECRET}\n",
    "an open quote": f'{HEAD}31,"{SECRET},1\n',
    "no UTF-8": f"{HEAD}31,{SECRET}\xff\xfe,1\n".encode("latin-1"),
    "a null byte": f"{HEAD}31,{SECRET}\0,1\n",
    "no header": f"31,{SECRET},1\n32,no,2\n",
    "a header alone": "age,smoker,grade\n",
    "an empty file": "",
    "another column": f"age,smoker,{SECRET}\n31,no,1\n",
    "a column twice": f"age,age,smoker,grade,{SECRET}\n31,32,no,1,2\n",
    "no csv": f"\x89PNG {SECRET}",
}


def write(path, text):
    path.write_bytes(text if isinstance(text, bytes) else text.encode())


@pytest.mark.parametrize("text", BROKEN.values(), ids=BROKEN)
@pytest.mark.parametrize("command", ["check", "synthesize"])
def test_broken_tables_of_text(run, folder, command, text):
    write(folder / "broken.csv", text)
    done = (
        run("check", "schema.yaml", "broken.csv")
        if command == "check"
        else run(
            *("synthesize", "broken.csv", "--schema", "schema.yaml"),
            *("--epsilon", "1", "--out", "out"),
        )
    )
    assert done.code == (1 if command == "check" else 2)
    assert done.all
    assert SECRET not in done.all
    assert "Traceback" not in done.all
    assert "not shown" not in done.all
    assert "spent" not in done.all
    assert not os.path.exists("out")


@pytest.mark.parametrize(
    "table",
    [
        pd.DataFrame({"age": [SECRET], "smoker": ["no"], "grade": [1]}),
        pd.DataFrame({"age": [31], "smoker": [SECRET], "grade": [1]}),
        pd.DataFrame({"age": [31], "smoker": ["no"], "grade": [SECRET]}),
        pd.DataFrame({"age": [31], "smoker": [[SECRET]], "grade": [1]}),
        pd.DataFrame({SECRET: [31], "smoker": ["no"], "grade": [1]}),
    ],
)
def test_broken_tables_with_types(run, table):
    table.to_parquet("broken.parquet")
    done = run("check", "schema.yaml", "broken.parquet")
    assert done.code == 1
    assert SECRET not in done.all
    fit = ("--schema", "schema.yaml", "--epsilon", "1", "--out", "out")
    done = run("synthesize", "broken.parquet", *fit)
    assert done.code == 2
    assert SECRET not in done.all


def test_a_cut_off_file(run, folder):
    content = (folder / "table.parquet").read_bytes()
    (folder / "cut.parquet").write_bytes(content[: len(content) // 2] + SECRET.encode())
    assert run("check", "schema.yaml", "cut.parquet").code == 1
    done = run(
        "synthesize", "cut.parquet", "--schema", "schema.yaml", "--epsilon", "1", "--out", "out"
    )
    assert done.code == 2
    assert SECRET not in done.all


@pytest.mark.parametrize(
    "name", ["table.csv", "schema.yaml", "schema.json", "schema.yml", "codebook.csv"]
)
def test_a_table_in_the_place_of_a_schema(run, folder, name):
    for text in (f"age,smoker\n31,{SECRET}\n", f"a: b: {SECRET}\n\t{SECRET}", f"{SECRET}\n{{"):
        write(folder / name, text)
        for arguments in (
            ("check", name),
            ("plan", "--schema", name, "--rows", "9", "--epsilon", "1"),
            ("draft-schema", name, "--codebook", "--out", "draft.yaml"),
        ):
            done = run(*arguments)
            assert done.code in (1, 2)
            assert SECRET not in done.all
            assert not os.path.exists("draft.yaml")


def test_messages_of_libraries_are_not_shown(run, monkeypatch, capfd):
    def fit(self, X):
        raise_from_library()

    monkeypatch.setattr(TableSampler, "fit", fit)
    arguments = ["synthesize", "table.csv", "--schema", "schema.yaml", "--epsilon", "1"]
    done = run(*arguments, "--out", "out")
    assert done.code == 2
    assert SECRET not in done.all
    assert "ValueError" in done.err
    assert "--traceback" in done.err
    # The negative twin: --traceback shows it.
    assert SECRET in run(*arguments, "--out", "out", "--traceback").err
    monkeypatch.setenv("SKLEARN_DPGEN_TRACEBACK", "1")
    assert main([*arguments, "--out", "out"]) == 2
    assert SECRET in capfd.readouterr().err


def test_warnings_of_libraries_are_not_shown(run, monkeypatch):
    import warnings

    from sklearn_dpgen.exceptions import NoisyCountsWarning

    def plan(self, n):
        warnings.warn(SECRET, RuntimeWarning, stacklevel=1)
        warnings.warn("counts are noisy", NoisyCountsWarning, stacklevel=1)
        return real(self, n)

    real = TableSampler.plan
    monkeypatch.setattr(TableSampler, "plan", plan)
    done = run("plan", "--schema", "schema.yaml", "--rows", "99999", "--epsilon", "1", "--json")
    assert done.code == 0
    assert SECRET not in done.all
    assert done.json["warnings"] == ["counts are noisy"]
    assert "warning: counts are noisy" in done.err


def raise_from_library():
    pd.to_numeric(pd.Series([SECRET]))


def raise_from_built_in():
    float(SECRET)


def raised(function):
    try:
        function()
    except Exception as error:
        return error
    return None


@pytest.mark.parametrize(
    "function",
    [
        raise_from_library,
        raise_from_built_in,
        lambda: {}[SECRET],
    ],
)
def test_the_message_of_another_error_is_not_shown(function):
    error = raised(function)
    assert error is not None
    assert not isinstance(error, PublicError)
    # The negative twin: the message holds the value.
    assert SECRET in str(error)
    assert SECRET not in describe(error)


def test_what_the_package_raises_is_shown():
    error = raised(lambda: Numeric(3, 3))
    assert isinstance(error, PublicValueError)
    assert describe(error) == str(error)
    assert describe(CommandError("no such thing")) == "no such thing"
    missing = FileNotFoundError(2, "secret", "table.csv")
    assert describe(missing).endswith(": table.csv")
    assert describe(MemoryError(SECRET)) == "There is not enough memory."
