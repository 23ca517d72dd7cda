"""Regressions on synthetic and on real records: agreement of coefficients, propensity scores."""

import warnings
from collections.abc import Callable, Hashable

import numpy as np
import pandas as pd
from numpy.typing import ArrayLike
from scipy.special import expit, ndtri
from sklearn.exceptions import ConvergenceWarning
from sklearn.linear_model import LogisticRegression, Ridge
from sklearn.utils import check_scalar

from sklearn_dpgen.exceptions import PublicValueError
from sklearn_dpgen.metrics._marginals import check_tables
from sklearn_dpgen.schema import Numeric, Schema
from sklearn_dpgen.schema._column import CategoryColumn
from sklearn_dpgen.utils._validation import Real

__all__ = [
    "RIDGE",
    "coefficient_agreement",
    "design_matrix",
    "fit_logistic",
    "propensity_mse_ratio",
    "standardize",
]

# A ridge penalty that matters only for unidentified coefficients: a prior of standard deviation
# 100 on the effect of one standard deviation of a regressor.
RIDGE = 1e-4


def design_matrix(real, synthetic, columns):
    """Return the regressors of the records of both tables, in the units of the encoder.

    A numeric column is one regressor, with nulls at its real mean, plus an indicator of nulls. A
    column of labels has an indicator of each label but the most frequent real one.

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
    """Set nulls to the mean of the real values, so that coefficients do not depend on bounds."""
    null = block[:, 2] == 1
    known = block[:n_real, 0][~null[:n_real]]
    block[null, 0] = known.mean() if len(known) else 0.0


def standardize(X):
    """Return regressors with mean 0 and variance 1, and their standard deviations."""
    scale = X.std(axis=0)
    return (X - X.mean(axis=0)) / scale, scale


def fit_logistic(X, y):
    """Return a logistic regression fitted to standardized regressors."""
    model = LogisticRegression(C=1 / RIDGE, solver="newton-cholesky", tol=1e-8)
    with warnings.catch_warnings():
        # With separated classes, coefficients are large after any number of steps.
        warnings.simplefilter("ignore", ConvergenceWarning)
        return model.fit(X, y)


# Rounding of coefficients, in their standard errors, and of residuals, in standard deviations.
_ROUNDING = 1e-8


def coefficient_agreement(
    real: pd.DataFrame,
    synthetic: pd.DataFrame,
    schema: Schema,
    *,
    target: Hashable,
    target_transform: Callable[[pd.Series], ArrayLike] | None = None,
    level: float = 0.95,
) -> pd.Series:
    """Compare the coefficients of one regression, fitted to real and to synthetic records.

    The target is regressed on all other columns of the schema: by least squares if it is numeric,
    by logistic regression if it has two labels or ``target_transform`` is given. The intercept is
    not compared.

    Parameters
    ----------
    real, synthetic : DataFrame
        Tables with the columns of ``schema``; others are ignored. They may differ in length.
    schema : Schema
        Public declaration of the target and the regressors. A number or date is one regressor, with
        nulls at its real mean, plus an indicator of nulls. Labels have an indicator each, except
        for the most frequent real one. Columns that are constant in the real table are omitted.
    target : column name
        The target column of the regression.
    target_transform : callable or None, default=None
        Function from the target column of either table to two classes, for instance
        ``lambda visits: visits > 2``.
    level : float, default=0.95
        Confidence level of the intervals, and of significance.

    Returns
    -------
    Series of float

        - ``sign_agreement``: the share of coefficients with the same sign;
        - ``significance_agreement``: the share that lead to the same conclusion, that is positive,
          negative, or not significant;
        - ``interval_overlap``: the mean share of the overlap of both intervals in each of them, 0
          if they are disjoint, 1 if they are equal;
        - ``standardized_difference``: the mean of the absolute differences, in standard errors of
          the real coefficient;
        - ``n_coefficients``: the number of compared coefficients.

    Raises
    ------
    PublicValueError
        A table is empty, lacks a column, or has values that the schema does not allow; the target
        is not in the schema, or is neither numeric nor of two classes; or the real target or all
        regressors are constant.

    See Also
    --------
    train_synthetic_test_real : Compares predictions.

    Notes
    -----
    Standard errors are those of the Fisher information with the number of records of each table, as
    computed by an analyst who takes synthetic records for real ones. They do not include the noise
    of privacy. Two real samples do not fully agree either, in particular not on the signs of small
    coefficients; compare with such a pair.

    Both fits have a ridge penalty of 10⁻⁴, on regressors in standard deviations of their table. It
    keeps coefficients finite that the records do not identify: for separated classes, collinear
    columns, or more coefficients than records. Their standard errors are then large. A regressor
    that is constant in the synthetic table has the coefficient 0 there, without sign or interval.
    If the synthetic target is constant, this holds for all coefficients.

    References
    ----------
    Karr, Kohnen, Oganian, Reiter, Sanil (2006). A framework for evaluating the utility of data
    altered to protect confidentiality (the overlap). Snoke, Raab, Nowok, Dibben, Slavkovic (2018).
    General and specific utility measures for synthetic data (the standardized difference).

    Examples
    --------
    >>> import pandas as pd
    >>> from sklearn_dpgen.metrics import coefficient_agreement
    >>> from sklearn_dpgen.schema import Numeric, Schema
    >>> schema = Schema({"x": Numeric(0, 5), "y": Numeric(0, 5)})
    >>> real = pd.DataFrame({"x": [0, 1, 2, 3, 4], "y": [0, 1, 2, 4, 4]})
    >>> coefficient_agreement(real, real, schema, target="y").round(3).to_dict()
    ... # doctest: +NORMALIZE_WHITESPACE
    {'sign_agreement': 1.0, 'significance_agreement': 1.0, 'interval_overlap': 1.0,
     'standardized_difference': 0.0, 'n_coefficients': 1.0}
    """
    check_scalar(level, "level", Real, min_val=0, max_val=1, include_boundaries="neither")
    if target not in schema:
        raise PublicValueError(f"target must be a column of the schema, got {target!r}.")
    check_tables(real, synthetic, schema)
    is_logistic = target_transform is not None or not isinstance(schema[target], Numeric)
    y, z = _targets(real, synthetic, schema[target], target, target_transform)
    if np.ptp(y) == 0:
        raise PublicValueError(f"target must vary in the real table, got {target!r}.")
    regressors = {name: column for name, column in schema.items() if name != target}
    if not regressors:
        raise PublicValueError("schema must have a column besides the target.")
    both = design_matrix(real, synthetic, regressors)
    both = both[:, np.ptp(both[: len(real)], axis=0) > 0]
    X, Z, d = both[: len(real)], both[len(real) :], both.shape[1]
    if d == 0:
        raise PublicValueError("real must have a column besides the target that is not constant.")
    fit = _fit_logistic if is_logistic else _fit_linear
    coefficients, errors = fit(X, y)
    others, other_errors = np.zeros(d), np.zeros(d)
    found = np.ptp(Z, axis=0) > 0 if np.ptp(z) > 0 else np.zeros(d, dtype=bool)
    if found.any():
        others[found], other_errors[found] = fit(Z[:, found], z)
    return _agreement(coefficients, errors, others, other_errors, found, ndtri((1 + level) / 2))


def _targets(real, synthetic, column, target, transform):
    if transform is not None:
        y, z = (np.asarray(transform(frame[target])) for frame in (real, synthetic))
        labels = np.unique(np.concatenate([y, z]))
        if len(labels) > 2:
            raise PublicValueError("target_transform must make two classes.")
        return (y == labels[-1]).astype(float), (z == labels[-1]).astype(float)
    if column.nullable:
        raise PublicValueError(
            f"target must have no nulls, got {target!r}: pass a target_transform."
        )
    if isinstance(column, Numeric):
        return tuple(column.encode(frame[target])[:, 0] for frame in (real, synthetic))
    if getattr(column, "n_categories", None) != 2:
        raise PublicValueError(
            f"target must be numeric or have two labels, got {target!r}: pass a target_transform."
        )
    return tuple(column.codes(frame[target]).astype(float) for frame in (real, synthetic))


def _fit_logistic(X, y):
    """Return coefficients and their standard errors."""
    X, scale = standardize(X)
    model = fit_logistic(X, y)
    share = expit(model.decision_function(X))
    errors = _standard_errors(X, share * (1 - share), 1.0)
    return model.coef_[0] / scale, errors / scale


def _fit_linear(X, y):
    """Return coefficients and their standard errors."""
    n, d = X.shape
    X, scale = standardize(X)
    model = Ridge(alpha=RIDGE, solver="svd").fit(X, y)
    variance = np.sum((y - model.predict(X)) ** 2) / max(n - d - 1, 1)
    # The residuals of a perfect fit are rounding errors.
    variance = max(variance, _ROUNDING**2 * y.var())
    errors = _standard_errors(X, np.ones(n), variance)
    return model.coef_ / scale, errors / scale


def _standard_errors(X, weight, variance):
    """Return roots of the diagonal of the inverse information, with the intercept profiled out."""
    # If all fitted probabilities are 0 or 1, no record has weight.
    total = max(weight.sum(), np.finfo(float).tiny)
    mean = weight @ X / total
    information = (X * weight[:, None]).T @ X - total * np.outer(mean, mean)
    values, vectors = np.linalg.eigh(information)
    # Rounding may make an eigenvalue negative.
    inverse = 1 / (values.clip(0, None) + RIDGE)
    return np.sqrt(variance * (vectors**2 @ inverse))


def _agreement(b, error, c, other_error, found, quantile):
    low, high = b - quantile * error, b + quantile * error
    other_low, other_high = c - quantile * other_error, c + quantile * other_error
    shared = (np.minimum(high, other_high) - np.maximum(low, other_low)).clip(0, None)
    # Without a synthetic coefficient the interval is empty.
    lengths = np.array([high - low, np.where(found, other_high - other_low, 1.0)])
    overlap = (shared / lengths).mean(axis=0)
    same_sign, same_conclusion = (
        _signs(b, least * error) == _signs(c, least * other_error)
        for least in (_ROUNDING, quantile)
    )
    return pd.Series(
        {
            "sign_agreement": np.mean(found & same_sign),
            "significance_agreement": np.mean(found & same_conclusion),
            "interval_overlap": np.mean(found * overlap),
            "standardized_difference": np.mean(np.abs(b - c) / error),
            "n_coefficients": float(len(b)),
        },
        name="coefficient_agreement",
    )


def _signs(values, least):
    """Return signs, with 0 for values up to a threshold."""
    return np.sign(values) * (np.abs(values) > least)


def propensity_mse_ratio(real: pd.DataFrame, synthetic: pd.DataFrame, schema: Schema) -> float:
    r"""Ratio of the propensity score mean squared error to its expectation.

    A logistic regression on all columns predicts whether a record is synthetic. With its
    probabilities :math:`\hat p_i`, the share c of synthetic records among all N, and d regressors,

    .. math::
        \frac{\frac1N \sum_i (\hat p_i - c)^2}{d (1 - c)^2 c / N}.

    Parameters
    ----------
    real, synthetic : DataFrame
        Tables with the columns of ``schema``; others are ignored. They may differ in length.
    schema : Schema
        Public declaration. A number or date is one regressor plus an indicator of its nulls; labels
        have an indicator each, except for the most frequent. There are no interactions.

    Returns
    -------
    float
        Non-negative. About 1 for records of the right model fitted to ``real``; 1 / (1 - c) for a
        sample of the same distribution as ``real``, so 2 for tables of equal length. The larger it
        is, the easier synthetic records are detected.

    Raises
    ------
    PublicValueError
        A table is empty, lacks a column, or has values that the schema does not allow; or all
        columns are constant.

    Notes
    -----
    It compares means of single columns, and does not detect differences in dependence.

    References
    ----------
    Snoke, Raab, Nowok, Dibben, Slavkovic (2018). General and specific utility measures for
    synthetic data (the pMSE and its null expectation).
    """
    check_tables(real, synthetic, schema)
    X = design_matrix(real, synthetic, schema)
    X = X[:, np.ptp(X, axis=0) > 0]
    if X.shape[1] == 0:
        raise PublicValueError("real and synthetic must have a column that is not constant.")
    X, _ = standardize(X)
    is_synthetic = np.arange(len(X)) >= len(real)
    propensity = fit_logistic(X, is_synthetic).predict_proba(X)[:, 1]
    share = is_synthetic.mean()
    expected = np.linalg.matrix_rank(X) * (1 - share) ** 2 * share / len(X)
    return float(np.mean((propensity - share) ** 2) / expected)
