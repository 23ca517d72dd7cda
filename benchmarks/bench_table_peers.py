"""Peers that make tables, on the tables of `REPORT` and the protocol of `bench_tables.py`.

AIM and MST of OpenDP and of SmartNoise, AIM, MST and PrivBayes of dpmm, and PrivSyn of
privsyn-core, each at its defaults, in an environment of its own, by a script of `peers/`, where a
README says more. "target named" is AIM whose queries are the pairs with the target, which can be
given to OpenDP's and dpmm's; nothing else can be told::

    python benchmarks/peers/setup.py --to environments
    python benchmarks/bench_table_peers.py --environments environments --cache fits

Neighbours differ by adding or removing a record, delta is 1e-5. What a peer may spend comes from
the tightest composition of its releases that is known (`budget` of `_peers.py`), not from its own
bound. Former runs, by that bound, have the calibration "zCDP"; their rows are dropped as soon as
there is another one of their table, model and epsilon.

Peers are given codes: labels of the schema, and numbers in the public bins of `_tables.py`, drawn
evenly within them afterwards, as for `independent`. A null that a peer makes in a column without
nulls is replaced by a value of the column, drawn. There are as many records as were given. Seconds
are of one core, of fit and sample, without imports. Most of the noise takes no seed: seeds are
repetitions.

After a fit beyond its limit of CPU seconds or memory, its model is not tried again on that table;
after another failure, not with other seeds. Each fit is in the cache, and its scores are in the
results, as soon as it is done: another run goes on from there. `--rescore` makes the results anew
of what is in the cache.
"""

import argparse
import itertools
import json
import math
import os
import subprocess
import time
from functools import lru_cache
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pandas as pd
import torch
from _common import _processor
from _peers import MODELS, Fits, budget, fit, versions, whole_codes
from _tables import DELTA, REPORT, TABLES, Table, scores, split, summarize
from threadpoolctl import threadpool_limits

from sklearn_dpgen.preprocessing import TabularEncoder

CASE = ("table", "model", "epsilon", "seed")
# How long models take on the same table, roughly.
TIMES = {"PrivSyn": 0.02, "SmartNoise MST": 0.5, "dpmm MST": 2.0}
TIMES |= {"OpenDP AIM, target named": 2.0, "dpmm AIM, target named": 4.0}
TIMES = {model: 8.0 if "AIM" in model else 1.0 for model in MODELS} | TIMES
GIVEN = ("epsilon", "delta", "rho", "sigma", "num_rows", "n_jobs", "verbose")
FOUND = ("model_size", "fit_state", "random_state", "dataset_name")
# The calibration of rows without one.
FORMER = "zCDP"


class Task(NamedTuple):
    """A table, its parts, and the codes of the training part under names that suit every peer."""

    table: Table
    train: pd.DataFrame
    test: pd.DataFrame
    encoder: TabularEncoder
    codes: pd.DataFrame

    @classmethod
    def of(cls, name):
        table = TABLES[name]()
        train, test = split(table.frame)
        encoder = TabularEncoder(table.schema, n_bins=table.bins).fit(train)
        codes = [column.codes(train[name]) for name, column in encoder.columns_.items()]
        codes = pd.DataFrame({f"c{i}": values for i, values in enumerate(codes)})
        return cls(table, train, test, encoder, codes)

    @property
    def sizes(self):
        columns = self.encoder.columns_.values()
        sizes = [(column.n_categories, column.nullable) for column in columns]
        return dict(zip(self.codes, sizes, strict=True))

    def records(self, made, seed):
        """Return records of synthetic codes."""
        rng = np.random.default_rng(seed)
        codes = [whole_codes(made[name], *size, rng) for name, size in self.sizes.items()]
        records = self.encoder.decode_codes(np.column_stack(codes), rng=rng)
        return records[list(self.train.columns)]


task_of = lru_cache(maxsize=1)(Task.of)


class Results:
    """Rows in a JSON file, a line each, written whenever there is one more."""

    def __init__(self, name, meta):
        self.path = Path(__file__).parent / "results" / f"{name}.json"
        self.head = {"name": name, "meta": meta, "machine": {"processor": _processor()}}
        self.head |= {"versions": {}, "settings": {}}
        self.rows = {}

    def read(self, current):
        """Take over the rows of the file that are of the versions which are current."""
        if not self.path.exists():
            return
        content = json.loads(self.path.read_text())
        rows = [dict(zip(content["columns"], row, strict=True)) for row in content["rows"]]
        for row in rows + content["failures"]:
            peer = MODELS[row["model"]][0]
            if content["versions"][peer] == current.get(peer, content["versions"][peer]):
                self.rows[_key(row)] = {"calibration": FORMER} | row
        self.head |= {name: content[name] for name in ("versions", "settings")}
        # Rows that stay may be of another machine.
        machines = content["machine"]["processor"].split("; ") + [_processor()]
        self.head["machine"] = {"processor": "; ".join(dict.fromkeys(machines))}

    def add(self, case, result, found):
        """Add what came of a case, with its scores if it has."""
        peer = MODELS[case["model"]][0]
        self.head["versions"][peer] = result["versions"]
        self.rows = {key: row for key, row in self.rows.items() if not _is_former(row, case)}
        case = case | {"calibration": result["budget"]["calibration"]}
        if "failure" in result:
            row = case | {"failure": result["failure"]}
        else:
            self.head["settings"][case["model"]] = _settings(result["settings"])
            costs = {"cpu seconds": result["cpu seconds"], "peak MB": result["peak MiB"]}
            row = case | {name: _rounded(value) for name, value in (found | costs).items()}
        self.rows[_key(case)] = row
        self._write()
        return row

    def has(self, case):
        """Return whether there is a row of a case by the present calibration."""
        return self.rows.get(_key(case), {}).get("calibration", FORMER) != FORMER

    def is_hopeless(self, case):
        """Return whether a failure says that this case need not be tried."""
        fixed = "table", "model"
        failed = [
            row
            for row in self.rows.values()
            if "failure" in row and all(row[name] == case[name] for name in fixed)
        ]
        return any(
            row["epsilon"] == case["epsilon"] or row["failure"].startswith(("time", "memory"))
            for row in failed
        )

    def scored(self):
        return [row for row in self.rows.values() if "failure" not in row]

    def _write(self):
        scored = self.scored()
        failures = [row for row in self.rows.values() if "failure" in row]
        columns = list(dict.fromkeys(name for row in scored for name in row))
        lists = {
            "failures": failures,
            "rows": [[row.get(name) for name in columns] for row in scored],
        }
        parts = [json.dumps(self.head, indent=1)[:-2], f' "columns": {json.dumps(columns)}']
        for name, rows in lists.items():
            lines = ",\n".join(f"  {json.dumps(row, separators=(',', ':'))}" for row in rows)
            parts.append(f' "{name}": [\n{lines}\n ]')
        text = ",\n".join(parts) + "\n}\n"
        draft = self.path.with_suffix(".draft")
        draft.write_text(text)
        os.replace(draft, self.path)


def _key(row):
    return tuple(row[name] for name in CASE)


def _is_former(row, case):
    """Return whether a row is of a former run of a table, a model and an epsilon."""
    same = all(row[name] == case[name] for name in CASE[:3])
    return same and row["calibration"] == FORMER


def _settings(values):
    """Return settings, without what was given or found."""
    known = GIVEN + FOUND
    return {name.lstrip("_"): value for name, value in values.items() if name not in known}


def _rounded(value):
    return float(f"{value:.4g}") if math.isfinite(value) else None


def cases(args):
    """Return cases, those that are guessed to be quick before the others of a seed.

    Time goes with the cells of all pairs of columns.
    """
    cells = {
        name: sum(size for size, _ in task_of(name).sizes.values()) ** 2 for name in args.tables
    }
    order = sorted(
        itertools.product(args.tables, args.models),
        key=lambda pair: cells[pair[0]] * TIMES[pair[1]],
    )
    for epsilon, seed in itertools.product(args.epsilons, range(args.seeds)):
        for table, model in order:
            yield dict(zip(CASE, (table, model, epsilon, seed), strict=True))


def scored(case, fits):
    """Return the scores of a fit in the cache."""
    task = task_of(case["table"])
    made = task.records(fits.made(case), case["seed"])
    return scores(made, task.test, task.table)


def run(args, results, fits, current):
    """Fit and score the cases that are not in the results, until the time is over."""
    end = time.monotonic() + args.budget_s
    limits = {name: getattr(args, name) for name in ("environments", "limit", "memory")}
    for case in cases(args):
        peer = MODELS[case["model"]][0]
        if peer not in current or results.has(case) or results.is_hopeless(case):
            continue
        task = task_of(case["table"])
        share = budget(case["model"], len(task.sizes), case["epsilon"], DELTA)
        result = fits.result(case)
        if result is None or (result["versions"], result.get("budget")) != (current[peer], share):
            left = end - time.monotonic()
            if left <= 0:
                return
            content = {"epsilon": case["epsilon"], "delta": DELTA, "seed": case["seed"]} | share
            content["sizes"] = task.sizes
            content["target"] = f"c{list(task.encoder.columns_).index(task.table.target)}"
            try:
                made, result = fit(
                    case["model"],
                    task.codes,
                    content,
                    timeout=left if math.isfinite(left) else None,
                    **limits,
                )
            except subprocess.TimeoutExpired:
                return
            result |= {"versions": current[peer], "budget": share}
            fits.keep(case, result, made)
        found = {} if "failure" in result else scored(case, fits)
        print(results.add(case, result, found), flush=True)


def rescore(results, fits):
    """Score all that is in the cache."""
    for result in fits.results():
        case = result["case"]
        found = {} if "failure" in result else scored(case, fits)
        print(results.add(case, result, found), flush=True)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--environments", help="folder of the environments of the peers")
    parser.add_argument("--cache", required=True, help="folder of fits")
    parser.add_argument("--rescore", action="store_true", help="what is in the cache, no fits")
    parser.add_argument("--models", nargs="+", default=list(MODELS), choices=list(MODELS))
    parser.add_argument("--tables", nargs="+", default=list(REPORT), choices=list(TABLES))
    parser.add_argument("--epsilons", nargs="+", type=float, default=[1.0, 10.0, 0.3, 3.0])
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--limit", type=int, default=900, help="CPU seconds of a fit")
    parser.add_argument("--memory", type=float, default=8.0, help="GiB of a fit")
    parser.add_argument("--budget-s", type=float, default=math.inf, help="seconds, of all fits")
    parser.add_argument("--name", default="table_peers", help="of the results")
    args = parser.parse_args()
    if not (args.rescore or args.environments):
        parser.error("--environments is needed for fits")
    torch.set_num_threads(1)
    fits = Fits(args.cache)
    meta = {name: getattr(args, name) for name in ("limit", "memory")}
    results = Results(args.name, meta | {"delta": DELTA, "test share": 0.3})
    with threadpool_limits(1):
        if args.rescore:
            results.read({})
            rescore(results, fits)
        else:
            peers = dict.fromkeys(MODELS[model][0] for model in args.models)
            found = {peer: versions(peer, args.environments) for peer in peers}
            current = {peer: of for peer, of in found.items() if of}
            results.read(current)
            run(args, results, fits, current)
    if results.scored():
        groups = (*CASE[:3], "calibration")
        print(pd.DataFrame(summarize(results.scored(), groups)).to_string())


if __name__ == "__main__":
    main()
