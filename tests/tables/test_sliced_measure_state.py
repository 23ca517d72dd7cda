"""SlicedMeasureSampler: what a fitted, or an interrupted, object holds."""

import numpy as np
import pandas as pd
import pytest
from sklearn.utils.estimator_checks import parametrize_with_checks
from sliced_tables import make, table

from sklearn_dpgen.schema import Categorical, Numeric, Schema
from sklearn_dpgen.tables import _sliced_measure_sampler
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
    sampler = make(neighbours="add_or_remove", population_size=90).fit(table(n))
    state = set(vars(sampler)) - set(sampler.get_params())
    return state == STATE and len(sampler.law_.probabilities) == 90


def test_a_fitted_object_holds_what_was_released_alone(monkeypatch):
    assert holds_no_more_than_it_says()
    measure = SlicedMeasureSampler._measure_slices

    def keep_counts(self, codes, *args, **options):
        self._exact = [np.bincount(column) for column in codes]
        return measure(self, codes, *args, **options)

    def fewer_rows(self, codes, *args, **options):
        self.population_size = min(90, len(codes[0]))
        try:
            return measure(self, codes, *args, **options)
        finally:
            self.population_size = 90

    for leak in (keep_counts, fewer_rows):
        with monkeypatch.context() as patch:
            patch.setattr(SlicedMeasureSampler, "_measure_slices", leak)
            assert not holds_no_more_than_it_says()


def test_a_fit_that_is_interrupted_has_a_report_of_its_own(monkeypatch):
    sampler = make(0.5).fit(table())

    def interrupt(*args, **options):
        raise KeyboardInterrupt

    monkeypatch.setattr(_sliced_measure_sampler.Population, "fit", interrupt)
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


# The checks of scikit-learn make tables of any width.
WIDTH = "the schema fixes the number of columns"
EXPECTED = dict.fromkeys(
    [
        "check_dict_unchanged",
        "check_dont_overwrite_parameters",
        "check_dtype_object",
        "check_estimators_dtypes",
        "check_estimators_pickle",
        "check_f_contiguous_array_estimator",
        "check_fit2d_1feature",
        "check_fit2d_predict1d",
        "check_fit_score_takes_y",
        "check_methods_sample_order_invariance",
        "check_methods_subset_invariance",
        "check_n_features_in_after_fitting",
        "check_pipeline_consistency",
        "check_positive_only_tag_during_fit",
    ],
    WIDTH,
) | {
    "check_estimators_nan_inf": "the schema says where values may be missing; errors name columns",
    "check_fit2d_1sample": "a single record is a table, and its error is one of the width",
}
TWO = Schema({name: Numeric(-5, 5) for name in "ab"})


@parametrize_with_checks(
    [make(10.0, schema=TWO, population_size=10, max_iter=2)],
    expected_failed_checks=lambda estimator: EXPECTED,
)
def test_conformity(estimator, check):
    check(estimator)
