r"""
Handwritten digits, learned from noisy images
=============================================

This example trains a generator of digits on noisy copies of private images. Each release is one
image of each class, drawn in secret, with so much Gaussian noise that no digit can be read. A
network then learns images whose noisy copies have the same distribution. The noise hides every
single record, but over many releases what the records of a class have in common can be learned.
:doc:`/smoothed` describes the method; :doc:`/moments` has a sampler of images that needs a smaller
budget.
"""

# %%
# What is private, and what is public
# -----------------------------------
# Private are 1257 images of 8 by 8 pixels, from the digits of scikit-learn. Public are their
# labels, and a ball around an image of constant light grey, into which the images are moved. The
# noise is proportional to the diameter of the ball. No fit has a seed: whoever knows the seed of
# the noise can remove the noise.

import matplotlib.pyplot as plt
import numpy as np
from sklearn.datasets import load_digits
from sklearn.linear_model import LogisticRegression
from sklearn.model_selection import train_test_split

from sklearn_dpgen.domains import Ball, Box
from sklearn_dpgen.nn import Training
from sklearn_dpgen.smoothed import NoisyRelease, SmoothedSlicedWassersteinGenerator

X, y = load_digits(return_X_y=True)
X /= 16
records, held_out, y_records, y_held_out = train_test_split(X, y, test_size=0.3, random_state=0)

pixels = Box(0.0, 1.0, n_features=64)
domain = Ball(2.5, center=np.full(64, 0.3))

# %%
# Release, then train
# -------------------
# ``fit`` makes all releases first. The training that follows reads nothing else, so its length
# costs no privacy. The output of the network lies in the range of pixels. With so few records the
# means of the classes are larger than the noise, and their covariances hardly are: the default
# weight of the covariances follows from the number of releases and their noise. The report says
# what the fit guarantees, and how much noise it needed.

generators = {}
for epsilon in (1.0, 3.0, 10.0):
    generators[epsilon] = SmoothedSlicedWassersteinGenerator(
        epsilon,
        1e-5,
        domain=domain,
        output_domain=pixels,
        labels="public",
        release=NoisyRelease(n_projections=320),
        training=Training(max_iter=400),
    ).fit(records, y_records)
print(generators[10.0].privacy_)

# %%
# Released and generated images
# -----------------------------
# The second row shows the images of the first with noise of the size of the releases at
# :math:`\varepsilon = 10`, on a scale of greys that is ten times as wide. Each further row is drawn
# from one generator, with the labels from 0 to 9 as inputs.

first = [np.flatnonzero(y_records == digit)[0] for digit in range(10)]
noise_scale = generators[10.0].privacy_.noise_scale
noise = noise_scale * np.random.default_rng(0).standard_normal((10, 64))
rows = {
    "private": (records[first], (0, 1)),
    f"released\nσ = {noise_scale:.1f}": (domain.project(records[first]) + noise, (-4.5, 5.5)),
}
for epsilon, generator in reversed(generators.items()):
    rows[f"generated\nε = {epsilon:g}"] = (
        generator.sample(10, y=np.arange(10), random_state=1),
        (0, 1),
    )

figure, axes = plt.subplots(len(rows), 10, figsize=(9, 0.95 * len(rows)))
for line, (name, (images, (low, high))) in zip(axes, rows.items(), strict=True):
    for ax, image in zip(line, images, strict=True):
        ax.imshow(image.reshape(8, 8), cmap="gray_r", vmin=low, vmax=high)
        ax.set(xticks=[], yticks=[])
        ax.spines[:].set_color("0.85")
    line[0].set_ylabel(name, rotation=0, ha="right", va="center", fontsize=9)
figure.tight_layout(pad=0.4)
plt.show()

# %%
# A classifier trained on generated images
# ----------------------------------------
# The classifier never saw a real image and is tested on real ones that were held out. The means of
# the classes are mostly what distinguishes digits, and they are learned first.

labels = np.arange(5000) % 10
for epsilon, generator in generators.items():
    images = generator.sample(len(labels), y=labels, random_state=2)
    score = LogisticRegression(max_iter=1000).fit(images, labels).score(held_out, y_held_out)
    print(f"ε = {epsilon:>2g}: noise {generator.privacy_.noise_scale:.1f}, accuracy {score:.2f}")
score = LogisticRegression(max_iter=1000).fit(records, y_records).score(held_out, y_held_out)
print(f"trained on the private images: {score:.2f}")
