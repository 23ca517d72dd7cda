"""The file itself: its format over time, what is refused, and what is there if a save fails."""

import copy
import json
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import torch
from hostile_files import join, split
from make_fixtures import FIXTURES, fixture_estimators
from safetensors import safe_open
from safetensors.numpy import load_file
from saved_cases import CASES, FRAME, LABELS, SIDE, WIDE_SCHEMA, fitted
from sklearn.base import clone
from sklearn.exceptions import NotFittedError

import sklearn_dpgen
from sklearn_dpgen.accounting import PrivacyReport
from sklearn_dpgen.domains import Box
from sklearn_dpgen.evolution import PrivateEvolutionSampler
from sklearn_dpgen.exceptions import InvalidFileError
from sklearn_dpgen.moments import MomentSampler
from sklearn_dpgen.persistence._files import FORMAT
from sklearn_dpgen.tables import TableSampler

pytestmark = pytest.mark.filterwarnings("ignore::UserWarning")


@pytest.fixture
def path(tmp_path):
    return tmp_path / "model.safetensors"


def test_any_reader_of_safetensors_opens_it(path):
    estimator = fitted("moments of public classes")
    estimator.save(path)
    with safe_open(path, "np") as file:
        assert (file.get_tensor("means_") == estimator.means_).all()
        (key,) = file.metadata()
        document = json.loads(file.metadata()[key])
    assert document["format"] == FORMAT
    assert document["versions"]["sklearn_dpgen"] == sklearn_dpgen.__version__
    assert document["model"]["object"] == "MomentSampler"
    fields = document["model"]["fields"]
    assert fields["epsilon"] == estimator.epsilon
    assert PrivacyReport.from_dict(fields["privacy_"]["fields"]) == estimator.privacy_


def test_the_same_model_is_the_same_file(path, tmp_path):
    fitted("rules").save(path)
    fitted("rules").save(tmp_path / "again")
    assert path.read_bytes() == (tmp_path / "again").read_bytes()


@pytest.mark.slow
@pytest.mark.parametrize("version", range(1, FORMAT + 1))
def test_files_of_each_format_are_opened(version):
    folder = FIXTURES / f"format_{version}"
    paths = sorted(folder.glob("*.safetensors"))
    assert paths
    for path in paths:
        estimator = sklearn_dpgen.load(path)
        expected = json.loads(path.with_suffix(".json").read_text())
        assert type(estimator).__name__ == expected["class"]
        assert estimator.privacy_.epsilon == expected["epsilon"]
        if expected["sample"] is not None:
            sample = np.asarray(estimator.sample(5, random_state=0), dtype=object)
            # Networks of single precision: builds of PyTorch differ in its last digits.
            dtypes = {tensor.dtype for tensor in load_file(path).values()}
            rel = 1e-5 if np.dtype(np.float32) in dtypes else 1e-6
            assert json.loads(json.dumps(sample.tolist(), default=str)) == [
                [pytest.approx(v, rel=rel, nan_ok=True) if isinstance(v, float) else v for v in row]
                for row in expected["sample"]
            ]


def test_the_fixtures_are_of_all_sorts():
    names = {path.stem for path in (FIXTURES / "format_1").glob("*.safetensors")}
    assert names == set(fixture_estimators())


def edited(path, edit):
    document, tensors = split(path.read_bytes())
    edit(document)
    path.write_bytes(join(document, tensors))
    return path


@pytest.mark.parametrize("weights", ["size", "equal", "label", ["equal"]])
def test_weights_of_groups_of_an_earlier_file_are_a_setting(path, weights):
    path.write_bytes((FIXTURES / "format_1" / "classifier.safetensors").read_bytes())
    edited(path, lambda document: document["model"]["fields"].update(group_weights=weights))
    if weights in ("size", "equal"):
        classifier = sklearn_dpgen.load(path)
        # "size" is what the setting is by default.
        set_weights = getattr(classifier.gradient, "group_weights", None)
        assert set_weights == (None if weights == "size" else weights)
    else:
        with pytest.raises(InvalidFileError, match="unknown"):
            sklearn_dpgen.load(path)


@pytest.mark.parametrize("version", [FORMAT + 1, 0, -1, "1", 1.0, None, True])
def test_other_formats_are_refused(version, path):
    fitted("moments").save(path)
    with pytest.raises(InvalidFileError, match="format") as caught:
        sklearn_dpgen.load(edited(path, lambda document: document.update(format=version)))
    assert ("newer" in str(caught.value)) == (version == FORMAT + 1)


def test_a_parameter_of_a_newer_release_is_named_and_one_of_an_older_is_filled_in(path):
    fitted("moments").save(path)
    edited(path, lambda document: document["model"]["fields"].update(noise_of_tomorrow=1))
    with pytest.raises(InvalidFileError, match="noise_of_tomorrow.*written by release"):
        sklearn_dpgen.load(path)
    fitted("moments").save(path)
    edited(path, lambda document: document["model"]["fields"].pop("epsilon"))
    assert sklearn_dpgen.load(path).epsilon == 1.0 != fitted("moments").epsilon


@pytest.mark.parametrize("value", [-1.0, "much", None, {"float": "nan"}])
def test_parameters_are_validated(value, path):
    fitted("moments").save(path)
    edited(path, lambda document: document["model"]["fields"].update(epsilon=value))
    with pytest.raises(InvalidFileError, match="epsilon|NaN|nan"):
        sklearn_dpgen.load(path)


def test_an_estimator_before_its_fit_is_refused(path):
    for estimator in (MomentSampler(domain=Box(0, 1)), TableSampler(schema=WIDE_SCHEMA)):
        with pytest.raises(NotFittedError):
            estimator.save(path)
    assert not path.exists()
    fitted("moments").save(path)
    fields = ("privacy_", "means_", "covariances_", "domain_", "noise_multiplier_")
    fields += ("n_features_in_", "feature_names_in_", "_frame_kind")

    def unfit(document):
        for name in fields:
            document["model"]["fields"].pop(name)

    with pytest.raises(InvalidFileError, match="not fitted|not used"):
        sklearn_dpgen.load(edited(path, unfit))


class Own:
    """Candidates of the user."""

    def random(self, n, rng):
        return rng.uniform(size=(n, 2))

    def vary(self, X, rng, degree):
        return X


@pytest.mark.parametrize(
    ("name", "parameter", "value"),
    [
        ("moments", "domain", lambda n_features: Box(0, 1, n_features=n_features)),
        ("evolution", "embedding", np.tanh),
        ("evolution", "interface", Own()),
        ("smoothed generator", "generator", lambda n, domain: torch.nn.Linear(n, 2)),
        ("sliced generator", "training__callback", print),
    ],
)
def test_code_is_refused_by_the_name_of_the_parameter(name, parameter, value, path):
    # Nested settings are changed in place.
    estimator = copy.deepcopy(fitted(name)).set_params(**{parameter: value})
    with pytest.raises(TypeError, match=rf"^{parameter} holds .* set_params\({parameter}="):
        estimator.save(path)
    assert not path.exists()


def test_a_network_of_the_user_is_refused(path):
    class OwnNetwork(torch.nn.Sequential):
        pass

    estimator = copy.copy(fitted("sliced generator"))
    estimator.module_ = OwnNetwork(*estimator.module_)
    with pytest.raises(TypeError, match="module_ holds a OwnNetwork"):
        estimator.save(path)


class Subclass(MomentSampler):
    """One that a user wrote."""


@pytest.mark.slow
def test_other_estimators_are_refused_with_what_to_save_instead(path):
    own = Subclass(**CASES["moments"].estimator.get_params()).fit(FRAME)
    with pytest.raises(TypeError, match="Subclass cannot be saved"):
        own.save(path)
    for name, advice in {
        "synthetic classifier": "Save sampler_",
        "barycenter classifier": r"Save estimator_\.sampler_",
    }.items():
        case = CASES[name]
        meta = case.fit(FRAME, SIDE, clone(case.estimator))
        with pytest.raises(TypeError, match=advice):
            meta.save(path)
    meta.estimator_.sampler_.save(path)
    assert len(sklearn_dpgen.load(path).sample(4)) == 4


def test_a_save_that_fails_leaves_what_was_there(path, monkeypatch):
    path.write_bytes(b"before")

    def fail(*names):
        raise OSError("no room")

    for name in ("replace", "fsync"):
        with monkeypatch.context() as patched:
            patched.setattr(os, name, fail)
            with pytest.raises(OSError, match="no room"):
                fitted("moments").save(path)
    wrong = copy.copy(fitted("moments"))
    wrong.covariances_ = wrong.covariances_[:, :1]
    with pytest.raises(ValueError, match="cannot be saved"):
        wrong.save(path)
    assert path.read_bytes() == b"before"
    assert [*path.parent.iterdir()] == [path]
    fitted("moments").save(path)
    assert sklearn_dpgen.load(str(path)).privacy_ == fitted("moments").privacy_


def test_a_link_is_replaced_and_not_what_it_is_to(path, tmp_path):
    other = tmp_path / "other"
    other.write_bytes(b"other")
    path.symlink_to(other)
    fitted("moments").save(path)
    assert other.read_bytes() == b"other"
    assert not path.is_symlink()


def test_what_set_output_says_is_saved(path):
    estimator = copy.copy(fitted("moments of tables")).set_output(transform="pandas")
    estimator.save(path)
    loaded = sklearn_dpgen.load(path)
    assert type(loaded.sample(2)) is type(FRAME)
    assert loaded.sample(3, y="yes").shape == (3, 2)
    assert set(loaded.sample_labels(50)) <= set(LABELS)


def test_importing_the_package_does_not_import_all_of_it():
    code = "import sys, sklearn_dpgen; assert not {'torch', 'sklearn'} & {*sys.modules}"
    assert subprocess.run([sys.executable, "-c", code]).returncode == 0


def test_interfaces_of_the_package_are_saved_with_their_parameters(path):
    sampler = fitted("evolution of tables")
    assert isinstance(sampler, PrivateEvolutionSampler)
    sampler.save(path)
    loaded = sklearn_dpgen.load(path).interface_
    assert loaded.column_weights == sampler.interface_.column_weights
    assert Path(path).stat().st_size < 1 << 16
