"""What the benchmarks share: timing, a printed table, and a JSON record of it."""

import itertools
import json
import os
import platform
import statistics
import time
from importlib.metadata import version
from pathlib import Path

import torch

__all__ = ["RESULTS", "record", "timed"]

RESULTS = Path(__file__).parent / "results"

PACKAGES = ("geomloss", "numpy", "POT", "scikit-learn", "scipy", "torch")


def timed(fn, repeat=5):
    """Return the median wall time of ``fn()`` in seconds, after one call to warm up."""
    fn()
    times = []
    for _ in range(repeat):
        start = time.perf_counter()
        fn()
        times.append(time.perf_counter() - start)
    return statistics.median(times)


def record(name, rows, meta=None):
    """Print ``rows`` (dicts) and write them to ``results/<name>.json``.

    Neighbouring rows with the same keys make one table. ``meta`` is what was measured and how;
    versions and the machine are added.
    """
    for columns, group in itertools.groupby(rows, key=tuple):
        _print_table(columns, list(group))
    content = {
        "name": name,
        "meta": meta or {},
        "machine": {
            "processor": _processor(),
            "cpu_count": os.cpu_count(),
            "torch_threads": torch.get_num_threads(),
            "system": platform.system(),
        },
        "versions": {"python": platform.python_version()} | {p: version(p) for p in PACKAGES},
        "rows": rows,
    }
    path = RESULTS / f"{name}.json"
    RESULTS.mkdir(exist_ok=True)
    path.write_text(json.dumps(content, indent=1) + "\n")


def _print_table(columns, rows):
    cells = [[_format(row[key]) for key in columns] for row in rows]
    widths = [max(map(len, column)) for column in zip(columns, *cells, strict=True)]
    for line in (columns, ["-" * width for width in widths], *cells, ()):
        print("  ".join(cell.ljust(width) for cell, width in zip(line, widths, strict=False)))


def _format(value):
    return f"{value:.4g}" if isinstance(value, float) else str(value)


def _processor():
    info = Path("/proc/cpuinfo")
    if info.exists():
        for line in info.read_text().splitlines():
            if line.startswith("model name"):
                return line.partition(":")[2].strip()
    return platform.processor() or platform.machine()
