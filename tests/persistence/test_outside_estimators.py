"""Estimators from outside of the package are saved by what they declare, and by nothing else."""

import importlib
import json
import subprocess
import sys
import textwrap

import numpy as np
import pytest
from hostile_files import join, split
from make_fixtures import FIXTURES
from saved_cases import fitted

import sklearn_dpgen
from sklearn_dpgen.exceptions import InvalidFileError
from sklearn_dpgen.ledger._base import PrivateEstimator
from sklearn_dpgen.moments import MomentSampler
from sklearn_dpgen.persistence._declarations import _MODULE_OF, find_class
from sklearn_dpgen.persistence._files import FORMAT

TOY = '''
"""A noisy mean of numbers in [0, 1]."""

import numpy as np

from sklearn_dpgen.accounting import PrivacyReport
from sklearn_dpgen.ledger._base import PrivateEstimator
from sklearn_dpgen.persistence import Array
from sklearn_dpgen.persistence._declarations import demand


class ToyMean(PrivateEstimator):
    _saved_state = {"mean_": Array("f", 1, low=-10, high=10)}
    _not_saved = {"n_rows_": "The number of records is needed by the fit alone."}
    _parameter_constraints = {"epsilon": "no_validation", "random_state": ["random_state"]}

    def __init__(self, epsilon=1.0, *, random_state=None):
        self.epsilon = epsilon
        self.random_state = random_state

    def plan(self, n_samples, n_features=None):
        return PrivacyReport(name="Mean", events=(), epsilon=self.epsilon, delta=0.0)

    def fit(self, X, y=None):
        X = np.clip(np.asarray(X, dtype=np.float64), 0, 1)
        self.n_rows_, self.n_features_in_ = X.shape
        self._charge(self.plan(len(X)))
        scale = X.shape[1] / (len(X) * self.epsilon)
        self.mean_ = self._noise_source(None).add(X.mean(axis=0)[None], scale, "laplace")[0]
        return self

    def predict(self, X):
        return np.tile(self.mean_, (len(X), 1))

    def _check_saved_state(self):
        super()._check_saved_state()
        demand(len(self.mean_) == self.n_features_in_, "The mean has another width.")
'''
X = np.random.default_rng(0).uniform(size=(50, 3))


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    path = tmp_path_factory.mktemp("outside")
    (path / "toy_mean.py").write_text(TOY, encoding="utf-8")
    return path


@pytest.fixture(scope="module")
def toy(folder):
    with pytest.MonkeyPatch.context() as patched:
        patched.syspath_prepend(str(folder))
        return importlib.import_module("toy_mean").ToyMean


@pytest.fixture
def path(toy, tmp_path):
    toy(5.0, random_state=7).fit(X).save(tmp_path / "toy.safetensors")
    return tmp_path / "toy.safetensors"


def test_it_is_saved_and_loaded_by_its_declaration(toy, tmp_path):
    estimator = toy(5.0).fit(X)
    estimator.save(tmp_path / "toy")
    loaded = sklearn_dpgen.load(tmp_path / "toy")
    assert type(loaded) is toy
    assert (loaded.predict(X) == estimator.predict(X)).all()
    assert loaded.privacy_ == estimator.privacy_
    assert loaded.epsilon == 5.0
    assert vars(estimator).keys() - vars(loaded).keys() == {"n_rows_"}


def test_a_seed_is_left_out_as_its_base_declares(path):
    assert sklearn_dpgen.load(path).random_state is None


def edited(path, edit):
    document, tensors = split(path.read_bytes())
    edit(document["model"]["fields"], tensors)
    path.write_bytes(join(document, tensors))
    return path


@pytest.mark.parametrize("value", [np.array([0.5, 11.0, 0.5]), np.array([0.5])])
def test_its_hints_and_its_check_are_held(path, value):
    def edit(fields, tensors):
        tensors["mean_"] = ("F64", [len(value)], value.tobytes())

    with pytest.raises(InvalidFileError, match="'mean_' of ToyMean|another width"):
        sklearn_dpgen.load(edited(path, edit))


def test_an_attribute_that_it_does_not_declare_is_refused(path):
    with pytest.raises(InvalidFileError, match="unknown.*n_rows_"):
        sklearn_dpgen.load(edited(path, lambda fields, tensors: fields.update(n_rows_=50)))


def run(code):
    code = textwrap.dedent(code)
    return subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)


@pytest.mark.slow
def test_a_file_never_imports_it(path, folder):
    """Its module is on the path, and its name is in the file: somebody else must import it."""
    code = f"""
        import sys
        sys.path.insert(0, {str(folder)!r})
        import sklearn_dpgen, sklearn_dpgen.ledger
        try:
            sklearn_dpgen.load({str(path)!r})
        except sklearn_dpgen.exceptions.InvalidFileError as error:
            assert "no known class" in str(error)
        else:
            raise AssertionError
        assert "toy_mean" not in sys.modules
        import toy_mean
        assert type(sklearn_dpgen.load({str(path)!r})) is toy_mean.ToyMean
    """
    done = run(code)
    assert done.returncode == 0, done.stderr[-2000:]


def test_a_name_of_the_package_cannot_be_taken():
    for base, name in ((MomentSampler, "MomentSampler"), (PrivateEstimator, "Box")):
        with pytest.raises(TypeError, match="rename it"):
            type(name, (base,), {"_saved_state": {}, "__module__": "elsewhere"})
    assert find_class("MomentSampler").type is MomentSampler


@pytest.mark.parametrize(
    "name", ["PrivateEstimator", "Mechanism", "VotingSampler", "FairEstimator"]
)
def test_bases_that_declare_a_part_are_not_estimators_of_a_file(name, tmp_path):
    fitted("evolution").save(tmp_path / "file")
    document, tensors = split((tmp_path / "file").read_bytes())
    document["model"]["object"] = name
    (tmp_path / "file").write_bytes(join(document, tensors))
    importlib.import_module("sklearn_dpgen.sliced")
    with pytest.raises(InvalidFileError, match="no known class"):
        sklearn_dpgen.load(tmp_path / "file")


@pytest.mark.slow
def test_files_are_opened_before_anything_else_is_imported():
    # Of one with PyTorch and one without; that all names have their modules is tested below.
    names = ("network", "tables")
    paths = [str(FIXTURES / f"format_{FORMAT}" / f"{name}.safetensors") for name in names]
    code = f"""
        import json, sys, warnings
        warnings.simplefilter("ignore")
        import torch
        found = []
        for path in {paths!r}:
            for name in [n for n in sys.modules if n.split(".")[0] == "sklearn_dpgen"]:
                del sys.modules[name]
            import sklearn_dpgen
            found.append(type(sklearn_dpgen.load(path)).__name__)
        print(json.dumps(found))
    """
    done = run(code)
    assert done.returncode == 0, done.stderr[-2000:]
    names = json.loads(done.stdout)
    assert len(names) == len(paths)
    assert {*names} <= {*_MODULE_OF}


def test_the_table_of_modules_names_what_is_there():
    for name in _MODULE_OF:
        entry = find_class(name)
        assert entry.type.__module__.startswith(f"sklearn_dpgen.{_MODULE_OF[name]}")
