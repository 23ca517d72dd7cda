"""Marginal displays: one or two columns of two tables, or of released counts and samples."""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Self

import numpy as np
import pandas as pd
from numpy.typing import ArrayLike
from sklearn.base import BaseEstimator
from sklearn.utils.validation import check_is_fitted

from sklearn_dpgen.exceptions import PublicTypeError, PublicValueError
from sklearn_dpgen.reporting._columns import (
    as_series,
    check_table,
    column_shares,
    observed_schema,
    pair_shares,
    read_table,
)
from sklearn_dpgen.reporting._figures import import_pyplot, plain_text
from sklearn_dpgen.reporting._released import (
    Released,
    entry_labels,
    released_shares,
    sample_codes,
    sample_shares,
)
from sklearn_dpgen.schema import Schema

if TYPE_CHECKING:
    from matplotlib.axes import Axes

__all__ = ["MarginalDisplay", "PairDisplay", "PublicTableDisplay"]

_N_SAMPLES = 20_000
# Marginals in a figure of a public table, and the colours of those that agree or do not.
_MOST_MARGINALS = 20
_AGREES, _DIFFERS = "#31688e", "#b3582c"
# Tick labels of an axis.
_MOST_TICKS, _MOST_PAIR_TICKS = 12, 8


class MarginalDisplay:
    """Shares of the values of one column: bars of one table, and points of another.

    Use :meth:`from_frames` or :meth:`from_estimator`, which draw at once. A figure of a real table
    is **not private**; a figure of an estimator is computed from releases, and may be published.

    Parameters
    ----------
    first, second : array-like of shape (k,)
        Shares of real records (or released shares) and of synthetic records.
    labels : sequence of str of length k
        Names of the values, or lower ends of the bins.
    errors : array-like of shape (k,) or None, default=None
        Standard deviations of the noise of ``first``.
    name : str or None, default=None
        Name of the column.
    first_name, second_name : str, default="real" and "synthetic"
        Names in the legend.

    Attributes
    ----------
    ax_ : matplotlib Axes
        Axes of the last plot.
    figure_ : matplotlib Figure
    bars_ : matplotlib BarContainer
        The first shares; error bars are two standard deviations.
    points_ : matplotlib Line2D
        The second shares.

    See Also
    --------
    PairDisplay : Joint shares of two columns.
    QualityReport : A page about all columns.

    Examples
    --------
    >>> from sklearn_dpgen.reporting import MarginalDisplay
    >>> display = MarginalDisplay([0.5, 0.5], [0.4, 0.6], ["no", "yes"], name="ill")
    >>> display.plot()  # doctest: +SKIP
    """

    def __init__(
        self,
        first: ArrayLike,
        second: ArrayLike,
        labels: Sequence[str],
        *,
        errors: ArrayLike | None = None,
        name: str | None = None,
        first_name: str = "real",
        second_name: str = "synthetic",
    ) -> None:
        self.first = first
        self.second = second
        self.labels = labels
        self.errors = errors
        self.name = name
        self.first_name = first_name
        self.second_name = second_name

    @classmethod
    def from_frames(
        cls,
        real: pd.DataFrame,
        synthetic: pd.DataFrame,
        column: str,
        *,
        schema: Schema | None = None,
        ax: "Axes | None" = None,
        **kwargs: Any,
    ) -> Self:
        """Draw one column of two tables; the figure is not private.

        Parameters
        ----------
        real, synthetic : DataFrame
            Data frames of any library, in memory.
        column : str
        schema : Schema or None, default=None
            The declaration of the column. None infers it from both tables.
        ax : matplotlib Axes or None, default=None
            Axes to draw on. None creates a figure.
        **kwargs : dict
            Passed to ``matplotlib.axes.Axes.bar``.

        Returns
        -------
        MarginalDisplay

        Raises
        ------
        ImportError
            matplotlib is not installed.
        ValueError
            The column is missing, or does not fit the schema.
        """
        import_pyplot(f"{cls.__name__}.from_frames")
        frames, declared = declared_columns(real, synthetic, [column], schema)
        first, second = (frame[column] for frame in frames)
        shares = column_shares(first, second, declared[column])
        display = cls(shares["real"], shares["synthetic"], shares["labels"], name=column)
        return display.plot(ax, **kwargs)

    @classmethod
    def from_estimator(
        cls,
        estimator: BaseEstimator,
        column: str,
        *,
        n_samples: int = _N_SAMPLES,
        random_state: int | None = None,
        ax: "Axes | None" = None,
        **kwargs: Any,
    ) -> Self:
        """Draw released counts of one column and synthetic records, at no privacy cost.

        Parameters
        ----------
        estimator : estimator
            A fitted estimator with released counts ``one_way_marginals_``, such as TableSampler.
        column : str
        n_samples : int, default=20000
            Number of synthetic records to draw.
        random_state : int or None, default=None
            Seed of the synthetic records.
        ax : matplotlib Axes or None, default=None
            Axes to draw on. None creates a figure.
        **kwargs : dict
            Passed to ``matplotlib.axes.Axes.bar``.

        Returns
        -------
        MarginalDisplay

        Raises
        ------
        ImportError
            matplotlib is not installed.
        TypeError
            The estimator keeps no released counts.
        ValueError
            The column was not counted.
        """
        import_pyplot(f"{cls.__name__}.from_estimator")
        view = released_view(estimator)
        marginal, shares, errors = released_shares(view, column)
        codes = sample_codes(view, view.draw(n_samples, random_state), marginal.columns)
        display = cls(
            shares,
            sample_shares(marginal, codes),
            entry_labels(view.encoder_.columns_[column], marginal.groups[0], len(shares)),
            errors=errors,
            name=column,
            first_name="released",
        )
        return display.plot(ax, **kwargs)

    def plot(self, ax: "Axes | None" = None, **kwargs: Any) -> Self:
        """Draw the shares.

        Parameters
        ----------
        ax : matplotlib Axes or None, default=None
            Axes to draw on. None creates a figure.
        **kwargs : dict
            Passed to ``matplotlib.axes.Axes.bar``.

        Returns
        -------
        MarginalDisplay
        """
        plt = import_pyplot(f"{type(self).__name__}.plot")
        self.ax_ = plt.subplots(layout="constrained")[1] if ax is None else ax
        self.figure_ = self.ax_.figure
        positions = np.arange(len(self.labels))
        whiskers = None if self.errors is None else 2 * np.asarray(self.errors)
        style: dict[str, Any] = {
            "color": "0.8",
            "width": 0.9,
            "label": self.first_name,
            "yerr": whiskers,
        }
        self.bars_ = self.ax_.bar(positions, np.asarray(self.first), **style | kwargs)
        self.points_ = self.ax_.plot(
            positions, np.asarray(self.second), "o", markersize=4, label=self.second_name
        )[0]
        shown = np.unique(
            np.linspace(0, len(positions) - 1, min(len(positions), _MOST_TICKS)).round()
        )
        shown = shown.astype(int)
        words = [plain_text(self.labels[i]) for i in shown]
        self.ax_.set_xticks(shown, words, rotation=45, ha="right", rotation_mode="anchor")
        self.ax_.set(ylabel="share", xlabel=plain_text(self.name or ""))
        self.ax_.legend()
        return self


def released_view(estimator):
    """Return a view of the releases of a fitted estimator, or raise TypeError without any."""
    check_is_fitted(estimator)
    view = Released(estimator)
    if not hasattr(view, "one_way_marginals_"):
        raise PublicTypeError(
            f"{type(estimator).__name__} keeps no released counts, one_way_marginals_."
        )
    return view


def declared_columns(real, synthetic, names, schema):
    """Return two tables with these columns alone, and their schema."""
    frames = [read_table(X, label) for X, label in ((real, "real"), (synthetic, "synthetic"))]
    frames = [pd.DataFrame({name: as_series(f, name) for name in names}) for f in frames]
    if schema is None:
        schema, _ = observed_schema(*frames)
    missing = [name for name in names if schema is None or name not in schema]
    if missing:
        raise PublicValueError(
            f"column {missing[0]!r} is not in the schema, or cannot be compared."
        )
    schema = Schema({name: schema[name] for name in names})
    for frame, label in zip(frames, ("real", "synthetic"), strict=True):
        check_table(frame, schema, label)
    return frames, schema


class PairDisplay:
    """Joint shares of two columns: of either table, or their difference.

    Use :meth:`from_frames` or :meth:`from_estimator`, which draw at once. A figure of a real table
    is **not private**; a figure of an estimator is computed from releases, and may be published.

    Parameters
    ----------
    first, second : array-like of shape (k, l)
        Shares of real records (or released shares) and of synthetic records.
    labels : sequence of two sequences of str
        Names of the cells of the first and of the second column.
    names : tuple of str
        Names of the columns.
    first_name, second_name : str, default="real" and "synthetic"
        Names in titles.

    Attributes
    ----------
    ax_ : matplotlib Axes
        Axes of the last plot.
    figure_ : matplotlib Figure
    mesh_ : matplotlib QuadMesh
        The cells; the second column goes from left to right.
    colorbar_ : matplotlib Colorbar

    See Also
    --------
    MarginalDisplay : Shares of one column.

    Examples
    --------
    >>> from sklearn_dpgen.reporting import PairDisplay
    >>> labels = [["no", "yes"], ["no", "yes"]]
    >>> display = PairDisplay([[0.5, 0], [0, 0.5]], [[0.4, 0.1], [0.1, 0.4]], labels, ("a", "b"))
    >>> display.plot()  # doctest: +SKIP
    """

    def __init__(
        self,
        first: ArrayLike,
        second: ArrayLike,
        labels: Sequence[Sequence[str]],
        names: tuple[str, str],
        *,
        first_name: str = "real",
        second_name: str = "synthetic",
    ) -> None:
        self.first = first
        self.second = second
        self.labels = labels
        self.names = names
        self.first_name = first_name
        self.second_name = second_name

    @classmethod
    def from_frames(
        cls,
        real: pd.DataFrame,
        synthetic: pd.DataFrame,
        columns: tuple[str, str],
        *,
        schema: Schema | None = None,
        kind: str = "difference",
        ax: "Axes | None" = None,
        **kwargs: Any,
    ) -> Self:
        """Draw two columns of two tables; the figure is not private.

        Parameters
        ----------
        real, synthetic : DataFrame
            Data frames of any library, in memory.
        columns : tuple of two str
        schema : Schema or None, default=None
            The declaration of the columns. None infers it from both tables.
        kind, ax, **kwargs
            As in :meth:`plot`.

        Returns
        -------
        PairDisplay

        Raises
        ------
        ImportError
            matplotlib is not installed.
        ValueError
            A column is missing, or does not fit the schema; ``columns`` are not two names.
        """
        import_pyplot(f"{cls.__name__}.from_frames")
        names = _two(columns)
        frames, declared = declared_columns(real, synthetic, names, schema)
        first, second, labels = pair_shares(frames[0], frames[1], declared)
        return cls(first, second, labels, names).plot(ax, kind=kind, **kwargs)

    @classmethod
    def from_estimator(
        cls,
        estimator: BaseEstimator,
        columns: tuple[str, str],
        *,
        n_samples: int = _N_SAMPLES,
        random_state: int | None = None,
        kind: str = "difference",
        ax: "Axes | None" = None,
        **kwargs: Any,
    ) -> Self:
        """Draw released counts of two columns and synthetic records, at no privacy cost.

        Parameters
        ----------
        estimator : estimator
            A fitted estimator with released counts ``marginals_``, such as TableSampler.
        columns : tuple of two str
        n_samples : int, default=20000
            Number of synthetic records to draw.
        random_state : int or None, default=None
            Seed of the synthetic records.
        kind, ax, **kwargs
            As in :meth:`plot`.

        Returns
        -------
        PairDisplay

        Raises
        ------
        ImportError
            matplotlib is not installed.
        TypeError
            The estimator keeps no released counts.
        ValueError
            The columns were not counted together; ``columns`` are not two names.
        """
        import_pyplot(f"{cls.__name__}.from_estimator")
        names, view = _two(columns), released_view(estimator)
        marginals = [
            marginal for marginal in view.marginals_ if set(marginal.columns) == set(names)
        ]
        if not marginals:
            raise PublicValueError(f"columns {names} were not counted together.")
        # A pair that was measured twice is shown at the finer resolution.
        marginal = max(marginals, key=lambda m: m.counts.size)
        codes = sample_codes(view, view.draw(n_samples, random_state), marginal.columns)
        first, second = marginal.counts / view.n_records_, sample_shares(marginal, codes)
        labels = [
            entry_labels(view.encoder_.columns_[name], groups, n)
            for name, groups, n in zip(
                marginal.columns, marginal.groups, marginal.counts.shape, strict=True
            )
        ]
        if marginal.columns != names:
            first, second, labels = first.T, second.T, labels[::-1]
        display = cls(first, second, labels, names, first_name="released")
        return display.plot(ax, kind=kind, **kwargs)

    def plot(self, ax: "Axes | None" = None, *, kind: str = "difference", **kwargs: Any) -> Self:
        """Draw the cells.

        Parameters
        ----------
        ax : matplotlib Axes or None, default=None
            Axes to draw on. None creates a figure.
        kind : {"difference", "first", "second"}, default="difference"
            The second shares minus the first, or either of them.
        **kwargs : dict
            Passed to ``matplotlib.axes.Axes.pcolormesh``.

        Returns
        -------
        PairDisplay
        """
        if kind not in ("difference", "first", "second"):
            raise PublicValueError(f"kind must be 'difference', 'first' or 'second', got {kind!r}.")
        plt = import_pyplot(f"{type(self).__name__}.plot")
        self.ax_ = plt.subplots(layout="constrained")[1] if ax is None else ax
        self.figure_ = self.ax_.figure
        first, second = np.asarray(self.first), np.asarray(self.second)
        if kind == "difference":
            values, title = second - first, f"{self.second_name} minus {self.first_name}"
            most = max(np.abs(values).max(), 1e-12)
            style = {"cmap": "PuOr_r", "vmin": -most, "vmax": most}
        else:
            values = first if kind == "first" else second
            title = self.first_name if kind == "first" else self.second_name
            style = {"cmap": "Blues", "vmin": 0, "vmax": max(first.max(), second.max())}
        self.mesh_ = self.ax_.pcolormesh(values, **style | kwargs)
        self.colorbar_ = self.figure_.colorbar(self.mesh_, ax=self.ax_, label="share")
        turned: dict[str, Any] = {"rotation": 45, "ha": "right"}
        for axis, words, turn in (
            (self.ax_.yaxis, self.labels[0], {}),
            (self.ax_.xaxis, self.labels[1], turned),
        ):
            n = len(words)
            shown = np.unique(np.linspace(0, n - 1, min(n, _MOST_PAIR_TICKS)).round()).astype(int)
            axis.set_ticks(shown + 0.5, [plain_text(words[i], 18) for i in shown], **turn)
        self.ax_.set(
            title=title, ylabel=plain_text(self.names[0]), xlabel=plain_text(self.names[1])
        )
        return self


def _two(columns):
    if isinstance(columns, str) or len({*columns}) != 2 or len(columns) != 2:
        raise PublicValueError(f"columns must be two names, got {columns!r}.")
    return tuple(columns)


class PublicTableDisplay:
    """Where a public table agrees with the released counts: a point for each marginal.

    Use :meth:`from_estimator`, which draws at once. The figure is computed from releases, and is
    private.

    Parameters
    ----------
    agreements : sequence of PublicAgreement
        ``public_agreement_`` of a fitted :class:`~sklearn_dpgen.tables.TableSampler` or
        :class:`~sklearn_dpgen.tables.RelationalSampler`.

    Attributes
    ----------
    ax_ : matplotlib Axes
        Axes of the last plot.
    figure_ : matplotlib Figure
    points_ : matplotlib PathCollection
        The distances of the public table.
    limits_ : matplotlib BarContainer
        The largest distances that noise and sampling explain.

    See Also
    --------
    MarginalDisplay : Released and synthetic shares of one column.
    """

    def __init__(self, agreements: Sequence[Any]) -> None:
        self.agreements = agreements

    @classmethod
    def from_estimator(cls, estimator: BaseEstimator, *, ax: "Axes | None" = None) -> Self:
        """Draw the agreement of the public table of a fit, at no privacy cost.

        Parameters
        ----------
        estimator : TableSampler
            Fitted with ``public``.
        ax : matplotlib Axes or None, default=None
            Axes to draw on. None creates a figure.

        Returns
        -------
        PublicTableDisplay

        Raises
        ------
        ImportError
            matplotlib is not installed.
        TypeError
            The estimator was fitted without a public table.
        """
        import_pyplot(f"{cls.__name__}.from_estimator")
        check_is_fitted(estimator)
        if not hasattr(estimator, "public_agreement_"):
            raise PublicTypeError(
                "estimator must be a TableSampler or RelationalSampler that was fitted with a "
                f"public table, got {type(estimator).__name__} without public_agreement_."
            )
        return cls(estimator.public_agreement_).plot(ax)

    def plot(self, ax: "Axes | None" = None) -> Self:
        """Draw all single columns, and the other marginals that agree least: 20 at most.

        Parameters
        ----------
        ax : matplotlib Axes or None, default=None
            Axes to draw on. None creates a figure.

        Returns
        -------
        PublicTableDisplay
        """
        plt = import_pyplot(f"{type(self).__name__}.plot")
        # A marginal that was released again counts once, as in its last release.
        shown = list({one.columns: one for one in self.agreements}.values())
        shown.sort(key=lambda one: (len(one.columns) > 1, -one.distance / max(one.limit, 1e-9)))
        shown = shown[:_MOST_MARGINALS][::-1]
        if ax is None:
            size = 6.4, 1.2 + 0.24 * len(shown)
            self.ax_ = plt.subplots(layout="constrained", figsize=size)[1]
        else:
            self.ax_ = ax
        self.figure_ = self.ax_.figure
        places = np.arange(len(shown))
        self.limits_ = self.ax_.barh(
            places, [one.limit for one in shown], color="0.85", label="noise and sampling alone"
        )
        colours = [_AGREES if one.agrees else _DIFFERS for one in shown]
        self.points_ = self.ax_.scatter(
            [one.distance for one in shown], places, c=colours, zorder=3, label="public table"
        )
        self.ax_.set_yticks(places, [plain_text(" × ".join(one.columns)) for one in shown])
        self.ax_.set_xlabel("total variation distance from the released counts")
        self.ax_.set_xlim(left=0)
        self.ax_.legend(loc="best", fontsize="small")
        return self
