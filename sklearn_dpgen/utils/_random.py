"""Random streams: the source of all private noise, and seeds for everything else.

``random_state=None`` draws noise from the operating system's entropy. Any other value makes a fit
reproducible, and voids its guarantee against anybody who knows the seed or finds it by trying all
2**32 values. Against others it holds, also for several fits with one seed: a seeded source hashes
all of its inputs, so that no two releases share noise unless they are the same release.
"""

import copy
import hashlib
import math
import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Self

import numpy as np

from sklearn_dpgen.exceptions import PublicOverflowError, PublicTypeError, PublicValueError
from sklearn_dpgen.utils._exact_draws import (
    GRID_BITS,
    discrete_gaussian,
    discrete_laplace,
    exponential_choices,
    grid_integers,
    odds,
    require_opendp,
    uniform_integers,
)

__all__ = [
    "CERTIFIED",
    "SEEDED",
    "ROUNDING",
    "CertifiedNoise",
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
# And a certified one.
CERTIFIED = "certified: exact draws from operating system entropy, on values rounded before"

# A bound on the total variation between a value with floating-point noise and one with exact noise
# that is rounded alike, and on that of a selection, per score. See doc/certified_noise.rst.
ROUNDING = 2.0**-36

# Exceeds the largest seed that scikit-learn accepts.
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
        Number of seeds.

    Returns
    -------
    list of None or int
        All ``None`` if ``random_state`` is None.
    """
    if random_state is None:
        return [None] * n_streams
    # Seeds alone need scikit-learn; schemas and domains do without.
    from sklearn.utils import check_random_state

    draws = check_random_state(random_state).randint(2**32, size=4, dtype=np.uint64)
    children = np.random.SeedSequence([int(v) for v in draws]).spawn(n_streams)
    return [int(child.generate_state(1, np.uint64)[0]) % _SEED_BOUND for child in children]


def torch_generator(seed, device="cpu"):
    """Return a ``torch.Generator`` on ``device``, seeded from the system's entropy if None.

    For latents and initial weights only: the CPU generator uses 32 bits of a seed, few enough to
    try them all. Everything that an accountant takes to be random (noise, secret batches and random
    directions) must come from a NoiseSource.
    """
    import torch

    if seed is None:
        seed = int.from_bytes(os.urandom(8), "little")
    return torch.Generator(device=device).manual_seed(seed)


class NoiseObserver:
    """Sees each noisy release and may replace it; for audits and tests on public records.

    An observer sees the values before noise, so it must never be used with private records.

    Attributes
    ----------
    source : NoiseSource or None
        Source of the noise of the last release, set before the observer is called.
    """

    source = None

    def added(self, values: np.ndarray, scale: float, kind: str, noisy: np.ndarray) -> np.ndarray:
        """Return the values to release instead of ``noisy``, the result of `NoiseSource.add`."""
        return noisy

    def named(self, names: Sequence) -> None:
        """See what the values of the next release are counts of, if that depends on the records."""

    def selected(self, scores: np.ndarray, scale: float, indices: np.ndarray) -> np.ndarray:
        """Return the indices to release instead of those of `NoiseSource.largest`."""
        return indices

    def drawn(self, n: int, indices: np.ndarray) -> np.ndarray:
        """Return the subsets of ``range(n)``, one per row, to use instead of ``indices``."""
        return indices

    def uniform(self, draws: np.ndarray) -> np.ndarray:
        """Return the numbers to use instead of uniform draws that are not part of other noise."""
        return draws


@contextmanager
def observed_noise(observer: NoiseObserver) -> Iterator[NoiseObserver]:
    """Let an observer see every noisy release of this thread while the context lasts."""
    token = _OBSERVER.set(observer)
    try:
        yield observer
    finally:
        _OBSERVER.reset(token)


class NoiseSource:
    """Source of noise on values and scores, uniform draws and random subsets.

    Every release of records uses ``add``, ``largest``, ``respond`` or ``covers``.

    Parameters
    ----------
    seed : int or None, default=None
        None reads every draw from the operating system's entropy.

    Notes
    -----
    A seeded source holds a hash of its seed. ``bind`` adds arrays and settings to it. Every method
    that draws first adds its inputs (values, scores, scales, sizes), and the generator of the draw
    is seeded by the hash. Equal calls repeat their draws. A call with another input, scale or
    history gets independent ones: noise shared by two releases would cancel in their difference,
    and reveal the difference of the records exactly. Draws without an input, such as those of
    secret batches, depend on the objects that were bound before.
    """

    # Whether draws are exact, and so accounted for as certified noise.
    is_certified = False

    def __init__(self, seed: int | None = None) -> None:
        self._hash = None
        if seed is not None:
            self._hash = hashlib.blake2b(key=int(seed).to_bytes(16, "little"))

    def bind(self, *parts: object) -> Self:
        """Make all further draws of a seeded source depend on the given objects.

        Parameters
        ----------
        *parts : ndarray, number, str or any object that joblib can hash
            Records, codes, settings: public or private.

        Returns
        -------
        self : NoiseSource
        """
        if self._hash is not None:
            for part in parts:
                _feed(self._hash, part)
        return self

    def __deepcopy__(self, memo):
        # A hash object can only be copied by its own method.
        copied = copy.copy(self)
        copied._hash = None if self._hash is None else self._hash.copy()
        return copied

    @property
    def description(self) -> str:
        """One phrase for a privacy report."""
        return "operating system entropy" if self._hash is None else SEEDED

    def add(self, values: np.ndarray, scale: float, kind: str) -> np.ndarray:
        """Return values with independent noise on each, on a grid finer than ``scale`` / 1000.

        Parameters
        ----------
        values : ndarray of float64
        scale : float
            Standard deviation of Gaussian noise, or b of Laplace noise; 0 for no noise.
        kind : {"gaussian", "laplace"}

        Returns
        -------
        ndarray of the same shape
            A copy of ``values`` without noise.
        """
        if scale == 0:
            return values.copy()
        self.bind(kind, scale, values)
        noisy = self._noisy(values, scale, kind)
        observer = _observer_of(self)
        return noisy if observer is None else observer.added(values, scale, kind, noisy)

    def name(self, names: Sequence) -> Self:
        """Bind the names of the values of the next release, which may depend on the records."""
        observer = _observer_of(self)
        if observer is not None:
            observer.named(names)
        return self.bind("names", names)

    def largest(self, scores: np.ndarray, scale: float, count: int) -> np.ndarray:
        """Return the indices of the largest scores after Gumbel noise, by decreasing noisy score.

        Parameters
        ----------
        scores : ndarray of float64 of shape (n,)
            Finite.
        scale : float
            Scale of the noise; with 0 there is no noise, and ties go to the first of equal scores.
        count : int
            Number of indices.

        Returns
        -------
        ndarray of int64 of shape (count,)
        """
        if scale == 0:
            return _first(-scores, count)
        self.bind("largest", scale, count, scores)
        indices = self._selected(scores, scale, count)
        observer = _observer_of(self)
        return indices if observer is None else observer.selected(scores, scale, indices)

    def respond(self, codes: np.ndarray, table: np.ndarray, epsilon: float) -> np.ndarray:
        """Return randomized categories.

        Parameters
        ----------
        codes : ndarray of int of shape (n,)
            True categories.
        table : ndarray of shape (k, k)
            Probability of each released category (columns) given each true one (rows).
        epsilon : float
            Privacy budget of the table, in nats.

        Returns
        -------
        ndarray of int64 of shape (n,)
        """
        self.bind("respond", table, epsilon, codes)
        edges = np.cumsum(table, axis=1)[codes]
        # The last edge is 1 up to rounding; a draw above it is in the last category.
        return (self.uniform((len(codes), 1)) > edges[:, :-1]).sum(axis=1)

    def covers(self, inside: np.ndarray, outside: np.ndarray, epsilon: float) -> np.ndarray:
        """Draw whether each randomized answer is a true one.

        Parameters
        ----------
        inside, outside : ndarray of int of shape (n,)
            Numbers m of true answers and o of false answers.
        epsilon : float
            Privacy budget, in nats: a true answer is e^ε times as likely as a false one.

        Returns
        -------
        ndarray of bool of shape (n,)
            True with probability m e^ε / (m e^ε + o).
        """
        self.bind("covers", inside, outside, epsilon)
        weights = inside + outside * math.exp(-epsilon)
        return self.uniform(np.shape(inside)) * weights < inside

    @property
    def public(self) -> "NoiseSource":
        """A source for draws on which no guarantee depends, possibly in floating point."""
        return self

    def uniform(self, size: int | tuple[int, ...]) -> np.ndarray:
        """Draw uniforms in the open interval (0, 1), on a symmetric grid of 52 bits."""
        observer, draws = _OBSERVER.get(), self._uniform(size)
        return draws if observer is None else observer.uniform(draws)

    def _uniform(self, size):
        count = int(np.prod(size, dtype=np.int64))
        words = self._words(count)
        # The half step keeps the logarithm and the normal quantile finite. With 53 bits the sum
        # would be rounded, up to 1.
        return (((words >> np.uint64(12)).astype(np.float64) + 0.5) * 2.0**-52).reshape(size)

    def _words(self, count):
        """Return random 64-bit integers."""
        if self._hash is None:
            return np.frombuffer(os.urandom(8 * count), dtype=np.uint64)
        # The count makes each draw part of the history of the next one.
        self.bind(count)
        bits = np.random.PCG64DXSM(int.from_bytes(self._hash.digest(), "little"))
        return np.random.Generator(bits).integers(2**64, size=count, dtype=np.uint64)

    def normal(self, size: int | tuple[int, ...]) -> np.ndarray:
        """Draw standard normals by inversion."""
        from scipy.special import ndtri

        return ndtri(self._uniform(size))

    def laplace(self, size: int | tuple[int, ...]) -> np.ndarray:
        """Draw standard Laplace variables (scale 1): a difference of two exponentials."""
        return np.log(self._uniform(size)) - np.log(self._uniform(size))

    def integers(self, high: int | np.ndarray, size: int | tuple[int, ...]) -> np.ndarray:
        """Draw integers uniform on ``range(high)``, up to a bias of ``high`` / 2**52."""
        self.bind("integers", high)
        return np.floor(self.uniform(size) * high).astype(np.int64)

    def _noisy(self, values, scale, kind):
        noise = scale * {"gaussian": self.normal, "laplace": self.laplace}[kind](values.shape)
        # Adding a large value would lose low bits of the noise. The difference of a value and its
        # grid point is exact and at most half a step, so only it is added to the noise.
        coarse = on_grid(values, scale)
        # An infinite value, such as the score of a candidate that failed, has no remainder.
        rest = np.subtract(values, coarse, out=np.zeros_like(noise), where=np.isfinite(coarse))
        return coarse + on_grid(rest + noise, scale)

    def _selected(self, scores, scale, count):
        # Differences from the largest score are exact for large scores, which decide.
        gaps = scores.max(initial=-np.inf) - scores
        return _first(gaps + scale * np.log(-np.log(self._uniform(scores.shape))), count)

    def choice(self, n: int, size: int) -> np.ndarray:
        """Draw ``size`` distinct indices from ``range(n)``, in random order.

        Returns
        -------
        ndarray of int64 of shape (size,)
            All sequences are equally likely, up to a relative n / 2**52. With ``size`` equal to
            ``n`` the indices are sorted.
        """
        if not 0 <= size <= n:
            raise PublicValueError(f"size must be between 0 and n = {n}, got {size}.")
        self.bind("choice", n, size)
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
        """Draw ``count`` independent rows of ``size`` distinct indices, each as in `choice`.

        Returns
        -------
        ndarray of int64 of shape (count, size)
        """
        if not 0 <= size <= n:
            raise PublicValueError(f"size must be between 0 and n = {n}, got {size}.")
        self.bind("choices", n, size)
        return _observed_draw(n, self._choices(n, size, count))

    def _choices(self, n, size, count):
        if size * size > n:
            rows = [self._choice(n, size) for _ in range(count)]
            return np.array(rows, dtype=np.int64).reshape(count, size)
        # A row with a repeated index is redrawn as a whole, at most every other row on average.
        drawn = np.empty((count, size), dtype=np.int64)
        rows = np.arange(count)
        while len(rows):
            drawn[rows] = self.integers(n, (len(rows), size))
            ordered = np.sort(drawn[rows], axis=1)
            rows = rows[(np.diff(ordered, axis=1) == 0).any(axis=1)]
        return drawn


class CertifiedNoise(NoiseSource):
    """Noise source with exactly the distribution that is accounted for.

    Values and scores are rounded to a grid of step ``scale`` / 2**26 and moved to within 2**24
    scales of 0. Noise is discrete Gaussian or discrete Laplace on that grid, selections are those
    of the exponential mechanism, and all draws, also of integers, are exact. There are no draws in
    floating point. See :ref:`certified_noise` for proofs.

    Raises
    ------
    PublicImportError
        OpenDP is not installed.
    """

    is_certified = True

    def __init__(self) -> None:
        require_opendp()
        super().__init__()

    @property
    def description(self) -> str:
        """One phrase for a privacy report."""
        return CERTIFIED

    @property
    def public(self) -> NoiseSource:
        """A source for draws on which no guarantee depends, possibly in floating point."""
        return NoiseSource()

    def respond(self, codes: np.ndarray, table: np.ndarray, epsilon: float) -> np.ndarray:
        """Return randomized categories, as `NoiseSource.respond`, by the budget only.

        Each true category has at most e^ε times the probability of each other one.
        """
        others = np.full(len(codes), len(table) - 1)
        if len(table) == 1:
            return codes.astype(np.int64)
        other = self.integers(len(table) - 1, len(codes))
        other = other + (other >= codes)
        return np.where(self.covers(np.ones_like(others), others, epsilon), codes, other)

    def covers(self, inside: np.ndarray, outside: np.ndarray, epsilon: float) -> np.ndarray:
        """Draw whether an answer is a true one, as `NoiseSource.covers`."""
        if math.isinf(epsilon):
            return np.asarray(inside) > 0
        high, low = odds(epsilon)
        inside, outside = np.asarray(inside, dtype=np.int64), np.asarray(outside, dtype=np.int64)
        # In floats the products do not overflow.
        if (inside * float(high) + outside * float(low)).max(initial=0) >= 2.0**62:
            raise PublicOverflowError(
                f"epsilon={epsilon:g} with this number of answers needs odds of more than 62 bits."
            )
        total = inside * high + outside * low
        return self.integers(total, total.shape) < inside * high

    def integers(self, high: int | np.ndarray, size: int | tuple[int, ...]) -> np.ndarray:
        """Draw integers uniform on ``range(high)``, without bias."""
        observer, draws = _OBSERVER.get(), uniform_integers(high, size)
        if observer is None:
            return draws
        # An observer may repeat the draw in another range, as a share of it.
        shares = (draws + NoiseSource()._uniform(size)) / high
        repeated = observer.uniform(shares)
        return draws if repeated is shares else np.floor(repeated * high).astype(np.int64)

    def _choice(self, n, size):
        return np.arange(n) if size == n else self._first_distinct(n, size)

    def _uniform(self, size):
        raise PublicTypeError("Certified noise is of integers: it has no draws in floating point.")

    def _noisy(self, values, scale, kind):
        draw = {"gaussian": discrete_gaussian, "laplace": discrete_laplace}[kind]
        noise = draw(values.size, GRID_BITS).reshape(values.shape)
        return (grid_integers(values, scale) + noise) * math.ldexp(scale, -GRID_BITS)

    def _selected(self, scores, scale, count):
        return exponential_choices(grid_integers(scores, scale), GRID_BITS, count)


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


def _feed(digest, part):
    """Add an object to a hash, with type and length, so that different sequences differ."""
    if isinstance(part, np.generic):
        part = part.item()
    if isinstance(part, np.ndarray) and not part.dtype.hasobject:
        name = f"array {part.dtype.str} {part.shape}"
        content = np.ascontiguousarray(part).reshape(-1).view(np.uint8)
    elif part is None or isinstance(part, str | int | float):
        name, content = type(part).__name__, str(part).encode()
    else:
        # A copy has the memory layout of a clone's parameter, and so the same hash.
        import joblib

        name, content = "object", joblib.hash(copy.deepcopy(part)).encode()
    digest.update(f"{name} {len(content)} ".encode())
    digest.update(content)


def noise_source(seed: int | None = None, *bound: object, certified: bool = False) -> NoiseSource:
    """Return a noise source, in floating point or certified.

    Parameters
    ----------
    seed : None or int
        None for the operating system's entropy.
    *bound : ndarray, number, str or any object that joblib can hash
        Purpose and records on which the draws of a seeded source depend, as in `NoiseSource.bind`.
    certified : bool, default=False
        Whether draws are exact, which requires OpenDP and no seed.
    """
    if certified:
        return CertifiedNoise()
    return NoiseSource(seed).bind(*bound)


def on_grid(values: np.ndarray, scale: float) -> np.ndarray:
    """Round released values to a multiple of a power of two, at most a 1024th of the noise scale.

    The low bits of a floating-point sum can reveal the value before noise [1]_. Rounding is
    post-processing of the real-valued release, and on this grid each floating-point value is within
    ROUNDING of it in total variation.

    Parameters
    ----------
    values : ndarray
        Values with noise.
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
    # A grid finer than the floats changes nothing, but the division may overflow.
    with np.errstate(over="ignore", divide="ignore", invalid="ignore"):
        multiples = np.rint(values / step)
    return np.where(np.isfinite(multiples), multiples * step, values)
