"""Public tables beside private ones: both parents, cheap ways to use both, and `public=`.

The pairs, their scores and wrong public tables are of `_public_pairs.py`. Methods::

    private alone    TableSampler, which has not seen the public table
    public rows      the public table as it is; neither records nor epsilon matter
    reweighted       public rows drawn by weights: the whole budget is spent on single columns
    JAM-PGM          Fuentes et al. (2024), `peers/fit_jam.py`, in an environment of its own
    both             TableSampler with `public=`
    private rows     the records themselves, without privacy

Neighbours differ by adding or removing a record, delta is 1e-5, and estimators have their defaults.
Methods make 20,000 records, so that what is measured is their distribution and not the chance of a
sample. What needs public bins has the vigintiles of the public table. `--wrong` replaces the public
table by a wrong one.

With `--local` nobody sees a record: LocalTableSampler learns from joint answers, without delta. All
are asked about the target, and numbers have public bins.

Results are added to ``results/public.json`` one by one; what is there is not done again. Then::

    python benchmarks/peers/setup.py --to environments jam
    python benchmarks/bench_public.py --environments environments
    python benchmarks/bench_public.py --summary
    python benchmarks/bench_public.py --epsilon 1 --plot doc/images/public_tables.png

A summary has means over seeds and their standard errors. "below" is said of a score of "both" that
is worse than that of the better parent, by more than a standard error of the difference; with a
wrong public table, one that is worse than "private alone" by more than .005 of AUC or .002 of TV.
"""

import argparse
import fcntl
import itertools
import json
import os
from contextlib import contextmanager
from pathlib import Path

import matplotlib.pyplot as plt
import numpy as np
import pandas as pd
import scipy.sparse
from _common import RESULTS, _processor
from _peers import fit as fit_peer
from _public_pairs import PAIRS, REPORT, WRONG, pair_scores, private_rows
from _tables import DELTA
from scipy.optimize import minimize
from scipy.special import logsumexp
from threadpoolctl import threadpool_limits

from sklearn_dpgen.accounting import calibrate_noise_multiplier
from sklearn_dpgen.mechanisms import JointRandomizedResponse
from sklearn_dpgen.preprocessing import TabularEncoder
from sklearn_dpgen.schema import Numeric
from sklearn_dpgen.tables import LocalTableSampler, TableSampler

SIZES = (300, 1000, 4000, 16_000)
EPSILONS = (0.3, 1.0, 3.0)
N_MADE = 20_000
N_BINS = 20
RIGHT = "none"
KEY = ("pair", "wrong", "method", "n", "epsilon", "seed")
SCORES = ("AUC boosting", "AUC logistic", "1-way TV", "2-way TV", "3-way TV")
PARENTS = ("private alone", "public rows")
CHILD = "both"
# Methods that are not shown the public table.
BLIND = ("private alone", "private rows")
# What a wrong public table may cost.
TOLERANCE = {name: 0.005 if name.startswith("AUC") else 0.002 for name in SCORES}
CPU_SECONDS = 1800
GIB = 8


def private_alone(pair, public, records, epsilon, seed, args):
    return _sampled(pair, records, epsilon, seed, args)


def both(pair, public, records, epsilon, seed, args):
    return _sampled(pair, records, epsilon, seed, args, public=public)


def _sampled(pair, records, epsilon, seed, args, **options):
    if args.local:
        asked = {"n_bins": public_bins(pair, pair.public), "always": [pair.target]}
        mechanism = JointRandomizedResponse(
            epsilon, schema=pair.schema, random_state=seed, **asked
        ).fit()
        sampler = LocalTableSampler(mechanism, random_state=seed, **options)
        return sampler.fit(mechanism.transform(records)).sample(N_MADE, random_state=seed)
    sampler = TableSampler(
        epsilon,
        DELTA,
        schema=pair.schema,
        target=pair.target,
        neighbours="add_or_remove",
        random_state=seed,
        **options,
    )
    return sampler.fit(records).sample(N_MADE, random_state=seed)


def public_rows(pair, public, records, epsilon, seed, args):
    return public


def real_rows(pair, public, records, epsilon, seed, args):
    return records


def reweighted(pair, public, records, epsilon, seed, args):
    """Return public rows drawn by weights that agree with noisy counts of single columns.

    The weights are those of maximum entropy relative to the public rows, exponential in a sum of
    terms of single columns. The ridge is the variance of a share: the terms are most probable if
    the noise is as drawn.
    """
    rng = np.random.default_rng(seed)
    encoder = TabularEncoder(pair.schema, n_bins=public_bins(pair, public)).fit(public)
    ones, counts = (_indicators(encoder, frame) for frame in (public, records))
    counts = np.asarray(counts.sum(axis=0)).ravel()
    columns = len(pair.schema)
    # A record is in one cell of each column.
    scale = calibrate_noise_multiplier(epsilon, DELTA) * np.sqrt(columns)
    counts = counts + scale * rng.standard_normal(len(counts))
    n = max(counts.sum() / columns, 1.0)

    def dual(terms):
        logits = ones @ terms
        total = logsumexp(logits)
        shares = ones.T @ np.exp(logits - total)
        ridge = (scale / n) ** 2 * terms
        return total - terms @ counts / n + terms @ ridge / 2, shares - counts / n + ridge

    terms = minimize(dual, np.zeros(len(counts)), jac=True, method="L-BFGS-B").x
    logits = ones @ terms
    drawn = rng.choice(len(public), N_MADE, p=np.exp(logits - logsumexp(logits)))
    return public.iloc[drawn].reset_index(drop=True)


def _indicators(encoder, frame):
    """Return a sparse matrix of zeros and ones, a column for each cell of each column."""
    sizes = [column.n_categories for column in encoder.columns_.values()]
    codes = [column.codes(frame[name]) for name, column in encoder.columns_.items()]
    places = np.column_stack(codes) + np.cumsum([0, *sizes[:-1]])
    starts = np.arange(0, places.size + 1, len(sizes))
    shape = (len(frame), sum(sizes))
    return scipy.sparse.csr_array((np.ones(places.size), places.ravel(), starts), shape=shape)


def jam(pair, public, records, epsilon, seed, args):
    """Return records of JAM-PGM, or the reason why there are none."""
    encoder = TabularEncoder(pair.schema, n_bins=public_bins(pair, public)).fit(public)
    columns = encoder.columns_
    names = {name: f"c{i}" for i, name in enumerate(columns)}
    codes = [
        pd.DataFrame({names[name]: column.codes(frame[name]) for name, column in columns.items()})
        for frame in (records, public)
    ]
    sizes = [(column.n_categories, column.nullable) for column in columns.values()]
    task = {"epsilon": epsilon, "delta": DELTA, "seed": seed, "made": N_MADE}
    made, result = fit_peer(
        "JAM-PGM",
        codes[0],
        task | {"sizes": dict(zip(names.values(), sizes, strict=True))},
        public=codes[1],
        environments=args.environments,
        limit=CPU_SECONDS,
        memory=GIB,
    )
    if made is None:
        return result["failure"]
    rng = np.random.default_rng(seed)
    frame = encoder.decode_codes(made.to_numpy(), rng=rng)
    return frame[list(pair.schema)]


METHODS = {
    "public rows": public_rows,
    "private rows": real_rows,
    "reweighted": reweighted,
    "private alone": private_alone,
    CHILD: both,
    "JAM-PGM": jam,
}


def public_bins(pair, public):
    """Return the edges of bins of numbers: vigintiles of the public table, and single values.

    A value that is several of the vigintiles has a bin of its own.
    """
    edges = {}
    for name, column in pair.schema.items():
        if not isinstance(column, Numeric):
            continue
        values = public[name].to_numpy(dtype=float)
        values = values[~np.isnan(values)]
        points = np.quantile(values, np.linspace(0, 1, N_BINS + 1), method="lower")
        points, times = np.unique(points, return_counts=True)
        above = np.append(np.unique(values), column.high)
        after = above[
            np.searchsorted(above, points[times > 1], side="right").clip(0, len(above) - 1)
        ]
        inner = np.unique(np.concatenate([points, after]))
        inner = inner[(inner > column.low) & (inner < column.high)]
        edges[name] = [column.low, *inner.tolist(), column.high]
    return edges


class Results:
    """Rows of a JSON file, a line each; other processes may write to it at the same time."""

    def __init__(self, path):
        self.path = path
        self.rows = self._read()

    def _read(self):
        if not self.path.exists():
            return {}
        content = json.loads(self.path.read_text())
        rows = [dict(zip(content["columns"], row, strict=True)) for row in content["rows"]]
        return {_key(row): row for row in rows}

    def add(self, row):
        """Add a row to those that are in the file now."""
        with locked(self.path.parent):
            self.rows = self._read() | {_key(row): row}
            rows = [self.rows[key] for key in sorted(self.rows, key=str)]
            columns = [*KEY, *SCORES, "cpu seconds", "failure"]
            lines = ",\n".join(
                "  " + json.dumps([row.get(name) for name in columns]) for row in rows
            )
            head = {"name": self.path.stem, "machine": {"processor": _processor()}}
            head |= {"columns": columns}
            text = json.dumps(head, indent=1)[:-2] + f',\n "rows": [\n{lines}\n ]\n}}\n'
            draft = self.path.with_suffix(".draft")
            draft.write_text(text)
            os.replace(draft, self.path)


@contextmanager
def locked(folder):
    """Wait until no other process has locked the folder, and lock it."""
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX)
        yield
    finally:
        os.close(descriptor)


def _key(row):
    return tuple(row[name] for name in KEY)


def cases(args):
    """Yield cases, once each: what does not depend on a setting has None for it."""
    seen = set()
    for seed, name, wrong, n, epsilon, method in itertools.product(
        range(args.seeds), args.pairs, args.wrong, args.n, args.epsilon, args.methods
    ):
        pair = PAIRS[name]()
        if n > len(pair.private):
            continue
        if method in ("public rows", "private rows"):
            epsilon = None
        if method == "public rows":
            n = None
        if method in BLIND:
            wrong = RIGHT
        case = dict(zip(KEY, (name, wrong, method, n, epsilon, seed), strict=True))
        if _key(case) not in seen:
            seen.add(_key(case))
            yield case


def run(case, args):
    """Return the scores of a case, and the seconds that its method took."""
    pair, seed = PAIRS[case["pair"]](), case["seed"]
    public = pair.public
    if case["wrong"] != RIGHT:
        public = WRONG[case["wrong"]](pair, np.random.default_rng(seed))
    records = None if case["n"] is None else private_rows(pair, case["n"], seed)
    start = _seconds()
    made = METHODS[case["method"]](pair, public, records, case["epsilon"], seed, args)
    seconds = _seconds() - start
    if isinstance(made, str):
        return case | {"failure": made}
    found = pair_scores(pair, made, seed) | {"cpu seconds": seconds}
    return case | {name: float(f"{value:.5g}") for name, value in found.items()}


def _seconds():
    """Return the CPU seconds of this process and of those that it started and that have ended."""
    return sum(os.times()[:4])


def summarize(rows, args):
    """Print means and standard errors by setting, and where the child is below its parents."""
    frame = pd.DataFrame(rows)
    frame = frame[frame["2-way TV"].notna() & frame["method"].isin(args.methods)]
    faults = []
    for pair, wrong, n, epsilon in itertools.product(args.pairs, args.wrong, args.n, args.epsilon):
        of = _by_method(frame, pair, wrong, n, epsilon)
        # Those without a setting are in every one, and make none of their own.
        if not of.keys() - {"public rows", "private rows"}:
            continue
        setting = f"{pair}, public table wrong: {wrong}, n = {n}, epsilon = {epsilon:g}"
        print(f"\n{setting}")
        print(" " * 18 + "".join(f"{name:>15}" for name in SCORES) + "  CPU s  seeds")
        for method, part in of.items():
            cells = "".join(
                f"{part[name].mean():9.3f} {_error(part[name]):5.3f}" for name in SCORES
            )
            print(f"  {method:<16}{cells}{part['cpu seconds'].mean():7.1f}{len(part):7}")
        faults += [f"{setting}: {fault}" for fault in _faults(of, wrong, n)]
    if CHILD in args.methods:
        print(f"\n{len(faults)} below", *faults, sep="\n")


def _by_method(frame, pair, wrong, n, epsilon):
    """Return the rows of each method in a setting, by seed."""
    found = {}
    for method in METHODS:
        seen = RIGHT if method in BLIND else wrong
        part = frame[
            (frame["method"] == method)
            & (frame["pair"] == pair)
            & (frame["wrong"] == seen)
            & (frame["n"].isna() | (frame["n"] == n))
            & (frame["epsilon"].isna() | (frame["epsilon"] == epsilon))
        ]
        if len(part):
            found[method] = part.set_index("seed")
    return found


def _error(values):
    return values.std() / np.sqrt(len(values)) if len(values) > 1 else np.nan


def _faults(of, wrong, n):
    """Yield what is said of a child that is worse than it should be."""
    if CHILD not in of or "private alone" not in of:
        return
    child = of[CHILD]
    for name in SCORES:
        sign = 1 if name.startswith("AUC") else -1
        parents = {
            m: of[m][name] for m in PARENTS if m in of and (wrong == RIGHT or m == PARENTS[0])
        }
        better = max(parents, key=lambda method: sign * parents[method].mean())
        gain = (sign * (child[name] - parents[better])).dropna()
        allowed = _error(gain) if wrong == RIGHT else TOLERANCE[name]
        if gain.mean() < -np.nan_to_num(allowed):
            yield f"{name} {-gain.mean():.4f} worse than {better} (allowed {allowed:.4f})"
        elif wrong == RIGHT and name == "2-way TV" and n >= 1000 and gain.mean() <= 0:
            yield f"{name} is not better than {better} ({gain.mean():.4f})"


PLOTTED = {
    "private alone": ("private alone", "#b3582c", "o"),
    "public rows": ("public rows", "#7a7a7a", ""),
    CHILD: ("both", "#31688e", "s"),
    "private rows": ("private rows, without noise", "#bbbbbb", ""),
}


def plot(rows, args):
    """Draw two scores against the number of private records, at the first epsilon."""
    frame, epsilon = pd.DataFrame(rows), args.epsilon[0]
    frame = frame[(frame["wrong"] == RIGHT) & frame["2-way TV"].notna()]
    scores, sizes = ("AUC boosting", "2-way TV"), sorted(args.n)
    size = 2.4 * len(args.pairs), 4.6
    figure, axes = plt.subplots(2, len(args.pairs), figsize=size, sharex=True, squeeze=False)
    for line, score in zip(axes, scores, strict=True):
        for ax, pair in zip(line, args.pairs, strict=True):
            for method, (label, colour, marker) in PLOTTED.items():
                own = frame[(frame["pair"] == pair) & (frame["method"] == method)]
                if method == "public rows":
                    ax.axhline(own[score].mean(), color=colour, ls="--", lw=1.2, label=label)
                    continue
                if method != "private rows":
                    own = own[own["epsilon"] == epsilon]
                means = own.groupby("n")[score].agg(["mean", "sem"]).reindex(sizes).dropna()
                ax.errorbar(
                    means.index,
                    means["mean"],
                    means["sem"],
                    color=colour,
                    marker=marker,
                    ms=3.5,
                    lw=1.3,
                    label=label,
                )
            ax.set_xscale("log")
            ax.set_xticks(sizes, [f"{n:,}" for n in sizes], fontsize=7, minor=False)
            ax.tick_params(axis="y", labelsize=7)
            ax.minorticks_off()
            ax.set_title(pair if score == scores[0] else "", fontsize=9)
    for line, score in zip(axes, ("AUC of boosting", "two-way TV distance"), strict=True):
        line[0].set_ylabel(score, fontsize=8)
    handles, labels = axes[0, 0].get_legend_handles_labels()
    figure.supxlabel("private records", fontsize=8)
    figure.legend(handles, labels, ncols=4, loc="upper center", fontsize=8, frameon=False)
    figure.tight_layout(rect=(0, 0, 1, 0.95))
    figure.savefig(args.plot, dpi=110)


def main():
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--pairs", nargs="+", choices=list(PAIRS), default=list(REPORT))
    parser.add_argument("--methods", nargs="+", choices=list(METHODS), default=list(METHODS))
    parser.add_argument("--n", nargs="+", type=int, default=list(SIZES))
    parser.add_argument("--epsilon", nargs="+", type=float, default=list(EPSILONS))
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--wrong", nargs="+", choices=[RIGHT, *WRONG], default=[RIGHT])
    parser.add_argument("--environments", help="folder of peers' environments")
    parser.add_argument("--local", action="store_true", help="LocalTableSampler; public_local.json")
    parser.add_argument("--to", type=Path, help="file of results")
    parser.add_argument("--summary", action="store_true", help="print what is in the results")
    parser.add_argument("--plot", type=Path, help="draw what is in the results to this file")
    args = parser.parse_args()
    name = "public_local" if args.local else "public"
    results = Results(args.to or RESULTS / f"{name}.json")
    if args.plot is not None:
        plot(results.rows.values(), args)
        return
    if args.environments is None and not args.summary:
        args.methods = [method for method in args.methods if method != "JAM-PGM"]
    if not args.summary:
        with threadpool_limits(1):
            for case in cases(args):
                if _key(case) not in results.rows:
                    row = run(case, args)
                    results.add(row)
                    print(row, flush=True)
    summarize(results.rows.values(), args)


if __name__ == "__main__":
    main()
