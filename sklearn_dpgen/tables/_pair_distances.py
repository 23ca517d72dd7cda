"""The laws of tables in cells that the schema alone fixes, whatever bins they were fitted in."""

import math

import numpy as np

from sklearn_dpgen.schema._binned import Binned
from sklearn_dpgen.tables._marginals import Marginal, all_pairs, marginal_counts
from sklearn_dpgen.tables._record_codes import encode_codes, with_bins

__all__ = ["pair_distances"]

# Equal bins of a number or a date.
_BINS = 20
# What drawn records may add to the distance of a pair, and the most of them.
_NOISE = 0.01
_MOST = 1 << 20


def pair_distances(X, law, encoder, draw=None):
    """Return the total variation between records and a law, for each pair of columns.

    Parameters
    ----------
    X : data frame, array-like, iterable of data frames or dask DataFrame
    law : ProductMixture or LogLinearChain
        Of the records, by the categories that ``encoder`` has for them.
    encoder : TabularEncoder
        Fitted, with bins for numbers and dates.
    draw : callable or None, default=None
        ``draw(n, rng)`` returns records, where they are not decoded from the law alone.

    Returns
    -------
    ndarray of shape (p (p - 1) / 2,)
        In cells of the declared labels, and of 20 equal bins; the column's own for p = 1. Constants
        are left out.

    Notes
    -----
    The law is that of drawn records, always the same. Of n of them a table of K cells has a mean
    total variation of at most √(K / 2πn) from what it is expected to be: n is large enough for 0.01
    in the largest table, and at most 2^20, which is so up to 658 cells.
    """
    ordered = [name for name, c in encoder.columns_.items() if isinstance(c, Binned)]
    fixed = with_bins(encoder, dict.fromkeys(ordered, _BINS))
    records = encode_codes(X, fixed)
    every = [np.arange(size) for size in records.sizes]
    varied = [j for j, size in enumerate(records.sizes) if size > 1]
    pairs: list[tuple[int, ...]]
    pairs = [(varied[i], varied[j]) for i, j in all_pairs(len(varied))] or [(varied[0],)]
    marginals = [Marginal(columns, tuple(every[j] for j in columns)) for columns in pairs]
    n_cells = max(part.n_cells for part in marginals)
    n_drawn = min(math.ceil(n_cells / (2 * math.pi * _NOISE**2)), _MOST)
    rng = np.random.default_rng(0)
    frame = draw(n_drawn, rng) if draw else encoder.decode_codes(law.sample(n_drawn, rng), rng=rng)
    drawn = encode_codes(frame, fixed)
    counts, expected = (marginal_counts(r.columns, marginals) for r in (records, drawn))
    return np.array(
        [
            np.abs(count / records.n_records - table / n_drawn).sum() / 2
            for count, table in zip(counts, expected, strict=True)
        ]
    )
