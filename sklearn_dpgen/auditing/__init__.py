"""Empirical privacy audits: statistical lower bounds on what a fit reveals about one record.

With a unit of protection, about one person with all rows.

An audit trains on the records it is given and is not private.
"""

from typing import TYPE_CHECKING

from sklearn_dpgen.utils._lazy import lazy_names

__all__ = ["AuditResult", "audit"]

if TYPE_CHECKING:
    from sklearn_dpgen.auditing._audit import AuditResult, audit
else:
    __getattr__, __dir__ = lazy_names(
        __name__,
        {
            "sklearn_dpgen.auditing._audit": ["AuditResult", "audit"],
        },
    )
