"""Private evolution: the simulations of "Private evolution converges", and our default beside them.

Records lie in the unit ball and are uniform in its positive part, unless a shape is named. The
error is W1 between the private records and the weighted synthetic ones, exact (network simplex, or
sorting in one dimension); with its standard error over runs. Parts, each with a table and a figure:

records     against the number of records
settings    against the steps T and the size n_s of a population, the predicted ones marked
budget      against epsilon and against the dimension
start       from the first population to the last, for near and far first populations
histogram   thresholded Laplace against Gaussian noise, for crowded and for spread records
default     the default over sizes, dimensions, budgets and shapes
grid        one step on a grid (PrivateSignedMeasureSampler) against evolution
points      how many points a grid should have, for other shapes
"""

import argparse
import json
import math
import time
import warnings
from pathlib import Path

import matplotlib.pyplot as plt
import numpy as np
import ot
import torch
from _common import record
from scipy.stats import wasserstein_distance

from sklearn_dpgen.accounting import gaussian_sigma
from sklearn_dpgen.domains import Ball
from sklearn_dpgen.evolution import (
    EuclideanVariation,
    PrivateEvolutionSampler,
    PrivateSignedMeasureSampler,
    theory_parameters,
)

EPSILON, DELTA = 1.0, 1e-4
SIZES = (500, 1000, 2000, 5000)
# An earlier implementation at the paper's settings, 20 runs.
TRIAL = dict(zip(SIZES, (0.218, 0.167, 0.131, 0.100), strict=True))
TRIAL_RUNS = 20
SCHEDULES = ("theory", "annealed")
POSTPROCESSING = ("bounded_lipschitz", "simplex")
POINTS = (25, 50, 100, 200, 400, 800, 1600)
MULTIPLES = (0.25, 0.5, 1.0, 2.0, 4.0)
STARTS = ("uniform", "0", "0.25", "0.5", "0.75", "1")
SHAPES = ("quadrant", "clusters", "curve", "ball 1")
# Of private records that a result is compared with where there are more.
LARGEST = 3000
RESULTS = Path(__file__).parent / "results"
IMAGES = Path(__file__).parents[1] / "doc" / "images"


def evolution(schedule, d=2, **params):
    """Return the sampler at the paper's settings, or at ours."""
    if schedule == "theory":
        params = {"schedule": "theory", "postprocess": "threshold", **params}
    params = {"epsilon": EPSILON, "delta": DELTA, "domain": Ball(1.0, n_features=d), **params}
    return PrivateEvolutionSampler(**params)


def on_grid(d=2, **params):
    """Return the sampler of one step on a grid."""
    params = {"epsilon": EPSILON, "delta": DELTA, "domain": Ball(1.0, n_features=d), **params}
    return PrivateSignedMeasureSampler(**params)


class Start:
    """Candidates of the ball from a chosen first population; remembers the later ones."""

    def __init__(self, first):
        self.first = first
        self.inner = EuclideanVariation(Ball(1.0, n_features=2))
        self.populations = []

    def random(self, n, rng):
        """Draw the first population."""
        return self.first(n, rng)

    def vary(self, X, rng, degree):
        """Draw variations; a population is varied many times in a row."""
        if not self.populations or self.populations[-1] is not X:
            self.populations.append(X)
        return self.inner.vary(X, rng, degree)


def draw(shape, n, d, rng):
    """Draw private records in the unit ball."""
    ball = Ball(1.0, n_features=d)
    if shape == "quadrant":
        return abs(ball.sample(n, rng))
    if shape == "clusters":
        centers = 0.8 * ball.sample(5, rng)
        return ball.project(centers[rng.integers(5, size=n)] + 0.05 * rng.normal(size=(n, d)))
    if shape == "curve":
        t, j = rng.uniform(size=(n, 1)), np.arange(d)
        curve = np.cos(np.pi * (1 + j) * t + j) / math.sqrt(d)
        return ball.project(curve + 0.02 * rng.normal(size=(n, d)))
    return float(shape.removeprefix("ball ")) * ball.sample(n, rng)


def w1(X, V, weights=None):
    """Return W1 between records and weighted points."""
    weights = np.full(len(V), 1 / len(V)) if weights is None else weights
    V, weights = V[weights > 0], weights[weights > 0]
    if X.shape[1] == 1:
        return wasserstein_distance(X[:, 0], V[:, 0], v_weights=weights)
    costs = ot.dist(X, V, metric="euclidean")
    mass = np.full(len(X), 1 / len(X))
    return float(ot.emd2(mass, weights / weights.sum(), costs, numItermax=10**9))


def result(sampler):
    """Return the weighted points that records are drawn from."""
    return sampler.candidates_[0], sampler.weights_[0]


def last_votes(sampler):
    """Return the candidates of the last step with their weights."""
    last = sampler.history_[-1][0]
    return last.candidates, last.weights


def fit(sampler, X, run):
    """Fit, without the warnings of budgets that are small on purpose."""
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", category=UserWarning, message="The noise on|No candidate")
        return sampler.set_params(random_state=run).fit(X)


def mean_error(values):
    """Return mean, standard error and number of runs as the end of a row."""
    error = float(np.std(values, ddof=1)) / math.sqrt(len(values))
    return {"W1": float(np.mean(values)), "error": error, "runs": len(values)}


def compare(methods, runs, *, n, d=2, shape="quadrant", largest=None, fresh=False, **labels):
    """Return a row for each method: a sampler, or a pair of it and what is read from it.

    All see the same records. ``largest`` is how many of these a result is compared with; ``fresh``
    adds as many further records of the same law, without privacy, in the place of a result.
    """
    values = {name: [] for name in [*methods, *["fresh records"] * fresh]}
    for run in range(runs):
        spare = min(n, largest or n) * fresh
        X = draw(shape, n + spare, d, np.random.default_rng(run))
        X, others = X[:n], X[n:]
        for name, method in methods.items():
            sampler, read = method if isinstance(method, tuple) else (method, result)
            values[name].append(w1(X[:largest], *read(fit(sampler, X, run))))
        if fresh:
            values["fresh records"].append(w1(X[:largest], others))
    shared = {"shape": shape, "n": n, "d": d, **labels}
    return [{**shared, "method": name, **mean_error(found)} for name, found in values.items()]


def measure_records(runs):
    """Return errors against the number of records, and those of the earlier implementation."""
    rows, trial = [], []
    for n in SIZES:
        theory = evolution("theory")
        methods = {
            "theory": theory,
            "theory, last votes": (theory, last_votes),
            "annealed": evolution("annealed"),
        }
        rows += compare(methods, runs, n=n)
        found = rows[-len(methods)]
        error = found["error"] * math.sqrt(1 + runs / TRIAL_RUNS)
        gap = found["W1"] - TRIAL[n]
        trial.append({"n": n, "trial": TRIAL[n], "gap": gap, "error of gap": error})
    return rows + trial


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
        f"{schedule}, {histogram}": evolution(schedule, histogram=histogram)
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
                    "annealed", d, postprocess="bounded_lipschitz"
                ),
            }
            for postprocess in POSTPROCESSING:
                for n_points in ("auto", *POINTS):
                    name = f"{postprocess}, {n_points}"
                    methods[name] = on_grid(d, postprocess=postprocess, n_points=n_points)
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
                        d, epsilon=epsilon, postprocess=postprocess, n_points=round(c * base)
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


def chosen(rows, **values):
    """Return the rows with these values."""
    return [row for row in rows if all(row.get(key) == value for key, value in values.items())]


def line(ax, rows, key, label=None, style="o-", **options):
    """Draw errors against a column, with bars of two standard errors."""
    x, y, error = ([row[name] for row in rows] for name in (key, "W1", "error"))
    options = {"markersize": 4, "capsize": 2, "elinewidth": 1, "linewidth": 1.3, **options}
    ax.errorbar(x, y, 2 * np.array(error), fmt=style, label=label, **options)


def panels(n_rows, n_columns, **options):
    """Return a figure and its flat axes."""
    size = (0.6 + 3.7 * n_columns, 0.9 + 2.6 * n_rows)
    figure, axes = plt.subplots(n_rows, n_columns, figsize=size, squeeze=False, **options)
    return figure, axes.ravel()


def logarithmic(axis, ticks):
    """Make an axis logarithmic with ticks that can be read."""
    axis.axes.set(**{f"{axis.axis_name}scale": "log"})
    axis.set_ticks(ticks, [f"{tick:g}" for tick in ticks])
    axis.set_minor_locator(plt.NullLocator())


def draw_records(rows):
    figure, axes = panels(1, 1)
    names = {
        "theory": ("C1", "theory, last population"),
        "theory, last votes": ("C3", "theory, weighted last candidates"),
        "annealed": ("C0", "annealed (default)"),
    }
    for method, (color, label) in names.items():
        line(axes[0], chosen(rows, method=method), "n", label, color=color)
    axes[0].plot(TRIAL.keys(), TRIAL.values(), "kx", label="theory, earlier trial", zorder=3)
    logarithmic(axes[0].xaxis, SIZES)
    logarithmic(axes[0].yaxis, (0.03, 0.05, 0.1, 0.2, 0.3))
    axes[0].set(xlabel="records n", ylabel="W1", ylim=(0.025, 0.45))
    return figure, axes[0]


def draw_settings(rows):
    figure, axes = panels(1, 2, sharey=True)
    labels = {"n_iter": "steps T", "n_samples": "records of a population $n_s$"}
    for ax, (varied, label) in zip(axes, labels.items(), strict=True):
        for n, color in zip(SIZES, ("C0", "C1", "C2"), strict=False):
            found = chosen(rows, varied=varied, n=n)
            line(ax, found, "value", f"n = {n}", color=color)
            ax.axvline(found[0]["predicted"], color=color, linestyle=":")
        logarithmic(ax.xaxis, [row["value"] for row in found])
        ax.set(xlabel=f"{label} (dotted: predicted)")
    axes[0].set(ylabel="W1, last population", ylim=(0, 0.55))
    return figure, axes[0]


def draw_budget(rows):
    figure, axes = panels(1, 2)
    for ax, varied in zip(axes, ("epsilon", "d"), strict=True):
        for method, color in (("theory", "C1"), ("annealed", "C0"), ("fresh records", "0.5")):
            found = chosen(rows, varied=varied, method=method)
            if found:
                line(ax, found, "value", method, color=color)
        ax.set(ylim=(0, None), ylabel="W1")
    axes[0].set(xlabel="ε", title="n = 1000, d = 2")
    axes[1].set(xlabel="dimension d", title="n = 1000, ε = 1", xticks=range(1, 11))
    return figure, axes[1]


def draw_start(rows):
    figure, axes = panels(1, 2, sharey=True)
    for ax, schedule in zip(axes, SCHEDULES, strict=True):
        for start, color in zip(STARTS, ("k", "C0", "C1", "C2", "C3", "C4"), strict=True):
            label = "uniform in the disc" if start == "uniform" else f"(1 − 2β) S, β = {start}"
            line(ax, chosen(rows, schedule=schedule, start=start), "step", label, color=color)
        logarithmic(ax.yaxis, (0.05, 0.1, 0.2, 0.5, 1))
        ax.set(xlabel="step", title=schedule)
    axes[0].set_ylabel("W1 of the population, n = 1000")
    axes[1].set_xticks(range(4), [0, 1, 2, "result"])
    return figure, axes[0]


def draw_histogram(rows):
    figure, axes = panels(1, 2)
    for ax, radius in zip(axes, (0.02, 0.5), strict=True):
        for schedule, color in zip(SCHEDULES, ("C1", "C0"), strict=True):
            for histogram, style in (("gaussian", "o-"), ("laplace_threshold", "s--")):
                method = f"{schedule}, {histogram}"
                found = chosen(rows, shape=f"ball {radius}", method=method)
                line(ax, found, "n", method.replace("_", " "), style, color=color)
        logarithmic(ax.xaxis, (*SIZES, 20_000))
        ax.set(xlabel="records n", title=f"records in a ball of radius {radius:g}")
    logarithmic(axes[0].yaxis, (0.001, 0.003, 0.01, 0.03, 0.1))
    logarithmic(axes[1].yaxis, (0.02, 0.05, 0.1, 0.2, 0.5))
    axes[0].set_ylabel("W1")
    return figure, axes[1]


def draw_default(rows):
    figure, axes = panels(len(SHAPES), 3, sharex="col", sharey=True)
    columns = {
        "n": ("records n; d = 2, ε = 1", (200, 1000, 10_000, 100_000, 1_000_000)),
        "d": ("dimension d; n = 1000, ε = 1", (1, 2, 3, 5, 7, 10)),
        "epsilon": ("ε; n = 1000, d = 2", (0.1, 0.3, 1, 3, 10)),
    }
    styles = {"annealed": ("C0", "o-"), "grid": ("C2", "^--"), "fresh records": ("0.5", ":")}
    cases = [(shape, varied) for shape in SHAPES for varied in columns]
    for ax, (shape, varied) in zip(axes, cases, strict=True):
        for method, (color, style) in styles.items():
            found = chosen(rows, varied=varied, shape=shape, method=method)
            line(ax, found, varied, method, style, color=color)
        label, ticks = columns[varied]
        logarithmic(ax.xaxis, ticks)
        logarithmic(ax.yaxis, (0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1))
        ax.set_ylim(0.008, 1)
        if varied == "n":
            ax.set_ylabel(f"W1, {shape.replace('ball 1', 'whole ball')}")
        if shape == SHAPES[-1]:
            ax.set_xlabel(label)
    return figure, axes[1]


def draw_grid(rows):
    figure, axes = panels(2, 3)
    cases = [(n, d) for n in (1000, 5000) for d in (1, 2, 3)]
    for ax, (n, d) in zip(axes, cases, strict=True):
        for postprocess, color in zip(POSTPROCESSING, ("C2", "C4"), strict=True):
            found = [chosen(rows, n=n, d=d, method=f"{postprocess}, {m}")[0] for m in POINTS]
            found = [{**row, "m": m} for row, m in zip(found, POINTS, strict=True)]
            line(ax, found, "m", f"grid, {postprocess.replace('_', ' ')}", color=color)
        evolved = chosen(rows, n=n, d=d, method="annealed")[0]["W1"]
        ax.axhline(evolved, color="C0", label="annealed evolution")
        signal = n / gaussian_sigma(EPSILON, DELTA, math.sqrt(2))
        ax.axvline(signal ** (2 / 3 if d == 1 else 1), color="0.5", linestyle=":", label="auto")
        logarithmic(ax.xaxis, POINTS)
        logarithmic(ax.yaxis, (0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5))
        ax.set(title=f"d = {d}, n = {n}", xlabel="points of the grid", ylabel="W1")
        ax.set_ylim(0.6 * evolved, None)
    return figure, None


def draw_points(rows):
    figure, axes = panels(1, 3, sharey=True)
    rows = [row for row in rows if "postprocess" in row]
    for ax, d in zip(axes, (1, 2, 3), strict=True):
        for postprocess, style in zip(POSTPROCESSING, ("o-", "s--"), strict=True):
            for row, color in zip(
                chosen(rows, d=d, postprocess=postprocess), ("C0", "C1", "C2"), strict=True
            ):
                ratios = [row[f"c = {c:g}"] for c in MULTIPLES]
                label = f"N = {row['N']}, {postprocess.replace('_', ' ')}"
                ax.plot(MULTIPLES, ratios, style, color=color, label=label, markersize=4)
        logarithmic(ax.xaxis, MULTIPLES)
        points = "c N^(2/3)" if d == 1 else "c N"
        ax.set(xlabel=f"c: a grid of {points} points", title=f"d = {d}", ylim=(0.95, 3))
        ax.axvline(1, color="0.5", linestyle=":")
    axes[0].set_ylabel("W1 over that of the best c")
    return figure, None


def save(figure, legend, path):
    """Finish a figure; the legend goes into an axis, or below where there is none."""
    if legend is not None:
        legend.legend(frameon=False, fontsize=8)
    else:
        handles, labels = figure.axes[0].get_legend_handles_labels()
        figure.legend(
            handles, labels, frameon=False, fontsize=8, loc="outside lower center", ncols=3
        )
    for ax in figure.axes:
        ax.spines[["top", "right"]].set_visible(False)
    figure.set_layout_engine("constrained")
    figure.savefig(path, dpi=110)
    plt.close(figure)


# Runs of each part.
PARTS = {
    "records": (100, measure_records, draw_records),
    "settings": (50, measure_settings, draw_settings),
    "budget": (50, measure_budget, draw_budget),
    "start": (100, measure_start, draw_start),
    "histogram": (50, measure_histogram, draw_histogram),
    "default": (20, measure_default, draw_default),
    "grid": (40, measure_grid, draw_grid),
    "points": (8, measure_points, draw_points),
}


def main():
    """Run the named parts; print and store their tables, draw their figures."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("parts", nargs="*", help=f"of {', '.join(PARTS)}; all, if none is named")
    parser.add_argument("--quick", action="store_true", help="few runs, nothing stored")
    parser.add_argument("--draw", action="store_true", help="figures of stored results alone")
    args = parser.parse_args()
    if not set(args.parts) <= set(PARTS):
        parser.error(f"parts are {', '.join(PARTS)}")
    torch.set_num_threads(1)
    for part in args.parts or PARTS:
        runs, measure, draw_part = PARTS[part]
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
        figure, legend = draw_part(rows)
        if not args.quick:
            save(figure, legend, IMAGES / f"evolution_{part}.png")


if __name__ == "__main__":
    main()
