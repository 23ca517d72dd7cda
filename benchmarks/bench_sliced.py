"""Sliced W2 with its gradient against POT and torch's autograd, on one thread in float32.

Value and both gradients, the same projections for both; the ratio is the median over pairs of runs
taken in turn, in seconds of the processor. With ``--lines`` the peer is not POT but three lines of
torch, for clouds of equal size. Errors are those of the gradients in the l1 norm, against float64.
Memory is the growth of the peak resident size in a process of its own. The limit is what no such
method can leave out: the products with the directions and two sorts a direction.
"""

import argparse
import re
import statistics
import subprocess
import sys
from pathlib import Path

import ot
import torch
from _common import record
from bench_sinkhorn import in_turn, median_ratio
from threadpoolctl import threadpool_limits

from sklearn_dpgen.ot import random_directions, sliced_wasserstein

torch.set_num_threads(1)


def problem(n, m, d, k):
    generator = torch.Generator().manual_seed(0)
    X = torch.randn(n, d, generator=generator)
    Y = 1.5 * torch.randn(m, d, generator=generator) + 0.1
    return X, Y, random_directions(k, d, generator=generator)


def ours(X, Y, directions):
    return sliced_wasserstein(X, Y, directions=directions)


def pot(X, Y, directions):
    return ot.sliced_wasserstein_distance(X, Y, projections=directions.T, p=2) ** 2


def lines(X, Y, directions):
    x = (X @ directions.T).sort(dim=0).values
    y = (Y @ directions.T).sort(dim=0).values
    return (x - y).square().mean()


METHODS = {"ours": ours, "pot": pot, "lines": lines}


def gradient(method, X, Y, directions):
    """Return the value, and the gradients of both clouds in one vector."""
    X, Y = X.clone().requires_grad_(), Y.clone().requires_grad_()
    value = method(X, Y, directions)
    value.backward()
    return value.item(), torch.cat((X.grad, Y.grad)).double()


def compare(n, m, d, k, repeat, peer="pot"):
    """Return one row: time, agreement and memory of both."""
    args, methods = problem(n, m, d, k), {name: METHODS[name] for name in ("ours", peer)}
    seconds = in_turn({name: lambda f=f: gradient(f, *args) for name, f in methods.items()}, repeat)
    value, exact = gradient(ours, *(a.double() for a in args))
    found = {name: gradient(method, *args) for name, method in methods.items()}
    return {
        "case": {"pot": "against POT", "lines": "against three lines of torch"}[peer],
        **{"n": n, "m": m, "d": d, "k": k},
        **{f"{name}_ms": 1e3 * statistics.median(times) for name, times in seconds.items()},
        "ratio": median_ratio(seconds[peer], seconds["ours"]),
        **{f"value_error_{name}": abs(v / value - 1) for name, (v, _) in found.items()},
        **{
            f"gradient_error_{name}": ((g - exact).abs().sum() / exact.abs().sum()).item()
            for name, (_, g) in found.items()
        },
        **{f"peak_MB_{name}": peak_memory(name, n, m, d, k) for name in methods},
    }


def peak_memory(name, *sizes):
    command = [sys.executable, __file__, "--memory-of", name, *map(str, sizes)]
    done = subprocess.run(command, check=True, capture_output=True, text=True)
    return float(done.stdout)


def print_peak_memory(name, *sizes):
    """Print the growth of the peak in MB, both gradients in X.grad and Y.grad included."""
    X, Y, directions = problem(*map(int, sizes))
    gradient(METHODS[name], *problem(50, 50, 3, 5))
    X, Y = X.requires_grad_(), Y.requires_grad_()
    before = peak_kilobytes()
    METHODS[name](X, Y, directions).backward()
    print((peak_kilobytes() - before) / 1024)


def peak_kilobytes():
    # Not ru_maxrss, which a process inherits from the one that starts it.
    status = Path("/proc/self/status").read_text()
    return int(re.search(r"VmHWM:\s*(\d+) kB", status)[1])


def limit(n, m, d, k, repeat):
    """Return one row: the products and the sorts alone."""
    X, Y, directions = problem(n, m, d, k)
    projected = [directions @ points.T for points in (X, Y)]
    integers = [(2**20 * rows).int() for rows in projected]

    def products():
        for points, rows in zip((X, Y), projected, strict=True):
            directions @ points.T
            rows.T @ directions

    def sorts(batches):
        for rows in batches:
            for row in rows:
                torch.sort(row, stable=True)

    seconds = in_turn(
        {
            "ours": lambda: gradient(ours, X, Y, directions),
            "products": products,
            "sorts_of_floats": lambda: sorts(projected),
            "sorts_of_int32": lambda: sorts(integers),
        },
        repeat,
    )
    least = [sum(pair) for pair in zip(seconds["products"], seconds["sorts_of_int32"], strict=True)]
    return {
        "case": "limit",
        **{"n": n, "m": m, "d": d, "k": k},
        **{f"{name}_ms": 1e3 * statistics.median(times) for name, times in seconds.items()},
        "ours_over_products_and_int32_sorts": median_ratio(seconds["ours"], least),
    }


def scaling(n, m, d, k, repeat, *, with_pot):
    """Return one row of times over sizes."""
    args = problem(n, m, d, k)
    methods = {"ours": ours, "pot": pot} if with_pot else {"ours": ours}
    seconds = in_turn({name: lambda f=f: gradient(f, *args) for name, f in methods.items()}, repeat)
    return {
        "case": "scaling",
        **{"n": n, "m": m, "d": d, "k": k},
        "ours_ms": 1e3 * statistics.median(seconds["ours"]),
        "ns_a_point_and_direction": 1e9 * statistics.median(seconds["ours"]) / ((n + m) * k),
        "ratio_pot": median_ratio(seconds["pot"], seconds["ours"]) if with_pot else None,
    }


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--repeat", type=int, default=5)
    parser.add_argument("--lines", action="store_true", help="against three lines of torch alone")
    parser.add_argument("--memory-of", nargs=5, metavar=("METHOD", "N", "M", "D", "K"))
    options = parser.parse_args()
    repeat = options.repeat
    with threadpool_limits(1):
        if options.memory_of:
            print_peak_memory(*options.memory_of)
            return
        if options.lines:
            rows = [compare(n, n, 50, 100, repeat, peer="lines") for n in (10_000, 100_000)]
            meta = {"threads": 1, "repeat": repeat, "dtype": "float32"}
            record("sliced_lines", rows, meta | {"peer": "three lines of torch"})
            return
        sizes = [(100_000, 100_000, 50, 100), (100_000, 70_000, 50, 100)]
        rows = [compare(*size, repeat) for size in sizes]
        rows += [limit(*size, repeat) for size in sizes]
        rows += [
            scaling(n, m, 50, min(50, 20_000_000 // n), repeat, with_pot=n <= 10_000)
            for n in (100, 1000, 10_000, 100_000, 1_000_000)
            for m in (n, 7 * n // 10)
        ]
    record("sliced", rows, {"threads": 1, "repeat": repeat, "dtype": "float32", "peer": "POT"})


if __name__ == "__main__":
    main()
