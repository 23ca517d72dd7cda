"""DPSlicedWassersteinAdapter: a classifier for another domain, by private Wasserstein gradients."""

from itertools import accumulate, pairwise
from typing import Self

import numpy as np
import torch
from numpy.typing import ArrayLike
from torch import nn
from torch.nn import functional

from sklearn_dpgen.accounting import Bound, Event, PrivacyReport
from sklearn_dpgen.domains import Ball
from sklearn_dpgen.ledger._base import Plan
from sklearn_dpgen.ledger._ledger import LedgerLike
from sklearn_dpgen.ledger._unit import Persons
from sklearn_dpgen.nn import Training
from sklearn_dpgen.nn._generators import DomainHead
from sklearn_dpgen.nn._training import fit_module
from sklearn_dpgen.sliced._base import (
    CAVEATS,
    GRADIENT,
    TRAINING,
    ClippedGradient,
    Descent,
    Records,
    SlicedEstimator,
    count_parameters,
    linear_stack,
    step_precision,
)
from sklearn_dpgen.sliced._objective import (
    FairObjective,
    fair_gradient,
    penalty_gradient,
    softmax_residuals,
)
from sklearn_dpgen.sliced._strata import Members, Strata
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
SIDES = ("source", "target")
_PUBLIC = ("sample_domain", "column_names", "domain_sizes")
_PROTECTED = {(0,): "source_record", (1,): "target_record", (0, 1): "source_or_target_record"}

# Rows of a public source a step.
_BATCH_SIZE = 512


def public_loss(module, source, labels, generator):
    """Return the mean log loss on a batch of a public source.

    Parameters
    ----------
    module : torch.nn.Module
        From records to logits.
    source : Tensor of shape (n, n_features)
    labels : Tensor of int of shape (n,)
    generator : torch.Generator
        Draws the rows, with replacement.

    Returns
    -------
    Tensor
        A scalar.
    """
    rows = torch.randint(len(source), (_BATCH_SIZE,), generator=generator, device=source.device)
    return functional.cross_entropy(module(source[rows]), labels[rows])


def train_on_source(module, source, labels, generator, **options):
    """Train on a public source alone.

    Parameters
    ----------
    module, source, labels, generator
        As in :func:`public_loss`.
    **options
        Of ``fit_module``.
    """
    fit_module(module, lambda step: public_loss(module, source, labels, generator), **options)


def released_gradient(objective, module, sides, labels, directions):
    """Return the part of a step's gradient that sees private records, of known sensitivity.

    Parameters
    ----------
    objective : FairObjective
        Of one or of two domains, the source first.
    module : torch.nn.Sequential
        Features, and the classifier on them.
    sides : list of Tensor of shape (n_i, n_features)
        The batch of each domain.
    labels : Tensor of int of shape (n_0,) or None
        Of the source. None where the source is public, so that its loss needs no release.
    directions : Tensor of shape (k, feature_dim)

    Returns
    -------
    list of Tensor
        One for each parameter of the module; where the source is public, of the features alone.
    """
    X = torch.cat(sides)
    batch = [slice(a, b) for a, b in pairwise([0, *accumulate(map(len, sides))])]
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
    """Return the rows of a step in each domain: those drawn in secret, and public ones.

    Parameters
    ----------
    drawn : list of ndarray of int
        Of the private domains.
    private : tuple of int
        Which they are.
    sizes, batch_sizes : list of int
        Of all domains.
    rng : Generator
        Draws public rows, without replacement.

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
    """Return the neighbouring relation, public facts, bounds and caveats.

    Parameters
    ----------
    objective : FairObjective
    private : tuple of int
        Which of its domains are private.

    Returns
    -------
    dict of fields of a Guarantee
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
    """Return the report of a fit that reads no private record: of a public source alone."""
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
    """Private classifier of a domain without labels, learned from one with labels.

    Features g and a classifier on them minimize (1 - alpha) times the mean log loss on the source
    plus alpha times the squared sliced Wasserstein distance between the laws of the features of
    the two domains, by descent of clipped and noisy gradients. Either domain may be private, or
    both: the domain adaptation of Section 4 of [1]_.

    Parameters
    ----------
    alpha : float, default=0.5
        Weight of the distance, in [0, 1]: 0 learns from the source alone.
    private : {"target", "source", "both"}, default="target"
        The domain whose records are protected; the other one is public.
    epsilon : float, default=1.0
        Privacy budget of the whole fit, in nats; ``np.inf`` trains without noise.
    delta : float or "auto", default="auto"
        Failure probability, in (0, 1). "auto" is 0.1 / (number of private records).
    feature_dim : int, default=16
        Number of features that are compared between the domains.
    source_iter : int, default=2000
        Steps on a public source alone, before: they cost nothing. With a private source there are
        none.
    source_learning_rate : float, default=0.002
        Peak learning rate of these steps, with cosine decay.
    training : Training or None, default=None
        Network and optimizer: :ref:`training_settings`. The ``max_iter`` steps see both domains,
        and all of them are paid for by ``epsilon``. Defaults: ``hidden_layer_sizes=(64,)`` before
        the features, ``activation="relu"``, ``max_iter=100``, ``solver="adam"``,
        ``learning_rate=0.002``, ``schedule="cosine"``, ``averaging=0.2``.
    gradient : ClippedGradient or None, default=None
        Clips and batches: :ref:`training_settings`, without ``jacobian_clipping`` and
        ``released_clip``. Defaults: ``task_clip=1.0``, of a private source; ``output_bound=8.0``,
        the radius of the ball that features lie in, some 2 a feature for a usual learning rate;
        ``jacobian_clip=4.0`` of the features, on both sides; ``n_projections=16``;
        ``batch_fraction=0.2`` of a private domain, and of a public one as many records as there are
        private ones. The sensitivity of a step grows with alpha 8 M L / n', n' the batch of the
        record's domain, and for a source record with (1 - alpha) 2 C / n'. With a private source
        take ``jacobian_clip`` so small that the first is not above the second, or its noise drowns
        the task.
    ledger : PrivacyLedger, path or None, default=None
        Where a fit books what it will cost, before anything of a record is released: it raises
        BudgetExceededError where less is left. None books nowhere.
    unit : str or None, default=None
        Column of X, a data frame, that says whose row each is. A person is then protected with all
        of their rows, and counts as one record: each step draws one row anew of each person in its
        batch, so that what is learned is the law of a random row of a random person. Where both
        domains are private, a person must be of one. The column is not learned from. None protects
        each row by itself.
    random_state : int, RandomState or None, default=None
        None draws noise and batches from the operating system's entropy. An int repeats the fit,
        and voids the guarantee for whoever knows or guesses it.

    Attributes
    ----------
    module_ : torch.nn.Module
        ``module_[0]`` makes features, ``module_[1]`` logits (n, n_classes) of them; in double
        precision.
    classes_ : ndarray of shape (n_classes,)
        The labels of the source.
    privacy_ : PrivacyReport
        The guarantee of the fit.
    noise_multiplier_ : float
        Standard deviation of the noise over the sensitivity; 0 where nothing private is read.
    mechanism_ : StratifiedGaussianMechanism or None
        What each step releases; ``mechanism_.epsilons(t)`` is what t steps cost each private
        domain. None where nothing private is read.
    n_iter_ : int
        Number of steps, those on the source alone among them.
    n_features_in_ : int
        Number of features.

    See Also
    --------
    SmoothedSlicedWassersteinAdapter : Releases noisy features of the target instead.

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
    :Not covered: Predictions for private records, which tell of these; ``score``, which reads
        labels of the target; what was fitted on the same records before, such as a scaler; other
        fits of the same records, which a ``ledger`` adds up; errors of a fit; a ``random_state``
        that others know or guess.
    :Proof: :ref:`sensitivity`; of the training :ref:`central-training`.

    With a public source the distance alone is released, and the loss on the source is added
    after the noise, unclipped. Labels of target rows are not read.

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
        "private": [StrOptions({*SIDES, "both"})],
        "feature_dim": [Interval(Integral, 1, None, closed="left")],
        "source_iter": [Interval(Integral, 1, None, closed="left")],
        "source_learning_rate": [Interval(Real, 0, None, closed="neither")],
    }
    _setting_defaults: dict = {
        "training": {
            **TRAINING,
            "hidden_layer_sizes": (64,),
            "max_iter": 100,
            "learning_rate": 0.002,
        },
        "gradient": {
            **GRADIENT,
            "task_clip": 1.0,
            "output_bound": 8.0,
            "jacobian_clip": 4.0,
            "n_projections": 16,
        },
    }

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
        """Return the privacy report of a fit on a number of records, before any is read.

        Parameters
        ----------
        n_samples : int
            Number of private records, or with ``unit`` of persons: of the target, of the source,
            or of both. Without any, of a private target, the source alone is learned from.
        n_features : int
            Number of features.
        n_source : int or None, default=None
            How many of them are of the source, where both domains are private. It is not read
            otherwise: the size of a public domain costs nothing.
        n_classes : int, default=2
            Number of labels of the source.

        Returns
        -------
        PrivacyReport
            Equal to ``privacy_`` of a fit with both domains, with what its noise leaves of the
            gradients, and about how long it takes.

        Raises
        ------
        ValueError
            What ``fit`` would refuse of the parameters, or sizes that do not fit together.
        """
        n_classes = check_count(n_classes, "n_classes")
        if self.private == "both":
            n_source = check_count(n_source, "n_source")
            sizes = (n_source, check_count(n_samples, "n_samples") - n_source)
            if sizes[1] < 1:
                raise ValueError("n_source must be less than n_samples: some are of the target.")
        elif self.private == "source":
            sizes = (check_count(n_samples, "n_samples"), 1)
        else:
            sizes = (1, 0 if n_samples == 0 else check_count(n_samples, "n_samples"))
        return self._plan(sizes, n_features, n_classes).report

    def _is_private(self, position):
        return self.private in (SIDES[position], "both")

    def _stacks(self, n_features, n_classes):
        """Return the widths of the network of the features, and of the classifier."""
        n_features = check_count(n_features, "n_features")
        return [n_features, *self._widths(), self.feature_dim], [self.feature_dim, n_classes]

    def _plan(self, sizes, n_features, n_classes):
        stacks = tuple(self._stacks(n_features, n_classes))
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
            return Plan(report, Descent(objective, None, stacks, private, ()))
        batch_sizes = self._batch_sizes(strata, private)
        sensitivities = objective.sensitivities(batch_sizes)
        protected = Strata(tuple(strata.sizes[position] for position in private))
        mechanism = self._price(
            protected, [sensitivities[position] for position in private], sum(protected.sizes)
        )
        # The loss on a public source is not released.
        released = stacks if 0 in private else stacks[:1]
        task, distance = objective.largest_gradients()
        norms = {"the task": task if 0 in private else 0.0, "the distance": distance}
        n_values = sum(map(count_parameters, released))
        report = self._report(
            mechanism,
            n_values,
            precision=step_precision(norms, mechanism, n_values),
            **adaptation_guarantee(objective, private),
        )
        return Plan(report, Descent(objective, mechanism, stacks, private, batch_sizes))

    def _batch_sizes(self, strata, private):
        """Return the records a step of each domain; of a public one as many as of the other."""
        sizes = strata.batch_sizes(self._gradient.batch_fraction)
        largest = max(sizes[position] for position in private)
        return tuple(
            size if position in private else min(largest, there)
            for position, (size, there) in enumerate(zip(sizes, strata.sizes, strict=True))
        )

    @fit_context(prefer_skip_nested_validation=True)
    def fit(self, X: ArrayLike, y: ArrayLike, sample_domain: ArrayLike | None = None) -> Self:
        """Train on the source, and on the distance between the domains.

        Parameters
        ----------
        X : array-like of shape (n_samples, n_features)
            Records of both domains.
        y : array-like of shape (n_samples,)
            Labels. Those of target rows are not read, but for the dtype that one array gives to
            all: mask them.
        sample_domain : array-like of int of shape (n_samples,) or None
            Negative for rows of the target. None takes rows whose label is masked, -1 or NaN; if
            there are none it warns, and fits on the source alone.

        Returns
        -------
        self : object

        Raises
        ------
        TrainingDivergedError
            When a noisy gradient or a parameter is not finite.
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
        sides = [np.flatnonzero(side) for side in (is_source, ~is_source)]
        # A public domain has rows as members, even where persons are the unit.
        owners = [None, None]
        if persons is not None:
            if self.private == "both":
                persons.shared(is_source, "domain")
            owners = [
                Persons(persons.codes[rows]) if len(rows) and self._is_private(position) else None
                for position, rows in enumerate(sides)
            ]
        members = Members.of_samples(map(len, sides), owners)
        records = Records(members, (*(X[rows] for rows in sides), labels))
        n_classes = len(self.classes_)
        return records, {"sizes": members.sizes, "n_features": X.shape[1], "n_classes": n_classes}

    def _network(self, descent):
        features, classifier = descent.stacks
        return nn.Sequential(
            nn.Sequential(
                linear_stack(features, self._training.activation),
                DomainHead(descent.objective.ball),
            ),
            nn.Linear(*classifier),
        )

    def _gradients(self, descent, module, tensors, seed):
        """Train on a public source, which costs nothing, then return the gradient of both."""
        direction_seed, batch_seed, source_seed = split_random_state(seed, 3)
        objective, private = descent.objective, descent.private
        *sides, labels = tensors
        sides = sides[: len(objective.strata.sizes)]
        device = labels.device
        source_generator = torch_generator(source_seed, device)
        if 0 not in private:
            settings = self._training
            train_on_source(
                module,
                sides[0],
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
            rows = [torch.from_numpy(picks).to(device) for picks in rows]
            batch = [side[picks] for side, picks in zip(sides, rows, strict=True)]
            known = labels[rows[0]] if 0 in private else None
            return released_gradient(objective, module, batch, known, draw_directions())

        def add_public(released):
            loss = (1 - objective.alpha) * public_loss(module, sides[0], labels, source_generator)
            gradients = list(torch.autograd.grad(loss, list(module.parameters())))
            for gradient, part in zip(gradients, released, strict=False):
                gradient += part
            return gradients

        return gradient, None if 0 in private else add_public

    def _learn(self, plan, released, seed):
        module, n_released = released
        n_before = 0 if 0 in plan.details.private else self.source_iter
        super()._learn(plan, (module, n_before + n_released), seed)

    def __sklearn_tags__(self):
        tags = super().__sklearn_tags__()
        # A strong guarantee on few records leaves little to learn from.
        tags.classifier_tags.poor_score = self.private != "target" and self.epsilon != np.inf
        return tags
