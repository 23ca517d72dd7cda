"""Conditional sampling from fitted distributions, and rejection sampling under rules."""

import math
from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial
from numbers import Real
from typing import Any, cast

import numpy as np
import pandas as pd
from pandas.api.types import is_list_like

from sklearn_dpgen.exceptions import PublicValueError
from sklearn_dpgen.preprocessing import TabularEncoder
from sklearn_dpgen.schema import Categorical, Datetime, Identifier, OpenCategorical
from sklearn_dpgen.schema._binned import Binned, comparable
from sklearn_dpgen.schema._column import CategoryColumn
from sklearn_dpgen.tables._distributions import draw_weighted
from sklearn_dpgen.utils._frames import FramesMixin
from sklearn_dpgen.utils._random import split_random_state
from sklearn_dpgen.utils._validation import check_is_fitted, check_n_samples, warn_user

__all__ = [
    "AcceptanceRateMixin",
    "ConditionalSamplerMixin",
    "RecordSampler",
    "checked_interval",
    "draw_kept",
    "read_conditions",
]

# Values drawn per batch.
_BLOCK = 1 << 22
_MISSED = "conditions on {name!r} must hold intervals that contain a declared value."
# The least effective size without a warning.
_FEW = 10
IMPOSSIBLE = (
    "conditions on {names} are impossible: their probability under the fitted distribution is "
    "below one in a billion."
)
FEW_MESSAGE = (
    "Conditions on {names} have an effective size of {size:.1f} {unit}: most samples repeat these "
    "{unit}."
)


class ConditionalSamplerMixin(FramesMixin):
    """Sampling of records from ``law_``, a ProductMixture or LogLinearChain, with conditions."""

    # The TableRules of a fit with constraints.
    _rules_: Any = None

    def sample(
        self,
        n_samples: int = 1,
        *,
        conditions: Mapping | None = None,
        random_state: int | np.random.RandomState | None = None,
    ) -> pd.DataFrame:
        """Draw synthetic records, which is post-processing and costs no privacy.

        Parameters
        ----------
        n_samples : int, default=1
            Number of records.
        conditions : mapping or None, default=None
            ``{column: value, pandas.Interval or list of these}``: each named column has one of
            the values, or a value in one of the intervals. Intervals are of numbers, possibly
            infinite, or of dates (naive ones in UTC); numeric ordinal columns take them too. A
            listed number or date in a bin has the probability of the bin outside all intervals,
            and is returned itself; ``Interval(v, v, closed="both")`` gives a grid value its own
            share of the bin. Tuples are ambiguous, and are refused.
        random_state : int, RandomState or None, default=None
            Seed of the draw.

        Returns
        -------
        X : data frame of shape (n_samples, n_features)

        Raises
        ------
        ValueError
            A condition on an undeclared column or value, an interval of the wrong type or without
            a declared value, impossible conditions, or constraints that fewer than one in 10000
            drawn records fulfil.

        Warns
        -----
        UserWarning
            The effective size of the conditions is below 10, or fewer than one in 100 drawn
            records fulfil the constraints.

        Notes
        -----
        Records that violate constraints, or conditions on columns that constraints compute, are
        rejected and drawn again.

        In an interval, values are uniform over the grid values of a bin, or over the part of the
        bin without a grid. The bin has the probability of this part; a narrow bin of one number is
        either inside or outside.

        Under conditions, a population weights its rows by the probabilities of the conditions. A
        chain draws each column under its condition, and resamples rows by the probabilities of the
        conditions given earlier columns. :meth:`effective_size` measures the loss by this.
        """
        check_is_fitted(self)
        n_samples = check_n_samples(n_samples, width=len(self.encoder_.columns_))
        sampler = self._record_sampler(conditions)
        if sampler.conditions and (size := sampler.distribution.effective_size) < _FEW:
            message = FEW_MESSAGE.format(names=[*sampler.conditions], size=size, unit="rows")
            warn_user(f"{message} See effective_size.", UserWarning)
        (seed,) = split_random_state(random_state, 1)
        rng = np.random.default_rng(seed)
        under = f" under the conditions on {list(conditions)}" if conditions else ""
        most = max(1, _BLOCK // len(self.encoder_.columns_))
        frame = sampler.sample(n_samples, rng, most=most, under=under)
        for name, column in self.encoder_.columns_.items():
            if isinstance(column, Identifier):
                frame[name] = column.made_up(n_samples)
        return self._given_back(frame)

    def effective_size(self, conditions: Mapping | None = None) -> float:
        """Return the effective sample size of the fitted distribution under conditions.

        Parameters
        ----------
        conditions : mapping or None, default=None
            As for :meth:`sample`, intervals included.

        Returns
        -------
        float
            (Σ w)² / Σ w² for the weights w of rows, which are the probabilities of the conditions:
            of all rows of a population, or of 20000 rows that a chain draws. At least 1; if it is
            small, samples repeat a few rows.

        Raises
        ------
        ValueError
            As :meth:`sample`.
        """
        check_is_fitted(self)
        return self._record_sampler(conditions).distribution.effective_size

    def __sklearn_is_fitted__(self):
        return hasattr(self, "law_")

    def _record_sampler(self, conditions):
        """Return the RecordSampler under conditions."""
        computed, derived = {} if self._rules_ is None else self._rules_.derived, {}
        if isinstance(conditions, Mapping):
            derived = {name: given for name, given in conditions.items() if name in computed}
            conditions = {name: v for name, v in conditions.items() if name not in derived}
            if derived and self._rules_ is not None:
                derived = self._rules_.value_sets(derived)
                conditions = self._rules_.premises(derived) | conditions
        conditions = read_conditions(self.encoder_, conditions)
        distribution = self._restricted(conditions)
        return RecordSampler(distribution, self.encoder_, conditions, self._rules_, derived)

    def _restricted(self, conditions):
        """Return the distribution under conditions; ValueError if they are impossible."""
        names = list(self.encoder_.columns_)
        allowed = {names.index(name): condition.shares() for name, condition in conditions.items()}
        distribution = self.law_.restricted(allowed)
        if distribution is None:
            raise PublicValueError(IMPOSSIBLE.format(names=list(conditions)))
        return distribution


class AcceptanceRateMixin:
    """Acceptance rate of records, or persons, that are drawn under constraints."""

    # Returns what draws them under conditions.
    _record_sampler: Any

    def acceptance_rate(self, conditions: Mapping | None = None) -> float:
        """Return the share of drawn records, or of drawn persons, that fulfil the constraints.

        A record that violates a constraint is first redrawn up to eight times within the blocks of
        its values, and then rejected. :class:`RelationalSampler` redraws the rows of a person, and
        rejects persons.

        Parameters
        ----------
        conditions : mapping or None, default=None
            As for :meth:`sample`. The rate is relative to records or persons under the conditions;
            conditions on columns that constraints compute count as constraints.

        Returns
        -------
        float
            Rate of 20000 records or 5000 persons drawn with a fixed seed; 1 without constraints.
            It is post-processing and costs no privacy.

        Raises
        ------
        ValueError
            As :meth:`sample`, except for a low acceptance rate.
        """
        check_is_fitted(self)
        return self._record_sampler(conditions).acceptance_rate()


@dataclass(frozen=True, eq=False)
class Condition:
    """Condition on a column: listed values, and ranges of bins inside intervals.

    Parameters
    ----------
    column : CategoryColumn
        The encoded column.
    values : Series of shape (n_values,)
        Listed values, in the units of the column.
    codes : ndarray of int of shape (n,)
        The category or bin of each value, then of each range.
    weights : ndarray of shape (n,)
        The share of each value or range in its category or bin.
    starts, stops : ndarray of int of shape (n - n_values,)
        The first grid place of each range, and the one after its last.
    """

    column: CategoryColumn
    values: pd.Series
    codes: np.ndarray
    weights: np.ndarray
    starts: np.ndarray
    stops: np.ndarray

    def shares(self):
        """Return the allowed fraction of each category: 1 if one of its values is listed."""
        shares = np.bincount(self.codes, self.weights, minlength=self.column.n_categories)
        shares[self.codes[: len(self.values)]] = 1
        return shares

    def draw(self, drawn, rng):
        """Return a series with a random allowed value in each of the drawn categories."""
        chosen, n_values = draw_weighted(self.codes, self.weights, drawn, rng), len(self.values)
        (in_range,) = np.nonzero(chosen >= n_values)
        if not len(in_range):
            return self.values.iloc[chosen]
        ranges = chosen[in_range] - n_values
        starts, stops = self.starts[ranges], self.stops[ranges]
        shifts = (rng.uniform(size=len(ranges)) * (stops - starts)).astype(np.int64)
        # Rounding could give the stop itself.
        places = np.minimum(starts + shifts, stops - 1)
        values = cast(Binned, self.column).decode_places(places)
        chosen[in_range] = n_values + np.arange(len(in_range))
        return pd.concat([self.values, values], ignore_index=True).iloc[chosen]


def read_conditions(encoder, conditions):
    """Return conditions on columns as ones on encoded records.

    Parameters
    ----------
    encoder : TabularEncoder
        Fitted, with bins for numbers and dates.
    conditions : mapping of str to value, Interval or list, or None

    Returns
    -------
    dict of str to Condition

    Raises
    ------
    ValueError
        Columns or values that the schema does not declare, intervals of the wrong type or without
        a declared value, or an empty list.
    """
    if not isinstance(conditions, Mapping | None):
        raise PublicValueError(
            f"conditions must map columns to values, got {type(conditions).__name__}."
        )
    encoded = {}
    for name, given in (conditions or {}).items():
        if name not in encoder.columns_:
            raise PublicValueError(f"conditions must name columns of the schema, got {name!r}.")
        if isinstance(given, tuple):
            raise PublicValueError(
                f"conditions on {name!r} must not be a tuple: list the values, [low, high], or "
                "give the range between them, pandas.Interval(low, high)."
            )
        given = list(given) if is_list_like(given) else [given]
        if not given:
            raise PublicValueError(f"conditions on {name!r} must list at least one value.")
        column = encoder.columns_[name]
        if isinstance(column, Identifier):
            raise PublicValueError(
                f"conditions must not name identifiers, whose values are generated, got {name!r}."
            )
        intervals = [checked_interval(name, column, v) for v in given if isinstance(v, pd.Interval)]
        given = [value for value in given if not isinstance(value, pd.Interval)]
        if isinstance(column, Binned):
            encoded[name] = _in_bins(name, column, given, intervals)
        else:
            given += _labels(name, column, intervals)
            if isinstance(column, OpenCategorical):
                _check_known(name, column, given)
            series = pd.Series(given, name=name, dtype=object)
            codes = column.codes(series)
            values = column.decode(column.encode(series), name=name)
            empty = np.zeros(0, dtype=np.int64)
            weights = _equal_shares(codes)
            encoded[name] = Condition(column, values, codes, weights, empty, empty)
    return encoded


def _check_known(name, column, given):
    """Raise ValueError for labels that are not known, which records have as ``other``."""
    codes, last = column.codes(pd.Series(given, name=name, dtype=object)), len(column.labels) - 1
    if any(
        code == last and value != column.other for code, value in zip(codes, given, strict=True)
    ):
        raise PublicValueError(
            f"conditions on {name!r} must list known labels of the open column, which are those of "
            f"schema_, or {column.other!r}."
        )


def checked_interval(name, column, interval):
    """Return an interval with ends of the type of a column; ValueError for other types."""
    ends, labels = (interval.left, interval.right), getattr(column, "labels", (0,))
    if isinstance(column, Categorical) or np.asarray(labels).dtype.kind not in "if":
        raise PublicValueError(f"conditions on {name!r} must list categories, got an interval.")
    if isinstance(column, Binned) and isinstance(column.column, Datetime):
        if not isinstance(ends[0], pd.Timestamp):
            raise PublicValueError(f"conditions on {name!r} must hold intervals of dates.")
        ends = [end.tz_convert("UTC") if end.tz else end.tz_localize("UTC") for end in ends]
    elif not isinstance(ends[0], Real):
        raise PublicValueError(f"conditions on {name!r} must hold intervals of numbers.")
    else:
        ends = map(float, ends)
    low, high = ends
    return pd.Interval(low, high, closed=interval.closed)


def _labels(name, column, intervals):
    """Return the labels of an ordinal column that are in intervals."""
    inside = [[label for label in column.labels if label in interval] for interval in intervals]
    if not all(inside):
        raise PublicValueError(_MISSED.format(name=name))
    return [label for labels in inside for label in labels]


def _in_bins(name, binned, given, intervals):
    """Return the Condition for values and intervals of a binned column."""
    # Code states dates in ISO 8601, whatever the format of files.
    column, given = binned.column.plain, pd.Series(given, name=name, dtype=object)
    values = column.decode(column.encode(given), name=name)
    # Encoding clips to the bounds and decoding rounds to the grid, so other values would change.
    first, second = (_to_unit(column, series) for series in (given, values))
    if not np.allclose(first, second, rtol=0, atol=1e-9, equal_nan=True):
        raise PublicValueError(f"conditions on {name!r} must hold declared values.")
    if column.n_steps is None:
        # Without a grid, values are returned as given, to the last bit.
        values = given.astype(values.dtype)
    starts, stops = binned.interval_places(intervals)
    if (starts >= stops).any():
        raise PublicValueError(_MISSED.format(name=name))
    range_codes, starts, stops, shares = binned.split_places(starts, stops)
    codes = Binned(column, binned.edges).codes(given)
    left = np.ones(binned.n_bins + binned.nullable)
    # Listed values get the share of their bin that no interval covers.
    np.subtract.at(left, range_codes, shares)
    inside = [
        pd.notna(value) and any(value in interval for interval in intervals)
        for value in comparable(column, values)
    ]
    kept = (left[codes] > 0) & ~np.array(inside, dtype=bool)
    codes, values = codes[kept], values[kept]
    weights = np.append(left[codes] * _equal_shares(codes), shares)
    return Condition(binned, values, np.append(codes, range_codes), weights, starts, stops)


def _equal_shares(codes):
    """Return weights of sum 1 for each distinct code, equal for equal codes."""
    return 1 / np.bincount(codes)[codes]


def _to_unit(column, series):
    """Return values on the unit scale of a column, without clipping or rounding."""
    if isinstance(column, Datetime):
        return column.to_unit(pd.to_datetime(series, utc=True).dt.tz_localize(None).to_numpy())
    return column.to_unit(series.to_numpy(dtype=np.float64, na_value=np.nan))


# How often a record that violates a rule is redrawn within its blocks before it is rejected.
_TRIES = 8
# Rows after which the acceptance rate is checked, and its bounds for an error and a warning.
PILOT = 20_000
_LEAST, _FEW_KEPT = 1e-4, 1e-2
_FULFILLED = "constraints are fulfilled by {kept} of {drawn} drawn {unit}{under}"


@dataclass(frozen=True, eq=False)
class RecordSampler:
    """Sampler of decoded records under conditions and rules.

    Parameters
    ----------
    distribution : ProductMixture or LogLinearChain
        Distribution of encoded records under the conditions.
    encoder : TabularEncoder
    conditions : dict of str to Condition
        Conditions on measured columns.
    rules : TableRules or None
    derived : dict of str to ValueSet
        Conditions on columns that rules compute.
    """

    distribution: Any
    encoder: TabularEncoder
    conditions: dict
    rules: Any
    derived: dict

    def sample(self, n, rng, *, most, under=""):
        """Draw records that fulfil all rules.

        Parameters
        ----------
        n : int
        rng : numpy.random.Generator
        most : int
            Most records per batch.
        under : str
            Words for the conditions in messages.

        Returns
        -------
        data frame of shape (n, n_features)
        """
        if self.rules is not None:
            return draw_kept(partial(self.draw_with_rules, rng=rng), n, most, under)
        sizes = (min(most, n - start) for start in range(0, n, most))
        return pd.concat([self.draw(size, rng) for size in sizes], ignore_index=True)

    def acceptance_rate(self):
        """Return the acceptance rate of 20000 records drawn with a fixed seed."""
        if self.rules is None:
            return 1.0
        _, kept = self.draw_with_rules(PILOT, np.random.default_rng(0))
        return float(kept.mean())

    def draw(self, n, rng):
        """Draw a data frame of ``n`` records without regard to rules."""
        return self._decoded(self.distribution.sample(n, rng), rng)

    def draw_with_rules(self, n, rng):
        """Draw ``n`` records with their computed columns, and the mask of those to keep.

        Records that violate a rule are first redrawn within their blocks, which preserves the
        fitted distribution of blocks.
        """
        codes = self.distribution.sample(n, rng)
        frame = self._decoded(codes, rng)
        kept = self.rules.project(frame)
        for _ in range(_TRIES):
            (rejected,) = np.nonzero(~kept)
            if not len(rejected):
                break
            again = self._decoded(self.distribution.redraw(codes[rejected], rng), rng)
            accepted = self.rules.project(again)
            if accepted.any():
                frame = _replaced(frame, rejected[accepted], again[accepted])
                kept[rejected] = accepted
        for name, values in self.derived.items():
            kept &= values.holds(frame[name])
        return frame, kept

    def _decoded(self, codes, rng):
        names = list(self.encoder.columns_)
        frame = self.encoder.decode_codes(codes, rng=rng)
        for name, condition in self.conditions.items():
            frame[name] = condition.draw(codes[:, names.index(name)], rng).array
        return frame


def _replaced(frame, positions, rows):
    """Return a frame with the rows at some positions replaced."""
    order = np.arange(len(frame))
    order[positions] = len(frame) + np.arange(len(rows))
    return pd.concat([frame, rows], ignore_index=True).take(order).reset_index(drop=True)


def draw_kept(
    draw,
    n,
    most,
    under="",
    *,
    unit="records",
    join=None,
    pilot=PILOT,
    least=_LEAST,
):
    """Draw records by rejection sampling.

    Parameters
    ----------
    draw : callable
        ``draw(m)`` returns ``m`` records, a data frame or another object with ``take``, and the
        mask of those to keep. Fewer records stand for as many.
    n : int
    most : int
        Most records per batch.
    under, unit : str
        Words for the conditions and for the records in messages.
    join : callable or None, default=None
        Returns the records of several batches; None is for data frames.
    pilot, least : int, float
        Records after which the acceptance rate is checked, and its bound.

    Returns
    -------
    data frame of shape (n, n_features), or what ``join`` returns

    Raises
    ------
    ValueError
        Fewer than a share ``least`` of at least ``pilot`` drawn records are kept. About
        ``pilot + n / least`` records are drawn at most.

    Warns
    -----
    UserWarning
        Fewer than one in 100 drawn records are kept.
    """
    batches, n_kept, n_drawn, n_passed = [], 0, 0, 0.0
    while n_kept < n:
        rate = (n_kept + 1) / (n_drawn + 1)
        size = min(most, math.ceil(1.1 * (n - n_kept) / rate) + 16)
        records, kept = draw(size)
        (rows,) = np.nonzero(kept)
        batches.append(records.take(rows[: n - n_kept]))
        n_kept += len(rows)
        n_drawn += size
        n_passed += size * kept.mean()
        message = _FULFILLED.format(kept=round(n_passed), drawn=n_drawn, unit=unit, under=under)
        if n_drawn >= pilot and n_passed < least * n_drawn:
            raise PublicValueError(f"{message}, fewer than one in {round(1 / least)}.")
    if n_passed < _FEW_KEPT * n_drawn:
        warn_user(
            f"{message}: samples are from a small part of the fitted distribution, which may be "
            "inaccurate there.",
            UserWarning,
        )
    return join(batches) if join else pd.concat(batches, ignore_index=True)
