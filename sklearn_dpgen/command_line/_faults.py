"""The values of a table that do not fit a schema: how many, where, and by which causes."""

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from sklearn_dpgen.command_line._causes import Cause, Hint, causes_of, hints_of, strip_command

if TYPE_CHECKING:
    import numpy as np
    import pandas as pd

    from sklearn_dpgen.schema import Schema

__all__ = ["Finder"]

# How many places and texts of a fault are shown.
_N_PLACES, _N_TEXTS = 5, 10
_LONGEST_TEXT = 60
# The share of the values of a fault below which a code is none.
_RARE = 0.1
# How many texts of a column are counted at once, before the rarest are dropped.
_MOST_TEXTS = 20_000
_WITH_CAUSES = ("outside_bounds", "unreadable", "undeclared")
_OF_SPELLING = ("blanks", "case")


@dataclass
class _Fault:
    """What is known of a fault of a column."""

    count: int = 0
    places: list[tuple[str, int]] = field(default_factory=list)
    causes: Counter = field(default_factory=Counter)
    n_explained: int = 0
    texts: Counter = field(default_factory=Counter)


class Finder:
    """Collects the faults of the values of a table, in memory that does not grow with the table.

    One hash and one place are kept for each row and column of identifiers.

    Parameters
    ----------
    schema : Schema
    keys : sequence of str
        Columns where a missing value is a fault, in the schema or not.
    ids : iterable of str, default=()
        Columns whose repeated values are found.
    show_values : bool, default=False
        Whether texts of the table are kept.
    """

    def __init__(
        self,
        schema: "Schema",
        keys: Sequence[str],
        *,
        ids: Iterable[str] = (),
        show_values: bool = False,
    ) -> None:
        self._schema, self._keys, self._show_values = schema, keys, show_values
        self._hashes: dict[str, list[np.ndarray]] = {name: [] for name in ids}
        self._hash_places: dict[str, list[tuple[str, np.ndarray]]] = {n: [] for n in self._hashes}
        self._faults: dict[str, dict[str, _Fault]] = {}
        self._n_fitting: Counter = Counter()
        self._mended: dict[str, set[str]] = {}
        self._paths: dict[str, str] = {}
        self._rules: list[tuple[str, Any, list[str], _Fault]] | None = None

    def look(
        self,
        path: str,
        word: str,
        places: "np.ndarray",
        raw: "pd.DataFrame",
        frame: "pd.DataFrame",
    ) -> None:
        """Look at records.

        Parameters
        ----------
        path : str
            The file.
        word : {"line", "row"}
            What the places are numbers of.
        places : ndarray of int of shape (n,)
        raw, frame : DataFrame of shape (n, n_columns)
            The values as they are in the file, and as they are read.
        """
        from sklearn_dpgen.schema._schema import find_faults

        self._paths[path] = word
        for name, column in self._schema.items():
            fits = raw[name].notna().to_numpy()
            for fault, mask in find_faults(column, frame[name]).items():
                fits = fits & ~mask
                if mask.any():
                    self._add(name, fault, mask, path, places, raw[name])
            self._n_fitting[name] += int(fits.sum())
        for name in self._keys:
            mask = raw[name].isna().to_numpy()
            if mask.any() and not (name in self._schema and not self._is_identifier(name)):
                self._add(name, "null", mask, path, places, raw[name])
        self._look_at_rules(path, places, frame)
        for name, hashes in self._hashes.items():
            given = raw[name].notna().to_numpy()
            hashes.append(_hashes(raw[name][given]))
            self._hash_places[name].append((path, places[given]))

    def _look_at_rules(self, path, places, frame):
        """Count the rows that break a rule, among those whose values can be read."""
        if not getattr(self._schema, "rules", ()):
            return
        import pandas as pd

        from sklearn_dpgen.tables._table_rules import broken

        if self._rules is None:
            self._rules = _rules_of(self._schema)
        read = {
            name: _read(self._schema[name], frame[name])
            for name in dict.fromkeys(n for _, _, names, _ in self._rules for n in names)
        }
        for _, rules, names, entry in self._rules:
            is_valid = ~sum(read[name][1] for name in names).astype(bool)
            values = {name: read[name][0][is_valid].reset_index(drop=True) for name in names}
            own = places[is_valid][broken(rules, pd.DataFrame(values))]
            entry.count += len(own)
            first = own[: _N_PLACES - len(entry.places)]
            entry.places += [(path, int(place)) for place in first]

    def _is_identifier(self, name):
        from sklearn_dpgen.schema import Identifier

        return isinstance(self._schema[name], Identifier)

    def _add(self, name, fault, mask, path, places, series):
        entry = self._faults.setdefault(name, {}).setdefault(fault, _Fault())
        entry.count += int(mask.sum())
        first = places[mask][: _N_PLACES - len(entry.places)]
        entry.places += [(path, int(place)) for place in first]
        if fault not in _WITH_CAUSES:
            return
        for text, n in series[mask].astype(str).value_counts().items():
            causes = causes_of(fault, self._schema[name], text)
            entry.n_explained += n if causes else 0
            entry.causes.update(dict.fromkeys(sorted(causes), n))
            if any(cause.kind in _OF_SPELLING for cause in causes):
                self._mended.setdefault(path, set()).add(name)
            if self._show_values:
                entry.texts[text] += n
        if len(entry.texts) > _MOST_TEXTS:
            entry.texts = Counter(dict(entry.texts.most_common(_MOST_TEXTS // 2)))

    def found(self) -> dict[str, Any]:
        """Return what was found, as of a table of :func:`_check_table`."""
        repeated = self._find_repeated()
        names = dict.fromkeys([*self._schema, *self._keys, *self._hashes])
        faults = {name: self._faults[name] for name in names if name in self._faults}
        found: dict[str, Any] = {
            "faults": {n: {f: e.count for f, e in own.items()} for n, own in faults.items()},
            "places": {
                n: {f: self._placed(e.places) for f, e in own.items()} for n, own in faults.items()
            },
            "hints": [hint.to_dict() for hint in self._hints(faults)],
            "repeated_keys": repeated,
        }
        if self._rules is not None:
            found["rules"] = [
                {"rule": text, "count": entry.count, "places": self._placed(entry.places)}
                for text, _, _, entry in self._rules
            ]
        if self._show_values:
            found["values"] = {
                n: {f: _shown(e.texts) for f, e in own.items() if e.texts}
                for n, own in faults.items()
            }
        return found

    def _placed(self, places):
        is_one = len(self._paths) == 1
        return [
            ({} if is_one else {"file": path}) | {self._paths[path]: place}
            for path, place in places
        ]

    def _find_repeated(self):
        """Add the faults of repeated identifiers, and return the columns that have them."""
        import numpy as np

        repeated = []
        for name, hashes in self._hashes.items():
            values = np.concatenate([np.empty(0, dtype=np.uint64), *hashes])
            _, index, times = np.unique(values, return_inverse=True, return_counts=True)
            is_shared = times[index] > 1
            if not is_shared.any():
                continue
            repeated.append(name)
            entry = _Fault(count=int(is_shared.sum()))
            n = 0
            for path, places in self._hash_places[name]:
                own = places[is_shared[n : n + len(places)]][: _N_PLACES - len(entry.places)]
                entry.places += [(path, int(place)) for place in own]
                n += len(places)
            self._faults.setdefault(name, {})["repeated"] = entry
        return repeated

    def _hints(self, faults):
        hints, unexplained = [], {}
        n_spelled: Counter = Counter()
        for name, own in faults.items():
            if name not in self._schema:
                continue
            causes: Counter = Counter()
            for fault, entry in own.items():
                # A few numbers beyond a bound may look like codes by chance.
                least = _RARE * entry.count if fault == "outside_bounds" else 0
                causes.update({cause: n for cause, n in entry.causes.items() if n >= least})
                if fault in ("unreadable", "undeclared") and entry.count > entry.n_explained:
                    unexplained[name] = entry.count - entry.n_explained
            for kind in _OF_SPELLING:
                n_spelled[name] += causes.pop(Cause(kind), 0)
            hints += hints_of(name, self._schema[name], causes, self._n_fitting[name])
            is_coded = any(cause.kind == "missing" for cause in causes)
            if "null" in own and not is_coded and not self._is_identifier(name):
                n = own["null"].count
                words = f"{n} {'is' if n == 1 else 'are'} missing"
                hints.append(Hint((name,), n, words, ("nullable: true",), "schema"))
        return [*hints, *self._spelling_hints(+n_spelled), *self._other_hints(unexplained)]

    def _spelling_hints(self, n_spelled):
        """Return the hint for labels and dates with blanks around, or labels in another case."""
        if not n_spelled:
            return []
        names, n = tuple(n_spelled), n_spelled.total()
        words = f"{n} differ from the declared {'labels' if n > 1 else 'label'} by blanks or case"
        columns = {
            name: [x for x in getattr(self._schema[name], "labels", ()) if isinstance(x, str)]
            for name in names
        }
        form = getattr(self._schema, "form", None)
        commands = [strip_command(path, columns, form) for path in self._mended]
        if len(commands) == 1 and commands[0] is not None:
            return [Hint(names, n, words, (commands[0],), "shell")]
        return [Hint(names, n, f"{words}: correct them in the files")]

    def _other_hints(self, unexplained):
        if not unexplained:
            return []
        n = sum(unexplained.values())
        words = f"{n} {'has' if n == 1 else 'have'} no usual cause"
        hint = "" if self._show_values else "; --show-values shows the commonest"
        return [Hint(tuple(unexplained), n, words + hint)]


def _rules_of(schema):
    """Return the text, the rule, its columns and an empty fault of each rule of a schema."""
    from sklearn_dpgen.schema._expressions import Scope, rule_text
    from sklearn_dpgen.schema._rules import columns_of
    from sklearn_dpgen.tables._table_rules import TableRules

    scope = Scope(schema)
    return [
        (
            rule_text(rule, scope) or f"{type(rule).__name__} of {', '.join(columns_of(rule))}",
            TableRules([rule], schema),
            [*columns_of(rule)],
            _Fault(),
        )
        for rule in schema.rules
    ]


def _read(column, series):
    """Return values as a sample has them, and the mask of those that are not valid."""
    import numpy as np
    import pandas as pd

    from sklearn_dpgen.schema import Datetime
    from sklearn_dpgen.schema._column import IntervalColumn

    values, bad, null = column._read_quietly(series)
    unknown = null | bad
    if isinstance(column, Datetime):
        moments = np.where(unknown, np.datetime64("NaT", "us"), values.view("datetime64[us]"))
        values = column.in_zone(moments)
    elif isinstance(column, IntervalColumn):
        values = np.where(unknown, np.nan, values)
    else:
        values = column._values(column._codes(values, unknown), None)
    return pd.Series(values), bad | (null & (not column.nullable))


def _shown(texts):
    return [
        {"text": text if len(text) <= _LONGEST_TEXT else text[:_LONGEST_TEXT] + "...", "count": n}
        for text, n in texts.most_common(_N_TEXTS)
    ]


def _hashes(ids):
    """Return a hash of 64 bits for each identifier."""
    import pandas as pd

    return pd.util.hash_array(ids.astype(str).to_numpy(dtype=object))
