"""utility_scorer: models that are trained on drawn rows, scored on held-out ones."""

import warnings
from collections.abc import Hashable
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import ArrayLike
from sklearn.base import BaseEstimator, clone
from sklearn.dummy import DummyClassifier
from sklearn.ensemble import HistGradientBoostingClassifier, HistGradientBoostingRegressor

from sklearn_dpgen.exceptions import UnpaidScoreWarning
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
    """Return a scorer of generators: train on rows that are drawn, test on rows that are held out.

    The score has one meaning whatever the budget, the regularization or the kind of generator, so
    that ``GridSearchCV(sampler, grid, scoring=utility_scorer("income"))`` chooses what predicts
    ``income`` best, where a generator's own ``score`` may compare nothing of the kind.

    Parameters
    ----------
    target : column name
        What is predicted from all other columns; of arrays, the position of a column.
    predictor : classifier, regressor or None, default=None
        A clone of it is trained; its columns are numbers, categories as codes with -1 for one
        that no drawn row has. None is boosted trees of four leaves: deeper ones learn the noise.
    target_range : (float, float) or None, default=None
        The public lowest and highest value of a number that is predicted. None predicts labels.
    n_synthetic : int, default=10000
        How many rows are drawn, at no cost in privacy.
    public_rows : bool, default=False
        Whether the rows of tests are public. Else a score warns of what it costs.
    random_state : int or None, default=None
        Of the draw and of the default predictor.

    Returns
    -------
    UtilityScorer
        To be called as ``scorer(estimator, X, y=None)``. Larger is better, at most 1: one minus
        the mean absolute error over the range; of labels, one minus Brier's score where the
        predictor gives probabilities, or the share that is predicted.

    Warns
    -----
    UnpaidScoreWarning
        Rows that are not public are scored: the score tells of them without noise, and so does a
        choice that is made by it. :class:`PrivateSearchCV` pays for its scores.

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
        As of :func:`utility_scorer`.
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
            Fitted, with ``sample``.
        X : data frame or array-like of shape (n_rows, n_columns)
            Rows that are held out, the target among their columns.
        y : ignored

        Returns
        -------
        float
        """
        if not self.public_rows:
            warnings.warn(
                "A score of private rows is not private, nor is what is chosen by it: it is "
                "computed without noise, and no budget or ledger is charged for it. Use "
                "PrivateSearchCV, or score public rows, and say public_rows=True.",
                UnpaidScoreWarning,
                stacklevel=2,
            )
        return float(self.row_values(estimator, X).mean())

    def row_values(self, estimator: Any, X: ArrayLike | pd.DataFrame) -> np.ndarray:
        """Return how well a model that is trained on drawn rows predicts each row.

        Parameters
        ----------
        estimator, X
            As of a call.

        Returns
        -------
        ndarray of shape (n_rows,)
            In [0, 1]; that of a row depends on no other one.
        """
        drawn = estimator.sample(self.n_synthetic, random_state=self.random_state)
        drawn, real = _frame(drawn), _frame(X)
        for name, frame in (("X", real), ("The drawn table", drawn)):
            if self.target not in frame.columns:
                raise ValueError(f"{name} lacks the column {self.target!r}, the target.")
        drawn = drawn[drawn[self.target].notna()]
        columns = {name: _Column(drawn[name]) for name in drawn.columns if name != self.target}
        missing = [name for name in columns if name not in real.columns]
        if missing:
            raise ValueError(f"X lacks columns of the drawn table: {missing}.")
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
    """How the values of a column become numbers, one by one, as the drawn rows have them."""

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
