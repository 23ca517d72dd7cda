r"""
A health survey from private votes
==================================

This example makes a synthetic table from noisy votes and counts, without training a model. The
curator holds the rows of the RAND Health Insurance Experiment. Synthetic rows are first drawn from
independent columns. Each private row votes for the synthetic row that is nearest to it; the votes
divide the rows into cells of similar people, and each cell is then counted by itself.
:doc:`/tables` has the sampler to try first; this one is described in :doc:`/evolution`.
"""

# %%
# What is public, and what is paid for
# ------------------------------------
# The schema and the bins are declared from the design of the study: an edge at three visits,
# because that is the question, and narrow bins at the ends of an indicator of which fractions are
# imputed. Whether a person saw a doctor more than twice is the label, as private as the rest of the
# row. No fit has a seed: whoever knows the seed of the noise can remove the noise.

import matplotlib.pyplot as plt
import numpy as np
import pandas as pd
from sklearn.ensemble import HistGradientBoostingClassifier
from sklearn.model_selection import train_test_split

from sklearn_dpgen.datasets import load_rand_health
from sklearn_dpgen.evolution import PrivateEvolutionSampler
from sklearn_dpgen.metrics import marginal_total_variation, train_synthetic_test_real
from sklearn_dpgen.tables import PrivateMixtureSampler

health = load_rand_health()
records, held_out = train_test_split(health.frame, test_size=0.3, random_state=1)
is_frequent = records["mdvis"] > 2
bins = {
    "mdvis": [0, 1, 2, 3, 4, 5, 7, 10, 14, 24],
    "lpi": 20,
    "fmde": 20,
    "physlm": [0, 0.05, 0.95, 1],
    "disea": [0, 3, 6, 9, 12, 15, 18, 21, 24, 30, 36, 60],
}
sampler = PrivateMixtureSampler(1.0, 1e-5, schema=health.schema, bins=bins, classes=[False, True])
sampler.fit(records, is_frequent)
synthetic = sampler.sample(len(records))
print(sampler.privacy_)

# %%
# Two columns together
# --------------------
# The share of each cell of visits and diseases, in the real rows and in two synthetic tables of the
# same guarantee. In ten dimensions a population has few rows near any record, so that evolution of
# the rows themselves ("votes for rows") stays coarse. Votes that only divide the records ("votes
# and cells") capture the dependence between columns, and the counts within the cells describe each
# column.

rows = PrivateEvolutionSampler(1.0, 1e-5, schema=health.schema).fit(records)
tables = {
    "real": records,
    "votes and cells": synthetic,
    "votes for rows": rows.sample(len(records)),
}


def shares(frame):
    visits = pd.cut(frame["mdvis"].clip(0, 24), [-1, 0, 2, 5, 24])
    diseases = pd.cut(frame["disea"].clip(0, 60), [0, 5, 10, 15, 60], include_lowest=True)
    return pd.crosstab(visits, diseases, normalize=True, dropna=False)


figure, axes = plt.subplots(1, 3, figsize=(9.5, 3.2), sharey=True)
for ax, (name, frame) in zip(axes, tables.items(), strict=True):
    table = shares(frame)
    ax.imshow(table, cmap="Blues", vmin=0, vmax=0.25, aspect="auto")
    for (row, column), share in np.ndenumerate(table.to_numpy()):
        color = "white" if share > 0.15 else "black"
        ax.text(column, row, f"{share:.2f}", ha="center", va="center", color=color)
    ax.set(title=name, xlabel="index of diseases", xticks=range(4), yticks=range(4))
    ax.set_xticklabels(["0-5", "5-10", "10-15", "15-60"])
axes[0].set_yticklabels(["0", "1-2", "3-5", "6-24"])
axes[0].set_ylabel("visits to a doctor")
figure.tight_layout()
plt.show()

# %%
# Quality of the synthetic rows
# -----------------------------
# The total variation to held-out rows, as a mean over all pairs of columns, and the AUC of a
# classifier that learned from the synthetic rows who sees a doctor more than twice.

for name, frame in tables.items():
    distance = marginal_total_variation(held_out, frame, health.schema, order=2).mean()
    score = train_synthetic_test_real(
        HistGradientBoostingClassifier(max_iter=60, random_state=0),
        frame,
        held_out,
        target="mdvis",
        target_transform=lambda visits: visits > 2,
    )
    print(f"{name:>15}: two-way total variation {distance:.3f}, AUC {score:.3f}")
