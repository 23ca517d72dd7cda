"""Words of numbers and dates at the ends of bins."""

import pandas as pd

from sklearn_dpgen.reporting._columns import words_of


def test_large_numbers_have_no_exponent():
    assert words_of(pd.Series([0.0, 19.53, 2500.4, 9999.9, 12345.6])) == [
        "0",
        "19.5",
        "2500",
        "10,000",
        "12,346",
    ]
    # Beyond, the digits would be longer than what they say.
    assert words_of(pd.Series([1.5e9])) == ["1.5e+09"]


def test_times_of_one_day_are_told_apart():
    days = pd.Series(pd.to_datetime(["2020-01-01 10:00", "2021-06-01 12:30"]))
    assert words_of(days) == ["2020-01-01", "2021-06-01"]
    times = pd.Series(pd.to_datetime(["2020-01-01 10:00", "2020-01-01 12:30"]))
    assert words_of(times) == ["2020-01-01 10:00", "2020-01-01 12:30"]
