"""Training of a generator on releases; no private record comes here."""

import numpy as np
import torch
from torch.optim.swa_utils import update_bn

from sklearn_dpgen.nn._generators import GeneratorMixture
from sklearn_dpgen.nn._training import fit_module
from sklearn_dpgen.utils._random import split_random_state, torch_generator
from sklearn_dpgen.utils._torch import seeded_initialization

__all__ = ["n_normals", "one_hot", "train_generator", "train_generators"]

_N_NORMALIZED = 50


def one_hot(codes, n_classes, device):
    """Return classes as a network takes them: of shape (n, n_classes), no column for none."""
    if n_classes == 0:
        return torch.zeros(len(codes), 0, device=device)
    return torch.nn.functional.one_hot(codes.to(device), n_classes).float()


def n_normals(module, latent_dim):
    """Return how many standard normals a network takes for a record."""
    return getattr(module, "n_noise", 0) + latent_dim


def train_generators(build, laws, to_ball, *, n_generators, latent_dim, seed, **options):
    """Train networks, each by itself on the same releases.

    Parameters
    ----------
    build : callable
        Returns a new network, with weights from the global random stream.
    laws : ReleasedLaws or ProjectedBatches
    to_ball : callable
    n_generators : int
    latent_dim : int
    seed : int or None
    **options
        Of :func:`train_generator`.

    Returns
    -------
    module : torch.nn.Module
        The network, or their mixture.
    loss_curve : list of float
        Mean over the networks.
    """
    networks, curves = [], []
    for one_seed in split_random_state(seed, n_generators):
        init_seed, latent_seed = split_random_state(one_seed, 2)
        with seeded_initialization(init_seed):
            network = build().to(laws.device)
        width = n_normals(network, latent_dim)
        result = train_generator(
            network, laws, to_ball, latent_dim=width, seed=latent_seed, **options
        )
        networks.append(network)
        curves.append(result.loss_curve)
    module = networks[0] if n_generators == 1 else GeneratorMixture(networks)
    return module, np.mean(curves, axis=0).tolist()


def train_generator(module, laws, to_ball, *, n_classes, n_generated, latent_dim, seed, **options):
    """Descend the distance between the releases and what a network makes.

    Parameters
    ----------
    module : torch.nn.Module
        From (n, latent_dim + n_classes). Trained in place.
    laws : ReleasedLaws or ProjectedBatches
        Of each class, or of all records where there are none.
    to_ball : callable
        From what the network makes to centered records, with their gradient.
    n_classes : int
        0 without labels.
    n_generated : int
        Points of each class in a step.
    latent_dim : int
    seed : int or None
        Of latents, and of the lines or the public noise of each step.
    **options
        Of ``fit_module``.

    Returns
    -------
    TrainingResult
    """
    device = laws.device
    generator = torch_generator(seed, device)
    n_groups = max(1, n_classes)
    codes = torch.arange(n_groups).repeat_interleave(n_generated)
    labels = one_hot(codes, n_classes, device)
    half = (n_groups, (n_generated + 1) // 2, latent_dim)

    def draw():
        # In pairs of opposite signs: a linear map of them has no error in its mean.
        Z = torch.randn(half, generator=generator, device=device)
        Z = torch.cat([Z, -Z], 1)[:, :n_generated].flatten(0, 1)
        return torch.cat([Z, labels], 1)

    def step_loss(step):
        points = to_ball(module(draw()))
        return laws.distance(points.view(n_groups, n_generated, -1), generator)

    result = fit_module(module, step_loss, **options)
    # Statistics of a batch normalization belong to the weights before they were averaged.
    update_bn([draw() for _ in range(_N_NORMALIZED)], module)
    return result
