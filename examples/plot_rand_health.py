"""
Synthetic health records from locally privatized ones
=====================================================

An insurer wants to know what drives visits to the doctor, and the participants do not want to
hand over their records. So nobody does: each record is randomized where it is, before anyone sees
it, and a generator of *raw* records is learned from the randomized ones alone.

The table is the RAND Health Insurance Experiment, one row a person and year. Everything that
``raw`` is used for below, apart from the one line that privatizes it, is to show how well it went.
"""

import argparse
import itertools
from pathlib import Path

import matplotlib.pyplot as plt
import numpy as np
import pandas as pd
from sklearn.ensemble import HistGradientBoostingClassifier
from sklearn.model_selection import train_test_split

from sklearn_dpgen.accounting import shuffled_epsilon
from sklearn_dpgen.datasets import load_rand_health
from sklearn_dpgen.deconvolution import EntropicDeconvGAN
from sklearn_dpgen.mechanisms import TabularMechanism
from sklearn_dpgen.metrics import marginal_total_variation, train_synthetic_test_real

parser = argparse.ArgumentParser(description="Synthetic health records, step by step.")
parser.add_argument("--output", type=Path, help="write the table, the figure and the report here")
output = parser.parse_args().output

# Fixed to show everybody the same figures. On your own records leave it at None: a guarantee is
# void for whoever knows the seed of the noise.
SEED = 0

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
# Privatize
# ---------
# A record may spend 10 nats: four shares of them on the visits that we want to predict, two on the
# diseases that should predict them, one on each other column. Columns are released by randomized
# response; the report says what that guarantees.

mechanism = TabularMechanism(
    epsilon=10.0,
    schema=health.schema,
    bins=bins,
    split={name: {"mdvis": 4, "disea": 2}.get(name, 1) for name in health.schema},
    random_state=SEED,
)
privatized = mechanism.fit_transform(raw)
print(mechanism.privacy_)
print(privatized.head())

# %%
# Learn the raw records
# ---------------------
# The cost of the transport is the mechanism's own log-likelihood, so the generator learns what the
# records were before the noise. This is post-processing: it costs no privacy.

gan = EntropicDeconvGAN(
    mechanism,
    activation="silu",
    hidden_layer_sizes=(128, 128),
    latent_dim=8,
    max_iter=1500,
    random_state=SEED,
    verbose=1,
)
gan.fit(privatized)
synthetic = gan.sample(len(raw), random_state=SEED)
print(synthetic.head())

# %%
# How well it went
# ----------------
# First the distance of every column to the raw one, then what an analyst is after: a model of who
# visits more than twice a year, trained on each table and tested on real records that nobody used.

variation = pd.DataFrame(
    {
        "privatized": marginal_total_variation(raw, privatized, health.schema),
        "synthetic": marginal_total_variation(raw, synthetic, health.schema),
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


scores = {"privatized": auc(privatized), "synthetic": auc(synthetic), "real": auc(raw)}
print("\nAUC on real records, more than 2 visits, trained on")
print("\n".join(f"  {name:<10}  {score:.3f}" for name, score in scores.items()))

# %%
# A picture of three columns, and of a pair: people with more chronic diseases visit more often.

PAPER, INK = "#fbfaf7", "#2d2a26"
COLOURS = {"raw": "#2d2a26", "privatized": "#c9a227", "synthetic": "#2a7f8e"}
tables = {"raw": raw, "privatized": privatized, "synthetic": synthetic}


def binned(table, name):
    """Return the public bins that a column's values fall in, as labels in order."""
    edges = bins[name]
    labels = [f"{low:.2g} to {high:.2g}" for low, high in itertools.pairwise(edges)]
    codes = np.minimum(np.searchsorted(edges, table[name], side="right"), len(labels)) - 1
    return pd.Categorical.from_codes(codes, labels, ordered=True)


def draw_marginal(ax, name, title):
    """Draw the share of each bin or value of a column, one bar a table."""
    shares = {
        k: pd.Series(binned(t, name) if name in bins else t[name]).value_counts(normalize=True)
        for k, t in tables.items()
    }
    pd.DataFrame(shares).sort_index().plot.bar(
        ax=ax, color=COLOURS, width=0.8, legend=False, rot=0, xlabel=""
    )
    ax.set_title(title, loc="left", fontsize=10)
    ax.tick_params(axis="x", labelsize=7)


def draw_pair(ax):
    """Draw the share with more than two visits against the index of diseases."""
    for name, table in tables.items():
        share = (table["mdvis"] > 2).groupby(binned(table, "disea"), observed=False).mean()
        ax.plot(share.index.astype(str), share, "o-", color=COLOURS[name])
    ax.set_title("Share with more than 2 visits, by index of diseases", loc="left", fontsize=10)
    ax.tick_params(axis="x", labelsize=8)


figure, axes = plt.subplots(2, 2, figsize=(10, 6.5), facecolor=PAPER)
draw_marginal(axes[0, 0], "mdvis", "Visits in a year (share)")
draw_marginal(axes[0, 1], "fmde", "Maximum expenditure, logarithm (share)")
draw_marginal(axes[1, 0], "lncoins", "Coinsurance, logarithm (share)")
draw_pair(axes[1, 1])
axes[0, 0].legend(COLOURS, frameon=False, fontsize=9)
for ax in axes.flat:
    ax.set_facecolor(PAPER)
    ax.spines[["top", "right"]].set_visible(False)
title = "RAND health: every record randomized at 10 nats, then learned back"
figure.suptitle(title, x=0.02, ha="left", fontsize=12, color=INK)
figure.tight_layout()

# %%
# What a shuffler would add: at a smaller budget, and when nobody can link a record to its sender,
# the local guarantee becomes a much stronger central one.

central = shuffled_epsilon(4.0, len(raw), 1e-6)
print(f"\n4 nats each, {len(raw)} rows shuffled: epsilon {central:.2f} at delta 1e-6")

if output is not None:
    output.mkdir(parents=True, exist_ok=True)
    synthetic.to_csv(output / "synthetic.csv", index=False)
    figure.savefig(output / "demo.png", dpi=120, facecolor=PAPER)
    (output / "privacy.txt").write_text(f"{gan.privacy_}\n")
    (output / "privacy.json").write_text(f"{gan.privacy_.to_json()}\n")
    print(f"\nWrote synthetic.csv, demo.png, privacy.txt and privacy.json to {output}/")
plt.show()
