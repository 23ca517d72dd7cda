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
    """A fit asks for more than a ledger has left; nothing was read, and nothing is charged."""


class InvalidFileError(ValueError):
    """A file is no saved estimator, is damaged, or is made to deceive; nothing of it was run."""


class LargeDeltaWarning(UserWarning):
    """Delta is so large that publishing a whole record, picked at random, would keep to it."""


class NoisyCountsWarning(UserWarning):
    """The noise of counts is so large that next to nothing can be told of the records."""


class NoisyGradientsWarning(UserWarning):
    """The noise of gradients is so large that it drowns what is learned of the task."""


class SmallGroupWarning(UserWarning):
    """A group is so small that the noise which protects its records drowns what is learned."""


class TrainingDivergedError(RuntimeError):
    """Training reached a value that is not finite; the estimator stays unfitted."""


class UnpaidScoreWarning(UserWarning):
    """A score of private rows tells of them without noise, and nothing is charged for it."""
