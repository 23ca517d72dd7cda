"""A fit, and the files that tell of it."""

import sys

from sklearn_dpgen.command_line._console import Console
from sklearn_dpgen.command_line._errors import CommandError, describe
from sklearn_dpgen.command_line._files import OutputFolder, read_schema
from sklearn_dpgen.command_line._fit import make_sampler, risk_of
from sklearn_dpgen.command_line._keys import read_key
from sklearn_dpgen.command_line._ledger import open_existing
from sklearn_dpgen.command_line._table_check import identifiers_of
from sklearn_dpgen.command_line._tables import files_of, output_ending, read_frame, write_table
from sklearn_dpgen.reporting import QualityReport, model_card
from sklearn_dpgen.reporting._figures import import_pyplot

__all__ = ["synthesize"]

_MODEL, _NOT_PRIVATE = "model.safetensors", "quality-report-NOT-PRIVATE.html"
_REPORTS = [
    _MODEL,
    "report.json",
    "report.txt",
    "model-card.json",
    "model-card.md",
    "model-card.html",
    "quality-report.html",
    _NOT_PRIVATE,
]
_TABLES = [
    f"synthetic{ending}"
    for ending in (".csv", ".csv.gz", ".csv.bz2", ".parquet", ".feather", ".arrow")
]


def synthesize(arguments, console: Console) -> int:
    """Fit, sample and write."""
    schema = read_schema(arguments.schema)
    files = files_of(arguments.table)
    ending = output_ending(files[0])
    ledger = None if arguments.ledger is None else open_existing(arguments.ledger)
    sampler = make_sampler(arguments, schema, ledger=ledger)
    key = arguments.signing_key
    key = None if key is None else read_key(key, private=True)
    _require_matplotlib()
    inputs = (*files, arguments.schema, *([arguments.ledger] if ledger else []))
    identifiers = identifiers_of(schema)
    if arguments.unit is None and identifiers:
        console.say(
            f"Each row is protected by itself. Where {identifiers[0]!r} names persons with several "
            f"rows, --unit {identifiers[0]} protects them as a whole."
        )
    names = [*_TABLES, *_REPORTS]
    with OutputFolder(arguments.out, names, overwrite=arguments.overwrite, inputs=inputs) as out:
        console.say("Fitting the sampler to the table.")
        n_read = _fit(sampler, files, arguments, console)
        try:
            rows = arguments.rows
            if rows is None:
                # As many as are public to be there, or as a noisy count says.
                rows = max(round(getattr(sampler, "n_records_", n_read)), 1)
            synthetic = _write(sampler, rows, out, ending, console)
            _publish(sampler, out, arguments, key, console)
            if arguments.not_private_report:
                _compare(sampler, files, synthetic, out, arguments, console)
        except BaseException:
            written = ", ".join(out.written) or "nothing"
            console.spent = f"{console.spent} Written to {out.path}: {written}."
            raise
    return _result(sampler, rows, out, ledger, console)


def _require_matplotlib():
    """Refuse before the fit what would fail after it, when the budget is spent."""
    try:
        import_pyplot("The quality report")
    except ImportError as error:
        raise CommandError(str(error)) from None


def _fit(sampler, files, arguments, console):
    # Rows that were read are counted on a terminal alone: a log may have other readers.
    if "verbose" in sampler.get_params(deep=False):
        sampler.set_params(verbose=int(sys.stderr.isatty() and not console.quiet))
    X = list(files)
    if arguments.sampler == "mixture":
        beside = {} if arguments.unit is None else {arguments.unit: None}
        X = read_frame(files, dict(sampler.schema) | beside)
    try:
        sampler.fit(X)
    except ValueError as error:
        fault = describe(error)
        if hasattr(sampler, "privacy_") or not fault.startswith(("Column ", "The ")):
            raise
        raise CommandError(
            f"{fault} 'sklearn-dpgen check' with the schema and the table lists all that does not "
            "fit."
        ) from error
    finally:
        if hasattr(sampler, "privacy_"):
            console.spent = _spent(sampler.privacy_, arguments.ledger)
    console.say("Fitted: the budget is spent.")
    return len(X)


def _spent(report, ledger):
    booked = (
        "No ledger was given: count it yourself."
        if ledger is None
        else f"It is booked in the ledger {ledger}, and stays booked."
    )
    return (
        f"The budget was spent before: epsilon {report.epsilon:g} at delta {report.delta:g}. "
        f"{booked}"
    )


def _write(sampler, rows, out, ending, console):
    # First of all, for the rest can be made of it again, at no cost.
    with out.file(_MODEL) as path:
        sampler.save(path)
    report = sampler.privacy_
    out.text("report.json", report.to_json())
    out.text("report.txt", f"{report.to_text()}\n\n{report.attack_risk().to_text()}")
    console.say(f"Drawing {rows} rows.")
    frame = sampler.sample(rows)
    with out.file(f"synthetic{ending}") as path:
        write_table(frame, path, ending)
    return frame


def _publish(sampler, out, arguments, key, console):
    """Write pages from what was released alone."""
    console.say("Writing the model card and the quality report.")
    card = model_card(
        sampler,
        title=arguments.title,
        description=arguments.description,
        author=arguments.author,
        file=out.claim / _MODEL,
        signing_key=key,
    )
    out.text("model-card.json", card.to_json())
    out.text("model-card.md", card.to_markdown())
    out.text("model-card.html", card.to_html())
    out.text("quality-report.html", QualityReport.from_estimator(sampler).to_html())


def _compare(sampler, files, synthetic, out, arguments, console):
    """Write a page that is not private."""
    console.say("Comparing with the private table.")
    real = read_frame(files, sampler.schema)
    target = arguments.target[0] if arguments.target else None
    page = QualityReport(
        real, synthetic, privacy=sampler.privacy_, schema=sampler.schema, target=target
    )
    out.text(_NOT_PRIVATE, page.to_html())
    console.warn(f"{_NOT_PRIVATE} shows the private records without noise. Do not publish it.")


def _result(sampler, rows, out, ledger, console):
    report = sampler.privacy_
    lines = [
        f"epsilon {report.epsilon:g} at delta {report.delta:g}: {report.neighbouring}.",
        f"{rows} synthetic rows.",
        *(f"  {out.path / name}" for name in out.written),
    ]
    document = {
        "out": str(out.path),
        "files": out.written,
        "rows": rows,
        "report": report.to_dict(),
        "attack_risk": risk_of(report),
        "ledger": None,
    }
    if ledger is not None:
        left = ledger.remaining()
        lines.append(
            f"Largest fit that the ledger still takes: epsilon {left:.4g} at delta "
            f"{ledger.delta:g}."
        )
        document["ledger"] = {"file": ledger.path, "spent": ledger.spent(), "remaining": left}
    return console.result("\n".join(lines), document)
