"""Counts of which only the positive ones get noise, and only the large ones are released."""

import functools
import math
from dataclasses import dataclass, field

import numpy as np

from sklearn_dpgen.accounting import LaplaceProfile
from sklearn_dpgen.accounting._certified import (
    certified_laplace_epsilon,
    certified_laplace_scale,
    check_certified,
)
from sklearn_dpgen.accounting._checks import check_count, smallest_passing
from sklearn_dpgen.accounting._composition import compose_delta, default_discretization
from sklearn_dpgen.accounting._profiles import CatastrophicFailureProfile, PrivacyProfile
from sklearn_dpgen.exceptions import PublicRuntimeError, PublicTypeError
from sklearn_dpgen.mechanisms._selection import check_paid
from sklearn_dpgen.utils._random import NoiseSource
from sklearn_dpgen.utils._validation import check_delta, check_epsilon

__all__ = ["ThresholdedLaplaceMechanism", "ThresholdedLaplaceRun"]


@dataclass(frozen=True)
class ThresholdedLaplaceMechanism:
    """Counts of one vote a record, released with Laplace noise where they pass a threshold.

    Each of ``n_releases`` times, adaptively, every record votes for one cell. Cells without votes
    are released as 0; all others get Laplace noise of scale b, and what is then below the threshold
    h is released as 0 too. So a table with few full cells among many keeps its zeros.

    Parameters
    ----------
    epsilon : float
        Privacy budget of all releases together, in nats; ``inf`` adds no noise.
    delta : float
        In (0, 1). One half pays for the thresholds, one for the noise.
    n_releases : int
        How often, T.
    certified : bool, default=False
        Whether the noise is certified: see :ref:`certified_noise`.

    Attributes
    ----------
    noise_scale : float
        b, in votes.
    threshold : float
        h = 1 + b ln(2T/δ), in votes.

    Notes
    -----
    Neighbours: one record is replaced, so one cell loses a vote and another one gains it. In a
    cell with votes under both neighbours the release is a Laplace mechanism of sensitivity 1. In
    a cell with one vote under the first neighbour and none under the second the release is 0
    under the second, and under the first but for a probability τ = exp(−(h − 1)/b)/2 = δ/(4T).
    Either is dominated, in both directions, by the Laplace mechanism that fails openly with
    probability τ. There are 2T of these, so the divergence is at most 2Tτ = δ/2 plus that of 2T
    Laplace mechanisms, which are composed by their privacy profile.

    Section 4.2 of [1]_ has one release at b = 2/ε and h = 1 + 2 ln(1/δ)/ε.

    References
    ----------
    .. [1] "Private evolution converges", section 4.2 and appendix F, the histogram with Laplace
       noise and thresholding. The composition of T of them is ours.
    """

    epsilon: float
    delta: float
    n_releases: int
    certified: bool = False
    noise_scale: float = field(init=False)
    threshold: float = field(init=False)

    def __post_init__(self):
        epsilon = check_epsilon(self.epsilon)
        delta = check_delta(self.delta)
        n_releases = check_count(self.n_releases, "n_releases")
        scale = _laplace_scale(epsilon, delta / 2, 2 * n_releases)
        if self.certified:
            scale = certified_laplace_scale(1 / scale, 1.0, 1) if scale > 0 else 0.0
        threshold = 1 + scale * math.log(2 * n_releases / delta) if scale > 0 else 0.0
        for name, value in (
            ("epsilon", epsilon),
            ("delta", delta),
            ("n_releases", n_releases),
            ("noise_scale", scale),
            ("threshold", threshold),
        ):
            object.__setattr__(self, name, value)

    @property
    def releases(self) -> tuple[tuple[PrivacyProfile, int], ...]:
        """Profiles of the releases, each with how often; none without noise."""
        if self.noise_scale == 0:
            return ()
        noise = LaplaceProfile(1 / self.noise_scale)
        if self.certified:
            spent = certified_laplace_epsilon(1.0, self.noise_scale, 1)
            check_certified("laplace", 1.0, self.noise_scale, 1, spent)
            noise = LaplaceProfile(spent)
        return ((noise, 2 * self.n_releases), (CatastrophicFailureProfile(self.delta / 2), 1))

    def report_fields(self) -> dict:
        """Return the fields of a PrivacyReport that this mechanism answers for.

        Returns
        -------
        dict
            As those of :class:`StratifiedGaussianMechanism`.
        """
        grid = None
        if self.noise_scale > 0:
            grid = default_discretization(self.releases[:1])
        return {
            "sensitivity": 2.0,
            "noise_scale": self.noise_scale,
            "noise_multiplier": self.noise_scale / 2,
            "n_releases": self.n_releases,
            "discretization": grid,
            "releases": self.releases,
        }

    def run(self) -> "ThresholdedLaplaceRun":
        """Return the releases of this mechanism, to be used once.

        Returns
        -------
        ThresholdedLaplaceRun
        """
        return ThresholdedLaplaceRun(self)


class ThresholdedLaplaceRun:
    """The releases of one ThresholdedLaplaceMechanism.

    Parameters
    ----------
    mechanism : ThresholdedLaplaceMechanism
    """

    def __init__(self, mechanism: ThresholdedLaplaceMechanism) -> None:
        self._mechanism = mechanism
        self._n_released = 0

    def release(self, counts: np.ndarray, noise: NoiseSource) -> np.ndarray:
        """Return the counts that pass the threshold, with noise, and 0 for all others.

        Parameters
        ----------
        counts : ndarray of float64 of shape (n_cells,)
            Votes, one a record. The caller vouches for that.
        noise : NoiseSource
            Anyone who can predict it voids the guarantee.

        Returns
        -------
        ndarray

        Raises
        ------
        RuntimeError
            More releases than were paid for, or another kind of noise.
        """
        check_paid(noise, self._mechanism.certified)
        if not isinstance(counts, np.ndarray) or counts.dtype != np.float64 or counts.ndim != 1:
            raise PublicTypeError("counts must be a NumPy array of float64 with one dimension.")
        if self._n_released == self._mechanism.n_releases:
            raise PublicRuntimeError(
                f"The privacy budget paid for {self._n_released} release(s): none is left."
            )
        self._n_released += 1
        scale = self._mechanism.noise_scale
        if scale == 0:
            return counts.copy()
        # A draw for every cell, so that the noise of one does not tell which others are empty.
        noisy = noise.add(counts, scale, "laplace")
        # Half a step of the grid, or less, may have lifted a count: a whole one is on top.
        is_kept = (counts > 0) & (noisy >= self._mechanism.threshold + scale / 1024)
        return np.where(is_kept, noisy, 0.0)


@functools.lru_cache(maxsize=64)
def _laplace_scale(epsilon, delta, n_mechanisms):
    """Return the smallest scale at which so many Laplace mechanisms of sensitivity 1 compose."""
    if math.isinf(epsilon):
        return 0.0
    pure = n_mechanisms / epsilon

    def is_private(scale):
        if scale >= pure:
            return True
        return compose_delta([(LaplaceProfile(1 / scale), n_mechanisms)], epsilon) <= delta

    return min(pure, smallest_passing(is_private, pure, rtol=1e-5))
