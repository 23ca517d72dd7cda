"""The clipped gradient of a task and a transport penalty, and what one record can change in it."""

import math
from collections.abc import Callable
from dataclasses import dataclass, field

import numpy as np
import torch

from sklearn_dpgen.domains import Ball, Box, OneHot, Product
from sklearn_dpgen.nn import clip_weights, linearize, norm_clip_factors
from sklearn_dpgen.ot import sliced_wasserstein2_gradient
from sklearn_dpgen.sliced._sensitivity import (
    parity_penalty_sensitivity,
    projection_spread,
    transport_gradient_sensitivity,
)
from sklearn_dpgen.sliced._strata import Strata
from sklearn_dpgen.utils._torch import as_tensor

__all__ = ["FairObjective", "enclosing_ball", "finite_rows", "predictor_gradient"]


def enclosing_ball(domain):
    """Return a ball around a box, a ball, soft one-hot blocks, or a product of them.

    The transport gradient depends on differences of outputs only, so its sensitivity is that of
    the ball's radius, wherever the ball lies.
    """
    if isinstance(domain, Box):
        return Ball(domain.diameter(2) / 2, center=(domain.low + domain.high) / 2)
    if isinstance(domain, Ball):
        return Ball(domain.diameter(2) / 2, center=domain.center)
    if isinstance(domain, OneHot):
        n = domain.n_categories
        return Ball(math.sqrt(1 - 1 / n), center=np.full(n, 1 / n))
    if isinstance(domain, Product):
        balls = [enclosing_ball(factor) for factor in domain.domains]
        center = np.concatenate([ball.center for ball in balls])
        return Ball(math.hypot(*(ball.radius for ball in balls)), center=center)
    raise TypeError(f"No enclosing ball is known for a domain of type {type(domain).__name__}.")


def finite_rows(W):
    """Return ``W`` with zeros in place of the rows that are not finite.

    A record that overflows then contributes nothing, which is within its bound; an error would
    tell that it is there.
    """
    return torch.where(W.isfinite().all(dim=1, keepdim=True), W, 0.0)


@dataclass(frozen=True)
class FairObjective:
    """The objective (1 - alpha) mean task loss + alpha mean SW_2^2 between groups, privately.

    It clips what each record contributes, and states the l2 sensitivity that follows: the same
    numbers serve both.

    Parameters
    ----------
    alpha : float
        Weight of the penalty, in [0, 1].
    strata : Strata
    task_clip : float
        C, the l2 bound of each record's gradient of the task loss.
    jacobian_clip : float
        L, the bound of the spectral norm of each record's Jacobian of the outputs.
    ball : Ball
        Outputs are projected on it before they are compared; its radius is M.
    n_projections : int
        Number of directions a step; one-dimensional outputs take one.
    clipping : {"spectral", "componentwise"}, default="spectral"
        How Jacobians are clipped.
    reference : callable, optional
        ``reference(n)`` returns n points of the ball, drawn from a public law. Then the penalty
        is the mean over strata of the distance to it, in place of that between pairs.
    """

    alpha: float
    strata: Strata
    task_clip: float
    jacobian_clip: float
    ball: Ball = field(repr=False)
    n_projections: int = 50
    clipping: str = "spectral"
    reference: Callable | None = field(default=None, repr=False)

    @property
    def n_directions(self):
        """Directions a step: whole orthonormal blocks, whose spread is smallest."""
        d = self.ball.n_features
        return 1 if d == 1 else d * math.ceil(self.n_projections / d)

    def sensitivities(self, batch_sizes):
        """Return the l2 sensitivity of a step's gradient to replacing a record, by stratum.

        (1 - alpha) 2 C / n' + alpha times that of the mean over the pairs; n' is the batch's size.
        """
        task = (1 - self.alpha) * 2 * self.task_clip / sum(batch_sizes)
        if not self.strata.pairs:
            return [task] * len(batch_sizes)
        return [task + self.alpha * self._penalty_sensitivity(size) for size in batch_sizes]

    def _penalty_sensitivity(self, batch_size):
        bounds = {
            "radius": self.ball.radius,
            "clip": self.jacobian_clip,
            "spread": projection_spread(self.n_directions, self.ball.n_features),
        }
        if self.reference is not None:
            one = transport_gradient_sensitivity(batch_size, other_clip=0.0, **bounds)
            return one / len(self.strata.members)
        n_groups, n_labels = self.strata.n_groups, self.strata.n_labels
        return parity_penalty_sensitivity(batch_size, n_groups, n_labels=n_labels, **bounds)

    def task_weights(self, squared_norms, R):
        """Return the cotangents of the clipped mean of per-record task gradients.

        Parameters
        ----------
        squared_norms : tensor of shape (n,)
            Squared l2 norms of the records' gradients.
        R : tensor of shape (n, d)
            Their cotangents, the gradients of the loss in the outputs.

        Returns
        -------
        tensor of shape (n, d)
        """
        factors = norm_clip_factors(squared_norms, self.task_clip)
        return (1 - self.alpha) / len(R) * factors[:, None] * R

    def penalty_weights(self, gram, outputs, batch, directions):
        """Return the cotangents of the penalty with clipped outputs and clipped Jacobians.

        Parameters
        ----------
        gram : tensor of shape (n, d, d)
            Gram matrices of the records' Jacobians.
        outputs : tensor of shape (n, d)
        batch : list of slice
            The rows of each stratum.
        directions : tensor of shape (k, d)

        Returns
        -------
        tensor of shape (n, d)
        """
        U = self.ball.project(torch.nan_to_num(outputs))
        W = self.alpha * self._mean_pull(U, batch, directions)
        return clip_weights(gram, W, self.jacobian_clip, clipping=self.clipping)

    def _mean_pull(self, U, batch, directions):
        """Return the gradient in the outputs of the mean squared distance."""
        W = torch.zeros_like(U)
        if self.reference is not None:
            for rows in batch:
                points = as_tensor(self.reference(len(U[rows])), device=U.device, dtype=U.dtype)
                W[rows] = sliced_wasserstein2_gradient(U[rows], points, directions)[1]
            return W / len(batch)
        for first, second in self.strata.pairs:
            one, other = batch[first], batch[second]
            _, d_one, d_other = sliced_wasserstein2_gradient(U[one], U[other], directions)
            W[one] += d_one
            W[other] += d_other
        return W / len(self.strata.pairs)


def predictor_gradient(objective, backbone, head, residuals, X, batch, directions):
    """Return the clipped gradient for a predictor whose outputs are compared between strata.

    One linearization serves the task and the penalty: both clip factors follow from the Gram
    matrices of the Jacobians, and both sums are one weighted sum.

    Parameters
    ----------
    objective : FairObjective
    backbone, head : torch.nn.Module
        Outputs are ``head(backbone(X))``; the head has no parameters.
    residuals : callable
        From the backbone's outputs (n, d) to the gradients of the records' losses in them.
    X : tensor of shape (n, n_features)
        The batch, stratum after stratum.
    batch : list of slice
        The rows of each stratum.
    directions : tensor of shape (k, n_outputs)

    Returns
    -------
    list of tensor
        In the order of the backbone's parameters.
    """
    jacobian = linearize(backbone, X)
    A = jacobian.outputs
    weights = torch.zeros_like(A)
    gram = jacobian.gram()
    if objective.alpha < 1:
        R = residuals(A)
        squared_norms = torch.einsum("ni,nij,nj->n", R, gram, R)
        weights += finite_rows(objective.task_weights(squared_norms, R))
    if objective.alpha > 0 and objective.strata.pairs:
        outputs, S = _head_jacobian(head, A)
        W = objective.penalty_weights(S @ gram @ S.mT, outputs, batch, directions)
        weights += finite_rows((S.mT @ W[:, :, None])[:, :, 0])
    return jacobian.weighted_sum(weights)


def _head_jacobian(head, A):
    """Return the outputs of the head and their Jacobians in its inputs, (n, n_out, n_in)."""
    A = A.detach().requires_grad_()
    with torch.enable_grad():
        outputs = head(A)
        rows = [
            torch.autograd.grad(outputs[:, i].sum(), A, retain_graph=True)[0]
            for i in range(outputs.shape[1])
        ]
    return outputs.detach(), torch.stack(rows, dim=1)
