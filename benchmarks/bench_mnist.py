"""Images from privatized images, after paper 1: figures 3 to 6 and 8 to 14.

Parts: ``losses`` (three losses at two mechanisms), ``noisy`` (figures 11, 12), ``budgets`` (8, 9,
10), ``denoising`` (3, 4, 5), ``clipped`` (13, 14) and ``paper_size``, the DCGAN of 6.8 million
parameters; figure 6 is in bench_mnist_scales.py. Figures have the numbers of the preprint, as on
doc/papers.rst. ``--data fashion_mnist`` reads ``fashion_mnist.npz``. Each part has a table of its
own in ``results`` and goes on with what it finds there, unless ``--again``. Schedules are short:
100 epochs of 60000 records in batches of 400, as in the paper, are ``--max-iter 15000``.

``paper_losses`` is the paper's own comparison of losses, in its setting: all pixels, scale 3 (7 of
FashionMNIST), batches of 6000 records and points, the DCGAN of 6.8 million parameters without batch
normalization, Adam at 1e-4, 400 Sinkhorn iterations, 150 epochs. It compares the entropic loss with
*noisy*, the unregularized loss of points with noise; *unregularized* is without. The paper prints
neither the rate nor the length of these trainings; both are those of its other images. It needs a
GPU: ``make gpu`` runs it with three seeds. ``--rows 60`` tries any part on a CPU, and records
nothing.

The paper reports FID, with the features of Inception. Here the Fréchet distance is taken in the
last hidden layer of a small convolutional classifier that is trained on raw images for this
purpose. It is squared, as FID is; figures of the two do not compare. Every table has what takes no
training: the privatized images themselves, and the methods of ``_image_baselines.py``.
"""

import argparse
import functools
import itertools
import json
import time
from pathlib import Path

import numpy as np
import torch
from _common import record
from _image_baselines import CHEAP, denoised, moments
from _images import (
    PIXELS,
    Judge,
    classifier_features,
    cosines,
    draw,
    gaussian,
    laplace,
    load,
    scaled,
)

from sklearn_dpgen.deconvolution import EntropicDeconvGAN
from sklearn_dpgen.nn import dcgan_generator

__all__ = ["classifier_features", "scaled"]

HERE = Path(__file__).parent
PAPER_DCGAN = functools.partial(dcgan_generator, n_channels=64, n_hidden=1024, kernel_size=5)
PAPER = {
    "generator": PAPER_DCGAN,
    "latent_dim": 100,
    "batch_size": 400,
    "n_generated": 400,
    "n_sinkhorn": 400,
    "training__learning_rate": 1e-4,
}
# 150 epochs of 60000 records.
PAPER_LOSSES = PAPER | {
    "generator": functools.partial(PAPER_DCGAN, normalize=False),
    "batch_size": 6000,
    "n_generated": 6000,
    "training__max_iter": 1500,
}
SMALL = {
    "generator": functools.partial(dcgan_generator, n_channels=8),
    "latent_dim": 32,
    "batch_size": 400,
    "n_generated": 200,
    "training__learning_rate": 6e-3,
}
GANS = {
    "entropic": {},
    "likelihood": {"loss": "likelihood"},
    "unregularized": {"loss": "wasserstein"},
    "noisy": {"loss": "noisy_wasserstein"},
    "debiased": {"loss": "sinkhorn_divergence"},
}
NO_NORM = {"generator": functools.partial(dcgan_generator, n_channels=8, normalize=False)}


def parts(data):
    """Return for each part its settings, its GANs and their further options."""
    scale = {"mnist": 3, "fashion_mnist": 7}[data]
    dct = cosines()
    return {
        "budgets": (
            [laplace(e, transform=dct) for e in (65.25, 49, 35, 25)]
            + [gaussian(e) for e in (35, 30, 25, 24)],
            ("entropic",),
            {"training__max_iter": 2000},
        ),
        "losses": (
            [laplace(280 / 3, transform=dct), gaussian(35)],
            ("entropic", "unregularized", "noisy"),
            {"training__max_iter": 2000},
        ),
        "denoising": (
            [laplace(1568, radius=None), laplace(196, radius=None)]
            + [gaussian(1568, radius=None), gaussian(41, radius=None), gaussian(35, radius=None)],
            ("unregularized", "wavelets, unregularized", "entropic"),
            {"training__max_iter": 1000},
        ),
        # 6000 records a step there, and no batch normalization.
        "noisy": (
            [laplace(1568 / scale, radius=None)],
            ("noisy", "entropic"),
            NO_NORM | {"training__max_iter": 300, "training__learning_rate": 2e-3},
        ),
        "paper_losses": (
            [laplace(1568 / scale, radius=None)],
            ("noisy", "entropic", "unregularized"),
            PAPER_LOSSES,
        ),
        "clipped": (
            [laplace(100, radius=350), laplace(550 / 7, radius=275), gaussian(35), gaussian(25)],
            ("entropic",),
            {"training__max_iter": 300},
        ),
        "paper_size": (
            [gaussian(35)],
            ("entropic",),
            PAPER | {"training__max_iter": 100, "training__learning_rate": 1e-3},
        ),
    }


def train(setting, Y, method, options, seed):
    """Return images drawn from a generator, and the number of its steps."""
    gan = EntropicDeconvGAN(
        setting.mechanism,
        output_domain=PIXELS,
        output_transform=setting.transform,
        random_state=seed,
    ).set_params(**SMALL | options | GANS[method])
    gan.fit(Y)
    return gan.sample(10_000, random_state=0), gan.n_iter_


def images_of(setting, method, raw, Y, learned, options, seed):
    """Return 10000 images that a method makes of privatized ones, and the steps it took."""
    if method == "clipped":
        return setting.shown(setting.mechanism.domain_.project(setting.mapped(raw[:10_000]))), 0
    if method == "privatized":
        return setting.shown(Y[:10_000]), 0
    if method in CHEAP:
        draws = CHEAP[method](learned(), np.random.default_rng(seed))
        return setting.shown(draws(10_000)), 0
    scale = np.sqrt(setting.variance)
    if method == "wavelets":
        pixels = Y[:10_000] if setting.transform is None else setting.shown(Y[:10_000])
        return denoised(np.asarray(pixels), raw[:10_000], scale)[0], 0
    if method == "wavelets, unregularized":
        Y = setting.mechanism.domain_.project(denoised(Y, raw, scale)[0])
        method = "unregularized"
    images, n_steps = train(setting, Y, method, options, seed)
    return setting.kept(images), n_steps


def run(name, settings, methods, options, raw, judge, args):
    """Run a part, row by row; what is stored already is kept."""
    label = name if args.data == "mnist" else f"{args.data}_{name}"
    path = HERE / "results" / f"mnist_{label}.json"
    rows = [] if args.again or not path.exists() else json.loads(path.read_text())["rows"]
    done = {(row["setting"], row["method"], row["seed"]) for row in rows}
    more = {} if args.max_iter is None else {"training__max_iter": args.max_iter}
    if args.rows is not None:
        rows, more = [], more | {"batch_size": args.rows, "n_generated": args.rows}
    for setting in settings:
        if args.settings and not any(part in setting.name for part in args.settings):
            continue
        Y = np.asarray(setting.privatize(raw), dtype=np.float32)
        learned = functools.cache(functools.partial(moments, Y, setting.variance))
        for method in ("clipped", "privatized", "wavelets", *CHEAP, *methods):
            if args.methods and method not in args.methods:
                continue
            for seed in range(args.seeds if method in (*CHEAP, *methods) else 1):
                key = setting.name, method, seed
                if key in done:
                    continue
                start = time.process_time()
                found, n_steps = images_of(setting, method, raw, Y, learned, options | more, seed)
                row = dict(zip(("setting", "method", "seed"), key, strict=True))
                row |= {
                    "scale": round(float(setting.mechanism.scale_), 3),
                    "Frechet": round(judge.distance(found), 2),
                    "score": round(judge.score(found), 2),
                    "steps": n_steps,
                    "seconds": round(time.process_time() - start, 1),
                }
                print(row, flush=True)
                if args.rows is not None:
                    continue
                rows = [r for r in rows if (r["setting"], r["method"], r["seed"]) != key] + [row]
                meta = {
                    "raw": judge.distance(raw[:10_000]),
                    "score of raw": judge.score(raw[:10_000]),
                }
                record(path.stem, sorted(rows, key=str), meta=meta | {"accuracy": judge.accuracy})
                if args.samples and seed == 0:
                    keep(Path(args.samples) / f"{label}.npz", f"{setting.name}: {method}", found)


def keep(path, title, images):
    """Add some images to a file of images by title."""
    found = dict(np.load(path)) if path.exists() else {}
    found[title] = (127.5 * (images[:100] + 1)).round().astype(np.uint8)
    np.savez_compressed(path, **found)


SHOWN = {
    "losses": ("clipped", "privatized", "particles", "mixture", "unregularized", "entropic"),
    "budgets": ("entropic",),
    "denoising": ("privatized", "wavelets", "mixture", "unregularized", "entropic"),
}


def pictures(folder):
    """Draw the kept images: one row of grids a setting, one column a method."""
    for label, methods in SHOWN.items():
        path = Path(folder) / f"{label}.npz"
        if not path.exists():
            continue
        found = dict(np.load(path))
        settings = dict.fromkeys(title.rpartition(": ")[0] for title in found)
        grids = {
            f"{m}\n{s.partition(', l')[0].replace('eps=', 'ε = ').replace('.3333', '.3')}": found[
                f"{s}: {m}"
            ]
            / 127.5
            - 1
            for s, m in itertools.product(settings, methods)
            if f"{s}: {m}" in found
        }
        n_columns = min(6, len(grids))
        image = HERE.parent / "doc" / "images" / f"mnist_{label}.png"
        draw(grids, image, n_columns=n_columns, side=5, width=10.0)


def main():
    """Run the parts that are asked for."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--part", nargs="*", default=["losses", "noisy", "budgets", "denoising"])
    parser.add_argument("--data", default="mnist", choices=["mnist", "fashion_mnist"])
    parser.add_argument("--seeds", type=int, default=1)
    parser.add_argument(
        "--max-iter", type=int, help="steps of every network; else those of the part"
    )
    parser.add_argument("--again", action="store_true")
    parser.add_argument("--rows", type=int, help="records, and of a step; records no results")
    parser.add_argument("--methods", nargs="*", help="these alone")
    parser.add_argument("--settings", nargs="*", help="those alone whose names hold one of these")
    parser.add_argument("--samples", help="folder for drawn images")
    parser.add_argument("--judge", help="file that keeps the classifier between runs")
    parser.add_argument("--pictures", action="store_true", help="draw from --samples, no run")
    args = parser.parse_args()
    if args.pictures:
        pictures(args.samples)
        return
    torch.set_num_threads(1)
    images = load(args.data)
    judge = Judge(images, path=args.judge)
    raw = scaled(images.X_train[: args.rows]).numpy()
    found = parts(args.data)
    for name in args.part:
        run(name, *found[name], raw, judge, args)


if __name__ == "__main__":
    main()
