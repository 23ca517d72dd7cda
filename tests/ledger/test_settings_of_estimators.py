"""Nested settings of every estimator that takes some: defaults, docstrings, and what is refused."""

import inspect

import pytest
from sklearn.base import clone

from sklearn_dpgen.deconvolution import EntropicDeconvGAN
from sklearn_dpgen.domains import Box
from sklearn_dpgen.evolution import (
    NoisyVotes,
    PrivateEvolutionSampler,
    PrivateSignedMeasureSampler,
)
from sklearn_dpgen.mechanisms import LaplaceMechanism
from sklearn_dpgen.nn import Training
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

SLICED = [
    DPSlicedWassersteinAdapter(),
    DPSlicedWassersteinFairClassifier(),
    DPSlicedWassersteinFairEncoder(),
    DPSlicedWassersteinFairRegressor(y_domain=(-2, 2)),
    DPSlicedWassersteinGenerator(domain=lambda n_features: None),
]
BOX = Box(0, 1, n_features=3)
GAN = EntropicDeconvGAN(LaplaceMechanism(domain=BOX))
SMOOTHED = [SmoothedSlicedWassersteinAdapter(), SmoothedSlicedWassersteinGenerator(domain=BOX)]
VOTING = [PrivateEvolutionSampler(domain=BOX), PrivateSignedMeasureSampler(domain=BOX)]
ESTIMATORS = [*SLICED, *SMOOTHED, *VOTING, GAN]


def name_of(estimator):
    return type(estimator).__name__


@pytest.mark.parametrize("estimator", ESTIMATORS, ids=name_of)
def test_defaults_are_those_of_the_docstring(estimator):
    text = " ".join(inspect.getdoc(type(estimator)).split())
    for holder, defaults in estimator._setting_defaults.items():
        if holder != "release":
            for name, value in defaults.items():
                if value != "auto" and name not in ("callback", "verbose"):
                    stated = f'"{value}"' if isinstance(value, str) else str(value)
                    assert f"``{name}={stated}``" in text


@pytest.mark.parametrize("estimator", SMOOTHED, ids=name_of)
def test_a_release_states_its_own_defaults(estimator):
    kind = "moments" if estimator is SMOOTHED[0] else "records"
    assert estimator._setting_defaults["release"] == NoisyRelease(kind).get_params()


@pytest.mark.parametrize("estimator", ESTIMATORS, ids=name_of)
def test_constructors_are_short(estimator):
    most = 12 if estimator in SLICED else 23 if estimator in VOTING else 18
    # A target of parity is one parameter, or two where rates have a ratio.
    most += sum(name in estimator.get_params(deep=False) for name in ("max_gap", "min_ratio"))
    assert len(estimator.get_params(deep=False)) <= most


@pytest.mark.parametrize(
    ("estimator", "lacking"),
    [
        (GAN, {"averaging": 0.5}),
        (GAN, {"solver": "sgd"}),
        (GAN, {"schedule": "constant"}),
        (GAN, {"callback": print}),
        (SMOOTHED[0], {"schedule": "constant"}),
        (SMOOTHED[1], {"solver": "sgd"}),
        (SMOOTHED[1], {"callback": print}),
    ],
    ids=str,
)
def test_what_an_estimator_lacks_is_refused_by_name(estimator, lacking):
    (name,) = lacking
    message = f"The '{name}' parameter of Training must be None: {name_of(estimator)} does not"
    given = clone(estimator).set_params(training=Training(**lacking))
    # A local learner is validated where it is fitted: it plans what its mechanism costs.
    call = given.fit if estimator is GAN else lambda X: given.plan(*X)
    with pytest.raises(ValueError, match=message):
        call((100, 3))


@pytest.mark.parametrize("lacking", [{"variant": "theory"}, {"multiplicity": 2}], ids=str)
def test_one_histogram_has_no_next_population(lacking):
    sampler = PrivateSignedMeasureSampler(domain=BOX, votes=NoisyVotes(**lacking))
    with pytest.raises(ValueError, match="of NoisyVotes must be None: PrivateSignedMeasureSampler"):
        sampler.plan(100, 3)
