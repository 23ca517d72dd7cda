"""Base class of the estimators trained on private sliced Wasserstein gradients."""

import math
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import numpy as np
import torch
from torch import nn

from sklearn_dpgen.accounting import Event, PrivacyReport
from sklearn_dpgen.accounting._wording import number_words
from sklearn_dpgen.ledger._base import TrainedEstimator
from sklearn_dpgen.mechanisms import StratifiedGaussianMechanism, Stratum
from sklearn_dpgen.nn import Training
from sklearn_dpgen.nn._generators import ACTIVATIONS
from sklearn_dpgen.nn._training import descend
from sklearn_dpgen.ot import random_directions
from sklearn_dpgen.persistence._declarations import saved
from sklearn_dpgen.sliced._strata import GROUP_WEIGHTS, StratifiedRecords
from sklearn_dpgen.utils._random import ROUNDING, split_random_state, torch_generator
from sklearn_dpgen.utils._torch import (
    as_array,
    as_tensor,
    resolve_device,
    seeded_initialization,
)
from sklearn_dpgen.utils._validation import (
    Integral,
    Interval,
    Real,
    Settings,
    StrOptions,
    check_widths,
)

__all__ = [
    "CAVEATS",
    "CHUNK",
    "DTYPE",
    "ClippedGradient",
    "Descent",
    "Records",
    "SlicedEstimator",
    "linear_layers",
    "setting_defaults",
]

# Number of points in one pass through a network.
CHUNK = 512

# In double precision the rounding errors of sums over a batch are far below the noise.
DTYPE = torch.float64

CAVEATS = ("earlier_fits", "floating_point")

# Defaults that all estimators of this module share.
_TRAINING = {
    "activation": "relu",
    "solver": "adam",
    "schedule": "cosine",
    "averaging": 0.2,
    "callback": None,
    "device": "auto",
    "verbose": 0,
}
_GRADIENT = {"n_projections": 50, "batch_fraction": 0.2}


@saved
class ClippedGradient(Settings):
    """Clips, batches, projections and group weights of private gradients.

    Pass it as the parameter ``gradient`` of an estimator. A setting that is None takes the default
    of that estimator, and a setting that the estimator does not have raises an error. How to choose
    the clips: :ref:`training_settings`.

    Parameters
    ----------
    task_clip : float or None, default=None
        C, the l2 norm to which the gradient of each record's loss is clipped.
    output_bound : float or None, default=None
        M, the radius of the ball to which the compared outputs are projected.
    jacobian_clip : float or None, default=None
        L, the spectral norm to which the Jacobian of each record's outputs with respect to the
        parameters is clipped.
    jacobian_clipping : {"spectral", "componentwise"} or None, default=None
        "spectral" clips the spectral norm exactly. "componentwise" clips the gradient of each of d
        outputs to L / sqrt(d) (Remark A.2 of [1]_).
    n_projections : int or None, default=None
        Number of random directions per step, if more than one output is compared. They are drawn
        in orthonormal blocks, so it is rounded up to a multiple of the number of outputs.
    batch_fraction : float or None, default=None
        Share of the records of each group, or of a private sample, that a step draws without
        replacement.
    released_clip : float or None, default=None
        l2 norm to which the noisy gradient of a step is clipped after its release (appendix C of
        [1]_). It costs no privacy.
    group_weights : {"size", "equal"} or None, default=None
        Weights of the groups in the penalty of fair estimators (:ref:`small_groups`). "size" is the
        product of the shares of a pair of groups, and the share of a group whose codes are compared
        with a public distribution, so small groups hardly increase the noise. "equal" is the mean
        over pairs of [1]_, or over groups, where the smallest group determines the noise.

    References
    ----------
    .. [1] D. Rodríguez-Vítores, C. Lalanne, J.-M. Loubes, "Learning with differentially private
       (sliced) Wasserstein gradients", 2025.

    Examples
    --------
    >>> from sklearn_dpgen.sliced import ClippedGradient, DPSlicedWassersteinFairClassifier
    >>> classifier = DPSlicedWassersteinFairClassifier(
    ...     gradient=ClippedGradient(jacobian_clip=0.5)
    ... )
    >>> classifier.get_params()["gradient__jacobian_clip"]
    0.5
    """

    _parameter_constraints: dict = {
        "task_clip": [Interval(Real, 0, None, closed="neither"), None],
        "output_bound": [Interval(Real, 0, None, closed="neither"), None],
        "jacobian_clip": [Interval(Real, 0, None, closed="neither"), None],
        "jacobian_clipping": [StrOptions({"spectral", "componentwise"}), None],
        "n_projections": [Interval(Integral, 1, None, closed="left"), None],
        "batch_fraction": [Interval(Real, 0, 1, closed="right"), None],
        "released_clip": [Interval(Real, 0, None, closed="neither"), None],
        "group_weights": [StrOptions(set(GROUP_WEIGHTS)), None],
    }

    def __init__(
        self,
        *,
        task_clip: float | None = None,
        output_bound: float | None = None,
        jacobian_clip: float | None = None,
        jacobian_clipping: str | None = None,
        n_projections: int | None = None,
        batch_fraction: float | None = None,
        released_clip: float | None = None,
        group_weights: str | None = None,
    ) -> None:
        self.task_clip = task_clip
        self.output_bound = output_bound
        self.jacobian_clip = jacobian_clip
        self.jacobian_clipping = jacobian_clipping
        self.n_projections = n_projections
        self.batch_fraction = batch_fraction
        self.released_clip = released_clip
        self.group_weights = group_weights


def setting_defaults(training, gradient):
    """Return the defaults of an estimator's settings: the shared ones, updated by its own."""
    return {"training": {**_TRAINING, **training}, "gradient": {**_GRADIENT, **gradient}}


def linear_layers(widths, activation):
    """Return linear layers with activations between them, as one Sequential."""
    layers = []
    for n_in, n_out in zip(widths[:-1], widths[1:], strict=True):
        layers += [nn.Linear(n_in, n_out), ACTIVATIONS[activation]()]
    return nn.Sequential(*layers[:-1])


def _gradient_precision(norms, mechanism, n_parameters, n_steps):
    """Return the noise of a step, and the largest signal-to-noise ratios, as texts.

    Parameters
    ----------
    norms : dict of str to float
        Largest possible norm of the mean gradient of each term of the objective.
    mechanism : StratifiedGaussianMechanism
    n_parameters : int
        Number of entries of a released gradient.
    n_steps : int
        Number of released gradients.

    Returns
    -------
    dict of str to str
    """
    noise = mechanism.noise_scale
    if noise == 0:
        return {"gradients": "exact, without noise"}
    noise_norm = noise * math.sqrt(n_parameters)
    root = math.sqrt(n_steps)
    signals = {
        f"gradient of {term}": f"norm at most {number_words(norm)}; signal-to-noise ratio of a "
        f"step at most {number_words(norm / noise)} along a direction, and "
        f"{number_words(norm / noise_norm)} over all parameters"
        for term, norm in norms.items()
        if norm > 0
    }
    return signals | {
        "noise of a step": f"{number_words(noise)} along a direction, {number_words(noise_norm)} "
        f"over all {n_parameters} parameters",
        "noise of the mean step": f"{number_words(noise / root)} along a direction, "
        f"{number_words(noise_norm / root)} over all parameters",
    }


@dataclass(frozen=True)
class Records:
    """Private records of a fit, validated and encoded.

    Parameters
    ----------
    stratified : StratifiedRecords
        The assignment of the records, or persons, to strata.
    arrays : tuple of ndarray
        Features, targets and other arrays that the gradient reads.
    bound : tuple
        Public objects that the records were encoded with, such as their domain. Seeded noise
        depends on them and on the arrays.
    """

    stratified: StratifiedRecords
    arrays: tuple[np.ndarray, ...]
    bound: tuple = ()


@dataclass(frozen=True)
class Descent:
    """Details of the plan of a fit: the objective, the mechanism and the network.

    Parameters
    ----------
    objective : object
        The clipped objective, whose gradient has the sensitivities of the mechanism; of the
        generator the domain.
    mechanism : StratifiedGaussianMechanism or None
        None if no private record is read.
    layer_widths : tuple of sequence of int
        Widths of the linear layers of each module of the network.
    private : tuple of int
        Positions of the strata from which the mechanism draws secret batches.
    batch_sizes : tuple of int
        Batch size of each stratum, private or not.
    targeted : Targeted or None
        A target of parity, and the means that are released for it.
    """

    objective: Any
    mechanism: StratifiedGaussianMechanism | None
    layer_widths: tuple
    private: tuple[int, ...]
    batch_sizes: tuple[int, ...]
    targeted: Any = None


class SlicedEstimator(TrainedEstimator):
    """Base class of networks trained by noisy clipped gradient descent on secret batches.

    Each step releases the noisy gradient of a secret batch, and updates the network from it alone.
    A subclass supplies ``_read``; ``_plan``, whose details are a :class:`Descent`; ``_network``,
    which builds the network; and ``_gradients``, which returns the clipped gradient of a batch.
    """

    _saved_state: dict = {"noise_multiplier_": float | None, "n_iter_": int, "module_": nn.Module}
    _not_saved: dict = {
        "mechanism_": "plan() states the cost of a fit, and privacy_ the cost of this one."
    }
    _parameter_constraints: dict = TrainedEstimator._parameter_constraints | {
        "training": [Training, None],
        "gradient": [ClippedGradient, None],
    }
    _settings = {"training": Training, "gradient": ClippedGradient}

    @property
    def _gradient(self):
        return self._completed("gradient")

    def _price(self, strata, sensitivities, n_samples, n_measurements=0):
        """Return the mechanism of all steps, calibrated from public quantities alone.

        There are ``n_measurements`` releases besides the steps.
        """
        batch_sizes = strata.batch_sizes(self._gradient.batch_fraction)
        return StratifiedGaussianMechanism(
            [
                Stratum(size, batch_size, sensitivity)
                for size, batch_size, sensitivity in zip(
                    strata.sizes, batch_sizes, sensitivities, strict=True
                )
            ],
            epsilon=self.epsilon,
            delta=self._delta(n_samples),
            n_releases=self._training.max_iter + n_measurements,
        )

    def _report(self, mechanism, layer_widths, norms, *, n_measured=0, measurements=0, **fields):
        """Return the privacy report of a fit.

        Parameters
        ----------
        mechanism : StratifiedGaussianMechanism
        layer_widths : sequence of sequence of int
            Widths of the linear layers whose gradients are released.
        norms : dict of str to float
            Largest possible norm of the mean gradient of each term of the objective.
        n_measured : int
            Number of released values besides those of gradients, at most.
        measurements : int
            Number of releases besides those of gradients.
        **fields
            Fields of the report that depend on the estimator.
        """
        n_values = sum(
            (n_in + 1) * n_out for widths in layer_widths for n_in, n_out in pairwise(widths)
        )
        n_steps = mechanism.n_releases - measurements
        events = (Event("gradients", n_steps),)
        if measurements:
            events += (Event("group_means", measurements),)
        n_rounded = n_steps * n_values + n_measured
        rounding = n_rounded * ROUNDING if mechanism.noise_scale else 0.0
        report = PrivacyReport(
            name=type(self).__name__,
            events=events,
            epsilon=mechanism.epsilon,
            delta=mechanism.delta if math.isfinite(mechanism.epsilon) else 0.0,
            noise_source=self._noise_description(),
            split={"noisy gradients": 1.0} if mechanism.noise_scale else {},
            rounding=rounding,
            precision=_gradient_precision(norms, mechanism, n_values, n_steps),
            **mechanism.report_fields(),
            **fields,
        )
        return self._protected(report)

    def _network(self, descent):
        """Return the network with its initial weights."""
        raise NotImplementedError(f"{type(self).__name__} has no method _network.")

    def _gradients(self, descent, module, tensors, seed):
        """Return the function of the clipped gradient, and the post-processing of a release.

        Parameters
        ----------
        descent : Descent
        module : torch.nn.Module
        tensors : list of Tensor
            The arrays of the records, on the device.
        seed : int or None
            Seed of the public draws: directions, references, latents.

        Returns
        -------
        gradient : callable
            Maps the row indices of a batch, one array per private stratum, to a list of gradients.
        finish : callable or None
            Maps the released gradients to those of the step. It reads no private record.
        """
        raise NotImplementedError(f"{type(self).__name__} has no method _gradients.")

    def _release(self, plan, records, seed):
        """Train the network; return it, the number of steps, and what else was released."""
        descent = plan.details
        # Initial weights and directions are public, so their generators are not those of the noise.
        noise_seed, init_seed, public_seed = split_random_state(seed, 3)
        device = resolve_device(self._training.device)
        private = records.stratified.subset(descent.private)
        source = self._noise_source(noise_seed, *records.arrays, *records.bound)
        noise = records.stratified.bind(source)
        with seeded_initialization(init_seed):
            module = self._network(descent)
        module.to(device, DTYPE)
        tensors = [torch.tensor(np.ascontiguousarray(a), device=device) for a in records.arrays]
        if descent.mechanism is None:
            # Without a private record there may be public ones to train on first.
            self._gradients(descent, module, tensors, public_seed)
            return module, 0

        def rows(positions):
            return private.rows(positions, noise)

        run = descent.mechanism.run(noise)
        return module, *self._train(descent, module, tensors, run, rows, public_seed)

    def _train(self, descent, module, tensors, run, rows, seed):
        """Train a network, and return the number of steps, and what else was released.

        Parameters
        ----------
        descent : Descent
        module : torch.nn.Module
        tensors : list of Tensor
        run : StratifiedGaussianRun
        rows : callable
            Maps drawn positions within each stratum to the rows of a batch.
        seed : int or None
            Seed of public draws.

        Returns
        -------
        tuple
        """
        gradient, finish = self._gradients(descent, module, tensors, seed)
        return (self._descend(module, lambda drawn: gradient(rows(drawn)), run, finish),)

    def _learn(self, plan, released, seed):
        """Store the trained network and the mechanism that released its gradients."""
        mechanism = plan.details.mechanism
        self.mechanism_ = mechanism
        self.noise_multiplier_ = 0.0 if mechanism is None else mechanism.noise_multiplier
        self.module_, self.n_iter_ = released[:2]

    def _descend(self, module, gradient_fn, run, finish=None):
        """Train ``module`` on noisy released gradients, and return the number of steps.

        Parameters
        ----------
        module : torch.nn.Module
        gradient_fn : callable
            Maps positions within each stratum to a list of gradients, one per parameter.
        run : StratifiedGaussianRun
        finish : callable, optional
            Maps the released gradients to those of the step, one per parameter of ``module``. It
            reads no private record.

        Returns
        -------
        int
        """

        def released_gradient(step):
            gradients = gradient_fn(run.draw())
            flat = torch.cat([gradient.flatten() for gradient in gradients])
            flat = as_tensor(run.release(flat.cpu().numpy()), device=flat.device, dtype=DTYPE)
            entries = flat.split([gradient.numel() for gradient in gradients])
            released = [e.view_as(g) for e, g in zip(entries, gradients, strict=True)]
            return None, released if finish is None else finish(released)

        settings = self._training
        callback = settings.callback
        watch = None if callback is None else (lambda step: callback(step, module))
        return descend(
            module,
            released_gradient,
            max_iter=settings.max_iter,
            learning_rate=settings.learning_rate,
            averaging=settings.averaging,
            optimizer=settings.solver,
            schedule=settings.schedule,
            verbose=settings.verbose,
            name=type(self).__name__,
            callback=watch,
        ).n_iter

    def _layer_widths(self, n_inputs, n_outputs):
        """Return the layer widths of a network with the hidden layers of the settings."""
        return [n_inputs, *check_widths(self._training.hidden_layer_sizes), n_outputs]

    def _n_directions(self, n_features):
        """Return the number of directions per step, in whole orthonormal blocks."""
        n_projections = self._gradient.n_projections
        return 1 if n_features == 1 else n_features * math.ceil(n_projections / n_features)

    def _directions(self, seed, n_features, device):
        """Return a function that draws the public directions of a step."""
        n_projections = self._n_directions(n_features)
        generator = torch_generator(seed, device)
        if n_features == 1:
            line = torch.ones(1, 1, dtype=DTYPE, device=device)
            return lambda: line
        return lambda: random_directions(
            n_projections, n_features, generator=generator, dtype=DTYPE, device=device
        )

    @torch.no_grad()
    def _forward(self, module, X):
        """Return the outputs of a fitted network for an array, computed in chunks."""
        device = next(module.parameters()).device
        chunks = as_tensor(X, device=device, dtype=DTYPE).split(CHUNK)
        return as_array(torch.cat([module(chunk) for chunk in chunks]))
