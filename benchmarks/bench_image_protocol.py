"""MNIST from released moments by the protocol of DPImageBench, on a CUDA device.

Three classifiers learn from synthetic images and are tested on the 10000 real test images: ResNet
of 110 layers, WRN-40-4 and ResNeXt-29 of 8 groups. The benchmark's other rules as in its code
(2019ChenGong/DPImageBench, ``evaluation/evaluator.py`` and ``data/dataset_loader.py``), which is
described here and not copied: 55000 training images are private and 5000 are for validation, at
random; delta is 1 / (n log n) of the 55000; 60000 images are drawn, of which the first 55000 train;
Adam at 0.01, a fifth of it after each 20 epochs, 50 epochs in batches of 256, pixels in [-1, 1],
weights averaged with a decay of 0.9999. The epoch is the one with the most validation images
classified right after Laplace noise of scale 1 / epsilon on the count. A row has the test accuracy
at that epoch; the figure to compare is the mean over the three classifiers. **This choice of an
epoch is not private at epsilon**, as each epoch is one more release, and is not part of the budget:
*last* is the accuracy after the last epoch, which needs no private image.

``make gpu`` runs it. ``--tiny`` tries it on few images with small networks, and records nothing.
"""

import argparse
import copy
import math
import time

import numpy as np
import torch
from _common import record
from _images import load
from torch import nn

from sklearn_dpgen.moments import MomentImageSampler

N_PRIVATE, N_DRAWN, N_TRAINED = 55_000, 60_000, 55_000
N_EPOCHS, BATCH_SIZE, RATE, DECAY = 50, 256, 0.01, 0.9999


def convolution(n_in, n_out, side=3, **options):
    return nn.Conv2d(n_in, n_out, side, padding=side // 2, bias=False, **options)


class Residual(nn.Module):
    """A sum of a path and of its input, which has a convolution of its own if shapes differ."""

    def __init__(self, n_in, n_out, stride, path, first, last):
        super().__init__()
        self.first, self.path, self.last = first, path, last
        self.shortcut = None
        if n_in != n_out or stride != 1:
            self.shortcut = convolution(n_in, n_out, 1, stride=stride)
            if isinstance(first, nn.Identity):
                self.shortcut = nn.Sequential(self.shortcut, nn.BatchNorm2d(n_out))

    def forward(self, X):
        start = self.first(X)
        # Blocks that begin with their activation pass it to a shortcut, and keep X itself.
        kept = X if self.shortcut is None else self.shortcut(start)
        return self.last(kept + self.path(start))


def basic(n_in, n_out, stride):
    path = nn.Sequential(
        convolution(n_in, n_out, stride=stride),
        nn.BatchNorm2d(n_out),
        nn.ReLU(),
        convolution(n_out, n_out),
        nn.BatchNorm2d(n_out),
    )
    return Residual(n_in, n_out, stride, path, nn.Identity(), nn.ReLU())


def wide(n_in, n_out, stride):
    path = nn.Sequential(
        convolution(n_in, n_out, stride=stride),
        nn.BatchNorm2d(n_out),
        nn.ReLU(),
        nn.Dropout(0.3),
        convolution(n_out, n_out),
    )
    first = nn.Sequential(nn.BatchNorm2d(n_in), nn.ReLU())
    return Residual(n_in, n_out, stride, path, first, nn.Identity())


def grouped(n_in, n_out, stride):
    width = 2 * n_out
    path = nn.Sequential(
        convolution(n_in, width, 1),
        nn.BatchNorm2d(width),
        nn.ReLU(),
        convolution(width, width, stride=stride, groups=8),
        nn.BatchNorm2d(width),
        nn.ReLU(),
        convolution(width, n_out, 1),
        nn.BatchNorm2d(n_out),
    )
    return Residual(n_in, n_out, stride, path, nn.Identity(), nn.ReLU())


def network(block, n_blocks, start, widths):
    """Return a classifier of rows of 784 pixels: three stages of blocks, and their mean."""
    layers = [nn.Unflatten(1, (1, 28, 28)), convolution(1, start)]
    if block is not wide:
        layers += [nn.BatchNorm2d(start), nn.ReLU()]
    width = start
    for i, wider in enumerate(widths):
        for j in range(n_blocks):
            layers.append(block(width, wider, 2 if i > 0 and j == 0 else 1))
            width = wider
    if block is wide:
        layers += [nn.BatchNorm2d(width), nn.ReLU()]
    layers += [nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(width, 10)]
    return nn.Sequential(*layers)


CLASSIFIERS = {
    "ResNet": lambda: network(basic, 18, 16, (16, 32, 64)),
    "WRN": lambda: network(wide, 6, 16, (64, 128, 256)),
    "ResNeXt": lambda: network(grouped, 3, 64, (256, 512, 1024)),
}
TINY = {
    "ResNet": lambda: network(basic, 1, 8, (8, 8, 8)),
    "WRN": lambda: network(wide, 1, 8, (8, 8, 8)),
    "ResNeXt": lambda: network(grouped, 1, 8, (8, 8, 8)),
}


def tensors(X, y, device):
    """Return pixels in [-1, 1] and labels on a device."""
    X = torch.as_tensor(np.asarray(X), dtype=torch.float32, device=device)
    return 2 * X - 1, torch.as_tensor(np.asarray(y), dtype=torch.int64, device=device)


@torch.no_grad()
def n_right(net, X, y):
    net.eval()
    parts = zip(X.split(1000), y.split(1000), strict=True)
    return sum(int((net(rows).argmax(1) == labels).sum()) for rows, labels in parts)


def trained(net, synthetic, validation, test, epsilon, seed, n_epochs):
    """Train a classifier; return test accuracies: of the chosen epoch, the last, and the best."""
    (X, y), rng = synthetic, np.random.default_rng(seed)
    averaged = copy.deepcopy(net)
    optimizer = torch.optim.Adam(net.parameters(), RATE)
    schedule = torch.optim.lr_scheduler.StepLR(optimizer, 20, 0.2)
    accuracies, noisy, n_steps = [], [], 0
    for _ in range(n_epochs):
        net.train()
        for rows in torch.randperm(len(X)).split(BATCH_SIZE):
            if len(rows) == 1:
                continue
            optimizer.zero_grad()
            nn.functional.cross_entropy(net(X[rows]), y[rows]).backward()
            optimizer.step()
            n_steps += 1
            decay = min(DECAY, (1 + n_steps) / (10 + n_steps))
            with torch.no_grad():
                pairs = zip(averaged.parameters(), net.parameters(), strict=True)
                for mean, own in pairs:
                    mean.lerp_(own, 1 - decay)
        schedule.step()
        # Statistics of batches are those of the network, as there.
        for mean, own in zip(averaged.buffers(), net.buffers(), strict=True):
            mean.copy_(own)
        noisy.append(n_right(averaged, *validation) + rng.laplace(scale=1 / epsilon))
        accuracies.append(100 * n_right(averaged, *test) / len(test[1]))
    return accuracies[int(np.argmax(noisy))], accuracies[-1], max(accuracies)


def split(data, rng, n_private):
    """Return private, validation and test images, with pixels in [0, 1]."""
    order = rng.permutation(len(data.X_train))
    private, kept = order[:n_private], order[n_private:]
    return (
        (data.X_train[private] / 255.0, data.y_train[private]),
        (data.X_train[kept] / 255.0, data.y_train[kept]),
        (data.X_test / 255.0, data.y_test),
    )


def run(data, epsilon, seed, device, args):
    """Return a row for each classifier."""
    n_private, n_drawn, n_trained, n_epochs = N_PRIVATE, N_DRAWN, N_TRAINED, N_EPOCHS
    makers = CLASSIFIERS
    if args.tiny:
        n_private, n_drawn, n_trained, n_epochs, makers = 2000, 400, 300, 2, TINY
        data.X_train, data.y_train = data.X_train[:2200], data.y_train[:2200]
        data.X_test, data.y_test = data.X_test[:200], data.y_test[:200]
    # The split is the same for all seeds, as there.
    private, validation, test = split(data, np.random.default_rng(0), n_private)
    sampler = MomentImageSampler(
        epsilon,
        1 / (n_private * math.log(n_private)),
        shape=(28, 28),
        pixel_range=(0, 1),
        labels="private",
        classes=list(range(10)),
        random_state=seed,
    ).fit(*private)
    labels = sampler.sample_labels(n_drawn, random_state=seed)
    drawn = sampler.sample(n_drawn, y=labels, random_state=seed)
    synthetic = tensors(drawn[:n_trained], labels[:n_trained], device)
    others = [tensors(*part, device) for part in (validation, test)]
    rows = []
    for name, make in makers.items():
        torch.manual_seed(seed)
        start = time.perf_counter()
        net = make().to(device)
        chosen, last, best = trained(net, synthetic, *others, epsilon, seed, n_epochs)
        row = {"data": args.data, "epsilon": epsilon, "seed": seed, "classifier": name}
        row |= {"parameters": sum(p.numel() for p in net.parameters())}
        row |= {"accuracy": chosen, "last": last, "best of test": best}
        rows.append(row | {"seconds": round(time.perf_counter() - start, 1)})
        print(rows[-1], flush=True)
    return rows


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--data", default="mnist", choices=["mnist", "fashion_mnist"])
    parser.add_argument("--device", default="cuda")
    parser.add_argument("--epsilons", type=float, nargs="+", default=[1.0, 10.0])
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--tiny", action="store_true", help="a try; records nothing")
    args = parser.parse_args()
    device, rows = torch.device(args.device), []
    for seed in range(args.seeds):
        for epsilon in args.epsilons:
            rows += run(load(args.data), epsilon, seed, device, args)
            if not args.tiny:
                meta = vars(args) | {"card": torch.cuda.get_device_name(device)}
                record(f"image_protocol_{args.data}", rows, meta)
    for epsilon in args.epsilons:
        found = [
            np.mean([r["accuracy"] for r in rows if (r["epsilon"], r["seed"]) == (epsilon, seed)])
            for seed in range(args.seeds)
        ]
        print(f"epsilon {epsilon:g}: {np.mean(found):.2f} ± {np.std(found):.2f}, {len(found)} runs")


if __name__ == "__main__":
    main()
