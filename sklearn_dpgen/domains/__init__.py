"""Public sets of records, from which sensitivities are computed.

A domain is declared, never estimated. `Domain.project` maps any record into the set, and
`Domain.diameter` bounds the distance between two records, which is the sensitivity of the identity
query if a record is replaced.
"""

from sklearn_dpgen.domains._ball import Ball
from sklearn_dpgen.domains._base import Domain
from sklearn_dpgen.domains._product import Box, OneHot, Product

__all__ = ["Ball", "Box", "Domain", "OneHot", "Product"]

for _domain in (Ball, Box, Domain, OneHot, Product):
    # Pickles and hashes refer to the public module.
    _domain.__module__ = __name__
