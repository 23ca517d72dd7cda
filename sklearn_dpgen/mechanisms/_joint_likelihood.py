"""The likelihood of joint answers under soft records."""

import math

import numpy as np

__all__ = ["answer_odds", "joint_log_likelihood"]


def answer_odds(covered, epsilon):
    """Return e^-ε, and the log probability of an answer that covers the true cell.

    The likelihood of an answer that covers it with probability π is their product, but for e^-ε
    there is e^-ε + (1 - e^-ε) π.
    """
    # Never 0, of which there is no logarithm; sums of its inverse fit in floats of 32 bits.
    floor = max(math.exp(-epsilon), 1e-30)
    others = covered.n_cells - covered.coverage
    return floor, -np.log(covered.coverage + others * floor)


def joint_log_likelihood(X, covered, slices, epsilon):
    """Return the log-likelihoods of answers under points of the domain, differentiable in these.

    Parameters
    ----------
    X : tensor of shape (n_x, n_features)
    covered : Covered
        Of the answers.
    slices : list of slice
        The features of each column.
    epsilon : float

    Returns
    -------
    tensor of shape (n_x, n_answers)
    """
    import torch

    shares = X.new_ones(len(covered.answer) * covered.n_slots, X.shape[0])
    values = [
        torch.as_tensor(mask, dtype=X.dtype, device=X.device) @ X[:, slices[column]].T
        for column, _, mask in covered.blocks
    ]
    places = np.concatenate([places for _, places, _ in covered.blocks])
    places = torch.as_tensor(places, device=X.device)
    shares = shares.index_copy(0, places, torch.cat(values))
    boxes = shares.unflatten(0, (-1, covered.n_slots)).prod(dim=1)
    answer = torch.as_tensor(covered.answer, device=X.device)
    inside = X.new_zeros(covered.n_answers, X.shape[0]).index_add(0, answer, boxes)
    floor, log_scale = answer_odds(covered, epsilon)
    odds = floor - math.expm1(-epsilon) * inside
    log_scale = torch.as_tensor(log_scale, dtype=X.dtype, device=X.device)
    return (torch.log(odds) + log_scale[:, None]).T
