"""The command ledger: a cap on the privacy loss of several fits."""

from typing import TYPE_CHECKING

from sklearn_dpgen.command_line._console import Console
from sklearn_dpgen.command_line._files import check_files
from sklearn_dpgen.command_line._options import (
    add_command,
    add_group,
    at_least,
    positive,
    probability,
)

if TYPE_CHECKING:
    from sklearn_dpgen.ledger import PrivacyLedger

__all__ = ["add_to", "open_existing"]

_TEXT = """\
Create, show or verify a ledger.

A ledger is a file that caps the privacy loss of all fits on one data set together. A fit with
--ledger charges its cost to the ledger before anything is released, and is refused if less is left.

A charge is never taken back, even if the fit is interrupted. A copy of the file, or a backup that
is restored over it, gives the same records a second budget: keep the file where nobody can do that.
"""
_EXAMPLES = """\
  sklearn-dpgen ledger init patients.ledger --dataset patients --epsilon 3 --delta 1e-6
  sklearn-dpgen ledger show patients.ledger
  sklearn-dpgen ledger verify patients.ledger --json
  sklearn-dpgen ledger record patients.ledger more.csv --charge 1
"""
_INIT, _SHOW, _VERIFY, _RECORD = _EXAMPLES.splitlines()


def add_to(commands) -> None:
    """Add the command with its subcommands."""
    subcommands = add_group(
        commands,
        "ledger",
        summary="cap the privacy loss of several fits: init, show, verify, record",
        text=_TEXT,
        examples=_EXAMPLES,
    )
    init = add_command(
        subcommands,
        "init",
        run_init,
        summary="create a ledger with its cap",
        text="Create a ledger. Its cap cannot be changed later.",
        examples=_INIT,
    )
    init.add_argument("file", metavar="FILE", help="path of the new ledger")
    init.add_argument("--dataset", required=True, metavar="NAME", help="name of the data set")
    init.add_argument(
        "--epsilon", type=positive, required=True, metavar="E", help="cap of all fits, in nats"
    )
    init.add_argument(
        "--delta", type=probability, required=True, metavar="D", help="delta of the cap"
    )
    init.add_argument(
        "--neighbours",
        choices=("replace_one", "add_or_remove"),
        default="replace_one",
        help="neighbouring relation of the fits; fits under another one are refused (default: "
        "%(default)s)",
    )
    init.add_argument(
        "--unit",
        metavar="COLUMN",
        help="column that identifies persons; fits that do not protect it are refused",
    )
    init.add_argument(
        "--filter",
        choices=("gaussian", "renyi"),
        default="gaussian",
        help="how charges are composed: 'gaussian' is tight for fits of tables, 'renyi' is better "
        "for many pure-DP releases (default: %(default)s)",
    )
    show = add_command(
        subcommands,
        "show",
        run_show,
        summary="show what was spent, and what is left",
        text="Show the charges of a ledger, their composition, and what is left of the cap.",
        examples=_SHOW,
    )
    show.add_argument("file", metavar="FILE", help="path of the ledger")
    verify = add_command(
        subcommands,
        "verify",
        run_verify,
        summary="recompute the charges of a ledger",
        text=(
            "Recompute the cost of each charge and their composition, and compare them with the\n"
            "ledger. The exit code is 1 if they differ. An older copy of the file that was put\n"
            "back cannot be detected."
        ),
        examples=_VERIFY,
    )
    verify.add_argument("file", metavar="FILE", help="path of the ledger")
    record = add_command(
        subcommands,
        "record",
        run_record,
        summary="record a released file, at no cost",
        text=(
            "Record the SHA-256 of a released file with its charge, so that a later fit with\n"
            "--ledger may take the file as --public. 'synthesize' records its tables itself. The\n"
            "file must be made from the releases of the charge alone, as by 'sample'."
        ),
        examples=_RECORD,
    )
    record.add_argument("file", metavar="LEDGER", help="path of the ledger")
    record.add_argument("release", metavar="FILE", help="released file")
    record.add_argument(
        "--charge", type=at_least(1), required=True, metavar="N", help="number of its charge"
    )


def run_init(arguments, console: Console) -> int:
    """Create a ledger."""
    from sklearn_dpgen.ledger import PrivacyLedger

    ledger = PrivacyLedger.create(
        arguments.file,
        dataset=arguments.dataset,
        epsilon=arguments.epsilon,
        delta=arguments.delta,
        neighbours=arguments.neighbours,
        unit=arguments.unit,
        filter=arguments.filter,
    )
    text = f"Created {arguments.file}: epsilon {ledger.epsilon:g} at delta {ledger.delta:g}."
    if ledger.unit is not None:
        text += f" Each charge protects a person: all rows with one value in {ledger.unit!r}."
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
            "amount": charge.amount,
            "open_delta": charge.delta,
            "share": charge.amount / report.filter.cap,
            "unit": charge.report.unit,
        }
        for charge in report.charges
    ]
    document = _settings(ledger) | {
        "spent": report.spent,
        "remaining": report.remaining,
        "composed": report.composed,
        "charges": charges,
        "releases": [{"sha256": key, "charge": n} for key, n in report.releases.items()],
    }
    return console.result(report.to_text(), document)


def run_verify(arguments, console: Console) -> int:
    """Recompute a ledger."""
    ledger = open_existing(arguments.file)
    from sklearn_dpgen.ledger._ledger import ledger_faults

    n, faults = ledger_faults(ledger)
    text = "\n".join(faults) or f"{arguments.file} is consistent; number of charges: {n}."
    document = _settings(ledger) | {"n_charges": n, "faults": faults}
    return console.result(text, document, ok=not faults)


def run_record(arguments, console: Console) -> int:
    """Record a released file."""
    check_files(ledger=arguments.file, others=[arguments.release])
    ledger = open_existing(arguments.file)
    sha256 = ledger.record_release(arguments.release, charge=arguments.charge)
    text = f"Recorded {arguments.release} as released by charge {arguments.charge}: {sha256}."
    document = {"file": ledger.path, "sha256": sha256, "charge": arguments.charge}
    return console.result(text, document)


def open_existing(path: str) -> "PrivacyLedger":
    """Open a ledger that exists."""
    check_files(ledger=path)
    from sklearn_dpgen.ledger import PrivacyLedger

    return PrivacyLedger(path)


def _settings(ledger):
    return {
        "file": ledger.path,
        "dataset": ledger.dataset,
        "cap": {"epsilon": ledger.epsilon, "delta": ledger.delta},
        "neighbours": ledger.neighbours,
        "unit": ledger.unit,
        "filter": ledger.filter,
    }
