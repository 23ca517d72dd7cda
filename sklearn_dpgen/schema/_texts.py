"""YAML and JSON of declarations, read so that a label is never taken for something else.

A plain word of YAML is a number, a truth value or null only where YAML 1.1 and the core schema of
YAML 1.2 agree on it, and otherwise a text. So ``NO``, ``00501``, ``12:30`` and ``1_000`` are texts.
"""

import json
import re
from collections.abc import Iterable, Iterator, Mapping
from difflib import get_close_matches
from typing import Any

import yaml

from sklearn_dpgen.exceptions import PublicValueError

__all__ = ["dump_yaml", "near_names", "offered", "read_json", "read_declaration", "read_yaml"]

_RESOLVED = {
    "null": r"~|null|Null|NULL|",
    "bool": r"true|True|TRUE|false|False|FALSE",
    "int": r"[-+]?(?:0|[1-9][0-9]*)",
    "float": r"[-+]?(?:[0-9]+\.[0-9]*|\.[0-9]+)(?:[eE][-+][0-9]+)?"
    r"|[-+]?\.(?:inf|Inf|INF)|\.(?:nan|NaN|NAN)",
    "merge": r"<<",
}
# The words of a schema or of a codebook whose items are labels.
_LABELS = {"categories", "values", "missing", "codes", "choices", "levels", "enum"}
# Those of a classification, and of a rule.
_LABELS |= {"hierarchy", "mapping"}
# Numbers that are written in one way only, as a file of another program has them too.
_PLAIN_NUMBER = re.compile(r"-?(0|[1-9][0-9]*)(\.(0|[0-9]*[1-9])(e[+-]?[0-9]+)?)?")

# Texts that look like numbers.
_LIKE_NUMBER = re.compile(r"[-+.]?[0-9][0-9a-fxobeE_.:,+-]*")


class _Loader(yaml.SafeLoader):
    """A loader of plain data whose plain words are texts wherever versions of YAML differ."""

    yaml_implicit_resolvers: dict = {}


for _tag, _pattern in _RESOLVED.items():
    _Loader.add_implicit_resolver(
        f"tag:yaml.org,2002:{_tag}", re.compile(f"(?:{_pattern})\\Z"), None
    )


class _Dumper(yaml.SafeDumper):
    """A writer that quotes texts that look like numbers, as readers of YAML differ."""


def _represent_text(dumper, text):
    # Other line breaks than those of Unix are only safe in double quotes.
    style = "'" if _LIKE_NUMBER.fullmatch(text) else None if text.isprintable() else '"'
    return dumper.represent_scalar("tag:yaml.org,2002:str", text, style=style)


_Dumper.add_representer(str, _represent_text)


def dump_yaml(declaration: Any) -> str:
    """Return a declaration as YAML that all readers read as the same."""
    return yaml.dump(declaration, Dumper=_Dumper, sort_keys=False, allow_unicode=True)


def read_yaml(text: str, what: str = "text") -> Any:
    """Return what a YAML text declares.

    Parameters
    ----------
    text : str
    what : str, default="text"
        What the text is, for errors.

    Raises
    ------
    PublicValueError
        The text is not YAML, repeats a key, or has a label that must be quoted. The message names
        lines, and no more of the text than such a label: a table may have been given.
    """
    mark = None
    loader = _Loader(text)
    try:
        node = loader.get_single_node()
        if node is not None:
            _check_nodes(node, what)
        declaration = None if node is None else loader.construct_document(node)
    except yaml.YAMLError as error:
        mark = getattr(error, "problem_mark", None)
        fault = f": see line {mark.line + 1}, column {mark.column + 1}" if mark else ""
    else:
        if isinstance(declaration, str):
            raise PublicValueError(f"{what} must be the YAML of a schema, not the path of a file.")
        return declaration
    finally:
        loader.dispose()
    raise PublicValueError(f"{what} must be valid YAML{fault}.")


def read_json(text: str, what: str = "text") -> Any:
    """Return what a JSON text declares; parameters and errors are those of `read_yaml`."""
    try:
        return json.loads(text, object_pairs_hook=_distinct)
    except json.JSONDecodeError as error:
        fault = f"must be valid JSON: see line {error.lineno}, column {error.colno}"
    except _RepeatedKeyError:
        # JSON is YAML for this, and the nodes of YAML have lines.
        fault = "must not repeat a key" + next(_repeated_lines(text), "")
    raise PublicValueError(f"{what} {fault}.")


def read_declaration(text: str, path: str, what: str = "text") -> Any:
    """Return what a file declares, as JSON or YAML by the ending of its path."""
    return (read_json if path.lower().endswith(".json") else read_yaml)(text, what)


def offered(unknown: list, words: Iterable[str], meant: Mapping[Any, str] | None = None) -> str:
    """Return a text about unknown words of a declaration, with the nearest and all allowed ones.

    Words that are known to be ``meant`` by others come before those of near spellings.
    """
    words, meant = list(words), meant or {}
    near = [
        match
        for word in unknown
        for match in ([meant[word]] if word in meant else get_close_matches(str(word), words, n=1))
    ]
    hint = f" (did you mean {', '.join(map(repr, dict.fromkeys(near)))}?)" if near else ""
    return f"unknown {unknown}{hint}, not one of {words},"


def near_names(missing: Iterable[str], given: Iterable[Any]) -> str:
    """Return a hint for missing columns that a table has in other letters, or an empty text.

    Only names that differ from a declared one in capitals, blanks and punctuation are shown. So
    the hint tells no more than a declared name, even if a table has records for names.
    """
    folded: dict[str, list[str]] = {}
    for name in given:
        if isinstance(name, str):
            folded.setdefault(_folded(name), []).append(name)
    found = [(name, folded.get(_folded(name), [])) for name in missing if _folded(name)]
    pairs = [f"{name!r} as {near[0]!r}" for name, near in found if near]
    return f" The table has {', '.join(pairs)}: rename one of them." if pairs else ""


def _folded(name):
    return re.sub(r"[\W_]+", "", name).casefold()


class _RepeatedKeyError(Exception):
    """A JSON object repeats a key."""


def _distinct(pairs):
    found = dict(pairs)
    if len(found) < len(pairs):
        raise _RepeatedKeyError
    return found


def _repeated_lines(text):
    try:
        nodes = [*_nodes(yaml.compose(text, Loader=_Loader))]
    except yaml.YAMLError:
        return
    yield from (fault for node, _ in nodes if (fault := _repeated(node)))


def _nodes(node, seen=None) -> Iterator[tuple[yaml.Node, bool]]:
    """Yield the nodes of a document, each once, and whether its items are labels."""
    seen = set() if seen is None else seen
    waiting = [(node, False)]
    while waiting:
        node, is_labels = waiting.pop()
        if id(node) in seen:
            continue
        seen.add(id(node))
        yield node, is_labels
        if isinstance(node, yaml.MappingNode):
            waiting += [(v, _is_scalar(k) and k.value in _LABELS) for k, v in node.value]
        elif isinstance(node, yaml.SequenceNode):
            waiting += [(item, False) for item in node.value]


def _is_scalar(node):
    return isinstance(node, yaml.ScalarNode)


def _check_nodes(node, what):
    for found, is_labels in _nodes(node):
        fault = _repeated(found)
        if fault:
            raise PublicValueError(f"{what} must not repeat a key{fault}.")
        if not is_labels:
            continue
        is_mapping = isinstance(found, yaml.MappingNode)
        items = [key for key, _ in found.value] if is_mapping else found.value
        items = items if isinstance(items, list) else []
        plain = [item for item in items if _is_scalar(item) and item.style is None]
        has_numbers = any(_kind(item) in ("int", "float") for item in plain)
        for item in plain:
            # A text such as 00501 is no mistake alone, but is one beside the number 10001.
            is_mixed = has_numbers and _kind(item) == "str" and _LIKE_NUMBER.fullmatch(item.value)
            if is_mixed or _is_changed(item):
                meaning = "a text, beside numbers" if is_mixed else _meaning(item)
                advice = "Quote all labels, as" if is_mixed else "Write"
                raise PublicValueError(
                    f"{what} must quote labels that YAML would change: line "
                    f"{item.start_mark.line + 1} has {item.value[:50] or 'an empty one'}, which is "
                    f"{meaning}. {advice} '{item.value[:50]}' for the text."
                )


def _repeated(node):
    """Return a text about the lines of a key that a mapping repeats, or an empty one."""
    lines: dict[tuple, int] = {}
    for key, _ in node.value if isinstance(node, yaml.MappingNode) else ():
        if _is_scalar(key) and key.tag != "tag:yaml.org,2002:merge":
            line = key.start_mark.line + 1
            if (key.tag, key.value) in lines:
                return f": line {line} has that of line {lines[key.tag, key.value]}"
            lines[key.tag, key.value] = line
    return ""


def _is_changed(node):
    """Return whether a plain label would lose how it is written."""
    if _kind(node) in ("int", "float"):
        return not _PLAIN_NUMBER.fullmatch(node.value)
    return _kind(node) == "null"


def _kind(node):
    return node.tag.rpartition(":")[2]


def _meaning(node):
    if _kind(node) == "null":
        return "null (declare the column nullable for that)"
    return f"the number {_Loader('').construct_object(node)!r}"
