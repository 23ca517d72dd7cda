"""synthesize: a synthetic table with its report, from a private one."""

from sklearn_dpgen.command_line._console import Console
from sklearn_dpgen.command_line._files import check_files
from sklearn_dpgen.command_line._options import (
    add_budget,
    add_command,
    add_overwrite,
    add_sampler,
    at_least,
    check_options,
)
from sklearn_dpgen.command_line._tables import add_tables, files_of, output_ending

__all__ = ["add_to"]

_TEXT = """\
Make a synthetic table of the kind of a private one, with differential privacy.

The folder --out gets:

  synthetic.*            the synthetic table, in the format of the input
  model.safetensors      what was learned: more rows can be drawn from it, at no cost (sample)
  report.json, .txt      the guarantee: what it holds for, noise, what an attacker could find
  model-card.json, .md, .html
                         a page to publish with it; signed with --signing-key (verify)
  quality-report.html    how close the synthetic table comes to what was released

The files appear once all are complete; until then the folder is claimed, and another run that is
given the same folder is refused before it spends anything.

All of these hold what was paid for by the budget alone, and may be published. With
--not-private-report there is one more, quality-report-NOT-PRIVATE.html: it compares the synthetic
table with the private one, without noise. Do not publish it.

With --ledger the cost is booked before anything is released, and the command is refused, with exit
code 1, where less is left. A ledger is made by: sklearn-dpgen ledger init. Without a ledger nothing
adds up what several runs on one table cost together: that is then up to you.

Whatever fails after the budget was spent, it stays spent; the message says so.

There is no option for a seed: noise comes from the operating system. Whoever knows or guesses a
seed can take the noise away again. A repeated run gives another table, and costs its budget again.
"""
_EXAMPLES = """\
  sklearn-dpgen synthesize patients.csv --schema schema.yaml --epsilon 1 --out synthetic
  sklearn-dpgen synthesize patients.parquet --schema schema.yaml --epsilon 1 --delta 1e-6 \\
      --target outcome --ledger patients.ledger --out synthetic
  sklearn-dpgen synthesize 'visits-*.csv' --schema schema.yaml --epsilon 2 --unit person \\
      --neighbouring add_or_remove --rows 10000 --out synthetic
"""


def add_to(commands) -> None:
    """Add the command."""
    parser = add_command(
        commands,
        "synthesize",
        run,
        summary="make a synthetic table, with its guarantee",
        text=_TEXT,
        examples=_EXAMPLES,
    )
    add_tables(parser)
    parser.add_argument("--schema", required=True, metavar="FILE", help="YAML or JSON")
    parser.add_argument("--out", required=True, metavar="FOLDER", help="new, or empty")
    add_overwrite(parser)
    parser.add_argument(
        "--rows",
        type=at_least(1),
        metavar="N",
        help="synthetic rows (default: as many as there are records, or as a noisy count of them "
        "says where their number is not public)",
    )
    add_budget(parser)
    parser.add_argument("--ledger", metavar="FILE", help="where the cost is booked; must be there")
    add_sampler(parser)
    group = parser.add_argument_group("publication")
    group.add_argument("--title", metavar="TEXT", help="of the model card")
    group.add_argument("--author", metavar="TEXT", help="who publishes it")
    group.add_argument("--description", metavar="TEXT", help="what the table is of")
    group.add_argument(
        "--signing-key",
        metavar="FILE",
        help="an Ed25519 key in PEM, which signs the model card: openssl genpkey -algorithm "
        "ed25519 -out key.pem",
    )
    group.add_argument(
        "--not-private-report",
        action="store_true",
        help="also compare with the private table, without noise; NOT TO BE PUBLISHED",
    )


def run(arguments, console: Console) -> int:
    """Run the command."""
    check_options(arguments)
    check_files(schema=arguments.schema, ledger=arguments.ledger, others=[arguments.signing_key])
    output_ending(files_of(arguments.table)[0])
    from sklearn_dpgen.command_line._synthesis import synthesize

    return synthesize(arguments, console)
