"""Training of a generator on counted releases; no private record comes here."""

import torch
from torch.optim.swa_utils import update_bn

from sklearn_dpgen.nn import fit_module
from sklearn_dpgen.utils._random import torch_generator

__all__ = ["one_hot", "train_generator"]

_N_NORMALIZED = 50


def one_hot(codes, n_classes, device):
    """Return classes as a network takes them: of shape (n, n_classes), no column for none."""
    if n_classes == 0:
        return torch.zeros(len(codes), 0, device=device)
    return torch.nn.functional.one_hot(codes.to(device), n_classes).float()


def train_generator(module, laws, to_ball, *, n_classes, n_generated, latent_dim, seed, **options):
    """Descend the distance between the releases and what a network makes.

    Parameters
    ----------
    module : torch.nn.Module
        From (n, latent_dim + n_classes). Trained in place.
    laws : ReleasedLaws
        Of each class, or of all records where there are none.
    to_ball : callable
        From what the network makes to centered records, with their gradient.
    n_classes : int
        0 without labels.
    n_generated : int
        Points of each class in a step.
    latent_dim : int
    seed : int or None
        Of latents and of the lines of each step.
    **options
        Of :func:`sklearn_dpgen.nn.fit_module`.

    Returns
    -------
    TrainingResult
    """
    device = laws.directions.device
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
