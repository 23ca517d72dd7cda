"""PrivateSignedMeasureSampler: one noisy histogram over public support points."""

import math
from collections.abc import Callable
from typing import TYPE_CHECKING, Self

import numpy as np
from numpy.typing import ArrayLike

from sklearn_dpgen.accounting import gaussian_sigma
from sklearn_dpgen.domains import Ball, Box, Domain
from sklearn_dpgen.evolution._voting_sampler import (
    ClassVotes,
    NoisyVotes,
    VotingSampler,
)
from sklearn_dpgen.exceptions import PublicTypeError, PublicValueError
from sklearn_dpgen.ledger._base import Plan
from sklearn_dpgen.ledger._ledger import LedgerLike
from sklearn_dpgen.schema import Schema
from sklearn_dpgen.utils._validation import Integral, Interval, StrOptions, fit_context

if TYPE_CHECKING:
    import torch

__all__ = ["PrivateSignedMeasureSampler", "grid_support"]

# Support points that "auto" takes at most: memory of the projection grows as their square.
_MAX_POINTS = 5000
# Cells of the box around a domain, for each point asked for, at most.
_MAX_REFINEMENT = 64


def grid_support(domain: Box | Ball, n_points: int) -> np.ndarray:
    """Return the points of a regular grid over a domain.

    The box around the domain is cut into cells, as close to cubes as their number allows; the
    points are the centers of those that meet the domain, or the nearest points of the domain to
    them. So every record of the domain is within half the diagonal of a cell of a point.

    Parameters
    ----------
    domain : Box or Ball
    n_points : int
        The largest number of points. Cutting one axis more would exceed it.

    Returns
    -------
    ndarray of shape (m, n_features)
        ``1 <= m <= n_points`` distinct points.

    Raises
    ------
    TypeError
        For any other domain: give an array of public points.
    """
    _check_n_points(n_points)
    if isinstance(domain, Box):
        low, high = domain.low, domain.high
    elif isinstance(domain, Ball):
        low, high = domain.center - domain.radius, domain.center + domain.radius
    else:
        raise PublicTypeError(f"A grid needs a Box or a Ball, domain is a {type(domain).__name__}.")
    n_cells = n_points
    points = _grid(domain, low, high, _cuts(high - low, n_cells))
    # Cells that miss the domain leave room for finer ones.
    while (n_cells := max(n_cells + 1, int(1.1 * n_cells))) <= _MAX_REFINEMENT * n_points:
        finer = _grid(domain, low, high, _cuts(high - low, n_cells))
        if len(finer) > n_points:
            break
        points = finer
    return points


def _cuts(extent, n_cells):
    """Return into how many intervals to cut each axis, for at most ``n_cells`` cells."""
    cuts = np.ones(len(extent), dtype=np.int64)
    while True:
        longest = np.argmax(extent / cuts)
        if np.prod(cuts) // cuts[longest] * (cuts[longest] + 1) > n_cells:
            return cuts
        cuts[longest] += 1


def _grid(domain, low, high, cuts):
    """Return the centers of the cells that meet a domain, projected on it."""
    half = (high - low) / cuts / 2
    centers, cell = np.empty((np.prod(cuts), len(cuts))), np.arange(np.prod(cuts))
    for j, n in enumerate(cuts):
        centers[:, j] = low[j] + half[j] * (2 * (cell % n) + 1)
        cell //= n
    middle = (low + high) / 2
    nearest = np.clip(middle, centers - half, centers + half)
    return np.unique(domain.project(centers[domain.contains(nearest)]), axis=0)


def _check_n_points(n_points):
    if isinstance(n_points, bool) or not isinstance(n_points, Integral) or n_points < 1:
        raise PublicValueError(f"n_points must be an integer of at least 1, got {n_points!r}.")


class PrivateSignedMeasureSampler(VotingSampler):
    """Synthetic records by the private signed measure mechanism: one histogram, one projection.

    Every record votes for the nearest of the public support points. The noisy votes are a signed
    measure, and synthetic records are drawn from the nearest probability measure.

    Parameters
    ----------
    epsilon : float, default=1.0
        Privacy budget of the fit, in nats; ``np.inf`` counts votes without noise.
    delta : float or "auto", default=1e-5
        Failure probability, in (0, 1). "auto" is 0.1 / n_samples.
    domain : Domain, callable or None, default=None
        Public set that holds the records, or a function of ``n_features`` that returns it.
        Records outside are projected on it. None needs an array as the ``support``.
    support : "grid" or array-like of shape (n_points, n_features), default="grid"
        Public points: a regular grid of the domain, a box or a ball, or those given, such as
        k-means centers of public samples. Points of private records are not public.
    n_points : int or "auto", default="auto"
        Largest number of grid points. "auto" balances its cells and the noise (see Notes).
    labels : {"public", "private"} or None, default=None
        As in :class:`PrivateEvolutionSampler`.
    classes, label_proportions : array-like of shape (n_classes,) or None, default=None
        As in :class:`PrivateEvolutionSampler`.
    votes : NoisyVotes or None, default=None
        How votes get noise, and what is made of them, without ``variant`` and ``multiplicity``.
        Defaults: ``histogram="gaussian"``, ``postprocess="bounded_lipschitz"``,
        ``threshold=0.0``, ``distance_share=0.0``. A callable metric needs another ``postprocess``.
    metric : {"l2", "l1"} or callable, default="l2"
        Distance of records and points. A callable ``metric(X, V)`` gives distances of shape
        (n_records, n_points), of each record by itself.
    ledger : PrivacyLedger, path or None, default=None
        Ledger that a fit charges before it releases anything. BudgetExceededError is raised if
        too little is left. None charges no ledger.
    unit : str or None, default=None
        Name of the column of X, a data frame, that identifies the person of a row. The guarantee
        then protects a person with all their rows: one row of each person is drawn, once and in
        secret, and no other row is used. The samples follow the distribution of a random row of a
        random person. The column is absent from the schema, or an Identifier in it. None protects
        single rows.
    random_state : int, RandomState or None, default=None
        None draws noise from the operating system's entropy. An int repeats the fit, and voids the
        guarantee against anybody who knows or guesses it.
    device : str or torch.device, default="auto"
        "auto" counts votes on a GPU where there is one.
    noise : {"float", "certified"}, default="float"
        "certified" rounds votes to a fine grid before noise, and draws discrete noise without an
        error: see :ref:`certified_noise`. It needs OpenDP, and ``random_state=None``.

    Attributes
    ----------
    candidates_ : list of ndarray of shape (n_points, n_features)
        The support, for each class or one for all.
    weights_ : list of ndarray of shape (n_points,)
        The probabilities of its points.
    history_ : list of list of ClassVotes
        Released votes of the only step, for each class or for all records.
    classes_, label_proportions_ : ndarray of shape (n_classes,)
        If fitted with labels.
    domain_ : Domain
        Set that holds the records, if declared.
    privacy_ : PrivacyReport
        The guarantee of the fit.
    distances_, distance_errors_ : ndarray of shape (n_classes,)
        With a ``distance_share``: noisy W1 between the records and the result, for each class or
        for all records, and the standard deviation of the noise.
    noise_multiplier_ : float
        Standard deviation of the noise, or its scale, over the sensitivity.
    n_features_in_ : int
        Number of columns.

    Notes
    -----
    **Formal guarantee**

    :Promise: Central (ε, δ)-differential privacy of all that ``fit`` stores, and of all that is
        computed from it.
    :Neighbours: Replace one record; the number of records is public. With ``labels="public"``:
        replace one record by another of the same class; the sizes of the classes are public. With
        ``labels="private"``: replace one record and its label; the number of records is public.
        With ``unit``: a person with all their rows in place of a record.
    :Public: ``n_samples``; names of the columns; ``domain``. With labels their set of labels or
        ``classes``, the class sizes where labels are public, and ``label_proportions``. With
        ``unit``: numbers of persons, and not those of their rows.
    :Bounded by: One vote: in each histogram a record votes for one candidate, whatever the
        candidates and the metric are. Replacing it changes the counts by √2 in l2, or 2 in l1. With
        a ``distance_share`` also the declared domain: records outside are moved to it.
    :Noise: Gaussian, by :class:`~sklearn_dpgen.mechanisms.GaussianSequenceMechanism`, or Laplace
        with a threshold, by :class:`~sklearn_dpgen.mechanisms.ThresholdedLaplaceMechanism`, from
        the operating system's entropy; in floating point, or with ``noise="certified"`` exact.
    :Priced by: The privacy profile of the Gaussian mechanism, in closed form. With
        ``histogram="laplace_threshold"`` those of two Laplace mechanisms, composed numerically, and
        half of δ for the thresholds. No sampling.
    :Not covered: What was fitted on the same records before, such as a scaler or an embedding; what
        the candidates were made from; a metric that looks at several records at a time; other fits
        of the same records, which a ``ledger`` adds up; errors of a fit; a ``random_state`` that
        others know or guess.
    :Proof: :ref:`evolution-guarantee`; of distances :ref:`evolution_distance`; of certified
        noise :ref:`certified_noise`.

    Without noise the histogram is the measure on the support that is nearest to the records in
    W1 [1]_ (Proposition 5.1). A finer support is nearer, and shares the votes among more points:
    "auto" follows how far all votes exceed the noise on one count, N = n/(√2 σ(ε, δ)): N points in
    the plane, 2N beyond, and N^(2/3) on the line, where the noise of neighbours averages out. This
    was fitted by simulation, for the default ``postprocess``; at most 5000, for the time and memory
    of the projection grow as their square.

    With "bounded_lipschitz" a constant is first added to the noisy shares so that they have their
    public sum 1. This removes the noise on the sum at no privacy cost.

    The listing in [1]_ has noise of variance ln(1/δ)/ε², which is too small for (ε, δ). Here the
    noise is the smallest that suffices for the sensitivity √2 of counts.

    References
    ----------
    .. [1] "Private evolution converges", 2025, section 5 and appendix I.
    .. [2] Y. He, R. Vershynin, Y. Zhu, "Algorithmically effective differentially private
       synthetic data", COLT 2023.

    Examples
    --------
    >>> import numpy as np
    >>> from sklearn_dpgen.domains import Ball
    >>> from sklearn_dpgen.evolution import PrivateSignedMeasureSampler
    >>> X = abs(Ball(1.0, n_features=2).sample(2000, np.random.default_rng(0)))
    >>> sampler = PrivateSignedMeasureSampler(domain=Ball(1.0, n_features=2))
    >>> sampler.fit(X).sample(3).shape
    (3, 2)
    """

    schema: Schema | None = None
    _saved_state: dict = {}
    _parameter_constraints: dict = VotingSampler._parameter_constraints | {
        "support": [StrOptions({"grid"}), "array-like"],
        "n_points": [StrOptions({"auto"}), Interval(Integral, 1, None, closed="left")],
        "metric": [StrOptions({"l2", "l1"}), callable],
    }
    _setting_defaults: dict = {
        "votes": {
            "histogram": "gaussian",
            "postprocess": "bounded_lipschitz",
            "threshold": 0.0,
            "distance_share": 0.0,
        }
    }

    def __init__(
        self,
        epsilon: float = 1.0,
        delta: float | str = 1e-5,
        *,
        domain: Domain | Callable[..., Domain] | None = None,
        support: str | ArrayLike = "grid",
        n_points: int | str = "auto",
        labels: str | None = None,
        classes: ArrayLike | None = None,
        label_proportions: ArrayLike | None = None,
        votes: NoisyVotes | None = None,
        metric: str | Callable[[np.ndarray, np.ndarray], np.ndarray] = "l2",
        ledger: LedgerLike = None,
        unit: str | None = None,
        random_state: int | np.random.RandomState | None = None,
        device: "str | torch.device" = "auto",
        noise: str = "float",
    ) -> None:
        self.epsilon = epsilon
        self.delta = delta
        self.domain = domain
        self.support = support
        self.n_points = n_points
        self.labels = labels
        self.classes = classes
        self.label_proportions = label_proportions
        self.votes = votes
        self.metric = metric
        self.ledger = ledger
        self.unit = unit
        self.random_state = random_state
        self.device = device
        self.noise = noise

    @fit_context(prefer_skip_nested_validation=False)
    def fit(self, X: ArrayLike, y: ArrayLike | None = None) -> Self:
        """Count the noisy votes of the records for the points of the support.

        Parameters
        ----------
        X : array-like, data frame or dask array of shape (n_samples, n_features)
            Private records. A dask array may be larger than memory.
        y : array-like of shape (n_samples,) or None, default=None
            Labels. With labels each class has its own histogram, and ``sample`` draws records of a
            given class.

        Returns
        -------
        self : object

        Raises
        ------
        ValueError
            Records, labels or points that do not fit the declarations, private labels without
            ``classes``, or points that do not fit in memory.
        """
        return self._fit(X, y)

    def _plan(self, facts):
        """Return the plan of a fit; its details are the facts, the votes, and the supports."""
        delta = self._delta(facts.n_samples)
        supports = [self._support(facts, size, delta) for size in facts.sizes]
        n_points = [len(points) for points in supports]
        votes = self._votes_plan(facts, [1.0], sum(n_points))
        report = self._report(votes, facts, precision=votes.precision(facts.sizes, n_points))
        return Plan(report, (facts, votes, supports))

    def _release(self, plan, records, seed):
        """Return the noisy votes for the points of each class, sizes, and the distances."""
        facts, votes, supports = plan.details
        run, noise = votes.mechanism.run(), self._noise_source(seed)
        counted = self._count(records, supports, run, noise)
        results, sizes = [], []
        for code, (points, counts) in enumerate(zip(supports, counted, strict=True)):
            sizes.append(self._class_size(facts, code, [counts.sum()], [1.0]))
            weights = self._weights(points, counts / sizes[code])
            if weights is None:
                self._warn_nothing_left(facts, code)
                weights = np.full(len(points), 1 / len(points))
            results.append(ClassVotes((), points, counts, weights))
        weights = [result.weights for result in results]
        return results, sizes, self._measure(votes, facts, records, supports, weights, run, noise)

    def _learn(self, plan, released, seed):
        """Set the probabilities of the points, from the noisy votes."""
        results, sizes, distances = released
        weights = [result.weights for result in results]
        supports = plan.details[2]
        self._set_candidates(plan, [results], sizes, supports, weights)
        self._set_distances(distances)

    def _support(self, facts, size, delta):
        domain = facts.domain
        if isinstance(self.support, str):
            if domain is None:
                raise PublicValueError("support='grid' needs a domain.")
            n_points = self._n_points(size, delta, facts.n_features)
            self._check_sizes("n_points", n_points, facts.width, facts.width)
            return grid_support(domain, n_points)
        support = np.asarray(self.support, dtype=np.float64)
        width = facts.n_features
        if support.ndim != 2 or len(support) == 0 or support.shape[1] != width:
            raise PublicValueError(f"support must hold rows of {width} features, as X does.")
        if not np.isfinite(support).all():
            raise PublicValueError("support must be finite.")
        self._check_sizes("support", len(support), width, facts.width)
        if domain is not None and not domain.contains(support).all():
            raise PublicValueError("support has points outside of the domain.")
        return support

    def _n_points(self, size, delta, d):
        if self.n_points != "auto":
            return self.n_points
        signal = size / max(1.0, gaussian_sigma(self.epsilon, delta, math.sqrt(2)))
        n_points = signal ** (2 / 3) if d == 1 else signal * (1 if d == 2 else 2)
        return max(1, min(round(n_points), _MAX_POINTS))
