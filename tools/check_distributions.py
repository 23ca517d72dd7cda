"""Build wheel and source distribution, install each in an empty environment, and use it there.

The wheel must hold the package, ``py.typed``, the templates and the licence; the source
distribution must build a wheel of the same files, and an index must be able to show the README.
Dependencies are those of ``constraints.txt``.
"""

import os
import shutil
import subprocess
import sys
import tarfile
from pathlib import Path
from tempfile import TemporaryDirectory
from venv import EnvBuilder
from zipfile import ZipFile

__all__ = ["contents", "difference", "wheel_faults"]

ROOT = Path(__file__).parents[1]
# Of a checkout, what is no source.
NO_SOURCES = shutil.ignore_patterns(
    ".*", "*.egg-info", "__pycache__", "_build", "auto_examples", "build", "demo_out", "dist"
)


def contents(wheel):
    """Return what the files of a wheel hold, by name; the list of them counts for nothing."""
    with ZipFile(wheel) as archive:
        names = [name for name in archive.namelist() if not name.endswith(".dist-info/RECORD")]
        return {name: archive.read(name) for name in names}


def wheel_faults(names):
    """Return what the names of a wheel's files lack, or have too much, as sentences."""
    names = set(names)
    info = {name.partition("/")[0] for name in names if ".dist-info/" in name}
    faults = []
    for file in ("sklearn_dpgen/py.typed", "sklearn_dpgen/templates/page.html"):
        if file not in names:
            faults.append(f"{file} is missing")
    for file in ("licenses/LICENSE", "METADATA", "entry_points.txt"):
        if not any(f"{folder}/{file}" in names for folder in info):
            faults.append(f"{file} is missing")
    others = {name.partition("/")[0] for name in names} - info - {"sklearn_dpgen"}
    return faults + [f"{name} does not belong to it" for name in sorted(others)]


def difference(first, second):
    """Return the names whose contents differ between two wheels."""
    return sorted(
        name for name in first.keys() | second.keys() if first.get(name) != second.get(name)
    )


def _run(*command, cwd, **environment):
    # Nothing of the checkout, nor of the environment that calls, is to be found.
    inherited = {key: value for key, value in os.environ.items() if key != "PYTHONPATH"}
    done = subprocess.run(
        command,
        cwd=cwd,
        env=inherited | environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )
    if done.returncode:
        raise SystemExit(f"{' '.join(command)}\n{done.stdout}")
    return done.stdout


def _build(kind, sources, out):
    _run(sys.executable, "-m", "build", f"--{kind}", "--outdir", str(out), ".", cwd=sources)
    (built,) = out.iterdir()
    return built


def _use(distribution, folder):
    folder.mkdir()
    EnvBuilder(with_pip=True).create(folder / "environment")
    binaries = folder / "environment" / ("Scripts" if os.name == "nt" else "bin")
    install = ["-m", "pip", "install", "--quiet", "--constraint", str(ROOT / "constraints.txt")]
    _run(str(binaries / "python"), *install, str(distribution), cwd=folder)
    script = shutil.copy(Path(__file__).with_name("first_steps.py"), folder)
    _run(str(binaries / "python"), script, cwd=folder, OMP_NUM_THREADS="1")
    # The command itself, as pip made it.
    shown = _run(str(binaries / "sklearn-dpgen"), "--help", cwd=folder)
    if "synthesize" not in shown:
        raise SystemExit(f"sklearn-dpgen --help shows no commands\n{shown}")


def main():
    with TemporaryDirectory() as name:
        folder = Path(name)
        sources = shutil.copytree(ROOT, folder / "sources", ignore=NO_SOURCES)
        wheel = _build("wheel", sources, folder / "wheel")
        sdist = _build("sdist", sources, folder / "sdist")
        with tarfile.open(sdist) as archive:
            archive.extractall(folder / "unpacked", filter="data")
        (unpacked,) = (folder / "unpacked").iterdir()
        rebuilt = _build("wheel", unpacked, folder / "rebuilt")

        faults = wheel_faults(contents(wheel))
        names = difference(contents(wheel), contents(rebuilt))
        faults += [f"{name} differs in the wheel of the source distribution" for name in names]
        if faults:
            raise SystemExit("\n".join(faults))
        _run(sys.executable, "-m", "twine", "check", "--strict", str(wheel), str(sdist), cwd=folder)
        for distribution in (wheel, sdist):
            print(f"{distribution.name} in an empty environment", flush=True)
            _use(distribution, folder / distribution.parent.name / "used")
    print("Wheel and source distribution install and work.")


if __name__ == "__main__":
    main()
