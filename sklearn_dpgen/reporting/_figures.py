"""Matplotlib figures as inline SVG, for pages of one file."""

import io
import re
import warnings

import numpy as np

from sklearn_dpgen.exceptions import PublicImportError
from sklearn_dpgen.utils._html import percent, shorten

__all__ = [
    "heat_map",
    "histogram",
    "import_pyplot",
    "inline_svg",
    "label_bars",
    "plain_text",
    "trajectory_lines",
]

# Colours that are legible on light and on dark pages.
_BARS, _LINE, _LESS, _TEXT = "#b4bdc9", "#2f7de1", "#d9722e", "#7a8491"
_PERSONS = (_LINE, _LESS, "#2f9e6e", "#8d6bd8", "#b98d12")
_STYLE = {
    # Text stays text: a browser has fonts for every script, and a reader can search it.
    "svg.fonttype": "none",
    "svg.hashsalt": "sklearn_dpgen",
    "font.family": ["sans-serif"],
    "font.sans-serif": ["DejaVu Sans"],
    "font.size": 7.5,
    "text.color": _TEXT,
    "axes.edgecolor": _TEXT,
    "axes.labelcolor": _TEXT,
    "axes.linewidth": 0.6,
    "axes.spines.right": False,
    "axes.spines.top": False,
    "xtick.color": _TEXT,
    "ytick.color": _TEXT,
    "xtick.major.width": 0.6,
    "ytick.major.width": 0.6,
    "legend.frameon": False,
    "lines.linewidth": 1.3,
}
# Bins of less than this part of the range are drawn as wide as that.
_NARROWEST = 60
# Points, of a figure that fills a card of three to a row.
_WIDTH = 260.0


def import_pyplot(caller):
    """Import matplotlib when something is drawn, or raise an error that says how to install it."""
    try:
        import matplotlib.pyplot as plt
    except ImportError as error:
        raise PublicImportError(
            f"{caller} requires matplotlib: pip install 'sklearn-dpgen[reports]'."
        ) from error
    return plt


def plain_text(text, most=30):
    """Return one line that matplotlib shows as it is, without mathematics."""
    return shorten(text, most).replace("$", r"\$")


def inline_svg(draw, title, *, height, margins=(34, 14, 8, 20)):
    """Draw a figure and return it as an element of a page.

    Parameters
    ----------
    draw : callable
        Called with the axes.
    title : str
        Description of the figure for readers who cannot see it.
    height : float
        In points; the width is that of a card.
    margins : tuple of float
        Left, right, top and bottom margins around the axes, in points.

    Returns
    -------
    markupsafe.Markup

    Raises
    ------
    ImportError
        matplotlib is not installed.
    """
    plt = import_pyplot("A page with figures")
    from markupsafe import Markup, escape
    from matplotlib.figure import Figure

    left, right, top, bottom = margins
    stream = io.StringIO()
    with plt.rc_context(_STYLE), warnings.catch_warnings():
        # The fonts of matplotlib lack scripts that the browser has.
        warnings.filterwarnings("ignore", "Glyph .* missing from")
        figure = Figure(figsize=(_WIDTH / 72, height / 72))
        box = (
            left / _WIDTH,
            bottom / height,
            1 - (left + right) / _WIDTH,
            1 - (top + bottom) / height,
        )
        draw(figure.add_axes(box))
        metadata = dict.fromkeys(("Creator", "Date", "Format", "Type"))
        figure.savefig(stream, format="svg", transparent=True, metadata=metadata)
    svg = stream.getvalue()
    # Each figure numbers its groups from one, so their identifiers would repeat on the page.
    svg = re.sub(r'<g id="[^"]*">', "<g>", svg[svg.index("<svg") :])
    label = f'<svg class="chart" role="img" aria-label="{escape(title)}"'
    return Markup(label + svg.removeprefix("<svg"))


def histogram(first, second, labels, title, *, errors=None, widths=None):
    """Return filled steps of the first shares, and a line of steps of the second.

    Parameters
    ----------
    first, second : ndarray of shape (k,)
        Shares; an axis of shares ends at 1 at most, whatever the noise adds.
    labels : sequence of str of length k
        Names of the bins; some of them are written.
    title : str
        Description of the figure.
    errors : ndarray of shape (k,) or None
        Half lengths of the error bars of ``first``.
    widths : ndarray of shape (m,) or None
        Of the first m bins; the others are null. If they differ, bins are as wide as they are, and
        areas are shares. None draws bins of equal widths.

    Returns
    -------
    markupsafe.Markup
    """
    k = len(first)
    if widths is not None and len(widths) and not np.allclose(widths, widths[0], rtol=1e-6):
        return _densities(first, second, labels, title, errors, np.asarray(widths, dtype=float))

    def draw(ax):
        edges = np.arange(k + 1)
        _draw_steps(ax, edges, np.clip(first, 0, 1), np.clip(second, 0, 1))
        if errors is not None:
            _draw_errors(ax.plot, edges[:-1] + 0.5, first, errors)
        ax.set_xlim(0, k)
        ax.set_ylim(0, _top(first, second, errors))
        ticks = ax.get_yticks()[:: 2 if len(ax.get_yticks()) > 5 else 1]
        ax.set_yticks(ticks, [percent(tick) for tick in ticks])
        ax.set_ylim(0, _top(first, second, errors))
        longest = max(map(len, labels), default=1)
        n_shown = max(2, int(220 / (4.6 * min(longest, 12) + 8)))
        shown = np.arange(0, k, max(1, -(-(k - 1) // (n_shown - 1))))
        # The last bin is named too, no nearer to the one before.
        if len(shown) > 1:
            shown[-1] = k - 1
        ax.set_xticks(shown + 0.5, [plain_text(labels[i], 12) for i in shown])
        # A label that is wider than the last bin and the margin would be cut if it were centred.
        if 2.3 * min(longest, 12) > 106 / k + 14:
            ax.get_xticklabels()[-1].set_horizontalalignment("right")

    return inline_svg(draw, title, height=112)


def _draw_steps(ax, edges, first, second):
    ax.stairs(first, edges, fill=True, color=_BARS)
    ax.stairs(second, edges, color=_LINE, linewidth=1.3)


def _densities(first, second, labels, title, errors, widths):
    """Return steps whose areas are shares; null is a bin of a mean width, apart from the others."""
    m, total = len(widths), widths.sum()
    n_null = len(first) - m
    # A point mass in a narrow bin would otherwise be a line, and flatten all others.
    drawn = np.maximum(widths, total / _NARROWEST)
    drawn = drawn / drawn.sum()
    edges = np.concatenate([[0.0], np.cumsum(drawn)])
    gap = 0.04 if n_null else 0.0
    lefts = np.concatenate([edges[:-1], 1 + gap + (gap + 1 / m) * np.arange(n_null)])
    sizes = np.concatenate([drawn, np.full(n_null, 1 / m)])
    end = (lefts + sizes)[-1]

    def heights(shares):
        return np.clip(shares, 0, 1) / sizes

    def draw(ax):
        over = np.minimum(np.add(first, 0 if errors is None else errors), 1)
        top = 1.05 * max(heights(over).max(), heights(second).max(), 1e-6)
        for part in (slice(0, m), *(slice(i, i + 1) for i in range(m, m + n_null))):
            ends = np.append(lefts[part], lefts[part][-1] + sizes[part][-1])
            _draw_steps(ax, ends, heights(first)[part], heights(second)[part])
        if errors is not None:
            low, high = (heights(first + sign * errors) for sign in (-1, 1))
            _draw_intervals(ax.plot, lefts + sizes / 2, low, high)
        ax.set(xlim=(0, end), ylim=(0, top), yticks=[])
        ax.set_ylabel("density", labelpad=3)
        # Each label begins at the lower end of its bin, at a distance to the one before.
        per_unit, free, shown = 226 / end, -1.0, []
        for i in range(m + n_null):
            # A label is cut at 12 letters, of at most 4.6 points.
            size = 4.6 * min(len(str(labels[i])), 12)
            at = lefts[i] * per_unit
            if at >= free and at + size <= 240:
                shown.append(i)
                free = at + size + 6
        words = [plain_text(labels[i], 12) for i in shown]
        ax.set_xticks(lefts[shown], words, ha="left")

    return inline_svg(draw, title, height=112, margins=(20, 14, 8, 20))


def label_bars(first, second, labels, title, *, errors=None):
    """Return two horizontal bars for each label, one below the other.

    Parameters
    ----------
    first, second, labels, title, errors
        As in :func:`histogram`.

    Returns
    -------
    markupsafe.Markup
    """
    k = len(labels)

    def draw(ax):
        positions = np.arange(k)
        ax.barh(positions - 0.2, np.clip(first, 0, 1), 0.36, color=_BARS)
        ax.barh(positions + 0.2, np.clip(second, 0, 1), 0.36, color=_LINE)
        if errors is not None:
            _draw_errors(
                lambda x, y, **style: ax.plot(y, x, **style), positions - 0.2, first, errors
            )
        top = _top(first, second, errors)
        ax.set(xlim=(0, top), ylim=(k - 0.5, -0.5), xticks=[])
        ax.set_yticks(positions, [plain_text(label, 18) for label in labels])
        ax.tick_params(axis="y", length=0)
        ax.spines["bottom"].set_visible(False)
        ends = np.maximum(first if errors is None else first + errors, second).clip(0, top)
        for position, end, share in zip(positions, ends, second, strict=True):
            ax.annotate(percent(share), (end, position), (3, 0), textcoords="offset points",
                        va="center", color=_LINE)  # fmt: skip

    return inline_svg(draw, title, height=10 + 15 * k, margins=(92, 34, 4, 4))


def _draw_errors(plot, positions, shares, errors):
    """Draw error bars as one line with gaps, which takes less room than one line for each."""
    _draw_intervals(plot, positions, np.clip(shares - errors, 0, 1), np.clip(shares + errors, 0, 1))


def _draw_intervals(plot, positions, low, high):
    gaps = np.full(len(positions), np.nan)
    x = np.column_stack([positions, positions, gaps]).ravel()
    y = np.column_stack([low, high, gaps]).ravel()
    plot(x, y, color=_TEXT, linewidth=0.8)


def _top(first, second, errors):
    reach = first if errors is None else first + errors
    return min(max(1.05 * float(np.max(reach)), 1.05 * float(np.max(second)), 1e-6), 1.0)


def heat_map(matrix, labels, title):
    """Return a square matrix as coloured cells, with the names of its rows.

    Parameters
    ----------
    matrix : ndarray of shape (k, k)
        Colours are full at -1 and 1; NaN is left empty.
    labels : sequence of str of length k
    title : str
        Description of the figure.

    Returns
    -------
    markupsafe.Markup
    """
    k = len(matrix)
    has_names = k <= 32
    left = 74 if has_names else 4

    def draw(ax):
        from matplotlib.colors import LinearSegmentedColormap, to_rgba

        ends = [to_rgba(_LESS, 1), to_rgba(_LESS, 0), to_rgba(_LINE, 0), to_rgba(_LINE, 1)]
        colors = LinearSegmentedColormap.from_list(
            "difference", list(zip((0, 0.5, 0.5, 1), ends, strict=True))
        )
        masked = np.ma.masked_invalid(matrix)
        ax.imshow(masked, cmap=colors, vmin=-1, vmax=1, interpolation="none", aspect="auto")
        ax.spines[:].set_visible(True)
        ax.set_xticks([])
        ax.set_yticks([])
        if has_names:
            size = min(7.5, 0.8 * (_WIDTH - left - 4) / k)
            ax.set_yticks(np.arange(k), [plain_text(label, 14) for label in labels], fontsize=size)
        ax.tick_params(axis="y", length=0)

    return inline_svg(draw, title, height=_WIDTH - left + 4, margins=(left, 4, 4, 4))


def trajectory_lines(persons, bounds, labels, title):
    """Return the values of a few persons against the index of their rows.

    Parameters
    ----------
    persons : list of (index, values)
        Arrays of the rows of each person, in the order of the index; NaN for null.
    bounds : tuple of ((low, high), (low, high))
        Ends of the axis of the index and of that of the values.
    labels : list of str or None
        Names of the values 0, 1, ..., for labels.
    title : str
        Description of the figure.

    Returns
    -------
    markupsafe.Markup
    """

    def draw(ax):
        from matplotlib.dates import AutoDateLocator, ConciseDateFormatter

        for i, (index, values) in enumerate(persons):
            # Lines of labels lie beside one another.
            shift = 0 if labels is None else 0.12 * (i - (len(persons) - 1) / 2)
            color = _PERSONS[i % len(_PERSONS)]
            ax.plot(index, values + shift, "-o", color=color, markersize=2.6, linewidth=1)
        (left, right), (low, high) = bounds
        is_date = np.issubdtype(np.asarray(left).dtype, np.datetime64)
        pad = (right - left) / 40
        if left == right:
            pad = np.timedelta64(1, "D") if is_date else 1
        ax.set_xlim(left - pad, right + pad)
        if labels is None:
            ax.margins(y=0.05)
            ax.set_ylim(low - (high - low) / 20, high + (high - low) / 20)
            ax.locator_params(axis="y", nbins=4)
        else:
            ax.set_yticks(range(len(labels)), [plain_text(label, 14) for label in labels])
            ax.set_ylim(len(labels) - 0.5, -0.5)
        if is_date:
            locator = AutoDateLocator(minticks=2, maxticks=5)
            ax.xaxis.set_major_locator(locator)
            ax.xaxis.set_major_formatter(ConciseDateFormatter(locator, show_offset=False))
        else:
            ax.locator_params(axis="x", nbins=5, integer=True)

    height = 112 if labels is None else max(112, 34 + 11 * len(labels))
    return inline_svg(draw, title, height=height, margins=(34 if labels is None else 74, 8, 8, 20))
