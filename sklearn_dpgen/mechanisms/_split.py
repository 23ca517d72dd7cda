"""How the budget of a record is divided over its columns, and what each column then gets."""

import math
from collections.abc import Mapping
from dataclasses import dataclass
from fractions import Fraction

import numpy as np

from sklearn_dpgen.accounting import gaussian_sigma, laplace_scale
from sklearn_dpgen.exceptions import PublicValueError
from sklearn_dpgen.mechanisms._discrete import response_table
from sklearn_dpgen.mechanisms._priced_noise import priced_laplace
from sklearn_dpgen.schema import Datetime, Numeric
from sklearn_dpgen.utils._validation import check_positive

__all__ = ["ColumnPlan", "plan_columns", "split_budget"]


@dataclass(frozen=True)
class ColumnPlan:
    """Where a column stands in the encoded record, and how it is randomized.

    Attributes
    ----------
    name : str
    description : str
        For a report.
    scale : float
        Scale of the noise of the value, on [-1, 1]; the error probability where there is none.
    noise : {"laplace", "gaussian"} or None
        Distribution of the noise of the value.
    value : int or None
        Position of a value with noise.
    block : slice or None
        Categories or bins; the [present, null] flags where there is a value.
    table : ndarray or None
        p(released | true) of the block.
    budget : float
        Of randomized response on the block.
    """

    name: str
    description: str
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
        The whole budget, in nats.
    schema : Schema
    split : "uniform", mapping of str to float, or callable
        See TabularMechanism.

    Returns
    -------
    dict of str to float
        Shares whose exact sum is at most ``epsilon``; 0 of a constant.
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
        As they are encoded.
    blocks : mapping of str to slice
        Where they are encoded.
    shares : mapping of str to float
        Their budgets.
    noise : {"laplace", "gaussian", "certified"}
        For the numbers and dates that are not binned; certified noise is discrete Laplace noise.
    delta : float
        Spent by Gaussian noise, once for all its columns.

    Returns
    -------
    tuple of ColumnPlan
    """
    intervals = {n: c for n, c in columns.items() if isinstance(c, Numeric | Datetime)}
    # A null flag spends half of its column's share. Two values of a record then cost either the
    # noise alone, 2 / b = share, or, one of them null and encoded in the middle of the range, the
    # flag and half as much noise, share / 2 + 1 / b = share: Laplace noise need not be split. Many
    # Gaussian columns are calibrated jointly, and leave the other half to the flag.
    gaussian = noise == "gaussian"
    value_shares = {n: shares[n] / (1 + (c.nullable and gaussian)) for n, c in intervals.items()}
    scales = _value_scales(value_shares, noise, delta)
    kind, what = ("laplace", "certified Laplace") if noise == "certified" else (noise, noise)
    plans = []
    for name, column in columns.items():
        block = blocks[name]
        if name not in intervals:
            table = response_table(shares[name], block.stop - block.start, f"Column {name!r}")
            words = f"randomized response on {len(table)} categories"
            error = table[0, 1:].sum()
            plans.append(ColumnPlan(name, words, error, None, None, block, table, shares[name]))
            continue
        flags = table = None
        words, budget = f"{what[0].upper()}{what[1:]} noise", 0.0
        if column.nullable:
            flags, budget = slice(block.start + 1, block.stop), shares[name] / 2
            table = response_table(budget, 2)
            words += ", randomized response on the null flag"
        plans.append(ColumnPlan(name, words, scales[name], kind, block.start, flags, table, budget))
    return tuple(plans)


def _value_scales(shares, noise, delta):
    """Return the scale of the noise of each value on [-1, 1], whose sensitivity is 2."""
    if noise == "laplace":
        return {name: laplace_scale(share, 2.0) for name, share in shares.items()}
    if noise == "certified":
        # As of two values: the noise of a null costs half, and the rounding of it all the same.
        return {
            name: priced_laplace(share, 2.0, 2, certified=True)[0] for name, share in shares.items()
        }
    total = math.fsum(shares.values())
    if not shares or math.isinf(total):
        return dict.fromkeys(shares, 0.0)
    sigma = gaussian_sigma(total, delta, 2.0)
    return {name: sigma / math.sqrt(share / total) for name, share in shares.items()}
