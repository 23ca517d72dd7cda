"""Output layers that end inside a public domain."""

import math

import torch
from torch import nn

from sklearn_dpgen.domains import Ball, Box, OneHot, Product
from sklearn_dpgen.utils._torch import as_tensor

__all__ = ["DomainHead"]


class DomainHead(nn.Module):
    """Map unbounded activations smoothly into a domain.

    A box ends in a scaled tanh, a one-hot block in a softmax, a ball in a radial tanh, any other
    domain in its own projection; a product takes its factors side by side.

    Parameters
    ----------
    domain : Domain
        The domain, of known width.
    """

    def __init__(self, domain):
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

    def forward(self, A):
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


def _exact(bounds):
    """Keep bounds in double precision: those far from zero would collapse in single."""
    return as_tensor(bounds, dtype=torch.float64)
