from itertools import combinations

import numpy as np
import ot
import pandas as pd
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from sklearn_dpgen.datasets import make_biased_labels
from sklearn_dpgen.metrics import (
    disparate_impact,
    equalized_odds_ratios,
    group_wasserstein_distance,
    over_diagonal_rates,
    sliced_wasserstein_distance,
)

SECRET = 7.7725

binary = st.integers(0, 1)


def records(n_groups):
    """Lists of (true label, prediction, group), with every group in them."""
    group = st.integers(0, n_groups - 1)
    return st.lists(st.tuples(binary, binary, group), min_size=8, max_size=40).filter(
        lambda rows: len({row[2] for row in rows}) == n_groups
    )


def fold(ratio):
    """The ratio or its inverse, whichever is at most 1."""
    return min(ratio, 1 / ratio) if ratio else 0.0


# fairlearn, where it has the same measure


@pytest.mark.slow
@settings(max_examples=60, deadline=None)
@given(rows=st.integers(2, 4).flatmap(records))
def test_disparate_impact_agrees_with_fairlearn(rows):
    fairlearn = pytest.importorskip("fairlearn.metrics")
    y_true, y_pred, groups = np.transpose(rows)
    expected = fairlearn.demographic_parity_ratio(y_true, y_pred, sensitive_features=groups)
    value = disparate_impact(None, y_pred, sensitive_features=groups)
    assert fold(value) == pytest.approx(expected, nan_ok=True)


@pytest.mark.slow
@settings(max_examples=60, deadline=None)
@given(rows=st.integers(2, 3).flatmap(records))
def test_equalized_odds_agree_with_fairlearn(rows):
    fairlearn = pytest.importorskip("fairlearn.metrics")
    y_true, y_pred, groups = np.transpose(rows)
    assume(len({(y, g) for y, _, g in rows}) == 2 * len(set(groups)))
    ratios = equalized_odds_ratios(y_true, y_pred, sensitive_features=groups)
    assert ratios.index.tolist() == [0, 1]
    assume(ratios.notna().all())
    expected = fairlearn.equalized_odds_ratio(y_true, y_pred, sensitive_features=groups)
    assert min(map(fold, ratios)) == pytest.approx(expected)


@pytest.mark.parametrize("columns", [["a"], ["a", "b"]])
def test_over_diagonal_rates_are_selection_rates_of_fairlearn(columns):
    fairlearn = pytest.importorskip("fairlearn.metrics")
    rng = np.random.RandomState(0)
    y_pred = rng.uniform(-0.5, 0.5, size=(300, 2))
    groups = pd.DataFrame({"a": rng.choice(["x", "y", "z"], 300), "b": rng.randint(2, size=300)})
    above = y_pred.sum(axis=1) > 0
    frame = fairlearn.MetricFrame(
        metrics=lambda y_true, y_pred: fairlearn.selection_rate(y_true, y_pred, pos_label=True),
        y_true=above,
        y_pred=above,
        sensitive_features=groups[columns],
    )
    rates = over_diagonal_rates(None, y_pred, sensitive_features=groups[columns])
    assert rates.index.tolist() == frame.by_group.index.tolist()
    np.testing.assert_allclose(rates.to_numpy(), frame.by_group.to_numpy())


# closed forms and degenerate inputs


def test_disparate_impact_of_two_groups_keeps_its_direction():
    y_pred, groups = [1, 0, 0, 0, 1, 1, 1, 0], ["a"] * 4 + ["b"] * 4
    assert disparate_impact(None, y_pred, sensitive_features=groups) == pytest.approx(1 / 3)
    assert disparate_impact(None, y_pred, sensitive_features=groups[::-1]) == pytest.approx(3)
    assert disparate_impact(None, y_pred, sensitive_features=groups, pos_label=0) == pytest.approx(
        3
    )


def test_disparate_impact_of_more_groups_is_the_smallest_over_pairs():
    y_pred, groups = np.array([1, 1, 1, 0, 1, 0, 0, 0]), np.array([0, 0, 1, 1, 2, 2, 2, 2])
    rates = [y_pred[groups == group].mean() for group in range(3)]
    smallest = min(min(a / b, b / a) for a, b in combinations(rates, 2))
    assert disparate_impact(None, y_pred, sensitive_features=groups) == smallest == 0.25


@pytest.mark.parametrize(
    ("y_pred", "expected"),
    [([0, 0, 0, 0], np.nan), ([1, 0, 0, 0], np.inf), ([0, 0, 0, 1], 0.0), ([1, 1, 1, 1], 1.0)],
)
def test_zero_rates(y_pred, expected):
    groups = [0, 0, 1, 1]
    np.testing.assert_equal(disparate_impact(None, y_pred, sensitive_features=groups), expected)
    # Only a ratio of two zeros has a value of the caller.
    for chosen in (0.0, 1.0):
        value = disparate_impact(None, y_pred, sensitive_features=groups, zero_division=chosen)
        assert value == (chosen if np.isnan(expected) else expected)
    ratios = equalized_odds_ratios([1] * 4, y_pred, sensitive_features=groups)
    np.testing.assert_equal(ratios.to_dict(), {1: expected})


@pytest.mark.slow
@settings(max_examples=50, deadline=None)
@given(rows=st.integers(2, 3).flatmap(records))
def test_equalized_odds_are_the_impact_within_a_label(rows):
    y_true, y_pred, groups = np.transpose(rows)
    ratios = equalized_odds_ratios(y_true, y_pred, sensitive_features=groups)
    assert ratios.index.tolist() == sorted(set(y_true))
    for label, ratio in ratios.items():
        inside = y_true == label
        if len(set(groups[inside])) < len(set(groups)):
            assert np.isnan(ratio)
        else:
            expected = disparate_impact(
                y_true[inside], y_pred[inside], sensitive_features=groups[inside]
            )
            np.testing.assert_equal(ratio, expected)


def test_equalized_odds_of_several_labels_follow_one_event():
    y_true = ["u", "v", "w"] * 4
    y_pred = ["v", "v", "u", "u", "v", "w", "v", "w", "v", "v", "v", "w"]
    groups = [0] * 6 + [1] * 6
    ratios = equalized_odds_ratios(y_true, y_pred, sensitive_features=groups, pos_label="v")
    assert ratios.to_dict() == {"u": 0.5, "v": 2.0, "w": 0.0}


@pytest.mark.slow
@settings(max_examples=40, deadline=None)
@given(rows=records(3), order=st.randoms(use_true_random=False))
def test_order_of_samples_and_names_do_not_matter(rows, order):
    y_true, y_pred, groups = np.transpose(rows)
    shuffled = list(rows)
    order.shuffle(shuffled)
    other_true, other_pred, other_groups = np.transpose(shuffled)
    names = np.array(["c", "a", "b"])[other_groups]
    words = np.array(["no", "yes"])
    np.testing.assert_equal(
        disparate_impact(None, y_pred, sensitive_features=groups),
        disparate_impact(None, words[other_pred], sensitive_features=names, pos_label="yes")
        if len(set(y_pred)) == 2
        else disparate_impact(None, other_pred, sensitive_features=names),
    )
    np.testing.assert_equal(
        equalized_odds_ratios(y_true, y_pred, sensitive_features=groups).to_dict(),
        equalized_odds_ratios(other_true, other_pred, sensitive_features=names).to_dict(),
    )
    outputs = 1.0 * np.column_stack([y_true, y_pred])
    other = 1.0 * np.column_stack([other_true, other_pred])
    assert group_wasserstein_distance(
        None, outputs, sensitive_features=groups, n_projections=5, random_state=0
    ) == pytest.approx(
        group_wasserstein_distance(
            None, other, sensitive_features=names, n_projections=5, random_state=0
        )
    )


def test_an_index_is_ignored():
    y_pred, groups = [1, 0, 1, 1], [0, 0, 1, 1]
    shifted = pd.Series(groups, index=[3, 2, 1, 0])
    assert disparate_impact(None, pd.Series(y_pred), sensitive_features=shifted) == 0.5


def test_over_diagonal_is_strict_and_shifts_with_the_offset():
    y_pred = np.array([[0.25, -0.25], [0.25, 0.0], [-0.5, 0.25], [0.5, 0.5]])
    groups = [False, False, True, True]
    expected = {False: 0.5, True: 0.5}
    assert over_diagonal_rates(None, y_pred, sensitive_features=groups).to_dict() == expected
    shifted = over_diagonal_rates(None, y_pred + 0.5, sensitive_features=groups, offset=1.0)
    assert shifted.to_dict() == expected


def test_the_bias_of_the_simulated_labels_is_seen():
    # P(Y = 1 | A = 0) = 1 - p and P(Y = 1 | A = 1) = p.
    n, p = 30000, 0.7
    data = make_biased_labels(n, agreement=p, random_state=0)
    rates = over_diagonal_rates(None, data.y_continuous - 0.5, sensitive_features=data.sensitive)
    sigma = np.sqrt(p * (1 - p) / (n / 2))
    np.testing.assert_allclose(rates, [1 - p, p], atol=5 * sigma)
    impact = disparate_impact(data.y, data.y, sensitive_features=data.sensitive)
    assert impact == pytest.approx(rates[0] / rates[1])
    ratios = equalized_odds_ratios(data.y, data.y, sensitive_features=data.sensitive)
    np.testing.assert_equal(ratios.to_dict(), {0: np.nan, 1: 1.0})


# Wasserstein


@pytest.mark.parametrize("p", [1, 2, 3.5])
@pytest.mark.parametrize("shape", [(5,), (5, 1), (5, 3)])
def test_two_groups_give_the_distance_between_them(shape, p):
    rng = np.random.RandomState(0)
    first, second = rng.randn(*shape), rng.rand(7, *shape[1:])
    value = group_wasserstein_distance(
        None,
        np.concatenate([second, first]),
        sensitive_features=["b"] * 7 + ["a"] * 5,
        p=p,
        n_projections=20,
        random_state=3,
    )
    expected = (
        sliced_wasserstein_distance(first, second, p=p, n_projections=20, random_state=3)
        if shape[1:] == (3,)
        else ot.wasserstein_1d(first.ravel(), second.ravel(), p=p) ** (1 / p)
    )
    assert value == pytest.approx(expected)


def test_more_groups_give_the_mean_over_pairs_of_squares():
    # Translates by 0, 1 and 3: the squares are 1, 4 and 9.
    scores = np.concatenate([np.arange(4.0), np.arange(4.0) + 1, np.arange(4.0) + 3])
    groups = np.repeat([0, 1, 2], 4)
    value = group_wasserstein_distance(None, scores, sensitive_features=groups)
    assert value**2 == pytest.approx(14 / 3)


def test_all_pairs_share_their_directions():
    # Along any one direction, translates by 0, c and 3c are at 1, 2 and 3 times one distance.
    cloud = np.random.RandomState(0).randn(6, 3)
    shift = np.array([1.0, -2.0, 0.5])
    groups = np.repeat([0, 1, 2], 6)
    scores = np.concatenate([cloud, cloud + shift, cloud + 3 * shift])
    unit = sliced_wasserstein_distance(cloud, cloud + shift, n_projections=1, random_state=5)
    value = group_wasserstein_distance(
        None, scores, sensitive_features=groups, n_projections=1, random_state=5
    )
    assert value == pytest.approx(unit * np.sqrt(14 / 3))
    # What direction a stream gives is not known, but it is the same for both orders.
    linear, square = (
        group_wasserstein_distance(
            None,
            scores,
            sensitive_features=groups,
            p=p,
            n_projections=1,
            random_state=np.random.RandomState(5),
        )
        for p in (1, 2)
    )
    assert square / linear == pytest.approx(np.sqrt(14 / 3) / 2)
    # With directions of their own, the pairs would not keep the proportions.
    state = np.random.RandomState(5)
    units = [
        sliced_wasserstein_distance(cloud, cloud + c * shift, n_projections=1, random_state=state)
        for c in (1, 2, 3)
    ]
    assert not np.allclose(np.array(units) / units[0], [1, 2, 3])


def test_a_stream_goes_on_and_a_seed_repeats():
    scores, groups = np.random.RandomState(0).randn(9, 2), [0, 1, 2] * 3

    def distance(random_state):
        return group_wasserstein_distance(
            None, scores, sensitive_features=groups, n_projections=3, random_state=random_state
        )

    state = np.random.RandomState(5)
    first, second = distance(state), distance(state)
    assert first != second
    assert first == distance(np.random.RandomState(5))
    assert distance(5) == distance(5) != distance(6)


@pytest.mark.parametrize("scale", [1e-100, 1e-15, 1e15, 1e100])
def test_scale_equivariance(scale):
    scores, groups = np.array([0.1, 0.7, 0.4, 0.9]), [0, 0, 1, 2]
    value = group_wasserstein_distance(None, scores, sensitive_features=groups)
    scaled = group_wasserstein_distance(None, scale * scores, sensitive_features=groups)
    assert scaled == pytest.approx(scale * value, rel=1e-9)


def test_equal_groups_are_at_zero():
    assert group_wasserstein_distance(None, [0.5] * 4, sensitive_features=[0, 0, 0, 1]) == 0


# errors

CALLS = {
    "disparate_impact": lambda groups, y=(0, 1, 1): disparate_impact(
        None, y, sensitive_features=groups
    ),
    "equalized_odds": lambda groups, y=(0, 1, 1): equalized_odds_ratios(
        (0, 1, 0), y, sensitive_features=groups
    ),
    "over_diagonal": lambda groups, y=((0, 1),) * 3: over_diagonal_rates(
        None, y, sensitive_features=groups
    ),
    "wasserstein": lambda groups, y=(0.0, 1.0, 1.0): group_wasserstein_distance(
        None, y, sensitive_features=groups
    ),
}


@pytest.mark.parametrize("call", CALLS.values(), ids=CALLS)
def test_groups_are_checked(call):
    assert call([0, 1, 0]) is not None
    with pytest.raises(ValueError, match="sensitive_features has 2 rows for 3 samples"):
        call([0, 1])
    with pytest.raises(ValueError, match="sensitive_features must have at least two groups"):
        call([1, 1, 1])
    # A missing value is a group like others.
    np.testing.assert_array_equal(np.asarray(call([1, None, 1])), np.asarray(call([0, 1, 0])))


@pytest.mark.parametrize("call", CALLS.values(), ids=CALLS)
@pytest.mark.parametrize(
    "values",
    [
        [SECRET, np.nan, 1.0],
        [SECRET, str(SECRET) + "x", 1.0],
        [SECRET, [SECRET], 1.0],
        SECRET,
        np.full((3, 1, 1), SECRET),
    ],
)
def test_predictions_are_checked(call, values):
    with pytest.raises((TypeError, ValueError), match=r"^y_pred\b") as caught:
        call([0, 1, 0], values)
    assert str(SECRET) not in str(caught.value)


def test_labels_without_the_positive_one_are_refused():
    groups = [0, 1, 1]
    with pytest.raises(ValueError, match="pos_label must be among the labels, and 1 is not"):
        disparate_impact(None, ["no", "yes", "no"], sensitive_features=groups)
    with pytest.raises(ValueError, match="pos_label must be among the labels"):
        equalized_odds_ratios([0, 2, 0], [2, 2, 2], sensitive_features=groups)
    # All decisions are alike, and that they are not the positive ones is seen from the truth.
    for truth in (["no", "yes", "no"], ["no"] * 3, None):
        with pytest.raises(ValueError, match="pos_label must be among the labels, and 1 is not"):
            disparate_impact(truth, ["no"] * 3, sensitive_features=groups)
    with pytest.raises(ValueError, match="pos_label must be among the labels, and 'yes' is not"):
        disparate_impact([0, 0, 0], [0, 0, 0], sensitive_features=groups, pos_label="yes")
    # A constant prediction is a fair one to ask about, be the positive label seen or not.
    words = ["no"] * 3
    assert np.isnan(disparate_impact(words, words, sensitive_features=groups, pos_label="yes"))
    assert np.isnan(disparate_impact(None, [0, 0, 0], sensitive_features=groups))


def test_other_errors_name_the_parameter():
    groups = [0, 1, 1]
    with pytest.raises(ValueError, match="y_true and y_pred must have as many samples"):
        equalized_odds_ratios([0, 1], [0, 1, 1], sensitive_features=groups)
    with pytest.raises(ValueError, match="y_true must have no missing values"):
        equalized_odds_ratios([0, 1, None], [0, 1, 1], sensitive_features=groups)
    with pytest.raises(ValueError, match="y_true and y_pred must have as many samples"):
        disparate_impact([0, 1], [0, 1, 1], sensitive_features=groups)
    with pytest.raises(ValueError, match="y_pred must have one column, got 2"):
        disparate_impact(None, [[0, 1]] * 3, sensitive_features=groups)
    with pytest.raises(ValueError, match="y_pred must have two columns, got 1"):
        over_diagonal_rates(None, [0, 1, 1], sensitive_features=groups)
    with pytest.raises(TypeError, match="offset"):
        over_diagonal_rates(None, [[0, 1]] * 3, sensitive_features=groups, offset="0")
    with pytest.raises(ValueError, match="p must be at least 1"):
        group_wasserstein_distance(None, [0, 1, 1], sensitive_features=groups, p=0.5)
    with pytest.raises(ValueError, match="n_projections"):
        group_wasserstein_distance(None, [0, 1, 1], sensitive_features=groups, n_projections=0)
