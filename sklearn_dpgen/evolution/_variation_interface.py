"""The protocol of a source of candidates, and the interface of a domain."""

import math
from typing import Protocol, runtime_checkable

import numpy as np
from numpy.typing import ArrayLike

from sklearn_dpgen.domains import Domain, OneHot, Product
from sklearn_dpgen.exceptions import PublicTypeError, PublicValueError
from sklearn_dpgen.persistence._declarations import Array, Maybe, saved
from sklearn_dpgen.utils._validation import Integral, check_array, check_positive

__all__ = [
    "EuclideanVariation",
    "VariationInterface",
    "check_candidates",
    "check_degree",
    "choose_columns",
    "flat_factors",
    "paper_degrees",
]


@runtime_checkable
class VariationInterface(Protocol):
    """Interface of sources that draw and vary public candidates, without private records.

    An interface must be made from public data: a network or a sampler that was trained on private
    records has a privacy cost that the report of a fit does not include. All randomness comes from
    the given generator, so that the same generator gives the same candidates.

    Notes
    -----
    Three further methods are optional. ``decode(X)`` returns the points of candidates in the space
    of the private records, of shape (n, n_features); without it candidates are such points.
    ``embed(X)`` maps points of candidates and of private records to a space of shape
    (n, n_embedded) in which votes compare them; without it they are compared directly.
    ``smooth(X, rng, degree)`` varies the candidates that a sampler draws, by its ``smoothing``;
    without it ``vary`` is used.
    """

    def random(self, n: int, rng: np.random.Generator) -> np.ndarray:
        """Draw new candidates.

        Parameters
        ----------
        n : int
        rng : numpy.random.Generator

        Returns
        -------
        ndarray of float64 of shape (n, width)
        """

    def vary(self, X: np.ndarray, rng: np.random.Generator, degree: float) -> np.ndarray:
        """Draw one variation of each candidate.

        Parameters
        ----------
        X : ndarray of shape (n, width)
        rng : numpy.random.Generator
        degree : float
            Size of the variation, in (0, 1]. At 1 the distance is about that of two results of
            ``random``.

        Returns
        -------
        ndarray of float64 of shape (n, width)
        """


@saved
class EuclideanVariation:
    """Uniform candidates of a domain, or public records, varied by Gaussian noise.

    Parameters
    ----------
    domain : Domain
        The public set of the records. One-hot blocks may be among the factors of a product.
    public : array-like of shape (n_public, n_features) or None, default=None
        Public records. ``random`` then draws some of them, projected on the domain, and one-hot
        blocks are drawn anew from them too.

    Notes
    -----
    ``vary`` adds N(0, s² I) with s = degree · D / sqrt(d) and projects on the domain [1]_: the
    root mean square displacement is ``degree`` times the diameter D, before the projection, which
    only shortens it. The degree may exceed 1; ``paper_degrees`` gives the scales of the paper.

    No Gaussian moves a category: each one-hot block is drawn anew with probability
    min(degree, 1), and d and D are those of the other features. For tables with a schema use
    :class:`TabularVariation`.

    References
    ----------
    .. [1] "Private evolution converges", equation 1.

    Examples
    --------
    >>> import numpy as np
    >>> from sklearn_dpgen.domains import Ball
    >>> from sklearn_dpgen.evolution._variation_interface import EuclideanVariation
    >>> interface = EuclideanVariation(Ball(1.0, n_features=2))
    >>> rng = np.random.default_rng(0)
    >>> interface.vary(interface.random(3, rng), rng, 0.25).shape
    (3, 2)
    """

    _saved_state = {"domain": Domain, "public": Maybe((None, Array("f", 2)))}

    def __init__(self, domain: Domain, *, public: ArrayLike | None = None) -> None:
        if not isinstance(domain, Domain):
            raise PublicTypeError(f"domain must be a Domain, got {type(domain).__name__}.")
        self.domain = domain
        self.public = None
        if public is not None:
            public = check_array(public, dtype=np.float64)
            if public.shape[1] != domain.n_features:
                raise PublicValueError(
                    f"public must have {domain.n_features} features, as the domain has, got "
                    f"{public.shape[1]}."
                )
            self.public = domain.project(public)
        blocks = flat_factors(domain)
        self._one_hot = [columns for columns, f in blocks if isinstance(f, OneHot)]
        plain = [(columns, f) for columns, f in blocks if not isinstance(f, OneHot)]
        self._features = np.concatenate(
            [np.arange(columns.start, columns.stop) for columns, _ in plain]
            or [np.empty(0, dtype=int)]
        )
        diameter = math.hypot(*(factor.diameter(2) for _, factor in plain))
        self._scale = diameter / math.sqrt(max(1, len(self._features)))

    def random(self, n: int, rng: np.random.Generator) -> np.ndarray:
        """Draw ``n`` points of the domain, or public ones; see :class:`VariationInterface`."""
        if self.public is not None:
            return self.public[rng.integers(len(self.public), size=n)]
        return self.domain.sample(n, rng)

    def vary(self, X: np.ndarray, rng: np.random.Generator, degree: float) -> np.ndarray:
        """Draw one variation of each row, by any positive degree; see :class:`VariationInterface`.

        Raises
        ------
        ValueError
            A degree that is not positive and finite, or rows of another width.
        """
        degree = check_positive(degree, "degree")
        moved = np.array(X, dtype=np.float64)
        noise = rng.normal(size=(len(moved), len(self._features)))
        moved[:, self._features] += degree * self._scale * noise
        fresh = self.random(len(moved), rng) if self._one_hot else moved
        for columns in self._one_hot:
            anew = rng.uniform(size=len(moved)) < degree
            moved[anew, columns] = fresh[anew, columns]
        return self.domain.project(moved)

    def __repr__(self):
        return f"EuclideanVariation({self.domain!r})"


def flat_factors(domain, start=0):
    """Return the features of each factor of nested products, and the factor.

    Parameters
    ----------
    domain : Domain
    start : int, default=0
        Index of the first feature.

    Returns
    -------
    list of (slice, Domain)
    """
    if not isinstance(domain, Product):
        return [(slice(start, start + domain.n_features), domain)]
    return [
        block
        for factor, columns in zip(domain.domains, domain.slices, strict=True)
        for block in flat_factors(factor, start + columns.start)
    ]


def paper_degrees(n_features: int, resolution: float, diameter: float) -> np.ndarray:
    """Return the scales of the paper as degrees of :class:`EuclideanVariation`.

    Parameters
    ----------
    n_features : int
        d, the dimension of the domain.
    resolution : float
        α, in the units of the records, below the diameter.
    diameter : float
        D, the l2 diameter of the domain.

    Returns
    -------
    ndarray of shape (n_scales,)
        σ_l sqrt(d) / D for l = 1..L, ascending by factors of 2, with L = ceil(log2(D/α)) and
        σ_l = α 2^(l-1) / (sqrt(π) ((sqrt(d) + ln 2)² + ln 2)). All are below 0.18; in [1]_ there
        are two variations of each scale.

    Raises
    ------
    ValueError
        A resolution that is not below the diameter.

    References
    ----------
    .. [1] "Private evolution converges", equation 1 and theorem 4.1.
    """
    if isinstance(n_features, bool) or not isinstance(n_features, Integral) or n_features < 1:
        raise PublicValueError(f"n_features must be an integer of at least 1, got {n_features!r}.")
    resolution = check_positive(resolution, "resolution")
    diameter = check_positive(diameter, "diameter")
    if resolution >= diameter:
        raise PublicValueError("resolution must be smaller than diameter.")
    # A ratio that should be a power of 2 comes out a rounding above it.
    n_scales = math.ceil(math.log2(diameter / resolution) - 1e-9)
    root = math.sqrt(n_features)
    smallest = resolution / (math.sqrt(math.pi) * ((root + math.log(2)) ** 2 + math.log(2)))
    return smallest * 2.0 ** np.arange(max(1, n_scales)) * root / diameter


def check_degree(degree):
    """Return ``degree`` as a float, if it is in (0, 1]."""
    degree = check_positive(degree, "degree")
    if degree > 1:
        raise PublicValueError(f"degree must be in (0, 1], got {degree}.")
    return degree


def choose_columns(eligible, rate, rng):
    """Choose the columns that change: each by ``rate``, and one at least wherever one can.

    A variation equal to its parent would lose every vote to it by the rule for ties, and only add
    a noisy count.

    Parameters
    ----------
    eligible : boolean ndarray of shape (n, n_columns)
        Columns that may be chosen.
    rate : float
        Probability of each eligible column, independently. A row left without any gets one of
        its eligible columns, at random.
    rng : numpy.random.Generator

    Returns
    -------
    boolean ndarray of shape (n, n_columns)
    """
    chosen = eligible & (rng.uniform(size=eligible.shape) < rate)
    idle = np.flatnonzero(eligible.any(axis=1) & ~chosen.any(axis=1))
    keys = (1 - rng.uniform(size=(len(idle), eligible.shape[1]))) * eligible[idle]
    chosen[idle, keys.argmax(axis=1)] = True
    return chosen


def check_candidates(X, n, width, domain, source):
    """Return the candidates of an interface, or raise if they are not ``n`` finite valid rows.

    Parameters
    ----------
    X : array-like of shape (n, width)
    n : int
        Number of candidates that were requested.
    width : int or None
        Required width; None allows any.
    domain : Domain or None
        Set that must hold the rows; None allows any rows.
    source : VariationInterface
        Source of the candidates; errors name its class.

    Returns
    -------
    ndarray of float64 of shape (n, width)

    Raises
    ------
    ValueError
        The message names the class of the interface and the broken rule, but no value.
    """
    name = type(source).__name__
    if X is None:
        raise PublicValueError(f"{name} must return {n} candidates, got None.")
    try:
        array = np.asarray(X, dtype=np.float64)
    except (TypeError, ValueError, RuntimeError):
        array = None
    if array is None:
        # Raised outside of the handler, because the context of the error would show values.
        raise PublicValueError(f"{name} must return candidates as an array of numbers.")
    if array.ndim != 2:
        raise PublicValueError(
            f"{name} must return candidates as an array of two dimensions, got {array.ndim}."
        )
    if len(array) != n:
        raise PublicValueError(f"{name} must return {n} candidates, got {len(array)}.")
    if width is not None and array.shape[1] != width:
        raise PublicValueError(
            f"{name} must return candidates of {width} features, got {array.shape[1]}."
        )
    if not np.isfinite(array).all():
        raise PublicValueError(f"{name} must return finite candidates.")
    if domain is not None:
        if array.shape[1] != domain.n_features:
            raise PublicValueError(
                f"{name} must return candidates of {domain.n_features} features, as the domain "
                f"has, got {array.shape[1]}."
            )
        outside = int((~domain.contains(array)).sum())
        if outside:
            raise PublicValueError(
                f"{name} must return candidates in the domain, got {outside} of {n} outside."
            )
    return array
