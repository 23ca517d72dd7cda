"""How CSV files of a table are written: their delimiter, and the encoding of their characters."""

import codecs
from dataclasses import dataclass

from sklearn_dpgen.exceptions import PublicValueError
from sklearn_dpgen.schema._column import given_as

__all__ = ["DELIMITERS", "CsvFormat"]

DELIMITERS = {",": "commas", ";": "semicolons", "\t": "tabs", "|": "vertical bars"}
# Which every encoding of a table can write.
_PLAIN = "".join(map(chr, range(32, 127))) + "\t\r\n"


@dataclass(frozen=True)
class CsvFormat:
    """How a CSV file is written.

    Parameters
    ----------
    delimiter : str, default=","
        A comma, semicolon, tab or vertical bar.
    encoding : str, default="utf-8"
        A text encoding that Python knows.

    Raises
    ------
    PublicValueError
        The delimiter or the encoding is unknown.
    """

    delimiter: str = ","
    encoding: str = "utf-8"

    def __post_init__(self):
        if not isinstance(self.delimiter, str) or self.delimiter not in DELIMITERS:
            raise PublicValueError(
                f"delimiter must be one of {[*DELIMITERS]}, got {given_as(self.delimiter)}."
            )
        if not isinstance(self.encoding, str) or not _is_encoding(self.encoding):
            raise PublicValueError(
                "encoding must be a text encoding, such as utf-8 or cp1252, got "
                f"{given_as(self.encoding)}."
            )

    @property
    def is_utf8(self) -> bool:
        """Whether characters are in UTF-8, with a byte order mark or without."""
        return codecs.lookup(self.encoding).name in ("utf-8", "utf-8-sig")

    def can_write(self, text: str) -> bool:
        """Return whether the encoding has all characters of a text."""
        try:
            text.encode(self.encoding)
        except UnicodeEncodeError:
            return False
        return True


def _is_encoding(name):
    try:
        return _PLAIN.encode(name).decode(name) == _PLAIN
    except (LookupError, ValueError, TypeError):
        return False
