"""The laws of tables in cells that the schema alone fixes, whatever bins they were fitted in."""

import numpy as np

from sklearn_dpgen.schema._binned import Binned
from sklearn_dpgen.tables._population import predicted_slices
from sklearn_dpgen.tables._record_codes import encode_codes, with_bins
from sklearn_dpgen.tables._slices import all_pairs, slice_counts

__all__ = ["pair_distances"]

# Equal bins of a number or a date.
_BINS = 20
# Values of a bin that are looked at.
_VALUES = 200


class _Evenly:
    """Values spread over a bin, in the place of random ones."""

    def uniform(self, size):
        return np.resize((np.arange(_VALUES) + 0.5) / _VALUES, size)


def _shares(column, cells):
    """Return the share of the values of each category that lie in each cell."""
    n_categories = column.domain.n_features
    if not isinstance(column, Binned):
        return np.eye(n_categories)
    codes = np.repeat(np.arange(n_categories), _VALUES)
    found = cells.codes(column.decode(np.eye(n_categories)[codes], rng=_Evenly()))
    shares = np.zeros((n_categories, cells.domain.n_features))
    np.add.at(shares, (codes, found), 1 / _VALUES)
    return shares


def pair_distances(X, law, encoder):
    """Return the total variation between records and a law, for each pair of columns.

    Parameters
    ----------
    X : data frame, array-like, iterable of data frames or dask DataFrame
    law : ProductMixture
        Of the records as ``encoder`` encodes them.
    encoder : TabularEncoder
        Fitted, with bins for numbers and dates.

    Returns
    -------
    ndarray of shape (p (p - 1) / 2,)
        In cells of the declared labels, and of 20 equal bins; the column's own for p = 1.
    """
    ordered = [name for name, c in encoder.columns_.items() if isinstance(c, Binned)]
    fixed = with_bins(encoder, dict.fromkeys(ordered, _BINS))
    blocks = [
        law.probabilities[:, encoder.blocks_[name]] @ _shares(column, fixed.columns_[name])
        for name, column in encoder.columns_.items()
    ]
    records = encode_codes(X, fixed)
    groups = all_pairs(len(blocks)) or [(0,)]
    counts = slice_counts(records.columns, records.sizes, groups)
    expected = predicted_slices(np.hstack(blocks), records.sizes, groups)
    return np.array(
        [
            np.abs(count / records.n_records - table).sum() / 2
            for count, table in zip(counts, expected, strict=True)
        ]
    )
