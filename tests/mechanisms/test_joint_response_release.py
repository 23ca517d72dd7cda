"""What joint answers look like, where they go, and in what forms records come."""

import copy
import json
import pickle
import tracemalloc
from functools import partial

import numpy as np
import pandas as pd
import pytest
import torch
from joint_cases import KEYS, RECORDS, SCHEMA, KeySource, mechanism, release_law
from local_privacy import FixedNoise, Heedless, vertices
from scipy.stats import chi2_contingency, chisquare
from sklearn import config_context
from sklearn.base import clone
from sklearn.model_selection import train_test_split

from sklearn_dpgen.mechanisms import JointRandomizedResponse, release_of
from sklearn_dpgen.schema import Categorical, Datetime, Numeric, Schema
from sklearn_dpgen.tables import LocalTableSampler
from sklearn_dpgen.utils._random import SEEDED

COLUMNS = ["asked", "grouping", "answer", "epsilon", "design"]
ALL = np.arange(len(RECORDS))
TINY = {"population_size": 4, "max_iter": 2, "device": "cpu"}


def truthful(epsilon=40.0, **options):
    """Return a mechanism whose answers are the numbers of the records above, but for luck."""
    return mechanism(epsilon, n_asked=3, **options)


def test_a_release_is_five_columns():
    fitted = mechanism(1.0, n_asked=2, random_state=0)
    Y = fitted.transform(RECORDS)
    assert list(Y.columns) == COLUMNS
    assert fitted.get_feature_names_out().tolist() == COLUMNS
    assert Y.index.equals(pd.RangeIndex(30))
    assert [Y[name].dtype for name in COLUMNS[1:4]] == ["int64", "int64", "float64"]
    assert all(len(set(json.loads(text)) & set(SCHEMA)) == 2 for text in Y["asked"])
    assert Y["grouping"].between(0, 2**48 - 1).all()
    assert Y["grouping"].is_unique
    assert (Y["epsilon"] == 1.0).all()
    assert (Y["design"] == fitted.design_).all()
    assert release_of(Y)["mechanism"] == "JointRandomizedResponse"
    assert fitted.encode_release(Y).shape == (30, 6)


def test_names_of_any_script_are_asked():
    schema = Schema({'Größe "m"': Categorical([1, 2]), "年齢, ": Categorical([1, 2])})
    fitted = JointRandomizedResponse(2.0, schema=schema, n_asked=2, random_state=0).fit()
    Y = fitted.transform(pd.DataFrame([[1, 2], [2, 2]], columns=list(schema)))
    assert json.loads(Y["asked"][0]) == list(schema)
    assert "年齢" in Y["asked"][0]
    assert fitted.encode_release(Y).shape == (2, 6)


FILES = {
    "csv": (lambda Y, path: Y.to_csv(path, index=False), pd.read_csv),
    "text": (
        lambda Y, path: Y.to_csv(path, index=False),
        lambda path: pd.read_csv(path, dtype=str),
    ),
    "json": (partial(pd.DataFrame.to_json, double_precision=15), pd.read_json),
    "parquet": (pd.DataFrame.to_parquet, pd.read_parquet),
}


@pytest.mark.parametrize("kind", FILES)
@pytest.mark.parametrize("epsilon", [0.1 + 0.2, 8.0])
def test_answers_come_back_from_files(tmp_path, kind, epsilon):
    if kind == "parquet":
        pytest.importorskip("pyarrow")
    write, read = FILES[kind]
    fitted = mechanism(epsilon, random_state=0)
    Y = fitted.transform(RECORDS)
    write(Y, tmp_path / "answers")
    back = read(tmp_path / "answers")
    assert (release_of(back) == release_of(Y)) == (kind == "parquet")
    np.testing.assert_array_equal(fitted.encode_release(back), fitted.encode_release(Y))
    shuffled = back[COLUMNS[::-1]].sample(frac=1, random_state=0).sort_index()
    np.testing.assert_array_equal(fitted.encode_release(shuffled), fitted.encode_release(Y))


@pytest.mark.slow
def test_one_record_at_a_time():
    fitted, n, record = mechanism(1.0, always=["a"], n_asked=1), 300, 17
    source = KeySource(3)
    fitted._noise = fitted._public = lambda X: source
    parts = [fitted.transform(RECORDS.iloc[[record]]) for _ in range(n)]
    counts = pd.concat(parts)[["asked", "grouping", "answer"]].value_counts()
    law = {k: p[record] * 3 for k, p in release_law(mechanism(1.0), 1).items() if k[0] == '["a"]'}
    assert len(law) == len(KEYS) * 3
    assert chisquare([counts[outcome] for outcome in law], [n * p for p in law.values()])[1] > 1e-4
    other = [n * p for p in np.roll(list(law.values()), 1)]
    assert chisquare([counts[outcome] for outcome in law], other)[1] < 1e-4


def test_answers_of_single_records_are_joined_and_learned_from():
    fitted = mechanism(4.0)
    parts = [fitted.transform(RECORDS.iloc[[i]]) for i in range(30)]
    joined = pd.concat(parts, ignore_index=True)
    encoded = [fitted.encode_release(part) for part in parts]
    np.testing.assert_array_equal(fitted.encode_release(joined), np.concatenate(encoded))
    np.testing.assert_array_equal(fitted.encode_release(iter(parts)), np.concatenate(encoded))
    sampler = LocalTableSampler(mechanism(4.0), random_state=0, **TINY).fit(joined)
    assert set(sampler.sample(5)) == set(SCHEMA)
    assert np.isfinite(sampler.score(joined.iloc[:1]))


def test_answers_on_other_numbers_of_columns_are_joined():
    one, three = (mechanism(2.5, n_asked=k, random_state=k) for k in (1, 3))
    assert one.design_ == three.design_
    joined = pd.concat([one.transform(RECORDS), three.transform(RECORDS)])
    encoded = one.encode_release(joined)
    assert encoded.shape == (60, 7)
    assert (encoded[:30, 5:] == -1).all()
    assert (encoded[30:, 4:] == [0, 1, 2]).all()
    # Each has the likelihood that it has by itself.
    X = torch.eye(10, dtype=torch.float64)[[0, 3, 5]].sum(dim=0, keepdim=True)
    both = one.log_likelihood(X, torch.tensor(encoded))
    parts = [encoded[:30, :5], encoded[30:]]
    alone = [three.log_likelihood(X, torch.tensor(part)) for part in parts]
    torch.testing.assert_close(both, torch.cat(alone, dim=1))
    chunks = [joined[30:].reset_index(drop=True), joined[:30]]
    assert one.encode_release(chunks).shape == (60, 7)


SOURCES = {
    "frame": lambda X: X,
    "shuffled": lambda X: X[["c", "a", "b"]],
    "array": lambda X: X.to_numpy(dtype=object),
    "rows": lambda X: X.to_numpy(dtype=object).tolist(),
    "chunks": lambda X: [X[:11], X[11:11], X[11:]],
    "generator": lambda X: (X[i : i + 7] for i in range(0, 30, 7)),
    "categories": lambda X: X.astype("category"),
    "arrow": lambda X: pytest.importorskip("pyarrow").Table.from_pandas(X),
    "dask": lambda X: pytest.importorskip("dask.dataframe").from_pandas(X, npartitions=3),
}


@pytest.mark.parametrize("source", SOURCES)
def test_records_come_in_any_form(source):
    Y = truthful().transform(SOURCES[source](RECORDS))
    np.testing.assert_array_equal(Y["answer"], ALL)
    assert Y.index.equals(pd.RangeIndex(30))
    assert Y["grouping"].is_unique
    assert truthful().encode_release(SOURCES["chunks"](Y)).shape == (30, 7)


def test_values_are_those_of_the_declaration():
    schema = Schema(
        {
            "age": Numeric(0, 100, nullable=True),
            "day": Datetime("2020-01-01", "2020-12-31"),
            "sex": Categorical(["f", "m"], nullable=True),
        }
    )
    X = pd.DataFrame(
        {
            "age": [-1e9, 12.4, np.inf, np.nan],
            "day": pd.to_datetime(["1999-01-01", "2020-01-02", "2020-12-30", "2044-01-01"]),
            "sex": ["f", "m", None, "m"],
        }
    )
    fitted = JointRandomizedResponse(40.0, schema=schema, n_bins=4, n_asked=3).fit()
    assert fitted.domain_.n_features == 5 + 4 + 3
    answers = fitted.transform(X)["answer"].to_numpy()
    codes = np.array(np.unravel_index(answers, (5, 4, 3))).T
    # Outside of the bounds is the first bin or the last, and missing is a category.
    clipped = X.assign(age=[0.0, 10.0, 100.0, np.nan])
    clipped["day"] = pd.to_datetime(["2020-01-01", "2020-01-01", "2020-12-31", "2020-12-31"])
    expected = [column.codes(clipped[n]) for n, column in fitted.encoder_.columns_.items()]
    np.testing.assert_array_equal(codes, np.transpose(expected))
    assert len({tuple(row) for row in codes}) == 4


def test_columns_of_many_categories(monkeypatch):
    k = 500
    schema = Schema({"code": Categorical(range(k))})
    X = pd.DataFrame({"code": range(k)})
    # More cells than categories: the answer is the category, to the last one.
    exact = JointRandomizedResponse(40.0, schema=schema, n_asked=1).fit()
    np.testing.assert_array_equal(exact.transform(X)["answer"], range(k))
    # Less: each person has groups of all categories, which are not held for all people at once.
    fitted = JointRandomizedResponse(1.0, schema=schema, n_asked=1).fit()

    def peak(n_groups):
        monkeypatch.setattr("sklearn_dpgen.mechanisms._joint_response._GROUPS", n_groups)
        tracemalloc.start()
        fitted.transform(X)
        found = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
        return found

    assert peak(1 << 14) < peak(1 << 30) / 4


def test_the_index_is_released_on_request_only():
    X = RECORDS.set_axis(np.arange(30)[::-1] * 3)
    assert mechanism(1.0).transform(X).index.equals(pd.RangeIndex(30))
    keeping = mechanism(1.0, index="keep")
    assert keeping.transform(X).index.equals(X.index)
    assert keeping.privacy_.public[-1] == "order_and_index"
    # What the report does not state is not released.
    late = mechanism(1.0).set_params(index="keep")
    assert late.transform(X).index.equals(pd.RangeIndex(30))


def test_output_in_pandas_is_the_same():
    Y = mechanism(1.0, random_state=0).transform(RECORDS)
    with config_context(transform_output="pandas"):
        framed = mechanism(1.0, random_state=0).fit_transform(RECORDS)
    asked = mechanism(1.0, random_state=0).set_output(transform="pandas").fit_transform(RECORDS)
    for other in (framed, asked):
        pd.testing.assert_frame_equal(other, Y)
        assert release_of(other) == release_of(Y)


def test_clone_pickle_and_refit():
    fitted = mechanism(1.0, n_asked=2, weights={"a": 2.0}, random_state=3)
    Y = fitted.transform(RECORDS)
    copies = [
        pickle.loads(pickle.dumps(fitted)),
        copy.deepcopy(fitted),
        clone(fitted).fit(),
        clone(fitted).fit(RECORDS[["b", "c", "a"]]),
        clone(fitted).fit(Y),
        fitted.fit(RECORDS),
    ]
    for other in copies:
        pd.testing.assert_frame_equal(other.transform(RECORDS), Y)
        assert other.privacy_ == fitted.privacy_
        np.testing.assert_array_equal(other.encode_release(Y), fitted.encode_release(Y))
    assert not hasattr(clone(fitted), "privacy_")


def test_answers_of_two_designs_are_true_independently():
    """One seed for two designs: else both answers would be true of the same people."""

    class SharesDraws(JointRandomizedResponse):
        """A broken variant: the noise does not depend on what is asked."""

        def _noise(self, X):
            return Heedless(0)

    def p_value(kind):
        X = pd.concat([RECORDS] * 20)
        points, true = vertices(mechanism().domain_), np.tile(ALL, 20)
        are_true = []
        for column in ("a", "c"):
            fitted = mechanism(2.5, kind, n_asked=1, always=[column], random_state=0)
            Y = torch.tensor(fitted.encode_release(fitted.transform(X)))
            log_p = fitted.log_likelihood(torch.as_tensor(points), Y).numpy()
            are_true.append(log_p[true, np.arange(len(X))] > log_p.mean(axis=0))
        return chi2_contingency(pd.crosstab(*are_true))[1]

    assert p_value(JointRandomizedResponse) > 1e-3
    assert p_value(SharesDraws) < 1e-9


class Late(JointRandomizedResponse):
    """A broken variant, which reads its budget at the release."""

    def _ask(self, codes):
        self.epsilon_ = self.epsilon
        return super()._ask(codes)


def test_parameters_set_after_fit_have_no_effect():
    def changes(kind):
        class Fixed(FixedNoise, kind):
            pass

        fitted = mechanism(0.5, Fixed, n_asked=2, random_state=0)
        report, Y = fitted.privacy_, fitted.transform(RECORDS)
        fitted.set_params(epsilon=9.0, n_asked=1, always=["c"], weights={"a": 1e6}, n_bins=3)
        fitted.set_params(schema=Schema({"z": Categorical([0, 1])}), random_state=7)
        assert fitted.privacy_ is report
        return not fitted.transform(RECORDS).equals(Y)

    assert not changes(JointRandomizedResponse)
    assert changes(Late)


class ByParts(JointRandomizedResponse):
    """A broken variant: each part of the records has noise of its own content."""

    def transform(self, X):
        return pd.concat([super(ByParts, self).transform(part) for part in X])


@pytest.mark.parametrize("source", SOURCES)
def test_a_seed_repeats_the_release_in_any_form(source, monkeypatch):
    Y = mechanism(random_state=0).transform(RECORDS)
    for block in (4, 1 << 16):
        monkeypatch.setattr("sklearn_dpgen.mechanisms._joint_response._BLOCK", block)
        other = mechanism(random_state=0).transform(SOURCES[source](RECORDS))
        # Blocks draw one after the other, and what is asked is drawn first.
        questions = ["asked", "grouping"] if block == 4 else COLUMNS
        pd.testing.assert_frame_equal(other[questions], Y[questions])


def test_equal_parts_have_noise_of_their_own():
    def n_shared(kind):
        Y = mechanism(1.0, kind, random_state=0).transform([RECORDS, RECORDS, RECORDS[:7]])
        return Y["grouping"].duplicated().sum()

    assert n_shared(JointRandomizedResponse) == 0
    assert n_shared(ByParts) == 30


def keys_of(X, **options):
    return set(mechanism(**{"n_asked": 2, "random_state": 0, **options}).transform(X)["grouping"])


def test_a_seed_repeats_the_release_and_nothing_else():
    keys = keys_of(RECORDS)
    assert keys_of(RECORDS) == keys
    changed = RECORDS.assign(a=["y", *RECORDS["a"][1:]])
    # No record has a part in the questions, and each one has in all answers.
    assert keys_of(changed) == keys
    first, second = (mechanism(random_state=0).transform(X)["answer"] for X in (RECORDS, changed))
    assert (first != second)[1:].any()
    others = [
        keys_of(RECORDS[:29]),
        keys_of(RECORDS, epsilon=2.0),
        keys_of(RECORDS, random_state=1),
        keys_of(RECORDS, random_state=None),
        keys_of(RECORDS, n_asked=1),
        keys_of(RECORDS, always=["a"]),
        keys_of(RECORDS, weights={"a": 2.0}),
    ]
    assert [len(keys & other) for other in others] == [0] * 7
    assert mechanism(random_state=0).privacy_.noise_source == SEEDED
    unseeded = mechanism()
    assert unseeded.privacy_.noise_source == "operating system entropy"
    assert not set(unseeded.transform(RECORDS)["grouping"]) & set(
        unseeded.transform(RECORDS)["grouping"]
    )


class KeyedByTheFirst(JointRandomizedResponse):
    """A broken variant: one record decides the noise of all."""

    def _noise(self, X):
        return super()._noise(X[:1])


def share_of_equal_answers(kind, i, n=400):
    """Return how often people answer alike, whose table differs in record i alone."""
    X = pd.DataFrame({"a": ["x"] * n, "b": [1] * n, "c": ["q"] * n})
    other = X.copy()
    other.loc[i, "c"] = "r"
    fitted = mechanism(1.0, kind, n_asked=2, random_state=0)
    first, second = fitted.transform(X), fitted.transform(other)
    # The questions are public and the same: what differs is noise.
    assert first["grouping"].equals(second["grouping"])
    return (first["answer"] == second["answer"]).drop(index=i).mean()


@pytest.mark.parametrize("i", [1, 200, 399])
def test_tables_that_share_their_first_record_share_no_noise(i):
    # An answer of six cells or more is guessed by chance with a probability of 0.3 at most: the
    # sum of its squared probabilities at this budget. Five standard deviations are 0.12.
    assert share_of_equal_answers(JointRandomizedResponse, i) < 0.45
    assert share_of_equal_answers(KeyedByTheFirst, i) == 1
    # Of the first record it knows as much.
    assert share_of_equal_answers(KeyedByTheFirst, 0) < 0.45


def test_no_release_touches_a_global_stream():
    before = np.random.mtrand._rand.get_state()
    mechanism(random_state=0).transform(RECORDS)
    after = np.random.mtrand._rand.get_state()
    np.testing.assert_array_equal(after[1], before[1])
    assert after[2] == before[2]


def test_without_noise_answers_are_true():
    fitted = truthful(np.inf)
    Y = fitted.transform(RECORDS)
    np.testing.assert_array_equal(Y["answer"], ALL)
    encoded = fitted.encode_release(Y)
    np.testing.assert_array_equal(encoded[:, 0], ALL)
    for refuses in (
        lambda: fitted.log_likelihood(torch.eye(10)[:1], torch.tensor(encoded)),
        lambda: LocalTableSampler(fitted, **TINY).fit(Y),
        lambda: LocalTableSampler(fitted, privatize=True, **TINY).fit(RECORDS),
    ):
        with pytest.raises(ValueError, match="epsilon must be finite, got inf"):
            refuses()
    # Coded as text, infinity is a budget as any other.
    assert len(fitted.encode_release(Y.astype({"epsilon": str}))) == 30


@pytest.mark.parametrize("epsilon", [1e-50, 1e-3, 1e5])
def test_extreme_budgets(epsilon):
    fitted = mechanism(epsilon, random_state=0)
    Y = fitted.transform(pd.concat([RECORDS] * 20))
    X = torch.full((1, 10), 0.3, requires_grad=True)
    vertex = torch.eye(10)[[0, 3, 5]].sum(dim=0, keepdim=True)
    encoded = torch.tensor(fitted.encode_release(Y), dtype=torch.float32)
    for points in (X, vertex.requires_grad_()):
        log_p = fitted.log_likelihood(points, encoded)
        log_p.sum().backward()
        assert torch.isfinite(log_p).all()
        assert torch.isfinite(points.grad).all()
    if epsilon < 1:
        # Almost nothing is told.
        points = torch.tensor(vertices(fitted.domain_)[[0, -1]])
        log_p = fitted.log_likelihood(points, encoded.double())
        assert abs(log_p[0] - log_p[1]).max() <= epsilon * (1 + 1e-9)


def test_folds_of_answers_are_answers():
    fitted = mechanism(1.0, random_state=0)
    Y = fitted.transform(RECORDS)
    for part in train_test_split(Y, random_state=0):
        assert release_of(part) == release_of(Y)
        assert len(fitted.encode_release(part)) == len(part)
