"""The thresholded Laplace mechanism: counts with noise on non-zero cells, released if large."""

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
    """Counts of one vote per record, with Laplace noise, released if they pass a threshold.

    Each of ``n_releases`` times, adaptively, every record votes for one cell. Cells without votes
    are released as 0. All others get Laplace noise of scale b, and are released as 0 too if they
    are then below the threshold h. A sparse table therefore keeps its zeros.

    Parameters
    ----------
    epsilon : float
        Privacy budget of all releases together, in nats; ``inf`` adds no noise.
    delta : float
        In (0, 1). One half is for the thresholds, the other for the noise.
    n_releases : int
        Number T of releases.
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
    a cell with one vote under the first neighbour and none under the second, the release is 0
    under the second, and under the first except with probability τ = exp(−(h − 1)/b)/2 = δ/(4T).
    Both are dominated, in both directions, by the Laplace mechanism with a catastrophic failure of
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
        """Profiles of the releases with their multiplicities; empty without noise."""
        if self.noise_scale == 0:
            return ()
        noise = LaplaceProfile(1 / self.noise_scale)
        if self.certified:
            spent = certified_laplace_epsilon(1.0, self.noise_scale, 1)
            check_certified("laplace", 1.0, self.noise_scale, 1, spent)
            noise = LaplaceProfile(spent)
        return ((noise, 2 * self.n_releases), (CatastrophicFailureProfile(self.delta / 2), 1))

    def report_fields(self) -> dict:
        """Return the fields of a PrivacyReport that this mechanism determines.

        Returns
        -------
        dict
            As in :class:`StratifiedGaussianMechanism`.
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
            Votes, one per record, as ensured by the caller.
        noise : NoiseSource
            Anybody who can predict it voids the guarantee.

        Returns
        -------
        ndarray

        Raises
        ------
        PublicRuntimeError
            There are more releases than planned, or ``noise`` is of another kind.
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
        # A draw for every cell, so that the noise of one does not reveal which others are empty.
        noisy = noise.add(counts, scale, "laplace")
        # Rounding may raise a count by half of a step of the grid, so a whole step is added.
        is_kept = (counts > 0) & (noisy >= self._mechanism.threshold + scale / 1024)
        return np.where(is_kept, noisy, 0.0)


@functools.lru_cache(maxsize=64)
def _laplace_scale(epsilon, delta, n_mechanisms):
    """Return the smallest scale at which the composition of Laplace mechanisms is private."""
    if math.isinf(epsilon):
        return 0.0
    pure = n_mechanisms / epsilon

    def is_private(scale):
        if scale >= pure:
            return True
        return compose_delta([(LaplaceProfile(1 / scale), n_mechanisms)], epsilon) <= delta

    return min(pure, smallest_passing(is_private, pure, rtol=1e-5))
