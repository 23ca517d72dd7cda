"""The regressors that a schema makes of two tables, and a logistic regression."""

import warnings

import numpy as np
from sklearn.exceptions import ConvergenceWarning
from sklearn.linear_model import LogisticRegression

from sklearn_dpgen.schema._column import CategoryColumn

__all__ = ["RIDGE", "design_matrix", "fit_logistic", "standardize"]

# So weak that it matters only where records leave a coefficient open: a prior of standard
# deviation 100 on what one standard deviation of a regressor does.
RIDGE = 1e-4


def design_matrix(real, synthetic, columns):
    """Return the regressors of the records of both tables, in the units of the encoder.

    A number is one regressor, at its real mean where it is null, beside one that says so; a column
    of labels has one for each label but the one that most real records have.

    Parameters
    ----------
    real, synthetic : DataFrame of n and m rows
    columns : mapping of str to Column

    Returns
    -------
    ndarray of shape (n + m, d)
    """
    blocks = []
    for name, column in columns.items():
        block = np.concatenate([column.encode(frame[name]) for frame in (real, synthetic)])
        kept = np.ones(block.shape[1], dtype=bool)
        if isinstance(column, CategoryColumn):
            kept[block[: len(real)].sum(axis=0).argmax()] = False
        elif column.nullable:
            kept[1] = False
            _fill(block, len(real))
        blocks.append(block[:, kept])
    return np.hstack(blocks)


def _fill(block, n_real):
    """Set nulls to the mean of the real values, so that no coefficient depends on the bounds."""
    null = block[:, 2] == 1
    known = block[:n_real, 0][~null[:n_real]]
    block[null, 0] = known.mean() if len(known) else 0.0


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
