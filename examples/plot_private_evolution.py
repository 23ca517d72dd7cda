r"""
Points that evolve by private votes
===================================

Nothing is trained here. A population of public points is scattered over a disc; each private
record votes for the nearest of them; the votes get noise and are published. Where the votes are,
points are kept and varied, a little less far at each step. In the end the candidates of the last
step, with weights from their noisy votes, stand for the private records.
"""

# %%
# Votes
# -----
# Private: 5000 points on two arcs. Public: that they lie in the unit disc. One record has one vote
# a step, wherever it lies and whatever the candidates are, so another record in its place changes
# two counts by one: that is all the guarantee rests on. No fit has a seed: whoever knows that of
# the noise can take it off again.

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
# All settings follow from the number of records, the dimension and the budget. The share of the
# budget doubles from step to step: coarse votes need less of it.

figure, axes = plt.subplots(1, sampler.n_iter_ + 1, figsize=(3 * sampler.n_iter_ + 3, 3.2))
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
figure.tight_layout()
plt.show()

# %%
# What the budget buys
# --------------------
# The distance to the private records, W1, of the result at each budget, beside that of a single
# noisy histogram over a grid, which cannot move its points to where the records are. A sampler that
# knows nothing, uniform on the disc, is the line above.

budgets = [0.1, 0.3, 1.0, 3.0, 10.0]
samplers = {
    "private evolution": PrivateEvolutionSampler,
    "one histogram": PrivateSignedMeasureSampler,
}


def distance(points, weights):
    some = X[:1500]
    return ot.emd2(np.full(len(some), 1 / len(some)), weights, ot.dist(some, points, "euclidean"))


figure, ax = plt.subplots(figsize=(5.5, 3.6))
for name, estimator in samplers.items():
    distances = [
        distance(fitted.candidates_[0], fitted.weights_[0])
        for fitted in (estimator(e, 1e-5, domain=disc).fit(X) for e in budgets)
    ]
    print(name, np.round(distances, 3))
    ax.loglog(budgets, distances, "o-", label=name)
uniform = disc.sample(1500, rng)
ax.axhline(distance(uniform, np.full(1500, 1 / 1500)), color="0.5", label="uniform")
ax.set(xlabel="ε", ylabel="W1 to the private records")
ax.legend()
figure.tight_layout()
plt.show()
