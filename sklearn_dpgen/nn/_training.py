"""Optimizers, and one training loop for all estimators that descend a loss.

``torch.optim`` imports a compiler at its first step, which takes longer than a small fit.
"""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from tqdm import tqdm

from sklearn_dpgen.exceptions import TrainingDivergedError
from sklearn_dpgen.nn._generators import ACTIVATIONS
from sklearn_dpgen.persistence._declarations import saved
from sklearn_dpgen.utils._validation import (
    DEVICE,
    Integral,
    Interval,
    Real,
    Settings,
    StrOptions,
)

__all__ = [
    "Adam",
    "GradientDescent",
    "OPTIMIZERS",
    "SCHEDULES",
    "Training",
    "TrainingResult",
    "descend",
    "fit_module",
]


class GradientDescent:
    """Plain gradient descent: a step is the gradient times the learning rate.

    Parameters
    ----------
    parameters : sequence of Parameter
        Changed in place.
    """

    def __init__(self, parameters: list[torch.nn.Parameter]) -> None:
        self._parameters = parameters

    @torch.no_grad()
    def step(self, gradients: Sequence[torch.Tensor | None], rate: float) -> None:
        """Take a step.

        Parameters
        ----------
        gradients : sequence of Tensor or None
            One for each parameter; None leaves a parameter unchanged.
        rate : float
            Learning rate of this step.
        """
        for position, (parameter, gradient) in enumerate(
            zip(self._parameters, gradients, strict=True)
        ):
            if gradient is not None:
                self._update(position, parameter, gradient, rate)

    def _update(self, position, parameter, gradient, rate):
        parameter.add_(gradient, alpha=-rate)


class Adam(GradientDescent):
    """Adam with decay rates of 0.9 and 0.999, and 1e-8 added to the denominator.

    Parameters
    ----------
    parameters : sequence of Parameter
        Changed in place.

    References
    ----------
    D. P. Kingma, J. Ba, "Adam: a method for stochastic optimization", ICLR 2015, Algorithm 1.
    """

    _BETAS = 0.9, 0.999
    _EPS = 1e-8

    def __init__(self, parameters: list[torch.nn.Parameter]) -> None:
        super().__init__(parameters)
        # The number of steps and both moments of each parameter.
        self._states = [(0, torch.zeros_like(p), torch.zeros_like(p)) for p in parameters]

    def _update(self, position, parameter, gradient, rate):
        n_steps, mean, square = self._states[position]
        n_steps += 1
        first, second = self._BETAS
        mean.lerp_(gradient, 1 - first)
        square.mul_(second).addcmul_(gradient, gradient, value=1 - second)
        root = (square.sqrt() / (1 - second**n_steps) ** 0.5).add_(self._EPS)
        parameter.addcdiv_(mean, root, value=-rate / (1 - first**n_steps))
        self._states[position] = n_steps, mean, square


OPTIMIZERS = {"adam": Adam, "sgd": GradientDescent}


SCHEDULES = ("cosine", "constant")


@saved
class Training(Settings):
    """Network and optimizer of an estimator that is trained by steps.

    An estimator takes it as ``training``. A setting that is None is the estimator's own default,
    which its documentation states; one that the estimator does not have is refused.

    Parameters
    ----------
    hidden_layer_sizes : sequence of int or None, default=None
        Widths of the hidden layers; () is a linear map.
    activation : {"relu", "silu", "tanh"} or None, default=None
        Of the hidden layers.
    max_iter : int or None, default=None
        Number of steps.
    solver : {"adam", "sgd"} or None, default=None
        How a gradient becomes a step.
    learning_rate : float or None, default=None
        Peak learning rate.
    schedule : {"cosine", "constant"} or None, default=None
        Of the learning rate: warm-up over 50 steps and cosine decay, or none.
    averaging : float or None, default=None
        Share of the steps, from the end, over which the parameters are averaged, in [0, 1). It
        costs nothing in privacy, and removes some of the noise.
    callback : callable or None, default=None
        Called as ``callback(step, module)`` after each step, to watch the iterates on *public*
        data. Where the gradients are private the iterates are released; a loss of the records is
        not.
    device : str or torch.device, default="auto"
        "auto" trains on a GPU where there is one.
    verbose : int, default=0
        1 shows a progress bar.

    Examples
    --------
    >>> from sklearn_dpgen.nn import Training
    >>> from sklearn_dpgen.sliced import DPSlicedWassersteinFairClassifier
    >>> classifier = DPSlicedWassersteinFairClassifier(training=Training(max_iter=300))
    >>> classifier.set_params(training__learning_rate=0.1).training
    Training(learning_rate=0.1, max_iter=300)
    """

    _parameter_constraints: dict = {
        "hidden_layer_sizes": ["array-like", None],
        "activation": [StrOptions(set(ACTIVATIONS)), None],
        "max_iter": [Interval(Integral, 1, None, closed="left"), None],
        "solver": [StrOptions(set(OPTIMIZERS)), None],
        "learning_rate": [Interval(Real, 0, None, closed="neither"), None],
        "schedule": [StrOptions(set(SCHEDULES)), None],
        "averaging": [Interval(Real, 0, 1, closed="left"), None],
        "callback": [callable, None],
        "device": DEVICE,
        "verbose": ["verbose"],
    }

    def __init__(
        self,
        *,
        hidden_layer_sizes: Sequence[int] | None = None,
        activation: str | None = None,
        max_iter: int | None = None,
        solver: str | None = None,
        learning_rate: float | None = None,
        schedule: str | None = None,
        averaging: float | None = None,
        callback: Callable[[int, torch.nn.Module], object] | None = None,
        device: str | torch.device = "auto",
        verbose: int = 0,
    ) -> None:
        self.hidden_layer_sizes = hidden_layer_sizes
        self.activation = activation
        self.max_iter = max_iter
        self.solver = solver
        self.learning_rate = learning_rate
        self.schedule = schedule
        self.averaging = averaging
        self.callback = callback
        self.device = device
        self.verbose = verbose


@dataclass(frozen=True)
class TrainingResult:
    """Losses of a training run, one per step, and the number of steps."""

    loss_curve: list[float]
    n_iter: int


def fit_module(
    module: torch.nn.Module, loss_fn: Callable[[int], torch.Tensor], **options: Any
) -> TrainingResult:
    """Minimize a stochastic loss by its own gradient.

    Parameters
    ----------
    module : torch.nn.Module
        Its parameters are trained in place; at the end it is in evaluation mode.
    loss_fn : callable
        ``loss_fn(step)`` returns a scalar tensor on a fresh batch.
    **options
        Options of ``descend``.

    Returns
    -------
    TrainingResult

    Raises
    ------
    TrainingDivergedError
        As ``descend``.
    """
    parameters = _trainable(module)

    def gradient_fn(step):
        loss = loss_fn(step)
        return loss.item(), torch.autograd.grad(loss, parameters, allow_unused=True)

    return descend(module, gradient_fn, **options)


def descend(
    module: torch.nn.Module,
    gradient_fn: Callable[[int], tuple[float | None, Sequence[torch.Tensor | None]]],
    *,
    max_iter: int,
    learning_rate: float,
    averaging: float = 0.0,
    warmup: int = 50,
    optimizer: str = "adam",
    schedule: str = "cosine",
    verbose: int = 0,
    name: str = "fit",
    callback: Callable[[int], object] | None = None,
    stop: Callable[[int], bool] | None = None,
) -> TrainingResult:
    """Follow given gradients, by default with warm-up and cosine decay of the learning rate.

    Parameters
    ----------
    module : torch.nn.Module
        Its parameters are trained in place; at the end it is in evaluation mode.
    gradient_fn : callable
        ``gradient_fn(step)`` returns ``(loss, gradients)``. The loss is a float, or None if its
        release is not accounted for, and it is then neither recorded nor shown. There is one
        gradient for each parameter that requires grad, in the order of ``module.parameters()``,
        or None for a parameter to leave unchanged.
    max_iter : int
        Number of steps.
    learning_rate : float
        Peak learning rate.
    averaging : float, default=0.0
        Share of the steps, at the end, over which the parameters are averaged.
    warmup : int, default=50
        Steps over which the rate rises linearly, with the cosine schedule.
    optimizer : {"adam", "sgd"}, default="adam"
        Optimizer.
    schedule : {"cosine", "constant"}, default="cosine"
        Schedule of the learning rate: warm-up and cosine decay, or none.
    verbose : int, default=0
        1 shows a progress bar.
    name : str
        Label of the progress bar.
    callback : callable, default=None
        ``callback(step)`` is called after each update, to observe the iterates.
    stop : callable, default=None
        ``stop(step)`` is called after each update; training ends if it returns True.

    Returns
    -------
    TrainingResult

    Raises
    ------
    TrainingDivergedError
        A loss, a gradient, or a parameter after a step is not finite.
    """
    parameters = _trainable(module)
    optimizer = OPTIMIZERS[optimizer](parameters)
    first_averaged = max_iter - int(averaging * max_iter)
    average, n_averaged = None, 0
    losses = []
    module.train()
    with tqdm(total=max_iter, desc=name, disable=not verbose, mininterval=0.5) as bar:
        for step in range(max_iter):
            rate = _cosine_rate(step, max_iter, warmup) if schedule == "cosine" else 1.0
            loss, gradients = gradient_fn(step)
            if loss is not None:
                _check_finite("loss", loss, step, max_iter)
                losses.append(loss)
            given = [gradient for gradient in gradients if gradient is not None]
            _check_finite("gradient", _total(given), step, max_iter)
            optimizer.step(gradients, learning_rate * rate)
            _check_finite("parameters", _total(parameters), step, max_iter)
            if step >= first_averaged:
                n_averaged += 1
                average = _update_average(average, parameters, n_averaged)
            if callback is not None:
                callback(step)
            bar.update()
            if verbose and loss is not None and step % 50 == 0:
                bar.set_postfix(loss=f"{loss:.4g}")
            if stop is not None and stop(step):
                break
    if average is not None:
        with torch.no_grad():
            for parameter, mean in zip(parameters, average, strict=True):
                parameter.copy_(mean)
    module.eval()
    return TrainingResult(losses, step + 1)


def _trainable(module):
    return [p for p in module.parameters() if p.requires_grad]


def _total(tensors):
    return sum(tensor.detach().sum() for tensor in tensors)


def _check_finite(what, value, step, max_iter):
    if not math.isfinite(value):
        raise TrainingDivergedError(
            f"The {what} became infinite or NaN at step {step + 1} of {max_iter}; try a smaller "
            "learning_rate."
        )


def _cosine_rate(step, max_iter, warmup):
    warm = min(1.0, (step + 1) / max(1, min(warmup, max_iter)))
    return warm * 0.5 * (1 + math.cos(math.pi * step / max_iter))


@torch.no_grad()
def _update_average(average, parameters, count):
    if average is None:
        return [p.detach().clone() for p in parameters]
    for mean, parameter in zip(average, parameters, strict=True):
        mean.lerp_(parameter, 1 / count)
    return average
