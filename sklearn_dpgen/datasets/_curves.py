"""Curves inside the unit disc: one-dimensional supports that noise hides in the plane."""

import numpy as np
from scipy.special import ellipeinc
from sklearn.utils import check_random_state, check_scalar

from sklearn_dpgen.utils._validation import Integral, check_positive

__all__ = ["make_ellipse", "make_half_circle", "make_rectangle"]


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

    The ends (-radius, 0) and (radius, 0) are in the support, so the l2 diameter, which is the
    l2 sensitivity of a record, is 2 * radius. The l1 diameter is (1 + sqrt(2)) * radius, between
    one end and the point at 45 degrees on the other side. (The reference prints sqrt(2) and 2
    for a radius of 1; noise calibrated to those is too small.) The curve lies in
    ``Ball(radius)``.

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
