"""The privacy guarantee, the attack risk and the audit, as parts of a page."""

import math

import numpy as np

from sklearn_dpgen.reporting._style import badge
from sklearn_dpgen.reporting._svg import lines
from sklearn_dpgen.utils._html import element, preformatted, rows_table

__all__ = [
    "AUDIT_NOTE",
    "audit_section",
    "certificate_section",
    "facts",
    "mark_of",
    "percent_up",
    "section",
]


AUDIT_NOTE = (
    "Its result is not covered by the guarantee: publish it only of records that are public or "
    "made up."
)


def section(key, title, *children, mark=None):
    """Return a section of a page with its heading and its mark."""
    head = element("div", element("h2", title), mark and badge(mark), class_="head")
    return element("section", head, children, id=key)


def percent_up(share):
    """Return a share in percent, rounded up: what is shown is an upper bound."""
    return f"{math.ceil(1e3 * share - 1e-6) / 10:g}%"


def certificate_section(report):
    """Return the section of the guarantee.

    Parameters
    ----------
    report : PrivacyReport
    """
    risk = report.attack_risk()
    fpr = np.linspace(0, 1, 61)
    curve = lines(
        fpr,
        {"guess": fpr, "second-line": risk.true_positive_rate(fpr)},
        x_label="false alarms",
        y_label="cases found, at most",
        title="What the best attacker finds, and what guessing finds",
    )
    what = element(
        "p",
        "The best attacker knows all other records and wants to know of one. All figures are upper "
        "bounds, over all attackers and all data.",
        class_="note",
    )
    left = element("div", element("h3", "Attack risk"), what, facts(risk.to_rows()), class_="card")
    right = element(
        "div",
        element("h3", "The trade-off"),
        curve,
        element("p", "Dotted: guessing.", class_="note"),
        class_="card",
    )
    rows = facts(report.to_rows())
    statement = element("div", element("h3", report.title), rows, class_="card")
    return section(
        "certificate",
        "Privacy certificate",
        element(
            "p",
            f"(ε, δ) = ({report.epsilon:.4g}, {report.delta:.3g}); {report.neighbouring}.",
            class_="lead",
        ),
        _void_note(report),
        element("div", left, right, class_="three"),
        element("div", statement, style="margin-top:14px"),
        mark=mark_of(report),
    )


def mark_of(report):
    """Return the mark of what is made of a release: "private", or "void" without a guarantee."""
    return "void" if report.is_seeded or math.isinf(report.epsilon) else "private"


def _void_note(report):
    if report.is_seeded:
        return element(
            "p",
            "The noise was drawn from a seed: the guarantee is void for whoever knows or guesses "
            "it.",
            class_="note",
        )
    return None


def facts(rows):
    """Return a table of facts."""
    return rows_table(rows, class_="facts")


def audit_section(audit):
    """Return the section of an audit.

    Parameters
    ----------
    audit : object
        With ``to_dict()`` and ``to_text()``.
    """
    found = audit.to_dict()
    is_violation = bool(found.get("is_violation", getattr(audit, "is_violation", False)))
    verdict = (
        "The audit found a violation of the claimed guarantee."
        if is_violation
        else "The audit found no violation of the claimed guarantee."
    )
    mark = element("span", verdict, class_="badge warn" if is_violation else "badge private")
    note = (
        "An audit attacks the mechanism and gives a lower bound on what it leaks, with confidence. "
        "It can show that a guarantee is broken, and not that it holds."
    )
    return section(
        "audit",
        "Audit",
        element("p", mark),
        element("p", note, " ", AUDIT_NOTE, class_="note"),
        element("div", preformatted(audit.to_text()), class_="card"),
        mark="raw",
    )
