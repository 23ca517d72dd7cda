"""PrivateEvolutionSampler: synthetic records that evolve by private votes, without training."""

from collections.abc import Callable
from typing import TYPE_CHECKING, Self

import numpy as np
import pandas as pd
from numpy.typing import ArrayLike
from tqdm import tqdm

from sklearn_dpgen.domains import Domain
from sklearn_dpgen.evolution._class_settings import first_degrees
from sklearn_dpgen.evolution._evolution_plan import make_interface, plan_evolution
from sklearn_dpgen.evolution._moment_start import release_populations
from sklearn_dpgen.evolution._populations import (
    copy_shares,
    distinct_rows,
    draw_systematic,
    next_degree,
)
from sklearn_dpgen.evolution._variation_interface import VariationInterface, check_candidates
from sklearn_dpgen.evolution._voting_sampler import ClassVotes, VotingSampler
from sklearn_dpgen.ledger._ledger import LedgerLike
from sklearn_dpgen.persistence._declarations import demand
from sklearn_dpgen.schema import Schema
from sklearn_dpgen.utils._random import split_random_state
from sklearn_dpgen.utils._typing import Transformer
from sklearn_dpgen.utils._validation import (
    HasMethods,
    Integral,
    Interval,
    Real,
    StrOptions,
    fit_context,
)

if TYPE_CHECKING:
    import torch

__all__ = ["PrivateEvolutionSampler"]

_MOST_STEPS = 10_000


class PrivateEvolutionSampler(VotingSampler):
    """Synthetic records by private evolution: public candidates, chosen by noisy votes.

    A population is drawn from a public source. At every step each of its records is varied, each
    private record votes for the nearest candidate, and the votes are released with noise: nothing
    else sees a private record. They are turned into probabilities, by which the next population
    is drawn. Nothing is trained.

    Parameters
    ----------
    epsilon : float, default=1.0
        Privacy budget of the whole fit, in nats; ``np.inf`` counts votes without noise.
    delta : float or "auto", default=1e-5
        Failure probability, in (0, 1). "auto" is 0.1 / n_samples.
    schema : Schema or None, default=None
        The public declaration of the columns of a table. Not with ``domain``.
    domain : Domain, callable or None, default=None
        The public set in which records lie, or a function of ``n_features`` that returns it.
        Records outside are moved to its nearest point.
    interface : VariationInterface or None, default=None
        Where candidates come from: ``random(n, rng)`` and ``vary(X, rng, degree)``. None takes
        :class:`TabularVariation` for a schema and :class:`EuclideanVariation` for a domain.
        Without either, records are compared as they are, and the interface stands for the domain.
    start : {"public", "moments"}, default="public"
        Where the first population comes from: ``random`` of the interface; or normal laws, from
        released means and covariances of the classes. That is paid for out of the budget,
        and needs a domain, its own interface, Gaussian noise and the annealed schedule.
    start_share : float, default=0.2
        Share of the budget for "moments", in the scale in which Gaussian releases add up.
    labels : {"public", "private"}, default="public"
        Of ``fit(X, y)``. "public": neighbours differ in a record of the same class, and class
        sizes are public. "private": neighbours differ in a record and its label; class sizes are
        estimated by the sums of the votes. The noise is the same.
    classes : array-like of shape (n_classes,) or None, default=None
        The public labels, at least two; private labels need them. None takes those that occur in
        ``y``, which are then public: ``privacy_`` says so.
    label_proportions : array-like of shape (n_classes,) or None, default=None
        Public shares of the classes, in the order of ``classes_``.
    n_samples : int or "auto", default="auto"
        Records of a population, of each class. "auto" follows from the size of the class, the
        dimension and the budget; with variant="theory" it is the size of the class, as printed.
    n_iter : int or "auto", default="auto"
        Steps, each a release: the noise grows as their square root. "auto" likewise; at most 10000.
        Annealing bears few: each further one halves the share of the first.
    variant : {"practical", "theory"}, default="practical"
        The next population: "practical" draws records by their probability; "theory" copies each
        without chance, nint(n_samples · share / multiplicity) · multiplicity times. With
        postprocess="threshold" shares above it are taken as they are, so that without a threshold
        above the noise the population grows at every step.
    multiplicity : int, default=1
        B of variant="theory": of how many equal records the private ones are thought to come. Not
        read by "practical".
    histogram : {"gaussian", "laplace_threshold"}, default="gaussian"
        Noise on all counts; or Laplace noise on the positive ones, of which the large are kept,
        which pays off where the records crowd in a small part of the domain.
    postprocess : {"simplex", "threshold", "bounded_lipschitz"}, default="simplex"
        From noisy votes to probabilities: the nearest in l2; those above ``threshold`` alone, in
        proportion; the nearest in the bounded Lipschitz distance, for the metrics "l1" and "l2".
        With "laplace_threshold" among the counts that were kept.
    threshold : float, default=0.0
        A share of the records, for "threshold".
    schedule : {"annealed", "theory"}, default="annealed"
        "annealed": few steps, variations half as far at each one unless votes ask for more, and
        the weighted candidates of the last step as the result (see Notes). "theory": the settings
        of Theorem 4.1, all scales at every step, and a last population of equal weights.
    smoothing : float, default=0.0
        How far ``sample`` varies what it draws, as a share of the least degree of the last step,
        at most 1.
    embedding : callable, transformer or None, default=None
        A public map that is applied to records and to candidates before they are compared. None
        takes that of the interface, if it has one. Each record by itself: a map that looks at other
        rows, such as one that divides by their norm, voids the guarantee.
    metric : {"l2", "l1", "cosine"} or callable, default="l2"
        Which candidate is nearest. A callable ``metric(X, V)`` gives distances of shape
        (n_records, n_candidates), of each record by itself.
    ledger : PrivacyLedger, path or None, default=None
        Where a fit books what it will cost, before anything of a record is released; it is refused
        with BudgetExceededError where less is left. None books nowhere.
    unit : str or None, default=None
        Name of the column of X, a data frame, that says whose row each is. Then a person is
        protected with all of their rows, and not each row by itself: one row of each person is
        drawn, once and secretly, and no other is looked at. What is learned is the law of a random
        row of a random person. The column is beside a schema or an Identifier of it, and is not
        learned from. None protects rows.
    random_state : int, RandomState or None, default=None
        None draws noise from the operating system's entropy. An int repeats the fit, and voids the
        guarantee for whoever knows or guesses it.
    device : str or torch.device, default="auto"
        "auto" counts votes on a GPU where there is one.
    verbose : int, default=0
        1 shows a progress bar.
    noise : {"float", "certified"}, default="float"
        As in :class:`PrivateSignedMeasureSampler`; with start="public".

    Attributes
    ----------
    candidates_ : list of ndarray of shape (n_candidates, width)
        Of each class, or one for all.
    weights_ : list of ndarray of shape (n_candidates,)
        Their probabilities.
    history_ : list of list of ClassVotes
        What was released at each step, for each class or once for all.
    interface_ : VariationInterface
        Where the candidates came from.
    classes_, label_proportions_ : ndarray of shape (n_classes,)
        If fitted with labels.
    domain_ : Domain
        The set in which records lie, if declared.
    privacy_ : PrivacyReport
        The guarantee of the fit.
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
    :Neighbours: Replace one record; the number of records is public. With labels: replace one
        record by another of the same class; the sizes of the classes are public. With
        ``labels="private"``: replace one record and its label; the number of records is public.
        With ``unit``: a person with all their rows in place of a record.
    :Public: ``n_samples``; names of the columns; those of ``schema``, ``domain``, ``interface`` and
        ``embedding`` that are given. With labels their set of labels or ``classes``, the class
        sizes where labels are public, and ``label_proportions``. With ``unit``: numbers of persons,
        and not those of their rows.
    :Bounded by: One vote: in each histogram a record votes for one candidate, whatever the
        candidates and the metric are. Replacing it changes the counts by √2 in l2, or 2 in l1. With
        ``start="moments"`` also the declared domain: records outside are moved to it.
    :Noise: Gaussian, by :class:`~sklearn_dpgen.mechanisms.GaussianSequenceMechanism`, or Laplace
        with a threshold, by :class:`~sklearn_dpgen.mechanisms.ThresholdedLaplaceMechanism`, from
        the operating system's entropy; in floating point, or with ``noise="certified"`` and
        ``start="public"`` exact.
    :Priced by: The privacy profile of the Gaussian mechanism, in closed form. With
        ``histogram="laplace_threshold"`` those of two Laplace mechanisms a step, composed
        numerically, and half of δ for the thresholds. No sampling.
    :Not covered: What was fitted on the same records before, such as a scaler or an embedding; what
        the candidates were made from; an embedding or a metric that looks at several records at a
        time; other fits of the same records, which a ``ledger`` adds up; errors of a fit; a
        ``random_state`` that others know or guess.
    :Proof: :ref:`evolution-guarantee`; of moments :ref:`moments_sensitivity`; of certified noise
        :ref:`certified_noise`.

    T steps cost as much as one with noise σ/√T. No bound on the records is needed where the first
    population is public.

    The paper's settings vary by all scales at every step, and draw the result anew. Annealing is
    ours: it halves the scale from step to step, which leaves fewer candidates to share the votes
    and takes fewer steps. One of the two variations of the first step is by the square root of
    the scale, halfway to the whole domain; and where half of the votes are for moves longer than
    the scale, as where the first population is far from the records, the next scale is half of
    those. See :func:`annealed_parameters` and :func:`theory_parameters`. "bounded_lipschitz" shifts
    the noisy shares to the public sum 1 before it projects them.

    With ``schedule="theory"`` this is Algorithm 3 of [2]_ at postprocess="threshold", Algorithm 2
    at "bounded_lipschitz", and Algorithm 1 at "threshold" with variant="theory".

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

    _declarations = ("schema", "domain", "interface", "embedding")
    _saved_state: dict = {"interface_": ("EuclideanVariation", "TabularVariation"), "n_iter_": int}
    _parameter_constraints: dict = VotingSampler._parameter_constraints | {
        "schema": [Schema, None],
        "interface": [HasMethods(["random", "vary"]), None],
        "start": [StrOptions({"public", "moments"})],
        "start_share": [Interval(Real, 0, 1, closed="neither")],
        "n_samples": [StrOptions({"auto"}), Interval(Integral, 1, None, closed="left")],
        "n_iter": [StrOptions({"auto"}), Interval(Integral, 1, _MOST_STEPS, closed="both")],
        "variant": [StrOptions({"practical", "theory"})],
        "multiplicity": [Interval(Integral, 1, None, closed="left")],
        "schedule": [StrOptions({"annealed", "theory"})],
        "smoothing": [Interval(Real, 0, 1, closed="both")],
        "embedding": [callable, HasMethods("transform"), None],
        "metric": [StrOptions({"l2", "l1", "cosine"}), callable],
        "verbose": ["verbose"],
    }

    def __init__(
        self,
        epsilon: float = 1.0,
        delta: float | str = 1e-5,
        *,
        schema: Schema | None = None,
        domain: Domain | Callable[..., Domain] | None = None,
        interface: VariationInterface | None = None,
        start: str = "public",
        start_share: float = 0.2,
        labels: str = "public",
        classes: ArrayLike | None = None,
        label_proportions: ArrayLike | None = None,
        n_samples: int | str = "auto",
        n_iter: int | str = "auto",
        variant: str = "practical",
        multiplicity: int = 1,
        histogram: str = "gaussian",
        postprocess: str = "simplex",
        threshold: float = 0.0,
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
        self.start_share = start_share
        self.labels = labels
        self.classes = classes
        self.label_proportions = label_proportions
        self.n_samples = n_samples
        self.n_iter = n_iter
        self.variant = variant
        self.multiplicity = multiplicity
        self.histogram = histogram
        self.postprocess = postprocess
        self.threshold = threshold
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
        """Let the records vote for candidates, once in each step.

        Parameters
        ----------
        X : array-like, data frame or dask array of shape (n_samples, n_features)
            Private records. A dask array may be larger than memory, but for start="moments".
        y : array-like of shape (n_samples,) or None, default=None
            Labels; with them each class evolves by itself, and ``sample`` makes records of a
            wanted one.

        Returns
        -------
        self : object

        Raises
        ------
        ValueError
            Records, labels or candidates that do not fit the declarations, private labels without
            ``classes``, or candidates that do not fit in memory.
        """
        noise_seed, candidate_seed = split_random_state(self.random_state, 2)
        members, voters = self._read(X, y, noise_seed)
        rng = np.random.default_rng(candidate_seed)
        plan = self._book(voters, rng)
        settings, mechanism = plan.settings, plan.votes.mechanism
        shares = settings[0].shares

        run = mechanism.run()
        n_drawn = [setting.n_samples for setting in settings]
        if plan.queries is None:
            populations = [self._random(n, rng) for n in n_drawn]
        else:
            populations = release_populations(
                plan.queries,
                members,
                run,
                mechanism.noise_scales,
                self._sizes,
                n_drawn,
                domain=self.domain_,
                noise_seed=noise_seed,
                rng=rng,
            )
        sums: list[list] = [[] for _ in settings]
        precisions: list[list] = [[] for _ in settings]
        degrees = [first_degrees(self.schedule, setting) for setting in settings]
        self.history_ = []
        steps = tqdm(shares, desc=type(self).__name__, disable=not self.verbose)
        for share in steps:
            varied = [self._vary(*part, rng) for part in zip(populations, degrees, strict=True)]
            candidates = [points for points, _ in varied]
            votes = self._count(members, candidates, run, noise_seed)
            results, sizes = [], []
            for code, ((points, origins), counts) in enumerate(zip(varied, votes, strict=True)):
                sums[code].append(counts.sum())
                precisions[code].append(share / len(points))
                sizes.append(self._class_size(code, sums[code], precisions[code]))
                parents = populations[code]
                weights = self._weights(points, counts / sizes[code])
                chosen = ()
                if weights is not None:
                    n_samples = settings[code].n_samples
                    chosen = self._select(weights, counts / sizes[code], n_samples, rng)
                if len(chosen) == 0:
                    self._warn_nothing_left(code)
                    is_kept = origins < len(parents)
                    weights = is_kept / is_kept.sum()
                else:
                    populations[code] = points[chosen]
                results.append(ClassVotes(tuple(degrees[code]), points, counts, weights))
                if self.schedule == "annealed":
                    degree = self._next_degree(degrees[code][0], parents, points, origins, weights)
                    degrees[code] = [degree, degree]
            self.history_.append(results)

        if self.schedule == "annealed":
            self._finish([r.candidates for r in results], [r.weights for r in results], sizes)
        else:
            equal = [np.full(len(points), 1 / len(points)) for points in populations]
            self._finish(populations, equal, sizes)
        return self

    def _book(self, voters, rng):
        """Plan a fit, charge it, and return the plan."""
        self.interface_ = make_interface(self, voters.domain)
        plan = plan_evolution(self, voters, self.interface_, rng)
        self._charge(plan.report)
        self.noise_multiplier_ = plan.report.noise_multiplier
        self.n_iter_ = len(plan.settings[0].shares)
        return plan

    def _expected_report(self, voters):
        rng = np.random.default_rng(split_random_state(self.random_state, 2)[1])
        return plan_evolution(self, voters, make_interface(self, voters.domain), rng).report

    def _embedding(self):
        return getattr(self.interface_, "embed", None) if self.embedding is None else self.embedding

    def _decode(self, candidates):
        decode = getattr(self.interface_, "decode", None)
        places = candidates if decode is None else decode(candidates)
        domain = getattr(self, "domain_", None)
        return check_candidates(places, len(candidates), self._width, domain, self.interface_)

    def _next_degree(self, degree, parents, points, origins, weights):
        """Return the scale of the next step, from where the votes went in this one."""
        decoded, embedding = self._decode(np.concatenate([parents, points])), self._embedding()
        if embedding is not None:
            decoded = np.asarray(getattr(embedding, "transform", embedding)(decoded))
        n = len(parents)
        moves = np.linalg.norm(decoded[n:] - decoded[origins % n], axis=1)
        return next_degree(degree, moves, origins // n == 1, weights)

    def _random(self, n, rng):
        return self._checked(self.interface_.random(n, rng), n)

    def _vary(self, population, degrees, rng):
        """Return the distinct rows of a population and one variation of each per degree.

        Then the place of each among all of these: that of its parent, and one turn a degree.
        """
        n_candidates = len(population) * (1 + len(degrees))
        self._check_sizes("n_samples", n_candidates, population.shape[1], self._width)
        parts = [population]
        for degree in degrees:
            varied = self.interface_.vary(population, rng, degree)
            parts.append(self._checked(varied, len(population), population.shape[1]))
        candidates = np.concatenate(parts)
        origins = distinct_rows(candidates)
        return candidates[origins], origins

    def _checked(self, candidates, n, width=None):
        return check_candidates(candidates, n, width, None, self.interface_)

    def _select(self, weights, shares, n_samples, rng):
        """Return the positions of the next population."""
        if self.variant == "theory":
            if self.postprocess == "threshold":
                # As printed: not rescaled.
                weights = np.where(shares >= self.threshold, shares, 0.0).clip(0)
            return copy_shares(weights, n_samples, self.multiplicity)
        if self.schedule == "theory":
            return rng.choice(len(weights), size=n_samples, p=weights)
        return draw_systematic(weights, n_samples, rng)

    def _smooth(self, points, code, rng):
        degree = self.smoothing * min(self.history_[-1][code].degrees, default=0.0)
        if degree == 0 or len(points) == 0:
            return points
        smooth = getattr(self.interface_, "smooth", self.interface_.vary)
        return self._checked(smooth(points, rng, degree), len(points), points.shape[1])

    def _check_saved_state(self):
        super()._check_saved_state()
        for points in self.candidates_:
            is_inside = self.interface_.domain.contains(points).all()
            demand(is_inside, "Candidates are outside of the domain.")
