"""Pictures as inline SVG: their colours are classes, so that a page has a light and a dark look."""

import numpy as np

from sklearn_dpgen.utils._html import element, shorten

__all__ = ["heat_map", "histogram", "label_bars", "lines"]

# Shades of a heat map.
_SHADES = 24


def _svg(width, height, *children, title=None):
    box = f"0 0 {width:g} {height:g}"
    label = None if title is None else element("title", title)
    return element(
        "svg", label, children, viewBox=box, class_="chart", role="img", width="100%",
        preserveAspectRatio="xMidYMid meet",
    )  # fmt: skip


def _text(x, y, text, *, anchor="start", class_="tick", **more):
    return element("text", text, x=_n(x), y=_n(y), text_anchor=anchor, class_=class_, **more)


def _n(value):
    """Return a number of few digits: a tenth of a pixel is enough."""
    return f"{value:.1f}".removesuffix(".0")


def histogram(first, second, labels, *, errors=None, title=None, width=360, height=150):
    """Return bars of one law, and another as a line of steps over them.

    Parameters
    ----------
    first, second : ndarray of shape (k,)
        Shares, not negative where there are no errors.
    labels : sequence of str of length k
        Of the bars; some of them are written.
    errors : ndarray of shape (k,) or None
        Half lengths of the whiskers of the bars.
    title : str or None
        For those who do not see it.

    Returns
    -------
    Html
    """
    left, right, top, bottom = 34, 4, 8, 22
    inner, tall = width - left - right, height - top - bottom
    reach = first if errors is None else first + errors
    most = max(float(np.max(reach)), float(np.max(second)), 1e-12)
    step, k = inner / len(first), len(first)

    def y(share):
        return top + tall * (1 - min(max(float(share), 0.0), most) / most)

    gap = 1 if step > 4 else 0
    base = top + tall
    bars = "".join(
        f"M{_n(left + i * step + gap / 2)} {_n(base)}V{_n(y(v))}h{_n(step - gap)}V{_n(base)}z"
        for i, v in enumerate(first)
        if v > 0
    )
    path = f"M{_n(left)} {_n(base)}" + "".join(
        f"V{_n(y(v))}H{_n(left + (i + 1) * step)}" for i, v in enumerate(second)
    )
    parts = [
        _grid(left, width - right, y, most),
        element("path", d=bars, class_="first"),
        element("path", d=path + f"V{_n(base)}", class_="second-line"),
    ]
    if errors is not None:
        whiskers = "".join(
            f"M{_n(left + (i + 0.5) * step)} {_n(y(v - e))}V{_n(y(v + e))}"
            for i, (v, e) in enumerate(zip(first, errors, strict=True))
        )
        parts.append(element("path", d=whiskers, class_="whisker"))
    return _svg(width, height, parts, _ticks(labels, left, step, height - 7, k), title=title)


def _grid(x0, x1, y, most):
    """Return lines at half and at all of the height, with percent beside them."""
    return [
        [
            element("line", x1=_n(x0), x2=_n(x1), y1=_n(y(s)), y2=_n(y(s)), class_="axis"),
            _text(x0 - 4, y(s) + 3.5, percent(s), anchor="end"),
        ]
        for s in (0.0, most / 2, most)
    ]


def percent(share):
    """Return a share in percent, of two digits or of one."""
    value = 100 * float(share)
    return f"{value:.0f}%" if value >= 10 or value == 0 else f"{value:.2g}%"


def _ticks(labels, left, step, y, k):
    """Return as many labels as there is room for, the first and the last among them."""
    longest = max(map(len, map(str, labels)), default=1)
    room = max(2, int(step * k / (6.2 * min(longest, 12) + 10)))
    places = np.arange(0, k, max(1, -(-(k - 1) // (room - 1))))
    if len(places) > 1:
        # It comes no nearer to the one before.
        places[-1] = k - 1
    anchors = {0: "start", k - 1: "end"} if step < 30 else {}
    return [
        _text(
            left + step * (i + {"start": 0, "end": 1}.get(anchors.get(i, "middle"), 0.5)),
            y,
            shorten(labels[i], 12),
            anchor=anchors.get(i, "middle"),
        )
        for i in places.tolist()
    ]


def label_bars(first, second, labels, *, errors=None, title=None, width=360):
    """Return two bars for each of some labels, one below the other.

    Parameters
    ----------
    first, second : ndarray of shape (k,)
        Shares.
    labels : sequence of str of length k
    errors : ndarray of shape (k,) or None
        Half lengths of the whiskers of the first.
    title : str or None
        For those who do not see it.

    Returns
    -------
    Html
    """
    left, right, row = 128, 42, 20
    reach = first if errors is None else first + errors
    most = max(float(np.max(reach)), float(np.max(second)), 1e-12)
    scale = (width - left - right) / most
    ends = np.maximum(np.maximum(reach, second), 0)
    parts = []
    for i, label in enumerate(labels):
        top, a, b = 4 + i * row, max(float(first[i]), 0.0), max(float(second[i]), 0.0)
        parts += [
            _text(left - 6, top + 11, shorten(label, 18), anchor="end", class_="label"),
            _bar(left, top + 1, a * scale, "first"),
            _bar(left, top + 9, b * scale, "second"),
            _text(left + float(ends[i]) * scale + 4, top + 11.5, percent(b)),
        ]
        if errors is not None:
            low, high = (max(float(first[i] + s * errors[i]), 0.0) for s in (-1, 1))
            d = f"M{_n(left + low * scale)} {_n(top + 4.5)}H{_n(left + high * scale)}"
            parts.append(element("path", d=d, class_="whisker"))
    return _svg(width, 8 + row * len(labels), parts, title=title)


def _bar(x, y, width, class_):
    return element("rect", x=_n(x), y=_n(y), width=_n(width), height=7, rx=1.5, class_=class_)


def heat_map(matrix, labels, *, title=None, width=360):
    """Return a square matrix as cells of as many shades, with the names of its rows.

    Parameters
    ----------
    matrix : ndarray of shape (k, k)
        The full colours are those of -1 and 1; what is NaN is left empty.
    labels : sequence of str of length k
    title : str or None
        For those who do not see it.

    Returns
    -------
    Html
    """
    k = len(matrix)
    has_names = k <= 32
    left = 92 if has_names else 4
    size = (width - left - 4) / k
    shades = np.rint(_SHADES * np.nan_to_num(matrix, nan=0.0).clip(-1, 1)).astype(int)
    parts = [_cells(shades == shade, left, size, shade) for shade in np.unique(shades).tolist()]
    frame = element(
        "rect", x=_n(left), y=4, width=_n(k * size), height=_n(k * size), class_="frame"
    )
    names = []
    if has_names:
        small = min(11.0, max(5.0, 0.8 * size))
        names = [
            _text(
                left - 5,
                4 + (i + 0.5) * size + small / 3,
                shorten(label, 14),
                anchor="end",
                class_="label",
                style=f"font-size:{small:.1f}px",
            )
            for i, label in enumerate(labels)
        ]
    return _svg(width, k * size + 8, parts, frame, names, title=title)


def _cells(mask, left, size, shade):
    """Return one path of all cells of a shade; neighbours in a row are one rectangle."""
    if shade == 0:
        return None
    edges = np.diff(mask.astype(np.int8), axis=1, prepend=0, append=0)
    rows, starts = np.nonzero(edges == 1)
    _, stops = np.nonzero(edges == -1)
    d = "".join(
        f"M{_n(left + a * size)} {_n(4 + r * size)}h{_n((b - a) * size)}v{_n(size)}"
        f"h-{_n((b - a) * size)}z"
        for r, a, b in zip(rows.tolist(), starts.tolist(), stops.tolist(), strict=True)
    )
    opacity = f"{abs(shade) / _SHADES:.2f}"
    return element("path", d=d, class_="more" if shade > 0 else "less", fill_opacity=opacity)


def lines(x, curves, *, x_label, y_label, title=None, width=360, height=240):
    """Return curves over the unit square, of shares against shares.

    Parameters
    ----------
    x : ndarray of shape (n,)
    curves : dict of str to ndarray of shape (n,)
        By their classes.
    x_label, y_label : str
    title : str or None
        For those who do not see it.

    Returns
    -------
    Html
    """
    left, right, top, bottom = 44, 8, 8, 38
    wide, tall = width - left - right, height - top - bottom

    def at(a, b):
        return f"{_n(left + wide * float(a))} {_n(top + tall * (1 - float(b)))}"

    parts = []
    for s in (0.0, 0.5, 1.0):
        px, py = left + wide * s, top + tall * (1 - s)
        parts += [
            element("path", d=f"M{at(0, s)}H{_n(left + wide)}M{at(s, 0)}V{_n(top)}", class_="axis"),
            _text(left - 5, py + 3.5, percent(s), anchor="end"),
            _text(px, top + tall + 14, percent(s), anchor="middle" if s < 1 else "end"),
        ]
    for class_, values in curves.items():
        d = "M" + "L".join(at(a, b) for a, b in zip(x, values, strict=True))
        parts.append(element("path", d=d, class_=class_))
    middle = top + tall / 2
    parts += [
        _text(left + wide / 2, height - 6, x_label, anchor="middle", class_="label"),
        _text(
            12, middle, y_label, anchor="middle", class_="label",
            transform=f"rotate(-90 12 {_n(middle)})",
        ),
    ]  # fmt: skip
    return _svg(width, height, parts, title=title)
