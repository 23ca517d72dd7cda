"""The session of the page: each command runs, in its order, and writes what is shown."""

import doctest
import re
import shlex
import textwrap
from pathlib import Path

import pytest

import sklearn_dpgen
from sklearn_dpgen.command_line import main

PAGE = Path(sklearn_dpgen.__file__).parents[1] / "doc" / "command_line.rst"

pytestmark = pytest.mark.skipif(not PAGE.exists(), reason="needs a checkout, not a wheel")

_BLOCKS = r"^\.\. (testcode::|code-block:: (?:console|yaml))\n\n((?:\n|[ ]+.*\n)+)"
_CHECKER, _FLAGS = doctest.OutputChecker(), doctest.ELLIPSIS | doctest.NORMALIZE_WHITESPACE


def blocks(text):
    """Yield the kind and the text of each block."""
    for kind, block in re.findall(_BLOCKS, text + "\n", flags=re.M):
        yield kind.rpartition(" ")[2].rstrip(":"), textwrap.dedent(block).strip() + "\n"


def commands(block):
    """Yield each command of a block with the output that is shown."""
    for part in re.split(r"^\$ ", block, flags=re.M)[1:]:
        command, _, output = part.partition("\n")
        yield shlex.split(command), output


@pytest.mark.slow
def test_the_session_runs_as_shown(tmp_path, monkeypatch, capfd):
    monkeypatch.chdir(tmp_path)
    n_commands = 0
    for kind, block in blocks(PAGE.read_text(encoding="utf-8")):
        if kind == "testcode":
            exec(compile(block, PAGE.name, "exec"), {})
        elif kind == "yaml":
            name = re.match(r"# (\S+)\n", block)[1]
            Path(name).write_text(block, encoding="utf-8")
        else:
            for (program, *arguments), shown in commands(block):
                assert program == "sklearn-dpgen"
                code = main(arguments)
                out, err = capfd.readouterr()
                out += f"exit code {code}\n" if code else ""
                assert _CHECKER.check_output(shown, out, _FLAGS), f"{arguments}\n{out}\n{err}"
                n_commands += 1
    assert n_commands >= 12


def test_output_that_differs_is_found():
    assert not _CHECKER.check_output("20 rows\n", "21 rows\n", _FLAGS)
    page = ".. code-block:: console\n\n    $ sklearn-dpgen a 'b c'\n    said\n    $ x\n\nText.\n"
    ((kind, block),) = blocks(page)
    assert kind == "console"
    assert list(commands(block)) == [(["sklearn-dpgen", "a", "b c"], "said\n"), (["x"], "")]
