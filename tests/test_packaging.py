"""What is handed out: requirements and their constraints, the citation, the distributions."""

import configparser
import re
import shutil
import subprocess
import sys
import tarfile
from pathlib import Path
from zipfile import ZipFile

import pytest
import yaml
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name
from packaging.version import Version
from tool_modules import load_tool

import sklearn_dpgen

REPOSITORY = Path(sklearn_dpgen.__file__).parents[1]
# What users install of it, by extra.
OPTIONAL = [
    "app",
    "arrow",
    "dask",
    "diffusion",
    "duckdb",
    "excel",
    "faiss",
    "opendp",
    "polars",
    "ray",
    "reports",
    "sign",
    "spark",
    "sql",
]
# Of the version control, its checks and the site, nothing is handed out.
_NOT_HANDED_OUT = (".ci/", ".git", ".pre-commit-config.yaml", ".readthedocs.yaml")

pytestmark = pytest.mark.skipif(
    not (REPOSITORY / "setup.cfg").exists(), reason="installed without its sources"
)


def read_setup():
    setup = configparser.ConfigParser()
    setup.read(REPOSITORY / "setup.cfg", encoding="utf-8")
    return setup


def read_requirements():
    """Return the requirements by group, that of every user and the extras."""
    setup = read_setup()
    lines = {"": setup["options"]["install_requires"], **setup["options.extras_require"]}
    return {group: list(map(Requirement, text.split())) for group, text in lines.items()}


def read_constraints(name):
    lines = (REPOSITORY / name).read_text(encoding="utf-8").splitlines()
    pins = map(Requirement, filter(None, (line.partition("#")[0].strip() for line in lines)))
    return {canonicalize_name(pin.name): version(pin, "==") for pin in pins}


def version(requirement, operator):
    (specifier,) = requirement.specifier
    assert specifier.operator == operator, f"{requirement} must have one bound, a {operator}"
    return Version(specifier.version)


def lower_bounds(*groups):
    """Return the lower bound of each package; groups that share a package must agree on it."""
    requirements = read_requirements()
    bounds = {}
    for requirement in (r for group in groups or requirements for r in requirements[group]):
        bound = version(requirement, ">=")
        assert bounds.setdefault(canonicalize_name(requirement.name), bound) == bound
    return bounds


def test_constraints_satisfy_the_bounds():
    pins, bounds = read_constraints("constraints.txt"), lower_bounds()
    assert not {name: bound for name, bound in bounds.items() if pins[name] < bound}


def test_minimum_constraints_are_the_bounds():
    bounds = lower_bounds("", *OPTIONAL, "engines", "tests", "examples")
    del bounds["torch"]  # the Makefile says which
    assert read_constraints("constraints-minimum.txt") == bounds


def test_tests_bring_every_optional_package():
    optional = lower_bounds(*OPTIONAL)
    assert optional.items() <= lower_bounds("tests", "engines").items()


def documented_extras(page):
    """Return the extras that have a row in the table of a page."""
    rows = re.findall(r"^   \* - (``.*``)\n     - \S", page, flags=re.M)
    return {name for row in rows for name in re.findall(r"``([\w-]+)``", row)}


def test_each_extra_is_documented():
    page = (REPOSITORY / "doc" / "install.rst").read_text(encoding="utf-8")
    table = page.partition(".. list-table:: Extras\n")[2].partition("\nVersions\n---")[0]
    assert documented_extras(table) == set(read_setup()["options.extras_require"])


def test_an_extra_without_a_row_is_found():
    table = "   * - ``a``, ``b``\n     - two packages\n   * - ``c``\n     -\nText on ``d``.\n"
    assert {"a", "b", "c", "d"} - documented_extras(table) == {"c", "d"}


def test_classifiers_are_of_what_is_required():
    metadata = read_setup()["metadata"]
    versions = re.findall(
        r"^Programming Language :: Python :: (3\.\d+)$", metadata["classifiers"], re.M
    )
    assert read_setup()["options"]["python_requires"] == f">={versions[0]}"
    makefile = (REPOSITORY / "Makefile").read_text(encoding="utf-8")
    (pythons,) = re.findall(r"^PYTHONS \?= (.*)$", makefile, flags=re.M)
    assert pythons.split() == [f"python{version}" for version in versions]


def read_citation():
    return yaml.safe_load((REPOSITORY / "CITATION.cff").read_text(encoding="utf-8"))


def test_citation_is_of_this_version():
    citation = read_citation()
    assert citation["version"] == sklearn_dpgen.__version__
    assert citation["license"] == read_setup()["metadata"]["license_expression"]


def test_readme_cites_the_same_papers():
    readme = (REPOSITORY / "README.rst").read_text(encoding="utf-8")
    _, heading, section = readme.partition("\nCiting\n------\n")
    assert heading
    cited = " ".join(section.split()).casefold()
    references = read_citation()["references"]
    assert len(references) == section.count("\n- ")
    for paper in references:
        assert paper["title"].casefold() in cited
        assert str(paper["year"]) in cited
        assert paper.get("doi", "").casefold() in cited
        assert all(author["family-names"].casefold() in cited for author in paper["authors"])


@pytest.fixture(scope="module")
def sources(tmp_path_factory):
    """A copy of the tracked files, so that a build leaves nothing in the checkout."""
    pytest.importorskip("setuptools", minversion="77")
    try:
        done = subprocess.run(
            ["git", "ls-files", "-z"], cwd=REPOSITORY, capture_output=True, text=True, check=True
        )
    except (OSError, subprocess.CalledProcessError):
        pytest.skip("not a git checkout")
    folder = tmp_path_factory.mktemp("sources")
    names = [name for name in done.stdout.split("\0") if (REPOSITORY / name).is_file()]
    for name in names:
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(REPOSITORY / name, folder / name)
    return folder, names


def build(folder, kind):
    """Build without a network, by the build system that is installed; return the file."""
    code = f"from setuptools import build_meta; build_meta.build_{kind}('out')"
    subprocess.run([sys.executable, "-c", code], cwd=folder, capture_output=True, check=True)
    (built,) = (folder / "out").glob("*.whl" if kind == "wheel" else "*.tar.gz")
    return built


def test_sdist_holds_all_sources(sources):
    folder, names = sources
    with tarfile.open(build(folder, "sdist")) as archive:
        held = {member.name.partition("/")[2] for member in archive if member.isfile()}
    assert {name for name in names if not name.startswith(_NOT_HANDED_OUT)} <= held
    assert not [name for name in held if name.startswith(_NOT_HANDED_OUT)]


def test_wheel_holds_the_package_alone(sources):
    folder, names = sources
    wheel = build(folder, "wheel")
    with ZipFile(wheel) as archive:
        held = {name for name in archive.namelist() if ".dist-info/" not in name}
    assert held == {name for name in names if name.startswith("sklearn_dpgen/")}
    tool = load_tool("check_distributions")
    assert not tool.wheel_faults(tool.contents(wheel))


@pytest.mark.parametrize(
    ("missing", "fault"),
    [
        ("sklearn_dpgen/py.typed", "sklearn_dpgen/py.typed is missing"),
        ("sklearn_dpgen/templates/page.html", "sklearn_dpgen/templates/page.html is missing"),
        ("x.dist-info/licenses/LICENSE", "licenses/LICENSE is missing"),
        ("x.dist-info/entry_points.txt", "entry_points.txt is missing"),
    ],
)
def test_what_a_wheel_lacks_is_found(missing, fault):
    faults = load_tool("check_distributions").wheel_faults
    names = {
        "sklearn_dpgen/__init__.py",
        "sklearn_dpgen/py.typed",
        "sklearn_dpgen/templates/page.html",
        "x.dist-info/METADATA",
        "x.dist-info/entry_points.txt",
        "x.dist-info/licenses/LICENSE",
    }
    assert not faults(names)
    assert faults(names - {missing}) == [fault]
    assert faults(names | {"tests/test_layers.py"}) == ["tests does not belong to it"]


def test_wheels_that_differ_are_found():
    difference = load_tool("check_distributions").difference
    first = {"a.py": b"1", "b.py": b"2"}
    assert difference(first, dict(first)) == []
    assert difference(first, {"a.py": b"1", "b.py": b"3", "c.py": b""}) == ["b.py", "c.py"]
