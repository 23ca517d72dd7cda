"""The training of a generator on privatized records."""

import torch
from torch.optim.swa_utils import update_bn

from sklearn_dpgen.deconvolution._model import score_latents
from sklearn_dpgen.nn import fit_module
from sklearn_dpgen.utils._random import torch_generator
from sklearn_dpgen.utils._threads import threads_for

__all__ = ["settle_normalization", "train_generator"]

_N_NORMALIZED = 512


def train_generator(model, loss, Y, *, seed, batch_size, n_generated, **options):
    """Descend a loss between fresh generated points and random privatized records.

    Parameters
    ----------
    model : GeneratorModel
        Its module is trained in place.
    loss : callable
        ``loss(X, Y)`` of points in the domain of the mechanism and encoded privatized records.
    Y : tensor of shape (n, n_features)
    seed : int or None
    batch_size : int or "full"
        Records a step, drawn with replacement; "full" takes every record once.
    n_generated : int
        Points a step.
    **options
        Of :func:`sklearn_dpgen.nn.fit_module`.

    Returns
    -------
    TrainingResult
    """
    stream = torch_generator(seed, Y.device)
    shape = (n_generated, model.latent_dim)
    n_records = len(Y) if batch_size == "full" else min(batch_size, len(Y))

    def step_loss(step):
        rows = slice(None)
        if batch_size != "full":
            rows = torch.randint(len(Y), (n_records,), generator=stream, device=Y.device)
        Z = 2 * torch.rand(shape, generator=stream, device=Y.device) - 1
        G = model.module(Z)
        if not G.isfinite().all():
            # To the training loop a diverged run; the solvers would call it bad input.
            return G.sum()
        return loss(model.to_domain(G), Y[rows])

    with threads_for(n_generated * n_records):
        result = fit_module(model.module, step_loss, **options)
    settle_normalization(model)
    return result


def settle_normalization(model):
    """Give batch normalizations the statistics of the weights as they are now, averaged ones."""
    device = next(model.module.parameters()).device
    update_bn(score_latents(model.latent_dim).to(device).split(_N_NORMALIZED), model.module)
