"""What a report says of released counts and of samples: it reads nothing else of an estimator."""

from dataclasses import replace
from typing import Any

import numpy as np
import pandas as pd

from sklearn_dpgen.exceptions import PublicValueError
from sklearn_dpgen.metrics._correlations import column_correlations
from sklearn_dpgen.reporting._columns import measure_sample, most_frequent, words_of
from sklearn_dpgen.reporting._rules import broken_shares
from sklearn_dpgen.reporting._tables import compared, kind_of, observed_schema, read_table
from sklearn_dpgen.schema import Schema
from sklearn_dpgen.schema._binned import Binned
from sklearn_dpgen.utils._html import clean

__all__ = [
    "Released",
    "entry_labels",
    "measure_released",
    "merge_bins",
    "released_shares",
    "sample_codes",
    "sample_shares",
]

_MOST_MAPPED, _MOST_COLUMNS, _MOST_WORST, _BINS = 60, 200, 8, 20
# Entries of a table of one column that a picture has room for.
_MOST_ENTRIES = 40


class Released:
    """A view of a fitted estimator: what was released of it, what is public, and its samples.

    Anything else cannot be read through it, so that what is made of it is post-processing.

    Parameters
    ----------
    estimator : estimator
        Fitted.
    """

    names = frozenset(
        [
            "schema",
            "constraints",
            "encoder_",
            "one_way_marginals_",
            "marginals_",
            "n_records_",
            "privacy_",
        ]
    )

    def __init__(self, estimator):
        self._estimator = estimator

    def __getattr__(self, name):
        if name not in self.names:
            raise AttributeError(f"{name!r} is not among what was released.")
        return getattr(self._estimator, name)

    @property
    def title(self):
        """The name of its class."""
        return type(self._estimator).__name__

    def draw(self, n_samples, random_state):
        """Return a data frame of samples; None of an estimator that draws none."""
        sample = getattr(self._estimator, "sample", None)
        if sample is None:
            return None
        drawn = sample(n_samples, random_state=random_state)
        if hasattr(drawn, "columns") or hasattr(drawn, "column_names"):
            return read_table(drawn, "synthetic")
        drawn = np.asarray(drawn).reshape(n_samples, -1)
        return pd.DataFrame(drawn, columns=[f"feature {j}" for j in range(drawn.shape[1])])


def released_shares(view, name):
    """Return the table of one column that a picture shows best.

    Parameters
    ----------
    view : Released
    name : str

    Returns
    -------
    part : NoisyMarginal
        Of the levels at which it was counted, that of which most entries stand out of the noise.
        Neighbouring bins are merged, to 40 entries or fewer of about equal counts.
    shares, errors : ndarray
        Of the entries, with noise, and the standard deviation of that.

    Raises
    ------
    ValueError
        The column was not counted.
    """
    parts = [part for part in view.one_way_marginals_ if part.columns == (name,)]
    if not parts:
        raise PublicValueError(f"column {name!r} was not counted.")
    column = view.encoder_.columns_[name]
    if isinstance(column, Binned):
        parts = [merge_bins(part, column.n_bins, _MOST_ENTRIES) for part in parts]
    part = max(parts, key=lambda part: np.sum(part.counts > 2 * part.noise_scale))
    errors = np.broadcast_to(part.noise_scale, part.counts.shape) / view.n_records_
    return part, part.counts / view.n_records_, errors


def merge_bins(part, n_bins, most):
    """Merge neighbouring entries of a released table of one column.

    Parameters
    ----------
    part : NoisyMarginal
    n_bins : int
        Categories from this one on are no bins, and stay as they are.
    most : int
        Of entries of bins; each has about the same share of the counts, or one bin alone.

    Returns
    -------
    NoisyMarginal
        Independent noises of variances that add up.
    """
    groups, counts = part.groups[0], part.counts
    firsts = np.unique(groups, return_index=True)[1]
    n_first = int(np.sum(firsts < n_bins))
    if n_first <= most or not (np.diff(groups[:n_bins]) >= 0).all():
        return part
    sums = np.cumsum(np.maximum(counts[:n_first], 0))
    # Of the middle of each entry, so that one of many records has a place of its own.
    middles = sums - np.maximum(counts[:n_first], 0) / 2
    places = np.minimum(most * middles / max(sums[-1], 1), most - 1).astype(int)
    places = np.unique(places, return_inverse=True)[1]
    places = np.append(places, places[-1] + 1 + np.arange(len(counts) - n_first))
    variances = np.broadcast_to(np.square(part.noise_scale), counts.shape)
    return replace(
        part,
        groups=(places[groups],),
        counts=np.bincount(places, counts),
        noise_scale=np.sqrt(np.bincount(places, variances)),
    )


def sample_codes(view, synthetic, names):
    """Return the category of each sample, by column."""
    return {name: view.encoder_.columns_[name].codes(synthetic[name]) for name in names}


def sample_shares(part, codes):
    """Return the shares of samples in the entries of a released table.

    Parameters
    ----------
    part : NoisyMarginal
    codes : dict of str to ndarray of int
        The category of each sample, by column.

    Returns
    -------
    ndarray
        Of the shape of its counts.
    """
    entries = [groups[codes[n]] for n, groups in zip(part.columns, part.groups, strict=True)]
    places = np.ravel_multi_index(entries, part.counts.shape)
    counts = np.bincount(places, minlength=part.counts.size)
    return counts.reshape(part.counts.shape) / len(places)


def entry_labels(column, groups, n_entries):
    """Return what the entries of a table of one column are called.

    Parameters
    ----------
    column : CategoryColumn
        Of the encoder.
    groups : ndarray of int
        The entry of each category.
    n_entries : int
    """
    firsts = np.unique(groups, return_index=True)[1]
    if isinstance(column, Binned):
        lowest = column.ends()[0].iloc[firsts[firsts < column.n_bins]]
        words = words_of(lowest)
    else:
        words = [[*map(clean, column.labels), "null"][i] for i in firsts]
    return [*words, "null"][:n_entries]


def measure_released(view, n_samples, random_state):
    """Return all figures of a report on released counts and samples.

    Parameters
    ----------
    view : Released
    n_samples : int
    random_state : int

    Returns
    -------
    dict
    """
    synthetic = view.draw(n_samples, random_state)
    n_drawn = 0 if synthetic is None else n_samples
    found: dict[str, Any] = {"n_samples": n_drawn, "columns": [], "left_out": []}
    if synthetic is None:
        return found
    schema = getattr(view, "schema", None)
    if schema is None and hasattr(view, "encoder_"):
        schema = view.encoder_.schema
    if schema is None or any(name not in synthetic.columns for name in schema):
        schema, found["left_out"] = observed_schema(synthetic, synthetic)
    if schema is None:
        return found | {"n_columns": 0}
    part = compared(schema)
    found["n_columns"] = len(part)
    if hasattr(view, "one_way_marginals_"):
        found |= _counted(view, synthetic)
    else:
        found["columns"] = [
            {"name": name, "kind": kind_of(column)} | measure_sample(synthetic[name], column)
            for name, column in list(part.items())[:_MOST_COLUMNS]
        ]
    if len(part) > 1:
        names = list(part)[:_MOST_MAPPED]
        mapped = Schema({name: part[name] for name in names})
        matrix = np.full((len(names), len(names)), np.nan)
        upper = np.triu_indices(len(names), 1)
        matrix[upper] = column_correlations(synthetic, mapped, _BINS)
        matrix.T[upper] = matrix[upper]
        found["correlations"] = {"names": names, "synthetic": matrix}
    constraints = getattr(view, "constraints", None)
    if constraints:
        found["rules"] = broken_shares({"synthetic": synthetic}, constraints, schema)
    return found


def _counted(view, synthetic):
    """Return the comparison of samples with all tables that were released."""
    names = dict.fromkeys(
        n for part in (*view.one_way_marginals_, *view.marginals_) for n in part.columns
    )
    codes, columns = sample_codes(view, synthetic, names), []
    for name in dict.fromkeys(part.columns[0] for part in view.one_way_marginals_):
        part, shares, errors = released_shares(view, name)
        column = view.encoder_.columns_[name]
        kind = kind_of(getattr(column, "column", column))
        labels = entry_labels(column, part.groups[0], len(shares))
        drawn = sample_shares(part, codes)
        if kind == "label":
            # Of noises that are independent, variances add up.
            labels, shares, drawn, errors = most_frequent(labels, shares, drawn, errors**2)
            errors = np.sqrt(errors)
        columns.append(
            {
                "name": name,
                "kind": kind,
                "chart": "histogram" if isinstance(column, Binned) else "labels",
                "labels": labels,
                "released": shares,
                "errors": errors,
                "synthetic": drawn,
            }
            | _gap(view, part, codes)
        )
    tables: dict[int, list] = {order: [] for order in (2, 3)}
    for part in view.marginals_:
        tables[len(part.columns)].append({"columns": part.columns} | _gap(view, part, codes))
    marginals = {1: _order(columns)} | {o: _order(parts) for o, parts in tables.items() if parts}
    return {"columns": columns, "marginals": marginals}


def _gap(view, part, codes):
    """Return how far samples are from a released table, and what noise alone would do.

    The second is the mean distance of a released table from the records themselves.
    """
    gaps = np.abs(sample_shares(part, codes) - part.counts / view.n_records_)
    errors = np.broadcast_to(part.noise_scale, part.counts.shape) / view.n_records_
    return {
        "distance": float(gaps.sum() / 2),
        "noise": float(np.sqrt(2 / np.pi) * errors.sum() / 2),
        "met": float((gaps <= 2 * errors).mean()),
        "n_cells": int(part.counts.size),
    }


def _order(parts):
    cells = sum(part["n_cells"] for part in parts)
    worst = sorted(parts, key=lambda part: part["noise"] - part["distance"])[:_MOST_WORST]
    return {
        "n": len(parts),
        "mean": float(np.mean([part["distance"] for part in parts])),
        "noise": float(np.mean([part["noise"] for part in parts])),
        "met": float(sum(part["met"] * part["n_cells"] for part in parts) / cells),
        "worst": [
            (part.get("columns", (part.get("name"),)), part["distance"], part["noise"])
            for part in worst
        ],
    }
