"""Files that a command reads and writes: tables, schemas, keys, and folders of results."""

import bz2
import glob
import gzip
import json
import os
import secrets
import shutil
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, Self

from sklearn_dpgen.command_line._console import CommandError, describe
from sklearn_dpgen.utils._urls import is_url

if TYPE_CHECKING:
    import pandas as pd

    from sklearn_dpgen.preprocessing import PublicTable
    from sklearn_dpgen.schema import RelationalSchema, Schema
    from sklearn_dpgen.schema._csv import CsvFormat

__all__ = [
    "OutputFolder",
    "check_files",
    "check_new_file",
    "check_writable",
    "files_of",
    "identifiers_of",
    "in_folder",
    "in_format",
    "is_same_file",
    "output_ending",
    "parse",
    "private_files",
    "public_files",
    "public_tables",
    "read_frame",
    "read_key",
    "read_schema",
    "read_text",
    "real_paths",
    "replacing",
    "split_ending",
    "table_columns",
    "table_names",
    "write_table",
    "write_text",
]

_SCHEMA_ENDINGS = (".yaml", ".yml", ".json")
_TABLE_ENDINGS = {
    ".csv.gz": ".csv.gz",
    ".csv.bz2": ".csv.bz2",
    ".csv": ".csv",
    ".tsv.gz": ".tsv.gz",
    ".tsv.bz2": ".tsv.bz2",
    ".tsv": ".tsv",
    ".jsonl.gz": ".jsonl.gz",
    ".jsonl.bz2": ".jsonl.bz2",
    ".jsonl": ".jsonl",
    ".ndjson": ".jsonl",
    ".xlsx": ".xlsx",
    ".parquet": ".parquet",
    ".pq": ".parquet",
    ".feather": ".feather",
    ".arrow": ".arrow",
    ".ipc": ".arrow",
}
# Not allowed in names of files on all systems.
_FORBIDDEN = '/ \\ : * ? " < > |'
_CLAIM = ".sklearn-dpgen-unfinished"


def check_files(
    *,
    schema: str | None = None,
    ledger: str | None = None,
    model: str | None = None,
    others: Iterable[str | None] = (),
) -> None:
    """Raise CommandError or OSError if an input file is missing, before libraries are imported."""
    if schema is not None and not schema.lower().endswith(_SCHEMA_ENDINGS):
        raise CommandError(
            f"The schema must have one of the endings {', '.join(_SCHEMA_ENDINGS)}, got {schema}."
        )
    if ledger is not None and not Path(ledger).is_file():
        raise CommandError(f"There is no ledger {ledger}. 'sklearn-dpgen ledger init' creates one.")
    if model is not None and not Path(model).is_file():
        raise CommandError(f"There is no model {model}.")
    for path in (schema, *others):
        if path is not None:
            with open(path, "rb"):
                pass


def output_ending(path: str) -> str:
    """Return the file ending of a table of the same format as the table at a path or URL.

    That of a folder, and of a table of a database, is that of Parquet.
    """
    if os.path.isdir(path) or is_url(path):
        return ".parquet"
    endings = [end for ending, end in _TABLE_ENDINGS.items() if path.lower().endswith(ending)]
    if not endings:
        raise CommandError(
            f"A table must have one of the endings {', '.join(_TABLE_ENDINGS)}, got {path}."
        )
    return endings[0]


def split_ending(path: str) -> tuple[str, str]:
    """Return the path of a table without its ending, and the ending as it is written."""
    ending = next(ending for ending in _TABLE_ENDINGS if path.lower().endswith(ending))
    return path[: -len(ending)], path[-len(ending) :]


def files_of(paths: Sequence[str]) -> tuple[str, ...]:
    """Return the files that paths and wildcards match, and URLs as they are."""
    for path in paths:
        output_ending(path)
    files: list[str] = []
    for path in paths:
        if is_url(path):
            files.append(path)
            continue
        matches = [path] if os.path.exists(path) else sorted(glob.glob(path, recursive=True))
        if not matches:
            raise CommandError(f"There is no table {path}.")
        files += matches
    return tuple(files)


def public_files(paths: Sequence[str]) -> dict[str, tuple[str, ...]]:
    """Return the files of the option --public by table; those without NAME= have an empty name."""
    named: dict[str, list[str]] = {}
    for text in paths:
        name, sign, path = text.partition("=")
        if is_url(text) or is_url(path):
            raise CommandError("--public must be a file: export the table of the database.")
        if not sign or os.path.exists(text):
            name, path = "", text
        named.setdefault(name, []).append(path)
    return {name: files_of(files) for name, files in named.items()}


def public_tables(
    paths: Sequence[str], weights: str | None, schema: "Schema | RelationalSchema"
) -> "PublicTable | dict[str, PublicTable] | None":
    """Return the tables of the options --public and --public-weights, which are not read.

    Parameters
    ----------
    paths : sequence of str
    weights : str or None
        Column of survey weights, of a relational schema in its root table.
    schema : Schema or RelationalSchema

    Raises
    ------
    CommandError
        A file names no private table, or there is none for the weights.
    """
    files = public_files(paths)
    if not files:
        return None

    from sklearn_dpgen.preprocessing import PublicTable
    from sklearn_dpgen.schema import RelationalSchema

    if not isinstance(schema, RelationalSchema):
        if {*files} != {""}:
            raise CommandError("--public must be FILE: the schema is that of one table.")
        return PublicTable(in_format(files[""], schema.form), weights=weights)
    if "" in files and len(schema.order) == 1:
        files = {schema.root: files.pop("")} | files
    if not files.keys() <= {*schema.order}:
        raise CommandError(
            f"--public must be NAME=FILE for private tables {schema.order} of a relational schema."
        )
    if weights is not None and schema.root not in files:
        raise CommandError(f"--public-weights needs --public {schema.root}=FILE.")
    return {
        name: PublicTable(
            in_format(found, schema[name].schema.form),
            weights=weights if name == schema.root else None,
        )
        for name, found in files.items()
    }


def private_files(
    schema: "RelationalSchema", files: Sequence[str], tables: Mapping[str, Sequence[str]]
) -> dict[str, Sequence[str]]:
    """Return the files of each private table of a relational schema, or of none.

    Parameters
    ----------
    schema : RelationalSchema
    files : sequence of str
        Files without a name, which are those of the only private table.
    tables : mapping of str to sequence of str
        The files of private and public tables by name.

    Raises
    ------
    CommandError
        A name is unknown, or tables are missing.
    """
    unknown = [name for name in tables if name not in schema]
    if unknown:
        raise CommandError(f"--table must name tables of the schema {[*schema]}, got {unknown}.")
    if files and len(schema.order) > 1:
        raise CommandError(f"--table NAME=FILE must name the table of each file: {schema.order}.")
    found = {name: tables[name] for name in schema.order if name in tables}
    if files and found:
        raise CommandError(f"{schema.root!r} must be given as files or by --table, not by both.")
    found |= {schema.root: files} if files else {}
    missing = [name for name in schema.order if name not in found]
    if found and missing:
        raise CommandError(f"--table must give each private table, and {missing} are missing.")
    return found


def table_names(path: str, tables: Iterable[str], endings: Iterable[str]) -> dict[str, str]:
    """Return the path of the file of each synthetic table.

    Parameters
    ----------
    path : str
        The path without ending of a single table. Several tables have their names after it.
    tables, endings : iterable of str

    Raises
    ------
    CommandError
        The name of a table cannot be a part of the name of a file.
    """
    tables = [*tables]
    folded = [name.casefold() for name in tables]
    for name in tables if len(tables) > 1 else ():
        is_plain = name.isprintable() and {*_FORBIDDEN.split()}.isdisjoint(name)
        if not is_plain or folded.count(name.casefold()) > 1:
            raise CommandError(
                f"Names of tables must be distinct names of files, without {_FORBIDDEN}, got "
                f"{name!r}."
            )
    parts = [f"-{name}" for name in tables] if len(tables) > 1 else [""]
    return {
        name: f"{path}{part}{ending}"
        for name, part, ending in zip(tables, parts, endings, strict=True)
    }


def identifiers_of(schema: Mapping) -> list[str]:
    """Return the columns that a schema declares as identifiers."""
    from sklearn_dpgen.schema import Identifier

    return [name for name, column in schema.items() if isinstance(column, Identifier)]


def table_columns(files: Sequence[str], schema: Mapping, unit: str | None) -> list[str]:
    """Return the names of the columns of a table.

    Parameters
    ----------
    files : sequence of str
    schema : Schema or mapping of str to Column or None
    unit : str or None
        Column that must be in the table, and is an identifier of the schema or not declared there.

    Returns
    -------
    list of str
        Private if a declared column is missing: without a header, the first record of a CSV file
        is read as names.
    """
    if unit in schema and unit not in identifiers_of(schema):
        raise CommandError(
            f"--unit must be an identifier of the schema or not be declared there, got {unit!r}."
        )
    from sklearn_dpgen.preprocessing._sources import open_source

    names = list(open_source([*files], schema).names or ())
    if unit is not None and unit not in schema and unit not in names:
        from sklearn_dpgen.schema._texts import near_names

        hint = near_names([unit], names)
        raise CommandError(f"--unit must be a column of the table, got {unit!r}.{hint}")
    return names


def in_format(files: Sequence[str], form: "CsvFormat") -> list:
    """Return files of tables, of which those of CSV are in a format."""
    from sklearn_dpgen.schema._csv import in_format

    return in_format([*files], form)


def _check_parts(folder):
    """Refuse a folder of files that are no parts of one Parquet table."""
    names = [name.lower() for name in os.listdir(folder)]
    endings = {e for own, e in _TABLE_ENDINGS.items() if any(n.endswith(own) for n in names)}
    if endings and ".parquet" not in endings:
        raise CommandError(
            f"{folder} is a folder: a schema of one table needs a file, or a folder of Parquet "
            "files. For several tables, declare tables in the schema."
        )


def in_folder(
    path: str, files: Sequence[str], tables: Mapping[str, Sequence[str]]
) -> tuple[Sequence[str], Mapping[str, Sequence[str]]]:
    """Return the files of a table and of tables by name, with those of a folder of tables.

    Parameters
    ----------
    path : str
        A schema. If it is one of several tables, one file may be a folder that has a file NAME.*
        of each table that is not given by name.
    files : sequence of str
    tables : mapping of str to sequence of str

    Raises
    ------
    CommandError
        A table has no file, or several.
    """
    check_files(schema=path)
    declaration = parse(read_text(path, "schema"), path)
    from sklearn_dpgen.schema._relational import is_relational

    if len(files) != 1 or not os.path.isdir(files[0]):
        return files, tables
    if not is_relational(declaration):
        _check_parts(files[0])
        return files, tables
    names = [name for name in declaration["tables"] if isinstance(name, str) and name not in tables]
    found = {name: _files_named(files[0], name) for name in names}
    if len(declaration["tables"]) == 1 and not any(found.values()):
        # The files of one long table, whatever their names.
        return files, tables
    for name, own in found.items():
        if len(own) != 1:
            fault = f"it has {', '.join(own)}" if own else "it has none"
            raise CommandError(
                f"The folder {files[0]} must have one file {name}.* for the table {name!r}: "
                f"{fault}. --table {name}=FILE names another."
            )
    return (), {**tables, **{name: (os.path.join(files[0], *own),) for name, own in found.items()}}


def _files_named(folder, name):
    """Return the tables of a folder that have a name and an ending."""
    return [
        entry
        for entry in sorted(os.listdir(folder))
        if entry.lower().endswith((*_TABLE_ENDINGS,)) and split_ending(entry)[0] == name
    ]


def read_frame(paths: Sequence[str], columns: Mapping) -> "pd.DataFrame":
    """Read the declared columns of files into one frame."""
    import pandas as pd

    from sklearn_dpgen.preprocessing._reader import map_frames

    frames = list(map_frames(lambda frame: frame, list(paths), columns))
    return pd.concat(frames, ignore_index=True) if frames else pd.DataFrame(columns=list(columns))


def _columns_of(model, table):
    """Return the declared columns of a table of a model, which has no name if it is the only one.

    Those of a model without a declaration are none. Labels that a fit discovered are known.
    """
    schema = getattr(model, "schema_", None) or getattr(model, "schema", None) or {}
    schema = schema[table] if table and table in schema else schema
    return getattr(schema, "schema", schema)


def write_table(
    frame: "pd.DataFrame", path: Path, ending: str, model: Any = None, table: str = ""
) -> None:
    """Write a table of a model in the format of a file ending; a CSV file as its schema declares.

    Texts are as declared. Declared integers beside nulls, which are floats in memory, are written
    as integers in any format.
    """
    columns = _columns_of(model, table)
    is_ruled = bool(getattr(model, "constraints", None) or getattr(columns, "rules", ()))
    is_text = ending.startswith((".csv", ".tsv"))
    for name, column in columns.items():
        # Numbers without a step may break a rule once they are rounded.
        is_exact = is_ruled and not getattr(column, "has_words", True) and column.n_steps is None
        if name in frame and is_text and not is_exact:
            frame = frame.assign(**{name: column.to_texts(frame[name])})
        elif name in frame and column.has_integers_beside_nulls:
            frame = frame.assign(**{name: frame[name].astype("Int64")})
    if ending.startswith(".jsonl"):
        _write_json(frame, path, ending)
    elif is_text:
        # The temporary path has another ending, so pandas could not infer the compression.
        methods: dict[str, Literal["gzip", "bz2"]] = {".gz": "gzip", ".bz2": "bz2"}
        method = methods.get(Path(ending).suffix)
        form = getattr(columns, "form", None)
        # Discovered labels may have characters that the encoding lacks. Unlike "?", escapes keep
        # them distinct, and unlike references of XML they have no semicolon, a delimiter.
        written = (
            {
                "encoding": form.encoding,
                "errors": "backslashreplace",
                "sep": form.delimiter,
            }
            if form
            else {}
        )
        if ending.startswith(".tsv") and written.get("sep", ",") == ",":
            written["sep"] = "\t"
        frame.to_csv(path, index=False, lineterminator="\n", compression=method, **written)
    elif ending == ".xlsx":
        _write_workbook(frame, path)
    elif ending == ".parquet":
        frame.to_parquet(path, index=False, engine="pyarrow")
    else:
        frame.to_feather(path)


def _write_json(frame, path, ending):
    """Write a record a line; dates are texts in ISO 8601, and nulls are null."""
    openers: dict[str, Any] = {".gz": gzip.open, ".bz2": bz2.open}
    values = frame.astype(object)
    values = values.where(values.notna(), None)
    with openers.get(Path(ending).suffix, open)(path, "wt", encoding="utf-8", newline="\n") as file:
        for start in range(0, len(values), 1 << 16):
            for record in values[start : start + (1 << 16)].to_dict("records"):
                text = json.dumps(record, ensure_ascii=False, default=lambda x: x.isoformat())
                file.write(text + "\n")


def _write_workbook(frame, path):
    """Write a workbook of Excel; it has no time zones, so that dates with one are texts."""
    zoned = [name for name in frame if hasattr(frame[name].dtype, "tz")]
    texts = {name: frame[name].map(lambda x: x.isoformat(), na_action="ignore") for name in zoned}
    frame.assign(**texts).to_excel(path, index=False, engine="openpyxl")


def check_writable(ending: str, n_rows: int | None = None) -> None:
    """Raise an error if a table cannot be written in a format, before anything is spent."""
    if ending != ".xlsx":
        return
    from sklearn_dpgen.preprocessing._workbooks import MOST_ROWS, import_openpyxl

    import_openpyxl()
    if n_rows is not None and n_rows >= MOST_ROWS:
        raise CommandError(f"A file of Excel must have fewer than {MOST_ROWS} rows, got {n_rows}.")


def _refuse_url(path):
    if is_url(path):
        raise CommandError("--out must be in the file system, not a URL.")


def real_paths(paths: Iterable[str]) -> set[str]:
    """Return the real paths of input files, of which a database has one or none."""
    found: set[str] = set()
    for path in paths:
        if is_url(path):
            from sklearn_dpgen.preprocessing._databases import database_file

            path = database_file(path)
        found |= set() if path is None else {os.path.realpath(path)}
    return found


def is_same_file(path: str | Path, other: str | Path) -> bool:
    """Return whether two real paths are those of one file, whatever the case of its name.

    Windows and macOS find ``patients.csv`` by ``Patients.csv`` too.
    """
    try:
        return os.path.samefile(path, other)
    except OSError:
        return os.fspath(path) == os.fspath(other)


def read_key(path: str, *, private: bool) -> Any:
    """Read an Ed25519 key, private or public, from a PEM file without a password."""
    try:
        from cryptography.exceptions import UnsupportedAlgorithm
        from cryptography.hazmat.primitives import serialization
        from cryptography.hazmat.primitives.asymmetric import ed25519
    except ImportError:
        raise CommandError(
            "Signatures need cryptography: pip install 'sklearn-dpgen[sign]'."
        ) from None
    content = Path(path).read_bytes()
    try:
        if private:
            key = serialization.load_pem_private_key(content, password=None)
        else:
            key = serialization.load_pem_public_key(content)
    except (ValueError, TypeError, UnsupportedAlgorithm):
        key = None
    if not isinstance(key, ed25519.Ed25519PrivateKey if private else ed25519.Ed25519PublicKey):
        side = "private" if private else "public"
        raise CommandError(
            f"{path} must hold a {side} Ed25519 key in PEM format, without a password."
        )
    return key


@contextmanager
def replacing(path: Path) -> Iterator[Path]:
    """Yield a temporary path beside a path, and move the file to the path at the end."""
    temporary = path.with_name(f".{secrets.token_hex(4)}-{path.name}")
    try:
        yield temporary
        os.replace(temporary, path)
    finally:
        with suppress(OSError):
            temporary.unlink()


def write_text(path: Path, text: str) -> None:
    """Write a text in UTF-8 with Unix line ends."""
    with replacing(path) as temporary, open(temporary, "w", encoding="utf-8", newline="\n") as file:
        file.write(text if text.endswith("\n") else text + "\n")


def read_text(path: str | Path, role: str) -> str:
    """Read a text in UTF-8; an error does not quote it."""
    try:
        return Path(path).read_text(encoding="utf-8-sig")
    except UnicodeDecodeError:
        pass
    raise CommandError(f"The {role} {path} must be encoded in UTF-8.")


def read_schema(path: str, tables: Mapping[str, Sequence[str]]) -> "Schema | RelationalSchema":
    """Read the schema of one table, or of tables with keys, from a YAML or JSON file.

    Parameters
    ----------
    path : str
    tables : mapping of str to sequence of str
        The files of tables by name. Those of public tables are read.

    Raises
    ------
    CommandError
        The file cannot be parsed, or is not a valid schema, or a public table has no file.
    """
    check_files(schema=path)
    declaration = parse(read_text(path, "schema"), path)
    from sklearn_dpgen.schema import RelationalSchema, Schema
    from sklearn_dpgen.schema._file import gaps_of
    from sklearn_dpgen.schema._relational import is_relational

    gaps = gaps_of(declaration)
    if gaps:
        raise CommandError(f"{path} is a draft: declare {', '.join(gaps)}.")
    folder = Path(path).parent
    try:
        if not is_relational(declaration):
            return Schema.from_dict(declaration, folder=folder)
        frames = {
            name: _public_frame(name, entry, tables, folder)
            for name, entry in declaration["tables"].items()
            if isinstance(entry, dict) and entry.get("public")
        }
        return RelationalSchema.from_dict(declaration, frames=frames, folder=folder)
    except ValueError as error:
        fault = describe(error)
    raise CommandError(f"{path} is not a valid schema. {fault}")


def _public_frame(name, entry, tables, folder):
    if name not in tables:
        raise CommandError(f"--table {name}=FILE must give the rows of the public table {name!r}.")
    import pandas as pd

    from sklearn_dpgen.schema import Schema
    from sklearn_dpgen.schema._relational import as_integers

    key = entry.get("primary_key")
    if not isinstance(key, str):
        # The declaration is refused for that.
        return pd.DataFrame()
    words = {word: entry[word] for word in ("delimiter", "encoding") if word in entry}
    columns = Schema.from_dict(words | {"columns": entry.get("columns")}, folder=folder)
    files = in_format(tables[name], columns.form)
    frame = read_frame(files, {key: None} | dict(columns))
    keys = as_integers(frame[key].dropna())
    # Texts of a CSV file may be the integers of other files; the table is public.
    is_whole = keys is not None and len(keys) == len(frame)
    return frame.assign(**{key: keys.to_numpy()}) if is_whole else frame


def parse(text: str, path: str) -> Any:
    """Parse YAML or JSON, by the ending of the path; an error names the position alone."""
    from sklearn_dpgen.schema._texts import read_declaration

    try:
        return read_declaration(text, path, path)
    except ValueError as error:
        fault = describe(error)
    raise CommandError(fault)


def check_new_file(path: str, *, overwrite: bool) -> Path:
    """Return the path of an output file, or raise CommandError if it cannot be written."""
    _refuse_url(path)
    file = Path(path)
    if file.is_dir():
        raise CommandError(f"--out must be a file, got the folder {path}.")
    if file.exists() and not overwrite:
        raise CommandError(f"--out {path} exists already. Use --overwrite to replace it.")
    if not file.parent.is_dir():
        raise CommandError(
            f"--out {path} must be in an existing folder: there is no folder {file.parent}."
        )
    return file


class OutputFolder:
    """A folder for results, which a run reserves before it spends a budget.

    The reservation is a subfolder, which only one process can create. Files are written there. When
    the context ends, also after an error, all complete files are moved to the folder.

    Parameters
    ----------
    path : str
    names : iterable of str
        All files that a run may write. Those of an earlier run are removed, so that all files of
        the folder belong to one run. The last one appears last.
    overwrite : bool
        Whether the folder may hold files already.
    inputs : iterable of str
        Files that are never replaced.
    """

    def __init__(self, path: str, names: Iterable[str], *, overwrite: bool, inputs: tuple = ()):
        self.path = Path(path)
        self.written: list[str] = []
        self._names = tuple(names)
        inputs = tuple(real_paths(inputs))
        _refuse_url(path)
        if self.path.exists() and not self.path.is_dir():
            raise CommandError(f"--out must be a folder, got the file {path}.")
        self._is_new = not self.path.exists()
        # All files in the folder of a table belong to the table, whatever their names.
        real = Path(os.path.realpath(path))
        folders = (real, *real.parents)
        if any(is_same_file(folder, given) for folder in folders for given in inputs):
            raise CommandError(f"--out must be outside the folder of the table, got {path}.")
        for name in self._names:
            if any(is_same_file(real / name, given) for given in inputs):
                raise CommandError(f"--out {path} would replace the input {name}.")
        self.path.mkdir(parents=True, exist_ok=True)
        self.claim = self.path / _CLAIM
        try:
            self.claim.mkdir()
        except FileExistsError:
            raise CommandError(
                f"--out {path} is in use by another run, or by one that was killed. If no run is "
                f"active, look into {self.claim} and remove it. The charge of a killed run to a "
                "ledger stays."
            ) from None
        # Checked after the claim, because another run may have ended just before it.
        if not overwrite and any(entry != self.claim for entry in self.path.iterdir()):
            self._release()
            raise CommandError(
                f"--out {path} must be empty or new. Use --overwrite to replace the files of an "
                "earlier run."
            )

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_) -> None:
        if self.written:
            # The last name is that of the list of all others, which must never describe others.
            (self.path / self._names[-1]).unlink(missing_ok=True)
        for name in self._names if self.written else ():
            if name in self.written:
                os.replace(self.claim / name, self.path / name)
            else:
                (self.path / name).unlink(missing_ok=True)
        self._release()

    def _release(self):
        shutil.rmtree(self.claim)
        if self._is_new and not self.written:
            with suppress(OSError):
                self.path.rmdir()

    @contextmanager
    def file(self, name: str) -> Iterator[Path]:
        """Yield the path at which to write a file."""
        yield self.claim / name
        self.written.append(name)

    def text(self, name: str, text: str) -> None:
        """Write a text."""
        write_text(self.claim / name, text)
        self.written.append(name)
