"""PrivateEvolutionSampler: synthetic records that evolve by private votes, without training."""

import math
import os
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Self

import numpy as np
import pandas as pd
from numpy.typing import ArrayLike
from tqdm import tqdm

from sklearn_dpgen.domains import Ball, Box, Domain
from sklearn_dpgen.domains._ball import enclosing_ball
from sklearn_dpgen.engines._tables import is_engine_table
from sklearn_dpgen.evolution._schedules import (
    check_threshold,
    class_settings,
    first_degrees,
    threshold_settings,
    vote_noise,
    warn_of_noise,
)
from sklearn_dpgen.evolution._tabular_variation import TabularVariation
from sklearn_dpgen.evolution._variation_interface import (
    EuclideanVariation,
    VariationInterface,
    check_candidates,
    flat_factors,
)
from sklearn_dpgen.evolution._voting_sampler import (
    ClassVotes,
    NoisyVotes,
    PublicFacts,
    VotesPlan,
    VotingSampler,
)
from sklearn_dpgen.exceptions import PublicValueError
from sklearn_dpgen.ledger._base import Plan
from sklearn_dpgen.ledger._ledger import LedgerLike
from sklearn_dpgen.mechanisms._class_moments import moment_queries, release_moments
from sklearn_dpgen.persistence._declarations import demand
from sklearn_dpgen.preprocessing import PublicTable
from sklearn_dpgen.preprocessing._public_table import (
    PUBLIC_TABLE,
    as_public_table,
    read_public_array,
)
from sklearn_dpgen.schema import Schema
from sklearn_dpgen.utils._normal_laws import denoised_covariances, draw_normals
from sklearn_dpgen.utils._random import split_random_state
from sklearn_dpgen.utils._validation import (
    HasMethods,
    Integral,
    Interval,
    Real,
    StrOptions,
    Transformer,
    fit_context,
)

if TYPE_CHECKING:
    import torch

__all__ = ["PrivateEvolutionSampler"]


def distinct_rows(candidates):
    """Return the sorted first indices of distinct rows; copies get no votes, only noise."""
    _, first = np.unique(candidates, axis=0, return_index=True)
    return np.sort(first)


def draw_systematic(weights, n, rng):
    """Return n indices drawn by systematic sampling with probabilities ``weights``."""
    levels = (rng.uniform() + np.arange(n)) / n
    edges = np.cumsum(weights)
    return np.searchsorted(edges / edges[-1], levels, side="right").clip(0, len(weights) - 1)


def copy_shares(shares, n, multiplicity):
    """Return each index nint(n share/B) B times, without randomness (line 9 of Algorithm 1).

    Parameters
    ----------
    shares : ndarray of shape (m,)
        At least 0; they need not sum to 1.
    n : int
    multiplicity : int
        B.
    """
    copies = np.rint(n * shares / multiplicity).astype(np.int64) * multiplicity
    return np.repeat(np.arange(len(shares)), copies)


def next_degree(degree, moves, is_narrow, weights):
    """Return the scale of the next step: half the last one, or half of the moves that got votes.

    If the population is near the records, most votes are for candidates that moved no farther than
    the scale. Votes for candidates that moved farther show that the records are farther away.

    Parameters
    ----------
    degree : float
        Degree of this step, in (0, 1].
    moves : ndarray of shape (m,)
        Distances of candidates to their parents; 0 for the population itself.
    is_narrow : boolean ndarray of shape (m,)
        Candidates that were varied by ``degree``.
    weights : ndarray of shape (m,)
        Probabilities from the votes.

    Returns
    -------
    float
        In (0, 1].
    """
    length = np.sqrt(np.mean(moves[is_narrow] ** 2)) if is_narrow.any() else 0.0
    if not length > 0:
        return degree / 2
    order = np.argsort(moves)
    mass = np.cumsum(weights[order])
    median = moves[order[np.searchsorted(mass, mass[-1] / 2)]]
    return min(1.0, degree * max(1.0, median / length) / 2)


# The share of the budget of moments that start the population.
_MOMENTS_SHARE = 0.2


# Numbers of columns, and the least ratio N of votes to noise, at which moments start by default.
_MOMENTS_COLUMNS, _MOMENTS_SIGNAL = range(3, 15), 200


def _takes_moments(sampler):
    """Return whether a population may start from moments."""
    is_own = sampler.interface is sampler.schema is sampler.embedding is sampler.public is None
    return is_own and (sampler._voting.histogram, sampler.schedule) == ("gaussian", "annealed")


def _moments_pay(sampler, facts):
    """Return whether moments start by default, from public quantities alone."""
    domain = facts.domain
    if not _takes_moments(sampler) or sampler._is_certified or facts.is_blockwise:
        return False
    # Normal distributions are no model of categories, and need a ball around the domain.
    plain = all(isinstance(factor, Box | Ball) for _, factor in flat_factors(domain))
    noise = vote_noise(sampler.epsilon, sampler._delta(facts.n_samples))
    signal = min(facts.sizes) / noise
    return plain and domain.n_features in _MOMENTS_COLUMNS and signal >= _MOMENTS_SIGNAL


def start_share(sampler, facts):
    """Return the share of the budget of moments that start the population, or None."""
    if sampler.start == "auto":
        return _MOMENTS_SHARE if _moments_pay(sampler, facts) else None
    if sampler.start == "public":
        return None
    return _MOMENTS_SHARE if sampler.start == "moments" else sampler.start


def start_queries(sampler, facts):
    """Return the queries of the moments that start the population."""
    if not _takes_moments(sampler):
        raise PublicValueError(
            "start='moments' needs a domain with its own interface, without an embedding or public "
            "records, histogram='gaussian' and schedule='annealed'."
        )
    is_private = facts.n_classes > 0 and sampler.labels == "private"
    return moment_queries(
        enclosing_ball(facts.domain),
        facts.n_samples,
        len(facts.sizes),
        labels="private" if is_private else "public",
        with_counts=is_private and sampler.label_proportions is None,
    )


def release_populations(queries, records, run, scales, sizes, n_drawn, *, domain, noise, rng):
    """Release moments, and draw first populations from normal distributions with these moments.

    Parameters
    ----------
    queries : tuple of two ClassSums
    records : list of arrays
        Private records of each class.
    run : GaussianSequenceRun
        Run of sensitivity √2. Its next releases are the moments, scaled to this sensitivity.
    scales : tuple of float
        Noise scales of its releases.
    sizes : list of int
        Public or estimated sizes of the classes.
    n_drawn : list of int
        Size of each population.
    domain : Domain
    noise : NoiseSource
    rng : numpy.random.Generator

    Returns
    -------
    list of ndarray of shape (n_drawn[c], n_features)
    """
    units = [query.sensitivity / math.sqrt(2) for query in queries]

    def release(query, X, codes):
        unit = units[queries.index(query)]
        vector = query.vector(X, codes) / unit
        noise.bind(query)
        return query.split(unit * run.release(vector, noise))

    moments = release_moments(
        queries,
        [unit * scale for unit, scale in zip(units, scales, strict=False)],
        release,
        np.concatenate(records),
        np.repeat(np.arange(len(records)), [len(X) for X in records]),
        np.asarray(sizes, dtype=np.float64),
    )
    covariances = denoised_covariances(moments.covariances, moments.spreads)
    codes = np.repeat(np.arange(len(records)), n_drawn)
    points = domain.project(draw_normals(moments.means, covariances, codes, rng))
    return np.split(points, np.cumsum(n_drawn)[:-1])


@dataclass(frozen=True)
class EvolutionDetails:
    """Details of the plan of a fit.

    Parameters
    ----------
    facts : PublicFacts
    settings : list of AnnealedParameters or of TheoryParameters
        Settings of each class.
    queries : tuple of two ClassSums or None
        Moments that are released before the first step.
    votes : VotesPlan
    """

    facts: PublicFacts
    settings: list
    queries: tuple | None
    votes: VotesPlan


def make_interface(sampler, domain):
    """Return the source of the candidates, and the hashes of public tables of a report.

    Parameters
    ----------
    sampler : PrivateEvolutionSampler
    domain : Domain or None

    Returns
    -------
    interface : VariationInterface
    public_tables : dict of str to str
    """
    public, tables = sampler.public, dict[str, str]()
    if sampler.interface is not None:
        if public is not None:
            raise PublicValueError("public must be None if an interface is given.")
        return sampler.interface, tables
    if sampler.schema is not None:
        table = as_public_table(public)
        rows = None if table is None else table.read(sampler.schema)
        if rows is not None:
            tables["public"] = rows.sha256
        return TabularVariation(sampler.schema, public_sampler=rows), tables
    if domain is None:
        raise PublicValueError("schema or domain must declare the public set of the records.")
    if public is not None:
        public, tables["public"] = read_public_array(public, domain.n_features)
    return EuclideanVariation(domain, public=public), tables


def _settings(sampler, facts, dimension):
    """Return the settings of each class."""
    if sampler.schedule == "theory":
        if not math.isfinite(sampler.epsilon):
            raise PublicValueError("schedule='theory' needs a finite epsilon.")
        if facts.domain is None:
            raise PublicValueError(
                "schedule='theory' needs a domain, because its scales are absolute."
            )
    budget = sampler.epsilon, sampler._delta(facts.n_samples)
    n_iter = None if sampler.n_iter == "auto" else sampler.n_iter
    n_samples = [None if sampler.n_samples == "auto" else sampler.n_samples] * len(facts.sizes)
    if sampler.n_samples == "auto" and sampler._voting.variant == "theory":
        n_samples = facts.sizes
    elif (sampler.n_samples, sampler.schedule, sampler._voting.histogram) == (
        "auto",
        "annealed",
        "laplace_threshold",
    ):
        n_iter, n_samples = threshold_settings(
            facts.sizes, dimension, *budget, n_iter=n_iter, certified=sampler._is_certified
        )
    return class_settings(
        sampler.schedule,
        facts.sizes,
        dimension,
        facts.domain.diameter(2) if sampler.schedule == "theory" else None,
        *budget,
        n_iter=n_iter,
        n_samples=n_samples,
    )


_MOST_STEPS = 10_000


class PrivateEvolutionSampler(VotingSampler):
    """Synthetic records by private evolution: public candidates, selected by noisy votes.

    A population is drawn from a public source. At every step each of its records is varied, each
    private record votes for the nearest candidate, and the noisy votes are released. Probabilities
    that are computed from them select the next population. The votes are the only access to private
    records, and no model is trained.

    Parameters
    ----------
    epsilon : float, default=1.0
        Privacy budget of the whole fit, in nats; ``np.inf`` counts votes without noise.
    delta : float or "auto", default=1e-5
        Failure probability, in (0, 1). "auto" is 0.1 / n_samples.
    schema : Schema, str, path-like or None, default=None
        The public declaration of the columns of a table. Not with ``domain``.
    domain : Domain, callable or None, default=None
        Public set that holds the records, or a function of ``n_features`` that returns it.
        Records outside are projected on it.
    interface : VariationInterface or None, default=None
        Source of the candidates: ``random(n, rng)`` and ``vary(X, rng, degree)``. None takes
        :class:`TabularVariation` for a schema and :class:`EuclideanVariation` for a domain.
        Without either, records are compared as they are, and the interface stands for the domain.
    start : {"auto", "public", "moments"} or float, default="auto"
        Source of the first population: ``random`` of the interface, or normal distributions with
        released means and covariances of the classes. Moments are paid from the budget, and need
        a domain without another interface or ``public``, Gaussian noise and the annealed schedule.
        A number is their share of the budget, in the scale in which Gaussian releases add up;
        "moments" is 0.2. "auto" takes moments where they can be had, for boxes and balls of 3 to
        14 features, if the votes of the smallest class exceed the noise on one count 200
        times (see :func:`annealed_parameters`), with float noise and without dask; else "public".
    public : PublicTable, table, path, array-like or None, default=None
        With a schema a public table with some of its columns, as a
        :class:`~sklearn_dpgen.preprocessing.PublicTable` or its source; with a domain an array of
        points. The first population is drawn from it, by the weights of the table, and variations
        take their categories from it; cells that it lacks are drawn as with None. It costs nothing,
        and must not be made from the private records: see :ref:`public_tables`. Fitted samplers and
        their files hold its rows. None draws from the whole schema or domain.
    labels : {"public", "private"} or None, default=None
        Privacy of the labels, required by ``fit(X, y)``. "public": neighbours differ in a record of
        the same class, and the class sizes are public. "private": neighbours differ in a record and
        its label; class sizes are estimated by the sums of the votes. The noise is the same.
    classes : array-like of shape (n_classes,) or None, default=None
        The public labels, at least two; private labels need them. None takes those that occur in
        ``y``, which are then public: ``privacy_`` says so.
    label_proportions : array-like of shape (n_classes,) or None, default=None
        Public shares of the classes, in the order of ``classes_``.
    n_samples : int or "auto", default="auto"
        Records of a population, of each class. "auto" follows from the size of the class, the
        dimension and the budget; with a "theory" variant it is the size of the class, as printed.
        If Laplace noise has a threshold of h votes, it is at most n/(3h) for n records, twice as
        many for one step, so that candidates pass: the mean of votes is h, or h/2.
    n_iter : int or "auto", default="auto"
        Steps, each a release: the noise grows as their square root, and a threshold as themselves.
        "auto" likewise; at most 10000. Annealing bears few: each further one halves the share of
        the first.
    votes : NoisyVotes or None, default=None
        How votes get noise, and what is made of them. Defaults: ``histogram="gaussian"``,
        ``postprocess="simplex"``, ``threshold=0.0``, ``variant="practical"``, ``multiplicity=1``,
        ``distance_share=0.0``.
    schedule : {"annealed", "theory"}, default="annealed"
        "annealed": few steps, variations half as far at each one unless votes ask for more, and
        the weighted candidates of the last step as the result (see Notes). "theory": the settings
        of Theorem 4.1, all scales at every step, and a last population of equal weights.
    smoothing : float, default=0.0
        Degree by which ``sample`` varies draws, as a share of the least degree of the last step,
        at most 1.
    embedding : callable, transformer or None, default=None
        A public map that is applied to records and to candidates before they are compared. None
        takes that of the interface, if it has one. Each record by itself: a map that looks at other
        rows, such as one that divides by their norm, voids the guarantee.
    metric : {"l2", "l1", "cosine"} or callable, default="l2"
        Distance of records and candidates. A callable ``metric(X, V)`` gives distances of shape
        (n_records, n_candidates), of each record by itself.
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
    verbose : int, default=0
        1 shows a progress bar.
    noise : {"float", "certified"}, default="float"
        As in :class:`PrivateSignedMeasureSampler`; without moments.

    Attributes
    ----------
    candidates_ : list of ndarray of shape (n_candidates, width)
        Candidates of each class, or of all records.
    weights_ : list of ndarray of shape (n_candidates,)
        Their probabilities.
    history_ : list of list of ClassVotes
        Released votes of each step, for each class or for all records.
    interface_ : VariationInterface
        Source of the candidates.
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
    n_iter_ : int
        Number of steps.
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
    :Public: ``n_samples``; names of the columns; those of ``schema``, ``domain``, ``interface``,
        ``embedding`` and ``public`` that are given. With labels their set of labels or ``classes``,
        the class sizes where labels are public, and ``label_proportions``. With ``unit``: numbers
        of persons, and not those of their rows.
    :Bounded by: One vote: in each histogram a record votes for one candidate, whatever the
        candidates and the metric are. Replacing it changes the counts by √2 in l2, or 2 in l1. With
        ``start="moments"`` or a ``distance_share`` also the declared domain: records outside are
        moved to it.
    :Noise: Gaussian, by :class:`~sklearn_dpgen.mechanisms.GaussianSequenceMechanism`, or Laplace
        with a threshold, by :class:`~sklearn_dpgen.mechanisms.ThresholdedLaplaceMechanism`, from
        the operating system's entropy; in floating point, or with ``noise="certified"`` and
        a start without moments exact.
    :Priced by: The privacy profile of the Gaussian mechanism, in closed form. With
        "laplace_threshold" those of two Laplace mechanisms a step, composed
        numerically, and half of δ for the thresholds. No sampling.
    :Not covered: What was fitted on the same records before, such as a scaler or an embedding; what
        the candidates were made from; an embedding or a metric that looks at several records at a
        time; other fits of the same records, which a ``ledger`` adds up; errors of a fit; a
        ``random_state`` that others know or guess.
    :Proof: :ref:`evolution-guarantee`; of moments :ref:`moments_sensitivity`; of distances
        :ref:`evolution_distance`; of certified noise :ref:`certified_noise`.

    T steps cost as much as one with noise σ/√T. With a public first population the records need no
    bound.

    The settings of the paper vary by all scales at every step, and draw the result again at the
    end. Annealing is an addition of this package: the scale is halved from step to step, so that
    fewer candidates share the votes and fewer steps suffice. One of the two variations of the first
    step is by the square root of the scale, halfway to the whole domain. If half of the votes are
    for moves longer than the scale, because the population is far from the records, the next scale
    is half of those moves. See :func:`annealed_parameters` and :func:`theory_parameters`.
    "bounded_lipschitz" shifts the noisy shares to the public sum 1 before it projects them.

    With ``schedule="theory"`` this is Algorithm 3 of [2]_ if votes have postprocess="threshold",
    Algorithm 2 if "bounded_lipschitz", and Algorithm 1 if "threshold" and variant="theory".

    References
    ----------
    .. [1] Z. Lin et al., "Differentially private synthetic data via foundation model APIs 1:
       images", ICLR 2024.
    .. [2] "Private evolution converges", 2025, Algorithms 1 to 3 and Theorem 4.1.

    Examples
    --------
    >>> import numpy as np
    >>> from sklearn_dpgen.domains import Ball
    >>> from sklearn_dpgen.evolution import PrivateEvolutionSampler
    >>> X = abs(Ball(1.0, n_features=2).sample(2000, np.random.default_rng(0)))
    >>> sampler = PrivateEvolutionSampler(domain=Ball(1.0, n_features=2))
    >>> sampler.fit(X).sample(3).shape
    (3, 2)
    >>> sampler.n_iter_
    3
    """

    _declarations = ("schema", "domain", "interface", "embedding", "public")
    _not_saved: dict = {"public": "A file holds no records."}
    _saved_state: dict = {"interface_": ("EuclideanVariation", "TabularVariation"), "n_iter_": int}
    _parameter_constraints: dict = VotingSampler._parameter_constraints | {
        "schema": [Schema, None],
        "interface": [HasMethods(["random", "vary"]), None],
        "start": [
            StrOptions({"auto", "public", "moments"}),
            Interval(Real, 0, 1, closed="neither"),
        ],
        "public": PUBLIC_TABLE,
        "n_samples": [StrOptions({"auto"}), Interval(Integral, 1, None, closed="left")],
        "n_iter": [StrOptions({"auto"}), Interval(Integral, 1, _MOST_STEPS, closed="both")],
        "schedule": [StrOptions({"annealed", "theory"})],
        "smoothing": [Interval(Real, 0, 1, closed="both")],
        "embedding": [callable, HasMethods("transform"), None],
        "metric": [StrOptions({"l2", "l1", "cosine"}), callable],
        "verbose": ["verbose"],
    }
    _setting_defaults: dict = {
        "votes": {
            "histogram": "gaussian",
            "postprocess": "simplex",
            "threshold": 0.0,
            "variant": "practical",
            "multiplicity": 1,
            "distance_share": 0.0,
        }
    }

    def __init__(
        self,
        epsilon: float = 1.0,
        delta: float | str = 1e-5,
        *,
        schema: Schema | str | os.PathLike | None = None,
        domain: Domain | Callable[..., Domain] | None = None,
        interface: VariationInterface | None = None,
        start: str | float = "auto",
        public: PublicTable | ArrayLike | pd.DataFrame | str | os.PathLike | None = None,
        labels: str | None = None,
        classes: ArrayLike | None = None,
        label_proportions: ArrayLike | None = None,
        n_samples: int | str = "auto",
        n_iter: int | str = "auto",
        votes: NoisyVotes | None = None,
        schedule: str = "annealed",
        smoothing: float = 0.0,
        embedding: Callable[[np.ndarray], ArrayLike] | Transformer | None = None,
        metric: str | Callable[[np.ndarray, np.ndarray], np.ndarray] = "l2",
        ledger: LedgerLike = None,
        unit: str | None = None,
        random_state: int | np.random.RandomState | None = None,
        device: "str | torch.device" = "auto",
        verbose: int = 0,
        noise: str = "float",
    ) -> None:
        self.epsilon = epsilon
        self.delta = delta
        self.schema = schema
        self.domain = domain
        self.interface = interface
        self.start = start
        self.public = public
        self.labels = labels
        self.classes = classes
        self.label_proportions = label_proportions
        self.n_samples = n_samples
        self.n_iter = n_iter
        self.votes = votes
        self.schedule = schedule
        self.smoothing = smoothing
        self.embedding = embedding
        self.metric = metric
        self.ledger = ledger
        self.unit = unit
        self.random_state = random_state
        self.device = device
        self.verbose = verbose
        self.noise = noise

    @fit_context(prefer_skip_nested_validation=False)
    def fit(self, X: ArrayLike | pd.DataFrame, y: ArrayLike | None = None) -> Self:
        """Evolve candidates by the noisy votes of private records.

        Parameters
        ----------
        X : array-like, data frame or dask array of shape (n_samples, n_features)
            Private records. A dask array may be larger than memory, except with start="moments"
            or a ``distance_share``.
        y : array-like of shape (n_samples,) or None, default=None
            Labels. With labels each class evolves by itself, and ``sample`` draws records of a
            given class.

        Returns
        -------
        self : object

        Raises
        ------
        ValueError
            Records, labels or candidates that do not fit the declarations, private labels without
            ``classes``, or candidates that do not fit in memory.
        """
        return self._fit(X, y)

    def _read(self, X, y, *, seed):
        records, facts = super()._read(X, y, seed=seed)
        if is_engine_table(X):
            facts["facts"] = replace(facts["facts"], is_blockwise=True)
        self.interface_, tables = make_interface(self, facts["facts"].domain)
        return records, facts | {"source": (self.interface_, tables)}

    def _plan(self, facts, source=None):
        """Return the plan of a fit, and warn if the votes are below the noise."""
        interface, tables = source or make_interface(self, facts.domain)
        # Drawn to read the width of a candidate.
        first = interface.random(1, np.random.default_rng(0))
        width = check_candidates(first, 1, None, None, interface).shape[1]
        settings = _settings(self, facts, width)
        most = [s.n_samples * (1 + len(first_degrees(self.schedule, s))) for s in settings]
        self._check_sizes("n_samples", sum(most), width, facts.width)
        share = start_share(self, facts)
        queries = None if share is None else start_queries(self, facts)
        n_moments = sum(query.size for query in queries or ())
        votes = self._votes_plan(facts, settings[0].shares, sum(most), share, n_moments)
        noise = votes.vote_scales[-1]
        voting = self._voting
        copies = voting.variant == "theory" and voting.postprocess == "threshold"
        if copies and voting.histogram == "gaussian":
            check_threshold(
                voting.threshold, voting.multiplicity, noise, facts.sizes, settings, most
            )
        if math.isfinite(self.epsilon):
            warn_of_noise(noise, facts.sizes, settings, self.epsilon)
        precision = votes.precision(facts.sizes, [setting.n_samples for setting in settings])
        report = self._report(votes, facts, precision=precision, public_tables=tables)
        return Plan(report, EvolutionDetails(facts, settings, queries, votes))

    def _release(self, plan, records, seed):
        """Return the votes of each step, sizes of the classes, the result, and its distances.

        The candidates of a step depend on the released votes of earlier steps, so the votes are
        post-processed between the releases.
        """
        # Candidates are public, so their generator is not that of the noise.
        (candidate_seed,) = split_random_state(seed, 1)
        noise, rng = self._noise_source(seed), np.random.default_rng(candidate_seed)
        facts, settings = plan.details.facts, plan.details.settings
        run = plan.details.votes.mechanism.run()
        populations = self._first_populations(plan.details, records, run, noise, rng)
        sums: list[list] = [[] for _ in settings]
        precisions: list[list] = [[] for _ in settings]
        degrees = [first_degrees(self.schedule, setting) for setting in settings]
        history = []
        steps = tqdm(settings[0].shares, desc=type(self).__name__, disable=not self.verbose)
        for share in steps:
            varied = [self._vary(*pair, rng) for pair in zip(populations, degrees, strict=True)]
            candidates = [points for points, _ in varied]
            votes = self._count(records, candidates, run, noise)
            results, sizes = [], []
            for code, ((points, origins), counts) in enumerate(zip(varied, votes, strict=True)):
                sums[code].append(counts.sum())
                precisions[code].append(share / len(points))
                sizes.append(self._class_size(facts, code, sums[code], precisions[code]))
                parents = populations[code]
                weights = self._weights(points, counts / sizes[code])
                chosen = ()
                if weights is not None:
                    n_samples = settings[code].n_samples
                    chosen = self._select(weights, counts / sizes[code], n_samples, rng)
                if len(chosen) == 0:
                    self._warn_nothing_left(facts, code)
                    is_kept = origins < len(parents)
                    weights = is_kept / is_kept.sum()
                else:
                    populations[code] = points[chosen]
                results.append(ClassVotes(tuple(degrees[code]), points, counts, weights))
                if self.schedule == "annealed":
                    degree = self._next_degree(degrees[code][0], parents, points, origins, weights)
                    degrees[code] = [degree, degree]
            history.append(results)
        if self.schedule == "annealed":
            populations = [votes.candidates for votes in history[-1]]
            weights = [votes.weights for votes in history[-1]]
        else:
            weights = [np.full(len(points), 1 / len(points)) for points in populations]
        votes_plan = plan.details.votes
        distances = self._measure(votes_plan, facts, records, populations, weights, run, noise)
        return history, sizes, populations, weights, distances

    def _first_populations(self, details, records, run, noise, rng):
        """Return the first population of each class, from the interface or released moments."""
        n_drawn = [setting.n_samples for setting in details.settings]
        if details.queries is None:
            return [self._random(n, rng) for n in n_drawn]
        return release_populations(
            details.queries,
            records,
            run,
            details.votes.mechanism.noise_scales,
            details.facts.sizes,
            n_drawn,
            domain=details.facts.domain,
            noise=noise,
            rng=rng,
        )

    def _learn(self, plan, released, seed):
        """Set the candidates and their weights, from the votes of all steps."""
        history, sizes, populations, weights, distances = released
        self.n_iter_ = len(history)
        self._set_candidates(plan, history, sizes, populations, weights)
        self._set_distances(distances)

    def _embedding(self):
        return getattr(self.interface_, "embed", None) if self.embedding is None else self.embedding

    def _decode(self, candidates):
        decode = getattr(self.interface_, "decode", None)
        points = candidates if decode is None else decode(candidates)
        domain = getattr(self, "domain_", None)
        return check_candidates(points, len(candidates), self._width, domain, self.interface_)

    def _next_degree(self, degree, parents, points, origins, weights):
        """Return the scale of the next step, from the distances of moves that got votes."""
        decoded, embedding = self._decode(np.concatenate([parents, points])), self._embedding()
        if embedding is not None:
            decoded = np.asarray(getattr(embedding, "transform", embedding)(decoded))
        n = len(parents)
        moves = np.linalg.norm(decoded[n:] - decoded[origins % n], axis=1)
        return next_degree(degree, moves, origins // n == 1, weights)

    def _random(self, n, rng):
        return self._checked(self.interface_.random(n, rng), n)

    def _vary(self, population, degrees, rng):
        """Return the distinct rows of a population with one variation of each per degree.

        The second result is the index of each in the concatenation of the population and its
        variations, degree by degree; modulo the size of the population it is that of its parent.
        """
        n_candidates = len(population) * (1 + len(degrees))
        self._check_sizes("n_samples", n_candidates, population.shape[1], self._width)
        blocks = [population]
        for degree in degrees:
            varied = self.interface_.vary(population, rng, degree)
            blocks.append(self._checked(varied, len(population), population.shape[1]))
        candidates = np.concatenate(blocks)
        origins = distinct_rows(candidates)
        return candidates[origins], origins

    def _checked(self, candidates, n, width=None):
        return check_candidates(candidates, n, width, None, self.interface_)

    def _select(self, weights, shares, n_samples, rng):
        """Return the positions of the next population."""
        voting = self._voting
        if voting.variant == "theory":
            if voting.postprocess == "threshold":
                # Not rescaled, as in the paper.
                weights = np.where(shares >= voting.threshold, shares, 0.0).clip(0)
            return copy_shares(weights, n_samples, voting.multiplicity)
        if self.schedule == "theory":
            return rng.choice(len(weights), size=n_samples, p=weights)
        return draw_systematic(weights, n_samples, rng)

    def _smooth(self, points, code, rng):
        degree = self.smoothing * min(self.history_[-1][code].degrees, default=0.0)
        if degree == 0 or len(points) == 0:
            return points
        smooth = getattr(self.interface_, "smooth", self.interface_.vary)
        return self._checked(smooth(points, rng, degree), len(points), points.shape[1])

    @classmethod
    def _of_former(cls, found):
        # The share of the moments was a parameter of its own.
        share = found.pop("start_share", None)
        if share is not None and found.get("start") == "moments":
            found["start"] = share
        return super()._of_former(found)

    def _check_saved_state(self):
        super()._check_saved_state()
        for points in self.candidates_:
            is_inside = self.interface_.domain.contains(points).all()
            demand(is_inside, "Candidates are outside of the domain.")
