"""Training of a generator on privatized records: losses (paper 1, eq. 7 to 10) and stopping."""

import math
from dataclasses import replace

import numpy as np
import torch
from torch.optim.swa_utils import AveragedModel, update_bn
from torch.utils.checkpoint import checkpoint

from sklearn_dpgen.deconvolution._model import score_latents
from sklearn_dpgen.exceptions import PublicValueError
from sklearn_dpgen.mechanisms._base import as_scale
from sklearn_dpgen.nn._training import fit_module
from sklearn_dpgen.ot import entropic_loss, sinkhorn_divergence
from sklearn_dpgen.ot._blockwise import entropic_loss_blockwise
from sklearn_dpgen.ot._losses import likelihood_loss, wasserstein_loss
from sklearn_dpgen.utils._random import torch_generator
from sklearn_dpgen.utils._threads import threads_for

__all__ = [
    "HeldOutScore",
    "LOSSES",
    "hold_out",
    "make_loss",
    "settle_normalization",
    "train_generator",
]

# Largest number of pairs of a point and a record held as one dense matrix: 64 MiB.
_DENSE_PAIRS = 2**24

LOSSES = ("entropic", "likelihood", "wasserstein", "noisy_wasserstein", "sinkhorn_divergence")


def make_loss(name, mechanism, *, reg_scale=1.0, n_sinkhorn, tol, noise):
    """Return a loss function of generated points X and privatized records Y.

    Parameters
    ----------
    name : {"entropic", "likelihood", "wasserstein", "noisy_wasserstein", "sinkhorn_divergence"}
        Entropic transport with the cost -log p(y|x); that with a free marginal of the generated
        points, which is maximum likelihood; unregularized transport to the privatized
        records, from X or from a fresh randomization of X; the debiased divergence.
    mechanism : Mechanism
        A fitted mechanism.
    reg_scale : float
        Multiple of the regularization that matches the noise of the mechanism.
    n_sinkhorn : int
        Largest number of Sinkhorn iterations per step.
    tol : float
        Marginal error at which they stop.
    noise : NoiseSource
        Stream of the fresh randomization of "noisy_wasserstein".

    Returns
    -------
    callable
        ``loss(X, Y)``, a scalar tensor.
    """
    if name == "likelihood":
        return lambda X, Y: _likelihood(X, Y, mechanism, reg_scale)
    if name == "entropic":
        options = {"reg": reg_scale, "n_iter": n_sinkhorn, "tol": tol}
        return lambda X, Y: _balanced(X, Y, mechanism, options)
    p = mechanism.cost_norm
    if p is None:
        raise PublicValueError(
            f"loss={name!r} needs a mechanism with additive Laplace or Gaussian noise, whose cost "
            f"is a power of a norm; {type(mechanism).__name__} has none. Use loss='entropic'."
        )
    # Where features have noise of different scales, they are divided by their share of the mean.
    scale = float(np.mean(mechanism.scale_))

    def units(X):
        return X if np.ndim(mechanism.scale_) == 0 else X / as_scale(mechanism.scale_ / scale, X)

    if name == "wasserstein":
        return lambda X, Y: wasserstein_loss(units(X), units(Y), p=p)
    if name == "noisy_wasserstein":
        return lambda X, Y: wasserstein_loss(units(mechanism.perturb(X, noise)), units(Y), p=p)
    # -log p(y|x) is |x-y| / b for Laplace noise and |x-y|² / 2σ² for Gaussian noise.
    reg = reg_scale * (scale if p == 1 else 2 * scale**2)
    return lambda X, Y: sinkhorn_divergence(units(X), units(Y), p=p, reg=reg)


def _balanced(X, Y, mechanism, options):
    def cost(X, Y):
        return -mechanism.log_likelihood(X, Y)

    if len(X) * len(Y) > _DENSE_PAIRS:
        return entropic_loss_blockwise(X, Y, cost, **options)
    return entropic_loss(cost(X, Y), **options)


def _likelihood(X, Y, mechanism, reg_scale):
    def loss(X, Y):
        return reg_scale * likelihood_loss(mechanism.log_likelihood(X, Y) / reg_scale)

    if len(X) * len(Y) <= _DENSE_PAIRS:
        return loss(X, Y)
    # The mean over records is taken in blocks that are recomputed in the backward pass.
    blocks = Y.split(max(1, _DENSE_PAIRS // len(X)))
    parts = [len(block) * checkpoint(loss, X, block, use_reentrant=False) for block in blocks]
    return sum(parts) / len(Y)


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
        Records per step, drawn with replacement; "full" takes every record once.
    n_generated : int
        Points per step.
    **options
        Options of ``fit_module``.

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
            # The training loop reports this as divergence; the solvers would call it bad input.
            return G.sum()
        return loss(model.to_domain(G), Y[rows])

    with threads_for(n_generated * n_records):
        result = fit_module(model.module, step_loss, **options)
    settle_normalization(model)
    return result


def settle_normalization(model):
    """Recompute the statistics of batch normalizations for the averaged weights."""
    device = next(model.module.parameters()).device
    update_bn(score_latents(model.latent_dim).to(device).split(_N_NORMALIZED), model.module)


_CHECK_EVERY = 50
# Ranking two trainings takes many held-out records; detecting the best step takes few.
_N_RANKED, _N_WATCHED = 50_000, 5_000


def hold_out(Y, fraction, generator):
    """Split encoded privatized records at random into training and held-out ones.

    Parameters
    ----------
    Y : tensor of shape (n, n_features)
    fraction : float
        Share of the held-out records, of which there are 1 to 50000.
    generator : torch.Generator
        On the device of ``Y``.

    Returns
    -------
    trained, scored : tensors
        A single record is in both.
    """
    n_scored = min(max(1, round(fraction * len(Y))), _N_RANKED)
    if n_scored >= len(Y):
        return Y, Y
    order = torch.randperm(len(Y), generator=generator, device=Y.device)
    return Y[order[n_scored:]], Y[order[:n_scored]]


class HeldOutScore:
    """The likelihood of held-out records, which ranks trainings and decides when one stops.

    Parameters
    ----------
    Y : tensor of shape (n, n_features)
        Encoded privatized records that are not trained on.
    n_iter_no_change : int or None
        Steps without a gain of ``tol`` after which to stop; None never stops.
    tol : float
        Smallest gain that counts, in nats per record.

    Attributes
    ----------
    n_best : int
        Number of steps at the last gain.
    stopped : bool
    """

    def __init__(self, Y, *, n_iter_no_change, tol):
        self._Y = Y if n_iter_no_change is None else Y[:_N_WATCHED]
        self._tol = tol
        self._n_iter_no_change = n_iter_no_change
        self._best, self.n_best, self.stopped = -math.inf, 0, False

    def watch(self, model):
        """Return a function of the step that decides whether the training of a model stops."""
        if self._n_iter_no_change is None:
            return None
        # Weights of single steps are noisy, so those since the last check are averaged.
        average = AveragedModel(model.module)
        averaged = replace(model, module=average.module)

        def stop(step):
            average.update_parameters(model.module)
            n_steps = step + 1
            if n_steps % _CHECK_EVERY == 0:
                settle_normalization(averaged)
                score = self._score(averaged)
                average.n_averaged.zero_()
                if score > self._best + self._tol:
                    self._best, self.n_best = score, n_steps
                self.stopped = n_steps - self.n_best >= self._n_iter_no_change
            return self.stopped

        return stop

    def of(self, model):
        """Return the best score of a stopped training, or the score of its result."""
        return self._best if self.stopped else self._score(model)

    def _score(self, model):
        model.module.eval()
        return model.log_likelihood(self._Y).mean().item()
