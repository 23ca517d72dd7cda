"""Make the environments of the peers, each with the exact versions of its requirements file.

::

    python benchmarks/peers/setup.py --to peers
    python benchmarks/peers/setup.py --to peers dpmm

They want Python 3.11. The files list all that is installed, and what they don't list is not
resolved: nothing of theirs needs a compiler or PyTorch.
"""

import argparse
import subprocess
import sys
import venv
from pathlib import Path

HERE = Path(__file__).parent
NAMES = sorted(path.stem for path in HERE.glob("*.txt"))


def make(name, folder):
    """Make the environment of one peer, ``folder/name``, unless it is there; install in it."""
    home = Path(folder, name)
    if not home.exists():
        venv.create(home, symlinks=True, with_pip=True)
    options = ["--no-deps", "--no-cache-dir", "--requirement", str(HERE / f"{name}.txt")]
    subprocess.run([home / "bin" / "python", "-m", "pip", "install", *options], check=True)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("names", nargs="*", default=NAMES, choices=NAMES)
    parser.add_argument("--to", required=True, help="folder of the environments")
    args = parser.parse_args()
    if sys.version_info[:2] != (3, 11):
        parser.error("the pinned versions are for Python 3.11: run this script with it")
    for name in args.names:
        make(name, args.to)


if __name__ == "__main__":
    main()
