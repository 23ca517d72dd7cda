"""Training of a generator on counted releases; no private record comes here."""

import torch
from torch.optim.swa_utils import update_bn

from sklearn_dpgen.nn import fit_module
from sklearn_dpgen.utils._random import torch_generator

__all__ = ["one_hot", "train_generator"]

# Directions of one step, at most, if they are more.
_STEP_DIRECTIONS = 100
_N_NORMALIZED = 50


def one_hot(codes, n_classes, device):
    """Return classes as a network takes them: of shape (n, n_classes), no column for none."""
    if n_classes == 0:
        return torch.zeros(len(codes), 0, device=device)
    return torch.nn.functional.one_hot(codes.to(device), n_classes).float()


def train_generator(
    module, lines, directions, to_ball, *, n_classes, n_generated, latent_dim, seed, **options
):
    """Descend the distance between the releases and what a network makes.

    Parameters
    ----------
    module : torch.nn.Module
        From (n, latent_dim + n_classes). Trained in place.
    lines : SmoothedLines
        The releases of each class, or of all where there are none.
    directions : Tensor of shape (k, d)
        The lines that they were counted on.
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
    device = directions.device
    generator = torch_generator(seed, device)
    n_groups, k = max(1, n_classes), len(directions)
    n_blocks = max(1, k // _STEP_DIRECTIONS)
    codes = torch.arange(n_groups).repeat_interleave(n_generated)
    labels = one_hot(codes, n_classes, device)
    half = (n_groups, (n_generated + 1) // 2, latent_dim)

    def draw():
        # In pairs of opposite signs: a linear map of them has no error in its mean.
        Z = torch.randn(half, generator=generator, device=device)
        Z = torch.cat([Z, -Z], 1)[:, :n_generated].flatten(0, 1)
        return torch.cat([Z, labels], 1)

    def step_loss(step):
        block = int(torch.randint(n_blocks, (), generator=generator, device=device))
        chosen = slice(block * k // n_blocks, (block + 1) * k // n_blocks)
        points = to_ball(module(draw())) @ directions[chosen].t()
        points = points.view(n_groups, n_generated, -1)
        with torch.no_grad():
            value, gradient = lines.gradient(points, chosen)
        pull = (gradient * points).sum()
        return value + (pull - pull.detach())

    result = fit_module(module, step_loss, **options)
    # Statistics of a batch normalization belong to the weights before they were averaged.
    update_bn([draw() for _ in range(_N_NORMALIZED)], module)
    return result
