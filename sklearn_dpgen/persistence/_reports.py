"""Privacy reports as JSON of their own, which anybody can read."""

import json

from sklearn_dpgen.accounting import PrivacyReport
from sklearn_dpgen.exceptions import InvalidFileError
from sklearn_dpgen.persistence._hints import check_fields

__all__ = ["read_report", "report_node"]

# What the constructor does not check itself.
_HINTS = {
    "noise_source": str,
    "versions": dict[str, str],
    "precision": dict[str, str],
    "parts": tuple[PrivacyReport, ...],
}


def report_node(report: PrivacyReport) -> dict:
    """Return a report as plain JSON."""
    return json.loads(report.to_json())


def read_report(node: object) -> PrivacyReport:
    """Return the report that JSON holds, or raise InvalidFileError."""
    if not isinstance(node, dict):
        raise InvalidFileError("A privacy report is no object of JSON.")
    report = PrivacyReport.from_dict(node)
    _check(report)
    return report


def _check(report):
    found = {name: getattr(report, name) for name in _HINTS}
    check_fields(found, _HINTS, "PrivacyReport")
    for part in report.parts:
        _check(part)
