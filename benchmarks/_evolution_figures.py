"""Figures of the simulations of private evolution."""

import math

import matplotlib.pyplot as plt
import numpy as np
from _evolution_runs import (
    DELTA,
    EPSILON,
    MULTIPLES,
    POINTS,
    POSTPROCESSING,
    SCHEDULES,
    SHAPES,
    SIZES,
    STARTS,
    TRIAL,
)

from sklearn_dpgen.accounting import gaussian_sigma


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


def draw_records(rows):
    figure, axes = panels(1, 1)
    names = {
        "theory": ("C1", "theory, last population"),
        "theory, last votes": ("C3", "theory, weighted last candidates"),
        "annealed": ("C0", "annealed (default)"),
    }
    for method, (color, label) in names.items():
        line(axes[0], chosen(rows, method=method, d=2), "n", label, color=color)
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
