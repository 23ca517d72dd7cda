"""Persons: which rows are theirs, and which of them is drawn."""

import datetime
import decimal

import numpy as np
import pandas as pd
import pytest
from scipy.stats import chisquare

from sklearn_dpgen.ledger._unit import Persons, split_unit
from sklearn_dpgen.utils._random import NoiseSource, noise_source

IDS = np.array(["b", "a", "b", "c", "b", "a"])
ROWS = {0: [0, 2, 4], 1: [1, 5], 2: [3]}


class FirstRow(Persons):
    def draw(self, noise, persons=None):
        persons = np.arange(self.n_persons) if persons is None else persons
        return self._order[self._starts[persons]]


def test_rows_belong_to_persons_in_the_order_in_which_they_appear():
    persons = Persons(IDS)
    assert persons.n_persons == 3
    assert persons.codes.tolist() == [0, 1, 0, 2, 0, 1]
    assert persons.n_rows.tolist() == [3, 2, 3, 1, 3, 2]
    for ids in (pd.Series(IDS), pd.Series(IDS, dtype="category"), np.array([7, 1, 7, 3, 7, 1])):
        assert Persons(ids).codes.tolist() == persons.codes.tolist()


def drawn_evenly(persons):
    """Return whether each row of a person is as likely as another."""
    noise = noise_source(3)
    wanted = np.tile([0, 1, 2], 3000)
    rows = persons.draw(noise, wanted)
    assert (persons.codes[rows] == wanted).all()
    return all(
        chisquare(np.bincount(rows[wanted == person], minlength=6)[own]).pvalue > 1e-4
        for person, own in ROWS.items()
        if len(own) > 1
    )


def test_each_row_of_a_person_is_as_likely():
    assert drawn_evenly(Persons(IDS))
    assert not drawn_evenly(FirstRow(IDS))
    assert Persons(IDS).codes[Persons(IDS).draw(noise_source(0))].tolist() == [0, 1, 2]


class Fixed(NoiseSource):
    """The same uniform draws whatever they are for, as in a proof by coupling."""

    def _uniform(self, size):
        return np.random.default_rng(1).uniform(size=size)


def test_another_person_changes_no_other_draw():
    """With the same noise, rows of other persons are the same ones, whatever one person has."""
    rng = np.random.default_rng(0)
    codes = rng.permutation(np.repeat(np.arange(30), rng.integers(1, 6, 30)))
    more = np.append(codes, [codes[0]] * 7)
    drawn, drawn_of_more = (Persons(ids).draw(Fixed()) for ids in (codes, more))
    differs = np.flatnonzero(drawn != drawn_of_more)
    assert set(differs) <= {0}


def test_a_frame_without_the_ids():
    frame = pd.DataFrame({"age": range(6), "person": IDS})
    X, persons = split_unit(frame, "person")
    assert list(X.columns) == ["age"]
    assert persons.n_persons == 3
    assert "person" in frame.columns


@pytest.mark.parametrize("missing", [None, np.nan, pd.NA])
def test_an_error_names_the_column_and_no_person(missing):
    frame = pd.DataFrame({"age": range(3), "person": ["secret", missing, "other"]})
    with pytest.raises(ValueError, match="'person'.*every row") as caught:
        split_unit(frame, "person")
    assert "secret" not in str(caught.value)
    with pytest.raises(ValueError, match="unit must be a column of X, got 'house'"):
        split_unit(frame, "house")
    with pytest.raises(TypeError, match="must be a data frame, as unit='person' names a column"):
        split_unit(frame.to_numpy(), "person")
    lists = frame.assign(person=[["secret"], ["secret"], ["other"]])
    with pytest.raises(TypeError, match="'person' of unit must hold") as caught:
        split_unit(lists, "person")
    assert "secret" not in str(caught.value)
    assert caught.value.__context__ is None
    twice = pd.concat([frame, frame[["person"]]], axis=1)
    with pytest.raises(ValueError, match="several columns"):
        split_unit(twice, "person")
    with pytest.raises(ValueError, match="every row"):
        split_unit(frame.head(0), "person")


def test_a_person_who_is_read_as_a_number_and_as_a_text_is_refused():
    """Chunks of one file may be read with types of their own, and would make two of a person."""
    chunks = [pd.Series([5, 6]), pd.Series(["5", "x7"])]
    for ids in (pd.concat(chunks), pd.concat(chunks).astype("category")):
        with pytest.raises(ValueError, match="'who'.*mixes texts") as caught:
            Persons(ids, "who")
        assert "x7" not in str(caught.value)
    texts = pd.concat([part.astype(str) for part in chunks])
    assert Persons(texts).codes.tolist() == [0, 1, 0, 2]
    assert Persons(pd.Series([5, 5.0, 6.5], dtype=object)).codes.tolist() == [0, 0, 1]


@pytest.mark.parametrize(
    "ids",
    [
        ["a", b"a"],
        [pd.Timestamp("2020-01-01"), datetime.date(2020, 1, 1)],
        [pd.Timestamp("2020-01-01"), pd.Timestamp("2020-01-01", tz="UTC")],
        [pd.Timedelta(5, "s"), 5],
    ],
    ids=["bytes", "dates", "zones", "durations"],
)
def test_a_person_whose_id_has_two_kinds_is_refused(ids):
    with pytest.raises(ValueError, match="'who' of unit mixes"):
        Persons(pd.Series(ids, dtype=object), "who")
    for one in ids:
        assert Persons(pd.Series([one, one], dtype=object)).n_persons == 1


@pytest.mark.parametrize("other", [5.0, True + 4, np.float32(5), decimal.Decimal(5)])
def test_equal_numbers_of_any_type_are_one_person(other):
    assert Persons(pd.Series([5, other], dtype=object)).n_persons == 1


def test_what_is_public_of_a_person_is_one_for_all_of_their_rows():
    persons = Persons(IDS)
    assert persons.shared(np.array([1, 0, 1, 1, 1, 0]), "class").tolist() == [1, 0, 1]
    for row in (0, 2, 4, 1, 5):
        labels = np.array([1, 0, 1, 1, 1, 0])
        labels[row] = 2
        with pytest.raises(ValueError, match="all rows of a person must be of one class"):
            persons.shared(labels, "class")


@pytest.mark.parametrize("dtype", ["float16", "float32", "Float32", "float[pyarrow]"])
def test_ids_of_less_than_double_precision_are_refused(dtype):
    """In them 16777217 is 16777216: one person of two, and in double precision two again."""
    if "pyarrow" in dtype:
        pytest.importorskip("pyarrow")
    ids = pd.Series([5, 6, 6], dtype=dtype)
    with pytest.raises(
        TypeError, match="'id' of unit must hold integers or texts, got floats of less"
    ):
        split_unit(pd.DataFrame({"id": ids, "a": 0}), "id")
    assert split_unit(pd.DataFrame({"id": ids.astype("float64"), "a": 0}), "id")[1].n_persons == 2
