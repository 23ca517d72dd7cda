"""Errors of the package."""

__all__ = ["TrainingDivergedError"]


class TrainingDivergedError(RuntimeError):
    """Training reached a value that is not finite; the estimator stays unfitted."""
