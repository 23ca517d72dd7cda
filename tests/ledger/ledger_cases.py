"""Plans of made-up fits, and what is read of a ledger without the class that writes it."""

import sqlite3

from sklearn_dpgen.accounting import GaussianProfile, PrivacyReport, gaussian_sigma

DELTA = 1e-6


def gaussian_plan(epsilon, delta=DELTA, **words):
    """Return the report of one Gaussian release."""
    mu = 1 / gaussian_sigma(epsilon, delta)
    releases = [(GaussianProfile(mu), 1)]
    return PrivacyReport(
        name="a fit", events=(), epsilon=epsilon, delta=delta, releases=releases, **words
    )


def plan_of(*releases, delta=DELTA, epsilon=1.0, **words):
    """Return a report with profiles as they are given."""
    words.setdefault("name", "a fit")
    return PrivacyReport(events=(), epsilon=epsilon, delta=delta, releases=releases, **words)


def rows(path, columns="what"):
    """Return rows of the file."""
    with sqlite3.connect(path) as db:
        found = db.execute(f"SELECT {columns} FROM charges ORDER BY id").fetchall()
    db.close()
    return [row[0] for row in found] if columns.isidentifier() else found
