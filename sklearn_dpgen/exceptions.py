"""Errors and warnings of the package."""

__all__ = ["LargeDeltaWarning", "SmallGroupWarning", "TrainingDivergedError"]


class LargeDeltaWarning(UserWarning):
    """Delta is so large that publishing a whole record, picked at random, would keep to it."""


class SmallGroupWarning(UserWarning):
    """A group is so small that the noise which protects its records drowns what is learned."""


class TrainingDivergedError(RuntimeError):
    """Training reached a value that is not finite; the estimator stays unfitted."""
