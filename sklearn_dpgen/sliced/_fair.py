"""What the estimators share whose outputs are compared between groups."""

from dataclasses import dataclass, replace
from functools import partial
from itertools import accumulate, pairwise

import numpy as np
import torch
from torch import nn

from sklearn_dpgen.accounting import Bound, PrivacyReport
from sklearn_dpgen.accounting._checks import check_count
from sklearn_dpgen.domains import Ball
from sklearn_dpgen.exceptions import NoisyGradientsWarning
from sklearn_dpgen.mechanisms import StratifiedGaussianMechanism
from sklearn_dpgen.sliced._base import (
    CAVEATS,
    DTYPE,
    SlicedEstimator,
    count_parameters,
    linear_stack,
)
from sklearn_dpgen.sliced._noise_effect import noise_message, step_precision
from sklearn_dpgen.sliced._objective import FairObjective, fair_gradient
from sklearn_dpgen.sliced._strata import (
    GROUP_WEIGHTS,
    PENALTIES,
    Members,
    Strata,
    count_cells,
    make_strata,
)
from sklearn_dpgen.utils._groups import check_groups, check_sensitive_features
from sklearn_dpgen.utils._random import split_random_state
from sklearn_dpgen.utils._torch import (
    as_array,
    as_tensor,
    resolve_device,
    seeded_initialization,
)
from sklearn_dpgen.utils._validation import (
    Interval,
    Real,
    StrOptions,
    check_is_fitted,
    check_weights,
    validate_data,
    warn_user,
)

__all__ = ["FairEstimator", "FairPredictor"]


_JACOBIAN_BOUNDS = {"spectral": "spectral_clip", "componentwise": "component_clip"}


@dataclass(frozen=True)
class FairPlan:
    """What a fit will do: what it descends, what a step releases, and what all of it costs."""

    objective: FairObjective
    mechanism: StratifiedGaussianMechanism
    report: PrivacyReport


class FairEstimator(SlicedEstimator):
    """Base of the estimators whose outputs are compared between the groups of a feature."""

    _saved_state: dict = {"groups_": list | None}
    _parameter_constraints: dict = {
        **SlicedEstimator._parameter_constraints,
        "alpha": [Interval(Real, 0, 1, closed="both")],
        "groups": ["array-like", None],
        "group_weights": [StrOptions(set(GROUP_WEIGHTS))],
        "task_clip": [Interval(Real, 0, None, closed="neither")],
        "output_bound": [StrOptions({"auto"}), Interval(Real, 0, None, closed="neither")],
        "jacobian_clipping": [StrOptions({"spectral", "componentwise"})],
    }
    # Bounds on what a fit may be given beside records.
    _weight_bounds: tuple[Bound, ...] = ()

    def _divide(self, sensitive_features, n_rows, persons, *, labels=None, n_labels=1):
        """Return the strata and who is in them, and record the groups."""
        if sensitive_features is None:
            self.groups_ = None
            members = Members.of_samples([n_rows], [persons])
            return Strata(members.sizes), members
        codes, self.groups_ = check_sensitive_features(sensitive_features, n_rows, self.groups)
        if persons is not None:
            codes = persons.shared(codes, "group of sensitive_features")
            labels = labels if labels is None else persons.shared(labels, "label")
        sizes = count_cells(codes, len(self.groups_), labels, n_labels)
        strata = make_strata(sizes, declared=self.groups is not None)
        return strata, Members.of_cells(strata.cells, codes, labels, persons)

    def _strata_of_sizes(self, n_samples, group_sizes, n_labels=None):
        """Return the strata of a fit on so many records."""
        n_samples = check_count(n_samples, "n_samples")
        if group_sizes is None:
            return Strata((n_samples,))
        sizes = np.asarray(group_sizes)
        n_groups = len(sizes) if self.groups is None else len(check_groups(self.groups))
        shape = (n_groups,) if n_labels is None else (n_groups, n_labels)
        if sizes.dtype.kind not in "iu" or sizes.min() < 0 or sizes.shape != shape or n_groups < 2:
            raise ValueError(
                f"group_sizes must hold the number of records of each of at least two groups, "
                f"{'' if n_labels is None else 'by label, '}of shape {shape}."
            )
        if sizes.sum() != n_samples:
            raise ValueError(
                f"group_sizes must add up to n_samples = {n_samples}, got {sizes.sum()}."
            )
        return make_strata(sizes, declared=self.groups is not None)

    def _planned(self, strata, n_features, *, ball, stacks, public=(), reference=None, groups=None):
        """Plan a fit from public quantities, and warn of what it will lack.

        Parameters
        ----------
        strata : Strata
        n_features : int
        ball : Ball
            In which outputs are compared.
        stacks : list of list of int
            Widths of the layers of each part of the network.
        public : tuple of str
            What is public, beside sizes and groups.
        reference : callable, optional
            As of :class:`FairObjective`.
        groups : list, optional
            Names for warnings.

        Returns
        -------
        FairPlan
        """
        if not strata.pairs and self.alpha > 0:
            why = "sensitive_features has no two groups to compare"
            hint = ""
            if not strata.cells:
                why = "sensitive_features is absent"
                hint = (
                    " In a pipeline or a search, enable metadata routing and call "
                    "set_fit_request(sensitive_features=True)."
                )
            warn_user(f"{why}: fitting without the penalty, as with alpha=0.{hint}", UserWarning)
        objective = FairObjective(
            alpha=self.alpha if strata.pairs else 0.0,
            strata=strata,
            task_clip=self.task_clip,
            jacobian_clip=self.jacobian_clip,
            ball=ball,
            group_weights=self.group_weights,
            n_directions=self._n_directions(ball.n_features),
            clipping=self.jacobian_clipping,
            reference=reference,
        )
        batch_sizes, n_samples = strata.batch_sizes(self.batch_fraction), sum(strata.sizes)
        mechanism = self._price(strata, objective.sensitivities(batch_sizes), n_samples)
        if groups is None:
            groups = range(n_samples) if self.groups is None else check_groups(self.groups)
        message = noise_message(objective, mechanism, groups, n_features)
        if message is not None:
            warn_user(message, NoisyGradientsWarning)
        norms = dict(zip(("the task", "the penalty"), objective.largest_gradients(), strict=True))
        n_values = sum(map(count_parameters, stacks))
        report = self._report(
            mechanism,
            n_values,
            precision=step_precision(norms, mechanism, n_values),
            **self._guarantee_fields(objective, public),
        )
        return FairPlan(objective, mechanism, report)

    def _fit_network(
        self,
        X,
        targets,
        members,
        plan,
        *,
        network,
        residuals,
        sample_weight=None,
        bound=(),
    ):
        """Book the plan, then train: nothing of a record is released before.

        Parameters
        ----------
        X : ndarray of shape (n, n_features)
        targets : ndarray of shape (n,) or (n, n_outputs)
        members : Members
            Of the strata of the plan.
        plan : FairPlan
        network : callable
            Returns the network to train and keep, the part of it that does the task, and the part
            whose outputs are compared.
        residuals : callable
            From the outputs of the task and targets to the gradient of each record's loss.
        sample_weight : array-like of shape (n,), optional
            Weights of the losses, clipped to [0, 1].
        bound : tuple
            Public objects that seeded noise depends on, such as the domain of the targets.
        """
        noise_seed, init_seed, public_seed = self._seeds()
        device = resolve_device(self.device)
        weights = np.ones(len(X))
        if sample_weight is not None:
            weights = check_weights(sample_weight, len(X)).clip(0, 1)
        objective, n_compared = plan.objective, plan.objective.ball.n_features
        if objective.reference is not None:
            (seed,) = split_random_state(public_seed, 1)
            reference = partial(objective.reference, rng=np.random.default_rng(seed))
            objective = replace(objective, reference=reference)
        noise = members.bind(self._noise_source(noise_seed, X, targets, weights, *bound))
        self._book(plan.report, plan.mechanism)

        with seeded_initialization(init_seed):
            module, task, compared = network()
        module.to(device, DTYPE)
        draw_directions = self._directions(public_seed, n_compared, device)
        records = as_tensor(X, device=device, dtype=DTYPE)
        wanted = torch.tensor(np.ascontiguousarray(targets), device=device)
        weights = as_tensor(weights, device=device, dtype=DTYPE)

        def gradient(drawn):
            rows = members.rows(drawn, noise)
            stops = list(accumulate(map(len, rows)))
            rows = torch.from_numpy(np.concatenate(rows)).to(device)
            return fair_gradient(
                objective,
                task,
                compared,
                lambda outputs: residuals(outputs, wanted[rows]),
                records[rows],
                [slice(a, b) for a, b in pairwise([0, *stops])],
                draw_directions(),
                weights[rows],
            )

        self._descend(module, gradient, plan.mechanism, noise)
        self.module_ = module

    def _guarantee_fields(self, objective, public):
        """Return the neighbouring relation, public facts, bounds and caveats."""
        public, bounds = ["n_samples", "column_names", *public], []
        if objective.alpha < 1:
            bounds += [Bound("task_clip", self.task_clip), *self._weight_bounds]
        if objective.alpha > 0:
            bounds.append(Bound(_JACOBIAN_BOUNDS[self.jacobian_clipping], self.jacobian_clip))
            bounds.append(Bound("output_radius", objective.ball.radius))
        fields = {"norm": "l2", "bounds": tuple(bounds), "caveats": CAVEATS}
        if objective.strata.cells:
            within = objective.strata.cells[0][1] is not None
            if self.groups is None:
                public.append("group_set")
            public.append("group_and_label_sizes" if within else "group_sizes")
            fields["shared"] = ("group", "label") if within else ("group",)
            fields["caveats"] = ("group_membership", *CAVEATS)
        return fields | {"public": tuple(public)}


class FairPredictor(FairEstimator):
    """Base of the predictors: what they return is what the penalty compares."""

    _parameter_constraints: dict = {
        **FairEstimator._parameter_constraints,
        "penalty": [StrOptions(set(PENALTIES))],
    }
    _weight_bounds = (Bound("weight_clip", 1.0),)

    def _network(self, *, widths, head):
        """Return a stack under a head without parameters, the stack, and again the whole."""
        stack = linear_stack(widths, self.activation)
        module = nn.Sequential(stack, head)
        return module, stack, module

    def _ball(self, ball):
        """Return the ball in which outputs are compared: one that holds them, or as declared."""
        return ball if self.output_bound == "auto" else Ball(self.output_bound, center=ball.center)

    def _outputs(self, X, *, logits=False):
        """Return what the network makes of records, as an array; or its outputs before the head."""
        check_is_fitted(self)
        X = validate_data(self, self._without_unit(X), reset=False, dtype=np.float64)
        return self._forward(self.module_[0] if logits else self.module_, X)

    @property
    def coef_(self) -> np.ndarray:
        """Weights of the logits of a fit without hidden layers."""
        return as_array(self._linear_map("coef_").weight).copy()

    @property
    def intercept_(self) -> np.ndarray:
        """Intercepts of the logits of a fit without hidden layers."""
        return as_array(self._linear_map("intercept_").bias).copy()

    def _linear_map(self, name):
        """Return the one layer of a fit without hidden layers."""
        if not hasattr(self, "module_"):
            raise AttributeError(f"{name} needs a fit: call fit before.")
        layer, *others = self.module_[0]
        if others:
            raise AttributeError(
                f"{name} is there for hidden_layer_sizes=() only: with hidden layers predictions "
                "are not linear."
            )
        return layer
