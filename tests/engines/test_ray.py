"""Blocks of Ray, and the tasks that count them."""

import sys

import numpy as np
import pytest
from engine_cases import NUMBERS, add, make_frame, total

from sklearn_dpgen.engines._tables import engine_columns, map_reduce

FRAME = make_frame()


@pytest.fixture
def table(ray):
    return ray.data.from_pandas([FRAME[i::3].reset_index(drop=True) for i in range(3)])


def count_records(pieces):
    return sum(map(len, pieces))


def test_a_task_may_read_several_blocks(ray, monkeypatch):
    context = ray.data.DataContext.get_current()
    monkeypatch.setattr(context, "target_max_block_size", 1 << 12)
    X = ray.data.range(5000, override_num_blocks=2)
    assert map_reduce(lambda pieces: [count_records(pieces)], lambda a, b: a + b, X) != [5000]
    assert map_reduce(count_records, lambda a, b: a + b, X) == 5000


def test_columns_that_are_known_when_read_alone(table):
    X = table.map_batches(lambda batch: {"count": batch["count"], "a.b": batch["a.b"]})
    assert engine_columns(X) is None
    np.testing.assert_array_equal(map_reduce(total, add, X, NUMBERS), total([FRAME]))


def test_a_block_that_comes_twice_is_refused(ray, table, monkeypatch):
    """As it would be if the rows of two attempts at a task were taken."""
    iter_rows = ray.data.Dataset.iter_rows

    def twice(self):
        for row in iter_rows(self):
            yield row
            yield row

    monkeypatch.setattr(ray.data.Dataset, "iter_rows", twice)
    with pytest.raises(RuntimeError, match="each part of X exactly once, and did not"):
        map_reduce(total, add, table, NUMBERS)
    # Without the check, the records would have been counted twice.
    monkeypatch.setattr("sklearn_dpgen.engines._parts._check_once", lambda parts, n_parts: None)
    np.testing.assert_array_equal(map_reduce(total, add, table, NUMBERS), 2 * total([FRAME]))


def test_tasks_merge_before_the_driver_does(ray, monkeypatch):
    X = ray.data.from_pandas([FRAME[i::16] for i in range(16)])
    iter_rows, rows = ray.data.Dataset.iter_rows, []
    monkeypatch.setattr(ray.data.Dataset, "iter_rows", lambda X: rows.extend(iter_rows(X)) or rows)
    np.testing.assert_array_equal(map_reduce(total, add, X, NUMBERS), total([FRAME]))
    assert len(rows) == 2


def test_blocks_that_may_be_left_out_are_refused(ray, table, monkeypatch):
    monkeypatch.setattr(table.context, "max_errored_blocks", 1)
    with pytest.raises(ValueError, match="max_errored_blocks"):
        map_reduce(total, add, table)


def test_without_pyarrow_the_extra_is_named(table, monkeypatch):
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    with pytest.raises(ImportError, match=r"needs pyarrow.*sklearn-dpgen\[ray\]"):
        map_reduce(total, add, table)
