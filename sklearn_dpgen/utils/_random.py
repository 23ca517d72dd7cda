"""Random streams: noise apart from initialization, and never a reused draw.

``random_state=None`` draws noise from the operating system's entropy. Any other value makes a
fit reproducible, and then a guarantee is void for whoever knows the seed, or finds it by trying
all of its 2**32 values.
"""

import hashlib
import math
import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar

import numpy as np
from scipy.special import ndtri
from sklearn.utils import check_random_state

__all__ = [
    "SEEDED",
    "ROUNDING",
    "NoiseObserver",
    "NoiseSource",
    "noise_source",
    "observed_noise",
    "on_grid",
    "split_random_state",
    "torch_generator",
]

# How a seeded source is described in a privacy report.
SEEDED = "seeded generator: the guarantee is void for whoever knows or guesses the seed"

# How far, in total variation, a value with noise in floating point is at most from one with exact
# noise, rounded alike; and an index that is selected among so many. See doc/certified_noise.rst.
ROUNDING = 2.0**-36

# What scikit-learn takes as an int random_state.
_SEED_BOUND = 2**32

_OBSERVER: ContextVar["NoiseObserver | None"] = ContextVar(
    "observer of noisy releases", default=None
)


def split_random_state(random_state, n_streams: int) -> list[int | None]:
    """Derive independent seeds from a scikit-learn ``random_state``.

    Parameters
    ----------
    random_state : None, int or RandomState
        An int gives the same seeds at every call; a RandomState is advanced.
    n_streams : int
        How many streams to derive.

    Returns
    -------
    list of None or int
        ``None`` everywhere when ``random_state`` is None.
    """
    if random_state is None:
        return [None] * n_streams
    draws = check_random_state(random_state).randint(2**32, size=4, dtype=np.uint64)
    children = np.random.SeedSequence([int(v) for v in draws]).spawn(n_streams)
    return [int(child.generate_state(1, np.uint64)[0]) % _SEED_BOUND for child in children]


def torch_generator(seed, device="cpu"):
    """Return a ``torch.Generator`` on ``device``, seeded from the system's entropy if None.

    For latents and initial weights. Of any seed the generator of the CPU takes in 32 bits, few
    enough to try them all, and for each to be far likelier than a price takes it to be: noise,
    secret batches, and directions that a price averages over come from a NoiseSource.
    """
    import torch

    if seed is None:
        seed = int.from_bytes(os.urandom(8), "little")
    return torch.Generator(device=device).manual_seed(seed)


class NoiseObserver:
    """What is told of each noisy release while it observes, and may put another in its place.

    It sees what noise was added to, and is for audits of records that are not private.

    Attributes
    ----------
    source : NoiseSource or None
        Of the noise of the last release, set before the observer is told of it.
    """

    source = None

    def added(self, values: np.ndarray, scale: float, kind: str, noisy: np.ndarray) -> np.ndarray:
        """Return what is released in the place of ``noisy``, which `NoiseSource.add` made."""
        return noisy

    def selected(self, scores: np.ndarray, scale: float, indices: np.ndarray) -> np.ndarray:
        """Return what is released in the place of ``indices``, as by `NoiseSource.largest`."""
        return indices

    def drawn(self, n: int, indices: np.ndarray) -> np.ndarray:
        """Return what is drawn in the place of ``indices``, subsets of ``range(n)`` by rows."""
        return indices

    def uniform(self, draws: np.ndarray) -> np.ndarray:
        """Return what is drawn in the place of uniforms that are not for a noisy release."""
        return draws


@contextmanager
def observed_noise(observer: NoiseObserver) -> Iterator[NoiseObserver]:
    """Let an observer see every noisy release of this thread, for as long as the context lasts."""
    token = _OBSERVER.set(observer)
    try:
        yield observer
    finally:
        _OBSERVER.reset(token)


class NoiseSource:
    """Noise on values and on scores, and uniform draws and random subsets, from one stream.

    What is released of records goes through ``add`` or ``largest``, or is a choice by ``uniform``.

    Parameters
    ----------
    generator : numpy.random.Generator or None
        None reads the operating system's entropy for every draw.
    """

    def __init__(self, generator=None):
        self._generator = generator

    @property
    def description(self) -> str:
        """One phrase for a privacy report."""
        return "operating system entropy" if self._generator is None else SEEDED

    def add(self, values: np.ndarray, scale: float, kind: str) -> np.ndarray:
        """Return values with independent noise on each, on a grid finer than ``scale`` / 1000.

        Parameters
        ----------
        values : ndarray of float64
        scale : float
            Standard deviation of Gaussian noise, or b of Laplace noise; 0 for none.
        kind : {"gaussian", "laplace"}

        Returns
        -------
        ndarray of the same shape
            A copy of ``values`` if there is no noise.
        """
        if scale == 0:
            return values.copy()
        noisy = self._noisy(values, scale, kind)
        observer = _observer_of(self)
        return noisy if observer is None else observer.added(values, scale, kind, noisy)

    def largest(self, scores: np.ndarray, scale: float, count: int) -> np.ndarray:
        """Return the indices of the largest scores after Gumbel noise, by decreasing noisy score.

        Parameters
        ----------
        scores : ndarray of float64 of shape (n,)
            Finite.
        scale : float
            Of the noise; 0 for none, and then of equal scores the first ones are taken.
        count : int

        Returns
        -------
        ndarray of int64 of shape (count,)
        """
        if scale == 0:
            return _first(-scores, count)
        indices = self._selected(scores, scale, count)
        observer = _observer_of(self)
        return indices if observer is None else observer.selected(scores, scale, indices)

    def respond(self, codes: np.ndarray, table: np.ndarray, epsilon: float) -> np.ndarray:
        """Return randomized categories.

        Parameters
        ----------
        codes : ndarray of int of shape (n,)
            The true ones.
        table : ndarray of shape (k, k)
            p(released | true) of randomized response.
        epsilon : float
            Its budget, in nats.

        Returns
        -------
        ndarray of int64 of shape (n,)
        """
        edges = np.cumsum(table, axis=1)[codes]
        # The last edge is 1 up to rounding; a draw above it belongs to the last category.
        return (self.uniform((len(codes), 1)) > edges[:, :-1]).sum(axis=1)

    def covers(self, inside: np.ndarray, outside: np.ndarray, epsilon: float) -> np.ndarray:
        """Draw whether an answer is one of those that are true.

        Parameters
        ----------
        inside, outside : ndarray of int of shape (n,)
            Numbers m and o of answers that are true, and that are not.
        epsilon : float
            Each of the former is e^ε times as likely as each of the latter.

        Returns
        -------
        ndarray of bool of shape (n,)
            True with probability m e^ε / (m e^ε + o).
        """
        weights = inside + outside * math.exp(-epsilon)
        return self.uniform(np.shape(inside)) * weights < inside

    @property
    def public(self) -> "NoiseSource":
        """A source for draws that no guarantee rests on: after the release, or before it."""
        return self

    def uniform(self, size: int | tuple[int, ...]) -> np.ndarray:
        """Draw uniforms in the open interval (0, 1), on a symmetric grid of 52 bits."""
        observer, draws = _OBSERVER.get(), self._uniform(size)
        return draws if observer is None else observer.uniform(draws)

    def _uniform(self, size):
        count = int(np.prod(size, dtype=np.int64))
        if self._generator is None:
            words = np.frombuffer(os.urandom(8 * count), dtype=np.uint64)
        else:
            words = self._generator.integers(2**64, size=count, dtype=np.uint64, endpoint=False)
        # The half step keeps the logarithm and the normal quantile finite; with 53 bits it would
        # be rounded, up to 1.
        return (((words >> np.uint64(12)).astype(np.float64) + 0.5) * 2.0**-52).reshape(size)

    def normal(self, size: int | tuple[int, ...]) -> np.ndarray:
        """Draw standard normals by inversion."""
        return ndtri(self._uniform(size))

    def laplace(self, size: int | tuple[int, ...]) -> np.ndarray:
        """Draw standard Laplace variables (scale 1): a difference of two exponentials."""
        return np.log(self._uniform(size)) - np.log(self._uniform(size))

    def integers(self, high: int, size: int | tuple[int, ...]) -> np.ndarray:
        """Draw integers uniform on ``range(high)``, up to a bias of ``high`` / 2**52."""
        return np.floor(self.uniform(size) * high).astype(np.int64)

    def _noisy(self, values, scale, kind):
        noise = scale * {"gaussian": self.normal, "laplace": self.laplace}[kind](values.shape)
        # Sums of large values and noise lose its low bits: what is left of a value on the grid is
        # exact, and no larger than half a step.
        coarse = on_grid(values, scale)
        # An infinite value, as of a candidate that failed, has no rest.
        rest = np.subtract(values, coarse, out=np.zeros_like(noise), where=np.isfinite(coarse))
        return coarse + on_grid(rest + noise, scale)

    def _selected(self, scores, scale, count):
        # Differences of large scores are exact where they matter, among the largest.
        gaps = scores.max(initial=-np.inf) - scores
        return _first(gaps + scale * np.log(-np.log(self._uniform(scores.shape))), count)

    def choice(self, n: int, size: int) -> np.ndarray:
        """Draw ``size`` distinct indices out of ``range(n)``, in random order.

        Returns
        -------
        ndarray of int64 of shape (size,)
            No sequence is likelier than another, up to a relative n / 2**52; all of them, where
            ``size`` is ``n``, come in their own order.
        """
        if not 0 <= size <= n:
            raise ValueError(f"size must be between 0 and n = {n}, got {size}.")
        return _observed_draw(n, self._choice(n, size))

    def _choice(self, n, size):
        if size == n:
            return np.arange(n)
        if size > n // 8:
            keys = self.uniform(n)
            chosen = np.argpartition(keys, size)[:size]
            return chosen[np.argsort(keys[chosen])]
        return self._first_distinct(n, size)

    def _first_distinct(self, n, size):
        """Return the first distinct values of a sequence of independent draws."""
        drawn = self.integers(n, size)
        while True:
            _, first = np.unique(drawn, return_index=True)
            drawn = drawn[np.sort(first)]
            if len(drawn) == size:
                return drawn
            drawn = np.append(drawn, self.integers(n, size - len(drawn)))

    def choices(self, n: int, size: int, count: int) -> np.ndarray:
        """Draw ``count`` independent rows of ``size`` distinct indices, each as by `choice`.

        Returns
        -------
        ndarray of int64 of shape (count, size)
        """
        if not 0 <= size <= n:
            raise ValueError(f"size must be between 0 and n = {n}, got {size}.")
        return _observed_draw(n, self._choices(n, size, count))

    def _choices(self, n, size, count):
        if size * size > n:
            rows = [self._choice(n, size) for _ in range(count)]
            return np.array(rows, dtype=np.int64).reshape(count, size)
        # Whole rows are redrawn until they hold no index twice: at most every other row.
        drawn = np.empty((count, size), dtype=np.int64)
        rows = np.arange(count)
        while len(rows):
            drawn[rows] = self.integers(n, (len(rows), size))
            ordered = np.sort(drawn[rows], axis=1)
            rows = rows[(np.diff(ordered, axis=1) == 0).any(axis=1)]
        return drawn


def _first(keys, count):
    """Return the indices of the smallest keys, in their order."""
    return np.argsort(keys, kind="stable")[:count].astype(np.int64)


def _observer_of(source):
    observer = _OBSERVER.get()
    if observer is not None:
        observer.source = source
    return observer


def _observed_draw(n, indices):
    observer = _OBSERVER.get()
    return indices if observer is None else observer.drawn(n, indices)


def noise_source(seed: int | None = None, *, context: Sequence = ()) -> NoiseSource:
    """Return a NoiseSource.

    Parameters
    ----------
    seed : None or int
        None for the operating system's entropy.
    context : sequence of str, bytes or contiguous arrays
        What the noise is for: the mechanism, its parameters and its input. A seeded source is
        keyed by it, so the same call repeats its draws while any other call, with other records
        or another budget, gets independent ones. Reusing a draw on other records would publish
        their difference exactly.
    """
    if seed is None:
        return NoiseSource()
    digest = hashlib.blake2b(key=int(seed).to_bytes(16, "little"))
    for part in context:
        part = memoryview(part.encode() if isinstance(part, str) else part)
        digest.update(part.nbytes.to_bytes(8, "little"))
        digest.update(part)
    entropy = int.from_bytes(digest.digest(), "little")
    return NoiseSource(np.random.Generator(np.random.PCG64DXSM(entropy)))


def on_grid(values: np.ndarray, scale: float) -> np.ndarray:
    """Round released values to a multiple of a power of two, at most a 1024th of the noise scale.

    The low bits of a sum of floats tell which record the noise was added to [1]_. Rounding is
    post-processing of the real-valued release, and on so coarse a grid the floating-point one is
    within ROUNDING of it in total variation, a value.

    Parameters
    ----------
    values : ndarray
        Sums of records and noise.
    scale : float
        Scale of the noise.

    Returns
    -------
    ndarray

    References
    ----------
    .. [1] I. Mironov, "On significance of the least significant bits for differential privacy",
       CCS 2012.
    """
    step = math.ldexp(1.0, math.frexp(scale)[1] - 11)
    # A grid finer than the floats themselves changes nothing, and the division may overflow.
    with np.errstate(over="ignore", divide="ignore", invalid="ignore"):
        multiples = np.rint(values / step)
    return np.where(np.isfinite(multiples), multiples * step, values)
