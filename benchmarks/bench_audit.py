"""Audits of every private estimator and local mechanism: audited μ over claimed μ.

Estimators are those of the contract tests, on 120 made-up records, at ε = 2 and δ = 1e-4; then the
same kinds in settings that reach their bounds. Neighbours are searched for with one seed, and the
bound is the least of three fresh transcripts. Cheap estimators are audited in the other ways too.
"""

import argparse
import json
import logging
import sys
import warnings
from pathlib import Path

import numpy as np
import pandas as pd
from _common import RESULTS, record
from sklearn.base import BaseEstimator, clone

from sklearn_dpgen.auditing import audit
from sklearn_dpgen.domains import Ball, Box, OneHot
from sklearn_dpgen.mechanisms import (
    GaussianMechanism,
    JointRandomizedResponse,
    LaplaceMechanism,
    RandomizedResponse,
    TabularMechanism,
)
from sklearn_dpgen.nn import Training
from sklearn_dpgen.schema import Categorical, Numeric, Schema
from sklearn_dpgen.sliced import DPSlicedWassersteinFairClassifier, DPSlicedWassersteinFairRegressor

sys.path.insert(0, str(Path(__file__).parents[1] / "tests" / "ledger"))
from contract_cases import CASES, FAIR, FRAME, IDS, SIDE

RNG = np.random.default_rng(0)
POINTS = RNG.uniform(size=(120, 2))
TABLE = pd.DataFrame({"a": 100 * POINTS[:, 0], "b": RNG.choice(["x", "y", "z"], 120)})
SCHEMA = Schema({"a": Numeric(0, 100), "b": Categorical(["x", "y", "z"])})
LINEAR = FAIR | {"training": Training(max_iter=2, device="cpu"), "alpha": 0.0}
BLACK_BOX = ("signed measures", "moments", "evolution")
PERSONS = ("sliced measures", "sliced measures, one more", "evolution", "signed measures")


class Arguments(BaseEstimator):
    """What a case gives to ``fit``."""

    def fit(self, X, y=None, sensitive_features=None):
        self.given_ = X, y, sensitive_features
        return self


def central():
    """Yield the name of each case, an estimator, and what it is fitted on."""
    for name, case in CASES.items():
        given = case.fit(FRAME[list(case.columns)], SIDE, Arguments()).given_
        yield name, case.estimator, given
    for name in PERSONS:
        X, y, sides = CASES[name].fit(FRAME.assign(who=IDS), SIDE, Arguments()).given_
        yield f"{name}, persons", clone(CASES[name].estimator).set_params(unit="who"), (X, y, sides)
    y = SIDE.astype(float)
    yield (
        "fair classifier, task alone",
        DPSlicedWassersteinFairClassifier(**LINEAR),
        (FRAME[["a", "b"]], SIDE, SIDE),
    )
    yield (
        "fair regressor, task alone",
        DPSlicedWassersteinFairRegressor(y_domain=(0, 1), **LINEAR),
        (FRAME[["a", "b"]], y, SIDE),
    )


def local():
    """Yield likewise the local mechanisms."""
    one_hot = np.eye(3)[RNG.integers(0, 3, 120)]
    mechanisms = {
        "Laplace": (LaplaceMechanism(1.0, domain=Box(0, 1, n_features=2)), POINTS),
        "Gaussian": (GaussianMechanism(1.0, domain=Ball(1, n_features=2)), POINTS),
        "randomized response": (RandomizedResponse(1.0, domain=OneHot(3)), one_hot),
        "tabular, Laplace": (TabularMechanism(2.0, schema=SCHEMA), TABLE),
        "tabular, Gaussian": (TabularMechanism(2.0, schema=SCHEMA, noise="gaussian"), TABLE),
        "tabular, bins": (TabularMechanism(2.0, schema=SCHEMA, n_bins=5), TABLE),
        "joint randomized response": (JointRandomizedResponse(2.0, schema=SCHEMA), TABLE),
    }
    for name, (mechanism, X) in mechanisms.items():
        yield name, mechanism, (X, None, None)


def row(name, estimator, given, method, **settings):
    X, y, sides = given
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        result = audit(
            estimator, X, y, sensitive_features=sides, method=method, random_state=0, **settings
        )
    found = {
        "case": name,
        "estimator": result.estimator,
        "method": method,
        "mu": round(result.mu_lower, 4),
        "claimed mu": round(result.claimed["mu"], 4),
        "ratio": round(result.ratio, 3),
        "violation": result.is_violation,
        "seconds": round(result.seconds, 1),
    }
    print(found, flush=True)
    return found


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--trials", type=int, default=150)
    parser.add_argument("--cases", nargs="*", help="of these alone; other rows are kept")
    options = parser.parse_args()
    trials = {"n_trials": options.trials}
    logging.disable(logging.WARNING)
    runs = [(case, "white_box", {"n_trials": 40, "n_draws": 2**18}) for case in local()]
    runs += [(case, "white_box", trials) for case in central()]
    cheap = [case for case in central() if case[0] in BLACK_BOX]
    runs += [(c, "repeated", trials | {"n_draws": 1000, "confidence": 0.95}) for c in cheap]
    runs += [(c, "one_run", {"n_canaries": 100, "confidence": 0.95}) for c in cheap]
    kept = {}
    if options.cases:
        old = json.loads((RESULTS / "audit.json").read_text(encoding="utf-8"))["rows"]
        kept = {(r["case"], r["method"]): r for r in old if r["case"] not in options.cases}
    rows = [
        kept.get((case[0], method)) or row(*case, method, **settings)
        for case, method, settings in runs
    ]
    meta = {"n": 120, "trials": trials["n_trials"], "transcripts": 3, "confidence": 0.999}
    record("audit", rows, meta | {"confidence of black-box audits": 0.95})


if __name__ == "__main__":
    main()
