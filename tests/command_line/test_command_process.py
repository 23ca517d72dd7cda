"""The command as a process: imports, pipes, signals."""

import errno
import json
import os
import signal
import struct
import subprocess
import sys
import time

import pytest

from sklearn_dpgen.command_line import main
from sklearn_dpgen.command_line._console import describe
from sklearn_dpgen.command_line._files import OutputFolder
from sklearn_dpgen.utils._devices import _has_driver

COMMAND = [sys.executable, "-m", "sklearn_dpgen"]
COMMANDS = ["draft-schema", "check", "plan", "ledger", "ledger init", "synthesize"]


FIT = ["--epsilon", "1", "--schema"]

# What the commands of one process have loaded, each with those before it.
_LOADED = """
import json, sys
from sklearn_dpgen.command_line import main

HEAVY = {
    "cryptography", "dp_accounting", "matplotlib", "numpy", "ot", "pandas", "scipy",
    "scipy.stats", "sklearn", "torch",
}
found = []
for arguments in COMMANDS:
    assert main(arguments) == 0, arguments
    found.append(sorted(HEAVY & set(sys.modules)))
print(json.dumps(found))
"""


@pytest.mark.slow
def test_commands_load_what_they_need(folder):
    init = ["--dataset", "x", "--epsilon", "3", "--delta", "1e-5"]
    commands = [
        ["synthesize", "--help"],
        ["json-schema", "--out", "schema.json"],
        ["export-schema", "schema.yaml", "--to", "csvw", "--out", "metadata.json"],
        ["draft-schema", "table.csv", "--out", "draft.yaml"],
        ["check", "schema.yaml"],
        ["check", "schema.yaml", "table.csv"],
        ["ledger", "init", "ledger.db", *init],
        ["ledger", "show", "ledger.db"],
        ["ledger", "verify", "ledger.db"],
        # The negative twin.
        ["plan", *FIT, "schema.yaml", "--rows", "100"],
        ["synthesize", "table.csv", *FIT, "schema.yaml", "--out", "out"],
    ]
    code = _LOADED.replace("COMMANDS", repr(commands))
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    found = json.loads(done.stdout.splitlines()[-1])
    schema, ledger = ["numpy", "pandas"], ["numpy", "pandas", "scipy"]
    assert found[:-2] == [[], *[schema] * 5, *[ledger] * 3]
    plan, fit = map(set, found[-2:])
    assert "sklearn" in plan
    assert not {"matplotlib", "ot", "torch"} & plan
    assert "matplotlib" in fit
    assert ("torch" in fit) == _has_driver()


@pytest.mark.parametrize(
    "arguments",
    [
        ["plan", *FIT, "none.yaml", "--rows", "10"],
        ["plan", *FIT, "schema.yaml"],
        ["plan", *FIT, "schema.yaml", "--rows", "10", "--ledger", "none.db"],
        ["audit", *FIT, "none.yaml"],
        ["check", "none.yaml"],
        ["check", "schema.yaml", "none.csv"],
        ["check", "schema.yaml", "--public", "none.csv"],
        ["plan", *FIT, "schema.yaml", "--rows", "10", "--public", "none.csv"],
        ["synthesize", "table.csv", *FIT, "none.yaml", "--out", "out"],
        ["synthesize", "none.csv", *FIT, "schema.yaml", "--out", "out"],
        ["synthesize", "table.csv", *FIT, "schema.yaml", "--out", "out", "--ledger", "none.db"],
        ["synthesize", "table.csv", *FIT, "schema.yaml", "--out", "out", "--signing-key", "k.pem"],
        ["draft-schema", "none.csv", "--out", "draft.yaml"],
        ["draft-schema", "none.json", "--out", "draft.yaml"],
        ["ledger", "show", "none.db"],
        ["ledger", "verify", "none.db"],
        ["inspect", "none.safetensors"],
        ["sample", "none.safetensors", "--rows", "5", "--out", "more.csv"],
        ["verify", "none.json", "--public-key", "none.pem"],
    ],
    ids=lambda arguments: " ".join(arguments),
)
def test_a_wrong_path_or_option_is_told_before_a_library_is_imported(run, monkeypatch, arguments):
    """Every import of a library would fail here; the twin is a command without a fault."""
    for name in ("numpy", "pandas", "sklearn", "scipy", "torch", "pyarrow", "cryptography"):
        monkeypatch.setitem(sys.modules, name, None)
    ours = [name for name in sys.modules if name.startswith("sklearn_dpgen.")]
    light = ("sklearn_dpgen.command_line", "sklearn_dpgen.exceptions", "sklearn_dpgen._version")
    for name in ours:
        if not name.startswith(light):
            monkeypatch.delitem(sys.modules, name)
    done = run(*arguments)
    assert done.code == 2
    assert "Error in" not in done.err
    assert "none" in done.err or "k.pem" in done.err or "needed" in done.err or "needs" in done.err
    failed = run("check", "schema.yaml")
    assert failed.code == 2
    assert "ModuleNotFoundError" in failed.err


def test_the_module_runs(folder):
    done = subprocess.run([*COMMAND, "--version"], capture_output=True, text=True)
    assert done.returncode == 0
    assert done.stdout.startswith("sklearn-dpgen ")


@pytest.mark.parametrize("name", COMMANDS)
def test_each_command_has_help_with_examples(run, name):
    done = run(*name.split(), "--help")
    assert done.code == 0
    assert f"sklearn-dpgen {name}" in done.out.partition("examples:")[2]
    assert max(map(len, done.out.splitlines())) <= 100


def test_without_a_command(run):
    assert run().code == 2
    assert run("no-such").code == 2


@pytest.mark.slow
def test_json_is_one_document_and_remarks_are_elsewhere(folder):
    done = subprocess.run(
        [*COMMAND, "check", "schema.yaml", "table.csv", "--json"], capture_output=True, text=True
    )
    assert "Reading the table" in done.stderr
    assert json.loads(done.stdout)["ok"] is True
    assert done.returncode == 0


@pytest.mark.slow
@pytest.mark.skipif(os.name == "nt", reason="pipes of POSIX")
def test_a_reader_that_went_away(folder):
    read, write = os.pipe()
    os.close(read)
    done = subprocess.run(
        [*COMMAND, "check", "schema.yaml"], stdout=write, stderr=subprocess.PIPE, text=True
    )
    os.close(write)
    assert done.returncode == 141
    assert done.stderr == ""


@pytest.mark.skipif(os.name == "nt", reason="signals of POSIX")
def test_an_interrupt(folder):
    import fcntl
    import termios

    os.mkfifo("endless.csv")
    process = subprocess.Popen(
        [*COMMAND, "draft-schema", "endless.csv", "--codebook", "--out", "draft.yaml"],
        stderr=subprocess.PIPE,
        text=True,
    )
    # Once the pipe has a reader, the command is at work.
    with open("endless.csv", "w") as pipe:
        pipe.write("name,type\n")
        pipe.flush()
        # The command has read it, and waits for more.
        while struct.unpack("i", fcntl.ioctl(pipe, termios.FIONREAD, bytes(4)))[0]:
            time.sleep(0.01)
        process.send_signal(signal.SIGINT)
        _, err = process.communicate(timeout=600)
    assert process.returncode == 130
    assert err.splitlines() == ["error: Interrupted."]


@pytest.mark.slow
def test_quiet(folder, capfd):
    fit = ["synthesize", "table.csv", "--schema", "schema.yaml", "--epsilon", "3"]
    assert main([*fit, "--out", "a"]) == 0
    assert "Fitting the sampler" in capfd.readouterr().err
    assert main([*fit, "--out", "b", "--quiet"]) == 0
    out, err = capfd.readouterr()
    assert err == ""
    assert out


def test_a_file_that_cannot_be_replaced_loses_nothing(tmp_path, monkeypatch):
    """Windows replaces no file that another program has open."""
    (tmp_path / "b.txt").write_text("earlier")
    replace = os.replace

    def refuse(source, target):
        if os.fspath(target) == str(tmp_path / "b.txt"):
            raise PermissionError(errno.EACCES, "", str(source), None, str(target))
        replace(source, target)

    monkeypatch.setattr(os, "replace", refuse)
    out = OutputFolder(str(tmp_path), ["a.txt", "b.txt", "list.json"], overwrite=True)
    for name in ("a.txt", "b.txt", "list.json"):
        out.text(name, "paid for")
    with pytest.raises(PermissionError) as error:
        out.__exit__()
    kept = out.claim / "b.txt"
    assert describe(error.value).endswith(f": {kept}")
    assert (tmp_path / "a.txt").read_text() == kept.read_text() == "paid for\n"
    # There is no list of files that would not be those of one run.
    assert not (tmp_path / "list.json").exists()


@pytest.mark.slow
@pytest.mark.skipif(os.name == "nt", reason="encodings of POSIX")
def test_a_console_that_cannot_show_a_letter(folder):
    (folder / "schema.yaml").write_text("größe: {type: numeric, low: 3, high: 2}", encoding="utf-8")
    done = subprocess.run(
        [*COMMAND, "check", "schema.yaml"],
        capture_output=True,
        env=os.environ | {"PYTHONIOENCODING": "ascii"},
    )
    assert done.returncode == 1
    assert rb"'gr\xf6\xdfe': low must be smaller" in done.stdout
