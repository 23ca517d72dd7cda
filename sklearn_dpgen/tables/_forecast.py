"""How long fits of tables take, and how much memory, from public numbers: within a factor of 3."""

import numpy as np

from sklearn_dpgen.tables._marginals import needed_bytes

__all__ = ["table_forecast"]

# Seconds on two cores, fitted to fits of simulated tables of 6 to 30 columns and of 2000 to 100000
# records, by benchmarks/bench_forecast.py. What each is of is beside it.
_COLUMN = 0.06  # a column with bins to find
_VALUE = 3e-8  # a value that is read
_CELL = 6e-9  # a record in a table that is counted
_TERM = 0.012  # a table in a fit of the law, with 20000 rows and 30 steps
# Bytes beside: of blocks of records that are read, of tables, and of a law.
_BLOCK = 6e7


def table_forecast(table, marginals, sampler, n_records):
    """Return the forecast of a fit of :class:`TableSampler`.

    Parameters
    ----------
    table : DeclaredTable
    marginals : MarginalsPlan
    sampler : TableSampler
    n_records : int or None
        None where it is not public: there is no forecast then.

    Returns
    -------
    dict of str to float
    """
    if n_records is None:
        return {}
    n_known, counted, fitted = 0, 0, 0
    for part in marginals.rounds:
        counted += part.n_tables
        if part.n_selected is not None:
            # All candidates are scored, beside the law of what was measured before, which a fit in
            # a fifth of the steps gives.
            counted += len(part.candidates)
            fitted += n_known / 5
        n_known += part.n_tables
    effort = (0.35 + 0.65 * sampler.population_size / 20_000) * sampler.max_iter / 30
    seconds = 0.2 + _TERM * effort * (fitted + n_known + len(table.names))
    seconds += _COLUMN * sum(tree.n_levels > 1 for tree in table.trees)
    seconds += n_records * (_VALUE * len(table.trees) + _CELL * counted)
    sizes = [tree.n_values + tree.nullable for tree in table.trees]
    codes = n_records * sum(np.min_scalar_type(size - 1).itemsize for size in sizes)
    n_bytes = 1.2 * codes + needed_bytes(table.trees, sampler.population_size) + _BLOCK
    return {"seconds": seconds, "bytes": n_bytes}
