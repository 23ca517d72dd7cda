"""Releases computed on all records, adaptive and from one budget.

Gaussian vectors in sequence, with private selections between them, and thresholded counts. A
mechanism is an immutable plan that states its cost; its run makes the planned releases, each once.
"""

import functools
import math
from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np
from scipy.special import ndtri

from sklearn_dpgen.accounting import GaussianProfile, LaplaceProfile, compose_epsilon
from sklearn_dpgen.accounting._certified import (
    certified_failure,
    certified_gaussian_scale,
    certified_laplace_epsilon,
    certified_laplace_scale,
    certified_mu,
    certified_score_scale,
    check_certified,
    remaining_delta,
)
from sklearn_dpgen.accounting._composition import compose_delta, default_discretization
from sklearn_dpgen.accounting._profiles import (
    CatastrophicFailureProfile,
    FailingGaussianProfile,
    PrivacyProfile,
    smallest_passing,
)
from sklearn_dpgen.accounting._selection import BoundedRangeProfile, calibrate_releases
from sklearn_dpgen.exceptions import PublicRuntimeError, PublicTypeError, PublicValueError
from sklearn_dpgen.utils._random import NoiseSource
from sklearn_dpgen.utils._validation import (
    check_count,
    check_delta,
    check_epsilon,
    check_positive,
    set_fields,
)

__all__ = [
    "CentralMechanism",
    "CentralRun",
    "GaussianSequenceMechanism",
    "GaussianSequenceRun",
    "SelectionMechanism",
    "SelectionRun",
    "ThresholdedLaplaceMechanism",
    "ThresholdedLaplaceRun",
]


class CentralMechanism(ABC):
    """Base class of the plans of releases by a trusted curator; a frozen dataclass.

    Attributes
    ----------
    sensitivity : float
    noise_scale : float or dict of str to float
        One number, or one per kind of release.
    noise_multiplier : float
    n_releases : int
    """

    if TYPE_CHECKING:
        # Fields in some mechanisms, properties in others.
        @property
        def sensitivity(self) -> float: ...

        @property
        def noise_scale(self) -> float | dict[str, float]: ...

        @property
        def noise_multiplier(self) -> float: ...

        @property
        def n_releases(self) -> int: ...

    @property
    @abstractmethod
    def releases(self) -> tuple[tuple[PrivacyProfile, int], ...]:
        """Profiles of the releases with their multiplicities; empty without noise."""

    @abstractmethod
    def run(self, *args: Any, **kwargs: Any) -> Any:
        """Return the releases of this mechanism, to be used once.

        Returns
        -------
        CentralRun
        """

    def report_fields(self) -> dict:
        """Return the fields of a PrivacyReport that this mechanism determines.

        Returns
        -------
        dict
            All but the budget, the noise source, the events, the neighbouring relation, public
            facts, bounds and caveats.
        """
        releases = self.releases
        return {
            "sensitivity": self.sensitivity,
            "noise_scale": self.noise_scale,
            "noise_multiplier": self.noise_multiplier,
            "n_releases": self.n_releases,
            "discretization": default_discretization(self._composed) if releases else None,
            "releases": releases,
        }

    @property
    def _composed(self):
        """The releases whose composition may need a grid of the privacy loss."""
        return self.releases


class CentralRun:
    """Base class of the releases of one mechanism, each of which is made once.

    Parameters
    ----------
    mechanism : CentralMechanism
    """

    def __init__(self, mechanism: Any) -> None:
        self._mechanism = mechanism

    def _check_noise(self, noise):
        """Refuse certified noise that was not planned, and any other if it was."""
        if noise.is_certified != self._mechanism.certified:
            paid = "certified noise" if self._mechanism.certified else "noise in floating point"
            raise PublicRuntimeError(f"The privacy budget paid for {paid}, and for no other.")

    @staticmethod
    def _check_vector(value, name="value"):
        if not isinstance(value, np.ndarray) or value.dtype != np.float64 or value.ndim != 1:
            raise PublicTypeError(f"{name} must be a NumPy array of float64 with one dimension.")


@dataclass(frozen=True)
class SelectionMechanism:
    """Private selection of the indices of large scores, by Gumbel noise.

    Parameters
    ----------
    score_range : float
        Largest difference, over neighbours, between the changes of two scores, given all earlier
        releases: 2Δ if every score changes by at most Δ in either direction, Δ if all of them
        change in the same direction.
    epsilon0 : float
        Range of the privacy loss of one selection, in nats; ``inf`` adds no noise.
    n_selections : int
        Total number of indices.
    certified : bool, default=False
        Whether scores are rounded and selections drawn exactly, as for ``noise="certified"``. The
        cost is the same, at a slightly larger scale.

    Notes
    -----
    The index of the largest of u_i + G_i, with Gumbel noise of scale s = score_range / ε₀, is i
    with probability proportional to exp(u_i / s). The k largest of one draw have the distribution,
    order included, of k such selections without replacement, and their cost [1]_.

    References
    ----------
    .. [1] Durfee and Rogers, "Practical differentially private top-k selection with
       pay-what-you-get composition", NeurIPS 2019, section 4.
    """

    score_range: float
    epsilon0: float
    n_selections: int
    certified: bool = False

    def __post_init__(self):
        set_fields(
            self,
            score_range=check_positive(self.score_range, "score_range"),
            epsilon0=check_epsilon(self.epsilon0, "epsilon0"),
            n_selections=check_count(self.n_selections, "n_selections"),
        )

    @property
    def noise_scale(self) -> float:
        """Scale of the Gumbel noise, in the unit of the scores; 0 without noise."""
        if self.certified and self.epsilon0 < math.inf:
            return certified_score_scale(self.epsilon0, self.score_range)
        return self.score_range / self.epsilon0

    @property
    def cost(self) -> tuple[BoundedRangeProfile, int]:
        """The joint profile of all selections and its multiplicity 1, for :func:`compose_epsilon`.

        Raises
        ------
        PublicValueError
            ``epsilon0`` is infinite.
        """
        return BoundedRangeProfile(self.epsilon0, self.n_selections), 1

    def run(self) -> "SelectionRun":
        return SelectionRun(self)


class SelectionRun(CentralRun):
    """The selections of one SelectionMechanism."""

    def __init__(self, mechanism: SelectionMechanism) -> None:
        super().__init__(mechanism)
        self._scale = mechanism.noise_scale
        self._n_left = mechanism.n_selections

    def release(self, scores: np.ndarray, noise: NoiseSource, *, count: int = 1) -> np.ndarray:
        """Return indices of large scores.

        Parameters
        ----------
        scores : ndarray of float64 of shape (n,)
            Finite. The caller ensures their range, and that their number is public.
        noise : NoiseSource
            Anybody who can predict it voids the guarantee.
        count : int
            Number of distinct indices, at most n; each is one of the planned selections.

        Returns
        -------
        ndarray of int64 of shape (count,)
            By decreasing noisy score; equal scores without noise by index.

        Raises
        ------
        PublicRuntimeError
            There are more selections than planned, or ``noise`` is of another kind.
        """
        self._check_noise(noise)
        self._check_vector(scores, "scores")
        if not np.isfinite(scores).all():
            raise PublicValueError("scores must be finite.")
        count = check_count(count, "count")
        if count > len(scores):
            raise PublicValueError(f"count must be at most the {len(scores)} scores, got {count}.")
        if count > self._n_left:
            raise PublicRuntimeError(
                f"The privacy budget has {self._n_left} selection(s) left, got count={count}."
            )
        self._n_left -= count
        return noise.largest(scores, self._scale, count)


@dataclass(frozen=True)
class GaussianSequenceMechanism(CentralMechanism):
    """Vectors computed on all records, one after another, released with Gaussian noise.

    Indices of large scores may be selected between them, by ``SelectionMechanism``, from the same
    budget.

    Parameters
    ----------
    sensitivity : float
        Largest l2 change of each vector over neighbouring data sets, given all earlier releases.
    shares : sequence of float
        One positive number per release: its share of the budget, on the scale on which Gaussian
        releases add up (squared μ). They are divided by their sum.
    epsilon : float
        Privacy budget of all releases together, in nats; ``inf`` adds no noise.
    delta : float
        In (0, 1).
    n_selections : int, default=0
        Total number of selected indices.
    selection_share : float or None, default=None
        Share of all selections together, on the scale of ``shares``: a selection counts by the
        largest variance of its privacy loss, ε₀²/4. None without selections.
    score_range : float or None, default=None
        As in ``SelectionMechanism``; None without selections.
    n_values : sequence of int or None, default=None
        For certified noise, the largest number of values of each release. None is noise in floating
        point. See :ref:`certified_noise`.
    n_changed : sequence of int or None, default=None
        Largest number of values that differ between neighbours. None is all of them.
    n_open : int, default=0
        Number of tables of open categories that the first release counts, by
        :meth:`GaussianSequenceRun.release_open`. 0 is none: the first release is like the others.

    Attributes
    ----------
    noise_scales : tuple of float
        σ_t = Δ / (μ √s_t) for the share s_t, rounded up.
    selection : SelectionMechanism or None
        Selects the indices.
    threshold_delta : float
        δ₀, 0.049 δ: the probability that a category of a single record passes its threshold.

    Notes
    -----
    **Open categories.** Their first release has a count for each category with a record, in each of
    k tables; a record is in one category of each. Counts with noise below τ = c + σ z are dropped,
    with c the contribution of a record and P(N(0, 1) ≥ z) = δ₀/k. Let D and D' be neighbours, and
    M̃ the noisy counts of the categories that occur in both. Of the other categories, all of one
    record, D has at most k, and so has D'; let E be the event that one of those of D is kept, and
    E' the same of D'. Noise is independent, so E is independent of M̃(D), P(E) ≤ δ₀, and without E
    the output is a function of M̃(D). Hence

        P(M(D) ∈ S) ≤ δ₀ + (1 − δ₀) P(M̃(D) ∈ S)
                    ≤ δ₀ + (1 − δ₀) (δ_μ(ε) + e^ε P(M̃(D') ∈ S)),

    with δ_μ the Gaussian profile, and P(M(D') ∈ S) ≥ (1 − δ₀) P(M̃(D') ∈ S) alike. So the profile is
    that of a Gaussian mechanism with a catastrophic failure of probability δ₀, in both directions,
    whether a record is replaced, added or removed. It is composed with all later releases, in
    which the kept categories are known.

    Of all rules that keep a category by its count n and have a trade-off function f, the keep
    probability π(n + 1) = 1 − f(π(n)) is the largest (by induction, as f decreases). For the f of
    (ε, δ)-privacy it is the optimum of [2]_; for Gaussian privacy, Φ(Φ⁻¹(δ₀) + (n − 1) μ), the
    Gaussian threshold.

    Releases with noise σ_t are adaptively as private as one with sensitivity μ and unit noise,
    μ² = Σ Δ²/σ_t², whose privacy profile is exact (Dong, Roth and Su, "Gaussian differential
    privacy", 2022, Corollary 3.3). With selections, :func:`compose_epsilon` composes this profile
    with theirs; releases and selections may be in any order, and adaptive.

    References
    ----------
    .. [2] D. Desfontaines, J. Voss, B. Gipson, C. Mandayam, "Differentially private partition
       selection", PoPETs 2022, Theorem 1.
    """

    sensitivity: float
    shares: Sequence[float]
    epsilon: float
    delta: float
    n_selections: int = 0
    selection_share: float | None = None
    score_range: float | None = None
    n_values: Sequence[int] | None = None
    n_changed: Sequence[int] | None = None
    n_open: int = 0
    noise_scales: tuple[float, ...] = field(init=False)
    selection: SelectionMechanism | None = field(init=False)

    def __post_init__(self):
        sensitivity = check_positive(self.sensitivity, "sensitivity")
        shares = [check_positive(share, "shares") for share in self.shares]
        if not shares:
            raise PublicValueError("shares must hold one positive number per release.")
        epsilon = check_epsilon(self.epsilon)
        delta = check_delta(self.delta)
        priced, selection = {}, None
        if self.n_selections != 0:
            n_selections = check_count(self.n_selections, "n_selections")
            share = check_positive(self.selection_share, "selection_share")
            priced = {"n_selections": n_selections, "selection_share": share / n_selections}
        elif self.selection_share is not None or self.score_range is not None:
            raise PublicValueError(
                "selection_share and score_range must be None without selections."
            )
        n_values, n_changed = _checked_sizes(self.n_values, self.n_changed, len(shares))
        n_open = check_count(self.n_open, "n_open") if self.n_open != 0 else 0
        rest = delta if n_values is None else remaining_delta(delta, sum(n_values))
        if n_open:
            rest = math.nextafter(
                (rest - _THRESHOLD_PART * delta) / (1 - _THRESHOLD_PART * delta), 0
            )
        mus, epsilon0 = calibrate_releases(epsilon, rest, gaussian_shares=shares, **priced)
        if epsilon0 is not None:
            score_range = check_positive(self.score_range, "score_range")
            selection = SelectionMechanism(
                score_range, epsilon0, n_selections, certified=n_values is not None
            )
        set_fields(
            self,
            sensitivity=sensitivity,
            shares=tuple(share / math.fsum(shares) for share in shares),
            epsilon=epsilon,
            delta=delta,
            selection=selection,
            n_values=n_values,
            n_changed=n_changed,
            n_open=n_open,
        )
        set_fields(self, noise_scales=self._scales(mus))

    @property
    def threshold_delta(self) -> float:
        return _THRESHOLD_PART * self.delta if self.n_open else 0.0

    def threshold(self, contribution: float) -> float:
        """Return the noisy count from which an open category is released.

        Parameters
        ----------
        contribution : float
            The count of a category of a single record.

        Returns
        -------
        float
            τ, with a margin for the grid of the noise; 0 without noise.
        """
        if not self.n_open:
            raise PublicRuntimeError("The privacy budget paid for no open categories.")
        scale = self.noise_scales[0]
        # Rounding raises a value by less than half a step of the grid, and the tail of discrete
        # noise is at most that of continuous noise one step before; a step is below σ / 1000.
        deviations = -float(ndtri(self.threshold_delta / self.n_open)) + 1 / 512
        return contribution + scale * deviations if scale > 0 else 0.0

    def _scales(self, mus):
        """Return scales whose cost is the budget, and that are almost as small as possible."""
        if math.isinf(self.epsilon):
            return (0.0,) * len(mus)
        rescaled = [self.sensitivity] * len(mus)
        if self.n_changed is not None:
            rescaled = [
                mu * certified_gaussian_scale(mu, self.sensitivity, n)
                for mu, n in zip(mus, self.n_changed, strict=True)
            ]
        factor, step = 1.0, 1e-15
        while True:
            scales = tuple(factor * top / mu for top, mu in zip(rescaled, mus, strict=True))
            if compose_epsilon(self._priced(scales), self.delta) <= self.epsilon:
                return scales
            factor *= 1 + step
            step *= 10

    def _mus(self, scales):
        """Return μ of each release; for certified noise OpenDP confirms it."""
        if self.n_changed is None:
            return [self.sensitivity / scale for scale in scales]
        mus = []
        for scale, n in zip(scales, self.n_changed, strict=True):
            mus.append(certified_mu(self.sensitivity, scale, n))
            check_certified("gaussian", self.sensitivity, scale, n, mus[-1])
        return mus

    def _priced(self, scales):
        """Return the profiles of all releases, for :func:`compose_epsilon`."""
        mus = self._mus(scales)
        releases = [(GaussianProfile(mu), 1) for mu in mus]
        if self._failure:
            releases = [(self._joint_profile(mus), 1)]
        return releases if self.selection is None else [*releases, self.selection.cost]

    @property
    def _failure(self):
        """The probability of a catastrophic failure, of certified noise or of a threshold."""
        certified = 0.0 if self.n_values is None else certified_failure(sum(self.n_values))
        return certified + self.threshold_delta

    def _joint_profile(self, mus):
        """Return the profile of all Gaussian releases together."""
        mu = math.sqrt(math.fsum(mu**2 for mu in mus))
        return FailingGaussianProfile(mu, self._failure) if self._failure else GaussianProfile(mu)

    @property
    def n_releases(self) -> int:
        """Number of releases, selections included."""
        return len(self.shares) + self.n_selections

    @property
    def releases(self) -> tuple[tuple[PrivacyProfile, int], ...]:
        """Profiles of the releases with their multiplicities; empty without noise.

        All Gaussian releases together have one profile.
        """
        if self.noise_scales[0] == 0:
            return ()
        profile = self._joint_profile(self._mus(self.noise_scales))
        selections = () if self.selection is None else (self.selection.cost,)
        return ((profile, 1), *selections)

    @property
    def certified(self) -> bool:
        """Whether the noise is certified."""
        return self.n_values is not None

    @property
    def noise_scale(self) -> float | dict[str, float]:
        """σ, or one per release if they differ; with selections that of their Gumbel noise too."""
        scales = self.noise_scales
        is_equal = len(set(scales)) == 1
        noise = scales[0] if is_equal else {f"release {i}": s for i, s in enumerate(scales, 1)}
        if self.selection is None:
            return noise
        noise = noise if isinstance(noise, dict) else {"every release": noise}
        return noise | {f"each of {self.n_selections} selections": self.selection.noise_scale}

    @property
    def noise_multiplier(self) -> float:
        """Noise multiplier of all Gaussian releases together."""
        if self.noise_scales[0] == 0:
            return 0.0
        together = 1 / math.sqrt(math.fsum(1 / scale**2 for scale in self.noise_scales))
        return together / self.sensitivity

    @property
    def _composed(self):
        return self._priced(self.noise_scales)

    def run(self) -> "GaussianSequenceRun":
        return GaussianSequenceRun(self)


class GaussianSequenceRun(CentralRun):
    """The releases of one GaussianSequenceMechanism, in order."""

    def __init__(self, mechanism: GaussianSequenceMechanism) -> None:
        super().__init__(mechanism)
        self._n_values = None if mechanism.n_values is None else list(mechanism.n_values)
        self._scales = list(mechanism.noise_scales)
        self._selection = None if mechanism.selection is None else mechanism.selection.run()

    def release(self, value: np.ndarray, noise: NoiseSource) -> np.ndarray:
        """Return a vector with the noise of the next release.

        Parameters
        ----------
        value : ndarray of float64, of one dimension
            The caller ensures its sensitivity and finite entries, as an error here could reveal a
            record.
        noise : NoiseSource
            Anybody who can predict it voids the guarantee.

        Returns
        -------
        ndarray
            On a grid finer than σ / 1000; unchanged without noise.

        Raises
        ------
        PublicRuntimeError
            There are more releases or values than planned, or ``noise`` is of another kind.
        """
        self._check_noise(noise)
        self._check_vector(value)
        if not self._scales:
            raise PublicRuntimeError(
                "All releases that the privacy budget paid for were made: no more."
            )
        if self._mechanism.n_open and len(self._scales) == len(self._mechanism.noise_scales):
            raise PublicRuntimeError("Open categories must be released first, by release_open.")
        if self._n_values is not None and len(value) > (most := self._n_values.pop(0)):
            raise PublicRuntimeError(
                f"The privacy budget paid for {most} values, not {len(value)}."
            )
        return noise.add(value, self._scales.pop(0), "gaussian")

    def release_open(
        self, value: np.ndarray, contribution: float, noise: NoiseSource
    ) -> tuple[np.ndarray, np.ndarray]:
        """Return the categories whose counts pass the threshold, with the noise of the release.

        Parameters
        ----------
        value : ndarray of float64 of shape (n,)
            Positive counts of the categories that occur, of all open tables. Their number is
            private: only kept categories may be used. The caller ensures the sensitivity.
        contribution : float
            The count of a category of a single record.
        noise : NoiseSource
            As for :meth:`release`.

        Returns
        -------
        kept : ndarray of int of shape (n_kept,)
            Indices, in the order of ``value``, which must not be released.
        noisy : ndarray of float64 of shape (n_kept,)
            Their noisy counts.

        Raises
        ------
        PublicRuntimeError
            The mechanism has no open categories, they were released, or ``noise`` is of another
            kind.
        """
        self._check_noise(noise)
        self._check_vector(value)
        threshold = self._mechanism.threshold(contribution)
        if len(self._scales) < len(self._mechanism.noise_scales):
            raise PublicRuntimeError("Open categories must be released first, and once.")
        if self._n_values is not None:
            # Values that are equal in both neighbours have equal distributions, exact or not, so
            # that only those which differ are paid for.
            self._n_values.pop(0)
        noisy = noise.add(value, self._scales.pop(0), "gaussian")
        # Categories of no record are not paid for.
        kept = np.flatnonzero((value > 0) & (noisy >= threshold))
        return kept, noisy[kept]

    def select(self, scores: np.ndarray, noise: NoiseSource, *, count: int = 1) -> np.ndarray:
        """Return indices of large scores, as in ``SelectionRun.release``."""
        if self._selection is None:
            raise PublicRuntimeError("The privacy budget paid for no selection.")
        return self._selection.release(scores, noise, count=count)


# Share of δ for the thresholds of open categories. Two fits with it, and with the errors of their
# numerical composition, are within what a ledger reserves for failures.
_THRESHOLD_PART = 0.049


def _checked_sizes(n_values, n_changed, n_releases):
    """Return checked sizes of releases with certified noise, or (None, None)."""
    if n_values is None:
        if n_changed is not None:
            raise PublicValueError("n_changed must be None without n_values.")
        return None, None
    n_values = tuple(check_count(n, "n_values") for n in n_values)
    n_changed = n_values if n_changed is None else n_changed
    n_changed = tuple(
        min(check_count(n, "n_changed"), most) for n, most in zip(n_changed, n_values, strict=True)
    )
    if len(n_values) != n_releases:
        raise PublicValueError(f"n_values must hold {n_releases} numbers, one per release.")
    return n_values, n_changed


@dataclass(frozen=True)
class ThresholdedLaplaceMechanism(CentralMechanism):
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
    # In the l1 norm: two counts change by one.
    sensitivity = 2.0

    def __post_init__(self):
        epsilon = check_epsilon(self.epsilon)
        delta = check_delta(self.delta)
        n_releases = check_count(self.n_releases, "n_releases")
        scale = _laplace_scale(epsilon, delta / 2, 2 * n_releases)
        if self.certified:
            scale = certified_laplace_scale(1 / scale, 1.0, 1) if scale > 0 else 0.0
        threshold = 1 + scale * math.log(2 * n_releases / delta) if scale > 0 else 0.0
        set_fields(
            self,
            epsilon=epsilon,
            delta=delta,
            n_releases=n_releases,
            noise_scale=scale,
            threshold=threshold,
        )

    @property
    def releases(self) -> tuple[tuple[PrivacyProfile, int], ...]:
        if self.noise_scale == 0:
            return ()
        noise = LaplaceProfile(1 / self.noise_scale)
        if self.certified:
            spent = certified_laplace_epsilon(1.0, self.noise_scale, 1)
            check_certified("laplace", 1.0, self.noise_scale, 1, spent)
            noise = LaplaceProfile(spent)
        return ((noise, 2 * self.n_releases), (CatastrophicFailureProfile(self.delta / 2), 1))

    @property
    def noise_multiplier(self) -> float:
        """Noise scale over the l1 sensitivity of 2 votes."""
        return self.noise_scale / self.sensitivity

    @property
    def _composed(self):
        return self.releases[:1]

    def run(self) -> "ThresholdedLaplaceRun":
        return ThresholdedLaplaceRun(self)


class ThresholdedLaplaceRun(CentralRun):
    """The releases of one ThresholdedLaplaceMechanism."""

    def __init__(self, mechanism: ThresholdedLaplaceMechanism) -> None:
        super().__init__(mechanism)
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
        self._check_noise(noise)
        self._check_vector(counts, "counts")
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


@functools.lru_cache(maxsize=2048)
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
