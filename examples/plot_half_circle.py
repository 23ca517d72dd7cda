r"""
A half circle, learned from noisy points
========================================

This example learns the raw points from noisy ones, although nobody collects a raw point. Every
person has a point on a half circle and sends it once, with Laplace noise that makes it locally
private. The noisy points are a cloud. Two generators learn from this cloud: one by plain optimal
transport, the other by entropic optimal transport with the cost :math:`-\log p(y|x)`, where
:math:`p(y|x)` is the density of a noisy point :math:`y` given the raw point :math:`x`. The first
learns the part of the cloud that fits in the declared disc; the second learns the half circle.
:doc:`/deconvolution` explains why.
"""

# %%
# Raw points and noisy points
# ---------------------------
# The curve lies in the unit disc. Only the disc is declared, and the noise depends on nothing else:
# its scale is the :math:`\ell_1` diameter of the disc divided by the budget :math:`\varepsilon`.
# The report says what one call of ``transform`` guarantees to each person. The noise has no seed:
# whoever knows the seed can remove the noise.

import matplotlib.pyplot as plt
import numpy as np

from sklearn_dpgen.datasets import make_half_circle
from sklearn_dpgen.deconvolution import EntropicDeconvGAN, likelihood_score
from sklearn_dpgen.domains import Ball
from sklearn_dpgen.mechanisms import LaplaceMechanism
from sklearn_dpgen.metrics import wasserstein_distance
from sklearn_dpgen.nn import Training

raw = make_half_circle(20_000, random_state=0)
mechanism = LaplaceMechanism(epsilon=5.0, domain=Ball(1.0, n_features=2))
privatized = mechanism.fit_transform(raw)
print(mechanism.privacy_)

# %%
# Two generators
# --------------
# Both are trained on the privatized points alone, which carry their mechanism. The output of both
# lies in the declared disc.

plain = EntropicDeconvGAN(
    loss="wasserstein",
    batch_size=500,
    n_generated=500,
    training=Training(max_iter=300),
    random_state=0,
)
plain.fit(privatized)
entropic = EntropicDeconvGAN(batch_size=1000, training=Training(max_iter=800), random_state=0)
entropic.fit(privatized)

# %%
# What they learned
# -----------------
# The dashed line is the half circle. The number above each cloud is the Wasserstein distance
# :math:`W_2` to fresh raw points; two raw samples have a distance above zero too. It reads raw
# points and is not private, so only an experiment can compute it.

colors = {"raw": "0.2", "privatized": "#c0504d", "unregularized": "#dd8a2e", "entropic": "#1f7a9c"}


def draw(clouds, radius):
    """Draw clouds side by side, with their distance to a half circle of the given radius."""
    fresh = make_half_circle(2000, radius=radius, random_state=1)
    angles = np.linspace(0, np.pi, 200)
    size = (2.75 * len(clouds), 3.3)
    figure, axes = plt.subplots(1, len(clouds), figsize=size, sharex=True, sharey=True)
    for axis, (name, points) in zip(axes, clouds.items(), strict=True):
        axis.scatter(*points.T, s=6, color=colors[name], alpha=0.4, linewidths=0)
        x, y = radius * np.cos(angles), radius * np.sin(angles)
        axis.plot(x, y, color="black", linewidth=1, linestyle=(0, (4, 3)))
        distance = wasserstein_distance(points, fresh)
        axis.set_title(f"{name}\n$W_2$ to raw points {distance:.2f}", fontsize=10)
        axis.set(xlim=(-2.2, 2.2), ylim=(-1.6, 2.4), aspect="equal")
        axis.set(xticks=[-1, 0, 1], yticks=[0, 1])
        axis.tick_params(length=0, labelsize=8, labelcolor="0.4")
        axis.spines[:].set_color("0.85")
    figure.tight_layout()
    plt.show()


draw(
    {
        "raw": raw[:2000],
        "privatized": privatized[:2000],
        "unregularized": plain.sample(2000, random_state=0),
        "entropic": entropic.sample(2000, random_state=0),
    },
    radius=1.0,
)

# %%
# Choosing a generator without raw points
# ---------------------------------------
# ``likelihood_score`` is the mean log-likelihood of *privatized* points that were not used in
# training: it says how well the generator's output plus noise explains what people sent. It reads
# nothing raw, so it costs no privacy. It prefers the same generator as the distances above.

held_out = mechanism.transform(make_half_circle(5000, random_state=2))
for name, model in {"unregularized": plain, "entropic": entropic}.items():
    print(f"{name:>13}: {likelihood_score(model, held_out):.3f} nats a point")

# %%
# Away from the border of the disc
# --------------------------------
# The half circle lies on the border of the declared disc, and that helps: no generated point can
# be outside the disc. A smaller half circle, under the same noise, has no such help. It is learned
# too, less sharply.

small = mechanism.transform(make_half_circle(20_000, radius=0.7, random_state=0))
entropic.fit(small)
draw(
    {"privatized": small[:2000], "entropic": entropic.sample(2000, random_state=0)},
    radius=0.7,
)
