import pickle

import numpy as np
import pandas as pd
import pytest
from sklearn.base import clone
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import FunctionTransformer
from sklearn.utils.estimator_checks import parametrize_with_checks

from sklearn_dpgen.preprocessing import TabularEncoder
from sklearn_dpgen.schema import Categorical, Datetime, Numeric, Ordinal, Schema

SCHEMA = Schema(
    {
        "age": Numeric(0, 120, integer=True),
        "income": Numeric(0, 1000, step=0.5),
        "visits": Numeric(0, 9, integer=True, nullable=True),
        "sex": Categorical(["f", "m"]),
        "region": Categorical(["north", "south", "west"], nullable=True),
        "smoker": Categorical([False, True], nullable=True),
        "level": Ordinal(["low", "mid", "high"]),
        "grade": Ordinal([1, 2, 3], nullable=True),
        "day": Datetime("2020-01-01", "2024-12-31", resolution="D", nullable=True),
    }
)


def records(null=False):
    """Three records; the last one has nulls or not, everything else is the same."""
    return pd.DataFrame(
        {
            "grade": [1, 2, None if null else 3],
            "age": [17, 42, 99],
            "income": [0.5, 1000.0, 12.5],
            "visits": [0, 9, None if null else 3],
            "sex": ["f", "m", "m"],
            "region": pd.Categorical(["south", "south", None if null else "north"]),
            "smoker": [True, False, None if null else True],
            "level": pd.Categorical(["mid", "low", "mid"]),
            "day": np.array(
                ["2020-02-03", "2024-12-31", "NaT" if null else "2021-01-01"], "M8[us]"
            ),
        },
        index=[5, 3, 1],
    )


class LeakyEncoder(TabularEncoder):
    """Gives every column the dtype that it came with, as one would naively do."""

    def fit(self, X, y=None):
        super().fit(X)
        self.dtypes_ = dict(X.dtypes)
        return self


class AnyWidthEncoder(TabularEncoder):
    """As many bounded numbers as the data has columns: what generic checks can feed."""

    def __init__(self, bound=1e3):
        self.bound = bound

    _parameter_constraints = {"bound": [float]}
    n_bins = None

    @property
    def schema(self):
        return Schema({n: Numeric(-self.bound, self.bound, nullable=True) for n in self.names_})

    def fit(self, X, y=None):
        shape = np.asarray(X).shape
        n_columns = shape[1] if len(shape) == 2 else 1
        self.names_ = list(getattr(X, "columns", [f"x{i}" for i in range(n_columns)])) or ["x0"]
        return super().fit(X)


@parametrize_with_checks([AnyWidthEncoder()])
def test_scikit_learn_conformity(estimator, check):
    check(estimator)


@pytest.mark.parametrize("null", [False, True])
def test_round_trip(null):
    frame = records(null)
    encoder = TabularEncoder(SCHEMA).fit(frame)
    encoded = encoder.transform(frame)
    assert encoded.dtype == np.float64
    assert encoder.domain_ == SCHEMA.domain
    assert encoder.domain_.contains(encoded, tol=0).all()
    decoded = encoder.inverse_transform(encoded)
    assert list(decoded.columns) == list(frame.columns)
    for name in frame:
        present = frame[name].notna().to_numpy()
        assert decoded[name].notna().tolist() == present.tolist()
        assert decoded[name][present].tolist() == frame[name][present].tolist()
    np.testing.assert_array_equal(encoder.transform(decoded), encoded)
    expected = {"age": "int64", "income": "float64", "visits": "float64", "grade": "float64"}
    expected |= {"sex": frame["sex"].dtype, "smoker": object, "day": "datetime64[us]"}
    assert {name: decoded[name].dtype for name in expected} == expected


def test_dtypes_do_not_tell_whether_a_null_or_a_category_occurred():
    frame, neighbour = records(null=False), records(null=True)
    assert list(frame.dtypes) != list(neighbour.dtypes)

    def decoded_dtypes(encoder):
        return [
            clone(encoder).fit(data).inverse_transform(np.zeros((1, 24))).dtypes.to_dict()
            for data in (frame, neighbour)
        ]

    one, other = decoded_dtypes(TabularEncoder(SCHEMA))
    assert one == other
    # Negative twin: dtypes taken as they come tell the two frames apart.
    one, other = (LeakyEncoder(SCHEMA).fit(data).dtypes_ for data in (frame, neighbour))
    assert [name for name in one if one[name] != other[name]] == [
        "grade",
        "visits",
        "region",
        "smoker",
    ]


def test_fit_reads_no_value():
    frame = records()
    reference = vars(TabularEncoder(SCHEMA).fit(frame))
    other = frame.iloc[:1].copy()
    other["age"], other["income"], other["sex"] = -7, np.nan, "undeclared"
    changed = vars(TabularEncoder(SCHEMA).fit(other))
    assert changed.keys() == reference.keys()
    for name, value in reference.items():
        np.testing.assert_equal(changed[name], value)


def test_no_data_is_needed():
    encoder = TabularEncoder(SCHEMA).fit()
    decoded = encoder.inverse_transform(SCHEMA.domain.sample(20, np.random.default_rng(0)))
    assert list(decoded) == list(SCHEMA)
    string = pd.Series(["a"]).dtype
    assert list(decoded.dtypes) == [
        "int64",
        "float64",
        "float64",
        string,
        string,
        object,
        string,
        "float64",
        "datetime64[us]",
    ]
    np.testing.assert_array_equal(
        encoder.transform(records()), TabularEncoder(SCHEMA).fit_transform(records())
    )


def test_noisy_records_can_be_fitted():
    frame = records().astype({"age": float})
    frame["age"] += 1000.25
    encoder = TabularEncoder(SCHEMA).fit(frame)
    assert encoder.inverse_transform(encoder.transform(frame))["age"].tolist() == [120] * 3
    assert encoder.dtypes_["age"] == "int64"


def test_columns_are_matched_by_name():
    frame = records()
    encoder = TabularEncoder(SCHEMA).fit(frame)
    shuffled = frame[list(SCHEMA)]
    np.testing.assert_array_equal(encoder.transform(shuffled), encoder.transform(frame))
    assert list(encoder.feature_names_in_) == list(frame)
    assert list(encoder.blocks_) == list(SCHEMA)
    ages = encoder.transform(frame)[:, encoder.blocks_["age"]]
    np.testing.assert_allclose(ages[:, 0], SCHEMA["age"].to_unit(frame["age"]))


def test_arrays_are_matched_by_position():
    schema = Schema({"a": Numeric(0, 10), "b": Categorical(["x", "y"])})
    rows = [[5, "x"], [np.inf, "y"]]
    expected = [[0, 1, 0], [1, 0, 1]]
    for X in (rows, np.array(rows, dtype=object)):
        encoder = TabularEncoder(schema).fit(X)
        np.testing.assert_array_equal(encoder.transform(X), expected)
        assert encoder.dtypes_ == TabularEncoder(schema).fit().dtypes_
    numbers = TabularEncoder(Schema({"a": Numeric(0, 1)})).fit_transform([[0], [1]])
    np.testing.assert_array_equal(numbers, [[-1], [1]])


def test_one_record():
    frame = records().iloc[:1]
    encoder = TabularEncoder(SCHEMA).fit(frame)
    assert encoder.inverse_transform(encoder.transform(frame)).shape == frame.shape


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda frame: frame.drop(columns="age"), r"each once: missing \['age'\]\.$"),
        (lambda frame: frame.rename(columns={"age": "Age"}), r"missing \['age'\], unknown \['Age'"),
        (lambda frame: pd.concat([frame, frame[["age"]]], axis=1), r"once \['age'\]"),
        (lambda frame: frame.iloc[:0], r"0 sample\(s\)"),
        (lambda frame: frame.assign(sex="secret"), "'sex' holds a value outside"),
        (lambda frame: frame.assign(age="secret"), "'age' is declared Numeric"),
        (lambda frame: frame.assign(income=np.nan), "'income' has missing values"),
        (lambda frame: frame.to_numpy()[:, :4], "X has 4 features, .* expecting 9"),
        (lambda frame: frame["age"].to_numpy(), "Expected 2D array"),
    ],
)
def test_errors_name_the_column_and_not_the_value(change, message):
    encoder = TabularEncoder(SCHEMA).fit(records())
    with pytest.raises(ValueError, match=message) as caught:
        encoder.transform(change(records()))
    assert "secret" not in str(caught.value)


def test_inverse_transform_errors():
    encoder = TabularEncoder(SCHEMA).fit()
    with pytest.raises(ValueError, match="encodes 24 features, X has 23"):
        encoder.inverse_transform(np.zeros((1, 23)))
    with pytest.raises(ValueError, match="NaN"):
        encoder.inverse_transform(np.full((1, 24), np.nan))
    with pytest.raises(ValueError, match="schema"):
        TabularEncoder({"a": 1}).fit()


def test_set_output_and_pipeline():
    frame = records(null=True)
    encoder = TabularEncoder(SCHEMA).set_output(transform="pandas")
    out = encoder.fit_transform(frame)
    assert list(out.columns) == SCHEMA.feature_names == list(encoder.get_feature_names_out())
    assert out.index.equals(frame.index)
    assert encoder.inverse_transform(out).index.equals(pd.RangeIndex(3))
    assert encoder.inverse_transform(out, index="keep").index.equals(frame.index)
    assert encoder.inverse_transform(out.to_numpy(), index="keep").index.equals(pd.RangeIndex(3))
    with pytest.raises(ValueError, match="index must be 'reset' or 'keep'"):
        encoder.inverse_transform(out, index="drop")
    pipeline = make_pipeline(TabularEncoder(SCHEMA), FunctionTransformer()).fit(frame)
    np.testing.assert_array_equal(pipeline.transform(frame), out)
    with pytest.raises(ValueError, match="input_features"):
        encoder.get_feature_names_out(["a"])


def test_clone_and_pickle():
    frame = records(null=True)
    encoder = TabularEncoder(SCHEMA).fit(frame)
    assert clone(encoder).get_params() == {"schema": SCHEMA, "n_bins": None}
    assert not hasattr(clone(encoder), "domain_")
    copied = pickle.loads(pickle.dumps(encoder))
    encoded = encoder.transform(frame)
    np.testing.assert_array_equal(copied.transform(frame), encoded)
    pd.testing.assert_frame_equal(
        copied.inverse_transform(encoded), encoder.inverse_transform(encoded)
    )
