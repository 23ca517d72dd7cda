"""Samples of fitted tables under conditions on values, and under the rules of a table."""

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
from sklearn_dpgen.schema import Categorical, Datetime, Identifier
from sklearn_dpgen.schema._binned import Binned, comparable
from sklearn_dpgen.schema._column import CategoryColumn
from sklearn_dpgen.tables._distributions import draw_weighted
from sklearn_dpgen.utils._frames import FramesMixin
from sklearn_dpgen.utils._random import split_random_state
from sklearn_dpgen.utils._validation import check_is_fitted, check_n_samples, warn_user

__all__ = ["ConditionalSamplerMixin", "DrawnRows", "checked_interval", "read_conditions"]

# Entries of records that are drawn at a time.
_BLOCK = 1 << 22
_MISSED = "conditions on {name!r} hold an interval that none of the declared values is in."
# An effective size below which sampling warns.
_FEW = 10
_FEW_MESSAGE = (
    "Conditions on {names} rest on {size:.1f} rows of the fitted law, as effective_size counts "
    "them: records mostly repeat these."
)


class ConditionalSamplerMixin(FramesMixin):
    """Draw from ``law_``, of records as ``encoder_`` has columns for them.

    A law has ``sample(n, rng)``, which returns the category of each record in each column,
    ``restricted(allowed)``, which returns the law under conditions, or None, and
    ``effective_size``: see ProductMixture and LogLinearChain.
    """

    # The TableRules of a fit that has any.
    _rules_: Any = None

    def sample(
        self,
        n_samples: int = 1,
        *,
        conditions: Mapping | None = None,
        random_state: int | np.random.RandomState | None = None,
    ) -> pd.DataFrame:
        """Draw synthetic records, at no cost in privacy.

        Parameters
        ----------
        n_samples : int, default=1
            How many.
        conditions : mapping or None, default=None
            ``{column: value, pandas.Interval or list of them}``: records of which each named
            column has one of the values, or one in an interval. Intervals are of numbers, of which
            ends may be infinite, or of dates (naive ones in UTC); ordinal columns of numbers take
            them too. A listed number or date in bins stands for all that intervals leave of its
            bin, and records have the value itself; ``Interval(v, v, closed="both")`` takes a grid
            value by its own share of the bin. A tuple could mean either, and is refused.
        random_state : int, RandomState or None, default=None
            Seed of the draw.

        Returns
        -------
        X : data frame of shape (n_samples, n_features)

        Raises
        ------
        ValueError
            A condition on an undeclared column or value, an interval that holds none of the values
            that a column can have or is of another type, or conditions that are impossible. Rules
            that fewer than one in 10000 drawn records fulfil, under the conditions.

        Warns
        -----
        UserWarning
            Where the conditions have an effective size below 10, or fewer than one in 100 drawn
            records fulfil the rules.

        Notes
        -----
        Where a fit has rules, records that break them are drawn again; conditions on columns that
        rules compute are fulfilled so too.

        Values are uniform over the grid values of a bin that are in an interval, or over its part
        of the bin, and the bin counts by their share; a narrow bin that stands for one number
        counts whole or not at all.

        Under conditions a population draws its rows by their probabilities of them. A chain, of
        which columns are drawn in turn, draws those with a condition under it; rows then are drawn
        again, by the probability that the columns before left to each condition. On how many rows
        this rests, :meth:`effective_size` tells.
        """
        check_is_fitted(self)
        n_samples = check_n_samples(n_samples, width=len(self.encoder_.columns_))
        rows = self._rows(conditions)
        if rows.found and rows.law.effective_size < _FEW:
            message = _FEW_MESSAGE.format(names=list(rows.found), size=rows.law.effective_size)
            warn_user(message, UserWarning)
        (seed,) = split_random_state(random_state, 1)
        rng = np.random.default_rng(seed)
        under = f" under the conditions on {list(conditions)}" if conditions else ""
        size = max(1, _BLOCK // len(self.encoder_.columns_))
        frame = rows.sample(n_samples, rng, most=size, under=under)
        for name, column in self.encoder_.columns_.items():
            if isinstance(column, Identifier):
                frame[name] = column.made_up(n_samples)
        return self._given_back(frame)

    def effective_size(self, conditions: Mapping | None = None) -> float:
        """Return how many rows of the fitted law say as much as those that fulfil conditions.

        Parameters
        ----------
        conditions : mapping or None, default=None
            As for :meth:`sample`, intervals included.

        Returns
        -------
        float
            (Σ w)² / Σ w² for the weights w of the rows, their probabilities of the conditions: of
            all rows of a population, or of 20000 that a chain draws under the conditions. At least
            1; where it is small, records repeat a few rows.

        Raises
        ------
        ValueError
            As :meth:`sample`.
        """
        check_is_fitted(self)
        return self._rows(conditions).law.effective_size

    def _rows(self, conditions):
        """Return what draws records under conditions."""
        derived, wanted = {} if self._rules_ is None else self._rules_.derived, {}
        if isinstance(conditions, Mapping):
            wanted = {name: given for name, given in conditions.items() if name in derived}
            conditions = {name: v for name, v in conditions.items() if name not in wanted}
            if wanted and self._rules_ is not None:
                wanted = self._rules_.value_sets(wanted)
                conditions = self._rules_.premises(wanted) | conditions
        found = read_conditions(self.encoder_, conditions)
        return DrawnRows(self._conditioned(found), self.encoder_, found, self._rules_, wanted)

    def _conditioned(self, found):
        names = list(self.encoder_.columns_)
        allowed = {names.index(name): condition.shares() for name, condition in found.items()}
        law = self.law_.restricted(allowed)
        if law is None:
            raise PublicValueError(
                f"conditions on {list(found)} are impossible: by the fitted law fewer than one in "
                "a billion records fulfil them."
            )
        return law


@dataclass(frozen=True, eq=False)
class Condition:
    """What a column is to hold: values that are listed, and parts of bins that are in intervals.

    Parameters
    ----------
    column : Column
        As it encodes records.
    values : Series of shape (n_values,)
        As records hold them.
    codes : ndarray of int of shape (n,)
        The category or bin of each value, then of each part.
    weights : ndarray of shape (n,)
        Their shares of it.
    starts, stops : ndarray of int of shape (n - n_values,)
        The first place of each part, and the one after its last.
    """

    column: CategoryColumn
    values: pd.Series
    codes: np.ndarray
    weights: np.ndarray
    starts: np.ndarray
    stops: np.ndarray

    def shares(self):
        """Return the share of each category that is wanted: all, where a value is listed."""
        shares = np.bincount(self.codes, self.weights, minlength=self.column.n_categories)
        shares[self.codes[: len(self.values)]] = 1
        return shares

    def draw(self, drawn, rng):
        """Return a random value, a series of them, of each of the drawn categories."""
        chosen, n_values = draw_weighted(self.codes, self.weights, drawn, rng), len(self.values)
        (placed,) = np.nonzero(chosen >= n_values)
        if not len(placed):
            return self.values.iloc[chosen]
        parts = chosen[placed] - n_values
        starts, stops = self.starts[parts], self.stops[parts]
        shifts = (rng.uniform(size=len(parts)) * (stops - starts)).astype(np.int64)
        places = np.minimum(starts + shifts, stops - 1)
        values = cast(Binned, self.column).decode_places(places)
        chosen[placed] = n_values + np.arange(len(placed))
        return pd.concat([self.values, values], ignore_index=True).iloc[chosen]


def read_conditions(encoder, conditions):
    """Return what conditions on columns mean for encoded records.

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
        Columns that the schema does not have, values that it does not declare, intervals that hold
        none or are of another type, or nothing at all.
    """
    if not isinstance(conditions, Mapping | None):
        raise PublicValueError("conditions must map columns to values.")
    found = {}
    for name, given in (conditions or {}).items():
        if name not in encoder.columns_:
            raise PublicValueError(f"conditions name a column that the schema does not: {name!r}.")
        if isinstance(given, tuple):
            raise PublicValueError(
                f"conditions on {name!r} hold a tuple: list the values, [low, high], or give the "
                "range between them, pandas.Interval(low, high)."
            )
        given = list(given) if is_list_like(given) else [given]
        if not given:
            raise PublicValueError(f"conditions on {name!r} are impossible: no value is listed.")
        column = encoder.columns_[name]
        if isinstance(column, Identifier):
            raise PublicValueError(f"conditions on {name!r} are on a column that is made up.")
        intervals = [checked_interval(name, column, v) for v in given if isinstance(v, pd.Interval)]
        given = [value for value in given if not isinstance(value, pd.Interval)]
        if isinstance(column, Binned):
            found[name] = _in_bins(name, column, given, intervals)
        else:
            given += _labels(name, column, intervals)
            series = pd.Series(given, name=name, dtype=object)
            codes = column.codes(series)
            values = column.decode(column.encode(series), name=name)
            empty = np.zeros(0, dtype=np.int64)
            found[name] = Condition(column, values, codes, _even(codes), empty, empty)
    return found


def checked_interval(name, column, interval):
    """Return an interval with ends that compare with the values of a column."""
    ends, labels = (interval.left, interval.right), getattr(column, "labels", (0,))
    if isinstance(column, Categorical) or np.asarray(labels).dtype.kind not in "if":
        raise PublicValueError(
            f"conditions on {name!r} take no interval: its values are categories."
        )
    if isinstance(column, Binned) and isinstance(column.column, Datetime):
        if not isinstance(ends[0], pd.Timestamp):
            raise PublicValueError(f"conditions on {name!r} need intervals of dates.")
        ends = [end.tz_convert("UTC") if end.tz else end.tz_localize("UTC") for end in ends]
    elif not isinstance(ends[0], Real):
        raise PublicValueError(f"conditions on {name!r} need intervals of numbers.")
    else:
        ends = map(float, ends)
    low, high = ends
    return pd.Interval(low, high, closed=interval.closed)


def _labels(name, column, intervals):
    """Return the labels of an ordinal column that are in intervals."""
    found = [[label for label in column.labels if label in interval] for interval in intervals]
    if not all(found):
        raise PublicValueError(_MISSED.format(name=name))
    return [label for labels in found for label in labels]


def _in_bins(name, binned, given, intervals):
    """Return the condition of values and intervals of a column in bins."""
    column, given = binned.column, pd.Series(given, name=name, dtype=object)
    values = column.decode(column.encode(given), name=name)
    # Encoding clips to the bounds, and decoding rounds to the grid.
    first, second = (_units(column, series) for series in (given, values))
    if not np.allclose(first, second, rtol=0, atol=1e-9, equal_nan=True):
        raise PublicValueError(f"conditions on {name!r} hold a value outside those declared.")
    if column.n_steps is None:
        values = given.astype(values.dtype)  # to the last bit
    starts, stops = binned.interval_places(intervals)
    if (starts >= stops).any():
        raise PublicValueError(_MISSED.format(name=name))
    part_codes, starts, stops, shares = binned.split_places(starts, stops)
    codes, left = binned.codes(given), np.ones(binned.n_bins + binned.nullable)
    np.subtract.at(left, part_codes, shares)
    inside = [
        pd.notna(value) and any(value in interval for interval in intervals)
        for value in comparable(column, values)
    ]
    kept = (left[codes] > 0) & ~np.array(inside, dtype=bool)
    codes, values = codes[kept], values[kept]
    weights = np.append(left[codes] * _even(codes), shares)
    return Condition(binned, values, np.append(codes, part_codes), weights, starts, stops)


def _even(codes):
    """Return the share of each of equal codes."""
    return 1 / np.bincount(codes)[codes]


def _units(column, series):
    """Return values on the scale of a column, neither clipped nor rounded."""
    if isinstance(column, Datetime):
        return column.to_unit(pd.to_datetime(series, utc=True).dt.tz_localize(None).to_numpy())
    return column.to_unit(series.to_numpy(dtype=np.float64, na_value=np.nan))


# How often a record that breaks a rule is drawn again in its blocks.
_TRIES = 8
# Rows that tell how many are kept; of fewer kept ones than the least, drawing ends, and of fewer
# than a few it warns.
PILOT = 20_000
_LEAST, _FEW_KEPT = 1e-4, 1e-2
_HOPELESS = (
    "constraints are fulfilled by {kept} of {drawn} drawn records{under}, fewer than one in "
    f"{round(1 / _LEAST)}: they are hardly ever fulfilled by the fitted law."
)
_RARE = (
    "constraints are fulfilled by {kept} of {drawn} drawn records{under}: what is drawn is a small "
    "part of the fitted law, which may know little of it."
)


@dataclass(frozen=True, eq=False)
class DrawnRows:
    """Draws of a law, decoded.

    Parameters
    ----------
    law, encoder
        As of ConditionalSamplerMixin, the law under the conditions.
    found : dict of str to Condition
        The conditions.
    rules : TableRules or None
    wanted : dict of str to ValueSet
        What columns that rules compute are to hold.
    """

    law: Any
    encoder: TabularEncoder
    found: dict
    rules: Any
    wanted: dict

    def sample(self, n, rng, *, most, under=""):
        """Return records, all of which fulfil the rules.

        Parameters
        ----------
        n : int
        rng : numpy.random.Generator
        most : int
            Records that are drawn at a time.
        under : str
            Conditions, as messages of :func:`draw_kept` name them.

        Returns
        -------
        data frame of shape (n, n_features)
        """
        if self.rules is not None:
            return draw_kept(partial(self.draw_with_rules, rng=rng), n, most, under)
        sizes = (min(most, n - start) for start in range(0, n, most))
        return pd.concat([self.draw(size, rng) for size in sizes], ignore_index=True)

    def acceptance_rate(self):
        """Return the share of 20000 records, always the same ones, that are kept."""
        if self.rules is None:
            return 1.0
        _, kept = self.draw_with_rules(PILOT, np.random.default_rng(0))
        return float(kept.mean())

    def draw(self, n, rng):
        """Return ``n`` records, a data frame, whatever the rules."""
        return self._decoded(self.law.sample(n, rng), rng)

    def draw_with_rules(self, n, rng):
        """Return ``n`` records with what rules compute, and the mask of those to keep.

        What breaks a rule is drawn again in its own blocks first: the law knows how many records
        are in these, and the records that it was fitted to fulfil the rules.
        """
        codes = self.law.sample(n, rng)
        frame = self._decoded(codes, rng)
        kept = self.rules.project(frame)
        for _ in range(_TRIES):
            (places,) = np.nonzero(~kept)
            if not len(places):
                break
            again = self._decoded(self.law.redraw(codes[places], rng), rng)
            better = self.rules.project(again)
            if better.any():
                frame, kept[places] = _replaced(frame, places[better], again[better]), better
        for name, values in self.wanted.items():
            kept &= values.holds(frame[name])
        return frame, kept

    def _decoded(self, codes, rng):
        names = list(self.encoder.columns_)
        frame = self.encoder.decode_codes(codes, rng=rng)
        for name, condition in self.found.items():
            frame[name] = condition.draw(codes[:, names.index(name)], rng).array
        return frame


def _replaced(frame, places, rows):
    """Return a frame with other rows in some places."""
    order = np.arange(len(frame))
    order[places] = len(frame) + np.arange(len(rows))
    return pd.concat([frame, rows], ignore_index=True).take(order).reset_index(drop=True)


def draw_kept(draw, n, most, under=""):
    """Return records that are kept.

    Parameters
    ----------
    draw : callable
        ``draw(m)`` returns ``m`` records, a data frame, and the mask of those to keep.
    n : int
    most : int
        Records that are drawn at a time.
    under : str
        Conditions, as messages name them.

    Returns
    -------
    data frame of shape (n, n_features)

    Raises
    ------
    ValueError
        Where of 20000 records or more fewer than one in 10000 are kept: no more than about
        20000 + 10000 n are ever drawn.

    Warns
    -----
    UserWarning
        Where fewer than one in 100 are.
    """
    parts, n_kept, n_drawn = [], 0, 0
    while n_kept < n:
        rate = (n_kept + 1) / (n_drawn + 1)
        frame, kept = draw(min(most, math.ceil(1.1 * (n - n_kept) / rate) + 16))
        (places,) = np.nonzero(kept)
        parts.append(frame.iloc[places[: n - n_kept]])
        n_kept, n_drawn = n_kept + len(places), n_drawn + len(frame)
        counts = {"kept": n_kept, "drawn": n_drawn, "under": under}
        if n_drawn >= PILOT and n_kept < _LEAST * n_drawn:
            raise PublicValueError(_HOPELESS.format(**counts))
    if n_kept < _FEW_KEPT * n_drawn:
        warn_user(_RARE.format(**counts), UserWarning)
    return pd.concat(parts, ignore_index=True)
