"""
How much randomized answers tell, by budget and number of people
================================================================

This example shows how much can be learned about a table if nobody sees a record, at which budget
and from how many people. Each person is asked about a few columns and randomizes one joint answer
before it leaves the device. For comparison, the same budgets are split over all columns of a
record, as is usual. :doc:`/local_tables` describes both ways.
"""

# %%
# Ask, then learn
# ---------------
# The table is the RAND Health Insurance Experiment, with one row for each year of a participant.
# The schema and the bins are public: they follow from the design of the study and from the
# question, who sees a doctor more than twice. Everybody is asked about the visits and about other
# columns that are drawn at random: one of nine at budgets ε of 1 to 4 nats, four of them at 8.

import argparse
from pathlib import Path

import matplotlib.pyplot as plt
import numpy as np
import pandas as pd
from matplotlib.colors import to_rgb
from matplotlib.ticker import PercentFormatter

from sklearn_dpgen.datasets import load_rand_health
from sklearn_dpgen.mechanisms import JointRandomizedResponse, TabularMechanism
from sklearn_dpgen.tables import LocalTableSampler

parser = argparse.ArgumentParser(description="One joint answer a person, at four budgets.")
parser.add_argument("--output", type=Path, help="write the figure here")
output = parser.parse_args().output

health = load_rand_health()
raw = health.frame
declared = {
    "schema": health.schema,
    "n_bins": {
        "mdvis": [0, 1, 3, 6, 24],
        "lpi": [0, *np.log([1.01, 400, 500, 900, 1100]), 7.2],
        "fmde": [0, *np.log([1.01, 400, 500, 900, 1100]), 8.3],
        "physlm": [0, 0.05, 0.95, 1],
        "disea": [0, 5, 10, 15, 60],
    },
}
budgets = [1.0, 2.0, 4.0, 8.0]
mechanisms, joint, split = {}, {}, {}
for epsilon in budgets:
    mechanism = JointRandomizedResponse(epsilon, **declared, always=("mdvis",)).fit()
    answers = mechanism.transform(raw)
    mechanisms[epsilon] = mechanism
    joint[epsilon] = LocalTableSampler().fit(answers).sample(100_000)
    split[epsilon] = TabularMechanism(epsilon, **declared).fit_transform(raw)
    print(f"\nε = {epsilon:g}, each about {mechanism.n_asked_} columns; the first answers:")
    print(answers[["asked", "grouping", "answer"]].head(3).to_string(index=False))

# %%
# What was learned, and what was expected
# ---------------------------------------
# *Upper row.* People with more chronic diseases see the doctor more often. In the rows of the split
# budget this dependence is lost. The joint answers show it at ε = 4; at 1 or 2 there are too few
# people, and the result differs from run to run.
#
# *Lower left.* A single column is easier: its large share at zero is learned well from ε = 2 on.
#
# *Lower right.* The lines need no records: ``expected_variation`` computes, before anyone is asked,
# the expected error of a table of two columns, for an unbiased estimate from so many answers.
# Diamonds are the errors of the populations that were fitted here. They tend to lie below the
# lines, because a fitted population is shrunk towards independent columns and has less noise.


def binned(table, name):
    """Return the public bins that the values of a column fall in, as integers."""
    edges = declared["n_bins"][name]
    return np.minimum(np.searchsorted(edges, table[name], side="right"), len(edges) - 1) - 1


def shares(table, *names):
    """Return the share of the rows in each bin, or pair of bins."""
    counts = pd.crosstab(binned(table, names[0]), binned(table, names[-1]), normalize=True)
    sizes = [range(len(declared["n_bins"][name]) - 1) for name in (names[0], names[-1])]
    table = counts.reindex(index=sizes[0], columns=sizes[1], fill_value=0.0).to_numpy()
    return table if len(names) > 1 else np.diag(table)


def frequent(table):
    """Return the share with more than two visits, by index of diseases."""
    return (table["mdvis"] > 2).groupby(binned(table, "disea")).mean()


PAPER, INK = "#fbfaf7", "#2d2a26"
TEAL, GOLD = "#2a7f8e", "#c9a227"


def shade(colour, epsilon):
    """Return a colour that is stronger for a larger budget."""
    depth = [0.35, 0.55, 0.78, 1.0][budgets.index(epsilon)]
    return tuple(depth * np.array(to_rgb(colour)) + (1 - depth) * np.array(to_rgb(PAPER)))


figure, axes = plt.subplots(2, 2, figsize=(10, 7.2), facecolor=PAPER, layout="constrained")

titles = {"one joint answer": (joint, TEAL, "D"), "a split budget": (split, GOLD, "s")}
for ax, (title, (tables, colour, marker)) in zip(axes[0], titles.items(), strict=True):
    ax.plot(frequent(raw), "o-", color=INK, linewidth=2.5, label="raw")
    for epsilon, table in tables.items():
        style = {"marker": marker, "color": shade(colour, epsilon), "label": f"ε = {epsilon:g}"}
        ax.plot(frequent(table), **style)
    ax.set_title(f"Share with more than 2 visits: {title}", loc="left", fontsize=10)
    ax.set(xticks=range(4), xticklabels=["0 to 5", "5 to 10", "10 to 15", "15 to 60"])
    ax.set(ylim=(0.2, 0.62), xlabel="index of diseases")
    ax.yaxis.set_major_formatter(PercentFormatter(1, decimals=0))
    ax.legend(frameon=False, fontsize=9, loc="upper left", ncols=2)

ax = axes[1, 0]
tables = {"raw": (raw, INK)}
tables |= {f"joint answers, ε = {e:g}": (joint[e], shade(TEAL, e)) for e in budgets}
tables |= {f"split budget, ε = {e:g}": (split[e], shade(GOLD, e)) for e in budgets[-1:]}
width = 0.85 / len(tables)
for i, (name, (table, colour)) in enumerate(tables.items()):
    x = np.arange(6) + (i - (len(tables) - 1) / 2) * width
    ax.bar(x, shares(table, "fmde"), width, color=colour, label=name)
ax.set_title("Maximum expenditure", loc="left", fontsize=10)
ax.set_xlabel("dollars a year")
ax.set_xticks(range(6), ["none", "to 400", "to 500", "to 900", "to 1100", "more"])
ax.yaxis.set_major_formatter(PercentFormatter(1, decimals=0))
ax.legend(frameon=False, fontsize=9, loc="upper center")

ax = axes[1, 1]
people = np.geomspace(1e3, 1e7, 41)
pair = ("mdvis", "disea")
for epsilon, mechanism in mechanisms.items():
    expected = mechanism.expected_variation(1).loc[pair] / np.sqrt(people)
    colour = shade(TEAL, epsilon)
    ax.plot(people, expected, color=colour)
    ax.annotate(f"ε = {epsilon:g}", (people[-1], expected[-1]), (4, -3), textcoords="offset points")
    error = np.abs(shares(joint[epsilon], *pair) - shares(raw, *pair)).sum() / 2
    ax.plot(len(raw), error, "D", color=colour, markeredgecolor=INK, zorder=3)
ax.axvline(len(raw), color=INK, linewidth=0.8, linestyle=":")
ax.annotate("this survey", (len(raw), 1.0), (4, -10), textcoords="offset points", fontsize=9)
ax.set(xscale="log", yscale="log", ylim=(5e-4, 1), xlabel="people who answer", xlim=(1e3, 4e7))
ax.set_yticks([0.001, 0.01, 0.1, 1], ["0.001", "0.01", "0.1", "1"])
ax.set_title("Visits by diseases: error (total variation)", loc="left", fontsize=10)

for ax in axes.flat:
    ax.set_facecolor(PAPER)
    ax.spines[["top", "right"]].set_visible(False)
if output is not None:
    output.mkdir(parents=True, exist_ok=True)
    figure.savefig(output / "local_tables.png", dpi=110, facecolor=PAPER)
plt.show()
