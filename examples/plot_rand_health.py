"""
Synthetic health records from one randomized answer a person
============================================================

An insurer wants to know what drives visits to the doctor, and the participants do not want to
hand over their records. So nobody does: each person is asked about two columns, randomizes the
answer before anyone sees it, and a population of *raw* records is learned from the answers alone.
Beside it is what a curator could publish whom everybody trusts with the records.

The table is the RAND Health Insurance Experiment, one row a person and year. Everything that
``raw`` is used for below, apart from the lines that privatize it and the line of the curator, is to
show how well it went.
"""

import itertools

import matplotlib.pyplot as plt
import numpy as np
import pandas as pd
from sklearn.ensemble import HistGradientBoostingClassifier
from sklearn.model_selection import train_test_split

from sklearn_dpgen.accounting import shuffled_epsilon
from sklearn_dpgen.datasets import load_rand_health
from sklearn_dpgen.mechanisms import JointRandomizedResponse, TabularMechanism
from sklearn_dpgen.metrics import marginal_total_variation, train_synthetic_test_real
from sklearn_dpgen.tables import LocalTableSampler, SlicedMeasureSampler

EPSILON = 4.0

# %%
# What is public
# --------------
# The schema declares the columns from the design of the study, not from the rows. The bins are
# declared too: a cut at three visits, because that is the question; for the two logarithms of money
# nothing at all, and round sums around the plans' caps of 450 and 1000 dollars; the ends of an
# indicator of which fractions are imputed; steps of five for the index of diseases.

health = load_rand_health()
raw, held_out = train_test_split(health.frame, test_size=0.3, random_state=1)

bins = {
    "mdvis": [0, 1, 3, 6, 24],
    "lpi": [0, *np.log([1.01, 400, 500, 900, 1100]), 7.2],
    "fmde": [0, *np.log([1.01, 400, 500, 900, 1100]), 8.3],
    "physlm": [0, 0.05, 0.95, 1],
    "disea": [0, 5, 10, 15, 60],
}

# %%
# Ask
# ---
# A person may spend 4 nats, on one answer. It is about the visits that we want to predict, and one
# other column, drawn by chance without a look at the record. An answer stands for some of the cells
# of the two columns, more likely for ones with the true cell among them; the report says what that
# guarantees. This runs where the record is, one person at a time if need be, and only the five
# public columns below leave it: what was asked, a number that tells how it was grouped, the answer,
# and which budget and which declaration it was given under.

mechanism = JointRandomizedResponse(
    epsilon=EPSILON, schema=health.schema, bins=bins, always=("mdvis",)
)
answers = mechanism.fit_transform(raw)
print(mechanism.privacy_)
print(answers.head().to_string())

# %%
# Learn the raw records
# ---------------------
# The mechanism knows how likely each answer is, given a record. The population under which the
# answers are likeliest has therefore no noise in it. This is post-processing: it costs no privacy.

local_sampler = LocalTableSampler(mechanism).fit(answers)
local = local_sampler.sample(len(raw))
print(local.head().to_string())

# %%
# The same budget, spread thinly
# ------------------------------
# The usual way is to randomize every column of a record: four shares of the budget for the visits,
# two for the diseases that should predict them, one for each other column. That is a table that one
# can read, and there is little left in it.

split = TabularMechanism(
    epsilon=EPSILON,
    schema=health.schema,
    bins=bins,
    split={name: {"mdvis": 4, "disea": 2}.get(name, 1) for name in health.schema},
)
randomized = split.fit_transform(raw)
print(randomized.head().to_string())

# %%
# If somebody may see the records
# -------------------------------
# A curator who holds all records can count, and add noise to the counts alone. The same 4 nats are
# then another promise: *central*, that what is published tells little of any one record, but to the
# curator. The *local* one above is that nobody sees a record as it is. Central noise is much
# smaller, for it hides in the counts of all; but there must be somebody to trust.

sampler = SlicedMeasureSampler(EPSILON, 1e-6, schema=health.schema).fit(raw)
central = sampler.sample(len(raw))
print(sampler.privacy_)

# %%
# How well it went
# ----------------
# First the distance of every column to the raw one, and what of it is the width of the public bins:
# the distance of the raw table in these bins, without any noise. A curator can afford to find
# narrower ones. Then what an analyst is after: a model of who visits more than twice a year,
# trained on each table and tested on real records that nobody used.

tables = {"raw": raw, "split": randomized, "local": local, "central": central}
in_bins = mechanism.decode(mechanism.encoder_.transform(raw), np.random.default_rng(0))
variation = pd.DataFrame(
    {
        name: marginal_total_variation(raw, table, health.schema)
        for name, table in (tables | {"bins": in_bins}).items()
        if name != "raw"
    }
)
print("\nTotal variation to the raw column")
print(pd.concat([variation, variation.mean().to_frame("mean").T]).round(3).to_string())


def auc(table):
    """Train on a table, test on real records: more than two visits."""
    model = HistGradientBoostingClassifier(max_iter=60, random_state=0)
    return train_synthetic_test_real(
        model, table, held_out, target="mdvis", target_transform=lambda visits: visits > 2
    )


promises = {
    "split": split.privacy_,
    "local": local_sampler.privacy_,
    "central": sampler.privacy_,
}
print("\nAUC on real records, more than 2 visits, trained on")
for name, table in tables.items():
    promise = "no privacy"
    if name in promises:
        report = promises[name]
        promise = f"epsilon {report.epsilon:g}, delta {report.delta:g}; {report.neighbouring}"
    print(f"  {name:<7}  {auc(table):.3f}  {promise}")

# %%
# A picture of three columns, and of a pair: people with more chronic diseases visit more often.

PAPER, INK = "#fbfaf7", "#2d2a26"
COLOURS = {"raw": "#2d2a26", "split": "#c9a227", "local": "#2a7f8e", "central": "#b0413e"}
MARKERS = dict(zip(COLOURS, "osD^", strict=True))
WORDS = {
    "raw": "raw",
    "split": "local, every column randomized",
    "local": "local, synthetic from joint answers",
    "central": "central, synthetic from a curator's counts",
}


def binned(table, name):
    """Return the public bins that a column's values fall in, as labels in order."""
    edges = bins[name]
    labels = [f"{low:.2g} to {high:.2g}" for low, high in itertools.pairwise(edges)]
    codes = np.minimum(np.searchsorted(edges, table[name], side="right"), len(labels)) - 1
    return pd.Categorical.from_codes(codes, labels, ordered=True)


def draw_marginal(ax, name, title):
    """Draw the share of each bin or value of a column, one bar a table."""
    shares = {}
    for k, table in tables.items():
        values = binned(table, name) if name in bins else table[name].round(2)
        shares[k] = pd.Series(values).value_counts(normalize=True)
    pd.DataFrame(shares).sort_index().plot.bar(
        ax=ax, color=COLOURS, width=0.8, legend=False, rot=0, xlabel=""
    )
    ax.set_title(title, loc="left", fontsize=10)
    ax.tick_params(axis="x", labelsize=7)


def draw_pair(ax):
    """Draw the share with more than two visits against the index of diseases."""
    for name, table in tables.items():
        share = (table["mdvis"] > 2).groupby(binned(table, "disea"), observed=False).mean()
        ax.plot(share.index.astype(str), share, marker=MARKERS[name], color=COLOURS[name])
    ax.set_title("Share with more than 2 visits, by index of diseases", loc="left", fontsize=10)
    ax.tick_params(axis="x", labelsize=8)


figure, axes = plt.subplots(2, 2, figsize=(10, 6.5), facecolor=PAPER)
draw_marginal(axes[0, 0], "mdvis", "Visits in a year (share)")
draw_marginal(axes[0, 1], "fmde", "Maximum expenditure, logarithm (share)")
draw_marginal(axes[1, 0], "lncoins", "Coinsurance, logarithm (share)")
draw_pair(axes[1, 1])
for ax in axes.flat:
    ax.set_facecolor(PAPER)
    ax.spines[["top", "right"]].set_visible(False)
title = (
    f"RAND health at {EPSILON:g} nats: nobody sees a record (local), or a curator does (central)"
)
figure.suptitle(title, x=0.02, ha="left", fontsize=12, color=INK)
handles = axes[0, 0].get_legend_handles_labels()[0]
figure.legend(handles, WORDS.values(), loc="lower center", ncols=4, frameon=False, fontsize=9)
figure.tight_layout(rect=(0, 0.04, 1, 1))

# %%
# What a shuffler would add: when nobody can link an answer to its sender, the local guarantee
# becomes a much stronger central one.

shuffled = shuffled_epsilon(EPSILON, len(raw), 1e-6)
print(f"\n{EPSILON:g} nats each, {len(raw)} answers shuffled: epsilon {shuffled:.2f} at delta 1e-6")

plt.show()
