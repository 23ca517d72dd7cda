"""Values whose every operation raises an error that tells them: no message shows one."""

import re
import warnings

import numpy as np
import pandas as pd
import pytest
import sklearn.utils.validation
from sklearn.base import BaseEstimator
from sklearn.linear_model import LogisticRegression

from sklearn_dpgen.domains import Box
from sklearn_dpgen.evolution import PrivateEvolutionSampler
from sklearn_dpgen.mechanisms import JointRandomizedResponse, LaplaceMechanism, TabularMechanism
from sklearn_dpgen.predictors import BarycenterClassifier
from sklearn_dpgen.preprocessing import TabularEncoder
from sklearn_dpgen.schema import Categorical, Numeric, Schema
from sklearn_dpgen.sliced import DPSlicedWassersteinFairClassifier
from sklearn_dpgen.smoothed import SmoothedSlicedWassersteinGenerator
from sklearn_dpgen.tables import (
    SyntheticDataClassifier,
    TableSampler,
)
from sklearn_dpgen.utils._validation import (
    check_array,
    column_or_1d,
    num_samples,
    validate_data,
)

SECRET = "secret-7"
OPERATIONS = """
abs add radd and bool bytes call complex contains copy deepcopy dir divmod eq float floordiv format
fspath ge getattr getitem gt hash index int invert iter le len lt matmul mod mul rmul ne neg next or
pos pow reduce reduce_ex repr round rsub sizeof str sub truediv trunc array array_function
array_ufunc
"""
ATTRIBUTES = "array_interface array_struct array_priority"


class Told(ValueError):
    """Of no library."""


ERRORS = [ValueError, TypeError, KeyError, AttributeError, OSError, UserWarning, Told]
# Those that libraries raise most, and the others.
MOST = [*ERRORS[:2], *(pytest.param(error, marks=pytest.mark.slow) for error in ERRORS[2:])]


def hostile(error):
    """Return a value of which each operation raises an error that tells it."""

    def tell(self, *args, **kwargs):
        raise error(SECRET)

    members = {f"__{name}__": tell for name in OPERATIONS.split()}
    members |= {f"__{name}__": property(tell) for name in ATTRIBUTES.split()}
    return type("Hostile", (), members)()


def shown(error):
    """Return all that an error and those behind it show."""
    texts, errors = [], [error]
    while errors:
        error = errors.pop()
        if error is not None:
            texts += [str(error), repr(error.args)]
            errors += [error.__cause__, error.__context__]
    return "\n".join(texts)


def leaks(function, *args):
    """Return whether an error shows the secret."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            function(*args)
    except Exception as error:
        return SECRET in shown(error)
    return False


N = 40
RNG = np.random.default_rng(0)
GOOD = pd.DataFrame({"a": RNG.uniform(size=N), "b": RNG.integers(0, 2, N).astype(float)})
LABELS = GOOD["b"].astype(int).to_numpy()
SCHEMA = Schema({"a": Numeric(0, 1), "b": Categorical([0.0, 1.0])})
NUMBERS = Schema({"a": Numeric(0, 1), "b": Numeric(0, 1)})
WITH_LABEL = Schema({**NUMBERS, "y": Categorical([0, 1])})
BOX = Box([0, 0], [1, 1])


def learner():
    return SyntheticDataClassifier(
        TableSampler(1.0, 1e-5, schema=WITH_LABEL, target="y"), LogisticRegression()
    )


ESTIMATORS = {
    "tables": lambda: TableSampler(1.0, 1e-5, schema=SCHEMA),
    "mechanism of tables": lambda: TabularMechanism(schema=SCHEMA),
    "mechanism": lambda: LaplaceMechanism(1.0, domain=BOX),
    "encoder": lambda: TabularEncoder(SCHEMA),
    "joint": lambda: JointRandomizedResponse(1.0, schema=SCHEMA, n_bins=4),
    "smoothed": lambda: SmoothedSlicedWassersteinGenerator(
        domain=BOX, labels="public", classes=[0, 1]
    ),
    "evolution": PrivateEvolutionSampler,
    "fair": DPSlicedWassersteinFairClassifier,
    "learner": learner,
    "private barycenter": lambda: BarycenterClassifier(learner(), groups=[0, 1], epsilon=2.0),
}


def array_of(value):
    array = np.array(GOOD.to_numpy(dtype=object))
    array[3, 1] = value
    return array


RECORDS = {
    "array": array_of,
    "frame": lambda value: pd.DataFrame(array_of(value), columns=["a", "b"]),
    "list": lambda value: array_of(value).tolist(),
    "rows": lambda value: [tuple(row) for row in array_of(value)],
    "one dimension": lambda value: [value] * 3,
}


@pytest.mark.parametrize("name", ESTIMATORS)
@pytest.mark.parametrize("error", MOST)
def test_a_fit_shows_no_value(name, error):
    for make in RECORDS.values():
        X = make(hostile(error))
        for method in ("fit", "fit_transform", "fit_predict"):
            if hasattr(ESTIMATORS[name](), method):
                assert not leaks(getattr(ESTIMATORS[name](), method), X)
                assert not leaks(getattr(ESTIMATORS[name](), method), X, LABELS)
    labels = np.array(LABELS, dtype=object)
    labels[3] = hostile(error)
    for y in (labels, labels.tolist(), pd.Series(labels)):
        assert not leaks(ESTIMATORS[name]().fit, GOOD, y)


def fitted():
    """Yield functions of records of estimators that are fitted."""
    for mechanism in (TabularMechanism(schema=SCHEMA), LaplaceMechanism(1.0, domain=BOX)):
        yield mechanism.fit(GOOD).transform
        yield mechanism.encode_release
    yield TabularEncoder(SCHEMA).fit(GOOD).transform
    yield JointRandomizedResponse(1.0, schema=SCHEMA, n_bins=4).fit(GOOD).transform
    # With much noise, all synthetic labels are sometimes equal, which is an error.
    model = learner().set_params(sampler__epsilon=100.0).fit(GOOD, LABELS)
    yield model.fit
    yield model.predict


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore::sklearn_dpgen.exceptions.NoisyCountsWarning")
@pytest.mark.parametrize("error", MOST)
def test_other_methods_show_no_value(error):
    for function in fitted():
        for make in RECORDS.values():
            assert not leaks(function, make(hostile(error)))


@pytest.mark.parametrize("error", [ValueError, TypeError])
def test_what_scikit_learn_would_show(error):
    """The negative twin."""
    naive = sklearn.utils.validation
    X, y = RECORDS["list"](hostile(error)), [hostile(error), 1]
    assert leaks(lambda: naive.check_array(X, dtype=np.float64))
    assert leaks(lambda: naive.validate_data(BaseEstimator(), X, dtype=np.float64))
    assert leaks(lambda: naive.column_or_1d(y))
    assert leaks(lambda: naive._num_samples(np.array(SECRET)))
    assert not leaks(lambda: check_array(X, dtype=np.float64))
    assert not leaks(lambda: validate_data(BaseEstimator(), X, dtype=np.float64))
    assert not leaks(lambda: column_or_1d(y))
    assert not leaks(lambda: num_samples(np.array(SECRET)))


@pytest.mark.parametrize(
    "text",
    [
        f"a wording that nobody knows: {SECRET}",
        f"could not convert string to float: '{SECRET}'",
        f"Input X contains NaN.\n{SECRET}",
        f"Input X contains {SECRET}.",
        f"X has 3 features, but {SECRET} is expecting 2 features as input.",
        f"The feature names should match those that were passed during fit.\n- {SECRET}",
        f"Singleton array array({SECRET}) cannot be considered a valid collection.",
    ],
)
@pytest.mark.parametrize("kind", ERRORS)
def test_no_message_of_a_library_is_shown(monkeypatch, kind, text):
    """Neither one that is known to quote values, nor one that looks as if it did not."""

    def refuse(*args, **kwargs):
        raise kind(text)

    monkeypatch.setattr(sklearn.utils.validation, "_num_samples", refuse)
    for function in (
        lambda: check_array([[1]]),
        lambda: validate_data(BaseEstimator(), [[1]]),
        lambda: column_or_1d([1, 2]),
    ):
        assert not leaks(function)
    # The negative twin: all that is said.
    assert leaks(refuse)


@pytest.mark.filterwarnings("ignore:X does not have valid feature names")
def test_the_rule_that_fails_is_named():
    estimator = BaseEstimator()
    frame = pd.DataFrame({"a": [1.0], "b": [2.0]})
    validate_data(estimator, frame)
    for X, words in (
        (frame.rename(columns={"b": "c"}), "Feature names unseen at fit time:\n- c"),
        (frame.assign(b=np.nan), "Input X contains NaN"),
        (frame[:0], "Found array with 0 sample"),
        (frame.to_numpy()[0], "Expected 2D array, got 1D array instead"),
        (frame.to_numpy()[None], "Found array with dim 3"),
    ):
        with pytest.raises(ValueError, match=re.escape(words)):
            validate_data(estimator, X, reset=False)
