"""Pictures of a release: released counts, synthetic rows, and for the curator the real ones."""

from typing import Any

from sklearn_dpgen.app._columns import tables_of
from sklearn_dpgen.app._work import Answer, Work
from sklearn_dpgen.command_line._console import CommandError
from sklearn_dpgen.utils._html import percent

__all__ = ["columns_to_show", "look", "real_beside"]

_MODEL = "model.safetensors"
# Labels of which each has a bar of its own.
_MOST_BARS = 24


def columns_to_show(work: Work) -> list[str]:
    """Return the columns that a release has counts of; none before the release."""
    if _MODEL not in work.files:
        return []
    names = [(t, c) for t, own in tables_of(work.written()).items() for c, entry in own.items()
             if entry.get("type") != "identifier"]  # fmt: skip
    return [f"{t}.{c}" if t else c for t, c in names]


def look(work: Work) -> None:
    """Draw released counts beside synthetic ones, in a thread."""

    def own():
        # Another column may be chosen while one is drawn; the last to end has the last choice.
        while True:
            names = _names(work)
            found = _shown(_released(work), "released, with two standard errors")
            if names == _names(work):
                return found

    work.call("look", own)


def real_beside(work: Work) -> None:
    """Draw real records beside synthetic ones, in a thread: for the curator alone."""
    work.call("real", lambda: _shown(_real(work), "REAL, without noise: do not publish"))


def _names(work):
    names = columns_to_show(work)
    column = work.values["column"]
    column = column if column in names else names[0]
    second = work.values["second"]
    return (column, second) if second in names and second != column else (column,)


def _axes():
    from matplotlib.figure import Figure

    return Figure().add_subplot()


def _released(work):
    import sklearn_dpgen
    from sklearn_dpgen.reporting import MarginalDisplay, PairDisplay

    path = work.release / _MODEL
    stamp = path.stat().st_mtime_ns
    if work.pictures.get("stamp") != stamp:
        work.pictures = {"stamp": stamp, "model": sklearn_dpgen.load(path)}
    model, names = work.pictures["model"], _names(work)
    if "tables" in work.declaration:
        return _of_tables(work, model, names)
    if len(names) == 2:
        return PairDisplay.from_estimator(model, names, ax=_axes())
    return MarginalDisplay.from_estimator(model, names[0], ax=_axes())


def _of_tables(work, model, names):
    """Return what the report has of a column of tables with keys."""
    from sklearn_dpgen.reporting import MarginalDisplay
    from sklearn_dpgen.reporting._released import Released
    from sklearn_dpgen.reporting._row_measures import measure_released_tables

    if len(names) == 2:
        raise CommandError("Pairs of columns of tables with keys are in the report.")
    if "tables" not in work.pictures:
        found = measure_released_tables(Released(model), round(model.n_records_), 0)["tables"]
        work.pictures["tables"] = {
            f"{table}.{column['name']}": column for table, own in found.items()
            for column in own["columns"]
        }  # fmt: skip
    own = work.pictures["tables"].get(names[0])
    if own is None:
        raise CommandError(f"There are no counts of {names[0]!r}: see the report.")
    words = {"errors": own["errors"], "name": names[0], "first_name": "released"}
    return MarginalDisplay(own["released"], own["synthetic"], own["labels"], **words)


def _real(work):
    from sklearn_dpgen.command_line._files import files_of, in_format, read_frame, read_schema
    from sklearn_dpgen.reporting import MarginalDisplay, PairDisplay

    names = _names(work)
    schema: Any = read_schema(str(work.schema), {})
    table = ""
    files = {"": work.inputs()}
    if "tables" in work.declaration:
        table = next(t for t in work.tables if names[0].startswith(f"{t}."))
        names = tuple(name.removeprefix(f"{table}.") for name in names)
        schema, files = schema[table].schema, work.files_of_tables()
    stem = f"synthetic-{table}." if table else "synthetic."
    own = [str(work.release / name) for name in work.files if name.startswith(stem)]
    columns = {name: schema[name] for name in names}
    real, synthetic = (
        read_frame(in_format(files_of(paths), schema.form), columns)
        for paths in (files[table], own)
    )
    if len(names) == 2:
        return PairDisplay.from_frames(real, synthetic, names, schema=schema, ax=_axes())
    return MarginalDisplay.from_frames(real, synthetic, names[0], schema=schema, ax=_axes())


def _shown(display: Any, what: str) -> Answer:
    """Return a picture and its numbers."""
    from sklearn_dpgen.reporting._figures import histogram, inline_svg, label_bars

    found = Answer()
    if hasattr(display, "names"):
        a, b = display.names
        title = f"Pairs of {a} and {b}: synthetic share minus {display.first_name} share."

        # The bar of colours takes its room from the axes.
        svg = inline_svg(display.plot, title, height=200, margins=(60, 40, 20, 50))
        rows = [
            (u, v, percent(max(display.first[i][j], 0)), percent(display.second[i][j]))
            for i, u in enumerate(display.labels[0])
            for j, v in enumerate(display.labels[1])
        ]
        heads = [a, b, display.first_name, display.second_name]
    else:
        errors = None if display.errors is None else 2 * display.errors
        few = len(display.labels) <= _MOST_BARS
        blue = "blue is synthetic, with its share" if few else "blue is synthetic"
        title = f"Shares of {display.name}: grey is {what}; {blue}."
        draw_shares: Any = label_bars if few else histogram
        svg = draw_shares(display.first, display.second, display.labels, title, errors=errors)
        noise = [None] * len(display.labels) if errors is None else errors
        rows = [
            (label, percent(max(x, 0)), *([] if e is None else [f"± {percent(e)}"]), percent(y))
            for label, x, y, e in zip(
                display.labels, display.first, display.second, noise, strict=True
            )
        ]
        heads = [display.name, display.first_name, "synthetic"]
        heads[2:2] = [] if errors is None else ["noise"]
    found.result(title, {"svg": svg, "rows": rows, "heads": heads})
    return found
