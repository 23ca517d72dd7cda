"""What the samplers from released moments share: labels, the releases, their report."""

from sklearn_dpgen.moments._plan import plan_moments
from sklearn_dpgen.utils._base import PrivateEstimator
from sklearn_dpgen.utils._labels import LabelSamplerMixin
from sklearn_dpgen.utils._validation import BUDGET, Interval, Real, StrOptions

__all__ = ["BaseMomentSampler"]


class BaseMomentSampler(LabelSamplerMixin, PrivateEstimator):
    """Base of the samplers that draw from laws with released means and covariances by class."""

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
            raise ValueError(
                "classes and label_proportions are of labels: fit(X, y), or leave them out."
            )

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
        has_labels = y is not None
        plan = plan_moments(
            ball,
            codes,
            len(self.classes_) if has_labels else 1,
            labels=self.labels if has_labels else "public",
            label_proportions=self.label_proportions,
            epsilon=self.epsilon,
            delta=self._delta(len(X)),
            weight=self.second_order_weight,
        )
        noises = plan.noises(seed, type(self).__qualname__, X, codes)
        self.privacy_ = self._plan_privacy(len(X), plan=plan, noise=noises[0])
        self.noise_multiplier_ = plan.mechanism.noise_multiplier
        self.means_, self.covariances_, sizes = plan.release(X, codes, noises)
        if has_labels:
            self._set_proportions(sizes)

    def _plan_privacy(self, n_samples, *, plan, noise):
        relation, public = self._label_terms()
        public = ["n_samples", "names of the columns", *self._declared(), *public]
        return plan.report(type(self).__name__, noise, neighbouring=relation, public=public)
