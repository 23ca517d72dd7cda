"""The stratified Gaussian mechanism: releases of vectors computed on secret batches."""

import functools
import math
from collections.abc import Sequence
from dataclasses import KW_ONLY, dataclass, field

import numpy as np

from sklearn_dpgen.accounting import (
    ProjectionLaw,
    calibrate_noise_multiplier,
    epsilon_spent,
)
from sklearn_dpgen.accounting._calibration import check_delta_size, sampled_releases
from sklearn_dpgen.accounting._composition import ComposedProfile
from sklearn_dpgen.accounting._profiles import MaximumProfile, PrivacyProfile
from sklearn_dpgen.exceptions import PublicRuntimeError, PublicTypeError, PublicValueError
from sklearn_dpgen.mechanisms._sequence import CentralMechanism, CentralRun
from sklearn_dpgen.utils._random import NoiseSource
from sklearn_dpgen.utils._validation import (
    check_budget,
    check_count,
    check_delta,
    check_epsilon,
    check_positive,
    set_fields,
)

__all__ = ["StratifiedGaussianMechanism", "StratifiedGaussianRun", "Stratum"]

# Above this multiplier, the cost of a release underflows.
_LARGEST_MULTIPLIER = 1e100


@dataclass(frozen=True)
class Stratum:
    """A group of records of public size, and the sensitivity of a release to one of them.

    Parameters
    ----------
    size : int
        Number of records.
    batch_size : int
        Number of them in each batch, from 1 to ``size``.
    sensitivity : float
        Largest l2 change of the released vector if one record of this stratum in the batch is
        replaced by any other, with all other records of the batch fixed. If projections are
        released, that of the batch itself: the l2 diameter of the records.
    """

    size: int
    batch_size: int
    sensitivity: float

    def __post_init__(self):
        size = check_count(self.size, "size")
        batch_size = check_count(self.batch_size, "batch_size")
        if batch_size > size:
            raise PublicValueError(f"batch_size must be at most size = {size}, got {batch_size}.")
        sensitivity = check_positive(self.sensitivity, "sensitivity")
        set_fields(self, size=size, batch_size=batch_size, sensitivity=sensitivity)

    @property
    def rate(self) -> float:
        """Share of the stratum's records in a batch."""
        return self.batch_size / self.size


@dataclass(frozen=True)
class StratifiedGaussianMechanism(CentralMechanism):
    """Vectors computed on stratified secret batches, released with Gaussian noise.

    Each of ``n_releases`` times, adaptively: from every stratum ``batch_size`` records are drawn
    uniformly without replacement, independently of everything else; a vector is computed from
    the batch and from earlier releases; it is released with independent noise N(0, σ²) on each
    entry. Batches are never released.

    Parameters
    ----------
    strata : sequence of Stratum
        A partition of the records.
    epsilon : float
        Privacy budget of all releases together, in nats; ``inf`` adds no noise.
    delta : float
        In (0, 1), and below every sampling rate: see
        ``check_delta_size``, which warns above one over the number
        of records.
    n_releases : int
        Number of releases.
    projections : ProjectionLaw or None, default=None
        If given, every release is the product of the batch and directions, which are drawn anew
        from this distribution, independently of the records, and published. None releases the
        vector itself.

    Attributes
    ----------
    noise_scale : float
        σ, common to all strata: the smallest that suffices for each of them, rounded up.
    worst : Stratum
        The stratum that determines it; the others are protected at least as well.

    Notes
    -----
    Neighbours: one record is replaced by another of the same stratum; the sizes of the strata are
    public. The batches of the other strata have the same distribution under both neighbours. Given
    them, a release is sampling without replacement from the one stratum, at its own rate and with
    its own sensitivity (Balle, Barthe and Gaboardi, NeurIPS 2018, Theorem 11), and releases compose
    by their privacy profiles. A single rate and a single sensitivity, each the largest over the
    strata, would be valid too, but may need more noise.
    """

    strata: Sequence[Stratum]
    _: KW_ONLY
    epsilon: float
    delta: float
    n_releases: int
    projections: ProjectionLaw | None = None
    noise_scale: float = field(init=False)
    worst: Stratum = field(init=False, repr=False)

    def __post_init__(self):
        if not self.strata:
            raise PublicValueError("strata must hold at least one Stratum.")
        strata = tuple(self.strata)
        epsilon = check_epsilon(self.epsilon)
        delta = check_delta(self.delta)
        if math.isfinite(epsilon):
            rarest = min(stratum.rate for stratum in strata)
            check_delta_size(delta, sum(s.size for s in strata), sampling_rate=rarest)
        n_releases = check_count(self.n_releases, "n_releases")
        if self.projections is not None and not isinstance(self.projections, ProjectionLaw):
            raise PublicTypeError(
                "projections must be a ProjectionLaw or None, got "
                f"{type(self.projections).__name__}."
            )
        needs = [
            (_noise_scale(s, epsilon, delta, n_releases, self.projections), s)
            for s in _undominated(strata)
        ]
        noise_scale, worst = max(needs, key=lambda need: need[0])
        set_fields(
            self,
            strata=strata,
            epsilon=epsilon,
            delta=delta,
            n_releases=n_releases,
            noise_scale=noise_scale,
            worst=worst,
        )

    @property
    def sensitivity(self) -> float:
        """Sensitivity of the worst stratum."""
        return self.worst.sensitivity

    @property
    def noise_multiplier(self) -> float:
        """Noise scale over the sensitivity of the worst stratum."""
        return self.noise_scale / self.sensitivity

    @property
    def releases(self) -> tuple[tuple[PrivacyProfile, int], ...]:
        """Profiles of the releases with their multiplicities; empty without noise.

        For several strata, the largest profile of all releases together.
        """
        if self.noise_scale == 0:
            return ()
        kinds = [self._priced(stratum) for stratum in _undominated(self.strata)]
        if len(kinds) == 1:
            return tuple(kinds[0])
        return ((MaximumProfile(tuple(map(ComposedProfile, kinds))), 1),)

    def _multiplier(self, stratum):
        return min(self.noise_scale / stratum.sensitivity, _LARGEST_MULTIPLIER)

    def _priced(self, stratum):
        """Return the releases for the records of a stratum, to compose."""
        multiplier = self._multiplier(stratum)
        return sampled_releases(multiplier, stratum.rate, self.n_releases, self.projections)

    def epsilons(self, n_releases: int | None = None) -> list[float]:
        """Return the ε of the first releases for the records of each stratum.

        Parameters
        ----------
        n_releases : int or None, default=None
            Number of releases, at most the planned one; 1 is the cost of a single release. None is
            all of them.

        Returns
        -------
        list of float
            An upper bound on ε for each stratum, in nats, at the ``delta`` of the mechanism. After
            all releases the worst stratum has ``epsilon``, the others at most that.
        """
        count = self.n_releases if n_releases is None else check_count(n_releases, "n_releases")
        if count > self.n_releases:
            raise PublicValueError(f"n_releases must be at most {self.n_releases}, got {count}.")
        return [
            epsilon_spent(
                self._multiplier(stratum),
                self.delta,
                sampling_rate=stratum.rate,
                n_steps=count,
                projections=self.projections,
            )
            for stratum in self.strata
        ]

    @property
    def _composed(self):
        return self._priced(self.worst)

    def report_fields(self) -> dict:
        batches = ()
        if any(stratum.rate < 1 for stratum in self.strata):
            batches = tuple((stratum.batch_size, stratum.size) for stratum in self.strata)
        fields = {"batches": batches, "sampling_rate": self.worst.rate}
        return super().report_fields() | fields

    def run(self, noise: NoiseSource) -> "StratifiedGaussianRun":
        """Return the releases of this mechanism, to be used once.

        Parameters
        ----------
        noise : NoiseSource
            Draws the batches and the noise: anybody who can predict it voids the guarantee. A
            seeded one must be bound to the records, as batches are drawn before it gets a vector.

        Returns
        -------
        StratifiedGaussianRun
        """
        return StratifiedGaussianRun(self, noise)


class StratifiedGaussianRun(CentralRun):
    """The releases of one StratifiedGaussianMechanism: ``draw`` a batch, ``release`` its vector.

    Parameters
    ----------
    mechanism : StratifiedGaussianMechanism
    noise : NoiseSource
    """

    def __init__(self, mechanism: StratifiedGaussianMechanism, noise: NoiseSource) -> None:
        super().__init__(mechanism)
        # Batches and directions must differ from those of a fit with another budget.
        self._noise = noise.bind(mechanism.noise_scale, mechanism.n_releases)
        self._n_drawn = 0
        self._is_drawn = False

    def draw(self, n_releases: int | None = None) -> list[np.ndarray]:
        """Draw the batch of the next release, or of several independent ones.

        Parameters
        ----------
        n_releases : int or None, default=None
            Number of batches, which are then released together as one vector. If records are
            projected, each batch has its own directions.

        Returns
        -------
        list of ndarray of int
            For every stratum, the secret indices of a batch within it, in random order, so that
            replacing a record does not change their distribution. Of shape (batch_size,), or
            (n_releases, batch_size).

        Raises
        ------
        PublicRuntimeError
            There are more releases than planned, or the last batch's vector is not yet released.
        """
        if self._is_drawn:
            raise PublicRuntimeError("draw() needs the release of the batch drawn before.")
        count = 1 if n_releases is None else check_count(n_releases, "n_releases")
        paid = self._mechanism.n_releases
        if self._n_drawn + count > paid:
            raise PublicRuntimeError(
                f"The privacy budget paid for {paid} release(s): {paid - self._n_drawn} left, "
                f"{count} wanted."
            )
        self._n_drawn += count
        self._is_drawn = True
        strata = self._mechanism.strata
        if n_releases is None:
            return [self._noise.choice(s.size, s.batch_size) for s in strata]
        return [self._noise.choices(s.size, s.batch_size, count) for s in strata]

    def release(self, value: np.ndarray) -> np.ndarray:
        """Return the vector of the last batch with its noise.

        Parameters
        ----------
        value : ndarray of float64, of one dimension
            Vector of the batch. The caller ensures the sensitivities of the strata and finite
            entries, as an error here could reveal a record.

        Returns
        -------
        ndarray
            On a grid finer than σ / 1000; unchanged without noise.

        Raises
        ------
        PublicRuntimeError
            No batch was drawn since the last release.
        """
        if not self._is_drawn:
            raise PublicRuntimeError("release() needs a batch of its own: call draw() before it.")
        self._check_vector(value)
        self._is_drawn = False
        return self._noise.add(value, self._mechanism.noise_scale, "gaussian")


def _undominated(strata):
    """Return one stratum for each maximal pair of rate and sensitivity.

    A larger rate needs more noise, and so does a larger sensitivity.
    """
    front: list[Stratum] = []
    for stratum in sorted(strata, key=lambda s: (s.rate, s.sensitivity), reverse=True):
        if not front or stratum.sensitivity > front[-1].sensitivity:
            front.append(stratum)
    return front


def _noise_scale(stratum, epsilon, delta, n_releases, projections):
    multiplier = _noise_multiplier(epsilon, delta, stratum.rate, n_releases, projections)
    # Rounded up, so that division by the sensitivity does not give less than the multiplier.
    return math.nextafter(multiplier * stratum.sensitivity, math.inf) if multiplier else 0.0


@functools.lru_cache(maxsize=2048)
def _noise_multiplier(epsilon, delta, rate, n_releases, projections):
    """Calibrate once for fits with the same plan, as this takes up to seconds."""
    check_budget(epsilon)
    return calibrate_noise_multiplier(
        epsilon, delta, sampling_rate=rate, n_steps=n_releases, projections=projections
    )
