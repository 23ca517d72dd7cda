"""The whole way in a browser, from a file to a release folder."""

import json
import sys
from pathlib import Path

import pytest
from app_cases import (
    SECRET,
    STAYS,
    VISITS,
    Drive,
    charges,
    command,
    serving,
    tracebacks,
    write_keys,
    write_stays,
    write_visits,
)
from app_watch import LOOPBACK, listening, reached, records, tree, watched, written


@pytest.mark.slow
def test_from_an_export_of_a_hospital_to_a_signed_folder(browser, tmp_path):
    source, folder = tmp_path / "source", tmp_path / "chosen"
    source.mkdir()
    stays = write_stays(source / "stays.csv")
    private, public = write_keys(source)
    before = tree(source)
    environment, record = watched(tmp_path)
    with serving(source, environment) as (url, process):
        person = Drive(browser, url)
        page = person.page
        assert url.rpartition("/")[2] not in page.url
        person.fill("encoding", "cp1252")
        person.draft(stays, folder)
        # A part in the table, and the rest as a text.
        person.declare("Alter", "numeric", low="0", high="110", integer="yes")
        person.declare("Alter", "numeric", missing='-999, unbekannt, "."')
        person.said("gaps", "To declare")
        person.until(lambda: "-999" in page.locator("#yaml").input_value())
        person.take(STAYS)
        person.said("gaps", "All is declared")
        person.do("check")
        assert "PRIVATE" in person.said("checked", "The table fits")
        person.fill("rows", "150")
        person.set_epsilon(2)
        plan = person.said("planned", "Epsilon 2 at delta")
        assert "By guessing" in plan
        person.open_ledger("stays.ledger")
        person.fill("signing-key", str(private))
        assert charges(folder / "stays.ledger") == 0
        person.fit()
        assert "Done." in page.locator("#fit_").inner_text()
        assert charges(folder / "stays.ledger") == 1
        page.locator("#look_ svg").first.wait_for()
        person.fill("public-key", str(public))
        person.do("verify")
        person.said("verified_", "signature is valid|Verified")
        assert not person.errors
        assert not person.foreign()
        if sys.platform.startswith("linux"):
            assert listening(process.pid) == {LOOPBACK}
        person.context.close()
    assert process.returncode in (0, 130)
    assert not tracebacks(process.err)
    release = folder / "release"
    verified = command("verify", release, "--public-key", public)
    assert verified.returncode == 0, verified.stdout + verified.stderr
    assert json.loads((release / "release.json").read_text())["signature"]
    published = tree(release)
    assert SECRET.encode() not in b"".join(published.values())
    assert not any("PRIVATE" in name for name in published)
    # What was asked of the network, and what was written, by the page and by its fit.
    found = records(record)
    assert any("synthesize" in what for _, event, what in found if event == "start")
    assert not reached(found)
    # Beside the chosen folder there are caches of fonts, a probe of the temporary folder, and empty
    # folders of Shiny in it.
    home, temporary = tmp_path / "home", tmp_path / "tmpdir"
    caches = [home / f"{name}/matplotlib" for name in (".cache", ".config")]
    others = written(found, folder, *caches)
    opened = {place for _, event, place in found if event == "open"}
    assert {Path(place) for place in others} - {path.parent for path in caches} <= {
        path for path in map(Path, others) if path.parent == temporary
    }
    probes = [Path(place) for place in opened & {*others}]
    assert all(len(path.name) == 8 and not path.exists() for path in probes)
    assert tree(source) == before
    assert all(name.startswith(".cache/matplotlib/fontlist") for name in tree(home))
    assert not tree(temporary)


@pytest.mark.slow
def test_from_patients_with_visits_to_a_folder(person, tmp_path):
    tables = write_visits(tmp_path / "tables")
    folder = tmp_path / "chosen"
    person.draft(tables, folder)
    person.said("gaps", "To declare")
    person.take(VISITS)
    person.said("gaps", "All is declared")
    person.do("check")
    person.said("checked", "The table fits|tables fit")
    person.fill("rows", "200")
    person.said("planned", "Epsilon 1 at delta")
    person.open_ledger("visits.ledger")
    assert "Done." in person.fit()
    assert charges(folder / "visits.ledger") == 1
    person.page.locator("#look_ svg").first.wait_for()
    verified = command("verify", folder / "release")
    assert verified.returncode == 0, verified.stdout + verified.stderr
    names = set(tree(folder / "release"))
    assert {"synthetic-patients.csv", "synthetic-visits.csv"} <= names
    assert not person.errors
