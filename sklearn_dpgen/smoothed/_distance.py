"""Distances of private records to public samples, from one release.

Noisy histograms of projections, or as in the paper noisy projections of each record.
"""

import math
from dataclasses import dataclass, field

import numpy as np
import torch
from numpy.typing import ArrayLike

from sklearn_dpgen.accounting import Bound, Event, PrivacyReport, ProjectionLaw
from sklearn_dpgen.accounting._calibration import check_delta_size
from sklearn_dpgen.accounting._wording import number_words
from sklearn_dpgen.domains import Domain
from sklearn_dpgen.domains._ball import enclosing_ball
from sklearn_dpgen.ledger._ledger import LedgerLike, open_ledger
from sklearn_dpgen.mechanisms import (
    GaussianSequenceMechanism,
    StratifiedGaussianMechanism,
    Stratum,
)
from sklearn_dpgen.ot._sliced import random_directions, wasserstein_lines
from sklearn_dpgen.smoothed._histograms import (
    NoisyHistograms,
    cell_edges,
    cells_of,
    moment_query,
    visibility,
)
from sklearn_dpgen.utils._random import (
    ROUNDING,
    noise_source,
    on_grid,
    split_random_state,
    torch_generator,
)
from sklearn_dpgen.utils._torch import as_tensor, resolve_device
from sklearn_dpgen.utils._validation import (
    check_array,
    check_budget,
    check_choice,
    check_count,
    check_delta,
    check_positive,
    warn_user,
)

__all__ = ["PrivateDistance", "private_sliced_wasserstein", "smoothed_sliced_wasserstein"]

# Largest automatic number of directions. Each needs more noise if there are more, and a small shift
# is easiest to detect along a few.
_MOST_DIRECTIONS = 20
# Shares of the budget of moments and histograms, chosen on CPS1988 and NMES1988.
_SHARES = (0.2, 0.8)
# Numbers of cells of a histogram: the noise on a share is about a cell squared.
_FEWEST_CELLS, _MOST_CELLS = 8, 32
_CELL_RATIO = 0.6
# Squares and their sums are finite.
_LARGEST_RADIUS = 1e100
# Public records that a cell, and a moment, need for a test that resamples them. With 5 for a moment
# and 20 times as many private records, a fifth of the tests at level .05 rejected; with these, .05
# to .08.
_ROWS_PER_CELL, _ROWS_PER_MOMENT = 10, 15
_CAVEATS = ("free_distances", "earlier_fits", "compared_samples", "floating_point")


@dataclass(frozen=True, eq=False)
class PrivateDistance:
    """One release of private records, and their distance to a public sample.

    Returned by :func:`private_sliced_wasserstein` and :func:`smoothed_sliced_wasserstein`. The
    guarantee ``privacy`` covers all of it, so it may be published; anything computed from it is
    post-processing.

    Attributes
    ----------
    distance : float
        Sliced W_p distance to the public sample of the call, in the units of the records; smoothed
        if projections were released.
    privacy : PrivacyReport
        The guarantee of the release.
    directions : ndarray of shape (k, d)
        Unit directions :math:`\\theta_j`, in rows.
    projections : ndarray of shape (n, k) or None
        Noisy projections of the records, in their order, of ``smoothed_sliced_wasserstein``. The
        center of the ball around ``domain`` was subtracted from the records.
    domain : Domain
        Public set into which records and samples are moved.
    p : float
        Exponent of the distance.
    device : str or torch.device
        Device that compares projections. ``dataclasses.replace`` changes it for the same release.
    pvalue : float or None
        Of the hypothesis that both samples have the same distribution; with histograms only, and
        for ``reference="sample"`` only if the public sample has rows enough.
    interval : tuple of two float, or None
        Interval of the distance, over the noise and the directions; with histograms only, unless
        ``level`` is None.
    histograms : object or None
        Noisy moments and histograms, of ``private_sliced_wasserstein``.
    """

    distance: float
    privacy: PrivacyReport
    directions: np.ndarray = field(repr=False)
    projections: np.ndarray | None = field(repr=False)
    domain: Domain
    p: float
    device: str | torch.device = field(default="auto", repr=False)
    pvalue: float | None = None
    interval: tuple[float, float] | None = None
    histograms: NoisyHistograms | None = field(default=None, repr=False)

    @property
    def noise_scale(self) -> float:
        """Standard deviation of the noise on each projection, or on the share of each cell."""
        if self.histograms is not None:
            return self.histograms.share_scale
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
            As in :func:`smoothed_sliced_wasserstein`. Only the noise of Y is drawn; a comparison
            with histograms draws none.

        Returns
        -------
        float
        """
        n_repeats = check_count(n_repeats, "n_repeats")
        if self.histograms is not None:
            return self.histograms.distance(self._sample(Y), self.p)
        projected = _project(Y, "Y", self.domain, self.directions)
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
        n_draws = check_count(n_draws, "n_draws")
        n_repeats = check_count(n_repeats, "n_repeats")
        generator = _generator(random_state)
        if self.histograms is not None:
            return self.histograms.null_distances(self._sample(Y), self.p, n_draws, generator)
        projected = _project(Y, "Y", self.domain, self.directions)
        assert self.projections is not None
        n_samples = len(self.projections)
        null = np.empty(n_draws)
        for i in range(n_draws):
            drawn = projected[generator.integers(len(projected), size=n_samples)]
            noisy = _with_noise(drawn, self.noise_scale, generator)
            null[i] = self._compare(noisy, projected, n_repeats, generator)
        return null

    def _sample(self, Y):
        assert self.histograms is not None
        return self.histograms.public_sample(_centered(Y, "Y", self.domain))

    def _compare(self, noisy, projected, n_repeats, generator):
        other = _with_noise(np.tile(projected, (n_repeats, 1)), self.noise_scale, generator)
        return _distance(noisy, other, self.p, self.device)


def private_sliced_wasserstein(
    X: ArrayLike,
    Y: ArrayLike,
    *,
    epsilon: float,
    domain: Domain,
    delta: float | str = "auto",
    n_projections: int | str = "auto",
    n_cells: int | str = "auto",
    p: float = 2,
    reference: str = "sample",
    n_draws: int = 199,
    level: float | None = 0.95,
    ledger: LedgerLike = None,
    random_state: int | np.random.RandomState | None = None,
) -> PrivateDistance:
    r"""Return the sliced Wasserstein distance of a private to a public sample, and a test.

    .. math:: \Big(E_\theta\, W_p^p(X \theta, Y \theta)\Big)^{1/p}

    Two vectors are released, each once and with Gaussian noise: mean and second moments of the
    private records, and histograms of their projections on k random directions. The noise is on
    sums over all records, so that it is far below that of :func:`smoothed_sliced_wasserstein`,
    which releases each record. All else is computed from the release and from Y.

    Parameters
    ----------
    X : array-like of shape (n, d)
        Private records. Those outside ``domain`` are moved to its nearest point.
    Y : array-like of shape (m, d)
        Public records, which are not protected. Those outside ``domain`` are moved likewise.
    epsilon : float
        Privacy budget of the release, in nats; ``np.inf`` adds no noise.
    domain : Domain
        The public set that holds the records, as in :func:`smoothed_sliced_wasserstein`.
    delta : float or "auto", default="auto"
        Failure probability, in (0, 1). "auto" is 0.1 / n.
    n_projections : int or "auto", default="auto"
        Number k of orthonormal directions with a histogram. "auto" is d, at most 20. For d = 1
        there is a single direction.
    n_cells : int or "auto", default="auto"
        Number of cells of a histogram, at least 2. Nine of ten have equal shares of Y, the others
        equal widths. "auto" takes 8 to 32: more if there is less noise, and twice as many if small
        changes of Y are more visible with them.
    p : float, default=2
        Exponent of the distance, at least 1.
    reference : {"sample", "population"}, default="sample"
        What Y is in the hypothesis of ``pvalue``. "sample": the m rows of Y are, as the records of
        X, independent draws from one distribution; Y must have as many rows as X, or 15 for each
        first and second moment and 10 for each cell. "population": the records of X are draws from
        the rows of Y.
    n_draws : int, default=199
        Number of simulated releases for ``pvalue``, whose smallest value is 1 / (1 + n_draws).
    level : float or None, default=0.95
        Level of ``interval``, in (0, 1). None computes none, which saves most of the time.
    ledger : PrivacyLedger, path or None, default=None
        Ledger that is charged before the release. None charges no ledger.
    random_state : int, RandomState or None, default=None
        None draws the noise from the operating system's entropy. An int repeats the release for
        the same X, Y and parameters of the release; for any others the noise is independent. An
        int voids the guarantee against anybody who knows or guesses it.

    Returns
    -------
    PrivateDistance
        With ``pvalue`` and ``interval``.

    Raises
    ------
    BudgetExceededError
        If too little is left in the ledger.
    TypeError, ValueError
        If a parameter is out of range, a sample is empty or not finite, or its number of features
        differs from that of the domain.

    Warns
    -----
    UserWarning
        Y has too few rows for a p-value.

    Notes
    -----
    **Formal guarantee**

    :Promise: Central (ε, δ)-differential privacy of the noisy moments and histograms of X, and so
        of the distance to any Y, its interval and its p-value.
    :Neighbours: Replace one record; the number of records is public. Records are the rows of X; Y
        is not protected.
    :Public: ``n_samples``; ``domain``; the directions and cells; Y, the sample compared with.
    :Bounded by: The ball around the declared domain, on which records are projected, and one cell
        of each direction.
    :Noise: Gaussian, by :class:`~sklearn_dpgen.mechanisms.GaussianSequenceMechanism`, in floating
        point, from the operating system's entropy.
    :Priced by: The exact privacy profile of both releases together, each divided by its
        sensitivity; no sampling.
    :Not covered: Further calls for the same X, which a ``ledger`` adds up:
        :meth:`PrivateDistance.distance_to` reads the release again at no cost; what was fitted on
        the same records before, such as a scaler; errors of a call; a ``random_state`` that others
        know or guess.
    :Proof: :ref:`histogram_sensitivity`.

    **Distance.** The rows of Y, after the affine map to the released mean and covariance, are a
    model of the private records; they are reweighted within the cells until they have the released
    shares, and moved to the released mean. The noise adds to squared norms: differences of the
    mean, of second moments, and of the shares in each octave of frequencies are scaled to the norms
    that they had without noise, second moments to less. The affine part is averaged over 200
    directions or more, what the weights add over the k released ones. Where Y has few records the
    model is coarse: the private records within a cell are unknown.

    **Test.** Four statistics of the release, of means, of second moments, of cumulative shares and
    of shares, are each compared with their simulated distribution, and combined. With
    ``reference="population"`` the release and the simulated ones are independent and identically
    distributed given Y, the directions and the noise scales, so that the p-value is valid at every
    sample size. With "sample", it is that of a bootstrap of Y, and approximate.

    **Interval.** It holds the distances at which the one that was found is not among the most
    extreme, for distributions on a line from Y to the release, widened by a t interval of what the
    k histograms add on average over directions. It is of the distance between the two samples, not
    between their distributions. It is approximate: where few columns change in shape, k directions
    may miss most of it.

    References
    ----------
    T. Cai, "Adaptive wavelet estimation: a block thresholding and oracle inequality approach",
    Annals of Statistics, 1999, shrinks blocks of frequencies. The release, the distance and the
    combined test are ours.

    Examples
    --------
    >>> import numpy as np
    >>> from sklearn_dpgen.domains import Ball
    >>> from sklearn_dpgen.smoothed import private_sliced_wasserstein
    >>> rng = np.random.default_rng(0)
    >>> records, public = rng.normal(size=(2, 2000, 3)) + [[[0.3]], [[0.0]]]
    >>> result = private_sliced_wasserstein(
    ...     records, public, epsilon=1.0, domain=Ball(4.0, n_features=3)
    ... )
    >>> result.pvalue < 0.05
    True
    >>> 0.2 < result.distance < 0.4
    True
    """
    p, law = _checked_distance(domain, p, n_projections, "orthogonal")
    check_choice(reference, "reference", ("sample", "population"))
    n_draws = check_count(n_draws, "n_draws")
    level = None if level is None else check_delta(level, "level")
    n_cells = _checked_cells(n_cells)
    X, Y = _centered(X, "X", domain), _centered(Y, "Y", domain)
    private_seed, public_seed, direction_seed = split_random_state(random_state, 3)
    delta = 0.1 / len(X) if delta == "auto" else check_delta(delta)
    if math.isfinite(epsilon := check_budget(epsilon)):
        check_delta_size(delta, len(X))
    mechanism = GaussianSequenceMechanism(1.0, _SHARES, epsilon, delta)
    query = moment_query(enclosing_ball(domain).radius, domain.n_features, len(X))
    # The price holds for any directions and cells, so that a generator of few states may draw them.
    k, generator = law.n_projections, torch_generator(direction_seed)
    U = random_directions(k, domain.n_features, generator=generator, dtype=torch.float64).numpy()
    radius = enclosing_ball(domain).radius
    edges = _cells(n_cells, Y, U, radius, mechanism, len(X))
    noise = noise_source(private_seed, "private_sliced_wasserstein", X, U, edges, domain)
    privacy = _histogram_report(mechanism, query, radius, noise, edges.shape, len(X))
    is_tested = reference == "population" or _has_enough_rows(len(Y), len(X), query.size, edges)
    if not is_tested:
        warn_user(
            f"Y has too few rows, {len(Y)}, for a p-value with reference='sample': pvalue is None. "
            "Give more rows, or reference='population'.",
            UserWarning,
        )
    if ledger is not None:
        open_ledger(ledger).reserve(privacy, what="private_sliced_wasserstein")

    histograms = _released(X, query, U, edges, mechanism, noise)
    sample = histograms.public_sample(Y)
    generator = np.random.default_rng(public_seed)
    distance = histograms.distance(sample, p)
    return PrivateDistance(
        distance,
        privacy,
        U,
        None,
        domain,
        p,
        pvalue=histograms.pvalue(sample, n_draws, generator, reference == "sample")
        if is_tested
        else None,
        interval=None
        if level is None
        else histograms.interval(sample, p, distance, level, generator),
        histograms=histograms,
    )


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
    p, law = _checked_distance(domain, p, n_projections, directions)
    resolve_device(device)
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


def _checked_distance(domain, p, n_projections, directions):
    """Return the exponent and the law of the projections."""
    if not isinstance(domain, Domain):
        raise TypeError(f"domain must be a Domain, got {type(domain).__name__}.")
    if enclosing_ball(domain).radius > _LARGEST_RADIUS:
        raise ValueError(f"domain must have a radius of at most {_LARGEST_RADIUS:g}.")
    p = check_positive(p, "p")
    if p < 1:
        raise ValueError(f"p must be at least 1, got {p}.")
    return p, _projection_law(domain.n_features, n_projections, directions)


def _checked_cells(n_cells):
    if isinstance(n_cells, str):
        return check_choice(n_cells, "n_cells", ("auto",))
    if check_count(n_cells, "n_cells") < 2:
        raise ValueError(f"n_cells must be at least 2, got {n_cells}.")
    return n_cells


def _has_enough_rows(n_public, n_samples, n_moments, edges):
    """Return whether resampled public records vary as other samples of their distribution do.

    They lack what few records lack: where there were few for each moment or cell, and far fewer
    than private records, tests of equal distributions rejected too often.
    """
    needed = max(_ROWS_PER_MOMENT * n_moments, _ROWS_PER_CELL * (edges.shape[1] + 1))
    return n_public >= min(n_samples, needed)


def _cells(n_cells, Y, U, radius, mechanism, n_samples):
    """Return the inner edges of the cells; an automatic number depends on the noise and on Y."""
    projected = Y @ U.T
    if not isinstance(n_cells, str):
        return cell_edges(projected, radius, n_cells)
    scale = mechanism.noise_scales[1] * math.sqrt(2 * len(U)) / n_samples
    few = _CELL_RATIO / math.sqrt(scale) if scale > 0 else _MOST_CELLS
    most = min(_MOST_CELLS, max(2, len(Y) // _ROWS_PER_CELL))
    few = int(min(max(few, _FEWEST_CELLS), most))
    choices = [cell_edges(projected, radius, n) for n in sorted({few, min(2 * few, most)})]
    return max(choices, key=lambda edges: visibility(Y, U, edges, n_samples, scale))


def _released(X, query, U, edges, mechanism, noise):
    """Release the moments and histograms of centered records."""
    n_samples, (k, n_inner) = len(X), edges.shape
    moments = query.vector(X, np.zeros(n_samples, dtype=np.int64))
    cells = cells_of(X @ U.T, edges)
    counts = np.stack([np.bincount(column, minlength=n_inner + 1) for column in cells.T])
    run, scales = mechanism.run(), mechanism.noise_scales
    bounds = query.sensitivity, math.sqrt(2 * k)
    noisy = [
        bound * run.release(vector / bound, noise) / n_samples
        for vector, bound in zip((moments, counts.ravel()), bounds, strict=True)
    ]
    for array in (U, edges, *noisy):
        array.flags.writeable = False
    return NoisyHistograms(
        n_samples,
        query,
        U,
        edges,
        noisy[0],
        noisy[1].reshape(k, n_inner + 1),
        *(scale * bound / n_samples for scale, bound in zip(scales, bounds, strict=True)),
    )


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


def _histogram_report(mechanism, query, radius, noise, shape, n_samples):
    k, n_cells = shape[0], shape[1] + 1
    is_noisy = mechanism.noise_scales[0] > 0
    share = mechanism.noise_scales[1] * math.sqrt(2 * k) / n_samples
    mean = mechanism.noise_scales[0] * query.sensitivity * radius / n_samples
    precision = {
        "mean of a feature": f"± {number_words(mean)}",
        "share of the records in a cell": f"± {number_words(share)}",
    }
    return PrivacyReport(
        name="private_sliced_wasserstein",
        events=(Event("moments"), Event("projected_counts")),
        epsilon=mechanism.epsilon,
        delta=mechanism.delta if is_noisy else 0.0,
        public=("n_samples", "domain", "compared_sample"),
        norm="l2",
        bounds=(
            Bound("ball_radius", radius),
            Bound("one_cell_of_each_direction", float(k)),
            Bound("own_sensitivities"),
        ),
        noise_source=noise.description,
        caveats=_CAVEATS,
        split=dict(zip(("moments", "histograms"), mechanism.shares, strict=True))
        if is_noisy
        else {},
        rounding=(query.size + k * n_cells) * ROUNDING if is_noisy else 0.0,
        precision=precision if is_noisy else {"all values": "exact: there is no noise"},
        **mechanism.report_fields(),
    )
