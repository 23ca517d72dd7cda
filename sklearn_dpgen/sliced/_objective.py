"""The clipped gradient of a task and a transport penalty, and what one record can change in it."""

import sys
from collections.abc import Callable
from dataclasses import dataclass, field

import torch
from torch.nn import functional

from sklearn_dpgen.domains import Ball, Box, Product
from sklearn_dpgen.nn import linearize
from sklearn_dpgen.nn._jacobian import clip_weights
from sklearn_dpgen.ot import sliced_wasserstein2_gradient
from sklearn_dpgen.sliced._sensitivity import projection_spread, transport_gradient_sensitivity
from sklearn_dpgen.sliced._strata import Strata
from sklearn_dpgen.utils._torch import as_tensor

__all__ = [
    "FairObjective",
    "fair_gradient",
    "penalty_gradient",
    "softmax_residuals",
    "standardized",
    "task_gradient",
]


def softmax_residuals(logits, labels):
    """Gradient of the log loss in the logits."""
    return torch.softmax(logits, dim=1) - functional.one_hot(labels, logits.shape[1])


def standardized(domain, center, radius):
    """Return a box, a ball, or a product of them, measured from a center in units of a radius."""
    if isinstance(domain, Box):
        return Box((domain.low - center) / radius, (domain.high - center) / radius)
    if isinstance(domain, Ball):
        return Ball(domain.radius / radius, p=domain.p, center=(domain.center - center) / radius)
    if isinstance(domain, Product):
        parts = zip(domain.domains, domain.slices, strict=True)
        return Product([standardized(factor, center[part], radius) for factor, part in parts])
    raise TypeError(f"y_domain must be a Box, a Ball or a Product, got {type(domain).__name__}.")


@dataclass(frozen=True)
class FairObjective:
    """The objective (1 - alpha) mean task loss + alpha times SW_2^2 between groups, privately.

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
    group_weights : {"size", "equal"}, default="size"
        What groups count in the penalty: see :meth:`Strata.pair_weights`.
    n_directions : int
        Directions a step, in orthonormal blocks.
    clipping : {"spectral", "componentwise"}, default="spectral"
        How Jacobians are clipped.
    reference : callable, optional
        ``reference(n)`` returns n points of the ball, drawn from a public law. Then the penalty
        is the mean over strata of the distance to it, in place of those between pairs.
    n_labelled : int, optional
        How many strata, from the first, have a task: the source of two domains. None is all.
    """

    alpha: float
    strata: Strata
    task_clip: float
    jacobian_clip: float
    ball: Ball = field(repr=False)
    group_weights: str = "size"
    n_directions: int = 1
    clipping: str = "spectral"
    reference: Callable | None = field(default=None, repr=False)
    n_labelled: int | None = None

    def __post_init__(self):
        for name in ("alpha", "task_clip", "jacobian_clip"):
            object.__setattr__(self, name, float(getattr(self, name)))

    def sensitivities(self, batch_sizes):
        """Return the l2 sensitivity of a step's gradient to replacing a record, by stratum.

        (1 - alpha) 2 C w + alpha v times that of one distance, where w is the record's weight in
        the mean of the task, and v that of all the distances that it is in.
        """
        tasks = [
            (1 - self.alpha) * 2 * self.task_clip * weight
            for weight in self.record_weights(batch_sizes)
        ]
        if not self.strata.pairs:
            return tasks
        # With alpha = 1 a record in no pair changes nothing; a bound is positive all the same.
        return [
            max(task + self.alpha * weight * self._distance_sensitivity(size), sys.float_info.min)
            for task, size, weight in zip(tasks, batch_sizes, self._distance_weights(), strict=True)
        ]

    def record_weights(self, batch_sizes):
        """Return the weight of a record of each stratum in the mean of the task over a batch.

        Each stratum counts by its share of the records with a task, whatever its batch: the mean
        is unbiased, and where a batch takes more of a small stratum its records count less.
        """
        sizes = self.strata.sizes
        total = sum(sizes[: self.n_labelled])
        weights = [size / (total * taken) for size, taken in zip(sizes, batch_sizes, strict=True)]
        n_labelled = len(weights[: self.n_labelled])
        return weights[:n_labelled] + [0.0] * (len(weights) - n_labelled)

    def largest_gradients(self):
        """Return the largest norm of the mean gradient of the task, and of the penalty.

        A record's part of a distance is at most 4 M s L / n, as far as its points and those that
        they are matched with can be from each other.
        """
        penalty = 0.0
        if self.strata.pairs:
            spread = projection_spread(self.n_directions, self.ball.n_features)
            penalty = 4 * self.ball.radius * spread * self.jacobian_clip
            penalty *= self.alpha * sum(self._distance_weights())
        return (1 - self.alpha) * self.task_clip, penalty

    def n_lines(self):
        """Return on how many lines the outputs of a record are sorted in a step, on average."""
        if not self.strata.pairs or self.alpha == 0:
            return 0.0
        pairs = 2 * len(self.strata.pairs) / len(self.strata.sizes)
        return self.n_directions * (pairs if self.reference is None else 1.0)

    def _distance_weights(self):
        """Return the weight of all the distances that each stratum is in."""
        if self.reference is not None:
            return self.strata.group_weights(self.group_weights)
        weights = [0.0] * len(self.strata.sizes)
        pairs = self.strata.pairs
        for pair, weight in zip(pairs, self.strata.pair_weights(self.group_weights), strict=True):
            for position in pair:
                weights[position] += weight
        return weights

    def _distance_sensitivity(self, batch_size):
        return transport_gradient_sensitivity(
            batch_size,
            radius=self.ball.radius,
            clip=self.jacobian_clip,
            other_clip=self.jacobian_clip if self.reference is None else 0.0,
            spread=projection_spread(self.n_directions, self.ball.n_features),
        )

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
        W = self.alpha * self._pull(U, batch, directions)
        return clip_weights(gram, W, self.jacobian_clip, clipping=self.clipping)

    def _pull(self, U, batch, directions):
        """Return the gradient in the outputs of the weighted squared distances."""
        W = torch.zeros_like(U)
        if self.reference is not None:
            weights = self.strata.group_weights(self.group_weights)
            for rows, weight in zip(batch, weights, strict=True):
                points = as_tensor(self.reference(len(U[rows])), device=U.device, dtype=U.dtype)
                W[rows] = weight * sliced_wasserstein2_gradient(U[rows], points, directions)[1]
            return W
        pairs = self.strata.pairs
        for pair, weight in zip(pairs, self.strata.pair_weights(self.group_weights), strict=True):
            one, other = (batch[position] for position in pair)
            _, d_one, d_other = sliced_wasserstein2_gradient(U[one], U[other], directions)
            W[one] += weight * d_one
            W[other] += weight * d_other
        return W


def fair_gradient(objective, model, compared, residuals, X, batch, directions, weights=None):
    """Return the clipped gradient of a task and of a penalty on what is compared.

    Parameters
    ----------
    objective : FairObjective
    model, compared : torch.nn.Module
        The outputs of the task, and those that are compared between strata; the parameters of
        ``compared`` are the first ones of ``model``.
    residuals : callable
        From the model's outputs (n, d) to the gradients of the records' losses in them.
    X : tensor of shape (n, n_features)
        The batch, stratum after stratum.
    batch : list of slice
        The rows of each stratum.
    directions : tensor of shape (k, n_compared)
    weights : tensor of shape (n,), optional
        Of the records' losses, in [0, 1].

    Returns
    -------
    list of tensor
        In the order of the model's parameters.
    """
    if objective.alpha < 1:
        gradients = task_gradient(objective, model, residuals, X, batch, weights)
    else:
        gradients = [torch.zeros_like(parameter) for parameter in model.parameters()]
    if objective.alpha > 0 and objective.strata.pairs:
        penalty = penalty_gradient(objective, compared, X, batch, directions)
        for gradient, part in zip(gradients, penalty, strict=False):
            gradient += part
    return gradients


def task_gradient(objective, model, residuals, X, batch, weights=None):
    """Return (1 - alpha) times the mean of the clipped gradients of the task.

    Parameters
    ----------
    objective, model, residuals, X, batch, weights
        As in :func:`fair_gradient`.

    Returns
    -------
    list of tensor
    """
    sizes = [rows.stop - rows.start for rows in batch]
    scale = torch.tensor(objective.record_weights(sizes), device=X.device, dtype=X.dtype)
    scale = (1 - objective.alpha) * scale.repeat_interleave(torch.tensor(sizes, device=X.device))
    if weights is not None:
        scale = scale * weights
    scale = scale[: batch[: objective.n_labelled][-1].stop]
    jacobian = linearize(model, X[: len(scale)])
    return jacobian.clipped_sum(residuals(jacobian.outputs), objective.task_clip, scale)


def penalty_gradient(objective, compared, X, batch, directions):
    """Return alpha times the gradient of the penalty, with clipped outputs and Jacobians.

    Parameters
    ----------
    objective, compared, X, batch, directions
        As in :func:`fair_gradient`.

    Returns
    -------
    list of tensor
        In the order of the parameters of ``compared``.
    """
    jacobian = linearize(compared, X)
    outputs = jacobian.outputs
    weights = objective.penalty_weights(jacobian.gram(), outputs, batch, directions)
    return jacobian.weighted_sum(weights)
