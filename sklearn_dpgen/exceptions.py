"""Errors and warnings of the package."""

__all__ = ["LargeDeltaWarning", "NoisyCountsWarning", "SmallGroupWarning", "TrainingDivergedError"]


class LargeDeltaWarning(UserWarning):
    """Delta is so large that publishing a whole record, picked at random, would keep to it."""


class SmallGroupWarning(UserWarning):
    """A group is so small that the noise which protects its records drowns what is learned."""


class NoisyCountsWarning(UserWarning):
    """The noise of counts is so large that next to nothing can be told of the records."""


class TrainingDivergedError(RuntimeError):
    """Training reached a value that is not finite; the estimator stays unfitted."""
