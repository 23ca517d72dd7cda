"""What is learned of a single column from noisy counts, beside what was before and cheap things.

Columns of known shapes, and the ordered ones of the tables that settings are chosen on. Noise is
that of a table of twelve such columns whose counts have a fifth of the budget, each of them counted
on as many levels as its tree has; so methods of fewer levels have less of it. Of each column:

- ``mean``: how far means are apart, in standard deviations of the column; ``worst`` of all seeds;
- ``sd``: the ratio of standard deviations, by its median, and ``within`` 1.25 of them how often;
- ``W1``, in standard deviations; ``TV`` in 20 equal cells of the range; ``KS``;
- ``heaps``: of values with 5 percent or more of the records, the largest error of a share.

Methods: ``ours``; ``before``, of the commit that found bins by merging neighbours of like density;
``log``, two intervals a power of two, and ``64 equal`` ones: each of one level, negative counts
left out.
"""

import argparse
import subprocess
import sys
import time
import types
from pathlib import Path

import numpy as np
import pandas as pd
from _common import record
from _tables import CHOOSE, TABLES, TWO
from scipy.stats import ks_2samp, wasserstein_distance

from sklearn_dpgen.accounting import calibrate_noise_multiplier
from sklearn_dpgen.schema import Datetime, Numeric, Schema
from sklearn_dpgen.tables._column_trees import ColumnTree
from sklearn_dpgen.tables._releases import column_trees, fine_encoder

BEFORE = "675713e"
N_COLUMNS, SHARE, DELTA = 12, 0.2, 1e-5
N_DRAWN = 20_000
WIDE = 1e6


def money(values, **kwargs):
    return Numeric(0, WIDE, **kwargs), np.clip(values, 0, WIDE)


def lognormal(rng, n, mean, scale):
    return rng.lognormal(np.log(mean) - scale**2 / 2, scale, n)


def or_else(rng, share, value, values):
    """Return values, a share of them replaced."""
    return np.where(rng.random(len(values)) < share, value, values)


def hours(rng, n):
    found = np.clip(rng.normal(38, 13, n).round(), 1, 99)
    return or_else(rng, 0.1, 50, or_else(rng, 0.45, 40, found))


def rates(rng, n):
    fixed = np.random.default_rng(99)
    values = np.sort(fixed.choice(np.arange(500, 2500), 58, replace=False)) / 100
    return rng.choice(values, n, p=fixed.dirichlet(np.full(58, 0.7)))


def clock(rng, n):
    return 100 * np.clip(rng.normal(13, 4, n), 0, 23).astype(int) + rng.integers(0, 60, n)


def year(rng, n):
    seconds = np.floor(rng.random(n) * 366 * 86_400).astype(int)
    dates = Datetime("2024-01-01", "2024-12-31T23:59:59", resolution="s")
    return dates, pd.Series(pd.Timestamp("2024-01-01") + pd.to_timedelta(seconds, unit="s"))


SHAPES = {
    "lognormal 500, scale 1": lambda r, n: money(lognormal(r, n, 500, 1)),
    "lognormal 5000, scale 1.5": lambda r, n: money(lognormal(r, n, 5000, 1.5)),
    "lognormal 50000, scale 1": lambda r, n: money(lognormal(r, n, 50_000, 1)),
    "lognormal 50000, scale 0.5": lambda r, n: money(lognormal(r, n, 50_000, 0.5)),
    "Pareto 2000, power 2.5": lambda r, n: money(3000 * r.pareto(2.5, n)),
    "Pareto 5000, power 1.5": lambda r, n: money(2500 * r.pareto(1.5, n)),
    "six in ten are zero": lambda r, n: money(or_else(r, 0.6, 0, lognormal(r, n, 6000, 1.2))),
    "nine in ten are zero": lambda r, n: money(
        or_else(r, 0.9, 0, lognormal(r, n, 6000, 1.2)).round(), integer=True
    ),
    "round thousands": lambda r, n: money(lognormal(r, n, 51_000, 0.7).round(-3), integer=True),
    "uniform to 600 of 1e6": lambda r, n: money(600 * r.random(n)),
    "signed, t of 3": lambda r, n: (
        Numeric(-WIDE, WIDE),
        np.clip(2000 * r.standard_t(3, n), -WIDE, WIDE),
    ),
    "one in ten is 999999": lambda r, n: money(
        or_else(r, 0.1, 999_999, lognormal(r, n, 3300, 1)).round(), integer=True
    ),
    "ages": lambda r, n: (
        Numeric(0, 120, integer=True),
        np.clip(r.normal(45, 18, n).round(), 17, 95),
    ),
    "hours, heaps of 40 and 50": lambda r, n: (Numeric(0, 168, integer=True), hours(r, n)),
    "month": lambda r, n: (Numeric(1, 12, integer=True), r.integers(1, 13, n)),
    "58 rates": lambda r, n: (Numeric(0, 100, step=0.01), rates(r, n)),
    "clock, hhmm": lambda r, n: (Numeric(0, 2359, integer=True), clock(r, n)),
    "times of a year": year,
    "year built": lambda r, n: (
        Numeric(1700, 2030, integer=True),
        np.clip((2020 - r.gamma(2, 20, n)).round(), 1700, 2030),
    ),
    "uniform": lambda r, n: (Numeric(0, 1), r.random(n)),
    "two modes": lambda r, n: (
        Numeric(0, 1000),
        np.clip(or_else(r, 0.5, r.normal(200, 20, n), r.normal(700, 50, n)), 0, 1000),
    ),
    "narrow and far": lambda r, n: money(r.normal(700_000, 2000, n)),
    "latitudes of a city": lambda r, n: (Numeric(-90, 90), r.normal(40.7, 0.08, n)),
    "constant": lambda r, n: money(np.full(n, 43_210.0)),
}
SKEWED = list(SHAPES)[:12]


def real_columns():
    """Return ordered columns of more than 32 values, by name."""
    found = {}
    for name in (*CHOOSE, *TWO):
        table = TABLES[name]()
        for key, column in table.schema.items():
            if isinstance(column, Numeric) and (column.n_steps is None or column.n_steps >= 32):
                found[f"{name}: {key}"] = column, table.frame[key]
    return found


def before():
    """Return the class of trees of the commit before."""
    path = f"{BEFORE}:sklearn_dpgen/tables/_column_trees.py"
    command = ["git", "-C", str(Path(__file__).parent), "show", path]
    source = subprocess.run(command, capture_output=True, check=True, text=True).stdout
    module = types.ModuleType("column_trees_before")
    exec(source, module.__dict__)  # noqa: S102
    return module.ColumnTree


class Flat:
    """Intervals of one level, with negative counts left out."""

    def __init__(self, n_values, nullable, starts):
        self.n_values, self.nullable, self.starts, self.n_levels = n_values, nullable, starts, 1

    def counts(self, codes):
        cells = np.searchsorted(self.starts, codes, side="right") - 1
        cells[codes == self.n_values] = len(self.starts)
        return np.bincount(cells, minlength=len(self.starts) + self.nullable).astype(float)

    def bins(self, noisy, _):
        return self.starts, noisy, None


def equal(n_values, nullable):
    return Flat(n_values, nullable, np.unique(np.arange(64) * n_values // 64))


def logarithmic(n_values, nullable, anchor):
    powers = np.unique(np.floor(2 ** (np.arange(36) / 2)).astype(int))
    starts = np.concatenate([[0, anchor], anchor + powers, anchor + 1 - powers])
    return Flat(n_values, nullable, np.unique(starts[(starts >= 0) & (starts < n_values)]))


def methods(tree, old):
    n, nullable = tree.n_values, tree.nullable
    return {
        "ours": tree,
        "before": old(n, nullable=nullable),
        "log": logarithmic(n, nullable, int(np.clip(tree.anchor, 0, n - 1))),
        "64 equal": equal(n, nullable),
    }


def fine(column):
    """Return the column in its finest cells, and its tree."""
    encoder, found = fine_encoder(Schema({"x": column, "y": Numeric(0, 1)}), "auto")
    encoder.fit(None)
    return encoder.columns_["x"], column_trees(encoder, found)[0]


def numbers(series):
    """Return values as numbers, dates as days, without nulls."""
    series = pd.Series(series).dropna()
    if series.dtype.kind == "M":
        return (series - pd.Timestamp("2024-01-01")).dt.total_seconds().to_numpy() / 86_400
    return series.to_numpy(dtype=float)


def drawn(binned, starts, shares):
    """Return values at even shares of a law."""
    merged = binned.merged(starts)
    below = np.append(0, np.cumsum(np.maximum(shares[: len(starts)], 0)))
    if below[-1] == 0:
        below = np.arange(len(starts) + 1.0)
    at = below[-1] * (np.arange(N_DRAWN) + 0.5) / N_DRAWN
    codes = np.minimum(np.searchsorted(below, at, side="right") - 1, len(starts) - 1)
    places = np.clip((at - below[codes]) / np.diff(below)[codes], 0, 1 - 1e-9)
    values = merged._placed(codes, merged._place(codes, places), np.zeros(N_DRAWN, dtype=bool))
    return numbers(values)


def score(binned, values, made):
    is_number = isinstance(binned.column, Numeric)
    low, high = (binned.column.low, binned.column.high) if is_number else (0, 366)
    sd, cells = values.std(), np.linspace(low, high, 21)
    shares = [np.histogram(part, cells)[0] / len(part) for part in (values, made)]
    found, sizes = np.unique(values, return_counts=True)
    heaps = found[sizes >= 0.05 * len(values)]
    errors = [abs(np.isclose(made, h).mean() - (values == h).mean()) for h in heaps]
    scale = sd or 1e-4 * (high - low)
    return {
        "mean": abs(values.mean() - made.mean()) / scale,
        "sd": made.std() / scale if sd else 1.0,
        "W1": wasserstein_distance(values, made) / scale,
        "TV": 0.5 * np.abs(shares[0] - shares[1]).sum(),
        "KS": ks_2samp(values, made).statistic,
        "heaps": max(errors, default=0.0),
    }


def measured(column, values, epsilon, seed, old):
    """Return the scores of all methods, and the CPU time of ours."""
    binned, tree = fine(column)
    codes, rng = binned.codes(pd.Series(values)), np.random.default_rng(seed)
    sigma = 0.0 if np.isinf(epsilon) else calibrate_noise_multiplier(epsilon, DELTA)
    exact, rows = numbers(values), {}
    for name, method in methods(tree, old).items():
        scale = sigma * np.sqrt(N_COLUMNS * method.n_levels / SHARE)
        counts = method.counts(codes)
        noisy = counts + scale * rng.standard_normal(counts.shape)
        start = time.process_time()
        if isinstance(method, ColumnTree):
            starts, shares, _ = method.cells(noisy, scale, float(len(codes)))
        else:
            starts, shares, _ = method.bins(noisy, scale)
        seconds = time.process_time() - start
        rows[name] = score(binned, exact, drawn(binned, starts, shares)) | {"seconds": seconds}
    return rows


def summary(name, n, epsilon, found):
    """Return a row a method."""
    rows = []
    for method in found[0]:
        scores = {key: np.array([row[method][key] for row in found]) for key in found[0][method]}
        sd = scores["sd"]
        rows.append(
            {
                "column": name,
                "n": n,
                "epsilon": float(epsilon),
                "method": method,
                "mean": float(scores["mean"].mean()),
                "worst": float(scores["mean"].max()),
                "sd": float(np.median(sd)),
                "within": float(((sd > 0.8) & (sd < 1.25)).mean()),
                **{key: float(scores[key].mean()) for key in ("W1", "TV", "KS", "heaps")},
                "seconds": float(scores["seconds"].mean()),
            }
        )
    return rows


def averages(rows):
    """Return a row a method and setting: geometric means over columns, and how many are right."""

    def setting(row):
        n = "their own" if row["part"] == "real" else row["n"]
        return row["part"], n, row["epsilon"], row["method"]

    found = []
    for part, n, epsilon, method in dict.fromkeys(map(setting, rows)):
        some = [row for row in rows if setting(row) == (part, n, epsilon, method)]
        logs = {
            key: float(np.exp(np.mean([np.log(max(row[key], 1e-4)) for row in some])))
            for key in ("mean", "W1", "TV", "KS")
        }
        found.append(
            {
                "columns": part,
                "n": n,
                "epsilon": epsilon,
                "method": method,
                **logs,
                "worst mean below 0.1": float(np.mean([row["worst"] <= 0.1 for row in some])),
                "mean below 0.1": float(np.mean([row["mean"] <= 0.1 for row in some])),
                "sd within 1.25": float(np.mean([row["within"] for row in some])),
            }
        )
    return found


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--n", type=int, nargs="+", default=[700, 3000, 10_000, 30_000, 300_000])
    parser.add_argument("--epsilon", type=float, nargs="+", default=[0.3, 1, 10, np.inf])
    parser.add_argument("--no-real", action="store_true")
    arguments = parser.parse_args()
    old, rows = before(), []
    for n in arguments.n:
        for epsilon in arguments.epsilon:
            for name, make in SHAPES.items():
                found = []
                for seed in range(arguments.seeds):
                    column, values = make(np.random.default_rng(seed), n)
                    found.append(measured(column, values, epsilon, 1000 + seed, old))
                part = "skewed" if name in SKEWED else "others"
                rows += [{"part": part} | row for row in summary(name, n, epsilon, found)]
            print(n, epsilon, file=sys.stderr, flush=True)
    for name, (column, values) in {} if arguments.no_real else real_columns().items():
        for epsilon in arguments.epsilon:
            found = [measured(column, values, epsilon, 1000 + s, old) for s in range(2)]
            rows += [{"part": "real"} | row for row in summary(name, len(values), epsilon, found)]
    meta = {"columns": N_COLUMNS, "share": SHARE, "delta": DELTA, "before": BEFORE}
    record("columns", averages(rows) + rows, meta | {"seeds": arguments.seeds})


if __name__ == "__main__":
    main()
