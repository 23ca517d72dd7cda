"""One-dimensional deconvolution of each column, and a Gaussian copula between columns.

What a mechanism releases of a column depends on that column alone, so each marginal is the solution
of a problem in one dimension, whatever the number of columns. Given the record, the releases of two
columns are independent: the covariance of their unbiased estimates is that of the raw columns,
without any noise to subtract.
"""

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import torch
from scipy.special import ndtr, ndtri

from sklearn_dpgen.domains import Ball, Box, Product
from sklearn_dpgen.exceptions import PublicValueError
from sklearn_dpgen.mechanisms import GaussianMechanism, LaplaceMechanism, TabularMechanism
from sklearn_dpgen.mechanisms._base import DENSITIES, as_scale
from sklearn_dpgen.mechanisms._release import _frame
from sklearn_dpgen.schema import Categorical, OpenCategorical
from sklearn_dpgen.schema._column import CategoryColumn

__all__ = [
    "ReleasedColumn",
    "column_covariances",
    "copula_correlation",
    "draw_copula",
    "has_columns",
    "released_columns",
]

# Points of a number with noise: steps far below the noise that anything can be learned through.
_N_POINTS = 200
# Terms of the series of a covariance, and the correlations among which it is solved.
_N_TERMS = 60
_CORRELATIONS = np.linspace(-0.999, 0.999, 1999)
_LEAST_EIGENVALUE = 1e-6


@dataclass(frozen=True)
class ReleasedColumn:
    """A column of a record: its possible values, and how one is released.

    It is the mechanism of its column alone, for `record_cells` and its likelihood.

    Parameters
    ----------
    block : slice
        Features of the column in the encoded record.
    points : ndarray of shape (n_points,)
        Increasing values: the middles of the cells of a number, or the codes of categories.
    step : float
        Width of a cell, in which values are uniform; 0 for categories.
    scale : float
        Scale of the noise of a number.
    kind : {"laplace", "gaussian"} or None
        Distribution of this noise; None for categories.
    table : ndarray of shape (n_points, n_points) or None
        p(released | true) of categories.
    """

    block: slice
    points: np.ndarray
    step: float = 0.0
    scale_: float = 0.0
    kind: str | None = None
    table: np.ndarray | None = None

    @property
    def cost_norm(self):
        """None for categories, as of a mechanism."""
        return None if self.kind is None else 1

    def log_likelihood(self, X, Y):
        """Return log p(y|x) for codes or values, tensors of shape (n, 1)."""
        if self.kind is not None:
            return DENSITIES[self.kind](X, Y, as_scale(self.scale_, X))
        return torch.log(as_scale(self.table, X))[X[:, 0].long()][:, Y[:, 0].long()]

    def values(self, encoded):
        """Return the column of encoded releases as values or codes, of shape (n, 1)."""
        if self.kind is not None:
            return encoded[:, self.block]
        return encoded[:, self.block].argmax(axis=1)[:, None].astype(np.float64)

    def estimates(self, unbiased):
        """Return unbiased estimates of the value or code of each record, of shape (n,)."""
        block = unbiased[:, self.block]
        return block[:, 0] if self.kind is not None else block @ self.points

    def encode(self, index, rng):
        """Return the features of records with the given indices of points."""
        if self.kind is None:
            return np.eye(len(self.points))[index]
        return (self.points[index] + self.step * (rng.uniform(size=len(index)) - 0.5))[:, None]


class _Interval(NamedTuple):
    low: float
    high: float

    def column(self, index, scale, kind):
        step = (self.high - self.low) / _N_POINTS
        points = self.low + step * (np.arange(_N_POINTS) + 0.5)
        return ReleasedColumn(slice(index, index + 1), points, step, float(scale), kind)


def has_columns(mechanism):
    """Return whether records are rows of several columns whose marginals mean something.

    Those are boxes and tables with columns in an order; points of a ball have no columns.
    """
    if isinstance(mechanism, TabularMechanism):
        is_table = not any(map(_is_unordered, mechanism.encoder_.columns_.values()))
    else:
        is_table = _is_additive_in(mechanism, Box)
    return is_table and mechanism.n_features_in_ > 1


def _is_additive_in(mechanism, kinds):
    """Return whether a mechanism adds noise in a domain of these kinds, or in a product of them."""
    if not isinstance(mechanism, LaplaceMechanism | GaussianMechanism):
        return False
    domain = mechanism.domain_
    factors = domain.domains if isinstance(domain, Product) else [domain]
    return all(isinstance(factor, kinds) for factor in factors)


def _is_unordered(column):
    """Return whether a column has values without an order, of which null is one."""
    if isinstance(column, Categorical | OpenCategorical):
        return column.domain.n_features > 2
    return column.nullable


def released_columns(mechanism):
    """Return the columns of the records of a mechanism.

    Parameters
    ----------
    mechanism : Mechanism
        Fitted.

    Returns
    -------
    list of ReleasedColumn

    Raises
    ------
    PublicValueError
        The mechanism does not release columns that have an order.
    """
    if isinstance(mechanism, TabularMechanism):
        return _table_columns(mechanism)
    domain = mechanism.domain_
    if not _is_additive_in(mechanism, Box | Ball):
        raise PublicValueError(
            "dependence='copula' needs numbers with additive noise in boxes or balls, or a "
            f"TabularMechanism, got {type(mechanism).__name__} on {domain!r}. Use "
            "dependence='joint'."
        )
    center, half, _ = _frame(domain)
    scales = np.broadcast_to(mechanism.scale_, len(center))
    kind = "laplace" if mechanism.cost_norm == 1 else "gaussian"
    bounds = map(_Interval, center - half, center + half)
    return [side.column(j, scales[j], kind) for j, side in enumerate(bounds)]


def _table_columns(mechanism):
    columns = []
    for part in mechanism._parts:
        column = mechanism.encoder_.columns_[part.name]
        if _is_unordered(column):
            raise PublicValueError(
                "dependence='copula' needs columns with an order and without nulls, and column "
                f"{part.name!r} is not one. Use dependence='joint'."
            )
        if isinstance(column, CategoryColumn):
            codes = np.arange(len(part.table), dtype=np.float64)
            columns.append(ReleasedColumn(part.block, codes, table=part.table))
        else:
            columns.append(_Interval(-1.0, 1.0).column(part.value, part.scale, part.noise))
    return columns


def column_covariances(columns, unbiased):
    """Estimate the covariances of pairs of raw columns.

    Parameters
    ----------
    columns : list of ReleasedColumn
    unbiased : ndarray of shape (n, n_features)
        Unbiased estimates of encoded records, whose columns are independent given the record.

    Returns
    -------
    ndarray of shape (n_columns, n_columns)
        Off the diagonal the covariances, which are shrunk by the share of their square that their
        sampling error explains: noise alone would look like dependence. The diagonal is not used.
    """
    estimates = np.column_stack([column.estimates(unbiased) for column in columns])
    estimates -= estimates.mean(axis=0)
    covariance = estimates.T @ estimates / len(estimates)
    squares = estimates**2
    variance = (squares.T @ squares / len(estimates) - covariance**2) / len(estimates)
    square = np.maximum(covariance**2, np.finfo(np.float64).tiny)
    return covariance * np.maximum(1 - variance / square, 0)


def copula_correlation(columns, weights, covariance):
    r"""Return the correlation of a Gaussian copula whose columns have given covariances.

    Parameters
    ----------
    columns : list of ReleasedColumn
    weights : list of ndarray
        Probabilities of the points of each column.
    covariance : ndarray of shape (n_columns, n_columns)

    Returns
    -------
    ndarray of shape (n_columns, n_columns)
        Positive definite.

    Notes
    -----
    With :math:`q_j` the quantile function of column j, :math:`q_j(\Phi(Z)) = \sum_k a_{jk} h_k(Z)`
    in orthonormal Hermite polynomials, and normal variables of correlation r have the covariance
    :math:`\sum_{k \ge 1} a_{ik} a_{jk} r^k`, which increases with r [1]_. A covariance beyond
    what the marginals allow gives the largest correlation. A matrix that is not positive definite
    is moved to one: negative eigenvalues are raised to almost 0, and rows scaled to unit variance.

    References
    ----------
    .. [1] M. C. Cario, B. L. Nelson, "Modeling and generating random vectors with arbitrary
       marginal distributions and correlation matrix", 1997.
    """
    series = np.array(
        [_hermite(column.points, w) for column, w in zip(columns, weights, strict=True)]
    )
    powers = _CORRELATIONS[:, None] ** np.arange(1, _N_TERMS + 1)
    correlation = np.eye(len(columns))
    for i in range(len(columns)):
        for j in range(i):
            # The tail of the series is cut, which may bend it at the ends.
            reached = np.maximum.accumulate(powers @ (series[i] * series[j]))
            found = np.interp(covariance[i, j], reached, _CORRELATIONS)
            correlation[i, j] = correlation[j, i] = found if covariance[i, j] else 0.0
    values, vectors = np.linalg.eigh(correlation)
    factor = vectors * np.sqrt(np.maximum(values, _LEAST_EIGENVALUE))
    factor /= np.linalg.norm(factor, axis=1, keepdims=True)
    return factor @ factor.T


def _hermite(points, weights):
    """Return coefficients 1, 2, ... of the quantile function of a normal variable.

    A step from one point to the next at z contributes its height times φ(z) h_{k-1}(z) / √k.
    """
    levels = np.cumsum(weights)[:-1]
    inside = (levels > 0) & (levels < 1)
    at, heights = ndtri(levels[inside]), np.diff(points)[inside]
    density = np.exp(-(at**2) / 2) / np.sqrt(2 * np.pi)
    previous, current = np.zeros(len(at)), np.ones(len(at))
    coefficients = []
    for k in range(1, _N_TERMS + 1):
        coefficients.append(heights @ (density * current) / np.sqrt(k))
        following = (at * current - np.sqrt(k - 1) * previous) / np.sqrt(k)
        previous, current = current, following
    return np.array(coefficients)


def draw_copula(columns, weights, correlation, normal, rng):
    """Return encoded records from independent normal variables.

    Parameters
    ----------
    columns : list of ReleasedColumn
    weights : list of ndarray
        Probabilities of the points of each column.
    correlation : ndarray of shape (n_columns, n_columns)
    normal : ndarray of shape (n, n_columns)
    rng : numpy.random.Generator
        Draws the values of numbers within their cells.

    Returns
    -------
    ndarray of shape (n, n_features)
    """
    values, vectors = np.linalg.eigh(correlation)
    ranks = ndtr(normal @ (vectors * np.sqrt(np.maximum(values, 0))).T)
    blocks = []
    for column, w, rank in zip(columns, weights, ranks.T, strict=True):
        # The last level is 1 up to rounding.
        blocks.append(column.encode(np.searchsorted(np.cumsum(w)[:-1], rank), rng))
    return np.hstack(blocks)
