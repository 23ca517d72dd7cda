"""Random directions to project on."""

from numbers import Integral
from typing import Any

import torch

from ..utils._random import torch_generator

__all__ = ["random_directions"]

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
    r"""Draw unit vectors, each of them uniform on the sphere.

    Parameters
    ----------
    n_projections : int
        How many directions, k.
    n_features : int
        Their dimension, d.
    kind : {"orthogonal", "independent"}, default="orthogonal"
        "orthogonal" draws independent blocks of d orthonormal directions, each block Haar
        distributed and the last one cut short. "independent" draws all directions independently.
    generator : torch.Generator, default=None
        Source of the draws, on any device. None takes a fresh one, seeded from the system's
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
    Directions know nothing of the data: they are public, and the result may be released.

    With orthogonal blocks the matrix :math:`\Theta` of the directions satisfies
    :math:`\|\Theta^\top \Theta\|_2 \le \lceil k / d \rceil`. So the mean over the directions of
    the squared projection of any vector is at most :math:`\lceil k / d \rceil / k` of its squared
    norm: 1 / d where d divides k.
    """
    value: Any
    for value, name in ((n_projections, "n_projections"), (n_features, "n_features")):
        if isinstance(value, bool) or not isinstance(value, Integral) or value < 1:
            raise ValueError(f"{name} must be a positive integer, got {value!r}.")
    if kind not in KINDS:
        raise ValueError(f"kind must be one of {KINDS}, got {kind!r}.")
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
        # The factor is Haar distributed only when the triangle's diagonal is positive.
        signs = torch.ones_like(triangles[:, :1]).copysign(
            triangles.diagonal(dim1=1, dim2=2)[:, None]
        )
        directions = (columns * signs).mT.flatten(0, 1)[:n_projections]
    return directions.to(dtype=dtype, device=device)
