"""Privatized records that carry their mechanism, for estimators that learn from them."""

import functools
import hashlib
import json
import pickle
from dataclasses import dataclass, fields, is_dataclass, replace
from numbers import Real
from typing import Any

import numpy as np
import pandas as pd
from sklearn.base import TransformerMixin, clone

from sklearn_dpgen.accounting import PrivacyReport
from sklearn_dpgen.domains import Ball, Box, Domain, OneHot, Product
from sklearn_dpgen.exceptions import PublicTypeError, PublicValueError
from sklearn_dpgen.schema._binned import Binned
from sklearn_dpgen.schema._column import CategoryColumn
from sklearn_dpgen.utils._validation import EstimatorMixin

__all__ = [
    "Card",
    "LearnerPlanMixin",
    "Moments",
    "ReleaseMixin",
    "ReleasedArray",
    "check_release",
    "column_features",
    "drawn_by",
    "fit_mechanism",
    "learner_report",
    "moment_score",
    "moments_of",
    "release_digest",
    "release_of",
    "settings_text",
]

# The attribute of a data frame with its card; the label in it is kept in Parquet files.
_ATTRIBUTE = "sklearn_dpgen.release"


class Card(dict):
    """The label of a mechanism, as JSON, and a recipe to rebuild the mechanism.

    The recipe has the parameters of the mechanism without ``random_state`` and ``ledger``, the
    names of its columns, and its noise source: public values, and nothing computed by a fit or a
    release. A file holds the label only.

    Parameters
    ----------
    label : dict
        Result of :func:`release_of`.
    recipe : tuple or None
        Class, parameters, names of columns or None, and noise source.
    """

    def __init__(self, label, recipe=None):
        super().__init__(label)
        self._recipe = recipe

    @classmethod
    def of(cls, mechanism):
        """Return the card of a fitted mechanism."""
        parameters = mechanism.get_params(deep=False)
        parameters |= dict.fromkeys({"random_state", "ledger"} & parameters.keys())
        if "domain" in parameters:
            # A function of n_features often cannot be pickled.
            parameters["domain"] = mechanism.domain_
        names = getattr(mechanism, "feature_names_in_", None)
        source = mechanism.privacy_.noise_source
        return cls(_label(mechanism), (type(mechanism), parameters, names, source))

    def mechanism(self):
        """Return the mechanism, fitted anew, or None if only its label was kept in a file."""
        if self._recipe is None:
            return None
        kind, parameters, names, source = self._recipe
        mechanism = clone(kind(**parameters))
        width = None if names is None else pd.DataFrame(np.zeros((1, len(names))), columns=names)
        mechanism.fit(width)
        mechanism.privacy_ = drawn_by(mechanism.privacy_, source)
        return mechanism

    def __deepcopy__(self, memo):
        # pandas copies attributes deeply for each derived frame.
        return Card(self, self._recipe)

    def __reduce__(self):
        recipe = self._recipe
        try:
            pickle.dumps(recipe)
        except (pickle.PicklingError, AttributeError, TypeError):
            # For a class or function defined in a notebook only the label is pickled.
            recipe = None
        return Card, (dict(self), recipe)


def drawn_by(report, source):
    """Return the report of a mechanism with a given noise source."""
    parts = tuple(drawn_by(part, source) for part in report.parts)
    return replace(report, noise_source=source, parts=parts)


class ReleasedArray(np.ndarray):
    """An array of privatized records whose ``release`` is the card of its mechanism.

    Rows, copies and pickles keep the card; arrays that are joined or read from a file have none.
    The card prevents mistakes and proves nothing: an array that is changed in place keeps it.
    """

    def __array_finalize__(self, obj):
        self.release = getattr(obj, "release", None)

    def __array_wrap__(self, array, context=None, return_scalar=False):
        array = np.asarray(array)
        return array[()] if return_scalar else array

    def __reduce__(self):
        return _released_array, (np.asarray(self), self.release)


class ReleaseMixin(TransformerMixin):
    """Mixin of mechanisms: the result of ``transform``, array or data frame, carries their card."""

    def __init_subclass__(cls, **kwargs):
        # First scikit-learn's wrapper, which makes data frames if ``set_output`` requests them.
        super().__init_subclass__(**kwargs)
        if "transform" in vars(cls):
            cls.transform = _labelled(cls.transform)


def release_of(Y: object) -> dict | None:
    """Return the label of the mechanism that released records, if they carry it.

    Parameters
    ----------
    Y : array-like or data frame

    Returns
    -------
    dict or None
        ``mechanism``, the name of its class; ``epsilon``, in nats; ``delta``; and ``settings``, a
        digest of its domain or columns and its noise scales. None for records without a label, such
        as a plain array or records from a text file.

    Notes
    -----
    Estimators that learn from privatized records, such as
    :class:`~sklearn_dpgen.deconvolution.EntropicDeconvGAN`, take the mechanism itself from them,
    without its seed and ledger. Rows, folds, copies and pickles keep it; a Parquet file of a table
    keeps the label only; text files, ``np.save``, arrays that are joined or computed, and frames of
    Polars keep neither.

    Examples
    --------
    >>> import numpy as np
    >>> from sklearn_dpgen.domains import Box
    >>> from sklearn_dpgen.mechanisms import LaplaceMechanism, release_of
    >>> Y = LaplaceMechanism(2.0, domain=Box(0, 1)).fit_transform(np.zeros((9, 1)))
    >>> release_of(Y[:3])["epsilon"]
    2.0
    >>> release_of(np.asarray(Y)) is None
    True
    """
    if isinstance(Y, pd.DataFrame):
        return Y.attrs.get(_ATTRIBUTE)
    return getattr(Y, "release", None) if isinstance(Y, ReleasedArray) else None


def check_release(Y, mechanism):
    """Refuse privatized records with the label of another mechanism; without one they pass.

    Parameters
    ----------
    Y : array-like or data frame
    mechanism : Mechanism
        Fitted; its likelihood is about to be used.

    Raises
    ------
    PublicValueError
        The mechanisms differ; the message names both budgets.
    """
    released, expected = release_of(Y), _label(mechanism)
    if released is None or released == expected:
        return
    both = [
        f"{label['mechanism']} with epsilon={label['epsilon']:g}, delta={label['delta']:g}"
        for label in (released, expected)
    ]
    settings = " and other settings (domain, columns or noise)" if both[0] == both[1] else ""
    raise PublicValueError(
        f"The records were released by {both[0]}{settings}, but mechanism is {both[1]}: the noise "
        "to remove would be wrong. Leave mechanism out, as in a pipeline or a search: the records "
        "carry the one that released them."
    )


def _labelled(transform):
    @functools.wraps(transform)
    def labelled(self, X, *args, **kwargs):
        release = release_of(X)
        if release is not None:
            raise PublicValueError(
                f"{release['mechanism']} released these records with epsilon="
                f"{release['epsilon']:g} already. {type(self).__name__} takes raw ones."
            )
        Y = transform(self, X, *args, **kwargs)
        if isinstance(Y, pd.DataFrame):
            Y.attrs[_ATTRIBUTE] = Card.of(self)
        elif isinstance(Y, np.ndarray):
            Y = _released_array(Y, Card.of(self))
        return Y

    return labelled


def _released_array(array, release):
    released: Any = np.asarray(array).view(ReleasedArray)
    released.release = release
    return released


def settings_text(mechanism):
    """Return the domain or the columns of a fitted mechanism as JSON, exactly."""
    return json.dumps([_plain(value) for value in mechanism._release_settings()])


def _label(mechanism):
    """Return the label of a fitted mechanism, which identifies its likelihood, as JSON."""
    report = mechanism.privacy_
    return {
        "mechanism": type(mechanism).__qualname__,
        "epsilon": report.epsilon,
        "delta": report.delta,
        "settings": release_digest(mechanism),
    }


def release_digest(mechanism):
    """Return a digest of the settings of the likelihood, besides the budget."""
    scale = mechanism.privacy_.noise_scale
    scales = scale if isinstance(scale, dict) else {"": scale}
    # A scale may differ in its last digits between machines.
    scales = {name: None if value is None else f"{value:.6g}" for name, value in scales.items()}
    settings = settings_text(mechanism) + json.dumps(scales, sort_keys=True)
    return hashlib.blake2b(settings.encode(), digest_size=8).hexdigest()


def _plain(value):
    """Return a domain, a column or its contents as lists, strings and numbers, exactly."""
    if is_dataclass(value):
        # What is stored must keep its digest, so a field that came later must not appear in it.
        parts = [f.name for f in fields(value) if f.metadata.get("in_likelihood", True)]
        return [type(value).__name__, *(_plain(getattr(value, name)) for name in parts)]
    if isinstance(value, dict):
        return [[name, _plain(item)] for name, item in value.items()]
    if isinstance(value, np.ndarray):
        value = value.tolist()
    if isinstance(value, list | tuple):
        return [_plain(item) for item in value]
    if not isinstance(value, bool) and isinstance(value, Real):
        return float(value)
    return value if isinstance(value, bool | str | None) else repr(value)


@dataclass(frozen=True)
class Moments:
    """Means of features of records, and of products of features.

    A feature is a number in units of half of its declared range, from its middle, or the indicator
    of a category. Bins are converted to numbers, so features depend on the declarations only.

    Parameters
    ----------
    mean : ndarray of shape (q,)
        NaN if unknown.
    second : ndarray of shape (q, q)
        NaN also between features of one column, except for the square of a number.
    """

    mean: np.ndarray
    second: np.ndarray

    def distance(self, other):
        """Return the mean squared difference of means plus that of products."""
        return _mean_square(self.mean - other.mean) + _mean_square(self.second - other.second)


def _mean_square(difference):
    known = difference[np.isfinite(difference)]
    return float(np.mean(known**2)) if len(known) else 0.0


def moment_score(mechanism: Any, Y: np.ndarray, points: np.ndarray, weights: np.ndarray) -> float:
    """Return minus the distance of moments of weighted points and of raw records.

    Parameters
    ----------
    mechanism : Mechanism
        Fitted.
    Y : ndarray
        Encoded privatized records.
    points : ndarray of shape (n_points, n_features)
        Points of the domain; soft blocks are distributions of their categories.
    weights : ndarray of shape (n_points,)
        Probabilities of the points.
    """
    U, S = points.copy(), points**2
    for column, block in _columns(mechanism):
        if not isinstance(column, CategoryColumn) and column.nullable:
            # A null is encoded as the number 0.
            present = U[:, block.start + 1]
            S[:, block.start] *= present
            U[:, block.start] *= present
    learned = moments_of(mechanism, U, S, weights)
    return -learned.distance(mechanism._raw_moments(Y))


def moments_of(mechanism, U, S, weights):
    """Return the moments of weighted rows.

    Parameters
    ----------
    mechanism : Mechanism
    U : ndarray of shape (n, n_features)
        Estimates of encoded records, independent between columns given the record.
    S : ndarray of shape (n, n_features)
        Estimates of their squares; arbitrary for categories.
    weights : ndarray of shape (n,)
    """
    if columns := _columns(mechanism):
        parts = [column_features(column, U[:, b], S[:, b]) for column, b in columns]
        U, S = (np.hstack([part[i] for part in parts]) for i in range(2))
        group = np.repeat(np.arange(len(parts)), [part[0].shape[1] for part in parts])
        is_number = np.isfinite(S).all(axis=0)
    else:
        center, half, group = _frame(mechanism.domain_)
        S = (S - 2 * center * U + center**2) / half**2
        U = (U - center) / half
        is_number = np.bincount(group)[group] == 1
    second = (U * weights[:, None]).T @ U
    second[group[:, None] == group] = np.nan
    numbers = np.flatnonzero(is_number)
    second[numbers, numbers] = weights @ S[:, numbers]
    return Moments(weights @ U, second)


def column_features(column, U, S):
    """Return the features of an encoded column, and their squares, NaN for categories."""
    if isinstance(column, CategoryColumn) and not isinstance(column, Binned):
        return U, np.full(U.shape, np.nan)
    if isinstance(column, Binned):
        bins, edges = U[:, : column.n_bins], np.array(column.edges)
        middles = (edges[1:] + edges[:-1]) / 2
        value, square = bins @ middles[:, None], bins @ middles[:, None] ** 2
        flags = np.column_stack([bins.sum(axis=1), U[:, column.n_bins :]])
        flags = flags if column.nullable else flags[:, :0]
    else:
        value, square, flags = U[:, :1], S[:, :1], U[:, 1:]
    return np.hstack([value, flags]), np.hstack([square, np.full(flags.shape, np.nan)])


def _columns(mechanism):
    """Return the columns of a table with the features that encode them; none for an array."""
    encoder = getattr(mechanism, "encoder_", None)
    if encoder is None:
        return []
    return [(column, encoder.blocks_[name]) for name, column in encoder.columns_.items()]


def _frame(domain: Domain) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return the middle and half of the range of each feature, and the column of each feature."""
    d = domain.n_features
    if isinstance(domain, Product):
        centers, halves, groups = zip(*map(_frame, domain.domains), strict=True)
        starts = np.cumsum([0] + [group[-1] + 1 for group in groups])
        group = np.concatenate([g + start for g, start in zip(groups, starts, strict=False)])
        return np.concatenate(centers), np.concatenate(halves), group
    if isinstance(domain, OneHot):
        return np.zeros(d), np.ones(d), np.zeros(d, dtype=int)
    if isinstance(domain, Box):
        return (domain.low + domain.high) / 2, (domain.high - domain.low) / 2, np.arange(d)
    center = domain.center if isinstance(domain, Ball) else domain.project(np.zeros((1, d)))[0]
    return center, np.full(d, domain.diameter(np.inf) / 2), np.arange(d)


_REQUIRED = ("fit", "transform", "log_likelihood", "encode_release", "get_params")


def fit_mechanism(mechanism, X, *, privatize, noise_seed, ledger=None):
    """Return a fitted mechanism whose likelihood is known.

    Parameters
    ----------
    mechanism : Mechanism or None
        A parameter of an estimator, which is cloned. None takes the mechanism that privatized
        records carry.
    X : array-like, data frame or None
        Raw or privatized records; only their form is used.
    privatize : bool
        Whether the records are raw and will be privatized.
    noise_seed : int or None
        Seed for a mechanism that has none, with ``privatize``.
    ledger : PrivacyLedger, path or None
        Ledger for a mechanism that has none, with ``privatize``; each release is charged.

    Returns
    -------
    Mechanism
    """
    if mechanism is None:
        return _carried(X, privatize)
    missing = [name for name in _REQUIRED if not hasattr(mechanism, name)]
    if missing:
        raise PublicTypeError(
            "mechanism must be a Mechanism with a likelihood, such as LaplaceMechanism; "
            f"{type(mechanism).__name__} lacks {', '.join(missing)}."
        )
    mechanism = clone(mechanism)
    if privatize and mechanism.random_state is None:
        mechanism.set_params(random_state=noise_seed)
    if privatize and ledger is not None:
        if mechanism.ledger is not None:
            raise PublicValueError("ledger must be None if the mechanism has a ledger too.")
        mechanism.set_params(ledger=ledger)
    mechanism.fit(X)
    mechanism.require_noise()
    if privatize and hasattr(mechanism, "feature_names_in_"):
        # A release in pandas keeps the names of the columns.
        mechanism.set_output(transform="pandas")
    return mechanism


def _carried(X, privatize):
    """Return the mechanism that privatized records carry."""
    if privatize:
        raise PublicValueError("mechanism must be given with privatize=True, got None.")
    release = release_of(X)
    if release is None:
        raise PublicValueError(
            "mechanism must be given for records that carry none, got None: pass mechanism= for "
            "records that were privatized elsewhere, read from a file, joined or computed. In a "
            "pipeline the step before must be the mechanism."
        )
    mechanism = release.mechanism() if isinstance(release, Card) else None
    if mechanism is None:
        raise PublicValueError(
            "mechanism must be given for records that carry only a label, as from a file, got "
            f"None: pass mechanism=, a {release['mechanism']} with epsilon="
            f"{release['epsilon']:g}, delta={release['delta']:g}."
        )
    mechanism.require_noise()
    return mechanism


def learner_report(report, *, privatize, carried=False):
    """Return the report of a fit on privatized records: their cost, as the rest is free.

    Parameters
    ----------
    report : PrivacyReport
        Report of the mechanism.
    privatize : bool
        Whether the fit privatized its records.
    carried : bool, default=False
        Whether the records carried the mechanism, and so their noise source.

    Returns
    -------
    PrivacyReport
    """
    if privatize:
        return replace(report, caveats=(*report.caveats, "each_fit_and_score"))
    source = report.noise_source if carried else "drawn where the records were privatized"
    return replace(report, noise_source=source, caveats=(*report.caveats, "nothing_privatized"))


class LearnerPlanMixin(EstimatorMixin):
    """The plan of an estimator that learns from privatized records, by its mechanism."""

    # The default of learners that never see raw records.
    privatize = False

    def plan(self, n_samples: int | None = None, n_features: int | None = None) -> PrivacyReport:
        """Return the privacy report of a fit, without records.

        Parameters
        ----------
        n_samples : int or None, default=None
            Not used: the guarantee is for each person.
        n_features : int or None, default=None
            Number of features, if the mechanism's domain is a callable.

        Returns
        -------
        PrivacyReport
            The cost of the records, of which a fit charges nothing; with ``privatize=True``, if
            the estimator has this parameter, the cost of a fit on raw records.
        """
        if self.mechanism is None:
            raise PublicValueError(
                "mechanism must be given for plan, got None: ask the mechanism for its plan."
            )
        width = None if n_features is None else np.zeros((1, n_features))
        mechanism = fit_mechanism(
            self.mechanism,
            width,
            privatize=self.privatize,
            noise_seed=None if self.random_state is None else 0,
        )
        return learner_report(mechanism.privacy_, privatize=self.privatize)
