"""Gaussian releases of all records, adaptive, with shares of one budget."""

import math
from dataclasses import dataclass, field

import numpy as np

from sklearn_dpgen.accounting import GaussianProfile, compose_epsilon, gaussian_sigma
from sklearn_dpgen.mechanisms._base import on_grid
from sklearn_dpgen.utils._validation import check_delta, check_epsilon, check_positive

__all__ = ["GaussianSequenceMechanism", "GaussianSequenceRun"]


@dataclass(frozen=True)
class GaussianSequenceMechanism:
    """Vectors computed on all records, one after another, released with Gaussian noise.

    Parameters
    ----------
    sensitivity : float
        Largest l2 change of each vector over neighbouring data sets, whatever was released before.
    shares : sequence of float
        One positive number a release: which part of the budget, in the scale in which Gaussian
        releases add up, it takes. They are divided by their sum.
    epsilon : float
        Privacy budget of all releases together, in nats; ``inf`` adds no noise.
    delta : float
        In (0, 1).

    Attributes
    ----------
    noise_scales : tuple of float
        σ_t = Δ / (μ √s_t) for the share s_t, rounded up.

    Notes
    -----
    Releases with noise σ_t are adaptively as private as one with sensitivity μ and unit noise,
    μ² = Σ Δ²/σ_t², whose privacy profile is exact (Dong, Roth and Su, "Gaussian differential
    privacy", 2022, Corollary 3.3).
    """

    sensitivity: float
    shares: tuple[float, ...]
    epsilon: float
    delta: float
    noise_scales: tuple[float, ...] = field(init=False)

    def __post_init__(self):
        sensitivity = check_positive(self.sensitivity, "sensitivity")
        shares = [check_positive(share, "shares") for share in self.shares]
        if not shares:
            raise ValueError("shares must hold one positive number a release, at least one.")
        epsilon = check_epsilon(self.epsilon)
        delta = check_delta(self.delta)
        shares = tuple(share / math.fsum(shares) for share in shares)
        scales = (0.0,) * len(shares)
        if math.isfinite(epsilon):
            sigma = gaussian_sigma(epsilon, delta, sensitivity)
            step = 1e-15
            while True:
                scales = tuple(sigma / math.sqrt(share) for share in shares)
                releases = [(GaussianProfile(sensitivity / scale), 1) for scale in scales]
                if compose_epsilon(releases, delta) <= epsilon:
                    break
                sigma *= 1 + step
                step *= 10
        for name, value in (
            ("sensitivity", sensitivity),
            ("shares", shares),
            ("epsilon", epsilon),
            ("delta", delta),
            ("noise_scales", scales),
        ):
            object.__setattr__(self, name, value)

    @property
    def n_releases(self):
        """Number of releases."""
        return len(self.shares)

    def report_fields(self):
        """Return the fields of a PrivacyReport that this mechanism answers for.

        Returns
        -------
        dict
            As those of :class:`StratifiedGaussianMechanism`. The noise scale is one number, or one
            a release where they differ; the multiplier is that of all releases together.
        """
        scales = self.noise_scales
        together = 0.0
        if scales[0] > 0:
            together = 1 / math.sqrt(math.fsum(1 / scale**2 for scale in scales))
        is_equal = len(set(scales)) == 1
        accountant = "privacy profile of the Gaussian mechanism, in closed form"
        return {
            "sensitivity": self.sensitivity,
            "noise_scale": (
                scales[0] if is_equal else {f"release {i}": s for i, s in enumerate(scales, 1)}
            ),
            "noise_multiplier": together / self.sensitivity,
            "sampler": "every record, in every release",
            "sampling_rate": 1.0,
            "n_releases": self.n_releases,
            "accountant": accountant if together > 0 else "none: there is no noise",
            "discretization": None,
        }

    def run(self):
        """Return the releases of this mechanism, to be used once.

        Returns
        -------
        GaussianSequenceRun
        """
        return GaussianSequenceRun(self)


class GaussianSequenceRun:
    """The releases of one GaussianSequenceMechanism, in order.

    Parameters
    ----------
    mechanism : GaussianSequenceMechanism
    """

    def __init__(self, mechanism):
        self._scales = list(mechanism.noise_scales)

    def release(self, value, noise):
        """Return a vector with the noise of the next release.

        Parameters
        ----------
        value : ndarray of float64, of one dimension
            The caller vouches for its sensitivity, and for finite entries: an error here could
            tell of a record.
        noise : NoiseSource
            Whoever can predict it voids the guarantee; a seeded one is for this vector alone.

        Returns
        -------
        ndarray
            On a grid finer than σ / 1000; as given if there is no noise.

        Raises
        ------
        RuntimeError
            More releases than were paid for.
        """
        if not isinstance(value, np.ndarray) or value.dtype != np.float64 or value.ndim != 1:
            raise TypeError("value must be a NumPy array of float64 with one dimension.")
        if not self._scales:
            raise RuntimeError("The privacy budget paid for every release that was made: no more.")
        scale = self._scales.pop(0)
        if scale == 0:
            return value.copy()
        return on_grid(value + scale * noise.normal(value.shape), scale)
