"""A table of all kinds of columns, rules of it, and what a user of pandas checks."""

import numpy as np
import pandas as pd

from sklearn_dpgen.schema import (
    Categorical,
    Datetime,
    FunctionalDependency,
    Identifier,
    Implication,
    Inequality,
    Numeric,
    Ordinal,
    Schema,
    Sum,
)
from sklearn_dpgen.tables import TableSampler

CITIES = {"Bonn": "NW", "Cologne": "NW", "Trier": "RP"}
SCHEMA = Schema(
    {
        "key": Identifier("person "),
        "low": Numeric(0, 20, integer=True),
        "high": Numeric(0, 20, integer=True, nullable=True),
        "tenth": Numeric(0, 2, step=0.1),
        "real": Numeric(-1, 3),
        "level": Ordinal([0, 0.5, 1, 2.5]),
        "start": Datetime("2020-01-01", "2020-12-31", resolution="D"),
        "end": Datetime("2020-01-01", "2021-06-30", resolution="h", nullable=True),
        "city": Categorical([*CITIES]),
        "state": Categorical(["NW", "RP"]),
        "flag": Categorical([0, 1], nullable=True),
        "other": Ordinal([0, 1]),
        "total": Numeric(0, 30, integer=True, nullable=True),
        "sum": Numeric(-1, 4),
    }
)
NAMES = list(SCHEMA)
RULES = [
    Inequality("low", "high"),
    Inequality("start", "end", strict=True),
    Implication({"flag": 1}, {"other": 0}),
    Sum("total", ["low", "high"]),
    FunctionalDependency("state", "city", CITIES),
]


def table(n=400, seed=0):
    """Return records of which many break `RULES`."""
    rng = np.random.default_rng(seed)
    start = pd.Timestamp("2020-01-01") + pd.to_timedelta(rng.integers(0, 365, n), unit="D")
    end = pd.Timestamp("2020-01-01") + pd.to_timedelta(rng.integers(0, 13_000, n), unit="h")
    return pd.DataFrame(
        {
            "key": [f"secret {i}" for i in range(n)],
            "low": rng.integers(0, 21, n),
            "high": np.where(rng.uniform(size=n) < 0.2, np.nan, rng.integers(0, 21, n)),
            "tenth": np.round(rng.integers(0, 21, n) / 10, 1),
            "real": rng.uniform(-1, 3, n),
            "level": rng.choice([0, 0.5, 1, 2.5], n),
            "start": start.to_numpy(),
            "end": pd.Series(end).where(rng.uniform(size=n) < 0.8).to_numpy(),
            "city": rng.choice([*CITIES], n),
            "state": rng.choice(["NW", "RP"], n),
            "flag": pd.Series(rng.choice([0, 1, None], n), dtype=object),
            "other": rng.integers(0, 2, n),
            "total": rng.integers(0, 31, n).astype(float),
            "sum": rng.uniform(-1, 4, n),
        }
    )


def make(epsilon=np.inf, *, schema=SCHEMA, constraints=RULES, **options):
    """Return a sampler that runs through in milliseconds."""
    options = {"population_size": 200, "max_iter": 3, "random_state": 0, "device": "cpu"} | options
    return TableSampler(epsilon, schema=schema, constraints=constraints, **options)


def n_broken(frame, rule):
    """Return how many records break a rule, as somebody finds out who has the frame alone."""
    return sum(breaks(record, rule) for record in frame.to_dict("records"))


def breaks(record, rule):
    """Return whether a record, a dict, breaks a rule."""
    return _BREAKS[type(rule)](record, rule)


def _breaks_inequality(record, rule):
    low, high = record[rule.low], record[rule.high]
    if pd.isna(low) or pd.isna(high):
        return False
    return not (low < high if rule.strict else low <= high)


def _truth(value, given):
    """Return True, False or None, for unknown."""
    given = given if isinstance(given, list) else [given]
    if pd.isna(value):
        return True if None in given else None
    return any(value in one if isinstance(one, pd.Interval) else value == one for one in given)


def _breaks_implication(record, rule):
    given = [_truth(record[name], values) for name, values in rule.given.items()]
    then = [_truth(record[name], values) for name, values in rule.then.items()]
    return all(one is True for one in given) and False in then


def _breaks_sum(record, rule):
    total = record[rule.parts[0]]
    for name in rule.parts[1:]:
        total = total + record[name]
    if pd.isna(total):
        return not pd.isna(record[rule.total])
    return record[rule.total] != total


def _breaks_dependency(record, rule):
    key = tuple(record[name] for name in rule.given)
    expected = rule.mapping.get(key if len(key) > 1 else key[0])
    if expected is None:
        return not pd.isna(record[rule.column])
    return record[rule.column] != expected


_BREAKS = {
    Inequality: _breaks_inequality,
    Implication: _breaks_implication,
    Sum: _breaks_sum,
    FunctionalDependency: _breaks_dependency,
}
