"""Predictors that are trained on the synthetic data of a private sampler."""

from abc import abstractmethod
from collections.abc import Sequence
from typing import Any, Self

import numpy as np
import pandas as pd
from numpy.typing import ArrayLike
from sklearn.base import BaseEstimator, ClassifierMixin, MetaEstimatorMixin, RegressorMixin, clone
from sklearn.ensemble import (
    HistGradientBoostingClassifier,
    HistGradientBoostingRegressor,
    VotingClassifier,
    VotingRegressor,
)
from sklearn.frozen import FrozenEstimator
from sklearn.linear_model import LogisticRegression, Ridge
from sklearn.utils import get_tags
from sklearn.utils.metaestimators import available_if

from sklearn_dpgen.accounting import PrivacyReport
from sklearn_dpgen.exceptions import PublicTypeError, PublicValueError
from sklearn_dpgen.ledger._base import PrivateEstimator, UnpaidScoreMixin
from sklearn_dpgen.ledger._ledger import LedgerLike
from sklearn_dpgen.preprocessing import TabularEncoder
from sklearn_dpgen.schema import Categorical, Numeric, Ordinal, Schema
from sklearn_dpgen.utils._frames import as_pandas
from sklearn_dpgen.utils._random import split_random_state
from sklearn_dpgen.utils._threads import one_thread
from sklearn_dpgen.utils._validation import (
    HasMethods,
    Integral,
    Interval,
    StrOptions,
    call_quietly,
    check_consistent_length,
    check_is_fitted,
    column_or_1d,
    fit_context,
)

__all__ = ["SyntheticDataClassifier", "SyntheticDataRegressor"]

# Rows of a draw: as many as there are records, within these.
_LEAST, _MOST = 5000, 50_000


def estimator_has(method):
    """Return a check that the estimator, fitted or not, has a method."""

    def has(self):
        estimators = getattr(self, "estimators_", None)
        getattr(estimators[0] if estimators else self._unfitted(), method)
        return True

    return has


class SyntheticDataPredictor(MetaEstimatorMixin, PrivateEstimator):
    """Base of the predictors whose estimators see synthetic rows alone."""

    _parameter_constraints: dict = {
        "sampler": [HasMethods(["fit", "sample"])],
        "estimator": [HasMethods(["fit", "predict"]), None],
        "n_samples": [StrOptions({"auto"}), Interval(Integral, 2, None, closed="left")],
        "n_draws": [Interval(Integral, 1, None, closed="left")],
        "encode": ["boolean"],
        "random_state": ["random_state"],
    }
    _uses_torch = False

    def __init__(
        self,
        sampler: BaseEstimator,
        estimator: BaseEstimator | None = None,
        *,
        n_samples: int | str = "auto",
        n_draws: int = 5,
        encode: bool = True,
        ledger: LedgerLike = None,
        unit: str | None = None,
        random_state: int | np.random.RandomState | None = None,
    ) -> None:
        self.sampler = sampler
        self.estimator = estimator
        self.n_samples = n_samples
        self.n_draws = n_draws
        self.encode = encode
        self.ledger = ledger
        self.unit = unit
        self.random_state = random_state

    @abstractmethod
    def _default(self):
        """Return the estimator that learns where none is given."""

    @abstractmethod
    def _check_target(self, name, column):
        """Refuse a target that no such estimator can learn."""

    def _unfitted(self):
        return self._default() if self.estimator is None else self.estimator

    @fit_context(prefer_skip_nested_validation=False)
    def plan(
        self,
        n_samples: int | None = None,
        n_features: int | None = None,
        *,
        columns: Sequence[str] | None = None,
    ) -> PrivacyReport:
        """Return the privacy report of a fit on a number of records, before any is read.

        Parameters
        ----------
        n_samples : int or None, default=None
            As of the sampler: number of records, or with ``unit`` of persons.
        n_features : int or None, default=None
            Number of features, if given.
        columns : sequence of str or None, default=None
            Names of the columns that X will have. None is all of the schema but the target.

        Returns
        -------
        PrivacyReport
            Equal to ``privacy_`` of a fit. Its forecast is of the sampler, not of the estimator.
            Of a frozen sampler, what it has paid.

        Raises
        ------
        ValueError
            What ``fit`` would refuse of the parameters.
        """
        sampler, features, _ = self._planned(columns)
        if n_features not in (None, len(features)):
            raise PublicValueError(f"n_features must be that of the schema, {len(features)}.")
        return sampler.privacy_ if self._is_frozen() else sampler.plan(n_samples)

    @fit_context(prefer_skip_nested_validation=False)
    def fit(self, X: Any, y: ArrayLike | None = None) -> Self:
        """Fit the sampler on private records, and the estimator on rows that it draws.

        Parameters
        ----------
        X : data frame, array-like, or a source that the sampler reads
            Private features of shape (n_samples, n_features). A frame has columns of the sampler's
            schema; those that it lacks are left out. An array has all of them, in the order of the
            schema. Without ``y``, the target is one of the columns, and X may be whatever the
            sampler reads: files, a query, a table of an engine.
        y : array-like of shape (n_samples,) or None, default=None
            The sampler's target, private too. None takes it from X, by its name.

        Returns
        -------
        self : object

        Raises
        ------
        TypeError
            With ``y``, X is neither a data frame in memory nor an array.
        ValueError
            Before a record is read: the sampler has no schema, or no single target in it that such
            an estimator can learn; X has the target although ``y`` is given, or lacks it although
            it is not, or has columns that the schema lacks. Or what the sampler and the estimator
            raise.
        """
        self._forget()
        X = as_pandas(X)
        # An array has no names; those of any other source are the schema's.
        named = isinstance(X, pd.DataFrame) or (y is None and not hasattr(X, "ndim"))
        if isinstance(X, pd.DataFrame):
            target, unit = self._declared()[1], self._who()["unit"]
            features = [name for name in X.columns if unit is None or name != unit]
            if y is None:
                if target not in features:
                    raise PublicValueError(
                        f"y is None, and X lacks the target {target!r}: give it as y, or as a "
                        "column of X."
                    )
                features.remove(target)
        else:
            features = None
        sampler, features, target = self._planned(features)
        if y is not None:
            X = _with_target(X, y, features, target)
        *seeds, seed = split_random_state(self.random_state, self.n_draws + 1)
        self.sampler_ = sampler
        try:
            if not self._is_frozen():
                sampler.fit(X)
        finally:
            # What is stopped has been paid for.
            if hasattr(sampler, "privacy_"):
                self.privacy_ = sampler.privacy_
        # What follows is post-processing: the records are not read again.
        del X, y
        self._learn_from(sampler, features, target, seeds, seed)
        if named:
            self.feature_names_in_ = np.array(features, dtype=object)
        self.n_features_in_ = len(features)
        return self

    def _learn_from(self, sampler, features, target, seeds, seed):
        """Fit an estimator on each of several draws of a fitted sampler."""
        n_rows = self.n_samples
        if n_rows == "auto":
            n_rows = round(np.clip(getattr(sampler, "n_records_", _MOST), _LEAST, _MOST))
        draws = [as_pandas(sampler.sample(n_rows, random_state=each)) for each in seeds]
        draws = self._prepared([rows[rows[target].notna()] for rows in draws], target)
        schema = sampler.schema
        self.encoder_ = TabularEncoder(Schema({name: schema[name] for name in features})).fit()
        estimators = [clone(self._unfitted()) for _ in draws]
        for estimator, each in zip(estimators, split_random_state(seed, len(draws)), strict=True):
            _seed(estimator, each)
        self.estimators_ = [
            estimator.fit(self._given(rows[features]), np.asarray(rows[target].tolist()))
            for estimator, rows in zip(estimators, draws, strict=True)
        ]

    def _prepared(self, draws, target):
        """Return the draws that estimators learn from."""
        return draws

    def _given(self, X):
        """Return what an estimator is given of features."""
        if self.encode or self.estimator is None:
            return self.encoder_.transform(X)
        return X

    def _is_frozen(self):
        """Return whether the sampler was fitted before, and stays as it is."""
        return isinstance(self.sampler, FrozenEstimator)

    def _given_sampler(self):
        return self.sampler.estimator if self._is_frozen() else self.sampler

    def _who(self):
        """Return the ledger and the unit of a fit, given here or to the sampler."""
        params, found = self._given_sampler().get_params(deep=False), {}
        for name in ("ledger", "unit"):
            own, of_sampler = getattr(self, name), params.get(name)
            if own is not None and (of_sampler is not None or name not in params):
                has = "has one too" if name in params else "has none"
                raise PublicValueError(
                    f"{name} is for the sampler, which {has}: give it to one of them."
                )
            if own is not None and self._is_frozen():
                raise PublicValueError(
                    f"{name} is for the sampler, which is frozen: its fit is paid."
                )
            found[name] = of_sampler if own is None else own
        return found

    def _declared(self):
        """Return the schema and the target of the sampler."""
        params = self._given_sampler().get_params(deep=False)
        target, schema = params.get("target"), params.get("schema")
        if not isinstance(schema, Schema):
            raise PublicValueError("sampler must have a schema, as TableSampler has.")
        if not isinstance(target, str) or target not in schema:
            raise PublicValueError(
                f"sampler must have a column of its schema as target, got {target!r}."
            )
        self._check_target(target, schema[target])
        self._check_estimator()
        return schema, target

    def _check_estimator(self):
        if not hasattr(self.estimator, "__sklearn_tags__"):
            return
        kind, own = (get_tags(one).estimator_type for one in (self.estimator, self))
        if {kind, own} == {"classifier", "regressor"}:
            name = type(self.estimator).__name__
            raise PublicValueError(f"estimator must be a {own}, and {name} is a {kind}.")

    def _planned(self, features=None):
        """Return the sampler of a fit, the features, and the target, from what is public."""
        schema, target = self._declared()
        if features is None:
            features = [name for name in schema if name not in (target, self._who()["unit"])]
        if target in features:
            raise PublicValueError(
                f"X must not have the target among its columns where y is given: {target!r}."
            )
        unknown = [name for name in features if name not in schema]
        if unknown:
            raise PublicValueError(f"X has columns that are not in the schema: {unknown}.")
        given = {name: value for name, value in self._who().items() if value is not None}
        if self._is_frozen():
            check_is_fitted(self._given_sampler())
            return self._given_sampler(), list(features), target
        names = {*features, target}
        schema = Schema({name: column for name, column in schema.items() if name in names})
        return clone(self.sampler).set_params(schema=schema, **given), list(features), target

    def _features_of(self, X):
        """Return what the estimators are given of records to predict."""
        check_is_fitted(self)
        X, names = as_pandas(X), list(self.encoder_.schema)
        if not isinstance(X, pd.DataFrame):
            X = _named(X, names)
        missing = [name for name in names if name not in X.columns]
        if missing:
            raise PublicValueError(f"X lacks columns of the fit: {missing}.")
        return self._given(X[names])

    def _mean(self, method, X):
        """Return the mean of what the estimators of all draws say of records."""
        given = self._features_of(X)
        with one_thread():
            return np.mean([getattr(each, method)(given) for each in self.estimators_], axis=0)

    def __sklearn_is_fitted__(self):
        return hasattr(self, "n_features_in_")

    def __sklearn_tags__(self):
        tags = super().__sklearn_tags__()
        tags.non_deterministic = self.random_state is None
        tags.input_tags.categorical = True
        tags.input_tags.string = True
        tags.input_tags.allow_nan = True
        return tags


def _named(X, names):
    """Return an array as a frame with columns of these names."""
    rule = "X must be a data frame in memory, or an array of two dimensions."
    # As an array of numbers or of texts, one value would decide about the others.
    X = call_quietly(rule, np.asarray, X, getattr(X, "dtype", object))
    if X.ndim != 2:
        raise PublicTypeError(rule)
    if X.shape[1] != len(names):
        raise PublicValueError(
            f"X has {X.shape[1]} features, but the schema has {len(names)}: {names}."
        )
    return pd.DataFrame({name: X[:, j] for j, name in enumerate(names)}).infer_objects()


def _with_target(X, y, features, target):
    """Return one frame of features and target."""
    if not isinstance(X, pd.DataFrame):
        X = _named(X, features)
    y = column_or_1d(y, warn=True)
    check_consistent_length(X, y)
    return X.assign(**{target: y})


def _seed(estimator, seed):
    """Seed what an estimator draws, wherever no seed is given."""
    unset = [
        name
        for name, value in estimator.get_params().items()
        if name.split("__")[-1] == "random_state" and value is None
    ]
    if seed is not None:
        estimator.set_params(**dict(zip(unset, split_random_state(seed, len(unset)), strict=True)))


class SyntheticDataClassifier(UnpaidScoreMixin, ClassifierMixin, SyntheticDataPredictor):
    """Any classifier, trained on rows that a private sampler draws.

    Parameters
    ----------
    sampler : TableSampler
        With a schema and one target in it, or another sampler that has both. The budget is its
        own. In a :class:`~sklearn.frozen.FrozenEstimator`, it was fitted before, and nothing more
        is paid.
    estimator : classifier or None, default=None
        Of scikit-learn, or of the same form: a pipeline, a search, a calibrated one. None is the
        mean of the probabilities of a logistic regression and of boosted trees of four leaves.
    n_samples : "auto" or int, default="auto"
        Rows of a draw. "auto" takes as many as there are records, as far as that is public or was
        released, at least 5000 and at most 50000.
    n_draws : int, default=5
        How many draws there are, with an estimator for each. Their mean is predicted. It costs
        time, and no privacy.
    encode : bool, default=True
        Whether ``estimator`` gets features as numbers from -1 to 1 and one-hot labels, by a
        TabularEncoder, or a data frame as it is drawn.
    ledger : PrivacyLedger, path or None, default=None
        Where the fit of the sampler is booked, before anything of a record is released: it raises
        BudgetExceededError where less is left. None is the sampler's own, if it has one.
    unit : str or None, default=None
        Column of X that says whose row each is: the sampler protects a person with all of their
        rows. The column is beside the schema or an Identifier of it, and nothing is learned from
        it. None is the sampler's own, if it has one, or protects rows.
    random_state : int, RandomState or None, default=None
        Of the drawn rows, and of estimators that have none; the sampler has one for its noise.

    Attributes
    ----------
    sampler_ : estimator
        Fitted on private records.
    estimators_ : list of classifiers
        Fitted on synthetic rows, one for each draw.
    encoder_ : TabularEncoder
        Of the features, in their order.
    classes_ : ndarray of shape (n_classes,)
        The labels of synthetic rows, sorted. A draw that lacks one is lent a row of another.
    privacy_ : PrivacyReport
        That of the sampler: all that follows is post-processing.
    n_features_in_ : int
        Number of features.
    feature_names_in_ : ndarray of str
        Their names, in the order of the fit.

    See Also
    --------
    SyntheticDataRegressor : The same for numbers.
    sklearn_dpgen.predictors.BarycenterClassifier : Makes decisions alike between groups after this.

    Notes
    -----
    **Formal guarantee**

    :Promise: Central (ε, δ)-differential privacy of all that ``fit`` stores, and of all that is
        computed from it.
    :Neighbours: Those of ``sampler``. With ``unit``: a person with all their rows in place of a
        record.
    :Public: What ``sampler`` takes to be public, its target among it.
    :Bounded by: ``sampler``, which alone reads the records. The estimator learns from rows that it
        draws.
    :Noise: That of ``sampler``; nothing is added here.
    :Priced by: ``sampler``: ``privacy_`` is its report. What follows is post-processing.
    :Not covered: Steps before this object in a pipeline, scores of private rows, and calibration on
        them; other fits of the same records, which a ``ledger`` adds up; errors of a fit; a
        ``random_state`` that others know or guess.
    :Proof: That of ``sampler``; :ref:`learners`.

    ``predict`` gives the label of the largest mean probability; of the largest mean decision where
    the estimator has no probabilities, and of most votes where it has neither.

    Scores of private rows are not private, nor is what a search chooses by them, nor a calibration
    on them: :class:`~sklearn_dpgen.model_selection.PrivateSearchCV` pays for a choice. Searches and
    calibrations *within*, as ``estimator``, see synthetic rows alone, and are free. So is whatever
    is before the classifier in a pipeline that is the ``estimator``; steps before this object in a
    pipeline read private records, and have to be public, as a TabularEncoder is.

    Examples
    --------
    >>> from sklearn.ensemble import HistGradientBoostingClassifier
    >>> from sklearn_dpgen.datasets import load_rand_health
    >>> from sklearn_dpgen.tables import TableSampler, SyntheticDataClassifier
    >>> data = load_rand_health()
    >>> sampler = TableSampler(epsilon=1.0, schema=data.schema, target="hlthp")
    >>> model = SyntheticDataClassifier(sampler, HistGradientBoostingClassifier(), n_draws=2)
    >>> X = data.frame[["mdvis", "disea", "idp"]]
    >>> model.fit(X, data.frame["hlthp"]).predict(X[:3]).shape
    (3,)
    >>> model.privacy_.epsilon
    1.0
    """

    def _default(self):
        # Trees of few leaves: deep ones learn the noise of the counts.
        trees = HistGradientBoostingClassifier(max_leaf_nodes=4)
        members = [("linear", LogisticRegression(max_iter=300)), ("trees", trees)]
        return VotingClassifier(members, voting="soft")

    def _check_target(self, name, column):
        if isinstance(column, Numeric) and column.integer:
            return
        if not isinstance(column, Categorical | Ordinal):
            raise PublicValueError(
                f"target {name!r} must have labels or whole numbers for a classifier, its column "
                f"is {type(column).__name__}."
            )
        kinds = {float if type(label) is int else type(label) for label in column.labels}
        if len(kinds) > 1:
            raise PublicValueError(
                f"target {name!r} must have labels of one type for a classifier."
            )

    def _prepared(self, draws, target):
        """Return draws that have all labels: one row of each that a draw lacks is lent to it."""
        rows = pd.concat(draws, ignore_index=True).drop_duplicates(target)
        if len(rows) < 2:
            raise PublicValueError(
                f"All of {sum(map(len, draws))} synthetic rows have one {target!r}: raise "
                "n_samples, or look at sampler_, which is fitted."
            )
        self.classes_ = np.unique(rows[target].tolist())
        return [pd.concat([draw, rows[~rows[target].isin(draw[target])]]) for draw in draws]

    def predict(self, X: ArrayLike | pd.DataFrame) -> np.ndarray:
        """Predict the label of records.

        Parameters
        ----------
        X : data frame or array-like of shape (n_samples, n_features)

        Returns
        -------
        ndarray of shape (n_samples,)
        """
        if hasattr(self, "predict_proba"):
            scores = self.predict_proba(X)
        elif hasattr(self, "decision_function"):
            scores = self.decision_function(X)
        else:
            given = self._features_of(X)
            votes = [each.predict(given) for each in self.estimators_]
            scores = np.mean([np.equal.outer(vote, self.classes_) for vote in votes], axis=0)
        places = (scores > 0).astype(int) if scores.ndim == 1 else scores.argmax(axis=1)
        return self.classes_[places]

    @available_if(estimator_has("predict_proba"))
    def predict_proba(self, X: ArrayLike | pd.DataFrame) -> np.ndarray:
        """Predict the probability of each class: the mean over draws.

        Parameters
        ----------
        X : data frame or array-like of shape (n_samples, n_features)

        Returns
        -------
        ndarray of shape (n_samples, n_classes)
            In the order of ``classes_``.
        """
        return self._mean("predict_proba", X)

    @available_if(estimator_has("decision_function"))
    def decision_function(self, X: ArrayLike | pd.DataFrame) -> np.ndarray:
        """Return the mean of the estimators' decision functions.

        Parameters
        ----------
        X : data frame or array-like of shape (n_samples, n_features)

        Returns
        -------
        ndarray of shape (n_samples,) or (n_samples, n_classes)
        """
        return self._mean("decision_function", X)


class SyntheticDataRegressor(UnpaidScoreMixin, RegressorMixin, SyntheticDataPredictor):
    """Any regressor, trained on rows that a private sampler draws.

    Parameters
    ----------
    sampler, n_samples, n_draws, encode, ledger, unit, random_state
        As of :class:`SyntheticDataClassifier`; the target is a number.
    estimator : regressor or None, default=None
        None is the mean of ridge regression and of boosted trees of four leaves.

    Attributes
    ----------
    sampler_ : estimator
        Fitted on private records.
    estimators_ : list of regressors
        Fitted on synthetic rows, one for each draw.
    encoder_ : TabularEncoder
        Of the features, in their order.
    privacy_ : PrivacyReport
        That of the sampler: all that follows is post-processing.
    n_features_in_ : int
        Number of features.
    feature_names_in_ : ndarray of str
        Their names, in the order of the fit.

    See Also
    --------
    SyntheticDataClassifier : The same for labels.
    sklearn_dpgen.predictors.BarycenterRegressor : Makes predictions alike between groups after
        this.

    Notes
    -----
    **Formal guarantee**

    :Promise: Central (ε, δ)-differential privacy of all that ``fit`` stores, and of all that is
        computed from it.
    :Neighbours: Those of ``sampler``. With ``unit``: a person with all their rows in place of a
        record.
    :Public: What ``sampler`` takes to be public, its target among it.
    :Bounded by: ``sampler``, which alone reads the records. The estimator learns from rows that it
        draws.
    :Noise: That of ``sampler``; nothing is added here.
    :Priced by: ``sampler``: ``privacy_`` is its report. What follows is post-processing.
    :Not covered: Steps before this object in a pipeline, scores of private rows, and calibration on
        them; other fits of the same records, which a ``ledger`` adds up; errors of a fit; a
        ``random_state`` that others know or guess.
    :Proof: That of ``sampler``; :ref:`learners`.

    Examples
    --------
    >>> from sklearn_dpgen.datasets import load_rand_health
    >>> from sklearn_dpgen.tables import TableSampler, SyntheticDataRegressor
    >>> data = load_rand_health()
    >>> sampler = TableSampler(epsilon=1.0, schema=data.schema, target="mdvis")
    >>> model = SyntheticDataRegressor(sampler, n_draws=2)
    >>> X = data.frame[["disea", "idp", "hlthp"]]
    >>> model.fit(X, data.frame["mdvis"]).predict(X[:3]).shape
    (3,)
    """

    def _default(self):
        trees = HistGradientBoostingRegressor(max_leaf_nodes=4)
        return VotingRegressor([("linear", Ridge()), ("trees", trees)])

    def _check_target(self, name, column):
        labels = column.labels if isinstance(column, Categorical | Ordinal) else None
        is_number = isinstance(column, Numeric) or (
            labels is not None and all(type(label) in (int, float) for label in labels)
        )
        if not is_number:
            raise PublicValueError(
                f"target {name!r} must have numbers for a regressor, its column is "
                f"{type(column).__name__}."
            )

    def predict(self, X: ArrayLike | pd.DataFrame) -> np.ndarray:
        """Predict the target of records: the mean over draws.

        Parameters
        ----------
        X : data frame or array-like of shape (n_samples, n_features)

        Returns
        -------
        ndarray of shape (n_samples,)
            In the units of the target.
        """
        return self._mean("predict", X)
