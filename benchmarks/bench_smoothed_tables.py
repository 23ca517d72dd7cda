"""Tables from noisy records: Adult and RAND health, epsilon 1, 10 and infinity, delta 1e-5.

Smoothed sliced Wasserstein generators beside what the same budget buys in counts: independent
columns, drawn from noisy one-way counts, of each class or of all records. `public` and `private`
labels are the income, or more than two visits to a physician; with `none` the label is a column
like the others. All columns are cut into public bins. `drawn` is the estimator with its defaults,
whose network draws categories; `mlp` has soft blocks of them.

Distances of one-way and two-way marginals to held-out records (total variation, mean over columns
and pairs), and the AUC on them of classifiers that were trained on as many synthetic records as
there are private ones. 70/30 split; mean and standard deviation over seeds. Settings were chosen
on a split of the training records.
"""

import argparse
import itertools
import time
import warnings

import numpy as np
import pandas as pd
import torch
from _common import record
from sklearn.ensemble import HistGradientBoostingClassifier
from sklearn.linear_model import LogisticRegression
from sklearn.model_selection import train_test_split
from sklearn.pipeline import make_pipeline

from sklearn_dpgen.accounting import calibrate_noise_multiplier
from sklearn_dpgen.datasets import fetch_adult, load_rand_health
from sklearn_dpgen.metrics import marginal_total_variation, train_synthetic_test_real
from sklearn_dpgen.preprocessing import TabularEncoder
from sklearn_dpgen.schema import Schema
from sklearn_dpgen.smoothed import SmoothedSlicedWassersteinGenerator

DELTA = 1e-5
EPSILONS = (1.0, 10.0, np.inf)
# Model, labels, budgets.
CASES = (
    ("drawn", "public", EPSILONS),
    ("marginals", "public", EPSILONS),
    ("mlp", "public", (1.0, 10.0)),
    ("drawn", "private", (1.0, 10.0)),
    ("marginals", "private", (1.0, 10.0)),
    ("drawn", "none", (1.0, 10.0)),
    ("marginals", "none", (1.0, 10.0)),
)


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
    return data.frame, data.schema, bins, "income", lambda income: np.asarray(income) == ">50K"


def rand_health():
    data = load_rand_health()
    bins = {
        "mdvis": [0, 1, 2, 3, 4, 5, 7, 10, 14, 24],
        "lpi": 20,
        "fmde": 20,
        "physlm": [0, 0.05, 0.95, 1],
        "disea": [0, 3, 6, 9, 12, 15, 18, 21, 24, 30, 36, 60],
    }
    return data.frame, data.schema, bins, "mdvis", lambda visits: np.asarray(visits) > 2


TABLES = {"adult": adult, "rand health": rand_health}


def generated(model, labels, epsilon, X, y, domain, seed, args):
    """Return hard one-hot records and labels, as many as were given."""
    generator = SmoothedSlicedWassersteinGenerator(
        epsilon,
        DELTA,
        domain=domain,
        labels="public" if labels == "none" else labels,
        classes=None if labels == "none" else [0, 1],
        # A record with a private label has a slot in each class, and takes as long as two.
        n_epochs=args.epochs / 2 if labels == "private" else args.epochs,
        n_projections=args.projections,
        max_iter=args.steps,
        generator="auto" if model == "drawn" else "mlp",
        random_state=seed,
    )
    generator.fit(X, None if labels == "none" else y)
    if labels == "none":
        return generator.sample(len(X), random_state=seed), y
    codes = generator.sample_labels(len(X), random_state=seed)
    return generator.sample(len(X), y=codes, random_state=seed), codes


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


def synthetic(model, labels, epsilon, frame, table, seed, args):
    """Return a synthetic table of the length of a private one."""
    _, schema, bins, target, is_positive = table
    y = is_positive(frame[target]).astype(int)
    # The label says what a column of two categories holds, and leaves it out.
    is_label = labels != "none" and target not in bins
    columns = {name: column for name, column in schema.items() if not (is_label and name == target)}
    encoder = TabularEncoder(Schema(columns), bins={k: v for k, v in bins.items() if k in columns})
    X = encoder.fit_transform(frame[list(columns)])
    if model == "marginals":
        S, codes = independent(labels, epsilon, X, y, encoder.blocks_, seed)
    else:
        S, codes = generated(model, labels, epsilon, X, y, encoder.domain_, seed, args)
    made = encoder.inverse_transform(S, rng=np.random.default_rng(seed))
    if is_label:
        made[target] = np.where(codes == 1, ">50K", "<=50K")
    return made[list(frame.columns)]


def measures(made, test, table):
    _, schema, _, target, is_positive = table
    rest = Schema({name: column for name, column in schema.items() if name != target})
    models = {
        "AUC boosting": HistGradientBoostingClassifier(max_iter=60, random_state=0),
        "AUC logistic": LogisticRegression(max_iter=2000),
    }
    scores = {
        f"{order}-way TV": float(marginal_total_variation(test, made, schema, order=order).mean())
        for order in (1, 2)
    }
    for name, model in models.items():
        pipeline = make_pipeline(TabularEncoder(rest), model)
        with warnings.catch_warnings():
            # scikit-learn's own, on the way a penalty is declared, differ by version.
            warnings.simplefilter("ignore", FutureWarning)
            scores[name] = train_synthetic_test_real(
                pipeline, made, test, target=target, target_transform=is_positive
            )
    return scores


def run(name, args):
    """Return a row for each case and seed of one table."""
    table = TABLES[name]()
    train, test = train_test_split(table[0], test_size=0.3, random_state=0)
    if args.validate:
        train, test = train_test_split(train, test_size=0.3, random_state=1)
    train, test = (frame.reset_index(drop=True) for frame in (train, test))
    key = {"table": name, "model": "real", "labels": "", "epsilon": np.inf}
    rows = [key | {"seed": 0} | measures(train, test, table) | {"cpu seconds": 0.0}]
    print(rows[-1], flush=True)
    for seed, (model, labels, epsilons) in itertools.product(range(args.seeds), CASES):
        for epsilon in epsilons:
            start = time.process_time()
            made = synthetic(model, labels, epsilon, train, table, seed, args)
            seconds = time.process_time() - start
            key = {"table": name, "model": model, "labels": labels, "epsilon": epsilon}
            found = measures(made, test, table)
            rows.append(key | {"seed": seed} | found | {"cpu seconds": seconds})
            print(rows[-1], flush=True)
    return rows


def summarize(rows):
    """Return the mean and the standard deviation over seeds."""
    frame = pd.DataFrame(rows).drop(columns="seed")
    groups = frame.groupby(["table", "model", "labels", "epsilon"], sort=False)
    means, spreads = groups.mean(), groups.std(ddof=0).drop(columns="cpu seconds")
    summary = means.join(spreads.add_suffix(" sd"))
    summary.insert(0, "seeds", groups.size())
    return summary.reset_index().to_dict("records")


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--epochs", type=float, default=20)
    parser.add_argument("--projections", type=int, default=500)
    parser.add_argument("--steps", type=int, default=1000)
    parser.add_argument("--tables", nargs="+", default=list(TABLES), choices=list(TABLES))
    parser.add_argument("--validate", action="store_true", help="on training records, no results")
    args = parser.parse_args()
    torch.set_num_threads(1)
    rows = summarize([row for name in args.tables for row in run(name, args)])
    if args.validate:
        print(pd.DataFrame(rows).to_string())
    else:
        record("smoothed_tables", rows, vars(args) | {"delta": DELTA, "test share": 0.3})


if __name__ == "__main__":
    main()
