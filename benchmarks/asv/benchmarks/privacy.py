"""Calibration, votes and exact noise."""

import numpy as np

from sklearn_dpgen.accounting import calibrate_noise_multiplier
from sklearn_dpgen.accounting._selection import calibrate_releases
from sklearn_dpgen.domains import Box
from sklearn_dpgen.evolution import nearest_neighbor_votes
from sklearn_dpgen.mechanisms import LaplaceMechanism

from .common import DELTA, EPSILON, SEED, Timing


class Calibration(Timing):
    def time_sequence(self):
        """Noise of 20 Gaussian releases that share a budget with 50 selections."""
        calibrate_releases(
            EPSILON, DELTA, gaussian_shares=[1 / 20] * 20, selection_share=0.1, n_selections=50
        )

    def time_sampled(self):
        """Noise of 1,000 releases of batches of one in a hundred."""
        calibrate_noise_multiplier(EPSILON, DELTA, sampling_rate=0.01, n_steps=1000)


class Votes(Timing):
    """50,000 records vote for the nearest of 2,000 candidates in 32 dimensions."""

    def prepare(self):
        rng = np.random.default_rng(SEED)
        self.records = rng.standard_normal((50_000, 32))
        self.candidates = rng.standard_normal((2000, 32))

    def time_nearest(self):
        nearest_neighbor_votes(self.records, self.candidates, device="cpu")


class CertifiedNoise(Timing):
    """100,000 exact draws of integer noise, added to records."""

    def prepare(self):
        self.records = np.random.default_rng(SEED).uniform(size=(50_000, 2))
        domain = Box([0, 0], [1, 1])
        self.mechanism = LaplaceMechanism(EPSILON, domain=domain, noise="certified").fit()

    def time_laplace(self):
        self.mechanism.transform(self.records)
