r"""
Synthetic points from private votes
===================================

This example makes synthetic points without training a model. Public candidates are spread over a
disc. Each private record votes for the nearest candidate, and the votes are published with noise.
Candidates with votes are kept and varied, a little less at each step. The candidates of the last
step, with weights from their noisy votes, are the synthetic points. :doc:`/evolution` describes the
method.
"""

# %%
# Votes
# -----
# Private are 5000 points on two arcs. Public is that they lie in the unit disc. A record has one
# vote a step, wherever it lies and whatever the candidates are. So another record in its place
# changes two counts by one; the guarantee follows from this alone. No fit has a seed: whoever knows
# the seed of the noise can remove the noise.

import matplotlib.pyplot as plt
import numpy as np
import ot

from sklearn_dpgen.domains import Ball
from sklearn_dpgen.evolution import PrivateEvolutionSampler, PrivateSignedMeasureSampler

rng = np.random.default_rng(0)
angle = rng.uniform(0, np.pi, 5000)
side = np.where(rng.uniform(size=5000) < 0.7, 1, -1)
X = 0.5 * np.column_stack([np.cos(angle), side * np.sin(angle)])
X += np.column_stack([0.25 * side, -0.2 * side]) + 0.03 * rng.standard_normal((5000, 2))
disc = Ball(1.0, n_features=2)

sampler = PrivateEvolutionSampler(1.0, 1e-5, domain=disc).fit(X)
print(sampler.privacy_)

# %%
# The steps
# ---------
# All settings follow from the number of records, the dimension and the budget ε. The share of the
# budget doubles from step to step, because the first, coarse votes need less. The size of a point
# is its weight; grey points have no votes.

size = (3 * sampler.n_iter_ + 3, 3.4)
figure, axes = plt.subplots(1, sampler.n_iter_ + 1, figsize=size, layout="constrained")
axes[0].scatter(*X.T, s=1, color="0.3")
axes[0].set_title("private records")
for number, (ax, step) in enumerate(zip(axes[1:], sampler.history_, strict=True), start=1):
    (result,) = step
    ax.scatter(*result.candidates.T, s=2, color="0.8")
    ax.scatter(*result.candidates.T, s=4000 * result.weights, alpha=0.6, linewidth=0)
    ax.set_title(f"step {number}: {len(result.weights)} candidates")
for ax in axes:
    ax.add_patch(plt.Circle((0, 0), 1, fill=False, color="0.6"))
    ax.set(xlim=(-1.05, 1.05), ylim=(-1.05, 1.05), aspect="equal", xticks=[], yticks=[])
plt.show()

# %%
# Accuracy by budget
# ------------------
# The Wasserstein distance :math:`W_1` of the result to the private records, for each budget. For
# comparison, a single noisy histogram over a grid, whose points cannot move to the records, and
# points that are uniform on the disc. The distance reads private records and is not private.

budgets = [0.1, 0.3, 1.0, 3.0, 10.0]
samplers = {
    "private evolution": PrivateEvolutionSampler,
    "one histogram": PrivateSignedMeasureSampler,
}


def distance(points, weights):
    some = X[:1500]
    return ot.emd2(np.full(len(some), 1 / len(some)), weights, ot.dist(some, points, "euclidean"))


figure, ax = plt.subplots(figsize=(6, 3.8), layout="constrained")
for name, estimator in samplers.items():
    distances = [
        distance(fitted.candidates_[0], fitted.weights_[0])
        for fitted in (estimator(e, 1e-5, domain=disc).fit(X) for e in budgets)
    ]
    print(f"{name}: {', '.join(f'{distance:.3f}' for distance in distances)}")
    ax.loglog(budgets, distances, "o-", label=name)
uniform = disc.sample(1500, rng)
ax.axhline(distance(uniform, np.full(1500, 1 / 1500)), color="0.5", label="uniform")
ax.set(xlabel="ε", ylabel="W1 to the private records")
ax.set_xticks(budgets, [f"{epsilon:g}" for epsilon in budgets])
ticks = [0.02, 0.05, 0.1, 0.2, 0.4]
ax.set_yticks(ticks, [f"{tick:g}" for tick in ticks])
ax.minorticks_off()
ax.legend(frameon=False)
ax.spines[["top", "right"]].set_visible(False)
plt.show()
