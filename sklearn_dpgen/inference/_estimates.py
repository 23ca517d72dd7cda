"""Means, shares and regressions from what a sampler released, and several tables combined."""

import warnings
from collections.abc import Hashable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np
import pandas as pd
from pandas.api.types import is_list_like
from scipy.special import expit
from scipy.stats import norm
from scipy.stats import t as student
from sklearn.exceptions import ConvergenceWarning
from sklearn.utils import check_scalar

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
    """Check that a sampler is one that tells what it released."""
    if not isinstance(sampler, TableSampler):
        raise TypeError(f"sampler must be a TableSampler, not {type(sampler).__name__}.")
    check_is_fitted(sampler)


def check_columns(sampler, names, parameter):
    """Return the names of columns as a list, checked."""
    found = list(names) if is_list_like(names) else [names]
    known = [name for name in found if isinstance(name, Hashable) and name in sampler.schema]
    if not found or len(set(known)) < len(found):
        raise ValueError(f"{parameter} must name columns of the schema, each once: {found}.")
    return found


def check_level(confidence_level):
    """Check the level of intervals."""
    check_scalar(
        confidence_level,
        "confidence_level",
        Real,
        min_val=0,
        max_val=1,
        include_boundaries="neither",
    )


def values(frame, name):
    """Return the numbers of a column; NaN for null."""
    return frame[name].to_numpy(dtype=np.float64, na_value=np.nan)


def holds(frame, sampler, conditions):
    """Return which rows fulfil conditions, as :meth:`TableSampler.sample` takes them."""
    found = np.ones(len(frame), dtype=bool)
    for name, given in (conditions or {}).items():
        found &= ValueSet.read(sampler.encoder_, name, given).holds(frame[name])
    return found


def design(frame, sampler, features):
    """Return the matrix of a regression, the names of its columns, and which rows are complete.

    Numbers are as they are. Other columns have an indicator of each label but the first declared.
    """
    columns, names = [np.ones(len(frame))], ["intercept"]
    complete = np.ones(len(frame), dtype=bool)
    for name in features:
        column = sampler.schema[name]
        complete &= frame[name].notna().to_numpy()
        if is_number(column):
            columns.append(np.nan_to_num(values(frame, name)))
            names.append(name)
            continue
        for label in column.labels[1:]:
            columns.append((frame[name] == label).fillna(False).to_numpy(dtype=np.float64))
            names.append(f"{name}={label}")
    return np.column_stack(columns), names, complete


# For an interval to be promised: the part that tables must tell of, and that noise may hide.
_MEASURED, _HIDDEN = 0.9, 0.5
_MAX_STEPS, _TOLERANCE = 50, 1e-8
_NOTHING_LEFT = "conditions: next to no row of the fitted law is left for {}."


def estimate_means(
    sampler: TableSampler,
    columns: str | Sequence[str],
    *,
    conditions: Mapping | None = None,
    confidence_level: float = 0.95,
    n_rows: int = 20_000,
    random_state: int | np.random.RandomState | None = 0,
) -> pd.DataFrame:
    """Estimate means of numbers, at no cost in privacy.

    Parameters
    ----------
    sampler : TableSampler
        Fitted.
    columns : str or sequence of str
        Numbers, or ordinal labels that are numbers. Nulls are left out of each.
    conditions : mapping or None, default=None
        Of the records that count, as for :meth:`TableSampler.sample`.
    confidence_level : float, default=0.95
        Of the intervals, in (0, 1).
    n_rows : int, default=20000
        Synthetic rows that stand between the tables and the estimate.
    random_state : int, RandomState or None, default=0
        Of these rows.

    Returns
    -------
    DataFrame
        A row for each estimate: "estimate", "std_error", "low" and "high", the interval;
        "measured" and "hidden", the shares of its variance that released tables tell of, and that
        is in intervals of columns whose records noise may hide; and "promised", whether the first
        is at least 0.9 and the second at most 0.5, so that the interval holds about as often as it
        says.

    Raises
    ------
    ValueError
        Columns that the schema does not have, that are no numbers, or that were not measured, as
        what rules compute; constants alone; conditions that none of the rows fulfils; or so many
        columns that their tables have more than 10000 cells.

    Notes
    -----
    Estimates are of the population that records were drawn from. Synthetic rows are weighted so
    that they count as the noisy tables did, as in the regression estimator of survey sampling [1]_,
    which takes off the bias of a law that was shrunken; an estimating equation is solved for these
    weights. The variance has three parts: the noise of the tables, which is known; the records as a
    sample; and an allowance for what no table tells of.

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
    wrong = [name for name in columns if not is_number(sampler.schema[name])]
    if wrong:
        raise ValueError(f"columns must hold numbers, for a mean: {wrong}.")
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
    """Estimate shares of the records, at no cost in privacy.

    Parameters
    ----------
    sampler : TableSampler
        Fitted.
    events : str or sequence of mapping
        What to tell the share of: conditions as for :meth:`TableSampler.sample`, each of
        them. A column stands for each of its labels, and null if it has any.
    conditions : mapping or None, default=None
        Of the records that the shares are of; None takes all.
    confidence_level : float, default=0.95
        Of the intervals, in (0, 1).
    n_rows : int, default=20000
        Synthetic rows that stand between the tables and the estimate.
    random_state : int, RandomState or None, default=0
        Of these rows.

    Returns
    -------
    DataFrame
        As :func:`estimate_means` does.

    Raises
    ------
    ValueError
        As :func:`estimate_means`.

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
        labels = getattr(sampler.schema[name], "labels", None)
        if labels is None:
            raise ValueError(f"events: {name!r} has no labels; give conditions on it, in a list.")
        events = [{name: v} for v in (*labels, *[None] * sampler.schema[name].nullable)]
    events = list(events) if is_list_like(events) else []
    if not events or not all(isinstance(event, Mapping) for event in events):
        raise ValueError("events must be a column, or a list of conditions.")
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
    """Estimate the coefficients of a linear or a logistic regression, at no cost in privacy.

    Parameters
    ----------
    sampler : TableSampler
        Fitted.
    target : str
        A number, for a linear regression.
    features : str or sequence of str
        Numbers enter as they are; other columns by an indicator of each label but the first one.
        Records with a null in any of these columns are left out.
    positive : value, pandas.Interval, list of them or None, default=None
        For a logistic regression: of which values of the target the probability is.
    conditions : mapping or None, default=None
        Of the records that count, as for :meth:`TableSampler.sample`.
    confidence_level : float, default=0.95
        Of the intervals, in (0, 1).
    n_rows : int, default=20000
        Synthetic rows that stand between the tables and the estimate.
    random_state : int, RandomState or None, default=0
        Of these rows.

    Returns
    -------
    DataFrame
        As :func:`estimate_means` does, for the intercept and each coefficient, in the units of the
        columns. NaN of what the rows cannot tell, as an indicator that none of them has.

    Raises
    ------
    ValueError
        As :func:`estimate_means`; a target that is a feature, or no number without ``positive``;
        features that are dates.

    Warns
    -----
    ConvergenceWarning
        Where noise leaves no solution near; estimates are NaN.

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
        raise ValueError(f"features must not hold the target, {target!r}.")
    dates = [name for name in features if isinstance(sampler.schema[name], Datetime)]
    if dates:
        raise ValueError(f"features must be numbers or have labels, unlike {dates}.")
    if positive is None and not is_number(sampler.schema[target]):
        raise ValueError(f"target {target!r} must be a number, or positive say which values count.")
    rows = _rows(sampler, [target, *features], [conditions], n_rows, random_state)
    X, names, kept = design(rows.frame, sampler, features)
    kept &= holds(rows.frame, sampler, conditions) & rows.frame[target].notna().to_numpy()
    if not kept.any():
        raise ValueError(_NOTHING_LEFT.format(target))
    if positive is None:
        y = np.nan_to_num(values(rows.frame, target))
    else:
        y = holds(rows.frame, sampler, {target: positive}).astype(np.float64)
    # An indicator that no row has, or all have, tells nothing.
    can = np.append(True, np.ptp(X[kept][:, 1:], axis=0) > 0)
    solved = _solve(rows, X[:, can], y, kept, is_logistic=positive is not None)
    found = np.full((len(names), 4), np.nan)
    if solved is not None:
        found[can] = np.column_stack(solved)
    return _table(found, names, confidence_level)


def _rows(sampler, columns, conditions, n_rows, random_state):
    check_scalar(n_rows, "n_rows", Integral, min_val=100)
    if not all(isinstance(given, Mapping | None) for given in conditions):
        raise ValueError("conditions must map columns to values.")
    named = [name for given in conditions for name in given or ()]
    names = check_columns(sampler, dict.fromkeys([*columns, *named]), "conditions")
    return Calibration(sampler, names, n_rows=n_rows, random_state=random_state)


def _ratio(rows, x, kept, subject):
    """Return the mean of values over the rows that are kept, its variance, measured and hidden."""
    weights = rows.weights() * kept
    total = weights.sum()
    if not kept.any() or total <= 0:
        raise ValueError(_NOTHING_LEFT.format(subject))
    estimate = weights @ x / total
    influences = kept * (x - estimate) / total
    return estimate, *(found[0] for found in rows.variances(influences[:, None]))


def _solve(rows, X, y, kept, *, is_logistic):
    """Return the solution of an estimating equation, its variances, measured and hidden."""
    # Of columns of one size.
    scales = np.sqrt((X[kept] ** 2).mean(axis=0))
    X = X / scales
    # Where some weights are negative, there may be no solution.
    for weigh in (rows.weights, rows.positive_weights):
        found = _newton(X, y, weigh() * kept, is_logistic)
        if found is not None:
            theta, scores, curvature = found
            influences = np.linalg.solve(curvature, (scores * kept[:, None]).T).T
            variances, *shares = rows.variances(influences)
            return theta / scales, variances / scales**2, *shares
    warnings.warn(
        "The estimating equation of the regression has no solution near that of the law: noise "
        "leaves nothing of it. Estimates are NaN.",
        ConvergenceWarning,
        stacklevel=3,
    )
    return None


def _newton(X, y, weights, is_logistic):
    """Return where the weighted score is zero, scores of rows, and their mean slope; or None."""
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
        # Far from the solution a whole step may overshoot.
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


def sample_tables(
    sampler: TableSampler,
    n_tables: int = 20,
    *,
    columns: Sequence[str] | None = None,
    n_samples: int | None = None,
    n_rows: int = 20_000,
    random_state: int | np.random.RandomState | None = None,
) -> Iterator[pd.DataFrame]:
    """Draw several synthetic tables for one analysis, at no cost in privacy.

    Each is of a law that might have been found: noise of the known scale, and the chance of a
    sample of so many records, are added once more to the released tables, which synthetic rows are
    then weighted by and drawn. Do the analysis on each, and give its results to
    :func:`combine_estimates`.

    Parameters
    ----------
    sampler : TableSampler
        Fitted.
    n_tables : int, default=20
        How many.
    columns : sequence of str or None, default=None
        Those of the analysis; None takes all that were measured. Their tables may have 10000 cells.
    n_samples : int or None, default=None
        Rows of each table; None draws as many as there are records.
    n_rows : int, default=20000
        Rows of the fitted law, of which those of the tables are drawn by weight.
    random_state : int, RandomState or None, default=None

    Yields
    ------
    DataFrame
        A table of ``columns``.

    Raises
    ------
    ValueError
        As :func:`estimate_means`.
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
    return _draw(rows, names, n_tables, n_samples, np.random.default_rng(seed))


def _draw(rows, names, n_tables, n_samples, rng):
    for _ in range(n_tables):
        # What noise may hide is put in the place of others, whatever the rules.
        weights = rows.positive_weights(rows.drawn_gaps(rng)) * rows.kept
        # Systematic: hardly more chance than the weights have.
        edges = np.cumsum(weights)
        places = (np.arange(n_samples) + rng.uniform()) * (edges[-1] / n_samples)
        chosen = np.searchsorted(
            edges, np.minimum(places, np.nextafter(edges[-1], 0)), side="right"
        )
        yield rows.frame[names].iloc[rng.permutation(chosen)].reset_index(drop=True)


def combine_estimates(
    estimates: np.ndarray | pd.DataFrame | Sequence[Any], *, confidence_level: float = 0.95
) -> pd.DataFrame:
    """Combine the results of one analysis on several synthetic tables.

    Parameters
    ----------
    estimates : array-like of shape (n_tables, k), or sequence of Series
        Of each table of :func:`sample_tables`. Series name what is estimated.
    confidence_level : float, default=0.95
        Of the intervals, in (0, 1).

    Returns
    -------
    DataFrame
        A row for each estimate: "estimate", "std_error", "low" and "high".

    Notes
    -----
    The estimate is the mean q̄ of the m results, its variance (1 + 1/m) b for their variance b, and
    intervals are of Student's t with m - 1 degrees of freedom: the tables already differ by all
    that is not known, so that the variance within a table is not added, as it is for tables that
    each fill in what is missing.
    """
    check_level(confidence_level)
    frame = pd.DataFrame(estimates).astype(np.float64)
    m = len(frame)
    if m < 2 or not np.isfinite(frame.to_numpy()).all():
        raise ValueError("estimates must be finite, and of two tables at least.")
    mean, error = frame.mean(), np.sqrt((1 + 1 / m) * frame.var(ddof=1))
    width = student.ppf((1 + confidence_level) / 2, m - 1) * error
    columns = {"estimate": mean, "std_error": error, "low": mean - width, "high": mean + width}
    return pd.DataFrame(columns).rename_axis("of")
