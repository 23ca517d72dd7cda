"""PrivacyLedger: a privacy budget over several fits, in one file that each fit charges."""

import getpass
import hashlib
import json
import math
import os
import secrets
from collections.abc import Sequence
from datetime import UTC, datetime

from sklearn_dpgen.accounting import PrivacyReport
from sklearn_dpgen.accounting._composition import DominatingCost
from sklearn_dpgen.exceptions import (
    BudgetExceededError,
    PublicError,
    PublicFileNotFoundError,
    PublicTypeError,
    PublicValueError,
)
from sklearn_dpgen.ledger._ledger_file import (
    LedgerFile,
    add_release,
    last_number,
    read_releases,
)
from sklearn_dpgen.ledger._ledger_report import FILTERS, Charge, LedgerReport, by_unit
from sklearn_dpgen.utils._checks import check_count, check_delta, check_epsilon
from sklearn_dpgen.utils._html import notebook

__all__ = ["LedgerLike", "PrivacyLedger", "check_affordable", "ledger_faults", "open_ledger"]

# Share of the cap from which on a first fit may take all of it.
_MOST = 0.9


class PrivacyLedger:
    """A privacy budget over all fits of one data set, kept in one file.

    Give it, or its path, as ``ledger`` to estimators and mechanisms. Each fit charges its planned
    cost in one transaction before anything is released, and is refused if less is left. A ledger
    is a plain value that names its file, so its copies, by ``clone``, pickling and other processes,
    charge the same file.

    ``PrivacyLedger(path)`` opens a ledger; :meth:`create` makes one. A file that is missing, empty
    or truncated is refused, as a new one would forget the charges.

    Parameters
    ----------
    path : str or path-like
        A file that :meth:`create` made.

    Raises
    ------
    PublicFileNotFoundError
        There is no file.
    PublicValueError
        The file is not a ledger: it is empty, damaged, of another kind or of a newer version.

    Notes
    -----
    Fits and their ε are chosen adaptively, after earlier results. Composing the exact privacy
    profiles of the fits, and stopping when the total would exceed the cap, is then no guarantee;
    sums of μ², or of divergences at a fixed order, are. A charge is one fit with all of its
    releases, which were planned together and are composed exactly.

    A charge is also accepted if the filter has no room for it, but all charges so far and this one
    are pure and their ε add up to at most the cap. The choice between the two conditions costs
    nothing. Let A be the outcomes, charges included, in which the filter is within its cap at the
    end; in all others the ε add up to at most ε. The ledger that stops before the filter exceeds
    its cap is (ε, δ)-private and has the same outcomes in A, so P(S ∩ A) ≤ e^ε Q(S ∩ A) + δ. Every
    other outcome has a density ratio of at most e^ε, so P(S \\ A) ≤ e^ε Q(S \\ A). The sum is
    P(S) ≤ e^ε Q(S) + δ. Charges of both kinds in one ledger all count in the filter, where a pure
    one is expensive: use separate ledgers for the two kinds, whose caps add up.

    The caller is responsible for charging the right ledger: the file does not know which records a
    fit reads. Sampling, and fits on locally privatized records, are post-processing and charge
    nothing. There is no discount for disjoint parts of a data set, as disjointness cannot be
    verified: use one ledger per part. A copy or an older state of the file is a second budget for
    the same records. On a network file system without locks several processes could overspend; keep
    the file on a local one. The guarantee that holds in advance is the cap: :meth:`spent`, before
    the cap is reached or at another δ, is informative.

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
        """Create a ledger with a cap that cannot be changed later.

        Parameters
        ----------
        path : str or path-like
            Path of the new file.
        dataset : str
            Name of the data set.
        epsilon : float
            Cap on all fits together, in nats. A single fit may take all of it.
        delta : float
            In (0, 1). A tenth of it is reserved for the catastrophic failures of charges, also of
            charges that no finite amount dominates.
        neighbours : {"replace_one", "add_or_remove"}, default="replace_one"
            Neighbouring relation; charges with the other one are refused.
        unit : str or None, default=None
            Column of the protected persons, each with all their rows; charges that protect single
            rows are then refused. None protects single rows. For charges that protect persons, it
            is then the replacement of a row by another one of the same person.
        filter : {"gaussian", "renyi"}, default="gaussian"
            How charges add up. "gaussian" adds μ² of the Gaussian mechanism that dominates a
            charge, without loss for Gaussian releases: counts, votes and moments. "renyi" adds
            Rényi divergences at one order; it is better for mixed charges, with Gaussian noise and
            many small pure releases. If all charges are pure, their ε add up with both.

        Returns
        -------
        PrivacyLedger

        Raises
        ------
        PublicOSError
            There is a file already; it is also a FileExistsError.
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
            # The order belongs to the cap, and must not change with the version.
            "order": FILTERS[filter](epsilon, delta).order,
            # Distinguishes the file from another one at the same path.
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
        """How charges add up, "gaussian" or "renyi"."""
        return self._filter.kind

    def __repr__(self):
        return (
            f"PrivacyLedger({self.path!r}, dataset={self.dataset!r}, epsilon={self.epsilon:g}, "
            f"delta={self.delta:g})"
        )

    def _repr_html_(self) -> str:
        try:
            return self.report()._repr_html_()
        except PublicError as error:
            # A notebook shows a file that is missing or damaged, and does not stop.
            return notebook(repr(self), warning=str(error))

    def __eq__(self, other):
        return isinstance(other, PrivacyLedger) and self.path == other.path

    def __hash__(self):
        return hash(self.path)

    def reserve(self, report: PrivacyReport, *, what: str) -> int:
        """Charge the planned cost of a fit in one transaction, or refuse it.

        Parameters
        ----------
        report : PrivacyReport
            The plan of the fit, with all of its releases.
        what : str
            Purpose of the fit, in a few words.

        Returns
        -------
        int
            Number of the charge.

        Raises
        ------
        BudgetExceededError
            The cost exceeds the remaining budget; nothing is charged.
        PublicValueError
            The report has no guarantee, another neighbouring relation, or a smaller unit of
            protection than the ledger; or another ledger has replaced the file.
        PublicOSError
            The file is read-only, locked or missing.
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
            # It is None only for statements that insert no row.
            return cursor.lastrowid  # type: ignore[return-value]

    def _booked(self, report, what, cost, totals, db):
        """Return the amounts to charge for a fit of a given cost, or refuse it."""
        if self._fits(cost, totals):
            return cost
        pure = _pure_total(db, report)
        if pure <= self.epsilon:
            return cost
        # No choice depends on releases before the first one, so one fit may take the whole cap.
        # The charge is not recognized by the totals, as a tiny one may round to zero.
        if last_number(db) or not self._is_all(report):
            raise BudgetExceededError(self._refusal(report, what, cost, totals, pure))
        return DominatingCost(self._filter.cap, self._filter.open_delta)

    def _fits(self, cost, totals):
        return (
            _sum_up(totals[0], cost.amount) <= self._filter.cap
            and _sum_up(totals[1], cost.delta) <= self._filter.open_delta
        )

    def _is_all(self, report):
        """Return whether the exact cost of a fit is about the cap, reserved δ included."""
        epsilon = report.profile().epsilon(self.delta)
        return _MOST * self.epsilon <= epsilon <= self.epsilon

    def _check_relation(self, report, what):
        if math.isinf(report.epsilon):
            raise PublicValueError(
                f"{what} must have a guarantee to charge a ledger, got epsilon=inf. Leave out "
                "ledger if the records are public."
            )
        if report.neighbours != self.neighbours:
            raise PublicValueError(
                f"{what} must be for neighbours {self.neighbours!r} of the ledger, got "
                f"'{report.neighbours}': their costs do not add up."
            )
        if self.unit is not None and report.unit != self.unit:
            protected = "a row" if report.unit is None else f"unit {report.unit!r}"
            raise PublicValueError(
                f"{what} must protect unit {self.unit!r} of the ledger, got {protected}: fit with "
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
                f"may fail with a probability up to {cost.delta:.3g}, of which the ledger of "
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
        """Return the ε of all charges together, by the filter.

        Parameters
        ----------
        delta : float or None, default=None
            δ of the result; None is that of the cap.

        Returns
        -------
        float
            In nats; ``inf`` if δ does not exceed the catastrophic failures. If all charges are
            pure, at most the sum of their ε.
        """
        delta = self.delta if delta is None else check_delta(delta)
        with self._file.reading() as db:
            (amount, open_delta), pure = self._totals(db), _pure_total(db)
        if amount == open_delta == 0:
            return 0.0 if math.isinf(pure) else pure
        if amount > self._filter.cap and math.isinf(pure):
            # A single fit took the whole cap; at another δ its own profile is exact.
            return self._charges()[0].report.profile().epsilon(delta)
        if amount > self._filter.cap or delta <= open_delta:
            return pure
        spent = self._filter.spent(amount, (delta - open_delta) / (1 - open_delta))
        return min(pure, spent)

    def remaining(self, delta: float | None = None) -> float:
        """Return the ε of the largest fit with Gaussian releases that the cap still allows.

        Parameters
        ----------
        delta : float or None, default=None
            δ of that fit; None is that of the cap.

        Returns
        -------
        float
            In nats; 0 if nothing is left.
        """
        with self._file.reading() as db:
            (amount, _), is_new = self._totals(db), not last_number(db)
        delta = self.delta if delta is None else check_delta(delta)
        if is_new:
            return self._filter.whole_fit(delta)
        return self._filter.largest_fit(self._filter.cap - amount, delta)

    def record_release(self, path: "str | os.PathLike", *, charge: int) -> str:
        """Record that a file was released by a charged fit; it costs nothing.

        A later fit of the same ledger may use the file as its public table: all charges together
        cover both, which the report of that fit states. The ledger cannot verify that the file was
        made from the releases of the charge alone, such as a table that its estimator sampled.

        Parameters
        ----------
        path : str or path-like
            The file, which is recorded by its SHA-256.
        charge : int
            Number of the charge, from ``privacy_.ledger["charge"]``.

        Returns
        -------
        str
            The SHA-256 in hexadecimal digits. A file that is recorded already stays so.

        Raises
        ------
        PublicValueError
            There is no such charge, or the file is recorded for another one.
        PublicOSError
            The file is missing; or the ledger is read-only, locked or missing.
        """
        charge = check_count(charge, "charge")
        try:
            with open(path, "rb") as file:
                sha256 = hashlib.file_digest(file, "sha256").hexdigest()
        except FileNotFoundError:
            raise PublicFileNotFoundError(f"path must be a released file, got {path}.") from None
        with self._file.writing() as db:
            # Refuses another or a damaged ledger, as a charge does.
            self._totals(db)
            if charge > last_number(db):
                raise PublicValueError(
                    f"charge must be that of a fit, at most {last_number(db)}, got {charge}."
                )
            recorded = read_releases(db).get(sha256)
            if recorded not in (None, charge):
                raise PublicValueError(
                    f"charge must be {recorded}, for which the file is recorded, got {charge}."
                )
            if recorded is None:
                add_release(db, sha256, charge, _now())
        return sha256

    def recorded_releases(self) -> dict[str, int]:
        """Return the numbers of the charges of all recorded releases, by SHA-256.

        Returns
        -------
        dict of str to int
        """
        with self._file.reading() as db:
            return read_releases(db)

    def charges_by_unit(self) -> dict[str | None, list[int]]:
        """Return the numbers of all charges by the column of the persons that they protect.

        Returns
        -------
        dict of str or None to list of int
            None is for charges that protect single rows. With several units the total of the
            ledger protects no person as a whole.
        """
        return by_unit(self._charges())

    def report(self) -> LedgerReport:
        """Return all charges with their totals.

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
            releases=self.recorded_releases(),
            unit=self.unit,
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
        # Another file may have replaced the one that was opened.
        if _header(db) != (self.created, self._settings):
            raise PublicValueError(
                f"{self.path} is no longer the ledger of {self.dataset!r} that was opened here, "
                "and has another cap. Open it anew."
            )
        charges = db.execute(
            "SELECT id, amount, delta, total_amount, total_delta FROM charges ORDER BY id"
        ).fetchall()
        n_booked = last_number(db)
        if [number for number, *_ in charges] != list(range(1, n_booked + 1)):
            raise PublicValueError(
                f"The ledger {self.path} is damaged: {n_booked} charges were made, and "
                f"{len(charges)} of them are left. Its remaining budget is unknown."
            )
        amounts = [value for _, *values in charges for value in values]
        if not all(0 <= value < math.inf for value in amounts):
            raise PublicValueError(
                f"The ledger {self.path} is damaged: a charge must be finite and not negative. "
                "Its remaining budget is unknown."
            )
        totals = [0.0, 0.0]
        for _, amount, delta, *_ in charges:
            totals = [_sum_up(*pair) for pair in zip(totals, (amount, delta), strict=True)]
        # The total stored with the last charge is only a check.
        return tuple(map(max, totals, charges[-1][3:])) if charges else (0.0, 0.0)


# The values of the parameter ``ledger`` of estimators.
LedgerLike = PrivacyLedger | str | os.PathLike | None


def open_ledger(ledger: "PrivacyLedger | str | os.PathLike") -> PrivacyLedger:
    """Return a ledger, given the ledger or the path of its existing file."""
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
    """Return the ε of a pure report, and infinity for others."""
    return report.epsilon if report.delta == 0 else math.inf


def _pure_total(db, *others):
    """Return the sum of the ε of all charges and of other reports; infinite unless all are pure."""
    contents = db.execute("SELECT report FROM charges").fetchall()
    reports = (PrivacyReport.from_dict(json.loads(content)) for (content,) in contents)
    # Exact up to one rounding, so that ten charges of 0.1 are at most 1.
    return math.fsum(_pure(report) for report in (*reports, *others))


def _now():
    return datetime.now(UTC).isoformat(timespec="seconds")


def _user():
    try:
        return getpass.getuser()
    except (KeyError, OSError, ImportError):
        return "unknown"


# Relative tolerance of amounts that are recomputed, possibly with other library versions.
_TOLERANCE = 1e-6
_ABOVE = 1 + _TOLERANCE


def check_affordable(ledger: PrivacyLedger, report: PrivacyReport, *, what: str) -> None:
    """Refuse a fit as `PrivacyLedger.reserve` would now, without charging.

    Parameters
    ----------
    ledger : PrivacyLedger
    report : PrivacyReport
        The plan of the fit.
    what : str
        Purpose of the fit, in a few words.

    Raises
    ------
    BudgetExceededError, PublicValueError, PublicOSError
        As `PrivacyLedger.reserve`.
    """
    ledger._check_relation(report, what)
    cost = ledger._filter.cost(report.composable())
    with ledger._file.reading() as db:
        ledger._booked(report, what, cost, ledger._totals(db), db)


def ledger_faults(ledger: PrivacyLedger) -> tuple[int, list[str]]:
    """Recompute the costs and totals of a ledger, and return the differences.

    Parameters
    ----------
    ledger : PrivacyLedger

    Returns
    -------
    n_charges : int
    faults : list of str
        Differences; empty if there are none. An older state of a ledger has none either.
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
        n_booked, released = last_number(db), read_releases(db)
    faults += [
        f"A release of charge {number} is recorded, which was never made."
        for number in released.values()
        if not 1 <= number <= n_booked
    ]
    if [number for number, *_ in rows] != list(range(1, n_booked + 1)):
        faults.append(f"Charges are missing: {n_booked} were made, and {len(rows)} are left.")
    total, pure = (0.0, 0.0), 0.0
    # Another process may have charged the ledger in the meantime.
    for charge, (_, *booked) in zip(_charges(ledger, faults), rows, strict=False):
        amounts = (charge.amount, charge.delta)
        is_whole = (
            charge.number == 1
            and amounts == (kind.cap, kind.open_delta)
            and ledger._is_all(charge.report)
        )
        # A first fit may take the whole cap, which is then its charge.
        if not is_whole and not _is_cost(amounts, kind.cost(charge.report.composable()), kind):
            faults.append(f"Charge {charge.number} differs from the cost of its report.")
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
    """Return the charges; if they cannot be read, none, and a fault is added."""
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
