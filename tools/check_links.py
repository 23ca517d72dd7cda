"""Check that each link of a built site to itself leads to a file, and to an anchor that is there.

Links to other sites are left alone: ``make linkcheck-external`` follows them.
"""

import argparse
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import unquote, urlsplit

__all__ = ["broken_links", "read_page"]


class _Reader(HTMLParser):
    def __init__(self):
        super().__init__()
        self.anchors, self.links = set(), set()

    def handle_starttag(self, tag, attrs):
        attrs = dict(attrs)
        self.anchors |= {attrs[key] for key in ("id", "name") if attrs.get(key)}
        self.links |= {attrs[key] for key in ("href", "src") if attrs.get(key)}


def read_page(path):
    """Return the anchors and the links of a page."""
    reader = _Reader()
    reader.feed(path.read_text(encoding="utf-8"))
    reader.close()
    return reader.anchors, reader.links


def broken_links(site):
    """Return what leads nowhere, as (page, link), and the number of links that were followed.

    Parameters
    ----------
    site : Path
        A folder of HTML pages.
    """
    # Themes keep templates among their static files.
    paths = (path for path in sorted(site.rglob("*.html")) if "_static" not in path.parts)
    pages = {path.resolve(): read_page(path) for path in paths}
    broken, n_followed = [], 0
    for page, (_, links) in pages.items():
        for link in sorted(links):
            parts = urlsplit(link)
            if parts.scheme or parts.netloc:
                continue
            n_followed += 1
            target = page
            if parts.path:
                target = (page.parent / unquote(parts.path)).resolve()
            if target.is_dir():
                target /= "index.html"
            anchors, _ = pages.get(target, ((), ()))
            is_there = target.is_file() and target.is_relative_to(site.resolve())
            if not is_there or (parts.fragment and unquote(parts.fragment) not in anchors):
                broken.append((str(page.relative_to(site.resolve())), link))
    return broken, n_followed


def main():
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("site", type=Path, help="a folder of HTML pages")
    site = parser.parse_args().site
    broken, n_followed = broken_links(site)
    if not n_followed:
        raise SystemExit(f"{site}: there are no links")
    if broken:
        raise SystemExit("\n".join(f"{page}: {link} leads nowhere" for page, link in broken))
    print(f"Links of the site to itself: {n_followed}, all lead somewhere.")


if __name__ == "__main__":
    main()
