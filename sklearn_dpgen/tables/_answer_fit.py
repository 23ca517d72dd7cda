"""Populations of soft records that are fitted to joint answers by maximum likelihood."""

import math
from dataclasses import dataclass

import numpy as np
import torch

from sklearn_dpgen.mechanisms._joint_response import answer_odds
from sklearn_dpgen.nn._training import descend
from sklearn_dpgen.utils._random import split_random_state, torch_generator
from sklearn_dpgen.utils._torch import as_array, as_tensor

__all__ = ["AnswerFit", "AnswerLoss", "Population", "log_likelihoods", "split_answers"]

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


# Standard deviation of the logits at the start: rows must differ, for equal ones would stay equal.
_SPREAD = 0.3


class Population(torch.nn.Module):
    """Rows of soft categories, the softmax of free logits a block.

    Parameters
    ----------
    sizes : sequence of int
        Categories of each column: rows start around even shares.
    n_rows : int
    generator : torch.Generator of the CPU
        Draws how the rows differ at the start.
    device : torch.device
    """

    def __init__(self, sizes, n_rows, generator, device):
        super().__init__()
        self.sizes = list(sizes)
        noise = torch.randn(sum(self.sizes), n_rows, generator=generator)
        self.logits = torch.nn.Parameter((_SPREAD * noise).to(device))

    @torch.no_grad()
    def forward(self, dtype=torch.float32):
        """Return the probabilities, a tensor of shape (sum(sizes), n_rows)."""
        P = torch.empty_like(self.logits, dtype=dtype)
        for logits, out in zip(self.logits.split(self.sizes), P.split(self.sizes), strict=True):
            torch.softmax(logits, 0, dtype=dtype, out=out)
        return P

    def probabilities(self):
        """Return the probabilities, an array of float64 of shape (n_rows, sum(sizes))."""
        return np.ascontiguousarray(as_array(self(torch.float64)).T)

    def fit(self, loss, *, max_iter, learning_rate, stop=None, verbose=0, name="fit"):
        """Descend a loss from where the rows stand.

        Parameters
        ----------
        loss : callable
            ``loss(P)`` returns a loss and its gradient by P, of shape (sum(sizes), n_rows);
            ``loss.scale`` is about the size of its weights.
        max_iter : int
        learning_rate : float
            Peak rate of Adam, in logits a step.
        stop : callable, default=None
            ``stop(step)`` is asked after each step; where it is true, none follows.
        verbose : int, default=0
        name : str, default="fit"
            Of the progress bar.

        Returns
        -------
        TrainingResult
        """
        n_rows = self.logits.shape[1]
        # A factor is no matter to Adam, unless gradients come near its floor of 1e-8.
        factor = n_rows / loss.scale

        def gradient_fn(step):
            P = self()
            value, slope = loss(P)
            slope.mul_(P)
            for rows, part in zip(P.split(self.sizes), slope.split(self.sizes), strict=True):
                part.addcmul_(rows, part.sum(dim=0), value=-1)
            return value.item(), [slope.mul_(factor)]

        return descend(
            self,
            gradient_fn,
            max_iter=max_iter,
            learning_rate=learning_rate,
            stop=stop,
            verbose=verbose,
            name=name,
        )


_CHECK_EVERY = 25
# Passes over the answers in as many steps, where the batches may be so large or small.
_PASSES, _STEPS, _SMALLEST, _LARGEST = 16, 400, 1000, 16_000
# Held-out answers: to tell two fits apart takes many.
_MOST_HELD_OUT = 50_000


@dataclass(frozen=True)
class WatchedRun:
    """The best mean log-likelihood of held-out answers in a fit, and the steps to it."""

    score: float
    n_best: int


class AnswerFit:
    """What all fits of one estimator have in common: call it with answers and a seed.

    Parameters
    ----------
    mechanism : JointRandomizedResponse
        Fitted.
    n_rows : int
        Of the population.
    prior : float
        See `AnswerLoss`.
    batch_size : "auto" or int
    max_iter : int
    learning_rate : float
    device : torch.device
    **progress
        ``verbose`` and ``name`` of the progress bar.
    """

    def __init__(
        self, mechanism, *, n_rows, prior, batch_size, max_iter, learning_rate, device, **progress
    ):
        self._mechanism, self._n_rows, self._prior = mechanism, n_rows, prior
        self._batch_size, self._max_iter, self._device = batch_size, max_iter, device
        self._options = {"learning_rate": learning_rate} | progress

    def __call__(self, encoded, seed, *, max_iter=None, stop=None):
        """Fit a population to answers.

        Parameters
        ----------
        encoded : ndarray of shape (n, width)
        seed : int or None
        max_iter : int, optional
            Other than that of all fits.
        stop : callable, optional
            Of a population and a step: whether to stop after it.

        Returns
        -------
        P : ndarray of float64 of shape (n_rows, D)
        result : TrainingResult
        """
        start_seed, batch_seed = split_random_state(seed, 2)
        sizes = [c.domain.n_features for c in self._mechanism.encoder_.columns_.values()]
        population = Population(sizes, self._n_rows, torch_generator(start_seed), self._device)
        rng = np.random.default_rng(batch_seed)
        size = self._size(len(encoded))
        loss = AnswerLoss(self._mechanism, encoded, self._prior, size, rng, self._device)
        result = population.fit(
            loss,
            max_iter=max_iter or self._max_iter,
            stop=None if stop is None else lambda step: stop(population, step),
            **self._options,
        )
        return population.probabilities(), result

    def watched(self, trained, held_out, seed, patience, tol):
        """Fit to some answers and score others as it goes.

        Parameters
        ----------
        trained, held_out : ndarray of shape (n, width)
        seed : int or None
        patience : int or None
            Steps without a gain of ``tol`` nats after which to stop; None goes to the end.
        tol : float

        Returns
        -------
        WatchedRun
        """
        best, n_best = -math.inf, 0

        def stop(population, step):
            nonlocal best, n_best
            n_steps, is_last = step + 1, step + 1 == self._max_iter
            if not is_last and (patience is None or n_steps % _CHECK_EVERY):
                return False
            score = self._score(population(), held_out)
            if score > best + tol:
                best, n_best = score, n_steps
            return is_last or n_steps - n_best >= patience

        self(trained, seed, stop=stop)
        return WatchedRun(best, n_best)

    def _score(self, P, held_out):
        with torch.no_grad():
            return log_likelihoods(self._mechanism, held_out, P).mean().item()

    def _size(self, n_answers):
        if self._batch_size != "auto":
            return self._batch_size
        return int(np.clip(_PASSES * n_answers / _STEPS, _SMALLEST, _LARGEST))


def split_answers(encoded, fraction, seed):
    """Part answers at random into those to fit and those to score, of which there is at least one.

    A single answer serves as both.
    """
    n_held_out = min(max(1, round(fraction * len(encoded))), _MOST_HELD_OUT)
    if n_held_out >= len(encoded):
        return encoded, encoded
    order = np.random.default_rng(seed).permutation(len(encoded))
    return encoded[order[n_held_out:]], encoded[order[:n_held_out]]
