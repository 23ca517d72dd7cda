"""FairnessDisplay: the laws of scores by group."""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Self

import numpy as np
import pandas as pd
from numpy.typing import ArrayLike
from sklearn.base import BaseEstimator

from sklearn_dpgen.exceptions import PublicValueError
from sklearn_dpgen.reporting._responses import GroupAware, import_pyplot, scores_of
from sklearn_dpgen.utils._groups import check_sensitive_features

if TYPE_CHECKING:
    from matplotlib.axes import Axes

__all__ = ["FairnessDisplay"]

_N_THRESHOLDS = 501


class FairnessDisplay:
    """Distributions of scores by group, and the rate of each group at a threshold.

    Demographic parity asks for equal rates at one threshold; where the laws are the same, it holds
    at all of them. Given the true label it is equality of odds: see ``true_label``.

    Use :meth:`from_estimator` or :meth:`from_predictions`, which draw at once. What is shown are
    the rows as they are: **a picture of private rows is not private**, and neither is the object,
    which holds their scores. Show rows that are public or synthetic.

    Parameters
    ----------
    scores : sequence of ndarray of shape (n_samples_of_the_group,)
        The scores of each group.
    groups : sequence
        What the groups are: plain values, or tuples of them.
    threshold : float or None, default=None
        Scores above it are positive decisions. None marks nothing.
    score_name : str, default="score"
        What the axis says.

    Attributes
    ----------
    rates : Series of float or None
        Share of each group above the threshold.
    ax_ : matplotlib Axes
        Of the last plot, as what follows.
    figure_ : matplotlib Figure
    lines_ : list of matplotlib Line2D
        One a group.

    See Also
    --------
    FairnessCurveDisplay : Several estimators, by score and fairness.
    sklearn_dpgen.metrics.group_wasserstein_distance : The distance between the laws, a number.
    sklearn_dpgen.metrics.disparate_impact : The ratio of the rates.

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
        """Draw scores.

        Parameters
        ----------
        y_true : array-like of shape (n_samples,) or None
            True labels, for ``true_label``; of no other use.
        scores : array-like of shape (n_samples,)
            Probabilities, decision values or predictions of a regression.
        sensitive_features : array-like or DataFrame of shape (n_samples,) or (n_samples, k)
            Samples with the same values in all columns form a group; at least two groups.
        true_label : bool, int, float, str or None, default=None
            Shows the samples of this true label alone: rates are then those of true or of false
            positives.
        threshold : float or None, default=0.5
            Scores above it are positive decisions. None, for a regression, marks nothing.
        score_name : str, default="score"
            What the axis says.
        kind, ax, **kwargs
            As of :meth:`plot`.

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
        """Draw the scores that a fitted classifier or regressor gives to records.

        Parameters
        ----------
        estimator : estimator
            Fitted. A method that takes ``sensitive_features`` is given them.
        X : array-like or DataFrame of shape (n_samples, n_features)
        y : array-like of shape (n_samples,) or None, default=None
            True labels, for ``true_label``; of no other use.
        sensitive_features : array-like or DataFrame of shape (n_samples,) or (n_samples, k)
            Samples with the same values in all columns form a group; at least two groups.
        response_method : str, default="auto"
            "predict_proba", "decision_function" or "predict". "auto" takes the first that a
            classifier has, and "predict" of a regressor.
        pos_label : bool, int, float, str or None, default=None
            The class whose score is shown. None is the second of two.
        true_label : bool, int, float, str or None, default=None
            Shows the samples of this true label alone.
        threshold : float, None or "auto", default="auto"
            "auto" is 1/2 for probabilities, 0 for decision functions, and none for predictions.
        score_name : str or None, default=None
            What the axis says. None names the method.
        kind, ax, **kwargs
            As of :meth:`plot`.

        Returns
        -------
        FairnessDisplay

        Raises
        ------
        ImportError
            matplotlib is not installed.
        ValueError
            As of :meth:`from_predictions`; or ``pos_label`` is no class, or is missing where there
            are not two.
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
            None makes a figure.
        kind : {"density", "rate"}, default="density"
            Histograms of the scores of each group, filled above the threshold; or the share of each
            group above every threshold, with a point at the one that is marked. Between two curves
            of rates is the 1-Wasserstein distance of the groups, as an area.
        bins : int, str or array-like, default=30
            Of the histograms, which share them: as in :func:`numpy.histogram_bin_edges`. A number
            of bins divides [0, 1] where all scores lie in it.
        **kwargs : dict
            To ``matplotlib.axes.Axes.plot``, for all lines.

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
        # Axes that are shared go on to grow.
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
        raise PublicValueError("true_label needs the true labels.")
    y_true = np.asarray(y_true)
    if y_true.shape != (n_samples,):
        raise PublicValueError(f"y_true has the shape {y_true.shape} for {n_samples} samples.")
    return y_true == label


def _common_range(parts):
    """Return [0, 1] if all scores lie in it, else the smallest interval that holds them."""
    low, high = min(map(np.min, parts)), max(map(np.max, parts))
    return (0.0, 1.0) if low >= 0 and high <= 1 else (float(low), float(high))


def _histogram(scores, edges):
    """Return the outline of a density, from zero to zero."""
    heights, _ = np.histogram(scores, edges, density=True)
    return np.repeat(edges, 2), np.concatenate([[0], np.repeat(heights, 2), [0]])


def _part_above(threshold, x, y):
    """Return the part of an outline beyond a threshold, which may lie within a bin."""
    kept = x > threshold
    start = [max(threshold, x[0])] if kept.any() else []
    return np.append(start, x[kept]), np.append(y[kept][:1], y[kept])


def _rates_above(scores, thresholds):
    return 1 - np.searchsorted(np.sort(scores), thresholds, side="right") / len(scores)
