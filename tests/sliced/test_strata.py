"""Strata: a partition of the records, and the pairs of its parts that are compared."""

import itertools

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from sklearn_dpgen.sliced._strata import Strata, StratifiedRecords, count_cells, make_strata


def is_partition(members, n_samples):
    rows = np.concatenate(members.strata)
    return len(rows) == n_samples and set(rows.tolist()) == set(range(n_samples))


def divided(groups, n_groups, labels=None, n_labels=1, **options):
    """Return the strata of records, and who is in them."""
    strata = make_strata(count_cells(groups, n_groups, labels, n_labels), **options)
    return strata, StratifiedRecords.from_cells(strata.cells, groups, labels, None)


def test_a_sample_is_one_stratum():
    members = StratifiedRecords.from_samples([5], [None])
    strata = Strata(members.sizes)
    assert (strata.sizes, strata.pairs, strata.cells, strata.shares) == ((5,), (), (), [1])
    np.testing.assert_array_equal(members.strata[0], np.arange(5))


@given(
    st.integers(2, 4),
    st.integers(1, 3),
    st.randoms(use_true_random=False),
    st.lists(st.tuples(st.integers(0, 3), st.integers(0, 2)), max_size=30),
)
def test_groups_and_labels_partition_the_records(n_groups, n_labels, random, extra):
    # Two records of each kind, and others.
    kinds = list(itertools.product(range(n_groups), range(n_labels)))
    records = 2 * kinds + [kind for kind in extra if kind in kinds]
    random.shuffle(records)
    groups, labels = np.array(records).T
    strata, members = divided(groups, n_groups, labels, n_labels)
    assert is_partition(members, len(records))
    assert members.sizes == strata.sizes
    for rows in members.strata:
        assert len({records[row] for row in rows}) == 1
    # Each pair of groups within each label, once.
    compared = [
        (records[members.strata[i][0]], records[members.strata[j][0]]) for i, j in strata.pairs
    ]
    expected = [
        {(first, label), (second, label)}
        for label in range(n_labels)
        for first, second in itertools.combinations(range(n_groups), 2)
    ]
    assert sorted(sorted(pair) for pair in compared) == sorted(map(sorted, expected))
    assert list(strata.cells) == [records[rows[0]] for rows in members.strata]
    np.testing.assert_allclose(strata.pair_weights("equal"), 1 / len(expected), rtol=1e-12)
    # A stratum of share p of the records, q of those of its label, weighs 2 G/(G-1) p (1 - q).
    weights = strata.pair_weights("size")
    for position, rows in enumerate(members.strata):
        label = records[rows[0]][1]
        p = len(rows) / len(records)
        q = len(rows) / sum(kind[1] == label for kind in records)
        paid = sum(w for pair, w in zip(strata.pairs, weights, strict=True) if position in pair)
        assert paid == pytest.approx(2 * n_groups / (n_groups - 1) * p * (1 - q), rel=1e-12)


@pytest.mark.parametrize(("n_groups", "n_labels"), [(2, 1), (3, 1), (5, 1), (3, 2)])
def test_weights_of_groups_of_one_size_are_those_of_a_mean(n_groups, n_labels):
    strata = make_strata(np.full((n_groups, n_labels), 4))
    for weights in (strata.pair_weights, strata.group_weights):
        np.testing.assert_allclose(weights("size"), weights("equal"), rtol=1e-12)
        assert sum(weights("size")) == pytest.approx(1)


def test_weights_by_hand():
    strata = make_strata(np.array([2, 3, 5]))
    assert strata.pair_weights("size") == pytest.approx([3 * w for w in (0.06, 0.1, 0.15)])
    assert strata.group_weights("size") == pytest.approx([0.2, 0.3, 0.5])
    # The first group has no record of label 1.
    strata = make_strata(np.array([[2, 0], [1, 2], [2, 3]]), declared=True)
    # Of label 0 there are 2, 1, 2 of 5; of label 1 there are 2 and 3 of 5.
    assert strata.cells == ((0, 0), (1, 0), (2, 0), (1, 1), (2, 1))
    expected = [0.5 * 3 * w / 25 for w in (2, 4, 2)] + [0.5 * 4 * 6 / 25]
    assert strata.pair_weights("size") == pytest.approx(expected)
    assert strata.pair_weights("equal") == [0.25] * 4


def test_labels_are_ignored_for_demographic_parity():
    strata, members = divided(np.array([0, 1, 0, 1, 1]), 2)
    assert strata.sizes == (2, 3)
    assert strata.cells == ((0, None), (1, None))
    assert strata.pairs == ((0, 1),)
    assert is_partition(members, 5)
    assert not is_partition(members.subset([0]), 5)


@pytest.mark.parametrize(
    ("fraction", "sizes"),
    [(1.0, [2, 40, 101]), (0.2, [1, 8, 20]), (0.29, [1, 12, 29]), (1e-6, [1, 1, 1])],
)
def test_batches_take_a_share_of_every_stratum(fraction, sizes):
    strata = Strata((2, 40, 101))
    assert strata.batch_sizes(fraction) == sizes


@pytest.mark.parametrize(
    ("groups", "labels", "message"),
    [
        ([0, 0, 1], None, "at least two records; the smallest has 1. Merge groups, or declare"),
        ([0, 0, 1, 1], [0, 1, 0, 0], "within every label; the smallest has 0. Merge groups, use"),
        (
            [0, 0, 0, 0, 1, 1, 1],
            [0, 0, 1, 1, 0, 0, 1],
            "within every label; the smallest has 1. Merge groups, use",
        ),
    ],
)
def test_small_groups_are_refused(groups, labels, message):
    labels = labels if labels is None else np.array(labels)
    with pytest.raises(ValueError, match=message):
        divided(np.array(groups), 2, labels, 1 if labels is None else 2)
