"""Maximum-likelihood fits of product mixtures to answers of joint randomized response."""

import math
from dataclasses import dataclass

import numpy as np
import torch

from sklearn_dpgen.mechanisms._joint_response import answer_odds
from sklearn_dpgen.nn._training import descend
from sklearn_dpgen.utils._random import split_random_state, torch_generator
from sklearn_dpgen.utils._torch import as_array, as_tensor

__all__ = [
    "AnswerFit",
    "AnswerLoss",
    "Population",
    "answer_batches",
    "log_likelihoods",
    "split_answers",
]

# Bytes of masks that are cached between passes over the answers.
_KEPT_BYTES = 1 << 28
# Answers per chunk when only likelihoods are computed.
_CHUNK = 2000
# Floor of the arguments of logarithms.
_TINY = 1e-30


class AnswerBatch:
    """The log-likelihood of a batch of answers and its gradient, by a population.

    Parameters
    ----------
    mechanism : JointRandomizedResponse
        Fitted.
    encoded : ndarray of shape (n, width)
        Answers, from ``mechanism.encode_release``.
    device : torch.device

    Attributes
    ----------
    n_bytes : int
        Memory of the masks and their row indices.
    """

    def __init__(self, mechanism, encoded, device):
        covered = mechanism.questions(encoded).covered(encoded[:, 0].astype(np.int64))
        slices = list(mechanism.encoder_.blocks_.values())
        self._blocks = [
            (slices[column], torch.from_numpy(rows).to(device), torch.from_numpy(mask).to(device))
            for column, rows, mask in covered.blocks
        ]
        self._shape = len(covered.answer), covered.n_slots
        self._n_answers = covered.n_answers
        self._answer = torch.from_numpy(covered.answer).to(device)
        # With one box per answer, the sum over boxes can be skipped.
        self._is_single = len(covered.answer) == covered.n_answers
        self._gain = -math.expm1(-mechanism.epsilon_)
        self._floor, log_scale = answer_odds(covered, mechanism.epsilon_)
        self._log_scale = as_tensor(log_scale, device=device)
        self.n_bytes = sum(rows.nbytes + mask.nbytes for _, rows, mask in self._blocks)

    def __call__(self, P):
        """Return the log-likelihoods, and the gradient of their negative mean by P.

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
        for block, rows, mask in self._blocks:
            gradient[block].addmm_(mask.to(P.dtype).T, others[rows])
        return torch.log(odds) + self._log_scale, gradient

    def log_likelihoods(self, P, shares=None):
        """Return the log-likelihoods without the gradient, of rows with equal or given shares."""
        return torch.log(self._odds(self._forward(P)[1], shares)) + self._log_scale

    def _forward(self, P):
        """Return the covered mass of each slot, (n_boxes, n_slots, n_rows), and its products."""
        n_boxes, n_slots = self._shape
        slots = P.new_ones(n_boxes * n_slots, P.shape[1])
        for block, rows, mask in self._blocks:
            slots[rows] = mask.to(P.dtype) @ P[block]
        slots = slots.unflatten(0, self._shape)
        return slots, slots.prod(dim=1) if n_slots > 1 else slots[:, 0]

    def _odds(self, boxes, shares=None):
        inside = boxes.mean(dim=1) if shares is None else boxes @ shares
        if not self._is_single:
            inside = inside.new_zeros(self._n_answers).index_add_(0, self._answer, inside)
        return self._floor + self._gain * inside


def _products_of_others(slots, pull):
    """Return, for each slot, ``pull`` times the product of the other slots."""
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
    """The penalized negative log-likelihood of answers in mini-batches, and its gradient.

    The objective is -mean_i log p(y_i | P) + τ / n mean_r KL(P_r ‖ Q_r), in nats, where Q_r is the
    mean row or a given one. The prior keeps the fit from learning noise as dependence between
    columns. ``Population.fit`` takes it.

    Parameters
    ----------
    mechanism : JointRandomizedResponse
        Fitted.
    encoded : ndarray of shape (n, width)
        Answers, from ``mechanism.encode_release``.
    prior : float
        τ, in nats of the likelihood of all answers.
    batch_size : int
    rng : numpy.random.Generator
        Partitions the answers into batches once, and shuffles the batches in each pass.
    device : torch.device
    center : tensor of shape (D, n_rows) or None, default=None
        Logarithms of Q; None takes the mean row.
    """

    # ``Population.fit`` divides gradients by it.
    scale = 1.0

    def __init__(self, mechanism, encoded, prior, batch_size, rng, device, center=None):
        self._mechanism, self._device, self._rng = mechanism, device, rng
        self._prior, self._center = prior / len(encoded), center
        n_batches = max(1, round(len(encoded) / batch_size))
        self._chunks = np.array_split(encoded[rng.permutation(len(encoded))], n_batches)
        self._batches: list[AnswerBatch | None] = [None] * n_batches
        self._room, self._order = _KEPT_BYTES, []

    def __call__(self, P):
        """Return the loss of the next batch without the prior, and the gradient with the prior.

        Parameters
        ----------
        P : tensor of float32 of shape (D, n_rows)

        Returns
        -------
        loss : tensor
        gradient : tensor of shape (D, n_rows)
        """
        if not self._order:
            self._order = self._rng.permutation(len(self._chunks)).tolist()
        log_likelihoods, gradient = self._batch(self._order.pop())(P)
        if self._prior:
            center = self._center
            if center is None:
                center = torch.log(P.mean(dim=1, keepdim=True).clamp_min(_TINY))
            # The softmax removes the constant in each block that is left out here.
            excess = torch.log(P.clamp_min(_TINY)) - center
            gradient.add_(excess, alpha=self._prior / P.shape[1])
        return -log_likelihoods.mean(), gradient

    def _batch(self, i):
        if self._batches[i] is not None:
            return self._batches[i]
        batch = AnswerBatch(self._mechanism, self._chunks[i], self._device)
        if batch.n_bytes <= self._room:
            self._room -= batch.n_bytes
            self._batches[i] = batch
        return batch


def log_likelihoods(mechanism, encoded, P, shares=None):
    """Return the log-likelihood of each answer under a population, in nats.

    Parameters
    ----------
    mechanism : JointRandomizedResponse
        Fitted.
    encoded : ndarray of shape (n, width)
        Answers, from ``mechanism.encode_release``.
    P : tensor of shape (D, n_rows)
    shares : tensor of shape (n_rows,), default=None
        Of the rows; None is equal ones.

    Returns
    -------
    tensor of shape (n,)
    """
    batches = answer_batches(mechanism, encoded, P.device)
    return torch.cat([batch.log_likelihoods(P, shares) for batch in batches])


def answer_batches(mechanism, encoded, device):
    """Yield batches of 2000 answers."""
    for chunk in np.array_split(encoded, max(1, -(-len(encoded) // _CHUNK))):
        yield AnswerBatch(mechanism, chunk, device)


# Standard deviation of the initial logits. Rows must differ, since equal rows would stay equal.
_SPREAD = 0.3


class Population(torch.nn.Module):
    """Rows of category probabilities, the softmax of trainable logits in each column.

    Parameters
    ----------
    sizes : sequence of int
        Number of categories of each column; rows start near the uniform distribution.
    n_rows : int
    generator : torch.Generator
        Draws the initial logits, on the CPU.
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
        """Minimize a loss by Adam from the current rows.

        Parameters
        ----------
        loss : callable
            ``loss(P)`` returns the loss and its gradient by P, of shape (sum(sizes), n_rows);
            ``loss.scale`` is the magnitude of its weights.
        max_iter : int
        learning_rate : float
            Peak rate of Adam, in logits per step.
        stop : callable, default=None
            ``stop(step)`` is called after each step; the fit stops where it returns True.
        verbose : int, default=0
        name : str, default="fit"
            Name of the progress bar.

        Returns
        -------
        TrainingResult
        """
        n_rows = self.logits.shape[1]
        # Adam is invariant to this factor, which keeps gradients far above its floor of 1e-8.
        factor = n_rows / loss.scale

        def gradient_fn(step):
            P = self()
            value, slope = loss(P)
            slope.mul_(P)
            for rows, block in zip(P.split(self.sizes), slope.split(self.sizes), strict=True):
                block.addcmul_(rows, block.sum(dim=0), value=-1)
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
# The automatic batch size gives 16 passes over the answers in 400 steps, within these bounds.
_PASSES, _STEPS, _SMALLEST, _LARGEST = 16, 400, 1000, 16_000
# The most held-out answers, which suffice to rank two fits.
_MOST_HELD_OUT = 50_000


@dataclass(frozen=True)
class WatchedRun:
    """The best mean log-likelihood of held-out answers in a fit, and the number of steps."""

    score: float
    n_best: int


class AnswerFit:
    """Fits of populations with the settings of one estimator.

    Parameters
    ----------
    mechanism : JointRandomizedResponse
        Fitted.
    n_rows : int
        Rows of the population.
    prior : float
        τ of `AnswerLoss`.
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
        self._batch_size, self._max_iter, self.device = batch_size, max_iter, device
        self._options = {"learning_rate": learning_rate} | progress

    def __call__(self, encoded, seed, *, max_iter=None, stop=None, start=None, prior=None):
        """Fit a population to answers.

        Parameters
        ----------
        encoded : ndarray of shape (n, width)
        seed : int or None
        max_iter : int, optional
            Replaces that of the estimator.
        stop : callable, optional
            ``stop(population, step)`` returns whether to stop after a step.
        start : ndarray of shape (n_rows, D), optional
            Positive rows at which the population starts, and to which the prior pulls it.
        prior : float, optional
            Replaces that of the estimator, with ``start``.

        Returns
        -------
        P : ndarray of float64 of shape (n_rows, D)
        result : TrainingResult
        """
        start_seed, batch_seed = split_random_state(seed, 2)
        sizes = [c.domain.n_features for c in self._mechanism.encoder_.columns_.values()]
        n_rows, center = self._n_rows if start is None else len(start), None
        population = Population(sizes, n_rows, torch_generator(start_seed), self.device)
        if start is not None:
            center = as_tensor(np.log(start).T.copy(), device=self.device)
            population.logits.data = center.clone()
        rng = np.random.default_rng(batch_seed)
        size = self._size(len(encoded))
        prior = self._prior if prior is None else prior
        loss = AnswerLoss(self._mechanism, encoded, prior, size, rng, self.device, center)
        result = population.fit(
            loss,
            max_iter=max_iter or self._max_iter,
            stop=None if stop is None else lambda step: stop(population, step),
            **self._options,
        )
        return population.probabilities(), result

    def watched(self, trained, held_out, seed, patience, tol):
        """Fit to answers, and score held-out answers during the fit.

        Parameters
        ----------
        trained, held_out : ndarray of shape (n, width)
        seed : int or None
        patience : int or None
            Steps without a gain of ``tol`` nats after which to stop; None never stops early.
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
    """Split answers at random into training and held-out ones, at least one each.

    A single answer is used for both.
    """
    n_held_out = min(max(1, round(fraction * len(encoded))), _MOST_HELD_OUT)
    if n_held_out >= len(encoded):
        return encoded, encoded
    order = np.random.default_rng(seed).permutation(len(encoded))
    return encoded[order[n_held_out:]], encoded[order[:n_held_out]]
