"""The scripts of ``tools/``, as modules."""

import sys
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path

import pytest

import sklearn_dpgen

ROOT = Path(sklearn_dpgen.__file__).parents[1]
needs_checkout = pytest.mark.skipif(
    not (ROOT / "tools").exists(), reason="needs a checkout, not a wheel"
)


def load_tool(name):
    spec = spec_from_file_location(name, ROOT / "tools" / f"{name}.py")
    module = module_from_spec(spec)
    # A script may import those beside it.
    if (folder := str(ROOT / "tools")) not in sys.path:
        sys.path.append(folder)
    spec.loader.exec_module(module)
    return module
