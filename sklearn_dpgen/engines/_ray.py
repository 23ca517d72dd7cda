"""Datasets of Ray: `map_batches` gives one row per block, and then one row for eight rows."""

from functools import partial

from sklearn_dpgen.engines._parts import check_columns, count_part, finish, merge_parts, require
from sklearn_dpgen.exceptions import PublicTypeError, PublicValueError

__all__ = ["columns_of", "map_parts"]

_FAN_IN = 8


def columns_of(X):
    """Return the names of the columns, or None if Ray would have to read the table for them."""
    if not hasattr(X, "map_batches"):
        raise PublicTypeError(
            f"X must be a ray.data.Dataset if it is of Ray, got {type(X).__name__}."
        )
    return X.columns(fetch_if_missing=False)


def map_parts(function, merge, X, columns):
    """Return the merged results of a function on all blocks."""
    require("pyarrow", "ray")
    names = columns_of(X)
    if X.context.max_errored_blocks:
        raise PublicValueError("max_errored_blocks of Ray must be 0, so that no record is omitted.")
    if columns is not None:
        if names is not None:
            check_columns(names, columns)
        X = X.select_columns(columns)
    batches = partial(type(X).map_batches, batch_format="pyarrow")
    counted = batches(X, _block_counter(function), batch_size=None)
    # A different task kind, as Ray would otherwise merge within each task that counts.
    merged = batches(counted, partial(_merge, merge), batch_size=_FAN_IN, num_cpus=0.5)
    return finish(function, merge, (row["packed"] for row in merged.iter_rows()))


def _block_counter(function):
    """Return a function of a block that numbers the blocks of its task, from 0 in each attempt."""
    task, n = None, 0

    def count(block):
        import ray

        nonlocal task, n
        running = ray.get_runtime_context().get_task_id()
        task, n = running, n + 1 if running == task else 0
        return _row(count_part(function, (task, n), [block]))

    return count


def _merge(merge, batch):
    return _row(merge_parts(merge, (item.as_py() for item in batch["packed"])))


def _row(packed):
    pyarrow = require("pyarrow", "ray")
    return pyarrow.table({"packed": pyarrow.array([packed], pyarrow.binary())})
