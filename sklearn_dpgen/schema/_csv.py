"""How CSV files of a table are written: their delimiter, and the encoding of their characters."""

import codecs
import os
from dataclasses import KW_ONLY, dataclass
from typing import Any

from sklearn_dpgen.exceptions import PublicValueError
from sklearn_dpgen.schema._column import given_as

__all__ = ["DELIMITERS", "CsvFile", "CsvFormat", "in_format", "is_path"]

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


@dataclass(frozen=True)
class CsvFile(os.PathLike):
    r"""The path of a CSV file whose fields or characters are written in another way.

    Wherever a path of a table is taken, this may be given. A schema that declares ``delimiter`` or
    ``encoding`` makes it unnecessary.

    Parameters
    ----------
    path : str or path-like
        A file, or files by a wildcard.
    delimiter : str, default=","
        What separates fields: a comma, semicolon, tab or vertical bar.
    encoding : str, default="utf-8"
        Encoding of the characters, such as "cp1252".

    Raises
    ------
    PublicValueError
        The delimiter or the encoding is unknown.

    Examples
    --------
    >>> import tempfile
    >>> from pathlib import Path
    >>> from sklearn_dpgen.preprocessing import CsvFile, TabularEncoder
    >>> from sklearn_dpgen.schema import Categorical, Numeric, Schema
    >>> schema = Schema({"ward": Categorical(["Süd", "Nord"]), "age": Numeric(0, 100)})
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     path = Path(folder) / "stays.csv"
    ...     _ = path.write_bytes("ward;age\nSüd;31\n".encode("cp1252"))
    ...     file = CsvFile(path, delimiter=";", encoding="cp1252")
    ...     TabularEncoder(schema).fit_transform(file).shape
    (1, 3)
    """

    path: str | os.PathLike
    _: KW_ONLY
    delimiter: str = ","
    encoding: str = "utf-8"

    def __post_init__(self):
        CsvFormat(self.delimiter, self.encoding)

    def __fspath__(self):
        return os.fspath(self.path)


def in_format(X: Any, form: CsvFormat) -> Any:
    """Return a table, whose paths are those of files in a format unless they state their own.

    Parameters
    ----------
    X : object
        Tables that are no paths are returned as they are.
    form : CsvFormat
    """
    if form == CsvFormat():
        return X
    if isinstance(X, list | tuple):
        return [in_format(part, form) for part in X] if all(map(is_path, X)) else X
    if not is_path(X) or isinstance(X, CsvFile):
        return X
    return CsvFile(X, delimiter=form.delimiter, encoding=form.encoding)


def is_path(X: Any) -> bool:
    """Return whether a source is the path of a file."""
    return isinstance(X, str | os.PathLike)


def _is_encoding(name):
    try:
        return _PLAIN.encode(name).decode(name) == _PLAIN
    except (LookupError, ValueError, TypeError):
        return False
