"""Random streams: noise apart from initialization, and never a reused draw.

``random_state=None`` draws noise from the operating system's entropy. Any other value makes a
fit reproducible, and then a guarantee is void for whoever knows the seed, or finds it by trying
all of its 2**32 values.
"""

import hashlib
import os
from collections.abc import Sequence

import numpy as np
from scipy.special import ndtri
from sklearn.utils import check_random_state

__all__ = ["SEEDED", "NoiseSource", "noise_source", "split_random_state", "torch_generator"]

# How a seeded source is described in a privacy report.
SEEDED = "seeded generator: the guarantee is void for whoever knows or guesses the seed"

# What scikit-learn takes as an int random_state.
_SEED_BOUND = 2**32


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
    enough to try them all: privacy noise and secret batches come from a NoiseSource.
    """
    import torch

    if seed is None:
        seed = int.from_bytes(os.urandom(8), "little")
    return torch.Generator(device=device).manual_seed(seed)


class NoiseSource:
    """Uniform, normal, Laplace and integer draws, and random subsets, from one stream.

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

    def uniform(self, size: int | tuple[int, ...]) -> np.ndarray:
        """Draw uniforms in the open interval (0, 1), on a symmetric grid of 52 bits."""
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
        return ndtri(self.uniform(size))

    def laplace(self, size: int | tuple[int, ...]) -> np.ndarray:
        """Draw standard Laplace variables (scale 1): a difference of two exponentials."""
        return np.log(self.uniform(size)) - np.log(self.uniform(size))

    def integers(self, high: int, size: int | tuple[int, ...]) -> np.ndarray:
        """Draw integers uniform on ``range(high)``, up to a bias of ``high`` / 2**52."""
        return np.floor(self.uniform(size) * high).astype(np.int64)

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
        if size == n:
            return np.arange(n)
        if size > n // 8:
            keys = self.uniform(n)
            chosen = np.argpartition(keys, size)[:size]
            return chosen[np.argsort(keys[chosen])]
        # For small shares of n: the first distinct values of a sequence of independent draws.
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
        if size * size > n:
            rows = [self.choice(n, size) for _ in range(count)]
            return np.array(rows, dtype=np.int64).reshape(count, size)
        # Whole rows are redrawn until they hold no index twice: at most every other row.
        drawn = np.empty((count, size), dtype=np.int64)
        rows = np.arange(count)
        while len(rows):
            drawn[rows] = self.integers(n, (len(rows), size))
            ordered = np.sort(drawn[rows], axis=1)
            rows = rows[(np.diff(ordered, axis=1) == 0).any(axis=1)]
        return drawn


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
