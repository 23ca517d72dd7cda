"""Dates where numbers are declared: their unit would follow from all of them."""

import numpy as np
import pandas as pd
import pytest

from sklearn_dpgen.domains import Box
from sklearn_dpgen.evolution import PrivateSignedMeasureSampler
from sklearn_dpgen.mechanisms import LaplaceMechanism
from sklearn_dpgen.sliced import DPSlicedWassersteinGenerator
from sklearn_dpgen.smoothed import SmoothedSlicedWassersteinGenerator

BOX = Box(0, 2e9, n_features=1)
ESTIMATORS = [
    LaplaceMechanism(domain=BOX),
    PrivateSignedMeasureSampler(domain=BOX),
    DPSlicedWassersteinGenerator(domain=BOX),
    SmoothedSlicedWassersteinGenerator(domain=BOX),
]


def numbers(second):
    """What numpy makes of a date beside another one."""
    first = np.datetime64("2001-01-01T00:00:00")
    return np.array([first, second]).astype(float)[0]


def test_one_date_decides_the_unit_of_another():
    seconds, nanoseconds = (f"2001-01-02T00:00:00{part}" for part in ("", ".000000001"))
    assert numbers(np.datetime64(nanoseconds)) == 1e9 * numbers(np.datetime64(seconds))


@pytest.mark.parametrize("estimator", ESTIMATORS, ids=lambda estimator: type(estimator).__name__)
@pytest.mark.parametrize("unit", ["s", "ns"])
@pytest.mark.parametrize("kind", ["datetime64", "timedelta64"])
@pytest.mark.parametrize("make", [lambda a: a, pd.DataFrame], ids=["array", "frame"])
def test_dates_are_no_numbers(estimator, unit, kind, make):
    X = make(np.ones((30, 1), dtype=np.int64).astype(f"{kind}[{unit}]"))
    with pytest.raises(ValueError, match="X must hold real numbers"):
        estimator.fit(X).transform(X)


def test_dates_with_a_zone_are_no_numbers():
    X = pd.DataFrame({"day": pd.date_range("2020", periods=30, tz="Asia/Tokyo")})
    with pytest.raises(ValueError, match=r"columns that do not: \['day'\]"):
        LaplaceMechanism(domain=BOX).fit_transform(X)
