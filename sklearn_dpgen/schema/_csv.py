"""How CSV files of a table are written: their delimiter, and the encoding of their characters."""

import codecs
import os
from dataclasses import KW_ONLY, dataclass
from typing import Any

from sklearn_dpgen.exceptions import PublicValueError
from sklearn_dpgen.schema._column import given_as

__all__ = ["DELIMITERS", "CsvFile", "CsvFormat", "in_format", "is_path"]

DELIMITERS = {",": "commas", ";": "semicolons", "\t": "tabs", "|": "vertical bars"}
# Encodings in which a character depends on its own bytes alone, and no other character has the
# bytes of a line break or a quote, so that the bytes of a record do not change other records. Those
# with escapes, such as ISO 2022 or UTF-7, are none. The first are those of single bytes.
_NAMES = """
    ascii cp037 cp1006 cp1026 cp1125 cp1140 cp1250 cp1251 cp1252 cp1253 cp1254 cp1255 cp1256 cp1257
    cp1258 cp273 cp424 cp437 cp500 cp720 cp737 cp775 cp850 cp852 cp855 cp856 cp857 cp858 cp860 cp861
    cp862 cp863 cp865 cp866 cp869 cp874 cp875 hp-roman8 iso8859-1 iso8859-10 iso8859-11 iso8859-13
    iso8859-14 iso8859-15 iso8859-16 iso8859-2 iso8859-3 iso8859-4 iso8859-5 iso8859-6 iso8859-7
    iso8859-8 iso8859-9 koi8-r koi8-t koi8-u kz1048 mac-arabic mac-croatian mac-cyrillic mac-farsi
    mac-greek mac-iceland mac-latin2 mac-roman mac-romanian mac-turkish palmos ptcp154 tis-620

    utf-8 utf-8-sig utf-16 utf-16-be utf-16-le utf-32 utf-32-be utf-32-le

    big5 big5hkscs cp932 cp949 cp950 euc_jis_2004 euc_jisx0213 euc_jp euc_kr gb18030 gb2312 gbk
    johab shift_jis shift_jis_2004 shift_jisx0213
"""
_ENCODINGS = frozenset(_NAMES.split())


@dataclass(frozen=True)
class CsvFormat:
    """How a CSV file is written.

    Parameters
    ----------
    delimiter : str, default=","
        A comma, semicolon, tab or vertical bar.
    encoding : str, default="utf-8"
        A text encoding that Python knows, without escapes: records of ISO 2022 or UTF-7 would
        change those after them.

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
                "encoding must be a text encoding without escapes, such as utf-8 or cp1252, got "
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
        return codecs.lookup(name).name in _ENCODINGS
    except (LookupError, ValueError):
        return False
