"""What the guarantee of a search rests on: each check fails on a search that breaks it."""

import warnings
from dataclasses import replace

import numpy as np
import pandas as pd
import pytest
from search_cases import NoisyThreshold, Sampled, TwoColumns, Understating, labelled, table
from sklearn.base import clone
from sklearn.linear_model import LogisticRegression
from sklearn.model_selection import ParameterSampler

from sklearn_dpgen.accounting import GaussianProfile, PoissonRuns
from sklearn_dpgen.accounting._composition import ComposedProfile
from sklearn_dpgen.accounting._selection import RandomStoppingProfile, calibrate_runs
from sklearn_dpgen.domains import Box
from sklearn_dpgen.evolution import PrivateEvolutionSampler
from sklearn_dpgen.exceptions import BudgetExceededError, NoisyCountsWarning
from sklearn_dpgen.ledger import PrivacyLedger
from sklearn_dpgen.model_selection import PrivateSearchCV, _private_search, utility_scorer
from sklearn_dpgen.model_selection._candidates import draw_parameters
from sklearn_dpgen.model_selection._records import Records
from sklearn_dpgen.nn import Training
from sklearn_dpgen.schema import Categorical, Identifier, Numeric, Schema
from sklearn_dpgen.tables import SyntheticDataClassifier, TableSampler
from sklearn_dpgen.utils._random import NoiseSource

X, y = labelled()
CUTS = {"cut": [0.1, 0.3, 0.6, 0.9]}
EPSILONS = np.linspace(0, 3, 200)


@pytest.fixture
def fits():
    NoisyThreshold.fits.clear()
    return NoisyThreshold.fits


@pytest.fixture
def seven(monkeypatch):
    """Each search has seven runs."""
    monkeypatch.setattr(PoissonRuns, "draw", lambda self, noise: 7)


def is_paid_for(report, search):
    """Whether the profile of a fit is below that of one run, of the search's own budget."""
    run = calibrate_runs(search.epsilon, search.delta, PoissonRuns(search.n_runs)).run
    fit = ComposedProfile(report.composable()).delta(EPSILONS)
    gaussian = GaussianProfile(run.mu).delta(EPSILONS)
    return bool(np.all(fit <= 1e-3 * search.delta / search.n_runs + gaussian))


@pytest.mark.parametrize("kind", [NoisyThreshold, Sampled])
@pytest.mark.parametrize("epsilon", [0.5, 3.0])
def test_each_fit_costs_what_a_run_may_and_hardly_less(fits, seven, kind, epsilon):
    search = PrivateSearchCV(kind(), CUTS, epsilon=epsilon).fit(X, y)
    assert len(fits) == 7
    reports = [fit.plan(len(X)) for fit in fits]
    assert all(is_paid_for(report, search) for report in reports)
    more = kind(epsilon=1.02 * fits[0].epsilon, delta=fits[0].delta).plan(len(X))
    assert not is_paid_for(more, search)
    # The naive price: the whole budget for each of the runs.
    assert not is_paid_for(kind(epsilon=epsilon, delta=1e-5).plan(len(X)), search)


def largest_score_change(search, monkeypatch):
    """Return the change of a score without noise over one record, in units of its noise."""
    n_scored = 80
    monkeypatch.setattr(NoiseSource, "normal", lambda self, size: np.zeros(size))
    clean = search.fit(X, y).best_score_
    # Large, for a score is rounded to a part of its noise.
    monkeypatch.setattr(NoiseSource, "normal", lambda self, size: np.full(size, 2.0**30))
    scale = (search.fit(X, y).best_score_ - clean) / 2**30
    monkeypatch.undo()
    # Of a mean of values in [0, 1].
    return 1 / n_scored / scale


@pytest.mark.slow
def test_the_noise_of_a_score_is_that_of_a_run(monkeypatch):
    search = PrivateSearchCV(NoisyThreshold(), {"cut": [0.3]}, epsilon=1.0)
    mu = calibrate_runs(1.0, 1e-5, PoissonRuns(10)).run.mu
    assert largest_score_change(search, monkeypatch) == pytest.approx(mu, rel=1e-9)
    # The best of ten at the noise of one run costs more than the budget.
    whole = calibrate_runs(1.0, 1e-5, PoissonRuns(1e-6)).run
    assert whole.mu > 1.5 * mu
    assert RandomStoppingProfile(whole, PoissonRuns(10)).epsilon(1e-5) > 1.5


def test_a_record_trains_or_scores(fits, seven):
    rows = {}

    class Watching(NoisyThreshold):
        def fit(self, X, y):
            rows["train"] = set(X[:, 0])
            return super().fit(X, y)

        def predict(self, X):
            rows["scored"] = set(X[:, 0])
            return super().predict(X)

    PrivateSearchCV(Watching(), CUTS).fit(X, y)
    assert not rows["train"] & rows["scored"]
    assert rows["train"] | rows["scored"] == set(X[:, 0])
    assert len(rows["scored"]) == 80


def visits(n_persons=60):
    """Return a table of which each person has one to five rows, with equal labels."""
    person = np.repeat(np.arange(n_persons), np.arange(n_persons) % 5 + 1)
    x = np.random.default_rng(0).uniform(size=n_persons)[person]
    return pd.DataFrame({"who": person, "x": x, "label": np.where(x > 0.5, "high", "low")})


def test_all_rows_of_a_person_are_in_one_part():
    frame = visits()
    records = Records(frame, None, "who")
    assert (records.n_units, records.n_features) == (60, 2)
    (train, _), (scored, _), weights = records.split(12, NoiseSource())
    assert len(train) + len(scored) == len(frame)
    held_out = set(frame["who"]) - set(train["who"])
    assert len(held_out) == 12
    assert frame["who"].isin(held_out).sum() == len(scored)
    assert list(scored.columns) == ["x", "label"]
    assert weights.sum() == pytest.approx(1.0)
    # By rows, persons would be in both.
    (train, _), (scored, _), _ = Records(frame, None).split(12, NoiseSource())
    assert set(train["who"]) & set(scored["who"])


def test_a_person_weighs_the_same_in_a_score_however_many_rows_there_are():
    frame = visits()
    for rows in (1, 50):
        other = frame[frame["who"] != 3]
        new = pd.DataFrame({"who": 99, "x": np.zeros(rows), "label": "high"})
        other = pd.concat([other, new], ignore_index=True)
        _, (scored, _), weights = Records(other, None, "who").split(60, NoiseSource())
        mine = weights[(scored["x"] == 0).to_numpy()]
        assert mine.sum() == pytest.approx(1 / 60)
        # A mean over rows moves by more.
        assert (rows / len(scored) > 1.5 / 60) == (rows == 50)


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore::sklearn_dpgen.exceptions.NoisyCountsWarning")
def test_persons_may_be_named_by_an_identifier_of_the_schema():
    schema = Schema(
        {"who": Identifier(), "x": Numeric(0, 1), "label": Categorical(["low", "high"])}
    )
    frame = visits()
    for unit, n in (("who", 60), (None, len(frame))):
        search = PrivateSearchCV(
            TableSampler(schema=schema, unit=unit, n_bins=4, population_size=200),
            {"marginals": ["pairs"]},
            scoring=utility_scorer("label", n_synthetic=200),
            epsilon=3.0,
            n_runs=2,
        ).fit(frame)
        assert search.privacy_ == search.plan(n)
        assert search.privacy_.unit == unit
        assert list(search.feature_names_in_) == ["who", "x", "label"]
        assert search.sample(2)["who"].tolist() == [0, 1]


@pytest.mark.slow
def test_persons_are_protected_where_the_estimator_protects_them(tmp_path):
    frame = visits()
    schema = Schema({"x": Numeric(0, 1), "label": Categorical(["low", "high"])})
    ledger = PrivacyLedger.create(tmp_path / "a", dataset="v", epsilon=9.0, delta=1e-3, unit="who")
    search = PrivateSearchCV(
        TableSampler(schema=schema, unit="who", n_bins=4, population_size=200),
        {"marginals": ["pairs"]},
        scoring=utility_scorer("label", n_synthetic=200),
        epsilon=3.0,
        n_runs=2,
        ledger=ledger,
    )
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", NoisyCountsWarning)
        search.fit(frame)
        assert search.privacy_ == search.plan(60)
    assert search.privacy_.unit == "who"
    assert "person" in search.privacy_.neighbouring
    assert "12 persons" in search.privacy_.precision["score"]
    assert list(search.feature_names_in_) == ["x", "label"]
    assert len(ledger.report().charges) == 1


def states_limits(report, one):
    """Return whether a search states all limits of the guarantee of one fit."""
    return set(one.caveats) <= set(report.caveats) and report.max_records == one.max_records


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore::UserWarning")
def test_limits_of_a_fit_are_limits_of_the_search():
    schema = Schema({"x": Numeric(0, 1), "label": Categorical(["low", "high"])})
    rows = TableSampler(schema=schema, unit="who", unit_weights="rows", max_rows=3)
    evolution = PrivateEvolutionSampler(domain=Box(0, 1, n_features=2), n_samples=20, n_iter=1)
    scoring = utility_scorer("label", n_synthetic=200)
    for estimator, grid, caveat, words in (
        (rows, {"max_iter": [5]}, "rows_count", "3 rows or more"),
        (evolution, {"n_iter": [1]}, "candidates_and_embedding", "source of the candidates"),
    ):
        one = estimator.plan(60, 2)
        report = PrivateSearchCV(estimator, grid, scoring=scoring, n_runs=2).plan(60, 2)
        assert caveat in one.caveats
        assert words in " ".join(report.to_text().split())
        assert states_limits(report, one)
        # Twin: a search that states its own limits alone.
        assert not states_limits(replace(report, caveats=_private_search._CAVEATS), one)


@pytest.mark.slow
@pytest.mark.parametrize("place", ["predictor", "sampler"])
def test_persons_are_protected_wherever_the_unit_is_given(place):
    """Rows of one person would else train and score, each with the weight of a person."""
    frame = visits()
    schema = Schema({"x": Numeric(0, 1), "label": Categorical(["low", "high"])})
    sampler = TableSampler(schema=schema, target="label", n_bins=4, population_size=200)
    predictor = SyntheticDataClassifier(sampler, LogisticRegression(), n_samples=200, n_draws=1)
    predictor.set_params(**{"unit" if place == "predictor" else "sampler__unit": "who"})
    search = PrivateSearchCV(predictor, {"n_draws": [1]}, epsilon=3.0, n_runs=2)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", NoisyCountsWarning)
        search.fit(frame[["x", "who"]], frame["label"])
    assert search.privacy_.unit == "who"
    assert "12 persons" in search.privacy_.precision["score"]
    both = clone(predictor).set_params(unit="who", sampler__unit="house")
    with pytest.raises(ValueError, match="must have one unit"):
        PrivateSearchCV(both, {"n_draws": [1]}).fit(frame[["x", "who"]], frame["label"])


@pytest.mark.parametrize("given", [None, 0])
def test_runs_are_independent_whatever_seed_the_estimator_has(fits, seven, given):
    PrivateSearchCV(NoisyThreshold(random_state=given), {"cut": [0.3]}).fit(X, y)
    assert len({fit.mean_ for fit in fits}) == 7
    assert {fit.random_state for fit in fits} == {None}
    # A seed that is shared repeats its noise.
    again = [NoisyThreshold(random_state=0).fit(X, y).mean_ for _ in range(2)]
    assert again[0] == again[1]


def test_a_seeded_search_gives_each_run_a_seed_of_its_own(fits, seven):
    PrivateSearchCV(NoisyThreshold(), {"cut": [0.3]}, random_state=0).fit(X, y)
    assert len({fit.random_state for fit in fits}) == 7
    assert len({fit.mean_ for fit in fits}) == 7


def test_parameters_of_a_run_are_drawn_apart_from_those_of_others():
    """Nothing is kept between draws, from which the place of the winner could be told."""

    class Same:
        def integers(self, high, size):
            return np.full(size, 12)

    space = {"cut": list(np.linspace(0, 1, 1001))}
    first, second = (draw_parameters(space, Same()) for _ in range(2))
    assert first == second
    drawn = {draw_parameters(space, NoiseSource())["cut"] for _ in range(20)}
    assert len(drawn) > 10


def cuts_of_one_seed(fits):
    """Return the parameters of all runs, where whatever is drawn as a seed is the same."""
    fits.clear()
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(NoiseSource, "integers", lambda self, high, size: np.full(size, 12))
        PrivateSearchCV(NoisyThreshold(), {"cut": list(np.linspace(0, 1, 1001))}).fit(X, y)
    return {fit.cut for fit in fits}


def test_a_search_draws_the_parameters_of_each_run_apart(fits, seven, monkeypatch):
    assert len(cuts_of_one_seed(fits)) == 1
    # The negative twin: one generator for all runs.
    drawn = iter(ParameterSampler({"cut": list(np.linspace(0, 1, 1001))}, 50, random_state=12))
    monkeypatch.setattr(_private_search, "draw_parameters", lambda space, noise: next(drawn))
    assert len(cuts_of_one_seed(fits)) == 7


class Nested(NoisyThreshold):
    """Has settings of its own, as estimators that train a network have."""

    def __init__(
        self, cut=0.5, *, training=None, epsilon=1.0, delta=1e-5, ledger=None, random_state=None
    ):
        super().__init__(
            cut, epsilon=epsilon, delta=delta, ledger=ledger, random_state=random_state
        )
        self.training = training


def steps_of_runs(fits):
    """Return the steps of all runs, and those of the object that the caller declared."""
    fits.clear()
    shared = Training(callback=print)
    steps = [{"training": [shared], "training__max_iter": [n]} for n in (2, 3, 4)]
    PrivateSearchCV(Nested(), [{"training": [shared]}, *steps], n_runs=40).fit(X, y)
    assert all(fit.training.callback is None for fit in fits)
    return {fit.training.max_iter for fit in fits}, shared


@pytest.mark.slow
def test_runs_share_no_nested_settings(fits, monkeypatch):
    monkeypatch.setattr(PoissonRuns, "draw", lambda self, noise: 40)
    steps, shared = steps_of_runs(fits)
    # Each of the four is missed by 40 runs with probability 1e-5.
    assert steps == {None, 2, 3, 4}
    assert shared.max_iter is None
    assert shared.callback is print

    # The negative twin: a run sets its steps on the object that all runs have.
    def without_copy(space, noise):
        seed = int(noise.integers(2**32, 1)[0])
        return next(iter(ParameterSampler(space, 1, random_state=seed)))

    monkeypatch.setattr(_private_search, "draw_parameters", without_copy)
    _, shared = steps_of_runs(fits)
    assert shared.max_iter is not None
    assert shared.callback is None


def test_neither_the_number_of_runs_nor_a_loser_is_kept(seven):
    search = PrivateSearchCV(NoisyThreshold(), CUTS).fit(X, y)
    assert {name for name in vars(search) if name.endswith("_")} == {
        "best_estimator_",
        "best_params_",
        "best_score_",
        "n_features_in_",
        "privacy_",
    }
    # The price of a run is no guarantee of what is shown of them.
    assert search.best_estimator_.privacy_ == search.privacy_


def test_is_one_charge_before_anything_is_read(fits, seven, tmp_path):
    ledger = PrivacyLedger.create(tmp_path / "ledger", dataset="toy", epsilon=2.5, delta=1e-4)
    booked = []

    class Counting(NoisyThreshold):
        def fit(self, X, y):
            booked.append((len(ledger.report().charges), self.ledger))
            return super().fit(X, y)

    search = PrivateSearchCV(Counting(ledger=ledger), CUTS, ledger=ledger).fit(X, y)
    assert booked == 7 * [(1, None)]
    (charge,) = ledger.report().charges
    assert charge.report == search.privacy_
    assert 1.0 <= ledger.spent(1e-5) < 2
    # A charge for each run would be seen.
    Counting(ledger=ledger).fit(X, y)
    assert len(ledger.report().charges) == 2


def test_nothing_is_read_where_the_ledger_has_less_left(fits, tmp_path):
    ledger = PrivacyLedger.create(tmp_path / "ledger", dataset="toy", epsilon=0.5, delta=1e-5)
    search = PrivateSearchCV(NoisyThreshold(), CUTS, ledger=ledger)
    with pytest.raises(BudgetExceededError):
        search.fit(X, y)
    assert not fits
    assert not hasattr(search, "privacy_")
    assert ledger.spent() == 0


def test_a_fit_that_costs_more_than_its_plan_is_seen(seven):
    with pytest.raises(RuntimeError, match="must cost what it had planned"):
        PrivateSearchCV(Understating(), CUTS).fit(X, y)


def test_scores_of_a_generator_are_bounded_for_each_row(monkeypatch):
    """One odd row moves the mean by 1/n at most, whatever it holds."""
    frame = table(100)
    scorer = utility_scorer("label", n_synthetic=300, random_state=0)
    sampler = TwoColumns(cut=0.5).fit(frame)
    values = scorer.row_values(sampler, frame)
    assert values.shape == (100,)
    for x, label in ((np.nan, "high"), (np.inf, "none"), ("text", None), (-1e300, 7)):
        odd = frame.astype(object)
        odd.loc[3] = [x, label]
        moved = scorer.row_values(sampler, odd)
        np.testing.assert_array_equal(np.delete(moved, 3), np.delete(values, 3))
        assert 0 <= moved[3] <= 1


def test_what_is_no_number_is_the_last_in_the_order(seven):
    """As the first run it would else be the best, whatever the others are."""
    given = iter([np.nan, 0.3, np.nan, 0.9, 0.2, 0.1, 0.4])
    search = PrivateSearchCV(NoisyThreshold(), CUTS, scoring=lambda *_: next(given))
    assert search.fit(X, y, X_val=X, y_val=y).best_score_ == 0.9


class ByClass(NoisyThreshold):
    """Takes labels for public where it is given some, as a plan cannot know."""

    def _charge(self, report):
        super()._charge(replace(report, shared=("class",)))


def test_a_fit_that_protects_less_than_its_plan_is_seen(seven):
    with pytest.raises(RuntimeError, match="must cost what it had planned, and protect as much"):
        PrivateSearchCV(ByClass(), CUTS).fit(X, y)
    assert PrivateSearchCV(NoisyThreshold(), CUTS).fit(X, y).privacy_.unit is None


class Talking(NoisyThreshold):
    """Tells of each fit, as estimators with a callback and a progress bar do."""

    def __init__(
        self,
        cut=0.5,
        *,
        callback=None,
        verbose=0,
        epsilon=1.0,
        delta=1e-5,
        ledger=None,
        random_state=None,
    ):
        super().__init__(
            cut, epsilon=epsilon, delta=delta, ledger=ledger, random_state=random_state
        )
        self.callback = callback
        self.verbose = verbose

    def fit(self, X, y):
        super().fit(X, y)
        if self.verbose:
            print("fitted")
        if self.callback is not None:
            self.callback(0, self)
        return self


def test_no_candidate_is_told_of_while_the_search_runs(seven, capsys):
    told = []

    def callback(step, module):
        told.append(module)

    talking = Talking(callback=callback, verbose=1)
    PrivateSearchCV(talking, CUTS).fit(X, y)
    assert told == []
    assert capsys.readouterr().out == ""
    with pytest.raises(ValueError, match="what the search sets"):
        PrivateSearchCV(talking, {"verbose": [0, 1]}).fit(X, y)
    # The negative twin: a fit by itself.
    talking.fit(X, y)
    assert len(told) == 1
    assert capsys.readouterr().out


class StartsFromPublic(NoisyThreshold):
    """Has a public table, which is given by its hash."""

    def __init__(
        self, cut=0.5, *, public=None, epsilon=1.0, delta=1e-5, ledger=None, random_state=None
    ):
        super().__init__(cut, epsilon=epsilon, delta=delta, ledger=ledger)
        self.public = public
        self.random_state = random_state

    def plan(self, n_samples, n_features=None):
        tables = {} if self.public is None else {"public": self.public}
        return replace(super().plan(n_samples), public_tables=tables)


def test_a_search_states_the_public_table_of_its_candidates(seven):
    one, other = "1" * 64, "2" * 64
    search = PrivateSearchCV(StartsFromPublic(public=one), CUTS | {"public": [None, one]})
    search.fit(X, y)
    for report in (search.privacy_, search.best_estimator_.privacy_):
        assert report.public_tables == {"public": one}
        assert "public_tables" in report.caveats
    # Negative twins: the report would not name the table of a candidate.
    for estimator in (StartsFromPublic(), StartsFromPublic(public=one)):
        hidden = PrivateSearchCV(estimator, {"public": [other]})
        with pytest.raises(ValueError, match="no other public table than the estimator"):
            hidden.fit(X, y)
        assert not hasattr(hidden, "privacy_")
