"""Warnings and errors of the package."""

__all__ = ["BudgetExceededError", "PrivacyLeakWarning", "TrainingDivergedError"]


class PrivacyLeakWarning(UserWarning):
    """Something the caller did would reveal more than the stated guarantee covers."""


class BudgetExceededError(ValueError):
    """A planned release costs more than the declared budget; nothing was read."""


class TrainingDivergedError(RuntimeError):
    """Training reached a value that is not finite; the estimator stays unfitted."""
