"""
Images from noisy means and covariances
=======================================

This example makes synthetic digits from private ones, and trains a classifier on them that reads
real digits. Only the mean and the covariance of each class are released, with noise;
:class:`~sklearn_dpgen.moments.MomentImageSampler` makes images from these alone. The data are the
digits of scikit-learn, 8 x 8 pixels; labels are private too. There are only 90 images of each class
for training, so the budgets ε are large. :doc:`/moments` has results for MNIST, with 6000 a class.
"""

# %%
# Release the moments
# -------------------
# Only public facts are declared: the shape of an image, the range of its pixels, the classes. Half
# of the images are held out. ε = ∞ adds no noise and is not private; it is here for comparison.

import matplotlib.pyplot as plt
import numpy as np
from sklearn.datasets import load_digits
from sklearn.linear_model import LogisticRegression
from sklearn.model_selection import train_test_split

from sklearn_dpgen.moments import MomentImageSampler

X, y = load_digits(return_X_y=True)
X /= 16
X, X_test, y, y_test = train_test_split(X, y, test_size=0.5, random_state=0, stratify=y)

budgets = [3.0, 10.0, 30.0, np.inf]
samplers = {
    epsilon: MomentImageSampler(
        epsilon,
        1e-5,
        shape=(8, 8),
        pixel_range=(0, 1),
        n_frequencies=6,
        labels="private",
        classes=list(range(10)),
    ).fit(X, y)
    for epsilon in budgets
}

# %%
# Synthetic images
# ----------------
# Five images of each class, for each budget. Drawing them costs no further privacy.

figure, axes = plt.subplots(1, 1 + len(budgets), figsize=(11, 4.6))
kinds = np.repeat(np.arange(10), 5)
grids = {"real": np.vstack([X[y == code][:5] for code in range(10)])}
names = {e: "∞" if np.isinf(e) else f"{e:g}" for e in budgets}
grids |= {f"ε = {names[e]}": sampler.sample(50, y=kinds) for e, sampler in samplers.items()}
for ax, (title, images) in zip(axes, grids.items(), strict=True):
    tiles = np.pad(images.reshape(10, 5, 8, 8), [(0, 0), (0, 0), (1, 1), (1, 1)])
    ax.imshow(tiles.transpose(0, 2, 1, 3).reshape(100, 50), cmap="gray_r", vmin=0, vmax=1)
    ax.set_title(title)
    ax.axis("off")
figure.tight_layout()
plt.show()

# %%
# A classifier trained on synthetic images
# ----------------------------------------
# Each classifier is trained on synthetic images alone, the last one on the real images. All are
# tested on real images that were held out.

scores = []
for sampler in samplers.values():
    labels = sampler.sample_labels(5000)
    S = sampler.sample(5000, y=labels)
    scores.append(LogisticRegression(max_iter=500).fit(S, labels).score(X_test, y_test))
real = LogisticRegression(max_iter=500).fit(X, y).score(X_test, y_test)

figure, ax = plt.subplots(figsize=(6, 3))
bars = ax.bar([f"ε = {name}" for name in names.values()] + ["real images"], [*scores, real])
ax.bar_label(bars, fmt="%.2f")
ax.set(xlabel="trained on", ylabel="accuracy on real images", ylim=(0, 1.1))
ax.spines[["top", "right"]].set_visible(False)
figure.tight_layout()
plt.show()

# %%
# What is guaranteed
# ------------------
# The report of the fit at ε = 10.

print(samplers[10.0].privacy_)
