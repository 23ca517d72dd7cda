"""
A first synthetic table
=======================

This example makes a synthetic table that may be published. A curator holds a survey and may reveal
nothing about any row. Only noisy counts are computed from the rows: of each column, of pairs and of
triples of columns. Synthetic rows are drawn from a distribution that fits these counts, and cost no
further privacy. :doc:`/tables` describes the method, :doc:`/tutorial` all steps from a codebook to
a published table.
"""

# %%
# Declare, fit, sample
# --------------------
# The schema says what the columns can hold. It comes from the questionnaire, not from the answers:
# values outside the bounds are clipped. A row is one year of one participant, so the guarantee is
# for one year of a participant's answers. ``target`` is the column that somebody will predict from
# the others; it may be left out.

import argparse
from pathlib import Path

import matplotlib.pyplot as plt
import numpy as np
from matplotlib.colors import PowerNorm

from sklearn_dpgen.datasets import load_rand_health
from sklearn_dpgen.schema import Categorical, Numeric, Schema
from sklearn_dpgen.tables import TableSampler

parser = argparse.ArgumentParser(description="Counts with noise, and rows that fit them.")
parser.add_argument("--output", type=Path, help="write the figure here")
output = parser.parse_args().output

survey = load_rand_health().frame[["mdvis", "disea", "idp", "hlthp"]]
schema = Schema(
    {
        "mdvis": Numeric(0, 24, integer=True),
        "disea": Numeric(0, 60),
        "idp": Categorical([0, 1]),
        "hlthp": Categorical([0, 1]),
    }
)
sampler = TableSampler(epsilon=1.0, delta=1e-6, schema=schema, target="mdvis")
synthetic = sampler.fit(survey).sample(len(survey))
print(synthetic.head().to_string())
print(sampler.privacy_)

# %%
# Private, published and synthetic counts
# ---------------------------------------
# The same counts three times: of the survey, as they were published with noise, and of the
# synthetic rows. Cells are so wide that most counts are larger than the noise; the counts of single
# columns, which are published too, are much finer. A grey cell has a published count below zero, as
# noise makes of some empty cells.

encoder = sampler.encoder_
(released,) = (part for part in sampler.marginals_ if part.columns == ("mdvis", "disea"))


def members(frame, axis):
    rows = encoder.transform(frame)[:, encoder.blocks_[released.columns[axis]]]
    return rows @ np.eye(released.counts.shape[axis])[released.groups[axis]]


def counts(frame):
    return members(frame, 0).T @ members(frame, 1)


def labels(axis):
    _, first = np.unique(released.groups[axis], return_index=True)
    lowest = sampler.bins_[released.columns[axis]][first]
    return [f"{low:.3g}" for low in (np.ceil(lowest) if axis == 0 else lowest)]


panels = {
    f"{len(survey)} private rows": counts(survey),
    "published counts, with noise": released.counts,
    f"{len(survey)} synthetic rows": counts(synthetic),
}
cmap = plt.get_cmap("viridis").with_extremes(under="0.8")
norm = PowerNorm(0.4, vmin=0, vmax=panels[f"{len(survey)} private rows"].max())
figure, axes = plt.subplots(1, 3, figsize=(12, 4.2), sharey=True, layout="constrained")
for ax, (title, table) in zip(axes, panels.items(), strict=True):
    mesh = ax.pcolormesh(table, cmap=cmap, norm=norm)
    ax.set_title(title, loc="left", fontsize=12)
    for axis, place, step in ((ax.yaxis, 0, 1), (ax.xaxis, 1, 2)):
        axis.set_ticks(np.arange(0, table.shape[place], step), labels(place)[::step])
    ax.set_xlabel("index of chronic diseases, from")
axes[0].set_ylabel("visits to a doctor, from")
figure.colorbar(mesh, ax=axes, label="rows in a cell", extend="min", pad=0.01)
if output is not None:
    output.mkdir(parents=True, exist_ok=True)
    figure.savefig(output / "first_table.png", dpi=110)
plt.show()
