"""
What a private fit releases, and what it says
=============================================

The pictures of the tutorial (:doc:`/tutorial`): what a private fit of a health survey released,
what is drawn from it, and what it says about the question of the survey. People who pay a part of
each bill see a doctor less often: does the release show it, and how sure can a reader be? The table
is the RAND Health Insurance Experiment, one row a participant and year.
"""

import matplotlib.pyplot as plt
import numpy as np
import pandas as pd
from sklearn.linear_model import LogisticRegression

from sklearn_dpgen.datasets import load_rand_health
from sklearn_dpgen.inference import estimate_regression
from sklearn_dpgen.reporting import MarginalDisplay
from sklearn_dpgen.schema import Implication, Schema
from sklearn_dpgen.tables import TableSampler

# %%
# The fit
# -------
# Eight columns, their public declarations, and the rule that health is rated once.

health = load_rand_health()
columns = ["mdvis", "lncoins", "idp", "physlm", "disea", "hlthg", "hlthf", "hlthp"]
survey = health.frame[columns]
sampler = TableSampler(
    epsilon=1.0,
    delta=1e-6,
    schema=Schema({name: health.schema[name] for name in columns}),
    target="mdvis",
    constraints=[
        Implication({"hlthg": 1}, then={"hlthf": 0, "hlthp": 0}),
        Implication({"hlthf": 1}, then={"hlthp": 0}),
    ],
)
sampler.fit(survey)

# %%
# What was released
# -----------------
# Bars are noisy counts, with two standard deviations of their noise; points are synthetic rows. No
# real row is in this picture, and it may be published.

figure, axes = plt.subplots(1, 2, figsize=(10, 4), layout="constrained")
for ax, name, words in zip(
    axes, ["mdvis", "lncoins"], ["visits in a year", "ln(coinsurance + 1)"], strict=True
):
    MarginalDisplay.from_estimator(sampler, name, ax=ax)
    ax.set_xlabel(words)
plt.show()

# %%
# What it says
# ------------
# Coefficients of a logistic regression of more than two visits, with intervals of 95 percent. They
# are computed from the release alone, and include its noise. The interval of a hollow point is
# not promised: the release holds too little of it. Crosses are the coefficients of the real
# rows. They are for this picture alone, and would not be published.

features = ["idp", "lncoins", "disea"]
found = estimate_regression(sampler, "mdvis", features, positive=pd.Interval(2, 24))
found = found.drop(index="intercept")
model = LogisticRegression(C=np.inf, max_iter=1000)
real = model.fit(survey[features], survey["mdvis"] > 2).coef_[0]
print(found[["estimate", "low", "high", "promised"]].round(2))

figure, ax = plt.subplots(figsize=(7, 2.6), layout="constrained")
labels = {"idp=1": "individual deductible", "lncoins": "ln(coinsurance + 1)", "disea": "diseases"}
for place, row in enumerate(found.itertuples()):
    ax.plot([row.low, row.high], [place, place], color="C0", linewidth=2)
    fill = "C0" if row.promised else "white"
    ax.plot(row.estimate, place, "o", color="C0", markerfacecolor=fill, markersize=8)
ax.plot(real, np.arange(len(real)), "x", color="0.2", markersize=9, label="real rows")
ax.axvline(0, color="0.7", linewidth=1, zorder=0)
ax.set_yticks(range(len(found)), [labels[name] for name in found.index])
ax.set(ylim=(len(found) - 0.5, -0.5), xlabel="coefficient of more than two visits")
ax.legend(loc="lower left")
plt.show()
