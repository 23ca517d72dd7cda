"""PrivacyUtilityDisplay: scores against the privacy budget."""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Self

import numpy as np
import pandas as pd
from numpy.typing import ArrayLike
from sklearn.base import BaseEstimator

from sklearn_dpgen.reporting._responses import import_pyplot

if TYPE_CHECKING:
    from matplotlib.axes import Axes

__all__ = ["PrivacyUtilityDisplay"]


class PrivacyUtilityDisplay:
    """Scores against the privacy budget: each fit, and the mean and spread of those at one budget.

    Use :meth:`from_estimator`, which draws at once, or
    :func:`~sklearn_dpgen.model_selection.privacy_utility_curve`, or give the numbers. Curves are
    compared by drawing them on the same axes.

    Parameters
    ----------
    epsilons : array-like of shape (n_budgets,)
        In nats; a budget of ``inf`` is a line across.
    scores : array-like of shape (n_budgets, n_repeats)
    name : str or None, default=None
        Of the curve, in the legend.
    score_name : str, default="score"
        What the axis says.

    Attributes
    ----------
    ax_ : matplotlib Axes
        Of the last plot, as what follows.
    figure_ : matplotlib Figure
    errorbar_ : matplotlib ErrorbarContainer
        Means, and one standard deviation to either side.
    points_ : matplotlib Line2D
        One point a fit.

    See Also
    --------
    TradeOffDisplay : What the budgets mean.

    Examples
    --------
    >>> from sklearn_dpgen.reporting import PrivacyUtilityDisplay
    >>> display = PrivacyUtilityDisplay([0.5, 2.0], [[0.7, 0.72], [0.8, 0.81]])
    >>> display.plot()  # doctest: +SKIP
    """

    def __init__(
        self,
        epsilons: ArrayLike,
        scores: ArrayLike,
        *,
        name: str | None = None,
        score_name: str = "score",
    ) -> None:
        self.epsilons = epsilons
        self.scores = scores
        self.name = name
        self.score_name = score_name

    @classmethod
    def from_estimator(
        cls,
        estimator: BaseEstimator,
        X: ArrayLike | pd.DataFrame,
        epsilons: Sequence[float],
        *,
        name: str | None = None,
        ax: "Axes | None" = None,
        **kwargs: Any,
    ) -> Self:
        """Fit, score and draw.

        Parameters
        ----------
        estimator, X, epsilons
            As of :func:`~sklearn_dpgen.model_selection.privacy_utility_curve`, which computes the
            scores, and whose warning applies.
        name : str or None, default=None
            Of the curve, in the legend.
        ax : matplotlib Axes or None, default=None
            None makes a figure.
        **kwargs : dict
            To the same function.

        Returns
        -------
        PrivacyUtilityDisplay
        """
        # It returns displays, and so imports this module.
        from sklearn_dpgen.reporting._privacy_utility_curve import privacy_utility_curve

        import_pyplot(f"{cls.__name__}.from_estimator")
        curve = privacy_utility_curve(estimator, X, epsilons, **kwargs)
        return cls(curve.epsilons, curve.scores, name=name, score_name=curve.score_name).plot(ax)

    def plot(self, ax: "Axes | None" = None, **kwargs: Any) -> Self:
        """Draw the curve, on a logarithmic axis of budgets.

        Parameters
        ----------
        ax : matplotlib Axes or None, default=None
            None makes a figure.
        **kwargs : dict
            To ``matplotlib.axes.Axes.errorbar``.

        Returns
        -------
        PrivacyUtilityDisplay
        """
        plt = import_pyplot(f"{type(self).__name__}.plot")
        self.ax_ = plt.subplots()[1] if ax is None else ax
        self.figure_ = self.ax_.figure
        epsilons, scores = np.asarray(self.epsilons), np.asarray(self.scores)
        finite = np.flatnonzero(np.isfinite(epsilons))
        finite = finite[np.argsort(epsilons[finite])]
        means, spread = scores.mean(axis=1), scores.std(axis=1, ddof=min(scores.shape[1] - 1, 1))
        style: dict[str, Any] = {"marker": "o", "capsize": 3, "label": self.name, **kwargs}
        self.errorbar_ = self.ax_.errorbar(epsilons[finite], means[finite], spread[finite], **style)
        color = self.errorbar_.lines[0].get_color()
        self.points_ = self.ax_.plot(
            np.repeat(epsilons[finite], scores.shape[1]),
            scores[finite].ravel(),
            linestyle="none",
            marker=".",
            color=color,
            alpha=0.4,
        )[0]
        for mean in means[np.isinf(epsilons)]:
            self.ax_.axhline(mean, color=color, linestyle=":", linewidth=1)
        self.ax_.set(xscale="log", xlabel="ε", ylabel=self.score_name)
        if self.name is not None:
            self.ax_.legend()
        return self
