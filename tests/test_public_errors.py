"""Errors that a command may show are of public classes, and quote no other error."""

import ast
from pathlib import Path

import pytest

import sklearn_dpgen
from sklearn_dpgen.exceptions import PublicError

ROOT = Path(sklearn_dpgen.__file__).parent
# The rooms whose errors are public.
ROOMS = [
    *("accounting", "auditing", "command_line", "deconvolution", "domains", "engines"),
    *("evolution", "inference", "ledger", "mechanisms", "model_selection", "nn", "ot"),
    *("metrics", "moments", "persistence", "predictors", "preprocessing", "reporting"),
    *("schema", "sliced", "tables", "utils"),
]
FILES = sorted(path for room in ROOMS for path in (ROOT / room).glob("*.py"))
BUILT_IN = {
    *("ImportError", "FileExistsError", "FileNotFoundError", "OSError", "OverflowError"),
    *("PermissionError", "RuntimeError", "TimeoutError", "TypeError", "ValueError"),
}


def public_names(tree):
    """Return the names of the public error classes that a module imports or defines."""
    names = {"PublicError"}
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom):
            module = __import__(node.module, fromlist=["x"]) if node.module else None
            for alias in node.names if (node.module or "").startswith("sklearn_dpgen") else ():
                kind = getattr(module, alias.name, None)
                if isinstance(kind, type) and issubclass(kind, PublicError):
                    names.add(alias.asname or alias.name)
        elif isinstance(node, ast.ClassDef):
            bases = {getattr(base, "id", None) for base in node.bases}
            if bases & names:
                names.add(node.name)
    return names


def faults(source):
    """Return the lines that raise a built-in error, or quote an error that may not be public."""
    tree = ast.parse(source)
    names = public_names(tree)
    found = [
        node.lineno
        for node in ast.walk(tree)
        if isinstance(node, ast.Raise)
        and isinstance(node.exc, ast.Call)
        and getattr(node.exc.func, "id", None) in BUILT_IN
    ]
    for handler in ast.walk(tree):
        if not isinstance(handler, ast.ExceptHandler) or handler.name is None:
            continue
        kinds = handler.type.elts if isinstance(handler.type, ast.Tuple) else [handler.type]
        if all(getattr(kind, "id", None) in names for kind in kinds):
            continue
        for call in ast.walk(handler):
            is_public = isinstance(call, ast.Call) and getattr(call.func, "id", None) in names
            shown = (
                value for argument in getattr(call, "args", ()) for value in ast.walk(argument)
            )
            if is_public and any(getattr(value, "id", None) == handler.name for value in shown):
                found.append(call.lineno)
    return found


# A call whose result is shown only if it is public.
QUOTING = {
    # The content of a file of a model is public.
    "persistence/_files.py": 1,
}


@pytest.mark.parametrize("path", FILES, ids=lambda path: f"{path.parent.name}/{path.name}")
def test_errors_are_public(path):
    found = faults(path.read_text(encoding="utf-8"))
    assert len(found) == QUOTING.get(f"{path.parent.name}/{path.name}", 0), found


IMPORT = "from sklearn_dpgen.exceptions import PublicError, PublicValueError\n"


@pytest.mark.parametrize(
    "source",
    [
        "raise ValueError(f'got {x}')",
        "raise TypeError('X')",
        f"{IMPORT}try:\n    f()\nexcept ValueError as e:\n    raise PublicValueError(f'{{e}}')",
        f"{IMPORT}try:\n    f()\nexcept (PublicError, KeyError) as e:\n"
        "    raise PublicValueError(str(e))",
        f"{IMPORT}class A(PublicError):\n    pass\n"
        "try:\n    f()\nexcept Exception as e:\n    raise A(e)",
    ],
)
def test_errors_that_are_not_public_are_found(source):
    assert len(faults(source)) == 1


def test_public_errors_are_not_faults():
    assert not faults(
        f"{IMPORT}try:\n    f()\nexcept PublicError as e:\n    raise PublicValueError(f'{{e}}')\n"
        "except ValueError as e:\n    raise PublicValueError('X must be a table.') from e\n"
    )


def test_a_public_error_is_the_built_in_one_of_its_name():
    import builtins

    from sklearn_dpgen import exceptions

    names = [name for name in vars(exceptions) if name.startswith("Public")]
    names.remove("PublicError")
    assert len(names) >= 7
    for name in names:
        kind = getattr(exceptions, name)
        assert issubclass(kind, PublicError)
        assert issubclass(kind, getattr(builtins, name.removeprefix("Public")))
        assert str(kind("a message")) == "a message"
