"""Parameters chosen on private records: PrivateSearchCV, the naive best of 40, and cheaper ways.

Parts: ``choice`` and ``gradients``, what each way comes to on Adult at epsilon = 1, for tables with
good defaults and for a logistic regression with none; ``audit``, a measured lower bound
of the epsilon of the best of 40 runs, which is said to be that of one, and of PrivateSearchCV;
``price``, what random stopping leaves of the noise level of one run, beside the bounds of others;
``scores``, the exact epsilon of the best score, where all candidates are equally good.
"""

import argparse
import math
import warnings
from types import SimpleNamespace

import numpy as np
from _common import record
from _private_linear import dp_sgd
from dp_accounting.dp_event import GaussianDpEvent, RepeatAndSelectDpEvent
from dp_accounting.privacy_accountant import NeighboringRelation
from dp_accounting.rdp import RdpAccountant
from scipy.stats import beta, loguniform, norm
from sklearn.base import ClassifierMixin
from sklearn.model_selection import ParameterSampler

from sklearn_dpgen.accounting import (
    BinomialRuns,
    GaussianProfile,
    NegativeBinomialRuns,
    PoissonRuns,
    PrivacyReport,
    compose_epsilon,
    gaussian_sigma,
)
from sklearn_dpgen.accounting._selection import RandomStoppingProfile, calibrate_runs
from sklearn_dpgen.datasets import fetch_adult
from sklearn_dpgen.exceptions import NoisyCountsWarning
from sklearn_dpgen.ledger._base import PrivateEstimator
from sklearn_dpgen.model_selection import PrivateSearchCV, utility_scorer
from sklearn_dpgen.preprocessing import TabularEncoder
from sklearn_dpgen.schema import Schema
from sklearn_dpgen.tables import TableSampler

EPSILON, DELTA = 1.0, 1e-5
N_NAIVE, N_SPLIT = 40, 5
SPACE = {
    "target": ["income", None],
    "marginals": ["auto", "pairs"],
    "n_bins": ["auto", 8, 32],
    "max_iter": [3, 30],
    "population_size": [2000, 20_000],
}


class Tables:
    """Marginals of Adult for rows that predict the income, with the defaults for such tables."""

    space = SPACE
    scoring = utility_scorer("income")
    sizes = (1000, 5000, 20_000)

    def data(self, n, seed):
        """Return private records, public ones and those of the test, each with labels or None."""
        records, test = tables(n, seed)
        return (records, None), (test[:2000], None), (test[2000:], None)

    def make(self, epsilon, **parameters):
        return sampler(epsilon, **parameters)

    def values(self, model, X, y):
        return self.scoring.row_values(model, X)

    def test(self, model, X, y):
        scorer = utility_scorer("income", public_rows=True, n_synthetic=20_000, random_state=0)
        return scorer(model, X)


class NoisyLogistic(ClassifierMixin, PrivateEstimator):
    """Logistic regression by noisy gradients of all records; its defaults are a guess."""

    def __init__(
        self, learning_rate=0.1, clip=1.0, n_steps=100, *, epsilon=1.0, delta=DELTA,
        ledger=None, random_state=None,
    ):  # fmt: skip
        self.learning_rate = learning_rate
        self.clip = clip
        self.n_steps = n_steps
        self.epsilon = epsilon
        self.delta = delta
        self.ledger = ledger
        self.random_state = random_state

    def plan(self, n_samples, n_features=None):
        mu = 1 / gaussian_sigma(self.epsilon, self.delta)
        return PrivacyReport(
            name="noisy gradients",
            events=(),
            epsilon=self.epsilon,
            delta=self.delta,
            releases=((GaussianProfile(mu), 1),),
        )

    def fit(self, X, y):
        self._charge(self.plan(len(X)))
        data = SimpleNamespace(X=X, y=y, n_classes=2)
        options = {"n_steps": self.n_steps, "learning_rate": self.learning_rate, "clip": self.clip}
        rng = np.random.default_rng()
        self.coef_ = dp_sgd(
            data, self.epsilon, self.delta, rng, relation="replace", rate=1, **options
        )
        self.classes_ = np.arange(2)
        return self

    def predict(self, X):
        return (X @ self.coef_).argmax(axis=1)


class Gradients:
    """Logistic regression of Adult, with rates over four decades: no default is made for it."""

    space = {
        "learning_rate": loguniform(1e-2, 1e2),
        "clip": loguniform(1e-2, 1.0),
        "n_steps": [10, 30, 100],
    }
    scoring = "accuracy"
    sizes = (1000, 5000, 20_000)

    def data(self, n, seed):
        schema = fetch_adult().schema
        features = {k: v for k, v in schema.items() if k not in ("income", "fnlwgt")}
        encoder = TabularEncoder(Schema(features)).fit()
        parts = []
        records, test = tables(n, seed)
        for frame in (records, test[:2000], test[2000:]):
            X = encoder.transform(frame[list(features)])
            X = X / np.linalg.norm(X, axis=1, keepdims=True)
            parts.append((X, (frame["income"] == ">50K").to_numpy().astype(int)))
        return parts

    def make(self, epsilon, **parameters):
        return NoisyLogistic(epsilon=epsilon, **parameters)

    def values(self, model, X, y):
        return model.predict(X) == y

    def test(self, model, X, y):
        return float(self.values(model, X, y).mean())


def tables(n, seed):
    """Return private records, and rows of the same table that nothing is fitted on."""
    frame = fetch_adult().frame.sample(frac=1, random_state=seed).reset_index(drop=True)
    return frame[:n], frame[-10_000:]


def sampler(epsilon, **parameters):
    schema = fetch_adult().schema
    return TableSampler(epsilon, DELTA, schema=schema, **{"target": "income"} | parameters)


def draws(space, n_runs, seed):
    """Return independent draws from a space."""
    seeds = range(1000 * seed, 1000 * seed + n_runs)
    return [next(iter(ParameterSampler(space, 1, random_state=one))) for one in seeds]


def fitted(model, X, y):
    return model.fit(X) if y is None else model.fit(X, y)


def best_of(setting, records, n_runs, epsilon, seed):
    """Return the best of a fixed number of runs at a budget each, and the price of all together.

    A run is as in PrivateSearchCV: a fit on four fifths, and a noisy score on the others at the
    same price. The price is that of their composition, which is what is known to hold.
    """
    n_scored = len(records[0]) // 5
    rng, mu = np.random.default_rng(seed), 1 / gaussian_sigma(epsilon, DELTA)
    train = [part if part is None else part[n_scored:] for part in records]
    held_out = [part if part is None else part[:n_scored] for part in records]
    best, releases = (-math.inf,), []
    for parameters in draws(setting.space, n_runs, seed):
        model = fitted(setting.make(epsilon, **parameters), *train)
        score = setting.values(model, *held_out).mean() + rng.normal() / (mu * n_scored)
        releases += model.privacy_.releases
        best = max(best, (score, len(releases), model), key=lambda entry: entry[0])
    return best[2], compose_epsilon(releases, DELTA)


def searched(setting, records, n_runs, public=(None, None)):
    search = PrivateSearchCV(
        setting.make(EPSILON),
        setting.space,
        epsilon=EPSILON,
        delta=DELTA,
        n_runs=n_runs,
        scoring=setting.scoring,
    )
    search.fit(*records, X_val=public[0], y_val=public[1])
    return search.best_estimator_, search.privacy_.profile().epsilon(DELTA)


def ways(setting, records, public, seed):
    """Yield names, models, what each is said to cost, and what it does."""
    yield "defaults, whole budget", fitted(setting.make(EPSILON), *records), EPSILON, EPSILON
    (parameters,) = draws(setting.space, 1, seed)
    model = fitted(setting.make(EPSILON, **parameters), *records)
    yield "one draw, whole budget", model, EPSILON, EPSILON
    split = GaussianProfile(1 / gaussian_sigma(EPSILON, DELTA) / math.sqrt(N_SPLIT)).epsilon(DELTA)
    model, honest = best_of(setting, records, N_SPLIT, split, seed)
    yield f"best of {N_SPLIT}, composed", model, EPSILON, honest
    for n_runs in (3, 10):
        model, honest = searched(setting, records, n_runs)
        yield f"PrivateSearchCV, {n_runs} runs", model, EPSILON, honest
    model, honest = searched(setting, records, 10, public)
    yield "PrivateSearchCV, 10 runs, public scores", model, EPSILON, honest
    model, honest = best_of(setting, records, N_NAIVE, EPSILON, seed)
    yield f"naive best of {N_NAIVE}", model, EPSILON, honest
    model = fitted(setting.make(honest), *records)
    yield "defaults, at the naive price", model, honest, honest


def compare(setting, n_seeds):
    """Score each way on rows that nothing was fitted on."""
    rows = []
    for n in setting.sizes:
        found = {}
        for seed in range(n_seeds):
            records, public, test = setting.data(n, seed)
            for name, model, said, honest in ways(setting, records, public, seed):
                score = setting.test(model, *test)
                found.setdefault(name, []).append((score, said, honest))
                print(n, seed, name, f"{score:.4f} {honest:.3f}", flush=True)
        for name, values in found.items():
            scores, said, honest = np.array(values).T
            rows.append(
                {
                    "n": n,
                    "way": name,
                    "score": float(scores.mean()),
                    "sd": float(scores.std(ddof=1)),
                    "epsilon said": float(said.mean()),
                    "epsilon": float(honest.mean()),
                }
            )
    return rows


def choice():
    """Of tables, by one minus Brier's score of the income."""
    return compare(Tables(), n_seeds=5)


def gradients():
    """Of rates, clips and steps, by accuracy."""
    return compare(Gradients(), n_seeds=20)


def pool_of_candidates(n=1000, n_candidates=120, seed=0, epsilon=EPSILON, **fixed):
    """Return the mean row values of fits on the training part, and those of one record.

    The record that the two data sets differ in is held out, in one with its income and in the other
    with the other income: no fit depends on it, so that one set of fits serves both.
    """
    records, _ = tables(n, seed)
    n_scored = n // 5
    train, held_out = records[n_scored:], records[:n_scored]
    found = []
    # Known to the attacker: young, never married, so that all models are sure of a low income.
    sure = np.flatnonzero((held_out["age"] < 20) & (held_out["income"] == "<=50K"))[0]
    flipped = held_out.copy()
    flipped.loc[held_out.index[sure], "income"] = ">50K"
    for i, parameters in enumerate(draws(SPACE, n_candidates, seed)):
        # The draws for both must be the same: a score is of one fit and one sample.
        scorer = utility_scorer("income", random_state=i)
        model = sampler(epsilon, **(fixed or parameters)).fit(train)
        model_values = [scorer.row_values(model, table) for table in (held_out, flipped)]
        change = model_values[0][sure] - model_values[1][sure]
        found.append((model_values[0].mean(), change / n_scored))
    return np.array(found), n_scored


def best_scores(pool, n_scored, mu, draw_counts, rng, *, flipped, n_trials=2_000_000):
    """Return the published scores of many searches on one of the two data sets."""
    means = pool[:, 0] - pool[:, 1] * flipped
    counts = draw_counts(n_trials)
    best = np.full(n_trials, -np.inf)
    for run in range(counts.max()):
        active = counts > run
        score = means[rng.integers(len(means), size=n_trials)]
        score = score + rng.normal(size=n_trials) / (mu * n_scored)
        best = np.where(active, np.maximum(best, score), best)
    return best


def lower_bound(one, other, delta=DELTA, level=0.05):
    """Return an epsilon that data refute with confidence 1 - level, and the event that does.

    Events are halves of the line; one is chosen on the first half of the trials, and its two
    probabilities are bounded on the second, by Clopper and Pearson's intervals at half the level.
    """
    best = (0.0, None)
    half = len(one) // 2
    for sign in (1, -1):
        for first, second in ((sign * one, sign * other), (sign * other, sign * one)):
            cuts = np.quantile(second[:half], 1 - np.geomspace(1e-4, 0.5, 60))
            rates = [(np.mean(first[:half] > cut), np.mean(second[:half] > cut)) for cut in cuts]
            gains = [math.log(max(p - delta, 1e-9) / max(q, 1e-9)) for p, q in rates]
            cut = cuts[int(np.argmax(gains))]
            hits = int(np.sum(first[half:] > cut))
            false = int(np.sum(second[half:] > cut))
            n = len(one) - half
            # Four events are tried, each with two intervals.
            tail = level / 8
            p = beta.ppf(tail, hits, n - hits + 1) if hits else 0.0
            q = beta.ppf(1 - tail, false + 1, n - false)
            if p > delta:
                best = max(best, (math.log((p - delta) / q), (float(p), float(q))))
    return best


def audit():
    """Tell a record of the published score: the naive claim is refuted, and the search's is not."""
    rng = np.random.default_rng(0)
    one = 1 / gaussian_sigma(EPSILON, DELTA)
    law = PoissonRuns(10)
    probabilities = law.probabilities()
    ranks = np.arange(1, len(probabilities) + 1)
    settings = {
        "one run": (one, lambda n: np.ones(n, dtype=int), EPSILON),
        f"naive best of {N_NAIVE}": (one, lambda n: np.full(n, N_NAIVE), None),
        "PrivateSearchCV, 10 runs": (
            calibrate_runs(EPSILON, DELTA, law).run.mu,
            lambda n: rng.choice(ranks, size=n, p=probabilities / probabilities.sum()),
            EPSILON,
        ),
    }
    rows = []
    for candidates, fixed in (("drawn", {}), ("seeds of the defaults", {"max_iter": 30})):
        pool, n_scored = pool_of_candidates(**fixed)
        for name, (mu, counts, honest) in settings.items():
            parts = [
                best_scores(pool, n_scored, mu, counts, rng, flipped=flipped)
                for flipped in (False, True)
            ]
            epsilon, rates = lower_bound(*parts)
            composed = GaussianProfile(mu * math.sqrt(N_NAIVE)).epsilon(DELTA)
            rows.append(
                {
                    "candidates": candidates,
                    "way": name,
                    "epsilon said": EPSILON,
                    "epsilon, at least": float(epsilon),
                    "epsilon, at most": float(composed if honest is None else honest),
                    "true positives": rates and rates[0],
                    "false positives": rates and rates[1],
                }
            )
    return rows


def renyi(mu, runs):
    mean, shape = (runs.rate, math.inf) if isinstance(runs, PoissonRuns) else (runs.mean, runs.eta)
    orders = np.concatenate([np.linspace(1.01, 8, 300), np.geomspace(8, 5000, 300)])
    accountant = RdpAccountant(orders, neighboring_relation=NeighboringRelation.REPLACE_ONE)
    accountant.compose(RepeatAndSelectDpEvent(GaussianDpEvent(1 / mu), mean, shape))
    return float(accountant.get_epsilon(DELTA))


def largest_ratio(mu, runs):
    """Return the bound of Koskela et al. with the best constant."""
    events = np.geomspace(1e-12, 1, 200_001)
    likely = norm.sf(norm.isf(events) - mu)
    shift = (runs.log_weight(events) - runs.log_weight(likely)).max()
    return GaussianProfile(mu).epsilon(DELTA / runs.mean) + float(shift)


def price():
    rows = []
    one = 1 / gaussian_sigma(EPSILON, DELTA)
    for runs in (
        *(PoissonRuns(rate) for rate in (3, 10, 40)),
        *(NegativeBinomialRuns(gamma) for gamma in (0.3, 0.1, 0.025)),
        BinomialRuns(15, 2 / 3),
    ):
        mu = calibrate_runs(EPSILON, DELTA, runs).run.mu
        binomial = isinstance(runs, BinomialRuns)
        rows.append(
            {
                "runs": str(runs),
                "mean": runs.mean,
                "mu of a run / mu of one fit": mu / one,
                "epsilon of a run": GaussianProfile(mu).epsilon(DELTA),
                "ours": RandomStoppingProfile(GaussianProfile(mu), runs).epsilon(DELTA),
                "largest ratio": largest_ratio(mu, runs),
                "Renyi": None if binomial else renyi(mu, runs),
                "composed mean": GaussianProfile(mu * math.sqrt(runs.mean)).epsilon(DELTA),
            }
        )
    return rows


def exact_epsilon(mu, best):
    """Return the exact epsilon of publishing the best of scores that all move by mu deviations.

    ``best`` makes of the distribution function of one score that of the best one.
    """
    cells = np.linspace(-9, 9 + mu, 40_001)
    one, other = (np.diff(best(norm.cdf(cells, mean))) for mean in (mu, 0.0))

    def is_within(epsilon):
        pairs = ((one, other), (other, one))
        return all(np.maximum(p - math.exp(epsilon) * q, 0).sum() <= DELTA for p, q in pairs)

    low, high = 0.0, 50.0
    while high - low > 1e-4:
        middle = (low + high) / 2
        low, high = (low, middle) if is_within(middle) else (middle, high)
    return high


def scores():
    """The best score alone, where all candidates are equally good: what it costs exactly."""
    one = 1 / gaussian_sigma(EPSILON, DELTA)
    rows = [
        {
            "way": f"naive best of {n_runs}",
            "epsilon said": EPSILON,
            "epsilon, exactly": exact_epsilon(one, lambda F, n=n_runs: F**n),
        }
        for n_runs in (1, 5, 10, 40)
    ]
    for rate in (3, 10, 40):
        mu = calibrate_runs(EPSILON, DELTA, PoissonRuns(rate)).run.mu
        exact = exact_epsilon(mu, lambda F, rate=rate: np.expm1(rate * F) / math.expm1(rate))
        rows.append(
            {
                "way": f"random stopping, {rate} runs",
                "epsilon said": EPSILON,
                "epsilon, exactly": exact,
            }
        )
    return rows


PARTS = {part.__name__: part for part in (price, scores, audit, gradients, choice)}


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--part", choices=PARTS, nargs="*")
    warnings.simplefilter("ignore", NoisyCountsWarning)
    for name in parser.parse_args().part or PARTS:
        meta = {"epsilon": EPSILON, "delta": DELTA, "space": {k: str(v) for k, v in SPACE.items()}}
        record(f"private_search_{name}", PARTS[name](), meta)


if __name__ == "__main__":
    main()
