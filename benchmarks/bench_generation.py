"""Appendix C of paper 2: a private Gaussian sample is mapped to a private circle.

n = 100000 on both sides, batches of 10000, a 2-128-64-64-2 network, L = 2 sqrt(2), learning rate
0.0075, 50 directions. Both sides private, then the circle alone (public latents): W2 of 2000
generated points to fresh ones, and the figure ``doc/images/fair_generation.png``.
"""

from pathlib import Path

import matplotlib.pyplot as plt
import numpy as np
import torch
from _common import record

from sklearn_dpgen.domains import Ball
from sklearn_dpgen.metrics import wasserstein_distance
from sklearn_dpgen.sliced import DPSlicedWassersteinGenerator

IMAGES = Path(__file__).parents[1] / "doc" / "images"
EPSILONS = (np.inf, 5.0, 1.0, 0.5)
N, N_COMPARED, MAX_ITER = 100_000, 2_000, 500
SNAPSHOTS = (0, 50, 100, 200, 499)


def make_circle(n, seed):
    angles = np.random.default_rng(seed).uniform(0, 2 * np.pi, n)
    return 0.75 * np.column_stack([np.cos(angles), np.sin(angles)])


def main():
    circle, fresh = make_circle(N, 0), make_circle(N_COMPARED, 1)
    latents = np.random.default_rng(2).normal(size=(N, 2))
    watched = torch.from_numpy(np.random.default_rng(3).normal(size=(N_COMPARED, 2)))
    rows, clouds = [], {}
    for private in ("both sides", "records only"):
        for epsilon in EPSILONS:

            def watch(step, module, key=(private, epsilon)):
                if step in SNAPSHOTS:
                    with torch.no_grad():
                        clouds[*key, step] = module(watched).numpy()

            generator = DPSlicedWassersteinGenerator(
                epsilon,
                domain=Ball(1.0, n_features=2),
                jacobian_clip=2 * np.sqrt(2),
                batch_fraction=0.1,
                max_iter=MAX_ITER,
                learning_rate=0.0075,
                callback=watch,
                random_state=0,
            )
            generator.fit(circle, latents=latents if private == "both sides" else None)
            samples = generator.sample(N_COMPARED, random_state=1)
            rows.append(
                {"private": private, "epsilon": epsilon}
                | {"sigma": generator.privacy_.noise_scale or 0.0}
                | {"W2": wasserstein_distance(samples, fresh)}
            )
            print(rows[-1], flush=True)
    floor = wasserstein_distance(make_circle(N_COMPARED, 4), fresh)
    record("generation", rows, {"W2 of two samples of the circle": floor, "steps": MAX_ITER})

    figure, axes = plt.subplots(
        len(EPSILONS), len(SNAPSHOTS), figsize=(2.3 * len(SNAPSHOTS), 2.3 * len(EPSILONS)),
        sharex=True, sharey=True, constrained_layout=True,
    )  # fmt: skip
    for i, epsilon in enumerate(EPSILONS):
        for j, step in enumerate(SNAPSHOTS):
            axes[i, j].scatter(*circle[:1000].T, s=1, color="tab:orange")
            axes[i, j].scatter(*clouds["both sides", epsilon, step].T, s=1, color="tab:blue")
            axes[i, j].set(xlim=(-1.1, 1.1), ylim=(-1.1, 1.1), aspect="equal")
            if i == 0:
                axes[i, j].set_title(f"step {step + 1}")
        axes[i, 0].set_ylabel("ε = ∞" if np.isinf(epsilon) else f"ε = {epsilon:g}")
    figure.savefig(IMAGES / "fair_generation.png", dpi=110)


if __name__ == "__main__":
    main()
