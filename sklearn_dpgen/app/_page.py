"""The page: its parts, and what connects them to a piece of work."""

import asyncio
from collections.abc import Callable
from pathlib import Path
from typing import Any

from shiny import App, Inputs, Outputs, Session, reactive, render, req, ui
from starlette.requests import Request
from starlette.responses import FileResponse, PlainTextResponse
from starlette.routing import Route

from sklearn_dpgen.app._work import GAP, Answer, Work, answer

__all__ = ["make_app"]

_TYPES = ("...", "numeric", "datetime", "categorical", "ordinal", "open_categorical")
_TYPES += ("identifier", "leave out")
_BOUNDED = ("numeric", "datetime")
_LABELLED = ("categorical", "ordinal")
# For each field of a column its label and the types that have it.
_FIELDS = {
    "low": ("low", _BOUNDED),
    "high": ("high", _BOUNDED),
    "integer": ("whole numbers", ("numeric",)),
    "resolution": ("resolution", ("datetime",)),
    "categories": ("labels, with commas", _LABELLED),
    "missing": ("missing codes", (*_BOUNDED, *_LABELLED)),
    "nullable": ("may be missing", (*_BOUNDED, *_LABELLED, "open_categorical")),
}
_FLAGS = ("integer", "nullable")
_STYLE = """
body { max-width: 72rem; margin: auto; padding: 1rem; }
section { margin-block: 2rem; }
pre { white-space: pre-wrap; max-height: 28rem; overflow: auto; }
.curator { border-inline-start: .4rem solid var(--bs-danger); padding-inline-start: 1rem; }
.schema td, .schema th { vertical-align: top; padding: .4rem; }
.schema .form-group { margin: 0; width: auto !important; }
.schema label { font-size: .8rem; margin: 0; }
.schema .fields { display: flex; flex-wrap: wrap; gap: .5rem 1rem; align-items: end; }
.schema .fields input[type=text] { width: 9rem; }
.schema .fields .categories input { width: 18rem; }
.schema .field { display: none; }
.schema .note { font-size: .8rem; color: var(--bs-secondary-color); }
@media (max-width: 40rem) {
  .schema thead { display: none; }
  .schema tr, .schema td, .schema th { display: block; width: 100%; }
  .schema tr { border-bottom: 1px solid var(--bs-border-color); padding-block: .5rem; }
  .schema .fields .categories input { width: 100%; }
}
"""
# A field is shown by the type that is chosen in its row, without a call of the server.
_SHOWN = ",\n".join(
    f'.schema tr:has(option[value="{kind}"]:checked) .{field}'
    for field, (_, kinds) in _FIELDS.items()
    for kind in kinds
)
_COPY = """
document.addEventListener('click', (event) => {
  const from = event.target.dataset.copies;
  if (!from) return;
  navigator.clipboard.writeText(document.getElementById(from).innerText);
  event.target.textContent = 'Copied';
});
"""


# Shiny's slider is a text box to a screen reader; the range of HTML is one that is known to it.
_RANGE = """
Shiny.inputBindings.register(new class extends Shiny.InputBinding {
  find(scope) { return $(scope).find('input[type=range]'); }
  getValue(el) { return Number(el.value); }
  setValue(el, value) { el.value = value; }
  getRatePolicy() { return {policy: 'debounce', delay: 250}; }
  subscribe(el, callback) {
    el.oninput = () => { el.nextElementSibling.value = el.value; callback(true); };
  }
  unsubscribe(el) { el.oninput = null; }
}(), 'range');
"""


def make_app() -> tuple[App, Callable[[], None]]:
    """Return the application, and a function that stops what it runs."""
    works: dict[str, Work] = {}

    def page(request: Request) -> Any:
        work = works.get(request.query_params.get("work", ""))
        if work is None:
            work = Work()
            works[work.name] = work
            # The name of the work stays in the address, so that a reload finds it.
            return ui.page_fluid(ui.tags.script(f"location.replace('/?work={work.name}')"))
        return _page(work)

    def server(input: Inputs, output: Outputs, session: Session) -> None:
        name = session.http_conn.query_params.get("work", "")
        _Session(works, name, input, output, session)

    app = App(page, server)

    async def report(request: Request) -> Any:
        work = works.get(request.path_params["work"])
        path = Path(work.release, "report.html") if work else Path()
        if not path.is_file():
            return PlainTextResponse("There is no report.", status_code=404)
        return FileResponse(path)

    app.starlette_app.router.routes.insert(0, Route("/report/{work}", report))

    def close():
        for work in works.values():
            if work.job is not None:
                work.job.stop()

    return app, close


def _page(work: Work) -> Any:
    get = work.values.get
    return ui.page_fluid(
        ui.head_content(
            ui.tags.style(_STYLE + _SHOWN + " { display: block; }"), ui.tags.script(_COPY)
        ),
        ui.tags.a("To the steps", href="#steps", class_="visually-hidden-focusable"),
        ui.tags.header(
            ui.h1("From a table to a release"),
            ui.p("On this machine alone. Files stay where they are."),
            ui.input_dark_mode(id="mode"),
        ),
        ui.tags.main(
            _section(
                "1. File",
                ui.input_text("file", "Path of the table", get("file", ""), width="100%"),
                ui.input_text(
                    "folder",
                    "Folder for all that is written",
                    get("folder", ""),
                    width="100%",
                ),
                ui.input_action_button("draft", "Draft a schema"),
                _live("drafted"),
            ),
            _section(
                "2. Schema",
                ui.p("From public knowledge alone: a schema is published with the release."),
                ui.output_ui("schema"),
                _live("gaps"),
            ),
            _section(
                "3. Check",
                ui.p("For the curator only: exact counts of the records. Do not publish them."),
                ui.input_task_button("check", "Check the table", label_busy="Reading"),
                _live("checked"),
                class_="curator",
            ),
            _section(
                "4. Purpose and budget",
                ui.output_ui("purpose"),
                _range("epsilon", "Epsilon", 0.1, 10, get("epsilon", 1), step=0.1),
                ui.input_text("delta", "Delta", get("delta", "1e-6")),
                ui.input_text("rows", "Number of rows, if it is public", get("rows", "")),
                ui.input_text("ledger", "Ledger (path; made if it is new)", get("ledger", "")),
                ui.input_text("cap", "Cap of a new ledger (epsilon)", get("cap", "3")),
                ui.input_task_button("plan", "Show what will be seen", label_busy="Planning"),
                _live("planned"),
            ),
            _section(
                "5. Fit",
                ui.input_action_button("fit", "Fit and spend the budget", class_="btn-primary"),
                ui.input_action_button("stop", "Stop"),
                _live("progress"),
            ),
            _section(
                "6. Look",
                ui.output_ui("column_choice"),
                ui.output_plot("look"),
                ui.output_ui("released"),
            ),
            _section(
                "7. The same without this page",
                _copied("lines", "Command lines"),
                _copied("python", "Python"),
            ),
            id="steps",
        ),
        ui.tags.script(_RANGE),
        title="sklearn-dpgen",
        lang="en",
    )


def _section(title, *parts, class_=None):
    name = title.split(".")[0]
    head = ui.h2(title, id=f"step{name}")
    return ui.tags.section(head, *parts, class_=class_, **{"aria-labelledby": f"step{name}"})


def _range(name, label, low, high, value, step):
    own = ui.tags.input(
        id=name, type="range", min=low, max=high, step=step, value=value, class_="form-range"
    )
    shown = ui.tags.output(f"{value:g}", **{"for": name})
    return ui.div(ui.tags.label(label, **{"for": name}), own, shown, class_="form-group")


def _live(name):
    return ui.div(ui.output_ui(name), role="status", **{"aria-live": "polite"})


def _copied(name, title):
    button = ui.tags.button(
        f"Copy {title.lower()}",
        type="button",
        class_="btn btn-default btn-sm",
        **{"data-copies": name},
    )
    return ui.div(ui.h3(title), ui.output_code(name), button)


def _said(found):
    """Return what a command has said."""
    lines = "\n".join([*found.warnings, found.text])
    kind = "alert alert-success" if found.ok else "alert alert-danger"
    return ui.div(ui.tags.strong("Done." if found.ok else "No."), ui.tags.pre(lines), class_=kind)


def _row(prefix, name, entry):
    fields = []
    for field, (label, _) in _FIELDS.items():
        value, key = entry.get(field, ""), f"{prefix}_{field}"
        label = ui.span(label, ui.span(f" of {name}", class_="visually-hidden"))
        if field in _FLAGS:
            part = ui.input_checkbox(key, label, value is True)
        else:
            part = ui.input_text(key, label, _text(value), update_on="blur")
        fields.append(ui.div(part, class_=f"field {field}"))
    label = ui.span(f"type of {name}", class_="visually-hidden")
    kind = ui.input_select(f"{prefix}_type", label, list(_TYPES), selected=entry["type"])
    head = ui.tags.th(name, scope="row")
    return ui.tags.tr(head, ui.tags.td(kind), ui.tags.td(ui.div(*fields, class_="fields")))


def _text(value):
    if value == GAP:
        return ""
    return ", ".join(map(str, value)) if isinstance(value, list) else str(value)


def _value(field, text):
    """Return the value of a field as YAML reads it."""
    from sklearn_dpgen.command_line._files import parse

    if field in _FLAGS:
        return text
    texts = (
        [part.strip() for part in text.split(",")] if field in ("categories", "missing") else text
    )
    if isinstance(texts, list):
        return [_scalar(parse, part) for part in texts if part]
    return _scalar(parse, texts)


def _scalar(parse, text):
    try:
        found = parse(f"value: {text}", "a.yaml")["value"]
    except Exception:
        return text
    return text if isinstance(found, dict | list) else found


class _Session:
    """What connects the inputs and outputs of one page with its work."""

    def __init__(self, works, name, input, output, session):
        found = {"work": works.get(name)}
        drafted, saved = reactive.value(0), reactive.value(0)
        said: reactive.Value[Answer | None] = reactive.value(None)
        refused: reactive.Value[str | None] = reactive.value(None)

        def current() -> Work:
            if found["work"] is None:
                search = session.clientdata.url_search()
                found["work"] = works.get(search.rpartition("work=")[2])
            req(found["work"] is not None)
            return found["work"]

        @reactive.effect
        def _keep():
            work = current()
            for word in ("file", "folder", "epsilon", "delta", "rows", "ledger", "cap"):
                work.values[word] = input[word]()
            for word in ("target", "unit"):
                if word in input:
                    work.values[word] = input[word]()

        @reactive.effect
        @reactive.event(input.draft)
        async def _draft():
            work = current()
            file = input.file().strip()
            folder = input.folder().strip() or str(Path(file).with_suffix("")) + "-release"
            ui.update_text("folder", value=folder)
            said.set(await asyncio.to_thread(work.draft, file, folder))
            drafted.set(drafted.get() + 1)

        @render.ui
        def drafted_():
            return None if said() is None else _said(said())

        output(drafted_, id="drafted")

        @render.ui
        def schema():
            drafted()
            work = current()
            if not work.columns:
                return ui.p("Choose a file first.")
            rows = [
                _row(f"c{work.drafted}_{i}", name, entry)
                for i, (name, entry) in enumerate(work.columns.items())
            ]
            heads = [ui.tags.th(text, scope="col") for text in ("Column", "Type", "Declared")]
            caption = ui.tags.caption("Columns of the table", class_="visually-hidden")
            return ui.tags.table(
                caption,
                ui.tags.thead(ui.tags.tr(*heads)),
                ui.tags.tbody(*rows),
                class_="schema table",
            )

        output(schema)

        @reactive.effect
        def _edit():
            drafted()
            work = current()
            for i, (name, entry) in enumerate(work.columns.items()):
                prefix = f"c{work.drafted}_{i}"
                kind = input[f"{prefix}_type"]()
                new = {"type": kind}
                # Words that the table does not show stay.
                known = {*_FIELDS, "type"}
                new |= {w: v for w, v in entry.items() if w not in known and kind == entry["type"]}
                for field, (_, kinds) in _FIELDS.items():
                    given = input[f"{prefix}_{field}"]()
                    if kind not in kinds:
                        continue
                    if given not in ("", False):
                        new[field] = _value(field, given)
                    elif field in ("low", "high", "categories"):
                        new[field] = GAP
                work.columns[name] = new
            if work.columns:
                work.save()
                with reactive.isolate():
                    saved.set(saved.get() + 1)

        @render.ui
        def gaps():
            saved()
            work = current()
            if not work.columns:
                return None
            from sklearn_dpgen.schema._file import gaps_of

            left = gaps_of({"columns": work.columns})
            if left:
                return ui.p("To declare: " + "; ".join(left))
            return ui.p("All is declared.")

        output(gaps)

        @ui.bind_task_button(button_id="check")
        @reactive.extended_task
        async def checking(*argv):
            return await asyncio.to_thread(answer, *argv)

        @reactive.effect
        @reactive.event(input.check)
        def _check():
            work = current()
            checking("check", str(work.schema), work.values["file"])

        @render.ui
        def checked_():
            return _said(checking.result())

        output(checked_, id="checked")

        @render.ui
        def purpose():
            saved()
            work = current()
            names = list(work.columns)
            ids = [n for n, e in work.columns.items() if e.get("type") == "identifier"]
            get = work.values.get
            with reactive.isolate():
                return ui.TagList(
                    ui.input_select(
                        "target",
                        "Column to be predicted",
                        {"": "none"} | {n: n for n in names if n not in ids},
                        selected=get("target", ""),
                    ),
                    ui.input_select(
                        "unit",
                        "Who is protected",
                        {"": "each row"} | {n: f"each person, by {n}" for n in ids},
                        selected=get("unit", ""),
                    ),
                )

        output(purpose)

        @ui.bind_task_button(button_id="plan")
        @reactive.extended_task
        async def planning(*argv):
            return await asyncio.to_thread(answer, *argv)

        @reactive.effect
        @reactive.event(input.plan)
        def _plan():
            work = current()
            rows = input.rows().strip()
            options = work.budget()
            if (path := work.values.get("ledger")) and not Path(path).exists():
                made = answer(
                    "ledger", "init", path, "--dataset", Path(work.values["file"]).stem,
                    "--epsilon", input.cap(), "--delta", input.delta(),
                    *(["--unit", work.values["unit"]] if work.values.get("unit") else []),
                )  # fmt: skip
                if not made.ok:
                    ui.notification_show(made.text, type="error")
            planning("plan", *options, *(["--rows", rows] if rows else []))

        @render.ui
        def planned_():
            return _said(planning.result())

        output(planned_, id="planned")

        @reactive.effect
        @reactive.event(input.fit)
        def _fit():
            refused.set(current().start())

        @reactive.effect
        @reactive.event(input.stop)
        def _stop():
            work = current()
            if work.job is not None:
                work.job.stop()

        ended: reactive.Value[Any] = reactive.value(None)

        @render.ui
        def progress():
            input.fit()
            work, why = current(), refused()
            job = work.job
            parts = [ui.p(why, class_="alert alert-warning")] if why else []
            if job is not None:
                parts.append(ui.tags.pre("\n".join(job.lines)))
                if job.running:
                    reactive.invalidate_later(0.5)
                    parts.append(ui.p("Running. Closing this page does not stop it."))
                else:
                    doc = job.document
                    if doc.get("ok"):
                        text = f"Wrote {len(doc['files'])} files to {doc['out']}."
                    else:
                        text = f"{doc.get('error')} {doc.get('spent', '')}"
                    kind = "success" if doc.get("ok") else "danger"
                    parts.append(ui.p(text, class_=f"alert alert-{kind}"))
                    with reactive.isolate():
                        ended.set(job)
            return ui.TagList(*parts)

        output(progress)

        @render.ui
        def column_choice():
            req(ended() is not None and ended().document.get("ok"))
            names = [
                n
                for n, e in current().columns.items()
                if e["type"] not in ("identifier", "leave out")
            ]
            return ui.input_select("column", "Column", names)

        output(column_choice)

        @reactive.calc
        def model():
            import sklearn_dpgen

            req(ended() is not None and ended().document.get("ok"))
            return sklearn_dpgen.load(Path(current().release, "model.safetensors"))

        @render.plot(alt="Released shares with their errors, and synthetic shares, of a column.")
        def look():
            from sklearn_dpgen.reporting import MarginalDisplay

            return MarginalDisplay.from_estimator(model(), input.column()).figure_

        output(look)

        @render.ui
        def released():
            req(ended() is not None and ended().document.get("ok"))
            files = [ui.tags.li(name) for name in ended().document["files"]]
            link = ui.a("Report on these rows", href=f"/report/{current().name}", target="_blank")
            return ui.TagList(link, ui.h3("Files that may be published"), ui.tags.ul(*files))

        output(released)

        def shown():
            for word in ("file", "folder", "epsilon", "delta", "rows", "ledger", "target", "unit"):
                if word in input:
                    input[word]()
            return current()

        @render.code
        def lines():
            return shown().lines()

        output(lines)

        @render.code
        def python():
            return shown().python()

        output(python)
