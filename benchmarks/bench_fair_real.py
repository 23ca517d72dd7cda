"""Fair private learning on tables: Adult (income, by sex), RAND health (visits, by poor health).

Adult: the curve of accuracy against disparate impact over alpha, at epsilon 1, 3 and infinity,
beside fairlearn's ExponentiatedGradient (not private) and private logistic regression (alpha = 0).
RAND health: visits to a physician, by self-rated poor health. A 70/30 split; mean and standard
deviation over seeds. Nothing is chosen on the test rows.

``--part barycentres``: predictions of synthetic rows as they are, moved to the barycentre, and
shrunk to their mean, on wages (RetSchool, SLID) and health insurance (HI, by race with three groups
and with two); three splits and two seeds. Wages are also moved, and shrunk, until the groups are no
farther apart than was asked for. Distances are in units of the target's range. How maps are shrunk
was chosen on simulated scores.
"""

import argparse
import copy
import itertools
import warnings
from pathlib import Path

import matplotlib.pyplot as plt
import numpy as np
import pandas as pd
from _common import record
from _fair_tables import REGRESSIONS, hi_by_race
from fairlearn.reductions import DemographicParity, ExponentiatedGradient
from sklearn.linear_model import LogisticRegression
from sklearn.metrics import r2_score, roc_auc_score
from sklearn.model_selection import train_test_split

from sklearn_dpgen.datasets import fetch_adult, load_rand_health
from sklearn_dpgen.domains import Box
from sklearn_dpgen.exceptions import SmallGroupWarning
from sklearn_dpgen.metrics import disparate_impact, group_wasserstein_distance
from sklearn_dpgen.nn import Training
from sklearn_dpgen.predictors import BarycenterClassifier, BarycenterRegressor
from sklearn_dpgen.preprocessing import TabularEncoder
from sklearn_dpgen.schema import Categorical, Schema
from sklearn_dpgen.sliced import (
    ClippedGradient,
    DPSlicedWassersteinFairClassifier,
    DPSlicedWassersteinFairRegressor,
)
from sklearn_dpgen.tables import SyntheticDataClassifier, SyntheticDataRegressor, TableSampler

IMAGES = Path(__file__).parents[1] / "doc" / "images"
ALPHAS = (0.0, 0.2, 0.4, 0.6, 0.75, 0.9)
EPSILONS = (1.0, 3.0, np.inf)
SLACKS = (0.002, 0.02, 0.05, 0.1, 0.15, 0.2)
STEP_EPSILONS = (0.5, 1.0, 3.0)
FACTORS = (0.9, 0.8, 0.7)
ASKED = (0.005, 0.01, 0.02, 0.03)


def encoded(frame, schema, left_out):
    """Return features scaled by their public bounds."""
    columns = {name: column for name, column in schema.items() if name not in left_out}
    return TabularEncoder(Schema(columns)).fit_transform(frame[list(columns)])


def split(seed, *arrays):
    return train_test_split(*arrays, test_size=0.3, random_state=seed)


def describe_classes(y, predicted, scores, a):
    return {
        "accuracy": float((predicted == y).mean()),
        "AUC": float(roc_auc_score(y, scores)),
        "DI": float(disparate_impact(y, predicted, sensitive_features=a)),
        "gap": float(group_wasserstein_distance(y, scores, sensitive_features=a)),
    }


def adult(seeds):
    data = fetch_adult()
    X = encoded(data.frame, data.schema, {"income", "sex", "fnlwgt"})
    y = (data.frame["income"] == ">50K").to_numpy().astype(int)
    a = data.frame["sex"].to_numpy()
    rows = []
    for seed in seeds:
        X_fit, X_test, y_fit, y_test, a_fit, a_test = split(seed, X, y, a)
        for epsilon in EPSILONS:
            for alpha in ALPHAS:
                model = DPSlicedWassersteinFairClassifier(
                    alpha,
                    epsilon=epsilon,
                    gradient=ClippedGradient(group_weights="equal"),
                    training=Training(hidden_layer_sizes=(), learning_rate=0.05),
                    classes=[0, 1],
                    random_state=seed,
                ).fit(X_fit, y_fit, sensitive_features=a_fit)
                scores = model.predict_proba(X_test)[:, 1]
                measures = describe_classes(y_test, model.predict(X_test), scores, a_test)
                key = {"table": "adult", "model": "ours", "epsilon": epsilon, "parameter": alpha}
                rows.append(key | {"seed": seed} | measures)
                print(rows[-1], flush=True)
        for slack in (*SLACKS, None):
            model = LogisticRegression(max_iter=2000)
            if slack is None:
                model.fit(X_fit, y_fit)
                scores = model.predict_proba(X_test)[:, 1]
                predicted = model.predict(X_test)
            else:
                model = ExponentiatedGradient(model, DemographicParity(difference_bound=slack))
                with warnings.catch_warnings():
                    warnings.simplefilter("ignore", FutureWarning)
                    model.fit(X_fit, y_fit, sensitive_features=a_fit)
                scores = model._pmf_predict(X_test)[:, 1]
                predicted = model.predict(X_test, random_state=seed)
            name = "logistic" if slack is None else "fairlearn"
            key = {"table": "adult", "model": name, "epsilon": np.inf, "parameter": slack or 0.0}
            rows.append(key | {"seed": seed} | describe_classes(y_test, predicted, scores, a_test))
            print(rows[-1], flush=True)
    return rows


def rand_health(seeds):
    data = load_rand_health()
    X = encoded(data.frame, data.schema, {"mdvis", "hlthp", "hlthf"})
    y = data.frame["mdvis"].to_numpy(dtype=float)
    poor = data.frame["hlthp"].to_numpy().astype(int)
    groups = {"rand, poor": poor, "rand, fair or poor": poor | data.frame["hlthf"].to_numpy(int)}
    rows = []
    for (table, a), seed in itertools.product(groups.items(), seeds):
        X_fit, X_test, y_fit, y_test, a_fit, a_test = split(seed, X, y, a)
        for epsilon, alpha in itertools.product(EPSILONS, ALPHAS):
            model = DPSlicedWassersteinFairRegressor(
                alpha,
                epsilon=epsilon,
                y_domain=Box(0, 24),
                training=Training(hidden_layer_sizes=(), learning_rate=0.02),
                gradient=ClippedGradient(jacobian_clip=0.1, group_weights="equal"),
                random_state=seed,
            ).fit(X_fit, y_fit, sensitive_features=a_fit)
            predicted = model.predict(X_test)
            measures = {
                "R2": float(r2_score(y_test, predicted)),
                "MAE": float(np.abs(y_test - predicted).mean()),
                "gap": float(
                    group_wasserstein_distance(y_test, predicted, sensitive_features=a_test)
                ),
                "smallest group": int(np.bincount(a_fit).min()),
            }
            key = {"table": table, "model": "ours", "epsilon": epsilon, "parameter": alpha}
            rows.append(key | {"seed": seed} | measures)
            print(rows[-1], flush=True)
    return rows


def describe_step(y, scores, a):
    """Return how unlike the groups' predictions are, and how good."""
    means = pd.Series(scores).groupby(a).mean()
    return {
        "distance": float(group_wasserstein_distance(y, scores, sensitive_features=a)),
        "means": float(means.max() - means.min()),
    }


def steps(model, X, y, a, *, scores, units, describe, asked_methods=()):
    """Yield what predictions of a fitted model are like: as they are, moved, shrunk to their mean.

    ``asked_methods`` then keep to each of the `ASKED` distances, by the counts of the same fit.
    """
    plain = scores(model.estimator_, X)
    moved = scores(model, X, sensitive_features=a)
    ways = {("none", 1.0): plain, ("barycentre", 1.0): moved}
    for factor in FACTORS:
        ways["shrunk", factor] = plain.mean() + factor * (plain - plain.mean())
    for asked, method in itertools.product(ASKED, asked_methods):
        one = copy.copy(model).set_params(max_gap=asked * units, method=method)
        one.strength_ = one._strength(one.maps_)
        ways[f"{method}, asked", asked] = scores(one, X, sensitive_features=a)
    for (name, factor), values in ways.items():
        parity = describe_step(y, values / units, a)
        yield {"model": name, "parameter": factor} | parity | describe(y, values, a)


def regressions(splits, seeds):
    rows = []
    for table, make in REGRESSIONS.items():
        task = make()
        y, a = task.frame[task.target].to_numpy(), task.frame[task.sensitive].to_numpy()
        schema = Schema({k: c for k, c in task.schema.items() if k != task.sensitive})
        X = task.frame[[name for name in schema if name != task.target]]
        target = task.schema[task.target]
        for number, epsilon, seed in itertools.product(splits, STEP_EPSILONS, seeds):
            X_fit, X_test, y_fit, y_test, a_fit, a_test = split(number, X, y, a)
            sampler = TableSampler(schema=schema, target=task.target, random_state=seed)
            model = BarycenterRegressor(
                SyntheticDataRegressor(sampler, random_state=seed),
                y_domain=(target.low, target.high),
                epsilon=epsilon,
                delta=1e-5,
                groups=np.unique(a),
                random_state=seed,
            )
            with warnings.catch_warnings():
                warnings.simplefilter("ignore", SmallGroupWarning)
                model.fit(X_fit, y_fit, sensitive_features=a_fit)
            found = steps(
                model,
                X_test,
                y_test,
                a_test,
                scores=lambda one, X, **groups: one.predict(X, **groups),
                units=target.high - target.low,
                describe=lambda y, values, _: {"R2": float(r2_score(y, values))},
                asked_methods=("barycenter", "shrink"),
            )
            key = {"table": table, "epsilon": epsilon, "seed": f"{number}, {seed}"}
            rows += [key | row for row in found]
        print(table, flush=True)
    return rows


def insurance(task, table, splits, seeds):
    rows = []
    schema = Schema({**task.schema, "label": Categorical(["no", "yes"])})
    y = np.where(task.y == 1, "yes", "no")
    for number, epsilon, seed in itertools.product(splits, STEP_EPSILONS, seeds):
        X_fit, X_test, y_fit, y_test, a_fit, a_test = split(number, task.frame, y, task.a)
        sampler = TableSampler(schema=schema, target="label", random_state=seed)
        model = BarycenterClassifier(
            SyntheticDataClassifier(sampler, random_state=seed),
            epsilon=epsilon,
            delta=task.delta,
            groups=np.unique(task.a),
            random_state=seed,
        )
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", SmallGroupWarning)
            model.fit(X_fit, y_fit, sensitive_features=a_fit)
        found = steps(
            model,
            X_test,
            y_test,
            a_test,
            scores=lambda one, X, **groups: one.predict_proba(X, **groups)[:, 1],
            units=1.0,
            describe=describe_decisions,
        )
        key = {"table": table, "epsilon": epsilon, "seed": f"{number}, {seed}"}
        rows += [key | row for row in found]
    return rows


def describe_decisions(y, scores, a):
    rates = pd.Series(scores > 0.5).groupby(a).mean()
    accuracy = float(((scores > 0.5) == (y == "yes")).mean())
    return {"DI": float(rates.min() / max(rates.max(), 1e-12)), "accuracy": accuracy}


def summarize(rows):
    """Return the mean and the standard deviation over seeds."""
    frame = pd.DataFrame(rows).drop(columns="seed")
    groups = frame.groupby(["table", "model", "epsilon", "parameter"], sort=False)
    means, spreads = groups.mean(), groups.std().add_suffix(" sd")
    return means.join(spreads).dropna(axis=1, how="all").reset_index().to_dict("records")


def plot(adult_rows, rand_rows):
    figure, (left, *others) = plt.subplots(1, 3, figsize=(13.5, 4.2), constrained_layout=True)
    styles = dict(zip(EPSILONS, ("o-", "s-", "^-"), strict=True))
    frame = pd.DataFrame(adult_rows)
    for epsilon, style in styles.items():
        part = frame[(frame["model"] == "ours") & (frame["epsilon"] == epsilon)]
        left.plot(part["DI"], part["accuracy"], style, ms=4, label=f"private, {named(epsilon)}")
    part = frame[frame["model"] == "fairlearn"]
    left.plot(part["DI"], part["accuracy"], "kx--", label="fairlearn, not private")
    part = frame[frame["model"] == "logistic"]
    left.plot(part["DI"], part["accuracy"], "k*", ms=10, label="logistic regression, not private")
    left.set(xlabel="disparate impact (1: parity)", ylabel="accuracy", title="Adult, by sex")
    left.legend(fontsize=8)
    frame = pd.DataFrame(rand_rows)
    for axis, (table, rows) in zip(others, frame.groupby("table", sort=False), strict=True):
        for epsilon, style in styles.items():
            part = rows[rows["epsilon"] == epsilon]
            axis.plot(part["gap"], part["R2"], style, ms=4, label=named(epsilon))
        size = round(rows["smallest group"].mean())
        axis.set(
            title=f"{table.replace('rand,', 'RAND,')} health ({size} records)",
            xlabel="Wasserstein gap between groups, visits",
            ylabel="R²",
        )
        axis.legend(fontsize=8)
    figure.savefig(IMAGES / "fair_real.png", dpi=110)


def named(epsilon):
    return "ε = ∞" if np.isinf(epsilon) else f"ε = {epsilon:g}"


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--part", choices=["penalty", "barycentres"], default="penalty")
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--name", default="fair_steps", help="name of the results of barycentres")
    args = parser.parse_args()
    if args.part == "barycentres":
        rows = summarize(regressions(range(3), range(2)))
        task = hi_by_race()
        rows += summarize(insurance(task, "HI by race", range(3), range(2)))
        task = task._replace(a=np.where(task.a == "white", "white", "other"))
        rows += summarize(insurance(task, "HI by race, two groups", range(3), range(2)))
        record(args.name, rows, {"splits": 3, "seeds": 2, "test share": 0.3})
        return
    seeds = range(args.seeds)
    adult_rows, rand_rows = summarize(adult(seeds)), summarize(rand_health(seeds))
    plot(adult_rows, rand_rows)
    record("fair_real", adult_rows + rand_rows, {"seeds": len(seeds), "test share": 0.3})


if __name__ == "__main__":
    main()
