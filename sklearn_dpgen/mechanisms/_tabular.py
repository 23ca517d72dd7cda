"""TabularMechanism: a local mechanism for tables of mixed columns, column by column."""

import math
import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from fractions import Fraction
from typing import Any, Self

import numpy as np
import pandas as pd
from sklearn.base import BaseEstimator

from sklearn_dpgen.accounting import (
    ApproximateProfile,
    Bound,
    Event,
    GaussianProfile,
    PrivacyReport,
    gaussian_sigma,
)
from sklearn_dpgen.accounting._calibration import laplace_scale
from sklearn_dpgen.exceptions import PublicValueError
from sklearn_dpgen.ledger._ledger import LedgerLike
from sklearn_dpgen.mechanisms._base import (
    DENSITIES,
    Mechanism,
    as_scale,
    as_table,
    log_weight,
    noise_variance,
)
from sklearn_dpgen.mechanisms._randomizers import draw_response, priced_laplace, response_table
from sklearn_dpgen.mechanisms._release import check_release
from sklearn_dpgen.persistence._declarations import demand
from sklearn_dpgen.preprocessing._tabular import TabularEncoder, with_index
from sklearn_dpgen.schema import Datetime, Numeric, Schema
from sklearn_dpgen.schema._column import find_nulls
from sklearn_dpgen.utils._random import NoiseSource
from sklearn_dpgen.utils._validation import (
    Integral,
    Interval,
    Real,
    StrOptions,
    call_quietly,
    check_is_fitted,
    check_positive,
    fit_context,
    validate_data,
)

__all__ = [
    "ColumnPlan",
    "TableMechanism",
    "TabularMechanism",
    "plan_columns",
    "split_budget",
]


@dataclass(frozen=True)
class ColumnPlan:
    """The position of a column in the encoded record, and its randomization.

    Attributes
    ----------
    name : str
    events : tuple of Event
        Releases of the column.
    scale : float
        Scale of the noise of the value, on [-1, 1]; the error probability without such noise.
    noise : {"laplace", "gaussian"} or None
        Distribution of the noise of the value.
    value : int or None
        Position of a value with noise.
    block : slice or None
        Features of categories or bins; the [present, null] flags if there is a value.
    table : ndarray or None
        p(released | true) of the block.
    budget : float
        Budget of randomized response on the block.
    """

    name: str
    events: tuple[Event, ...]
    scale: float
    noise: str | None = None
    value: int | None = None
    block: slice | None = None
    table: np.ndarray | None = None
    budget: float = 0.0


def split_budget(epsilon, schema, split):
    """Divide a record's budget over the columns of a schema.

    Parameters
    ----------
    epsilon : float
        The budget of a record, in nats.
    schema : Schema
    split : "uniform", mapping of str to float, or callable
        See TabularMechanism.

    Returns
    -------
    dict of str to float
        Shares whose exact sum is at most ``epsilon``; 0 for a constant.
    """
    weights = split(schema) if callable(split) else split
    if not isinstance(weights, Mapping):
        weights = dict.fromkeys(schema, 1.0)
    if set(weights) != set(schema):
        missing = [name for name in schema if name not in weights]
        unknown = [name for name in weights if name not in schema]
        raise PublicValueError(
            f"split must weight every column of the schema: missing {missing}, unknown {unknown}."
        )
    weights = {n: check_positive(weights[n], f"split[{n!r}]") for n in schema}
    varied = {name: weight for name, weight in weights.items() if not schema[name].is_constant}
    total = math.fsum(varied.values())
    shares = dict.fromkeys(schema, 0.0)
    shares |= {name: epsilon * (weight / total) for name, weight in varied.items()}
    if math.isfinite(epsilon):
        while sum(map(Fraction, shares.values())) > Fraction(epsilon):
            shares = {name: math.nextafter(share, 0) for name, share in shares.items()}
    return shares


def plan_columns(columns, blocks, shares, noise, delta):
    """Plan the release of every column.

    Parameters
    ----------
    columns : mapping of str to Column
        Columns as they are encoded.
    blocks : mapping of str to slice
        Features of each column.
    shares : mapping of str to float
        Budget of each column.
    noise : {"laplace", "gaussian", "certified"}
        Noise of numbers and dates that are not binned; certified noise is discrete Laplace noise.
    delta : float
        Spent by Gaussian noise, once for all its columns.

    Returns
    -------
    tuple of ColumnPlan
    """
    intervals = {n: c for n, c in columns.items() if isinstance(c, Numeric | Datetime)}
    # A null flag spends half of its column's share. Two values of a record then cost either the
    # noise alone, 2 / b = share, or, if one is null and encoded in the middle of the range, the
    # flag and half as much noise, share / 2 + 1 / b = share: Laplace noise need not be split. Many
    # Gaussian columns are calibrated jointly, and leave the other half to the flag.
    gaussian = noise == "gaussian"
    value_shares = {n: shares[n] / (1 + (c.nullable and gaussian)) for n, c in intervals.items()}
    scales = _value_scales(value_shares, noise, delta)
    kind, what = ("laplace", "certified_laplace") if noise == "certified" else (noise, noise)
    plans = []
    for name, column in columns.items():
        block = blocks[name]
        if name not in intervals:
            table = response_table(shares[name], block.stop - block.start, f"Column {name!r}")
            events = (Event("randomized_response", len(table)),)
            error = table[0, 1:].sum()
            plans.append(ColumnPlan(name, events, error, None, None, block, table, shares[name]))
            continue
        flags = table = None
        events, budget = (Event(f"{what}_column"),), 0.0
        if column.nullable:
            flags, budget = slice(block.start + 1, block.stop), shares[name] / 2
            table = response_table(budget, 2)
            events = (*events, Event("null_flag_response"))
        plans.append(
            ColumnPlan(name, events, scales[name], kind, block.start, flags, table, budget)
        )
    return tuple(plans)


def _value_scales(shares, noise, delta):
    """Return the scale of the noise of each value on [-1, 1], with sensitivity 2."""
    if noise == "laplace":
        return {name: laplace_scale(share, 2.0) for name, share in shares.items()}
    if noise == "certified":
        # Two values, as the noise of a null costs half, but its rounding as much.
        return {
            name: priced_laplace(share, 2.0, 2, certified=True)[0] for name, share in shares.items()
        }
    total = math.fsum(shares.values())
    if not shares or math.isinf(total):
        return dict.fromkeys(shares, 0.0)
    sigma = gaussian_sigma(total, delta, 2.0)
    return {name: sigma / math.sqrt(share / total) for name, share in shares.items()}


class TableMechanism(Mechanism):
    """Base of the mechanisms for tables, which an encoder maps to the domain."""

    _parameter_constraints: dict = {
        "epsilon": Mechanism._parameter_constraints["epsilon"],
        "schema": [Schema],
        "random_state": ["random_state"],
        "index": Mechanism._parameter_constraints["index"],
    }

    # A constructor must accept None, which fit refuses.
    schema: Schema
    n_bins: Any

    def _encode_columns(self, X, n_bins):
        """Fit the encoder of the columns, and the domain, without reading a record."""
        self.encoder_ = TabularEncoder(self.schema, n_bins=n_bins).fit(X)
        self.domain_ = self.encoder_.domain_
        self.n_features_in_ = len(self.schema)
        self.feature_names_in_ = self.encoder_.feature_names_in_

    def decode(
        self, X: np.ndarray, rng: np.random.Generator | NoiseSource | None = None
    ) -> pd.DataFrame:
        """Return points of the domain as a table of raw records."""
        return self.encoder_.inverse_transform(X, rng=rng)

    def _saved_categories(self, width):
        demand(len(self.schema) == width, "A mechanism has another number of columns.")
        bins, sizes = self.n_bins, []
        for name, column in self.schema.items():
            if isinstance(column, Numeric | Datetime):
                given = bins.get(name) if isinstance(bins, dict) else bins
                counted = isinstance(given, Integral)
                size = given if counted else 0 if isinstance(given, str | None) else len(given)
            else:
                size = column.domain.n_features
            sizes.append(size)
        return sizes

    def __sklearn_tags__(self):
        tags = super().__sklearn_tags__()
        tags.input_tags.categorical = True
        tags.input_tags.string = True
        tags.input_tags.allow_nan = True
        tags.transformer_tags.preserves_dtype = []
        return tags


class TabularMechanism(TableMechanism):
    """Privatize every column of a record locally, and keep the columns of the table.

    Numbers and dates, scaled to [-1, 1] by their public bounds, get Laplace or Gaussian noise, or
    randomized response on public bins. Categorical and ordinal columns get randomized response,
    with null as one more category. A nullable number with noise releases a randomized null flag,
    and its noisy value if the released flag is "present".

    Parameters
    ----------
    epsilon : float, default=1.0
        Privacy budget of one whole record, in nats. ``np.inf`` adds no noise.
    schema : Schema, str or path-like
        The public declaration of the columns.
    n_bins : None, int or mapping, default=None
        Public bins for numbers and dates, as in TabularEncoder. Binned columns are released by
        randomized response, which preserves distributions far better than noise if the budget of a
        column is at most about one nat.
    split : "uniform", mapping or callable, default="uniform"
        Division of the budget: equal, or by positive weights ``{column: weight}`` for every column,
        or by a function of the schema that returns them. The null flag of a number with noise gets
        half of the column's share.
    noise : {"laplace", "gaussian", "certified"}, default="laplace"
        Noise of the numbers and dates that are not binned. "certified" draws Laplace noise and
        randomized response exactly, as in LaplaceMechanism.
    delta : float, default=1e-5
        Failure probability in (0, 1), used by Gaussian noise only.
    ledger : PrivacyLedger, str or None, default=None
        Ledger, or its path, that each call of ``transform`` charges.
    random_state : int, RandomState or None, default=None
        As in LaplaceMechanism.
    index : {"reset", "keep"}, default="reset"
        As in LaplaceMechanism.

    Attributes
    ----------
    scale_ : dict of str to float
        For each column the scale of its noise in units of half the declared range or, for
        categories and bins, the probability that the released one is not the true one.
    epsilon_ : dict of str to float
        The share of each column; columns with Gaussian noise are released together and spend the
        sum of theirs.
    encoder_ : TabularEncoder
        Encodes the columns in the domain and decodes them.
    domain_, privacy_, n_features_in_
        See Mechanism.

    See Also
    --------
    JointRandomizedResponse : One joint answer on few columns, for tables of more than two or three
        columns: it preserves dependence between columns.

    Notes
    -----
    **Formal guarantee**

    :Promise: Local (ε, δ)-differential privacy of each row of one call of ``transform``, all of its
        columns together. δ is 0 without Gaussian noise.
    :Neighbours: Any two values of one person's record.
    :Public: ``domain``; ``n_samples``; names of the columns; order of the records, and with
        ``index="keep"`` order and index of the records.
    :Bounded by: The declared schema: numbers are clipped to their bounds, and ``transform`` moves
        each record to the nearest point of the domain.
    :Noise: Laplace or Gaussian, and randomized response, drawn in ``transform``, from the operating
        system's entropy; in floating point, or with ``noise="certified"`` exact Laplace noise and
        responses.
    :Priced by: The budgets of the columns, which add up; Gaussian columns are one release. Calls
        add up.
    :Not covered: Each further call of ``transform``, which is one more release of its records; who
        takes part; budgets above about 36 nats per draw in floating point; errors of ``transform``;
        a ``random_state`` that others know or guess.
    :Proof: Notes; :doc:`/privacy_model`; of certified noise :ref:`certified_noise`.

    Columns are released independently given the record, so their budgets add up to ε. Gaussian
    values are one joint release whose noise is calibrated analytically at (the sum of their shares,
    δ); column c gets σ_c = σ / w_c, with w_c² proportional to its share and Σ w_c² = 1.

    The likelihood is the product over the columns. For a soft block s it is the mixture
    p(y|s) = Σ_c s_c p(y|c), exact at the vertices.

    Examples
    --------
    >>> import pandas as pd
    >>> from sklearn_dpgen.mechanisms import TabularMechanism
    >>> from sklearn_dpgen.schema import Categorical, Numeric, Schema
    >>> schema = Schema({"age": Numeric(0, 100), "smoker": Categorical(["no", "yes"])})
    >>> frame = pd.DataFrame({"age": [31.0, 60.0], "smoker": ["no", "yes"]})
    >>> mechanism = TabularMechanism(epsilon=8.0, schema=schema).fit(frame)
    >>> mechanism.transform(frame).columns.tolist()
    ['age', 'smoker']
    >>> mechanism.scale_["age"]
    0.5
    """

    _saved_state: dict = {}
    _has_matrices = True
    _parameter_constraints: dict = {
        **TableMechanism._parameter_constraints,
        "n_bins": [None, Integral, Mapping],
        "split": [StrOptions({"uniform"}), Mapping, callable],
        "noise": [StrOptions({*DENSITIES, "certified"})],
        "delta": [Interval(Real, 0, 1, closed="neither")],
    }

    def __init__(
        self,
        epsilon: float = 1.0,
        *,
        schema: Schema | str | os.PathLike | None = None,
        n_bins: int | Mapping | None = None,
        split: str | Mapping[str, float] | Callable[[Schema], Mapping[str, float]] = "uniform",
        noise: str = "laplace",
        delta: float = 1e-5,
        ledger: LedgerLike = None,
        random_state: int | np.random.RandomState | None = None,
        index: str = "reset",
    ) -> None:
        self.epsilon = epsilon
        self.schema = schema  # type: ignore[assignment]
        self.n_bins = n_bins
        self.split = split
        self.noise = noise
        self.delta = delta
        self.ledger = ledger
        self.random_state = random_state
        self.index = index

    @fit_context(prefer_skip_nested_validation=True)
    def fit(self, X: pd.DataFrame | None = None, y: object = None) -> Self:
        """Calibrate the noise to the schema.

        Parameters
        ----------
        X : data frame of shape (n_samples, n_columns), optional
            Only its column names are used.
        y : Ignored

        Returns
        -------
        self : object
        """
        self._forget()
        self._encode_columns(X, self.n_bins)
        self._set_privacy()
        return self

    # X is a table, as an array has one type for all columns.
    def transform(self, X: pd.DataFrame) -> pd.DataFrame:  # type: ignore[override]
        """Randomize every record.

        Parameters
        ----------
        X : data frame of shape (n_samples, n_columns)
            Raw records, with the columns of the schema.

        Returns
        -------
        Y : data frame of shape (n_samples, n_columns)
            Privatized records, in the fitted columns, renumbered unless ``index="keep"``. Numbers
            with noise are floats and may be outside the declared bounds; binned ones are drawn
            uniformly from the released bin.
        """
        check_is_fitted(self)
        encoded = self.domain_.project(self.encoder_.transform(X))
        self._reserve(self.privacy_)
        noise = self._noise(encoded)
        if self._has_noise:
            encoded = self._randomize(encoded, noise)
        Y = self._released(encoded, noise.public)
        return with_index(Y, X, self._index)

    def encode_release(  # type: ignore[override]
        self, Y: pd.DataFrame, *, reset: bool = False, estimator: BaseEstimator | None = None
    ) -> np.ndarray:
        """Return a privatized table as an array in the encoder's layout, without clipping.

        A table that carries another mechanism raises a PublicValueError.
        """
        check_release(Y, self)
        validate_data(estimator or self, Y, reset=reset, skip_check_array=True)
        missing = [part.name for part in self._parts if part.name not in getattr(Y, "columns", ())]
        if missing:
            raise PublicValueError(f"The privatized table must have the columns {missing}.")
        if len(Y) == 0:
            raise PublicValueError(
                "The privatized table has 0 records while a minimum of 1 is required."
            )
        encoded = np.empty((len(Y), self.domain_.n_features))
        for part in self._parts:
            series, column = Y[part.name], self.encoder_.columns_[part.name]
            if part.value is None:
                encoded[:, part.block] = column.encode(series)
                continue
            rule = f"Column {part.name!r} {column._rule}"
            values, null = call_quietly(rule, _read_noisy, column, series)
            if null.any() and part.block is None:
                raise PublicValueError(
                    f"Column {part.name!r} has missing values but is not nullable."
                )
            if not np.isfinite(values).all():
                raise PublicValueError(
                    f"Column {part.name!r} of a privatized table must be finite."
                )
            encoded[:, part.value] = values
            if part.block is not None:
                encoded[:, part.block] = np.column_stack([~null, null])
        return encoded

    def _release_settings(self):
        return (self.encoder_.columns_,)

    def _released(self, encoded, noise):
        """Return released values as a table; the inverse of ``encode_release``."""
        columns = {}
        for part in self._parts:
            name, column = part.name, self.encoder_.columns_[part.name]
            if part.value is None:
                columns[name] = column.decode(encoded[:, part.block], name=name, rng=noise)
                continue
            values = pd.Series(column.from_unit(encoded[:, part.value]))
            if isinstance(column, Datetime):
                values = column.in_zone(values)
            if part.block is not None:
                values = values.mask(encoded[:, part.block][:, 1] == 1)
            columns[name] = values
        return pd.DataFrame({name: columns[name] for name in self.feature_names_in_})

    def _calibrate(self):
        self.epsilon_ = split_budget(self.epsilon, self.schema, self.split)
        self._parts = plan_columns(
            self.encoder_.columns_, self.encoder_.blocks_, self.epsilon_, self.noise, self.delta
        )
        self.scale_ = {part.name: part.scale for part in self._parts}
        joint = any(part.noise == "gaussian" for part in self._parts)
        return PrivacyReport(
            name=type(self).__name__,
            events=(Event("randomized_columns", len(self.schema)),),
            epsilon=self.epsilon,
            delta=self.delta if joint else 0.0,
            bounds=(Bound("schema"),),
            noise_scale=self.scale_,
            parts=tuple(self._column_report(part) for part in self._parts),
            releases=self._releases(),
            split=self._split(),
        )

    def _split(self):
        """Return the shares of the columns, which add up."""
        if math.isinf(self.epsilon):
            return {}
        total = math.fsum(self.epsilon_.values())
        return {name: share / total for name, share in self.epsilon_.items()}

    def _releases(self):
        """Return the profiles of the columns, which compose; none if one has no noise."""
        if math.isinf(self.epsilon):
            return ()
        pure, squared_mu = [], 0.0
        for part in self._parts:
            share = self.epsilon_[part.name]
            if part.noise == "gaussian":
                squared_mu += (2 / part.scale) ** 2
                share = share / 2 if part.block is not None else 0.0
            if share > 0:
                pure.append((ApproximateProfile(share), 1))
        return (*pure, (GaussianProfile(math.sqrt(squared_mu)), 1)) if squared_mu else tuple(pure)

    def _column_report(self, part):
        epsilon, delta = self.epsilon_[part.name], 0.0
        if part.noise == "gaussian" and part.scale > 0:
            # One column of a joint Gaussian release may reveal more than its share of the budget.
            delta = self.delta
            epsilon = GaussianProfile(2 / part.scale).epsilon(delta)
            if part.block is not None:
                epsilon += self.epsilon_[part.name] / 2
        return PrivacyReport(
            name=part.name,
            events=part.events,
            epsilon=epsilon,
            delta=delta,
            noise_scale=part.scale,
        )

    def _randomize(self, X, noise):
        Y = X.copy()
        for part in self._parts:
            if part.block is not None:
                Y[:, part.block] = draw_response(X[:, part.block], part.table, part.budget, noise)
            if part.value is not None:
                Y[:, part.value] = noise.add(X[:, part.value], part.scale, part.noise)
                if part.block is not None:
                    # A value is released only if the released flag is "present".
                    Y[:, part.value] *= Y[:, part.block.start]
        return Y

    def _unbiased(self, Y):
        U, S = Y.copy(), Y**2
        for part in self._parts:
            if part.block is not None:
                U[:, part.block] = Y[:, part.block] @ np.linalg.inv(part.table)
            if part.value is not None:
                variance = noise_variance(part.scale, part.noise)
                # The released flag, which keeps the value of a record that has one; for a null
                # the value is noise around 0.
                is_released = 1.0 if part.block is None else Y[:, part.block.start]
                kept = 1.0 if part.block is None else part.table[0, 0]
                U[:, part.value] /= kept
                S[:, part.value] = (S[:, part.value] - variance * is_released) / kept
        return U, S

    def _log_likelihood(self, X, Y):
        import torch

        # One product of log-probabilities and one-hots for all columns of categories.
        blocks = [part for part in self._parts if part.value is None]
        values = [part for part in self._parts if part.value is not None and part.block is None]
        total = X.new_zeros(())
        if blocks:
            log_p = [torch.log(X[:, part.block] @ as_table(part.table, X)) for part in blocks]
            released = torch.cat([Y[:, part.block] for part in blocks], dim=1)
            total = total + torch.cat(log_p, dim=1) @ released.T
        if values:
            position = [part.value for part in values]
            scale = as_scale([part.scale for part in values], X)
            density = DENSITIES[values[0].noise]
            total = total + density(X[:, position], Y[:, position], scale)
        for part in self._parts:
            if part.value is not None and part.block is not None:
                total = total + self._nullable_log_likelihood(part, X, Y)
        return total

    def _nullable_log_likelihood(self, part, X, Y):
        """Mix over the true flag: a null that is released as present has noise around 0."""
        import torch

        density, scale = DENSITIES[part.noise], as_scale(part.scale, X)
        value, y = X[:, [part.value]], Y[:, [part.value]]
        flags, table = X[:, part.block], as_table(part.table, X)
        log_flags = log_weight(flags) + torch.log(table[:, 0])
        log_present = log_flags[:, :1] + density(value, y, scale)
        log_null = log_flags[:, 1:] + density(value.new_zeros(1, 1), y, scale)
        present = torch.logaddexp(log_present, log_null)
        log_flag_null = torch.log(flags @ table[:, 1:])
        return torch.where(Y[:, part.block.start] > 0.5, present, log_flag_null)


def _read_noisy(column, series):
    """Return released values on the unit scale, without clipping, and the mask of the nulls."""
    null = find_nulls(series)
    if isinstance(column, Numeric):
        series, bad = column._read(series, null)
        if bad.any():
            raise ValueError
    return np.where(null, 0.0, column.to_unit(series)), null
