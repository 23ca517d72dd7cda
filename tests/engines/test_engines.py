"""What holds on each engine: every part once, whatever dies, and errors that show no value."""

import traceback
from functools import partial

import numpy as np
import pytest
from engine_cases import (
    LAST,
    NUMBERS,
    add,
    decode,
    fail_to_merge,
    make_frame,
    names_of_columns,
    pick_first,
    raise_of_a_value,
    read_seen,
    report_a_value,
    rows_of_persons,
    sum_of_persons,
    total,
    total_and_die,
    union,
)

from sklearn_dpgen.engines._tables import engine_columns, is_engine_table, map_reduce
from sklearn_dpgen.exceptions import PublicTypeError, PublicValueError

FRAME = make_frame()


@pytest.mark.slow
@pytest.mark.parametrize("n_parts", [1, 11])
def test_sums_are_those_of_the_frame(make_table, n_parts):
    X = make_table(FRAME, n_parts)
    assert is_engine_table(X)
    assert engine_columns(X) == list(FRAME.columns)
    np.testing.assert_array_equal(map_reduce(total, add, X, NUMBERS), total([FRAME]))


@pytest.mark.slow
def test_columns_are_those_asked_for_in_their_order(make_table):
    X = make_table(FRAME, 2)
    assert map_reduce(names_of_columns, union, X, NUMBERS) == {tuple(NUMBERS)}
    assert map_reduce(names_of_columns, union, X) == {tuple(FRAME.columns)}
    with pytest.raises(ValueError, match="each of these columns once: .'nobody'"):
        map_reduce(total, add, X, [*NUMBERS, "nobody"])


@pytest.mark.slow
def test_partitions_may_be_empty(make_table):
    X = make_table(FRAME[:4], 7)
    np.testing.assert_array_equal(map_reduce(total, add, X), total([FRAME[:4]]))


@pytest.mark.slow
def test_a_table_may_be_empty(make_table):
    X = make_table(FRAME[:0], 2)
    np.testing.assert_array_equal(map_reduce(total, add, X), np.zeros(3))
    assert map_reduce(names_of_columns, union, X) == set()


@pytest.mark.slow
def test_counts_by_person(make_table):
    counts = map_reduce(rows_of_persons, sum_of_persons, make_table(FRAME, 4), ["person"])
    assert counts.dtype == np.int64
    assert counts.to_dict() == FRAME.groupby("person").size().to_dict()


def test_a_function_need_not_read_all(make_table):
    assert 0 < map_reduce(pick_first, add, make_table(FRAME, 3)) <= len(FRAME)


def shown(error):
    return "".join(traceback.format_exception(error))


@pytest.mark.parametrize("kind", [PublicValueError, PublicTypeError])
def test_errors_of_workers_show_their_message_alone(make_table, kind):
    with pytest.raises(kind, match="^Column 'person' holds what is no number.$") as caught:
        map_reduce(partial(raise_of_a_value, kind), add, make_table(FRAME, 3))
    assert type(caught.value) is kind
    assert caught.value.__context__ is caught.value.__cause__ is None
    assert "secret" not in shown(caught.value)


@pytest.mark.slow
def test_an_error_that_the_engine_reports_shows_values(make_table):
    """The test above would catch one that is left to the engine."""
    with pytest.raises(Exception) as caught:  # noqa: B017, PT011
        map_reduce(report_a_value, add, make_table(FRAME, 2))
    assert "secret of p" in shown(caught.value)


def test_errors_of_other_packages_are_not_quoted(make_table):
    message = "^A part of X cannot be read: UnicodeDecodeError.$"
    with pytest.raises(ValueError, match=message) as caught:
        map_reduce(decode, add, make_table(FRAME, 2))
    assert "secret" not in shown(caught.value)


def test_errors_of_merges(make_table):
    with pytest.raises(ValueError, match="^The columns of two parts differ.$"):
        map_reduce(total, fail_to_merge, make_table(FRAME, 3))


@pytest.mark.slow
@pytest.mark.parametrize("engine", ["distributed", "spark", "ray"], indirect=True)
def test_a_worker_that_dies_is_counted_once(make_table, tmp_path):
    # With the last part, so that it may take results of others with it.
    frame = FRAME.assign(count=[*FRAME["count"][:-1], LAST])
    X = make_table(frame, 5)
    result = map_reduce(partial(total_and_die, str(tmp_path)), add, X, NUMBERS)
    assert (tmp_path / "died").exists()
    np.testing.assert_array_equal(result, total([frame]))
    # What workers leave elsewhere, as in an accumulator, counts records twice.
    assert (read_seen(tmp_path) > total([frame])).all()
