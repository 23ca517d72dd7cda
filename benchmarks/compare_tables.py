"""Tables of the page "How it compares", from the records of `bench_tables.py` and of the peers.

Prints reStructuredText: for each epsilon the scores of each table and model, means over seeds; how
often each model is first, or within one standard error of the first; and what failed. Peers have
fewer seeds: where there is one, the standard error is taken from ours.
"""

import argparse
import json
from collections import defaultdict
from pathlib import Path

import numpy as np

RESULTS = Path(__file__).with_name("results")
SCORES = {"AUC boosting": 1, "2-way TV": -1, "3-way TV": -1}
OURS = "SlicedMeasureSampler"


def load(name):
    """Return the rows of a record, and what failed."""
    data = json.loads((RESULTS / f"{name}.json").read_text())
    rows = data["rows"]
    if "columns" in data:  # of the peers: a list for each fit
        rows = [dict(zip(data["columns"], row, strict=True)) for row in rows]
    return rows, data.get("failures", [])


def collect(names):
    """Return for (epsilon, table, model) the mean and the standard error of scores, and seconds."""
    parts, found, failed = defaultdict(list), {}, []
    for name in names:
        rows, failures = load(name)
        failed += failures
        for row in rows:
            parts[row["epsilon"], row["table"], row["model"]].append(row)
    for key, rows in parts.items():
        # A row is of one fit, or the mean of so many.
        seeds = sum(row.get("seeds", 1) for row in rows)
        seconds = float(np.mean([row["cpu seconds"] for row in rows]))
        found[key] = {"seeds": seeds, "seconds": seconds}
        for score in SCORES:
            values = [row[score] for row in rows]
            spread = rows[0].get(f"{score} sd", np.nan) if len(rows) == 1 else np.std(values)
            error = spread / np.sqrt(seeds - 1) if seeds > 1 else np.nan
            found[key][score] = float(np.mean(values)), float(error)
    return found, failed


def best_of(found, epsilon, table, score):
    """Return the best mean, and which models are it or within one standard error of it."""
    rows = {model: row for (e, t, model), row in found.items() if (e, t) == (epsilon, table)}
    sign = SCORES[score]
    best = max(rows, key=lambda model: sign * rows[model][score][0])
    ours = rows.get(OURS, {}).get(score, (np.nan, np.nan))[1]

    def error(model):
        own = rows[model][score][1]
        return own if np.isfinite(own) else ours * np.sqrt(rows[OURS]["seeds"])

    near = {
        model
        for model in rows
        if sign * (rows[best][score][0] - rows[model][score][0])
        <= np.hypot(error(best), error(model))
        or model == best
    }
    return best, near


def rst(head, rows, widths):
    lines = ["   :header-rows: 1", f"   :widths: {' '.join(map(str, widths))}", ""]
    for row in [head, *rows]:
        for i, cell in enumerate(row):
            lines.append(f"   {'*' if i == 0 else ' '} - {cell}".rstrip())
    return "\n".join(lines)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    names = ["compare_ours", "compare_ours_budgets", "compare_independent", "table_peers"]
    parser.add_argument("--names", nargs="+", default=names)
    parser.add_argument("--floor", default="compare_real")
    parser.add_argument("--epsilons", nargs="+", type=float, default=[1.0])
    args = parser.parse_args()
    found, failed = collect(args.names)
    real = {row["table"]: row for row in load(args.floor)[0]}
    for epsilon in args.epsilons:
        tables = [t for e, t, model in found if e == epsilon and model == OURS]
        models = list(dict.fromkeys(m for e, _, m in found if e == epsilon))
        first, seen = defaultdict(int), defaultdict(int)
        rows = []
        for table in tables:
            marks = {score: best_of(found, epsilon, table, score)[1] for score in SCORES}
            floor = real.get(table)
            if floor:
                cells = [f"{floor[score]:.3f}" for score in SCORES]
                rows.append([f"*{table}*", "real records", *cells, ""])
            for model in models:
                row = found.get((epsilon, table, model))
                if row is None:
                    continue
                cells = []
                for score in SCORES:
                    seen[model, score] += 1
                    first[model, score] += model in marks[score]
                    text = f"{row[score][0]:.3f}"
                    cells.append(f"**{text}**" if model in marks[score] else text)
                rows.append(["", f"{model} ({row['seeds']})", *cells, f"{row['seconds']:.0f}"])
        print(f"epsilon = {epsilon:g}\n")
        head = ["Table", "Model (seeds)", "AUC", "Two-way TV", "Three-way TV", "Seconds"]
        print(rst(head, rows, [18, 34, 12, 12, 12, 12]), "\n")
        head = ["Model", *SCORES]
        counts = [[m, *(f"{first[m, s]} of {seen[m, s]}" for s in SCORES)] for m in models]
        print(rst(head, counts, [40, 20, 20, 20]), "\n")
    print("Failed:")
    for row in failed:
        print(row)


if __name__ == "__main__":
    main()
