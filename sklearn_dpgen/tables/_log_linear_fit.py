"""Log-linear conditionals fitted to noisy marginals by regularized maximum entropy."""

import math
from functools import cache, partial, reduce
from typing import Any

import numpy as np
from scipy.fft import dct
from scipy.optimize import minimize
from scipy.sparse import csr_array
from tqdm import tqdm

from sklearn_dpgen.tables._distributions import (
    LogLinearChain,
    LogLinearConditional,
    LogLinearTerm,
    joint_codes,
)
from sklearn_dpgen.tables._marginals import group_sums
from sklearn_dpgen.tables._table_counter import CodeCounter, CountLayout
from sklearn_dpgen.tables._table_rules import barred_term, possible_cells
from sklearn_dpgen.utils._devices import device_name

__all__ = ["ChainFit", "CopiedColumn", "NoisyTable", "cosine_basis", "fit_conditional"]

# The least share of a block, so that logits are finite.
_FLOOR = 1e-6
# Variance of a share: below the sampling error, and enough to keep shifts finite.
_LEAST_SPREAD = 1e-4
# Smaller relative gains are rounding errors in single precision, on which a line search fails.
_ROUNDING = 1.5e-8
# The least squared difference of sums that is divided by.
_LEAST_SHIFT = 1e-30
# Alternating corrections of row and column sums of a table with structural zeros.
_SWEEPS = 20


class NoisyTable:
    """Noisy shares of the records in the cells of a two- or three-way marginal.

    Parameters
    ----------
    columns : tuple of int
    groups : tuple of ndarray of int
        The group of each block of each column.
    shares : ndarray
        One axis per column; noise may make them negative.
    ridges : ndarray or float
        Ridge penalties of the cosine coefficients of the logits of the term for this table.
    possible : ndarray of bool or None, default=None
        Mask of the cells that records can be in; None for all.
    pattern : ndarray of int of shape (n_first, n_second) or None, default=None
        For a table of a function of two columns: the cell of each pair of their groups. ``shares``
        then has one axis.
    noise : float, default=0.0
        Standard deviation of the noise of a share.
    """

    def __init__(self, columns, groups, shares, ridges, possible=None, pattern=None, *, noise=0.0):
        self.columns, self.groups, self.shares = columns, groups, shares
        self.ridges = np.broadcast_to(ridges, shares.shape)
        self.possible, self.pattern, self.noise = possible, pattern, noise

    def with_last(self, column):
        """Return the table with the axis of ``column`` moved last."""
        axis = self.columns.index(column)
        if self.pattern is not None:
            first, second = self.columns if axis else self.columns[::-1]
            groups = self.groups if axis else self.groups[::-1]
            pattern = self.pattern if axis else self.pattern.T
            return NoisyTable((first, second), groups, self.shares, self.ridges, None, pattern)
        order = [i for i in range(len(self.columns)) if i != axis] + [axis]
        columns = tuple(self.columns[i] for i in order)
        groups = tuple(self.groups[i] for i in order)
        shares, ridges = self.shares.transpose(order), self.ridges.transpose(order)
        return NoisyTable(columns, groups, shares, ridges, noise=self.noise)


def cosines(table):
    """Return the coefficients of a table in the orthonormal cosine basis of each axis."""
    for axis, size in enumerate(table.shape):
        table = np.moveaxis(np.tensordot(cosine_basis(size), table, axes=(0, axis)), 0, axis)
    return table


@cache
def cosine_basis(size):
    """Return the cosines of a number of groups, a column each, from the constant on."""
    return dct(np.eye(size), axis=0, norm="ortho").T


def fit_conditional(
    column,
    marginal,
    tables,
    codes,
    *,
    max_iter,
    device,
    fixed=(),
    spread=None,
    start=None,
    copied=None,
):
    """Fit the conditional distribution of a column given earlier ones.

    Parameters
    ----------
    column : int
    marginal : ndarray of shape (n_blocks,)
        Shares of its blocks.
    tables : list of NoisyTable
        Tables of the column and earlier ones, with the column last.
    codes : ndarray of int of shape (n, p)
        Blocks of rows drawn from the fitted distribution of earlier columns.
    max_iter : int
        Most steps of L-BFGS.
    device : str or torch.device
        "cpu" computes without PyTorch.
    fixed : tuple of LogLinearTerm, default=()
        Known terms, which are added to those of the tables.
    spread : ndarray of shape (n_blocks,) or None, default=None
        Variances of the shares of the blocks. With fixed terms the shares may be unattainable, and
        are fitted with a ridge penalty of this variance.
    start : LogLinearConditional or None, default=None
        Warm start: a fit to the first of the tables. None starts at independence.
    copied : CopiedColumn or None, default=None
        The prior, in place of the shares of the blocks, if records copy a public row.

    Returns
    -------
    LogLinearConditional

    Notes
    -----
    With rows x_r, tables m_t and logits θ it minimizes the convex

        (1/n) Σ_r log Σ_j exp(b_j + Σ_t θ_t(x_r, j)) - Σ_t ⟨θ_t, m_t⟩ - ⟨b, s⟩ + Σ_t ⟨ρ_t, ξ_t²⟩/2

    with the cosine coefficients ξ_t of θ_t. This is the dual of maximum conditional entropy with
    tables near the given ones. Tables are first shifted to the sums of the rows and of
    ``marginal``, so that only interactions are noisy. Fixed terms are added to the exponent; b
    then has the ridge ``spread``.
    """
    marginal = np.maximum(marginal, _FLOOR)
    base = np.log(marginal)
    terms = fixed
    if copied is not None:
        base, terms = copied.base, (*fixed, copied.term)
    if not tables and not fixed:
        return LogLinearConditional(column, base, terms)
    # Blocks that share their groups in all tables keep their proportions.
    groups = [t.groups[-1] for t in (*tables, *fixed)]
    distinct, merged = np.unique(groups, axis=1, return_inverse=True)
    # In NumPy 2.0.0 the inverse has two dimensions.
    merged = merged.ravel()
    sums = np.bincount(merged, weights=marginal)
    ridge = _LEAST_SPREAD + np.bincount(merged, weights=spread) if fixed else None
    if copied is not None:
        # The prior of a group has the sum of the probabilities of its blocks.
        fixed = (*fixed, copied.grouped_term(merged))
        distinct = np.vstack([distinct, np.arange(len(sums))])
    problem = _problem_of(device)(
        sums, tables, distinct, codes, fixed=fixed, ridge=ridge, has_base=copied is None
    )
    # OpenBLAS with AVX-512 multiplies a float32 matrix of five columns by a vector along with stale
    # lanes: a signaling NaN in one of them raises the flag, although the products are right.
    with np.errstate(invalid="ignore"):
        result = minimize(
            problem,
            problem.start(start, base, merged),
            jac=True,
            method="L-BFGS-B",
            options={"maxiter": max_iter, "maxcor": 8, "ftol": _ROUNDING},
        )
    if not np.isfinite(result.fun):
        raise FloatingPointError(f"The objective of column {column} is {result.fun}.")
    shift, logits, _ = problem.unscaled(result.x)
    fitted = tuple(
        LogLinearTerm(
            t.columns[:-1],
            t.groups,
            theta.reshape(t.shares.shape if t.pattern is None else t.pattern.shape).astype(float),
        )
        for t, theta in zip(tables, logits, strict=True)
    )
    return LogLinearConditional(column, base + shift.astype(float)[merged], (*fitted, *terms))


def _problem_of(device):
    """Return the class of the objective on a device."""
    if str(device) == "cpu":
        return _Problem
    from sklearn_dpgen.tables._log_linear_tensors import TensorProblem

    return partial(TensorProblem, device=device)


class _Problem:
    """The objective and its gradient, preconditioned so that its curvature is about one.

    It computes with NumPy, in single precision: the sums of logits over the tables, and those of
    probabilities over the rows, are products with a sparse matrix of the distinct rows and cells.
    """

    def __init__(
        self, marginal, tables, group_codes, codes, *, fixed=(), ridge=None, has_base=True
    ):
        n = self._n = len(codes)
        self._base = _single(np.log(marginal) * has_base)
        self._marginal = _single(marginal / marginal.sum())
        self._shift_ridge = None if ridge is None else _single(ridge)
        own = np.maximum(self._marginal, 1e-4)
        self._scales = [1 / np.sqrt(own if ridge is None else own + self._shift_ridge)]
        self._targets, self._ridges, self._groups, self._starts = [], [], [], [0]
        self._bases: list[tuple[np.ndarray, ...]] = []
        # For a table of a function of two columns, the cell of each pair of their groups.
        self._patterns: list[np.ndarray | None] = []
        self._shapes: dict[int, tuple[int, ...]] = {}
        # Column-major, since cells are written by table.
        self._cells = cells = np.empty((n, len(tables) + len(fixed)), dtype=np.int32, order="F")
        for i, table in enumerate(tables):
            is_pattern = table.pattern is not None
            *before, size = (table.pattern if is_pattern else table.shares).shape
            n_before = int(np.prod(before))
            parent_cells = joint_codes(codes, table.columns[:-1], table.groups, before)
            cells[:, i] = parent_cells + self._starts[-1]
            self._starts.append(self._starts[-1] + n_before)
            rows = np.bincount(parent_cells, minlength=n_before) / n
            groups = group_codes[i]
            self._groups.append(None if np.array_equal(groups, np.arange(size)) else groups)
            if is_pattern:
                self._add_pattern(table)
                continue
            self._patterns.append(None)
            sums = np.bincount(groups, weights=marginal / marginal.sum(), minlength=size)
            shares = table.shares.reshape(n_before, size)
            if table.possible is None:
                shares = _with_sums(shares, rows, sums, table.noise)
            else:
                possible = table.possible.reshape(n_before, size)
                shares = _with_sums_inside(shares, rows, sums, possible)
            self._targets.append(_single(shares))
            ridges = table.ridges.reshape(n_before, size)
            self._ridges.append(_single(ridges))
            bases = reduce(np.kron, map(cosine_basis, before)), cosine_basis(size)
            self._bases.append(tuple(map(_single, bases)))
            self._scales.append(_single(1 / np.sqrt(1 / table.shares.size + ridges)))
        self._fixed = []
        for i, term in enumerate(fixed, len(tables)):
            cells[:, i] = term.rows(codes) + self._starts[-1]
            table = term.logits[:, group_codes[i]]
            self._starts.append(self._starts[-1] + len(table))
            self._fixed.append(_single(table))
        # What is done to single coefficients is done to those of all terms at once.
        self._ends = np.cumsum([scale.size for scale in self._scales])
        self._scale = np.concatenate([scale.ravel() for scale in self._scales])
        ridges = [np.zeros_like(self._marginal), *(r.ravel() for r in self._ridges)]
        self._ridge = np.concatenate(ridges)
        self._prepare()

    def _add_pattern(self, table):
        """Add a table of a function of two columns, whose cells share one logit each."""
        n_cells = len(table.shares)
        self._shapes[len(self._patterns)] = table.pattern.shape
        self._patterns.append(table.pattern.ravel())
        self._targets.append(_single(table.shares))
        self._ridges.append(_single(table.ridges))
        self._bases.append((_single(cosine_basis(n_cells)),))
        self._scales.append(_single(1 / np.sqrt(1 / n_cells + table.ridges)))

    def _prepare(self):
        """Prepare what all evaluations need."""
        cells, counts = _distinct_rows(self._cells, self._starts)
        self._weights = weights = _single(counts / self._n)
        n, n_tables = cells.shape
        row_starts = np.arange(0, n * n_tables + 1, n_tables, dtype=np.int32)
        indices, shape = cells.ravel(), (n, self._starts[-1])
        ones = np.ones(n * n_tables, dtype=np.float32)
        self._rows = csr_array((ones, indices, row_starts), shape=shape)
        self._members = csr_array((weights.repeat(n_tables), indices, row_starts), shape=shape).T
        # The logits of all tables, and the sums over the blocks of each group.
        self._table = np.empty((self._starts[-1], len(self._marginal)), dtype=np.float32)
        for i, theta in enumerate(self._fixed, len(self._targets)):
            self._table[self._starts[i] : self._starts[i + 1]] = theta
        self._ones = np.ones(len(self._marginal), dtype=np.float32)
        self._sums = [
            None if groups is None else _single(groups[:, None] == np.arange(self._width(i)))
            for i, groups in enumerate(self._groups)
        ]

    def _width(self, i):
        """Return the number of groups of the last column of a table."""
        return (self._shapes.get(i) or self._targets[i].shape)[1]

    @property
    def n_parameters(self):
        return len(self._scale)

    def start(self, former, base, merged):
        """Return the parameters of an earlier fit, with zeros for new terms."""
        if former is None:
            return np.zeros(self.n_parameters)
        # Groups only get finer between fits, so all blocks of a group have had the same shift.
        weights = np.exp(base)
        shift = np.bincount(merged, weights=weights * (former.base - base))
        terms = former.terms[: len(former.terms) - len(self._fixed)]
        values = [shift / np.bincount(merged, weights=weights)]
        values += [cosines(term.logits) for term in terms]
        scales = self._scales[: len(values)]
        known = [v.ravel() / s.ravel() for v, s in zip(values, scales, strict=True)]
        return np.pad(np.concatenate(known), (0, self.n_parameters - sum(map(len, known))))

    def unscaled(self, vector):
        """Return the shift of the base, the logits of each term, and all cosine coefficients."""
        every = _single(vector) * self._scale
        shift, *coefs = [
            values.reshape(scale.shape)
            for values, scale in zip(self._split(every), self._scales, strict=True)
        ]
        logits = [
            bases[0] @ coef @ bases[1].T
            if pattern is None
            else (bases[0] @ coef)[pattern].reshape(self._shapes[i])
            for i, (coef, bases, pattern) in enumerate(
                zip(coefs, self._bases, self._patterns, strict=True)
            )
        ]
        return shift, logits, every

    def _split(self, vector):
        """Return the parts of a vector of coefficients: of the base, and of each term."""
        return np.split(vector, self._ends[:-1])

    def _shares(self, shift, logits):
        """Return the probabilities of distinct rows, and the mean log-partition of all rows."""
        table = self._table
        for i, (theta, groups) in enumerate(zip(logits, self._groups, strict=True)):
            table[self._starts[i] : self._starts[i + 1]] = (
                theta if groups is None else theta[:, groups]
            )
        # Each row is in one cell of the first table, so the base is added to that table.
        first = self._fixed[0] if not logits else table[: self._starts[1]]
        table[: self._starts[1]] = first + (self._base + shift)
        scores = self._rows @ table
        highest = _row_maxima(scores)
        scores -= highest[:, None]
        np.exp(scores, out=scores)
        sums = scores @ self._ones
        scores /= sums[:, None]
        return scores, float(np.dot(self._weights, (highest + np.log(sums)).astype(np.float64)))

    def __call__(self, vector):
        shift, logits, coefs = self.unscaled(vector)
        shares, value = self._shares(shift, logits)
        value -= float(np.dot(self._base + shift, self._marginal))
        fitted = self._members @ shares
        slopes = [fitted[: self._starts[1]].sum(axis=0) - self._marginal]
        penalties = self._split(self._ridge / 2 * coefs * coefs)[1:]
        for i, (theta, target, bases, sums, pattern) in enumerate(
            zip(logits, self._targets, self._bases, self._sums, self._patterns, strict=True)
        ):
            slope = fitted[self._starts[i] : self._starts[i + 1]]
            if sums is not None:
                slope = slope @ sums
            if pattern is None:
                rows, columns = bases
                slope = rows.T @ (slope - target) @ columns
            else:
                (basis,) = bases
                own = np.bincount(pattern, weights=slope.ravel(), minlength=len(target))
                theta = basis @ self._split(coefs)[i + 1]
                slope = basis.T @ (_single(own) - target)
            value += float(penalties[i].sum()) - float(np.vdot(theta, target))
            slopes.append(slope.ravel())
        slope = (np.concatenate(slopes) + self._ridge * coefs) * self._scale
        if self._shift_ridge is not None:
            value += float((self._shift_ridge * shift * shift).sum()) / 2
            slope[: len(shift)] += self._scales[0] * self._shift_ridge * shift
        return value, slope.astype(np.float64)


def _distinct_rows(cells, starts):
    """Return the distinct rows of cells, and how many rows are equal to each.

    Rows in the same cells have the same probabilities. All rows are kept, with a count of one,
    where there are too many combinations of cells for their codes.
    """
    sizes = np.diff(starts)
    if math.prod(map(int, sizes)) > _MOST_COMBINATIONS:
        return cells, np.ones(len(cells))
    codes = np.zeros(len(cells), dtype=np.int64)
    for column, start, size in zip(cells.T, starts[:-1], sizes, strict=True):
        codes *= size
        codes += column - start
    _, places, counts = np.unique(codes, return_index=True, return_counts=True)
    return cells[places], counts


def _single(array):
    """Return an array in single precision."""
    return np.ascontiguousarray(array, dtype=np.float32)


# Codes of combinations of cells are in 64 bits.
_MOST_COMBINATIONS = 2**62

# NumPy reduces short rows slowly: the columns of fewer are compared one by one.
_FEW_COLUMNS = 24


def _row_maxima(scores):
    """Return the maximum of each row."""
    if scores.shape[1] > _FEW_COLUMNS:
        return scores.max(axis=1)
    highest = scores[:, 0].copy()
    for column in scores.T[1:]:
        np.maximum(highest, column, out=highest)
    return highest


def _with_sums(shares, rows, columns, noise):
    """Return a table with the given row and column sums, and nearly the same dependence.

    A difference of the sums is spread over a row evenly as far as noise explains it, which removes
    most noise, and in proportion to the columns as far as it does not: if a combination of earlier
    columns is more frequent in the rows of a fit than in the table, a rare value stays rare.
    """
    by_row, by_column = rows - shares.sum(axis=1), columns - shares.sum(axis=0)
    across = _spread(by_row, columns / columns.sum(), noise)
    down = _spread(by_column, rows / rows.sum(), noise)
    shift = np.outer(by_row, across) + np.outer(down, by_column)
    return shares + shift - by_row.sum() * np.outer(down, across)


def _spread(differences, shares, noise):
    """Return over which parts of a line the difference of its sum is spread.

    Noise explains squares of differences up to three standard deviations above their mean.
    """
    n = len(differences)
    explained = n * (1 + 3 * math.sqrt(2 / n)) * len(shares) * noise**2
    even = min(explained / max((differences**2).sum(), _LEAST_SHIFT), 1.0)
    return even / len(shares) + (1 - even) * shares


def _with_sums_inside(shares, rows, columns, possible):
    """Return an approximation of the nearest such table that is zero outside of a mask."""
    shares, free = shares * possible, [np.maximum(possible.sum(axis=i), 1) for i in (0, 1)]
    for _ in range(_SWEEPS):
        shares = shares + ((rows - shares.sum(axis=1)) / free[1])[:, None] * possible
        shares = shares + ((columns - shares.sum(axis=0)) / free[0]) * possible
    return shares


# Steps of the factors of a prior, and the least probability that is divided by.
_FACTOR_STEPS, _EMPTY = 50, 1e-12


class CopiedColumn:
    """Prior of one column of a record, given that of its public row.

    Parameters
    ----------
    parent : int
        The place of the column of the public row.
    kept : float
        κ, the probability with which the column is copied, in (0, 1).
    shares : ndarray of shape (k,)
        s, the wanted shares of the blocks.
    codes : ndarray of int of shape (n,)
        Blocks of the rows that are fitted, k where they are not known.

    Notes
    -----
    q(b | c) ∝ (κ 1{b = c} + (1 - κ) s_b) v_b, where v makes the mean over the rows equal to s: it
    is found by iteration, and 1 if the rows have these shares already.
    """

    def __init__(self, parent, kept, shares, codes):
        shares = np.maximum(shares, _FLOOR)
        self.parent, self.kept, self.shares = parent, kept, shares / shares.sum()
        public = np.bincount(codes, minlength=len(shares) + 1) / len(codes)
        *public, lacking = public
        self.factors = v = np.ones(len(shares))
        for _ in range(_FACTOR_STEPS):
            rest = (1 - kept) * (self.shares * v).sum()
            ratio = public / (kept * v + rest)
            mean = v * (kept * ratio + (1 - kept) * self.shares * ratio.sum())
            mean += lacking * self.shares * v / (self.shares * v).sum()
            v = v * np.sqrt(self.shares / np.maximum(mean, _EMPTY))
            v /= (self.shares * v).sum()
        self.factors = v

    def grouped_term(self, groups):
        """Return the term of log q for groups of blocks: the base and the copying in one."""
        size = len(self.shares)
        rest = (1 - self.kept) * group_sums(self.shares * self.factors, groups)
        table = np.tile(rest, (size + 1, 1))
        table[np.arange(size), groups] += self.kept * self.factors
        own = np.arange(size + 1), np.arange(len(rest))
        return LogLinearTerm((self.parent,), own, np.log(np.maximum(table, _EMPTY)))

    @property
    def base(self):
        """Logits of the blocks for a row whose block is not known."""
        return np.log((1 - self.kept) * self.shares * self.factors)

    @property
    def term(self):
        """The term that adds to the logit of the block of the public row."""
        size = len(self.shares)
        table = np.zeros((size + 1, size))
        ratios = self.kept / ((1 - self.kept) * self.shares)
        table[np.arange(size), np.arange(size)] = np.log1p(ratios)
        return LogLinearTerm((self.parent,), (np.arange(size + 1), np.arange(size)), table)


# Fits that only predict counts for selections take a fifth of the steps.
_FEWER = 5


class ChainFit:
    """A log-linear chain fitted to noisy marginals, column by column.

    Parameters
    ----------
    measured : Measurements
        The released marginals; more may be added between calls.
    order : sequence of int
        All columns, in the order in which they are drawn.
    n_rows : int
        Rows drawn from the distribution of earlier columns, on which each conditional is fitted.
    max_iter : int
        Most steps of each conditional of the final fit; predictions take a fifth of them. Each
        fit starts from the previous one.
    device : str or torch.device
    verbose : int
    name : str
        Name of the progress bar.
    barred : mapping of (int, int) to ndarray of bool
        Impossible pairs of blocks of pairs of columns, from ``barred_pairs``.
    public : PublicPrior or None, default=None
    """

    def __init__(
        self,
        measured,
        order,
        n_rows,
        *,
        max_iter,
        device,
        verbose=0,
        name="fit",
        barred=None,
        public=None,
    ):
        self._public = public
        self.measured, self._order, self._n_rows = measured, list(order), n_rows
        # Predictions are post-processing of the releases, so their rows need no secret seed.
        self._rng = np.random.default_rng(0)
        self._max_iter, self._device = max_iter, device_name(device)
        self._barred = barred or {}
        # The conditional of each column, and rows, of a fit to the first ``_n_fitted`` tables.
        self._conditionals: dict = {}
        self._codes: Any = None
        self._n_fitted = -1
        self._progress = {"disable": not verbose, "desc": name}

    def predict(self, marginals):
        """Return the expected counts of marginals under a fit to all measurements so far."""
        if not self.measured.tables and self._public is None:
            return self.measured.independent(marginals)
        if self._n_fitted != len(self.measured.tables):
            self._fit(-(-self._max_iter // _FEWER))
            self._n_fitted = len(self.measured.tables)
        factor = self.measured.n_records / len(self._codes)
        tables, groups = [m.columns for m in marginals], [m.groups for m in marginals]
        layout = CountLayout(self.measured.blocks.sizes, tables, groups, len(self._codes))
        found = CodeCounter(layout).count_codes([*self._codes.T]).tables()
        # In row-major order, on which sums of the scores depend by rounding.
        return [np.multiply(factor, counts, order="C") for counts in found]

    def distribution(self, domain, seed):
        """Return the fitted LogLinearChain; its training rows are drawn with a seed."""
        self._rng = np.random.default_rng(seed)
        self._fit(self._max_iter)
        conditionals = tuple(self._conditionals[column] for column in self._order)
        blocks = self.measured.blocks.blocks
        shares = []
        for column, groups in enumerate(blocks):
            estimates = self.measured.shares(column)
            sums = group_sums(estimates, groups)[groups]
            uniform = 1 / np.bincount(groups)[groups]
            shares.append(np.divide(estimates, sums, out=uniform, where=sums > 0))
        records = None if self._public is None else self._public.records
        return LogLinearChain(domain, blocks, shares, conditionals, public=records)

    def _fit(self, max_iter):
        """Refit the conditionals from their last values, and draw rows from each in turn."""
        # Column-major, since columns are read one by one.
        width, public = len(self._order), self._public
        n_columns = width if public is None else 2 * width
        codes = np.zeros((self._n_rows, n_columns), dtype=np.int64, order="F")
        if public is not None:
            # A public row for each row, whose columns are known before all others.
            sizes = self.measured.blocks.sizes
            codes[:, width:] = public.records.draw(self._n_rows, sizes, self._rng)
        before = set()
        for column in tqdm(self._order, **self._progress):
            before.add(column)
            tables = [
                table.with_last(column)
                for table in self.measured.tables
                if column in table.columns and before.issuperset(table.columns)
            ]
            fixed = tuple(
                barred_term(cells, columns, column)
                for columns, cells in self._barred.items()
                if column in columns and before.issuperset(columns)
            )
            if fixed:
                tables = [
                    NoisyTable(t.columns, t.groups, t.shares, t.ridges, possible, noise=t.noise)
                    for t in tables
                    for possible in [possible_cells(t.columns, t.groups, fixed)]
                ]
            marginal, copied = self.measured.block_shares(column), None
            if public is not None and public.kept[column]:
                place = width + column
                copied = CopiedColumn(place, public.kept[column], marginal, codes[:, place])
            fitted = fit_conditional(
                column,
                marginal,
                tables,
                codes,
                max_iter=max_iter,
                device=self._device,
                fixed=fixed,
                spread=self.measured.block_variances(column) if fixed else None,
                # The prior changes between fits, so that an earlier shift would not fit it.
                start=self._conditionals.get(column) if public is None else None,
                copied=copied,
            )
            self._conditionals[column] = fitted
            codes[:, column], _ = fitted.draw(codes, self._rng)
        # Blocks are few, so that they are counted from one byte each.
        self._codes = codes.astype(np.min_scalar_type(max(self.measured.blocks.sizes)), order="F")
