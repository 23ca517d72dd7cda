"""A generator of public digits: an autoencoder of scikit-learn's, with style as further latents."""

import torch
import torch.nn.functional as F
from sklearn.datasets import load_digits
from torch import nn

__all__ = ["N_LATENTS", "PublicDigits", "enlarge", "train_public"]

LATENT = 10
STYLES = 4
N_LATENTS = LATENT + STYLES


class PublicDigits(nn.Module):
    """From latents to images of 28 by 28 pixels: a decoder of 8 by 8 ones, then style."""

    def __init__(self, width=200):
        super().__init__()
        self.decoder = nn.Sequential(
            nn.Linear(LATENT, width), nn.SiLU(), nn.Linear(width, width), nn.SiLU(),
            nn.Linear(width, 64),
        )  # fmt: skip

    def forward(self, Z):
        small = torch.sigmoid(self.decoder(Z[:, :LATENT]))
        return enlarge(small, Z[:, LATENT:])


def enlarge(small, style):
    """Return MNIST-sized images of 8 by 8 ones, slanted, stretched and thickened by normals."""
    images = F.interpolate(small.reshape(-1, 1, 8, 8), size=20, mode="bicubic").clamp(0, 1)
    images = F.pad(images, (4, 4, 4, 4))
    slant, wide, tall, thick = style.T
    maps = torch.zeros(len(small), 2, 3)
    maps[:, 0, 0] = torch.exp(0.3 * wide)
    maps[:, 1, 1] = torch.exp(0.15 * tall)
    maps[:, 0, 1] = 0.35 * slant
    grid = F.affine_grid(maps, images.shape, align_corners=False)
    images = F.grid_sample(images, grid, align_corners=False)
    # A threshold that moves makes strokes thick or thin.
    level = (0.5 - 0.2 * torch.tanh(thick))[:, None, None, None]
    return torch.sigmoid(12 * (images - level)).flatten(1)


def train_public(seed, epochs):
    """Return PublicDigits trained on scikit-learn's digits."""
    X = torch.tensor(load_digits().data / 16.0, dtype=torch.float32)
    torch.manual_seed(seed)
    model = PublicDigits()
    encoder = nn.Sequential(nn.Linear(64, 200), nn.SiLU(), nn.Linear(200, 2 * LATENT))
    optimizer = torch.optim.Adam([*model.parameters(), *encoder.parameters()], lr=1e-3)
    for _ in range(epochs):
        for batch in X[torch.randperm(len(X))].split(128):
            mean, log_std = encoder(batch).chunk(2, dim=1)
            Z = mean + log_std.exp() * torch.randn_like(mean)
            loss = (
                F.binary_cross_entropy_with_logits(model.decoder(Z), batch, reduction="sum")
                - (0.5 + log_std - (mean**2 + (2 * log_std).exp()) / 2).sum()
            )
            optimizer.zero_grad()
            (loss / len(batch)).backward()
            optimizer.step()
    return model
