"""Data sets that are downloaded: UCI Adult, MNIST and FashionMNIST."""

import os
from os import PathLike
from pathlib import Path

import numpy as np
import pandas as pd
from sklearn.datasets import fetch_openml
from sklearn.utils import Bunch

from sklearn_dpgen.schema import Categorical, Numeric, Ordinal, Schema

__all__ = ["fetch_adult", "fetch_fashion_mnist", "fetch_mnist", "get_data_home", "read_or_download"]


def get_data_home(data_home: str | PathLike | None = None) -> Path:
    """Return the folder of the data sets that are not part of the package.

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


_DESCR = """\
UCI Adult (census income)
-------------------------
Records of the 1994 United States census; the target `income` says whether a person earns more
than 50000 dollars a year. Becker and Kohavi (1996), UCI Machine Learning Repository,
https://doi.org/10.24432/C5XW20, CC BY 4.0.

The schema is declared from the documentation and not from the rows. Categories are the documented
lists. The documented filter is age above 16 and at least one hour of work a week. Ages stop at
the survey's code of 90, hours at its two digits, and gains at its code of 99999. The other bounds
are round declarations. Values outside are clipped by whatever encodes the table.
"""

# Lowest to highest: the position, from 1, is the column education-num.
_EDUCATION = (
    "Preschool 1st-4th 5th-6th 7th-8th 9th 10th 11th 12th HS-grad Some-college Assoc-voc "
    "Assoc-acdm Bachelors Masters Prof-school Doctorate"
)
_NATIVE_COUNTRY = (
    "United-States Cambodia England Puerto-Rico Canada Germany Outlying-US(Guam-USVI-etc) India "
    "Japan Greece South China Cuba Iran Honduras Philippines Italy Poland Jamaica Vietnam Mexico "
    "Portugal Ireland France Dominican-Republic Laos Ecuador Taiwan Haiti Columbia Hungary "
    "Guatemala Nicaragua Scotland Thailand Yugoslavia El-Salvador Trinadad&Tobago Peru Hong "
    "Holand-Netherlands"
)


def _categorical(names, *, nullable=False):
    return Categorical(names.split(), nullable=nullable)


_COLUMNS = {
    "age": Numeric(17, 90, integer=True),
    "workclass": _categorical(
        "Private Self-emp-not-inc Self-emp-inc Federal-gov Local-gov State-gov Without-pay "
        "Never-worked",
        nullable=True,
    ),
    "fnlwgt": Numeric(0, 1_500_000, integer=True),
    "education": Ordinal(_EDUCATION.split()),
    "education-num": Numeric(1, 16, integer=True),
    "marital-status": _categorical(
        "Married-civ-spouse Divorced Never-married Separated Widowed Married-spouse-absent "
        "Married-AF-spouse"
    ),
    "occupation": _categorical(
        "Tech-support Craft-repair Other-service Sales Exec-managerial Prof-specialty "
        "Handlers-cleaners Machine-op-inspct Adm-clerical Farming-fishing Transport-moving "
        "Priv-house-serv Protective-serv Armed-Forces",
        nullable=True,
    ),
    "relationship": _categorical("Wife Own-child Husband Not-in-family Other-relative Unmarried"),
    "race": _categorical("White Asian-Pac-Islander Amer-Indian-Eskimo Other Black"),
    "sex": _categorical("Female Male"),
    "capital-gain": Numeric(0, 99_999, integer=True),
    "capital-loss": Numeric(0, 5_000, integer=True),
    "hours-per-week": Numeric(1, 99, integer=True),
    "native-country": _categorical(_NATIVE_COUNTRY, nullable=True),
    "income": _categorical("<=50K >50K"),
}


def fetch_adult(
    *, data_home: str | PathLike | None = None, download_if_missing: bool = True
) -> Bunch:
    """Load the UCI Adult table with its public schema.

    Parameters
    ----------
    data_home : path-like or None, default=None
        Folder of ``adult.csv.gz``; see ``get_data_home``.
    download_if_missing : bool, default=True
        Download from OpenML if the file is missing. Its copy has the test rows too: 48842 rows
        instead of 32561.

    Returns
    -------
    Bunch
        ``frame`` : DataFrame with 15 columns, int64 or str, missing categories as NaN;
        ``schema`` : Schema, declared from the documentation;
        ``target_name`` : "income";
        ``DESCR`` : str, the origin of the table and of its public bounds.

    Raises
    ------
    OSError
        The file is missing, and the download is not allowed or fails.
    """
    frame = read_or_download(
        "adult.csv.gz",
        _read_table,
        convert=_table_from_openml,
        openml={"name": "adult", "version": 2, "as_frame": True},
        data_home=data_home,
        download_if_missing=download_if_missing,
    )
    return Bunch(frame=frame, schema=Schema(_COLUMNS), target_name="income", DESCR=_DESCR)


def _read_table(path):
    return pd.read_csv(path, na_values="?", keep_default_na=False)


def _table_from_openml(bunch):
    frame = bunch.frame.rename(columns={"class": "income"})
    # Strings rebuilt from lists have the same dtype as strings read from a file.
    frame = pd.DataFrame({name: frame[name].to_list() for name in _COLUMNS})
    return frame.astype(
        {name: "int64" for name, column in _COLUMNS.items() if isinstance(column, Numeric)}
    )


_N_TRAIN = 60_000
_SIDE = 28


def fetch_mnist(
    *,
    as_images: bool = False,
    data_home: str | PathLike | None = None,
    download_if_missing: bool = True,
) -> Bunch:
    """Load the MNIST digits in their original split.

    Parameters
    ----------
    as_images : bool, default=False
        Return images of shape (n, 28, 28) instead of rows of shape (n, 784).
    data_home : path-like or None, default=None
        Folder of ``mnist.npz``; see ``get_data_home``.
    download_if_missing : bool, default=True
        Download from OpenML if the file is missing.

    Returns
    -------
    Bunch
        ``X_train`` of shape (60000, 784) and ``X_test`` of shape (10000, 784), uint8 pixels
        from 0 to 255 (``X / 127.5 - 1`` puts them in [-1, 1]); ``y_train`` and ``y_test``,
        uint8 digits.

    Raises
    ------
    OSError
        The file is missing, and the download is not allowed or fails.
    """
    return _fetch_images("mnist.npz", "mnist_784", as_images, data_home, download_if_missing)


def fetch_fashion_mnist(
    *,
    as_images: bool = False,
    data_home: str | PathLike | None = None,
    download_if_missing: bool = True,
) -> Bunch:
    """Load FashionMNIST, images of clothing in the format of MNIST, in their original split.

    Parameters
    ----------
    as_images : bool, default=False
        Return images of shape (n, 28, 28) instead of rows of shape (n, 784).
    data_home : path-like or None, default=None
        Folder of ``fashion_mnist.npz``, a file with the returned arrays; see
        ``get_data_home``.
    download_if_missing : bool, default=True
        Download from OpenML if the file is missing.

    Returns
    -------
    Bunch
        As of :func:`fetch_mnist`; the labels are ten kinds of clothing.

    Raises
    ------
    OSError
        The file is missing, and the download is not allowed or fails.

    References
    ----------
    H. Xiao, K. Rasul, R. Vollgraf, "Fashion-MNIST: a novel image dataset for benchmarking machine
    learning algorithms", 2017.
    """
    return _fetch_images(
        "fashion_mnist.npz", "Fashion-MNIST", as_images, data_home, download_if_missing
    )


def _fetch_images(file_name, openml_name, as_images, data_home, download_if_missing):
    arrays = read_or_download(
        file_name,
        _read_images,
        convert=_images_from_openml,
        openml={"name": openml_name, "version": 1, "as_frame": False},
        data_home=data_home,
        download_if_missing=download_if_missing,
    )
    shape = (-1, _SIDE, _SIDE) if as_images else (-1, _SIDE**2)
    return Bunch(
        X_train=arrays["X_train"].reshape(shape),
        y_train=arrays["y_train"],
        X_test=arrays["X_test"].reshape(shape),
        y_test=arrays["y_test"],
    )


def _read_images(path):
    with np.load(path) as arrays:
        return dict(arrays)


def _images_from_openml(bunch):
    X, y = bunch.data.astype(np.uint8), bunch.target.astype(np.uint8)
    return {
        "X_train": X[:_N_TRAIN],
        "y_train": y[:_N_TRAIN],
        "X_test": X[_N_TRAIN:],
        "y_test": y[_N_TRAIN:],
    }
