"""audit: a lower bound of what a sampler tells of a record, beside what it claims."""

from sklearn_dpgen.command_line._console import Console
from sklearn_dpgen.command_line._errors import CommandError
from sklearn_dpgen.command_line._files import read_schema
from sklearn_dpgen.command_line._options import (
    add_budget,
    add_command,
    add_sampler,
    at_least,
    check_options,
)

__all__ = ["add_to"]

_TEXT = """\
Audit the sampler that synthesize would take, with the same options: look for two tables that
differ in one record and that its releases tell apart best, and measure how well they do. The ratio
of what is found to what is claimed should be near 1, and never above. The exit code is 1 where the
claim is broken, which would be a fault of this package: please report it.

No table is given, and none of yours is read: the audit runs on a made-up one of the schema. What it
says is public.
"""
_EXAMPLES = """\
  sklearn-dpgen audit --schema schema.yaml --epsilon 1
  sklearn-dpgen audit --schema schema.yaml --epsilon 1 --target outcome --rows 500 --json
"""


def add_to(commands) -> None:
    """Add the command."""
    parser = add_command(
        commands,
        "audit",
        run,
        summary="measure on a made-up table whether the guarantee holds",
        text=_TEXT,
        examples=_EXAMPLES,
    )
    parser.add_argument("--schema", required=True, metavar="FILE", help="YAML or JSON")
    parser.add_argument(
        "--rows",
        type=at_least(10),
        default=200,
        metavar="N",
        help="of the made-up table (default: %(default)s)",
    )
    add_budget(parser)
    add_sampler(parser)


def run(arguments, console: Console) -> int:
    """Run the command."""
    if arguments.unit is not None:
        raise CommandError("--unit: an audit is of tables in which each person has one row.")
    check_options(arguments)
    schema = read_schema(arguments.schema)
    from sklearn_dpgen.auditing import audit
    from sklearn_dpgen.command_line._fit import make_sampler
    from sklearn_dpgen.command_line._made_up import made_up_table

    sampler = make_sampler(arguments, schema)
    console.say("Auditing on a made-up table: what is found is public. It takes a minute or more.")
    found = audit(sampler, made_up_table(schema, arguments.rows))
    return console.result(found.to_text(), {"audit": found.to_dict()}, ok=not found.is_violation)
