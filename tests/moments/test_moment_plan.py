"""Plans of the samplers from moments: what a fit says, before it; ledgers that refuse; persons."""

import re

import numpy as np
import pandas as pd
import pytest

from sklearn_dpgen.domains import Ball, Box
from sklearn_dpgen.exceptions import BudgetExceededError
from sklearn_dpgen.ledger import PrivacyLedger
from sklearn_dpgen.mechanisms._sequence import GaussianSequenceRun
from sklearn_dpgen.moments import MomentImageSampler, MomentSampler
from sklearn_dpgen.moments._base import BaseMomentSampler
from sklearn_dpgen.schema import Categorical, Numeric, Schema

N = 400
X = np.random.default_rng(0).uniform(0, 1, size=(N, 4))
Y = np.arange(N) % 4 // 3
SCHEMA = Schema({"a": Numeric(0, 10), "b": Categorical(["x", "y"])})
TABLE = pd.DataFrame({"a": 10 * X[:, 0], "b": np.where(X[:, 1] < 0.3, "x", "y")})
IMAGES = {"shape": (2, 2), "pixel_range": (0, 1), "device": "cpu", "max_iter": 1}
CASES = {
    "ball": (MomentSampler, {"domain": Ball(2.0, n_features=4)}, X),
    "function": (MomentSampler, {"domain": lambda n_features: Box(0, 1, n_features=n_features)}, X),
    "schema": (MomentSampler, {"schema": SCHEMA, "delta": 1e-6}, TABLE),
    "no noise": (MomentSampler, {"domain": Box(0, 1, n_features=4), "epsilon": np.inf}, X),
    "images": (MomentImageSampler, IMAGES, X),
    "images by entropy": (MomentImageSampler, IMAGES | {"random_state": None}, X),
}
LABELS = {
    "none": ({}, None, {}),
    "public": ({"labels": "public"}, Y, {"class_sizes": [300, 100]}),
    "private": ({"labels": "private", "classes": [0, 1]}, Y, {}),
    "declared": (
        {"labels": "private", "classes": [0, 1], "label_proportions": [0.7, 0.3]},
        Y,
        {},
    ),
}
cases = pytest.mark.parametrize("case", CASES.values(), ids=CASES)
labels = pytest.mark.parametrize("kind", LABELS.values(), ids=LABELS)


def build(case, kind=LABELS["none"], **options):
    kind, (estimator, given, _) = kind[0], case
    return estimator(**({"random_state": 0} | given | kind | options))


@labels
@cases
def test_the_plan_is_what_the_fit_says(case, kind):
    _, y, sizes = kind
    records = case[2]
    plan = build(case, kind).plan(N, records.shape[1], **sizes)
    fit = build(case, kind)
    fit = fit.fit(records) if y is None else fit.fit(records, y)
    assert plan == fit.privacy_
    assert sum(plan.split.values()) == pytest.approx(1)
    sizes = {"class_sizes": [600, 200]} if sizes else {}
    # Without noise nothing depends on the number of records.
    is_other = plan.epsilon < np.inf
    assert is_other == (plan != build(case, kind).plan(2 * N, records.shape[1], **sizes))


@pytest.mark.slow
def test_the_precision_is_that_of_the_means():
    """Means of records that fill their ball, over many seeds, against what is said of them."""
    ball = Ball(2.0, n_features=3)
    points = ball.sample(500, np.random.default_rng(0))
    words = MomentSampler(domain=ball).plan(500).precision["mean of a feature"]
    stated = float(re.match(r"± ([\d.]+), that is ([\d.]+) percent", words)[1])
    fits = [MomentSampler(domain=ball, random_state=seed).fit(points) for seed in range(60)]
    found = np.std([fit.means_[0] - points.mean(axis=0) for fit in fits])
    assert 0.6 < stated / found < 1.7
    tenth = MomentSampler(domain=ball, epsilon=0.1).plan(500).precision["mean of a feature"]
    assert not 0.6 < float(re.match(r"± ([\d.]+)", tenth)[1]) / found < 1.7


def test_what_drowns_is_said_before_a_record_is_there():
    sampler = MomentSampler(0.01, domain=Ball(1.0, n_features=9))
    for call in (lambda: sampler.plan(40), lambda: sampler.fit(np.zeros((40, 9)))):
        with pytest.warns(UserWarning, match="The noise on the mean of a class is") as caught:
            call()
        assert caught[0].filename == __file__


def test_what_no_plan_is_of_is_refused():
    for name in ("ball", "images"):
        case = CASES[name]
        with pytest.raises(ValueError, match=r"has 4 features|must be 4, the pixels"):
            build(case).plan(N, 5)
        with pytest.raises(ValueError, match="n_samples must be at least 1"):
            build(case).plan(0)
        with pytest.raises(ValueError, match="add up to n_samples=400"):
            build(case, labels="public").plan(N, class_sizes=[1, 2])
        with pytest.raises(ValueError, match="classes and label_proportions require y"):
            build(case, labels="public", classes=[0, 1]).plan(N)
        with pytest.raises(ValueError, match="labels must be 'public' or 'private' when labels"):
            build(case).plan(N, class_sizes=[300, 100])
        with pytest.raises(ValueError, match="those of private ones are secret"):
            build(case, LABELS["private"]).plan(N, class_sizes=[300, 100])
    with pytest.raises(ValueError, match="n_features is needed"):
        build(CASES["function"]).plan(N)
    with pytest.raises(ValueError, match="unit='b' is a column of the schema"):
        build(CASES["schema"], unit="b").plan(N)


@pytest.mark.parametrize("name", ["ball", "images"])
def test_a_fit_beyond_the_budget_draws_and_leaves_nothing(monkeypatch, tmp_path, name):
    path = str(tmp_path / "ledger")
    PrivacyLedger.create(path, dataset="records", epsilon=1.2, delta=1e-3)
    sampler = build(CASES[name], labels="public", ledger=path).fit(X, Y)
    assert PrivacyLedger(path).spent() > 0

    def drawn(*args):
        raise AssertionError("noise was drawn")

    monkeypatch.setattr(GaussianSequenceRun, "release", drawn)
    sampler.set_params(epsilon=2.0)
    with pytest.raises(BudgetExceededError):
        sampler.fit(X, Y)
    assert not [attribute for attribute in vars(sampler) if attribute.endswith("_")]
    with pytest.raises(AssertionError, match="noise was drawn"):
        sampler.set_params(ledger=None).fit(X, Y)


def of_persons(high):
    """Return rows of 301 persons, of whom the first has a hundred at one corner or another."""
    frame = pd.DataFrame(X, columns=list("abcd"))
    frame.iloc[:100] = float(high)
    return frame.assign(who=[*["first"] * 100, *(f"secret-{i}" for i in range(300))])


def largest_change(monkeypatch, name):
    """Return the largest change of a release, over its sensitivity, if a person is replaced."""
    seen, halves = [], []

    def fixed(self, value, noise):
        seen.append(value.copy())
        return np.full(len(value), 20.0)

    monkeypatch.setattr(GaussianSequenceRun, "release", fixed)
    for high in (True, False):
        seen.clear()
        build(CASES[name], unit="who").fit(of_persons(high))
        halves.append(list(seen))
    return max(np.linalg.norm(one - other) for one, other in zip(*halves, strict=True))


@pytest.mark.parametrize("name", ["ball", "images"])
def test_a_person_is_one_term_of_a_sum(monkeypatch, name):
    fit = build(CASES[name], unit="who").fit(of_persons(True))
    assert fit.privacy_ == build(CASES[name], unit="who").plan(301)
    assert fit.privacy_.unit == "who"
    assert "n_samples" in fit.privacy_.public
    assert fit.n_features_in_ == 4
    assert "secret" not in fit.privacy_.to_json()
    assert 0.1 < largest_change(monkeypatch, name) <= 1

    # Twin: all rows are summed.
    def all_rows(self, X, y, seed):
        return [X.drop(columns="who"), y]

    monkeypatch.setattr(BaseMomentSampler, "_one_labelled_row_each", all_rows)
    assert largest_change(monkeypatch, name) > 10
