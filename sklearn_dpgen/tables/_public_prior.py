"""A public table as the prior of a chain: weighted rows, which records copy column by column."""

import itertools
import math
from dataclasses import dataclass
from functools import reduce

import numpy as np
from scipy.optimize import minimize

from sklearn_dpgen.persistence._declarations import saved
from sklearn_dpgen.tables._distributions import PublicRecords
from sklearn_dpgen.tables._log_linear_fit import cosines
from sklearn_dpgen.tables._marginals import Marginal

__all__ = [
    "N_GROUPS",
    "PublicAgreement",
    "PublicPrior",
    "agreements",
    "dependence_of",
    "dependence_sums",
    "kept_columns",
    "least_ratio",
    "n_effective",
    "pooled_ridges",
    "public_agreements",
    "reliabilities",
    "tilted_weights",
]

# The most rows that are kept, evenly spaced: more than are drawn for a fit.
_MOST_ROWS = 50_000
# The largest probability with which a record copies a column. Below 1 each value is possible, so
# that released marginals can be fitted.
_MOST = 0.99
# Rows of a public table from which half of a record is copied: so few repeat themselves.
_FEW_ROWS = 100
# Groups of each column in the two-way marginals that compare sampling error with dependence.
N_GROUPS = 6
# Weights keep at least this share of the effective number of rows: shares that they do not attain
# are fitted by the chain, which costs less dependence.
_LEAST_SHARE = 0.7
# Prior precisions of the logits of shares, from the strongest on, and options of each fit, which
# starts from the last.
_PENALTIES = (30.0, 10.0, 3.0, 1.0, 0.3, 0.1, 0.03, 0.01, 0.003)
_OPTIONS = {"maxiter": 60, "ftol": 1e-7}
# The least share that a penalty is proportional to.
_RARE = 1e-3
# The prior of full agreement counts as so many units of squared noise, and as so many standard
# deviations of the sum of all squared residuals under noise alone.
_PRIOR, _DEVIATIONS = 10.0, 3.0
_SWEEPS = 20
# The least probability of copying that is used, and the least share of a block.
_LEAST, FLOOR = 0.02, 1e-6
_TINY = 1e-12


def tilted_weights(codes, weights, shares, variances):
    """Return weights of rows whose single columns have nearly the given shares.

    Parameters
    ----------
    codes : ndarray of int of shape (n, p)
        The block of each cell, -1 where it is not known.
    weights : ndarray of shape (n,)
        Positive.
    shares : list of ndarray
        Shares of the blocks of each column.
    variances : list of ndarray
        Variances of the noise of these shares.

    Returns
    -------
    ndarray of shape (n,)
        Positive, of sum 1.

    Notes
    -----
    Maximum entropy relative to the given weights, with a ridge for the noise of the shares: the
    weights are proportional to w exp(Σ_j θ_j(x_j)) for the minimum of

        log Σ_i w_i exp(Σ_j θ_j(x_ij)) - Σ_j ⟨θ_j, s_j⟩ + Σ_j ⟨v_j + c s'_j, θ_j²⟩ / 2,

    where s' is the larger one of the shares before and s.

    The least c of a fixed list is taken for which the effective number of rows stays above seven
    tenths of what it was. Columns whose shares are then not attained are fitted by the chain.
    """
    sizes = [len(s) for s in shares]
    starts, known = np.cumsum([0, *sizes[:-1]]), codes >= 0
    # All cells that are not known share the last place, whose logit is 0.
    places = np.where(known, codes + starts, sum(sizes)).astype(np.int64)
    base, columns = np.log(weights / weights.sum()), np.repeat(np.arange(len(sizes)), sizes)
    target, noise = np.concatenate(shares), np.concatenate(variances)

    def tilt(theta):
        logs = base + np.append(theta, 0.0)[places].sum(axis=1)
        tilted = np.exp(logs - logs.max())
        total = tilted.sum()
        return tilted / total, logs.max() + np.log(total)

    def objective(scaled, ridge, scale):
        # In these units the curvature is about one.
        theta = scaled / scale
        tilted, value = tilt(theta)
        mass = np.bincount(places.ravel(), np.repeat(tilted, len(sizes)), minlength=len(theta) + 1)
        # Shares are those of known cells.
        wanted = target * (tilted @ known)[columns]
        value += (ridge * theta**2).sum() / 2 - theta @ wanted
        return value, (mass[:-1] - wanted + ridge * theta) / scale

    best, theta = np.exp(base), np.zeros(len(target))
    own = np.bincount(places.ravel(), np.repeat(best, len(sizes)), minlength=len(theta) + 1)[:-1]
    least = _LEAST_SHARE * n_effective(best)
    for penalty in _PENALTIES:
        ridge = noise + penalty * np.maximum(np.maximum(target, own), _RARE)
        scale = np.sqrt(ridge + target)
        found = minimize(
            objective,
            theta * scale,
            args=(ridge, scale),
            jac=True,
            method="L-BFGS-B",
            options=_OPTIONS,
        )
        theta = found.x / scale
        tilted, _ = tilt(theta)
        if n_effective(tilted) < least:
            break
        best = tilted
    return best


def n_effective(weights):
    """Return the effective number of rows with weights of sum 1."""
    return 1 / (weights**2).sum()


def kept_columns(agreed, reliable):
    """Return the probability with which records copy each column.

    Parameters
    ----------
    agreed : ndarray of shape (p,)
        How far each column agrees with the releases, from 0 to 1.
    reliable : ndarray of shape (p,)
        Results of :func:`reliabilities`.
    """
    # A column is copied fully from an agreement of three quarters on, and not at a quarter.
    kept = _MOST * reliable * np.clip(2 * agreed - 0.5, 0, 1)
    return np.where(kept < _LEAST, 0, kept)


class PublicPrior:
    """Rows of a public table, and how far each column of a record copies that of its row.

    Parameters
    ----------
    codes : ndarray of int of shape (n, p)
        The block of each cell, -1 where it is not known.
    weights : ndarray of shape (n,)
        Positive weights of the rows.
    measured : Measurements
        With the released single columns, to whose shares the rows are weighted.

    Attributes
    ----------
    records : PublicRecords
        The weighted rows.
    kept : ndarray of shape (p,)
        Probability with which a column is copied, 0 for columns that the public table lacks.

    Notes
    -----
    A record copies each column of a row with probability κ_j, and else has a random value. The
    two-way marginal of columns a and b is then that of independent columns plus κ_a κ_b D, where D
    is the dependence in the public table.
    """

    def __init__(self, codes, weights, measured):
        if len(codes) > _MOST_ROWS:
            chosen = np.linspace(0, len(codes) - 1, _MOST_ROWS).astype(np.int64)
            codes, weights = codes[chosen], weights[chosen]
        columns = range(codes.shape[1])
        weights = tilted_weights(
            codes,
            weights,
            [measured.block_shares(j) for j in columns],
            [measured.block_variances(j) + FLOOR for j in columns],
        )
        # Weights that are tiny beside others may underflow.
        kept = weights > 0
        self.records = PublicRecords(codes[kept].astype(np.int16), weights[kept])
        groups = [measured.blocks.marginal((j,), N_GROUPS).groups[0] for j in columns]
        size = n_effective(self.records.weights)
        signal, total = dependence_sums(self.records.codes, self.records.weights, groups, size)
        self._reliable = reliabilities(signal, total, size)
        self.kept = _MOST * self._reliable
        # The dependence in the public table of each released marginal.
        self._known: dict[int, np.ndarray] = {}

    def dependence(self, marginal):
        """Return the two-way marginal of the public table less that of independent columns."""
        codes = self.records.codes[:, list(marginal.columns)]
        return dependence_of(codes, self.records.weights, marginal)

    def copied(self, columns):
        """Return the columns that are copied in place of some columns."""
        return columns

    def relate(self, measured):
        """Learn from the releases how far columns are copied, and set the ridges of tables.

        Parameters
        ----------
        measured : Measurements
            The ridges of its tables are set to those of the residuals from the public dependence.
        """
        found, pairs, distinct = [], [], measured.distinct()
        for places in distinct:
            table, n_records = measured.tables[places[0]], measured.totals[places[0]]
            marginal, dependence = Marginal(table.columns, table.groups), None
            shares, noise = measured.combined(places)
            if len(table.columns) == 2:
                (expected,) = measured.independent([marginal], 1.0)
                if places[0] not in self._known:
                    self._known[places[0]] = self.dependence(marginal)
                dependence = self._known[places[0]]
            else:
                expected = measured.expected[places[0]]
            residual = shares - expected
            if dependence is not None:
                variance = noise**2 + 1 / (n_records * shares.size)
                pairs.append((self.copied(table.columns), residual, dependence, variance))
            found.append((marginal, residual, dependence, noise, n_records))
        self.kept = kept_columns(agreements(pairs, self._reliable), self._reliable)
        waves, totals, pooled = [], [], []
        for places, part in zip(distinct, found, strict=True):
            marginal, residual, dependence, noise, n_records = part
            if dependence is not None:
                residual = residual - self.share(marginal.columns) * dependence
            elif not self.is_pooled(marginal.columns):
                continue
            waves.append((cosines(residual), measured.blocks.frequencies(marginal), noise))
            totals.append(n_records)
            pooled.append(places)
        for term, own in zip(pooled, pooled_ridges(waves, totals), strict=True):
            measured.set_term(term, own)

    def is_pooled(self, columns):
        """Return whether the ridges of a marginal that the public table lacks are pooled."""
        return True

    def share(self, columns):
        """Return the share of the public dependence of some columns that copies have."""
        return np.prod(self.kept[list(self.copied(columns))])


def dependence_sums(codes, weights, groups, size):
    """Return sums of the dependence of each column with the others: beyond sampling error, and all.

    Parameters
    ----------
    codes : ndarray of int of shape (n, p)
        -1 for cells that are not known.
    weights : ndarray of shape (n,)
        Of sum 1.
    groups : list of ndarray of int
        The group of each code of each column.
    size : float
        Effective number of independent rows.

    Returns
    -------
    signal, total : ndarray of shape (p,)
        Pairs count by their dependence, so that many independent ones do not decide.
    """
    n_columns = codes.shape[1]
    # Cells that are not known are in no group.
    own = [np.append(g, -1)[c] for g, c in zip(groups, codes.T, strict=True)]
    members = [c[:, None] == np.arange(N_GROUPS) for c in own]
    members = np.concatenate(members, axis=1).astype(np.float32)
    tables = members.T @ (members * weights[:, None].astype(np.float32))
    tables = tables.astype(np.float64).reshape(n_columns, N_GROUPS, n_columns, N_GROUPS)
    tables = tables.transpose(0, 2, 1, 3)
    known = tables.sum(axis=(2, 3), keepdims=True)
    tables = tables / np.maximum(known, _TINY)
    dependence = tables - tables.sum(3, keepdims=True) * tables.sum(2, keepdims=True)
    energy = (dependence**2).sum(axis=(2, 3))
    error = (1 - (tables**2).sum(axis=(2, 3))) / size
    np.fill_diagonal(energy, 0)
    # Pairs that are never known together have no dependence.
    energy[known[:, :, 0, 0] <= 0] = 0
    signal = np.maximum(energy - error, 0) * (energy > 0)
    return (signal * energy).sum(axis=1), (energy**2).sum(axis=1)


def reliabilities(signal, total, size):
    """Return the root of the share of the dependence of each column beyond sampling error.

    Parameters
    ----------
    signal, total : ndarray of shape (p,)
        From :func:`dependence_sums`.
    size : float or ndarray of shape (p,)
        Effective number of rows.
    """
    return size / (size + _FEW_ROWS) * np.sqrt(signal / np.maximum(total, _TINY**2))


def dependence_of(codes, weights, marginal):
    """Return the two-way marginal of weighted rows less that of independent columns.

    Parameters
    ----------
    codes : ndarray of int of shape (n, 2)
        -1 for cells that are not known.
    weights : ndarray of shape (n,)
    marginal : Marginal
    """
    known = (codes >= 0).all(axis=1)
    cells = np.ravel_multi_index(
        [g[c] for g, c in zip(marginal.groups, codes[known].T, strict=True)], marginal.shape
    )
    table = np.bincount(cells, weights[known], minlength=marginal.n_cells)
    table = table.reshape(marginal.shape) / max(table.sum(), _TINY)
    return table - np.outer(table.sum(axis=1), table.sum(axis=0))


def agreements(pairs, reliabilities):
    """Return how far the dependence of each column in a public table is that of the releases.

    Parameters
    ----------
    pairs : list of tuple
        Columns, released dependence R, public dependence D, and the variance v of the noise of a
        cell, of each two-way marginal.
    reliabilities : ndarray of shape (p,)
        Share of each column that is copied, with full agreement.

    Returns
    -------
    ndarray of shape (p,)
        From 0 to 1; 1 without evidence.

    Notes
    -----
    In units of the noise, D has the energy s = ‖D‖² / v, and R the energy e = ‖R‖² / v less the
    degrees of freedom. Their agreement is ρ = ⟨D, R⟩ / (v √(s max(s, e))): the correlation of both,
    less if the public dependence is too strong. Agreements g_a g_b = ρ are fitted by least squares
    with weights max(s, e), in turn for each column from that with the most evidence on, with the
    prior g = 1. So a single wrong column explains wrong marginals, and columns that it is paired
    with are kept.
    """
    n_columns = len(reliabilities)
    own: list[list[tuple]] = [[] for _ in range(n_columns)]
    for (a, b), released, public, variance in pairs:
        # Only the interaction is compared: sums of rows and columns belong to single columns.
        rows, columns = released.mean(axis=1, keepdims=True), released.mean(axis=0)
        released = released - rows - columns + released.mean()
        free = (released.shape[0] - 1) * (released.shape[1] - 1)
        strength = (public**2).sum() / variance
        most = max(strength, (released**2).sum() / variance - free)
        product = (public * released).sum() / variance
        ratio = np.clip(product / max(np.sqrt(strength * most), _TINY), -1, 1)
        for j, other in ((a, b), (b, a)):
            own[j].append((other, ratio, most, free))
    agreed = np.ones(n_columns)
    evidence = [sum(most for _, _, most, _ in one) for one in own]
    order = [j for j in np.argsort(evidence)[::-1] if own[j]]
    for _, j in itertools.product(range(_SWEEPS), order):
        others, ratio, most, free = (np.array(v) for v in zip(*own[j], strict=True))
        share = agreed[others] * reliabilities[others]
        prior = _PRIOR + _DEVIATIONS * np.sqrt(2 * (free * share**4).sum())
        explained = prior + (share * ratio * most).sum()
        agreed[j] = np.clip(explained / (prior + (share**2 * most).sum()), 0, 1)
    return agreed


# Sums of squared coefficients that a residual can have: of two equal columns with two equally
# frequent labels, and from there down.
_ENERGIES = np.append(0.0, 0.25 * 4.0 ** -np.arange(10))
# Marginals without energy in the prior of the energies; the other energies share one more.
_PRIOR_MARGINALS = 1.0
# Pseudo-records of each term, for the sampling errors of records and of the rows of a fit.
_SAMPLING = 0.2
# Bounds on the ratio of noise to signal, and steps of the mixing weights.
_LEAST_RATIO, _MOST_RATIO, _STEPS = 0.01, 100.0, 50


def pooled_ridges(residuals, n_records):
    """Return ridges of the cosine coefficients of logits, by empirical Bayes over all marginals.

    Parameters
    ----------
    residuals : list of tuple
        Of each marginal the cosine coefficients of the released shares less the expected ones, the
        frequencies of each axis, and the noise of a share.
    n_records : float or list of float
        The number of records in each marginal.

    Returns
    -------
    list of ndarray
        Ratio of noise to signal of each coefficient, over the number of cells.

    Notes
    -----
    The coefficients of an interaction are normal with variances that decrease with the product of
    their frequencies and sum to an energy, which is 0 or one of ten magnitudes. The distribution
    of the energies over marginals maximizes their likelihood, with a prior of two further
    marginals, of which one is without energy, for the public table is mostly right;
    each marginal has its posterior mean of the gain of signal over noise.
    """
    if not residuals:
        return []
    n_records = np.broadcast_to(n_records, len(residuals))
    parts = zip(residuals, n_records, strict=True)
    found = [_energies(r, turns, noise, n) for (r, turns, noise), n in parts]
    logs, gains = zip(*found, strict=True)
    likelihoods = np.exp(np.array(logs) - np.max(logs, axis=1, keepdims=True))
    prior = np.append(_PRIOR_MARGINALS, np.full(len(_ENERGIES) - 1, 1 / len(_ENERGIES)))
    mixture = prior / prior.sum()
    for _ in range(_STEPS):
        posterior = likelihoods * mixture
        posterior /= posterior.sum(axis=1, keepdims=True)
        mixture = posterior.sum(axis=0) + prior
        mixture /= mixture.sum()
    ridges = []
    for weights, gain, (residual, _, noise), n in zip(
        posterior, gains, residuals, n_records, strict=True
    ):
        gain = np.tensordot(weights, gain, 1)
        # Noise of more energy than any dependence leaves nothing to learn.
        most = max(_MOST_RATIO, least_ratio(residual, noise))
        ratios = (1 - gain) / np.maximum(gain, 1 / (1 + most))
        ratios = np.clip(ratios, _LEAST_RATIO, most)
        ridges.append(ratios / gain.size + _SAMPLING / n)
    return ridges


def least_ratio(residual, noise):
    """Return the ratio of the energy of noise of a marginal to that of the strongest dependence."""
    return residual.size * noise**2 / _ENERGIES[1]


def _energies(residuals, frequencies, noise, n_records):
    """Return the log-likelihood of each energy, and the gains of all coefficients under it."""
    # Coefficients that are constant along all axes but one belong to single columns.
    is_free = reduce(np.add.outer, [np.minimum(turns, 1) for turns in frequencies]) > 1
    if not is_free.any():
        return np.zeros(len(_ENERGIES)), np.zeros((len(_ENERGIES), *residuals.shape))
    profile = 1 / reduce(np.multiply.outer, [np.maximum(turns, 1) for turns in frequencies])
    profile = np.where(is_free, profile, 0)
    signal = _ENERGIES.reshape(-1, *[1] * profile.ndim) * (profile / profile.sum())
    spread = signal + noise**2 + 1 / (n_records * residuals.size)
    logs = -0.5 * (np.log(spread) + residuals**2 / spread)
    logs = np.where(is_free, logs, 0).reshape(len(_ENERGIES), -1).sum(axis=1)
    gain = np.divide(signal, signal + noise**2, out=np.zeros_like(signal), where=signal > 0)
    most = gain.max(axis=tuple(range(1, gain.ndim)), keepdims=True)
    return logs, np.where(is_free, gain, most)


# Standard deviations of a distance under noise alone beyond which a table does not agree.
_DISAGREEMENT = 3.0


@saved
@dataclass(frozen=True)
class PublicAgreement:
    """Whether a public table agrees with a released marginal, as the released counts tell.

    Attributes
    ----------
    columns : tuple of str
    distance : float
        Total variation distance of the public shares from the released ones.
    limit : float
        The distance that noise and sampling alone exceed rarely: three standard deviations above
        their mean.
    copied : float
        Share of the public dependence of the columns with which the fit began. For a single column
        it is the share with which it is copied.
    """

    columns: tuple[str, ...]
    distance: float
    limit: float
    copied: float

    @property
    def agrees(self) -> bool:
        """Whether noise and sampling alone explain the distance."""
        return self.distance <= self.limit


def public_agreements(marginals, names, codes, weights, n_records, kept):
    """Compare released marginals with a public table.

    Parameters
    ----------
    marginals : sequence of NoisyMarginal
    names : list of str
        All columns.
    codes : ndarray of int of shape (n, p)
        The category of each cell, -1 where it is not known.
    weights : ndarray of shape (n,)
        Weights of the public rows.
    n_records : float
    kept : ndarray of shape (p,)
        Probability with which each column is copied.

    Returns
    -------
    list of PublicAgreement
        Of the marginals whose columns are in the public table.
    """
    found = []
    for marginal in marginals:
        columns = [names.index(name) for name in marginal.columns]
        own = codes[:, columns]
        known = (own >= 0).all(axis=1)
        if not known.any():
            continue
        own, rows = own[known], weights[known]
        cells = np.ravel_multi_index(
            [groups[code] for groups, code in zip(marginal.groups, own.T, strict=True)],
            marginal.counts.shape,
        )
        shares = np.bincount(cells, rows, minlength=marginal.counts.size) / rows.sum()
        released = marginal.counts.ravel() / n_records
        noise = np.ravel(marginal.noise_scale) / n_records
        sampling = shares * (1 / n_records + (rows**2).sum() / rows.sum() ** 2)
        variances = np.broadcast_to(noise**2 + sampling, shares.shape)
        limit = math.sqrt(2 / math.pi) * np.sqrt(variances).sum()
        limit += _DISAGREEMENT * math.sqrt((1 - 2 / math.pi) * variances.sum())
        found.append(
            PublicAgreement(
                marginal.columns,
                float(np.abs(released - shares).sum() / 2),
                float(limit / 2),
                float(np.prod(kept[columns])),
            )
        )
    return found
