"""The first two moments of raw records, estimated from privatized ones whatever the noise."""

from dataclasses import dataclass
from typing import Any

import numpy as np

from sklearn_dpgen.domains import Ball, Box, Domain, OneHot, Product
from sklearn_dpgen.schema._binned import Binned
from sklearn_dpgen.schema._column import CategoryColumn

__all__ = ["Moments", "column_features", "moment_score", "moments_of"]


@dataclass(frozen=True)
class Moments:
    """Means of features of records, and of their products.

    A feature is a number in units of half of its declared range, from its middle, or whether a
    record has a category. Bins are numbers again, so that features are those of the declarations.

    Parameters
    ----------
    mean : ndarray of shape (q,)
        NaN where nothing is known.
    second : ndarray of shape (q, q)
        NaN also between features of one column, but for the square of a number.
    """

    mean: np.ndarray
    second: np.ndarray

    def distance(self, other):
        """Return the mean squared difference of means plus that of products."""
        return _mean_square(self.mean - other.mean) + _mean_square(self.second - other.second)


def _mean_square(difference):
    known = difference[np.isfinite(difference)]
    return float(np.mean(known**2)) if len(known) else 0.0


def moment_score(mechanism: Any, Y: np.ndarray, points: np.ndarray, weights: np.ndarray) -> float:
    """Return minus the distance of moments of weighted points to those of raw records.

    Parameters
    ----------
    mechanism : Mechanism
        Fitted.
    Y : ndarray
        Encoded privatized records.
    points : ndarray of shape (n_points, n_features)
        In the domain of the mechanism; soft blocks are distributions of their categories.
    weights : ndarray of shape (n_points,)
        Probabilities of the points.
    """
    U, S = points.copy(), points**2
    for column, block in _columns(mechanism):
        if not isinstance(column, CategoryColumn) and column.nullable:
            # A number that is drawn as null is encoded as 0.
            present = U[:, block.start + 1]
            S[:, block.start] *= present
            U[:, block.start] *= present
    learned = moments_of(mechanism, U, S, weights)
    return -learned.distance(mechanism._raw_moments(Y))


def moments_of(mechanism, U, S, weights):
    """Return the moments of weighted rows.

    Parameters
    ----------
    mechanism : Mechanism
    U : ndarray of shape (n, n_features)
        Estimates of encoded records, independent between columns given the record.
    S : ndarray of shape (n, n_features)
        Estimates of their squares; of categories anything.
    weights : ndarray of shape (n,)
    """
    if columns := _columns(mechanism):
        parts = [column_features(column, U[:, b], S[:, b]) for column, b in columns]
        U, S = (np.hstack([part[i] for part in parts]) for i in range(2))
        group = np.repeat(np.arange(len(parts)), [part[0].shape[1] for part in parts])
        is_number = np.isfinite(S).all(axis=0)
    else:
        center, half, group = _frame(mechanism.domain_)
        S = (S - 2 * center * U + center**2) / half**2
        U = (U - center) / half
        is_number = np.bincount(group)[group] == 1
    second = (U * weights[:, None]).T @ U
    second[group[:, None] == group] = np.nan
    numbers = np.flatnonzero(is_number)
    second[numbers, numbers] = weights @ S[:, numbers]
    return Moments(weights @ U, second)


def column_features(column, U, S):
    """Return the features of an encoded column, and their squares, NaN of categories."""
    if isinstance(column, CategoryColumn) and not isinstance(column, Binned):
        return U, np.full(U.shape, np.nan)
    if isinstance(column, Binned):
        bins, edges = U[:, : column.n_bins], np.array(column.edges)
        middles = (edges[1:] + edges[:-1]) / 2
        value, square = bins @ middles[:, None], bins @ middles[:, None] ** 2
        flags = np.column_stack([bins.sum(axis=1), U[:, column.n_bins :]])
        flags = flags if column.nullable else flags[:, :0]
    else:
        value, square, flags = U[:, :1], S[:, :1], U[:, 1:]
    return np.hstack([value, flags]), np.hstack([square, np.full(flags.shape, np.nan)])


def _columns(mechanism):
    """Return the columns of a table with the features that encode them; none of an array."""
    encoder = getattr(mechanism, "encoder_", None)
    if encoder is None:
        return []
    return [(column, encoder.blocks_[name]) for name, column in encoder.columns_.items()]


def _frame(domain: Domain) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return the middle and half of the range of each feature, and which ones are one column."""
    d = domain.n_features
    if isinstance(domain, Product):
        centers, halves, groups = zip(*map(_frame, domain.domains), strict=True)
        starts = np.cumsum([0] + [group[-1] + 1 for group in groups])
        group = np.concatenate([g + start for g, start in zip(groups, starts, strict=False)])
        return np.concatenate(centers), np.concatenate(halves), group
    if isinstance(domain, OneHot):
        return np.zeros(d), np.ones(d), np.zeros(d, dtype=int)
    if isinstance(domain, Box):
        return (domain.low + domain.high) / 2, (domain.high - domain.low) / 2, np.arange(d)
    center = domain.center if isinstance(domain, Ball) else domain.project(np.zeros((1, d)))[0]
    return center, np.full(d, domain.diameter(np.inf) / 2), np.arange(d)
