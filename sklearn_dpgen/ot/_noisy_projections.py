"""Sliced Wasserstein distance of projections with noise of one distribution on both sides."""

import torch

from sklearn_dpgen.ot._problem import check_points
from sklearn_dpgen.ot._sliced import check_directions, wasserstein_lines

__all__ = ["noisy_projected_wasserstein"]


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

    With independent noise of one law on both sides its mean is a distance between smoothed laws:
    it vanishes, up to what finite samples leave, where the laws of X and Y agree and nowhere else.
    It is not private: :func:`sklearn_dpgen.smoothed.smoothed_sliced_wasserstein` is, and returns
    the p-th root.

    Parameters
    ----------
    X : Tensor of shape (n, d)
        Points, float32 or float64, of weight 1 / n each.
    Y : Tensor of shape (m, d)
        Points of the same dtype and device, of weight 1 / m each.
    directions : Tensor of shape (k, d)
        Unit rows :math:`\theta_j`, of the dtype and device of X. They get no gradient.
    noise_X : Tensor of shape (n, k)
        Noise of the projections of X, :math:`v_j` its columns, of the dtype and device of X.
    noise_Y : Tensor of shape (m, k)
        Noise of the projections of Y, :math:`w_j` its columns, likewise.
    p : float, default=2
        Exponent, at least 1.

    Returns
    -------
    Tensor of shape ()
        The mean of the :math:`W_p^p`, without a root, differentiable once in X and Y.

    Raises
    ------
    TypeError
        If a point cloud is not a float32 or float64 tensor.
    ValueError
        If shapes, dtypes or devices disagree, a cloud is empty, a direction has not unit norm, or
        p is below 1.

    Notes
    -----
    Nothing here is private by itself. Where X is private, its noisy projections are what may be
    released; the gradient in X passes by their noise and is not covered. Compare a release with
    other projections by :func:`wasserstein_lines`.

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
            raise ValueError(
                f"{name} must be a tensor of shape {like[0]}, of the dtype and device of X."
            )
    theta = directions.detach().t()
    return wasserstein_lines(X @ theta + noise_X, Y @ theta + noise_Y, p=p)
