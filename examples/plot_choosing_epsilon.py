"""
Choosing epsilon
================

This example shows, for several budgets epsilon, what a release lets the best attacker find, and how
well a model learns from it. Both are known before the release. The first follows from the plan of a
fit, the second from synthetic rows of a first, cheap fit, which stand in for the private rows. The
table is the RAND Health Insurance Experiment; :doc:`/choosing_epsilon` explains the figures.
"""

import matplotlib.pyplot as plt
import numpy as np

from sklearn_dpgen.datasets import load_rand_health
from sklearn_dpgen.model_selection import privacy_utility_curve, utility_scorer
from sklearn_dpgen.reporting import TradeOffDisplay
from sklearn_dpgen.schema import Schema
from sklearn_dpgen.tables import TableSampler

health = load_rand_health()
columns = ["mdvis", "lncoins", "disea", "physlm", "hlthp"]
records = health.frame[columns]
schema = Schema({name: health.schema[name] for name in columns})
sampler = TableSampler(delta=1e-6, schema=schema, target="mdvis")

# %%
# What the best attacker finds
# ----------------------------
# A plan reads no record. Its privacy profile gives the largest true positive rate of any attack,
# for each false positive rate.

plans = {
    f"ε = {epsilon:g}": sampler.set_params(epsilon=epsilon).plan(len(records))
    for epsilon in (0.1, 0.3, 1.0, 3.0, 10.0)
}
print(plans["ε = 1"].attack_risk())

# %%
# How well a model learns
# -----------------------
# Synthetic rows of a fit at ε = 0.3 stand in for the records. For each budget a sampler is fitted
# to a part of them, a model learns visits to a doctor from what it draws, and the model is tested
# on the other part. The score is one minus the mean absolute error over the range of 24 visits. The
# true rows are used as well here, to show that both curves have the same form; that curve is not
# private.

stand_in = sampler.set_params(epsilon=0.3).fit(records).sample(len(records), random_state=0)
visits = utility_scorer("mdvis", target_range=(0, 24), public_rows=True, random_state=0)
epsilons = [0.1, 0.3, 1.0, 3.0, 10.0, np.inf]
curves = {
    name: privacy_utility_curve(
        sampler, rows, epsilons, scoring=visits, n_repeats=2, public_rows=True, random_state=0
    )
    for name, rows in {"private rows": records, "synthetic stand-ins": stand_in}.items()
}

# %%
# Where a curve on the right is flat, a larger budget gains nothing for this task. The dotted lines
# are fits without noise.

fig, (left, right) = plt.subplots(1, 2, figsize=(10, 4), layout="constrained")
TradeOffDisplay.from_reports(plans, ax=left)
for name, curve in curves.items():
    curve.name = name
    curve.plot(ax=right)
left.set_title("What the best attacker finds")
right.set_title("How well visits are predicted")
right.set_ylabel("1 - mean absolute error / 24")
plt.show()
