"""Ten thousand hostile files of saved estimators: errors by kind, and nothing that runs.

Files of nine estimators are damaged or forged in thirteen ways, by the seeds of ``--n`` files.
Those that are said to be sealed state the SHA-256 that they should have, as anybody can compute it.
Each is loaded, while Python's audit hook reports every import, compilation, process, connection and
file opened to write. What loads is used: it samples or predicts. Memory is what Python and NumPy
hold at most while a file is loaded and used, beyond twice the size of the file.
"""

import argparse
import collections
import sys
import tempfile
import time
import tracemalloc
import warnings
from pathlib import Path

import numpy as np
from _common import record

TESTS = Path(__file__).resolve().parents[1] / "tests"
sys.path[:0] = [str(TESTS / "persistence"), str(TESTS / "ledger")]

from hostile_files import KINDS, hostile_file  # noqa: E402
from saved_cases import fitted  # noqa: E402
from watched_loads import watched  # noqa: E402

import sklearn_dpgen  # noqa: E402
from sklearn_dpgen.exceptions import InvalidFileError  # noqa: E402

MODELS = {
    "rules": "TableSampler, with rules",
    "moments of tables": "MomentSampler, of tables with classes",
    "evolution of tables": "PrivateEvolutionSampler, of tables",
    "smoothed, by a convolution": "SmoothedSlicedWassersteinGenerator, of images",
    "images of classes": "MomentImageSampler",
    "tables in bins": "TabularMechanism",
    "deconvolution of images": "EntropicDeconvGAN, of images",
    "laws of records": "LocalTableSampler",
    "fair classifier": "DPSlicedWassersteinFairClassifier",
}


def use(estimator):
    """Sample from an estimator that was loaded, or predict by it."""
    if hasattr(estimator, "sample"):
        estimator.sample(3)
    elif hasattr(estimator, "predict"):
        estimator.predict(np.zeros((3, estimator.n_features_in_)))


def outcome(path, watch):
    """Return how a file is loaded and used: "loaded", or the name of an error and its place."""
    with watch.loading():
        try:
            estimator = sklearn_dpgen.load(path)
        except InvalidFileError:
            return "InvalidFileError"
        except Exception as error:  # of any kind: it is what is counted
            return f"{type(error).__name__} in load"
    try:
        use(estimator)
    except Exception as error:  # of any kind
        return f"{type(error).__name__} in use"
    return "loaded"


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--n", type=int, default=10_000)
    options = parser.parse_args()
    warnings.simplefilter("ignore")
    counts = {kind: collections.Counter() for kind in KINDS}
    beyond, slowest, sizes = dict.fromkeys(KINDS, -np.inf), dict.fromkeys(KINDS, 0.0), []
    with tempfile.TemporaryDirectory() as folder:
        paths = [Path(folder, f"{i}.safetensors") for i in range(len(MODELS))]
        for path, name in zip(paths, MODELS, strict=True):
            fitted(name).save(path)
            use(sklearn_dpgen.load(path))
        files, target = [path.read_bytes() for path in paths], Path(folder, "hostile")
        with watched(*paths) as watch:
            tracemalloc.start()
            for seed in range(options.n):
                kind = [*KINDS][seed % len(KINDS)]
                data = hostile_file(files[seed // len(KINDS) % len(files)], kind, seed)
                target.write_bytes(data)
                tracemalloc.reset_peak()
                held, start = tracemalloc.get_traced_memory()[0], time.perf_counter()
                counts[kind][outcome(target, watch)] += 1
                slowest[kind] = max(slowest[kind], time.perf_counter() - start)
                peak = tracemalloc.get_traced_memory()[1] - held
                beyond[kind] = max(beyond[kind], peak - 2 * len(data))
                sizes.append(len(data))
            tracemalloc.stop()
    outcomes = sorted({name for count in counts.values() for name in count})
    rows = [
        {"kind": kind, "files": count.total()}
        | {name: count[name] for name in outcomes}
        | {
            "MiB beyond twice the file": beyond[kind] / 2**20,
            "slowest seconds, traced": slowest[kind],
        }
        for kind, count in counts.items()
    ]
    total = sum(counts.values(), collections.Counter())
    meta = {
        "about": __doc__,
        "models": MODELS,
        "files": total.total(),
        "outcomes": dict(total),
        "events of the audit hook while loading": len(watch.events),
        "first of them": watch.events[:5],
        "largest file in bytes": max(sizes),
    }
    record("hostile_files", rows, meta)
    print(meta["outcomes"], "events:", watch.events[:5])


if __name__ == "__main__":
    main()
