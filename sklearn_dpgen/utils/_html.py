"""HTML that is escaped unless it says otherwise, and what a notebook shows of a statement."""

import html
import re
import unicodedata
from collections.abc import Iterable

__all__ = [
    "Html",
    "clean",
    "element",
    "joined",
    "meter",
    "notebook",
    "preformatted",
    "rows_table",
    "shorten",
]

# They turn round the text that follows them, beyond the end of a name.
_BIDI = frozenset("\u061c\u200e\u200f\u202a\u202b\u202c\u202d\u202e\u2066\u2067\u2068\u2069")
_SPACE = re.compile(r"\s+")
_VOID = frozenset(["br", "hr", "meta", "path", "rect", "line", "circle", "polyline", "polygon"])

# Of colours that a notebook's own text has, so that it is read on light and on dark.
_NOTEBOOK_STYLE = """
.sklearn-dpgen{overflow-x:auto;max-width:52em;
font:13px/1.45 system-ui,-apple-system,"Segoe UI",Roboto,sans-serif}
.sklearn-dpgen table{border-collapse:collapse;margin:.3em 0}
.sklearn-dpgen th,.sklearn-dpgen td{text-align:left;vertical-align:top;padding:.15em .8em .15em 0;
border:0;border-bottom:1px solid rgba(128,128,128,.25);background:none;overflow-wrap:break-word}
.sklearn-dpgen th{font-weight:600;white-space:nowrap;opacity:.8}
.sklearn-dpgen .headline{font-size:1.1em;font-weight:600}
.sklearn-dpgen .warn{color:#c2410c;font-weight:700}
.sklearn-dpgen summary{cursor:pointer;opacity:.8}
.sklearn-dpgen .meter{display:inline-block;width:8em;height:.6em;border-radius:.3em;
background:rgba(128,128,128,.25);overflow:hidden}
.sklearn-dpgen .meter i{display:block;height:100%;background:#3b82f6}
"""


class Html(str):
    """Text that is HTML already, and is not escaped again."""

    __slots__ = ()


def clean(text):
    """Return text of one line without what is invisible and moves, hides or breaks others.

    Parameters
    ----------
    text : object
        Its ``str`` is taken.

    Returns
    -------
    str
        Control characters, lone surrogates and marks of direction are replaced by U+FFFD.
    """
    return _visible(_SPACE.sub(" ", str(text)))


def _visible(text):
    if text.isascii() and text.isprintable():
        return text
    return "".join(
        "\ufffd" if c in _BIDI or unicodedata.category(c) in ("Cc", "Cs") else c for c in text
    )


def shorten(text, most=40):
    """Return clean text of so many characters at most, with an ellipsis where some are left out."""
    text = clean(text)
    return text if len(text) <= most else text[: most - 1].rstrip() + "…"


def element(tag, *children, **attributes):
    """Return an element; what is not :class:`Html` is escaped.

    Parameters
    ----------
    tag : str
    *children : Html, str, number, or iterable of them
        None is left out.
    **attributes : str, number or None
        An underscore at the end is dropped, and one within becomes a hyphen. None is left out.

    Returns
    -------
    Html
    """
    found = "".join(
        f' {name.rstrip("_").replace("_", "-")}="{html.escape(clean(value))}"'
        for name, value in attributes.items()
        if value is not None
    )
    if tag in _VOID:
        return Html(f"<{tag}{found}/>")
    return Html(f"<{tag}{found}>{joined(children)}</{tag}>")


def joined(parts):
    """Return parts, or parts of parts, one after the other, escaped where they are no HTML."""
    if parts is None:
        return Html()
    if isinstance(parts, Html):
        return parts
    if isinstance(parts, str) or not isinstance(parts, Iterable):
        return Html(html.escape(clean(parts)))
    return Html("".join(map(joined, parts)))


def rows_table(rows, *, class_=None):
    """Return a table of two columns: what something is called, and what it is."""
    lines = (element("tr", element("th", k, scope="row"), element("td", v)) for k, v in rows)
    return element("table", element("tbody", lines), class_=class_)


def preformatted(text):
    """Return text of several lines, with the spaces that align it."""
    lines = (html.escape(_visible(line.expandtabs())) for line in str(text).splitlines())
    return element("pre", Html("\n".join(lines)))


def meter(share):
    """Return a bar that is filled up to a share."""
    width = f"width:{100 * min(max(float(share), 0.0), 1.0):.3g}%"
    return element("span", element("i", style=width), class_="meter")


def notebook(*children):
    """Return what a notebook shows: a block with its own style, on light and on dark."""
    return element("div", element("style", Html(_NOTEBOOK_STYLE)), children, class_="sklearn-dpgen")
