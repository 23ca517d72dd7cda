"""Joint answers on a small table: their law, what is released, and broken variants."""

import itertools
import json
import math

import numpy as np
import pandas as pd
from local_privacy import log_likelihood, vertices
from scipy.stats import chi2

from sklearn_dpgen.mechanisms import JointRandomizedResponse
from sklearn_dpgen.schema import Categorical, Ordinal, Schema
from sklearn_dpgen.utils._random import NoiseSource

CATEGORIES = {"a": ["x", "y", "z"], "b": [0, 1], "c": ["p", "q", "r", "s", "t"]}
SCHEMA = Schema(
    {
        "a": Categorical(CATEGORIES["a"]),
        "b": Categorical(CATEGORIES["b"]),
        "c": Ordinal(CATEGORIES["c"]),
    }
)
# All that there are, in the order of `vertices`.
RECORDS = pd.DataFrame(itertools.product(*CATEGORIES.values()), columns=list(CATEGORIES))
KEYS = np.array([123_456_789_012_345, 2**48 - 1])


def mechanism(epsilon=1.0, kind=JointRandomizedResponse, **options):
    return kind(epsilon, schema=SCHEMA, **options).fit()


def questions(n_asked):
    """Return all the questions that are asked with the keys above, as they are released."""
    asked = itertools.combinations(CATEGORIES, n_asked)
    return [(json.dumps(names), int(key)) for names in asked for key in KEYS]


def n_cells(asked, epsilon):
    """Cells of a question, with groups as many as fit."""
    sizes = [len(CATEGORIES[name]) for name in json.loads(asked)]
    for most in range(max(sizes), 1, -1):
        cells = math.prod(min(size, most) for size in sizes)
        if cells <= max(16, 2 * (math.exp(epsilon) + 1)):
            return cells
    raise AssertionError("Two groups a column are too many.")


def responses(fitted, asked, key):
    """Return the probability of each answer (columns) of each record, by the likelihood."""
    epsilon = fitted.privacy_.epsilon
    answer = {"asked": asked, "grouping": key, "answer": 0, "epsilon": epsilon}
    first = fitted.encode_release(pd.DataFrame([{**answer, "design": fitted.design_}]))
    Y = np.repeat(first, n_cells(asked, epsilon), axis=0)
    Y[:, 0] = np.arange(len(Y))
    return np.exp(log_likelihood(fitted, vertices(fitted.domain_), Y))


def by_definition(covered, epsilon):
    """Return the responses with given cells covered, of shape (n_records, n_answers)."""
    m, K = covered.sum(axis=1, keepdims=True), covered.shape[1]
    return np.where(covered, math.exp(epsilon), 1.0) / (m * math.exp(epsilon) + K - m)


def is_private(table, epsilon, tol=1e-9):
    """Whether rows are laws of outcomes, of which no two differ by more than the budget."""
    if abs(table.sum(axis=1) - 1).max() > tol or (table < 0).any():
        return False
    return (table.max(axis=0) <= math.exp(epsilon) * (1 + tol) * table.min(axis=0)).all()


def release_law(fitted, n_asked):
    """Return the law of whole releases, {(asked, grouping, answer): of each record}."""
    asked = questions(n_asked)
    tables = {question: responses(fitted, *question) for question in asked}
    return {
        (*question, answer): tables[question][:, answer] / len(asked)
        for question in asked
        for answer in range(tables[question].shape[1])
    }


def release_counts(fitted, n):
    """Return how often each record released what, of n times, as `release_law`."""
    Y = fitted.transform(RECORDS.loc[np.repeat(RECORDS.index, n)])
    record = np.repeat(np.arange(len(RECORDS)), n)
    table = pd.crosstab(record, [Y["asked"], Y["grouping"], Y["answer"]])
    return {outcome: column.to_numpy() for outcome, column in table.items()}


def misfit(counts, law):
    """Return the p-value of the counts of releases of each record under a law, by chi-square."""
    if not counts.keys() <= law.keys():
        return 0.0
    observed = np.array([counts.get(outcome, np.zeros(len(RECORDS))) for outcome in law]).T
    expected = np.array(list(law.values())).T * observed.sum(axis=1, keepdims=True)
    # What is rare is one outcome, of all records together.
    rare = expected < 5
    seen, mean = (np.append(v[~rare], v[rare].sum()) for v in (observed, expected))
    degrees = len(mean) - len(RECORDS) if rare.any() else len(mean) - 1 - len(RECORDS)
    return chi2.sf(((seen - mean) ** 2 / np.maximum(mean, 1)).sum(), degrees)


class KeySource(NoiseSource):
    """A source that deals few keys, so that questions are repeated."""

    def integers(self, high, size):
        if np.ndim(high) == 0 and high == 2**48:
            return KEYS[super().integers(len(KEYS), size)]
        return super().integers(high, size)


class FewKeys(JointRandomizedResponse):
    """Asks questions with one of the keys above."""

    def _public(self, n):
        return KeySource(5)

    def _noise(self, X):
        return NoiseSource(6)


class AsksByRecord(FewKeys):
    """A broken variant: who has the first category is asked about its column, and else not."""

    def _ask(self, codes):
        is_first = codes[:, 0] == 0
        parts = []
        for column, mask in ((0, is_first), (2, ~is_first)):
            self._always = (column,)
            parts.append(super()._ask(codes[mask]).set_axis(np.flatnonzero(mask)))
        return pd.concat(parts).sort_index()


class KeysByRecord(FewKeys):
    """A broken variant: the key is one of the record's own."""

    def _ask(self, codes):
        self._own = KEYS[codes.sum(axis=1) % 2]
        return super()._ask(codes)

    def _public(self, n):
        source = super()._public(n)
        source.integers = lambda high, size: self._own
        return source


class GroupsByRecord(FewKeys):
    """A broken variant: there are more groups for a record with a rare category."""

    def _ask(self, codes):
        is_rare = codes[:, 2] == 4
        limit, parts = self._limit, []
        for most, mask in ((limit, is_rare), (limit // 2, ~is_rare)):
            self._limit = most
            parts.append(super()._ask(codes[mask]).set_axis(np.flatnonzero(mask)))
        self._limit = limit
        return pd.concat(parts).sort_index()
