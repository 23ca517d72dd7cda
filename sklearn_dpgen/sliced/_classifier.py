"""DPSlicedWassersteinFairClassifier: private classification whose scores ignore a group."""

import numpy as np
import torch
from numpy.typing import ArrayLike
from sklearn.base import ClassifierMixin
from torch import nn

from sklearn_dpgen.accounting import PrivacyReport
from sklearn_dpgen.domains import Ball
from sklearn_dpgen.ledger._base import UnpaidScoreMixin
from sklearn_dpgen.ledger._ledger import LedgerLike
from sklearn_dpgen.nn import Training
from sklearn_dpgen.persistence._declarations import Array
from sklearn_dpgen.persistence._networks import check_classifier
from sklearn_dpgen.sliced._base import GRADIENT, TRAINING, ClippedGradient
from sklearn_dpgen.sliced._fair import FairPredictor
from sklearn_dpgen.sliced._objective import softmax_residuals
from sklearn_dpgen.utils._labels import check_classes, check_labels, distinct_labels
from sklearn_dpgen.utils._torch import resolve_device
from sklearn_dpgen.utils._validation import check_count, fit_context, validate_data

__all__ = ["DPSlicedWassersteinFairClassifier"]


class DPSlicedWassersteinFairClassifier(UnpaidScoreMixin, ClassifierMixin, FairPredictor):
    """Private classifier whose probabilities are alike between groups.

    A network, by default a linear one, minimizes (1 - alpha) times the mean log loss plus alpha
    times the squared sliced Wasserstein distance between the laws of its predicted probabilities in
    the groups of a sensitive feature: over all records (demographic parity, the statistical parity
    of [1]_, eq. 5) or within each label (equality of odds, eq. 6). Gradients are clipped and noisy.
    It is the whole distribution that is made alike, and so the decisions at any threshold.

    Parameters
    ----------
    alpha : float, default=0.5
        Weight of the penalty, in [0, 1]: 0 is private classification, 1 forgets the labels.
    penalty : {"demographic_parity", "equalized_odds"}, default="demographic_parity"
        What is compared between groups: all predictions, or those of each label.
    classes : array-like of shape (n_classes,) or None, default=None
        The public labels, at least two. None takes those that occur in ``y``, which are then
        public: ``privacy_`` says so.
    groups : array-like of shape (n_groups,) or (n_groups, n_columns), or None, default=None
        The public groups, at least two: values of ``sensitive_features``, or rows of them. A
        declared group may lack records, as in a fold: then its pairs are left out of the penalty.
        None takes the groups that occur, which are then public, and each needs two records.
    group_weights : {"size", "equal"}, default="size"
        What a group counts in the penalty. By size, a pair counts by the product of the shares of
        the records that its groups have, a label of equality of odds by its own share: then no
        group makes the noise much larger, however small it is, and little is learned of a tiny
        one. "equal" is the mean over pairs of [1]_, where the smallest group sets the noise.
        Groups of one size count the same by both.
    epsilon : float, default=1.0
        Privacy budget of the whole fit, in nats; ``np.inf`` trains without noise.
    delta : float or "auto", default="auto"
        Failure probability, in (0, 1). "auto" is 0.1 / n_samples.
    training : Training or None, default=None
        Network and optimizer: :ref:`training_settings`. All steps are paid for by ``epsilon``.
        Defaults: ``hidden_layer_sizes=()``, which is logistic regression with ``coef_`` and
        ``intercept_``, ``activation="relu"``, ``max_iter=500``, ``solver="adam"``,
        ``learning_rate=0.05``, ``schedule="cosine"``, ``averaging=0.2``.
    gradient : ClippedGradient or None, default=None
        Clips and batches: :ref:`training_settings`. Defaults: ``task_clip=1.0``; ``output_bound``
        of 1/2 for two classes and sqrt(1 - 1/K) for K, where no probability is cut;
        ``jacobian_clip=0.25``, ``jacobian_clipping="spectral"``, ``n_projections=50`` for more than
        two classes, ``batch_fraction=0.2``. The sensitivity of a step grows with
        (1 - alpha) 2 C / n' and, for groups of one size, with alpha 16 M L / n', n' the batch, and
        at most twice that for others; with "equal" weights of two groups, with alpha 8 M L / n'_j,
        n'_j the smallest group's share of it.
    ledger : PrivacyLedger, path or None, default=None
        Where a fit books what it will cost, before anything of a record is released: it raises
        BudgetExceededError where less is left. None books nowhere.
    unit : str or None, default=None
        Column of X, a data frame, that says whose row each is. A person is then protected with all
        of their rows, and counts as one record: each step draws one row anew of each person in its
        batch, so that what is learned is the law of a random row of a random person. All rows of a
        person must be of one group, and for equality of odds of one label. The column is not
        learned from. None protects each row by itself.
    random_state : int, RandomState or None, default=None
        None draws noise and batches from the operating system's entropy. An int repeats the fit,
        and voids the guarantee for whoever knows or guesses it.

    Attributes
    ----------
    module_ : torch.nn.Module
        The network, from (n, n_features) to the probability of the second class (n, 1), or of
        each (n, n_classes), in double precision.
    classes_ : ndarray of shape (n_classes,)
        The labels.
    coef_ : ndarray of shape (1, n_features) or (n_classes, n_features)
        Weights of the logits, as of ``LogisticRegression``; without hidden layers alone.
    intercept_ : ndarray of shape (1,) or (n_classes,)
        Their intercepts.
    privacy_ : PrivacyReport
        The guarantee of the fit.
    noise_multiplier_ : float
        Standard deviation of the noise over the sensitivity.
    mechanism_ : StratifiedGaussianMechanism
        What each step releases; ``mechanism_.epsilons(t)`` is what t steps cost each stratum.
    groups_ : list or None
        The groups, in order: those declared, or the values of the sensitive feature.
    n_iter_ : int
        Number of steps.
    n_features_in_ : int
        Number of features.

    See Also
    --------
    DPSlicedWassersteinFairRegressor : Continuous targets.

    Notes
    -----
    **Formal guarantee**

    :Promise: Central (ε, δ)-differential privacy of all iterates of the training, and so of the
        network and its predictions for other records.
    :Neighbours: Replace one record by another of the same group; sizes of the groups are public.
        With ``penalty="equalized_odds"``: replace one record by another of the same group and with
        the same label; sizes of the groups by label are public. Without sensitive features: replace
        one record; the number of records is public. With ``unit``: a person with all their rows in
        place of a record.
    :Public: ``n_samples``; names of the columns; the set of labels; sizes of the
        groups, or sizes of the groups by label; values of the sensitive features, where ``groups``
        does not declare them. With ``unit``: numbers of persons, and not those of their rows.
    :Bounded by: Clips: gradients of the loss to ``task_clip``, Jacobians to ``jacobian_clip``,
        outputs to ``output_bound``. Features need no bound.
    :Noise: Gaussian on the summed gradients of secret batches, by
        :class:`~sklearn_dpgen.mechanisms.StratifiedGaussianMechanism`, which also draws the
        batches, in floating point, from the operating system's entropy.
    :Priced by: The privacy profile of the Gaussian mechanism under sampling without replacement,
        composed numerically over all steps.
    :Not covered: Which group a record is in, beyond the sizes of the groups; what was fitted on the
        same records before, such as a scaler; other fits of the same records, which a ``ledger``
        adds up; errors of a fit; a ``random_state`` that others know or guess.
    :Proof: :ref:`sensitivity`; of the training :ref:`central-training`.

    Scale features by public bounds, with ``TabularEncoder(schema)`` in a pipeline: a scaler that is
    fitted on the private records is one more release of them, and an unpaid one.

    A grid search that tries k candidates on the same records spends k budgets for each fold and
    each refit.

    References
    ----------
    .. [1] D. Rodríguez-Vítores, C. Lalanne, J.-M. Loubes, "Learning with differentially private
       (sliced) Wasserstein gradients", 2025, eqs. (5) and (6) and Theorem 6.1; here with a
       sensitivity of 8 M L / n where the paper has 16 M L / n, and M = 1/2 for probabilities.

    Examples
    --------
    >>> from sklearn_dpgen.datasets import make_biased_labels
    >>> from sklearn_dpgen.nn import Training
    >>> from sklearn_dpgen.sliced import DPSlicedWassersteinFairClassifier
    >>> data = make_biased_labels(10000, random_state=0)
    >>> classifier = DPSlicedWassersteinFairClassifier(alpha=0.5, training=Training(max_iter=50))
    >>> classifier = classifier.fit(data.X, data.y, sensitive_features=data.sensitive)
    >>> classifier.predict_proba(data.X[:3]).shape
    (3, 2)
    """

    _saved_state: dict = {"classes_": Array("biufUO", 1)}
    _parameter_constraints: dict = {
        **FairPredictor._parameter_constraints,
        "classes": ["array-like", None],
    }
    _setting_defaults: dict = {
        "training": {
            **TRAINING,
            "hidden_layer_sizes": (),
            "max_iter": 500,
            "learning_rate": 0.05,
        },
        "gradient": {
            **GRADIENT,
            "task_clip": 1.0,
            "output_bound": "auto",
            "jacobian_clip": 0.25,
            "jacobian_clipping": "spectral",
        },
    }

    def __init__(
        self,
        alpha: float = 0.5,
        *,
        penalty: str = "demographic_parity",
        classes: ArrayLike | None = None,
        groups: ArrayLike | None = None,
        group_weights: str = "size",
        epsilon: float = 1.0,
        delta: float | str = "auto",
        training: Training | None = None,
        gradient: ClippedGradient | None = None,
        ledger: LedgerLike = None,
        unit: str | None = None,
        random_state: int | np.random.RandomState | None = None,
    ) -> None:
        self.alpha = alpha
        self.penalty = penalty
        self.classes = classes
        self.groups = groups
        self.group_weights = group_weights
        self.epsilon = epsilon
        self.delta = delta
        self.training = training
        self.gradient = gradient
        self.ledger = ledger
        self.unit = unit
        self.random_state = random_state

    @fit_context(prefer_skip_nested_validation=True)
    def plan(
        self,
        n_samples: int,
        n_features: int,
        *,
        group_sizes: ArrayLike | None = None,
        n_classes: int | None = None,
    ) -> PrivacyReport:
        """Return the privacy report of a fit on a number of records, before any is read.

        Parameters
        ----------
        n_samples : int
            Number of records, or with ``unit`` of persons, as all sizes here.
        n_features : int
            Number of features.
        group_sizes : array-like of int of shape (n_groups,) or (n_groups, n_classes), or None
            Numbers of records of each group, in the order of the groups; for equality of odds of
            each group and label. None is a fit without groups, which has no penalty.
        n_classes : int or None, default=None
            Number of labels; None is that of ``classes``, or 2.

        Returns
        -------
        PrivacyReport
            Equal to ``privacy_`` of a fit, with what its noise leaves of the gradients, and about
            how long it takes.

        Raises
        ------
        ValueError
            Sizes that do not fit together, or that ``fit`` would refuse.

        Warns
        -----
        NoisyGradientsWarning
            Where noise drowns what is learned of the task, as ``fit`` does.
        """
        if self.classes is not None:
            n_classes = len(check_classes(self.classes))
        n_classes = 2 if n_classes is None else check_count(n_classes, "n_classes")
        odds = self.penalty == "equalized_odds" and group_sizes is not None
        strata = self._strata_of_sizes(n_samples, group_sizes, n_classes if odds else None)
        return self._plan(strata, n_features, n_classes).report

    def _plan(self, strata, n_features, n_classes, groups=None):
        if n_classes == 2:
            ball, n_logits = Ball(0.5, center=[0.5]), 1
        else:
            radius, center = np.sqrt(1 - 1 / n_classes), np.full(n_classes, 1 / n_classes)
            ball, n_logits = Ball(radius, center=center), n_classes
        is_public = self.classes is None or strata.within_labels
        return self._planned(
            strata,
            n_features,
            groups,
            ball=self._ball(ball),
            stacks=[[check_count(n_features, "n_features"), *self._widths(), n_logits]],
            public=("label_set",) if is_public else (),
        )

    def _read(self, X, y, *, seed, sensitive_features, sample_weight):
        resolve_device(self._training.device)
        declared = None if self.classes is None else check_classes(self.classes)
        X, persons = self._split_unit(X)
        X, y = validate_data(self, X, y, dtype=np.float64)
        self.classes_ = distinct_labels(y, "y") if declared is None else declared
        labels, n_classes = check_labels(y, self.classes_, len(X)), len(self.classes_)
        odds = self.penalty == "equalized_odds" and sensitive_features is not None
        within = {"labels": labels, "n_labels": n_classes} if odds else {}
        records, facts = self._stratified(
            X, labels, persons, sensitive_features, sample_weight=sample_weight, **within
        )
        return records, facts | {"n_classes": n_classes}

    def _head(self, n_outputs):
        return nn.Sigmoid() if n_outputs == 1 else nn.Softmax(dim=1)

    def _residuals(self, module, outputs, targets):
        if outputs.shape[1] == 1:
            return torch.sigmoid(outputs) - targets[:, None]
        return softmax_residuals(outputs, targets)

    def decision_function(self, X: ArrayLike) -> np.ndarray:
        """Predict the logit of each class.

        Parameters
        ----------
        X : array-like of shape (n_samples, n_features)

        Returns
        -------
        ndarray of shape (n_samples,) or (n_samples, n_classes)
            Of two classes that of the second, which is predicted where it is positive; of more
            those of all, up to a constant for each record.
        """
        logits = self._outputs(X, logits=True)
        return logits[:, 0] if len(self.classes_) == 2 else logits

    def predict_proba(self, X: ArrayLike) -> np.ndarray:
        """Predict the probability of each class.

        Parameters
        ----------
        X : array-like of shape (n_samples, n_features)

        Returns
        -------
        ndarray of shape (n_samples, n_classes)
            In the order of ``classes_``.
        """
        outputs = self._outputs(X)
        return np.hstack([1 - outputs, outputs]) if len(self.classes_) == 2 else outputs

    def predict(self, X: ArrayLike) -> np.ndarray:
        """Predict the likeliest label of each record.

        Parameters
        ----------
        X : array-like of shape (n_samples, n_features)

        Returns
        -------
        ndarray of shape (n_samples,)
        """
        logits = self.decision_function(X)
        return self.classes_[
            logits.argmax(axis=1) if logits.ndim == 2 else (logits > 0).astype(int)
        ]

    def __sklearn_tags__(self):
        tags = super().__sklearn_tags__()
        # A strong guarantee on few records leaves little to learn from.
        tags.classifier_tags.poor_score = self.epsilon != np.inf
        return tags

    def _check_saved_state(self):
        super()._check_saved_state()
        check_classifier(self.module_, self.n_features_in_, len(self.classes_))
