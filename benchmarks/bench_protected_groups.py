"""What it costs to protect the groups of records in a penalty: noise, and Adult by sex.

Noise: that of a step and its sensitivity, in units of one over the batch size, with and without
``protect_groups``, for two groups by their shares, from plans alone. Adult: accuracy and the ratio
of the rates of positive decisions on a 30 % test split, with the defaults but for alpha. Nothing is
chosen on the test rows.
"""

import argparse
import itertools
import warnings

import numpy as np
from _common import record
from bench_fair_real import encoded, split

from sklearn_dpgen.datasets import fetch_adult
from sklearn_dpgen.exceptions import NoisyGradientsWarning
from sklearn_dpgen.metrics import disparate_impact
from sklearn_dpgen.sliced import (
    DPSlicedWassersteinFairClassifier,
    DPSlicedWassersteinFairEncoder,
    DPSlicedWassersteinFairRegressor,
)

SHARES = (0.5, 0.1, 0.02)
ALPHAS = (0.5, 0.8)
ESTIMATORS = {
    "classifier": DPSlicedWassersteinFairClassifier(classes=[0, 1]),
    "classifier, odds": DPSlicedWassersteinFairClassifier(classes=[0, 1], penalty="equalized_odds"),
    "regressor": DPSlicedWassersteinFairRegressor(y_domain=(0, 1)),
    "encoder": DPSlicedWassersteinFairEncoder(),
}


def noise(n_samples=10_000):
    """Return the sensitivity of a step times its batch size, and its noise multiplier."""
    rows = []
    for (name, estimator), share in itertools.product(ESTIMATORS.items(), SHARES):
        small = round(share * n_samples)
        sizes = [small, n_samples - small]
        if "odds" in name:
            sizes = [[size // 2, size // 2] for size in sizes]
        row = {"estimator": name, "smaller share": share}
        for protects in (False, True):
            estimator.set_params(groups=["a", "b"], protect_groups=protects)
            public = {} if protects else {"group_sizes": sizes}
            with warnings.catch_warnings():
                warnings.simplefilter("ignore", NoisyGradientsWarning)
                report = estimator.plan(n_samples, 10, **public)
            which = "protected" if protects else "public"
            row[f"{which}: sensitivity"] = report.sensitivity * n_samples / 5
            row[f"{which}: multiplier"] = report.noise_multiplier
            row[f"{which}: noise"] = report.noise_scale * n_samples / 5
        row["ratio"] = row["protected: noise"] / row["public: noise"]
        rows.append(row)
    return rows


def adult(seeds):
    data = fetch_adult()
    X = encoded(data.frame, data.schema, {"income", "sex", "fnlwgt"})
    y = (data.frame["income"] == ">50K").to_numpy().astype(int)
    sex = data.frame["sex"].to_numpy()
    rows = []
    for alpha, protects, epsilon in itertools.product(ALPHAS, (False, True), (1.0, np.inf)):
        found = []
        for seed in range(seeds):
            X_fit, X_test, y_fit, y_test, sex_fit, sex_test = split(seed, X, y, sex)
            model = DPSlicedWassersteinFairClassifier(
                alpha,
                epsilon=epsilon,
                classes=[0, 1],
                groups=sorted(set(data.schema["sex"].categories)),
                protect_groups=protects,
                random_state=seed,
            ).fit(X_fit, y_fit, sensitive_features=sex_fit)
            decided = model.predict(X_test)
            ratio = disparate_impact(y_test, decided, sensitive_features=sex_test)
            found.append(((decided == y_test).mean(), min(ratio, 1 / ratio)))
        means, deviations = np.mean(found, axis=0), np.std(found, axis=0, ddof=1)
        rows.append(
            {
                "alpha": alpha,
                "epsilon": epsilon,
                "protect_groups": protects,
                "accuracy": float(means[0]),
                "± accuracy": float(deviations[0]),
                "ratio": float(means[1]),
                "± ratio": float(deviations[1]),
            }
        )
        print(rows[-1], flush=True)
    return rows


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--seeds", type=int, default=3)
    args = parser.parse_args()
    meta = {"n_samples of the plans": 10_000, "seeds": args.seeds, "test share": 0.3}
    record("protected_groups", noise() + adult(args.seeds), meta)


if __name__ == "__main__":
    main()
