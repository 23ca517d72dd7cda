"""Pairs of blocks of two columns in which no record fulfils the rules: known before a fit."""

import numpy as np

from sklearn_dpgen.tables._log_linear_chain import LogLinearTerm
from sklearn_dpgen.tables._value_sets import category_ends

__all__ = ["barred_pairs", "barred_term", "possible_cells"]

# Far below all other logits, and finite: with nothing else left, one of the barred ones is drawn.
_BARRED = -1e9


def barred_pairs(rules, encoder, blocks):
    """Return the pairs of blocks that no record is in, by rules of two columns.

    Parameters
    ----------
    rules : TableRules
    encoder : TabularEncoder
        Fitted, with bins.
    blocks : list of ndarray of int
        The block of each category of each column.

    Returns
    -------
    dict of (int, int) to ndarray of bool
        Of two columns, the first one smaller, and of their blocks. What is not clear is possible.
    """
    names = list(encoder.columns_)
    found: dict = {}
    for rule, _ in rules.inequalities:
        if not {rule.low, rule.high} & rules.derived.keys():
            low, high = names.index(rule.low), names.index(rule.high)
            lowest, _ = _block_ends(encoder.columns_[rule.low], blocks[low])
            _, highest = _block_ends(encoder.columns_[rule.high], blocks[high])
            compare = np.greater_equal if rule.strict else np.greater
            _add(found, low, high, compare.outer(lowest, highest))
    for given, then, _ in rules.implications:
        if len(given) == len(then) == 1 and not {*given, *then} & rules.derived.keys():
            ((first, premise),), ((second, conclusion),) = given.items(), then.items()
            columns = names.index(first), names.index(second)
            whole, _ = premise.categories(encoder.columns_[first])
            _, some = conclusion.categories(encoder.columns_[second])
            n_whole = np.bincount(blocks[columns[0]], weights=~whole)
            n_some = np.bincount(blocks[columns[1]], weights=some)
            _add(found, *columns, np.logical_and.outer(n_whole == 0, n_some == 0))
    return {columns: barred for columns, barred in found.items() if barred.any()}


def _add(found, first, second, barred):
    key, barred = ((first, second), barred) if first < second else ((second, first), barred.T)
    found[key] = found.get(key, False) | barred


def _block_ends(column, blocks):
    """Return the lowest and the highest value of each block: infinite where it may be null."""
    low, high = (_as_floats(series) for series in category_ends(column))
    lowest, highest = np.full(blocks.max() + 1, np.inf), np.full(blocks.max() + 1, -np.inf)
    # A null breaks no inequality.
    np.minimum.at(lowest, blocks, np.where(np.isnan(low), -np.inf, low))
    np.maximum.at(highest, blocks, np.where(np.isnan(high), np.inf, high))
    return lowest, highest


def _as_floats(series):
    """Return numbers, or dates in microseconds, which float64 tells apart for 285 years."""
    if series.dtype.kind != "M":
        return series.to_numpy(dtype=np.float64, na_value=np.nan)
    moments = series.dt.tz_convert(None) if series.dt.tz is not None else series
    counts = moments.to_numpy(dtype="datetime64[us]").astype(np.int64).astype(np.float64)
    return np.where(series.isna(), np.nan, counts)


def barred_term(barred, columns, column):
    """Return the term that keeps a column from its barred blocks, given another one.

    Parameters
    ----------
    barred : ndarray of bool
    columns : tuple of int
        Its axes.
    column : int
        One of them: the later one.

    Returns
    -------
    LogLinearTerm
    """
    (parent,) = (other for other in columns if other != column)
    table = barred if columns[1] == column else barred.T
    groups = tuple(np.arange(size) for size in table.shape)
    return LogLinearTerm((parent,), groups, np.where(table, _BARRED, 0.0))


def possible_cells(columns, groups, terms):
    """Return the mask of the cells of a table that records may be in, or None for all.

    Parameters
    ----------
    columns : tuple of int
        Of the table; the one that the terms are of is the last.
    groups : tuple of ndarray of int
        The group of each block of each column.
    terms : sequence of LogLinearTerm
        Of :func:`barred_term`.
    """
    shape = tuple(int(part.max()) + 1 for part in groups)
    mask = np.ones(shape, dtype=bool)
    for term in terms:
        (parent,) = term.parents
        if parent in columns:
            axis = columns.index(parent)
            allowed = np.zeros((shape[axis], shape[-1]), dtype=bool)
            rows, cells = np.nonzero(term.logits == 0)
            allowed[groups[axis][rows], groups[-1][cells]] = True
            spread = [1] * len(shape)
            spread[axis], spread[-1] = allowed.shape
            mask &= allowed.reshape(spread)
    return None if mask.all() else mask
