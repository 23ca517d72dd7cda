"""The stages of the Makefile: `make help` and CONTRIBUTING name each of them."""

import re
import subprocess
import sys
from pathlib import Path
from shutil import which

import pytest
from tool_modules import ROOT, needs_checkout

pytestmark = needs_checkout


def read(name):
    return (ROOT / name).read_text(encoding="utf-8")


def stages(makefile):
    """Return the targets that are no files."""
    (names,) = re.findall(r"^\.PHONY:((?:.*\\\n)*.*)$", makefile, flags=re.M)
    return set(names.replace("\\", " ").split())


def helped(makefile):
    """Return the targets that stand right below a line of `make help` about them."""
    found = re.findall(r"^## ([\w-]+): \S.*\n([\w-]+):", makefile, flags=re.M)
    return {name for name, target in found if name == target}


def tabled(page):
    """Return the targets of the table of stages."""
    return set(re.findall(r"^   \* - ``make ([\w-]+)", page, flags=re.M))


def test_each_stage_has_a_line_of_help():
    makefile = read("Makefile")
    assert {"demo", "test", "help", "ci"} <= stages(makefile)
    assert helped(makefile) == stages(makefile)


def test_contributing_lists_each_stage():
    assert tabled(read("CONTRIBUTING.rst")) == stages(read("Makefile"))


def test_stages_that_are_run_by_others_exist():
    called = {name: re.findall(r"\bmake ([a-z-]+)\b", read(name)) for name in ("README.rst",)}
    for page in sorted((ROOT / "doc").glob("*.rst")):
        called[page.name] = re.findall(r"``make ([a-z-]+)\b[^`]*``", page.read_text("utf-8"))
    assert {"demo", "test", "help"} <= set(called["README.rst"])
    unknown = {name: set(targets) - stages(read("Makefile")) for name, targets in called.items()}
    assert not {name: targets for name, targets in unknown.items() if targets}


def test_ci_runs_the_command_of_the_readme():
    if not (ROOT / ".ci" / "run").exists():
        pytest.skip("a source distribution has no .ci")
    called = re.findall(r"\bmake (\S+)", re.sub("#.*", "", read(".ci/run")))
    assert called[0] == "test"
    assert (
        {"test-slow", "types", "doctest", "wheel-test"} <= set(called) <= stages(read("Makefile"))
    )


def make(*arguments):
    if which("make") is None:
        pytest.skip("needs make")
    done = subprocess.run(["make", *arguments], cwd=ROOT, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.mark.parametrize(
    "stage", sorted(stages(read("Makefile"))) if (ROOT / "Makefile").exists() else []
)
def test_each_stage_could_run(stage):
    """Everything that it depends on can be made; nothing is."""
    assert make("--dry-run", stage, "VENV=.venv-none", "VERSION=0.0.0", "PYTHONS=")


@pytest.mark.slow
def test_stages_that_need_no_network_run(tmp_path):
    """In the environment of this test, as if a stage had made it."""
    (tmp_path / ".ready").touch()
    binaries = Path(sys.executable).parent.as_posix()
    assert "all well" in make("lint", f"VENV={tmp_path.as_posix()}", f"BIN={binaries}")
    assert "release-check" in make("help")


@pytest.mark.parametrize(
    "makefile",
    [
        ".PHONY: test lint\n\n## test: the tests\ntest:\n\tpytest\n\nlint:\n\truff\n",
        ".PHONY: test \\\n\tlint\n\n## test: all\ntest:\n\tpytest\n\n## lint:\nlint:\n\truff\n",
        ".PHONY: test lint\n\n## test: the tests\ntest:\n\tpytest\n\n## other: x\nlint:\n\truff\n",
    ],
)
def test_a_stage_without_help_is_found(makefile):
    assert stages(makefile) - helped(makefile) == {"lint"}
    assert stages(makefile) - tabled("   * - ``make test``\n     - the tests\n") == {"lint"}
