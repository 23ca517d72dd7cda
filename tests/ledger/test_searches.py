"""Grid searches over private fits: each one is charged, and a cap stops them."""

import warnings

import numpy as np
import pytest
from ledger_cases import rows
from sklearn.model_selection import GridSearchCV, cross_val_score
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import FunctionTransformer

from sklearn_dpgen.domains import Box
from sklearn_dpgen.exceptions import BudgetExceededError
from sklearn_dpgen.ledger import PrivacyLedger
from sklearn_dpgen.moments import MomentSampler

X = np.random.default_rng(0).uniform(size=(200, 2))
EPSILONS = [0.05, 0.1, 0.15, 0.2]
DELTA = 1e-6

pytestmark = pytest.mark.filterwarnings("ignore:.*noise.*:UserWarning")


def closeness(sampler, X, y=None):
    """Return how near the released mean is: of the folds, without noise."""
    return -float(np.abs(sampler.means_[0] - X.mean(0)).sum())


@pytest.fixture
def ledger(tmp_path):
    def make(epsilon):
        path = tmp_path / f"{epsilon}.ledger"
        return PrivacyLedger.create(path, dataset="a", epsilon=epsilon, delta=DELTA)

    return make


def search(ledger, **words):
    sampler = MomentSampler(domain=Box(0, 1, n_features=2), delta=DELTA, ledger=ledger)
    grid = {"epsilon": EPSILONS}
    return GridSearchCV(sampler, grid, cv=5, scoring=closeness, **words)


@pytest.mark.slow
@pytest.mark.parametrize("n_jobs", [None, 2])
@pytest.mark.parametrize("as_path", [False, True])
def test_twenty_fits_and_the_last_one_are_charged(ledger, n_jobs, as_path):
    book = ledger(5.0)
    found = search(book.path if as_path else book, n_jobs=n_jobs).fit(X)
    report = book.report()
    assert len(report.charges) == 21
    epsilons = sorted(charge.report.epsilon for charge in report.charges)
    assert epsilons == sorted(5 * EPSILONS + [found.best_params_["epsilon"]])
    assert report.summed[0] == pytest.approx(sum(epsilons))
    assert report.spent < 0.4 * report.summed[0]
    # A copy of a ledger, as an accountant that is an object would be, would have seen nothing.
    assert found.estimator.ledger == (book.path if as_path else book)


@pytest.mark.slow
def test_a_cap_stops_a_search_at_once_or_lets_no_other_fit_through(ledger):
    book = ledger(0.3)
    with pytest.raises(BudgetExceededError):
        search(book, error_score="raise").fit(X)
    stopped = len(rows(book.path))
    assert 1 < stopped < 20
    assert book.spent() <= 0.3
    # By default a refused fit is a failed one, and the search goes on to what still fits.
    other = ledger(0.31)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        found = search(other, error_score=np.nan, refit=False).fit(X)
    refused = np.isnan([found.cv_results_[f"split{fold}_test_score"] for fold in range(5)])
    assert refused.any()
    assert len(rows(other.path)) == 20 - refused.sum() >= stopped
    assert other.spent() <= 0.31


def test_a_pipeline_in_cross_validation_is_charged_by_fold(ledger):
    book = ledger(5.0)
    sampler = MomentSampler(0.1, domain=Box(0, 1, n_features=2), delta=DELTA, ledger=book)
    pipeline = make_pipeline(FunctionTransformer(), sampler)
    cross_val_score(pipeline, X, cv=3, scoring=lambda model, X, y=None: closeness(model[-1], X))
    assert rows(book.path) == ["MomentSampler"] * 3
    # What is drawn of a fitted one costs nothing.
    sampler.fit(X).sample(50)
    sampler.sample(50)
    assert len(rows(book.path)) == 4
