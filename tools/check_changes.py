"""Check the fragments of the changelog, which ``changes/`` holds until a release.

A fragment is a file ``changes/<name>.<type>.rst`` with the text of one entry. Each must have a type
that ``pyproject.toml`` lists, and render to an entry. With ``--base``, a change of the package
since that revision must come with a fragment.
"""

import argparse
import subprocess
import sys
import tomllib
from pathlib import Path

__all__ = ["fragment_faults", "read_types", "render", "rendering_faults", "undescribed"]

ROOT = Path(__file__).parents[1]
FOLDER = "changes"
PAGE = "doc/whats_new.rst"
PACKAGE = "sklearn_dpgen/"
LONGEST_LINE = 120


def read_types():
    """Return the types of fragments: the name of each by the ending of its files."""
    options = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
    return {kind["directory"]: kind["name"] for kind in options["tool"]["towncrier"]["type"]}


def read_fragments(folder=ROOT / FOLDER):
    """Return the text of each file of the folder by its name, but for the template."""
    files = (path for path in sorted(folder.iterdir()) if not path.name.startswith(("_", ".")))
    return {path.name: path.read_text(encoding="utf-8") for path in files}


def fragment_faults(fragments, types):
    """Return what is wrong with the names and the texts of fragments, as sentences."""
    faults = []
    for name, text in fragments.items():
        parts = name.split(".")
        if len(parts) != 3 or not parts[0] or parts[2] != "rst":
            faults.append(f"{name}: the name must be <name>.<type>.rst")
        elif parts[1] not in types:
            faults.append(f"{name}: the type must be one of {', '.join(types)}")
        if not text.strip():
            faults.append(f"{name}: is empty")
        elif text.lstrip().startswith(("- ", *(f"{kind} " for kind in types.values()))):
            faults.append(f"{name}: the bullet and the type come from the name")
    return faults


def render(version="0.0.0", config=ROOT / "pyproject.toml"):
    """Return the entries of all fragments as they will stand on the page."""
    draft = [sys.executable, "-m", "towncrier", "build", "--draft", "--version", version]
    draft += ["--config", str(config), "--dir", str(Path(config).parent)]
    done = subprocess.run(draft, capture_output=True, encoding="utf-8", check=False)
    if done.returncode:
        raise ValueError((done.stderr or done.stdout).strip())
    return done.stdout


def rendering_faults(page, fragments, types):
    """Return which entries a rendered page lacks, and its long lines, as sentences."""
    words = " ".join(page.split())
    long = (line for line in page.splitlines() if len(line) > LONGEST_LINE)
    faults = [f"longer than {LONGEST_LINE} characters when rendered: {line}" for line in long]
    for name, text in fragments.items():
        entry = " ".join(f"- {types.get(name.split('.')[-2])} {text}".split())
        if entry not in words:
            faults.append(f"{name}: is not rendered")
    return faults


def undescribed(changed):
    """Return the files of the package that changed, where no entry says so.

    Parameters
    ----------
    changed : iterable of (str, str)
        The status of a file, as git writes it ("A", "M", "D", ...), and its path.
    """
    changed = list(changed)
    entries = [
        path for status, path in changed if status != "D" and (path == PAGE or _is_fragment(path))
    ]
    return [] if entries else [path for _, path in changed if path.startswith(PACKAGE)]


def _is_fragment(path):
    folder, _, name = path.rpartition("/")
    return folder == FOLDER and not fragment_faults({name: "text"}, read_types())


def read_changed(base):
    """Return status and path of each file that differs from where this branch left ``base``."""
    start = _git("merge-base", base, "HEAD").strip()
    fields = _git("diff", "--name-status", "--no-renames", "-z", start).split("\0")
    changed = list(zip(fields[::2], fields[1::2], strict=False))
    new = _git("ls-files", "--others", "--exclude-standard", "-z").split("\0")
    return changed + [("A", path) for path in new if path]


def _git(*arguments):
    done = subprocess.run(["git", *arguments], cwd=ROOT, capture_output=True, text=True)
    if done.returncode:
        raise SystemExit(done.stderr.strip())
    return done.stdout


def main():
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--base", help="a revision; a change of the package since needs a fragment")
    options = parser.parse_args()
    fragments, types = read_fragments(), read_types()
    faults = fragment_faults(fragments, types)
    if not faults:
        faults = rendering_faults(render(), fragments, types)
    if options.base:
        paths = undescribed(read_changed(options.base))
        faults += [f"{path}: changed, but no fragment in {FOLDER}/ says so" for path in paths]
    if faults:
        raise SystemExit("\n".join(faults))
    print(f"Fragments of the changelog: {len(fragments)}, all well.")


if __name__ == "__main__":
    main()
