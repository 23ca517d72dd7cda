"""The package before anything is computed."""

import subprocess
import sys

from .common import Timing


class Import(Timing):
    def time_package(self):
        subprocess.run([sys.executable, "-c", "import sklearn_dpgen"], check=True)

    def time_sampler(self):
        code = "from sklearn_dpgen.tables import TableSampler"
        subprocess.run([sys.executable, "-c", code], check=True)
