"""Set the addresses of the documentation and of the repository: ``project_urls`` of ``setup.cfg``.

An index shows README.rst without the files beside it, so that its links must be absolute; other
files name the addresses too. This replaces them in all of these files at once:

    python tools/addresses.py --documentation https://... --repository https://...

Hosts below ``.invalid``, which exist nowhere, stand for addresses that are not known yet.
"""

import argparse
import configparser
import re
from pathlib import Path

__all__ = ["FILES", "is_known", "read_addresses", "replace_addresses", "strange_addresses"]

ROOT = Path(__file__).parents[1]
NAMES = ("Documentation", "Repository")
FILES = (
    "setup.cfg",
    "README.rst",
    "CITATION.cff",
    "conda/recipe.yaml",
    "doc/_static/switcher.json",
)


def read_addresses(root=ROOT):
    """Return the two addresses of ``setup.cfg`` by name, without a slash at the end."""
    setup = configparser.ConfigParser()
    setup.read(root / "setup.cfg", encoding="utf-8")
    lines = setup["metadata"]["project_urls"].strip().splitlines()
    urls = {name.strip(): url.strip() for name, _, url in (line.partition("=") for line in lines)}
    return {name: urls[name].rstrip("/") for name in NAMES}


def is_known(url):
    """Return whether an address is more than a placeholder."""
    return not re.match(r"https://[\w.-]+\.invalid(/|$)", url)


def strange_addresses(text, addresses):
    """Return the placeholders of a text that begin with none of the addresses."""
    found = set(re.findall(r"https://[\w.-]+\.invalid[\w./-]*", text))
    known = tuple(addresses.values())
    return sorted(url for url in found if not url.startswith(known))


def replace_addresses(text, old, new):
    """Return a text with new addresses, also where one of them begins like the other."""
    urls = {url: new[name] for name, url in old.items()}
    longest_first = "|".join(map(re.escape, sorted(urls, key=len, reverse=True)))
    # The end of a name: https://a.org is not the beginning of https://a.organisation.
    return re.sub(rf"({longest_first})(?![\w.-]*\w)", lambda match: urls[match[1]], text)


def main():
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    for name in NAMES:
        parser.add_argument(f"--{name.lower()}", required=True, metavar="URL")
    options = parser.parse_args()
    new = {name: getattr(options, name.lower()).rstrip("/") for name in NAMES}
    if not all(re.fullmatch(r"https://[\w.-]+(/[\w.~-]+)*", url) for url in new.values()):
        parser.error("an address is https:// with a host and perhaps a path")
    old = read_addresses()
    for name in FILES:
        path = ROOT / name
        text = path.read_text(encoding="utf-8")
        path.write_text(replace_addresses(text, old, new), encoding="utf-8", newline="\n")


if __name__ == "__main__":
    main()
