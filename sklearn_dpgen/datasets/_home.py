"""Where data sets that are not shipped are looked for."""

import os
from os import PathLike
from pathlib import Path

from sklearn.datasets import fetch_openml

__all__ = ["get_data_home", "read_or_download"]


def get_data_home(data_home: str | PathLike | None = None) -> Path:
    """Return the folder of the data sets that the package does not ship.

    Parameters
    ----------
    data_home : path-like or None, default=None
        None takes the environment variable ``SKLEARN_DPGEN_DATA``, else
        ``~/sklearn_dpgen_data``. The folder need not exist and is not created.

    Returns
    -------
    pathlib.Path
    """
    if data_home is None:
        data_home = os.environ.get("SKLEARN_DPGEN_DATA") or "~/sklearn_dpgen_data"
    return Path(data_home).expanduser()


def read_or_download(file_name, read, *, convert, openml, data_home, download_if_missing):
    """Return ``read(path)`` of a file in the data home, else ``convert(bunch)`` from OpenML.

    ``openml`` holds the arguments of :func:`sklearn.datasets.fetch_openml`.
    """
    path = get_data_home(data_home) / file_name
    if path.exists():
        return read(path)
    missing = (
        f"{path} does not exist: put {file_name} there, or set SKLEARN_DPGEN_DATA to its folder"
    )
    if not download_if_missing:
        raise OSError(f"{missing}, or pass download_if_missing=True.")
    try:
        bunch = fetch_openml(**openml)
    except (OSError, ValueError) as error:
        raise OSError(f"{missing}. Downloading it from OpenML failed too.") from error
    return convert(bunch)
