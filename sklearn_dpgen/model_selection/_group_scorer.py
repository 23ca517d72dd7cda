"""group_scorer: scores of estimators that predict by group, for the searches of scikit-learn."""

import inspect
from collections.abc import Callable
from functools import partial
from typing import Any

import pandas as pd
import sklearn
from numpy.typing import ArrayLike
from sklearn.metrics import get_scorer, make_scorer
from sklearn.utils.metadata_routing import MetadataRequest

from sklearn_dpgen.exceptions import PublicRuntimeError, PublicValueError
from sklearn_dpgen.utils._groups import with_groups

__all__ = ["GroupScorer", "group_scorer"]


def group_scorer(scoring: str | Callable, **options: Any) -> "GroupScorer":
    """Return a scorer that passes the groups of the scored rows to the predictions.

    A scorer of scikit-learn, such as "accuracy", passes routed metadata to its metric alone and
    calls ``predict(X)``. An estimator with a map for each group, such as
    :class:`~sklearn_dpgen.predictors.BarycenterClassifier`, refuses that call, and a search makes
    the refusal a score of NaN. This scorer calls ``predict(X, sensitive_features=...)``, and the
    same for ``predict_proba``, of each estimator whose method takes groups.

    Parameters
    ----------
    scoring : str or callable
        Name of a scorer of scikit-learn; or a metric ``metric(y_true, y_pred)``, which gets
        ``sensitive_features`` too if it has this parameter.
    **options
        With a metric, the options of :func:`sklearn.metrics.make_scorer`: ``response_method``,
        ``greater_is_better``, and parameters of the metric.

    Returns
    -------
    GroupScorer
        A callable ``scorer(estimator, X, y, *, sensitive_features)``. It requests
        ``sensitive_features`` from a search, without a call of ``set_score_request``.

    Raises
    ------
    PublicRuntimeError
        Metadata routing is not enabled: a search would not hand the groups to a scorer.
    PublicValueError
        ``scoring`` is not a scorer of scikit-learn, or a name comes with options.

    See Also
    --------
    PrivateSearchCV : Search by scores of private rows; its named scores need no such scorer.

    Notes
    -----
    The estimator's own request is needed for the fits: ``set_fit_request(sensitive_features=True)``
    on it, or on the last step of a pipeline. Predictions need no request. A score of private rows
    is not private.

    For the accuracy or R² alone no such scorer is needed: with ``scoring=None`` and
    ``set_score_request(sensitive_features=True)`` a search calls the ``score`` of the estimator.
    Without that request it raises an error before the first fit, and in a pipeline scikit-learn
    makes that error a score of NaN too.

    Examples
    --------
    >>> import numpy as np, sklearn
    >>> from sklearn.linear_model import LogisticRegression
    >>> from sklearn.model_selection import GridSearchCV
    >>> from sklearn_dpgen.datasets import make_biased_labels
    >>> from sklearn_dpgen.metrics import disparate_impact
    >>> from sklearn_dpgen.model_selection import group_scorer
    >>> from sklearn_dpgen.predictors import BarycenterClassifier
    >>> public = make_biased_labels(1000, random_state=0)
    >>> with sklearn.config_context(enable_metadata_routing=True):
    ...     model = BarycenterClassifier(LogisticRegression(), epsilon=np.inf)
    ...     model = model.set_fit_request(sensitive_features=True)
    ...     scoring = {"auc": group_scorer("roc_auc"), "ratio": group_scorer(disparate_impact)}
    ...     grid = {"min_ratio": [0.5, 1.0]}
    ...     search = GridSearchCV(model, grid, scoring=scoring, refit="auc", cv=2)
    ...     search = search.fit(public.X, public.y, sensitive_features=public.sensitive)
    >>> bool(search.cv_results_["mean_test_ratio"][1] > 0.8)
    True
    """
    if not sklearn.get_config()["enable_metadata_routing"]:
        raise PublicRuntimeError(
            "group_scorer needs metadata routing, by which a search hands it the groups. Call "
            "sklearn.set_config(enable_metadata_routing=True) first, and "
            "set_fit_request(sensitive_features=True) on the estimator."
        )
    if isinstance(scoring, str):
        if options:
            raise PublicValueError(
                f"options are for a metric, got {sorted(options)} with scoring={scoring!r}."
            )
        get_scorer(scoring)
    elif not callable(scoring):
        raise PublicValueError(
            "scoring must be the name of a scorer or a metric, got an object of type "
            f"{type(scoring).__name__}."
        )
    return GroupScorer(scoring, options)


class GroupScorer:
    """The scorer that :func:`group_scorer` returns.

    Parameters
    ----------
    scoring : str or callable
    options : dict
        As in :func:`group_scorer`.
    """

    def __init__(self, scoring: str | Callable, options: dict) -> None:
        self.scoring = scoring
        self.options = options

    def __call__(
        self,
        estimator: Any,
        X: ArrayLike | pd.DataFrame,
        y: ArrayLike | None = None,
        *,
        sensitive_features: ArrayLike | pd.DataFrame,
    ) -> float:
        """Return the score of a fitted estimator.

        Parameters
        ----------
        estimator : estimator
            Fitted.
        X : array-like or data frame of shape (n_rows, n_features)
        y : array-like of shape (n_rows,)
        sensitive_features : array-like or data frame of shape (n_rows,) or (n_rows, n_columns)
            Groups of the rows.

        Returns
        -------
        float
        """
        if isinstance(self.scoring, str):
            scorer = get_scorer(self.scoring)
        else:
            metric = self.scoring
            if "sensitive_features" in inspect.signature(metric).parameters:
                metric = partial(metric, sensitive_features=sensitive_features)
            scorer = make_scorer(metric, **self.options)
        return scorer(with_groups(estimator, sensitive_features), X, y)

    def get_metadata_routing(self) -> MetadataRequest:
        """Return the request for ``sensitive_features`` that a search reads.

        Returns
        -------
        MetadataRequest
        """
        request = MetadataRequest(owner=self)
        request.score.add_request(param="sensitive_features", alias=True)
        return request

    def __repr__(self):
        name = getattr(self.scoring, "__name__", self.scoring)
        return f"group_scorer({name!r})"
