"""Losses between generated points and privatized records (paper 1, equations 7 to 10)."""

from sklearn_dpgen.ot import (
    entropic_loss,
    likelihood_loss,
    sinkhorn_divergence,
    wasserstein_loss,
)

__all__ = ["LOSSES", "make_loss"]

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
        return lambda X, Y: reg_scale * likelihood_loss(mechanism.log_likelihood(X, Y) / reg_scale)
    if name == "entropic":
        return lambda X, Y: entropic_loss(
            -mechanism.log_likelihood(X, Y), reg=reg_scale, n_iter=n_sinkhorn, tol=tol
        )
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
