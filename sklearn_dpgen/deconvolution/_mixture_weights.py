"""The weights of a mixture of known components: maximum likelihood by expectation maximization."""

import torch

__all__ = ["fit_weights"]

_WINDOW = 10
_FASTER, _MAX_POWER = 1.1, 100.0


@torch.no_grad()
def fit_weights(likelihood, shares, *, n_samples, max_iter, tol):
    r"""Maximize the mean log-likelihood :math:`\sum_j c_j \log \sum_i w_i L_{ji}` over weights.

    Starts from equal weights. A step of expectation maximization multiplies each weight by its
    posterior share; here by a power of it, which grows as long as the likelihood does and else
    falls back to the plain step, which never loses.

    Parameters
    ----------
    likelihood : tensor of shape (n_rows, n_components)
        Positive somewhere in each row; each row up to a factor.
    shares : tensor of shape (n_rows,)
        Weights of the rows, with sum 1.
    n_samples : int
        Number of records that the rows stand for.
    max_iter : int
    tol : float
        Stop when the log-likelihood of all records gains less than this a step, in nats, over the
        last ten: what is gained by smaller steps is what noise gives away, not the law.

    Returns
    -------
    weights : tensor of shape (n_components,)
    n_iter : int
    """
    weights = likelihood.new_full((likelihood.shape[1],), 1 / likelihood.shape[1])
    mixture = likelihood @ weights
    value = checked = shares @ mixture.log()
    power = 1.0
    for step in range(1, max_iter + 1):
        posterior = likelihood.T @ (shares / mixture)
        proposal, proposed, proposed_value = _move(likelihood, shares, weights, posterior, power)
        if not proposed_value >= value:
            power = max(1.0, power / 2)
            proposal, proposed, proposed_value = _move(likelihood, shares, weights, posterior, 1.0)
        else:
            power = min(power * _FASTER, _MAX_POWER)
        weights, mixture, value = proposal, proposed, proposed_value
        if step % _WINDOW == 0:
            if n_samples * (value - checked) < tol * _WINDOW:
                break
            checked = value
    return weights, step


def _move(likelihood, shares, weights, posterior, power):
    moved = weights * posterior**power
    moved /= moved.sum()
    mixture = likelihood @ moved
    return moved, mixture, shares @ mixture.log()
