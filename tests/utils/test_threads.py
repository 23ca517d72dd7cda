"""Fits and samples have one thread, and leave to all others what they had."""

import threading
from contextlib import contextmanager

import joblib
import numpy as np
import pandas as pd
import pytest
import torch
from sklearn.base import BaseEstimator, ClassifierMixin, TransformerMixin
from sklearn.utils.metaestimators import available_if
from threadpoolctl import ThreadpoolController, threadpool_info, threadpool_limits
from torch import nn

from sklearn_dpgen.deconvolution import EntropicDeconvGAN
from sklearn_dpgen.domains import Box
from sklearn_dpgen.ledger._base import PrivateEstimator
from sklearn_dpgen.mechanisms import GaussianMechanism
from sklearn_dpgen.nn import Training
from sklearn_dpgen.ot import _sinkhorn, _sliced, sinkhorn, sliced_wasserstein
from sklearn_dpgen.ot._blockwise import sinkhorn_blockwise
from sklearn_dpgen.schema import Categorical, Numeric, Schema
from sklearn_dpgen.tables import SyntheticDataClassifier, TableSampler
from sklearn_dpgen.tables._table_counter import TableCounter
from sklearn_dpgen.utils import _threads
from sklearn_dpgen.utils._threads import one_thread, threads_for

# Libraries that can have two threads: some are built for one.
SEVERAL = set()


def counts():
    """Return how many threads there are, as PyTorch and as each library counts them."""
    libraries = [each for each in threadpool_info() if each["filepath"] in SEVERAL]
    return {torch.get_num_threads(), *(each["num_threads"] for each in libraries)}


def elsewhere(function):
    """Return what a function returns in a thread of its own."""
    result = []
    thread = threading.Thread(target=lambda: result.append(function()))
    thread.start()
    thread.join()
    return result[0]


class Two:
    """Two threads of everything, for a while."""

    def __enter__(self):
        self._n_threads = torch.get_num_threads()
        torch.set_num_threads(2)
        libraries = ThreadpoolController()
        self._openmp = libraries.select(user_api="openmp").limit(limits=2)
        # By a thread that ends, as what a living one has set no other one changes.
        self._blas = elsewhere(lambda: libraries.select(user_api="blas").limit(limits=2))
        several = [each for each in threadpool_info() if each["num_threads"] == 2]
        # What older versions of threadpoolctl say of a BLAS with threads of OpenMP is not theirs.
        several = [each for each in several if each.get("threading_layer") != "openmp"]
        assert {each["user_api"] for each in several} == {"blas", "openmp"}
        SEVERAL.update(each["filepath"] for each in several)

    def __exit__(self, *error):
        elsewhere(self._blas.restore_original_limits)
        self._openmp.restore_original_limits()
        torch.set_num_threads(self._n_threads)


@pytest.fixture(autouse=True)
def two_threads():
    with Two():
        yield


class SampleMixin:
    def sample(self):
        return counts()


class Probe(SampleMixin, TransformerMixin, PrivateEstimator):
    """What it computes is how many threads there are."""

    def __init__(self, fails=False, inner=None):
        self.fails = fails
        self.inner = inner

    def plan(self, n_samples, n_features=None):
        raise NotImplementedError

    def fit(self, X, y=None):
        self.seen_ = [counts()]
        if self.inner is not None:
            self.seen_ += [*self.inner.fit(X).seen_, counts()]
        if self.fails:
            raise ArithmeticError
        return self

    def transform(self, X):
        return np.array([[max(counts())]])

    def predict(self, X):
        return counts()

    def score(self, X):
        return counts()


class Learner(ClassifierMixin, BaseEstimator):
    """A classifier of another package."""

    def fit(self, X, y):
        self.classes_ = np.unique(y)
        self.seen_ = counts()
        return self

    def predict(self, X):
        return np.repeat(self.classes_[:1], len(X))

    @available_if(lambda self: True)
    def predict_proba(self, X):
        return np.full((len(X), len(self.classes_)), float(max(counts())))


@pytest.mark.parametrize("method", ["fit", "sample", "predict", "score", "transform"])
def test_every_method_that_computes_has_one_thread(method):
    probe, given = Probe(), [] if method == "sample" else [None]
    seen = getattr(probe, method)(*given)
    seen = probe.seen_[0] if method == "fit" else seen
    assert set(np.ravel(list(seen))) == {1}
    assert counts() == {2}
    # Without its limit a method has what the process has.
    bare = getattr(Probe, method).__wrapped__
    while hasattr(bare, "__wrapped__"):
        bare = bare.__wrapped__
    seen = bare(probe, *given)
    seen = probe.seen_[0] if method == "fit" else seen
    assert set(np.ravel(list(seen))) == {2}


def test_a_nested_fit_restores_nothing():
    probe = Probe(inner=Probe()).fit(None)
    assert probe.seen_ == [{1}, {1}, {1}]
    assert counts() == {2}


def test_an_error_restores():
    with pytest.raises(ArithmeticError):
        Probe(inner=Probe(fails=True)).fit(None)
    assert counts() == {2}
    assert Probe().fit(None).seen_ == [{1}]


def test_a_blas_that_has_threads_of_openmp_is_restored():
    pytest.importorskip("faiss")
    with Two():
        assert Probe().fit(None).seen_ == [{1}]
        assert counts() == {2}


def test_a_variable_opts_out(monkeypatch):
    monkeypatch.setenv("SKLEARN_DPGEN_THREADS", "all")
    assert Probe(inner=Probe()).fit(None).seen_ == [{2}, {2}, {2}]
    monkeypatch.setenv("SKLEARN_DPGEN_THREADS", "one")
    assert Probe().fit(None).seen_ == [{1}]
    monkeypatch.setenv("SKLEARN_DPGEN_THREADS", "4")
    with pytest.raises(ValueError, match="SKLEARN_DPGEN_THREADS must be 'one' or 'all'"):
        Probe().fit(None)
    assert counts() == {2}


class Waiting:
    """A context that a thread has entered, and leaves when it is told to."""

    def __init__(self, context):
        self._leave, entered = threading.Event(), threading.Event()

        def run():
            with context():
                entered.set()
                assert self._leave.wait(60)

        self._thread = threading.Thread(target=run)
        self._thread.start()
        assert entered.wait(60)

    def leave(self):
        self._leave.set()
        self._thread.join()


@contextmanager
def careless():
    """What a limit would be that knows of no other threads."""
    n_threads = torch.get_num_threads()
    with threadpool_limits(1):
        torch.set_num_threads(1)
        yield
    torch.set_num_threads(n_threads)


@pytest.mark.parametrize("is_first_first", [True, False])
def test_fits_in_several_threads_leave_all_as_it_was(is_first_first):
    def threads_of_others(limit):
        """Return what others have during two fits that overlap, and after these."""
        fits = [Waiting(limit), Waiting(limit)]
        during = torch.get_num_threads(), elsewhere(torch.get_num_threads)
        for fit in fits if is_first_first else fits[::-1]:
            fit.leave()
        return during, elsewhere(torch.get_num_threads), counts()

    assert threads_of_others(one_thread) == ((2, 2), 2, {2})
    with Two():
        assert threads_of_others(careless) != ((2, 2), 2, {2})


def test_large_steps_keep_their_threads():
    few, many = _threads.MANY_VALUES - 1, _threads.MANY_VALUES
    with threads_for(few):
        assert counts() == {1}
    with threads_for(many):
        assert counts() == {2}
    with one_thread():
        with threads_for(few):
            assert counts() == {1}
        with threads_for(many):
            assert torch.get_num_threads() == 2
            # What a large step consists of is part of it.
            with one_thread(), threads_for(many):
                assert torch.get_num_threads() == 2
        assert counts() == {1}
        with pytest.raises(ArithmeticError), threads_for(many):
            raise ArithmeticError
        assert counts() == {1}
    assert counts() == {2}


def watch(monkeypatch, owner, name):
    """Return a list of the counts at each call of a function."""
    seen, function = [], getattr(owner, name)

    def watched(*args, **kwargs):
        seen.append(torch.get_num_threads())
        return function(*args, **kwargs)

    monkeypatch.setattr(owner, name, watched)
    return seen


@pytest.mark.parametrize(("most", "expected"), [(65, 1), (64, 2)])
@pytest.mark.parametrize("is_inside", [False, True])
def test_large_transport_keeps_its_threads(monkeypatch, most, expected, is_inside):
    monkeypatch.setattr(_threads, "MANY_VALUES", most)
    solved = watch(monkeypatch, _sinkhorn, "_solve")
    sorted_ = watch(monkeypatch, _sliced, "_replace_by_gradients")
    costs = []

    def cost(X, Y):
        costs.append(torch.get_num_threads())
        return (X[:, :1] - Y[:, 0]).abs()

    def solve():
        X = torch.rand(8, 2)
        sinkhorn(torch.rand(8, 8))
        sinkhorn_blockwise(X, X, cost)
        Z = torch.rand(64, 2)
        sliced_wasserstein(Z, Z.flip(0), n_projections=2)

    (one_thread()(solve) if is_inside else solve)()
    assert set(solved) == set(costs) == set(sorted_) == {expected}
    assert counts() == {2}


@pytest.mark.parametrize(("most", "expected"), [(65, 1), (64, 2)])
def test_large_batches_of_a_gan_keep_their_threads(monkeypatch, most, expected):
    monkeypatch.setattr(_threads, "MANY_VALUES", most)
    seen = []

    class Network(nn.Linear):
        def forward(self, Z):
            seen.append(torch.get_num_threads())
            return super().forward(Z)

    gan = EntropicDeconvGAN(
        GaussianMechanism(2.0, 1e-3, domain=Box(0, 1, n_features=1)),
        generator=lambda latent_dim, domain: Network(latent_dim, 1),
        batch_size=8,
        n_generated=8,
        training=Training(max_iter=3, device="cpu"),
        privatize=True,
    )
    gan.fit(np.full((20, 1), 0.5))
    assert seen[:3] == [expected] * 3
    seen.clear()
    gan.sample(2)
    assert set(seen) == {1}


def test_counting_threads_and_the_learner_have_one_thread(monkeypatch):
    schema = Schema({"a": Numeric(0, 1), "b": Categorical(["n", "y"])})
    sampler = TableSampler(
        2.0, 1e-3, schema=schema, target="b", max_iter=5, n_jobs=2, store="none", random_state=0
    )
    seen = []
    count = TableCounter.count_block

    def watched(self, block):
        seen.append((threading.get_ident(), torch.get_num_threads()))
        return count(self, block)

    monkeypatch.setattr(TableCounter, "count_block", watched)
    rng = np.random.default_rng(0)
    X = pd.DataFrame({"a": rng.uniform(size=200), "b": rng.choice(["n", "y"], 200)})
    model = SyntheticDataClassifier(sampler, Learner(), n_samples=50, n_draws=1).fit(X)
    assert {n for _, n in seen} == {1}
    assert model.estimators_[0].seen_ == {1}
    assert set(np.ravel(model.predict_proba(X.drop(columns="b")))) == {1}


def _in_a_worker():
    with Two():
        return Probe().fit(None).seen_, Probe.fit.__wrapped__(Probe(), None).seen_, counts()


@pytest.mark.slow
def test_workers_have_one_thread():
    results = joblib.Parallel(n_jobs=2)(joblib.delayed(_in_a_worker)() for _ in range(2))
    assert results == [([{1}], [{2}], {2})] * 2
