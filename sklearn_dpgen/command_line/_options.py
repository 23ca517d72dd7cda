"""Options that commands share, and what they are read as."""

import argparse
import math
from collections.abc import Callable
from typing import Any

from sklearn_dpgen.command_line._errors import CommandError

__all__ = [
    "add_budget",
    "add_command",
    "add_group",
    "add_overwrite",
    "add_sampler",
    "at_least",
    "check_options",
    "positive",
    "probability",
]

SAMPLERS = ("sliced",)


def add_command(
    commands: Any, name: str, run: Callable, *, summary: str, text: str, examples: str
) -> argparse.ArgumentParser:
    """Add a command with its help and the options that all have.

    Parameters
    ----------
    commands : what ``add_subparsers`` returned
    name, summary, text, examples : str
    run : callable
        Of the arguments and a Console; returns the exit code.

    Returns
    -------
    ArgumentParser
    """
    parser = commands.add_parser(
        name,
        help=summary,
        description=text,
        epilog=f"examples:\n{examples}",
        formatter_class=argparse.RawDescriptionHelpFormatter,
        allow_abbrev=False,
    )
    parser.set_defaults(run=run)
    group = parser.add_argument_group("output")
    group.add_argument("--json", action="store_true", help="write the result as JSON")
    group.add_argument("--quiet", action="store_true", help="no progress, no remarks")
    group.add_argument(
        "--traceback",
        action="store_true",
        help="show where an error comes from; PRIVATE: it may hold values of the table",
    )
    return parser


def add_group(commands: Any, name: str, *, summary: str, text: str, examples: str) -> Any:
    """Add a command that has commands of its own, and return what they are added to."""
    parser = commands.add_parser(
        name,
        help=summary,
        description=text,
        epilog=f"examples:\n{examples}",
        formatter_class=argparse.RawDescriptionHelpFormatter,
        allow_abbrev=False,
    )
    return parser.add_subparsers(dest="part", metavar="COMMAND", required=True)


def add_budget(parser: argparse.ArgumentParser) -> None:
    """Add the budget of one fit."""
    group = parser.add_argument_group("privacy")
    group.add_argument(
        "--epsilon", type=positive, required=True, metavar="E", help="privacy budget, in nats"
    )
    group.add_argument(
        "--delta",
        type=probability,
        default=1e-5,
        metavar="D",
        help="failure probability; far below 1 / number of rows (default: %(default)g)",
    )
    group.add_argument(
        "--neighbouring",
        choices=("replace_one", "add_or_remove"),
        default="replace_one",
        help="what is protected: the values of one record, where the number of records is public, "
        "or that it is there at all (default: %(default)s)",
    )
    group.add_argument(
        "--unit",
        metavar="COLUMN",
        help="a column that says whose row each is, an identifier of the schema or one beside it: "
        "persons are protected with all of their rows (default: each row by itself)",
    )
    group.add_argument(
        "--max-rows",
        type=at_least(1),
        metavar="K",
        help="with --unit, sliced alone: rows count, of a person K at most, with K times the noise "
        "(default: each person counts once)",
    )
    group.add_argument(
        "--noise",
        choices=("float", "certified"),
        default="float",
        help="'certified' draws integers by exact samplers, and is slower (default: %(default)s)",
    )


def add_sampler(parser: argparse.ArgumentParser) -> None:
    """Add what is learned."""
    group = parser.add_argument_group("model")
    group.add_argument(
        "--sampler",
        choices=SAMPLERS,
        default="sliced",
        help="'sliced': maximum-entropy synthesis from noisy low-order marginals "
        "(default: %(default)s)",
    )
    group.add_argument(
        "--target",
        action="append",
        metavar="COLUMN",
        help="a column that is to be predicted from the others, which gets more of the budget; may "
        "be given again; sliced alone",
    )


def check_options(arguments: argparse.Namespace) -> None:
    """Refuse options of budgets and samplers that do not go together.

    Raises
    ------
    CommandError
    """
    if arguments.sampler != "sliced":
        asked = {
            "neighbouring": arguments.neighbouring != "replace_one" and arguments.neighbouring,
            "target": arguments.target and " ".join(arguments.target),
            "max-rows": arguments.max_rows,
        }
        for option, value in asked.items():
            if value:
                raise CommandError(
                    f"--{option} {value}: --sampler {arguments.sampler} has none such."
                )
    if arguments.max_rows is not None and arguments.unit is None:
        raise CommandError("--max-rows is of persons: it needs --unit.")


def add_overwrite(parser: argparse.ArgumentParser) -> None:
    """Add the leave to replace files."""
    parser.add_argument("--overwrite", action="store_true", help="replace what is there")


def positive(text: str) -> float:
    """Return a finite number above 0."""
    number = _number(text)
    if not (0 < number < math.inf):
        raise argparse.ArgumentTypeError(f"must be a finite number above 0, got {text!r}")
    return number


def probability(text: str) -> float:
    """Return a number in (0, 1)."""
    number = _number(text)
    if not 0 < number < 1:
        raise argparse.ArgumentTypeError(f"must be a number between 0 and 1, got {text!r}")
    return number


def at_least(least: int) -> Callable[[str], int]:
    """Return what reads an integer from ``least`` on."""

    def read(text):
        try:
            number = int(text)
        except ValueError:
            number = None
        if number is None or number < least:
            raise argparse.ArgumentTypeError(f"must be an integer from {least} on, got {text!r}")
        return number

    return read


def _number(text):
    try:
        return float(text)
    except ValueError:
        return math.nan
