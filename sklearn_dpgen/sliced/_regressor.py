"""DPSlicedWassersteinFairRegressor: private and group-fair regression."""

import math
from collections.abc import Callable
from dataclasses import replace

import numpy as np
import torch
from numpy.typing import ArrayLike
from sklearn.base import MultiOutputMixin, RegressorMixin

from sklearn_dpgen.accounting import PrivacyReport
from sklearn_dpgen.domains import Ball, Box, Domain
from sklearn_dpgen.domains._ball import enclosing_ball
from sklearn_dpgen.exceptions import PublicValueError
from sklearn_dpgen.ledger._base import UnpaidScoreMixin
from sklearn_dpgen.ledger._ledger import LedgerLike
from sklearn_dpgen.nn import Training
from sklearn_dpgen.nn._generators import DomainHead
from sklearn_dpgen.persistence._networks import check_network
from sklearn_dpgen.sliced._base import DTYPE, ClippedGradient, setting_defaults
from sklearn_dpgen.sliced._fair import FairPredictor, means_releaser
from sklearn_dpgen.sliced._objective import standardize_domain
from sklearn_dpgen.sliced._parity import GroupMeans
from sklearn_dpgen.sliced._strata import Strata
from sklearn_dpgen.utils._torch import resolve_device
from sklearn_dpgen.utils._validation import check_array, check_count, fit_context, validate_data

__all__ = ["DPSlicedWassersteinFairRegressor"]

# Before its steps a fit releases means of the targets and of the logarithms of their distances from
# it, and both once more, in the box that the first two give. The next two were chosen on wages
# (cps1988, cpssw8, psid7682, wage).
_N_LOCATED = 4
# Distances are at least this, in units of half the width of the declared box.
_LEAST_DISTANCE = 1e-3
# Half of the width of the box, and of the one where the second mean is taken, in units of the
# geometric mean of the distances: 2.1 standard deviations of a normal distribution.
_REACH = 4.0
# Half of the width of a box, relative to its distance from 0, is at least this much.
_PRECISION = 4e3 * np.finfo(float).eps


class DPSlicedWassersteinFairRegressor(
    UnpaidScoreMixin, MultiOutputMixin, RegressorMixin, FairPredictor
):
    """Private fair regressor with similar distributions of predictions in all groups.

    A network, by default a linear one, minimizes (1 - alpha) times the mean squared error plus
    alpha times the squared sliced Wasserstein distance between the distributions of its predictions
    in the groups of a sensitive feature (eq. 5 of [1]_). Training descends noisy clipped gradients.
    The penalty compares the joint distributions of all outputs, not their means alone.

    Parameters
    ----------
    alpha : float or "auto", default="auto"
        Weight of the penalty, in [0, 1]: 0 has no penalty, 1 ignores the targets. "auto" is 1/2, or
        less where its noise would cost the task (:ref:`fair_alpha`). Not read with ``max_gap``.
    max_gap : float or None, default=None
        The largest Euclidean distance of two groups' mean predictions, in the units of the target.
        The weights of a linear model are then kept where the groups are as similar as that, by mean
        features that each step measures (:ref:`parity_targets`). Not with hidden layers.
    y_domain : Domain, tuple or callable
        The public set of the targets and predictions: a Box or a Ball, with a feature for each
        output; or the bounds ``(low, high)`` of a box, numbers or arrays; or a function of
        ``n_features`` that returns a domain. Targets outside are silently projected on it, because
        a warning would depend on private records. Bounds of a box may be far too wide: by releases
        of its own, the fit first places a narrower box within them, in which predictions lie.
    penalty : {"demographic_parity"}, default="demographic_parity"
        Equalized odds needs discrete targets: use the classifier.
    groups : array-like of shape (n_groups,) or (n_groups, n_columns), or None, default=None
        The public groups, at least two: values of ``sensitive_features``, or rows of them. None
        takes the groups that occur, which are then public (:ref:`fair_groups`).
    protect_groups : bool or "auto", default="auto"
        Whether the group of a record is protected too, and with it the sizes of the groups
        (:ref:`protected_groups`). "auto" protects it with a target and declared ``groups``, which
        adds no noise. True needs ``groups`` too, and with ``alpha`` adds noise: at ``alpha=0.5``,
        the other defaults and one output, two thirds as much for two groups of one size.
    epsilon : float, default=1.0
        Privacy budget of the whole fit, in nats; ``np.inf`` trains without noise.
    delta : float or "auto", default="auto"
        Failure probability, in (0, 1). "auto" is 0.1 / n_samples.
    training : Training or None, default=None
        Network and optimizer (:ref:`training_settings`). ``epsilon`` covers all steps. Defaults:
        ``hidden_layer_sizes=()``, that is a linear map, ``activation="relu"``, ``max_iter=500``,
        ``solver="adam"``, ``learning_rate=0.02``, ``schedule="cosine"``, ``averaging=0.2``.
    gradient : ClippedGradient or None, default=None
        Clips and batches (:ref:`training_settings`), in units of the radius of ``y_domain_``.
        Defaults: ``task_clip=1.0``; ``output_bound`` of 1, which clips no prediction;
        ``jacobian_clip=0.25``, ``jacobian_clipping="spectral"``, ``n_projections=50`` for more than
        one output, ``batch_fraction=0.2``, ``group_weights="size"``. The sensitivity of a step:
        :ref:`sensitivity`.
    ledger : PrivacyLedger, path or None, default=None
        Ledger that a fit charges before it releases anything. BudgetExceededError is raised if too
        little is left. None charges no ledger.
    unit : str or None, default=None
        Name of the column of X, a data frame, that identifies the person of a row
        (:ref:`budget_persons`). A person then counts as one record, and each step draws one row of
        each person in its batch. All rows of a person must have the same group, unless groups are
        protected. The column is not learned from. None protects single rows.
    random_state : int, RandomState or None, default=None
        None draws noise and batches from the operating system's entropy. An int repeats the fit,
        and voids the guarantee against anybody who knows or guesses it.

    Attributes
    ----------
    alpha_ : float
        The weight of the penalty; 0 with a target, or without groups.
    module_ : torch.nn.Module
        The network, in double precision. It maps (n, n_features) to (n, n_outputs), in units of
        the radius of ``y_domain_`` about its centre.
    privacy_ : PrivacyReport
        The guarantee of the fit.
    noise_multiplier_ : float
        Standard deviation of the noise divided by the sensitivity.
    mechanism_ : StratifiedGaussianMechanism
        The mechanism of a step; ``mechanism_.epsilons(t)`` is the cost of t steps for each stratum.
    parity_ : DataFrame
        Measured means of a fit with ``max_gap``, by group: "mean", that of each "output" if there
        are several; "low" and "high", a 95 % confidence interval of the population mean; and
        "n_rows", the size of the group, in persons with ``unit``, and noisy with
        ``protect_groups``.
    groups_ : list or None
        The groups, in order; None if the fit had no ``sensitive_features``.
    y_domain_ : Domain
        The domain of the predictions: the box that the fit has placed within ``y_domain``, or the
        declared ball. Targets are projected on it for the training.
    coef_ : ndarray of shape (n_features,) or (n_outputs, n_features)
        Weights of the linear map, whose values a second map (a scaled tanh for a box) takes into
        the domain; only without hidden layers. Shapes are those of ``LinearRegression``.
    intercept_ : float or ndarray of shape (n_outputs,)
        Intercepts of the linear map; only without hidden layers.
    n_iter_ : int
        Number of steps.
    n_features_in_ : int
        Number of features.

    See Also
    --------
    DPSlicedWassersteinFairClassifier : Discrete targets.

    Notes
    -----
    **Formal guarantee**

    :Promise: Central (ε, δ)-differential privacy of all iterates of the training, and so of the
        network and its predictions for other records; with ``max_gap`` of all measured means too.
    :Neighbours: Replace one record by another of the same group; sizes of the groups are public.
        With ``protect_groups``, or without sensitive features: replace one record; the number of
        records is public. With ``unit``: a person with all their rows in place of a record.
    :Public: ``n_samples``; names of the columns; ``y_domain``; without ``protect_groups``
        sizes of the groups, and values of the sensitive features, where ``groups`` does not declare
        them. With ``unit``: numbers of persons, and not those of their rows.
    :Bounded by: Clips: gradients of the loss to ``task_clip``; for the penalty Jacobians to
        ``jacobian_clip``, outputs to ``output_bound``. Targets are projected on ``y_domain``, and
        on a box within it that the fit finds by releases of its own. Features need no bound; with
        ``max_gap`` their means are those of features projected on a ball, found in the same way.
    :Noise: Gaussian on the summed gradients of secret batches, by
        :class:`~sklearn_dpgen.mechanisms.StratifiedGaussianMechanism`, which also draws the
        batches, in floating point, from the operating system's entropy.
    :Priced by: The privacy profile of the Gaussian mechanism under sampling without replacement,
        composed numerically over all steps.
    :Not covered: Without ``protect_groups`` which group a record is in, beyond the sizes of the
        groups; what was fitted on the same records before, such as a scaler; other fits of the same
        records, which a ``ledger`` adds up; errors of a fit; a ``random_state`` that others know or
        guess.
    :Proof: :ref:`sensitivity`, with ``protect_groups`` :ref:`protected_sensitivity`, with
        ``max_gap`` :ref:`target_sensitivity`; of the box :ref:`target_box`; of
        the training :ref:`central-training`.

    Scale features by public bounds, with ``TabularEncoder(schema)`` in a pipeline. A scaler that is
    fitted on the private records is an unpaid release.

    References
    ----------
    .. [1] D. Rodríguez-Vítores, C. Lalanne, J.-M. Loubes, "Learning with differentially private
       (sliced) Wasserstein gradients", 2025, eq. (5) and Theorem 6.1; here with a sensitivity of
       8 M L / n where the paper has 16 M L / n.

    Examples
    --------
    >>> from sklearn_dpgen.datasets import make_biased_labels
    >>> from sklearn_dpgen.nn import Training
    >>> from sklearn_dpgen.sliced import DPSlicedWassersteinFairRegressor
    >>> data = make_biased_labels(10000, random_state=0)
    >>> regressor = DPSlicedWassersteinFairRegressor(
    ...     alpha=0.5, y_domain=(0, 1), training=Training(max_iter=50)
    ... )
    >>> regressor = regressor.fit(data.X, data.y_continuous, sensitive_features=data.sensitive)
    >>> regressor.predict(data.X[:3]).shape
    (3, 2)
    """

    _saved_state: dict = {"y_domain_": Domain, "_single_output": bool}
    _parameter_constraints: dict = {
        **FairPredictor._parameter_constraints,
        "y_domain": [Domain, tuple, callable],
    }
    _setting_defaults: dict = setting_defaults(
        {"hidden_layer_sizes": (), "max_iter": 500, "learning_rate": 0.02},
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
        y_domain: Domain | tuple[ArrayLike, ArrayLike] | Callable[..., Domain],
        penalty: str = "demographic_parity",
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
        self.y_domain = y_domain
        self.penalty = penalty
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
        n_outputs: int = 1,
    ) -> PrivacyReport:
        """Return the privacy report of a fit, from public sizes alone.

        Parameters
        ----------
        n_samples : int
            Number of records; with ``unit`` all sizes are numbers of persons.
        n_features : int
            Number of features.
        group_sizes : array-like of int of shape (n_groups,), or None, default=None
            Numbers of records of each group, in the order of the groups. None is a fit without
            groups and without penalty, and with ``protect_groups`` one with groups of any sizes.
        n_outputs : int, default=1
            Number of targets.

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
        self._check_penalty()
        domain = self._resolve_domain(check_count(n_outputs, "n_outputs"))
        strata = self._strata_of_sizes(n_samples, group_sizes)
        return self._plan(strata, n_features, domain).report

    def _plan(self, strata, n_features, domain, groups=None):
        n_outputs = domain.n_features
        return self._fair_plan(
            strata,
            n_features,
            groups,
            ball=self._ball(Ball(1.0, n_features=n_outputs)),
            outcome_ball=Ball(1.0, n_features=n_outputs),
            n_located=_N_LOCATED * self._n_each if isinstance(domain, Box) else 0,
            layer_widths=[self._layer_widths(check_count(n_features, "n_features"), n_outputs)],
            public=("y_domain",),
        )

    def _check_penalty(self):
        if self.penalty == "equalized_odds":
            raise PublicValueError(
                "penalty must be 'demographic_parity' for a regressor, got 'equalized_odds', which "
                "needs discrete targets: use DPSlicedWassersteinFairClassifier."
            )

    def _read(self, X, y, *, seed, sensitive_features, sample_weight):
        resolve_device(self._training.device)
        self._check_penalty()
        X, persons = self._split_unit(X)
        _check_numbers(y)
        X, y = validate_data(self, X, y, dtype=np.float64, multi_output=True, y_numeric=True)
        y = check_array(y, dtype=np.float64, ensure_2d=False, input_name="y")
        self._single_output = y.ndim == 1
        y = y.reshape(len(y), -1)
        self.y_domain_ = domain = self._resolve_domain(y.shape[1])
        ball = enclosing_ball(domain)
        records, facts = self._stratified(
            X,
            (domain.project(y) - ball.center) / ball.radius,
            persons,
            sensitive_features,
            sample_weight=sample_weight,
            bound=(domain,),
        )
        return records, facts | {"domain": domain}

    def _head(self, n_outputs):
        return _head(self.y_domain_)

    @property
    def _n_outcomes(self):
        return self.y_domain_.n_features

    def _outcomes(self, outputs):
        return outputs

    @property
    def _n_each(self):
        """Number of releases of each kind that place the box of the targets.

        With a quarter of them, boxes of 500 to 1000 records missed their targets more often, and
        with twice as many more noise was left to the steps (cps1988, psid7682).
        """
        return math.ceil(self._training.max_iter / 15)

    def _train(self, descent, module, tensors, run, rows, seed):
        X, targets, *others = tensors
        declared = domain = self.y_domain_
        if isinstance(declared, Box):
            domain = self._place_box(descent, run, rows, targets)
            old, new = enclosing_ball(declared), enclosing_ball(domain)
            values = domain.project(targets * old.radius + targets.new_tensor(old.center))
            targets = (values - targets.new_tensor(new.center)) / new.radius
            module[1] = _head(domain).to(X.device, DTYPE)
        if descent.targeted is not None:
            target = descent.targeted.target.in_units_of(enclosing_ball(domain).radius)
            descent = replace(descent, targeted=replace(descent.targeted, target=target))
        return *super()._train(descent, module, [X, targets, *others], run, rows, seed), domain

    def _place_box(self, descent, run, rows, targets):
        """Return a box within the declared one that holds most of the targets, by releases."""
        declared = self.y_domain_
        middle, half = (declared.low + declared.high) / 2, (declared.high - declared.low) / 2
        units = enclosing_ball(declared).radius / half
        release = means_releaser(run, rows, targets * targets.new_tensor(units))
        strata = Strata(descent.objective.strata.sizes)
        bounds = tuple(stratum.sensitivity for stratum in descent.mechanism.strata)
        scale = descent.mechanism.noise_scale / math.sqrt(self._n_each)

        def mean(ball, values):
            measured = GroupMeans(strata, ball, descent.batch_sizes, bounds)
            released = [release(measured, values) for _ in range(self._n_each)]
            means, shares = measured.means(np.mean(released, axis=0))
            noise = 2 * ball.radius * measured.noise(scale, shares)
            return shares @ means, np.linalg.norm(shares * noise)

        # Narrower boxes are too far from 0, relative to their width, for double precision.
        least = _PRECISION * (declared.n_features + 9) * abs(middle) / half
        low, high = located_box(mean, declared.n_features, np.minimum(least, 1))
        ends = (middle + half * end for end in (low, high))
        return Box(*(end.clip(declared.low, declared.high) for end in ends))

    def _residuals(self, module, outputs, targets):
        outputs = outputs.detach().requires_grad_()
        with torch.enable_grad():
            loss = ((module[1](outputs) - targets) ** 2).sum()
            return torch.autograd.grad(loss, outputs)[0]

    def _means_in_units(self, means):
        ball = enclosing_ball(self.y_domain_)
        return ball.center[:, None, None] + ball.radius * means

    def _learn(self, plan, released, seed):
        *released, self.y_domain_ = released
        super()._learn(plan, released, seed)

    def predict(self, X: ArrayLike) -> np.ndarray:
        """Predict targets in the domain ``y_domain_``.

        Parameters
        ----------
        X : array-like of shape (n_samples, n_features)

        Returns
        -------
        ndarray of shape (n_samples,) or (n_samples, n_outputs)
            In the shape of the targets of ``fit``.
        """
        standardized = self._outputs(X)
        ball = enclosing_ball(self.y_domain_)
        outputs = self.y_domain_.project(ball.center + ball.radius * standardized)
        return outputs[:, 0] if self._single_output else outputs

    @property  # A float for a single output, as in scikit-learn.
    def intercept_(self) -> float | np.ndarray:  # type: ignore[override]
        """Intercepts of the linear map of a fit without hidden layers."""
        intercepts = super().intercept_
        return float(intercepts[0]) if self._single_output else intercepts

    @property
    def coef_(self) -> np.ndarray:
        """Weights of the linear map of a fit without hidden layers."""
        weights = super().coef_
        return weights[0] if self._single_output else weights

    def __sklearn_tags__(self):
        tags = super().__sklearn_tags__()
        # Noise for few records makes scores poor.
        tags.regressor_tags.poor_score = self.epsilon != np.inf
        return tags

    def _resolve_domain(self, n_outputs):
        domain = self.y_domain
        if isinstance(domain, tuple):
            if len(domain) != 2:
                raise PublicValueError(f"y_domain must be (low, high), got {len(domain)} entries.")
            domain = Box(*domain, n_features=n_outputs)
        elif not isinstance(domain, Domain):
            domain = domain(n_features=n_outputs)
        if domain.n_features != n_outputs:
            raise PublicValueError(
                f"y_domain must have a feature for each of the {n_outputs} outputs of y, got "
                f"{domain.n_features}."
            )
        return domain

    def _check_saved_state(self):
        super()._check_saved_state()
        n_outputs = self.y_domain_.n_features
        check_network(self.module_, self.n_features_in_, n_outputs, dtype=DTYPE)


def _head(domain):
    """Return the map from outputs of a linear layer to a domain, in units of its radius."""
    ball = enclosing_ball(domain)
    return DomainHead(standardize_domain(domain, ball.center, ball.radius))


def located_box(mean, n_outputs, least=0.0):
    """Return the ends, in [-1, 1], of a box that holds most values, from noisy means.

    Parameters
    ----------
    mean : callable
        Maps a ball, and a function of the values, to the mean of the function projected on the
        ball, and to the standard deviation of its noise.
    n_outputs : int
    least : float or ndarray of shape (n_outputs,)
        Smallest half of the width of the box.

    Returns
    -------
    low, high : ndarray of shape (n_outputs,)
    """
    root = math.sqrt(n_outputs)
    # Logarithms of distances lie between those of the least one and of 2.
    ends = math.log(_LEAST_DISTANCE), math.log(2)
    logarithms = Ball(root * (ends[1] - ends[0]) / 2, center=np.full(n_outputs, np.mean(ends)))
    middle, reach = np.zeros(n_outputs), np.ones(n_outputs)
    for _ in range(_N_LOCATED // 2):
        found, _ = mean(Ball(root * reach.max(), center=middle), lambda values: values)
        middle = found.clip(-1, 1)

        def distances(values, origin=middle):
            found = abs(values - values.new_tensor(origin))
            return found.clamp(min=_LEAST_DISTANCE).log()

        lengths, noise = mean(logarithms, distances)
        # Rather too wide than too narrow, as far as the noise goes.
        reach = np.clip(_REACH * np.exp(lengths + noise), least, 2)
    return (middle - reach).clip(-1, 1), (middle + reach).clip(-1, 1)


def _check_numbers(y):
    """Raise an error for targets that are texts or dates; scikit-learn checks the rest."""
    values = np.asarray(y)
    try:
        if values.dtype.kind in "USMm":
            raise TypeError
        values.astype(np.complex128)
    except (TypeError, ValueError):
        values = None
    if values is None and y is not None:
        raise PublicValueError("y must be numeric.")
