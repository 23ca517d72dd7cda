"""The listings of the paper beside one another, its bounds, and a picture of the steps."""

import math
import time

import matplotlib.pyplot as plt
import numpy as np
import ot
from _evolution_runs import DELTA, EPSILON, Start, draw, evolution, fit, mean_error, on_grid, w1
from scipy.spatial import KDTree
from scipy.stats import norm

from sklearn_dpgen.accounting import gaussian_sigma
from sklearn_dpgen.domains import Ball
from sklearn_dpgen.evolution import EuclideanVariation, theory_parameters, variation_contraction
from sklearn_dpgen.evolution._theory import (
    contraction_rate,
    convergence_bound,
    sampling_bound,
    signed_measure_bound,
    step_error_bound,
    thresholded_laplace_bound,
)
from sklearn_dpgen.evolution._weight_projections import project_bounded_lipschitz
from sklearn_dpgen.moments import MomentSampler

__all__ = [
    "draw_steps",
    "measure_algorithms",
    "measure_bounds",
    "measure_certificate",
    "measure_rates",
    "measure_cheap",
    "measure_shift",
    "measure_steps",
]

DISC = Ball(1.0, n_features=2)
# How the last population compares: 1000 records of whatever can be drawn from.
N_DRAWN = 1000


def weighted(sampler):
    """Return the points and weights that a fit ends with."""
    return sampler.candidates_[0], sampler.weights_[0]


def drawn(sampler):
    """Return as many records as an empirical law needs."""
    return sampler.sample(N_DRAWN, random_state=0), None


def marginals(X, seed):
    """Return a product law of two noisy histograms, that share one budget."""
    rng, n = np.random.default_rng(seed), len(X)
    noise = gaussian_sigma(EPSILON, DELTA, 2.0)
    n_bins = max(5, round((n / noise) ** (2 / 3)))
    edges = np.linspace(-1, 1, n_bins + 1)
    middles = (edges[1:] + edges[:-1]) / 2
    laws = []
    for column in X.T:
        counts = np.histogram(column, edges)[0] + noise * rng.normal(size=n_bins)
        shares = counts / n - (counts.sum() / n - 1) / n_bins
        laws.append(project_bounded_lipschitz(middles[:, None], shares))
    points = np.stack(np.meshgrid(middles, middles, indexing="ij"), axis=-1).reshape(-1, 2)
    weights = np.outer(*laws).ravel()
    kept = weights > 1e-12
    return DISC.project(points[kept]), weights[kept]


def errors_of(name, sampler, runs, *, n, shape):
    """Return the row of one method."""
    found, sizes, start = [], [], time.process_time()
    for run in range(runs):
        X = draw(shape, n, 2, np.random.default_rng(run))
        if sampler is None:
            points, weights = marginals(X, run)
        else:
            fit(sampler, X, run)
            points, weights = (weighted if hasattr(sampler, "candidates_") else drawn)(sampler)
        found.append(w1(X, points, weights))
        sizes.append(len(points))
    row = {"shape": shape, "n": n, "method": name, "points": float(np.mean(sizes))}
    row |= mean_error(found) | {"seconds": (time.process_time() - start) / runs}
    print(row, flush=True)
    return row


CHEAP = {
    "Algorithm 5, one histogram": on_grid(),
    "annealed (default)": evolution("annealed"),
    "noisy moments": MomentSampler(EPSILON, DELTA, domain=DISC),
    "two noisy marginals": None,
}


def measure_algorithms(runs):
    """Return errors of all listings, of our default, and of what is cheaper."""
    noise = theory_parameters(1000, 2, 2.0, EPSILON, DELTA).noise
    as_printed = {"variant": "theory", "postprocess": "threshold", "threshold": 3 * noise}
    methods = {
        "Algorithm 1, B = 1, H = 3 σ": evolution("theory", **as_printed),
        "Algorithm 1, B = 10, H = 3 σ": evolution("theory", **as_printed, multiplicity=10),
        "Algorithm 2": evolution("theory", postprocess="bounded_lipschitz"),
        "Algorithm 3, H = 0": evolution("theory"),
        "Algorithm 3, H = 3 σ": evolution("theory", threshold=3 * noise),
    }
    shared = {"n": 1000, "shape": "quadrant"}
    return [errors_of(*method, runs, **shared) for method in (methods | CHEAP).items()]


def measure_cheap(runs):
    """Return errors of the default and of what is cheaper, for other shapes and sizes."""
    cases = [("quadrant", 5000), ("clusters", 1000), ("clusters", 5000), ("curve", 1000)]
    return [
        errors_of(*method, runs, n=n, shape=shape) for shape, n in cases for method in CHEAP.items()
    ]


def measure_shift(runs):
    """Return errors of one histogram as printed, and with its votes shifted to the public sum."""
    rows = []
    for d in (1, 2, 3):
        for shape in ("quadrant", "clusters", "curve", "ball 1"):
            values = {"as printed": [], "shifted": []}
            for run in range(runs):
                X = draw(shape, 1000, d, np.random.default_rng(run))
                ((votes,),) = fit(on_grid(d), X, run).history_
                printed = project_bounded_lipschitz(votes.candidates, votes.votes / 1000)
                values["as printed"].append(w1(X, votes.candidates, printed))
                values["shifted"].append(w1(X, votes.candidates, votes.weights))
            gain = np.subtract(values["as printed"], values["shifted"])
            means = {name: float(np.mean(found)) for name, found in values.items()}
            error = float(gain.std(ddof=1) / math.sqrt(runs)) / means["as printed"]
            row = {"d": d, "shape": shape} | means
            share = float(gain.mean()) / means["as printed"]
            rows.append(row | {"gain": share, "error": error, "runs": runs})
    return rows


def measure_bounds(runs):
    """Return the bounds of the theorems, in diameters, and the contraction that is measured."""
    rows = []
    for d in (1, 2, 3):
        for n in (10**3, 10**4, 10**6, 10**9, 10**12):
            p = theory_parameters(n, d, 2.0, EPSILON, min(DELTA, 0.1 / n))
            row = {"d": d, "n": n}
            for kind in ("printed", "chained"):
                args = (p.noise, p.resolution, p.n_samples, 2 * len(p.degrees) + 1, d, 2.0)
                step = step_error_bound(*args, complexity=kind)
                options = {"contraction": p.contraction, "step_error": step}
                row[f"Theorem 4.1, {kind}"] = convergence_bound(2.0, p.n_iter, **options) / 2
                row[f"err, {kind}"] = step / p.contraction / 2
            m = max(1, round(n ** (1 if d > 1 else 2 / 3)) // 5)
            cell = 2 * math.sqrt(d) * m ** (-1 / d)
            noise = math.sqrt(2) * gaussian_sigma(EPSILON, min(DELTA, 0.1 / n)) / n
            row["Theorem I.1"] = signed_measure_bound(noise, m, cell, d, 2.0) / 2
            rows.append(row)
    for d in (1, 2, 5, 10):
        ball = Ball(1.0, n_features=d)
        p = theory_parameters(1000, d, 2.0, EPSILON, DELTA)
        points = ball.sample(50, np.random.default_rng(0))
        found = variation_contraction(
            EuclideanVariation(ball), points, np.repeat(p.degrees, 2), random_state=0
        )
        far = found.distances[found.distances >= p.resolution]
        gamma = found.gamma(p.resolution) if len(far) else math.nan
        row = {"d": d, "alpha": p.resolution, "v": found.n_variations}
        rows.append(row | {"Lemma E.1": contraction_rate(d), "measured": gamma})
    places = {"one point": [1.0], "100 points": [0.01] * 100, "1000 points": [0.001] * 1000}
    for name, shares in places.items():
        bound = thresholded_laplace_bound(shares, 1000, EPSILON, DELTA, 2, 2.0) / 2
        rows.append({"votes": name, "Proposition 4.1": bound})
    rows.append({"draws": 1000, "Lemma E.5, ours": sampling_bound(1000, 2, 2.0) / 2})
    return rows


SHARES = (0.02, 0.05, 0.1, 0.2)
LEVEL = 0.95
# The largest of this many draws of the noise exceeds another one with probability 0.975.
N_DRAWS = 39


def transport(V, difference):
    """Return W1 of two measures on points by their difference, which is shifted to sum 0."""
    difference = difference - difference.mean()
    more, fewer = difference.clip(0), (-difference).clip(0)
    i, j, mass = more > 0, fewer > 0, more.sum()
    if mass == 0:
        return 0.0
    costs = ot.dist(V[i], V[j], metric="euclidean")
    return mass * ot.emd2(more[i] / mass, fewer[j] / fewer.sum(), costs, numItermax=10**9)


def cell_radii(V, d):
    """Return bounds on the distance of a point of the unit ball to the candidate it is nearest to.

    A cube of the grid is covered from its middle by half of its diagonal.
    """
    axis = (np.arange(n := {1: 2000, 2: 200, 3: 40}[d]) + 0.5) * 2 / n - 1
    grid = np.stack(np.meshgrid(*[axis] * d, indexing="ij"), axis=-1).reshape(-1, d)
    half = math.sqrt(d) / n
    grid = grid[np.linalg.norm(grid, axis=1) <= 1 + half]
    radii = np.zeros(len(V))
    for chunk in np.array_split(grid, max(1, len(grid) * len(V) // 10**7)):
        distances = ot.dist(chunk, V, metric="euclidean")
        near = distances <= distances.min(axis=1, keepdims=True) + 2 * half
        radii = np.maximum(radii, np.where(near, distances, 0).max(axis=0) + half)
    return radii


def other_bounds(X, sampler, noise, d, rng):
    """Return what bounds W1 instead of a noisy W1: by cells for free, and by Proposition 5.1.

    The votes of the last step bound W1 of the exact votes and the result, at level 0.975: W1 of the
    noisy votes and the result, and the largest of 39 draws of their noise. The mean distance q to
    the nearest candidate is bounded at level 0.975 too: by the noisy votes and the radii of the
    cells, or by a release of q at a share of 0.05, whose sensitivity is the radius of the ball and
    the least norm of a candidate.
    """
    n, last = len(X), sampler.history_[-1][0]
    V, shares, sd = last.candidates, last.votes / len(X), noise[-1] / len(X)
    draws = [transport(V, sd * rng.normal(size=len(V))) for _ in range(N_DRAWS)]
    votes = transport(V, shares - last.weights) + max(draws)
    radii = cell_radii(V, d)
    mean, z = radii.mean(), norm.ppf((1 + LEVEL) / 2)
    free = (radii - mean) @ shares + mean + z * sd * np.linalg.norm(radii - mean)
    q = ot.dist(X, V, metric="euclidean").min(axis=1).mean()
    farthest = min(2.0, 1 + np.linalg.norm(V, axis=1).min())
    # Of all releases together the multiplier is that of one with a share of 1.
    scale = farthest * sampler.noise_multiplier_ / math.sqrt(0.05) / n
    return free + votes, q + scale * rng.normal() + z * scale + votes, q


def measure_certificate(runs):
    """Return confidence bounds on W1 by the share of the budget, beside those by other means."""
    rows = []
    cases = [(s, d, n) for s in ("clusters", "curve") for d in (1, 2, 3) for n in (1000, 5000)]
    cases += [(s, d, n) for s in ("quadrant", "ball 1") for d in (1, 2, 3) for n in (1000, 5000)]
    for shape, d, n in cases:
        found = {}
        for run in range(runs):
            X, rng = draw(shape, n, d, np.random.default_rng(run)), np.random.default_rng(run)
            for share in (0.0, *SHARES):
                sampler = fit(evolution("annealed", d, votes__distance_share=share), X, run)
                distance = w1(X, *weighted(sampler))
                found.setdefault(f"W1, {share}", []).append(distance)
                if share:
                    bound = sampler.distance_bound(LEVEL)
                    found.setdefault(f"bound, {share}", []).append(bound)
                    found.setdefault(f"held, {share}", []).append(bound >= distance)
                if share == 0.05:
                    noise = list(sampler.privacy_.noise_scale.values())[:-1]
                    free, nearest, q = other_bounds(X, sampler, noise, d, rng)
                    V, w = weighted(sampler)
                    costs = ot.dist(X, V[w > 0], metric="euclidean")
                    mass = np.bincount(costs.argmin(axis=1), minlength=(w > 0).sum()) / n
                    by_votes = costs.min(axis=1).mean() + transport(V[w > 0], mass - w[w > 0])
                    found.setdefault("q", []).append(q)
                    found.setdefault("free, by cells", []).append(free)
                    found.setdefault("Proposition 5.1, 0.05", []).append(nearest)
                    found.setdefault("q and votes", []).append(by_votes)
                    # A stop that knows the distance after each step.
                    steps = [w1(X, v.candidates, v.weights) for (v,) in sampler.history_]
                    found.setdefault("best step", []).append(min(steps))
                    found.setdefault("last is best", []).append(np.argmin(steps) + 1 == len(steps))
        row = {"shape": shape, "d": d, "n": n}
        row |= {name: float(np.mean(values)) for name, values in found.items()}
        spread = float(np.std(found["bound, 0.05"], ddof=1))
        rows.append(row | {"standard deviation of the bound, 0.05": spread, "runs": runs})
        print(rows[-1], flush=True)
    return rows


def nearest_distance(X, V, weights):
    """Return q + W1(h, w) of records and weighted points: between W1 and three times W1.

    q is the mean distance to the nearest point of positive weight, and h are the votes for these.
    By the triangle inequality W1 <= q + W1(h, w), and W1(h, w) <= q + W1, with q <= W1.
    """
    V, weights = V[weights > 0], weights[weights > 0]
    distances, nearest = KDTree(V).query(X)
    votes = np.bincount(nearest, minlength=len(V)) / len(X)
    return float(distances.mean()) + transport(V, votes - weights / weights.sum())


def measure_rates(runs):
    """Return errors against the number of records in each dimension, and slopes of logarithms."""
    rows = []
    sizes = (10**3, 10**4, 10**5, 10**6)
    cases = [("quadrant", d, "annealed", sizes) for d in (1, 2, 3, 4)]
    cases += [("curve", d, "annealed", sizes) for d in (2, 3)]
    cases += [("quadrant", d, "theory", (1000, 3000, 10_000)) for d in (1, 2, 3, 4)]
    for shape, d, schedule, sizes in cases:
        options = {"start": "auto"}
        if schedule == "theory":
            options["votes__postprocess"] = "bounded_lipschitz"
        found = np.empty((len(sizes), runs))
        for i, n in enumerate(sizes):
            start = time.process_time()
            for run in range(runs):
                X = draw(shape, n, d, np.random.default_rng(run))
                sampler = evolution(schedule, d, delta=min(DELTA, 0.1 / n), **options)
                found[i, run] = nearest_distance(X, *weighted(fit(sampler, X, run)))
            row = {"shape": shape, "d": d, "schedule": schedule, "n": n} | mean_error(found[i])
            rows.append(row | {"seconds": (time.process_time() - start) / runs})
            print(rows[-1], flush=True)
        slopes = np.polyfit(np.log(sizes), np.log(found), 1)[0]
        row = {"shape": shape, "d": d, "schedule": schedule, "slope": float(slopes.mean())}
        rows.append(row | {"deviation": float(slopes.std(ddof=1)), "largest n": sizes[-1]})
        print(rows[-1], flush=True)
    return rows


def one_run(schedule):
    """Return the records of one run, and what was varied and voted for at some of its steps."""
    X = draw("quadrant", 1000, 2, np.random.default_rng(0))
    source = Start(DISC.sample)
    sampler = fit(evolution(schedule, interface=source), X, 0)
    shown = [0, 1, 4, 13] if schedule == "theory" else range(sampler.n_iter_)
    return X, {step: (source.populations[step], sampler.history_[step][0]) for step in shown}


def measure_steps(runs):
    """Return errors of the populations of the run that is drawn, and of what they voted for."""
    rows = []
    for schedule in ("theory", "annealed"):
        X, steps = one_run(schedule)
        for step, (population, votes) in steps.items():
            row = {"schedule": schedule, "step": step + 1, "population": w1(X, population)}
            rows.append(row | {"votes": w1(X, votes.candidates, votes.weights)})
    return rows


def draw_steps(rows):
    """Draw figure 1: records, populations, and what was voted for."""
    figure, axes = plt.subplots(2, 4, figsize=(10, 5.2), sharex=True, sharey=True)
    for ax in axes.ravel():
        ax.set_axis_off()
    for line, schedule in zip(axes, ("theory", "annealed"), strict=True):
        X, steps = one_run(schedule)
        for ax, (step, (population, votes)) in zip(line, steps.items(), strict=False):
            ax.scatter(*X[:300].T, s=2, color="C3", label="records")
            ax.scatter(*population.T, s=8, color="C0", label="population")
            V = votes.candidates
            ax.scatter(*V.T, s=400 * votes.weights, color="C2", alpha=0.5, label="votes")
            ax.set(title=f"{schedule}, step {step + 1}", aspect="equal")
    return figure, axes[0, 0]
