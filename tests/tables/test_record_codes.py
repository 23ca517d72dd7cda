"""Records as categories: from frames, arrays, chunks and dask frames, in little memory."""

import tracemalloc
from functools import partial
from itertools import pairwise

import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn.base import clone
from sklearn.exceptions import NotFittedError

from sklearn_dpgen.preprocessing import TabularEncoder, _reader
from sklearn_dpgen.schema import Categorical, Datetime, Numeric, Ordinal, Schema
from sklearn_dpgen.schema._binned import bin_column
from sklearn_dpgen.schema._labels import _Labels
from sklearn_dpgen.tables._records import encode_codes

SCHEMA = Schema(
    {
        "age": Numeric(0, 120, integer=True),
        "income": Numeric(0.0, 1000.0, nullable=True),
        "score": Numeric(-1, 1),
        "day": Datetime("2020-01-01", "2024-12-31", resolution="D", nullable=True),
        "sex": Categorical(["f", "m"]),
        "region": Categorical(["north", "south", "west"], nullable=True),
        "smoker": Categorical([False, True], nullable=True),
        "code": Categorical([1, 2.5, "a", False]),
        "grade": Ordinal([1, 2, 3], nullable=True),
    }
)
BINS = {"age": 32, "income": [0, 1, 10, 1000], "score": 300, "day": 12}
ENCODER = TabularEncoder(SCHEMA, n_bins=BINS).fit()
NAMES = list(SCHEMA)


def records(n=100, seed=0):
    """Records of all kinds of columns, with values out of bounds and nulls, in another order."""
    rng = np.random.default_rng(seed)
    draw = {
        name: np.array([*column.labels, *([None] if column.nullable else [])], dtype=object)
        for name, column in SCHEMA.items()
        if isinstance(column, _Labels)
    }
    frame = pd.DataFrame(
        {name: pd.Series(rng.choice(labels, n), dtype=object) for name, labels in draw.items()}
    )
    # The container has an order of its own, and a category that neither occurs nor is declared.
    frame["region"] = pd.Categorical(frame["region"], ["unknown", "west", "north", "south"])
    frame["age"] = rng.integers(-5, 130, n)
    frame["income"] = np.where(rng.random(n) < 0.2, np.nan, rng.uniform(-10, 1100, n))
    frame["score"] = rng.normal(size=n).astype(np.float32)
    days = np.datetime64("2019-06-01") + rng.integers(0, 2400, n).astype("timedelta64[D]")
    frame["day"] = pd.Series(days).where(rng.random(n) < 0.8)
    return frame


def cut(frame, cuts):
    return [frame[a:b] for a, b in pairwise([0, *cuts, len(frame)])]


def matrix(codes):
    return np.column_stack(codes.columns)


def one_hot_codes(frame, encoder=ENCODER):
    encoded = encoder.transform(frame)
    return np.column_stack([encoded[:, block].argmax(1) for block in encoder.blocks_.values()])


@pytest.fixture(autouse=True)
def small_blocks(monkeypatch):
    monkeypatch.setattr(_reader, "_BLOCK", 17)


def as_they_are(frame):
    return frame


def as_extension(frame):
    kinds = {"age": "Int64", "income": "Float64", "smoker": "boolean", "grade": "Int8"}
    return frame.astype(kinds | {"sex": "string"})


def as_categories(frame):
    return frame.astype(dict.fromkeys(("sex", "smoker", "code", "grade"), "category"))


def as_objects(frame):
    return frame.astype(object)


def as_floats(frame):
    return frame.astype({"age": "float32", "grade": "float64", "sex": "str"})


@pytest.mark.parametrize(
    "convert", [as_they_are, as_extension, as_categories, as_objects, as_floats]
)
def test_codes_are_the_one_hot_blocks(convert):
    frame = convert(records())
    codes = encode_codes(frame, ENCODER)
    assert codes.n_records == 100
    assert codes.sizes == [32, 4, 300, 13, 2, 4, 3, 4, 4]
    for column, size in zip(codes.columns, codes.sizes, strict=True):
        assert column.dtype == (np.uint16 if size > 256 else np.uint8)
        assert column.shape == (100,)
        assert column.flags.c_contiguous
        assert column.max() < size
    np.testing.assert_array_equal(matrix(codes), one_hot_codes(frame))
    np.testing.assert_array_equal(matrix(codes), one_hot_codes(records()))


@pytest.mark.parametrize(
    ("size", "dtype"), [(256, "u1"), (257, "u2"), (65536, "u2"), (65537, "u4")]
)
def test_the_smallest_dtype_that_holds_the_categories(size, dtype):
    encoder = TabularEncoder(Schema({"x": Numeric(0, 1)}), n_bins=size).fit()
    codes = encode_codes(np.array([[0.0], [1.0], [0.5]]), encoder)
    assert codes.sizes == [size]
    assert codes.columns[0].dtype == np.dtype(dtype)
    assert codes.columns[0].tolist() == [0, size - 1, size // 2]


def test_columns_binned_elsewhere():
    age = bin_column("age", SCHEMA["age"], 2**17).merged([0, 18, 19, 65])
    day = bin_column("day", SCHEMA["day"], 2**17).merged([0, 366, 1000])
    frame = records()
    encoder = clone(TabularEncoder(SCHEMA, n_bins=BINS | {"age": age, "day": day})).fit(frame)
    codes = encode_codes(frame, encoder)
    assert codes.sizes[:4] == [4, 4, 300, 4]
    np.testing.assert_array_equal(matrix(codes), one_hot_codes(frame, encoder))
    years = frame["age"].clip(0, 120)
    np.testing.assert_array_equal(codes.columns[0], np.digitize(years, [18, 19, 65]))
    back = encoder.inverse_transform(encoder.transform(frame), rng=np.random.default_rng(0))
    np.testing.assert_array_equal(matrix(encode_codes(back, encoder)), matrix(codes))
    assert (back["age"] == 18)[years == 18].all()
    assert back.dtypes.to_dict() == encoder.dtypes_
    with pytest.raises(ValueError, match="'score': bins must be those of an equal column"):
        TabularEncoder(SCHEMA, n_bins={"score": age}).fit()
    with pytest.raises(ValueError, match="'sex' must be numeric or datetime to have bins"):
        TabularEncoder(SCHEMA, n_bins={"sex": age}).fit()


def test_arrays_are_rows():
    schema = Schema({"n": Ordinal([0, 1, 2]), "x": Numeric(0, 1)})
    encoder = TabularEncoder(schema, n_bins=4).fit()
    array = np.column_stack([np.arange(50) % 3, np.linspace(-0.1, 1.1, 50)])
    expected = one_hot_codes(array, encoder)
    for X in (array, array.tolist(), tuple(map(tuple, array)), list(array), array.astype(object)):
        same = TabularEncoder(schema, n_bins=4).fit(X)
        np.testing.assert_array_equal(matrix(encode_codes(X, same)), expected)
    mixed = records()[NAMES].to_numpy(dtype=object)
    np.testing.assert_array_equal(matrix(encode_codes(mixed, ENCODER)), one_hot_codes(mixed))


def is_partition_free(frame, cuts, order):
    """Whether chunks, in another order too, give the records the same codes."""
    whole = matrix(encode_codes(frame, ENCODER))
    chunks = cut(frame, cuts)
    ends = np.split(np.arange(len(frame)), cuts)
    order = [i % len(chunks) for i in order]
    picked = np.concatenate([ends[i] for i in order])
    if not len(picked):
        return True
    parts = matrix(encode_codes((chunks[i] for i in order), ENCODER))
    return np.array_equal(parts, whole[picked])


@pytest.mark.slow
@settings(deadline=None, max_examples=40, derandomize=True)
@given(
    st.lists(st.integers(0, 60), max_size=6).map(sorted),
    st.lists(st.integers(0, 6), min_size=1, max_size=6),
    st.integers(0, 99),
)
def test_a_category_depends_on_the_record_alone(cuts, order, seed):
    assert is_partition_free(records(60, seed), cuts, order)


def test_categories_numbered_as_they_occur_are_caught(monkeypatch):
    # What `factorize` alone would do: the codes of a record depend on those before it.
    def read(self, series, null):
        return pd.factorize(series)[0] + 1, np.zeros_like(null)

    monkeypatch.setattr(_Labels, "_read", read)
    assert not is_partition_free(records(60), [20, 40], [2, 0, 1])


class Once:
    """Chunks that can be iterated over once, as those of a file that is read."""

    def __init__(self, chunks):
        self.chunks, self.n_begun, self.n_read = chunks, 0, 0

    def __iter__(self):
        self.n_begun += 1
        assert self.n_begun == 1
        for chunk in self.chunks:
            self.n_read += 1
            yield chunk


@pytest.mark.parametrize("kind", [list, tuple, iter, Once])
def test_fitting_loses_no_chunk(kind):
    frame = records()
    # The same columns in any order, and empty chunks, of which one has no columns.
    chunks = [frame[:0], pd.DataFrame(), *cut(frame, [1, 40, 40])]
    chunks[3] = chunks[3][NAMES[::-1]]
    given = kind(chunks)
    encoder = TabularEncoder(SCHEMA, n_bins=BINS).fit(given)
    if kind is Once:
        assert given.n_begun == 0
    # What comes first is not public: the order of columns is that of the schema.
    assert encoder.feature_names_in_.tolist() == NAMES
    np.testing.assert_array_equal(matrix(encode_codes(given, encoder)), one_hot_codes(frame))
    assert encoder.dtypes_ == TabularEncoder(SCHEMA, n_bins=BINS).fit(frame).dtypes_
    if kind is Once:
        assert given.n_read == len(chunks)


def test_dtypes_may_differ_between_chunks():
    schema = Schema({"n": Ordinal([0, 1], nullable=True), "x": Numeric(0, 9, nullable=True)})
    encoder = TabularEncoder(schema, n_bins=10).fit()
    chunks = [
        pd.DataFrame({"n": [0, 1], "x": [3, 4]}),
        pd.DataFrame({"n": [0, None], "x": [None, 9.5]}),
        pd.DataFrame({"n": [None, None], "x": [None, 7]}, dtype=object),
        pd.DataFrame({"n": [None, 1], "x": [None, 2]}, dtype="Int8"),
    ]
    codes = encode_codes(iter(chunks), encoder)
    assert codes.columns[0].tolist() == [0, 1, 0, 2, 2, 2, 2, 1]
    assert codes.columns[1].tolist() == [3, 4, 10, 9, 10, 7, 10, 2]


@pytest.mark.parametrize("convert", [as_they_are, as_extension, as_objects])
def test_arrow_streams_are_as_memory(convert):
    pa = pytest.importorskip("pyarrow")
    frame = convert(records().drop(columns="code"))
    encoder = TabularEncoder(Schema({n: SCHEMA[n] for n in frame}), n_bins=BINS).fit()
    expected = one_hot_codes(frame, encoder)
    table = pa.Table.from_pandas(frame, preserve_index=False)
    parts = [pa.Table.from_pandas(part, preserve_index=False) for part in cut(frame, [1, 40, 40])]
    for X in (table, table.to_reader(7), Stream(table), parts, iter([parts[0], frame[1:]])):
        assert encoder.fit(X).feature_names_in_.tolist() == list(encoder.schema)
        np.testing.assert_array_equal(matrix(encode_codes(X, encoder)), expected)
    np.testing.assert_array_equal(encoder.transform(table), encoder.transform(frame))


def test_integers_of_arrow_are_exact_beside_nulls():
    pa = pytest.importorskip("pyarrow")
    schema = Schema({"n": Categorical([2**53, 2**53 + 1], nullable=True)})
    table = pa.table({"n": [2**53 + 1, None, 2**53]})
    assert encode_codes(table, TabularEncoder(schema).fit()).columns[0].tolist() == [1, 2, 0]
    # The twin: as pandas has them by default, a null beside it makes a number another.
    assert table.to_pandas()["n"].dropna().nunique() == 1


class Stream:
    """What is used of a frame of Polars: a stream and nothing else."""

    def __init__(self, table):
        self.table = table

    def __arrow_c_stream__(self, requested_schema=None):
        return self.table.__arrow_c_stream__(requested_schema)


class LazyFrame:
    """What is used of a dask DataFrame, which needs pyarrow to be imported."""

    def __init__(self, parts):
        dask = pytest.importorskip("dask")
        self._meta, self.n_computed = parts[0][:0], 0
        self.parts = [dask.delayed(self.compute_part)(part) for part in parts]

    def compute_part(self, part):
        self.n_computed += 1
        return part

    def __getitem__(self, names):
        """Return the same partitions with these columns, as for a frame of dask."""
        chosen = LazyFrame([self._meta])
        chosen.parts = [part[names] for part in self.parts]
        return chosen

    def to_delayed(self):
        return self.parts


LazyFrame.__module__ = "dask.dataframe"


@pytest.mark.parametrize(
    "convert", [as_they_are, as_extension, as_categories, as_objects, as_floats]
)
def test_lazy_partitions_are_as_memory(convert):
    frame = convert(records())
    expected = TabularEncoder(SCHEMA, n_bins=BINS).fit(frame)
    X = LazyFrame(cut(frame, [0, 30, 31, 100]))
    encoder = TabularEncoder(SCHEMA, n_bins=BINS).fit(X)
    assert X.n_computed == 0
    assert encoder.dtypes_ == expected.dtypes_
    assert encoder.feature_names_in_.tolist() == frame.columns.tolist()
    codes = encode_codes(X, encoder)
    assert X.n_computed == 5
    np.testing.assert_array_equal(matrix(codes), one_hot_codes(frame))
    assert [c.dtype for c in codes.columns] == [
        c.dtype for c in encode_codes(frame, ENCODER).columns
    ]


@pytest.mark.parametrize("convert", [as_extension, as_objects])
def test_dask_is_as_memory(convert):
    dd = pytest.importorskip("dask.dataframe")
    import dask

    frame = convert(records())
    # By default dask makes texts of Python objects, which are then others than those declared.
    with dask.config.set({"dataframe.convert-string": False}):
        for n_partitions in (1, 6):
            lazy = dd.from_pandas(frame, npartitions=n_partitions)
            encoder = TabularEncoder(SCHEMA, n_bins=BINS).fit(lazy)
            np.testing.assert_array_equal(matrix(encode_codes(lazy, encoder)), one_hot_codes(frame))
        filtered = encode_codes(lazy[lazy["age"] > 60], encoder)
        np.testing.assert_array_equal(matrix(filtered), one_hot_codes(frame[frame["age"] > 60]))
        with pytest.raises(ValueError, match="Found array with 0 sample"):
            encode_codes(lazy[lazy["age"] > 1000], encoder)
        with pytest.raises(TypeError, match="data frame of .* if it is of dask, got Series"):
            encode_codes(lazy["age"], encoder)


def test_other_collections_of_dask_are_refused():
    da = pytest.importorskip("dask.array")
    for function in (partial(encode_codes, encoder=ENCODER), clone(ENCODER).fit):
        with pytest.raises(TypeError, match="must be a data frame if it is of dask, got Array"):
            function(da.zeros((5, 9)))


def frames(change):
    """Return records as a frame, chunks and dask partitions, the last part changed."""
    parts = cut(records(), [50])
    changed = [parts[0], change(parts[1])]
    # Dask knows the columns of all partitions, and reads those that are declared alone.
    lazy = [] if "other" in changed[1] else [LazyFrame(changed[::-1])]
    return [changed[1], changed, iter(changed), *lazy]


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda part: part.drop(columns="age"), "missing \\['age'\\]"),
        (lambda part: part.assign(other="secret"), "unknown \\['other'\\]"),
        (lambda part: part[[*NAMES, "age"]], "more than once \\['age'\\]"),
        (lambda part: part.assign(sex="secret"), "'sex' holds a value outside"),
        (lambda part: part.assign(age="secret"), "'age' is declared Numeric"),
        (lambda part: part.assign(day=["secret"] * 50), "'day' is declared Datetime"),
        (lambda part: part.assign(score=None), "'score' has missing values"),
    ],
)
def test_errors_name_the_column_and_not_the_value(change, message):
    for X in frames(change):
        with pytest.raises(ValueError, match=message) as caught:
            encode_codes(X, ENCODER)
        assert "secret" not in str(caught.value)


def test_no_records():
    empty = records()[:0]
    for X in (empty, [], (), iter([]), [empty, pd.DataFrame()], iter([empty]), np.empty((0, 9))):
        with pytest.raises(ValueError, match="Found array with 0 sample"):
            encode_codes(X, ENCODER)
    with pytest.raises(ValueError, match="Found array with 0 sample"):
        encode_codes(LazyFrame([empty, empty]), ENCODER)


@pytest.mark.parametrize(
    "chunks", [[records(3), [["secret"] * 9]], iter([np.full((2, 9), "secret")]), iter(["secret"])]
)
def test_chunks_are_data_frames(chunks):
    with pytest.raises(TypeError, match="Chunks of X must be data frames, got") as caught:
        encode_codes(chunks, ENCODER)
    assert "secret" not in str(caught.value)


@pytest.mark.parametrize("X", ["secret", {"age": [1]}, pd.Series([1]), np.zeros(9), np.zeros(())])
def test_what_is_no_table_is_refused(X):
    for function in (partial(encode_codes, encoder=ENCODER), clone(ENCODER).fit):
        with pytest.raises((ValueError, TypeError)) as caught:
            function(X)
        assert "secret" not in str(caught.value)


def test_the_encoder_must_be_fitted_and_have_bins():
    with pytest.raises(NotFittedError):
        encode_codes(records(), TabularEncoder(SCHEMA, n_bins=BINS))
    partly = TabularEncoder(SCHEMA, n_bins={"age": 4, "day": 5}).fit()
    with pytest.raises(ValueError, match=r"need bins: \['income', 'score'\]"):
        encode_codes(records(), partly)


def test_memory_is_that_of_the_codes(monkeypatch):
    monkeypatch.setattr(_reader, "_BLOCK", 1 << 14)
    n, n_bins = 200_000, 65_536
    rng = np.random.default_rng(0)
    frame = pd.DataFrame(rng.uniform(size=(n, 5)), columns=list("abcde"))
    schema = Schema({name: Numeric(0, 1) for name in frame})
    encoder = TabularEncoder(schema, n_bins=n_bins).fit()
    encode_codes(frame[:10], encoder)

    def chunks():
        for start in range(0, n, 30_000):
            yield frame[start : start + 30_000]

    for X in (frame, chunks(), frame.to_numpy()):
        tracemalloc.start()
        codes = encode_codes(X, encoder)
        peak = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
        n_bytes = sum(column.nbytes for column in codes.columns)
        assert n_bytes == 2 * 5 * n
        # A one-hot matrix would take 524 GB, and the places of all values in int64 8 MB.
        assert peak < 1.125 * n_bytes + 2.5e6


def test_ids_of_less_than_double_precision_are_refused_in_any_chunk():
    encoder = TabularEncoder(Schema({"a": Categorical([0, 1])})).fit()
    chunks = [pd.DataFrame({"id": [1.0, 2.0], "a": [0, 1]}) for _ in range(2)]
    assert encode_codes(chunks, encoder, "id").persons.n_persons == 2
    chunks[1] = chunks[1].astype({"id": "float32"})
    with pytest.raises(
        TypeError, match="'id' of unit must hold integers or texts, got floats of less"
    ):
        encode_codes(chunks, encoder, "id")
