"""Smoothed Wasserstein distances on many lines, between histograms and moving points.

If the noise is much wider than the points, samples estimate a distance of smoothed distributions
poorly: the distance of two samples of n values is large, and least for a distribution that is too
narrow. Here the smoothing of the moving points is integrated exactly, and the fixed side is a
histogram of any number of values.
"""

from dataclasses import dataclass
from typing import Self

import torch

__all__ = ["LineGrid", "SmoothedLines"]

# Transport maps are smooth at the scale of the noise, and computed at every fourth center.
_STRIDE = 4
# Smallest noise scale that the coarse centers resolve, in steps of the grid.
_NARROWEST = 2 * _STRIDE
# Margin for the noise beyond the points, in standard deviations.
_MARGIN = 5
_CHUNK_LINES = 128


@dataclass(frozen=True)
class LineGrid:
    """A grid of equal bins on [-reach, reach].

    Parameters
    ----------
    reach : float
        Values beyond it are counted in the outermost bins.
    n_bins : int, default=256
        A multiple of 4.
    """

    reach: float
    n_bins: int = 256

    @classmethod
    def around(cls, radius: float, noise_scale: float, n_bins: int = 256) -> Self:
        """Return the grid for points within a radius, with a margin for their smoothing.

        Parameters
        ----------
        radius : float
        noise_scale : float
            Non-negative; `SmoothedLines` raises it to the narrowest resolved scale.
        n_bins : int, default=256
            A multiple of 4, more than 80.

        Returns
        -------
        LineGrid
        """
        widest_step = radius / (n_bins / 2 - _MARGIN * _NARROWEST)
        return cls(radius + _MARGIN * max(noise_scale, _NARROWEST * widest_step), n_bins)

    @property
    def step(self) -> float:
        """Width of a bin."""
        return 2 * self.reach / self.n_bins

    @property
    def narrowest(self) -> float:
        """Smallest standard deviation of a smoothing that the grid resolves."""
        return _NARROWEST * self.step

    def centers(self, like: torch.Tensor) -> torch.Tensor:
        """Return the centers of the bins, with the dtype and device of a tensor."""
        index = torch.arange(self.n_bins, dtype=like.dtype, device=like.device)
        return (index + 0.5) * self.step - self.reach

    def counts(self, points: torch.Tensor, directions: torch.Tensor) -> torch.Tensor:
        """Count the projections of points on lines in bins.

        Parameters
        ----------
        points : Tensor of shape (n, d)
            Finite.
        directions : Tensor of shape (k, d)

        Returns
        -------
        Tensor of float64 of shape (k, n_bins)
        """
        points = points.t().contiguous()
        counts = []
        for chunk in directions.split(_CHUNK_LINES):
            # One line per row keeps its counts in the cache.
            values = (chunk @ points).add_(self.reach).div_(self.step)
            bins = values.clamp_(0, self.n_bins - 1).long()
            bins += self.n_bins * torch.arange(len(chunk), device=bins.device)[:, None]
            counts.append(torch.bincount(bins.view(-1), minlength=len(chunk) * self.n_bins))
        return torch.cat(counts).double().view(len(directions), self.n_bins)

    def locate(self, values: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """Return the center at or below each value, and the share given to the next center."""
        position = (values + self.reach) / self.step - 0.5
        below = position.floor().clamp_(0, self.n_bins - 2)
        return below.long(), (position - below).clamp_(0, 1)


class SmoothedLines:
    r"""Distance of moving points to fixed distributions on lines, known by noisy values.

    With :math:`P_{cj}` the fixed distribution of group c on line j, noise included, and
    :math:`Q_{cj}` that of the points, convolved with the noise :math:`N(0, \sigma^2)`,

    .. math:: \frac1{Ck} \sum_{c,j} W_2^2(P_{cj}, Q_{cj}) .

    Each term is the squared difference of the means plus the distance of the centered
    distributions. The latter has a weight of its own, as smoothing multiplies it by about
    :math:`(s/\sigma)^2`, with s the spread of the points, which slows a descent.

    Parameters
    ----------
    grid : LineGrid
        It covers the points, and almost all of the noisy values.
    counts : Tensor of shape (C, k, n_bins)
        Noisy values in bins, at least one on each line.
    noise_scale : float
        σ. Noise below 8 steps of the grid is increased to 8 steps, on both sides.
    shape_weight : float, default=1.0
        Weight of the distance of the centered distributions.
    shares : Tensor of shape (C,) or None, default=None
        Share of group c that is distributed as the points; the rest is at 0. None for 1.

    Attributes
    ----------
    noise_scale : float
        The standard deviation of the smoothing.
    """

    def __init__(
        self,
        grid: LineGrid,
        counts: torch.Tensor,
        noise_scale: float,
        *,
        shape_weight: float = 1.0,
        shares: torch.Tensor | None = None,
    ) -> None:
        self.grid = grid
        self.shape_weight = shape_weight
        self.noise_scale = max(float(noise_scale), grid.narrowest)
        like = counts.new_empty(0, dtype=torch.float32)
        centers = grid.centers(like)
        laws = counts / counts.sum(-1, keepdim=True)
        missing = self.noise_scale**2 - float(noise_scale) ** 2
        if missing > 0:
            kernel = _normal_kernel(centers, centers, missing**0.5).double()
            laws = torch.cat([chunk @ kernel for chunk in laws.split(1)])
        # Mass is uniform within a bin, so half of it is below the center.
        self._fixed_cdf = (laws.cumsum(-1) - laws / 2).float().contiguous()
        self._tail = 0.5 / float(counts[0, 0].sum())
        coarse = centers[_STRIDE // 2 :: _STRIDE]
        # Splitting points between two centers adds a variance of step²/6 on average; moving fixed
        # values to one center adds step²/12.
        scale = (self.noise_scale**2 - grid.step**2 / 12) ** 0.5
        self._to_cdf = torch.special.ndtr((coarse - centers[:, None]) / scale)
        self._to_density = _normal_kernel(centers, coarse, scale)
        self._coarse = coarse
        self._shares = None if shares is None else shares.to(like)[:, None, None]

    def gradient(
        self, points: torch.Tensor, lines: slice = slice(None)
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """Return the distance to points of weight 1/m each, and its gradient at each point.

        Parameters
        ----------
        points : Tensor of float32 of shape (C, m, k)
            Projections on the lines.
        lines : slice, default=slice(None)
            The k lines of the projections.

        Returns
        -------
        value : Tensor of shape ()
            Distance, with the shape weight.
        gradient : Tensor of shape (C, m, k)
            Mean over the noise of the gradient of W_2^2 at a noisy point.
        """
        grid, fixed = self.grid, self._fixed_cdf[:, lines]
        n_groups, m, k = points.shape
        below, share = grid.locate(points.transpose(1, 2).contiguous())
        law = points.new_zeros(n_groups, k, grid.n_bins)
        law.scatter_add_(2, below, 1 - share).scatter_add_(2, below + 1, share)
        law /= m
        scale = 1.0
        if self._shares is not None:
            scale = self._shares
            law *= scale
            law[..., grid.n_bins // 2 - 1 : grid.n_bins // 2 + 1] += (1 - scale) / 2
        levels = (law @ self._to_cdf).clamp_(self._tail, 1 - self._tail)
        density = law @ self._to_density
        moved = self._coarse - self._quantiles(fixed, levels)
        location = (density * moved).sum(-1, keepdim=True)
        shape = moved - location
        weighted = (density * shape.square()).sum(-1, keepdim=True) * self.shape_weight
        value = (location.square() + weighted).mean()
        pull = 2 * (location + self.shape_weight * shape)
        field = pull @ self._to_density.T
        at_points = field.gather(2, below) * (1 - share) + field.gather(2, below + 1) * share
        return value, (at_points * scale / (n_groups * m * k)).transpose(1, 2)

    def _quantiles(self, fixed, levels):
        """Return the quantiles of the fixed distributions, linear between the centers."""
        above = torch.searchsorted(fixed.contiguous(), levels).clamp_(1, self.grid.n_bins - 1)
        low, high = fixed.gather(2, above - 1), fixed.gather(2, above)
        share = ((levels - low) / (high - low).clamp_min_(1e-12)).clamp_(0, 1)
        return (above - 0.5 + share) * self.grid.step - self.grid.reach


def _normal_kernel(centers, targets, scale):
    """Return normal weights of shape (n_centers, n_targets), with row sums 1."""
    return torch.softmax(-(((targets - centers[:, None]) / scale) ** 2) / 2, dim=1)
