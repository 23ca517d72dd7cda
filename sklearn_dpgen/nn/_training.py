"""One training loop for every estimator that descends a loss."""

import math
from dataclasses import dataclass

import torch
from tqdm import tqdm

from sklearn_dpgen.exceptions import TrainingDivergedError

__all__ = ["TrainingResult", "fit_module"]


@dataclass(frozen=True)
class TrainingResult:
    """What a training run leaves: its losses, one a step, and the number of steps."""

    loss_curve: list[float]
    n_iter: int


def fit_module(
    module, loss_fn, *, max_iter, learning_rate, averaging=0.0, warmup=50, verbose=0, name="fit"
):
    """Minimize a stochastic loss by Adam with warm-up and cosine decay.

    Parameters
    ----------
    module : torch.nn.Module
        Its parameters are trained in place; at the end it is in evaluation mode.
    loss_fn : callable
        ``loss_fn(step)`` returns a scalar tensor on a fresh batch.
    max_iter : int
        Number of steps.
    learning_rate : float
        Peak learning rate.
    averaging : float, default=0.0
        Share of the steps, from the end, over which the parameters are averaged.
    warmup : int, default=50
        Steps over which the rate rises linearly.
    verbose : int, default=0
        1 shows a progress bar.
    name : str
        Label of the progress bar.

    Returns
    -------
    TrainingResult

    Raises
    ------
    TrainingDivergedError
        As soon as a loss, or a parameter after a step, is not finite.
    """
    parameters = [p for p in module.parameters() if p.requires_grad]
    optimizer = torch.optim.Adam(parameters, lr=learning_rate)
    first_averaged = max_iter - int(averaging * max_iter)
    average, n_averaged = None, 0
    losses = []
    module.train()
    with tqdm(total=max_iter, desc=name, disable=not verbose, mininterval=0.5) as bar:
        for step in range(max_iter):
            rate = _cosine_rate(step, max_iter, warmup)
            for group in optimizer.param_groups:
                group["lr"] = learning_rate * rate
            loss = loss_fn(step)
            losses.append(loss.item())
            _check_finite("loss", math.isfinite(losses[-1]), step, max_iter)
            optimizer.zero_grad(set_to_none=True)
            loss.backward()
            optimizer.step()
            total = sum(parameter.detach().sum() for parameter in parameters)
            _check_finite("parameters", math.isfinite(total), step, max_iter)
            if step >= first_averaged:
                n_averaged += 1
                average = _update_average(average, parameters, n_averaged)
            bar.update()
            if verbose and step % 50 == 0:
                bar.set_postfix(loss=f"{losses[-1]:.4g}")
    if average is not None:
        with torch.no_grad():
            for parameter, mean in zip(parameters, average, strict=True):
                parameter.copy_(mean)
    module.eval()
    return TrainingResult(losses, len(losses))


def _check_finite(what, finite, step, max_iter):
    if not finite:
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
