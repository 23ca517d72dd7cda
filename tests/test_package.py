"""The package as a whole: its public names, its documentation, its metadata, its files."""

import doctest
import inspect
import re
import subprocess
from importlib import import_module, metadata
from pathlib import Path
from pkgutil import walk_packages

import pytest

import sklearn_dpgen

REPOSITORY = Path(sklearn_dpgen.__file__).parents[1]
MODULES = sorted(m.name for m in walk_packages(sklearn_dpgen.__path__, "sklearn_dpgen."))
PUBLIC = [name for name in MODULES if "._" not in name and name != "sklearn_dpgen.utils"]

# An absolute path of somebody's machine, but not the path of a web address.
_MACHINE_PATH = re.compile(r"(?<![\w.:/-])/(?:home|Users|root|tmp|work|mnt)/\w|\b[A-Z]:\\Users\\\w")


def undocumented(value):
    """Return the names of a public object and of its own public methods without a docstring."""
    missing = [] if inspect.getdoc(value) else ["itself"]
    if inspect.isclass(value):
        for name, member in vars(value).items():
            inherited = any(name in vars(base) for base in value.__mro__[1:])
            if name.startswith("_") or inherited or not callable(getattr(value, name)):
                continue
            missing += [] if inspect.getdoc(member) else [name]
    return missing


@pytest.mark.parametrize("name", ["sklearn_dpgen", *PUBLIC])
def test_public_names_exist_and_are_documented(name):
    module = import_module(name)
    assert module.__doc__
    assert len(set(module.__all__)) == len(module.__all__)
    objects = {attribute: getattr(module, attribute) for attribute in module.__all__}
    missing = {key: undocumented(value) for key, value in objects.items() if callable(value)}
    assert not {key: names for key, names in missing.items() if names}


def test_a_missing_docstring_is_caught():
    class Bare:
        def method(self):
            pass

    assert undocumented(Bare) == ["itself", "method"]


# Each shows a fit or more.
DEAR = [
    f"sklearn_dpgen.{name}"
    for name in (
        "auditing._audit",
        "inference._estimates",
        "model_selection._private_search",
        "moments._image_sampler",
        "reporting._privacy_displays",
        "sliced._encoder",
        "tables._synthetic_data",
    )
]
assert {*DEAR} <= {*MODULES}


@pytest.mark.parametrize(
    "name", [pytest.param(n, marks=[pytest.mark.slow] * (n in DEAR)) for n in MODULES]
)
def test_examples_in_docstrings(name):
    result = doctest.testmod(import_module(name))
    assert result.failed == 0


def test_doctests_are_found():
    finder = doctest.DocTestFinder()
    module = import_module("sklearn_dpgen.deconvolution._gan")
    assert any(test.examples for test in finder.find(module))


def test_version_is_that_of_the_metadata():
    assert sklearn_dpgen.__version__ == metadata.version("sklearn-dpgen")


def tracked_files():
    try:
        done = subprocess.run(
            ["git", "ls-files", "-z"], cwd=REPOSITORY, capture_output=True, text=True, check=True
        )
    except (OSError, subprocess.CalledProcessError):
        pytest.skip("not a git checkout")
    return [REPOSITORY / name for name in done.stdout.split("\0") if name]


def machine_paths(text):
    return [match.group() for match in _MACHINE_PATH.finditer(text)]


@pytest.mark.slow
def test_tracked_files_hold_no_machine_paths():
    found = {}
    for path in tracked_files():
        try:
            paths = machine_paths(path.read_text(encoding="utf-8"))
        except (UnicodeDecodeError, FileNotFoundError):
            continue
        if paths:
            found[path.name] = paths
    assert not found


@pytest.mark.parametrize("parts", [("home", "ada", "data"), ("tmp", "x"), ("Users", "ada")])
def test_a_machine_path_is_caught(parts):
    path = "/" + "/".join(parts)
    assert machine_paths(f'open("{path}")')
    assert machine_paths(f"see {path}.")
    assert not machine_paths(f"https://example.org{path}")
    assert not machine_paths(f"docs{path}")
