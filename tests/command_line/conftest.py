"""A folder with a small table, and commands that run in this process."""

import json
from types import SimpleNamespace

import pytest
from command_cases import SCHEMA, made_up

from sklearn_dpgen.command_line import main


@pytest.fixture
def folder(tmp_path, monkeypatch):
    """A folder to work in, with a table in two formats and its schema."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("SKLEARN_DPGEN_TRACEBACK", raising=False)
    table = made_up()
    table.to_csv("table.csv", index=False)
    table.to_parquet("table.parquet", index=False)
    (tmp_path / "schema.yaml").write_text(SCHEMA, encoding="utf-8")
    return tmp_path


@pytest.fixture
def run(folder, capfd):
    """Return a function that runs a command: its exit code, what it wrote, and its JSON."""

    def run(*arguments):
        code = main([str(argument) for argument in arguments])
        out, err = capfd.readouterr()
        document = json.loads(out) if "--json" in arguments and out else None
        return SimpleNamespace(code=code, out=out, err=err, json=document, all=out + err)

    return run
