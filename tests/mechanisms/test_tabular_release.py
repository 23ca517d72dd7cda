"""What a release of the tabular mechanism looks like, and what it refuses."""

import math
from dataclasses import replace

import numpy as np
import pandas as pd
import pytest
import torch
from local_privacy import FixedNoise, log_likelihood
from sklearn.base import clone
from tabular_records import BINS, FULL, NO_NULL, SCHEMA, records

from sklearn_dpgen.mechanisms import TabularMechanism
from sklearn_dpgen.schema import Datetime, Numeric, Schema


@pytest.mark.parametrize("null", [False, True])
@pytest.mark.parametrize("noise", ["laplace", "gaussian"])
def test_a_release_keeps_the_shape_of_the_table(null, noise):
    frame = records(null)
    mechanism = TabularMechanism(6.0, schema=FULL, n_bins=BINS, noise=noise, random_state=0)
    Y = mechanism.fit_transform(frame)
    assert list(Y.columns) == list(frame.columns)
    assert Y.index.equals(pd.RangeIndex(3))
    encoded = mechanism.encode_release(Y)
    assert encoded.shape == (3, mechanism.domain_.n_features)
    # Released values are not clipped; categories are whole.
    far = abs(encoded[:, mechanism.encoder_.blocks_["age"]])
    assert far.max() > 1
    pd.testing.assert_frame_equal(mechanism.transform(frame), Y)


def released_dtypes(kind, null):
    frame = records(null)
    return kind(6.0, schema=FULL, n_bins=BINS, random_state=0).fit_transform(frame).dtypes.to_dict()


class LeakyDtypes(TabularMechanism):
    """Gives columns the dtype that they came with, where it holds the release."""

    def transform(self, X):
        Y = super().transform(X)
        return Y.assign(smoker=Y["smoker"].astype(X["smoker"].dtype))


def test_dtypes_do_not_tell_whether_a_null_or_a_category_occurred():
    def tells(kind):
        return released_dtypes(kind, null=False) != released_dtypes(kind, null=True)

    assert not tells(TabularMechanism)
    assert tells(LeakyDtypes)


@pytest.mark.parametrize("dtype", ["int64", "int8", "float32", "float64", "Int16", object])
def test_the_dtypes_of_a_release_are_those_of_the_schema(dtype):
    schema = Schema({"a": Numeric(0, 1), "b": Numeric(0, 20, integer=True, nullable=True)})
    frame = pd.DataFrame({"a": [0, 1] * 50, "b": [3, 17] * 50}).astype(dtype)
    mechanism = TabularMechanism(1.0, schema=schema, n_bins=7, random_state=0).fit(frame)
    encoded = mechanism._randomize(
        mechanism.encoder_.transform(frame), mechanism._noise(np.zeros(1))
    )
    Y = mechanism._released(encoded, mechanism._noise(np.zeros(1)))
    assert Y.dtypes.tolist() == ["float64", "float64"]
    np.testing.assert_array_equal(mechanism.encode_release(Y), encoded)
    # Every bin occurs, and the null.
    assert encoded.any(axis=0).all()


@pytest.mark.parametrize("bins", [None, 6])
def test_dates_are_released_in_the_declared_zone(bins):
    column = Datetime("2020-01-01", "2021-01-01", nullable=True, zone="Asia/Tokyo")
    frame = pd.DataFrame({"day": pd.date_range("2020-02-01", periods=90, freq="3D")})
    mechanism = TabularMechanism(2.0, schema=Schema({"day": column}), n_bins=bins, random_state=0)
    Y = mechanism.fit_transform(frame)
    assert Y["day"].dtype == "datetime64[us, Asia/Tokyo]"
    encoded = mechanism.encode_release(Y)
    bare = clone(mechanism).set_params(schema=Schema({"day": replace(column, zone=None)}))
    # Of another schema, so they must not carry the name of the first mechanism.
    plain = pd.DataFrame({"day": Y["day"].dt.tz_convert(None).array})
    same = bare.fit(frame).encode_release(plain)
    np.testing.assert_array_equal(encoded, same)


def test_columns_may_come_in_any_order():
    frame = records()
    mechanism = TabularMechanism(6.0, schema=FULL, random_state=0).fit(frame)
    Y = mechanism.transform(frame)
    shuffled = mechanism.transform(frame[list(FULL)])
    pd.testing.assert_frame_equal(shuffled, Y)
    precise = TabularMechanism(np.inf, schema=FULL, random_state=0).fit(frame)
    for name in ("age", "income"):
        released = precise.transform(frame[list(FULL)])[name]
        np.testing.assert_allclose(released, frame[name], atol=0.5)


def test_values_outside_of_the_bounds_get_the_noise_of_the_bounds():
    class Fixed(FixedNoise, TabularMechanism):
        pass

    class Broken(Fixed):
        def _randomize(self, X, noise):
            return super()._randomize(X + self.leak, noise)

    outside = records().assign(age=[-1e9, 1e12, 50.0], income=[np.inf, -np.inf, 1e300])
    inside = records().assign(age=[0.0, 100.0, 50.0], income=[1000.0, 0.0, 1000.0])
    for bins in (None, BINS):
        mechanism = Fixed(2.0, schema=FULL, n_bins=bins).fit(inside)
        expected = mechanism.transform(inside)
        pd.testing.assert_frame_equal(mechanism.transform(outside), expected)
    broken = Broken(2.0, schema=FULL).fit(inside)
    broken.leak = np.zeros((3, 1))
    expected = broken.transform(inside)
    broken.leak = np.array([[1.0], [0.0], [0.0]])
    assert not broken.transform(outside).equals(expected)


def test_parameters_set_after_fit_do_not_change_what_was_stated():
    frame = records()
    mechanism = TabularMechanism(1.0, schema=FULL, n_bins=BINS, random_state=0).fit(frame)
    Y, encoded = mechanism.transform(frame), mechanism.domain_.sample(3, np.random.default_rng(0))
    log_p = log_likelihood(mechanism, encoded, encoded)
    mechanism.set_params(epsilon=np.inf, noise="gaussian", schema=NO_NULL, n_bins=None)
    pd.testing.assert_frame_equal(mechanism.transform(frame), Y)
    np.testing.assert_array_equal(log_likelihood(mechanism, encoded, encoded), log_p)
    assert mechanism.encode_release(Y).shape == encoded.shape


def test_no_noise():
    frame = records(null=True)
    mechanism = TabularMechanism(np.inf, schema=FULL).fit(frame)
    Y = mechanism.transform(frame.assign(age=[17, 42, 500]))
    assert Y["age"].tolist() == pytest.approx([17, 42, 100])
    for name in set(frame) - {"age"}:
        present = frame[name].notna().to_numpy()
        assert Y[name].notna().tolist() == present.tolist()
        released, true = Y[name][present].tolist(), frame[name][present].tolist()
        assert released == (pytest.approx(true) if name in ("visits", "income") else true)
    assert mechanism.privacy_.epsilon == np.inf
    encoded = torch.zeros(1, mechanism.domain_.n_features)
    with pytest.raises(ValueError, match="epsilon must be finite, got inf"):
        mechanism.log_likelihood(encoded, encoded)


SECRET = "7.7725"


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda frame: frame.drop(columns="age"), "age"),
        (lambda frame: frame.rename(columns={"age": "Age"}), "age"),
        (lambda frame: frame.assign(more=1.0), "more"),
        (lambda frame: frame.iloc[:0], r"0 sample\(s\)"),
        (lambda frame: frame.assign(region=SECRET), "'region' holds a value outside"),
        (lambda frame: frame.assign(age=SECRET), "'age' is declared Numeric"),
        (lambda frame: frame.assign(age=np.nan), "'age' has missing values"),
        (lambda frame: frame.to_numpy()[:, :3], "X has 3 features"),
    ],
)
def test_bad_records(change, message):
    frame = records()[list(SCHEMA)]
    mechanism = TabularMechanism(schema=SCHEMA).fit(frame)
    with pytest.raises(ValueError, match=message) as caught:
        mechanism.transform(change(frame))
    assert SECRET not in str(caught.value)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda Y: Y.drop(columns="age"), "age"),
        (lambda Y: Y.to_numpy(dtype=object), r"must have the columns \['age', 'visits'"),
        (lambda Y: Y.assign(age=np.inf), "'age' of a privatized table must be finite"),
        (lambda Y: Y.assign(visits=-np.inf), "'visits' of a privatized table must be finite"),
        (lambda Y: Y.assign(age=np.nan), "'age' has missing values but is not nullable"),
        (lambda Y: Y.assign(income=np.nan), "'income' has missing values but is not nullable"),
        (lambda Y: Y.assign(region=SECRET), "'region' holds a value outside"),
        (lambda Y: Y.iloc[:0], "0 records"),
    ],
)
def test_bad_privatized_tables(change, message):
    frame = records()[list(SCHEMA)]
    mechanism = TabularMechanism(schema=SCHEMA, n_bins=BINS).fit(frame)
    Y = mechanism.transform(frame)
    with pytest.raises(ValueError, match=message) as caught:
        mechanism.encode_release(change(Y), reset=True)
    assert SECRET not in str(caught.value)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"schema": None}, "'schema' parameter"),
        ({"schema": {"a": 1}}, "'schema' parameter"),
        ({"epsilon": 0.0}, "'epsilon' parameter"),
        ({"epsilon": math.nan}, "'epsilon' parameter"),
        ({"delta": 0.0}, "'delta' parameter"),
        ({"delta": 1.0}, "'delta' parameter"),
        ({"noise": "uniform"}, "'noise' parameter"),
        ({"n_bins": {"unknown": 3}}, "unknown"),
        ({"n_bins": 1}, "bins must be edges or an integer of at least 2"),
    ],
)
def test_bad_parameters(options, message):
    with pytest.raises(ValueError, match=message):
        TabularMechanism(**{"schema": SCHEMA, **options}).fit()


def test_one_record_and_no_record():
    frame = records()[list(SCHEMA)]
    mechanism = TabularMechanism(schema=SCHEMA).fit(frame)
    assert mechanism.transform(frame.iloc[:1]).shape == (1, 4)
    unfitted = TabularMechanism(schema=SCHEMA).fit()
    assert unfitted.transform(frame).columns.tolist() == list(SCHEMA)
    array = unfitted.transform(frame.to_numpy(dtype=object))
    assert array.index.tolist() == [0, 1, 2]


def test_the_report_says_what_is_released():
    mechanism = TabularMechanism(2.0, schema=SCHEMA, n_bins=BINS, random_state=0).fit()
    report = mechanism.privacy_
    assert (report.epsilon, report.delta) == (2.0, 0.0)
    assert sum(part.epsilon for part in report.parts) <= 2.0
    assert "order" in report.public
    for part in (report, *report.parts):
        assert "void" in part.noise_source
        assert part.is_local


def test_noisy_values_lie_on_a_grid():
    # See the attack on the low bits in the tests of the additive mechanisms.
    mechanism = TabularMechanism(2.0, schema=FULL, random_state=0).fit(records())
    X = mechanism.encoder_.transform(records())
    Y = mechanism._randomize(X, mechanism._noise(X))
    values = [part for part in mechanism._parts if part.value is not None]
    assert len(values) == 5
    for part in values:
        step = 2.0 ** (math.floor(math.log2(part.scale)) - 10)
        steps = Y[:, part.value] / step
        np.testing.assert_array_equal(steps, np.rint(steps))
