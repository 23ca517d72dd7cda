"""Private searches over estimators that compare groups."""

import numpy as np
import pandas as pd
import pytest
import sklearn
from search_cases import NoisyThreshold, labelled
from sklearn.base import clone
from sklearn.frozen import FrozenEstimator
from sklearn.linear_model import LogisticRegression
from sklearn.pipeline import Pipeline
from sklearn.preprocessing import Binarizer

from sklearn_dpgen.accounting import GaussianProfile, PoissonRuns, gaussian_sigma
from sklearn_dpgen.accounting._composition import ComposedProfile
from sklearn_dpgen.accounting._selection import calibrate_runs
from sklearn_dpgen.datasets import load_rand_health, make_biased_labels
from sklearn_dpgen.ledger import PrivacyLedger
from sklearn_dpgen.metrics import disparate_impact
from sklearn_dpgen.model_selection import PrivateSearchCV, group_scorer
from sklearn_dpgen.model_selection._records import Records
from sklearn_dpgen.nn import Training
from sklearn_dpgen.predictors import BarycenterClassifier
from sklearn_dpgen.sliced import DPSlicedWassersteinFairClassifier
from sklearn_dpgen.tables import SyntheticDataClassifier, TableSampler
from sklearn_dpgen.utils._random import NoiseSource

pytestmark = pytest.mark.filterwarnings(
    "ignore::sklearn_dpgen.exceptions.NoisyGradientsWarning",
    "ignore::sklearn_dpgen.exceptions.SmallGroupWarning",
)

DATA = make_biased_labels(400, random_state=0)
X, Y, SIDE = DATA.X, DATA.y, DATA.sensitive
SIZES = np.bincount(SIDE)
ALPHAS = {"alpha": [0.2, 0.8]}


class Watched(DPSlicedWassersteinFairClassifier):
    """Keeps what its fits were given."""

    seen: list = []  # noqa: RUF012

    def fit(self, X, y, *, sensitive_features=None, sample_weight=None):
        super().fit(X, y, sensitive_features=sensitive_features)
        Watched.seen.append((np.asarray(X), np.asarray(y), sensitive_features, self))
        return self

    def predict(self, X):
        Watched.seen[-1] += (np.asarray(X),)
        return super().predict(X)


@pytest.fixture
def seen():
    Watched.seen.clear()
    return Watched.seen


@pytest.fixture
def five(monkeypatch):
    """Each search has five runs."""
    monkeypatch.setattr(PoissonRuns, "draw", lambda self, noise: 5)


def watched(**params):
    params = {"classes": [0, 1], "groups": [0, 1]} | params
    return Watched(training=Training(max_iter=3), **params)


def mapped(**params):
    model = FrozenEstimator(LogisticRegression().fit(X, Y))
    return BarycenterClassifier(model, groups=[0, 1], **params)


def new_ledger(folder):
    return PrivacyLedger.create(folder / "ledger", dataset="toy", epsilon=3.0, delta=1e-3)


@pytest.mark.slow
def test_the_plan_is_what_a_fit_states(tmp_path):
    ledger = new_ledger(tmp_path)
    search = PrivateSearchCV(watched(), ALPHAS, n_runs=2, ledger=ledger)
    plan = search.plan(len(X), X.shape[1], group_sizes=SIZES)
    search.fit(X, Y, sensitive_features=SIDE)
    report = search.privacy_
    assert report.composable() == plan.composable()
    assert report.relation == plan.relation
    assert "group" in report.shared
    assert {"group_sizes", "param_distributions"} <= set(report.public)
    assert "group_membership" in report.caveats
    assert len(ledger.report().charges) == 1
    assert search.best_estimator_.groups_ == [0, 1]
    assert search.best_estimator_.privacy_ == report


@pytest.mark.slow
def test_each_run_gets_the_groups_of_its_records(seen, five):
    PrivateSearchCV(watched(), ALPHAS).fit(X, Y, sensitive_features=SIDE)
    assert len(seen) == 5
    found = {tuple(row): group for row, group in zip(X, SIDE, strict=True)}
    for train, _, groups, model, scored in seen:
        assert model.groups_ == [0, 1]
        assert [found[tuple(row)] for row in train] == groups.tolist()
        # A fifth of each group is scored, rounded up.
        held_out = np.bincount([found[tuple(row)] for row in scored])
        np.testing.assert_array_equal(held_out, np.ceil(0.2 * SIZES))
        np.testing.assert_array_equal(held_out + np.bincount(groups), SIZES)
    # The parts are the same for all runs.
    assert len({scored.tobytes() for *_, scored in seen}) == 1


@pytest.mark.slow
def test_each_fit_costs_what_a_run_may_and_hardly_less(seen, five):
    search = PrivateSearchCV(watched(), ALPHAS).fit(X, Y, sensitive_features=SIDE)
    run = calibrate_runs(1.0, 1e-5, PoissonRuns(10)).run
    epsilons = np.linspace(0, 3, 100)

    def is_paid_for(model, sizes):
        report = model.plan(sum(sizes), X.shape[1], group_sizes=sizes)
        cost = ComposedProfile(report.composable()).delta(epsilons)
        gaussian = GaussianProfile(run.mu).delta(epsilons)
        return bool(np.all(cost <= 1e-3 * search.delta / search.n_runs + gaussian))

    train = tuple(np.bincount(seen[0][2]))
    assert all(is_paid_for(clone(model), train) for *_, model, _ in seen)
    more = clone(seen[0][3])
    assert not is_paid_for(more.set_params(epsilon=1.03 * more.epsilon), train)


def split_of(side, table=X):
    records = Records(table, Y, sensitive_features=side, groups=[0, 1])
    scored = tuple(int(np.ceil(0.2 * size)) for size in records.group_sizes)
    training, _, _ = records.split(scored, NoiseSource(0))
    return {tuple(row) for row in training[0]}


def test_a_replaced_record_of_a_group_moves_no_other_to_another_part():
    """The relation: another record of the same group, in the same place."""
    others = X.copy()
    others[7] = 9.0
    first, second = split_of(SIDE), split_of(SIDE, others)
    assert first - {tuple(X[7])} == second - {tuple(others[7])}
    # The negative twin: a record that changes its group, which the relation excludes.
    moved = SIDE.copy()
    moved[7] = 1 - moved[7]
    assert split_of(moved) - {tuple(X[7])} != first - {tuple(X[7])}


@pytest.mark.slow
def test_groups_of_persons_are_split_by_persons(seen, five):
    frame = pd.DataFrame(
        np.repeat(X[:200], 2, axis=0), columns=[f"x{i}" for i in range(X.shape[1])]
    )
    frame["who"] = np.repeat(np.arange(200), 2)
    side, y = np.repeat(SIDE[:200], 2), np.repeat(Y[:200], 2)
    search = PrivateSearchCV(watched(unit="who"), ALPHAS).fit(frame, y, sensitive_features=side)
    sizes = np.bincount(SIDE[:200])
    plan = search.plan(200, X.shape[1], group_sizes=sizes)
    assert plan.composable() == search.privacy_.composable()
    assert len(seen[0][-1]) == 2 * np.ceil(0.2 * sizes).sum()
    side[0] = 1 - side[0]
    with pytest.raises(ValueError, match="must be of one group"):
        search.fit(frame, y, sensitive_features=side)


@pytest.mark.slow
def test_estimators_that_protect_groups_split_without_them():
    search = PrivateSearchCV(mapped(), {"min_ratio": [0.5, 1.0]}, n_runs=2, epsilon=5.0)
    search.fit(X, Y, sensitive_features=SIDE)
    assert search.privacy_ == search.plan(len(X), X.shape[1])
    assert "group_sizes" not in search.privacy_.public
    assert not search.privacy_.shared
    decided = search.predict(X, sensitive_features=SIDE)
    expected = search.best_estimator_.predict(X, sensitive_features=SIDE)
    np.testing.assert_array_equal(decided, expected)
    assert search.predict_proba(X, sensitive_features=SIDE).shape == (len(X), 2)
    with pytest.raises(ValueError, match="sensitive_features must be given"):
        search.predict(X)
    with pytest.warns(UserWarning, match="not private"):
        score = search.score(X, Y, sensitive_features=SIDE)
    assert score == np.mean(decided == Y)
    with pytest.raises(ValueError, match="protects the sizes of the groups"):
        search.plan(len(X), X.shape[1], group_sizes=SIZES)


@pytest.mark.slow
@pytest.mark.parametrize("penalty", ["demographic_parity", "equalized_odds"])
def test_a_penalty_that_protects_groups_is_searched_without_their_sizes(seen, five, penalty):
    moved, parts = SIDE.copy(), []
    moved[7] = 1 - moved[7]
    search = PrivateSearchCV(watched(protect_groups=True, penalty=penalty), ALPHAS, random_state=0)
    for side in (SIDE, moved):
        search.fit(X, Y, sensitive_features=side)
        assert search.privacy_.composable() == search.plan(len(X), X.shape[1]).composable()
        assert not search.privacy_.shared
        assert "group_sizes" not in search.privacy_.public
        parts.append(len(seen[-1][-1]))
    assert parts == [80, 80]
    with pytest.raises(ValueError, match="protects the sizes of the groups"):
        search.plan(len(X), X.shape[1], group_sizes=SIZES)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("estimator", "grid", "protects"),
    [
        (watched(max_gap=0.1), {"max_gap": [0.1, None]}, True),
        (watched(), {"max_gap": [0.1, None]}, False),
    ],
)
def test_candidates_protect_what_the_estimator_protects(seen, estimator, grid, protects):
    """Records are split once, by public sizes or without groups, so candidates may not differ."""
    search = PrivateSearchCV(estimator, grid, n_runs=20, random_state=0)
    search.fit(X, Y, sensitive_features=SIDE)
    fits = [fit for *_, fit, _ in seen]
    assert {fit.max_gap for fit in fits} == {0.1, None}
    assert {fit.privacy_.shared == () for fit in fits} == {protects}
    assert (search.privacy_.shared == ()) == protects
    # The negative twin: by themselves, fits of the two would differ.
    alone = {clone(estimator).set_params(max_gap=gap)._protects_groups for gap in (0.1, None)}
    assert alone == {True, False}


@pytest.mark.slow
def test_a_step_that_is_replaced_protects_what_the_estimator_protects(seen):
    steps = [("scale", Binarizer(threshold=-9)), ("learn", watched(max_gap=0.1))]
    pipeline = Pipeline(steps)
    with sklearn.config_context(enable_metadata_routing=True):
        for _, step in steps[1:]:
            step.set_fit_request(sensitive_features=True)
        other = watched(alpha=0.3).set_fit_request(sensitive_features=True)
        search = PrivateSearchCV(pipeline, {"learn": [steps[1][1], other]}, n_runs=20)
        search.set_params(random_state=0).fit(X, Y, sensitive_features=SIDE)
    fits = [fit for *_, fit, _ in seen]
    assert {fit.max_gap for fit in fits} == {0.1, None}
    assert {fit.privacy_.shared for fit in fits} == {()}


@pytest.mark.slow
def test_public_rows_are_scored_with_their_groups():
    public = make_biased_labels(200, random_state=1)
    grid = {"min_ratio": [0.2, 1.0]}
    with sklearn.config_context(enable_metadata_routing=True):
        scorer = group_scorer(disparate_impact)
    for scoring, chosen in (("accuracy", 0.2), (scorer, 1.0)):
        search = PrivateSearchCV(mapped(), grid, n_runs=30, epsilon=50.0, scoring=scoring)
        search.fit(
            X,
            Y,
            sensitive_features=SIDE,
            X_val=public.X,
            y_val=public.y,
            sensitive_features_val=public.sensitive,
        )
        assert search.best_params_ == {"min_ratio": chosen}
    with pytest.raises(ValueError, match="one row for each row"):
        search.fit(
            X,
            Y,
            sensitive_features=SIDE,
            X_val=public.X,
            y_val=public.y,
            sensitive_features_val=public.sensitive[1:],
        )


@pytest.mark.slow
def test_the_penalty_of_a_candidate_is_that_of_its_groups(monkeypatch):
    """With a large weight and no noise decisions are alike; without groups they are not."""
    monkeypatch.setattr(PoissonRuns, "draw", lambda self, noise: 1)
    training = Training(max_iter=100)
    model = DPSlicedWassersteinFairClassifier(groups=[0, 1], classes=[0, 1], training=training)
    search, ratios = PrivateSearchCV(model, {"alpha": [0.99]}, epsilon=np.inf), []
    for seed in range(5):
        search.set_params(random_state=seed).fit(X, Y, sensitive_features=SIDE)
        ratio = disparate_impact(Y, search.predict(X), sensitive_features=SIDE)
        ratios.append(min(ratio, 1 / ratio))
    search.set_params(param_distributions={"alpha": [0.0]}, estimator__alpha=0.0)
    without = disparate_impact(Y, search.fit(X, Y).predict(X), sensitive_features=SIDE)
    # The batches of a single fit leave it at .75 to .93.
    assert np.median(ratios) > 0.8 > 0.6 > min(without, 1 / without)


@pytest.mark.parametrize(
    ("estimator", "grid", "groups", "message"),
    [
        (watched(), ALPHAS, None, "a run without them would have no penalty"),
        # Each drawn candidate is looked at.
        (watched(alpha=0.0), {"alpha": [0.5]}, None, "a run without them would have no penalty"),
        (mapped(), {"min_ratio": [1.0]}, None, "a run without them would have no penalty"),
        (watched(groups=None), ALPHAS, SIDE, "groups of Watched must be declared"),
        (watched(), {"groups": [[0, 1]]}, SIDE, "by which records are split"),
        (watched(), {"protect_groups": [True, False]}, SIDE, "by which records are split"),
        (watched(penalty="equalized_odds"), ALPHAS, SIDE, "split within groups, not within"),
        (watched(), {"penalty": ["equalized_odds"]}, SIDE, "group_sizes must hold"),
        (watched(), ALPHAS, SIDE[1:], "sensitive_features must have one row for each row of X"),
        (watched(), ALPHAS, SIDE + 1, "not among the declared groups"),
        (NoisyThreshold(), {"cut": [0.5]}, SIDE, "NoisyThreshold does not take them"),
    ],
)
def test_what_would_compare_no_groups_is_refused_before_the_charge(
    tmp_path, five, estimator, grid, groups, message
):
    ledger = new_ledger(tmp_path)
    search = PrivateSearchCV(estimator, grid, ledger=ledger)
    with pytest.raises(ValueError, match=message):
        search.fit(X, Y, sensitive_features=groups)
    assert not ledger.report().charges
    assert not hasattr(search, "privacy_")


@pytest.mark.slow
def test_a_small_group_keeps_a_record_to_train_on(seen, five):
    side = np.zeros(len(X), dtype=int)
    side[:2] = 1
    search = PrivateSearchCV(watched(groups=[0, 1, 2]), ALPHAS, validation_fraction=0.9)
    search.fit(X, Y, sensitive_features=side)
    assert set(seen[0][2]) == {0, 1}
    plan = search.plan(len(X), X.shape[1], group_sizes=[len(X) - 2, 2, 0])
    assert plan.composable() == search.privacy_.composable()
    with pytest.raises(ValueError, match="add up to"):
        search.plan(len(X), X.shape[1], group_sizes=[1, 2, 0])
    with pytest.raises(ValueError, match="Each group must have two records"):
        search.plan(2, X.shape[1], group_sizes=[1, 1, 0])


def test_a_search_takes_groups_by_routing():
    search = PrivateSearchCV(mapped(), {"min_ratio": [0.5, 1.0]}, n_runs=2, epsilon=5.0)
    with sklearn.config_context(enable_metadata_routing=True):
        search.set_fit_request(sensitive_features=True)
        pipeline = Pipeline([("same", "passthrough"), ("search", search)])
        pipeline.fit(X, Y, sensitive_features=SIDE)
    assert pipeline["search"].best_estimator_.groups_ == [0, 1]


@pytest.mark.slow
def test_a_seed_repeats_a_search_of_the_same_groups_and_no_other():
    def score(side):
        search = PrivateSearchCV(mapped(), {"min_ratio": [1.0]}, n_runs=2, random_state=0)
        return search.fit(X, Y, sensitive_features=side).best_score_

    moved = SIDE.copy()
    moved[:2] = 1 - moved[:2]
    assert score(SIDE) == score(SIDE) != score(moved)


def test_records_without_groups_are_split_as_before():
    x, y = labelled()
    training, scored, _ = Records(x, y).split(80, NoiseSource(0))
    assert [len(part) for part in (*training, *scored)] == [320, 320, 80, 80]


# Fits within, which get a share of the budget of a candidate.


def shared(inner=None, **params):
    """Return an estimator whose nested one has no budget of its own."""
    model = NoisyThreshold() if inner is None else inner
    return BarycenterClassifier(model, groups=[0, 1], **params)


def last_of(estimator):
    return estimator[-1] if isinstance(estimator, Pipeline) else estimator


@pytest.mark.slow
@pytest.mark.parametrize("in_pipeline", [False, True])
@pytest.mark.parametrize("of_pipeline", [False, True])
def test_a_search_over_shares_and_parameters_within_is_one_charge(
    tmp_path, five, in_pipeline, of_pipeline
):
    ledger = new_ledger(tmp_path)
    model = shared(Pipeline([("sign", Binarizer()), ("cut", NoisyThreshold())]))
    grid = {"epsilon_share": [0.5, 0.9], "estimator__cut__cut": [0.2, 0.4]}
    if not of_pipeline:
        model, grid = shared(), {"epsilon_share": [0.5, 0.9], "estimator__cut": [0.2, 0.4]}
    if in_pipeline:
        model = Pipeline([("same", Binarizer()), ("fair", model)])
        grid = {f"fair__{key}": values for key, values in grid.items()}
    NoisyThreshold.fits.clear()
    search = PrivateSearchCV(model, grid, epsilon=2.0, ledger=ledger)
    search.fit(X, Y, sensitive_features=SIDE)
    assert search.privacy_ == search.plan(len(X), X.shape[1])
    (charge,) = ledger.report().charges
    assert charge.report == search.privacy_
    best = last_of(search.best_estimator_)
    within = last_of(best.estimator_)
    assert within.epsilon == best.epsilon_share * best.epsilon
    # The part of a candidate had the price of one run, which the search does not release.
    assert best.privacy_ == within.privacy_ == search.privacy_
    assert len(NoisyThreshold.fits) == 5


def test_each_candidate_costs_what_a_run_may_at_any_share(five):
    """The oracle composes the noise of each nested fit with that of the counts around it."""
    kept = []
    run = calibrate_runs(1.0, 1e-5, PoissonRuns(10)).run

    class Kept(BarycenterClassifier):
        def _plan_mechanism(self, n_samples, costs):
            mechanism = super()._plan_mechanism(n_samples, costs)
            kept.append((self.epsilon, self.epsilon_share, mechanism.noise_scales))
            return mechanism

    model = Kept(NoisyThreshold(), groups=[0, 1])
    search = PrivateSearchCV(model, {"epsilon_share": [0.5, 0.9]})
    search.fit(X, Y, sensitive_features=SIDE)
    delta, ratios = run.delta0 / 2, []
    for epsilon, share, scales in kept[-5:]:
        nested = 1 / gaussian_sigma(share * epsilon, share * delta)
        mu = np.sqrt(nested**2 + sum(2 / scale**2 for scale in scales))
        ratios.append(mu / run.mu)
    assert 0.99 < min(ratios) <= max(ratios) <= 1
    assert len({share for _, share, _ in kept}) > 1
    # The negative twin: with the whole budget in the nested fit, a run would cost more.
    whole = 1 / gaussian_sigma(epsilon, delta)
    assert np.sqrt(mu**2 - nested**2 + whole**2) > 1.01 * run.mu


class Overspending(NoisyThreshold):
    """Adds the noise of three times the epsilon that it is given."""

    def fit(self, X, y):
        super().fit(X, y)
        self.privacy_ = self.__class__(epsilon=3 * self.epsilon, delta=self.delta).plan(len(X))
        return self


def test_a_nested_fit_with_more_than_its_share_wins_no_search(tmp_path, five):
    ledger = new_ledger(tmp_path)
    search = PrivateSearchCV(shared(Overspending()), {"epsilon_share": [0.5]}, ledger=ledger)
    with pytest.raises(RuntimeError, match="No candidate could be fitted"):
        search.fit(X, Y, sensitive_features=SIDE)
    assert not hasattr(search, "best_estimator_")
    assert len(ledger.report().charges) == 1


@pytest.mark.parametrize(
    ("inner", "grid", "message"),
    [
        (NoisyThreshold(epsilon=0.5), {"epsilon_share": [0.5]}, "epsilon_share determines it"),
        (NoisyThreshold(delta=1e-7), {"epsilon_share": [0.5]}, "epsilon_share determines it"),
        (NoisyThreshold(), {"estimator__epsilon": [0.5]}, "what the search sets"),
        (NoisyThreshold(), {"epsilon": [0.5]}, "what the search sets"),
        (NoisyThreshold(), {"epsilon_share": [1.5]}, "epsilon_share"),
        (NoisyThreshold(), {"estimator": [NoisyThreshold(epsilon=0.5)]}, "determines it"),
        (LogisticRegression(), {"epsilon_share": [0.5]}, "must be private"),
    ],
)
def test_a_nested_budget_is_refused_before_the_charge(tmp_path, five, inner, grid, message):
    ledger = new_ledger(tmp_path)
    search = PrivateSearchCV(shared(inner), grid, ledger=ledger)
    with pytest.raises(ValueError, match=message):
        search.fit(X, Y, sensitive_features=SIDE)
    assert not ledger.report().charges


@pytest.mark.slow
def test_a_search_over_some_columns_of_a_schema(five):
    rand = load_rand_health()
    rows = rand.frame[:4000]
    names = ["mdvis", "disea"]
    learner = SyntheticDataClassifier(
        TableSampler(schema=rand.schema, target="hlthp", marginals="pairs", max_iter=20),
        LogisticRegression(),
        n_samples=500,
        n_draws=1,
    )
    search = PrivateSearchCV(shared(learner), {"estimator__sampler__n_bins": [4, 8]}, epsilon=5.0)
    search.fit(rows[names], rows["hlthp"], sensitive_features=rows["idp"])
    assert search.best_estimator_.estimator_.feature_names_in_.tolist() == names
    assert search.privacy_ == search.plan(4000, columns=names)
    with pytest.raises(ValueError, match="n_features must be that of the schema"):
        search.plan(4000, 2)
