r"""
Patients and their visits
=========================

This example synthesizes patients together with their visits, and shows what survives: the paths of
single patients, how often they come, and how their therapy changes from one visit to the next. A
clinic has two tables, patients and visits, that are linked by a key. A patient is protected with
all visits. :doc:`/persons` describes the method.
"""

# %%
# Two tables
# ----------
# The patients are simulated. Each has a blood pressure of a level that lasts, and comes in some of
# eight years. Drugs lower the pressure. Another one is given after a high value, and one is taken
# away now and then after a low one.

import matplotlib.pyplot as plt
import numpy as np
import pandas as pd
from matplotlib import colormaps

from sklearn_dpgen.schema import Categorical, Numeric, Ordinal, RelationalSchema, Schema, Table
from sklearn_dpgen.tables import RelationalSampler

THERAPY = ["none", "one drug", "two drugs"]

rng = np.random.default_rng(0)
n = 10_000
smoker = rng.random(n) < 0.3
level = rng.normal(np.where(smoker, 138, 126), 14)
therapy, visits = np.zeros(n, dtype=int), []
for year in range(2017, 2025):
    pressure = (level - 6 * therapy + rng.normal(0, 6, n)).round().clip(80, 220).astype(int)
    came = rng.random(n) < np.where(smoker, 0.35, 0.75)
    seen = np.array(THERAPY, dtype=object)[therapy]
    rows = pd.DataFrame({"patient": range(n), "year": year, "pressure": pressure, "therapy": seen})
    visits.append(rows[came])
    raised, lowered = pressure > 140, (pressure < 130) & (rng.random(n) < 0.4)
    therapy = np.where(came, np.clip(therapy + raised - lowered, 0, 2), therapy)
real = {
    "patients": pd.DataFrame({"patient": range(n), "smoker": np.where(smoker, "yes", "no")}),
    "visits": pd.concat(visits).sort_values(["patient", "year"], ignore_index=True),
}
print(real["visits"].head(8).to_string(index=False))

# %%
# Fit and sample
# --------------
# The schema says how the tables are linked, which column orders the visits, and how many visits a
# patient can have. All of this is public. The fit has no seed: whoever knows the seed can remove
# the noise. Synthetic patients have new keys.

schema = RelationalSchema(
    {
        "patients": Table(Schema({"smoker": Categorical(["no", "yes"])}), primary_key="patient"),
        "visits": Table(
            Schema(
                {
                    "year": Numeric(2017, 2024, integer=True),
                    "pressure": Numeric(80, 220, integer=True),
                    "therapy": Ordinal(THERAPY),
                }
            ),
            foreign_key={"patient": "patients"},
            sequence_index="year",
            max_rows=8,
            ties=False,
        ),
    }
)
sampler = RelationalSampler(epsilon=1.0, delta=1e-6, schema=schema).fit(real)
synthetic = sampler.sample(n)
print(sampler.privacy_.precision["cell of one column"])

# %%
# What survives
# -------------
# *Top:* each line is one patient, and each circle a visit, which is filled if the patient takes
# drugs. The synthetic patients are copies of nobody, but their lines are of the same kind: some
# years are skipped, those with a high pressure take drugs, and a high value follows a high one.
#
# *Bottom left:* how many patients come how often. Smokers come less often, which the synthetic ones
# do too. *Bottom right:* the next therapy, of a hundred visits with the therapy of the row. Few
# patients have two drugs, so noise changes the last row most.

COLOURS = {"real": "#e69f00", "synthetic": "#004488"}


def draw_lines(ax, table, colormap, title):
    """Draw six patients with at least five visits, from the lowest to the highest mean pressure."""
    patients = table.groupby("patient")["pressure"].agg(["mean", "size"]).query("size >= 5")
    ranks = patients["mean"].rank(pct=True)
    chosen = [(ranks - level).abs().idxmin() for level in (0.02, 0.2, 0.4, 0.6, 0.8, 0.98)]
    shades = colormaps[colormap](np.linspace(0.4, 1, len(chosen)))
    for key, shade in zip(chosen, shades, strict=True):
        rows = table[table["patient"] == key]
        faces = [shade if drugs else "white" for drugs in rows["therapy"] != "none"]
        ax.plot(rows["year"], rows["pressure"], color=shade, linewidth=1.2)
        ax.scatter(rows["year"], rows["pressure"], 28, faces, edgecolors=[shade], zorder=3)
    ax.set_title(title, loc="left", fontsize=10)
    ax.spines[["top", "right"]].set_visible(False)


def transitions(table):
    """Return the percentages of the next therapy, in the rows of the therapy."""
    following = table.groupby("patient")["therapy"].shift(-1)
    counts = pd.crosstab(table["therapy"], following, normalize="index")
    return 100 * counts.reindex(index=THERAPY, columns=THERAPY, fill_value=0).to_numpy()


figure = plt.figure(figsize=(11, 7.2), layout="constrained")
top, bottom = figure.subfigures(2, 1, height_ratios=[1, 1])
for ax, (name, tables) in zip(
    top.subplots(1, 2, sharey=True), {"real": real, "synthetic": synthetic}.items(), strict=True
):
    colormap = "YlOrBr" if name == "real" else "Blues"
    draw_lines(ax, tables["visits"], colormap, f"Six {name} patients, filled: on drugs")
    ax.set_xlabel("year of the visit")
top.axes[0].set_ylabel("blood pressure (mmHg)")

axes = bottom.subplots(1, 4, width_ratios=[1, 1, 1.25, 1.25])
for ax, group in zip(axes[:2], ("no", "yes"), strict=True):
    for name, tables in {"real": real, "synthetic": synthetic}.items():
        patients = tables["patients"].set_index("patient")
        sizes = tables["visits"].groupby("patient").size().reindex(patients.index, fill_value=0)
        shares = sizes[patients["smoker"] == group].value_counts(normalize=True)
        shares = 100 * shares.reindex(range(9), fill_value=0)
        offset = -0.2 if name == "real" else 0.2
        ax.bar(shares.index + offset, shares, 0.4, color=COLOURS[name], label=name)
    ax.set(xlabel="visits in eight years", xticks=range(0, 9, 2), ylim=(0, 36))
    ax.set_title("Smokers" if group == "yes" else "Non-smokers", loc="left", fontsize=10)
    ax.spines[["top", "right"]].set_visible(False)
axes[0].set_ylabel("percent of the patients")
axes[0].legend(frameon=False)
for ax, (name, tables) in zip(
    axes[2:], {"real": real, "synthetic": synthetic}.items(), strict=True
):
    table = transitions(tables["visits"])
    ax.imshow(table, cmap="Blues", vmin=0, vmax=100)
    for (row, column), value in np.ndenumerate(table):
        ink = "white" if value > 55 else "black"
        ax.text(column, row, f"{value:.0f}", ha="center", va="center", color=ink)
    ax.set_xticks(range(3), THERAPY)
    ax.set_yticks(range(3), THERAPY if name == "real" else [])
    ax.set_xlabel("therapy at the next visit")
    ax.set_title(f"Next therapy in percent, {name}", loc="left", fontsize=10)
axes[1].set_yticks([])
axes[2].set_ylabel("therapy at a visit")
plt.show()

# %%
# What fades
# ----------
# A synthetic visit depends on the patient and on the visit before, and not on earlier ones. So the
# level of a patient lasts from one visit to the next, but is lost over many of them, where that of
# a real patient stays. What should last must be a column of the patients.


def correlations(table):
    """Return the correlation of the pressures of two visits, by their distance."""
    groups = table.groupby("patient")["pressure"]
    return [table["pressure"].corr(groups.shift(-lag)) for lag in range(1, 6)]


figure, ax = plt.subplots(figsize=(6, 3.2), layout="constrained")
for name, tables in {"real": real, "synthetic": synthetic}.items():
    ax.plot(range(1, 6), correlations(tables["visits"]), "o-", color=COLOURS[name], label=name)
ax.set(xlabel="visits later", ylabel="correlation of the pressures", ylim=(0, 1))
ax.set(xticks=range(1, 6))
ax.spines[["top", "right"]].set_visible(False)
ax.legend(frameon=False)
plt.show()
