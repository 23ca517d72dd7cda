"""What the samplers that count votes share: records by class, noisy shares, weighted candidates."""

import math
import pickle
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import pandas as pd
from numpy.typing import ArrayLike

from sklearn_dpgen.accounting import PrivacyReport, check_delta_size
from sklearn_dpgen.accounting._checks import check_count
from sklearn_dpgen.domains import Domain
from sklearn_dpgen.evolution._records import encode_votes
from sklearn_dpgen.evolution._votes import nearest_neighbor_votes
from sklearn_dpgen.evolution._votes_plan import HISTOGRAMS, VotesPlan
from sklearn_dpgen.evolution._weight_projections import (
    project_bounded_lipschitz,
    project_simplex,
    threshold_weights,
)
from sklearn_dpgen.ledger._base import PrivateEstimator
from sklearn_dpgen.persistence._declarations import (
    Array,
    demand,
    is_distribution,
    list_of,
    saved,
)
from sklearn_dpgen.preprocessing._records import (
    ENCODED_STATE,
    check_saved_encoding,
    declared_domain,
    decode_records,
)
from sklearn_dpgen.schema import Schema
from sklearn_dpgen.utils._frames import FramesMixin
from sklearn_dpgen.utils._labels import LabelSamplerMixin
from sklearn_dpgen.utils._random import split_random_state
from sklearn_dpgen.utils._typing import Transformer
from sklearn_dpgen.utils._validation import (
    BUDGET,
    DEVICE,
    Interval,
    Real,
    StrOptions,
    check_fits,
    check_is_fitted,
    check_n_samples,
    fit_context,
    warn_user,
)

__all__ = ["ClassVotes", "Voters", "VotingSampler"]


@saved
@dataclass(frozen=True)
class ClassVotes:
    """The released votes of one class in one step, which are public.

    Attributes
    ----------
    degrees : tuple of float
        How far candidates were varied, one a variation; none where they were not.
    candidates : ndarray of shape (n_candidates, width)
        As the interface made them.
    votes : ndarray of shape (n_candidates,)
        Noisy counts.
    weights : ndarray of shape (n_candidates,)
        The probabilities that they were turned into.
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
class Voters:
    """What is public of the records that vote.

    Attributes
    ----------
    n_samples : int
        Of records, or of persons.
    n_classes : int
        0 without labels.
    sizes : list of int
        What is publicly known of the sizes of the classes, or of the one without labels.
    domain : Domain or None
    n_features : int
        Columns.
    """

    n_samples: int
    n_classes: int
    sizes: list[int]
    domain: Domain | None
    n_features: int

    @property
    def width(self):
        """The number of features of a record among the candidates."""
        return self.n_features if self.domain is None else self.domain.n_features


class VotingSampler(FramesMixin, LabelSamplerMixin, PrivateEstimator):
    """Base of samplers that give public candidates weights by private votes."""

    # Tables and embeddings are for evolution.
    schema: Schema | None = None
    embedding: Callable[[np.ndarray], ArrayLike] | Transformer | None = None
    # Parameters that are public where they are not None.
    _declarations: tuple[str, ...] = ("domain",)
    _saved_state: dict = ENCODED_STATE | {
        "noise_multiplier_": float | None,
        "candidates_": list_of(Array("f", 2)),
        "weights_": list_of(Array("f", 1, low=0)),
        "history_": list[list[ClassVotes]],
    }
    _not_saved: dict = dict.fromkeys(
        ("_n_samples", "_sizes"), "Numbers of records, which only a fit needs."
    )
    _parameter_constraints: dict = {
        "epsilon": BUDGET,
        "delta": [StrOptions({"auto"}), Interval(Real, 0, 1, closed="neither")],
        "domain": [Domain, callable, None],
        "labels": [StrOptions({"public", "private"})],
        "classes": ["array-like", None],
        "label_proportions": ["array-like", None],
        "histogram": [StrOptions(set(HISTOGRAMS))],
        "postprocess": [StrOptions({"simplex", "threshold", "bounded_lipschitz"})],
        "threshold": [Interval(Real, 0, 1, closed="left")],
        "random_state": ["random_state"],
        "device": DEVICE,
    }

    @fit_context(prefer_skip_nested_validation=False)
    def plan(
        self,
        n_samples: int,
        n_features: int | None = None,
        *,
        class_sizes: ArrayLike | None = None,
    ) -> PrivacyReport:
        """Return what ``fit`` will release and what it costs, without a record.

        Parameters
        ----------
        n_samples : int
            Number of private records, or of persons where there is a ``unit``.
        n_features : int or None, default=None
            Number of columns; it is needed where ``domain`` is a function of it, or there is none.
        class_sizes : array-like of int of shape (n_classes,) or None, default=None
            Of public labels: the records of each class, in the order of the classes. None is a fit
            without labels, or with private ones where ``classes`` are declared.

        Returns
        -------
        PrivacyReport
            Equal to ``privacy_`` of a fit of so many records.

        Raises
        ------
        ValueError
            As ``fit`` for parameters.

        Warns
        -----
        UserWarning
            Where votes drown in noise.
        """
        return self._expected_report(self._expected(n_samples, n_features, class_sizes))

    def _read(self, X, y, seed):
        """Return the encoded records of each class, and what is public of them.

        With a unit, of each person one row that is drawn with the seed.
        """
        self._forget()
        self._check_parameters(y)
        X, y = self._one_labelled_row_each(X, y, seed)
        X = encode_votes(self, X)
        n_samples = X.shape[0]
        codes = self._encode_labels(y, n_samples)
        n_classes = 0 if y is None else len(self.classes_)
        members = [X] if y is None else [X[codes == code] for code in range(n_classes)]
        sizes = np.bincount(codes, minlength=n_classes) if self.labels == "public" else None
        domain = getattr(self, "domain_", None)
        voters = self._voters(n_samples, n_classes, sizes, domain, self.n_features_in_)
        self._n_samples, self._sizes = n_samples, voters.sizes
        return members, voters

    def _check_parameters(self, y):
        self._check_unit()
        self._check_label_parameters(y)
        if self.postprocess == "bounded_lipschitz" and self.metric not in ("l1", "l2"):
            raise ValueError(
                f"postprocess='bounded_lipschitz' needs metric 'l1' or 'l2', got {self.metric!r}."
            )

    def _expected(self, n_samples, n_features, class_sizes):
        """Return what is public of records that are not there yet."""
        self._check_parameters(None)
        n_samples = check_count(n_samples, "n_samples")
        classes = self._planned_classes(n_samples, class_sizes)
        if self.domain is None and self.schema is None:
            domain, width = None, check_count(n_features, "n_features")
        else:
            domain = declared_domain(self, n_features)
            width = domain.n_features if self.schema is None else len(self.schema)
        n_classes, sizes = classes
        return self._voters(n_samples, n_classes, sizes, domain, width)

    def _voters(self, n_samples, n_classes, class_sizes, domain, n_features):
        """Return Voters, whose sizes are exact where they are public, else what is known."""
        sizes = [n_samples]
        if n_classes and self.labels == "public":
            sizes = [int(size) for size in class_sizes]
            if min(sizes) == 0:
                raise ValueError("With public labels every class of classes needs a record.")
        elif n_classes:
            shares = self.label_proportions
            shares = np.ones(n_classes) if shares is None else np.asarray(shares, dtype=float)
            sizes = [max(1, round(n_samples * s)) for s in shares / shares.sum()]
        return Voters(n_samples, n_classes, sizes, domain, n_features)

    def _votes_plan(self, voters, shares, n_candidates, start_share=None, n_moments=0):
        if self.histogram == "laplace_threshold":
            shares = [1 / len(shares)] * len(shares)
        delta = self._delta(voters.n_samples)
        if math.isfinite(self.epsilon):
            check_delta_size(delta, voters.n_samples)
        return VotesPlan(
            epsilon=self.epsilon,
            delta=delta,
            shares=tuple(shares),
            histogram=self.histogram,
            start_share=start_share,
            n_candidates=n_candidates if self._is_certified else None,
            n_values=n_moments + len(shares) * n_candidates,
        )

    def _report(self, plan, voters, **words):
        """Return the report of a plan."""
        declared = [name for name in self._declarations if getattr(self, name) is not None]
        relation, public = self._label_terms(voters.n_classes > 0)
        report = plan.report(
            mechanism=(
                f"{type(self).__name__}: noisy votes of the records for public candidates"
                + (", which start from noisy moments" if plan.start_share else "")
            ),
            neighbouring=relation,
            public=("n_samples", "names of the columns", *declared, *public),
            noise_source=self._noise_description(),
            **words,
        )
        return self._protected(report)

    def _count(self, members, candidates, run, noise_seed):
        """Return the noisy votes of every class for its own candidates: one release.

        Parameters
        ----------
        members : list of arrays
            Private records of each class.
        candidates : list of ndarray
        run : GaussianSequenceRun or ThresholdedLaplaceRun
        noise_seed : int or None
        """
        counts = [
            nearest_neighbor_votes(
                records,
                self._decode(points),
                metric=self.metric,
                embedding=self._embedding(),
                device=self.device,
            )
            for records, points in zip(members, candidates, strict=True)
        ]
        counts = np.concatenate(counts).astype(np.float64)
        sizes = [len(points) for points in candidates]
        # A seeded noise is for these counts of these candidates: any others get another one.
        context = [type(self).__qualname__, pickle.dumps((run, sizes)), counts]
        noise = self._noise_source(noise_seed, context=[*context, np.concatenate(candidates)])
        return np.split(run.release(counts, noise), np.cumsum(sizes)[:-1])

    def _embedding(self):
        """Return the public map that records and candidates are compared by, or None."""
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
        """Refuse candidates that do not fit in memory, before they are made."""
        # As candidates and as records, each with a copy that is sorted or scaled.
        needed = 16 * n_candidates * (width + record_width)
        if self.postprocess == "bounded_lipschitz":
            # Distances, costs and plan of a transport problem, from one half to the other.
            needed += 8 * n_candidates**2
        check_fits(needed, f"{name}: votes for {n_candidates} candidates")

    def _class_size(self, code, sums, precisions):
        """Return the public or the released number of records of a class.

        Parameters
        ----------
        code : int
        sums : list of float
            Sums of the noisy votes of the class, one a release so far.
        precisions : list of float
            Their inverse variances, up to a factor.
        """
        if len(self._sizes) == 1 or self.labels == "public":
            return self._sizes[code]
        return float(np.clip(np.average(sums, weights=precisions), 1.0, self._n_samples))

    def _weights(self, candidates, shares):
        """Return probabilities from noisy shares of the votes, or None where none survives."""
        kept = shares != 0 if self.histogram == "laplace_threshold" else np.full(len(shares), True)
        if self.postprocess == "threshold" or not kept.any():
            return threshold_weights(shares, self.threshold)
        weights = np.zeros(len(shares))
        if self.postprocess == "simplex":
            weights[kept] = project_simplex(shares[kept])
            return weights
        places = self._decode(candidates[kept])
        embedding = self._embedding()
        if embedding is not None:
            places = getattr(embedding, "transform", embedding)(places)
        if self.histogram == "gaussian":
            # The size is public, or better known than one sum: noise on it is no news.
            shares = shares - (shares.sum() - 1) / len(shares)
        metric = "euclidean" if self.metric == "l2" else self.metric
        weights[kept] = project_bounded_lipschitz(places, shares[kept], metric=metric)
        return weights

    def _finish(self, candidates, weights, sizes):
        """Store the weighted candidates of every class, and the shares of the classes."""
        if hasattr(self, "classes_"):
            self._set_proportions(sizes)
        self.candidates_ = candidates
        self.weights_ = weights

    def _warn_nothing_left(self, code):
        of_class = f" of class {code}" if len(self._sizes) > 1 else ""
        warn_user(
            f"No candidate{of_class} kept any votes after noise and threshold, so the candidates "
            "stay as they were. A larger epsilon, fewer candidates, fewer steps or a smaller "
            "threshold would help.",
            UserWarning,
        )

    def sample(
        self,
        n_samples: int = 1,
        *,
        y: ArrayLike | None = None,
        random_state: int | np.random.RandomState | None = None,
    ) -> np.ndarray | pd.DataFrame:
        """Draw synthetic records: candidates by their weights, at no cost in privacy.

        Parameters
        ----------
        n_samples : int, default=1
            How many.
        y : label, array-like of shape (n_samples,) or None, default=None
            The class of all records, or of each. None draws them as ``sample_labels`` does.
        random_state : int, RandomState or None, default=None
            Seed of the draw.

        Returns
        -------
        X : ndarray or data frame of shape (n_samples, n_features)
            A data frame with a schema, or where ``fit`` was given one with names of columns.

        Raises
        ------
        ValueError
            A label that was not in ``classes_``, or any after a fit without labels.
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
        # The schema says of each column which labels it has, and whether it has nulls.
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
        fits = all(len(step) == n_classes for step in self.history_)
        demand(fits, "A step has other classes.")
