"""Questions are public: drawn by the stated laws, without a look at records, and for good."""

import io
import itertools
import json
from collections import Counter

import numpy as np
import pandas as pd
import pytest
from joint_cases import (
    KEYS,
    RECORDS,
    AsksByRecord,
    FewKeys,
    KeysByRecord,
    mechanism,
    questions,
)
from local_privacy import FixedNoise, log_likelihood, vertices
from scipy.stats import chi2_contingency, chisquare

from sklearn_dpgen.mechanisms import JointRandomizedResponse
from sklearn_dpgen.mechanisms._joint_questions import Questions, _mix, draw_columns
from sklearn_dpgen.schema import Categorical, Ordinal, Schema
from sklearn_dpgen.utils._random import NoiseSource

P_VALUE = 1e-4


def noise(seed=0):
    return NoiseSource(seed)


class Fixed(FixedNoise, JointRandomizedResponse):
    def _public(self, n):
        return noise(0)


class FixedByRecord(JointRandomizedResponse):
    """A broken variant: what is public is drawn by a seed that the records decide."""

    def _ask(self, codes):
        self._sum = int(codes.sum())
        return super()._ask(codes)

    def _public(self, n):
        return noise(self._sum)


def asked_of(kind, record, n=3000, n_asked=1):
    """Return the questions that n people with one record are asked."""
    fitted = mechanism(1.0, kind, n_asked=n_asked)
    Y = fitted.transform(RECORDS.iloc[np.full(n, record)])
    return Y["asked"] + " " + Y["grouping"].astype(str)


def test_questions_are_the_same_whatever_the_records():
    for n_asked in (1, 2, 3):
        first, last = (asked_of(Fixed, i, n_asked=n_asked) for i in (0, 29))
        assert first.equals(last)
        first, last = (asked_of(FixedByRecord, i, n_asked=n_asked) for i in (0, 29))
        assert not first.equals(last)


def test_the_law_of_questions_is_that_of_all_records():
    def p_value(kind):
        parts = [asked_of(kind, i).value_counts() for i in (0, 29)]
        return chi2_contingency(pd.concat(parts, axis=1).fillna(0))[1]

    assert p_value(FewKeys) > P_VALUE
    assert p_value(AsksByRecord) < P_VALUE
    assert p_value(KeysByRecord) < P_VALUE


def test_each_question_is_asked_equally_often():
    asked = asked_of(FewKeys, 7, n_asked=2).value_counts()
    assert len(asked) == len(questions(2))
    assert chisquare(asked)[1] > P_VALUE


@pytest.mark.parametrize(("d", "n_asked"), [(6, 1), (6, 2), (6, 3), (4, 4)])
def test_columns_are_dealt_like_cards(d, n_asked):
    rounds = 50
    asked = draw_columns(rounds * d // n_asked, n_asked, (), np.full(d, 2.0), noise())
    counts = np.bincount(asked.ravel(), minlength=d)
    np.testing.assert_array_equal(counts, rounds)
    # A round that is not over has each column once at most.
    part = draw_columns(d // n_asked + 1, n_asked, (), np.ones(d), noise())
    assert max(Counter(part.ravel().tolist()).values()) <= 2
    # Independent draws are not dealt.
    rng = np.random.default_rng(0)
    free = [rng.choice(d, n_asked, replace=False) for _ in range(rounds * d // n_asked)]
    assert n_asked == d or np.ptp(np.bincount(np.ravel(free), minlength=d)) > 0


def test_columns_that_are_left_of_a_round_are_any():
    n, d = 6000, 5
    asked = draw_columns(n, 2, (), np.ones(d), noise())
    counts = np.bincount(asked.ravel())
    # Half as many rounds as people, each without one column.
    assert abs(counts - 2 * n / d).max() < 5 * np.sqrt(n / 2 * 0.2 * 0.8)
    assert (np.diff(asked, axis=1) > 0).all()
    pairs = Counter(map(tuple, asked[::2].tolist()))
    assert len(pairs) == 10
    assert chisquare(list(pairs.values()))[1] > P_VALUE


def test_dealing_goes_on_from_block_to_block(monkeypatch):
    monkeypatch.setattr("sklearn_dpgen.mechanisms._joint_questions._BLOCK", 60)
    asked = draw_columns(1000, 2, (), np.ones(6), noise())
    assert len(asked) == 1000
    for start in range(0, 999, 3):
        assert sorted(asked[start : start + 3].ravel().tolist()) == list(range(6))


def test_columns_of_always_are_asked_of_everybody():
    fitted = mechanism(2.5, Fixed, n_asked=2, always=["c"])
    Y = fitted.transform(RECORDS)
    assert set(Y["asked"]) == {'["a", "c"]', '["b", "c"]'}
    assert abs((Y["asked"] == '["a", "c"]').sum() - 15) <= 1
    every = mechanism(2.5, Fixed, n_asked=2, always=["c", "a"]).transform(RECORDS)
    assert set(every["asked"]) == {'["a", "c"]'}


def shares_of_pairs(weights):
    """Return the probability of each pair in two successive draws by weight."""
    total = sum(weights)
    return {
        (i, j): weights[i] / total * weights[j] / (total - weights[i])
        + weights[j] / total * weights[i] / (total - weights[j])
        for i, j in itertools.combinations(range(len(weights)), 2)
    }


def test_weights_are_those_of_successive_draws():
    weights, n = [1.0, 2.0, 3.0, 6.0], 40_000
    pairs = Counter(map(tuple, draw_columns(n, 2, (), np.array(weights), noise()).tolist()))

    def p_value(given):
        expected = shares_of_pairs(given)
        assert abs(sum(expected.values()) - 1) < 1e-12
        return chisquare([pairs[pair] for pair in expected], [n * p for p in expected.values()])[1]

    assert p_value(weights) > P_VALUE
    assert p_value([1.0, 2.0, 3.0, 5.5]) < P_VALUE
    # Among others than those of always.
    always = draw_columns(n, 2, (3,), np.array(weights), noise(1))
    counts = np.bincount(always.ravel())
    assert counts[3] == n
    assert chisquare(counts[:3], n * np.arange(1, 4) / 6)[1] > P_VALUE


def one_column(size, keys, *, ordered=False, limit=None, epsilon=0.5):
    """Return questions on one column."""
    columns = np.zeros((len(keys), 1), dtype=np.int64)
    limit = size if limit is None else limit
    return Questions(np.array([size]), np.array([ordered]), epsilon, limit, columns, keys)


def random_keys(n, seed=0):
    return noise(seed).integers(2**48, n)


@pytest.mark.parametrize(("K", "epsilon", "m"), [(6, 0.01, 3), (7, 0.8, 2), (5, 3.0, 1)])
def test_offsets_are_uniform_subsets(K, epsilon, m):
    n = 30_000
    offsets = one_column(K, random_keys(n), epsilon=epsilon).offsets()
    assert offsets.shape == (n, m)
    subsets = Counter(map(tuple, offsets.tolist()))
    expected = [(0, *rest) for rest in itertools.combinations(range(1, K), m - 1)]
    assert subsets.keys() == set(expected)
    assert m == 1 or chisquare(list(subsets.values()))[1] > P_VALUE
    windows = Counter(map(tuple, np.tile(np.arange(m), (n, 1)).tolist()))
    assert m == 1 or chisquare([windows[subset] for subset in expected])[1] < P_VALUE


def test_each_cell_is_in_as_many_answers():
    keys = random_keys(50)
    for K in (2, 3, 8, 11):
        asked = one_column(K, keys, epsilon=0.7)
        answers = np.arange(K)[:, None, None]
        cells = np.sort((answers + asked.offsets()) % K, axis=None).reshape(K, -1)
        assert (cells == np.arange(K)[:, None]).all()


def groups_of(size, n_groups, keys, *, ordered):
    """Return the group of each category (columns) by each key."""
    asked = one_column(size, keys, ordered=ordered, limit=n_groups)
    codes = range(size)
    return np.array([asked.cells_of(np.full((len(keys), 1), code)) for code in codes]).T


@pytest.mark.parametrize("ordered", [False, True])
@pytest.mark.parametrize(("size", "n_groups"), [(7, 3), (12, 4), (9, 8), (16, 2)])
def test_groups_are_of_nearly_equal_size(size, n_groups, ordered):
    groups = groups_of(size, n_groups, random_keys(400), ordered=ordered)
    counts = np.array([np.bincount(row, minlength=n_groups) for row in groups])
    assert np.ptp(counts, axis=1).max() <= 1
    # Any two categories are together as often as any others, in random groups.
    if not ordered:
        together = (groups[:, :, None] == groups[:, None, :]).mean(axis=0)
        share = (counts * (counts - 1)).sum(axis=1).mean() / (size * (size - 1))
        off = together[~np.eye(size, dtype=bool)]
        assert abs(off - share).max() < 5 * np.sqrt(share * (1 - share) / 400)


def are_runs(groups):
    """Return whether the categories of each group are neighbours, around the end too."""
    n_groups = groups.max() + 1
    return (groups != np.roll(groups, 1, axis=1)).sum(axis=1) == n_groups


def test_groups_of_ordered_columns_are_intervals_every_other_time():
    n, size, n_groups = 2000, 12, 4
    keys = random_keys(n)
    runs = are_runs(groups_of(size, n_groups, keys, ordered=True))
    assert abs(runs.mean() - 0.5) < 5 * np.sqrt(0.25 / n)
    assert are_runs(groups_of(size, n_groups, keys, ordered=False)).mean() < 0.01
    # They start anywhere.
    intervals = groups_of(size, n_groups, keys, ordered=True)[runs]
    starts = np.argmax((intervals == 0) & (np.roll(intervals, 1, axis=1) != 0), axis=1)
    assert chisquare(np.bincount(starts, minlength=size))[1] > P_VALUE


def test_columns_are_grouped_each_by_itself():
    n = 4000
    sizes, ordered = np.array([8, 8]), np.array([False, False])
    columns = np.tile([0, 1], (n, 1))
    asked = Questions(sizes, ordered, 1.0, 4, columns, random_keys(n))
    cells = np.array([asked.cells_of(np.full((n, 2), code)) for code in (0, 1)])
    together = [(cells[0] // 2) == (cells[1] // 2), cells[0] % 2 == cells[1] % 2]
    table = pd.crosstab(*together)
    assert chi2_contingency(table)[1] > P_VALUE


# The format: what is stored must be read the same by all later versions.
STORED = """asked,grouping,answer
"[""town""]",0,3
"[""town"", ""grade""]",1,2
"[""grade"", ""town""]",98765432109876,4
"[""grade"", ""sex""]",281474976710655,7
"[""town"", ""grade"", ""sex""]",123456789012345,6
"[""town"", ""grade"", ""sex""]",42,5
"""
COVERED = [
    "D",
    "A2 A4 C2 C4 D2 D4 E2 E4 F5 F6 G5 G6",
    "1B 1D 1E 1G 2D 2E 3D 3E",
    "4m 5m",
    "C1f C1m C2f C2m C3f C3m E1f E1m E2f E2m E3f E3m G1f G1m G2f G2m G3f G3m",
    "A4m A5m A6m B4m B5m B6m C4m C5m C6m D4m D5m D6m E4m E5m E6m F4m F5m F6m G4m G5m G6m",
]


def read_covered(text):
    """Return the covered records of stored answers, as texts like those above."""
    values = {"town": list("ABCDEFG"), "grade": [1, 2, 3, 4, 5, 6], "sex": ["f", "m"]}
    kinds = {"town": Categorical, "grade": Ordinal, "sex": Categorical}
    schema = Schema({name: kinds[name](values[name]) for name in values})
    fitted = JointRandomizedResponse(1.5, schema=schema, n_asked=3).fit()
    Y = pd.read_csv(io.StringIO(text)).assign(epsilon=1.5, design="c9b53fee83783eb5")
    log_p = log_likelihood(fitted, vertices(fitted.domain_), fitted.encode_release(Y))
    records = pd.DataFrame(itertools.product(*values.values()), columns=list(values))
    found = []
    for asked, row in zip(Y["asked"], log_p.T, strict=True):
        covered = records[row > row.max() - 0.75][json.loads(asked)]
        found.append(" ".join(sorted({"".join(map(str, r)) for r in covered.to_numpy()})))
    return found


def test_what_is_stored_is_read_the_same_for_good():
    assert read_covered(STORED) == COVERED
    assert read_covered(STORED.replace(",42,", ",43,"))[-1] != COVERED[-1]


def test_digests_ignore_hierarchies_but_not_the_order_of_labels():
    labels = ["A1", "A2", "B1"]
    columns = [
        Categorical(labels),
        Categorical(labels, hierarchy=[1]),
        Categorical(["A1", "B1", "A2"], hierarchy=[1]),
        Categorical(["B1", "A1", "A2"], hierarchy=[1]),
    ]
    schemas = [Schema({"code": column, "sex": Categorical(["f", "m"])}) for column in columns]
    digests = [JointRandomizedResponse(1.5, schema=schema).fit().design_ for schema in schemas]
    assert digests[0] == digests[1] == digests[2] != digests[3]


def test_keys_are_hashed_the_same_everywhere():
    with np.errstate(over="raise"):
        assert _mix(np.array([0, 1, 2**51 - 1])).tolist() == [
            16294208416658607535,
            10451216379200822465,
            17021557490355486515,
        ]
    assert _mix(np.array([1]), 7, np.arange(2)).tolist() == [
        7760261570089663287,
        6303145562382734917,
    ]
    assert _mix(KEYS.astype(np.int64)).tolist() == _mix(KEYS.astype(np.uint64)).tolist()
