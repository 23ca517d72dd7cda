"""The gradient of a generator: of the distance between what it makes and records."""

import torch

from sklearn_dpgen.nn import linearize
from sklearn_dpgen.nn._jacobian import clip_weights
from sklearn_dpgen.ot import sliced_wasserstein2_gradient
from sklearn_dpgen.sliced._base import CHUNK

__all__ = ["clipped_once_more", "generator_gradient"]


def clipped_once_more(gradients, bound):
    """Scale released gradients, all of a step together, to a norm of at most ``bound``."""
    norm = torch.linalg.vector_norm(torch.cat([gradient.flatten() for gradient in gradients]))
    factor = torch.clamp(bound / norm, max=1.0)
    return [factor * gradient for gradient in gradients]


def generator_gradient(module, Z, records, directions, clip, ball=None, *, clipping="spectral"):
    """Return the clipped gradient of SW_2^2 between generated points and records.

    The sensitivity to a latent rests on all points being in ``ball``, whatever the latents.
    """
    with torch.no_grad():
        points = torch.nan_to_num(torch.cat([module(chunk) for chunk in Z.split(CHUNK)]))
    if ball is not None:
        points = ball.project(points)
    _, pulls, _ = sliced_wasserstein2_gradient(points, records, directions)
    totals = None
    for latents, pull in zip(Z.split(CHUNK), pulls.split(CHUNK), strict=True):
        jacobian = linearize(module, latents)
        weights = clip_weights(jacobian.gram(), pull, clip, clipping=clipping)
        part = jacobian.weighted_sum(weights)
        totals = part if totals is None else [a + b for a, b in zip(totals, part, strict=True)]
    return totals
