"""A generator as a mixture of its points: what it makes of latents, and how likely records are."""

import math

import torch
from scipy.stats import qmc

from sklearn_dpgen.utils._torch import as_tensor

__all__ = ["generate", "mixture_log_likelihood", "score_latents"]

_CHUNK = 1024
_N_SCORE_LATENTS = 4096


def score_latents(latent_dim):
    """Return the fixed latents of every score, evenly spread over [-1, 1]."""
    return as_tensor(2 * qmc.Sobol(latent_dim, rng=0).random(_N_SCORE_LATENTS) - 1)


@torch.no_grad()
def generate(module, Z):
    """Return what a generator makes of latents, in chunks, on its device.

    Parameters
    ----------
    module : torch.nn.Module
    Z : tensor of shape (n, latent_dim)

    Returns
    -------
    tensor of shape (n, n_features)
    """
    device = next(module.parameters()).device
    return torch.cat([module(chunk.to(device)) for chunk in Z.split(_CHUNK)])


@torch.no_grad()
def mixture_log_likelihood(mechanism, points, Y):
    """Log-likelihood of privatized records under a uniform mixture of points, in chunks.

    Parameters
    ----------
    mechanism : Mechanism
        Fitted.
    points : tensor of shape (n_points, n_features)
        In the domain of the mechanism.
    Y : tensor of shape (n, n_features)
        Encoded privatized records.

    Returns
    -------
    tensor of shape (n,)
        ``log mean_i p(y | x_i)``, in nats.
    """
    log_sums = [
        torch.logsumexp(mechanism.log_likelihood(points, chunk), dim=0)
        for chunk in Y.to(points.device).split(_CHUNK)
    ]
    return torch.cat(log_sums) - math.log(len(points))
