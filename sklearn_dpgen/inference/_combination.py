"""Several synthetic tables that differ as much as noise and chance leave open, and their rule."""

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import pandas as pd
from scipy.stats import t as student
from sklearn.utils import check_scalar

from sklearn_dpgen.inference._calibration import Calibration
from sklearn_dpgen.inference._designs import check_columns, check_level, check_sampler
from sklearn_dpgen.schema._made_up import MadeUpColumn
from sklearn_dpgen.tables import TableSampler
from sklearn_dpgen.utils._random import split_random_state
from sklearn_dpgen.utils._validation import Integral

__all__ = ["combine_estimates", "sample_tables"]


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
