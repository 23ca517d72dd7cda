"""Errors about parameters, where a table was given in the place of one."""

import pandas as pd
import pytest
from sklearn.base import BaseEstimator

from sklearn_dpgen.deconvolution import DeconvolutionEM, EntropicDeconvGAN
from sklearn_dpgen.evolution import PrivateEvolutionSampler, PrivateSignedMeasureSampler
from sklearn_dpgen.mechanisms import LaplaceMechanism, TabularMechanism
from sklearn_dpgen.nn import Training
from sklearn_dpgen.preprocessing import TabularEncoder
from sklearn_dpgen.sliced import (
    ClippedGradient,
    DPSlicedWassersteinFairClassifier,
    DPSlicedWassersteinGenerator,
)
from sklearn_dpgen.smoothed import (
    SmoothedSlicedWassersteinAdapter,
    SmoothedSlicedWassersteinGenerator,
)
from sklearn_dpgen.tables import TableSampler
from sklearn_dpgen.utils._validation import ParametersMixin, fit_context

SECRET = 777.125
TABLE = pd.DataFrame({"pay": [SECRET, 1.0]})


def shown(estimator, records=TABLE):
    """Return all that the error of a fit, and those behind it, say."""
    with pytest.raises((TypeError, ValueError)) as caught:
        estimator.fit(records)
    error, texts = caught.value, []
    while error is not None:
        texts.append(str(error))
        error = error.__context__ or error.__cause__
    return "\n".join(texts)


@pytest.mark.parametrize("value", [TABLE, [SECRET], {"pay": SECRET}, TABLE.to_numpy()], ids=type)
@pytest.mark.parametrize(
    "make",
    [
        lambda value: TableSampler(value, schema=None),
        lambda value: TableSampler(schema=value),
        lambda value: PrivateEvolutionSampler(value),
        lambda value: PrivateSignedMeasureSampler(value),
        lambda value: TabularMechanism(value, schema=None),
        lambda value: TabularMechanism(schema=value),
        lambda value: TabularEncoder(value),
        lambda value: LaplaceMechanism(value),
        lambda value: DeconvolutionEM(value),
        lambda value: EntropicDeconvGAN(value),
        lambda value: EntropicDeconvGAN(LaplaceMechanism(), batch_size=value),
        lambda value: DPSlicedWassersteinFairClassifier(value),
        lambda value: DPSlicedWassersteinGenerator(epsilon=value),
        lambda value: DPSlicedWassersteinGenerator(training=value),
        lambda value: DPSlicedWassersteinGenerator(training=Training(max_iter=value)),
        lambda value: DPSlicedWassersteinGenerator(gradient=ClippedGradient(task_clip=value)),
        lambda value: SmoothedSlicedWassersteinGenerator(value),
        lambda value: SmoothedSlicedWassersteinAdapter(epsilon=value),
    ],
)
def test_a_table_in_the_place_of_a_parameter_is_not_shown(make, value):
    assert str(SECRET) not in shown(make(value))


class Talkative(BaseEstimator):
    """An estimator as scikit-learn's own: what it got is in the error."""

    _parameter_constraints = {"epsilon": [float]}

    def __init__(self, epsilon):
        self.epsilon = epsilon

    @fit_context(prefer_skip_nested_validation=True)
    def fit(self, X, y=None):
        return self


class Quiet(ParametersMixin, Talkative):
    pass


def test_what_scikit_learn_would_show():
    assert str(SECRET) in shown(Talkative(TABLE))
    assert shown(Quiet(TABLE)).endswith(
        "of Quiet must be an instance of 'float'. Got an object of DataFrame."
    )
    # A number or a word is what was typed.
    assert shown(Quiet("much")).endswith("Got 'much' instead.")
