"""Rows of a source and a target domain in one table: masks of domains and of known labels."""

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
    """Return the labels of all rows as one array; those of the target may be masked."""
    if y is None:
        raise PublicValueError(f"{name} requires y to be passed, but the target y is None.")
    y = check_array(y, ensure_2d=False, dtype=None, ensure_all_finite=False, input_name="y")
    y = column_or_1d(y, warn=True)
    check_consistent_length(X, y)
    return y


def known_labels(y):
    """Return which labels are known: not masked by -1, NaN, or None among objects.

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
    """Return which rows are of the source domain, by the convention of skada.

    Parameters
    ----------
    y : ndarray of shape (n_samples,)
        Labels. Read only if ``sample_domain`` is None.
    sample_domain : array-like of shape (n_samples,) or None
        Integers: negative for rows of the target. None takes rows with masked labels, -1 or NaN,
        as the target.

    Returns
    -------
    ndarray of bool of shape (n_samples,)
        True for rows of the source; all True, with a warning, if None and no label is masked.

    Raises
    ------
    PublicValueError
        The length differs, values are not integers, or a domain is absent.
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
    """Return which rows count in an accuracy on the target: those with known labels.

    Parameters
    ----------
    y : ndarray of shape (n_samples,)
    sample_domain : array-like of shape (n_samples,) or None
        None takes all rows as the target.

    Returns
    -------
    ndarray of bool of shape (n_samples,)
        Rows of the target with known labels.

    Raises
    ------
    PublicValueError
        There is no such row, or the domains have another length or are not integers.
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
            "score needs rows of the target with known labels, and there are none. If they are "
            "masked for fit too, choose parameters by another scoring; if rows are sorted by "
            "domain, shuffle the folds of a search."
        )
    return known


def encode_source_labels(y, name):
    """Return the classes of the source, and the code of each of its labels.

    Masked labels are refused, as ``score`` takes them as unknown.
    """
    if not known_labels(y).all():
        raise PublicValueError(
            f"{name} needs the label of each row of the source: -1, NaN and None are for masked "
            "labels. Leave out rows without a label, or give them to the target; rename a class "
            "that is called -1."
        )
    check_array(y, ensure_2d=False, dtype=None, input_name="y")
    # The masked labels of the target may have changed the dtype of all labels.
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
