"""Plans of the samplers of tables: what a fit says, before it; and ledgers that refuse one."""

import math
import re
import warnings

import numpy as np
import pytest
from sampler_tables import AUTO, WIDE, hasten, make, table, wide
from sklearn.exceptions import NotFittedError
from sklearn.utils.validation import check_is_fitted

from sklearn_dpgen.exceptions import BudgetExceededError, NoisyCountsWarning
from sklearn_dpgen.ledger import PrivacyLedger
from sklearn_dpgen.mechanisms._sequence import GaussianSequenceRun
from sklearn_dpgen.tables._column_trees import ColumnTree
from sklearn_dpgen.tables._privacy_plan import Round
from sklearn_dpgen.tables._sampler_plan import SamplerPlan, release_sizes

X, WIDE_X = table(), wide()
PERSONS = X.assign(who=np.arange(600) // 4)
hasten = pytest.fixture(autouse=True)(hasten)
relations = pytest.mark.parametrize("neighbours", ["replace_one", "add_or_remove"])


# Samplers with what they are fitted on, and the public number of it.
# With this seed the interactions that are selected are planned ones: one that is selected again has
# more of the budget, and others then have less.
TARGET = {"target": "x", "workload": {"y": 2}, "random_state": 1}
CASES = {
    "pairs": (make, {}, (X,), 600),
    "found bins": (make, {"n_bins": "auto"}, (X,), 600),
    "auto": (make, AUTO, (WIDE_X,), 600),
    "a target": (make, AUTO | TARGET, (WIDE_X,), 600),
    "listed": (make, {"marginals": [("age", "job"), ("day", "pay", "level")]}, (X,), 600),
    "without noise": (make, {"epsilon": np.inf}, (X,), 600),
    "from entropy": (make, {"random_state": None}, (X,), 600),
    "persons": (make, {"unit": "who"}, (PERSONS,), 150),
    "persons in a stream": (make, {"unit": "who", "store": "none"}, (PERSONS,), 150),
    "rows of persons": (
        make,
        {"unit": "who", "max_rows": 2, "unit_weights": "rows"},
        (PERSONS,),
        150,
    ),
}


def heard(call):
    """Return what a call returns, and what it warned of."""
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        found = call()
    return found, sorted(str(one.message) for one in caught)


@pytest.mark.parametrize("case", CASES.values(), ids=CASES)
def test_the_plan_is_what_the_fit_says(case):
    build, options, given, n = case
    sampler = build(**options)
    plan, told = heard(lambda: sampler.plan(n))
    assert vars(sampler).keys() == sampler.get_params(deep=False).keys()
    fit, told_by_fit = heard(lambda: build(**options).fit(*given))
    assert plan == fit.privacy_
    assert {text for text in told if "a count has noise" in text} <= {*told_by_fit}
    assert sum(plan.split.values()) == pytest.approx(1)
    assert plan.neighbours == "replace_one"
    assert plan.unit == options.get("unit")
    assert plan.precision
    # Of another number, another plan, but of rows, whose number is not public.
    is_other = heard(lambda: build(**options).plan(2 * n))[0] != plan
    # Without noise nothing depends on the number of records.
    assert is_other is ("unit_weights" not in options and bool(np.isfinite(plan.epsilon)))


@pytest.mark.parametrize("name", [name for name, case in CASES.items() if "epsilon" not in case[1]])
def test_a_secret_number_is_not_of_the_plan(name):
    _, options, (frame,), n = CASES[name]
    sampler = make(neighbours="add_or_remove", **options)
    plan = sampler.plan()
    assert plan == sampler.plan(n) == sampler.plan(10 * n)
    assert plan == heard(lambda: sampler.fit(frame))[0].privacy_
    assert plan == heard(lambda: sampler.fit(frame.iloc[: len(frame) // 2]))[0].privacy_
    assert plan.neighbours == "add_or_remove"
    assert "percent" not in " ".join(plan.precision.values())
    # Where the number is public, it is needed.
    with pytest.raises(TypeError, match="n_samples must be an integer"):
        make(**options).plan()


def test_a_report_of_the_secret_number_would_be_seen(monkeypatch):
    first, other = (make(neighbours="add_or_remove").fit(part).privacy_ for part in (X, X[:300]))
    assert first == other
    start = SamplerPlan.__init__

    def leak(self, sampler, table, n_samples):
        start(self, sampler, table, n_samples)
        self.n_records = n_samples

    monkeypatch.setattr(SamplerPlan, "__init__", leak)
    first, other = (make(neighbours="add_or_remove").fit(part).privacy_ for part in (X, X[:300]))
    assert first != other


@relations
@pytest.mark.parametrize("case", CASES.values(), ids=CASES)
def test_the_precision_is_that_of_what_is_released(neighbours, case):
    build, options, given, n = case
    sampler = build(neighbours=neighbours, **options)
    words = heard(lambda: sampler.plan(n))[0].precision
    fit = heard(lambda: sampler.fit(*given))[0]
    # Of nodes of the trees, and of cells: sums have more.
    singles = [np.min(part.noise_scale) for part in fit.one_way_marginals_]
    kinds = {2: "cell of a pair"} | dict.fromkeys(range(3, 8), "cell of an interaction")
    found = {"cell of one column": singles}
    for part in fit.marginals_:
        name = "cell of a listed table" if "listed" in " ".join(words) else kinds[len(part.columns)]
        found.setdefault(name, []).append(np.max(part.noise_scale))
    for name, scales in found.items():
        if not np.any(scales):
            assert words[name] == "exact: there is no noise"
            continue
        ends = [
            float(text)
            for text in re.match(r"± ([\d.]+)(?: to ([\d.]+))?", words[name]).groups()
            if text
        ]
        if name == "cell of an interaction" and neighbours == "add_or_remove":
            # Of an unknown number of records few may be affordable, with half of the budget.
            assert 0.94 * ends[0] <= min(scales) <= 1.06 * math.sqrt(2) * ends[0]
            continue
        assert ends[0] == pytest.approx(min(scales), rel=0.06)
        if all(event.among is None for event in fit.privacy_.events):
            assert ends[-1] == pytest.approx(max(scales), rel=0.06)


def test_what_drowns_is_said_before_a_record_is_there():
    sampler = make(0.1)
    for call in (lambda: sampler.fit(X).privacy_, lambda: sampler.plan(600)):
        with pytest.warns(NoisyCountsWarning, match="600 records, a count has noise") as caught:
            report = call()
        assert caught[0].filename == __file__
    assert all("; below the noise" in words for words in report.precision.values())
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert (
            "above the noise in tables of up to" in sampler.plan(90_000).precision["cell of a pair"]
        )


def test_what_no_plan_is_of_is_refused():
    with pytest.raises(ValueError, match="n_features must be the 5 columns"):
        make().plan(600, 4)
    assert make().plan(600, 5) == make().plan(600)
    for n, error in ((0, ValueError), (2.5, TypeError), (None, TypeError)):
        with pytest.raises(error, match="n_samples must be"):
            make().plan(n)
    with pytest.raises(ValueError, match="unit='age' is a column of the schema"):
        make(unit="age").plan(600)
    with pytest.raises(ValueError, match="The 'max_rows' parameter"):
        make(unit="who", max_rows=0).plan(600)
    with pytest.raises(ValueError, match="marginals must name columns of the schema"):
        make(marginals=[("age", "none")]).plan(600)


@pytest.mark.parametrize("case", CASES.values(), ids=CASES)
def test_a_fit_beyond_the_budget_draws_and_leaves_nothing(monkeypatch, tmp_path, case):
    build, options, given, n = case
    if options.get("epsilon") == np.inf:
        pytest.skip("a ledger takes no fit without a guarantee")
    path = tmp_path / "ledger"
    unit = options.get("unit")
    PrivacyLedger.create(path, dataset="table", epsilon=9.0, delta=1e-4, unit=unit)
    sampler = build(**options, ledger=str(path))
    plan = heard(lambda: sampler.plan(n))[0]
    heard(lambda: sampler.fit(*given))
    ledger = PrivacyLedger(path)
    assert len(ledger.report().charges) == 1
    assert sampler.privacy_ == plan

    def drawn(*args):
        raise AssertionError("noise was drawn")

    monkeypatch.setattr(GaussianSequenceRun, "release", drawn)
    sampler.set_params(epsilon=8.9)
    with pytest.raises(BudgetExceededError):
        heard(lambda: sampler.fit(*given))
    assert not [name for name in vars(sampler) if name.endswith("_")]
    with pytest.raises(NotFittedError):
        check_is_fitted(sampler)
    # Without the ledger it would have been.
    with pytest.raises(AssertionError, match="noise was drawn"):
        heard(lambda: sampler.set_params(ledger=None).fit(*given))


def test_wide_schemas_are_planned_too():
    assert make(**AUTO).plan(90_000).n_releases > make(schema=WIDE).plan(90_000).n_releases


def test_later_rounds_are_paid_for_the_pairs_that_they_repeat():
    """By hand: three pairs of coins, then a triple that repeats them."""
    trees = [ColumnTree(2, is_flat=True)] * 3
    rounds = Round(((0, 1), (0, 2), (1, 2)), 0.5), Round(((0, 1, 2),), 0.2)
    options = {"unit": None, "n_records": None, "noise_scale": 1.0}
    values, changed = release_sizes(trees, rounds, "replace_one", **options)
    assert values == [6, 12, 8 + 12]
    assert changed == [6, 6, 2 * (1 + 3)]
