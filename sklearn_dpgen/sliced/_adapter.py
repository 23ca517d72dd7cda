"""DPSlicedWassersteinAdapter: a classifier for another domain, by private Wasserstein gradients."""

from collections.abc import Callable, Sequence
from typing import Self

import numpy as np
import torch
from numpy.typing import ArrayLike
from torch import nn

from sklearn_dpgen.ledger._ledger import LedgerLike
from sklearn_dpgen.ledger._unit import Persons
from sklearn_dpgen.nn._generators import DomainHead
from sklearn_dpgen.sliced._adaptation import (
    SIDES,
    batch_rows,
    public_loss,
    released_gradient,
    train_on_source,
)
from sklearn_dpgen.sliced._adapter_plan import AdapterPlanMixin
from sklearn_dpgen.sliced._base import Records, SlicedEstimator, linear_stack
from sklearn_dpgen.sliced._strata import Members
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
    fit_context,
    validate_data,
)

__all__ = ["DPSlicedWassersteinAdapter"]


class DPSlicedWassersteinAdapter(AdapterPlanMixin, TargetClassifierMixin, SlicedEstimator):
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
    hidden_layer_sizes : tuple of int, default=(64,)
        Of the network before the features.
    feature_dim : int, default=16
        Number of features that are compared between the domains.
    activation : {"relu", "silu", "tanh"}, default="relu"
        Of the hidden layers.
    task_clip : float, default=1.0
        C, the l2 norm to which the gradient of each source record's loss is clipped, where the
        source is private: the sensitivity of a step to a source record grows with
        (1 - alpha) 2 C / n'.
    output_bound : float, default=8.0
        M, the radius of the ball that features lie in: some 2 a feature, for a usual learning rate.
    jacobian_clip : float, default=4.0
        L, the spectral norm to which the Jacobian of each record's features in the parameters is
        clipped, on both sides. The sensitivity of a step grows with alpha 8 M L / n', n' the batch
        of the record's domain. With a private source take it so small that this is not above
        (1 - alpha) 2 C / n', or its noise drowns the task.
    n_projections : int, default=16
        Random directions a step, in orthonormal blocks, rounded up to a multiple of
        ``feature_dim``.
    batch_fraction : float, default=0.2
        Share of a private domain in a batch, drawn without replacement; of a public one as many
        records as there are private ones.
    source_iter : int, default=2000
        Steps on a public source alone, before: they cost nothing. With a private source there are
        none.
    source_learning_rate : float, default=0.002
        Peak learning rate of these steps, with cosine decay.
    max_iter : int, default=100
        Number of steps that see both domains; all of them are paid for by ``epsilon``.
    solver : {"adam", "sgd"}, default="adam"
        How a gradient becomes a step.
    learning_rate : float, default=0.002
        Peak learning rate.
    schedule : {"cosine", "constant"}, default="cosine"
        Of the learning rate: warm-up over 50 steps and cosine decay, which is ours, or none, as in
        the paper.
    averaging : float, default=0.2
        Share of the steps, from the end, over which the parameters are averaged: it costs nothing
        and takes noise away.
    callback : callable or None, default=None
        Called as ``callback(step, module)`` after each step that is paid for, to watch the iterates
        on *public* data.
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
    device : str or torch.device, default="auto"
        "auto" trains on a GPU where there is one.
    verbose : int, default=0
        1 shows a progress bar.

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
    >>> from sklearn_dpgen.sliced import DPSlicedWassersteinAdapter
    >>> rng = np.random.default_rng(0)
    >>> X, y = rng.normal(size=(400, 2)), rng.integers(2, size=400)
    >>> X[:, 0] += 4 * y
    >>> domain = np.repeat([1, -2], 200)
    >>> X[domain < 0] += 1.5
    >>> y[domain < 0] = -1
    >>> adapter = DPSlicedWassersteinAdapter(max_iter=20, source_iter=50)
    >>> adapter.fit(X, y, sample_domain=domain).predict(X[domain < 0]).shape
    (200,)
    """

    _saved_state: dict = {}
    _parameter_constraints: dict = {
        **SlicedEstimator._parameter_constraints,
        "alpha": [Interval(Real, 0, 1, closed="both")],
        "private": [StrOptions({*SIDES, "both"})],
        "feature_dim": [Interval(Integral, 1, None, closed="left")],
        "task_clip": [Interval(Real, 0, None, closed="neither")],
        "output_bound": [Interval(Real, 0, None, closed="neither")],
        "source_iter": [Interval(Integral, 1, None, closed="left")],
        "source_learning_rate": [Interval(Real, 0, None, closed="neither")],
    }

    def __init__(
        self,
        alpha: float = 0.5,
        *,
        private: str = "target",
        epsilon: float = 1.0,
        delta: float | str = "auto",
        hidden_layer_sizes: Sequence[int] = (64,),
        feature_dim: int = 16,
        activation: str = "relu",
        task_clip: float = 1.0,
        output_bound: float = 8.0,
        jacobian_clip: float = 4.0,
        n_projections: int = 16,
        batch_fraction: float = 0.2,
        source_iter: int = 2000,
        source_learning_rate: float = 0.002,
        max_iter: int = 100,
        solver: str = "adam",
        learning_rate: float = 0.002,
        schedule: str = "cosine",
        averaging: float = 0.2,
        callback: Callable[[int, torch.nn.Module], object] | None = None,
        ledger: LedgerLike = None,
        unit: str | None = None,
        random_state: int | np.random.RandomState | None = None,
        device: str | torch.device = "auto",
        verbose: int = 0,
    ) -> None:
        self.alpha = alpha
        self.private = private
        self.epsilon = epsilon
        self.delta = delta
        self.hidden_layer_sizes = hidden_layer_sizes
        self.feature_dim = feature_dim
        self.activation = activation
        self.task_clip = task_clip
        self.output_bound = output_bound
        self.jacobian_clip = jacobian_clip
        self.n_projections = n_projections
        self.batch_fraction = batch_fraction
        self.source_iter = source_iter
        self.source_learning_rate = source_learning_rate
        self.max_iter = max_iter
        self.solver = solver
        self.learning_rate = learning_rate
        self.schedule = schedule
        self.averaging = averaging
        self.callback = callback
        self.ledger = ledger
        self.unit = unit
        self.random_state = random_state
        self.device = device
        self.verbose = verbose

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
        resolve_device(self.device)
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
                linear_stack(features, self.activation), DomainHead(descent.objective.ball)
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
            train_on_source(
                module,
                sides[0],
                labels,
                source_generator,
                max_iter=self.source_iter,
                learning_rate=self.source_learning_rate,
                averaging=self.averaging,
                optimizer=self.solver,
                verbose=self.verbose,
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
