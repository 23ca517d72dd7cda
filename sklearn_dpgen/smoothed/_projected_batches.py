"""Noisy projections of a secret batch, released anew at each step of a training."""

from dataclasses import KW_ONLY, InitVar, dataclass, field
from typing import cast

import numpy as np
import torch

from sklearn_dpgen.accounting import ProjectionLaw
from sklearn_dpgen.mechanisms import StratifiedGaussianMechanism
from sklearn_dpgen.mechanisms._sampled import StratifiedGaussianRun
from sklearn_dpgen.ot._sliced import wasserstein_lines
from sklearn_dpgen.smoothed._releases import ClassRecords
from sklearn_dpgen.utils._random import NoiseSource
from sklearn_dpgen.utils._torch import as_tensor

__all__ = ["ProjectedBatches"]


@dataclass
class ProjectedBatches:
    """The distance of points to a new secret batch, on new directions, both with noise.

    Each call of :meth:`distance` makes one release of the mechanism.

    Parameters
    ----------
    mechanism : StratifiedGaussianMechanism
        With the strata of ``records``, and the law of the directions as its ``projections``.
    noise : NoiseSource
        Of the directions, of the batches, and of their noise. Another fit needs another one, or
        its releases would not compose with these by the price of each.
    records : ClassRecords
        With public classes.
    radius : float
        Of a ball around the centered records.
    q : {1, 2}
        Order of the distance.
    device : torch.device or str
    """

    mechanism: StratifiedGaussianMechanism
    noise: InitVar[NoiseSource]
    records: ClassRecords
    radius: float
    _: KW_ONLY
    q: int
    device: torch.device | str
    _run: StratifiedGaussianRun = field(init=False, repr=False)
    _noise: NoiseSource = field(init=False, repr=False)

    def __post_init__(self, noise):
        self._run, self._noise = self.mechanism.run(noise), noise

    def distance(self, points: torch.Tensor, generator: torch.Generator) -> torch.Tensor:
        """Release projections of a batch, and return their distance to those of points.

        Parameters
        ----------
        points : Tensor of float32 of shape (n_classes, m, d)
            Centered. They get the gradient.
        generator : torch.Generator
            Draws the noise of the points, which is public.

        Returns
        -------
        Tensor of shape ()
            Mean over classes and directions of W_q^q, in units of the radius.
        """
        directions = cast(ProjectionLaw, self.mechanism.projections).draw(self._noise)
        released = self._release(directions)
        # Adam, for one, has a unit of its own.
        projected = points @ torch.from_numpy(directions.T / self.radius).to(points)
        if not projected.isfinite().all():
            # To the training loop a diverged run.
            return projected.sum()
        noise = torch.randn(projected.shape, generator=generator, device=points.device)
        projected = projected + noise * (self.mechanism.noise_scale / self.radius)
        pairs = zip(projected, released, strict=True)
        return torch.stack(
            [
                wasserstein_lines(
                    own, as_tensor(values / self.radius, device=points.device), p=self.q
                )
                for own, values in pairs
            ]
        ).mean()

    def _release(self, directions):
        """Return for each class the noisy projections of its part of a new batch."""
        drawn = self._run.draw()
        rows = np.concatenate(self.records.rows(drawn, self._noise))
        values = self.records.records[rows] @ directions.T
        released = self._run.release(values.ravel()).reshape(values.shape)
        return np.split(released, np.cumsum([len(positions) for positions in drawn])[:-1])
