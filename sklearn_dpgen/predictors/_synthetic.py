"""Predictors that are trained on synthetic rows: one private fit, and any estimator after it."""

from typing import Self

import numpy as np
import pandas as pd
from numpy.typing import ArrayLike
from sklearn.base import (
    BaseEstimator,
    ClassifierMixin,
    MetaEstimatorMixin,
    RegressorMixin,
    clone,
)
from sklearn.pipeline import make_pipeline
from sklearn.utils.metaestimators import available_if

from sklearn_dpgen.accounting import PrivacyReport
from sklearn_dpgen.budget._base import PrivateEstimator
from sklearn_dpgen.budget._ledger import LedgerLike
from sklearn_dpgen.predictors._default_learners import AveragedClassifier, AveragedRegressor
from sklearn_dpgen.preprocessing import TabularEncoder
from sklearn_dpgen.schema import Schema
from sklearn_dpgen.utils._frames import as_pandas
from sklearn_dpgen.utils._random import split_random_state
from sklearn_dpgen.utils._validation import (
    HasMethods,
    Integral,
    Interval,
    check_is_fitted,
    fit_context,
)

__all__ = ["SyntheticClassifier", "SyntheticRegressor"]


def _estimator_has(method):
    """Return a check that the estimator, fitted or not, has a method."""

    def has(self):
        estimator = getattr(self, "estimator_", self.estimator)
        getattr(self._default if estimator is None else estimator, method)
        return True

    return has


class _SyntheticPredictor(MetaEstimatorMixin, PrivateEstimator):
    """Base of the predictors whose estimator sees synthetic rows alone."""

    _parameter_constraints: dict = {
        "sampler": [HasMethods(["fit", "sample"])],
        "estimator": [HasMethods(["fit", "predict"]), None],
        "encode": ["boolean"],
        "n_synthetic": [Interval(Integral, 2, None, closed="left")],
        "random_state": ["random_state"],
    }

    def __init__(
        self,
        sampler: BaseEstimator,
        estimator: BaseEstimator | None = None,
        *,
        encode: bool = True,
        n_synthetic: int = 100_000,
        ledger: LedgerLike = None,
        unit: str | None = None,
        random_state: int | np.random.RandomState | None = None,
    ) -> None:
        self.sampler = sampler
        self.estimator = estimator
        self.encode = encode
        self.n_synthetic = n_synthetic
        self.ledger = ledger
        self.unit = unit
        self.random_state = random_state

    @fit_context(prefer_skip_nested_validation=False)
    def plan(
        self,
        n_samples: int | None = None,
        n_features: int | None = None,
        *,
        columns: list | None = None,
    ) -> PrivacyReport:
        """Return the report of a fit on so many records, without any: the sampler plans.

        Parameters
        ----------
        n_samples : int or None, default=None
            As of the sampler: number of records, or with ``unit`` of persons.
        n_features : int or None, default=None
            Number of features, if given.
        columns : list of str or None, default=None
            Names of the columns that X will have. None is all of the schema but the target.

        Returns
        -------
        PrivacyReport
            Equal to ``privacy_`` of a fit. Its forecast is of the sampler, not of the estimator.

        Raises
        ------
        ValueError
            What ``fit`` would refuse of the parameters.
        """
        sampler, _ = self._sampler_of(columns)
        n_columns = len(sampler.schema) - 1
        if n_features not in (None, n_columns):
            raise ValueError(f"n_features must be that of the schema, {n_columns}.")
        return sampler.plan(n_samples)

    @fit_context(prefer_skip_nested_validation=False)
    def fit(self, X: pd.DataFrame, y: ArrayLike) -> Self:
        """Fit the sampler on private records, and the estimator on rows that it draws.

        Parameters
        ----------
        X : data frame of shape (n_samples, n_features)
            Private features, each a column of the sampler's schema. Columns of the schema that it
            lacks are left out.
        y : array-like of shape (n_samples,)
            The sampler's target, private too.

        Returns
        -------
        self : object

        Raises
        ------
        TypeError
            X is no data frame.
        ValueError
            The sampler has no target, or more than one, or X has it, or columns that the schema
            lacks; or what the sampler and the estimator raise.
        """
        self._forget()
        X = as_pandas(X)
        if not isinstance(X, pd.DataFrame):
            raise TypeError("X must be a data frame, whose columns are those of the schema.")
        sampler, target = self._sampler_of(self._columns_of(X))
        schema = sampler.schema
        seed, draw_seed = split_random_state(self.random_state, 2)
        table = X.assign(**{target: np.asarray(y)})
        self.sampler_ = sampler
        try:
            sampler.fit(table)
        finally:
            # What is stopped has been paid for.
            if hasattr(sampler, "privacy_"):
                self.privacy_ = sampler.privacy_
        # What follows is post-processing: the records are not read again.
        rows = as_pandas(sampler.sample(self.n_synthetic, random_state=draw_seed))
        rows = rows[rows[target].notna()]
        if rows[target].nunique() < 2:
            raise ValueError(
                f"All of {len(rows)} synthetic rows have one {target!r}: raise n_synthetic."
            )
        features = [name for name in schema if name != target]
        encoder = TabularEncoder(Schema({name: schema[name] for name in features})).fit()
        if self.estimator is None:
            estimator = self._default(sampler, encoder, seed)
        else:
            estimator = clone(self.estimator)
            estimator = make_pipeline(encoder, estimator) if self.encode else estimator
        self.estimator_ = estimator.fit(rows[features], rows[target])
        self.feature_names_in_ = np.array(features, dtype=object)
        self.n_features_in_ = len(features)
        return self

    def _columns_of(self, X):
        """Return the names of the features: all columns but that of the unit."""
        unit = self._who()["unit"]
        return [name for name in X.columns if unit is None or name != unit]

    def _who(self):
        """Return the ledger and the unit of a fit, given here or to the sampler."""
        params, found = self.sampler.get_params(deep=False), {}
        for name in ("ledger", "unit"):
            own, of_sampler = getattr(self, name), params.get(name)
            if own is not None and (of_sampler is not None or name not in params):
                has = "has one too" if name in params else "has none"
                raise ValueError(f"{name} is for the sampler, which {has}: give it to one of them.")
            found[name] = of_sampler if own is None else own
        return found

    def _sampler_of(self, columns=None):
        """Return the sampler of a fit, on a schema of columns that there are, and the target."""
        params = self.sampler.get_params(deep=False)
        target, schema = params.get("target"), params.get("schema")
        if not isinstance(schema, Schema):
            raise ValueError("sampler must have a schema, as SlicedMeasureSampler has.")
        if not isinstance(target, str) or target not in schema:
            raise ValueError(f"sampler must have a column of its schema as target, got {target!r}.")
        columns = [name for name in schema if name != target] if columns is None else columns
        if target in columns:
            raise ValueError(f"X must not have the target among its columns: {target!r}.")
        unknown = [name for name in columns if name not in schema]
        if unknown:
            raise ValueError(f"X has columns that are not in the schema: {unknown}.")
        names = [*columns, target]
        schema = Schema({name: column for name, column in schema.items() if name in names})
        given = {name: value for name, value in self._who().items() if value is not None}
        return clone(self.sampler).set_params(schema=schema, **given), target

    def predict(self, X: pd.DataFrame) -> np.ndarray:
        """Predict the target of records, as the estimator does.

        Parameters
        ----------
        X : data frame of shape (n_samples, n_features)

        Returns
        -------
        ndarray of shape (n_samples,)
        """
        return self._delegated("predict", X)

    def _delegated(self, method, X):
        check_is_fitted(self)
        X = as_pandas(X)
        if not isinstance(X, pd.DataFrame):
            raise TypeError("X must be a data frame, whose columns are those of the fit.")
        missing = [name for name in self.feature_names_in_ if name not in X.columns]
        if missing:
            raise ValueError(f"X lacks columns of the fit: {missing}.")
        return getattr(self.estimator_, method)(X[list(self.feature_names_in_)])

    def __sklearn_is_fitted__(self):
        return hasattr(self, "n_features_in_")


class SyntheticClassifier(ClassifierMixin, _SyntheticPredictor):
    """Any classifier, privately: a sampler sees the records, the classifier what it draws.

    Parameters
    ----------
    sampler : SlicedMeasureSampler
        Unfitted, with a schema and one target, or another sampler that has both. The budget is its
        own.
    estimator : classifier or None, default=None
        None predicts the mean probability of three: of the sampler's law of the target, where it
        has one in closed form, of a logistic regression, and of boosted trees of four leaves.
    encode : bool, default=True
        Whether ``estimator`` gets features from a TabularEncoder, or a data frame as it is.
    n_synthetic : int, default=100000
        How many rows are drawn for the estimator, at no cost of privacy.
    ledger : PrivacyLedger, path or None, default=None
        Where the fit of the sampler is booked, before anything of a record is released: it raises
        BudgetExceededError where less is left. None is the sampler's own, if it has one.
    unit : str or None, default=None
        Column of X that says whose row each is: the sampler protects a person with all of their
        rows, of which it reads one, drawn at random. The column is not in the schema, and nothing
        is learned from it. None is the sampler's own, if it has one, or protects rows.
    random_state : int, RandomState or None, default=None
        Of the drawn rows and of the default estimator; the sampler has one for its noise.

    Attributes
    ----------
    sampler_ : estimator
        Fitted on private records.
    estimator_ : classifier
        Fitted on synthetic rows; a pipeline with the encoder where there is one.
    classes_ : ndarray of shape (n_classes,)
        The labels that it has seen.
    privacy_ : PrivacyReport
        That of the sampler: all that follows is post-processing.
    n_features_in_ : int
        Number of features.
    feature_names_in_ : ndarray of str
        Their names, in the order of the schema.

    See Also
    --------
    BarycenterClassifier : Makes decisions alike between groups after this.

    Notes
    -----
    With as few as thousands of records the noisy counts of pairs and triples with the target carry
    more than noisy gradients do: at ε = 1 on Adult boosted trees on synthetic rows predict better
    than private linear models (``doc/fair_learning.rst``).

    Examples
    --------
    >>> from sklearn_dpgen.datasets import load_rand_health
    >>> from sklearn_dpgen.predictors import SyntheticClassifier
    >>> from sklearn_dpgen.tables import SlicedMeasureSampler
    >>> data = load_rand_health()
    >>> sampler = SlicedMeasureSampler(epsilon=1.0, schema=data.schema, target="hlthp")
    >>> model = SyntheticClassifier(sampler, n_synthetic=2000)
    >>> X = data.frame[["mdvis", "disea", "idp"]]
    >>> model.fit(X, data.frame["hlthp"]).predict(X[:3]).shape
    (3,)
    """

    _default = AveragedClassifier

    @property
    def classes_(self) -> np.ndarray:
        """The labels that the estimator has seen."""
        return self.estimator_.classes_

    @available_if(_estimator_has("predict_proba"))
    def predict_proba(self, X: pd.DataFrame) -> np.ndarray:
        """Predict the probability of each class.

        Parameters
        ----------
        X : data frame of shape (n_samples, n_features)

        Returns
        -------
        ndarray of shape (n_samples, n_classes)
            In the order of ``classes_``.
        """
        return self._delegated("predict_proba", X)

    @available_if(_estimator_has("decision_function"))
    def decision_function(self, X: pd.DataFrame) -> np.ndarray:
        """Return the estimator's decision function.

        Parameters
        ----------
        X : data frame of shape (n_samples, n_features)

        Returns
        -------
        ndarray of shape (n_samples,) or (n_samples, n_classes)
        """
        return self._delegated("decision_function", X)


class SyntheticRegressor(RegressorMixin, _SyntheticPredictor):
    """Any regressor, privately: a sampler sees the records, the regressor what it draws.

    Parameters
    ----------
    sampler, encode, n_synthetic, ledger, unit, random_state
        As of :class:`SyntheticClassifier`.
    estimator : regressor or None, default=None
        None predicts the mean of three: as of :class:`SyntheticClassifier`, with ridge regression.

    Attributes
    ----------
    sampler_ : estimator
        Fitted on private records.
    estimator_ : regressor
        Fitted on synthetic rows; a pipeline with the encoder where there is one.
    privacy_ : PrivacyReport
        That of the sampler: all that follows is post-processing.
    n_features_in_ : int
        Number of features.
    feature_names_in_ : ndarray of str
        Their names, in the order of the schema.

    See Also
    --------
    BarycenterRegressor : Makes predictions alike between groups after this.

    Examples
    --------
    >>> from sklearn_dpgen.datasets import load_rand_health
    >>> from sklearn_dpgen.predictors import SyntheticRegressor
    >>> from sklearn_dpgen.tables import SlicedMeasureSampler
    >>> data = load_rand_health()
    >>> sampler = SlicedMeasureSampler(epsilon=1.0, schema=data.schema, target="mdvis")
    >>> model = SyntheticRegressor(sampler, n_synthetic=2000)
    >>> X = data.frame[["disea", "idp", "hlthp"]]
    >>> model.fit(X, data.frame["mdvis"]).predict(X[:3]).shape
    (3,)
    """

    _default = AveragedRegressor
