r"""
A private classifier that does not favour a group
=================================================

This example fits a classifier that is differentially private and whose scores are alike between two
groups. A lender decides by a score. Past decisions depended on the applicants' group, and half of
the features tell mostly the group. A classifier that learns from the past repeats this, and may
reveal records of applicants.

One fit prevents both. The loss gets a second term, the squared Wasserstein distance between the
groups' distributions of scores, with weight :math:`\alpha`. Every gradient is clipped and gets
noise, so that the whole fit is :math:`(\varepsilon, \delta)`-differentially private.
:doc:`/fair_learning` describes the method.
"""

# %%
# The records
# -----------
# Group A = 1 got the positive label in 70 % of the cases, group A = 0 in 30 %. Eight features
# depend on the label and eight on the group. The records are simulated, so that they may be looked
# at: the metrics below add no noise and are not private.

import matplotlib.pyplot as plt
import numpy as np

from sklearn_dpgen.datasets import make_biased_labels
from sklearn_dpgen.metrics import disparate_impact, group_wasserstein_distance
from sklearn_dpgen.nn import Training
from sklearn_dpgen.sliced import ClippedGradient, DPSlicedWassersteinFairClassifier

train = make_biased_labels(20_000, random_state=0)
test = make_biased_labels(20_000, random_state=1)

impact = disparate_impact(test.y, test.y, sensitive_features=test.sensitive)
print(f"disparate impact of the labels: {impact:.2f}")

# %%
# Four classifiers
# ----------------
# With and without privacy, with and without the penalty. ``disparate_impact`` is the rate of
# positive decisions in group 0 over that in group 1, and 1 is parity. Without hidden layers this
# is logistic regression: each parameter gets noise, so that with a small budget fewer parameters
# are better. No fit has a seed: whoever knows the seed of the noise can remove the noise.

scores = {}
for epsilon in (np.inf, 1.0):
    for alpha in (0.0, 0.75):
        classifier = DPSlicedWassersteinFairClassifier(
            alpha,
            epsilon=epsilon,
            classes=[0, 1],
            training=Training(hidden_layer_sizes=(), learning_rate=0.05, max_iter=300),
            gradient=ClippedGradient(jacobian_clip=0.5),
        )
        classifier.fit(train.X, train.y, sensitive_features=train.sensitive)
        scores[epsilon, alpha] = classifier.predict_proba(test.X)[:, 1]


def describe(score):
    """Accuracy, disparate impact and distance between the groups, at the threshold 1/2."""
    decision = (score > 0.5).astype(int)
    groups = {"sensitive_features": test.sensitive}
    return (
        (decision == test.y).mean(),
        disparate_impact(test.y, decision, **groups),
        group_wasserstein_distance(test.y, score, **groups),
    )


print("epsilon  alpha  accuracy  disparate impact  distance of the scores")
for (epsilon, alpha), score in scores.items():
    print("{:7g}  {:5g}  {:8.3f}  {:16.2f}  {:22.3f}".format(epsilon, alpha, *describe(score)))

# %%
# The upper row is without privacy, the lower row with it. On the left, without the penalty, the
# scores of the two groups are far apart, and the classifier is further from parity than the labels
# that it learned from. On the right, with the penalty, they overlap. Accuracy is lower, as it must
# be: these labels depend on the group, so predicting them well means following the group.

colours = {0: "#dd8a2e", 1: "#1f7a9c"}
names = {np.inf: r"$\varepsilon = \infty$", 1.0: r"$\varepsilon = 1$"}

figure, axes = plt.subplots(2, 2, figsize=(8.4, 5.2), sharex=True, sharey=True)
for axis, ((epsilon, alpha), score) in zip(axes.flat, scores.items(), strict=True):
    for group, colour in colours.items():
        axis.hist(
            score[test.sensitive == group],
            bins=np.linspace(0, 1, 41),
            density=True,
            color=colour,
            alpha=0.55,
            label=f"group A = {group}",
        )
    axis.axvline(0.5, color="black", linewidth=1, linestyle=(0, (4, 3)))
    accuracy, impact, _ = describe(score)
    title = rf"{names[epsilon]}, $\alpha = {alpha:g}$"
    axis.set_title(title, loc="left", fontsize=11)
    figures = f"accuracy {accuracy:.2f}, disparate impact {impact:.2f}"
    axis.set_title(figures, loc="right", fontsize=9, color="0.35")
    axis.set(xlim=(0, 1), yticks=[])
    axis.spines[["top", "right", "left"]].set_visible(False)
for axis in axes[1]:
    axis.set_xlabel("predicted probability of the positive label")
for axis in axes[:, 0]:
    axis.set_ylabel("density")
axes[0, 0].legend(frameon=False, loc="upper left", bbox_to_anchor=(0.12, 1), fontsize=9)
figure.tight_layout()
plt.show()

# %%
# At any threshold
# ----------------
# The penalty brings whole distributions together, and not the decisions at 1/2 alone. So with the
# private scores the gap between the groups is small at other thresholds too.

thresholds = np.linspace(0, 1, 201)
figure, axes = plt.subplots(1, 2, figsize=(8.4, 3.1), sharey=True)
for axis, alpha in zip(axes, (0.0, 0.75), strict=True):
    rates = {}
    for group, colour in colours.items():
        part = np.sort(scores[1.0, alpha][test.sensitive == group])
        rates[group] = 1 - np.searchsorted(part, thresholds, side="right") / len(part)
        axis.plot(thresholds, rates[group], color=colour, linewidth=2, label=f"group A = {group}")
    axis.fill_between(thresholds, rates[0], rates[1], color="0.88")
    axis.set_title(rf"{names[1.0]}, $\alpha = {alpha:g}$", loc="left", fontsize=11)
    axis.set(xlabel="threshold", xlim=(0, 1), ylim=(0, 1))
    axis.spines[["top", "right"]].set_visible(False)
axes[0].set_ylabel("share of positive decisions")
axes[1].legend(frameon=False)
figure.tight_layout()
plt.show()

# %%
# What is guaranteed
# ------------------
# The report of the last fit. It is complete before a gradient is computed, and lists what counts as
# public.

print(classifier.privacy_)
