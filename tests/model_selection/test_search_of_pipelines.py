"""Private searches over pipelines: which steps may be before the private one."""

import numpy as np
import pandas as pd
import pytest
import sklearn
from search_cases import NoisyThreshold, labelled
from sklearn.linear_model import LogisticRegression
from sklearn.pipeline import Pipeline
from sklearn.preprocessing import (
    Binarizer,
    FunctionTransformer,
    MinMaxScaler,
    Normalizer,
    StandardScaler,
)

from sklearn_dpgen.accounting import PoissonRuns
from sklearn_dpgen.datasets import make_biased_labels
from sklearn_dpgen.ledger import PrivacyLedger
from sklearn_dpgen.model_selection import PrivateSearchCV
from sklearn_dpgen.nn import Training
from sklearn_dpgen.predictors import BarycenterClassifier
from sklearn_dpgen.preprocessing import TabularEncoder
from sklearn_dpgen.schema import Numeric, Schema
from sklearn_dpgen.sliced import DPSlicedWassersteinFairClassifier

pytestmark = pytest.mark.filterwarnings(
    "ignore::sklearn_dpgen.exceptions.NoisyGradientsWarning",
)

VALUES, LABELS = labelled()
FRAME = pd.DataFrame({"x": VALUES[:, 0]})
CUTS = {"noisy__cut": [0.1, 0.3, 0.6, 0.9]}
ENCODER = TabularEncoder(Schema({"x": Numeric(0, 1)}))
DATA = make_biased_labels(400, random_state=0)


class Centred(TabularEncoder):
    """Subtracts the mean of the rows, which no declaration bounds."""

    def transform(self, X):
        encoded = super().transform(X)
        return encoded - encoded.mean(axis=0)


def steps(*before, last=None):
    names = [(f"step{i}", step) for i, step in enumerate(before)]
    return Pipeline([*names, ("noisy", NoisyThreshold() if last is None else last)])


def test_a_pipeline_is_searched_as_its_last_step(tmp_path):
    ledger = PrivacyLedger.create(tmp_path / "ledger", dataset="toy", epsilon=6.0, delta=1e-3)
    found = {}
    for estimator, cuts in (
        (steps(ENCODER), CUTS),
        (NoisyThreshold(), {"cut": CUTS["noisy__cut"]}),
    ):
        X = FRAME if isinstance(estimator, Pipeline) else VALUES
        options = {"epsilon": 5.0, "n_runs": 20, "random_state": 0}
        search = PrivateSearchCV(estimator, cuts, **options).fit(X, LABELS)
        assert search.privacy_ == search.plan(len(X), 1)
        found[type(estimator).__name__] = search
    piped, plain = found["Pipeline"], found["NoisyThreshold"]
    assert piped.privacy_ == plain.privacy_
    assert piped.best_estimator_["noisy"].privacy_ == piped.privacy_
    assert list(piped.feature_names_in_) == ["x"]
    search = PrivateSearchCV(steps(ENCODER), CUTS, ledger=ledger).fit(FRAME, LABELS)
    assert len(ledger.report().charges) == 1
    assert search.best_estimator_["noisy"].ledger is None


def test_a_pipeline_predicts_what_is_best():
    # The encoder maps [0, 1] to itself, or to [-1, 1].
    low, high = ENCODER.fit().transform(pd.DataFrame({"x": [0.0, 1.0]}))[:, 0]
    cuts = {"noisy__cut": [low + cut * (high - low) for cut in (0.1, 0.3, 0.6)]}
    search = PrivateSearchCV(steps(ENCODER), cuts, epsilon=5.0, n_runs=20, random_state=0)
    search.fit(FRAME, LABELS)
    assert search.best_params_ == {"noisy__cut": cuts["noisy__cut"][1]}
    np.testing.assert_array_equal(search.predict(FRAME), LABELS)
    np.testing.assert_array_equal(search.classes_, [0, 1])
    assert search.score(FRAME, LABELS) == 1.0


@pytest.mark.parametrize("free", [Normalizer(), Binarizer(), "passthrough", ENCODER], ids=str)
def test_steps_that_learn_nothing_are_taken(free):
    X = FRAME if free is ENCODER else VALUES
    search = PrivateSearchCV(steps(free), CUTS, n_runs=2, random_state=0).fit(X, LABELS)
    assert search.privacy_ == search.plan(len(X), 1)


@pytest.mark.parametrize(
    ("step", "message"),
    [
        (StandardScaler(), r"'step1' \(StandardScaler\)"),
        (MinMaxScaler(), r"'step1' \(MinMaxScaler\)"),
        (FunctionTransformer(), r"'step1' \(FunctionTransformer\). A FunctionTransformer may mix"),
        # A subclass may do anything.
        (Centred(ENCODER.schema), r"'step1' \(Centred\)"),
        (steps(ENCODER, last="passthrough"), r"'step1' \(Pipeline\)"),
    ],
)
def test_steps_that_may_learn_are_refused_by_name(tmp_path, step, message):
    ledger = PrivacyLedger.create(tmp_path / "ledger", dataset="toy", epsilon=3.0, delta=1e-3)
    search = PrivateSearchCV(steps("passthrough", step), CUTS, ledger=ledger)
    with pytest.raises(ValueError, match=f"without a budget, got {message}"):
        search.fit(VALUES, LABELS)
    with pytest.raises(ValueError, match=message):
        search.plan(400, 1)
    # Nor may a candidate put it in.
    drawn = PrivateSearchCV(steps(ENCODER), {"step0": [step]}, ledger=ledger)
    with pytest.raises(ValueError, match=message.replace("step1", "step0")):
        drawn.fit(FRAME, LABELS)
    assert not ledger.report().charges


def test_a_scaler_would_tell_of_a_record_that_no_budget_pays_for():
    """The negative twin: why a step is refused. One record decides about all others."""
    others = VALUES.copy()
    others[0] = 1e6
    for step, is_rowwise in ((ENCODER, True), (Normalizer(), True), (StandardScaler(), False)):
        tables = [pd.DataFrame({"x": table[:, 0]}) for table in (VALUES, others)]
        first, second = (np.asarray(sklearn.base.clone(step).fit_transform(t)) for t in tables)
        assert np.array_equal(first[1:], second[1:]) == is_rowwise


def test_the_last_step_is_private():
    last = LogisticRegression()
    search = PrivateSearchCV(steps(ENCODER, last=last), {"step0": [ENCODER]}, epsilon=np.inf)
    with pytest.raises(ValueError, match="must be private, with an epsilon, got LogisticRegr"):
        search.fit(FRAME, LABELS)


def test_persons_are_not_in_a_pipeline():
    last = DPSlicedWassersteinFairClassifier(0.0, unit="who", training=Training(max_iter=2))
    search = PrivateSearchCV(steps(ENCODER, last=last), {"noisy__alpha": [0.0]})
    with pytest.raises(ValueError, match="which a pipeline may remove"):
        search.fit(FRAME.assign(who=np.arange(400)), LABELS)


@pytest.mark.slow
@pytest.mark.parametrize("routing", [False, True])
@pytest.mark.parametrize("kind", ["penalty", "map"])
def test_groups_go_to_the_last_step(monkeypatch, kind, routing):
    monkeypatch.setattr(PoissonRuns, "draw", lambda self, noise: 4)
    names = [f"x{i}" for i in range(DATA.X.shape[1])]
    encoder = TabularEncoder(Schema({name: Numeric(-5, 5) for name in names}))
    frame = pd.DataFrame(DATA.X, columns=names)
    fair = DPSlicedWassersteinFairClassifier(
        classes=[0, 1], groups=[0, 1], training=Training(max_iter=3)
    )
    grid, sizes = {"noisy__alpha": [0.5]}, {"group_sizes": np.bincount(DATA.sensitive)}
    if kind == "map":
        model = sklearn.frozen.FrozenEstimator(
            LogisticRegression().fit(encoder.fit().transform(frame), DATA.y)
        )
        fair = BarycenterClassifier(model, groups=[0, 1])
        grid, sizes = {"noisy__min_ratio": [1.0]}, {}
    search = PrivateSearchCV(steps(encoder, last=fair), grid, epsilon=5.0)
    plan = search.plan(len(frame), frame.shape[1], **sizes)
    with sklearn.config_context(enable_metadata_routing=routing):
        search.fit(frame, DATA.y, sensitive_features=DATA.sensitive)
        decided = search.predict(frame, sensitive_features=DATA.sensitive)
    assert search.privacy_.composable() == plan.composable()
    assert search.best_estimator_["noisy"].groups_ == [0, 1]
    assert decided.shape == (len(frame),)
    with pytest.raises(ValueError, match="sensitive_features must be given"):
        search.fit(frame, DATA.y)
