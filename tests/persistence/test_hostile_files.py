"""Files from unknown hands: an error, and never code that runs or memory that they do not have."""

import gc
import os
import subprocess
import sys
import tracemalloc
import warnings
from pathlib import Path

import numpy as np
import pytest
from hostile_files import KINDS, hostile_file, join, split
from saved_cases import fitted

import sklearn_dpgen
from sklearn_dpgen.exceptions import InvalidFileError, PublicValueError
from sklearn_dpgen.persistence._declarations import class_of_type
from sklearn_dpgen.persistence._files import SavedEstimator

pytestmark = pytest.mark.filterwarnings("ignore::UserWarning")

# One of each sort: tables with rules, classes, a network, images, a mechanism, one in another.
NAMES = [
    "rules",
    "persons with rows",
    "moments of tables",
    "evolution of tables",
    "smoothed, by a convolution",
    "images of classes",
    "tables in bins",
    "deconvolution of images",
    "laws of records",
    "fair classifier",
]
# What objects of Python take of a small file, and what a file must not exceed beside its own.
FREE_BYTES = 16 << 20


@pytest.fixture(scope="module")
def files(tmp_path_factory):
    """Return the bytes of valid files."""
    folder = tmp_path_factory.mktemp("valid")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for name in NAMES:
            fitted(name).save(folder / name)
    return {name: (folder / name).read_bytes() for name in NAMES}


def outcome(path, n_bytes):
    """Load a file; return whether it was valid, after use, and the bytes beyond twice its own."""
    tracemalloc.start()
    try:
        try:
            estimator = sklearn_dpgen.load(path)
        except InvalidFileError:
            estimator = None
        beyond = tracemalloc.get_traced_memory()[1] - 2 * n_bytes
    finally:
        tracemalloc.stop()
    if estimator is not None:
        assert isinstance(estimator, SavedEstimator)
        assert class_of_type(type(estimator)) is not None
        assert estimator.privacy_.to_text()
        if hasattr(estimator, "sample"):
            try:
                drawn = estimator.sample(3)
            except PublicValueError as error:
                # Labels of several types are declared, and another kind of frames is asked for.
                if "which frames of polars cannot hold" not in str(error):
                    raise
                return True, beyond
            # The persons have other rows beside.
            assert len(drawn["persons"] if isinstance(drawn, dict) else drawn) == 3
        elif hasattr(estimator, "predict"):
            assert len(estimator.predict(np.zeros((3, estimator.n_features_in_)))) == 3
    return estimator is not None, beyond


def check_many(files, tmp_path, n):
    path, n_valid = tmp_path / "hostile", 0
    for seed in range(n):
        kind = [*KINDS][seed % len(KINDS)]
        data = hostile_file(files[NAMES[seed // len(KINDS) % len(NAMES)]], kind, seed)
        path.write_bytes(data)
        is_valid, beyond = outcome(path, len(data))
        assert beyond < FREE_BYTES, (kind, seed)
        n_valid += is_valid
    # Of numbers that are changed and sealed anew, many are numbers as good as before.
    assert 0 < n_valid < 0.2 * n


@pytest.mark.slow
def test_two_hostile_files_of_each_kind_and_estimator(files, tmp_path):
    check_many(files, tmp_path, 2 * len(KINDS) * len(NAMES))


@pytest.mark.slow
@pytest.mark.explores
def test_ten_thousand_hostile_files(files, tmp_path):
    check_many(files, tmp_path, 10_000)


@pytest.mark.slow
def test_files_are_hostile_by_what_was_changed(files, tmp_path):
    """The negative twin: what the mutations start from is valid, sealed by other code."""
    for name, data in files.items():
        path = tmp_path / "same"
        path.write_bytes(join(*split(data)))
        assert type(sklearn_dpgen.load(path)) is type(fitted(name))


def test_each_kind_of_hostile_file_is_told(files, tmp_path):
    """Without its seal a changed number passes: the seal is what finds it."""
    document, tensors = split(files["images of classes"])
    name, (dtype, shape, data) = next(item for item in tensors.items() if item[1][0] == "F64")
    changed = tensors | {name: (dtype, shape, bytes(len(data)))}
    path = tmp_path / "changed"
    path.write_bytes(join(document, changed))
    sklearn_dpgen.load(path)
    sealed = join(document, tensors)
    path.write_bytes(sealed.replace(data, bytes(len(data)), 1))
    with pytest.raises(InvalidFileError, match="SHA-256"):
        sklearn_dpgen.load(path)


BOMBS = {
    "a box of many features": {"object": "Box", "fields": {"low": 0, "n_features": 10**12}},
    "wide labels": {"labels": ["a"] * 10, "dtype": "<U1000000000"},
    "a wide layer": {
        "object": "Linear",
        "fields": {
            "in_features": 10**9,
            "out_features": 10**9,
            "training": [True],
            "weights": {"dict": []},
        },
    },
    "many layers": {
        "object": "Sequential",
        "fields": {
            "modules": [
                {
                    "object": "ReLU",
                    "fields": {"training": [True], "weights": {"dict": []}},
                }
            ]
            * 20_000
        },
    },
    "many lists": [[]] * 10**6,
    "many categories": {
        "object": "RandomizedResponse",
        "fields": {
            "epsilon": 1.0,
            "domain": {"object": "OneHot", "fields": {"n_categories": 10**7}},
            "n_features_in_": 10**7,
        },
    },
}


@pytest.mark.parametrize("bomb", BOMBS)
def test_what_is_small_in_a_file_is_not_large_in_memory(bomb, files, tmp_path):
    document, tensors = split(files["images of classes"])
    fields = document["model"]["fields"]
    for holder, key in ((fields, "epsilon"), (fields, "_model"), (document, "model")):
        kept, holder[key] = holder[key], BOMBS[bomb]
        data = join(document, tensors)
        (tmp_path / "bomb").write_bytes(data)
        assert outcome(tmp_path / "bomb", len(data)) <= (False, FREE_BYTES)
        holder[key] = kept


@pytest.mark.slow
def test_a_long_list_of_numbers_is_counted(files, tmp_path):
    document, tensors = split(files["images of classes"])
    document["model"]["fields"]["loss_curve_"] = {"list": {"array": "long"}}
    for n, is_short in ((10**5, True), (10**6, False)):
        data = join(document, tensors | {"long": ("U8", [n], bytes(n))})
        (tmp_path / "long").write_bytes(data)
        assert outcome(tmp_path / "long", len(data)) <= (is_short, FREE_BYTES)


def test_a_mechanism_states_what_its_noise_gives(files, tmp_path):
    """A report, or a scale of noise, that is set by hand would be a promise that nobody keeps."""
    for field, value in (("epsilon", 0.01), ("noise_scale", {"a": 9.0, "b": 9.0}), ("delta", 0.5)):
        document, tensors = split(files["tables in bins"])
        document["model"]["fields"]["privacy_"]["fields"][field] = value
        (tmp_path / "lie").write_bytes(join(document, tensors))
        with pytest.raises(InvalidFileError, match="guarantee"):
            sklearn_dpgen.load(tmp_path / "lie")


@pytest.mark.parametrize("zone", ["dateutil//etc/passwd", "../../etc/passwd", "os/path", "", "x"])
def test_zones_are_those_that_are_installed(zone, files, tmp_path, monkeypatch):
    document, tensors = split(files["rules"])
    columns = document["model"]["fields"]["schema"]["fields"]["columns"]["dict"]
    (column,) = (column for name, column in columns if name == "begun")
    column["fields"]["zone"] = zone
    (tmp_path / "zone").write_bytes(join(document, tensors))
    # Nobody looks the name up.
    monkeypatch.setattr("pandas.DatetimeTZDtype", None)
    with pytest.raises(InvalidFileError, match="'zone' of Datetime"):
        sklearn_dpgen.load(tmp_path / "zone")


@pytest.mark.parametrize("kind", ["folder", "device", "pipe", "loop", "none"])
def test_what_is_no_file_is_refused_at_once(kind, tmp_path):
    path = tmp_path / kind
    if kind == "folder":
        path.mkdir()
    elif kind == "device":
        path.symlink_to("/dev/zero")
    elif kind == "pipe":
        os.mkfifo(path)
    elif kind == "loop":
        path.symlink_to(path)
    error = InvalidFileError if kind in ("folder", "device", "pipe") else OSError
    with pytest.raises(error):
        sklearn_dpgen.load(path)


def test_a_link_to_a_file_is_read(files, tmp_path):
    (tmp_path / "file").write_bytes(files["tables in bins"])
    (tmp_path / "link").symlink_to(tmp_path / "file")
    assert sklearn_dpgen.load(tmp_path / "link").privacy_.epsilon == 2.0


_WATCHED = """
import sys
sys.path[:0] = FOLDERS
import pickle
import sklearn_dpgen
from hostile_files import KINDS, hostile_file
from watched_loads import watched

files = [open(path, "rb").read() for path in PATHS]
with watched(*PATHS) as seen:
    for seed in range(len(KINDS) * len(files)):
        data = hostile_file(files[seed % len(files)], [*KINDS][seed % len(KINDS)], seed)
        with open(TARGET, "wb") as file:
            file.write(data)
        with seen.loading():
            try:
                sklearn_dpgen.load(TARGET)
            except sklearn_dpgen.exceptions.InvalidFileError:
                pass
    assert seen.events == [], seen.events
    # The negative twin: a loader that unpickles is seen.
    with seen.loading():
        pickle.loads(pickle.dumps(KINDS["cut off"]))
    assert "pickle.find_class" in {event for event, _ in seen.events}, seen.events
"""


@pytest.mark.slow
def test_nothing_is_run_imported_or_written(files, tmp_path):
    paths = []
    for name in NAMES:
        paths.append(str(tmp_path / name))
        Path(paths[-1]).write_bytes(files[name])
    here = Path(__file__).parent
    code = _WATCHED.replace("FOLDERS", repr([str(here)])).replace("PATHS", repr(paths))
    code = code.replace("TARGET", repr(str(tmp_path / "target")))
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    gc.collect()
    assert done.returncode == 0, done.stderr[-2000:]
