"""What every estimator keeps to: it comes back the same, with no more than it should have."""

import copy
import struct

import numpy as np
import pandas as pd
import polars as pl
import pytest
from contract_cases import CASES
from saved_cases import FITS, FRAME, IDS, SECRET_NAME, SECRET_SEED, SIDE, fitted, wide_frame
from sklearn.base import clone
from torch import nn

import sklearn_dpgen
from sklearn_dpgen.ledger import PrivacyLedger
from sklearn_dpgen.ledger._base import PrivateEstimator
from sklearn_dpgen.mechanisms import Mechanism
from sklearn_dpgen.nn import Training
from sklearn_dpgen.persistence._declarations import _MODULE_OF, find_class
from sklearn_dpgen.persistence._files import SavedEstimator, declared
from sklearn_dpgen.sliced import DPSlicedWassersteinFairClassifier

pytestmark = pytest.mark.filterwarnings("ignore::UserWarning")


@pytest.fixture
def path(tmp_path):
    return tmp_path / "model.safetensors"


def through_a_file(estimator, path):
    estimator.save(path)
    return sklearn_dpgen.load(path)


def as_bytes(value):
    """Return what tells two results apart, to the last bit."""
    if isinstance(value, dict):
        return {name: as_bytes(part) for name, part in value.items()}
    if isinstance(value, pl.DataFrame):
        return "polars", value.to_dict(as_series=False)
    if isinstance(value, pd.DataFrame):
        kinds = tuple(map(str, value.dtypes))
        return (
            "pandas",
            kinds,
            [*value],
            [as_bytes(column.to_numpy()) for _, column in value.items()],
        )
    value = np.asarray(value)
    data = repr(value.tolist()) if value.dtype.kind == "O" else value.tobytes()
    return str(value.dtype), value.shape, data


def results(estimator):
    """Return all that an estimator makes, to the last bit."""
    found = []
    if hasattr(estimator, "sample"):
        found += [estimator.sample(n, random_state=3) for n in (1, 300)]
    if hasattr(estimator, "classes_") and hasattr(estimator, "sample"):
        found += [estimator.sample(9, y=estimator.classes_[0], random_state=3)]
        found += [estimator.sample_labels(30, random_state=4)]
    rows = FRAME if getattr(estimator, "n_features_in_", 0) == 2 else None
    for name in ("predict", "predict_proba", "decision_function"):
        if hasattr(estimator, name):
            found.append(getattr(estimator, name)(rows))
    if isinstance(estimator, Mechanism):
        estimator = copy.deepcopy(estimator)
        estimator._seed = 5  # as none is saved, and none drawn with tells them apart
        wide = wide_frame() if estimator.n_features_in_ > 3 else None
        width = estimator.n_features_in_
        if rows is None and wide is None:
            rows = np.random.default_rng(0).uniform(size=(20, width))
        found.append(estimator.transform(rows if wide is None else wide))
        found.append(estimator.domain_.sample(3, np.random.default_rng(0)))
    elif hasattr(estimator, "transform"):
        found += [estimator.transform(rows)]
        found += [estimator.inverse_transform(found[-1])]
    if hasattr(estimator, "find_bins"):
        found += [edges for _, edges in sorted(estimator.find_bins(4).items())]
    if not found:
        # It releases something, and draws and predicts nothing.
        found = [getattr(estimator, name) for name in sorted(type(estimator)._saved_state)]
    return [as_bytes(value) for value in found]


@pytest.mark.parametrize("name", FITS)
def test_what_it_makes_is_the_same_bit_for_bit(name, path):
    estimator = fitted(name)
    loaded = through_a_file(estimator, path)
    assert type(loaded) is type(estimator)
    assert results(estimator) == results(loaded) != []
    # And again, so that what is loaded can be shipped on.
    first = path.read_bytes()
    loaded.save(path)
    assert path.read_bytes() == first


def test_another_model_is_told_apart(path):
    estimator = copy.deepcopy(fitted("moments"))
    loaded = through_a_file(estimator, path)
    loaded.means_ = np.nextafter(loaded.means_, 1)
    assert results(estimator) != results(loaded)


@pytest.mark.parametrize("name", FITS)
def test_the_report_and_the_parameters_are_the_same(name, path):
    estimator = fitted(name)
    loaded = through_a_file(estimator, path)
    assert loaded.privacy_ == estimator.privacy_
    assert loaded.privacy_.to_json() == estimator.privacy_.to_json()
    given, found = (e.get_params(deep=False) for e in (estimator, loaded))
    assert given.keys() == found.keys()
    for parameter, value in given.items():
        if parameter not in ("mechanism", "ledger", "random_state"):
            assert repr(value) == repr(found[parameter]) or value == found[parameter]
        if parameter == "device":
            assert isinstance(found[parameter], str)


def state_of(estimator):
    """Return the names that a file holds of a fit, and the reasons of those that it leaves out."""
    kind = type(estimator)
    return declared(kind, "_saved_state"), declared(kind, "_not_saved")


def unaccounted(estimator):
    """Return the attributes of a fit that are neither saved nor listed as left out."""
    saved, left_out = state_of(estimator)
    known = {*estimator.get_params(deep=False), *saved, *left_out}
    return sorted(vars(estimator).keys() - known)


@pytest.mark.parametrize("name", FITS)
def test_each_attribute_is_saved_or_on_the_list(name, path):
    estimator = fitted(name)
    assert unaccounted(estimator) == []
    saved, left_out = state_of(estimator)
    missing = vars(estimator).keys() - vars(through_a_file(estimator, path)).keys()
    assert missing <= left_out.keys()
    assert not saved.keys() & left_out.keys()
    estimator = copy.copy(estimator)
    estimator.kept_records_ = FRAME
    assert unaccounted(estimator) == ["kept_records_"]


def test_the_list_has_reasons_and_nothing_that_is_not_there():
    seen, listed = {}, {}
    for name in FITS:
        estimator = fitted(name)
        seen.setdefault(type(estimator), set()).update(vars(estimator))
    kinds = {find_class(name).type for name in _MODULE_OF}
    assert seen.keys() == {kind for kind in kinds if issubclass(kind, SavedEstimator)}
    for kind, attributes in seen.items():
        left_out = declared(kind, "_not_saved")
        assert all(reason.endswith(".") for reason in left_out.values())
        for name in left_out:
            listed[name] = listed.get(name, False) or name in attributes
    assert [name for name, is_there in listed.items() if not is_there] == []


def encodings(value):
    """Return the ways in which a file could hold a text, or a number."""
    if isinstance(value, str):
        return [value.encode(code) for code in ("utf-8", "utf-16-le", "utf-32-le")]
    if isinstance(value, int):
        return [str(value).encode(), struct.pack("<I", value), struct.pack("<d", value)]
    digits = repr(float(value)).encode()
    return [struct.pack("<d", value), struct.pack("<f", value), struct.pack(">d", value), digits]


def holds_secrets(content):
    """Return which of the planted values are anywhere in a file."""
    planted = [SECRET_NAME, SECRET_SEED, "secret-ledger", *FRAME["a"].tolist()]
    return [value for value in planted if any(code in content for code in encodings(value))]


def with_secrets(name, tmp_path):
    """Return an estimator that is fitted on planted records, with a seed and a ledger."""
    case = CASES[name]
    estimator = clone(case.estimator)
    neighbours = getattr(estimator, "neighbours", "replace_one")
    ledger = PrivacyLedger.create(
        tmp_path / "secret-ledger",
        dataset="a",
        epsilon=1e4,
        delta=0.01,
        neighbours=neighbours,
        unit="who" if case.has_unit else None,
    )
    estimator.set_params(ledger=ledger, random_state=SECRET_SEED)
    frame = FRAME[list(case.columns)]
    if case.has_unit:
        estimator.set_params(unit="who")
        frame = frame.assign(who=IDS)
    return case.fit(frame, SIDE, estimator)


# Rows of the source are public to adapters, which may tell of them.
CENTRAL = [name for name in CASES if name in FITS]


@pytest.mark.parametrize("name", CENTRAL)
def test_no_record_id_seed_or_ledger_is_in_the_file(name, path, tmp_path, monkeypatch):
    estimator = with_secrets(name, tmp_path)
    loaded = through_a_file(estimator, path)
    assert holds_secrets(path.read_bytes()) == []
    assert loaded.ledger is None
    assert loaded.random_state is None
    # A report of a seeded fit stays void.
    assert loaded.privacy_.is_seeded
    # The negative twin: what is not left out is found.
    monkeypatch.setattr(PrivateEstimator, "_not_saved", {"ledger": ""})
    estimator.save(path)
    assert holds_secrets(path.read_bytes()) == [SECRET_SEED]


@pytest.mark.parametrize(
    "kept",
    [FRAME["a"].to_numpy(), FRAME["a"].astype(np.float32).to_numpy(), IDS, FRAME["a"].tolist()],
)
def test_records_that_are_kept_would_be_found(kept, path, monkeypatch):
    estimator = copy.copy(fitted("moments"))
    assert holds_secrets(b"") == []
    monkeypatch.setitem(type(estimator)._saved_state, "kept_", object)
    estimator.kept_ = kept
    estimator.save(path)
    assert len(holds_secrets(path.read_bytes())) >= (1 if kept is IDS else len(FRAME))


def test_a_refit_is_charged_as_usual(path, tmp_path):
    case = CASES["sliced measures"]
    book = PrivacyLedger.create(
        tmp_path / "a.ledger", dataset="a", epsilon=2.5, delta=1e-3, neighbours="replace_one"
    )
    estimator = clone(case.estimator).set_params(ledger=book)
    loaded = through_a_file(case.fit(FRAME, SIDE, estimator), path).set_params(ledger=book)
    assert len(book.report().charges) == 1
    case.fit(FRAME, SIDE, loaded)
    assert len(book.report().charges) == 2
    with pytest.raises(sklearn_dpgen.exceptions.BudgetExceededError):
        case.fit(FRAME, SIDE, loaded)


def test_three_classes_are_saved_and_a_softmax_over_rows_is_refused(path):
    rng = np.random.default_rng(0)
    X, y = rng.normal(size=(90, 3)), np.array(list("xyz"))[np.arange(90) % 3]
    model = DPSlicedWassersteinFairClassifier(
        0.0, classes=list("xyz"), training=Training(max_iter=3)
    )
    model.fit(X, y)
    loaded = through_a_file(model, path)
    assert as_bytes(loaded.predict_proba(X)) == as_bytes(model.predict_proba(X))
    model.module_[1] = nn.Softmax(dim=0)
    with pytest.raises(ValueError, match="softmax over rows"):
        model.save(path)
