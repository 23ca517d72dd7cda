"""Plans of the samplers by votes: what a fit says, before it; ledgers that refuse; persons."""

import re

import numpy as np
import pandas as pd
import pytest
from evolution_fits import KINDS, Rotation, train

from sklearn_dpgen.domains import Box
from sklearn_dpgen.evolution import PrivateEvolutionSampler
from sklearn_dpgen.evolution._voting_sampler import VotingSampler
from sklearn_dpgen.exceptions import BudgetExceededError
from sklearn_dpgen.ledger import PrivacyLedger
from sklearn_dpgen.mechanisms._sequence import GaussianSequenceRun, ThresholdedLaplaceRun
from sklearn_dpgen.schema import Categorical, Numeric, Schema

SCHEMA = Schema({"a": Numeric(0, 1), "b": Categorical(["x", "y"])})
TABLE = pd.DataFrame({"a": np.linspace(0, 1, 60), "b": ["x", "y"] * 30})
CASES = [
    ("evolution", {}),
    ("evolution", {"start": "moments"}),
    ("evolution", {"n_iter": "auto", "n_samples": "auto", "delta": "auto"}),
    ("evolution", {"schedule": "theory", "n_iter": 2}),
    ("evolution", {"votes__histogram": "laplace_threshold"}),
    ("evolution", {"n_iter": 11, "embedding": Rotation()}),
    ("evolution", {"epsilon": np.inf}),
    ("evolution", {"random_state": None}),
    ("measure", {}),
    ("measure", {"n_points": "auto", "metric": "l1"}),
    ("measure", {"support": np.zeros((4, 3)), "votes__histogram": "laplace_threshold"}),
]
IDS = [f"{name}-{'-'.join(options) or 'default'}" for name, options in CASES]
cases = pytest.mark.parametrize(("name", "options"), CASES, ids=IDS)
samplers = pytest.mark.parametrize("name", ["evolution", "measure"])
kinds = pytest.mark.parametrize("kind", KINDS)
pytestmark = pytest.mark.filterwarnings("ignore:No candidate:UserWarning")


@pytest.fixture
def build(sampler_of):
    """Return a function to a sampler with the labels of a kind."""

    def make(name, kind, **options):
        if kind != "none":
            options |= {"labels": kind}
        if kind == "private":
            options |= {"classes": ["a", "b"]}
        return sampler_of(name, **options)

    return make


def sizes_of(kind, n=60):
    return {"class_sizes": [n // 3, n - n // 3]} if kind == "public" else {}


@kinds
@cases
def test_the_plan_is_what_the_fit_says(build, labelled, name, options, kind):
    plan = build(name, kind, **options).plan(60, **sizes_of(kind))
    fit = train(build(name, kind, **options), labelled, kind)
    assert plan == fit.privacy_
    assert sum(plan.split.values()) == pytest.approx(1)
    (words,) = plan.precision.values()
    if options.get("epsilon") == np.inf:
        assert words.startswith("exact: there is no noise")
        return
    noise = np.array(
        [*plan.noise_scale.values()] if isinstance(plan.noise_scale, dict) else plan.noise_scale
    )
    noise = noise.ravel()[2 * ("start" in options) :]
    noise = noise * (2**0.5 if "votes__histogram" in options else 1)
    ends = [
        float(text) for text in re.match(r"± ([\d.]+)(?: to ([\d.]+))?", words).groups() if text
    ]
    assert ends[0] == pytest.approx(noise.min(), rel=0.06)
    assert ends[-1] == pytest.approx(noise.max(), rel=0.06)
    # Of another number, another one.
    assert plan != build(name, kind, **options).plan(90, **sizes_of(kind, 90))


def test_tables_and_functions_of_a_width_are_planned_too(sampler_of):
    table = sampler_of("evolution", schema=SCHEMA, domain=None)
    assert table.plan(60) == table.plan(60, 2) == table.fit(TABLE).privacy_
    made = sampler_of("evolution", domain=lambda n_features: Box(0, 1, n_features=n_features))
    with pytest.raises(ValueError, match="n_features is needed"):
        made.plan(60)
    assert made.plan(60, 3) == made.fit(np.zeros((60, 3))).privacy_


def test_votes_that_drown_are_said_before_a_record_is_there():
    sampler = PrivateEvolutionSampler(0.01, domain=Box(0, 1, n_features=2), n_samples=100)
    for call in (lambda: sampler.plan(50), lambda: sampler.fit(np.zeros((50, 2)))):
        with pytest.warns(UserWarning, match="The noise on the votes for a candidate is") as caught:
            call()
        assert caught[0].filename == __file__


@samplers
def test_what_no_plan_is_of_is_refused(build, name):
    for n, error in ((0, ValueError), (2.5, TypeError)):
        with pytest.raises(error, match="n_samples must be"):
            build(name, "none").plan(n)
    for sizes, message in (
        ([20, 30], "add up to n_samples=60"),
        ([60], "one a class, of two at least"),
        ([0.5, 59.5], "must be integers"),
        ([60, 0], "every class of classes needs a record"),
    ):
        with pytest.raises(ValueError, match=message):
            build(name, "public").plan(60, class_sizes=sizes)
    with pytest.raises(ValueError, match="those of private ones are secret"):
        build(name, "private").plan(60, class_sizes=[20, 40])
    with pytest.raises(ValueError, match=r"domain has 3 features, X has 4"):
        build(name, "none").plan(60, 4)
    with pytest.raises(ValueError, match="unit='a' is a column of the schema"):
        PrivateEvolutionSampler(schema=SCHEMA, unit="a").plan(60)


@samplers
@pytest.mark.parametrize("histogram", ["gaussian", "laplace_threshold"])
def test_a_fit_beyond_the_budget_draws_and_leaves_nothing(
    build, labelled, monkeypatch, tmp_path, name, histogram
):
    path = str(tmp_path / "ledger")
    PrivacyLedger.create(path, dataset="records", epsilon=3.0, delta=1e-3)
    sampler = build(name, "public", ledger=path, votes__histogram=histogram)
    train(sampler, labelled, "public")
    assert PrivacyLedger(path).spent() > 0

    def drawn(*args):
        raise AssertionError("noise was drawn")

    for run in (GaussianSequenceRun, ThresholdedLaplaceRun):
        monkeypatch.setattr(run, "release", drawn)
    sampler.set_params(epsilon=6.0)
    with pytest.raises(BudgetExceededError):
        train(sampler, labelled, "public")
    assert not [attribute for attribute in vars(sampler) if attribute.endswith("_")]
    with pytest.raises(AssertionError, match="noise was drawn"):
        train(sampler.set_params(ledger=None), labelled, "public")


def of_persons(low):
    """Return rows of 21 persons, of whom the first has ten at one end or the other."""
    X = np.random.default_rng(0).uniform(-2, 2, size=(30, 3))
    X[:10] = -2 if low else 2
    frame = pd.DataFrame(X, columns=["a", "b", "c"])
    return frame.assign(who=[*["first"] * 10, *(f"secret-{i}" for i in range(20))])


def largest_change(build, forced, name):
    """Return the largest l2 change of a release if all rows of a person are replaced."""
    halves = []
    for low in (True, False):
        forced.clear()
        build(name, "none", unit="who").fit(of_persons(low))
        halves.append(list(forced))
    return max(np.linalg.norm(one - other) for one, other in zip(*halves, strict=True))


@samplers
def test_a_person_has_one_vote(build, forced, monkeypatch, name):
    assert largest_change(build, forced, name) == pytest.approx(np.sqrt(2))
    fit = build(name, "none", unit="who").fit(of_persons(True))
    assert fit.privacy_ == build(name, "none", unit="who").plan(21)
    assert fit.privacy_.unit == "who"
    assert "replace one person" in fit.privacy_.neighbouring
    assert forced[-1].sum() == 21
    assert fit.feature_names_in_.tolist() == ["a", "b", "c"]
    assert "secret" not in fit.privacy_.to_json()

    # Twin: all rows vote.
    def all_rows(self, X, y, seed):
        return [X.drop(columns="who"), y]

    monkeypatch.setattr(VotingSampler, "_one_labelled_row_each", all_rows)
    assert largest_change(build, forced, name) > 5


@samplers
def test_public_labels_are_of_persons(build, name):
    frame = of_persons(True)
    y = np.array(["a"] * 10 + ["a", "b"] * 10)
    fit = build(name, "public", unit="who").fit(frame, y)
    assert fit.privacy_ == build(name, "public", unit="who").plan(21, class_sizes=[11, 10])
    y[3] = "b"
    with pytest.raises(ValueError, match="all rows of a person must be of one class"):
        build(name, "public", unit="who").fit(frame, y)
    # Secret ones may differ: a random one counts.
    build(name, "private", unit="who").fit(frame, y)
