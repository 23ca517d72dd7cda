r"""
Which public sample resembles the private table?
================================================

This example finds, privately, which of several public samples is most similar to a private table. A
hospital holds last year's table of patients and may not show it; developers need a similar public
sample. One noisy release of randomly projected records is enough for all comparisons: the smoothed
sliced Wasserstein distance compares the release with the projections of a public sample, to which
noise of the same law is added. :doc:`/smoothed` describes it.
"""

# %%
# What is private, and what is public
# -----------------------------------
# Private are the records of last year: five measurements of each of 5000 patients, in standard
# units of a published norm. Public are the number of records, the declared domain (a ball around
# the norm) and the candidates. Nothing about the domain is read from the records. The release has
# no seed: whoever knows the seed of the noise can remove the noise.

import matplotlib.pyplot as plt
import numpy as np

from sklearn_dpgen.domains import Ball
from sklearn_dpgen.smoothed import smoothed_sliced_wasserstein

rng = np.random.default_rng(0)
d = 5
factor = 0.6 * np.tri(d) / np.sqrt(np.arange(1, d + 1))[:, None] + 0.2 * np.eye(d)
domain = Ball(3.0, n_features=d)


def patients(n, shift=0.0, scale=1.0):
    """Draw correlated measurements around the norm, shifted and scaled."""
    return shift + scale * rng.standard_normal((n, d)) @ factor.T


records = patients(5000)

candidates = {
    "same region": patients(5000),
    "neighbours": patients(5000, shift=0.2),
    "another scale": patients(5000, scale=1.6),
    "another climate": patients(5000, shift=0.5),
    "intensive care": patients(5000, shift=1.0),
}

# %%
# One release, many comparisons
# -----------------------------
# The call pays for one release. The report states what was spent: the sensitivity is the diameter
# of the ball, and the noise is calibrated to the distribution of the projections on one orthonormal
# frame.

release = smoothed_sliced_wasserstein(
    records, candidates["same region"], epsilon=5.0, domain=domain, n_repeats=4
)
print(release.privacy)

# %%
# Further candidates cost nothing, because they are compared with the release. ``null_distances``
# simulates the distance as it would be if the private records had been drawn from the candidate
# itself. It is not zero, because noisy samples of one law differ; it reads no private record
# either. The patients of "another scale" have the same mean and are hardly told apart from those of
# the same region: their larger spread is small beside noise of this size.

for name, Y in candidates.items():
    distance = release.distance_to(Y, n_repeats=4, random_state=1)
    null = release.null_distances(Y, n_draws=19, n_repeats=4, random_state=2)
    print(f"{name:>16}: {distance:.3f}, at equality {null.mean():.3f} ± {null.std():.3f}")

# %%
# Distances by budget
# -------------------
# Each budget ε is a release of its own. In practice choose one: together they cost up to their sum.
# The grey band is where the blue line would be if the private records had been drawn from the
# sample of the same region. The crosses are distances without noise, which are never released. A
# small budget shows only large differences of the means, a larger budget also smaller ones.
# Differences of the spread need the largest budgets.

epsilons = np.array([0.5, 1, 2, 5, 10, 20, 50])
distances = {name: [] for name in candidates}
bands = []
for epsilon in epsilons:
    release = smoothed_sliced_wasserstein(
        records,
        candidates["same region"],
        epsilon=epsilon,
        domain=domain,
        n_repeats=4,
    )
    for name, Y in candidates.items():
        distances[name].append(release.distance_to(Y, n_repeats=4, random_state=4))
    null = release.null_distances(
        candidates["same region"], n_draws=19, n_repeats=4, random_state=5
    )
    bands.append((null.min(), null.max()))

figure, ax = plt.subplots(figsize=(7, 4.2))
ax.fill_between(epsilons, *np.transpose(bands), color="0.82", label="same region, at equality")
exact = smoothed_sliced_wasserstein(
    records, candidates["same region"], epsilon=np.inf, domain=domain
)
for name, line in distances.items():
    (curve,) = ax.plot(epsilons, line, "o-", markersize=4, label=name)
    ax.plot(110, exact.distance_to(candidates[name]), "x", color=curve.get_color())
ax.set(xscale="log", xlabel="ε of the release", ylabel="smoothed sliced W2")
ax.set_xticks([*epsilons, 110], [*(f"{epsilon:g}" for epsilon in epsilons), "no noise"])
ax.minorticks_off()
ax.set_ylim(0, None)
ax.legend(frameon=False)
ax.spines[["top", "right"]].set_visible(False)
figure.tight_layout()
plt.show()
