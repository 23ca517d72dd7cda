r"""
Images from a public renderer
=============================

This example makes synthetic images without a trained model. A public program draws clocks from two
parameters, the time and the length of the hands. Candidates are rows of parameters; each private
image votes for the candidate whose image is nearest, and the noisy votes choose the parameters.
:doc:`/evolution` describes the method.
"""

# %%
# A renderer as a variation interface
# -----------------------------------
# :class:`~sklearn_dpgen.evolution.TabularVariation` draws and varies the parameters. ``decode``
# turns them into the images that records are compared with. The renderer is not trained, so nothing
# of it is private.

import matplotlib.pyplot as plt
import numpy as np

from sklearn_dpgen.evolution import PrivateEvolutionSampler, TabularVariation
from sklearn_dpgen.schema import Numeric, Schema

SIDE = 16


def render(frame):
    """Return images of a hand that points to an hour, of shape (n, SIDE, SIDE)."""
    angle = 2 * np.pi * frame["hour"].to_numpy()[:, None, None] / 12
    length = frame["length"].to_numpy()[:, None, None]
    right, down = np.meshgrid(*2 * [np.linspace(-1, 1, SIDE)])
    along = right * np.sin(angle) - down * np.cos(angle)
    across = right * np.cos(angle) + down * np.sin(angle)
    beyond = np.clip(along, 0, length) - along
    return np.exp(-(across**2 + beyond**2) / 0.03)


class ClockVariation(TabularVariation):
    """Candidates that are parameters of the renderer; votes go to the images."""

    # Images are compared pixel by pixel, and not as rows of a table.
    embed = staticmethod(np.asarray)

    def decode(self, X):
        images = render(self.encoder.inverse_transform(X))
        return images.reshape(len(images), -1)


interface = ClockVariation(Schema({"hour": Numeric(0, 12), "length": Numeric(0.3, 0.9)}))

# %%
# Private images
# --------------
# The private clocks show a time between two and four. No fit has a seed: whoever knows the seed of
# the noise can remove the noise.

rng = np.random.default_rng(0)
private = interface.encoder.inverse_transform(interface.random(3000, rng))
private["hour"] = rng.uniform(2, 4, 3000)
X = render(private).reshape(3000, -1)
X = np.clip(X + 0.05 * rng.standard_normal(X.shape), 0, 1)
sampler = PrivateEvolutionSampler(1.0, 1e-5, interface=interface).fit(X)
print(sampler.privacy_)

# %%
# Synthetic images
# ----------------

rows = {
    "public": interface.decode(interface.random(8, rng)),
    "private": X[:8],
    "synthetic": sampler.sample(8),
}
figure, axes = plt.subplots(3, 8, figsize=(8, 3.3), layout="constrained")
for line, (name, images) in zip(axes, rows.items(), strict=True):
    for ax, image in zip(line, images, strict=True):
        ax.imshow(image.reshape(SIDE, SIDE), cmap="Greys", vmin=0, vmax=1)
        ax.set(xticks=[], yticks=[])
    line[0].set_ylabel(name)
plt.show()
