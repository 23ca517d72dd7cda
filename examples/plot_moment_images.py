"""
Digits from means and covariances
=================================

What is released of private images are the mean and the covariance of each class, with noise. From
these alone :class:`~sklearn_dpgen.moments.MomentImageSampler` makes images, and a classifier that
is trained on them reads real ones. The data are digits of scikit-learn, 8 x 8 pixels; labels are
private too. There are but 90 a class, so the budgets are large; for those of MNIST, with 6000 a
class, see :doc:`/moments`.
"""

# %%
# Only public facts are declared: the shape of an image, the range of its pixels, the classes. Half
# of the images are held out.

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
# Images of each class cost nothing more.

figure, axes = plt.subplots(1, 1 + len(budgets), figsize=(11, 4.6))
kinds = np.repeat(np.arange(10), 5)
grids = {"real": np.vstack([X[y == code][:5] for code in range(10)])}
grids |= {f"ε = {e:g}": sampler.sample(50, y=kinds) for e, sampler in samplers.items()}
for ax, (title, images) in zip(axes, grids.items(), strict=True):
    tiles = np.pad(images.reshape(10, 5, 8, 8), [(0, 0), (0, 0), (1, 1), (1, 1)])
    ax.imshow(tiles.transpose(0, 2, 1, 3).reshape(100, 50), cmap="gray_r", vmin=0, vmax=1)
    ax.set_title(title)
    ax.axis("off")
figure.tight_layout()

# %%
# A classifier of real images, trained on synthetic ones alone, beside the one that is trained on
# the real ones.

scores = []
for sampler in samplers.values():
    labels = sampler.sample_labels(5000)
    S = sampler.sample(5000, y=labels)
    scores.append(LogisticRegression(max_iter=500).fit(S, labels).score(X_test, y_test))
real = LogisticRegression(max_iter=500).fit(X, y).score(X_test, y_test)

figure, ax = plt.subplots(figsize=(6, 3))
ax.bar([f"{epsilon:g}" for epsilon in budgets] + ["real images"], [*scores, real])
ax.set(xlabel="ε of the synthetic images", ylabel="accuracy on real images", ylim=(0, 1))
figure.tight_layout()

# %%
# What is guaranteed, and to whom:

print(samplers[10.0].privacy_)
plt.show()
