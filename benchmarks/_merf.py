"""DP-MERF on labelled images: one noisy mean embedding, and a generator that is trained on it.

Harder, Adamczewski and Park, "DP-MERF: differentially private mean embeddings with random features
for practical privacy-preserving data generation", AISTATS 2021. A record x of class y is
phi(x) e_y, phi the random Fourier features of a Gaussian kernel, of norm 1. Their mean over the n
records is released once with Gaussian noise. Neighbours differ in one record and its label, n is
public: the mean moves by at most 2/n (another record of the class), or sqrt(2)/n (another class).
Labels of what is generated are uniform, as theirs are. Settings are those of their published code
for digits (10000 features, squared length scale 105, Adam 1e-2 with a decay of .9 in each of five
epochs), but for fewer features and a smaller batch where the caller says so.
"""

import math

import numpy as np
import torch
from torch import nn

from sklearn_dpgen.accounting import gaussian_sigma
from sklearn_dpgen.domains import Box
from sklearn_dpgen.nn import upsampling_generator
from sklearn_dpgen.utils._random import noise_source

__all__ = ["Merf"]

LENGTH_SCALE = math.sqrt(105.0)
N_CLASSES, LATENT = 10, 10


class Merf:
    """DP-MERF with the generator of Table 3 of the smoothed sliced paper.

    Parameters
    ----------
    epsilon, delta : float
        Of the one release.
    seed : int
    n_features : int
    n_steps, batch_size : int
        Of the training, which reads the release alone.
    """

    def __init__(self, epsilon, delta, seed, *, n_features=10_000, n_steps=600, batch_size=500):
        self.epsilon, self.delta, self.seed = epsilon, delta, seed
        self.n_features, self.n_steps, self.batch_size = n_features, n_steps, batch_size

    def fit(self, X, y):
        torch.manual_seed(self.seed)
        self.frequencies = torch.randn(X.shape[1], self.n_features // 2) / LENGTH_SCALE
        released = torch.tensor(self.release(X, y), dtype=torch.float32)
        self.network = upsampling_generator(LATENT + N_CLASSES, Box(0.0, 1.0, n_features=784))
        optimizer = torch.optim.Adam(self.network.parameters(), 0.01)
        schedule = torch.optim.lr_scheduler.StepLR(optimizer, max(1, self.n_steps // 5), 0.9)
        self.losses = []
        for _ in range(self.n_steps):
            labels = torch.randint(N_CLASSES, (self.batch_size,))
            optimizer.zero_grad()
            images = self.network(self.inputs(labels))
            loss = (self.embedding(images, labels) / self.batch_size - released).square().sum()
            loss.backward()
            optimizer.step()
            schedule.step()
            self.losses.append(loss.item())
        self.network.eval()
        return self

    def release(self, X, y):
        """Return the mean embedding of the records with its noise."""
        total = torch.zeros(self.n_features, N_CLASSES, dtype=torch.float64)
        X = torch.tensor(X, dtype=torch.float32)
        y = torch.tensor(np.asarray(y).astype(np.int64))
        for rows in torch.arange(len(X)).split(2000):
            total += self.embedding(X[rows], y[rows])
        self.noise_scale = gaussian_sigma(self.epsilon, self.delta, 2 / len(X))
        noise = noise_source(self.seed, "merf", X.numpy(), y.numpy())
        return (total / len(X)).numpy() + self.noise_scale * noise.normal(total.shape)

    def embedding(self, images, labels):
        """Return the sum of phi(x) e_y."""
        angles = images @ self.frequencies
        features = torch.cat([angles.cos(), angles.sin()], 1) / math.sqrt(self.n_features // 2)
        return features.T @ nn.functional.one_hot(labels, N_CLASSES).to(features)

    def inputs(self, labels):
        one_hot = nn.functional.one_hot(labels, N_CLASSES).float()
        return torch.cat([torch.randn(len(labels), LATENT), one_hot], 1)

    @torch.no_grad()
    def sample(self, n_samples, *, y, random_state):
        """Return images of the given classes."""
        torch.manual_seed(random_state)
        labels = torch.tensor(np.asarray(y).astype(np.int64))
        return torch.cat([self.network(self.inputs(part)) for part in labels.split(2000)]).numpy()
