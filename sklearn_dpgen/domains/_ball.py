"""Balls, the projections on them, and the smallest ball around a domain."""

from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike

from sklearn_dpgen.domains._base import (
    Domain,
    check_size,
    check_vector,
    difference_above,
    like,
    norm_above,
    norm_order,
    short,
)
from sklearn_dpgen.domains._product import Box, OneHot, Product
from sklearn_dpgen.exceptions import PublicTypeError, PublicValueError
from sklearn_dpgen.persistence._declarations import Array, saved
from sklearn_dpgen.utils._checks import check_positive

__all__ = ["Ball", "enclosing_ball"]

# Largest share of the radius that may be lost to rounding.
_MAX_ROUNDING = 1e-3


@saved
@dataclass(frozen=True, eq=False, repr=False, init=False)
class Ball(Domain):
    """The ball ``||x - center||_p <= radius``.

    Parameters
    ----------
    radius : float
        Public and positive. Refused if rounding in double precision around ``center`` would reduce
        it by more than a thousandth.
    p : {1, 2, np.inf}, default=2
    center : float or array-like of shape (n_features,), optional
        The origin by default.
    n_features : int, optional
        Required unless ``center`` is a vector.

    Notes
    -----
    The projection on the l1 ball soft-thresholds at the level found by sorting [1]_. A uniform
    sample is a vector g of independent entries with density proportional to ``exp(-|t|^p)``,
    divided by ``(||g||_p^p + e)^(1/p)`` with e standard exponential [2]_.

    Projections are rounded inwards, by a few units in the last place of ``radius`` and of
    ``center``: in float64 they are exactly in the ball, and their distances do not exceed the
    diameter.

    References
    ----------
    .. [1] J. Duchi, S. Shalev-Shwartz, Y. Singer, T. Chandra. "Efficient projections onto the
       l1-ball for learning in high dimensions". ICML 2008.
    .. [2] F. Barthe, O. Guedon, S. Mendelson, A. Naor. "A probabilistic approach to the geometry
       of the l_p^n-ball". Annals of Probability 33(2), 2005, theorem 1.

    Examples
    --------
    >>> from sklearn_dpgen.domains import Ball
    >>> Ball(radius=1, n_features=2).diameter(2)
    2.0
    """

    # A file with a scalar center and a number of features could make loading allocate much memory.
    _saved_state = {"radius": float, "p": float, "center": Array("f", 1), "n_features": int}

    radius: float
    p: float
    center: np.ndarray
    n_features: int

    def __init__(
        self,
        radius: float,
        p: float = 2,
        center: ArrayLike | None = None,
        n_features: int | None = None,
    ) -> None:
        if n_features is not None:
            n_features = check_size(n_features, "n_features", 1)
        elif center is None or np.ndim(center) == 0:
            raise PublicValueError("n_features must be given unless center is a vector.")
        center = check_vector(0.0 if center is None else center, "center", n_features)
        radius, p = check_positive(radius, "radius"), norm_order(p)
        with np.errstate(over="ignore"):
            reach = abs(center) + radius
        if reach.max() > np.finfo(np.float64).max / 4:
            raise PublicValueError(
                "center and radius must be below a quarter of the largest float."
            )
        for name, value in (
            ("radius", radius),
            ("p", p),
            ("center", center),
            ("n_features", len(center)),
        ):
            object.__setattr__(self, name, value)
        if self._kept_radius() < (1 - _MAX_ROUNDING) * radius:
            raise PublicValueError(
                f"radius must be larger for double precision around this center, got {radius:g}: "
                f"rounding would take more than {_MAX_ROUNDING:.1%} of it. Subtract the center "
                "from the records and declare a ball around the origin."
            )

    def _project(self, X, xp):
        if self.p == np.inf:
            low, high = self._bounds()
            return xp.clip(X, like(low, X), like(high, X))
        center = like(self.center, X)
        # Values up to a quarter of the largest number leave room for the differences below.
        precision = xp.finfo(X.dtype)
        offset = xp.clip(X, -precision.max / 4, precision.max / 4) - center
        project = _project_l1 if self.p == 1 else _project_l2
        return center + project(offset, self._inner_radius(precision), xp)

    def _bounds(self):
        """Return the corners of the ball of p = inf, rounded inwards."""
        return difference_above(self.center, self.radius), -difference_above(
            -self.center, self.radius
        )

    def _inner_radius(self, precision):
        """Return the radius to project on, such that rounding does not leave the ball.

        With unit roundoff u = eps / 2, the error of a sum c + o is at most u |c + o|, with |o| at
        most the radius, and zero for c = 0. The error of the norm of a projected offset is at most
        (n_features + 8) u times the radius, in any order of summation. The margin is twice as
        large, which covers the rounding of these bounds.
        """
        moved = (abs(self.center) + self.radius)[self.center != 0]
        lost = (self.n_features + 8) * self.radius
        if len(moved):
            largest = float(moved.max())
            lost += largest * float(np.linalg.norm(moved / largest, self.p))
        lost = float(precision.eps) * lost + self.n_features * float(precision.tiny)
        return max(self.radius - lost, 0.0)

    def _kept_radius(self):
        """Return a radius that contains all projections in double precision."""
        if self.p == np.inf:
            low, high = self._bounds()
            return float((high - low).min()) / 2
        return self._inner_radius(np.finfo(np.float64))

    def diameter(self, p: float) -> float:
        # The norm of equal entries: n_features^(1/p - 1/self.p), if that is above 1.
        power = max(0.0, 1 / norm_order(p) - 1 / self.p)
        entries = np.full(self.n_features, 2 * self.radius)
        return norm_above(entries, norm_order(1 / power) if power > 0 else np.inf)

    def sample(self, n: int, rng: np.random.Generator) -> np.ndarray:
        shape = (n, self.n_features)
        if self.p == np.inf:
            unit = rng.uniform(-1, 1, size=shape)
        else:
            g = rng.laplace(size=shape) if self.p == 1 else rng.normal(0, np.sqrt(0.5), size=shape)
            total = (abs(g) ** self.p).sum(axis=1, keepdims=True) + rng.exponential(size=(n, 1))
            unit = g / total ** (1 / self.p)
        return self.center + self.radius * unit

    def __repr__(self):
        center = f"center={short(self.center)}, " if self.center.any() else ""
        return f"Ball(radius={self.radius}, p={self.p}, {center}n_features={self.n_features})"


def _project_l2(offset, radius, xp):
    # Dividing by the largest entry keeps the squares finite; inside the ball the scale is radius.
    scale = xp.clip(xp.amax(abs(offset), axis=1, keepdims=True), radius, None)
    unit = offset / scale
    square = (unit**2).sum(axis=1, keepdims=True)
    outside = (scale > radius) | (square > 1)
    return xp.where(outside, unit * (radius / xp.sqrt(xp.clip(square, 1, None))), offset)


def _project_l1(offset, radius, xp):
    size = abs(offset)
    # Magnitudes below the largest by radius or more become zero, so the threshold is found relative
    # to the largest, which avoids cancellation.
    relative = xp.clip(size - xp.amax(size, axis=1, keepdims=True), -radius, None)
    if xp is np:
        ordered = np.sort(relative, axis=1)[:, ::-1]
    else:
        ordered = relative.sort(dim=1, descending=True).values
    counts = like(np.arange(1, offset.shape[1] + 1), offset)
    threshold = xp.amax((xp.cumsum(ordered, axis=1) - radius) / counts, axis=1, keepdims=True)
    kept = xp.clip(relative - threshold, 0, None)
    # Rounding of long sums may exceed the allowed error of the norm.
    kept = kept * (radius / xp.clip(kept.sum(axis=1, keepdims=True), radius, None))
    outside = xp.clip(size, None, 2 * radius).sum(axis=1, keepdims=True) > radius
    return xp.where(outside, xp.sign(offset) * kept, offset)


def enclosing_ball(domain: Domain) -> Ball:
    """Return the smallest l2 ball around a domain.

    Parameters
    ----------
    domain : Domain
        A box, a ball, soft one-hot blocks, or a product of them.

    Returns
    -------
    Ball

    Raises
    ------
    PublicTypeError
        The enclosing ball of the domain is not known.
    PublicValueError
        The domain is a single point.
    """
    radius, center = _radius_and_center(domain)
    return Ball(radius, center=center)


def _radius_and_center(domain):
    if isinstance(domain, Box):
        center = domain.low / 2 + domain.high / 2
        reach = np.maximum(
            difference_above(domain.high, center), difference_above(center, domain.low)
        )
        return norm_above(reach, 2), center
    if isinstance(domain, Ball):
        return domain.diameter(2) / 2, domain.center
    if isinstance(domain, OneHot):
        n = domain.n_categories
        vertex, center = np.eye(n)[0], np.full(n, 1 / n)
        reach = np.maximum(difference_above(vertex, center), difference_above(center, vertex))
        return norm_above(reach, 2), center
    if isinstance(domain, Product):
        radii, centers = zip(*map(_radius_and_center, domain.domains), strict=True)
        return norm_above(radii, 2), np.concatenate(centers)
    raise PublicTypeError(
        f"No enclosing ball is known for a domain of type {type(domain).__name__}."
    )
