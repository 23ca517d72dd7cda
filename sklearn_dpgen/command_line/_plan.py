"""plan: what a fit will release and cost, from public quantities alone."""

from sklearn_dpgen.command_line._console import Console
from sklearn_dpgen.command_line._errors import CommandError
from sklearn_dpgen.command_line._files import check_files, read_schema
from sklearn_dpgen.command_line._ledger import open_existing
from sklearn_dpgen.command_line._options import (
    add_budget,
    add_command,
    add_sampler,
    at_least,
    check_options,
)

__all__ = ["add_to"]

_TEXT = """\
Tell what a fit will release, how much noise it will add, and what an attacker could find, before
anything is read.

No table is given: all is computed from the schema, the budget and the number of rows. So it is
public, and may be looked at as often as you like, to choose a budget.
"""
_EXAMPLES = """\
  sklearn-dpgen plan --schema schema.yaml --rows 5000 --epsilon 1
  sklearn-dpgen plan --schema schema.yaml --rows 5000 --epsilon 1 --target outcome
  sklearn-dpgen plan --schema schema.yaml --rows 5000 --epsilon 1 --ledger patients.ledger
  sklearn-dpgen plan --schema schema.yaml --epsilon 2 --neighbouring add_or_remove --json
"""


def add_to(commands) -> None:
    """Add the command."""
    parser = add_command(
        commands,
        "plan",
        run,
        summary="forecast noise, errors and attack risk, without a table",
        text=_TEXT,
        examples=_EXAMPLES,
    )
    parser.add_argument("--schema", required=True, metavar="FILE", help="YAML or JSON")
    parser.add_argument(
        "--rows",
        type=at_least(1),
        metavar="N",
        help="number of private rows, or of persons with --unit; not needed where it is not "
        "public, as with --neighbouring add_or_remove",
    )
    parser.add_argument(
        "--ledger",
        metavar="FILE",
        help="tell as well whether so much is left: if not, the exit code is 1; nothing is booked",
    )
    add_budget(parser)
    add_sampler(parser)


def run(arguments, console: Console) -> int:
    """Run the command."""
    check_options(arguments)
    # Where the number of rows is public, the plan depends on it.
    needs_rows = arguments.neighbouring == "replace_one" and arguments.max_rows is None
    if arguments.rows is None and needs_rows:
        raise CommandError(
            "--rows is needed: with --neighbouring replace_one the number of rows is public, and "
            "the plan depends on it."
        )
    check_files(schema=arguments.schema, ledger=arguments.ledger)
    schema = read_schema(arguments.schema)
    ledger = None if arguments.ledger is None else open_existing(arguments.ledger)
    from sklearn_dpgen.command_line._fit import make_sampler, risk_of

    sampler = make_sampler(arguments, schema)
    report = sampler.plan(arguments.rows)
    text = f"{report.to_text()}\n\n{report.attack_risk().to_text()}"
    document = {"report": report.to_dict(), "attack_risk": risk_of(report)}
    refusal = None if ledger is None else _refusal(ledger, report, type(sampler).__name__)
    if ledger is not None:
        document["refused"] = refusal
        text += f"\n\n{refusal or f'{arguments.ledger} has so much left.'}"
    return console.result(text, document, ok=refusal is None)


def _refusal(ledger, report, what):
    """Return why a ledger would refuse a fit, or None."""
    from sklearn_dpgen.exceptions import BudgetExceededError
    from sklearn_dpgen.ledger._ledger_check import check_affordable

    try:
        check_affordable(ledger, report, what=what)
    except BudgetExceededError as error:
        return str(error)
    return None
