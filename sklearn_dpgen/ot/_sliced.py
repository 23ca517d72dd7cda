"""Sliced Wasserstein distances of point clouds, random directions, closed-form gradients."""

import math
from numbers import Integral
from typing import Any

import torch
from torch.autograd.function import once_differentiable

from sklearn_dpgen.exceptions import PublicTypeError, PublicValueError
from sklearn_dpgen.ot._problem import DTYPES, check_points
from sklearn_dpgen.utils._random import torch_generator
from sklearn_dpgen.utils._threads import threads_for
from sklearn_dpgen.utils._torch import as_tensor
from sklearn_dpgen.utils._validation import check_positive

__all__ = [
    "check_directions",
    "held_out_distance",
    "noisy_projected_wasserstein",
    "random_directions",
    "sliced_wasserstein",
    "sliced_wasserstein2_gradient",
    "wasserstein2_gradient",
    "wasserstein_lines",
]

KINDS = ("orthogonal", "independent")


def random_directions(
    n_projections: int,
    n_features: int,
    *,
    kind: str = "orthogonal",
    generator: torch.Generator | None = None,
    dtype: torch.dtype = torch.float32,
    device: str | torch.device = "cpu",
) -> torch.Tensor:
    r"""Draw random unit vectors, each uniform on the sphere.

    Parameters
    ----------
    n_projections : int
        Number of directions, k.
    n_features : int
        Dimension, d.
    kind : {"orthogonal", "independent"}, default="orthogonal"
        "orthogonal" draws independent blocks of d orthonormal directions, each block Haar
        distributed and the last one truncated. "independent" draws all directions independently.
    generator : torch.Generator, default=None
        Source of the draws, on any device. None takes a new one, seeded from the system's
        entropy; the global generator is never used.
    dtype : torch.dtype, default=torch.float32
        Type of the result; the draws are made in float64.
    device : torch.device or str, default="cpu"
        Device of the result.

    Returns
    -------
    Tensor of shape (n_projections, n_features)
        Unit rows.

    Notes
    -----
    Directions do not depend on the data: they are public, and may be released.

    With orthogonal blocks the matrix :math:`\Theta` of the directions satisfies
    :math:`\|\Theta^\top \Theta\|_2 \le \lceil k / d \rceil`. So the mean over the directions of
    the squared projection of any vector is at most :math:`\lceil k / d \rceil / k` of its squared
    norm: 1 / d if d divides k.
    """
    value: Any
    for value, name in ((n_projections, "n_projections"), (n_features, "n_features")):
        if isinstance(value, bool) or not isinstance(value, Integral) or value < 1:
            raise PublicValueError(f"{name} must be a positive integer, got {value!r}.")
    if kind not in KINDS:
        raise PublicValueError(f"kind must be one of {KINDS}, got {kind!r}.")
    if generator is None:
        generator = torch_generator(None, device)

    def normal(*shape):
        return torch.randn(
            *shape, generator=generator, dtype=torch.float64, device=generator.device
        )

    if kind == "independent":
        directions = torch.nn.functional.normalize(normal(n_projections, n_features), dim=1)
    else:
        n_blocks = -(-n_projections // n_features)
        columns, triangles = torch.linalg.qr(
            normal(n_blocks, n_features, min(n_projections, n_features))
        )
        # The factor is Haar distributed only if the diagonal of the triangle is positive.
        signs = torch.ones_like(triangles[:, :1]).copysign(
            triangles.diagonal(dim1=1, dim2=2)[:, None]
        )
        directions = (columns * signs).mT.flatten(0, 1)[:n_projections]
    return directions.to(dtype=dtype, device=device)


# Largest number of projected values held at once per side, if a matrix product has enough rows.
CHUNK_ENTRIES = 2**21
MIN_CHUNK_ROWS = 8

# From this length on, torch sorts integer vectors by radix, ten times faster than floats.
RADIX_ENTRIES = 2**15
MAX_RADIX_ROWS = 2**8


def sliced_wasserstein(
    X: torch.Tensor,
    Y: torch.Tensor,
    *,
    directions: torch.Tensor | None = None,
    n_projections: int = 50,
    p: float = 2,
    generator: torch.Generator | None = None,
) -> torch.Tensor:
    r"""Sliced Wasserstein distance between uniform point clouds, to the power p.

    .. math:: \frac1k \sum_{\theta} W_p^p(\theta_\# P_X, \theta_\# P_Y)

    Parameters
    ----------
    X : Tensor of shape (n, d)
        Points, float32 or float64, of weight 1 / n each.
    Y : Tensor of shape (m, d)
        Points of the same dtype and device, of weight 1 / m each.
    directions : Tensor of shape (k, d), default=None
        Unit rows to project on, of the dtype and device of X. They get no gradient.
    n_projections : int, default=50
        Number of directions drawn by :func:`random_directions` if ``directions`` is None. Ignored
        for d = 1, where one direction suffices.
    p : float, default=2
        Exponent, at least 1.
    generator : torch.Generator, default=None
        Source of the directions, as in :func:`random_directions`.

    Returns
    -------
    Tensor of shape ()
        The mean of the :math:`W_p^p`, without a root, differentiable once in both arguments. Not
        finite if a point is not.

    Raises
    ------
    PublicTypeError
        If a point cloud is not a float32 or float64 tensor.
    PublicValueError
        If shapes, dtypes or devices disagree, a cloud is empty, a direction does not have unit
        norm, or p is below 1.

    Notes
    -----
    Takes two sorts per direction, and extra memory linear in n + m for any k. The forward pass
    computes the gradient and keeps nothing else. Equal projections are ranked by index; for p = 1
    the subgradient of a distance of zero is zero.
    """
    check_points(X, Y)
    p = _check_exponent(p)
    if directions is None:
        d = X.shape[1]
        if d == 1:
            directions = X.new_ones(1, 1)
        else:
            directions = random_directions(
                n_projections, d, generator=generator, dtype=X.dtype, device=X.device
            )
    check_directions(directions, X)
    return _SlicedWasserstein.apply(X, Y, directions, p)


class _SlicedWasserstein(torch.autograd.Function):
    @staticmethod
    def forward(ctx, X, Y, directions, p):
        value, *gradients = _sliced_gradient(X, Y, directions, p)
        ctx.save_for_backward(*gradients)
        return value

    @staticmethod
    @once_differentiable
    def backward(ctx, grad_output):
        dX, dY = ctx.saved_tensors
        return dX * grad_output, dY * grad_output, None, None


def wasserstein_lines(U: torch.Tensor, V: torch.Tensor, *, p: float = 2) -> torch.Tensor:
    r"""Mean over columns of the one-dimensional Wasserstein distance of samples, to the power p.

    Parameters
    ----------
    U : Tensor of shape (n, k)
        Values, float32 or float64, of weight 1 / n each: k samples of the line, e.g. projections.
    V : Tensor of shape (m, k)
        Values of the same dtype and device, of weight 1 / m each.
    p : float, default=2
        Exponent, at least 1.

    Returns
    -------
    Tensor of shape ()
        Mean of :math:`W_p^p` between column j of U and column j of V, differentiable once in
        both. Otherwise as in :func:`sliced_wasserstein`.

    Raises
    ------
    PublicTypeError
        If an argument is not a float32 or float64 tensor.
    PublicValueError
        If shapes, dtypes or devices disagree, a sample is empty, or p is below 1.
    """
    for values, name in ((U, "U"), (V, "V")):
        _check_dtype(values, name)
        if values.ndim != 2 or values.numel() == 0:
            raise PublicValueError(f"{name} must have shape (n, k) with n > 0 and k > 0.")
    if (U.shape[1], U.dtype, U.device) != (V.shape[1], V.dtype, V.device):
        raise PublicValueError("U and V must agree in their number of columns, dtype and device.")
    return _WassersteinLines.apply(U, V, _check_exponent(p))


class _WassersteinLines(torch.autograd.Function):
    @staticmethod
    def forward(ctx, U, V, p):
        with threads_for(max(len(U), len(V))):
            dU, dV = (W.t().clone(memory_format=torch.contiguous_format) for W in (U, V))
            value = _replace_by_gradients(dU, dV, p)
        ctx.save_for_backward(dU, dV)
        return value / U.shape[1]

    @staticmethod
    @once_differentiable
    def backward(ctx, grad_output):
        dU, dV = ctx.saved_tensors
        scale = grad_output / len(dU)
        return dU.t() * scale, dV.t() * scale, None


@torch.no_grad()
def sliced_wasserstein2_gradient(
    X: torch.Tensor, Y: torch.Tensor, directions: torch.Tensor
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    r"""Sliced squared 2-Wasserstein distance between uniform point clouds, and its gradient.

    Parameters
    ----------
    X : Tensor of shape (n, d)
        Points, float32 or float64, of weight 1 / n each.
    Y : Tensor of shape (m, d)
        Points of the same dtype and device, of weight 1 / m each.
    directions : Tensor of shape (k, d)
        Unit rows, of the dtype and device of X.

    Returns
    -------
    value : Tensor of shape ()
        Mean over the directions of :math:`W_2^2` of the projections.
    dX : Tensor of shape (n, d)
        Its gradient in X: row i is the mean over the directions of
        :math:`\theta \, \partial W_2^2 / \partial U_i`, with :math:`U_i = \langle \theta, x_i
        \rangle` (see ``wasserstein2_gradient``).
    dY : Tensor of shape (m, d)
        Its gradient in Y, likewise.

    Raises
    ------
    PublicTypeError, PublicValueError
        As in :func:`sliced_wasserstein`.
    """
    check_points(X, Y)
    check_directions(directions, X)
    return _sliced_gradient(X, Y, directions, 2)


@torch.no_grad()
def wasserstein2_gradient(U: torch.Tensor, V: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    r"""Gradient of the squared 2-Wasserstein distance between uniform samples of the line.

    Parameters
    ----------
    U : Tensor of shape (..., n)
        Values, float32 or float64, of weight 1 / n each.
    V : Tensor of shape (..., m)
        Values of the same dtype and device, of weight 1 / m each. Leading dimensions are a
        batch of independent problems, the same for both.

    Returns
    -------
    dU : Tensor of shape (..., n)
        :math:`\frac2n (U_i - m_{\sigma(i)})`, with :math:`\sigma(i)` the rank of :math:`U_i`,
        ties by index, and :math:`m_r` the mean of the quantile function of V on
        ((r - 1) / n, r / n].
    dV : Tensor of shape (..., m)
        Likewise.

    Raises
    ------
    PublicTypeError
        If an argument is not a float32 or float64 tensor.
    PublicValueError
        If a sample is empty, or batch shapes, dtypes or devices disagree.
    """
    for values, name in ((U, "U"), (V, "V")):
        _check_dtype(values, name)
        if values.ndim == 0 or values.shape[-1] == 0:
            raise PublicValueError(f"{name} must have shape (..., n) with n > 0.")
    if (U.shape[:-1], U.dtype, U.device) != (V.shape[:-1], V.dtype, V.device):
        raise PublicValueError("U and V must agree in batch shape, dtype and device.")
    dU, dV = (
        W.reshape(-1, W.shape[-1]).clone(memory_format=torch.contiguous_format) for W in (U, V)
    )
    with threads_for(max(U.shape[-1], V.shape[-1])):
        _replace_by_gradients(dU, dV, 2)
    return dU.reshape(U.shape), dV.reshape(V.shape)


def _check_dtype(values, name):
    if not isinstance(values, torch.Tensor) or values.dtype not in DTYPES:
        raise PublicTypeError(f"{name} must be a float32 or float64 tensor.")


def _check_exponent(p):
    p = check_positive(p, "p")
    if p < 1:
        raise PublicValueError(f"p must be at least 1, got {p}.")
    return p


def check_directions(directions, X):
    """Check that directions are unit rows in the space of X."""
    like = (X.shape[1], X.dtype, X.device)
    if (
        not isinstance(directions, torch.Tensor)
        or directions.ndim != 2
        or len(directions) == 0
        or (directions.shape[1], directions.dtype, directions.device) != like
    ):
        raise PublicValueError(
            f"directions must be a tensor of shape (k, {X.shape[1]}) with k > 0, of the dtype and "
            "device of X."
        )
    norms = torch.linalg.vector_norm(directions.detach(), dim=1)
    if not ((norms - 1).abs() <= 1e-5).all():
        raise PublicValueError("directions must have rows of unit norm.")


def _sliced_gradient(X, Y, directions, p):
    """Return the mean of W_p^p over the directions, and its gradients in X and Y."""
    k, rows = len(directions), max(MIN_CHUNK_ROWS, CHUNK_ENTRIES // max(len(X), len(Y)))
    value, dX, dY = X.new_zeros(()), torch.zeros_like(X), torch.zeros_like(Y)
    # Long lines are sorted one by one.
    with threads_for(max(len(X), len(Y))):
        for chunk in directions.split(rows):
            U, V = chunk @ X.t(), chunk @ Y.t()
            value += _replace_by_gradients(U, V, p)
            dX.addmm_(U.t(), chunk, alpha=1 / k)
            dY.addmm_(V.t(), chunk, alpha=1 / k)
    return value / k, dX, dY


def _replace_by_gradients(U, V, p):
    """Overwrite the rows of U and V by the gradients of their W_p^p; return the sum of W_p^p."""
    value, n, m = U.new_zeros(()), U.shape[1], V.shape[1]
    overlaps = None if n == m else (_overlaps(n, m, U), _overlaps(m, n, U))
    rows = len(U)
    if not U.is_cuda:
        # Short rows are sorted together, long rows one by one, so that they stay in the cache.
        rows = min(MAX_RADIX_ROWS, (2 * RADIX_ENTRIES - 1) // max(n, m))
    for u, v in zip(U.split(max(1, rows)), V.split(max(1, rows)), strict=True):
        u_order, v_order = _argsort(u), _argsort(v)
        total, du, dv = _sorted_gradients(u.gather(1, u_order), v.gather(1, v_order), p, overlaps)
        value += total
        u.scatter_(1, u_order, du)
        v.scatter_(1, v_order, dv)
    return value


def _sorted_gradients(U, V, p, overlaps):
    """Return the sum of W_p^p over pairs of sorted rows, and its gradients."""
    if overlaps is None:
        gap = U - V
        slope = _slope(gap, p)
        scale = 1 / U.shape[1]
        return _dot(slope, gap) * scale, slope * (p * scale), slope * (-p * scale)
    (value, dU), (_, dV) = _one_side(U, V, p, overlaps[0]), _one_side(V, U, p, overlaps[1])
    return value, dU, dV


def _one_side(U, V, p, overlap):
    """Return the sum of W_p^p over pairs of sorted rows, and its gradient in the rows of U."""
    index, weight = overlap
    gap = U[:, None] - V.index_select(1, index.flatten()).unflatten(1, index.shape)
    slope = _slope(gap, p) * weight
    scale = 1 / U.shape[1]
    return _dot(slope, gap) * scale, slope.sum(1) * (p * scale)


def _slope(gap, p):
    """Return the derivative of |gap|^p / p."""
    if p == 2:
        return gap
    if p == 1:
        return gap.sign()
    return gap.abs().pow_(p - 1).copysign_(gap)


def _dot(A, B):
    return torch.dot(A.flatten(), B.flatten())


def _overlaps(n, m, like):
    """Return the overlaps of the intervals ((j - 1) / m, j / m] with ((r - 1) / n, r / n].

    Returns
    -------
    index : Tensor of shape (s, n)
        Column r has, from 0, the intervals j that meet r; the last one is repeated as padding.
    weight : Tensor of shape (s, n)
        Share of each in r, 0 for padding. Computed from integers; columns sum to 1.

    Notes
    -----
    This is a row-sparse form of an n by m matrix, with n s < 2 n + m entries. It depends on the
    sizes alone, so it serves all directions.
    """
    rank = torch.arange(n, device=like.device)
    start, stop = rank * m, (rank + 1) * m
    first, last = start // n, (stop - 1) // n
    # Largest number of intervals that meet one: its start is at most n - gcd behind another's.
    size = -((math.gcd(n, m) - n - m) // n)
    index = first + torch.arange(size, device=like.device)[:, None]
    shared = torch.minimum(stop, (index + 1) * n) - torch.maximum(start, index * n)
    return torch.minimum(index, last), shared.clamp_min_(0).to(like.dtype) / m


def _argsort(U):
    """Return the stable sorting order of every row; long rows are sorted as integers."""
    if U.is_cuda or U.numel() < RADIX_ENTRIES:
        return torch.sort(U, dim=1, stable=True).indices
    n_rows, n = U.shape
    order = torch.sort(_integer_keys(U).flatten(), stable=True).indices
    if n_rows > 1:
        # A second stable sort groups the values by row again.
        row = (order // n).to(torch.uint8)
        order = order[torch.sort(row, stable=True).indices].view(n_rows, n)
        order -= torch.arange(0, n_rows * n, n)[:, None]
    return order.view(n_rows, n)


def _integer_keys(U):
    """Return integers in the order of the floats, equal if and only if the floats are."""
    dtype = torch.int32 if U.dtype == torch.float32 else torch.int64
    bits = (U + 0.0).view(dtype)  # -0.0 becomes 0.0
    # The magnitude of negative floats grows with their bits.
    return bits ^ ((bits >> (torch.iinfo(dtype).bits - 1)) & torch.iinfo(dtype).max)


def noisy_projected_wasserstein(
    X: torch.Tensor,
    Y: torch.Tensor,
    directions: torch.Tensor,
    noise_X: torch.Tensor,
    noise_Y: torch.Tensor,
    *,
    p: float = 2,
) -> torch.Tensor:
    r"""Sliced Wasserstein distance between noisy projections of point clouds, to the power p.

    .. math:: \frac1k \sum_j W_p^p(X \theta_j + v_j, Y \theta_j + w_j)

    With independent noise of one distribution on both sides, its mean is a distance between
    smoothed distributions: up to the finite-sample bias it vanishes if and only if X and Y have
    the same distribution. It is not private:
    :func:`sklearn_dpgen.smoothed.smoothed_sliced_wasserstein` is, and returns the p-th root.

    Parameters
    ----------
    X : Tensor of shape (n, d)
        Points, float32 or float64, of weight 1 / n each.
    Y : Tensor of shape (m, d)
        Points of the same dtype and device, of weight 1 / m each.
    directions : Tensor of shape (k, d)
        Unit rows :math:`\theta_j`, of the dtype and device of X. They get no gradient.
    noise_X : Tensor of shape (n, k)
        Noise of the projections of X, with columns :math:`v_j`, of the dtype and device of X.
    noise_Y : Tensor of shape (m, k)
        Noise of the projections of Y, with columns :math:`w_j`, likewise.
    p : float, default=2
        Exponent, at least 1.

    Returns
    -------
    Tensor of shape ()
        The mean of the :math:`W_p^p`, without a root, differentiable once in X and Y.

    Raises
    ------
    PublicTypeError, PublicValueError
        As in :func:`sliced_wasserstein`.

    Notes
    -----
    If X is private, only its noisy projections may be released; the gradient in X does not pass
    through their noise and is not protected. Compare a release with other projections by
    ``wasserstein_lines``.

    References
    ----------
    Rakotomamonjy and Ralaivola, "Differentially private sliced Wasserstein distance", ICML 2021,
    Algorithm 1 and Properties 1 and 2.
    """
    check_points(X, Y)
    check_directions(directions, X)
    for noise, points, name in ((noise_X, X, "noise_X"), (noise_Y, Y, "noise_Y")):
        like = ((len(points), len(directions)), X.dtype, X.device)
        if (
            not isinstance(noise, torch.Tensor)
            or (tuple(noise.shape), noise.dtype, noise.device) != like
        ):
            raise PublicValueError(
                f"{name} must be a tensor of shape {like[0]}, of the dtype and device of X."
            )
    theta = directions.detach().t()
    return wasserstein_lines(X @ theta + noise_X, Y @ theta + noise_Y, p=p)


# Seed of the directions: it is public, and common to all distances that are compared.
_SEED = 0
_FEWEST_DIRECTIONS = 256


def held_out_distance(groups, *, device="cpu"):
    r"""Return the class-wise sliced 2-Wasserstein distance of generated to held-out records.

    .. math:: \Big(\sum_c \frac{n_c}{n} SW_2^2(X_c, G_c)\Big)^{1/2}

    Parameters
    ----------
    groups : list of (ndarray of shape (n_c, d), ndarray of shape (m_c, d))
        Held-out and generated records of each class.
    device : torch.device or str, default="cpu"

    Returns
    -------
    float
        In the units of the records. The directions are whole orthonormal blocks, so the distance
        is exact for two distributions that differ by a shift.
    """
    d = groups[0][0].shape[1]
    n_projections = d * math.ceil(_FEWEST_DIRECTIONS / d)
    powers = [
        len(records)
        * sliced_wasserstein(
            as_tensor(records, device=device, dtype=torch.float64),
            as_tensor(generated, device=device, dtype=torch.float64),
            n_projections=n_projections,
            generator=torch_generator(_SEED),
        ).item()
        for records, generated in groups
    ]
    return math.sqrt(sum(powers) / sum(len(records) for records, _ in groups))
