"""Empirical privacy audits: statistical lower bounds on what a fit reveals about one record.

With a unit of protection, about one person with all rows.

An audit trains on the records it is given and is not private.
"""

from sklearn_dpgen.auditing._audit import AuditResult, audit

__all__ = ["AuditResult", "audit"]
