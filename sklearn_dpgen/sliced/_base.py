"""The base of the estimators trained on private sliced Wasserstein gradients: one trainer."""

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
from sklearn_dpgen.sliced._strata import Members
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
    "GRADIENT",
    "TRAINING",
    "ClippedGradient",
    "Descent",
    "Records",
    "SlicedEstimator",
    "count_parameters",
    "linear_stack",
    "step_precision",
]

# Points that go through a network at a time.
CHUNK = 512

# Sums over a batch are then rounded far below what the noise is calibrated for.
DTYPE = torch.float64

CAVEATS = ("earlier_fits", "floating_point")

# What all estimators of this module have as their own values.
TRAINING = {
    "activation": "relu",
    "solver": "adam",
    "schedule": "cosine",
    "averaging": 0.2,
    "callback": None,
    "device": "auto",
    "verbose": 0,
}
GRADIENT = {"n_projections": 50, "batch_fraction": 0.2}


@saved
class ClippedGradient(Settings):
    """Bounds on what a record adds to a gradient, and what a step draws.

    An estimator takes it as ``gradient``. A setting that is None is the estimator's own default,
    which its documentation states; one that the estimator does not have is refused.

    Parameters
    ----------
    task_clip : float or None, default=None
        C, the l2 norm to which the gradient of each record's loss is clipped.
    output_bound : float or None, default=None
        M, the radius of the ball in which the outputs that are compared lie.
    jacobian_clip : float or None, default=None
        L, the spectral norm to which the Jacobian of each record's outputs in the parameters is
        clipped.
    jacobian_clipping : {"spectral", "componentwise"} or None, default=None
        Exact clipping, or that of Remark A.2 of [1]_: each output's gradient to L / sqrt(d).
    n_projections : int or None, default=None
        Random directions a step, where more than one output is compared: in orthonormal blocks,
        rounded up to a multiple of the number of outputs.
    batch_fraction : float or None, default=None
        Share of the records of each group, or of a private sample, in the batch of a step, drawn
        without replacement.
    released_clip : float or None, default=None
        l2 norm to which the gradient of a step is clipped once more when its noise is in it, as in
        appendix C of [1]_: it costs nothing.

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
    ) -> None:
        self.task_clip = task_clip
        self.output_bound = output_bound
        self.jacobian_clip = jacobian_clip
        self.jacobian_clipping = jacobian_clipping
        self.n_projections = n_projections
        self.batch_fraction = batch_fraction
        self.released_clip = released_clip


def linear_stack(widths, activation):
    """Return linear layers with activations between them, as one Sequential."""
    layers = []
    for n_in, n_out in zip(widths[:-1], widths[1:], strict=True):
        layers += [nn.Linear(n_in, n_out), ACTIVATIONS[activation]()]
    return nn.Sequential(*layers[:-1])


def count_parameters(widths):
    """Return the number of parameters of the linear layers between widths."""
    return sum((n_in + 1) * n_out for n_in, n_out in pairwise(widths))


def step_precision(norms, mechanism, n_parameters):
    """Return what noise leaves of a step, in words: whether it points anywhere.

    Parameters
    ----------
    norms : dict of str to float
        By part of the objective, the largest norm that its mean gradient can have.
    mechanism : StratifiedGaussianMechanism
    n_parameters : int
        Of what is released of a step.

    Returns
    -------
    dict of str to str
    """
    noise = mechanism.noise_scale
    if noise == 0:
        return {"gradients": "exact, without noise"}
    every = noise * math.sqrt(n_parameters)
    root = math.sqrt(mechanism.n_releases)
    parts = {
        f"gradient of {part}": f"of norm {number_words(norm)} at most: signal over noise of a step "
        f"up to {number_words(norm / noise)} along a direction, and {number_words(norm / every)} "
        "over all parameters"
        for part, norm in norms.items()
        if norm > 0
    }
    return parts | {
        "noise of a step": f"{number_words(noise)} along a direction, {number_words(every)} over "
        f"all {n_parameters} parameters",
        "noise of the mean step": f"{number_words(noise / root)} along a direction, "
        f"{number_words(every / root)} over all parameters",
    }


@dataclass(frozen=True)
class Records:
    """Private records of a fit, validated and encoded.

    Parameters
    ----------
    members : Members
        The records, or persons, of each stratum.
    arrays : tuple of ndarray
        Features, targets and the like, which the gradient reads.
    bound : tuple
        Public objects that the records were encoded with, such as their domain. Seeded noise
        depends on them, as on the arrays.
    """

    members: Members
    arrays: tuple[np.ndarray, ...]
    bound: tuple = ()


@dataclass(frozen=True)
class Descent:
    """Details of the plan of a fit: what is descended, and what each step releases.

    Parameters
    ----------
    objective : object
        The clipped objective, whose gradient has the sensitivities of the mechanism.
    mechanism : StratifiedGaussianMechanism or None
        None where no private record is read.
    stacks : tuple of sequence of int
        Widths of the linear layers of each part of the network.
    private : tuple of int
        Positions of the strata from which the mechanism draws secret batches.
    batch_sizes : tuple of int
        Records a step of each stratum, private or not.
    """

    objective: Any
    mechanism: StratifiedGaussianMechanism | None
    stacks: tuple
    private: tuple[int, ...]
    batch_sizes: tuple[int, ...]


class SlicedEstimator(TrainedEstimator):
    """Base of the estimators of paper 2: a network that descends noisy clipped gradients.

    The training is the release: each step releases the noisy gradient of a secret batch, and the
    network is updated from it alone. A subclass supplies ``_read`` and ``_plan``, whose details
    are a :class:`Descent`; ``_network``, which builds the network; and ``_gradients``, which
    computes the clipped gradient of a batch.
    """

    _saved_state: dict = {"noise_multiplier_": float | None, "n_iter_": int, "module_": nn.Module}
    _not_saved: dict = {
        "mechanism_": "plan() gives the price of a fit, and privacy_ what was paid."
    }
    _parameter_constraints: dict = TrainedEstimator._parameter_constraints | {
        "training": [Training, None],
        "gradient": [ClippedGradient, None],
    }
    _settings = {"training": Training, "gradient": ClippedGradient}

    @property
    def _gradient(self):
        return self._completed("gradient")

    def _price(self, strata, sensitivities, n_samples):
        """Price every step from public quantities: sizes, rates, clips, number of steps."""
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
            n_releases=self._training.max_iter,
        )

    def _report(self, mechanism, n_values, **fields):
        """Return the report: the fields of the mechanism, and those of this estimator.

        ``n_values`` is the number of entries of a gradient that is released.
        """
        rounding = mechanism.n_releases * n_values * ROUNDING if mechanism.noise_scale else 0.0
        report = PrivacyReport(
            name=type(self).__name__,
            events=(Event("gradients", mechanism.n_releases),),
            epsilon=mechanism.epsilon,
            delta=mechanism.delta if math.isfinite(mechanism.epsilon) else 0.0,
            noise_source=self._noise_description(),
            split={"noisy gradients": 1.0} if mechanism.noise_scale else {},
            rounding=rounding,
            **mechanism.report_fields(),
            **fields,
        )
        return self._protected(report)

    def _network(self, descent):
        """Return the network with its initial weights."""
        raise NotImplementedError(f"{type(self).__name__} has no method _network.")

    def _gradients(self, descent, module, tensors, seed):
        """Return the clipped gradient, and what a step makes of a released one.

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
            From the rows of a batch, one array for each private stratum, to a list of gradients.
        finish : callable or None
            From the released gradients to those of the step, without a private record.
        """
        raise NotImplementedError(f"{type(self).__name__} has no method _gradients.")

    def _release(self, plan, records, seed):
        """Train the network on released gradients; return it and the number of released steps."""
        descent = plan.details
        # Initial weights, directions and the like are public: their draws are not the noise's.
        noise_seed, init_seed, public_seed = split_random_state(seed, 3)
        device = resolve_device(self._training.device)
        members = records.members.only(descent.private)
        source = self._noise_source(noise_seed, *records.arrays, *records.bound)
        noise = records.members.bind(source)
        with seeded_initialization(init_seed):
            module = self._network(descent)
        module.to(device, DTYPE)
        tensors = [torch.tensor(np.ascontiguousarray(a), device=device) for a in records.arrays]
        gradient, finish = self._gradients(descent, module, tensors, public_seed)
        if descent.mechanism is None:
            return module, 0

        def batch_gradient(drawn):
            return gradient(members.rows(drawn, noise))

        return module, self._descend(module, batch_gradient, descent.mechanism, noise, finish)

    def _learn(self, plan, released, seed):
        """Keep the trained network, and state the mechanism that released its gradients."""
        mechanism = plan.details.mechanism
        self.mechanism_ = mechanism
        self.noise_multiplier_ = 0.0 if mechanism is None else mechanism.noise_multiplier
        self.module_, self.n_iter_ = released

    def _descend(self, module, gradient_fn, mechanism, noise, finish=None):
        """Train ``module`` on what the mechanism releases of its gradients, and on nothing else.

        Parameters
        ----------
        module : torch.nn.Module
        gradient_fn : callable
            From the rows within each stratum to a list of gradients, one a parameter.
        mechanism : StratifiedGaussianMechanism
        noise : NoiseSource
        finish : callable, optional
            From the released gradients to those of the step, one a parameter of ``module``. It
            reads no private record.

        Returns
        -------
        int
            Number of steps.
        """
        run = mechanism.run(noise)

        def released_gradient(step):
            gradients = gradient_fn(run.draw())
            flat = torch.cat([gradient.flatten() for gradient in gradients])
            flat = as_tensor(run.release(flat.cpu().numpy()), device=flat.device, dtype=DTYPE)
            parts = flat.split([gradient.numel() for gradient in gradients])
            released = [p.view_as(g) for p, g in zip(parts, gradients, strict=True)]
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

    def _widths(self):
        return check_widths(self._training.hidden_layer_sizes)

    def _n_directions(self, n_features):
        """Return the directions a step: whole orthonormal blocks, whose spread is smallest."""
        n_projections = self._gradient.n_projections
        return 1 if n_features == 1 else n_features * math.ceil(n_projections / n_features)

    def _directions(self, seed, n_features, device):
        """Return a function that draws the directions of a step; they are public."""
        n_projections = self._n_directions(n_features)
        generator = torch_generator(seed, device)
        if n_features == 1:
            only = torch.ones(1, 1, dtype=DTYPE, device=device)
            return lambda: only
        return lambda: random_directions(
            n_projections, n_features, generator=generator, dtype=DTYPE, device=device
        )

    @torch.no_grad()
    def _forward(self, module, X):
        """Return what a fitted network makes of an array, a chunk at a time."""
        device = next(module.parameters()).device
        chunks = as_tensor(X, device=device, dtype=DTYPE).split(CHUNK)
        return as_array(torch.cat([module(chunk) for chunk in chunks]))
