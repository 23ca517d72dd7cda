"""The sections of a page about a real and a synthetic table."""

from sklearn_dpgen.reporting._certificate import section
from sklearn_dpgen.reporting._svg import heat_map, histogram, label_bars, percent
from sklearn_dpgen.utils._html import element, shorten

__all__ = [
    "MOST_SHOWN",
    "column_figure",
    "column_sections",
    "joined_names",
    "legend",
    "map_figure",
    "table",
]

# Columns with a picture of their own.
MOST_SHOWN = 120
# A difference of associations that has the full colour.
_FULL = 0.2


def table(head, rows, *, numbers=()):
    """Return a table that scrolls where it is too wide.

    Parameters
    ----------
    head : sequence of str
    rows : iterable of sequence
    numbers : collection of int
        The places of columns of numbers, which are set flush right.
    """

    def cell(tag, place, content):
        return element(tag, content, class_="num" if place in numbers else None)

    found = element(
        "table",
        element("thead", element("tr", [cell("th", *item) for item in enumerate(head)])),
        element(
            "tbody",
            [element("tr", [cell("td", *item) for item in enumerate(row)]) for row in rows],
        ),
    )
    return element("div", found, class_="scroll")


def legend(**classes):
    """Return what colours mean: words by class."""
    keys = [
        element("span", element("i", class_=class_), words) for class_, words in classes.items()
    ]
    return element("div", keys, class_="legend")


def column_sections(found):
    """Return the sections of what is measured on both tables.

    Parameters
    ----------
    found : dict
        Of ``measure_tables``.

    Returns
    -------
    list of Html
    """
    parts = [_columns(found)]
    if "correlations" in found:
        parts.append(_pairs(found["correlations"], found["marginals"][2]))
    if 3 in found["marginals"]:
        parts.append(_triples(found["marginals"][3]))
    if found.get("downstream"):
        parts.append(_downstream(found["downstream"]))
    parts += [_detection(found["detection"]), _distances(found)]
    if found.get("rules"):
        parts.append(_rules(found["rules"]))
    return parts


def _columns(found):
    columns = sorted(found["columns"], key=lambda column: -column["total_variation"])
    shown = columns[:MOST_SHOWN]
    note = (
        "Each column by itself, those farthest apart first. The figure beside a name is the total "
        "variation distance: the share of records that would have to change."
    )
    if len(columns) > len(shown):
        note += f" Pictures are of {len(shown)} of {len(columns)} columns."
    return section(
        "columns",
        "Single columns",
        element("p", note, class_="note"),
        legend(k1="real", k2="synthetic"),
        element("div", [_column(column) for column in shown], class_="grid"),
        mark="raw",
    )


def column_figure(column, first, what, words, *details, errors=None):
    """Return the card of one column.

    Parameters
    ----------
    column : dict
        With ``"name"``, ``"chart"``, ``"labels"`` and ``"synthetic"``.
    first : ndarray
        Shares beside those of the synthetic records.
    what, words : str
        For those who do not see the picture, and beside the name.
    *details : Html
    errors : ndarray or None
        Half lengths of the whiskers of ``first``.
    """
    name = shorten(column["name"])
    draw = histogram if column["chart"] == "histogram" else label_bars
    options = {"errors": errors, "title": f"{name}: {what}"}
    return element(
        "figure",
        element(
            "div",
            element("h3", name, title=shorten(column["name"], 300)),
            element("span", words),
            class_="top",
        ),
        draw(first, column["synthetic"], column["labels"], **options),
        details,
        class_="card",
    )


def map_figure(heading, matrix, names):
    """Return the card of a heat map of associations."""
    title = f"Associations of pairs of columns: {heading.lower()}"
    top = element("div", element("h3", heading), class_="top")
    return element("figure", top, heat_map(matrix, names, title=title), class_="card")


def _column(column):
    rows = [(f"{what} below", real, other) for what, real, other in column.get("quantiles", ())]
    rows += [
        (f"exactly {what}", percent(real), percent(other))
        for what, real, other in column.get("heaps", ())
    ]
    rare = column.get("rare")
    if rare and rare["n"]:
        rows.append((f"{rare['n']} rare labels", percent(rare["real"]), percent(rare["synthetic"])))
        if rare["lost"]:
            rows.append(("of these missing", "", str(rare["lost"])))
    details = rows and element(
        "details",
        element("summary", "tails and heaps" if "quantiles" in column else "rare labels"),
        table(["", "real", "synthetic"], rows, numbers=(1, 2)),
    )
    words = f"{column['kind']} · {percent(column['total_variation'])}"
    return column_figure(
        column, column["real"], "real and synthetic shares", words, details or None
    )


def _pairs(found, distances):
    maps = {
        "Real": found["real"],
        "Synthetic": found["synthetic"],
        "Difference": (found["synthetic"] - found["real"]) / _FULL,
    }
    pictures = [map_figure(name, matrix, found["names"]) for name, matrix in maps.items()]
    note = (
        "Spearman's correlation of columns with an order, and Cramér's V of others. Columns go "
        f"from left to right as from top to bottom. Colours are full at 1, and at {_FULL:g} in the "
        "difference of synthetic from real."
    )
    if len(found["names"]) < found["n_columns"]:
        note += f" Shown are the {len(found['names'])} columns that are farthest apart."
    return section(
        "pairs",
        "Pairs of columns",
        element("p", note, class_="note"),
        element("div", pictures, class_="three"),
        legend(k2="positive", k3="negative"),
        _worst(distances, "pairs"),
        mark="raw",
    )


def _triples(distances):
    return section("triples", "Triples of columns", _worst(distances, "triples"), mark="raw")


def _worst(distances, what):
    rows = [(joined_names(names), percent(distance)) for names, distance in distances["worst"]]
    drawn = "randomly drawn " * (distances["n"] < distances["n_all"])
    note = (
        f"Over {drawn}{distances['n']} {what}, records differ in cells by "
        f"{percent(distances['mean'])} on average; two random halves of the real table differ by "
        f"{percent(distances['floor'])}. Farthest apart:"
    )
    return [
        element("p", note, class_="note"),
        table([what, "total variation"], rows, numbers=(1,)),
    ]


def joined_names(names):
    """Return names one beside the other, in this order whatever way each is written."""
    parts = [element("bdi", shorten(name, 28)) for name in names]
    return [part for name in parts for part in (" × ", name)][1:]


def _downstream(found):
    rows = [
        (name, f"{synthetic:.3f}", f"{real:.3f}", f"{synthetic - real:+.3f}")
        for name, synthetic, real in found["models"]
    ]
    note = (
        f"Models that predict {shorten(found['target'])}, trained on {found['n_synthetic']:,} "
        f"synthetic or on {found['n_real']:,} real records, and tested on {found['n_test']:,} "
        f"other real ones. The score is the {found['score']}; what learns nothing has "
        f"{found['constant']:.3f}."
    )
    return section(
        "downstream",
        "Train on synthetic, test on real",
        element("p", note, class_="note"),
        table(
            ["model", "trained on synthetic", "trained on real", "difference"],
            rows,
            numbers=(1, 2, 3),
        ),
        mark="raw",
    )


def _detection(found):
    rows = [("gradient boosting, area under the ROC curve", f"{found['auc']:.3f}", "0.5")]
    if found["pmse_ratio"] is not None:
        rows.append(
            ("logistic regression, propensity error ratio", f"{found['pmse_ratio']:.3g}", "2")
        )
    note = (
        f"Classifiers that tell synthetic records from real ones, of {found['n']:,} each. With the "
        "value on the right they cannot tell."
    )
    return section(
        "detection",
        "Can they be told apart?",
        element("p", note, class_="note"),
        table(["classifier", "value", "same law"], rows, numbers=(1, 2)),
        mark="raw",
    )


def _distances(found):
    rows = [
        (shorten(column["name"]), f"{column['wasserstein']:.3g}")
        for column in found["columns"]
        if "wasserstein" in column
    ]
    parts = []
    if found["distances"]:
        parts.append(
            element(
                "p",
                "The sliced Wasserstein distance of encoded records is "
                f"{found['distances']['sliced']:.3g}; between two random halves of the real table "
                f"it is {found['distances']['floor']:.3g}.",
                class_="note",
            )
        )
    if rows:
        parts.append(
            element(
                "details",
                element("summary", "Wasserstein distance of each column of numbers"),
                table(["column", "in standard deviations"], rows, numbers=(1,)),
            )
        )
    return section("distances", "Distances", parts, mark="raw")


def _rules(found):
    rows = [
        (shorten(rule["rule"], 160), percent(rule["real"]), percent(rule["synthetic"]))
        for rule in found
    ]
    return section(
        "rules",
        "Rules",
        element("p", "The share of records that break a declared rule.", class_="note"),
        table(["rule", "real", "synthetic"], rows, numbers=(1, 2)),
        mark="raw",
    )
