"""Contents of a report: from two tables, not private, or from releases, private."""

from dataclasses import dataclass
from typing import Any

from sklearn_dpgen.accounting import PrivacyReport
from sklearn_dpgen.reporting._certificate import audit_section, certificate_section, mark_of
from sklearn_dpgen.reporting._released_sections import (
    released_cards,
    released_sections,
    released_words,
)
from sklearn_dpgen.reporting._sections import column_sections
from sklearn_dpgen.reporting._summary import (
    privacy_card,
    privacy_words,
    table_cards,
    table_words,
)
from sklearn_dpgen.utils._html import shorten

__all__ = ["ReleasedContent", "TablesContent"]


@dataclass(frozen=True, eq=False)
class TablesContent:
    """Of a real and a synthetic table.

    Parameters
    ----------
    found : dict
        Of ``measure_tables``, with sizes.
    privacy : PrivacyReport or None
    audit : object or None
    """

    found: dict
    privacy: PrivacyReport | None
    audit: Any

    mark = "raw"
    warning = (
        "Figures marked not private are computed from the real records without noise. This page is "
        "for those who may see the records."
    )

    @property
    def size(self):
        """What is compared, in words."""
        rows = self.found["rows"]
        return (
            f"{rows['synthetic']:,} synthetic and {rows['real']:,} real records, "
            f"{len(self.found['columns'])} columns"
        )

    @property
    def notes(self):
        """What is not compared, in sentences."""
        rows, used = self.found["rows"], self.found["compared"]
        found = [
            f"Compared are {used[name]:,} {name} records, drawn at random."
            for name in ("real", "synthetic")
            if used[name] < rows[name]
        ]
        return found + _left_out(self.found["left_out"])

    @property
    def cards(self):
        """The figures at the top."""
        cards = [] if self.privacy is None else [privacy_card(self.privacy)]
        return cards + table_cards(self.found)

    @property
    def words(self):
        """What they say, in sentences."""
        return [privacy_words(self.privacy), *table_words(self.found)]

    @property
    def sections(self):
        """The sections of the page."""
        parts = column_sections(self.found)
        parts += [] if self.privacy is None else [certificate_section(self.privacy)]
        return parts + ([] if self.audit is None else [audit_section(self.audit)])


@dataclass(frozen=True, eq=False)
class ReleasedContent:
    """Of what was released and drawn.

    Parameters
    ----------
    found : dict
        Of ``measure_released``.
    privacy : PrivacyReport
    title : str
        Name of the estimator.
    """

    found: dict
    privacy: PrivacyReport
    title: str

    audit = None

    @property
    def mark(self):
        """Whether the guarantee holds."""
        return mark_of(self.privacy)

    @property
    def warning(self):
        """What the page is made of."""
        if self.mark == "void":
            return "There is no guarantee: this page is for those who may see the records."
        return (
            "This page is computed from what was released with noise and from synthetic records: "
            "it costs no privacy, and may be published with them."
        )

    @property
    def size(self):
        """What is shown, in words."""
        if not self.found["n_samples"]:
            return self.title
        columns = self.found["n_columns"]
        return f"{self.title}: {self.found['n_samples']:,} synthetic records, {columns} columns"

    @property
    def notes(self):
        """What is not shown, in sentences."""
        return _left_out(self.found["left_out"])

    @property
    def cards(self):
        """The figures at the top."""
        return [privacy_card(self.privacy), *released_cards(self.found)]

    @property
    def words(self):
        """What they say, in sentences."""
        return [privacy_words(self.privacy), *released_words(self.found)]

    @property
    def sections(self):
        """The sections of the page."""
        return [*released_sections(self.found, self.mark), certificate_section(self.privacy)]


def _left_out(names):
    if not names:
        return []
    shown = ", ".join(shorten(name) for name in names[:20])
    more = f" and {len(names) - 20} more" * (len(names) > 20)
    return [f"Not compared, as they hold keys, texts or constants: {shown}{more}."]
