"""HTML is escaped unless it says otherwise; names cannot leave their place."""

from html.parser import HTMLParser

import pytest

from sklearn_dpgen.utils._html import (
    Html,
    clean,
    element,
    joined,
    meter,
    notebook,
    preformatted,
    rows_table,
    shorten,
)

HOSTILE = [
    "<script>alert(1)</script>",
    '"><img src=x onerror=alert(1)>',
    "' onmouseover='alert(1)",
    "</style><script>alert(1)</script>",
    "a & b < c > d",
    "](javascript:alert(1))",
    "line\nbreak\tand\rreturn",
    "\u202eevil\u2066",
    "nul\x00 bell\x07 escape\x1b",
    "lone \ud800 surrogate",
]


class Reader(HTMLParser):
    """Collects the elements, the attributes and the text of a page."""

    def __init__(self, text):
        super().__init__()
        self.tags, self.attributes, self.text = [], [], []
        self.feed(text)
        self.close()

    def handle_starttag(self, tag, attrs):
        self.tags.append(tag)
        self.attributes += attrs

    def handle_data(self, data):
        self.text.append(data)


@pytest.mark.parametrize("text", HOSTILE)
def test_text_and_attributes_are_escaped(text):
    found = Reader(element("p", text, title=text))
    assert found.tags == ["p"]
    assert found.attributes == [("title", clean(text))]
    assert "".join(found.text) == clean(text)


@pytest.mark.parametrize("text", HOSTILE[:4])
def test_text_that_is_not_escaped_is_caught(text):
    found = Reader(Html(f"<p title='{text}'>{text}</p>"))
    assert found.tags != ["p"] or found.attributes != [("title", text)]


def test_clean_text_is_one_line_that_can_be_written():
    for text in HOSTILE:
        found = clean(text)
        found.encode("utf-8")
        assert not set(found) & set("\n\r\t\0\x07\x1b\u202e\u2066")
    # Joined emoji and other scripts are left as they are.
    for text in ("👩‍👩‍👧", "名前", "الاسم", "नाम", "ß Å"):
        assert clean(text) == text


def test_html_is_not_escaped_twice_and_none_is_left_out():
    inner = element("b", "<")
    assert element("p", inner, None, [1, "&"]) == "<p><b>&lt;</b>1&amp;</p>"
    assert joined([inner, None]) == inner
    assert isinstance(joined("a"), Html)


def test_attributes_are_named_as_in_html():
    assert element("path", d="M0 0", class_="a", fill_opacity=0.5, title=None) == (
        '<path d="M0 0" class="a" fill-opacity="0.5"/>'
    )


def test_shorten():
    assert shorten("a" * 50, 10) == "a" * 9 + "…"
    assert shorten("short") == "short"


def test_preformatted_text_keeps_its_spaces_and_lines():
    assert preformatted("a   b\n  <c>") == "<pre>a   b\n  &lt;c&gt;</pre>"


def test_a_meter_stays_within_its_bar():
    for share, width in ((-1, "0%"), (0.5, "50%"), (7, "100%")):
        assert f"width:{width}" in meter(share)


def test_a_notebook_block_brings_its_own_style():
    text = notebook(rows_table([("<k>", "v")]))
    assert "<style>" in text
    assert "&lt;k&gt;" in text
