"""MNIST and FashionMNIST, images of 28 x 28 pixels in ten classes."""

from os import PathLike

import numpy as np
from sklearn.utils import Bunch

from sklearn_dpgen.datasets._home import read_or_download

__all__ = ["fetch_fashion_mnist", "fetch_mnist"]

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
        Give images of shape (n, 28, 28) in place of rows of shape (n, 784).
    data_home : path-like or None, default=None
        Folder of ``mnist.npz``; see :func:`get_data_home`.
    download_if_missing : bool, default=True
        Try OpenML where the file is missing.

    Returns
    -------
    Bunch
        ``X_train`` of shape (60000, 784) and ``X_test`` of shape (10000, 784), uint8 pixels
        from 0 to 255 (``X / 127.5 - 1`` puts them in [-1, 1]); ``y_train`` and ``y_test``,
        uint8 digits.

    Raises
    ------
    OSError
        The file is missing and OpenML is not asked, or does not answer.
    """
    return _fetch("mnist.npz", "mnist_784", as_images, data_home, download_if_missing)


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
        Give images of shape (n, 28, 28) in place of rows of shape (n, 784).
    data_home : path-like or None, default=None
        Folder of ``fashion_mnist.npz``, with the arrays that are returned; see
        :func:`get_data_home`.
    download_if_missing : bool, default=True
        Try OpenML where the file is missing.

    Returns
    -------
    Bunch
        As :func:`fetch_mnist` returns it, with ten kinds of clothing for labels.

    Raises
    ------
    OSError
        The file is missing and OpenML is not asked, or does not answer.

    References
    ----------
    H. Xiao, K. Rasul, R. Vollgraf, "Fashion-MNIST: a novel image dataset for benchmarking machine
    learning algorithms", 2017.
    """
    return _fetch("fashion_mnist.npz", "Fashion-MNIST", as_images, data_home, download_if_missing)


def _fetch(file_name, openml_name, as_images, data_home, download_if_missing):
    arrays = read_or_download(
        file_name,
        _read,
        convert=_from_openml,
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


def _read(path):
    with np.load(path) as arrays:
        return dict(arrays)


def _from_openml(bunch):
    X, y = bunch.data.astype(np.uint8), bunch.target.astype(np.uint8)
    return {
        "X_train": X[:_N_TRAIN],
        "y_train": y[:_N_TRAIN],
        "X_test": X[_N_TRAIN:],
        "y_test": y[_N_TRAIN:],
    }
