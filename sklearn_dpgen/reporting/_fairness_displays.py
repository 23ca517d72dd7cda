"""Fairness displays: scores by group, and accuracy against fairness."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import wraps
from inspect import signature
from typing import TYPE_CHECKING, Any, Self

import numpy as np
import pandas as pd
from numpy.typing import ArrayLike
from sklearn.base import BaseEstimator, is_regressor
from sklearn.metrics import get_scorer
from sklearn.pipeline import Pipeline

from sklearn_dpgen.exceptions import PublicValueError
from sklearn_dpgen.metrics import disparate_impact, group_wasserstein_distance
from sklearn_dpgen.reporting._figures import import_pyplot
from sklearn_dpgen.utils._groups import check_sensitive_features

if TYPE_CHECKING:
    from matplotlib.axes import Axes

__all__ = ["FairnessCurveDisplay", "FairnessDisplay"]

_N_THRESHOLDS = 501


class FairnessDisplay:
    """Distributions of scores by group, and the rate of each group at a threshold.

    Demographic parity means equal rates at one threshold; if the distributions of the groups are
    equal, it holds at all thresholds. Among samples of one true label (``true_label``) equal rates
    are equality of odds.

    Use :meth:`from_estimator` or :meth:`from_predictions`, which draw at once. Scores are shown
    without noise: **a figure of private rows is not private**, and neither is the display object,
    which holds their scores. Use rows that are public or synthetic.

    Parameters
    ----------
    scores : sequence of ndarray of shape (n_samples_of_the_group,)
        The scores of each group.
    groups : sequence
        The value of each group, or a tuple of values.
    threshold : float or None, default=None
        Scores above it are positive decisions. None marks no threshold.
    score_name : str, default="score"
        Label of the axis of scores.

    Attributes
    ----------
    rates : Series of float or None
        Share of each group above the threshold.
    ax_ : matplotlib Axes
        Axes of the last plot.
    figure_ : matplotlib Figure
    lines_ : list of matplotlib Line2D
        One line for each group.

    See Also
    --------
    FairnessCurveDisplay : Score and fairness of several estimators.
    sklearn_dpgen.metrics.group_wasserstein_distance : Distance between the distributions.
    sklearn_dpgen.metrics.disparate_impact : Ratio of the rates.

    Examples
    --------
    >>> from sklearn.linear_model import LogisticRegression
    >>> from sklearn_dpgen.datasets import make_biased_labels
    >>> from sklearn_dpgen.reporting import FairnessDisplay
    >>> data = make_biased_labels(2000, random_state=0)  # public rows
    >>> model = LogisticRegression().fit(data.X, data.y)
    >>> display = FairnessDisplay.from_estimator(
    ...     model, data.X, data.y, sensitive_features=data.sensitive
    ... )  # doctest: +SKIP
    """

    def __init__(
        self,
        scores: Sequence[np.ndarray],
        groups: Sequence,
        *,
        threshold: float | None = None,
        score_name: str = "score",
    ) -> None:
        self.scores = scores
        self.groups = groups
        self.threshold = threshold
        self.score_name = score_name

    @property
    def rates(self) -> pd.Series | None:
        """Share of each group above the threshold."""
        if self.threshold is None:
            return None
        shares = [float(np.mean(part > self.threshold)) for part in self.scores]
        return pd.Series(shares, index=pd.Index(self.groups), name="rate")

    @classmethod
    def from_predictions(
        cls,
        y_true: ArrayLike | None,
        scores: ArrayLike,
        *,
        sensitive_features: ArrayLike | pd.DataFrame,
        true_label: bool | int | float | str | None = None,
        threshold: float | None = 0.5,
        score_name: str = "score",
        kind: str = "density",
        ax: "Axes | None" = None,
        **kwargs: Any,
    ) -> Self:
        """Draw the distributions of given scores.

        Parameters
        ----------
        y_true : array-like of shape (n_samples,) or None
            True labels, used for ``true_label`` alone.
        scores : array-like of shape (n_samples,)
            Probabilities, decision values or predictions of a regressor.
        sensitive_features : array-like or DataFrame of shape (n_samples,) or (n_samples, k)
            Samples with the same values in all columns form a group; at least two groups.
        true_label : bool, int, float, str or None, default=None
            Restricts the figure to samples of this true label; rates are then true or false
            positive rates.
        threshold : float or None, default=0.5
            Scores above it are positive decisions. None, for a regressor, marks no threshold.
        score_name : str, default="score"
            Label of the axis of scores.
        kind, ax, **kwargs
            As in :meth:`plot`.

        Returns
        -------
        FairnessDisplay

        Raises
        ------
        ImportError
            matplotlib is not installed.
        ValueError
            Lengths differ, a value is missing or not finite, there is a single group, or a group
            has no sample of ``true_label``.
        """
        scores = _check_scores(scores)
        codes, groups = check_sensitive_features(sensitive_features, len(scores))
        shown = np.ones(len(scores), dtype=bool)
        if true_label is not None:
            shown = _has_label(y_true, true_label, len(scores))
        parts = [np.sort(scores[shown & (codes == code)]) for code in range(len(groups))]
        if not all(map(len, parts)):
            raise PublicValueError("true_label must occur in each group.")
        display = cls(parts, groups, threshold=threshold, score_name=score_name)
        return display.plot(ax, kind=kind, **kwargs)

    @classmethod
    def from_estimator(
        cls,
        estimator: BaseEstimator,
        X: ArrayLike | pd.DataFrame,
        y: ArrayLike | None = None,
        *,
        sensitive_features: ArrayLike | pd.DataFrame,
        response_method: str = "auto",
        pos_label: bool | int | float | str | None = None,
        true_label: bool | int | float | str | None = None,
        threshold: float | str | None = "auto",
        score_name: str | None = None,
        kind: str = "density",
        ax: "Axes | None" = None,
        **kwargs: Any,
    ) -> Self:
        """Draw the scores of records by a fitted classifier or regressor.

        Parameters
        ----------
        estimator : estimator
            A fitted estimator. ``sensitive_features`` are passed to a method that takes them.
        X : array-like or DataFrame of shape (n_samples, n_features)
        y : array-like of shape (n_samples,) or None, default=None
            True labels, used for ``true_label`` alone.
        sensitive_features : array-like or DataFrame of shape (n_samples,) or (n_samples, k)
            Samples with the same values in all columns form a group; at least two groups.
        response_method : str, default="auto"
            "predict_proba", "decision_function" or "predict". "auto" takes the first method that a
            classifier has, and "predict" for a regressor.
        pos_label : bool, int, float, str or None, default=None
            The class whose score is shown. None takes the second of two classes.
        true_label : bool, int, float, str or None, default=None
            Restricts the figure to samples of this true label.
        threshold : float, None or "auto", default="auto"
            "auto" is 1/2 for probabilities, 0 for decision functions, and None for predictions.
        score_name : str or None, default=None
            Label of the axis of scores. None takes the name of the method.
        kind, ax, **kwargs
            As in :meth:`plot`.

        Returns
        -------
        FairnessDisplay

        Raises
        ------
        ImportError
            matplotlib is not installed.
        ValueError
            As in :meth:`from_predictions`; or ``pos_label`` is not a class, or is missing although
            there are not two classes.
        """
        scores, middle, name = scores_of(
            GroupAware(estimator, sensitive_features),
            X,
            response_method=response_method,
            pos_label=pos_label,
        )
        return cls.from_predictions(
            y,
            scores,
            sensitive_features=sensitive_features,
            true_label=true_label,
            threshold=middle if isinstance(threshold, str) else threshold,
            score_name=name if score_name is None else score_name,
            kind=kind,
            ax=ax,
            **kwargs,
        )

    def plot(
        self,
        ax: "Axes | None" = None,
        *,
        kind: str = "density",
        bins: int | str | ArrayLike = 30,
        **kwargs: Any,
    ) -> Self:
        """Draw the distributions.

        Parameters
        ----------
        ax : matplotlib Axes or None, default=None
            Axes to draw on. None creates a figure.
        kind : {"density", "rate"}, default="density"
            "density" draws a histogram of each group, filled above the threshold. "rate" draws the
            share of each group above every threshold; the area between two such curves is the
            1-Wasserstein distance of the groups.
        bins : int, str or array-like, default=30
            Common bins of the histograms, as in :func:`numpy.histogram_bin_edges`. A number of bins
            divides [0, 1] if all scores lie in it.
        **kwargs : dict
            Passed to ``matplotlib.axes.Axes.plot``, for all lines.

        Returns
        -------
        FairnessDisplay
        """
        if kind not in ("density", "rate"):
            raise PublicValueError(f"kind must be 'density' or 'rate', got {kind!r}.")
        plt = import_pyplot(f"{type(self).__name__}.plot")
        self.ax_ = plt.subplots()[1] if ax is None else ax
        self.figure_ = self.ax_.figure
        low, high = _common_range(self.scores)
        edges = np.histogram_bin_edges(np.concatenate(self.scores), bins, range=(low, high))
        thresholds = np.linspace(low, high, _N_THRESHOLDS)
        rates = self.rates
        rates = [None] * len(self.groups) if rates is None else list(rates)
        self.lines_ = []
        for scores, group, rate in zip(self.scores, self.groups, rates, strict=True):
            name = ", ".join(map(str, group)) if isinstance(group, tuple) else str(group)
            label = name if rate is None else f"{name}: {rate:.1%}"
            x, y = _histogram(scores, edges)
            if kind == "rate":
                x, y = thresholds, _rates_above(scores, thresholds)
            (line,) = self.ax_.plot(x, y, **({"label": label} | kwargs))
            self.lines_.append(line)
            if rate is None or self.threshold is None:
                continue
            if kind == "rate":
                self.ax_.plot(self.threshold, rate, "o", color=line.get_color())
            else:
                x, y = _part_above(self.threshold, x, y)
                self.ax_.fill_between(x, y, color=line.get_color(), alpha=0.25, linewidth=0)
        self._label_axes(kind)
        return self

    def _label_axes(self, kind):
        title = None
        if self.threshold is not None:
            self.ax_.axvline(self.threshold, color="0.4", linewidth=1, linestyle="--", zorder=0)
            title = f"above {self.threshold:g}"
        if kind == "rate":
            self.ax_.set(xlabel=f"threshold of {self.score_name}", ylabel="share above it")
        else:
            self.ax_.set(xlabel=self.score_name, ylabel="density")
            # Room for the legend.
            self.ax_.margins(y=0.3)
        # A second plot on the same axes may extend them.
        self.ax_.set_ylim(bottom=0, auto=None)
        self.ax_.legend(title=title)


def _check_scores(scores):
    """Return finite float64 numbers of shape (n,)."""
    try:
        scores = np.asarray(scores, dtype=np.float64)
    except (TypeError, ValueError):
        scores = np.empty(0)
    if scores.ndim != 1 or scores.size == 0 or not np.all(np.isfinite(scores)):
        raise PublicValueError("scores must hold finite real numbers in one dimension.")
    return scores


def _has_label(y_true, label, n_samples):
    if y_true is None:
        raise PublicValueError("true_label requires the true labels y.")
    y_true = np.asarray(y_true)
    if y_true.shape != (n_samples,):
        raise PublicValueError(f"y_true must have shape ({n_samples},), got {y_true.shape}.")
    return y_true == label


def _common_range(parts):
    """Return [0, 1] if all scores lie in it, else their range."""
    low, high = min(map(np.min, parts)), max(map(np.max, parts))
    return (0.0, 1.0) if low >= 0 and high <= 1 else (float(low), float(high))


def _histogram(scores, edges):
    """Return the outline of a density, from zero to zero."""
    heights, _ = np.histogram(scores, edges, density=True)
    return np.repeat(edges, 2), np.concatenate([[0], np.repeat(heights, 2), [0]])


def _part_above(threshold, x, y):
    """Return the part of an outline above a threshold, which may lie within a bin."""
    kept = x > threshold
    start = [max(threshold, x[0])] if kept.any() else []
    return np.append(start, x[kept]), np.append(y[kept][:1], y[kept])


def _rates_above(scores, thresholds):
    return 1 - np.searchsorted(np.sort(scores), thresholds, side="right") / len(scores)


class FairnessCurveDisplay:
    """Accuracy, or another score, against fairness: one point for each of several estimators.

    The estimators usually differ in one parameter, such as ``min_ratio`` or ``alpha``. Use
    :meth:`from_estimators`, which draws at once, or pass the numbers. Draw several curves on the
    same axes to compare them.

    Scores are computed without noise: **a figure of private rows is not private**. Use rows that
    are public or synthetic.

    Parameters
    ----------
    fairness : array-like of shape (n_points,)
    scores : array-like of shape (n_points,)
    point_labels : sequence of str or None, default=None
        Labels of the points.
    name : str or None, default=None
        Name of the curve in the legend.
    fairness_name, score_name : str, default="fairness" and "score"
        Labels of the axes.

    Attributes
    ----------
    ax_ : matplotlib Axes
        Axes of the last plot.
    figure_ : matplotlib Figure
    lines_ : list of matplotlib Line2D
        The line that joins the points.
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
            Fitted, all of them classifiers or all regressors. ``sensitive_features`` are passed to
            a method that takes them. The keys of a dict label the points.
        X : array-like or DataFrame of shape (n_samples, n_features)
        y : array-like of shape (n_samples,)
        sensitive_features : array-like or DataFrame of shape (n_samples,) or (n_samples, k)
            Samples with the same values in all columns form a group; at least two groups.
        scoring : str, callable or None, default=None
            A scorer of scikit-learn or its name. None takes "accuracy", and "r2" for regressors.
        fairness_metric : callable or None, default=None
            A function ``fairness_metric(y_true, y_pred, *, sensitive_features)`` that returns a
            number, such as those of :mod:`sklearn_dpgen.metrics` or ``fairlearn.metrics``. None
            takes the smallest rate of positive decisions over the largest for decisions, and the
            2-Wasserstein distance between groups for scores and for predictions of regressors.
        response_method : {"predict", "predict_proba", "decision_function"}, default="predict"
            The method whose result is passed to ``fairness_metric``.
        pos_label : bool, int, float, str or None, default=None
            The positive class of the ratio, or the class whose probability or decision function is
            used. None takes the second of two classes.
        name : str or None, default=None
            Name of the curve in the legend.
        ax : matplotlib Axes or None, default=None
            Axes to draw on. None creates a figure.
        **kwargs : dict
            Passed to ``matplotlib.axes.Axes.plot``.

        Returns
        -------
        FairnessCurveDisplay

        Raises
        ------
        ImportError
            matplotlib is not installed.
        ValueError
            There is a single group, or no estimator; ``pos_label`` is not a class, or is missing
            although there are not two classes.
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
            Axes to draw on. None creates a figure.
        **kwargs : dict
            Passed to ``matplotlib.axes.Axes.plot``.

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
    """Return the axis label of a metric, or of the name of a scorer."""
    if metric in _NAMES:
        return _NAMES[metric]
    name = metric if isinstance(metric, str) else getattr(metric, "__name__", default)
    return name.replace("_", " ")


_METHODS = ("predict_proba", "decision_function", "predict")


class GroupAware:
    """A fitted estimator that passes the groups to the methods that take them.

    Scorers of scikit-learn call ``predict(X)``; an estimator with a map or a threshold for each
    group requires ``predict(X, sensitive_features=...)``.

    Parameters
    ----------
    estimator : estimator
        A fitted estimator.
    sensitive_features : array-like or DataFrame
        The groups of the rows to predict.
    """

    def __init__(self, estimator, sensitive_features):
        self._estimator = estimator
        self._sensitive_features = sensitive_features

    def __getattr__(self, name):
        value = getattr(self._estimator, name)
        if name not in _METHODS or not _takes_groups(self._estimator, name):
            return value

        # Scorers read the name of a method.
        @wraps(value)
        def with_groups(X):
            return value(X, sensitive_features=self._sensitive_features)

        return with_groups


def _takes_groups(estimator, method):
    """Return whether a method takes groups; a pipeline passes them to its last step."""
    if isinstance(estimator, Pipeline):
        return _takes_groups(estimator[-1], method)
    return "sensitive_features" in signature(getattr(estimator, method)).parameters


def scores_of(estimator, X, *, response_method="auto", pos_label=None):
    """Return the scores of one class by a method of an estimator, and how to draw them.

    Parameters
    ----------
    estimator : estimator
    X : array-like of shape (n_samples, n_features)
    response_method : {"auto", "predict_proba", "decision_function", "predict"}
        "auto" takes the first method that exists; for a regressor, "predict".
    pos_label : label or None
        None takes the second of two classes.

    Returns
    -------
    scores : ndarray of shape (n_samples,)
    threshold : float or None
        Scores above it are positive decisions, for two classes.
    name : str
        Name of the scores.
    """
    if response_method not in ("auto", *_METHODS):
        raise PublicValueError(f"response_method must be 'auto' or one of {_METHODS}.")
    method = response_method
    if method == "auto":
        there = [name for name in _METHODS if hasattr(estimator, name)]
        method = "predict" if is_regressor(estimator) else there[0]
    scores = np.asarray(getattr(estimator, method)(X))
    if is_regressor(estimator):
        return scores, None, "prediction"
    label = _positive_class(estimator, pos_label)
    if method == "predict":
        return (scores == label).astype(int), None, f"decided {label}"
    index = list(estimator.classes_).index(label)
    if scores.ndim == 2:
        scores = scores[:, index]
    elif index == 0:
        scores = -scores
    if method == "decision_function":
        return scores, 0.0, f"decision function of {label}"
    return scores, 0.5, f"probability of {label}"


def _positive_class(estimator, pos_label=None):
    """Return the positive label, by default the second of two classes."""
    classes = list(getattr(estimator, "classes_", (0, 1)))
    if pos_label is None and len(classes) != 2:
        raise PublicValueError(f"pos_label must be given for {len(classes)} classes.")
    if pos_label is not None and pos_label not in classes:
        raise PublicValueError(f"pos_label must be one of the classes, got {pos_label!r}.")
    return classes[1] if pos_label is None else pos_label
