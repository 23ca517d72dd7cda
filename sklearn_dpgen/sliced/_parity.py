"""Targets of parity: means of groups that a fit releases, and the penalty that follows them.

A step releases a gradient and, in the same vector, the mean outcome of each group. The penalty of
the next step is linear in the means of the outputs; its multipliers depend on released means alone,
so they are post-processing of what the mechanism has paid for. Statements and proofs are in
doc/sensitivity.rst.
"""

import math
from dataclasses import dataclass, field

import numpy as np
import torch
from scipy.stats import chi2

from sklearn_dpgen.domains import Ball
from sklearn_dpgen.nn import linearize
from sklearn_dpgen.nn._jacobian import clip_weights
from sklearn_dpgen.sliced._strata import Strata
from sklearn_dpgen.utils._groups import mean_intervals

__all__ = ["DualAscent", "GroupMeans", "MeanPenalty", "ParityTarget", "Targeted"]

# Sensitivity of the means that a step releases, relative to that of its gradient. It adds 5 percent
# to the noise of the gradient.
MEASURED = 0.3
# Change of a multiplier over all releases for a gap as large as the scale, and what the gap of the
# moment adds to it. Chosen, with the scales, on wages (cps1988) and simulated labels.
GAIN, DAMPING = 20.0, 2.0
# Share of the releases over which means are averaged.
WINDOW = 0.05
# The scale of a gap: of predictions that are numbers a share of the diameter of their domain, of
# rates the larger one, but at least a smallest.
SCALE, SMALLEST_RATE = 0.15, 0.03


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

    def allowed(self, one, other):
        """Return the distance of two means that the target allows, for each outcome if by rates.

        Parameters
        ----------
        one, other : ndarray of shape (d,)

        Returns
        -------
        float or ndarray of shape (d,)
        """
        gap = math.inf if self.max_gap is None else self.max_gap
        if self.min_ratio is None:
            return gap
        return np.minimum(gap, (1 - self.min_ratio) * np.maximum(one, other).clip(0, 1))

    def lowered(self, vector, by):
        """Return a vector that is moved towards 0 by a distance, or each of its entries."""
        size = abs(vector) if self.norm == math.inf else np.linalg.norm(vector)
        with np.errstate(divide="ignore", invalid="ignore"):
            return np.where(size > by, vector * (1 - by / size), 0.0)


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
    def n_values(self):
        """Number of entries of the vector."""
        return len(self.strata.cells) * (self.ball.n_features + self.strata.protects_cells)

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
        table = np.asarray(released, dtype=np.float64).reshape(len(self.strata.cells), -1)
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
class MeanPenalty:
    """The sum of ⟨ν, m_a - m_b⟩ over pairs of strata, for their mean outputs m and multipliers ν.

    A multiplier is at most ``limit`` times the weight of its pair. A record of a stratum of k
    records in the batch has weight ‖Σ ν‖ / k at most, over the pairs of its stratum, which depends
    on no other record. Where groups are protected, k is the size of the batch times the released
    share of the cell.

    Parameters
    ----------
    strata : Strata
    group_weights : {"size", "equal"}
        As in :class:`FairObjective`. Protected groups have the weights by their smaller share.
    jacobian_clip : float
        L, the bound of the spectral norm of the Jacobian of each record's outputs.
    clipping : {"spectral", "componentwise"}
    limit : float
    """

    strata: Strata
    group_weights: str
    jacobian_clip: float
    clipping: str
    limit: float

    def limits(self, shares=None):
        """Return the largest norm of each multiplier, for released shares of protected cells."""
        if not self.strata.protects_cells:
            return self.limit * np.array(self.strata.pair_weights(self.group_weights))
        n_groups = len({group for group, _ in self.strata.cells})
        smaller = [min(shares[one], shares[other]) for one, other in self.strata.pairs]
        return self.limit * 2 / (n_groups - 1) * np.array(smaller)

    def sensitivities(self, batch_sizes, norms=None, shares=None):
        """Return the l2 sensitivity of the gradient to replacing a record of each stratum.

        It is 2 L ‖Σ ν‖ / k, from the norms of the multipliers, or from their limits. A record of
        protected groups may change its cell; it then takes one weight for another.

        Parameters
        ----------
        batch_sizes : sequence of int
        norms : ndarray of shape (n_pairs,), optional
        shares : ndarray of shape (n_cells,), optional

        Returns
        -------
        ndarray of shape (n_strata,)
        """
        sizes = np.array(batch_sizes)
        if self.strata.protects_cells:
            largest = 2 * self.limit
            if norms is not None:
                largest = float((self._totals(norms) / shares).max())
            return 2 * self.jacobian_clip * largest / sizes
        totals = self._totals(self.limits() if norms is None else norms)
        return 2 * self.jacobian_clip * totals / sizes

    def largest_gradient(self):
        """Return the largest possible norm of the gradient."""
        most = 2 * self.limit if self.strata.protects_cells else self._totals(self.limits()).sum()
        return self.jacobian_clip * float(most)

    def _totals(self, norms):
        """Return the sum of the norms over the pairs of each cell."""
        totals = np.zeros(len(self.strata.cells))
        for pair, norm in zip(self.strata.pairs, norms, strict=True):
            totals[[*pair]] += norm
        return totals

    def gradient(self, compared, X, batch, multipliers, codes=None, shares=None):
        """Return the gradient for clipped Jacobians, one tensor for each parameter.

        Parameters
        ----------
        compared : torch.nn.Module
        X : tensor of shape (n, n_features)
        batch : list of slice
            The rows of each stratum.
        multipliers : ndarray of shape (n_pairs, d)
        codes : tensor of int of shape (n,), optional
            The private cells of protected groups.
        shares : ndarray of shape (n_cells,), optional

        Returns
        -------
        list of tensor
        """
        jacobian = linearize(compared, X)
        cells, sizes = batch, [rows.stop - rows.start for rows in batch]
        if codes is not None:
            cells = [codes == cell for cell in range(len(self.strata.cells))]
            sizes = len(X) * shares
        W = torch.zeros_like(jacobian.outputs)
        for (one, other), vector in zip(self.strata.pairs, W.new_tensor(multipliers), strict=True):
            W[cells[one]] += vector / float(sizes[one])
            W[cells[other]] -= vector / float(sizes[other])
        W = clip_weights(jacobian.gram(), W, self.jacobian_clip, clipping=self.clipping)
        return jacobian.weighted_sum(W)


@dataclass(frozen=True)
class Targeted:
    """A target, the penalty that follows it, and the means that a fit releases for it.

    Parameters
    ----------
    target : ParityTarget
    penalty : MeanPenalty
    ball : Ball
        The ball of the outcomes whose means are compared.
    batch_sizes : tuple of int
    tasks : tuple of float
        Sensitivity of the gradient of the task to replacing a record of each stratum.
    """

    target: ParityTarget
    penalty: MeanPenalty
    ball: Ball
    batch_sizes: tuple[int, ...]
    tasks: tuple[float, ...]

    @property
    def sensitivities(self):
        """Sensitivities of a release: of the gradient and the means of a step together."""
        return tuple(math.hypot(1.0, MEASURED) * bound for bound in self._bounds())

    def _bounds(self, *multipliers):
        return np.array(self.tasks) + self.penalty.sensitivities(self.batch_sizes, *multipliers)

    def gain(self, multipliers, shares):
        """Return the factor by which a gradient may be enlarged and keep to its sensitivities."""
        own = self._bounds(np.linalg.norm(multipliers, axis=1), shares)
        return float((self._bounds() / own).min())

    def released(self, n_measured):
        """Return what of the releases a report states beside the gradients."""
        return {"n_measured": self.at_end.n_values, "measurements": n_measured}

    def largest_gain(self):
        """Return the gain without multipliers."""
        return float((self._bounds() / np.array(self.tasks)).min())

    @property
    def in_steps(self):
        """The means that a step releases beside its gradient."""
        return self._measured(MEASURED * self._bounds())

    @property
    def at_end(self):
        """The means that are released after the last step."""
        return self._measured(self.sensitivities)

    def _measured(self, sensitivities):
        strata = self.penalty.strata
        return GroupMeans(strata, self.ball, self.batch_sizes, tuple(sensitivities))


class DualAscent:
    """Multipliers of the differences of means, which follow the means that steps release.

    Each step adds to a multiplier in proportion to the difference of the two means, as far as noise
    does not explain it, and takes off in proportion to the gap that is allowed.

    Parameters
    ----------
    targeted : Targeted
    n_releases : int
        Number of releases, of which the steps are all but the last.
    noise_scale : float
    """

    def __init__(self, targeted, n_releases, noise_scale):
        self._target, self._penalty = targeted.target, targeted.penalty
        self._measured = targeted.in_steps
        self._diameter = 2 * targeted.ball.radius
        self._rate = 1 / max(1.0, WINDOW * n_releases)
        self._gains = GAIN / n_releases, DAMPING
        self._noise_scale = self._diameter * noise_scale
        self._average, self._weight = 0.0, 0.0
        strata = self._penalty.strata
        self.shares = np.full(len(strata.cells), 1 / len(strata.cells))
        self._sums = np.zeros((len(strata.pairs), targeted.ball.n_features))
        self.multipliers = self._sums.copy()

    def update(self, released):
        """Read the means that a step has released.

        Parameters
        ----------
        released : ndarray
        """
        self._average = (1 - self._rate) * self._average + self._rate * released
        self._weight = (1 - self._rate) * self._weight + self._rate
        if self._weight < 0.5:
            return
        means, self.shares = self._measured.means(self._average / self._weight)
        limits = self._penalty.limits(self.shares)
        # The noise of an average whose weights decay, and sum to less than 1 at the start.
        decayed = self._rate / (2 - self._rate) * (1 - (1 - self._weight) ** 2)
        spread = math.sqrt(decayed) / self._weight
        noises = spread * self._measured.noise(self._noise_scale, self.shares)
        for row, (one, other) in enumerate(self._penalty.strata.pairs):
            noise = math.hypot(noises[one], noises[other])
            gap = means[one] - means[other]
            gap = gap * shrinkage((gap**2).sum(), len(gap), noise, len(limits))
            allowed = self._target.allowed(means[one], means[other])
            moved = []
            for gain in self._gains:
                gain = gain / self._scale(means[one], means[other])
                vector = self._target.lowered(self._sums[row] + gain * gap, gain * allowed)
                norm = float(np.linalg.norm(vector))
                moved.append(vector * min(1.0, limits[row] / norm) if norm else vector)
            self._sums[row], self.multipliers[row] = moved

    def _scale(self, one, other):
        """Return the scale of a gap."""
        if not self._target.of_rates:
            return SCALE * self._diameter
        return max(SMALLEST_RATE, float(np.maximum(one, other).min()))


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
