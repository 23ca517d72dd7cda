"""QualityReport: one page about a synthetic table."""

from collections.abc import Sequence
from os import PathLike
from pathlib import Path
from typing import Any, Self

import numpy as np
import pandas as pd
from sklearn.base import BaseEstimator
from sklearn.utils import check_scalar
from sklearn.utils.validation import check_is_fitted

from sklearn_dpgen._version import __version__
from sklearn_dpgen.accounting import PrivacyReport
from sklearn_dpgen.exceptions import PublicTypeError, PublicValueError
from sklearn_dpgen.reporting._contents import ReleasedContent, TablesContent
from sklearn_dpgen.reporting._measures import measure_tables
from sklearn_dpgen.reporting._released import Released, measure_released
from sklearn_dpgen.reporting._style import badge, page
from sklearn_dpgen.reporting._tables import (
    check_table,
    compared,
    observed_schema,
    read_table,
    subsample,
)
from sklearn_dpgen.schema import Schema
from sklearn_dpgen.schema._rules import Rule
from sklearn_dpgen.utils._html import element, notebook, shorten
from sklearn_dpgen.utils._validation import Integral

__all__ = ["QualityReport"]

_N_SAMPLES = 20_000


class QualityReport:
    """One page of HTML that shows how close a synthetic table is to the real one.

    The page is a single file that needs no network and runs no script. It shows single columns,
    pairs and triples, what models learn, whether records are told apart, distances, broken rules,
    the privacy certificate and an audit, if they are given.

    .. warning::
        What is computed from the real table is **not private**, and is marked so on the page: it
        is for those who may see the records. :meth:`from_estimator` makes a page from what was
        released alone, which may be published.

    Parameters
    ----------
    real, synthetic : DataFrame
        Of any library, in memory. They may differ in length.
    privacy : PrivacyReport or None, default=None
        Of the synthetic table, such as ``estimator.privacy_``.
    schema : Schema or None, default=None
        The public declaration of both. None reads bounds and labels off both tables.
    target : str or None, default=None
        The column that models predict. None trains none.
    constraints : sequence of Rule or None, default=None
        Rules, as of :class:`~sklearn_dpgen.tables.TableSampler`; they need a ``schema``.
    audit : AuditResult or None, default=None
        With ``to_dict()`` and ``to_text()``.
    title : str, default="Synthetic data quality report"
    max_rows : int, default=50000
        Rows of each table that are compared, drawn at random; the page tells how many.
    random_state : int, default=0
        Of these rows, of splits and of classifiers, none of which is private.

    Raises
    ------
    TypeError
        A table is no data frame.
    ValueError
        A table is empty, lacks a column of the schema, or does not fit it; ``target`` is not among
        the columns; rules without a schema.

    See Also
    --------
    model_card : What a fitted estimator is, and how to verify it.

    Examples
    --------
    >>> import pandas as pd
    >>> from sklearn_dpgen.reporting import QualityReport
    >>> real = pd.DataFrame({"age": range(20, 80), "ill": ["no", "no", "yes"] * 20})
    >>> report = QualityReport(real, real.sample(60, replace=True, random_state=0))
    >>> report.is_private
    False
    >>> html = report.to_html()
    >>> report.to_html("report.html")  # doctest: +SKIP
    """

    def __init__(
        self,
        real: pd.DataFrame,
        synthetic: pd.DataFrame,
        *,
        privacy: PrivacyReport | None = None,
        schema: Schema | None = None,
        target: str | None = None,
        constraints: Sequence[Rule] | None = None,
        audit: Any = None,
        title: str = "Synthetic data quality report",
        max_rows: int = 50_000,
        random_state: int = 0,
    ) -> None:
        check_scalar(max_rows, "max_rows", Integral, min_val=2)
        real, synthetic = read_table(real, "real"), read_table(synthetic, "synthetic")
        if constraints and schema is None:
            raise PublicValueError("constraints need a schema, which says what columns hold.")
        left_out: list[str] = []
        for label, frame in (("real", real), ("synthetic", synthetic)):
            if not len(frame):
                raise PublicValueError(f"{label} has no rows.")
        if schema is None:
            declared, left_out = observed_schema(real, synthetic)
            if declared is None:
                raise PublicValueError("real and synthetic have no column in common that varies.")
        else:
            declared = schema
            check_table(real, schema, "real")
            check_table(synthetic, schema, "synthetic")
        part = compared(declared)
        left_out += [name for name in declared if name not in part]
        if target is not None and target not in part:
            raise PublicValueError(f"target must be a column that is compared, got {target!r}.")
        first = subsample(real, max_rows, random_state)
        second = subsample(synthetic, max_rows, random_state)
        found = measure_tables(
            first,
            second,
            part,
            target=target,
            constraints=constraints,
            declared=declared,
            random_state=random_state,
        ) | {
            "rows": {"real": len(real), "synthetic": len(synthetic)},
            "compared": {"real": len(first), "synthetic": len(second)},
            "left_out": left_out,
        }
        self.title = title
        self._content: TablesContent | ReleasedContent = TablesContent(found, privacy, audit)

    @classmethod
    def from_estimator(
        cls,
        estimator: BaseEstimator,
        *,
        n_samples: int | None = None,
        title: str = "Synthetic data report",
        random_state: int = 0,
    ) -> Self:
        """Make a page that is private: from released counts and synthetic records alone.

        It costs nothing, by post-processing, and is marked as private where the guarantee is:
        neither seeded nor infinite. Samples are compared with the noisy counts that were paid for,
        where the estimator keeps them; those of others are shown by themselves, and of one that
        draws none the certificate is all there is.

        Parameters
        ----------
        estimator : estimator
            Fitted, with ``privacy_``. Read are ``privacy_``, ``schema``, ``constraints``,
            ``encoder_``, ``one_way_marginals_``, ``marginals_``, ``n_records_`` and ``sample``,
            nothing else.
        n_samples : int or None, default=None
            Synthetic records to draw. None is 20000.
        title : str, default="Synthetic data report"
        random_state : int, default=0
            Of the draw, which is free.

        Returns
        -------
        QualityReport

        Raises
        ------
        NotFittedError
            The estimator is not fitted.
        TypeError
            It has no ``privacy_``.
        """
        check_is_fitted(estimator)
        view = Released(estimator)
        privacy = getattr(view, "privacy_", None)
        if not isinstance(privacy, PrivacyReport):
            raise PublicTypeError(f"{type(estimator).__name__} has no privacy_, a PrivacyReport.")
        n_samples = _N_SAMPLES if n_samples is None else n_samples
        check_scalar(n_samples, "n_samples", Integral, min_val=2)
        report = cls.__new__(cls)
        report.title = title
        found = measure_released(view, n_samples, random_state)
        report._content = ReleasedContent(found, privacy, view.title)
        return report

    @property
    def is_private(self) -> bool:
        """Whether the whole page is covered by the guarantee that it states."""
        return self._content.mark == "private"

    def to_dict(self) -> dict:
        """Return all figures, and the sentences about them, as plain containers."""
        content = self._content
        return {
            "title": self.title,
            "is_private": self.is_private,
            "words": list(content.words),
            "figures": _plain(content.found),
            "privacy": None if content.privacy is None else content.privacy.to_dict(),
            "audit": None if content.audit is None else content.audit.to_dict(),
        }

    def to_html(self, path: str | PathLike | None = None) -> str:
        """Return the page, and write it if a path is given.

        Parameters
        ----------
        path : path-like or None, default=None
            Of the file, in UTF-8.

        Returns
        -------
        str
        """
        text = page(self.title, self._header(), self._content.sections, _footer())
        if path is not None:
            Path(path).write_text(text, encoding="utf-8")
        return text

    def _repr_html_(self) -> str:
        items = [element("li", words) for words in self._content.words]
        return notebook(
            element("div", self.title, class_="headline"),
            element("ul", items),
            element("div", "to_html(path) writes the whole page."),
        )

    def _header(self):
        content = self._content
        words = [element("li", line) for line in content.words]
        return [
            element("p", "sklearn_dpgen", class_="eyebrow"),
            element("h1", shorten(self.title, 200)),
            element(
                "div", element("p", content.size, class_="lead"), badge(content.mark), class_="head"
            ),
            element("p", " ".join([content.warning, *content.notes]), class_="note"),
            element("div", content.cards, class_="scores"),
            element("div", element("ul", words, class_="words"), class_="card"),
        ]


def _footer():
    return element("footer", f"Made by sklearn_dpgen {__version__}. One file, without scripts.")


def _plain(value):
    if isinstance(value, dict):
        return {str(key): _plain(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(item) for item in value]
    if isinstance(value, np.ndarray):
        return _plain(value.tolist())
    if isinstance(value, float) and np.isnan(value):
        return None
    return value
