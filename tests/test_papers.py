"""The page of the four papers names everything in them, and all that it names exists."""

import re
from importlib import import_module
from pathlib import Path

import pytest

import sklearn_dpgen

PROJECT = Path(sklearn_dpgen.__file__).parents[1]
PAGE = PROJECT / "doc" / "papers.rst"

pytestmark = pytest.mark.skipif(not PAGE.exists(), reason="needs a checkout, not a wheel")


def numbered(kind, *numbers):
    return [f"{kind} {number}" for number in numbers]


# Read off the papers: their algorithms, statements with a formula, tables and figures.
ITEMS = {
    "Entropic deconvolution": [
        *numbered("Theorem", 1, 2, 3),
        *numbered("Corollary", *range(1, 6)),
        "Lemma 1",
        "Algorithm 1",
        "Equation 5",
        *numbered("Figure", *range(1, 15)),
    ],
    "Private Wasserstein gradients": [
        *numbered("Proposition", "3.1", "3.2"),
        *numbered("Theorem", "4.1", "6.1", "A.1"),
        *numbered("Lemma", "2.3", "5.1"),
        *numbered("Remark", "4.2", "4.3", "5.2", "6.2", "A.2"),
        "Algorithm 1",
        "Appendix C",
        "Appendix D",
        *numbered("Figure", *range(1, 14)),
    ],
    "Smoothed sliced Wasserstein": [
        *numbered("Lemma", 1, 2),
        *numbered("Property", 1, 2),
        *numbered("Proposition", 1, 2),
        *numbered("Algorithm", 1, 2),
        "Equation 8",
        *numbered("Table", *range(1, 6)),
        *numbered("Figure", *range(1, 8)),
    ],
    "Private evolution": [
        *numbered("Theorem", "4.1", "G.1", "I.1"),
        "Equation 2",
        *numbered("Proposition", "4.1", "5.1"),
        *numbered("Lemma", "3.1", "E.4", "E.5"),
        "Corollary E.1",
        *numbered("Algorithm", *range(1, 6)),
        *numbered("Figure", *range(1, 8)),
    ],
}


def sections(text):
    """Return the text below each heading of the second level."""
    parts = re.split(r"^(.+)\n-{5,}\n", text, flags=re.M)
    return dict(zip(parts[1::2], parts[2::2], strict=True))


def items_named(section):
    """Return the items that rows, leads of paragraphs, captions and headings of a section begin.

    'Figure 1', 'Theorem 4.1'; what a sentence mentions is not meant.
    """
    cells = re.findall(r"^   \* - (.*)$", section, flags=re.M)
    cells += re.findall(r"^\*([^*\n]+)\*", section, flags=re.M)
    cells += re.findall(r"^\.\. list-table:: (.*)$", section, flags=re.M)
    cells += re.findall(r"^(.+)\n~{5,}$", section, flags=re.M)
    kinds = "Algorithm|Appendix|Corollary|Equation|Figure|Lemma|Property|Proposition|Remark|Table"
    return re.findall(
        rf"\b((?:{kinds}|Theorem) (?:[A-Z]\.)?[A-Z\d](?:[\d.]*\d)?)", "\n".join(cells)
    )


@pytest.mark.parametrize("paper", ITEMS)
def test_every_item_of_a_paper_has_a_row(paper):
    named = items_named(sections(PAGE.read_text(encoding="utf-8"))[paper])
    assert sorted(set(ITEMS[paper]) - set(named)) == []
    # Twin: without its rows an item would be missed.
    for text in ("no table here", f"A sentence about {ITEMS[paper][0]}."):
        assert set(ITEMS[paper]) - set(items_named(text)) == set(ITEMS[paper])


def resolve(target):
    """Return the public object of a dotted name."""
    parts = target.lstrip("~").split(".")
    for cut in range(len(parts), 0, -1):
        try:
            found = import_module(".".join(parts[:cut]))
        except ModuleNotFoundError:
            continue
        for name in parts[cut:]:
            found = getattr(found, name)
        return found
    raise AttributeError(target)


def test_what_the_page_names_can_be_imported():
    text = PAGE.read_text(encoding="utf-8")
    targets = re.findall(r":(?:class|func|meth|mod|attr):`(?:[^`<]*<)?([^`>]+)>?`", text)
    assert len(targets) > 20
    # What is private is named by its module.
    targets += [f"sklearn_dpgen.{name}" for name in re.findall(r"``(\w+\._\w+\.\w+)``", text)]
    for target in targets:
        resolve(target)
    with pytest.raises(AttributeError):
        resolve("sklearn_dpgen.smoothed.NoSuchSampler")


def faults_of_scripts(text):
    """Return the scripts, parts of scripts, results and pictures of a page that do not exist."""
    faults = []
    for name, words in re.findall(r"``(bench_\w+\.py)((?: [^`\s]+)*)``", text):
        path = PROJECT / "benchmarks" / name
        source = path.read_text(encoding="utf-8") if path.exists() else ""
        wanted = [f'"{word}"' for word in words.split() if not word[0].isdigit()]
        faults += [name] if not source else [f"{name} {w}" for w in wanted if w not in source]
    results = re.findall(r"``results/(\w+\.json)``", text)
    faults += [r for r in results if not (PROJECT / "benchmarks" / "results" / r).exists()]
    pictures = re.findall(r"^ *\.\. (?:image|figure):: (\S+)", text, flags=re.M)
    return faults + [p for p in pictures if not (PAGE.parent / p).exists()]


def test_scripts_results_and_pictures_of_the_page_exist():
    text = PAGE.read_text(encoding="utf-8")
    assert faults_of_scripts(text) == []
    broken = (
        "``bench_none.py`` ``bench_fair.py --nopart`` ``results/none.json``\n.. image:: none.png"
    )
    assert len(faults_of_scripts(broken)) == 4
