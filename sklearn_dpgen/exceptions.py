"""Errors and warnings of the package."""

__all__ = ["LargeDeltaWarning", "TrainingDivergedError"]


class LargeDeltaWarning(UserWarning):
    """Delta is so large that publishing a whole record, picked at random, would keep to it."""


class TrainingDivergedError(RuntimeError):
    """Training reached a value that is not finite; the estimator stays unfitted."""
