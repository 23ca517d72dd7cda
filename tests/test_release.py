"""The checks of a release: what they refuse, and that the page shows what was run."""

import datetime
import json
import re
import shutil

import pytest
from test_stages import read, stages
from tool_modules import ROOT, load_tool, needs_checkout

pytestmark = needs_checkout


@pytest.fixture(scope="module")
def tool():
    return load_tool("release_check")


def test_page_shows_each_command_once_and_as_it_was_written(tool):
    page = read("doc/release.rst")
    lines = tool.read_lines(page)
    assert tuple(lines) == tool.COMMANDS
    assert tool.write_lines(page, lines) == page
    for line in lines.values():
        assert tuple(line) == tool.COLUMNS
        assert re.match(r"passed|failed \(-?\d+\)|not run$", line["Result"])
        assert bool(line["Date"]) == (line["Result"] != tool.NOT_RUN)
    targets = {c.split()[1] for c in tool.COMMANDS if c.startswith("make ")}
    assert targets <= stages(read("Makefile"))
    assert {"test", "types", "wheel-test", "test-minimum", "first-hour"} <= targets


def test_a_line_is_what_a_command_did(tool):
    line = tool.run_check("python --version")
    assert (line["Command"], line["Result"]) == ("python --version", "passed")
    assert line["Date"] == datetime.date.today().isoformat()
    assert tool.run_check("python no_such_script.py")["Result"] == "failed (2)"
    page = read("doc/release.rst")
    lines = tool.read_lines(page) | {"make lint": line | {"Result": "passed; 3 passed, 1 skipped"}}
    written = tool.read_lines(tool.write_lines(page, lines))
    assert written["make lint"]["Result"] == "passed; 3 passed, 1 skipped"
    assert written["make types"] == tool.read_lines(page)["make types"]


def test_what_pytest_counts_is_read(tool):
    printed = (
        "12 passed\n"
        "===== 194 passed, 1 skipped, 2 deselected in 22.20s =====\n"
        "1 failed, 3 passed in 0.10s\n"
    )
    assert tool.read_counts(printed) == [
        "194 passed, 1 skipped, 2 deselected",
        "1 failed, 3 passed",
    ]


@pytest.fixture
def released(tmp_path):
    """The files of a release, as they should be on the 3rd of February."""
    names = ("setup.cfg", "README.rst", "SECURITY.md", "CITATION.cff", "doc/index.rst")
    for name in names:
        (tmp_path / name).parent.mkdir(exist_ok=True)
        text = re.sub(r"[Nn]ot(hing was)? released yet", "", read(name))
        text = re.sub(r"(documentation|repository)\.invalid", r"\1.org", text)
        text = re.sub(r'(date-released: )".*"', r'\1"2030-02-03"', text)
        (tmp_path / name).write_text(text, encoding="utf-8")
    for folder in ("changes", "doc/_static", "sklearn_dpgen"):
        (tmp_path / folder).mkdir()
    shutil.copy(ROOT / "changes" / "_template.rst.jinja", tmp_path / "changes")
    (tmp_path / "sklearn_dpgen/_version.py").write_text('__version__ = "0.1.0"\n')
    entries = [{"version": "0.1.0", "preferred": True}, {"version": "0.0.1"}]
    (tmp_path / "doc/_static/switcher.json").write_text(json.dumps(entries))
    return tmp_path


@pytest.mark.parametrize(
    ("name", "old", "new", "fault"),
    [
        ("setup.cfg", "documentation.org", "documentation.invalid", "documentation is a placehold"),
        ("setup.cfg", "repository.org", "repository.invalid", "repository is a placeholder"),
        ("sklearn_dpgen/_version.py", "0.1.0", "0.1.0.dev0", "is no release"),
        ("CITATION.cff", "2030-02-03", "2030-02-02", "date-released is not today"),
        ("doc/_static/switcher.json", "true", "false", "not the preferred one"),
        ("README.rst", "Install\n", "Not released yet.\nInstall\n", "nothing is released"),
        ("SECURITY.md", "# Security", "Nothing was released yet.", "nothing is released"),
    ],
)
def test_state_of_a_release(tool, released, name, old, new, fault):
    today = datetime.date(2030, 2, 3)
    assert tool.state_faults(released, today) == []
    path = released / name
    text = path.read_text(encoding="utf-8")
    assert old in text
    path.write_text(text.replace(old, new), encoding="utf-8")
    faults = tool.state_faults(released, today)
    assert any(fault in found for found in faults), faults
    # A version that is not released is not the preferred one either.
    assert len(faults) == 1 + ("version" in name)


def test_fragments_that_remain_are_found(tool, released):
    (released / "changes" / "a.fix.rst").write_text("text")
    assert tool.state_faults(released, datetime.date(2030, 2, 3)) == [
        "changes: fragments remain (make release-notes)"
    ]
