"""Rows of two domains in one table: which is of the target, which labels are known."""

import numpy as np
import pandas as pd

from sklearn_dpgen.exceptions import PublicValueError
from sklearn_dpgen.utils._validation import (
    check_array,
    check_classification_targets,
    check_consistent_length,
    column_or_1d,
    warn_user,
)

__all__ = [
    "check_labels_of_both",
    "encode_source_labels",
    "known_labels",
    "scored_rows",
    "source_mask",
]


def check_labels_of_both(X, y, name):
    """Return the labels of all rows as one array, in which those of the target may be masked."""
    if y is None:
        raise PublicValueError(f"{name} requires y to be passed, but the target y is None.")
    y = check_array(y, ensure_2d=False, dtype=None, ensure_all_finite=False, input_name="y")
    y = column_or_1d(y, warn=True)
    check_consistent_length(X, y)
    return y


def known_labels(y):
    """Tell labels from masks: -1 or NaN, and None among objects.

    Parameters
    ----------
    y : ndarray of shape (n_samples,)

    Returns
    -------
    ndarray of bool of shape (n_samples,)
    """
    if y.dtype.kind not in "iufO":
        return np.ones(len(y), dtype=bool)
    return ~(pd.isna(y) | (y == -1))


def source_mask(y, sample_domain):
    """Tell source rows from target rows, by the convention of skada.

    Parameters
    ----------
    y : ndarray of shape (n_samples,)
        Labels. Read only where ``sample_domain`` is None.
    sample_domain : array-like of shape (n_samples,) or None
        Integers: negative for rows of the target. None takes masked labels for the target: -1,
        or NaN.

    Returns
    -------
    ndarray of bool of shape (n_samples,)
        True for rows of the source. With None it may be so everywhere, after a warning.

    Raises
    ------
    ValueError
        Another length, not integers, or one of the domains is absent.
    """
    if sample_domain is None:
        is_source = known_labels(y)
        if is_source.all():
            warn_user(
                "sample_domain is absent and no label is masked: fitting on the source alone. In "
                "a pipeline or a search, enable metadata routing and call "
                "set_fit_request(sample_domain=True).",
                UserWarning,
            )
            return is_source
    else:
        is_source = _check_domains(sample_domain, len(y)) >= 0
    for present, name in ((is_source.any(), "source"), (not is_source.all(), "target")):
        if not present:
            raise PublicValueError(
                f"sample_domain must mark samples of both domains: no {name} sample."
            )
    return is_source


def scored_rows(y, sample_domain):
    """Tell the rows that an accuracy on the target may count.

    Parameters
    ----------
    y : ndarray of shape (n_samples,)
    sample_domain : array-like of shape (n_samples,) or None
        None takes all rows for those of the target.

    Returns
    -------
    ndarray of bool of shape (n_samples,)
        Rows of the target whose labels are known.

    Raises
    ------
    ValueError
        There is none, or the domains are of another length or not integers.
    """
    known = known_labels(y)
    if sample_domain is not None:
        known &= _check_domains(sample_domain, len(y)) < 0
    elif not known.all():
        warn_user(
            "sample_domain is absent and labels are masked: the score is that of the rows with "
            "known labels, which may all be of the source. In a search, enable metadata routing "
            "and call set_score_request(sample_domain=True).",
            UserWarning,
        )
    if not known.any():
        raise PublicValueError(
            "score needs rows of the target with known labels, there are none. Where they are "
            "masked for fit too, choose parameters by a scoring of another kind; where rows are "
            "sorted by domain, shuffle the folds of a search."
        )
    return known


def encode_source_labels(y, name):
    """Return the classes of the source, and the code of each of its labels.

    A masked one would be a class of its own, which ``score`` takes for unknown.
    """
    if not known_labels(y).all():
        raise PublicValueError(
            f"{name} needs the label of each row of the source: -1, NaN and None are for masked "
            "ones. Leave rows without a label out, or give them to the target; call a class that "
            "is named -1 something else."
        )
    check_array(y, ensure_2d=False, dtype=None, input_name="y")
    # The target's masked labels had a part in the dtype of all labels together.
    try:
        check_classification_targets(y)
        classes, codes = np.unique(np.asarray(y.tolist()), return_inverse=True)
    except TypeError:
        raise PublicValueError("y holds labels of the source that are not of one type.") from None
    if len(classes) < 2:
        raise PublicValueError(
            f"{name} needs at least two classes in the source, got {len(classes)} class."
        )
    return classes, codes


def _check_domains(sample_domain, n_samples):
    domains = check_array(sample_domain, ensure_2d=False, dtype=None, input_name="sample_domain")
    if domains.shape != (n_samples,) or domains.dtype.kind not in "iu":
        raise PublicValueError(
            f"sample_domain must hold {n_samples} integers, one a sample: negative for the "
            "target, others for the source."
        )
    return domains
