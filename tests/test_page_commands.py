"""What pages tell a reader to run: Python is executed, and commands name what is there."""

import configparser
import re
import shlex
import textwrap
from pathlib import Path

import pytest

import sklearn_dpgen

PROJECT = Path(sklearn_dpgen.__file__).parents[1]
PAGES = [PROJECT / name for name in ("README.rst", "CONTRIBUTING.rst")]
PAGES += sorted(PROJECT.glob("doc/*.rst")) + sorted(PROJECT.glob("examples/*.py"))

pytestmark = pytest.mark.skipif(not PAGES[0].exists(), reason="needs a checkout, not a wheel")


def commands(text):
    """Return the commands of the console blocks of a page."""
    blocks = re.findall(
        r"^(?:# )?\.\. code-block:: (?:console|none)\n((?:\n|(?:# )?[ ]+.*\n)+)",
        text + "\n",
        flags=re.M,
    )
    lines = "\n".join(textwrap.dedent(block) for block in blocks).replace("\\\n", " ")
    found = re.findall(r"^ *\$ (.*)$", lines, flags=re.M)
    return [part.strip() for line in found for part in re.split(r"&&|\|", line)]


def make_targets():
    text = (PROJECT / "Makefile").read_text(encoding="utf-8")
    return set(re.findall(r"^([\w-]+):(?!=)", text, flags=re.M))


def extras():
    config = configparser.ConfigParser()
    config.read(PROJECT / "setup.cfg", encoding="utf-8")
    return set(config["options.extras_require"])


def faults(command):
    """Return what a command names that is not there."""
    words = shlex.split(command, comments=True)
    found = []
    if words[:1] == ["make"]:
        found = [w for w in words[1:] if "=" not in w and w not in make_targets()]
    if "pip" in words:
        named = [name for word in words for name in re.findall(r"\[(.*)\]", word)]
        found = [e for names in named for e in names.split(",") if e.strip() not in extras()]
        found += [
            file
            for option, file in zip(words, words[1:], strict=False)
            if option in ("-r", "--constraint", "-c") and not (PROJECT / file).exists()
        ]
    for word in words[1:2] if words[:1] in (["python"], [".venv/bin/python"]) else []:
        if word.endswith(".py") and not (PROJECT / word).exists():
            found.append(word)
    return found


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_commands_name_what_is_there(page):
    for command in commands(page.read_text(encoding="utf-8")):
        assert not faults(command), command


def test_commands_are_found():
    read = {page.name: commands(page.read_text(encoding="utf-8")) for page in PAGES}
    assert any(command.startswith("make demo ") for command in read["README.rst"])
    assert any(command.startswith("sklearn-dpgen plan") for command in read["command_line.rst"])


@pytest.mark.parametrize(
    ("command", "found"),
    [
        ("make nothing", ["nothing"]),
        ("make test PYTHON=python3", []),
        ('pip install ".[examples,nothing]"', ["nothing"]),
        ("pip install -r benchmarks/none.txt", ["benchmarks/none.txt"]),
        ("python benchmarks/bench_none.py --fast", ["benchmarks/bench_none.py"]),
        ("python examples/demo.py", []),
    ],
)
def test_what_is_not_there_is_found(command, found):
    page = f"Text.\n\n.. code-block:: console\n\n    $ {command}\n\nText.\n"
    assert [faults(c) for c in commands(page)] == [found]


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_python_on_pages_is_run(page):
    if page.parent.name == "doc":
        assert not unexecuted(page.read_text(encoding="utf-8"))


def unexecuted(text):
    """Return the lines of blocks of Python that Sphinx shows without running them."""
    return re.findall(r"^ *\.\. code-block:: (?:python|py|pycon)3?\b.*$", text, flags=re.M)


def test_python_that_is_not_run_is_found():
    assert unexecuted("\n.. code-block:: python\n\n    1 / 0\n")
    assert not unexecuted("\n.. testcode::\n\n    1 / 1\n")
