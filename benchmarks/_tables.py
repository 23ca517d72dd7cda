"""What the benchmarks of tables share: the tables, their split, a baseline, and what is measured.

`TABLES` makes them by name: Adult, RAND health, and those of `_registry.py`. They are split 70/30.
Settings are chosen on the tables of `CHOOSE`, or on a split of training parts, and the test parts
of `REPORT` are for results alone. A model makes as many records as it was given for training; they
are compared with the test part, and classifiers that learned from them are tested there.
"""

import warnings
from functools import partial

import numpy as np
import pandas as pd
from _registry import CHOOSE, REGISTRY, Table
from _registry import REPORT as _REPORT
from scipy.stats import wasserstein_distance
from sklearn.ensemble import HistGradientBoostingClassifier
from sklearn.linear_model import LogisticRegression
from sklearn.model_selection import train_test_split
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import FunctionTransformer

from sklearn_dpgen.accounting import calibrate_noise_multiplier
from sklearn_dpgen.datasets import fetch_adult, load_rand_health
from sklearn_dpgen.metrics import (
    coefficient_agreement,
    correlation_difference,
    k_marginal_score,
    marginal_total_variation,
    sliced_wasserstein_distance,
    train_synthetic_test_real,
)
from sklearn_dpgen.preprocessing import TabularEncoder
from sklearn_dpgen.schema import Categorical, Datetime, Numeric, Ordinal, Schema

__all__ = [
    "CHOOSE",
    "DELTA",
    "REPORT",
    "TABLES",
    "TWO",
    "Table",
    "independent",
    "learners",
    "measures",
    "scores",
    "shapes",
    "split",
    "summarize",
    "utility",
]

DELTA = 1e-5
# What gradient boosting takes of a column.
MOST_LABELS = 255
# Of triples, a fixed subset where there are more.
MOST_TRIPLES = 2000
# What a regression is made of: the first columns that have not more labels than that.
MOST_REGRESSORS = 12
FEW_LABELS = 10
# Rare labels, and how many test records one has at least.
RARE = 0.01
LEAST = 5
# What is not a score, and has no standard deviation.
COSTS = ("cpu seconds", "peak MB")
# Of these each seed is kept.
HEADLINES = ("AUC boosting", "2-way TV", "3-way TV")


def adult():
    data = fetch_adult()
    bins = {
        "age": 20,
        "fnlwgt": [75_000 * i for i in range(7)] + [1_500_000],
        "education-num": 16,
        "capital-gain": [0, 1, 5000, 10_000, 15_000, 20_000, 99_999],
        "capital-loss": [0, 1, 1500, 1750, 2000, 2250, 2500, 5000],
        "hours-per-week": [1, 15.7, 20.6, 25.5, 35.3, 40.2, 45.1, 50, 54.9, 64.7, 99],
    }
    return Table(data.frame, data.schema, bins, "income", lambda x: np.asarray(x) == ">50K")


def rand_health():
    data = load_rand_health()
    bins = {
        "mdvis": [0, 1, 2, 3, 4, 5, 7, 10, 14, 24],
        "lpi": 20,
        "fmde": 20,
        "physlm": [0, 0.05, 0.95, 1],
        "disea": [0, 3, 6, 9, 12, 15, 18, 21, 24, 30, 36, 60],
    }
    return Table(data.frame, data.schema, bins, "mdvis", lambda visits: np.asarray(visits) > 2)


TABLES = {"adult": adult, "rand health": rand_health}
TWO = list(TABLES)
TABLES |= REGISTRY
REPORT = (*TWO, *_REPORT)


def split(frame, *, validate=False):
    """Return training and test records; with ``validate``, of a split of the training records."""
    train, test = train_test_split(frame, test_size=0.3, random_state=0)
    if validate:
        train, test = train_test_split(train, test_size=0.3, random_state=1)
    return train.reset_index(drop=True), test.reset_index(drop=True)


def independent(labels, epsilon, X, y, blocks, seed):
    """Return independent columns from noisy counts, and labels; one release, all counts in it."""
    rng = np.random.default_rng(seed)
    codes = np.zeros(len(X), dtype=int) if labels == "none" else y
    counts = np.stack([X[codes == code].sum(axis=0) for code in range(codes.max() + 1)])
    if np.isfinite(epsilon):
        # A record is one count of each column, whatever its class.
        scale = calibrate_noise_multiplier(epsilon, DELTA) * np.sqrt(2 * len(blocks))
        counts += scale * rng.standard_normal(counts.shape)
    if labels == "private":
        shares = counts.sum(axis=1).clip(1, None)
        codes = rng.choice(len(shares), size=len(X), p=shares / shares.sum())
    S = np.zeros_like(X)
    for code, row in enumerate(counts.clip(1e-9, None)):
        members = np.flatnonzero(codes == code)
        for block in blocks.values():
            drawn = rng.choice(np.arange(X.shape[1])[block], len(members), p=_shares(row[block]))
            S[members, drawn] = 1
    return S, codes


def _shares(counts):
    return counts / counts.sum()


def scores(made, test, table):
    """Return what `bench_tables.py` reports of synthetic records.

    Boosting is scikit-learn's, with its defaults, on the columns as they are: declared labels are
    categories to it, and places among them where they are more than 255. Logistic regression has
    the encoded columns. It and the sliced distance do without columns of more labels than that.
    """
    return (
        _distances(made, test, table)
        | _joint(made, test, table.schema)
        | {"sliced W1": _sliced_distance(made, test, table.schema)}
        | shapes(made, test, table)
        | _rare_labels(made, test, table.schema)
        | _inference(made, test, table)
        | utility(learners(table), ("AUC", "accuracy"), made, test, table)
    )


def learners(table):
    """Return the boosting and the logistic regression of `scores`, not fitted."""
    boosting = make_pipeline(
        FunctionTransformer(partial(_with_categories, schema=table.schema)),
        HistGradientBoostingClassifier(categorical_features="from_dtype", random_state=0),
    )
    return {"boosting": boosting, "logistic": _on_encoded(_logistic(), table)}


def _joint(made, test, schema):
    """Return the worst pair, NIST's score, triples, and the mean difference of correlations."""
    distances = partial(marginal_total_variation, test, made, schema)
    triples = distances(order=3, max_groups=MOST_TRIPLES, random_state=0)
    found = {
        "worst 2-way TV": distances(order=2).max(),
        "3-way TV": triples.mean(),
        "k-marginal": k_marginal_score(test, made, schema),
        "correlation": correlation_difference(test, made, schema).mean(),
    }
    return {name: float(value) for name, value in found.items()}


def _rare_labels(made, test, schema):
    """Return how far the shares of rare labels are off, as the natural logarithm of their ratio.

    The mean over all labels that 5 test records have, and less than 1 % of them; one record is
    added to each share, so that a label that is not made counts about as log(1 + its records).
    """
    errors = []
    for name, column in schema.items():
        if not isinstance(column, Categorical | Ordinal):
            continue
        n = len(column.labels)
        real, other = (
            np.bincount(column.codes(frame[name]), minlength=n)[:n] for frame in (test, made)
        )
        rare = (real >= LEAST) & (real < RARE * len(test))
        expected = other[rare] * (len(test) / len(made))
        errors.append(np.abs(np.log((expected + 1) / (real[rare] + 1))))
    errors = np.concatenate(errors) if errors else np.empty(0)
    return {"rare labels": float(errors.mean())} if len(errors) else {}


def _inference(made, test, table):
    """Return whether a logistic regression of the target says what it says of test records."""
    few = [
        name
        for name, column in table.schema.items()
        if name != table.target
        and not (isinstance(column, Categorical | Ordinal) and len(column.labels) > FEW_LABELS)
    ]
    names = [*few[:MOST_REGRESSORS], table.target]
    found = coefficient_agreement(
        test,
        made,
        Schema({name: table.schema[name] for name in names}),
        target=table.target,
        target_transform=table.is_positive,
    )
    kept = ("sign_agreement", "significance_agreement", "interval_overlap")
    return {name.replace("_", " "): float(found[name]) for name in kept}


def shapes(made, test, table):
    """Return how far numbers are from those of the test part, in its standard deviations.

    Equal cells of a wide range, as of money, do not see it. Nulls are left out.

    Returns
    -------
    dict
        The difference of means, its largest, W1, how far standard deviations are apart, as the
        natural logarithm of their ratio, and the mean difference of the quantiles at 1 and 99 %:
        means over columns.
    """
    rows = []
    for name, column in table.schema.items():
        if not isinstance(column, Numeric):
            continue
        values = test[name].dropna().to_numpy(dtype=float)
        others = made[name].dropna().to_numpy(dtype=float)
        if len(others) == 0:
            others = np.array([column.low])
        sd = values.std() or 1.0
        shift = abs(values.mean() - others.mean()) / sd
        ratio = abs(np.log(max(others.std(), 1e-6 * sd) / sd))
        ends = np.quantile(values, [0.01, 0.99]) - np.quantile(others, [0.01, 0.99])
        tails = np.abs(ends).mean() / sd
        rows.append((shift, wasserstein_distance(values, others) / sd, ratio, tails))
    if not rows:
        return {}
    shift, distance, ratio, tails = np.mean(rows, axis=0)
    worst = max(row[0] for row in rows)
    found = {"mean error": shift, "worst mean": worst, "W1 columns": distance, "log sd": ratio}
    found["tails"] = tails
    return {name: float(value) for name, value in found.items()}


def measures(made, test, table):
    """Return what the other benchmarks report: boosting has 60 trees, and the encoded columns."""
    boosting = HistGradientBoostingClassifier(max_iter=60, random_state=0)
    models = {"boosting": boosting, "logistic": _logistic()}
    models = {name: _on_encoded(model, table) for name, model in models.items()}
    return _distances(made, test, table) | utility(models, ("AUC",), made, test, table)


def _distances(made, test, table):
    return {
        f"{order}-way TV": float(
            marginal_total_variation(test, made, table.schema, order=order).mean()
        )
        for order in (1, 2)
    }


def _sliced_distance(made, test, schema):
    """Return the sliced W1 of one-hot labels and of numbers scaled to [0, 1]."""
    schema = _without_many_labels(schema)
    encoder = TabularEncoder(schema)
    clouds = [encoder.fit_transform(frame[list(schema)]) for frame in (made, test)]
    for name, column in schema.items():
        if isinstance(column, Numeric | Datetime):
            value = encoder.blocks_[name].start
            for cloud in clouds:
                cloud[:, value] = (cloud[:, value] + 1) / 2
    return sliced_wasserstein_distance(*clouds, p=1, n_projections=200, random_state=0)


_SCORERS = {"AUC": "roc_auc", "accuracy": "accuracy"}


def utility(models, names, made, test, table):
    """Return the scores on test records of models that learned from synthetic ones."""
    found = {}
    for kind, model in models.items():
        with warnings.catch_warnings():
            # scikit-learn's own, on the way a penalty is declared, differ by version.
            warnings.simplefilter("ignore", FutureWarning)
            result = train_synthetic_test_real(
                model,
                made,
                test,
                target=table.target,
                target_transform=table.is_positive,
                scoring=[_SCORERS[name] for name in names],
            )
        found |= {f"{name} {kind}": float(result[_SCORERS[name]]) for name in names}
    return found


def _logistic():
    return LogisticRegression(max_iter=2000)


def _on_encoded(model, table):
    rest = {name: column for name, column in table.schema.items() if name != table.target}
    rest = _without_many_labels(rest)
    chosen = FunctionTransformer(partial(_chosen, names=list(rest)))
    return make_pipeline(chosen, TabularEncoder(rest), model)


def _chosen(frame, names):
    return frame[names]


def _without_many_labels(columns):
    return Schema({name: column for name, column in columns.items() if not _has_many(column)})


def _has_many(column):
    return isinstance(column, Categorical | Ordinal) and len(column.labels) > MOST_LABELS


def _with_categories(frame, schema):
    kinds = {
        name: pd.CategoricalDtype(list(schema[name].labels))
        for name in frame.columns
        if isinstance(schema[name], Categorical | Ordinal)
    }
    frame = frame.astype(kinds)
    many = [name for name in frame.columns if _has_many(schema[name])]
    return frame.assign(**{name: frame[name].cat.codes for name in many})


def summarize(rows, by=("table", "model", "labels", "epsilon")):
    """Return the mean and the standard deviation over seeds, and each seed of the headlines.

    Numbers have five digits; what a table does not have, such as rare labels, is left out.
    """
    frame = pd.DataFrame(rows).drop(columns="seed")
    groups = frame.groupby(list(by), sort=False)
    means, spreads = groups.mean(), groups.std(ddof=0)
    spreads = spreads.drop(columns=[name for name in COSTS if name in spreads])
    summary = means.join(spreads.add_suffix(" sd"))
    summary.insert(0, "seeds", groups.size())
    for name in [name for name in HEADLINES if name in frame]:
        summary[f"{name} each"] = groups[name].agg(list)
    return [_rounded(row) for row in summary.reset_index().to_dict("records")]


def _rounded(row):
    """Return a row of five digits, without what is not a number."""
    found = {}
    for name, value in row.items():
        if isinstance(value, list):
            found[name] = [float(f"{item:.5g}") for item in value]
        elif not isinstance(value, float):
            found[name] = value
        elif not np.isnan(value):
            found[name] = float(f"{value:.5g}")
    return found
