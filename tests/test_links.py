"""Links of the built documentation to itself."""

import pytest
from tool_modules import load_tool, needs_checkout

pytestmark = needs_checkout

INDEX = (
    '<h1 id="top">Index</h1> <a href="{link}">a link</a> <a href="#top">up</a>'
    '<a href="https://example.org/page.html#nowhere">elsewhere</a> <img src="a%20picture.png">'
)


@pytest.fixture
def followed(tmp_path):
    """Return a function: what is broken in a site of two pages, with a link of the first."""
    links = load_tool("check_links")
    (tmp_path / "more").mkdir()
    (tmp_path / "more" / "index.html").write_text('<p><a name="here">Here</a> <b id="é">', "utf-8")
    (tmp_path / "a picture.png").touch()
    (tmp_path.parent / "outside.html").touch()

    def follow(link):
        (tmp_path / "index.html").write_text(INDEX.format(link=link), encoding="utf-8")
        return links.broken_links(tmp_path)

    return follow


@pytest.mark.parametrize(
    "link",
    ["more/index.html", "more/", "more/index.html#here", "more/#%C3%A9", "?q=1", "mailto:a@b.org"],
)
def test_a_link_that_leads_somewhere(followed, link):
    broken, n_followed = followed(link)
    assert not broken
    assert n_followed == (2 if link.startswith("mailto") else 3)


@pytest.mark.parametrize(
    "link",
    ["less/index.html", "more/index.html#there", "#bottom", "more/other.png", "../outside.html"],
)
def test_a_link_that_leads_nowhere_is_found(followed, link):
    broken, _ = followed(link)
    assert broken == [("index.html", link)]


def test_the_tool_ends_with_a_fault(tmp_path, monkeypatch):
    links = load_tool("check_links")
    monkeypatch.setattr("sys.argv", ["check_links.py", str(tmp_path)])
    with pytest.raises(SystemExit, match="there are no links"):
        links.main()
    (tmp_path / "index.html").write_text('<a href="#nowhere">a link</a>', encoding="utf-8")
    with pytest.raises(SystemExit, match="#nowhere leads nowhere"):
        links.main()
