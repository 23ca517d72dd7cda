"""What predictors on synthetic rows share: one private fit, then any learner."""

from abc import abstractmethod
from collections.abc import Sequence
from typing import Any, Self

import numpy as np
import pandas as pd
from numpy.typing import ArrayLike
from sklearn.base import BaseEstimator, MetaEstimatorMixin, clone
from sklearn.frozen import FrozenEstimator
from sklearn.utils import get_tags

from sklearn_dpgen.accounting import PrivacyReport
from sklearn_dpgen.exceptions import PublicTypeError, PublicValueError
from sklearn_dpgen.ledger._base import PrivateEstimator
from sklearn_dpgen.ledger._ledger import LedgerLike
from sklearn_dpgen.preprocessing import TabularEncoder
from sklearn_dpgen.schema import Schema
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

__all__ = ["SyntheticDataPredictor", "estimator_has"]

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
