"""The clipped gradient of a task loss plus a transport penalty, and its l2 sensitivity.

Statements and proofs of the sensitivities are in doc/sensitivity.rst. Neighbours differ in one
replaced record of one sample; the sizes of both samples, the clipping bounds and the directions are
public. Where groups are protected, a record may be replaced by one of another group.
"""

import math
import sys
from collections.abc import Callable
from dataclasses import dataclass, field, replace

import torch
from torch.nn import functional

from sklearn_dpgen.domains import Ball, Box, Product
from sklearn_dpgen.exceptions import PublicTypeError, PublicValueError
from sklearn_dpgen.nn import linearize
from sklearn_dpgen.nn._jacobian import clip_weights
from sklearn_dpgen.ot import sliced_wasserstein2_gradient
from sklearn_dpgen.ot._sliced import wasserstein2_gradient
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
    "standardize_domain",
    "task_gradient",
    "transport_gradient_sensitivity",
]


def projection_spread(n_projections: int, n_features: int) -> float:
    """Return the spread s of random directions in orthonormal blocks.

    This is the smallest s such that the mean of (θ·v)² over the directions θ is at most s² ‖v‖² for
    every v and all blocks.

    Parameters
    ----------
    n_projections : int
        Number k of directions, in blocks of d orthonormal ones; the last block may be truncated.
    n_features : int
        Dimension d.

    Returns
    -------
    float
        s = √(⌈k/d⌉ / k), which is 1/√d if d divides k, and 1 for d = 1. Independent directions have
        spread 1.
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
        Number of records in the sample of the replaced record.
    radius : float
        Radius M of a ball about a public center that contains all outputs of both samples.
    clip : float
        Largest spectral norm L₁ of the Jacobian of a record in that sample; 0 if its outputs do not
        depend on the parameters.
    other_clip : float
        L₂, the same for the other sample.
    spread : float
        s of :func:`projection_spread`. 1 is valid for any directions, and for one dimension.
    p : {2}
        Order of the distance.

    Returns
    -------
    float
        (4M/n) [L₁ (1 + ψ) + max(L₂ − L₁, 0) s] with ψ = s(2 − s) for s ≤ 1/2 and
        min(1, 1/2 + s²) otherwise. With s = 1 it is (4M/n) max(2L₁, L₁ + L₂).

    Raises
    ------
    PublicValueError
        If ``p`` is not 2.

    Notes
    -----
    Neighbours: one of the ``n`` records is replaced. For the records of the other sample, exchange
    the two clips. The bound is attained in one dimension, and for a block of directions if L₁ = L₂,
    or L₁ = 0, or L₂ ≥ L₁ and d ≥ 4. The paper [1]_ has the bound 4M (3L₁ + L₂)/n.

    References
    ----------
    .. [1] D. Rodríguez-Vítores, C. Lalanne, J.-M. Loubes, "Learning with differentially private
       (sliced) Wasserstein gradients", 2025, Theorem 4.1 and appendix D.
    """
    if p != 2:
        raise PublicValueError(
            f"p must be 2, got {p!r}: for other p the sensitivity of the gradient of W_p does not "
            "shrink with n. Only the squared W_2 distance, and averages of it, are supported."
        )
    n = check_count(n, "n")
    radius = check_positive(radius, "radius")
    clip, other_clip = _check_clip(clip, "clip"), _check_clip(other_clip, "other_clip")
    s = check_rate(spread, "spread")
    # ψ(s) of Theorem 2 in doc/sensitivity.rst.
    psi = s * (2 - s) if s <= 0.5 else min(1.0, 0.5 + s * s)
    return 4 * radius / n * (clip * (1 + psi) + max(other_clip - clip, 0.0) * s)


def parity_penalty_sensitivity(
    batch_size: int,
    n_groups: int,
    *,
    radius: float,
    clip: float,
    spread: float = 1.0,
    n_labels: int = 1,
    p: int = 2,
    protect_groups: bool = False,
) -> float:
    """Return the l2 sensitivity of the clipped gradient of a parity penalty.

    The penalty is the squared distance between the output distributions of two groups, averaged
    over all pairs of groups; for equalized odds also over the labels. With ``protect_groups`` the
    pairs are weighted by the sizes of the groups in the batch (:ref:`protected_sensitivity`).

    Parameters
    ----------
    batch_size : int
        Number k of records in the batch: those from the replaced record's group, or group and
        label; with ``protect_groups`` all.
    n_groups : int
        Number G of groups, at least 2.
    radius, clip, spread, p
        As in :func:`transport_gradient_sensitivity`. With ``protect_groups`` the bound is that of
        one direction, whatever the spread.
    n_labels : int
        Number of labels of equalized odds; 1 for demographic parity.
    protect_groups : bool, default=False
        Whether the replaced record may change its group, and for equalized odds its label.

    Returns
    -------
    float
        2/(G n_labels) times the sensitivity of one distance with equal clips, because a record is
        in G − 1 of the G(G − 1)/2 pairs, and in the pairs of one label. With ``protect_groups`` 4
        times the sensitivity of one distance, and for two groups without labels (k − 1)/k of that.

    Raises
    ------
    PublicValueError
        If ``n_groups`` is less than 2, or ``p`` is not 2.

    Notes
    -----
    Proofs: :ref:`sensitivity`. The bounds are attained; with ``protect_groups``, more than two
    groups and no labels up to a factor 1 − 1/(2m), for groups of m records.
    """
    n_groups = check_count(n_groups, "n_groups")
    if n_groups < 2:
        raise PublicValueError("n_groups must be at least 2, got 1.")
    n_labels = check_count(n_labels, "n_labels")
    batch_size = check_count(batch_size, "batch_size")
    if protect_groups:
        # A record that leaves a group, and one that enters another, each half of it. Of two groups
        # each costs the share of the other among the k - 1 other records.
        share = 4 * (1 - 1 / batch_size) if (n_groups, n_labels) == (2, 1) else 4.0
        check_rate(spread, "spread")
        spread = 1.0
    else:
        share = 2 / (n_groups * n_labels)
    return share * transport_gradient_sensitivity(
        batch_size, radius=radius, clip=clip, other_clip=clip, spread=spread, p=p
    )


def _check_clip(clip, name):
    return 0.0 if clip == 0 else check_positive(clip, name)


def softmax_residuals(logits, labels):
    """Return the gradient of the log loss with respect to the logits."""
    return torch.softmax(logits, dim=1) - functional.one_hot(labels, logits.shape[1])


def standardize_domain(domain, center, radius):
    """Return a domain of boxes and balls, shifted by a center and divided by a radius."""
    if isinstance(domain, Box):
        return Box((domain.low - center) / radius, (domain.high - center) / radius)
    if isinstance(domain, Ball):
        return Ball(domain.radius / radius, p=domain.p, center=(domain.center - center) / radius)
    if isinstance(domain, Product):
        factors = zip(domain.domains, domain.slices, strict=True)
        return Product(
            [standardize_domain(factor, center[columns], radius) for factor, columns in factors]
        )
    raise PublicTypeError(
        f"y_domain must be a Box, a Ball or a Product, got {type(domain).__name__}."
    )


@dataclass(frozen=True)
class FairObjective:
    """Clipped gradients of (1 - alpha) × task loss + alpha × SW_2^2, and their sensitivities.

    SW_2^2 is the sliced Wasserstein distance between strata. The same clips bound the contribution
    of each record and give the l2 sensitivity.

    Parameters
    ----------
    alpha : float
        Weight of the penalty, in [0, 1].
    strata : Strata
    task_clip : float
        C, the l2 bound of the gradient of each record's task loss.
    jacobian_clip : float
        L, the bound of the spectral norm of the Jacobian of each record's outputs.
    ball : Ball
        The ball on which outputs are projected before they are compared; its radius is M.
    group_weights : {"size", "equal"}, default="size"
        Weights of the groups in the penalty: see :meth:`Strata.pair_weights`.
    n_directions : int
        Number of directions per step, in orthonormal blocks.
    clipping : {"spectral", "componentwise"}, default="spectral"
        How Jacobians are clipped.
    reference : callable, optional
        ``reference(n)`` draws n points of the ball from a public distribution. The penalty is then
        the mean distance of the strata to this distribution, instead of that between pairs.
    n_labelled : int, optional
        Number of strata, from the first, whose records have a task loss, such as the source of two
        domains. None is all.
    codes : tensor of int of shape (n,), optional
        Private cells of the records of a batch, if ``strata`` protects them: see :meth:`of_batch`.
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
    codes: torch.Tensor | None = field(default=None, repr=False, compare=False)

    def __post_init__(self):
        for name in ("alpha", "task_clip", "jacobian_clip"):
            object.__setattr__(self, name, float(getattr(self, name)))

    def sensitivities(self, batch_sizes):
        """Return the l2 sensitivity of a step's gradient to replacing a record of each stratum.

        It is (1 - alpha) 2 C w plus alpha v times the sensitivity of one distance, where w is the
        weight of the record in the mean task loss, and v that of its stratum in the penalty.
        """
        tasks = [
            (1 - self.alpha) * 2 * self.task_clip * weight
            for weight in self.record_weights(batch_sizes)
        ]
        if not self.strata.pairs:
            return tasks
        if self.strata.protects_cells:
            penalty = self._protected_sensitivity(*batch_sizes)
            return [max(tasks[0] + self.alpha * penalty, sys.float_info.min)]
        # A record in no pair has sensitivity 0 if alpha = 1; a mechanism needs a positive one.
        return [
            max(task + self.alpha * weight * self._distance_sensitivity(size), sys.float_info.min)
            for task, size, weight in zip(tasks, batch_sizes, self._distance_weights(), strict=True)
        ]

    def record_weights(self, batch_sizes):
        """Return the weight of a record of each stratum in the mean task loss of a batch.

        A stratum is weighted by its share of the records with a task, so the mean is unbiased even
        if the batch takes a larger fraction of a small stratum.
        """
        sizes = self.strata.sizes
        total = sum(sizes[: self.n_labelled])
        weights = [size / (total * batch) for size, batch in zip(sizes, batch_sizes, strict=True)]
        n_labelled = len(weights[: self.n_labelled])
        return weights[:n_labelled] + [0.0] * (len(weights) - n_labelled)

    def largest_gradients(self):
        """Return the largest possible norms of the mean gradients of the task and the penalty.

        A record contributes at most 4 M s L / n to the gradient of a distance, because its outputs
        and those that they are matched with are at most 2 M apart.
        """
        penalty = 0.0
        if self.strata.pairs:
            spread = projection_spread(self.n_directions, self.ball.n_features)
            penalty = 4 * self.ball.radius * spread * self.jacobian_clip
            penalty *= self.alpha * sum(self._distance_weights())
        return (1 - self.alpha) * self.task_clip, penalty

    def share_of_equal_groups(self):
        """Return the weight of all distances, relative to that for groups of equal size."""
        return sum(self._distance_weights()) / (1 if self.reference is not None else 2)

    def _distance_weights(self):
        """Return the total weight of the distances of each stratum."""
        if self.strata.protects_cells:
            # The largest for any division of the records: that into equal groups.
            return [2.0 if self.reference is None else 1.0]
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

    def _protected_sensitivity(self, batch_size):
        """Return the sensitivity of the penalty to a record whose cell is private."""
        if self.reference is not None:
            # A record that leaves a group and one that enters another, each up to 8 M L / n.
            return 2 * transport_gradient_sensitivity(
                batch_size, radius=self.ball.radius, clip=self.jacobian_clip, other_clip=0.0
            )
        groups, labels = zip(*self.strata.cells, strict=True)
        return parity_penalty_sensitivity(
            batch_size,
            len(set(groups)),
            radius=self.ball.radius,
            clip=self.jacobian_clip,
            n_labels=len(set(labels)),
            protect_groups=True,
        )

    def of_batch(self, codes):
        """Return the objective of a batch whose records have these private cells."""
        return replace(self, codes=codes)

    def penalty_weights(self, gram, outputs, batch, directions):
        """Return the cotangents of the penalty, for clipped outputs and clipped Jacobians.

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
        W = self.alpha * self._output_gradient(U, batch, directions)
        return clip_weights(gram, W, self.jacobian_clip, clipping=self.clipping)

    def _output_gradient(self, U, batch, directions):
        """Return the gradient of the weighted squared distances with respect to the outputs."""
        if self.codes is not None:
            return self._divided_gradient(U, self.codes, directions)
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

    def _divided_gradient(self, U, codes, directions):
        """Return the same for a batch that is divided by private codes."""
        # All records are projected together, in the order in which they were drawn, so that the
        # computed values of one record do not depend on the cell of another.
        lines = directions @ U.t()
        slopes = torch.zeros_like(lines)
        cells = [(codes == cell).nonzero()[:, 0] for cell in range(len(self.strata.cells))]
        strata = self.strata.of_batch(map(len, cells))
        if self.reference is not None:
            # As many points as the batch has records, since the size of a group is private.
            points = as_tensor(self.reference(len(U)), device=U.device, dtype=U.dtype)
            targets = directions @ points.t()
            for rows, share in zip(cells, strata.shares, strict=True):
                if len(rows):
                    slopes[:, rows] = share * wasserstein2_gradient(lines[:, rows], targets)[0]
        else:
            for pair, weight in zip(strata.pairs, strata.protected_weights(), strict=True):
                if weight > 0:
                    sides = [cells[position] for position in pair]
                    parts = wasserstein2_gradient(*(lines[:, rows] for rows in sides))
                    for rows, part in zip(sides, parts, strict=True):
                        slopes[:, rows] += weight * part
        return slopes.t() @ directions / len(directions)


def fair_gradient(objective, model, compared, residuals, X, batch, directions, weights=None):
    """Return the clipped gradient of the task loss plus the penalty on compared outputs.

    Parameters
    ----------
    objective : FairObjective
    model, compared : torch.nn.Module
        The networks of the task and of the compared outputs; the parameters of ``compared`` are
        the first ones of ``model``.
    residuals : callable
        Maps the outputs of ``model``, of shape (n, d), to the gradients of the records' losses.
    X : tensor of shape (n, n_features)
        The batch, ordered by stratum.
    batch : list of slice
        The rows of each stratum.
    directions : tensor of shape (k, n_compared)
    weights : tensor of shape (n,), optional
        Weights of the records' losses, in [0, 1].

    Returns
    -------
    list of tensor
        One for each parameter of ``model``.
    """
    if objective.alpha < 1:
        gradients = task_gradient(objective, model, residuals, X, batch, weights)
    else:
        gradients = [torch.zeros_like(parameter) for parameter in model.parameters()]
    if objective.alpha > 0 and objective.strata.pairs:
        penalty = penalty_gradient(objective, compared, X, batch, directions)
        for gradient, penalty_part in zip(gradients, penalty, strict=False):
            gradient += penalty_part
    return gradients


def task_gradient(objective, model, residuals, X, batch, weights=None):
    """Return (1 - alpha) times the mean clipped gradient of the task loss.

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
    """Return alpha times the gradient of the penalty, for clipped outputs and Jacobians.

    Parameters
    ----------
    objective, compared, X, batch, directions
        As in :func:`fair_gradient`.

    Returns
    -------
    list of tensor
        One for each parameter of ``compared``.
    """
    jacobian = linearize(compared, X)
    outputs = jacobian.outputs
    weights = objective.penalty_weights(jacobian.gram(), outputs, batch, directions)
    return jacobian.weighted_sum(weights)
