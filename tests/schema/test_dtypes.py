"""The dtypes of decoded values: of the declaration alone."""

import datetime
from decimal import Decimal

import numpy as np
import pandas as pd
import pytest

from sklearn_dpgen.preprocessing import TabularEncoder
from sklearn_dpgen.schema import Categorical, Datetime, Numeric, Ordinal, Schema
from sklearn_dpgen.schema._binned import bin_column

STRING = pd.Series(["a"]).dtype


@pytest.mark.parametrize(
    ("column", "dtype"),
    [
        (Numeric(0, 9), "float64"),
        (Numeric(0, 9, step=1), "float64"),
        (Numeric(0, 9, nullable=True), "float64"),
        (Numeric(0, 9, integer=True), "int64"),
        (Numeric(0, 9, integer=True, nullable=True), "float64"),
        (bin_column("x", Numeric(0, 9, integer=True), 3), "int64"),
        (Categorical(["a", "b"]), STRING),
        (Categorical(["a", "b"], nullable=True), STRING),
        (Categorical([0, 1]), "int64"),
        (Categorical([0, 2**63]), object),
        (Categorical([0, 10**400]), object),
        (Categorical([0, 2**53 + 1], nullable=True), object),
        (Categorical([1, 2.5]), "float64"),
        (Categorical([1, "a"]), object),
        (Categorical([False, True]), "bool"),
        (Categorical([False, True], nullable=True), object),
        (Ordinal([1, 2], nullable=True), "float64"),
        (Datetime("2020-01-01", "2021-01-01"), "datetime64[us]"),
        (Datetime("0800-12-25", "2021-01-01", resolution="D", nullable=True), "datetime64[us]"),
        (Datetime("2020-01-01", "2021-01-01", zone="UTC"), "datetime64[us, UTC]"),
    ],
    ids=str,
)
def test_the_declaration_decides(column, dtype):
    ends = np.stack([-np.ones(column.domain.n_features), np.ones(column.domain.n_features)])
    for rows in (ends, ends[:1], ends[1:], np.eye(column.domain.n_features)):
        decoded = column.decode(rows, name="x")
        assert decoded.dtype == column.dtype == dtype
        assert decoded.name == "x"
        column.encode(decoded)
    labels = getattr(column, "labels", ())
    back = column.decode(np.eye(column.domain.n_features))[: len(labels)]
    assert back.tolist() == list(labels)


class Naive(TabularEncoder):
    """Gives decoded columns the dtypes of the fitted ones."""

    def fit(self, X, y=None):
        super().fit(X)
        self.kinds_ = dict(X.dtypes)
        return self

    def inverse_transform(self, X, **options):
        return super().inverse_transform(X, **options).astype(self.kinds_)


NEIGHBOURS = {
    "a fraction": (Numeric(30, 45), [36] * 200, [*[36] * 199, 36.5]),
    "an object": (Numeric(30, 45), [36, 37], [36, Decimal(37)]),
    "beyond 64 bits": (Numeric(0, 9), [1, 2], [1, 2**63]),
    "far beyond": (Numeric(0, 9), [1, 2], [1, 10**400]),
    "a null": (Numeric(0, 9, nullable=True), [1, 2], [1, None]),
    "nulls alone": (Categorical(["a", "b"], nullable=True), ["a", None], [None, None]),
    "a bool and a null": (Categorical([True, False], nullable=True), [True], [None]),
    "a label of a kind": (Categorical([1, "a"]), [1, 1], [1, "a"]),
    "a date of another unit": (
        Datetime("2020-01-01", "2021-01-01"),
        np.array(["2020-05-05"], "M8[s]"),
        np.array(["2020-05-05T00:00:00.123456789"], "M8[ns]"),
    ),
    "a date of another zone": (
        Datetime("2020-01-01", "2021-01-01"),
        [pd.Timestamp("2020-05-05", tz="UTC")] * 2,
        [pd.Timestamp("2020-05-05", tz=zone) for zone in ("UTC", "Asia/Tokyo")],
    ),
    "a date of Python": (
        Datetime("2020-01-01", "2021-01-01"),
        [pd.Timestamp("2020-05-05")] * 2,
        [pd.Timestamp("2020-05-05"), datetime.date(2020, 5, 5)],
    ),
}
if int(pd.__version__.partition(".")[0]) < 3:
    # Such columns cannot be made, or are of objects both times.
    del NEIGHBOURS["far beyond"], NEIGHBOURS["nulls alone"]


def tells(kind, column, first, second):
    schema = Schema({"x": column})
    dtypes = []
    for values in (first, second):
        frame = pd.DataFrame({"x": pd.Series(values)})
        encoder = kind(schema).fit(frame)
        try:
            decoded = encoder.inverse_transform(encoder.transform(frame))
        except (TypeError, ValueError):  # what a naive encoder cannot hold
            decoded = frame[:0]
        dtypes.append(decoded.dtypes.to_dict())
    return dtypes[0] != dtypes[1]


@pytest.mark.parametrize("case", NEIGHBOURS.values(), ids=NEIGHBOURS)
def test_one_record_decides_no_dtype(case):
    assert not tells(TabularEncoder, *case)
    assert tells(Naive, *case)
