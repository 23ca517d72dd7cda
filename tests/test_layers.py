"""The layers of the package: who may import whom, and what an import may not touch."""

import ast
import json
import os
import subprocess
import sys
from graphlib import CycleError, TopologicalSorter
from importlib import import_module
from pathlib import Path

import pytest

import sklearn_dpgen

ROOT = Path(sklearn_dpgen.__file__).parent

LEVELS = {
    "_version": 0,
    "exceptions": 0,
    "persistence": 0,
    "utils": 0,
    "domains": 1,
    "schema": 1,
    "accounting": 1,
    "ledger": 1,
    "ot": 1,
    "nn": 1,
    "mechanisms": 2,
    "engines": 2,
    "preprocessing": 2,
    "deconvolution": 3,
    "sliced": 3,
    "smoothed": 3,
    "evolution": 3,
    "moments": 3,
    "tables": 3,
    "metrics": 4,
    "datasets": 4,
    "model_selection": 4,
    "auditing": 4,
    "reporting": 4,
    "inference": 4,
    "predictors": 4,
    "command_line": 5,
    "app": 6,
    "__main__": 6,
}

# Within a level, first importer then imported. The estimators of level 3 do not import one another:
# what they share, such as the release of moments by class, is a mechanism. Displays and pages show
# what metrics compute, and the curve of budgets is computed where it is drawn.
SAME_LEVEL = {
    ("persistence", "_version"),
    ("persistence", "exceptions"),
    ("utils", "exceptions"),
    ("utils", "persistence"),
    ("schema", "domains"),
    ("ledger", "accounting"),
    ("ledger", "schema"),
    ("nn", "domains"),
    ("mechanisms", "preprocessing"),
    ("preprocessing", "engines"),
    ("reporting", "metrics"),
    ("model_selection", "reporting"),
}

# Mathematics on arrays and tensors knows nothing of estimators; the accountant needs no network.
FOREIGN = {
    "ot": {"sklearn"},
    "nn": {"sklearn"},
    "accounting": {"sklearn", "torch"},
}

# The public subpackages, and the single public modules.
PUBLIC = sorted(
    f"sklearn_dpgen.{path.stem}"
    for path in ROOT.iterdir()
    if not path.name.startswith("_") and (path.suffix == ".py" or (path / "__init__.py").exists())
)


def imported_modules(source, module, *, is_package=False):
    """Return the dotted names of all that a module's source imports, wherever in its text."""
    names = set()
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Import):
            names |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            base = node.module or ""
            if node.level:
                parts = module.split(".")
                stem = parts[: len(parts) - node.level + is_package]
                base = ".".join([*stem, base] if base else stem)
            # `from package import name` imports a module where name is one.
            names |= {base, *(f"{base}.{alias.name}" for alias in node.names)}
    return names


def violations(source, module, *, is_package=False):
    """Return one line for each import of a module that its place does not allow."""
    parts = module.split(".")
    own = parts[1] if len(parts) > 1 else None
    faults = []
    for name in sorted(imported_modules(source, module, is_package=is_package)):
        top, *rest = name.split(".")
        if top in FOREIGN.get(own, ()):
            faults.append(f"{module} imports {name}: {own} does without {top}")
        other = rest[0] if rest else None
        if top != "sklearn_dpgen" or other is None or other == own:
            continue
        if own is None:
            if other not in ("_version", "persistence"):
                faults.append(f"{module} imports {name}: the root has the version and load alone")
        elif other not in LEVELS:
            # What `from sklearn_dpgen import name` names is no module, or has no level yet.
            if (ROOT / other).exists() or (ROOT / f"{other}.py").exists():
                faults.append(f"{module} imports {name}, which has no level")
        elif LEVELS[other] > LEVELS[own]:
            faults.append(f"{module} imports {name} from a higher level")
        elif LEVELS[other] == LEVELS[own] and (own, other) not in SAME_LEVEL:
            faults.append(f"{module} imports {name} sideways")
    return faults


def module_files():
    for path in sorted(ROOT.rglob("*.py")):
        parts = ("sklearn_dpgen", *path.relative_to(ROOT).with_suffix("").parts)
        is_package = parts[-1] == "__init__"
        yield ".".join(parts[:-1] if is_package else parts), path, is_package


@pytest.mark.slow
def test_every_module_keeps_to_its_level():
    faults = []
    for module, path, is_package in module_files():
        faults += violations(path.read_text(encoding="utf-8"), module, is_package=is_package)
    assert not faults, "\n".join(faults)


def room_imports():
    """Return the rooms that each room imports, at the top of a module or later."""
    graph = {}
    for module, path, is_package in module_files():
        names = imported_modules(path.read_text(encoding="utf-8"), module, is_package=is_package)
        rooms = {
            parts[1]
            for parts in (n.split(".") for n in names)
            if parts[0] == "sklearn_dpgen" and len(parts) > 1 and parts[1] in LEVELS
        }
        own = module.partition(".")[2].partition(".")[0]
        graph.setdefault(own, set()).update(rooms - {own})
    return graph


@pytest.mark.slow
def test_no_rooms_import_each_other_in_a_circle():
    graph = room_imports()
    TopologicalSorter(graph).prepare()
    assert graph["persistence"] == {"_version", "exceptions"}
    assert "persistence" in graph["ledger"]
    # The negative twin: one late import of an estimator closes a circle.
    graph["persistence"].add("tables")
    with pytest.raises(CycleError):
        TopologicalSorter(graph).prepare()


def test_every_module_has_a_level():
    tops = {module.split(".")[1] for module, _, _ in module_files() if "." in module}
    assert tops <= set(LEVELS)
    assert all(LEVELS[a] == LEVELS[b] for a, b in SAME_LEVEL)
    assert not {a for a, b in SAME_LEVEL if LEVELS[a] == 3}
    assert not {(b, a) for a, b in SAME_LEVEL} & SAME_LEVEL


@pytest.mark.parametrize(
    ("module", "line"),
    [
        ("deconvolution._gan", "from sklearn_dpgen.sliced import anything"),
        ("evolution._evolution_sampler", "def f():\n    import sklearn_dpgen.smoothed._core"),
        ("sliced._loss", "from ..deconvolution._losses import make_loss"),
        ("sliced._loss", "from .. import deconvolution"),
        ("smoothed._loss", "from sklearn_dpgen import evolution"),
        ("smoothed._loss", "from sklearn_dpgen.moments import MomentSampler"),
        ("smoothed._loss", "from sklearn_dpgen.moments._base import BaseMomentSampler"),
        ("moments._base", "from sklearn_dpgen.smoothed import anything"),
        ("evolution._tabular_variation", "from sklearn_dpgen.tables import ProductMixture"),
        ("tables._marginals", "from sklearn_dpgen.sliced import anything"),
        ("tables._marginals", "from sklearn_dpgen.evolution._votes import nearest_neighbor_votes"),
        ("preprocessing._tabular", "from sklearn_dpgen.mechanisms import LaplaceMechanism"),
        ("domains", "from sklearn_dpgen.schema import Schema"),
        ("ot._costs", "from sklearn_dpgen.accounting import gaussian_sigma"),
        ("ot._costs", "if True:\n    from sklearn.utils import check_array"),
        ("nn._heads", "import sklearn.base"),
        ("accounting._report", "import torch"),
        ("utils._torch", "from sklearn_dpgen.domains import Box"),
        ("exceptions", "from sklearn_dpgen.utils import _random"),
        ("persistence._codec", "from sklearn_dpgen.domains import Box"),
        ("persistence._files", "def f():\n    from sklearn_dpgen.ledger import _base"),
        ("persistence._networks", "from sklearn_dpgen.smoothed._features import AdaptedNetwork"),
        ("mechanisms._base", "import sklearn_dpgen.metrics as metrics"),
        ("metrics._marginals", "from sklearn_dpgen.datasets import fetch_adult"),
        ("", "from sklearn_dpgen.deconvolution import EntropicDeconvGAN"),
    ],
)
def test_a_forbidden_import_is_caught(module, line):
    name = f"sklearn_dpgen.{module}".rstrip(".")
    assert violations(line, name, is_package=not module)


@pytest.mark.parametrize(
    ("module", "line"),
    [
        ("deconvolution._gan", "from sklearn_dpgen.mechanisms import LaplaceMechanism"),
        ("deconvolution._gan", "from ._losses import make_loss\nfrom .. import exceptions"),
        ("mechanisms._tabular", "from sklearn_dpgen.preprocessing import TabularEncoder"),
        ("utils._random", "from sklearn_dpgen.exceptions import TrainingDivergedError"),
        ("smoothed._loss", "from sklearn_dpgen.mechanisms._class_moments import price_moments"),
        ("metrics._transport", "import ot\nfrom sklearn.utils import check_array"),
        ("accounting._report", "from sklearn_dpgen import __version__"),
        ("ledger._base", "from sklearn_dpgen.persistence._files import SavedEstimator"),
        ("", "from sklearn_dpgen.persistence._files import load"),
        ("", "from sklearn_dpgen._version import __version__"),
    ],
)
def test_an_allowed_import_passes(module, line):
    name = f"sklearn_dpgen.{module}".rstrip(".")
    assert not violations(line, name, is_package=not module)


# The first import brings in every dependency: what changes at the next is the package's own doing.
# The state in between is one that nobody would set, so that setting even a default shows.
_IMPORT_ALL = """
import json, random, sys, warnings
from importlib import import_module

def import_all():
    for name in list(sys.modules):
        if name.split(".")[0] == "sklearn_dpgen":
            del sys.modules[name]
    for name in NAMES:
        import_module(name)

import_all()
heavy = sorted(set(sys.modules) & {"jinja2", "matplotlib", "dask", "statsmodels"})
import numpy, sklearn, torch

def careless():
    random.seed(0)
    numpy.random.seed(0)
    torch.manual_seed(0)
    warnings.simplefilter("ignore")
    sklearn.set_config(assume_finite=False)
    torch.set_default_dtype(torch.float32)
    torch.set_num_threads(1)
    torch.set_grad_enabled(True)
    numpy.seterr(all="warn")

def state():
    return {
        "python": repr(random.getstate()),
        "numpy": repr(numpy.random.get_state()[1].tolist()),
        "torch": repr(torch.get_rng_state().tolist()),
        "warnings": repr(warnings.filters),
        "sklearn": repr(sklearn.get_config()),
        "dtype": repr(torch.get_default_dtype()),
        "threads": repr(torch.get_num_threads()),
        "gradients": repr(torch.is_grad_enabled()),
        "errors": repr(numpy.geterr()),
    }

def changed(action):
    random.seed(7)
    numpy.random.seed(7)
    torch.manual_seed(7)
    warnings.resetwarnings()
    sklearn.set_config(assume_finite=True)
    torch.set_default_dtype(torch.float16)
    torch.set_num_threads(3)
    torch.set_grad_enabled(False)
    numpy.seterr(all="ignore")
    before = state()
    action()
    after = state()
    return sorted(key for key in before if before[key] != after[key])

print(json.dumps({
    "heavy": heavy, "package": changed(import_all), "careless": changed(careless),
    "all": sorted(state()),
}))
"""


@pytest.mark.slow
def test_import_is_light_and_touches_no_global_state():
    code = _IMPORT_ALL.replace("NAMES", repr(PUBLIC))
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    result = json.loads(done.stdout)
    assert result["heavy"] == []
    assert result["package"] == []
    # What a careless module would do is seen.
    assert result["careless"] == result["all"]


# Packages, plans, local mechanisms and tables on the CPU do without PyTorch. A fit that needs it
# loads it, and has one thread then.
_LOAD_LATE = """
import json, os, sys
from importlib import import_module

for name in ["", *NAMES]:
    import_module("sklearn_dpgen" + name)

import pandas as pd
import numpy as np
from sklearn.dummy import DummyClassifier
from sklearn_dpgen.domains import Box
from sklearn_dpgen.mechanisms import LaplaceMechanism
from sklearn_dpgen.moments import MomentImageSampler
from sklearn_dpgen.schema import Categorical, Numeric, Schema
from sklearn_dpgen.tables import TableSampler, SyntheticDataClassifier
from sklearn_dpgen.utils._random import NoiseSource

schema = Schema({"a": Numeric(0, 1), "b": Categorical(["n", "y"])})
X = pd.DataFrame({"a": [0.25, 0.75] * 50, "b": ["n", "y"] * 50})
options = {"schema": schema, "target": "b", "max_iter": 5, "device": "cpu", "random_state": 0}
sampler = TableSampler(50.0, 1e-3, **options)
sampler.plan(100)
SyntheticDataClassifier(sampler, DummyClassifier(), n_samples=50, n_draws=1).fit(X)
LaplaceMechanism(1.0, domain=Box(0, 1, n_features=1)).fit_transform(X[["a"]])
early = "torch" in sys.modules

seen, uniform = set(), NoiseSource._uniform

def watched(self, size):
    seen.add(sys.modules["torch"].get_num_threads())
    return uniform(self, size)

NoiseSource._uniform = watched
learner = MomentImageSampler(shape=(4, 4), pixel_range=(0, 1), labels="public", random_state=0)
images, found = np.random.default_rng(0).random((200, 16)), []
for value in ("one", "all"):
    os.environ["SKLEARN_DPGEN_THREADS"] = value
    seen.clear()
    learner.fit(images, np.arange(200) % 2)
    found.append(sorted(seen))
print(json.dumps({"early": early, "threads": found}))
"""

_WITHOUT_TORCH = [
    ".accounting",
    ".ledger",
    ".command_line",
    ".domains",
    ".evolution",
    ".reporting",
    ".auditing",
    ".mechanisms",
    ".model_selection",
    ".moments",
    ".preprocessing",
    ".schema",
    ".tables",
]


@pytest.mark.slow
@pytest.mark.parametrize(
    ("names", "is_early"), [(_WITHOUT_TORCH, False), ([".ot._sinkhorn"], True)]
)
def test_torch_is_loaded_by_the_fit_that_needs_it(names, is_early):
    code = _LOAD_LATE.replace("NAMES", repr(names))
    environment = os.environ | {"OMP_NUM_THREADS": "2"}
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True, env=environment
    )
    result = json.loads(done.stdout.splitlines()[-1])
    # That of a package which imports it is seen, and so are threads that are not limited.
    assert result == {"early": is_early, "threads": [[1], [2]]}


# What one process has loaded after each import, and after each name that is used.
_LOADED = """
import json, sys
from importlib import import_module

HEAVY = {
    "geomloss", "matplotlib", "ot", "pandas", "scipy", "scipy.optimize", "scipy.signal",
    "scipy.stats", "sklearn", "sklearn.ensemble", "torch", "tqdm",
}
found = {}
for name in NAMES:
    module, _, attribute = name.partition(":")
    module = import_module(module)
    if attribute:
        getattr(module, attribute)
    found[name] = sorted(HEAVY & set(sys.modules))
print(json.dumps(found))
"""


def loaded(names):
    """Return the heavy packages that a process has loaded after each name, in turn."""
    code = _LOADED.replace("NAMES", repr(names))
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    return json.loads(done.stdout)


@pytest.mark.slow
def test_a_package_loads_what_its_names_need():
    lazy = [name for name in PUBLIC if is_lazy(name)]
    found = loaded(
        [
            *lazy,
            "sklearn_dpgen.domains",
            "sklearn_dpgen.accounting",
            "sklearn_dpgen.schema",
            "sklearn_dpgen.ledger:PrivacyLedger",
            "sklearn_dpgen.preprocessing:TabularEncoder",
            "sklearn_dpgen.tables:TableSampler",
            # The negative twin.
            "sklearn_dpgen.tables:SyntheticDataClassifier",
            "sklearn_dpgen.ot:sinkhorn",
        ]
    )
    assert {name: found[name] for name in lazy} == dict.fromkeys(lazy, [])
    assert found["sklearn_dpgen.domains"] == []
    assert found["sklearn_dpgen.accounting"] == ["scipy"]
    assert found["sklearn_dpgen.schema"] == ["pandas", "scipy"]
    assert found["sklearn_dpgen.ledger:PrivacyLedger"] == ["pandas", "scipy"]
    late = {"geomloss", "matplotlib", "ot", "sklearn.ensemble", "torch"}
    assert not late & {*found["sklearn_dpgen.tables:TableSampler"]}
    assert "sklearn.ensemble" in found["sklearn_dpgen.tables:SyntheticDataClassifier"]
    assert "torch" in found["sklearn_dpgen.ot:sinkhorn"]


def is_lazy(name):
    """Return whether a public module is a package whose names are imported late."""
    return hasattr(import_module(name), "lazy_names")


def names_of_package(source):
    """Return the names of a package by module: for type checkers, late, and ``__all__``."""
    body = ast.parse(source).body
    (block,) = (node for node in body if isinstance(node, ast.If))
    checked = {node.module: [alias.name for alias in node.names] for node in block.body}
    (late,) = block.orelse
    (listed,) = (
        node.value
        for node in body
        if isinstance(node, ast.Assign) and node.targets[0].id == "__all__"
    )
    return checked, ast.literal_eval(late.value.args[1]), ast.literal_eval(listed)


def test_lists_of_late_names_agree():
    names = [name for name in PUBLIC if is_lazy(name)]
    assert len(names) > 15
    for name in names:
        path = ROOT / name.partition(".")[2] / "__init__.py"
        checked, late, listed = names_of_package(path.read_text(encoding="utf-8"))
        assert checked == late, name
        assert sorted(listed) == sorted(n for part in late.values() for n in part), name
        module = import_module(name)
        assert set(listed) <= set(dir(module))
        with pytest.raises(AttributeError, match=f"{name!r} has no attribute 'no_such'"):
            module.no_such  # noqa: B018


def private_names(path):
    """Yield the private names of scikit-learn that a module imports."""
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.ImportFrom) and (node.module or "").split(".")[0] == "sklearn":
            names = [*node.module.split("."), *(alias.name for alias in node.names)]
        elif isinstance(node, ast.Import):
            names = [part for alias in node.names for part in alias.name.split(".")]
            names = names if names[0] == "sklearn" else []
        else:
            continue
        yield from (name for name in names if name.startswith("_"))


@pytest.mark.slow
def test_one_module_uses_private_names_of_scikit_learn(tmp_path):
    using = {path.relative_to(ROOT) for path in ROOT.rglob("*.py") if [*private_names(path)]}
    assert using == {Path("utils/_validation.py")}
    twin = tmp_path / "twin.py"
    twin.write_text("from sklearn.utils import _safe_indexing\nimport sklearn.utils._mask\n")
    assert [*private_names(twin)] == ["_safe_indexing", "_mask"]
