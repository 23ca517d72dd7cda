"""Fragments of the changelog: their names, what they render to, and that a change has one."""

import shutil

import pytest
from tool_modules import ROOT, load_tool, needs_checkout

pytestmark = needs_checkout

TYPES = {"feat": "FEAT", "priv": "PRIV"}


@pytest.fixture(scope="module")
def changes():
    return load_tool("check_changes")


@pytest.fixture
def project(tmp_path):
    """A project with one fragment and the configuration of this one."""
    for name in ("pyproject.toml", "changes/_template.rst.jinja"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        shutil.copyfile(ROOT / name, tmp_path / name)
    (tmp_path / "changes" / "coins.feat.rst").write_text("Coins\nare fair.\n", encoding="utf-8")
    return tmp_path


def test_the_fragments_of_this_project_are_well(changes):
    fragments, types = changes.read_fragments(), changes.read_types()
    assert not changes.fragment_faults(fragments, types)
    assert not changes.rendering_faults(changes.render(), fragments, types)


def test_types_are_the_prefixes_of_commits(changes):
    text = (ROOT / "CONTRIBUTING.rst").read_text(encoding="utf-8")
    for ending, name in changes.read_types().items():
        assert name == ending.upper()
        assert f"   * - ``{name}``\n" in text


def test_the_page_says_where_entries_go(changes):
    page = (ROOT / changes.PAGE).read_text(encoding="utf-8")
    assert page.count(".. towncrier release notes start\n") == 1


@pytest.mark.parametrize(
    ("name", "text", "fault"),
    [
        ("coins.feat.rst", "Coins are fair.\n", None),
        ("coins.feature.rst", "Coins are fair.\n", "the type must be one of feat, priv"),
        ("coins.tst.rst", "Coins are fair.\n", "the type must be one of feat, priv"),
        ("coins.rst", "Coins are fair.\n", "the name must be"),
        ("coins.feat.md", "Coins are fair.\n", "the name must be"),
        (".feat.rst", "Coins are fair.\n", "the name must be"),
        ("coins.feat.rst", " \n", "is empty"),
        ("coins.feat.rst", "- Coins are fair.\n", "come from the name"),
        ("coins.feat.rst", "PRIV Coins are fair.\n", "come from the name"),
    ],
)
def test_faults_of_a_fragment_are_found(changes, name, text, fault):
    found = changes.fragment_faults({name: text}, TYPES)
    assert len(found) == (fault is not None)
    assert all(sentence.startswith(name) and fault in sentence for sentence in found)


def test_a_fragment_becomes_an_entry(changes, project):
    page = changes.render("1.2.3", project / "pyproject.toml")
    assert "- FEAT Coins\n  are fair.\n" in page
    fragments = changes.read_fragments(project / "changes")
    assert list(fragments) == ["coins.feat.rst"]
    assert not changes.rendering_faults(page, fragments, changes.read_types())


def test_what_does_not_render_is_found(changes, project):
    page = changes.render("1.2.3", project / "pyproject.toml")
    types = changes.read_types()
    for fragments in ({"coins.fix.rst": "Coins are fair."}, {"dice.feat.rst": "Dice are fair."}):
        (fault,) = changes.rendering_faults(page, fragments, types)
        assert "is not rendered" in fault
    (project / "changes" / "coins.feat.rst").write_text("Coins " * 30, encoding="utf-8")
    page = changes.render("1.2.3", project / "pyproject.toml")
    (fault,) = changes.rendering_faults(page, changes.read_fragments(project / "changes"), types)
    assert "longer than 120" in fault


def test_a_type_that_the_template_leaves_out_is_found(changes, project):
    template = project / "changes" / "_template.rst.jinja"
    text = template.read_text(encoding="utf-8")
    broken = text.replace("if type in by_type", "if type in by_type and type != 'feat'")
    assert broken != text
    template.write_text(broken, encoding="utf-8")
    page = changes.render("1.2.3", project / "pyproject.toml")
    fragments = changes.read_fragments(project / "changes")
    assert changes.rendering_faults(page, fragments, changes.read_types())


CODE = "sklearn_dpgen/ot/_sinkhorn.py"


@pytest.mark.parametrize(
    ("changed", "found"),
    [
        # A change of the package alone, of whatever kind.
        ([("M", CODE)], [CODE]),
        ([("D", CODE), ("M", "tests/ot/test_sinkhorn.py")], [CODE]),
        # A fragment that goes, is of no type, or lies elsewhere is no entry; nor is the template.
        ([("M", CODE), ("D", "changes/x.fix.rst")], [CODE]),
        ([("M", CODE), ("A", "changes/x.other.rst")], [CODE]),
        ([("M", CODE), ("A", "doc/changes/x.fix.rst")], [CODE]),
        ([("M", CODE), ("M", "changes/_template.rst.jinja")], [CODE]),
        ([("M", CODE), ("A", "changes/x.fix.rst")], []),
        ([("A", CODE), ("M", "changes/x.feat.rst")], []),
        # A release moves the fragments to the page.
        ([("M", CODE), ("M", "doc/whats_new.rst"), ("D", "changes/x.fix.rst")], []),
        ([("M", "tests/ot/test_sinkhorn.py"), ("M", "README.rst")], []),
    ],
)
def test_a_change_without_an_entry_is_found(changes, changed, found):
    assert changes.undescribed(changed) == found


@pytest.mark.slow
def test_the_tool_ends_with_a_fault(changes, monkeypatch, capsys):
    monkeypatch.setattr("sys.argv", ["check_changes.py"])
    changes.main()
    assert "all well" in capsys.readouterr().out
    monkeypatch.setattr("sys.argv", ["check_changes.py", "--base", "origin/main"])
    monkeypatch.setattr(changes, "read_changed", lambda base: [("M", CODE), ("M", base)])
    with pytest.raises(SystemExit, match=CODE):
        changes.main()
    monkeypatch.setattr(changes, "read_fragments", lambda: {"x.other.rst": "text"})
    monkeypatch.setattr("sys.argv", ["check_changes.py"])
    with pytest.raises(SystemExit, match="the type must be one of"):
        changes.main()
