"""Upper bounds of the number of released values, by which certified noise is priced."""

import math

from sklearn_dpgen.tables._marginals import MAX_BLOCKS
from sklearn_dpgen.tables._privacy_plan import CHANGED_CELLS
from sklearn_dpgen.tables._resolution import affordable_cells

__all__ = ["release_sizes"]


def release_sizes(trees, rounds, neighbours, *, unit, n_records, noise_scale):
    """Return bounds on the sizes of the releases of a plan, from public quantities.

    Parameters
    ----------
    trees : list of ColumnTree
        Of all columns.
    rounds : tuple of Round
    neighbours : {"replace_one", "add_or_remove"}
    unit : str or None
        Of what persons have several rows, any number of cells may change.
    n_records : float or None
        None where it is not public.
    noise_scale : float
        Of one vector that has the whole budget: no table has less noise.

    Returns
    -------
    n_values, n_changed : list of int
        Of the vector of single columns, then of each round.
    """
    told, most = [tree for tree in trees if tree.n_cells > 1], math.inf
    if n_records is not None:
        most = affordable_cells(n_records, noise_scale)
    sizes = [min(tree.n_cells, MAX_BLOCKS) if tree.is_flat else MAX_BLOCKS for tree in trees]

    def n_cells(columns):
        # Of two groups in each column, if that is more than are wanted.
        whole = math.prod(sizes[j] for j in columns)
        return min(whole, max(2 ** len(columns), math.floor(min(most, whole))))

    values = [part.n_tables * max(map(n_cells, part.candidates)) for part in rounds]
    tables = [part.n_tables for part in rounds]
    # Where records turn out to be few, a round measures once more what the first one did.
    values = [max(n, values[0]) for n in values]
    tables = [max(n, tables[0]) for n in tables]
    values = [max(1, sum(tree.n_cells for tree in told)), *values]
    if unit is not None:
        return values, values
    cells = CHANGED_CELLS[neighbours]
    changed = [cells * n for n in (max(1, sum(tree.n_levels for tree in told)), *tables)]
    return values, [min(pair) for pair in zip(changed, values, strict=True)]
