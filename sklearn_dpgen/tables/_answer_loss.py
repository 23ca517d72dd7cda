"""The likelihood of joint answers under a population of soft records, and its gradient."""

import math

import numpy as np
import torch

from sklearn_dpgen.mechanisms._joint_release import answer_odds
from sklearn_dpgen.utils._torch import as_tensor

__all__ = ["AnswerLoss", "log_likelihoods"]

# Bytes of the masks, with their places, that are kept from one pass over the answers to the next.
_KEPT_BYTES = 1 << 28
# Answers whose likelihood is computed at a time.
_CHUNK = 2000
# Of logarithms.
_TINY = 1e-30


class AnswerBatch:
    """Answers, as products of a population's shares of groups of categories.

    Parameters
    ----------
    mechanism : JointRandomizedResponse
        Fitted.
    encoded : ndarray of shape (n, width)
        As its ``encode_release`` returns them.
    device : torch.device

    Attributes
    ----------
    n_bytes : int
        Of the masks and their places.
    """

    def __init__(self, mechanism, encoded, device):
        covered = mechanism.questions(encoded).covered(encoded[:, 0].astype(np.int64))
        slices = list(mechanism.encoder_.blocks_.values())
        self._blocks = [
            (slices[column], torch.from_numpy(places).to(device), torch.from_numpy(mask).to(device))
            for column, places, mask in covered.blocks
        ]
        self._shape = len(covered.answer), covered.n_slots
        self._n_answers = covered.n_answers
        self._answer = torch.from_numpy(covered.answer).to(device)
        # With one box an answer there is nothing to add up.
        self._is_single = len(covered.answer) == covered.n_answers
        self._gain = -math.expm1(-mechanism.epsilon_)
        self._floor, log_scale = answer_odds(covered, mechanism.epsilon_)
        self._log_scale = as_tensor(log_scale, device=device)
        self.n_bytes = sum(places.nbytes + mask.nbytes for _, places, mask in self._blocks)

    def __call__(self, P):
        """Return the log-likelihoods and the gradient of minus their mean.

        Parameters
        ----------
        P : tensor of shape (D, n_rows)

        Returns
        -------
        log_likelihoods : tensor of shape (n,)
        gradient : tensor of shape (D, n_rows)
        """
        slots, boxes = self._forward(P)
        odds = self._odds(boxes)
        pull = -self._gain / (odds * (P.shape[1] * self._n_answers))
        pull = pull[self._answer, None] if not self._is_single else pull[:, None]
        gradient = torch.zeros_like(P)
        others = _products_of_others(slots, pull).flatten(0, 1)
        for part, places, mask in self._blocks:
            gradient[part].addmm_(mask.to(P.dtype).T, others[places])
        return torch.log(odds) + self._log_scale, gradient

    def log_likelihoods(self, P):
        """Return them alone."""
        return torch.log(self._odds(self._forward(P)[1])) + self._log_scale

    def _forward(self, P):
        """Return the shares of each slot, (n_boxes, n_slots, n_rows), and their products."""
        n_boxes, n_slots = self._shape
        slots = P.new_ones(n_boxes * n_slots, P.shape[1])
        for part, places, mask in self._blocks:
            slots[places] = mask.to(P.dtype) @ P[part]
        slots = slots.unflatten(0, self._shape)
        return slots, slots.prod(dim=1) if n_slots > 1 else slots[:, 0]

    def _odds(self, boxes):
        inside = boxes.mean(dim=1)
        if not self._is_single:
            inside = inside.new_zeros(self._n_answers).index_add_(0, self._answer, inside)
        return self._floor + self._gain * inside


def _products_of_others(slots, pull):
    """Return ``pull`` times the product of all slots but one, for each of them."""
    n_slots = slots.shape[1]
    products = torch.empty_like(slots)
    before = pull.expand(-1, slots.shape[2])
    for i in range(n_slots):
        products[:, i] = before
        if i + 1 < n_slots:
            before = before * slots[:, i]
    after = None
    for i in reversed(range(n_slots)):
        if after is not None:
            products[:, i] *= after
        after = slots[:, i] if after is None else after * slots[:, i]
    return products


class AnswerLoss:
    """Minus the mean log-likelihood of batches of answers, with a prior, and its gradient.

    -mean_i log p(y_i | P) + τ / n mean_r KL(P_r ‖ mean row), in nats: the prior keeps noise from
    being learned as dependence of columns. To be given to ``Population.fit``.

    Parameters
    ----------
    mechanism : JointRandomizedResponse
        Fitted.
    encoded : ndarray of shape (n, width)
        As its ``encode_release`` returns them.
    prior : float
        τ, in nats of the likelihood of all answers.
    batch_size : int
    rng : numpy.random.Generator
        Deals the answers into batches, once, and orders these in each pass.
    device : torch.device
    """

    # What gradients are measured in.
    scale = 1.0

    def __init__(self, mechanism, encoded, prior, batch_size, rng, device):
        self._mechanism, self._device, self._rng = mechanism, device, rng
        self._prior = prior / len(encoded)
        n_batches = max(1, round(len(encoded) / batch_size))
        self._parts = np.array_split(encoded[rng.permutation(len(encoded))], n_batches)
        self._batches: list[AnswerBatch | None] = [None] * n_batches
        self._room, self._order = _KEPT_BYTES, []

    def __call__(self, P):
        """Return the loss of the next batch without the prior, and the gradient with it.

        Parameters
        ----------
        P : tensor of float32 of shape (D, n_rows)

        Returns
        -------
        loss : tensor
        gradient : tensor of shape (D, n_rows)
        """
        if not self._order:
            self._order = self._rng.permutation(len(self._parts)).tolist()
        log_likelihoods, gradient = self._batch(self._order.pop())(P)
        if self._prior:
            # Up to a constant in each block.
            excess = torch.log(P.clamp_min(_TINY))
            excess -= torch.log(P.mean(dim=1, keepdim=True).clamp_min(_TINY))
            gradient.add_(excess, alpha=self._prior / P.shape[1])
        return -log_likelihoods.mean(), gradient

    def _batch(self, i):
        if self._batches[i] is not None:
            return self._batches[i]
        batch = AnswerBatch(self._mechanism, self._parts[i], self._device)
        if batch.n_bytes <= self._room:
            self._room -= batch.n_bytes
            self._batches[i] = batch
        return batch


def log_likelihoods(mechanism, encoded, P):
    """Return the log-likelihood of each answer under a population, in nats.

    Parameters
    ----------
    mechanism : JointRandomizedResponse
        Fitted.
    encoded : ndarray of shape (n, width)
        As its ``encode_release`` returns them.
    P : tensor of shape (D, n_rows)

    Returns
    -------
    tensor of shape (n,)
    """
    parts = np.array_split(encoded, max(1, -(-len(encoded) // _CHUNK)))
    return torch.cat([AnswerBatch(mechanism, p, P.device).log_likelihoods(P) for p in parts])
