"""Labels of class-conditional samplers: declared classes, codes, proportions, and draws."""

from collections.abc import Mapping, Set

import numpy as np
import pandas as pd
from sklearn.utils.multiclass import unique_labels
from sklearn.utils.validation import check_is_fitted

from sklearn_dpgen.exceptions import PublicValueError
from sklearn_dpgen.persistence._declarations import Array, Maybe, demand, is_distribution
from sklearn_dpgen.utils._random import split_random_state
from sklearn_dpgen.utils._validation import (
    EstimatorMixin,
    call_quietly,
    check_classification_targets,
    check_n_samples,
    column_or_1d,
    object_array,
)

__all__ = [
    "LabelSamplerMixin",
    "check_classes",
    "check_labels",
    "check_proportions",
    "distinct_labels",
]


class LabelSamplerMixin(EstimatorMixin):
    """Labels of a sampler with parameters ``classes`` and ``label_proportions``.

    The parameter ``labels`` states their privacy, and has no default if there are labels; without
    this parameter they are private. A fit with labels sets ``classes_`` and
    ``label_proportions_``.
    """

    _saved_state: dict = {
        "classes_": Maybe(Array("biufUO", 1)),
        "label_proportions_": Maybe(Array("f", 1, low=0)),
    }
    label_proportions_: np.ndarray

    def _check_saved_labels(self):
        """Return the number of classes of a loaded fit, 1 without labels, after checks."""
        has_labels = hasattr(self, "classes_")
        has_shares = hasattr(self, "label_proportions_")
        demand(has_labels == has_shares, "There are classes or proportions alone.")
        if not has_labels:
            return 1
        classes, shares = self.classes_, self.label_proportions_
        demand(np.array_equal(check_classes(classes), classes), "The classes are not sorted.")
        fits = len(shares) == len(classes) and is_distribution(shares)
        demand(fits, "The classes have no proportions.")
        return len(classes)

    def _check_label_parameters(self, y):
        """Return the declared classes or None, after checks that read no label.

        Private labels need declared classes, as the labels in ``y`` could reveal a single record.
        """
        if y is not None or self.classes is not None:
            self._check_labels_are_declared()
        classes = None if self.classes is None else check_classes(self.classes)
        if y is not None and classes is None and getattr(self, "labels", "private") != "public":
            raise PublicValueError(
                "Private labels need classes, the public list of all labels: the labels in y could "
                "reveal single records."
            )
        if self.label_proportions is not None:
            check_proportions(self.label_proportions, None if classes is None else len(classes))
        return classes

    def _check_labels_are_declared(self):
        """Refuse labels of which nobody said whether they are public."""
        if getattr(self, "labels", "private") is None:
            raise PublicValueError(
                "labels must be 'public' or 'private' when labels are given. 'public' protects a "
                "record within its class, whose size is public; 'private' protects the label too, "
                "and needs classes."
            )

    def _encode_labels(self, y, n_samples):
        """Set ``classes_``, and return the code of each label, 0 without labels."""
        classes = self._check_label_parameters(y)
        if y is None:
            return np.zeros(n_samples, dtype=np.int64)
        self.classes_ = distinct_labels(y, "y") if classes is None else classes
        if self.label_proportions is not None:
            check_proportions(self.label_proportions, len(self.classes_))
        return check_labels(y, self.classes_, n_samples)

    def _planned_classes(self, n_samples, class_sizes):
        """Return the number of classes of a planned fit, 0 without labels, and their sizes.

        Parameters
        ----------
        n_samples : int
        class_sizes : array-like of int of shape (n_classes,) or None
            Public class sizes; None if labels are private or absent.

        Returns
        -------
        n_classes : int
        class_sizes : ndarray of int or None
            None if they are private.
        """
        declared = self._check_label_parameters(None)
        if class_sizes is not None:
            self._check_labels_are_declared()
        is_private = getattr(self, "labels", "private") == "private"
        if class_sizes is None:
            return len(declared) if is_private and declared is not None else 0, None
        if is_private:
            raise PublicValueError(
                "class_sizes are of public labels: those of private ones are secret."
            )
        sizes = np.asarray(class_sizes)
        if sizes.ndim != 1 or sizes.dtype.kind not in "iu" or sizes.sum() != n_samples:
            raise PublicValueError(
                f"class_sizes must be integers that add up to n_samples={n_samples}."
            )
        if len(sizes) < 2 or (declared is not None and len(sizes) != len(declared)):
            raise PublicValueError("class_sizes must be one a class, of two at least.")
        return len(sizes), sizes

    def _label_terms(self, has_labels=None):
        """Return the fields of the neighbouring relation, and the public facts on labels."""
        if not (hasattr(self, "classes_") if has_labels is None else has_labels):
            return {}, []
        public = ["label_set" if self.classes is None else "classes"]
        relation = {"protected": "record_and_label"}
        if getattr(self, "labels", "private") == "public":
            public.append("class_sizes")
            relation = {"shared": ["class"]}
        if self.label_proportions is not None:
            public.append("label_proportions")
        return relation, public

    def _set_proportions(self, sizes):
        """Set ``label_proportions_``: declared ones, or those of public or released sizes."""
        if self.label_proportions is not None:
            self.label_proportions_ = check_proportions(self.label_proportions, len(sizes))
        else:
            sizes = np.asarray(sizes, dtype=np.float64)
            self.label_proportions_ = sizes / sizes.sum()

    def sample_labels(
        self, n_samples: int = 1, *, random_state: int | np.random.RandomState | None = None
    ) -> np.ndarray:
        """Draw labels with probabilities ``label_proportions_``.

        Parameters
        ----------
        n_samples : int, default=1
        random_state : int, RandomState or None, default=None

        Returns
        -------
        y : ndarray of shape (n_samples,)
        """
        check_is_fitted(self)
        n_samples = check_n_samples(n_samples, width=2)
        if not hasattr(self, "classes_"):
            raise PublicValueError("sample_labels needs a fit with labels: fit(X, y).")
        (seed,) = split_random_state(random_state, 1)
        rng = np.random.default_rng(seed)
        return rng.choice(self.classes_, size=n_samples, p=self.label_proportions_)

    def _sample_codes(self, n_samples, y, seed):
        """Return the class code of each record to sample, 0 after a fit without labels."""
        if not hasattr(self, "classes_"):
            if y is not None:
                raise PublicValueError("y can be given after a fit with labels only: fit(X, y).")
            return np.zeros(n_samples, dtype=np.int64)
        if y is None:
            y = self.sample_labels(n_samples, random_state=seed)
        elif np.ndim(y) == 0:
            y = np.full(n_samples, y)
        return check_labels(y, self.classes_, n_samples)


def check_classes(classes):
    """Return declared classes in sorted order: at least two distinct labels of one type."""
    if isinstance(classes, Mapping | Set) or not pd.api.types.is_list_like(classes):
        raise PublicValueError(f"classes must be a list of labels, got a {type(classes).__name__}.")
    labels = list(classes)
    if getattr(classes, "ndim", 1) != 1 or any(map(pd.api.types.is_list_like, labels)):
        raise PublicValueError(
            "classes must be a list of labels in one dimension, got a nested one."
        )
    if not pd.isna(labels).any() and len({isinstance(label, str) for label in labels}) > 1:
        raise PublicValueError("classes holds labels that are not of one type.")
    found = distinct_labels(labels, "classes")
    if len(found) != len(labels):
        raise PublicValueError("classes must be distinct.")
    return found


def distinct_labels(labels, name):
    """Return the labels that occur in sorted order; errors show no label."""
    labels = column_or_1d(labels)
    if pd.isna(labels).any():
        raise PublicValueError(f"{name} holds labels that are missing.")
    if labels.dtype.kind == "f" and np.isinf(labels).any():
        raise PublicValueError(f"{name} holds labels that are infinite.")
    check_classification_targets(labels)
    found = call_quietly(f"{name} holds labels that are not of one type.", unique_labels, labels)
    if len(found) < 2:
        raise PublicValueError(
            f"classes must be at least two, got {len(found)} class; fit without y for one."
        )
    return found


def check_labels(y, classes, n_samples, name="y"):
    """Return the position of each label among the classes, independently of the other labels.

    Errors show no label.
    """
    y = object_array(y) if isinstance(y, list | tuple) else y
    y = column_or_1d(y).tolist()
    if len(y) != n_samples:
        raise PublicValueError(f"{name} must hold {n_samples} labels, one a record, got {len(y)}.")
    codes = {label: code for code, label in enumerate(classes.tolist())}
    found = [_code(codes, label) for label in y]
    if -1 in found:
        raise PublicValueError(f"{name} holds labels that are missing or not among the classes.")
    return np.array(found, dtype=np.int64)


def _code(codes, label):
    """Return the code of a label, -1 if it is not a class or cannot be hashed, such as a list."""
    try:
        return codes.get(label, -1)
    except Exception:  # A label may raise any class.
        return -1


def check_proportions(label_proportions, n_classes=None):
    """Return public proportions: one per class, non-negative with sum one."""
    try:
        shares = np.asarray(label_proportions, dtype=np.float64)
    except (TypeError, ValueError):
        raise PublicValueError(
            "label_proportions must be a list of numbers, got a "
            f"{type(label_proportions).__name__}."
        ) from None
    if shares.ndim != 1 or len(shares) != (len(shares) if n_classes is None else n_classes):
        wanted = "" if n_classes is None else f", {n_classes}"
        raise PublicValueError(
            f"label_proportions must hold one share a class{wanted}; its shape is {shares.shape}."
        )
    if not np.all(shares >= 0) or not np.isclose(shares.sum(), 1):
        raise PublicValueError("label_proportions must be non-negative and sum to 1.")
    return shares / shares.sum()
