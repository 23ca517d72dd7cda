"""The regressors that a schema makes of two tables, alike in both."""

import numpy as np

from sklearn_dpgen.schema import Datetime, Numeric
from sklearn_dpgen.schema._column import CategoryColumn

__all__ = ["design_matrices"]


def design_matrices(real, synthetic, columns):
    """Return regressors of both tables, in standard deviations of the real one, and their names.

    A number is one regressor, at its real mean where it is null, beside one that says so; a column
    of labels has one for each label but the one that most real records have. Those that are
    constant in the real table are left out: it says nothing about them.

    Parameters
    ----------
    real, synthetic : DataFrame
    columns : mapping of str to Column

    Returns
    -------
    X, Y : ndarray of shape (n, d) and (m, d)
    names : list of (str, str)
        The column and the feature of each regressor.
    """
    blocks, names = [], []
    for name, column in columns.items():
        pair = [column.encode(frame[name]) for frame in (real, synthetic)]
        features = np.array(column.feature_names(name), dtype=object)
        kept = np.ones(len(features), dtype=bool)
        if isinstance(column, CategoryColumn):
            kept[pair[0].sum(axis=0).argmax()] = False
        elif isinstance(column, Numeric | Datetime) and column.nullable:
            kept[1] = False
            _fill(*pair)
        blocks.append([block[:, kept] for block in pair])
        names += [(name, feature) for feature in features[kept]]
    X, Y = (np.hstack(side) for side in zip(*blocks, strict=True))
    varies = X.min(axis=0) < X.max(axis=0)
    X, Y = X[:, varies], Y[:, varies]
    mean, scale = X.mean(axis=0), X.std(axis=0)
    names = [name for name, used in zip(names, varies, strict=True) if used]
    return (X - mean) / scale, (Y - mean) / scale, names


def _fill(block, other):
    """Set nulls to the mean of the first block, so that no coefficient depends on the bounds."""
    null, other_null = block[:, 2] == 1, other[:, 2] == 1
    mean = 0.0 if null.all() else block[~null, 0].mean()
    block[null, 0] = other[other_null, 0] = mean
