"""Private release of projected records, and its smoothed distance to public samples."""

import math
from dataclasses import dataclass, field

import numpy as np
import torch
from numpy.typing import ArrayLike

from sklearn_dpgen.accounting import Bound, Event, PrivacyReport, ProjectionLaw
from sklearn_dpgen.accounting._wording import number_words
from sklearn_dpgen.domains import Domain
from sklearn_dpgen.domains._ball import enclosing_ball
from sklearn_dpgen.ledger._ledger import LedgerLike, open_ledger
from sklearn_dpgen.mechanisms import StratifiedGaussianMechanism, Stratum
from sklearn_dpgen.ot._sliced import wasserstein_lines
from sklearn_dpgen.utils._random import ROUNDING, noise_source, on_grid, split_random_state
from sklearn_dpgen.utils._torch import as_tensor, resolve_device
from sklearn_dpgen.utils._validation import (
    check_array,
    check_choice,
    check_count,
    check_delta,
    check_positive,
)

__all__ = ["PrivateDistance", "smoothed_sliced_wasserstein"]

# Largest automatic number of directions. Each needs more noise if there are more, and a small shift
# is easiest to detect along a few.
_MOST_DIRECTIONS = 20
_CAVEATS = ("free_distances", "earlier_fits", "compared_samples", "floating_point")


@dataclass(frozen=True, eq=False)
class PrivateDistance:
    """Noisy projections of private records, and their distance to a public sample.

    Returned by :func:`smoothed_sliced_wasserstein`. The guarantee ``privacy`` covers all of it, so
    it may be published; anything computed from it is post-processing.

    Attributes
    ----------
    distance : float
        Smoothed sliced W_p distance to the public sample of the call, in the units of the records.
    privacy : PrivacyReport
        The guarantee of the release.
    directions : ndarray of shape (k, d)
        Unit directions :math:`\\theta_j`, in rows.
    projections : ndarray of shape (n, k)
        Noisy projections of the records, in their order. The center of the ball around ``domain``
        was subtracted from the records.
    domain : Domain
        Public set into which records and samples are moved.
    p : float
        Exponent of the distance.
    device : str or torch.device
        Device that computes distances. ``dataclasses.replace`` changes it for the same release.
    """

    distance: float
    privacy: PrivacyReport
    directions: np.ndarray = field(repr=False)
    projections: np.ndarray = field(repr=False)
    domain: Domain
    p: float
    device: str | torch.device = field(default="auto", repr=False)

    @property
    def noise_scale(self) -> float:
        """Standard deviation of the noise on each projection, of records and of samples."""
        return self.privacy.noise_scale  # type: ignore[return-value]  # one number in this report

    def distance_to(
        self,
        Y: ArrayLike,
        *,
        n_repeats: int = 1,
        random_state: int | np.random.RandomState | None = None,
    ) -> float:
        """Return the distance of the release to another public sample, at no further cost.

        Parameters
        ----------
        Y : array-like of shape (m, d)
            Public records. The method centers them, as the private ones were.
        n_repeats, random_state
            As in :func:`smoothed_sliced_wasserstein`. Only the noise of Y is drawn.

        Returns
        -------
        float
        """
        projected = _project(Y, "Y", self.domain, self.directions)
        n_repeats = check_count(n_repeats, "n_repeats")
        return self._compare(self.projections, projected, n_repeats, _generator(random_state))

    def null_distances(
        self,
        Y: ArrayLike,
        *,
        n_draws: int = 99,
        n_repeats: int = 1,
        random_state: int | np.random.RandomState | None = None,
    ) -> np.ndarray:
        """Simulate the distances of releases of records drawn from the rows of Y.

        Parameters
        ----------
        Y : array-like of shape (m, d)
            Public records, as in :meth:`distance_to`.
        n_draws : int, default=99
            Number of simulated distances.
        n_repeats, random_state
            As in :meth:`distance_to`; ``n_repeats`` must be that of the distance to compare with.

        Returns
        -------
        ndarray of shape (n_draws,)
            Distances for n records drawn with replacement from the rows of Y, with fresh noise on
            both samples and the directions of this release.

        Notes
        -----
        No private record is read. The mean p-th power estimates the bias of the p-th power of the
        distance if the distributions agree. If the private records are n independent draws from
        the rows of Y, then ``(1 + (null >= distance).sum()) / (1 + n_draws)`` is a valid p-value at
        every sample size: given the directions, the distance and the simulated ones are
        independent and identically distributed. If Y is itself a sample of the distribution in
        question, the p-value is approximate: it is good for m far above n, and too small
        otherwise.
        """
        projected = _project(Y, "Y", self.domain, self.directions)
        n_draws = check_count(n_draws, "n_draws")
        n_repeats = check_count(n_repeats, "n_repeats")
        generator = _generator(random_state)
        n_samples = len(self.projections)
        null = np.empty(n_draws)
        for i in range(n_draws):
            drawn = projected[generator.integers(len(projected), size=n_samples)]
            noisy = _with_noise(drawn, self.noise_scale, generator)
            null[i] = self._compare(noisy, projected, n_repeats, generator)
        return null

    def _compare(self, noisy, projected, n_repeats, generator):
        other = _with_noise(np.tile(projected, (n_repeats, 1)), self.noise_scale, generator)
        return _distance(noisy, other, self.p, self.device)


def smoothed_sliced_wasserstein(
    X: ArrayLike,
    Y: ArrayLike,
    *,
    epsilon: float,
    domain: Domain,
    delta: float | str = "auto",
    n_projections: int | str = "auto",
    directions: str = "orthogonal",
    p: float = 2,
    n_repeats: int = 1,
    ledger: LedgerLike = None,
    random_state: int | np.random.RandomState | None = None,
    device: str | torch.device = "auto",
) -> PrivateDistance:
    r"""Return the distance between a private and a public sample, from one private release.

    .. math:: \Big(\frac1k \sum_j W_p^p(X \theta_j + v_j, Y \theta_j + w_j)\Big)^{1/p}

    The private records are projected on random directions and released once with Gaussian noise.
    The projections of the public ones get fresh noise of the same scale. The center of
    ``enclosing_ball`` is subtracted from both, which changes no distance
    and keeps rounding errors small if the domain is far from the origin.

    Parameters
    ----------
    X : array-like of shape (n, d)
        Private records. Those outside ``domain`` are moved to its nearest point.
    Y : array-like of shape (m, d)
        Public records. Those outside ``domain`` are moved likewise.
    epsilon : float
        Privacy budget of the release, in nats; ``np.inf`` adds no noise.
    domain : Domain
        The public set that holds the records: a box, a ball, soft one-hot blocks, or a product of
        these. Its l2 diameter is the sensitivity.
    delta : float or "auto", default="auto"
        Failure probability, in (0, 1). "auto" is 0.1 / n.
    n_projections : int or "auto", default="auto"
        Number k of directions. "auto" is d, at most 20. Fewer directions cover less of the space
        and have less noise each; more than d only share the budget among copies. Ignored for
        d = 1, where there is a single direction.
    directions : {"orthogonal", "independent"}, default="orthogonal"
        How they are drawn, as in :func:`sklearn_dpgen.ot.random_directions`.
    p : float, default=2
        Exponent, at least 1.
    n_repeats : int, default=1
        Number of noisy copies of each record of Y. The release is compared with all copies
        together. By convexity, the p-th power of this distance is at most the mean of those of
        single copies.
    ledger : PrivacyLedger, path or None, default=None
        Ledger that is charged before the release. None charges no ledger.
    random_state : int, RandomState or None, default=None
        None draws the noise from the operating system's entropy. An int repeats the release for
        the same X, domain, budget and distribution of the directions, whatever Y is. For any
        others, directions and noise are independent, so that releases compose. An int voids the
        guarantee against anybody who knows or guesses it.
    device : str or torch.device, default="auto"
        Device on which projections are sorted and compared. "auto" takes a GPU where there is
        one. The release is computed on the CPU and does not depend on it.

    Returns
    -------
    PrivateDistance
        The distance, the release, and its PrivacyReport.

    Raises
    ------
    BudgetExceededError
        If too little is left in the ledger.
    TypeError, ValueError
        If a parameter is out of range, a sample is empty or not finite, or its number of features
        differs from that of the domain.

    Notes
    -----
    **Formal guarantee**

    :Promise: Central (ε, δ)-differential privacy of the noisy projections of X, and so of the
        distance to any Y.
    :Neighbours: Replace one record; the number of records is public. Records are the rows of X; Y
        is not protected.
    :Public: ``n_samples``; ``domain``; order of the records of X; the directions; Y, the sample
        compared with.
    :Bounded by: The declared domain, on which records are projected: the sensitivity is its
        diameter.
    :Noise: Gaussian, by :class:`~sklearn_dpgen.mechanisms.StratifiedGaussianMechanism`, in floating
        point, from the operating system's entropy.
    :Priced by: The privacy profile of the Gaussian mechanism, averaged over the exact law of the
        projections (:class:`~sklearn_dpgen.accounting.ProjectionLaw`); no sampling.
    :Not covered: Further calls for the same X, which a ``ledger`` adds up:
        :meth:`PrivateDistance.distance_to` reads the release again at no cost; what was fitted on
        the same records before, such as a scaler; errors of a call; a ``random_state`` that others
        know or guess.
    :Proof: :doc:`/smoothed`.

    The mean of the p-th power over noise and independent records is at least that of the smoothed
    distributions, because :math:`W_p^p` is jointly convex in both distributions. It is larger even
    if they agree: then the distance is positive, and decreases with n and m. See
    :meth:`PrivateDistance.null_distances` for its size. Noise hides differences far below its
    scale, so do not compare values at different ``epsilon``.

    References
    ----------
    Rakotomamonjy and Ralaivola, "Differentially private sliced Wasserstein distance", ICML 2021,
    Algorithm 1. The exact accounting and the orthogonal directions are ours.

    Examples
    --------
    >>> import numpy as np
    >>> from sklearn_dpgen.domains import Ball
    >>> from sklearn_dpgen.smoothed import smoothed_sliced_wasserstein
    >>> rng = np.random.default_rng(0)
    >>> disc = Ball(1.0, n_features=2)
    >>> records, near = disc.sample(2000, rng), disc.sample(2000, rng)
    >>> result = smoothed_sliced_wasserstein(records, near, epsilon=5.0, domain=disc)
    >>> bool(result.distance < result.distance_to(near + [0.8, 0.0]))
    True
    >>> result.privacy.epsilon
    5.0
    """
    if not isinstance(domain, Domain):
        raise TypeError(f"domain must be a Domain, got {type(domain).__name__}.")
    p = check_positive(p, "p")
    if p < 1:
        raise ValueError(f"p must be at least 1, got {p}.")
    resolve_device(device)
    law = _projection_law(domain.n_features, n_projections, directions)
    n_repeats = check_count(n_repeats, "n_repeats")
    X, Y = _centered(X, "X", domain), _centered(Y, "Y", domain)
    private_seed, public_seed = split_random_state(random_state, 2)
    mechanism = StratifiedGaussianMechanism(
        [Stratum(len(X), len(X), domain.diameter(2))],
        epsilon=epsilon,
        delta=0.1 / len(X) if delta == "auto" else check_delta(delta),
        n_releases=1,
        projections=law,
    )
    noise = noise_source(private_seed, "smoothed_sliced_wasserstein", X, domain, mechanism.delta)
    privacy = _report(mechanism, noise, domain, len(X) * law.n_projections)
    if ledger is not None:
        open_ledger(ledger).reserve(privacy, what="smoothed_sliced_wasserstein")

    run = mechanism.run(noise)
    U = law.draw(noise)
    (rows,) = run.draw()
    released = run.release((X[rows] @ U.T).ravel()).reshape(len(X), law.n_projections)
    other = _with_noise(
        np.tile(Y @ U.T, (n_repeats, 1)), mechanism.noise_scale, np.random.default_rng(public_seed)
    )
    for array in (U, released):
        array.flags.writeable = False
    distance = _distance(released, other, p, device)
    return PrivateDistance(distance, privacy, U, released, domain, p, device)


def _projection_law(n_features, n_projections, kind):
    check_choice(kind, "directions", ("orthogonal", "independent"))
    if isinstance(n_projections, str):
        check_choice(n_projections, "n_projections", ("auto",))
        n_projections = min(n_features, _MOST_DIRECTIONS)
    n_projections = check_count(n_projections, "n_projections")
    return ProjectionLaw(n_features, 1 if n_features == 1 else n_projections, kind)


def _centered(Z, name, domain):
    """Return records moved into the domain, less the center of the ball around it."""
    Z = check_array(Z, dtype=np.float64, input_name=name)
    if Z.shape[1] != domain.n_features:
        raise ValueError(
            f"domain has {domain.n_features} features, {name} has {Z.shape[1]} features."
        )
    # Far from the center, rounding errors of projections could exceed the sensitivity.
    return domain.project(Z) - enclosing_ball(domain).center


def _project(Z, name, domain, directions):
    return _centered(Z, name, domain) @ directions.T


def _with_noise(projected, scale, generator):
    """Add public noise with the distribution of that of a release, including its grid."""
    if scale == 0:
        return projected
    return on_grid(projected + scale * generator.standard_normal(projected.shape), scale)


def _distance(released, other, p, device):
    """Return the p-th root of the mean of W_p^p over the columns."""
    device = resolve_device(device)
    sides = (as_tensor(side, device=device, dtype=torch.float64) for side in (released, other))
    return wasserstein_lines(*sides, p=p).item() ** (1 / p)


def _generator(random_state):
    (seed,) = split_random_state(random_state, 1)
    return np.random.default_rng(seed)


def _report(mechanism, noise, domain, n_values):
    return PrivacyReport(
        name="smoothed_sliced_wasserstein",
        events=(Event("projections"),),
        epsilon=mechanism.epsilon,
        delta=mechanism.delta if math.isfinite(mechanism.epsilon) else 0.0,
        public=("n_samples", "domain", "order", "compared_sample"),
        norm="l2",
        bounds=(Bound("l2_diameter", domain.diameter(2)), Bound("directions_averaged")),
        noise_source=noise.description,
        caveats=_CAVEATS,
        split={"projections": 1.0} if mechanism.noise_scale else {},
        rounding=n_values * ROUNDING if mechanism.noise_scale else 0.0,
        precision={
            "a projection of a record": f"± {number_words(mechanism.noise_scale)}, where a domain "
            f"of diameter {number_words(domain.diameter(2))} has at most that width"
            if mechanism.noise_scale
            else "exact: there is no noise"
        },
        **mechanism.report_fields(),
    )
