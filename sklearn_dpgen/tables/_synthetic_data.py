"""Predictors trained on the synthetic data of a private sampler."""

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
from sklearn_dpgen.ledger._base import PrivateEstimator, UnpaidScoreMixin, effective_parameters
from sklearn_dpgen.ledger._ledger import LedgerLike
from sklearn_dpgen.preprocessing import TabularEncoder
from sklearn_dpgen.schema import Categorical, Numeric, OpenCategorical, Ordinal, Schema
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

# Bounds on the automatic number of rows of a draw, which is otherwise the number of records.
_LEAST, _MOST = 5000, 50_000
# The most one-hot features: 50,000 rows of so many take 1.5 GiB.
_WIDEST = 4096


def estimator_has(method):
    """Return a check for ``available_if`` that the estimator, fitted or not, has a method."""

    def has(self):
        estimators = getattr(self, "estimators_", None)
        getattr(estimators[0] if estimators else self._unfitted(), method)
        return True

    return has


class SyntheticDataPredictor(MetaEstimatorMixin, PrivateEstimator):
    """Base of predictors that are trained on synthetic rows only."""

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
        """Return the default estimator."""

    @abstractmethod
    def _check_target(self, name, column):
        """Raise ValueError for a target column of the wrong type."""

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
        """Return the privacy report of a fit on ``n_samples`` records, before any is read.

        Parameters
        ----------
        n_samples : int or None, default=None
            Number of records, or of persons with ``unit``, as for the sampler.
        n_features : int or None, default=None
            Number of features; if given, it must be that of the plan.
        columns : sequence of str or None, default=None
            Columns of X. None is all columns of the schema except the target.

        Returns
        -------
        PrivacyReport
            Equal to ``privacy_`` of a fit; the report of its fit for a frozen sampler.

        Raises
        ------
        ValueError
            Invalid parameters, as in ``fit``.
        """
        sampler, features, _ = self._planned(columns)
        if n_features not in (None, len(features)):
            raise PublicValueError(
                f"n_features must be that of the schema, {len(features)}, got {n_features}."
            )
        return sampler.privacy_ if self._is_frozen() else sampler.plan(n_samples)

    @fit_context(prefer_skip_nested_validation=False)
    def fit(self, X: Any, y: ArrayLike | None = None) -> Self:
        """Fit the sampler on private records, and estimators on synthetic rows.

        Parameters
        ----------
        X : data frame, array-like, or a source that the sampler reads
            Private features of shape (n_samples, n_features). A frame has columns of the schema of
            the sampler, not necessarily all; an array has all, in the order of the schema. Without
            ``y``, the target is a column of X, and X may be any source that the sampler reads:
            files, a query, a table of an engine.
        y : array-like of shape (n_samples,) or None, default=None
            The private target. None takes it from X, by the name of the target of the sampler.

        Returns
        -------
        self : object

        Raises
        ------
        TypeError
            ``y`` is given, and X is neither a data frame in memory nor an array.
        ValueError
            The sampler has no schema, or not a single target of the right type; the target is
            neither in X nor given as ``y``, or both; or X has columns outside the schema. These
            are raised before a record is read. Errors of the sampler and of the estimator.
        """
        self._forget()
        X = as_pandas(X)
        # Arrays have no column names; other sources have those of the schema.
        named = isinstance(X, pd.DataFrame) or (y is None and not hasattr(X, "ndim"))
        if isinstance(X, pd.DataFrame):
            target, unit = self._schema_and_target()[1], self._ledger_and_unit()["unit"]
            features = [name for name in X.columns if unit is None or name != unit]
            if y is None:
                if target not in features:
                    raise PublicValueError(
                        f"y must be given, or X must have the target {target!r} as a column."
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
            # An interrupted fit has been charged.
            if hasattr(sampler, "privacy_"):
                self.privacy_ = sampler.privacy_
        # The rest is post-processing, which must not see the records.
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
        schema = getattr(sampler, "schema_", sampler.schema)
        self.encoder_ = TabularEncoder(Schema({name: schema[name] for name in features})).fit()
        estimators = [clone(self._unfitted()) for _ in draws]
        for estimator, each in zip(estimators, split_random_state(seed, len(draws)), strict=True):
            _seed(estimator, each)
        self.estimators_ = [
            estimator.fit(self._estimator_input(rows[features]), np.asarray(rows[target].tolist()))
            for estimator, rows in zip(estimators, draws, strict=True)
        ]

    def _prepared(self, draws, target):
        """Return the draws to train on."""
        return draws

    def _estimator_input(self, X):
        """Return features in the form that estimators take."""
        if self.encode or self.estimator is None:
            return self.encoder_.transform(X)
        return X

    def _is_frozen(self):
        """Return whether the sampler is fitted and frozen."""
        return isinstance(self.sampler, FrozenEstimator)

    def _unwrapped_sampler(self):
        """Return the sampler without FrozenEstimator."""
        return self.sampler.estimator if self._is_frozen() else self.sampler

    def _ledger_and_unit(self):
        """Return the ledger and the unit of a fit, from this object or its sampler."""
        params, chosen = effective_parameters(self._unwrapped_sampler()), {}
        for name in ("ledger", "unit"):
            own, of_sampler = getattr(self, name), params.get(name)
            if own is not None and self._is_frozen():
                raise PublicValueError(
                    f"{name} must be None for a frozen sampler, which is not fitted again."
                )
            if own is not None and name not in params:
                raise PublicValueError(f"{name} must be None for a sampler without this parameter.")
            if own is not None and of_sampler is not None:
                raise PublicValueError(f"{name} must be None if the sampler has one too.")
            chosen[name] = of_sampler if own is None else own
        return chosen

    def _schema_and_target(self):
        """Return the schema and the target of the sampler; ValueError if they do not fit."""
        params = self._unwrapped_sampler().get_params(deep=False)
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
        """Raise ValueError for a classifier in place of a regressor, or the reverse."""
        if not hasattr(self.estimator, "__sklearn_tags__"):
            return
        kind, own = (get_tags(one).estimator_type for one in (self.estimator, self))
        if {kind, own} == {"classifier", "regressor"}:
            name = type(self.estimator).__name__
            raise PublicValueError(f"estimator must be a {own}, got the {kind} {name}.")

    def _planned(self, features=None):
        """Return the sampler to fit, the features and the target, from public quantities."""
        schema, target = self._schema_and_target()
        if features is None:
            unit = self._ledger_and_unit()["unit"]
            features = [name for name in schema if name not in (target, unit)]
        if target in features:
            raise PublicValueError(
                f"X must not have the target as a column if y is given, got {target!r}."
            )
        unknown = [name for name in features if name not in schema]
        if unknown:
            raise PublicValueError(f"X must have columns of the schema only, got {unknown}.")
        opened = schema.open_columns
        widths = {
            name: opened[name].max_labels + 1 + opened[name].nullable
            if name in opened
            else schema[name].domain.n_features
            for name in features
        }
        width, wide = sum(widths.values()), max(widths, key=widths.__getitem__, default=None)
        if (self.encode or self.estimator is None) and width > _WIDEST:
            raise PublicValueError(
                f"X must have at most {_WIDEST} encoded features with encode=True, got {width}: "
                f"leave out column {wide!r}, or take another estimator with encode=False."
            )
        params = {k: value for k, value in self._ledger_and_unit().items() if value is not None}
        if self._is_frozen():
            check_is_fitted(self._unwrapped_sampler())
            return self._unwrapped_sampler(), list(features), target
        names = {*features, target}
        columns = {name: column for name, column in schema.items() if name in names}
        own = self._unwrapped_sampler().get_params(deep=False)
        # Constraints replace the rules of the schema, which may be of columns that X lacks.
        changes = {} if own.get("constraints") is None else {"rules": ()}
        schema = schema._with(columns, **changes)
        return clone(self.sampler).set_params(schema=schema, **params), list(features), target

    def _prediction_input(self, X):
        """Return records to predict in the form that estimators take."""
        check_is_fitted(self)
        X, names = as_pandas(X), list(self.encoder_.schema)
        if not isinstance(X, pd.DataFrame):
            X = _named(X, names)
        missing = [name for name in names if name not in X.columns]
        if missing:
            raise PublicValueError(f"X must have all columns of the fit, lacks {missing}.")
        return self._estimator_input(X[names])

    def _mean(self, method, X):
        """Return the mean of a method of all estimators."""
        features = self._prediction_input(X)
        with one_thread():
            return np.mean([getattr(each, method)(features) for each in self.estimators_], axis=0)

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
    """Return an array as a data frame with these column names."""
    rule = "X must be a data frame in memory, or an array of two dimensions."
    # Without dtype object, one value could change the type of all others.
    X = call_quietly(rule, np.asarray, X, getattr(X, "dtype", object))
    if X.ndim != 2:
        raise PublicTypeError(rule)
    if X.shape[1] != len(names):
        raise PublicValueError(
            f"X has {X.shape[1]} features, but the schema has {len(names)}: {names}."
        )
    return pd.DataFrame({name: X[:, j] for j, name in enumerate(names)}).infer_objects()


def _with_target(X, y, features, target):
    """Return a data frame of features and target."""
    if not isinstance(X, pd.DataFrame):
        X = _named(X, features)
    y = column_or_1d(y, warn=True)
    check_consistent_length(X, y)
    return X.assign(**{target: y})


def _seed(estimator, seed):
    """Set all parameters ``random_state`` of an estimator that are None."""
    unset = [
        name
        for name, value in estimator.get_params().items()
        if name.split("__")[-1] == "random_state" and value is None
    ]
    if seed is not None:
        estimator.set_params(**dict(zip(unset, split_random_state(seed, len(unset)), strict=True)))


class SyntheticDataClassifier(UnpaidScoreMixin, ClassifierMixin, SyntheticDataPredictor):
    """Classifier trained on synthetic rows of a private sampler.

    Parameters
    ----------
    sampler : TableSampler
        Sampler with a budget, a schema and one target, such as a TableSampler. In a
        :class:`~sklearn.frozen.FrozenEstimator`, it is fitted already, and nothing is charged.
        Within a :class:`~sklearn_dpgen.predictors.BarycenterClassifier`, leave its budget unset.
    estimator : classifier or None, default=None
        Any scikit-learn classifier, pipeline or search. None averages the probabilities of a
        logistic regression and of boosted trees of four leaves.
    n_samples : "auto" or int, default="auto"
        Rows of a draw. "auto" is the public or released number of records, at least 5000 and at
        most 50000.
    n_draws : int, default=5
        Number of draws, with an estimator for each, whose predictions are averaged. It costs time,
        but no privacy.
    encode : bool, default=True
        Whether ``estimator`` gets numbers from -1 to 1 and one-hot labels, from a TabularEncoder,
        or the drawn data frame.
    ledger : PrivacyLedger, path or None, default=None
        Ledger that the fit charges before it releases anything; BudgetExceededError is raised if
        the remaining budget is too small. None uses that of the sampler.
    unit : str or None, default=None
        Column of X with the person of each row; the guarantee then protects persons with all of
        their rows. The column must be outside the schema or an Identifier in it. None uses that of
        the sampler.
    random_state : int, RandomState or None, default=None
        Seed of the draws, and of estimators without one. The noise has the seed of the sampler.

    Attributes
    ----------
    sampler_ : estimator
        Fitted on private records.
    estimators_ : list of classifiers
        Fitted on synthetic rows, one for each draw.
    encoder_ : TabularEncoder
        Encoder of the features, in their order.
    classes_ : ndarray of shape (n_classes,)
        Sorted labels of all synthetic rows. A draw without a label gets one row of another draw.
    privacy_ : PrivacyReport
        The report of the sampler; training is post-processing.
    n_features_in_ : int
        Number of features.
    feature_names_in_ : ndarray of str
        Their names, in the order of the fit.

    See Also
    --------
    SyntheticDataRegressor : The regressor.
    sklearn_dpgen.predictors.BarycenterClassifier : Fair post-processing of its decisions.

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

    ``predict`` returns the label with the largest mean of ``predict_proba``, of
    ``decision_function``, or of votes, whichever the estimator has first.

    Scores, searches and calibrations on private rows are not private;
    :class:`~sklearn_dpgen.model_selection.PrivateSearchCV` charges for a choice. A search,
    calibration or pipeline as ``estimator`` is trained on synthetic rows, and costs no privacy.
    Steps before this object in a pipeline read private records, and must be public functions of
    each record, such as a TabularEncoder.

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
        # Trees have few leaves, since deep trees overfit the noise of the counts.
        trees = HistGradientBoostingClassifier(max_leaf_nodes=4)
        linear = LogisticRegression(max_iter=300)
        return VotingClassifier([("linear", linear), ("trees", trees)], voting="soft")

    def _check_target(self, name, column):
        if isinstance(column, Numeric) and column.integer:
            return
        if isinstance(column, OpenCategorical) and not column.is_known:
            raise PublicValueError(
                f"target {name!r} must have known labels for a classifier, got an open column."
            )
        if not isinstance(column, Categorical | OpenCategorical | Ordinal):
            raise PublicValueError(
                f"target {name!r} must have labels or whole numbers for a classifier, got "
                f"{type(column).__name__}."
            )
        kinds = {float if type(label) is int else type(label) for label in column.labels}
        if len(kinds) > 1:
            raise PublicValueError(
                f"target {name!r} must have labels of one type for a classifier."
            )

    def _prepared(self, draws, target):
        """Return draws with all labels, by adding one row for each missing label."""
        rows = pd.concat(draws, ignore_index=True).drop_duplicates(target)
        if len(rows) < 2:
            raise PublicValueError(
                f"{target!r} must have two labels, got one in {sum(map(len, draws))} synthetic "
                "rows: raise n_samples, or inspect sampler_, which is fitted."
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
            features = self._prediction_input(X)
            votes = [each.predict(features) for each in self.estimators_]
            scores = np.mean([np.equal.outer(vote, self.classes_) for vote in votes], axis=0)
        indices = (scores > 0).astype(int) if scores.ndim == 1 else scores.argmax(axis=1)
        return self.classes_[indices]

    @available_if(estimator_has("predict_proba"))
    def predict_proba(self, X: ArrayLike | pd.DataFrame) -> np.ndarray:
        """Return the mean class probabilities over draws.

        Parameters
        ----------
        X : data frame or array-like of shape (n_samples, n_features)

        Returns
        -------
        ndarray of shape (n_samples, n_classes)
            Probabilities in the order of ``classes_``.
        """
        return self._mean("predict_proba", X)

    @available_if(estimator_has("decision_function"))
    def decision_function(self, X: ArrayLike | pd.DataFrame) -> np.ndarray:
        """Return the mean decision function over draws.

        Parameters
        ----------
        X : data frame or array-like of shape (n_samples, n_features)

        Returns
        -------
        ndarray of shape (n_samples,) or (n_samples, n_classes)
        """
        return self._mean("decision_function", X)


class SyntheticDataRegressor(UnpaidScoreMixin, RegressorMixin, SyntheticDataPredictor):
    """Regressor trained on synthetic rows of a private sampler.

    Parameters
    ----------
    sampler, n_samples, n_draws, encode, ledger, unit, random_state
        As for :class:`SyntheticDataClassifier`; the target must be numeric.
    estimator : regressor or None, default=None
        None averages a ridge regression and boosted trees of four leaves.

    Attributes
    ----------
    sampler_ : estimator
        Fitted on private records.
    estimators_ : list of regressors
        Fitted on synthetic rows, one for each draw.
    encoder_ : TabularEncoder
        Encoder of the features, in their order.
    privacy_ : PrivacyReport
        The report of the sampler; training is post-processing.
    n_features_in_ : int
        Number of features.
    feature_names_in_ : ndarray of str
        Their names, in the order of the fit.

    See Also
    --------
    SyntheticDataClassifier : The classifier.
    sklearn_dpgen.predictors.BarycenterRegressor : Fair post-processing of its predictions.

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
                f"target {name!r} must have numbers for a regressor, got {type(column).__name__}."
            )

    def predict(self, X: ArrayLike | pd.DataFrame) -> np.ndarray:
        """Predict the target of records, as the mean over draws.

        Parameters
        ----------
        X : data frame or array-like of shape (n_samples, n_features)

        Returns
        -------
        ndarray of shape (n_samples,)
            Predictions in the units of the target.
        """
        return self._mean("predict", X)
