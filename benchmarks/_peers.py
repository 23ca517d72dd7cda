"""Peers in environments of their own: their models, their budgets, one fit, and a cache of fits.

The environments are made by `peers/setup.py`, and a fit is a process of ``peers/fit_<peer>.py``
with limits of CPU time and memory.
"""

import functools
import json
import math
import os
import resource
import signal
import subprocess
import tempfile
from pathlib import Path

import numpy as np
import pandas as pd

from sklearn_dpgen.accounting import calibrate_noise_multiplier
from sklearn_dpgen.accounting._composition import compose_epsilon
from sklearn_dpgen.accounting._profiles import GaussianProfile
from sklearn_dpgen.accounting._selection import BoundedRangeProfile, calibrate_releases

__all__ = ["MODELS", "PUBLIC", "RELATIONAL", "Fits", "budget", "fit", "versions", "whole_codes"]

SCRIPTS = Path(__file__).parent / "peers"
# What a peer calls its models, and the peer.
MODELS = {
    "OpenDP AIM": ("opendp", "AIM"),
    "OpenDP AIM, target named": ("opendp", "AIM of pairs with the target"),
    "OpenDP MST": ("opendp", "MST"),
    "SmartNoise AIM": ("smartnoise", "AIM"),
    "SmartNoise MST": ("smartnoise", "MST"),
    "dpmm AIM": ("dpmm", "AIM"),
    "dpmm AIM, target named": ("dpmm", "AIM of pairs with the target"),
    "dpmm MST": ("dpmm", "MST"),
    "dpmm PrivBayes": ("dpmm", "PrivBayes"),
    "PrivSyn": ("privsyn", "PrivSyn"),
}
# The share of rho that a model spends on selections. MST has one fewer of them than columns, of
# equal shares; the number of AIM's depends on what it finds.
SELECTIONS = {
    "OpenDP AIM": 0.05,
    "OpenDP AIM, target named": 0.05,
    "OpenDP MST": 0.05,
    "SmartNoise AIM": 0.1,
    "SmartNoise MST": 1 / 3,
    "dpmm AIM": 0.1,
    "dpmm AIM, target named": 0.1,
    "dpmm MST": 1 / 3,
    "PrivSyn": 0.0,
}
# Models of tables in which a person has several rows.
RELATIONAL = {"dpsynth MST": ("dpsynth", "MST"), "dpsynth": ("dpsynth", "default")}
# Models that have a public table beside the records.
PUBLIC = {"JAM-PGM": ("jam", "JAM-PGM")}
PACKAGES = {
    "opendp": ("opendp", "mbi", "jax", "numpy"),
    "smartnoise": ("smartnoise-synth", "opendp", "mbi", "jax", "numpy"),
    "dpmm": ("dpmm", "opendp", "numpy"),
    "privsyn": ("privsyn-core", "numpy"),
    "jam": ("mbi", "jax", "numpy"),
    "dpsynth": ("dpsynth", "mbi", "jax", "numpy"),
}
ONE_CORE = {
    "OMP_NUM_THREADS": "1",
    "OPENBLAS_NUM_THREADS": "1",
    "POLARS_MAX_THREADS": "1",
    "JAX_PLATFORMS": "cpu",
    "XLA_FLAGS": "--xla_cpu_multi_thread_eigen=false intra_op_parallelism_threads=1",
}
NO_MEMORY = ("MemoryError", "RESOURCE_EXHAUSTED", "bad_alloc", "Out of memory", "out of memory")
ASK = """
import importlib.metadata, json, sys
print(json.dumps({name: importlib.metadata.version(name) for name in sys.argv[1:]}))
"""


@functools.cache
def budget(model, n_columns, epsilon, delta):
    """Return what a model is given to spend, so that all its releases are (epsilon, delta)-DP.

    Models count in rho: Gaussian noise of a sensitivity of mu standard deviations spends mu^2 / 2,
    and a selection of range epsilon0 spends epsilon0^2 / 8. They would derive rho by a bound for
    zCDP, which is loose. Here it is the largest by which

    - Gaussian releases alone have the closed form of the Gaussian mechanism;
    - Gaussian releases and a fixed number of selections have their exact adaptive composition, by
      the profiles of this package;
    - Gaussian releases and a number of selections that depends on what is found, as AIM's, are
      composed as Gaussian releases. A selection of range epsilon0 is dominated by one of
      mu = 2 Phi^-1(1 / (1 + exp(-epsilon0 / 2))), and mu^2 is at most pi times its part of rho. A
      bound on the sum of mu^2 holds whatever is chosen (Koskela, Tobaben and Honkela 2022,
      "Individual privacy accounting with Gaussian differential privacy").

    PrivBayes of dpmm does not count in rho. Its selections keep their half of epsilon, and the
    noise has all that the exact composition with them leaves.

    Parameters
    ----------
    model : str
        Of `MODELS`.
    n_columns : int
    epsilon, delta : float

    Returns
    -------
    dict
        With the key "rho" or "sigma", and how it was derived, the "calibration".
    """
    if model == "dpmm PrivBayes":
        selections = BoundedRangeProfile(epsilon / 2 / n_columns, n_columns - 1)
        return {"sigma": _least_sigma(selections, epsilon, delta), "calibration": "exact"}
    share = SELECTIONS[model]
    if share and "AIM" not in model:
        each = share / (n_columns - 1)
        (mu,), _ = calibrate_releases(
            epsilon,
            delta,
            gaussian_shares=[1 - share],
            selection_share=each,
            n_selections=n_columns - 1,
        )
        return {"rho": mu**2 / 2 / (1 - share), "calibration": "exact"}
    mu = 1 / calibrate_noise_multiplier(epsilon, delta)
    rho = mu**2 / (2 * (1 - share) + math.pi * share)
    return {"rho": rho, "calibration": "Gaussian bound" if share else "exact"}


def _least_sigma(selections, epsilon, delta):
    """Return the least noise over its sensitivity beside selections, up to a relative 1e-4."""

    def passes(sigma):
        releases = [(GaussianProfile(1 / sigma), 1), (selections, 1)]
        return compose_epsilon(releases, delta) <= epsilon

    low = high = calibrate_noise_multiplier(epsilon, delta)
    while not passes(high):
        low, high = high, 2 * high
    while high > low * (1 + 1e-4):
        middle = math.sqrt(low * high)
        low, high = (low, middle) if passes(middle) else (middle, high)
    return high


def versions(peer, environments):
    """Return the versions of a peer's packages, or None where there is no environment of it."""
    python = _python(peer, environments)
    if not python.exists():
        return None
    command = [python, "-c", ASK, *PACKAGES[peer]]
    return json.loads(subprocess.run(command, capture_output=True, check=True).stdout)


def fit(model, codes, task, *, environments, limit, memory, timeout=None, public=None):
    """Return synthetic codes, or None, and the result of a fit.

    Parameters
    ----------
    model : str
        Of `MODELS`, `RELATIONAL` or `PUBLIC`.
    codes : data frame
    task : dict
        See `peers/_fitting.py`.
    environments : path
    limit : int
        CPU seconds.
    memory : float
        GiB of the process's own memory.
    timeout : float, optional
        Seconds on the clock.
    public : data frame, optional
        Codes of a public table.

    Returns
    -------
    codes : data frame or None
    result : dict
        Has the key "failure", the reason, if there are no codes.

    Raises
    ------
    subprocess.TimeoutExpired
        After ``timeout``.
    """
    peer, name = (MODELS | RELATIONAL | PUBLIC)[model]
    size = int(memory * 2**30)
    limits = {resource.RLIMIT_CPU: (limit, limit + 5), resource.RLIMIT_DATA: (size, size)}

    def set_limits():
        for kind, values in limits.items():
            resource.setrlimit(kind, values)

    with tempfile.TemporaryDirectory() as folder:
        codes.to_csv(Path(folder, "records.csv"), index=False)
        if public is not None:
            public.to_csv(Path(folder, "public.csv"), index=False)
        Path(folder, "task.json").write_text(json.dumps(task | {"model": name}))
        done = subprocess.run(
            [_python(peer, environments), SCRIPTS / f"fit_{peer}.py", folder],
            env=os.environ | ONE_CORE,
            capture_output=True,
            text=True,
            errors="replace",
            preexec_fn=set_limits,
            timeout=timeout,
        )
        if done.returncode:
            return None, {"failure": _reason(done, limit, memory)}
        made = pd.read_csv(Path(folder, "made.csv"))[list(codes)]
        return made, json.loads(Path(folder, "result.json").read_text())


def _python(peer, environments):
    return Path(environments, peer, "bin", "python").absolute()


def _reason(done, limit, memory):
    if done.returncode == -signal.SIGXCPU:
        return f"time: more than {limit} CPU seconds"
    if any(text in done.stderr for text in NO_MEMORY):
        return f"memory: more than {memory:g} GiB"
    if done.returncode < 0:
        return f"signal {signal.Signals(-done.returncode).name}"
    lines = [line.strip() for line in done.stderr.splitlines()]
    lines = [line for line in lines if "Error" in line or "Failed" in line]
    return (lines or ["no message"])[-1][:200]


class Fits:
    """Fits on disk: for each case what came of it, and compressed codes.

    Parameters
    ----------
    folder : path
    """

    def __init__(self, folder):
        self.folder = Path(folder)
        self.folder.mkdir(parents=True, exist_ok=True)

    def keep(self, case, result, made):
        if made is not None:
            made.to_csv(self._path(case, "csv.gz"), index=False)
        self._path(case, "json").write_text(json.dumps({"case": case} | result) + "\n")

    def result(self, case):
        """Return the result of a case, or None."""
        path = self._path(case, "json")
        return json.loads(path.read_text()) if path.exists() else None

    def made(self, case):
        return pd.read_csv(self._path(case, "csv.gz"))

    def results(self):
        """Return all results."""
        return [json.loads(path.read_text()) for path in sorted(self.folder.glob("*.json"))]

    def _path(self, case, suffix):
        parts = (case["table"], case["model"], f"{case['epsilon']:g}", str(case["seed"]))
        return self.folder / f"{'_'.join(parts).replace(' ', '-')}.{suffix}"


def whole_codes(codes, size, nullable, rng):
    """Return codes as integers; a null is the last, or one of the others where there is none."""
    null = codes.isna().to_numpy()
    codes = codes.fillna(size - 1).to_numpy(dtype=np.int64)
    if null.any() and not nullable:
        others = codes[~null] if not null.all() else np.arange(size)
        codes[null] = rng.choice(others, null.sum())
    return codes
