"""Optimal transport."""

import torch

from sklearn_dpgen.ot import random_directions, sinkhorn, sliced_wasserstein2_gradient

from .common import SEED, Timing


class Sliced(Timing):
    """The gradient of 100,000 points in 10 dimensions, on 50 directions."""

    def prepare(self):
        generator = torch.Generator().manual_seed(SEED)
        self.X = torch.randn(100_000, 10, generator=generator)
        self.Y = 1.5 * torch.randn(100_000, 10, generator=generator) + 0.1
        self.directions = random_directions(50, 10, generator=generator)

    def time_gradient(self):
        sliced_wasserstein2_gradient(self.X, self.Y, self.directions)


class Sinkhorn(Timing):
    """Ten iterations on a cost of 2,000 by 2,000."""

    def prepare(self):
        generator = torch.Generator().manual_seed(SEED)
        self.cost = 20 * torch.rand(2000, 2000, generator=generator)

    def time_ten_steps(self):
        sinkhorn(self.cost, tol=0, n_iter=10)
