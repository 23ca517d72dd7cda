"""Released shares of one column: merged entries keep counts, noise and point masses."""

import re
from types import SimpleNamespace

import numpy as np
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st

from sklearn_dpgen.preprocessing import TabularEncoder
from sklearn_dpgen.reporting._figures import histogram, label_bars
from sklearn_dpgen.reporting._released import (
    _gap,
    entry_widths,
    merge_bins,
    released_shares,
    sample_shares,
)
from sklearn_dpgen.schema import Numeric, Schema
from sklearn_dpgen.schema._binned import Binned
from sklearn_dpgen.tables import TableSampler
from sklearn_dpgen.tables._releases import NoisyMarginal

FRAME = pd.DataFrame({"a": [0.0, 30.0]})


def released(counts, noise_scale=1.0, width=3):
    """A table of one column, each entry of some categories."""
    groups = np.repeat(np.arange(len(counts)), width)
    return NoisyMarginal(("a",), (groups,), np.asarray(counts, float), noise_scale)


@pytest.mark.slow
@given(
    st.lists(st.floats(-50, 1000), min_size=2, max_size=60),
    st.integers(1, 12),
    st.booleans(),
)
def test_merged_entries_are_sums_of_neighbours(counts, most, has_null):
    part = released(counts, noise_scale=np.arange(1.0, len(counts) + 1))
    n_bins = len(part.groups[0]) - 3 * has_null
    merged = merge_bins(part, n_bins, most)
    places = merged.groups[0]
    assert len(merged.counts) <= most + has_null or merged is part
    assert (np.diff(places) >= 0).all()
    assert set(places) == set(range(len(merged.counts)))
    if has_null and merged is not part:
        assert merged.counts[-1] == counts[-1]
    for entry in range(len(merged.counts)):
        inside = np.unique(part.groups[0][places == entry])
        assert merged.counts[entry] == pytest.approx(part.counts[inside].sum())
        scales = np.broadcast_to(part.noise_scale, part.counts.shape)[inside]
        assert np.broadcast_to(merged.noise_scale, merged.counts.shape)[entry] == pytest.approx(
            np.sqrt((scales**2).sum())
        )


def test_a_point_mass_keeps_an_entry_of_its_own():
    merged = merge_bins(released([10] * 20 + [5000] + [10] * 20), 123, 5)
    assert 5000 in merged.counts
    assert merged.counts.sum() == 5400


def test_few_entries_and_groups_without_an_order_stay():
    few = released([1, 2, 3])
    assert merge_bins(few, 9, 3) is few
    shuffled = NoisyMarginal(("a",), (np.array([1, 0, 2, 0]),), np.ones(3), 1.0)
    assert merge_bins(shuffled, 4, 2) is shuffled


def test_samples_are_counted_in_the_merged_entries():
    merged = merge_bins(released([0, 4, 0, 0, 4, 0]), 18, 2)
    shares = sample_shares(merged, {"a": np.array([0, 3, 5, 16])})
    assert shares == pytest.approx([0.75, 0.25])


def test_a_picture_shows_the_level_that_stands_out_most():
    # Half of the records are one value among a thousand others.
    values = np.where(np.arange(4000) % 2, 77.0, np.random.default_rng(0).uniform(0, 1000, 4000))
    sampler = TableSampler(1.0, 1e-6, schema=Schema({"a": Numeric(0, 1000)}))
    sampler.fit(pd.DataFrame({"a": values}))
    part, shares, errors = released_shares(sampler, "a")
    assert len(shares) == len(errors) <= 40
    assert shares.max() == pytest.approx(0.5, abs=0.05)
    # Shown as they were counted, levels have too many entries.
    assert max(len(level.counts) for level in sampler.one_way_marginals_) > 40


def test_noise_does_not_count_as_what_stands_out():
    """Of two levels of one column, the one with fewer entries that are clear of the noise loses."""
    counts = np.random.default_rng(0).normal(0, 1000, 30)
    noisy = released(np.abs(counts), noise_scale=1000.0, width=1)
    clear = released([900.0] * 10, noise_scale=20.0, width=3)
    column = TabularEncoder(Schema({"a": Numeric(0, 30)}), n_bins=30).fit(FRAME).columns_["a"]
    view = SimpleNamespace(
        one_way_marginals_=[noisy, clear],
        n_records_=9000,
        encoder_=SimpleNamespace(columns_={"a": column}),
    )
    assert isinstance(column, Binned)
    part, shares, errors = released_shares(view, "a")
    assert part is clear
    assert shares == pytest.approx([0.1] * 10)
    assert errors == pytest.approx([20 / 9000] * 10)
    # Negative twin: by the number of positive entries the other one would be shown.
    assert np.sum(noisy.counts > 0) > np.sum(clear.counts > 0)


@pytest.mark.parametrize("k", [1, 2, 7, 24, 25, 40, 97])
def test_labels_of_bars_do_not_touch(k):
    pytest.importorskip("matplotlib")
    labels = [str(1000 + i) for i in range(k)]
    svg = histogram(np.ones(k) / k, np.ones(k) / k, labels, "shares")
    texts = re.findall(r'text-anchor: middle[^>]* x="([\d.]+)"[^>]*>(\d+)<', svg)
    assert [texts[0][1], texts[-1][1]] == [labels[0], labels[-1]]
    starts = [float(x) for x, _ in texts]
    # Four digits of 7.5 points.
    assert all(b - a > 4 * 4.8 for a, b in zip(starts, starts[1:], strict=False))


@pytest.mark.parametrize(("k", "is_cut"), [(24, True), (11, False), (3, False)])
def test_a_wide_last_label_is_not_cut(k, is_cut):
    pytest.importorskip("matplotlib")
    labels = [f"2020-01-{i + 1:02}" for i in range(k)]
    svg = histogram(np.ones(k) / k, np.ones(k) / k, labels, "shares")
    ((anchor, x),) = re.findall(rf'text-anchor: (\w+)[^>]* x="([\d.]+)"[^>]*>{labels[-1]}<', svg)
    # Ten letters of 7.5 points, on a figure that is 260 points wide.
    width = 10 * 4.4
    assert float(x) + (width / 2 if anchor == "middle" else 0) < 260
    # Negative twin: centred, a label in a narrow last bin would be cut.
    assert (float(x) + width / 2 > 260) == is_cut


def percents(svg):
    return [float(text) for text in re.findall(r">([\d.]+)%<", svg)]


@pytest.mark.parametrize("draw", [histogram, label_bars])
def test_no_figure_shows_a_share_above_one(draw):
    pytest.importorskip("matplotlib")
    noisy, errors = np.array([7.0, -6.0, 0.2]), np.full(3, 9.0)
    svg = draw(noisy, np.array([0.5, 0.3, 0.2]), ["a", "b", "c"], "shares", errors=errors)
    assert percents(svg)
    assert max(percents(svg)) <= 100


def test_no_distance_exceeds_one_where_noise_fills_a_fine_column():
    """Of 230 persons and 1000 bins, noise of 5 a bin adds up to ten times their number."""
    rng = np.random.default_rng(0)
    counts = np.zeros(1000)
    counts[::5] = 230 / 200
    noisy = released(counts + rng.normal(0, 5, 1000), noise_scale=5.0, width=1)
    column = TabularEncoder(Schema({"a": Numeric(0, 1000)}), n_bins=1000).fit(FRAME).columns_["a"]
    view = SimpleNamespace(
        one_way_marginals_=[noisy],
        n_records_=230,
        encoder_=SimpleNamespace(columns_={"a": column}),
    )
    codes = {"a": np.arange(0, 1000, 5)}
    fine = _gap(view, noisy, codes)
    assert fine["noise"] == 1.0
    assert fine["distance"] <= 1.0
    # Without the projection the distance is larger than any distance of two distributions.
    raw = np.abs(sample_shares(noisy, codes) - noisy.counts / 230).sum() / 2
    assert raw > 7
    # Merged bins have less noise: fewer of them are shown where less stands out.
    part, shares, errors = released_shares(view, "a")
    assert len(shares) < 40
    assert _gap(view, part, codes)["noise"] < 1.0


def areas(svg):
    """Return the area of each bin of the filled steps of a figure."""
    (path,) = re.findall(r'<path d="([^"]*)"[^>]*style="fill: #b4bdc9', svg)[:1]
    points = [tuple(map(float, p)) for p in re.findall(r"([\d.]+) ([\d.]+)", path)]
    bottom = max(y for _, y in points)
    steps = zip(points, points[1:], strict=False)
    return np.array(
        [(x1 - x0) * (bottom - y0) for (x0, y0), (x1, y1) in steps if y0 == y1 < bottom]
    )


def test_areas_of_bins_of_different_widths_are_shares():
    pytest.importorskip("matplotlib")
    shares, widths = np.array([0.5, 0.2, 0.3]), np.array([0.1, 0.2, 0.7])
    labels = ["0", "1", "3"]
    found = areas(histogram(shares, shares, labels, "shares", widths=widths))
    assert found / found.sum() == pytest.approx(shares, abs=2e-3)
    # The twin: bars of equal widths and of heights that are shares would be as wrong as that.
    assert shares * widths / np.sum(shares * widths) != pytest.approx(shares, abs=0.1)
    # Equal widths keep an axis of shares; densities have none.
    equal = histogram(shares, shares, labels, "shares", widths=np.full(3, 1 / 3))
    assert percents(equal)
    assert not percents(histogram(shares, shares, labels, "shares", widths=widths))


def test_a_point_mass_is_visible_and_keeps_its_share():
    pytest.importorskip("matplotlib")
    shares, widths = np.array([0.5, 0.5]), np.array([1e-6, 1 - 1e-6])
    found = areas(histogram(shares, shares, ["0", "0.1"], "shares", widths=widths))
    assert found / found.sum() == pytest.approx(shares, abs=2e-3)


def test_widths_are_those_of_the_merged_bins():
    column = TabularEncoder(Schema({"a": Numeric(0, 30)}), n_bins=30).fit(FRAME).columns_["a"]
    groups = np.repeat([0, 1, 2], [5, 10, 15])
    assert entry_widths(column, groups) == pytest.approx([5 / 30, 10 / 30, 15 / 30], abs=1e-9)
    assert entry_widths(column, groups[::-1]) is None
    years = Schema({"a": Numeric(0, 9, integer=True)})
    column = TabularEncoder(years, n_bins=10).fit(FRAME.clip(0, 9).round()).columns_["a"]
    assert entry_widths(column, np.arange(10)) == pytest.approx([0.1] * 10)
