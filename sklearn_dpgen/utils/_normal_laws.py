"""Normal distributions from noisy moments, as post-processing."""

from dataclasses import dataclass
from functools import cached_property

import numpy as np
from scipy.special import logsumexp
from sklearn.isotonic import isotonic_regression

__all__ = [
    "PublicMoments",
    "denoised_covariances",
    "draw_normals",
    "mixture_log_densities",
    "shrunk_means",
]

# Smallest variance of a direction.
_FLOOR = 1e-12
# Fixed-point iterations for the variance of the signal; a few suffice.
_N_ROUNDS = 30


@dataclass(frozen=True)
class PublicMoments:
    """Means and covariance of public records.

    Parameters
    ----------
    means : ndarray of shape (n_classes, d) or (1, d)
        Of each class, or of all records if these have no labels.
    covariance : ndarray of shape (d, d)
        About the mean of the class, pooled over the classes.
    known : ndarray of bool of shape (d,) or None, default=None
        Features that the public records have; None for all. The moments of others are not read.
    """

    means: np.ndarray
    covariance: np.ndarray
    known: np.ndarray | None = None

    @cached_property
    def blocks(self):
        """Orthonormal columns for each block of directions, by descending variance.

        The blocks end at 4, 8, 16, ... directions, so that the moments of public records can be
        right in a few coarse directions and wrong in the many fine ones.
        """
        d = len(self.covariance)
        known = np.arange(d) if self.known is None else np.flatnonzero(self.known)
        vectors = np.zeros((d, len(known)))
        vectors[known] = np.linalg.eigh(self.covariance[np.ix_(known, known)])[1][:, ::-1]
        edges = 2 ** np.arange(2, 32)
        return np.split(vectors, edges[edges < len(known)], axis=1)


def shrunk_means(means: np.ndarray, spreads: np.ndarray, public: PublicMoments) -> np.ndarray:
    """Return noisy means of classes, shrunk towards those of public records.

    Parameters
    ----------
    means : ndarray of shape (n_classes, d)
        With independent normal noise.
    spreads : ndarray of shape (n_classes,)
        Standard deviation of the noise on the entries of each mean.
    public : PublicMoments

    Returns
    -------
    ndarray of shape (n_classes, d)

    Notes
    -----
    Of a single class the mean is shrunk; of several, their differences from the mean over the
    classes, weighted by precision, as the public records may have another level. Without public
    labels, the means of several classes are kept. In a block of k coordinates with noise of
    standard deviation s, the residual r from the public moments loses the share
    min(1, (k - 2) s² / ‖r‖²): from three coordinates on, the expected squared error is below that
    of the noisy means, whatever the public records are [1]_. But to tell classes apart, noisy
    differences are worth more than none. So of several classes it loses that share times the
    coefficient, in [0, 1], of the regression of the noisy differences on the public ones.

    References
    ----------
    .. [1] W. James, C. Stein, "Estimation with quadratic loss", 4th Berkeley Symposium, 1961.
    """
    n_classes = len(means)
    if not np.all(spreads > 0) or len(public.means) < n_classes:
        return means
    residuals, agreement = (means - public.means) / spreads[:, None], 1.0
    if n_classes > 1:
        shares = spreads**-2 / (spreads**-2).sum()
        known = (public.means - shares @ public.means) / spreads[:, None]
        residuals = (means - shares @ means) / spreads[:, None] - known
        slope = 1 + (residuals * known).sum() / max((known**2).sum(), 1e-300)
        agreement = min(max(0.0, slope), 1.0)
    lost = np.zeros_like(means)
    for block in public.blocks:
        own = residuals @ block
        dimension = max(1, n_classes - 1) * block.shape[1]
        lost += agreement * _lost_share(own, dimension) * own @ block.T
    return means - lost * spreads[:, None]


def _lost_share(residual, dimension):
    """Return the share that a residual with unit noise in a number of dimensions loses."""
    return min(1.0, max(0, dimension - 2) / max((residual**2).sum(), 1e-300))


def denoised_covariances(
    covariances: np.ndarray, spreads: np.ndarray, prior: np.ndarray | None = None
) -> np.ndarray:
    """Return the covariances of classes from noisy ones, by shrinkage of their spectra.

    Parameters
    ----------
    covariances : ndarray of shape (n_classes, d, d)
        Symmetric, with independent normal noise on their entries.
    spreads : ndarray of shape (n_classes,)
        Standard deviation of the noise off the diagonal; on it the noise has √2 times that.
    prior : ndarray of shape (d, d) or None, default=None
        Covariance of public records.

    Returns
    -------
    ndarray of shape (n_classes, d, d)
        Positive definite.

    Notes
    -----
    The covariance pooled over the classes has the least noise. Its eigenvalues above the noise are
    kept, as in [1]_, and the rest of the trace is divided equally. The difference of a class to it
    is the mean of two estimates. One keeps the eigenvalues above the noise, and finds a direction
    that only this class has. The other, empirical Bayes, finds differences spread over many
    directions: in the basis of the pooled eigenvectors, with eigenvalues v, entries have the prior
    N(0, κ v_i v_j), with κ fitted to them.

    With a prior, this pooled covariance is averaged with a second one. The noisy variances along
    the eigenvectors of the prior are fitted by isotonic regression, as they should rise with those
    of the prior, and shrunk to their mean as means are [2]_; the eigenvalues of the residual that
    are above the noise are added. So all scales are released ones: a prior with less variance in
    fine directions than the records does not take it from them, and a wrong one blurs variances of
    half of the estimate.

    References
    ----------
    .. [1] M. Gavish, D. Donoho, "Optimal shrinkage of singular values", IEEE Transactions on
       Information Theory 63(4), 2017, for square matrices.
    .. [2] W. James, C. Stein, "Estimation with quadratic loss", 4th Berkeley Symposium, 1961.
    """
    if not np.all(spreads > 0):
        return np.array([_positive(own, _FLOOR) for own in covariances])
    precisions = 1 / spreads**2
    spread = 1 / np.sqrt(precisions.sum())
    pooled = np.einsum("k,kij->ij", precisions * spread**2, covariances)
    pooled = _spiked(pooled, spread) if prior is None else _near(pooled, spread, prior)
    values, vectors = np.linalg.eigh(pooled)
    # The largest eigenvalue of the noise alone is about four times this.
    floor = min(np.sqrt(len(pooled)) * spread / 2, values[0])
    laws = []
    for own, noise in zip(covariances, spreads, strict=True):
        difference = vectors.T @ (own - pooled) @ vectors
        moved = (_shrunk(difference, values, noise) + _outstanding(difference, noise)) / 2
        law = _positive(pooled + vectors @ moved @ vectors.T, floor)
        # Clipping negative eigenvalues raises the trace, which is known more precisely.
        known = max(np.trace(own) + np.sqrt(2 * len(own)) * noise, len(own) * floor)
        laws.append(law * min(1.0, known / np.trace(law)))
    return np.array(laws)


def _outstanding(matrix, spread):
    """Return a symmetric matrix with only the eigenvalues above the noise, shrunk."""
    values, vectors = np.linalg.eigh(matrix)
    edge = 2 * np.sqrt(len(matrix)) * spread
    kept = np.sign(values) * np.sqrt((values**2 - edge**2).clip(0))
    return (vectors * kept) @ vectors.T


def _spiked(matrix, spread):
    """Return a covariance with the eigenvalues above the noise, and equal ones for the rest."""
    outstanding = _outstanding(matrix, spread)
    n_rest = np.sum(np.linalg.eigvalsh(matrix) <= 2 * np.sqrt(len(matrix)) * spread)
    rest = (np.trace(matrix) - np.trace(outstanding)) / max(1, n_rest)
    return _positive(outstanding, max(_FLOOR, rest))


def _near(matrix, spread, prior):
    """Return a covariance by :func:`_spiked`, averaged with one along the directions of a prior."""
    # By ascending variance in the prior.
    vectors, d = np.linalg.eigh(prior)[1], len(prior)
    variances = (vectors * (matrix @ vectors)).sum(axis=0)
    level = variances.mean()
    # On a diagonal the noise has √2 times the spread.
    lost = _lost_share((variances - level) / (np.sqrt(2) * spread), d - 1)
    law = (vectors * (lost * level + (1 - lost) * isotonic_regression(variances))) @ vectors.T
    outstanding = _outstanding(matrix - law, spread)
    # The trace stays that of the matrix.
    law = law + outstanding - np.trace(outstanding) / d * np.eye(d)
    return (_positive(law, 0.0) + _spiked(matrix, spread)) / 2


def _shrunk(matrix, scales, spread):
    """Return the posterior mean of a matrix with prior entries N(0, κ s_i s_j), observed in noise.

    On the diagonal the variances of both prior and noise are doubled.
    """
    weights = np.outer(scales, scales)
    # Diagonal entries are scaled to the off-diagonal variances.
    entries = matrix / np.sqrt(1 + np.eye(len(matrix)))
    chosen = np.triu_indices(len(matrix))
    kappa = _variance_share(entries[chosen] ** 2, weights[chosen], spread**2)
    return matrix * kappa * weights / (kappa * weights + spread**2)


def _variance_share(squares, weights, noise):
    """Return κ of squares with means κ w + noise, by weighted least squares.

    One standard error at κ = 0 is subtracted, which noise alone may contribute.
    """
    kappa, error = 0.0, np.sqrt(2) * noise / np.linalg.norm(weights)
    for _ in range(_N_ROUNDS):
        precisions = weights / (kappa * weights + noise) ** 2
        kappa = precisions @ (squares - noise) / (precisions @ weights)
        kappa = max(0.0, kappa - error)
    return kappa


def _positive(matrix, floor):
    """Return a symmetric matrix with eigenvalues clipped to at least a floor."""
    values, vectors = np.linalg.eigh((matrix + matrix.T) / 2)
    return (vectors * values.clip(floor)) @ vectors.T


def draw_normals(
    means: np.ndarray, covariances: np.ndarray, codes: np.ndarray, rng: np.random.Generator
) -> np.ndarray:
    """Return one draw from the normal distribution of each class code.

    Parameters
    ----------
    means : ndarray of shape (n_classes, d)
    covariances : ndarray of shape (n_classes, d, d)
    codes : ndarray of int of shape (n,)
    rng : numpy.random.Generator

    Returns
    -------
    ndarray of shape (n, d)
    """
    points = rng.standard_normal((len(codes), means.shape[1]))
    for code, (mean, covariance) in enumerate(zip(means, covariances, strict=True)):
        values, vectors = np.linalg.eigh(covariance)
        own = codes == code
        points[own] = mean + points[own] * np.sqrt(values.clip(0)) @ vectors.T
    return points


def mixture_log_densities(points, means, covariances, shares=None):
    """Return log densities of a mixture of normal distributions, in nats.

    Parameters
    ----------
    points : ndarray of shape (n, d)
    means : ndarray of shape (n_classes, d)
    covariances : ndarray of shape (n_classes, d, d)
    shares : ndarray of shape (n_classes,) or None, default=None
        None for equal ones.

    Returns
    -------
    ndarray of shape (n,)
    """
    columns = []
    for mean, covariance in zip(means, covariances, strict=True):
        values, vectors = np.linalg.eigh(covariance)
        square = (((points - mean) @ vectors) ** 2 / values).sum(axis=1)
        columns.append(-0.5 * (square + np.log(2 * np.pi * values).sum()))
    shares = np.full(len(means), 1 / len(means)) if shares is None else shares
    return logsumexp(np.column_stack(columns), axis=1, b=shares)
