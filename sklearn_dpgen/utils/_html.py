"""HTML by Jinja2 templates, which escape every value."""

import math
import re
import unicodedata
from functools import cache

__all__ = [
    "clean",
    "environment",
    "notebook",
    "percent",
    "percent_up",
    "render",
    "score",
    "shorten",
]

# Bidirectional marks reverse the text that follows them, beyond the end of a name.
_BIDI = frozenset("\u061c\u200e\u200f\u202a\u202b\u202c\u202d\u202e\u2066\u2067\u2068\u2069")
_SPACE = re.compile(r"\s+")


def clean(text):
    """Return text on one line, without characters that hide or move other text.

    Parameters
    ----------
    text : object
        Converted by ``str``.

    Returns
    -------
    str
        Control characters, lone surrogates and bidirectional marks are replaced by U+FFFD.
    """
    return _visible(_SPACE.sub(" ", str(text)))


def _visible(text):
    if text.isascii() and text.isprintable():
        return text
    return "".join(
        "\ufffd" if c in _BIDI or unicodedata.category(c) in ("Cc", "Cs") else c for c in text
    )


def shorten(text, most=40):
    """Return clean text of at most ``most`` characters, with an ellipsis if it is cut."""
    text = clean(text)
    return text if len(text) <= most else text[: most - 1].rstrip() + "…"


def percent(share):
    """Return a share in percent, with one or two digits."""
    value = 100 * float(share)
    return f"{value:.0f}%" if value >= 10 or value == 0 else f"{value:.2g}%"


def percent_up(share):
    """Return an upper bound on a share in percent, rounded up."""
    return f"{math.ceil(1e3 * share - 1e-6) / 10:g}%"


def _aligned(text):
    """Return text of several lines as HTML that preserves its alignment."""
    from markupsafe import Markup, escape

    lines = (escape(_visible(line.expandtabs())) for line in str(text).splitlines())
    return Markup("\n".join(lines))


@cache
def environment():
    """Return the Jinja2 environment of all templates, in which every value is escaped."""
    import jinja2

    found = jinja2.Environment(
        loader=jinja2.PackageLoader("sklearn_dpgen"),
        autoescape=True,
        undefined=jinja2.StrictUndefined,
        # Values that are not markup yet are cleaned before they are escaped.
        finalize=lambda value: value if hasattr(value, "__html__") else clean(value),
        trim_blocks=True,
        lstrip_blocks=True,
    )
    found.filters |= {
        "aligned": _aligned,
        "percent": percent,
        "percent_up": percent_up,
        "shorten": shorten,
    }
    return found


def render(template, **values):
    """Return a template of ``sklearn_dpgen/templates`` filled with values."""
    return environment().get_template(template).render(values)


def score(what, value, beside, *, share=None, best=None):
    """Return one figure at the top of a page.

    Parameters
    ----------
    what, value, beside : str
        Its name, the figure, and a reference value.
    share : float or None
        In [0, 1], the length of a bar.
    best : float or None
        In [0, 1], a mark on the bar.

    Returns
    -------
    dict
    """
    return {"what": what, "value": value, "beside": beside, "share": share, "best": best}


def notebook(
    headline, *, warning=None, share=None, lines=(), items=(), rows=(), details=(), table=None
):
    """Return the HTML of a guarantee or a report in a notebook.

    Parameters
    ----------
    headline : str
    warning : str or None
        Before the headline.
    share : float or None
        In [0, 1], the length of a bar beside the headline.
    lines : sequence of (str, float or None)
        Lines of text, each with the length of a bar beside it.
    items : sequence of str
        Items of a list.
    rows : sequence of (str, str)
        Labels and values.
    details : sequence of (str, sequence)
        Summaries, each with rows that are shown on demand.
    table : tuple of (sequence of str, sequence of sequence) or None
        Names of columns, and rows.

    Returns
    -------
    str
    """
    return render(
        "notebook.html",
        headline=headline,
        warning=warning,
        share=share,
        lines=lines,
        items=items,
        rows=rows,
        details=details,
        table=table,
    )
