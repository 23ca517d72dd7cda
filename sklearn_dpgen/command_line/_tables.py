"""Tables in files: which formats there are, how they are read whole and how they are written."""

import glob
import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from sklearn_dpgen.command_line._errors import CommandError

if TYPE_CHECKING:
    import pandas as pd

__all__ = ["add_tables", "files_of", "output_ending", "read_frame", "write_table"]

_ENDINGS = {
    ".csv.gz": ".csv.gz",
    ".csv.bz2": ".csv.bz2",
    ".csv": ".csv",
    ".parquet": ".parquet",
    ".pq": ".parquet",
    ".feather": ".feather",
    ".arrow": ".arrow",
    ".ipc": ".arrow",
}


def add_tables(parser, *, nargs: str = "+") -> None:
    """Add the files of the private table."""
    parser.add_argument(
        "table",
        nargs=nargs,
        metavar="TABLE",
        help="files of one table: Parquet, CSV (plain, .gz, .bz2; with a header, in UTF-8), "
        "Feather or Arrow; all of one format; or a folder of Parquet",
    )


def output_ending(path: str) -> str:
    """Return the ending of a table of the same format.

    Raises
    ------
    CommandError
        No format that is known.
    """
    if os.path.isdir(path):
        return ".parquet"
    found = [end for ending, end in _ENDINGS.items() if path.lower().endswith(ending)]
    if not found:
        raise CommandError(f"{path} must have an ending of {', '.join(_ENDINGS)}.")
    return found[0]


def files_of(paths: Sequence[str]) -> tuple[str, ...]:
    """Return the files that paths and wildcards name.

    Raises
    ------
    CommandError
        Files that are not there, or of formats that are not known.
    """
    for path in paths:
        output_ending(path)
    found: list[str] = []
    for path in paths:
        matches = [path] if os.path.exists(path) else sorted(glob.glob(path, recursive=True))
        if not matches:
            raise CommandError(f"There is no table {path}.")
        found += matches
    return tuple(found)


def read_frame(paths: Sequence[str], columns: Mapping) -> "pd.DataFrame":
    """Read the declared columns of files into one frame.

    Parameters
    ----------
    paths : sequence of str
    columns : mapping of str to Column or None
        None reads texts as they are.
    """
    import pandas as pd

    from sklearn_dpgen.preprocessing._reader import map_frames

    parts = list(map_frames(lambda frame: frame, list(paths), columns))
    return pd.concat(parts, ignore_index=True) if parts else pd.DataFrame(columns=list(columns))


def write_table(frame: "pd.DataFrame", path: Path, ending: str) -> None:
    """Write a table in the format of an ending."""
    if ending.startswith(".csv"):
        # The compression is not seen from the name, which may be another one while it is written.
        methods: dict[str, Literal["gzip", "bz2"]] = {".gz": "gzip", ".bz2": "bz2"}
        method = methods.get(Path(ending).suffix)
        frame.to_csv(path, index=False, encoding="utf-8", lineterminator="\n", compression=method)
    elif ending == ".parquet":
        frame.to_parquet(path, index=False, engine="pyarrow")
    else:
        frame.to_feather(path)
