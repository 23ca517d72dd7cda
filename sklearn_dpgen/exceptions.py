"""Errors and warnings of the package."""

__all__ = [
    "BudgetExceededError",
    "InvalidFileError",
    "LargeDeltaWarning",
    "LedgerUnitWarning",
    "MaxRowsWarning",
    "NoisyCountsWarning",
    "NoisyGradientsWarning",
    "PublicError",
    "SmallGroupWarning",
    "TrainingDivergedError",
    "UnpaidScoreWarning",
    "UnusedPublicTableWarning",
]


class PublicError(Exception):
    """An error whose message holds no private value, so that it may be shown and logged.

    A message names parameters, columns, files and rules, and public quantities such as a shape. It
    never quotes a value of a table, nor the message of another error, which could quote one. The
    command line shows the messages of these errors alone.

    Each subclass is also the built-in error of its name, so that ``except ValueError`` catches a
    ``PublicValueError``.
    """


class PublicValueError(PublicError, ValueError):
    """A ValueError with a public message."""


class PublicTypeError(PublicError, TypeError):
    """A TypeError with a public message."""


class PublicRuntimeError(PublicError, RuntimeError):
    """A RuntimeError with a public message."""


class PublicImportError(PublicError, ImportError):
    """An ImportError with a public message, such as how to install an optional dependency."""


class PublicOverflowError(PublicError, OverflowError):
    """An OverflowError with a public message."""


class PublicOSError(PublicError, OSError):
    """An OSError with a public message."""


class PublicFileNotFoundError(PublicError, FileNotFoundError):
    """A FileNotFoundError with a public message."""


class BudgetExceededError(PublicRuntimeError):
    """A fit asks for more than a ledger has left; nothing is released, and nothing charged."""


class InvalidFileError(PublicValueError):
    """A file is no saved estimator, is damaged or is forged; nothing in it was run."""


class LargeDeltaWarning(UserWarning):
    """Delta is so large that publishing one random record would satisfy it."""


class LedgerUnitWarning(UserWarning):
    """A fit protects persons, and its ledger has no unit, so that its total may protect none."""


class MaxRowsWarning(UserWarning):
    """Many parent rows have ``max_rows`` rows, where their numbers are cut in samples."""


class NoisyCountsWarning(UserWarning):
    """The noise of counts is so large that they say almost nothing about the records."""


class NoisyGradientsWarning(UserWarning):
    """The noise of gradients is so large that almost nothing is learned of the task."""


class SmallGroupWarning(UserWarning):
    """A group is so small that almost nothing is learned of it under the noise."""


class TrainingDivergedError(PublicRuntimeError):
    """Training reached a value that is not finite; the estimator stays unfitted."""


class UnpaidScoreWarning(UserWarning):
    """A score reads private rows without noise, and nothing is charged for it."""


class UnusedPublicTableWarning(UserWarning):
    """Columns or rows of a public table cannot be read or linked, and are left out."""
