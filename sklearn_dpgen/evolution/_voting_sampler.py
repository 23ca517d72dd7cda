"""Base of the samplers that count votes: records, the plan of the votes, weighted candidates."""

import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import ArrayLike
from scipy.special import ndtri
from sklearn.utils import check_scalar

from sklearn_dpgen.accounting import Bound, Event, PrivacyReport
from sklearn_dpgen.accounting._calibration import check_delta_size
from sklearn_dpgen.accounting._wording import count_words, number_words
from sklearn_dpgen.domains import Domain
from sklearn_dpgen.engines._tables import engine_columns, is_engine_table
from sklearn_dpgen.evolution._record_distance import record_distance
from sklearn_dpgen.evolution._schedules import warn_of_threshold
from sklearn_dpgen.evolution._votes import nearest_neighbor_votes
from sklearn_dpgen.evolution._weight_projections import (
    project_bounded_lipschitz,
    project_simplex,
    threshold_weights,
)
from sklearn_dpgen.exceptions import PublicTypeError, PublicValueError
from sklearn_dpgen.ledger._base import PrivateEstimator
from sklearn_dpgen.mechanisms import GaussianSequenceMechanism, ThresholdedLaplaceMechanism
from sklearn_dpgen.mechanisms._class_moments import MOMENT_SHARES
from sklearn_dpgen.persistence._declarations import (
    Array,
    Maybe,
    demand,
    is_distribution,
    list_of,
    saved,
)
from sklearn_dpgen.preprocessing._reader import NO_RECORDS
from sklearn_dpgen.preprocessing._records import (
    ENCODED_STATE,
    check_saved_encoding,
    declared_domain,
    decode_records,
    encode_records,
    resolve_domain,
)
from sklearn_dpgen.utils._frames import FramesMixin
from sklearn_dpgen.utils._labels import LabelSamplerMixin
from sklearn_dpgen.utils._random import ROUNDING, split_random_state
from sklearn_dpgen.utils._validation import (
    BUDGET,
    DEVICE,
    Integral,
    Interval,
    Real,
    Settings,
    StrOptions,
    Transformer,
    check_count,
    check_fits,
    check_is_fitted,
    check_n_samples,
    fit_context,
    validate_data,
    warn_user,
)

__all__ = [
    "HISTOGRAMS",
    "encode_votes",
    "ClassVotes",
    "NoisyVotes",
    "PublicFacts",
    "VotesPlan",
    "VotingSampler",
]


def encode_votes(estimator, X):
    """Return the encoded records that vote.

    Parameters
    ----------
    estimator : estimator
        Estimator with parameters ``schema`` and ``domain``. :func:`encode_records` sets its
        attributes. If both are None, records are not changed, and there is no ``domain_``.
    X : array-like, data frame or dask array of shape (n_samples, n_features)
        Private records. A schema does not take dask arrays.

    Returns
    -------
    ndarray of float64, or dask array, of shape (n_samples, width)
    """
    for name in ("domain_", "encoder_"):
        vars(estimator).pop(name, None)
    if is_engine_table(X):
        return _encode_dask(estimator, X)
    if estimator.schema is None and estimator.domain is None:
        return validate_data(estimator, X, dtype=np.float64)
    return encode_records(estimator, X)


def _encode_dask(estimator, X):
    if estimator.schema is not None:
        raise PublicTypeError("A schema takes a data frame; a dask array needs a domain.")
    if engine_columns(X) is not None or not hasattr(X, "map_blocks"):
        raise PublicTypeError(
            f"X must be an array if it is of dask, got {type(X).__name__}: see to_dask_array. Of "
            "other engines nearest_neighbor_votes alone takes tables."
        )
    if X.ndim != 2 or np.isnan(X.shape).any():
        raise PublicValueError("A dask array must have two dimensions of known sizes.")
    if len(X) == 0:
        raise PublicValueError(NO_RECORDS)
    X = X.rechunk({1: -1}).astype(np.float64)
    estimator.n_features_in_ = X.shape[1]
    vars(estimator).pop("feature_names_in_", None)
    if estimator.domain is None:
        return X
    estimator.domain_ = resolve_domain(estimator.domain, X.shape[1])
    return X.map_blocks(estimator.domain_.project, dtype=np.float64)


HISTOGRAMS = ("gaussian", "laplace_threshold")


@saved
class NoisyVotes(Settings):
    """How votes get noise, and what is made of the noisy votes.

    An estimator takes it as ``votes``. A setting that is None is the estimator's own default,
    which its documentation states; one that the estimator does not have is refused.

    Parameters
    ----------
    histogram : {"gaussian", "laplace_threshold"} or None, default=None
        Noise on all counts; or Laplace noise on the positive ones, of which the large are kept,
        which pays off where the records crowd in a small part of the domain.
    postprocess : {"simplex", "threshold", "bounded_lipschitz"} or None, default=None
        From noisy votes to probabilities: the nearest in l2; those above ``threshold`` alone, in
        proportion; the nearest in the bounded Lipschitz distance, for the metrics "l1" and "l2".
        With "laplace_threshold" among the counts that were kept.
    threshold : float or None, default=None
        A share of the records, for "threshold".
    variant : {"practical", "theory"} or None, default=None
        The next population: "practical" draws records by their probability; "theory" copies each
        without chance, nint(n_samples · share / multiplicity) · multiplicity times. With
        ``postprocess="threshold"`` shares above it are taken as they are, so that without a
        threshold above the noise the population grows at every step.
    multiplicity : int or None, default=None
        B of ``variant="theory"``: of how many equal records the private ones are thought to come.
        Not read by "practical".
    distance_share : float or None, default=None
        Share of the budget, in [0, 1), for the noisy distance W1 of the records to the result, from
        which ``distance_bound`` of the estimator computes confidence bounds. 0 releases none.
        Others need a domain, ``histogram="gaussian"``, noise in floating point, and labels that are
        not private; 0.1 is a good choice.

    Examples
    --------
    >>> from sklearn_dpgen.domains import Ball
    >>> from sklearn_dpgen.evolution import NoisyVotes, PrivateEvolutionSampler
    >>> sampler = PrivateEvolutionSampler(
    ...     domain=Ball(1.0, n_features=2), votes=NoisyVotes(postprocess="threshold")
    ... )
    >>> sampler.set_params(votes__threshold=0.01).votes
    NoisyVotes(postprocess='threshold', threshold=0.01)
    """

    _parameter_constraints: dict = {
        "histogram": [StrOptions(set(HISTOGRAMS)), None],
        "postprocess": [StrOptions({"simplex", "threshold", "bounded_lipschitz"}), None],
        "threshold": [Interval(Real, 0, 1, closed="left"), None],
        "variant": [StrOptions({"practical", "theory"}), None],
        "multiplicity": [Interval(Integral, 1, None, closed="left"), None],
        "distance_share": [Interval(Real, 0, 1, closed="left"), None],
    }

    def __init__(
        self,
        *,
        histogram: str | None = None,
        postprocess: str | None = None,
        threshold: float | None = None,
        variant: str | None = None,
        multiplicity: int | None = None,
        distance_share: float | None = None,
    ) -> None:
        self.histogram = histogram
        self.postprocess = postprocess
        self.threshold = threshold
        self.variant = variant
        self.multiplicity = multiplicity
        self.distance_share = distance_share


# Largest number of steps that the split of the budget names one by one.
_MOST_NAMED = 10


@dataclass(frozen=True)
class VotesPlan:
    """Plan of noisy histograms; a record has one vote in each.

    Neighbouring data sets differ in one record, so a histogram loses one vote in one cell and gains
    one in another: √2 in l2, whatever the candidates, the metric and the labels are.

    Parameters
    ----------
    epsilon, delta : float
        The whole budget.
    shares : sequence of float
        Share of the budget of each histogram, which may depend on those before. The Laplace
        histogram takes equal shares.
    histogram : {"gaussian", "laplace_threshold"}
    start_share : float or None, default=None
        Share of the budget, in (0, 1), of two releases of moments before the histograms, whose
        vectors are scaled to the same sensitivity. Not with Laplace or certified noise.
    n_candidates : int or None, default=None
        Largest number of candidates of all classes together, which certified noise needs. None is
        for noise in floating point.
    n_values : int, default=0
        Largest number of counts, moments and distances in all releases together.
    distance_share : float, default=0.0
        Share of the budget, in [0, 1), of the distance to the records, released after all
        histograms and scaled to their sensitivity. 0 releases none.
    diameter : float, default=0.0
        l2 diameter of the domain, from which its sensitivity follows.
    """

    epsilon: float
    delta: float
    shares: tuple[float, ...]
    histogram: str
    start_share: float | None = None
    n_candidates: int | None = None
    n_values: int = 0
    distance_share: float = 0.0
    diameter: float = 0.0

    @cached_property
    def mechanism(self):
        """The mechanism of all histograms, calibrated to the budget."""
        if self.histogram == "laplace_threshold":
            return ThresholdedLaplaceMechanism(
                self.epsilon, self.delta, len(self.shares), certified=self.n_candidates is not None
            )
        sizes: dict[str, Any] = {}
        if self.n_candidates is not None:
            if self.start_share is not None:
                raise PublicValueError("noise='certified' is for votes: it needs start='public'.")
            # Neighbours differ by one vote in two counts.
            n = len(self.shares)
            sizes = {"n_values": [self.n_candidates] * n, "n_changed": [2] * n}
        start, last = self._other_shares
        rest = (1 - math.fsum((*start, *last))) / math.fsum(self.shares)
        shares = (*start, *(rest * share for share in self.shares), *last)
        return GaussianSequenceMechanism(math.sqrt(2), shares, self.epsilon, self.delta, **sizes)

    @property
    def _other_shares(self):
        """Shares of the releases before the histograms and after them."""
        start = () if self.start_share is None else [self.start_share * s for s in MOMENT_SHARES]
        return tuple(start), (self.distance_share,) * (self.distance_share > 0)

    @property
    def vote_scales(self):
        """Scale of the noise on the counts of each histogram."""
        if self.histogram == "laplace_threshold":
            return (self.mechanism.noise_scale,) * len(self.shares)
        first = len(self._other_shares[0])
        return self.mechanism.noise_scales[first : first + len(self.shares)]

    @property
    def split(self):
        """Shares of the budget by release, of sum 1."""
        start = 0.0 if self.start_share is None else self.start_share
        split, n = {"first population": start} if start else {}, len(self.shares)
        last = {"distance": self.distance_share} if self.distance_share else {}
        rest = 1 - start - self.distance_share
        if n > _MOST_NAMED:
            return split | {f"{n} steps": rest} | last
        rest /= math.fsum(self.shares)
        return split | {f"step {t}": rest * s for t, s in enumerate(self.shares, 1)} | last

    def precision(self, sizes, n_candidates):
        """Return the noise on the votes for a candidate, relative to their mean, as texts.

        Parameters
        ----------
        sizes : list of int
            Public or estimated sizes of the classes.
        n_candidates : list of int
            Number of candidates of each class, which share its votes.
        """
        if self.histogram == "laplace_threshold":
            least = number_words(self.mechanism.threshold)
            # The standard deviation of Laplace noise.
            words = count_words([math.sqrt(2) * self.mechanism.noise_scale], min(sizes), "votes")
            if self.mechanism.noise_scale > 0:
                words += f"; released from {least} on"
        else:
            words = count_words(self.vote_scales, min(sizes), "votes")
        mean = min(size / n for size, n in zip(sizes, n_candidates, strict=True))
        of_class = " in the smallest class" if len(sizes) > 1 else ""
        found = {"votes for a candidate": f"{words}; the mean is {number_words(mean)}{of_class}"}
        if self.distance_share:
            error = self.mechanism.noise_scales[-1] * self.diameter / math.sqrt(2) / min(sizes)
            found["distance to the records"] = f"± {number_words(error)}, or up to twice as much"
        return found

    def report(self, **fields):
        """Return the PrivacyReport.

        Parameters
        ----------
        **fields
            Fields of the report that the plan does not determine.
        """
        bounds, events = [Bound("one_vote")], [Event("votes")]
        if self.start_share is not None:
            bounds.append(Bound("scaled_moments"))
            events.insert(0, Event("start_moments"))
        if self.distance_share:
            bounds.append(Bound("l2_diameter", self.diameter))
            events.append(Event("distance"))
        noise = "floating_point" if self.n_candidates is None else "certified_noise"
        is_floating = self.n_candidates is None and math.isfinite(self.epsilon)
        return PrivacyReport(
            epsilon=self.epsilon,
            delta=self.delta if math.isfinite(self.epsilon) else 0.0,
            events=tuple(events),
            norm="l1" if self.histogram == "laplace_threshold" else "l2",
            bounds=tuple(bounds),
            caveats=("candidates_and_embedding", noise),
            split=self.split,
            rounding=self.n_values * ROUNDING if is_floating else 0.0,
            **self.mechanism.report_fields(),
            **fields,
        )


@saved
@dataclass(frozen=True)
class ClassVotes:
    """The released votes of one class in one step, which are public.

    Attributes
    ----------
    degrees : tuple of float
        Degree of each variation of the candidates; empty if they were not varied.
    candidates : ndarray of shape (n_candidates, width)
        Candidates of the interface.
    votes : ndarray of shape (n_candidates,)
        Noisy counts.
    weights : ndarray of shape (n_candidates,)
        Probabilities computed from the votes.
    """

    _saved_state = {
        "degrees": tuple[float, ...],
        "candidates": Array("f", 2),
        "votes": Array("f", 1),
        "weights": Array("f", 1, low=0),
    }

    degrees: tuple[float, ...]
    candidates: np.ndarray
    votes: np.ndarray
    weights: np.ndarray

    def _check_saved_state(self):
        shape = (len(self.candidates),)
        demand(self.votes.shape == self.weights.shape == shape, "Votes have other candidates.")


@dataclass(frozen=True)
class PublicFacts:
    """Public facts of the records that vote.

    Attributes
    ----------
    n_samples : int
        Number of records, or of persons with a unit.
    n_classes : int
        Number of classes; 0 without labels.
    sizes : list of int
        Public or estimated sizes of the classes, or the number of records without labels.
    domain : Domain or None
    n_features : int
        Number of columns.
    is_blockwise : bool, default=False
        Whether the records are a table of dask, which may be larger than memory.
    """

    n_samples: int
    n_classes: int
    sizes: list[int]
    domain: Domain | None
    n_features: int
    is_blockwise: bool = False

    @property
    def width(self):
        """The number of features of a record among the candidates."""
        return self.n_features if self.domain is None else self.domain.n_features


class VotingSampler(FramesMixin, LabelSamplerMixin, PrivateEstimator):
    """Base of samplers that give public candidates weights by private votes."""

    # Only private evolution has embeddings, and tables, whose schema may be the path of a file.
    embedding: Callable[[np.ndarray], ArrayLike] | Transformer | None = None
    # Parameters that are public where they are not None.
    _declarations: tuple[str, ...] = ("domain",)
    _saved_state: dict = ENCODED_STATE | {
        "noise_multiplier_": float | None,
        "candidates_": list_of(Array("f", 2)),
        "weights_": list_of(Array("f", 1, low=0)),
        "history_": list[list[ClassVotes]],
        "distances_": Maybe(Array("f", 1)),
        "distance_errors_": Maybe(Array("f", 1, low=0)),
    }
    _parameter_constraints: dict = {
        "epsilon": BUDGET,
        "delta": [StrOptions({"auto"}), Interval(Real, 0, 1, closed="neither")],
        "domain": [Domain, callable, None],
        "labels": [StrOptions({"public", "private"}), None],
        "classes": ["array-like", None],
        "label_proportions": ["array-like", None],
        "votes": [NoisyVotes, None],
        "random_state": ["random_state"],
        "device": DEVICE,
    }
    _settings = {"votes": NoisyVotes}

    @property
    def _voting(self):
        return self._completed("votes")

    @fit_context(prefer_skip_nested_validation=False)
    def plan(
        self,
        n_samples: int,
        n_features: int | None = None,
        *,
        class_sizes: ArrayLike | None = None,
    ) -> PrivacyReport:
        """Return the privacy report of a fit, without reading a record.

        Parameters
        ----------
        n_samples : int
            Number of private records, or of persons with a ``unit``.
        n_features : int or None, default=None
            Number of columns. Required if ``domain`` is a function of it, or None.
        class_sizes : array-like of int of shape (n_classes,) or None, default=None
            Number of records of each class, for public labels. None plans a fit without labels, or
            with private labels if ``classes`` are declared.

        Returns
        -------
        PrivacyReport
            Equal to ``privacy_`` of a fit on records of these sizes.

        Raises
        ------
        ValueError
            ``fit`` would refuse the parameters or the sizes.

        Warns
        -----
        UserWarning
            If the votes are below the noise.
        """
        return self._plan(self._expected(n_samples, n_features, class_sizes)).report

    def _read(self, X, y, *, seed):
        """Return the encoded records of each class, and their public facts.

        With a unit, the seed draws one row of each person.
        """
        self._check_parameters(y)
        X, y = self._one_labelled_row_each(X, y, seed)
        X = encode_votes(self, X)
        n_samples = X.shape[0]
        codes = self._encode_labels(y, n_samples)
        n_classes = 0 if y is None else len(self.classes_)
        records = [X] if y is None else [X[codes == code] for code in range(n_classes)]
        sizes = np.bincount(codes, minlength=n_classes) if self.labels == "public" else None
        domain = getattr(self, "domain_", None)
        facts = self._public_facts(n_samples, n_classes, sizes, domain, self.n_features_in_)
        return records, {"facts": facts}

    def _check_parameters(self, y):
        self._check_unit()
        self._check_label_parameters(y)
        if self._voting.postprocess == "bounded_lipschitz" and self.metric not in ("l1", "l2"):
            raise PublicValueError(
                f"postprocess='bounded_lipschitz' needs metric 'l1' or 'l2', got {self.metric!r}."
            )

    def _expected(self, n_samples, n_features, class_sizes):
        """Return the public facts of records from declared sizes."""
        self._check_parameters(None)
        n_samples = check_count(n_samples, "n_samples")
        classes = self._planned_classes(n_samples, class_sizes)
        if self.domain is None and self.schema is None:
            domain, width = None, check_count(n_features, "n_features")
        else:
            domain = declared_domain(self, n_features)
            width = domain.n_features if self.schema is None else len(self.schema)
        n_classes, sizes = classes
        return self._public_facts(n_samples, n_classes, sizes, domain, width)

    def _public_facts(self, n_samples, n_classes, class_sizes, domain, n_features):
        """Return the public facts; class sizes are exact if public, else estimated from shares."""
        sizes = [n_samples]
        if n_classes and self.labels == "public":
            sizes = [int(size) for size in class_sizes]
            if min(sizes) == 0:
                raise PublicValueError("With public labels every class of classes needs a record.")
        elif n_classes:
            shares = self.label_proportions
            shares = np.ones(n_classes) if shares is None else np.asarray(shares, dtype=float)
            sizes = [max(1, round(n_samples * s)) for s in shares / shares.sum()]
        return PublicFacts(n_samples, n_classes, sizes, domain, n_features)

    def _votes_plan(self, facts, shares, n_candidates, start_share=None, n_moments=0):
        if self._voting.histogram == "laplace_threshold":
            shares = [1 / len(shares)] * len(shares)
        delta = self._delta(facts.n_samples)
        if math.isfinite(self.epsilon):
            check_delta_size(delta, facts.n_samples)
        distance_share = self._voting.distance_share
        if distance_share:
            self._check_distance(facts, distance_share + (start_share or 0.0))
        plan = VotesPlan(
            epsilon=self.epsilon,
            delta=delta,
            shares=tuple(shares),
            histogram=self._voting.histogram,
            start_share=start_share,
            n_candidates=n_candidates if self._is_certified else None,
            n_values=n_moments
            + len(shares) * n_candidates
            + (len(facts.sizes) if distance_share else 0),
            distance_share=distance_share,
            diameter=facts.domain.diameter(2) if distance_share else 0.0,
        )
        if plan.histogram == "laplace_threshold":
            warn_of_threshold(plan.mechanism.threshold, facts.sizes)
        return plan

    def _report(self, plan, facts, **fields):
        """Return the report of a plan."""
        declared = [name for name in self._declarations if getattr(self, name) is not None]
        relation, public = self._label_terms(facts.n_classes > 0)
        report = plan.report(
            name=type(self).__name__,
            public=("n_samples", "column_names", *declared, *public),
            noise_source=self._noise_description(),
            **relation,
            **fields,
        )
        return self._protected(report)

    def _count(self, records, candidates, run, noise):
        """Return the noisy votes of every class for its own candidates: one release.

        Parameters
        ----------
        records : list of arrays
            Private records of each class.
        candidates : list of ndarray
        run : GaussianSequenceRun or ThresholdedLaplaceRun
        noise : NoiseSource
        """
        counts = [
            nearest_neighbor_votes(
                X,
                self._decode(points),
                metric=self.metric,
                embedding=self._embedding(),
                device=self.device,
            )
            for X, points in zip(records, candidates, strict=True)
        ]
        counts = np.concatenate(counts).astype(np.float64)
        sizes = [len(points) for points in candidates]
        # Seeded noise depends on the candidates too, not on the counts alone.
        noise.bind(*candidates)
        return np.split(run.release(counts, noise), np.cumsum(sizes)[:-1])

    def _check_distance(self, facts, share):
        """Raise if the distance to the records is asked for where it is not released."""
        is_private = facts.n_classes > 0 and self.labels == "private"
        fits = self.domain is not None and not is_private
        if not fits or self._voting.histogram != "gaussian" or self._is_certified:
            raise PublicValueError(
                "distance_share must be 0 unless there is a domain, with "
                "histogram='gaussian', noise='float' and labels that are not private."
            )
        if share >= 1:
            raise PublicValueError("distance_share and the share of start must sum to less than 1.")

    def _measure(self, plan, facts, records, candidates, weights, run, noise):
        """Return the noisy distance of the records of each class to its result, and their errors.

        Parameters
        ----------
        plan : VotesPlan
        facts : PublicFacts
        records : list of arrays
            Private records of each class.
        candidates, weights : list of ndarray
            The result of each class.
        run : GaussianSequenceRun
            All but its last release, of sensitivity √2, are made.
        noise : NoiseSource

        Returns
        -------
        tuple of two ndarrays of shape (n_classes,), or None
            Noisy distances, and the standard deviations of their noise; None without a share.
        """
        if not plan.distance_share:
            return None
        totals, units = [], []
        for X, points, shares in zip(records, candidates, weights, strict=True):
            points = self._decode(points)
            total, sensitivity = record_distance(np.asarray(X), points, shares, facts.domain)
            # A record is of one class, so that one entry changes, by √2 in this unit.
            units.append(sensitivity / math.sqrt(2))
            totals.append(total / units[-1])
        noise.bind(*candidates, *weights)
        noisy = run.release(np.array(totals), noise)
        scales = np.array(units) / np.array(facts.sizes)
        return scales * noisy, scales * plan.mechanism.noise_scales[-1]

    def _set_distances(self, found):
        """Set the released distances, if there are any."""
        if found is not None:
            self.distances_, self.distance_errors_ = found

    def distance_bound(self, confidence_level: float = 0.95) -> float | np.ndarray:
        """Return an upper confidence bound on W1 between the private records and the result.

        The result is the distribution of ``candidates_`` with ``weights_``, from which ``sample``
        draws if ``smoothing`` is 0. The distance of drawn records is larger by at most their own W1
        to this distribution, which is public.

        Parameters
        ----------
        confidence_level : float, default=0.95
            Probability, over the noise, that a bound is at least the distance, in (0, 1).

        Returns
        -------
        float or ndarray of shape (n_classes,)
            In the units of the records, whose ground distance is l2. One bound for each class, each
            of this level by itself, if there are classes.

        Raises
        ------
        ValueError
            The fit had ``distance_share=0``.
        """
        check_is_fitted(self)
        if not hasattr(self, "distances_"):
            raise PublicValueError("distance_share must be positive for a distance_bound.")
        check_scalar(
            confidence_level,
            "confidence_level",
            Real,
            min_val=0,
            max_val=1,
            include_boundaries="neither",
        )
        bounds = (self.distances_ + ndtri(confidence_level) * self.distance_errors_).clip(0)
        return bounds if hasattr(self, "classes_") else float(bounds[0])

    def _embedding(self):
        """Return the public embedding of records and candidates, or None."""
        return self.embedding

    def _decode(self, candidates):
        """Return candidates as records."""
        return candidates

    @property
    def _width(self):
        """The number of features of a record among the candidates."""
        domain = getattr(self, "domain_", None)
        return self.n_features_in_ if domain is None else domain.n_features

    def _check_sizes(self, name, n_candidates, width, record_width):
        """Raise if candidates would not fit in memory, before they are drawn."""
        # Candidates, and candidates decoded to records, each with a sorted or scaled copy.
        needed = 16 * n_candidates * (width + record_width)
        if self._voting.postprocess == "bounded_lipschitz":
            # Distances, costs and plan of a transport problem, from one half to the other.
            needed += 8 * n_candidates**2
        check_fits(needed, f"{name}: votes for {n_candidates} candidates")

    def _class_size(self, facts, code, sums, precisions):
        """Return the public or the released number of records of a class.

        Parameters
        ----------
        facts : PublicFacts
        code : int
        sums : list of float
            Sums of the noisy votes of the class, one a release so far.
        precisions : list of float
            Their inverse variances, up to a factor.
        """
        if len(facts.sizes) == 1 or self.labels == "public":
            return facts.sizes[code]
        return float(np.clip(np.average(sums, weights=precisions), 1.0, facts.n_samples))

    def _weights(self, candidates, shares):
        """Return probabilities from noisy shares of the votes, or None if all are removed."""
        voting = self._voting
        kept = np.full(len(shares), True)
        if voting.histogram == "laplace_threshold":
            kept = shares != 0
        if voting.postprocess == "threshold" or not kept.any():
            return threshold_weights(shares, voting.threshold)
        weights = np.zeros(len(shares))
        if voting.postprocess == "simplex":
            weights[kept] = project_simplex(shares[kept])
            return weights
        points = self._decode(candidates[kept])
        embedding = self._embedding()
        if embedding is not None:
            points = getattr(embedding, "transform", embedding)(points)
        if voting.histogram == "gaussian":
            # The size is public or estimated from all sums, so the noise on this sum is removed.
            shares = shares - (shares.sum() - 1) / len(shares)
        metric = "euclidean" if self.metric == "l2" else self.metric
        weights[kept] = project_bounded_lipschitz(points, shares[kept], metric=metric)
        return weights

    def _set_candidates(self, plan, history, sizes, candidates, weights):
        """Set the released votes, the weighted candidates and the shares of the classes."""
        self.noise_multiplier_ = plan.report.noise_multiplier
        self.history_ = history
        if hasattr(self, "classes_"):
            self._set_proportions(sizes)
        self.candidates_ = candidates
        self.weights_ = weights

    def _warn_nothing_left(self, facts, code):
        of_class = f" of class {code}" if len(facts.sizes) > 1 else ""
        warn_user(
            f"No candidate{of_class} kept any votes after noise and threshold, so the candidates "
            "are unchanged. Increase epsilon, or use fewer candidates, fewer steps or a smaller "
            "threshold.",
            UserWarning,
        )

    def sample(
        self,
        n_samples: int = 1,
        *,
        y: ArrayLike | None = None,
        random_state: int | np.random.RandomState | None = None,
    ) -> np.ndarray | pd.DataFrame:
        """Draw synthetic records at no privacy cost: candidates, by their weights.

        Parameters
        ----------
        n_samples : int, default=1
            Number of records.
        y : label, array-like of shape (n_samples,) or None, default=None
            Class of all records, or of each record. None draws classes as ``sample_labels`` does.
        random_state : int, RandomState or None, default=None
            Seed of the draw.

        Returns
        -------
        X : ndarray or data frame of shape (n_samples, n_features)
            A data frame with a schema, or if X of ``fit`` was one with column names.

        Raises
        ------
        ValueError
            A label is not in ``classes_``, or the fit had no labels.
        """
        check_is_fitted(self)
        width = self.candidates_[0].shape[1]
        n_samples = check_n_samples(n_samples, width=width + self._width)
        label_seed, draw_seed = split_random_state(random_state, 2)
        codes = self._sample_codes(n_samples, y, label_seed)
        rng = np.random.default_rng(draw_seed)
        points = np.empty((n_samples, width))
        for code, (candidates, weights) in enumerate(
            zip(self.candidates_, self.weights_, strict=True)
        ):
            rows = np.flatnonzero(codes == code)
            drawn = candidates[rng.choice(len(weights), size=len(rows), p=weights)]
            points[rows] = self._smooth(drawn, code, rng)
        return decode_records(self, self._decode(points), rng)

    def _smooth(self, points, code, rng):
        """Return drawn candidates of a class, or variations of them."""
        return points

    def __sklearn_is_fitted__(self):
        return hasattr(self, "candidates_")

    def __sklearn_tags__(self):
        tags = super().__sklearn_tags__()
        tags.non_deterministic = self.random_state is None
        is_table = self.schema is not None
        # The schema declares the labels and the nulls of each column.
        tags.input_tags.categorical = tags.input_tags.string = is_table
        tags.input_tags.allow_nan = is_table
        return tags

    def _check_saved_state(self):
        super()._check_saved_state()
        n_classes = self._check_saved_labels()
        check_saved_encoding(self)
        fits = len(self.candidates_) == len(self.weights_) == n_classes
        demand(fits, "There are other classes than candidates.")
        width = self.candidates_[0].shape[1]
        for points, shares in zip(self.candidates_, self.weights_, strict=True):
            fits = len(points) == len(shares) and is_distribution(shares)
            demand(fits, "Candidates have other weights.")
            demand(points.shape[1] == width, "Candidates have other widths.")
        measured = [vars(self)[n] for n in ("distances_", "distance_errors_") if n in vars(self)]
        fits = len(measured) != 1 and all(len(values) == n_classes for values in measured)
        demand(fits, "There are other classes than distances.")
        fits = all(len(step) == n_classes for step in self.history_)
        demand(fits, "A step has other classes.")
