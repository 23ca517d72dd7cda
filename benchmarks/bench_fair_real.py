"""Fair private learning on tables: Adult (income, by sex), RAND health (visits, by poor health).

Adult: the curve of accuracy against disparate impact over alpha, at epsilon 1, 3 and infinity,
beside fairlearn's ExponentiatedGradient (not private) and private logistic regression (alpha = 0).
RAND health: visits to a physician, by self-rated poor health. A 70/30 split; mean and standard
deviation over seeds. Nothing is chosen on the test rows.

``--part barycentres``: private predictions as they are, moved to the barycentre, and shrunk to
their mean, on wages (RetSchool, SLID) and health insurance (HI, by race with three groups and with
two); three splits and two seeds. A learner learns from synthetic rows, or is linear and trained on
noisy gradients. Wages are also moved, and shrunk, until the groups are no farther apart than was
asked for. Distances are in units of the target's range. How maps are shrunk was chosen on simulated
scores.

``--part targets``: fits with a target (a ratio of rates, or a gap of means), beside no penalty and
penalties of a fixed weight, on Adult by sex and by race, HI, German credit by age, and wages; three
splits. No fit reads the group of a record to predict. Settings were chosen on other tables.

``--part odds``: targets of equality of odds, with the group of a record public and protected, on
Adult by sex and HI with two groups, at epsilon 1.

``--part details``: single splits of two groups of Adult by race, other ratios asked for on HI, and
logistic regression without noise on features whose means are alike in all five groups of Adult.

``--part spreads``: what targets cost where groups differ in the spread of their features, and
hardly in their means; 20000 simulated records, three seeds, on the records of the fit.

``--part bounds``: R² of a regressor without a penalty, for bounds of the target that are wider than
the declared ones by factors, beside the same regressor in a ball, where nothing is placed, and the
cheapest rival, a ridge regression on noisy second moments. Three splits, epsilon 1.

``--part weights``: fits of few records without a penalty, with the weight that "auto" takes, with
1/2, and with a target; wages, German credit by age and 2000 records of Adult by sex.

``--part sliced``: predictions of three numbers of Adult, moved to a sliced barycentre of groups: by
maps of the columns, and then of 1, 3 or 7 random rotations of them, each from noisy counts. Three
splits; ridge regression without noise within.

``--part means``: the cheapest rival of a target, on tables with two groups. The difference of the
groups' mean features is released once, with a share of the budget, and features are projected on
what is orthogonal to it before a fit without penalty.
"""

import argparse
import copy
import itertools
import json
import warnings
from pathlib import Path

import matplotlib.pyplot as plt
import numpy as np
import pandas as pd
from _common import RESULTS, record
from _fair_tables import REGRESSIONS, TASKS, hi_by_race
from _public_pairs import german
from fairlearn.reductions import DemographicParity, ExponentiatedGradient
from sklearn.exceptions import ConvergenceWarning
from sklearn.linear_model import LogisticRegression, Ridge
from sklearn.metrics import r2_score, roc_auc_score
from sklearn.model_selection import train_test_split
from sklearn.pipeline import make_pipeline

from sklearn_dpgen.accounting import GaussianProfile, calibrate_noise_multiplier
from sklearn_dpgen.datasets import fetch_adult, load_rand_health
from sklearn_dpgen.domains import Ball, Box
from sklearn_dpgen.exceptions import SmallGroupWarning
from sklearn_dpgen.metrics import disparate_impact, group_wasserstein_distance
from sklearn_dpgen.nn import Training
from sklearn_dpgen.predictors import BarycenterClassifier, BarycenterRegressor
from sklearn_dpgen.predictors._group_counts import count_halves, maps_of_halves
from sklearn_dpgen.preprocessing import TabularEncoder
from sklearn_dpgen.schema import Categorical, Numeric, Schema
from sklearn_dpgen.sliced import (
    ClippedGradient,
    DPSlicedWassersteinFairClassifier,
    DPSlicedWassersteinFairRegressor,
)
from sklearn_dpgen.tables import SyntheticDataClassifier, SyntheticDataRegressor, TableSampler

PARTS = (
    "penalty",
    "barycentres",
    "targets",
    "odds",
    "details",
    "spreads",
    "bounds",
    "means",
    "sliced",
    "weights",
)
IMAGES = Path(__file__).parents[1] / "doc" / "images"
ALPHAS = (0.0, 0.2, 0.4, 0.6, 0.75, 0.9)
EPSILONS = (1.0, 3.0, np.inf)
SLACKS = (0.002, 0.02, 0.05, 0.1, 0.15, 0.2)
STEP_EPSILONS = (0.5, 1.0, 3.0)
FACTORS = (0.9, 0.8, 0.7)
ASKED_RATIOS = (0.8, 0.95)
GAPS = (0.02, 0.01)
ODDS_GAPS = (0.05, 0.02)
ASKED = (0.005, 0.01, 0.02, 0.03)
WIDER = (1, 10, 100)
# Levels of the counts of maps, with 64 cells.
N_LEVELS = 6
LEARNERS = ("rows", "gradients")


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


def describe_step(y, scores, a, is_number, units):
    """Return how unlike the groups' predictions are, and how good."""
    means = pd.Series(scores / units).groupby(a).mean()
    distance = group_wasserstein_distance(y, scores / units, sensitive_features=a)
    found = {"distance": float(distance), "means": float(means.max() - means.min())}
    if is_number:
        return found | {"R2": float(r2_score(y, scores))}
    rates = pd.Series(scores > 0.5).groupby(a).mean()
    ratio = rates.min() / max(rates.max(), 1e-12)
    return found | {"DI": float(ratio), "accuracy": float(((scores > 0.5) == (y == "yes")).mean())}


def ways(model, X, a, units):
    """Yield scores of a fitted model: as they are, moved, and shrunk to their mean.

    Numbers are also moved and shrunk to each of the `ASKED` distances, by the counts of the fit.
    """
    is_number = isinstance(model, BarycenterRegressor)

    def scores(one, **groups):
        return one.predict(X, **groups) if is_number else one.predict_proba(X, **groups)[:, 1]

    plain = scores(model.estimator_)
    yield "none", 1.0, plain
    yield "barycentre", 1.0, scores(model, sensitive_features=a)
    for factor in FACTORS:
        yield "shrunk", factor, plain.mean() + factor * (plain - plain.mean())
    if is_number:
        for asked, method in itertools.product(ASKED, ("barycenter", "shrink")):
            one = copy.copy(model).set_params(max_gap=asked * units, method=method)
            one.strength_ = one._strength(one.maps_)
            yield f"{method}, asked", asked, scores(one, sensitive_features=a)


def within(learner, schema, target, seed):
    """Return a private learner without a budget: of synthetic rows, or by noisy gradients."""
    column = schema[target]
    is_number = isinstance(column, Numeric)
    if learner == "rows":
        sampler = TableSampler(schema=schema, target=target, random_state=seed)
        kind = SyntheticDataRegressor if is_number else SyntheticDataClassifier
        return kind(sampler, random_state=seed)
    encoder = TabularEncoder(Schema({k: c for k, c in schema.items() if k != target}))
    if is_number:
        linear = DPSlicedWassersteinFairRegressor(0.0, y_domain=(column.low, column.high))
    else:
        linear = DPSlicedWassersteinFairClassifier(0.0, classes=column.categories)
    return make_pipeline(encoder, linear.set_params(random_state=seed))


def steps(table, learner, X, y, a, schema, target):
    """Return what the step to parity does for a table, of three splits and two seeds."""
    column, rows = schema[target], []
    is_number = isinstance(column, Numeric)
    for number, epsilon, seed in itertools.product(range(3), STEP_EPSILONS, range(2)):
        X_fit, X_test, y_fit, y_test, a_fit, a_test = split(number, X, y, a)
        options = {"epsilon": epsilon, "delta": 1e-5, "groups": np.unique(a), "random_state": seed}
        estimator, units = within(learner, schema, target, seed), 1.0
        if is_number:
            bounds = column.low, column.high
            model, units = (
                BarycenterRegressor(estimator, y_domain=bounds, **options),
                np.ptp(bounds),
            )
        else:
            model = BarycenterClassifier(estimator, **options)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", SmallGroupWarning)
            model.fit(X_fit, y_fit, sensitive_features=a_fit)
        key = {"table": table, "learner": learner, "epsilon": epsilon, "seed": f"{number}, {seed}"}
        rows += [
            key
            | {"model": name, "parameter": parameter}
            | describe_step(y_test, scores, a_test, is_number, units)
            for name, parameter, scores in ways(model, X_test, a_test, units)
        ]
    print(table, learner, flush=True)
    return rows


def step_tables():
    """Yield tables with groups: name, features, targets, groups, schema without groups, target."""
    for table, make in REGRESSIONS.items():
        task = make()
        schema = Schema({k: c for k, c in task.schema.items() if k != task.sensitive})
        X = task.frame[[name for name in schema if name != task.target]]
        y, a = task.frame[task.target].to_numpy(), task.frame[task.sensitive].to_numpy()
        yield table, X, y, a, schema, task.target
    task = hi_by_race()
    schema = Schema({**task.schema, "label": Categorical(["no", "yes"])})
    y = np.where(task.y == 1, "yes", "no")
    yield "HI by race", task.frame, y, task.a, schema, "label"
    white = np.where(task.a == "white", "white", "other")
    yield "HI by race, two groups", task.frame, y, white, schema, "label"


def german_by_age():
    """Return 1000 German borrowers; the groups are those to 25 years, and older ones."""
    pair = german()
    frame = pd.concat([pair.private, pair.test], ignore_index=True)
    young = np.where(frame["age_in_years"] <= 25, "to 25", "older")
    schema = {k: c for k, c in pair.schema.items() if k not in ("creditability", "age_in_years")}
    X = TabularEncoder(Schema(schema)).fit_transform(frame[list(schema)])
    return X, (frame["creditability"] == "good").to_numpy(int), young


def target_tables():
    """Yield tables of rates: name, encoded features, labels, groups, asked ratios."""
    for name in ("Adult by sex", "Adult by race"):
        task = TASKS[name]()
        yield name, task.X, task.y, task.a
    task = hi_by_race()
    yield "HI by race", task.X, task.y, task.a
    yield "HI by race, two groups", task.X, task.y, np.where(task.a == "white", "white", "other")
    yield "German by age", *german_by_age()


def target_wages():
    """Yield tables of wages: name, encoded features, targets, groups, bounds of the target."""
    for name, make in REGRESSIONS.items():
        task = make()
        schema = {k: c for k, c in task.schema.items() if k not in (task.sensitive, task.target)}
        X = TabularEncoder(Schema(schema)).fit_transform(task.frame[list(schema)])
        y, a = task.frame[task.target].to_numpy(float), task.frame[task.sensitive].to_numpy()
        yield name, X, y, a, (task.schema[task.target].low, task.schema[task.target].high)


def targets(kind, table, X, y, a, bounds=None):
    """Return what fits with a target reach on test rows, of three splits."""
    is_number, rows = bounds is not None, []
    units = np.ptp(bounds) if is_number else 1.0
    asked = (
        [("max_gap", g * units) for g in GAPS]
        if is_number
        else [("min_ratio", r) for r in ASKED_RATIOS]
    )
    fits = [("no penalty", {"alpha": 0.0})]
    fits += [(f"penalty, alpha {alpha:g}", {"alpha": alpha}) for alpha in (0.5, 0.9)]
    fits += [("target", {name: value}) for name, value in asked]
    options = {"y_domain": bounds} if is_number else {"classes": [0, 1]}
    for epsilon, (name, parameters), seed in itertools.product(STEP_EPSILONS, fits, range(3)):
        X_fit, X_test, y_fit, y_test, a_fit, a_test = split(seed, X, y, a)
        model = kind(**parameters, **options, epsilon=epsilon, delta=1e-5, random_state=seed)
        with warnings.catch_warnings(record=True) as told:
            warnings.simplefilter("always")
            model.fit(X_fit, y_fit, sensitive_features=a_fit)
        predicted = model.predict(X_test)
        means = pd.Series(predicted / units).groupby(a_test).mean()
        key = {"table": table, "model": name, "epsilon": epsilon, "seed": seed}
        key["parameter"] = next(iter(parameters.values())) / units
        if is_number:
            found = {"R2": float(r2_score(y_test, predicted)), "gap": float(np.ptp(means))}
        else:
            found = {"accuracy": float((predicted == y_test).mean())}
            found["DI"] = float(means.min() / means.max())
        if name == "target":
            found["said to be missed"] = float(any(w.category is ConvergenceWarning for w in told))
        rows.append(key | found)
    print(table, flush=True)
    return rows


def rates_of(model, X_test, y_test, a_test):
    """Return the accuracy of a fitted classifier, and the ratio of rates of decisions."""
    predicted = model.predict(X_test)
    rates = pd.Series(predicted).groupby(a_test).mean()
    found = {"accuracy": float((predicted == y_test).mean())}
    return found | {"DI": float(rates.min() / rates.max())}


def details():
    """Return figures of single splits, and of features without differences of means."""
    adult, insured, rows = TASKS["Adult by race"](), hi_by_race(), []
    two = np.isin(adult.a, ["White", "Black"])
    white = np.where(insured.a == "white", "white", "other")
    cases = {
        "Adult, white and black": (adult.X[two], adult.y[two], adult.a[two], (0.0, 0.8)),
        "HI by race, two groups": (insured.X, insured.y, white, (0.85, 0.9)),
    }
    for (table, (X, y, a, asked)), seed in itertools.product(cases.items(), range(3)):
        X_fit, X_test, y_fit, y_test, a_fit, a_test = split(seed, X, y, a)
        for ratio in asked:
            model = DPSlicedWassersteinFairClassifier(
                0.0, min_ratio=ratio or None, classes=[0, 1], delta=1e-5, random_state=seed
            ).fit(X_fit, y_fit, sensitive_features=a_fit)
            key = {"table": table, "model": "target", "epsilon": 1.0, "parameter": ratio}
            rows.append(key | {"seed": seed} | rates_of(model, X_test, y_test, a_test))
    for seed in range(3):
        X_fit, X_test, y_fit, y_test, a_fit, a_test = split(seed, adult.X, adult.y, adult.a)
        means = np.array([X_fit[a_fit == group].mean(axis=0) for group in np.unique(adult.a)])
        basis = np.linalg.qr((means[1:] - means[0]).T)[0]
        for name, P in {"plain": 0.0, "equal means": basis @ basis.T}.items():
            P = np.eye(adult.X.shape[1]) - P
            model = LogisticRegression(max_iter=2000).fit(X_fit @ P, y_fit)
            key = {"table": "Adult by race", "model": name, "epsilon": np.inf, "parameter": 0.0}
            rows.append(key | {"seed": seed} | rates_of(model, X_test @ P, y_test, a_test))
    return rows


def equal_odds(table, X, y, a):
    """Return the gaps of the rates of false and of true positives on test rows, of three splits."""
    protected = {"groups": np.unique(a), "protect_groups": True}
    fits = [("no penalty", {"alpha": 0.0})]
    fits += [(f"penalty, alpha {alpha:g}", {"alpha": alpha}) for alpha in (0.5, 0.9)]
    fits += [("target", {"max_gap": gap}) for gap in ODDS_GAPS]
    fits += [("target, groups protected", {"max_gap": gap} | protected) for gap in ODDS_GAPS]
    rows = []
    for (name, parameters), seed in itertools.product(fits, range(3)):
        X_fit, X_test, y_fit, y_test, a_fit, a_test = split(seed, X, y, a)
        model = DPSlicedWassersteinFairClassifier(
            penalty="equalized_odds", classes=[0, 1], delta=1e-5, random_state=seed, **parameters
        ).fit(X_fit, y_fit, sensitive_features=a_fit)
        predicted = model.predict(X_test)
        rates = pd.Series(predicted).groupby([y_test, a_test]).mean().unstack()
        key = {"table": table, "model": name, "epsilon": 1.0, "seed": seed}
        key["parameter"] = next(iter(parameters.values()))
        found = {"accuracy": float((predicted == y_test).mean())}
        found |= {f"gap of label {k}": float(np.ptp(rates.loc[k])) for k in (0, 1)}
        rows.append(key | found)
    print(table, flush=True)
    return rows


def spreads():
    """Return the ratio of rates, and accuracy, for groups of unlike spreads."""
    rows = []
    for seed in range(3):
        rng, a = np.random.default_rng(seed), np.arange(20_000) % 2
        X = rng.normal(size=(20_000, 2)) * np.where(a, 1, 1.6)[:, None]
        X[:, 0] += 0.1 * (2 * a - 1)
        y = (X @ [1, 0.5] + rng.normal(size=20_000) > -1).astype(int)
        for asked in (None, 0.9, 0.95, 1.0):
            model = DPSlicedWassersteinFairClassifier(
                0.0, min_ratio=asked, classes=[0, 1], random_state=seed
            )
            predicted = model.fit(X, y, sensitive_features=a).predict(X)
            rates = pd.Series(predicted).groupby(a).mean()
            found = {"accuracy": float((predicted == y).mean())}
            found["DI"] = float(rates.min() / rates.max())
            key = {"table": "spreads", "epsilon": 1.0, "parameter": asked or 0.0, "model": "target"}
            rows.append(key | {"seed": seed} | found)
    return rows


def ridge_of_moments(X, y, bounds, mu, rng):
    """Return the predictor of a ridge regression on noisy second moments of (x, 1, y).

    A record of norm B moves the matrix by √2 B² at most when it is replaced; B is the largest norm
    that occurs, which favours this rival. The ridge is the noise of an eigenvalue.
    """
    middle, half = np.mean(bounds), np.ptp(bounds) / 2
    Z = np.column_stack([X, np.ones(len(X)), (y - middle) / half])
    scale = np.sqrt(2) * (Z**2).sum(axis=1).max() / mu
    noise = scale * rng.normal(size=(Z.shape[1],) * 2)
    # Entries off the diagonal count twice in the norm.
    noise = np.triu(noise, 1) / np.sqrt(2)
    moments = Z.T @ Z + noise + noise.T + np.diag(scale * rng.normal(size=Z.shape[1]))
    ridge = scale * np.sqrt(Z.shape[1])
    inner = moments[:-1, :-1] + ridge * np.eye(Z.shape[1] - 1)
    weights = np.linalg.lstsq(inner, moments[:-1, -1], rcond=None)[0]

    def predict(X):
        units = np.column_stack([X, np.ones(len(X))]) @ weights
        return middle + half * units.clip(-1, 1)

    return predict


def bounds_of_targets(epsilon=1.0, delta=1e-5):
    """Return R² for bounds that are wider than the declared ones."""
    mu, rows = 1 / calibrate_noise_multiplier(epsilon, delta), []
    for (table, X, y, a, (low, high)), factor in itertools.product(target_wages(), WIDER):
        bounds = low, low + factor * (high - low)
        middle, half = np.mean(bounds), np.ptp(bounds) / 2
        domains = {"box": bounds, "ball": Ball(half, center=[middle])}
        for seed in range(3):
            X_fit, X_test, y_fit, y_test, *_ = split(seed, X, y, a)
            fitted = {
                name: DPSlicedWassersteinFairRegressor(
                    0.0, y_domain=domain, epsilon=epsilon, delta=delta, random_state=seed
                )
                .fit(X_fit, y_fit)
                .predict
                for name, domain in domains.items()
            }
            rng = np.random.default_rng(seed)
            fitted["moments"] = ridge_of_moments(X_fit, y_fit, bounds, mu, rng)
            key = {"table": table, "epsilon": epsilon, "parameter": factor, "seed": seed}
            rows += [
                key | {"model": name, "R2": float(r2_score(y_test, predict(X_test)))}
                for name, predict in fitted.items()
            ]
        print(table, factor, flush=True)
    return rows


def weights_of_penalty(delta=1e-5):
    """Return what weights of the penalty, and a target, give with few records."""
    adult, rows = TASKS["Adult by sex"](), []
    some = np.random.default_rng(0).permutation(len(adult.y))[:12_000]
    tables = [("German by age", *german_by_age(), None, None)]
    tables += [("Adult by sex", adult.X[some], adult.y[some], adult.a[some], None, 2000)]
    wages = ("RetSchool by race", "SLID by sex")
    tables += [(*table, None) for table in target_wages() if table[0] in wages]
    for table, X, y, a, bounds, n_fit in tables:
        is_number = bounds is not None
        kind = DPSlicedWassersteinFairRegressor if is_number else DPSlicedWassersteinFairClassifier
        options = {"y_domain": bounds} if is_number else {"classes": [0, 1]}
        target = {"max_gap": 0.02 * np.ptp(bounds)} if is_number else {"min_ratio": 0.9}
        fits = {"no penalty": {"alpha": 0.0}, "auto": {}, "half": {"alpha": 0.5}, "target": target}
        for epsilon, (name, parameters), seed in itertools.product(
            STEP_EPSILONS, fits.items(), range(3)
        ):
            X_fit, X_test, y_fit, y_test, a_fit, a_test = split(seed, X, y, a)
            X_fit, y_fit, a_fit = (array[:n_fit] for array in (X_fit, y_fit, a_fit))
            model = kind(**parameters, **options, epsilon=epsilon, delta=delta, random_state=seed)
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                model.fit(X_fit, y_fit, sensitive_features=a_fit)
            predicted = model.predict(X_test)
            means = pd.Series(predicted / (np.ptp(bounds) if is_number else 1))
            key = {"table": table, "model": name, "epsilon": epsilon, "seed": seed}
            rows.append(key | {"gap": float(np.ptp(means.groupby(a_test).mean()))})
            rows[-1]["weight"] = model.alpha_
            if is_number:
                rows[-1]["R2"] = float(r2_score(y_test, predicted))
            else:
                rows[-1]["accuracy"] = float((predicted == y_test).mean())
        print(table, flush=True)
    return rows


def moved_by_slices(P, codes, P_test, test_codes, n_rotations, mu, rng):
    """Return test points moved by maps of columns, and of further rotations, from noisy counts.

    A record is in one cell of each level, group and axis, so counts of all d n_rotations axes have
    a sensitivity of √(2 d n_rotations) together. Points outside of 0.7 times the largest interval
    on a rotated axis are clipped.
    """
    d, n_groups = P.shape[1], codes.max() + 1
    scale = np.sqrt(2 * d * n_rotations) / mu
    Z, Z_test = P - 0.5, P_test - 0.5
    for rotation in range(n_rotations):
        U, half = np.eye(d), 0.5
        if rotation:
            U, half = np.linalg.qr(rng.normal(size=(d, d)))[0], 0.35 * np.sqrt(d)
        A, A_test = ((0.5 + (points @ U) / (2 * half)).clip(0, 1) for points in (Z, Z_test))
        for j in range(d):
            counts = count_halves(A[:, j], codes, n_groups, N_LEVELS)
            counts = counts + scale * rng.normal(size=counts.shape)
            maps = maps_of_halves(counts, n_groups, N_LEVELS, max(scale, 1e-9))
            A[:, j] = maps.transport(A[:, j], codes)
            A_test[:, j] = maps.transport(A_test[:, j], test_codes)
        Z, Z_test = ((2 * half * (B - 0.5) @ U.T).clip(-0.5, 0.5) for B in (A, A_test))
    return Z_test + 0.5


def distance_to_mean(P, codes, rng, n_directions=60):
    """Return the sliced W2 distance of the groups to their barycentre on each direction."""
    shares, levels = np.bincount(codes) / len(codes), (np.arange(200) + 0.5) / 200
    U = rng.normal(size=(n_directions, P.shape[1]))
    found = []
    for u in U / np.linalg.norm(U, axis=1, keepdims=True):
        z = P @ u
        lines = np.array([np.quantile(z[codes == code], levels) for code in range(len(shares))])
        found.append((shares @ (lines - shares @ lines) ** 2).mean())
    return float(np.sqrt(np.mean(found)))


def sliced_barycentres():
    """Return distances of the groups, and the share of the variance that is explained."""
    data, rows = fetch_adult(), []
    targets = ["age", "hours-per-week", "education-num"]
    bounds = np.array([(data.schema[name].low, data.schema[name].high) for name in targets]).T
    Y = ((data.frame[targets].to_numpy(float) - bounds[0]) / np.ptp(bounds, axis=0)).clip(0, 1)
    for group in ("sex", "race"):
        X = encoded(data.frame, data.schema, {*targets, group, "fnlwgt", "education"})
        codes = np.unique(data.frame[group].astype(str), return_inverse=True)[1]
        for seed, epsilon in itertools.product(range(3), (0.5, 1.0, 3.0, 10.0, np.inf)):
            X_fit, X_test, Y_fit, Y_test, a_fit, a_test = split(seed, X, Y, codes)
            model = Ridge().fit(X_fit, Y_fit)
            P, P_test = (model.predict(features).clip(0, 1) for features in (X_fit, X_test))
            mu = np.inf if epsilon == np.inf else 1 / calibrate_noise_multiplier(epsilon, 1e-5)
            for n_rotations in (0, 1, 2, 4, 8):
                rng, moved = np.random.default_rng(seed), P_test
                if n_rotations:
                    moved = moved_by_slices(P, a_fit, P_test, a_test, n_rotations, mu, rng)
                errors = ((moved - Y_test) ** 2).sum() / ((Y_test - Y_test.mean(axis=0)) ** 2).sum()
                key = {"table": f"Adult by {group}", "model": "maps", "epsilon": epsilon}
                rows.append(
                    key
                    | {"parameter": n_rotations, "seed": seed, "R2": float(1 - errors)}
                    | {"distance": distance_to_mean(moved, a_test, np.random.default_rng(0))}
                )
        print(group, flush=True)
    return rows


def without_difference(X, a, n_columns, mu, rng):
    """Return the projection orthogonal to the noisy difference of the means of two groups.

    The noise is for one record that is replaced within its group, of norm at most √n_columns.
    """
    means = [X[a == group].mean(axis=0) for group in np.unique(a)]
    smaller = np.unique(a, return_counts=True)[1].min()
    scale = 2 * np.sqrt(n_columns) / smaller / mu
    difference = means[0] - means[1] + scale * rng.normal(size=X.shape[1])
    return np.eye(X.shape[1]) - np.outer(difference, difference) / (difference @ difference)


def removed_means(table, X, y, a, n_columns, epsilon=1.0, delta=1e-5):
    """Return what features without the difference of means reach, for shares of the budget."""
    mu, rows = 1 / calibrate_noise_multiplier(epsilon, delta), []
    for share, seed in itertools.product((0.1, 0.3, 0.5), range(3)):
        X_fit, X_test, y_fit, y_test, a_fit, a_test = split(seed, X, y, a)
        rng = np.random.default_rng(seed)
        P = without_difference(X_fit, a_fit, n_columns, np.sqrt(share) * mu, rng)
        # Squared sensitivities over noise add up.
        left = GaussianProfile(np.sqrt(1 - share) * mu).epsilon(delta)
        model = DPSlicedWassersteinFairClassifier(
            0.0, classes=[0, 1], epsilon=left, delta=delta, random_state=seed
        ).fit(X_fit @ P, y_fit)
        predicted = model.predict(X_test @ P)
        rates = pd.Series(predicted).groupby(a_test).mean()
        found = {"accuracy": float((predicted == y_test).mean())}
        found["DI"] = float(rates.min() / rates.max())
        key = {"table": table, "model": "means", "epsilon": epsilon, "parameter": share}
        rows.append(key | {"seed": seed} | found)
    print(table, flush=True)
    return rows


def summarize(rows, worst=()):
    """Return means and standard deviations over seeds, and the worst of some columns."""
    frame = pd.DataFrame(rows).drop(columns="seed")
    names = ["table", "learner", "model", "epsilon", "parameter"]
    groups = frame.groupby([name for name in names if name in frame], sort=False)
    means, spreads = groups.mean(), groups.std().add_suffix(" sd")
    found = means.join(spreads)
    if worst:
        found = found.join(groups[[*worst]].min().add_prefix("worst "))
    return found.dropna(axis=1, how="all").reset_index().to_dict("records")


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
    parser.add_argument(
        "--part",
        choices=PARTS,
        default="penalty",
    )
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--name", default="fair_steps", help="name of the results of barycentres")
    parser.add_argument("--wages", action="store_true", help="measure linear fits of wages anew")
    args = parser.parse_args()
    if args.part == "means":
        rows = []
        for name, make in {"Adult by sex": TASKS["Adult by sex"], "HI by race": hi_by_race}.items():
            task = make()
            a = (
                task.a
                if name.startswith("Adult")
                else np.where(task.a == "white", "white", "other")
            )
            rows += summarize(removed_means(name, task.X, task.y, a, len(task.schema)))
        record("fair_means", rows, {"splits": 3, "test share": 0.3, "delta": 1e-5})
        return
    if args.part == "sliced":
        rows = summarize(sliced_barycentres())
        record("fair_sliced", rows, {"splits": 3, "test share": 0.3, "delta": 1e-5})
        return
    if args.part == "details":
        record("fair_details", details(), {"splits": 3, "test share": 0.3, "delta": 1e-5})
        return
    if args.part == "bounds":
        rows = summarize(bounds_of_targets())
        record("fair_bounds", rows, {"splits": 3, "test share": 0.3, "delta": 1e-5})
        return
    if args.part == "weights":
        rows = weights_of_penalty()
        settings = {"splits": 3, "test share": 0.3, "delta": 1e-5}
        record("fair_weights", summarize(rows, worst=("R2", "accuracy")), settings)
        return
    if args.part == "spreads":
        record("fair_spreads", summarize(spreads()), {"records": 20_000, "seeds": 3})
        return
    if args.part == "odds":
        rows = []
        for table in target_tables():
            if table[0] in ("Adult by sex", "HI by race, two groups"):
                rows += summarize(equal_odds(*table))
        record("fair_odds", rows, {"splits": 3, "test share": 0.3, "delta": 1e-5})
        return
    if args.part == "targets":
        rows = []
        if args.wages:
            former = json.loads((RESULTS / "fair_targets.json").read_text())["rows"]
            rows = [row for row in former if "accuracy" in row]
        for table in () if args.wages else target_tables():
            rows += summarize(targets(DPSlicedWassersteinFairClassifier, *table))
        for table in target_wages():
            rows += summarize(targets(DPSlicedWassersteinFairRegressor, *table))
        record("fair_targets", rows, {"splits": 3, "test share": 0.3, "delta": 1e-5})
        return
    if args.part == "barycentres":
        former, cases = [], itertools.product(step_tables(), LEARNERS)
        if args.wages:
            former = json.loads((RESULTS / f"{args.name}.json").read_text())["rows"]
            former = [r for r in former if "accuracy" in r or r["learner"] == "rows"]
            cases = [(t, one) for t, one in cases if t[0] in REGRESSIONS and one == "gradients"]
        measured = [summarize(steps(table, one, *parts)) for (table, *parts), one in cases]
        rows = former + sum(measured, [])
        record(args.name, rows, {"splits": 3, "seeds": 2, "test share": 0.3})
        return
    seeds = range(args.seeds)
    adult_rows, rand_rows = summarize(adult(seeds)), summarize(rand_health(seeds))
    plot(adult_rows, rand_rows)
    record("fair_real", adult_rows + rand_rows, {"seeds": len(seeds), "test share": 0.3})


if __name__ == "__main__":
    main()
