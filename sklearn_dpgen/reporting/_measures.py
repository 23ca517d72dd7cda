"""All figures of a report on a real and a synthetic table."""

import math

import numpy as np
from sklearn.utils import check_random_state

from sklearn_dpgen.metrics import (
    marginal_total_variation,
    propensity_mse_ratio,
    sliced_wasserstein_distance,
)
from sklearn_dpgen.metrics._correlations import column_correlations
from sklearn_dpgen.reporting._columns import measure_column
from sklearn_dpgen.reporting._predictions import detection_auc, downstream_scores
from sklearn_dpgen.reporting._rules import broken_shares
from sklearn_dpgen.schema import Schema

__all__ = ["measure_tables"]

_BINS = 20
# Pairs and triples that are compared, and columns of a heat map.
_MOST_GROUPS, _MOST_MAPPED, _MOST_WORST = 1000, 60, 8
# Of records, for what takes long.
_MOST_FEW, _MOST_LABELS = 10_000, 50


def measure_tables(real, synthetic, schema, *, target, constraints, declared, random_state):
    """Return all figures of a report, as plain containers and arrays.

    Parameters
    ----------
    real, synthetic : DataFrame
        That fit the schema.
    schema : Schema
        Of the columns that are compared.
    target : str or None
    constraints : sequence of Rule or None
    declared : Schema
        The whole one, with what rules name.
    random_state : int

    Returns
    -------
    dict
    """
    halves = _halves(real, random_state)
    orders = {
        order: _marginals(real, synthetic, halves, schema, order, random_state)
        for order in (1, 2, 3)
        if len(schema) >= order
    }
    singles = orders[1]["distances"]
    columns = [
        {"name": name, "total_variation": singles[name]}
        | measure_column(real[name], synthetic[name], column)
        for name, column in schema.items()
    ]
    found = {"columns": columns, "marginals": orders}
    if len(schema) > 1:
        found["correlations"] = _correlations(real, synthetic, schema, singles)
    found["distances"] = _distances(real, synthetic, halves, schema, random_state)
    found["detection"] = {
        "auc": detection_auc(real, synthetic, schema, most=_MOST_FEW, random_state=random_state),
        "pmse_ratio": _propensity(real, synthetic, schema),
        "n": min(len(real), len(synthetic), _MOST_FEW),
    }
    if target is not None:
        found["downstream"] = downstream_scores(
            real, synthetic, schema, target, random_state=random_state
        )
    if constraints:
        tables = {"real": real, "synthetic": synthetic}
        found["rules"] = broken_shares(tables, constraints, declared)
    return found


def _halves(real, random_state):
    """Return two random halves of the real records: how far apart equals are."""
    rows = check_random_state(random_state).permutation(len(real))
    middle = max(len(rows) // 2, 1)
    parts = rows[:middle], rows[middle:] if len(rows) > 1 else rows
    return [real.iloc[part].reset_index(drop=True) for part in parts]


def _marginals(real, synthetic, halves, schema, order, random_state):
    options = {"order": order, "n_bins": _BINS, "random_state": random_state}
    if order > 1:
        options["max_groups"] = _MOST_GROUPS
    distances = marginal_total_variation(real, synthetic, schema, **options)
    # Memory and time of the halves are those of the whole again.
    first, second = halves
    floor = marginal_total_variation(first, second, schema, **options)
    worst = distances.nlargest(_MOST_WORST)
    names = [name if isinstance(name, tuple) else (name,) for name in worst.index]
    found = {
        "mean": float(distances.mean()),
        "floor": float(floor.mean()),
        "n": len(distances),
        "n_all": math.comb(len(schema), order),
        "worst": list(zip(names, map(float, worst), strict=True)),
    }
    if order == 1:
        found["distances"] = {name: float(value) for name, value in distances.items()}
    return found


def _correlations(real, synthetic, schema, singles):
    names = list(schema)
    if len(names) > _MOST_MAPPED:
        farthest = set(sorted(names, key=lambda name: -singles[name])[:_MOST_MAPPED])
        names = [name for name in names if name in farthest]
    part = Schema({name: schema[name] for name in names})
    k, tables = len(names), {}
    for label, frame in (("real", real), ("synthetic", synthetic)):
        matrix = np.full((k, k), np.nan)
        upper = np.triu_indices(k, 1)
        matrix[upper] = column_correlations(frame, part, _BINS)
        matrix.T[upper] = matrix[upper]
        tables[label] = matrix
    gaps = np.abs(tables["real"] - tables["synthetic"])
    return {"names": names, **tables, "mean": float(np.nanmean(gaps)), "n_columns": len(schema)}


def _distances(real, synthetic, halves, schema, random_state):
    """Return sliced distances of encoded records, between tables and between halves."""
    # Labels of hundreds of values would be most of the encoded features.
    kept = [c for c in schema.items() if c[1].domain.n_features <= _MOST_LABELS]
    if not kept:
        return None

    def cloud(frame):
        part = frame.iloc[:_MOST_FEW]
        return np.hstack([column.encode(part[name]) for name, column in kept])

    def distance(pair):
        clouds = map(cloud, pair)
        return sliced_wasserstein_distance(*clouds, p=2, random_state=random_state)

    return {"sliced": distance((real, synthetic)), "floor": distance(halves)}


def _propensity(real, synthetic, schema):
    few = {n: c for n, c in schema.items() if c.domain.n_features <= _MOST_LABELS}
    varies = any(
        real[name].nunique(dropna=False) > 1 or synthetic[name].nunique(dropna=False) > 1
        for name in few
    )
    if not varies:
        return None
    n = min(len(real), len(synthetic), _MOST_FEW)
    return propensity_mse_ratio(real.iloc[:n], synthetic.iloc[:n], Schema(few))
