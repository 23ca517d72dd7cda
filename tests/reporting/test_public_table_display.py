"""Figures of where a public table agrees with released counts."""

import matplotlib as mpl
import numpy as np
import pandas as pd
import pytest
from matplotlib.colors import to_rgb

from sklearn_dpgen.reporting import PublicTableDisplay
from sklearn_dpgen.schema import Categorical, Schema
from sklearn_dpgen.tables import TableSampler
from sklearn_dpgen.tables._public_prior import PublicAgreement

mpl.use("Agg")

SCHEMA = Schema({"a": Categorical([0, 1]), "b": Categorical([0, 1, 2])})


def table(n, share, seed):
    rng = np.random.default_rng(seed)
    return pd.DataFrame(
        {"a": (rng.uniform(size=n) < share).astype(int), "b": rng.integers(3, size=n)}
    )


def test_points_are_distances_and_bars_limits():
    agreements = [
        PublicAgreement(("a",), 0.30, 0.10, 1.0),
        PublicAgreement(("b",), 0.05, 0.10, 1.0),
        PublicAgreement(("a", "b"), 0.20, 0.10, 0.5),
        # The pair is released again.
        PublicAgreement(("a", "b"), 0.02, 0.10, 0.5),
    ]
    display = PublicTableDisplay(agreements).plot()
    labels = [text.get_text() for text in display.ax_.get_yticklabels()]
    # From the bottom: pairs, then columns, those that agree least on top.
    assert labels == ["a × b", "b", "a"]
    assert display.points_.get_offsets()[:, 0].tolist() == [0.02, 0.05, 0.30]
    assert [bar.get_width() for bar in display.limits_] == [0.10] * 3
    colours = {tuple(np.round(c[:3], 3)) for c in display.points_.get_facecolors()}
    assert colours == {tuple(np.round(to_rgb(c), 3)) for c in ("#31688e", "#b3582c")}


def test_few_marginals_are_shown():
    many = [PublicAgreement((f"c{i}", "y"), i / 100, 0.1, 1.0) for i in range(50)]
    display = PublicTableDisplay(many).plot()
    labels = [text.get_text() for text in display.ax_.get_yticklabels()]
    assert len(labels) == 20
    assert labels[-1] == "c49 × y"


def test_a_fit_is_drawn():
    private, public = table(5000, 0.2, 0), table(5000, 0.8, 1)
    sampler = TableSampler(50.0, schema=SCHEMA, public=public, max_iter=2, device="cpu")
    display = PublicTableDisplay.from_estimator(sampler.fit(private))
    found = {one.columns: one for one in display.agreements}
    # Shares of .2 and .8 are far apart at this budget, and uniform columns are not.
    assert not found[("a",)].agrees
    assert found[("a",)].distance == pytest.approx(0.6, abs=0.05)
    assert display.ax_.get_xlabel() == "total variation distance from the released counts"


def test_a_fit_without_a_public_table_has_no_figure():
    sampler = TableSampler(50.0, schema=SCHEMA, max_iter=2, device="cpu").fit(table(500, 0.5, 0))
    with pytest.raises(TypeError, match="estimator must be a TableSampler or RelationalSam"):
        PublicTableDisplay.from_estimator(sampler)
