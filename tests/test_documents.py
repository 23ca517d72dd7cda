"""What the pages show: it runs, and nobody learns from it to fit privately with a seed."""

import ast
import inspect
import os
import re
import textwrap
from importlib import import_module
from pathlib import Path

import pytest
from sklearn.base import BaseEstimator

import sklearn_dpgen
from sklearn_dpgen.schema import Schema
from sklearn_dpgen.tables import TableSampler

ROOT = Path(sklearn_dpgen.__file__).parent
PROJECT = ROOT.parent
PAGES = [PROJECT / "README.rst", *sorted(PROJECT.glob("doc/*.rst"))]
SCRIPTS = sorted(PROJECT.glob("examples/*.py"))

pytestmark = pytest.mark.skipif(not PAGES[0].exists(), reason="needs a checkout, not a wheel")


def public_objects():
    """Yield the name and the value of everything that a public module exports."""
    for path in sorted(ROOT.iterdir()):
        if path.name.startswith("_") or not (path.suffix == ".py" or path.is_dir()):
            continue
        module = import_module(f"sklearn_dpgen.{path.stem}")
        for name in getattr(module, "__all__", ()):
            yield name, getattr(module, name)


def private_names():
    """Return the names of what has a budget and takes a seed."""
    names = set()
    for name, value in public_objects():
        # A mechanism may inherit its constructor.
        is_estimator = inspect.isclass(value) and issubclass(value, BaseEstimator)
        is_own = inspect.isfunction(value) or "__init__" in getattr(value, "__dict__", ())
        if (is_own or is_estimator) and {"epsilon", "random_state"} <= set(
            inspect.signature(value).parameters
        ):
            names.add(name)
    return names


def snippets(text):
    """Return the Python code of the blocks of a page."""
    pattern = r"^\.\. (?:code-block:: python|testcode::.*)\n((?:\n|[ ]+.*\n)+)"
    blocks = re.findall(pattern, text + "\n", flags=re.M)
    return [textwrap.dedent(re.sub(r"^ +:\w+:.*\n", "", block, flags=re.M)) for block in blocks]


def seeded(source, names):
    """Return what is called with a seed although it has a budget."""
    found = []
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Call):
            name = node.func.attr if isinstance(node.func, ast.Attribute) else node.func
            name = name.id if isinstance(name, ast.Name) else name
            found += [name for k in node.keywords if name in names and k.arg == "random_state"]
        elif isinstance(node, ast.Dict):
            # Options that are shared by several estimators.
            keys = [key.value for key in node.keys if isinstance(key, ast.Constant)]
            found += [key for key in keys if key == "random_state"]
    return found


def test_no_page_and_no_example_fits_privately_with_a_seed():
    names = private_names()
    assert {"TableSampler", "LaplaceMechanism", "smoothed_sliced_wasserstein"} <= names
    sources = [(path, path.read_text(encoding="utf-8")) for path in SCRIPTS]
    for path in PAGES:
        text = path.read_text(encoding="utf-8")
        sources += [(path, block) for block in snippets(text)]
    assert len(sources) > 30
    faults = [f"{path.name}: {name}" for path, text in sources for name in seeded(text, names)]
    assert not faults, "\n".join(faults)


def test_no_docstring_fits_privately_with_a_seed():
    names, faults, n_examples = private_names(), [], 0
    for name, value in public_objects():
        lines = re.findall(r"^\s*(?:>>>|\.\.\.) ?(.*)$", inspect.getdoc(value) or "", flags=re.M)
        n_examples += bool(lines)
        faults += [f"{name}: {called}" for called in seeded("\n".join(lines), names)]
    assert n_examples > 10
    assert not faults, "\n".join(faults)


@pytest.mark.parametrize(
    ("source", "found"),
    [
        ("LaplaceMechanism(1.0, random_state=0)", ["LaplaceMechanism"]),
        ("mechanisms.LaplaceMechanism(1.0, random_state=seed)", ["LaplaceMechanism"]),
        ("options = {'random_state': 0}", ["random_state"]),
        ("LaplaceMechanism(1.0); gan.sample(3, random_state=0)", []),
        ("train_test_split(X, random_state=0)", []),
    ],
)
def test_seeds_are_found(source, found):
    assert seeded(source, {"LaplaceMechanism"}) == found
    page = f".. testcode::\n    :hide:\n\n    {source}\n\nText.\n"
    assert [seeded(block, {"LaplaceMechanism"}) for block in snippets(page)] == [found]


def run(code):
    names = {}
    exec(compile(code, "README.rst", "exec"), names)
    return names


@pytest.mark.slow
def test_the_examples_of_the_readme_run_as_pasted(capsys):
    pytest.importorskip("statsmodels")
    # Each is pasted into an interpreter of its own.
    table, local, fair, around = map(run, snippets(PAGES[0].read_text(encoding="utf-8")))
    printed = capsys.readouterr().out
    for names in (table, local):
        assert len(names["synthetic"]) == 20_000
        assert list(names["synthetic"]) == list(getattr(names["survey"], "frame", names["survey"]))
        assert str(names["sampler"].privacy_) in printed
    assert "operating system entropy" in printed
    assert table["ill"]["hlthp"].eq(1).all()
    assert len(fair["decisions"]) == len(fair["applicants"])
    assert str(fair["model"].rates_) in printed
    assert str(around["ledger"].report()) in printed
    assert around["plan"] == around["sampler"].privacy_
    assert list(around["same"]) == list(around["health"].frame)
    assert all(os.path.getsize(around[kind]) for kind in ("model", "page", "card"))


def test_the_schema_of_the_readme_reads_a_csv(tmp_path):
    pytest.importorskip("pyarrow")
    page = PAGES[0].read_text(encoding="utf-8")
    (text,) = re.findall(r"^\.\. code-block:: yaml\n\n((?: {4}.*\n)+)", page, flags=re.M)
    schema = Schema.from_yaml(textwrap.dedent(text))
    path = tmp_path / "patients.csv"
    head = "patient,age,bmi,admitted,discharged,smoker"
    # Two stays of each patient.
    rows = "\n".join(
        f"P-{i // 2},{20 + i % 60},{25 + i % 7 / 10},0{i % 9 + 1}/03/2022,1{i % 9}/04/2022,no"
        for i in range(1000)
    )
    path.write_text(f"{head}\nP,unknown,,04/03/2022,05/03/2022,yes\n{rows}\n", "utf-8")
    sampler = TableSampler(1.0, 1e-6, schema=schema).fit(str(path))
    assert sampler.privacy_.unit == "patient"
    drawn = sampler.sample(50)
    assert list(drawn) == head.split(",")
    assert (drawn["admitted"] <= drawn["discharged"]).all()
    # Of the ids nothing is learned: rows are numbered.
    assert drawn["patient"].tolist() == list(range(50))
    assert drawn["admitted"].dt.normalize().equals(drawn["admitted"])
