"""How well a regression tells synthetic records from real ones."""

import numpy as np
import pandas as pd

from sklearn_dpgen.exceptions import PublicValueError
from sklearn_dpgen.metrics._marginals import check_tables
from sklearn_dpgen.metrics._regression import design_matrix, fit_logistic, standardize
from sklearn_dpgen.schema import Schema

__all__ = ["propensity_mse_ratio"]


def propensity_mse_ratio(real: pd.DataFrame, synthetic: pd.DataFrame, schema: Schema) -> float:
    r"""Ratio of the propensity score mean squared error to its expectation.

    A logistic regression on all columns tells synthetic records from real ones. With its
    probabilities :math:`\hat p_i`, the share c of synthetic records among all N, and d regressors,

    .. math::
        \frac{\frac1N \sum_i (\hat p_i - c)^2}{d (1 - c)^2 c / N}.

    Parameters
    ----------
    real, synthetic : DataFrame
        Tables with the columns of ``schema``; others are ignored. They may differ in length.
    schema : Schema
        Public declaration. Numbers and dates are regressors, with another for their nulls; labels
        have one each but for the most frequent. There are no interactions.

    Returns
    -------
    float
        At least 0. About 1 for records of the right model fitted to ``real``, 1 / (1 - c) for a
        sample of the same distribution as ``real``, so 2 for tables of one length. The larger it
        is, the easier they are told apart.

    Raises
    ------
    ValueError
        A table is empty, lacks a column, or holds what the schema does not allow; or no column
        varies.

    Notes
    -----
    It is a test of single columns and of their means: it sees no dependence.

    References
    ----------
    Snoke, Raab, Nowok, Dibben, Slavkovic (2018). General and specific utility measures for
    synthetic data (the pMSE and its null expectation).
    """
    check_tables(real, synthetic, schema)
    X = design_matrix(real, synthetic, schema)
    X = X[:, np.ptp(X, axis=0) > 0]
    if X.shape[1] == 0:
        raise PublicValueError("All columns of both tables are constant.")
    X, _ = standardize(X)
    is_synthetic = np.arange(len(X)) >= len(real)
    propensity = fit_logistic(X, is_synthetic).predict_proba(X)[:, 1]
    share = is_synthetic.mean()
    expected = np.linalg.matrix_rank(X) * (1 - share) ** 2 * share / len(X)
    return float(np.mean((propensity - share) ** 2) / expected)
