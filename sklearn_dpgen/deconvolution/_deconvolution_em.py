"""DeconvolutionEM: a distribution of raw records by expectation maximization, without a network."""

from typing import Self

import numpy as np
import pandas as pd
import torch
from numpy.typing import ArrayLike
from scipy.special import ndtri
from scipy.stats import qmc
from sklearn.base import BaseEstimator
from sklearn.utils import get_tags

from sklearn_dpgen.deconvolution._copula import (
    column_covariances,
    copula_correlation,
    draw_copula,
    has_columns,
    released_columns,
)
from sklearn_dpgen.deconvolution._model import mixture_log_likelihood, near_zero
from sklearn_dpgen.ledger._base import PrivateEstimator
from sklearn_dpgen.mechanisms import Mechanism
from sklearn_dpgen.mechanisms._release import (
    LearnerPlanMixin,
    fit_mechanism,
    learner_report,
    moment_score,
)
from sklearn_dpgen.persistence._declarations import Array, Maybe, demand, is_distribution, list_of
from sklearn_dpgen.preprocessing._records import draw_categories
from sklearn_dpgen.utils._random import split_random_state
from sklearn_dpgen.utils._torch import as_array, as_tensor
from sklearn_dpgen.utils._validation import (
    Integral,
    Interval,
    Real,
    StrOptions,
    check_fits,
    check_is_fitted,
    check_n_samples,
    fit_context,
)

__all__ = ["DeconvolutionEM", "RecordCells", "fit_weights", "record_cells"]

# A cell a third of the noise wide adds one percent to the variance at most.
_CELLS_PER_SCALE = 3
_N_INSIDE = 32
# Points that stand for a copula in scores.
_N_SCORED = 4096


class RecordCells:
    """Histogram cells of privatized records, with the share of the records in each.

    Parameters
    ----------
    corners : ndarray of shape (n_cells, n_features)
    width : float or ndarray of shape (n_features,)
        Width of the cells in each column; 0 for points.
    shares : ndarray of shape (n_cells,)
    """

    def __init__(self, corners, width, shares):
        self.corners, self.width, self.shares = corners, width, shares

    def likelihood(self, mechanism, points):
        """Return the mean density over each cell given each point, up to a factor a cell.

        The cell of a record has a likelihood of its own, without the position inside the cell.
        The density at one position per cell would favour points at those positions.

        Parameters
        ----------
        mechanism : Mechanism
            Fitted.
        points : tensor of shape (n_points, n_features)
            In float64.

        Returns
        -------
        tensor of shape (n_cells, n_points)
        """
        corners = as_tensor(self.corners, dtype=points.dtype)
        width = as_tensor(self.width, dtype=points.dtype)
        if not width.any():
            offsets = corners.new_zeros(1, corners.shape[1])
        else:
            sobol = qmc.Sobol(corners.shape[1], rng=0).random(_N_INSIDE)
            offsets = width * as_tensor(sobol, dtype=points.dtype)
        top = mechanism.log_likelihood(points, corners + width / 2).amax(0)
        return sum(
            torch.exp(mechanism.log_likelihood(points, corners + offset) - top).T
            for offset in offsets
        )


def record_cells(mechanism, Y, n_max, rng):
    """Count privatized records in cells.

    Parameters
    ----------
    mechanism : Mechanism
        Fitted; with additive noise cells are a third of its scale wide, else equal records are
        one cell.
    Y : ndarray of shape (n, n_features)
        Encoded privatized records.
    n_max : int
        Largest number of cells; if there are more, ``n_max`` records are drawn at random.
    rng : numpy.random.Generator

    Returns
    -------
    RecordCells
    """
    width = 0.0 if mechanism.cost_norm is None else mechanism.scale_ / _CELLS_PER_SCALE
    keys = np.floor(Y / width) * width if np.any(width) else Y
    corners, counts = np.unique(keys, axis=0, return_counts=True)
    # With many columns almost every record has its own cell, and binning only loses precision.
    if len(corners) > n_max or len(corners) > len(Y) / 2:
        rows = rng.permutation(len(Y))[:n_max]
        return RecordCells(Y[rows], 0.0, np.full(len(rows), 1 / len(rows)))
    return RecordCells(corners, width, counts / len(Y))


_WINDOW = 10
_FASTER, _MAX_POWER = 1.1, 100.0


@torch.no_grad()
def fit_weights(likelihood, shares, *, n_samples, max_iter, tol):
    r"""Maximize the mean log-likelihood :math:`\sum_j c_j \log \sum_i w_i L_{ji}` over weights.

    Starts from equal weights. Expectation maximization multiplies each weight by its posterior
    share. Here the factor is raised to a power, which grows while the likelihood increases; where
    it would not, the plain step is taken, which never decreases it.

    Parameters
    ----------
    likelihood : tensor of shape (n_rows, n_components)
        Non-zero somewhere in each row; each row may have any factor.
    shares : tensor of shape (n_rows,)
        Weights of the rows, with sum 1.
    n_samples : int
        Number of records that the rows stand for.
    max_iter : int
    tol : float
        Stop when the log-likelihood of all records gains less than this per step, in nats, over
        the last ten steps. Smaller gains fit the noise.

    Returns
    -------
    weights : tensor of shape (n_components,)
    n_iter : int
    """
    weights = likelihood.new_full((likelihood.shape[1],), 1 / likelihood.shape[1])
    mixture = likelihood @ weights
    value = checked = shares @ mixture.log()
    power = 1.0
    for step in range(1, max_iter + 1):
        posterior = likelihood.T @ (shares / mixture)
        proposal, proposed, proposed_value = _move(likelihood, shares, weights, posterior, power)
        if not proposed_value >= value:
            power = max(1.0, power / 2)
            proposal, proposed, proposed_value = _move(likelihood, shares, weights, posterior, 1.0)
        else:
            power = min(power * _FASTER, _MAX_POWER)
        weights, mixture, value = proposal, proposed, proposed_value
        if step % _WINDOW == 0:
            if n_samples * (value - checked) < tol * _WINDOW:
                break
            checked = value
    return weights, step


def _move(likelihood, shares, weights, posterior, power):
    moved = weights * posterior**power
    moved /= moved.sum()
    mixture = likelihood @ moved
    return moved, mixture, shares @ mixture.log()


class DeconvolutionEM(LearnerPlanMixin, PrivateEstimator):
    """A distribution of raw records, learned from privatized records without a network.

    Expectation maximization finds the weights of given points that maximize the likelihood of the
    privatized records. The columns of a box or of a table are learned one by one, each on a grid,
    and joined by a Gaussian copula, whose correlations are estimated without bias. Points of a
    ball, such as a curve in the plane, are drawn uniformly and weighted jointly.

    Parameters
    ----------
    mechanism : Mechanism or None, default=None
        The mechanism that privatized the records, with its domain and budget. None takes the one
        that they carry, as in ``make_pipeline(LaplaceMechanism(...), DeconvolutionEM())``. It is
        required for records that were privatized elsewhere or read from a file. Records that carry
        another mechanism are refused.
    dependence : {"auto", "joint", "copula"}, default="auto"
        "joint": one distribution on points of the domain, for any dependence in one to three
        columns. "copula": the marginal distribution of each column, and normal dependence; for
        numbers with noise, and for tables whose columns have an order and no nulls, where two
        categories count as ordered. "auto" takes "copula" for such tables and for boxes of two or
        more columns, else "joint".
    n_points : int, default=1000
        Number of points in the domain, with joint dependence.
    n_cells : int, default=20000
        Largest number of rows of a likelihood matrix. Records with additive noise are binned in
        cells of a third of its scale; if there are more cells, a random sample of the records of
        this size replaces them.
    max_iter : int, default=1000
        Largest number of steps of expectation maximization.
    tol : float, default=0.02
        Stop when the log-likelihood of all records gains less than this per step, in nats. Early
        stopping regularizes: the weights start equal.
    random_state : int, RandomState or None, default=None
        Seed of the points, and of the subsample of the records if there are too many.

    Attributes
    ----------
    points_ : ndarray of shape (n_points, n_features)
        Points of the domain of the mechanism. With a copula, 4096 points that stand for its
        distribution in scores.
    weights_ : ndarray of shape (n_points,)
        Their probabilities.
    marginals_ : list of ndarray
        With a copula, the probabilities of the values of each column: 200 cells of a number, or the
        categories. Empty with joint dependence.
    correlation_ : ndarray of shape (n_columns, n_columns)
        Correlation of the copula; empty with joint dependence.
    mechanism_ : Mechanism
        The fitted mechanism.
    n_iter_ : int
        Number of steps, the largest over the columns.
    privacy_ : PrivacyReport
        What the privatized records cost; the fit is post-processing and free.

    See Also
    --------
    EntropicDeconvGAN : A neural generator, for other dependence, images, and records on the border.
    energy_score : Ranks both kinds of dependence, and a generator, at no cost in privacy.

    Notes
    -----
    **Formal guarantee**

    :Promise: Local (ε, δ)-differential privacy of each record, as ``mechanism`` promises it.
        ``fit`` reads privatized records alone.
    :Neighbours: Any two values of one person's record.
    :Public: What ``mechanism`` takes to be public: ``domain``; ``n_samples``; names of the columns;
        order of the records, or order and index of the records.
    :Bounded by: ``mechanism``, before a record is read here.
    :Noise: That of ``mechanism``, drawn where the records were privatized.
    :Priced by: ``mechanism``. What is learned from its output is post-processing, and costs
        nothing.
    :Not covered: Records that ``mechanism`` did not release, although ``fit`` takes them to be its
        output; further releases of the same records.
    :Proof: :doc:`/privacy_model`.

    The nonparametric maximum likelihood estimate of a mixing distribution [1]_ on given points.
    The objective is that of entropic deconvolution with ``loss="likelihood"`` [2]_, and is
    concave in the weights. With a copula this holds for each column; the dependence is a moment
    estimate [3]_.

    References
    ----------
    .. [1] J. Kiefer, J. Wolfowitz, "Consistency of the maximum likelihood estimator in the
       presence of infinitely many incidental parameters", 1956.
    .. [2] P. Rigollet, J. Weed, "Entropic optimal transport is maximum-likelihood deconvolution",
       2018.
    .. [3] M. C. Cario, B. L. Nelson, "Modeling and generating random vectors with arbitrary
       marginal distributions and correlation matrix", 1997.

    Examples
    --------
    >>> from sklearn_dpgen.datasets import make_half_circle
    >>> from sklearn_dpgen.deconvolution import DeconvolutionEM
    >>> from sklearn_dpgen.domains import Ball
    >>> from sklearn_dpgen.mechanisms import LaplaceMechanism
    >>> mechanism = LaplaceMechanism(epsilon=5.0, domain=Ball(1.0, n_features=2))
    >>> Y = mechanism.fit_transform(make_half_circle(1000, radius=0.7, random_state=0))
    >>> em = DeconvolutionEM(random_state=0).fit(Y)
    >>> em.sample(3).shape
    (3, 2)
    """

    _saved_state: dict = {
        "mechanism_": Mechanism,
        "points_": Array("f", 2),
        "weights_": Array("f", 1, low=0),
        "marginals_": Maybe(list_of(Array("f", 1, low=0))),
        "correlation_": Maybe(Array("f", 2, low=-1.01, high=1.01)),
        "n_iter_": int,
    }
    _parameter_constraints: dict = {
        "mechanism": "no_validation",
        "dependence": [StrOptions({"auto", "joint", "copula"})],
        "n_points": [Interval(Integral, 1, None, closed="left")],
        "n_cells": [Interval(Integral, 1, None, closed="left")],
        "max_iter": [Interval(Integral, 1, None, closed="left")],
        "tol": [Interval(Real, 0, None, closed="left")],
        "random_state": ["random_state"],
    }

    def __init__(
        self,
        mechanism: Mechanism | None = None,
        *,
        dependence: str = "auto",
        n_points: int = 1000,
        n_cells: int = 20_000,
        max_iter: int = 1000,
        tol: float = 0.02,
        random_state: int | np.random.RandomState | None = None,
    ) -> None:
        self.mechanism = mechanism
        self.dependence = dependence
        self.n_points = n_points
        self.n_cells = n_cells
        self.max_iter = max_iter
        self.tol = tol
        self.random_state = random_state

    @fit_context(prefer_skip_nested_validation=False)
    def fit(self, X: ArrayLike | pd.DataFrame, y: object = None) -> Self:
        """Estimate the distribution of raw records from privatized ones.

        Parameters
        ----------
        X : array-like or data frame of shape (n_samples, n_features)
            Privatized records, as the mechanism's ``transform`` returns them.
        y : Ignored

        Returns
        -------
        self : object

        Raises
        ------
        PublicValueError
            The records carry another mechanism, or it releases no columns for a copula.
        """
        self._forget()
        point_seed, record_seed = split_random_state(self.random_state, 2)
        mechanism = fit_mechanism(self.mechanism, X, privatize=False, noise_seed=None)
        self.mechanism_ = mechanism
        self.privacy_ = learner_report(
            self.mechanism_.privacy_, privatize=False, carried=self.mechanism is None
        )
        mechanism, shift = near_zero(mechanism)
        Y = self.mechanism_.encode_release(X, reset=True, estimator=self) - shift
        rng = np.random.default_rng(record_seed)
        is_copula = self.dependence == "copula"
        if is_copula or (self.dependence == "auto" and has_columns(mechanism)):
            points, weights = self._fit_copula(mechanism, Y, rng)
        else:
            self.marginals_: list[np.ndarray] = []
            self.correlation_ = np.empty((0, 0))
            points = mechanism.domain_.sample(self.n_points, np.random.default_rng(point_seed))
            weights, self.n_iter_ = self._fit_points(mechanism, points, Y, rng)
        self.points_ = points + shift
        self.weights_ = weights
        return self

    def _fit_points(self, mechanism, points, Y, rng):
        """Return the weights of points of a mechanism or of one of its columns."""
        cells = record_cells(mechanism, Y, self.n_cells, rng)
        check_fits(3 * 8 * len(points) * len(cells.shares), "The likelihood of the records")
        weights, n_iter = fit_weights(
            cells.likelihood(mechanism, as_tensor(points, dtype=torch.float64)),
            as_tensor(cells.shares, dtype=torch.float64),
            n_samples=len(Y),
            max_iter=self.max_iter,
            tol=self.tol,
        )
        return as_array(weights), n_iter

    def _fit_copula(self, mechanism, Y, rng):
        """Learn the columns and their correlations; return points for scores."""
        columns = released_columns(mechanism)
        fits = [
            self._fit_points(column, column.points[:, None], column.values(Y), rng)
            for column in columns
        ]
        self.marginals_, steps = map(list, zip(*fits, strict=True))
        self.n_iter_ = max(steps)
        covariance = column_covariances(columns, mechanism._unbiased(Y)[0])
        self.correlation_ = copula_correlation(columns, self.marginals_, covariance)
        sobol = qmc.Sobol(len(columns), rng=0).random(_N_SCORED)
        # The first Sobol point is 0, of which the normal quantile is infinite.
        normal = ndtri(sobol + 0.5 / _N_SCORED)
        points = draw_copula(
            columns, self.marginals_, self.correlation_, normal, np.random.default_rng(0)
        )
        return mechanism.domain_.project(points), np.full(_N_SCORED, 1 / _N_SCORED)

    def sample(
        self, n_samples: int = 1, *, random_state: int | np.random.RandomState | None = None
    ) -> np.ndarray | pd.DataFrame:
        """Draw synthetic raw records.

        Parameters
        ----------
        n_samples : int, default=1
            How many; as many as wanted, at no cost in privacy.
        random_state : int, RandomState or None, default=None
            Seed of the draw.

        Returns
        -------
        X : ndarray or data frame of shape (n_samples, n_features)
            A data frame when fitted on one.
        """
        check_is_fitted(self)
        n_samples = check_n_samples(n_samples)
        (seed,) = split_random_state(random_state, 1)
        rng = np.random.default_rng(seed)
        if self.marginals_:
            mechanism, shift = near_zero(self.mechanism_)
            columns, normal = released_columns(mechanism), rng.normal
            X = draw_copula(
                columns,
                self.marginals_,
                self.correlation_,
                normal(size=(n_samples, len(columns))),
                rng,
            )
            X = mechanism.domain_.project(X) + shift
        else:
            X = self.points_[rng.choice(len(self.points_), n_samples, p=self.weights_)]
        return self.mechanism_.decode(draw_categories(self.mechanism_.domain_, X, rng), rng)

    def score_samples(self, X: ArrayLike | pd.DataFrame) -> np.ndarray:
        """Log-likelihood of each privatized record under ``points_``, in nats.

        Parameters
        ----------
        X : array-like or data frame of shape (n_samples, n_features)
            Privatized records.

        Returns
        -------
        log_likelihood : ndarray of shape (n_samples,)
        """
        check_is_fitted(self)
        Y = self.mechanism_.encode_release(X, estimator=self)
        mechanism, shift = near_zero(self.mechanism_)
        kept = self.weights_ > 0
        points, weights, Y = (
            as_tensor(part, dtype=torch.float64)
            for part in (self.points_[kept] - shift, self.weights_[kept], Y - shift)
        )
        return as_array(mixture_log_likelihood(mechanism, points, Y, weights=weights))

    def score(self, X: ArrayLike | pd.DataFrame, y: object = None) -> float:
        """Return minus the distance of the first two moments of samples and raw records.

        It is the mean squared difference of the means plus that of the mean products of pairs, in
        units of half of the declared ranges; 0 is best. The moments of raw records are estimated
        without bias from privatized ones, so scores compare mechanisms with one domain or schema;
        large noise lowers a score through the error of the estimates. With one mechanism,
        :func:`~sklearn_dpgen.deconvolution.likelihood_score` is sharper.

        Parameters
        ----------
        X : array-like or data frame of shape (n_samples, n_features)
            Privatized records.
        y : Ignored

        Returns
        -------
        float
        """
        check_is_fitted(self)
        Y = self.mechanism_.encode_release(X, estimator=self)
        mechanism, shift = near_zero(self.mechanism_)
        return moment_score(mechanism, Y - shift, self.points_ - shift, self.weights_)

    def __sklearn_is_fitted__(self):
        return hasattr(self, "weights_")

    def __sklearn_tags__(self):
        tags = super().__sklearn_tags__()
        if isinstance(self.mechanism, BaseEstimator):
            tags.input_tags = get_tags(self.mechanism).input_tags
        tags.non_deterministic = self.random_state is None
        return tags

    def _check_saved_state(self):
        super()._check_saved_state()
        width = self.mechanism_.domain_.n_features
        demand(self.points_.shape[1] == width, "Points have another width than the domain.")
        fits = len(self.points_) == len(self.weights_) and is_distribution(self.weights_)
        demand(fits, "Points have other weights.")
        # A file that was saved before there were copulas has none.
        self.__dict__.setdefault("marginals_", [])
        self.__dict__.setdefault("correlation_", np.empty((0, 0)))
        n_columns = len(self.marginals_)
        demand(self.correlation_.shape == (n_columns, n_columns), "A copula lacks columns.")
        if n_columns:
            columns = released_columns(self.mechanism_)
            demand(len(columns) == n_columns, "A copula has other columns.")
            pairs = zip(columns, self.marginals_, strict=True)
            fits = all(len(c.points) == len(w) and is_distribution(w) for c, w in pairs)
            demand(fits, "Columns of a copula have other values.")
