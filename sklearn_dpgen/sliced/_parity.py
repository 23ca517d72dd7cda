"""Targets of parity: what a fit releases of groups, and the limits that follow from it.

A step releases, with the gradient of the task and in one vector, mean features of each group, and
mean decisions if rates are compared. A linear layer maps the difference of two mean features to
that of mean outputs, and is projected on the maps whose differences are within limits. Limits and
projections read what the mechanism has paid for, and no record. Statements and proofs are in
doc/sensitivity.rst.
"""

import math
from dataclasses import dataclass, field, replace

import numpy as np
import torch
from scipy.stats import chi2

from sklearn_dpgen.domains import Ball
from sklearn_dpgen.sliced._strata import Strata
from sklearn_dpgen.utils._groups import mean_intervals
from sklearn_dpgen.utils._torch import as_array

__all__ = ["MEASURED", "GapLimits", "GroupMeans", "ParityTarget", "Targeted", "near_decisions"]

# Sensitivity of the mean features, and of the mean decisions, that a step releases, relative to
# that of its gradient: the largest is taken that noise allows. They multiply the noise of the
# gradient by 1.73, 1.22 and 1.06, and for numbers, of which no outcome is released with a step, by
# 1.41, 1.12 and 1.03. This and the next five were chosen on wages, votes, churn and visits
# (cps1988, cpssw8, psid7682, wage, tv16, fertility, wa_churn, nmes1988).
MEASURED = (1.0, 0.5, 0.25)
# Decisions are measured at logits that are raised, and lowered, by this much.
SHIFT = 0.25
# Share of the steps over which mean decisions are averaged.
WINDOW = 0.3
# Radius of the ball on which features are projected, in units of their typical length.
WIDER = 1.2
# The most that a limit moves from 0 to correct an offset, relative to the norms of the weights and
# of the difference.
LARGEST_COSINE = 0.2
# Logarithms of lengths are measured between plus and minus this.
LOG_LENGTH = 5.0
# Rates are taken to rise by at least this, per unit of logit.
LEAST_SLOPE = 0.02
# Rates are taken to be at least this, where a ratio of them is asked for.
LEAST_RATE = 0.01
# Limits apply after this many steps, and projections on them are repeated this many times.
FIRST_STEPS, SWEEPS = 5, 5


@dataclass(frozen=True)
class ParityTarget:
    """What is asked of the mean outcomes of two groups.

    Parameters
    ----------
    max_gap : float or None
        Largest distance of their means.
    min_ratio : float or None
        Smallest ratio of their means, of outcomes in [0, 1].
    of_rates : bool, default=False
        Whether outcomes are decisions for each class, whose rates are compared one by one.
    """

    max_gap: float | None = None
    min_ratio: float | None = None
    of_rates: bool = False

    @property
    def norm(self):
        """Order of the norm of a distance."""
        return math.inf if self.of_rates else 2

    def in_units_of(self, unit):
        """Return the target for outcomes that are divided by a unit."""
        return replace(self, max_gap=None if self.max_gap is None else self.max_gap / unit)

    def __str__(self):
        asked = {"max_gap": self.max_gap, "min_ratio": self.min_ratio}
        return " and ".join(f"{k}={v:g}" for k, v in asked.items() if v is not None)

    def is_missed(self, means, reach):
        """Return whether two means miss a target, wherever they are within their intervals.

        Parameters
        ----------
        means, reach : ndarray of shape (2, d)
            Means, and half of the widths of their intervals.

        Returns
        -------
        bool
        """
        if self.max_gap is not None:
            gap, spread = means[0] - means[1], np.hypot(*reach)
            if np.linalg.norm(gap, self.norm) - np.linalg.norm(spread, self.norm) > self.max_gap:
                return True
        if self.min_ratio is None:
            return False
        order = np.argsort(means, axis=0)
        low = np.take_along_axis(means + reach, order, axis=0)[0]
        high = np.take_along_axis(means - reach, order, axis=0)[1]
        return bool(np.any(low < self.min_ratio * high))

    def allowed(self, rates):
        """Return the largest difference of rates that the target allows.

        Parameters
        ----------
        rates : ndarray
            Rates of the records of both groups together.

        Returns
        -------
        ndarray of the same shape
        """
        gap = math.inf if self.max_gap is None else self.max_gap
        ratio = 0.0 if self.min_ratio is None else self.min_ratio
        return np.minimum(gap, (1 - ratio) * rates.clip(LEAST_RATE, 1))


@dataclass(frozen=True)
class GroupMeans:
    """The mean outcome of each stratum of a batch, scaled to a sensitivity.

    Outcomes are projected on a ball, and u is their distance from its centre in diameters. Where
    sizes are public, the vector holds c times the mean of u for each stratum, and one replaced
    record moves that of its stratum by at most c / k, for k records in the batch. Where groups are
    protected, it holds for each cell c / k times the sum of 2 u and the number of its records: a
    record is a vector of norm at most √2, and one replaced moves the sum by at most 2 c / k.

    Parameters
    ----------
    strata : Strata
    ball : Ball
        The ball of the outcomes.
    batch_sizes : tuple of int
    sensitivities : tuple of float
        l2 sensitivity of the vector to replacing a record of each stratum.
    """

    strata: Strata
    ball: Ball = field(repr=False)
    batch_sizes: tuple[int, ...]
    sensitivities: tuple[float, ...]

    @property
    def scales(self):
        """Factors c of each stratum, or of all cells."""
        pairs = zip(self.batch_sizes, self.sensitivities, strict=True)
        factors = np.array([size * bound for size, bound in pairs])
        return factors / 2 if self.strata.protects_cells else factors

    @property
    def _n_means(self):
        return len(self.strata.cells if self.strata.protects_cells else self.strata.sizes)

    @property
    def n_values(self):
        """Number of entries of the vector."""
        return self._n_means * (self.ball.n_features + self.strata.protects_cells)

    def vector(self, outcomes, batch, codes=None):
        """Return the vector for the outcomes of a batch.

        Parameters
        ----------
        outcomes : tensor of shape (n, d)
        batch : list of slice
            The rows of each stratum.
        codes : tensor of int of shape (n,), optional
            The private cells of protected groups.

        Returns
        -------
        tensor of shape (n_values,)
        """
        projected = self.ball.project(torch.nan_to_num(outcomes))
        center, scales = map(outcomes.new_tensor, (self.ball.center, self.scales))
        units = (projected - center) / (2 * self.ball.radius)
        if not self.strata.protects_cells:
            means = torch.stack([units[rows].mean(dim=0) for rows in batch])
            return (scales[:, None] * means).flatten()
        records = torch.cat([2 * units, torch.ones_like(units[:, :1])], dim=1)
        members = torch.arange(len(self.strata.cells), device=codes.device)[:, None] == codes
        return (scales / len(outcomes) * (members.to(records.dtype) @ records)).flatten()

    def estimates(self, released):
        """Return the mean of u in each stratum, and the share of the records that it has.

        Parameters
        ----------
        released : ndarray of shape (n_values,)
            A released vector, or the average of several.

        Returns
        -------
        units : ndarray of shape (n_strata, d)
        shares : ndarray of shape (n_strata,)
        """
        table = np.asarray(released, dtype=np.float64).reshape(self._n_means, -1)
        table = table / self.scales[:, None]
        if not self.strata.protects_cells:
            return table.clip(-0.5, 0.5), np.array(self.strata.shares)
        shares = table[:, -1].clip(1e-3, 1)
        return (table[:, :-1] / (2 * shares[:, None])).clip(-0.5, 0.5), shares

    def means(self, released):
        """Return the means in the units of the outcomes, and the shares."""
        units, shares = self.estimates(released)
        return self.ball.center + 2 * self.ball.radius * units, shares

    def noise(self, noise_scale, shares):
        """Return the standard deviation of the noise on the mean of u in each stratum.

        Parameters
        ----------
        noise_scale : float
        shares : ndarray of shape (n_strata,)
            Released shares of protected cells, whose means are quotients.

        Returns
        -------
        ndarray of shape (n_strata,)
        """
        factor = 1 / (2 * shares) if self.strata.protects_cells else 1.0
        return factor * noise_scale / self.scales

    def intervals(self, released, noise_scale):
        """Return the mean of each stratum and output, with an interval for that of the population.

        Parameters
        ----------
        released : ndarray of shape (n_releases, n_values)
            Vectors of independent batches.
        noise_scale : float

        Returns
        -------
        ndarray of shape (d, n_strata, 4)
            Mean, low, high, and number of records.
        """
        n_releases, n_samples = len(released), sum(self.strata.sizes)
        units, shares = self.estimates(released.mean(axis=0))
        fraction = np.array(self.batch_sizes) / np.array(self.strata.sizes)
        # The batches together say less than all records do.
        known = n_samples / (1 + (1 - fraction) / (fraction * n_releases))
        # The sums of z = 1/2 + u and of 1 - z have independent noise if sizes are noisy too;
        # otherwise that of their difference alone, which counts double.
        factor = math.sqrt(0.5) if self.strata.protects_cells else math.sqrt(2) * shares
        noise = known * factor * noise_scale / (math.sqrt(n_releases) * self.scales)
        tables = []
        for center, unit in zip(self.ball.center, units.T, strict=True):
            sums = known * shares * (0.5 + np.array([1, -1])[:, None] * unit)
            found = mean_intervals(sums.ravel(), noise * np.ones(len(shares)), range(len(shares)))
            ends = found[["mean", "low", "high"]].to_numpy()
            ends = center + 2 * self.ball.radius * (ends - 0.5)
            tables.append(np.column_stack([ends, n_samples * shares]))
        return np.array(tables)


@dataclass(frozen=True)
class Targeted:
    """A target, and the means that a fit releases for it.

    Before the steps a fit releases typical lengths and means of features, which place the ball
    where they are projected; with each step mean features, and mean decisions if rates are
    compared; after the steps the mean outcomes of the final network.

    Parameters
    ----------
    target : ParityTarget
    strata : Strata
    ball : Ball
        The ball of the outcomes whose means are compared.
    batch_sizes : tuple of int
    tasks : tuple of float
        Sensitivity of the gradient of the task to replacing a record of each stratum.
    n_features : int
    measured : float
        Sensitivity of mean features, and of mean decisions, relative to that of the gradient.
    n_steps : int
    """

    target: ParityTarget
    strata: Strata
    ball: Ball = field(repr=False)
    batch_sizes: tuple[int, ...]
    tasks: tuple[float, ...]
    n_features: int
    measured: float
    n_steps: int

    @property
    def sensitivities(self):
        """Sensitivities of a release: of all that a step releases together."""
        shares = [self.measured] * (1 + self.target.of_rates)
        return tuple(math.hypot(1, *shares) * bound for bound in self.tasks)

    @property
    def n_located(self):
        """Number of releases before the steps, of each of three kinds."""
        return math.ceil(self.n_steps / 60)

    @property
    def n_final(self):
        """Number of releases after the steps."""
        return math.ceil(self.n_steps / 20)

    @property
    def measurements(self):
        """Number of releases besides the steps."""
        return 3 * self.n_located + self.n_final

    @property
    def n_measured(self):
        """Largest number of entries of a release besides a gradient."""
        n_values = self.features(Ball(1.0, n_features=self.n_features)).n_values
        return n_values + (self.in_steps.n_values if self.target.of_rates else 0)

    @property
    def in_steps(self):
        """The mean decisions that a step releases, at two thresholds: :func:`near_decisions`."""
        n_values = 2 * self.ball.n_features
        ball = Ball(math.sqrt(n_values) / 2, center=np.full(n_values, 0.5))
        return self._means(ball, self.measured)

    def features(self, ball):
        """Return the mean features that a step releases, projected on a ball."""
        return self._means(ball, self.measured)

    @property
    def lengths(self):
        """The mean logarithm of the length of features, released before the steps."""
        return self._means(Ball(LOG_LENGTH, n_features=1))

    def at_first(self, radius):
        """Return the mean features that are released before the steps."""
        return self._means(Ball(radius, n_features=self.n_features))

    @property
    def at_end(self):
        """The mean outcomes that are released after the last step."""
        return self._means(self.ball)

    def _means(self, ball, share=None):
        bounds = self.sensitivities if share is None else [share * bound for bound in self.tasks]
        return GroupMeans(self.strata, ball, self.batch_sizes, tuple(bounds))


class _Average:
    """Average of released vectors: of all, and then of a window whose weights decay.

    Parameters
    ----------
    rate : float
        Weight of the last vector, unless that of all is larger.
    """

    def __init__(self, rate=0.0):
        self._rate, self.n, self.value, self._squares = rate, 0, 0.0, 0.0

    def add(self, vector):
        """Add a vector, and return the average."""
        self.n += 1
        rate = max(1 / self.n, self._rate)
        self.value = (1 - rate) * self.value + rate * vector
        self._squares = (1 - rate) ** 2 * self._squares + rate**2
        return self.value

    @property
    def spread(self):
        """Noise of the average, relative to that of a vector."""
        return math.sqrt(self._squares)


class GapLimits:
    """Limits of the differences of mean outputs, and the projection of a linear layer on them.

    The difference of the mean outputs of two groups is W δ, for weights W and the difference δ of
    mean features. Rates of decisions differ by an offset more, as they do not depend on means of
    logits alone: what is measured of rates, beyond noise, and not explained by W δ.

    Parameters
    ----------
    targeted : Targeted
    noise_scale : float
    slopes : ndarray of shape (n_outputs,), optional
        What a unit of each output adds to a number that is compared.
    """

    def __init__(self, targeted, noise_scale, slopes=None):
        self._targeted, self._noise_scale, self._slopes = targeted, noise_scale, slopes
        rate = 1 / max(1.0, WINDOW * targeted.n_steps)
        self._features = _Average()
        self._decisions, self._predicted = _Average(rate), _Average(rate)
        self._pairs = np.array(targeted.strata.pairs).T

    def locate(self, release):
        """Place the ball of the features by releases.

        Parameters
        ----------
        release : callable
            Maps group means and a function of X to the release of the means of its values.
        """
        targeted = self._targeted

        def mean(measured, values):
            released = [release(measured, values) for _ in range(targeted.n_located)]
            means, shares = measured.means(np.mean(released, axis=0))
            return shares @ means / shares.sum()

        def typical_length(center):
            def logarithms(X):
                origin = torch.as_tensor(center, dtype=X.dtype, device=X.device)
                norms = torch.linalg.vector_norm(X - origin, dim=1, keepdim=True)
                return norms.clamp(min=1e-300).log()

            return WIDER * math.exp(mean(targeted.lengths, logarithms).item())

        center = mean(targeted.at_first(typical_length(0.0)), lambda X: X)
        self.measured = targeted.features(Ball(typical_length(center), center=center))

    def update(self, weight, features, decisions=None):
        """Set the limits by what a step has released.

        Parameters
        ----------
        weight : ndarray of shape (n_outputs, n_features)
            W, at the step.
        features : ndarray
            Released vector of mean features.
        decisions : ndarray, optional
            That of mean decisions, of rates.
        """
        one, other = self._pairs
        means, shares = self.measured.means(self._features.add(features))
        noise = self._noise(self.measured, self._features, shares)
        self._center = shares @ means / shares.sum()
        self._differences = means[one] - means[other]
        squared, n_features = (self._differences**2).sum(axis=1), means.shape[1]
        self._kept = np.array(
            [shrinkage(d, n_features, s, len(one)) for d, s in zip(squared, noise, strict=True)]
        )
        norms = np.linalg.norm(weight, axis=1)
        with np.errstate(divide="ignore", invalid="ignore"):
            if decisions is None:
                # No outcome tells how far off a difference is, so its noise is allowed for.
                unknown = noise * np.linalg.norm(self._slopes * norms)
                self.reach = self._targeted.target.max_gap / self._kept + unknown
                return
            middle, half = self._of_rates(weight, decisions, shares)
            half = half / self._kept[:, None]
        most = LARGEST_COSINE * np.outer(np.sqrt(squared), norms)
        self.low, self.high = np.minimum(middle - half, most), np.maximum(middle + half, -most)

    def _of_rates(self, weight, decisions, shares):
        """Return the differences of logits at which rates are alike, and how far they may be off.

        Both are arrays of shape (n_pairs, n_outputs).
        """
        one, other = self._pairs
        predicted = self._predicted.add(self._kept[:, None] * (self._differences @ weight.T))
        measured, target = self._targeted.in_steps, self._targeted.target
        means, _ = measured.means(self._decisions.add(decisions))
        # The mean of two decisions has less noise than each.
        noise = self._noise(measured, self._decisions, shares) / math.sqrt(2)
        raised, lowered = np.hsplit(means, 2)
        rates, shares = (raised + lowered) / 2, shares / shares.sum()
        slopes = np.maximum(shares @ (raised - lowered) / (2 * SHIFT), LEAST_SLOPE)
        offsets = rates[one] - rates[other] - slopes * predicted
        for row, s in enumerate(noise):
            offsets[row] *= [shrinkage(value**2, 1, s, len(one)) for value in offsets[row]]
        weights = (shares[one] / (shares[one] + shares[other]))[:, None]
        both = weights * rates[one] + (1 - weights) * rates[other]
        return -offsets / slopes, target.allowed(both) / slopes

    def _noise(self, measured, average, shares):
        """Return the noise of the difference of two averages, for each pair."""
        scale = self._noise_scale * average.spread * 2 * measured.ball.radius
        return np.hypot(*measured.noise(scale, shares)[self._pairs])

    @torch.no_grad()
    def apply(self, layer):
        """Project the weights of a linear layer on the limits; the mean output stays as it is."""
        if self._features.n < FIRST_STEPS:
            return
        before = as_array(layer.weight)
        weight = before.copy()
        for row in np.tile(np.flatnonzero(self._kept), SWEEPS):
            d = self._differences[row]
            gap = weight @ d
            weight += np.outer(self._within(row, gap) - gap, d / (d @ d))
        # Limits that cannot all hold would otherwise let weights grow from step to step.
        norms = np.linalg.norm(weight, axis=1, keepdims=True)
        first = np.linalg.norm(before, axis=1, keepdims=True)
        weight *= first / np.maximum(first, norms).clip(1e-300)
        layer.bias -= torch.as_tensor((weight - before) @ self._center).to(layer.bias)
        layer.weight.copy_(torch.as_tensor(weight))

    def _within(self, row, gap):
        """Return the difference of mean outputs within the limits of a pair that is next to it."""
        if self._slopes is None:
            return gap.clip(self.low[row], self.high[row])
        size = np.linalg.norm(self._slopes * gap)
        return gap * min(1.0, self.reach[row] / max(size, 1e-300))


def near_decisions(logits):
    """Return the decisions for each class if its logit is raised, and if it is lowered.

    Parameters
    ----------
    logits : tensor of shape (n, 1) or (n, n_classes)
        The logit of the second of two classes, or of all classes.

    Returns
    -------
    tensor of shape (n, 2) or (n, 2 n_classes)
    """
    margins = logits
    if logits.shape[1] > 1:
        best, second = logits.topk(2, dim=1).values.split(1, dim=1)
        margins = logits - torch.where(logits == best, second, best)
    return torch.cat([margins > -SHIFT, margins > SHIFT], dim=1).to(logits.dtype)


def shrinkage(squared, n_values, noise, n_pairs=1):
    """Return the factor of a difference that its noise does not explain.

    It is (1 - q σ² / ‖d‖²)+, where q σ² is exceeded by one of the pairs, for noise alone, with a
    probability of 5 percent at most.

    Parameters
    ----------
    squared : float
        ‖d‖².
    n_values : int
    noise : float
        σ.
    n_pairs : int, default=1
        Number of differences that are compared.

    Returns
    -------
    float
    """
    explained = chi2.isf(0.05 / n_pairs, n_values) * noise**2
    return 0.0 if squared <= explained else 1 - explained / squared
