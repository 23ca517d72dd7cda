"""The smallest ball around a domain."""

import numpy as np

from sklearn_dpgen.domains._ball import Ball
from sklearn_dpgen.domains._base import Domain
from sklearn_dpgen.domains._box import Box
from sklearn_dpgen.domains._one_hot import OneHot
from sklearn_dpgen.domains._parameters import difference_above, norm_above
from sklearn_dpgen.domains._product import Product
from sklearn_dpgen.exceptions import PublicTypeError

__all__ = ["enclosing_ball"]


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
    TypeError
        For any other domain.
    ValueError
        For a domain of a single point.
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
