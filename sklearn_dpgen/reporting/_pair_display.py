"""PairDisplay: two columns together, of two tables, or of released counts and samples."""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Self

import numpy as np
import pandas as pd
from numpy.typing import ArrayLike
from sklearn.base import BaseEstimator

from sklearn_dpgen.exceptions import PublicValueError
from sklearn_dpgen.reporting._columns import pair_shares
from sklearn_dpgen.reporting._marginal_display import declared_columns, plain, released_view
from sklearn_dpgen.reporting._released import entry_labels, sample_codes, sample_shares
from sklearn_dpgen.reporting._responses import import_pyplot
from sklearn_dpgen.schema import Schema

if TYPE_CHECKING:
    from matplotlib.axes import Axes

__all__ = ["PairDisplay"]

_N_SAMPLES = 20_000
_MOST_TICKS = 8


class PairDisplay:
    """Shares of the cells of two columns: of either table, or their difference.

    Use :meth:`from_frames` or :meth:`from_estimator`, which draw at once. A picture of a real table
    is **not private**; that of an estimator is made of what was released, and is.

    Parameters
    ----------
    first, second : array-like of shape (k, l)
        Shares, of what is given and of synthetic records.
    labels : sequence of two sequences of str
        Of the cells of the first and of the second column.
    names : tuple of str
        Of the columns.
    first_name, second_name : str, default="real" and "synthetic"
        In titles.

    Attributes
    ----------
    ax_ : matplotlib Axes
        Of the last plot, as what follows.
    figure_ : matplotlib Figure
    mesh_ : matplotlib QuadMesh
        A cell for each cell; the second column is from left to right.
    colorbar_ : matplotlib Colorbar

    See Also
    --------
    MarginalDisplay : One column.

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
        """Draw two columns of two tables, which is not private.

        Parameters
        ----------
        real, synthetic : DataFrame
            Of any library, in memory.
        columns : tuple of two str
        schema : Schema or None, default=None
            The declaration of the columns. None reads it off both tables.
        kind, ax, **kwargs
            As of :meth:`plot`.

        Returns
        -------
        PairDisplay

        Raises
        ------
        ImportError
            matplotlib is not installed.
        ValueError
            A column is missing, or does not fit the schema; they are not two.
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
        """Draw released counts of a pair and synthetic records; private, at no cost.

        Parameters
        ----------
        estimator : estimator
            Fitted, with released counts ``marginals_``, such as TableSampler.
        columns : tuple of two str
        n_samples : int, default=20000
            Synthetic records to draw.
        random_state : int or None, default=None
            Of the draw.
        kind, ax, **kwargs
            As of :meth:`plot`.

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
            The pair was not counted; the columns are not two.
        """
        import_pyplot(f"{cls.__name__}.from_estimator")
        names, view = _two(columns), released_view(estimator)
        parts = [part for part in view.marginals_ if set(part.columns) == set(names)]
        if not parts:
            raise PublicValueError(f"columns {names} were not counted together.")
        # What was measured again is the finer one, or the last.
        part = max(parts, key=lambda p: p.counts.size)
        codes = sample_codes(view, view.draw(n_samples, random_state), part.columns)
        first, second = part.counts / view.n_records_, sample_shares(part, codes)
        labels = [
            entry_labels(view.encoder_.columns_[name], groups, n)
            for name, groups, n in zip(part.columns, part.groups, part.counts.shape, strict=True)
        ]
        if part.columns != names:
            first, second, labels = first.T, second.T, labels[::-1]
        display = cls(first, second, labels, names, first_name="released")
        return display.plot(ax, kind=kind, **kwargs)

    def plot(self, ax: "Axes | None" = None, *, kind: str = "difference", **kwargs: Any) -> Self:
        """Draw the cells.

        Parameters
        ----------
        ax : matplotlib Axes or None, default=None
            None makes a figure.
        kind : {"difference", "first", "second"}, default="difference"
            The second shares less the first, or either of them.
        **kwargs : dict
            To ``matplotlib.axes.Axes.pcolormesh``.

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
            values, title = second - first, f"{self.second_name} less {self.first_name}"
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
            shown = np.unique(np.linspace(0, n - 1, min(n, _MOST_TICKS)).round()).astype(int)
            axis.set_ticks(shown + 0.5, [plain(words[i], 18) for i in shown], **turn)
        self.ax_.set(title=title, ylabel=plain(self.names[0]), xlabel=plain(self.names[1]))
        return self


def _two(columns):
    if isinstance(columns, str) or len({*columns}) != 2 or len(columns) != 2:
        raise PublicValueError(f"columns must be two names, got {columns!r}.")
    return tuple(columns)
