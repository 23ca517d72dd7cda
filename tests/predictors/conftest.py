"""Fixtures of the tests of predictors."""

from loan_tables import loans, sampler

__all__ = ["loans", "sampler"]
