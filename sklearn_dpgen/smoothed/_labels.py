"""Labels of a class-conditional generator: declared classes, codes, and their proportions."""

import numpy as np
import pandas as pd
from sklearn.utils import column_or_1d
from sklearn.utils.multiclass import check_classification_targets, unique_labels

__all__ = ["check_classes", "check_labels", "check_proportions", "released_proportions"]


def check_classes(classes, y):
    """Return the sorted public classes: those declared, or those that occur in ``y``."""
    name, labels = ("y", y) if classes is None else ("classes", classes)
    labels = column_or_1d(labels)
    if pd.isna(labels).any():
        raise ValueError(f"{name} holds labels that are missing.")
    try:
        check_classification_targets(labels)
        found = unique_labels(labels)
    except TypeError:
        raise ValueError(f"{name} holds labels that are not of one type.") from None
    if classes is not None and len(found) != len(labels):
        raise ValueError("classes must be distinct.")
    if len(found) < 2:
        raise ValueError(
            f"classes must be at least two, got {len(found)} class; fit without y for one."
        )
    return found


def check_labels(y, classes, n_samples):
    """Return the position of each label among the classes; no error shows a label."""
    y = column_or_1d(y)
    if len(y) != n_samples:
        raise ValueError(f"y must hold {n_samples} labels, one a record, got {len(y)}.")
    try:
        codes = np.searchsorted(classes, y).clip(0, len(classes) - 1)
        known = classes[codes] == y
    except TypeError:
        known = np.zeros(1, dtype=bool)
    if not np.all(known):
        raise ValueError("y holds labels that are missing or not among the classes.")
    return codes.astype(np.int64)


def check_proportions(label_proportions, n_classes):
    """Return public proportions, if they are one a class, non-negative and sum to one."""
    shares = np.asarray(label_proportions, dtype=np.float64)
    if shares.shape != (n_classes,):
        raise ValueError(
            f"label_proportions must hold one share a class, {n_classes}; its shape is "
            f"{shares.shape}."
        )
    if not np.all(shares >= 0) or not np.isclose(shares.sum(), 1):
        raise ValueError("label_proportions must be non-negative and sum to 1.")
    return shares / shares.sum()


def released_proportions(label_proportions, codes, n_classes, counting, noise):
    """Return the proportions of the classes.

    Parameters
    ----------
    label_proportions : array-like of shape (n_classes,) or None
        Public ones, taken as they are.
    codes : ndarray of int of shape (n_samples,)
    n_classes : int
    counting : StratifiedGaussianMechanism or None
        Releases the counts where they are private; None where the counts are public.
    noise : NoiseSource
        Of that release.

    Returns
    -------
    ndarray of shape (n_classes,)
    """
    if label_proportions is not None:
        return check_proportions(label_proportions, n_classes)
    counts = np.bincount(codes, minlength=n_classes).astype(np.float64)
    if counting is not None:
        run = counting.run(noise)
        run.draw()
        # A class that noise takes below half a record is kept at that.
        counts = run.release(counts).clip(0.5, None)
    return counts / counts.sum()
