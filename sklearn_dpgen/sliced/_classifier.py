"""DPSlicedWassersteinFairClassifier: private and group-fair classification."""

import numpy as np
import torch
from numpy.typing import ArrayLike
from sklearn.base import ClassifierMixin
from torch import nn
from torch.nn import functional

from sklearn_dpgen.accounting import PrivacyReport
from sklearn_dpgen.domains import Ball
from sklearn_dpgen.ledger._base import UnpaidScoreMixin
from sklearn_dpgen.ledger._ledger import LedgerLike
from sklearn_dpgen.nn import Training
from sklearn_dpgen.persistence._declarations import Array
from sklearn_dpgen.persistence._networks import check_classifier
from sklearn_dpgen.sliced._base import ClippedGradient, setting_defaults
from sklearn_dpgen.sliced._fair import FairPredictor
from sklearn_dpgen.sliced._objective import softmax_residuals
from sklearn_dpgen.sliced._parity import ParityTarget
from sklearn_dpgen.utils._labels import check_classes, check_labels, distinct_labels
from sklearn_dpgen.utils._torch import resolve_device
from sklearn_dpgen.utils._validation import Interval, Real, check_count, fit_context, validate_data

__all__ = ["DPSlicedWassersteinFairClassifier"]


class DPSlicedWassersteinFairClassifier(UnpaidScoreMixin, ClassifierMixin, FairPredictor):
    """Private fair classifier with similar predicted probabilities in all groups.

    A network, by default a linear one, minimizes (1 - alpha) times the mean log loss plus alpha
    times the squared sliced Wasserstein distance between the distributions of its predicted
    probabilities in the groups of a sensitive feature: over all records (demographic parity, eq. 5
    of [1]_), or within each label (equalized odds, eq. 6). Training descends noisy clipped
    gradients. Since the penalty compares whole distributions, it applies to decisions at any
    threshold.

    Parameters
    ----------
    alpha : float or "auto", default="auto"
        Weight of the penalty, in [0, 1]: 0 has no penalty, 1 ignores the labels. "auto" is 1/2, or
        less where its noise would cost the task (:ref:`fair_alpha`). Not read with a target.
    max_gap : float or None, default=None
        Target: the largest difference of two groups' rates of decisions for a class. The weights of
        a linear model are then kept where the groups are as similar as that, by mean features and
        rates that each step measures (:ref:`parity_targets`). Not with hidden layers.
    min_ratio : float or None, default=None
        Target: the smallest ratio of two groups' rates of decisions, of two classes for the second.
    penalty : {"demographic_parity", "equalized_odds"}, default="demographic_parity"
        Whether groups are compared over all records, or within each label.
    classes : array-like of shape (n_classes,) or None, default=None
        The public labels, at least two. None takes those that occur in ``y``, which are then
        public, as ``privacy_`` states.
    groups : array-like of shape (n_groups,) or (n_groups, n_columns), or None, default=None
        The public groups, at least two: values of ``sensitive_features``, or rows of them. None
        takes the groups that occur, which are then public (:ref:`fair_groups`).
    protect_groups : bool or "auto", default="auto"
        Whether the group of a record, and for equalized odds its label, is protected too, and with
        it the sizes of the groups (:ref:`protected_groups`). "auto" protects it with a target and
        declared ``groups``, which adds no noise. True needs ``groups`` too, and with ``alpha`` adds
        noise: at ``alpha=0.5`` and the other defaults half as much for two groups of one size.
    epsilon : float, default=1.0
        Privacy budget of the whole fit, in nats; ``np.inf`` trains without noise.
    delta : float or "auto", default="auto"
        Failure probability, in (0, 1). "auto" is 0.1 / n_samples.
    training : Training or None, default=None
        Network and optimizer (:ref:`training_settings`). ``epsilon`` covers all steps. Defaults:
        ``hidden_layer_sizes=()``, that is logistic regression, ``activation="relu"``,
        ``max_iter=500``, ``solver="adam"``, ``learning_rate=0.05``, ``schedule="cosine"``,
        ``averaging=0.2``.
    gradient : ClippedGradient or None, default=None
        Clips and batches (:ref:`training_settings`). Defaults: ``task_clip=1.0``; ``output_bound``
        of 1/2 for two classes and sqrt(1 - 1/K) for K, which clips no probability;
        ``jacobian_clip=0.25``, ``jacobian_clipping="spectral"``, ``n_projections=50`` for more than
        two classes, ``batch_fraction=0.2``, ``group_weights="size"``. The sensitivity of a step:
        :ref:`sensitivity`.
    ledger : PrivacyLedger, path or None, default=None
        Ledger that a fit charges before it releases anything. BudgetExceededError is raised if too
        little is left. None charges no ledger.
    unit : str or None, default=None
        Name of the column of X, a data frame, that identifies the person of a row
        (:ref:`budget_persons`). A person then counts as one record, and each step draws one row of
        each person in its batch. All rows of a person must have the same group, and for equalized
        odds the same label, unless groups are protected. The column is not learned from. None
        protects single rows.
    random_state : int, RandomState or None, default=None
        None draws noise and batches from the operating system's entropy. An int repeats the fit,
        and voids the guarantee against anybody who knows or guesses it.

    Attributes
    ----------
    alpha_ : float
        The weight of the penalty; 0 with a target, or without groups.
    module_ : torch.nn.Module
        The network, in double precision. It maps (n, n_features) to the probabilities of the
        second of two classes, (n, 1), or of all classes, (n, n_classes).
    classes_ : ndarray of shape (n_classes,)
        The labels.
    coef_ : ndarray of shape (1, n_features) or (n_classes, n_features)
        Weights of the logits, as in ``LogisticRegression``; only without hidden layers.
    intercept_ : ndarray of shape (1,) or (n_classes,)
        Intercepts of the logits; only without hidden layers.
    privacy_ : PrivacyReport
        The guarantee of the fit.
    noise_multiplier_ : float
        Standard deviation of the noise divided by the sensitivity.
    mechanism_ : StratifiedGaussianMechanism
        The mechanism of a step; ``mechanism_.epsilons(t)`` is the cost of t steps for each stratum.
    parity_ : DataFrame
        Measured rates of a fit with a target, by group, and by label for equalized odds: "mean",
        the rate of decisions for the second class, or for each "output" of several; "low" and
        "high", a 95 % confidence interval of the population rate; and "n_rows", the size of the
        group, in persons with ``unit``, and noisy with ``protect_groups``.
    groups_ : list or None
        The groups, in order; None if the fit had no ``sensitive_features``.
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
        network and its predictions for other records; with a target of all measured means too.
    :Neighbours: Replace one record by another of the same group; sizes of the groups are public.
        With ``penalty="equalized_odds"``: replace one record by another of the same group and with
        the same label; sizes of the groups by label are public. With ``protect_groups``, or without
        sensitive features: replace one record; the number of records is public. With ``unit``: a
        person with all their rows in place of a record.
    :Public: ``n_samples``; names of the columns; the set of labels; without ``protect_groups``
        sizes of the groups, or sizes of the groups by label, and values of the sensitive features,
        where ``groups`` does not declare them. With ``unit``: numbers of persons, and not those of
        their rows.
    :Bounded by: Clips: gradients of the loss to ``task_clip``; for the penalty Jacobians to
        ``jacobian_clip``, outputs to ``output_bound``. Features need no bound; with a target their
        means are those of features that are projected on a ball, which the fit finds by releases
        of its own.
    :Noise: Gaussian on the summed gradients of secret batches, by
        :class:`~sklearn_dpgen.mechanisms.StratifiedGaussianMechanism`, which also draws the
        batches, in floating point, from the operating system's entropy.
    :Priced by: The privacy profile of the Gaussian mechanism under sampling without replacement,
        composed numerically over all steps.
    :Not covered: Without ``protect_groups`` which group a record is in, beyond the sizes of the
        groups; what was fitted on the same records before, such as a scaler; other fits of the same
        records, which a ``ledger`` adds up; errors of a fit; a ``random_state`` that others know or
        guess.
    :Proof: :ref:`sensitivity`, with ``protect_groups`` :ref:`protected_sensitivity`, with a target
        :ref:`target_sensitivity`; of the training :ref:`central-training`.

    Scale features by public bounds, with ``TabularEncoder(schema)`` in a pipeline. A scaler that is
    fitted on the private records is an unpaid release.

    References
    ----------
    .. [1] D. Rodríguez-Vítores, C. Lalanne, J.-M. Loubes, "Learning with differentially private
       (sliced) Wasserstein gradients", 2025, eqs. (5) and (6) and Theorem 6.1; here with a
       sensitivity of 8 M L / n where the paper has 16 M L / n, and M = 1/2 for probabilities.
       Targets are ours.

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
        "min_ratio": [Interval(Real, 0, 1, closed="both"), None],
        "classes": ["array-like", None],
    }
    _setting_defaults: dict = setting_defaults(
        {"hidden_layer_sizes": (), "max_iter": 500, "learning_rate": 0.05},
        {
            "task_clip": 1.0,
            "output_bound": "auto",
            "jacobian_clip": 0.25,
            "jacobian_clipping": "spectral",
            "group_weights": "size",
        },
    )

    def __init__(
        self,
        alpha: float | str = "auto",
        *,
        max_gap: float | None = None,
        min_ratio: float | None = None,
        penalty: str = "demographic_parity",
        classes: ArrayLike | None = None,
        groups: ArrayLike | None = None,
        protect_groups: bool | str = "auto",
        epsilon: float = 1.0,
        delta: float | str = "auto",
        training: Training | None = None,
        gradient: ClippedGradient | None = None,
        ledger: LedgerLike = None,
        unit: str | None = None,
        random_state: int | np.random.RandomState | None = None,
    ) -> None:
        self.alpha = alpha
        self.max_gap = max_gap
        self.min_ratio = min_ratio
        self.penalty = penalty
        self.classes = classes
        self.groups = groups
        self.protect_groups = protect_groups
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
        """Return the privacy report of a fit, from public sizes alone.

        Parameters
        ----------
        n_samples : int
            Number of records; with ``unit`` all sizes are numbers of persons.
        n_features : int
            Number of features.
        group_sizes : array-like of int of shape (n_groups,) or (n_groups, n_classes), or None
            Numbers of records of each group, in the order of the groups; for equalized odds of each
            group and label. None is a fit without groups and without penalty, and with
            ``protect_groups`` one with groups of any sizes.
        n_classes : int or None, default=None
            Number of labels. None takes that of ``classes``, or 2.

        Returns
        -------
        PrivacyReport
            Equal to ``privacy_`` of a fit on records of these sizes.

        Raises
        ------
        PublicValueError
            Sizes are inconsistent, or ``fit`` would refuse them.

        Warns
        -----
        NoisyGradientsWarning
            The noise is too large to learn the task; ``fit`` warns too.
        SmallGroupWarning
            Groups are so unequal that predictions hardly depend on the penalty; ``fit`` warns too.
        """
        if self.classes is not None:
            n_classes = len(check_classes(self.classes))
        n_classes = 2 if n_classes is None else check_count(n_classes, "n_classes")
        has_groups = self._protects_groups or group_sizes is not None
        odds = self.penalty == "equalized_odds" and has_groups
        strata = self._strata_of_sizes(n_samples, group_sizes, n_classes if odds else None)
        return self._plan(strata, n_features, n_classes).report

    def _plan(self, strata, n_features, n_classes, groups=None):
        if n_classes == 2:
            ball, n_logits = Ball(0.5, center=[0.5]), 1
        else:
            radius, center = np.sqrt(1 - 1 / n_classes), np.full(n_classes, 1 / n_classes)
            ball, n_logits = Ball(radius, center=center), n_classes
        has_public_labels = strata.within_labels and not strata.protects_cells
        return self._fair_plan(
            strata,
            n_features,
            groups,
            ball=self._ball(ball),
            outcome_ball=ball,
            layer_widths=[self._layer_widths(check_count(n_features, "n_features"), n_logits)],
            public=("label_set",) if self.classes is None or has_public_labels else (),
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

    def _target(self):
        if self.max_gap is None and self.min_ratio is None:
            return None
        return ParityTarget(self.max_gap, self.min_ratio, of_rates=True)

    @property
    def _n_outcomes(self):
        return 1 if len(self.classes_) == 2 else len(self.classes_)

    def _output_names(self):
        return self.classes_

    def _outcomes(self, outputs):
        if outputs.shape[1] == 1:
            return (outputs > 0.5).to(outputs.dtype)
        labels = outputs.argmax(dim=1)
        return functional.one_hot(labels, outputs.shape[1]).to(outputs.dtype)

    def _means_in_units(self, means):
        return means.clip(0, 1)

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
            For two classes the logit of the second, which is predicted if it is positive; for more
            the logits of all, up to a constant for each record.
        """
        logits = self._outputs(X, first_module=True)
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
        # Noise for few records makes scores poor.
        tags.classifier_tags.poor_score = self.epsilon != np.inf
        return tags

    def _check_saved_state(self):
        super()._check_saved_state()
        check_classifier(self.module_, self.n_features_in_, len(self.classes_))
