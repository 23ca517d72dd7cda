"""Would histograms of projections serve the generator and the adapter of paper 3 better?

A prototype that the package does not have: with a share of the budget the moments are released, and
with the rest the shares of all records in cells of their projections on k directions, as
``private_sliced_wasserstein`` does. Cells are quantiles of the normal distributions with the
released moments. What the shares add to these is shrunk octave by octave, and the generator learns
the resulting distributions on the lines; the adapter maps the source by the optimal affine map, and
then on each line of one orthonormal basis to the quantiles of the release. All rows of a setting
have one budget: replace one record, delta = 0.1 / n.

``--part generator``: tables of ``bench_deconvolution.py`` in units of their bounds. Distances to
records that were not used, columns in units of their standard deviations: the sliced W2, the mean
W1 of columns, and the total variation of pairs of columns in 10 equal cells; the AUC on them of
boosted trees that learned from the synthetic records whether the last column is above its median.
*records*, *projections* and *moments* are the releases of the estimator, *drawn moments* is
:class:`MomentSampler`, *table* :class:`TableSampler`, and the prototype has histograms of three
orthonormal bases, or of the columns. Half of the budget is for moments; that hardly matters, as
CPS1988 showed (``--part choice``).

``--part adapter``: tables of ``bench_adaptation.py --part tables`` with its four shifts, epsilon 1.
"""

import argparse
import itertools
import math
import time
import warnings

import numpy as np
import pandas as pd
import torch
from _common import record
from _shifted_tables import KINDS, load_shifted
from bench_adaptation import NETWORK, SETTINGS
from bench_deconvolution import records as load_records
from scipy.optimize import brentq
from scipy.stats import norm, wasserstein_distance
from sklearn.ensemble import HistGradientBoostingClassifier
from sklearn.metrics import roc_auc_score

from sklearn_dpgen.accounting import gaussian_sigma
from sklearn_dpgen.domains import Box
from sklearn_dpgen.domains._ball import enclosing_ball
from sklearn_dpgen.mechanisms._class_moments import price_moments
from sklearn_dpgen.metrics import sliced_wasserstein_distance
from sklearn_dpgen.moments import MomentSampler
from sklearn_dpgen.nn import Training
from sklearn_dpgen.ot import random_directions
from sklearn_dpgen.ot._lines import LineGrid, SmoothedLines
from sklearn_dpgen.schema import Numeric, Schema
from sklearn_dpgen.smoothed import (
    NoisyRelease,
    SmoothedSlicedWassersteinAdapter,
    SmoothedSlicedWassersteinGenerator,
)
from sklearn_dpgen.smoothed._histograms import cells_of, on_simplex, shrunk
from sklearn_dpgen.smoothed._releases import ReleasedLaws, _automatic_weight, _bin_masses
from sklearn_dpgen.tables import TableSampler
from sklearn_dpgen.utils._normal_laws import denoised_covariances
from sklearn_dpgen.utils._random import noise_source

TABLES = ("flights", "lending_club", "diamonds")
CHOICE_TABLES = ("cps1988", "nmes1988")
SIZES, EPSILONS = (2000, 20_000), (1.0, 5.0)
STEPS, N_FRESH, N_CELLS, N_BINS = 1000, 2000, 16, 256
# Share of the budget for moments, and orthonormal bases of directions; 0 bases are the columns.
HISTOGRAMS = {"histograms of projections": (0.5, 3), "histograms of columns": (0.5, 0)}
ADAPTER_TABLES = ("cpssw8", "default", "flights", "diamonds", "wa_churn")


def split_budget(epsilon, delta, share):
    """Return the epsilon of the moments, and the noise multiplier of the histograms."""
    whole = gaussian_sigma(epsilon, delta, 1.0)
    wanted = whole / math.sqrt(share)
    of_moments = brentq(lambda e: gaussian_sigma(e, delta, 1.0) - wanted, 1e-6, epsilon)
    return of_moments, whole / math.sqrt(1 - share)


def noisy_moments(X, ball, epsilon, delta, seed):
    """Release the moments of records, and return the mean, the covariance and the mean's noise."""
    priced = price_moments(
        ball, len(X), 1, class_sizes=[len(X)], label_proportions=None, epsilon=epsilon, delta=delta
    )
    noise = noise_source(seed, "bench_projected_histograms", X)
    found = priced.measure(X, np.zeros(len(X), dtype=np.int64), noise)
    (covariance,) = denoised_covariances(found.covariances, found.spreads)
    return found.means[0] - ball.center, covariance, float(found.mean_spreads[0])


def directions(d, blocks, seed):
    """Return blocks of an orthonormal basis in rows, the columns themselves with 0 blocks."""
    generator = torch.Generator().manual_seed(seed)
    if blocks == 0:
        return np.eye(d)
    if d == 1:
        return np.ones((1, 1))
    return random_directions(blocks * d, d, generator=generator, dtype=torch.float64).numpy()


def noisy_shares(centered, U, mean, covariance, multiplier, seed):
    """Return edges of cells, and the shares in them: of the normal law plus what was released."""
    n, k = len(centered), len(U)
    scales = np.sqrt(np.einsum("ji,ik,jk->j", U, covariance, U))
    levels = norm.ppf(np.arange(1, N_CELLS) / N_CELLS)
    edges = (U @ mean)[:, None] + scales[:, None] * levels
    cells = cells_of(centered @ U.T, edges)
    counts = np.stack([np.bincount(column, minlength=N_CELLS) for column in cells.T])
    # Another record leaves one cell of each projection, and enters another.
    scale = multiplier * math.sqrt(2 * k)
    noisy = counts + scale * np.random.default_rng(seed).standard_normal(counts.shape)
    residuals = shrunk(noisy / n - 1 / N_CELLS, scale / n)
    return edges, on_simplex(1 / N_CELLS + residuals), scales


class HistogramGenerator(SmoothedSlicedWassersteinGenerator):
    """The prototype: its laws are histograms on lines."""

    share, blocks = 0.5, 3

    def _release(self, plan, records, seed):
        X, ball, d = records[0], enclosing_ball(self.domain_), records[0].shape[1]
        seed = 0 if seed is None else seed
        delta = self._delta(len(X))
        epsilon, multiplier = split_budget(self.epsilon, delta, self.share)
        mean, covariance, _ = noisy_moments(X, ball, epsilon, delta, seed)
        U = directions(d, self.blocks, seed)
        edges, shares, scales = noisy_shares(
            X - ball.center, U, mean, covariance, multiplier, seed + 1
        )
        grid = LineGrid.around(1.0, 0.0, N_BINS)
        # More lines with the normal law: histograms alone do not tell all covariances.
        more = directions(d, max(1, 64 // d), seed + 2)
        lines = np.vstack([U, more])
        locations = lines @ mean / ball.radius
        widths = np.sqrt(np.einsum("ji,ik,jk->j", lines, covariance, lines)) / ball.radius
        counts = _bin_masses(grid, locations, widths)
        bounds = grid.step * (np.arange(N_BINS) + 0.5) - grid.reach
        for j, own in enumerate(edges / ball.radius):
            cells = np.searchsorted(own, bounds)
            mass = np.bincount(cells, weights=counts[j], minlength=N_CELLS)
            counts[j] *= np.where(mass > 0, shares[j] / mass.clip(1e-12), 0)[cells]
            for cell in np.flatnonzero((mass <= 1e-12) & (shares[j] > 0)):
                middle = own[min(cell, N_CELLS - 2)]
                counts[j, np.argmin(abs(bounds - middle))] += shares[j, cell]
        # Lines with a histogram count for as much as all others, in an order for steps on all.
        repeated = np.concatenate(
            [
                np.tile(np.arange(len(U)), -(-len(more) // len(U)))[: len(more)],
                len(U) + np.arange(len(more)),
            ]
        )
        order = np.random.default_rng(seed).permutation(repeated)
        counts = torch.as_tensor(1e5 * counts[order])[None]
        weight = _automatic_weight(d, grid.narrowest, math.inf, 1.0)
        laws = ReleasedLaws(
            SmoothedLines(grid, counts, 0.0, shape_weight=weight),
            torch.as_tensor(lines[order] / ball.radius, dtype=torch.float32),
        )
        return laws, None


def generated(method, X, epsilon, n, seed):
    """Return synthetic records of a method."""
    domain = Box(0, 1, n_features=X.shape[1])
    if method == "drawn moments":
        return MomentSampler(epsilon, domain=domain, random_state=seed).fit(X).sample(n)
    if method == "table":
        names = [f"x{j}" for j in range(X.shape[1])]
        schema = Schema({name: Numeric(0, 1) for name in names})
        sampler = TableSampler(epsilon, schema=schema, random_state=seed)
        frame = pd.DataFrame(X, columns=names)
        return sampler.fit(frame).sample(n, random_state=seed)[names].to_numpy()
    options = {"domain": domain, "random_state": seed}
    training = {"max_iter": STEPS}
    if method.startswith("histograms"):
        model = HistogramGenerator(epsilon, **options)
        settings = HISTOGRAMS.get(method) or map(float, method.split(":")[1].split(","))
        model.share, model.blocks = settings
        model.blocks = int(model.blocks)
    elif method == "projections":
        # Steps are releases here: more of them have more noise.
        training = {"max_iter": 200, "learning_rate": 0.01}
        batch = min(len(X), 512)
        release = NoisyRelease("projections", batch_size=batch)
        model = SmoothedSlicedWassersteinGenerator(epsilon, release=release, **options)
    else:
        release = NoisyRelease(method)
        model = SmoothedSlicedWassersteinGenerator(epsilon, release=release, **options)
    if method.startswith("histograms"):
        model.set_params(release=NoisyRelease("moments"))
    model.set_params(training=Training(**training))
    return model.fit(X).sample(n, random_state=seed)


def pairs(X, Y):
    edges = np.linspace(0, 1, 11)
    found = []
    for i, j in itertools.combinations(range(X.shape[1]), 2):
        tables = [np.histogram2d(Z[:, i], Z[:, j], bins=(edges, edges))[0] / len(Z) for Z in (X, Y)]
        found.append(abs(tables[0] - tables[1]).sum() / 2)
    return float(np.mean(found))


def auc(made, fresh):
    cut = np.median(fresh[:, -1])
    y, truth = made[:, -1] > cut, fresh[:, -1] > cut
    if len(np.unique(y)) < 2:
        return 0.5
    model = HistGradientBoostingClassifier(max_iter=60, random_state=0).fit(made[:, :-1], y)
    return float(roc_auc_score(truth, model.predict_proba(fresh[:, :-1])[:, 1]))


def measures(made, fresh):
    made = np.clip(np.asarray(made, dtype=np.float64), 0, 1)
    spread = fresh.std(axis=0)
    A, B = made / spread, fresh / spread
    columns = [wasserstein_distance(a, b) for a, b in zip(A.T, B.T, strict=True)]
    return {
        "sliced W2": sliced_wasserstein_distance(A, B, p=2, n_projections=200, random_state=0),
        "mean W1": float(np.mean(columns)),
        "pairs": pairs(made, fresh),
        "AUC": auc(made, fresh),
    }


def generator_rows(tables, sizes, epsilons, seeds, methods):
    """Yield mean and spread over seeds of each method."""
    for name, n, epsilon in itertools.product(tables, sizes, epsilons):
        found = {}
        for seed in range(seeds):
            X, fresh = load_records(name, seed, n)
            found.setdefault("real", []).append(measures(X, fresh) | {"seconds": 0.0})
            for method in methods:
                start = time.process_time()
                made = generated(method, X, epsilon, len(fresh), seed)
                seconds = time.process_time() - start
                found.setdefault(method, []).append(measures(made, fresh) | {"seconds": seconds})
        for method, cases in found.items():
            row = {"table": name, "columns": X.shape[1], "n": len(X), "epsilon": epsilon}
            row |= {"method": method, "seeds": seeds}
            for key in cases[0]:
                values = [case[key] for case in cases]
                row[key] = float(np.mean(values))
                if key != "seconds":
                    row[f"{key} ±"] = float(np.std(values, ddof=1)) if seeds > 1 else 0.0
            yield row


class HistogramAdapter(SmoothedSlicedWassersteinAdapter):
    """The prototype: after the affine map, each line of a basis is moved to its histogram."""

    share = 0.5

    def _release(self, plan, records, seed):
        source, labels, target, _ = records
        domain = plan.details[1]
        seed = 0 if seed is None else seed
        X, ball = self._in_domain(target, source, domain), enclosing_ball(domain)
        delta = self._delta(len(X))
        epsilon, multiplier = split_budget(self.epsilon, delta, self.share)
        mean, covariance, spread = noisy_moments(X, ball, epsilon, delta, seed)
        U = directions(X.shape[1], 1, seed)
        self._lines = (
            U,
            ball.center,
            *noisy_shares(X - ball.center, U, mean, covariance, multiplier, seed + 1),
        )
        # The network of the source, as in the estimator, on a plan without noise of its own.
        module, public, _ = super()._release(plan, records, seed)
        return module, public, (mean + ball.center, covariance, spread)

    def _adapt(self, module, source, releases, seed):
        U, center, edges, shares, scales = self._lines
        X = source[0].numpy()
        origin, units = self._units(X)
        with torch.no_grad():
            moved = (module.move(source[0]).numpy() - origin) / units - center
        projected = moved @ U.T
        steps = np.zeros_like(projected)
        for j in range(len(U)):
            line, low, high = projected[:, j], edges[j, 0], edges[j, -1]
            # Quantiles of the release: linear within a cell, one standard deviation beyond.
            knots = np.concatenate([[low - scales[j]], edges[j], [high + scales[j]]])
            below = np.concatenate([[0.0], np.cumsum(shares[j])])
            rank = (np.argsort(np.argsort(line)) + 0.5) / len(line)
            # The template of this map is the source's own shape, so what differs from it moves.
            own = np.searchsorted(np.sort(line), knots) / len(line)
            own[0], own[-1] = 0, 1
            own = np.maximum.accumulate(own + 1e-9 * np.arange(len(own)))
            below = np.maximum.accumulate(below + 1e-9 * np.arange(len(below)))
            to = np.interp(rank, below, knots)
            same = np.interp(rank, own, knots)
            steps[:, j] = to - same
        moved = origin + units * (moved + steps @ U + center)
        target = torch.as_tensor(moved)
        original, module.move = module.move, lambda _: target
        try:
            return super()._adapt(module, source, releases, seed)
        finally:
            del module.move
            assert module.move == original


def adapter_rows(tables, seeds):
    for name, kind in itertools.product(tables, KINDS):
        found = {"source": [], "moments": [], "histograms": []}
        shifts = {"moments": [], "histograms": []}
        for seed in range(seeds):
            task = load_shifted(name, kind, seed)
            X, y = task.source
            data = (
                np.concatenate([X, task.target]),
                np.concatenate([y, np.full(len(task.target), -1)]),
                np.repeat([1, -2], [len(X), len(task.target)]),
            )
            options = {"epsilon": 1.0, "random_state": seed}
            alone = SmoothedSlicedWassersteinAdapter(adaptation_weight=0.0, **options)
            found["source"].append(alone.set_params(**NETWORK).fit(*data).score(*task.test))
            for method, kind_of in (
                ("moments", SmoothedSlicedWassersteinAdapter),
                ("histograms", HistogramAdapter),
            ):
                adapter = kind_of(**options).set_params(**NETWORK, **SETTINGS["default"])
                found[method].append(adapter.fit(*data).score(*task.test))
                shifts[method].append(adapter.shift_)
        gains = 100 * np.subtract(found["histograms"], found["moments"])
        row = {"table": name, "kind": kind, "n": len(task.target), "columns": X.shape[1]}
        row |= {method: 100 * float(np.mean(values)) for method, values in found.items()}
        row["gain of histograms"] = float(np.mean(gains))
        row["±"] = float(np.std(gains, ddof=1)) if seeds > 1 else 0.0
        yield row | {f"{method} adapted by": ", ".join(of) for method, of in shifts.items()}


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--part", choices=["choice", "generator", "adapter"], default="generator")
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--tables", nargs="*")
    parser.add_argument("--sizes", type=int, nargs="*", default=SIZES)
    args = parser.parse_args()
    torch.set_num_threads(1)
    warnings.simplefilter("ignore", UserWarning)
    if args.part == "choice":
        methods = ["moments"]
        methods += [f"histograms:{s},{b}" for s in (0.25, 0.5, 0.75) for b in (0, 1, 3)]
        rows = generator_rows(args.tables or CHOICE_TABLES, (4000,), EPSILONS, args.seeds, methods)
    elif args.part == "generator":
        methods = ["drawn moments", "table", "moments", *HISTOGRAMS, "records", "projections"]
        rows = generator_rows(args.tables or TABLES, args.sizes, EPSILONS, args.seeds, methods)
    else:
        rows = adapter_rows(args.tables or ADAPTER_TABLES, args.seeds)
    done = []
    for row in rows:
        done.append(row)
        print({k: round(v, 3) if isinstance(v, float) else v for k, v in row.items()}, flush=True)
    names = {"choice": "_choice", "generator": "", "adapter": "_adapter"}
    if not args.tables:
        meta = {"seeds": args.seeds, "steps": STEPS}
        record(f"projected_histograms{names[args.part]}", done, meta)


if __name__ == "__main__":
    main()
