"""Keys of a quadtree: digits by hand and by halving, and coordinates drawn inside a rectangle."""

import pickle

import numpy as np
import pandas as pd
import pytest
from sklearn.base import clone

from sklearn_dpgen.preprocessing import PlaceEncoder
from sklearn_dpgen.schema import Categorical, Numeric, Schema
from sklearn_dpgen.tables import TableSampler

GLOBE = {"lat": Numeric(-90, 90), "long": Numeric(-180, 180)}
NULLABLE = {name: Numeric(part.low, part.high, nullable=True) for name, part in GLOBE.items()}


def points(*pairs, **columns):
    return pd.DataFrame([*pairs], columns=["lat", "long"]).assign(**columns)


def halved(lat, long, depth):
    """Return the key and the rectangle of a point, by halving the rectangle around it."""
    box, key = [[-90.0, 90.0], [-180.0, 180.0]], ""
    for _ in range(depth):
        digit = 0
        for i, value in enumerate((lat, long)):
            middle = sum(box[i]) / 2
            is_upper = value >= middle
            box[i][0 if is_upper else 1] = middle
            digit = 2 * digit + is_upper
        key += str(int(digit))
    return key, box


# Halves at 0; quarters at -45, 45 and -90, 90; eighths at multiples of 22.5 and 45.
@pytest.mark.parametrize(
    ("lat", "long", "key"),
    [
        (-90, -180, "000"),  # the lowest corner
        (90, 180, "333"),  # the highest belongs to the last rectangle
        (90, -180, "222"),
        (-90, 180, "111"),
        (0, 0, "300"),  # an inner edge belongs to the rectangle above
        (-0.001, 0, "122"),
        (0, -0.001, "211"),
        (59.9, 10.8, "320"),  # Oslo: above 0, above 45, below 67.5; above 0, below 90, below 45
        (-33.9, 151.2, "131"),  # Sydney: below 0, above -45, below -22.5; above 0, 90 and 135
        (40.7, -74.0, "212"),  # New York: 0 to 45, above 22.5; -90 to 0, below -45
        (1000, -1000, "222"),  # clipped
        (np.inf, -np.inf, "222"),
    ],
)
def test_keys_by_hand(lat, long, key):
    assert PlaceEncoder(GLOBE, depth=3).transform(points((lat, long)))["place"].tolist() == [key]


@pytest.mark.parametrize("depth", [1, 2, 5, 8])
def test_keys_and_coordinates_by_halving(depth):
    rng = np.random.default_rng(0)
    frame = points(*np.column_stack([rng.uniform(-90, 90, 300), rng.uniform(-180, 180, 300)]))
    encoder = PlaceEncoder(GLOBE, depth=depth).fit()
    keys = encoder.transform(frame)
    found = [halved(*point, depth) for point in frame.to_numpy()]
    assert keys["place"].tolist() == [key for key, _ in found]
    # The twin: with the coordinates swapped, keys are others.
    swapped = PlaceEncoder(dict(reversed(GLOBE.items())), depth=depth).transform(frame)
    assert keys["place"].tolist() != swapped["place"].tolist()
    drawn = encoder.inverse_transform(keys, random_state=0)
    for point, (_, box) in zip(drawn.to_numpy(), found, strict=True):
        assert all(low <= value <= high for value, (low, high) in zip(point, box, strict=True))
    # Drawn coordinates have the same keys: the way back is exact.
    pd.testing.assert_frame_equal(encoder.transform(drawn), keys)


def test_coordinates_are_uniform_in_a_rectangle():
    encoder, n = PlaceEncoder(GLOBE, depth=2), 20_000
    drawn = encoder.inverse_transform(pd.DataFrame({"place": ["12"] * n}), random_state=1)
    # "1": south and east; "2": its northern and western quarter.
    shares = np.column_stack([(drawn["lat"] + 45) / 45, drawn["long"] / 90])
    assert (shares >= 0).all()
    assert (shares <= 1).all()
    assert abs(shares.mean(axis=0) - 1 / 2).max() < 5 * np.sqrt(1 / 12 / n)
    assert abs(shares.var(axis=0) - 1 / 12).max() < 5 * np.sqrt(1 / 180 / n)
    assert abs(np.corrcoef(shares.T)[0, 1]) < 5 / np.sqrt(n)


@pytest.mark.parametrize("depth", [1, 3])
def test_the_declared_column(depth):
    column = PlaceEncoder(GLOBE, depth=depth).column_
    assert isinstance(column, Categorical)
    assert not column.nullable
    assert len(column.categories) == 4**depth
    assert column.categories[0] == "0" * depth
    assert column.categories[-1] == "3" * depth
    # Four groups, then sixteen; a single level has none.
    assert [len(np.unique(level)) for level in column.groups] == [4, 16][: depth - 1]
    assert PlaceEncoder(NULLABLE, depth=depth).column_.nullable


def test_a_missing_coordinate_is_a_missing_key():
    frame = points((1, 2), (np.nan, 2), (1, np.nan), (np.nan, np.nan))
    encoder = PlaceEncoder(NULLABLE, depth=2)
    keys = encoder.transform(frame)
    assert keys["place"].isna().tolist() == [False, True, True, True]
    assert (encoder.column_.codes(keys["place"]) == [12, 16, 16, 16]).all()
    back = encoder.inverse_transform(keys, random_state=0)
    assert back.isna().to_numpy().tolist() == [[False] * 2, *[[True] * 2] * 3]
    with pytest.raises(ValueError, match="Column 'lat' has missing values but is not nullable"):
        PlaceEncoder(GLOBE).transform(frame)


@pytest.mark.slow
def test_other_columns_their_order_and_the_index_stay():
    frame = pd.DataFrame(
        {"size": [1, 2], "long": [0.0, 1.0], "kind": ["a", "b"], "lat": [3.0, 4.0]}, index=[7, 5]
    )
    given = frame.copy()
    encoder = PlaceEncoder(GLOBE, name="where")
    keys = encoder.fit_transform(frame)
    pd.testing.assert_frame_equal(frame, given)
    assert keys.columns.tolist() == ["size", "where", "kind"]
    assert keys.index.tolist() == [7, 5]
    back = encoder.inverse_transform(keys)
    assert back.columns.tolist() == ["size", "lat", "long", "kind"]
    assert back.index.tolist() == [7, 5]
    assert len(encoder.transform(frame[:0])) == len(encoder.inverse_transform(keys[:0])) == 0


def test_coordinates_are_rounded_as_declared():
    declared = {"lat": Numeric(0, 10, step=0.1), "long": Numeric(0, 31, integer=True)}
    encoder = PlaceEncoder(declared, depth=5)
    frame = points((0.1, 0), (9.9, 31), (5.0, 16))
    keys = encoder.transform(frame)
    drawn = encoder.inverse_transform(keys, random_state=0)
    assert drawn["long"].tolist() == [0, 31, 16]
    assert drawn["long"].dtype == np.int64
    assert (drawn["lat"] == drawn["lat"].round(1)).all()
    pd.testing.assert_frame_equal(encoder.transform(drawn), keys)


def test_draws_are_reproducible_or_not():
    keys = pd.DataFrame({"place": ["00000"] * 5})
    encoder = PlaceEncoder(GLOBE)
    first, again, other, *fresh = (
        encoder.inverse_transform(keys, random_state=seed) for seed in (0, 0, 1, None, None)
    )
    pd.testing.assert_frame_equal(first, again)
    assert not first.equals(other)
    assert not fresh[0].equals(fresh[1])
    assert first["lat"].nunique() == 5
    assert not np.allclose((first["lat"] + 90) / 180, (first["long"] + 180) / 360)


def test_nothing_is_learned():
    frame = points((1, 2))
    encoder = PlaceEncoder(GLOBE)
    fitted = clone(encoder).fit(points((50, 100), (-50, 7)))
    assert vars(fitted) == vars(encoder)
    pd.testing.assert_frame_equal(fitted.transform(frame), encoder.transform(frame))
    again = pickle.loads(pickle.dumps(encoder))
    assert again.column_ == encoder.column_


@pytest.mark.parametrize(
    ("columns", "others", "message"),
    [
        ({"lat": Numeric(-90, 90)}, {}, "columns must map the names of two coordinates"),
        (GLOBE | {"height": Numeric(0, 1)}, {}, "columns must map the names of two coordinates"),
        (GLOBE | {"lat": Categorical(["a"])}, {}, "columns must map the names of two coordinates"),
        (GLOBE | {"lat": NULLABLE["lat"]}, {}, "columns must both be nullable, or neither"),
        (GLOBE, {"name": "lat"}, "name must not be one of the columns, got 'lat'"),
        (GLOBE, {"depth": 0}, "The 'depth' parameter"),
        (GLOBE, {"depth": 9}, "The 'depth' parameter"),
        (("lat", "long"), {}, "The 'columns' parameter"),
        (
            GLOBE | {"lat": Numeric(0, 30, integer=True)},
            {},
            "depth must be at most 4: column 'lat' has 31 values, got 5",
        ),
    ],
)
def test_errors_of_parameters(columns, others, message):
    encoder = PlaceEncoder(columns, **others)
    with pytest.raises(ValueError, match=message):
        encoder.fit()
    with pytest.raises(ValueError, match=message):
        encoder.transform(points((0, 0)))


def test_errors_of_records_show_no_value():
    encoder = PlaceEncoder(GLOBE)
    cases = [
        (encoder.transform, points((0, 0))[["lat"]], r"must have the columns \['long'\]"),
        (encoder.transform, points((0, 0), place="0"), r"not have the columns \['place'\]"),
        (encoder.transform, points((0, 0)).to_numpy(), "X must be a data frame"),
        (encoder.transform, points(("1717", 0)), "Column 'lat' .* must hold real numbers"),
        (encoder.inverse_transform, points((0, 0)), r"must have the columns \['place'\]"),
        (
            encoder.inverse_transform,
            points((0, 0), place="00000"),
            r"not have the columns \['lat', 'long'\]",
        ),
        (encoder.inverse_transform, pd.DataFrame({"place": ["1717"]}), "Column 'place' holds"),
    ]
    for function, X, message in cases:
        with pytest.raises(ValueError, match=message) as caught:
            function(X)
        assert "1717" not in str(caught.value)


def test_frames_of_polars():
    polars = pytest.importorskip("polars")
    frame = points((59.9, 10.8))
    found = PlaceEncoder(GLOBE, depth=3).transform(polars.from_pandas(frame))
    assert found["place"].tolist() == ["320"]


def test_a_sampler_draws_places():
    rng = np.random.default_rng(0)
    town = rng.integers(2, size=3000)
    frame = points(*(np.array([[60, 10], [-34, 151]])[town] + rng.normal(size=(3000, 2))))
    frame["side"] = np.array(["north", "south"])[town]
    encoder = PlaceEncoder(GLOBE, depth=5)
    schema = Schema({"place": encoder.column_, "side": Categorical(["north", "south"])})
    sampler = TableSampler(schema=schema, random_state=0).fit(encoder.transform(frame))
    drawn = encoder.inverse_transform(sampler.sample(3000, random_state=0), random_state=0)
    is_north = drawn["side"] == "north"
    # A rectangle has 5.6 by 11.25 degrees; nothing but noise is elsewhere.
    near = [
        (abs(drawn["lat"] - lat) < 12) & (abs(drawn["long"] - long) < 24) & (is_north == north)
        for lat, long, north in ((60, 10, True), (-34, 151, False))
    ]
    assert np.mean(near[0] | near[1]) > 0.9
