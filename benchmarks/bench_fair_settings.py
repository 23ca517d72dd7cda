"""Weights, noise, batches, rates and clips of the fair classifier, mostly at epsilon = 1.

Parts: ``small``, a group of ten of 6000 simulated records, by size and with equal weights;
``race``, Adult by race, five groups; ``noise``, the AUC against the noise that is foreseen;
``batches``, a fifth of the records in 500 steps against all of them in fewer; ``clips``.
"""

import argparse
import warnings

import numpy as np
import torch
from _common import record
from sklearn.metrics import roc_auc_score
from sklearn.model_selection import train_test_split

from sklearn_dpgen.datasets import fetch_adult, make_biased_labels
from sklearn_dpgen.exceptions import NoisyGradientsWarning
from sklearn_dpgen.metrics import disparate_impact
from sklearn_dpgen.preprocessing import TabularEncoder
from sklearn_dpgen.schema import Schema
from sklearn_dpgen.sliced import DPSlicedWassersteinFairClassifier

BATCHES = (
    {"training__learning_rate": 0.02},
    {"training__learning_rate": 0.05},
    {"gradient__batch_fraction": 1.0, "training__max_iter": 100, "training__learning_rate": 0.2},
    {"gradient__batch_fraction": 1.0, "training__max_iter": 200, "training__learning_rate": 0.1},
)


def uniform(n, seed, n_small=0):
    rng = np.random.default_rng(seed)
    X = rng.uniform(-1, 1, size=(n, 4))
    y = (X @ [3, -2, 1, 0] + rng.normal(size=n) > 0).astype(int)
    return X, y, np.where(np.arange(n) < n_small, 2, rng.integers(2, size=n))


def biased(n, seed):
    data = make_biased_labels(n, random_state=seed)
    return data.X, data.y, data.sensitive


def adult(sensitive, seed):
    """Return the training part, and the test part."""
    data = fetch_adult()
    left_out = {"income", sensitive, "fnlwgt"}
    columns = {name: column for name, column in data.schema.items() if name not in left_out}
    X = TabularEncoder(Schema(columns)).fit_transform(data.frame[list(columns)])
    y = (data.frame["income"] == ">50K").to_numpy().astype(int)
    a = data.frame[sensitive].to_numpy()
    parts = train_test_split(X, y, a, test_size=0.3, random_state=seed)
    return parts[::2], parts[1::2]


def fitted(train, test, alpha, *, seed=0, epsilon=1.0, **options):
    """Return a row of what a fit gives."""
    X, y, a = train
    model = DPSlicedWassersteinFairClassifier(
        alpha, epsilon=epsilon, classes=[0, 1], random_state=seed
    ).set_params(**options)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", NoisyGradientsWarning)
        model.fit(X, y, sensitive_features=a)
    X, y, a = test
    predicted, scores = model.predict(X), model.predict_proba(X)[:, 1]
    sigma = model.privacy_.noise_scale or 0.0
    row = {"n": len(train[0]), "alpha": alpha, "epsilon": epsilon, "seed": seed}
    row |= {name.rpartition("__")[2]: value for name, value in options.items()}
    row |= {
        "sigma": sigma,
        "noise": float(sigma / np.sqrt(model.n_iter_) / (1 - alpha)),
        "AUC": float(roc_auc_score(y, scores)),
        "accuracy": float((predicted == y).mean()),
        "DI": float(disparate_impact(y, predicted, sensitive_features=a)),
    }
    print(row, flush=True)
    return row


def small():
    test = uniform(6000, 1)
    options = {"training__max_iter": 150, "training__learning_rate": 0.1}
    return [
        {"small group": n_small}
        | fitted(
            uniform(6000, 0, n_small),
            test,
            0.5,
            seed=seed,
            gradient__group_weights=weights,
            **options,
        )
        for n_small in (2000, 10)
        for weights in ("size", "equal")
        for seed in range(5)
    ]


def race():
    parts = adult("race", 0)
    return [
        fitted(*parts, alpha, gradient__group_weights=weights)
        for alpha in (0.5, 0.75)
        for weights in ("size", "equal")
    ]


def noise():
    return [
        {"table": make.__name__} | fitted(make(n, n), make(10000, 99), alpha, epsilon=epsilon)
        for make in (uniform, biased)
        for n in (300, 1000, 3000, 10000)
        for epsilon in (0.5, 1.0, 4.0, np.inf)
        for alpha in (0.0, 0.5, 0.8, 0.95)
    ]


def tables():
    yield "simulated", biased(20000, 0), biased(10000, 99), 0
    for seed in (0, 1):
        yield "adult", *adult("sex", seed), seed


def batches():
    return [
        {"table": name} | fitted(train, test, alpha, seed=seed, **options)
        for name, train, test, seed in tables()
        for alpha in (0.0, 0.75)
        for options in BATCHES
    ]


def clips():
    return [
        {"table": name} | fitted(train, test, alpha, seed=seed, gradient__jacobian_clip=clip)
        for name, train, test, seed in tables()
        for alpha in (0.5, 0.75, 0.95)
        for clip in (0.25, 0.5, 1.0)
    ]


PARTS = {part.__name__: part for part in (small, race, noise, batches, clips)}


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--part", choices=PARTS, nargs="*")
    torch.set_num_threads(1)
    for name in parser.parse_args().part or PARTS:
        record(f"fair_settings_{name}", PARTS[name](), {"adult test": 0.3})


if __name__ == "__main__":
    main()
