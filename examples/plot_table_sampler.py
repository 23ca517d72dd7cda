r"""
A health survey from noisy counts
=================================

This example makes a synthetic health survey and looks at each step: the released counts, the bins,
the quality of the synthetic rows, and samples under conditions. The curator holds the rows of the
RAND Health Insurance Experiment. Only tables of noisy counts are computed from the rows: of each
column, of pairs, and of triples that were selected privately. A distribution is fitted to these
tables at no cost in privacy, with as few further assumptions as possible, and new records are drawn
from it. :doc:`/tables` describes the method.
"""

# %%
# What is public, and what is paid for
# ------------------------------------
# The schema declares the bounds and the categories of the columns from the design of the study.
# The bins of numbers are found privately, from the first counts. The visits to a doctor are what
# somebody will predict, so they are the ``target``: their tables get more of the budget. A row is
# one year of one participant, and each participant has several rows: the guarantee is for a row,
# not for a person. The fit has no seed: whoever knows the seed of the noise can remove the noise.

import matplotlib.pyplot as plt
import numpy as np
import pandas as pd
from matplotlib.colors import PowerNorm
from sklearn.ensemble import HistGradientBoostingClassifier
from sklearn.linear_model import LogisticRegression
from sklearn.model_selection import train_test_split
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from sklearn_dpgen.datasets import load_rand_health
from sklearn_dpgen.metrics import marginal_total_variation, train_synthetic_test_real
from sklearn_dpgen.tables import TableSampler

health = load_rand_health()
records, held_out = train_test_split(health.frame, test_size=0.3, random_state=0)
sampler = TableSampler(1.0, 1e-5, schema=health.schema, target="mdvis").fit(records)
synthetic = sampler.sample(len(records))
print(sampler.privacy_)

# %%
# Tables of pairs: real, released, synthetic
# ------------------------------------------
# Three of the 45 tables of pairs: of the real records, as they were released, and of the synthetic
# records. The number of cells is chosen so that most counts are larger than the noise, which is
# about forty records in each cell. Grey cells have released counts below zero. The fitted
# distribution has no such counts, and has to agree with all tables at once. Cells of numbers are
# labelled by their lower ends.

encoder = sampler.encoder_
phrases = {
    "mdvis": "visits to a doctor",
    "disea": "index of diseases",
    "lncoins": "coinsurance, ln(% + 1)",
    "fmde": "maximum expenditure, ln($)",
    "lpi": "incentive payment, ln($)",
}


def counts(frame, part):
    rows = encoder.transform(frame)
    first, second = (
        rows[:, encoder.blocks_[name]] @ np.eye(size)[groups]
        for name, groups, size in zip(part.columns, part.groups, part.counts.shape, strict=True)
    )
    return first.T @ second


def starts(part, axis):
    _, first = np.unique(part.groups[axis], return_index=True)
    name = part.columns[axis]
    values = sampler.bins_.get(name, getattr(health.schema[name], "labels", None))
    return ["<0.01" if 0 < values[i] < 0.01 else f"{values[i]:.3g}" for i in first]


released = {part.columns: part for part in sampler.marginals_}
pairs = [("mdvis", "disea"), ("lncoins", "fmde"), ("lpi", "fmde")]
cmap = plt.get_cmap("viridis").with_extremes(under="0.8")
layout = {"layout": "constrained", "sharex": "row", "sharey": "row", "height_ratios": [4, 3, 4]}
figure, axes = plt.subplots(3, 3, figsize=(11, 9.5), **layout)
for row, pair in zip(axes, pairs, strict=True):
    part = released[pair]
    real = counts(records, part)
    tables = {"real": real, "released": part.counts, "synthetic": counts(synthetic, part)}
    norm = PowerNorm(0.5, vmin=0, vmax=real.max())
    for ax, (name, table) in zip(row, tables.items(), strict=True):
        mesh = ax.pcolormesh(table, cmap=cmap, norm=norm)
        error = np.sqrt(np.mean((table - real) ** 2))
        title = name if name == "real" else f"{name}, off by {error:.0f} a cell"
        ax.set_title(title, loc="left", fontsize=10)
    for axis, place in ((row[0].yaxis, 0), (row[0].xaxis, 1)):
        axis.set_ticks(np.arange(real.shape[place]), starts(part, place))
    for ax in row:
        ax.tick_params(axis="x", rotation=90)
        ax.set_xlabel(f"{phrases[pair[1]]}, from")
    row[0].set_ylabel(f"{phrases[pair[0]]}, from")
    figure.colorbar(mesh, ax=row, label="records in a cell", extend="min", pad=0.01)
plt.show()

# %%
# The bins that were found
# ------------------------
# In a survey the same few values are frequent. A column is counted on a tree of intervals, and an
# interval is split if a count below it is larger than the noise. A value that is more frequent than
# its neighbours has its own bin, and is drawn as the roundest number of that bin. Other values are
# spread over their bin. Pairs and triples join such bins into groups that are large enough for
# their noise, and the fit combines both.
#
# The figure has the share of records in each of 360 cells, upwards the real and downwards the
# synthetic records. Shares are on a square root scale. Red ticks are the edges of bins.


def signed_root(share):
    return np.sign(share) * np.sqrt(np.abs(share))


def signed_square(root):
    return np.sign(root) * root**2


figure, axes = plt.subplots(2, 1, figsize=(9, 6.5), layout="constrained")
for ax, name in zip(axes, ("disea", "lpi"), strict=True):
    edges = sampler.bins_[name]
    cells = np.linspace(edges[0], edges[-1], 361)
    upwards, downwards = (np.histogram(frame[name], cells)[0] for frame in (records, synthetic))
    ax.stairs(upwards / len(records), cells, fill=True, color="#e69f00", label="real")
    ax.stairs(-downwards / len(synthetic), cells, fill=True, color="#004488", label="synthetic")
    ax.axhline(0, color="0.3", linewidth=0.6)
    ax.set_yscale("function", functions=(signed_root, signed_square))
    shares = np.array([-0.2, -0.1, -0.02, 0, 0.02, 0.1, 0.2])
    ax.set_yticks(shares, [f"{abs(share):g}" for share in shares])
    ax.set_xticks(edges, minor=True)
    ax.tick_params(axis="x", which="minor", direction="in", length=9, color="#bb5566")
    ax.set(xlabel=phrases[name], ylabel="share of records")
    ax.set(xlim=(-0.01 * edges[-1], edges[-1]), ylim=(-0.28, 0.28))
    ax.spines[["top", "right"]].set_visible(False)
axes[0].legend(frameon=False)
plt.show()

# %%
# Quality of the synthetic rows
# -----------------------------
# The total variation to held-out rows, as a mean over all pairs of columns, and the AUC of two
# classifiers that learned from the synthetic rows who sees a doctor more than twice. If single
# columns alone are counted, synthetic columns are independent, and a classifier can find nothing
# but chance. These are single runs: the AUC of boosting changes by 0.02 or 0.03 from one fit to
# another. Real rows have an advantage here: rows of one person are in both parts, and boosting
# recognizes persons.

models = {
    "AUC, boosting": HistGradientBoostingClassifier(max_iter=60, random_state=0),
    "AUC, logistic": make_pipeline(StandardScaler(), LogisticRegression()),
}


def drawn(epsilon, **options):
    other = TableSampler(epsilon, 1e-5, schema=health.schema, **options)
    return other.fit(records).sample(len(records))


tables = {
    "independent, epsilon 1": drawn(1.0, marginals=[]),
    "no target, epsilon 1": drawn(1.0),
    "target, epsilon 0.2": drawn(0.2, target="mdvis"),
    "target, epsilon 1": synthetic,
    "target, epsilon 5": drawn(5.0, target="mdvis"),
    "real": records,
}
scores = {}
for name, frame in tables.items():
    distance = marginal_total_variation(held_out, frame, health.schema, order=2).mean()
    scores[name] = {"2-way total variation": distance} | {
        label: train_synthetic_test_real(
            model, frame, held_out, target="mdvis", target_transform=lambda visits: visits > 2
        )
        for label, model in models.items()
    }
print(pd.DataFrame(scores).T.round(3).to_string())

# %%
# Samples under conditions
# ------------------------
# ``conditions`` draws records with given values, however rare: here 5000 for each state of health,
# in plans with and without an individual deductible. A range is a ``pandas.Interval``, such as
# ``conditions={"disea": pd.Interval(15, 60)}``. ``effective_size`` is the number of rows, of 20000
# weighted ones, that such a sample is worth. It does not account for the noise: people in poor
# health are so few that the noise hides their visits, and the sample has the visits of all others.
#
# Below each state of health are the number of real records and the effective size.

states = {
    "excellent": {"hlthg": 0, "hlthf": 0, "hlthp": 0},
    "good": {"hlthg": 1, "hlthf": 0, "hlthp": 0},
    "fair": {"hlthg": 0, "hlthf": 1, "hlthp": 0},
    "poor": {"hlthg": 0, "hlthf": 0, "hlthp": 1},
}
figure, axes = plt.subplots(1, 2, figsize=(9, 3.6), sharey=True, layout="constrained")
for ax, deductible in zip(axes, (0, 1), strict=True):
    labels = []
    for x, (state, values) in enumerate(states.items()):
        conditions = values | {"idp": deductible}
        alike = records[(records[list(conditions)] == pd.Series(conditions)).all(axis=1)]
        rows = sampler.sample(5000, conditions=conditions)
        share = (alike["mdvis"] > 2).mean()
        spread = 2 * np.sqrt(share * (1 - share) / len(alike))
        bar = ax.errorbar(x - 0.08, share, spread, fmt="o", color="#e69f00")
        (point,) = ax.plot(x + 0.08, (rows["mdvis"] > 2).mean(), "D", color="#004488")
        size = sampler.effective_size(conditions)
        labels.append(f"{state}\n{len(alike)} records\n{size:.0f} rows")
    ax.set_title(f"{'with' if deductible else 'no'} individual deductible", loc="left", fontsize=10)
    ax.set(xticks=range(4), xticklabels=labels, xlim=(-0.5, 3.5), ylim=(0.1, 0.8))
    ax.spines[["top", "right"]].set_visible(False)
axes[0].set_ylabel("share with more than 2 visits")
axes[0].legend(
    [bar, point], ["real, 2 standard errors", "synthetic"], frameon=False, loc="upper left"
)
plt.show()

# %%
# Choosing parameters
# -------------------
# ``GridSearchCV`` takes the sampler like any other estimator. Its ``score`` is minus the distance
# of all pairs in cells that the schema alone determines: bins and marginals can be compared.
# But each fit of a search spends the budget once more, and the score reads the records that it is
# given without noise. So search on a public table, and fit once on the private one; :doc:`/ledger`
# has a search at a known price.
