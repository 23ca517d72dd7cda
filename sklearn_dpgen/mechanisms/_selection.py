"""Private selection of the largest scores, by the exponential mechanism."""

import math
from dataclasses import dataclass

import numpy as np

from sklearn_dpgen.accounting._certified import certified_score_scale
from sklearn_dpgen.accounting._checks import check_count
from sklearn_dpgen.accounting._selection import BoundedRangeProfile
from sklearn_dpgen.exceptions import PublicRuntimeError, PublicTypeError, PublicValueError
from sklearn_dpgen.utils._random import NoiseSource
from sklearn_dpgen.utils._validation import check_epsilon, check_positive

__all__ = ["SelectionMechanism", "SelectionRun", "check_paid"]


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
        score_range = check_positive(self.score_range, "score_range")
        epsilon0 = check_epsilon(self.epsilon0, "epsilon0")
        n_selections = check_count(self.n_selections, "n_selections")
        object.__setattr__(self, "score_range", score_range)
        object.__setattr__(self, "epsilon0", epsilon0)
        object.__setattr__(self, "n_selections", n_selections)

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
        """Return the selections of this mechanism, to be used once.

        Returns
        -------
        SelectionRun
        """
        return SelectionRun(self)


class SelectionRun:
    """The selections of one SelectionMechanism.

    Parameters
    ----------
    mechanism : SelectionMechanism
    """

    def __init__(self, mechanism: SelectionMechanism) -> None:
        self._certified = mechanism.certified
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
        check_paid(noise, self._certified)
        if not isinstance(scores, np.ndarray) or scores.dtype != np.float64 or scores.ndim != 1:
            raise PublicTypeError("scores must be a NumPy array of float64 with one dimension.")
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


def check_paid(noise, certified):
    """Refuse certified noise that was not planned, and any other if it was."""
    if noise.is_certified != certified:
        paid = "certified noise" if certified else "noise in floating point"
        raise PublicRuntimeError(f"The privacy budget paid for {paid}, and for no other.")
