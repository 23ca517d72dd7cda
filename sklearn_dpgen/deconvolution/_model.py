"""A generator as a mixture of its points: samples and likelihoods."""

import math
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from scipy.stats import qmc

from sklearn_dpgen.domains import Domain
from sklearn_dpgen.persistence._declarations import saved
from sklearn_dpgen.preprocessing._records import draw_categories
from sklearn_dpgen.utils._random import split_random_state, torch_generator
from sklearn_dpgen.utils._torch import as_array, as_tensor

__all__ = ["GeneratorModel", "generate", "mixture_log_likelihood", "score_latents"]

_CHUNK = 1024
_N_SCORE_LATENTS = 4096


@saved
@dataclass(frozen=True)
class GeneratorModel:
    """A generator with everything that its samples and likelihoods depend on.

    Parameters
    ----------
    module : torch.nn.Module
    latent_dim : int
    mechanism : Mechanism
        Fitted.
    output_domain : Domain or None
        Domain of the output of the module; None for the domain of the mechanism.
    output_transform : transformer or None
        Map from ``output_domain`` to records as they were privatized.
    """

    # The estimator saves the network and the mechanism, and sets them again after loading.
    _saved_state = {
        "latent_dim": int,
        "output_domain": Domain | None,
        "output_transform": object,
    }

    module: torch.nn.Module
    latent_dim: int
    mechanism: Any
    output_domain: Domain | None = None
    output_transform: Any = None

    @classmethod
    def _from_saved(cls, fields):
        return cls(module=None, mechanism=None, **fields)  # type: ignore[arg-type]

    def to_domain(self, G):
        """Map generated points into the domain of the mechanism, as records were."""
        if self.output_transform is not None:
            G = self.output_transform.transform(G)
        if self.output_domain is None:
            return G
        return self.mechanism.domain_.project(G)

    def points(self):
        """Return one point of the domain per fixed latent, as a tensor."""
        return self.to_domain(generate(self.module, score_latents(self.latent_dim)))

    def log_likelihood(self, Y):
        """Return the log-likelihood of each encoded privatized record, as a tensor."""
        return mixture_log_likelihood(self.mechanism, self.points(), Y)

    def sample(self, n_samples, random_state):
        """Draw synthetic raw records, in the format that the mechanism was fitted on."""
        latent_seed, category_seed = split_random_state(random_state, 2)
        generator = torch_generator(latent_seed)
        Z = 2 * torch.rand(n_samples, self.latent_dim, generator=generator) - 1
        X = as_array(generate(self.module, Z))
        rng = np.random.default_rng(category_seed)
        domain = self.mechanism.domain_ if self.output_domain is None else self.output_domain
        return self.mechanism.decode(draw_categories(domain, X, rng), rng)


def score_latents(latent_dim):
    """Return the fixed latents of every score, a low-discrepancy set on [-1, 1]."""
    return as_tensor(2 * qmc.Sobol(latent_dim, rng=0).random(_N_SCORE_LATENTS) - 1)


@torch.no_grad()
def generate(module, Z):
    """Apply a generator to latents, in chunks, on its device.

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
def mixture_log_likelihood(mechanism, points, Y, *, weights=None):
    """Log-likelihood of privatized records under a mixture of points, in chunks.

    Parameters
    ----------
    mechanism : Mechanism
        Fitted.
    points : tensor of shape (n_points, n_features)
        In the domain of the mechanism.
    Y : tensor of shape (n, n_features)
        Encoded privatized records.
    weights : tensor of shape (n_points,) or None
        Probabilities of the points, positive; None for equal ones.

    Returns
    -------
    tensor of shape (n,)
        ``log sum_i w_i p(y | x_i)``, in nats.
    """

    def log_likelihood(chunk):
        terms = mechanism.log_likelihood(points, chunk)
        if weights is None:
            return torch.logsumexp(terms, dim=0) - math.log(len(points))
        return torch.logsumexp(terms + weights.log()[:, None], dim=0)

    return torch.cat([log_likelihood(chunk) for chunk in Y.to(points.device).split(_CHUNK)])
