"""A budget over several fits: one file that every fit books its cost in, before it reads."""

import getpass
import json
import math
import os
import secrets
from collections.abc import Sequence
from datetime import UTC, datetime

from sklearn_dpgen.accounting import PrivacyReport
from sklearn_dpgen.accounting._composition import DominatingCost
from sklearn_dpgen.exceptions import BudgetExceededError, PublicTypeError, PublicValueError
from sklearn_dpgen.ledger._ledger_file import LedgerFile, last_number
from sklearn_dpgen.ledger._ledger_report import FILTERS, Charge, LedgerReport
from sklearn_dpgen.utils._validation import check_delta, check_epsilon

__all__ = ["LedgerLike", "PrivacyLedger", "check_affordable", "ledger_faults", "open_ledger"]

# Of the cap, from where on a first fit may take all of it.
_MOST = 0.9


class PrivacyLedger:
    """A privacy budget over all fits of one data set, kept in one file.

    Give it, or its path, as ``ledger`` to estimators and mechanisms: each fit charges its planned
    cost in one transaction before anything that it computes from a record is released, and is
    refused where less is left. It is a plain value that names its file, so that copies of it,
    as ``clone``, pickling and other processes make them, charge the same file.

    ``PrivacyLedger(path)`` opens a ledger; :meth:`create` makes one. A file that is missing, empty
    or cut off is refused, for a new one in its place would forget what was spent.

    Parameters
    ----------
    path : str or path-like
        A file that :meth:`create` made.

    Raises
    ------
    FileNotFoundError
        There is no file.
    ValueError
        The file is no ledger: it is empty, damaged, of another kind or of a newer version.

    Notes
    -----
    Fits are chosen, with their ε, after looking at earlier results. To compose the exact privacy
    profiles of what was run, and to stop when the total would cross the cap, is no guarantee
    then; sums of μ², or of divergences at a fixed order, are. A charge is one fit with all of
    its releases, which were planned together and are composed exactly.

    A charge is also accepted if the filter has no room for it, but all charges so far and this one
    are pure and their ε add up to at most the cap. The choice between the two conditions costs
    nothing. Let A be the outcomes, charges included, in which the filter is within its cap at the
    end; in all others the ε add up to at most ε. The ledger that stops before the filter crosses
    its cap is (ε, δ)-private and has the same outcomes in A, so P(S ∩ A) ≤ e^ε Q(S ∩ A) + δ. Every
    other outcome has a density ratio of at most e^ε, so P(S \\ A) ≤ e^ε Q(S \\ A). The sum is
    P(S) ≤ e^ε Q(S) + δ. Charges of both kinds in one ledger all count in the filter, where a pure
    one is expensive: give the two kinds ledgers of their own, whose caps add up.

    What a charge is for is the caller's word: the file does not know which records a fit reads.
    Sampling and fits on records that were privatized before are post-processing and charge
    nothing. There is no discount for disjoint parts of a data set, as nothing here could prove
    that they are disjoint: give each part a ledger of its own. A copy of the file, or an older
    state of it that is put back, is a second budget for the same records. On a network file system
    without locks several processes could overspend; keep the file on a local one. What was promised
    beforehand is the cap: :meth:`spent`, before it is reached or at another δ, is a reading.

    Examples
    --------
    >>> import tempfile, os
    >>> from sklearn_dpgen.ledger import PrivacyLedger
    >>> path = os.path.join(tempfile.mkdtemp(), "patients.ledger")
    >>> ledger = PrivacyLedger.create(path, dataset="patients", epsilon=1.0, delta=1e-6)
    >>> ledger.spent()
    0.0
    >>> round(ledger.remaining(), 2)
    1.0
    >>> PrivacyLedger(path) == ledger
    True
    """

    def __init__(self, path: "str | os.PathLike") -> None:
        self._file = LedgerFile(path)
        with self._file.reading() as db:
            self.created, self._settings = _header(db)
        settings = json.loads(self._settings)
        self.dataset, self.neighbours, self.unit = (
            settings[name] for name in ("dataset", "neighbours", "unit")
        )
        self._filter = FILTERS[settings["filter"]](
            settings["epsilon"], settings["delta"], settings["order"]
        )

    @classmethod
    def create(
        cls,
        path: "str | os.PathLike",
        *,
        dataset: str,
        epsilon: float,
        delta: float,
        neighbours: str = "replace_one",
        unit: str | None = None,
        filter: str = "gaussian",
    ) -> "PrivacyLedger":
        """Make a ledger, whose cap cannot be changed later.

        Parameters
        ----------
        path : str or path-like
            Where no file is yet.
        dataset : str
            Name of the data set.
        epsilon : float
            Cap of all fits together, in nats. One single fit may have all of it.
        delta : float
            In (0, 1). A tenth of it is kept for charges that fail openly with a small probability,
            or that no finite amount dominates.
        neighbours : {"replace_one", "add_or_remove"}, default="replace_one"
            Who are neighbours; charges of the other kind are refused.
        unit : str or None, default=None
            Who is protected: all rows with one value in this column; charges that protect a row
            alone are then refused. None each row by itself: of charges that protect persons, a row
            that is replaced by another one of the same person.
        filter : {"gaussian", "renyi"}, default="gaussian"
            How charges add up. "gaussian" adds μ² of the Gaussian mechanism that dominates a
            charge, and loses nothing on Gaussian releases: counts, votes and moments. "renyi" adds
            Rényi divergences at one order; it is better for charges of both kinds, as of Gaussian
            noise and of many small pure releases. Where all charges are pure, their ε add up in
            either.

        Returns
        -------
        PrivacyLedger

        Raises
        ------
        FileExistsError
            There is a file already, of whatever content.
        """
        if not isinstance(dataset, str):
            raise PublicTypeError(f"dataset must be a str, got {type(dataset).__name__}.")
        for name, value, choices in (
            ("neighbours", neighbours, ("replace_one", "add_or_remove")),
            ("filter", filter, tuple(FILTERS)),
        ):
            if value not in choices:
                raise PublicValueError(f"{name} must be one of {list(choices)}, got {value!r}.")
        epsilon, delta = check_epsilon(epsilon, allow_infinite=False), check_delta(delta)
        settings = {
            "dataset": dataset,
            "epsilon": epsilon,
            "delta": delta,
            "neighbours": neighbours,
            "unit": unit,
            "filter": filter,
            # The order belongs to the cap: another version must not choose another one.
            "order": FILTERS[filter](epsilon, delta).order,
            # What tells a file from another one that is put in its place.
            "id": secrets.token_hex(8),
        }
        LedgerFile(path).create(_now(), json.dumps(settings))
        return cls(path)

    @property
    def path(self) -> str:
        """The file, as an absolute path."""
        return str(self._file.path)

    @property
    def epsilon(self) -> float:
        """The cap, in nats."""
        return self._filter.epsilon

    @property
    def delta(self) -> float:
        """The δ of the cap."""
        return self._filter.delta

    @property
    def filter(self) -> str:
        """How charges add up."""
        return self._filter.kind

    def __repr__(self):
        return (
            f"PrivacyLedger({self.path!r}, dataset={self.dataset!r}, epsilon={self.epsilon:g}, "
            f"delta={self.delta:g})"
        )

    def __eq__(self, other):
        return isinstance(other, PrivacyLedger) and self.path == other.path

    def __hash__(self):
        return hash(self.path)

    def reserve(self, report: PrivacyReport, *, what: str) -> int:
        """Book what a fit will cost, in one transaction, or refuse it.

        Parameters
        ----------
        report : PrivacyReport
            The plan of the fit: all that it will release.
        what : str
            What it is for, in a few words.

        Returns
        -------
        int
            Number of the charge.

        Raises
        ------
        BudgetExceededError
            It asks for more than is left: nothing is booked.
        ValueError
            A report without a guarantee, or for other neighbours than the ledger's, or for a
            smaller unit of protection; or another ledger is in the place of this one's file.
        OSError
            The file is read-only, locked or not there.
        """
        self._check_relation(report, what)
        cost = self._filter.cost(report.composable())
        now, content = _now(), report.to_json(indent=None)
        with self._file.writing() as db:
            totals = self._totals(db)
            cost = self._booked(report, what, cost, totals, db)
            new = [_sum_up(*pair) for pair in zip(totals, (cost.amount, cost.delta), strict=True)]
            cursor = db.execute(
                "INSERT INTO charges (time, user, what, amount, delta, total_amount, total_delta,"
                " report) VALUES (?, ?, ?, ?, ?, ?, ?, ?)",
                (now, _user(), what, cost.amount, cost.delta, *new, content),
            )
            # None is for what inserts no row.
            return cursor.lastrowid  # type: ignore[return-value]

    def _booked(self, report, what, cost, totals, db):
        """Return what is booked for a fit that costs so much, or refuse it."""
        if self._fits(cost, totals):
            return cost
        pure = _pure_total(db, report)
        if pure <= self.epsilon:
            return cost
        # Before anything was released no choice depends on it: one fit may take it all. By the
        # totals a charge that is tiny would be none.
        if last_number(db) or not self._is_all(report):
            raise BudgetExceededError(self._refusal(report, what, cost, totals, pure))
        return DominatingCost(self._filter.cap, self._filter.open_delta)

    def _fits(self, cost, totals):
        return (
            _sum_up(totals[0], cost.amount) <= self._filter.cap
            and _sum_up(totals[1], cost.delta) <= self._filter.open_delta
        )

    def _is_all(self, report):
        """Return whether a fit has about the cap, exactly: what the filter keeps is for others."""
        epsilon = report.profile().epsilon(self.delta)
        return _MOST * self.epsilon <= epsilon <= self.epsilon

    def _check_relation(self, report, what):
        if math.isinf(report.epsilon):
            raise PublicValueError(
                f"{what} has no guarantee, epsilon=inf: a ledger is for private fits. Leave out "
                "ledger where the records are public."
            )
        if report.neighbours != self.neighbours:
            raise PublicValueError(
                f"{what} is for neighbours '{report.neighbours}', the ledger for "
                f"{self.neighbours!r}: their costs do not add up."
            )
        if self.unit is not None and report.unit != self.unit:
            protected = "a row" if report.unit is None else f"unit {report.unit!r}"
            raise PublicValueError(
                f"{what} protects {protected}, the ledger unit {self.unit!r}: fit with "
                f"unit={self.unit!r}."
            )

    def _refusal(self, report, what, cost, totals, pure):
        text = f"{what} asks for epsilon {report.epsilon:g} at delta {report.delta:g}, and "
        left = max(self._filter.cap - totals[0], 0.0)
        if totals[0] + cost.amount > self._filter.cap:
            largest = self._filter.largest_fit(left, self.delta)
            text += (
                f"the ledger of {self.dataset!r} has {left / self._filter.cap:.1%} of its cap "
                f"left, a Gaussian fit of epsilon {largest:.3g} at delta {self.delta:g}: it takes "
                f"{cost.amount / self._filter.cap:.1%}"
            )
        else:
            text += (
                f"fails openly with a probability up to {cost.delta:.3g}, of which the ledger of "
                f"{self.dataset!r} has {self._filter.open_delta - totals[1]:.3g} left, from a "
                "tenth of its delta: choose a smaller delta of the fit"
            )
        if report.delta == 0:
            text += (
                "; nor are all charges pure, so that their epsilon would add up"
                if math.isinf(pure)
                else f"; the epsilon of all charges, which are pure, would be {pure:g}"
            )
        return text + ". Nothing was released or charged."

    def spent(self, delta: float | None = None) -> float:
        """Return the ε of all charges together, as the filter booked them.

        Parameters
        ----------
        delta : float or None, default=None
            At which δ; None is that of the cap.

        Returns
        -------
        float
            In nats; ``inf`` at a δ of open failures alone. Where all charges are pure, their sum if
            it is less.
        """
        delta = self.delta if delta is None else check_delta(delta)
        with self._file.reading() as db:
            (amount, open_delta), pure = self._totals(db), _pure_total(db)
        if amount == open_delta == 0:
            return 0.0 if math.isinf(pure) else pure
        if amount > self._filter.cap and math.isinf(pure):
            # One fit has all of it, and was booked as the cap; at other δ it is what it is.
            return self._charges()[0].report.profile().epsilon(delta)
        if amount > self._filter.cap or delta <= open_delta:
            return pure
        spent = self._filter.spent(amount, (delta - open_delta) / (1 - open_delta))
        return min(pure, spent)

    def remaining(self, delta: float | None = None) -> float:
        """Return the ε of the largest fit that the cap still allows, if its releases are Gaussian.

        Parameters
        ----------
        delta : float or None, default=None
            The δ of that fit; None is that of the cap.

        Returns
        -------
        float
            In nats, 0 where nothing is left.
        """
        with self._file.reading() as db:
            (amount, _), is_new = self._totals(db), not last_number(db)
        delta = self.delta if delta is None else check_delta(delta)
        if is_new:
            return self._filter.whole_fit(delta)
        return self._filter.largest_fit(self._filter.cap - amount, delta)

    def report(self) -> LedgerReport:
        """Return all charges, with what they add up to.

        Returns
        -------
        LedgerReport
        """
        return LedgerReport(
            dataset=self.dataset,
            filter=self._filter,
            charges=tuple(self._charges()),
            spent=self.spent(),
            remaining=self.remaining(),
        )

    def _charges(self) -> Sequence[Charge]:
        columns = "id, time, user, what, amount, delta, report"
        with self._file.reading() as db:
            rows = db.execute(f"SELECT {columns} FROM charges ORDER BY id").fetchall()
        return [
            Charge(n, time, user, what, amount, delta, PrivacyReport.from_dict(json.loads(report)))
            for n, time, user, what, amount, delta, report in rows
        ]

    def _totals(self, db):
        # Another file may have been moved to the place of the one that was opened.
        if _header(db) != (self.created, self._settings):
            raise PublicValueError(
                f"{self.path} is no longer the ledger of {self.dataset!r} that was opened here: "
                "its cap does not hold for another one. Open it anew."
            )
        charges = db.execute(
            "SELECT id, amount, delta, total_amount, total_delta FROM charges ORDER BY id"
        ).fetchall()
        n_booked = last_number(db)
        if [number for number, *_ in charges] != list(range(1, n_booked + 1)):
            raise PublicValueError(
                f"The ledger {self.path} is damaged: {n_booked} charges were booked, and "
                f"{len(charges)} of them are left. Its budget is not known any more."
            )
        amounts = [value for _, *values in charges for value in values]
        if not all(0 <= value < math.inf for value in amounts):
            raise PublicValueError(
                f"The ledger {self.path} is damaged: a charge must be finite and not negative. "
                "Its budget is not known any more."
            )
        totals = [0.0, 0.0]
        for _, amount, delta, *_ in charges:
            totals = [_sum_up(*pair) for pair in zip(totals, (amount, delta), strict=True)]
        # What was stored with the last charge is no more than a check.
        return tuple(map(max, totals, charges[-1][3:])) if charges else (0.0, 0.0)


# What estimators take as ``ledger``.
LedgerLike = PrivacyLedger | str | os.PathLike | None


def open_ledger(ledger: "PrivacyLedger | str | os.PathLike") -> PrivacyLedger:
    """Return a ledger, given itself or the path of its file, which must be there."""
    return ledger if isinstance(ledger, PrivacyLedger) else PrivacyLedger(ledger)


def _header(db):
    found = db.execute("SELECT created, settings FROM ledger").fetchall()
    if len(found) != 1:
        raise PublicValueError("The ledger is damaged: its cap is missing.")
    return found[0]


def _sum_up(total, amount):
    """Return a sum, rounded up."""
    return math.nextafter(total + amount, math.inf) if amount > 0 else total


def _pure(report):
    """Return the ε of a pure report, and infinity for all others."""
    return report.epsilon if report.delta == 0 else math.inf


def _pure_total(db, *others):
    """Return the sum of the ε of all charges and of other reports; infinite unless all are pure."""
    contents = db.execute("SELECT report FROM charges").fetchall()
    reports = (PrivacyReport.from_dict(json.loads(content)) for (content,) in contents)
    # Exact up to one rounding, so that ten times 0.1 is all of 1.
    return math.fsum(_pure(report) for report in (*reports, *others))


def _now():
    return datetime.now(UTC).isoformat(timespec="seconds")


def _user():
    try:
        return getpass.getuser()
    except (KeyError, OSError, ImportError):
        return "unknown"


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
