"""The page about released counts and samples, which is as private as these."""

import numpy as np

from sklearn_dpgen.reporting._certificate import section
from sklearn_dpgen.reporting._sections import (
    MOST_SHOWN,
    column_figure,
    joined_names,
    legend,
    map_figure,
    table,
)
from sklearn_dpgen.reporting._summary import score_card
from sklearn_dpgen.reporting._svg import percent
from sklearn_dpgen.utils._html import element, shorten

__all__ = ["released_cards", "released_sections", "released_words"]

_CARDS = {1: "Column", 2: "Pair", 3: "Triple"}
_ORDERS = {1: "single columns", 2: "pairs", 3: "triples"}


def released_cards(found):
    """Return the cards of what was released and drawn."""
    cards = []
    for order, part in found.get("marginals", {}).items():
        cards.append(
            score_card(
                f"{_CARDS[order]} counts met",
                f"{100 * part['met']:.1f}%",
                f"in {part['n']} tables, within two standard deviations of their noise",
                share=part["met"],
                mark=0.9545,
            )
        )
    cards.append(score_card("Drawn", f"{found['n_samples']:,}", "synthetic records"))
    return cards


def released_words(found):
    """Return sentences about what was released and drawn."""
    for order, part in found.get("marginals", {}).items():
        yield (
            f"Synthetic shares differ from released shares of {_ORDERS[order]} by "
            f"{percent(part['mean'])} of the records on average; noise alone makes released shares "
            f"differ from the true ones by {percent(part['noise'])}."
        )
    if not found["n_samples"]:
        yield "This estimator draws no records: the certificate is all there is to show."
    elif "marginals" not in found:
        yield "This estimator keeps no released counts: what is shown are its samples alone."
    for rule in found.get("rules", ()):
        if rule["synthetic"] > 0:
            yield (
                f"The rule {shorten(rule['rule'], 80)} is broken by {percent(rule['synthetic'])} "
                "of the synthetic records."
            )


def released_sections(found, mark):
    """Return the sections of what was released and drawn.

    Parameters
    ----------
    found : dict
        Of ``measure_released``.
    mark : {"private", "void"}
    """
    parts = []
    if found["columns"]:
        parts.append(_columns(found, mark))
    if "correlations" in found:
        parts.append(_pairs(found, mark))
    for order in (2, 3):
        if order in found.get("marginals", {}):
            parts.append(_tables(found["marginals"][order], order, mark))
    if found.get("rules"):
        rows = [(shorten(r["rule"], 160), percent(r["synthetic"])) for r in found["rules"]]
        note = element("p", "The share of records that break a declared rule.", class_="note")
        rules = table(["rule", "synthetic"], rows, numbers=(1,))
        parts.append(section("rules", "Rules", note, rules, mark=mark))
    return parts


def _columns(found, mark):
    columns = found["columns"]
    is_counted = "marginals" in found
    if is_counted:
        columns = sorted(columns, key=lambda column: column["noise"] - column["distance"])
    shown = columns[:MOST_SHOWN]
    note = "Each column by itself."
    if is_counted:
        note = (
            "Counts as they were released, with noise, and the synthetic records. Whiskers are two "
            "standard deviations of the noise. First are those that differ most beyond it."
        )
    if len(shown) < found["n_columns"]:
        note += f" Pictures are of {len(shown)} of {found['n_columns']} columns."
    keys = {"k1": "released"} if is_counted else {}
    return section(
        "columns",
        "Single columns",
        element("p", note, class_="note"),
        legend(**keys, k2="synthetic"),
        element("div", [_column(column) for column in shown], class_="grid"),
        mark=mark,
    )


def _column(column):
    if "released" not in column:
        none = np.zeros_like(column["synthetic"])
        return column_figure(column, none, "synthetic shares", column["kind"])
    words = f"{column['kind']} · {percent(column['distance'])}"
    what = "released and synthetic shares"
    return column_figure(column, column["released"], what, words, errors=2 * column["errors"])


def _pairs(found, mark):
    part = found["correlations"]
    note = (
        "Spearman's correlation of columns with an order, and Cramér's V of others, of the "
        "synthetic records. Columns go from left to right as from top to bottom."
    )
    if len(part["names"]) < found["n_columns"]:
        note += f" Shown are the first {len(part['names'])} columns."
    return section(
        "pairs",
        "Associations",
        element("p", note, class_="note"),
        element("div", map_figure("Synthetic", part["synthetic"], part["names"]), class_="narrow"),
        legend(k2="positive", k3="negative"),
        mark=mark,
    )


def _tables(part, order, mark):
    rows = [
        (joined_names(names), percent(distance), percent(noise))
        for names, distance, noise in part["worst"]
    ]
    note = f"Of {part['n']} released tables, those that samples are farthest from, beyond noise."
    return section(
        f"tables-{order}",
        f"Released {_ORDERS[order]}",
        element("p", note, class_="note"),
        table([_ORDERS[order], "distance", "of noise alone"], rows, numbers=(1, 2)),
        mark=mark,
    )
