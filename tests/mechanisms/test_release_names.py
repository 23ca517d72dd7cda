"""Privatized records carry their public mechanism, and what learns from them compares its own."""

import copy
import pickle
import struct
from functools import partial

import joblib
import numpy as np
import pandas as pd
import pytest
import torch
from sklearn import config_context
from sklearn.base import clone
from sklearn.model_selection import train_test_split

from sklearn_dpgen.domains import Ball, Box, OneHot
from sklearn_dpgen.mechanisms import (
    GaussianMechanism,
    LaplaceMechanism,
    RandomizedResponse,
    TabularMechanism,
    release_of,
)
from sklearn_dpgen.mechanisms._release import Card, ReleasedArray, fit_mechanism
from sklearn_dpgen.schema import Categorical, Numeric, Schema

BOX = Box(0, 1, n_features=2)
X = np.random.default_rng(0).uniform(size=(12, 2))
SCHEMA = Schema({"age": Numeric(0, 100), "sex": Categorical(["f", "m"])})
TABLE = pd.DataFrame({"age": np.arange(12.0), "sex": ["f", "m"] * 6})

MECHANISMS = {
    "laplace": (LaplaceMechanism(2.0, domain=BOX), X),
    "gaussian": (GaussianMechanism(2.0, domain=BOX), X),
    "response": (RandomizedResponse(2.0, domain=OneHot(2)), X),
    "table": (TabularMechanism(2.0, schema=SCHEMA, n_bins={"age": 4}), TABLE),
}
each = pytest.mark.parametrize("name", MECHANISMS)


class Unchecked(LaplaceMechanism):
    """A broken variant: it never asks who released what it learns from."""

    def encode_release(self, Y, *, reset=False, estimator=None):
        return np.asarray(Y, dtype=np.float64)


def is_refused(Y, mechanism):
    """Return whether a mechanism refuses to explain the records, by the rule that is tested."""
    try:
        mechanism.encode_release(Y)
    except ValueError as error:
        return "The records were released by" in str(error)
    return False


def rows(Y, index):
    return Y.iloc[index] if isinstance(Y, pd.DataFrame) else Y[index]


WAYS = {
    "itself": lambda Y: Y,
    "slice": lambda Y: rows(Y, slice(2, 9)),
    "fold": lambda Y: rows(Y, [5, 3, 4]),
    "mask": lambda Y: rows(Y, np.arange(12) % 2 == 0),
    "split": lambda Y: train_test_split(Y, random_state=0)[1],
    "copy": lambda Y: Y.copy(),
    "pickle": lambda Y: pickle.loads(pickle.dumps(Y)),
    "workers": lambda Y: joblib.Parallel(n_jobs=2)(joblib.delayed(_same)(y) for y in [Y])[0],
}


def _same(Y):
    return Y


@each
@pytest.mark.parametrize(
    "way", [pytest.param(way, marks=[pytest.mark.slow] * (way == "workers")) for way in WAYS]
)
def test_the_name_goes_along(name, way):
    mechanism, records = MECHANISMS[name]
    released = WAYS[way](clone(mechanism).fit_transform(records))
    label = release_of(released)
    assert (label["mechanism"], label["epsilon"]) == (type(mechanism).__name__, 2.0)
    assert not is_refused(released, clone(mechanism).fit(records))
    assert is_refused(released, clone(mechanism).set_params(epsilon=3.0).fit(records))


# The mechanism itself.


def carried(Y):
    """Return the mechanism that an estimator takes from records, or why it takes none."""
    try:
        return fit_mechanism(None, Y, privatize=False, noise_seed=None)
    except ValueError as error:
        return str(error)


@each
@pytest.mark.parametrize("way", WAYS)
def test_the_mechanism_goes_along(name, way):
    mechanism, records = MECHANISMS[name]
    fitted = clone(mechanism).set_params(random_state=5).fit(records)
    released = WAYS[way](fitted.transform(records))
    found = carried(released)
    assert type(found) is type(mechanism)
    assert found.privacy_.epsilon == 2.0
    assert found.privacy_.is_seeded
    points = torch.as_tensor(fitted.domain_.sample(5, np.random.default_rng(0)))
    encoded = [torch.as_tensor(m.encode_release(released)) for m in (fitted, found)]
    assert torch.equal(*encoded)
    expected, likelihood = (m.log_likelihood(points, encoded[0]) for m in (fitted, found))
    torch.testing.assert_close(likelihood, expected, rtol=1e-9, atol=1e-9)


SEED, SECRET = 987_654_321, 0.123456789


class KeepsRecords(LaplaceMechanism):
    """A mechanism that somebody else wrote, which remembers what it was given."""

    def fit(self, X=None, y=None):
        self.seen_ = X
        return super().fit(X)


class WholeCard(Card):
    """A broken variant: the card is the mechanism as it is."""

    @classmethod
    def of(cls, mechanism):
        return cls(Card.of(mechanism), copy.copy(mechanism))


@pytest.mark.parametrize("random_state", [SEED, np.random.RandomState(3)])
def test_a_card_has_no_record_no_seed_and_no_ledger(random_state, tmp_path):
    records = np.full((40, 2), SECRET)
    path = tmp_path / "secret.ledger"
    mechanism = KeepsRecords(2.0, domain=BOX, random_state=random_state, ledger=path)
    mechanism.fit(records)
    key = SEED.to_bytes(4, "little") if random_state is SEED else b"MT19937"
    drawn = mechanism._seed.to_bytes(4, "little")
    private = [struct.pack("<d", SECRET), key, drawn, b"secret.ledger"]

    def told(card):
        data = pickle.dumps(card)
        return [secret in data for secret in private]

    assert told(Card.of(mechanism)) == [False] * 4
    assert told(WholeCard.of(mechanism)) == [True] * 4
    found = Card.of(mechanism).mechanism()
    assert (found.random_state, found.ledger, found._seed, found.seen_) == (None, None, None, None)


def test_a_function_of_the_width_does_not_hinder_a_pickle():
    released = LaplaceMechanism(2.0, domain=lambda n_features: BOX).fit_transform(X)
    assert carried(pickle.loads(pickle.dumps(released))).domain == BOX

    class Local(LaplaceMechanism):
        """A class that no pickle finds: the name is left, and the records are."""

    released = Local(2.0, domain=BOX).fit_transform(X)
    assert isinstance(carried(released), Local)
    again = pickle.loads(pickle.dumps(released))
    np.testing.assert_array_equal(again, released)
    assert "carry only a label" in carried(again)


LOST = {
    "array": (np.asarray, "carry none"),
    "list": (lambda Y: Y.tolist(), "carry none"),
    "joined": (lambda Y: np.concatenate([Y, Y]), "carry none"),
    "computed": (lambda Y: Y + 0, "carry none"),
}


@pytest.mark.parametrize("way", LOST)
def test_what_loses_the_mechanism_is_refused(way):
    lose, message = LOST[way]
    refusal = carried(lose(MECHANISMS["laplace"][0].fit_transform(X)))
    assert message in refusal
    assert "pass mechanism=" in refusal


def test_files_lose_the_mechanism(tmp_path):
    released = MECHANISMS["laplace"][0].fit_transform(X)
    np.save(tmp_path / "released.npy", released)
    assert "carry none" in carried(np.load(tmp_path / "released.npy"))
    table = MECHANISMS["table"][0].fit_transform(TABLE)
    table.to_csv(tmp_path / "released.csv", index=False)
    assert "carry none" in carried(pd.read_csv(tmp_path / "released.csv"))
    pytest.importorskip("pyarrow")
    table.to_parquet(tmp_path / "released.parquet")
    refusal = carried(pd.read_parquet(tmp_path / "released.parquet"))
    assert "pass mechanism=, a TabularMechanism with epsilon=2, delta=0." in refusal


def test_a_part_of_the_columns_is_refused():
    frame = pd.DataFrame(X, columns=["a", "b"])
    mechanism = LaplaceMechanism(2.0, domain=Box([0, -9], [1, 9])).set_output(transform="pandas")
    released = mechanism.fit_transform(frame)
    for wrong in (released[["a"]], released[["b", "a"]]):
        with pytest.raises(ValueError, match="must have the columns .* in the same order"):
            carried(wrong).encode_release(wrong, estimator=LaplaceMechanism(), reset=True)
    released = MECHANISMS["laplace"][0].fit_transform(X)[:, :1]
    with pytest.raises(ValueError, match="must have the 2 columns of the domain, got 1"):
        carried(released).encode_release(released, estimator=LaplaceMechanism(), reset=True)


def test_parameters_that_are_set_later_are_not_believed():
    mechanism = clone(MECHANISMS["laplace"][0]).fit(X)
    released = mechanism.set_params(epsilon=9.0).transform(X)
    assert release_of(released)["epsilon"] == 2.0
    with pytest.raises(ValueError, match="epsilon=2, .* epsilon=9"):
        carried(released).encode_release(released)


def test_records_without_noise_are_not_learned_from():
    released = LaplaceMechanism(np.inf, domain=BOX).fit_transform(X)
    assert "there is nothing to deconvolve" in carried(released)


@each
def test_data_frames_on_request_have_the_name_too(name):
    mechanism, records = MECHANISMS[name]
    with config_context(transform_output="pandas"):
        frames = [
            clone(mechanism).fit_transform(records),
            clone(mechanism).fit(records).transform(records),
        ]
    frames.append(clone(mechanism).set_output(transform="pandas").fit_transform(records))
    for frame in frames:
        assert isinstance(frame, pd.DataFrame)
        assert release_of(frame)["epsilon"] == 2.0


def test_tables_keep_the_name_in_a_file(tmp_path):
    pytest.importorskip("pyarrow")
    released = MECHANISMS["table"][0].fit_transform(TABLE)
    released.to_parquet(tmp_path / "released.parquet")
    assert release_of(pd.read_parquet(tmp_path / "released.parquet")) == release_of(released)


@pytest.mark.parametrize(
    "other",
    [
        LaplaceMechanism(2.5, domain=BOX),
        LaplaceMechanism(2.0, domain=Box(0, 1.0000001, n_features=2)),
        LaplaceMechanism(2.0, domain=Box([0, 0.5], [1, 1.5])),
        LaplaceMechanism(2.0, domain=Ball(1.0, p=1, n_features=2)),
        GaussianMechanism(2.0, domain=BOX),
        GaussianMechanism(2.0, 1e-4, domain=BOX),
    ],
    ids=str,
)
def test_another_mechanism_is_refused(other):
    released = MECHANISMS["laplace"][0].fit_transform(X)
    assert is_refused(released, other.fit(X))
    assert not is_refused(np.asarray(released), other.fit(X))
    # The check finds what it should only because it is made.
    assert not is_refused(released, Unchecked(9.0, domain=BOX).fit(X))


def test_another_calibration_is_refused():
    analytic, closed = (
        GaussianMechanism(2.0, 1e-4, domain=BOX, calibration=name)
        for name in ("analytic", "closed_form")
    )
    assert is_refused(analytic.fit_transform(X), closed.fit(X))


@pytest.mark.parametrize(
    "options",
    [
        {"schema": Schema({**SCHEMA, "age": Numeric(0, 101)})},
        {"schema": Schema({**SCHEMA, "sex": Categorical(["m", "f"])})},
        {"n_bins": {"age": 5}},
        {"n_bins": {"age": [0, 25, 50, 76, 100]}},
        {"n_bins": None},
        {"n_bins": None, "noise": "gaussian"},
        {"split": {"age": 2, "sex": 1}},
    ],
    ids=str,
)
def test_another_declaration_is_refused(options):
    mechanism = MECHANISMS["table"][0]
    other = clone(mechanism).set_params(**options).fit(TABLE)
    assert is_refused(clone(mechanism).fit_transform(TABLE), other)
    assert is_refused(other.transform(TABLE), clone(mechanism).fit(TABLE))


@pytest.mark.parametrize(
    ("mechanism", "same"),
    [
        (LaplaceMechanism(2, domain=BOX), LaplaceMechanism(np.float64(2), domain=BOX)),
        (LaplaceMechanism(2, domain=BOX), LaplaceMechanism(2, domain=partial(Box, 0, 1))),
        (LaplaceMechanism(2, domain=BOX), LaplaceMechanism(2, domain=BOX, random_state=3)),
    ],
)
def test_the_same_mechanism_said_otherwise_is_the_same(mechanism, same):
    assert not is_refused(mechanism.fit_transform(X), same.fit(X))


def test_columns_and_containers_do_not_matter():
    mechanism = MECHANISMS["table"][0]
    released = clone(mechanism).fit_transform(TABLE)
    swapped = released[["sex", "age"]].astype({"age": "float32"})
    assert not is_refused(swapped, clone(mechanism).fit(swapped))
    whole = Schema({"age": Numeric(0.0, 100.0), "sex": Categorical(["f", "m"])})
    assert not is_refused(released, clone(mechanism).set_params(schema=whole).fit(TABLE))


def test_the_error_names_both_budgets_and_what_to_do():
    released = LaplaceMechanism(20.0, domain=BOX).fit_transform(X)
    with pytest.raises(ValueError, match="epsilon=20, .* mechanism is .* epsilon=5,") as caught:
        LaplaceMechanism(5.0, domain=BOX).fit(X).encode_release(released)
    assert "Leave mechanism out" in str(caught.value)
    assert "other settings" not in str(caught.value)
    with pytest.raises(ValueError, match="other settings"):
        LaplaceMechanism(20.0, domain=Box(0, 2, n_features=2)).fit(X).encode_release(released)


def test_what_is_computed_from_a_release_has_no_name():
    released = MECHANISMS["laplace"][0].fit_transform(X)
    assert type(released) is ReleasedArray
    computed = [
        released * 2,
        released @ np.eye(2),
        released.mean(axis=0),
        np.concatenate([released, released]),
        np.where(released > 0, released, 0),
        np.asarray(released),
    ]
    assert all(type(value) is np.ndarray for value in computed)
    assert isinstance(released.sum(), float)
    assert release_of(released.tolist()) is None


def test_tables_of_two_mechanisms_have_no_name_together():
    one, other = (clone(MECHANISMS["table"][0]).set_params(epsilon=e) for e in (1.0, 2.0))
    tables = [mechanism.fit_transform(TABLE) for mechanism in (one, other)]
    assert release_of(pd.concat([tables[0], tables[0]])) == release_of(tables[0])
    assert release_of(pd.concat(tables)) is None


def test_raw_records_and_synthetic_ones_have_no_name():
    TabularMechanism(2.0, schema=SCHEMA).fit_transform(TABLE)
    assert release_of(TABLE) is None
    assert release_of(X) is None


def test_a_mechanism_of_a_user_is_named():
    class Coarse(LaplaceMechanism):
        def transform(self, X):
            return np.round(super().transform(X), 1)

    released = Coarse(2.0, domain=BOX).fit_transform(X)
    assert release_of(released)["mechanism"].endswith("Coarse")
    assert is_refused(released, LaplaceMechanism(2.0, domain=BOX).fit(X))
