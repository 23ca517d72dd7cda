"""LocalTableSampler: answers and records from files, chunks, dask and Arrow."""

import numpy as np
import pandas as pd
import pytest
from answer_tables import make
from sampler_tables import SCHEMA, table
from sklearn.base import clone

from sklearn_dpgen.mechanisms import JointRandomizedResponse

X = table(200)
MECHANISM = JointRandomizedResponse(3.0, schema=SCHEMA, n_bins=4, random_state=0).fit()
Y = MECHANISM.transform(X)
COLUMNS = ["asked", "grouping", "answer", "epsilon", "design"]


def same(first, second):
    return np.array_equal(first.law_.probabilities, second.law_.probabilities)


def text_file(answers, path):
    answers.to_csv(path / "answers.csv", index=False)
    return pd.read_csv(path / "answers.csv")


def parquet_file(answers, path):
    pytest.importorskip("pyarrow")
    answers.to_parquet(path / "answers.parquet")
    return pd.read_parquet(path / "answers.parquet")


def joined_files(answers, path):
    parts = [text_file(answers[i::3], path) for i in range(3)]
    joined = pd.concat([part[COLUMNS[::-1]] for part in parts], ignore_index=True)
    return joined.sort_values("grouping")


@pytest.mark.parametrize("write", [text_file, parquet_file])
def test_answers_from_a_file(tmp_path, write):
    answers = write(Y, tmp_path)
    sampler = make().fit(answers)
    assert same(sampler, make().fit(Y))
    assert sampler.score(answers) == sampler.score(Y)
    assert list(sampler.feature_names_in_) == COLUMNS
    assert sampler.n_features_in_ == 5


def test_answers_that_were_joined(tmp_path):
    """In any order of rows and of columns the same answers are as likely."""
    sampler = make().fit(Y)
    joined = joined_files(Y, tmp_path)
    assert sampler.score(joined) == pytest.approx(sampler.score(Y), abs=1e-6)
    assert np.isfinite(make().fit(joined).score(Y))


def test_answers_given_one_at_a_time():
    # With a seed equal records have equal answers, as if one person had answered twice.
    unseeded = clone(MECHANISM).set_params(random_state=None).fit()
    people = [unseeded.transform(X[i : i + 1]) for i in range(20)]
    sampler = make().fit(pd.concat(people))
    assert same(sampler, make().fit(people))
    assert same(sampler, make().fit(iter(people)))


@pytest.mark.parametrize("privatize", [False, True])
def test_chunks(privatize):
    given = X if privatize else Y
    chunks = [given[:70], given[70:70], given[70:110], given[110:]]
    fits = [make(privatize=privatize).fit(c) for c in (chunks, iter(chunks), tuple(chunks))]
    assert all(same(fits[0], fit) for fit in fits)
    # Whatever was fitted, a score does not warn about names.
    assert np.isfinite(fits[0].score(given))
    if not privatize:
        assert same(fits[0], make().fit(Y))
        assert fits[0].score(given) == fits[0].score(chunks)
    assert list(fits[0].feature_names_in_) == list(SCHEMA if privatize else COLUMNS)
    assert fits[0].sample(4).dtypes.equals(X.dtypes)


@pytest.mark.slow
@pytest.mark.parametrize("privatize", [False, True])
def test_dask(privatize):
    dask = pytest.importorskip("dask")
    frames = pytest.importorskip("dask.dataframe")
    given = X if privatize else Y
    with dask.config.set({"scheduler": "synchronous", "dataframe.convert-string": False}):
        lazy = frames.from_pandas(given, npartitions=3)
        sampler = make(privatize=privatize).fit(lazy)
        assert np.isfinite(sampler.score(lazy))
    if not privatize:
        assert same(sampler, make().fit(Y))
        assert sampler.score(lazy) == sampler.score(Y)
    assert list(sampler.feature_names_in_) == list(SCHEMA if privatize else COLUMNS)
    assert sampler.sample(4).dtypes.equals(X.dtypes)


class Stream:
    """What is used of a frame of Polars: a stream, and a list of names."""

    def __init__(self, table):
        self.table, self.columns = table, table.column_names

    def __arrow_c_stream__(self, requested_schema=None):
        return self.table.__arrow_c_stream__(requested_schema)


STREAMS = {"table": lambda arrow: arrow, "frame": Stream, "reader": lambda a: a.to_reader(50)}


@pytest.mark.parametrize("privatize", [False, True])
@pytest.mark.parametrize("kind", STREAMS)
def test_arrow(privatize, kind):
    pa, stream = pytest.importorskip("pyarrow"), STREAMS[kind]
    given = X if privatize else Y
    arrow = pa.Table.from_pandas(given, preserve_index=False)
    sampler = make(privatize=privatize).fit(stream(arrow))
    assert np.isfinite(sampler.score(stream(arrow)))
    if not privatize:
        assert same(sampler, make().fit(Y))


@pytest.mark.parametrize("privatize", [False, True])
def test_lazy_frames_are_not_asked_for_their_columns_first(privatize):
    """It warns, as to know them Polars may have to read files."""
    polars = pytest.importorskip("polars")
    pytest.importorskip("pyarrow")
    given = X if privatize else Y
    sampler = make(privatize=privatize).fit(polars.from_pandas(given).lazy())
    assert isinstance(sampler.sample(3), polars.DataFrame)
    if not privatize:
        assert same(sampler, make().fit(Y))
    with pytest.raises(ValueError, match=r"must be those of the schema, each once: missing \["):
        make(privatize=not privatize).fit(polars.from_pandas(given).lazy())


def test_the_columns_of_records_come_in_any_order():
    frame = X[["day", "job", "age", "level", "pay"]].set_index(np.arange(200) + 7)
    sampler = make(privatize=True).fit(frame)
    assert list(sampler.feature_names_in_) == list(frame)
    assert list(sampler.sample(3).columns) == list(frame)
    # The answers, and so the law, are those of the schema's order.
    assert same(sampler, make(privatize=True).fit(X))
    assert sampler.score(frame) == sampler.score(X)
    assert list(make().fit(Y).sample(3).columns) == list(SCHEMA)
