"""The smoothed sliced Wasserstein distance: the paper's toy, and what orthogonal directions save.

Toy: N(0, I) against N(c 1, I) in five dimensions, plain and with noise of scale 1 and 3 on the
projections; the limit of all three is c. Directions: variance of the squared distance of two
Gaussians over the draw of the directions, from its closed form along each of them, so that no
sample adds to it; noise multipliers of one release at the same budget; and the total variance with
samples and noise.
"""

import argparse
import math

import matplotlib.pyplot as plt
import numpy as np
import torch
from _common import record

from sklearn_dpgen.accounting import ProjectionLaw, calibrate_noise_multiplier
from sklearn_dpgen.ot import noisy_projected_wasserstein, random_directions, sliced_wasserstein

DTYPE = torch.float64
D_TOY, N_TOY, K_TOY = 5, 5000, 50
SHIFTS = np.linspace(0, 1, 11)
SIGMAS = (0.0, 1.0, 3.0)
KINDS = ("orthogonal", "independent")
DIMENSIONS = (5, 20, 100)
# Directions a dimension; d/2 is rounded down.
SHARES = (0.5, 1, 2, 10)
BUDGET = (5.0, 1e-5)


def normal(*shape, generator):
    return torch.randn(*shape, generator=generator, dtype=DTYPE)


def toy(repeat):
    """Return one row for each noise scale and shift, with mean and spread of the distance."""
    values = {}
    for seed in range(repeat):
        generator = torch.Generator().manual_seed(seed)
        theta = random_directions(K_TOY, D_TOY, generator=generator, dtype=DTYPE)
        X, Y = (normal(N_TOY, D_TOY, generator=generator) for _ in range(2))
        noise = [normal(N_TOY, K_TOY, generator=generator) for _ in range(2)]
        for c in SHIFTS:
            for sigma in SIGMAS:
                if sigma == 0:
                    value = sliced_wasserstein(X, Y + c, directions=theta)
                else:
                    value = noisy_projected_wasserstein(
                        X, Y + c, theta, *(sigma * v for v in noise)
                    )
                values.setdefault((sigma, c), []).append(math.sqrt(value.item()))
    return [
        {
            "case": "toy",
            "sigma": sigma,
            "c": round(float(c), 3),
            "SW_mean": float(np.mean(found)),
            "SW_std": float(np.std(found, ddof=1)),
        }
        for (sigma, c), found in sorted(values.items())
    ]


def gaussians(law, d):
    """Return the difference of the means and the two variances along the axes."""
    if law == "mean":
        return np.ones(d) / math.sqrt(d), np.ones(d), np.ones(d)
    spread = np.geomspace(10, 0.1, d)
    return np.zeros(d), spread, spread[::-1]


def compared(found):
    """Return variances by kind, their ratio, and its standard error."""
    variance = {kind: float(values.var(ddof=1)) for kind, values in found.items()}
    ratio = variance["orthogonal"] / variance["independent"]
    squares = [(values - values.mean()) ** 2 for values in found.values()]
    relative = [s.std() / s.mean() / math.sqrt(len(s)) for s in squares]
    return {
        **{f"variance_{kind}": variance[kind] for kind in KINDS},
        "ratio": ratio,
        "ratio_error": ratio * math.hypot(*relative),
    }


def population_values(law, d, k, kind, n_draws, sigma=0.0):
    """Return the sliced W_2^2 of two Gaussians for many draws of the directions."""
    shift, first, second = map(torch.tensor, (v.copy() for v in gaussians(law, d)))
    generator, values = torch.Generator().manual_seed(0), []
    for _ in range(n_draws):
        theta = random_directions(k, d, kind=kind, generator=generator, dtype=DTYPE)
        square = theta.square()
        gap = (square @ first + sigma**2).sqrt() - (square @ second + sigma**2).sqrt()
        values.append(((theta @ shift).square() + gap.square()).mean().item())
    return np.array(values)


def sampled_values(law, d, k, kind, n_draws, *, n, sigma):
    """Return the smoothed sliced W_2^2 of samples, everything drawn anew each time."""
    shift, first, second = map(torch.tensor, (v.copy() for v in gaussians(law, d)))
    generator, values = torch.Generator().manual_seed(1), []
    for _ in range(n_draws):
        theta = random_directions(k, d, kind=kind, generator=generator, dtype=DTYPE)
        X = first.sqrt() * normal(n, d, generator=generator)
        Y = shift + second.sqrt() * normal(n, d, generator=generator)
        noise = (sigma * normal(n, k, generator=generator) for _ in range(2))
        values.append(noisy_projected_wasserstein(X, Y, theta, *noise).item())
    return np.array(values)


def directions(n_draws):
    """Return one row for each pair of laws, dimension and number of directions."""
    rows = []
    for d in DIMENSIONS:
        for share in SHARES:
            k = int(share * d)
            noise = {
                kind: calibrate_noise_multiplier(*BUDGET, projections=ProjectionLaw(d, k, kind))
                for kind in KINDS
            }
            for law in ("mean", "covariance"):
                found = {kind: population_values(law, d, k, kind, n_draws) for kind in KINDS}
                rows.append(
                    {
                        "case": "directions",
                        "differ_in": law,
                        "d": d,
                        "k": k,
                        "SW2_mean": float(found["independent"].mean()),
                        **compared(found),
                        "noise_ratio": noise["orthogonal"] / noise["independent"],
                    }
                )
    return rows


def totals(n_draws):
    """Return variances with samples of 500 and noise of scale 1 on both sides."""
    rows = []
    for law in ("mean", "covariance"):
        for d, k in ((5, 5), (20, 10), (20, 20), (20, 200)):
            plan = {"n": 500, "sigma": 1.0}
            found = {kind: sampled_values(law, d, k, kind, n_draws, **plan) for kind in KINDS}
            rows.append(
                {
                    "case": "with samples",
                    "differ_in": law,
                    "d": d,
                    "k": k,
                    **plan,
                    **compared(found),
                }
            )
    return rows


def draw_toy(rows, path):
    """Draw the distances over the shift of the means."""
    figure, ax = plt.subplots(figsize=(5.2, 3.8))
    ax.plot(SHIFTS, SHIFTS, ":", color="0.5", label="limit: c")
    for sigma in SIGMAS:
        line = [r for r in rows if r["sigma"] == sigma]
        mean, std = (np.array([r[key] for r in line]) for key in ("SW_mean", "SW_std"))
        label = f"smoothed, σ = {sigma:g}" if sigma else "sliced, no noise"
        (curve,) = ax.plot(SHIFTS, mean, "o-", markersize=4, label=label)
        ax.fill_between(SHIFTS, mean - std, mean + std, color=curve.get_color(), alpha=0.2, lw=0)
    ax.set(
        xlabel="c: N(0, I) against N(c 1, I) in R⁵",
        ylabel="sliced W2",
        xlim=(0, 1),
        ylim=(0, None),
    )
    ax.legend(frameon=False, loc="upper left")
    _finish(figure, [ax], path)


def draw_directions(rows, path):
    """Draw what orthogonal directions leave of the variance, and of the noise."""
    figure, axes = plt.subplots(1, 3, figsize=(11, 3.6), sharex=True)
    panels = (
        ("mean", "ratio", "variance: shift of the mean"),
        ("covariance", "ratio", "variance: other covariance"),
        ("mean", "noise_ratio", f"noise for ε = {BUDGET[0]:g}, δ = {BUDGET[1]:g}"),
    )
    for ax, (law, key, title) in zip(axes, panels, strict=True):
        for d, marker in zip(DIMENSIONS, "os^", strict=True):
            line = [r for r in rows if r["differ_in"] == law and r["d"] == d]
            share = [r["k"] / d for r in line]
            error = [r["ratio_error"] for r in line] if key == "ratio" else None
            style = {"fmt": marker + "-", "markersize": 5, "capsize": 3}
            ax.errorbar(share, [r[key] for r in line], error, label=f"d = {d}", **style)
        ax.axhline(1, color="0.5", linestyle=":")
        ax.set(xscale="log", xlabel="k / d", title=title, ylim=(-0.03, 1.25))
        ax.set_xticks(SHARES, [f"{share:g}" for share in SHARES])
        ax.minorticks_off()
    axes[0].set_ylabel("orthogonal over independent")
    axes[2].legend(frameon=False, loc="lower right")
    _finish(figure, axes, path)


def _finish(figure, axes, path):
    for ax in axes:
        ax.spines[["top", "right"]].set_visible(False)
    figure.tight_layout()
    figure.savefig(path, dpi=110)


def main():
    """Run all parts; print and store the tables, draw the figures."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--repeat", type=int, default=20, help="samples of the toy")
    parser.add_argument("--draws", type=int, default=2000, help="draws of the directions")
    parser.add_argument("--figures", default="doc/images")
    args = parser.parse_args()
    torch.set_num_threads(1)
    rows, blocks = toy(args.repeat), directions(args.draws)
    meta = {"repeat": args.repeat, "draws": args.draws, "n_toy": N_TOY, "k_toy": K_TOY}
    record("smoothed", rows + blocks + totals(args.draws // 4), meta=meta)
    draw_toy(rows, f"{args.figures}/smoothed_toy.png")
    draw_directions(blocks, f"{args.figures}/smoothed_directions.png")


if __name__ == "__main__":
    main()
