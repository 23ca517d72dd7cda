"""Errors and warnings of the package."""

__all__ = ["SmallGroupWarning", "TrainingDivergedError"]


class TrainingDivergedError(RuntimeError):
    """Training reached a value that is not finite; the estimator stays unfitted."""


class SmallGroupWarning(UserWarning):
    """A group is so small that the noise which protects its records drowns what is learned."""
