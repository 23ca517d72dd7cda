"""The public set that records lie in: what a sensitivity is computed from.

A domain is declared, never estimated. `Domain.project` brings any record into the set, and
`Domain.diameter` bounds how far two records of the set can be apart: replacing one record by
another moves the identity query by at most the diameter.
"""

import math
import sys
from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass, fields
from numbers import Integral

import numpy as np

from sklearn_dpgen.utils._validation import check_positive

__all__ = ["Ball", "Box", "Domain", "OneHot", "Product", "enclosing_ball"]


def array_namespace(X):
    """Return ``torch`` for a tensor and ``numpy`` for anything else, without importing torch."""
    torch = sys.modules.get("torch")
    return torch if torch is not None and isinstance(X, torch.Tensor) else np


def _like(values, X):
    """Return ``values`` with the kind, dtype and device of ``X``."""
    if array_namespace(X) is np:
        return np.asarray(values, dtype=X.dtype)
    from sklearn_dpgen.utils._torch import as_tensor

    return as_tensor(values, device=X.device, dtype=X.dtype)


def _norm_order(p, name="p"):
    """Return ``p`` as 1, 2 or ``np.inf``."""
    if p not in (1, 2, np.inf):
        raise ValueError(f"{name} must be 1, 2 or np.inf, got {p!r}.")
    return np.inf if p == np.inf else int(p)


def _vector(values, name, n_features):
    """Return ``values`` as a finite read-only vector; a scalar is repeated ``n_features`` times."""
    vector = np.array(values, dtype=np.float64)
    if vector.ndim > 1:
        raise ValueError(f"{name} must be a scalar or a vector, got {vector.ndim} dimensions.")
    if not np.isfinite(vector).all():
        raise ValueError(f"{name} must be finite.")
    if vector.ndim and n_features is not None and len(vector) != n_features:
        raise ValueError(f"{name} has {len(vector)} features where {n_features} are declared.")
    if vector.ndim == 0:
        vector = np.full(1 if n_features is None else n_features, vector)
    vector.flags.writeable = False
    return vector


def _count(value, name, minimum):
    if isinstance(value, bool) or not isinstance(value, Integral) or value < minimum:
        raise ValueError(f"{name} must be an integer of at least {minimum}, got {value!r}.")
    return int(value)


def _short(vector):
    if (vector == vector[0]).all():
        return repr(float(vector[0]))
    return np.array2string(vector, threshold=6, edgeitems=2, separator=", ")


class Domain(ABC):
    """Base of the domains: immutable, compared by value.

    Attributes
    ----------
    n_features : int
        The width of a record.
    """

    @abstractmethod
    def _project(self, X, xp):
        """Project finite-width rows that hold no NaN; ``xp`` is NumPy or torch."""

    @abstractmethod
    def diameter(self, p):
        """Return the supremum of ``||x - x'||_p`` over the pairs of the domain.

        Parameters
        ----------
        p : {1, 2, np.inf}
            1 calibrates Laplace noise, 2 Gaussian noise.

        Returns
        -------
        float
        """

    @abstractmethod
    def sample(self, n, rng):
        """Draw ``n`` records uniformly from the domain.

        Parameters
        ----------
        n : int
        rng : numpy.random.Generator

        Returns
        -------
        ndarray of shape (n, n_features)
        """

    def project(self, X):
        """Return the nearest point of the domain, in Euclidean distance, to each row.

        Parameters
        ----------
        X : array-like or tensor of shape (n, n_features)
            Infinite entries stand for the limit of large ones.

        Returns
        -------
        ndarray or tensor of shape (n, n_features)
            Of the kind and dtype of ``X`` (integers become float64); inside the domain up to the
            rounding of that dtype. For a tensor, differentiable almost everywhere.

        Raises
        ------
        ValueError
            If ``X`` has another width, or holds NaN: no point is nearest to it.
        """
        X, xp = self._rows(X)
        if xp.isnan(X).any():
            raise ValueError("X contains NaN, which cannot be projected on a domain.")
        return self._project(X, xp)

    def contains(self, X, tol=1e-6):
        """Return whether each row is within ``tol * (1 + max|x|)`` of its projection.

        Parameters
        ----------
        X : array-like or tensor of shape (n, n_features)
        tol : float, default=1e-6

        Returns
        -------
        boolean ndarray or tensor of shape (n,)
            False for a row that is not finite.
        """
        X, xp = self._rows(X)
        finite = xp.isfinite(X).all(axis=1)
        X = xp.where(finite[:, None], X, xp.zeros_like(X))
        gap = xp.amax(abs(X - self._project(X, xp)), axis=1)
        return finite & (gap <= tol * (1 + xp.amax(abs(X), axis=1)))

    def _rows(self, X):
        xp = array_namespace(X)
        if xp is np:
            X = np.asarray(X)
            if X.dtype.kind not in "biuf":
                raise ValueError(f"X must be numeric, got dtype {X.dtype}.")
            X = X if X.dtype.kind == "f" else X.astype(np.float64)
        elif not X.is_floating_point():
            X = X.double()
        if X.ndim != 2:
            raise ValueError(f"X must be of shape (n, n_features), got {X.ndim} dimension(s).")
        if X.shape[1] != self.n_features:
            raise ValueError(f"domain has {self.n_features} features, X has {X.shape[1]}.")
        return X, xp

    def _values(self):
        return tuple(getattr(self, field.name) for field in fields(self))

    def _key(self):
        return tuple(tuple(v.tolist()) if isinstance(v, np.ndarray) else v for v in self._values())

    def __reduce__(self):
        # Rebuilding through the constructor keeps the arrays of a copy read-only.
        return type(self), self._values()

    def __eq__(self, other):
        return type(self) is type(other) and self._key() == other._key()

    def __hash__(self):
        return hash((type(self), self._key()))


@dataclass(frozen=True, eq=False, repr=False)
class Box(Domain):
    """The box ``[low, high]``, one interval a feature.

    Parameters
    ----------
    low, high : float or array-like of shape (n_features,)
        Public bounds, ``low < high`` in every feature.
    n_features : int, optional
        Repeats scalar bounds; two scalars alone declare one feature.

    Examples
    --------
    >>> from sklearn_dpgen.domains import Box
    >>> Box(-1, 1, n_features=784).diameter(2)
    56.0
    """

    low: np.ndarray
    high: np.ndarray
    n_features: int | None = None

    def __post_init__(self):
        n_features = self.n_features
        if n_features is not None:
            n_features = _count(n_features, "n_features", 1)
        else:
            n_features = max(np.size(self.low), np.size(self.high))
        low = _vector(self.low, "low", n_features)
        high = _vector(self.high, "high", n_features)
        with np.errstate(over="ignore"):
            extent = high - low
        if not ((extent > 0) & np.isfinite(extent)).all():
            raise ValueError("low must be smaller than high, by a finite amount, in every feature.")
        for name, value in (("low", low), ("high", high), ("n_features", n_features)):
            object.__setattr__(self, name, value)

    def _project(self, X, xp):
        return xp.clip(X, _like(self.low, X), _like(self.high, X))

    def diameter(self, p):
        return float(np.linalg.norm(self.high - self.low, _norm_order(p)))

    def sample(self, n, rng):
        return rng.uniform(self.low, self.high, size=(n, self.n_features))

    def __repr__(self):
        width = f", n_features={self.n_features}" if self.n_features > 1 else ""
        return f"Box(low={_short(self.low)}, high={_short(self.high)}{width})"


@dataclass(frozen=True, eq=False, repr=False)
class Ball(Domain):
    """The ball ``||x - center||_p <= radius``.

    Parameters
    ----------
    radius : float
        Public, positive.
    p : {1, 2, np.inf}, default=2
    center : float or array-like of shape (n_features,), optional
        The origin by default.
    n_features : int, optional
        Needed unless ``center`` is a vector.

    Notes
    -----
    The projection on the l1 ball soft-thresholds at the level found by sorting [1]_. The uniform
    law divides a vector of independent entries with density proportional to ``exp(-|t|^p)`` by
    ``(||g||_p^p + e)^(1/p)``, e standard exponential [2]_.

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

    radius: float
    p: float = 2
    center: np.ndarray | None = None
    n_features: int | None = None

    def __post_init__(self):
        n_features = self.n_features
        if n_features is not None:
            n_features = _count(n_features, "n_features", 1)
        elif np.ndim(self.center) == 0:
            raise ValueError("n_features is needed unless center is a vector.")
        center = _vector(0.0 if self.center is None else self.center, "center", n_features)
        object.__setattr__(self, "radius", check_positive(self.radius, "radius"))
        object.__setattr__(self, "p", _norm_order(self.p))
        object.__setattr__(self, "center", center)
        object.__setattr__(self, "n_features", len(center))

    def _project(self, X, xp):
        center = _like(self.center, X)
        # A quarter of the largest number leaves room for the differences below.
        limit = xp.finfo(X.dtype).max / 4
        offset = xp.clip(X, -limit, limit) - center
        if self.p == np.inf:
            return center + xp.clip(offset, -self.radius, self.radius)
        project = _project_l1 if self.p == 1 else _project_l2
        return center + project(offset, self.radius, xp)

    def diameter(self, p):
        p = _norm_order(p)
        return 2 * self.radius * self.n_features ** max(0.0, 1 / p - 1 / self.p)

    def sample(self, n, rng):
        shape = (n, self.n_features)
        if self.p == np.inf:
            unit = rng.uniform(-1, 1, size=shape)
        else:
            g = rng.laplace(size=shape) if self.p == 1 else rng.normal(0, np.sqrt(0.5), size=shape)
            total = (abs(g) ** self.p).sum(axis=1, keepdims=True) + rng.exponential(size=(n, 1))
            unit = g / total ** (1 / self.p)
        return self.center + self.radius * unit

    def __repr__(self):
        center = f"center={_short(self.center)}, " if self.center.any() else ""
        return f"Ball(radius={self.radius}, p={self.p}, {center}n_features={self.n_features})"


def _project_l2(offset, radius, xp):
    # Dividing by the largest entry first keeps the squares finite; inside, the scale is radius.
    scale = xp.clip(xp.amax(abs(offset), axis=1, keepdims=True), radius, None)
    unit = offset / scale
    square = (unit**2).sum(axis=1, keepdims=True)
    return unit * (radius / xp.sqrt(xp.clip(square, 1, None)))


def _project_l1(offset, radius, xp):
    size = abs(offset)
    # Magnitudes below the largest by radius or more end at zero, so the threshold is found
    # relative to the largest, where nothing cancels.
    relative = xp.clip(size - xp.amax(size, axis=1, keepdims=True), -radius, None)
    if xp is np:
        ordered = np.sort(relative, axis=1)[:, ::-1]
    else:
        ordered = relative.sort(dim=1, descending=True).values
    counts = _like(np.arange(1, offset.shape[1] + 1), offset)
    threshold = xp.amax((xp.cumsum(ordered, axis=1) - radius) / counts, axis=1, keepdims=True)
    outside = xp.clip(size, None, 2 * radius).sum(axis=1, keepdims=True) > radius
    return xp.where(outside, xp.sign(offset) * xp.clip(relative - threshold, 0, None), offset)


@dataclass(frozen=True, eq=False)
class OneHot(Domain):
    """The vertices of the simplex: one category among ``n_categories``.

    The projection is the vertex of the largest entry, the first one in a tie. It is piecewise
    constant: no gradient flows through it.

    Parameters
    ----------
    n_categories : int
        At least 2.
    """

    n_categories: int

    def __post_init__(self):
        object.__setattr__(self, "n_categories", _count(self.n_categories, "n_categories", 2))

    @property
    def n_features(self):
        """The width of a record, ``n_categories``."""
        return self.n_categories

    def _project(self, X, xp):
        index = _like(np.arange(self.n_categories), X)
        return _like(X.argmax(axis=1)[:, None] == index, X)

    def diameter(self, p):
        return float(2 ** (1 / _norm_order(p)))

    def sample(self, n, rng):
        return np.eye(self.n_categories)[rng.integers(self.n_categories, size=n)]


@dataclass(frozen=True, eq=False)
class Product(Domain):
    """The product of domains, one after the other along the features.

    Parameters
    ----------
    domains : sequence of Domain
    """

    domains: Sequence[Domain]

    def __post_init__(self):
        domains = tuple(self.domains)
        if not domains or not all(isinstance(domain, Domain) for domain in domains):
            raise ValueError("domains must be a non-empty sequence of domains.")
        object.__setattr__(self, "domains", domains)

    @property
    def n_features(self):
        """The width of a record, the sum over the factors."""
        return sum(domain.n_features for domain in self.domains)

    @property
    def slices(self):
        """The features of each factor, a list of slices."""
        ends = np.cumsum([domain.n_features for domain in self.domains]).tolist()
        return [slice(start, stop) for start, stop in zip([0, *ends], ends, strict=False)]

    def _project(self, X, xp):
        parts = zip(self.domains, self.slices, strict=True)
        return xp.concatenate([domain._project(X[:, part], xp) for domain, part in parts], axis=1)

    def diameter(self, p):
        diameters = [domain.diameter(p) for domain in self.domains]
        return float(np.linalg.norm(diameters, _norm_order(p)))

    def sample(self, n, rng):
        return np.hstack([domain.sample(n, rng) for domain in self.domains])


def enclosing_ball(domain):
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
    TypeError
        For any other domain.
    """
    if isinstance(domain, Box):
        return Ball(domain.diameter(2) / 2, center=(domain.low + domain.high) / 2)
    if isinstance(domain, Ball):
        return Ball(domain.diameter(2) / 2, center=domain.center)
    if isinstance(domain, OneHot):
        n = domain.n_categories
        return Ball(math.sqrt(1 - 1 / n), center=np.full(n, 1 / n))
    if isinstance(domain, Product):
        balls = [enclosing_ball(factor) for factor in domain.domains]
        center = np.concatenate([ball.center for ball in balls])
        return Ball(math.hypot(*(ball.radius for ball in balls)), center=center)
    raise TypeError(f"No enclosing ball is known for a domain of type {type(domain).__name__}.")
