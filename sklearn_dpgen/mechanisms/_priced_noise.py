"""The scale of one release of noise, drawn in floating point or certified, and its profile."""

from sklearn_dpgen.accounting import (
    FailingGaussianProfile,
    GaussianProfile,
    LaplaceProfile,
    gaussian_sigma,
    laplace_scale,
)
from sklearn_dpgen.accounting._certified import (
    certified_failure,
    certified_gaussian_sigma,
    certified_laplace_epsilon,
    certified_laplace_scale,
    certified_mu,
    check_certified,
)

__all__ = ["priced_gaussian", "priced_laplace"]


def priced_laplace(epsilon, sensitivity, n_values, *, certified):
    """Return the scale of Laplace noise and the releases of its report.

    Parameters
    ----------
    epsilon : float
    sensitivity : float
        l1, of the values together.
    n_values : int
        How many get noise, and may all change.
    certified : bool

    Returns
    -------
    scale : float
        0 for none.
    releases : tuple of (PrivacyProfile, int)
    """
    if not certified:
        scale = laplace_scale(epsilon, sensitivity)
        return scale, ((LaplaceProfile(sensitivity / scale), 1),) if scale else ()
    scale = certified_laplace_scale(epsilon, sensitivity, n_values)
    if scale == 0:
        return scale, ()
    spent = certified_laplace_epsilon(sensitivity, scale, n_values)
    check_certified("laplace", sensitivity, scale, n_values, spent)
    return scale, ((LaplaceProfile(spent), 1),)


def priced_gaussian(epsilon, delta, sensitivity, n_values, *, calibration, certified):
    """Return the standard deviation of Gaussian noise and the releases of its report.

    Parameters
    ----------
    epsilon, delta : float
    sensitivity : float
        l2, of the values together.
    n_values : int
        How many get noise, and may all change.
    calibration : {"analytic", "closed_form"}
    certified : bool

    Returns
    -------
    scale : float
        0 for none.
    releases : tuple of (PrivacyProfile, int)
    """
    if not certified:
        scale = gaussian_sigma(epsilon, delta, sensitivity, calibration=calibration)
        return scale, ((GaussianProfile(sensitivity / scale), 1),) if scale else ()
    scale = certified_gaussian_sigma(epsilon, delta, sensitivity, n_values, calibration=calibration)
    if scale == 0:
        return scale, ()
    mu = certified_mu(sensitivity, scale, n_values)
    check_certified("gaussian", sensitivity, scale, n_values, mu)
    return scale, ((FailingGaussianProfile(mu, certified_failure(n_values)), 1),)
