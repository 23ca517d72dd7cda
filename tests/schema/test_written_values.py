"""How values are written in text files: dates in a format, numbers with marks and a currency."""

import copy
import datetime
import pickle
import traceback
from dataclasses import fields, replace

import numpy as np
import pandas as pd
import pytest
from declared_columns import reproducibly
from hypothesis import given
from hypothesis import strategies as st
from sklearn.compose import make_column_transformer
from sklearn.ensemble import HistGradientBoostingClassifier
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import OrdinalEncoder

from sklearn_dpgen.exceptions import PublicValueError
from sklearn_dpgen.mechanisms import _release
from sklearn_dpgen.persistence._declarations import find_class
from sklearn_dpgen.preprocessing import PublicTable
from sklearn_dpgen.schema import (
    Categorical,
    Datetime,
    Identifier,
    Numeric,
    OpenCategorical,
    Ordinal,
    Schema,
)
from sklearn_dpgen.schema._binned import bin_column

EURO = Numeric(-9e6, 9e6, decimal=",", thousands=".", currency="€", missing=["k. A.", -999])
SPACED = Numeric(-9e6, 9e6, decimal=",", thousands=" ", currency="1 €")
SWISS = Numeric(-9e6, 9e6, thousands="'", currency="Fr. 1")
COMMA = Numeric(-9e6, 9e6, decimal=",")
DAY = Datetime("1901-01-01", "2024-12-31", format="%d/%m/%Y")
MINUTE = Datetime("2020-01-01", "2024-12-31", format="%d/%m/%Y %H:%M", missing=["1900-01-01"])


def read(column, values, dtype=object):
    """Return the values that a column reads, None for those that it cannot read."""
    found, bad, _ = column._read_quietly(pd.Series(values, dtype=dtype))
    return [None if is_bad else v for v, is_bad in zip(found.tolist(), bad, strict=True)]


@pytest.mark.parametrize(
    ("column", "text", "number"),
    [
        (EURO, "€ 1.234,50", 1234.5),
        (EURO, "€1.234,50", 1234.5),
        (EURO, "1.234,50 €", 1234.5),
        (EURO, "1.234,50\u00a0€", 1234.5),
        (EURO, " 1234,5 ", 1234.5),
        (EURO, "1.234", 1234),
        (EURO, "1.234.567", 1234567),
        (EURO, "-12,5", -12.5),
        (EURO, "\u221212,5", -12.5),
        (EURO, "-€ 12,5", -12.5),
        (EURO, "€ -12,5", -12.5),
        (EURO, "+12", 12),
        (EURO, ",5", 0.5),
        (EURO, "1,5E+03", 1500),
        (SPACED, "1 234,50 €", 1234.5),
        (SPACED, "1\u00a0234,50\u00a0€", 1234.5),
        (SPACED, "1\u202f234", 1234),
        (SWISS, "Fr. 1'234.50", 1234.5),
        (SWISS, "1\u2019234.50", 1234.5),
        (COMMA, "-12,5", -12.5),
    ],
)
def test_texts_of_numbers_are_read(column, text, number):
    for dtype in (object, "str", "category"):
        assert read(column, [text, text], dtype) == [number, number]


@pytest.mark.parametrize(
    ("column", "text"),
    [
        (EURO, "1.5"),
        (EURO, "1.2345"),
        (EURO, "12.34,5"),
        (EURO, "1,234.5"),
        (EURO, "€ 5 €"),
        (EURO, "--5"),
        (EURO, "-€ -5"),
        (EURO, "$ 5"),
        (EURO, "€"),
        (EURO, ","),
        (EURO, ""),
        (EURO, "5,0,0"),
        (EURO, "1" * 501),
        (EURO, "٣"),
        (SPACED, "12 34"),
        (COMMA, "1.234"),
        (COMMA, "€ 5"),
        (COMMA, True),
        (COMMA, np.timedelta64(5, "ns")),
        (Numeric(0, 9), "1,5"),
        (Numeric(0, 9), "1.5"),
    ],
)
def test_other_texts_stay_unreadable(column, text):
    assert read(column, [text]) == [None]
    assert Schema({"x": column}).check(pd.DataFrame({"x": [text]})).loc["x", "unreadable"] == 1


def test_numbers_are_read_beside_texts():
    mixed = [1234.5, "1.234,5", 7, np.float32(2.5), "-999,00", "k. A.", None, -999]
    assert read(EURO, mixed)[:4] == [1234.5, 1234.5, 7, 2.5]
    assert (EURO.encode(pd.Series(mixed, dtype=object))[:, -1] == 1).tolist() == [False] * 4 + [
        True
    ] * 4
    for dtype in ("float64", "Int64", "int32"):
        assert read(EURO, [5, 7], dtype) == [5, 7]


@pytest.mark.parametrize(
    ("column", "numbers", "texts"),
    [
        (EURO, [1234.5, -1234.567, 0, -0.001], ["€ 1.234,50", "€ -1.234,57", "€ 0,00", "€ 0,00"]),
        (SPACED, [1e6], ["1 000 000,00 €"]),
        (Numeric(-9, 9, currency="$1"), [-3.5], ["-$3.50"]),
        (Numeric(0, 100, integer=True, currency="1%"), [7], ["7%"]),
        (Numeric(0, 1e7, integer=True, thousands=","), [1234567], ["1,234,567"]),
        (Numeric(0, 10, step=0.1), [12.299999999, 0.1 + 0.2, 3], ["12.3", "0.3", "3.0"]),
        (Numeric(0, 10, step=0.25), [0.5], ["0.50"]),
        (Numeric(0, 10, step=1), [5.0], ["5"]),
        (Numeric(0, 10, integer=True, nullable=True), [5.0, np.nan], ["5", None]),
        (COMMA, [0.5, 1234.5678, 0.00123456], ["0,5", "1234,57", "0,00123"]),
    ],
)
def test_numbers_are_written_as_declared(column, numbers, texts):
    values = pd.Series(numbers, name="x", index=range(3, 3 + len(numbers)), dtype=np.float64)
    written = column.to_texts(values)
    assert written.tolist() == texts
    assert written.name == "x"
    assert written.index.equals(values.index)


@pytest.mark.parametrize(
    ("column", "numbers", "rounded"),
    [
        (Numeric(0, 5000), [1234.56789, 12.3456789, 0.00123456, 0], [1234.57, 12.35, 0.00123, 0]),
        (Numeric(0, 1), [0.123456789], [0.123457]),
        (Numeric(0, 1e-3), [0.000123456789123], [0.000123457]),
        (Numeric(0.123456789, 1), [0.123456789], [0.123456789]),
        (Numeric(0, 1e300), [1e299], [1e299]),
    ],
)
def test_numbers_without_a_step_have_decimals_of_their_bounds(column, numbers, rounded):
    assert column.to_texts(pd.Series(numbers, dtype=np.float64)).tolist() == rounded


numbers = st.floats(-1e12, 1e12)
words = st.fixed_dictionaries(
    {
        "decimal": st.sampled_from(".,"),
        "thousands": st.sampled_from([None, " ", "'", "\u202f"]),
        "currency": st.sampled_from([None, "€", "1 EUR", "$1", "Fr.", "1%", "m²"]),
    }
)


@pytest.mark.slow
@reproducibly
@given(numbers, numbers, words, st.booleans(), st.lists(st.floats(-1, 1), max_size=5))
def test_what_is_written_is_read_again(low, width, words, nullable, units):
    column = Numeric(low, low + abs(width) + 1, nullable=nullable, **words)
    values = pd.Series(column.from_unit(np.array(units, dtype=np.float64)))
    written = column.to_texts(values)
    if not column.has_words:
        written = written.astype(str).astype(float)
    found = np.array(read(column, [*written]), dtype=np.float64)
    error = np.maximum(0.005, np.abs(values) * 0.01) if column.currency else 0.006
    assert (np.abs(found - values) <= error).all()
    # Rounding does not leave the bounds, but for those of more than 12 decimals.
    slack = 1e-12 * max(1, abs(low))
    assert ((found >= column.low - slack) & (found <= column.high + slack)).all()


@pytest.mark.parametrize(
    ("wrong", "rule"),
    [
        ({"decimal": ".", "thousands": "."}, "decimal and thousands must be distinct"),
        ({"decimal": "'", "thousands": "\u2019"}, "decimal and thousands must be distinct"),
        ({"thousands": "."}, "decimal and thousands must be distinct"),
        ({"decimal": ""}, "decimal must be a single mark"),
        ({"decimal": None}, "decimal must be a single mark"),
        ({"decimal": " "}, "decimal must be a single mark"),
        ({"decimal": "-"}, "decimal must be a single mark"),
        ({"thousands": "5"}, "thousands must be a single mark"),
        ({"thousands": "\n"}, "thousands must be a single mark"),
        ({"thousands": "x"}, "thousands must be a single mark"),
        ({"thousands": 5}, "thousands must be a single mark"),
        ({"currency": ""}, "currency must be a text"),
        ({"currency": "1"}, "currency must be a text"),
        ({"currency": "$5"}, "currency must be a text"),
        ({"currency": "a 1 b"}, "currency must be a text"),
        ({"currency": "-"}, "currency must be a text"),
        ({"currency": "."}, "currency must be a text"),
        ({"currency": "a\nb"}, "currency must be a text"),
        ({"currency": "x" * 21}, "currency must be a text"),
        ({"currency": 3}, "currency must be a text"),
        ({"description": ""}, "description must be a text"),
        ({"description": ["a"]}, "description must be a text"),
        ({"description": "a" * 1001}, "description must be a text"),
    ],
    ids=str,
)
def test_ambiguous_words_are_refused(wrong, rule):
    with pytest.raises(PublicValueError, match=rule):
        Numeric(0, 1, **wrong)


def test_texts_of_dates_are_read_in_the_format_alone():
    texts = ["31/12/2020 23:59", "1/2/2021 5:07", " 31/12/2020 00:00 ", "01/01/1900 00:00"]
    found, bad, null = MINUTE._read_quietly(pd.Series(texts))
    dates = found.view("datetime64[us]").astype("datetime64[m]").astype(str).tolist()
    assert dates[:3] == ["2020-12-31T23:59", "2021-02-01T05:07", "2020-12-31T00:00"]
    assert null.tolist() == [False, False, False, True]
    assert not bad.any()
    others = ["2020-12-31T23:59", "31/12/2020", "12/31/2020 10:00", "31/12/20 10:00", "", "now", 5]
    assert read(MINUTE, others) == [None] * len(others)
    dates = pd.Series([pd.Timestamp("2020-12-31 23:59"), datetime.date(2021, 2, 1)], dtype=object)
    assert None not in read(MINUTE, dates)
    assert MINUTE.encode(pd.Series(pd.to_datetime(["2020-12-31 23:59"]))).shape == (1, 3)


@pytest.mark.parametrize(
    ("format", "resolution"),
    [
        ("%d/%m/%Y", "D"),
        ("%d.%m.%Y %H:%M", "m"),
        ("%m/%d/%Y %I:%M %p", "m"),
        ("%d %b %Y", "D"),
        ("%Y%m%d%H%M%S", "s"),
        ("%Y-%m-%dT%H:%M:%S.%f", "us"),
        ("%m/%Y", "D"),
        ("%Y-%j", "D"),
        ("%d.%m.%Y %H:%M %z", "m"),
    ],
)
@pytest.mark.parametrize("zone", [None, "Europe/Paris"])
def test_a_format_is_read_as_it_is_written(format, resolution, zone):
    column = Datetime("1950-01-01", "2024-12-31", format=format, zone=zone, resolution="us")
    assert column.resolution == resolution
    values = column.decode(np.linspace(-1, 1, 50)[:, None])
    texts = column.to_texts(values)
    again = column.to_texts(column.decode(column.encode(texts)))
    assert again.tolist() == texts.tolist()
    if "%d" in format:
        assert column.encode(texts).tolist() == column.encode(values).tolist()


def test_times_without_a_date_are_of_one_day():
    clock = Datetime("1900-01-01", "1900-01-01T23:59", format="%H:%M", nullable=True)
    values = clock.decode(clock.encode(pd.Series(["14:30", None])))
    assert clock.to_texts(values).tolist() == ["14:30", None]


@pytest.mark.parametrize(
    "format", ["%d/%m", "%c", "x", "", "%d/%m/%y", "%I:%M %d/%m/%Y", "%H:%M", "%", "%d\n%m%Y", 5]
)
def test_a_format_that_loses_dates_is_refused(format):
    with pytest.raises(PublicValueError, match=r"^format must "):
        Datetime("1920-01-01", "2024-12-31", format=format)


def test_dates_without_a_format_stay_dates():
    values = pd.Series(pd.to_datetime(["2024-03-31"]))
    assert Datetime("2020-01-01", "2024-12-31").to_texts(values).equals(values)


@pytest.mark.parametrize(
    ("column", "values", "texts"),
    [
        (Ordinal([1, 2], nullable=True), [1.0, np.nan], "1||"),
        (Categorical([0, 2**53 + 1], nullable=True), [2**53 + 1, None], f"{2**53 + 1}||"),
        (Categorical([1, 2.5]), [1.0, 2.5], "1|2.5|"),
        (Categorical([False, True], nullable=True), [True, None], "True||"),
        (Categorical(["a", "b"]), ["a", "b"], "a|b|"),
    ],
)
def test_labels_are_written_as_declared(column, values, texts):
    written = column.to_texts(pd.Series(values, dtype=column.dtype))
    assert written.to_csv(index=False, header=False, lineterminator="|", na_rep="") in (
        texts,
        texts.replace("||", '|""|'),
    )


SECRET = "secret 4711"


@pytest.mark.parametrize("column", [EURO, MINUTE], ids=["number", "date"])
def test_errors_name_the_rule_and_no_value(column):
    expected = r"€ 9\.000\.000,00" if column is EURO else "%d/%m/%Y %H:%M"
    with pytest.raises(PublicValueError, match=f"Column 'x' is declared .*{expected}") as caught:
        column.encode(pd.Series([SECRET], name="x"))
    assert SECRET not in "".join(traceback.format_exception(caught.value))

    def naive(text):
        return float(text) if column is EURO else datetime.datetime.fromisoformat(text)

    with pytest.raises(ValueError, match=SECRET):
        naive(SECRET)


@pytest.mark.parametrize("column", [EURO, MINUTE], ids=["number", "date"])
def test_a_value_is_read_by_itself(column):
    good = "€ 1.234,50" if column is EURO else "31/12/2020 23:59"
    alone = read(column, [good])
    for neighbour in (None, 5, "x", "1.5", "2020-01-01", pd.Timestamp("2020-01-01"), float("inf")):
        assert read(column, [good, neighbour])[:1] == alone
        assert read(column, [neighbour, good])[1:] == alone


def test_bins_read_the_same_texts():
    binned = bin_column("x", EURO, 4)
    texts = pd.Series(["€ -8.999.999,00", "1.234", "k. A."])
    assert binned.codes(texts).tolist() == [0, 2, 4]


def test_public_tables_are_read_in_the_declared_way():
    schema = Schema({"cost": EURO, "day": DAY, "n": Numeric(0, 9)})
    public = pd.DataFrame({"cost": ["1.234", "2,5"], "day": ["31/12/2020", "5/6/2021"], "n": "4"})
    found = PublicTable(public).read(schema).frame
    assert found["cost"].tolist() == [1234, 2.5]
    assert found["day"].astype(str).tolist() == ["2020-12-31", "2021-06-05"]
    # Without the words, such a text is another number.
    plain = PublicTable(public).read(Schema({"cost": Numeric(-9e6, 9e6)})).frame
    assert plain["cost"].tolist()[0] == 1.234


DESCRIBED = Schema(
    {
        "a": replace(EURO, description="cost: the whole stay"),
        "b": Categorical(["x"], description="a\nb"),
        "c": OpenCategorical(description="#"),
        "d": Ordinal([1, 2], description="1"),
        "e": replace(MINUTE, description="Zeit der Aufnahme, in der Früh\u2028oder am Abend"),
        "f": Identifier("p", description="who"),
        "g": SPACED,
        "h": replace(SWISS, thousands="\u202f", currency="1\u00a0EUR"),
    }
)


def test_words_are_lossless_in_files():
    for again in (
        Schema.from_yaml(DESCRIBED.to_yaml()),
        Schema.from_json(DESCRIBED.to_json()),
        Schema.from_dict(DESCRIBED.to_dict()),
    ):
        assert repr(again) == repr(DESCRIBED)
    assert "currency: €" in DESCRIBED.to_yaml()


@pytest.mark.parametrize("name", DESCRIBED)
def test_earlier_files_have_no_words_and_none_is_added(name):
    column = DESCRIBED[name]
    entry = find_class(type(column).__name__)
    assert entry.build(entry.describe(column)) == column
    later = {"decimal", "thousands", "currency", "format", "description", "missing", "hierarchy"}
    plain = replace(column, **{f.name: f.default for f in fields(column) if f.name in later})
    saved = entry.describe(plain)
    assert not saved.keys() & later
    assert entry.build(saved) == plain


@pytest.mark.parametrize("name", DESCRIBED)
def test_words_do_not_change_the_meaning_of_a_release(name):
    column = DESCRIBED[name]
    words = {"decimal", "thousands", "currency", "format", "description"}
    plain = replace(column, **{f.name: f.default for f in fields(column) if f.name in words})
    assert plain != column
    assert _release._plain(plain) == _release._plain(column)


@pytest.mark.parametrize("name", DESCRIBED)
def test_words_that_are_not_used_change_no_seeded_noise(name):
    """A noise source is bound to the state of a schema, as releases before the words had it."""
    words = {"decimal", "thousands", "currency", "format", "description"}
    column = DESCRIBED[name]
    plain = replace(column, **{f.name: f.default for f in fields(column) if f.name in words})
    assert not vars(copy.deepcopy(plain)).keys() & words
    assert vars(plain).keys() & words
    for kept in (plain, column):
        for again in (copy.deepcopy(kept), pickle.loads(pickle.dumps(kept))):
            assert repr(again) == repr(kept)
            assert again == kept
            assert hash(again) == hash(kept)


def test_a_table_of_texts_has_all_columns():
    frame = pd.DataFrame({"n": [3.0, None], "other": [1, 2]}, index=[4, 5])
    schema = Schema({"n": Numeric(0, 9, integer=True, nullable=True), "m": Numeric(0, 1)})
    texts = schema.to_texts(frame)
    assert texts["n"].tolist() == ["3", None]
    assert list(texts) == ["n", "other"]
    assert texts.index.equals(frame.index)


def test_scikit_learn_takes_integers_beside_nulls():
    """The reason why frames have floats: pandas' own nullable integers cannot be passed through."""
    visits = Numeric(0, 9, integer=True, nullable=True)
    frame = pd.DataFrame({"ward": ["a", "b"] * 20, "visits": [1.0, None] * 20})
    frame["visits"] = visits.decode(visits.encode(frame["visits"]))
    columns = make_column_transformer((OrdinalEncoder(), ["ward"]), remainder="passthrough")
    model = make_pipeline(columns, HistGradientBoostingClassifier(max_iter=2))
    target = [0, 1] * 20
    assert model.fit(frame, target).predict(frame).shape == (40,)
    with pytest.raises(ValueError, match="Int64"):
        model.fit(frame.astype({"visits": "Int64"}), target)
