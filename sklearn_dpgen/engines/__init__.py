"""Map-reduce over the partitions of tables of dask, Spark and Ray.

`map_reduce` applies a function on the workers and merges its results; no record leaves a worker
otherwise. The results are sums over the records, and noise is added to the sums of the whole table.
The sensitivity of these sums relies on each record being counted once.

Formal guarantees
-----------------
Each partition of a table is in the result once, even if it is computed again. The engine ensures
this, and the numbers of the partitions are checked:

dask
    A partition is a task of the graph, and a task has one result. A result that is computed again,
    because its worker died, replaces the first. The numbers in the result must be those of all
    partitions.
Spark
    A partition gives one row, with the number of the partition. Of retried or speculative attempts
    Spark takes one output. Accumulators, which retries add to twice, are not used. The numbers must
    be consecutive, each once.
Ray
    A block gives one row, with the name of its task and the number of the block in the task. A
    retried task keeps its name, and has the outputs of one attempt. The numbers of each task must
    be consecutive, each once. Datasets that may omit blocks are refused.

A failed check raises a PublicRuntimeError before anything is released. The checks cannot detect a
record that is in two partitions, or that changes its partition when the table is computed again:
**each record must be in exactly one partition, and a table that is computed again must have the
same records in the same partitions.** This does not hold for a sample without a seed or a random
shuffle: store such a table first.

A PublicValueError or PublicTypeError of a worker is raised again with its message alone, as a
traceback could show records. Other errors are reported by the engine, and written to its logs, as
for any task.
"""

__all__: list[str] = []
