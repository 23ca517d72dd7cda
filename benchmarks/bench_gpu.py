"""Everything that wants a CUDA device: speed beside other libraries, and images in full.

One command for a machine with a GPU: ``make gpu`` runs the tests with the marker ``gpu``, and this.

*speed*: Sinkhorn and sliced gradients beside POT, geomloss and flash-sinkhorn. Wall time of a value
with the gradient of the first points, the device synchronized before and after each; the ratio is
the median over pairs of runs taken in turn. Ours and POT run 100 Sinkhorn iterations on the matrix
of costs; geomloss takes points, and the steps of its own schedule; flash-sinkhorn, a peer where it
is installed, takes points and 100 iterations. The cost is half the squared distance, the entropic
weight 1, all in float32. The record holds the card and the versions.

*images*, of MNIST, and of FashionMNIST where ``fashion_mnist.npz`` is in the data home, three seeds
each: the losses of paper 1 in its own setting (``bench_mnist.py --part paper_losses``), and
released moments by the protocol of DPImageBench (``bench_image_protocol.py``). Neither has been run
in full, which takes many hours. Digits of paper 1 with clipped pixels are ``bench_mnist.py --part
paper_size --max-iter 15000``, those of paper 3 ``bench_smoothed_mnist.py``.

``--device cpu --sizes 200`` tries all of it without a GPU, images with a few records and steps, and
records nothing.
"""

import argparse
import statistics
import subprocess
import sys
import time
from importlib import import_module
from importlib.metadata import version
from pathlib import Path

import geomloss
import ot
import torch
from _common import record

from sklearn_dpgen.datasets._fetch import get_data_home
from sklearn_dpgen.ot import entropic_loss, random_directions, sliced_wasserstein

SIZES = (1000, 10_000, 50_000)
# A dense matrix of this many points takes 1.6 GB, and several are needed.
MOST_DENSE = 20_000
N_ITER, N_FEATURES, N_DIRECTIONS = 100, 50, 100


def seconds(function, device):
    if device.type == "cuda":
        torch.cuda.synchronize(device)
    start = time.perf_counter()
    function()
    if device.type == "cuda":
        torch.cuda.synchronize(device)
    return time.perf_counter() - start


def compared(case, n, methods, device, repeat):
    """Return a row for each method; one that fails has its error in place of a time."""
    failed = {}
    for name, method in methods.items():
        try:
            method()
        except (RuntimeError, ValueError, ImportError, TypeError) as error:
            failed[name] = str(error).splitlines()[0][:80]
    times = {name: [] for name in methods if name not in failed}
    for _ in range(repeat):
        for name in times:
            times[name].append(seconds(methods[name], device))
    rows = []
    for name in methods:
        row = {"case": case, "n": n, "method": name, "ms": None, "ratio": None, "error": ""}
        if name in failed:
            row["error"] = failed[name]
        else:
            row["ms"] = 1e3 * statistics.median(times[name])
            if "ours" in times:
                pairs = zip(times[name], times["ours"], strict=True)
                row["ratio"] = statistics.median(one / other for one, other in pairs)
        rows.append(row)
    return rows


def clouds(n, device):
    generator = torch.Generator().manual_seed(0)
    X = torch.randn(n, N_FEATURES, generator=generator) / N_FEATURES**0.5
    Y = (1.5 * torch.randn(n, N_FEATURES, generator=generator) + 0.1) / N_FEATURES**0.5
    return X.to(device), Y.to(device)


def with_gradient(loss, X, Y):
    X = X.clone().requires_grad_()
    value = loss(X, Y)
    value.backward()
    return value, X.grad


def sinkhorn_methods(X, Y):
    n = len(X)
    weights = X.new_full((n,), 1 / n)

    def ours(X, Y):
        return entropic_loss(torch.cdist(X, Y).square() / 2, tol=0, n_iter=N_ITER)

    def pot(X, Y):
        cost = torch.cdist(X, Y).square() / 2
        # By the envelope theorem too: it would differentiate its iterations otherwise.
        plan = ot.bregman.sinkhorn_log(
            weights, weights, cost.detach(), 1.0, numItermax=N_ITER, stopThr=0, warn=False
        )
        return (plan * cost).sum()

    by_points = geomloss.SamplesLoss("sinkhorn", p=2, blur=1.0, debias=False)
    methods = {}
    if n <= MOST_DENSE:
        methods |= {"ours": lambda: with_gradient(ours, X, Y)}
        methods |= {"POT": lambda: with_gradient(pot, X, Y)}
    methods["geomloss"] = lambda: with_gradient(by_points, X, Y)
    flash = flash_sinkhorn()
    if flash is not None:
        loss = flash.SamplesLoss("sinkhorn", blur=1.0, n_iters=N_ITER, debias=False)
        methods["flash-sinkhorn"] = lambda: with_gradient(loss, X, Y)
    return methods


def flash_sinkhorn():
    try:
        return import_module("flash_sinkhorn")
    except ImportError:
        return None


def sliced_methods(X, Y):
    directions = random_directions(N_DIRECTIONS, N_FEATURES).to(X)

    def pot(X, Y):
        return ot.sliced_wasserstein_distance(X, Y, projections=directions.T, p=2) ** 2

    def lines(X, Y):
        x, y = ((points @ directions.T).sort(dim=0).values for points in (X, Y))
        return (x - y).square().mean()

    def ours(X, Y):
        return sliced_wasserstein(X, Y, directions=directions)

    return {
        name: lambda loss=loss: with_gradient(loss, X, Y)
        for name, loss in {"ours": ours, "POT": pot, "three lines of torch": lines}.items()
    }


def image_commands(device):
    """Yield the arguments of every run on images; on a CPU each is a try with few records."""
    is_try = device.type != "cuda"
    for data in ("mnist", "fashion_mnist"):
        if not (Path(get_data_home()) / f"{data}.npz").exists():
            print(f"{data}: no file in the data home, left out")
            continue
        losses = ["--rows", "60", "--max-iter", "2"] if is_try else ["--seeds", "3"]
        losses += ["--methods", "privatized", "noisy", "entropic", "unregularized"]
        yield ["bench_mnist.py", "--data", data, "--part", "paper_losses", *losses]
        rules = ["--tiny", "--seeds", "1"] if is_try else ["--seeds", "3"]
        yield ["bench_image_protocol.py", "--data", data, "--device", str(device), *rules]


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--parts", nargs="+", default=["speed", "images"])
    parser.add_argument("--device", default="cuda")
    parser.add_argument("--sizes", type=int, nargs="*", default=SIZES)
    parser.add_argument("--repeat", type=int, default=7)
    args = parser.parse_args()
    device = torch.device(args.device)
    if "speed" in args.parts:
        speed(device, args)
    if "images" in args.parts:
        for script, *arguments in image_commands(device):
            print("\n" + " ".join([script, *arguments]), flush=True)
            path = Path(__file__).parent / script
            subprocess.run([sys.executable, path, *arguments], check=True)


def speed(device, args):
    rows = []
    for n in args.sizes:
        X, Y = clouds(n, device)
        rows += compared("Sinkhorn", n, sinkhorn_methods(X, Y), device, args.repeat)
        rows += compared("sliced", n, sliced_methods(X, Y), device, args.repeat)
    if device.type != "cuda":
        for row in rows:
            print(row)
        return
    meta = {"card": torch.cuda.get_device_name(device), "CUDA": torch.version.cuda}
    if flash_sinkhorn() is not None:
        meta["flash-sinkhorn"] = version("flash-sinkhorn")
    record("gpu", rows, meta | {"repeat": args.repeat, "dtype": "float32"})


if __name__ == "__main__":
    main()
