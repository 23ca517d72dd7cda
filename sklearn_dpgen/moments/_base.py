"""What the samplers from released moments share: labels, the releases, their report."""

import numpy as np
from numpy.typing import ArrayLike

from sklearn_dpgen.accounting import PrivacyReport
from sklearn_dpgen.accounting._checks import check_count
from sklearn_dpgen.exceptions import PublicValueError
from sklearn_dpgen.ledger._base import PrivateEstimator
from sklearn_dpgen.moments._plan import price_moments
from sklearn_dpgen.persistence._declarations import Array, demand
from sklearn_dpgen.utils._frames import FramesMixin
from sklearn_dpgen.utils._labels import LabelSamplerMixin
from sklearn_dpgen.utils._validation import BUDGET, Interval, Real, StrOptions, fit_context

__all__ = ["BaseMomentSampler"]


class BaseMomentSampler(FramesMixin, LabelSamplerMixin, PrivateEstimator):
    """Base of the samplers that draw from laws with released means and covariances by class."""

    _saved_state: dict = {
        "noise_multiplier_": float | None,
        "means_": Array("f", 2),
        "covariances_": Array("f", 3),
    }
    _parameter_constraints: dict = {
        "epsilon": BUDGET,
        "delta": [StrOptions({"auto"}), Interval(Real, 0, 1, closed="neither")],
        "labels": [StrOptions({"public", "private"})],
        "classes": ["array-like", None],
        "label_proportions": ["array-like", None],
        "second_order_weight": [StrOptions({"auto"}), Interval(Real, 1e-3, 1e3, closed="both")],
        "random_state": ["random_state"],
    }

    def _check_labels_are_given(self, y):
        """Refuse a declaration of labels without any: they were forgotten."""
        if y is None and (self.classes is not None or self.label_proportions is not None):
            raise PublicValueError(
                "classes and label_proportions are of labels: fit(X, y), or leave them out."
            )

    @fit_context(prefer_skip_nested_validation=True)
    def plan(
        self,
        n_samples: int,
        n_features: int | None = None,
        *,
        class_sizes: ArrayLike | None = None,
    ) -> PrivacyReport:
        """Return what ``fit`` will release and what it costs, without a record.

        Parameters
        ----------
        n_samples : int
            Number of private records, or of persons where there is a ``unit``.
        n_features : int or None, default=None
            Number of columns; it is needed where ``domain`` is a function of it.
        class_sizes : array-like of int of shape (n_classes,) or None, default=None
            Of public labels: the records of each class, in the order of the classes. None is a fit
            without labels, or with private ones where ``classes`` are declared.

        Returns
        -------
        PrivacyReport
            Equal to ``privacy_`` of a fit of so many records.

        Raises
        ------
        ValueError
            As ``fit`` for parameters.

        Warns
        -----
        UserWarning
            Where noise leaves nothing of the mean of a class.
        """
        return self._expected_report(n_samples, n_features, class_sizes)

    def _expected_report(self, n_samples, n_features, class_sizes):
        """Return the report of records that are not there yet."""
        self._check_unit()
        n_samples = check_count(n_samples, "n_samples")
        classes = self._planned_classes(n_samples, class_sizes)
        self._check_labels_are_given(classes[0] or None)
        ball, width = self._declared_ball(n_features)
        n_classes, sizes = classes
        return self._planned(ball, n_samples, n_classes, sizes, width)[1]

    def _planned(self, ball, n_samples, n_classes, class_sizes, n_features):
        """Return the plan of a fit in a ball, and its report.

        Parameters
        ----------
        ball : Ball
            Public. Records outside are moved to it.
        n_samples : int
        n_classes : int
            0 without labels.
        class_sizes : array-like of shape (n_classes,) or None
            None where they are private.
        n_features : int
            Of a record.
        """
        plan = price_moments(
            ball,
            n_samples,
            max(n_classes, 1),
            class_sizes=class_sizes if n_classes else [n_samples],
            label_proportions=self.label_proportions,
            epsilon=self.epsilon,
            delta=self._delta(n_samples),
            weight=self.second_order_weight,
        )
        relation, public = self._label_terms(n_classes > 0)
        report = plan.report(
            type(self).__name__,
            self._noise_description(),
            public=("n_samples", "column_names", *self._declared(), *public),
            **relation,
        )
        return plan, self._protected(report)

    def _release(self, X, y, codes, ball, seed):
        """Set the report, the proportions of the labels, and the laws of the classes in a ball.

        Parameters
        ----------
        X : ndarray of shape (n_samples, d)
        y : array-like or None
            Whether there are labels.
        codes : ndarray of int of shape (n_samples,)
        ball : Ball
            Public. Records outside are moved to it.
        seed : int or None
        """
        n_classes, class_sizes = 0 if y is None else len(self.classes_), None
        if self.labels == "public":
            class_sizes = np.bincount(codes, minlength=n_classes)
        plan, report = self._planned(ball, len(X), n_classes, class_sizes, self.n_features_in_)
        self._charge(report)
        self.noise_multiplier_ = report.noise_multiplier
        noise = self._noise_source(seed, X, codes, ball)
        self.means_, self.covariances_, sizes = plan.release(X, codes, noise)
        if y is not None:
            self._set_proportions(sizes)

    def _check_saved_state(self):
        super()._check_saved_state()
        n_classes, d = self._check_saved_labels(), self.means_.shape[1]
        demand(self.means_.shape == (n_classes, d), "There are other classes than means.")
        demand(self.covariances_.shape == (n_classes, d, d), "Covariances have another shape.")
