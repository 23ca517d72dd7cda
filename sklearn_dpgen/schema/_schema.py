"""The schema of a table: its columns in order, in YAML, JSON and code, and checks of records."""

import datetime
import json
import textwrap
from collections.abc import Mapping, Sequence
from dataclasses import MISSING, fields
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

import numpy as np
import pandas as pd

from sklearn_dpgen.domains import Product
from sklearn_dpgen.exceptions import PublicError, PublicTypeError, PublicValueError
from sklearn_dpgen.persistence._declarations import Maybe, saved, tuple_of
from sklearn_dpgen.schema._codebook import GAP, read_codebook
from sklearn_dpgen.schema._column import Column, Identifier, IntervalColumn, given_as
from sklearn_dpgen.schema._csv import CsvFormat
from sklearn_dpgen.schema._dates import Datetime
from sklearn_dpgen.schema._declaration_advice import misplaced_fault, type_fault, unknown_fault
from sklearn_dpgen.schema._expressions import Scope
from sklearn_dpgen.schema._labels import Categorical, OpenCategorical, Ordinal
from sklearn_dpgen.schema._numbers import Numeric
from sklearn_dpgen.schema._rule_entries import entries_of_rules, read_rules, rules_hash
from sklearn_dpgen.schema._rules import Rule
from sklearn_dpgen.schema._shown import column_rows, schema_text
from sklearn_dpgen.schema._texts import dump_yaml, near_names, offered, read_json, read_yaml
from sklearn_dpgen.utils._frames import as_pandas
from sklearn_dpgen.utils._html import notebook
from sklearn_dpgen.utils._urls import is_url

if TYPE_CHECKING:
    from sklearn_dpgen.schema._drafts import RelationalDraft

__all__ = ["TABLE_WORDS", "Schema", "SchemaDraft", "is_long"]

_FAULTS = ("outside_bounds", "undeclared", "null", "not_integer", "unreadable")


TYPES: dict[str, type[Any]] = {
    "numeric": Numeric,
    "categorical": Categorical,
    "open_categorical": OpenCategorical,
    "ordinal": Ordinal,
    "datetime": Datetime,
    "identifier": Identifier,
}
_NAMES = {column: name for name, column in TYPES.items()}
# What a file may declare beside the columns.
TABLE_WORDS = ("unit", "rules", "delimiter", "encoding", "public")


@saved
class Schema(Mapping):
    """The public declaration of a table: its columns by name, in order.

    A schema is declared, never inferred: bounds or categories read from private records would
    reveal them before any noise is added.

    Parameters
    ----------
    columns : mapping of str to Column
        Numeric, Categorical, OpenCategorical, Ordinal, Datetime or Identifier. At least one
        of them is neither a constant, with a single label, nor an Identifier.
    rules : sequence of Rule or str, default=()
        Public rules that every synthetic row fulfils, such as ``"admitted <= discharged"``; see
        :ref:`rules`. They are the default of ``constraints`` of an estimator.
    unit : str or None, default=None
        The column that identifies persons, an Identifier or no column of the schema. It is the
        default of ``unit`` of an estimator, whose guarantee then protects persons with all of their
        rows. Estimators that cannot do so refuse the schema.
    delimiter : str, default=","
        What separates the fields of CSV files: a comma, semicolon, tab or vertical bar.
    encoding : str, default="utf-8"
        Encoding of CSV files, such as "cp1252".
    public : str or sequence of str, default=()
        Paths of a public table, with wildcards or not, the default of ``public`` of an estimator.
        They are files, which are not saved with a model.

    Examples
    --------
    >>> from sklearn_dpgen.schema import Categorical, Numeric, Schema
    >>> schema = Schema({"age": Numeric(0, 100), "smoker": Categorical(["no", "yes"])})
    >>> schema.domain.n_features
    3
    >>> print(schema.to_yaml())
    age:
      type: numeric
      low: 0
      high: 100
    smoker:
      type: categorical
      categories:
      - 'no'
      - 'yes'
    <BLANKLINE>
    """

    # The files of a public table are not saved, as those of estimators.
    _saved_state = {
        "columns": dict[str, Column],
        "rules": Maybe(tuple_of("Rule")),
        "unit": Maybe(str),
        "delimiter": Maybe(str),
        "encoding": Maybe(str),
    }

    def __init__(
        self,
        columns: Mapping[str, Column],
        *,
        rules: Sequence[Rule | str | Mapping] = (),
        unit: str | None = None,
        delimiter: str = ",",
        encoding: str = "utf-8",
        public: str | Sequence[str] = (),
    ) -> None:
        if not isinstance(columns, Mapping) or not columns:
            raise PublicValueError("columns must be a non-empty mapping of names to columns.")
        for name, column in columns.items():
            if not isinstance(name, str):
                raise PublicValueError(
                    f"Column names must be strings, got {name!r}: quote it in a file."
                )
            if not isinstance(column, Column):
                raise PublicValueError(
                    f"Column {name!r} must be one of {', '.join(k.__name__ for k in _NAMES)}."
                )
        if all(column.is_constant for column in columns.values()):
            raise PublicValueError(
                f"At least one column must be neither constant nor an identifier, got {[*columns]}."
            )
        self._columns = dict(columns)
        self.rules = read_rules(rules, Scope(self._columns))
        self.unit = self._checked_unit(unit)
        self.form = self._checked_form(CsvFormat(delimiter, encoding))
        self.public = _checked_paths(public)
        # That of the file of the schema, to which its paths are relative.
        self._folder: str | Path | None = None

    def _checked_unit(self, unit):
        if unit is not None and (not isinstance(unit, str) or not unit):
            raise PublicTypeError(f"unit must be the name of a column, got {given_as(unit)}.")
        if unit in self._columns and not isinstance(self._columns[unit], Identifier):
            raise PublicValueError(
                f"unit must be an identifier or no column of the schema, got {unit!r}: the "
                "identifier of a person is not learned."
            )
        return unit

    def _checked_form(self, form):
        """Return the format of files, which must be able to hold all names and declared labels."""
        for name, column in self._columns.items() if not form.is_utf8 else ():
            # Those of an open column may be discovered: a refusal would come after the charge.
            is_open = isinstance(column, OpenCategorical)
            labels = () if is_open else getattr(column, "labels", ())
            texts = [name, *labels, getattr(column, "prefix", None), getattr(column, "other", None)]
            if not all(form.can_write(text) for text in texts if isinstance(text, str)):
                raise PublicValueError(
                    f"encoding must have all characters of names and labels, got {form.encoding!r} "
                    f"and column {name!r}."
                )
        return form

    @property
    def delimiter(self) -> str:
        """What separates the fields of CSV files."""
        return self.form.delimiter

    @property
    def encoding(self) -> str:
        """Encoding of CSV files."""
        return self.form.encoding

    @property
    def public_files(self) -> list[str]:
        """The paths of the public table, from the folder of the file of the schema."""
        return [str(Path(self._folder or "", path)) for path in self.public]

    def _with(self, columns=None, **changes):
        """Return the schema with other columns, or other declarations of the table."""
        own = {name: getattr(self, name) for name in TABLE_WORDS}
        found = type(self)(self._columns if columns is None else columns, **own | changes)
        found._folder = self._folder
        return found

    @property
    def _declared(self):
        """The declarations of the table that differ from their defaults."""
        defaults = {"unit": None, "rules": (), "delimiter": ",", "encoding": "utf-8", "public": ()}
        own = {name: getattr(self, name) for name in TABLE_WORDS}
        return {name: value for name, value in own.items() if value != defaults[name]}

    def _to_saved(self):
        declared = {n: v for n, v in self._declared.items() if n != "public"}
        return {"columns": self._columns} | declared

    def __getitem__(self, name):
        return self._columns[name]

    def __iter__(self):
        return iter(self._columns)

    def __len__(self):
        return len(self._columns)

    def __eq__(self, other):
        if not isinstance(other, Schema):
            return NotImplemented
        own, others = self._declared, other._declared
        return list(self.items()) == list(other.items()) and own == others

    def __hash__(self):
        plain = tuple(value for name, value in self._declared.items() if name != "rules")
        return hash((tuple(self.items()), plain, rules_hash(self.rules)))

    def __repr__(self):
        return schema_text(self, self._declared)

    def _repr_html_(self) -> str:
        head = ("column", "type", "declaration")
        rows = [*column_rows(self)]
        return notebook(f"Schema of {len(self)} columns", table=(head, rows))

    @property
    def domain(self) -> Product:
        """The domain of an encoded record: the product of the columns' domains."""
        return Product([column.domain for column in self.values()])

    @property
    def blocks(self) -> dict[str, slice]:
        """The encoded features of each column, a dict of slices."""
        return dict(zip(self, self.domain.slices, strict=True))

    @property
    def feature_names(self) -> list[str]:
        """The names of the encoded features, a list."""
        return [feature for name in self for feature in self[name].feature_names(name)]

    @property
    def open_columns(self) -> dict[str, OpenCategorical]:
        """The columns whose labels are not known, and must be discovered; by name."""
        columns = self.items()
        return {n: c for n, c in columns if isinstance(c, OpenCategorical) and not c.is_known}

    def with_labels(self, labels: Mapping[str, Sequence[str]]) -> Self:
        """Return the schema with known labels of open columns.

        Parameters
        ----------
        labels : mapping of str to sequence of str
            The labels of some columns, each an ``OpenCategorical``.

        Returns
        -------
        Schema
        """
        known = {name: self.open_columns[name].with_labels(own) for name, own in labels.items()}
        return self._with({**self, **known})

    def check(self, frame: pd.DataFrame) -> pd.DataFrame:
        """Count the values of each column that do not fit the declaration.

        .. warning::
            Not private: for the curator only. The counts are computed from private records without
            noise. Do not publish them, and do not show them with a release. A bound or category
            that is changed because of them is not public: take it from a codebook.

        Parameters
        ----------
        frame : DataFrame of shape (n, n_columns)
            Private records, with the columns of the schema; further columns are ignored.

        Returns
        -------
        DataFrame of int of shape (len(schema), 5)
            Number of values of each column that are "outside_bounds" (they will be clipped),
            "undeclared" labels, "null" without being nullable, "not_integer" (they will be
            rounded), or "unreadable" as the declared type.

        Raises
        ------
        PublicTypeError, PublicValueError
            ``frame`` is not a data frame, or a column is missing or repeated.

        Examples
        --------
        >>> import pandas as pd
        >>> from sklearn_dpgen.schema import Categorical, Numeric, Schema
        >>> schema = Schema({"age": Numeric(0, 120), "smoker": Categorical(["no", "yes"])})
        >>> schema.check(pd.DataFrame({"age": [31, 340], "smoker": ["no", None]}))
                outside_bounds  undeclared  null  not_integer  unreadable
        age                  1           0     0            0           0
        smoker               0           0     1            0           0
        """
        return _check_records(self, frame)

    def to_texts(self, frame: pd.DataFrame) -> pd.DataFrame:
        """Return a table as a text file is to hold it, with values written as declared.

        Parameters
        ----------
        frame : DataFrame of shape (n, n_columns)
            Such as synthetic rows. Columns that are not declared stay as they are.

        Returns
        -------
        DataFrame of shape (n, n_columns)
            Write it by ``to_csv(path, index=False)``.

        Examples
        --------
        >>> import pandas as pd
        >>> from sklearn_dpgen.schema import Datetime, Numeric, Schema
        >>> schema = Schema({
        ...     "day": Datetime("2020-01-01", "2024-12-31", format="%d/%m/%Y"),
        ...     "visits": Numeric(0, 99, integer=True, nullable=True),
        ... })
        >>> days = pd.to_datetime(["2024-03-31", "2024-04-01"])
        >>> print(schema.to_texts(pd.DataFrame({"day": days, "visits": [3, None]})))
                  day visits
        0  31/03/2024      3
        1  01/04/2024   None
        """
        return frame.assign(
            **{name: column.to_texts(frame[name]) for name, column in self.items() if name in frame}
        )

    @classmethod
    def draft(
        cls, codebook: pd.DataFrame | Sequence[Mapping] | Mapping | pd.Series
    ) -> "SchemaDraft | RelationalDraft":
        """Draft a schema from public metadata such as a codebook, never from records.

        Parameters
        ----------
        codebook : DataFrame, list of dict, mapping or Series of dtypes
            A data dictionary has a row for each column, with the fields ``name`` and ``type``, and
            optionally ``min``, ``max``, ``values`` (a list, a mapping of codes to meanings, or text
            such as ``"no, yes"``, ``"1=male; 2=female"`` or ``"1, male | 2, female"``),
            ``ordered``, ``nullable`` or ``required``, ``missing`` (codes for null), ``step``,
            ``resolution``, ``format``, ``decimal``, ``thousands``, ``currency``, and ``label``,
            ``description`` and ``unit``, which make the description. Common synonyms are accepted,
            such as ``variable``, ``dtype``, ``minimum`` or ``codes``.

            The content of a JSON or YAML file of one of these formats is known by its words:
            a Table Schema or a data package [1]_, metadata of CSV on the Web [2]_, of the SDV, and
            of SmartNoise SQL. Fields that are not ``required`` are nullable. What a schema cannot
            express becomes a note.

            Dtypes or type names by column, such as ``frame.dtypes``, have no bounds. Categories of
            a dtype are not used: they may be those that occur in the records.

        Returns
        -------
        SchemaDraft or RelationalDraft
            A draft that lists the missing bounds and categories. Print it for code to paste. It is
            relational if the metadata declare several tables.

        Raises
        ------
        PublicValueError
            A column or field is not understood, or the codebook is a table of records.

        Notes
        -----
        The codebook is taken to be public. Many codebooks print the smallest and the largest value
        that occurred: these are private, and must not be used as bounds.

        References
        ----------
        .. [1] Frictionless Data, "Data Package", version 2.
        .. [2] W3C, "Metadata Vocabulary for Tabular Data", 2015.

        Examples
        --------
        >>> from sklearn_dpgen.schema import Schema
        >>> codebook = [
        ...     {"name": "age", "type": "integer", "min": 18, "max": 100, "unit": "years"},
        ...     {"name": "smoker", "type": "string", "values": "no, yes"},
        ...     {"name": "income", "type": "number"},
        ... ]
        >>> draft = Schema.draft(codebook)
        >>> print(draft)
        from sklearn_dpgen.schema import Categorical, Numeric, Schema
        <BLANKLINE>
        schema = Schema({
            "age": Numeric(18, 100, integer=True, description="years"),
            "smoker": Categorical(["no", "yes"]),
            "income": Numeric(low=..., high=...),  # declare low and high
        })
        >>> draft.missing
        {'income': ('low', 'high')}
        """
        # Drafts of several tables know of this class.
        from sklearn_dpgen.schema._drafts import draft_exchange

        found = draft_exchange(codebook, _column_from_dict)
        return SchemaDraft(read_codebook(codebook, _column_from_dict)) if found is None else found

    def to_dict(self) -> dict[str, dict]:
        """Return the schema as plain dicts, lists, strings and numbers.

        Returns
        -------
        dict of str to dict
            For each column its ``type`` and the fields that differ from their defaults. If the
            schema declares more than columns, they are under the key ``columns``, beside the other
            words.
        """
        columns = {name: _column_to_dict(column) for name, column in self.items()}
        if not self._declared and not is_long(columns):
            return columns
        words: dict[str, Any] = self._declared
        if self.rules:
            words["rules"] = entries_of_rules(self.rules, Scope(self))
        if self.public:
            words["public"] = self.public[0] if len(self.public) == 1 else [*self.public]
        return words | {"columns": columns}

    @classmethod
    def from_dict(cls, declaration: Mapping[str, Any], *, folder: str | Path | None = None) -> Self:
        """Build a schema from the result of `to_dict`.

        Parameters
        ----------
        declaration : mapping of str to mapping
            The declaration of each column, or under ``columns`` these, beside ``unit``, ``rules``,
            ``delimiter``, ``encoding`` and ``public``, each as the parameter. A categorical column
            may have ``categories_from``, a text file in UTF-8 with one label a line, in place of
            ``categories``. The file must be as public as the schema.
        folder : str or Path, optional
            The folder of these files and those of ``public``, which must be in it. Without it they
            are refused.

        Raises
        ------
        PublicTypeError, PublicValueError
            The declaration of a column is invalid; the message names it.
        """
        if not isinstance(declaration, Mapping):
            raise PublicValueError("A schema must map column names to declarations.")
        words: dict[str, Any] = {}
        if is_long(declaration):
            words = {name: value for name, value in declaration.items() if name != "columns"}
            declaration = declaration["columns"]
            unknown = [word for word in words if word not in TABLE_WORDS]
            if unknown:
                raise PublicValueError(
                    f"{offered(unknown, ['columns', *TABLE_WORDS])} in the declaration of a table."
                )
        elif (fault := misplaced_fault(declaration, TABLE_WORDS)) is not None:
            raise PublicValueError(fault)
        columns = {name: _column_from_dict(name, own, folder) for name, own in declaration.items()}
        found = cls(columns, **words)
        for path in found.public:
            _check_public_path(path, folder)
        found._folder = folder
        return found

    def to_json(self) -> str:
        """Return the schema as JSON."""
        return json.dumps(self.to_dict(), indent=2, allow_nan=False)

    @classmethod
    def from_json(cls, text: str, *, folder: str | Path | None = None) -> Self:
        """Build a schema from JSON; see `from_dict`."""
        return cls.from_dict(read_json(text), folder=folder)

    def to_yaml(self) -> str:
        """Return the schema as YAML."""
        return dump_yaml(self.to_dict())

    @classmethod
    def from_yaml(cls, text: str, *, folder: str | Path | None = None) -> Self:
        """Build a schema from YAML; see `from_dict`.

        A plain word is a number, a truth value or null only where YAML 1.1 and 1.2 agree, and
        otherwise a text: ``yes``, ``NO``, ``00501`` and ``12:30`` are labels. A label that would
        lose how it is written, such as ``250.00``, must be quoted, and no key may be repeated.
        """
        return cls.from_dict(read_yaml(text), folder=folder)


def is_long(declaration: Any) -> bool:
    """Return whether a declaration has its columns under one key, beside other words.

    A column may be called "columns" too.
    """
    columns = declaration.get("columns") if isinstance(declaration, Mapping) else None
    return isinstance(columns, Mapping) and not isinstance(columns.get("type"), str)


def _checked_paths(paths):
    if any(map(is_url, paths if isinstance(paths, list | tuple) else [paths])):
        # Not shown, as it may hold a password.
        raise PublicValueError("public must be a file, not a URL: export the table of a database.")
    paths = (paths,) if isinstance(paths, str) else paths
    if not isinstance(paths, Sequence) or not all(isinstance(p, str) and p for p in paths):
        raise PublicTypeError(
            f"public must be the path of a table, or several, got {given_as(paths)}."
        )
    return tuple(paths)


def _check_public_path(path, folder):
    """Refuse a path of a file of somebody else's schema that leads out of its folder."""
    if folder is None:
        raise PublicValueError(
            "public must be read from a file of the schema: pass the folder of the file."
        )
    root = Path(folder).resolve()
    if not (root / path).resolve().is_relative_to(root):
        raise PublicValueError(f"public must be in the folder of the schema, got {given_as(path)}.")


def _column_to_dict(column):
    entry: dict[str, Any] = {"type": _NAMES[type(column)]}
    for field in fields(column):
        value = getattr(column, field.name)
        if value != field.default:
            if isinstance(value, datetime.datetime):
                value = value.isoformat()
            entry[field.name] = _as_lists(value)
    return entry


def _as_lists(value):
    return [_as_lists(item) for item in value] if isinstance(value, tuple) else value


def _column_from_dict(name, entry, folder=None):
    if not isinstance(entry, Mapping):
        raise PublicValueError(f"Column {name!r}: a declaration must be a mapping.")
    given = dict(entry)
    kind = given.pop("type", None)
    if not isinstance(kind, str) or kind not in TYPES:
        raise PublicValueError(f"Column {name!r}: {type_fault(kind, given, TYPES)}")
    if "categories_from" in given and kind in ("categorical", "open_categorical", "ordinal"):
        if "categories" in given:
            raise PublicValueError(
                f"Column {name!r}: categories_from must not be given beside categories."
            )
        given["categories"] = _labels_of_file(name, given.pop("categories_from"), folder)
    if kind == "ordinal" and "values" in given and "categories" not in given:
        # The word of earlier releases.
        given["categories"] = given.pop("values")
    known = fields(TYPES[kind])
    words = [field.name for field in known]
    unknown = [key for key in given if key not in words]
    missing = [f.name for f in known if f.default is MISSING and f.name not in given]
    if unknown or missing:
        fault = unknown_fault(unknown, ["type", *words]) if unknown else f"missing {missing}"
        raise PublicValueError(f"Column {name!r}: {fault} in a {kind} declaration.")
    try:
        return TYPES[kind](**given)
    except PublicError as error:
        raise PublicValueError(f"Column {name!r}: {error}") from error


def _labels_of_file(name, path, folder):
    """Return the lines of a text file in a folder; errors do not quote the file."""
    rule = f"Column {name!r}: categories_from must"
    if not isinstance(path, str) or not path:
        raise PublicValueError(f"{rule} be the path of a text file, got {given_as(path)}.")
    if folder is None:
        raise PublicValueError(
            f"{rule} be read from a file of the schema: pass the folder of the file."
        )
    root = Path(folder).resolve()
    # A schema that somebody else wrote must not read other files.
    file = (root / path).resolve()
    if not file.is_relative_to(root):
        raise PublicValueError(f"{rule} be in the folder of the schema, got {given_as(path)}.")
    if not file.is_file():
        raise PublicValueError(f"{rule} be an existing file, got {given_as(path)}.")
    try:
        lines = file.read_text(encoding="utf-8-sig").splitlines()
    except UnicodeDecodeError:
        lines = None
    if lines is None:
        raise PublicValueError(f"{rule} be a text file in UTF-8, got {given_as(path)}.")
    return [label for line in lines if (label := line.strip())]


class SchemaDraft:
    """A schema with possibly missing bounds or categories; made by `Schema.draft`.

    ``str(draft)`` is `to_code`.

    Parameters
    ----------
    declaration : mapping of str to mapping
        As from `Schema.to_dict`, with ``"..."`` for missing declarations.
    notes : mapping of str to str, optional
        Comments on some of the columns.
    remarks : sequence of str, default=()
        Comments on the table as a whole.
    words : mapping of str to str, optional
        What is declared of the table beside its columns: unit, delimiter and encoding.
    """

    def __init__(
        self,
        declaration: Mapping,
        notes: Mapping | None = None,
        remarks: Sequence[str] = (),
        words: Mapping[str, str] | None = None,
    ) -> None:
        self.declaration = declaration
        self.notes = {} if notes is None else notes
        self.remarks = remarks
        self.words = {} if words is None else words

    def __str__(self):
        return self.to_code()

    def __repr__(self):
        return f"<SchemaDraft of {len(self.declaration)} columns, missing={self.missing!r}>"

    @property
    def missing(self) -> dict:
        """The fields that must still be declared, a dict of tuples by column."""
        gaps = {
            name: tuple(field for field, value in entry.items() if value == GAP)
            for name, entry in self.declaration.items()
        }
        return {name: fields for name, fields in gaps.items() if fields}

    def to_schema(self) -> Schema:
        """Return the schema.

        Raises
        ------
        PublicValueError
            Declarations are missing; the message names the columns.
        """
        if self.missing:
            gaps = ", ".join(f"{name!r} ({', '.join(f)})" for name, f in self.missing.items())
            raise PublicValueError(f"The draft lacks public declarations of columns {gaps}.")
        if self.words:
            return Schema.from_dict(dict(self.words) | {"columns": self.declaration})
        return Schema.from_dict(self.declaration)

    def to_code(self) -> str:
        """Return Python code to paste, which raises as long as it contains a ``...``."""
        types = {entry["type"] for entry in self.declaration.values()} - {GAP}
        kinds = {TYPES[kind].__name__ for kind in types}
        lines = [f"from sklearn_dpgen.schema import {', '.join(sorted({*kinds, 'Schema'}))}", ""]
        lines += [*(f"# {remark}" for remark in self.remarks), "schema = Schema({"]
        for name, entry in self.declaration.items():
            lines += [f"    # {self.notes[name]}"] if name in self.notes else []
            todo = f"  # declare {' and '.join(self.missing[name])}" if name in self.missing else ""
            lines.append(f"    {_literal(name)}: {_call(entry)},{todo}")
        words = "".join(f", {word}={_literal(value)}" for word, value in self.words.items())
        return "\n".join([*lines, f"}}{words})"])

    def to_yaml(self) -> str:
        """Return YAML, which `Schema.from_yaml` refuses as long as it contains a ``...``."""
        remarks = "".join(f"# {remark}\n" for remark in self.remarks)
        columns = ""
        for name, entry in self.declaration.items():
            note = f"# {self.notes[name]}\n" if name in self.notes else ""
            columns += note + dump_yaml({name: entry})
        if not self.words:
            return remarks + columns
        return f"{remarks}{dump_yaml(dict(self.words))}columns:\n{textwrap.indent(columns, '  ')}"


def _call(entry):
    """Return the code of one column."""
    if entry["type"] == GAP:
        return GAP
    fields = {key: "..." if v == GAP else _literal(v) for key, v in entry.items() if key != "type"}
    bare = () if GAP in entry.values() else ("low", "high", "categories")
    arguments = [text if key in bare else f"{key}={text}" for key, text in fields.items()]
    return f"{TYPES[entry['type']].__name__}({', '.join(arguments)})"


def _literal(value):
    """Return a value as code, with double quotes for strings."""
    if isinstance(value, list):
        return f"[{', '.join(map(_literal, value))}]"
    text = repr(value)
    return f'"{text[1:-1]}"' if text[0] == "'" and '"' not in text else text


def _check_records(schema, frame):
    """Count the values of each column that do not fit a declaration; see :meth:`Schema.check`."""
    # Each label fits a column that is open.
    schema = schema.with_labels(dict.fromkeys(schema.open_columns, ()))
    frame = as_pandas(frame)
    if not isinstance(frame, pd.DataFrame):
        raise PublicTypeError(f"frame must be a data frame, got {type(frame).__name__}.")
    missing = [name for name in schema if name not in frame.columns]
    twice = list(frame.columns[frame.columns.duplicated()].unique())
    faults = {"missing": missing, "more than once": twice}
    if any(faults.values()):
        words = ", ".join(f"{fault} {found}" for fault, found in faults.items() if found)
        hint = near_names(missing, frame.columns)
        raise PublicValueError(f"frame must have each column of the schema once: {words}.{hint}")
    found = {name: find_faults(column, frame[name]) for name, column in schema.items()}
    counts = {
        name: [int(masks[fault].sum()) if fault in masks else 0 for fault in _FAULTS]
        for name, masks in found.items()
    }
    return pd.DataFrame.from_dict(counts, orient="index", columns=list(_FAULTS))


def find_faults(column, series):
    """Return the mask of the values that have each fault of :meth:`Schema.check`, a dict."""
    values, bad, null = column._read_quietly(series)
    found = {} if column.nullable else {"null": null}
    if not isinstance(column, IntervalColumn):
        return found | {"undeclared": bad}
    is_read = ~null & ~bad
    for fault, mask in column._find_faults(values[is_read]).items():
        found[fault] = np.zeros(len(series), dtype=bool)
        found[fault][is_read] = mask
    return found | {"unreadable": bad}
