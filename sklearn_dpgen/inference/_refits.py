"""Estimates from tables of persons with rows, by refits to simulated persons."""

import warnings
from collections.abc import Callable
from typing import Any

import numpy as np
import pandas as pd
from scipy.stats import t as student
from sklearn.base import clone
from sklearn.utils import check_scalar

from sklearn_dpgen.exceptions import NoisyCountsWarning, PublicTypeError, PublicValueError
from sklearn_dpgen.inference._estimates import check_level
from sklearn_dpgen.tables import RelationalSampler
from sklearn_dpgen.utils._random import split_random_state
from sklearn_dpgen.utils._validation import Integral, check_is_fitted

__all__ = ["estimate_by_refits"]

# Least number of persons from whose rows a statistic is computed: its error by drawing is small.
_PERSONS = 20_000


def estimate_by_refits(
    sampler: RelationalSampler,
    statistic: Callable[[Any], Any],
    *,
    n_refits: int = 20,
    n_samples: int | None = None,
    confidence_level: float = 0.95,
    random_state: int | np.random.RandomState | None = 0,
) -> pd.DataFrame:
    """Estimate a statistic of persons with many rows, at no cost in privacy (parametric bootstrap).

    Persons are simulated from the fitted distribution, as many as there are records. The sampler is
    fitted to them with the noise of its plan, and the statistic is computed from the new fit. Its
    variance over repetitions counts the noise, the sampling of whole persons, whose rows depend on
    one another, and the errors of the fit; its mean corrects the bias of the fit.

    Parameters
    ----------
    sampler : RelationalSampler
        Fitted.
    statistic : callable
        Function of the tables that ``sampler.sample`` returns; its result is a number, an array of
        shape (k,) or a Series, which names the estimates.
    n_refits : int, default=20
        Number of refits, at least 2. Each takes the time of a fit.
    n_samples : int or None, default=None
        Number of persons from whose rows each statistic is computed. None draws 20000, or the
        number of records if it is larger.
    confidence_level : float, default=0.95
        Confidence level of the intervals, in (0, 1).
    random_state : int, RandomState or None, default=0
        Seed of the simulated persons and of the noise of refits. It reveals nothing of the noise
        of the release.

    Returns
    -------
    DataFrame
        A row for each estimate: "estimate"; "std_error"; "low" and "high", the confidence interval;
        and "bias", the estimated bias of the statistic of synthetic tables, which was subtracted.

    Raises
    ------
    PublicTypeError
        ``sampler`` is not a RelationalSampler.
    PublicValueError
        Results of the statistic are not finite, or differ in length.

    See Also
    --------
    estimate_regression : Closed-form estimates for tables with one row per person.

    Notes
    -----
    With θ the statistic of the fitted distribution and θ_b those of the B refits, of mean m and
    variance v, the estimate is 2θ - m, its variance (1 + 1/B) v, and intervals use Student's t with
    B - 1 degrees of freedom. The bootstrap takes the fitted distribution for that of the persons.
    It does not account for dependence that no released marginal measures and that the distribution
    lacks, such as of rows far apart: intervals of statistics that depend on it are too narrow.

    Examples
    --------
    >>> from sklearn_dpgen.inference import estimate_by_refits
    >>> def means(visits):
    ...     return visits[["pressure", "weight"]].mean()
    >>> estimate_by_refits(sampler, means)  # doctest: +SKIP
    """
    if not isinstance(sampler, RelationalSampler):
        raise PublicTypeError(f"sampler must be a RelationalSampler, got {type(sampler).__name__}.")
    check_is_fitted(sampler)
    check_level(confidence_level)
    check_scalar(n_refits, "n_refits", Integral, min_val=2)
    n_records = max(2, round(sampler.n_records_))
    n_samples = max(_PERSONS, n_records) if n_samples is None else n_samples
    check_scalar(n_samples, "n_samples", Integral, min_val=1)
    seed, *seeds = split_random_state(random_state, n_refits + 1)
    found = [_result(statistic, sampler, n_samples, seed)]
    for seed in seeds:
        drawn, fitted, scored = split_random_state(seed, 3)
        # The ledger has paid for the release; noise that is simulated need not be certified.
        refit = clone(sampler).set_params(
            ledger=None, random_state=fitted, noise="float", verbose=0
        )
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", NoisyCountsWarning)
            refit.fit(sampler.sample(n_records, random_state=drawn))
        found.append(_result(statistic, refit, n_samples, scored))
    if len({len(result) for result in found}) > 1:
        raise PublicValueError("statistic must return results of one length.")
    own, refits = found[0], np.array(found[1:])
    if not (np.isfinite(own).all() and np.isfinite(refits).all()):
        raise PublicValueError("statistic must return finite numbers for all tables.")
    bias = refits.mean(axis=0) - own.to_numpy()
    error = np.sqrt((1 + 1 / n_refits) * refits.var(axis=0, ddof=1))
    width = student.ppf((1 + confidence_level) / 2, n_refits - 1) * error
    estimate = own - bias
    columns = {"estimate": estimate, "std_error": error, "low": estimate - width}
    columns |= {"high": estimate + width, "bias": bias}
    return pd.DataFrame(columns, index=own.index).rename_axis("of")


def _result(statistic, sampler, n_samples, seed):
    result = statistic(sampler.sample(n_samples, random_state=seed))
    if not isinstance(result, pd.Series):
        result = pd.Series(np.ravel(result))
    return result.astype(np.float64)
