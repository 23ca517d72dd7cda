"""Tables of five and of eight columns, quick samplers, and a look at what is let out of a fit."""

import copy
import math
import warnings
from functools import cache
from types import SimpleNamespace
from unittest.mock import patch

import numpy as np
import pandas as pd
from dp_accounting.pld import privacy_loss_distribution
from scipy.stats import norm

from sklearn_dpgen.mechanisms import GaussianSequenceMechanism
from sklearn_dpgen.mechanisms._sequence import GaussianSequenceRun
from sklearn_dpgen.schema import Categorical, Datetime, Numeric, Ordinal, Schema
from sklearn_dpgen.tables import (
    TableSampler,
    _privacy_plan,
)
from sklearn_dpgen.tables._records import _Records
from sklearn_dpgen.utils._random import NoiseSource

JOBS = ["baker", "nurse", "pilot"]
SCHEMA = Schema(
    {
        "age": Numeric(0, 100, integer=True),
        "pay": Numeric(0, 10, nullable=True),
        "job": Categorical(JOBS),
        "level": Ordinal([1, 2, 3]),
        "day": Datetime("2020-01-01", "2020-12-31", resolution="D"),
    }
)
NAMES = list(SCHEMA)
# Two records that differ in every column, whatever its bins and groups.
LOW = [0, 0.0, "baker", 1, pd.Timestamp("2020-01-01")]
HIGH = [100, 10.0, "pilot", 3, pd.Timestamp("2020-12-31")]
# Three columns more, so that there are pairs and triples to choose from.
WIDE = Schema(dict(SCHEMA) | {"x": Ordinal([0, 1]), "y": Ordinal([0, 1, 2]), "z": Ordinal([0, 1])})
WIDE_HIGH = [*HIGH, 1, 2, 1]
# A law that is fitted well.
LARGE = {"population_size": 10_000, "max_iter": 30}
AUTO = {"schema": WIDE, "marginals": "auto"}
# Calibration takes longer than such a fit.
MECHANISM = cache(GaussianSequenceMechanism)


def hasten(monkeypatch):
    """Make each plan once; select at most three pairs and five triples."""
    monkeypatch.setattr(_privacy_plan, "GaussianSequenceMechanism", MECHANISM)
    monkeypatch.setattr(_privacy_plan, "_MOST_PAIRS", 3)
    monkeypatch.setattr(_privacy_plan, "_MOST_INTERACTIONS", 5)


def afford(monkeypatch):
    """Let noise leave everything to tell, so that each selection that is paid for is made."""
    monkeypatch.setattr(_privacy_plan, "affordable_marginals", lambda *args: 1 << 30)


def make(epsilon=8.0, **options):
    """Return a sampler that runs through in milliseconds, of all pairs in few bins."""
    small = {"marginals": "pairs", "n_bins": 4, "population_size": 20, "max_iter": 2}
    small |= {"schema": SCHEMA, "random_state": 0, "device": "cpu"}
    return TableSampler(epsilon, **(small | options))


def table(n=600, seed=0):
    """Return records of which the first is the lowest that there is."""
    rng = np.random.default_rng(seed)
    columns = {
        "age": rng.integers(10, 60, size=n),
        "pay": np.where(rng.uniform(size=n) < 0.3, np.nan, rng.uniform(0, 7, size=n)),
        "job": rng.choice(JOBS[:2], size=n, p=[0.7, 0.3]).astype(object),
        "level": rng.choice([1, 2], size=n),
        "day": np.datetime64("2020-02-01", "us") + rng.integers(200, size=n).astype("m8[D]"),
    }
    frame = pd.DataFrame(columns)
    return replaced(frame, 0, LOW)


def wide(n=600, seed=0):
    """Return such records of eight columns; z is x or its opposite, by whether y is 0."""
    frame, rng = table(n, seed), np.random.default_rng([seed, 1])
    x, y = rng.integers(2, size=n), rng.integers(3, size=n)
    frame = frame.assign(x=x, y=y, z=x ^ (y == 0))
    return replaced(frame, 0, [*LOW, 0, 0, 0])


def replaced(frame, row, record):
    """Return a table with another record in one row."""
    other = frame.copy()
    other.loc[row] = record
    return other.astype(frame.dtypes)


def bin_of(frame, name):
    """Return the category of each record of :func:`table` in a column: of four equal bins."""
    column = frame[name]
    if name == "job":
        return column.map(JOBS.index).to_numpy()
    if name == "level":
        return column.to_numpy() - 1
    if name == "day":
        return np.digitize((column - pd.Timestamp("2020-01-01")).dt.days, [92, 183, 275])
    if name == "age":
        return np.digitize(column.clip(0, 100), [26, 51, 76])
    return np.where(column.isna(), 4, np.digitize(column, [2.5, 5, 7.5]))


def counted(part, frame):
    """Return the exact counts of a released table, in its groups of bins."""
    counts = np.zeros(part.counts.shape)
    pairs = zip(part.columns, part.groups, strict=True)
    np.add.at(counts, tuple(groups[bin_of(frame, name)] for name, groups in pairs), 1)
    return counts


class Unlike(Exception):  # noqa: N818
    """What was let out has no place in the outputs that are given."""


class Constant(NoiseSource):
    """A noise source of which every normal draw is the same, and uniform ones are as given."""

    def __init__(self, value=0.0, uniform=0.5):
        super().__init__()
        self.value, self.uniform_draws = value, uniform

    def normal(self, size):
        return np.full(size, self.value)

    def _uniform(self, size):
        return np.broadcast_to(self.uniform_draws, size)


# As they are: a trial of the noise is no release.
RELEASE, SELECT = GaussianSequenceRun.release, GaussianSequenceRun.select


def noise_of_release(run):
    """Return the standard deviation of the noise of the next release, by trying it."""
    return RELEASE(copy.deepcopy(run), np.zeros(1), Constant(1e6))[0] / 1e6


def noise_of_selection(run):
    """Return the scale of Gumbel noise, by the gap of scores at which draws are outweighed."""
    source, gap = Constant(uniform=np.array([0.75, 0.25])), math.log(math.log(4) / math.log(4 / 3))
    low, high = 1e-9, 1e9
    for _ in range(80):
        middle = math.sqrt(low * high)
        (first,) = SELECT(copy.deepcopy(run), np.array([0.0, middle]), source)
        low, high = (middle, high) if first == 0 else (low, middle)
    return middle / gap


def listen(sampler, X, given=()):
    """Fit, and note what is released and selected, and of which tables.

    Parameters
    ----------
    sampler : TableSampler
    X : data frame
    given : sequence of steps
        Of another fit: the first steps let out what these did.

    Returns
    -------
    SimpleNamespace
        With the fitted ``sampler``, its ``run``, the ``warnings``, the tables that were ``asked``
        for, columns and groups of each, and ``steps``: each with its ``kind``, the ``value`` that
        went in, the ``scale`` and the standard ``draws`` of the noise, and ``out``.
    """
    steps, found = [], SimpleNamespace(sampler=sampler, asked=[])
    start, tables = GaussianSequenceRun.__init__, _Records.marginal_counts

    def watch_start(self, mechanism):
        found.run = self
        start(self, mechanism)

    def note(step):
        if len(steps) < len(given):
            forced = given[len(steps)]
            if (forced.kind, forced.out.shape) != (step.kind, step.out.shape):
                raise Unlike
            step.out = forced.out.copy()
        steps.append(step)
        return step.out

    def watch_release(self, value, noise):
        step = SimpleNamespace(kind="release", value=value.copy(), scale=noise_of_release(self))
        bound = copy.deepcopy(noise).bind("gaussian", self._scales[0], value)
        step.draws = bound.normal(value.shape)
        step.out = RELEASE(self, value, noise)
        return note(step)

    def watch_select(self, scores, noise, *, count=1):
        step = SimpleNamespace(kind="select", value=scores.copy(), scale=noise_of_selection(self))
        bound = copy.deepcopy(noise).bind("largest", self._selection._scale, count, scores)
        step.draws = bound.uniform(scores.shape)
        step.out = SELECT(self, scores, noise, count=count)
        return note(step)

    def watch_counts(self, marginals):
        groups = [[part.tolist() for part in one.groups] for one in marginals]
        found.asked.append([(one.columns, g) for one, g in zip(marginals, groups, strict=True)])
        return tables(self, marginals)

    with (
        patch.object(GaussianSequenceRun, "__init__", watch_start),
        patch.object(GaussianSequenceRun, "release", watch_release),
        patch.object(GaussianSequenceRun, "select", watch_select),
        patch.object(_Records, "marginal_counts", watch_counts),
        warnings.catch_warnings(record=True) as caught,
    ):
        warnings.simplefilter("always")
        sampler.fit(X)
    found.steps, found.warnings = steps, [str(one.message) for one in caught]
    return found


def same(first, second):
    """Return whether two fitted samplers have the same law."""
    return all(map(np.array_equal, *map(law_parts, (first, second))))


def law_parts(sampler):
    """Return all arrays of a fitted law."""
    law = sampler.law_
    parts = [*law.blocks, *law.shares]
    for one in law.conditionals:
        parts += [np.array(one.column), one.base]
        for term in one.terms:
            parts += [np.array(term.parents), *term.groups, term.logits]
    return parts


# What releases cost.


def most(neighbours):
    """Return the largest l2 change of a vector in which a record has norm 1."""
    return math.sqrt(2) if neighbours == "replace_one" else 1.0


def most_of_scores(neighbours):
    """Return the largest change of an l1 distance of tables: of two cells, or of one, by 1."""
    return 2.0 if neighbours == "replace_one" else 1.0


def selections_delta(epsilon0, n):
    """Return the profile of n adaptive selections, by a search over pairs of laws at each."""
    losses = n * epsilon0 * np.linspace(-1, 1, 3001)
    t = np.linspace(0, epsilon0, 101)[:, None]
    q = np.expm1(t - epsilon0) / math.expm1(-epsilon0)

    def none(epsilon):
        return np.maximum(-np.expm1(np.minimum(epsilon, 0.0)), 0.0)

    delta = none
    for _ in range(n):
        values = (q * delta(losses - t) + (1 - q) * delta(losses + epsilon0 - t)).max(axis=0)

        def delta(epsilon, values=values):
            inside = np.interp(epsilon, losses, values)
            return np.where(np.abs(epsilon) > losses[-1], none(epsilon), inside)

    return delta


def exact_delta(epsilon, mu, epsilon0=1.0, n=0):
    """Return δ of Gaussian releases of μ together and n selections of a range ε₀ of the loss."""
    z = np.linspace(-12, 12, 4801)
    weights = norm.pdf(z) / norm.pdf(z).sum()
    return weights @ selections_delta(epsilon0, n)(epsilon - mu * z - mu * mu / 2)


def library_delta(epsilon, mu, epsilon0, n):
    """Return at most δ, by dp_accounting, of n selections between two, chosen in advance."""
    t = 0.6 * epsilon0
    q = math.expm1(t - epsilon0) / math.expm1(-epsilon0)
    upper = {0: math.log(q), 1: math.log1p(-q)}
    lower = {0: math.log(q) - t, 1: math.log1p(-q) + epsilon0 - t}
    law = privacy_loss_distribution.from_two_probability_mass_functions(
        lower, upper, value_discretization_interval=1e-3, pessimistic_estimate=False
    ).self_compose(n)
    gaussian = privacy_loss_distribution.from_gaussian_mechanism(
        1 / mu, value_discretization_interval=1e-3, pessimistic_estimate=False
    )
    return law.compose(gaussian).get_delta_for_epsilon(epsilon)
