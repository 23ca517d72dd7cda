"""Tables of five columns, quick samplers of them, and a look at all that is let out of a fit."""

import copy
import math
from functools import cache
from types import SimpleNamespace
from unittest.mock import patch

import numpy as np
import pandas as pd
from dp_accounting.pld import privacy_loss_distribution
from scipy.stats import norm

from sklearn_dpgen.mechanisms import GaussianSequenceMechanism, GaussianSequenceRun
from sklearn_dpgen.schema import Categorical, Datetime, Numeric, Ordinal, Schema
from sklearn_dpgen.tables import (
    SlicedMeasureSampler,
    _column_measurements,
    _population_fit,
    _privacy_plan,
    _releases,
    _selection,
    _sliced_measure_sampler,
)
from sklearn_dpgen.tables._column_trees import ColumnTree

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
N_PAIRS = 10
# Two records that differ in every column, whatever its bins.
LOW = [0, 0.0, "baker", 1, pd.Timestamp("2020-01-01")]
HIGH = [100, 10.0, "pilot", 3, pd.Timestamp("2020-12-31")]
# Three selections in two rounds.
ADAPTIVE = {"slices": "adaptive", "n_slices": 3, "n_rounds": 2}
# Calibration takes longer than such a fit.
MECHANISM = cache(GaussianSequenceMechanism)


def hasten(monkeypatch):
    """Make reports quickly, and each plan once."""
    # Looking up the versions of libraries takes longer than such a fit.
    monkeypatch.setattr("sklearn_dpgen.accounting._report.metadata.version", lambda name: "0")
    monkeypatch.setattr(_privacy_plan, "GaussianSequenceMechanism", MECHANISM)


def make(epsilon=1.0, **options):
    """Return a sampler that runs through in milliseconds, of all pairs in few bins."""
    small = {"slices": "pairs", "n_bins": 4, "population_size": 20, "max_iter": 5}
    small |= {"schema": SCHEMA, "random_state": 0, "device": "cpu"}
    return SlicedMeasureSampler(epsilon, **(small | options))


def table(n=60, seed=0):
    """Return records of which the first is the lowest that there is."""
    rng = np.random.default_rng(seed)
    columns = {
        "age": rng.integers(10, 60, size=n),
        "pay": np.where(rng.uniform(size=n) < 0.3, np.nan, rng.uniform(0, 7, size=n)),
        "job": rng.choice(JOBS[:2], size=n).astype(object),
        "level": rng.choice([1, 2], size=n),
        "day": np.datetime64("2020-02-01", "us") + rng.integers(200, size=n).astype("m8[D]"),
    }
    frame = pd.DataFrame(columns)
    return replaced(frame, 0, LOW)


def replaced(frame, row, record):
    """Return a table with another record in one row."""
    other = frame.copy()
    other.loc[row] = record
    return other.astype(frame.dtypes)


class Unlike(Exception):  # noqa: N818
    """What was let out has no place in the outputs that are given."""


def listen(sampler, X, given=()):
    """Fit, and note what is released and selected.

    Parameters
    ----------
    sampler : SlicedMeasureSampler
    X : data frame
    given : sequence of steps
        Of another fit: the first steps let out what these did.

    Returns
    -------
    SimpleNamespace
        With the fitted ``sampler``, its ``mechanism`` and ``run``, and ``steps``: each with its
        ``kind``, the ``value`` that went in, the ``scale`` and the standard ``draws`` of the noise,
        and ``out``.
    """
    steps, found = [], SimpleNamespace(sampler=sampler)
    start, release = GaussianSequenceRun.__init__, GaussianSequenceRun.release
    select = GaussianSequenceRun.select

    def watch_start(self, mechanism):
        found.run, found.mechanism = self, mechanism
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
        step = SimpleNamespace(kind="release", value=value.copy(), scale=self._scales[0])
        step.draws = copy.deepcopy(noise).normal(value.shape)
        step.out = release(self, value, noise)
        return note(step)

    def watch_select(self, scores, noise, *, count=1):
        step = SimpleNamespace(kind="select", value=scores.copy(), scale=self._selection._scale)
        step.draws = copy.deepcopy(noise).uniform(scores.shape)
        step.out = select(self, scores, noise, count=count)
        return note(step)

    with (
        patch.object(GaussianSequenceRun, "__init__", watch_start),
        patch.object(GaussianSequenceRun, "release", watch_release),
        patch.object(GaussianSequenceRun, "select", watch_select),
    ):
        sampler.fit(X)
    found.steps = steps
    return found


def same(first, second):
    """Return whether two fitted samplers have the same law."""
    return np.array_equal(first.law_.probabilities, second.law_.probabilities)


# What releases cost.


def most(neighbours):
    """Return the largest l2 change of a vector in which a record has norm 1."""
    return math.sqrt(2) if neighbours == "replace_one" else 1.0


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
    """Return δ by dp_accounting of n selections between two, chosen in advance."""
    t = 0.6 * epsilon0
    q = math.expm1(t - epsilon0) / math.expm1(-epsilon0)
    upper = {0: math.log(q), 1: math.log1p(-q)}
    lower = {0: math.log(q) - t, 1: math.log1p(-q) + epsilon0 - t}
    law = privacy_loss_distribution.from_two_probability_mass_functions(
        lower, upper, value_discretization_interval=1e-3
    ).self_compose(n)
    gaussian = privacy_loss_distribution.from_gaussian_mechanism(
        1 / mu, value_discretization_interval=1e-3
    )
    return law.compose(gaussian).get_delta_for_epsilon(epsilon)


# Broken variants: each lets a record count for more.


def counted_twice(monkeypatch):
    count = _sliced_measure_sampler.slice_counts

    def twice(*args):
        *tables, last = count(*args)
        return [*tables, 2 * last]

    monkeypatch.setattr(_sliced_measure_sampler, "slice_counts", twice)


def in_two_leaves(monkeypatch):
    count = ColumnTree.counts

    def both(self, codes):
        return count(self, codes) + count(self, (codes + self.n_values // 2) % self.n_values)

    monkeypatch.setattr(ColumnTree, "counts", both)


def levels_forgotten(monkeypatch):
    release = _releases.release_singles

    def forgetful(codes, trees, *args):
        return release(codes, [SimpleNamespace(counts=t.counts, n_levels=1) for t in trees], *args)

    monkeypatch.setattr(_column_measurements, "release_singles", forgetful)


def weights_as_given(monkeypatch):
    def unnormalized(tables, weights, release):
        parts = [w * table.ravel() for w, table in zip(weights, tables, strict=True)]
        release(np.concatenate(parts))
        return tables, np.ones(len(tables))

    monkeypatch.setattr(_selection, "release_slices", unnormalized)


# Broken variants: each lets something out beside what is released and selected.


def tell_length(monkeypatch):
    encode, lengths = _sliced_measure_sampler.encode_codes, []

    def watch(*args):
        codes = encode(*args)
        lengths.append(float(codes.n_records))
        return codes

    monkeypatch.setattr(_sliced_measure_sampler, "encode_codes", watch)
    monkeypatch.setattr(_column_measurements, "total_records", lambda *args: lengths[-1])


def tell_bins(monkeypatch):
    count, find, exact = ColumnTree.counts, ColumnTree.bins, {}

    def watch(self, codes):
        exact[self] = count(self, codes)
        return exact[self]

    monkeypatch.setattr(ColumnTree, "counts", watch)
    monkeypatch.setattr(
        ColumnTree, "bins", lambda self, noisy, scale: find(self, exact[self], scale)
    )


def tell_counts(monkeypatch):
    release = _selection.release_slices

    def leak(tables, *args):
        return tables, release(tables, *args)[1]

    monkeypatch.setattr(_selection, "release_slices", leak)


def tell_order(monkeypatch):
    measure = _sliced_measure_sampler.measure_rounds

    def leak(exact, slices, *args, **kwargs):
        order = np.argsort([np.linalg.norm(table) for table in exact])
        measure([exact[i] for i in order], [slices[i] for i in order], *args, **kwargs)

    monkeypatch.setattr(_sliced_measure_sampler, "measure_rounds", leak)


def tell_seed(monkeypatch):
    population = _population_fit.Population
    encode, seeds = _sliced_measure_sampler.encode_codes, []

    def watch(*args):
        seeds.append(int(encode(*args).columns[0].sum()))
        return encode(*args)

    def leak(singles, n_rows, generator, device):
        return population(singles, n_rows, generator.manual_seed(seeds[-1]), device)

    monkeypatch.setattr(_sliced_measure_sampler, "encode_codes", watch)
    monkeypatch.setattr(_population_fit, "Population", leak)
