"""The tables of doc/estimators.rst are what the estimators do."""

import pytest
from estimator_table import (
    COMMAND,
    PAGE,
    cells,
    differences,
    plans,
    private_classes,
    read_page,
    trials,
    write_page,
)

pytestmark = pytest.mark.skipif(not PAGE.exists(), reason="needs a checkout, not a wheel")


@pytest.fixture(scope="module")
def page():
    return PAGE.read_text(encoding="utf-8")


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")
def test_the_page_says_what_is_tried(page):
    found = differences(page, cells())
    assert not found, "\n".join([*found, f"To write the page anew: {COMMAND}"])


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")
def test_a_page_that_says_something_else_is_found(page):
    tried = cells()
    links = {link for _, link, _ in tried}
    assert len(links) == len(private_classes())
    # One cell changed, in each of the tables; a row that is gone; one too many; another title.
    for name in {table for table, _, _ in tried}:
        before, begin, rest = page.partition(f".. begin {name}\n")
        assert begin
        assert len(differences(before + begin + rest.replace(",yes", ",no", 1), tried)) == 1
        assert (
            differences(before + begin + rest.replace("   estimator,", "   name,", 1), tried) == []
        )
    link = sorted(links)[0]
    assert differences(page.replace(link, "another"), tried)
    assert differences(page.replace(",certified,", ",noise,", 1), tried)
    assert differences("", tried)


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")
def test_what_could_not_be_tried_is_taken_from_the_page(page):
    unknown = {key: None if key[2] == "dask" else value for key, value in cells().items()}
    assert differences(page, unknown) == []


def test_a_page_is_written_as_it_is_read():
    tried = {
        ("central takes", ":class:`A`", "array"): "yes",
        ("central takes", ":class:`A`", "files"): "–",
        ("local has", ":class:`B`", "GPU"): "yes",
    }
    page = (
        "Title\n\n.. begin central takes\n\n.. end central takes\n\nmore\n\n"
        ".. begin local has\nold\n.. end local has\n"
    )
    text = write_page(page, tried)
    assert read_page(text) == tried
    assert write_page(text, tried) == text
    assert text.startswith("Title\n")
    assert "\nmore\n" in text


def test_every_class_is_tried():
    assert set(trials()) == set(private_classes())


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("cls", list(private_classes()), ids=lambda cls: cls.__name__)
def test_every_class_has_plans_of_one_trust_model(cls):
    assert len({report.is_local for _, report in plans(cls)}) == 1
