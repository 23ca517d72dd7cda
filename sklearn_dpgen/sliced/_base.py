"""What the estimators trained on private sliced Wasserstein gradients share."""

import math
import warnings
from itertools import accumulate

import numpy as np
import torch
from torch import nn

from sklearn_dpgen.accounting import PrivacyReport
from sklearn_dpgen.mechanisms import StratifiedGaussianMechanism, Stratum
from sklearn_dpgen.nn import ACTIVATIONS, OPTIMIZERS, descend
from sklearn_dpgen.ot import random_directions
from sklearn_dpgen.sliced._strata import make_strata
from sklearn_dpgen.utils._base import PrivateEstimator
from sklearn_dpgen.utils._groups import check_sensitive_features
from sklearn_dpgen.utils._random import split_random_state, torch_generator
from sklearn_dpgen.utils._torch import as_tensor, resolve_device
from sklearn_dpgen.utils._validation import (
    Integral,
    Interval,
    Real,
    StrOptions,
    check_delta,
    check_widths,
)

__all__ = ["CAVEATS", "DTYPE", "FairEstimator", "SlicedEstimator", "linear_stack"]

# Sums over a batch are then rounded far below what the noise is calibrated for.
DTYPE = torch.float64

_GROUPS_CAVEAT = (
    "Neighbours share the sensitive feature: which group a record is in is protected no more "
    "than the sizes of the groups."
)
CAVEATS = (
    "Whatever was fitted on the same records before, such as a scaler, is not paid for here.",
    "The noise is drawn in floating point, from 52 random bits a draw; the guarantee is for exact "
    "draws.",
)


def linear_stack(widths, activation):
    """Return linear layers with activations between them, as one Sequential."""
    layers = []
    for n_in, n_out in zip(widths[:-1], widths[1:], strict=True):
        layers += [nn.Linear(n_in, n_out), ACTIVATIONS[activation]()]
    return nn.Sequential(*layers[:-1])


class SlicedEstimator(PrivateEstimator):
    """Base of the estimators of paper 2: a network that descends noisy clipped gradients."""

    _parameter_constraints: dict = {
        "epsilon": [Interval(Real, 0, np.inf, closed="right")],
        "delta": [StrOptions({"auto"}), Interval(Real, 0, 1, closed="neither")],
        "hidden_layer_sizes": ["array-like"],
        "activation": [StrOptions(set(ACTIVATIONS))],
        "jacobian_clip": [Interval(Real, 0, None, closed="neither")],
        "n_projections": [Interval(Integral, 1, None, closed="left")],
        "batch_fraction": [Interval(Real, 0, 1, closed="right")],
        "max_iter": [Interval(Integral, 1, None, closed="left")],
        "solver": [StrOptions(set(OPTIMIZERS))],
        "learning_rate": [Interval(Real, 0, None, closed="neither")],
        "averaging": [Interval(Real, 0, 1, closed="left")],
        "callback": [callable, None],
        "random_state": ["random_state"],
        "device": [str, torch.device],
        "verbose": ["verbose"],
    }

    def _plan_mechanism(self, strata, sensitivities, n_samples):
        """Price every step from public quantities: sizes, rates, clips, number of steps."""
        delta = 0.1 / n_samples if self.delta == "auto" else check_delta(self.delta)
        batch_sizes = strata.batch_sizes(self.batch_fraction)
        return StratifiedGaussianMechanism(
            [
                Stratum(size, batch_size, sensitivity)
                for size, batch_size, sensitivity in zip(
                    strata.sizes, batch_sizes, sensitivities, strict=True
                )
            ],
            epsilon=self.epsilon,
            delta=delta,
            n_releases=self.max_iter,
        )

    def _plan_privacy(self, n_samples, *, mechanism, noise, **words):
        """Return the report: what the mechanism states, and words of this estimator."""
        return PrivacyReport(
            mechanism=f"{type(self).__name__}: all iterates of noisy clipped gradient descent",
            epsilon=mechanism.epsilon,
            delta=mechanism.delta if math.isfinite(mechanism.epsilon) else 0.0,
            noise_source=noise.description,
            **mechanism.report_fields(),
            **words,
        )

    def _descend(self, module, gradient_fn, mechanism, noise):
        """Train ``module`` on what the mechanism releases of its gradients, and on nothing else.

        Parameters
        ----------
        module : torch.nn.Module
        gradient_fn : callable
            From the rows within each stratum to a list of gradients, one a parameter.
        mechanism : StratifiedGaussianMechanism
        noise : NoiseSource
        """
        parameters = list(module.parameters())
        run = mechanism.run(noise)

        def released_gradient(step):
            gradients = gradient_fn(run.draw())
            flat = torch.cat([gradient.flatten() for gradient in gradients])
            flat = as_tensor(run.release(flat.cpu().numpy()), device=flat.device, dtype=DTYPE)
            parts = flat.split([p.numel() for p in parameters])
            return None, [part.view_as(p) for part, p in zip(parts, parameters, strict=True)]

        watch = None if self.callback is None else (lambda step: self.callback(step, module))
        result = descend(
            module,
            released_gradient,
            max_iter=self.max_iter,
            learning_rate=self.learning_rate,
            averaging=self.averaging,
            optimizer=self.solver,
            verbose=self.verbose,
            name=type(self).__name__,
            callback=watch,
        )
        self.n_iter_ = result.n_iter

    def _widths(self):
        return check_widths(self.hidden_layer_sizes)

    def _n_directions(self, n_features):
        """Return the directions a step: whole orthonormal blocks, whose spread is smallest."""
        return 1 if n_features == 1 else n_features * math.ceil(self.n_projections / n_features)

    def _seeds(self):
        """Return seeds of the noise with the batches, of initial weights, and of directions."""
        return split_random_state(self.random_state, 3)

    def _directions(self, seed, n_projections, n_features):
        """Return a function that draws the directions of a step; they are public."""
        device = resolve_device(self.device)
        generator = torch_generator(seed, device)
        if n_features == 1:
            only = torch.ones(1, 1, dtype=DTYPE, device=device)
            return lambda: only
        return lambda: random_directions(
            n_projections, n_features, generator=generator, dtype=DTYPE, device=device
        )

    def __sklearn_is_fitted__(self):
        return hasattr(self, "module_")

    def __sklearn_tags__(self):
        tags = super().__sklearn_tags__()
        tags.non_deterministic = self.random_state is None
        return tags


class FairEstimator(SlicedEstimator):
    """Base of the estimators whose outputs are compared between the groups of a feature."""

    _parameter_constraints: dict = {
        **SlicedEstimator._parameter_constraints,
        "alpha": [Interval(Real, 0, 1, closed="both")],
        "task_clip": [Interval(Real, 0, None, closed="neither")],
        "output_bound": [StrOptions({"auto"}), Interval(Real, 0, None, closed="neither")],
        "jacobian_clipping": [StrOptions({"spectral", "componentwise"})],
    }

    def _make_strata(self, sensitive_features, n_samples, *, labels=None, n_labels=None):
        """Return the strata, and record the groups; without groups there is no penalty."""
        if sensitive_features is None:
            if self.alpha > 0:
                warnings.warn(
                    "sensitive_features is absent: fitting without the penalty, as with alpha=0. "
                    "In a pipeline or a search, enable metadata routing and call "
                    "set_fit_request(sensitive_features=True).",
                    UserWarning,
                    stacklevel=4,
                )
            self.groups_ = None
            return make_strata(n_samples)
        codes, self.groups_ = check_sensitive_features(sensitive_features, n_samples)
        return make_strata(n_samples, groups=codes, labels=labels, n_labels=n_labels)

    def _fit_module(self, module, gradient_fn, objective, keys, *, noise_seed, public=()):
        """Plan, then train: the report is complete before a gradient is computed.

        Parameters
        ----------
        module : torch.nn.Module
            Trained in place, then kept as ``module_``.
        gradient_fn : callable
            ``gradient_fn(rows, batch)`` with the rows of a batch, stratum after stratum, and a
            slice a stratum.
        objective : FairObjective
        keys : list of ndarray or Domain
            The records and the domain of the targets, the key of seeded noise.
        noise_seed : int or None
        public : tuple of str
            What else is public, beside sizes and groups.
        """
        strata = objective.strata
        n_samples = sum(strata.sizes)
        sensitivities = objective.sensitivities(strata.batch_sizes(self.batch_fraction))
        mechanism = self._plan_mechanism(strata, sensitivities, n_samples)
        noise = self._noise(noise_seed, *keys, *strata.members)
        self.privacy_ = self._plan_privacy(
            n_samples, mechanism=mechanism, noise=noise, **self._words(objective, public)
        )
        self.noise_multiplier_ = mechanism.noise_multiplier

        def batch_gradient(drawn):
            rows = np.concatenate(
                [members[picks] for members, picks in zip(strata.members, drawn, strict=True)]
            )
            stops = list(accumulate(map(len, drawn)))
            batch = [slice(a, b) for a, b in zip([0, *stops], stops, strict=False)]
            return gradient_fn(torch.from_numpy(rows), batch)

        self._descend(module, batch_gradient, mechanism, noise)
        self.module_ = module

    def _words(self, objective, public):
        """Return the words of the report: neighbours, what is public, where bounds come from."""
        strata = objective.strata
        public = ("n_samples", "number and names of the features", *public)
        if not strata.pairs:
            return {
                "neighbouring": "replace one record; the number of records is public",
                "public": public,
                "sensitivity_source": "l2; the gradient of each record's loss is clipped to "
                f"{self.task_clip:g}",
                "caveats": CAVEATS,
            }
        shared = "group" if strata.n_labels == 1 else "group and with the same label"
        sizes = "sizes of the groups" if strata.n_labels == 1 else "sizes of the groups by label"
        bounds = []
        if objective.alpha < 1:
            bounds.append(f"gradients of the task clipped to {self.task_clip:g}")
        if objective.alpha > 0:
            bounds.append(f"Jacobians ({self.jacobian_clipping}) clipped to {self.jacobian_clip:g}")
            bounds.append(f"outputs in a ball of radius {objective.ball.radius:g}")
        return {
            "neighbouring": f"replace one record by another of the same {shared}; {sizes} are "
            "public",
            "public": (*public, "values of the sensitive features", sizes),
            "sensitivity_source": "l2; " + ", ".join(bounds),
            "caveats": (_GROUPS_CAVEAT, *CAVEATS),
        }
