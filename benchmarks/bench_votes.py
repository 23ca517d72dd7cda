"""Exact nearest-neighbour votes against a flat index of FAISS, on one thread.

Both search the same records in turn, pair by pair; ratios are medians over pairs. FAISS gives
indices of neighbours in float32, the votes are exact. CPU time of the thread is what counts where
other work shares the machine; wall time is given too. Without FAISS the peer is scikit-learn.
"""

import argparse
import json
import statistics
import subprocess
import sys
import time
from importlib.metadata import version
from pathlib import Path

import numpy as np
import torch
from _common import record
from sklearn.metrics import pairwise_distances_argmin

from sklearn_dpgen.evolution._votes import nearest_neighbor_votes

try:
    import faiss
except ImportError:
    faiss = None

torch.set_num_threads(1)


def normal(n, m, d, rng):
    return rng.standard_normal((n, d)), rng.standard_normal((m, d))


def variations(n, m, d, rng):
    """Records near a curve, and candidates that are variations of parents on it, in four scales."""
    frequencies = rng.standard_normal((1, d))
    X, parents = (np.sin(rng.uniform(0, 6, (k, 1)) * frequencies) for k in (n, m // 8))
    scales = np.repeat([0.3, 0.1, 0.03, 0.01], 2)
    V = parents[:, None] + scales[:, None] * rng.standard_normal((m // 8, 8, d))
    return X + 0.05 * rng.standard_normal(X.shape), V.reshape(-1, d)


def grid(n, m, d, rng):
    """Points with ties: entries from 0, 1, 2."""
    return tuple(rng.integers(0, 3, (k, d)).astype(np.float64) for k in (n, m))


def peer(X, V):
    X, V = X.astype(np.float32), V.astype(np.float32)
    if faiss is None:
        return lambda: pairwise_distances_argmin(X, V)
    faiss.omp_set_num_threads(1)
    index = faiss.IndexFlatL2(V.shape[1])
    index.add(V)
    return lambda: index.search(X, 1)


def in_turn(functions, repeat):
    """Return CPU and wall seconds of every function, one call of each before the next of any."""
    seconds = {name: [] for name in functions}
    for _ in range(repeat):
        for name, function in functions.items():
            wall, cpu = time.perf_counter(), time.thread_time()
            function()
            seconds[name].append((time.thread_time() - cpu, time.perf_counter() - wall))
    return {name: np.array(times) for name, times in seconds.items()}


def median_ratio(numerators, denominators):
    return statistics.median((numerators / denominators).tolist())


def matmul(size=1500):
    """Return a float32 product of ``2 * size**3`` operations."""
    A = torch.randn(size, size, generator=torch.Generator().manual_seed(0))
    return lambda: A @ A


def compare(case, make, n, m, d, repeat, **options):
    """Return one row: votes against the peer and against the machine's float32 product."""
    X, V = make(n, m, d, np.random.default_rng(0))
    functions = {
        "votes": lambda: nearest_neighbor_votes(X, V, **options),
        "peer": peer(X, V),
        "matmul": matmul(),
    }
    nearest_neighbor_votes(X[: n // 20], V, **options)
    seconds = in_turn(functions, repeat)
    (votes_cpu, votes_wall), (peer_cpu, peer_wall) = seconds["votes"].T, seconds["peer"].T
    speed = 2 * 1500**3 / seconds["matmul"][:, 0]
    return {
        "case": case,
        "n": n,
        "candidates": len(V),
        "d": d,
        "metric": options.get("metric", "l2"),
        "backend": options["backend"],
        "cpu_s": statistics.median(votes_cpu.tolist()),
        "peer_cpu_s": statistics.median(peer_cpu.tolist()),
        "speed_over_peer_cpu": median_ratio(peer_cpu, votes_cpu),
        "speed_over_peer_wall": median_ratio(peer_wall, votes_wall),
        "share_of_float32_product": median_ratio(2.0 * n * len(V) * d / votes_cpu, speed),
    }


def peak_growth(n, m, d):
    """Return the growth of the peak memory of a fresh process by one call, in MiB."""
    command = [sys.executable, __file__, "--memory-of", *map(str, (n, m, d))]
    return json.loads(subprocess.run(command, capture_output=True, check=True, text=True).stdout)


def print_peak_growth(n, m, d):
    X, V = normal(n, m, d, np.random.default_rng(0))
    before = status("VmRSS")
    nearest_neighbor_votes(X, V, backend="torch")
    print(json.dumps(status("VmHWM") - before))


def status(field):
    """Return a size of this process in MiB; the peak in ``resource`` may be its parent's."""
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(int(line.split()[1]) / 1024 for line in lines if line.startswith(field))


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--repeat", type=int, default=5)
    parser.add_argument("--records", type=int, default=10**6, help="of the first row")
    parser.add_argument("--memory-of", type=int, nargs=3, help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.memory_of:
        print_peak_growth(*arguments.memory_of)
        return
    repeat, torch_ = arguments.repeat, {"backend": "torch"}
    n, m, d = arguments.records, 10**4, 16
    rows = [compare("goal", normal, n, m, d, repeat, **torch_)]
    for n_, m_, d_ in (
        *((k, m, d) for k in (10**4, 10**5)),
        *((10**4, k, d) for k in (10**3, 10**5)),
        *((10**5, m, k) for k in (2, 4, 8, 32, 64)),
        *((10**4, m, k) for k in (256, 784)),
    ):
        rows.append(compare("scaling", normal, n_, m_, d_, repeat, **torch_))
    for make in (variations, grid):
        rows.append(compare(make.__name__, make, 10**5, m, d, repeat, **torch_))
    for d_ in (2, 3, 4, 6):
        rows.append(compare("normal", normal, 10**5, m, d_, repeat, backend="tree"))
    for metric in ("cosine", "l1"):
        rows.append(compare("normal", normal, 10**4, m, d, repeat, metric=metric, **torch_))
    if faiss is not None:
        rows.append(compare("normal", normal, 10**5, m, d, repeat, backend="faiss"))
    rows.append({"case": "peak memory, MiB", "n": n, "candidates": m, "d": d})
    rows[-1]["growth"] = peak_growth(n, m, d)
    name = "sklearn pairwise_distances_argmin" if faiss is None else "faiss.IndexFlatL2"
    package = "scikit-learn" if faiss is None else "faiss-cpu"
    meta = {"threads": 1, "repeat": repeat, "peer": f"{name}, {package} {version(package)}"}
    record("votes", rows, meta)


if __name__ == "__main__":
    main()
