"""Fitted estimators in files, without pickles."""

from sklearn_dpgen.persistence._files import FORMAT, load, save

__all__ = ["FORMAT", "load", "save"]
