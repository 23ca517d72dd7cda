"""Figures from released counts and synthetic samples, and from nothing else of an estimator."""

import itertools
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import numpy as np
import pandas as pd

from sklearn_dpgen.evolution._weight_projections import project_simplex
from sklearn_dpgen.exceptions import PublicValueError
from sklearn_dpgen.metrics._marginals import column_correlations
from sklearn_dpgen.reporting._columns import (
    column_type,
    compared,
    measure_sample,
    most_frequent,
    observed_schema,
    read_table,
    subsample,
    words_of,
)
from sklearn_dpgen.reporting._measures import broken_shares
from sklearn_dpgen.reporting._verdict import associations, least_counts, predictability
from sklearn_dpgen.schema import Schema
from sklearn_dpgen.schema._binned import Binned
from sklearn_dpgen.utils._html import clean

__all__ = [
    "Released",
    "compare_counts",
    "entry_labels",
    "entry_widths",
    "measure_released",
    "merge_bins",
    "released_shares",
    "sample_codes",
    "sample_shares",
    "synthetic_correlations",
]

_MOST_MAPPED, _MOST_COLUMNS, _MOST_WORST, _BINS = 60, 200, 8, 20
# Rows of associations, which are slow.
_MOST_ROWS = 50_000
# Numbers of entries of a column that a figure may show, the coarsest first.
_ENTRIES = (5, 10, 20, 40)
# A count is above its noise beyond so many standard deviations: one in 740 empty bins is.
_ABOVE = 3


class Released:
    """A view of a fitted estimator that shows releases, public declarations and samples.

    It gives access to nothing else, so that everything computed from it is post-processing.

    Parameters
    ----------
    estimator : estimator
        A fitted estimator.
    drawn : data frame, dict of data frames or None, default=None
        What its ``sample`` returned, for a page about these records. None draws others.
    """

    names = frozenset(
        [
            "schema",
            "constraints",
            "encoder_",
            "encoders_",
            "one_way_marginals_",
            "marginals_",
            "n_records_",
            "privacy_",
            "target",
            "unit_weights",
        ]
    )

    def __init__(self, estimator, drawn=None):
        self._estimator, self._drawn = estimator, drawn

    def __getattr__(self, name):
        if name not in self.names:
            raise AttributeError(f"{name!r} is not among what was released.")
        if name == "schema":
            # With the discovered labels of open columns.
            schema = self._estimator.schema
            return self._estimator.schema_ if getattr(schema, "open_columns", None) else schema
        return getattr(self._estimator, name)

    @property
    def title(self):
        """The name of its class."""
        return type(self._estimator).__name__

    @property
    def counted(self):
        """The noun for what the counts are of."""
        if self.privacy_.unit is None:
            return "records"
        return "rows" if getattr(self, "unit_weights", "equal") == "rows" else "persons"

    def draw(self, n_samples, random_state):
        """Return a data frame of samples, or None for an estimator that draws none."""
        drawn = self._drawn
        if drawn is None:
            sample = getattr(self._estimator, "sample", None)
            if sample is None:
                return None
            drawn = sample(n_samples, random_state=random_state)
        if hasattr(drawn, "columns") or hasattr(drawn, "column_names"):
            return read_table(drawn, "synthetic")
        drawn = np.asarray(drawn).reshape(n_samples, -1)
        return pd.DataFrame(drawn, columns=[f"feature {j}" for j in range(drawn.shape[1])])

    def draw_tables(self, n_persons, random_state):
        """Return the tables of drawn persons, as the estimator gives them."""
        if self._drawn is not None:
            return self._drawn
        return self._estimator.sample(n_persons, random_state=random_state)


def released_shares(view, name):
    """Return the marginal of one column at the finest resolution that the noise supports.

    Parameters
    ----------
    view : Released
    name : str

    Returns
    -------
    part : NoisyMarginal
        Among the levels at which the column was counted, with neighbouring bins merged to 5, 10, 20
        or 40 entries of about equal counts, the one with most entries above the noise; among equal
        ones the one with least noise.
    shares, errors : ndarray
        Noisy shares of the entries, and the standard deviations of their noise.

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
        parts = [merge_bins(part, column.n_bins, most) for most in _ENTRIES for part in parts]
    part = max(parts, key=_resolution)
    errors = np.broadcast_to(part.noise_scale, part.counts.shape) / view.n_records_
    return part, part.counts / view.n_records_, errors


def _resolution(part):
    noise = np.broadcast_to(part.noise_scale, part.counts.shape)
    return int(np.sum(part.counts > _ABOVE * noise)), -float(noise.sum())


def merge_bins(part, n_bins, most):
    """Merge neighbouring entries of a released marginal of one column.

    Parameters
    ----------
    part : NoisyMarginal
    n_bins : int
        The later categories are not bins, and stay as they are.
    most : int
        Largest number of entries of bins; each has about the same share of the counts, or is one
        bin.

    Returns
    -------
    NoisyMarginal
        The noise of different entries is independent, so that variances add up.
    """
    groups, counts = part.groups[0], part.counts
    firsts = np.unique(groups, return_index=True)[1]
    n_first = int(np.sum(firsts < n_bins))
    if n_first <= most or not (np.diff(groups[:n_bins]) >= 0).all():
        return part
    sums = np.cumsum(np.maximum(counts[:n_first], 0))
    # By the middle of each entry, so that an entry with many records stays alone.
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


def sample_shares(part, codes, weights=None):
    """Return the shares of samples in the entries of a released marginal.

    Parameters
    ----------
    part : NoisyMarginal
    codes : dict of str to ndarray of int
        The category of each sample, by column.
    weights : ndarray or None, default=None
        Weights of the samples; None for equal ones.

    Returns
    -------
    ndarray
        With the shape of its counts.
    """
    entries = [groups[codes[n]] for n, groups in zip(part.columns, part.groups, strict=True)]
    places = np.ravel_multi_index(entries, part.counts.shape)
    counts = np.bincount(places, weights, minlength=part.counts.size)
    return counts.reshape(part.counts.shape) / (len(places) if weights is None else weights.sum())


def entry_labels(column, groups, n_entries):
    """Return the names of the entries of a marginal of one column.

    Parameters
    ----------
    column : CategoryColumn
        A column of the encoder.
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


def entry_widths(column, groups):
    """Return the widths of the entries of a marginal of one column that are bins.

    Parameters
    ----------
    column : CategoryColumn
        A column of the encoder.
    groups : ndarray of int
        The entry of each category.

    Returns
    -------
    ndarray or None
        In shares of the declared range; later entries are null. None for labels, and for bins that
        were not merged with their neighbours.
    """
    if not isinstance(column, Binned) or (np.diff(groups[: column.n_bins]) < 0).any():
        return None
    return np.bincount(groups[: column.n_bins], column.widths) / column.n_places


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
    n_drawn = 0 if synthetic is None else len(synthetic)
    measures: dict[str, Any] = {
        "n_samples": n_drawn,
        "counted": view.counted,
        "columns": [],
        "left_out": [],
    }
    if synthetic is None:
        return measures
    schema = getattr(view, "schema", None)
    if schema is None and hasattr(view, "encoder_"):
        schema = view.encoder_.schema
    if schema is None or any(name not in synthetic.columns for name in schema):
        schema, measures["left_out"] = observed_schema(synthetic, synthetic)
    if schema is None:
        return measures | {"n_columns": 0}
    part = compared(schema)
    measures["n_columns"] = len(part)
    if hasattr(view, "one_way_marginals_"):
        measures |= _counted(view, synthetic)
    else:
        measures["columns"] = [
            {"name": name, "kind": column_type(column)} | measure_sample(synthetic[name], column)
            for name, column in list(part.items())[:_MOST_COLUMNS]
        ]
    if len(part) > 1:
        measures["correlations"] = synthetic_correlations(synthetic, part)
    targets = getattr(view, "target", None)
    targets = [targets] if isinstance(targets, str) else targets or []
    measures["targets"] = [name for name in targets if name in part]
    found = (predictability(synthetic, part, n, random_state) for n in measures["targets"])
    measures["predictability"] = [figures for figures in found if figures is not None]
    constraints = getattr(view, "constraints", None)
    if constraints:
        measures["rules"] = broken_shares({"synthetic": synthetic}, constraints, schema)
    return measures


def synthetic_correlations(synthetic, part):
    """Return the associations of the first columns of samples.

    Parameters
    ----------
    synthetic : DataFrame
    part : Schema

    Returns
    -------
    dict
        ``"names"``, and ``"synthetic"``, a symmetric ndarray.
    """
    names = list(part)[:_MOST_MAPPED]
    mapped = Schema({name: part[name] for name in names})
    matrix = np.full((len(names), len(names)), np.nan)
    upper = np.triu_indices(len(names), 1)
    if len(synthetic) > _MOST_ROWS:
        synthetic = subsample(synthetic, _MOST_ROWS, 0)
    matrix[upper] = column_correlations(synthetic, mapped, _BINS)
    matrix.T[upper] = matrix[upper]
    return {"names": names, "synthetic": matrix}


def compare_counts(singles, pairs, columns, n_records, synthetic, weights):
    """Compare weighted samples with released marginals, as :func:`measure_released` does.

    Parameters
    ----------
    singles, pairs : list of NoisyMarginal
    columns : dict of str to Column
        The columns of the encoder, by the names of the marginals.
    n_records : float
        Sum of the counts.
    synthetic : DataFrame
        The samples, with these names.
    weights : ndarray
        Of the samples.

    Returns
    -------
    dict
        ``"columns"``, ``"marginals"``, ``"associations"``, ``"least_counts"``, and
        ``"rows_per_unit"``, the mean number of rows that weigh one.
    """
    part = SimpleNamespace(
        one_way_marginals_=singles,
        marginals_=pairs,
        encoder_=SimpleNamespace(columns_=columns),
        n_records_=n_records,
    )
    return _counted(part, synthetic, weights)


def _counted(view, synthetic, weights=None):
    """Compare samples with all released marginals."""
    names = dict.fromkeys(
        n for part in (*view.one_way_marginals_, *view.marginals_) for n in part.columns
    )
    codes, columns = sample_codes(view, synthetic, names), []
    for name in dict.fromkeys(part.columns[0] for part in view.one_way_marginals_):
        part, shares, errors = released_shares(view, name)
        column = view.encoder_.columns_[name]
        kind = column_type(getattr(column, "column", column))
        labels = entry_labels(column, part.groups[0], len(shares))
        drawn = sample_shares(part, codes, weights)
        if kind == "label":
            # Variances of independent noise add up.
            labels, shares, drawn, errors = most_frequent(labels, shares, drawn, errors**2)
            errors = np.sqrt(errors)
        columns.append(
            {
                "name": name,
                "kind": kind,
                "chart": "histogram" if isinstance(column, Binned) else "labels",
                "labels": labels,
                "widths": entry_widths(column, part.groups[0]),
                "released": shares,
                "errors": errors,
                "synthetic": drawn,
            }
            | _gap(view, part, codes, weights)
        )
    tables: dict[int, list] = {order: [] for order in (2, 3)}
    for part in view.marginals_:
        tables[min(len(part.columns), 3)].append(
            {"columns": part.columns} | _gap(view, part, codes, weights)
        )
    marginals = {1: _order(columns)} | {o: _order(parts) for o, parts in tables.items() if parts}
    gaps = _pair_gaps(view, codes, weights)
    measures: dict[str, Any] = {
        "columns": columns,
        "marginals": marginals,
        "associations": [
            pair | gaps[frozenset(pair["columns"])] for pair in associations(view.marginals_)
        ],
    }
    # Weighted rows of one person add up to one.
    n_units = float(len(synthetic) if weights is None else weights.sum())
    parts = [*view.one_way_marginals_, *view.marginals_]
    measures["rows_per_unit"] = len(synthetic) / n_units
    measures["least_counts"] = least_counts(
        parts, view.n_records_, n_units, measures["rows_per_unit"]
    )
    return measures


def _gap(view, part, codes, weights=None):
    """Return how far samples are from a released marginal, and how far the noise moves it.

    Noise makes shares negative or larger than 1, so they are projected to the nearest
    probabilities before the distance is computed. Both distances are total variation, at most 1:
    where the noise exceeds the counts, its distance is 1 and the first says nothing.
    """
    drawn, released = sample_shares(part, codes, weights), part.counts / view.n_records_
    errors = np.broadcast_to(part.noise_scale, part.counts.shape) / view.n_records_
    return _distances(drawn, released, errors, _n_units(codes, weights)) | {
        "met": float((np.abs(drawn - released) <= 2 * errors).mean()),
        "n_cells": int(part.counts.size),
    }


def _pair_gaps(view, codes, weights=None):
    """Return the distances of each pair of columns, of the marginal with the least noise for it."""
    best: dict[frozenset, dict] = {}
    for part in view.marginals_:
        drawn = sample_shares(part, codes, weights)
        squares = np.square(np.broadcast_to(part.noise_scale, part.counts.shape))
        for i, j in itertools.combinations(range(part.counts.ndim), 2):
            others = tuple(k for k in range(part.counts.ndim) if k not in (i, j))
            released = part.counts.sum(axis=others) / view.n_records_
            errors = np.sqrt(squares.sum(axis=others)) / view.n_records_
            found = _distances(drawn.sum(axis=others), released, errors, _n_units(codes, weights))
            names = frozenset((part.columns[i], part.columns[j]))
            if names not in best or found["noise"] < best[names]["noise"]:
                best[names] = found
    return best


def _n_units(codes, weights):
    """Return the number of draws of samples: of rows, or of persons."""
    return float(len(next(iter(codes.values()))) if weights is None else weights.sum())


def _distances(drawn, released, errors, n_units):
    """Return how far shares of samples are from released ones, and what moves them by chance.

    ``"noise"`` and ``"draw"`` are the mean distances that the noise of the releases and the draw
    of the samples alone make.
    """
    shares = project_simplex(released.ravel())
    draws = np.sqrt(shares * (1 - shares) / n_units)
    return {
        "distance": min(float(np.abs(drawn.ravel() - shares).sum() / 2), 1.0),
        "noise": min(float(np.sqrt(2 / np.pi) * errors.sum() / 2), 1.0),
        "draw": min(float(np.sqrt(2 / np.pi) * draws.sum() / 2), 1.0),
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
