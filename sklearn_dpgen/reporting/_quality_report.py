"""QualityReport: one page about a synthetic table."""

import math
from collections.abc import Mapping, Sequence
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
from sklearn_dpgen.accounting._wording import spending_rows
from sklearn_dpgen.exceptions import PublicTypeError, PublicValueError
from sklearn_dpgen.reporting._columns import (
    check_table,
    compared,
    observed_schema,
    read_table,
    subsample,
)
from sklearn_dpgen.reporting._figures import (
    heat_map,
    histogram,
    inline_svg,
    label_bars,
    trajectory_lines,
)
from sklearn_dpgen.reporting._measures import measure_tables
from sklearn_dpgen.reporting._privacy_displays import TradeOffDisplay
from sklearn_dpgen.reporting._released import Released, measure_released
from sklearn_dpgen.reporting._row_measures import (
    as_relational,
    measure_released_tables,
    measure_rows,
    read_tables,
    row_view,
    sample_persons,
)
from sklearn_dpgen.reporting._verdict import (
    constant_words,
    joined,
    rule_sentences,
    table_words,
    verdict_of_release,
    verdict_of_tables,
)
from sklearn_dpgen.schema import RelationalSchema, Schema, Table
from sklearn_dpgen.schema._rules import Rule
from sklearn_dpgen.utils._html import notebook, percent, percent_up, render, score, shorten
from sklearn_dpgen.utils._validation import Integral

__all__ = ["QualityReport", "report_on_rows"]

# Records, or persons with many rows, that are drawn for a page of releases.
_N_SAMPLES, _N_PERSONS = 20_000, 5_000
# Columns that have a figure of their own.
_MOST_SHOWN = 120
# A difference of associations of this size has the full colour.
_FULL = 0.2
_ORDERS = {1: ("column", "single columns"), 2: ("pair", "pairs"), 3: ("triple", "triples")}
# Of released marginals, those of more than three columns too.
_RELEASED = _ORDERS | {3: ("larger marginal", "marginals of three and more columns")}


class QualityReport:
    """One page of HTML that compares a synthetic table with the real one.

    The page is a single file that needs no network and runs no script. It shows single columns,
    pairs and triples, models trained on synthetic records, a classifier of real against synthetic
    records, distances, broken rules, and the guarantee and the audit if they are given. Tables with
    keys have these sections each, and distances, numbers of rows, transitions and trajectories of
    persons. Its figures require matplotlib; :meth:`to_dict` does not.

    .. warning::
        Figures of the real table are **not private**, and the page marks them so: it is for people
        who may see the records. :meth:`from_estimator` makes a page from releases alone, which may
        be published.

    Parameters
    ----------
    real, synthetic : DataFrame, or mapping of str to DataFrame
        Data frames of any library, in memory. They may differ in length. For a RelationalSchema
        mappings with its private tables.
    privacy : PrivacyReport or None, default=None
        The guarantee of the synthetic table, such as ``estimator.privacy_``.
    schema : Schema, Table, RelationalSchema or None, default=None
        The public declaration of both tables. None reads bounds and labels from both tables.
    target : str or None, default=None
        The column that models predict, in each table that has it. None trains no model.
    constraints : sequence of Rule or None, default=None
        Rules, as in :class:`~sklearn_dpgen.tables.TableSampler`. They require a ``Schema``.
    audit : AuditResult or None, default=None
        An object with ``to_dict()``, ``to_text()`` and ``is_violation``.
    title : str, default="Synthetic data quality report"
    max_rows : int, default=50000
        Number of rows of each table to compare at most, drawn at random, or those of random
        persons. The page states it.
    random_state : int, default=0
        Seed of these rows, of splits and of classifiers, none of which is private.

    Raises
    ------
    TypeError
        A table is not a data frame.
    ValueError
        A table is empty, lacks a column of the schema, or does not fit it; ``target`` is not among
        the columns; ``constraints`` are given without a schema.

    See Also
    --------
    model_card : A signed statement about a fitted estimator.

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
        real: pd.DataFrame | Mapping[str, pd.DataFrame],
        synthetic: pd.DataFrame | Mapping[str, pd.DataFrame],
        *,
        privacy: PrivacyReport | None = None,
        schema: Schema | Table | RelationalSchema | None = None,
        target: str | None = None,
        constraints: Sequence[Rule] | None = None,
        audit: Any = None,
        title: str = "Synthetic data quality report",
        max_rows: int = 50_000,
        random_state: int = 0,
    ) -> None:
        check_scalar(max_rows, "max_rows", Integral, min_val=2)
        compare = _compare if schema is None or isinstance(schema, Schema) else _compare_tables
        measures = compare(real, synthetic, schema, target, constraints, max_rows, random_state)
        self.title = title
        self._measures, self._privacy, self._audit = measures, privacy, audit
        # The estimator of a report that reads releases alone, and the seed of published rows.
        self._name: str | None = None
        self._seed: int | None = None

    @classmethod
    def from_estimator(
        cls,
        estimator: BaseEstimator,
        *,
        n_samples: int | None = None,
        title: str = "Synthetic data report",
        random_state: int = 0,
    ) -> Self:
        """Make a page that may be published, from released counts and synthetic records alone.

        By post-processing it costs no privacy. It is marked as differentially private unless the
        noise was seeded or ε is infinite. Samples are compared with the released counts if the
        estimator keeps them, and shown alone otherwise. For an estimator without samples the page
        shows the guarantee.

        Released counts are noisy. Neighbouring bins of a fine column are merged until counts exceed
        their noise, and released shares are projected to the nearest probabilities before distances
        are computed, so that no share and no distance exceeds 100 percent.

        Parameters
        ----------
        estimator : estimator
            A fitted estimator with ``privacy_``. The page reads ``privacy_``, ``schema``,
            ``constraints``, ``unit_weights``, ``encoder_``, ``encoders_``, ``one_way_marginals_``,
            ``marginals_``, ``n_records_``, ``target`` and ``sample``, and nothing else.
        n_samples : int or None, default=None
            Number of synthetic records to draw. None draws 20000, or 5000 persons with many rows.
        title : str, default="Synthetic data report"
        random_state : int, default=0
            Seed of the synthetic records, which cost no privacy. With the ``n_samples`` and the
            ``random_state`` of rows that are published, the page is about these rows.

        Returns
        -------
        QualityReport

        Raises
        ------
        NotFittedError
            The estimator is not fitted.
        TypeError
            The estimator has no ``privacy_``.
        """
        if n_samples is not None:
            check_scalar(n_samples, "n_samples", Integral, min_val=2)
        return cls._of_release(estimator, None, n_samples, title, random_state)

    @classmethod
    def _of_release(cls, estimator, drawn, n_samples, title, random_state):
        check_is_fitted(estimator)
        view = Released(estimator, drawn)
        privacy = getattr(view, "privacy_", None)
        if not isinstance(privacy, PrivacyReport):
            raise PublicTypeError(f"{type(estimator).__name__} has no privacy_, a PrivacyReport.")
        is_relational = isinstance(getattr(view, "schema", None), Table | RelationalSchema)
        if n_samples is None:
            n_samples = _N_PERSONS if is_relational else _N_SAMPLES
        report = cls.__new__(cls)
        report.title, report._name = title, view.title
        measure = measure_released_tables if is_relational else measure_released
        report._measures = measure(view, n_samples, random_state)
        report._privacy, report._audit, report._seed = privacy, None, None
        return report

    @property
    def _mark(self):
        """The mark of the page: "raw", "private", or "void" without a guarantee."""
        return "raw" if self._name is None else _mark_of(self._privacy)

    @property
    def _words(self):
        """Sentences about the figures."""
        words_of = table_words if self._name is None else _released_words
        words = [_of(name) + line for name, part in self._tables.items() for line in words_of(part)]
        return [_privacy_words(self._privacy), *words]

    @property
    def _tables(self):
        """The figures of each table by its name, or of a single table without keys under None."""
        return self._measures.get("tables", {None: self._measures})

    @property
    def _verdict(self):
        """What each table is fit for and not fit for, as lists of sentences."""
        found = {
            name: verdict_of_tables(measures)
            if self._name is None
            else verdict_of_release(measures, is_void=self._mark == "void")
            for name, measures in self._tables.items()
        }
        verdict = joined({_of(name): part for name, part in found.items()})
        if self._mark == "raw":
            verdict["not_fit"].append("Publication of this page: it shows the real records.")
        return verdict

    @property
    def is_private(self) -> bool:
        """Whether the guarantee that the page states covers the whole page."""
        return self._mark == "private"

    def to_dict(self) -> dict:
        """Return all figures, and the sentences about them, as plain containers."""
        return {
            "title": self.title,
            "is_private": self.is_private,
            "verdict": self._verdict,
            "words": self._words,
            "figures": _plain(self._measures),
            "privacy": None if self._privacy is None else self._privacy.to_dict(),
            "audit": None if self._audit is None else self._audit.to_dict(),
        }

    def to_html(self, path: str | PathLike | None = None) -> str:
        """Return the page as HTML, and write it if a path is given.

        Parameters
        ----------
        path : path-like or None, default=None
            The file to write, in UTF-8.

        Returns
        -------
        str

        Raises
        ------
        ImportError
            matplotlib is not installed.
        """
        privacy, tables = self._privacy, self._tables
        cards = [] if privacy is None else [_privacy_card(privacy)]
        card_of = _table_cards if self._name is None else _released_cards
        for name, measures in tables.items():
            cards += [card | {"what": _of(name) + card["what"]} for card in card_of(measures)]
        left_out = {_of(name): measures["left_out"] for name, measures in tables.items()}
        text = render(
            "quality_report.html",
            title=self.title,
            name=self._name,
            mark=self._mark,
            lead="; ".join(_lead(name, part, self._name) for name, part in tables.items()),
            sampled=[line for name, part in tables.items() for line in _sampled(name, part)],
            left_out=[name + column for name, columns in left_out.items() for column in columns],
            cards=cards,
            verdict=self._verdict,
            spending=[] if privacy is None else spending_rows(privacy, seed=self._seed),
            words=self._words,
            parts=[_part(i, name, part) for i, (name, part) in enumerate(tables.items())],
            orders=_ORDERS,
            full=_FULL,
            privacy=privacy,
            guarantee_mark=None if privacy is None else _mark_of(privacy),
            trade_off=None if privacy is None else _trade_off(privacy),
            audit=self._audit,
            is_violation=self._audit is not None and self._audit.is_violation,
            version=__version__,
        )
        if path is not None:
            Path(path).write_text(text, encoding="utf-8")
        return text

    def __repr__(self):
        marks = {"raw": "not private", "private": "may be published", "void": "no guarantee"}
        rows = sum(
            part["rows"]["synthetic"] if self._name is None else part["n_samples"]
            for part in self._tables.values()
        )
        return f"<QualityReport on {rows:,} synthetic rows, {marks[self._mark]}>"

    def _repr_html_(self) -> str:
        line, verdict = "to_html(path) writes the whole page.", self._verdict
        items = [
            f"{what}: {line}"
            for what, key in (("Fit", "fit"), ("Not fit", "not_fit"))
            for line in verdict[key]
        ]
        return notebook(self.title, items=[*items, *self._words], lines=[(line, None)])


def _compare(real, synthetic, schema, target, constraints, max_rows, random_state):
    """Return the figures of a report on two tables with one row per person."""
    real, synthetic = read_table(real, "real"), read_table(synthetic, "synthetic")
    if constraints and schema is None:
        raise PublicValueError("constraints need a schema, which declares the columns.")
    left_out: list[str] = []
    for label, frame in (("real", real), ("synthetic", synthetic)):
        if not len(frame):
            raise PublicValueError(f"{label} has no rows.")
    if schema is None:
        declared, left_out = observed_schema(real, synthetic)
        if declared is None:
            raise PublicValueError("real and synthetic have no column in common that varies.")
    else:
        # Labels that are not known are compared by those that the synthetic table has.
        declared = schema = schema.with_labels(
            {
                name: column.read_labels(synthetic[name])[1][:-1]
                for name, column in schema.open_columns.items()
                if name in synthetic
            }
        )
        check_table(real, schema, "real")
        check_table(synthetic, schema, "synthetic")
    part = compared(declared)
    left_out += [name for name in declared if name not in part]
    if target is not None and target not in part:
        raise PublicValueError(f"target must be a column that is compared, got {target!r}.")
    first = subsample(real, max_rows, random_state)
    second = subsample(synthetic, max_rows, random_state)
    return measure_tables(
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


def _compare_tables(real, synthetic, schema, target, constraints, max_rows, random_state):
    """Return the figures of a report on tables with keys."""
    if constraints:
        raise PublicValueError("constraints must be None for tables with keys.")
    relational = as_relational(schema)
    names = relational.order
    if target is not None and all(target not in relational[name].schema for name in names):
        raise PublicValueError(f"target must be a column of a table, got {target!r}.")
    given = {"real": real, "synthetic": synthetic}
    frames = {label: read_tables(tables, relational, label) for label, tables in given.items()}
    drawn = {
        label: sample_persons(tables, relational, max_rows, random_state)
        for label, tables in frames.items()
    }
    found = {}
    for name in names:
        first, second = (drawn[label][0][name] for label in given)
        persons = tuple(drawn[label][1][name] for label in given)
        part = compared(relational[name].schema)
        view = row_view({label: tables for label, (tables, _) in drawn.items()}, relational, name)
        measures = {
            "rows": {label: len(frames[label][name]) for label in given},
            "compared": {"real": len(first), "synthetic": len(second)},
            "left_out": [n for n in relational[name].schema if n not in part],
            "columns": [],
        }
        if len(part):
            measures |= measure_tables(
                first,
                second,
                part,
                target=target if target in part else None,
                constraints=None,
                declared=part,
                random_state=random_state,
                persons=None if view is None else persons,
            )
        if view is not None:
            measures["persons"] = measure_rows(view, random_state)
        found[name] = measures
    return {"tables": found}


def _of(name):
    """Return the prefix of what is about a table with keys."""
    return "" if name is None else f"{shorten(name)}: "


def _lead(name, measures, estimator):
    """Return the line below the title about a table."""
    n_columns = f"{_n_columns(measures)} columns"
    if estimator is None:
        rows = measures["rows"]
        what = "records" if name is None else "rows"
        sizes = f"{rows['synthetic']:,} synthetic and {rows['real']:,} real {what}"
        return f"{_of(name)}{sizes}, {n_columns}"
    if measures["n_samples"]:
        what = "records" if name is None else "rows"
        sizes = f"{measures['n_samples']:,} synthetic {what}, {n_columns}"
        return f"{estimator if name is None else shorten(name)}: {sizes}"
    return estimator


def _sampled(name, measures):
    """Yield a line for each table of which rows were drawn."""
    for key, n in measures.get("compared", {}).items():
        if n < measures["rows"][key]:
            what = (
                f"{key} records, drawn at random"
                if name is None
                else f"{key} rows of {shorten(name)}, of random persons"
            )
            yield f"It compares {n:,} {what}."


def _n_columns(measures):
    return measures.get("n_columns", len(measures["columns"]))


def _part(number, name, measures):
    """Return the figures of the sections of one table."""
    return {
        "measures": measures,
        "prefix": "" if name is None else f"table-{number}-",
        "heading": _of(name),
        "n_columns": _n_columns(measures),
        "columns": _shown_columns(measures["columns"]),
        "maps": _maps(measures["correlations"], "Associations of columns")
        if "correlations" in measures
        else None,
        "wasserstein": [
            (shorten(column["name"]), f"{column['wasserstein']:.3g}")
            for column in measures["columns"]
            if "wasserstein" in column
        ],
        "rows": _row_figures(measures["persons"]) if "persons" in measures else None,
    }


def _row_figures(measures):
    """Return the figures of the rows of persons."""
    what = "synthetic" if "real" not in measures["sizes"] else "real and synthetic"
    figures = {
        key: _shares_figure(measures[key], f"{title}: {what} shares") if key in measures else None
        for key, title in (("sizes", "Number of rows of a person"), ("gaps", "Gap of the index"))
    }
    return figures | {
        "index": measures["index"],
        "distances": [
            (name, percent(found), percent(floor))
            for name, found, floor in measures.get("distances", ())
            if not math.isnan(found + floor)
        ],
        "transitions": [
            (column["name"], percent(full), _maps(column, title, full))
            for column in measures.get("transitions", ())
            for full in [_largest(column)]
            for title in [f"Transitions of {shorten(column['name'])}"]
        ],
        "trajectories": [
            (column["name"], _lines(column)) for column in measures.get("trajectories", ())
        ],
    }


def _largest(column):
    """Return the largest share of transitions of a column, for the full colour."""
    shares = np.concatenate([column[key].ravel() for key in ("real", "synthetic") if key in column])
    return float(np.nanmax(shares, initial=0.01))


def _shares_figure(shares, title):
    draw = histogram if shares["chart"] == "histogram" else label_bars
    synthetic = shares["synthetic"]
    return draw(shares.get("real", np.zeros_like(synthetic)), synthetic, shares["labels"], title)


def _lines(column):
    """Return pictures of the rows of a few persons by their headings, on common axes."""
    tables = [key for key in ("real", "synthetic") if key in column]
    rows = [person for key in tables for person in column[key]]
    index = np.concatenate([index for index, _ in rows])
    values = np.concatenate([values for _, values in rows])
    known = values[~np.isnan(values)]
    low, high = (known.min(), known.max()) if len(known) else (0.0, 1.0)
    bounds = (index.min(), index.max()), (low, max(high, low + 1e-9))
    title = f"{shorten(column['name'])} of a few persons: "
    return {
        key.capitalize(): trajectory_lines(column[key], bounds, column["labels"], title + key)
        for key in tables
    }


def _mark_of(privacy):
    """Return "private", or "void" for a release without a guarantee."""
    return "void" if privacy.is_seeded or math.isinf(privacy.epsilon) else "private"


def _shown_columns(columns):
    """Return the columns that differ most, beyond their noise, with their figures and details."""

    def excess(column):
        if "noise" in column:
            return column["noise"] - column["distance"]
        return -column.get("total_variation", 0.0)

    shown = sorted(columns, key=excess)[:_MOST_SHOWN]
    return [
        column
        | {
            "figure": _column_figure(column),
            "beside": _beside(column),
            "details": _details(column),
        }
        for column in shown
    ]


def _beside(column):
    if column.get("noise", 0.0) >= 1:
        return "counts below the noise"
    distance = column.get("distance", column.get("total_variation"))
    return None if distance is None else percent(distance)


def _details(column):
    """Return rows of quantiles, point masses and rare labels of a real and a synthetic column."""
    rows = [
        (f"{what} quantile", real, synthetic)
        for what, real, synthetic in column.get("quantiles", ())
    ]
    rows += [
        (f"exactly {what}", percent(real), percent(synthetic))
        for what, real, synthetic in column.get("point_masses", ())
    ]
    rare = column.get("rare")
    if rare and rare["n"]:
        rows.append((f"{rare['n']} rare labels", percent(rare["real"]), percent(rare["synthetic"])))
        if rare["lost"]:
            rows.append(("of these missing", "", str(rare["lost"])))
    return rows


def _column_figure(column):
    synthetic, errors, what = column["synthetic"], None, "synthetic shares"
    first = np.zeros_like(synthetic)
    if "released" in column:
        first, errors, what = column["released"], 2 * column["errors"], "released and synthetic"
    elif "real" in column:
        first, what = column["real"], "real and synthetic shares"
    title = f"{shorten(column['name'])}: {what}"
    if column["chart"] != "histogram":
        return label_bars(first, synthetic, column["labels"], title, errors=errors)
    widths = column.get("widths")
    return histogram(first, synthetic, column["labels"], title, errors=errors, widths=widths)


def _maps(measures, title, full=1.0):
    """Return heat maps of associations or of transitions by their headings."""
    maps = {"Synthetic": measures["synthetic"] / full}
    if "real" in measures:
        difference = (measures["synthetic"] - measures["real"]) / _FULL
        maps = {"Real": measures["real"] / full, **maps, "Difference": difference}
    return {
        heading: heat_map(matrix, measures["names"], f"{title}: {heading.lower()}")
        for heading, matrix in maps.items()
    }


def _trade_off(privacy):
    display = TradeOffDisplay({"best attacker": privacy.attack_risk()})
    title = "True positive rate of the best attacker against its false positive rate"
    return inline_svg(display.plot, title, height=175, margins=(40, 8, 8, 30))


def _privacy_card(privacy):
    if math.isinf(privacy.epsilon):
        return score("Privacy", "none", "there is no guarantee")
    right = percent_up(privacy.attack_risk().posterior())
    return score(
        "Privacy budget",
        f"ε = {privacy.epsilon:.3g}",
        f"δ = {privacy.delta:.2g}; an attacker's guesses are correct in at most {right}, instead "
        "of 50%",
    )


def _privacy_words(privacy):
    if privacy is None:
        return "This report was given no privacy guarantee."
    if math.isinf(privacy.epsilon):
        return "There is no privacy guarantee."
    known = "all other records" if privacy.unit is None else "the records of all other persons"
    seeded = " The noise was seeded: the guarantee is void for whoever knows the seed."
    return (
        f"The release is ({privacy.epsilon:.3g}, {privacy.delta:.2g})-differentially private: an "
        f"attacker who knows {known} guesses correctly in at most "
        f"{percent_up(privacy.attack_risk().posterior())} of cases, instead of 50%."
        + seeded
        * privacy.is_seeded
    )


def _table_cards(measures):
    cards = []
    for name, found, floor in measures.get("persons", {}).get("distances", ()):
        if name in ("two rows", "transitions") and not math.isnan(found + floor):
            what = {"two rows": "Rows of a person", "transitions": "Transitions"}[name]
            cards.append(
                score(
                    f"{what} agree",
                    f"{100 * (1 - found):.1f}%",
                    f"two halves of the real persons: {100 * (1 - floor):.1f}%",
                    share=1 - found,
                    best=1 - floor,
                )
            )
    if not measures["columns"]:
        return cards
    for order, part in measures["marginals"].items():
        kept, best = 1 - part["mean"], 1 - part["floor"]
        cards.append(
            score(
                f"{_ORDERS[order][0].capitalize()}s agree",
                f"{100 * kept:.1f}%",
                f"two halves of the real table: {100 * best:.1f}%",
                share=kept,
                best=best,
            )
        )
    if measures.get("downstream"):
        name, synthetic, real = measures["downstream"]["models"][0]
        cards.append(
            score(
                "Trained on synthetic",
                f"{synthetic:.3f}",
                f"trained on real: {real:.3f} ({name}, {measures['downstream']['score']})",
                share=synthetic,
                best=real,
            )
        )
    auc = measures["detection"]["auc"]
    beside = "area under the ROC curve of gradient boosting; 0.5 by guessing, 1 always right"
    return [*cards, score("Real or synthetic?", f"{auc:.2f}", beside, share=auc, best=0.5)]


def _released_cards(measures):
    cards = []
    for order, part in measures.get("marginals", {}).items():
        cards.append(
            score(
                f"{_RELEASED[order][0].capitalize()} counts met",
                f"{100 * part['met']:.1f}%",
                f"of the cells of {part['n']} marginals, within two standard deviations of noise",
                share=part["met"],
                best=0.9545,
            )
        )
    return [*cards, score("Drawn", f"{measures['n_samples']:,}", "synthetic records")]


def _released_words(measures):
    for order, part in measures.get("marginals", {}).items():
        yield (
            f"Synthetic shares of {_RELEASED[order][1]} differ from released shares by "
            f"{percent(part['mean'])} of the {measures['counted']} on average; noise alone moves "
            f"released shares by about {percent(part['noise'])}."
        )
    if not measures["n_samples"]:
        yield "This estimator draws no records, so the page shows its guarantee alone."
    elif "marginals" not in measures:
        yield "This estimator keeps no released counts, so the page shows its samples alone."
    for target in measures.get("targets", ()) if "marginals" in measures else ():
        words = constant_words(measures, target)
        if words is not None:
            yield words
    yield from rule_sentences(measures)


def report_on_rows(estimator, drawn, *, seed, title=None):
    """Return the report on the rows that an estimator drew, as they are published.

    Parameters
    ----------
    estimator : estimator
    drawn : data frame or dict of data frames
        What its ``sample`` returned. Nothing else may be given, as the page is marked as covered
        by the guarantee.
    seed : int
        Seed of the draw.
    title : str or None

    Returns
    -------
    QualityReport
    """
    title = title or "Synthetic data report"
    report = QualityReport._of_release(estimator, drawn, None, title, 0)
    report._seed = seed
    return report


def _plain(value):
    if isinstance(value, dict):
        return {str(key): _plain(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(item) for item in value]
    if isinstance(value, np.ndarray):
        return _plain((value.astype(str) if value.dtype.kind == "M" else value).tolist())
    if isinstance(value, float) and np.isnan(value):
        return None
    return value
