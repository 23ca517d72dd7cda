"""A search over the budget: what learns has the mechanism that released, or is refused."""

import numpy as np
import pandas as pd
import pytest
from sklearn.base import clone
from sklearn.model_selection import GridSearchCV, ParameterGrid, cross_val_score
from sklearn.pipeline import Pipeline

from sklearn_dpgen.domains import Box
from sklearn_dpgen.mechanisms import LaplaceMechanism, TabularMechanism
from sklearn_dpgen.schema import Categorical, Numeric, Schema

BOX = Box(-1, 1, n_features=2)
X = BOX.sample(60, np.random.default_rng(0))
SCHEMA = Schema({"age": Numeric(0, 100), "sex": Categorical(["f", "m"])})
TABLE = pd.DataFrame({"age": np.linspace(0, 100, 60), "sex": ["f", "m"] * 30})


class Unchecked(LaplaceMechanism):
    """A broken variant: it never asks who released what is learned from."""

    def encode_release(self, Y, *, reset=False, estimator=None):
        return super().encode_release(np.asarray(Y), reset=reset, estimator=estimator)


MECHANISMS = {
    "array": (LaplaceMechanism(5.0, domain=BOX), X),
    "frame": (LaplaceMechanism(5.0, domain=BOX).set_output(transform="pandas"), X),
    "table": (TabularMechanism(5.0, schema=SCHEMA), TABLE),
}
each = pytest.mark.parametrize("name", MECHANISMS)


def pairing(tiny, mechanism):
    """Return the pipeline of which `clone` parts the two mechanisms."""
    return Pipeline([("privatize", mechanism), ("generate", tiny(mechanism))])


def search(estimator, parameter, records):
    grid = {parameter: [5.0, 20.0]}
    return GridSearchCV(estimator, grid, cv=2, error_score="raise").fit(records)


def reports_what_was_released(tiny, mechanism, records):
    """Return whether each candidate of a search is refused or reports its own budget."""
    for candidate in ParameterGrid({"privatize__epsilon": [5.0, 20.0]}):
        pipeline = clone(pairing(tiny, mechanism)).set_params(**candidate)
        try:
            pipeline.fit(records)
        except ValueError:
            continue
        released, learned = pipeline[0].privacy_, pipeline[-1].privacy_
        if learned.epsilon != released.epsilon:
            return False
    return True


@each
def test_a_search_that_parts_the_mechanisms_is_refused(tiny, name):
    mechanism, records = MECHANISMS[name]
    with pytest.raises(ValueError, match="epsilon=20, .* epsilon=5, .* mechanism__epsilon"):
        search(pairing(tiny, mechanism), "privatize__epsilon", records)


@each
def test_no_candidate_reports_another_budget_than_was_released(tiny, name):
    assert reports_what_was_released(tiny, *MECHANISMS[name])


def test_a_mechanism_that_does_not_ask_is_caught():
    from sklearn_dpgen.deconvolution import EntropicDeconvGAN

    def tiny(mechanism):
        return EntropicDeconvGAN(mechanism, max_iter=2, hidden_layer_sizes=(4,), n_generated=8)

    assert not reports_what_was_released(tiny, Unchecked(5.0, domain=BOX), X)


@each
def test_one_estimator_searches_the_budget(tiny, name):
    mechanism, records = MECHANISMS[name]
    found = search(tiny(mechanism, privatize=True), "mechanism__epsilon", records)
    best = found.best_estimator_
    assert best.privacy_.epsilon == found.best_params_["mechanism__epsilon"]
    assert best.mechanism_.privacy_.epsilon == best.privacy_.epsilon


@each
def test_folds_of_released_records_keep_their_name(tiny, name):
    mechanism, records = MECHANISMS[name]
    released = clone(mechanism).fit_transform(records)
    scores = cross_val_score(tiny(clone(mechanism)), released, cv=3, error_score="raise")
    assert np.isfinite(scores).all()
    other = clone(mechanism).set_params(epsilon=7.0)
    with pytest.raises(ValueError, match="epsilon=5, .* epsilon=7, "):
        cross_val_score(tiny(other), released, cv=3, error_score="raise")


def test_a_score_asks_as_well(tiny):
    mechanism, other = (LaplaceMechanism(e, domain=BOX) for e in (5.0, 7.0))
    gan = tiny(mechanism).fit(mechanism.fit_transform(X))
    with pytest.raises(ValueError, match="epsilon=7, .* epsilon=5, "):
        gan.score(other.fit_transform(X))


@each
def test_a_release_is_not_privatized_again(tiny, name):
    mechanism, records = MECHANISMS[name]
    released = clone(mechanism).fit_transform(records)
    gan = tiny(mechanism, privatize=True)
    with pytest.raises(ValueError, match="released these records with epsilon=5 already"):
        gan.fit(released)
    gan.fit(records)
    with pytest.raises(ValueError, match="takes raw ones"):
        gan.score(released)


@each
def test_records_without_a_name_are_taken_on_trust(tiny, name):
    mechanism, records = MECHANISMS[name]
    released = clone(mechanism).fit_transform(records)
    bare = released.copy() if isinstance(released, pd.DataFrame) else np.asarray(released)
    if isinstance(bare, pd.DataFrame):
        bare.attrs.clear()
    other = clone(mechanism).set_params(epsilon=7.0)
    assert tiny(other).fit(bare).privacy_.epsilon == 7.0
