"""Arrays of dask, and what its graph holds."""

import numpy as np
import pandas as pd
import pytest
from engine_cases import add, make_frame, total

from sklearn_dpgen.engines._tables import engine_columns, map_reduce

X = np.arange(60.0).reshape(20, 3)


def total_of_rows(pieces):
    pieces = list(pieces)
    assert all(piece.shape[1] == 3 for piece in pieces)
    return sum((piece.sum(axis=0) for piece in pieces), np.zeros(3))


@pytest.mark.parametrize("chunks", [(20, 3), (7, 2), (1, 1)])
def test_arrays_are_cut_by_rows_alone(chunks):
    da = pytest.importorskip("dask.array")
    A = da.from_array(X, chunks=chunks)
    assert engine_columns(A) is None
    np.testing.assert_array_equal(map_reduce(total_of_rows, add, A), X.sum(axis=0))
    some = A[A[:, 0] > 30]
    np.testing.assert_array_equal(map_reduce(total_of_rows, add, some), X[X[:, 0] > 30].sum(axis=0))
    np.testing.assert_array_equal(map_reduce(total_of_rows, add, A[:0]), np.zeros(3))


def test_arrays_have_two_dimensions_and_no_names():
    da = pytest.importorskip("dask.array")
    with pytest.raises(ValueError, match="two dimensions"):
        map_reduce(total_of_rows, add, da.zeros(5))
    with pytest.raises(ValueError, match="columns must be None"):
        map_reduce(total_of_rows, add, da.from_array(X), ["a"])


def test_other_collections_are_refused():
    dd = pytest.importorskip("dask.dataframe")
    bag = pytest.importorskip("dask.bag")
    with pytest.raises(TypeError, match="got Series"):
        engine_columns(dd.from_pandas(pd.Series([1, 2]), npartitions=1))
    with pytest.raises(TypeError, match="got Bag"):
        map_reduce(total, add, bag.from_sequence([1]))


class Heavy:
    """A function that counts how often it is copied."""

    copies = 0

    def __call__(self, pieces):
        return total(pieces)

    def __deepcopy__(self, memo):
        Heavy.copies += 1
        return self

    def __dask_tokenize__(self):
        raise AssertionError("hashed, once a task")


def test_each_partition_is_computed_once_and_merged_by_a_tree(monkeypatch):
    dask = pytest.importorskip("dask")
    dd = pytest.importorskip("dask.dataframe")
    frame, seen, widths = make_frame(100), [], []

    def look(part):
        if len(part) < len(frame) and (part["person"] != "foo").all():
            seen.append(len(part))
        return part

    table = dd.from_pandas(frame, npartitions=70).map_partitions(look, meta=frame[:0])
    compute = dask.compute

    def watched(*packed):
        graph = dict(packed[0].__dask_graph__())
        merges = [key for key in graph if "merge_parts" in str(key)]
        widths.append((len(packed), len(merges)))
        return compute(*packed)

    monkeypatch.setattr(dask, "compute", watched)
    np.testing.assert_array_equal(map_reduce(Heavy(), add, table), total([frame]))
    assert sum(seen) == 100
    # Of eights: 70 partitions, 9, 2, 1, or 60 partitions, 8, 1.
    assert widths == [(1, {70: 9 + 2 + 1, 60: 8 + 1}[table.npartitions])]
    assert Heavy.copies == 0
