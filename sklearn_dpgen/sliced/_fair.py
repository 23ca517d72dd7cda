"""Base classes of the estimators whose outputs are compared between groups."""

import math
import warnings
from dataclasses import replace
from functools import partial
from itertools import accumulate, pairwise, starmap
from typing import Self

import numpy as np
import pandas as pd
import torch
from numpy.typing import ArrayLike
from scipy.special import ndtri
from sklearn.exceptions import ConvergenceWarning
from torch import nn

from sklearn_dpgen.accounting import Bound
from sklearn_dpgen.domains import Ball
from sklearn_dpgen.exceptions import NoisyGradientsWarning, PublicValueError, SmallGroupWarning
from sklearn_dpgen.ledger._base import Plan
from sklearn_dpgen.persistence._declarations import Array, Maybe, demand
from sklearn_dpgen.sliced._base import (
    CAVEATS,
    DTYPE,
    ClippedGradient,
    Descent,
    Records,
    SlicedEstimator,
    linear_layers,
)
from sklearn_dpgen.sliced._objective import FairObjective, fair_gradient
from sklearn_dpgen.sliced._parity import (
    MEASURED,
    GapLimits,
    ParityTarget,
    Targeted,
    near_decisions,
)
from sklearn_dpgen.sliced._strata import (
    GROUP_WEIGHTS,
    PENALTIES,
    Strata,
    StratifiedRecords,
    count_cells,
    make_strata,
    protected_strata,
)
from sklearn_dpgen.utils._groups import check_groups, check_sensitive_features
from sklearn_dpgen.utils._random import split_random_state
from sklearn_dpgen.utils._torch import as_array
from sklearn_dpgen.utils._validation import (
    Interval,
    Real,
    StrOptions,
    check_count,
    check_is_fitted,
    check_weights,
    check_widths,
    fit_context,
    validate_data,
    warn_user,
)

__all__ = ["FairEstimator", "FairPredictor"]


_JACOBIAN_BOUNDS = {"spectral": "spectral_clip", "componentwise": "component_clip"}

# At this noise a linear classifier loses half of its AUC above 1/2. It was measured on simulated
# records (4 and 16 features, n = 300 to 10000, epsilon from 0.5 to 4), and on Adult (100 features).
_HALVING_NOISE = 0.15
_TOLERATED_NOISE = 0.025
# The warning names the smallest group if it multiplies the noise by more than this.
_TOLERATED_FACTOR = 2.0
# A penalty is weak if unequal groups leave it less than this share of the weight of equal ones, and
# its largest gradient is below this share of that of the task. At alpha = 0.5 the gap of wages by
# race (RetSchool), above it, shrank by a tenth without noise; the ratio of rates in health
# insurance by race (HI), below it, did not rise at epsilon = 1.
_WEAK = 0.5
# Largest alpha to advise: beyond it little of the task is left.
_LARGEST_REMEDY = 0.95
# "auto" takes the largest alpha up to this whose noise is tolerated, or at most so much larger than
# that of a fit without the penalty. Both were chosen on wages, visits and votes (cps1988, cpssw8,
# wage, psid7682, nmes1988, fertility).
_LARGEST_ALPHA = 0.5
_MORE_NOISE = 1.1


def relative_noise(noise_scale, task, n_features, n_steps):
    """Return the noise of a fit on the weights of an output, relative to the task's gradient.

    After T steps the mean of all gradients has noise σ / √T per parameter, and σ √((d + 1) / T) on
    the d weights and the intercept of an output.

    Parameters
    ----------
    noise_scale : float
        σ, of a step.
    task : float
        Largest norm of the gradient of the task, (1 - alpha) C.
    n_features, n_steps : int

    Returns
    -------
    float
    """
    noise = noise_scale * math.sqrt((n_features + 1) / n_steps)
    return noise / task if task > 0 else math.inf


def penalty_ratio(objective, batch_sizes):
    """Return the sensitivity of the penalty over that of the task, the largest of the strata.

    With weight alpha the noise relative to the gradient of the task is at most 1 + r alpha /
    (1 - alpha) times that without the penalty, for this ratio r.
    """
    task, penalty = (replace(objective, alpha=a).sensitivities(batch_sizes) for a in (0.0, 1.0))
    return max(one / other for one, other in zip(penalty, task, strict=True))


def tolerated_alpha(noise, ratio):
    """Return the weight of the penalty that "auto" stands for.

    Parameters
    ----------
    noise : float
        :func:`relative_noise` of a fit without the penalty.
    ratio : float
        :func:`penalty_ratio`.

    Returns
    -------
    float
    """
    if noise == 0:
        return _LARGEST_ALPHA
    more = max(_TOLERATED_NOISE / noise, _MORE_NOISE) - 1
    return min(_LARGEST_ALPHA, more / (more + ratio))


def faint_penalty_message(objective, noise, of_group=""):
    """Return a warning about a penalty to which noise leaves little weight.

    Parameters
    ----------
    objective : FairObjective
        With the weight of "auto".
    noise : float
        :func:`relative_noise` of a fit with the largest weight of "auto".
    of_group : str
        A sentence about a group that increases this noise.

    Returns
    -------
    str
    """
    task, penalty = objective.largest_gradients()
    n_samples = sum(objective.strata.sizes)
    return (
        f"With this noise alpha='auto' is {objective.alpha:.2g}: the gradient of the penalty has "
        f"norm at most {penalty:.2g}, and that of the task up to {task:.2g}, so the outputs hardly "
        f"depend on the penalty. {of_group}About {n_samples * noise / _TOLERATED_NOISE:.0f} "
        f"records allow alpha={_LARGEST_ALPHA}, got {n_samples}. Raise epsilon, or set a target, "
        "max_gap, which adds less noise."
    )


def evened_sensitivities(strata, batch_sizes, sensitivities):
    """Return the largest sensitivities that strata can declare at hardly any more noise.

    The noise is that of the worst stratum. A stratum of another sampling rate needs about as much
    for a sensitivity that is smaller by the ratio of the rates.

    Parameters
    ----------
    strata : Strata
    batch_sizes : sequence of int
    sensitivities : sequence of float

    Returns
    -------
    list of float
        Each is at least that given.
    """
    rates = np.divide(batch_sizes, strata.sizes)
    allowed = np.asarray(sensitivities) * np.minimum(1.0, rates / rates[:, None])
    return [*map(float, allowed.max(axis=1))]


def noise_message(objective, mechanism, groups, n_features, n_steps, targeted=None):
    """Return a warning about the noise of a fit, or None if it hardly affects the task.

    Parameters
    ----------
    objective : FairObjective
    mechanism : StratifiedGaussianMechanism
        The plan of the fit.
    groups : sequence
        Names of the groups, indexed by their codes.
    n_features, n_steps : int
    targeted : Targeted, optional
        A target of the fit.

    Returns
    -------
    str or None
    """
    strata, task = objective.strata, (1 - objective.alpha) * objective.task_clip
    if not strata.pairs or (objective.alpha == 0 and targeted is None) or task == 0:
        return None
    noise = relative_noise(mechanism.noise_scale, task, n_features, n_steps)
    if noise <= _TOLERATED_NOISE:
        return None
    kept = 1 / (1 + (noise / _HALVING_NOISE) ** 2)
    n_samples = sum(strata.sizes)
    if targeted is None:
        of_group = _small_group_message(objective, mechanism, groups)
        remedy, without = ", or lower alpha or jacobian_clip", "the penalty"
    else:
        of_group, remedy, without = "", "", "a target"
    return (
        f"The noise of the whole fit has norm {noise:.2g} on the weights of one output, relative "
        f"to the clipped gradient of the task: a classifier keeps about {kept:.0%} of the AUC "
        "above 0.5 that it has without noise. "
        f"{of_group}These settings need about "
        f"{n_samples * noise / _TOLERATED_NOISE:.0f} records, got {n_samples}. Raise epsilon"
        f"{remedy}. Fitting without {without} "
        "and adjusting the predictions by group afterwards needs far fewer: "
        "sklearn_dpgen.predictors.BarycenterClassifier."
    )


def weak_penalty_message(objective):
    """Return a warning about a penalty that small groups make weak, or None if it is not.

    Parameters
    ----------
    objective : FairObjective

    Returns
    -------
    str or None
    """
    if not objective.strata.pairs or not 0 < objective.alpha < 1:
        return None
    task, penalty = objective.largest_gradients()
    share = objective.share_of_equal_groups()
    if share >= _WEAK or penalty >= _WEAK * task:
        return None
    equal = objective.task_clip / (objective.task_clip + penalty / objective.alpha)
    remedy = f"alpha = {equal:.2g} makes them equal, with more noise"
    if equal > _LARGEST_REMEDY:
        remedy = "No alpha makes up for that: merge groups"
    return (
        f"The groups are so unequal that the penalty has {share:.0%} of the weight that it has for "
        f"groups of equal size: its gradient has norm at most {penalty:.2g}, and that of the task "
        f"up to {task:.2g}, so the outputs hardly depend on it. {remedy}. If the groups are known "
        "at prediction, adjust predictions by group afterwards: "
        "sklearn_dpgen.predictors.BarycenterClassifier or BarycenterRegressor."
    )


def _small_group_message(objective, mechanism, groups):
    """Return a sentence about a small group that increases the noise, or an empty string."""
    if objective.group_weights == "size":
        return ""
    strata = objective.strata
    batch_sizes = [stratum.batch_size for stratum in mechanism.strata]
    equal = max(1, sum(batch_sizes) // len(batch_sizes))
    balanced = replace(objective, strata=replace(strata, sizes=(equal,) * len(batch_sizes)))
    # Not those that the mechanism prices, which may be evened.
    bounds = objective.sensitivities(batch_sizes)
    worst = int(np.argmax(bounds))
    factor = bounds[worst] / max(balanced.sensitivities([equal] * len(batch_sizes)))
    if factor <= _TOLERATED_FACTOR:
        return ""
    group, label = strata.cells[worst]
    within = "" if label is None else f", with label number {label},"
    return (
        f"Group {groups[group]!r}{within} has {strata.sizes[worst]} records and multiplies the "
        f"noise by {factor:.3g} relative to groups of equal size; gradient__group_weights='size' "
        "avoids this. "
    )


class FairEstimator(SlicedEstimator):
    """Base class of the estimators with a penalty between groups of a sensitive feature."""

    _saved_state: dict = {"groups_": list | None}
    _parameter_constraints: dict = {
        **SlicedEstimator._parameter_constraints,
        "alpha": [Interval(Real, 0, 1, closed="both")],
        "groups": ["array-like", None],
        "protect_groups": ["boolean"],
    }
    # Bounds on private arguments of a fit other than the records.
    _weight_bounds: tuple[Bound, ...] = ()

    @classmethod
    def _of_former(cls, found):
        # Weights of groups were a parameter of their own.
        weights, gradient = found.get("group_weights"), found.get("gradient")
        if weights in GROUP_WEIGHTS and isinstance(gradient, ClippedGradient | None):
            del found["group_weights"]
            if weights != "size":
                found["gradient"] = (gradient or ClippedGradient()).set_params(
                    group_weights=weights
                )
        return super()._of_former(found)

    @property
    def _protects_groups(self):
        """Whether the group of a record is protected."""
        return self.protect_groups

    def _check_protection(self):
        """Refuse parameters with which the guarantee would depend on protected groups."""
        if not self._protects_groups:
            return
        if self.groups is None:
            raise PublicValueError(
                "groups must be declared with protect_groups=True, as the set of groups that occur "
                "is private."
            )
        if self._gradient.group_weights == "equal" and self._target() is None:
            raise PublicValueError(
                "group_weights of gradient must be 'size' with protect_groups=True, got 'equal': "
                "the smallest group would determine the noise, and its size is private."
            )

    def _divide(self, sensitive_features, n_rows, persons, *, labels=None, n_labels=None):
        """Return the strata, the assignment of the records to them, and private cells of rows.

        Also store ``groups_``. Cells are None unless groups are protected.
        """
        self._check_protection()
        if sensitive_features is None:
            self.groups_ = None
            stratified = StratifiedRecords.from_samples([n_rows], [persons])
            return Strata(stratified.sizes), stratified, None
        codes, self.groups_ = check_sensitive_features(sensitive_features, n_rows, self.groups)
        if self._protects_groups:
            # Rows of a person may differ: a batch has one of them.
            stratified = StratifiedRecords.from_samples([n_rows], [persons])
            n_groups = len(self.groups_)
            cells = codes if labels is None else codes + n_groups * labels
            return protected_strata(stratified.sizes[0], n_groups, n_labels), stratified, cells
        if persons is not None:
            codes = persons.shared(codes, "group of sensitive_features")
            labels = labels if labels is None else persons.shared(labels, "label")
        sizes = count_cells(codes, len(self.groups_), labels, n_labels)
        strata = make_strata(sizes, declared=self.groups is not None)
        return strata, StratifiedRecords.from_cells(strata.cells, codes, labels, persons), None

    def _stratified(
        self, X, targets, persons, sensitive_features, *, sample_weight=None, bound=(), **within
    ):
        """Return the stratified records, and the public arguments of ``_plan``.

        Parameters
        ----------
        X : ndarray of shape (n, n_features)
        targets : ndarray of shape (n,) or (n, n_outputs)
        persons : Persons or None
        sensitive_features : array-like or None
        sample_weight : array-like of shape (n,), optional
            Weights of the losses, clipped to [0, 1].
        bound : tuple
            Public objects that seeded noise depends on, such as the domain of the targets.
        **within
            ``labels`` and ``n_labels``, if groups are compared within each label.
        """
        strata, stratified, cells = self._divide(sensitive_features, len(X), persons, **within)
        weights = np.ones(len(X))
        if sample_weight is not None:
            weights = check_weights(sample_weight, len(X)).clip(0, 1)
        arrays = (X, targets, weights) if cells is None else (X, targets, weights, cells)
        records = Records(stratified, arrays, bound)
        return records, {"strata": strata, "n_features": X.shape[1], "groups": self.groups_}

    def _strata_of_sizes(self, n_samples, group_sizes, n_labels=None):
        """Return the strata for given public sizes."""
        n_samples = check_count(n_samples, "n_samples")
        self._check_protection()
        if self._protects_groups:
            if group_sizes is not None:
                how = "True" if self.protect_groups is True else "'auto' and a target"
                raise PublicValueError(
                    f"group_sizes must be None with protect_groups={how}, as they are private."
                )
            return protected_strata(n_samples, len(check_groups(self.groups)), n_labels)
        if group_sizes is None:
            return Strata((n_samples,))
        sizes = np.asarray(group_sizes)
        n_groups = len(sizes) if self.groups is None else len(check_groups(self.groups))
        shape = (n_groups,) if n_labels is None else (n_groups, n_labels)
        if sizes.dtype.kind not in "iu" or sizes.min() < 0 or sizes.shape != shape or n_groups < 2:
            raise PublicValueError(
                f"group_sizes must hold the number of records of each of at least two groups, "
                f"{'' if n_labels is None else 'by label, '}of shape {shape}."
            )
        if sizes.sum() != n_samples:
            raise PublicValueError(
                f"group_sizes must add up to n_samples = {n_samples}, got {sizes.sum()}."
            )
        return make_strata(sizes, declared=self.groups is not None)

    def _fair_plan(
        self,
        strata,
        n_features,
        groups,
        *,
        ball,
        layer_widths,
        public=(),
        reference=None,
        outcome_ball=None,
        n_located=0,
    ):
        """Plan a fit from public quantities, and warn of a missing penalty or too much noise.

        Parameters
        ----------
        strata : Strata
        n_features : int
        groups : list or None
            Names of the groups, for warnings.
        ball : Ball
            The ball on which compared outputs are projected.
        layer_widths : list of list of int
            Widths of the layers of each module of the network.
        public : tuple of str
            Public facts other than sizes, column names and groups.
        reference : callable, optional
            As in :class:`FairObjective`.
        outcome_ball : Ball, optional
            The ball of the outcomes whose means a target compares, if it is another one.
        n_located : int
            Number of releases before the steps, besides those of a target.

        Returns
        -------
        Plan
            Its details are a :class:`Descent`.
        """
        if not strata.pairs and (self.alpha != 0 or self._target() is not None):
            reason, hint = "sensitive_features has no pair of groups to compare", ""
            if not strata.cells:
                reason = "sensitive_features is absent"
                hint = (
                    " In a pipeline or a search, enable metadata routing and call "
                    "set_fit_request(sensitive_features=True)."
                )
            what = "penalty, as with alpha=0" if self._target() is None else "target"
            warn_user(f"{reason}: fitting without the {what}.{hint}", UserWarning)
        settings, target = self._gradient, self._target() if strata.pairs else None
        is_auto = self.alpha == "auto"
        alpha = 0.0 if is_auto else self.alpha
        objective = FairObjective(
            alpha=alpha if strata.pairs and target is None else 0.0,
            strata=strata,
            task_clip=settings.task_clip,
            jacobian_clip=settings.jacobian_clip,
            ball=ball,
            group_weights=settings.group_weights,
            n_directions=self._n_directions(ball.n_features),
            clipping=settings.jacobian_clipping,
            reference=reference,
        )
        batch_sizes, n_samples = strata.batch_sizes(settings.batch_fraction), sum(strata.sizes)
        if groups is None:
            groups = range(n_samples) if self.groups is None else check_groups(self.groups)
        if is_auto and strata.pairs and target is None:
            objective = self._with_tolerated_alpha(
                objective, batch_sizes, n_features, groups, n_located
            )
        sensitivities, targeted = objective.sensitivities(batch_sizes), None
        if n_located:
            # What is released of targets before the steps has all the sensitivity that the noise
            # of the worst stratum allows.
            sensitivities = evened_sensitivities(strata, batch_sizes, sensitivities)
        if target is None:
            mechanism = self._price(strata, sensitivities, n_samples, n_located)
        else:
            targeted, mechanism = self._targeted(
                target, objective, outcome_ball, sensitivities, n_features, n_located
            )
        message = noise_message(
            objective, mechanism, groups, n_features, self._training.max_iter, targeted
        )
        if message is not None:
            warn_user(message, NoisyGradientsWarning)
        message = weak_penalty_message(objective)
        if message is not None:
            warn_user(message, SmallGroupWarning)
        task, penalty = objective.largest_gradients()
        n_measured, measurements = n_located * len(strata.sizes) * ball.n_features, n_located
        if targeted is not None:
            n_measured += (self._training.max_iter + targeted.measurements) * targeted.n_measured
            measurements += targeted.measurements
        report = self._report(
            mechanism,
            layer_widths,
            {"the task": task, "the penalty": penalty},
            n_measured=n_measured,
            measurements=measurements,
            **self._guarantee_fields(
                objective,
                public,
                has_penalty=penalty > 0,
                radius=ball.radius,
            ),
        )
        private = tuple(range(len(strata.sizes)))
        descent = Descent(
            objective, mechanism, tuple(layer_widths), private, tuple(batch_sizes), targeted
        )
        return Plan(report, descent)

    def _target(self):
        """Return what is asked of the mean outcomes of groups, or None."""

    def _with_tolerated_alpha(self, objective, batch_sizes, n_features, groups, n_located):
        """Return the objective with the weight of "auto", and warn where it is next to nothing."""

        def price(objective):
            sensitivities = objective.sensitivities(batch_sizes)
            return self._quiet_price(objective.strata, sensitivities, n_located)

        size = n_features, self._training.max_iter
        noise = relative_noise(price(objective).noise_scale, objective.task_clip, *size)
        ratio = penalty_ratio(objective, batch_sizes)
        objective = replace(objective, alpha=tolerated_alpha(noise, ratio))
        task, penalty = objective.largest_gradients()
        if objective.alpha < _LARGEST_ALPHA and penalty < _WEAK * task:
            half = replace(objective, alpha=_LARGEST_ALPHA)
            of_group = _small_group_message(half, price(half), groups)
            message = faint_penalty_message(objective, noise * (1 + ratio), of_group)
            warn_user(message, NoisyGradientsWarning)
        return objective

    def _quiet_price(self, strata, sensitivities, n_measurements):
        """Return the mechanism of a fit without warnings, as the price that is chosen warns."""
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            return self._price(strata, sensitivities, sum(strata.sizes), n_measurements)

    def _targeted(self, target, objective, ball, tasks, n_features, n_located):
        """Return the target with what is released for it, and the mechanism of all releases.

        The means have the largest sensitivity at which the noise of the whole fit, relative to the
        gradient of the task, needs no warning, if any has that.
        """
        strata = objective.strata
        if check_widths(self._training.hidden_layer_sizes):
            raise PublicValueError(
                f"hidden_layer_sizes must be () with {target}: the limits of a target are those of "
                "a linear model. alpha takes any network."
            )
        for measured in MEASURED:
            targeted = Targeted(
                target,
                strata,
                ball,
                tuple(strata.batch_sizes(self._gradient.batch_fraction)),
                tuple(tasks),
                n_features,
                measured,
                self._training.max_iter,
            )
            n_measurements = targeted.measurements + n_located
            mechanism = self._quiet_price(strata, targeted.sensitivities, n_measurements)
            size = n_features, targeted.n_steps
            noise = relative_noise(mechanism.noise_scale, objective.task_clip, *size)
            if noise <= _TOLERATED_NOISE:
                break
        return targeted, mechanism

    def _task_and_compared(self, module):
        """Return the network of the task loss, and that of the outputs to compare."""
        raise NotImplementedError(f"{type(self).__name__} has no method _task_and_compared.")

    def _residuals(self, module, outputs, targets):
        """Return the gradient of each record's loss with respect to the outputs of the task."""
        raise NotImplementedError(f"{type(self).__name__} has no method _residuals.")

    def _gradients(self, descent, module, tensors, seed):
        X, targets, weights, *cells = tensors
        direction_seed, reference_seed = split_random_state(seed, 2)
        objective = descent.objective
        if objective.reference is not None:
            rng = np.random.default_rng(reference_seed)
            objective = replace(objective, reference=partial(objective.reference, rng=rng))
        task, compared = self._task_and_compared(module)
        draw_directions = self._directions(direction_seed, objective.ball.n_features, X.device)

        def gradient(rows):
            rows, batch = _batch(rows, X.device)
            return fair_gradient(
                objective.of_batch(cells[0][rows]) if cells else objective,
                task,
                compared,
                lambda outputs: self._residuals(module, outputs, targets[rows]),
                X[rows],
                batch,
                draw_directions(),
                weights[rows],
            )

        return gradient, None

    def _guarantee_fields(self, objective, public, *, has_penalty, radius):
        """Return the neighbouring relation, public facts, bounds and caveats of the report."""
        public, bounds = ["n_samples", "column_names", *public], []
        if objective.alpha < 1:
            bounds += [Bound("task_clip", objective.task_clip), *self._weight_bounds]
        if has_penalty:
            bounds.append(Bound(_JACOBIAN_BOUNDS[objective.clipping], objective.jacobian_clip))
            bounds.append(Bound("output_radius", radius))
        fields = {"norm": "l2", "bounds": tuple(bounds), "caveats": CAVEATS}
        if objective.strata.cells and not objective.strata.protects_cells:
            within = objective.strata.within_labels
            if self.groups is None:
                public.append("group_set")
            public.append("group_and_label_sizes" if within else "group_sizes")
            fields["shared"] = ("group", "label") if within else ("group",)
            fields["caveats"] = ("group_membership", *CAVEATS)
        return fields | {"public": tuple(public)}

    def _outputs(self, X, *, first_module=False):
        """Return the outputs of the network, or of its first module, as an array."""
        check_is_fitted(self)
        X = validate_data(self, self._without_unit(X), reset=False, dtype=np.float64)
        return self._forward(self.module_[0] if first_module else self.module_, X)


def _batch(rows, device):
    """Return the rows of all strata in one tensor, and the positions of each stratum in it."""
    stops = accumulate(map(len, rows), initial=0)
    return torch.from_numpy(np.concatenate(rows)).to(device), list(starmap(slice, pairwise(stops)))


def means_releaser(run, rows, array, codes=None):
    """Return a function that releases means of functions of an array, each of a new batch.

    Parameters
    ----------
    run : StratifiedGaussianRun
    rows : callable
        Maps drawn positions within each stratum to the rows of a batch.
    array : tensor of shape (n, d)
    codes : tensor of int of shape (n,), optional
        The private cells of protected groups.

    Returns
    -------
    callable
        Maps :class:`GroupMeans` and the function to the released vector.
    """

    @torch.no_grad()
    def release(measured, values):
        indices, batch = _batch(rows(run.draw()), array.device)
        cells = None if codes is None else codes[indices]
        return run.release(as_array(measured.vector(values(array[indices]), batch, cells)))

    return release


class FairPredictor(FairEstimator):
    """Base class of the classifier and the regressor, whose predictions the penalty compares."""

    _saved_state: dict = {
        "alpha_": Maybe(float),
        "_parity": Maybe(Array("f", 3)),
        "_parity_cells": Maybe(Array("i", 2)),
    }
    _parameter_constraints: dict = {
        **FairEstimator._parameter_constraints,
        "alpha": [Interval(Real, 0, 1, closed="both"), StrOptions({"auto"})],
        "max_gap": [Interval(Real, 0, None, closed="left"), None],
        "penalty": [StrOptions(set(PENALTIES))],
        "protect_groups": ["boolean", StrOptions({"auto"})],
    }
    _weight_bounds = (Bound("weight_clip", 1.0),)

    @property
    def parity_(self) -> pd.DataFrame:
        """Mean prediction of each group, with intervals, of a fit with a target."""
        if not hasattr(self, "_parity"):
            raise AttributeError("parity_ is available after a fit with a target and groups only.")
        (groups, labels), names = self._parity_cells.T, self.groups_ or []
        levels = {"group": [names[group] for group in groups] * len(self._parity)}
        if labels[0] >= 0:
            levels["label"] = list(self.classes_[labels]) * len(self._parity)
        if len(self._parity) > 1:
            levels["output"] = list(np.repeat(self._output_names(), len(groups)))
        index = pd.Index(levels["group"], name="group", tupleize_cols=False)
        if len(levels) > 1:
            index = pd.MultiIndex.from_arrays([*levels.values()], names=[*levels])
        columns = ["mean", "low", "high", "n_rows"]
        return pd.DataFrame(np.concatenate(self._parity), index=index, columns=columns)

    @property
    def _protects_groups(self):
        if self.protect_groups == "auto":
            # It adds no noise then, and without declared groups it is impossible.
            return self._target() is not None and self.groups is not None
        return self.protect_groups

    @property
    def _n_outcomes(self):
        """Number of outcomes whose means are measured."""
        raise NotImplementedError(f"{type(self).__name__} has no property _n_outcomes.")

    def _output_names(self):
        """Return the name of each outcome whose mean is measured, if there are several."""
        return range(len(self._parity))

    def _target(self):
        return None if self.max_gap is None else ParityTarget(self.max_gap)

    def _outcomes(self, outputs):
        """Return the outcomes of outputs, whose means a target compares."""
        raise NotImplementedError(f"{type(self).__name__} has no method _outcomes.")

    def _means_in_units(self, means):
        """Return mean outcomes, of shape (d, ...), in the units of predictions."""
        raise NotImplementedError(f"{type(self).__name__} has no method _means_in_units.")

    def _slopes(self, module):
        """Return what each output of the linear layer adds to its outcome, near the centre."""
        outputs = torch.zeros(1, self._n_outcomes, dtype=DTYPE, requires_grad=True)
        outputs = outputs.to(next(module.parameters()).device)
        outcomes = self._outcomes(module[1](outputs)).sum()
        return as_array(torch.autograd.grad(outcomes, outputs)[0])[0]

    def _train(self, descent, module, tensors, run, rows, seed):
        targeted = descent.targeted
        if targeted is None:
            return super()._train(descent, module, tensors, run, rows, seed)
        gradient, _ = self._gradients(descent, module, tensors, seed)
        X, _, _, *cells = tensors
        (layer,) = module[0]
        slopes = None if targeted.target.of_rates else self._slopes(module)
        limits = GapLimits(targeted, descent.mechanism.noise_scale, slopes)

        @torch.no_grad()
        def means(measured, values, drawn):
            indices, batch = _batch(drawn, X.device)
            return measured.vector(values(X[indices]), batch, cells[0][indices] if cells else None)

        def step(positions):
            limits.apply(layer)
            drawn = rows(positions)
            return [*gradient(drawn), *(means(*each, drawn) for each in measured)]

        def finish(released):
            gradients, vectors = released[: -len(measured)], released[-len(measured) :]
            limits.update(as_array(layer.weight), *map(as_array, vectors))
            return gradients

        release = means_releaser(run, rows, X, *cells)
        limits.locate(release)
        measured = [(limits.measured, lambda X: X)]
        if targeted.target.of_rates:
            measured.append((targeted.in_steps, lambda X: near_decisions(module[0](X))))
        n_iter = self._descend(module, step, run, finish)
        limits.apply(layer)
        final = [
            release(targeted.at_end, lambda X: self._outcomes(module(X)))
            for _ in range(targeted.n_final)
        ]
        return n_iter, np.array(final)

    def _learn(self, plan, released, seed):
        super()._learn(plan, released, seed)
        self.alpha_ = plan.details.objective.alpha
        targeted = plan.details.targeted
        if targeted is None:
            return
        strata, scale = targeted.strata, plan.details.mechanism.noise_scale
        self._parity = targeted.at_end.intervals(released[2], scale)
        self._parity[:, :, :3] = self._means_in_units(self._parity[:, :, :3])
        self._parity_cells = np.array(
            [[group, -1 if label is None else label] for group, label in strata.cells]
        )
        means, reach = self._parity[:, :, 0].T, np.ptp(self._parity[:, :, 1:3], axis=2).T / 2
        # All comparisons together are false in one fit of 20.
        n_compared = len(strata.pairs) * len(self._parity)
        reach = reach * ndtri(1 - 0.025 / n_compared) / ndtri(0.975)
        if any(targeted.target.is_missed(means[[*p]], reach[[*p]]) for p in strata.pairs):
            warn_user(
                f"The fit misses {targeted.target} by more than the noise of parity_, which holds "
                "the mean of each group. Ask for less, raise epsilon, or adjust the predictions: "
                "sklearn_dpgen.predictors.BarycenterClassifier or BarycenterRegressor.",
                ConvergenceWarning,
            )

    def _check_saved_state(self):
        super()._check_saved_state()
        if not hasattr(self, "_parity"):
            return
        cells, labels = getattr(self, "_parity_cells", np.zeros((0, 0))), ()
        if hasattr(self, "classes_"):
            labels = self.classes_
        demand(
            cells.shape == (self._parity.shape[1], 2)
            and self._parity.shape[::2] == (self._n_outcomes, 4)
            and self._parity.size > 0
            and (cells >= [0, -1]).all()
            and (cells < [len(self.groups_ or ()), len(labels)]).all()
            and len({bool(label < 0) for label in cells[:, 1]}) == 1,
            "Measured means do not fit the groups.",
        )

    @fit_context(prefer_skip_nested_validation=True)
    def fit(
        self,
        X: ArrayLike,
        y: ArrayLike,
        *,
        sensitive_features: ArrayLike | None = None,
        sample_weight: ArrayLike | None = None,
    ) -> Self:
        """Train the network on private records.

        Parameters
        ----------
        X : array-like of shape (n_samples, n_features)
            Features.
        y : array-like of shape (n_samples,) or (n_samples, n_outputs)
            Labels of a classifier, in one column, or targets of a regressor.
        sensitive_features : array-like of shape (n_samples,) or (n_samples, n_columns), or None
            The sensitive feature, whose distinct values are the groups; with several columns, the
            combinations that occur (:ref:`fair_groups`). None fits without the penalty or target,
            and warns unless there is none.
        sample_weight : array-like of shape (n_samples,) or None, default=None
            Private weights of the records in the task loss, silently clipped to [0, 1]. The loss is
            divided by the number of records, not by the sum of the weights, so the weights do not
            change the sensitivity. The penalty ignores them. None is 1 for each.

        Returns
        -------
        self : object

        Raises
        ------
        TrainingDivergedError
            A noisy gradient or a parameter is not finite.

        Warns
        -----
        ConvergenceWarning
            The means in ``parity_`` miss a target by more than their intervals allow.
        """
        for name in ("_parity", "_parity_cells"):
            self.__dict__.pop(name, None)
        return self._fit(X, y, sensitive_features=sensitive_features, sample_weight=sample_weight)

    def _head(self, n_outputs):
        """Return the map from outputs to predictions, a module without parameters."""
        raise NotImplementedError(f"{type(self).__name__} has no method _head.")

    def _network(self, descent):
        (widths,) = descent.layer_widths
        return nn.Sequential(
            linear_layers(widths, self._training.activation), self._head(widths[-1])
        )

    def _task_and_compared(self, module):
        return module[0], module

    def _ball(self, ball):
        """Return the ball on which outputs are projected, with the radius ``output_bound``."""
        radius = self._gradient.output_bound
        return ball if radius == "auto" else Ball(radius, center=ball.center)

    @property
    def coef_(self) -> np.ndarray:
        """Weights of the logits of a fit without hidden layers."""
        return as_array(self._linear_map("coef_").weight).copy()

    @property
    def intercept_(self) -> np.ndarray:
        """Intercepts of the logits of a fit without hidden layers."""
        return as_array(self._linear_map("intercept_").bias).copy()

    def _linear_map(self, name):
        """Return the linear layer of a fit without hidden layers."""
        if not hasattr(self, "module_"):
            raise AttributeError(f"{name} is available after fit: call fit first.")
        layer, *others = self.module_[0]
        if others:
            raise AttributeError(
                f"{name} is available for hidden_layer_sizes=() only: with hidden layers the "
                "predictions are not linear."
            )
        return layer
