"""Output layers that end inside a public domain."""

import math

import torch
from torch import nn

from sklearn_dpgen.domains import Ball, Box, Domain, OneHot, Product
from sklearn_dpgen.persistence._networks import saved_network
from sklearn_dpgen.utils._torch import as_tensor

__all__ = ["DomainHead", "DrawnHead"]


@saved_network
class DomainHead(nn.Module):
    """Map unbounded activations smoothly into a domain.

    A box ends in a scaled tanh, a one-hot block in a softmax, a ball in a radial tanh, any other
    domain in its own projection; a product takes its factors side by side.

    Parameters
    ----------
    domain : Domain
        The domain, of known width.
    """

    _saved_state = {"domain": Domain}

    center: torch.Tensor
    radius: torch.Tensor

    def __init__(self, domain: Domain) -> None:
        super().__init__()
        self.domain = domain
        if isinstance(domain, Box):
            low, high = _exact(domain.low), _exact(domain.high)
            self.register_buffer("center", (low + high) / 2)
            self.register_buffer("radius", (high - low) / 2)
        elif isinstance(domain, Ball):
            self.register_buffer("center", _exact(domain.center))
        elif isinstance(domain, Product):
            self.heads = nn.ModuleList([DomainHead(factor) for factor in domain.domains])

    def forward(self, A: torch.Tensor) -> torch.Tensor:
        domain = self.domain
        if isinstance(domain, Box):
            return self.center.to(A) + self.radius.to(A) * torch.tanh(A)
        if isinstance(domain, OneHot):
            return torch.softmax(A, dim=1)
        if isinstance(domain, Product):
            widths = [factor.n_features for factor in domain.domains]
            parts = torch.split(A, widths, dim=1)
            return torch.cat([head(P) for head, P in zip(self.heads, parts, strict=True)], dim=1)
        if isinstance(domain, Ball):
            if domain.p == math.inf:
                return self.center.to(A) + domain.radius * torch.tanh(A)
            # In units of the norm of a vector of ones: else the radius saturates in high dimension.
            spread = domain.n_features ** (1 / domain.p)
            norm = torch.linalg.vector_norm(A, ord=domain.p, dim=1, keepdim=True).clamp_min(1e-12)
            return self.center.to(A) + domain.radius * torch.tanh(norm / spread) * A / norm
        return domain.project(A)


class DrawnHead(nn.Module):
    """Map activations into a domain, and draw the categories of its one-hot blocks.

    A soft block must make up the spread of hard ones out of its latents. Here a block is the
    vertex of the largest activation after Gumbel noise, so a draw by the softmax of its
    activations, with the gradient of a softmax. All other factors end as in `DomainHead`.

    Parameters
    ----------
    domain : Domain
    temperature : float, default=0.7
        Of the softmax that the gradient is of.
    """

    def __init__(self, domain: Domain, temperature: float = 0.7) -> None:
        super().__init__()
        self.domains = domain.domains if isinstance(domain, Product) else (domain,)
        self.heads = nn.ModuleList([DomainHead(factor) for factor in self.domains])
        self.temperature = temperature

    @property
    def n_noise(self) -> int:
        """How many normal inputs become Gumbel noise: one for each category."""
        return sum(f.n_features for f in self.domains if isinstance(f, OneHot))

    def forward(self, A: torch.Tensor, N: torch.Tensor) -> torch.Tensor:
        """Return points of the domain.

        Parameters
        ----------
        A : Tensor of shape (n, domain.n_features)
        N : Tensor of shape (n, n_noise)
            Standard normal.
        """
        parts, used = [], 0
        blocks = A.split([factor.n_features for factor in self.domains], dim=1)
        for factor, head, block in zip(self.domains, self.heads, blocks, strict=True):
            if not isinstance(factor, OneHot):
                parts.append(head(block))
                continue
            normal = N[:, used : used + factor.n_features]
            used += factor.n_features
            block = block - torch.log(-torch.special.log_ndtr(normal) + 1e-12)
            soft = torch.softmax(block / self.temperature, dim=1)
            hard = nn.functional.one_hot(block.argmax(dim=1), block.shape[1])
            parts.append(hard + (soft - soft.detach()))
        return torch.cat(parts, dim=1)


def _exact(bounds):
    """Keep bounds in double precision: those far from zero would collapse in single."""
    return as_tensor(bounds, dtype=torch.float64)
