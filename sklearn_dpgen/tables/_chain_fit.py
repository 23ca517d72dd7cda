"""The law that fits what was measured so far: a chain of log-linear conditionals."""

from typing import Any

import numpy as np
from tqdm import tqdm

from sklearn_dpgen.tables._column_groups import group_sums
from sklearn_dpgen.tables._log_linear_chain import LogLinearChain
from sklearn_dpgen.tables._log_linear_fit import NoisyTable, fit_conditional
from sklearn_dpgen.tables._marginals import marginal_counts
from sklearn_dpgen.tables._rule_cells import barred_term, possible_cells
from sklearn_dpgen.utils._torch import resolve_device

__all__ = ["ChainFit"]

# A fit that only says which tables to measure next takes so many times fewer steps.
_FEWER = 5


class ChainFit:
    """A chain of conditionals fitted to measurements: post-processing of what was released.

    Parameters
    ----------
    measured : Measurements
        More may be added between calls.
    order : sequence of int
        All columns, in the order in which they are drawn.
    n_rows : int
        Rows that are drawn from the distribution so far, for each conditional to be fitted on.
    max_iter : int
        Steps of each conditional of the law, at most; of predictions, a fifth of them. Each fit
        goes on from the one before.
    device : str or torch.device
    verbose : int
    name : str
        Of the progress bar.
    barred : mapping of (int, int) to ndarray of bool
        Of pairs of columns, the pairs of blocks that are not to be drawn: see ``barred_pairs``.
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
    ):
        self.measured, self._order, self._n_rows = measured, list(order), n_rows
        # Predictions are a function of what was released: their rows need no secret seed.
        self._rng = np.random.default_rng(0)
        self._max_iter, self._device = max_iter, resolve_device(device)
        self._barred = barred or {}
        # The conditional of each column and rows of the law, by the first so many tables.
        self._conditionals: dict = {}
        self._codes: Any = None
        self._n_fitted = 0
        self._progress = {"disable": not verbose, "desc": name}

    def predict(self, marginals):
        """Return the expected counts of marginals, by all that was measured so far."""
        if not self.measured.tables:
            return self.measured.independent(marginals)
        if self._n_fitted != len(self.measured.tables):
            self._fit(-(-self._max_iter // _FEWER))
            self._n_fitted = len(self.measured.tables)
        factor = self.measured.n_records / len(self._codes)
        return [factor * counts for counts in marginal_counts(self._codes.T, marginals)]

    def law(self, domain, seed):
        """Return the distribution of encoded records, fitted on rows drawn with a seed."""
        self._rng = np.random.default_rng(seed)
        self._fit(self._max_iter)
        conditionals = tuple(self._conditionals[column] for column in self._order)
        blocks = self.measured.blocks.blocks
        shares = []
        for column, groups in enumerate(blocks):
            found = self.measured.shares(column)
            sums = group_sums(found, groups)[groups]
            even = 1 / np.bincount(groups)[groups]
            shares.append(np.divide(found, sums, out=even, where=sums > 0))
        return LogLinearChain(domain, blocks, shares, conditionals)

    def _fit(self, max_iter):
        """Fit the conditionals, from what they were, and draw rows: blocks of shape (n_rows, p)."""
        # Columns are read one by one.
        codes = np.zeros((self._n_rows, len(self._order)), dtype=np.int64, order="F")
        before = set()
        for column in tqdm(self._order, **self._progress):
            before.add(column)
            tables = [
                table.seen_from(column)
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
                    NoisyTable(t.columns, t.groups, t.shares, t.ridges, possible)
                    for t in tables
                    for possible in [possible_cells(t.columns, t.groups, fixed)]
                ]
            marginal = self.measured.block_shares(column)
            fitted = fit_conditional(
                column,
                marginal,
                tables,
                codes,
                max_iter=max_iter,
                device=self._device,
                fixed=fixed,
                spread=self.measured.block_variances(column) if fixed else None,
                start=self._conditionals.get(column),
            )
            self._conditionals[column] = fitted
            codes[:, column], _ = fitted.draw(codes, self._rng)
        self._codes = codes
