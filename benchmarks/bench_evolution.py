"""Private evolution: the simulations of "Private evolution converges", and our default beside them.

Records lie in the unit ball and are uniform in its positive part, unless a shape is named. The
error is W1 between the private records and the weighted synthetic ones, exact (network simplex, or
sorting in one dimension); with its standard error over runs. Parts, each with a table, and most
with a figure:

records     against the number of records
settings    against the steps T and the size n_s of a population, the predicted ones marked
budget      against epsilon and against the dimension
start       from the first population to the last, for near and far first populations
histogram   thresholded Laplace against Gaussian noise, for crowded and for spread records
default     the default over sizes, dimensions, budgets and shapes
grid        one step on a grid (PrivateSignedMeasureSampler) against evolution
points      how many points a grid should have, for other shapes
algorithms  Algorithms 1, 2, 3 and 5 as printed, the default, and what is cheaper: noisy moments
            and two noisy marginals
cheap       the default, one histogram, moments and marginals for other shapes and sizes
shift       one histogram with its votes shifted to the public sum, and not
certificate confidence bounds on W1 by a share of the budget, beside those from the votes
rates       against up to a million records in one to four dimensions, with slopes
bounds      the rates with their constants, and the contraction of the variations, measured
steps       a picture of the steps of one run (figure 1)
"""

import argparse
import json
import math
import time
from pathlib import Path

import _evolution_figures as figures
import numpy as np
import torch
from _common import record
from _evolution_algorithms import (
    draw_steps,
    measure_algorithms,
    measure_bounds,
    measure_certificate,
    measure_cheap,
    measure_rates,
    measure_shift,
    measure_steps,
)
from _evolution_runs import (
    DELTA,
    EPSILON,
    LARGEST,
    MULTIPLES,
    POINTS,
    POSTPROCESSING,
    SCHEDULES,
    SHAPES,
    SIZES,
    STARTS,
    TRIAL,
    TRIAL_RUNS,
    Start,
    compare,
    draw,
    evolution,
    fit,
    last_votes,
    mean_error,
    on_grid,
    result,
    w1,
)

from sklearn_dpgen.accounting import gaussian_sigma
from sklearn_dpgen.domains import Ball
from sklearn_dpgen.evolution import theory_parameters

RESULTS = Path(__file__).parent / "results"
IMAGES = Path(__file__).parents[1] / "doc" / "images"


def measure_records(runs):
    """Return errors against the number of records, and those of the earlier implementation."""
    rows, trial = [], []
    for n in SIZES:
        theory = evolution("theory")
        methods = {
            "theory": theory,
            "theory, last votes": (theory, last_votes),
            "annealed": evolution("annealed"),
            "grid": on_grid(),
        }
        rows += compare(methods, runs, n=n)
        found = rows[-len(methods)]
        error = found["error"] * math.sqrt(1 + runs / TRIAL_RUNS)
        gap = found["W1"] - TRIAL[n]
        trial.append({"n": n, "trial": TRIAL[n], "gap": gap, "error of gap": error})
    space = []
    for n in (1000, 5000):
        methods = {"annealed": evolution("annealed", 3), "grid": on_grid(3)}
        space += compare(methods, max(2, runs // 5), n=n, d=3)
    return rows + trial + space


def measure_settings(runs):
    """Return errors of the last population against T, and against n_s."""
    rows = []
    for n in SIZES[:3]:
        predicted = theory_parameters(n, 2, 2.0, EPSILON, DELTA)
        for varied, values in {
            "n_iter": (1, 2, 3, 5, 7, 10, 14, 20, 30),
            "n_samples": (2, 4, 7, 12, 22, 40, 70, 120, 200),
        }.items():
            for value in values:
                methods = {"theory": evolution("theory", **{varied: value})}
                labels = {"value": value, "predicted": getattr(predicted, varied)}
                rows += compare(methods, runs, n=n, varied=varied, **labels)
    return rows


def measure_budget(runs):
    """Return errors against epsilon, and against the dimension."""
    rows, n = [], 1000
    for epsilon in np.linspace(0.1, 1, 10).round(1).tolist():
        methods = {schedule: evolution(schedule, epsilon=epsilon) for schedule in SCHEDULES}
        rows += compare(methods, runs, n=n, varied="epsilon", value=epsilon)
    for d in range(1, 11):
        methods = {schedule: evolution(schedule, d) for schedule in SCHEDULES}
        rows += compare(methods, runs, n=n, d=d, fresh=True, varied="d", value=d)
    return rows


def measure_start(runs):
    """Return errors of all populations, for first ones that are far from the records or near."""
    rows = []
    for schedule in SCHEDULES:
        for start in STARTS:
            paths = []
            for run in range(runs):
                X = draw("quadrant", 1000, 2, np.random.default_rng(run))

                def first(n, rng, X=X, start=start):
                    if start == "uniform":
                        return Ball(1.0, n_features=2).sample(n, rng)
                    return (1 - 2 * float(start)) * rng.choice(X, size=n)

                source = Start(first)
                final = result(fit(evolution(schedule, interface=source), X, run))
                path = [(population, None) for population in source.populations]
                paths.append([w1(X, *points) for points in [*path, final]])
            for step, values in enumerate(np.transpose(paths)):
                labels = {"schedule": schedule, "start": start, "step": step}
                rows.append({**labels, **mean_error(values)})
    return rows


def measure_histogram(runs):
    """Return errors with Gaussian noise and with thresholded Laplace noise."""
    rows = []
    methods = {
        f"{schedule}, {histogram}": evolution(schedule, votes__histogram=histogram)
        for schedule in SCHEDULES
        for histogram in ("gaussian", "laplace_threshold")
    }
    for radius in (0.02, 0.5):
        for n in (*SIZES, 20_000):
            few = runs if n <= max(SIZES) else max(2, runs // 5)
            rows += compare(methods, few, n=n, shape=f"ball {radius}", largest=LARGEST)
    return rows


def measure_default(runs):
    """Return errors of the default where n, d and epsilon are far from those of the paper."""
    plans = [
        {"varied": "n", "n": n, "share": 1.0 if n <= 2000 else 0.3 if n <= 10_000 else 0.1}
        for n in (200, 500, 1000, 2000, 5000, 10_000, 100_000, 1_000_000)
    ]
    plans += [{"varied": "d", "n": 1000, "d": d, "share": 0.5} for d in (1, 2, 3, 5, 7, 10)]
    plans += [
        {"varied": "epsilon", "n": 1000, "epsilon": epsilon, "share": 0.5}
        for epsilon in (0.1, 0.3, 1.0, 3.0, 10.0)
    ]
    rows = []
    for shape in SHAPES:
        for plan in plans:
            plan = {"d": 2, "epsilon": EPSILON, "shape": shape, **plan}
            few = max(2, int(plan.pop("share") * runs))
            params = {"epsilon": plan["epsilon"], "delta": "auto"}
            methods = {"annealed": evolution("annealed", plan["d"], **params)}
            if plan["d"] <= 3 and plan["n"] <= 10_000:
                methods["grid"] = on_grid(plan["d"], **params)
            rows += compare(methods, few, largest=LARGEST, fresh=True, **plan)
    return rows


def measure_grid(runs):
    """Return errors on grids of every size beside those of evolution."""
    rows, best = [], []
    for d in (1, 2, 3):
        for n in (1000, 5000):
            methods = {
                "annealed": evolution("annealed", d),
                "annealed, bounded_lipschitz": evolution(
                    "annealed", d, votes__postprocess="bounded_lipschitz"
                ),
            }
            for postprocess in POSTPROCESSING:
                for n_points in ("auto", *POINTS):
                    name = f"{postprocess}, {n_points}"
                    methods[name] = on_grid(d, votes__postprocess=postprocess, n_points=n_points)
            few = runs if d == 1 or n == 1000 else max(2, runs // 2)
            found = compare(methods, few, n=n, d=d)
            rows += found
            best.append({"d": d, "n": n, **summary(found)})
    return rows + best


def summary(rows):
    """Return the error of evolution, of the automatic grids and of the best ones."""
    found = {row["method"]: row["W1"] for row in rows}
    table = {"annealed": found["annealed"]}
    for postprocess in POSTPROCESSING:
        best = min(POINTS, key=lambda n_points: found[f"{postprocess}, {n_points}"])
        table[f"{postprocess}, auto"] = found[f"{postprocess}, auto"]
        table[f"{postprocess}, best"] = found[f"{postprocess}, {best}"]
        table[f"{postprocess}, best n_points"] = best
    return table


def measure_points(runs):
    """Return errors on grids of c N points, or c N^(2/3) for d = 1, for other shapes."""
    rows = []
    for d in (1, 2, 3):
        for shape in SHAPES[1:]:
            for n, epsilon in ((1000, 0.5), (1000, 2.0), (5000, 1.0)):
                signal = n / max(1.0, gaussian_sigma(epsilon, DELTA, math.sqrt(2)))
                base = signal ** (2 / 3 if d == 1 else 1)
                methods = {
                    f"{postprocess}, {c:g}": on_grid(
                        d, epsilon=epsilon, votes__postprocess=postprocess, n_points=round(c * base)
                    )
                    for postprocess in POSTPROCESSING
                    for c in MULTIPLES
                }
                few = runs if d == 1 or n == 1000 else max(2, runs // 2)
                rows += compare(methods, few, n=n, d=d, shape=shape, N=round(signal))
    return rows + regrets(rows)


def regrets(rows):
    """Return the error over that of the best multiple: the geometric mean over the shapes."""
    cases, table = {}, []
    for row in rows:
        postprocess = row["method"].partition(",")[0]
        found = cases.setdefault((row["d"], row["N"], postprocess), {})
        found.setdefault(row["shape"], []).append(row["W1"])
    for (d, signal, postprocess), shapes in cases.items():
        ratios = np.log([np.array(found) / min(found) for found in shapes.values()])
        means = np.exp(ratios.mean(axis=0)).tolist()
        columns = {f"c = {c:g}": mean for c, mean in zip(MULTIPLES, means, strict=True)}
        table.append({"d": d, "N": signal, "postprocess": postprocess, **columns})
    return table


# Runs of each part.
PARTS = {
    "records": (100, measure_records, figures.draw_records),
    "settings": (50, measure_settings, figures.draw_settings),
    "budget": (50, measure_budget, figures.draw_budget),
    "start": (100, measure_start, figures.draw_start),
    "histogram": (50, measure_histogram, figures.draw_histogram),
    "default": (20, measure_default, figures.draw_default),
    "grid": (40, measure_grid, figures.draw_grid),
    "points": (8, measure_points, figures.draw_points),
    "algorithms": (20, measure_algorithms, None),
    "cheap": (20, measure_cheap, None),
    "shift": (20, measure_shift, None),
    "certificate": (10, measure_certificate, None),
    "rates": (3, measure_rates, None),
    "bounds": (1, measure_bounds, None),
    "steps": (1, measure_steps, draw_steps),
}


def main():
    """Run the named parts; print and store their tables, draw their figures."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("parts", nargs="*", help=f"of {', '.join(PARTS)}; all, if none is named")
    parser.add_argument("--runs", type=int, help="of each part; else what is listed for it")
    parser.add_argument("--quick", action="store_true", help="few runs, nothing stored")
    parser.add_argument("--draw", action="store_true", help="figures of stored results alone")
    args = parser.parse_args()
    if not set(args.parts) <= set(PARTS):
        parser.error(f"parts are {', '.join(PARTS)}")
    torch.set_num_threads(1)
    for part in args.parts or PARTS:
        runs, measure, draw_part = PARTS[part]
        runs = args.runs or runs
        if args.quick:
            rows = measure(max(2, runs // 25))
            print(part, *rows, sep="\n")
        elif not args.draw:
            start = time.process_time()
            rows = measure(runs)
            meta = {
                "records": "in the unit ball",
                "error": "standard error",
                "epsilon": EPSILON,
                "delta": "0.1/n" if part == "default" else DELTA,
                "compared_with": f"at most {LARGEST} of the private records"
                if part in ("default", "histogram")
                else "all private records",
                "cpu_seconds": round(time.process_time() - start),
            }
            record(f"evolution_{part}", rows, meta=meta)
        else:
            rows = json.loads((RESULTS / f"evolution_{part}.json").read_text())["rows"]
        if draw_part is not None and not args.quick:
            figure, legend = draw_part(rows)
            figures.save(figure, legend, IMAGES / f"evolution_{part}.png")


if __name__ == "__main__":
    main()
