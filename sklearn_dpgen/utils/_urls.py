"""URLs, which may hold a password and are not shown."""

import os
import re

__all__ = ["is_url"]

# One slash is left of two in a path of pathlib; one letter and a slash are a drive of Windows.
_URL = re.compile(r"\s*[A-Za-z](?:[A-Za-z0-9+.-]+:|:/)/")


def is_url(path: object) -> bool:
    """Return whether a text or a path is a URL, as that of a table of a database."""
    text = os.fspath(path) if isinstance(path, os.PathLike) else path
    return isinstance(text, str) and bool(_URL.match(text))
