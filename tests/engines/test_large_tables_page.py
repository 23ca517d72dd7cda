"""The page on large tables: each of its snippets runs as pasted, and prints what it says."""

import re
import textwrap
from doctest import NORMALIZE_WHITESPACE, OutputChecker
from pathlib import Path

import pytest
from conftest import start_ray, start_spark, started

import sklearn_dpgen

PAGE = Path(sklearn_dpgen.__file__).parents[1] / "doc" / "large_tables.rst"
# Those that have to be started: Spark with Java, and both as the other tests start them.
STARTED = {"pyspark": start_spark, "ray": start_ray}

pytestmark = [
    pytest.mark.skipif(not PAGE.exists(), reason="needs a checkout, not a wheel"),
    # By dask, where it reads files.
    pytest.mark.filterwarnings("ignore:The inplace keyword in DataFrame.reset_index"),
]


def read_sections():
    """Return the code blocks of each section, with what they need and what they print."""
    text = PAGE.read_text(encoding="utf-8") if PAGE.exists() else ""
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


SECTIONS = read_sections()
FIRST = next(iter(SECTIONS), None)


@pytest.fixture(scope="module")
def first():
    """Return the names that the first block of the page makes, for all others."""
    pytest.importorskip("statsmodels")
    pytest.importorskip("pyarrow")
    names = {}
    for code, _, _ in SECTIONS[FIRST]:
        exec(compile(code, PAGE.name, "exec"), names)
    return names


def test_the_page_has_all_engines():
    blocks = [block for blocks in SECTIONS.values() for block in blocks]
    needed = {name for _, needs, _ in blocks for name in needs}
    assert needed == {"polars", "duckdb", "dask", "pyspark", "ray"}
    assert all(out for blocks in list(SECTIONS.values())[1:] for _, _, out in blocks)


@pytest.mark.parametrize("section", [name for name in SECTIONS if name != FIRST])
def test_snippets_run_as_pasted(section, first, capsys):
    names = dict(first)
    for code, needs, expected in SECTIONS[section]:
        for module in needs:
            pytest.importorskip(module)
            if module in STARTED:
                started(STARTED[module])
        exec(compile(code, PAGE.name, "exec"), names)
        printed = capsys.readouterr().out
        assert OutputChecker().check_output(expected + "\n", printed, NORMALIZE_WHITESPACE), printed
