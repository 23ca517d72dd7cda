"""Tables that end before their time, change or can be read once: what is paid for, and kept."""

import pandas as pd
import pytest
from record_tables import (
    FRAME,
    ONCE,
    PERSONS,
    Stream,
    arrow,
    chunks_of,
    frame_of,
    small_blocks,
)
from sampler_tables import hasten, make

from sklearn_dpgen.ledger import PrivacyLedger
from sklearn_dpgen.tables._records import StreamedRecords
from sklearn_dpgen.tables._table_counter import TableCounter

hasten = pytest.fixture(autouse=True)(hasten)
pytestmark = pytest.mark.filterwarnings("ignore::sklearn_dpgen.exceptions.NoisyCountsWarning")
small_blocks = pytest.fixture(autouse=True)(small_blocks)


class Once:
    """What does not tell that it can be read once."""

    def __init__(self, frame):
        self.left = chunks_of(frame)

    def __iter__(self):
        while self.left:
            yield self.left.pop(0)


def ledger_of(folder, unit=None):
    path = folder / "ledger.db"
    cap = {"dataset": "table", "epsilon": 1e3, "delta": 0.1, "unit": unit}
    return PrivacyLedger(path) if path.exists() else PrivacyLedger.create(path, **cap)


def n_charges(ledger):
    return len(ledger.report().charges)


def refused(folder, X, match, unit=None, error=ValueError, **options):
    """Return whether a fit that fails was paid for, after a look at what is kept of it."""
    ledger = ledger_of(folder, unit)
    sampler = make(unit=unit, store="none", ledger=ledger, marginals="pairs", **options)
    sampler.fit(frame_of(unit))
    before = n_charges(ledger)
    with pytest.raises(error, match=match) as caught:
        sampler.set_params(epsilon=5.0).fit(X)
    assert "secret" not in str(caught.value)
    for name in ("marginals_", "law_"):
        assert not hasattr(sampler, name)
    n_booked = n_charges(ledger) - before
    assert n_booked in (0, 1)
    # Before anything is released it is stated, and nothing else is.
    assert hasattr(sampler, "privacy_") == bool(n_booked)
    assert not n_booked or sampler.privacy_.epsilon == 5.0
    return bool(n_booked)


@pytest.mark.parametrize("unit", [None, "who"])
@pytest.mark.parametrize("name", ONCE)
def test_what_can_be_read_once_is_refused_before_it_is_read(tmp_path, name, unit):
    X = ONCE[name](frame_of(unit), tmp_path)
    assert not refused(tmp_path, X, "X must be readable several times with store='none'", unit)
    # Nothing of it was read.
    kept = make(unit=unit, store="codes", marginals="pairs").fit(X)
    other = make(unit=unit, marginals="pairs").fit(frame_of(unit))
    assert [part.counts.tolist() for part in kept.marginals_] == [
        part.counts.tolist() for part in other.marginals_
    ]


@pytest.mark.parametrize("unit", [None, "who"])
def test_what_turns_out_to_be_read_once_is_refused_before_a_release(tmp_path, unit):
    assert not refused(
        tmp_path, Once(frame_of(unit)), "X must be readable several times with store='none'", unit
    )


# A fit reads it once to count single columns, once to see that it can, then for tables; before
# all, the rows of persons.
FIRST, TABLES = {None: 1, "who": 2}, {None: 3, "who": 4}


def at(n, other, frame):
    """Return a stream that is another at the n-th time."""
    return Stream(lambda i: chunks_of(frame) if i != n else other(frame))


def fewer(frame):
    return [frame[:-1]]


def more(frame):
    return [frame, frame[:1]]


def cut_off(frame):
    return chunks_of(frame)[:-1]


def moved(frame):
    """Of as many rows, one is of another person."""
    who = frame["who"].to_numpy().copy()
    who[3] = who[4]
    return [frame.assign(who=who)]


def someone_new(frame):
    return [frame.assign(who=["secret-new", *frame["who"][1:]])]


CHANGES = [(fewer, None), (more, None), (cut_off, None), (fewer, "who"), (more, "who")]
CHANGES += [(cut_off, "who"), (moved, "who"), (someone_new, "who")]


@pytest.mark.slow
@pytest.mark.parametrize("n_jobs", [1, 2])
@pytest.mark.parametrize(("change", "unit"), CHANGES)
def test_a_table_that_changes_is_refused(tmp_path, change, unit, n_jobs):
    late = at(TABLES[unit], change, frame_of(unit))
    assert refused(tmp_path, late, "X has changed", unit, n_jobs=n_jobs)
    assert late.n_read == TABLES[unit]
    if unit is not None:
        early = at(FIRST[unit], change, PERSONS)
        assert not refused(tmp_path, early, "X has changed", unit, n_jobs=n_jobs)


def test_a_table_that_changes_would_be_seen(monkeypatch, tmp_path):
    def forget(self, counter):
        self.n_records = counter.n_rows

    monkeypatch.setattr(StreamedRecords, "_check", forget)
    ledger = ledger_of(tmp_path)
    with pytest.raises(pytest.fail.Exception):
        refused(tmp_path, at(3, fewer, FRAME), "X has changed")
    assert n_charges(ledger) == 2


def raising(error, n_parts=2):
    def parts(frame):
        yield from chunks_of(frame)[:n_parts]
        raise error

    return parts


ERRORS = [OSError("The line is dead."), KeyboardInterrupt("stop"), MemoryError("full")]
ERRORS += [ValueError("cut")]


@pytest.mark.slow
@pytest.mark.parametrize("n_jobs", [1, 2])
@pytest.mark.parametrize("unit", [None, "who"])
@pytest.mark.parametrize("error", ERRORS, ids=lambda error: type(error).__name__)
def test_a_stream_that_raises(tmp_path, error, unit, n_jobs):
    for n, is_paid in ((1, False), (FIRST[unit], False), (TABLES[unit], True)):
        X, match = at(n, raising(error), frame_of(unit)), str(error)
        options = {"error": type(error), "n_jobs": n_jobs}
        assert refused(tmp_path, X, match, unit, **options) == is_paid


@pytest.mark.parametrize("n_jobs", [1, 2])
@pytest.mark.parametrize("unit", [None, "who"])
def test_a_block_that_is_interrupted(tmp_path, monkeypatch, unit, n_jobs):
    """As by the keyboard, wherever it is counted."""
    count = TableCounter.count_block
    for n, is_paid in ((3, False), (14 + 3, True)):
        left = iter(range(10**6))

        def interrupt(self, block, left=left, n=n):
            if next(left) == n:
                raise KeyboardInterrupt
            return count(self, block)

        X = Stream(lambda i: [frame_of(unit)])
        ledger = ledger_of(tmp_path, unit)
        sampler = make(unit=unit, store="none", ledger=ledger, marginals="pairs", n_jobs=n_jobs)
        before = n_charges(ledger)
        with monkeypatch.context() as patch:
            patch.setattr(TableCounter, "count_block", interrupt)
            with pytest.raises(KeyboardInterrupt):
                sampler.fit(X)
        assert n_charges(ledger) - before == is_paid
        assert hasattr(sampler, "privacy_") == is_paid
        assert not hasattr(sampler, "law_")
        # The next is as if nothing had been.
        assert sampler.fit(X).privacy_.epsilon == 8.0


def test_a_value_that_is_refused_is_so_before_a_release(tmp_path):
    wrong = FRAME.astype({"job": object})
    wrong.loc[400, "job"] = "secret"
    for n_jobs in (1, 2):
        X = Stream(lambda i: [wrong])
        assert not refused(tmp_path, X, "'job' holds a value outside", n_jobs=n_jobs)


@pytest.mark.parametrize("store", ["codes", "none"])
@pytest.mark.parametrize("unit", [None, "who"])
def test_streams_without_records(tmp_path, store, unit):
    empty = frame_of(unit)[:0]
    for X in ([empty], [empty, empty], Stream(lambda i: []), Stream(lambda i: [empty])):
        sampler = make(store=store, unit=unit, ledger=ledger_of(tmp_path, unit))
        with pytest.raises(ValueError, match="0 sample|every row"):
            sampler.fit(X)
        assert not hasattr(sampler, "privacy_")
    assert n_charges(ledger_of(tmp_path)) == 0


@pytest.mark.parametrize("store", ["codes", "none"])
def test_chunks_of_other_columns(tmp_path, store):
    for other, message in (
        (FRAME.drop(columns="job"), r"missing \['job'\]"),
        (FRAME.assign(secret=1), r"unknown \['secret'\]"),
        (pd.concat([FRAME, FRAME[["age"]]], axis=1), r"more than once \['age'\]"),
    ):
        for X in ([FRAME[:9], other], Stream(lambda i, other=other: [FRAME[:9], arrow_of(other)])):
            sampler = make(store=store, ledger=ledger_of(tmp_path))
            with pytest.raises(ValueError, match=message):
                sampler.fit(X)
            assert not hasattr(sampler, "privacy_")
    assert n_charges(ledger_of(tmp_path)) == 0


def arrow_of(frame):
    return frame if frame.columns.duplicated().any() else arrow(frame)
