"""Noise of a step in the experiments of the private Wasserstein gradients paper, ours and theirs.

The standard deviation of the noise on the gradient, at the paper's sizes, clips, rates, steps and
budgets. Ours: exact sensitivity, exact privacy profile of sampling without replacement. The
paper's: its sensitivity, priced by its central limit (which is no bound), or by Renyi divergences
(which is one). Columns:

- ours: at the paper's radius M of the outputs;
- centered: at the radius of the smallest ball that holds all outputs, 1/2 for probabilities;
- paper CLT, paper RDP: the paper's sensitivity with the two accountants;
- ours / CLT, ours / RDP: at the same radius, so that the gain is of the analysis alone.

alpha = 1 is the Wasserstein part alone. n = 30000 in two groups of n/2, and with p = 0.7 in
strata of p n/2 and (1 - p) n/2 for equality of odds; batches of a fifth; delta = 0.1/n. Data
generation: n = 1e5, batches of 1e4 on both sides, both private; the paper does not say how many
steps, here T = 1000.

Run: python benchmarks/bench_noise.py
"""

import argparse
import functools
import math
from dataclasses import dataclass

from _common import record
from scipy.optimize import brentq
from scipy.special import ndtr

from sklearn_dpgen.accounting import calibrate_noise_multiplier, gaussian_sigma
from sklearn_dpgen.mechanisms import StratifiedGaussianMechanism, Stratum
from sklearn_dpgen.sliced import (
    parity_penalty_sensitivity,
    projection_spread,
    transport_gradient_sensitivity,
)

EPSILONS = (5.0, 1.0, 0.5)
ALPHAS = (0.0, 0.25, 0.5, 0.75, 1.0)
N, P, RATE = 30_000, 0.7, 0.2
TARGETS = {"ours / CLT": 0.50, "ours / RDP": 0.24}


@dataclass(frozen=True)
class Experiment:
    """A fairness experiment of the paper: M, L and C are its clips, k its directions in R^d."""

    name: str
    n_steps: int
    task_clip: float
    radius: float
    clip: float
    centered_radius: float
    n_projections: int = 1
    n_features: int = 1
    n_labels: int = 1

    n_records = N

    @property
    def sizes(self):
        shares = (0.5,) if self.n_labels == 1 else (P / 2, (1 - P) / 2)
        return [round(share * N) for share in shares]

    def strata(self, alpha, radius):
        """Return one stratum of each size; both groups have the same."""
        spread = projection_spread(self.n_projections, self.n_features)
        for size in self.sizes:
            batch = round(RATE * size)
            penalty = parity_penalty_sensitivity(
                batch, 2, n_labels=self.n_labels, radius=radius, clip=self.clip, spread=spread
            )
            yield Stratum(size, batch, self._task(alpha) + alpha * penalty)

    def paper_sensitivity(self, alpha):
        """Return the bound of Theorem 6.1."""
        penalty = 16 * self.radius * self.clip / (RATE * min(self.sizes)) / self.n_labels
        return self._task(alpha) + alpha * penalty

    def _task(self, alpha):
        return (1 - alpha) * 2 * self.task_clip / (RATE * N)


@dataclass(frozen=True)
class Generation:
    """Appendix C: a network on private x, compared with private z; L2 = 0."""

    name: str = "generation"
    n_steps: int = 1000
    radius: float = 1.0
    clip: float = 2 * math.sqrt(2)
    centered_radius: float = 1.0

    n_records = 100_000

    def strata(self, alpha, radius):
        """Return the stratum of x, then that of z."""
        spread = projection_spread(50, 2)
        for own, other in ((self.clip, 0.0), (0.0, self.clip)):
            sensitivity = transport_gradient_sensitivity(
                10_000, radius=radius, clip=own, other_clip=other, spread=spread
            )
            yield Stratum(self.n_records, 10_000, sensitivity)

    def paper_sensitivity(self, alpha):
        """Return the larger bound of Theorem 4.1, that of x."""
        return 4 * self.radius * 3 * self.clip / 10_000


EXPERIMENTS = (
    Experiment("classification SP", 500, 5, 1, 1, 0.5),
    Experiment("classification EO", 500, 5, 1, 1, 0.5, n_labels=2),
    Experiment("regression", 1000, 10, 1 / math.sqrt(2), math.sqrt(2), 1 / math.sqrt(2), 50, 2),
    Experiment("representation", 500, 10, 2, math.sqrt(2), 2, 50, 2),
    Generation(),
)


def limit_mu(multiplier, rate, n_steps):
    """Return mu of the central limit of Dong, Roth and Su, "Gaussian differential privacy", 5.2."""
    u = 1 / multiplier
    variance = math.exp(u * u) * ndtr(1.5 * u) + 3 * ndtr(-0.5 * u) - 2
    return rate * math.sqrt(2 * n_steps * variance)


@functools.cache
def paper_multipliers(epsilon, delta, rate, n_steps):
    """Return the noise multipliers of the paper's central limit, and of Renyi accounting."""
    mu = 1 / gaussian_sigma(epsilon, delta)
    clt = brentq(lambda s: limit_mu(s, rate, n_steps) - mu, 0.3, 1e3)
    plan = {"sampling_rate": rate, "n_steps": n_steps}
    return clt, calibrate_noise_multiplier(epsilon, delta, accountant="rdp", **plan)


def compare(experiment, epsilon, alpha):
    """Return one row of the table."""
    delta = 0.1 / experiment.n_records
    ours, centered = (
        StratifiedGaussianMechanism(
            list(experiment.strata(alpha, radius)),
            epsilon=epsilon,
            delta=delta,
            n_releases=experiment.n_steps,
        )
        for radius in (experiment.radius, experiment.centered_radius)
    )
    multipliers = paper_multipliers(epsilon, delta, ours.worst.rate, experiment.n_steps)
    clt, rdp = (experiment.paper_sensitivity(alpha) * m for m in multipliers)
    return {
        "experiment": experiment.name,
        "T": experiment.n_steps,
        "epsilon": epsilon,
        "alpha": alpha,
        "ours": ours.noise_scale,
        "centered": centered.noise_scale,
        "paper CLT": clt,
        "paper RDP": rdp,
        "ours / CLT": ours.noise_scale / clt,
        "ours / RDP": ours.noise_scale / rdp,
        "centered / CLT": centered.noise_scale / clt,
    }


def main():
    """Compute, print and store the table."""
    argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    ).parse_args()
    rows = [
        compare(experiment, epsilon, alpha)
        for experiment in EXPERIMENTS
        for epsilon in EPSILONS
        for alpha in (ALPHAS if isinstance(experiment, Experiment) else (1.0,))
    ]
    missed = [
        f"{row['experiment']}, epsilon {row['epsilon']:g}: {ratio} = {row[ratio]:.4f} > {target}"
        for row in rows
        for ratio, target in TARGETS.items()
        if row["alpha"] == 1 and row[ratio] > target
    ]
    record("noise", rows, meta={"targets of the Wasserstein part": TARGETS, "missed": missed})
    print("Targets missed:", *(missed or ["none"]), sep="\n  ")


if __name__ == "__main__":
    main()
