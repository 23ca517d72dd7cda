"""Means, shares, regressions and multiple synthetic tables from the release of a sampler."""

import warnings
from collections.abc import Hashable, Iterator, Mapping, Sequence
from functools import cached_property
from typing import Any

import numpy as np
import pandas as pd
from pandas.api.types import is_list_like
from scipy.special import expit
from scipy.stats import norm
from scipy.stats import t as student
from sklearn.exceptions import ConvergenceWarning
from sklearn.utils import check_scalar

from sklearn_dpgen.exceptions import PublicTypeError, PublicValueError
from sklearn_dpgen.inference._calibration import Calibration
from sklearn_dpgen.schema import Datetime
from sklearn_dpgen.schema._column import MadeUpColumn
from sklearn_dpgen.tables import TableSampler
from sklearn_dpgen.tables._table_rules import ValueSet, is_number
from sklearn_dpgen.utils._random import split_random_state
from sklearn_dpgen.utils._validation import Integral, Real, check_is_fitted

__all__ = [
    "check_columns",
    "check_level",
    "check_sampler",
    "combine_estimates",
    "design",
    "estimate_means",
    "estimate_regression",
    "estimate_shares",
    "holds",
    "sample_tables",
    "values",
]


def check_sampler(sampler):
    """Check that a sampler is one whose releases can be calibrated."""
    if not isinstance(sampler, TableSampler):
        raise PublicTypeError(f"sampler must be a TableSampler, got {type(sampler).__name__}.")
    check_is_fitted(sampler)


def check_columns(sampler, names, parameter):
    """Return checked column names as a list."""
    found = list(names) if is_list_like(names) else [names]
    known = [name for name in found if isinstance(name, Hashable) and name in sampler.schema]
    if not found or len(set(known)) < len(found):
        raise PublicValueError(
            f"{parameter} must be columns of the schema, each once, got {found}."
        )
    return found


def check_level(confidence_level):
    """Check the confidence level of intervals."""
    check_scalar(
        confidence_level,
        "confidence_level",
        Real,
        min_val=0,
        max_val=1,
        include_boundaries="neither",
    )


def values(frame, name):
    """Return the values of a numeric column as floats; NaN for null."""
    return frame[name].to_numpy(dtype=np.float64, na_value=np.nan)


def holds(frame, sampler, conditions):
    """Return a mask of the rows that fulfil conditions, as in :meth:`TableSampler.sample`."""
    found = np.ones(len(frame), dtype=bool)
    for name, given in (conditions or {}).items():
        found &= ValueSet.read(sampler.encoder_, name, given).holds(frame[name])
    return found


def design(frame, sampler, features):
    """Return the matrix of a regression, the names of its columns, and a mask of complete rows.

    Numbers are kept. Other columns have an indicator of each label but the first declared one.
    """
    columns, names = [np.ones(len(frame))], ["intercept"]
    complete = np.ones(len(frame), dtype=bool)
    for name in features:
        column = sampler.schema_[name]
        complete &= frame[name].notna().to_numpy()
        if is_number(column):
            columns.append(np.nan_to_num(values(frame, name)))
            names.append(name)
            continue
        for label in column.labels[1:]:
            columns.append((frame[name] == label).fillna(False).to_numpy(dtype=np.float64))
            names.append(f"{name}={label}")
    return np.column_stack(columns), names, complete


# Least measured and largest hidden share of the variance for which an interval is promised.
_MEASURED, _HIDDEN = 0.9, 0.5
_MAX_STEPS, _TOLERANCE = 50, 1e-8
_NOTHING_LEFT = "conditions must leave rows of the fitted model for {}, got almost none."


def estimate_means(
    sampler: TableSampler,
    columns: str | Sequence[str],
    *,
    conditions: Mapping | None = None,
    confidence_level: float = 0.95,
    n_rows: int = 20_000,
    random_state: int | np.random.RandomState | None = 0,
) -> pd.DataFrame:
    """Estimate means of numeric columns from a fitted sampler, at no cost in privacy.

    Parameters
    ----------
    sampler : TableSampler
        Fitted.
    columns : str or sequence of str
        Numeric columns, or ordinal ones with numeric labels. Nulls of a column are ignored in its
        mean.
    conditions : mapping or None, default=None
        Restricts the records, as in :meth:`TableSampler.sample`.
    confidence_level : float, default=0.95
        Confidence level of the intervals, in (0, 1).
    n_rows : int, default=20000
        Number of synthetic rows that are calibrated.
    random_state : int, RandomState or None, default=0
        Seed of these rows.

    Returns
    -------
    DataFrame
        A row for each estimate. "estimate"; "std_error"; "low" and "high", the confidence
        interval; "measured", the share of its variance that released marginals measure; "hidden",
        the share in intervals of columns whose counts are below the noise; and "promised", whether
        "measured" is at least 0.9 and "hidden" at most 0.5, so that the coverage is close to
        the nominal one.

    Raises
    ------
    PublicTypeError
        ``sampler`` is not a TableSampler.
    PublicValueError
        Columns are not in the schema, not numeric, constant, or were not measured but computed by
        rules; almost no row fulfils the conditions; or the marginals of the columns have more than
        10000 cells.

    Notes
    -----
    The estimates refer to the population from which the records were drawn. Synthetic rows are
    weighted such that they reproduce the noisy marginals, as in the regression estimator of survey
    sampling [1]_, which removes the bias of a shrunken model; the estimating equation is solved
    with these weights. The variance has three parts: the known noise of the marginals, the
    sampling of the records, and an allowance for directions that no marginal measures.

    References
    ----------
    .. [1] C.-E. Särndal, B. Swensson, J. Wretman, "Model assisted survey sampling", 1992.

    Examples
    --------
    >>> from sklearn_dpgen.datasets import load_rand_health
    >>> from sklearn_dpgen.inference import estimate_means
    >>> from sklearn_dpgen.tables import TableSampler
    >>> data = load_rand_health()
    >>> sampler = TableSampler(schema=data.schema).fit(data.frame)
    >>> found = estimate_means(sampler, "mdvis")
    >>> found.columns.tolist()
    ['estimate', 'std_error', 'low', 'high', 'measured', 'hidden', 'promised']
    """
    check_sampler(sampler)
    check_level(confidence_level)
    columns = check_columns(sampler, columns, "columns")
    wrong = [name for name in columns if not is_number(sampler.schema_[name])]
    if wrong:
        raise PublicValueError(f"columns must be numeric, got {wrong}.")
    found = []
    for name in columns:
        rows = _rows(sampler, [name], [conditions], n_rows, random_state)
        x = values(rows.frame, name)
        kept = holds(rows.frame, sampler, conditions) & ~np.isnan(x)
        found.append(_ratio(rows, np.nan_to_num(x), kept, name))
    return _table(found, columns, confidence_level)


def estimate_shares(
    sampler: TableSampler,
    events: str | Sequence[Mapping],
    *,
    conditions: Mapping | None = None,
    confidence_level: float = 0.95,
    n_rows: int = 20_000,
    random_state: int | np.random.RandomState | None = 0,
) -> pd.DataFrame:
    """Estimate shares of the records from a fitted sampler, at no cost in privacy.

    Parameters
    ----------
    sampler : TableSampler
        Fitted.
    events : str or sequence of mapping
        A list of conditions, as in :meth:`TableSampler.sample`, whose shares are estimated. The
        name of a column stands for each of its labels, and for null if it has nulls.
    conditions, confidence_level, n_rows, random_state
        As in :func:`estimate_means`.

    Returns
    -------
    DataFrame
        As in :func:`estimate_means`.

    Raises
    ------
    PublicTypeError, PublicValueError
        As in :func:`estimate_means`.

    Examples
    --------
    >>> from sklearn_dpgen.datasets import load_rand_health
    >>> from sklearn_dpgen.inference import estimate_shares
    >>> from sklearn_dpgen.tables import TableSampler
    >>> data = load_rand_health()
    >>> sampler = TableSampler(schema=data.schema).fit(data.frame)
    >>> estimate_shares(sampler, "idp", conditions={"hlthp": 1}).index.tolist()
    ["{'idp': 0}", "{'idp': 1}"]
    """
    check_sampler(sampler)
    check_level(confidence_level)
    if isinstance(events, str):
        (name,) = check_columns(sampler, events, "events")
        labels = getattr(sampler.schema_[name], "labels", None)
        if labels is None:
            raise PublicValueError(
                f"events must be a column with labels or a list of conditions, got {name!r}."
            )
        events = [{name: v} for v in (*labels, *[None] * sampler.schema_[name].nullable)]
    events = list(events) if is_list_like(events) else []
    if not events or not all(isinstance(event, Mapping) for event in events):
        raise PublicValueError("events must be a column, or a list of conditions.")
    found = []
    for event in events:
        rows = _rows(sampler, [], [event, conditions], n_rows, random_state)
        happens = holds(rows.frame, sampler, event)
        kept = holds(rows.frame, sampler, conditions)
        found.append(_ratio(rows, happens.astype(np.float64), kept, conditions))
    table = _table(found, [str(dict(event)) for event in events], confidence_level)
    return table.assign(low=table["low"].clip(0, 1), high=table["high"].clip(0, 1))


def estimate_regression(
    sampler: TableSampler,
    target: str,
    features: str | Sequence[str],
    *,
    positive: object = None,
    conditions: Mapping | None = None,
    confidence_level: float = 0.95,
    n_rows: int = 20_000,
    random_state: int | np.random.RandomState | None = 0,
) -> pd.DataFrame:
    """Estimate the coefficients of a linear or logistic regression, at no cost in privacy.

    Parameters
    ----------
    sampler : TableSampler
        Fitted.
    target : str
        Target column; numeric for a linear regression.
    features : str or sequence of str
        Numeric columns enter as they are, others by an indicator of each label but the first one.
        Records with a null in any of these columns are ignored.
    positive : value, pandas.Interval, list of them or None, default=None
        Values of the target whose probability a logistic regression models. None fits a linear
        regression.
    conditions, confidence_level, n_rows, random_state
        As in :func:`estimate_means`.

    Returns
    -------
    DataFrame
        As in :func:`estimate_means`, for the intercept and each coefficient, in the units of the
        columns. NaN if the rows do not identify a coefficient, such as of a constant indicator.

    Raises
    ------
    PublicTypeError, PublicValueError
        As in :func:`estimate_means`. Also if the target is a feature, or is not numeric without
        ``positive``, or if features are dates.

    Warns
    -----
    ConvergenceWarning
        Noise leaves no solution near that of the model; estimates are NaN.

    Examples
    --------
    >>> from sklearn_dpgen.datasets import load_rand_health
    >>> from sklearn_dpgen.inference import estimate_regression
    >>> from sklearn_dpgen.tables import TableSampler
    >>> data = load_rand_health()
    >>> sampler = TableSampler(schema=data.schema, target="mdvis").fit(data.frame)
    >>> estimate_regression(sampler, "mdvis", ["disea", "idp"]).index.tolist()
    ['intercept', 'disea', 'idp=1']
    """
    check_sampler(sampler)
    check_level(confidence_level)
    (target,) = check_columns(sampler, [target], "target")
    features = check_columns(sampler, features, "features")
    if target in features:
        raise PublicValueError(f"features must not include the target, got {target!r}.")
    dates = [name for name in features if isinstance(sampler.schema_[name], Datetime)]
    if dates:
        raise PublicValueError(f"features must be numeric or have labels, got the dates {dates}.")
    if positive is None and not is_number(sampler.schema_[target]):
        raise PublicValueError(
            f"target must be numeric, or positive must name its values, got {target!r}."
        )
    rows = _rows(sampler, [target, *features], [conditions], n_rows, random_state)
    X, names, kept = design(rows.frame, sampler, features)
    kept &= holds(rows.frame, sampler, conditions) & rows.frame[target].notna().to_numpy()
    if not kept.any():
        raise PublicValueError(_NOTHING_LEFT.format(target))
    if positive is None:
        y = np.nan_to_num(values(rows.frame, target))
    else:
        y = holds(rows.frame, sampler, {target: positive}).astype(np.float64)
    # The coefficient of a constant indicator is not identified.
    can = np.append(True, np.ptp(X[kept][:, 1:], axis=0) > 0)
    solved = _solve(rows, X[:, can], y, kept, is_logistic=positive is not None)
    found = np.full((len(names), 4), np.nan)
    if solved is not None:
        found[can] = np.column_stack(solved)
    return _table(found, names, confidence_level)


def _rows(sampler, columns, conditions, n_rows, random_state):
    check_scalar(n_rows, "n_rows", Integral, min_val=100)
    if not all(isinstance(given, Mapping | None) for given in conditions):
        raise PublicValueError("conditions must map columns to values.")
    named = [name for given in conditions for name in given or ()]
    names = check_columns(sampler, dict.fromkeys([*columns, *named]), "conditions")
    return Calibration(sampler, names, n_rows=n_rows, random_state=random_state)


def _ratio(rows, x, kept, subject):
    """Return the mean of values over the kept rows, its variance, and the shares of this."""
    weights = rows.weights() * kept
    total = weights.sum()
    if not kept.any() or total <= 0:
        raise PublicValueError(_NOTHING_LEFT.format(subject))
    estimate = weights @ x / total
    influences = kept * (x - estimate) / total
    return estimate, *(found[0] for found in rows.variances(influences[:, None]))


def _solve(rows, X, y, kept, *, is_logistic):
    """Return the solution of an estimating equation, its variances, and the shares of these."""
    # Columns are scaled alike for the condition number.
    scales = np.sqrt((X[kept] ** 2).mean(axis=0))
    X = X / scales
    # With some negative weights there may be no solution.
    for weigh in (rows.weights, rows.positive_weights):
        found = _newton(X, y, weigh() * kept, is_logistic)
        if found is not None:
            theta, scores, curvature = found
            influences = np.linalg.solve(curvature, (scores * kept[:, None]).T).T
            variances, *shares = rows.variances(influences)
            return theta / scales, variances / scales**2, *shares
    warnings.warn(
        "The estimating equation of the regression has no solution near that of the fitted "
        "model: the noise is too large. Estimates are NaN.",
        ConvergenceWarning,
        stacklevel=3,
    )
    return None


def _newton(X, y, weights, is_logistic):
    """Return the root of the weighted score, row scores and curvature; None without a root."""
    theta = np.zeros(X.shape[1])
    for _ in range(_MAX_STEPS):
        fitted = expit(X @ theta) if is_logistic else X @ theta
        slopes = fitted * (1 - fitted) if is_logistic else np.ones(len(y))
        scores = X * (y - fitted)[:, None]
        curvature = (X * (weights * slopes)[:, None]).T @ X
        try:
            step = np.linalg.solve(curvature, weights @ scores)
        except np.linalg.LinAlgError:
            return None
        if np.abs(step).max() < _TOLERANCE * (1 + np.abs(theta).max()):
            return theta, scores, curvature
        # A full Newton step may overshoot far from the solution.
        theta = theta + step * min(1, 2 / np.abs(step).max() if is_logistic else 1)
    return None


def _table(found, names, confidence_level):
    estimates, variances, measured, hidden = np.array(found).T
    errors = np.sqrt(variances)
    width = norm.ppf((1 + confidence_level) / 2) * errors
    columns = {
        "estimate": estimates,
        "std_error": errors,
        "low": estimates - width,
        "high": estimates + width,
        "measured": measured,
        "hidden": hidden,
        "promised": (measured >= _MEASURED) & (hidden <= _HIDDEN),
    }
    return pd.DataFrame(columns, index=pd.Index(names, name="of"))


class SyntheticTables(Iterator[pd.DataFrame]):
    """Synthetic tables for one analysis, drawn one by one.

    Parameters
    ----------
    draws : iterator of DataFrame
    promised : callable
        Function without arguments that returns :attr:`promised`.
    """

    def __init__(self, draws, promised):
        self._draws, self._promised = draws, promised

    def __next__(self) -> pd.DataFrame:
        return next(self._draws)

    @cached_property
    def promised(self) -> pd.Series:
        """Whether the interval of :func:`estimate_means` is promised, for each numeric column."""
        return self._promised()


def sample_tables(
    sampler: TableSampler,
    n_tables: int = 20,
    *,
    columns: Sequence[str] | None = None,
    n_samples: int | None = None,
    n_rows: int = 20_000,
    random_state: int | np.random.RandomState | None = None,
) -> SyntheticTables:
    """Draw several synthetic tables for one analysis, at no cost in privacy.

    Each table adds one more draw of the known noise and of the sampling error to the released
    marginals, weights synthetic rows accordingly, and draws from them. Run the analysis on each
    table, and give the results to :func:`combine_estimates`. Tables have no negative counts, so
    noise fills the tail of a column whose counts are below it, and shifts its mean.

    Parameters
    ----------
    sampler : TableSampler
        Fitted.
    n_tables : int, default=20
        Number of tables.
    columns : sequence of str or None, default=None
        Columns of the analysis; None takes all measured ones. Their marginals may have at most
        10000 cells.
    n_samples : int or None, default=None
        Number of rows of each table; None draws as many as there are records.
    n_rows : int, default=20000
        Number of rows of the fitted model, from which tables are drawn by weight.
    random_state : int, RandomState or None, default=None

    Returns
    -------
    iterator of DataFrame
        Tables of ``columns``. Its attribute ``promised`` is a Series: for each numeric column,
        whether the interval of :func:`estimate_means` is promised.

    Raises
    ------
    PublicTypeError, PublicValueError
        As in :func:`estimate_means`.
    """
    check_sampler(sampler)
    check_scalar(n_tables, "n_tables", Integral, min_val=2)
    check_scalar(n_rows, "n_rows", Integral, min_val=100)
    known = sampler.encoder_.columns_
    measured = [name for name, column in known.items() if not isinstance(column, MadeUpColumn)]
    names = check_columns(sampler, measured if columns is None else columns, "columns")
    n_samples = max(1, round(sampler.n_records_)) if n_samples is None else n_samples
    check_scalar(n_samples, "n_samples", Integral, min_val=1)
    rows_seed, seed = split_random_state(random_state, 2)
    rows = Calibration(sampler, names, n_rows=n_rows, random_state=rows_seed)
    draws = _draw(rows, names, n_tables, n_samples, np.random.default_rng(seed))
    counted = {marginal.columns[0] for marginal in sampler.one_way_marginals_}
    numeric = [name for name in names if name in counted and is_number(sampler.schema_[name])]

    def promised():
        if not numeric:
            return pd.Series(dtype=bool)
        found = estimate_means(sampler, numeric, n_rows=n_rows, random_state=rows_seed)
        return found["promised"]

    return SyntheticTables(draws, promised)


def _draw(rows, names, n_tables, n_samples, rng):
    for _ in range(n_tables):
        # Only rows of the model are sure to satisfy the rules; others are dropped if they do not.
        weights = rows.positive_weights(rows.drawn_gaps(rng)) * rows.kept
        # Systematic sampling adds almost no variance.
        edges = np.cumsum(weights)
        places = (np.arange(n_samples) + rng.uniform()) * (edges[-1] / n_samples)
        chosen = np.searchsorted(
            edges, np.minimum(places, np.nextafter(edges[-1], 0)), side="right"
        )
        yield rows.frame[names].iloc[rng.permutation(chosen)].reset_index(drop=True)


def combine_estimates(
    estimates: np.ndarray | pd.DataFrame | Sequence[Any],
    *,
    tables: SyntheticTables | None = None,
    confidence_level: float = 0.95,
) -> pd.DataFrame:
    """Combine the results of one analysis on several synthetic tables (multiple imputation).

    Parameters
    ----------
    estimates : array-like of shape (n_tables, k), or sequence of Series
        Results on each table of :func:`sample_tables`. Series name the estimates.
    tables : iterator or None, default=None
        What :func:`sample_tables` returned, for the column "promised".
    confidence_level : float, default=0.95
        Confidence level of the intervals, in (0, 1).

    Returns
    -------
    DataFrame
        A row for each estimate: "estimate", "std_error", "low" and "high". With ``tables`` also
        "promised", as in :func:`estimate_means`: for an estimate with the name of a numeric column
        that of the column, for others whether all numeric columns of the tables have it. It is
        necessary for the coverage, and does not suffice for slopes.

    Raises
    ------
    PublicValueError
        Fewer than two tables, or results that are not finite.

    Notes
    -----
    The estimate is the mean of the m results. Its variance is (1 + 1/m) b, with b the variance
    between results, and intervals use Student's t with m - 1 degrees of freedom. The variance
    within a table is not added, unlike for imputations of missing values: the tables already
    differ by the noise and by the sampling.
    """
    check_level(confidence_level)
    frame = pd.DataFrame(estimates).astype(np.float64)
    m = len(frame)
    if m < 2 or not np.isfinite(frame.to_numpy()).all():
        raise PublicValueError("estimates must be finite, and of at least two tables.")
    mean, error = frame.mean(), np.sqrt((1 + 1 / m) * frame.var(ddof=1))
    width = student.ppf((1 + confidence_level) / 2, m - 1) * error
    columns = {"estimate": mean, "std_error": error, "low": mean - width, "high": mean + width}
    if tables is not None:
        known = tables.promised.to_dict()
        every = all(known.values())
        columns["promised"] = [known.get(name, every) for name in frame]
    return pd.DataFrame(columns).rename_axis("of")
