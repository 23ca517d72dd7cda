"""Pairs of domains to adapt between: digits under public transformations, and files of the paper.

The tasks follow a rule, fixed before any result. MNIST images go through ten transformations, in
alphabetical order. Every third of them is for choosing settings; the other seven, and the two
directions between MNIST and the digits of scikit-learn, make the nine tasks that are reported.

The source of a transformation is 10000 training images of MNIST, the private target 10000 others
after the transformation, and the test set the 10000 test images after it. Images are averaged to
7 x 7 pixels from 0 to 1. Between sets of digits they are cut to the box of their ink and averaged
to 8 x 8 pixels: a function of that image alone.

Where the data home has USPS, or the features of Office 31 or VisDA, their tasks can be loaded too.
"""

import bz2
import csv
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

import numpy as np
from scipy import ndimage
from scipy.io import loadmat
from sklearn.datasets import load_digits, load_svmlight_file
from sklearn.model_selection import train_test_split

from sklearn_dpgen.datasets import fetch_mnist
from sklearn_dpgen.datasets._fetch import get_data_home
from sklearn_dpgen.domains import Ball, Box, Domain

__all__ = [
    "CHOICE_TASKS",
    "PAPER_TASKS",
    "REPORTED_TASKS",
    "Task",
    "ink_box",
    "load_features",
    "load_task",
    "load_usps",
]

N_ROWS = 10_000
SIDE, INK_SIDE = 7, 8
OFFICE = {"A": "office31/amazon", "D": "office31/dslr", "W": "office31/webcam"}
VISDA = "visda/train", "visda/validation"


def background(images):
    """Lay a ramp of grey behind the ink, from 0 at the left to .5 at the right."""
    return np.maximum(images, np.linspace(0, 0.5, images.shape[2]))


def blur(images):
    """Blur by a normal law of two pixels."""
    return ndimage.gaussian_filter(images, (0, 2, 2))


def contrast(images):
    """Take the range of greys to [.4, .7]."""
    return 0.4 + 0.3 * images


def dilate(images):
    """Widen the ink by a pixel on each side."""
    return ndimage.grey_dilation(images, (1, 3, 3))


def invert(images):
    """Swap ink and paper."""
    return 1 - images


def noise(images):
    """Add normal noise of .3 to each pixel."""
    return (images + 0.3 * np.random.default_rng(0).standard_normal(images.shape)).clip(0, 1)


def rotate(images):
    """Rotate by 30 degrees."""
    return _warped(images, _rotation(30))


def scale(images):
    """Shrink to 70 percent."""
    return _warped(images, np.eye(2) / 0.7)


def shear(images):
    """Slant by 0.4."""
    return _warped(images, np.array([[1.0, 0.0], [0.4, 1.0]]))


def translate(images):
    """Move by three pixels down and to the right."""
    return np.roll(images, (3, 3), axis=(1, 2))


TRANSFORMATIONS = (
    background,
    blur,
    contrast,
    dilate,
    invert,
    noise,
    rotate,
    scale,
    shear,
    translate,
)
CHOICE_TASKS = tuple(change.__name__ for change in TRANSFORMATIONS[2::3])
REPORTED_TASKS = ("MNIST-digits", "digits-MNIST") + tuple(
    change.__name__ for i, change in enumerate(TRANSFORMATIONS) if i % 3 != 2
)
# Of the paper's Table 1; they need files.
PAPER_TASKS = ("MNIST-USPS", "USPS-MNIST", "VisDA", "D-W", "D-A", "A-W", "A-D", "W-A", "W-D")


@dataclass(frozen=True)
class Task:
    """Labelled rows of a source, private rows of a target, and rows of it to test on.

    All lie in the domain, a function of their width.
    """

    source: tuple[np.ndarray, np.ndarray]
    target: np.ndarray
    test: tuple[np.ndarray, np.ndarray]
    domain: Callable[..., Domain] = partial(Box, 0, 1)


def load_task(name, n_rows=N_ROWS):
    """Return a task by its name; ``n_rows`` limits the training images of MNIST as a set of digits.

    None takes all 60000 of them.
    """
    source, _, target = name.partition("-")
    if name == "VisDA" or source in OFFICE:
        files = VISDA if name == "VisDA" else (OFFICE[source], OFFICE[target])
        (X, y), (private, labels) = map(load_features, files)
        return Task((X, y), private, (private, labels), partial(Ball, 1.0))
    if target:
        return _between(_digits_of(source, n_rows), _digits_of(target, n_rows))
    (change,) = (change for change in TRANSFORMATIONS if change.__name__ == name)
    mnist = fetch_mnist(as_images=True)
    source, target = mnist.X_train[:N_ROWS], mnist.X_train[N_ROWS : 2 * N_ROWS]
    return Task(
        (_small(source / 255), mnist.y_train[:N_ROWS].astype(int)),
        _small(change(target / 255)),
        (_small(change(mnist.X_test / 255)), mnist.y_test.astype(int)),
    )


def _small(images):
    n, block = len(images), images.shape[1] // SIDE
    return images.reshape(n, SIDE, block, SIDE, block).mean(axis=(2, 4)).reshape(n, -1)


def _rotation(degrees):
    angle = np.deg2rad(degrees)
    return np.array([[np.cos(angle), -np.sin(angle)], [np.sin(angle), np.cos(angle)]])


def _warped(images, matrix):
    center = (np.array(images.shape[1:]) - 1) / 2
    whole = np.eye(3)
    whole[1:, 1:] = matrix
    return ndimage.affine_transform(images, whole, [0, *(center - matrix @ center)], order=1)


def ink_box(image, threshold=0.3):
    """Return the box of the ink, centred in a square and averaged to 8 x 8 pixels."""
    rows, columns = (np.flatnonzero(image.max(axis=axis) > threshold) for axis in (1, 0))
    ink = image[rows[0] : rows[-1] + 1, columns[0] : columns[-1] + 1]
    side = max(ink.shape)
    square = np.zeros((side, side))
    top, left = ((side - length) // 2 for length in ink.shape)
    square[top : top + ink.shape[0], left : left + ink.shape[1]] = ink
    fine = square.repeat(INK_SIDE, axis=0).repeat(INK_SIDE, axis=1)
    return fine.reshape(INK_SIDE, side, INK_SIDE, side).mean(axis=(1, 3))


def _digits_of(name, n_rows):
    """Return X, X_test, y, y_test of a set of digits, as boxes of ink."""
    if name == "digits":
        digits = load_digits()
        return train_test_split(
            digits.data / 16, digits.target, test_size=0.3, random_state=0, stratify=digits.target
        )
    if name == "USPS":
        X, y, X_test, y_test = load_usps()
        images = [Z.reshape(-1, 16, 16) for Z in (X, X_test)]
    else:
        mnist = fetch_mnist(as_images=True)
        images = [mnist.X_train[:n_rows] / 255, mnist.X_test / 255]
        y, y_test = mnist.y_train[:n_rows].astype(int), mnist.y_test.astype(int)
    boxes = [np.array([ink_box(image) for image in part]).reshape(len(part), -1) for part in images]
    return [*boxes, y, y_test]


def _between(source, target):
    X, _, y, _ = source
    private, X_test, _, y_test = target
    return Task((X, y), private, (X_test, y_test))


def load_usps(data_home=None):
    """Read USPS, 16 x 16 pixels from 0 to 1, from files of the data home.

    Returns
    -------
    X, y, X_test, y_test : ndarray
        From ``usps.bz2`` and ``usps.t.bz2``, in LIBSVM's format with labels from 1 and pixels
        from -1 to 1.
    """
    home = get_data_home(data_home)
    arrays = []
    for name in ("usps.bz2", "usps.t.bz2"):
        if not (home / name).exists():
            raise OSError(f"{home / name} does not exist: put USPS there.")
        with bz2.open(home / name) as file:
            X, y = load_svmlight_file(file, n_features=256)
        arrays += [(X.toarray() + 1) / 2, y.astype(int) - 1]
    return arrays


def load_features(name, data_home=None):
    """Read features of images from the data home, each row over its norm.

    Returns
    -------
    X, y : ndarray
        From ``<name>.mat``, with ``fts`` or ``features`` and ``labels``, or from ``<name>.csv``,
        features with the label in the last column.
    """
    home = get_data_home(data_home)
    if (home / f"{name}.mat").exists():
        content = loadmat(home / f"{name}.mat")
        X, y = content["fts" if "fts" in content else "features"], content["labels"].ravel()
    elif (home / f"{name}.csv").exists():
        with (home / f"{name}.csv").open(newline="") as file:
            rows = np.array([[float(cell) for cell in row] for row in csv.reader(file)])
        X, y = rows[:, :-1], rows[:, -1]
    else:
        raise OSError(f"{home / name}.csv does not exist: put the features there.")
    norms = np.linalg.norm(X, axis=1, keepdims=True)
    return X / np.maximum(norms, 1e-12), y.astype(int)
