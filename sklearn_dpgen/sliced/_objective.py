"""The clipped gradient of a task and a transport penalty, and what one record can change in it.

Statements and proofs of the sensitivities are in doc/sensitivity.rst. Neighbours differ in one
replaced record of one side; the sizes of both sides, the clipping bounds and the directions are
public.
"""

import math
import sys
from collections.abc import Callable
from dataclasses import dataclass, field

import torch
from torch.nn import functional

from sklearn_dpgen.domains import Ball, Box, Product
from sklearn_dpgen.nn import linearize
from sklearn_dpgen.nn._jacobian import clip_weights
from sklearn_dpgen.ot import sliced_wasserstein2_gradient
from sklearn_dpgen.sliced._strata import Strata
from sklearn_dpgen.utils._torch import as_tensor
from sklearn_dpgen.utils._validation import check_count, check_positive, check_rate

__all__ = [
    "FairObjective",
    "fair_gradient",
    "parity_penalty_sensitivity",
    "penalty_gradient",
    "projection_spread",
    "softmax_residuals",
    "standardized",
    "task_gradient",
    "transport_gradient_sensitivity",
]


def projection_spread(n_projections: int, n_features: int) -> float:
    """Return the spread s of directions in orthonormal blocks.

    It is the smallest number with mean (θ·v)² ≤ s² ‖v‖² for every v, whatever the blocks.

    Parameters
    ----------
    n_projections : int
        Number k of directions: blocks of d orthonormal ones, of which the last may be truncated.
    n_features : int
        Dimension d.

    Returns
    -------
    float
        s = √(⌈k/d⌉ / k), which is 1/√d where d divides k, and 1 for d = 1. For directions drawn
        independently of each other use 1.
    """
    k = check_count(n_projections, "n_projections")
    d = check_count(n_features, "n_features")
    return math.sqrt(math.ceil(k / d) / k)


def transport_gradient_sensitivity(
    n: int, *, radius: float, clip: float, other_clip: float, spread: float = 1.0, p: int = 2
) -> float:
    """Return the l2 sensitivity of the clipped gradient of W₂², or of its sliced average.

    Parameters
    ----------
    n : int
        Number of records on the side of the one that is replaced.
    radius : float
        All outputs, of both sides, lie in a ball of this radius M about a public center.
    clip : float
        Largest spectral norm L₁ of a record's Jacobian on that side; 0 where it is constant.
    other_clip : float
        The same for the other side, L₂.
    spread : float
        s of :func:`projection_spread`. 1 covers any directions, and one dimension.
    p : {2}
        Order of the distance.

    Returns
    -------
    float
        (4M/n) [L₁ (1 + ψ) + max(L₂ − L₁, 0) s] with ψ = s(2 − s) for s ≤ 1/2 and
        min(1, 1/2 + s²) otherwise. With s = 1 it is (4M/n) max(2L₁, L₁ + L₂).

    Raises
    ------
    ValueError
        If ``p`` is not 2.

    Notes
    -----
    Neighbours: one of the ``n`` records is replaced. For the records of the other side, exchange
    the roles of the two clips. The bound is attained on the line, and for a block of directions
    where L₁ = L₂, or L₁ = 0, or L₂ ≥ L₁ and d ≥ 4. That of the paper [1]_ is 4M (3L₁ + L₂)/n.

    References
    ----------
    .. [1] D. Rodríguez-Vítores, C. Lalanne, J.-M. Loubes, "Learning with differentially private
       (sliced) Wasserstein gradients", 2025, Theorem 4.1 and appendix D.
    """
    if p != 2:
        raise ValueError(
            f"p must be 2, got {p!r}: one record can change the gradient of W_p by an amount that "
            "does not shrink with n, so no noise that does would hide it. Only the square of W_2, "
            "and averages of it, are covered."
        )
    n = check_count(n, "n")
    radius = check_positive(radius, "radius")
    clip, other_clip = _check_clip(clip, "clip"), _check_clip(other_clip, "other_clip")
    s = check_rate(spread, "spread")
    joint = s * (2 - s) if s <= 0.5 else min(1.0, 0.5 + s * s)
    return 4 * radius / n * (clip * (1 + joint) + max(other_clip - clip, 0.0) * s)


def parity_penalty_sensitivity(
    batch_size: int,
    n_groups: int,
    *,
    radius: float,
    clip: float,
    spread: float = 1.0,
    n_labels: int = 1,
    p: int = 2,
) -> float:
    """Return the l2 sensitivity of the clipped gradient of a parity penalty.

    The penalty is the mean, over all pairs of groups, of the squared distance between the laws of
    one network's outputs; for equalized odds also the mean over the labels.

    Parameters
    ----------
    batch_size : int
        Number of records in the batch of the replaced record's group, or of its group and label.
    n_groups : int
        Number G of groups, at least 2.
    radius, clip, spread, p
        As in :func:`transport_gradient_sensitivity`.
    n_labels : int
        Number of labels of equalized odds; 1 for demographic parity.

    Returns
    -------
    float
        2/(G n_labels) times the sensitivity of one distance with both clips equal: a record is in
        G − 1 of the G(G − 1)/2 pairs, and in the pairs of one label.
    """
    n_groups = check_count(n_groups, "n_groups")
    if n_groups < 2:
        raise ValueError("n_groups must be at least 2, got 1.")
    share = 2 / (n_groups * check_count(n_labels, "n_labels"))
    return share * transport_gradient_sensitivity(
        batch_size, radius=radius, clip=clip, other_clip=clip, spread=spread, p=p
    )


def _check_clip(clip, name):
    return 0.0 if clip == 0 else check_positive(clip, name)


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
