"""Steps of gradient descent, the same as those of torch.optim.

That imports a compiler at its first step, which takes longer than a small fit.
"""

from collections.abc import Sequence

import torch

__all__ = ["OPTIMIZERS", "Adam", "GradientDescent"]


class GradientDescent:
    """Plain descent: a step is the gradient times the rate.

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
            One for each parameter; with None it is left alone.
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
        # For each parameter the number of its steps, and both of its moments.
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
