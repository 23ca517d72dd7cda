"""Learners of synthetic rows beside private and other baselines, at epsilon = 1.

Adult (income above 50 000) for classifiers, RAND health (visits to a doctor) for regressors. 70
percent of the rows are for training; each seed splits anew, and draws other noise. One fit of the
sampler serves all learners of a seed. The number of draws, their size and the default learners were
chosen on tables of `_registry.CHOOSE`; of the private baselines all settings are reported.
"""

import argparse
import statistics
import time
import warnings
from types import SimpleNamespace

import numpy as np
from _common import record
from _linear_trials import full_batches, tilted
from _tables import DELTA, TABLES
from scipy.special import expit, softmax
from sklearn.ensemble import (
    HistGradientBoostingClassifier,
    HistGradientBoostingRegressor,
    RandomForestClassifier,
    RandomForestRegressor,
)
from sklearn.frozen import FrozenEstimator
from sklearn.linear_model import LogisticRegression, Ridge
from sklearn.metrics import accuracy_score, mean_absolute_error, r2_score, roc_auc_score
from sklearn.model_selection import train_test_split

from sklearn_dpgen.accounting import gaussian_sigma
from sklearn_dpgen.nn import Training
from sklearn_dpgen.preprocessing import TabularEncoder
from sklearn_dpgen.schema import Schema
from sklearn_dpgen.sliced import DPSlicedWassersteinFairRegressor
from sklearn_dpgen.tables import (
    SyntheticDataClassifier,
    SyntheticDataRegressor,
    TableSampler,
)

EPSILON = 1.0
CLASSIFIERS = {
    "boosting": HistGradientBoostingClassifier,
    "logistic regression": lambda random_state: LogisticRegression(max_iter=1000),
    "random forest": RandomForestClassifier,
}
REGRESSORS = {
    "boosting": HistGradientBoostingRegressor,
    "ridge regression": lambda random_state: Ridge(),
    "random forest": RandomForestRegressor,
}


def naive_bayes(bins, y, n_classes, seed):
    """Return probabilities by noisy two-way histograms of the target and each other column.

    Of d histograms a replaced record changes two cells each, all in one Gaussian release.
    """
    rng = np.random.default_rng(seed)
    blocks, X, T = bins
    scale = gaussian_sigma(EPSILON, DELTA, np.sqrt(2 * len(blocks)))
    counts = np.stack([X[y == k].sum(axis=0) for k in range(n_classes)])
    counts = (counts + scale * rng.standard_normal(counts.shape)).clip(scale)
    logs = np.zeros((len(T), n_classes))
    totals = np.zeros(n_classes)
    for block in blocks.values():
        part = counts[:, block]
        totals += part.sum(axis=1) / len(blocks)
        logs += T[:, block] @ np.log(part / part.sum(axis=1, keepdims=True)).T
    return softmax(logs + np.log(totals / totals.sum()), axis=1)


def binned(table, names, train, test):
    """Return blocks of one-hot public bins, and the encoded features."""
    schema = Schema({name: table.schema[name] for name in names})
    bins = {name: value for name, value in table.bins.items() if name in names}
    encoder = TabularEncoder(schema, n_bins=bins).fit()
    return encoder.blocks_, encoder.transform(train[names]), encoder.transform(test[names])


def learned(model, others, table, train, test, names, seed):
    """Yield the learners of one fitted sampler, and those of the records themselves."""
    start = time.process_time()
    sampler = TableSampler(
        EPSILON, DELTA, schema=table.schema, target=table.target, random_state=seed
    ).fit(train)
    seconds = time.process_time() - start
    encoder = TabularEncoder(Schema({name: table.schema[name] for name in names})).fit()
    X, T = encoder.transform(train[names]), encoder.transform(test[names])
    for name, make in {"default": None, **others}.items():
        estimator = make and make(random_state=seed)
        settings = [("", {})] if make is None else [("", {}), (", one draw", {"n_draws": 1})]
        for said, given in settings:
            start = time.process_time()
            fitted = model(FrozenEstimator(sampler), estimator, random_state=seed, **given)
            fitted.fit(train[names], train[table.target])
            used = seconds + time.process_time() - start
            yield f"synthetic rows: {name}{said}", EPSILON, used, fitted, test[names]
        if make is not None:
            start = time.process_time()
            estimator.fit(X, train[table.target])
            used = time.process_time() - start
            yield f"records: {name}", np.inf, used, estimator, T


def classify(seed):
    table = TABLES["adult"]()
    train, test = train_test_split(table.frame, test_size=0.3, random_state=seed)
    names = [name for name in table.schema if name != table.target]
    y, truth = (table.is_positive(part[table.target]).astype(int) for part in (train, test))

    def row(method, epsilon, scores, seconds):
        return {
            "table": "Adult",
            "method": method,
            "epsilon": epsilon,
            "AUC": roc_auc_score(truth, scores),
            "accuracy": accuracy_score(truth, scores > 0.5),
            "seconds": seconds,
        }

    yield row("majority", 0.0, np.full(len(test), y.mean()), 0.0)
    bins = binned(table, names, train, test)
    start = time.process_time()
    bayes = naive_bayes(bins, y, 2, seed)[:, 1]
    yield row("naive Bayes of noisy histograms", EPSILON, bayes, time.process_time() - start)
    encoder = TabularEncoder(Schema({name: table.schema[name] for name in names})).fit()
    data = SimpleNamespace(
        X=encoder.transform(train[names]),
        X_test=encoder.transform(test[names]),
        y=y,
        norm=np.sqrt(len(names)),
        task=SimpleNamespace(delta=DELTA),
    )
    trials = {"objective perturbation": tilted, "noisy descent": full_batches}
    for name, trial in trials.items():
        for setting, scores in trial(data, EPSILON, seed):
            yield row(f"{name}: {setting}", EPSILON, expit(scores), np.nan)
    for name, epsilon, used, model, X in learned(
        SyntheticDataClassifier, CLASSIFIERS, table, train, test, names, seed
    ):
        column = list(model.classes_).index(">50K")
        yield row(name, epsilon, model.predict_proba(X)[:, column], used)


def regress(seed):
    table = TABLES["rand health"]()
    train, test = train_test_split(table.frame, test_size=0.3, random_state=seed)
    names = [name for name in table.schema if name != table.target]
    y, truth = train[table.target].to_numpy(float), test[table.target].to_numpy(float)
    column = table.schema[table.target]

    def row(method, epsilon, predicted, seconds):
        return {
            "table": "RAND health",
            "method": method,
            "epsilon": epsilon,
            "R2": r2_score(truth, predicted),
            "MAE": mean_absolute_error(truth, predicted),
            "seconds": seconds,
        }

    yield row("mean", 0.0, np.full(len(test), y.mean()), 0.0)
    bins = binned(table, names, train, test)
    edges = np.array([*table.bins[table.target][:-1], column.high + 1])
    codes = np.searchsorted(edges, y, side="right") - 1
    middles = (edges[:-1] + edges[1:] - 1) / 2
    start = time.process_time()
    bayes = naive_bayes(bins, codes, len(middles), seed) @ middles
    yield row("naive Bayes of noisy histograms", EPSILON, bayes, time.process_time() - start)
    encoder = TabularEncoder(Schema({name: table.schema[name] for name in names})).fit()
    start = time.process_time()
    linear = DPSlicedWassersteinFairRegressor(
        0.0,
        y_domain=(column.low, column.high),
        epsilon=EPSILON,
        delta=DELTA,
        training=Training(hidden_layer_sizes=(), device="cpu"),
        random_state=seed,
    ).fit(encoder.transform(train[names]), y)
    predicted = linear.predict(encoder.transform(test[names]))
    yield row("gradients: linear", EPSILON, predicted, time.process_time() - start)
    for name, epsilon, used, model, X in learned(
        SyntheticDataRegressor, REGRESSORS, table, train, test, names, seed
    ):
        yield row(name, epsilon, model.predict(X), used)


def summarize(rows, measures):
    """Return means, standard deviations, and the worst and best of the seeds, by method."""
    found = []
    for method in dict.fromkeys(row["method"] for row in rows):
        part = [row for row in rows if row["method"] == method]
        entry = {key: part[0][key] for key in ("table", "method", "epsilon")}
        entry["seeds"] = len(part)
        for name in measures:
            values = [row[name] for row in part]
            entry[name] = round(statistics.mean(values), 4)
            entry[f"sd of {name}"] = round(statistics.pstdev(values), 4)
            entry[f"least {name}"] = round(min(values), 4)
            entry[f"largest {name}"] = round(max(values), 4)
        seconds = statistics.mean(row["seconds"] for row in part)
        found.append(entry | {"cpu seconds": None if np.isnan(seconds) else round(seconds, 1)})
    return found


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--seeds", type=int, default=5)
    args = parser.parse_args()
    warnings.simplefilter("ignore")
    adult, rand = [], []
    for seed in range(args.seeds):
        for run, rows in ((regress, rand), (classify, adult)):
            for row in run(seed):
                rows.append(row)
                print(seed, row, flush=True)
        summary = summarize(adult, ("AUC", "accuracy")) + summarize(rand, ("R2", "MAE"))
        meta = {"delta": DELTA, "test share": 0.3, "seeds": seed + 1}
        record("synthetic_learners", summary, meta)


if __name__ == "__main__":
    main()
