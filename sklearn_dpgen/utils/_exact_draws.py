"""Certified noise: exact discrete distributions on a grid, to which values are rounded first.

The algorithms are those of Canonne, Kamath and Steinke ("The discrete Gaussian for differential
privacy", NeurIPS 2020, section 5), for scales that are powers of two, on whole arrays. No
probability is rounded: each is a ratio of integers, compared with random bits.
"""

import functools
import importlib.util
import math
import os
from fractions import Fraction

import numpy as np

from sklearn_dpgen.exceptions import (
    PublicImportError,
    PublicOverflowError,
    PublicValueError,
)

__all__ = [
    "FARTHEST_SCALES",
    "GRID_BITS",
    "bernoulli_exp",
    "discrete_gaussian",
    "discrete_laplace",
    "exponential_choices",
    "grid_integers",
    "odds",
    "require_opendp",
    "uniform_integers",
]

_WORD = 64
_LARGEST = np.uint64(2**64 - 1)
# Limit that keeps the product of rounds and scale from overflowing; its probability is e^-(2^24).
_MOST_ROUNDS = 2**24


def _random_bits(n_bits, count):
    """Return uniform integers of ``n_bits`` bits, as uint64."""
    words = np.frombuffer(os.urandom(8 * count), dtype=np.uint64)
    return words >> np.uint64(_WORD - n_bits)


def uniform_integers(high: int | np.ndarray, size: int | tuple[int, ...]) -> np.ndarray:
    """Draw integers uniform on ``range(high)``, without bias.

    Parameters
    ----------
    high : int or ndarray of int
        From 1 to 2**63; broadcast to ``size``.
    size : int or tuple of int

    Returns
    -------
    ndarray of int64
        Words beyond the last multiple of ``high`` are drawn again.
    """
    bounds = np.broadcast_to(np.asarray(high, dtype=np.uint64), size).ravel()
    drawn = np.empty(len(bounds), dtype=np.uint64)
    left = np.arange(len(bounds))
    while len(left):
        words, own = _random_bits(_WORD, len(left)), bounds[left]
        rest = words % own
        fits = words - rest <= _LARGEST - (own - np.uint64(1))
        drawn[left[fits]] = rest[fits]
        left = left[~fits]
    return drawn.astype(np.int64).reshape(size)


def bernoulli_exp(whole: np.ndarray, part: np.ndarray, n_bits: int) -> np.ndarray:
    """Draw True with probability exp(−γ), γ = whole + part / 2**n_bits.

    Parameters
    ----------
    whole, part : ndarray of uint64 of shape (n,)
        ``part`` at most 2**n_bits.
    n_bits : int
        At most 63.

    Returns
    -------
    ndarray of bool of shape (n,)

    Notes
    -----
    For γ ≤ 1, among independent events of probability γ/1, γ/2, γ/3, ..., the first k − 1 happen
    with probability γ^(k−1) / (k−1)!. So the number of the first event that does not happen is odd
    with probability 1 − γ + γ²/2! − ... = exp(−γ). A larger γ needs further draws of exp(−1).
    """
    is_drawn = _bernoulli_exp_part(part, n_bits)
    left = np.flatnonzero(is_drawn & (whole > 0))
    rounds = whole[left]
    one = np.uint64(1 << n_bits)
    while len(left):
        goes_on = _bernoulli_exp_part(np.full(len(left), one), n_bits)
        is_drawn[left[~goes_on]] = False
        rounds = rounds - np.uint64(1)
        goes_on &= rounds > 0
        left, rounds = left[goes_on], rounds[goes_on]
    return is_drawn


def _bernoulli_exp_part(part, n_bits):
    """Draw True with probability exp(−part / 2**n_bits), for ``part`` of at most 2**n_bits."""
    is_odd = np.ones(len(part), dtype=bool)
    left, number = np.arange(len(part)), 1
    while len(left):
        happens = _random_bits(n_bits, len(left)) < part[left]
        left = left[happens]
        if number > 1:
            left = left[uniform_integers(number, len(left)) == 0]
        is_odd[left] = ~is_odd[left]
        number += 1
    return is_odd


def _geometric(count):
    """Return the number of draws of exp(−1) that succeed before the first failure."""
    found, left = np.zeros(count, dtype=np.int64), np.arange(count)
    while len(left):
        left = left[_bernoulli_exp_part(np.full(len(left), np.uint64(2)), 1)]
        found[left] += 1
        if len(left) and found[left[0]] > _MOST_ROUNDS:
            raise PublicOverflowError("A draw was larger than the scale by a factor of 2**24.")
    return found


def discrete_laplace(count: int, n_bits: int) -> np.ndarray:
    """Draw integers k with probability proportional to exp(−|k| / t), t = 2**n_bits.

    Parameters
    ----------
    count : int
    n_bits : int
        From 1 to 30.

    Returns
    -------
    ndarray of int64 of shape (count,)

    Notes
    -----
    U, uniform on range(t) and kept with probability exp(−U/t), plus t times a geometric number, is
    geometric with ratio exp(−1/t). A random sign is added; negative zeros are drawn again.
    """
    drawn = np.empty(count, dtype=np.int64)
    left = np.arange(count)
    while len(left):
        low = _random_bits(n_bits, len(left))
        kept = np.flatnonzero(_bernoulli_exp_part(low, n_bits))
        size = low[kept].astype(np.int64) + (_geometric(len(kept)) << n_bits)
        is_negative = _random_bits(1, len(kept)) == 1
        fits = ~(is_negative & (size == 0))
        drawn[left[kept[fits]]] = np.where(is_negative, -size, size)[fits]
        left = np.delete(left, kept[fits])
    return drawn


def discrete_gaussian(count: int, n_bits: int) -> np.ndarray:
    """Draw integers k with probability proportional to exp(−k² / (2 s²)), s = 2**n_bits.

    Parameters
    ----------
    count : int
    n_bits : int
        From 1 to 30.

    Returns
    -------
    ndarray of int64 of shape (count,)

    Notes
    -----
    Draws k of :func:`discrete_laplace` with scale s are kept with probability
    exp(−(|k| − s)² / (2 s²)).
    """
    drawn = np.empty(count, dtype=np.int64)
    left = np.arange(count)
    while len(left):
        found = discrete_laplace(len(left), n_bits)
        fits = _bernoulli_exp_square(np.abs(np.abs(found) - (1 << n_bits)), 2 * n_bits + 1)
        drawn[left[fits]] = found[fits]
        left = left[~fits]
    return drawn


def _bernoulli_exp_square(size, n_bits):
    """Draw True with probability exp(−size² / 2**n_bits)."""
    if len(size) and size.max() >= 1 << 31:
        # Squares beyond 64 bits are needed in at most one of 10**13 draws.
        size = size.astype(object)
    square = size * size
    whole, part = square >> n_bits, square & ((1 << n_bits) - 1)
    return bernoulli_exp(whole.astype(np.uint64), part.astype(np.uint64), n_bits)


def exponential_choices(scores: np.ndarray, n_bits: int, count: int) -> np.ndarray:
    """Draw distinct indices i, one after another, each with weight exp(scores[i] / 2**n_bits).

    Parameters
    ----------
    scores : ndarray of int64 of shape (n,)
        From −2**61 to 2**61.
    n_bits : int
    count : int
        At most n.

    Returns
    -------
    ndarray of int64 of shape (count,)
        In the order in which they were drawn.

    Notes
    -----
    A uniform proposal is accepted with probability exp(−gap), its gap to the largest remaining
    score. The first accepted one has the right distribution, after at most n proposals on average.
    """
    left, chosen = np.arange(len(scores)), []
    for _ in range(count):
        gaps = scores[left].max() - scores[left]
        whole = (gaps >> n_bits).astype(np.uint64)
        part = (gaps & ((1 << n_bits) - 1)).astype(np.uint64)
        accepted = np.empty(0, dtype=np.int64)
        while not len(accepted):
            proposed = uniform_integers(len(left), len(left))
            accepted = proposed[bernoulli_exp(whole[proposed], part[proposed], n_bits)]
        chosen.append(left[accepted[0]])
        left = np.delete(left, accepted[0])
    return np.array(chosen, dtype=np.int64)


# How a certified source is described in a privacy report.
# The scale of the noise is 2**GRID_BITS steps of the grid.
GRID_BITS = 26
# Values beyond this distance are moved to it. A value that was rounded once to a float is within an
# eighth of a step of the grid.
FARTHEST_SCALES = 2**24
_FARTHEST = FARTHEST_SCALES << GRID_BITS
# Bits of the odds of an answer; sums of the integers are below 2**63.
_ODDS_BITS, _MOST_ODDS_BITS = 24, 50


def grid_integers(values: np.ndarray, scale: float) -> np.ndarray:
    """Return values as multiples of ``scale`` / 2**26, at most 2**50 of them.

    Parameters
    ----------
    values : ndarray of float64
    scale : float
        Positive.

    Returns
    -------
    ndarray of int64
        Within five eighths of a step: one half by rounding, at most an eighth by the division.

    Raises
    ------
    PublicValueError
        A value is NaN, or the scale has no grid.
    """
    if not 2.0**-900 <= scale <= 2.0**900:
        raise PublicValueError(
            f"The scale of certified noise must be from 2**-900 to 2**900, got {scale!r}."
        )
    if np.isnan(values).any():
        raise PublicValueError("Values must not be NaN.")
    with np.errstate(over="ignore"):
        steps = values / scale * 2.0**GRID_BITS
    return np.rint(np.clip(steps, -_FARTHEST, _FARTHEST)).astype(np.int64)


@functools.lru_cache(maxsize=1024)
def odds(epsilon: float) -> tuple[int, int]:
    """Return integers whose ratio is at most e^ε, and close to it.

    Parameters
    ----------
    epsilon : float
        Non-negative and finite.

    Returns
    -------
    high, low : int
        A partial sum of the series of e^ε, in fractions, is below it; its rounding down has a
        relative error of at most 2**-24.
    """
    if epsilon > 64:
        return 1 << _MOST_ODDS_BITS, 1
    exact, term, total = Fraction(epsilon), Fraction(1), Fraction(1)
    number = 0
    while term * 2**64 > total or number < exact:
        number += 1
        # Terms are rounded down, which keeps the sum below e^ε and the fractions short.
        term = Fraction(math.floor(term * exact / number * 2**128), 2**128)
        total += term
    bits = _ODDS_BITS if epsilon <= 18 else 0
    return min(math.floor(total * 2**bits), 1 << _MOST_ODDS_BITS), 1 << bits


def require_opendp() -> None:
    """Raise an error that says how to install OpenDP, unless it is installed."""
    if importlib.util.find_spec("opendp") is None:
        raise PublicImportError(
            "noise='certified' needs OpenDP: pip install 'sklearn-dpgen[opendp]'"
        )
