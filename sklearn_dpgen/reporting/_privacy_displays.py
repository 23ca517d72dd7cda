"""Privacy displays: trade-off curves, and scores against the privacy budget."""

import warnings
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Self

import numpy as np
import pandas as pd
from numpy.typing import ArrayLike
from sklearn.base import BaseEstimator, clone
from sklearn.metrics import check_scoring
from sklearn.model_selection import train_test_split

from sklearn_dpgen.accounting import AttackRisk, PrivacyReport
from sklearn_dpgen.exceptions import PublicValueError, UnpaidScoreWarning
from sklearn_dpgen.preprocessing._steps import private_parameters
from sklearn_dpgen.reporting._figures import import_pyplot
from sklearn_dpgen.utils._random import split_random_state
from sklearn_dpgen.utils._validation import (
    Integral,
    check_epsilon,
    named_parameters,
    outermost_parameters,
)

if TYPE_CHECKING:
    from matplotlib.axes import Axes

__all__ = ["PrivacyUtilityDisplay", "TradeOffDisplay", "privacy_utility_curve"]

_LEAST_RATE = 1e-4


class TradeOffDisplay:
    """True against false positive rates of the best attacker, one curve for each guarantee.

    Both rates are bounds over all attackers and all data, from the privacy profile: nothing of a
    record is shown, and the picture may be published with the reports.

    Parameters
    ----------
    risks : dict of str to AttackRisk
        Risks by the names of their curves.

    Attributes
    ----------
    ax_ : matplotlib Axes
        Axes of the last plot.
    figure_ : matplotlib Figure
    lines_ : list of matplotlib Line2D
        One line for each guarantee, and one for guessing.

    See Also
    --------
    sklearn_dpgen.accounting.AttackRisk : The numbers.

    Examples
    --------
    >>> from sklearn_dpgen.accounting import AttackRisk, GaussianProfile
    >>> from sklearn_dpgen.reporting import TradeOffDisplay
    >>> display = TradeOffDisplay({"mu = 1": AttackRisk(GaussianProfile(1.0))})
    >>> display.plot()  # doctest: +SKIP
    """

    def __init__(self, risks: Mapping[str, AttackRisk]) -> None:
        self.risks = risks

    @classmethod
    def from_reports(
        cls,
        reports: PrivacyReport | Mapping[str, PrivacyReport],
        *,
        ax: "Axes | None" = None,
        **kwargs: Any,
    ) -> Self:
        """Draw the curves of reports.

        Parameters
        ----------
        reports : PrivacyReport or dict of str to PrivacyReport
            Reports such as ``estimator.privacy_``, by the names of their curves. A single report is
            named by its ε and δ.
        ax : matplotlib Axes or None, default=None
            Axes to draw on. None creates a figure.
        **kwargs : dict
            Passed to ``matplotlib.axes.Axes.plot``.

        Returns
        -------
        TradeOffDisplay

        Raises
        ------
        ImportError
            matplotlib is not installed.
        """
        if isinstance(reports, PrivacyReport):
            reports = {f"ε = {reports.epsilon:g}, δ = {reports.delta:g}": reports}
        risks = {name: report.attack_risk() for name, report in reports.items()}
        return cls(risks).plot(ax, **kwargs)

    def plot(self, ax: "Axes | None" = None, **kwargs: Any) -> Self:
        """Draw the curves on logarithmic axes.

        Parameters
        ----------
        ax : matplotlib Axes or None, default=None
            Axes to draw on. None creates a figure.
        **kwargs : dict
            Passed to ``matplotlib.axes.Axes.plot`` for all guarantees.

        Returns
        -------
        TradeOffDisplay
        """
        plt = import_pyplot(f"{type(self).__name__}.plot")
        self.ax_ = plt.subplots()[1] if ax is None else ax
        self.figure_ = self.ax_.figure
        fpr = np.geomspace(_LEAST_RATE, 1, 201)
        self.lines_ = [
            self.ax_.plot(fpr, risk.true_positive_rate(fpr), **({"label": name} | kwargs))[0]
            for name, risk in self.risks.items()
        ]
        self.lines_ += self.ax_.plot(fpr, fpr, color="grey", linestyle=":", label="guessing")
        self.ax_.set(
            xscale="log",
            yscale="log",
            xlim=(_LEAST_RATE, 1),
            ylim=(_LEAST_RATE, 1.2),
            xlabel="false positive rate",
            ylabel="true positive rate, at most",
        )
        self.ax_.legend()
        return self


class PrivacyUtilityDisplay:
    """Scores against the privacy budget: each fit, and the mean and spread of those at one budget.

    Use :meth:`from_estimator`, which draws at once, or
    :func:`~sklearn_dpgen.model_selection.privacy_utility_curve`, or pass the numbers. Draw several
    curves on the same axes to compare them.

    Parameters
    ----------
    epsilons : array-like of shape (n_budgets,)
        Budgets in nats; a budget of ``inf`` is a horizontal line.
    scores : array-like of shape (n_budgets, n_repeats)
    name : str or None, default=None
        Name of the curve in the legend.
    score_name : str, default="score"
        Label of the axis of scores.

    Attributes
    ----------
    ax_ : matplotlib Axes
        Axes of the last plot.
    figure_ : matplotlib Figure
    errorbar_ : matplotlib ErrorbarContainer
        Means, and one standard deviation to either side.
    points_ : matplotlib Line2D
        One point for each fit.

    See Also
    --------
    TradeOffDisplay : The attack risk of a budget.

    Examples
    --------
    >>> from sklearn_dpgen.reporting._privacy_displays import PrivacyUtilityDisplay
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
            As in :func:`~sklearn_dpgen.model_selection.privacy_utility_curve`, which computes the
            scores and warns that they are not private.
        name : str or None, default=None
            Name of the curve in the legend.
        ax : matplotlib Axes or None, default=None
            Axes to draw on. None creates a figure.
        **kwargs : dict
            Passed to the same function.

        Returns
        -------
        PrivacyUtilityDisplay
        """
        import_pyplot(f"{cls.__name__}.from_estimator")
        curve = privacy_utility_curve(estimator, X, epsilons, **kwargs)
        return cls(curve.epsilons, curve.scores, name=name, score_name=curve.score_name).plot(ax)

    def plot(self, ax: "Axes | None" = None, **kwargs: Any) -> Self:
        """Draw the curve, on a logarithmic axis of budgets.

        Parameters
        ----------
        ax : matplotlib Axes or None, default=None
            Axes to draw on. None creates a figure.
        **kwargs : dict
            Passed to ``matplotlib.axes.Axes.errorbar``.

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


def privacy_utility_curve(
    estimator: BaseEstimator,
    X: ArrayLike | pd.DataFrame,
    epsilons: Sequence[float],
    *,
    y: ArrayLike | None = None,
    scoring: str | Callable | None = None,
    n_repeats: int = 3,
    test_fraction: float = 0.25,
    public_rows: bool = False,
    random_state: int | np.random.RandomState | None = None,
) -> PrivacyUtilityDisplay:
    """Fit several times at each of several budgets, and score on held-out rows.

    Parameters
    ----------
    estimator : private estimator
        An estimator with ``epsilon``, or with a sampler or a pipeline step that has it.
    X : data frame or array-like of shape (n_samples, n_features)
    epsilons : sequence of float
        Budgets, in nats; ``np.inf`` fits without noise.
    y : array-like of shape (n_samples,) or None, default=None
    scoring : str, callable or None, default=None
        As in :func:`sklearn.metrics.check_scoring`; for generators see
        :func:`~sklearn_dpgen.model_selection.utility_scorer`. None takes the estimator's ``score``.
    n_repeats : int, default=3
        Number of fits at each budget, each with its own split, noise and initial values.
    test_fraction : float, default=0.25
        Share of the held-out rows, in (0, 1).
    public_rows : bool, default=False
        Whether the rows are public or synthetic. If not, a warning states the cost of the curve.
    random_state : int, RandomState or None, default=None
        An int makes the curve reproducible, and voids the guarantees of its fits.

    Returns
    -------
    PrivacyUtilityDisplay
        Not yet drawn.

    Warns
    -----
    UnpaidScoreWarning
        The rows are not public. Each fit charges its ledger, if it has one. The scores are without
        noise and charge nothing: neither the curve nor a budget chosen by it is private.

    Examples
    --------
    >>> from sklearn_dpgen.datasets import load_rand_health
    >>> from sklearn_dpgen.model_selection import privacy_utility_curve
    >>> from sklearn_dpgen.tables import TableSampler
    >>> data = load_rand_health()
    >>> sampler = TableSampler(
    ...     schema=data.schema, marginals="pairs", population_size=2000, max_iter=2
    ... )
    >>> display = privacy_utility_curve(
    ...     sampler, data.frame, [0.5, 5.0], n_repeats=2, public_rows=True
    ... )
    >>> display.scores.shape
    (2, 2)
    """
    epsilons = np.array([check_epsilon(epsilon, "epsilons") for epsilon in epsilons])
    if len(epsilons) == 0:
        raise PublicValueError("epsilons must hold at least one budget.")
    if not isinstance(n_repeats, Integral) or n_repeats < 1:
        raise PublicValueError(f"n_repeats must be an integer of at least 1, got {n_repeats!r}.")
    # Estimators of other packages have a budget too.
    budgets = private_parameters(estimator, "epsilon") or outermost_parameters(estimator, "epsilon")
    if not budgets:
        raise PublicValueError(
            f"estimator must have a parameter epsilon, got {type(estimator).__name__}."
        )
    if not public_rows:
        warnings.warn(
            f"{len(epsilons) * n_repeats} fits spend the sum of their budgets, and their scores on "
            "private rows are not private. Use rows that are public or synthetic, with "
            "public_rows=True.",
            UnpaidScoreWarning,
            stacklevel=2,
        )
    scorer = check_scoring(estimator, scoring=scoring)
    scores = np.empty((len(epsilons), n_repeats))
    for repeat, seed in enumerate(split_random_state(random_state, n_repeats)):
        parts = [part for part in (X, y) if part is not None]
        split = train_test_split(*parts, test_size=test_fraction, random_state=seed)
        for row, epsilon in enumerate(epsilons):
            model = clone(estimator).set_params(
                **dict.fromkeys(named_parameters(estimator, "random_state"), seed),
                **dict.fromkeys(budgets, float(epsilon)),
            )
            model.fit(*split[::2])
            with warnings.catch_warnings():
                # The warning above covers all scores.
                warnings.simplefilter("ignore", UnpaidScoreWarning)
                scores[row, repeat] = scorer(model, *split[1::2])
    name = scoring if isinstance(scoring, str) else "score"
    return PrivacyUtilityDisplay(epsilons, scores, score_name=name.replace("_", " "))
