"""Functions on the parts of tables of dask, Spark and Ray, run on their workers.

`map_reduce` sends a function to the workers and merges what it returns; no record comes back but
in that. Its users count with it: what they return are sums over the records of a part, and what
is released of the whole has noise for a record that is counted once.

Formal guarantees
-----------------
Each part of a table is in the result once, whatever is computed again. Who sees to it, and what
checks it:

dask
    A partition is a task of the graph, and a task has one result: one that is computed again, as
    the worker that held it died, takes the place of the first. Each partition has a number, and
    the numbers in the result must be all of them.
Spark
    A partition gives one row, with the number of the partition. Of attempts that are retried or
    speculative, Spark takes the row of one, for a task has one output. Accumulators, which retries
    add to twice, are not used. The numbers must follow one another, each once.
Ray
    A block gives one row, with the task that counted it and the number of the block in the task.
    A task that is retried keeps its name, and has the outputs of one attempt. The numbers of each
    task must follow one another, each once; a dataset that may leave out blocks is refused.

A check that fails is a RuntimeError, before anything is released. What no check sees is records
that are in two parts, or in others when the table is computed again: **a record must be in one part
of the table, and once, and a table that is computed again must have the same records in the same
parts.** A sample without a seed has not, nor a shuffle by random numbers: store such a table first.
The sensitivity of what is counted rests on this.

What a worker raises as ValueError or TypeError comes to the caller with its message and nothing
else, for a traceback could show records. Other errors the engine reports, and writes to its logs,
as it does with those of any task.
"""

__all__: list[str] = []
