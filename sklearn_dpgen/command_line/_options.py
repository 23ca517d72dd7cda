"""Options that several commands share, and the parsers of their values."""

import argparse
import math
from collections.abc import Callable
from typing import Any

from sklearn_dpgen.command_line._console import CommandError

__all__ = [
    "add_budget",
    "add_command",
    "add_group",
    "add_named_tables",
    "add_overwrite",
    "add_public",
    "add_rules",
    "add_schema",
    "add_tables",
    "add_target",
    "at_least",
    "by_name",
    "check_options",
    "check_public",
    "check_rules",
    "positive",
    "probability",
    "with_options",
]


def add_command(
    commands: Any, name: str, run: Callable, *, summary: str, text: str, examples: str
) -> argparse.ArgumentParser:
    """Add a command with its help and the options that every command has.

    Parameters
    ----------
    commands : object
        Result of ``add_subparsers``.
    name, summary, text, examples : str
    run : callable
        Takes the arguments and a Console, and returns the exit code.

    Returns
    -------
    ArgumentParser
    """
    parser = _add_parser(commands, name, summary, text, examples)
    parser.set_defaults(run=run)
    group = parser.add_argument_group("output")
    group.add_argument("--json", action="store_true", help="write the result as JSON")
    group.add_argument("--quiet", action="store_true", help="suppress progress and remarks")
    group.add_argument(
        "--traceback",
        action="store_true",
        help="show the traceback of an error; PRIVATE: it may hold values of the table",
    )
    return parser


def add_group(commands: Any, name: str, *, summary: str, text: str, examples: str) -> Any:
    """Add a command with subcommands, and return the object to add them to."""
    parser = _add_parser(commands, name, summary, text, examples)
    return parser.add_subparsers(
        title="commands", dest="subcommand", metavar="COMMAND", required=True
    )


def _add_parser(commands, name, summary, text, examples):
    return commands.add_parser(
        name,
        help=summary,
        description=text,
        epilog=f"examples:\n{examples}",
        formatter_class=argparse.RawDescriptionHelpFormatter,
        allow_abbrev=False,
    )


def add_schema(parser: argparse.ArgumentParser) -> None:
    """Add the option --schema."""
    parser.add_argument(
        "--schema",
        required=True,
        metavar="FILE",
        help="schema of the table, or of tables with keys, in YAML or JSON",
    )


def add_tables(parser: argparse.ArgumentParser, *, nargs: str = "+") -> None:
    """Add the argument for the files of the private table."""
    parser.add_argument(
        "table",
        nargs=nargs,
        metavar="TABLE",
        help="one or more files of one table: Parquet, Feather, Arrow, Excel, JSON lines (.jsonl), "
        "TSV or CSV (with a header); a folder of Parquet files; or a table of a database, such as "
        "sqlite:///hospital.db::visits",
    )


def add_named_tables(parser: argparse.ArgumentParser) -> None:
    """Add the option --table, for the tables of a relational schema."""
    parser.add_argument(
        "--table",
        action="append",
        default=[],
        dest="tables",
        type=_named_file,
        metavar="NAME=FILE",
        help="a table of a relational schema, and its file; repeat it for each table, and for each "
        "file of a table",
    )


def by_name(tables: list[tuple[str, str]]) -> dict[str, list[str]]:
    """Return the files of each table that --table names."""
    found: dict[str, list[str]] = {}
    for name, path in tables:
        found.setdefault(name, []).append(path)
    return found


def _named_file(text):
    name, _, path = text.partition("=")
    if ":/" in name:
        # Not shown, as it may hold a password.
        raise argparse.ArgumentTypeError("must be NAME=FILE, also for a URL")
    if not name or not path:
        raise argparse.ArgumentTypeError(f"must be NAME=FILE, got {text!r}")
    return name, path


def add_budget(parser: argparse.ArgumentParser, *, has_units: bool = True) -> None:
    """Add the options of the privacy budget; with ``has_units`` also --unit and --max-rows."""
    group = parser.add_argument_group("privacy")
    group.add_argument(
        "--epsilon", type=positive, required=True, metavar="E", help="privacy budget, in nats"
    )
    group.add_argument(
        "--delta",
        type=probability,
        default=1e-5,
        metavar="D",
        help="failure probability; choose it far below 1 / number of rows (default: %(default)g)",
    )
    group.add_argument(
        "--neighbours",
        choices=("replace_one", "add_or_remove"),
        default="replace_one",
        help="neighbouring relation: 'replace_one' protects the values of a record, and the number "
        "of records is public; 'add_or_remove' also protects its presence (default: %(default)s)",
    )
    group.add_argument(
        "--noise",
        choices=("float", "certified"),
        default="float",
        help="'certified' draws integer noise with exact samplers, and is slower (default: "
        "%(default)s)",
    )
    parser.set_defaults(unit=None, max_rows=None)
    if not has_units:
        return
    group.add_argument(
        "--unit",
        metavar="COLUMN",
        help="column that identifies persons: each person is protected with all of their rows. It "
        "is an identifier of the schema, or not declared there (default: the unit of the schema; "
        "without one, each row is protected)",
    )
    group.add_argument(
        "--max-rows",
        type=at_least(1),
        metavar="K",
        help="with --unit: count at most K rows of each person, at K times the noise (default: "
        "each person counts once)",
    )


def add_target(parser: argparse.ArgumentParser) -> None:
    """Add the option --target."""
    parser.add_argument_group("model").add_argument(
        "--target",
        action="append",
        metavar="COLUMN",
        help="column that will be predicted from the others, TABLE.COLUMN of a relational schema; "
        "its marginals get more of the budget; may be repeated",
    )


def add_rules(parser: argparse.ArgumentParser) -> None:
    """Add the option --rule."""
    parser.add_argument(
        "--rule",
        action="append",
        default=[],
        metavar="RULE",
        help="public rule that each record fulfils, and each synthetic row, beside those of the "
        "schema: 'a <= b', 'a < b', 'total == a + b', or 'condition => condition' with conditions "
        "as in sample --where. A column of tables with keys is TABLE.COLUMN. It must not be read "
        "from the table; may be repeated",
    )


def add_public(parser: argparse.ArgumentParser) -> None:
    """Add the options --public and --public-weights."""
    group = parser.add_argument_group("public table")
    group.add_argument(
        "--public",
        action="append",
        default=[],
        metavar="FILE",
        help="a public table with some of the columns, from which the fit starts at no privacy "
        "cost; it must not be made from the private table, except by releases that are paid for. "
        "NAME=FILE names the table of a relational schema. Repeat it for each file (default: that "
        "of the schema)",
    )
    group.add_argument(
        "--public-weights",
        metavar="COLUMN",
        help="column of the public table, or of that of persons, with survey weights (default: "
        "equal weights)",
    )


def check_options(arguments: argparse.Namespace, schema: Any) -> None:
    """Raise CommandError if options of a fit contradict one another or a schema."""
    check_public(arguments)
    check_rules(schema)
    if arguments.max_rows is not None and getattr(schema, "unit", None) is None:
        raise CommandError(
            "--max-rows needs --unit. A relational schema declares max_rows of each table."
        )
    if hasattr(schema, "order"):
        return
    if getattr(arguments, "tables", None):
        raise CommandError("--table must be left out: the schema is that of one table.")
    for target in arguments.target or ():
        if target not in schema:
            raise CommandError(f"--target must be a column of the schema, got {target!r}.")


def with_options(schema: Any, arguments: argparse.Namespace) -> Any:
    """Return a schema with the declarations of options, and fill options that it declares.

    ``--unit`` and ``--public`` replace what the schema declares, and ``--rule`` adds to its rules.
    """
    from dataclasses import replace

    from sklearn_dpgen.schema._expressions import Scope, read_named_rule, read_rule

    texts = getattr(arguments, "rule", ())
    if hasattr(schema, "order"):
        if arguments.unit is not None:
            raise CommandError("--unit must be left out: a relational schema declares its persons.")
        tables = dict(schema)
        for text in texts:
            name, rule = read_named_rule(text, schema)
            tables[name] = replace(tables[name], rules=(*tables[name].rules, rule))
        return type(schema)(tables) if texts else schema
    if arguments.unit is None:
        arguments.unit = schema.unit
    elif arguments.unit not in schema or hasattr(schema[arguments.unit], "prefix"):
        schema = schema._with(unit=arguments.unit)
    else:
        raise CommandError(
            "--unit must be an identifier of the schema or not be declared there, got "
            f"{arguments.unit!r}."
        )
    arguments.public = arguments.public or schema.public_files
    rules = [read_rule(text, Scope(schema), "--rule") for text in texts]
    return schema._with(rules=(*schema.rules, *rules)) if rules else schema


def check_rules(schema: Any) -> None:
    """Raise CommandError if the rules of a schema, and of options, contradict one another."""
    if not schema.rules:
        return

    from sklearn_dpgen.exceptions import PublicError
    from sklearn_dpgen.tables._person_rows import stages_of
    from sklearn_dpgen.tables._person_rules import rules_of_stages
    from sklearn_dpgen.tables._table_rules import TableRules

    try:
        if hasattr(schema, "order"):
            rules_of_stages(schema.rules, schema, stages_of(schema))
        else:
            TableRules(schema.rules, schema)
        return
    except PublicError as error:
        # The parameter of a sampler has the rules of a schema.
        fault = str(error).replace("constraints", "rules")
    raise CommandError(f"The rules are not valid. {fault}")


def check_public(arguments: argparse.Namespace) -> None:
    """Raise CommandError if there are weights without a public table."""
    if arguments.public_weights is not None and not arguments.public:
        raise CommandError("--public-weights needs --public.")


def add_overwrite(parser: argparse.ArgumentParser) -> None:
    """Add the option --overwrite."""
    parser.add_argument("--overwrite", action="store_true", help="replace existing output")


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
    """Return a function that parses an integer of at least ``least``."""

    def read(text):
        try:
            number = int(text)
        except ValueError:
            number = None
        if number is None or number < least:
            raise argparse.ArgumentTypeError(
                f"must be an integer of at least {least}, got {text!r}"
            )
        return number

    return read


def _number(text):
    try:
        return float(text)
    except ValueError:
        return math.nan
