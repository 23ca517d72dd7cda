"""Checks of a ledger against its charges, and of a further charge."""

import math

from sklearn_dpgen.accounting import PrivacyReport
from sklearn_dpgen.ledger._ledger import PrivacyLedger, _pure, _sum_up
from sklearn_dpgen.ledger._ledger_file import last_number

__all__ = ["check_affordable", "ledger_faults"]

# Amounts are computed anew, perhaps by other versions of libraries: this part may differ.
_TOLERANCE = 1e-6
_ABOVE = 1 + _TOLERANCE


def check_affordable(ledger: PrivacyLedger, report: PrivacyReport, *, what: str) -> None:
    """Refuse a fit as `PrivacyLedger.reserve` would now, and book nothing.

    Parameters
    ----------
    ledger : PrivacyLedger
    report : PrivacyReport
        The plan of the fit.
    what : str
        What it is for, in a few words.

    Raises
    ------
    BudgetExceededError, ValueError, OSError
        As `PrivacyLedger.reserve`.
    """
    ledger._check_relation(report, what)
    cost = ledger._filter.cost(report.composable())
    with ledger._file.reading() as db:
        ledger._booked(report, what, cost, ledger._totals(db), db)


def ledger_faults(ledger: PrivacyLedger) -> tuple[int, list[str]]:
    """Compute the costs and the totals of a ledger anew.

    Parameters
    ----------
    ledger : PrivacyLedger

    Returns
    -------
    n_charges : int
    faults : list of str
        What differs; empty where all adds up. An older state of a ledger adds up as well.
    """
    kind = ledger._filter
    with ledger._file.reading() as db:
        faults = [
            f"The file is damaged: {text}."
            for (text,) in db.execute("PRAGMA integrity_check")
            if text != "ok"
        ]
        columns = "id, total_amount, total_delta"
        rows = db.execute(f"SELECT {columns} FROM charges ORDER BY id").fetchall()
        n_booked = last_number(db)
    if [number for number, *_ in rows] != list(range(1, n_booked + 1)):
        faults.append(f"Charges are missing: {n_booked} were booked, and {len(rows)} are left.")
    total, pure = (0.0, 0.0), 0.0
    # Another process may have booked another charge in the meantime.
    for charge, (_, *booked) in zip(_charges(ledger, faults), rows, strict=False):
        amounts = (charge.amount, charge.delta)
        is_whole = (
            charge.number == 1
            and amounts == (kind.cap, kind.open_delta)
            and ledger._is_all(charge.report)
        )
        # A first fit may take all of it, and is booked as the cap.
        if not is_whole and not _is_cost(amounts, kind.cost(charge.report.composable()), kind):
            faults.append(f"Charge {charge.number} costs other than what is booked.")
        if charge.report.neighbours != ledger.neighbours:
            faults.append(f"Charge {charge.number} is for other neighbours than the ledger.")
        total = tuple(_sum_up(*pair) for pair in zip(total, amounts, strict=True))
        pure = _sum_up(pure, _pure(charge.report))
        if not all(map(math.isclose, total, booked)):
            faults.append(f"The total after charge {charge.number} is not the sum of charges.")
    is_within = total[0] <= kind.cap * _ABOVE and total[1] <= kind.open_delta * _ABOVE
    if not is_within and pure > kind.epsilon * _ABOVE:
        faults.append("More was spent than the cap allows.")
    return len(rows), faults


def _charges(ledger, faults):
    """Return the charges; where they cannot be read, none and a fault more."""
    try:
        return ledger._charges()
    except (KeyError, TypeError, ValueError):
        faults.append("A charge cannot be read.")
        return []


def _is_cost(amounts, cost, kind):
    amount, delta = amounts
    return math.isclose(amount, cost.amount, rel_tol=_TOLERANCE) and math.isclose(
        delta, cost.delta, rel_tol=_TOLERANCE, abs_tol=_TOLERANCE * kind.open_delta
    )
