"""Public tables as the prior of persons and their rows, which copy public ones in part."""

import numpy as np

from sklearn_dpgen.tables._log_linear_fit import cosines
from sklearn_dpgen.tables._marginals import Marginal
from sklearn_dpgen.tables._person_distribution import PublicStageRows
from sklearn_dpgen.tables._public_prior import (
    FLOOR,
    N_GROUPS,
    PublicPrior,
    dependence_of,
    dependence_sums,
    kept_columns,
    least_ratio,
    n_effective,
    public_agreements,
    reliabilities,
    tilted_weights,
)

__all__ = ["PersonPrior", "change_ridges"]

# Pseudo-records of a change, for the sampling errors of records and of the rows of a fit.
_SAMPLING = 0.2
# The least and the largest ratio of noise to signal of a change.
_LEAST_RATIO, _MOST_RATIO = 0.01, 100.0


def change_ridges(residual, noise, n_records):
    """Return the ridges of the cosine coefficients of changes.

    Parameters
    ----------
    residual : ndarray of shape (n_cells,)
        Released shares less the expected ones.
    noise : float
        Standard deviation of the noise of a share.
    n_records : float
    """
    signal = cosines(residual) ** 2 - noise**2
    ratios = np.full(len(residual), _MOST_RATIO)
    np.divide(noise**2, signal, out=ratios, where=signal > noise**2 / _MOST_RATIO)
    # Dependence is mostly smooth, so that no component is shrunk more than the median.
    ratios = np.maximum(np.minimum(ratios, np.median(ratios)), _LEAST_RATIO)
    return ratios / len(residual) + _SAMPLING / n_records


class PersonPrior(PublicPrior):
    """Public rows of persons, and how far each variable of a row copies that of a public row.

    Parameters
    ----------
    layout : PersonLayout
    stages : dict of int to PublicStage
    bins : dict of int to ndarray of int
        The category of each leaf of each variable with a tree.
    measured : Measurements
        With the released single variables, to whose shares the persons are weighted.

    Attributes
    ----------
    rows : dict of int to PublicStageRows
    kept : ndarray of shape (n_variables,)
        Probability with which a variable is copied.

    Notes
    -----
    Each synthetic person is given a public one by weight. With keys, each row is given the row of
    that person at the same position, and so on down the tables, so that dependence of a row on the
    person and on the row before is copied too; a row beyond those of the public person copies
    nothing. Without keys, each row is given one by weight.
    """

    def __init__(self, layout, stages, bins, measured):
        self._layout, self._known = layout, {}
        # Gaps depend on the index and on one another more than values do.
        self._sequences = {*layout.sequences()}
        self._sizes, blocks = measured.blocks.sizes, measured.blocks.blocks
        self._parents = {place: stage.parent for place, stage in stages.items()}
        # The last entries are for cells that are not known.
        self._categories = {
            place: {j: np.append(bins[j], -1)[codes] for j, codes in stage.codes.items()}
            for place, stage in stages.items()
        }
        self._codes = {
            place: {j: np.append(blocks[j], -1)[codes] for j, codes in own.items()}
            for place, own in self._categories.items()
        }
        self._given = {place: stage.weights for place, stage in stages.items()}
        self._add_memories()
        self._weights, effective = self._weighted(stages, measured)
        self.rows = {place: self._stage_rows(place) for place in stages}
        self._reliable = self._reliability(measured.blocks, effective)
        self.kept = kept_columns(np.ones(len(self._reliable)), self._reliable)

    def _add_memories(self):
        """Add what is known of the row before each row."""
        for place, parent in self._parents.items():
            if parent is None:
                continue
            own, is_first = self._codes[place], np.diff(parent, prepend=-1) > 0
            for source, memory in self._layout.stages[place].memories.items():
                if source in own:
                    before = np.append(-1, own[source][:-1])[: len(parent)]
                    own[memory] = np.where(is_first, self._sizes[source], before)
                    # The categories of a memory are the blocks of its source.
                    self._categories[place][memory] = own[memory]

    def _copyable(self, place):
        """Return the variables of a stage that are drawn, and known of public rows."""
        variables = self._layout.variables
        drawn = self._layout.stages[place].own
        return [j for j in drawn if j in self._codes[place] and not variables[j].is_constant]

    def _weighted(self, stages, measured):
        """Return the weights of the rows of each stage, and their effective number."""
        weights: dict[int, np.ndarray] = {}
        factors: dict[int, np.ndarray] = {}
        effective: dict[int, float] = {}
        for place, stage in stages.items():
            if stage.parent is not None:
                above = self._layout.stages[place].parent
                factors[place] = factors[above][stage.parent]
                weights[place] = stage.weights * factors[place]
                effective[place] = effective[above]
                continue
            own, columns = stage.weights, self._copyable(place)
            if columns:
                own = tilted_weights(
                    np.stack([self._codes[place][j] for j in columns], axis=1),
                    own,
                    [measured.block_shares(j) for j in columns],
                    [measured.block_variances(j) + FLOOR for j in columns],
                )
            weights[place], factors[place] = own, own / stage.weights
            effective[place] = n_effective(own)
        return weights, effective

    def _stage_rows(self, place):
        """Return the public rows from which the rows of a stage are copied."""
        columns, parent = self._copyable(place), self._parents[place]
        codes = np.full((len(self._weights[place]), len(columns)), -1, dtype=np.int16)
        for i, j in enumerate(columns):
            codes[:, i] = self._codes[place][j]
        weights, starts = self._weights[place], np.zeros(0, dtype=np.int64)
        if parent is not None:
            n_above = len(self._weights[self._layout.stages[place].parent])
            starts = np.append(0, np.cumsum(np.bincount(parent, minlength=n_above)))
            weights = np.zeros(0)
        return PublicStageRows(tuple(columns), codes, weights, starts)

    def _reliability(self, blocks, effective):
        """Return the share of the dependence of each variable beyond sampling error, its root."""
        n_variables = len(self._layout.variables)
        signal, total, sizes = np.zeros((3, n_variables))
        for place in self._codes:
            sizes[self._copyable(place)] = effective[place]
            columns = [
                j for s in self._layout.path(place) if s in self._codes for j in self._copyable(s)
            ]
            memories = self._layout.stages[place].memories
            columns += [memories[j] for j in self._copyable(place) if j in memories]
            codes = {j: self._at(place, j) for j in columns}
            known = [j for j in columns if codes[j] is not None]
            if not known:
                continue
            groups = [blocks.marginal((j,), N_GROUPS).groups[0] for j in known]
            matrix = np.stack([codes[j] for j in known], axis=1)
            own = self._weights[place] / self._weights[place].sum()
            sums = dependence_sums(matrix, own, groups, effective[place])
            for found, part in zip((signal, total), sums, strict=True):
                np.add.at(found, list(self.copied(known)), part)
        return reliabilities(signal, total, sizes)

    def _at(self, place, variable, codes=None):
        """Return the blocks of a variable for the rows of a stage, None if they are not known."""
        path, rows = self._layout.path(place), None
        for below in path[: path.index(self._layout.variables[variable].stage)]:
            parent = self._parents.get(below)
            if parent is None:
                return None
            rows = parent if rows is None else parent[rows]
        every = self._codes if codes is None else codes
        own = every.get(self._layout.variables[variable].stage, {}).get(variable)
        return own if own is None or rows is None else own[rows]

    def copied(self, columns):
        """Return the variables that are copied: in place of a memory the one in the row before."""
        variables = self._layout.variables
        return tuple(variables[j].source if variables[j].kind == "memory" else j for j in columns)

    def is_pooled(self, columns):
        """Return whether a marginal is none of those by which sequences are drawn."""
        return columns not in self._sequences

    def dependence(self, marginal):
        """Return the dependence in the public tables, None if they do not tell or copy it."""
        place = self._layout.stage_of(marginal.columns)
        if not all(self._reliable[j] for j in self.copied(marginal.columns)):
            return None
        codes = [self._at(place, j) for j in marginal.columns]
        if any(own is None for own in codes):
            return None
        return dependence_of(np.stack(codes, axis=1), self._weights[place], marginal)

    def expected(self, marginal):
        """Return the two-way marginal that copies have, less that of independent variables."""
        dependence = self.dependence(marginal)
        if dependence is None:
            return np.zeros(marginal.shape)
        return self.share(marginal.columns) * dependence

    def agreements(self, marginals, totals):
        """Compare released marginals with the public tables.

        Parameters
        ----------
        marginals : sequence of NoisyMarginal
        totals : sequence of float
            The number of records in each.

        Returns
        -------
        list of PublicAgreement
            Of the marginals whose variables are known of public rows.
        """
        names, found = [variable.name for variable in self._layout.variables], []
        for marginal, n_records in zip(marginals, totals, strict=True):
            columns = [names.index(name) for name in marginal.columns]
            place = self._layout.stage_of(columns)
            codes = [self._at(place, j, self._categories) for j in columns]
            if any(own is None for own in codes):
                continue
            found += public_agreements(
                [marginal],
                list(marginal.columns),
                np.stack(codes, axis=1),
                self._given[place],
                n_records,
                self.kept[list(self.copied(columns))],
            )
        return found

    def relate(self, measured):
        """Learn from the releases how far variables are copied, and set the ridges of tables."""
        super().relate(measured)
        for i, table in enumerate(measured.tables):
            if table.pattern is None:
                continue
            # What is copied explains a part of the changes from row to row.
            copied = self.expected(Marginal(table.columns, table.groups)).ravel()
            expected = measured.expected[i] + np.bincount(table.pattern.ravel(), copied)
            n = measured.totals[i]
            noise, residual = measured.marginals[i].noise_scale / n, table.shares - expected
            least = least_ratio(residual, noise) / residual.size
            table.ridges = np.maximum(change_ridges(residual, noise, n), least)
