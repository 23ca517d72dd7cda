"""The regressors that a schema makes of two tables, alike in both, and a logistic regression."""

import warnings

import numpy as np
from sklearn.exceptions import ConvergenceWarning
from sklearn.linear_model import LogisticRegression

from sklearn_dpgen.schema import Datetime, Numeric
from sklearn_dpgen.schema._column import CategoryColumn

__all__ = ["RIDGE", "design_matrices", "fit_logistic", "standardize"]

# So weak that it matters only where records leave a coefficient open: a prior of standard
# deviation 100 on what one standard deviation of a regressor does.
RIDGE = 1e-4


def design_matrices(real, synthetic, columns):
    """Return the regressors of both tables, in the units of the encoder.

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
    """
    blocks = []
    for name, column in columns.items():
        pair = [column.encode(frame[name]) for frame in (real, synthetic)]
        kept = np.ones(pair[0].shape[1], dtype=bool)
        if isinstance(column, CategoryColumn):
            kept[pair[0].sum(axis=0).argmax()] = False
        elif isinstance(column, Numeric | Datetime) and column.nullable:
            kept[1] = False
            _fill(*pair)
        blocks.append([block[:, kept] for block in pair])
    X, Y = (np.hstack(side) for side in zip(*blocks, strict=True))
    varies = X.min(axis=0) < X.max(axis=0)
    return X[:, varies], Y[:, varies]


def _fill(block, other):
    """Set nulls to the mean of the first block, so that no coefficient depends on the bounds."""
    null, other_null = block[:, 2] == 1, other[:, 2] == 1
    mean = 0.0 if null.all() else block[~null, 0].mean()
    block[null, 0] = other[other_null, 0] = mean


def standardize(X):
    """Return regressors of mean 0 and variance 1, and their standard deviations."""
    scale = X.std(axis=0)
    return (X - X.mean(axis=0)) / scale, scale


def fit_logistic(X, y):
    """Return a logistic regression fitted to standardized regressors."""
    model = LogisticRegression(C=1 / RIDGE, solver="newton-cholesky", tol=1e-8)
    with warnings.catch_warnings():
        # Of separated classes, whose coefficients are large by any number of steps.
        warnings.simplefilter("ignore", ConvergenceWarning)
        return model.fit(X, y)
