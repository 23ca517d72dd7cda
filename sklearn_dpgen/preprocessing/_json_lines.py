"""Files of JSON lines: a record a line, whose values have the types of JSON."""

import json
from collections.abc import Iterator

import numpy as np
import pandas as pd

from sklearn_dpgen.exceptions import PublicValueError
from sklearn_dpgen.preprocessing._files import open_binary, read_binary
from sklearn_dpgen.schema._texts import near_names

__all__ = ["JsonLines"]

_BLOCK = 1 << 22
_LONGEST = 1 << 26
_MARK = b"\xef\xbb\xbf"


class JsonLines:
    """Files of one JSON object a line, in UTF-8.

    The keys of a record are its columns; one that a record lacks is missing there. A record
    influences no other one: types are those of the values.

    Parameters
    ----------
    paths : list of str
        Plain files, or compressed with gzip or bzip2, by their extension.
    columns : mapping of str to Column or None, list of str, or None
        The declared columns; None if nothing is declared yet.

    Attributes
    ----------
    files : list of str
        The paths.
    names : list of str
        The declared columns, and then others of the first record.
    place : str
        What the places of `read_numbered` are numbers of.
    """

    place = "line"

    def __init__(self, paths: list[str], columns) -> None:
        self.files = paths
        first: dict = next((records[0] for _, records in _records(paths[0])), {})
        self.names = [*dict.fromkeys([*(columns or ()), *first])]

    def read(self, names: list[str]) -> Iterator[pd.DataFrame]:
        """Yield frames with the given columns; raise PublicValueError as `read_numbered` does."""
        for _, _, frame in self.read_numbered(names):
            yield frame

    def read_numbered(self, names: list[str]) -> Iterator[tuple[str, np.ndarray, pd.DataFrame]]:
        """Yield the records of each file as frames of objects, with their lines.

        Parameters
        ----------
        names : list of str

        Yields
        ------
        path : str
        lines : ndarray of int
        frame : DataFrame

        Raises
        ------
        PublicValueError
            A line is no object of plain values, or no record of a file has one of the columns.
        """
        for path in self.files:
            seen: set[str] = set()
            for lines, records in _records(path):
                seen.update(*records)
                found = {name: [record.get(name) for record in records] for name in names}
                for name, values in found.items():
                    bad = [isinstance(value, dict | list) for value in values]
                    if any(bad):
                        raise PublicValueError(
                            f"Column {name!r} must hold texts, numbers, truth values or null: line "
                            f"{lines[bad.index(True)]} of {path!r} has a list or an object."
                        )
                series = {n: pd.Series(values, dtype=object) for n, values in found.items()}
                yield path, np.array(lines), pd.DataFrame(series, columns=names)
            missing = [name for name in names if name not in seen]
            if seen and missing:
                raise PublicValueError(
                    f"Each file must have all declared columns: no record of one has {missing}."
                    f"{near_names(missing, sorted(seen))}"
                )


def _records(path):
    """Yield the numbers of lines, and their records."""
    with open_binary(path) as file:
        line, rest, is_more = 1, b"", True
        while is_more:
            more = read_binary(file, path, max(_BLOCK, len(rest)))
            is_more, data = bool(more), rest + more
            data = data.removeprefix(_MARK) if line == 1 else data
            end = data.rfind(b"\n") + 1 if is_more else len(data)
            rest = data[end:]
            if len(rest) > _LONGEST:
                _refuse(path, line)
            texts = data[:end].split(b"\n")
            numbers = [line + i for i, text in enumerate(texts) if text.strip()]
            if numbers:
                yield numbers, [_record(path, number, texts[number - line]) for number in numbers]
            line += len(texts) - 1


def _record(path, line, text):
    try:
        record = json.loads(text)
    except (ValueError, RecursionError):
        record = None
    # Outside of the handler, or the context of the error would show values.
    if not isinstance(record, dict):
        _refuse(path, line)
    return record


def _refuse(path, line):
    raise PublicValueError(
        f"A file of JSON lines must have one object a line, in UTF-8: line {line} of {path!r} is "
        "no object."
    )
