"""Generators and fair predictors learned from private data by optimal transport."""

from sklearn_dpgen._version import __version__

__all__ = ["__version__"]
