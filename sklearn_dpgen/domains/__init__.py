"""Public sets in which records lie; sensitivities are computed from them.

A domain is declared, never estimated. `Domain.project` brings any record into the set, and
`Domain.diameter` bounds how far two records of the set can be apart: replacing one record by
another moves the identity query by at most the diameter.
"""

from sklearn_dpgen.domains._ball import Ball
from sklearn_dpgen.domains._base import Domain
from sklearn_dpgen.domains._product import Box, OneHot, Product

__all__ = ["Ball", "Box", "Domain", "OneHot", "Product"]

for _domain in (Ball, Box, Domain, OneHot, Product):
    # Pickles and hashes name the public place.
    _domain.__module__ = __name__
