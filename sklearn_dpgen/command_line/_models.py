"""sample, inspect and verify: what is done with a model that was made before."""

from sklearn_dpgen.command_line._console import Console
from sklearn_dpgen.command_line._errors import CommandError, describe, is_own
from sklearn_dpgen.command_line._files import (
    check_files,
    check_new_file,
    parse,
    read_text,
    replacing,
)
from sklearn_dpgen.command_line._options import add_command, add_overwrite, at_least

__all__ = ["add_to"]

_SAMPLE = """\
Draw synthetic rows from a model that synthesize wrote. They cost no privacy: the model holds what
was paid for, and no record. There is no option for a seed, and every draw is another one.
"""
_INSPECT = """\
Show what a model is: its guarantee, what an attacker could find, and the versions it was made with.

The report is that of whoever wrote the file. A signed card tells who that was: see verify.
"""
_VERIFY = """\
Check that a model card is as its publisher signed it, and that a file is the model that it is of.
The exit code is 1 where it is not.

Take the public key from a source that you trust. One that comes with the card proves nothing.
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
        summary="draw more rows from a model, at no cost in privacy",
        text=_SAMPLE,
        examples="  sklearn-dpgen sample synthetic/model.safetensors --rows 100000 "
        "--out more.parquet\n",
    )
    sample.add_argument("model", metavar="MODEL", help="a file model.safetensors")
    sample.add_argument("--rows", type=at_least(1), required=True, metavar="N", help="how many")
    sample.add_argument(
        "--out", required=True, metavar="FILE", help="its ending tells the format: .csv, .parquet"
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
        summary="was a model card signed by who says so, and is a model the one it is of",
        text=_VERIFY,
        examples="  sklearn-dpgen verify model-card.json --public-key public.pem "
        "--file model.safetensors\n",
    )
    verify.add_argument("card", metavar="CARD", help="a file model-card.json")
    verify.add_argument("--public-key", required=True, metavar="FILE", help="in PEM")
    verify.add_argument("--file", metavar="MODEL", help="the model that the card is of")


def run_sample(arguments, console: Console) -> int:
    """Draw rows from a model."""
    from sklearn_dpgen.command_line._tables import output_ending, write_table

    ending = output_ending(arguments.out)
    out = check_new_file(arguments.out, overwrite=arguments.overwrite)
    model = _load(arguments.model)
    if not hasattr(model, "set_output"):
        raise CommandError(f"{arguments.model} is no sampler of tables: {type(model).__name__}.")
    frame = model.set_output(transform="pandas").sample(arguments.rows)
    with replacing(out) as part:
        write_table(frame, part, ending)
    text = f"Wrote {arguments.rows} synthetic rows to {out}."
    return console.result(text, {"out": str(out), "rows": arguments.rows})


def run_inspect(arguments, console: Console) -> int:
    """Show a model."""
    model = _load(arguments.model)
    from sklearn_dpgen.command_line._fit import risk_of

    report = model.privacy_
    kind = type(model).__name__
    schema = getattr(model, "schema", None)
    columns = None if schema is None else list(schema)
    lines = [f"model: {kind}"]
    if columns is not None:
        lines.append(f"columns: {', '.join(map(repr, columns))}")
    lines += ["", report.to_text(), "", report.attack_risk().to_text()]
    document = {
        "model": arguments.model,
        "class": kind,
        "columns": columns,
        "report": report.to_dict(),
        "attack_risk": risk_of(report),
    }
    return console.result("\n".join(lines), document)


def run_verify(arguments, console: Console) -> int:
    """Verify a card, and a model."""
    if not arguments.card.lower().endswith(".json"):
        raise CommandError(f"{arguments.card} must be the card in JSON: model-card.json.")
    check_files(others=[arguments.public_key, arguments.file])
    content = parse(read_text(arguments.card, "card"), arguments.card)
    from sklearn_dpgen.command_line._keys import read_key
    from sklearn_dpgen.reporting import verify_model_card

    key = read_key(arguments.public_key, private=False)
    if not isinstance(content, dict):
        content = {}
    try:
        card = verify_model_card(content, key, arguments.file)
    except (ValueError, KeyError, TypeError) as error:
        fault = describe(error) if is_own(error) else "It is no whole model card."
        return console.result(f"NOT VERIFIED. {fault}", {"fault": fault}, ok=False)
    content = card.to_dict()
    what = "The card is as it was signed"
    what += f", and {arguments.file} is its model." if arguments.file else "; no model was checked."
    document = {"title": content["title"], "file": content["file"], "privacy": content["privacy"]}
    return console.result(f"Verified. {what}", document)


def _load(path):
    """Return the model of a file, with its report."""
    import sklearn_dpgen
    from sklearn_dpgen.exceptions import InvalidFileError

    check_files(model=path)
    try:
        model = sklearn_dpgen.load(path)
    except InvalidFileError as error:
        raise CommandError(f"{path} is no model: {describe(error)}") from error
    if not hasattr(model, "privacy_"):
        raise CommandError(f"{path} holds no model with a guarantee.")
    return model
