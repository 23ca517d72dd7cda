"""The curves are those of the risks, and of the reports."""

import numpy as np
import pytest

from sklearn_dpgen.accounting import (
    AttackRisk,
    GaussianProfile,
    LaplaceProfile,
    PrivacyReport,
)
from sklearn_dpgen.reporting import TradeOffDisplay

pyplot = pytest.importorskip("matplotlib.pyplot")

RISKS = {"mu = 1": AttackRisk(GaussianProfile(1.0)), "pure": AttackRisk(LaplaceProfile(0.5))}


@pytest.fixture(autouse=True)
def figures():
    pyplot.switch_backend("agg")
    yield
    pyplot.close("all")


def test_draws_one_curve_for_each_guarantee_and_guessing():
    display = TradeOffDisplay(RISKS).plot()
    *curves, guessing = display.lines_
    for curve, (name, risk) in zip(curves, RISKS.items(), strict=True):
        fpr, tpr = curve.get_data()
        np.testing.assert_array_equal(tpr, risk.true_positive_rate(fpr))
        assert curve.get_label() == name
    np.testing.assert_array_equal(*guessing.get_data())
    assert display.figure_ is display.ax_.figure


def test_draws_on_axes_that_are_given():
    _, ax = pyplot.subplots()
    display = TradeOffDisplay(RISKS).plot(ax, linewidth=3)
    assert display.ax_ is ax
    assert {line.get_linewidth() for line in display.lines_[:-1]} == {3}


def test_from_reports():
    report = PrivacyReport(
        name="counts", events=(), epsilon=1.0, delta=1e-5, releases=((GaussianProfile(1.0), 1),)
    )
    one = TradeOffDisplay.from_reports(report)
    assert one.lines_[0].get_label() == "ε = 1, δ = 1e-05"
    assert one.risks == {"ε = 1, δ = 1e-05": RISKS["mu = 1"]}
    two = TradeOffDisplay.from_reports({"a": report, "b": report}, ax=one.ax_)
    assert [line.get_label() for line in two.lines_] == ["a", "b", "guessing"]
