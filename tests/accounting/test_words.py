"""Noise in words."""

import pytest

from sklearn_dpgen.accounting._wording import count_words, number_words


@pytest.mark.parametrize(
    ("value", "words"),
    [(0.01234, "0.012"), (1.26, "1.3"), (9.96, "10"), (37.4, "37"), (1234, "1,200"), (0.0, "0")],
)
def test_numbers_have_two_digits(value, words):
    assert number_words(value) == words


def test_noise_of_counts():
    assert count_words([37.6]) == "± 38 records; distinguishable from zero above 75"
    assert count_words([37.6], 48842, "rows") == (
        "± 38 rows (0.077 percent); distinguishable from zero above 75 (0.15 percent)"
    )
    assert (
        count_words([12.0, 37.6, 20.0])
        == "± 12 to 38 records; distinguishable from zero above 24 to 75"
    )
    assert count_words([0.0]) == "exact: there is no noise"
