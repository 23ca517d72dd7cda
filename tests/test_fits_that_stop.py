"""Fits that end before their time, in every room: what was paid for is stated, and nothing else."""

import numpy as np
import pandas as pd
import pytest

from sklearn_dpgen.deconvolution import EntropicDeconvGAN
from sklearn_dpgen.domains import Box
from sklearn_dpgen.evolution import NoisyVotes, PrivateEvolutionSampler, PrivateSignedMeasureSampler
from sklearn_dpgen.mechanisms import LaplaceMechanism
from sklearn_dpgen.mechanisms._sampled import StratifiedGaussianRun
from sklearn_dpgen.mechanisms._sequence import GaussianSequenceRun, ThresholdedLaplaceRun
from sklearn_dpgen.moments import MomentSampler
from sklearn_dpgen.nn import Training
from sklearn_dpgen.schema import Categorical, Numeric, Schema
from sklearn_dpgen.sliced import (
    DPSlicedWassersteinAdapter,
    DPSlicedWassersteinFairClassifier,
    DPSlicedWassersteinFairEncoder,
    DPSlicedWassersteinFairRegressor,
    DPSlicedWassersteinGenerator,
)
from sklearn_dpgen.smoothed import (
    NoisyRelease,
    SmoothedSlicedWassersteinAdapter,
    SmoothedSlicedWassersteinGenerator,
)
from sklearn_dpgen.tables import (
    SyntheticDataClassifier,
    TableSampler,
)

N = 60
BOX = Box(0, 1, n_features=2)
SCHEMA = Schema({"a": Numeric(0, 1), "b": Categorical([0.0, 1.0])})
X = np.random.default_rng(0).integers(0, 2, (N, 2)).astype(float)
HALVES = np.repeat([0, 1], N // 2)
TABLE = pd.DataFrame(X, columns=["a", "b"])
TRAINED = {"training": Training(hidden_layer_sizes=(4,), max_iter=2), "epsilon": 3.0}
FAIR = TRAINED | {"alpha": 0.0}
FEATURES = {"source_iter": 2, "feature_dim": 2}
ADAPTER = TRAINED | FEATURES
SOURCE = np.where(HALVES, -1, np.arange(N) % 2)

LEARNER = SyntheticDataClassifier(
    TableSampler(3.0, schema=SCHEMA, n_bins=2, target="b"), n_samples=200, n_draws=1
)

# Estimators with what they are fitted on.
FITS = {
    "deconvolution": (
        EntropicDeconvGAN(
            LaplaceMechanism(3.0, domain=BOX), privatize=True, training=Training(max_iter=2)
        ),
        (X,),
    ),
    "evolution": (
        PrivateEvolutionSampler(3.0, domain=BOX, n_samples=5, n_iter=1),
        (X,),
    ),
    "thresholded evolution": (
        PrivateEvolutionSampler(
            3.0, domain=BOX, n_samples=5, n_iter=1, votes=NoisyVotes(histogram="laplace_threshold")
        ),
        (X,),
    ),
    "signed measure": (PrivateSignedMeasureSampler(3.0, domain=BOX, n_points=9), (X,)),
    "sliced measure": (
        TableSampler(3.0, schema=SCHEMA, n_bins=2, population_size=5, max_iter=2),
        (TABLE,),
    ),
    "synthetic classifier": (LEARNER, (TABLE[["a"]], TABLE["b"])),
    "sliced generator": (DPSlicedWassersteinGenerator(domain=BOX, **TRAINED), (X,)),
    "fair classifier": (DPSlicedWassersteinFairClassifier(**FAIR), (X, HALVES)),
    "fair regressor": (
        DPSlicedWassersteinFairRegressor(y_domain=Box(0, 1), **FAIR),
        (X, HALVES),
    ),
    "fair encoder": (DPSlicedWassersteinFairEncoder(**FAIR), (X,)),
    "smoothed generator": (SmoothedSlicedWassersteinGenerator(domain=BOX, **TRAINED), (X,)),
    "smoothed generator of private labels": (
        SmoothedSlicedWassersteinGenerator(domain=BOX, labels="private", classes=[0, 1], **TRAINED),
        (X, HALVES),
    ),
    "smoothed generator of moments": (
        SmoothedSlicedWassersteinGenerator(domain=BOX, release=NoisyRelease("moments"), **TRAINED),
        (X,),
    ),
    "smoothed generator of projections": (
        SmoothedSlicedWassersteinGenerator(
            domain=BOX, release=NoisyRelease("projections"), **TRAINED
        ),
        (X,),
    ),
    "moments": (MomentSampler(3.0, domain=BOX), (X,)),
    "moments of private labels": (
        MomentSampler(3.0, domain=BOX, labels="private", classes=[0, 1]),
        (X, HALVES),
    ),
    "adapter": (
        SmoothedSlicedWassersteinAdapter(release=NoisyRelease("records"), **ADAPTER),
        (X, SOURCE),
    ),
    "adapter by gradients": (DPSlicedWassersteinAdapter(**TRAINED, **FEATURES), (X, SOURCE)),
    "adapter from a private source": (
        DPSlicedWassersteinAdapter(private="source", **TRAINED, **FEATURES),
        (X, SOURCE),
    ),
    "adapter by projections": (
        SmoothedSlicedWassersteinAdapter(release=NoisyRelease("projections"), **ADAPTER),
        (X, SOURCE),
    ),
    "adapter by moments": (
        SmoothedSlicedWassersteinAdapter(release=NoisyRelease("moments"), domain=BOX, **ADAPTER),
        (X, SOURCE),
    ),
}
RUNS = (GaussianSequenceRun, StratifiedGaussianRun, ThresholdedLaplaceRun)
every_fit = pytest.mark.parametrize(("estimator", "given"), FITS.values(), ids=FITS)
pytestmark = pytest.mark.filterwarnings("ignore::UserWarning")


def copy_of(estimator, kind=None):
    kind = type(estimator) if kind is None else kind
    return kind(**estimator.get_params(deep=False))


@every_fit
def test_the_report_is_there_before_the_first_release(estimator, given, monkeypatch):
    def interrupt(*args, **options):
        raise KeyboardInterrupt

    for run in RUNS:
        monkeypatch.setattr(run, "release", interrupt)
    monkeypatch.setattr(LaplaceMechanism, "transform", interrupt)

    class StoresLast(type(estimator)):
        def fit(self, *given):
            try:
                return super().fit(*given)
            except KeyboardInterrupt:
                del self.privacy_
                raise

    def states_its_price(fit):
        with pytest.raises(KeyboardInterrupt):
            fit.fit(*given)
        return hasattr(fit, "privacy_") and fit.privacy_.epsilon == 3.0

    assert states_its_price(copy_of(estimator))
    assert not states_its_price(copy_of(estimator, StoresLast))


@every_fit
def test_a_refused_fit_keeps_nothing_of_the_fit_before(estimator, given):
    class Remembers(type(estimator)):
        def _forget(self):
            pass

    def kept(fit):
        before = vars(fit.fit(*given)).copy()
        with pytest.raises(ValueError, match="NaN|missing"):
            fit.fit(given[0] * np.nan, *given[1:])
        # Another fit has objects of its own; there is one 2 only.
        fitted = {name for name in before if name.endswith("_")} - {"n_features_in_"}
        return {name for name in fitted if vars(fit).get(name, fit) is before[name]}

    assert kept(copy_of(estimator)) == set()
    assert kept(copy_of(estimator, Remembers)) != set()


def test_the_report_of_tables_names_all_that_is_taken_as_public():
    def public(**options):
        fit = copy_of(FITS["sliced measure"][0]).set_params(**options).fit(TABLE)
        return set(fit.privacy_.public)

    declared = {"column_names", "schema", "n_bins", "marginals"}
    assert public() == declared | {"n_samples"}
    assert public(neighbours="add_or_remove") == declared
    assert public(workload={("a", "b"): 2.0}) == declared | {"n_samples", "workload"}
    assert public(target="a") == declared | {"n_samples", "target"}
