"""The page on large tables has a snippet of each engine, which ``make doctest`` runs."""

import re
import textwrap
from pathlib import Path

import pytest

import sklearn_dpgen

PAGE = Path(sklearn_dpgen.__file__).parents[1] / "doc" / "large_tables.rst"

pytestmark = pytest.mark.skipif(not PAGE.exists(), reason="needs a checkout, not a wheel")


def read_sections():
    """Return the code blocks of each section, with what they need and what they print."""
    text = PAGE.read_text(encoding="utf-8")
    block = r"^\.\. (testcode|testoutput)::\n((?: +:\w+:.*\n)?)\n((?:\n|[ ]+.*\n)+)"
    sections = {}
    for part in re.split(r"\n(?=[^\n]+\n[-=]{3,}\n)", text):
        blocks = []
        for kind, options, body in re.findall(block, part + "\n", flags=re.M):
            body, needs = textwrap.dedent(body), re.findall(r'find_spec\("(\w+)"\)', options)
            if kind == "testcode":
                blocks.append((body, needs, ""))
            else:
                blocks[-1] = (*blocks[-1][:2], body.strip())
        if blocks:
            sections[part.strip().partition("\n")[0]] = blocks
    return sections


def test_the_page_has_all_engines():
    sections = read_sections()
    blocks = [block for blocks in sections.values() for block in blocks]
    needed = {name for _, needs, _ in blocks for name in needs}
    assert needed == {"polars", "duckdb", "dask", "pyspark", "ray"}
    assert all(out for blocks in list(sections.values())[1:] for _, _, out in blocks)
