"""One click is one charge: the oracle is the file of the ledger, read by the test."""

import pytest
from app_cases import Drive, charges

pytestmark = pytest.mark.slow


@pytest.fixture
def ready(small):
    """A person before the button of the fit, with a ledger."""
    small.open_ledger("own.ledger")
    small.ledger = small.folder / "own.ledger"
    assert charges(small.ledger) == 0
    return small


def test_a_double_click_is_one_charge(ready):
    ready.page.locator('[data-do="fit"]').dblclick()
    ready.said("fit_", r"Done\.")
    assert charges(ready.ledger) == 1
    # A click after the end finds the release, and charges nothing.
    ready.do("fit")
    ready.said("fit_", "has a release already")
    assert charges(ready.ledger) == 1


def test_clicks_while_it_runs_are_refused(ready):
    ready.do("fit")
    ready.said("fit_", "Running")
    ready.do("fit")
    ready.said("fit_", "running already")
    ready.said("fit_", r"Done\.")
    assert charges(ready.ledger) == 1


def test_a_reload_during_the_fit_finds_it_again(ready):
    ready.do("fit")
    ready.said("fit_", "Running")
    for _ in range(2):
        ready.page.reload()
        ready.ready()
    ready.said("fit_", r"Done\.")
    assert charges(ready.ledger) == 1
    assert ready.page.locator("#rows").input_value() == "200"


def test_the_back_button_charges_nothing(ready):
    ready.do("fit")
    ready.said("fit_", r"Done\.")
    page = ready.page
    page.locator("nav a").last.click()
    page.go_back()
    page.goto("about:blank")
    page.go_back()
    ready.ready()
    ready.said("fit_", r"Done\.")
    page.go_forward()
    page.go_back()
    ready.ready()
    assert charges(ready.ledger) == 1


def test_two_tabs_of_one_work_are_one_charge(ready):
    other = Drive(None, ready.page.url, context=ready.context)
    other.said("gaps", "All is declared")
    for tab in (ready, other):
        tab.page.locator('[data-do="fit"]').click(no_wait_after=True)
    for tab in (ready, other):
        tab.said("fit_", r"Done\.")
    assert charges(ready.ledger) == 1


def test_two_works_on_one_folder_are_one_charge(ready):
    # The same address without the name of a work is a new one.
    other = Drive(None, ready.page.url.partition("?")[0], context=ready.context)
    assert other.page.url != ready.page.url
    assert other.page.locator("#file").input_value() == ""
    other.draft(ready.source, ready.folder)
    other.said("gaps", "All is declared")
    other.fill("rows", "200")
    other.open_ledger("own.ledger")
    for person in (ready, other):
        person.do("fit")
    for person in (ready, other):
        person.said("fit_", r"Done\.|has failed|Not started")
        person.until(lambda person=person: "Running" not in person.page.inner_text("#fit_"))
    done = [p for p in (ready, other) if "Done." in p.page.inner_text("#fit_")]
    assert len(done) == 1
    assert charges(ready.ledger) == 1


def test_works_of_two_browsers_are_apart(ready, browser, url):
    other = Drive(browser, url)
    assert other.page.locator("#file").input_value() == ""
    assert other.page.locator('[data-column="age"]').count() == 0
    other.context.close()


def test_a_fit_that_is_stopped_says_what_was_spent(ready):
    ready.do("fit")
    ready.said("fit_", "Running")
    ready.do("stop")
    said = ready.said("fit_", r"Stopped\.|Done\.")
    spent = charges(ready.ledger)
    assert spent in (0, 1)
    assert ("Nothing was spent" in said) == (spent == 0)
    assert ("has charge 1" in said) == (spent == 1)


def test_the_ledger_refuses_what_is_above_its_cap(small):
    small.open_ledger("own.ledger", cap="0.5")
    small.said("planned", "would refuse")
    assert "has failed" in small.fit()
    assert "ledger" in small.page.inner_text("#fit_")
    assert charges(small.folder / "own.ledger") == 0
    assert not (small.folder / "release").exists()
