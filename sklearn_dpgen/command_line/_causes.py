"""The usual causes of values that do not fit a schema, and what mends them.

The causes are found from private values, for the curator alone. Their words come from the lists of
this module, so no other text of a record is shown.
"""

import datetime
import json
import re
import shlex
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from sklearn_dpgen.schema._column import Column
    from sklearn_dpgen.schema._csv import CsvFormat

__all__ = ["Cause", "Hint", "causes_of", "hints_of", "strip_command"]

# Codes of missing values, without regard to case.
_WORDS = {
    *("unknown", "unk", "not known", "unbekannt", "k.a.", "inconnu", "desconocido", "onbekend"),
    *("missing", "n/a", "n.a.", "na", "none", "null", "nil", "nan", "no data", "no answer"),
    *("not available", "not applicable", "not recorded", "not stated", "not asked", "not done"),
    *("refused", "declined", "empty", "blank", "?", "??", "-", "--", "---", ".", "..", "*"),
    *("#n/a", "#value!", "#div/0!", "#ref!", "#null!", "0000-00-00", "00/00/0000"),
}
_ONES = (1, 11, 111, 1111, 11111, 111111)
_NUMBERS = {sign * digit * ones for sign in (1, -1) for digit in (7, 8, 9) for ones in _ONES} | {-1}
_DATES = {
    *("1800-01-01", "1899-12-30", "1899-12-31", "1900-01-01", "1901-01-01", "1970-01-01"),
    *("1111-11-11", "2099-12-31", "2999-12-31", "3000-01-01", "9999-01-01", "9999-09-09"),
    "9999-12-31",
}
_DAYS = (
    *("%d/%m/%Y", "%m/%d/%Y", "%d.%m.%Y", "%d-%m-%Y", "%m-%d-%Y", "%Y/%m/%d", "%Y.%m.%d"),
    *("%d %b %Y", "%d-%b-%Y", "%d %B %Y", "%b %d, %Y", "%B %d, %Y", "%d/%m/%y", "%m/%d/%y"),
    *("%d.%m.%y", "%d-%m-%y", "%d-%b-%y"),
)
_TIMES = ("", " %H:%M", " %H:%M:%S", " %I:%M %p", " %I:%M:%S %p")
_FORMS = [day + time for day in _DAYS for time in _TIMES]
# The days since 1899-12-30 of the years 1927 to 2064, as spreadsheets number them.
_SERIAL = range(10_000, 60_000)
_SYMBOL = r"[€$£¥₹]|EUR|USD|GBP|CHF|JPY|SEK|NOK|DKK|PLN|kr|zł"
_AMOUNT = re.compile(
    rf"(?P<before>{_SYMBOL})?\s*(?P<number>[-+]?[\d.,\s'’]*\d)\s*(?P<after>{_SYMBOL})?"
)
_PLAIN = r"[-+]?\d*\.?\d+"
_DECIMAL_COMMA = re.compile(r"[-+]?\d+,\d+")
_GROUPED = {
    ",": re.compile(r"[-+]?\d{1,3}(,\d{3})+(\.\d+)?"),
    ".": re.compile(r"[-+]?\d{1,3}(\.\d{3})+(,\d+)?"),
    " ": re.compile(r"[-+]?\d{1,3}([ \u00a0\u202f]\d{3})+([.,]\d+)?"),
    "'": re.compile(r"[-+]?\d{1,3}(['’]\d{3})+([.,]\d+)?"),
}
# Most codes that are named for a column.
_MOST = 8
# What is said of one value and of several, of causes that no word of a schema mends.
_WORDS_OF = {
    "percent": (
        "a percentage: remove the sign from the file",
        "percentages: remove the sign from the file",
    ),
    "limit": (
        "a limit, such as '<5': replace it in the file by a public rule",
        "limits, such as '<5': replace them in the file by a public rule",
    ),
    "unit": (
        "a number with a unit: remove it from the file",
        "numbers with a unit: remove it from the file",
    ),
    "mixed": (
        "written otherwise than declared: write a column in one way",
        "written otherwise than declared: write a column in one way",
    ),
    "spelling": (
        "a declared label but for zeros: a spreadsheet may have turned codes into numbers",
        "declared labels but for zeros: a spreadsheet may have turned codes into numbers",
    ),
}


@dataclass(frozen=True, order=True)
class Cause:
    """A usual cause of a fault: a kind, and a text of the lists of this module."""

    kind: str
    text: str = ""


@dataclass(frozen=True)
class Hint:
    """What probably mends values.

    Attributes
    ----------
    columns : tuple of str
    n_values : int
    cause : str
        A sentence.
    mends : tuple of str
        Lines for a column of the schema, or a command. Of several, one applies.
    where : {"schema", "shell"} or None
        Where the lines belong.
    """

    columns: tuple[str, ...]
    n_values: int
    cause: str
    mends: tuple[str, ...] = ()
    where: str | None = None

    def to_dict(self) -> dict:
        """Return the hint for a JSON document."""
        return {
            "columns": [*self.columns],
            "n_values": self.n_values,
            "cause": self.cause,
            "mends": [*self.mends],
            "where": self.where,
        }


def causes_of(fault: str, column: "Column", text: str) -> set[Cause]:
    """Return the usual causes by which a value may have a fault.

    Parameters
    ----------
    fault : {"outside_bounds", "unreadable", "undeclared"}
    column : Column
    text : str
        The value.
    """
    from sklearn_dpgen.schema import Datetime
    from sklearn_dpgen.schema._binned import Binned

    column = column.column if isinstance(column, Binned) else column
    code = _code(text, is_date=isinstance(column, Datetime))
    if code is not None:
        return {Cause("missing", code)}
    if fault == "undeclared":
        return _of_label(text.strip(), getattr(column, "labels", ()))
    if fault != "unreadable":
        return set()
    if isinstance(column, Datetime):
        found, declared = _of_date(text), getattr(column, "format", None)
        is_other = declared is not None and (_is_iso(text.strip()) or found)
    else:
        found, declared = _of_number(text.strip()), getattr(column, "decimal", ".")
        is_other = declared != "." and re.fullmatch(_PLAIN, text.strip())
    return {Cause("mixed")} if is_other else found


def _code(text, is_date):
    """Return a usual code of missing values as YAML, or None."""
    text = text.strip()
    if is_date:
        if text[:10] in _DATES and re.fullmatch(r"([T ]00:00(:00(\.0+)?)?)?", text[10:]):
            return json.dumps(text[:10])
    elif re.fullmatch(r"-?\d{1,6}(\.0+)?", text) and float(text) in _NUMBERS:
        return str(int(float(text)))
    return json.dumps(text, ensure_ascii=False) if text.casefold() in _WORDS else None


def _of_label(text, labels):
    labels = [label for label in labels if isinstance(label, str)]
    if text in labels:
        return {Cause("blanks")}
    if text.casefold() in map(str.casefold, labels):
        return {Cause("case")}
    number = _number(text)
    is_alike = number is not None and any(_number(label) == number for label in labels)
    return {Cause("spelling")} if is_alike else set()


def _number(text):
    return float(text) if re.fullmatch(_PLAIN, text) else None


def _of_date(text):
    own = text.strip()
    if own != text and _is_iso(own):
        return {Cause("blanks")}
    formats = [form for form in _formats().get(_shape(own), ()) if _fits(own, form)]
    if formats:
        return {Cause("format", form) for form in formats}
    number = _number(own)
    return {Cause("serial")} if number is not None and int(number) in _SERIAL else set()


def _is_iso(text):
    try:
        datetime.datetime.fromisoformat(text)
    except ValueError:
        return False
    return True


def _fits(text, form):
    try:
        datetime.datetime.strptime(text, form)
    except ValueError:
        return False
    return True


def _shape(text):
    """Return a text with each number as 9 and each word as a."""
    return re.sub(r"[^\W\d_]+", "a", re.sub(r"\d+", "9", text))


@cache
def _formats():
    """Return the formats of dates by the shape of their texts."""
    found: dict[str, list[str]] = {}
    moment = datetime.datetime(2001, 2, 3)
    for form in _FORMS:
        found.setdefault(_shape(moment.strftime(form)), []).append(form)
    return found


def _of_number(text):
    if match := _AMOUNT.fullmatch(text):
        number, symbol = match["number"], match["before"] or match["after"]
        found = {Cause("currency", symbol)} if symbol else set()
        if _DECIMAL_COMMA.fullmatch(number):
            found.add(Cause("decimal", ","))
        for mark, pattern in _GROUPED.items():
            if pattern.fullmatch(number):
                is_comma = mark != "," and re.search(r",\d*$", number)
                found.add(Cause("thousands", mark))
                found |= {Cause("decimal", ",")} if is_comma else set()
        return found
    number = r"[-+]?\d+([.,]\d+)?"
    for kind, pattern in (
        ("percent", rf"{number}\s*%"),
        ("limit", rf"[<>≤≥]=?\s*{number}"),
        ("unit", rf"{number}\s*[^\W\d_][^\d]*"),
    ):
        if re.fullmatch(pattern, text):
            return {Cause(kind)}
    return set()


def hints_of(
    name: str, column: "Column", causes: Mapping[Cause, int], n_fitting: int = 0
) -> list[Hint]:
    """Return what probably mends the values of a column, from the number of values by cause.

    A word on how all values are written is no remedy where most of them fit without it.
    """
    by_kind: dict[str, Counter] = {}
    for cause, n in causes.items():
        by_kind.setdefault(cause.kind, Counter())[cause.text] += n
    hints = []

    def add(n, one, many, *lines):
        words = f"{n} is {one}" if n == 1 else f"{n} are {many}"
        hints.append(Hint((name,), n, words, lines, "schema" if lines else None))

    def add_way(n, one, many, *lines):
        if n_fitting > n:
            end = ", unlike most of the column: correct {} in the file"
            return add(n, one + end.format("it"), many + end.format("them"))
        return add(n, one, many, *lines)

    if codes := by_kind.get("missing"):
        declared = [json.dumps(code, ensure_ascii=False) for code in column.missing]
        found = [code for code, _ in codes.most_common(_MOST) if code not in declared]
        line = f"missing: [{', '.join([*declared, *found])}]"
        n, end = codes.total(), "of missing values"
        add(n, f"a usual code {end}", f"usual codes {end}", line)
    if formats := by_kind.get("format"):
        best = [form for form in _FORMS if formats[form] == max(formats.values())]
        best = best[:1] if not _is_ambiguous(best) else best[:2]
        lines = map(_format_line, best)
        one, many = "a date in another format", "dates in another format"
        add_way(max(formats.values()), one, many, *lines)
    if by_kind.get("serial"):
        end = "of a spreadsheet: export the dates as texts"
        add(by_kind["serial"].total(), f"a day number {end}", f"day numbers {end}")
    _add_numbers(add, add_way, by_kind)
    for kind, words in _WORDS_OF.items():
        if n := by_kind.get(kind, Counter()).total():
            add(n, *words)
    return hints


def _is_ambiguous(formats):
    return len(formats) > 1 and all("%b" not in form and "%B" not in form for form in formats)


def _format_line(form):
    return f"format: {json.dumps(form)}"


def _add_numbers(add, add_way, by_kind):
    """Add the hints for numbers with commas, marks of thousands, and currencies."""
    decimal, marks = by_kind.get("decimal", Counter()), by_kind.get("thousands", Counter())
    currency = by_kind.get("currency", Counter())
    if currency:
        symbol, n = currency.most_common(1)[0]
        line = f"currency: {json.dumps(symbol, ensure_ascii=False)}"
        add(n, "an amount with a currency", "amounts with a currency", line)
    mark, n_marks = marks.most_common(1)[0] if marks else ("", 0)
    n_decimal = decimal.total()
    lines = ('decimal: ","', f"thousands: {json.dumps(mark)}")
    if mark == "," and n_decimal == n_marks:
        end = "with a comma, either of decimals or of thousands"
        add_way(n_marks, f"a number {end}", f"numbers {end}", *lines)
    elif n_decimal and n_marks and mark != ",":
        end = "with a decimal comma and marks of thousands"
        add_way(max(n_decimal, n_marks), f"a number {end}", f"numbers {end}", "\n".join(lines))
    elif n_decimal > n_marks:
        end = "with a decimal comma"
        add_way(n_decimal, f"a number {end}", f"numbers {end}", lines[0])
    elif n_marks:
        end = "with marks of thousands"
        add_way(n_marks, f"a number {end}", f"numbers {end}", lines[1])


_READERS = {
    ".csv": ("pd.read_csv({}, {}dtype=str, keep_default_na=False)", "to_csv({}, {}index=False)"),
    ".tsv": ("pd.read_csv({}, {}dtype=str, keep_default_na=False)", "to_csv({}, {}index=False)"),
    ".parquet": ("pd.read_parquet({})", "to_parquet({})"),
}
# Most labels that a command repeats.
_MOST_LABELS = 50


def strip_command(
    path: str, columns: Mapping[str, Sequence[str]], form: "CsvFormat | None" = None
) -> str | None:
    """Return a shell command that strips blanks and restores the case of declared labels.

    Parameters
    ----------
    path : str
    columns : mapping of str to sequence of str
        The declared labels of each column; of a column of dates, none.
    form : CsvFormat or None, default=None
        How a CSV file is written.

    Returns
    -------
    str or None
        None for other formats than CSV, TSV and Parquet, and for many or ambiguous labels.
    """
    ending = next((e for e in _READERS if f"{e}." in f"{path.lower()}."), None)
    if ending is None or sum(map(len, columns.values())) > _MOST_LABELS:
        return None
    delimiter, encoding = (",", "utf-8") if form is None else (form.delimiter, form.encoding)
    delimiter = "\t" if ending == ".tsv" and delimiter == "," else delimiter
    options = "" if delimiter == "," else f"sep={_literal(delimiter)}, "
    options += "" if encoding == "utf-8" else f"encoding={_literal(encoding)}, "
    read, write = _READERS[ending]
    plain = path[: path.lower().rindex(ending)]
    code = [f"import pandas as pd; t = {read.format(_literal(path), options)}"]
    for name, labels in columns.items():
        key = _literal(name)
        keys = {label.strip().casefold() for label in labels}
        if len(keys) < len(labels) or any(label != label.strip() for label in labels):
            return None
        if labels:
            known = ", ".join(map(_literal, labels))
            code.append(f"k = {{x.strip().casefold(): x for x in [{known}]}}")
            change = "k.get(str(x).strip().casefold(), x)"
        else:
            change = "x.strip() if isinstance(x, str) else x"
        code.append(f"t[{key}] = [{change} for x in t[{key}]]")
    out = _literal(f"{plain}-mended{ending}")
    code.append(f"t.{write.format(out, options)}")
    return f"python -c {shlex.quote('; '.join(code))}"


def _literal(text):
    return json.dumps(text, ensure_ascii=False)
