"""TableSampler: what a fitted, or an interrupted, object holds."""

import gc
import weakref

import numpy as np
import pandas as pd
import pytest
from sampler_tables import make, table

from sklearn_dpgen.schema import Categorical, Numeric, Schema
from sklearn_dpgen.tables import TableSampler, _log_linear_fit, _table_sampler

# What the docstring lists, all of it released, or public.
STATE = {
    "_frame_kind",
    "encoder_",
    "feature_names_in_",
    "law_",
    "one_way_marginals_",
    "n_features_in_",
    "n_records_",
    "noise_multiplier_",
    "privacy_",
    "marginals_",
}


def holds_no_more_than_it_says(n=600):
    """Return whether state and shapes are those that parameters and schema fix."""
    sampler = make(20.0, neighbours="add_or_remove", marginals="auto").fit(table(n))
    state = set(vars(sampler)) - set(sampler.get_params())
    # Arrays as long as the table would be its records.
    return state == STATE and n not in {len(part) for part in arrays(vars(sampler))}


def arrays(found, seen=None):
    """Return all arrays that an object refers to."""
    seen = {} if seen is None else seen
    if id(found) in seen or isinstance(found, type):
        return []
    seen[id(found)] = found
    if isinstance(found, np.ndarray):
        return [found] if found.ndim else []
    parts = list(getattr(found, "__dict__", {}).values())
    if isinstance(found, dict):
        parts += found.values()
    if isinstance(found, list | tuple | set | frozenset):
        parts += found
    return [part for one in parts for part in arrays(one, seen)]


@pytest.mark.slow
def test_a_fitted_object_holds_what_was_released_alone(monkeypatch):
    assert holds_no_more_than_it_says()
    source = TableSampler._noise_source
    measure = _table_sampler.measure_rounds

    def keep_noise(self, seed, *bound):
        self._noise = source(self, seed, *bound)
        return self._noise

    def keep_codes(count, plan, weight, measured, **options):
        measure(count, plan, weight, measured, **options)
        measured.blocks.codes = count.__self__._codes
        object.__setattr__(measured.marginals[0], "source", measured)

    for place, name, leak in (
        (TableSampler, "_noise_source", keep_noise),
        (_table_sampler, "measure_rounds", keep_codes),
    ):
        with monkeypatch.context() as patch:
            patch.setattr(place, name, leak)
            assert not holds_no_more_than_it_says()


@pytest.mark.slow
@pytest.mark.parametrize("public", [None, table(50, seed=3)], ids=["alone", "public"])
@pytest.mark.parametrize("store", ["codes", "none"])
def test_what_is_learned_from_refers_to_no_records(monkeypatch, store, public):
    found, read = [], _table_sampler.open_records

    def watch(*args, **options):
        records = read(*args, **options)
        found.append(weakref.ref(records))
        return records

    class Watched(TableSampler):
        def _learn(self, plan, released, seed):
            gc.collect()
            self.seen_ = found[-1]()
            super()._learn(plan, released, seed)

    class Keeps(Watched):
        def _release(self, plan, records, seed):
            *released, fit, prior = super()._release(plan, records, seed)
            # The prior is None without a public table.
            (prior or fit).count = records[0].marginal_counts
            return *released, fit, prior

    monkeypatch.setattr(_table_sampler, "open_records", watch)
    options = make(8.0, store=store, public=public).get_params(deep=False)
    assert Watched(**options).fit(table()).seen_ is None
    assert Keeps(**options).fit(table()).seen_ is not None


def test_a_fit_that_is_interrupted_has_a_report_of_its_own(monkeypatch):
    sampler = make(8.0).fit(table())

    def interrupt(*args, **options):
        raise KeyboardInterrupt

    monkeypatch.setattr(_log_linear_fit, "fit_conditional", interrupt)
    with pytest.raises(KeyboardInterrupt):
        sampler.set_params(epsilon=7.0).fit(table())
    assert sampler.privacy_.epsilon == 7.0
    assert not hasattr(sampler, "marginals_")
    assert not hasattr(sampler, "law_")


def test_dtypes_are_those_of_the_schema_whatever_chunks_hold():
    schema = Schema({"a": Numeric(0, 9, integer=True), "b": Categorical(["x", "y"])})
    first = pd.DataFrame({"a": np.array([5], dtype=np.int32), "b": ["x"]})
    second = pd.DataFrame({"a": [1.0, 2.5], "b": pd.Categorical(["x", "y"])})
    for chunks in ([first, second], iter([first[:0], second]), [second, first]):
        sampler = make(np.inf, schema=schema, n_bins="auto", neighbours="add_or_remove")
        sampler.fit(chunks)
        drawn = sampler.sample(4)
        assert drawn.dtypes.to_dict() == {name: schema[name].dtype for name in "ab"}
