"""A generator as a mixture of its points: samples and likelihoods."""

import copy
import math
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import torch
from scipy.stats import qmc

from sklearn_dpgen.domains import Ball, Box, Domain, Product
from sklearn_dpgen.persistence._declarations import saved
from sklearn_dpgen.preprocessing._records import draw_categories
from sklearn_dpgen.utils._random import split_random_state, torch_generator
from sklearn_dpgen.utils._torch import as_array, as_tensor

__all__ = ["GeneratorModel", "generate", "mixture_log_likelihood", "near_zero", "score_latents"]

_CHUNK = 1024
_N_SCORE_LATENTS = 4096

# A number this many half sides from 0 still has four digits within its side in single precision.
_FARTHEST = 1000


def near_zero(mechanism):
    """Return a mechanism whose domain is moved near 0, if it is far from it, and by how much.

    Additive noise depends on differences only, which single precision loses far from 0.

    Parameters
    ----------
    mechanism : Mechanism
        Fitted.

    Returns
    -------
    mechanism : Mechanism
        The given one, or a copy.
    shift : ndarray of shape (n_features,) or 0.0
        The middle of the domain in columns that are far from 0, and 0 in others; subtract it from
        records, and add it to points.
    """
    # Releases of other mechanisms may have another width than records.
    is_additive = getattr(mechanism, "cost_norm", None) is not None
    shift = _shift(mechanism.domain_) if is_additive else np.zeros(1)
    if not shift.any():
        return mechanism, 0.0
    moved = copy.copy(mechanism)
    moved.domain_ = _moved(mechanism.domain_, shift)
    if np.ndim(getattr(moved, "_center", 0.0)) == 1:
        moved._center = moved._center - shift
    return moved, shift


def _shift(domain):
    if isinstance(domain, Product):
        return np.concatenate([_shift(factor) for factor in domain.domains])
    if isinstance(domain, Box):
        middle, half = domain.low / 2 + domain.high / 2, (domain.high - domain.low) / 2
    elif isinstance(domain, Ball):
        middle, half = domain.center, domain.radius
    else:
        return np.zeros(domain.n_features)
    return np.where(abs(middle) > _FARTHEST * half, middle, 0.0)


def _moved(domain, shift):
    if isinstance(domain, Product):
        factors = zip(domain.domains, domain.slices, strict=True)
        return Product([_moved(factor, shift[part]) for factor, part in factors])
    if isinstance(domain, Box):
        return Box(domain.low - shift, domain.high - shift)
    return Ball(domain.radius, domain.p, domain.center - shift) if shift.any() else domain


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

    @cached_property
    def _moved(self):
        """The mechanism and the shift of `near_zero`; none where points have their own domain."""
        if self.output_domain is not None:
            return self.mechanism, 0.0
        return near_zero(self.mechanism)

    @property
    def local_mechanism(self):
        """The mechanism on records and points that the shift was subtracted from."""
        return self._moved[0]

    @property
    def shift(self):
        """Middle of the domain in the columns in which it is far from 0, else 0."""
        return self._moved[1]

    def to_domain(self, G):
        """Map generated points into the domain of the local mechanism, as records were."""
        if self.output_transform is not None:
            G = self.output_transform.transform(G)
        if self.output_domain is None:
            return G
        return self.mechanism.domain_.project(G)

    def points(self):
        """Return one point of the local domain per fixed latent, as a tensor."""
        return self.to_domain(generate(self.module, score_latents(self.latent_dim)))

    def log_likelihood(self, Y):
        """Return the log-likelihood of each local privatized record, as a tensor."""
        return mixture_log_likelihood(self.local_mechanism, self.points(), Y)

    def sample(self, n_samples, random_state):
        """Draw synthetic raw records, in the format that the mechanism was fitted on."""
        latent_seed, category_seed = split_random_state(random_state, 2)
        generator = torch_generator(latent_seed)
        Z = 2 * torch.rand(n_samples, self.latent_dim, generator=generator) - 1
        X = as_array(generate(self.module, Z))
        rng = np.random.default_rng(category_seed)
        domain = self.mechanism.domain_ if self.output_domain is None else self.output_domain
        X = draw_categories(domain, X, rng)
        return self.mechanism.decode(X + self.shift, rng)


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
