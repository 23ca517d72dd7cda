"""
Choosing epsilon
================

What does a budget allow an attacker, and what does it buy? Both are known before a release: the
first from the plan of a fit, the second from synthetic rows of a first and cheap fit, which stand
in for the private ones. The table is the RAND Health Insurance Experiment.
"""

import matplotlib.pyplot as plt
import numpy as np

from sklearn_dpgen.datasets import load_rand_health
from sklearn_dpgen.inspection import TradeOffDisplay
from sklearn_dpgen.model_selection import privacy_utility_curve, utility_scorer
from sklearn_dpgen.schema import Schema
from sklearn_dpgen.tables import SlicedMeasureSampler

health = load_rand_health()
columns = ["mdvis", "lncoins", "disea", "physlm", "hlthp"]
records = health.frame[columns]
schema = Schema({name: health.schema[name] for name in columns})
sampler = SlicedMeasureSampler(delta=1e-6, schema=schema, target="mdvis")

# %%
# The best attacker
# -----------------
# A plan reads no record. Its privacy profile says which share of cases anybody can find, for each
# share of false alarms.

plans = {
    f"ε = {epsilon:g}": sampler.set_params(epsilon=epsilon).plan(len(records))
    for epsilon in (0.1, 0.3, 1.0, 3.0, 10.0)
}
print(plans["ε = 1"].attack_risk())

# %%
# The task
# --------
# Synthetic rows of a fit at ε = 0.3 stand in for the records. A predictor of the visits to a doctor
# is fitted on what a sampler draws after a fit to them, and tested on others of them. The true rows
# are used as well here, to show that the stand-in tells the same; that curve is not private.

stand_in = sampler.set_params(epsilon=0.3).fit(records).sample(len(records), random_state=0)
visits = utility_scorer("mdvis", target_range=(0, 24), public_rows=True, random_state=0)
epsilons = [0.1, 0.3, 1.0, 3.0, 10.0, np.inf]
curves = {
    name: privacy_utility_curve(
        sampler, rows, epsilons, scoring=visits, n_repeats=3, public_rows=True, random_state=0
    )
    for name, rows in {"private rows": records, "synthetic stand-ins": stand_in}.items()
}

# %%
# Both flatten where more budget buys nothing for this task.

fig, (left, right) = plt.subplots(1, 2, figsize=(10, 4), layout="constrained")
TradeOffDisplay.from_reports(plans, ax=left)
for name, curve in curves.items():
    curve.name = name
    curve.plot(ax=right)
left.set_title("What the best attacker finds")
right.set_title("How well visits are predicted")
plt.show()
