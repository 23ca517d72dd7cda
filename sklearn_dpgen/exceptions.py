"""Errors and warnings of the package."""

__all__ = [
    "BudgetExceededError",
    "InvalidFileError",
    "LargeDeltaWarning",
    "NoisyCountsWarning",
    "NoisyGradientsWarning",
    "SmallGroupWarning",
    "TrainingDivergedError",
    "UnpaidScoreWarning",
]


class BudgetExceededError(RuntimeError):
    """A fit asks for more than a ledger has left; nothing is released, and nothing charged."""


class InvalidFileError(ValueError):
    """A file is no saved estimator, is damaged or is forged; nothing in it was run."""


class LargeDeltaWarning(UserWarning):
    """Delta is so large that publishing one random record would satisfy it."""


class NoisyCountsWarning(UserWarning):
    """The noise of counts is so large that they say almost nothing about the records."""


class NoisyGradientsWarning(UserWarning):
    """The noise of gradients is so large that almost nothing is learned of the task."""


class SmallGroupWarning(UserWarning):
    """A group is so small that almost nothing is learned of it under the noise."""


class TrainingDivergedError(RuntimeError):
    """Training reached a value that is not finite; the estimator stays unfitted."""


class UnpaidScoreWarning(UserWarning):
    """A score reads private rows without noise, and nothing is charged for it."""
