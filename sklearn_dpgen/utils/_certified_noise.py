"""Noise that is exact on a computer: integers on a grid, to which values are rounded before."""

import functools
import importlib.util
import math
from fractions import Fraction

import numpy as np

from sklearn_dpgen.exceptions import (
    PublicImportError,
    PublicOverflowError,
    PublicTypeError,
    PublicValueError,
)
from sklearn_dpgen.utils._exact_draws import (
    discrete_gaussian,
    discrete_laplace,
    exponential_choices,
    uniform_integers,
)
from sklearn_dpgen.utils._random import NoiseSource

__all__ = [
    "CERTIFIED",
    "FARTHEST_SCALES",
    "GRID_BITS",
    "CertifiedNoise",
    "grid_integers",
    "odds",
    "require_opendp",
]

# How a certified source is described in a privacy report.
CERTIFIED = "certified: exact draws from operating system entropy, on values rounded before"

# The scale of the noise is 2**GRID_BITS steps of the grid.
GRID_BITS = 26
# Further values are moved to it; a value that was rounded once to a float is still within an eighth
# of a step.
FARTHEST_SCALES = 2**24
_FARTHEST = FARTHEST_SCALES << GRID_BITS
_DRAWS = {"gaussian": discrete_gaussian, "laplace": discrete_laplace}
# Of the odds of an answer: integers below 2**63 add up to what is drawn from.
_ODDS_BITS, _MOST_ODDS_BITS = 24, 50


class CertifiedNoise(NoiseSource):
    """Noise whose distribution on a computer is exactly the one that is priced.

    Values and scores are rounded to a grid of step ``scale`` / 2**26 and moved to within 2**24
    scales of 0. Noise is then discrete Gaussian or discrete Laplace on that grid, selections are
    those of the exponential mechanism, and all are drawn without an error, as are integers. There
    are no draws in floating point. See :ref:`certified_noise` for proofs.

    Raises
    ------
    ImportError
        Without OpenDP.
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
        """A source for draws that no guarantee depends on, and which may be in floating point."""
        return NoiseSource()

    def respond(self, codes: np.ndarray, table: np.ndarray, epsilon: float) -> np.ndarray:
        """Return randomized categories, as `NoiseSource.respond`, by the budget alone.

        Each true one has at most e^ε times the probability of each other one.
        """
        others = np.full(len(codes), len(table) - 1)
        if len(table) == 1:
            return codes.astype(np.int64)
        other = self.integers(len(table) - 1, len(codes))
        other = other + (other >= codes)
        return np.where(self.covers(np.ones_like(others), others, epsilon), codes, other)

    def covers(self, inside: np.ndarray, outside: np.ndarray, epsilon: float) -> np.ndarray:
        """Draw whether an answer is one of those that are true, as `NoiseSource.covers`."""
        if math.isinf(epsilon):
            return np.asarray(inside) > 0
        high, low = odds(epsilon)
        inside, outside = np.asarray(inside, dtype=np.int64), np.asarray(outside, dtype=np.int64)
        # As floats they do not overflow.
        if (inside * float(high) + outside * float(low)).max(initial=0) >= 2.0**62:
            raise PublicOverflowError(
                f"epsilon={epsilon:g} with so many answers needs odds of more than 62 bits."
            )
        total = inside * high + outside * low
        return self.integers(total, total.shape) < inside * high

    def integers(self, high: int | np.ndarray, size: int | tuple[int, ...]) -> np.ndarray:
        """Draw integers uniform on ``range(high)``, without a bias."""
        return uniform_integers(high, size)

    def _choice(self, n, size):
        return np.arange(n) if size == n else self._first_distinct(n, size)

    def _uniform(self, size):
        raise PublicTypeError("Certified noise is of integers: it has no draws in floating point.")

    def _noisy(self, values, scale, kind):
        noise = _DRAWS[kind](values.size, GRID_BITS).reshape(values.shape)
        return (grid_integers(values, scale) + noise) * math.ldexp(scale, -GRID_BITS)

    def _selected(self, scores, scale, count):
        return exponential_choices(grid_integers(scores, scale), GRID_BITS, count)


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
        Within five eighths of a step: one half by rounding, an eighth at most by the division.

    Raises
    ------
    ValueError
        NaN among the values, or a scale without a grid.
    """
    if not 2.0**-900 <= scale <= 2.0**900:
        raise PublicValueError(
            f"The scale of certified noise must be from 2**-900 to 2**900: {scale!r}."
        )
    if np.isnan(values).any():
        raise PublicValueError("Values must not be NaN.")
    with np.errstate(over="ignore"):
        steps = values / scale * 2.0**GRID_BITS
    return np.rint(np.clip(steps, -_FARTHEST, _FARTHEST)).astype(np.int64)


@functools.lru_cache(maxsize=1024)
def odds(epsilon: float) -> tuple[int, int]:
    """Return integers whose ratio is at most e^ε, and near to it.

    Parameters
    ----------
    epsilon : float
        Not negative, finite.

    Returns
    -------
    high, low : int
        A partial sum of the series of e^ε, in fractions, is below it: rounded down it has a
        relative error of at most 2**-24.
    """
    if epsilon > 64:
        return 1 << _MOST_ODDS_BITS, 1
    exact, term, total = Fraction(epsilon), Fraction(1), Fraction(1)
    number = 0
    while term * 2**64 > total or number < exact:
        number += 1
        # A term that is rounded down keeps the sum below, and its fractions short.
        term = Fraction(math.floor(term * exact / number * 2**128), 2**128)
        total += term
    bits = _ODDS_BITS if epsilon <= 18 else 0
    return min(math.floor(total * 2**bits), 1 << _MOST_ODDS_BITS), 1 << bits


def require_opendp() -> None:
    """Raise an ImportError that says how to install OpenDP, where it is not."""
    if importlib.util.find_spec("opendp") is None:
        raise PublicImportError(
            "noise='certified' needs OpenDP: pip install 'sklearn-dpgen[opendp]'"
        )
