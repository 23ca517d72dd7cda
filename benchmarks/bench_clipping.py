"""Clipped weighted sums of per-sample Jacobians against materialized Jacobians, on one thread.

The peer takes every Jacobian by vmap of jacrev, clips it by its spectral norm and sums: for the
whole batch at once, and for 128 samples at a time. Time is the median over calls taken in turn;
memory is the growth of the largest resident set over a first call, in a process of its own.
"""

import argparse
import multiprocessing
import resource
import statistics
import sys
import time

import torch
from _common import record
from torch import nn
from torch.func import functional_call, jacrev, vmap

from sklearn_dpgen.nn._jacobian import ClippedJacobianSum
from sklearn_dpgen.utils._torch import seeded_initialization

CASES = [(6000, (16, 64, 2)), (2000, (100, 256, 2)), (2000, (64, 128, 10))]
BOUND = 1.0
# In kilobytes, but for macOS.
MAXRSS_UNIT = 1 if sys.platform == "darwin" else 1024


def problem(n, widths):
    """Return a module that ends in a sigmoid, samples and weights."""
    generator = torch.Generator().manual_seed(0)
    layers = []
    with seeded_initialization(0):
        for n_in, n_out in zip(widths[:-1], widths[1:], strict=True):
            layers += [nn.Linear(n_in, n_out), nn.ReLU()]
    module = nn.Sequential(*layers[:-1], nn.Sigmoid())
    X = torch.randn(n, widths[0], generator=generator)
    return module, X, torch.randn(n, widths[-1], generator=generator)


def ours(module, X, W):
    return ClippedJacobianSum(module, BOUND)(X, W)


def materialized(module, X, W):
    parameters = {name: p.detach() for name, p in module.named_parameters()}
    per_sample = jacrev(lambda parameters, x: functional_call(module, parameters, x))
    J = [part.flatten(2) for part in vmap(per_sample, (None, 0))(parameters, X).values()]
    norms = torch.linalg.eigvalsh(sum(part @ part.mT for part in J))[:, -1].sqrt()
    W = W * (BOUND / norms).clamp_max(1)[:, None]
    return [torch.einsum("ndp,nd->p", part, W) for part in J]


def materialized_128(module, X, W):
    parts = [materialized(module, *block) for block in zip(X.split(128), W.split(128), strict=True)]
    return [sum(part) for part in zip(*parts, strict=True)]


PEERS = {"materialized": materialized, "materialized_128": materialized_128}
VARIANTS = {"ours": ours, **PEERS}


def flat_sum(variant, case):
    return torch.cat([part.flatten() for part in VARIANTS[variant](*problem(*case))])


def seconds(case, repeat):
    """Return the wall times of each variant, one call of each before the next of any."""
    arguments = problem(*case)
    times = {name: [] for name in VARIANTS}
    for _ in range(repeat + 1):
        for name, function in VARIANTS.items():
            start = time.perf_counter()
            function(*arguments)
            times[name].append(time.perf_counter() - start)
    return {name: values[1:] for name, values in times.items()}


def peak_megabytes(variant, case):
    """Return by how much the first call on a case raises the largest resident set."""
    torch.set_num_threads(1)
    # A call on few samples loads what is loaded once.
    flat_sum(variant, (4, case[1]))
    arguments = problem(*case)
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    VARIANTS[variant](*arguments)
    after = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return (after - before) * MAXRSS_UNIT / 1e6


def memory(case):
    """Return the peak memory of each variant, each in a new process."""
    with multiprocessing.get_context("spawn").Pool(1, maxtasksperchild=1) as pool:
        tasks = [(name, case) for name in VARIANTS]
        return dict(zip(VARIANTS, pool.starmap(peak_megabytes, tasks, chunksize=1), strict=True))


def median_ratio(numerators, denominators):
    return statistics.median(x / y for x, y in zip(numerators, denominators, strict=True))


def compare(case, megabytes, repeat):
    """Return one row: time, memory and difference of both variants."""
    n, widths = case
    times = seconds(case, repeat)
    sums = {name: flat_sum(name, case) for name in VARIANTS}
    difference = (sums["ours"] - sums["materialized"]).norm() / sums["materialized"].norm()
    return {
        "n": n,
        "widths": "-".join(map(str, widths)),
        "parameters": len(sums["ours"]),
        **{f"{name}_ms": 1e3 * statistics.median(times[name]) for name in VARIANTS},
        **{f"ratio_{name}": median_ratio(times[name], times["ours"]) for name in PEERS},
        **{f"{name}_MB": megabytes[name] for name in VARIANTS},
        "memory_ratio": megabytes["ours"] / megabytes["materialized"],
        "relative_difference": difference.item(),
    }


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--repeat", type=int, default=9)
    repeat = parser.parse_args().repeat
    torch.set_num_threads(1)
    # Before anything large is held here: a child starts with the peak of its parent.
    megabytes = [memory(case) for case in CASES]
    rows = [compare(case, peak, repeat) for case, peak in zip(CASES, megabytes, strict=True)]
    record("clipping", rows, {"threads": 1, "repeat": repeat, "peer": "torch.func vmap of jacrev"})


if __name__ == "__main__":
    main()
