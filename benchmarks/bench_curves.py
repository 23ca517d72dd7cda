"""Deconvolution of curves in the plane: W2 to the raw data, entropic against unregularized.

400000 points of a half circle, a rectangle and an ellipse, each inside the unit disc, which is
the declared domain: its l1 diameter is 2 sqrt(2) and its l2 diameter 2. Each point is privatized
once; a model is trained on the privatized points alone, on one thread, and 4000 generated points
are compared with 4000 fresh raw ones. The best of the restarts is chosen by the likelihood of the
privatized points.

The half circle lies on the border of the disc, where the generator's output ends: so a third model
makes points of a wider square, and knows nothing of the disc.
"""

import argparse
import time

import matplotlib.pyplot as plt
import numpy as np
import torch
from _common import record
from threadpoolctl import threadpool_limits

from sklearn_dpgen.datasets import make_ellipse, make_half_circle, make_rectangle
from sklearn_dpgen.deconvolution import EntropicDeconvGAN
from sklearn_dpgen.domains import Ball, Box
from sklearn_dpgen.mechanisms import GaussianMechanism, LaplaceMechanism
from sklearn_dpgen.metrics import wasserstein_distance
from sklearn_dpgen.nn import mlp_generator

CURVES = {"half circle": make_half_circle, "rectangle": make_rectangle, "ellipse": make_ellipse}
N_RECORDS, N_COMPARED = 400_000, 4_000
DISC = Ball(1.0, n_features=2)
SQUARE = Box(-1.5, 1.5, n_features=2)
MECHANISMS = {
    "Laplace, eps 5": LaplaceMechanism(5.0, domain=DISC, random_state=1),
    "Gaussian, eps 5, delta 1e-4": GaussianMechanism(5.0, 1e-4, domain=DISC, random_state=1),
}
MODELS = {
    "entropic": {"max_iter": 1000, "n_init": 3},
    "entropic, square output": {
        "max_iter": 1000,
        "n_init": 3,
        "generator": lambda latent_dim, domain: mlp_generator(latent_dim, SQUARE),
    },
    "unregularized": {"loss": "wasserstein", "max_iter": 300, "batch_size": 500},
}


def run(curve, mechanism, model, seed):
    """Train one model; return its row and its samples."""
    X = CURVES[curve](N_RECORDS, random_state=seed)
    Y = MECHANISMS[mechanism].fit_transform(X)
    gan = EntropicDeconvGAN(MECHANISMS[mechanism], random_state=seed, **MODELS[model])
    start = time.perf_counter()
    gan.fit(Y)
    seconds = time.perf_counter() - start
    samples = gan.sample(N_COMPARED, random_state=seed)
    fresh = CURVES[curve](N_COMPARED, random_state=10_000 + seed)
    row = {
        "curve": curve,
        "mechanism": mechanism,
        "scale": round(MECHANISMS[mechanism].scale_, 4),
        "model": model,
        "seed": seed,
        "W2": round(wasserstein_distance(samples, fresh), 4),
        "seconds": round(seconds, 1),
    }
    return row, (fresh, Y[:N_COMPARED], samples)


def plot(points, rows, path):
    """Draw raw, privatized, entropic and unregularized points, one row a setting."""
    settings = list(dict.fromkeys((curve, mechanism) for curve, mechanism, _ in points))
    figure, axes = plt.subplots(
        len(settings), 4, figsize=(10, 2.5 * len(settings)), sharex=True, sharey=True
    )
    for line, (curve, mechanism) in zip(axes, settings, strict=True):
        raw, privatized, entropic = points[curve, mechanism, "entropic"]
        unregularized = points[curve, mechanism, "unregularized"][2]
        w2 = {
            r["model"]: r["W2"] for r in rows if (r["curve"], r["mechanism"]) == (curve, mechanism)
        }
        titles = [
            f"{curve}, raw",
            mechanism,
            f"entropic, W2 = {w2['entropic']:.3f}",
            f"unregularized, W2 = {w2['unregularized']:.2f}",
        ]
        clouds = [raw, privatized, entropic, unregularized]
        for ax, cloud, title in zip(line, clouds, titles, strict=True):
            ax.plot(*cloud[:2000].T, ".", markersize=1.5, alpha=0.5, color="#31688e")
            ax.set(xlim=(-3, 3), ylim=(-3, 3), aspect="equal")
            ax.set_title(title, fontsize=9)
    figure.tight_layout()
    figure.savefig(path, dpi=110)


def main():
    """Run every setting; print and store the table, draw the figure."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--curves", nargs="*", default=list(CURVES))
    parser.add_argument("--seeds", type=int, default=1)
    parser.add_argument("--figure", default="doc/images/curves.png")
    args = parser.parse_args()
    torch.set_num_threads(1)
    rows, points = [], {}
    with threadpool_limits(1):
        for seed in range(args.seeds):
            for curve in args.curves:
                for mechanism in MECHANISMS:
                    for model in MODELS:
                        row, cloud = run(curve, mechanism, model, seed)
                        print(row, flush=True)
                        rows.append(row)
                        points.setdefault((curve, mechanism, model), cloud)
    record("curves", rows, meta={"n_records": N_RECORDS, "domain": repr(DISC)})
    plot(points, [r for r in rows if r["seed"] == 0], args.figure)
    print("largest W2:", np.max([r["W2"] for r in rows if "entropic" in r["model"]]))


if __name__ == "__main__":
    main()
