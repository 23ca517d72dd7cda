"""Generator networks: maps from latents to points of a domain."""

import itertools
import math
from collections.abc import Sequence
from typing import Any

import torch
from torch import nn

from sklearn_dpgen.domains import Ball, Box, Domain, OneHot, Product
from sklearn_dpgen.exceptions import PublicValueError
from sklearn_dpgen.persistence._networks import dense_arguments, saved_network, saved_parts
from sklearn_dpgen.utils._torch import as_tensor

__all__ = [
    "ACTIVATIONS",
    "DomainHead",
    "DrawnGenerator",
    "DrawnHead",
    "GeneratorMixture",
    "color_dcgan_generator",
    "dcgan_generator",
    "mlp_generator",
    "upsampling_generator",
]


@saved_network
class DomainHead(nn.Module):
    """Map unbounded activations smoothly into a domain.

    A box uses a scaled tanh, a one-hot block a softmax, a ball a radial tanh, and any other domain
    its own projection; the factors of a product are concatenated.

    Parameters
    ----------
    domain : Domain
        A domain of known dimension.
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
            # In units of the norm of a vector of ones, or the radius saturates in high dimension.
            spread = domain.n_features ** (1 / domain.p)
            norm = torch.linalg.vector_norm(A, ord=domain.p, dim=1, keepdim=True).clamp_min(1e-12)
            return self.center.to(A) + domain.radius * torch.tanh(norm / spread) * A / norm
        return domain.project(A)


class DrawnHead(nn.Module):
    """Map activations into a domain, and sample the categories of its one-hot blocks.

    A one-hot block is the vertex with the largest activation after Gumbel noise, which is a sample
    from the softmax of its activations, with the gradient of a softmax (straight-through). A soft
    block would have to make up the spread of hard ones from its latents. All other factors are
    mapped as in `DomainHead`.

    Parameters
    ----------
    domain : Domain
    temperature : float, default=0.7
        Temperature of the softmax whose gradient is used.
    """

    def __init__(self, domain: Domain, temperature: float = 0.7) -> None:
        super().__init__()
        self.domains = domain.domains if isinstance(domain, Product) else (domain,)
        self.heads = nn.ModuleList([DomainHead(factor) for factor in self.domains])
        self.temperature = temperature

    @property
    def n_noise(self) -> int:
        """Number of normal inputs for the Gumbel noise: one per category."""
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
    """Return bounds in double precision, as bounds far from zero would collapse in single."""
    return as_tensor(bounds, dtype=torch.float64)


ACTIVATIONS = {"relu": nn.ReLU, "silu": nn.SiLU, "tanh": nn.Tanh}

# An untrained network should spread over the whole domain. If all outputs are near its centre,
# training is slow to break the symmetry between the categories of a record.
_OUTPUT_GAIN = 5.0


def mlp_generator(
    latent_dim: int,
    domain: Domain,
    hidden_layer_sizes: Sequence[int] = (256, 256),
    activation: str = "relu",
) -> torch.nn.Sequential:
    """Build a multilayer perceptron with outputs in a domain.

    Parameters
    ----------
    latent_dim : int
        Dimension of the latent input.
    domain : Domain
        Domain of the output.
    hidden_layer_sizes : sequence of int, default=(256, 256)
        Widths of the hidden layers.
    activation : {"relu", "silu", "tanh"}, default="relu"
        Activation of the hidden layers.

    Returns
    -------
    torch.nn.Sequential
        Takes (n, latent_dim), returns (n, domain.n_features).
    """
    hidden = _dense(latent_dim, domain.n_features, hidden_layer_sizes, activation)
    return nn.Sequential(*hidden, DomainHead(domain))


@saved_network
class DrawnGenerator(nn.Module):
    """A multilayer perceptron with outputs in a domain and sampled categories.

    Parameters
    ----------
    latent_dim : int
        Dimension of the latent input.
    domain : Domain
        Domain of the output; its one-hot blocks are vertices.
    hidden_layer_sizes : sequence of int, default=(256, 256)
        Widths of the hidden layers.
    activation : {"relu", "silu", "tanh"}, default="relu"
        Activation of the hidden layers.

    Attributes
    ----------
    n_noise : int
        Number of further inputs, before the latent: standard normals that sample the categories.

    Notes
    -----
    ``forward`` takes (n, n_noise + latent_dim), and returns (n, domain.n_features).
    """

    _saved_state = {
        "latent_dim": int,
        "domain": Domain,
        "hidden_layer_sizes": tuple[int, ...],
        "activation": str,
    }

    def __init__(
        self,
        latent_dim: int,
        domain: Domain,
        hidden_layer_sizes: Sequence[int] = (256, 256),
        activation: str = "relu",
    ) -> None:
        super().__init__()
        self.head = DrawnHead(domain)
        self.n_noise = self.head.n_noise
        self.hidden = nn.Sequential(
            *_dense(latent_dim, domain.n_features, hidden_layer_sizes, activation)
        )

    def _to_saved(self):
        domain = Product(self.head.domains)
        width = self.hidden[0].in_features
        return {"latent_dim": width, "domain": domain, **dense_arguments(self.hidden)}

    def forward(self, Z: torch.Tensor) -> torch.Tensor:
        return self.head(self.hidden(Z[:, self.n_noise :]), Z[:, : self.n_noise])


class GeneratorMixture(nn.Module):
    """An equal mixture of several generators, one of which is chosen by a further input.

    Parameters
    ----------
    members : sequence of torch.nn.Module
        At least one, with the same inputs and the same ``n_noise``.

    Attributes
    ----------
    n_noise : int
        Number of normal inputs before the latent: one for the choice, then those of a generator.
    """

    def __init__(self, members: Sequence[torch.nn.Module]) -> None:
        super().__init__()
        self.members = nn.ModuleList(members)
        self.n_noise = 1 + getattr(self.members[0], "n_noise", 0)

    def forward(self, Z: torch.Tensor) -> torch.Tensor:
        shares = torch.special.ndtr(Z[:, 0]) * len(self.members)
        chosen = shares.long().clamp(max=len(self.members) - 1)
        points = torch.stack([member(Z[:, 1:]) for member in self.members])
        return points[chosen, torch.arange(len(Z), device=Z.device)]


saved_parts(GeneratorMixture, "members")


def _dense(n_inputs, n_outputs, hidden_layer_sizes, activation):
    widths = [n_inputs, *hidden_layer_sizes]
    layers = []
    for n_in, n_out in zip(widths[:-1], widths[1:], strict=True):
        layers += [nn.Linear(n_in, n_out), ACTIVATIONS[activation]()]
    output = nn.Linear(widths[-1], n_outputs)
    with torch.no_grad():
        output.weight.mul_(_OUTPUT_GAIN)
    return [*layers, output]


def dcgan_generator(
    latent_dim: int,
    domain: Domain,
    n_channels: int = 32,
    *,
    n_hidden: int | None = None,
    kernel_size: int = 4,
    normalize: bool = True,
) -> torch.nn.Sequential:
    """Build a convolutional generator (DCGAN) of square grey images with pixels in a domain.

    Parameters
    ----------
    latent_dim : int
        Dimension of the latent input.
    domain : Domain
        Domain of the flattened image; its dimension is the square of a multiple of 4.
    n_channels : int, default=32
        Channels of the last hidden layer; the first has twice as many.
    n_hidden : int or None, default=None
        Width of a dense layer before the convolutions; None for no such layer.
    kernel_size : int, default=4
        Side of the filters, at least 3. A multiple of the stride, 2, avoids checkerboards.
    normalize : bool, default=True
        Normalize each hidden layer over the batch.

    Returns
    -------
    torch.nn.Sequential
        Takes (n, latent_dim), returns flattened images (n, side * side).

    Notes
    -----
    ``n_channels=64, n_hidden=1024, kernel_size=5`` with a latent of 100 is the generator used by
    the authors of [1]_ for MNIST: 6.8 million parameters, against 0.14 million by default.

    References
    ----------
    .. [1] A. Radford, L. Metz, S. Chintala, "Unsupervised representation learning with deep
       convolutional generative adversarial networks", ICLR 2016.
    """
    start = _quarter_side(domain, "dcgan")
    width = 2 * n_channels * start * start
    dense = [latent_dim, width] if n_hidden is None else [latent_dim, n_hidden, width]
    layers: list[nn.Module] = []
    for n_in, n_out in itertools.pairwise(dense):
        norm = [nn.BatchNorm1d(n_out)] if normalize else []
        layers += [nn.Linear(n_in, n_out), *norm, nn.ReLU()]
    # The output is twice as large as the input, also for odd filters.
    doubling: dict[str, Any] = {
        "stride": 2,
        "padding": (kernel_size - 1) // 2,
        "output_padding": kernel_size % 2,
    }
    norm = [nn.BatchNorm2d(n_channels)] if normalize else []
    return nn.Sequential(
        *layers,
        nn.Unflatten(1, (2 * n_channels, start, start)),
        nn.ConvTranspose2d(2 * n_channels, n_channels, kernel_size, **doubling),
        *norm,
        nn.ReLU(),
        nn.ConvTranspose2d(n_channels, 1, kernel_size, **doubling),
        nn.Flatten(),
        DomainHead(domain),
    )


def color_dcgan_generator(
    latent_dim: int, domain: Domain, n_channels: int = 64, n_colors: int = 3
) -> torch.nn.Sequential:
    """Build a convolutional generator of square colour images; each layer doubles their side.

    Parameters
    ----------
    latent_dim : int
        Dimension of the latent input.
    domain : Domain
        Domain of the flattened image, colour by colour; the side of the image is a power of 2, at
        least 8.
    n_channels : int, default=64
        Channels of the last hidden layer; each layer before it has twice as many.
    n_colors : int, default=3
        Channels of the image.

    Returns
    -------
    torch.nn.Sequential
        Takes (n, latent_dim), returns flattened images (n, n_colors * side * side).

    References
    ----------
    Rakotomamonjy and Ralaivola, "Differentially private sliced Wasserstein distance", ICML 2021,
    Table 5: 32 latents, images of 64 x 64. With its printed stride of 1 for each layer the image
    would be 16 x 16; here the stride is 2 after the first layer, as in DCGAN. Its printed batch
    normalization before the tanh is omitted, as the output layer maps into the domain.
    """
    side = math.isqrt(domain.n_features // n_colors)
    if n_colors * side * side != domain.n_features or side < 8 or side & (side - 1):
        raise PublicValueError(
            f"domain must hold images of {n_colors} colours whose side is a power of 2, at least "
            f"8; the domain has {domain.n_features} features."
        )
    n_doublings = side.bit_length() - 3
    widths = [n_channels * 2**i for i in reversed(range(n_doublings))]
    layers = [nn.Unflatten(1, (latent_dim, 1, 1)), nn.ConvTranspose2d(latent_dim, widths[0], 4)]
    for width, following in zip(widths, [*widths[1:], n_colors], strict=True):
        layers += [nn.BatchNorm2d(width), nn.ReLU()]
        layers.append(nn.ConvTranspose2d(width, following, 4, stride=2, padding=1))
    return nn.Sequential(*layers, nn.Flatten(), DomainHead(domain))


def upsampling_generator(
    latent_dim: int, domain: Domain, n_hidden: int = 200, n_channels: int = 16
) -> torch.nn.Sequential:
    """Build a generator of square grey images: dense layers, then two upsamplings.

    Parameters
    ----------
    latent_dim : int
        Dimension of the latent input, labels included.
    domain : Domain
        Domain of the flattened image; its dimension is the square of a multiple of 4.
    n_hidden : int, default=200
        Width of the first layer.
    n_channels : int, default=16
        Channels of the first convolution; the second has half as many. For images of 28 x 28 the
        second layer is then as wide as the image, 784.

    Returns
    -------
    torch.nn.Sequential
        Takes (n, latent_dim), returns flattened images (n, side * side).

    References
    ----------
    Rakotomamonjy and Ralaivola, "Differentially private sliced Wasserstein distance", ICML 2021,
    Table 3. It prints a "reshape 28 x 28", which two upsamplings would take to 112 x 112, and no
    channels. The 7 x 7 and the channels here are those of the code of DP-MERF used in the paper.
    """
    start = _quarter_side(domain, "upsampling")
    width, n_hidden_channels = n_channels * start * start, max(1, n_channels // 2)
    network = nn.Sequential(
        nn.Linear(latent_dim, n_hidden),
        nn.BatchNorm1d(n_hidden),
        nn.ReLU(),
        nn.Linear(n_hidden, width),
        nn.BatchNorm1d(width),
        nn.ReLU(),
        nn.Unflatten(1, (n_channels, start, start)),
        nn.Upsample(scale_factor=2, mode="bilinear"),
        nn.Conv2d(n_channels, n_hidden_channels, 5, padding=2),
        nn.ReLU(),
        nn.Upsample(scale_factor=2, mode="bilinear"),
        nn.Conv2d(n_hidden_channels, 1, 5, padding=2),
        nn.Flatten(),
        DomainHead(domain),
    )
    # Twice as fast on a CPU. The argument is documented, but missing in PyTorch's type hints.
    return network.to(memory_format=torch.channels_last)  # type: ignore[call-overload]


def _quarter_side(domain, name):
    side = math.isqrt(domain.n_features)
    if side * side != domain.n_features or side % 4:
        raise PublicValueError(
            f"generator='{name}' needs square images whose side is a multiple of 4; the domain has "
            f"{domain.n_features} features."
        )
    return side // 4
