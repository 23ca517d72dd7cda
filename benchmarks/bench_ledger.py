"""The ledger: shared, killed, timed, and in a grid search.

Parts (--part): ``composition``, 40 Gaussian fits three ways; ``shared``, eight processes on one
file for --seconds; ``killed``, --runs processes that are killed at random points; ``overhead``, of
one fit; ``search``, a grid search of 21 fits under a cap that holds them, and one that does not.
"""

import argparse
import multiprocessing
import os
import random
import signal
import statistics
import sys
import tempfile
import time
import warnings
from pathlib import Path

import numpy as np
import pandas as pd
from _common import record
from sklearn.model_selection import GridSearchCV

from sklearn_dpgen.accounting import GaussianProfile, LaplaceProfile, PrivacyReport, gaussian_sigma
from sklearn_dpgen.accounting._profiles import SampledProfile
from sklearn_dpgen.exceptions import BudgetExceededError
from sklearn_dpgen.ledger import PrivacyLedger
from sklearn_dpgen.schema import Categorical, Numeric, Schema
from sklearn_dpgen.tables import TableSampler

DELTA = 1e-6


def plan(*releases, epsilon=1.0):
    return PrivacyReport(name="a fit", events=(), epsilon=epsilon, delta=DELTA, releases=releases)


def gaussian_plan(epsilon):
    profile = GaussianProfile(1 / gaussian_sigma(epsilon, DELTA))
    return plan((profile, 1), epsilon=epsilon)


def composition(folder, options):
    """40 fits of ε = 0.2 each."""
    for kind in ("gaussian", "renyi"):
        path = folder / f"{kind}.ledger"
        cap = {"dataset": "a", "epsilon": 2.0, "delta": DELTA, "filter": kind}
        ledger = PrivacyLedger.create(path, **cap)
        for _ in range(40):
            ledger.reserve(gaussian_plan(0.2), what="a fit")
        report = ledger.report()
        yield {
            "part": "composition",
            "filter": kind,
            "fits": 40,
            "epsilon each": 0.2,
            "booked epsilon": report.spent,
            "exact epsilon": report.composed,
            "plain sum": report.summed[0],
        }


def _hammer(path, until, queue):
    ledger, asked, booked = PrivacyLedger(path), gaussian_plan(2e-4), 0
    refused = False
    while time.time() < until and not refused:
        try:
            ledger.reserve(asked, what="a fit")
            booked += 1
        except BudgetExceededError:
            refused = True
    queue.put((booked, refused))


def shared(folder, options):
    """Eight processes: once with a cap that is never reached, once with one that is."""
    for epsilon in (5.0, 0.01):
        path = folder / f"shared-{epsilon}.ledger"
        ledger = PrivacyLedger.create(path, dataset="a", epsilon=epsilon, delta=DELTA)
        queue, until = multiprocessing.Queue(), time.time() + options.seconds
        processes = [
            multiprocessing.Process(target=_hammer, args=(path, until, queue)) for _ in range(8)
        ]
        for process in processes:
            process.start()
        results = [queue.get() for _ in processes]
        for process in processes:
            process.join()
        n_charges = len(ledger.report().charges)
        yield {
            "part": "shared",
            "cap": epsilon,
            "processes": 8,
            "seconds": options.seconds,
            "booked by processes": sum(booked for booked, _ in results),
            "charges in the file": n_charges,
            "processes refused": sum(refused for _, refused in results),
            "spent": ledger.spent(),
            "charges a second": n_charges / options.seconds,
        }


_DRAW = """
import os, sys
from sklearn_dpgen.accounting import GaussianProfile, PrivacyReport
from sklearn_dpgen.ledger import PrivacyLedger
profile = GaussianProfile(1e-4)
plan = PrivacyReport(name="a", events=(), epsilon=1e-3, delta=1e-6, releases=[(profile, 1)])
ledger = PrivacyLedger(sys.argv[1])
drawn = os.open(sys.argv[2], os.O_CREAT | os.O_APPEND | os.O_WRONLY)
while True:
    ledger.reserve(plan, what="a draw")
    os.write(drawn, b"x")
    os.fsync(drawn)
"""


def killed(folder, options):
    """One ledger throughout: what is killed is followed by the next."""
    path, drawn = folder / "killed.ledger", folder / "drawn"
    PrivacyLedger.create(path, dataset="a", epsilon=1.0, delta=DELTA)
    drawn.write_bytes(b"")
    undercounts = unused = 0
    random.seed(0)
    for _ in range(options.runs):
        before = drawn.stat().st_size
        process = subprocess_of(_DRAW, path, drawn)
        while drawn.stat().st_size == before:
            time.sleep(0.002)
        time.sleep(random.uniform(0, 0.05))
        process.send_signal(signal.SIGKILL)
        process.wait()
        n_charges, n_drawn = len(PrivacyLedger(path).report().charges), drawn.stat().st_size
        undercounts += n_charges < n_drawn
        unused = n_charges - n_drawn
    yield {
        "part": "killed",
        "runs": options.runs,
        "draws": n_drawn,
        "charges": n_charges,
        "runs that showed less than was drawn": undercounts,
        "charged and not drawn": unused,
    }


def subprocess_of(code, *arguments):
    import subprocess

    return subprocess.Popen([sys.executable, "-c", code, *map(str, arguments)])


def overhead(folder, options):
    """Median and largest time of a charge, of kinds of fits; the first one works out its cost."""
    kinds = {
        "Gaussian": plan((GaussianProfile(0.01), 1)),
        "Laplace": plan((LaplaceProfile(0.01), 2)),
        "200 steps on batches": plan((SampledProfile(GaussianProfile(0.3), 0.01), 200)),
    }
    for name, asked in kinds.items():
        path = folder / f"{name}.ledger"
        ledger = PrivacyLedger.create(path, dataset="a", epsilon=5.0, delta=DELTA)
        times = []
        for _ in range(100):
            start = time.perf_counter()
            ledger.reserve(asked, what="a fit")
            times.append(1e3 * (time.perf_counter() - start))
        yield {
            "part": "overhead",
            "kind": name,
            "first, ms": times[0],
            "median, ms": statistics.median(times[1:]),
            "largest, ms": max(times[1:]),
        }


def search(folder, options):
    """Five folds and four budgets, and the fit of the best on all."""
    rng = np.random.default_rng(0)
    region = rng.choice(["north", "south"], 4000)
    table = pd.DataFrame({"region": region, "hours": rng.uniform(0, 60, 4000)})
    schema = Schema({"region": Categorical(["north", "south"]), "hours": Numeric(0, 60)})
    for cap in (1.0, 0.3):
        path = folder / f"search-{cap}.ledger"
        ledger = PrivacyLedger.create(path, dataset="hours", epsilon=cap, delta=DELTA)
        sampler = TableSampler(schema=schema, delta=DELTA, ledger=ledger, max_iter=20)
        grid = {"epsilon": [0.05, 0.1, 0.15, 0.2]}
        refused = None
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            try:
                GridSearchCV(sampler, grid, cv=5, error_score="raise", n_jobs=2).fit(table)
            except BudgetExceededError as error:
                refused = str(error)
        report = ledger.report()
        yield {
            "part": "search",
            "cap": cap,
            "charges": len(report.charges),
            "stopped": refused is not None,
            "booked epsilon": report.spent,
            "exact epsilon": report.composed,
            "plain sum": report.summed[0],
        }


PARTS = {f.__name__: f for f in (composition, shared, killed, overhead, search)}


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--part", choices=PARTS, nargs="*", default=[*PARTS])
    parser.add_argument("--seconds", type=float, default=30.0)
    parser.add_argument("--runs", type=int, default=200)
    options = parser.parse_args()
    rows = []
    with tempfile.TemporaryDirectory() as folder:
        for name in options.part:
            rows += PARTS[name](Path(folder), options)
    whole = set(options.part) == set(PARTS)
    record("ledger" if whole else "ledger_" + "_".join(options.part), rows, vars(options))


if __name__ == "__main__":
    os.environ.setdefault("OMP_NUM_THREADS", "1")
    main()
