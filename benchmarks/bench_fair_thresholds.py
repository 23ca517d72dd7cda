"""The cheapest way to parity: private logistic regression, and a threshold for each group.

On the simulated records of ``bench_fair.py``. Thresholds are chosen by histograms of scores, by
group and label, with Gaussian noise. Unlike a fair model, predictions need to know the group.
"""

import argparse
import time

import numpy as np
import pandas as pd
import torch
from _common import record
from bench_fair import EPSILONS, TEST, TRAIN

from sklearn_dpgen.accounting import gaussian_sigma
from sklearn_dpgen.metrics import disparate_impact, equalized_odds_ratios
from sklearn_dpgen.nn import Training
from sklearn_dpgen.sliced import DPSlicedWassersteinFairClassifier

N_BINS = 50


def noisy_histograms(scores, labels, groups, epsilon, delta, rng):
    """Return counts of scores by group, label and bin, with Gaussian noise.

    A replaced record leaves one count and enters another: the l2 sensitivity is sqrt(2).
    """
    bins = np.minimum((scores * N_BINS).astype(int), N_BINS - 1)
    counts = np.zeros((2, 2, N_BINS))
    np.add.at(counts, (groups, labels, bins), 1)
    sigma = gaussian_sigma(epsilon, delta, np.sqrt(2))
    return np.maximum(counts + sigma * rng.normal(size=counts.shape), 0)


def parity_thresholds(counts):
    """Return the bins from which each group is accepted: equal rates, the most accurate of them."""
    by_group = counts.sum(axis=1)
    above = by_group[:, ::-1].cumsum(axis=1)[:, ::-1] / by_group.sum(axis=1, keepdims=True)
    candidates = []
    for rate in np.linspace(0.02, 0.98, 97):
        cuts = [int(np.abs(rates - rate).argmin()) for rates in above]
        candidates.append((_correct(counts, cuts), cuts))
    return max(candidates)[1]


def odds_thresholds(counts, weight=2.0):
    """Return the bins that trade accuracy against the gaps of both error rates."""
    above = counts[..., ::-1].cumsum(axis=2)[..., ::-1] / counts.sum(axis=2, keepdims=True)
    candidates = []
    for first in range(N_BINS):
        for second in range(N_BINS):
            gap = np.abs(above[0, :, first] - above[1, :, second]).sum()
            score = _correct(counts, (first, second)) - weight * gap
            candidates.append((score, (first, second)))
    return max(candidates)[1]


def decide(scores, groups, cuts):
    """Return decisions by the threshold of each group."""
    return (scores >= np.asarray(cuts)[groups] / N_BINS).astype(int)


def _correct(counts, cuts):
    """Return the share of records that are decided as they are labelled."""
    kept = sum(c[1, cut:].sum() + c[0, :cut].sum() for c, cut in zip(counts, cuts, strict=True))
    return kept / counts.sum()


def threshold_groups(seeds):
    """Return what private logistic regression with a threshold for each group gives.

    Four fifths of epsilon are for the regression, the rest for histograms; delta is spent twice.
    """
    found = []
    for epsilon in EPSILONS:
        for seed in range(seeds):
            start = time.perf_counter()
            model = DPSlicedWassersteinFairClassifier(
                0.0,
                classes=[0, 1],
                epsilon=0.8 * epsilon,
                training=Training(hidden_layer_sizes=(), learning_rate=0.02),
                random_state=seed,
            ).fit(TRAIN.X, TRAIN.y)
            scores = [model.predict_proba(data.X)[:, 1] for data in (TRAIN, TEST)]
            counts = noisy_histograms(
                scores[0],
                TRAIN.y,
                TRAIN.sensitive,
                0.2 * epsilon,
                0.1 / len(TRAIN.X),
                np.random.default_rng(seed),
            )
            for penalty, cuts in (
                ("none", [N_BINS // 2] * 2),
                ("demographic_parity", parity_thresholds(counts)),
                ("equalized_odds", odds_thresholds(counts)),
            ):
                row = {"penalty": penalty, "epsilon": epsilon}
                row |= measures(decide(scores[1], TEST.sensitive, cuts))
                found.append(row | {"seconds": time.perf_counter() - start})
            print(pd.DataFrame(found[-3:]).round(4).to_string(), flush=True)
    groups = pd.DataFrame(found).groupby(["penalty", "epsilon"], sort=False)
    means, spreads = groups.mean(), groups.std()
    return [
        {"penalty": penalty, "epsilon": epsilon, "seeds": seeds}
        | {name: float(mean[name]) for name in mean.index}
        | {f"sd of {name}": float(spreads.loc[penalty, epsilon][name]) for name in mean.index[:-1]}
        for (penalty, epsilon), mean in means.iterrows()
    ]


def measures(predicted):
    odds = equalized_odds_ratios(TEST.y, predicted, sensitive_features=TEST.sensitive)
    return {
        "accuracy": float((predicted == TEST.y).mean()),
        "DI": float(disparate_impact(TEST.y, predicted, sensitive_features=TEST.sensitive)),
        "EO_0": float(odds[0]),
        "EO_1": float(odds[1]),
    }


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seeds", type=int, default=3)
    args = parser.parse_args()
    torch.set_num_threads(1)
    record("fair_thresholds", threshold_groups(args.seeds), {"n": len(TRAIN.X)})


if __name__ == "__main__":
    main()
