"""Composition of privacy losses on a grid, between bounds that hold for floating point.

The privacy loss of a release is a distribution on the multiples of a step, with a mass at infinity;
that of independent releases is their convolution, δ(ε) = m∞ + E (1 − e^{ε − loss})₊. Each
distribution is tilted, p(l) ∝ P(l) e^{θl}, the tilted ones are convolved by Fourier transforms, and
the product of their masses M and the tilt are undone in the sum,
δ(ε) − m∞ = M e^{−θε} Σ w(l − ε) p(l), w(x) = e^{−θx} (1 − e^{−x}) over x > 0.
A transform has an error that is relative to the largest values; without a tilt, at δ = 1e-12 and
60000 releases, it is larger than δ. (``dp_accounting`` counts the truncated tails but not this
error, ``prv_accountant`` refuses a small δ.)

With u = 2^−53, and with w ≤ 1 / (1 + θ) and |w'| ≤ 1, what is computed differs from the sum by

- the mass outside of a window, at most ω by Chernoff's bound, which the transform wraps into it;
- rounding errors ξ of the tilted probabilities and of their logarithms, (1 + Σ p ξ)^n − 1 together
  for n releases, as the total variations of the factors of a convolution add up;
- errors of the transforms, in lengths that are powers of two. Every value f of one is a sum over
  paths of its input times factors of modulus 1, with one product by a rounded root of unity and one
  sum per level. Their relative errors, √5 u (Brent, Percival and Zimmermann, "Error bounds on
  complex floating-point multiplication", Mathematics of Computation 2007), 2u for the root, and u,
  are below 8u, and twice that if a real transform is made of a complex one of half the length, so
  that f̂ is within e = 16u log₂(N) Σ p of f. Hence |Π f̂^n − Π f^n| ≤
  Π (|f̂| + e)^n Σ n e / (|f̂| + e) by Bernoulli's inequality. Powers by repeated products add
  relative errors of √5 u for each factor, and the inverse transform e of the mean modulus;
- rounding in w, in its sum, in M and in the exponent, each in the units u of its terms.

All of them are added for an upper bound, and subtracted for a lower one.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from scipy.fft import irfft, rfft

from sklearn_dpgen.accounting._profiles import smallest_passing

__all__ = ["ComposedLosses", "LossDistribution"]

_UNIT = 2.0**-53
# Errors of one level of a transform and of one product of complex numbers, in units.
_LEVEL, _PRODUCT = 16.0, 3.0
# Probability, under the tilted distribution, outside of the window of a convolution. Half of what
# is counted, which leaves room for the rounding of Chernoff's bound and for underflow.
_WINDOW_MASS = 1e-13
# Exponents of Chernoff's bound, over the standard deviation.
_CHERNOFF = 2.0 ** np.arange(5)
# Largest number of tilts, each used for a range of the requested values of epsilon.
_MOST_TILTS = 5
# Logarithm of a probability below which values need not be accurate.
_LOG_NOTHING = -45.0


@dataclass(frozen=True)
class LossDistribution:
    """Distribution of the privacy loss of a release on a grid.

    Parameters
    ----------
    places : ndarray of int
        Losses over the step of the grid, without repetitions.
    log_probabilities : ndarray of the same shape
        Finite.
    infinity_mass : float
        Probability of an infinite loss.
    """

    places: np.ndarray
    log_probabilities: np.ndarray
    infinity_mass: float = 0.0

    @classmethod
    def of(
        cls, places: np.ndarray, probabilities: np.ndarray, infinity_mass: float = 0.0
    ) -> "LossDistribution":
        """Return the distribution with the probabilities of equal places added up."""
        kept = probabilities > 0
        places, at = np.unique(places[kept], return_inverse=True)
        return cls(places, np.log(np.bincount(at, probabilities[kept])), infinity_mass)


@dataclass(frozen=True)
class ComposedLosses:
    """Sum of independent privacy losses on one grid.

    Parameters
    ----------
    step : float
        In nats.
    parts : tuple of LossDistribution
    times : tuple of int
        Number of uses of each part.
    """

    step: float
    parts: tuple[LossDistribution, ...]
    times: tuple[int, ...]

    @property
    def infinity_mass(self) -> float:
        """Probability of an infinite loss."""
        if any(part.infinity_mass >= 1 for part in self.parts):
            return 1.0
        pairs = zip(self.parts, self.times, strict=True)
        return -math.expm1(sum(n * math.log1p(-part.infinity_mass) for part, n in pairs))

    @property
    def _around(self):
        """Relative rounding of the probability of an infinite loss, and of a sum with it."""
        return 8 * _UNIT * (1 + len(self.parts))

    def delta(self, epsilon: float) -> float:
        """Return an upper bound of δ(ε), with the best tilt for this ε ≥ 0."""
        return self._bounds(self._tilt_at(epsilon))(epsilon)[1]

    def deltas(self, epsilons: np.ndarray) -> np.ndarray:
        """Return upper bounds of δ at increasing ε ≥ 0, with one tilt for each of a few ranges."""
        far = self._best_tilt(lambda tilt: (self._log_factor(tilt) - _LOG_NOTHING) / tilt)
        last = min(epsilons[-1], (self._log_factor(far) - _LOG_NOTHING) / far)
        edges = np.linspace(epsilons[0], max(last, epsilons[0]), _MOST_TILTS + 1)
        part_of = np.clip(np.searchsorted(edges, epsilons, side="right") - 1, 0, _MOST_TILTS - 1)
        found = np.empty(len(epsilons))
        for part in np.unique(part_of):
            bounds = self._bounds(self._tilt_at((edges[part] + edges[part + 1]) / 2))
            own = part_of == part
            found[own] = [bounds(epsilon)[1] for epsilon in epsilons[own]]
        return np.minimum.accumulate(found)

    def epsilon(self, delta: float) -> float:
        """Return an ε ≥ 0 with δ(ε) at most ``delta``."""
        if self.infinity_mass * (1 + self._around) > delta:
            return math.inf
        bounds, chernoff, _ = self._near(delta)
        if bounds(0.0)[1] <= delta:
            return 0.0
        guess = max(chernoff, self.step)
        return smallest_passing(lambda epsilon: bounds(epsilon)[1] <= delta, guess, rtol=1e-9)

    def least_epsilon(self, delta: float) -> float:
        """Return an ε with δ(ε) above ``delta``, or 0."""
        if self.infinity_mass * (1 - self._around) > delta:
            return math.inf
        bounds, high, tilt = self._near(delta)
        # The lower bound of δ is void far from where its tilt is the best.
        for reach in 2.0 ** np.arange(9) / tilt:
            low = max(high - reach, 0.0)
            if bounds(low)[0] > delta:
                break
        else:
            return 0.0
        while high - low > 1e-9 * high:
            middle = (low + high) / 2
            low, high = (middle, high) if bounds(middle)[0] > delta else (low, middle)
        return low

    def _near(self, delta):
        """Return bounds that are accurate where δ(ε) is ``delta``, Chernoff's ε, and the tilt."""
        log_delta = math.log(max(delta - self.infinity_mass, 1e-300))
        tilt = self._best_tilt(lambda tilt: (self._log_factor(tilt) - log_delta) / tilt)
        return self._bounds(tilt), (self._log_factor(tilt) - log_delta) / tilt, tilt

    def _log_mgf(self, tilt):
        return sum(
            n * _log_sum_exp(part.log_probabilities + tilt * (self.step * part.places))
            for part, n in zip(self.parts, self.times, strict=True)
        )

    def _log_factor(self, tilt):
        """Return log F with δ(ε) ≤ F e^{−θε}: M times the largest weight, θ^θ / (1 + θ)^(1 + θ)."""
        return self._log_mgf(tilt) - math.log1p(tilt) - tilt * math.log1p(1 / tilt)

    def _tilt_at(self, epsilon):
        return self._best_tilt(lambda tilt: self._log_factor(tilt) - tilt * epsilon)

    def _best_tilt(self, objective):
        from scipy.optimize import minimize_scalar

        # The scale of the loss gives the range; any tilt is valid, a good one is accurate.
        center = -math.log(max(self._log_mgf(1.0), self.step**2)) / 2
        found = minimize_scalar(
            lambda log_tilt: objective(math.exp(log_tilt)),
            bounds=(center - 7, center + 7),
            method="bounded",
            options={"xatol": 0.05},
        )
        return math.exp(found.x)

    def _bounds(self, tilt: float) -> Callable[[float], tuple[float, float]]:
        """Return the function of ε ≥ 0 that bounds δ(ε) from below and above."""
        logs, tilted, log_masses, variation = [], [], [], 0.0
        for part, n in zip(self.parts, self.times, strict=True):
            moved = tilt * (self.step * part.places)
            exponents = part.log_probabilities + moved
            log_mass = _log_sum_exp(exponents)
            exponents -= log_mass
            p = np.exp(exponents)
            rounding = 4 * (1 + np.abs(moved) + np.abs(exponents) + abs(log_mass))
            variation += n * _UNIT * float(p @ rounding)
            logs.append(exponents)
            tilted.append(p)
            log_masses.append(n * log_mass)
        start, n_places, lost = self._window(logs, tilted)
        levels = max(math.ceil(math.log2(n_places)), 4)
        density, error, wraps = self._convolved(tilted, levels)
        density = np.roll(density, -(start % len(density)))[:n_places]
        losses = self.step * (start + np.arange(n_places))
        lost = (lost + math.expm1(variation + wraps)) / (1 + tilt)
        lost += (2 * max(losses[-1], 0.0) + 16) * _UNIT
        log_total = math.fsum(log_masses)
        slack = 4 * _UNIT * (1 + math.fsum(map(abs, log_masses)))
        infinity_mass, around = self.infinity_mass, self._around

        def bounds(epsilon):
            excess = losses[np.searchsorted(losses, epsilon, side="right") :] - epsilon
            weights = np.exp(-tilt * excess) * -np.expm1(-excess)
            tail = weights @ density[n_places - len(excess) :]
            off = error * weights.sum() + lost + len(excess) * _UNIT * tail
            exponent, room = log_total - tilt * epsilon, slack + 4 * _UNIT * tilt * epsilon
            low = math.exp(min(exponent - room, 700.0)) * max(tail - off, 0.0)
            # The tail with what may be lost of it is positive.
            if exponent + room + math.log(tail + off) >= 0:
                return low, 1.0
            high = math.exp(exponent + room) * (tail + off)
            return (infinity_mass + low) * (1 - around), (infinity_mass + high) * (1 + around)

        return bounds

    def _window(self, logs, tilted):
        """Return the first place of a window, the number of its places, and the mass outside."""
        means = [float(p @ part.places) for p, part in zip(tilted, self.parts, strict=True)]
        off = [part.places - mean for part, mean in zip(self.parts, means, strict=True)]
        deviation = math.sqrt(
            sum(n * float(p @ x**2) for n, p, x in zip(self.times, tilted, off, strict=True))
        )
        pairs = [*zip(self.parts, self.times, strict=True)]
        lowest = sum(n * int(part.places.min()) for part, n in pairs)
        highest = sum(n * int(part.places.max()) for part, n in pairs)
        if highest - lowest < 2**12:
            return lowest, highest - lowest + 1, 0.0
        center = sum(n * mean for n, mean in zip(self.times, means, strict=True))
        ends = []
        for sign in (-1, 1):
            # P(S ≥ a) ≤ E exp(s (S − a)).
            reach = math.inf
            for s in _CHERNOFF / max(deviation, 1e-6):
                log_moment = sum(
                    n * _log_sum_exp(x + sign * s * place)
                    for n, x, place in zip(self.times, logs, off, strict=True)
                )
                reach = min(reach, (log_moment + math.log(2 / _WINDOW_MASS)) / s)
            ends.append(center + sign * reach)
        first, last = max(lowest, math.floor(ends[0])), min(highest, math.ceil(ends[1]))
        return first, last - first + 1, 2 * _WINDOW_MASS

    def _convolved(self, tilted, levels):
        """Return the convolution modulo 2^levels, the error of each value, and that of wrapping."""
        size = 2**levels
        spectrum, log_modulus, share, wraps = 1.0, 0.0, 0.0, 0.0
        for part, p, n in zip(self.parts, tilted, self.times, strict=True):
            transform = rfft(np.bincount(part.places % size, p, size))
            error = _LEVEL * _UNIT * levels * p.sum()
            modulus = np.abs(transform) + error
            log_modulus = log_modulus + n * np.log(modulus)
            share = share + n * error / modulus
            wraps += n * _UNIT * (1 + np.ptp(part.places) / size)
            spectrum = spectrum * _power(transform, n)
        products = math.expm1(_PRODUCT * _UNIT * (sum(self.times) + len(self.times)))
        relative = np.minimum(share, 1.0) + products + _LEVEL * _UNIT * levels
        # Both halves of the spectrum, and 1 percent for the rounding of the error itself.
        error = 1.01 * 2 / size * float(np.exp(log_modulus) @ relative)
        return np.maximum(irfft(spectrum, size), 0.0), error, wraps


def _power(base, exponent):
    """Return a power by repeated products, exponent − 1 of which enter each value."""
    result = None
    while True:
        if exponent & 1:
            result = base if result is None else result * base
        exponent >>= 1
        if not exponent:
            return result
        base = base * base


def _log_sum_exp(exponents):
    largest = exponents.max()
    return largest + math.log(np.exp(exponents - largest).sum())
