"""Labels that are not known beforehand: the power of their discovery, and fits with it.

``power``: the number of records of a label at which it is discovered with probability 1/2, for
Gaussian thresholds and for the optimal (epsilon, delta) mechanism [1]_, when the discovery has a
share of the μ² of a fit with Gaussian releases, and when it is the whole fit. Both have exactly the
same cost together with the other releases. Records are replaced, so that two labels change: the
optimal mechanism is then composed with itself, or alone calibrated at (ε/2, δ / (1 + e^{ε/2})).

``shares``: the share of the budget for the discovery, chosen on a table of its own.

``tables``: 12,000 records with labels of a Zipf distribution over 20,000. The share of records
whose label is discovered, against the same number of most frequent labels; and the total variation
between records and samples, of the labels and of their pairs with another column, against fits with
declared labels: all 20,000, or those that were discovered, as if they had been known.

.. [1] D. Desfontaines, J. Voss, B. Gipson, C. Mandayam, "Differentially private partition
   selection", PoPETs 2022, Theorem 1.
"""

import argparse
import json
import math
import warnings

import numpy as np
import pandas as pd
from _common import RESULTS, record
from scipy.optimize import brentq

from sklearn_dpgen.accounting import GaussianProfile, gaussian_sigma
from sklearn_dpgen.accounting._composition import compose_delta
from sklearn_dpgen.accounting._profiles import ApproximateProfile
from sklearn_dpgen.exceptions import NoisyCountsWarning
from sklearn_dpgen.mechanisms import GaussianSequenceMechanism
from sklearn_dpgen.schema import Categorical, Numeric, OpenCategorical, Schema
from sklearn_dpgen.tables import TableSampler, _privacy_plan

EPSILONS, DELTA = (0.1, 0.3, 1.0), 1e-6
SHARES = (0.05, 0.1, 0.2, 0.3, 1.0)
N_RECORDS, N_LABELS = 12_000, 20_000


def keep_probabilities(epsilon, delta, n):
    """Return π(0), ..., π(n) of the optimal mechanism by its closed form."""
    e = math.exp(epsilon)
    first = 1 + math.floor(math.log((e + 2 * delta - 1) / (delta * (e + 1))) / epsilon)
    at = np.arange(n + 1)
    rising = np.expm1(np.minimum(at, first) * epsilon) / math.expm1(epsilon) * delta
    last = rising[min(first, n)]
    fallen = np.exp(-np.maximum(at - first, 0) * epsilon)
    return np.minimum(
        np.where(at <= first, rising, (1 - fallen) * (1 + delta / (e - 1)) + fallen * last), 1.0
    )


def recursion(epsilon, delta, n):
    """Return the same by the recursion."""
    kept = [0.0]
    for _ in range(n):
        upper = 1 - math.exp(-epsilon) * (1 - kept[-1] - delta)
        kept.append(min(math.exp(epsilon) * kept[-1] + delta, upper, 1.0))
    return np.array(kept)


def half(epsilon, delta):
    """Return the real n at which the optimal mechanism keeps a label with probability 1/2."""
    return math.log1p(math.expm1(epsilon) / (2 * delta)) / epsilon


def optimal_half(epsilon, share):
    """Return the smallest such n, over the part of δ that the mechanism takes."""
    mu = math.sqrt(1 - share) / gaussian_sigma(epsilon, DELTA)
    found = []
    for part in (0.01, 0.03, 0.1, 0.2, 0.4):
        own = part * DELTA / 2

        def excess(epsilon0, own=own):
            releases = [(ApproximateProfile(epsilon0, own), 2)]
            releases += [(GaussianProfile(mu), 1)] if share < 1 else []
            return math.log(compose_delta(releases, epsilon) / DELTA)

        if excess(1e-4 * epsilon) < 0:
            found.append(half(brentq(excess, 1e-4 * epsilon, epsilon, rtol=1e-3), own))
    return min(found)


def power():
    """Yield the number of records that are discovered with probability 1/2."""
    for epsilon in EPSILONS:
        exact = recursion(epsilon, DELTA, 1000)
        assert np.allclose(keep_probabilities(epsilon, DELTA, 1000), exact, rtol=1e-6)
        for share in SHARES:
            shares = (share, 1 - share) if share < 1 else (1.0,)
            mechanism = GaussianSequenceMechanism(math.sqrt(2), shares, epsilon, DELTA, n_open=1)
            alone = half(epsilon / 2, DELTA / (1 + math.exp(epsilon / 2))) if share == 1 else None
            composed = optimal_half(epsilon, share)
            yield {
                "epsilon": epsilon,
                "share": share,
                "Gaussian threshold": mechanism.threshold(1.0),
                "optimal": composed if alone is None else min(composed, alone),
            }


def zipf_table(exponent, seed):
    """Return records with a label, a group that depends on it, and a number that depends on both.

    The label with index i has a share proportional to (i + 1) to the power of minus ``exponent``.
    """
    rng = np.random.default_rng(seed)
    shares = np.arange(1, N_LABELS + 1) ** -float(exponent)
    label = rng.choice(N_LABELS, N_RECORDS, p=shares / shares.sum())
    of_label = np.random.default_rng(7).dirichlet([1, 1, 1], N_LABELS)
    group = (of_label[label].cumsum(axis=1) < rng.random((N_RECORDS, 1))).sum(axis=1)
    amount = np.clip(rng.normal(20 + 20 * group + 10 * (label % 3), 8), 0, 100)
    names = np.array([f"label {i:05d}" for i in range(N_LABELS)], dtype=object)
    return pd.DataFrame({"label": names[label], "group": group, "amount": amount})


def distance(X, drawn, columns, known):
    """Return the total variation of some columns, with labels that are not known as one."""
    shares = [
        frame.assign(label=frame["label"].where(frame["label"].isin(known), "other")).value_counts(
            columns, normalize=True
        )
        for frame in (X, drawn)
    ]
    return float(shares[0].sub(shares[1], fill_value=0).abs().sum() / 2)


def _in_bins(frame):
    return frame.assign(amount=(frame["amount"] // 5).clip(upper=19))


def fit(X, column, seed, epsilon):
    """Return a fitted sampler with a declaration of the labels."""
    schema = Schema({"label": column, "group": Categorical([0, 1, 2]), "amount": Numeric(0, 100)})
    sampler = TableSampler(epsilon, DELTA, schema=schema, population_size=5000, random_state=seed)
    return sampler.fit(X)


def measures(X, model, seed):
    """Return the distances of samples from records, with all labels apart."""
    drawn = model.sample(len(X), random_state=seed)
    known = [*X["label"].unique(), *drawn["label"].unique()]
    return {
        "label": distance(X, drawn, ["label"], known),
        "label and group": distance(X, drawn, ["label", "group"], known),
        "of known labels": distance(X, drawn, ["label"], model.schema_["label"].categories),
        "group and amount": distance(*map(_in_bins, (X, drawn)), ["group", "amount"], known),
    }


def row_of(exponent, declared, found):
    """Return a row of means over seeds."""
    means = {key: float(np.mean([one[key] for one in found])) for key in found[0]}
    return {"exponent": exponent, "labels": declared} | means


def tables(exponents, n_seeds, first_seed, epsilon=1.0, others=True):
    """Yield the share of records whose label is discovered, and distances of samples."""
    for exponent in exponents:
        found = {"discovered": [], "all declared": [], "discovered, as if declared": []}
        for seed in range(first_seed, first_seed + n_seeds):
            X = zipf_table(exponent, seed)
            counts = X["label"].value_counts()
            model = fit(X, OpenCategorical(), seed, epsilon)
            labels = model.schema_["label"].categories
            covered = float(X["label"].isin(labels).mean())
            best = float(counts.iloc[: len(labels)].sum() / len(X))
            one = {"n": len(labels), "share of records": covered, "best share": best}
            found["discovered"].append(one | measures(X, model, seed))
            if not others:
                continue
            every = OpenCategorical([f"label {i:05d}" for i in range(N_LABELS)])
            for name, column in (
                ("all declared", every),
                ("discovered, as if declared", OpenCategorical(labels)),
            ):
                known = column.categories
                covered = float(X["label"].isin(known).mean())
                one = {"n": len(known), "share of records": covered, "best share": covered}
                model = fit(X, column, seed, epsilon)
                found[name].append(one | measures(X, model, seed))
        for name, own in found.items():
            if own:
                yield row_of(exponent, name, own)
                print(row_of(exponent, name, own), flush=True)


def shares(n_seeds):
    """Yield the measures of a table of its own for several shares of the budget."""
    kept = _privacy_plan._LABELS
    for share in (0.03, 0.1, 0.2, 0.3):
        _privacy_plan._LABELS = share
        for row in tables((1.2,), n_seeds, 1000, others=False):
            yield {"share": share} | row
    _privacy_plan._LABELS = kept


def main():
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--part", choices=["power", "shares", "tables"], action="append")
    parser.add_argument("--seeds", type=int, default=5)
    arguments = parser.parse_args()
    warnings.simplefilter("ignore", NoisyCountsWarning)
    parts = {
        "power": power,
        "shares": lambda: shares(arguments.seeds),
        "tables": lambda: tables((1.0, 1.5), arguments.seeds, 0),
    }
    path = RESULTS / "open_labels.json"
    rows = json.loads(path.read_text())["rows"] if path.exists() else []
    for part in arguments.part or parts:
        rows = [row for row in rows if row["part"] != part]
        rows += [{"part": part} | row for row in parts[part]()]
    meta = {
        "n_records": N_RECORDS,
        "n_labels": N_LABELS,
        "delta": DELTA,
        "epsilon of shares and tables": 1.0,
        "n_seeds": arguments.seeds,
    }
    record("open_labels", sorted(rows, key=lambda row: [*parts].index(row["part"])), meta)


if __name__ == "__main__":
    main()
