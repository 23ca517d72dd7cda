"""The release folder: its pages, its list of files with digests, and its verification."""

import datetime
import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

from sklearn_dpgen.command_line._console import CommandError
from sklearn_dpgen.command_line._files import OutputFolder

if TYPE_CHECKING:
    import pandas as pd

    from sklearn_dpgen.tables import RelationalSampler, TableSampler

__all__ = [
    "CARD",
    "LIST",
    "MODEL",
    "REPORT",
    "SCHEMA",
    "not_private_beside",
    "read_list",
    "release_faults",
    "write_list",
    "write_pages",
]

MODEL, SCHEMA, REPORT, LIST = "model.safetensors", "schema.yaml", "report.html", "release.json"
CARD = ("card.json", "card.md", "card.html")
# The end of the name of the comparison with private records, which is beside the folder.
_NOT_PRIVATE = "-NOT-PRIVATE.html"
_FORMAT = {"name": "sklearn_dpgen release", "version": 1}
# Prefix of the signed bytes: the signature of a list is not valid for a card.
_CONTEXT = b"sklearn_dpgen release 1\n"
_WHAT = {
    MODEL: "the fitted sampler, which draws more rows at no privacy cost",
    SCHEMA: "the public declaration of the columns",
    REPORT: "what the published rows are fit for",
    CARD[0]: "the guarantee, for programs",
    CARD[1]: "the guarantee, in Markdown",
    CARD[2]: "the guarantee, as a page",
}
_TABLE = "published table"
# Files that a desktop adds to folders.
_IGNORED = (".DS_Store", "Thumbs.db", "desktop.ini")


def not_private_beside(folder: Path) -> Path:
    """Return the path of the comparison with private records, beside the folder of a release."""
    # The folder may be given as "." or "..".
    folder = folder if folder.name not in ("", "..") else folder.resolve()
    return folder.with_name(f"{folder.name}{_NOT_PRIVATE}")


def write_pages(
    sampler: "TableSampler | RelationalSampler",
    synthetic: "dict[str, pd.DataFrame]",
    out: OutputFolder,
    *,
    seed: int,
    arguments: Any,
    key: Any,
) -> dict:
    """Write the schema, the card and the report on the published rows, from releases alone.

    Parameters
    ----------
    sampler : TableSampler or RelationalSampler
        Fitted, and saved to the folder.
    synthetic : dict of str to DataFrame
        The published tables by name, which the sampler drew.
    out : OutputFolder
    seed : int
        Seed of these rows.
    arguments : Namespace
        With the title, the description and the author.
    key : Ed25519PrivateKey or None

    Returns
    -------
    dict
        What the report says first.
    """
    from sklearn_dpgen.reporting import model_card
    from sklearn_dpgen.reporting._quality_report import report_on_rows

    # A schema from a file is that of one table or of tables with keys, which both have it.
    schema: Any = sampler.schema
    if getattr(schema, "public", ()):
        # The report has the hash of the public table, whose files are not a part of the release.
        schema = schema._with(public=())
    out.text(SCHEMA, schema.to_yaml())
    card = model_card(
        sampler,
        title=arguments.title,
        description=arguments.description,
        author=arguments.author,
        file=out.claim / MODEL,
        signing_key=key,
    )
    for name, text in zip(CARD, (card.to_json(), card.to_markdown(), card.to_html()), strict=True):
        out.text(name, text)
    rows = synthetic.get("", synthetic)
    report = report_on_rows(sampler, rows, seed=seed, title=arguments.title)
    out.text(REPORT, report.to_html())
    return report.to_dict()["verdict"]


def write_list(
    sampler: "TableSampler | RelationalSampler",
    synthetic: "dict[str, pd.DataFrame]",
    out: OutputFolder,
    *,
    n_samples: int,
    seed: int,
    verdict: dict | None,
    arguments: Any,
    key: Any,
) -> None:
    """Write the list of the files of a release with their digests, its guarantee and its seeds.

    Parameters
    ----------
    sampler : TableSampler or RelationalSampler
    synthetic : dict of str to DataFrame
        The published tables by name.
    out : OutputFolder
        With all other files of the release.
    n_samples : int
        Number of rows, or of persons, that were drawn.
    seed : int
        Seed of the draw, which costs no privacy.
    verdict : dict or None
    arguments : Namespace
    key : Ed25519PrivateKey or None
        Signs the list.
    """
    from sklearn_dpgen.accounting._wording import spending_rows
    from sklearn_dpgen.reporting._model_card import (
        canonical_json,
        file_facts,
        plain,
        risk_facts,
        sign,
    )

    report = sampler.privacy_
    content = {
        "format": _FORMAT,
        "title": arguments.title,
        "author": arguments.author,
        "description": arguments.description,
        "created": datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds"),
        "privacy": json.loads(report.to_json(indent=None)),
        "attack_risk": risk_facts(report),
        "spending": dict(spending_rows(report, seed=seed)),
        "rows": {name or "synthetic": len(frame) for name, frame in synthetic.items()},
        # The rows follow from the model and this seed, which both are public.
        "draw": {"n_samples": n_samples, "random_state": seed},
        "verdict": verdict,
        "files": [
            file_facts(out.claim / name) | {"what": _WHAT.get(name, _TABLE)} for name in out.written
        ],
        "versions": report.versions,
    }
    content = plain(content)
    if key is not None:
        content["signature"] = sign(canonical_json(content), key, context=_CONTEXT)
    out.text(LIST, json.dumps(content, indent=1, ensure_ascii=False, allow_nan=False))


def read_list(path: Path) -> dict:
    """Return the list of a release folder; CommandError if it is missing or not one."""
    file = path / LIST
    if not file.is_file():
        raise CommandError(
            f"There is no {file}: the release is not complete, or {path} is another folder."
        )
    try:
        content = json.loads(file.read_text(encoding="utf-8"))
    except ValueError:
        content = None
    if not isinstance(content, dict) or content.get("format") != _FORMAT:
        raise CommandError(f"{file} must be the list of a release, of format {_FORMAT}.")
    return content


def release_faults(path: Path, content: dict, key: Any) -> list[str]:
    """Return how a release folder differs from its list, as sentences.

    Parameters
    ----------
    path : Path
        The folder.
    content : dict
        Its list.
    key : Ed25519PublicKey or None
        Checks the signature of the list; None checks the digests alone.

    Returns
    -------
    list of str
        Empty if all files of the folder are those of the list.
    """
    from sklearn_dpgen.exceptions import PublicError
    from sklearn_dpgen.reporting._model_card import canonical_json, file_facts, verify_signature

    faults = []
    if key is not None:
        unsigned = {name: value for name, value in content.items() if name != "signature"}
        try:
            signature = content.get("signature")
            verify_signature(canonical_json(unsigned), signature, key, context=_CONTEXT)
        except PublicError as error:
            faults.append(f"{LIST}: {error}")
    listed = {}
    for facts in content.get("files") or ():
        # A name with a path would be read outside the folder.
        if not isinstance(facts, dict) or Path(str(facts.get("name"))).name != facts.get("name"):
            return [*faults, f"{LIST}: its files must have plain names."]
        listed[facts["name"]] = facts
    for name, facts in listed.items():
        file = path / name
        if not file.is_file():
            faults.append(f"{name}: is missing.")
        elif any(file_facts(file)[k] != facts.get(k) for k in ("bytes", "sha256")):
            faults.append(f"{name}: is not the file of the list.")
    known = {LIST, *_IGNORED, *listed}
    for entry in sorted(path.iterdir()):
        if entry.name.endswith(_NOT_PRIVATE):
            faults.append(f"{entry.name}: shows private records; remove it before you publish.")
        elif entry.name not in known:
            faults.append(f"{entry.name}: is not in the list.")
    return faults
