"""Sensitivity of the clipped gradient of a squared Wasserstein distance.

Statements and proofs are in doc/sensitivity.rst. Neighbours differ in one replaced record of one
side; the sizes of both sides, the clipping bounds and the directions are public.
"""

import math

from sklearn_dpgen.accounting._checks import check_count, check_rate
from sklearn_dpgen.utils._validation import check_positive

__all__ = [
    "parity_penalty_sensitivity",
    "projection_spread",
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
