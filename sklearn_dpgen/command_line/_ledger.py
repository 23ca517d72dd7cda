"""ledger: a budget over several fits."""

from typing import TYPE_CHECKING

from sklearn_dpgen.command_line._console import Console
from sklearn_dpgen.command_line._files import check_files
from sklearn_dpgen.command_line._options import add_command, add_group, positive, probability

if TYPE_CHECKING:
    from sklearn_dpgen.ledger import PrivacyLedger

__all__ = ["add_to", "open_existing"]

_TEXT = """\
A ledger is one file with a cap for all fits on one data set together. A fit with --ledger books its
cost there before anything is released, and is refused where less is left.

A charge is never taken back, also if the fit was interrupted. A copy of the file, or an older state
of it that is put back, is a second budget for the same records: keep the file where nobody does.
"""
_EXAMPLES = """\
  sklearn-dpgen ledger init patients.ledger --dataset patients --epsilon 3 --delta 1e-6
  sklearn-dpgen ledger show patients.ledger
  sklearn-dpgen ledger verify patients.ledger --json
"""


def add_to(commands) -> None:
    """Add the command with its three parts."""
    parts = add_group(
        commands,
        "ledger",
        summary="a budget over several fits: init, show, verify",
        text=_TEXT,
        examples=_EXAMPLES,
    )
    init = add_command(
        parts,
        "init",
        run_init,
        summary="make a ledger, with its cap",
        text="Make a ledger. Its cap cannot be changed later.",
        examples=_EXAMPLES.splitlines()[0],
    )
    init.add_argument("file", metavar="FILE", help="where no file is yet")
    init.add_argument("--dataset", required=True, metavar="NAME", help="of the data set")
    init.add_argument(
        "--epsilon", type=positive, required=True, metavar="E", help="cap of all fits, in nats"
    )
    init.add_argument("--delta", type=probability, required=True, metavar="D", help="of the cap")
    init.add_argument(
        "--neighbouring",
        choices=("replace_one", "add_or_remove"),
        default="replace_one",
        help="of the fits; others are refused (default: %(default)s)",
    )
    init.add_argument("--unit", metavar="COLUMN", help="persons are protected, told apart by it")
    init.add_argument(
        "--filter",
        choices=("gaussian", "renyi"),
        default="gaussian",
        help="how charges add up: 'gaussian' loses nothing on fits of tables; 'renyi' is better "
        "for many pure releases (default: %(default)s)",
    )
    show = add_command(
        parts,
        "show",
        run_show,
        summary="what was spent, and what is left",
        text="Show the charges of a ledger, what they add up to, and what is left of the cap.",
        examples=_EXAMPLES.splitlines()[1],
    )
    show.add_argument("file", metavar="FILE")
    verify = add_command(
        parts,
        "verify",
        run_verify,
        summary="does a ledger add up",
        text=(
            "Compute anew what each charge costs and what the charges add up to, and compare\n"
            "it with what the ledger says. The exit code is 1 where it differs. It cannot be\n"
            "seen here that the file is an older state of itself."
        ),
        examples=_EXAMPLES.splitlines()[2],
    )
    verify.add_argument("file", metavar="FILE")


def run_init(arguments, console: Console) -> int:
    """Make a ledger."""
    from sklearn_dpgen.ledger import PrivacyLedger

    ledger = PrivacyLedger.create(
        arguments.file,
        dataset=arguments.dataset,
        epsilon=arguments.epsilon,
        delta=arguments.delta,
        neighbours=arguments.neighbouring,
        unit=arguments.unit,
        filter=arguments.filter,
    )
    text = f"Made {arguments.file}: epsilon {ledger.epsilon:g} at delta {ledger.delta:g}."
    return console.result(text, _settings(ledger))


def run_show(arguments, console: Console) -> int:
    """Show a ledger."""
    ledger = open_existing(arguments.file)
    report = ledger.report()
    charges = [
        {
            "number": charge.number,
            "time": charge.time,
            "user": charge.user,
            "what": charge.what,
            "epsilon": charge.report.epsilon,
            "delta": charge.report.delta,
            "booked": charge.amount,
            "open_delta": charge.delta,
            "share": charge.amount / report.filter.cap,
        }
        for charge in report.charges
    ]
    document = _settings(ledger) | {
        "spent": report.spent,
        "remaining": report.remaining,
        "composed": report.composed,
        "charges": charges,
    }
    return console.result(report.to_text(), document)


def run_verify(arguments, console: Console) -> int:
    """Compute a ledger anew."""
    ledger = open_existing(arguments.file)
    from sklearn_dpgen.ledger._ledger_check import ledger_faults

    n, faults = ledger_faults(ledger)
    said = faults or [f"{arguments.file} adds up: {n} charges."]
    return console.result(
        "\n".join(said), _settings(ledger) | {"n_charges": n, "faults": faults}, ok=not faults
    )


def open_existing(path: str) -> "PrivacyLedger":
    """Return a ledger that is there."""
    check_files(ledger=path)
    from sklearn_dpgen.ledger import PrivacyLedger

    return PrivacyLedger(path)


def _settings(ledger):
    return {
        "file": ledger.path,
        "dataset": ledger.dataset,
        "cap": {"epsilon": ledger.epsilon, "delta": ledger.delta},
        "neighbouring": ledger.neighbours,
        "unit": ledger.unit,
        "filter": ledger.filter,
    }
