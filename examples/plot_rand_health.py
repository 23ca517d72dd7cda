"""
Synthetic health records from one randomized answer a person
============================================================

This example learns a table of health records although nobody collects a record. An insurer wants to
know who visits the doctor often, and the participants do not want to hand over their records. Each
person is asked about two columns and randomizes the answer before anyone sees it. A population of
raw records is learned from the answers alone. For comparison, the example also shows what a trusted
curator could publish. :doc:`/local_tables` describes the method.

The table is the RAND Health Insurance Experiment, one row for each person and year. The raw records
are read by the lines that randomize them and by the curator's line. All other uses of ``raw`` below
measure the quality of the results.
"""

import matplotlib.pyplot as plt
import numpy as np
import pandas as pd
from sklearn.ensemble import HistGradientBoostingClassifier
from sklearn.model_selection import train_test_split

from sklearn_dpgen.accounting import shuffled_epsilon
from sklearn_dpgen.datasets import load_rand_health
from sklearn_dpgen.mechanisms import JointRandomizedResponse, TabularMechanism
from sklearn_dpgen.metrics import marginal_total_variation, train_synthetic_test_real
from sklearn_dpgen.tables import LocalTableSampler, TableSampler

EPSILON = 4.0

# %%
# What is public
# --------------
# The schema declares the columns from the design of the study, not from the rows. The bins are
# declared too. Visits have an edge at three, because that is the question. The two logarithms of
# money have a bin for zero, and round sums around the plans' caps of 450 and 1000 dollars. An
# indicator of which fractions are imputed has narrow bins at its ends, and the index of diseases
# has steps of five.

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
# Each person has a budget ε of 4 nats, for one answer. It is about the visits, which we want to
# predict, and one other column that is drawn at random, without a look at the record. An answer
# stands for some of the cells of the two columns, and is more likely to contain the true cell. The
# report says what that guarantees. This runs where the record is, one person at a time if need be.
# Only the five columns below leave the device: what was asked, a number that determines how cells
# are grouped, the answer, the budget, and a digest of the declaration.

mechanism = JointRandomizedResponse(
    epsilon=EPSILON, schema=health.schema, n_bins=bins, always=("mdvis",)
)
answers = mechanism.fit_transform(raw)
print(mechanism.privacy_)
print(answers.head().to_string())

# %%
# Learn the raw records
# ---------------------
# The answers carry the mechanism, which computes how likely each answer is, given a record. So the
# population under which the answers are most likely is one of raw records, without the noise of the
# answers. This is post-processing: it costs no privacy.

local_sampler = LocalTableSampler().fit(answers)
local = local_sampler.sample(len(raw))
print(local.head().to_string())

# %%
# The same budget, split over all columns
# ---------------------------------------
# The usual way is to randomize every column of a record by itself: here with four shares of the
# budget for the visits, two for the diseases that should predict them, and one for each other
# column. The result is a table that can be read, but little of the information is left.

split = TabularMechanism(
    epsilon=EPSILON,
    schema=health.schema,
    n_bins=bins,
    split={name: {"mdvis": 4, "disea": 2}.get(name, 1) for name in health.schema},
)
randomized = split.fit_transform(raw)
print(randomized.head().to_string())

# %%
# If somebody may see the records
# -------------------------------
# A curator who holds all records can count, and add noise to the counts alone. The same 4 nats are
# then another guarantee: *central* privacy means that what is published tells little about any one
# record, while the curator sees all records. *Local* privacy, above, means that nobody sees a
# record. Central noise is much smaller, since it is added once to the counts of all people; but
# there must be a curator whom everybody trusts.

sampler = TableSampler(EPSILON, 1e-6, schema=health.schema).fit(raw)
central = sampler.sample(len(raw))
print(sampler.privacy_)

# %%
# Quality of the tables
# ---------------------
# The first table has the total variation of every column to the raw one. The column "bins" is the
# part that comes from the width of the public bins: the distance of the raw table in these bins,
# without any noise. A curator can find narrower bins. The second table has the AUC of a model of
# who visits more than twice a year, trained on each table and tested on real records that nobody
# used.

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
# Three columns and a pair
# ------------------------
# The last panel shows a dependence of two columns: people with more chronic diseases visit more
# often.

PAPER, INK = "#fbfaf7", "#2d2a26"
COLOURS = {"raw": "#2d2a26", "split": "#c9a227", "local": "#2a7f8e", "central": "#b0413e"}
MARKERS = dict(zip(COLOURS, "osD^", strict=True))
WORDS = {
    "raw": "raw",
    "split": "local, every column randomized",
    "local": "local, synthetic from joint answers",
    "central": "central, synthetic from a curator's counts",
}


LABELS = {
    "mdvis": ["0", "1 or 2", "3 to 5", "6 to 24"],
    "fmde": ["none", "to 400", "to 500", "to 900", "to 1100", "more"],
    "disea": ["0 to 5", "5 to 10", "10 to 15", "15 to 60"],
    "lncoins": ["0 %", "25 %", "50 %", "95 %", "100 %"],
}


def binned(table, name):
    """Return the public bins, or the declared values, of a column, as labels in order."""
    labels = LABELS[name]
    lower = bins[name][:-1] if name in bins else health.schema[name].categories
    codes = np.searchsorted(lower, table[name], side="right") - 1
    return pd.Categorical.from_codes(codes, labels, ordered=True)


def draw_marginal(ax, name, title):
    """Draw the share of each bin or value of a column, one bar a table."""
    shares = {
        k: pd.Series(binned(table, name)).value_counts(normalize=True)
        for k, table in tables.items()
    }
    pd.DataFrame(shares).sort_index().plot.bar(
        ax=ax, color=COLOURS, width=0.8, legend=False, rot=0, xlabel=""
    )
    ax.set_title(title, loc="left", fontsize=10)
    ax.tick_params(axis="x", labelsize=9)


def draw_pair(ax):
    """Draw the share with more than two visits against the index of diseases."""
    for name, table in tables.items():
        share = (table["mdvis"] > 2).groupby(binned(table, "disea"), observed=False).mean()
        ax.plot(share.index.astype(str), share, marker=MARKERS[name], color=COLOURS[name])
    ax.set_title("Share with more than 2 visits", loc="left", fontsize=10)
    ax.set_xlabel("index of diseases")
    ax.tick_params(axis="x", labelsize=9)


figure, axes = plt.subplots(2, 2, figsize=(10, 6.5), facecolor=PAPER)
draw_marginal(axes[0, 0], "mdvis", "Visits in a year: share of people")
draw_marginal(axes[0, 1], "fmde", "Maximum expenditure in dollars: share of people")
draw_marginal(axes[1, 0], "lncoins", "Coinsurance rate: share of people")
draw_pair(axes[1, 1])
for ax in axes.flat:
    ax.set_facecolor(PAPER)
    ax.spines[["top", "right"]].set_visible(False)
title = f"RAND health at ε = {EPSILON:g}: nobody sees a record (local), or a curator does (central)"
figure.suptitle(title, x=0.02, ha="left", fontsize=12, color=INK)
handles = axes[0, 0].get_legend_handles_labels()[0]
figure.legend(handles, WORDS.values(), loc="lower center", ncols=4, frameon=False, fontsize=9)
figure.tight_layout(rect=(0, 0.04, 1, 1))

# %%
# The guarantee with a shuffler
# -----------------------------
# If answers are shuffled, so that nobody can link an answer to its sender, the local guarantee
# becomes a central one with a much smaller budget.

shuffled = shuffled_epsilon(EPSILON, len(raw), 1e-6)
print(f"ε = {EPSILON:g} each, {len(raw)} answers shuffled: ε = {shuffled:.2f} at δ = 1e-6")

plt.show()
