"""What drawn rows are good for: the better the rows the larger, whatever made them."""

import warnings

import numpy as np
import pandas as pd
import pytest
from search_cases import TwoColumns, table
from sklearn.base import BaseEstimator
from sklearn.linear_model import LinearRegression
from sklearn.model_selection import GridSearchCV
from sklearn.svm import LinearSVC

from sklearn_dpgen.exceptions import UnpaidScoreWarning
from sklearn_dpgen.model_selection import utility_scorer

FRAME = table(300)
PUBLIC = {"public_rows": True, "random_state": 0, "n_synthetic": 1000}


class Drawn(BaseEstimator):
    """Draws the rows that it was given."""

    def __init__(self, rows):
        self.rows = rows

    def sample(self, n_samples=1, random_state=None):
        return self.rows


def test_better_rows_score_more():
    scorer = utility_scorer("label", **PUBLIC)
    scores = [scorer(TwoColumns(cut=cut).fit(FRAME), FRAME) for cut in (0.0, 0.3, 0.8)]
    assert scores == sorted(scores, reverse=True)
    assert scores[0] > 0.95
    assert scores[2] < 0.85


@pytest.mark.slow
def test_a_grid_search_selects_by_it():
    grid = GridSearchCV(
        TwoColumns(),
        {"cut": [0.8, 0.0], "epsilon": [0.5]},
        scoring=utility_scorer("label", **PUBLIC),
    )
    assert grid.fit(FRAME).best_params_["cut"] == 0.0


def test_warns_of_private_rows_unless_they_are_public():
    sampler = TwoColumns().fit(FRAME)
    with pytest.warns(UnpaidScoreWarning, match="PrivateSearchCV"):
        utility_scorer("label", n_synthetic=100)(sampler, FRAME)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        utility_scorer("label", **PUBLIC)(sampler, FRAME)
        # Whoever pays for the values is not warned.
        utility_scorer("label", n_synthetic=100).row_values(sampler, FRAME)


def test_numbers_are_predicted_within_their_range():
    rng = np.random.default_rng(0)
    x = rng.uniform(size=500)
    rows = pd.DataFrame({"x": x, "pay": 30 * x})
    scorer = utility_scorer("pay", target_range=(0, 30), **PUBLIC)
    assert scorer(Drawn(rows), rows) > 0.95
    linear = utility_scorer("pay", target_range=(0, 30), predictor=LinearRegression(), **PUBLIC)
    assert linear(Drawn(rows), rows) == pytest.approx(1.0)
    shuffled = rows.assign(pay=rng.permutation(rows["pay"]))
    assert scorer(Drawn(shuffled), rows) == pytest.approx(0.75, abs=0.05)


def test_arrays_have_positions_for_names():
    x = np.random.default_rng(0).uniform(size=(500, 1))
    rows = np.column_stack([x, x > 0.5]).astype(float)
    assert utility_scorer(1, **PUBLIC)(Drawn(rows), rows) > 0.95


def test_a_predictor_without_probabilities_counts_hits():
    rows = FRAME.assign(x=2 * FRAME["x"])
    values = utility_scorer("label", predictor=LinearSVC(), **PUBLIC).row_values(Drawn(rows), rows)
    assert set(values) <= {0.0, 1.0}
    assert values.mean() > 0.9


def test_labels_that_were_not_drawn_and_nulls_count_little():
    low = FRAME[FRAME["label"] == "low"]
    values = utility_scorer("label", **PUBLIC).row_values(Drawn(low), FRAME)
    np.testing.assert_array_equal(values, (FRAME["label"] == "low").to_numpy(dtype=float))
    nulls = FRAME.assign(label=None)
    assert np.all(utility_scorer("label", **PUBLIC).row_values(Drawn(FRAME), nulls) < 0.6)


def test_categories_of_any_type_are_read():
    rows = FRAME.assign(
        kind=pd.Categorical(FRAME["label"], categories=["low", "high"], ordered=True),
        mixed=np.where(FRAME["x"] > 0.2, "a", None),
        flag=FRAME["x"] > 0.7,
    )
    assert utility_scorer("label", **PUBLIC)(Drawn(rows), rows) > 0.99
    other = rows.assign(kind="neither", mixed=3)
    assert 0 < utility_scorer("label", **PUBLIC)(Drawn(rows), other) < 1


@pytest.mark.parametrize(
    ("build", "message"),
    [
        (lambda: utility_scorer("label", n_synthetic=0), "n_samples"),
        (lambda: utility_scorer("label", target_range=(1, 0)), "target_range"),
        (
            lambda: utility_scorer("pay", **PUBLIC)(Drawn(FRAME), FRAME),
            "must have the target column 'pay'",
        ),
        (
            lambda: utility_scorer("label", **PUBLIC)(Drawn(FRAME), FRAME[["label"]]),
            r"must have all columns of the synthetic table, lacks \['x'\]",
        ),
    ],
)
def test_bad_input(build, message):
    with pytest.raises(ValueError, match=message):
        build()
