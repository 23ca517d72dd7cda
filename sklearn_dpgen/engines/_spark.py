"""Frames of Spark: `mapInArrow` gives one row per partition, and a shuffle merges these rows."""

from functools import partial
from itertools import chain

from sklearn_dpgen.engines._parts import check_columns, count_part, finish, merge_parts, require
from sklearn_dpgen.exceptions import PublicTypeError

__all__ = ["columns_of", "map_parts"]

# Rows per batch.
_ROWS = 1 << 16


def columns_of(X):
    """Return the names of the columns."""
    if not hasattr(X, "mapInArrow"):
        kind = f"{type(X).__module__}.{type(X).__name__}"
        raise PublicTypeError(f"X must be a pyspark.sql.DataFrame if it is of Spark, got {kind}.")
    return list(X.columns)


def map_parts(function, merge, X, columns):
    """Return the merged results of a function on all partitions."""
    require("pyarrow", "spark")
    names = columns_of(X)
    if columns is not None:
        check_columns(names, columns)
    # mapInArrow does not find names with a dot, so columns are renamed until they are read.
    X = X.toDF(*(f"c{i}" for i in range(len(names))))
    if columns is not None:
        X = X.select(*(f"c{names.index(name)}" for name in columns))
    count = partial(_count, function, columns or names)
    counted = X.mapInArrow(count, "part int, packed binary")
    # Partitioned by number, which is the same if a worker counts a partition again. Spark chooses
    # the number of merging tasks from the size of the results.
    merged = counted.repartition("part").mapInArrow(partial(_merge, merge), "packed binary")
    return finish(function, merge, (bytes(row.packed) for row in merged.collect()))


def _count(function, names, batches):
    pyarrow = require("pyarrow", "spark")
    from pyspark import TaskContext

    part = TaskContext.get().partitionId()  # type: ignore[union-attr]  # None outside of a task
    pieces = (batch.rename_columns(names) for batch in _gathered(batches))
    row = {"part": [part], "packed": [count_part(function, part, pieces)]}
    yield pyarrow.RecordBatch.from_pydict(
        row, pyarrow.schema({"part": "int32", "packed": "binary"})
    )


def _gathered(batches):
    """Yield larger batches, as each of Spark's 10 000 records has an overhead."""
    import pyarrow

    held = []
    for batch in batches:
        held.append(batch)
        if sum(map(len, held)) >= _ROWS:
            yield from pyarrow.Table.from_batches(held).combine_chunks().to_batches()
            held = []
    if held:
        yield from pyarrow.Table.from_batches(held).combine_chunks().to_batches()


def _merge(merge, batches):
    import pyarrow

    packed = (item.as_py() for batch in batches for item in batch.column("packed"))
    for first in packed:
        row = {"packed": [merge_parts(merge, chain([first], packed))]}
        yield pyarrow.RecordBatch.from_pydict(row)
