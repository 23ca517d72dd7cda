"""A server of the page, and a browser, of each module of tests that needs them."""

import pytest
from app_cases import Drive, browsing, find_browser, serving, tracebacks, write_small


# Playwright runs an event loop in this thread, in which no other test could start one: it ends with
# its module.
@pytest.fixture(scope="module")
def browser():
    """A browser, if there is one."""
    pytest.importorskip("shiny", reason="needs shiny")
    pytest.importorskip("playwright", reason="needs playwright")
    if find_browser() is None:
        pytest.skip("needs Chromium or Chrome")
    with browsing() as found:
        yield found


@pytest.fixture(scope="module")
def url(browser, tmp_path_factory):
    """The address of a server that several tests share."""
    with serving(tmp_path_factory.mktemp("server")) as (found, process):
        yield found
        # Whatever a person typed, the program goes on.
        assert process.poll() is None
    assert not tracebacks(process.err)


@pytest.fixture
def person(browser, url):
    """A person with a new browser at a new page."""
    found = Drive(browser, url)
    yield found
    found.context.close()
    assert not found.foreign()


@pytest.fixture
def small(person, tmp_path):
    """A person who has declared a small table."""
    person.source = write_small(tmp_path / "people.csv")
    person.folder = tmp_path / "out"
    person.draft(person.source, person.folder)
    person.declare("age", "numeric", low="18", high="100")
    person.declare("ill", "categorical", categories="no, yes")
    person.said("gaps", "All is declared")
    person.fill("rows", "200")
    return person
