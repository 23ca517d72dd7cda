"""SlicedMeasureSampler: what a fitted, or an interrupted, object holds."""

import numpy as np
import pandas as pd
import pytest
from sliced_tables import make, table

from sklearn_dpgen.schema import Categorical, Numeric, Schema
from sklearn_dpgen.tables import _population_fit, _sliced_measure_sampler
from sklearn_dpgen.tables._sliced_measure_sampler import SlicedMeasureSampler

# What the docstring lists, all of it released, or public.
STATE = {
    "encoder_",
    "feature_names_in_",
    "law_",
    "loss_curve_",
    "n_features_in_",
    "n_records_",
    "noise_multiplier_",
    "privacy_",
    "slices_",
}


def holds_no_more_than_it_says(n=60):
    """Return whether state and shapes are those that parameters and schema fix."""
    sampler = make(20.0, neighbours="add_or_remove", population_size=90).fit(table(n))
    state = set(vars(sampler)) - set(sampler.get_params())
    return state == STATE and len(sampler.law_.probabilities) == 90


def test_a_fitted_object_holds_what_was_released_alone(monkeypatch):
    assert holds_no_more_than_it_says()
    noise, fit = SlicedMeasureSampler._noise, _sliced_measure_sampler.PopulationFit

    def keep_counts(self, seed, *parts):
        self._exact = parts
        return noise(self, seed, *parts)

    def fewer_rows(measured, n_rows, *args, **options):
        return fit(measured, min(n_rows, round(measured.n_records)), *args, **options)

    for place, name, leak in (
        (SlicedMeasureSampler, "_noise", keep_counts),
        (_sliced_measure_sampler, "PopulationFit", fewer_rows),
    ):
        with monkeypatch.context() as patch:
            patch.setattr(place, name, leak)
            assert not holds_no_more_than_it_says()


def test_a_fit_that_is_interrupted_has_a_report_of_its_own(monkeypatch):
    sampler = make(0.5).fit(table())

    def interrupt(*args, **options):
        raise KeyboardInterrupt

    monkeypatch.setattr(_population_fit.Population, "fit", interrupt)
    with pytest.raises(KeyboardInterrupt):
        sampler.set_params(epsilon=7.0).fit(table())
    assert sampler.privacy_.epsilon == 7.0
    assert not hasattr(sampler, "slices_")
    assert not hasattr(sampler, "law_")


def test_dtypes_are_those_of_the_schema_whatever_chunks_hold():
    schema = Schema({"a": Numeric(0, 9, integer=True), "b": Categorical(["x", "y"])})
    first = pd.DataFrame({"a": np.array([5], dtype=np.int32), "b": ["x"]})
    second = pd.DataFrame({"a": [1.0, 2.5], "b": pd.Categorical(["x", "y"])})
    for chunks in ([first, second], iter([first[:0], second]), [second, first]):
        sampler = make(schema=schema, n_bins="auto", neighbours="add_or_remove").fit(chunks)
        drawn = sampler.sample(4)
        assert drawn.dtypes.to_dict() == {name: schema[name].dtype for name in "ab"}
