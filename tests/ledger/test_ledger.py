"""The file of a ledger: what it books, refuses, keeps and shows."""

import copy
import hashlib
import os
import pickle
import shutil
import sqlite3
import stat
import subprocess
import sys

import numpy as np
import pytest
from ledger_cases import DELTA, gaussian_plan, plan_of, rows
from scipy.stats import norm
from sklearn.base import clone

from sklearn_dpgen.accounting import (
    ApproximateProfile,
    GaussianProfile,
    LaplaceProfile,
    PrivacyReport,
)
from sklearn_dpgen.domains import Box
from sklearn_dpgen.exceptions import BudgetExceededError
from sklearn_dpgen.ledger import PrivacyLedger, _ledger
from sklearn_dpgen.ledger._base import PrivateEstimator
from sklearn_dpgen.mechanisms import LaplaceMechanism

CAP = {"dataset": "patients", "epsilon": 1.0, "delta": DELTA}


@pytest.fixture
def path(tmp_path):
    return tmp_path / "patients.ledger"


@pytest.fixture
def ledger(path):
    return PrivacyLedger.create(path, **CAP)


@pytest.mark.slow
def test_forty_fits_cost_what_one_with_forty_times_the_squared_mu_does(ledger, path):
    for _ in range(40):
        ledger.reserve(gaussian_plan(0.1), what="counts")
    assert rows(path) == ["counts"] * 40

    def delta(epsilon, mu):
        return norm.cdf(mu / 2 - epsilon / mu) - np.exp(epsilon) * norm.cdf(-mu / 2 - epsilon / mu)

    (mu,) = {row[0] ** 0.5 for row in rows(path, "amount, delta")}
    assert delta(0.1, mu) == pytest.approx(DELTA, rel=1e-6)
    spent = ledger.spent()
    assert delta(spent, 40**0.5 * mu) == pytest.approx(DELTA, rel=1e-6)
    report = ledger.report()
    assert report.composed == pytest.approx(spent, rel=1e-9)
    assert report.summed == pytest.approx((4.0, 40 * DELTA))
    assert spent < 0.2 * report.summed[0]
    left = ledger.remaining()
    assert 0 < left < 1
    ledger.reserve(gaussian_plan(0.999 * left), what="the rest")
    with pytest.raises(BudgetExceededError):
        ledger.reserve(gaussian_plan(0.05), what="one more")
    assert len(rows(path)) == 41


def test_what_is_refused_is_not_charged_and_the_message_says_what_is_left(ledger, path):
    ledger.reserve(gaussian_plan(0.6), what="first")
    with pytest.raises(BudgetExceededError) as caught:
        ledger.reserve(gaussian_plan(0.9), what="EntropicFit")
    message = str(caught.value)
    assert "EntropicFit asks for epsilon 0.9" in message
    assert "'patients'" in message
    assert f"epsilon {ledger.remaining():.3g}" in message
    assert rows(path) == ["first"]
    assert pickle.loads(pickle.dumps(caught.value)).args == caught.value.args


def test_one_fit_may_take_the_whole_and_then_nothing_is_left(ledger, path):
    assert ledger.remaining() == pytest.approx(1.0)
    ledger.reserve(gaussian_plan(1.0), what="all")
    assert ledger.spent() <= 1.0
    assert ledger.remaining() == 0.0
    with pytest.raises(BudgetExceededError):
        ledger.reserve(gaussian_plan(1e-6), what="a little")
    second = PrivacyLedger.create(path.with_name("b.ledger"), **CAP)
    # What the filter cannot hold, and is far from all, is refused.
    with pytest.raises(BudgetExceededError):
        second.reserve(plan_of((ApproximateProfile(0.5), 1)), what="an answer")
    with pytest.raises(BudgetExceededError):
        second.reserve(gaussian_plan(1.001), what="more than all")
    second.reserve(gaussian_plan(0.01), what="a little")
    # After something was released the part of delta that is kept is no longer free.
    with pytest.raises(BudgetExceededError):
        second.reserve(gaussian_plan(0.99995), what="the rest")


@pytest.mark.parametrize(
    "copied", [copy.copy, copy.deepcopy, lambda x: pickle.loads(pickle.dumps(x))]
)
def test_copies_book_in_the_same_file(ledger, path, copied):
    other = copied(ledger)
    other.reserve(gaussian_plan(0.2), what="copy")
    assert ledger.spent() > 0
    assert other == ledger
    assert hash(other) == hash(ledger)
    estimator = clone(LaplaceMechanism(0.1, domain=Box(0, 1), ledger=ledger))
    assert estimator.ledger is not ledger
    estimator.fit(np.zeros((5, 1))).transform(np.zeros((5, 1)))
    assert rows(path) == ["copy", "LaplaceMechanism"]


def test_a_path_does_as_well_and_it_does_not_move_with_the_folder(ledger, path, monkeypatch):
    monkeypatch.chdir(path.parent)
    relative = PrivacyLedger(path.name)
    monkeypatch.chdir("/")
    relative.reserve(gaussian_plan(0.1), what="from elsewhere")
    assert rows(path) == ["from elsewhere"]
    mechanism = LaplaceMechanism(0.1, domain=Box(0, 1), ledger=str(path)).fit(np.zeros((5, 1)))
    assert rows(path) == ["from elsewhere"]
    for _ in range(2):
        mechanism.transform(np.zeros((5, 1)))
    assert rows(path)[1:] == ["LaplaceMechanism"] * 2


@pytest.mark.parametrize(
    ("given", "kind", "words"),
    [
        ({"filter": "sum"}, ValueError, "filter must be one of"),
        ({"neighbours": "any"}, ValueError, "neighbours must be one of"),
        ({"epsilon": np.inf}, ValueError, "epsilon must be positive and finite"),
        ({"delta": 0.0}, ValueError, "delta must be"),
        ({"dataset": None}, TypeError, "dataset must be a str"),
    ],
)
def test_a_cap_is_checked_before_a_file_is_made(path, given, kind, words):
    with pytest.raises(kind, match=words):
        PrivacyLedger.create(path, **CAP | given)
    assert not path.exists()


def test_a_ledger_is_made_once_and_opening_makes_none(path):
    with pytest.raises(FileNotFoundError, match="create one with PrivacyLedger.create"):
        PrivacyLedger(path)
    with pytest.raises(FileNotFoundError, match="The folder of the ledger must exist"):
        PrivacyLedger.create(path / "nowhere" / "a.ledger", **CAP)
    assert not path.exists()
    ledger = PrivacyLedger.create(path, **CAP)
    ledger.reserve(gaussian_plan(0.5), what="a fit")
    content = path.read_bytes()
    with pytest.raises(FileExistsError, match="must not exist to create a ledger"):
        PrivacyLedger.create(path, **CAP)
    assert path.read_bytes() == content
    opened = PrivacyLedger(path)
    assert opened == ledger
    assert (opened.dataset, opened.epsilon, opened.delta) == ("patients", 1.0, DELTA)
    assert (opened.neighbours, opened.unit, opened.filter) == ("replace_one", None, "gaussian")
    assert opened.spent() == ledger.spent() > 0


def test_a_ledger_that_lost_its_content_is_no_fresh_budget(path, ledger):
    """Whatever is cut off: each beginning of the file is refused, and so is the empty file."""
    ledger.reserve(gaussian_plan(0.5), what="a fit")
    content = path.read_bytes()
    lengths = {0, 1, 15, 20, 50, 100, 511, 512, 4095, 4096, 8192, len(content) - 1}
    for length in sorted(lengths):
        path.write_bytes(content[:length])
        words = "is empty and not a ledger" if length == 0 else "not a ledger"
        with pytest.raises(ValueError, match=words):
            PrivacyLedger(path)
        with pytest.raises(ValueError, match="not a ledger"):
            ledger.reserve(gaussian_plan(0.5), what="another")
        assert path.read_bytes() == content[:length]
    # The twin: the whole of it is opened, and holds what was spent.
    path.write_bytes(content)
    assert PrivacyLedger(path).spent() > 0.4


def changed(path, *statements):
    """Change the file as any tool for SQLite does."""
    with sqlite3.connect(path) as db:
        for statement in statements:
            db.execute(statement)
    db.close()


@pytest.mark.parametrize(
    "lost", ["id = 3", "id >= 2", "id >= 1", "id = 2"], ids=["last", "two", "all", "middle"]
)
def test_charges_that_are_deleted_are_missed(path, ledger, lost):
    for number in range(3):
        ledger.reserve(gaussian_plan(0.3), what=f"fit {number}")
    spent = ledger.spent()
    # The twin: what rewrites the file and loses nothing is no fault.
    changed(path, "PRAGMA user_version = 1")
    with sqlite3.connect(path, isolation_level=None) as db:
        db.execute("VACUUM")
    db.close()
    assert PrivacyLedger(path).spent() == spent
    changed(path, f"DELETE FROM charges WHERE {lost}")
    n_left = len(rows(path))
    book = PrivacyLedger(path)
    for use in (book.spent, book.remaining, book.report):
        with pytest.raises(ValueError, match=f"3 charges were made, and {n_left} of them"):
            use()
    with pytest.raises(ValueError, match="is damaged"):
        book.reserve(gaussian_plan(0.3), what="one more")
    assert len(rows(path)) == n_left


@pytest.mark.parametrize(
    "lie",
    [
        "total_amount = -1.0",
        "total_amount = 0.0",
        "amount = -1.0, total_amount = -1.0",
        "total_delta = -1e-3",
        "amount = -9e999",
        "delta = -1.0",
    ],
)
def test_a_stored_total_is_never_trusted(path, ledger, lie):
    """Each lie would let through a fit of ε = .9 after one of .6."""
    ledger.reserve(gaussian_plan(0.6), what="a fit")
    changed(path, f"UPDATE charges SET {lie}")
    with pytest.raises((ValueError, BudgetExceededError)):
        PrivacyLedger(path).reserve(gaussian_plan(0.9), what="another")
    assert rows(path) == ["a fit"]
    # The twin: a larger total holds as well, as a smaller fit shows.
    changed(path, "UPDATE charges SET amount = abs(amount), delta = 0.0, total_delta = 0.0")
    changed(path, "UPDATE charges SET amount = 1e-4, total_amount = 1e9")
    with pytest.raises(BudgetExceededError):
        PrivacyLedger(path).reserve(gaussian_plan(0.01), what="a little")
    changed(path, "UPDATE charges SET total_amount = amount")
    PrivacyLedger(path).reserve(gaussian_plan(0.01), what="a little")
    assert len(rows(path)) == 2


class Full(sqlite3.Connection):
    """A connection to a disk without room for a page more."""

    def __init__(self, *args, **kwargs):
        super().__init__(*args, **kwargs)
        self.execute("PRAGMA max_page_count = 1")


def test_a_full_disk_is_an_error_that_says_so_and_nothing_is_charged(path, ledger, monkeypatch):
    ledger.reserve(gaussian_plan(0.1), what="a fit")
    # A charge that needs a page of its own.
    large = gaussian_plan(0.1, precision={"x": "x" * 10_000})
    content = path.read_bytes()
    connect = sqlite3.connect
    with monkeypatch.context() as patched:
        patched.setattr(sqlite3, "connect", lambda *a, **k: connect(*a, **k, factory=Full))
        with pytest.raises(OSError, match="its disk is full. Nothing was charged"):
            ledger.reserve(large, what="another")
        with pytest.raises(OSError, match="its disk is full"):
            PrivacyLedger.create(path.with_name("new.ledger"), **CAP)
    assert path.read_bytes() == content
    assert not path.with_name("new.ledger").exists()
    # The twin: with room the same charge is booked.
    ledger.reserve(large, what="another")
    assert rows(path) == ["a fit", "another"]


@pytest.mark.slow
@pytest.mark.skipif(os.name == "nt", reason="no limits of processes")
def test_a_write_that_fails_half_way_leaves_the_ledger_as_it_was(path, ledger):
    """A limit of the size of files stops SQLite while it writes; a rollback fails as well."""
    ledger.reserve(gaussian_plan(0.1), what="a fit")
    code = """
import os, resource, sys
sys.path.insert(0, sys.argv[2])
from ledger_cases import gaussian_plan
from sklearn_dpgen.ledger import PrivacyLedger
ledger = PrivacyLedger(sys.argv[1])
plan = gaussian_plan(0.1, precision={"x": "x" * 100_000})
size = os.path.getsize(sys.argv[1])
resource.setrlimit(resource.RLIMIT_FSIZE, (size + 8192, size + 8192))
try:
    ledger.reserve(plan, what="another")
except OSError as error:
    print(error)
"""
    done = subprocess.run(
        [sys.executable, "-c", code, str(path), os.path.dirname(__file__)],
        capture_output=True,
        text=True,
        check=True,
    )
    assert "Nothing was charged" in done.stdout
    assert rows(path) == ["a fit"]
    ledger.reserve(gaussian_plan(0.1), what="another")
    assert rows(path) == ["a fit", "another"]


def test_files_that_are_no_ledger(path, ledger):
    other = path.with_name("other.db")
    other.write_bytes(b"no database at all, and long enough to have a header" * 20)
    with pytest.raises(ValueError, match="not a ledger, or damaged"):
        PrivacyLedger(other)
    with sqlite3.connect(path.with_name("some.db")) as db:
        db.execute("CREATE TABLE mine (a)")
    db.close()
    with pytest.raises(ValueError, match="a database, but not a ledger"):
        PrivacyLedger(path.with_name("some.db"))
    damaged = path.with_name("damaged.ledger")
    shutil.copy(path, damaged)
    content = damaged.read_bytes()
    damaged.write_bytes(content[:4096] + bytes(len(content) - 4096))
    with pytest.raises(ValueError, match="damaged"):
        PrivacyLedger(damaged).reserve(gaussian_plan(0.1), what="a fit")


class Watched(sqlite3.Connection):
    """A connection that says when it is opened and closed."""

    opened = 0

    def __init__(self, *args, **kwargs):
        super().__init__(*args, **kwargs)
        Watched.opened += 1

    def close(self):
        Watched.opened -= 1
        super().close()


def test_files_are_closed_and_charges_are_on_disk(path, monkeypatch):
    monkeypatch.setattr(Watched, "opened", 0)
    connect = sqlite3.connect
    monkeypatch.setattr(sqlite3, "connect", lambda *a, **k: connect(*a, **k, factory=Watched))
    ledger = PrivacyLedger.create(path, **CAP)
    ledger.reserve(gaussian_plan(0.1), what="a fit")
    path.with_name("other.db").write_bytes(b"no database at all, and long enough for one" * 20)
    with pytest.raises(ValueError, match="not a ledger, or damaged"):
        PrivacyLedger(path.with_name("other.db"))
    assert Watched.opened == 0
    with ledger._file.writing() as db:
        assert db.execute("PRAGMA synchronous").fetchone() == (3,)
        assert Watched.opened == 1


def test_a_newer_file_is_left_alone(path, ledger):
    with sqlite3.connect(path) as db:
        db.execute("PRAGMA user_version = 2")
    db.close()
    with pytest.raises(ValueError, match="newer version, 2"):
        PrivacyLedger(path)
    with pytest.raises(ValueError, match="Upgrade"):
        ledger.reserve(gaussian_plan(0.1), what="a fit")


def test_a_file_that_is_gone_is_not_made_again(path, ledger):
    path.unlink()
    with pytest.raises(FileNotFoundError, match="no ledger at"):
        ledger.reserve(gaussian_plan(0.1), what="a fit")
    assert not path.exists()


@pytest.mark.skipif(os.name == "nt" or os.geteuid() == 0, reason="root writes what is read-only")
def test_a_read_only_file_is_read_and_nothing_is_booked(path, ledger):
    ledger.reserve(gaussian_plan(0.1), what="a fit")
    path.chmod(stat.S_IRUSR)
    assert ledger.spent() > 0
    with pytest.raises(PermissionError, match="read-only"):
        ledger.reserve(gaussian_plan(0.1), what="a fit")


def test_a_read_only_connection_is_a_permission_error(path, ledger, monkeypatch):
    connect = sqlite3.connect
    monkeypatch.setattr(
        sqlite3, "connect", lambda at, **words: connect(at.replace("=rw", "=ro"), **words)
    )
    with pytest.raises(PermissionError, match="read-only, and cannot be charged"):
        ledger.reserve(gaussian_plan(0.1), what="a fit")


def test_a_locked_file_is_waited_for_and_then_an_error(path, ledger, monkeypatch):
    monkeypatch.setattr("sklearn_dpgen.ledger._ledger_file._PATIENCE_S", 0.05)
    other = sqlite3.connect(path, isolation_level=None)
    other.execute("BEGIN EXCLUSIVE")
    with pytest.raises(TimeoutError, match="locked by another process"):
        ledger.reserve(gaussian_plan(0.1), what="a fit")
    other.execute("ROLLBACK")
    other.close()
    ledger.reserve(gaussian_plan(0.1), what="a fit")


def test_charges_for_other_neighbours_or_units_are_refused(path, ledger):
    with pytest.raises(ValueError, match="'replace_one' of the ledger, got 'add_or_remove'"):
        ledger.reserve(gaussian_plan(0.1, neighbours="add_or_remove"), what="a fit")
    with pytest.raises(ValueError, match="must have a guarantee to charge a ledger"):
        ledger.reserve(
            PrivacyReport(name="a fit", events=(), epsilon=np.inf, delta=0.0), what="a fit"
        )
    # What protects a person protects a row.
    ledger.reserve(gaussian_plan(0.1, unit="person"), what="a fit")
    persons = PrivacyLedger.create(path.with_name("persons.ledger"), unit="person", **CAP)
    persons.reserve(gaussian_plan(0.1, unit="person"), what="a fit")
    for unit, words in ((None, "got a row"), ("house", "got unit 'house'")):
        with pytest.raises(ValueError, match=words):
            persons.reserve(gaussian_plan(0.1, unit=unit), what="a fit")
    assert len(rows(persons.path)) == 1


def test_what_fails_openly_more_than_the_ledger_keeps_is_refused(ledger, path):
    with pytest.raises(BudgetExceededError, match="choose a smaller delta"):
        ledger.reserve(plan_of((ApproximateProfile(0.1, DELTA), 1)), what="a fit")
    ledger.reserve(plan_of((ApproximateProfile(0.1, DELTA / 100), 1)), what="a fit")
    ledger.reserve(plan_of((LaplaceProfile(0.1), 1)), what="noise")
    booked = [delta for _, delta in rows(path, "amount, delta")]
    assert booked[0] == DELTA / 100
    assert 0 <= booked[1] < DELTA / 1000
    assert ledger.spent(DELTA / 1000) == np.inf
    assert ledger.spent(1e-3) < ledger.spent() < 1


def test_the_report_shows_who_when_and_what(ledger):
    ledger.reserve(gaussian_plan(0.1), what="TableSampler")
    ledger.reserve(gaussian_plan(0.2, protected="record_and_label"), what="<b>bold</b>")
    report = ledger.report()
    frame = report.to_frame()
    assert frame["what"].tolist() == ["TableSampler", "<b>bold</b>"]
    assert frame["epsilon"].tolist() == [0.1, 0.2]
    assert frame["time"].dt.tz is not None
    assert frame["share"].sum() < 1
    assert list(frame.index) == [1, 2]
    text = str(report)
    words = ("'patients'", "plain sum", "epsilon 0.3", "largest fit", "one record and its label")
    for part in words:
        assert part in text
    page = report._repr_html_()
    assert "TableSampler" in page
    assert "<b>bold</b>" not in page
    assert report.charges[0].report == gaussian_plan(0.1)


def test_the_report_of_a_new_ledger_is_empty(ledger):
    report = ledger.report()
    assert len(report.to_frame()) == 0
    assert (report.spent, report.composed, report.summed) == (0.0, 0.0, (0.0, 0.0))
    assert "charges" in str(report)
    assert "charges" in report._repr_html_()
    assert ledger.spent(1e-3) == 0.0
    assert "patients" in repr(ledger)


def test_another_ledger_in_the_place_of_the_file_is_refused(path):
    """Its charges would be measured by the cap of the one that was opened."""
    rich = PrivacyLedger.create(path, **CAP | {"epsilon": 50.0})
    poor = PrivacyLedger.create(path.with_name("poor.ledger"), **CAP | {"epsilon": 0.1})
    rich.reserve(gaussian_plan(1.0), what="before")
    shutil.copy(poor.path, path)
    for book in (rich, pickle.loads(pickle.dumps(rich))):
        with pytest.raises(ValueError, match="no longer the ledger of 'patients'"):
            book.reserve(gaussian_plan(10.0), what="after")
        with pytest.raises(ValueError, match="no longer the ledger"):
            book.spent()
    assert rows(path) == []
    with pytest.raises(BudgetExceededError):
        PrivacyLedger(path).reserve(gaussian_plan(10.0), what="after")


def test_a_ledger_of_equal_settings_in_the_place_of_the_file_is_refused(path, monkeypatch):
    """Made in the same second, too: what was spent would be forgotten with the file."""
    monkeypatch.setattr(_ledger, "_now", lambda: "2026-01-01T00:00:00+00:00")

    def is_refused():
        path.unlink(missing_ok=True)
        fresh = path.with_name("fresh.ledger")
        fresh.unlink(missing_ok=True)
        spent = PrivacyLedger.create(path, **CAP)
        spent.reserve(gaussian_plan(1.0), what="before")
        shutil.copy(PrivacyLedger.create(fresh, **CAP).path, path)
        try:
            spent.reserve(gaussian_plan(1.0), what="after")
        except ValueError as error:
            return "no longer the ledger" in str(error)
        return False

    assert is_refused()
    # The negative twin: all ledgers have one name.
    monkeypatch.setattr(_ledger.secrets, "token_hex", lambda n: "0" * 2 * n)
    assert not is_refused()


@pytest.mark.parametrize(
    "release",
    [ApproximateProfile(1.0, DELTA), gaussian_plan(1.0).releases[0][0]],
    ids=["approximate", "gaussian"],
)
def test_spent_by_a_fit_that_has_all_is_its_own_profile_at_every_delta(ledger, release):
    """It does not fit the filter, whose amount says less than what it tells."""
    ledger.reserve(plan_of((release, 1)), what="all")
    assert ledger.remaining() == 0
    for delta in (0.2 * DELTA, 0.5 * DELTA, DELTA, 1e-3):
        assert ledger.spent(delta) == pytest.approx(release.epsilon(delta), rel=1e-9)


class Told(PrivateEstimator):
    """Releases what its report says."""

    def __init__(self, report, *, ledger=None):
        self.report = report
        self.ledger = ledger

    def plan(self, n_samples, n_features=None):
        return self.report

    def fit(self, X=None, y=None):
        self._charge(self.report)
        return self


def test_a_fit_whose_epsilon_is_0_is_booked_where_delta_pays_for_it(ledger, path):
    small = GaussianProfile(2e-6)
    report = plan_of((small, 1), epsilon=small.epsilon(DELTA))
    assert report.epsilon == 0 < small.delta(0.0)
    Told(report, ledger=ledger).fit()
    assert rows(path) == ["Told"]
    # Public records alone cost nothing, and are not booked.
    Told(PrivacyReport(name="public", events=(), epsilon=0.0, delta=0.0), ledger=ledger).fit()
    assert rows(path) == ["Told"]


def write(path, content=b"age,sex\n31,f\n"):
    path.write_bytes(content)
    return path, hashlib.sha256(content).hexdigest()


def test_a_released_file_is_recorded_with_its_charge(ledger, path, tmp_path):
    for _ in range(2):
        ledger.reserve(gaussian_plan(0.1), what="fit")
    assert ledger.recorded_releases() == {}
    before, charged = ledger.spent(), rows(path, "*")
    (one, sha256), (other, second) = write(tmp_path / "1.csv"), write(tmp_path / "2.csv", b"b\n")
    assert ledger.record_release(one, charge=2) == sha256
    # In any order, and again.
    ledger.record_release(str(other), charge=1)
    ledger.record_release(one, charge=2)
    copied = pickle.loads(pickle.dumps(ledger))
    for each in (ledger, PrivacyLedger(path), copied):
        assert each.recorded_releases() == {second: 1, sha256: 2}
    # It costs nothing, and changes no charge.
    assert (ledger.spent(), rows(path, "*")) == (before, charged)
    assert _ledger.ledger_faults(ledger) == (2, [])
    ledger.reserve(gaussian_plan(0.1), what="fit")
    text = str(ledger.report())
    assert f"released file of charge 2{'SHA-256':>24} {sha256}" in text
    assert second in text


@pytest.mark.parametrize(
    ("charge", "kind", "words"),
    [(0, ValueError, "charge"), (2, ValueError, "at most 1, got 2"), ("1", TypeError, "charge")],
)
def test_a_release_of_no_charge_is_not_recorded(ledger, tmp_path, charge, kind, words):
    ledger.reserve(gaussian_plan(0.1), what="fit")
    file, _ = write(tmp_path / "1.csv")
    with pytest.raises(kind, match=words):
        ledger.record_release(file, charge=charge)
    assert ledger.recorded_releases() == {}


def test_a_file_is_the_release_of_one_charge(ledger, tmp_path):
    for _ in range(2):
        ledger.reserve(gaussian_plan(0.1), what="fit")
    file, sha256 = write(tmp_path / "1.csv")
    ledger.record_release(file, charge=1)
    with pytest.raises(ValueError, match="charge must be 1, for which the file is recorded, got 2"):
        ledger.record_release(file, charge=2)
    assert ledger.recorded_releases() == {sha256: 1}
    with pytest.raises(FileNotFoundError, match="path must be a released file"):
        ledger.record_release(tmp_path / "none.csv", charge=1)


def test_a_record_that_fails_half_way_leaves_the_ledger_as_it_was(ledger, path, tmp_path):
    ledger.reserve(gaussian_plan(0.1), what="fit")
    file, sha256 = write(tmp_path / "1.csv")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(_ledger, "_now", lambda: None)
        with pytest.raises(ValueError, match="not a ledger, or damaged"):
            ledger.record_release(file, charge=1)
    assert ledger.recorded_releases() == {}
    ledger.record_release(file, charge=1)
    assert ledger.recorded_releases() == {sha256: 1}


def test_a_record_beyond_the_charges_is_a_fault(ledger, path, tmp_path):
    ledger.reserve(gaussian_plan(0.1), what="fit")
    ledger.record_release(write(tmp_path / "1.csv")[0], charge=1)
    changed(path, "UPDATE releases SET charge = 2")
    n_charges, faults = _ledger.ledger_faults(ledger)
    assert n_charges == 1
    assert faults == ["A release of charge 2 is recorded, which was never made."]


def test_a_fit_says_which_public_tables_its_ledger_has_paid_for(ledger, path, tmp_path):
    (file, sha256), (_, other) = write(tmp_path / "1.csv"), write(tmp_path / "2.csv", b"b\n")
    report = gaussian_plan(0.1, public_tables={"public": sha256, "start": other})
    first = Told(report, ledger=ledger).fit()
    # The release is recorded afterwards: until then it is a table as any other.
    assert "public_tables" not in first.privacy_.ledger
    ledger.record_release(file, charge=1)
    second = Told(report, ledger=path).fit()
    assert second.privacy_.ledger["public_tables"] == {"public": 1}
    assert second.privacy_ == report
    text = " ".join(second.privacy_.to_text().split())
    assert f"public (SHA-256 {sha256}): release of charge 1 of the ledger" in text
    assert f"start (SHA-256 {other}): claimed to be public" in text
    # Negative twins: the ledger of other records, and none.
    beside = PrivacyLedger.create(tmp_path / "b.ledger", **CAP)
    for unpaid in (Told(report, ledger=beside).fit(), Told(report).fit()):
        assert "public_tables" not in unpaid.privacy_.ledger
        assert f"public (SHA-256 {sha256}): claimed to be public" in " ".join(
            unpaid.privacy_.to_text().split()
        )
