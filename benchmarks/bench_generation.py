"""Appendix C of paper 2: a private Gaussian sample is mapped to a private circle.

n = 100000 on both sides, batches of 10000, a 2-128-64-64-2 network, L = 2 sqrt(2), learning rate
0.0075, 50 directions. W2 of 2000 generated points to fresh ones, and what both samples have cost
along the way. Parts:

- ``ours``: Adam, a decaying rate, exactly clipped Jacobians. Both sides private, then the circle
  alone (public latents); the figure ``doc/images/fair_generation.png``.
- ``printed``: both sides private, Jacobians clipped coordinate by coordinate, noisy gradients
  clipped again, a constant rate. The paper names neither the optimizer nor the bound of the second
  clip nor the number of steps: plain descent and Adam, a bound of 1, 500 steps; the
  figure ``doc/images/fair_generation_printed.png``. ``--batch-size`` takes smaller batches where
  time is short: at a lower rate they need nearly the same noise.
"""

import argparse
import time
from pathlib import Path

import matplotlib.pyplot as plt
import numpy as np
import torch
from _common import record

from sklearn_dpgen.domains import Ball
from sklearn_dpgen.metrics import wasserstein_distance
from sklearn_dpgen.nn import Training
from sklearn_dpgen.sliced import ClippedGradient, DPSlicedWassersteinGenerator

IMAGES = Path(__file__).parents[1] / "doc" / "images"
EPSILONS = (np.inf, 5.0, 1.0, 0.5)
N, N_COMPARED, MAX_ITER = 100_000, 2_000, 500
SNAPSHOTS = (0, 50, 100, 200, 499)
PRINTED = {
    "gradient__jacobian_clipping": "componentwise",
    "training__schedule": "constant",
    "training__averaging": 0.0,
}


def make_circle(n, seed):
    angles = np.random.default_rng(seed).uniform(0, 2 * np.pi, n)
    return 0.75 * np.column_stack([np.cos(angles), np.sin(angles)])


FRESH = make_circle(N_COMPARED, 1)
WATCHED = torch.from_numpy(np.random.default_rng(3).normal(size=(N_COMPARED, 2)))


def fitted(batch_size, epsilon, *, private="both sides", **options):
    """Return a generator, a row of the table, and points of the watched latents at some steps."""
    circle, latents = make_circle(N, 0), np.random.default_rng(2).normal(size=(N, 2))
    clouds, start = {}, time.perf_counter()

    def watch(step, module):
        if step in SNAPSHOTS:
            with torch.no_grad():
                clouds[step] = module(WATCHED).numpy()

    generator = DPSlicedWassersteinGenerator(
        epsilon,
        domain=Ball(1.0, n_features=2),
        gradient=ClippedGradient(jacobian_clip=2 * np.sqrt(2), batch_fraction=batch_size / N),
        training=Training(max_iter=MAX_ITER, learning_rate=0.0075, callback=watch),
        random_state=0,
    ).set_params(**options)
    generator.fit(circle, latents=latents if private == "both sides" else None)
    samples = generator.sample(N_COMPARED, random_state=1)
    costs = [generator.mechanism_.epsilons(step) for step in (1, MAX_ITER)]
    row = {"private": private, "epsilon": epsilon, "sigma": generator.privacy_.noise_scale or 0.0}
    row |= {"epsilon of Z, a step": costs[0][0], "epsilon of Z": costs[1][0]}
    row |= {"epsilon of X, a step": costs[0][-1], "epsilon of X": costs[1][-1]}
    if private != "both sides":
        row |= {"epsilon of X, a step": 0.0, "epsilon of X": 0.0}
    row["W2"] = wasserstein_distance(samples, FRESH)
    row["seconds"] = round(time.perf_counter() - start, 1)
    return generator, row, clouds


def ours(batch_size):
    """Return the rows of the library's descent, and draw the figure."""
    rows, runs = [], {}
    for private in ("both sides", "records only"):
        for epsilon in EPSILONS:
            generator, row, clouds = fitted(batch_size, epsilon, private=private)
            if private == "both sides":
                runs[epsilon] = generator.mechanism_, clouds
            rows.append(row)
            print(row, flush=True)
    plot(runs, "fair_generation")
    return rows


def plot(runs, name):
    circle = make_circle(1000, 5)
    figure, axes = plt.subplots(
        len(runs), len(SNAPSHOTS), figsize=(2.3 * len(SNAPSHOTS), 2.45 * len(runs)),
        sharex=True, sharey=True, constrained_layout=True,
    )  # fmt: skip
    for line, (epsilon, (mechanism, clouds)) in zip(axes, runs.items(), strict=True):
        for axis, step in zip(line, SNAPSHOTS, strict=True):
            axis.scatter(*circle.T, s=1, color="tab:orange")
            axis.scatter(*clouds[step][:1000].T, s=1, color="tab:blue")
            axis.set(xlim=(-1.1, 1.1), ylim=(-1.1, 1.1), aspect="equal")
            spent = "" if np.isinf(epsilon) else "\nε of Z {:.2f}, of X {:.2f}"
            spent = spent.format(*mechanism.epsilons(step + 1))
            axis.set_title(f"step {step + 1}{spent}", fontsize=9)
        line[0].set_ylabel("ε = ∞" if np.isinf(epsilon) else f"ε = {epsilon:g}")
    figure.savefig(IMAGES / f"{name}.png", dpi=75)
    plt.close(figure)


def printed(batch_size):
    """Return the rows of the paper's descent, with what it leaves open, and draw the figure."""
    rows, runs = [], {}
    for solver, bound in (("adam", 1.0), ("sgd", 1.0)):
        for epsilon in (np.inf, 1.0):
            generator, row, clouds = fitted(
                batch_size,
                epsilon,
                training__solver=solver,
                gradient__released_clip=bound,
                **PRINTED,
            )
            if solver == "adam":
                runs[epsilon] = generator.mechanism_, clouds
            rows.append({"solver": solver, "second clip": bound} | row)
            print(rows[-1], flush=True)
    plot(runs, "fair_generation_printed")
    return rows


PARTS = {"ours": ours, "printed": printed}


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--part", choices=list(PARTS), nargs="*", default=list(PARTS))
    parser.add_argument("--batch-size", type=int, default=N // 10)
    args = parser.parse_args()
    torch.set_num_threads(1)
    floor = wasserstein_distance(make_circle(N_COMPARED, 4), FRESH)
    meta = {"W2 of two samples of the circle": floor, "steps": MAX_ITER, "seed": 0}
    for part in args.part:
        name = "generation" if part == "ours" else f"generation_{part}"
        record(name, PARTS[part](args.batch_size), meta | {"batch size": args.batch_size})


if __name__ == "__main__":
    main()
