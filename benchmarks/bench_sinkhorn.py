"""Sinkhorn against POT and against a few lines of torch, on one thread.

Same cost matrix, same number of iterations, all marginal errors reported; the ratio is the median
over pairs of runs taken in turn, in seconds of the processor. POT's solver in the log domain runs
on NumPy arrays and on torch tensors of the same dtype; ``ot.sinkhorn``, its default, and the lines
of torch multiply by exp(-cost), which underflows where costs are large: their error is then not a
number. All peers get the transpose, so that they end on the same side and leave the error on the
other.
"""

import argparse
import math
import statistics
import time

import numpy as np
import ot
import torch
from _common import record, timed
from threadpoolctl import threadpool_limits

from sklearn_dpgen.ot import entropic_loss, sinkhorn
from sklearn_dpgen.ot._losses import likelihood_loss
from sklearn_dpgen.ot._problem import pairwise_cost

torch.set_num_threads(1)


def half_circle(n, generator):
    angle = math.pi * torch.rand(n, generator=generator, dtype=torch.float64)
    return torch.stack((angle.cos(), angle.sin()), 1)


def strokes(n, generator):
    """Images of 28 x 28 in [-1, 1] with MNIST's values: background -1, bright smooth strokes."""
    coarse = torch.randn(n, 1, 7, 7, generator=generator, dtype=torch.float64)
    smooth = torch.nn.functional.interpolate(coarse, (28, 28), mode="bicubic", align_corners=True)
    return (4 * (smooth - 0.7)).clamp(-1, 1).flatten(1)


def laplace(points, scale, generator):
    uniform = torch.rand(points.shape, generator=generator, dtype=torch.float64) - 0.5
    return points - scale * uniform.sign() * torch.log1p(-2 * uniform.abs())


def half_circle_cost(n, generator):
    scale = (1 + math.sqrt(2)) / 5  # the l1 diameter over epsilon = 5
    records = laplace(half_circle(n, generator), scale, generator)
    return pairwise_cost(half_circle(n, generator), records, 1) / scale


def image_cost(n, generator):
    records = laplace(strokes(n, generator), 3.0, generator)
    return pairwise_cost(strokes(n, generator), records, 1) / 3.0


def in_turn(functions, repeat):
    """Return lists of seconds of the processor: a call of each function, then the next of each."""
    for function in functions.values():
        function()
    return {
        name: list(times)
        for name, times in zip(
            functions,
            zip(*([once(f) for f in functions.values()] for _ in range(repeat)), strict=True),
            strict=True,
        )
    }


def once(function):
    start = time.process_time()
    function()
    return time.process_time() - start


def median_ratio(numerators, denominators):
    return statistics.median(x / y for x, y in zip(numerators, denominators, strict=True))


def compare(case, cost, n_iter, repeat):
    """Return one row: both solvers for exactly ``n_iter`` iterations."""
    n, m = cost.shape
    a, b = cost.new_full((n,), 1 / n), cost.new_full((m,), 1 / m)
    transpose = cost.t().contiguous()

    def ours():
        return sinkhorn(cost, tol=0, n_iter=n_iter)

    def pot(convert):
        arrays = (convert(x) for x in (b, a, transpose))
        return ot.bregman.sinkhorn_log(*arrays, 1.0, numItermax=n_iter, stopThr=0, warn=False)

    def pot_default():
        arrays = (x.numpy() for x in (b, a, transpose))
        with np.errstate(all="ignore"):
            return ot.sinkhorn(*arrays, 1.0, numItermax=n_iter, stopThr=0, warn=False)

    def few_lines():
        kernel, v = torch.exp(-cost), torch.ones_like(b)
        for _ in range(n_iter):
            u = a / (kernel @ v)
            v = b / (u @ kernel)
        return u[:, None] * kernel * v

    peers = {
        "pot_numpy": lambda: pot(torch.Tensor.numpy),
        "pot_torch": lambda: pot(torch.clone),
        "pot_default": pot_default,
        "few_lines": few_lines,
    }
    seconds = in_turn({"ours": ours, **peers}, repeat)
    result, plan = ours(), pot(torch.clone).t()
    return {
        "case": case,
        "n": n,
        "dtype": str(cost.dtype).removeprefix("torch."),
        "iterations": n_iter,
        **{f"{name}_ms": 1e3 * statistics.median(times) for name, times in seconds.items()},
        **{f"ratio_{name}": median_ratio(seconds[name], seconds["ours"]) for name in peers},
        "error_ours": result.marginal_error,
        "error_pot": (plan.sum(1) - a).abs().sum().item(),
        "error_pot_default": _error(torch.from_numpy(pot_default()).t(), a),
        "error_few_lines": _error(few_lines(), a),
        "plan_max_difference_times_n": n * (result.plan - plan).abs().max().item(),
    }


def _error(plan, a):
    """Return the error of the rows of a plan; None where it is not a number."""
    error = (plan.sum(1) - a).abs().sum().item()
    return error if math.isfinite(error) else None


def bandwidth(n, dtype, repeat):
    """Return one row: bytes of the kernel that an iteration reads over its time."""
    cost = 20 * torch.rand(n, n, dtype=dtype)
    out, vector, copy = torch.empty(n, dtype=dtype), torch.rand(n, dtype=dtype), cost.clone()
    seconds = in_turn(
        {
            "short": lambda: sinkhorn(cost, tol=0, n_iter=10),
            "long": lambda: sinkhorn(cost, tol=0, n_iter=60),
            "product": lambda: [torch.mv(cost, vector, out=out) for _ in range(100)],
            "copy": lambda: [copy.copy_(cost) for _ in range(20)],
        },
        repeat,
    )
    iterations = [t - s for t, s in zip(seconds["long"], seconds["short"], strict=True)]
    gigabytes = cost.numel() * cost.element_size() / 1e9
    return {
        "case": "bandwidth",
        "n": n,
        "dtype": str(dtype).removeprefix("torch."),
        "iteration_ms": 1e3 * statistics.median(iterations) / 50,
        "iteration_GB_per_s": 100 * gigabytes / statistics.median(iterations),
        "matvec_GB_per_s": 100 * gigabytes / statistics.median(seconds["product"]),
        "copy_GB_per_s": 40 * gigabytes / statistics.median(seconds["copy"]),
        "share_of_matvec_speed": median_ratio(seconds["product"], iterations),
    }


def underflow(generator):
    """Return one row: float32 against POT's log domain in float64, spread over 500."""
    n = 200
    x = torch.rand(n, 1, generator=generator, dtype=torch.float64)
    y = torch.rand(n, 1, generator=generator, dtype=torch.float64)
    cost = (700 * (x - y.t()).square() + 300 * x).float()
    # The value in float64 of the same rounded cost.
    plan, log = ot.bregman.sinkhorn_log(
        x.new_full((n,), 1 / n),
        x.new_full((n,), 1 / n),
        cost.double(),
        1.0,
        numItermax=20000,
        stopThr=1e-9,
        log=True,
    )
    value = (log["log_u"].mean() + log["log_v"].mean()).item() + 2 * math.log(n)
    result = sinkhorn(cost, tol=2e-6, n_iter=20000)
    return {
        "case": "underflow",
        "n": n,
        "dtype": "float32",
        "spread": (cost.max() - cost.min()).item(),
        "rows_lost_by_exp": int((torch.exp(-cost) == 0).all(1).sum()),
        "error_ours": result.marginal_error,
        "plan_l1_difference": (result.plan.double() - plan).abs().sum().item(),
        "value_difference": result.value - value,
    }


def training(n, tol, generator, repeat):
    """Return one row: milliseconds of a loss and its backward on the half circle."""
    cost = half_circle_cost(n, generator).float().requires_grad_()

    def step(loss):
        cost.grad = None
        loss().backward()

    return {
        "case": "training",
        "n": n,
        "dtype": "float32",
        "tol": tol,
        "iterations": sinkhorn(cost, tol=tol).n_iter,
        "solve_ms": 1e3 * timed(lambda: sinkhorn(cost, tol=tol), repeat),
        "loss_backward_ms": 1e3 * timed(lambda: step(lambda: entropic_loss(cost, tol=tol)), repeat),
        "likelihood_ms": 1e3 * timed(lambda: step(lambda: likelihood_loss(-cost)), repeat),
    }


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--repeat", type=int, default=5)
    repeat = parser.parse_args().repeat
    generator = torch.Generator().manual_seed(0)
    rows = []
    with threadpool_limits(1):
        for dtype in (torch.float32, torch.float64):
            cost = half_circle_cost(2000, generator).to(dtype)
            rows.append(compare("half circle", cost, 100, repeat))
            cost = image_cost(400, generator).to(dtype)
            rows += [compare("images, d=784", cost, n_iter, repeat) for n_iter in (50, 400)]
        rows += [
            bandwidth(n, dtype, 2 * repeat)
            for n in (1000, 2000, 4000)
            for dtype in (torch.float32, torch.float64)
        ]
        rows.append(underflow(generator))
        rows += [training(1000, tol, generator, 20 * repeat) for tol in (1e-2, 1e-3)]
    peers = "ot.bregman.sinkhorn_log; ot.sinkhorn, the default; u = a / Kv, v = b / K'u in torch"
    record("sinkhorn", rows, {"threads": 1, "repeat": repeat, "peers": peers})


if __name__ == "__main__":
    main()
