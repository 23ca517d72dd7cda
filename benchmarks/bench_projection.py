"""Noise of a step in the experiments of the smoothed sliced Wasserstein paper, ours and theirs.

Noise multipliers (standard deviation over the l2 diameter of the records) of T = epochs * (N // B +
1) Gaussian releases of B of N records on k random directions in R^d, at epsilon = 10. Columns:

- paper: the value that the paper prints, from Bernstein's bound on the projections or from its
  central limit, which is no bound;
- bernstein, clt: the paper's way recomputed here. It pays for the bound once, with delta / 2;
  over several releases, each with new directions, even Bernstein's bound is no guarantee then;
- at delta: the same with all of delta both for the bound and for the divergence, as if the event
  were free: what the paper prints is above either;
- rdp: the exact Renyi divergence of the projections;
- profile: the exact privacy profile, what the package uses.

The first table is for independent directions, as in the paper; the second for orthonormal blocks.

``--part law`` draws Figures 1 and 7: the law of H for 200 directions of R^784 with its bounds at
delta = 1e-5, and of the square of one cosine in R^5 (Lemma 1), beside draws of directions.
"""

import argparse
import math
import time
from pathlib import Path

import matplotlib.pyplot as plt
import numpy as np
from _common import record
from scipy.stats import beta, norm

from sklearn_dpgen.accounting import ProjectionLaw, calibrate_noise_multiplier
from sklearn_dpgen.accounting._projection import projection_bound

EPSILON = 10.0
# Name, d, k, N, epochs, B, delta, the paper's Bernstein and central limit noise.
CASES = (
    ("MNIST generator", 784, 1000, 60_000, 100, 100, 1e-5, 2.94, 0.84),
    ("CelebA", 8192, 2000, 162_000, 100, 256, 1e-6, 2.392, 0.37),
    ("USPS-MNIST", 784, 200, 10_000, 100, 128, 1e-5, 4.74, 0.90),
    ("MNIST-USPS", 784, 200, 7_438, 100, 128, 1e-5, 5.34, 1.02),
    ("VisDA", 100, 1000, 55_387, 50, 128, 1e-6, 6.40, 2.32),
    ("Office31", 50, 100, 497, 50, 32, 1e-3, 8.05, 3.25),
)


def compare(case, kind):
    """Return one row of the table."""
    name, d, k, n, epochs, batch, delta, *paper = case
    plan = {
        "sampling_rate": batch / n,
        "n_steps": epochs * (n // batch + 1),
        "projections": ProjectionLaw(d, k, kind),
    }
    row = {"case": name, "kind": kind, "d": d, "k": k, "T": plan["n_steps"], "delta": delta}
    accountants = ["rdp", "profile"]
    if kind == "independent":
        row |= {"paper bernstein": paper[0], "paper clt": paper[1]}
        accountants = ["bernstein", "clt", *accountants]
        unbounded = plan | {"projections": ProjectionLaw(1, 1), "accountant": "rdp"}
        per_unit = calibrate_noise_multiplier(EPSILON, delta, **unbounded)
        for method in ("bernstein", "clt"):
            bound = projection_bound(plan["projections"], delta, method=method)
            row[f"{method} at delta"] = per_unit * math.sqrt(bound)
    for accountant in accountants:
        start = time.process_time()
        row[accountant] = calibrate_noise_multiplier(EPSILON, delta, accountant=accountant, **plan)
        row[f"{accountant} s"] = time.process_time() - start
    return row


def draw_cosines(n_draws, k, d, rng):
    """Return the squared cosines of a fixed vector with random directions, (n_draws, k)."""
    own = rng.standard_normal((n_draws, k)) ** 2
    return own / (own + rng.chisquare(d - 1, (n_draws, k)))


def law_figures():
    """Draw Figures 1 and 7; return the bounds of the first."""
    rng, delta = np.random.default_rng(0), 1e-5
    law = ProjectionLaw(784, 200, "independent")
    H = draw_cosines(10_000, 200, 784, rng).sum(axis=1)
    grid = np.linspace(0.1, 0.5, 801)
    exact = -np.diff(law.survival(grid)) / np.diff(grid)
    fine = np.linspace(law.mean, law.maximum, 400_001)
    bounds = {
        "exact quantile": float(fine[np.searchsorted(-law.survival(fine), -delta)]),
        "clt": projection_bound(law, delta, method="clt"),
        "bernstein": projection_bound(law, delta),
    }
    figure, (left, right) = plt.subplots(1, 2, figsize=(9, 3.4))
    left.hist(H, 60, density=True, color="0.8", label="10000 draws")
    left.plot(grid[1:], exact, label="exact law")
    normal = norm.pdf(grid, law.mean, math.sqrt(law.variance))
    left.plot(grid, normal, "--", label="normal law")
    left.axvline(bounds["clt"], color="C1", linestyle=":", label=f"CLT, {bounds['clt']:.3f}")
    quantile = bounds["exact quantile"]
    left.axvline(quantile, color="C0", linestyle=":", label=f"exact, {quantile:.3f}")
    left.plot([], [], " ", label=f"Bernstein, {bounds['bernstein']:.2f}: far right")
    left.set(xlabel="H of 200 directions of R⁷⁸⁴; bounds at δ = 1e-5", xlim=(0.1, 0.7))
    left.legend(frameon=False, fontsize=8, loc="upper right")
    Y = draw_cosines(100_000, 1, 5, rng).ravel()
    right.hist(Y, 100, range=(0, 1), density=True, color="0.8", label="100000 draws")
    grid = np.linspace(2e-3, 1, 500)
    right.plot(grid, beta.pdf(grid, 0.5, 2.0), label="Beta(1/2, 2)")
    right.set(xlabel="Y, one direction of R⁵", xlim=(0, 1), ylim=(0, 10))
    right.legend(frameon=False, fontsize=8)
    for ax in (left, right):
        ax.spines[["top", "right"]].set_visible(False)
    figure.tight_layout()
    path = Path(__file__).parents[1] / "doc" / "images" / "smoothed_law.png"
    figure.savefig(path, dpi=110)
    return [{"bound of H": name, "value": value} for name, value in bounds.items()]


def main():
    """Compute, print and store the tables, or draw the laws."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--part", choices=["noise", "law"], default="noise")
    if parser.parse_args().part == "law":
        record("projection_law", law_figures(), meta={"d": 784, "k": 200, "delta": 1e-5})
        return
    rows = [compare(case, kind) for kind in ("independent", "orthogonal") for case in CASES]
    record("projection", rows, meta={"epsilon": EPSILON})


if __name__ == "__main__":
    main()
