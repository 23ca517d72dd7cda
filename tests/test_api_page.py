"""The API page lists every public name, each in the section of its module, and each page once."""

import re
from importlib import import_module
from pathlib import Path

import pytest

import sklearn_dpgen

ROOT = Path(sklearn_dpgen.__file__).parent
DOC = ROOT.parent / "doc"

pytestmark = pytest.mark.skipif(not DOC.exists(), reason="needs a checkout, not a wheel")


def listed(text):
    """Return the names by module."""
    found = {}
    sections = re.split(r"^\.\. currentmodule:: ", text, flags=re.M)[1:]
    for section in sections:
        module, _, rest = section.partition("\n")
        block = re.search(r"^\.\. autosummary::\n(?:   :.*\n)+\n((?:   \w+\n)+)", rest, flags=re.M)
        found[module] = block[1].split()
    return found


def public_names():
    found = ROOT.iterdir()
    modules = (p.stem for p in found if p.suffix == ".py" or (p / "__init__.py").exists())
    names = {"sklearn_dpgen": ["load"]}
    for module in sorted(modules):
        if not module.startswith("_") and module not in ("command_line", "persistence", "utils"):
            name = f"sklearn_dpgen.{module}"
            names[name] = [n for n in import_module(name).__all__ if not n.isupper()]
    # A room that only other rooms use has no section.
    return {module: listed for module, listed in names.items() if listed}


def test_api_page_lists_every_public_name_once():
    found, wanted = listed((DOC / "api.rst").read_text(encoding="utf-8")), public_names()
    assert {name: sorted(names) for name, names in found.items()} == {
        name: sorted(names) for name, names in wanted.items()
    }


def test_every_page_is_in_one_table_of_contents():
    entries = []
    for page in DOC.glob("*.rst"):
        for block in re.findall(
            r"^\.\. toctree::\n(?:   :.*\n)*\n((?:   [\w/]+\n)+)",
            page.read_text(encoding="utf-8"),
            flags=re.M,
        ):
            entries += block.split()
    pages = {page.stem for page in DOC.glob("*.rst")} - {"index"}
    assert sorted(entries) == sorted({*pages, "auto_examples/index"})


def test_a_name_that_is_left_out_is_found():
    text = (
        ".. currentmodule:: sklearn_dpgen.a\n\n.. autosummary::\n   :toctree: x\n\n   One\n   two\n"
    )
    assert listed(text) == {"sklearn_dpgen.a": ["One", "two"]}
