"""TableSampler, broken: each function lets a fit tell more of a record than is paid for."""

from dataclasses import replace
from types import SimpleNamespace

import numpy as np
from sampler_tables import MECHANISM

from sklearn_dpgen.mechanisms._sequence import GaussianSequenceRun
from sklearn_dpgen.tables import (
    TableSampler,
    _privacy_plan,
    _releases,
    _sampler_plan,
    _table_sampler,
)
from sklearn_dpgen.tables._column_trees import ColumnTree
from sklearn_dpgen.tables._log_linear_fit import ChainFit
from sklearn_dpgen.tables._privacy_plan import MarginalsPlan, Round
from sklearn_dpgen.tables._records import _Records
from sklearn_dpgen.tables._releases import Measurements
from sklearn_dpgen.tables._table_counter import CodeCounter

# Broken variants: each lets a record count for more.


def counted_twice(monkeypatch):
    count = _Records.marginal_counts

    def twice(*args):
        *tables, last = count(*args)
        return [*tables, 2 * last]

    monkeypatch.setattr(_Records, "marginal_counts", twice)


def read_twice(monkeypatch):
    """Count a block again, as after a failure of which nothing was taken back."""
    count = CodeCounter.count_codes

    def twice(self, *args):
        count(self, *args)
        return count(self, *args)

    monkeypatch.setattr(CodeCounter, "count_codes", twice)


def in_two_cells(monkeypatch):
    count = _Records.marginal_counts

    def both(*args):
        return [table + np.roll(table, 1, axis=-1) for table in count(*args)]

    monkeypatch.setattr(_Records, "marginal_counts", both)


def in_two_leaves(monkeypatch):
    count = ColumnTree.counts

    def both(self, leaves):
        halves = np.zeros(len(leaves))
        np.add.at(halves, np.arange(len(leaves)) // 2, leaves)
        return count(self, leaves) + count(self, halves)

    monkeypatch.setattr(ColumnTree, "counts", both)


def levels_forgotten(monkeypatch):
    release = _releases.release_singles

    def forgetful(leaves, trees, *args):
        flat = [SimpleNamespace(counts=t.counts, n_levels=1, weight=t.weight) for t in trees]
        return release(leaves, flat, *args)

    monkeypatch.setattr(_releases, "release_singles", forgetful)


def weights_as_given(monkeypatch):
    def unnormalized(tables, weights, release):
        parts = [w * table.ravel() for w, table in zip(weights, tables, strict=True)]
        release(np.concatenate(parts))
        return tables, np.ones(len(tables))

    monkeypatch.setattr(_releases, "release_marginals", unnormalized)


# Broken variants: each takes less noise than its share.


def noise_halved(monkeypatch):
    start = GaussianSequenceRun.__init__

    def halve(self, mechanism):
        start(self, mechanism)
        self._scales = [scale / 2 for scale in self._scales]

    monkeypatch.setattr(GaussianSequenceRun, "__init__", halve)


def last_noise_forgotten(monkeypatch):
    start = GaussianSequenceRun.__init__

    def forget(self, mechanism):
        start(self, mechanism)
        self._scales[-1] /= 100

    monkeypatch.setattr(GaussianSequenceRun, "__init__", forget)


def selections_without_noise(monkeypatch):
    start = GaussianSequenceRun.__init__

    def forget(self, mechanism):
        start(self, mechanism)
        if self._selection is not None:
            self._selection._scale = 0.0

    monkeypatch.setattr(GaussianSequenceRun, "__init__", forget)


def half_the_range(monkeypatch):
    def halved(*args, score_range=None, **options):
        return MECHANISM(*args, score_range=score_range and score_range / 2, **options)

    monkeypatch.setattr(_privacy_plan, "GaussianSequenceMechanism", halved)


def selections_of_one_round(monkeypatch):
    """Price the largest round alone, and let all of them select."""
    count = MarginalsPlan.n_selections.fget
    start = GaussianSequenceRun.__init__

    def price(self):
        return max(part.n_selected or 0 for part in self.rounds) if count(self) else 0

    def allow(self, mechanism):
        start(self, mechanism)
        if self._selection is not None:
            self._selection._n_left = 1 << 30

    monkeypatch.setattr(MarginalsPlan, "n_selections", property(price))
    monkeypatch.setattr(GaussianSequenceRun, "__init__", allow)


# Broken variants: each lets something out beside what is released and selected.


def note_records(monkeypatch):
    """Return a list that collects the records of each fit."""
    read, found = _table_sampler.open_records, []

    def watch(*args, **options):
        found.append(read(*args, **options))
        return found[-1]

    monkeypatch.setattr(_table_sampler, "open_records", watch)
    return found


def tell_length(monkeypatch):
    found = note_records(monkeypatch)
    monkeypatch.setattr(_releases, "total_records", lambda *args: float(found[-1].n_records))


def tell_length_by_the_plan(monkeypatch):
    found, plan = note_records(monkeypatch), _sampler_plan.plan_rounds

    def leak(*args, **options):
        return plan(*args, **options | {"n_records": found[-1].n_records})

    monkeypatch.setattr(_sampler_plan, "plan_rounds", leak)


def tell_length_by_groups(monkeypatch):
    found, affordable = note_records(monkeypatch), _releases.affordable_cells
    monkeypatch.setattr(
        _releases,
        "affordable_cells",
        lambda n_records, *args: affordable(found[-1].n_records, *args),
    )


def tell_length_by_rounds(monkeypatch):
    found, affordable = note_records(monkeypatch), _releases.affordable_pairs
    monkeypatch.setattr(
        _releases,
        "affordable_pairs",
        lambda n_records, *args: affordable(found[-1].n_records, *args),
    )


def tell_balance(monkeypatch):
    """Let the weights of the pairs of targets follow from how rare a value truly is."""
    found = note_records(monkeypatch)

    def leak(self, column):
        codes = found[-1]._codes[column]
        return float(codes.mean()) / (1 + int(codes.max()))

    monkeypatch.setattr(Measurements, "balance", leak)


def tell_length_by_warnings(monkeypatch):
    found, warn = note_records(monkeypatch), _sampler_plan.warn_of_noise
    monkeypatch.setattr(
        _sampler_plan,
        "warn_of_noise",
        lambda n_records, *args, **words: warn(found[-1].n_records, *args, **words),
    )


def tell_bins(monkeypatch):
    count, find, exact = ColumnTree.counts, ColumnTree.cells, {}

    def watch(self, *args):
        exact[self] = count(self, *args)
        return exact[self]

    monkeypatch.setattr(ColumnTree, "counts", watch)
    monkeypatch.setattr(
        ColumnTree, "cells", lambda self, noisy, *args: find(self, exact[self], *args)
    )


def tell_groups(monkeypatch):
    measure, exact = _table_sampler.measure_columns, []
    blocks = _table_sampler.ColumnBlocks.of

    def watch(*args, **options):
        cells, *rest, bins, marginals = measure(*args, **options)
        exact[:] = [part.shares for part in cells]
        for j, leaves in args[0].items():
            exact[j] = np.bincount(bins[j], leaves, len(exact[j])) / leaves.sum()
        return cells, *rest, bins, marginals

    monkeypatch.setattr(_table_sampler, "measure_columns", watch)
    monkeypatch.setattr(
        _table_sampler.ColumnBlocks, "of", lambda encoder, shares: blocks(encoder, exact)
    )


def tell_marginals(monkeypatch):
    """Keep the exact counts of groups of single columns."""
    measure = _table_sampler.measure_columns

    def leak(*args, **options):
        *rest, bins, marginals = measure(*args, **options)
        places, exact = [list(rest[2].columns_).index(part.columns[0]) for part in marginals], []
        for j, part in zip(places, marginals, strict=True):
            counts = np.bincount(part.groups[0][bins[j]], args[0][j], len(part.counts))
            exact.append(replace(part, counts=counts))
        return *rest, bins, exact

    monkeypatch.setattr(_table_sampler, "measure_columns", leak)


def tell_counts(monkeypatch):
    release = _releases.release_marginals

    def leak(tables, *args):
        return tables, release(tables, *args)[1]

    monkeypatch.setattr(_releases, "release_marginals", leak)


def tell_gaps(monkeypatch):
    """Let the ridge of a table follow from exact counts."""
    count, exact, add = _Records.marginal_counts, [], Measurements.add

    def watch(self, marginals):
        exact.extend(zip(marginals, count(self, marginals), strict=True))
        return [found for _, found in exact[-len(marginals) :]]

    def leak(self, part, counts, noise_scale, expected):
        (own,) = [found for one, found in exact if one is part]
        add(self, part, counts, noise_scale, own)

    monkeypatch.setattr(_Records, "marginal_counts", watch)
    monkeypatch.setattr(Measurements, "add", leak)


def tell_order(monkeypatch):
    """Turn the list of candidates by what the records hold."""
    found, measure = note_records(monkeypatch), _table_sampler.measure_rounds

    def leak(count, plan, *args, **options):
        turn = int(found[-1]._codes[0].sum())
        rounds = tuple(
            Round(
                one.candidates[turn % len(one.candidates) :]
                + one.candidates[: turn % len(one.candidates)],
                one.share,
                one.n_selected,
            )
            for one in plan.rounds
        )
        measure(
            count,
            MarginalsPlan(plan.epsilon, plan.delta, plan.neighbours, rounds),
            *args,
            **options,
        )

    monkeypatch.setattr(_table_sampler, "measure_rounds", leak)


def tell_seed(monkeypatch):
    found, law = note_records(monkeypatch), ChainFit.distribution

    def leak(self, domain, seed):
        return law(self, domain, [int(part.sum()) for part in found[-1]._codes])

    monkeypatch.setattr(ChainFit, "distribution", leak)


def keep_records(monkeypatch):
    """Pickle records with the sampler."""
    fit = TableSampler.fit

    def leak(self, X):
        fit(self, X)._records = X.to_numpy()
        return self

    monkeypatch.setattr(TableSampler, "fit", leak)
