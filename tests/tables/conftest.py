"""Fixtures of the tests of tables."""

from loan_tables import loans, sampler

__all__ = ["loans", "sampler"]
