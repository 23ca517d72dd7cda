"""A table of any length, of 15 mixed columns, and what a process spends on counting it."""

import os
import threading
import time
from contextlib import suppress
from itertools import combinations
from pathlib import Path

import numpy as np
import psutil

from sklearn_dpgen.preprocessing import TabularEncoder
from sklearn_dpgen.schema import Categorical, Datetime, Numeric, Schema

__all__ = ["NAMES", "PAIRS", "SCHEMA", "Batches", "Meter", "encoder", "write_files"]

BATCH = 1 << 17
POOL = 1 << 19
N_BINS = 32
REGIONS = [f"region {i}" for i in range(12)]
EDUCATION = [f"grade {i}" for i in range(16)]
JOBS = [f"job {i}" for i in range(20)]
STATES = ["single", "married", "separated", "divorced", "widowed", "other"]

SCHEMA = Schema(
    {
        "female": Categorical([False, True]),
        "smoker": Categorical(["no", "yes"]),
        "insured": Categorical([False, True]),
        "chronic": Categorical([0, 1]),
        "region": Categorical(REGIONS),
        "education": Categorical(EDUCATION),
        "job": Categorical(JOBS),
        "state": Categorical(STATES),
        "age": Numeric(0, 99, integer=True),
        "visits": Numeric(0, 60, integer=True),
        "hours": Numeric(0, 100, integer=True),
        "income": Numeric(0, 200_000),
        "pressure": Numeric(60, 220),
        "bmi": Numeric(10, 60, nullable=True),
        "admitted": Datetime("2010-01-01", "2019-12-31"),
    }
)
NAMES = list(SCHEMA)
PAIRS = tuple(combinations(NAMES, 2))
# Columns of a group depend on one another.
GROUPS = (
    ("age", "state", "education", "hours", "income", "job"),
    ("female", "smoker", "pressure", "bmi", "chronic"),
    ("region", "insured", "visits", "admitted"),
)


def encoder():
    """Return the encoder of the table, with 32 bins for each number and date."""
    return TabularEncoder(SCHEMA, n_bins=N_BINS).fit()


class Batches:
    """Record batches of Arrow, the same in each iteration.

    Columns are drawn once, half a million values each. A batch holds a slice of each of them: from
    another place for each group of columns, drawn anew, so that rows differ and nothing is copied.

    Parameters
    ----------
    n_rows : int
    seed : int, default=0
    """

    def __init__(self, n_rows, seed=0):
        self.n_rows, self.seed, self._pool = n_rows, seed, None

    def __iter__(self):
        import pyarrow

        if self._pool is None:
            self._pool = _pool(np.random.default_rng(self.seed))
        rng = np.random.default_rng(self.seed + 1)
        for start in range(0, self.n_rows, BATCH):
            n = min(BATCH, self.n_rows - start)
            places = rng.integers(0, POOL - n + 1, size=len(GROUPS))
            place_of = {name: k for k, group in zip(places, GROUPS, strict=True) for name in group}
            arrays = [self._pool[name].slice(place_of[name], n) for name in NAMES]
            yield pyarrow.RecordBatch.from_arrays(arrays, NAMES)


def _pool(rng):
    """Return the columns that batches are made of, as arrays of Arrow."""
    import pyarrow

    def labels(values, codes):
        codes = pyarrow.array(np.clip(codes, 0, len(values) - 1).astype(np.int8))
        return pyarrow.DictionaryArray.from_arrays(codes, values)

    def clipped(values, low, high):
        return np.clip(np.rint(values), low, high)

    age = clipped(rng.gamma(5, 9, POOL), 0, 99)
    skill = rng.normal(size=POOL)
    education = clipped(8 + 3 * skill + rng.normal(size=POOL), 0, 15)
    hours = clipped(np.where(age < 67, 38 + 8 * rng.normal(size=POOL), 0), 0, 100)
    income = np.exp(8.5 + 0.1 * education + 0.02 * hours + 0.5 * rng.normal(size=POOL))
    female, health = rng.random(POOL) < 0.5, rng.normal(size=POOL)
    bmi = 26 + 4 * health + rng.normal(size=POOL)
    pressure = 125 + 10 * health + 12 * rng.normal(size=POOL)
    region = rng.zipf(1.6, POOL) - 1
    insured = rng.random(POOL) < 0.7 + 0.02 * np.minimum(region, 12)
    visits = rng.poisson(rng.gamma(1 + insured, 2.0))
    admitted = 14610 + np.floor(3652 * rng.beta(2, 1 + 0.1 * np.minimum(region, 12)))
    return {
        "female": pyarrow.array(female),
        "smoker": labels(["no", "yes"], rng.random(POOL) < 0.2 + 0.1 * female),
        "insured": pyarrow.array(insured),
        "chronic": pyarrow.array((health > 1).astype(np.int8)),
        "region": labels(REGIONS, region),
        "education": labels(EDUCATION, education),
        "job": labels(JOBS, education + rng.integers(0, 6, POOL)),
        "state": labels(STATES, age // 20 + (rng.random(POOL) < 0.3)),
        "age": pyarrow.array(age.astype(np.int32)),
        "visits": pyarrow.array(np.minimum(visits, 60).astype(np.int32)),
        "hours": pyarrow.array(hours.astype(np.int32)),
        "income": pyarrow.array(np.round(income, 2)),
        "pressure": pyarrow.array(np.round(pressure, 1)),
        "bmi": pyarrow.array(np.round(bmi, 2), mask=rng.random(POOL) < 0.02),
        "admitted": pyarrow.array(admitted.astype(np.int32), pyarrow.int32()).cast("date32"),
    }


class Meter:
    """Wall and CPU seconds of this process and those it starts, and their peak of memory.

    Memory is counted above what is held on entry. Of several processes it is their proportional
    sets, every fifth of a second; of one it is what the system says was its peak.

    Parameters
    ----------
    is_tree : bool, default=False
        Whether there are other processes.
    """

    def __init__(self, *, is_tree=False):
        self._is_tree, self._stop = is_tree, threading.Event()

    def __enter__(self):
        self._process = psutil.Process()
        # Else the peak of imports would count.
        with open("/proc/self/clear_refs", "w") as file:
            file.write("5")
        self._held = self._peak = self._memory()
        if self._is_tree:
            self._watch = threading.Thread(target=self._sample, daemon=True)
            self._watch.start()
        self._wall, self._cpu = time.perf_counter(), self._spent()
        return self

    def __exit__(self, *error):
        self.wall, self.cpu = time.perf_counter() - self._wall, self._spent() - self._cpu
        if self._is_tree:
            self._stop.set()
            self._watch.join()
            peak = self._peak
        else:
            peak = _status("VmHWM")
        self.peak = (peak - self._held) / 2**20

    @property
    def row(self):
        """What was measured, rounded."""
        return {
            "wall s": round(self.wall, 2),
            "cpu s": round(self.cpu, 2),
            "peak MiB": round(self.peak),
            "held before MiB": round(self._held / 2**20),
        }

    def _processes(self):
        return [self._process, *self._process.children(recursive=True)]

    def _spent(self):
        """Return CPU seconds of all of them, and of those that were waited for."""
        spent = 0.0
        for process in self._processes() if self._is_tree else [self._process]:
            with suppress(psutil.Error):
                spent += sum(process.cpu_times()[:4])
        return spent

    def _memory(self):
        if not self._is_tree:
            return _status("VmRSS")
        held = 0
        for process in self._processes():
            with suppress(psutil.Error):
                held += process.memory_full_info().pss
        return held

    def _sample(self):
        while not self._stop.wait(0.2):
            self._peak = max(self._peak, self._memory())


def _status(name):
    with open(f"/proc/{os.getpid()}/status") as file:
        return next(int(line.split()[1]) for line in file if line.startswith(name)) * 1024


def write_files(folder, n_rows, n_files=5):
    """Write the table to files of Parquet with row groups of a million, unless they are there.

    Returns
    -------
    list of str
        Their paths.
    """
    import pyarrow
    import pyarrow.parquet

    folder.mkdir(parents=True, exist_ok=True)
    size = -(-n_rows // n_files)
    paths = [folder / f"{n_rows}-{i}.parquet" for i in range(n_files)]
    for seed, path in enumerate(paths):
        if path.exists():
            continue
        held, writer, n = [], None, 0
        for batch in Batches(min(size, n_rows - seed * size), seed):
            held.append(batch)
            n += len(batch)
            if n >= 10**6:
                writer = writer or pyarrow.parquet.ParquetWriter(f"{path}.part", batch.schema)
                writer.write_table(pyarrow.Table.from_batches(held), row_group_size=10**6)
                held, n = [], 0
        if held:
            writer = writer or pyarrow.parquet.ParquetWriter(f"{path}.part", batch.schema)
            writer.write_table(pyarrow.Table.from_batches(held), row_group_size=10**6)
        writer.close()
        Path(f"{path}.part").rename(path)
    return list(map(str, paths))
