"""The files of a public repository: workflows run stages, and forms say what not to post."""

import re

import pytest
import yaml
from test_stages import read, stages
from tool_modules import ROOT

FOLDER = ROOT / ".github"
pytestmark = pytest.mark.skipif(not FOLDER.exists(), reason="needs a clone")

WORKFLOWS = sorted(FOLDER.glob("workflows/*.yml"))
FORMS = sorted(FOLDER.glob("ISSUE_TEMPLATE/*.yml"))
# These compare timings, write files of the repository, or join other stages.
BY_HAND = {"asv", "ci", "clean", "figures", "first-hour", "gpu", "help", "release-notes"}
# The workflows take one Python after another instead.
BY_HAND |= {"test-python", "test-pythons"}


def parsed(path):
    # PyYAML reads the key `on` as true.
    return yaml.safe_load(path.read_text(encoding="utf-8"))


def commands(job):
    """Return what a job runs, once for each entry of its matrix."""
    matrix = job.get("strategy", {}).get("matrix", {})
    for step in job["steps"]:
        for entry in matrix.get("include", [{}]):
            line = step.get("run", "")
            for name, value in entry.items():
                line = line.replace(f"${{{{ matrix.{name} }}}}", value)
            yield line


def targets(path):
    """Return the stages that a workflow makes; AssertionError if it runs anything else."""
    lines = {line for job in parsed(path)["jobs"].values() for line in commands(job)} - {""}
    assert all(line.startswith("make ") and "\n" not in line for line in lines), lines
    return {line.split()[1] for line in lines}


@pytest.mark.parametrize("path", WORKFLOWS, ids=lambda path: path.stem)
def test_workflows_run_stages_of_the_makefile(path):
    assert targets(path) <= stages(read("Makefile"))


def test_each_stage_is_run_by_a_workflow_or_by_hand():
    run = set().union(*map(targets, WORKFLOWS))
    assert run | BY_HAND | {"doc"} == stages(read("Makefile"))
    assert not run & BY_HAND


@pytest.mark.parametrize("path", WORKFLOWS, ids=lambda path: path.stem)
def test_workflows_may_only_read_unless_a_job_publishes(path):
    workflow = parsed(path)
    assert workflow["permissions"] == {"contents": "read"}
    writing = {name for name, job in workflow["jobs"].items() if "permissions" in job}
    assert writing <= {"publish", "publish-pages"}
    # A job that may write runs nothing of the checkout.
    for name in writing:
        assert not any(commands(workflow["jobs"][name]))


@pytest.mark.parametrize("path", WORKFLOWS, ids=lambda path: path.stem)
def test_actions_have_versions(path):
    uses = re.findall(r"uses: (\S+)", path.read_text(encoding="utf-8"))
    assert uses
    assert all(re.search(r"@(release/)?v\d+$", name) for name in uses)


@pytest.mark.parametrize("path", FORMS, ids=lambda path: path.stem)
def test_forms_are_complete(path):
    form = parsed(path)
    assert {"name", "description", "labels", "body"} <= form.keys()
    ids = [field["id"] for field in form["body"] if "id" in field]
    assert len(ids) == len({*ids}) > 0


@pytest.mark.parametrize("name", ["bug", "guarantee"])
def test_forms_refuse_private_records(name):
    assert "private records" in (FOLDER / f"ISSUE_TEMPLATE/{name}.yml").read_text(encoding="utf-8")


def test_owners_are_paths_that_exist():
    paths = re.findall(r"/\S+", read(".github/CODEOWNERS"))
    assert paths
    assert all((ROOT / path[1:]).exists() for path in paths)


def test_hooks_have_the_version_of_the_linter():
    (version,) = re.findall(r"^ruff==(\S+)", read("constraints.txt"), flags=re.M)
    hooks = {
        repo["repo"]: repo.get("rev")
        for repo in yaml.safe_load(read(".pre-commit-config.yaml"))["repos"]
    }
    assert hooks["https://github.com/astral-sh/ruff-pre-commit"] == f"v{version}"


def listed_words(text, dictionary):
    """Return the words of a text that a dictionary of codespell replaces."""
    words = {line.partition("->")[0] for line in dictionary.splitlines()}
    return sorted(words & set(re.findall(r"[a-z]+", text.casefold())))


def test_pages_and_docstrings_use_the_terms_of_the_field():
    """As the hook with the language list does."""
    (hook,) = (
        hook
        for repo in yaml.safe_load(read(".pre-commit-config.yaml"))["repos"]
        for hook in repo["hooks"]
        if hook.get("name") == "language list"
    )
    dictionary = read(hook["args"][1])
    paths = [*ROOT.glob("*.*"), *ROOT.glob("doc/*.rst"), *ROOT.glob("sklearn_dpgen/**/*.py")]
    paths = [path.relative_to(ROOT).as_posix() for path in paths]
    checked = [
        p for p in paths if re.search(hook["files"], p) and not re.search(hook["exclude"], p)
    ]
    assert {"README.rst", "SECURITY.md", "doc/index.rst", "sklearn_dpgen/__init__.py"} <= {*checked}
    found = {path: listed_words(read(path), dictionary) for path in checked}
    assert not {path: words for path, words in found.items() if words}
    assert listed_words("Whilst noisy votes drown", dictionary) == ["drown", "whilst"]


def test_pages_install_by_one_pinned_command():
    pages = "README.rst", "doc/install.rst"
    found = [
        re.findall(r"^    \$ (pip install .*\.\[arrow.*)$", read(page), flags=re.M)
        for page in pages
    ]
    assert len(found[0]) == 1
    assert found[0] == found[1]
    assert "--constraint constraints.txt" in found[0][0]
