"""Simulated data: curves inside the unit disc, and labels biased by a sensitive attribute."""

import numpy as np
from scipy.special import ellipeinc
from sklearn.utils import Bunch, check_random_state, check_scalar

from sklearn_dpgen.utils._validation import Integral, Real, check_positive

__all__ = ["make_biased_labels", "make_ellipse", "make_half_circle", "make_rectangle"]


def make_biased_labels(
    n_samples: int = 30000,
    *,
    agreement: float = 0.7,
    n_core: int = 8,
    n_spurious: int = 8,
    core_variance: float = 0.2,
    spurious_variance: float = 0.4,
    random_state: int | np.random.RandomState | None = None,
) -> Bunch:
    """Draw records whose label agrees with a sensitive attribute with a given probability.

    Y^C is uniform on [0, 1]^2 and Y = 1 above the antidiagonal, Y^C_2 > 1 - Y^C_1. The attribute
    A equals Y with probability ``agreement``, independently of Y^C, and 1 - Y otherwise. Core
    features repeat Y^C with Gaussian noise, spurious ones repeat A. Both labels and both groups
    have probability 1/2.

    Parameters
    ----------
    n_samples : int, default=30000
    agreement : float, default=0.7
        P(A = Y), in [0, 1]. At 1/2 the attribute and the label are independent.
    n_core : int, default=8
        Number of core features, even: Y^C_1, Y^C_2, Y^C_1, ...
    n_spurious : int, default=8
        Number of spurious features, possibly 0.
    core_variance, spurious_variance : float, default=0.2, 0.4
        Variances of the Gaussian noise, possibly 0.
    random_state : None, int or RandomState, default=None

    Returns
    -------
    Bunch
        ``X`` : ndarray of shape (n_samples, n_core + n_spurious), core features first;
        ``y`` : ndarray of 0 and 1, shape (n_samples,), the label Y;
        ``y_continuous`` : ndarray of shape (n_samples, 2), the response Y^C in [0, 1]^2;
        ``sensitive`` : ndarray of 0 and 1, shape (n_samples,), the attribute A.

    Raises
    ------
    ValueError
        A parameter is out of its range, or ``n_core`` is odd.

    References
    ----------
    Rodríguez-Vítores, Lalanne, Loubes (2025). Learning with differentially private (sliced)
    Wasserstein gradients, appendix B. The defaults are its settings.

    Examples
    --------
    >>> from sklearn_dpgen.datasets import make_biased_labels
    >>> data = make_biased_labels(1000, random_state=0)
    >>> data.X.shape
    (1000, 16)
    >>> round(float((data.sensitive == data.y).mean()), 1)
    0.7
    """
    check_scalar(n_samples, "n_samples", Integral, min_val=1)
    check_scalar(n_core, "n_core", Integral, min_val=2)
    if n_core % 2:
        raise ValueError(f"n_core must be even, got {n_core}.")
    check_scalar(n_spurious, "n_spurious", Integral, min_val=0)
    _check_range(agreement, "agreement", 1.0)
    _check_range(core_variance, "core_variance", np.finfo(float).max)
    _check_range(spurious_variance, "spurious_variance", np.finfo(float).max)

    rng = check_random_state(random_state)
    y_continuous = rng.uniform(size=(n_samples, 2))
    y = (y_continuous[:, 1] > 1 - y_continuous[:, 0]).astype(np.int64)
    sensitive = np.where(rng.uniform(size=n_samples) < agreement, y, 1 - y)
    core = np.tile(y_continuous, n_core // 2)
    core += np.sqrt(core_variance) * rng.standard_normal((n_samples, n_core))
    noise = np.sqrt(spurious_variance) * rng.standard_normal((n_samples, n_spurious))
    return Bunch(
        X=np.hstack([core, sensitive[:, None] + noise]),
        y=y,
        y_continuous=y_continuous,
        sensitive=sensitive,
    )


def _check_range(value, name, high):
    check_scalar(value, name, Real)
    # Written such that NaN fails.
    if not 0 <= value <= high:
        raise ValueError(f"{name} must be between 0 and {high:.4g}, got {value}.")


def _uniforms(n_samples, random_state):
    check_scalar(n_samples, "n_samples", Integral, min_val=1)
    return check_random_state(random_state).uniform(size=n_samples)


def make_half_circle(
    n_samples: int = 1000,
    *,
    radius: float = 1.0,
    random_state: int | np.random.RandomState | None = None,
) -> np.ndarray:
    """Draw points uniformly from the upper half of a circle centred at the origin.

    The ends (-radius, 0) and (radius, 0) are in the support, so the l2 diameter, which is the l2
    sensitivity of a record, is 2 * radius. The l1 diameter is (1 + sqrt(2)) * radius, from an end
    to the point at 45 degrees on the other side. The reference prints sqrt(2) and 2 for a radius
    of 1; noise calibrated to these is too small. The curve is in ``Ball(radius)``.

    Parameters
    ----------
    n_samples : int, default=1000
    radius : float, default=1.0
    random_state : None, int or RandomState, default=None

    Returns
    -------
    ndarray of shape (n_samples, 2)

    References
    ----------
    Reshetova, Chen, Özgür (2024). Training generative models from privatized data via entropic
    optimal transport, section on synthetic data.
    """
    radius = check_positive(radius, "radius")
    angles = np.pi * _uniforms(n_samples, random_state)
    return radius * np.column_stack([np.cos(angles), np.sin(angles)])


def make_rectangle(
    n_samples: int = 1000,
    *,
    width: float = 1.6,
    height: float = 1.2,
    random_state: int | np.random.RandomState | None = None,
) -> np.ndarray:
    """Draw points uniformly, by length, from the border of a rectangle centred at the origin.

    Its l2 diameter is its diagonal, its l1 diameter is ``width + height``. The default has its
    corners on the unit circle: it lies in ``Ball(1)`` and its l2 diameter is 2.

    Parameters
    ----------
    n_samples : int, default=1000
    width, height : float, default=1.6, 1.2
        Lengths of the horizontal and of the vertical sides.
    random_state : None, int or RandomState, default=None

    Returns
    -------
    ndarray of shape (n_samples, 2)
    """
    width, height = check_positive(width, "width"), check_positive(height, "height")
    x, y = width / 2, height / 2
    corners = np.array([[-x, -y], [x, -y], [x, y], [-x, y], [-x, -y]])
    lengths = [0, width, width + height, 2 * width + height, 2 * (width + height)]
    position = lengths[-1] * _uniforms(n_samples, random_state)
    return np.column_stack([np.interp(position, lengths, corner) for corner in corners.T])


def make_ellipse(
    n_samples: int = 1000,
    *,
    semi_axes: tuple[float, float] = (1.0, 0.5),
    random_state: int | np.random.RandomState | None = None,
) -> np.ndarray:
    """Draw points uniformly, by arc length, from an ellipse centred at the origin.

    Its l2 diameter is twice its longer semi-axis. The default lies in ``Ball(1)`` and touches
    the unit circle, so its l2 diameter is 2.

    Parameters
    ----------
    n_samples : int, default=1000
    semi_axes : tuple of two floats, default=(1.0, 0.5)
        Half the horizontal and half the vertical extent.
    random_state : None, int or RandomState, default=None

    Returns
    -------
    ndarray of shape (n_samples, 2)
    """
    a, b = (check_positive(axis, "semi_axes") for axis in semi_axes)
    # Arc length from (a, 0) has a closed form; its inverse is interpolated on a fine grid.
    grid = np.linspace(0, 2 * np.pi, 4097)
    lengths = b * ellipeinc(grid, 1 - (a / b) ** 2)
    angles = np.interp(lengths[-1] * _uniforms(n_samples, random_state), lengths, grid)
    return np.column_stack([a * np.cos(angles), b * np.sin(angles)])
