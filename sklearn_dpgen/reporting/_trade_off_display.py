"""TradeOffDisplay: what guarantees allow an attacker, as curves."""

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Self

import numpy as np

from sklearn_dpgen.accounting import AttackRisk, PrivacyReport
from sklearn_dpgen.reporting._responses import import_pyplot

if TYPE_CHECKING:
    from matplotlib.axes import Axes

__all__ = ["TradeOffDisplay"]

_LEAST_RATE = 1e-4


class TradeOffDisplay:
    """True against false positive rates of the best attacker, one curve for each guarantee.

    Both rates are bounds over all attackers and all data, from the privacy profile: nothing of a
    record is shown, and the picture may be published with the reports.

    Parameters
    ----------
    risks : dict of str to AttackRisk
        Each with the name of its curve.

    Attributes
    ----------
    ax_ : matplotlib Axes
        Of the last plot, as what follows.
    figure_ : matplotlib Figure
    lines_ : list of matplotlib Line2D
        One for each guarantee, then the one of guessing.

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
            Such as ``estimator.privacy_``, each with the name of its curve; one alone has its ε and
            δ for a name.
        ax : matplotlib Axes or None, default=None
            None makes a figure.
        **kwargs : dict
            To ``matplotlib.axes.Axes.plot``.

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
            None makes a figure.
        **kwargs : dict
            To ``matplotlib.axes.Axes.plot``, for all guarantees.

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
