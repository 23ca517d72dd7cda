"""What is handed out: requirements and their constraints, the citation, the distributions."""

import configparser
import json
import re
import runpy
import shutil
import subprocess
import sys
import tarfile
import tomllib
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


def read_constraints(name, python):
    """Return the pin of each package with a version of Python; two that apply must agree."""
    lines = (REPOSITORY / name).read_text(encoding="utf-8").splitlines()
    pins = map(Requirement, filter(None, (line.partition("#")[0].strip() for line in lines)))
    found = {}
    for pin in pins:
        if pin.marker is None or pin.marker.evaluate({"python_version": python}):
            name, pinned = canonicalize_name(pin.name), version(pin, "==")
            assert found.setdefault(name, pinned) == pinned
    return found


def read_pythons():
    return re.findall(
        r"^Programming Language :: Python :: (3\.\d+)$",
        read_setup()["metadata"]["classifiers"],
        flags=re.M,
    )


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
    bounds = lower_bounds()
    for python in read_pythons():
        pins = read_constraints("constraints.txt", python)
        assert not {name: bound for name, bound in bounds.items() if pins[name] < bound}


def test_constraints_pin_the_same_packages_with_each_python():
    first, *others = (read_constraints("constraints.txt", python) for python in read_pythons())
    for other in others:
        assert first.keys() == other.keys()
        # The last NumPy and SciPy for 3.11 are not the newest.
        assert {name for name in first if first[name] != other[name]} == {"numpy", "scipy"}


def test_minimum_constraints_are_the_bounds():
    bounds = lower_bounds("", *OPTIONAL, "engines", "tests", "examples")
    pins = read_constraints("constraints-minimum.txt", read_pythons()[0])
    # A dependency of a dependency.
    del pins["pyparsing"]
    assert pins == bounds


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
    versions = read_pythons()
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


@pytest.fixture
def addresses():
    return load_tool("addresses")


def read(name):
    return (REPOSITORY / name).read_text(encoding="utf-8")


def dead_links(text, documentation, repository):
    """Return the links to the site and to the repository that lead to no page, image or file."""
    dead = []
    for url in re.findall(r"https://[^\s<>`]+", text):
        for base, is_there in ((documentation, is_page), (repository, is_source)):
            if url.startswith(f"{base}/") and not is_there(url.removeprefix(f"{base}/")):
                dead.append(url)
    return dead


def is_page(path):
    folder, _, name = path.rpartition("/")
    if folder == "_images":
        # Sphinx copies the images of pages.
        return f"images/{name}" in read("doc/index.rst")
    page = REPOSITORY / "doc" / path
    return not folder and page.with_suffix(".rst").exists() and page.suffix == ".html"


def is_source(path):
    return (REPOSITORY / path.removeprefix("blob/main/")).exists()


def test_files_name_the_addresses_of_setup(addresses):
    known = addresses.read_addresses()
    for name in addresses.FILES:
        assert not addresses.strange_addresses(read(name), known), name
        assert known["Documentation"] in read(name), name
    citation, recipe = read_citation(), yaml.safe_load(read("conda/recipe.yaml"))["about"]
    for documentation, repository in (
        (citation["url"], citation["repository-code"]),
        (recipe["homepage"], recipe["repository"]),
    ):
        assert {"Documentation": documentation, "Repository": repository} == known


def test_addresses_are_replaced_in_all_files(addresses):
    new = {"Documentation": "https://a.org/docs", "Repository": "https://a.org/code"}
    for name in addresses.FILES:
        old = addresses.read_addresses()
        text = addresses.replace_addresses(read(name), old, new)
        assert addresses.strange_addresses(text, {}) == []
        assert addresses.replace_addresses(text, new, old) == read(name)
    nested = {"Documentation": "https://a.org/p", "Repository": "https://a.org"}
    swapped = addresses.replace_addresses("a.org https://a.org/p/q https://a.org/x", nested, new)
    assert swapped == "a.org https://a.org/docs/q https://a.org/code/x"
    unlike = "https://a.orgs/p https://a.org.uk"
    assert addresses.replace_addresses(unlike, nested, new) == unlike
    assert addresses.is_known("https://invalid.org/x")
    assert not addresses.is_known("https://documentation.invalid/x")


def test_strange_addresses_are_found(addresses):
    known = {"Documentation": "https://b.invalid/docs"}
    text = "https://b.invalid/docs/x.html, https://c.invalid/y and https://b.org"
    assert addresses.strange_addresses(text, known) == ["https://c.invalid/y"]


def test_links_of_the_readme_lead_somewhere_from_everywhere(addresses):
    readme = read("README.rst")
    known = addresses.read_addresses()
    assert not dead_links(readme, known["Documentation"], known["Repository"])
    assert all(f"{url}/" in readme for url in known.values())
    # An index shows the page alone: no name of a file is a link there.
    assert not re.findall(r"``doc/\w+\.rst``", readme)
    images = re.findall(r"^\.\. (?:image|figure):: (.*)$", readme, flags=re.M)
    assert images
    assert all(image.startswith(known["Documentation"]) for image in images)


def test_dead_links_are_found():
    dead = ["https://d.org/none.html", "https://d.org/_images/none.png", "https://r.org/NONE.md"]
    alive = ["https://d.org/install.html", "https://r.org/blob/main/LICENSE", "https://x.org/none"]
    assert dead_links(" ".join(dead + alive), "https://d.org", "https://r.org") == dead


def test_estimators_of_the_readme_exist():
    table = read("README.rst").partition("\nEstimators\n---")[2].partition("\nSynthesize a CSV")[0]
    named = re.findall(r"``(\w+)``", table)
    listed = read("doc/estimators.rst")
    assert len(named) > 10
    assert not [name for name in named if f"``{name}``" not in listed]


# What conda-forge names otherwise than the index.
_CONDA_NAMES = {"torch": "pytorch"}


def test_recipe_is_of_this_version_and_requires_the_same():
    recipe = yaml.safe_load(read("conda/recipe.yaml"))
    assert recipe["context"]["version"] == sklearn_dpgen.__version__
    required = {
        f"{_CONDA_NAMES.get(name, name)} >={bound}"
        for name, bound in ((canonicalize_name(r.name), version(r, ">=")) for r in core())
    }
    assert set(recipe["requirements"]["run"]) == required | {"python >=${{ python_min }}"}
    (script,) = recipe["build"]["python"]["entry_points"]
    assert script == read_setup()["options.entry_points"]["console_scripts"].strip()
    build_system = tomllib.loads(read("pyproject.toml"))["build-system"]["requires"]
    assert [r.replace(">=", " >=") for r in build_system] == recipe["requirements"]["host"][2:]
    metadata = read_setup()["metadata"]
    assert recipe["about"]["summary"] == metadata["description"]
    assert recipe["about"]["license"] == metadata["license_expression"]


def core():
    return read_requirements()[""]


def test_versions_of_the_site_include_this_one(addresses):
    entries = json.loads(read("doc/_static/switcher.json"))
    assert entries[0]["version"] == sklearn_dpgen.__version__
    assert entries[0]["url"] == addresses.read_addresses()["Documentation"] + "/"


def configuration(monkeypatch, documentation):
    """Return the names that the configuration of Sphinx sets, for a site at an address."""
    tool = load_tool("addresses")
    monkeypatch.setattr(tool, "read_addresses", lambda: {"Documentation": documentation})
    monkeypatch.setitem(sys.modules, "addresses", tool)
    monkeypatch.setattr(sys, "path", [*sys.path])
    return runpy.run_path(str(REPOSITORY / "doc" / "conf.py"))


def test_site_names_its_address_once_it_is_known(monkeypatch):
    unknown = configuration(monkeypatch, "https://documentation.invalid")
    assert "html_baseurl" not in unknown
    assert "switcher" not in unknown["html_theme_options"]
    known = configuration(monkeypatch, "https://docs.org/dpgen")
    assert known["html_baseurl"] == "https://docs.org/dpgen/"
    switcher = known["html_theme_options"]["switcher"]
    assert switcher["json_url"] == "https://docs.org/dpgen/_static/switcher.json"
    assert switcher["version_match"] == sklearn_dpgen.__version__
    assert (REPOSITORY / "doc" / "_static" / "switcher.json").exists()
    assert known["html_theme_options"]["check_switcher"] is False


def test_site_asks_other_sites_only_when_told_to(monkeypatch):
    for value in ("", "1"):
        monkeypatch.setenv("DOC_INTERSPHINX", value)
        extensions = configuration(monkeypatch, "https://docs.org")["extensions"]
        assert ("sphinx.ext.intersphinx" in extensions) == bool(value)


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


@pytest.mark.slow
def test_sdist_holds_all_sources(sources):
    folder, names = sources
    with tarfile.open(build(folder, "sdist")) as archive:
        held = {member.name.partition("/")[2] for member in archive if member.isfile()}
    assert {name for name in names if not name.startswith(_NOT_HANDED_OUT)} <= held
    assert not [name for name in held if name.startswith(_NOT_HANDED_OUT)]


@pytest.mark.slow
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
