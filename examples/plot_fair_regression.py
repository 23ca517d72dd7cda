r"""
Fair regression in the plane
============================

This example predicts two numbers for each person, privately, so that the predictions are alike
between two groups. With two outputs there are no positive decisions whose rates could be compared.
But the distance between two clouds of predictions is defined. The sliced Wasserstein distance is an
average over directions of distances on the line. Its gradient has a closed form, and one record can
change that gradient by a bounded amount only; noise of this size makes it private.
:doc:`/fair_learning` describes the method.
"""

# %%
# The records
# -----------
# Targets are uniform on the unit square. Those above the antidiagonal are of group A = 1 in 85 %
# of the cases. Half of the features repeat the targets with noise, the other half repeat the
# group.

import matplotlib.pyplot as plt
import numpy as np

from sklearn_dpgen.datasets import make_biased_labels
from sklearn_dpgen.domains import Box
from sklearn_dpgen.metrics import group_wasserstein_distance, over_diagonal_rates
from sklearn_dpgen.nn import Training
from sklearn_dpgen.sliced import ClippedGradient, DPSlicedWassersteinFairRegressor

train = make_biased_labels(20_000, agreement=0.85, random_state=0)
test = make_biased_labels(20_000, agreement=0.85, random_state=1)

# %%
# Four regressions
# ----------------
# ``y_domain`` is public: the square was known before anyone looked at a record. Predictions lie in
# it, and it bounds what a record can change. ``alpha`` is the weight of the penalty. The network is
# as small as possible, a linear map followed by a map into the square: noise is added to each
# parameter, so that at a small budget :math:`\varepsilon` fewer parameters are better.

predictions = {}
for epsilon in (np.inf, 1.0):
    for alpha in (0.0, 0.75):
        regressor = DPSlicedWassersteinFairRegressor(
            alpha,
            y_domain=Box(0, 1, n_features=2),
            epsilon=epsilon,
            training=Training(hidden_layer_sizes=(), learning_rate=0.05, max_iter=300),
            gradient=ClippedGradient(jacobian_clip=0.5, n_projections=20),
        )
        regressor.fit(train.X, train.y_continuous, sensitive_features=train.sensitive)
        predictions[epsilon, alpha] = regressor.predict(test.X)

# %%
# How far the groups are apart
# ----------------------------
# The over-diagonal rate of a group is its share of predictions above the antidiagonal of the
# square. The targets have 0.15 and 0.85; with parity both are equal. The distance is the square
# root of the penalty. Both read true records and are not private; the records here are simulated.


def describe(predicted):
    """Mean squared error, over-diagonal rates, distance between the groups."""
    groups = {"sensitive_features": test.sensitive}
    return (
        ((predicted - test.y_continuous) ** 2).sum(axis=1).mean(),
        *over_diagonal_rates(test.y_continuous, predicted, offset=1.0, **groups),
        group_wasserstein_distance(test.y_continuous, predicted, random_state=0, **groups),
    )


print("epsilon  alpha  squared error  rate of group 0  rate of group 1  distance")
for (epsilon, alpha), predicted in predictions.items():
    error, low, high, distance = describe(predicted)
    print(f"{epsilon:7g}  {alpha:5g}  {error:13.3f}  {low:15.2f}  {high:15.2f}  {distance:8.3f}")

# %%
# A cross marks the mean of each group. Without the penalty the clouds lie on different sides of the
# dashed antidiagonal. With it they overlap, and still spread over the square: the penalty is zero
# for any two equal distributions, so that predictions need not shrink to a point.

colours = {0: "#dd8a2e", 1: "#1f7a9c"}
names = {np.inf: r"$\varepsilon = \infty$", 1.0: r"$\varepsilon = 1$"}

figure, axes = plt.subplots(2, 2, figsize=(7.6, 8.2), sharex=True, sharey=True)
for axis, ((epsilon, alpha), predicted) in zip(axes.flat, predictions.items(), strict=True):
    # Both groups in one scatter, so that neither is drawn over the other.
    shown = slice(2500)
    axis.scatter(
        *predicted[shown].T,
        c=[colours[group] for group in test.sensitive[shown]],
        s=10,
        alpha=0.55,
        linewidths=0,
    )
    axis.plot([0, 1], [1, 0], color="black", linewidth=1, linestyle=(0, (4, 3)))
    for group, colour in colours.items():
        center = predicted[test.sensitive == group].mean(axis=0)
        style = {"marker": "X", "s": 130, "color": colour, "edgecolor": "black"}
        axis.scatter(*center, **style, label=f"group A = {group}", zorder=3)
    error, *rates, _ = describe(predicted)
    axis.set_title(rf"{names[epsilon]}, $\alpha = {alpha:g}$", loc="left", fontsize=11)
    figures = f"over-diagonal rates {rates[0]:.2f}, {rates[1]:.2f}"
    axis.set_title(figures, loc="right", fontsize=9, color="0.35")
    axis.set(xlim=(0, 1), ylim=(0, 1), aspect="equal", xticks=[0, 0.5, 1], yticks=[0, 0.5, 1])
    axis.tick_params(length=0, labelsize=8, labelcolor="0.4")
    axis.spines[:].set_color("0.85")
for axis in axes[1]:
    axis.set_xlabel("first output")
for axis in axes[:, 0]:
    axis.set_ylabel("second output")
axes[0, 0].legend(loc="lower left", fontsize=9, framealpha=0.9)
figure.tight_layout()
plt.show()

# %%
# What is guaranteed
# ------------------

print(regressor.privacy_)
