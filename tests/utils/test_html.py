"""HTML is escaped unless it says otherwise; names cannot leave their place."""

from html.parser import HTMLParser

import pytest

from sklearn_dpgen.utils._html import clean, environment, notebook, percent_up, shorten

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


ELEMENT = '<p title="{{ text }}">{{ text }}</p>'


@pytest.mark.parametrize("text", HOSTILE)
def test_text_and_attributes_are_escaped(text):
    found = Reader(environment().from_string(ELEMENT).render(text=text))
    assert found.tags == ["p"]
    assert found.attributes == [("title", clean(text))]
    assert "".join(found.text) == clean(text)


@pytest.mark.parametrize("text", [HOSTILE[0], HOSTILE[1], HOSTILE[3]])
def test_text_that_is_not_escaped_is_caught(text):
    careless = environment().overlay(autoescape=False)
    found = Reader(careless.from_string(ELEMENT).render(text=text))
    assert found.tags != ["p"] or found.attributes != [("title", clean(text))]


def test_every_template_is_escaped():
    for name in environment().list_templates(extensions=["html"]):
        source, _, _ = environment().loader.get_source(environment(), name)
        assert "autoescape" not in source
        assert "| safe" not in source
    assert environment().autoescape is True


def test_clean_text_is_one_line_that_can_be_written():
    for text in HOSTILE:
        found = clean(text)
        found.encode("utf-8")
        assert not set(found) & set("\n\r\t\0\x07\x1b\u202e\u2066")
    # Joined emoji and other scripts are left as they are.
    for text in ("👩‍👩‍👧", "名前", "الاسم", "नाम", "ß Å"):
        assert clean(text) == text


def test_shorten():
    assert shorten("a" * 50, 10) == "a" * 9 + "…"
    assert shorten("short") == "short"


def test_aligned_text_keeps_its_spaces_and_lines():
    found = environment().from_string("<pre>{{ text | aligned }}</pre>").render(text="a   b\n  <c>")
    assert found == "<pre>a   b\n  &lt;c&gt;</pre>"


@pytest.mark.parametrize(("share", "width"), [(-1, "0%"), (0.5, "50%"), (7, "100%")])
def test_a_bar_stays_within_its_frame(share, width):
    assert f'style="width:{width}"' in notebook("spent", share=share)


def test_a_notebook_shows_all_that_it_is_given():
    text = notebook(
        "(ε, δ)",
        warning="SEEDED",
        lines=[("a line", None), ("a bar", 0.5)],
        items=["an item"],
        rows=[("<key>", "value")],
        details=[("a summary", [("inner", "&")])],
        table=(["name"], [["<cell>"]]),
    )
    assert "<style>" in text
    for part in ("SEEDED", "a line", "a bar", "an item", "&lt;key&gt;", "a summary", "inner",
                 "&amp;", "&lt;cell&gt;"):  # fmt: skip
        assert part in text
    assert Reader(text).tags.count("table") == 3


def test_a_bound_in_percent_is_rounded_up():
    assert percent_up(0.5001) == "50.1%"
    assert percent_up(0.5) == "50%"
