"""What all timings share: how often they run, on how many threads, and their tables.

The tables are made here or come with a dependency, so that nothing is fetched. Seeds make all
commits do the same work, in timings only: the rows are public.
"""

import functools

import numpy as np
import pandas as pd

from sklearn_dpgen.schema import Categorical, Numeric, Schema

__all__ = ["EPSILON", "DELTA", "SEED", "Timing", "adult_like", "rand_health"]

EPSILON, DELTA, SEED = 1.0, 1e-6, 0


class Timing:
    """A timing of about a second, or several: run once at a time, three to five times."""

    number = 1
    repeat = (3, 5, 20.0)
    rounds = 1
    warmup_time = 0.0
    timeout = 300.0

    def setup(self, *params):
        """Keep to one thread, then prepare what is not timed."""
        import torch

        torch.set_num_threads(1)
        self.prepare(*params)

    def prepare(self, *params):
        """Prepare what is not timed."""


@functools.cache
def adult_like():
    """Return a table of the shape of Adult, and its schema: 48,842 rows of 14 mixed columns.

    Each column depends on a hidden score, so that all pairs are dependent.
    """
    rng = np.random.default_rng(SEED)
    n = 48_842
    score = rng.standard_normal(n)
    numbers = {
        "age": (17, 90),
        "education_years": (1, 16),
        "capital_gain": (0, 99_999),
        "capital_loss": (0, 4_356),
        "hours": (1, 99),
    }
    n_labels = {
        "workclass": 8,
        "education": 16,
        "marital_status": 7,
        "occupation": 14,
        "relationship": 6,
        "race": 5,
        "sex": 2,
        "country": 41,
        "income": 2,
    }
    columns, frame = {}, {}
    for name, (low, high) in numbers.items():
        share = 1 / (1 + np.exp(-(0.7 * score + rng.standard_normal(n))))
        columns[name] = Numeric(low, high, integer=True)
        frame[name] = np.rint(low + (high - low) * share).astype(int)
    for name, size in n_labels.items():
        labels = np.array([f"{name} {i}" for i in range(size)])
        share = 1 / (1 + np.exp(-(0.7 * score + rng.standard_normal(n))))
        columns[name] = Categorical(labels.tolist())
        frame[name] = labels[np.minimum((size * share).astype(int), size - 1)]
    return pd.DataFrame(frame), Schema(columns)


@functools.cache
def rand_health():
    """Return the RAND health insurance table and its schema: 20,190 rows of 10 columns."""
    from sklearn_dpgen.datasets import load_rand_health

    data = load_rand_health()
    return data.frame, data.schema


TABLES = {"adult_like": adult_like, "rand_health": rand_health}
