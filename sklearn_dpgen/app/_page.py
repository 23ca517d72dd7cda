"""The page: what it shows of a piece of work, and what a user does to it."""

import functools
import os
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import jinja2
from shiny import App, Inputs, Outputs, Session, reactive, render, ui
from starlette.requests import Request
from starlette.responses import FileResponse, PlainTextResponse
from starlette.routing import Route

from sklearn_dpgen.app._columns import FIELDS, TYPES, fields_of, schema_text, text_of
from sklearn_dpgen.app._look import columns_to_show, look, real_beside
from sklearn_dpgen.app._work import Work
from sklearn_dpgen.utils._html import percent

__all__ = ["make_app"]

_HOME = Path(__file__).parents[1] / "templates"
# The oldest of more pieces of work is forgotten; its files stay.
_MOST_WORKS = 20
_SECONDS = 0.3
_NAMES = tuple(FIELDS)
_SPLIT = _NAMES.index("")
# For each word of a table its label, its help and the rows of its field.
_RULES = ("rules", "Rules, one a line", "Such as admitted <= discharged.", 3)
_CSV = (
    ("delimiter", "Delimiter of CSV files", "Empty: a comma.", 0),
    ("encoding", "Encoding of CSV files", "Empty: utf-8.", 0),
)
_WORDS = (_RULES, *_CSV)
_KEYS = (
    ("primary_key", "Column that identifies a row", "Or none.", 0),
    ("foreign_key", "Keys of other tables", "Such as {patient: patients}, or none.", 0),
    ("sequence_index", "Column that orders the rows of a person", "Or none.", 0),
    ("max_rows", "Most rows of a person", "A public bound, or none.", 0),
    ("static", "Columns that are the same in all rows of a person", "Such as [sex, born].", 0),
    _RULES, *_CSV,
)  # fmt: skip
# For each part of the page what it depends on.
_PARTS = {
    "browser": ["browsed"], "drafted": ["drafted"], "undone": ["undone"], "gaps": ["gaps"],
    "schema": ["schema"], "text_": ["text"], "checked": ["checked"],
    "purpose": ["schema", "purpose"], "planned": ["planned", "gaps"], "ledger_": ["ledger"],
    "fit_": ["fit"], "progress": ["progress"], "choice": ["schema", "release", "fit"],
    "look_": ["look"], "real_": ["real", "schema", "release", "fit"],
    "release_": ["release", "fit"], "verified_": ["verified", "fit"], "lines_": ["lines"],
}  # fmt: skip
_REPORT_POLICY = (
    "sandbox allow-popups; default-src 'none'; style-src 'unsafe-inline'; img-src data:; "
    "font-src data:"
)


@functools.cache
def _environment():
    found = jinja2.Environment(
        loader=jinja2.FileSystemLoader(_HOME), autoescape=True, trim_blocks=True, lstrip_blocks=True
    )
    found.globals |= {
        "labels": FIELDS, "types": TYPES, "fields_of": fields_of, "text_of": text_of,
        "first": _NAMES[:_SPLIT], "later": _NAMES[_SPLIT + 1 :], "flow": _flow, "percent": percent,
        "less": lambda share: percent(share) if share > 1e-4 else "0.01%",
    }  # fmt: skip
    return found


def _flow(value):
    """Return the text of a word of a table, as YAML in one line."""
    if isinstance(value, dict):
        return "{" + ", ".join(f"{k}: {v}" for k, v in value.items()) + "}"
    return f"[{text_of(value)}]" if isinstance(value, list) else text_of(value)


def make_app() -> tuple[App, Callable[[], None]]:
    """Return the application, and a function that stops what it runs."""
    works: dict[str, Work] = {}

    def page(request: Request) -> Any:
        name = request.query_params.get("work", "")
        if name in works:
            # The last that was looked at is the last to be forgotten.
            works[name] = works.pop(name)
        else:
            idle = [n for n, w in works.items() if w.job is None or not w.job.running]
            for old in idle[: max(0, len(works) - _MOST_WORKS + 1)]:
                del works[old]
            work = Work()
            works[work.name] = work
            name = work.name
        head = ui.head_content(
            # The name of the work stays in the address, so that a reload finds it.
            ui.tags.link(rel="stylesheet", href="own/app.css"),
            ui.tags.script(src="own/app.js", defer=""),
            ui.tags.link(rel="icon", href="data:,"),
        )
        body = _environment().get_template("app_page.html").render(work=works[name])
        return ui.page_fluid(
            head, ui.HTML(body), ui.tags.div(id="work", hidden="", **{"data-work": name}),
            title="sklearn-dpgen", lang="en",
        )  # fmt: skip

    def server(input: Inputs, output: Outputs, session: Session) -> None:
        _connect(works, input, output, session)

    app = App(page, server, static_assets={"/own": _HOME})

    async def release(request: Request) -> Any:
        work, name = works.get(request.path_params["work"]), request.path_params["name"]
        path = work.release / name if work and name in work.files else None
        if path is None:
            return PlainTextResponse("There is no such file.", status_code=404)
        return FileResponse(path, headers={"content-security-policy": _REPORT_POLICY})

    app.starlette_app.router.routes.insert(0, Route("/release/{work}/{name}", release))

    def close():
        for work in works.values():
            if work.job is not None:
                work.job.stop(within=20)

    return app, close


def _connect(works, input, output, session):
    """Connect a page with its work: an event for all that is done, and a look at what changed."""
    macros = _environment().get_template("app_parts.html").module
    parts = {part for needed in _PARTS.values() for part in needed}
    parts |= {"values", "edits", "gaps"}
    seen = {part: reactive.value(0) for part in parts}
    found: dict[str, Any] = {}

    def work() -> Work | None:
        if not found:
            own = works.get(session.clientdata.url_search().rpartition("work=")[2])
            if own is not None:
                found.update(work=own, edits=len(own.edits))
        return found.get("work")

    def look_again(own):
        own.replan()
        for part, value in seen.items():
            value.set(own.versions.get(part, 0))

    @reactive.effect
    def _watch():
        reactive.invalidate_later(_SECONDS)
        if (own := work()) is not None:
            look_again(own)

    @reactive.effect
    @reactive.event(input.act)
    def _act():
        if (own := work()) is not None:
            _do(own, input.act(), session.id)
            look_again(own)

    def show(name, needed):
        def shown():
            for part in needed:
                seen[part]()
            own = work()
            if own is None:
                return None
            return ui.HTML(
                str(getattr(macros, name)(own, *(_MORE[name](own) if name in _MORE else ())))
            )

        output(render.ui(shown), id=name)

    for name, needed in _PARTS.items():
        show(name, needed)

    def tell(name, *needed):
        def told(make):
            @reactive.effect
            async def _tell():
                for part in needed:
                    seen[part]()
                own = work()
                if own is not None:
                    await session.send_custom_message(f"work-{name}", make(own))

        return told

    tell("values", "values")(lambda own: own.values)
    tell("faults", *("drafted", "planned", "ledger", "fit", "verified"))(_faults)
    tell("notes", "gaps")(_notes)
    tell("yaml", "gaps", "schema")(lambda own: _yaml(own) if own.declaration else "")

    @reactive.effect
    async def _rows():
        seen["edits"]()
        own = work()
        if own is None:
            return
        new, found["edits"] = own.edits[found["edits"] :], len(own.edits)
        for edit in new:
            if edit["table"] == own.values["table"]:
                await session.send_custom_message("work-row", _row(own, edit, session.id, macros))


def _browsed(work):
    """Return the names of folders and tables beside one another; no file is opened."""
    from sklearn_dpgen.command_line._fit import _ENDINGS

    path = os.path.abspath(os.path.expanduser(work.values["browsed"] or "."))
    found: dict[str, Any] = {"folder": path, "parent": os.path.dirname(path), "fault": ""}
    found |= {"folders": [], "files": []}
    try:
        entries = sorted(os.scandir(path), key=lambda entry: entry.name.lower())
    except OSError as error:
        return ({**found, "fault": os.strerror(error.errno or 0)},)
    for entry in entries:
        if entry.name.startswith("."):
            continue
        if entry.is_dir():
            found["folders"].append((entry.name, entry.path))
        elif entry.name.lower().endswith((*_ENDINGS, ".sqlite", ".db")):
            found["files"].append((entry.name, entry.path))
    return (found,)


def _schema(work):
    table = work.values["table"]
    words = _KEYS if "tables" in work.declaration else _WORDS
    return (table, work.tables.get(table, {}), words, _notes(work))


def _yaml(work):
    return schema_text(work.written(), work.notes, work._head)


def _purpose(work):
    pairs = [(f"{t}.{c}" if t else c, e.get("type")) for t, own in work.tables.items()
             for c, e in own.items()]  # fmt: skip
    targets = [name for name, kind in pairs if kind in TYPES and kind != "identifier"]
    return targets, work.identifiers


def _choice(work):
    names = columns_to_show(work)
    if names and work.values["column"] not in names:
        work.values["column"] = names[0]
    if names and not {"look"} & (work.busy | work.answers.keys()):
        look(work)
    return (names,)


_MORE: dict[str, Callable[[Work], tuple]] = {
    "browser": _browsed,
    "schema": _schema,
    "purpose": _purpose,
    "choice": _choice,
    "real_": lambda work: (columns_to_show(work),),
}


def _faults(work):
    """Return the errors of fields, which stand beside them."""
    parts = ("drafted", "planned", "ledger", "fit", "verified")
    answers = [work.answers[part] for part in parts if part in work.answers]
    return {own.field: own.text for own in answers if not own.ok and own.field}


def _notes(work):
    """Return what each row of the schema lacks, or what is wrong with it."""
    valid = work.answers.get("valid")
    fault = valid.text if valid is not None and not valid.ok else ""
    notes = {}
    for i, (name, entry) in enumerate(work.tables.get(work.values["table"], {}).items()):
        is_wrong = re.search(f"(?<!\\w){re.escape(repr(name))}(?!\\w)", fault)
        left = [FIELDS.get(field, field) for field, value in entry.items() if value == "..."]
        notes[f"c{i}"] = fault if is_wrong else f"To declare: {', '.join(left)}." if left else ""
    return notes


def _row(work, edit, who, macros):
    """Return what an edit changes in the row of its column."""
    table, column, field = edit["table"], edit["column"], edit["field"]
    fault = work.faults.get((table, column, field), "")
    if not column:
        return {"key": "", "kind": "", "html": None, "faults": {f"w-{field}": fault}}
    columns = work.tables[table]
    key, html = f"c{[*columns].index(column)}", None
    if field == "type" or edit["who"] != who:
        html = str(macros.cells(work, table, key, column, columns[column]))
    kind = columns[column].get("type")
    return {"key": key, "kind": kind, "html": html, "faults": {f"{key}-{field}": fault}}


def _do(work, what, who):
    """Do what a user asks for."""
    act, value = what.get("do"), str(what.get("value", ""))
    if act == "set":
        work.set(what["name"], value)
        if what["name"] in ("column", "second"):
            _hide(work)
            look(work)
    elif act == "edit":
        if what["column"] in work.tables.get(what["table"], {}) or not what["column"]:
            work.edit(what["table"], what["column"], what["field"], value, who)
    elif act == "text":
        work.take_text(value)
    elif act in ("browse", "take"):
        work.set({"browse": "browsed", "take": "file"}[act], value)
        work.changed("browsed")
    elif act in _ACTS:
        _ACTS[act](work)


def _hide(work):
    work.answers.pop("real", None)
    work.changed("real")


_ACTS: dict[str, Callable[[Work], Any]] = {
    "draft": Work.draft, "undo": Work.undo, "redo": Work.redo, "plan": Work.plan,
    "check": Work.check, "ledger": Work.open_ledger, "fit": Work.start, "stop": Work.stop,
    "verify": Work.verify, "real": real_beside, "hide": _hide,
}  # fmt: skip
