"""FairnessCurveDisplay: how much accuracy, or another score, fairness costs."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Self

import numpy as np
import pandas as pd
from numpy.typing import ArrayLike
from sklearn.base import BaseEstimator, is_regressor
from sklearn.metrics import get_scorer

from sklearn_dpgen.exceptions import PublicValueError
from sklearn_dpgen.metrics import disparate_impact, group_wasserstein_distance
from sklearn_dpgen.reporting._responses import GroupAware, import_pyplot, scores_of

if TYPE_CHECKING:
    from matplotlib.axes import Axes

__all__ = ["FairnessCurveDisplay"]


class FairnessCurveDisplay:
    """Accuracy, or another score, against fairness: one point for each of several estimators.

    Such as the stops of a dial, ``min_ratio`` or ``alpha``. Use :meth:`from_estimators`, which
    draws at once, or give the numbers. Curves are compared by drawing them on the same axes.

    What is shown are figures of the rows as they are: **a picture of private rows is not private**.
    Show rows that are public or synthetic.

    Parameters
    ----------
    fairness : array-like of shape (n_points,)
    scores : array-like of shape (n_points,)
    point_labels : sequence of str or None, default=None
        What is written at the points.
    name : str or None, default=None
        Of the curve, in the legend.
    fairness_name, score_name : str, default="fairness" and "score"
        What the axes say.

    Attributes
    ----------
    ax_ : matplotlib Axes
        Of the last plot, as what follows.
    figure_ : matplotlib Figure
    lines_ : list of matplotlib Line2D
        The one that joins the points.
    texts_ : list of matplotlib Annotation
        The labels of the points.

    See Also
    --------
    FairnessDisplay : One estimator, at all thresholds.
    fairlearn.metrics.plot_model_comparison : Predictions by any two metrics, without a curve.

    Examples
    --------
    >>> from sklearn_dpgen.reporting import FairnessCurveDisplay
    >>> display = FairnessCurveDisplay(
    ...     [0.36, 0.64, 0.84], [0.851, 0.847, 0.840], name="maps to a barycentre"
    ... )
    >>> display.plot()  # doctest: +SKIP
    """

    def __init__(
        self,
        fairness: ArrayLike,
        scores: ArrayLike,
        *,
        point_labels: Sequence[str] | None = None,
        name: str | None = None,
        fairness_name: str = "fairness",
        score_name: str = "score",
    ) -> None:
        self.fairness = fairness
        self.scores = scores
        self.point_labels = point_labels
        self.name = name
        self.fairness_name = fairness_name
        self.score_name = score_name

    @classmethod
    def from_estimators(
        cls,
        estimators: Mapping[str, BaseEstimator] | Iterable[BaseEstimator],
        X: ArrayLike | pd.DataFrame,
        y: ArrayLike,
        *,
        sensitive_features: ArrayLike | pd.DataFrame,
        scoring: str | Callable[..., float] | None = None,
        fairness_metric: Callable[..., float] | None = None,
        response_method: str = "predict",
        pos_label: bool | int | float | str | None = None,
        name: str | None = None,
        ax: "Axes | None" = None,
        **kwargs: Any,
    ) -> Self:
        """Score fitted estimators, and draw the results.

        Parameters
        ----------
        estimators : dict of str to estimator, or iterable of estimators
            Fitted, all of them classifiers or all regressors. A method that takes
            ``sensitive_features`` is given them. The keys of a dict are written at the points.
        X : array-like or DataFrame of shape (n_samples, n_features)
        y : array-like of shape (n_samples,)
        sensitive_features : array-like or DataFrame of shape (n_samples,) or (n_samples, k)
            Samples with the same values in all columns form a group; at least two groups.
        scoring : str, callable or None, default=None
            A scorer of scikit-learn or its name. None is "accuracy", and "r2" for regressors.
        fairness_metric : callable or None, default=None
            As ``fairness_metric(y_true, y_pred, *, sensitive_features)``: any of
            :mod:`sklearn_dpgen.metrics` or ``fairlearn.metrics`` that gives a number. None is, of
            decisions, the smallest rate of positive ones over the largest; and of what else
            ``response_method`` says and of regressors' predictions the 2-Wasserstein distance
            between groups.
        response_method : {"predict", "predict_proba", "decision_function"}, default="predict"
            What ``fairness_metric`` reads.
        pos_label : bool, int, float, str or None, default=None
            The positive class of the ratio, or the one whose probability or decision function is
            read. None is the second of two.
        name : str or None, default=None
            Of the curve, in the legend.
        ax : matplotlib Axes or None, default=None
            None makes a figure.
        **kwargs : dict
            To ``matplotlib.axes.Axes.plot``.

        Returns
        -------
        FairnessCurveDisplay

        Raises
        ------
        ImportError
            matplotlib is not installed.
        ValueError
            There is a single group, or no estimator; ``pos_label`` is no class, or is missing where
            there are not two.
        """
        point_labels = list(estimators) if isinstance(estimators, Mapping) else None
        models = list(estimators.values() if isinstance(estimators, Mapping) else estimators)
        if not models:
            raise PublicValueError("estimators must not be empty.")
        regression = is_regressor(models[0])
        if scoring is None:
            scoring = "r2" if regression else "accuracy"
        decisions = response_method == "predict" and not regression
        metric = fairness_metric
        if metric is None:
            metric = _ratio_of_rates if decisions else group_wasserstein_distance
        scorer = get_scorer(scoring)
        fairness, scores = [], []
        for model in (GroupAware(model, sensitive_features) for model in models):
            scores.append(scorer(model, X, y))
            if decisions and fairness_metric is not None:
                predicted = model.predict(X)
            else:
                response = {"response_method": response_method, "pos_label": pos_label}
                predicted = scores_of(model, X, **response)[0]
            fairness.append(metric(y, predicted, sensitive_features=sensitive_features))
        return cls(
            fairness,
            scores,
            point_labels=point_labels,
            name=name,
            fairness_name=_in_words(metric, "fairness"),
            score_name=_in_words(scoring, "score"),
        ).plot(ax, **kwargs)

    def plot(self, ax: "Axes | None" = None, **kwargs: Any) -> Self:
        """Draw the curve.

        Parameters
        ----------
        ax : matplotlib Axes or None, default=None
            None makes a figure.
        **kwargs : dict
            To ``matplotlib.axes.Axes.plot``.

        Returns
        -------
        FairnessCurveDisplay
        """
        plt = import_pyplot(f"{type(self).__name__}.plot")
        self.ax_ = plt.subplots()[1] if ax is None else ax
        self.figure_ = self.ax_.figure
        style: dict[str, Any] = {"marker": "o", "label": self.name, **kwargs}
        fairness, scores = np.asarray(self.fairness), np.asarray(self.scores)
        self.lines_ = self.ax_.plot(fairness, scores, **style)
        points = zip(fairness, scores, strict=True)
        labels = [""] * len(scores) if self.point_labels is None else self.point_labels
        self.texts_ = [
            self.ax_.annotate(label, point, xytext=(5, 5), textcoords="offset points")
            for label, point in zip(labels, points, strict=True)
        ]
        # Room for the labels of the outermost points.
        self.ax_.margins(0.1)
        self.ax_.set(xlabel=self.fairness_name, ylabel=self.score_name)
        if self.name is not None:
            self.ax_.legend()
        return self


def _ratio_of_rates(y_true, decided, *, sensitive_features):
    ratio = disparate_impact(None, decided, sensitive_features=sensitive_features)
    return min(ratio, 1 / ratio) if ratio else ratio


_NAMES = {
    _ratio_of_rates: "smallest rate of positive decisions over the largest",
    group_wasserstein_distance: "Wasserstein distance between groups",
}


def _in_words(metric, default):
    """Return what an axis says of a metric, or of the name of a scorer."""
    if metric in _NAMES:
        return _NAMES[metric]
    name = metric if isinstance(metric, str) else getattr(metric, "__name__", default)
    return name.replace("_", " ")
