"""What the scripts of the peers share: a task is read from a folder, and what came of it put there.

The folder has ``records.csv``, codes in columns, and ``task.json``: the ``model``, ``epsilon``,
``delta``, a ``seed``, and the public ``sizes``, for each column the number of its codes and whether
the last one is a null. Tables without persons have a ``target``, and ``rho`` or ``sigma``, from
``budget`` of ``_peers.py``. Where there is a public table, ``public.csv`` has its codes, and
``made`` is the number of records to make; it is that of the records elsewhere. ``made.csv`` and
``result.json`` are written. Seconds are of fit and sample, of all threads, without imports; the
memory is the largest that the process held.
"""

import json
import re
import sys
import time
from pathlib import Path

import pandas as pd

__all__ = ["main"]


def main(fit):
    """Carry out the task in the folder that is the argument.

    Parameters
    ----------
    fit : callable
        Takes codes, the task and, if there is one, the public table; returns synthetic codes, and
        the algorithm, whose numbers and names are its settings.
    """
    folder = Path(sys.argv[1])
    task = json.loads((folder / "task.json").read_text())
    tables = [pd.read_csv(folder / "records.csv")]
    if (folder / "public.csv").exists():
        tables.append(pd.read_csv(folder / "public.csv"))
    start = time.process_time()
    made, algorithm = fit(tables[0], task, *tables[1:])
    seconds = time.process_time() - start
    made.to_csv(folder / "made.csv", index=False)
    settings = {k: v for k, v in vars(algorithm).items() if isinstance(v, int | float | str)}
    result = {"settings": settings, "cpu seconds": seconds, "peak MiB": peak()}
    (folder / "result.json").write_text(json.dumps(result))


def peak():
    """Return the most MiB of memory that the process held, on Linux."""
    # Not ru_maxrss, which a process inherits from the one that starts it.
    status = Path("/proc/self/status").read_text()
    return int(re.search(r"VmHWM:\s+(\d+) kB", status)[1]) / 1024
