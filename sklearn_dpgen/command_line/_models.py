"""The commands sample, inspect and verify, for saved models and model cards."""

import os
from contextlib import ExitStack
from inspect import signature
from pathlib import Path

from sklearn_dpgen.command_line._console import CommandError, Console, describe
from sklearn_dpgen.command_line._files import (
    check_files,
    check_new_file,
    check_writable,
    output_ending,
    parse,
    read_key,
    read_text,
    replacing,
    split_ending,
    table_names,
    write_table,
)
from sklearn_dpgen.command_line._fit import drawn_text, risk_of
from sklearn_dpgen.command_line._options import add_command, add_overwrite, at_least
from sklearn_dpgen.command_line._release import read_list, release_faults
from sklearn_dpgen.exceptions import InvalidFileError, PublicError

__all__ = ["add_to"]

_SAMPLE = """\
Draw synthetic rows from a model that synthesize wrote.

Rows cost no privacy: the model holds noisy releases, whose cost is already charged, and no record.
There is no option for a seed, so every call draws other rows.

For a model of tables with keys --rows is the number of persons, and each table has its file: --out
more.csv writes more-NAME.csv.

--where draws rows under conditions: comparisons of columns with values, joined by 'and', or by 'or'
where they are of one column. Names with spaces stand in backticks, dates in quotes, and a column of
tables with keys is TABLE.COLUMN. The text is read and never run.
"""
_INSPECT = """\
Show the guarantee of a model, its attack risk, and the versions of the software that made it.

The file does not prove who wrote the report. A signed model card does: see 'sklearn-dpgen verify'.
"""
_VERIFY = """\
Verify a release: each file of the folder has the SHA-256 that release.json lists, no file is
missing or added, and with --public-key the list is signed. The exit code is 1 if one of it does not
hold. Without a key, the digests show that the files belong together, and not who made them.

For a card, verify its signature, and with --file that a model is the one of the card.

Take the public key from a source that you trust; a key that comes with the card proves nothing.
A pair of keys is made by:

  openssl genpkey -algorithm ed25519 -out key.pem
  openssl pkey -in key.pem -pubout -out public.pem
"""


def add_to(commands) -> None:
    """Add the commands."""
    sample = add_command(
        commands,
        "sample",
        run_sample,
        summary="draw more rows from a model, at no privacy cost",
        text=_SAMPLE,
        examples="  sklearn-dpgen sample synthetic/model.safetensors --rows 100000 "
        "--out more.parquet\n"
        "  sklearn-dpgen sample synthetic/model.safetensors --rows 500 --out old.csv \\\n"
        "      --where \"age >= 65 and ward in ['A', 'B']\"\n",
    )
    sample.add_argument("model", metavar="MODEL", help="a file model.safetensors")
    sample.add_argument(
        "--rows", type=at_least(1), required=True, metavar="N", help="number of rows, or of persons"
    )
    sample.add_argument(
        "--out",
        required=True,
        metavar="FILE",
        help="table to write, in the format of its ending, such as .csv or .parquet",
    )
    sample.add_argument(
        "--where",
        metavar="CONDITION",
        help="draw rows that fulfil a condition, such as \"age >= 65 and ward == 'B'\"",
    )
    add_overwrite(sample)
    inspect = add_command(
        commands,
        "inspect",
        run_inspect,
        summary="show the guarantee of a model",
        text=_INSPECT,
        examples="  sklearn-dpgen inspect synthetic/model.safetensors\n"
        "  sklearn-dpgen inspect synthetic/model.safetensors --json\n",
    )
    inspect.add_argument("model", metavar="MODEL", help="a file model.safetensors")
    verify = add_command(
        commands,
        "verify",
        run_verify,
        summary="verify a release folder, or the signature of a card",
        text=_VERIFY,
        examples="  sklearn-dpgen verify release --public-key public.pem\n"
        "  sklearn-dpgen verify card.json --public-key public.pem --file model.safetensors\n",
    )
    verify.add_argument(
        "card", metavar="RELEASE", help="a folder with release.json, or a card.json"
    )
    verify.add_argument(
        "--public-key", metavar="FILE", help="Ed25519 public key in PEM format; a card needs it"
    )
    verify.add_argument("--file", metavar="MODEL", help="model to compare with the card")


def run_sample(arguments, console: Console) -> int:
    """Draw rows from a model."""
    ending = output_ending(arguments.out)
    check_new_file(arguments.out, overwrite=True)
    check_writable(ending, arguments.rows)
    model = _load(arguments.model)
    if not hasattr(model, "set_output"):
        raise CommandError(
            f"{arguments.model} must be a sampler of tables, got {type(model).__name__}."
        )
    names = getattr(getattr(model, "schema", None), "order", [""])
    stem, suffix = split_ending(arguments.out)
    paths = [
        check_new_file(path, overwrite=arguments.overwrite)
        for path in table_names(stem, names, [suffix] * len(names)).values()
    ]
    options = {}
    if arguments.where is not None:
        if "conditions" not in signature(model.sample).parameters:
            raise CommandError(f"--where must be left out: {type(model).__name__} has none.")
        # With the labels that a fit discovered.
        schema = model.schema_ if getattr(model.schema, "open_columns", None) else model.schema
        from sklearn_dpgen.schema._expressions import read_where

        options["conditions"] = read_where(arguments.where, schema)
    drawn = model.set_output(transform="pandas").sample(arguments.rows, **options)
    frames = drawn if isinstance(drawn, dict) else {"": drawn}
    # All files are written before one appears.
    with ExitStack() as stack:
        for path, (name, frame) in zip(paths, frames.items(), strict=True):
            place = stack.enter_context(replacing(path))
            write_table(frame, place, ending, model, name)
    if not isinstance(drawn, dict):
        text = f"Wrote {arguments.rows} synthetic rows to {paths[0]}."
        return console.result(text, {"out": str(paths[0]), "rows": arguments.rows})
    sizes = {name: len(frame) for name, frame in frames.items()}
    files = dict(zip(sizes, map(str, paths), strict=True))
    text = f"Wrote {drawn_text(arguments.rows, sizes)}"
    lines = [text, *(f"  {path}" for path in paths)]
    document = {"out": files, "persons": arguments.rows, "rows": sizes}
    return console.result("\n".join(lines), document)


def run_inspect(arguments, console: Console) -> int:
    """Show a model."""
    model = _load(arguments.model)
    report = model.privacy_
    class_name = type(model).__name__
    schema = getattr(model, "schema", None)
    lines, columns = [f"model: {class_name}"], None
    if schema is not None:
        # A panel is a table of its own, without a name.
        parts = {"": getattr(schema, "schema", schema)}
        if hasattr(schema, "order"):
            parts = {name: schema[name].schema for name in schema.order}
        tables = {name: list(part) for name, part in parts.items()}
        columns = tables.get("", tables)
        for name, own in tables.items():
            of = f" of {name!r}" if name else ""
            lines.append(f"columns{of}: {', '.join(map(repr, own))}")
    lines += ["", report.to_text(), "", report.attack_risk().to_text()]
    document = {
        "model": arguments.model,
        "class": class_name,
        "columns": columns,
        "report": report.to_dict(),
        "attack_risk": risk_of(report),
    }
    return console.result("\n".join(lines), document)


def run_verify(arguments, console: Console) -> int:
    """Verify a release folder, or a card and a model."""
    if os.path.isdir(arguments.card):
        return _verify_release(arguments, console)
    if not arguments.card.lower().endswith(".json"):
        raise CommandError(
            f"The card must be a JSON file, such as card.json, got {arguments.card}."
        )
    if arguments.public_key is None:
        raise CommandError("--public-key is needed to verify the signature of a card.")
    check_files(others=[arguments.public_key, arguments.file])
    content = parse(read_text(arguments.card, "card"), arguments.card)
    from sklearn_dpgen.reporting import verify_model_card

    key = read_key(arguments.public_key, private=False)
    if not isinstance(content, dict):
        content = {}
    try:
        card = verify_model_card(content, key, arguments.file)
    except PublicError as error:
        fault = describe(error)
    except (ValueError, KeyError, TypeError):
        fault = "The file is not a complete model card."
    else:
        content = card.to_dict()
        checked = f"{arguments.file} is its model" if arguments.file else "no model was checked"
        document = {key: content[key] for key in ("title", "file", "privacy")}
        return console.result(f"Verified. The card is as it was signed; {checked}.", document)
    return console.result(f"NOT VERIFIED. {fault}", {"fault": fault}, ok=False)


def _verify_release(arguments, console):
    if arguments.file is not None:
        raise CommandError("--file must be left out: a release is verified with all its files.")
    check_files(others=[arguments.public_key])
    folder = Path(arguments.card)
    content = read_list(folder)
    key = None if arguments.public_key is None else read_key(arguments.public_key, private=False)
    faults = release_faults(folder, content, key)
    document = {"out": arguments.card, "faults": faults, "signature_checked": key is not None}
    if faults:
        text = "\n".join(["NOT VERIFIED.", *(f"  {fault}" for fault in faults)])
        return console.result(text, document, ok=False)
    signed = "the list is signed with this key" if key else "no signature was checked"
    n_files = len(content["files"])
    return console.result(
        f"Verified. All {n_files} files are those of the list; {signed}.", document
    )


def _load(path):
    """Load a model that has a privacy report."""
    check_files(model=path)
    import sklearn_dpgen

    try:
        model = sklearn_dpgen.load(path)
    except InvalidFileError as error:
        raise CommandError(f"{path} is not a saved model: {describe(error)}") from error
    if not hasattr(model, "privacy_"):
        raise CommandError(f"{path} must hold a fitted model with a privacy report.")
    return model
