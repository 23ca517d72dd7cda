"""Why entropic transport may lose to unregularized transport on images: a small stand-in.

MNIST averaged to 14 x 14 pixels, Laplace noise of scale 1.5 on each: the signal to noise of the
cosines in bench_mnist.py at scale 3. The paper's own setting is ``--part paper_losses`` there. A
perceptron learns it under one change at a time of a common recipe; medians and ranges over seeds.
For each run:

- Frechet: distance in the hidden layer of the classifier of bench_mnist.py, on enlarged images;
- spread: total variance of what was learned over that of raw images;
- W2: to raw images, 2000 of each;
- records a point, points a record: the perplexity of the final coupling's rows and columns.
"""

import argparse
import json
import time
from pathlib import Path

import numpy as np
import torch
from _common import record
from _images import classifier_features, load, scaled

from sklearn_dpgen.deconvolution import EntropicDeconvGAN
from sklearn_dpgen.domains import Box
from sklearn_dpgen.mechanisms import LaplaceMechanism
from sklearn_dpgen.metrics import frechet_distance, wasserstein_distance
from sklearn_dpgen.ot import sinkhorn

SCALE = 1.5
RECIPE = {
    "latent_dim": 16,
    "batch_size": 500,
    "n_generated": 250,
    "training__learning_rate": 1e-3,
    "training__max_iter": 500,
}
NAMES = ("Frechet", "spread", "W2", "records a point", "points a record", "seconds")
W = {"loss": "wasserstein"}
CHANGES = {
    "entropic": {},
    "unregularized": W,
    "likelihood": {"loss": "likelihood"},
    "entropic, 60 points": {"n_generated": 60},
    "entropic, 1000 points": {"n_generated": 1000},
    "unregularized, 60 points": {"n_generated": 60, **W},
    "unregularized, 1000 points": {"n_generated": 1000, **W},
    "entropic, regularization x 0.1": {"reg_scale": 0.1},
    "entropic, regularization x 3": {"reg_scale": 3.0},
    "entropic, 1000 Sinkhorn iterations": {"n_sinkhorn": 1000, "sinkhorn_tol": 1e-4},
    "entropic, 5 Sinkhorn iterations": {"n_sinkhorn": 5},
    "entropic, rate x 3": {"training__learning_rate": 3e-3},
    "entropic, rate / 3": {"training__learning_rate": 3e-4},
    "unregularized, rate x 3": {"training__learning_rate": 3e-3, **W},
    "entropic, 1500 steps": {"training__max_iter": 1500},
    "unregularized, 1500 steps": {"training__max_iter": 1500, **W},
}


def pooled(X):
    return X.reshape(-1, 14, 2, 14, 2).mean((2, 4)).reshape(-1, 196)


def enlarged(X):
    return np.kron(np.reshape(X, (-1, 14, 14)), np.ones((1, 2, 2))).reshape(-1, 784)


def perplexities(gan, Y, n_points):
    """Return the perplexity of rows and columns of the coupling of a batch with the generator."""
    points = torch.as_tensor(gan.sample(n_points, random_state=1), dtype=torch.float32)
    cost = -gan.mechanism_.log_likelihood(
        points, torch.as_tensor(np.asarray(Y), dtype=torch.float32)
    )
    plan = sinkhorn(cost, n_iter=1000, tol=1e-3).plan.double()
    found = []
    for axis in (1, 0):
        p = plan / plan.sum(axis, keepdim=True)
        found.append(float(torch.exp(-(p * p.clamp(min=1e-300).log()).sum(axis)).mean()))
    return found


def main():
    """Run the changes that are asked for; print and store the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seeds", type=int, default=2)
    parser.add_argument("--changes", nargs="*", default=list(CHANGES))
    args = parser.parse_args()
    torch.set_num_threads(1)
    mnist = load("mnist")
    features, _ = classifier_features(mnist)
    raw, test = (pooled(scaled(X).numpy()) for X in (mnist.X_train, mnist.X_test))
    reference = features(enlarged(test))
    meta = {"raw against raw": frechet_distance(features(enlarged(raw[:10_000])), reference)}
    meta["W2 of raw to raw"] = wasserstein_distance(raw[2000:4000], raw[:2000])
    path = Path(__file__).parent / "results" / "batches.json"
    rows = json.loads(path.read_text())["rows"] if path.exists() else []
    for change in args.changes:
        options = RECIPE | CHANGES[change]
        runs = []
        for seed in range(args.seeds):
            box = Box(-1, 1, n_features=196)
            mechanism = LaplaceMechanism(392 / SCALE, domain=box, random_state=seed)
            Y = mechanism.fit_transform(raw)
            start = time.process_time()
            gan = EntropicDeconvGAN(mechanism, random_state=seed).set_params(**options).fit(Y)
            seconds = time.process_time() - start
            X = gan.sample(10_000, random_state=0)
            batch = np.asarray(Y)[: options["batch_size"]]
            runs.append(
                (
                    frechet_distance(features(enlarged(X)), reference),
                    X.var(0).sum() / raw.var(0).sum(),
                    wasserstein_distance(X[:2000], raw[:2000]),
                    *perplexities(gan, batch, options["n_generated"]),
                    seconds,
                )
            )
        found = np.array(runs)
        found = found.round(3)
        middle = np.median(found, axis=0).tolist()
        row = {"change": change, "seeds": args.seeds, **dict(zip(NAMES, middle, strict=True))}
        row["Frechet from"], row["Frechet to"] = found[:, 0].min(), found[:, 0].max()
        print(row, flush=True)
        rows = [r for r in rows if r["change"] != change] + [row]
        record("batches", rows, meta=meta)


if __name__ == "__main__":
    main()
