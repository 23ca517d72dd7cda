"""Names of Spark, and the numbers of its partitions."""

import sys

import numpy as np
import pytest
from engine_cases import NUMBERS, add, make_frame, names_of_columns, total, union

from sklearn_dpgen.engines._tables import engine_columns, map_reduce

FRAME = make_frame()


@pytest.fixture
def table(spark):
    rows = FRAME.astype(object).values.tolist()
    return spark.createDataFrame(rows, "`a.b` long, count long, person string").repartition(3)


@pytest.mark.slow
def test_names_may_hold_anything(spark):
    names = ["a.b", "a", "A`b", "", "count", "c1", "c0"]
    X = spark.createDataFrame([tuple(range(7))], [f"x{i}" for i in range(7)]).toDF(*names)
    assert engine_columns(X) == names
    assert map_reduce(names_of_columns, union, X) == {tuple(names)}
    assert map_reduce(names_of_columns, union, X, names[::-2]) == {tuple(names[::-2])}


@pytest.mark.slow
def test_a_partition_that_comes_twice_is_refused(table, monkeypatch):
    """As it would be if both of two attempts at a task were taken."""
    np.testing.assert_array_equal(map_reduce(total, add, table, NUMBERS), total([FRAME]))
    repartition = type(table).repartition

    def twice(self, key):
        rows = self.selectExpr("explode(sequence(1, if(part = 1, 2, 1)))", "part", "packed")
        return repartition(rows.select("part", "packed"), key)

    monkeypatch.setattr(type(table), "repartition", twice)
    with pytest.raises(RuntimeError, match="each part of X exactly once, and did not"):
        map_reduce(total, add, table, NUMBERS)
    # Without the check, one partition would have been counted twice.
    monkeypatch.setattr("sklearn_dpgen.engines._parts._check_once", lambda parts, n_parts: None)
    assert (map_reduce(total, add, table, NUMBERS) > total([FRAME])).all()


def test_without_pyarrow_the_extra_is_named(table, monkeypatch):
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    with pytest.raises(ImportError, match=r"needs pyarrow.*sklearn-dpgen\[spark\]"):
        map_reduce(total, add, table, NUMBERS)
