r"""
Regression coefficients, with intervals that count the noise
============================================================

This example estimates regression coefficients from a private release, with intervals that account
for the noise. A synthetic table is not a sample of people: a regression that treats its rows as
records has biased coefficients, and intervals that are too narrow. The noisy counts behind the
table allow better estimates, at no further cost in privacy. :doc:`/inference` describes them.
"""

# %%
# Simulated patients
# ------------------
# The patients are simulated, so that the true coefficients are known. The target is whether a
# patient came. Two coefficients have opposite effects: older patients come more often and earn
# more, and those who earn more come less often. No fit has a seed.

import matplotlib.pyplot as plt
import numpy as np
import pandas as pd

from sklearn_dpgen.inference import combine_estimates, estimate_regression, sample_tables
from sklearn_dpgen.schema import Categorical, Numeric, Schema
from sklearn_dpgen.tables import TableSampler

TRUE = pd.Series({"age": 0.04, "income": -0.03, "smoker=yes": 0.7, "sex=m": -0.2, "site=b": 0.3})

rng = np.random.default_rng()
n = 20_000
age = np.clip(rng.normal(50, 15, n), 18, 95).round()
income = np.clip(rng.gamma(4, 5, n) + 0.4 * (age - 50), 0, 150)
smoker, sex, site = rng.random(n) < 0.25, rng.random(n) < 0.5, rng.random(n) < 0.4
logits = -0.6 + 0.04 * (age - 50) - 0.03 * (income - 20) + 0.7 * smoker - 0.2 * sex + 0.3 * site
patients = pd.DataFrame(
    {
        "age": age.astype(int),
        "income": income,
        "smoker": np.where(smoker, "yes", "no"),
        "sex": np.where(sex, "m", "f"),
        "site": np.where(site, "b", "a"),
        "came": rng.random(n) < 1 / (1 + np.exp(-logits)),
    }
)
schema = Schema(
    {
        "age": Numeric(18, 95, integer=True),
        "income": Numeric(0, 150),
        "smoker": Categorical(["no", "yes"]),
        "sex": Categorical(["f", "m"]),
        "site": Categorical(["a", "b"]),
        "came": Categorical([False, True]),
    }
)
sampler = TableSampler(1.0, 1e-6, schema=schema, target="came").fit(patients)

# %%
# The estimate
# ------------
# Synthetic rows are weighted so that their counts agree with the noisy tables, and the regression
# is solved with these weights. ``measured`` is the share of a coefficient that the released tables
# determine, and ``hidden`` the share that noise may hide. Where the first is small or the second
# large, ``promised`` is False: the level of the interval is then not promised.

features = ["age", "income", "smoker", "sex", "site"]
found = estimate_regression(sampler, "came", features, positive=True)
print(found.drop(columns=["low", "high"]).round(3).to_string())

# %%
# Any analysis, on several tables
# -------------------------------
# Any analysis of a table can be run on several synthetic tables, which differ by as much as the
# noise and the sampling leave uncertain. ``combine_estimates`` combines the results. Here the
# analysis is the same regression, so that both ways can be compared. The last method of the figure
# treats the rows of one synthetic table as records.


def logistic(frame):
    """Return coefficients and standard errors, as an analyst would."""
    X = pd.get_dummies(frame[features], drop_first=True, dtype=float)
    X = X.rename(columns=lambda name: name.replace("_", "="))
    X.insert(0, "intercept", 1.0)
    theta = np.zeros(X.shape[1])
    for _ in range(20):
        p = 1 / (1 + np.exp(-X.to_numpy() @ theta))
        curvature = (X.T * (p * (1 - p))).to_numpy() @ X.to_numpy()
        theta = theta + np.linalg.solve(curvature, X.T.to_numpy() @ (frame["came"] - p))
    return pd.Series(theta, X.columns), np.sqrt(np.diag(np.linalg.inv(curvature)))


combined = combine_estimates([logistic(table)[0] for table in sample_tables(sampler, 20)])
rows, errors = logistic(sampler.sample(n))
naive = pd.DataFrame({"estimate": rows, "low": rows - 1.96 * errors, "high": rows + 1.96 * errors})

# %%
# The figure has intervals of level 0.95, divided by the true coefficient: an interval that contains
# 1 is right. In this simulation the private records can be used as well, for comparison. This is a
# single run; :doc:`/inference` has the share of right intervals over many runs.

private, errors = logistic(patients)
truth = pd.DataFrame(
    {"estimate": private, "low": private - 1.96 * errors, "high": private + 1.96 * errors}
)
methods = {
    "the private records": truth,
    "estimate_regression": found,
    "20 tables, combined": combined,
    "synthetic rows as records": naive,
}
figure, axis = plt.subplots(figsize=(8, 4.2), layout="constrained")
colors = ["0.6", "#004488", "#6699cc", "#bb5566"]
for i, ((name, table), color) in enumerate(zip(methods.items(), colors, strict=True)):
    part = table.loc[TRUE.index].astype(float)
    # A negative coefficient turns its interval round.
    middle = part["estimate"] / TRUE
    ends = np.sort(part[["low", "high"]].to_numpy() / TRUE.to_numpy()[:, None], axis=1)
    places = np.arange(len(TRUE)) + 0.18 * (i - 1.5)
    reach = np.abs(ends.T - middle.to_numpy())
    axis.errorbar(places, middle, reach, fmt="o", ms=4, lw=2, color=color, label=name)
axis.axhline(1, color="0.2", lw=0.8, zorder=0)
axis.axhline(0, color="0.2", lw=0.8, ls=":", zorder=0)
axis.set_xticks(range(len(TRUE)), TRUE.index)
axis.set_ylabel("coefficient / true coefficient")
axis.spines[["top", "right"]].set_visible(False)
axis.legend(loc="upper center", bbox_to_anchor=(0.5, 1.15), ncol=2, frameon=False)
plt.show()
