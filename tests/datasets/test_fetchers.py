"""Adult and MNIST: from a tiny data home, from a stand-in for OpenML, and the real files."""

import gzip

import numpy as np
import pandas as pd
import pytest
from sklearn.utils import Bunch

from sklearn_dpgen.datasets import _fetch, fetch_adult, fetch_fashion_mnist, fetch_mnist
from sklearn_dpgen.datasets._fetch import get_data_home
from sklearn_dpgen.schema import Numeric, Ordinal

ADULT = """\
age,workclass,fnlwgt,education,education-num,marital-status,occupation,relationship,race,sex,\
capital-gain,capital-loss,hours-per-week,native-country,income
39,State-gov,77516,Bachelors,13,Never-married,Adm-clerical,Not-in-family,White,Male,\
2174,0,40,United-States,<=50K
52,?,83311,HS-grad,9,Divorced,?,Unmarried,Black,Female,0,0,13,?,>50K
"""
N_TRAIN, N_TEST = 60_000, 3


def mnist_arrays():
    """Images whose first pixel is the row's index modulo 256, to tell the rows apart."""
    pixels = np.zeros((N_TRAIN + N_TEST, 784), dtype=np.uint8)
    pixels[:, 0] = np.arange(len(pixels)) % 256
    return pixels, (np.arange(len(pixels)) % 10).astype(np.uint8)


@pytest.fixture
def home(tmp_path, monkeypatch):
    monkeypatch.setenv("SKLEARN_DPGEN_DATA", str(tmp_path))
    monkeypatch.setattr(_fetch, "fetch_openml", refuse)
    return tmp_path


def refuse(*args, **kwargs):
    raise OSError("no network")


def write_adult(folder):
    (folder / "adult.csv.gz").write_bytes(gzip.compress(ADULT.encode()))


def test_data_home_prefers_the_argument_then_the_variable(tmp_path, monkeypatch):
    monkeypatch.setenv("SKLEARN_DPGEN_DATA", str(tmp_path))
    assert get_data_home() == tmp_path
    assert get_data_home(tmp_path / "other") == tmp_path / "other"
    assert not (tmp_path / "other").exists()
    monkeypatch.delenv("SKLEARN_DPGEN_DATA")
    monkeypatch.setenv("HOME", str(tmp_path))
    assert get_data_home() == tmp_path / "sklearn_dpgen_data"


def test_adult_from_the_data_home(home):
    write_adult(home)
    adult = fetch_adult()
    frame = adult.frame
    assert list(frame.columns) == ADULT.splitlines()[0].split(",") == list(adult.schema)
    assert adult.target_name == "income"
    assert frame.loc[1, ["workclass", "occupation", "native-country"]].isna().all()
    assert frame.isna().to_numpy().sum() == 3
    for name, column in adult.schema.items():
        assert pd.api.types.is_integer_dtype(frame[name]) == isinstance(column, Numeric), name


def test_adult_from_openml_has_the_same_format(home, monkeypatch):
    write_adult(home)
    expected = fetch_adult().frame
    monkeypatch.setenv("SKLEARN_DPGEN_DATA", str(home / "empty"))

    def fetch_openml(name, version, as_frame):
        assert (name, version, as_frame) == ("adult", 2, True)
        frame = expected.rename(columns={"income": "class"})
        numeric = frame.select_dtypes("number").columns
        dtypes = {c: "float64" if c in numeric else "category" for c in frame}
        return Bunch(frame=frame.astype(dtypes))

    monkeypatch.setattr(_fetch, "fetch_openml", fetch_openml)
    pd.testing.assert_frame_equal(fetch_adult().frame, expected)


IMAGES = {
    fetch_mnist: ("mnist.npz", "mnist_784"),
    fetch_fashion_mnist: ("fashion_mnist.npz", "Fashion-MNIST"),
}


@pytest.mark.slow
@pytest.mark.parametrize("fetch", list(IMAGES), ids=lambda fetch: fetch.__name__)
@pytest.mark.parametrize("as_images", [False, True])
def test_images_from_either_source(home, monkeypatch, fetch, as_images):
    file_name, openml_name = IMAGES[fetch]
    X, y = mnist_arrays()

    def fetch_openml(name, version, as_frame):
        assert (name, version, as_frame) == (openml_name, 1, False)
        return Bunch(data=X.astype(np.int64), target=y.astype(str).astype(object))

    monkeypatch.setattr(_fetch, "fetch_openml", fetch_openml)
    downloaded = fetch(as_images=as_images)
    images = X.reshape(-1, 28, 28)
    np.savez(
        home / file_name,
        X_train=images[:N_TRAIN],
        y_train=y[:N_TRAIN],
        X_test=images[N_TRAIN:],
        y_test=y[N_TRAIN:],
    )
    monkeypatch.setattr(_fetch, "fetch_openml", refuse)
    read = fetch(as_images=as_images)
    shape = (28, 28) if as_images else (784,)
    assert read.X_train.shape == (N_TRAIN, *shape)
    assert read.X_test.shape == (N_TEST, *shape)
    for name in ("X_train", "y_train", "X_test", "y_test"):
        assert read[name].dtype == np.uint8
        np.testing.assert_array_equal(read[name], downloaded[name])


@pytest.mark.parametrize("fetch", [fetch_adult, fetch_mnist, fetch_fashion_mnist])
def test_errors_say_where_the_file_was_looked_for(home, fetch):
    with pytest.raises(OSError, match="set SKLEARN_DPGEN_DATA.*OpenML failed") as info:
        fetch()
    assert str(home) in str(info.value)
    with pytest.raises(OSError, match="download_if_missing=True"):
        fetch(download_if_missing=False)


def test_adult_education_is_ordered_by_its_number(home):
    write_adult(home)
    adult = fetch_adult()
    education = adult.schema["education"]
    assert isinstance(education, Ordinal)
    for name, number in zip(adult.frame["education"], adult.frame["education-num"], strict=True):
        assert list(education.categories).index(name) == number - 1


def needs(file_name):
    return pytest.mark.skipif(
        not (get_data_home() / file_name).exists(), reason=f"{file_name} is not in the data home"
    )


@pytest.mark.slow
@pytest.mark.data
@needs("adult.csv.gz")
def test_real_adult_fits_its_public_schema():
    adult = fetch_adult(download_if_missing=False)
    frame, schema = adult.frame, adult.schema
    assert frame.shape == (32561, 15)
    assert frame["income"].value_counts().to_dict() == {"<=50K": 24720, ">50K": 7841}
    assert frame.isna().sum().loc[lambda s: s > 0].to_dict() == {
        "workclass": 1836,
        "occupation": 1843,
        "native-country": 583,
    }
    for name, column in schema.items():
        values = frame[name].dropna()
        if isinstance(column, Numeric):
            assert values.between(column.low, column.high).all(), name
        else:
            declared = column.categories
            assert set(values) <= set(declared), name
        assert column.nullable == frame[name].isna().any(), name
    order = frame["education"].map({v: i + 1 for i, v in enumerate(schema["education"].categories)})
    assert (order == frame["education-num"]).all()


@pytest.mark.data
@needs("mnist.npz")
def test_real_mnist():
    mnist = fetch_mnist(download_if_missing=False)
    assert mnist.X_train.shape == (60000, 784)
    assert mnist.X_test.shape == (10000, 784)
    assert np.bincount(mnist.y_train)[[0, 1, 9]].tolist() == [5923, 6742, 5949]
    assert mnist.X_train.mean() == pytest.approx(33.318, abs=1e-3)
