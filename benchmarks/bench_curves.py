"""Deconvolution of curves in the plane: W2 to the raw data.

400000 points of a half circle, a rectangle and an ellipse, each inside the unit disc, which is
the declared domain: its l1 diameter is 2 sqrt(2) and its l2 diameter 2. Each point is privatized
once; a model is trained on the privatized points alone, on one thread, and 4000 generated points
are compared with 4000 fresh raw ones. The best of the restarts is chosen by the likelihood of the
privatized points.

The half circle lies on the border of the disc, where the generator's output ends: so one model
makes points of a wider square, and knows nothing of the disc; and a half circle and a rectangle
are inside. Without any training: weights of points of the disc, by expectation maximization, and
the first two moments.

What is measured takes the place of the same settings in the results; the rest of them stays.
"""

import argparse
import json
import time
from functools import partial

import matplotlib.pyplot as plt
import torch
from _common import RESULTS, record
from _moment_deconvolution import moment_deconvolution
from threadpoolctl import threadpool_limits

from sklearn_dpgen.datasets import make_half_circle
from sklearn_dpgen.datasets._simulated import make_ellipse, make_rectangle
from sklearn_dpgen.deconvolution import DeconvolutionEM, EntropicDeconvGAN
from sklearn_dpgen.domains import Ball, Box
from sklearn_dpgen.mechanisms import GaussianMechanism, LaplaceMechanism
from sklearn_dpgen.metrics import wasserstein_distance
from sklearn_dpgen.nn import mlp_generator

CURVES = {
    "half circle": make_half_circle,
    "rectangle": make_rectangle,
    "ellipse": make_ellipse,
    "half circle inside": partial(make_half_circle, radius=0.7),
    "rectangle inside": partial(make_rectangle, width=1.0, height=0.7),
}
KEYS = ("curve", "mechanism", "model", "seed")
N_RECORDS, N_COMPARED = 400_000, 4_000
DISC = Ball(1.0, n_features=2)
SQUARE = Box(-1.5, 1.5, n_features=2)
MECHANISMS = {
    "Laplace, eps 5": LaplaceMechanism(5.0, domain=DISC, random_state=1),
    "Gaussian, eps 5, delta 1e-4": GaussianMechanism(5.0, 1e-4, domain=DISC, random_state=1),
}
NETWORKS = {
    "entropic": {"training__max_iter": 1000, "n_init": 3},
    "entropic, square output": {
        "training__max_iter": 1000,
        "n_init": 3,
        "generator": lambda latent_dim, domain: mlp_generator(latent_dim, SQUARE),
    },
    "entropic, one start": {"training__max_iter": 1000},
    "entropic, one start, 10000 records a step": {"training__max_iter": 1000, "batch_size": 10_000},
    "unregularized": {"loss": "wasserstein", "training__max_iter": 300, "batch_size": 500},
}
MODELS = (*NETWORKS, "expectation maximization", "moments")


def learn(model, mechanism, Y, seed):
    """Return points of the law that a model learns from privatized ones."""
    if model == "moments":
        return moment_deconvolution(mechanism, Y, N_COMPARED, seed)
    if model in NETWORKS:
        estimator = EntropicDeconvGAN(mechanism, random_state=seed).set_params(**NETWORKS[model])
    else:
        estimator = DeconvolutionEM(mechanism, random_state=seed)
    return estimator.fit(Y).sample(N_COMPARED, random_state=seed)


def run(curve, mechanism, model, seed):
    """Train one model; return its row and its samples."""
    X = CURVES[curve](N_RECORDS, random_state=seed)
    Y = MECHANISMS[mechanism].fit_transform(X)
    start = time.perf_counter()
    samples = learn(model, MECHANISMS[mechanism], Y, seed)
    seconds = time.perf_counter() - start
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


def merged(rows):
    """Return the rows of the results with these in the place of those they repeat."""
    path = RESULTS / "curves.json"
    earlier = json.loads(path.read_text())["rows"] if path.exists() else []
    by_setting = {tuple(r[k] for k in KEYS): r for r in [*earlier, *rows]}
    order = [list(CURVES), list(MECHANISMS), list(MODELS)]
    return sorted(
        by_setting.values(),
        key=lambda r: [o.index(r[k]) for o, k in zip(order, KEYS, strict=False)] + [r["seed"]],
    )


def plot(points, rows, path):
    """Draw raw, privatized and learned points, one row a setting."""
    settings = list(dict.fromkeys((curve, mechanism) for curve, mechanism, _ in points))
    models = list(dict.fromkeys(model for _, _, model in points))
    shape = len(settings), 2 + len(models)
    size = 2 * shape[1], 2.1 * shape[0]
    figure, axes = plt.subplots(*shape, figsize=size, sharex=True, sharey=True, squeeze=False)
    for line, (curve, mechanism) in zip(axes, settings, strict=True):
        first = points[curve, mechanism, models[0]]
        w2 = {
            r["model"]: r["W2"] for r in rows if (r["curve"], r["mechanism"]) == (curve, mechanism)
        }
        titles = [f"{curve}, raw", mechanism] + [f"{m}, {w2[m]:.3f}" for m in models]
        clouds = [*first[:2], *(points[curve, mechanism, m][2] for m in models)]
        for ax, cloud, title in zip(line, clouds, titles, strict=True):
            ax.plot(*cloud[:1500].T, ".", markersize=1.2, alpha=0.5, color="#31688e")
            ax.set(xlim=(-2, 2), ylim=(-2, 2), aspect="equal", xticks=[-1, 0, 1], yticks=[-1, 0, 1])
            ax.set_title(title, fontsize=7)
            ax.tick_params(length=0, labelsize=6)
    figure.tight_layout()
    figure.savefig(path, dpi=75)


def main():
    """Run the settings; print and store the table, draw the figure."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--curves", nargs="*", default=list(CURVES))
    parser.add_argument("--models", nargs="*", default=list(MODELS))
    parser.add_argument("--seeds", type=int, default=1)
    parser.add_argument("--figure", help="where to draw the clouds of the first seed")
    args = parser.parse_args()
    torch.set_num_threads(1)
    rows, points = [], {}
    with threadpool_limits(1):
        for seed in range(args.seeds):
            for curve in args.curves:
                for mechanism in MECHANISMS:
                    for model in args.models:
                        row, cloud = run(curve, mechanism, model, seed)
                        print(row, flush=True)
                        rows.append(row)
                        points.setdefault((curve, mechanism, model), cloud)
            meta = {"n_records": N_RECORDS, "domain": repr(DISC)}
            record("curves", merged(rows), meta=meta)
    if args.figure:
        plot(points, [r for r in merged(rows) if r["seed"] == 0], args.figure)


if __name__ == "__main__":
    main()
