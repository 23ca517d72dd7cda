"""Images with given moments: normal cosine coefficients, sharpened, clipped, and deformed."""

from dataclasses import dataclass

import torch
from torch.nn.functional import grid_sample, pad

from sklearn_dpgen.persistence._declarations import saved

__all__ = ["ImageModel", "match_moments"]

# Images per block.
_CHUNK = 4096
# Smallest variance of a latent coefficient.
_FLOOR = 1e-5
# Step sizes of the corrections: large at first, small at the end to average the sampling error.
_FIRST_STEP, _LAST_STEP = 0.7, 0.07
# Share of a side by which a shift moves pixels as much as a turn of one radian.
_SHIFT = 1 / 3


@saved
@dataclass(frozen=True)
class ImageModel:
    """Map from latent cosine coefficients to images with pixels in [0, 1].

    Parameters
    ----------
    basis : Tensor of float32 of shape (d, n_pixels)
        Orthonormal rows.
    shape : tuple of int
        (height, width) or (height, width, channels), with n_pixels entries.
    contrast : float
        Slope of the pixels at one half, before they are clipped to the range.
    deformation : float
        Standard deviation of a random rotation in radians, of the shear, and of the logarithm of
        the size; three times that of the shifts, as a share of the sides.
    """

    _saved_state = {
        "basis": torch.Tensor,
        "shape": tuple[int, ...],
        "contrast": float,
        "deformation": float,
    }

    basis: torch.Tensor
    shape: tuple
    contrast: float
    deformation: float

    def images(self, mean, factor, n, generator):
        """Return random images.

        Parameters
        ----------
        mean : Tensor of shape (d,)
        factor : Tensor of shape (d, d)
            Latent coefficients are ``mean + z @ factor`` with standard normal z.
        n : int
        generator : torch.Generator
            On the CPU, so that a seed gives the same draws on every device.

        Returns
        -------
        Tensor of shape (n, n_pixels)
        """
        sizes = [min(_CHUNK, n - start) for start in range(0, n, _CHUNK)]
        device = self.basis.device
        mean, factor = mean @ self.basis, factor @ self.basis
        parts = []
        for size in sizes:
            Z = torch.randn(size, len(factor), generator=generator).to(device)
            X = torch.addmm(mean, Z, factor)
            X = X.sub_(0.5).mul_(self.contrast).add_(0.5).clamp_(0, 1)
            parts.append(self._deformed(X, generator) if self.deformation > 0 else X)
        return torch.cat(parts) if parts else self.basis.new_zeros((0, self.basis.shape[1]))

    def _deformed(self, X, generator):
        n, channels = len(X), self.shape[2] if len(self.shape) == 3 else 1
        E = self.deformation * torch.randn(n, 6, generator=generator).to(X.device)
        turn, shear = E[:, 0], E[:, 1]
        wide, high = torch.exp(E[:, 2] + E[:, 3] / 2), torch.exp(E[:, 2] - E[:, 3] / 2)
        maps = torch.stack(
            [
                torch.stack([wide * turn.cos(), shear - wide * turn.sin()], 1),
                torch.stack([high * turn.sin(), high * turn.cos()], 1),
            ],
            1,
        )
        # Coordinates are in [-1, 1].
        maps = torch.cat([maps, 2 * _SHIFT * E[:, 4:, None]], 2)
        images = X.view(n, *self.shape[:2], channels).movedim(3, 1)
        places = _pixel_places(maps, self.shape[:2])
        moved = grid_sample(images, places, padding_mode="border", align_corners=False)
        return moved.movedim(1, 3).reshape(n, -1)


def _pixel_places(maps, sides):
    """Return the positions of mapped pixel centres, as ``affine_grid`` does, by one product.

    Parameters
    ----------
    maps : Tensor of shape (n, 2, 3)
    sides : pair of int
        Height and width.

    Returns
    -------
    Tensor of shape (n, height, width, 2)
    """
    y, x = ((2 * torch.arange(side, device=maps.device) + 1) / side - 1 for side in sides)
    centres = pad(torch.cartesian_prod(y, x).flip(1), (0, 1), value=1.0)
    return (maps.reshape(-1, 3) @ centres.t()).view(-1, 2, *sides).movedim(1, 3)


def match_moments(model, mean, covariance, *, n_draws, n_iter, generator):
    """Return latent moments whose images have coefficients with a given mean and covariance.

    Parameters
    ----------
    model : ImageModel
    mean : Tensor of shape (d,)
    covariance : Tensor of shape (d, d)
    n_draws : int
        Number of images per step.
    n_iter : int
        Number of steps; each adds the residual of the moments to the latent moments.
    generator : torch.Generator

    Returns
    -------
    mean : Tensor of shape (d,)
    factor : Tensor of shape (d, d)
        As in :meth:`ImageModel.images`.
    errors : list of float
        At each step, the distance of the covariances relative to the norm of the given one.
    """
    latent_mean, latent_covariance = mean.clone(), covariance / model.contrast**0.5
    size, errors = covariance.norm(), []
    for step in range(n_iter):
        factor = _root(latent_covariance)
        C = model.images(latent_mean, factor, n_draws, generator) @ model.basis.t()
        missing = covariance - torch.cov(C.t()).reshape(covariance.shape)
        errors.append(float(missing.norm() / size))
        rate = _FIRST_STEP + (_LAST_STEP - _FIRST_STEP) * step / n_iter
        latent_mean = latent_mean + rate * (mean - C.mean(0)) / max(1, model.contrast / 2)
        correction = rate * missing / max(1, model.contrast**2 / 4)
        latent_covariance = latent_covariance + correction
    return latent_mean, _root(latent_covariance), errors


def _root(matrix):
    """Return the symmetric root of a matrix, with negative eigenvalues set to zero."""
    values, vectors = torch.linalg.eigh(matrix)
    return vectors * values.clamp_min(_FLOOR).sqrt() @ vectors.t()
