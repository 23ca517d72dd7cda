"""DPSlicedWassersteinAdapter: private domain adaptation by Wasserstein gradients."""

from itertools import accumulate, pairwise
from typing import Self

import numpy as np
import torch
from numpy.typing import ArrayLike
from torch import nn
from torch.nn import functional

from sklearn_dpgen.accounting import Bound, Event, PrivacyReport
from sklearn_dpgen.domains import Ball
from sklearn_dpgen.exceptions import PublicValueError
from sklearn_dpgen.ledger._base import Plan
from sklearn_dpgen.ledger._ledger import LedgerLike
from sklearn_dpgen.ledger._unit import Persons
from sklearn_dpgen.nn import Training
from sklearn_dpgen.nn._generators import DomainHead
from sklearn_dpgen.nn._training import fit_module
from sklearn_dpgen.sliced._base import (
    CAVEATS,
    ClippedGradient,
    Descent,
    Records,
    SlicedEstimator,
    linear_layers,
    setting_defaults,
)
from sklearn_dpgen.sliced._objective import (
    FairObjective,
    fair_gradient,
    penalty_gradient,
    softmax_residuals,
)
from sklearn_dpgen.sliced._strata import Strata, StratifiedRecords
from sklearn_dpgen.utils._random import split_random_state, torch_generator
from sklearn_dpgen.utils._source_and_target import (
    check_labels_of_both,
    encode_source_labels,
    source_mask,
)
from sklearn_dpgen.utils._target_classifier import TargetClassifierMixin
from sklearn_dpgen.utils._torch import resolve_device
from sklearn_dpgen.utils._validation import (
    Integral,
    Interval,
    Real,
    StrOptions,
    check_count,
    fit_context,
    validate_data,
)

__all__ = ["DPSlicedWassersteinAdapter"]


# The two domains, in the order of the strata.
DOMAINS = ("source", "target")
_PUBLIC = ("sample_domain", "column_names", "domain_sizes")
_PROTECTED = {(0,): "source_record", (1,): "target_record", (0, 1): "source_or_target_record"}

# Rows of a public source in the batch of a step.
_BATCH_SIZE = 512


def public_loss(module, source, labels, generator):
    """Return the mean log loss on a batch of a public source.

    Parameters
    ----------
    module : torch.nn.Module
        Maps records to logits.
    source : Tensor of shape (n, n_features)
    labels : Tensor of int of shape (n,)
    generator : torch.Generator
        Draws the rows, with replacement.

    Returns
    -------
    Tensor
        Of shape ().
    """
    rows = torch.randint(len(source), (_BATCH_SIZE,), generator=generator, device=source.device)
    return functional.cross_entropy(module(source[rows]), labels[rows])


def train_on_source(module, source, labels, generator, **options):
    """Train the network on a public source alone.

    Parameters
    ----------
    module, source, labels, generator
        As in :func:`public_loss`.
    **options
        Options of ``fit_module``.
    """
    fit_module(module, lambda step: public_loss(module, source, labels, generator), **options)


def private_gradient(objective, module, batches, labels, directions):
    """Return the clipped gradient of the terms of the objective that read private records.

    Parameters
    ----------
    objective : FairObjective
        The objective of the source, or of the source and the target.
    module : torch.nn.Sequential
        The network of the features, and the classifier on them.
    batches : list of Tensor of shape (n_i, n_features)
        The batch of each domain.
    labels : Tensor of int of shape (n_0,) or None
        Labels of the source batch. None if the source is public, so that its loss is not released.
    directions : Tensor of shape (k, feature_dim)

    Returns
    -------
    list of Tensor
        One for each parameter of the module; if the source is public, of the features alone.
    """
    X = torch.cat(batches)
    batch = [slice(a, b) for a, b in pairwise([0, *accumulate(map(len, batches))])]
    if labels is None:
        return penalty_gradient(objective, module[0], X, batch, directions)
    return fair_gradient(
        objective,
        module,
        module[0],
        lambda logits: softmax_residuals(logits, labels),
        X,
        batch,
        directions,
    )


def batch_rows(drawn, private, sizes, batch_sizes, rng):
    """Return the row indices of a step in each domain: secret draws, and public ones.

    Parameters
    ----------
    drawn : list of ndarray of int
        Row indices in each private domain.
    private : tuple of int
        Positions of the private domains.
    sizes, batch_sizes : list of int
        Sizes of all domains.
    rng : Generator
        Draws rows of a public domain, without replacement.

    Returns
    -------
    list of ndarray of int
    """
    secret = iter(drawn)
    return [
        next(secret) if position in private else rng.choice(size, batch_size, replace=False)
        for position, (size, batch_size) in enumerate(zip(sizes, batch_sizes, strict=True))
    ]


def adaptation_guarantee(objective, private):
    """Return the neighbouring relation, public facts, bounds and caveats of the report.

    Parameters
    ----------
    objective : FairObjective
    private : tuple of int
        Positions of the private domains.

    Returns
    -------
    dict
        Fields of a Guarantee.
    """
    public = ("label_set",) if 0 in private else ("source",)
    bounds = []
    if 0 in private and objective.alpha < 1:
        bounds.append(Bound("source_loss_clip", objective.task_clip))
    if objective.alpha > 0:
        bounds.append(Bound("feature_jacobian_clip", objective.jacobian_clip))
        bounds.append(Bound("feature_radius", objective.ball.radius))
        if 1 not in private:
            public += ("target_records",)
    return {
        "protected": _PROTECTED[private],
        "shared": ("domain",),
        "public": (*public, *_PUBLIC),
        "norm": "l2",
        "bounds": tuple(bounds),
        "caveats": CAVEATS,
    }


def source_report(name):
    """Return the report of a fit on a public source alone, which reads no private record."""
    return PrivacyReport(
        name=name,
        events=(Event("nothing"),),
        epsilon=0.0,
        delta=0.0,
        protected="target_record",
        public=("source", *_PUBLIC),
        n_releases=0,
        rounding=0.0,
    )


class DPSlicedWassersteinAdapter(TargetClassifierMixin, SlicedEstimator):
    """Private unsupervised domain adaptation: a classifier for a target domain without labels.

    A network of features, with a classifier on them, minimizes (1 - alpha) times the mean log loss
    on the source plus alpha times the squared sliced Wasserstein distance between the distributions
    of the features in the two domains (Section 4 of [1]_). Training descends noisy clipped
    gradients. Either domain may be private, or both.

    Parameters
    ----------
    alpha : float, default=0.5
        Weight of the distance, in [0, 1]: 0 trains on the source alone.
    private : {"target", "source", "both"}, default="target"
        The domain whose records are protected; the other one is public.
    epsilon : float, default=1.0
        Privacy budget of the whole fit, in nats; ``np.inf`` trains without noise.
    delta : float or "auto", default="auto"
        Failure probability, in (0, 1). "auto" is 0.1 / (number of private records).
    feature_dim : int, default=16
        Number of features that are compared between the domains.
    source_iter : int, default=2000
        Number of initial steps on a public source alone, which cost no privacy. It is ignored with
        a private source.
    source_learning_rate : float, default=0.002
        Peak learning rate of the initial steps, with cosine decay.
    training : Training or None, default=None
        Network and optimizer (:ref:`training_settings`). The ``max_iter`` steps read both domains,
        and ``epsilon`` covers all of them. Defaults: ``hidden_layer_sizes=(64,)`` before the
        features, ``activation="relu"``, ``max_iter=100``, ``solver="adam"``,
        ``learning_rate=0.002``, ``schedule="cosine"``, ``averaging=0.2``.
    gradient : ClippedGradient or None, default=None
        Clips and batches (:ref:`training_settings`), without ``jacobian_clipping`` and
        ``released_clip``. Defaults: ``task_clip=1.0`` for a private source; ``output_bound=8.0``,
        the radius of the ball of the features; ``jacobian_clip=4.0`` for the features in both
        domains; ``n_projections=16``; ``batch_fraction=0.2`` for a private domain, and as many
        records of a public one. The sensitivity of a step grows with alpha 8 M L / n', where n' is
        the batch size of the record's domain, and for a source record with (1 - alpha) 2 C / n'.
        With a private source choose ``jacobian_clip`` so that the first is at most the second;
        otherwise the task is below the noise.
    ledger : PrivacyLedger, path or None, default=None
        Ledger that a fit charges before it releases anything. BudgetExceededError is raised if too
        little is left. None charges no ledger.
    unit : str or None, default=None
        Name of the column of X, a data frame, that identifies the person of a row
        (:ref:`budget_persons`). A person then counts as one record, and each step draws one row of
        each person in its batch. If both domains are private, all rows of a person must be in one
        domain. The column is not learned from. None protects single rows.
    random_state : int, RandomState or None, default=None
        None draws noise and batches from the operating system's entropy. An int repeats the fit,
        and voids the guarantee against anybody who knows or guesses it.

    Attributes
    ----------
    module_ : torch.nn.Module
        The network, in double precision: ``module_[0]`` maps records to features, ``module_[1]``
        features to logits of shape (n, n_classes).
    classes_ : ndarray of shape (n_classes,)
        The labels of the source.
    privacy_ : PrivacyReport
        The guarantee of the fit.
    noise_multiplier_ : float
        Standard deviation of the noise divided by the sensitivity; 0 if no private record is read.
    mechanism_ : StratifiedGaussianMechanism or None
        The mechanism of a step; ``mechanism_.epsilons(t)`` is the cost of t steps for each private
        domain. None if no private record is read.
    n_iter_ : int
        Number of steps, including those on the source alone.
    n_features_in_ : int
        Number of features.

    See Also
    --------
    SmoothedSlicedWassersteinAdapter : Adaptation from noisy features of a private target.

    Notes
    -----
    **Formal guarantee**

    :Promise: Central (ε, δ)-differential privacy of all iterates of the training, and so of the
        network.
    :Neighbours: Replace one target record by another of the same domain; the numbers of source and
        target records are public. With ``private="source"``: replace one source record by another
        of the same domain; the numbers of source and target records are public. With
        ``private="both"``: replace one source or one target record by another of the same domain;
        the numbers of source and target records are public. A fit that reads no private record
        states: replace one target record; the numbers of source and target records are public. With
        ``unit``: a person with all their rows in place of a record.
    :Public: Numbers of source and target records; ``sample_domain``; names of the columns; of a
        private source the set of labels; all of a domain that is not private: source records and
        their labels, or target records. With ``unit``: numbers of persons, and not those of their
        rows.
    :Bounded by: Clips: gradients of the loss on a private source to ``task_clip``, Jacobians to
        ``jacobian_clip``, features of the network to ``output_bound``. Records need no bound.
    :Noise: Gaussian on the summed gradients of secret batches, by
        :class:`~sklearn_dpgen.mechanisms.StratifiedGaussianMechanism`, which also draws the
        batches, in floating point, from the operating system's entropy.
    :Priced by: The privacy profile of the Gaussian mechanism under sampling without replacement,
        composed numerically over all steps.
    :Not covered: Predictions for private records, which reveal them; ``score``, which reads
        labels of the target; what was fitted on the same records before, such as a scaler; other
        fits of the same records, which a ``ledger`` adds up; errors of a fit; a ``random_state``
        that others know or guess.
    :Proof: :ref:`sensitivity`; of the training :ref:`central-training`.

    With a public source only the gradient of the distance is released. The loss on the source is
    added after the noise, unclipped. Labels of target rows are not read.

    References
    ----------
    .. [1] D. Rodríguez-Vítores, C. Lalanne, J.-M. Loubes, "Learning with differentially private
       (sliced) Wasserstein gradients", 2025, Section 4 and Theorem A.1, with h = g; here with a
       sensitivity of 8 M L / n where the paper has 16 M L / n.

    Examples
    --------
    >>> import numpy as np
    >>> from sklearn_dpgen.nn import Training
    >>> from sklearn_dpgen.sliced import DPSlicedWassersteinAdapter
    >>> rng = np.random.default_rng(0)
    >>> X, y = rng.normal(size=(400, 2)), rng.integers(2, size=400)
    >>> X[:, 0] += 4 * y
    >>> domain = np.repeat([1, -2], 200)
    >>> X[domain < 0] += 1.5
    >>> y[domain < 0] = -1
    >>> adapter = DPSlicedWassersteinAdapter(source_iter=50, training=Training(max_iter=20))
    >>> adapter.fit(X, y, sample_domain=domain).predict(X[domain < 0]).shape
    (200,)
    """

    _saved_state: dict = {}
    _parameter_constraints: dict = {
        **SlicedEstimator._parameter_constraints,
        "alpha": [Interval(Real, 0, 1, closed="both")],
        "private": [StrOptions({*DOMAINS, "both"})],
        "feature_dim": [Interval(Integral, 1, None, closed="left")],
        "source_iter": [Interval(Integral, 1, None, closed="left")],
        "source_learning_rate": [Interval(Real, 0, None, closed="neither")],
    }
    _setting_defaults: dict = setting_defaults(
        {"hidden_layer_sizes": (64,), "max_iter": 100, "learning_rate": 0.002},
        {"task_clip": 1.0, "output_bound": 8.0, "jacobian_clip": 4.0, "n_projections": 16},
    )

    def __init__(
        self,
        alpha: float = 0.5,
        *,
        private: str = "target",
        epsilon: float = 1.0,
        delta: float | str = "auto",
        feature_dim: int = 16,
        source_iter: int = 2000,
        source_learning_rate: float = 0.002,
        training: Training | None = None,
        gradient: ClippedGradient | None = None,
        ledger: LedgerLike = None,
        unit: str | None = None,
        random_state: int | np.random.RandomState | None = None,
    ) -> None:
        self.alpha = alpha
        self.private = private
        self.epsilon = epsilon
        self.delta = delta
        self.feature_dim = feature_dim
        self.source_iter = source_iter
        self.source_learning_rate = source_learning_rate
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
        n_source: int | None = None,
        n_classes: int = 2,
    ) -> PrivacyReport:
        """Return the privacy report of a fit, from public sizes alone.

        Parameters
        ----------
        n_samples : int
            Number of private records: of the target, of the source, or of both; with ``unit``, of
            persons. 0 records of a private target are a fit on the source alone.
        n_features : int
            Number of features.
        n_source : int or None, default=None
            Number of source records among them, required if both domains are private and ignored
            otherwise.
        n_classes : int, default=2
            Number of labels of the source.

        Returns
        -------
        PrivacyReport
            Equal to ``privacy_`` of a fit on records of these sizes.

        Raises
        ------
        PublicValueError
            Sizes are inconsistent, or ``fit`` would refuse the parameters.
        """
        n_classes = check_count(n_classes, "n_classes")
        if self.private == "both":
            n_source = check_count(n_source, "n_source")
            sizes = (n_source, check_count(n_samples, "n_samples") - n_source)
            if sizes[1] < 1:
                raise PublicValueError(
                    f"n_source must be less than n_samples = {n_samples}, got {n_source}."
                )
        elif self.private == "source":
            sizes = (check_count(n_samples, "n_samples"), 1)
        else:
            sizes = (1, 0 if n_samples == 0 else check_count(n_samples, "n_samples"))
        return self._plan(sizes, n_features, n_classes).report

    def _is_private(self, position):
        return self.private in (DOMAINS[position], "both")

    def _plan(self, sizes, n_features, n_classes):
        features = self._layer_widths(check_count(n_features, "n_features"), self.feature_dim)
        layer_widths = (features, [self.feature_dim, n_classes])
        compares = self.alpha > 0 and sizes[1] > 0
        strata = Strata(tuple(sizes), ((0, 1),)) if compares else Strata((sizes[0],))
        private = tuple(filter(self._is_private, range(len(strata.sizes))))
        settings = self._gradient
        objective = FairObjective(
            alpha=self.alpha if compares else 0.0,
            strata=strata,
            task_clip=settings.task_clip,
            jacobian_clip=settings.jacobian_clip,
            ball=Ball(settings.output_bound, n_features=self.feature_dim),
            n_directions=self._n_directions(self.feature_dim),
            group_weights="equal",
            n_labelled=1,
        )
        if not private:
            report = self._protected(source_report(type(self).__name__))
            return Plan(report, Descent(objective, None, layer_widths, private, ()))
        batch_sizes = self._batch_sizes(strata, private)
        sensitivities = objective.sensitivities(batch_sizes)
        protected = Strata(tuple(strata.sizes[position] for position in private))
        mechanism = self._price(
            protected, [sensitivities[position] for position in private], sum(protected.sizes)
        )
        # The loss on a public source is not released.
        released = layer_widths if 0 in private else layer_widths[:1]
        task, distance = objective.largest_gradients()
        norms = {"the task": task if 0 in private else 0.0, "the distance": distance}
        report = self._report(
            mechanism, released, norms, **adaptation_guarantee(objective, private)
        )
        return Plan(report, Descent(objective, mechanism, layer_widths, private, batch_sizes))

    def _batch_sizes(self, strata, private):
        """Return the batch size of each domain; a public one has that of the private one."""
        batch_sizes = strata.batch_sizes(self._gradient.batch_fraction)
        largest = max(batch_sizes[position] for position in private)
        return tuple(
            batch_size if position in private else min(largest, size)
            for position, (batch_size, size) in enumerate(
                zip(batch_sizes, strata.sizes, strict=True)
            )
        )

    @fit_context(prefer_skip_nested_validation=True)
    def fit(self, X: ArrayLike, y: ArrayLike, sample_domain: ArrayLike | None = None) -> Self:
        """Train the features and the classifier on both domains.

        Parameters
        ----------
        X : array-like of shape (n_samples, n_features)
            Records of both domains.
        y : array-like of shape (n_samples,)
            Labels. Mask those of target rows: they are not read, but they affect the dtype of the
            array.
        sample_domain : array-like of int of shape (n_samples,) or None
            Negative for rows of the target. None takes the rows with a masked label, -1 or NaN, as
            the target; without any, it warns and fits on the source alone.

        Returns
        -------
        self : object

        Raises
        ------
        TrainingDivergedError
            A noisy gradient or a parameter is not finite.
        """
        return self._fit(X, y, sample_domain)

    def _read(self, X, y, sample_domain, *, seed):
        resolve_device(self._training.device)
        name = type(self).__name__
        X, persons = self._split_unit(X)
        X = validate_data(self, X, dtype=np.float64)
        y = check_labels_of_both(X, y, name)
        is_source = source_mask(y, sample_domain)
        self.classes_, labels = encode_source_labels(y[is_source], name)
        domains = [np.flatnonzero(is_source), np.flatnonzero(~is_source)]
        # A public domain is sampled by rows, also if persons are the unit.
        owners = [None, None]
        if persons is not None:
            if self.private == "both":
                persons.shared(is_source, "domain")
            owners = [
                Persons(persons.codes[rows]) if len(rows) and self._is_private(position) else None
                for position, rows in enumerate(domains)
            ]
        stratified = StratifiedRecords.from_samples(map(len, domains), owners)
        records = Records(stratified, (*(X[rows] for rows in domains), labels))
        return records, {
            "sizes": stratified.sizes,
            "n_features": X.shape[1],
            "n_classes": len(self.classes_),
        }

    def _network(self, descent):
        features, classifier = descent.layer_widths
        return nn.Sequential(
            nn.Sequential(
                linear_layers(features, self._training.activation),
                DomainHead(descent.objective.ball),
            ),
            nn.Linear(*classifier),
        )

    def _gradients(self, descent, module, tensors, seed):
        """Train on a public source first, then return the gradient of the private terms."""
        direction_seed, batch_seed, source_seed = split_random_state(seed, 3)
        objective, private = descent.objective, descent.private
        *domains, labels = tensors
        domains = domains[: len(objective.strata.sizes)]
        device = labels.device
        source_generator = torch_generator(source_seed, device)
        if 0 not in private:
            settings = self._training
            train_on_source(
                module,
                domains[0],
                labels,
                source_generator,
                max_iter=self.source_iter,
                learning_rate=self.source_learning_rate,
                averaging=settings.averaging,
                optimizer=settings.solver,
                verbose=settings.verbose,
                name=type(self).__name__,
            )
        rng = np.random.default_rng(batch_seed)
        draw_directions = self._directions(direction_seed, self.feature_dim, device)

        def gradient(drawn):
            rows = batch_rows(drawn, private, objective.strata.sizes, descent.batch_sizes, rng)
            rows = [torch.from_numpy(indices).to(device) for indices in rows]
            batches = [X[indices] for X, indices in zip(domains, rows, strict=True)]
            source_labels = labels[rows[0]] if 0 in private else None
            return private_gradient(objective, module, batches, source_labels, draw_directions())

        def add_public(released):
            loss = (1 - objective.alpha) * public_loss(module, domains[0], labels, source_generator)
            gradients = list(torch.autograd.grad(loss, list(module.parameters())))
            for gradient, released_part in zip(gradients, released, strict=False):
                gradient += released_part
            return gradients

        return gradient, None if 0 in private else add_public

    def _learn(self, plan, released, seed):
        module, n_released = released
        n_initial = 0 if 0 in plan.details.private else self.source_iter
        super()._learn(plan, (module, n_initial + n_released), seed)

    def __sklearn_tags__(self):
        tags = super().__sklearn_tags__()
        # Noise for few records makes scores poor.
        tags.classifier_tags.poor_score = self.private != "target" and self.epsilon != np.inf
        return tags
