"""The Gaussian sequence mechanism: adaptive releases and selections with shares of one budget."""

import math
from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np

from sklearn_dpgen.accounting import GaussianProfile, compose_epsilon
from sklearn_dpgen.accounting._certified import (
    certified_failure,
    certified_gaussian_scale,
    certified_mu,
    check_certified,
    remaining_delta,
)
from sklearn_dpgen.accounting._checks import check_count
from sklearn_dpgen.accounting._composition import default_discretization
from sklearn_dpgen.accounting._profiles import PrivacyProfile
from sklearn_dpgen.accounting._random_stopping import FailingGaussianProfile
from sklearn_dpgen.accounting._selection import calibrate_releases
from sklearn_dpgen.exceptions import PublicRuntimeError, PublicTypeError, PublicValueError
from sklearn_dpgen.mechanisms._selection import SelectionMechanism, check_paid
from sklearn_dpgen.utils._random import NoiseSource
from sklearn_dpgen.utils._validation import check_delta, check_epsilon, check_positive

__all__ = ["GaussianSequenceMechanism", "GaussianSequenceRun"]


@dataclass(frozen=True)
class GaussianSequenceMechanism:
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

    Attributes
    ----------
    noise_scales : tuple of float
        σ_t = Δ / (μ √s_t) for the share s_t, rounded up.
    selection : SelectionMechanism or None
        Selects the indices.

    Notes
    -----
    Releases with noise σ_t are adaptively as private as one with sensitivity μ and unit noise,
    μ² = Σ Δ²/σ_t², whose privacy profile is exact (Dong, Roth and Su, "Gaussian differential
    privacy", 2022, Corollary 3.3). With selections, :func:`compose_epsilon` composes this profile
    with theirs; releases and selections may be in any order, and adaptive.
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
        rest = delta if n_values is None else remaining_delta(delta, sum(n_values))
        mus, epsilon0 = calibrate_releases(epsilon, rest, gaussian_shares=shares, **priced)
        if epsilon0 is not None:
            score_range = check_positive(self.score_range, "score_range")
            selection = SelectionMechanism(
                score_range, epsilon0, n_selections, certified=n_values is not None
            )
        for name, value in (
            ("sensitivity", sensitivity),
            ("shares", tuple(share / math.fsum(shares) for share in shares)),
            ("epsilon", epsilon),
            ("delta", delta),
            ("selection", selection),
            ("n_values", n_values),
            ("n_changed", n_changed),
        ):
            object.__setattr__(self, name, value)
        object.__setattr__(self, "noise_scales", self._scales(mus))

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
        if self.n_values is not None:
            releases = [(self._certified_profile(mus, self.n_values), 1)]
        return releases if self.selection is None else [*releases, self.selection.cost]

    def _certified_profile(self, mus, n_values):
        mu = math.sqrt(math.fsum(mu**2 for mu in mus))
        return FailingGaussianProfile(mu, certified_failure(sum(n_values)))

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
        mus = self._mus(self.noise_scales)
        profile = GaussianProfile(math.sqrt(math.fsum(mu**2 for mu in mus)))
        if self.n_values is not None:
            profile = self._certified_profile(mus, self.n_values)
        selections = () if self.selection is None else (self.selection.cost,)
        return ((profile, 1), *selections)

    def report_fields(self) -> dict:
        """Return the fields of a PrivacyReport that this mechanism determines.

        Returns
        -------
        dict
            As in :class:`StratifiedGaussianMechanism`. The noise scale is one number, or one per
            release if they differ; the multiplier is that of all of them together. With selections
            there is the scale of the Gumbel noise too.
        """
        scales = self.noise_scales
        together = 0.0
        if scales[0] > 0:
            together = 1 / math.sqrt(math.fsum(1 / scale**2 for scale in scales))
        is_equal = len(set(scales)) == 1
        grid = None
        noise = scales[0] if is_equal else {f"release {i}": s for i, s in enumerate(scales, 1)}
        if self.selection is not None:
            noise = noise if isinstance(noise, dict) else {"every release": noise}
            noise |= {f"each of {self.n_selections} selections": self.selection.noise_scale}
            if together > 0:
                grid = default_discretization(self._priced(scales))
        return {
            "sensitivity": self.sensitivity,
            "noise_scale": noise,
            "noise_multiplier": together / self.sensitivity,
            "n_releases": self.n_releases,
            "discretization": grid,
            "releases": self.releases,
        }

    def run(self) -> "GaussianSequenceRun":
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

    def __init__(self, mechanism: GaussianSequenceMechanism) -> None:
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
        check_paid(noise, self._n_values is not None)
        if not isinstance(value, np.ndarray) or value.dtype != np.float64 or value.ndim != 1:
            raise PublicTypeError("value must be a NumPy array of float64 with one dimension.")
        if not self._scales:
            raise PublicRuntimeError(
                "All releases that the privacy budget paid for were made: no more."
            )
        if self._n_values is not None and len(value) > (most := self._n_values.pop(0)):
            raise PublicRuntimeError(
                f"The privacy budget paid for {most} values, not {len(value)}."
            )
        return noise.add(value, self._scales.pop(0), "gaussian")

    def select(self, scores: np.ndarray, noise: NoiseSource, *, count: int = 1) -> np.ndarray:
        """Return indices of large scores, as in ``SelectionRun.release``."""
        if self._selection is None:
            raise PublicRuntimeError("The privacy budget paid for no selection.")
        return self._selection.release(scores, noise, count=count)


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
