"""
A first synthetic table
=======================

A curator holds a survey and may publish nothing about any row of it. What leaves the curator's
hands are counts with noise, of each column, of pairs and of triples of columns; synthetic rows are
drawn from a law that fits these counts, and are as free as they are.
"""

# %%
# Declare, fit, sample
# --------------------
# The schema says what the columns can hold. It comes from the questionnaire, not from the answers:
# values outside of the bounds are clipped. A row is one year of one participant, and so the
# guarantee is for a year of somebody's answers. ``target`` is the column that somebody will predict
# from the others; it may be left out.

import argparse
from pathlib import Path

import matplotlib.pyplot as plt
import numpy as np
from matplotlib.colors import PowerNorm

from sklearn_dpgen.datasets import load_rand_health
from sklearn_dpgen.schema import Categorical, Numeric, Schema
from sklearn_dpgen.tables import SlicedMeasureSampler

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
sampler = SlicedMeasureSampler(epsilon=1.0, delta=1e-6, schema=schema, target="mdvis")
synthetic = sampler.fit(survey).sample(len(survey))
print(synthetic.head())
print(sampler.privacy_)

# %%
# What went in, what came out, and what follows from it
# -----------------------------------------------------
# The same counts, thrice: of the survey, as they were published, and of the synthetic rows. Cells
# are as wide as keeps them clear of the noise; the counts of single columns, which are published
# too, are much finer. A grey cell was published with less than nothing in it, which is what noise
# does to an empty one.

encoder = sampler.encoder_
(released,) = (part for part in sampler.slices_ if part.columns == ("mdvis", "disea"))


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
    "what is published: counts with noise": released.counts,
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
