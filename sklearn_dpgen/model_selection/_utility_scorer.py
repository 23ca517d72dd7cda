"""utility_scorer: the score of a model trained on synthetic rows, on held-out rows."""

import warnings
from collections.abc import Hashable
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import ArrayLike
from sklearn.base import BaseEstimator, clone
from sklearn.dummy import DummyClassifier
from sklearn.ensemble import HistGradientBoostingClassifier, HistGradientBoostingRegressor

from sklearn_dpgen.exceptions import PublicValueError, UnpaidScoreWarning
from sklearn_dpgen.model_selection._row_values import (
    bounded_values,
    check_target_range,
    closeness,
    closeness_of_labels,
    hits,
)
from sklearn_dpgen.utils._frames import as_pandas
from sklearn_dpgen.utils._validation import check_n_samples

__all__ = ["UtilityScorer", "utility_scorer"]


def utility_scorer(
    target: Hashable,
    *,
    predictor: BaseEstimator | None = None,
    target_range: tuple[float, float] | None = None,
    n_synthetic: int = 10_000,
    public_rows: bool = False,
    random_state: int | None = None,
) -> "UtilityScorer":
    """Return a scorer of generators: train on synthetic rows, test on held-out rows.

    The score has the same meaning for all budgets, regularizations and kinds of generators, so
    ``GridSearchCV(sampler, grid, scoring=utility_scorer("income"))`` chooses the parameters that
    predict ``income`` best. The ``score`` of a generator may not be comparable in this way.

    Parameters
    ----------
    target : column name
        Column to predict from all others; its position for arrays.
    predictor : classifier, regressor or None, default=None
        A clone is trained on numbers; categories are codes, with -1 for a category without
        synthetic rows. None is boosted trees of four leaves, as deeper ones fit the noise.
    target_range : (float, float) or None, default=None
        Public lowest and highest value of a numeric target. None predicts labels.
    n_synthetic : int, default=10000
        Number of synthetic rows, drawn at no cost in privacy.
    public_rows : bool, default=False
        Whether the scored rows are public. If not, a score warns that it is not private.
    random_state : int or None, default=None
        Seed of the draw and of the default predictor.

    Returns
    -------
    UtilityScorer
        A callable ``scorer(estimator, X, y=None)``. Larger is better, at most 1: one minus the mean
        absolute error relative to the range. For labels it is one minus the Brier score if the
        predictor has probabilities, otherwise the accuracy.

    Warns
    -----
    UnpaidScoreWarning
        If private rows are scored: neither the score nor a choice by it is private.
        :class:`PrivateSearchCV` accounts for its scores.

    Examples
    --------
    >>> from sklearn_dpgen.datasets import load_rand_health
    >>> from sklearn_dpgen.model_selection import utility_scorer
    >>> from sklearn_dpgen.tables import TableSampler
    >>> data = load_rand_health()
    >>> sampler = TableSampler(schema=data.schema, target="hlthp", population_size=2000)
    >>> sampler = sampler.fit(data.frame[:15000])
    >>> scorer = utility_scorer("hlthp", n_synthetic=2000, public_rows=True)
    >>> 0.9 < scorer(sampler, data.frame[15000:]) < 1
    True
    """
    return UtilityScorer(
        target,
        predictor=predictor,
        target_range=None if target_range is None else check_target_range(target_range),
        n_synthetic=check_n_samples(n_synthetic),
        public_rows=public_rows,
        random_state=random_state,
    )


class UtilityScorer:
    """The scorer of generators that :func:`utility_scorer` returns.

    Parameters
    ----------
    target, predictor, target_range, n_synthetic, public_rows, random_state
        As in :func:`utility_scorer`.
    """

    def __init__(
        self,
        target: Hashable,
        *,
        predictor: BaseEstimator | None,
        target_range: tuple[float, float] | None,
        n_synthetic: int,
        public_rows: bool,
        random_state: int | None,
    ) -> None:
        self.target = target
        self.predictor = predictor
        self.target_range = target_range
        self.n_synthetic = n_synthetic
        self.public_rows = public_rows
        self.random_state = random_state

    def __call__(self, estimator: Any, X: ArrayLike | pd.DataFrame, y: object = None) -> float:
        """Return the mean of :meth:`row_values`.

        Parameters
        ----------
        estimator : generator
            Fitted, with a method ``sample``.
        X : data frame or array-like of shape (n_rows, n_columns)
            Held-out rows with the target column.
        y : ignored

        Returns
        -------
        float
        """
        if not self.public_rows:
            warnings.warn(
                "A score of private rows is not private, nor is a choice by it: it is computed "
                "without noise, and no ledger is charged. Use PrivateSearchCV, or score public "
                "rows with public_rows=True.",
                UnpaidScoreWarning,
                stacklevel=2,
            )
        return float(self.row_values(estimator, X).mean())

    def row_values(self, estimator: Any, X: ArrayLike | pd.DataFrame) -> np.ndarray:
        """Return the score of each row, by a model trained on synthetic rows.

        Parameters
        ----------
        estimator, X
            As in a call.

        Returns
        -------
        ndarray of shape (n_rows,)
            Scores in [0, 1]; the score of a row depends on no other row.
        """
        drawn = estimator.sample(self.n_synthetic, random_state=self.random_state)
        drawn, real = _frame(drawn), _frame(X)
        for name, frame in (("X", real), ("The drawn table", drawn)):
            if self.target not in frame.columns:
                raise PublicValueError(f"{name} must have the target column {self.target!r}.")
        drawn = drawn[drawn[self.target].notna()]
        columns = {name: _Column(drawn[name]) for name in drawn.columns if name != self.target}
        missing = [name for name in columns if name not in real.columns]
        if missing:
            raise PublicValueError(
                f"X must have all columns of the synthetic table, lacks {missing}."
            )
        predictor = self._trained(_coded(drawn, columns), drawn[self.target])
        features = _coded(real, columns)
        if self.target_range is not None:
            target = pd.to_numeric(real[self.target], errors="coerce")
            values = closeness(predictor, features, target, self.target_range)
        else:
            read = closeness_of_labels if hasattr(predictor, "predict_proba") else hits
            values = read(predictor, features, real[self.target])
        return bounded_values(values, len(real))

    def _trained(self, features, target):
        predictor = self.predictor
        if predictor is None:
            trees = (
                HistGradientBoostingClassifier
                if self.target_range is None
                else HistGradientBoostingRegressor
            )
            predictor = trees(max_leaf_nodes=4, random_state=self.random_state)
        if self.target_range is None and target.nunique() == 1:
            predictor = DummyClassifier()
        return clone(predictor).fit(features, np.asarray(target))

    def __repr__(self):
        return f"utility_scorer({self.target!r})"


class _Column:
    """Encoding of a column as numbers, by the values of its synthetic rows."""

    def __init__(self, drawn):
        self._labels = None
        if not pd.api.types.is_numeric_dtype(drawn.dtype):
            values = drawn.dropna().unique()
            ordered = getattr(values, "categories", sorted(values, key=str))
            self._labels = pd.Index(list(ordered), dtype=object)

    def codes(self, values):
        if self._labels is None:
            return pd.to_numeric(values, errors="coerce").to_numpy(dtype=np.float64)
        return self._labels.get_indexer(values.astype(object)).astype(np.float64)


def _coded(frame, columns):
    return np.column_stack([column.codes(frame[name]) for name, column in columns.items()])


def _frame(table):
    table = as_pandas(table)
    return table if isinstance(table, pd.DataFrame) else pd.DataFrame(np.asarray(table))
