"""Losses between generated points and privatized records (paper 1, equations 7 to 10)."""

from torch.utils.checkpoint import checkpoint

from sklearn_dpgen.ot import (
    entropic_loss,
    entropic_loss_blockwise,
    likelihood_loss,
    sinkhorn_divergence,
    wasserstein_loss,
)

__all__ = ["LOSSES", "make_loss"]

# Pairs of a point and a record above which no matrix of all of them is held: 64 MiB.
_DENSE_PAIRS = 2**24

LOSSES = ("entropic", "wasserstein", "noisy_wasserstein", "sinkhorn_divergence")


def make_loss(name, mechanism, *, objective="balanced", reg_scale=1.0, n_sinkhorn, tol, noise):
    """Return a function of generated points X and privatized records Y.

    Parameters
    ----------
    name : {"entropic", "wasserstein", "noisy_wasserstein", "sinkhorn_divergence"}
        Entropic transport with the cost -log p(y|x); unregularized transport to the privatized
        records, from X or from a fresh randomization of X; the debiased divergence.
    mechanism : Mechanism
        A fitted mechanism.
    objective : {"balanced", "likelihood"}
        For the entropic loss: both marginals fixed, or the generated one free, which is maximum
        likelihood.
    reg_scale : float
        Regularization in units of the matched one.
    n_sinkhorn : int
        Most Sinkhorn iterations a step.
    tol : float
        Marginal error at which they stop.
    noise : NoiseSource
        Stream of the fresh randomization of the noisy loss.

    Returns
    -------
    callable
        ``loss(X, Y)``, a scalar tensor.
    """
    if name == "entropic" and objective == "likelihood":
        return lambda X, Y: _likelihood(X, Y, mechanism, reg_scale)
    if name == "entropic":
        options = {"reg": reg_scale, "n_iter": n_sinkhorn, "tol": tol}
        return lambda X, Y: _balanced(X, Y, mechanism, options)
    p = mechanism.cost_norm
    if p is None:
        raise ValueError(
            f"loss={name!r} needs a mechanism with additive Laplace or Gaussian noise, whose cost "
            f"is a power of a norm; {type(mechanism).__name__} has none. Use loss='entropic'."
        )
    if name == "wasserstein":
        return lambda X, Y: wasserstein_loss(X, Y, p=p)
    if name == "noisy_wasserstein":
        return lambda X, Y: wasserstein_loss(mechanism.perturb(X, noise), Y, p=p)
    # Laplace: |x-y| / b; Gaussian: |x-y|² / 2σ² (theory of the matched cost).
    reg = reg_scale * (mechanism.scale_ if p == 1 else 2 * mechanism.scale_**2)
    return lambda X, Y: sinkhorn_divergence(X, Y, p=p, reg=reg)


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
    # A mean over records: blocks of them, computed again for the gradient in place of being kept.
    blocks = Y.split(max(1, _DENSE_PAIRS // len(X)))
    parts = [len(block) * checkpoint(loss, X, block, use_reentrant=False) for block in blocks]
    return sum(parts) / len(Y)
