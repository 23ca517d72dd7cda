"""Base class of the moment samplers: labels, releases and report."""

import numpy as np
from numpy.typing import ArrayLike

from sklearn_dpgen.accounting import PrivacyReport
from sklearn_dpgen.exceptions import PublicValueError
from sklearn_dpgen.ledger._base import Plan, PrivateEstimator
from sklearn_dpgen.mechanisms._class_moments import price_moments
from sklearn_dpgen.persistence._declarations import Array, demand
from sklearn_dpgen.preprocessing._public_table import PUBLIC_TABLE, read_public_array
from sklearn_dpgen.utils._frames import FramesMixin
from sklearn_dpgen.utils._labels import LabelSamplerMixin, check_labels
from sklearn_dpgen.utils._normal_laws import PublicMoments
from sklearn_dpgen.utils._validation import (
    BUDGET,
    Interval,
    Real,
    StrOptions,
    check_count,
    fit_context,
)

__all__ = ["BaseMomentSampler", "encode_public_array"]


def encode_public_array(X, labels, n_features, classes):
    """Return public records of a domain, the codes of their labels, equal weights and a hash.

    Parameters
    ----------
    X : array-like of shape (n, n_features)
    labels : array-like of shape (n,) or None
    n_features : int
    classes : ndarray or None
        None leaves out the labels.

    Returns
    -------
    X : ndarray of shape (n, n_features)
    codes : ndarray of int of shape (n,) or None
    weights : ndarray of shape (n,)
    sha256 : str
    """
    X, sha256 = read_public_array(X, n_features, labels)
    codes = None
    if labels is not None and classes is not None:
        codes = check_labels(labels, classes, len(X), "public")
    return X, codes, np.ones(len(X)), sha256


def _moments_of_known(X, codes, n_classes, weights, ball):
    """Return the PublicMoments of records whose unknown features are NaN."""
    is_known = ~np.isnan(X)
    X = ball.project(np.where(is_known, X, ball.center))
    mass = weights[:, None] * is_known
    of_class = np.eye(n_classes)[codes].T
    masses = of_class @ mass
    means = (of_class @ (mass * X)) / masses.clip(1e-300)
    # Variances are those of the known cells, and the matrix is positive semidefinite.
    residuals = np.sqrt(mass / masses.sum(axis=0).clip(1e-300)) * (X - means[codes])
    covariance = residuals.T @ residuals
    known = (masses > 0).all(axis=0)
    if not known.all():
        # The order of variances then says nothing about the features that are not known.
        covariance[~known] = covariance[:, ~known] = 0.0
        covariance[~known, ~known] = covariance.diagonal()[known].sum() / max(1, known.sum())
    return PublicMoments(means, covariance, known)


class BaseMomentSampler(FramesMixin, LabelSamplerMixin, PrivateEstimator):
    """Base of the samplers of normal distributions with released class-wise moments."""

    _saved_state: dict = {
        "noise_multiplier_": float | None,
        "means_": Array("f", 2),
        "covariances_": Array("f", 3),
    }
    _not_saved: dict = {"public": "A file holds no records."}
    _parameter_constraints: dict = {
        "epsilon": BUDGET,
        "delta": [StrOptions({"auto"}), Interval(Real, 0, 1, closed="neither")],
        "labels": [StrOptions({"public", "private"}), None],
        "classes": ["array-like", None],
        "label_proportions": ["array-like", None],
        "second_order_weight": [StrOptions({"auto"}), Interval(Real, 1e-3, 1e3, closed="both")],
        "public": PUBLIC_TABLE,
        "random_state": ["random_state"],
    }

    def _check_labels_are_given(self, y):
        """Refuse declared labels without y."""
        if y is None and (self.classes is not None or self.label_proportions is not None):
            raise PublicValueError(
                "classes and label_proportions require y: call fit(X, y), or leave them out."
            )

    @fit_context(prefer_skip_nested_validation=True)
    def plan(
        self,
        n_samples: int,
        n_features: int | None = None,
        *,
        class_sizes: ArrayLike | None = None,
    ) -> PrivacyReport:
        """Return the privacy report of a fit, without reading a record.

        Parameters
        ----------
        n_samples : int
            Number of private records, or of persons with a ``unit``.
        n_features : int or None, default=None
            Number of columns; required if ``domain`` is a function of it.
        class_sizes : array-like of int of shape (n_classes,) or None, default=None
            Numbers of records of the classes, in their order, if labels are public. None plans a
            fit without labels, or with private labels if ``classes`` are declared.

        Returns
        -------
        PrivacyReport
            Equal to ``privacy_`` of a fit on as many records.

        Raises
        ------
        PublicValueError
            As ``fit`` for parameters.

        Warns
        -----
        UserWarning
            Noise hides the mean of a class.
        """
        self._check_unit()
        n_samples = check_count(n_samples, "n_samples")
        n_classes, sizes = self._planned_classes(n_samples, class_sizes)
        self._check_labels_are_given(n_classes or None)
        ball, width = self._declared_ball(n_features)
        public = self._read_public(ball, n_classes, None)
        return self._plan(ball, n_samples, n_classes, sizes, width, public).report

    def _plan(self, ball, n_samples, n_classes, class_sizes, n_features, public):
        """Return the plan of a fit in a ball; its details are a MomentPlan, the ball and moments.

        Parameters
        ----------
        ball : Ball
            Public; records outside are projected on it.
        n_samples : int
        n_classes : int
            0 without labels.
        class_sizes : array-like of shape (n_classes,) or None
            None if the sizes are private.
        n_features : int
            Dimension of a record.
        public : tuple of (PublicMoments or None, dict of str to str)
            Moments of public records, and the hashes of public tables.
        """
        prior, tables = public
        moments = price_moments(
            ball,
            n_samples,
            max(n_classes, 1),
            class_sizes=class_sizes if n_classes else [n_samples],
            label_proportions=self.label_proportions,
            epsilon=self.epsilon,
            delta=self._delta(n_samples),
            weight=self.second_order_weight,
        )
        relation, facts = self._label_terms(n_classes > 0)
        if self.public is not None:
            facts.append("public")
        report = moments.report(
            type(self).__name__,
            self._noise_description(),
            public=("n_samples", "column_names", *self._declared(), *facts),
            public_tables=tables,
            **relation,
        )
        return Plan(self._protected(report), (moments, ball, prior))

    def _facts(self, n_samples, codes, has_labels, ball):
        """Return the public facts of a fit with or without labels."""
        n_classes = len(self.classes_) if has_labels else 0
        is_public = self.labels == "public"
        return {
            "ball": ball,
            "n_samples": n_samples,
            "n_classes": n_classes,
            "class_sizes": np.bincount(codes, minlength=n_classes) if is_public else None,
            "n_features": self.n_features_in_,
            "public": self._read_public(ball, n_classes, getattr(self, "classes_", None)),
        }

    def _read_public(self, ball, n_classes, classes):
        """Return the moments of the public records in the ball, and the hashes of public tables.

        Parameters
        ----------
        ball : Ball
        n_classes : int
            0 for records without labels.
        classes : ndarray or None
            None leaves out the public labels, as a plan does.
        """
        if self.public is None:
            return None, {}
        has_labels = isinstance(self.public, tuple)
        if has_labels and len(self.public) != 2:
            raise PublicValueError(
                f"public must be records or a pair (records, labels), got {len(self.public)} parts."
            )
        if has_labels and not n_classes:
            raise PublicValueError("public must have no labels if the records have none.")
        X, labels = self.public if has_labels else (self.public, None)
        X, codes, weights, sha256 = self._encode_public(X, labels, ball, classes)
        if codes is None:
            codes, n_classes = np.zeros(len(X), dtype=np.int64), 1
        elif len(np.unique(codes)) < n_classes:
            raise PublicValueError("public must have a row of each class.")
        moments = _moments_of_known(X, codes, n_classes, weights, ball)
        return moments, {"public": sha256}

    def _release(self, plan, records, seed):
        """Return the means, the covariances and the sizes of the classes."""
        (moments, ball, public), (X, codes) = plan.details, records
        return moments.release(X, codes, self._noise_source(seed, X, codes, ball), public)

    def _learn(self, plan, released, seed):
        """Set the distributions of the classes, and the proportions of the labels."""
        self.noise_multiplier_ = plan.report.noise_multiplier
        self.means_, self.covariances_, sizes = released
        if hasattr(self, "classes_"):
            self._set_proportions(sizes)

    def _check_saved_state(self):
        super()._check_saved_state()
        n_classes, d = self._check_saved_labels(), self.means_.shape[1]
        demand(self.means_.shape == (n_classes, d), "There are other classes than means.")
        demand(self.covariances_.shape == (n_classes, d, d), "Covariances have another shape.")
