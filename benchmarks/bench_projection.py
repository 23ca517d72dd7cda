"""Noise of a step in the experiments of the smoothed sliced Wasserstein paper, ours and theirs.

Noise multipliers (standard deviation over the l2 diameter of the records) of T = epochs * (N // B +
1) Gaussian releases of B of N records on k random directions in R^d, at epsilon = 10. Columns:

- paper: the value that the paper prints, from Bernstein's bound on the projections or from its
  central limit, which is no bound;
- bernstein, clt: the paper's way recomputed here. It pays for the bound once, with delta / 2;
  over several releases, each with new directions, even Bernstein's bound is no guarantee then;
- rdp: the exact Renyi divergence of the projections;
- profile: the exact privacy profile, what the package uses.

The first table is for independent directions, as in the paper; the second for orthonormal blocks.

Run: python benchmarks/bench_projection.py
"""

import argparse
import time

from _common import record

from sklearn_dpgen.accounting import ProjectionLaw, calibrate_noise_multiplier

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
    for accountant in accountants:
        start = time.perf_counter()
        row[accountant] = calibrate_noise_multiplier(EPSILON, delta, accountant=accountant, **plan)
        row[f"{accountant} s"] = time.perf_counter() - start
    return row


def main():
    """Compute, print and store the tables."""
    argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    ).parse_args()
    rows = [compare(case, kind) for kind in ("independent", "orthogonal") for case in CASES]
    record("projection", rows, meta={"epsilon": EPSILON})


if __name__ == "__main__":
    main()
